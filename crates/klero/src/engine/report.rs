//! What is reported of the kept ids beside the token: their list, and how sure the distribution is.
//!
//! With w the integer weights and W their total: the entropy is ln(W · 2^−43) + D/W, D the integer sum of
//! ⌊exp(x − M) · (M − x) · 2^43⌋; the largest probability is 2^43 / W; the smaller ones are the sum of the w of ids with a
//! smaller x than the token, over W.

use super::exchange::{Damaged, Reader, Writer};
use super::kept::KeptVisit;
use super::survey::Surveyed;
use super::words::Words;
use crate::cpu::block::{exponentials, weigh};
use crate::mass::{self, BLOCK, Block};
use crate::math::ln;
use crate::row::Confidence;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The report of one row.
pub(crate) struct Report {
    max: f32,
    token_x: f32,
    confidence: Option<Sums>,
    /// One bit for each id, set where it is kept; empty where nobody asks.
    kept: Words,
}

/// Integer sums over the kept ids.
#[derive(Default)]
struct Sums {
    spread: AtomicU64,
    smaller: AtomicU64,
}

impl Report {
    /// A report on a row whose token has the value `token_x`.
    pub(crate) fn new(found: &Surveyed, token_x: f32) -> Self {
        let sampling = &found.plan.sampling;
        let blocks = if sampling.kept_ids { found.plan.blocks() } else { 0 };
        Self {
            max: found.max,
            token_x,
            confidence: sampling.confidence.then(Sums::default),
            kept: Words::new(blocks, 0),
        }
    }

    /// The kept ids, in vocabulary order.
    pub(crate) fn kept_ids(&self) -> Option<Vec<u32>> {
        let ids = |(block, bits): (usize, u64)| {
            (0..BLOCK).filter(move |i| bits >> i & 1 == 1).map(move |i| (block * BLOCK + i) as u32)
        };
        (!self.kept.is_empty()).then(|| self.kept.iter().enumerate().flat_map(ids).collect())
    }

    /// How sure a distribution of total weight `weight` is.
    pub(crate) fn confidence(&self, weight: u64) -> Option<Confidence> {
        let share = |sum: &AtomicU64| sum.load(Relaxed) as f64 / weight as f64;
        self.confidence.as_ref().map(|sums| Confidence {
            entropy: ln(mass::value(weight)) + share(&sums.spread),
            largest: (1u64 << 43) as f64 / weight as f64,
            smaller: share(&sums.smaller),
        })
    }
}

impl Sums {
    fn add(&self, x: &Block, max: f32, token_x: f32) {
        let weights = weigh(x, max);
        let below = x.iter().zip(&weights).filter(|(x, _)| **x < token_x);
        self.smaller.fetch_add(below.map(|(_, weight)| weight).sum(), Relaxed);
        let depth = x.map(|x| x - max);
        let terms = exponentials(&depth).into_iter().zip(depth).filter(|(e, _)| *e > 0.0);
        self.spread.fetch_add(terms.map(|(e, d)| mass::units(f64::from(e) * -f64::from(d))).sum(), Relaxed);
    }
}

impl KeptVisit for Report {
    fn needed(&self) -> bool {
        self.confidence.is_some() || !self.kept.is_empty()
    }

    fn block(&self, block: usize, x: &Block) {
        if let Some(sums) = &self.confidence {
            sums.add(x, self.max, self.token_x);
        }
        if !self.kept.is_empty() {
            let present = x.iter().enumerate().filter(|(_, x)| **x > f32::NEG_INFINITY);
            self.kept.set(block, present.fold(0, |bits, (i, _)| bits | 1 << i));
        }
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        if let Some(sums) = &self.confidence {
            out.u64(sums.spread.load(Relaxed));
            out.u64(sums.smaller.load(Relaxed));
        }
        self.kept.write(ids, out);
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        if let Some(sums) = &self.confidence {
            for sum in [&sums.spread, &sums.smaller] {
                let part = Some(from.u64()?).filter(|part| *part <= (ids.len() as u64) << 43);
                sum.fetch_add(part.ok_or(Damaged)?, Relaxed);
            }
        }
        self.kept.read(ids, from, |_| true)
    }
}
