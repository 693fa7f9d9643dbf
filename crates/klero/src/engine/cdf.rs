//! The inverse CDF: the first id, in vocabulary order, whose running weight exceeds u · total.

use super::kept::KeptVisit;
use crate::cpu::block::weigh;
use crate::mass::{self, BLOCK, Block, Pair};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The integer weight of every block of a row.
pub(crate) struct BlockWeights {
    max: f32,
    weights: Vec<AtomicU64>,
    /// Whether the weights are still to be summed from single ids.
    open: bool,
}

impl BlockWeights {
    /// Weights to be summed over the kept ids that are shown.
    pub(crate) fn new(blocks: usize, max: f32) -> Self {
        Self { max, weights: (0..blocks).map(|_| AtomicU64::new(0)).collect(), open: true }
    }

    /// The masses of whole blocks, for a row from which nothing was removed.
    pub(crate) fn of_masses(pairs: &[Pair], max: f32) -> Self {
        Self { max, weights: pairs.iter().map(|pair| AtomicU64::new(pair.mass(max))).collect(), open: false }
    }

    /// The weight of each id of a block.
    pub(crate) fn of_ids(&self, x: &Block) -> [u64; BLOCK] {
        weigh(x, self.max)
    }

    /// Sets the weight of a block.
    pub(crate) fn set(&self, block: usize, weights: &[u64; BLOCK]) {
        self.weights[block].store(weights.iter().sum(), Relaxed);
    }

    /// The block of the hit, the weight before it, and ⌊u · total⌋, which the running weight must exceed.
    pub(crate) fn find(&self, z: u64) -> (usize, u64, u64) {
        let weights = || self.weights.iter().map(|weight| weight.load(Relaxed));
        let target = mass::target(z, weights().sum());
        let mut before = 0;
        for (block, weight) in weights().enumerate() {
            if before + weight > target {
                return (block, before, target);
            }
            before += weight;
        }
        unreachable!("u · total is below a positive total, and the greatest id alone makes it positive")
    }
}

impl KeptVisit for BlockWeights {
    fn needed(&self) -> bool {
        self.open
    }

    fn block(&self, block: usize, x: &Block) {
        self.set(block, &self.of_ids(x));
    }
}

/// The hit inside a block; where rounding leaves it without one, its last id with a positive weight, or if none has,
/// its last kept id.
pub(crate) fn find_in_block(x: &Block, weights: &[u64; BLOCK], before: u64, target: u64) -> usize {
    let mut running = before;
    let hit = weights.iter().position(|weight| {
        running += weight;
        running > target
    });
    hit.or_else(|| weights.iter().rposition(|weight| *weight > 0))
        .or_else(|| x.iter().rposition(|x| *x > f32::NEG_INFINITY))
        .expect("a block with a positive mass has a kept id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mass::EMPTY;

    #[test]
    fn a_block_without_a_hit_gives_its_last_positive_or_last_kept_id() {
        let mut x = EMPTY;
        let mut weights = [0; BLOCK];
        (x[3], x[9], x[12]) = (0.0, 0.0, -50.0);
        (weights[3], weights[9]) = (5, 6);
        assert_eq!(find_in_block(&x, &weights, 100, 104), 3);
        assert_eq!(find_in_block(&x, &weights, 100, 105), 9);
        assert_eq!(find_in_block(&x, &weights, 100, 111), 9);
        assert_eq!(find_in_block(&x, &[0; BLOCK], 100, 100), 12);
    }
}
