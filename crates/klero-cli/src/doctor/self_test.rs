//! Whether this build draws on this machine as it should: tokens that are known, and bits that must be equal.

use super::page::Section;
use klero::hash::{Case, row_hash, splitmix64};
use klero::{
    BlockQ4K, BlockQ8_0, Draft, Draw, FusedHead, Logits, Outcome, Proposal, Row, RowError, SamplingParams, Weights,
};
use serde::Serialize;
use std::fmt::Debug;
use std::time::Instant;

/// One test and how it went.
#[derive(Serialize)]
pub struct Check {
    name: &'static str,
    ok: bool,
    /// What is wrong.
    error: Option<String>,
    milliseconds: f64,
}

type Test = fn() -> Result<(), String>;

const TESTS: [(&str, Test); 5] = [
    ("worked examples", worked_examples),
    ("known tokens", known_tokens),
    ("fused and ready logits", fused_and_ready),
    ("one thread and all", one_thread_and_all),
    ("a batch and its rows", batch_and_rows),
];

/// Runs all tests.
pub fn run() -> Vec<Check> {
    TESTS.into_iter().map(|(name, test)| Check::of(name, test)).collect()
}

pub fn section(checks: &[Check]) -> Section {
    checks.iter().fold(Section::new("self-test"), |section, check| section.with(check.name, check.describe()))
}

impl Check {
    /// Runs a test.
    pub fn of(name: &'static str, test: Test) -> Self {
        let start = Instant::now();
        let error = test().err();
        Self { name, ok: error.is_none(), error, milliseconds: start.elapsed().as_secs_f64() * 1e3 }
    }

    pub fn ok(&self) -> bool {
        self.ok
    }

    fn describe(&self) -> String {
        match &self.error {
            None => format!("ok      {:>7.1} ms", self.milliseconds),
            Some(error) => format!("failed: {error}"),
        }
    }
}

/// What is found must be what is expected, to the last bit.
fn expect<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} is {found:?}, must be {expected:?}"))
}

/// Two ways to the same outcomes.
fn agree(what: &str, one: &[Result<Outcome, RowError>], other: &[Result<Outcome, RowError>]) -> Result<(), String> {
    expect(&format!("the number of {what}"), one.len(), other.len())?;
    one.iter().zip(other).enumerate().try_for_each(|(i, (one, other))| expect(&format!("{what}, row {i},"), one, other))
}

fn told(error: impl ToString) -> String {
    error.to_string()
}

/// The examples of docs/law.md.
fn worked_examples() -> Result<(), String> {
    expect("the hash of seed 42 at position 7", row_hash(42, 7, Case::Fresh), 5_146_308_381_154_613_881)?;
    let logits = Logits::new(&[3.2, 2.7, 1.6, 0.7, 0.2, -0.5], 1, 6).map_err(told)?;
    for (draw, token) in [(Draw::Gumbel, 1), (Draw::InverseCdf, 0)] {
        let params = SamplingParams { top_p: 0.8, top_k: 2, seed: Some(42), draw, ..Default::default() };
        let row = Row::new(params.check().map_err(told)?, 7);
        let outcome = logits.draw(&[row]).map_err(told)?.remove(0).map_err(told)?;
        expect(&format!("the token of the running example, {draw:?},"), outcome.token, token)?;
        expect("its number of kept ids", outcome.kept, 2)?;
    }
    let (target, draft) = ([0.5f32, 0.3, 0.2].map(f32::ln), [0.2f32, 0.5, 0.3].map(f32::ln));
    for (drafted, token) in [(0, 0), (1, 0), (2, 0)] {
        let params = SamplingParams { seed: Some(42), ..Default::default() };
        let proposal = Proposal::Distribution { logprobs: &draft, delta: 0.0 };
        let row = Row::new(params.check().map_err(told)?, 7).with_draft(Draft { token: drafted, proposal });
        let outcome = Logits::new(&target, 1, 3).and_then(|logits| logits.draw(&[row])).map_err(told)?.remove(0);
        let outcome = outcome.map_err(told)?;
        expect(&format!("the token after {drafted} was drafted"), outcome.token, token)?;
        let accepted = outcome.verification.map(|verification| verification.accepted);
        expect(&format!("whether a drafted {drafted} is accepted"), accepted, Some(drafted == 0))?;
    }
    Ok(())
}

