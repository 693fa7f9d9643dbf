//! The first pass: judges a row, sums its blocks, lists its best ids and, where nothing is filtered, runs its race.

use super::Call;
use super::exchange::{Damaged, Reader, Writer};
use super::kept::listed_blocks;
use super::pass::{self, Visit};
use super::plan::Plan;
use super::race::Race;
use super::top::SharedTop;
use super::words::Words;
use crate::cpu::block::{Scaled, scale};
use crate::error::Input;
use crate::mass::{self, BLOCK, Block, Pair};
use crate::order::Ranked;
use crate::{Error, RowError};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The survey of one row, filled by a pass.
struct Survey<'r> {
    plan: &'r Plan<'r>,
    /// (m, S) of each block, where masses are needed.
    pairs: Words,
    raw_pairs: Words,
    race: Option<Race>,
    first_nan: AtomicUsize,
    first_infinite: AtomicUsize,
    present: AtomicUsize,
    top: SharedTop,
    /// Ids this deep have no place on the list.
    min_p_depth: f32,
}

/// So far below another id, 64 ids together weigh nothing (64 · exp(−34) · 2^43 < 1) and none can win the race (noise spans
/// 49). A block of such ids keeps its empty pair, whose mass is 0 too. With the difference rounded to f32 it stays true.
const NEGLIGIBLE: f32 = 64.0;

/// What a thread has seen of a row.
struct Seen {
    /// Ids with x greater than −∞.
    present: usize,
    /// The greatest x.
    max: f32,
    /// The block it looks at.
    scaled: Scaled,
}

/// What the survey of a sound row found.
pub(crate) struct Surveyed<'r> {
    pub plan: &'r Plan<'r>,
    /// The greatest x, where masses or a list are needed.
    pub max: f32,
    /// The integer mass of all unmasked ids.
    pub total: u64,
    /// The mass of each block, until the row's lot uses the words for its own sums.
    pub blocks: Words,
    /// Ids with x greater than −∞.
    pub present: usize,
    /// The best ids, best first.
    pub best: Vec<Ranked>,
    /// The winner of the race, where one was run.
    pub winner: Option<Option<u32>>,
    /// The unprocessed row, where asked for.
    pub raw: Option<Mass>,
}

/// The greatest value of a row and its integer mass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mass {
    pub max: f32,
    pub total: u64,
}

impl Surveyed<'_> {
    /// ln Σ exp(x) over all unmasked ids.
    pub(crate) fn log_normalizer(&self) -> f64 {
        f64::from(self.max) + crate::math::ln(mass::value(self.total))
    }
}

/// Surveys rows, from the list that force_top_k left or by a pass.
pub(crate) async fn survey<'r>(
    call: &Call<'_>,
    plans: &'r [Plan<'r>],
) -> Result<Vec<Result<Surveyed<'r>, RowError>>, Error> {
    let (listed, passes): (Vec<Survey>, Vec<Survey>) = plans
        .iter()
        .map(Survey::new)
        .partition(|survey| survey.plan.forced.as_ref().is_some_and(|f| f.listed.is_some()));
    pass::pass(call, &passes).await?;
    for survey in &listed {
        survey.look_at_list();
    }
    let mut all: Vec<Survey> = passes.into_iter().chain(listed).collect();
    all.sort_by_key(|survey| survey.plan.place);
    Ok(all.into_iter().map(Survey::finish).collect())
}

impl<'r> Survey<'r> {
    fn new(plan: &'r Plan<'r>) -> Self {
        let words = |wanted: bool| Words::new(if wanted { plan.blocks() } else { 0 }, Pair::EMPTY.to_bits());
        Self {
            plan,
            pairs: words(plan.masses),
            raw_pairs: words(plan.sampling.raw_logprobs && plan.forced.is_none()),
            race: plan.races_unfiltered().then(|| Race::new(plan.fresh)),
            first_nan: AtomicUsize::new(usize::MAX),
            first_infinite: AtomicUsize::new(usize::MAX),
            present: AtomicUsize::new(0),
            top: SharedTop::new(plan.listed()),
            min_p_depth: plan.sampling.min_p_depth(),
        }
    }

    /// Looks at the ids that force_top_k left; their logits have been through all stages.
    fn look_at_list(&self) {
        let mut seen = self.local();
        if let Some(listed) = self.plan.forced.as_ref().and_then(|forced| forced.listed.as_ref()) {
            listed_blocks(listed, |block, staged| self.look(&mut seen, block, staged));
        }
        self.merge(seen);
    }

    fn look(&self, seen: &mut Seen, block: usize, staged: &Block) {
        let least = self.least_listed(seen.max);
        let limit = self.limit(seen.max, least);
        let scaled = &mut seen.scaled;
        let tells = scale(staged, self.plan.sampling.inverse_temperature(), limit, scaled);
        if scaled.bad {
            return self.judge(block, staged, &scaled.x);
        }
        seen.present += scaled.present as usize;
        if !tells {
            return;
        }
        seen.max = seen.max.max(scaled.pair.max);
        self.pairs.set(block, scaled.pair.to_bits());
        if let Some(race) = &self.race {
            race.scaled(block, scaled);
        }
        if scaled.pair.max >= least {
            self.top.offer((block * BLOCK) as u32, &scaled.x, least);
        }
    }

