//! What is told beside the text, on the command line.

use clap::{ArgGroup, Args};
use klero::SamplingParams;

/// What to tell of each token.
#[derive(Args, Debug)]
#[command(next_help_heading = "Report")]
#[command(group = ArgGroup::new("told").args(["logprobs", "json"]).multiple(true))]
pub struct ReportArgs {
    /// After each text, show its tokens with their logprobs, and in each place the N best, at most 1000.
    #[arg(long, value_name = "N")]
    pub logprobs: Option<usize>,

    /// Write JSON lines: one for each token as it comes, and one at the end of each text.
    #[arg(long)]
    pub json: bool,

    /// Show logprobs in the model's own distribution too, before penalties, temperature and filters.
    #[arg(long, requires = "told")]
    pub raw_logprobs: bool,

    /// Show how sure the distribution of each token was: its entropy, its largest probability, and the sum of those
    /// below the token's.
    #[arg(long, requires = "told")]
    pub confidence: bool,

    /// With --json, show the ids that the filters left.
    #[arg(long, requires = "json")]
    pub kept_ids: bool,
}

impl ReportArgs {
    /// The same parameters, asked for what is to be told.
    pub fn ask(&self, params: SamplingParams) -> SamplingParams {
        SamplingParams {
            top_logprobs: self.logprobs.unwrap_or(0),
            raw_logprobs: self.raw_logprobs,
            confidence: self.confidence,
            kept_ids: self.kept_ids,
            ..params
        }
    }
}
