//! Whole drafts: several tokens guessed ahead, verified in one call.

use crate::RowError;
use crate::edits::Edits;
use crate::row::{Draft, Outcome, Proposal, Row};

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
