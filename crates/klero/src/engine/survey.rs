//! The first pass: judges a row, sums its blocks, lists its best ids and, where nothing is filtered, runs its race.

use super::pass::Visit;
use super::plan::Plan;
use super::race::Race;
use super::top::Top;
use crate::RowError;
use crate::cpu::block::scale;
use crate::error::Input;
use crate::mass::{self, BLOCK, Block, Pair};
use crate::order::Ranked;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The survey of one row, filled by a pass.
pub(crate) struct Survey<'r> {
    plan: &'r Plan<'r>,
    pairs: Vec<AtomicU64>,
    raw_pairs: Option<Vec<AtomicU64>>,
    race: Option<Race>,
    first_nan: AtomicUsize,
    first_infinite: AtomicUsize,
    present: AtomicUsize,
    top: Mutex<Top>,
}

/// What the survey of a sound row found.
pub(crate) struct Surveyed<'r> {
    pub plan: &'r Plan<'r>,
    /// The greatest x.
    pub max: f32,
    /// The integer mass of all valid ids.
    pub total: u64,
    pub pairs: Vec<Pair>,
    /// Ids with x greater than −∞.
    pub present: usize,
    /// The best ids, best first.
    pub best: Vec<Ranked>,
    /// The winner of the race, where it was run.
    pub winner: Option<u32>,
    /// Greatest logit and total of the unprocessed row, where asked for.
    pub raw: Option<Mass>,
}

/// The greatest value of a row and its integer mass.
pub(crate) struct Mass {
    pub max: f32,
    pub total: u64,
}

impl Mass {
    fn of(pairs: &[Pair]) -> Self {
        let max = pairs.iter().fold(f32::NEG_INFINITY, |most, pair| most.max(pair.max));
        Self { max, total: pairs.iter().map(|pair| pair.mass(max)).sum() }
    }
}

impl Surveyed<'_> {
    /// ln Σ exp(x) over all valid ids.
    pub(crate) fn log_normalizer(&self) -> f64 {
        f64::from(self.max) + crate::math::ln(mass::value(self.total))
    }
}

impl<'r> Survey<'r> {
    pub(crate) fn new(plan: &'r Plan<'r>) -> Self {
        let pairs = || (0..plan.blocks()).map(|_| AtomicU64::new(Pair::EMPTY.to_bits())).collect();
        Self {
            plan,
            pairs: pairs(),
            raw_pairs: plan.sampling.raw_logprobs.then(pairs),
            race: plan.races_unfiltered().then(|| Race::new(plan.fresh)),
            first_nan: AtomicUsize::new(usize::MAX),
            first_infinite: AtomicUsize::new(usize::MAX),
            present: AtomicUsize::new(0),
            top: Mutex::new(Top::new(plan.listed(), Ranked::FIRST)),
        }
    }

    pub(crate) fn plan(&self) -> &'r Plan<'r> {
        self.plan
    }

    /// Notes the faulty ids of a block: NaN, +∞, or finite before 1/T and not after.
    fn judge(&self, block: usize, logits: &Block, x: &Block) {
        for (i, (l, x)) in logits.iter().zip(x).enumerate() {
            let id = block * BLOCK + i;
            if l.is_nan() {
                self.first_nan.fetch_min(id, Relaxed);
            } else if *x == f32::INFINITY || (*x == f32::NEG_INFINITY && *l != f32::NEG_INFINITY) {
                self.first_infinite.fetch_min(id, Relaxed);
            }
        }
    }

    /// The row's figures, or what is wrong with it: NaN first, then infinite, then empty.
    pub(crate) fn finish(self) -> Result<Surveyed<'r>, RowError> {
        let (row, input) = (self.plan.row, Input::Logit);
        match (self.first_nan.into_inner(), self.first_infinite.into_inner(), self.present.into_inner()) {
            (usize::MAX, usize::MAX, 0) => Err(RowError::Empty { row, input }),
            (usize::MAX, usize::MAX, present) => {
                let read = |pairs: Vec<AtomicU64>| -> Vec<Pair> {
                    pairs.into_iter().map(|bits| Pair::from_bits(bits.into_inner())).collect()
                };
                let pairs = read(self.pairs);
                let Mass { max, total } = Mass::of(&pairs);
                Ok(Surveyed {
                    plan: self.plan,
                    max,
                    total,
                    pairs,
                    present,
                    best: self.top.into_inner().expect("no thread panicked").sorted(),
                    winner: self.race.map(|race| race.winner()),
                    raw: self.raw_pairs.map(|pairs| Mass::of(&read(pairs))),
                })
            }
            (usize::MAX, id, _) => Err(RowError::Infinite { row, input, id }),
            (id, ..) => Err(RowError::Nan { row, input, id }),
        }
    }
}

impl Visit for Survey<'_> {
    type Local = (usize, Top);

    fn row(&self) -> usize {
        self.plan.row
    }

    fn valid(&self) -> usize {
        self.plan.valid
    }

    fn local(&self) -> Self::Local {
        (0, Top::new(self.plan.listed(), Ranked::FIRST))
    }

    fn block(&self, (present, top): &mut Self::Local, block: usize, logits: &Block) {
        let scaled = scale(logits, self.plan.sampling.inverse_temperature);
        if scaled.bad {
            return self.judge(block, logits, &scaled.x);
        }
        *present += scaled.present as usize;
        self.pairs[block].store(scaled.pair.to_bits(), Relaxed);
        if let Some(raw_pairs) = &self.raw_pairs {
            raw_pairs[block].store(scale(logits, 1.0).pair.to_bits(), Relaxed);
        }
        if let Some(race) = &self.race {
            race.scaled(block, &scaled);
        }
        if top.may_hold(scaled.pair.max) {
            top.offer((block * BLOCK) as u32, &scaled.x);
        }
    }

    fn merge(&self, (present, top): Self::Local) {
        self.present.fetch_add(present, Relaxed);
        self.top.lock().expect("no thread panicked").merge(top);
    }
}
