//! What can be asked for on the command line.

mod doctor;
mod help;
mod manual;
mod sampling;
mod tokenize;

pub use doctor::DoctorArgs;
pub use manual::{CompletionsArgs, ManArgs};
pub use tokenize::TokenizeArgs;

use crate::edits::parse_id;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use klero::{ParamError, Policy};
use sampling::SamplingArgs;
use std::collections::BTreeSet;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;

/// Draws the next token of a language model, exactly and reproducibly.
#[derive(Debug, Parser)]
#[command(name = "klero", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Threads to work with [default: one for each processor]. No result depends on it.
    #[arg(long, global = true, value_name = "N")]
    pub threads: Option<NonZeroU16>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write text with a model.
    #[command(after_help = help::GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
    /// Replay draws from a file of tensors.
    #[command(after_long_help = help::DRAW_HELP, after_help = "See --help for the fields of a request and examples.")]
    Draw(DrawArgs),
    /// Show one draw so that it can be followed by eye.
    #[command(after_help = help::EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Cut a text into the tokens of a model, or turn tokens into text.
    #[command(after_help = help::TOKENIZE_EXAMPLES)]
    Tokenize(TokenizeArgs),
    /// Tell what Klero finds on this machine, and test that it draws as it should.
    #[command(after_help = help::DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Write a script that completes commands and flags in a shell.
    #[command(after_help = help::COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Write the manual pages.
    #[command(after_help = help::MAN_HELP)]
    Man(ManArgs),
}

#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// The text to go on from.
    #[arg(short, long, allow_hyphen_values = true)]
    pub prompt: String,

    #[command(flatten)]
    pub source: PromptArgs,

    /// The most tokens to write.
    #[arg(long, value_name = "N", default_value = "128")]
    pub max_tokens: NonZeroUsize,

    /// End before this text; may be given more than once.
    #[arg(long, value_name = "STRING", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    pub stop: Vec<String>,

    #[command(flatten)]
    pub sampling: SamplingArgs,
}

#[derive(Args, Debug)]
pub struct DrawArgs {
    /// The file with the tensors that requests name.
    #[arg(long, value_name = "FILE.safetensors")]
    pub tensors: PathBuf,

    /// The file with the requests, a JSON object a line; - for the standard input.
    #[arg(long, value_name = "FILE.jsonl")]
    pub requests: PathBuf,

    /// In every row, keep only the N largest logits after the mask; 0 is off.
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, allow_negative_numbers = true)]
    force_top_k: usize,

    /// Ids that no request may draw.
    #[arg(long, value_name = "ID[,ID...]", value_parser = parse_ids, allow_hyphen_values = true)]
    blacklist: Option<BTreeSet<u32>>,
}

impl DrawArgs {
    /// What holds for every request.
    pub fn policy(&self) -> Policy<'_> {
        Policy { blacklist: self.blacklist.as_ref(), force_top_k: NonZeroUsize::new(self.force_top_k) }
    }
}

fn parse_ids(text: &str) -> Result<BTreeSet<u32>, ParamError> {
    text.split(',').map(parse_id).collect()
}

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The text before the token to draw.
    #[arg(short, long, required_unless_present = "tensors", conflicts_with = "tensors", allow_hyphen_values = true)]
    pub prompt: Option<String>,

    #[command(flatten)]
    pub source: PromptArgs,

    /// Draw from logits in this file instead.
    #[arg(long, value_name = "FILE.safetensors", requires = "logits", conflicts_with_all = ["model", "control"])]
    pub tensors: Option<PathBuf>,

    /// Name of a tensor in the file: a row of logits, or several with --row.
    #[arg(long, value_name = "NAME", requires = "tensors")]
    pub logits: Option<String>,

    /// The row of a two-dimensional tensor.
    #[arg(long, value_name = "N", requires = "tensors")]
    pub row: Option<usize>,

    /// The number of tokens before the one that is drawn; with a prompt, its length [default: 0].
    #[arg(long, value_name = "N", requires = "tensors")]
    pub position: Option<u64>,

    /// How many of the best tokens to show.
    #[arg(long, value_name = "N", default_value = "12")]
    pub shown: NonZeroUsize,

    #[command(flatten)]
    pub sampling: SamplingArgs,
}

/// Which model reads the prompt, and how.
#[derive(Args, Debug)]
pub struct PromptArgs {
    /// The model, a GGUF file [default: SmolLM2-135M-Instruct, as ./demo or scripts/fetch-model fetches it].
    #[arg(short, long, value_name = "MODEL.gguf")]
    pub model: Option<PathBuf>,

    /// Take control tokens written out in the prompt, such as <|im_start|>, for what they are and not as text.
    #[arg(long)]
    pub control: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
