//! A reply: a JSON line.

use super::request::Request;
use super::{Answer, Fault};
use klero::{Outcome, Speculated, TokenLogprob};
use serde::Serialize;

/// What became of a request. Fields are written in this order; a logprob of −∞ is null.
#[derive(Debug, Serialize)]
pub struct Reply {
    row: usize,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    draw: Draw,
    seed: Option<String>,
    position: Option<u64>,
    #[serde(flatten)]
    verified: Option<Verified>,
    #[serde(flatten)]
    more: More,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samples: Vec<Sample>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Step>,
}

/// A token and its distribution.
#[derive(Debug, Default, Serialize)]
struct Draw {
    token: Option<u32>,
    logprob: Option<f64>,
    kept: Option<usize>,
    log_normalizer: Option<f64>,
}

/// Whether a draft was accepted; of a whole draft, how many of its tokens.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Verified {
    Row { accepted: bool, accept_probability: f64, draft_logprob: Option<f64> },
    Draft { accepted: usize },
}

/// What is only there where it is asked for.
#[derive(Debug, Default, Serialize)]
struct More {
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_logprobs: Vec<Logprob>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs_of: Vec<Logprob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Sure>,
}

#[derive(Debug, Serialize)]
struct Logprob {
    token: u32,
    logprob: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Sure {
    entropy: f64,
    largest: f64,
    smaller: f64,
}

/// One of several samples.
#[derive(Debug, Serialize)]
struct Sample {
    token: u32,
    logprob: Option<f64>,
    seed: String,
}

/// One row of a whole draft.
#[derive(Debug, Serialize)]
struct Step {
    #[serde(flatten)]
    draw: Draw,
    position: u64,
    #[serde(flatten)]
    verified: Option<Verified>,
    #[serde(flatten)]
    more: More,
}

impl Reply {
    /// The reply to request number `row`, which is None if it could not be read.
    pub fn new(row: usize, request: Option<&Request>, answer: Result<Answer, Fault>) -> Self {
        let blank = Self {
            row,
            status: "ok",
            error: None,
            draw: Draw::default(),
            seed: request.map(|request| request.sampling.seed().to_string()),
            position: request.map(|request| request.position),
            verified: None,
            more: More::default(),
            samples: Vec::new(),
            rows: Vec::new(),
        };
        match answer {
            Ok(Answer::One(outcome)) => blank.with_outcome(outcome),
            Ok(Answer::Samples(outcomes)) => blank.with_samples(outcomes),
            Ok(Answer::Draft(draft)) => blank.with_draft(draft),
            Err(Fault::Request(error)) => Self { status: "invalid", error: Some(error), ..blank },
            Err(Fault::Row(error)) => {
                Self { status: error.status(), error: Some(error.with_row(row).to_string()), ..blank }
            }
        }
    }

    fn with_outcome(self, outcome: Outcome) -> Self {
        let Step { draw, verified, more, .. } = Step::new(outcome);
        Self { draw, verified, more, ..self }
    }

    /// The fields of sample 0, and all samples.
    fn with_samples(self, outcomes: Vec<Outcome>) -> Self {
        let sample = |outcome: &Outcome| Sample {
            token: outcome.token,
            logprob: finite(outcome.logprob),
            seed: outcome.seed.to_string(),
        };
        let samples = outcomes.iter().map(sample).collect();
        match outcomes.into_iter().next() {
            Some(first) => Self { samples, ..self.with_outcome(first) },
            None => self,
        }
    }

    /// The fields of the row that gave the token after the accepted ones, and all rows up to it.
    fn with_draft(self, draft: Speculated) -> Self {
        let rows: Vec<Step> = draft.outcomes.iter().cloned().map(Step::new).collect();
        let replied = match draft.outcomes.into_iter().next_back() {
            Some(last) => self.with_outcome(last),
            None => self,
        };
        Self { verified: Some(Verified::Draft { accepted: draft.accepted }), rows, ..replied }
    }

    /// What is wrong with an invalid request.
    pub fn invalid(&self) -> Option<&str> {
        self.error.as_deref().filter(|_| self.status == "invalid")
    }
}

impl Step {
    fn new(outcome: Outcome) -> Self {
        let draw = Draw {
            token: Some(outcome.token),
            logprob: finite(outcome.logprob),
            kept: Some(outcome.kept),
            log_normalizer: Some(outcome.log_normalizer),
        };
        let verified = outcome.verification.map(|found| Verified::Row {
            accepted: found.accepted,
            accept_probability: found.accept_probability,
            draft_logprob: found.draft_logprob.and_then(finite),
        });
        let logprobs = |all: Vec<TokenLogprob>| all.into_iter().map(Logprob::new).collect();
        let more = More {
            raw_logprob: outcome.raw_logprob.and_then(finite),
            top_logprobs: logprobs(outcome.top),
            logprobs_of: logprobs(outcome.asked),
            kept_ids: outcome.kept_ids,
            confidence: outcome.confidence.map(|found| Sure {
                entropy: found.entropy,
                largest: found.largest,
                smaller: found.smaller,
            }),
        };
        Self { draw, position: outcome.position, verified, more }
    }
}

impl Logprob {
    fn new(found: TokenLogprob) -> Self {
        Self { token: found.token, logprob: finite(found.logprob), raw_logprob: found.raw_logprob.and_then(finite) }
    }
}

/// −∞ has no number in JSON.
fn finite(logprob: f64) -> Option<f64> {
    Some(logprob).filter(|logprob| logprob.is_finite())
}
