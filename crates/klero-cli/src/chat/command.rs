//! What can be asked of the chat itself: lines that begin with a slash.

use crate::failure::Failure;
use klero::SamplingParams;
use serde_json::Value;
use std::path::PathBuf;

/// A line of the user.
#[derive(Debug, PartialEq)]
pub enum Line {
    /// Said to the model.
    Message(String),
    Help,
    New,
    Undo,
    Again,
    /// Without a text: none from now on.
    System(Option<String>),
    /// Shows the parameters.
    Show,
    Set(String, String),
    Save(PathBuf),
    Load(PathBuf),
    Quit,
}

pub const HELP: &str = "\
/again             answer again: another sample of the same seed
/undo              take back the last message and its answer
/new               forget all messages
/system [TEXT]     what the model is told before all messages
/set               show the parameters and the seed
/set NAME VALUE    change one: /set temperature 0.7, /set top_p 0.9, /set seed 42
/save FILE         write messages, parameters and seed
/load FILE         go on with what was saved
/quit              end, as Ctrl-D does";

impl Line {
    /// Reads a line that is not empty.
    ///
    /// # Errors
    /// A command that there is not, or that lacks something.
    pub fn parse(line: &str) -> Result<Self, Failure> {
        let Some(command) = line.strip_prefix('/') else { return Ok(Self::Message(line.to_owned())) };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let needed = |what: &str| match rest {
            "" => Err(Failure::Usage(format!("/{name} needs {what}"))),
            rest => Ok(rest),
        };
        let alone = |line: Self| match rest {
            "" => Ok(line),
            rest => Err(Failure::Usage(format!("/{name} takes nothing, but was given {rest:?}"))),
        };
        match name {
            "help" | "?" => alone(Self::Help),
            "new" => alone(Self::New),
            "undo" => alone(Self::Undo),
            "again" => alone(Self::Again),
            "quit" | "exit" => alone(Self::Quit),
            "system" => Ok(Self::System((!rest.is_empty()).then(|| rest.to_owned()))),
            "save" => Ok(Self::Save(needed("a file")?.into())),
            "load" => Ok(Self::Load(needed("a file")?.into())),
            "set" => match rest.split_once(char::is_whitespace) {
                Some((field, value)) => Ok(Self::Set(field.to_owned(), value.trim().to_owned())),
                None if rest.is_empty() => Ok(Self::Show),
                None => Err(Failure::Usage(format!("/set {rest} needs a value"))),
            },
            _ => Err(Failure::Usage(format!("/{name} is no command; /help lists them"))),
        }
    }
}

/// The parameters with one of them changed.
///
/// # Errors
/// If there is no such parameter, or it cannot have the value.
pub fn set(params: &SamplingParams, name: &str, value: &str) -> Result<SamplingParams, Failure> {
    let written = serde_json::to_value(params).map_err(|error| Failure::Run(error.to_string()))?;
    let Value::Object(mut fields) = written else { return Err(Failure::Run("parameters are an object".to_owned())) };
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    if !fields.contains_key(name) {
        return Err(Failure::Usage(format!("{name} is no parameter; there are {}", names.join(", "))));
    }
    // A number or true, or else a word.
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    fields.insert(name.to_owned(), value);
    let refused = |error: serde_json::Error| Failure::Usage(format!("{name}: {error}"));
    let params: SamplingParams = serde_json::from_value(Value::Object(fields)).map_err(refused)?;
    // A seed that was taken away is chosen anew.
    let seed = params.check()?.seed();
    Ok(SamplingParams { seed: Some(seed), ..params })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        match result {
            Err(Failure::Usage(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_messages_or_commands() {
        for (line, expected) in [
            ("hello /undo", Line::Message("hello /undo".to_owned())),
            ("/undo", Line::Undo),
            ("/undo  ", Line::Undo),
            ("/system  Be brief. ", Line::System(Some("Be brief.".to_owned()))),
            ("/system", Line::System(None)),
            ("/set", Line::Show),
            ("/set top_p  0.9", Line::Set("top_p".to_owned(), "0.9".to_owned())),
            ("/save a b.json", Line::Save("a b.json".into())),
        ] {
            assert_eq!(Line::parse(line).unwrap(), expected);
        }
        for (line, named) in [
            ("/undone", "/undone is no command"),
            ("/undo 2", "/undo takes nothing"),
            ("/save", "/save needs a file"),
            ("/set top_p", "/set top_p needs a value"),
            ("/", "/ is no command"),
        ] {
            assert!(refusal(Line::parse(line)).contains(named), "{line}");
        }
    }

    #[test]
    fn parameters_change_one_by_one_and_are_checked() {
        let params = SamplingParams { seed: Some(7), ..Default::default() };
        let changed = set(&params, "temperature", "0.5").unwrap();
        assert_eq!(changed, SamplingParams { temperature: 0.5, ..params.clone() });
        assert_eq!(set(&params, "seed", "-1").unwrap().seed, Some(u64::MAX));
        assert_eq!(set(&params, "draw", "inverse_cdf").unwrap().draw, klero::Draw::InverseCdf);
        assert!(set(&params, "seed", "null").unwrap().seed.is_some());
        assert!(refusal(set(&params, "heat", "1")).contains("heat is no parameter; there are confidence, draw"));
        assert!(refusal(set(&params, "top_p", "0")).contains("top_p is 0"));
        assert!(refusal(set(&params, "top_k", "many")).contains("top_k"));
    }
}
