//! A request with the tensors it names, and the rows it stands for.

use super::request::{Allowed, Request, Source};
use super::verify::{Drafted, Proposed, Verify};
use crate::numbers::Numbers;
use crate::tensors::{BlockType, Rows, Tensors};
use klero::{Draft, Proposal, Row, Speculation, Weights};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The weights that requests name.
pub type Heads<'a> = BTreeMap<HeadName<'a>, Result<Weights<'a>, String>>;

/// The name of a head's tensor, and the type of its blocks where it holds bytes.
pub type HeadName<'a> = (&'a str, BlockType);

/// Finds the weights of every head, once.
pub fn heads<'a>(tensors: &Tensors<'a>, requests: impl Iterator<Item = &'a Request>) -> Heads<'a> {
    let mut heads = Heads::new();
    for request in requests {
        if let Source::Head { weights, blocks, .. } = &request.source {
            heads.entry((weights, *blocks)).or_insert_with(|| tensors.weights(weights, *blocks));
        }
    }
    heads
}

/// A request with the numbers that it names.
pub struct Job<'a> {
    pub request: &'a Request,
    /// The name of the head and its weights; none where the logits are ready.
    pub head: Option<(HeadName<'a>, &'a Weights<'a>)>,
    /// Logits or hidden states, a row for each row of the request.
    pub numbers: Numbers<'a>,
    mask: Option<Mask<'a>>,
    /// For whole drafts, one row behind the other.
    draft_logprobs: Option<Numbers<'a>>,
}

/// Words of allowed ids, `width` for each row, or for all rows the same.
struct Mask<'a> {
    words: Cow<'a, [u32]>,
    width: usize,
}

impl<'a> Job<'a> {
    /// Finds the tensors of a request, and whether they fit it.
    pub fn new(tensors: &Tensors<'a>, heads: &'a Heads<'a>, request: &'a Request) -> Result<Self, String> {
        let tokens = request.verify.as_ref().and_then(Verify::tokens);
        let rows = tokens.map_or(Rows::One(request.row), |tokens| Rows::All(tokens.len() + 1));
        let (Source::Logits(name) | Source::Head { hidden: name, .. }) = &request.source;
        let numbers = tensors.numbers(name, rows)?;
        let width = numbers.len() / request.row_count();
        let head = head(heads, &request.source, width)?;
        let vocabulary = head.map_or(width, |(_, weights)| weights.rows());
        let valid = request.vocabulary.unwrap_or(vocabulary).min(vocabulary);
        below(valid, "draft_tokens", tokens.unwrap_or_default())?;
        let mask = request.allowed.as_ref().map(|allowed| Mask::new(tensors, allowed, rows, valid)).transpose()?;
        let logprobs = |verify: &'a Verify| draft_logprobs(tensors, verify);
        let draft_logprobs = request.verify.as_ref().and_then(logprobs).transpose()?;
        Ok(Self { request, head, numbers, mask, draft_logprobs })
    }

    /// The draft's logprobs in f32, for [`Job::rows`] to borrow.
    pub fn widened(&self) -> Cow<'_, [f32]> {
        self.draft_logprobs.as_ref().map(Numbers::widen).unwrap_or_default()
    }

    /// The rows of the request: one, or those of a whole draft.
    pub fn rows<'r>(&'r self, draft_logprobs: &'r [f32]) -> Vec<Row<'r>> {
        let request = self.request;
        let row = Row {
            stream: request.stream,
            vocabulary: request.vocabulary,
            ids: &request.ids,
            ..Row::new(request.sampling, request.position).with_edits(request.edits.edits())
        };
        let mut rows = match &request.verify {
            None => vec![row],
            Some(Verify { drafted, proposed }) => match drafted {
                Drafted::Token(token) => {
                    vec![row.with_draft(Draft { token: *token, proposal: proposed.of_token(0, 1, draft_logprobs) })]
                }
                Drafted::Tokens(tokens) => {
                    Speculation::new(row, tokens, |j| proposed.of_token(j, tokens.len(), draft_logprobs)).rows
                }
            },
        };
        for (j, row) in rows.iter_mut().enumerate() {
            row.edits.allowed = self.mask.as_ref().map(|mask| mask.row(j));
        }
        rows
    }
}

impl Request {
    /// How many rows of logits it takes.
    pub(super) fn row_count(&self) -> usize {
        1 + self.verify.as_ref().and_then(Verify::tokens).map_or(0, <[u32]>::len)
    }
}

impl Proposed {
    /// How token j of `count` came about, whose logprobs lie in the j-th part.
    fn of_token<'r>(&self, j: usize, count: usize, logprobs: &'r [f32]) -> Proposal<'r> {
        match *self {
            Self::Logprobs { delta, .. } => {
                let width = logprobs.len() / count;
                Proposal::Distribution { logprobs: &logprobs[j * width..][..width], delta }
            }
            Self::OneHot { delta } => Proposal::OneHot { delta },
            Self::Coupled => Proposal::Coupled,
        }
    }
}

impl<'a> Mask<'a> {
    fn new(tensors: &Tensors<'a>, allowed: &Allowed, rows: Rows, valid: usize) -> Result<Self, String> {
        match allowed {
            Allowed::Bitmask(name) => {
                let (words, width) = tensors.words(name, rows)?;
                Ok(Self { width: width.min(words.len()), words })
            }
            Allowed::Ids(ids) => {
                below(valid, "allowed", ids)?;
                let mut words = vec![0; valid.div_ceil(32)];
                ids.iter().for_each(|id| words[*id as usize / 32] |= 1 << (id % 32));
                Ok(Self { width: words.len(), words: words.into() })
            }
        }
    }

    fn row(&self, j: usize) -> &[u32] {
        match self.words.len() == self.width {
            true => &self.words,
            false => &self.words[j * self.width..][..self.width],
        }
    }
}

/// The head of a source, whose hidden states have `width` numbers.
fn head<'a>(
    heads: &'a Heads<'a>,
    source: &'a Source,
    width: usize,
) -> Result<Option<(HeadName<'a>, &'a Weights<'a>)>, String> {
    let Source::Head { weights: name, blocks, .. } = source else { return Ok(None) };
    let weights = match heads.get(&(name.as_str(), *blocks)) {
        Some(Ok(weights)) => weights,
        Some(Err(error)) => return Err(error.clone()),
        None => return Err(format!("tensor `{name}` was not looked for")),
    };
    match weights.cols() {
        cols if cols == width => Ok(Some(((name, *blocks), weights))),
        cols => Err(format!("the hidden state has length {width}, must be {cols}, the width of `{name}`")),
    }
}

fn draft_logprobs<'a>(tensors: &Tensors<'a>, verify: &Verify) -> Option<Result<Numbers<'a>, String>> {
    let Proposed::Logprobs { tensor, row, .. } = &verify.proposed else { return None };
    let rows = verify.tokens().map_or(Rows::One(*row), |tokens| Rows::All(tokens.len()));
    Some(tensors.numbers(tensor, rows))
}

/// Checks ids that the draw itself would not look at, or not always.
fn below(valid: usize, field: &str, ids: &[u32]) -> Result<(), String> {
    match ids.iter().find(|id| **id as usize >= valid) {
        Some(id) => Err(format!("{field} holds id {id}, must be below {valid}, the row's vocabulary")),
        None => Ok(()),
    }
}
