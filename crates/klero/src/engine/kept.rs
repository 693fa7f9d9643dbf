//! Which ids the filters keep.
//!
//! All filters cut the order of ids (x descending, then id ascending) at one place: top-p where the mass of the better
//! ids exceeds top_p · total, top-k at rank k, min-p where exp(x − M) falls below min_p. So the kept ids are those up to
//! one last id, and a walk down the best ids finds it.

use super::Tiles;
use super::pass::{self, Visit};
use super::plan::Plan;
use super::survey::Surveyed;
use super::top::Top;
use crate::mass::{self, BLOCK, Block, EMPTY};
use crate::math::exp;
use crate::order::Ranked;
use std::sync::Mutex;

/// Ids that one further pass brings.
const SLAB: usize = 1 << 15;

/// The ids that the filters left.
pub(crate) struct Kept {
    pub count: usize,
    /// Whether some id was removed.
    pub removed: bool,
    /// The last id kept, in the order of ids.
    pub last: Ranked,
    /// W: the weight of the ids drawn from. Their single weights where some id was removed, else the mass of the row.
    pub weight: u64,
    /// The kept ids in vocabulary order, where the survey listed them all.
    pub listed: Option<Vec<Ranked>>,
}

impl Kept {
    /// Whether the id is kept.
    pub(crate) fn holds(&self, x: f32, id: u32) -> bool {
        x > f32::NEG_INFINITY && Ranked::new(x, id) >= self.last
    }
}

/// Finds the kept ids of every row, with further passes for the rows whose list ends before the cut.
pub(crate) fn settle(tiles: &dyn Tiles, tile: usize, rows: &[Surveyed]) -> Vec<Kept> {
    let mut walks: Vec<Walk> = rows.iter().map(Walk::new).collect();
    loop {
        let slabs: Vec<Slab> = walks.iter().filter(|walk| !walk.ended).map(Walk::next_slab).collect();
        if slabs.is_empty() {
            break;
        }
        pass::pass(tiles, tile, &slabs);
        let brought: Vec<Vec<Ranked>> = slabs.into_iter().map(Slab::finish).collect();
        for (walk, ids) in walks.iter_mut().filter(|walk| !walk.ended).zip(brought) {
            walk.go(&ids);
        }
    }
    walks.into_iter().map(Walk::finish).collect()
}

/// The walk down a row's order of ids.
struct Walk<'r> {
    found: &'r Surveyed<'r>,
    /// The greatest mass that may stand before a kept id.
    limit: u64,
    top_k: usize,
    /// The weight of the ids passed, and their number.
    before: u64,
    rank: usize,
    last: Ranked,
    ended: bool,
}

impl<'r> Walk<'r> {
    fn new(found: &'r Surveyed<'r>) -> Self {
        let sampling = &found.plan.sampling;
        let limit = if sampling.top_p < 1.0 { mass::limit(sampling.top_p, found.total) } else { u64::MAX };
        let top_k = sampling.top_k.unwrap_or(usize::MAX);
        let mut walk = Self { found, limit, top_k, before: 0, rank: 0, last: Ranked::FIRST, ended: false };
        if sampling.filters() {
            walk.go(&found.best);
        } else {
            walk.rank = found.present;
            walk.last = Ranked::LAST;
            walk.ended = true;
        }
        walk
    }

    fn go(&mut self, ids: &[Ranked]) {
        let (max, min_p) = (self.found.max, self.found.plan.sampling.min_p);
        for ranked in ids {
            let cut = self.before > self.limit || self.rank >= self.top_k || exp(ranked.x() - max) < min_p;
            if cut {
                self.ended = true;
                return;
            }
            self.before += mass::weight(ranked.x(), max);
            self.rank += 1;
            self.last = *ranked;
        }
        self.ended = self.rank == self.found.present || self.rank >= self.top_k;
    }

    fn next_slab(&self) -> Slab<'r> {
        Slab { plan: self.found.plan, ceiling: self.last, top: Mutex::new(Top::new(SLAB, self.last)) }
    }

    fn finish(self) -> Kept {
        let removed = self.rank < self.found.present;
        let listed = self.found.best.get(..self.rank).map(|kept| {
            let mut kept = kept.to_vec();
            kept.sort_unstable_by_key(|ranked| ranked.id());
            kept
        });
        let weight = if removed { self.before } else { self.found.total };
        Kept { count: self.rank, removed, last: self.last, weight, listed }
    }
}

/// A pass that lists the next best ids.
struct Slab<'r> {
    plan: &'r Plan<'r>,
    ceiling: Ranked,
    top: Mutex<Top>,
}

impl Slab<'_> {
    fn finish(self) -> Vec<Ranked> {
        self.top.into_inner().expect("no thread panicked").sorted()
    }
}

impl Visit for Slab<'_> {
    type Local = Top;

    fn row(&self) -> usize {
        self.plan.row
    }

    fn valid(&self) -> usize {
        self.plan.valid
    }

    fn local(&self) -> Top {
        Top::new(SLAB, self.ceiling)
    }

    fn block(&self, top: &mut Top, block: usize, logits: &Block) {
        let x = logits.map(|l| l * self.plan.sampling.inverse_temperature);
        top.offer((block * BLOCK) as u32, &x);
    }

    fn merge(&self, top: Top) {
        self.top.lock().expect("no thread panicked").merge(top);
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
pub(crate) fn kept_of(plan: &Plan, last: Ranked, block: usize, logits: &Block) -> Block {
    let mut x = logits.map(|l| l * plan.sampling.inverse_temperature);
    for (i, x) in x.iter_mut().enumerate() {
        if Ranked::new(*x, (block * BLOCK + i) as u32) < last {
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
    pub last: Ranked,
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
        self.visitor.block(block, &kept_of(self.plan, self.last, block, logits));
    }

    fn merge(&self, (): ()) {}
}
