//! The command lines of `klero completions` and `klero man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell that will read the script.
    pub shell: Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write a page for klero and one for each command into this folder, instead of the main page to the standard output.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
