//! `klero completions` and `klero man`: what the definition of the command line knows, for shells and for `man`.

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Writes a completion script to the standard output.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    // Written at once: the generators give up if a write fails, as when the reader has gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "klero", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the main page to the standard output, or all pages into a folder.
pub fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut klero = Cli::command().disable_help_subcommand(true);
    klero.build();
    match &args.dir {
        None => io::stdout().lock().write_all(&page(&klero)?)?,
        Some(dir) => {
            fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
            for command in std::iter::once(&klero).chain(klero.get_subcommands()) {
                let path = dir.join(Man::new(command.clone()).get_filename());
                fs::write(&path, page(command)?).map_err(|error| unwritable(&path, &error))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Run(format!("cannot write {}: {error}", path.display()))
}

/// The page of a command. What stands after its flags in `--help` is set line by line as it is there, for it holds
/// tables and commands.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).source(concat!("klero ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        let mut roff = Roff::default();
        roff.control("SH", ["NOTES"]).control("nf", []);
        for line in notes.to_string().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(&mut page)?;
    }
    Ok(page)
}
