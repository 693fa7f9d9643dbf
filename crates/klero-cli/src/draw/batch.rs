//! Requests drawn together. No result depends on it; it only reads a head's weights once for many rows.

use super::Fault;
use super::job::{HeadName, Job};
use klero::{Batch, Error, FusedHead, Outcome, Policy, Row, RowError, Speculated, Speculation, Weights};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Draws of one call of a head: what a call remembers of each row grows with the vocabulary.
const TOGETHER: usize = 64;

/// What a request was given.
pub enum Drawn {
    /// A token.
    Token(Outcome),
    /// A token for each sample.
    Samples(Vec<Outcome>),
    /// As many tokens of a whole draft as were accepted, and one more.
    Draft(Speculated),
}

/// What came of a request.
pub type Answer = Result<Drawn, Fault>;

/// Draws every job that is one, and passes on the faults of the others.
pub fn draw(jobs: &[Result<Job, Fault>], policy: &Policy) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = jobs
        .par_iter()
        .map(|job| match job {
            Err(fault) => Some(Err(fault.clone())),
            Ok(job) => job.head.is_none().then(|| ready(job, policy)),
        })
        .collect();
    for members in heads(jobs).into_values() {
        for call in calls(&members) {
            let jobs: Vec<&Job> = call.iter().map(|(_, job)| *job).collect();
            for ((place, _), answer) in call.iter().zip(fused(&jobs, policy)) {
                answers[*place] = Some(answer);
            }
        }
    }
    answers.into_iter().map(|answer| answer.expect("a job draws from logits or from a head")).collect()
}

/// A job and the place of its answer.
type Member<'j, 'a> = (usize, &'j Job<'a>);

/// The jobs of each head that take equally many samples.
fn heads<'j, 'a>(jobs: &'j [Result<Job<'a>, Fault>]) -> BTreeMap<(HeadName<'a>, Option<usize>), Vec<Member<'j, 'a>>> {
    let mut heads: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (place, job) in jobs.iter().enumerate() {
        if let Ok(job) = job
            && let Some((name, _)) = job.head
        {
            heads.entry((name, job.request.samples)).or_default().push((place, job));
        }
    }
    heads
}

/// Cuts jobs into calls of at most [`TOGETHER`] draws; a job of more has a call to itself.
fn calls<'m, 'j, 'a>(mut members: &'m [Member<'j, 'a>]) -> Vec<&'m [Member<'j, 'a>]> {
    let mut calls = Vec::new();
    while !members.is_empty() {
        let mut draws = 0;
        let fit = members.iter().take_while(|(_, job)| {
            draws += job.request.row_count() * job.request.samples.unwrap_or(1);
            draws <= TOGETHER
        });
        let (call, rest) = members.split_at(fit.count().max(1));
        calls.push(call);
        members = rest;
    }
    calls
}

/// Draws from ready logits.
fn ready(job: &Job, policy: &Policy) -> Answer {
    let drawn =
        job.numbers.logits(job.request.row_count()).and_then(|logits| together(logits.with_policy(*policy), &[job]));
    drawn.map_err(fault)?.remove(0)
}

/// Draws from the head that all these jobs name, with as many samples as all of them take.
fn fused(jobs: &[&Job], policy: &Policy) -> Vec<Answer> {
    let Some((_, weights)) = jobs.first().and_then(|job| job.head) else { return Vec::new() };
    let hidden: Vec<f32> = jobs.iter().flat_map(|job| job.numbers.widen().into_owned()).collect();
    let drawn = head(weights, &hidden, policy).and_then(|logits| together(logits, jobs));
    drawn.unwrap_or_else(|error| jobs.iter().map(|_| Err(fault(error.clone()))).collect())
}

fn head<'x>(weights: &'x Weights, hidden: &'x [f32], policy: &Policy<'x>) -> Result<Batch<'x>, Error> {
    FusedHead::new(weights)?.with_policy(*policy).batch(hidden)
}

/// One call for jobs whose rows lie one behind the other.
fn together(logits: Batch, jobs: &[&Job]) -> Result<Vec<Answer>, Error> {
    let logprobs: Vec<Cow<[f32]>> = jobs.iter().map(|job| job.widened()).collect();
    let rows = jobs.iter().zip(&logprobs).map(|(job, logprobs)| job.rows(logprobs));
    match jobs.first().and_then(|job| job.request.samples) {
        Some(n) => {
            let rows: Vec<Row> = rows.flatten().collect();
            Ok(logits.samples(&rows, n)?.into_iter().map(samples).collect())
        }
        // A single row is a draft without tokens, or verifies its only one.
        None => {
            let drafts: Vec<Speculation> = rows.map(|rows| Speculation { rows }).collect();
            let verified = logits.verify(&drafts)?;
            Ok(jobs.iter().zip(verified).map(|(job, verified)| token_or_draft(job, verified)).collect())
        }
    }
}

fn samples(drawn: Vec<Result<Outcome, RowError>>) -> Answer {
    drawn.into_iter().collect::<Result<_, _>>().map(Drawn::Samples).map_err(Fault::Row)
}

fn token_or_draft(job: &Job, verified: Result<Speculated, RowError>) -> Answer {
    let mut verified = verified.map_err(Fault::Row)?;
    let whole = job.request.verify.as_ref().is_some_and(|verify| verify.tokens().is_some());
    Ok(match whole {
        true => Drawn::Draft(verified),
        false => Drawn::Token(verified.outcomes.remove(0)),
    })
}

fn fault(error: Error) -> Fault {
    Fault::Request(error.to_string())
}
