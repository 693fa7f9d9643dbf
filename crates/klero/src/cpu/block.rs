//! What one block of 64 logits gives: x, the exponentials, the pair (m, S), and which ids can still win the race.

use super::philox;
use super::sixteen::{Lanes, SIXTEENS, four};
use super::widest;
use crate::mass::{BLOCK, Block, EMPTY, Pair, SIXTEEN, weight_of};
use crate::math::{exp, exp_or_zero};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;

/// One block of a row after temperature.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Scaled {
    /// x = l · (1/T); −∞ where an id takes no part.
    pub x: Block,
    /// The greatest x of each sixteen.
    pub maxima: [f32; SIXTEENS],
    /// exp(x − its sixteen's maximum), or 0 far below it; 0 in an empty sixteen.
    pub exponentials: Block,
    /// m and S.
    pub pair: Pair,
    /// How many x are greater than −∞.
    pub present: u32,
    /// Whether some logit is NaN or +∞, or a finite one overflowed.
    pub bad: bool,
}

impl Scaled {
    pub(crate) const EMPTY: Self = Self {
        x: EMPTY,
        maxima: [f32::NEG_INFINITY; SIXTEENS],
        exponentials: [0.0; BLOCK],
        pair: Pair::EMPTY,
        present: 0,
        bad: false,
    };
}

widest! {
    /// Multiplies a block of logits by 1/T and sums its exponentials by the tree of `mass`; unless all its ids are sound and
    /// below `limit`: then it returns false, and only x, the maxima and the number of ids are told.
    pub(crate) fn scale(logits: &Block, inverse_temperature: f32, limit: f32, out: &mut Scaled) -> bool
        = compute_scaled(isa);
}

#[inline(always)]
fn compute_scaled<L: Lanes>(isa: L, logits: &Block, inverse_temperature: f32, limit: f32, out: &mut Scaled) -> bool {
    let factor = isa.splat(inverse_temperature);
    let x = four(isa.load_block(logits), |l| isa.mul(l, factor));
    let maxima = isa.maxima(x);
    let max = maxima.into_iter().fold(f32::NEG_INFINITY, |most, m| if m > most { m } else { most });
    isa.store_block(x, &mut out.x);
    (out.maxima, out.present, out.bad) = (maxima, BLOCK as u32, false);
    if !isa.are_finite(x) {
        (out.present, out.bad) = judge(logits, &out.x);
    }
    if max < limit && !out.bad {
        return false;
    }
    let mut exponentials = x;
    for j in 0..SIXTEENS {
        exponentials[j] = isa.exp_or_zero(isa.sub(x[j], isa.splat(maxima[j])));
    }
    isa.store_block(exponentials, &mut out.exponentials);
    out.pair = join(maxima, max, isa.sums(exponentials));
    true
}

/// How many x are greater than −∞, and whether some logit is NaN or +∞, or a finite one overflowed.
#[inline(always)]
fn judge(logits: &Block, x: &Block) -> (u32, bool) {
    let (mut present, mut bad) = (0, false);
    for (l, x) in logits.iter().zip(x) {
        let fell = *x == f32::NEG_INFINITY && *l != f32::NEG_INFINITY;
        bad |= x.is_nan() | (*x == f32::INFINITY) | fell;
        present += u32::from(*x > f32::NEG_INFINITY);
    }
    (present, bad)
}

/// (S₀·exp(m₀ − m) + S₁·exp(m₁ − m)) + (S₂·exp(m₂ − m) + S₃·exp(m₃ − m)).
#[inline(always)]
fn join(maxima: [f32; SIXTEENS], max: f32, sums: [f32; SIXTEENS]) -> Pair {
    if max == f32::NEG_INFINITY {
        return Pair::EMPTY;
    }
    let mut parts = [0.0; SIXTEENS];
    for j in 0..SIXTEENS {
        parts[j] = sums[j] * exp_or_zero(maxima[j] - max);
    }
    Pair { max, sum: (parts[0] + parts[1]) + (parts[2] + parts[3]) }
}

widest! {
    /// Which ids of block `block` can reach a best score `bound` under the row hash `z`: those with h / 2^16 < exp(x − bound),
    /// widened by a margin. `exponentials` are exp(x − m), m the number for their sixteen in `maxima`.
    ///
    /// `bound` is at most the best score so far, rounded down to an f32 strictly below it. The product of the two
    /// exponentials here is within 10^−4 of exp(x − bound) wherever it matters, and the factor 1.001 covers that. An
    /// exponential that is 0 belongs to an id at least 87 below another that takes part, which beats it whatever their
    /// noise (that spans 49), so leaving it out is right too.
    pub(crate) fn contenders(z: u64, block: u32, exponentials: &Block, maxima: &[f32; SIXTEENS], bound: f32) -> u64
        = compute_contenders(isa);
}

