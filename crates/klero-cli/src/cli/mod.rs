//! What can be asked for on the command line.

mod chat;
mod doctor;
mod draft;
mod help;
mod manual;
mod policy;
mod report;
mod sampling;
mod tokenize;

pub use chat::ChatArgs;
pub use doctor::DoctorArgs;
pub use manual::{CompletionsArgs, ManArgs};
pub use tokenize::TokenizeArgs;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
pub use draft::{DraftArgs, DraftSource};
use klero::SamplingParams;
use policy::PolicyArgs;
pub use report::ReportArgs;
use sampling::SamplingArgs;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::{Path, PathBuf};

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
    #[command(after_long_help = help::GENERATE_HELP, after_help = "See --help for the output and examples.")]
    Generate(GenerateArgs),
    /// Talk with a model in the terminal.
    #[command(after_help = help::CHAT_HELP)]
    Chat(ChatArgs),
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
    #[command(flatten)]
    pub prompts: PromptsArgs,

    #[command(flatten)]
    pub source: PromptArgs,

    /// Texts for each prompt, each with a seed of its own; the first has the seed given.
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub n: u16,

    /// The most tokens to write.
    #[arg(long, value_name = "N", default_value = "128")]
    pub max_tokens: NonZeroUsize,

    /// End before this text; may be given more than once.
    #[arg(long, value_name = "STRING", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true)]
    pub stop: Vec<String>,

    #[command(flatten)]
    pub report: ReportArgs,

    #[command(flatten)]
    pub draft: DraftArgs,

    #[command(flatten)]
    pub sampling: SamplingArgs,

    #[command(flatten)]
    pub policy: PolicyArgs,
}

impl GenerateArgs {
    /// The parameters, not yet checked.
    pub fn params(&self) -> SamplingParams {
        self.report.ask(self.sampling.params())
    }
}

/// The texts to go on from.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub struct PromptsArgs {
    /// The text to go on from; may be given more than once, for several texts.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Vec<String>,

    /// A file whose whole text is a prompt, - for the standard input; may be given more than once, and stands after
    /// --prompt.
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub struct DrawArgs {
    /// The file with the tensors that requests name.
    #[arg(long, value_name = "FILE.safetensors")]
    pub tensors: PathBuf,

    /// The file with the requests, a JSON object a line; - for the standard input.
    #[arg(long, value_name = "FILE.jsonl")]
    pub requests: PathBuf,

    #[command(flatten)]
    pub policy: PolicyArgs,
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

    /// Also write a picture, as SVG; - for the standard output, in place of the page.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,

    /// Also write that picture as PNG, of twice the size; - as above.
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,

    #[command(flatten)]
    pub sampling: SamplingArgs,
}

impl ExplainArgs {
    /// The files that pictures go to.
    pub fn pictures(&self) -> impl Iterator<Item = &Path> {
        self.svg.iter().chain(&self.png).map(PathBuf::as_path)
    }
}

/// Which model reads the prompt, and how.
#[derive(Args, Debug)]
pub struct PromptArgs {
    /// The model: a GGUF file, a folder with config.json, tokenizer.json and safetensors, or a Hugging Face id,
    /// OWNER/NAME[@REVISION][:FILE.gguf], where part of the file's name will do, such as Q4_K_M
    /// [default: SmolLM2-135M-Instruct, as ./demo or scripts/fetch-model fetches it].
    #[arg(short, long, value_name = "MODEL")]
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
