//! The command `klero`: generates text, replays draws, and explains one.

use std::process::ExitCode;

fn main() -> ExitCode {
    klero_cli::main()
}
