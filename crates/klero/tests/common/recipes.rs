//! Random rows for property tests: every kind of logits under every kind of parameters, edits and drafts. They come from
//! fixed seeds, so a run repeats exactly.

use super::{Case, DraftCase, EditsCase, Kind, NEG, ProposalCase, Rng, log_softmax};
use klero::hash::Stream;
use klero::{Draw, FilterOrder, SamplingParams};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

pub fn runner(cases: u32, seed: u64) -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    })
}

/// What a random row is made from; small enough to read when a test fails.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub kind: Kind,
    pub vocab: usize,
    pub scale: f32,
    pub data_seed: u64,
    pub params: SamplingParams,
    pub position: u64,
    pub stream: Stream,
    pub draft: Option<DraftRecipe>,
    pub edits: Option<EditsRecipe>,
}

/// What changes the logits: which stages there are, and from which seed they are filled.
#[derive(Clone, Copy, Debug)]
pub struct EditsRecipe {
    pub text: bool,
    pub bias: bool,
    pub banned: bool,
    pub allowed: bool,
    pub force_top_k: usize,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct DraftRecipe {
    pub like: DraftKind,
    pub token: TokenKind,
    pub delta: f64,
}

/// How the draft's distribution relates to the target's.
#[derive(Clone, Copy, Debug)]
pub enum DraftKind {
    /// That of the target at temperature 1.
    Same,
    Near,
    Unrelated,
    /// All mass on the draft's token, as logprobs.
    Certain,
    /// A guess without a distribution.
    OneHot,
    /// A token that shares the row's noise.
    Coupled,
    /// −∞ everywhere: no opinion.
    Nothing,
    /// Some logprobs at −∞, the rest summing to more than 1: not a distribution, but no fault either.
    Excessive,
}

#[derive(Clone, Copy, Debug)]
pub enum TokenKind {
    None,
    Best,
    Any(u64),
}

impl Recipe {
    pub fn case(&self) -> Case {
        let logits = self.kind.logits(self.data_seed, self.vocab, self.scale);
        let draft = self.draft.as_ref().filter(|_| self.vocab > 0).map(|draft| draft.case(self, &logits));
        let edits = self.edits.map(|edits| edits.case(self.vocab)).unwrap_or_default();
        let mut rng = Rng::new(self.data_seed ^ 77);
        let ids = (0..self.vocab.min(3)).map(|_| rng.below(self.vocab) as u32).collect();
        Case { params: self.params.clone(), position: self.position, stream: self.stream, draft, edits, ids, logits }
    }
}

impl EditsRecipe {
    pub fn case(self, vocab: usize) -> EditsCase {
        let mut rng = Rng::new(self.seed);
        let mut some = |wanted: bool, most: usize, vocab: usize| -> Vec<u32> {
            let count = if wanted && vocab > 0 { rng.below(most + 1) } else { 0 };
            (0..count).map(|_| rng.below(vocab) as u32).collect()
        };
        // A text may hold ids that the vocabulary does not.
        let (prompt, output) = (some(self.text, 40, vocab + 9), some(self.text, 60, vocab + 9));
        let mut biased = some(self.bias, 20, vocab);
        biased.sort_unstable();
        biased.dedup();
        let (banned, blacklist) = (some(self.banned, 1 + vocab / 8, vocab), some(self.banned, 5, vocab));
        let overflow = rng.below(60) == 0;
        let bias =
            biased.into_iter().map(|id| (id, if overflow { 3.4e38 } else { 4.0 * rng.normal() as f32 })).collect();
        let density = rng.below(3);
        let words =
            (0..vocab.div_ceil(32) + rng.below(2)).map(|_| (0..density).fold(rng.bits(), |w, _| w & rng.bits()));
        let allowed = self.allowed.then(|| words.map(|word| word as u32).collect());
        EditsCase {
            prompt,
            output,
            bias,
            banned,
            allowed,
            blacklist,
            force_top_k: self.force_top_k,
            ..Default::default()
        }
        .ready()
    }
}

impl DraftRecipe {
    pub fn case(&self, recipe: &Recipe, target: &[f32]) -> DraftCase {
        let best = (0..target.len()).rfold(0, |best, id| if target[id] >= target[best] { id } else { best });
        let token = match self.token {
            TokenKind::None => -1,
            TokenKind::Best => best as i64,
            TokenKind::Any(bits) => (bits % target.len() as u64) as i64,
        };
        let mut rng = Rng::new(!recipe.data_seed);
        let logprobs = match self.like {
            DraftKind::Same => log_softmax(target),
            DraftKind::Near => log_softmax(&target.iter().map(|l| l + 0.3 * rng.normal() as f32).collect::<Vec<_>>()),
            DraftKind::Unrelated => log_softmax(&recipe.kind.logits(!recipe.data_seed, target.len(), 6.0)),
            DraftKind::OneHot => return DraftCase { token, proposal: ProposalCase::OneHot, delta: self.delta },
            DraftKind::Coupled => return DraftCase { token, proposal: ProposalCase::Coupled, delta: self.delta },
            DraftKind::Certain => (0..).zip(target).map(|(id, _)| if id == token { 0.0 } else { NEG }).collect(),
            DraftKind::Nothing => vec![NEG; target.len()],
            DraftKind::Excessive => target.iter().map(|_| [NEG, -0.1, 0.0, 9e-4][rng.below(4)]).collect(),
        };
        DraftCase::new(token, logprobs, self.delta)
    }
}

pub fn temperatures() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => Just(1.0),
        1 => Just(0.0),
        1 => Just(1e-5),
        1 => Just(1e6),
        6 => (0.05f64.ln()..100f64.ln()).prop_map(f64::exp),
    ]
}

