//! Verification of a drafted token by rejection.
//!
//! With p the processed target and q the draft's distribution: the token d is accepted if u₂ · q(d) < p(d); otherwise a
//! token is drawn from the residual R = max(p − q·e^(−δ), 0), so that what is emitted follows p.

use super::cdf::BlockWeights;
use super::exchange::{Damaged, Reader, Writer};
use super::kept::KeptVisit;
use super::plan::Plan;
use super::race::Race;
use super::words::Words;
use crate::Draw;
use crate::cpu::block::{exponentials, weigh};
use crate::cpu::dot::add_tree;
use crate::cpu::philox::top_bits;
use crate::hash::uniform;
use crate::mass::{self, BLOCK, Block, EMPTY, SIXTEEN};
use crate::math::{self, exp};
use crate::row::{Draft, Proposal};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The verification of one row; its residual is gathered from the kept ids.
pub(crate) struct Verify<'r> {
    draft: &'r Draft<'r>,
    accept: u64,
    max: f32,
    weight: u64,
    /// e^(−δ).
    decay: f64,
    /// ΣR of each block, as the bits of an f64.
    sums: &'r Words,
    /// The greatest R, likewise; the bits of positive numbers are ordered as the numbers are.
    largest: AtomicU64,
    /// The race over ln R, for the Gumbel draw.
    race: Option<Race>,
}

impl<'r> Verify<'r> {
    /// A verification that keeps its sums in `words`.
    pub(crate) fn new(plan: &'r Plan<'r>, draft: &'r Draft<'r>, max: f32, weight: u64, words: &'r Words) -> Self {
        words.reset(0);
        let delta = match draft.proposal {
            Proposal::Distribution { delta, .. } | Proposal::OneHot { delta } => delta,
            Proposal::Coupled => 0.0,
        };
        Self {
            draft,
            accept: plan.accept,
            max,
            weight,
            decay: if delta < 700.0 { math::exp_f64(-delta) } else { 0.0 },
            sums: words,
            largest: AtomicU64::new(0),
            race: (plan.sampling.draw == Draw::Gumbel).then(|| Race::new(plan.residual)),
        }
    }

    /// p of an id of this weight.
    fn share(&self, weight: u64) -> f64 {
        weight as f64 / self.weight as f64
    }

    /// Whether the accept test passes for the draft `id` of target probability `target`.
    pub(crate) fn accepts(&self, id: u32, target: f64) -> bool {
        let drafted = match self.draft.proposal {
            Proposal::Distribution { logprobs, .. } => f64::from(exp(logprobs[id as usize])),
            Proposal::OneHot { .. } | Proposal::Coupled => 1.0,
        };
        target > 0.0 && uniform(self.accept) * drafted < target
    }

    /// max(1 − ΣR, 0): blocks are added in ascending order.
    pub(crate) fn accept_probability(&self) -> f64 {
        let residual: f64 = self.sums.iter().map(f64::from_bits).sum();
        (1.0 - residual).max(0.0)
    }

    /// The winner of the residual's race; None where it has no ids or the draw is the inverse CDF.
    pub(crate) fn winner(&self) -> Option<u32> {
        self.race.as_ref().filter(|_| self.largest() > 0.0).and_then(Race::winner)
    }

