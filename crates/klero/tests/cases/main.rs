//! Faults that were reported of other samplers, each as a test of this one; `docs/cases.md` says which is which, and which
//! of them tests elsewhere hold. The number in a test's comment is that table's.
//!
//! Where a test counts draws, seeds are fixed: it is the same run each time. With new seeds a right sampler would fail a
//! chi-square here with a chance of 10⁻⁶ (there are fewer than a hundred), and the count of case 48 with one of 4·10⁻⁵.

#[path = "../common/mod.rs"]
mod common;

mod drafts;
mod edits;
mod empty_rows;
mod impossible;
mod logprobs;
mod noise;
mod padding;
mod same_seed;
mod seeds;
mod temperature;
mod top_p;

use common::chi::{FALSE_ALARM, p_value};
use common::{Case, bits, draw_here};
use klero::{Batch, Draw, Logits, Outcome, Row, SamplingParams};

const DRAWS: [Draw; 2] = [Draw::Gumbel, Draw::InverseCdf];

fn seeded(seed: u64) -> SamplingParams {
    SamplingParams { seed: Some(seed), ..Default::default() }
}

fn row(params: &SamplingParams, position: u64) -> Row<'static> {
    Row::new(params.check().expect("valid parameters"), position)
}

fn solo(logits: &[f32], params: SamplingParams) -> Outcome {
    Case::new(logits.to_vec(), params).solo().expect("a good row")
}

/// Draws the rows of one batch, all of them good.
fn draw_all(batch: &Batch, rows: &[Row]) -> Vec<Outcome> {
    batch.draw(rows).expect("rows that fit").into_iter().map(|outcome| outcome.expect("a good row")).collect()
}

/// The same for the tokens alone.
fn tokens_of(batch: &Batch, rows: &[Row]) -> Vec<u32> {
    batch.tokens(rows).expect("rows that fit").into_iter().map(|token| token.expect("a good row")).collect()
}

/// A batch in a single tile, so that a call stays on the thread that makes it.
fn batch(data: &[f32], rows: usize) -> Batch<'_> {
    let vocab = data.len() / rows;
    Logits::new(data, rows, vocab).expect("whole rows").with_tile(vocab).batch()
}

fn assert_fits(counts: &[u64], probabilities: &[f64], what: &str) {
    let p = p_value(counts, probabilities);
    assert!(p > FALSE_ALARM, "{what}: p-value {p:e}");
}

/// All bits of the row drawn alone.
fn alone(logits: &[f32], row: Row) -> Result<Vec<u64>, String> {
    bits(&Ok(draw_here(logits, row)))
}
