//! Requests drawn together. No result depends on it; it only reads a head's weights once for many rows.

use super::request::{Allowed, Drafted, ProposalName, Request, Source};
use super::{Answer, Fault};
use crate::tensors::{BlockType, Tensors};
use klero::{Batch, Draft, Edits, FusedHead, Logits, Policy, Proposal, Row, Speculation, Weights};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Rows of one call of a head: what a call remembers of each row grows with the vocabulary.
const TOGETHER: usize = 64;

/// A request with the numbers that it names, except the weights, which many requests share.
pub struct Job<'a> {
    request: &'a Request,
    /// Logits or hidden states, as the request's source says.
    numbers: Cow<'a, [f32]>,
    /// Rows of them: one, or one more than the tokens of a whole draft.
    rows: usize,
    draft_logprobs: Option<Cow<'a, [f32]>>,
    bitmask: Option<Cow<'a, [u32]>>,
}

/// What came of a request.
type Drawn = Result<Answer, Fault>;

impl<'a> Job<'a> {
    /// Finds the tensors.
    pub fn new(tensors: &Tensors<'a>, request: &'a Request) -> Result<Self, String> {
        let (Source::Logits(name) | Source::Head { hidden: name, .. }) = &request.source;
        let verify = request.verify.as_ref();
        let drafted = match verify.map(|verify| &verify.drafted) {
            Some(Drafted::Tokens(tokens)) => Some(tokens.len()),
            _ => None,
        };
        let numbers = match drafted {
            Some(k) => tensors.rows(name, k + 1)?,
            None => tensors.row(name, request.row)?,
        };
        let logprobs = |name: &str, row| match drafted {
            Some(k) => tensors.rows(name, k),
            None => tensors.row(name, row),
        };
        let draft_logprobs = match verify.map(|verify| (&verify.proposal, verify.row)) {
            Some((ProposalName::Logprobs(name), row)) => Some(logprobs(name, row)?),
            _ => None,
        };
        let bitmask = match &request.allowed {
            Some(Allowed::Bitmask(name)) => Some(tensors.bitmask(name, request.row)?),
            _ => None,
        };
        Ok(Self { request, numbers, rows: drafted.unwrap_or(0) + 1, draft_logprobs, bitmask })
    }

    /// Numbers of one row.
    fn width(&self) -> usize {
        self.numbers.len() / self.rows
    }

    /// Whether the request asks for more than one draw.
    fn is_plain(&self) -> bool {
        self.rows == 1 && self.request.samples.is_none() && !self.drafts_tokens()
    }

    fn drafts_tokens(&self) -> bool {
        self.request.verify.as_ref().is_some_and(|verify| matches!(verify.drafted, Drafted::Tokens(_)))
    }

    /// The mask of allowed ids of a vocabulary, in words of 32 bits.
    fn mask(&self, vocabulary: usize) -> Result<Option<Cow<'_, [u32]>>, String> {
        let Some(Allowed::Ids(ids)) = &self.request.allowed else {
            return Ok(self.bitmask.as_deref().map(Cow::Borrowed));
        };
        let mut words = vec![0; vocabulary.div_ceil(32)];
        for id in ids {
            let word = words.get_mut(*id as usize / 32).filter(|_| (*id as usize) < vocabulary);
            let word =
                word.ok_or_else(|| format!("allowed holds id {id}, must be below {vocabulary}, the vocabulary"))?;
            *word |= 1 << (id % 32);
        }
        Ok(Some(Cow::Owned(words)))
    }

    fn row<'r>(&'r self, mask: Option<&'r [u32]>) -> Row<'r> {
        let request = self.request;
        let edits = Edits {
            history: request.history.as_ref(),
            drafted: &[],
            bias: request.logit_bias.as_ref(),
            banned: request.banned.as_ref(),
            allowed: mask,
        };
        Row {
            stream: request.stream,
            vocabulary: request.vocabulary,
            draft: self.draft(),
            edits,
            ids: &request.ids,
            ..Row::new(request.sampling, request.position)
        }
    }

    /// The draft of a single token.
    fn draft(&self) -> Option<Draft<'_>> {
        match self.request.verify.as_ref().map(|verify| &verify.drafted) {
            Some(Drafted::Token(token)) => Some(Draft { token: *token, proposal: self.proposal(0) }),
            _ => None,
        }
    }

    /// How the token of row `j` was drafted. A tensor that is too short shows as logprobs that are.
    fn proposal(&self, j: usize) -> Proposal<'_> {
        let verify = self.request.verify.as_ref().expect("only a request with a draft has a proposal");
        match &verify.proposal {
            ProposalName::Logprobs(_) => {
                let all = self.draft_logprobs.as_deref().unwrap_or_default();
                let width = all.len() / (self.rows - 1).max(1);
                Proposal::Distribution { logprobs: &all[j * width..][..width], delta: verify.delta }
            }
            ProposalName::OneHot => Proposal::OneHot { delta: verify.delta },
            ProposalName::Coupled => Proposal::Coupled,
        }
    }

    /// Draws from a batch that holds the rows of this job alone.
    fn draw(&self, batch: &Batch, vocabulary: usize) -> Drawn {
        let mask = self.mask(vocabulary).map_err(Fault::Request)?;
        let row = self.row(mask.as_deref());
        if let Some(n) = self.request.samples {
            let samples = batch.samples(&[row], n).map_err(fault)?.remove(0);
            return samples.into_iter().collect::<Result<_, _>>().map(Answer::Samples).map_err(Fault::Row);
        }
        match self.request.verify.as_ref().map(|verify| &verify.drafted) {
            Some(Drafted::Tokens(tokens)) => {
                let draft = Speculation::new(row, tokens, |j| self.proposal(j));
                batch.verify(&[draft]).map_err(fault)?.remove(0).map(Answer::Draft).map_err(Fault::Row)
            }
            _ => batch.draw(&[row]).map_err(fault)?.remove(0).map(Answer::One).map_err(Fault::Row),
        }
    }
}

