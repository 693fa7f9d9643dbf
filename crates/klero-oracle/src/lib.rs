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
//! | 1 order: mask, times 1/T | [`draw`] |
//! | 2 parameters: f32, the clamp | [`Params::effective`] |
//! | 3 filter | `filter` |
//! | 5 hash, 6 noise | [`hash`] |
//! | 6 both draws | `choose` |
//! | 9 logprobs | [`draw`] |
//! | 10 speculation by rejection | `verify` |
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
mod verify;

use hash::{Case, MTP_OFFSET, row_hash, uniform};

pub use hash::Noise;
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
            seed,
            mtp: false,
            ..*self
        }
    }
}

/// A draft for one row: its token and the distribution that token came from.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The token, −1 for none.
    pub token: i64,
    /// The draft's logprob of every id.
    pub logprobs: &'a [f32],
}

impl Draft<'_> {
    fn token(&self) -> Option<usize> {
        usize::try_from(self.token).ok()
    }

    /// The logprob of `id`, −∞ outside the vocabulary.
    fn logprob(&self, id: usize) -> f64 {
        self.logprobs.get(id).map_or(f64::NEG_INFINITY, |&d| f64::from(d))
    }

    fn probability(&self, id: usize) -> f64 {
        self.logprob(id).exp()
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
    let params = params.effective();
    let logits = masked(logits, valid);
    let x = scaled(&logits, params.temperature as f32);
    judge(&logits, &x)?;
    if let Some(draft) = draft {
        judge_draft(&logits, draft)?;
    }
    let x = widened(&x);

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
        None => {
            let (token, noise) = draw_fresh(&x, &probabilities, &kept_ids, z, params.draw, &mut margin);
            (token, noise, None)
        }
        Some(draft) => {
            let contest = verify::Contest { target: &probabilities, kept: &kept_ids, draft, params: &params };
            let verified = contest.verify(&mut margin);
            (verified.token, verified.noise, Some((verified.verification, verified.residual)))
        }
    };
    let (verification, residual) = verified.unzip();
    let raw = widened(&logits);
    Ok(Outcome {
        token,
        logprob: processed.logprob(x[token]),
        raw_logprob: Softmax::of(&raw, &ranked).logprob(raw[token]),
        kept: kept_ids.len(),
        kept_ids,
        log_normalizer: Softmax::of(&x, &ranked).log_normalizer(),
        uniform: uniform(z),
        row_hash: z,
        noise,
        verification,
        margin: margin.smallest(),
        probabilities,
        residual,
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

/// The logits with −∞ from id `valid` on.
fn masked(logits: &[f32], valid: usize) -> Vec<f32> {
    let ids = 0..logits.len();
    ids.map(|id| if id < valid { logits[id] } else { f32::NEG_INFINITY }).collect()
}

/// x = l · (1/T), reciprocal and product in f32; masked ids are not multiplied.
fn scaled(logits: &[f32], temperature: f32) -> Vec<f32> {
    let reciprocal = 1.0 / temperature;
    let scale = |&l: &f32| if l == f32::NEG_INFINITY { l } else { l * reciprocal };
    logits.iter().map(scale).collect()
}

/// Refuses a row by its unmasked logits and what became of them.
fn judge(logits: &[f32], x: &[f32]) -> Result<(), Status> {
    let unmasked = || (0..logits.len()).filter(|&id| logits[id] != f32::NEG_INFINITY);
    if let Some(id) = unmasked().find(|&id| logits[id].is_nan()) {
        return Err(Status::Nan(id));
    }
    if let Some(id) = unmasked().find(|&id| x[id].is_infinite()) {
        return Err(Status::Infinite(id));
    }
    unmasked().next().map(|_| ()).ok_or(Status::Empty)
}

/// Refuses a draft by its logprobs at the target's unmasked ids. One without any mass there is merely useless.
fn judge_draft(logits: &[f32], draft: &Draft) -> Result<(), Status> {
    let unmasked = || (0..logits.len()).filter(|&id| logits[id] != f32::NEG_INFINITY);
    if let Some(id) = unmasked().find(|&id| draft.logprob(id).is_nan()) {
        return Err(Status::Nan(id));
    }
    match unmasked().find(|&id| draft.logprob(id) > 1e-3) {
        Some(id) => Err(Status::Infinite(id)),
        None => Ok(()),
    }
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
