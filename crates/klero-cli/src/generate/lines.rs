//! Texts for a program: a JSON line for each token, and one at the end of each text.

use super::output::{Output, Token};
use super::writing::{Ended, Ending, Label};
use klero::{Confidence, Outcome, TokenLogprob};
use klero_models::Tokenizer;
use serde::Serialize;
use std::io::{self, Stdout, Write};

/// The standard output as JSON lines.
pub struct Lines<'m> {
    out: Stdout,
    tokenizer: &'m Tokenizer,
    /// Whether the best tokens are told.
    top: bool,
}

impl<'m> Lines<'m> {
    pub fn new(tokenizer: &'m Tokenizer, top: bool) -> Self {
        Self { out: io::stdout(), tokenizer, top }
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }

    fn logprob(&self, found: &TokenLogprob) -> LogprobLine<'m> {
        let bytes = self.tokenizer.bytes(found.token, true);
        let TokenLogprob { token: id, logprob, raw_logprob } = *found;
        LogprobLine { id, text: String::from_utf8_lossy(bytes).into_owned(), bytes, logprob, raw_logprob }
    }
}

/// A token. Fields are written in this order; a logprob of −∞ is null, as JSON has no other word for it.
#[derive(Serialize)]
struct TokenLine<'t> {
    prompt: usize,
    sample: usize,
    position: u64,
    id: u32,
    /// Whole characters only: it may belong to tokens before, or come with one after.
    text: &'t str,
    /// The token's own.
    bytes: &'t [u8],
    logprob: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
    kept: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<LogprobLine<'t>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<ConfidenceLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_ids: Option<&'t [u32]>,
}

#[derive(Serialize)]
struct LogprobLine<'t> {
    id: u32,
    text: String,
    bytes: &'t [u8],
    logprob: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
}

#[derive(Serialize)]
struct ConfidenceLine {
    entropy: f64,
    largest: f64,
    smaller: f64,
}

impl From<Confidence> for ConfidenceLine {
    fn from(Confidence { entropy, largest, smaller }: Confidence) -> Self {
        Self { entropy, largest, smaller }
    }
}

/// The end of a text.
#[derive(Serialize)]
struct EndLine<'t> {
    prompt: usize,
    sample: usize,
    /// As text: many readers keep numbers as f64.
    seed: String,
    ended: &'t str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    tokens: usize,
    text: &'t str,
}

impl Output for Lines<'_> {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn token(&mut self, label: &Label, token: &Token) -> io::Result<()> {
        let Outcome { token: id, position, logprob, raw_logprob, kept, confidence, .. } = *token.outcome;
        let top = || token.outcome.top.iter().map(|found| self.logprob(found)).collect();
        self.line(&TokenLine {
            prompt: label.prompt,
            sample: label.sample,
            position,
            id,
            text: token.certain,
            bytes: self.tokenizer.bytes(id, true),
            logprob,
            raw_logprob,
            kept,
            top_logprobs: self.top.then(top),
            confidence: confidence.map(ConfidenceLine::from),
            kept_ids: token.outcome.kept_ids.as_deref(),
        })
    }

    fn end(&mut self, ended: &Ended) -> io::Result<()> {
        let error = match ended.ending {
            Ending::Failed(error) => Some(error.to_string()),
            _ => None,
        };
        self.line(&EndLine {
            prompt: ended.label.prompt,
            sample: ended.label.sample,
            seed: ended.label.seed.to_string(),
            ended: ended.ending.word(),
            error,
            tokens: ended.tokens,
            text: ended.written,
        })
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}
