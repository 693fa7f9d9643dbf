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
use crate::weights::BlockQ8_0;
use half::{bf16, f16};

/// How many weight rows share one walk over a hidden row.
pub(crate) const GROUP: usize = 4;
const LANES: usize = 16;

/// An element of a weight row that widens to f32 without rounding.
pub(crate) trait Element: Copy {
    fn widen(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

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
    pub(crate) fn dot_q8_0(rows: &[BlockQ8_0], hidden: &[QuantizedBlock], out: &mut [f32]) = dot_rows_q8_0;
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
pub(crate) fn add_tree<const N: usize>(mut lanes: [f32; N]) -> f32 {
    let mut half = N / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Thirty-two elements of a hidden state as integers and their scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedBlock {
    scale: f32,
    values: [i8; 32],
}

/// A hidden state in blocks of 32; its length is a multiple of 32.
pub(crate) fn quantize(hidden: &[f32]) -> impl Iterator<Item = QuantizedBlock> + '_ {
    hidden.chunks_exact(32).map(|chunk| {
        let largest = chunk.iter().fold(0.0f32, |most, h| most.max(h.abs()));
        if !chunk.iter().all(|h| h.is_finite()) {
            return QuantizedBlock { scale: f32::NAN, values: [0; 32] };
        }
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut values = [0i8; 32];
        for (value, h) in values.iter_mut().zip(chunk) {
            *value = (h * inverse).round_ties_even() as i8;
        }
        QuantizedBlock { scale: largest / 127.0, values }
    })
}

#[inline(always)]
fn dot_rows_q8_0(rows: &[BlockQ8_0], hidden: &[QuantizedBlock], out: &mut [f32]) {
    let width = hidden.len();
    for (row, one) in rows.chunks_exact(width).zip(out) {
        let mut lanes = [0.0f32; 8];
        for (b, (w, h)) in row.iter().zip(hidden).enumerate() {
            let mut sum = 0i32;
            for i in 0..32 {
                sum += i32::from(w.qs[i]) * i32::from(h.values[i]);
            }
            let lane = &mut lanes[b % 8];
            *lane = (widen_f16(w.d) * h.scale).mul_add(sum as f32, *lane);
        }
        *one = add_tree(lanes);
    }
}

/// f16 to f32, exactly, without a branch or a call: the exponent moves over by a multiplication with 2^112, which also
/// brings subnormal numbers to their value; infinities and NaN get their exponent back.
#[inline(always)]
pub(crate) fn widen_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_widens_as_half_widens_it() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            let widened = widen_f16(value);
            if value.is_nan() {
                assert!(widened.is_nan());
            } else {
                assert_eq!(widened.to_bits(), value.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }
}
