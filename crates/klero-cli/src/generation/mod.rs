//! Texts that grow: a model's body, its fused head and checked parameters, token after token.
//!
//! A [`Text`] is what one text needs and nothing else; an [`Engine`] lets any number of them grow together, so that weights
//! are read once for all, and lets a [`Drafter`] guess ahead. A [`Generation`] is the two for a single text, as an iterator.
//!
//! A token depends on the text before it, on the parameters and their seed, and on nothing else: not on the texts beside it,
//! nor, with coupled drafts, on what was guessed. Nothing here knows of terminals or of time to print.

mod drafter;
mod engine;
mod text;

use crate::edits::OwnedEdits;
pub use drafter::{DraftError, DraftModel, Drafter, Rule, Source};
pub use engine::{Drafts, Engine, PIECE, Step, Timing};
use klero::{Error, Outcome, RowError, Sampling};
use klero_models::{Model, ModelError};
pub use text::{End, Text};
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

/// Draws tokens after a prompt. An iterator of outcomes, which ends before an end-of-sequence token.
///
/// ```no_run
/// use klero_cli::{edits::OwnedEdits, generation::Generation};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = klero_models::Model::load(&klero_models::default_model()?)?;
/// let prompt = model.tokenizer().encode("The capital of France is", false)?;
/// let sampling = klero::SamplingParams { temperature: 0.8, seed: Some(7), ..Default::default() }.check()?;
/// for outcome in Generation::new(&model, prompt, sampling, OwnedEdits::default(), 20)? {
///     println!("token {}", outcome?.token);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Generation<'m> {
    engine: Engine<'m>,
    text: Text,
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
        let text = Text::new(model, prompt, sampling, edits, max_tokens)?;
        Ok(Self { engine: Engine::new(model)?, text, failed: false })
    }

    /// The same generation, which does not read again what `earlier` has read: [`Text::reusing`].
    #[must_use]
    pub fn reusing(self, earlier: Text) -> Self {
        Self { text: self.text.reusing(earlier), ..self }
    }

    /// The text as it is now, with all that the model has read of it.
    pub fn into_text(self) -> Text {
        self.text
    }

    /// Why the iterator ended; None before that, and after an error.
    pub fn end(&self) -> Option<End> {
        self.text.end()
    }

    /// The work so far.
    pub fn timing(&self) -> Timing {
        self.engine.timing()
    }

    /// Feeds a piece of a long prompt. True as long as there is more than the next token takes along anyway; calling
    /// this is optional, and gives a caller the chance to turn back.
    ///
    /// # Errors
    /// [`GenerationError::Model`].
    pub fn read_ahead(&mut self) -> Result<bool, GenerationError> {
        self.engine.read_ahead(&mut [&mut self.text], PIECE)
    }

    /// The next token; None if the text ends before it.
    fn step(&mut self) -> Result<Option<Outcome>, GenerationError> {
        Ok(self.engine.step(&mut [&mut self.text])?.remove(0)?.pop())
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Outcome, GenerationError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.text.end().is_some() {
            return None;
        }
        let outcome = self.step().transpose();
        self.failed = matches!(outcome, Some(Err(_)));
        outcome
    }
}
