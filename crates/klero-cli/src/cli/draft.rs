//! Guessing ahead, on the command line.

use crate::generation::Rule;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Who guesses tokens ahead, and how guesses are verified.
#[derive(Args, Debug)]
#[command(next_help_heading = "Speculation")]
pub struct DraftArgs {
    /// Guess tokens ahead and verify several in one step. ngram guesses what followed where the text said the same before;
    /// a smaller model, named as for --model, must have the same vocabulary.
    #[arg(long, value_name = "ngram|MODEL", value_parser = |text: &str| Ok::<_, String>(DraftSource::of(text)))]
    pub draft: Option<DraftSource>,

    /// The most tokens to guess for a step.
    #[arg(
        long,
        value_name = "K",
        default_value = "4",
        requires = "draft",
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    pub draft_tokens: u16,

    /// When a guess is accepted.
    #[arg(long, value_name = "RULE", value_enum, default_value_t, requires = "draft")]
    pub draft_verify: RuleArg,
}

/// Where guesses come from.
#[derive(Clone, Debug)]
pub enum DraftSource {
    /// The text itself.
    Ngram,
    /// A model.
    Model(PathBuf),
}

impl DraftSource {
    fn of(text: &str) -> Self {
        if text == "ngram" { Self::Ngram } else { Self::Model(text.into()) }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum RuleArg {
    /// If it is the token that the model draws: the text is the same as without --draft.
    #[default]
    Coupled,
    /// By rejection: tokens follow the model's distribution just as well, but are others.
    Rejection,
}

impl From<RuleArg> for Rule {
    fn from(rule: RuleArg) -> Self {
        match rule {
            RuleArg::Coupled => Self::Coupled,
            RuleArg::Rejection => Self::Rejection,
        }
    }
}
