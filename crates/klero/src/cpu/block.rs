//! What one block of 64 logits gives: x, the exponentials, the pair (m, S), and which ids can still win the race.

use super::dot::add_tree;
use super::widest;
use crate::mass::{BLOCK, Block, Pair, SIXTEEN, weight};
use crate::math::exp;

/// Sixteens in a block.
pub(crate) const SIXTEENS: usize = BLOCK / SIXTEEN;

/// One block of a row after temperature.
#[derive(Clone, Debug)]
pub(crate) struct Scaled {
    /// x = l · (1/T); −∞ where an id takes no part.
    pub x: Block,
    /// The greatest x of each sixteen.
    pub maxima: [f32; SIXTEENS],
    /// exp(x − its sixteen's maximum); 0 in an empty sixteen.
    pub exponentials: Block,
    /// m and S.
    pub pair: Pair,
    /// How many x are greater than −∞.
    pub present: u32,
    /// Whether some logit is NaN or +∞, or a finite one overflowed.
    pub bad: bool,
}

widest! {
    /// Multiplies a block of logits by 1/T and sums its exponentials by the tree of `mass`.
    pub(crate) fn scale(logits: &Block, inverse_temperature: f32) -> Scaled = compute_scaled;
}

#[inline(always)]
fn compute_scaled(logits: &Block, inverse_temperature: f32) -> Scaled {
    let mut x = [0.0; BLOCK];
    let mut bad = false;
    let mut present = 0;
    for i in 0..BLOCK {
        x[i] = logits[i] * inverse_temperature;
        let fell = x[i] == f32::NEG_INFINITY && logits[i] != f32::NEG_INFINITY;
        bad |= x[i].is_nan() | (x[i] == f32::INFINITY) | fell;
        present += u32::from(x[i] > f32::NEG_INFINITY);
    }
    let mut maxima = [f32::NEG_INFINITY; SIXTEENS];
    for (max, sixteen) in maxima.iter_mut().zip(x.chunks_exact(SIXTEEN)) {
        *max = max_tree(sixteen.try_into().expect("sixteen ids"));
    }
    let mut exponentials = [0.0; BLOCK];
    let mut sums = [0.0; SIXTEENS];
    for j in 0..SIXTEENS {
        if maxima[j] > f32::NEG_INFINITY {
            let mut e = [0.0; SIXTEEN];
            for i in 0..SIXTEEN {
                e[i] = exp(x[j * SIXTEEN + i] - maxima[j]);
            }
            exponentials[j * SIXTEEN..][..SIXTEEN].copy_from_slice(&e);
            sums[j] = add_tree(e);
        }
    }
    Scaled { x, maxima, exponentials, pair: join(maxima, sums), present, bad }
}

#[inline(always)]
fn max_tree(mut x: [f32; SIXTEEN]) -> f32 {
    let mut half = SIXTEEN / 2;
    while half > 0 {
        for i in 0..half {
            x[i] = if x[i + half] > x[i] { x[i + half] } else { x[i] };
        }
        half /= 2;
    }
    x[0]
}

/// (S₀·exp(m₀ − m) + S₁·exp(m₁ − m)) + (S₂·exp(m₂ − m) + S₃·exp(m₃ − m)).
#[inline(always)]
fn join(maxima: [f32; SIXTEENS], sums: [f32; SIXTEENS]) -> Pair {
    let max = maxima.into_iter().fold(f32::NEG_INFINITY, |most, m| if m > most { m } else { most });
    if max == f32::NEG_INFINITY {
        return Pair::EMPTY;
    }
    let part = |j: usize| sums[j] * exp(maxima[j] - max);
    Pair { max, sum: (part(0) + part(1)) + (part(2) + part(3)) }
}

widest! {
    /// Which ids of a block can reach a best score `bound`: those with h / 2^16 < exp(x − bound), widened by a margin.
    ///
    /// `bound` is at most the best score so far, rounded down to an f32 strictly below it. The product of the two
    /// exponentials here is within 10^−4 of exp(x − bound) wherever it matters, and the factor 1.001 covers that. An
    /// exponential that underflows belongs to an id at least 87 below a neighbour in its sixteen, which beats it
    /// whatever their noise (that spans 49), so leaving it out is right too.
    pub(crate) fn contenders(bits: &[u16; BLOCK], scaled: &Scaled, bound: f32) -> u64 = compute_contenders;
}

#[inline(always)]
fn compute_contenders(bits: &[u16; BLOCK], scaled: &Scaled, bound: f32) -> u64 {
    let mut mask = 0u64;
    for j in 0..SIXTEENS {
        let factor = exp(scaled.maxima[j] - bound) * (1.001 * 65536.0);
        let factor = if factor < f32::MAX { factor } else { f32::MAX };
        let mut passing = 0u64;
        for i in 0..SIXTEEN {
            let at = j * SIXTEEN + i;
            let passes = f32::from(bits[at]) < scaled.exponentials[at] * factor;
            passing |= u64::from(passes) << i;
        }
        mask |= passing << (j * SIXTEEN);
    }
    mask
}

widest! {
    /// The integer weight of each id of a block.
    pub(crate) fn weigh(x: &Block, max: f32) -> [u64; BLOCK] = compute_weights;
}

#[inline(always)]
fn compute_weights(x: &Block, max: f32) -> [u64; BLOCK] {
    x.map(|x| weight(x, max))
}

widest! {
    /// e^y for each number of a block.
    pub(crate) fn exponentials(y: &Block) -> Block = compute_exponentials;
}

#[inline(always)]
fn compute_exponentials(y: &Block) -> Block {
    y.map(exp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mass::EMPTY;

    #[test]
    fn both_builds_of_a_kernel_give_the_same_bits() {
        for (scale_by, spread) in [(1.0, 3.0f32), (1e5, 40.0), (0.01, 100.0), (1.25, 0.0)] {
            let mut block = EMPTY;
            for (i, l) in block.iter_mut().enumerate().filter(|(i, _)| i % 7 != 3) {
                *l = ((i * 7919 % 64) as f32 / 64.0 - 0.5) * spread;
            }
            let (wide, plain) = (scale(&block, scale_by), compute_scaled(&block, scale_by));
            assert_eq!(wide.pair.to_bits(), plain.pair.to_bits());
            assert_eq!(wide.exponentials.map(f32::to_bits), plain.exponentials.map(f32::to_bits));
            let bits = crate::cpu::philox::top_bits(9, 3);
            assert_eq!(contenders(&bits, &wide, 1.0), compute_contenders(&bits, &plain, 1.0));
            assert_eq!(weigh(&wide.x, wide.pair.max), compute_weights(&wide.x, wide.pair.max));
            let below = wide.x.map(|x| x - wide.pair.max);
            assert_eq!(exponentials(&below).map(f32::to_bits), compute_exponentials(&below).map(f32::to_bits));
        }
    }

    #[test]
    fn an_empty_block_and_bad_logits_show() {
        assert_eq!(scale(&EMPTY, 1.0).pair, Pair::EMPTY);
        assert!(!scale(&EMPTY, 1.0).bad);
        for (logit, factor) in [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (1e35, 1e5), (-1e35, 1e5)] {
            let mut block = EMPTY;
            block[41] = logit;
            assert!(scale(&block, factor).bad, "{logit} · {factor}");
        }
    }
}
