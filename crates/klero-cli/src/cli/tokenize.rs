//! The command line of `klero tokenize`.

use super::PromptArgs;
use crate::edits::parse_id;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct TokenizeArgs {
    /// The text [default: the standard input].
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,

    /// Read the text from a file, to the last byte; - for the standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub source: PromptArgs,

    /// Do not put the token in front that begins a text, even if the model expects it.
    #[arg(long)]
    pub no_bos: bool,

    /// Turn these ids, with commas or spaces between, into text instead. Control tokens are written out with
    /// --control, and left out without.
    #[arg(
        long,
        value_name = "ID",
        num_args = 1..,
        value_delimiter = ',',
        value_parser = parse_id,
        allow_negative_numbers = true,
        conflicts_with_all = ["prompt", "file", "no_bos", "ids"]
    )]
    pub decode: Option<Vec<u32>>,

    /// Print the ids alone, in one line, with spaces between.
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
