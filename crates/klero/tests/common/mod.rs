//! What the tests share: repeatable data, rows with everything they ask for, results compared bit for bit.
#![allow(dead_code)] // every test file uses a part of it

pub mod chi;
pub mod naive;
pub mod recipes;
pub mod types;

use klero::hash::Stream;
use klero::{
    Draft, Draw, Edits, FilterOrder, History, LogitBias, Logits, Outcome, Policy, Proposal, Row, RowError,
    SamplingParams,
};
use klero_oracle::hash::splitmix64;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

pub const NEG: f32 = f32::NEG_INFINITY;

/// Repeatable random numbers for data; the draws under test have their own.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(splitmix64(seed ^ 0x7465_7374))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xD134_2543_DE82_EF95);
        splitmix64(self.0)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * 2f64.powi(-53)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Shapes of logits, each the worst for some part of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Uniform in ±scale/2: long kept lists.
    Flat,
    /// Few large, most near zero.
    Peaked,
    /// −scale, 0 or scale: full of ties.
    Ternary,
    /// One id in 61, the others −∞; a short row may have none at all.
    Sparse,
    /// Normal with a heavy head, in bf16 as a model gives it, so with some ties.
    Real,
    /// All equal.
    Equal,
    /// Both zeros, which are one value in every order.
    Zeros,
    /// Ascending: the last ids are the best, so every list is rewritten over and over.
    Ascending,
}

impl Kind {
    pub const ALL: [Self; 8] =
        [Self::Flat, Self::Peaked, Self::Ternary, Self::Sparse, Self::Real, Self::Equal, Self::Zeros, Self::Ascending];

    pub fn logits(self, seed: u64, vocab: usize, scale: f32) -> Vec<f32> {
        let mut rng = Rng::new(seed);
        (0..vocab).map(|id| self.logit(&mut rng, id as f32 / vocab as f32, scale)).collect()
    }

    fn logit(self, rng: &mut Rng, place: f32, scale: f32) -> f32 {
        let t = rng.unit() as f32;
        match self {
            Self::Flat => (t - 0.5) * scale,
            Self::Peaked => t.powi(16) * scale,
            Self::Ternary => ((rng.below(3) as f32) - 1.0) * scale,
            Self::Sparse if rng.below(61) == 0 => (t - 0.5) * scale,
            Self::Sparse => NEG,
            Self::Real => {
                let head = if t < 0.01 { 1.5 * scale * t * 100.0 } else { 0.0 };
                half::bf16::from_f32(rng.normal() as f32 * scale * 0.2 + head).to_f32()
            }
            Self::Equal => scale,
            Self::Zeros => [0.0, -0.0, -scale][rng.below(3)],
            Self::Ascending => place * scale,
        }
    }
}

/// Log-softmax in f64, rounded to f32; −∞ stays.
pub fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let best = f64::from(logits.iter().copied().fold(NEG, f32::max));
    if best == f64::NEG_INFINITY {
        return logits.to_vec();
    }
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - best).exp()).sum();
    logits.iter().map(|&l| (f64::from(l) - best - sum.ln()) as f32).collect()
}

/// Logits whose softmax at temperature 1 is `probabilities`.
pub fn logits_of(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

/// A row with all it asks for.
#[derive(Clone, Debug)]
pub struct Case {
    pub logits: Vec<f32>,
    pub params: SamplingParams,
    pub position: u64,
    pub stream: Stream,
    pub draft: Option<DraftCase>,
    pub edits: EditsCase,
    pub ids: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct DraftCase {
    pub token: i64,
    pub proposal: ProposalCase,
    pub delta: f64,
}

#[derive(Clone, Debug)]
pub enum ProposalCase {
    Distribution(Vec<f32>),
    OneHot,
    Coupled,
}

impl DraftCase {
    pub fn new(token: i64, logprobs: Vec<f32>, delta: f64) -> Self {
        Self { token, proposal: ProposalCase::Distribution(logprobs), delta }
    }

    pub fn draft(&self) -> Draft<'_> {
        let proposal = match &self.proposal {
            ProposalCase::Distribution(logprobs) => Proposal::Distribution { logprobs, delta: 0.0 },
            ProposalCase::OneHot => Proposal::OneHot { delta: 0.0 },
            ProposalCase::Coupled => Proposal::Coupled,
        };
        Draft { token: self.token, proposal }.with_delta(self.delta)
    }

    fn oracle(&self) -> klero_oracle::Draft<'_> {
        let proposal = match &self.proposal {
            ProposalCase::Distribution(logprobs) => klero_oracle::Proposal::Distribution(logprobs),
            ProposalCase::OneHot => klero_oracle::Proposal::OneHot,
            ProposalCase::Coupled => klero_oracle::Proposal::Coupled,
        };
        klero_oracle::Draft { token: self.token, proposal }
    }
}

/// What changes a row's logits, plainly and as the library takes it.
#[derive(Clone, Debug, Default)]
pub struct EditsCase {
    pub prompt: Vec<u32>,
    pub output: Vec<u32>,
    pub bias: Vec<(u32, f32)>,
    pub banned: Vec<u32>,
    pub allowed: Option<Vec<u32>>,
    pub blacklist: Vec<u32>,
    pub force_top_k: usize,
    pub history: History,
    pub logit_bias: LogitBias,
    pub banned_ids: BTreeSet<u32>,
    pub blacklisted_ids: BTreeSet<u32>,
}

