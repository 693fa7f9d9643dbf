//! Golden data: draws recorded from other implementations, which every way into Klero must reproduce.
//!
//! The files lie in `tests/golden` of the workspace, with a description of their fields. A file that is missing or
//! holds anything unexpected panics: a test that needs it must fail, never pass for want of data.
//!
//! Rows are large, so the logits are not in the files but the recipe for them, a [`Generator`]; the iterators make one
//! row at a time.

use std::fs;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::hash::{GOLDEN_GAMMA, mix};
use crate::{Draft, Draw, Noise, Params, Verification};

/// The shape of generated logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Uniform in ±scale/2.
    Flat,
    /// The 16th power of a uniform number, times scale: few large, most near zero.
    Peaked,
    /// −scale, 0 or scale: full of ties.
    Ternary,
    /// As flat, but only one id in 61 on average; the others are −∞.
    Sparse,
}

/// A recipe for a row of logits.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// The shape.
    pub kind: Kind,
    /// The seed, as text in a file.
    #[serde(deserialize_with = "u64_as_text")]
    pub seed: u64,
    /// The spread.
    pub scale: f32,
}

impl Generator {
    /// The logits of ids `0..vocab`. A longer row begins with the shorter one.
    pub fn logits(&self, vocab: usize) -> Vec<f32> {
        (1..=vocab as u64).map(|n| self.logit(n)).collect()
    }

    /// The logit of the `n`-th id, counted from 1.
    fn logit(&self, n: u64) -> f32 {
        let z = mix(self.seed.wrapping_add(n.wrapping_mul(GOLDEN_GAMMA)));
        let t = (z >> 40) as f32 * 2f32.powi(-24);
        let square = |v: f32| v * v;
        match self.kind {
            Kind::Flat => (t - 0.5) * self.scale,
            Kind::Peaked => square(square(square(square(t)))) * self.scale,
            Kind::Ternary => ((z % 3) as f32 - 1.0) * self.scale,
            Kind::Sparse if z.is_multiple_of(61) => (t - 0.5) * self.scale,
            Kind::Sparse => f32::NEG_INFINITY,
        }
    }
}

/// One recorded draw and what must come of it.
#[derive(Clone, Debug)]
pub struct Example<E> {
    /// Its number in the file.
    pub id: usize,
    /// The length of the row, all of it valid.
    pub vocab: usize,
    /// The row.
    pub logits: Vec<f32>,
    /// The parameters.
    pub params: Params,
    /// The draft to verify, if any.
    pub draft: Option<DraftRow>,
    /// The result.
    pub expect: E,
}

/// A draft with its own logprobs.
#[derive(Clone, Debug)]
pub struct DraftRow {
    /// The token, −1 for none.
    pub token: i64,
    /// The draft's logprob of every id.
    pub logprobs: Vec<f32>,
}

impl DraftRow {
    /// The same, borrowed, as [`draw`](crate::draw) takes it.
    pub fn as_draft(&self) -> Draft<'_> {
        Draft::new(self.token, &self.logprobs)
    }
}

/// What is known of a draw in `draws.jsonl`.
#[derive(Clone, Copy, Debug)]
pub struct DrawExpect {
    /// The token emitted.
    pub token: usize,
    /// How many ids the filters left.
    pub kept: usize,
    /// The token's processed logprob, good to 2·10⁻⁴.
    pub logprob: f64,
    /// The uniform number of case 0.
    pub uniform: f64,
    /// For rows with a draft. Its probability and logprob are good to 2·10⁻⁴.
    pub verification: Option<Verification>,
}

/// What is known of a draw in `gumbel.jsonl`.
#[derive(Clone, Copy, Debug)]
pub struct GumbelExpect {
    /// The token drawn.
    pub token: usize,
    /// How many ids the filters left.
    pub kept: usize,
    /// The token's processed logprob.
    pub logprob: f64,
    /// The hash of the row, z.
    pub row_hash: u64,
    /// The token's noise.
    pub noise: Noise,
}

/// One prompt in `models.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelExample {
    /// The model's name.
    pub model: String,
    /// The prompt.
    pub text: String,
    /// The prompt's token ids.
    pub tokens: Vec<u32>,
    /// The five likeliest next tokens with their logprobs.
    pub top5: Vec<(u32, f64)>,
    /// How far the first of them is ahead of the second.
    pub margin: f64,
    /// The greedy continuation, each token with its lead over the second.
    pub greedy: Vec<(u32, f64)>,
}

