//! Floating-point numbers as a file holds them.

use half::{bf16, f16};
use klero::{Batch, Element, Error, Logits};
use std::borrow::Cow;

/// Numbers of one of the types that logits, hidden states and logprobs may come in. f32 holds each of them exactly.
#[derive(Clone, Debug)]
pub enum Numbers<'b> {
    /// As they are computed with.
    F32(Cow<'b, [f32]>),
    /// Half precision.
    F16(Cow<'b, [f16]>),
    /// The upper half of an f32.
    BF16(Cow<'b, [bf16]>),
}

impl Numbers<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::F16(numbers) => numbers.len(),
            Self::BF16(numbers) => numbers.len(),
        }
    }

    /// The same numbers in f32.
    pub fn widen(&self) -> Cow<'_, [f32]> {
        match self {
            Self::F32(numbers) => Cow::Borrowed(numbers),
            Self::F16(numbers) => numbers.iter().map(|number| number.widen()).collect(),
            Self::BF16(numbers) => numbers.iter().map(|number| number.widen()).collect(),
        }
    }

    /// All that can be drawn from them as `rows` rows of logits.
    ///
    /// # Errors
    /// As [`Logits::new`].
    pub fn logits(&self, rows: usize) -> Result<Batch<'_>, Error> {
        let width = self.len() / rows.max(1);
        Ok(match self {
            Self::F32(numbers) => Logits::new(numbers, rows, width)?.batch(),
            Self::F16(numbers) => Logits::new(numbers, rows, width)?.batch(),
            Self::BF16(numbers) => Logits::new(numbers, rows, width)?.batch(),
        })
    }
}
