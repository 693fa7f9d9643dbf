//! A conversation: its messages, how answers are drawn, and what the model has read of it.
//!
//! The messages become one text by the model's template, and an answer is drawn as any text is: position by position, with
//! one seed for the whole conversation. So it follows from the messages before it, the parameters and the seed. An answer that
//! is asked for again is the next sample of the same text, with the seed that sampling gives it.

use crate::cli::ChatArgs;
use crate::failure::Failure;
use crate::generation::{End, Generation, Text};
use crate::interrupt::interrupted;
use klero::SamplingParams;
use klero_models::{ChatTemplate, Message, Model};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};

/// One message of the user or the model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub role: Role,
    pub content: String,
    /// Of an answer, which sample it is; 0 unless it was asked for again.
    #[serde(default, skip_serializing_if = "is_first")]
    pub sample: u64,
}

fn is_first(sample: &u64) -> bool {
    *sample == 0
}

/// Whose a message is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
}

/// What can be saved of a conversation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The name of the model that answered.
    pub model: String,
    pub system: Option<String>,
    /// With a seed.
    pub params: SamplingParams,
    pub turns: Vec<Turn>,
}

/// A conversation with a model.
pub struct Conversation<'m> {
    pub script: Script,
    model: &'m Model,
    template: ChatTemplate,
    args: &'m ChatArgs,
    /// What the model has read last.
    read: Option<Text>,
}

/// What became of an answer.
pub struct Answer {
    pub tokens: usize,
    pub time: Duration,
    pub ending: Ending,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Itself(End),
    Interrupted,
}

impl<'m> Conversation<'m> {
    /// A conversation in which nothing was said yet.
    ///
    /// # Errors
    /// If the model has no template that can be used, or a parameter makes no sense.
    pub fn new(model: &'m Model, name: String, args: &'m ChatArgs) -> Result<Self, Failure> {
        let params = args.sampling.params();
        // The random seed is decided here, once.
        let params = SamplingParams { seed: Some(params.check()?.seed()), ..params };
        let script = Script { model: name, system: args.system.clone(), params, turns: vec![] };
        Ok(Self { script, model, template: ChatTemplate::of(model.tokenizer())?, args, read: None })
    }

    /// Says something and draws the answer, which is handed to `write` as it comes.
    ///
    /// # Errors
    /// If the template refuses the messages, no token can be drawn or nothing written; then nothing was said.
    pub fn say(&mut self, content: String, write: impl FnMut(&str) -> io::Result<()>) -> Result<Answer, Failure> {
        self.script.turns.push(Turn { role: Role::User, content, sample: 0 });
        self.answer(0, write).inspect_err(|_| drop(self.script.turns.pop()))
    }

    /// Draws the last answer again, as another sample.
    ///
    /// # Errors
    /// As [`Conversation::say`], and if there is no answer; then the old one stays.
    pub fn again(&mut self, write: impl FnMut(&str) -> io::Result<()>) -> Result<Answer, Failure> {
        let last = self.script.turns.pop_if(|turn| turn.role == Role::Assistant);
        let last = last.ok_or_else(|| Failure::Usage("there is no answer to give again".to_owned()))?;
        self.answer(last.sample + 1, write).inspect_err(|_| self.script.turns.push(last))
    }

    /// Takes back the last message and its answer.
    ///
    /// # Errors
    /// If there is none.
    pub fn undo(&mut self) -> Result<(), Failure> {
        let last = self.script.turns.iter().rposition(|turn| turn.role == Role::User);
        let last = last.ok_or_else(|| Failure::Usage("there is nothing to undo".to_owned()))?;
        self.script.turns.truncate(last);
        Ok(())
    }

    fn answer(&mut self, sample: u64, write: impl FnMut(&str) -> io::Result<()>) -> Result<Answer, Failure> {
        let tokens = self.model.tokenizer().encode_chat(&self.template, &self.messages(), true)?;
        let edits = self.args.sampling.edits(&tokens)?;
        let sampling = self.script.params.check()?.sample(sample);
        let mut generation = Generation::new(self.model, tokens, sampling, edits, self.args.max_tokens.get())?;
        if let Some(read) = self.read.take() {
            generation = generation.reusing(read);
        }
        let start = Instant::now();
        let (content, ending) = self.draw(&mut generation, write)?;
        let text = generation.into_text();
        let answer = Answer { tokens: text.written().len(), time: start.elapsed(), ending };
        self.read = Some(text);
        self.script.turns.push(Turn { role: Role::Assistant, content, sample });
        Ok(answer)
    }

    fn draw(
        &self,
        generation: &mut Generation,
        mut write: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(String, Ending), Failure> {
        let mut content = String::new();
        let mut stream = self.model.tokenizer().stream(false);
        while !interrupted() && generation.read_ahead()? {}
        let ending = loop {
            if interrupted() {
                break Ending::Interrupted;
            }
            let Some(outcome) = generation.next() else {
                break Ending::Itself(generation.end().unwrap_or(End::Token));
            };
            let text = stream.push(outcome?.token);
            write(&text)?;
            content.push_str(&text);
        };
        let rest = stream.finish();
        write(&rest)?;
        Ok((content + &rest, ending))
    }

    fn messages(&self) -> Vec<Message> {
        let system = self.script.system.iter().map(|system| Message::new("system", system));
        let turn = |turn: &Turn| match turn.role {
            Role::User => Message::new("user", &turn.content),
            Role::Assistant => Message::new("assistant", &turn.content),
        };
        system.chain(self.script.turns.iter().map(turn)).collect()
    }
}
