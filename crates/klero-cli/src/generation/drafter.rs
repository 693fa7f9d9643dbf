//! Guessing tokens ahead, so that the model verifies several in one step.

use super::{GenerationError, Text};
use klero::hash::Stream;
use klero::{Edits, FusedHead, Policy, Proposal, Proposed, Row};
use klero_models::{Model, Sequence};
use thiserror::Error;

/// Who guesses, how far, and how guesses are verified.
pub struct Drafter<'m> {
    /// Where guesses come from.
    pub source: Source<'m>,
    /// The most tokens of a guess.
    pub tokens: usize,
    /// How they are verified.
    pub rule: Rule,
}

/// Where guesses come from.
pub enum Source<'m> {
    /// The text itself: what followed where it said the same before.
    Ngram,
    /// A smaller model with the same vocabulary.
    Model(DraftModel<'m>),
}

/// How guesses are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// A guess holds if it is the token that the model draws: the text is what it is without guesses.
    #[default]
    Coupled,
    /// By rejection: tokens follow the model's distribution, but are others than without guesses.
    Rejection,
}

/// A draft model that does not fit.
#[derive(Debug, Error)]
pub enum DraftError {
    /// It has more tokens, or fewer.
    #[error("the draft model has a vocabulary of {found} tokens, must be that of the model, {expected}")]
    Size {
        /// Its tokens.
        found: usize,
        /// The model's.
        expected: usize,
    },
    /// A token stands for other bytes.
    #[error("token {id} of the draft model is {found:?}, must be {expected:?} as in the model")]
    Token {
        /// The first such id.
        id: u32,
        /// Its bytes.
        found: String,
        /// The model's.
        expected: String,
    },
    /// Its head does not fit the draw.
    #[error(transparent)]
    Head(#[from] klero::Error),
}

/// A model that guesses for another.
pub struct DraftModel<'m> {
    model: &'m Model,
    head: FusedHead<'m>,
}

impl<'m> DraftModel<'m> {
    /// `draft` as a draft model of `target`.
    ///
    /// # Errors
    /// [`DraftError`] unless every token of one stands for the same bytes in the other.
    pub fn new(draft: &'m Model, target: &Model) -> Result<Self, DraftError> {
        let (ours, theirs) = (draft.tokenizer(), target.tokenizer());
        let (found, expected) = (ours.vocabulary(), theirs.vocabulary());
        if found != expected {
            return Err(DraftError::Size { found, expected });
        }
        // Without control tokens' names too: whether a token is text at all must be the same.
        let differs = |id: &u32| [true, false].iter().any(|all| ours.bytes(*id, *all) != theirs.bytes(*id, *all));
        if let Some(id) = (0..expected as u32).find(differs) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (found, expected) = (text(ours.bytes(id, true)), text(theirs.bytes(id, true)));
            return Err(DraftError::Token { id, found, expected });
        }
        Ok(Self { model: draft, head: FusedHead::new(draft.head())? })
    }

    /// What the draft model has read of a text, and what it has not; nothing of a text that is longer than its context.
    pub(super) fn unread<'t>(&self, text: &'t mut Text) -> (&'t mut Sequence, &'t [u32]) {
        let read = text.draft.get_or_insert_with(|| self.model.new_sequence());
        let unread = if text.tokens.len() > self.model.config().context { &[] } else { &text.tokens[read.len()..] };
        (read, unread)
    }

    /// Reads tokens of texts.
    pub(super) fn forward(&self, batch: &mut [(&mut Sequence, &[u32])]) -> Result<Vec<f32>, GenerationError> {
        Ok(self.model.forward(batch)?)
    }

    /// Guesses for each text, token after token, all texts together.
    fn guess(&self, open: Vec<Open>, rule: Rule, policy: Policy<'m>) -> Result<Vec<Guess>, GenerationError> {
        let mut all = open;
        for open in &mut all {
            // All but the last token of a guess are read.
            let room = (self.model.config().context + 1).saturating_sub(open.text.tokens.len());
            open.limit = open.limit.min(room);
        }
        loop {
            let mut open: Vec<&mut Open> = all.iter_mut().filter(|open| open.guess.tokens.len() < open.limit).collect();
            if open.is_empty() {
                return Ok(all.into_iter().map(|open| open.guess).collect());
            }
            let hidden = self.read(&mut open)?;
            self.draw(&mut open, &hidden, rule, policy)?;
        }
    }

    /// Reads every text with its guess so far and returns the last hidden state of each.
    fn read(&self, open: &mut [&mut Open]) -> Result<Vec<f32>, GenerationError> {
        let new = || self.model.new_sequence();
        let unread = |open: &mut &mut Open| -> Vec<u32> {
            let read = open.text.draft.get_or_insert_with(new).len();
            open.text.tokens.iter().chain(&open.guess.tokens).skip(read).copied().collect()
        };
        let unread: Vec<Vec<u32>> = open.iter_mut().map(unread).collect();
        let mut batch: Vec<(&mut Sequence, &[u32])> = open
            .iter_mut()
            .zip(&unread)
            .map(|(open, unread)| (open.text.draft.get_or_insert_with(new), &unread[..]))
            .collect();
        let hidden = self.forward(&mut batch)?;
        Ok(last_states(&hidden, self.model.config().dim, unread.iter().map(|unread| (unread.len(), 1))))
    }

    /// Draws a token more for every guess. Where none can be drawn the guess ends; what is wrong is no fault of the text.
    fn draw(&self, open: &mut [&mut Open], hidden: &[f32], rule: Rule, policy: Policy) -> Result<(), GenerationError> {
        let rows: Vec<Row> = open.iter().map(|open| open.row(self.model.tokenizer().vocabulary())).collect();
        let batch = self.head.with_policy(policy).batch(hidden)?;
        let drawn: Vec<Option<Proposed>> = match rule {
            Rule::Coupled => {
                let alone = |token| Proposed { token, logprobs: Vec::new() };
                batch.tokens(&rows)?.into_iter().map(|token| token.ok().map(alone)).collect()
            }
            Rule::Rejection => {
                let rows: Vec<Row> = rows.into_iter().map(|row| row.with_stream(Stream::Draft)).collect();
                batch.propose(&rows)?.into_iter().map(Result::ok).collect()
            }
        };
        for (open, drawn) in open.iter_mut().zip(drawn) {
            match drawn {
                Some(drawn) => open.guess.push(drawn),
                None => open.limit = open.guess.tokens.len(),
            }
        }
        Ok(())
    }
}

