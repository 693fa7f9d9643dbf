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
use super::exchange::{Damaged, Exchange, Reader, Writer};
use super::kept::Kept;
use super::pass::{self, Visit};
use super::plan::{LISTED, Plan};
use super::survey::Surveyed;
use super::top::Top;
use crate::cpu::block::{Chosen, ones, weigh};
use crate::mass::{self, BLOCK, Block, EMPTY};
use crate::math::{exp, ln};
use crate::order::{Place, Ranked};
use crate::{Error, FilterOrder};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The bits of a place below those of its depth.
const DEPTH_SHIFT: u32 = 64;

/// Buckets of a histogram, as a power of two.
const BUCKET_BITS: u32 = 9;

/// Rows that one pass searches at most: every thread holds a histogram for each.
const TOGETHER: usize = 4;

/// Ids of a histogram that are kept at hand where there are few rows, so that no further pass looks for them.
const AT_HAND: usize = 1 << 15;

/// Ids that are put into order at once.
const SORTED: usize = 4 * LISTED;

/// Below this depth an id weighs nothing (exp(−32) · 2^43 < 1), so top-p cuts above it, if at all.
const WEIGHTLESS: f32 = 32.0;

/// Finds the kept ids of every row, with further passes for the rows whose list ends before the cut.
pub(crate) async fn settle(call: &Call<'_>, rows: &[Surveyed<'_>]) -> Result<Vec<Kept>, Error> {
    let alone = matches!(call.exchange, Exchange::Alone);
    let mut walks: Vec<Walk> = rows.iter().map(|found| Walk::new(found, alone)).collect();
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
    /// All ids behind the list and before `gathered`, where they are few.
    at_hand: Option<Vec<Ranked>>,
    gathered: Place,
    ended: bool,
}

impl<'r> Walk<'r> {
    /// A walk down the list. If all ids are `alone` in this process, those behind the list may be kept at hand.
    fn new(found: &'r Surveyed<'r>, alone: bool) -> Self {
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
            at_hand: (alone && found.plan.most_listed > LISTED).then(Vec::new),
            gathered: Place::FIRST,
            ended: false,
        };
        if sampling.filters() {
            walk.go(&found.best);
            // With room left on the list, all that min-p may keep are on it.
            walk.ended |= sampling.min_p > 0.0 && found.best.len() < found.plan.listed();
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
            let ends = [self.tail(), Place::at_depth(WEIGHTLESS), Place::END];
            let end = ends.into_iter().find(|end| self.passed < *end).unwrap_or(Place::END);
            (self.range, self.crowd) = (self.passed..end, usize::MAX);
        }
    }

    /// Top-p cuts before this place, but for rare roundings: if all ids behind it were at its depth, they would still hold only
    /// half of what top-p cuts off.
    fn tail(&self) -> Place {
        let rest = mass::value(self.found.total.saturating_sub(self.limit));
        let weight = rest / 2.0 / self.found.present.max(1) as f64;
        Place::at_depth((-ln(weight) as f32).clamp(0.0, WEIGHTLESS))
    }

    /// Goes down ids that follow each other.
    fn go(&mut self, ids: &[Ranked]) {
        for ids in ids.chunks(BLOCK) {
            let mut x = EMPTY;
            x.iter_mut().zip(ids).for_each(|(x, ranked)| *x = ranked.x());
            for (ranked, weight) in ids.iter().zip(weigh(&x, self.found.max)) {
                let place = Place::of(*ranked, self.found.max);
                self.ended |= self.before > self.limit || self.rank >= self.top_k || self.below_min_p(place);
                if self.ended {
                    return;
                }
                self.step(weight, 1, Place(place.0 + 1));
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
        self.min_p > 0.0 && exp(-place.depth()) < self.min_p
    }

    fn search(&self) -> Search<'r> {
        let range = self.range.clone();
        let length = range.end.0 - range.start.0;
        let listed = self.crowd <= LISTED || length <= LISTED as u128;
        let at_hand = if self.at_hand.is_some() && range.start >= self.gathered { AT_HAND } else { 0 };
        let buckets = Buckets::of(&range);
        let all = Mutex::new(Gathered::new(listed, at_hand));
        Search { plan: self.found.plan, max: self.found.max, range, buckets, listed, at_hand, all }
    }

    fn go_on(&mut self, found: Found) {
        match found {
            Found::Ids(ids) => {
                self.at_hand = None;
                self.go(&ids);
            }
            Found::Buckets(buckets, ids) => {
                self.keep_at_hand(ids);
                if let Some(inside) = self.over_buckets(&buckets) {
                    (self.range, self.crowd) = (inside.range.clone(), inside.count);
                    let Some(ids) = self.ids_at_hand() else { return };
                    self.go(&ids);
                }
            }
        }
        if !self.ended {
            self.passed = self.range.end;
        }
        self.settle();
    }

    /// Adds the ids of a range behind those at hand; without them there are none at hand.
    fn keep_at_hand(&mut self, ids: Option<Vec<Ranked>>) {
        if self.range.start >= self.gathered {
            self.gathered = self.range.end;
            self.at_hand = match (self.at_hand.take(), ids) {
                (Some(mut all), Some(ids)) => {
                    all.extend(ids);
                    Some(all)
                }
                _ => None,
            };
        }
    }

    /// The ids of the range, best first, if they are at hand and not too many.
    fn ids_at_hand(&self) -> Option<Vec<Ranked>> {
        let all = self.at_hand.as_ref().filter(|_| self.crowd <= SORTED)?;
        let inside = |ranked: &&Ranked| self.range.contains(&Place::of(**ranked, self.found.max));
        let mut ids: Vec<Ranked> = all.iter().filter(inside).copied().collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Some(ids)
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
        let (removed, listed) = (self.rank < found.present, self.kept_in_vocabulary_order());
        let weight = if removed { self.before } else { found.total };
        Kept { count: self.rank, removed, end: self.passed, max: found.max, weight, listed }
    }

    /// The kept ids, if they are on the list or at hand.
    fn kept_in_vocabulary_order(&self) -> Option<Vec<Ranked>> {
        let best = &self.found.best;
        let mut kept = match (best.get(..self.rank), &self.at_hand) {
            (Some(kept), _) => kept.to_vec(),
            (None, Some(at_hand)) => {
                let kept = |ranked: &&Ranked| Place::of(**ranked, self.found.max) < self.passed;
                at_hand.iter().filter(kept).chain(best).copied().collect()
            }
            (None, None) => return None,
        };
        // Those at hand come in long runs, which this sort keeps.
        kept.sort_by_key(|ranked| ranked.id());
        (kept.len() == self.rank).then_some(kept)
    }
}

