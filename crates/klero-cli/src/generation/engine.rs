//! Texts that grow together: one reading of the weights for all of them.

use super::drafter::{Drafter, Guess, last_states};
use super::{GenerationError, Text};
use klero::{FusedHead, Outcome, Policy, RowError, Speculated, Speculation};
use klero_models::{Model, Sequence};
use std::time::{Duration, Instant};

/// Tokens of a prompt that are fed at a time.
pub const PIECE: usize = 64;

/// How long the parts of the work took, and how much of it there was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Tokens of prompts that were read, and the bodies' time for them.
    pub prompt: (usize, Duration),
    /// Tokens drawn after the first of each text, and the body's time for them.
    pub body: (usize, Duration),
    /// Tokens drawn, and the head's time for them.
    pub head: (usize, Duration),
    /// What was guessed ahead.
    pub drafts: Drafts,
}

/// What became of guesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drafts {
    /// Tokens guessed.
    pub drafted: usize,
    /// Those of them that were right.
    pub accepted: usize,
    /// Steps of the model, counted for each text.
    pub steps: usize,
    /// The time for guessing.
    pub time: Duration,
}

/// A model that lets texts grow.
///
/// In a step every text gets a token, or as many as its guess is right and one more, from one pass through the body and one
/// through the head. Texts may join and leave between steps.
pub struct Engine<'m> {
    model: &'m Model,
    head: FusedHead<'m>,
    policy: Policy<'m>,
    drafter: Option<Drafter<'m>>,
    timing: Timing,
}

/// What a step gives a text: the tokens written, none where the text ends before them or the next step must look closer.
pub type Step = Result<Vec<Outcome>, GenerationError>;

impl<'m> Engine<'m> {
    /// An engine that guesses nothing.
    ///
    /// # Errors
    /// [`GenerationError::Head`] if the model's vocabulary is too large.
    pub fn new(model: &'m Model) -> Result<Self, GenerationError> {
        let head = FusedHead::new(model.head())?;
        Ok(Self { model, head, policy: Policy::default(), drafter: None, timing: Timing::default() })
    }

    /// The same with settings that hold for all texts.
    #[must_use]
    pub fn with_policy(self, policy: Policy<'m>) -> Self {
        Self { policy, ..self }
    }

    /// The same with guesses.
    #[must_use]
    pub fn with_drafter(self, drafter: Drafter<'m>) -> Self {
        Self { drafter: Some(drafter), ..self }
    }

    /// The work so far.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Feeds a piece of every text of which more than `keep` tokens are unread. True as long as that is so of any. Calling
    /// this is optional: a step reads what is unread. It gives a caller the chance to turn back; and a text that was read
    /// but for one token can be cloned into samples that need not read it again.
    ///
    /// # Errors
    /// [`GenerationError::Model`].
    pub fn read_ahead(&mut self, texts: &mut [&mut Text], keep: usize) -> Result<bool, GenerationError> {
        let start = Instant::now();
        let mut unread = pieces(texts.iter_mut().map(|text| text.unread()), keep);
        self.model.forward(&mut unread.pieces)?;
        let (fed, mut more) = (unread.fed(), unread.more);
        if let Some(drafter) = self.drafter.as_ref().and_then(Drafter::model) {
            let mut unread = pieces(texts.iter_mut().map(|text| drafter.unread(text)), keep);
            drafter.forward(&mut unread.pieces)?;
            more |= unread.more;
        }
        add(&mut self.timing.prompt, fed, start);
        Ok(more)
    }

    /// Gives every text, none of which has ended, its next tokens.
    ///
    /// # Errors
    /// [`GenerationError::Model`] and [`GenerationError::Head`], after which the texts are of no use. What is wrong with one
    /// text is its own [`GenerationError::Row`]; the others are not affected.
    pub fn step(&mut self, texts: &mut [&mut Text]) -> Result<Vec<Step>, GenerationError> {
        let guesses = self.guess(texts)?;
        let hidden = self.read(texts, &guesses)?;
        let verified = self.verify(texts, &guesses, &hidden)?;
        let steps = texts.iter_mut().zip(&guesses).zip(verified);
        Ok(steps.map(|((text, guess), verified)| self.write(text, guess, verified)).collect())
    }

