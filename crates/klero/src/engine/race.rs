//! The Gumbel race: the greatest x + g among the ids that are shown, one best score shared by all threads.

use super::exchange::{Damaged, Reader, Writer};
use crate::cpu::block::{Scaled, contenders, scale};
use crate::mass::{BLOCK, Block};
use crate::noise::{Noise, Racer};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A race under the row hash `z`.
pub(crate) struct Race {
    z: u64,
    best: AtomicU64,
}

impl Race {
    pub(crate) fn new(z: u64) -> Self {
        Self { z, best: AtomicU64::new(Racer::NONE.0) }
    }

    /// The id that won; None if none has run.
    pub(crate) fn winner(&self) -> Option<u32> {
        let best = Racer(self.best.load(Relaxed));
        (best != Racer::NONE).then(|| best.id())
    }

    /// Runs the ids of a block whose x is greater than −∞.
    pub(crate) fn block(&self, block: usize, x: &Block) {
        let mut scaled = Scaled::EMPTY;
        scale(x, 1.0, f32::NEG_INFINITY, &mut scaled);
        self.scaled(block, &scaled);
    }

    /// As [`Race::block`], with the exponentials at hand.
    pub(crate) fn scaled(&self, block: usize, scaled: &Scaled) {
        let mut mask = contenders(self.z, block as u32, scaled, self.bound());
        while mask != 0 {
            let i = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            self.run((block * BLOCK + i) as u32, f64::from(scaled.x[i]));
        }
    }

    /// Runs one id with the value x, to which its noise is added.
    pub(crate) fn run(&self, id: u32, x: f64) {
        let racer = Racer::new(x + Noise::of(self.z, id).gumbel, id);
        self.best.fetch_max(racer.0, Relaxed);
    }

    /// An f32 strictly below every score that could still win or share the lead.
    pub(crate) fn bound(&self) -> f32 {
        (Racer(self.best.load(Relaxed)).floor() as f32).next_down()
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.best.load(Relaxed));
    }

    pub(crate) fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        let racer = Racer(from.u64()?);
        if racer != Racer::NONE && !ids.contains(&(racer.id() as usize)) {
            return Err(Damaged);
        }
        self.best.fetch_max(racer.0, Relaxed);
        Ok(())
    }

    pub(crate) fn hash(&self) -> u64 {
        self.z
    }
}