/// A text for which more may be guessed.
struct Open<'t> {
    text: &'t mut Text,
    guess: Guess,
    limit: usize,
}

impl Open<'_> {
    /// The row of the token after the guess so far.
    fn row(&self, vocabulary: usize) -> Row<'_> {
        let (row, drafted) = (self.text.row(vocabulary), &self.guess.tokens);
        Row { position: row.position + drafted.len() as u64, edits: Edits { drafted, ..row.edits }, ..row }
    }
}

/// Tokens that may follow a text.
#[derive(Default)]
pub(super) struct Guess {
    pub tokens: Vec<u32>,
    /// The distribution that each was drawn from, where there is one and it matters.
    logprobs: Vec<Vec<f32>>,
}

impl Guess {
    fn push(&mut self, Proposed { token, logprobs }: Proposed) {
        self.tokens.push(token);
        self.logprobs.push(logprobs);
    }

    /// How token j came about.
    pub fn proposal(&self, j: usize, rule: Rule) -> Proposal<'_> {
        match (rule, self.logprobs.get(j)) {
            (Rule::Coupled, _) => Proposal::Coupled,
            (Rule::Rejection, Some(logprobs)) => Proposal::Distribution { logprobs, delta: EXACT },
            (Rule::Rejection, None) => Proposal::OneHot { delta: EXACT },
        }
    }
}

/// The δ that costs nothing of exactness.
const EXACT: f64 = 0.0;

impl<'m> Drafter<'m> {
    /// The draft model, where there is one.
    pub(super) fn model(&self) -> Option<&DraftModel<'m>> {
        match &self.source {
            Source::Ngram => None,
            Source::Model(model) => Some(model),
        }
    }

    /// Guesses what follows each text.
    pub(super) fn guess(&self, texts: &mut [&mut Text], policy: Policy<'m>) -> Result<Vec<Guess>, GenerationError> {
        let limit = |text: &Text| self.tokens.min(text.room());
        match &self.source {
            Source::Ngram => Ok(texts
                .iter()
                .map(|text| Guess { tokens: continuation(&text.tokens, limit(text)), logprobs: Vec::new() })
                .collect()),
            Source::Model(model) => {
                let open = texts.iter_mut().map(|text| Open { limit: limit(text), text, guess: Guess::default() });
                model.guess(open.collect(), self.rule, policy)
            }
        }
    }
}

/// The longest run of tokens that is looked for.
const LONGEST: usize = 4;

/// What followed where the end of the text, as long a run of it as possible, stood last before: at most `count` tokens. A
/// text that repeats itself goes on doing so.
fn continuation(tokens: &[u32], count: usize) -> Vec<u32> {
    let runs = (1..=LONGEST.min(tokens.len())).rev();
    let last_before = |run: usize| {
        let end = &tokens[tokens.len() - run..];
        tokens[..tokens.len() - 1].windows(run).rposition(|other| other == end).map(|at| at + run)
    };
    let Some(from) = runs.into_iter().find_map(last_before) else { return Vec::new() };
    tokens[from..].iter().cycle().take(count).copied().collect()
}

/// The last hidden states, `dim` numbers each, of sequences of which each was fed some tokens and of which some are wanted.
pub(super) fn last_states(
    hidden: &[f32],
    dim: usize,
    fed_and_wanted: impl Iterator<Item = (usize, usize)>,
) -> Vec<f32> {
    let mut last = Vec::new();
    let mut end = 0;
    for (fed, wanted) in fed_and_wanted {
        end += fed * dim;
        last.extend_from_slice(&hidden[end - wanted * dim..end]);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_goes_on_as_it_did_where_it_said_the_same_before() {
        for (tokens, count, expected) in [
            (&[][..], 3, &[][..]),
            (&[7], 3, &[]),
            (&[1, 2, 3], 3, &[]),
            (&[1, 2, 3, 4, 1], 2, &[2, 3]),
            // The longest run counts, not the last.
            (&[1, 2, 3, 9, 2, 4, 1, 2], 2, &[3, 9]),
            // Of equal runs the last counts.
            (&[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]),
            // What repeats itself goes on.
            (&[1, 2, 1, 2], 5, &[1, 2, 1, 2, 1]),
            (&[5, 5], 3, &[5, 5, 5]),
            (&[1, 2, 3, 1], 0, &[]),
        ] {
            assert_eq!(continuation(tokens, count), expected, "{tokens:?}");
        }
    }
}
