//! Chat templates: Jinja, run as transformers runs them, with bounds.
//!
//! The engine is minijinja with Python's methods on strings, lists and maps, blanks around blocks trimmed, and the
//! functions and the filter that templates are written for. A template is as much a stranger's work as the file it comes
//! in, so that its length, its work (and with it its memory) and what it writes are bounded. The engine descends by
//! recursion, while it reads an expression and while it drops what is nested: hence a thread of its own, whose stack
//! holds what the other bounds allow. One thing escapes them: minijinja charges nothing for lists that are added to each
//! other, so that dozens of doublings in a row exhaust the memory.

use super::tags::{self, Part};
use super::{Message, json};
use crate::{ModelError, Tokenizer};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::SystemTime;

/// The longest template, in bytes: several times the longest there are.
const LONGEST: usize = 1 << 17;

/// The most words, strings and signs in one tag: ten times what templates write.
const MOST_PARTS: usize = 2048;

/// Steps of the engine, or 64 bytes of text for each: far more than the longest conversation takes.
const FUEL: u64 = 1 << 19;

/// The longest text, in bytes: more than any model's context holds.
const LONGEST_TEXT: usize = 1 << 24;

/// Stack for twice the deepest list that the fuel pays for.
const STACK: usize = 1 << 29;

/// The most digits of a width or precision in a format.
const WIDEST_FORMAT: usize = 3;

/// What Jinja calls sequences: all that has a length and items.
const SEQUENCES: [ValueKind; 3] = [ValueKind::Seq, ValueKind::String, ValueKind::Map];

/// A model's way of writing a conversation as one text.
///
/// ```
/// use klero_models::{ChatTemplate, Message};
///
/// let text = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token }}{% endfor %}";
/// let template = ChatTemplate::new(text, "", "</s>")?;
/// assert_eq!(template.render(&[Message::new("user", "Hi")], false)?, "<|user|>Hi</s>");
/// # Ok::<(), klero_models::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    text: String,
    bos: String,
    eos: String,
    now: SystemTime,
}

impl ChatTemplate {
    /// A template, and the texts of the tokens that begin and end a conversation (empty: there is none).
    ///
    /// What it knows as the present time is decided here; see [`ChatTemplate::with_now`].
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`] if it is too long, or no template.
    pub fn new(text: &str, bos: &str, eos: &str) -> Result<Self, ModelError> {
        if text.len() > LONGEST {
            return Err(failed(format!("{} bytes exceed the limit of {LONGEST}", text.len())));
        }
        let parts = tags::parts(text);
        if let Some(tag) = parts.split(|part| *part == Part::Sign('\n')).find(|tag| tag.len() > MOST_PARTS) {
            return Err(failed(format!("a tag of {} words and signs exceeds the limit of {MOST_PARTS}", tag.len())));
        }
        namespaces_stay(&parts)?;
        let text = without_generation_tags(text);
        let template = Self { text, bos: bos.to_owned(), eos: eos.to_owned(), now: SystemTime::now() };
        template.on_a_stack(|environment| environment.template_from_str(&template.text).map(drop))?;
        Ok(template)
    }

    /// The template that a model's file carries.
    ///
    /// # Errors
    /// [`ModelError::NoChatTemplate`] if it carries none; [`ModelError::ChatTemplate`] as [`ChatTemplate::new`].
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        let text = tokenizer.chat_template().ok_or(ModelError::NoChatTemplate)?;
        let name = |token: Option<u32>| {
            token.map(|token| String::from_utf8_lossy(tokenizer.bytes(token, true)).into_owned()).unwrap_or_default()
        };
        Self::new(text, &name(tokenizer.bos()), &name(tokenizer.eos()))
    }

    /// The same at another time. Some templates write the date (`strftime_now`, here always in UTC), so that their text
    /// depends on it.
    #[must_use]
    pub fn with_now(self, now: SystemTime) -> Self {
        Self { now, ..self }
    }

    /// What the template knows as the present time.
    pub fn now(&self) -> SystemTime {
        self.now
    }

    /// Writes messages as one text; with `add_generation_prompt` up to where an answer begins.
    ///
    /// The text alone does not tell control tokens from messages that spell them out:
    /// [`Tokenizer::encode_chat`] does.
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`] if the template refuses the messages, with its own words, fails, or does not end in
    /// reasonable time.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ModelError> {
        let text = self.on_a_stack(|environment| {
            let message = |message: &Message| context!(role => &*message.role, content => &*message.content);
            let values = context! {
                messages => messages.iter().map(message).collect::<Vec<Value>>(),
                add_generation_prompt,
                bos_token => &*self.bos,
                eos_token => &*self.eos,
                tools => (),
                documents => (),
            };
            let mut text = Bounded(Vec::new());
            environment.template_from_str(&self.text)?.render_captured_to(values, &mut text)?;
            Ok(text.0)
        })?;
        String::from_utf8(text).map_err(|error| failed(error.to_string()))
    }

    /// The template's own text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn on_a_stack<T: Send>(&self, work: impl FnOnce(&Environment) -> Result<T, Error> + Send) -> Result<T, ModelError> {
        thread::scope(|scope| {
            let work = || work(&self.environment()).map_err(|error| failed(explain(&error)));
            let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            let thread = thread.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
            thread.join().unwrap_or_else(|_| Err(failed("the engine gave up".to_owned())))
        })
    }

    /// What transformers gives to templates.
    fn environment(&self) -> Environment<'_> {
        let mut environment = Environment::new();
        let blocks = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(blocks.expect("the usual delimiters"));
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(method);
        // No template needs them, and what they do is not paid for by fuel.
        environment.remove_filter("chain");
        environment.remove_filter("pprint");
        environment.add_test("sequence", |value: &Value| SEQUENCES.contains(&value.kind()));
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", raise_exception);
        let now = self.now;
        environment.add_function("strftime_now", move |format: &str| strftime(now, format));
        environment
    }
}