/// Generated logits: nearly normal, σ = 3, the same bits everywhere.
pub fn logits(count: usize) -> Vec<f32> {
    let four = |hash: u64| (0..4).map(|i| (hash >> (16 * i) & 0xffff) as i32).sum::<i32>();
    (0..count as u64).map(|i| (four(splitmix64(i)) - 131_070) as f32 * (3.0 / 37_837.0)).collect()
}

/// Parameters of every kind, each a row's: temperature, top_p, top_k, min_p, draw.
const PARAMS: [(f64, f64, i64, f64, Draw); 8] = [
    (1.0, 1.0, -1, 0.0, Draw::Gumbel),
    (0.8, 0.95, -1, 0.0, Draw::Gumbel),
    (1.3, 1.0, 40, 0.0, Draw::Gumbel),
    (0.7, 0.9, 300, 0.05, Draw::Gumbel),
    (0.0, 1.0, -1, 0.0, Draw::Gumbel),
    (1.0, 1.0, -1, 0.0, Draw::InverseCdf),
    (0.8, 0.95, -1, 0.0, Draw::InverseCdf),
    (2.0, 1.0, 500, 0.2, Draw::InverseCdf),
];

/// A row for each entry of [`PARAMS`].
fn rows() -> Result<Vec<Row<'static>>, String> {
    let row = |(i, (temperature, top_p, top_k, min_p, draw)): (u64, (f64, f64, i64, f64, Draw))| {
        let seed = Some(42 + i);
        let params = SamplingParams {
            temperature,
            top_p,
            top_k,
            min_p,
            draw,
            seed,
            top_logprobs: 5,
            raw_logprobs: true,
            ..Default::default()
        };
        Ok(Row::new(params.check().map_err(told)?, 7 + i))
    };
    (0..).zip(PARAMS).map(row).collect()
}

/// Not a multiple of a block, so that the last one is cut.
const VOCABULARY: usize = 10_007;

/// The tokens and kept counts of [`rows`] from [`logits`], as the independent implementation of the law computes them.
const KNOWN: [(u32, usize); PARAMS.len()] =
    [(8868, 10_007), (657, 749), (6214, 40), (9349, 40), (1811, 10_007), (7819, 10_007), (590, 749), (8868, 138)];

fn known_tokens() -> Result<(), String> {
    let logits = logits(VOCABULARY);
    for (i, row) in rows()?.into_iter().enumerate() {
        let drawn = Logits::new(&logits, 1, VOCABULARY).and_then(|logits| logits.draw(&[row])).map_err(told)?.remove(0);
        let drawn = drawn.map_err(told)?;
        expect(&format!("the token and the kept count of row {i}"), (drawn.token, drawn.kept), KNOWN[i])?;
    }
    Ok(())
}

/// Rows of the weights [`VOCABULARY`, [`WIDTH`]].
const WIDTH: usize = 256;

/// Generated weights of the types that have a kernel of their own.
fn heads() -> Result<[(&'static str, Weights<'static>); 4], String> {
    let number = |i: u64| (splitmix64(i) >> 40) as f32 * (1.0 / 8_388_608.0) - 1.0;
    let numbers: Vec<f32> = (0..(VOCABULARY * WIDTH) as u64).map(number).collect();
    // Without one bit of the exponent every scale is finite.
    let bytes: Vec<u8> = (0..(VOCABULARY * WIDTH) as u64 * 34 / 32).map(|i| splitmix64(i) as u8 & 0xbf).collect();
    let halves: Vec<half::bf16> = numbers.iter().map(|number| half::bf16::from_f32(*number)).collect();
    let q8_0 = BlockQ8_0::from_bytes(&bytes).map_err(told)?;
    let q4_k = BlockQ4K::from_bytes(&bytes[..VOCABULARY * WIDTH / 256 * 144]).map_err(told)?;
    Ok([
        ("f32", Weights::f32(VOCABULARY, WIDTH, numbers).map_err(told)?),
        ("bf16", Weights::bf16(VOCABULARY, WIDTH, halves).map_err(told)?),
        ("Q8_0", Weights::q8_0(VOCABULARY, WIDTH, q8_0).map_err(told)?),
        ("Q4_K", Weights::q4_k(VOCABULARY, WIDTH, q4_k).map_err(told)?),
    ])
}

