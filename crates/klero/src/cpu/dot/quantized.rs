//! Quantised rows: what a block type's integers contribute to a dot product.
//!
//! The hidden state is quantised as well, for all types alike, in parts of 32: scale `a = max|h| / 127` in f32, values
//! `round_half_even(h · (127 / max|h|))`. For part b of a row (counted from its first weight) a block type gives two exact
//! integers: i, the dot of its 32 pairs times its own integer scales, and n, the same for what it subtracts (0 for types that
//! subtract nothing); with its f32 scales d and e, lane `b mod 8` becomes fma(d · a, i, lane), then, for types that subtract,
//! fma(−(e · a), n, lane). The eight lanes are added by the tree l with l + 4, + 2, + 1.
//!
//! | type | i | n |
//! |---|---|---|
//! | `Q8_0`, `Q4_0` | Σ q·v | |
//! | `Q4_K`, `Q5_K` | s · Σ q·v | m · Σ v |
//! | `Q6_K` | s₀ · Σ q·v over the first sixteen + s₁ · Σ q·v over the others | |
//!
//! All of them are below 2^24 and so exact in f32: at most 32 · 128 · 127 (Q8_0), 63 · 32 · 31 · 127 (Q5_K),
//! 2 · 128 · 16 · 32 · 127 (Q6_K), 63 · 32 · 127 (n). A hidden state that is not finite makes its part's scale NaN, so that it
//! shows in every logit instead of vanishing in an integer.

use super::add_tree;
use crate::Block;
use crate::cpu::widest;
use std::ops::Range;

/// Numbers that share a scale of the hidden state.
pub(crate) const PART: usize = 32;

/// Parts whose integers are scaled and added together, one per lane.
const LANES: usize = 8;

/// Hidden states in parts of 32 integers, each with its scale. The integers fit an i8; they are kept as the i16 that the
/// products need, so that they are widened once and not for every weight row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantized {
    scales: Vec<f32>,
    sums: Vec<i32>,
    values: Vec<[i16; PART]>,
}

impl Quantized {
    /// Quantises numbers, a multiple of 32 of them.
    pub(crate) fn new(hidden: &[f32]) -> Self {
        let (chunks, _) = hidden.as_chunks::<PART>();
        let (mut scales, mut values) = (vec![0.0; chunks.len()], vec![[0; PART]; chunks.len()]);
        quantize(chunks, &mut scales, &mut values);
        let sums = values.iter().map(|part| part.iter().map(|v| i32::from(*v)).sum()).collect();
        Self { scales, sums, values }
    }

    /// The hidden state that lies in these parts.
    pub(crate) fn parts(&self, range: Range<usize>) -> QuantizedRow<'_> {
        let Range { start, end } = range;
        QuantizedRow {
            scales: &self.scales[start..end],
            sums: &self.sums[start..end],
            values: &self.values[start..end],
        }
    }
}

/// One quantised hidden state.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedRow<'q> {
    scales: &'q [f32],
    /// Σ v of each part.
    sums: &'q [i32],
    values: &'q [[i16; PART]],
}

widest! {
    /// Quantises parts: scale max|h| / 127, values round_half_even(h · (127 / max|h|)).
    fn quantize(chunks: &[[f32; PART]], scales: &mut [f32], values: &mut [[i16; PART]]) = quantize_parts;
}

#[inline(always)]
fn quantize_parts(chunks: &[[f32; PART]], scales: &mut [f32], values: &mut [[i16; PART]]) {
    for ((chunk, scale), values) in chunks.iter().zip(scales).zip(values) {
        if !chunk.iter().all(|h| h.is_finite()) {
            (*scale, *values) = (f32::NAN, [0; PART]);
            continue;
        }
        let largest = chunk.iter().fold(0.0f32, |most, h| most.max(h.abs()));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        *scale = largest / 127.0;
        *values = chunk.map(|h| (h * inverse).round_ties_even() as i16);
    }
}

/// Σ q·v.
#[inline(always)]
pub(crate) fn dot<const N: usize>(q: &[i16; N], v: &[i16; N]) -> i32 {
    q.iter().zip(v).map(|(q, v)| i32::from(*q) * i32::from(*v)).sum()
}

/// `hidden · row` for every row of `rows`. Inlined into a function for each block type, compiled for the widest instruction
/// set.
#[inline(always)]
pub(crate) fn dot_rows<B: Block>(rows: &[B], hidden: QuantizedRow<'_>, out: &mut [f32]) {
    let parts = B::WEIGHTS / PART;
    let blocks = hidden.scales.len() / parts;
    for (row, one) in rows.chunks_exact(blocks).zip(out) {
        let mut lanes = [0.0; LANES];
        for start in (0..hidden.scales.len()).step_by(LANES) {
            let end = hidden.scales.len().min(start + LANES);
            add_group(&mut lanes, &row[start / parts..end.div_ceil(parts)], hidden.group(start..end));
        }
        *one = add_tree(lanes);
    }
}

impl<'q> QuantizedRow<'q> {
    #[inline(always)]
    fn group(&self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        Self { scales: &self.scales[start..end], sums: &self.sums[start..end], values: &self.values[start..end] }
    }
}

/// Adds up to eight parts, each to its lane.
#[inline(always)]
fn add_group<B: Block>(lanes: &mut [f32; LANES], blocks: &[B], hidden: QuantizedRow<'_>) {
    let parts = B::WEIGHTS / PART;
    let mut scales = [[0.0f32; LANES]; 2];
    let mut integers = [[0i32; LANES]; 2];
    for (b, ((values, sum), a)) in hidden.values.iter().zip(hidden.sums).zip(hidden.scales).enumerate() {
        let block = &blocks[b / parts];
        let ([i, n], [d, e]) = (block.integers(b % parts, values, *sum), block.scales());
        (integers[0][b], integers[1][b]) = (i, n);
        (scales[0][b], scales[1][b]) = (d * a, e * a);
    }
    for b in 0..LANES {
        lanes[b] = scales[0][b].mul_add(integers[0][b] as f32, lanes[b]);
        if B::SUBTRACTS {
            lanes[b] = (-scales[1][b]).mul_add(integers[1][b] as f32, lanes[b]);
        }
    }
}
