//! Where the filters cut.
//!
//! All filters cut the order of ids (x descending, then id ascending) at one place: top-p where the mass of the better
//! ids exceeds top_p · total, top-k at rank k, min-p where exp(x − M) falls below min_p. So the kept ids are those before
//! one place, and a walk down the best ids, which the survey has listed, finds it. The second order of filters takes two
//! walks: one for min-p and top-k, and one for top-p on the mass that the first went over.
//!
//! A row so flat that the list ends before the cut is searched by histograms: a pass splits the order below the list into
//! buckets and sums the number and the weight of the ids in each; the walk goes over whole buckets as long as the cut
//! cannot lie inside, and the next pass splits the bucket where it can. Once a bucket is small its ids are listed and the
//! walk goes on through them. The memory is bounded whatever the row, and every sum is one of integers.

use super::Call;
use super::exchange::{Damaged, Reader, Writer};
use super::kept::Kept;
use super::pass::{self, Visit};
use super::plan::{LISTED, Plan};
use super::survey::Surveyed;
use super::top::Top;
use crate::cpu::block::weigh;
use crate::mass::{self, BLOCK, Block};
use crate::math::exp;
use crate::order::{Place, Ranked};
use crate::{Error, FilterOrder};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Buckets of a histogram, as a power of two.
const BUCKET_BITS: u32 = 9;

/// Rows that one pass searches at most: every thread holds a histogram for each.
const TOGETHER: usize = 4;

/// Below this depth an id weighs nothing (exp(−32) · 2^43 < 1), so top-p cuts above it, if at all.
const WEIGHTLESS: f32 = 32.0;

/// Finds the kept ids of every row, with further passes for the rows whose list ends before the cut.
pub(crate) async fn settle(call: &Call<'_>, rows: &[Surveyed<'_>]) -> Result<Vec<Kept>, Error> {
    let mut walks: Vec<Walk> = rows.iter().map(Walk::new).collect();
    let mut open: Vec<&mut Walk> = walks.iter_mut().filter(|walk| !walk.ended).collect();
    while !open.is_empty() {
        for walks in open.chunks_mut(TOGETHER) {
            let searches: Vec<Search> = walks.iter().map(|walk| walk.search()).collect();
            pass::pass(call, &searches).await?;
            let found: Vec<Found> = searches.into_iter().map(Search::finish).collect();
            for (walk, found) in walks.iter_mut().zip(found) {
                walk.go_on(found);
            }
        }
        open.retain(|walk| !walk.ended);
    }
    Ok(walks.into_iter().map(Walk::finish).collect())
}

/// The walk down a row's order of ids.
struct Walk<'r> {
    found: &'r Surveyed<'r>,
    /// The greatest mass that may stand before a kept id.
    limit: u64,
    top_k: usize,
    min_p: f32,
    /// top_p of a second walk, on what this one leaves.
    then: Option<f32>,
    /// The weight of the ids passed, and their number.
    before: u64,
    rank: usize,
    /// The ids before this were passed.
    passed: Place,
    /// Where the next ids are searched, and how many there are, as far as is known.
    range: Range<Place>,
    crowd: usize,
    ended: bool,
}

impl<'r> Walk<'r> {
    fn new(found: &'r Surveyed<'r>) -> Self {
        let sampling = &found.plan.sampling;
        let top_p = Some(sampling.top_p).filter(|top_p| *top_p < 1.0);
        let (first, then) = match sampling.filter_order {
            FilterOrder::TopPFirst => (top_p, None),
            FilterOrder::MinPFirst => (None, top_p),
        };
        let mut walk = Self {
            found,
            limit: first.map_or(u64::MAX, |top_p| mass::limit(top_p, found.total)),
            top_k: sampling.top_k.unwrap_or(usize::MAX),
            min_p: sampling.min_p,
            then,
            before: 0,
            rank: 0,
            passed: Place::FIRST,
            range: Place::FIRST..Place::END,
            crowd: usize::MAX,
            ended: false,
        };
        if sampling.filters() {
            walk.go(&found.best);
            walk.settle();
        } else {
            (walk.rank, walk.passed, walk.ended) = (found.present, Place::END, true);
        }
        walk
    }

