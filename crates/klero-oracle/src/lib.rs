//! The slow truth of Klero, for tests only: one row, one draw, the whole law in plain f64.
//!
//! Everything here is the shortest way to say what the law says. All ids are sorted, all noise is computed, all sums
//! run over all ids with `std`'s `exp`, `ln` and `ln_1p`; there are no integer masses, blocks, threads or bounds. It
//! shares no code with the crate it checks. Only three things are done in the law's own narrow formats, since they are
//! part of what a row *is*: parameters are rounded to f32, x = l · (1/T) is two f32 operations, and Gumbel scores are
//! compared by 44 bits.
//!
//! A fast implementation rounds otherwise, so near a boundary it may decide otherwise. [`Outcome::margin`] says how
//! near the nearest boundary was: wherever it is above 2·10⁻⁶, both must agree on token, kept set and acceptance.
//!
//! | Law | Here |
//! |---|---|
//! | 1 order: penalties, bias, mask, force_top_k | `stages` |
//! | 1 times 1/T | [`draw`] |
//! | 2 parameters: f32, the clamp | [`Params::effective`] |
//! | 3 filter | `filter` |
//! | 5 hash, 6 noise | [`hash`] |
//! | 6 both draws | `choose` |
//! | 9 logprobs | [`draw`] |
//! | 10 speculation, by rejection and coupled | `verify` |
//! | 11 bad rows | [`Status`] |
//!
//! ```
//! use klero_oracle::{Params, draw};
//!
//! let logits = [3.2, 2.7, 1.6, 0.7, 0.2, -0.5];
//! let params = Params { top_p: 0.8, top_k: 2, seed: 42, position: 7, ..Params::default() };
//! let outcome = draw(&logits, logits.len(), &params, None).unwrap();
//! assert_eq!(outcome.kept_ids, [0, 1]);
//! assert!(outcome.token < 2);
//! ```

mod choose;
mod filter;
pub mod golden;
pub mod hash;
mod stages;
mod verify;

use hash::{Case, MTP_OFFSET, row_hash, uniform};

pub use hash::Noise;
pub use stages::Edits;
pub use verify::Verification;

/// How a token is drawn from the processed distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The greatest x + Gumbel noise.
    Gumbel,
    /// The first id whose running probability is greater than one uniform number.
    InverseCdf,
}

/// The parameters of one row, taken as valid: the oracle checks none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// T ≥ 0; below 10⁻⁵ see [`Params::effective`].
    pub temperature: f64,
    /// In (0, 1]; 1 is off.
    pub top_p: f64,
    /// At least 1; −1 is off.
    pub top_k: i64,
    /// In [0, 1); 0 is off.
    pub min_p: f64,
    /// Whether min-p and top-k come first, and top-p then cuts what they leave, renormalised.
    pub min_p_first: bool,
    /// ρ > 0; 1 is off.
    pub repetition_penalty: f64,
    /// 0 is off.
    pub frequency_penalty: f64,
    /// 0 is off.
    pub presence_penalty: f64,
    /// How many of the largest logits take part at all; 0 is all.
    pub force_top_k: usize,
    /// How to draw.
    pub draw: Draw,
    /// The seed of the request.
    pub seed: u64,
    /// The number of tokens before the new one.
    pub position: u64,
    /// Whether this is the draft stream, which has a seed of its own.
    pub mtp: bool,
    /// δ of the residual.
    pub delta: f64,
}

impl Default for Params {
    /// Temperature 1, no filter, Gumbel, seed and position 0, δ = 5·10⁻⁵.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            min_p_first: false,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            force_top_k: 0,
            draw: Draw::Gumbel,
            seed: 0,
            position: 0,
            mtp: false,
            delta: 5e-5,
        }
    }
}

impl Params {
    /// The parameters a row is really drawn with: floats rounded once to f32, a temperature below 10⁻⁵ (as given)
    /// raised to it with every filter off, and the seed moved to its stream.
    pub fn effective(&self) -> Self {
        let rounded = |value: f64| f64::from(value as f32);
        let seed = if self.mtp { self.seed.wrapping_add(MTP_OFFSET) } else { self.seed };
        let (temperature, top_p, top_k, min_p) = if self.temperature < 1e-5 {
            (1e-5, 1.0, -1, 0.0)
        } else {
            (self.temperature, self.top_p, self.top_k, self.min_p)
        };
        Self {
            temperature: rounded(temperature),
            top_p: rounded(top_p),
            top_k,
            min_p: rounded(min_p),
            repetition_penalty: rounded(self.repetition_penalty),
            frequency_penalty: rounded(self.frequency_penalty),
            presence_penalty: rounded(self.presence_penalty),
            seed,
            mtp: false,
            ..*self
        }
    }
}

/// A draft for one row: its token and how that came about.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The token, −1 for none.
    pub token: i64,
    /// Where it came from.
    pub proposal: Proposal<'a>,
}