#[inline(always)]
fn compute_contenders<L: Lanes>(
    isa: L,
    z: u64,
    block: u32,
    exponentials: &Block,
    maxima: &[f32; SIXTEENS],
    bound: f32,
) -> u64 {
    let bits = philox::compute(z, block);
    reaching(isa, &bits, isa.load_block(exponentials), maxima, bound)
}

widest! {
    /// As [`contenders`], for a row whose greatest x is `max` and takes part.
    pub(crate) fn contenders_below(z: u64, block: u32, x: &Block, max: f32, bound: f32) -> u64
        = compute_contenders_below(isa);
}

#[inline(always)]
fn compute_contenders_below<L: Lanes>(isa: L, z: u64, block: u32, x: &Block, max: f32, bound: f32) -> u64 {
    let bits = philox::compute(z, block);
    reaching(isa, &bits, beside(isa, x, max), &[max; SIXTEENS], bound)
}

widest! {
    /// As [`contenders_below`], for any ids.
    pub(crate) fn contenders_among(z: u64, ids: &[u32; BLOCK], x: &Block, max: f32, bound: f32) -> u64
        = compute_contenders_among(isa);
}

#[inline(always)]
fn compute_contenders_among<L: Lanes>(isa: L, z: u64, ids: &[u32; BLOCK], x: &Block, max: f32, bound: f32) -> u64 {
    let bits = philox::compute_of(z, ids);
    reaching(isa, &bits, beside(isa, x, max), &[max; SIXTEENS], bound)
}

/// exp(x − max).
#[inline(always)]
fn beside<L: Lanes>(isa: L, x: &Block, max: f32) -> [L::F; SIXTEENS] {
    let mut x = isa.load_block(x);
    for x in &mut x {
        *x = isa.exp_or_zero(isa.sub(*x, isa.splat(max)));
    }
    x
}

/// One bit for each id whose top bits are below exp(x − m) · exp(m − bound), with the margin.
#[inline(always)]
fn reaching<L: Lanes>(
    isa: L,
    bits: &[u16; BLOCK],
    exponentials: [L::F; SIXTEENS],
    maxima: &[f32; SIXTEENS],
    bound: f32,
) -> u64 {
    let mut factors = *maxima;
    for factor in &mut factors {
        let product = exp(*factor - bound) * (1.001 * 65536.0);
        *factor = if product < f32::MAX { product } else { f32::MAX };
    }
    let (bits, _) = bits.as_chunks::<SIXTEEN>();
    let mut mask = 0;
    for j in 0..SIXTEENS {
        let reach = isa.mul(exponentials[j], isa.splat(factors[j]));
        mask |= u64::from(isa.less(isa.widen(&bits[j]), reach)) << (j * SIXTEEN);
    }
    mask
}

/// The ids of a block that lie between two depths below a row's greatest x.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Chosen {
    /// One bit for each.
    pub mask: u64,
    /// x of all ids of the block, if any is chosen.
    pub x: Block,
}

impl Chosen {
    pub(crate) const NONE: Self = Self { mask: 0, x: EMPTY };

    /// x of the chosen ids, −∞ for the others.
    pub(crate) fn alone(&self) -> Block {
        let mut x = EMPTY;
        for i in ones(self.mask) {
            x[i] = self.x[i];
        }
        x
    }
}

/// The numbers of the bits that are set, ascending.
pub(crate) fn ones(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (i < u64::BITS).then_some(i as usize)
    })
}

widest! {
    /// Chooses the ids with x greater than −∞ whose depth max − x is one of `depths`. Returns a bit for each of them whose
    /// depth is the first or the last.
    pub(crate) fn choose(
        logits: &Block,
        inverse_temperature: f32,
        max: f32,
        depths: &RangeInclusive<f32>,
        out: &mut Chosen,
    ) -> u64 = compute_chosen(isa);
}

