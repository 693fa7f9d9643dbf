//! One text while it grows.

use super::GenerationError;
use crate::edits::OwnedEdits;
use klero::{Outcome, Row, Sampling};
use klero_models::{Model, ModelError, Sequence};

/// Why a text ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model drew a token that ends a text.
    Token,
    /// As many tokens were drawn as were asked for.
    Length,
    /// The model can read no further token.
    Context,
}

/// A text of one model: its tokens, what the model remembers of them, and how the next one is drawn. A clone grows on
/// independently.
#[derive(Clone)]
pub struct Text {
    /// The prompt and what was written after it.
    pub(super) tokens: Vec<u32>,
    prompt: usize,
    sampling: Sampling,
    /// What changes the logits; its history is the text.
    edits: OwnedEdits,
    /// What the model has read: the beginning of the tokens.
    sequence: Sequence,
    /// What a draft model has read, likewise.
    pub(super) draft: Option<Sequence>,
    /// Whether the next step must do without a draft.
    pub(super) undrafted: bool,
    max_tokens: usize,
    context: usize,
    end: Option<End>,
}

impl Text {
    /// A text that begins with `prompt`, which `edits` know, and grows by at most `max_tokens`.
    ///
    /// # Errors
    /// [`GenerationError::EmptyPrompt`]; [`GenerationError::Model`] if the prompt is longer than the model's context.
    pub fn new(
        model: &Model,
        prompt: Vec<u32>,
        sampling: Sampling,
        edits: OwnedEdits,
        max_tokens: usize,
    ) -> Result<Self, GenerationError> {
        if prompt.is_empty() {
            return Err(GenerationError::EmptyPrompt);
        }
        let (length, limit) = (prompt.len(), model.config().context);
        if length > limit {
            return Err(ModelError::ContextFull { length, limit }.into());
        }
        let mut text = Self {
            tokens: prompt,
            prompt: length,
            sampling,
            edits,
            sequence: model.new_sequence(),
            draft: None,
            undrafted: false,
            max_tokens,
            context: limit,
            end: None,
        };
        text.end = text.full();
        Ok(text)
    }

    /// The same text as sample `j` of several, with a seed of its own ([`Sampling::sample`]): what was read is not read
    /// again.
    #[must_use]
    pub fn sample(&self, j: u64) -> Self {
        Self { sampling: self.sampling.sample(j), ..self.clone() }
    }

    /// The same text, which does not read again what `earlier`, a text of the same model, has read of the tokens that both
    /// begin with. So a conversation is read once, whatever becomes of its end.
    #[must_use]
    pub fn reusing(self, earlier: Self) -> Self {
        let common = self.tokens.iter().zip(&earlier.tokens).take_while(|(own, other)| own == other).count();
        let reused = |mut read: Sequence| {
            read.truncate(common.min(self.tokens.len() - 1));
            read
        };
        Self { sequence: reused(earlier.sequence), draft: earlier.draft.map(reused), ..self }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.sampling.seed()
    }

    /// The number of tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.prompt
    }

    /// The tokens written so far.
    pub fn written(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// Why the text ended by itself; None before that.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// What the model has read, and what it has not.
    pub(super) fn unread(&mut self) -> (&mut Sequence, &[u32]) {
        let unread = &self.tokens[self.sequence.len()..];
        (&mut self.sequence, unread)
    }

    /// The row of the next token.
    pub(super) fn row(&self, vocabulary: usize) -> Row<'_> {
        let row = Row::new(self.sampling, self.tokens.len() as u64);
        row.with_vocabulary(vocabulary).with_edits(self.edits.edits())
    }

    /// How many tokens may be guessed before the next one, which must still have a place.
    pub(super) fn room(&self) -> usize {
        let length = self.max_tokens.saturating_sub(self.written().len() + 1);
        if self.undrafted { 0 } else { length.min(self.context.saturating_sub(self.tokens.len())) }
    }

    /// Writes what was drawn, up to what ends the text, and forgets what was read beyond it. Returns what was written.
    pub(super) fn write(&mut self, mut outcomes: Vec<Outcome>, ends: &[u32]) -> Vec<Outcome> {
        for (i, outcome) in outcomes.iter().enumerate() {
            if ends.contains(&outcome.token) {
                self.end = Some(End::Token);
            } else {
                self.tokens.push(outcome.token);
                self.edits.history.write(outcome.token);
                self.end = self.full();
            }
            if let Some(end) = self.end {
                outcomes.truncate(i + usize::from(end != End::Token));
                break;
            }
        }
        let read = self.tokens.len() - 1;
        [Some(&mut self.sequence), self.draft.as_mut()].into_iter().flatten().for_each(|s| s.truncate(read));
        outcomes
    }

    /// Whether there is no place for another token.
    fn full(&self) -> Option<End> {
        match self.written().len() >= self.max_tokens {
            true => Some(End::Length),
            false => (self.tokens.len() > self.context).then_some(End::Context),
        }
    }
}