    /// What weighs the residual for the inverse CDF, in place of the sums; None where it has no ids or the draw is a race.
    pub(crate) fn weights(&self) -> Option<ResidualWeights<'_>> {
        let wanted = self.race.is_none() && self.largest() > 0.0;
        wanted.then(|| ResidualWeights { verify: self, blocks: BlockWeights::new(self.sums, self.max) })
    }

    fn largest(&self) -> f64 {
        f64::from_bits(self.largest.load(Relaxed))
    }

    /// R of the ids of a block; 0 where it is not positive.
    fn residual(&self, block: usize, x: &Block) -> [f64; BLOCK] {
        let (weights, draft) = (weigh(x, self.max), self.drafted(block));
        let mut residual = [0.0; BLOCK];
        for (i, rest) in residual.iter_mut().enumerate().filter(|(i, _)| x[*i] > f32::NEG_INFINITY) {
            *rest = (self.share(weights[i]) - f64::from(draft[i]) * self.decay).max(0.0);
        }
        residual
    }

    /// q of the ids of a block.
    fn drafted(&self, block: usize) -> Block {
        let first = block * BLOCK;
        match self.draft.proposal {
            Proposal::Distribution { logprobs, .. } => {
                let mut own = EMPTY;
                own.iter_mut().zip(&logprobs[first..]).for_each(|(own, d)| *own = *d);
                exponentials(&own)
            }
            Proposal::OneHot { .. } | Proposal::Coupled => {
                let token = usize::try_from(self.draft.token).ok();
                std::array::from_fn(|i| if token == Some(first + i) { 1.0 } else { 0.0 })
            }
        }
    }

    /// Races the ids of a block on ln R: only those with h / 2^16 < R · exp(−s) can reach the best score s.
    fn run(&self, race: &Race, block: usize, residual: &[f64; BLOCK]) {
        let bits = top_bits(race.hash(), block as u32);
        for (i, rest) in residual.iter().enumerate().filter(|(_, rest)| **rest > 0.0) {
            let bound = race.bound();
            // Below −88 the exponential would overflow; every id is run until the best score has left that depth.
            let reach = if bound > -88.0 { f64::from(exp(-bound)) * 1.001 * 65536.0 } else { f64::INFINITY };
            if f64::from(bits[i]) < rest * reach {
                race.run((block * BLOCK + i) as u32, math::ln(*rest));
            }
        }
    }
}

impl KeptVisit for Verify<'_> {
    fn needed(&self) -> bool {
        true
    }

    fn block(&self, block: usize, x: &Block) {
        let residual = self.residual(block, x);
        let largest = residual.iter().fold(0.0f64, |most, rest| most.max(*rest));
        if largest > 0.0 {
            self.sums.set(block, sum(&residual).to_bits());
            self.largest.fetch_max(largest.to_bits(), Relaxed);
            if let Some(race) = &self.race {
                self.run(race, block, &residual);
            }
        }
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        self.sums.write(ids, out);
        out.u64(self.largest.load(Relaxed));
        if let Some(race) = &self.race {
            race.write(out);
        }
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        self.sums.read(ids, from, is_probability)?;
        let largest = from.u64()?;
        if !is_probability(largest) {
            return Err(Damaged);
        }
        self.largest.fetch_max(largest, Relaxed);
        self.race.as_ref().map_or(Ok(()), |race| race.read(ids, from))
    }
}

/// Whether these are the bits of a probability, or of a sum that rounding made a little greater.
fn is_probability(bits: u64) -> bool {
    (0.0..=2.0).contains(&f64::from_bits(bits))
}

/// Sums a block by the tree of `mass`, in f64.
fn sum(residual: &[f64; BLOCK]) -> f64 {
    let (sixteens, _) = residual.as_chunks::<SIXTEEN>();
    let sixteen = |j: usize| add_tree(sixteens[j]);
    (sixteen(0) + sixteen(1)) + (sixteen(2) + sixteen(3))
}

/// The residual as integer weights ⌊R / max R · 2^43⌋.
pub(crate) struct ResidualWeights<'r> {
    verify: &'r Verify<'r>,
    pub blocks: BlockWeights<'r>,
}

impl ResidualWeights<'_> {
    /// The weight of each id of a block.
    pub(crate) fn of_ids(&self, block: usize, x: &Block) -> [u64; BLOCK] {
        let largest = self.verify.largest();
        // No R is above the largest, unless a shard has made that up.
        self.verify.residual(block, x).map(|rest| mass::units((rest / largest).min(1.0)))
    }
}

impl KeptVisit for ResidualWeights<'_> {
    fn needed(&self) -> bool {
        true
    }

    fn block(&self, block: usize, x: &Block) {
        self.blocks.set(block, &self.of_ids(block, x));
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        self.blocks.write(ids, out);
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        self.blocks.read(ids, from)
    }
}
