//! From kept ids to outcomes: the lots are drawn, the logits that matter are looked up, the report is written.

use super::cdf;
use super::kept::{self, Kept};
use super::lookup::{Wanted, look_up};
use super::lot::Lot;
use super::report::Report;
use super::survey::Surveyed;
use super::verify::{ResidualWeights, Verify};
use super::{BLOCK, Call};
use crate::mass::{self, Block};
use crate::row::{Outcome, Proposal, TokenLogprob, Verification};
use crate::{Error, math};

/// A row's token, and the outcome unless the call is bare.
pub(crate) struct Drawn {
    pub token: u32,
    pub outcome: Option<Outcome>,
}

/// Draws every row's lot.
pub(crate) async fn draw_lots(call: &Call<'_>, found: &[Surveyed<'_>], kept: &[Kept]) -> Result<Vec<Drawn>, Error> {
    let lots: Vec<Lot> = found.iter().zip(kept).map(|(found, kept)| Lot::new(found, kept)).collect();
    kept::visit(call, found, kept, &lots).await?;
    // The weights of a residual take the place of its sums, which must be read before.
    let accept: Vec<f64> = lots.iter().map(Lot::accept_probability).collect();
    let residuals: Vec<Option<ResidualWeights>> = lots.iter().map(Lot::residual_weights).collect();
    kept::visit(call, found, kept, &residuals).await?;

    let lots = lots.iter().zip(accept).zip(residuals);
    let mut rows: Vec<Drawing> = found
        .iter()
        .zip(kept)
        .zip(lots)
        .map(|((found, kept), ((lot, accept), residual))| Drawing::new(found, kept, lot, accept, residual))
        .collect();
    let wanted = rows.iter().map(Drawing::wants_for_token).collect();
    look_up_all(call, &mut rows, wanted).await?;
    let tokens: Vec<u32> = rows.iter().map(Drawing::checked_token).collect::<Result<_, _>>()?;
    if call.bare {
        return Ok(tokens.into_iter().map(|token| Drawn { token, outcome: None }).collect());
    }
    let wanted = rows.iter().zip(&tokens).map(|(row, token)| row.wants_for_outcome(*token)).collect();
    look_up_all(call, &mut rows, wanted).await?;
    let reports: Vec<Report> =
        rows.iter().zip(&tokens).map(|(row, token)| Report::new(row.found, row.x(*token))).collect();
    kept::visit(call, found, kept, &reports).await?;
    let drawn = rows.iter().zip(tokens).zip(reports);
    Ok(drawn.map(|((row, token), report)| Drawn { token, outcome: Some(row.outcome(token, &report)) }).collect())
}

async fn look_up_all(call: &Call<'_>, rows: &mut [Drawing<'_>], wanted: Vec<Vec<Wanted>>) -> Result<(), Error> {
    let all: Vec<&Wanted> = wanted.iter().flatten().collect();
    look_up(call, &all).await?;
    for (row, wanted) in rows.iter_mut().zip(wanted) {
        row.known.extend(wanted);
    }
    Ok(())
}

/// A row whose lot is drawn.
struct Drawing<'r> {
    found: &'r Surveyed<'r>,
    kept: &'r Kept,
    lot: &'r Lot<'r>,
    /// The probability of acceptance by rejection.
    accept: f64,
    residual: Option<ResidualWeights<'r>>,
    /// The block in which a CDF has its hit, the weight before it and what the running weight must exceed.
    hit: Option<(usize, u64, u64)>,
    /// The logits looked up so far.
    known: Vec<Wanted>,
}

impl<'r> Drawing<'r> {
    fn new(
        found: &'r Surveyed<'r>,
        kept: &'r Kept,
        lot: &'r Lot<'r>,
        accept: f64,
        residual: Option<ResidualWeights<'r>>,
    ) -> Self {
        let hit = match (lot, &residual) {
            (Lot::Cdf(weights), _) => weights.find(found.plan.fresh),
            (_, Some(residual)) => residual.blocks.find(found.plan.residual),
            _ => None,
        };
        Self { found, kept, lot, accept, residual, hit, known: Vec::new() }
    }

    /// The block in which a CDF has its hit, and the drafted id.
    fn wants_for_token(&self) -> Vec<Wanted> {
        let plan = self.found.plan;
        let mut wanted: Vec<Wanted> = self.hit.into_iter().map(|(block, ..)| Wanted::block(plan, block)).collect();
        // An id is wanted once, so that a block is found whole.
        let missing = |id: &u32| !self.knows(*id) && !wanted.iter().any(|wanted| wanted.holds(*id));
        let drafted = plan.drafted().filter(missing).map(|id| Wanted::id(plan, id));
        wanted.extend(drafted);
        wanted
    }

    /// The token and the other ids whose logprobs are reported.
    fn wants_for_outcome(&self, token: u32) -> Vec<Wanted> {
        let mut ids: Vec<u32> = self.found.plan.ids.to_vec();
        ids.push(token);
        ids.extend(self.best());
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter(|id| !self.knows(*id)).map(|id| Wanted::id(self.found.plan, id)).collect()
    }

    /// Whether what is needed of an id is at hand. The list holds x, from which a raw logit cannot be had.
    fn knows(&self, id: u32) -> bool {
        let listed = self.found.raw.is_none() && self.listed_x(id).is_some();
        listed || self.known.iter().any(|wanted| wanted.holds(id))
    }

