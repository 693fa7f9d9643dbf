//! A text on its way to the output: from tokens to characters, up to what ends it.

use super::output::{Output, Token};
use crate::generation::{End, GenerationError, Step, Text};
use crate::text::StopStrings;
use klero_models::{Model, TextStream};
use std::io;

/// A text that is being written.
pub struct Writing<'m> {
    pub label: Label,
    pub text: Text,
    stream: TextStream<'m>,
    stops: StopStrings,
    /// What was written. A last character of which only a part was drawn is left out.
    pub written: String,
    /// How many tokens were drawn for it.
    pub tokens: usize,
    pub ending: Option<Ending>,
}

/// Which text it is.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// The number of the text, from 0.
    pub index: usize,
    /// The number of its prompt, from 0.
    pub prompt: usize,
    /// Which sample of its prompt, from 0.
    pub sample: usize,
    /// Among how many.
    pub several: Several,
    /// The seed that gives the same text alone.
    pub seed: u64,
}

/// How many texts there are.
#[derive(Clone, Copy, Debug)]
pub struct Several {
    pub prompts: usize,
    /// Of each prompt.
    pub samples: usize,
}

impl Label {
    /// What tells the text from the others; None if there are no others.
    pub fn name(&self) -> Option<String> {
        let of = |what, i, all| (all > 1).then(|| format!("{what} {} of {all}", i + 1));
        let Several { prompts, samples } = self.several;
        match (of("prompt", self.prompt, prompts), of("sample", self.sample, samples)) {
            (Some(prompt), Some(sample)) => Some(format!("{prompt}, {sample}")),
            (prompt, sample) => prompt.or(sample),
        }
    }
}

/// Why a text ends.
pub enum Ending {
    Itself(End),
    Stop,
    Interrupted,
    /// No further token can be drawn.
    Failed(GenerationError),
}

impl Ending {
    /// In a word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Itself(End::Token) => "token",
            Self::Itself(End::Length) => "length",
            Self::Itself(End::Context) => "context",
            Self::Stop => "stop",
            Self::Interrupted => "interrupted",
            Self::Failed(_) => "failed",
        }
    }

    /// In a sentence, for people.
    pub fn describe(&self, model: &Model) -> String {
        match self {
            Self::Itself(End::Token) => "end of the text".to_owned(),
            Self::Itself(End::Length) => "as long as asked for (--max-tokens)".to_owned(),
            Self::Itself(End::Context) => {
                format!("the model's context of {} tokens is full", model.config().context)
            }
            Self::Stop => "stop string".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Failed(_) => "failed".to_owned(),
        }
    }
}

impl<'m> Writing<'m> {
    /// A text of which nothing is written yet.
    pub fn new(label: Label, text: Text, model: &'m Model, stops: &[String]) -> Self {
        let (stream, stops) = (model.tokenizer().stream(false), StopStrings::new(stops));
        Self { label, text, stream, stops, written: String::new(), tokens: 0, ending: None }
    }

    /// Writes what a step gave, up to what ends the text.
    pub fn take(&mut self, step: Step, output: &mut dyn Output) -> io::Result<()> {
        let outcomes = match step {
            Ok(outcomes) => outcomes,
            Err(error) => return self.end(Ending::Failed(error), output),
        };
        for outcome in &outcomes {
            let certain = self.stream.push(outcome.token);
            let text = self.stops.push(&certain);
            self.written.push_str(&text);
            self.tokens += 1;
            output.token(&self.label, &Token { outcome, certain: &certain, text: &text })?;
            if self.stops.found() {
                return self.end(Ending::Stop, output);
            }
        }
        match self.text.end() {
            Some(end) => self.end(Ending::Itself(end), output),
            None => Ok(()),
        }
    }

    /// Ends the text.
    pub fn end(&mut self, ending: Ending, output: &mut dyn Output) -> io::Result<()> {
        let rest = self.stops.finish();
        self.written.push_str(&rest);
        let ending = self.ending.insert(ending);
        output.end(&Ended { label: &self.label, rest: &rest, written: &self.written, tokens: self.tokens, ending })
    }
}

/// A text that has ended.
pub struct Ended<'w> {
    pub label: &'w Label,
    /// The last of it.
    pub rest: &'w str,
    /// All of it.
    pub written: &'w str,
    pub tokens: usize,
    pub ending: &'w Ending,
}
