//! Dot products of hidden states with weight rows, in one fixed order.
//!
//! `f32` and `bf16` rows: sixteen lanes; lane `l` adds `h[16c + l] · w[16c + l]` for c = 0, 1, 2, … with one fused
//! multiply-add each; a tail shorter than sixteen fills the first lanes; the lanes are added by the tree l with l + 8,
//! then + 4, + 2, + 1.
//!
//! `Q8_0` rows: the hidden state is quantised in blocks of 32 as well: scale `a = max|h| / 127` in f32, values
//! `round_half_even(h · (127 / max|h|))`. Block b contributes the exact integer dot of its 32 pairs, times the f32
//! product of the two scales; it is added to lane `b mod 8` with one fused multiply-add; the eight lanes are added by
//! the tree l with l + 4, + 2, + 1. A hidden state that is not finite makes its block's scale NaN, so that it shows in
//! every logit instead of vanishing in an integer.
//!
//! A result depends on one hidden row and one weight row only. Several weight rows are taken at once for speed; each
//! keeps its own lanes.

use super::widest;
use crate::Element;
use crate::weights::BlockQ8_0;
use half::bf16;
use std::ops::{Add, Range};

/// How many weight rows share one walk over a hidden row.
pub(crate) const GROUP: usize = 4;
const LANES: usize = 16;

widest! {
    /// `hidden · row` for every row of `rows` (f32), each of `hidden.len()` elements.
    pub(crate) fn dot_f32(rows: &[f32], hidden: &[f32], out: &mut [f32]) = dot_rows;
}
widest! {
    /// `hidden · row` for every row of `rows` (bf16).
    pub(crate) fn dot_bf16(rows: &[bf16], hidden: &[f32], out: &mut [f32]) = dot_rows;
}
widest! {
    /// `hidden · row` for every row of `rows` (Q8_0) and a quantised hidden state.
    pub(crate) fn dot_q8_0(rows: &[BlockQ8_0], hidden: QuantizedRow<'_>, out: &mut [f32]) = dot_rows_q8_0;
}

#[inline(always)]
fn dot_rows<E: Element>(rows: &[E], hidden: &[f32], out: &mut [f32]) {
    let width = hidden.len();
    let grouped = out.len() - out.len() % GROUP;
    let (fours, rest) = out.split_at_mut(grouped);
    for (g, four) in fours.chunks_exact_mut(GROUP).enumerate() {
        let at = |r: usize| &rows[(g * GROUP + r) * width..][..width];
        four.copy_from_slice(&dot_group([at(0), at(1), at(2), at(3)], hidden));
    }
    for (r, one) in rest.iter_mut().enumerate() {
        [*one] = dot_group([&rows[(grouped + r) * width..][..width]], hidden);
    }
}

#[inline(always)]
fn dot_group<E: Element, const R: usize>(rows: [&[E]; R], hidden: &[f32]) -> [f32; R] {
    let mut lanes = [[0.0f32; LANES]; R];
    let full = hidden.len() - hidden.len() % LANES;
    for start in (0..full).step_by(LANES) {
        let h: &[f32; LANES] = hidden[start..start + LANES].try_into().expect("a full chunk");
        for (lane, row) in lanes.iter_mut().zip(&rows) {
            let w: &[E; LANES] = row[start..start + LANES].try_into().expect("a full chunk");
            for l in 0..LANES {
                lane[l] = h[l].mul_add(w[l].widen(), lane[l]);
            }
        }
    }
    for (lane, row) in lanes.iter_mut().zip(&rows) {
        for (l, (h, w)) in hidden[full..].iter().zip(&row[full..]).enumerate() {
            lane[l] = h.mul_add(w.widen(), lane[l]);
        }
    }
    lanes.map(add_tree)
}

/// Adds lanes pairwise, halves apart: with N = 16 the tree l with l + 8, + 4, + 2, + 1.
#[inline(always)]
pub(crate) fn add_tree<T: Copy + Add<Output = T>, const N: usize>(mut lanes: [T; N]) -> T {
    let mut half = N / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = lanes[l] + lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Hidden states in blocks of 32 integers, each with its scale. The integers fit an i8; they are kept as the i16 that the
/// products need, so that they are widened once and not for every weight row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantized {
    scales: Vec<f32>,
    values: Vec<[i16; 32]>,
}

impl Quantized {
    /// Quantises numbers, a multiple of 32 of them.
    pub(crate) fn new(hidden: &[f32]) -> Self {
        let (chunks, _) = hidden.as_chunks::<32>();
        let (mut scales, mut values) = (vec![0.0; chunks.len()], vec![[0; 32]; chunks.len()]);
        quantize(chunks, &mut scales, &mut values);
        Self { scales, values }
    }

    /// The hidden state that lies in these blocks.
    pub(crate) fn blocks(&self, range: Range<usize>) -> QuantizedRow<'_> {
        QuantizedRow { scales: &self.scales[range.clone()], values: &self.values[range] }
    }
}

