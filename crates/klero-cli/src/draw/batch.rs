//! Requests drawn together. No result depends on it; it only reads a head's weights once for many rows.

use super::Fault;
use super::request::{Request, Source};
use crate::tensors::Tensors;
use klero::{Draft, FusedHead, Logits, Outcome, Row, RowError};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Rows of one call of a head: what a call remembers of each row grows with the vocabulary.
const TOGETHER: usize = 64;

/// A request with the numbers that it names, except the weights, which many requests share.
pub struct Job<'a> {
    request: &'a Request,
    /// Logits or a hidden state, as the request's source says.
    numbers: Cow<'a, [f32]>,
    draft_logprobs: Option<Cow<'a, [f32]>>,
}

/// What came of a request.
type Drawn = Result<Outcome, Fault>;

impl<'a> Job<'a> {
    /// Finds the tensors.
    pub fn new(tensors: &Tensors<'a>, request: &'a Request) -> Result<Self, String> {
        let (Source::Logits(name) | Source::Head { hidden: name, .. }) = &request.source;
        let numbers = tensors.row(name, request.row)?;
        let verify = request.verify.as_ref();
        let draft_logprobs = verify.map(|verify| tensors.row(&verify.draft_logprobs, verify.row)).transpose()?;
        Ok(Self { request, numbers, draft_logprobs })
    }

    fn row(&self) -> Row<'_> {
        let request = self.request;
        let draft = request.verify.as_ref().zip(self.draft_logprobs.as_ref());
        Row {
            stream: request.stream,
            vocabulary: request.vocabulary,
            draft: draft.map(|(verify, logprobs)| Draft::new(verify.draft_token, logprobs).with_delta(verify.delta)),
            ..Row::new(request.sampling, request.position)
        }
    }
}

/// Draws every job that is one, and passes on the faults of the others.
pub fn draw(tensors: &Tensors, jobs: &[Result<Job, Fault>]) -> Vec<Drawn> {
    let mut drawn: Vec<Option<Drawn>> = jobs
        .par_iter()
        .map(|job| match job {
            Err(fault) => Some(Err(fault.clone())),
            Ok(job) => matches!(job.request.source, Source::Logits(_)).then(|| ready(job)),
        })
        .collect();
    for (weights, members) in heads(jobs) {
        let (places, jobs): (Vec<usize>, Vec<&Job>) = members.into_iter().unzip();
        for (place, outcome) in places.into_iter().zip(fused(tensors, weights, &jobs)) {
            drawn[place] = Some(outcome);
        }
    }
    drawn.into_iter().map(|drawn| drawn.expect("a job draws from logits or from a head")).collect()
}

/// The jobs that name each head's weights, with their places.
fn heads<'a, 'j>(jobs: &'j [Result<Job<'a>, Fault>]) -> BTreeMap<&'j str, Vec<(usize, &'j Job<'a>)>> {
    let mut heads: BTreeMap<&str, Vec<(usize, &Job)>> = BTreeMap::new();
    for (place, job) in jobs.iter().enumerate() {
        if let Ok(job) = job
            && let Source::Head { weights, .. } = &job.request.source
        {
            heads.entry(weights).or_default().push((place, job));
        }
    }
    heads
}

/// Draws from ready logits.
fn ready(job: &Job) -> Drawn {
    let drawn = Logits::new(&job.numbers, 1, job.numbers.len()).and_then(|logits| logits.draw(&[job.row()]));
    first(drawn.map_err(fault)?)
}

/// Draws from the head whose weights are called `name`.
fn fused(tensors: &Tensors, name: &str, jobs: &[&Job]) -> Vec<Drawn> {
    let all = |error: String| jobs.iter().map(|_| Err(Fault::Request(error.clone()))).collect();
    let weights = match tensors.weights(name) {
        Ok(weights) => weights,
        Err(error) => return all(error),
    };
    let head = match FusedHead::new(&weights) {
        Ok(head) => head,
        Err(error) => return all(format!("tensor `{name}`: {error}")),
    };
    let fits = |job: &&&Job| job.numbers.len() == weights.cols();
    let fitting: Vec<&Job> = jobs.iter().filter(fits).copied().collect();
    let mut drawn = fitting.chunks(TOGETHER).flat_map(|jobs| together(&head, jobs));
    let outcome = |job: &&Job| match fits(&job) {
        true => drawn.next().expect("an outcome for every fitting job"),
        false => Err(Fault::Request(misfit(job, name, weights.cols()))),
    };
    jobs.iter().map(outcome).collect()
}

fn misfit(job: &Job, weights: &str, cols: usize) -> String {
    format!("the hidden state has length {}, must be {cols}, the width of `{weights}`", job.numbers.len())
}

/// One call of a head, all of whose hidden states have its width.
fn together(head: &FusedHead, jobs: &[&Job]) -> Vec<Drawn> {
    let hidden: Vec<f32> = jobs.iter().flat_map(|job| job.numbers.iter().copied()).collect();
    let rows: Vec<Row> = jobs.iter().map(|job| job.row()).collect();
    match head.draw(&hidden, &rows) {
        Ok(outcomes) => outcomes.into_iter().map(|outcome| outcome.map_err(Fault::Row)).collect(),
        Err(error) => jobs.iter().map(|_| Err(fault(error.clone()))).collect(),
    }
}

fn fault(error: klero::Error) -> Fault {
    Fault::Request(error.to_string())
}

fn first(mut drawn: Vec<Result<Outcome, RowError>>) -> Drawn {
    drawn.remove(0).map_err(Fault::Row)
}
