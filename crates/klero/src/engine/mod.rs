//! The draw, over any source of logits.
//!
//! A call makes few passes over the logits, each in parallel over tiles of the vocabulary, and keeps between them only
//! what the law needs:
//!
//! 1. the *survey*, for every row: faults, the pair (m, S) of each block, the best ids, and, where no filter is set,
//!    the race itself;
//! 2. the *walk* down the best ids finds where the filters cut; should the list end before the cut, further passes
//!    narrow down where it lies (a flat distribution is slower, never approximate);
//! 3. the *lot* is drawn among the kept ids: a race, block weights for the inverse CDF, or a verification. The kept ids
//!    are on the list as a rule; only where they are not is there one more pass.
//!
//! Every quantity that passes from thread to thread is merged by an operation without an order: a maximum, a minimum,
//! a sum of integers, a store to a place of its own. So threads and tiles cannot change a result.

mod cdf;
mod filter;
mod kept;
mod pass;
mod plan;
mod race;
mod survey;
mod top;
mod verify;

use crate::mass::{self, BLOCK, Block, EMPTY};
use crate::params::Draw;
use crate::row::{Outcome, Row, TokenLogprob, Verification};
use crate::{RowError, math};
use cdf::BlockWeights;
use kept::{Kept, KeptPass, KeptVisit};
use plan::Plan;
use race::Race;
use std::ops::Range;
use survey::{Survey, Surveyed};
use verify::{ResidualWeights, Verify};

/// Ids of a tile where nothing else is asked for.
pub(crate) const TILE: usize = 4 * BLOCK;

/// The tile nearest to `ids` that holds whole blocks.
pub(crate) fn tile(ids: usize) -> usize {
    ids.clamp(1, crate::MAX_VOCABULARY).next_multiple_of(BLOCK)
}

/// A source of logits: the one seam between the draw and where logits come from.
pub(crate) trait Tiles: Sync {
    /// The width of every row.
    fn vocabulary(&self) -> usize;

    /// Writes the logits of `ids` for each of `rows`; the k-th row's begin at `out[k · stride]`.
    fn fill(&self, rows: &[usize], ids: Range<usize>, out: &mut [f32], stride: usize);
}

/// Draws a token for every row.
pub(crate) fn draw(tiles: &dyn Tiles, tile: usize, rows: &[Row]) -> Vec<Result<Outcome, RowError>> {
    let mut outcomes: Vec<Option<Result<Outcome, RowError>>> = vec![None; rows.len()];
    let mut keep = |row: usize, error: RowError| outcomes[row] = Some(Err(error));

    let mut plans = Vec::with_capacity(rows.len());
    for (row, asked) in rows.iter().enumerate() {
        match Plan::new(row, asked, tiles.vocabulary()) {
            Ok(plan) => plans.push(plan),
            Err(error) => keep(row, error),
        }
    }
    let surveys: Vec<Survey> = plans.iter().map(Survey::new).collect();
    pass::pass(tiles, tile, &surveys);

    let mut surveyed = Vec::with_capacity(surveys.len());
    for survey in surveys {
        let row = survey.plan().row;
        match survey.finish().and_then(|found| found.plan.judge_draft().map(|()| found)) {
            Ok(found) => surveyed.push(found),
            Err(error) => keep(row, error),
        }
    }
    let kept = filter::settle(tiles, tile, &surveyed);
    let lots: Vec<Lot> = surveyed.iter().zip(&kept).map(|(found, kept)| Lot::new(found, kept)).collect();
    visit_kept(tiles, tile, &surveyed, &kept, &lots);
    let residuals: Vec<Option<ResidualWeights>> = lots.iter().map(Lot::residual_weights).collect();
    visit_kept(tiles, tile, &surveyed, &kept, &residuals);

    for (((found, kept), lot), residual) in surveyed.iter().zip(&kept).zip(&lots).zip(&residuals) {
        let source = Source { tiles, found, kept };
        outcomes[found.plan.row] = Some(Ok(source.outcome(lot, residual.as_ref())));
    }
    outcomes.into_iter().flatten().collect()
}

/// Shows every row's kept ids to its visitor: from the list where all of them are on it, by a pass for the rest.
fn visit_kept<V: KeptVisit>(tiles: &dyn Tiles, tile: usize, found: &[Surveyed], kept: &[Kept], visitors: &[V]) {
    let mut passes = Vec::new();
    for ((found, kept), visitor) in found.iter().zip(kept).zip(visitors) {
        if !visitor.needed() {
            continue;
        }
        match &kept.listed {
            Some(listed) => kept::listed_blocks(listed, |block, x| visitor.block(block, x)),
            None => passes.push(KeptPass { plan: found.plan, cut: kept.cut, visitor }),
        }
    }
    pass::pass(tiles, tile, &passes);
}

/// How a row's token is found among the kept ids.
enum Lot<'r> {
    /// The race was run in the survey.
    Raced(u32),
    Race(Race),
    Cdf(BlockWeights),
    Verify(Verify<'r>),
}

