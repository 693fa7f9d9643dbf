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

use super::exchange::{Damaged, Exchange, Reader, Writer};
use super::kept::Kept;
use super::pass::{self, Visit};
use super::plan::{LISTED, Plan};
use super::survey::Surveyed;
use super::top::Top;
use super::{Call, Tiles};
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
const AT_HAND: usize = 1 << 16;

/// Why all ids are never gathered from shards.
const ALONE: &str = "ids are kept at hand by a process that has all of them";

/// Blocks that are looked at to guess where the cut is.
const SAMPLED: usize = 64;

/// Below this depth an id weighs nothing (exp(−32) · 2^43 < 1), so top-p cuts above it, if at all.
const WEIGHTLESS: f32 = 32.0;

/// Finds the kept ids of every row, with further passes for the rows whose list ends before the cut.
pub(crate) async fn settle(call: &Call<'_>, rows: &[Surveyed<'_>]) -> Result<Vec<Kept>, Error> {
    let alone = matches!(call.exchange, Exchange::Alone);
    let mut walks: Vec<Walk> = rows.iter().map(|found| Walk::new(found, alone)).collect();
    let mut open: Vec<&mut Walk> = walks.iter_mut().filter(|walk| !walk.ended).collect();
    open.iter_mut().for_each(|walk| walk.guess(call.tiles));
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
    /// Whether ids may be kept at hand; and those passed behind the list, if they all are.
    may_gather: bool,
    at_hand: Option<Vec<Ranked>>,
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
        let may_gather = alone && found.plan.most_listed > LISTED;
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
            may_gather,
            at_hand: may_gather.then(Vec::new),
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
            self.at_hand = self.may_gather.then(Vec::new);
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

    /// Narrows the range that is searched first to where the cut seems to be, by the weight behind it in a sample of blocks. If it
    /// lies deeper, the search goes on.
    fn guess(&mut self, tiles: &dyn Tiles) {
        if !self.gathers() {
            return;
        }
        let (found, buckets) = (self.found, Buckets::of(&self.range));
        let (plan, max) = (found.plan, found.max);
        let step = plan.blocks().div_ceil(SAMPLED);
        let (mut sums, mut deeper) = (no_sums(), 0);
        for block in (0..plan.blocks()).step_by(step) {
            let mut logits = EMPTY;
            tiles.fill(&[plan.row], block * BLOCK..((block + 1) * BLOCK).min(plan.valid), &mut logits, BLOCK);
            let x = plan.x(block, &logits);
            for ((x, weight), id) in x.into_iter().zip(weigh(&x, max)).zip((block * BLOCK) as u32..) {
                match (self.passed.is_behind(x, id, max), self.range.end.is_behind(x, id, max)) {
                    (true, _) => {}
                    (false, true) => sums[buckets.index(Ranked::new(x, id), max)].0 += weight,
                    (false, false) => deeper += weight,
                }
            }
        }
        let rest = (found.total - self.limit) / step as u64 / 5 * 4;
        let cut = (0..sums.len()).rev().find(|i| {
            deeper += sums[*i].0;
            deeper > rest
        });
        if let Some(cut) = cut {
            self.range.end = buckets.range(cut).end.min(self.range.end);
        }
    }

    /// Whether all ids of a range are gathered, as long as they are few: where it is a mass that cuts.
    fn gathers(&self) -> bool {
        self.at_hand.is_some() && self.limit < self.found.total
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
        let gather = match self.crowd <= LISTED || length <= LISTED as u128 {
            true => Gather::Best,
            false if self.gathers() => Gather::All,
            false => Gather::Sums,
        };
        let (buckets, gathered) = (Buckets::of(&range), Mutex::new(Gathered::new(gather)));
        Search { plan: self.found.plan, max: self.found.max, range, buckets, gather, gathered }
    }

    fn go_on(&mut self, found: Found) {
        match found {
            // Too many: they are to be counted.
            Found::All(None) => {
                self.at_hand = None;
                return;
            }
            Found::All(Some(ids)) => self.go_through(ids),
            Found::Best(ids) => {
                self.at_hand = None;
                self.go(&ids);
            }
            Found::Buckets(buckets) => {
                self.at_hand = None;
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

    /// Goes over all ids of the range, as over buckets and then through the one where the cut may lie. Those passed stay at hand.
    fn go_through(&mut self, mut ids: Vec<Ranked>) {
        let (buckets, max) = (Buckets::of(&self.range), self.found.max);
        let (indices, sums) = buckets.sort_in(&ids, max);
        let filled = buckets.filled(&sums, &self.range);
        if let Some(inside) = self.over_buckets(&filled) {
            let (own, index) = (inside.range.clone(), inside.index);
            let mut near: Vec<Ranked> =
                ids.iter().zip(&indices).filter(|(_, i)| **i == index).map(|(ranked, _)| *ranked).collect();
            near.sort_unstable_by(|a, b| b.cmp(a));
            // Without a branch, which nobody could predict.
            let mut before = 0;
            for (k, i) in indices.into_iter().enumerate() {
                ids[before] = ids[k];
                before += usize::from(i < index);
            }
            ids.truncate(before);
            self.go(&near);
            self.range = own;
            ids.extend(near);
        }
        if self.ended {
            ids.retain(|ranked| self.passed.is_behind(ranked.x(), ranked.id(), max));
        }
        self.at_hand.get_or_insert_default().extend(ids);
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
            (None, Some(passed)) => [&**passed, best].concat(),
            (None, None) => return None,
        };
        // Those at hand come in long runs, which this sort makes use of.
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

    /// The number of each id's bucket, and the sums of the buckets.
    fn sort_in(&self, ids: &[Ranked], max: f32) -> (Vec<u16>, Sums) {
        let (mut indices, mut sums) = (Vec::with_capacity(ids.len()), no_sums());
        for ids in ids.chunks(BLOCK) {
            let mut x = EMPTY;
            x.iter_mut().zip(ids).for_each(|(x, ranked)| *x = ranked.x());
            for (ranked, weight) in ids.iter().zip(weigh(&x, max)) {
                let index = self.index(*ranked, max);
                indices.push(index as u16);
                sums[index] = (sums[index].0 + weight, sums[index].1 + 1);
            }
        }
        (indices, sums)
    }

    /// The places of a bucket.
    fn range(&self, index: usize) -> Range<Place> {
        let (from, width) = (self.origin.0 + ((index as u128) << self.shift), 1 << self.shift);
        Place(from)..Place(from.saturating_add(width))
    }

    /// The buckets of `range` that hold something, best first.
    fn filled(&self, sums: &Sums, range: &Range<Place>) -> Vec<Bucket> {
        let bucket = |(i, &(weight, count)): (usize, &(u64, usize))| {
            let Range { start, end } = self.range(i);
            Bucket { index: i as u16, range: start.max(range.start)..end.min(range.end), weight, count }
        };
        sums.iter().enumerate().filter(|(_, (_, count))| *count > 0).map(bucket).collect()
    }
}

/// What a search gathers.
#[derive(Clone, Copy)]
enum Gather {
    Best,
    All,
    Sums,
}

/// A pass over the ids of one range of the order: few are listed, many are counted.
struct Search<'r> {
    plan: &'r Plan<'r>,
    max: f32,
    range: Range<Place>,
    buckets: Buckets,
    gather: Gather,
    gathered: Mutex<Gathered>,
}

/// What is gathered of a range, by one thread or by all.
enum Gathered {
    /// The best ids.
    Best(Top),
    /// All ids, as long as they are few.
    All(Option<Vec<Ranked>>),
    /// The sums of each bucket.
    Sums(Sums),
}

impl Gathered {
    fn new(gather: Gather) -> Self {
        match gather {
            Gather::Best => Self::Best(Top::new(LISTED)),
            Gather::All => Self::All(Some(Vec::new())),
            Gather::Sums => Self::Sums(no_sums()),
        }
    }

    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Best(all), Self::Best(own)) => all.merge(own),
            (Self::All(all), Self::All(own)) => *all = all.take().zip(own).and_then(|(all, own)| join(all, own)),
            (Self::Sums(all), Self::Sums(own)) => {
                for (all, own) in all.iter_mut().zip(own) {
                    *all = (all.0 + own.0, all.1 + own.1);
                }
            }
            _ => unreachable!("all threads gather the same"),
        }
    }
}