/// Where a drafted token came from.
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    /// A distribution: the draft's logprob of every id.
    Distribution(&'a [f32]),
    /// A guess: the distribution that holds nothing but the token.
    OneHot,
    /// The same random numbers as the row's own draw.
    Coupled,
}

impl<'a> Draft<'a> {
    /// A token drawn from a distribution.
    pub fn new(token: i64, logprobs: &'a [f32]) -> Self {
        Self { token, proposal: Proposal::Distribution(logprobs) }
    }

    fn token(&self) -> Option<usize> {
        usize::try_from(self.token).ok()
    }

    /// The logprob of `id`, −∞ outside the vocabulary and without a distribution.
    fn logprob(&self, id: usize) -> f64 {
        match self.proposal {
            Proposal::Distribution(logprobs) => logprobs.get(id).map_or(f64::NEG_INFINITY, |&d| f64::from(d)),
            Proposal::OneHot | Proposal::Coupled => f64::NEG_INFINITY,
        }
    }

    fn probability(&self, id: usize) -> f64 {
        match self.proposal {
            Proposal::Distribution(_) => self.logprob(id).exp(),
            Proposal::OneHot | Proposal::Coupled => f64::from(u8::from(self.token() == Some(id))),
        }
    }
}

/// Why a row has no token. The first of these that holds is reported, with the lowest id to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A logit, or a draft's logprob, is NaN.
    Nan(usize),
    /// A logit is +∞ or a finite one left the range of f32, or a draft's logprob is above 10⁻³.
    Infinite(usize),
    /// No finite logit is left.
    Empty,
}

/// One draw and everything that led to it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The token to emit.
    pub token: usize,
    /// Its logprob in the processed distribution.
    pub logprob: f64,
    /// Its logprob in the unprocessed one, over the valid vocabulary.
    pub raw_logprob: f64,
    /// The number of ids the filters left, those at −∞ not counted.
    pub kept: usize,
    /// These ids, x descending, then id ascending.
    pub kept_ids: Vec<usize>,
    /// ln Σ exp(x) over all unmasked ids.
    pub log_normalizer: f64,
    /// The uniform number of the row's fresh draw (case 0).
    pub uniform: f64,
    /// The hash of the row's fresh draw (case 0).
    pub row_hash: u64,
    /// The noise of the token, where Gumbel drew it (after a rejection: with the hash of case 1).
    pub noise: Option<Noise>,
    /// What became of the draft, if there was one.
    pub verification: Option<Verification>,
    /// −Σ p ln p of the processed distribution.
    pub entropy: f64,
    /// Its greatest probability.
    pub largest_probability: f64,
    /// Σ p of the kept ids whose x is smaller than the token's.
    pub smaller_probability: f64,
    /// The distance of the nearest decision to its boundary, in units an f32 implementation is accurate in: of a
    /// probability for top-p, min-p and sums that run against u, of the score for Gumbel; and relative to the
    /// probabilities at hand for the accept test and for Gumbel's draw from the residual. +∞ where nothing was close
    /// to anything: comparisons of x and of ids are exact.
    pub margin: f64,
    /// The processed probability by id, 0 where removed.
    pub probabilities: Vec<f64>,
    /// With a draft: what it left of each probability, 0 where nothing.
    pub residual: Option<Vec<f64>>,
}

/// Draws one token from `logits`, of which only the first `valid` ids exist.
///
/// With a draft the row is a verification step: the draft's token is tested and replaced if rejected.
pub fn draw(logits: &[f32], valid: usize, params: &Params, draft: Option<&Draft>) -> Result<Outcome, Status> {
    draw_edited(logits, valid, params, &Edits::default(), draft)
}

