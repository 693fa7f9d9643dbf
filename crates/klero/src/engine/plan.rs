//! A row made ready: its parameters, the hashes it needs, what it has to list, and its logits' way to x.

use super::survey::Mass;
use crate::cpu::block::{Chosen, choose, ones};
use crate::error::Input;
use crate::hash::{Case, row_hash};
use crate::mass::{BLOCK, Block};
use crate::order::{Place, Ranked};
use crate::params::{Penalties, Sampling};
use crate::row::{Draft, Proposal, Row};
use crate::{Draw, Edits, Policy, RowError};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

/// The best ids that a filtered row lists at least, if it has them; deeper cuts take further passes.
pub(crate) const LISTED: usize = 512;

/// The best ids that each of `rows` filtered rows lists at most: twice as many where there are few rows, whose memory does not
/// show. No result depends on it.
pub(crate) fn most_listed(rows: usize) -> usize {
    if rows > 16 { LISTED } else { 2 * LISTED }
}

/// One row of a call, its arguments checked.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// Where its outcome goes.
    pub place: usize,
    /// Its row of logits, by which errors name it.
    pub row: usize,
    pub sampling: Sampling,
    pub position: u64,
    /// Ids below this take part.
    pub valid: usize,
    pub draft: Option<Draft<'a>>,
    pub edits: Edits<'a>,
    /// Whether penalties, bias or mask can change a logit at all.
    pub edited: bool,
    pub blacklist: Option<&'a BTreeSet<u32>>,
    /// What force_top_k left, once it is known.
    pub forced: Option<Forced>,
    pub ids: &'a [u32],
    /// The best ids that filters list at most.
    pub most_listed: usize,
    /// Whether the masses of blocks are needed.
    pub masses: bool,
    /// The hashes of a fresh draw, of the draw after a rejection, and of the accept test.
    pub fresh: u64,
    pub residual: u64,
    pub accept: u64,
}

/// What force_top_k left of a row: the ids whose logit, beside the greatest one, stands before `end`.
#[derive(Debug)]
pub(crate) struct Forced {
    pub max: f32,
    pub end: Place,
    /// These ids with their logits, in vocabulary order, where they fit a list.
    pub listed: Option<Vec<Ranked>>,
    /// The unprocessed row, where raw logprobs are asked for.
    pub raw: Option<Mass>,
}

impl<'a> Plan<'a> {
    /// Checks a row. A `bare` one wants its token and nothing else.
    pub(crate) fn new(
        (place, row): (usize, usize),
        asked: &Row<'a>,
        width: usize,
        policy: &Policy<'a>,
        bare: bool,
    ) -> Result<Self, RowError> {
        let valid = asked.vocabulary.unwrap_or(width);
        if valid > width {
            return Err(RowError::Vocabulary { row, valid, width });
        }
        check_edits(row, asked, valid)?;
        if let Some(draft) = &asked.draft {
            check_draft(row, draft, valid)?;
        }
        let seed = asked.stream.seed(asked.sampling.seed);
        let hash = |case| row_hash(seed, asked.position, case);
        let sampling = if bare { asked.sampling.bare() } else { asked.sampling };
        let decides = sampling.top_p < 1.0 || sampling.draw == Draw::InverseCdf || asked.draft.is_some();
        Ok(Self {
            place,
            row,
            sampling,
            position: asked.position,
            valid,
            draft: asked.draft,
            edits: asked.edits,
            edited: asked.edits.edit(sampling.penalties != Penalties::OFF)
                || policy.blacklist.is_some_and(|list| !list.is_empty()),
            blacklist: policy.blacklist,
            forced: None,
            ids: if bare { &[] } else { asked.ids },
            most_listed: LISTED,
            masses: decides || !bare,
            fresh: hash(Case::Fresh),
            residual: hash(Case::Residual),
            accept: hash(Case::Accept),
        })
    }