/// The weight and the number of the ids of each bucket.
type Sums = Vec<(u64, usize)>;

fn no_sums() -> Sums {
    vec![(0, 0); 1 << BUCKET_BITS]
}

/// Both, if they are few enough to be kept at hand.
fn join(all: Vec<Ranked>, own: Vec<Ranked>) -> Option<Vec<Ranked>> {
    let both = if all.is_empty() { own } else { [all, own].concat() };
    (both.len() <= AT_HAND).then_some(both)
}

/// What a search brings: ids, best first, or buckets, best first.
enum Found {
    Best(Vec<Ranked>),
    All(Option<Vec<Ranked>>),
    Buckets(Vec<Bucket>),
}

/// The ids of a part of a range.
struct Bucket {
    index: u16,
    range: Range<Place>,
    weight: u64,
    count: usize,
}

impl Search<'_> {
    fn finish(self) -> Found {
        match self.gathered.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Gathered::Best(top) => Found::Best(top.sorted()),
            Gathered::All(ids) => Found::All(ids),
            Gathered::Sums(sums) => Found::Buckets(self.buckets.filled(&sums, &self.range)),
        }
    }

    fn add(&self, gathered: Gathered) {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).merge(gathered);
    }

    /// What is gathered so far, in numbers: ids, or of each filled bucket its index, weight and count.
    fn numbers(&self) -> Vec<u64> {
        match &*self.gathered.lock().unwrap_or_else(PoisonError::into_inner) {
            Gathered::Best(top) => top.clone().sorted().into_iter().map(|ranked| ranked.0).collect(),
            Gathered::All(_) => unreachable!("{ALONE}"),
            Gathered::Sums(sums) => {
                let filled = sums.iter().enumerate().filter(|(_, (_, count))| *count > 0);
                filled.flat_map(|(i, (weight, count))| [i as u64, *weight, *count as u64]).collect()
            }
        }
    }

    /// The gathering that these numbers stand for, if a shard with `ids` can have made it.
    fn gathering(&self, numbers: &[u64], ids: &Range<usize>) -> Option<Gathered> {
        let mut gathered = Gathered::new(self.gather);
        match &mut gathered {
            Gathered::Best(top) => {
                for ranked in numbers.iter().map(|key| Ranked(*key)) {
                    ranked.is_sound(ids).then(|| top.offer(ranked))?;
                }
            }
            Gathered::All(_) => unreachable!("{ALONE}"),
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
    type Local = (Gathered, Chosen);

    fn plan(&self) -> &Plan<'_> {
        self.plan
    }

    fn local(&self) -> (Gathered, Chosen) {
        (Gathered::new(self.gather), Chosen::NONE)
    }

    fn block(&self, (gathered, chosen): &mut (Gathered, Chosen), block: usize, logits: &Block) {
        self.plan.choose(block, logits, self.max, self.range.clone(), chosen);
        let ranked = |i: usize| Ranked::new(chosen.x[i], (block * BLOCK + i) as u32);
        match gathered {
            Gathered::Best(top) => ones(chosen.mask).for_each(|i| top.offer(ranked(i))),
            Gathered::All(all) => {
                all.iter_mut().for_each(|ids| ids.extend(ones(chosen.mask).map(ranked)));
                all.take_if(|ids| ids.len() > AT_HAND);
            }
            Gathered::Sums(sums) if chosen.mask != 0 => {
                let weights = weigh(&chosen.x, self.max);
                for i in ones(chosen.mask) {
                    let sum = &mut sums[self.buckets.index(ranked(i), self.max)];
                    *sum = (sum.0 + weights[i], sum.1 + 1);
                }
            }
            Gathered::Sums(_) => {}
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
