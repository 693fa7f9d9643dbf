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
use crate::cpu::block::weigh;
use crate::mass::{self, BLOCK, Block};
use crate::math::exp;
use crate::order::Ranked;
use std::ops::Range;
use std::sync::Mutex;

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
        let range = self.range.clone();
        let bits = u64::BITS - (range.end - range.start).leading_zeros();
        let (shift, listed) = (bits.saturating_sub(BUCKET_BITS), self.crowd <= LISTED);
        let gathered = Mutex::new(Gathered::new(listed, &range));
        Search { plan: self.found.plan, max: self.found.max, range, shift, listed, gathered }
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

/// A pass over the ids of one range of the order: few are listed, many are counted.
struct Search<'r> {
    plan: &'r Plan<'r>,
    max: f32,
    range: Range<u64>,
    /// The width of a bucket, as a power of two.
    shift: u32,
    listed: bool,
    gathered: Mutex<Gathered>,
}

/// What is gathered of a range, by one thread or by all.
enum Gathered {
    Ids(Top),
    /// The weight and the number of the ids of each bucket.
    Sums(Vec<(u64, usize)>),
}

impl Gathered {
    fn new(listed: bool, range: &Range<u64>) -> Self {
        match listed {
            true => Self::Ids(Top::new(LISTED, Ranked(range.end))),
            false => Self::Sums(vec![(0, 0); 1 << BUCKET_BITS]),
        }
    }

    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Ids(all), Self::Ids(own)) => all.merge(own),
            (Self::Sums(all), Self::Sums(own)) => {
                for (all, own) in all.iter_mut().zip(own) {
                    *all = (all.0 + own.0, all.1 + own.1);
                }
            }
            _ => unreachable!("all threads gather the same"),
        }
    }
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

impl Search<'_> {
    fn finish(self) -> Found {
        let Range { start, end } = self.range;
        match self.gathered.into_inner().expect("no thread panicked") {
            Gathered::Ids(top) => {
                let mut ids = top.sorted();
                ids.retain(|ranked| ranked.0 >= start);
                Found::Ids(ids)
            }
            Gathered::Sums(sums) => {
                let bucket = |(i, (weight, count)): (u64, (u64, usize))| {
                    let start = start.saturating_add(i << self.shift);
                    Bucket { range: start..start.saturating_add(1 << self.shift).min(end), weight, count }
                };
                let mut buckets: Vec<Bucket> = (0..).zip(sums).map(bucket).collect();
                buckets.reverse();
                Found::Buckets(buckets)
            }
        }
    }
}

impl Visit for Search<'_> {
    type Local = Gathered;

    fn row(&self) -> usize {
        self.plan.row
    }

    fn valid(&self) -> usize {
        self.plan.valid
    }

    fn local(&self) -> Gathered {
        Gathered::new(self.listed, &self.range)
    }

    fn block(&self, gathered: &mut Gathered, block: usize, logits: &Block) {
        let x = logits.map(|l| l * self.plan.sampling.inverse_temperature);
        let first = (block * BLOCK) as u32;
        match gathered {
            Gathered::Ids(top) => top.offer(first, &x),
            Gathered::Sums(sums) => {
                for ((&x, weight), id) in x.iter().zip(weigh(&x, self.max)).zip(first..) {
                    let ranked = Ranked::new(x, id);
                    if x > f32::NEG_INFINITY && self.range.contains(&ranked.0) {
                        let sum = &mut sums[((ranked.0 - self.range.start) >> self.shift) as usize];
                        *sum = (sum.0 + weight, sum.1 + 1);
                    }
                }
            }
        }
    }

    fn merge(&self, gathered: Gathered) {
        self.gathered.lock().expect("no thread panicked").merge(gathered);
    }
}