    /// After some steps: goes on to search where the cut is not found, and to the second walk, if there is one, where it
    /// is. That walk keeps no id behind the first cut, and the mass of those before it is its whole.
    fn settle(&mut self) {
        if self.ended
            && let Some(top_p) = self.then.take()
        {
            let total = if self.rank < self.found.present { self.before } else { self.found.total };
            (self.limit, self.top_k, self.min_p) = (mass::limit_below(top_p, total), self.rank, 0.0);
            (self.before, self.rank, self.passed, self.ended) = (0, 0, Place::FIRST, false);
            self.go(&self.found.best);
        }
        // Behind the last place there is nothing, whatever number of ids a shard has claimed.
        self.ended |= self.passed >= Place::END;
        if !self.ended {
            let weightless = Place::at_depth(WEIGHTLESS);
            let end = if self.passed < weightless { weightless } else { Place::END };
            (self.range, self.crowd) = (self.passed..end, usize::MAX);
        }
    }

    /// Goes down ids that follow each other.
    fn go(&mut self, ids: &[Ranked]) {
        for ranked in ids {
            let place = Place::of(*ranked, self.found.max);
            if self.before > self.limit || self.rank >= self.top_k || self.below_min_p(place) {
                self.ended = true;
                return;
            }
            self.step(mass::weight(ranked.x(), self.found.max), 1, Place(place.0 + 1));
            if self.ended {
                return;
            }
        }
    }

    fn step(&mut self, weight: u64, count: usize, passed: Place) {
        // Saturating for the sake of sums that a shard has made up; true ones end at 2^63.
        self.before = self.before.saturating_add(weight);
        self.rank = self.rank.saturating_add(count);
        self.passed = passed;
        self.ended = self.rank == self.found.present || self.rank >= self.top_k;
    }

    fn below_min_p(&self, place: Place) -> bool {
        exp(-place.depth()) < self.min_p
    }

    fn search(&self) -> Search<'r> {
        let range = self.range.clone();
        let length = range.end.0 - range.start.0;
        let bits = u128::BITS - length.leading_zeros();
        let (shift, listed) = (bits.saturating_sub(BUCKET_BITS), self.crowd <= LISTED || length <= LISTED as u128);
        let gathered = Mutex::new(Gathered::new(listed));
        Search { plan: self.found.plan, max: self.found.max, range, shift, listed, gathered }
    }

    fn go_on(&mut self, found: Found) {
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
            self.passed = self.range.end;
        }
        self.settle();
    }

    /// Goes over the buckets in which the cut cannot lie; returns the first in which it can.
    fn over_buckets<'b>(&mut self, buckets: &'b [Bucket]) -> Option<&'b Bucket> {
        for bucket in buckets {
            let last = Place(bucket.range.end.0 - 1);
            let may_cut = self.before.saturating_add(bucket.weight) > self.limit
                || self.rank.saturating_add(bucket.count) > self.top_k
                || self.below_min_p(last);
            if may_cut {
                return Some(bucket);
            }
            self.step(bucket.weight, bucket.count, bucket.range.end);
            if self.ended {
                break;
            }
        }
        None
    }

    fn finish(self) -> Kept {
        let found = self.found;
        let removed = self.rank < found.present;
        let listed = found.best.get(..self.rank).map(|kept| {
            let mut kept = kept.to_vec();
            kept.sort_unstable_by_key(|ranked| ranked.id());
            kept
        });
        let weight = if removed { self.before } else { found.total };
        Kept { count: self.rank, removed, end: self.passed, max: found.max, weight, listed }
    }
}