    fn guess(&mut self, texts: &mut [&mut Text]) -> Result<Vec<Guess>, GenerationError> {
        let Some(drafter) = &self.drafter else { return Ok(texts.iter().map(|_| Guess::default()).collect()) };
        let start = Instant::now();
        let guesses = drafter.guess(texts, self.policy)?;
        self.timing.drafts.time += start.elapsed();
        self.timing.drafts.drafted += guesses.iter().map(|guess| guess.tokens.len()).sum::<usize>();
        Ok(guesses)
    }

    /// Feeds what is unread and what was guessed. Returns the hidden states before the guessed tokens and after the last.
    fn read(&mut self, texts: &mut [&mut Text], guesses: &[Guess]) -> Result<Vec<f32>, GenerationError> {
        let start = Instant::now();
        let new: usize =
            texts.iter_mut().filter(|text| text.written().is_empty()).map(|text| text.unread().1.len()).sum();
        let fed: Vec<Vec<u32>> =
            texts.iter_mut().zip(guesses).map(|(text, guess)| [text.unread().1, &guess.tokens].concat()).collect();
        let mut batch: Vec<(&mut Sequence, &[u32])> =
            texts.iter_mut().zip(&fed).map(|(text, fed)| (text.unread().0, &fed[..])).collect();
        let hidden = self.model.forward(&mut batch)?;
        add(if new > 0 { &mut self.timing.prompt } else { &mut self.timing.body }, new, start);
        let wanted = fed.iter().zip(guesses).map(|(fed, guess)| (fed.len(), guess.tokens.len() + 1));
        Ok(last_states(&hidden, self.model.config().dim, wanted))
    }

    fn verify(
        &mut self,
        texts: &[&mut Text],
        guesses: &[Guess],
        hidden: &[f32],
    ) -> Result<Vec<Result<Speculated, RowError>>, GenerationError> {
        let start = Instant::now();
        let vocabulary = self.model.tokenizer().vocabulary();
        let rule = self.drafter.as_ref().map(|drafter| drafter.rule).unwrap_or_default();
        let drafts: Vec<Speculation> = texts
            .iter()
            .zip(guesses)
            .map(|(text, guess)| Speculation::new(text.row(vocabulary), &guess.tokens, |j| guess.proposal(j, rule)))
            .collect();
        let verified = self.head.with_policy(self.policy).batch(hidden)?.verify(&drafts)?;
        let drawn = verified.iter().flatten().map(|verified| verified.outcomes.len()).sum();
        add(&mut self.timing.head, drawn, start);
        Ok(verified)
    }

    /// Writes what a text was given.
    fn write(&mut self, text: &mut Text, guess: &Guess, verified: Result<Speculated, RowError>) -> Step {
        text.undrafted = verified.is_err();
        match verified {
            Ok(verified) => {
                self.timing.drafts.steps += 1;
                self.timing.drafts.accepted += verified.accepted;
                self.timing.body.0 += if text.written().is_empty() { 0 } else { verified.outcomes.len() };
                Ok(text.write(verified.outcomes, self.model.tokenizer().ends()))
            }
            // What is wrong may stand behind tokens that hold, or in the draft: the next step looks at one token alone.
            Err(_) if !guess.tokens.is_empty() => Ok(text.write(Vec::new(), &[])),
            Err(error) => Err(GenerationError::Row { position: text.row(0).position, error: error.with_row(0) }),
        }
    }
}

/// The next piece of each of some sequences.
struct Pieces<'t> {
    pieces: Vec<(&'t mut Sequence, &'t [u32])>,
    /// Whether there is another piece of any.
    more: bool,
}

impl Pieces<'_> {
    fn fed(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.len()).sum()
    }
}

/// Cuts a piece of all that has more than `keep` unread tokens; at least one token is left.
fn pieces<'t>(unread: impl Iterator<Item = (&'t mut Sequence, &'t [u32])>, keep: usize) -> Pieces<'t> {
    let keep = keep.max(1);
    let long = unread.filter(|(_, unread)| unread.len() > keep);
    let mut more = false;
    let pieces = long.map(|(read, unread)| {
        let (piece, rest) = unread.split_at(PIECE.min(unread.len() - 1));
        more |= rest.len() > keep;
        (read, piece)
    });
    Pieces { pieces: pieces.collect(), more }
}

fn add((count, time): &mut (usize, Duration), more: usize, start: Instant) {
    *count += more;
    *time += start.elapsed();
}
