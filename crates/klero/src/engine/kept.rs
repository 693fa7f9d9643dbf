//! The kept ids of a row, and how they are looked at: from the list of the best, or by a pass.

use super::Call;
use super::exchange::{Damaged, Reader, Writer};
use super::pass::{self, Visit};
use super::plan::Plan;
use super::survey::Surveyed;
use crate::Error;
use crate::cpu::block::Chosen;
use crate::mass::{BLOCK, Block, EMPTY};
use crate::order::{Place, Ranked};
use std::ops::Range;

/// The ids that the filters left.
pub(crate) struct Kept {
    pub count: usize,
    /// Whether some id was removed.
    pub removed: bool,
    /// Where the filters cut: the ids before it are kept.
    pub end: Place,
    /// The row's greatest x, which places refer to.
    pub max: f32,
    /// W: the weight of the ids drawn from. Their single weights where some id was removed, else the mass of the row.
    pub weight: u64,
    /// The kept ids in vocabulary order, where the survey listed them all.
    pub listed: Option<Vec<Ranked>>,
}

impl Kept {
    /// Whether the id is kept.
    pub(crate) fn holds(&self, x: f32, id: u32) -> bool {
        x > f32::NEG_INFINITY && self.end.is_behind(x, id, self.max)
    }

    /// x of the kept ids of a block of logits.
    pub(crate) fn x(&self, plan: &Plan, block: usize, logits: &Block) -> Block {
        let mut chosen = Chosen::NONE;
        self.choose(plan, block, logits, &mut chosen);
        chosen.alone()
    }

    /// Chooses the kept ids of a block of logits.
    fn choose(&self, plan: &Plan, block: usize, logits: &Block, chosen: &mut Chosen) {
        let end = if self.removed { self.end } else { Place::END };
        plan.choose(block, logits, self.max, Place::FIRST..end, chosen);
    }
}

/// What looks at the kept ids of a row: blocks of x, −∞ where an id is not kept.
pub(crate) trait KeptVisit: Sync {
    /// Whether there is anything to look for.
    fn needed(&self) -> bool;
    /// Looks at one block. Blocks without a kept id may be left out.
    fn block(&self, block: usize, x: &Block);
    /// Looks at the kept ids of one block of a row whose greatest x is `max`.
    fn chosen(&self, block: usize, chosen: &Chosen, _max: f32) {
        self.block(block, &chosen.alone());
    }
    /// Looks at all kept ids, in vocabulary order, of a row whose greatest x is `max`.
    fn listed(&self, ids: &[Ranked], _max: f32) {
        listed_blocks(ids, |block, x| self.block(block, x));
    }
    /// As [`Visit::write`].
    fn write(&self, ids: &Range<usize>, out: &mut Writer);
    /// As [`Visit::read`].
    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged>;
}

impl<V: KeptVisit> KeptVisit for Option<V> {
    fn needed(&self) -> bool {
        self.as_ref().is_some_and(V::needed)
    }

    fn block(&self, block: usize, x: &Block) {
        if let Some(visitor) = self {
            visitor.block(block, x);
        }
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        if let Some(visitor) = self {
            visitor.write(ids, out);
        }
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        self.as_ref().map_or(Ok(()), |visitor| visitor.read(ids, from))
    }
}

/// Shows every row's kept ids to its visitor: from the list where all of them are on it, by a pass for the rest.
pub(crate) async fn visit<V: KeptVisit>(
    call: &Call<'_>,
    found: &[Surveyed<'_>],
    kept: &[Kept],
    visitors: &[V],
) -> Result<(), Error> {
    let mut passes = Vec::new();
    for ((found, kept), visitor) in found.iter().zip(kept).zip(visitors) {
        if !visitor.needed() {
            continue;
        }
        match &kept.listed {
            Some(listed) => visitor.listed(listed, kept.max),
            None => passes.push(KeptPass { plan: found.plan, kept, visitor }),
        }
    }
    pass::pass(call, &passes).await
}

/// Shows the blocks that hold `ids`, which are in vocabulary order.
pub(crate) fn listed_blocks(ids: &[Ranked], mut show: impl FnMut(usize, &Block)) {
    for group in ids.chunk_by(|a, b| a.id() as usize / BLOCK == b.id() as usize / BLOCK) {
        let mut x = EMPTY;
        for ranked in group {
            x[ranked.id() as usize % BLOCK] = ranked.x();
        }
        show(group[0].id() as usize / BLOCK, &x);
    }
}

/// A pass that shows a row's kept ids to a visitor.
struct KeptPass<'r, V> {
    plan: &'r Plan<'r>,
    kept: &'r Kept,
    visitor: &'r V,
}

impl<V: KeptVisit> Visit for KeptPass<'_, V> {
    type Local = Chosen;

    fn plan(&self) -> &Plan<'_> {
        self.plan
    }

    fn local(&self) -> Chosen {
        Chosen::NONE
    }

    fn block(&self, chosen: &mut Chosen, block: usize, logits: &Block) {
        self.kept.choose(self.plan, block, logits, chosen);
        if chosen.mask != 0 {
            self.visitor.chosen(block, chosen, self.kept.max);
        }
    }

    fn merge(&self, _: Chosen) {}

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        self.visitor.write(ids, out);
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        self.visitor.read(ids, from)
    }
}