    /// The plan that finds what force_top_k leaves: the same row at temperature 1 under a plain top-k.
    pub(crate) fn forcing(&self, n: usize) -> Plan<'a> {
        Plan {
            sampling: Sampling { raw_logprobs: self.sampling.raw_logprobs, ..self.sampling.only_top_k(n) },
            draft: None,
            forced: None,
            ids: &[],
            masses: false,
            ..*self
        }
    }

    /// Judges the draft's logprobs at the ids that the mask leaves: NaN anywhere, then values above 1e-3, which are no
    /// logprobs.
    pub(crate) fn judge_draft(&self) -> Result<(), RowError> {
        let Some(Draft { proposal: Proposal::Distribution { logprobs, .. }, .. }) = self.draft else { return Ok(()) };
        let (row, input) = (self.row, Input::DraftLogprob);
        let find = |bad: fn(f32) -> bool| {
            logprobs[..self.valid].iter().enumerate().position(|(id, d)| bad(*d) && !self.masks(id as u32))
        };
        if let Some(id) = find(f32::is_nan) {
            return Err(RowError::Nan { row, input, id });
        }
        match find(|d| d > 1e-3) {
            Some(id) => Err(RowError::Infinite { row, input, id }),
            None => Ok(()),
        }
    }

    /// The draft, where it is verified by rejection.
    pub(crate) fn rejection(&self) -> Option<&Draft<'a>> {
        self.draft.as_ref().filter(|draft| !matches!(draft.proposal, Proposal::Coupled))
    }

    /// The drafted token, where there is one.
    pub(crate) fn drafted(&self) -> Option<u32> {
        self.draft.and_then(|draft| u32::try_from(draft.token).ok())
    }

    /// Whether the survey can run the race: every id is kept, and no verification comes first.
    pub(crate) fn races_unfiltered(&self) -> bool {
        self.sampling.draw == Draw::Gumbel && !self.sampling.filters() && self.rejection().is_none()
    }

    /// How many of the best ids the survey lists: enough for the filters as a rule, for the logprobs asked for,
    /// and one for the token that stands in where no residual is left.
    pub(crate) fn listed(&self) -> usize {
        let sampling = &self.sampling;
        let most = self.most_listed;
        let filtered = if sampling.filters() { sampling.top_k.unwrap_or(most).min(most) } else { 0 };
        filtered.max(sampling.top_logprobs).max(usize::from(self.rejection().is_some()))
    }

    pub(crate) fn blocks(&self) -> usize {
        self.valid.div_ceil(BLOCK)
    }

    /// The logits of a block after penalties, bias, mask and force_top_k.
    pub(crate) fn staged<'l>(&self, block: usize, logits: &'l Block) -> Cow<'l, Block> {
        if !self.edited && self.forced.is_none() {
            return Cow::Borrowed(logits);
        }
        let mut staged = *logits;
        let first = (block * BLOCK) as u32;
        self.penalise(first, &mut staged);
        self.add_bias(first, &mut staged);
        self.mask(block, &mut staged);
        self.force(first, &mut staged);
        Cow::Owned(staged)
    }

    /// x of a block: its staged logits times 1/T.
    pub(crate) fn x(&self, block: usize, logits: &Block) -> Block {
        let factor = self.sampling.inverse_temperature();
        self.staged(block, logits).map(|l| l * factor)
    }

    /// Chooses the ids of a block that stand at `places` in a row whose greatest x is `max`.
    pub(crate) fn choose(&self, block: usize, logits: &Block, max: f32, places: Range<Place>, chosen: &mut Chosen) {
        let (factor, depths) = (self.sampling.inverse_temperature(), places.start.depth()..=places.end.depth());
        // Only at the depth of an end does it matter where exactly an id stands.
        for i in ones(choose(&self.staged(block, logits), factor, max, &depths, chosen)) {
            if !places.contains(&Place::new(chosen.x[i], (block * BLOCK + i) as u32, max)) {
                chosen.mask &= !(1 << i);
            }
        }
    }

    fn penalise(&self, first: u32, logits: &mut Block) {
        let penalties = self.sampling.penalties;
        if penalties == Penalties::OFF {
            return;
        }
        for (id, written) in self.edits.text(first..first + BLOCK as u32) {
            edit(&mut logits[(id - first) as usize], |l| {
                let l = if l > 0.0 { l / penalties.repetition } else { l * penalties.repetition };
                match written {
                    0 => l,
                    _ => l - (penalties.frequency * written as f32 + penalties.presence),
                }
            });
        }
    }

    fn add_bias(&self, first: u32, logits: &mut Block) {
        for (id, bias) in self.edits.biases(first..first + BLOCK as u32) {
            edit(&mut logits[(id - first) as usize], |l| l + bias);
        }
    }

    fn mask(&self, block: usize, logits: &mut Block) {
        let mut masked = self.masked(block);
        while masked != 0 {
            logits[masked.trailing_zeros() as usize] = f32::NEG_INFINITY;
            masked &= masked - 1;
        }
    }

    /// One bit for each id of a block that may not be drawn.
    fn masked(&self, block: usize) -> u64 {
        let first = (block * BLOCK) as u32;
        let ids = first..first + BLOCK as u32;
        let listed = self.blacklist.into_iter().flat_map(|list| list.range(ids.clone()).copied());
        let banned = self.edits.bans(ids.clone()).chain(listed).fold(0, |bits, id| bits | 1 << (id - first));
        banned | !self.edits.allowed_bits(block)
    }

    fn masks(&self, id: u32) -> bool {
        self.masked(id as usize / BLOCK) >> (id as usize % BLOCK) & 1 == 1
    }

    fn force(&self, first: u32, logits: &mut Block) {
        if let Some(forced) = &self.forced {
            for (l, id) in logits.iter_mut().zip(first..) {
                if Place::new(*l, id, forced.max) >= forced.end {
                    *l = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// Changes a logit that is not −∞. A finite one that is no longer finite becomes +∞, which the survey refuses.
fn edit(logit: &mut f32, change: impl FnOnce(f32) -> f32) {
    if *logit == f32::NEG_INFINITY || logit.is_nan() {
        return;
    }
    let changed = change(*logit);
    *logit = if changed.is_finite() { changed } else { f32::INFINITY };
}

/// Whether a row's edits name ids of its vocabulary, and its mask covers it.
pub(crate) fn check_edits(row: usize, asked: &Row, valid: usize) -> Result<(), RowError> {
    let below = |field, id: Option<u32>| match id {
        Some(id) if id as usize >= valid => Err(RowError::Id { row, field, id, valid }),
        _ => Ok(()),
    };
    let edits = &asked.edits;
    below("logit_bias", edits.bias.and_then(crate::LogitBias::last))?;
    below("banned", edits.banned.and_then(|banned| banned.last().copied()))?;
    below("ids", asked.ids.iter().max().copied())?;
    let needed = valid.div_ceil(32);
    match edits.allowed {
        Some(words) if words.len() < needed => Err(RowError::Mask { row, found: words.len(), needed, valid }),
        _ => Ok(()),
    }
}

fn check_draft(row: usize, draft: &Draft, valid: usize) -> Result<(), RowError> {
    let token = draft.token;
    if token < -1 || token >= valid as i64 {
        return Err(RowError::DraftToken { row, token, valid });
    }
    let delta = match draft.proposal {
        Proposal::Distribution { logprobs, .. } if logprobs.len() < valid => {
            return Err(RowError::DraftLength { row, found: logprobs.len(), valid });
        }
        Proposal::Distribution { delta, .. } | Proposal::OneHot { delta } => delta,
        Proposal::Coupled => 0.0,
    };
    if !(delta >= 0.0 && delta.is_finite()) {
        return Err(RowError::DraftDelta { row, delta });
    }
    Ok(())
}