/// The 401 draws of `draws.jsonl`, all by inverse CDF.
pub fn draws() -> impl Iterator<Item = Example<DrawExpect>> {
    lines::<RawExample<RawDrawExpect>>("draws.jsonl").map(|raw| raw.build(Draw::InverseCdf, RawDrawExpect::build))
}

/// The 200 draws of `gumbel.jsonl`.
pub fn gumbels() -> impl Iterator<Item = Example<GumbelExpect>> {
    lines::<RawExample<RawGumbelExpect>>("gumbel.jsonl").map(|raw| raw.build(Draw::Gumbel, RawGumbelExpect::build))
}

/// The prompts of `models.json`.
pub fn models() -> Vec<ModelExample> {
    parse("models.json", 1, &read("models.json"))
}

/// Where a golden file lies.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden")).join(name)
}

fn read(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("golden file {} is needed: {error}", path.display()))
}

fn parse<T: DeserializeOwned>(name: &str, line: usize, text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("golden file {name}, line {line}: {error}"))
}

fn lines<T: DeserializeOwned>(name: &'static str) -> impl Iterator<Item = T> {
    let lines: Vec<String> = read(name).lines().map(str::to_owned).collect();
    assert!(!lines.is_empty(), "golden file {name} is empty");
    (1..).zip(lines).map(move |(number, line)| parse(name, number, &line))
}

/// Log-softmax in f64, rounded to f32.
fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let best = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - best).exp()).sum();
    logits.iter().map(|&l| (f64::from(l) - best - sum.ln()) as f32).collect()
}

// The files as they are written; the types above are what a test wants to see.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExample<E> {
    id: usize,
    vocab: usize,
    logits: RawLogits,
    temperature: f64,
    top_p: f64,
    top_k: i64,
    #[serde(deserialize_with = "u64_as_text")]
    seed: u64,
    position: u64,
    stream: Option<Stream>,
    verify: Option<RawDraft>,
    expect: E,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawLogits {
    Values { values: Vec<f32> },
    Generator(Generator),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stream {
    Mtp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDraft {
    draft_logits: Generator,
    draft_token: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDrawExpect {
    token: usize,
    kept: usize,
    logprob: Option<f64>,
    uniform: f64,
    accepted: Option<bool>,
    accept_probability: Option<f64>,
    draft_logprob: Option<f64>,
    accept_uniform: Option<f64>,
    residual_uniform: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGumbelExpect {
    token: usize,
    kept: usize,
    logprob: f64,
    #[serde(deserialize_with = "u64_as_text")]
    row_hash: u64,
    #[serde(deserialize_with = "u64_as_text")]
    r: u64,
    exponential: f64,
    gumbel: f64,
}

impl<R> RawExample<R> {
    fn build<E>(self, draw: Draw, expect: impl Fn(R) -> E) -> Example<E> {
        let logits = match self.logits {
            RawLogits::Values { values } => values,
            RawLogits::Generator(generator) => generator.logits(self.vocab),
        };
        assert_eq!(logits.len(), self.vocab, "golden draw {}: length of the row", self.id);
        let draft = self.verify.map(|raw| DraftRow {
            token: raw.draft_token,
            logprobs: log_softmax(&raw.draft_logits.logits(self.vocab)),
        });
        let params = Params {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            draw,
            seed: self.seed,
            position: self.position,
            mtp: matches!(self.stream, Some(Stream::Mtp)),
            ..Params::default()
        };
        Example { id: self.id, vocab: self.vocab, logits, params, draft, expect: expect(self.expect) }
    }
}

impl RawDrawExpect {
    fn build(self) -> DrawExpect {
        let or_minus_infinity = |logprob: Option<f64>| logprob.unwrap_or(f64::NEG_INFINITY);
        let verification = self.accepted.map(|accepted| Verification {
            accepted,
            accept_probability: self.accept_probability.expect("accept_probability beside accepted"),
            draft_logprob: or_minus_infinity(self.draft_logprob),
            accept_uniform: self.accept_uniform.expect("accept_uniform beside accepted"),
            residual_uniform: self.residual_uniform.expect("residual_uniform beside accepted"),
        });
        DrawExpect {
            token: self.token,
            kept: self.kept,
            logprob: or_minus_infinity(self.logprob),
            uniform: self.uniform,
            verification,
        }
    }
}

impl RawGumbelExpect {
    fn build(self) -> GumbelExpect {
        GumbelExpect {
            token: self.token,
            kept: self.kept,
            logprob: self.logprob,
            row_hash: self.row_hash,
            noise: Noise { r: self.r, exponential: self.exponential, gumbel: self.gumbel },
        }
    }
}

/// JSON numbers end at 2^53 for many readers, so seeds and hashes are text.
fn u64_as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}
