//! The Gumbel race: the greatest x + g among the ids that are shown, one best score shared by all threads.

use super::exchange::{Damaged, Reader, Writer};
use crate::cpu::block::{Chosen, Scaled, contenders, contenders_among, contenders_below, ones, scale};
use crate::mass::{BLOCK, Block, EMPTY};
use crate::noise::{Noise, Racer};
use crate::order::Ranked;
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
        let mask = contenders(self.z, block as u32, &scaled.exponentials, &scaled.maxima, self.bound());
        self.run_all(block, mask, &scaled.x);
    }

    /// Runs chosen ids of a row whose greatest x is `max` and runs too.
    pub(crate) fn chosen(&self, block: usize, chosen: &Chosen, max: f32) {
        let mask = contenders_below(self.z, block as u32, &chosen.x, max, self.bound());
        self.run_all(block, mask & chosen.mask, &chosen.x);
    }

    /// Runs ids of a row whose greatest x is `max` and runs too.
    pub(crate) fn listed(&self, ids: &[Ranked], max: f32) {
        for some in ids.chunks(BLOCK) {
            let (mut numbers, mut x) = ([0; BLOCK], EMPTY);
            for (i, ranked) in some.iter().enumerate() {
                (numbers[i], x[i]) = (ranked.id(), ranked.x());
            }
            for i in ones(contenders_among(self.z, &numbers, &x, max, self.bound())) {
                self.run(numbers[i], f64::from(x[i]));
            }
        }
    }

    fn run_all(&self, block: usize, mask: u64, x: &Block) {
        for i in ones(mask) {
            self.run((block * BLOCK + i) as u32, f64::from(x[i]));
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
