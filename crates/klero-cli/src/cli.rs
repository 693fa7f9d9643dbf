//! What can be asked for on the command line.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use klero::{Draw, FilterOrder, LogitBias, ParamError, SamplingParams};
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
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
    /// Replay draws from a file of tensors.
    #[command(after_long_help = DRAW_HELP, after_help = "See --help for the fields of a request and examples.")]
    Draw(DrawArgs),
    /// Show one draw so that it can be followed by eye.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
}

const GENERATE_EXAMPLES: &str = "\
The text goes to the standard output; the seed and the speed go to the standard error.
Exit code: 0, 130 after Ctrl-C, 1 if something fails, 2 for arguments that make no sense.

Examples:
  klero generate -p 'The capital of France is'
  klero generate -p 'Once upon a time' --temperature 0.8 --top-p 0.95 --seed 42 --max-tokens 60
  klero generate -p 'Q: What is a lot?
A:' --stop 'Q:' -m SmolLM2-135M-Instruct.Q4_1.gguf --threads 2";

const DRAW_HELP: &str = "\
A request is a JSON object on a line of its own (blank lines are skipped):
  logits             name of an f32 tensor [V], or [rows, V] with `row`
  hidden, weights    instead of logits: tensor [D], or [rows, D] with `row`; and tensor [V, D] in F32, BF16
                     or F16, or GGUF blocks as U8 [V, bytes of a row]
  weights_type       of GGUF blocks: \"q8_0\" (the default), \"q4_0\", \"q4_k\", \"q5_k\" or \"q6_k\"
  row                index into a two-dimensional tensor
  position           required: the number of tokens before the one that is drawn
  temperature, top_p, top_k, min_p, filter_order, repetition_penalty, frequency_penalty,
  presence_penalty, seed, draw, top_logprobs, raw_logprobs, kept_ids, confidence
                     sampling parameters; seed is an integer or the same as text, draw is \"gumbel\"
                     (the default) or \"inverse_cdf\", filter_order \"top_p_first\" or \"min_p_first\"
  prompt_ids, output_ids
                     the text so far, for the penalties
  logit_bias         {\"50256\": -2.5}: what is added to single logits
  banned             ids that may not be drawn
  allowed            ids that may; or allowed_bitmask, a tensor I32 or U32 with a bit an id
  ids                ids whose logprobs are reported
  samples            how many to draw, each with a seed of its own
  stream             \"target\" (the default) or \"mtp\"
  vocabulary         valid ids, where tensors are padded
  verify             {\"draft_token\": 5, \"draft_logprobs\": \"name\"}, with optional `row` and `delta`; instead of
                     draft_logprobs \"one_hot\": true or \"coupled\": true; instead of draft_token
                     \"draft_tokens\": [5, 9] for a whole draft, with one row of logits more than tokens

Tensors of logits, hidden states and draft logprobs are F32, BF16 or F16.

Each request gives a JSON line, in order: row (the request's number, from 0), status, token, logprob,
kept, log_normalizer, seed (as text), position; with verify also accepted, accept_probability and
draft_logprob; raw_logprob, top_logprobs, logprobs_of (the ids asked for), kept_ids, confidence and
samples where asked for. A whole draft gives the number accepted, the token after them, and the
outcome of each row in `rows`. A logprob of minus infinity is null.
Status is \"ok\"; \"nan\", \"infinite\" or \"empty\" for tensors that no token can be drawn from; or
\"invalid\" for a bad request. If not ok, `error` says why and the token is null.

Exit code: 0; 1 if any request was invalid (each is named with its line number on the standard
error, the others still run) or a file cannot be read. Bad numbers in tensors are results, not
invalid requests.

Examples:
  klero draw --tensors step.safetensors --requests requests.jsonl
  echo '{\"logits\":\"row-17\",\"top_p\":0.9,\"seed\":42,\"position\":9}' |
    klero draw --tensors step.safetensors --requests -";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  klero explain -p 'The capital of France is' --temperature 0.8 --top-p 0.9 --seed 42
  klero explain -p 'Once upon a' --draw inverse_cdf --shown 20
  klero explain --tensors step.safetensors --logits row-17 --position 9 --seed 42";

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

    /// Keep only the N largest logits of every row, after masks and before all else.
    #[arg(long, value_name = "N")]
    pub force_top_k: Option<NonZeroUsize>,

    /// Ids that no row may draw, separated by commas.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub blacklist: Vec<u32>,
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

    /// Name of an f32 tensor in the file: a row of logits, or several with --row.
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

/// Sampling parameters; see [`SamplingParams`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Below 1 sharper, above 1 flatter; 0 is greedy [default: 1].
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f64>,

    /// Remove a token if better ones have more than this share of the probability; 1 is off [default: 1].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,

    /// Keep at most this many of the best tokens; -1 is off [default: -1].
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<i64>,

    /// Remove a token less probable than this share of the best one; 0 is off [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f64>,

    /// The order of the filters; min_p_first is that of other engines (see docs/law.md).
    #[arg(long, value_enum, default_value_t)]
    filter_order: OrderArg,

    /// Divide a logit above 0 of a token in the text by this, multiply one below; 1 is off [default: 1].
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repetition_penalty: Option<f64>,

    /// Subtract this from a token's logit for each time it was written; 0 is off [default: 0].
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    frequency_penalty: Option<f64>,

    /// Subtract this from the logit of every token that was written; 0 is off [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    presence_penalty: Option<f64>,

    /// Add to a token's logit; may be given more than once.
    #[arg(long, value_name = "ID=BIAS", value_parser = id_and_bias)]
    logit_bias: Vec<(u32, f64)>,

    /// A token that may not be drawn; may be given more than once.
    #[arg(long, value_name = "ID")]
    ban: Vec<u32>,

    /// Any integer of 64 bits, signed or not; the same seed gives the same text [default: random].
    #[arg(long, value_name = "SEED", allow_negative_numbers = true, value_parser = klero::parse_seed)]
    seed: Option<u64>,

    /// How to draw; both ways are exact, each with its own tokens.
    #[arg(long, value_enum, default_value_t)]
    draw: DrawArg,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
enum DrawArg {
    /// The greatest logit plus noise: small changes of the logits rarely change the token.
    #[default]
    Gumbel,
    /// The token at a random point of the running probability.
    InverseCdf,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
enum OrderArg {
    /// top-p on the full distribution, then top-k, then min-p.
    #[default]
    TopPFirst,
    /// min-p, then top-k, then top-p on what is left.
    MinPFirst,
}

fn id_and_bias(text: &str) -> Result<(u32, f64), String> {
    let (id, bias) = text.split_once('=').ok_or("must be ID=BIAS")?;
    let id = id.parse().map_err(|_| format!("id is {id:?}, must be an integer in 0..=4294967295"))?;
    let bias = bias.parse().map_err(|_| format!("bias is {bias:?}, must be a number"))?;
    Ok((id, bias))
}

impl SamplingArgs {
    /// What is added to single logits.
    pub fn logit_bias(&self) -> Result<LogitBias, ParamError> {
        LogitBias::new(self.logit_bias.iter().copied())
    }

    /// The tokens that may not be drawn.
    pub fn banned(&self) -> BTreeSet<u32> {
        self.ban.iter().copied().collect()
    }

    /// The parameters, not yet checked.
    pub fn params(&self) -> SamplingParams {
        let default = SamplingParams::default();
        SamplingParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_p: self.top_p.unwrap_or(default.top_p),
            top_k: self.top_k.unwrap_or(default.top_k),
            min_p: self.min_p.unwrap_or(default.min_p),
            filter_order: match self.filter_order {
                OrderArg::TopPFirst => FilterOrder::TopPFirst,
                OrderArg::MinPFirst => FilterOrder::MinPFirst,
            },
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            seed: self.seed,
            draw: match self.draw {
                DrawArg::Gumbel => Draw::Gumbel,
                DrawArg::InverseCdf => Draw::InverseCdf,
            },
            ..default
        }
    }
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