impl<'r> Lot<'r> {
    fn new(found: &'r Surveyed<'r>, kept: &Kept) -> Self {
        let plan = found.plan;
        if let Some(draft) = &plan.draft {
            return Self::Verify(Verify::new(plan, draft, found.max, kept.weight));
        }
        match (plan.sampling.draw, kept.removed) {
            (Draw::Gumbel, _) => match found.winner {
                Some(winner) => Self::Raced(winner),
                None => Self::Race(Race::new(plan.fresh)),
            },
            (Draw::InverseCdf, false) => Self::Cdf(BlockWeights::of_masses(&found.pairs, found.max)),
            (Draw::InverseCdf, true) => Self::Cdf(BlockWeights::new(plan.blocks(), found.max)),
        }
    }

    fn residual_weights(&self) -> Option<ResidualWeights<'_>> {
        match self {
            Self::Verify(verify) => verify.weights(),
            _ => None,
        }
    }
}

impl KeptVisit for Lot<'_> {
    fn needed(&self) -> bool {
        match self {
            Self::Raced(_) => false,
            Self::Race(_) | Self::Verify(_) => true,
            Self::Cdf(weights) => weights.needed(),
        }
    }

    fn block(&self, block: usize, x: &Block) {
        match self {
            Self::Raced(_) => {}
            Self::Race(race) => race.block(block, x),
            Self::Cdf(weights) => weights.block(block, x),
            Self::Verify(verify) => verify.block(block, x),
        }
    }
}

/// A row after its passes, beside the logits it can still look up.
struct Source<'r> {
    tiles: &'r dyn Tiles,
    found: &'r Surveyed<'r>,
    kept: &'r Kept,
}

impl Source<'_> {
    fn outcome(&self, lot: &Lot, residual: Option<&ResidualWeights>) -> Outcome {
        let plan = self.found.plan;
        let (token, verification) = match lot {
            Lot::Raced(winner) => (*winner, None),
            Lot::Race(race) => (race.winner(), None),
            Lot::Cdf(weights) => (self.locate(weights, plan.fresh, |_, x| weights.of_ids(x)), None),
            Lot::Verify(verify) => {
                let (token, verification) = self.verified(verify, residual);
                (token, Some(verification))
            }
        };
        let drawn = self.token_logprob(token);
        Outcome {
            token,
            logprob: drawn.logprob,
            raw_logprob: drawn.raw_logprob,
            kept: self.kept.count,
            log_normalizer: self.found.log_normalizer(),
            top: self.top(),
            seed: plan.sampling.seed,
            position: plan.position,
            verification,
        }
    }

    fn top(&self) -> Vec<TokenLogprob> {
        let wanted = self.found.plan.sampling.top_logprobs.min(self.kept.count);
        self.found.best[..wanted].iter().map(|ranked| self.token_logprob(ranked.id())).collect()
    }

    /// The first id, in vocabulary order, whose running weight exceeds u · total: by blocks, then inside the block.
    fn locate(&self, blocks: &BlockWeights, z: u64, of_ids: impl Fn(usize, &Block) -> [u64; BLOCK]) -> u32 {
        let (block, before, target) = blocks.find(z);
        let x = self.kept_block(block);
        (block * BLOCK + cdf::find_in_block(&x, &of_ids(block, &x), before, target)) as u32
    }

    fn verified(&self, verify: &Verify, residual: Option<&ResidualWeights>) -> (u32, Verification) {
        let plan = self.found.plan;
        let drafted = u32::try_from(verify.draft.token).ok();
        let target = drafted.map_or(0.0, |id| {
            let x = self.x(id);
            if self.kept.holds(x, id) { verify.target_probability(x) } else { 0.0 }
        });
        let accepted = drafted.filter(|id| verify.accepts(*id, target));
        let token = accepted.unwrap_or_else(|| match (verify.winner(), residual) {
            (Some(winner), _) => winner,
            (None, Some(weights)) => self.locate(&weights.blocks, plan.residual, |block, x| weights.of_ids(block, x)),
            (None, None) => self.found.best[0].id(),
        });
        let verification = Verification {
            accepted: accepted.is_some(),
            accept_probability: verify.accept_probability(),
            draft_logprob: drafted.map(|id| f64::from(verify.draft.logprobs[id as usize])),
        };
        (token, verification)
    }

    fn token_logprob(&self, token: u32) -> TokenLogprob {
        let (found, kept) = (self.found, self.kept);
        // Adding +0 last turns −0 into +0: which zero M is must not show.
        let log = |x: f32, max: f32, mass| f64::from(x) - f64::from(max) - math::ln(mass::value(mass)) + 0.0;
        let logprob = log(self.x(token), found.max, kept.weight);
        let raw_logprob = found.raw.as_ref().map(|raw| log(self.logit(token), raw.max, raw.total));
        TokenLogprob { token, logprob, raw_logprob }
    }

    fn logit(&self, id: u32) -> f32 {
        let (mut logit, id) = ([0.0], id as usize);
        self.tiles.fill(&[self.found.plan.row], id..id + 1, &mut logit, 1);
        logit[0]
    }

    fn x(&self, id: u32) -> f32 {
        self.logit(id) * self.found.plan.sampling.inverse_temperature
    }

    fn kept_block(&self, block: usize) -> Block {
        let plan = self.found.plan;
        let mut logits = EMPTY;
        let ids = block * BLOCK..((block + 1) * BLOCK).min(plan.valid);
        self.tiles.fill(&[plan.row], ids, &mut logits, BLOCK);
        kept::kept_of(plan, self.kept.cut, block, &logits)
    }
}
