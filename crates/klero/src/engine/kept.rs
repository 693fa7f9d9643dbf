//! The kept ids of a row, and how they are looked at: from the list of the best, or by a pass.

use super::pass::Visit;
use super::plan::Plan;
use crate::mass::{BLOCK, Block, EMPTY};
use crate::order::Ranked;

/// The ids that the filters left.
pub(crate) struct Kept {
    pub count: usize,
    /// Whether some id was removed.
    pub removed: bool,
    /// Where the filters cut: the ids at or above it are kept.
    pub cut: Ranked,
    /// W: the weight of the ids drawn from. Their single weights where some id was removed, else the mass of the row.
    pub weight: u64,
    /// The kept ids in vocabulary order, where the survey listed them all.
    pub listed: Option<Vec<Ranked>>,
}

impl Kept {
    /// Whether the id is kept.
    pub(crate) fn holds(&self, x: f32, id: u32) -> bool {
        x > f32::NEG_INFINITY && Ranked::new(x, id) >= self.cut
    }
}

/// What looks at the kept ids of a row: blocks of x, −∞ where an id is not kept.
pub(crate) trait KeptVisit: Sync {
    /// Whether there is anything to look for.
    fn needed(&self) -> bool;
    /// Looks at one block. Blocks without a kept id may be left out.
    fn block(&self, block: usize, x: &Block);
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
}

/// x of the kept ids of a block of logits.
pub(crate) fn kept_of(plan: &Plan, cut: Ranked, block: usize, logits: &Block) -> Block {
    let mut x = logits.map(|l| l * plan.sampling.inverse_temperature);
    for (i, x) in x.iter_mut().enumerate() {
        if Ranked::new(*x, (block * BLOCK + i) as u32) < cut {
            *x = f32::NEG_INFINITY;
        }
    }
    x
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
pub(crate) struct KeptPass<'r, V> {
    pub plan: &'r Plan<'r>,
    pub cut: Ranked,
    pub visitor: &'r V,
}

impl<V: KeptVisit> Visit for KeptPass<'_, V> {
    type Local = ();

    fn row(&self) -> usize {
        self.plan.row
    }

    fn valid(&self) -> usize {
        self.plan.valid
    }

    fn local(&self) {}

    fn block(&self, (): &mut (), block: usize, logits: &Block) {
        self.visitor.block(block, &kept_of(self.plan, self.cut, block, logits));
    }

    fn merge(&self, (): ()) {}
}