    fn listed_x(&self, id: u32) -> Option<f32> {
        self.found.best.iter().find(|ranked| ranked.id() == id).map(|ranked| ranked.x())
    }

    /// The logits of the block of an id that was looked up.
    fn logits(&self, id: u32) -> Block {
        self.known.iter().find(|wanted| wanted.holds(id)).expect("an id that was looked up").found()
    }

    fn x(&self, id: u32) -> f32 {
        self.listed_x(id).unwrap_or_else(|| {
            let (block, i) = (id as usize / BLOCK, id as usize % BLOCK);
            self.found.plan.x(block, &self.logits(id))[i]
        })
    }

    /// The token. Every sound row has one.
    fn checked_token(&self) -> Result<u32, Error> {
        let row = self.found.plan.row;
        self.token().ok_or_else(|| Error::Shards(format!("they do not agree on row {row}, which has no token")))
    }

    /// The token drawn, or accepted.
    fn token(&self) -> Option<u32> {
        match self.lot {
            Lot::Raced(winner) => *winner,
            Lot::Race(race) => race.winner(),
            Lot::Cdf(weights) => self.locate(|_, x| weights.of_ids(x)),
            Lot::Verify(verify) => self.accepted(verify).or_else(|| self.replacement(verify)),
        }
    }

    /// The drafted token, if the accept test passes.
    fn accepted(&self, verify: &Verify) -> Option<u32> {
        self.found.plan.drafted().filter(|id| verify.accepts(*id, self.probability(*id)))
    }

    /// The token drawn from the residual; the best one where there is none.
    fn replacement(&self, verify: &Verify) -> Option<u32> {
        match (verify.winner(), &self.residual) {
            (Some(winner), _) => Some(winner),
            (None, Some(weights)) => self.locate(|block, x| weights.of_ids(block, x)),
            (None, None) => self.found.best.first().map(|ranked| ranked.id()),
        }
    }

    /// The first id, in vocabulary order, whose running weight exceeds u · total: by blocks, then inside the block.
    fn locate(&self, of_ids: impl Fn(usize, &Block) -> [u64; BLOCK]) -> Option<u32> {
        let (block, before, target) = self.hit?;
        let x = self.kept.x(self.found.plan, block, &self.logits((block * BLOCK) as u32));
        let i = cdf::find_in_block(&x, &of_ids(block, &x), before, target)?;
        Some((block * BLOCK + i) as u32)
    }

    /// The processed probability of an id.
    fn probability(&self, id: u32) -> f64 {
        let x = self.x(id);
        match self.kept.holds(x, id) {
            true => mass::weight(x, self.found.max) as f64 / self.kept.weight as f64,
            false => 0.0,
        }
    }

    fn outcome(&self, token: u32, report: &Report) -> Outcome {
        let plan = self.found.plan;
        let drawn = self.token_logprob(token);
        Outcome {
            token,
            logprob: drawn.logprob,
            raw_logprob: drawn.raw_logprob,
            kept: self.kept.count,
            log_normalizer: self.found.log_normalizer(),
            asked: plan.ids.iter().map(|id| self.token_logprob(*id)).collect(),
            kept_ids: report.kept_ids(),
            confidence: report.confidence(self.kept.weight),
            top: self.best().map(|id| self.token_logprob(id)).collect(),
            seed: plan.sampling.seed,
            position: plan.position,
            verification: self.verification(token),
        }
    }

    /// The best kept ids that are reported.
    fn best(&self) -> impl Iterator<Item = u32> {
        let wanted = self.found.plan.sampling.top_logprobs.min(self.kept.count);
        self.found.best.iter().take(wanted).map(|ranked| ranked.id())
    }

    fn verification(&self, token: u32) -> Option<Verification> {
        let plan = self.found.plan;
        let (draft, drafted) = (plan.draft?, plan.drafted());
        let logprob = |logprobs: &[f32]| drafted.map(|id| f64::from(logprobs[id as usize]));
        let (accepted, accept_probability, draft_logprob) = match (self.lot, draft.proposal) {
            (Lot::Verify(verify), proposal) => {
                let draft_logprob = match proposal {
                    Proposal::Distribution { logprobs, .. } => logprob(logprobs),
                    Proposal::OneHot { .. } | Proposal::Coupled => None,
                };
                (self.accepted(verify).is_some(), self.accept, draft_logprob)
            }
            _ => (drafted == Some(token), drafted.map_or(0.0, |id| self.probability(id)), None),
        };
        Some(Verification { accepted, accept_probability, draft_logprob })
    }

    fn token_logprob(&self, token: u32) -> TokenLogprob {
        let (found, kept, x) = (self.found, self.kept, self.x(token));
        // Adding +0 last turns −0 into +0: which zero M is must not show.
        let log = |x: f32, max: f32, mass| f64::from(x) - f64::from(max) - math::ln(mass::value(mass)) + 0.0;
        let logprob = if kept.holds(x, token) { log(x, found.max, kept.weight) } else { f64::NEG_INFINITY };
        let raw_logprob = found.raw.as_ref().map(|raw| {
            let logit = self.logits(token)[token as usize % BLOCK];
            if logit < f32::INFINITY { log(logit, raw.max, raw.total) } else { f64::NEG_INFINITY }
        });
        TokenLogprob { token, logprob, raw_logprob }
    }
}