/// As [`draw`], from logits that `edits` change.
pub fn draw_edited(
    raw: &[f32],
    valid: usize,
    params: &Params,
    edits: &Edits,
    draft: Option<&Draft>,
) -> Result<Outcome, Status> {
    let params = params.effective();
    let staged = stages::stage(raw, valid, &params, edits)?;
    let x = scaled(&staged.logits, params.temperature as f32)?;
    if let Some(draft) = draft {
        judge_draft(&staged.unmasked, draft)?;
    }

    let mut margin = Margin::new();
    let ranked = filter::ranked(&x);
    let kept_ids = filter::keep(&x, &ranked, &params, &mut margin);
    let processed = Softmax::of(&x, &kept_ids);
    let mut probabilities = vec![0.0; x.len()];
    for &id in &kept_ids {
        probabilities[id] = processed.probability(x[id]);
    }

    let z = row_hash(params.seed, params.position, Case::Draw);
    let (token, noise, verified) = match draft {
        Some(draft) if !matches!(draft.proposal, Proposal::Coupled) => {
            let contest = verify::Contest { target: &probabilities, kept: &kept_ids, draft, params: &params };
            let verified = contest.verify(&mut margin);
            (verified.token, verified.noise, Some((verified.verification, Some(verified.residual))))
        }
        _ => {
            let (token, noise) = draw_fresh(&x, &probabilities, &kept_ids, z, params.draw, &mut margin);
            let coupled = draft.map(|draft| (verify::coupled(draft, token, &probabilities, &params), None));
            (token, noise, coupled)
        }
    };
    let (verification, residual) = verified.unzip();
    let (raw_logprob, smaller) =
        (raw_logprob(&raw[..valid.min(raw.len())], token), kept_ids.iter().filter(|&&id| x[id] < x[token]));
    let surprise = |&&id: &&usize| -probabilities[id] * processed.logprob(x[id]);
    Ok(Outcome {
        token,
        logprob: processed.logprob(x[token]),
        raw_logprob,
        kept: kept_ids.len(),
        log_normalizer: Softmax::of(&x, &ranked).log_normalizer(),
        uniform: uniform(z),
        row_hash: z,
        noise,
        verification,
        entropy: kept_ids.iter().filter(|&&id| probabilities[id] > 0.0).map(|id| surprise(&id)).sum(),
        largest_probability: probabilities[kept_ids[0]],
        smaller_probability: smaller.map(|&id| probabilities[id]).sum(),
        margin: margin.smallest(),
        kept_ids,
        probabilities,
        residual: residual.flatten(),
    })
}

/// A draw without a draft.
fn draw_fresh(
    x: &[f64],
    probabilities: &[f64],
    kept: &[usize],
    z: u64,
    draw: Draw,
    margin: &mut Margin,
) -> (usize, Option<Noise>) {
    let mut ids = kept.to_vec();
    ids.sort_unstable();
    let with = |values: &[f64]| -> Vec<(usize, f64)> { ids.iter().map(|&id| (id, values[id])).collect() };
    match draw {
        Draw::InverseCdf => (choose::inverse_cdf(&with(probabilities), uniform(z), margin), None),
        Draw::Gumbel => {
            let (token, noise) = choose::gumbel(&with(x), z, margin);
            (token, Some(noise))
        }
    }
}

/// x = l · (1/T), reciprocal and product in f32, or what is wrong with it; ids at −∞ are not multiplied.
fn scaled(logits: &[f32], temperature: f32) -> Result<Vec<f64>, Status> {
    let reciprocal = 1.0 / temperature;
    let scale = |&l: &f32| if l == f32::NEG_INFINITY { l } else { l * reciprocal };
    let x: Vec<f32> = logits.iter().map(scale).collect();
    let left = || (0..logits.len()).filter(|&id| logits[id] != f32::NEG_INFINITY);
    if let Some(id) = left().find(|&id| x[id].is_infinite()) {
        return Err(Status::Infinite(id));
    }
    left().next().map(|_| widened(&x)).ok_or(Status::Empty)
}

/// Refuses a draft by its logprobs at the ids that the mask leaves. One without any mass there is merely useless.
fn judge_draft(unmasked: &[bool], draft: &Draft) -> Result<(), Status> {
    let judged = || (0..unmasked.len()).filter(|&id| unmasked[id]);
    if let Some(id) = judged().find(|&id| draft.logprob(id).is_nan()) {
        return Err(Status::Nan(id));
    }
    match judged().find(|&id| draft.logprob(id) > 1e-3) {
        Some(id) => Err(Status::Infinite(id)),
        None => Ok(()),
    }
}

/// The logprob of the token among the unprocessed logits; a masked id that holds NaN or +∞ takes no part.
fn raw_logprob(raw: &[f32], token: usize) -> f64 {
    let sound = |&l: &f32| if l < f32::INFINITY { f64::from(l) } else { f64::NEG_INFINITY };
    let raw: Vec<f64> = raw.iter().map(sound).collect();
    Softmax::of(&raw, &filter::ranked(&raw)).logprob(raw[token])
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The softmax of x over some ids. The greatest x is factored out, so that no exponential overflows.
struct Softmax {
    best: f64,
    total: f64,
}

impl Softmax {
    fn of(x: &[f64], ids: &[usize]) -> Self {
        let best = ids.iter().map(|&id| x[id]).fold(f64::NEG_INFINITY, f64::max);
        let total = ids.iter().map(|&id| (x[id] - best).exp()).sum();
        Self { best, total }
    }

    fn probability(&self, x: f64) -> f64 {
        (x - self.best).exp() / self.total
    }

    fn logprob(&self, x: f64) -> f64 {
        x - self.best - self.total.ln()
    }

    fn log_normalizer(&self) -> f64 {
        self.best + self.total.ln()
    }
}

/// The smallest distance to a boundary of all decisions seen so far.
#[derive(Debug)]
struct Margin(f64);

impl Margin {
    fn new() -> Self {
        Self(f64::INFINITY)
    }

    fn see(&mut self, distance: f64) {
        self.0 = self.0.min(distance);
    }

    fn smallest(&self) -> f64 {
        self.0
    }
}