    /// The least x that has a place on the list of a row that holds `max`.
    fn least_listed(&self, max: f32) -> f32 {
        self.top.floor().max(max - self.min_p_depth)
    }

    /// Below this, ids change nothing in a row that holds `max`.
    fn limit(&self, max: f32, least_listed: f32) -> f32 {
        let negligible = if self.pairs.is_empty() && self.race.is_none() { f32::INFINITY } else { max - NEGLIGIBLE };
        negligible.min(least_listed)
    }

    /// Notes the faulty ids of a block: NaN, +∞, or finite before 1/T and not after.
    fn judge(&self, block: usize, staged: &Block, x: &Block) {
        for (i, (l, x)) in staged.iter().zip(x).enumerate() {
            let id = block * BLOCK + i;
            if l.is_nan() {
                self.first_nan.fetch_min(id, Relaxed);
            } else if *x == f32::INFINITY || (*x == f32::NEG_INFINITY && *l != f32::NEG_INFINITY) {
                self.first_infinite.fetch_min(id, Relaxed);
            }
        }
    }

    /// The row's figures, or what is wrong with it: NaN first, then infinite, then empty.
    fn finish(self) -> Result<Surveyed<'r>, RowError> {
        let (row, input) = (self.plan.row, Input::Logit);
        match (self.first_nan.into_inner(), self.first_infinite.into_inner(), self.present.into_inner()) {
            (usize::MAX, usize::MAX, 0) => Err(RowError::Empty { row, input }),
            (usize::MAX, usize::MAX, present) => {
                let best = self.top.sorted();
                let mut blocks = self.pairs;
                let most = best.first().map_or(f32::NEG_INFINITY, |ranked| ranked.x());
                let (max, total) = to_masses(&mut blocks, most);
                let raw = match &self.plan.forced {
                    Some(forced) => forced.raw,
                    None => self.plan.sampling.raw_logprobs.then(|| raw_mass(self.raw_pairs)),
                };
                let winner = self.race.map(|race| race.winner());
                Ok(Surveyed { plan: self.plan, max, total, blocks, present, best, winner, raw })
            }
            (usize::MAX, id, _) => Err(RowError::Infinite { row, input, id }),
            (id, ..) => Err(RowError::Nan { row, input, id }),
        }
    }
}

/// Turns the pair of each block into its mass. Returns the greatest x, of the blocks or `most`, and the total.
fn to_masses(pairs: &mut Words, most: f32) -> (f32, u64) {
    let max = pairs.iter().map(|bits| Pair::from_bits(bits).max).fold(most, f32::max);
    pairs.weigh_pairs(max);
    (max, pairs.iter().sum())
}

fn raw_mass(mut pairs: Words) -> Mass {
    let (max, total) = to_masses(&mut pairs, f32::NEG_INFINITY);
    Mass { max, total }
}

/// The unprocessed logits that count: whatever a masked id holds must not spoil the sum of the others.
fn sound(logits: &Block) -> Block {
    logits.map(|l| if l < f32::INFINITY { l } else { f32::NEG_INFINITY })
}

impl Visit for Survey<'_> {
    type Local = Seen;

    fn plan(&self) -> &Plan<'_> {
        self.plan
    }

    fn local(&self) -> Seen {
        Seen { present: 0, max: f32::NEG_INFINITY, scaled: Scaled::EMPTY }
    }

    fn block(&self, seen: &mut Seen, block: usize, logits: &Block) {
        if !self.raw_pairs.is_empty() {
            scale(&sound(logits), 1.0, f32::NEG_INFINITY, &mut seen.scaled);
            self.raw_pairs.set(block, seen.scaled.pair.to_bits());
        }
        self.look(seen, block, &self.plan.staged(block, logits));
    }

    fn merge(&self, seen: Seen) {
        self.present.fetch_add(seen.present, Relaxed);
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        for figure in [&self.first_nan, &self.first_infinite, &self.present] {
            out.u64(figure.load(Relaxed) as u64);
        }
        self.pairs.write(ids, out);
        self.raw_pairs.write(ids, out);
        if let Some(race) = &self.race {
            race.write(out);
        }
        out.list(self.top.snapshot().into_iter().map(|ranked| ranked.0));
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        let mut figure = || usize::try_from(from.u64()?).map_err(|_| Damaged);
        self.first_nan.fetch_min(figure()?, Relaxed);
        self.first_infinite.fetch_min(figure()?, Relaxed);
        let present = figure()?;
        if present > ids.len() {
            return Err(Damaged);
        }
        self.present.fetch_add(present, Relaxed);
        self.pairs.read(ids, from, Pair::is_sound)?;
        self.raw_pairs.read(ids, from, Pair::is_sound)?;
        if let Some(race) = &self.race {
            race.read(ids, from)?;
        }
        let listed = from.list(self.top.capacity())?;
        if !listed.iter().all(|key| Ranked(*key).is_sound(ids)) {
            return Err(Damaged);
        }
        self.top.extend(listed.into_iter().map(Ranked));
        Ok(())
    }
}
