//! Where the filters cut.
//!
//! All filters cut the order of ids (x descending, then id ascending) at one place: top-p where the mass of the better
//! ids exceeds top_p · total, top-k at rank k, min-p where exp(x − M) falls below min_p. So the kept ids are those above
//! one cut, and a walk down the best ids, which the survey has listed, finds it.
//!
//! A row so flat that the list ends before the cut is searched by histograms: a pass splits the order below the list into
//! buckets and sums the number and the weight of the ids in each; the walk goes over whole buckets as long as the cut
//! cannot lie inside, and the next pass splits the bucket where it can. Once a bucket is small its ids are listed and the
//! walk goes on through them. The memory is bounded whatever the row, and every sum is one of integers.

use super::Tiles;
use super::kept::Kept;
use super::pass::{self, Visit};
use super::plan::{LISTED, Plan};
use super::survey::Surveyed;
use super::top::Top;
use crate::mass::{self, BLOCK, Block};
use crate::math::exp;
use crate::order::Ranked;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Buckets of a histogram, as a power of two.
const BUCKET_BITS: u32 = 10;

/// Finds the kept ids of every row, with further passes for the rows whose list ends before the cut.
pub(crate) fn settle(tiles: &dyn Tiles, tile: usize, rows: &[Surveyed]) -> Vec<Kept> {
    let mut walks: Vec<Walk> = rows.iter().map(Walk::new).collect();
    loop {
        let open = || walks.iter().filter(|walk| !walk.ended);
        let searches: Vec<Search> = open().map(Walk::search).collect();
        if searches.is_empty() {
            break;
        }
        pass::pass(tiles, tile, &searches);
        let found: Vec<Found> = searches.into_iter().map(Search::finish).collect();
        for (walk, found) in walks.iter_mut().filter(|walk| !walk.ended).zip(found) {
            walk.go_on(found);
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
    /// The ids at or above this were passed.
    passed: Ranked,
    /// Where the next ids are searched, and how many there are, as far as is known.
    range: Range<u64>,
    crowd: usize,
    ended: bool,
}

impl<'r> Walk<'r> {
    fn new(found: &'r Surveyed<'r>) -> Self {
        let sampling = &found.plan.sampling;
        let mut walk = Self {
            found,
            limit: if sampling.top_p < 1.0 { mass::limit(sampling.top_p, found.total) } else { u64::MAX },
            top_k: sampling.top_k.unwrap_or(usize::MAX),
            before: 0,
            rank: 0,
            passed: Ranked::FIRST,
            range: 0..u64::MAX,
            crowd: usize::MAX,
            ended: false,
        };
        if sampling.filters() {
            walk.go(&found.best);
            walk.search_below();
        } else {
            (walk.rank, walk.passed, walk.ended) = (found.present, Ranked::LAST, true);
        }
        walk
    }

    /// Goes down ids that follow each other.
    fn go(&mut self, ids: &[Ranked]) {
        for ranked in ids {
            if self.before > self.limit || self.rank >= self.top_k || self.below_min_p(*ranked) {
                self.ended = true;
                return;
            }
            self.step(mass::weight(ranked.x(), self.found.max), 1, *ranked);
        }
    }

    fn step(&mut self, weight: u64, count: usize, passed: Ranked) {
        self.before += weight;
        self.rank += count;
        self.passed = passed;
        self.ended = self.rank == self.found.present || self.rank >= self.top_k;
    }

    fn below_min_p(&self, ranked: Ranked) -> bool {
        exp(ranked.x() - self.found.max) < self.found.plan.sampling.min_p
    }

    fn search_below(&mut self) {
        self.range = Ranked::new(f32::NEG_INFINITY, 0).0..self.passed.0;
        self.crowd = usize::MAX;
    }

    fn search(&self) -> Search<'r> {
        let (plan, range) = (self.found.plan, self.range.clone());
        let means = if self.crowd <= LISTED { Means::list(&range) } else { Means::histogram(self.found.max, &range) };
        Search { plan, range, means }
    }

    fn go_on(&mut self, found: Found) {
        let bottom = Ranked(self.range.start);
        match found {
            Found::Ids(ids) => self.go(&ids),
            Found::Buckets(buckets) => {
                if let Some(inside) = self.over_buckets(&buckets) {
                    (self.range, self.crowd) = (inside.range.clone(), inside.count);
                    return;
                }
            }
        }
        if !self.ended {
            self.passed = bottom;
            self.search_below();
        }
    }

    /// Goes over the buckets in which the cut cannot lie; returns the first in which it can.
    fn over_buckets<'b>(&mut self, buckets: &'b [Bucket]) -> Option<&'b Bucket> {
        for bucket in buckets.iter().filter(|bucket| bucket.count > 0) {
            let bottom = Ranked(bucket.range.start);
            let may_cut = self.before + bucket.weight > self.limit
                || self.rank + bucket.count > self.top_k
                || self.below_min_p(bottom);
            if may_cut {
                return Some(bucket);
            }
            self.step(bucket.weight, bucket.count, bottom);
        }
        None
    }

    fn finish(self) -> Kept {
        let removed = self.rank < self.found.present;
        let listed = self.found.best.get(..self.rank).map(|kept| {
            let mut kept = kept.to_vec();
            kept.sort_unstable_by_key(|ranked| ranked.id());
            kept
        });
        let weight = if removed { self.before } else { self.found.total };
        Kept { count: self.rank, removed, cut: self.passed, weight, listed }
    }
}