/// A pass over the ids of one range of the order: few are listed, many are counted.
struct Search<'r> {
    plan: &'r Plan<'r>,
    max: f32,
    range: Range<Place>,
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
    fn new(listed: bool) -> Self {
        match listed {
            true => Self::Ids(Top::new(LISTED)),
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
    range: Range<Place>,
    weight: u64,
    count: usize,
}

impl Search<'_> {
    fn finish(self) -> Found {
        match self.gathered.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Gathered::Ids(top) => Found::Ids(top.sorted()),
            Gathered::Sums(sums) => {
                let (start, end, width) = (self.range.start.0, self.range.end.0, 1u128 << self.shift);
                let bucket = |(i, (weight, count)): (usize, (u64, usize))| {
                    let from = start + i as u128 * width;
                    Bucket { range: Place(from)..Place(from.saturating_add(width).min(end)), weight, count }
                };
                let filled = sums.into_iter().enumerate().filter(|(_, (_, count))| *count > 0);
                Found::Buckets(filled.map(bucket).collect())
            }
        }
    }

    /// What is gathered so far, in numbers: ids, or of each filled bucket its index, weight and count.
    fn numbers(&self) -> Vec<u64> {
        match &*self.gathered.lock().unwrap_or_else(PoisonError::into_inner) {
            Gathered::Ids(top) => top.clone().sorted().into_iter().map(|ranked| ranked.0).collect(),
            Gathered::Sums(sums) => {
                let filled = sums.iter().enumerate().filter(|(_, (_, count))| *count > 0);
                filled.flat_map(|(i, (weight, count))| [i as u64, *weight, *count as u64]).collect()
            }
        }
    }

    /// The gathering that these numbers stand for, if a shard with `ids` can have made it.
    fn gathering(&self, numbers: &[u64], ids: &Range<usize>) -> Option<Gathered> {
        let mut gathered = Gathered::new(self.listed);
        match &mut gathered {
            Gathered::Ids(top) => {
                for ranked in numbers.iter().map(|key| Ranked(*key)) {
                    ranked.is_sound(ids).then(|| top.offer(ranked))?;
                }
            }
            Gathered::Sums(sums) => {
                let (triples, rest) = numbers.as_chunks::<3>();
                let mut left = if rest.is_empty() { ids.len() as u64 } else { 0 };
                for [i, weight, count] in triples {
                    left = left.checked_sub(*count)?;
                    let sum = (*weight <= count << 43).then_some((*weight, *count as usize))?;
                    *sums.get_mut(usize::try_from(*i).ok()?)? = sum;
                }
            }
        }
        Some(gathered)
    }
}

impl Visit for Search<'_> {
    type Local = Gathered;

    fn plan(&self) -> &Plan<'_> {
        self.plan
    }

    fn local(&self) -> Gathered {
        Gathered::new(self.listed)
    }

    fn block(&self, gathered: &mut Gathered, block: usize, logits: &Block) {
        let x = self.plan.x(block, logits);
        let Range { start, end } = self.range;
        // The depth alone rules out most ids.
        let near = |x: f32| (start.depth()..=end.depth()).contains(&(self.max - x)) && x > f32::NEG_INFINITY;
        if !x.iter().any(|x| near(*x)) {
            return;
        }
        let ids = x.iter().enumerate().filter(|(_, x)| near(**x));
        let places = ids.map(|(i, x)| (i, Ranked::new(*x, (block * BLOCK + i) as u32)));
        let inside = places
            .map(|(i, ranked)| (i, ranked, Place::of(ranked, self.max)))
            .filter(|(_, _, place)| (start..end).contains(place));
        match gathered {
            Gathered::Ids(top) => inside.for_each(|(_, ranked, _)| top.offer(ranked)),
            Gathered::Sums(sums) => {
                let weights = weigh(&x, self.max);
                for (i, _, place) in inside {
                    let sum = &mut sums[((place.0 - start.0) >> self.shift) as usize];
                    *sum = (sum.0 + weights[i], sum.1 + 1);
                }
            }
        }
    }

    fn merge(&self, gathered: Gathered) {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).merge(gathered);
    }

    fn write(&self, _: &Range<usize>, out: &mut Writer) {
        out.list(self.numbers().into_iter());
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        let numbers = from.list(3 << BUCKET_BITS)?;
        let gathered = self.gathering(&numbers, ids).ok_or(Damaged)?;
        self.merge(gathered);
        Ok(())
    }
}
