//! One 64-bit word for each block of a row: pairs, masses, sums. All a row keeps of its logits.

use super::exchange::{Damaged, Reader, Writer};
use crate::cpu::block::weigh_pairs;
use crate::mass::BLOCK;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words that any thread may set, each block's by whoever looked at it. None at all where a row needs none.
pub(crate) struct Words(Vec<AtomicU64>);

impl Words {
    pub(crate) fn new(blocks: usize, value: u64) -> Self {
        Self((0..blocks).map(|_| AtomicU64::new(value)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a block's word, if there are words.
    pub(crate) fn set(&self, block: usize, value: u64) {
        if let Some(word) = self.0.get(block) {
            word.store(value, Relaxed);
        }
    }

    /// Sets every word.
    pub(crate) fn reset(&self, value: u64) {
        self.0.iter().for_each(|word| word.store(value, Relaxed));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|word| word.load(Relaxed))
    }

    /// Turns the pairs of blocks into masses beside `max`.
    pub(crate) fn weigh_pairs(&mut self, max: f32) {
        weigh_pairs(&mut self.0, max);
    }

    /// Writes the words of the blocks that hold `ids`.
    pub(crate) fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        for word in &self.0[self.blocks(ids)] {
            out.u64(word.load(Relaxed));
        }
    }

    /// Reads the words of the blocks that hold `ids`, each of which must be one that a shard can have written.
    pub(crate) fn read(&self, ids: &Range<usize>, from: &mut Reader, sound: fn(u64) -> bool) -> Result<(), Damaged> {
        for word in &self.0[self.blocks(ids)] {
            let value = from.u64()?;
            if !sound(value) {
                return Err(Damaged);
            }
            word.store(value, Relaxed);
        }
        Ok(())
    }

    /// The blocks that hold `ids`, which begin with a block.
    fn blocks(&self, ids: &Range<usize>) -> Range<usize> {
        let most = self.0.len();
        (ids.start / BLOCK).min(most)..ids.end.div_ceil(BLOCK).min(most)
    }
}