/// A pass over the ids of one range of the order.
struct Search<'r> {
    plan: &'r Plan<'r>,
    range: Range<u64>,
    means: Means,
}

/// How a range is searched: few ids are listed, many are counted.
enum Means {
    List(Mutex<Top>),
    Histogram { max: f32, shift: u32, weights: Vec<AtomicU64>, counts: Vec<AtomicU32> },
}

/// What a search brings: ids, best first, or buckets, best first.
enum Found {
    Ids(Vec<Ranked>),
    Buckets(Vec<Bucket>),
}

/// The ids of a part of a range.
struct Bucket {
    range: Range<u64>,
    weight: u64,
    count: usize,
}

impl Means {
    fn list(range: &Range<u64>) -> Self {
        Self::List(Mutex::new(Top::new(LISTED, Ranked(range.end))))
    }

    fn histogram(max: f32, range: &Range<u64>) -> Self {
        let bits = u64::BITS - (range.end - range.start).leading_zeros();
        Self::Histogram {
            max,
            shift: bits.saturating_sub(BUCKET_BITS),
            weights: (0..1 << BUCKET_BITS).map(|_| AtomicU64::new(0)).collect(),
            counts: (0..1 << BUCKET_BITS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Search<'_> {
    fn finish(self) -> Found {
        match self.means {
            Means::List(top) => {
                let mut ids = top.into_inner().expect("no thread panicked").sorted();
                ids.retain(|ranked| ranked.0 >= self.range.start);
                Found::Ids(ids)
            }
            Means::Histogram { shift, weights, counts, .. } => {
                let Range { start, end } = self.range;
                let bucket = |(i, (weight, count)): (u64, (AtomicU64, AtomicU32))| {
                    let start = start.saturating_add(i << shift);
                    let range = start..start.saturating_add(1 << shift).min(end);
                    Bucket { range, weight: weight.into_inner(), count: count.into_inner() as usize }
                };
                let mut buckets: Vec<Bucket> = (0..).zip(weights.into_iter().zip(counts)).map(bucket).collect();
                buckets.reverse();
                Found::Buckets(buckets)
            }
        }
    }
}

impl Visit for Search<'_> {
    type Local = Option<Top>;

    fn row(&self) -> usize {
        self.plan.row
    }

    fn valid(&self) -> usize {
        self.plan.valid
    }

    fn local(&self) -> Self::Local {
        matches!(self.means, Means::List(_)).then(|| Top::new(LISTED, Ranked(self.range.end)))
    }

    fn block(&self, local: &mut Self::Local, block: usize, logits: &Block) {
        let x = logits.map(|l| l * self.plan.sampling.inverse_temperature);
        let first = (block * BLOCK) as u32;
        if let Some(top) = local {
            top.offer(first, &x);
        }
        if let Means::Histogram { max, shift, weights, counts } = &self.means {
            for (&x, id) in x.iter().zip(first..) {
                let ranked = Ranked::new(x, id);
                if x > f32::NEG_INFINITY && self.range.contains(&ranked.0) {
                    let bucket = ((ranked.0 - self.range.start) >> shift) as usize;
                    weights[bucket].fetch_add(mass::weight(x, *max), Relaxed);
                    counts[bucket].fetch_add(1, Relaxed);
                }
            }
        }
    }

    fn merge(&self, local: Self::Local) {
        if let (Means::List(all), Some(top)) = (&self.means, local) {
            all.lock().expect("no thread panicked").merge(top);
        }
    }
}
