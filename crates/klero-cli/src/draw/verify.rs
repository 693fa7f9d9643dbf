//! The part of a request that asks for a draft to be verified.

use super::fields::Fields;
use klero::Draft;

/// The most tokens of a draft: every one is a row that the draw keeps something of.
const MAX_DRAFT: usize = 1024;

/// A draft to verify.
#[derive(Debug)]
pub struct Verify {
    /// What was drafted.
    pub drafted: Drafted,
    /// How it came about.
    pub proposed: Proposed,
}

/// Drafted tokens.
#[derive(Debug)]
pub enum Drafted {
    /// One, for the request's only row; −1 for none.
    Token(i64),
    /// Any number, for as many rows and one after them.
    Tokens(Vec<u32>),
}

/// How a draft came about: [`klero::Proposal`] with a name in the place of numbers.
#[derive(Debug)]
pub enum Proposed {
    /// From distributions.
    Logprobs {
        /// The tensor with their logprobs.
        tensor: String,
        /// The row of it, for a single token.
        row: Option<usize>,
        /// δ.
        delta: f64,
    },
    /// Without a distribution.
    OneHot {
        /// δ.
        delta: f64,
    },
    /// With the noise of the rows that verify it.
    Coupled,
}

impl Verify {
    /// Reads the fields of `verify`.
    pub fn of(mut fields: Fields) -> Result<Self, String> {
        let drafted = Drafted::of(&mut fields)?;
        let proposed = Proposed::of(&mut fields)?;
        fields.finish("`verify`")?;
        let row = matches!(proposed, Proposed::Logprobs { row: Some(_), .. });
        match drafted {
            Drafted::Tokens(_) if row => {
                Err("`row` has no meaning with `draft_tokens`, which take all rows".to_owned())
            }
            _ => Ok(Self { drafted, proposed }),
        }
    }

    /// The drafted tokens of a whole draft.
    pub fn tokens(&self) -> Option<&[u32]> {
        match &self.drafted {
            Drafted::Token(_) => None,
            Drafted::Tokens(tokens) => Some(tokens),
        }
    }
}

impl Drafted {
    fn of(fields: &mut Fields) -> Result<Self, String> {
        let token = fields.take("draft_token", "−1 (none) or an id")?;
        match (token, fields.ids("draft_tokens")?) {
            (Some(token), None) => Ok(Self::Token(token)),
            (None, Some(tokens)) if tokens.len() <= MAX_DRAFT => Ok(Self::Tokens(tokens)),
            (None, Some(tokens)) => Err(format!("draft_tokens has {} ids, must be at most {MAX_DRAFT}", tokens.len())),
            _ => Err("`verify` must have either `draft_token` or `draft_tokens`".to_owned()),
        }
    }
}

impl Proposed {
    fn of(fields: &mut Fields) -> Result<Self, String> {
        let tensor = fields.tensor("draft_logprobs")?;
        let row = fields.row()?;
        let delta: Option<f64> = fields.take("delta", "a finite number that is at least 0")?;
        let one_hot = fields.take("one_hot", "true or false")?.unwrap_or(false);
        let coupled = fields.take("coupled", "true or false")?.unwrap_or(false);
        if row.is_some() && tensor.is_none() {
            return Err("`row` in `verify` has no meaning without `draft_logprobs`".to_owned());
        }
        if delta.is_some() && coupled {
            return Err("`delta` has no meaning with `coupled`".to_owned());
        }
        let delta = delta.unwrap_or(Draft::DELTA);
        match (tensor, one_hot, coupled) {
            (Some(tensor), false, false) => Ok(Self::Logprobs { tensor, row, delta }),
            (None, true, false) => Ok(Self::OneHot { delta }),
            (None, false, true) => Ok(Self::Coupled),
            _ => Err("`verify` must have exactly one of `draft_logprobs`, `one_hot`, `coupled`".to_owned()),
        }
    }
}
