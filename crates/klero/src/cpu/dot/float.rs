//! Rows of f32, bf16 or f16: the hidden state stays as it is.
//!
//! Sixteen lanes; lane `l` adds `h[16c + l] · w[16c + l]` for c = 0, 1, 2, … with one fused multiply-add each; a tail
//! shorter than sixteen fills the first lanes; the lanes are added by the tree l with l + 8, then + 4, + 2, + 1.

use super::add_tree;
use crate::Element;
use crate::cpu::widest;
use half::{bf16, f16};

/// How many weight rows share one walk over a hidden row.
const GROUP: usize = 4;
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
