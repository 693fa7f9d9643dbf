//! The command `klero` as a library: for its own `main`, and for whoever wants to test what it reads from strangers, or to
//! write texts in a program.
//!
//! [`draw`] reads requests, [`tensors`] a file of tensors. Both take any bytes and answer with a result or a message, never
//! with a panic. [`generation`] lets texts grow.

mod chat;
mod cli;
mod doctor;
pub mod draw;
pub mod edits;
mod explain;
mod failure;
mod generate;
pub mod generation;
#[cfg(feature = "hub")]
mod hub;
mod input;
mod interrupt;
mod manual;
mod numbers;
mod prompt;
pub mod tensors;
mod text;
mod tokenize;
mod words;

use clap::Parser;
use cli::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

/// Runs the command that the arguments of this process ask for, and tells what fails.
pub fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(Failure::report)
}

/// Runs the command, in a thread pool of its own where a size is asked for.
fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let work = || match &cli.command {
        Command::Generate(args) => generate::run(args),
        Command::Draw(args) => draw::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Doctor(args) => doctor::run(args, cli.threads),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
    };
    let Some(threads) = cli.threads else { return work() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get().into()).build();
    pool.map_err(|error| Failure::Run(format!("cannot start {threads} threads: {error}")))?.install(work)
}