/// How a range of places is cut into parts of one width.
struct Buckets {
    /// Where the first begins.
    origin: Place,
    /// Their width, as a power of two.
    shift: u32,
}

impl Buckets {
    fn of(range: &Range<Place>) -> Self {
        let shift = |origin: Place| {
            let length = range.end.0 - origin.0;
            (u128::BITS - length.leading_zeros()).saturating_sub(BUCKET_BITS)
        };
        let whole = Place::at_depth(range.start.depth());
        match shift(range.start) < DEPTH_SHIFT {
            true => Self { origin: range.start, shift: shift(range.start) },
            // Wide ones begin at a depth, so that the depth alone tells the bucket.
            false => Self { origin: whole, shift: shift(whole) },
        }
    }

    #[inline(always)]
    fn index(&self, ranked: Ranked, max: f32) -> usize {
        match self.shift.checked_sub(DEPTH_SHIFT) {
            Some(shift) => ((((max - ranked.x()) + 0.0).to_bits() - self.origin.depth().to_bits()) >> shift) as usize,
            None => ((Place::of(ranked, max).0 - self.origin.0) >> self.shift) as usize,
        }
    }

    fn range(&self, index: usize) -> Range<Place> {
        let (from, width) = (self.origin.0 + ((index as u128) << self.shift), 1 << self.shift);
        Place(from)..Place(from.saturating_add(width))
    }
}

/// A pass over the ids of one range of the order: few are listed, many are counted.
struct Search<'r> {
    plan: &'r Plan<'r>,
    max: f32,
    range: Range<Place>,
    buckets: Buckets,
    listed: bool,
    /// Ids that are kept at hand, if there are no more.
    at_hand: usize,
    all: Mutex<Gathered>,
}

/// What is gathered of a range, by one thread or by all.
enum Gathered {
    Ids(Top),
    /// The weight and the number of the ids of each bucket, and the ids themselves as long as they are few.
    Sums(Vec<(u64, usize)>, Option<Vec<Ranked>>),
}

impl Gathered {
    fn new(listed: bool, at_hand: usize) -> Self {
        match listed {
            true => Self::Ids(Top::new(LISTED)),
            false => Self::Sums(vec![(0, 0); 1 << BUCKET_BITS], (at_hand > 0).then(Vec::new)),
        }
    }