/// One hidden state of [`Quantized`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedRow<'q> {
    scales: &'q [f32],
    values: &'q [[i16; 32]],
}

widest! {
    /// Quantises blocks: scale max|h| / 127, values round_half_even(h · (127 / max|h|)).
    fn quantize(chunks: &[[f32; 32]], scales: &mut [f32], values: &mut [[i16; 32]]) = quantize_blocks;
}

#[inline(always)]
fn quantize_blocks(chunks: &[[f32; 32]], scales: &mut [f32], values: &mut [[i16; 32]]) {
    for ((chunk, scale), values) in chunks.iter().zip(scales).zip(values) {
        if !chunk.iter().all(|h| h.is_finite()) {
            (*scale, *values) = (f32::NAN, [0; 32]);
            continue;
        }
        let largest = chunk.iter().fold(0.0f32, |most, h| most.max(h.abs()));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        *scale = largest / 127.0;
        *values = chunk.map(|h| (h * inverse).round_ties_even() as i16);
    }
}

/// Blocks whose integer dots are scaled and added together, one per lane.
const BLOCKS: usize = 8;

#[inline(always)]
fn dot_rows_q8_0(rows: &[BlockQ8_0], hidden: QuantizedRow<'_>, out: &mut [f32]) {
    let (scales, tail_scales) = hidden.scales.as_chunks::<BLOCKS>();
    let (values, tail_values) = hidden.values.as_chunks::<BLOCKS>();
    let mut tail_scale = [0.0; BLOCKS];
    tail_scale[..tail_scales.len()].copy_from_slice(tail_scales);
    for (row, one) in rows.chunks_exact(hidden.scales.len()).zip(out) {
        let (groups, tail) = row.as_chunks::<BLOCKS>();
        let mut lanes = [0.0; BLOCKS];
        for ((group, values), scales) in groups.iter().zip(values).zip(scales) {
            add_group(&mut lanes, group, values, scales);
        }
        if !tail.is_empty() {
            add_group(&mut lanes, tail, tail_values, &tail_scale);
        }
        *one = add_tree(lanes);
    }
}

/// Adds up to eight blocks, each to its lane.
#[inline(always)]
fn add_group(lanes: &mut [f32; BLOCKS], group: &[BlockQ8_0], values: &[[i16; 32]], scales: &[f32; BLOCKS]) {
    let mut dots = [0i32; BLOCKS];
    let mut weight_scales = [0u32; BLOCKS];
    for (b, (block, values)) in group.iter().zip(values).enumerate() {
        for (q, value) in block.qs.iter().zip(values) {
            dots[b] += i32::from(*q) * i32::from(*value);
        }
        weight_scales[b] = u32::from(block.d.to_bits());
    }
    for b in 0..BLOCKS {
        let scale = widen_f16(weight_scales[b]) * scales[b];
        lanes[b] = scale.mul_add(dots[b] as f32, lanes[b]);
    }
}

/// The sixteen bits of an f16 to f32, exactly, without a branch or a call: the exponent moves over by a multiplication with 2^112, which also
/// brings subnormal numbers to their value; infinities and NaN get their exponent back.
#[inline(always)]
pub(crate) fn widen_f16(bits: u32) -> f32 {
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_f16_widens_as_half_widens_it() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            let widened = widen_f16(u32::from(bits));
            if value.is_nan() {
                assert!(widened.is_nan());
            } else {
                assert_eq!(widened.to_bits(), value.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }
}
