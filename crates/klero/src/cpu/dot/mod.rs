//! Dot products of hidden states with weight rows, in one fixed order.
//!
//! `f32`, `bf16` and `f16` rows (here): sixteen lanes; lane `l` adds `h[16c + l] · w[16c + l]` for c = 0, 1, 2, … with one
//! fused multiply-add each; a tail shorter than sixteen fills the first lanes; the lanes are added by the tree l with l + 8,
//! then + 4, + 2, + 1.
//!
//! Quantised rows (`quantized`): integer dots of 32, scaled and added to eight lanes.
//!
//! A result depends on one hidden row and one weight row only. Several weight rows are taken at once for speed; each
//! keeps its own lanes.

pub(crate) mod quantized;

pub use quantized::QuantizedRow;
pub(crate) use quantized::{PART, Quantized};

use super::widest;
use crate::Element;
use half::{bf16, f16};
use std::ops::Add;

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
    /// `hidden · row` for every row of `rows` (f16).
    pub(crate) fn dot_f16(rows: &[f16], hidden: &[f32], out: &mut [f32]) = dot_rows;
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

/// The sixteen bits of an f16 to f32, exactly, without a branch or a call: the exponent moves over by a multiplication
/// with 2^112, which also brings subnormal numbers to their value; infinities and NaN get their exponent back.
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
