//! What changes a row's logits before temperature: penalties for what the text holds, a bias, a mask.
//!
//! The stages run once each, in this order: penalties, bias, mask. All are sparse or one bit an id, borrowed by the row
//! and looked at block by block, so that nothing is copied for a call.

use crate::ParamError;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;

/// The edits of one row. The default changes nothing.
///
/// ```
/// use klero::{Edits, LogitBias, Logits, Row, SamplingParams};
/// let sampling = SamplingParams { temperature: 0.0, ..Default::default() }.check().unwrap();
/// let bias = LogitBias::new([(2, 5.0)]).unwrap();
/// let banned = [2].into();
/// let biased = Edits { bias: Some(&bias), ..Default::default() };
/// let both = Edits { banned: Some(&banned), ..biased };
///
/// let values = [1.0, 2.0, 0.0, /* again */ 1.0, 2.0, 0.0];
/// let row = Row::new(sampling, 0);
/// let drawn = Logits::new(&values, 2, 3)?.draw(&[row.with_edits(biased), row.with_edits(both)])?;
/// assert_eq!(drawn[0].as_ref().unwrap().token, 2);
/// assert_eq!(drawn[1].as_ref().unwrap().token, 1); // a ban has the last word
/// # Ok::<(), klero::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Edits<'a> {
    /// The tokens of the text so far, for the penalties of [`crate::SamplingParams`].
    pub history: Option<&'a History>,
    /// Tokens written after `history`: those drafted before this row of a verification step.
    pub drafted: &'a [u32],
    /// What is added to single logits.
    pub bias: Option<&'a LogitBias>,
    /// Ids that may not be drawn.
    pub banned: Option<&'a BTreeSet<u32>>,
    /// One bit an id, set where the id may be drawn: bit id mod 32 of word ⌊id / 32⌋, as grammar engines lay it out. It
    /// must cover the row's vocabulary.
    pub allowed: Option<&'a [u32]>,
}

/// Which tokens a text holds, and how often each was written.
///
/// ```
/// let mut history = klero::History::of_prompt([5, 5, 9]);
/// history.write(9);
/// assert_eq!((history.written(5), history.written(9)), (Some(0), Some(1)));
/// assert_eq!(history.written(7), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<u32, u32>);

impl History {
    /// The tokens of a prompt: the repetition penalty counts them, the others do not.
    pub fn of_prompt(tokens: impl IntoIterator<Item = u32>) -> Self {
        Self(tokens.into_iter().map(|token| (token, 0)).collect())
    }

    /// Adds a token that was written. Ids that a row's vocabulary does not hold are allowed and change nothing.
    pub fn write(&mut self, token: u32) {
        *self.0.entry(token).or_default() += 1;
    }

    /// How often a token was written; None if it is not in the text at all.
    pub fn written(&self, token: u32) -> Option<u32> {
        self.0.get(&token).copied()
    }

    fn range(&self, ids: Range<u32>) -> impl Iterator<Item = (u32, u32)> {
        self.0.range(ids).map(|(id, count)| (*id, *count))
    }
}

/// Finite numbers that are added to the logits of single ids.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(try_from = "BTreeMap<u32, f64>")]
pub struct LogitBias(BTreeMap<u32, f32>);

impl LogitBias {
    /// A bias for each id, which is rounded to f32.
    ///
    /// # Errors
    /// [`ParamError`] for a bias that is not finite in f32 and for an id that is given twice.
    pub fn new(biases: impl IntoIterator<Item = (u32, f64)>) -> Result<Self, ParamError> {
        let mut all = BTreeMap::new();
        for (id, bias) in biases {
            let refuse = |rule| Err(ParamError { field: "logit_bias", value: format!("{bias} for id {id}"), rule });
            if !(bias as f32).is_finite() {
                return refuse("a finite number (in f32)");
            }
            match all.entry(id) {
                Entry::Occupied(_) => return refuse("given once for each id"),
                Entry::Vacant(place) => place.insert(bias as f32),
            };
        }
        Ok(Self(all))
    }

    fn range(&self, ids: Range<u32>) -> impl Iterator<Item = (u32, f32)> {
        self.0.range(ids).map(|(id, bias)| (*id, *bias))
    }

    /// The greatest id.
    pub(crate) fn last(&self) -> Option<u32> {
        self.0.last_key_value().map(|(id, _)| *id)
    }
}

