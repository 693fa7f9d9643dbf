//! The program `klero`.

use std::process::ExitCode;

fn main() -> ExitCode {
    klero_cli::main()
}
