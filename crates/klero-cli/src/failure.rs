//! How a command fails: what it says, and its exit code.

use klero::ParamError;
use klero_models::ModelError;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Why a command ended before its work was done.
#[derive(Debug)]
pub enum Failure {
    /// It was asked for something that makes no sense: exit code 2.
    Usage(String),
    /// Something went wrong on the way: exit code 1.
    Run(String),
    /// Whoever read the output has gone, which is no fault of anyone: exit code 0, nothing said.
    Closed,
}

impl Failure {
    /// The same, said of one of several things.
    #[must_use]
    pub fn of(self, what: impl Display) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{what}: {message}")),
            Self::Run(message) => Self::Run(format!("{what}: {message}")),
            Self::Closed => Self::Closed,
        }
    }

    /// Tells the user, in one line, and gives the exit code.
    pub fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Usage(message) => (message, 2),
            Self::Run(message) => (message, 1),
            Self::Closed => return ExitCode::SUCCESS,
        };
        tell(format_args!("{ERROR}error:{ERROR:#} {message}"));
        ExitCode::from(code)
    }
}

const ERROR: anstyle::Style = anstyle::AnsiColor::Red.on_default().bold();

/// Errors of writing to the standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Run(format!("cannot write the output: {error}")),
        }
    }
}

impl From<ParamError> for Failure {
    fn from(error: ParamError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<klero::Error> for Failure {
    fn from(error: klero::Error) -> Self {
        Self::Run(error.to_string())
    }
}

/// Writes a line to the standard error. If nobody can read it, there is nobody to tell.
pub fn tell(line: impl Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