impl EditsCase {
    /// Fills in the library's forms of the plain ones.
    pub fn ready(mut self) -> Self {
        self.history = History::of_prompt(self.prompt.iter().copied());
        self.output.iter().for_each(|id| self.history.write(*id));
        let biases = self.bias.iter().map(|(id, bias)| (*id, f64::from(*bias)));
        self.logit_bias = LogitBias::new(biases).expect("each id once, finite");
        self.banned_ids = self.banned.iter().copied().collect();
        self.blacklisted_ids = self.blacklist.iter().copied().collect();
        self
    }

    pub fn edits(&self) -> Edits<'_> {
        Edits {
            history: Some(&self.history),
            drafted: &[],
            bias: Some(&self.logit_bias),
            banned: Some(&self.banned_ids),
            allowed: self.allowed.as_deref(),
        }
    }

    pub fn policy(&self) -> Policy<'_> {
        Policy { blacklist: Some(&self.blacklisted_ids), force_top_k: NonZeroUsize::new(self.force_top_k) }
    }
}

impl Case {
    pub fn new(logits: Vec<f32>, params: SamplingParams) -> Self {
        let edits = EditsCase::default();
        Self { logits, params, position: 0, stream: Stream::Target, draft: None, edits, ids: vec![] }
    }

    /// The row, whose valid vocabulary is the length of its logits.
    pub fn row(&self) -> Row<'_> {
        let row = Row::new(self.params.check().expect("valid parameters"), self.position)
            .with_stream(self.stream)
            .with_edits(self.edits.edits())
            .with_ids(&self.ids)
            .with_vocabulary(self.logits.len());
        Row { draft: self.draft.as_ref().map(DraftCase::draft), ..row }
    }

    /// The same row under a policy that it shares with others: this force_top_k and no blacklist.
    pub fn under(self, force_top_k: usize) -> Self {
        Self { edits: EditsCase { force_top_k, blacklist: vec![], ..self.edits }.ready(), ..self }
    }

    /// The row drawn alone, with the default tile, on the current thread pool.
    pub fn solo(&self) -> Result<Outcome, RowError> {
        let logits = Logits::new(&self.logits, 1, self.logits.len()).expect("one row");
        logits.batch().with_policy(self.edits.policy()).draw(&[self.row()]).expect("one row").remove(0)
    }

    /// The same row in the slow f64 truth.
    pub fn oracle(&self) -> Result<klero_oracle::Outcome, klero_oracle::Status> {
        let params = klero_oracle::Params {
            temperature: self.params.temperature,
            top_p: self.params.top_p,
            top_k: self.params.top_k,
            min_p: self.params.min_p,
            min_p_first: self.params.filter_order == FilterOrder::MinPFirst,
            repetition_penalty: self.params.repetition_penalty,
            frequency_penalty: self.params.frequency_penalty,
            presence_penalty: self.params.presence_penalty,
            force_top_k: self.edits.force_top_k,
            draw: match self.params.draw {
                Draw::Gumbel => klero_oracle::Draw::Gumbel,
                Draw::InverseCdf => klero_oracle::Draw::InverseCdf,
            },
            seed: self.params.seed.expect("tests give seeds"),
            position: self.position,
            mtp: self.stream == Stream::Draft,
            delta: self.draft.as_ref().map_or(0.0, |draft| draft.delta),
        };
        let edits = &self.edits;
        let banned = [&edits.banned[..], &edits.blacklist].concat();
        let edits = klero_oracle::Edits {
            prompt: &edits.prompt,
            output: &edits.output,
            bias: &edits.bias,
            banned: &banned,
            allowed: edits.allowed.as_deref(),
        };
        let draft = self.draft.as_ref().map(DraftCase::oracle);
        klero_oracle::draw_edited(&self.logits, self.logits.len(), &params, &edits, draft.as_ref())
    }
}

/// Draws one row of `logits` on this thread alone (a single tile), for tests that run many rows side by side.
pub fn draw_here(logits: &[f32], row: Row) -> Outcome {
    let logits = Logits::new(logits, 1, logits.len()).expect("one row").with_tile(logits.len());
    logits.draw(&[row]).expect("one row").remove(0).expect("a good row")
}

/// Every bit of a result but the number of the row, so that two results can be compared where NaN and −0 matter.
pub fn bits(result: &Result<Outcome, RowError>) -> Result<Vec<u64>, String> {
    let outcome = result.as_ref().map_err(|error| format!("{:?}", error.with_row(0)))?;
    let optional = |value: Option<f64>| [u64::from(value.is_some()), value.map_or(0, f64::to_bits)];
    let mut all = vec![
        u64::from(outcome.token),
        outcome.logprob.to_bits(),
        outcome.kept as u64,
        outcome.log_normalizer.to_bits(),
        outcome.seed,
        outcome.position,
    ];
    all.extend(optional(outcome.raw_logprob));
    if let Some(verification) = &outcome.verification {
        all.extend([u64::from(verification.accepted), verification.accept_probability.to_bits()]);
        all.extend(optional(verification.draft_logprob));
    }
    for listed in outcome.top.iter().chain(&outcome.asked) {
        all.extend([u64::from(listed.token), listed.logprob.to_bits()]);
        all.extend(optional(listed.raw_logprob));
    }
    all.extend(outcome.kept_ids.iter().flatten().map(|id| u64::from(*id)));
    all.extend(outcome.confidence.iter().flat_map(|c| [c.entropy, c.largest, c.smaller].map(f64::to_bits)));
    Ok(all)
}

/// Runs `work` on a pool of `threads` threads (1 to 3).
pub fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    static POOLS: OnceLock<[rayon::ThreadPool; 3]> = OnceLock::new();
    let pools = POOLS.get_or_init(|| {
        [1, 2, 3].map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("a pool of threads"))
    });
    pools[threads - 1].install(work)
}
