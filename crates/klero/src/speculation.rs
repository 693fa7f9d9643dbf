//! Whole drafts: several tokens guessed ahead, verified in one call; and the distributions that they are drawn from.

use crate::batch::{Batch, FullRow};
use crate::edits::Edits;
use crate::order::Ranked;
use crate::row::{Draft, Outcome, Proposal, Row};
use crate::{Error, RowError};

/// A draft of k tokens as k + 1 rows: one to verify each token, and one to draw the token after the last.
///
/// ```
/// use klero::{Logits, Proposal, Row, SamplingParams, Speculation};
/// let sampling = SamplingParams { temperature: 0.0, ..Default::default() }.check().unwrap();
/// // Three rows of logits: the model's best tokens are 1, 0, 2. Drafted were 1 and 2.
/// let values = [0.0, 9.0, 0.0, /**/ 9.0, 0.0, 0.0, /**/ 0.0, 0.0, 9.0];
/// let draft = Speculation::new(Row::new(sampling, 40), &[1, 2], |_| Proposal::Coupled);
/// let verified = Logits::new(&values, 3, 3)?.batch().verify(&[draft])?.remove(0).unwrap();
/// assert_eq!((verified.accepted, verified.token), (1, 0));
/// # Ok::<(), klero::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Speculation<'a> {
    /// The rows, which may be changed (a grammar's mask differs from row to row).
    pub rows: Vec<Row<'a>>,
}

impl<'a> Speculation<'a> {
    /// Drafted `tokens` after the text of `row`: row j stands at the row's position + j and counts the tokens before it as
    /// written. `proposal` says how token j came about.
    pub fn new(row: Row<'a>, tokens: &'a [u32], proposal: impl Fn(usize) -> Proposal<'a>) -> Self {
        let at = |j: usize| Row {
            position: row.position.wrapping_add(j as u64),
            edits: Edits { drafted: &tokens[..j], ..row.edits },
            draft: tokens.get(j).map(|token| Draft { token: i64::from(*token), proposal: proposal(j) }),
            ..row
        };
        Self { rows: (0..=tokens.len()).map(at).collect() }
    }
}

/// A token drawn by a draft model, with the distribution it was drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposed {
    /// The token.
    pub token: u32,
    /// The processed logprob of every id of the row's valid vocabulary, −∞ where it was removed: what
    /// [`Proposal::Distribution`] takes.
    pub logprobs: Vec<f32>,
}

impl Proposed {
    fn of(full: &FullRow) -> Self {
        let FullRow { x, outcome, .. } = full;
        let mut order: Vec<Ranked> = (0..).zip(x).map(|(id, x)| Ranked::new(*x, id)).collect();
        let (_, last, _) = order.select_nth_unstable_by(outcome.kept - 1, |a, b| b.cmp(a));
        // An id's logprob differs from the token's as their x do.
        let shift = outcome.logprob - f64::from(x[outcome.token as usize]);
        let logprob = |(id, x): (u32, &f32)| match Ranked::new(*x, id) >= *last {
            true => (f64::from(*x) + shift) as f32,
            false => f32::NEG_INFINITY,
        };
        Self { token: outcome.token, logprobs: (0..).zip(x).map(logprob).collect() }
    }
}

impl Batch<'_> {
    /// Draws a token for every row, as [`Batch::draw`] does, and writes out the distribution it was drawn from: how a
    /// draft model proposes tokens that another model verifies by rejection. Its rows take [`crate::hash::Stream::Draft`],
    /// as what accepts a token must not know what drew it. A row's own draft is left aside.
    ///
    /// ```
    /// use klero::{Logits, Row, SamplingParams, hash::Stream};
    /// let values = [0.5f32, 0.3, 0.2].map(f32::ln);
    /// let sampling = SamplingParams { top_k: 2, seed: Some(1), ..Default::default() }.check().unwrap();
    /// let row = Row::new(sampling, 0).with_stream(Stream::Draft);
    /// let proposed = Logits::new(&values, 1, 3)?.batch().propose(&[row])?.remove(0).unwrap();
    /// assert!((proposed.logprobs[0].exp() - 0.625).abs() < 1e-6);
    /// assert_eq!(proposed.logprobs[2], f32::NEG_INFINITY);
    /// # Ok::<(), klero::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Batch::draw`].
    pub fn propose(&self, rows: &[Row]) -> Result<Vec<Result<Proposed, RowError>>, Error> {
        self.expect(rows.len())?;
        let propose = |(i, row): (usize, &Row)| {
            Ok(self.row_in_full(i, &Row { draft: None, ..*row })?.map(|full| Proposed::of(&full)))
        };
        rows.iter().enumerate().map(propose).collect()
    }
}

/// What became of a draft.
#[derive(Clone, Debug, PartialEq)]
pub struct Speculated {
    /// How many of its tokens were accepted.
    pub accepted: usize,
    /// The token after them.
    pub token: u32,
    /// The outcomes of the accepted rows and of the one that gave the token.
    pub outcomes: Vec<Outcome>,
}

impl Speculated {
    /// Reads the outcomes of a draft's rows up to the first that is not accepted. A fault behind it does not matter.
    pub(crate) fn of(rows: Vec<Result<Outcome, RowError>>) -> Result<Self, RowError> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(rows.len());
        let accepted = |outcome: &Outcome| outcome.verification.is_some_and(|verification| verification.accepted);
        for row in rows {
            if outcomes.last().is_none_or(accepted) {
                outcomes.push(row?);
            }
        }
        let token = outcomes.last().map_or(0, |outcome| outcome.token);
        Ok(Self { accepted: outcomes.iter().filter(|outcome| accepted(outcome)).count(), token, outcomes })
    }
}
