//! A text that grows: a model's body, its fused head and checked parameters, token after token.
//!
//! Nothing here knows of terminals or of time to print; a caller takes tokens from the iterator and decides what to do
//! with them.

use crate::edits::OwnedEdits;
use klero::{Error, FusedHead, Outcome, Row, RowError, Sampling};
use klero_models::{Model, ModelError, Sequence};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What can go wrong while a text grows.
#[derive(Debug, Error)]
pub enum GenerationError {
    /// There is nothing to go on from.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// The model refused the tokens, as when the prompt is longer than its context.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The head does not fit the draw.
    #[error(transparent)]
    Head(#[from] Error),
    /// No token can be drawn from the logits.
    #[error("position {position}: {error}")]
    Row {
        /// Where in the text.
        position: u64,
        /// Why.
        error: RowError,
    },
}

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

/// How long the parts of the work took, and how much of it there was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Tokens of the prompt, and the body's time for them.
    pub prompt: (usize, Duration),
    /// Drawn tokens that were fed back, and the body's time for them.
    pub body: (usize, Duration),
    /// Tokens drawn, and the head's time for them.
    pub head: (usize, Duration),
}

/// Tokens of a prompt that are fed at a time.
const PIECE: usize = 64;

/// Draws tokens after a prompt. An iterator of outcomes, which ends before an end-of-sequence token.
///
/// A token depends on the text before it, on the parameters and their seed, and on nothing else.
pub struct Generation<'m> {
    model: &'m Model,
    head: FusedHead<'m>,
    sampling: Sampling,
    /// What changes the logits; its history is the text.
    edits: OwnedEdits,
    sequence: Sequence,
    /// Tokens of the text that the body has not seen.
    unread: Vec<u32>,
    max_tokens: usize,
    timing: Timing,
    end: Option<End>,
    failed: bool,
}

impl<'m> Generation<'m> {
    /// A text that begins with `prompt`, which `edits` know, and grows by at most `max_tokens`.
    ///
    /// # Errors
    /// [`GenerationError::EmptyPrompt`]; [`GenerationError::Model`] if the prompt is longer than the model's context;
    /// [`GenerationError::Head`] if the model's vocabulary is too large.
    pub fn new(
        model: &'m Model,
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
        Ok(Self {
            head: FusedHead::new(model.head())?,
            sequence: model.new_sequence(),
            model,
            sampling,
            edits,
            unread: prompt,
            max_tokens,
            timing: Timing::default(),
            end: None,
            failed: false,
        })
    }

    /// Why the iterator ended; None before that, and after an error.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The work so far.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Feeds a piece of a long prompt. True as long as there is more than the next token takes along anyway; calling
    /// this is optional, and gives a caller the chance to turn back.
    ///
    /// # Errors
    /// [`GenerationError::Model`].
    pub fn read_ahead(&mut self) -> Result<bool, GenerationError> {
        if self.unread.len() > PIECE {
            self.read(PIECE)?;
        }
        Ok(self.unread.len() > PIECE)
    }

    /// Feeds what is unread and draws the next token.
    fn step(&mut self) -> Result<Outcome, GenerationError> {
        let hidden = self.read(self.unread.len())?;
        let position = self.sequence.len() as u64;
        let row = Row::new(self.sampling, position)
            .with_vocabulary(self.model.tokenizer().vocabulary())
            .with_edits(self.edits.edits());
        let start = Instant::now();
        let drawn = self.head.draw(&hidden, &[row])?.remove(0);
        add(&mut self.timing.head, 1, start);
        let outcome = drawn.map_err(|error| GenerationError::Row { position, error })?;
        self.unread.push(outcome.token);
        self.edits.history.write(outcome.token);
        Ok(outcome)
    }

    /// Feeds the next `count` unread tokens, which must not be none, and returns the hidden state of the last.
    fn read(&mut self, count: usize) -> Result<Vec<f32>, GenerationError> {
        let start = Instant::now();
        let mut hidden = self.model.forward(&mut [(&mut self.sequence, &self.unread[..count])])?;
        let part = if self.timing.head.0 == 0 { &mut self.timing.prompt } else { &mut self.timing.body };
        add(part, count, start);
        self.unread.drain(..count);
        hidden.drain(..hidden.len() - self.model.config().dim);
        Ok(hidden)
    }

    /// Whether the text must end before another token is drawn.
    fn exhausted(&self) -> Option<End> {
        let full = self.sequence.len() + self.unread.len() > self.model.config().context;
        match self.timing.head.0 >= self.max_tokens {
            true => Some(End::Length),
            false => full.then_some(End::Context),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Outcome, GenerationError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.end = self.end.or_else(|| self.exhausted());
        if self.failed || self.end.is_some() {
            return None;
        }
        let outcome = self.step();
        match &outcome {
            Ok(outcome) if self.model.tokenizer().ends().contains(&outcome.token) => {
                self.end = Some(End::Token);
                return None;
            }
            Ok(_) => {}
            Err(_) => self.failed = true,
        }
        Some(outcome)
    }
}

fn add((count, time): &mut (usize, Duration), more: usize, start: Instant) {
    *count += more;
    *time += start.elapsed();
}
