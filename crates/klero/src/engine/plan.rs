//! A row made ready: its parameters, the hashes it needs, and how many ids it has to list.

use crate::error::Input;
use crate::hash::{Case, row_hash};
use crate::mass::BLOCK;
use crate::params::Sampling;
use crate::row::{Draft, Row};
use crate::{Draw, RowError};

/// The best ids a filtered row lists at most in its survey; deeper cuts take further passes.
pub(crate) const LISTED: usize = 1024;

/// One row of a call, its arguments checked.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub row: usize,
    pub sampling: Sampling,
    pub position: u64,
    /// Ids below this take part.
    pub valid: usize,
    pub draft: Option<Draft<'a>>,
    /// The hashes of a fresh draw, of the draw after a rejection, and of the accept test.
    pub fresh: u64,
    pub residual: u64,
    pub accept: u64,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(row: usize, asked: &Row<'a>, width: usize) -> Result<Self, RowError> {
        let valid = asked.vocabulary.unwrap_or(width);
        if valid > width {
            return Err(RowError::Vocabulary { row, valid, width });
        }
        if let Some(draft) = &asked.draft {
            check_draft(row, draft, valid)?;
        }
        let seed = asked.stream.seed(asked.sampling.seed);
        let hash = |case| row_hash(seed, asked.position, case);
        Ok(Self {
            row,
            sampling: asked.sampling,
            position: asked.position,
            valid,
            draft: asked.draft,
            fresh: hash(Case::Fresh),
            residual: hash(Case::Residual),
            accept: hash(Case::Accept),
        })
    }

    /// Judges the draft's logprobs: NaN anywhere, then values above 1e-3, which are no logprobs.
    pub(crate) fn judge_draft(&self) -> Result<(), RowError> {
        let Some(draft) = &self.draft else { return Ok(()) };
        let (row, input, logprobs) = (self.row, Input::DraftLogprob, &draft.logprobs[..self.valid]);
        if let Some(id) = logprobs.iter().position(|d| d.is_nan()) {
            return Err(RowError::Nan { row, input, id });
        }
        match logprobs.iter().position(|d| *d > 1e-3) {
            Some(id) => Err(RowError::Infinite { row, input, id }),
            None => Ok(()),
        }
    }

    /// Whether the survey can run the race: every id is kept, and no verification comes first.
    pub(crate) fn races_unfiltered(&self) -> bool {
        self.sampling.draw == Draw::Gumbel && !self.sampling.filters() && self.draft.is_none()
    }

    /// How many of the best ids the survey lists: enough for the filters as a rule, for the list of the best asked for,
    /// and one for the token that stands in where no residual is left.
    pub(crate) fn listed(&self) -> usize {
        let sampling = &self.sampling;
        let filtered = if sampling.filters() { sampling.top_k.unwrap_or(LISTED).min(LISTED) } else { 0 };
        filtered.max(sampling.top_logprobs).max(usize::from(self.draft.is_some()))
    }

    pub(crate) fn blocks(&self) -> usize {
        self.valid.div_ceil(BLOCK)
    }
}

fn check_draft(row: usize, draft: &Draft, valid: usize) -> Result<(), RowError> {
    let token = draft.token;
    if token < -1 || token >= valid as i64 {
        return Err(RowError::DraftToken { row, token, valid });
    }
    if draft.logprobs.len() < valid {
        return Err(RowError::DraftLength { row, found: draft.logprobs.len(), valid });
    }
    if !(draft.delta >= 0.0 && draft.delta.is_finite()) {
        return Err(RowError::DraftDelta { row, delta: draft.delta });
    }
    Ok(())
}