impl TryFrom<BTreeMap<u32, f64>> for LogitBias {
    type Error = ParamError;

    fn try_from(biases: BTreeMap<u32, f64>) -> Result<Self, ParamError> {
        Self::new(biases)
    }
}

impl<'a> Edits<'a> {
    /// Whether a logit may change, if the text counts or not.
    pub(crate) fn edit(&self, text_counts: bool) -> bool {
        let text = !self.drafted.is_empty() || self.history.is_some_and(|history| !history.0.is_empty());
        let bias = self.bias.is_some_and(|bias| !bias.0.is_empty());
        let banned = self.banned.is_some_and(|banned| !banned.is_empty());
        (text_counts && text) || bias || banned || self.allowed.is_some()
    }

    /// The ids of a range that the text holds, each with the number of times it was written.
    pub(crate) fn text(&self, ids: Range<u32>) -> impl Iterator<Item = (u32, u32)> {
        let drafted = self.drafted;
        let times = move |id: u32| drafted.iter().filter(|other| **other == id).count() as u32;
        let held = self.history.into_iter().flat_map({
            let ids = ids.clone();
            move |history| history.range(ids.clone())
        });
        let history = self.history;
        let fresh = drafted.iter().enumerate().filter(move |(i, id)| {
            let known = history.is_some_and(|history| history.written(**id).is_some());
            ids.contains(*id) && !known && !drafted[..*i].contains(id)
        });
        held.map(move |(id, count)| (id, count.saturating_add(times(id))))
            .chain(fresh.map(move |(_, id)| (*id, times(*id))))
    }

    /// The biases of a range.
    pub(crate) fn biases(&self, ids: Range<u32>) -> impl Iterator<Item = (u32, f32)> {
        self.bias.into_iter().flat_map(move |bias| bias.range(ids.clone()))
    }

    /// The banned ids of a range.
    pub(crate) fn bans(&self, ids: Range<u32>) -> impl Iterator<Item = u32> {
        self.banned.into_iter().flat_map(move |banned| banned.range(ids.clone()).copied())
    }

    /// The 64 bits of the mask that belong to a block; all set where there is no mask or it ends.
    pub(crate) fn allowed_bits(&self, block: usize) -> u64 {
        let word = |i: usize| self.allowed.map_or(u32::MAX, |words| words.get(i).copied().unwrap_or(u32::MAX));
        u64::from(word(2 * block)) | u64::from(word(2 * block + 1)) << 32
    }
}

/// What an engine sets for every row of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy<'a> {
    /// Ids that no row may draw; part of the mask.
    pub blacklist: Option<&'a BTreeSet<u32>>,
    /// N: keep the N largest logits of each row, ties by lower id. It acts after the mask and before temperature, so no
    /// later stage sees the others. None: off.
    pub force_top_k: Option<std::num::NonZeroUsize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_history_and_drafts_together() {
        let mut history = History::of_prompt([3, 70]);
        history.write(5);
        history.write(5);
        let edits = Edits { history: Some(&history), drafted: &[5, 9, 3, 9, 64], ..Default::default() };
        let text: Vec<_> = edits.text(0..64).collect();
        assert_eq!(text, [(3, 1), (5, 3), (9, 2)]);
        assert_eq!(edits.text(64..128).collect::<Vec<_>>(), [(70, 0), (64, 1)]);
    }

    #[test]
    fn a_mask_is_read_as_two_words_a_block() {
        let edits = Edits { allowed: Some(&[1, 1 << 31, 7]), ..Default::default() };
        assert_eq!(edits.allowed_bits(0), 1 | 1 << 63);
        assert_eq!(edits.allowed_bits(1), 7 | (u64::from(u32::MAX) << 32));
        assert_eq!(Edits::default().allowed_bits(5), u64::MAX);
    }

    #[test]
    fn a_bias_must_be_finite_and_given_once() {
        for bad in [f64::NAN, f64::INFINITY, 1e39] {
            let error = LogitBias::new([(1, 0.5), (7, bad)]).unwrap_err().to_string();
            assert!(error.contains("logit_bias") && error.contains("id 7") && error.contains("finite"), "{error}");
        }
        assert!(LogitBias::new([(1, 0.5), (1, 0.5)]).unwrap_err().to_string().contains("once"));
    }
}