#[inline(always)]
fn compute_chosen<L: Lanes>(
    isa: L,
    logits: &Block,
    inverse_temperature: f32,
    max: f32,
    depths: &RangeInclusive<f32>,
    out: &mut Chosen,
) -> u64 {
    let (factor, max) = (isa.splat(inverse_temperature), isa.splat(max));
    let (least, most) = (isa.splat(*depths.start()), isa.splat(*depths.end()));
    let mut x = isa.load_block(logits);
    let (mut mask, mut inner) = (0, 0);
    for (j, x) in x.iter_mut().enumerate() {
        *x = isa.mul(*x, factor);
        let depth = isa.sub(max, *x);
        let outside = isa.less(depth, least) | isa.less(most, depth);
        let chosen = isa.less(isa.splat(f32::NEG_INFINITY), *x) & !outside;
        mask |= u64::from(chosen) << (j * SIXTEEN);
        inner |= u64::from(isa.less(least, depth) & isa.less(depth, most)) << (j * SIXTEEN);
    }
    out.mask = mask;
    if mask != 0 {
        isa.store_block(x, &mut out.x);
    }
    mask & !inner
}

widest! {
    /// One bit for each x that is at least `least`.
    pub(crate) fn at_least(x: &Block, least: f32) -> u64 = compute_at_least(isa);
}

#[inline(always)]
fn compute_at_least<L: Lanes>(isa: L, x: &Block, least: f32) -> u64 {
    let x = isa.load_block(x);
    let mut below = 0;
    for (j, x) in x.into_iter().enumerate() {
        below |= u64::from(isa.less(x, isa.splat(least))) << (j * SIXTEEN);
    }
    !below
}

widest! {
    /// The integer weight of each id of a block.
    pub(crate) fn weigh(x: &Block, max: f32) -> [u64; BLOCK] = compute_weights(isa);
}

#[inline(always)]
fn compute_weights<L: Lanes>(isa: L, x: &Block, max: f32) -> [u64; BLOCK] {
    let (mut exponentials, mut weights) = ([0.0; BLOCK], [0; BLOCK]);
    isa.store_block(beside(isa, x, max), &mut exponentials);
    for (weight, e) in weights.iter_mut().zip(&exponentials) {
        *weight = weight_of(*e);
    }
    weights
}

widest! {
    /// Turns the pairs of blocks, in bits, into the masses of the blocks beside `max`.
    pub(crate) fn weigh_pairs(pairs: &mut [AtomicU64], max: f32) = compute_masses;
}

#[inline(always)]
fn compute_masses(pairs: &mut [AtomicU64], max: f32) {
    for pair in pairs {
        let pair = pair.get_mut();
        *pair = Pair::from_bits(*pair).mass(max);
    }
}

widest! {
    /// e^y for each number of a block.
    pub(crate) fn exponentials(y: &Block) -> Block = compute_exponentials;
}

