//! What `klero chat` takes.

use super::sampling::SamplingArgs;
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct ChatArgs {
    /// The model: a file, a folder or a Hugging Face id, as for generate; it must have a chat template.
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,

    /// What the model is told before all messages.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,

    /// A chat that /save wrote; its parameters hold, not those given here.
    #[arg(long, value_name = "FILE.json")]
    pub load: Option<PathBuf>,

    /// The most tokens of an answer.
    #[arg(long, value_name = "N", default_value = "512")]
    pub max_tokens: NonZeroUsize,

    #[command(flatten)]
    pub sampling: SamplingArgs,
}