/// Draws every job that is one, and passes on the faults of the others.
pub fn draw(tensors: &Tensors, jobs: &[Result<Job, Fault>], policy: Policy) -> Vec<Drawn> {
    let mut drawn: Vec<Option<Drawn>> = jobs
        .par_iter()
        .map(|job| match job {
            Err(fault) => Some(Err(fault.clone())),
            Ok(job) => matches!(job.request.source, Source::Logits(_)).then(|| ready(job, policy)),
        })
        .collect();
    for (weights, members) in heads(jobs) {
        let (places, jobs): (Vec<usize>, Vec<&Job>) = members.into_iter().unzip();
        for (place, outcome) in places.into_iter().zip(fused(tensors, weights, &jobs, policy)) {
            drawn[place] = Some(outcome);
        }
    }
    drawn.into_iter().map(|drawn| drawn.expect("a job draws from logits or from a head")).collect()
}

/// Weights as requests name them.
type HeadName<'j> = (&'j str, BlockType);

/// The jobs that name each head's weights, with their places.
fn heads<'a, 'j>(jobs: &'j [Result<Job<'a>, Fault>]) -> BTreeMap<HeadName<'j>, Vec<(usize, &'j Job<'a>)>> {
    let mut heads: BTreeMap<HeadName, Vec<(usize, &Job)>> = BTreeMap::new();
    for (place, job) in jobs.iter().enumerate() {
        if let Ok(job) = job
            && let Source::Head { weights, blocks, .. } = &job.request.source
        {
            heads.entry((weights, *blocks)).or_default().push((place, job));
        }
    }
    heads
}

/// Draws from ready logits.
fn ready(job: &Job, policy: Policy) -> Drawn {
    let logits = Logits::new(&job.numbers, job.rows, job.width()).map_err(fault)?;
    job.draw(&logits.batch().with_policy(policy), job.width())
}

/// Draws from the head whose weights are called `name`.
fn fused(tensors: &Tensors, (name, blocks): HeadName, jobs: &[&Job], policy: Policy) -> Vec<Drawn> {
    let all = |error: String| jobs.iter().map(|_| Err(Fault::Request(error.clone()))).collect();
    let weights = match tensors.weights(name, blocks) {
        Ok(weights) => weights,
        Err(error) => return all(error),
    };
    let head = match FusedHead::new(&weights) {
        Ok(head) => head.with_policy(policy),
        Err(error) => return all(format!("tensor `{name}`: {error}")),
    };
    let mut drawn: Vec<Option<Drawn>> = jobs.iter().map(|job| unfit_or_alone(job, name, &weights, &head)).collect();
    let open: Vec<usize> = (0..jobs.len()).filter(|i| drawn[*i].is_none()).collect();
    for places in open.chunks(TOGETHER) {
        let members: Vec<&Job> = places.iter().map(|i| jobs[*i]).collect();
        for (place, outcome) in places.iter().zip(together(&head, weights.rows(), &members)) {
            drawn[*place] = Some(outcome);
        }
    }
    drawn.into_iter().map(|drawn| drawn.expect("every job was drawn alone or together")).collect()
}

/// What comes of a job that does not fit the head, or that asks for more than one draw.
fn unfit_or_alone(job: &Job, name: &str, weights: &Weights, head: &FusedHead) -> Option<Drawn> {
    let (width, cols) = (job.width(), weights.cols());
    if width != cols {
        let rule = format!("must be {cols}, the width of `{name}`");
        return Some(Err(Fault::Request(format!("the hidden state has length {width}, {rule}"))));
    }
    let alone = || job.draw(&head.batch(&job.numbers).map_err(fault)?, weights.rows());
    (!job.is_plain()).then(alone)
}

/// One call of a head for plain jobs, all of whose hidden states have its width.
fn together(head: &FusedHead, vocabulary: usize, jobs: &[&Job]) -> Vec<Drawn> {
    let masks: Vec<_> = jobs.iter().map(|job| job.mask(vocabulary)).collect();
    let sound = || jobs.iter().zip(&masks).filter_map(|(job, mask)| mask.as_ref().ok().map(|mask| (job, mask)));
    let hidden: Vec<f32> = sound().flat_map(|(job, _)| job.numbers.iter().copied()).collect();
    let rows: Vec<Row> = sound().map(|(job, mask)| job.row(mask.as_deref())).collect();
    let mut outcomes = match head.draw(&hidden, &rows) {
        Ok(outcomes) => outcomes.into_iter(),
        Err(error) => return jobs.iter().map(|_| Err(fault(error.clone()))).collect(),
    };
    let drawn = |mask: &Result<_, String>| match mask {
        Ok(_) => outcomes.next().expect("an outcome for every row").map(Answer::One).map_err(Fault::Row),
        Err(error) => Err(Fault::Request(error.clone())),
    };
    masks.iter().map(drawn).collect()
}

fn fault(error: klero::Error) -> Fault {
    Fault::Request(error.to_string())
}
