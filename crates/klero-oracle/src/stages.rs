//! What happens to a row's logits before temperature (law, point 1): penalties, bias, mask, force_top_k, each once.
//!
//! The law names f32 operations here, so they are part of what the row is; nothing is close to anything.

use crate::{Params, Status};

/// What changes a row's logits. The default changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edits<'a> {
    /// The prompt's ids.
    pub prompt: &'a [u32],
    /// The ids written so far, each as often as it was written.
    pub output: &'a [u32],
    /// What is added to single logits.
    pub bias: &'a [(u32, f32)],
    /// Ids that may not be drawn: the row's own and those of the whole engine.
    pub banned: &'a [u32],
    /// One bit an id, bit id mod 32 of word ⌊id / 32⌋, set where it may be drawn.
    pub allowed: Option<&'a [u32]>,
}

/// A row after the stages.
pub(crate) struct Staged {
    /// The logits, −∞ where an id takes no part.
    pub logits: Vec<f32>,
    /// Which ids the mask leaves: the ones that are judged.
    pub unmasked: Vec<bool>,
}

/// Runs all stages and judges what the first two left; `params` are the effective ones.
pub(crate) fn stage(logits: &[f32], valid: usize, params: &Params, edits: &Edits) -> Result<Staged, Status> {
    let unmasked: Vec<bool> = (0..logits.len()).map(|id| id < valid && edits.allows(id)).collect();
    let edited: Vec<f32> = (0..logits.len()).map(|id| edits.edited(id, logits[id], params)).collect();
    let judged = || (0..logits.len()).filter(|&id| unmasked[id]);
    if let Some(id) = judged().find(|&id| logits[id].is_nan()) {
        return Err(Status::Nan(id));
    }
    if let Some(id) = judged().find(|&id| logits[id] != f32::NEG_INFINITY && !edited[id].is_finite()) {
        return Err(Status::Infinite(id));
    }
    let mut masked = edited;
    for id in 0..masked.len() {
        if !unmasked[id] {
            masked[id] = f32::NEG_INFINITY;
        }
    }
    Ok(Staged { logits: force_top_k(masked, params.force_top_k), unmasked })
}

impl Edits<'_> {
    fn allows(&self, id: usize) -> bool {
        let bit = |words: &[u32]| words[id / 32] >> (id % 32) & 1 == 1;
        !self.banned.contains(&(id as u32)) && self.allowed.is_none_or(bit)
    }

    /// A logit after penalties and bias; −∞ stays.
    fn edited(&self, id: usize, logit: f32, params: &Params) -> f32 {
        let id = id as u32;
        if logit == f32::NEG_INFINITY {
            return logit;
        }
        let mut l = logit;
        let written = self.output.iter().filter(|&&other| other == id).count();
        if written > 0 || self.prompt.contains(&id) {
            let rho = params.repetition_penalty as f32;
            l = if l > 0.0 { l / rho } else { l * rho };
        }
        if written > 0 {
            l -= params.frequency_penalty as f32 * written as f32 + params.presence_penalty as f32;
        }
        self.bias.iter().filter(|(other, _)| *other == id).fold(l, |l, (_, bias)| l + bias)
    }
}

/// Keeps the `n` largest logits, ties by lower id; 0 keeps all.
fn force_top_k(mut logits: Vec<f32>, n: usize) -> Vec<f32> {
    if n > 0 {
        let mut ids: Vec<usize> = (0..logits.len()).collect();
        ids.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).expect("no logit is NaN").then(a.cmp(&b)));
        for &id in ids.iter().skip(n) {
            logits[id] = f32::NEG_INFINITY;
        }
    }
    logits
}