pub fn params(max_vocab: usize) -> impl Strategy<Value = SamplingParams> {
    let top_p = prop_oneof![
        4 => Just(1.0),
        1 => prop::sample::select(vec![1e-46, 1e-30, 1e-7, 0.5, 0.999_999, 1.0 - 1e-9]),
        4 => 0.01f64..1.0,
    ];
    let top_k = prop_oneof![
        4 => Just(-1),
        1 => Just(1),
        3 => 2i64..60,
        1 => 1..2 * max_vocab as i64 + 2,
        1 => Just(i64::from(i32::MAX)),
    ];
    let min_p = prop_oneof![5 => Just(0.0), 1 => Just(1.0 - 1e-12), 1 => Just(1e-30), 3 => 0.0f64..0.6];
    let lists = (prop_oneof![2 => Just(0usize), 2 => 1usize..30, 1 => Just(1000)], any::<[bool; 3]>());
    let draw = prop::sample::select(vec![Draw::Gumbel, Draw::InverseCdf]);
    let order = prop::sample::select(vec![FilterOrder::TopPFirst, FilterOrder::TopPFirst, FilterOrder::MinPFirst]);
    let penalties = prop::sample::select(vec![(1.0, 0.0, 0.0), (1.3, 0.0, 0.0), (0.7, 0.4, -0.5), (1.0, -0.1, 1.5)]);
    (temperatures(), (top_p, top_k, min_p, order), any::<u64>(), lists, draw, penalties).prop_map(
        |(
            temperature,
            (top_p, top_k, min_p, filter_order),
            seed,
            (top_logprobs, [raw, kept, sure]),
            draw,
            penalties,
        )| SamplingParams {
            temperature,
            top_p,
            top_k,
            min_p,
            seed: Some(seed),
            top_logprobs,
            raw_logprobs: raw,
            kept_ids: kept,
            confidence: sure,
            draw,
            filter_order,
            repetition_penalty: penalties.0,
            frequency_penalty: penalties.1,
            presence_penalty: penalties.2,
        },
    )
}

pub fn drafts() -> impl Strategy<Value = Option<DraftRecipe>> {
    use DraftKind::*;
    let like = prop::sample::select(vec![Same, Near, Near, Unrelated, Certain, Nothing, Excessive, OneHot, Coupled]);
    let token = prop_oneof![
        1 => Just(TokenKind::None),
        2 => Just(TokenKind::Best),
        3 => any::<u64>().prop_map(TokenKind::Any),
    ];
    let delta = prop::sample::select(vec![5e-5, 0.0, 0.0, 0.7, 1e4]);
    prop::option::of((like, token, delta).prop_map(|(like, token, delta)| DraftRecipe { like, token, delta }))
}

pub fn vocabularies(max: usize) -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => 1usize..5,
        1 => prop::sample::select(vec![15, 16, 17, 63, 64, 65, 127, 128, 129, 192]),
        4 => 1..max + 1,
    ]
}

/// Rows of at most `max_vocab` ids. The scale is drawn so that rows range from flat to one id alone.
pub fn recipes(max_vocab: usize) -> impl Strategy<Value = Recipe> {
    let data = (prop::sample::select(Kind::ALL.to_vec()), vocabularies(max_vocab), any::<u64>());
    let scale = prop_oneof![4 => 0.01f32..30.0, 1 => Just(300.0)];
    let stream = prop::sample::select(vec![Stream::Target, Stream::Draft]);
    let position = prop_oneof![4 => 0u64..5000, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (data, scale, params(max_vocab), position, stream, (drafts(), prop::option::of(edits()))).prop_map(
        |((kind, vocab, data_seed), scale, params, position, stream, (draft, edits))| Recipe {
            kind,
            vocab,
            scale,
            data_seed,
            params,
            position,
            stream,
            draft,
            edits,
        },
    )
}

pub fn edits() -> impl Strategy<Value = EditsRecipe> {
    let force_top_k = prop::sample::select(vec![0usize, 0, 1, 2, 7, 64, 600, 5000]);
    (any::<[bool; 4]>(), force_top_k, any::<u64>()).prop_map(|([text, bias, banned, allowed], force_top_k, seed)| {
        EditsRecipe { text, bias, banned, allowed, force_top_k, seed }
    })
}
