//! force_top_k: which ids are among the N largest logits of their row.
//!
//! The cut is at a rank in the order of logits, so it is found as a top-k is, by the same survey and walk over the row at
//! temperature 1; then the row is drawn without the others. Where the N ids fit a list, no further pass looks at any.

use super::plan::{Forced, Plan};
use super::{Call, filter, survey};
use crate::{Error, RowError};

/// Finds what force_top_k leaves of each row. A row that has a fault shows it here.
pub(crate) async fn force<'r>(
    call: &Call<'_>,
    plans: Vec<Plan<'r>>,
) -> Result<Vec<Result<Plan<'r>, (usize, RowError)>>, Error> {
    let Some(n) = call.policy.force_top_k else { return Ok(plans.into_iter().map(Ok).collect()) };
    let forcing: Vec<Plan> = plans.iter().map(|plan| plan.forcing(n.get())).collect();
    let surveyed = survey::survey(call, &forcing).await?;
    let faults: Vec<Option<RowError>> = surveyed.iter().map(|row| row.as_ref().err().copied()).collect();
    let sound: Vec<_> = surveyed.into_iter().flatten().collect();
    let kept = filter::settle(call, &sound).await?;
    let mut forced = sound.iter().zip(kept).map(|(found, kept)| Forced {
        max: kept.max,
        end: kept.end,
        listed: kept.listed,
        raw: found.raw,
    });
    let with_forced = |(plan, fault): (Plan<'r>, Option<RowError>)| match fault {
        Some(error) => Err((plan.place, error)),
        None => Ok(Plan { forced: forced.next(), ..plan }),
    };
    Ok(plans.into_iter().zip(faults).map(with_forced).collect())
}