#[inline(always)]
fn compute_exponentials(y: &Block) -> Block {
    let mut all = [0.0; BLOCK];
    for (e, y) in all.iter_mut().zip(y) {
        *e = exp(*y);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(spread: f32) -> Block {
        let mut block = EMPTY;
        for (i, l) in block.iter_mut().enumerate().filter(|(i, _)| i % 7 != 3) {
            *l = ((i * 7919 % 64) as f32 / 64.0 - 0.5) * spread;
        }
        block
    }

    fn scaled(logits: &Block, factor: f32) -> Scaled {
        let mut scaled = Scaled::EMPTY;
        assert!(scale(logits, factor, f32::NEG_INFINITY, &mut scaled));
        scaled
    }

    /// What all kernels make of a block, in bits.
    fn everything(logits: &Block, factor: f32) -> Vec<u64> {
        let scaled = scaled(logits, factor);
        let below = scaled.x.map(|x| x - scaled.pair.max);
        let floats = [scaled.x, scaled.exponentials, exponentials(&below)];
        let mut all: Vec<u64> = floats.iter().flatten().map(|x| u64::from(x.to_bits())).collect();
        all.extend([scaled.pair.to_bits(), u64::from(scaled.present), u64::from(scaled.bad)]);
        all.extend(
            [1.0, -1e9, 1e9, f32::NEG_INFINITY]
                .map(|bound| contenders(9, 3, &scaled.exponentials, &scaled.maxima, bound)),
        );
        let ids = std::array::from_fn(|i| i as u32 * 7919);
        all.extend([1.0, -1e9].map(|bound| contenders_among(9, &ids, &scaled.x, scaled.pair.max, bound)));
        all.extend([1.0, -1e9].map(|bound| contenders_below(9, 3, &scaled.x, scaled.pair.max, bound)));
        all.extend(weigh(&scaled.x, scaled.pair.max));
        for depths in [0.0..=0.0, 0.0..=1.5, 0.5..=f32::INFINITY, 1e30..=f32::INFINITY] {
            let mut chosen = Chosen::NONE;
            all.push(choose(logits, factor, scaled.pair.max, &depths, &mut chosen));
            all.extend(chosen.x.map(|x| u64::from(x.to_bits())).into_iter().chain([chosen.mask]));
        }
        all.extend([f32::NEG_INFINITY, 0.0, 1e9].map(|least| at_least(&scaled.x, least)));
        all
    }

    #[test]
    fn every_build_of_a_kernel_gives_the_same_bits() {
        for (factor, spread) in [(1.0, 3.0f32), (1e5, 40.0), (0.01, 100.0), (1.25, 0.0), (1.0, 1e-40), (1.0, 170.0)] {
            let full = block(spread).map(|l| if l == f32::NEG_INFINITY { -0.4 * spread } else { l });
            let half = std::array::from_fn(|i| if i < 32 { full[i] } else { f32::NEG_INFINITY });
            for logits in [block(spread), full, half, EMPTY] {
                let all = crate::cpu::at_each_level(|| everything(&logits, factor));
                assert!(all.iter().all(|one| *one == all[0]), "{factor} {spread}");
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_exponential_however_deep_the_terms() {
        for spread in [1.0, 30.0, 170.0, 1e4] {
            let logits = block(spread);
            let (mut maxima, mut sums) = ([f32::NEG_INFINITY; SIXTEENS], [0.0; SIXTEENS]);
            for (j, sixteen) in logits.as_chunks::<SIXTEEN>().0.iter().enumerate() {
                maxima[j] = sixteen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                sums[j] = crate::cpu::dot::add_tree(sixteen.map(|x| exp(x - maxima[j])));
            }
            let max = maxima.into_iter().fold(f32::NEG_INFINITY, f32::max);
            let part = |j: usize| sums[j] * exp(maxima[j] - max);
            let pair = Pair { max, sum: (part(0) + part(1)) + (part(2) + part(3)) };
            assert_eq!(scaled(&logits, 1.0).pair.to_bits(), pair.to_bits(), "{spread}");
        }
    }

    #[test]
    fn the_ids_between_two_depths_are_chosen() {
        let logits = block(40.0);
        let max = logits.into_iter().fold(f32::NEG_INFINITY, f32::max);
        for depths in [0.0..=0.0, 0.0..=7.5, 3.0..=7.5, 3.0..=f32::INFINITY] {
            let mut chosen = Chosen::NONE;
            let ends = choose(&logits, 1.0, max, &depths, &mut chosen);
            let at_end = |i: &usize| [depths.start(), depths.end()].contains(&&(max - logits[*i]));
            assert!(ones(ends).eq(ones(chosen.mask).filter(at_end)));
            let right = |i: &usize| logits[*i] > f32::NEG_INFINITY && depths.contains(&(max - logits[*i]));
            assert!(ones(chosen.mask).eq((0..BLOCK).filter(right)), "{depths:?}");
            for (i, x) in chosen.alone().into_iter().enumerate() {
                assert_eq!(x, if right(&i) { logits[i] } else { f32::NEG_INFINITY });
            }
        }
        let right = |i: &usize| logits[*i] >= 0.5;
        assert!(ones(at_least(&logits, 0.5)).eq((0..BLOCK).filter(right)));
    }

    #[test]
    fn an_empty_block_and_bad_logits_show() {
        assert_eq!(scaled(&EMPTY, 1.0).pair, Pair::EMPTY);
        assert!(!scaled(&EMPTY, 1.0).bad);
        for (logit, factor) in [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (1e35, 1e5), (-1e35, 1e5)] {
            for rest in [f32::NEG_INFINITY, 0.5] {
                let mut block = [rest; BLOCK];
                block[41] = logit;
                let bad = crate::cpu::at_each_level(|| {
                    let mut scaled = Scaled::EMPTY;
                    scale(&block, factor, f32::INFINITY, &mut scaled) && scaled.bad
                });
                assert!(bad.into_iter().all(|bad| bad), "{logit} · {factor}");
            }
        }
    }

    #[test]
    fn a_block_is_quiet_only_if_all_its_ids_are_below_the_limit() {
        for (low, limit, tells) in
            [(-1.0, 3.0, true), (-1.0, 3.1, false), (f32::NEG_INFINITY, 3.1, false), (f32::NAN, 3.1, true)]
        {
            let mut logits = [low; BLOCK];
            logits[63] = 3.0;
            let told = crate::cpu::at_each_level(|| scale(&logits, 1.0, limit, &mut Scaled::EMPTY.clone()));
            assert!(told.into_iter().all(|told| told == tells), "{low} {limit}");
        }
    }
}