/// Python's methods. A format may not ask for endless padding, which is made before it is charged for.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let format = value.as_str().filter(|_| name == "format").unwrap_or_default();
    if format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > WIDEST_FORMAT) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a format asks for more than 999 places"));
    }
    unknown_method_callback(state, value, name, arguments)
}

/// The template's own refusal of the messages.
#[derive(Debug, thiserror::Error)]
#[error("it refuses the messages: {0}")]
struct Refusal(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
}

fn strftime(now: SystemTime, format: &str) -> Result<String, Error> {
    let written = Timestamp::try_from(now)
        .map(|now| now.to_zoned_datetime(TimeZone::UTC))
        .and_then(|now| jiff::fmt::strtime::format(format, &now));
    written.map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}

/// Text up to a limit.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_TEXT {
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(reason: String) -> ModelError {
    ModelError::ChatTemplate(reason)
}

/// What went wrong, and in which line.
fn explain(error: &Error) -> String {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    if let Some(refusal) = causes.find_map(|cause| cause.downcast_ref::<Refusal>()) {
        return refusal.to_string();
    }
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes more steps or memory than any conversation needs".to_owned(),
        (ErrorKind::WriteFailure, _) => format!("it writes more than {LONGEST_TEXT} bytes"),
        (kind, None) => kind.to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
    };
    error.line().map_or(what.clone(), |line| format!("{what} (line {line})"))
}

/// Refuses a template that uses a namespace other than by its attributes: one that holds itself never ends.
fn namespaces_stay(parts: &[Part]) -> Result<(), ModelError> {
    let word = |at: usize| match parts.get(at) {
        Some(Part::Word(word)) => Some(word.as_str()),
        _ => None,
    };
    let sign = |at: usize, wanted: &str| matches!(parts.get(at), Some(Part::Sign(c)) if wanted.contains(*c));
    let makes = |at: usize| sign(at + 1, "=") && word(at + 2) == Some("namespace") && sign(at + 3, "(");
    let names: BTreeSet<&str> = (0..parts.len()).filter(|at| makes(*at)).filter_map(word).collect();
    for at in 0..parts.len() {
        let Some(name) = word(at).filter(|_| at == 0 || !sign(at - 1, ".")) else { continue };
        let stays = match name {
            "namespace" => at >= 2 && word(at - 2).is_some() && makes(at - 2),
            _ => !names.contains(name) || makes(at) || sign(at + 1, ".[") || word(at + 1) == Some("is"),
        };
        if !stays {
            return Err(failed(format!("`{name}` is used as a value: a namespace is known by its attributes alone")));
        }
    }
    Ok(())
}

/// Training marks an answer by `{% generation %}` and `{% endgeneration %}`, which say nothing here: they become an `if`
/// that always holds.
fn without_generation_tags(template: &str) -> String {
    let mut text = String::new();
    let mut copied = 0;
    for tag in tags::tags(template) {
        let inside = &template[tag.clone()];
        let name = tags::bare(inside);
        let instead = match name {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        text.push_str(&template[copied..tag.start]);
        text.push_str(&inside.replace(name, instead));
        copied = tag.end;
    }
    text.push_str(&template[copied..]);
    text
}
