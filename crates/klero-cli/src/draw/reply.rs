//! A reply: a JSON line.

use super::Fault;
use super::request::Request;
use klero::{Outcome, TokenLogprob};
use serde::Serialize;

/// What became of a request. Fields are written in this order; a logprob of −∞ is null.
#[derive(Debug, Serialize)]
pub struct Reply {
    row: usize,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    token: Option<u32>,
    logprob: Option<f64>,
    kept: Option<usize>,
    log_normalizer: Option<f64>,
    seed: Option<String>,
    position: Option<u64>,
    #[serde(flatten)]
    verified: Option<Verified>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_logprobs: Vec<Top>,
}

#[derive(Debug, Serialize)]
struct Verified {
    accepted: bool,
    accept_probability: f64,
    draft_logprob: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Top {
    token: u32,
    logprob: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
}

impl Reply {
    /// The reply to request number `row`, which is None if it could not be read.
    pub fn new(row: usize, request: Option<&Request>, outcome: Result<Outcome, Fault>) -> Self {
        let blank = Self {
            row,
            status: "ok",
            error: None,
            token: None,
            logprob: None,
            kept: None,
            log_normalizer: None,
            seed: request.map(|request| request.sampling.seed().to_string()),
            position: request.map(|request| request.position),
            verified: None,
            raw_logprob: None,
            top_logprobs: Vec::new(),
        };
        match outcome {
            Ok(outcome) => blank.with_outcome(outcome),
            Err(Fault::Request(error)) => Self { status: "invalid", error: Some(error), ..blank },
            Err(Fault::Row(error)) => {
                Self { status: error.status(), error: Some(error.with_row(row).to_string()), ..blank }
            }
        }
    }

    fn with_outcome(self, outcome: Outcome) -> Self {
        let verified = |found: klero::Verification| Verified {
            accepted: found.accepted,
            accept_probability: found.accept_probability,
            draft_logprob: found.draft_logprob,
        };
        let top = |best: TokenLogprob| Top { token: best.token, logprob: best.logprob, raw_logprob: best.raw_logprob };
        Self {
            token: Some(outcome.token),
            logprob: Some(outcome.logprob),
            kept: Some(outcome.kept),
            log_normalizer: Some(outcome.log_normalizer),
            seed: Some(outcome.seed.to_string()),
            position: Some(outcome.position),
            verified: outcome.verification.map(verified),
            raw_logprob: outcome.raw_logprob,
            top_logprobs: outcome.top.into_iter().map(top).collect(),
            ..self
        }
    }

    /// What is wrong with an invalid request.
    pub fn invalid(&self) -> Option<&str> {
        self.error.as_deref().filter(|_| self.status == "invalid")
    }
}