    fn merge(&mut self, other: Self, at_hand: usize) {
        match (self, other) {
            (Self::Ids(all), Self::Ids(own)) => all.merge(own),
            (Self::Sums(all, ids), Self::Sums(own, own_ids)) => {
                for (all, own) in all.iter_mut().zip(own) {
                    *all = (all.0 + own.0, all.1 + own.1);
                }
                *ids = ids.take().zip(own_ids).map(|(all, own)| if all.is_empty() { own } else { [all, own].concat() });
                ids.take_if(|ids| ids.len() > at_hand);
            }
            _ => unreachable!("all threads gather the same"),
        }
    }
}

/// What a search brings: ids, best first, or buckets, best first, and perhaps the ids in them.
enum Found {
    Ids(Vec<Ranked>),
    Buckets(Vec<Bucket>, Option<Vec<Ranked>>),
}

/// The ids of a part of a range.
struct Bucket {
    range: Range<Place>,
    weight: u64,
    count: usize,
}

impl Search<'_> {
    fn finish(self) -> Found {
        match self.all.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Gathered::Ids(top) => Found::Ids(top.sorted()),
            Gathered::Sums(sums, ids) => {
                let bucket = |(i, (weight, count))| {
                    let Range { start, end } = self.buckets.range(i);
                    Bucket { range: start.max(self.range.start)..end.min(self.range.end), weight, count }
                };
                let filled = sums.into_iter().enumerate().filter(|(_, (_, count))| *count > 0);
                Found::Buckets(filled.map(bucket).collect(), ids)
            }
        }
    }

    fn add(&self, gathered: Gathered) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).merge(gathered, self.at_hand);
    }

    /// What is gathered so far, in numbers: ids, or of each filled bucket its index, weight and count.
    fn numbers(&self) -> Vec<u64> {
        match &*self.all.lock().unwrap_or_else(PoisonError::into_inner) {
            Gathered::Ids(top) => top.clone().sorted().into_iter().map(|ranked| ranked.0).collect(),
            Gathered::Sums(sums, _) => {
                let filled = sums.iter().enumerate().filter(|(_, (_, count))| *count > 0);
                filled.flat_map(|(i, (weight, count))| [i as u64, *weight, *count as u64]).collect()
            }
        }
    }

    /// The gathering that these numbers stand for, if a shard with `ids` can have made it.
    fn gathering(&self, numbers: &[u64], ids: &Range<usize>) -> Option<Gathered> {
        let mut gathered = Gathered::new(self.listed, 0);
        match &mut gathered {
            Gathered::Ids(top) => {
                for ranked in numbers.iter().map(|key| Ranked(*key)) {
                    ranked.is_sound(ids).then(|| top.offer(ranked))?;
                }
            }
            Gathered::Sums(sums, _) => {
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
    type Local = (Gathered, Chosen);

    fn plan(&self) -> &Plan<'_> {
        self.plan
    }

    fn local(&self) -> (Gathered, Chosen) {
        (Gathered::new(self.listed, self.at_hand), Chosen::NONE)
    }

    fn block(&self, (gathered, chosen): &mut (Gathered, Chosen), block: usize, logits: &Block) {
        self.plan.choose(block, logits, self.max, self.range.clone(), chosen);
        let ids = ones(chosen.mask).map(|i| (i, Ranked::new(chosen.x[i], (block * BLOCK + i) as u32)));
        match gathered {
            Gathered::Ids(top) => ids.for_each(|(_, ranked)| top.offer(ranked)),
            Gathered::Sums(sums, at_hand) => {
                for (i, ranked) in ids {
                    let sum = &mut sums[self.buckets.index(ranked, self.max)];
                    *sum = (sum.0 + mass::units(f64::from(chosen.exponentials[i])), sum.1 + 1);
                    at_hand.iter_mut().for_each(|ids| ids.push(ranked));
                }
                at_hand.take_if(|ids| ids.len() > self.at_hand);
            }
        }
    }

    fn merge(&self, (gathered, _): (Gathered, Chosen)) {
        self.add(gathered);
    }

    fn write(&self, _: &Range<usize>, out: &mut Writer) {
        out.list(self.numbers().into_iter());
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        let numbers = from.list(3 << BUCKET_BITS)?;
        let gathered = self.gathering(&numbers, ids).ok_or(Damaged)?;
        self.add(gathered);
        Ok(())
    }
}
