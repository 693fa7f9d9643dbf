//! `klero chat`: a conversation in the terminal, or line by line from a pipe.

mod command;
mod conversation;
mod input;

use crate::cli::ChatArgs;
use crate::failure::{Failure, tell};
use crate::generation::End;
use crate::{interrupt, prompt};
use command::{HELP, Line};
use conversation::{Answer, Conversation, Ending, Script};
use input::{Input, Read};
use klero_models::Model;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Talks until the user has enough.
pub fn run(args: &ChatArgs) -> Result<ExitCode, Failure> {
    let name = prompt::model_name(args.model.as_ref())?;
    let model = Model::load(&prompt::model_path(args.model.as_ref())?)?;
    let mut conversation = Conversation::new(&model, name, args)?;
    if let Some(path) = &args.load {
        load(&mut conversation, path)?;
    }
    let mut input = Input::new()?;
    interrupt::listen()?;
    tell(format_args!("{}, seed {}", conversation.script.model, seed(&conversation.script)));
    if input.is_terminal() {
        tell("A line is a message; /help lists commands; Ctrl-D ends.");
    }
    let talked = talk(&mut conversation, &mut input);
    input.close();
    talked
}

fn talk(conversation: &mut Conversation, input: &mut Input) -> Result<ExitCode, Failure> {
    loop {
        interrupt::forget();
        let line = match input.read()? {
            Read::End => return Ok(ExitCode::SUCCESS),
            Read::Interrupted => {
                tell("Ctrl-D or /quit ends the chat.");
                continue;
            }
            Read::Line(line) if line.trim().is_empty() => continue,
            Read::Line(line) => line,
        };
        match obey(conversation, &line) {
            Ok(Next::Line) => {}
            Ok(Next::End) => return Ok(ExitCode::SUCCESS),
            // Somebody who sits there can say something else.
            Err(Failure::Usage(message) | Failure::Run(message)) if input.is_terminal() => tell(message),
            Err(failure) => return Err(failure),
        }
        if interrupt::interrupted() && !input.is_terminal() {
            return Ok(ExitCode::from(interrupt::INTERRUPTED));
        }
    }
}

/// What comes after a line.
enum Next {
    Line,
    End,
}

fn obey(conversation: &mut Conversation, line: &str) -> Result<Next, Failure> {
    match Line::parse(line)? {
        Line::Message(content) => finish(&conversation.say(content, print)?)?,
        Line::Again => finish(&conversation.again(print)?)?,
        Line::Undo => conversation.undo()?,
        Line::New => conversation.script.turns.clear(),
        Line::System(system) => conversation.script.system = system,
        Line::Set(name, value) => {
            conversation.script.params = command::set(&conversation.script.params, &name, &value)?
        }
        Line::Show => tell(serde_json::to_string_pretty(&conversation.script.params).map_err(damaged)?),
        Line::Help => tell(HELP),
        Line::Save(path) => save(&conversation.script, &path)?,
        Line::Load(path) => load(conversation, &path)?,
        Line::Quit => return Ok(Next::End),
    }
    Ok(Next::Line)
}

/// Writes a part of an answer.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Ends the line of an answer, and says why it ended if that was not by itself.
fn finish(answer: &Answer) -> Result<(), Failure> {
    print("\n")?;
    let why = match answer.ending {
        Ending::Itself(End::Token) => String::new(),
        Ending::Itself(End::Length) => "; as long as an answer may be (--max-tokens)".to_owned(),
        Ending::Itself(End::Context) => "; the model's context is full: /new or /undo".to_owned(),
        Ending::Interrupted => "; interrupted".to_owned(),
    };
    let speed = answer.tokens as f64 / answer.time.as_secs_f64();
    tell(format_args!("({} tokens, {speed:.1} tokens/s{why})", answer.tokens));
    Ok(())
}

fn save(script: &Script, path: &Path) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(script).map_err(damaged)? + "\n";
    std::fs::write(path, text).map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))
}

fn load(conversation: &mut Conversation, path: &Path) -> Result<(), Failure> {
    let named = |error: String| Failure::Run(format!("cannot load {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    let mut script: Script = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    let sampling = script.params.check().map_err(|error| named(error.to_string()))?;
    script.params.seed = Some(sampling.seed());
    if script.model != conversation.script.model {
        tell(format_args!("note: {} answered in that chat", script.model));
        script.model.clone_from(&conversation.script.model);
    }
    conversation.script = script;
    tell(format_args!("{} messages, seed {}", conversation.script.turns.len(), seed(&conversation.script)));
    Ok(())
}

fn seed(script: &Script) -> u64 {
    script.params.seed.unwrap_or_default()
}

fn damaged(error: serde_json::Error) -> Failure {
    Failure::Run(error.to_string())
}
