//! Sampling parameters and edits on the command line.

use crate::edits::{OwnedEdits, parse_id};
use clap::{Args, ValueEnum};
use klero::{Draw, FilterOrder, History, LogitBias, ParamError, SamplingParams};

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

    /// Which of the filters comes first; the other order is for people from other engines.
    #[arg(long, value_enum, default_value_t)]
    filter_order: FilterOrderArg,

    /// Make tokens of the prompt and the text less likely; below 1 more likely; 1 is off [default: 1].
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repetition_penalty: Option<f64>,

    /// Subtract this from a token's logit for every time it was written; 0 is off [default: 0].
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    frequency_penalty: Option<f64>,

    /// Subtract this from the logit of every token that was written; 0 is off [default: 0].
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    presence_penalty: Option<f64>,

    /// Add this to the logit of a token; may be given more than once.
    #[arg(long, value_name = "ID=BIAS", value_parser = parse_bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f64)>,

    /// Never draw this token; may be given more than once.
    #[arg(long, value_name = "ID", value_parser = parse_id, allow_hyphen_values = true)]
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
enum FilterOrderArg {
    /// top-p on the full distribution, then top-k, then min-p.
    #[default]
    TopPFirst,
    /// min-p, then top-k, then top-p on what is left.
    MinPFirst,
}

impl SamplingArgs {
    /// The parameters, not yet checked.
    pub fn params(&self) -> SamplingParams {
        let default = SamplingParams::default();
        SamplingParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_p: self.top_p.unwrap_or(default.top_p),
            top_k: self.top_k.unwrap_or(default.top_k),
            min_p: self.min_p.unwrap_or(default.min_p),
            filter_order: match self.filter_order {
                FilterOrderArg::TopPFirst => FilterOrder::TopPFirst,
                FilterOrderArg::MinPFirst => FilterOrder::MinPFirst,
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

    /// What changes the logits after a text that begins with `prompt`.
    ///
    /// # Errors
    /// [`ParamError`] for a bias that is not finite or given twice.
    pub fn edits(&self, prompt: &[u32]) -> Result<OwnedEdits, ParamError> {
        let bias = LogitBias::new(self.logit_bias.iter().copied())?;
        let (history, banned) = (History::of_prompt(prompt.iter().copied()), self.ban.iter().copied().collect());
        Ok(OwnedEdits { history, bias, banned })
    }

    /// Whether a penalty asks for the text so far.
    pub fn penalises(&self) -> bool {
        let penalties = [self.repetition_penalty, self.frequency_penalty, self.presence_penalty];
        penalties.iter().any(Option::is_some)
    }

    /// The biases and bans as a person reads them; none where there are none.
    pub fn describe_edits(&self) -> Option<String> {
        let biases = self.logit_bias.iter().map(|(id, bias)| format!("token {id} {bias:+}"));
        let bans = self.ban.iter().map(|id| format!("token {id} banned"));
        let words: Vec<String> = biases.chain(bans).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Reads `ID=BIAS`; whether the bias is finite is checked with all others.
fn parse_bias(text: &str) -> Result<(u32, f64), ParamError> {
    let refuse = || ParamError { field: "logit_bias", value: text.to_owned(), rule: "an id, =, and a number" };
    let (id, bias) = text.split_once('=').ok_or_else(refuse)?;
    Ok((parse_id(id)?, bias.parse().map_err(|_| refuse())?))
}
