//! The draw, over any source of logits.
//!
//! A call makes few passes over the logits, each in parallel over tiles of the vocabulary, and keeps between them only
//! what the law needs:
//!
//! 1. the *survey*, for every row: faults, the pair (m, S) of each block, the best ids, and, where no filter is set,
//!    the race itself (under force_top_k a survey of its own comes first);
//! 2. the *walk* down the best ids finds where the filters cut; should the list end before the cut, further passes
//!    narrow down where it lies (a flat distribution is slower, never approximate);
//! 3. the *lot* is drawn among the kept ids: a race, block weights for the inverse CDF, or a verification. The kept ids
//!    are on the list as a rule; only where they are not is there one more pass;
//! 4. single logits are looked up, and what else is asked for is *reported* of the kept ids.
//!
//! Every quantity that passes from thread to thread, or from shard to shard, is merged by an operation without an order: a
//! maximum, a minimum, a sum of integers, a store to a place of its own. So threads, tiles and shards cannot change a
//! result.

mod cdf;
pub(crate) mod exchange;
mod filter;
mod force;
mod kept;
mod lookup;
mod lot;
pub(crate) mod outcome;
mod pass;
pub(crate) mod plan;
mod race;
mod report;
mod survey;
mod top;
mod verify;
mod words;

use crate::mass::{BLOCK, EMPTY};
use crate::row::Row;
use crate::{Error, Policy, RowError};
use exchange::Exchange;
use outcome::Drawn;
use plan::Plan;
use std::ops::Range;
use std::task::{Context, Poll, Waker};

/// Ids of a tile whose logits are computed, where nothing else is asked for.
pub(crate) const TILE: usize = 4 * BLOCK;

/// Ids of a tile of ready logits: there is less to do for each.
pub(crate) const READY_TILE: usize = 16 * BLOCK;

/// The tile nearest to `ids` that holds whole blocks.
pub(crate) fn tile(ids: usize) -> usize {
    ids.clamp(1, crate::MAX_VOCABULARY).next_multiple_of(BLOCK)
}

/// A source of logits: the one seam between the draw and where logits come from.
pub(crate) trait Tiles: Sync {
    /// The ids it holds; the first is a multiple of 64.
    fn ids(&self) -> Range<usize>;

    /// Writes the logits of `ids` for each of `rows`; the k-th row's begin at `out[k · stride]`.
    fn fill(&self, rows: &[usize], ids: Range<usize>, out: &mut [f32], stride: usize);

    /// The logits of `ids` for a row, where they lie ready as f32: then they need not be written.
    fn ready(&self, _row: usize, _ids: Range<usize>) -> Option<&[f32]> {
        None
    }
}

/// What all rows of a call share.
pub(crate) struct Call<'a> {
    pub tiles: &'a dyn Tiles,
    /// Ids of a tile.
    pub tile: usize,
    /// The width of every row, over all shards.
    pub vocabulary: usize,
    pub policy: Policy<'a>,
    /// Whether nothing but the tokens is wanted.
    pub bare: bool,
    pub exchange: Exchange,
}

/// Draws a token for each row, which comes with the number of its row of logits; rows of equal number follow each other.
pub(crate) async fn draw(call: &Call<'_>, rows: &[(usize, Row<'_>)]) -> Result<Vec<Result<Drawn, RowError>>, Error> {
    let mut outcomes: Vec<Option<Result<Drawn, RowError>>> = rows.iter().map(|_| None).collect();
    let mut plans = Vec::with_capacity(rows.len());
    for (place, (row, asked)) in rows.iter().enumerate() {
        match Plan::new((place, *row), asked, call.vocabulary, &call.policy, call.bare) {
            Ok(plan) => plans.push(Plan { most_listed: plan::most_listed(rows.len()), ..plan }),
            Err(error) => outcomes[place] = Some(Err(error)),
        }
    }
    let mut forced = Vec::with_capacity(plans.len());
    for plan in force::force(call, plans).await? {
        match plan {
            Ok(plan) => forced.push(plan),
            Err((place, error)) => outcomes[place] = Some(Err(error)),
        }
    }
    let mut surveyed = Vec::with_capacity(forced.len());
    for (plan, found) in forced.iter().zip(survey::survey(call, &forced).await?) {
        match found.and_then(|found| plan.judge_draft().map(|()| found)) {
            Ok(found) => surveyed.push(found),
            Err(error) => outcomes[plan.place] = Some(Err(error)),
        }
    }
    let kept = filter::settle(call, &surveyed).await?;
    for (found, drawn) in surveyed.iter().zip(outcome::draw_lots(call, &surveyed, &kept).await?) {
        outcomes[found.plan.place] = Some(Ok(drawn));
    }
    Ok(outcomes.into_iter().flatten().collect())
}

/// x of all ids of a row, whose `logits` these are.
pub(crate) async fn x(
    call: &Call<'_>,
    (row, asked): (usize, &Row<'_>),
    logits: &[f32],
) -> Result<Result<Vec<f32>, RowError>, Error> {
    let plan = match Plan::new((0, row), asked, call.vocabulary, &call.policy, false) {
        Ok(plan) => plan,
        Err(error) => return Ok(Err(error)),
    };
    let plan = match force::force(call, vec![plan]).await?.remove(0) {
        Ok(plan) => plan,
        Err((_, error)) => return Ok(Err(error)),
    };
    let block = |(block, logits): (usize, &[f32])| {
        let mut padded = EMPTY;
        padded[..logits.len()].copy_from_slice(logits);
        plan.x(block, &padded).into_iter().take(logits.len())
    };
    Ok(Ok(logits.chunks(BLOCK).enumerate().flat_map(block).collect()))
}

/// Runs a draw that has nobody to wait for.
pub(crate) fn alone<T>(draw: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match std::pin::pin!(draw).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(drawn) => drawn,
        Poll::Pending => unreachable!("a draw waits for other shards only"),
    }
}
