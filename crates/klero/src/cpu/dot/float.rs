//! Rows of f32, bf16 or f16: the hidden state stays as it is.
//!
//! Sixteen lanes; lane `l` adds `h[16c + l] · w[16c + l]` for c = 0, 1, 2, … with one fused multiply-add each; a tail
//! shorter than sixteen fills the first lanes; the lanes are added by the tree l with l + 8, then + 4, + 2, + 1.
//!
//! Four weight rows are multiplied with several hidden states at once, as many as registers hold the sums of, so that a weight
//! is loaded and widened once for all of them.

use super::Wanted;
use crate::cpu::sixteen::{Lanes, Load, SIXTEENS};
use crate::cpu::widest;
use crate::mass::SIXTEEN;
use half::{bf16, f16};

/// Hidden states that share a load of the weights where there are registers for it.
const TOGETHER: usize = 4;

widest! {
    /// The dot product of every row of `rows` (f32) with every hidden state of `wanted`, all `width` long.
    pub(crate) fn dot_f32(rows: &[f32], hidden: &[f32], width: usize, wanted: &mut [Wanted]) = dot_rows(isa);
}
widest! {
    /// As [`dot_f32`], for bf16.
    pub(crate) fn dot_bf16(rows: &[bf16], hidden: &[f32], width: usize, wanted: &mut [Wanted]) = dot_rows(isa);
}
widest! {
    /// As [`dot_f32`], for f16.
    pub(crate) fn dot_f16(rows: &[f16], hidden: &[f32], width: usize, wanted: &mut [Wanted]) = dot_rows(isa);
}

#[inline(always)]
fn dot_rows<L: Lanes, E: Load>(isa: L, rows: &[E], hidden: &[f32], width: usize, wanted: &mut [Wanted]) {
    let count = rows.len() / width;
    for first in (0..count).step_by(SIXTEENS) {
        // Beyond the last row, that one is taken again and its sum is left aside.
        let row = |r: usize| &rows[(first + r).min(count - 1) * width..][..width];
        let rows = [row(0), row(1), row(2), row(3)];
        let (mut wanted, mut ahead) = (&mut *wanted, true);
        while !wanted.is_empty() {
            let together = if L::MANY_REGISTERS && wanted.len() >= TOGETHER { TOGETHER } else { 1 };
            let (now, later) = wanted.split_at_mut(together);
            match together {
                TOGETHER => dot_tile::<L, E, TOGETHER>(isa, rows, hidden, (first, ahead), now),
                _ => dot_tile::<L, E, 1>(isa, rows, hidden, (first, ahead), now),
            }
            (wanted, ahead) = (later, false);
        }
    }
}

/// The dot products of four rows with `H` hidden states, written from `first` on. With `ahead`, the four rows behind them are
/// asked for meanwhile: the processor does not see by itself that several streams of memory go on there.
#[inline(always)]
fn dot_tile<L: Lanes, E: Load, const H: usize>(
    isa: L,
    rows: [&[E]; SIXTEENS],
    hidden: &[f32],
    (first, ahead): (usize, bool),
    wanted: &mut [Wanted],
) {
    let width = rows[0].len();
    let mut states = [&hidden[..0]; H];
    for (state, (n, _)) in states.iter_mut().zip(&*wanted) {
        *state = &hidden[n * width..][..width];
    }
    let mut lanes = [[isa.splat(0.0); SIXTEENS]; H];
    let full = width - width % SIXTEEN;
    for start in (0..full).step_by(SIXTEEN) {
        if ahead {
            for row in &rows {
                isa.prefetch(row.as_ptr().wrapping_add(SIXTEENS * width + start));
            }
        }
        let mut weights = [isa.splat(0.0); SIXTEENS];
        for (weights, row) in weights.iter_mut().zip(&rows) {
            *weights = E::load(isa, row[start..start + SIXTEEN].try_into().expect("a full chunk"));
        }
        for (lanes, state) in lanes.iter_mut().zip(&states) {
            let h = isa.load(state[start..start + SIXTEEN].try_into().expect("a full chunk"));
            for (lanes, weights) in lanes.iter_mut().zip(weights) {
                *lanes = isa.mul_add(h, weights, *lanes);
            }
        }
    }
    for ((lanes, state), (_, out)) in lanes.iter_mut().zip(&states).zip(wanted) {
        for (lanes, row) in lanes.iter_mut().zip(&rows) {
            *lanes = add_tail(isa, &row[full..], &state[full..], *lanes);
        }
        for (out, sum) in out[first..].iter_mut().zip(isa.sums(*lanes)) {
            *out = sum;
        }
    }
}

/// Adds the products of a tail. To a lane that it leaves out, 0 · −0 is added, which changes no number.
#[inline(always)]
fn add_tail<L: Lanes, E: Load>(isa: L, row: &[E], hidden: &[f32], lanes: L::F) -> L::F {
    if row.is_empty() {
        return lanes;
    }
    let (mut h, mut w) = ([0.0; SIXTEEN], [-0.0; SIXTEEN]);
    h[..hidden.len()].copy_from_slice(hidden);
    for (w, weight) in w.iter_mut().zip(row) {
        *w = weight.widen();
    }
    isa.mul_add(isa.load(&h), isa.load(&w), lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;
    use crate::cpu::dot::add_tree;
    use crate::hash::splitmix64;

    /// One dot product, by the words above.
    fn one<E: Element>(row: &[E], hidden: &[f32]) -> f32 {
        let mut lanes = [0.0f32; SIXTEEN];
        for (i, (h, w)) in hidden.iter().zip(row).enumerate() {
            lanes[i % SIXTEEN] = h.mul_add(w.widen(), lanes[i % SIXTEEN]);
        }
        add_tree(lanes)
    }

    fn builds_agree<E: Element>(
        narrow: fn(f32) -> E,
        dot: fn(&[E], &[f32], usize, &mut [Wanted]),
        (rows, width, states): (usize, usize, usize),
    ) {
        let number = |i: u64| splitmix64(i) as i32 as f32 * 1e-9;
        let mut weights: Vec<E> = (0..(rows * width) as u64).map(|i| narrow(number(i))).collect();
        let mut hidden: Vec<f32> = (0..(states * width) as u64).map(|i| number(!i)).collect();
        weights[0] = narrow(6e-8);
        // A row that sums to −0.
        hidden[..width].fill(-0.0);
        weights[..width].iter_mut().for_each(|w| *w = narrow(w.widen().abs()));
        let all = crate::cpu::at_each_level(|| {
            let mut out = vec![0.0f32; states * rows];
            dot(&weights, &hidden, width, &mut out.chunks_mut(rows).enumerate().collect::<Vec<_>>());
            out
        });
        for out in all {
            for (i, found) in out.iter().enumerate() {
                let (state, row) = (&hidden[i / rows * width..][..width], &weights[i % rows * width..][..width]);
                assert_eq!(found.to_bits(), one(row, state).to_bits(), "{rows} rows, width {width}, {i}");
            }
        }
    }

    #[test]
    fn every_build_of_a_kernel_gives_the_bits_of_the_law() {
        for shape in [(1, 1, 1), (4, 16, 4), (5, 31, 9), (7, 100, 3), (9, 47, 16)] {
            builds_agree(|x| x, dot_f32, shape);
            builds_agree(bf16::from_f32, dot_bf16, shape);
            builds_agree(f16::from_f32, dot_f16, shape);
        }
    }
}
