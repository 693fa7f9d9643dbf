//! The inverse CDF: the first id, in vocabulary order, whose running weight exceeds u · total.

use super::exchange::{Damaged, Reader, Writer};
use super::kept::KeptVisit;
use super::words::Words;
use crate::cpu::block::weigh;
use crate::mass::{self, BLOCK, Block};
use std::ops::Range;

/// The integer weight of every block of a row.
pub(crate) struct BlockWeights<'r> {
    max: f32,
    weights: &'r Words,
    /// Whether the weights are still to be summed from single ids.
    open: bool,
}

impl<'r> BlockWeights<'r> {
    /// Weights to be summed, in place of what the words hold, over the kept ids that are shown.
    pub(crate) fn new(words: &'r Words, max: f32) -> Self {
        words.reset(0);
        Self { max, weights: words, open: true }
    }

    /// The masses of whole blocks, for a row from which nothing was removed.
    pub(crate) fn of_masses(masses: &'r Words, max: f32) -> Self {
        Self { max, weights: masses, open: false }
    }

    /// The weight of each id of a block.
    pub(crate) fn of_ids(&self, x: &Block) -> [u64; BLOCK] {
        weigh(x, self.max)
    }

    /// Sets the weight of a block.
    pub(crate) fn set(&self, block: usize, weights: &[u64; BLOCK]) {
        self.weights.set(block, weights.iter().sum());
    }

    /// The block of the hit, the weight before it, and ⌊u · total⌋, which the running weight must exceed. There is one: u · total
    /// is below the total, and the greatest id alone makes that positive. (None if a shard sent weights that are not so.)
    pub(crate) fn find(&self, z: u64) -> Option<(usize, u64, u64)> {
        let target = mass::target(z, self.weights.iter().sum());
        let mut before = 0;
        for (block, weight) in self.weights.iter().enumerate() {
            if before + weight > target {
                return Some((block, before, target));
            }
            before += weight;
        }
        None
    }
}

/// Whether a shard can have summed this weight over a block.
fn is_weight(word: u64) -> bool {
    word <= (BLOCK as u64) << 43
}

impl KeptVisit for BlockWeights<'_> {
    fn needed(&self) -> bool {
        self.open
    }

    fn block(&self, block: usize, x: &Block) {
        self.set(block, &self.of_ids(x));
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        self.weights.write(ids, out);
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        self.weights.read(ids, from, is_weight)
    }
}

/// The hit inside a block; where rounding leaves it without one, its last id with a positive weight, or if none has,
/// its last kept id. A block with a positive weight has one.
pub(crate) fn find_in_block(x: &Block, weights: &[u64; BLOCK], before: u64, target: u64) -> Option<usize> {
    let mut running = before;
    let hit = weights.iter().position(|weight| {
        // Saturating for the sake of weights that follow from what a shard made up; true ones end at 2^63.
        running = running.saturating_add(*weight);
        running > target
    });
    hit.or_else(|| weights.iter().rposition(|weight| *weight > 0))
        .or_else(|| x.iter().rposition(|x| *x > f32::NEG_INFINITY))
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
        assert_eq!(find_in_block(&x, &weights, 100, 104), Some(3));
        assert_eq!(find_in_block(&x, &weights, 100, 105), Some(9));
        assert_eq!(find_in_block(&x, &weights, 100, 111), Some(9));
        assert_eq!(find_in_block(&x, &[0; BLOCK], 100, 100), Some(12));
    }
}
