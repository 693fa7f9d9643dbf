//! A reply: a JSON line.

use super::Fault;
use super::batch::{Answer, Drawn};
use super::request::Request;
use klero::{Outcome, Speculated, TokenLogprob, Verification};
use serde::Serialize;

/// What became of a request. Fields are written in this order; a logprob of −∞ is null, as JSON has no other word for it.
#[derive(Debug, Serialize)]
pub struct Reply {
    row: usize,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    token: Token,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samples: Vec<Sample>,
    #[serde(flatten)]
    draft: Option<Draft>,
}

/// A token and what is known of it; nulls where there is none.
#[derive(Debug, Default, Serialize)]
struct Token {
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
    top_logprobs: Vec<Logprob>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs_of: Vec<Logprob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Confidence>,
}

#[derive(Debug, Serialize)]
struct Verified {
    accepted: bool,
    accept_probability: f64,
    draft_logprob: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Logprob {
    token: u32,
    logprob: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_logprob: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Confidence {
    entropy: f64,
    largest: f64,
    smaller: f64,
}

#[derive(Debug, Serialize)]
struct Sample {
    #[serde(flatten)]
    drawn: Logprob,
    seed: String,
}

/// A whole draft.
#[derive(Debug, Serialize)]
struct Draft {
    accepted: usize,
    tokens: Vec<u32>,
    /// One for each of the tokens.
    outcomes: Vec<Token>,
}

impl Reply {
    /// The reply to request number `row`, which is None if it could not be read.
    pub fn new(row: usize, request: Option<&Request>, answer: Answer) -> Self {
        let token = Token {
            seed: request.map(|request| request.sampling.seed().to_string()),
            position: request.map(|request| request.position),
            ..Token::default()
        };
        let blank = Self { row, status: "ok", error: None, token, samples: Vec::new(), draft: None };
        match answer {
            Ok(Drawn::Token(outcome)) => Self { token: Token::of(&outcome), ..blank },
            Ok(Drawn::Samples(outcomes)) => blank.with_samples(&outcomes),
            Ok(Drawn::Draft(speculated)) => blank.with_draft(&speculated),
            Err(Fault::Request(error)) => Self { status: "invalid", error: Some(error), ..blank },
            Err(Fault::Row(error)) => {
                Self { status: error.status(), error: Some(error.with_row(row).to_string()), ..blank }
            }
        }
    }

    /// Beside all samples stands what is known of the first.
    fn with_samples(self, outcomes: &[Outcome]) -> Self {
        let samples = outcomes.iter().map(Sample::of).collect();
        Self { token: outcomes.first().map_or(self.token, Token::of), samples, ..self }
    }

    /// Beside the draft stands the token after those accepted; what became of the last verification is told with it.
    fn with_draft(self, speculated: &Speculated) -> Self {
        let outcomes: Vec<Token> = speculated.outcomes.iter().map(Token::of).collect();
        let tokens = speculated.outcomes.iter().map(|outcome| outcome.token).collect();
        let last = speculated.outcomes.last().map(|last| Token { verified: None, ..Token::of(last) });
        let draft = Draft { accepted: speculated.accepted, tokens, outcomes };
        Self { token: last.unwrap_or(self.token), draft: Some(draft), ..self }
    }

    /// What is wrong with an invalid request.
    pub fn invalid(&self) -> Option<&str> {
        self.error.as_deref().filter(|_| self.status == "invalid")
    }
}

impl Token {
    fn of(outcome: &Outcome) -> Self {
        let confidence = |found: klero::Confidence| Confidence {
            entropy: found.entropy,
            largest: found.largest,
            smaller: found.smaller,
        };
        Self {
            token: Some(outcome.token),
            logprob: Some(outcome.logprob),
            kept: Some(outcome.kept),
            log_normalizer: Some(outcome.log_normalizer),
            seed: Some(outcome.seed.to_string()),
            position: Some(outcome.position),
            verified: outcome.verification.map(Verified::of),
            raw_logprob: outcome.raw_logprob,
            top_logprobs: outcome.top.iter().map(Logprob::of).collect(),
            logprobs_of: outcome.asked.iter().map(Logprob::of).collect(),
            kept_ids: outcome.kept_ids.clone(),
            confidence: outcome.confidence.map(confidence),
        }
    }
}

impl Verified {
    fn of(found: Verification) -> Self {
        let Verification { accepted, accept_probability, draft_logprob } = found;
        Self { accepted, accept_probability, draft_logprob }
    }
}

impl Logprob {
    fn of(found: &TokenLogprob) -> Self {
        let TokenLogprob { token, logprob, raw_logprob } = *found;
        Self { token, logprob, raw_logprob }
    }
}

impl Sample {
    fn of(outcome: &Outcome) -> Self {
        let Outcome { token, logprob, raw_logprob, seed, .. } = *outcome;
        Self { drawn: Logprob { token, logprob, raw_logprob }, seed: seed.to_string() }
    }
}
