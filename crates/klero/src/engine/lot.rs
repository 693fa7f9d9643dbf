//! How a row's token is found among the kept ids.

use super::cdf::BlockWeights;
use super::exchange::{Damaged, Reader, Writer};
use super::kept::{Kept, KeptVisit, listed_blocks};
use super::race::Race;
use super::survey::Surveyed;
use super::verify::{ResidualWeights, Verify};
use crate::Draw;
use crate::cpu::block::Chosen;
use crate::mass::Block;
use crate::order::Ranked;
use std::ops::Range;

/// A row's lot.
pub(crate) enum Lot<'r> {
    /// The race was run in the survey; it has a winner, unless a shard sent none.
    Raced(Option<u32>),
    Race(Race),
    Cdf(BlockWeights<'r>),
    Verify(Verify<'r>),
}

impl<'r> Lot<'r> {
    pub(crate) fn new(found: &'r Surveyed<'r>, kept: &Kept) -> Self {
        let plan = found.plan;
        if let Some(draft) = plan.rejection() {
            return Self::Verify(Verify::new(plan, draft, found.max, kept.weight, &found.blocks));
        }
        match (plan.sampling.draw, kept.removed) {
            (Draw::Gumbel, _) => match found.winner {
                Some(winner) => Self::Raced(winner),
                None => Self::Race(Race::new(plan.fresh)),
            },
            (Draw::InverseCdf, false) => Self::Cdf(BlockWeights::of_masses(&found.blocks, found.max)),
            (Draw::InverseCdf, true) => Self::Cdf(BlockWeights::new(&found.blocks, found.max)),
        }
    }

    /// The probability with which a draft is accepted by rejection; 1 where there is none.
    pub(crate) fn accept_probability(&self) -> f64 {
        match self {
            Self::Verify(verify) => verify.accept_probability(),
            _ => 1.0,
        }
    }

    /// What weighs the residual of a verification for the inverse CDF.
    pub(crate) fn residual_weights(&self) -> Option<ResidualWeights<'_>> {
        match self {
            Self::Verify(verify) => verify.weights(),
            _ => None,
        }
    }
}

impl KeptVisit for Lot<'_> {
    fn needed(&self) -> bool {
        match self {
            Self::Raced(_) => false,
            Self::Race(_) | Self::Verify(_) => true,
            Self::Cdf(weights) => weights.needed(),
        }
    }

    fn block(&self, block: usize, x: &Block) {
        match self {
            Self::Raced(_) => {}
            Self::Race(race) => race.block(block, x),
            Self::Cdf(weights) => weights.block(block, x),
            Self::Verify(verify) => verify.block(block, x),
        }
    }

    fn chosen(&self, block: usize, chosen: &Chosen, max: f32) {
        match self {
            Self::Race(race) => race.chosen(block, chosen, max),
            _ => self.block(block, &chosen.alone()),
        }
    }

    fn listed(&self, ids: &[Ranked], max: f32) {
        match self {
            Self::Race(race) => race.listed(ids, max),
            _ => listed_blocks(ids, |block, x| self.block(block, x)),
        }
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        match self {
            Self::Raced(_) => {}
            Self::Race(race) => race.write(out),
            Self::Cdf(weights) => weights.write(ids, out),
            Self::Verify(verify) => verify.write(ids, out),
        }
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        match self {
            Self::Raced(_) => Ok(()),
            Self::Race(race) => race.read(ids, from),
            Self::Cdf(weights) => weights.read(ids, from),
            Self::Verify(verify) => verify.read(ids, from),
        }
    }
}
