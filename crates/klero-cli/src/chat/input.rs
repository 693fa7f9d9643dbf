//! Where lines come from: an editor with a history on a terminal, or the standard input as it is.

use crate::failure::Failure;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

/// What the user did.
pub enum Read {
    Line(String),
    /// Ctrl-C at an empty or unfinished line.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// A source of lines.
pub enum Input {
    Terminal { editor: Box<DefaultEditor>, history: Option<PathBuf> },
    Pipe,
}

impl Input {
    /// The terminal's, if there is one at both ends.
    pub fn new() -> Result<Self, Failure> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Pipe);
        }
        let config = Config::builder().bracketed_paste(true).auto_add_history(true).build();
        let mut editor = DefaultEditor::with_config(config).map_err(failed)?;
        let history = history_path();
        if let Some(path) = &history {
            // No history yet, or none that can be read, is no reason not to talk.
            let _ = editor.load_history(path);
        }
        Ok(Self::Terminal { editor: Box::new(editor), history })
    }

    /// Whether somebody sits in front of it.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// The next message: a line, and those after it as long as they end in a backslash.
    pub fn read(&mut self) -> Result<Read, Failure> {
        let mut message = String::new();
        loop {
            let line = match self.line(if message.is_empty() { "> " } else { "… " })? {
                Read::Line(line) => line,
                Read::End if !message.is_empty() => return Ok(Read::Line(message)),
                other => return Ok(other),
            };
            match line.strip_suffix('\\') {
                Some(begun) => message += &format!("{begun}\n"),
                None => return Ok(Read::Line(message + &line)),
            }
        }
    }

    fn line(&mut self, prompt: &str) -> Result<Read, Failure> {
        match self {
            Self::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Read::Line(line)),
                Err(ReadlineError::Interrupted) => Ok(Read::Interrupted),
                Err(ReadlineError::Eof) => Ok(Read::End),
                Err(error) => Err(failed(error)),
            },
            Self::Pipe => {
                let mut line = String::new();
                let read = io::stdin().lock().read_line(&mut line);
                let read = read.map_err(|error| Failure::Run(format!("cannot read the standard input: {error}")))?;
                let line = line.trim_end_matches(['\n', '\r']).to_owned();
                Ok(if read == 0 { Read::End } else { Read::Line(line) })
            }
        }
    }

    /// Keeps the history for the next time, where it can be kept.
    pub fn close(self) {
        if let Self::Terminal { mut editor, history: Some(path) } = self {
            let folder = path.parent().map(std::fs::create_dir_all);
            let _ = folder.transpose().and_then(|_| editor.save_history(&path).map_err(io::Error::other));
        }
    }
}

/// `$XDG_STATE_HOME/klero/history`, else `~/.local/state/klero/history`.
fn history_path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    Some(state?.join("klero/history"))
}

fn failed(error: ReadlineError) -> Failure {
    Failure::Run(format!("cannot read from the terminal: {error}"))
}