/// A hidden state for each row.
fn hidden() -> Vec<f32> {
    logits(PARAMS.len() * WIDTH)
}

fn fused_and_ready() -> Result<(), String> {
    let (rows, hidden) = (rows()?, hidden());
    for (name, weights) in heads()? {
        let head = FusedHead::new(&weights).map_err(told)?;
        let fused = head.draw(&hidden, &rows).map_err(told)?;
        let ready = head.logits(&hidden).map_err(told)?;
        let ready = Logits::new(&ready, rows.len(), VOCABULARY).and_then(|logits| logits.draw(&rows)).map_err(told)?;
        agree(&format!("{name} outcomes"), &fused, &ready)?;
    }
    Ok(())
}

fn one_thread_and_all() -> Result<(), String> {
    let (rows, hidden) = (rows()?, hidden());
    for (name, weights) in heads()? {
        let head = FusedHead::new(&weights).map_err(told)?;
        let drawn = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(told)?;
            pool.install(|| head.draw(&hidden, &rows)).map_err(told)
        };
        agree(&format!("{name} outcomes"), &drawn(1)?, &drawn(rayon::current_num_threads().max(2))?)?;
    }
    Ok(())
}

fn batch_and_rows() -> Result<(), String> {
    let (rows, hidden) = (rows()?, hidden());
    for (name, weights) in heads()? {
        let head = FusedHead::new(&weights).map_err(told)?;
        let batch = head.draw(&hidden, &rows).map_err(told)?;
        let mut alone = Vec::with_capacity(rows.len());
        for (row, hidden) in rows.iter().zip(hidden.chunks_exact(WIDTH)) {
            alone.extend(head.draw(hidden, &[*row]).map_err(told)?);
        }
        agree(&format!("{name} outcomes"), &batch, &alone)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use klero_oracle::Params;

    #[test]
    fn known_tokens_are_those_of_the_law() {
        let logits = logits(VOCABULARY);
        let computed = (0..).zip(PARAMS).map(|(i, (temperature, top_p, top_k, min_p, draw))| {
            let draw = match draw {
                Draw::Gumbel => klero_oracle::Draw::Gumbel,
                Draw::InverseCdf => klero_oracle::Draw::InverseCdf,
            };
            let params =
                Params { temperature, top_p, top_k, min_p, draw, seed: 42 + i, position: 7 + i, ..Params::default() };
            let outcome = klero_oracle::draw(&logits, VOCABULARY, &params, None).unwrap();
            assert!(outcome.margin > 2e-6, "row {i} is too near a boundary: {}", outcome.margin);
            (outcome.token as u32, outcome.kept)
        });
        assert_eq!(computed.collect::<Vec<_>>(), KNOWN);
    }

    #[test]
    fn a_difference_is_told() {
        assert_eq!(expect("the token", 5, 7), Err("the token is 5, must be 7".to_owned()));
        let drawn = |temperature| {
            let params = SamplingParams { temperature, seed: Some(1), ..Default::default() };
            Logits::new(&[1.0, 2.0], 1, 2).unwrap().draw(&[Row::new(params.check().unwrap(), 0)]).unwrap()
        };
        assert_eq!(agree("outcomes", &drawn(1.0), &drawn(1.0)), Ok(()));
        let error = agree("outcomes", &drawn(1.0), &drawn(1.0000001)).unwrap_err();
        assert!(error.starts_with("outcomes, row 0, is Ok(Outcome {"), "{error}");
        assert!(agree("outcomes", &drawn(1.0), &[]).is_err());
    }
}
