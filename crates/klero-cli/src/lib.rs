//! The command `klero`: generates text, replays draws, and explains one.
//!
//! All of it is in this library, so that what reads bytes from outside can be tried on any; the program only calls
//! [`main`].

mod cli;
mod draw;
mod explain;
mod failure;
mod generate;
mod generation;
mod prompt;
mod tensors;
mod text;

use clap::Parser;
use cli::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

/// Reads the command line and does what it asks for.
pub fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(Failure::report)
}

/// Reads a request line of `klero draw`, and says what is wrong with it if it is none.
///
/// # Errors
/// The message that a person would see.
pub fn read_request(line: &[u8]) -> Result<(), String> {
    draw::request::Request::parse(line).map(|_| ())
}

/// Runs request lines over the bytes of a safetensors file, as `klero draw` does, and returns the replies, a JSON line
/// each.
///
/// # Errors
/// The message that a person would see, if the bytes are no such file.
pub fn replay(tensors: &[u8], requests: &[u8]) -> Result<Vec<String>, String> {
    draw::replay(tensors, requests)
}

/// Runs the command, in a thread pool of its own where a size is asked for.
fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let work = || match &cli.command {
        Command::Generate(args) => generate::run(args),
        Command::Draw(args) => draw::run(args),
        Command::Explain(args) => explain::run(args),
    };
    let Some(threads) = cli.threads else { return work() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get().into()).build();
    pool.map_err(|error| Failure::Run(format!("cannot start {threads} threads: {error}")))?.install(work)
}
