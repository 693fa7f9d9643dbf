//! Speculative decoding by rejection (law, point 10): keep a draft's token as often as the target allows, else draw
//! from what the draft left of the target, so that the token always has the target's distribution.
//!
//! (Leviathan, Kalman and Matias, 2023; Chen and others, 2023.)

use crate::choose;
use crate::hash::{Case, Noise, noise, row_hash, uniform};
use crate::{Draft, Draw, Margin, Params};

/// What became of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verification {
    /// Whether the draft's token was taken.
    pub accepted: bool,
    /// How likely that was before the draft's token was known: 1 − Σ R, never below zero.
    pub accept_probability: f64,
    /// The draft's own logprob of its token; −∞ without a token.
    pub draft_logprob: f64,
    /// The uniform number of the accept test (case 2).
    pub accept_uniform: f64,
    /// The uniform number of the draw after a rejection (case 1), whether it was needed or not.
    pub residual_uniform: f64,
}

/// One row to verify: the target's processed distribution beside the draft's, both by id.
pub(crate) struct Contest<'a> {
    /// The processed probabilities of the target, 0 where removed.
    pub target: &'a [f64],
    /// The ids the target kept, best first.
    pub kept: &'a [usize],
    /// The draft, already judged.
    pub draft: &'a Draft<'a>,
    /// The parameters of the row, with the seed of its stream.
    pub params: &'a Params,
}

/// The token to emit and how it came about.
pub(crate) struct Verified {
    pub token: usize,
    /// The noise of a token that Gumbel drew from the residual.
    pub noise: Option<Noise>,
    pub verification: Verification,
    /// R by id, 0 where it is not positive.
    pub residual: Vec<f64>,
}

/// What becomes of a draft that shares the row's random numbers: it is accepted if it is the row's own `token`.
pub(crate) fn coupled(draft: &Draft, token: usize, target: &[f64], params: &Params) -> Verification {
    let hash = |case| uniform(row_hash(params.seed, params.position, case));
    Verification {
        accepted: draft.token() == Some(token),
        accept_probability: draft.token().map_or(0.0, |id| target[id]),
        draft_logprob: f64::NEG_INFINITY,
        accept_uniform: hash(Case::Accept),
        residual_uniform: hash(Case::Residual),
    }
}

impl Contest<'_> {
    /// Tests the draft's token and, if it fails, draws from the residual.
    pub(crate) fn verify(&self, margin: &mut Margin) -> Verified {
        let accept_uniform = uniform(self.hash(Case::Accept));
        let drafted = self.draft.token();
        let accepted = drafted.filter(|&id| self.accepts(id, accept_uniform, margin));
        let (token, noise) = match accepted {
            Some(id) => (id, None),
            None => self.draw_residual(margin),
        };
        let residual: Vec<f64> = (0..self.target.len()).map(|id| self.residual(id).max(0.0)).collect();
        Verified {
            token,
            noise,
            verification: Verification {
                accepted: accepted.is_some(),
                accept_probability: (1.0 - residual.iter().sum::<f64>()).max(0.0),
                draft_logprob: drafted.map_or(f64::NEG_INFINITY, |id| self.draft.logprob(id)),
                accept_uniform,
                residual_uniform: uniform(self.hash(Case::Residual)),
            },
            residual,
        }
    }

    fn hash(&self, case: Case) -> u64 {
        row_hash(self.params.seed, self.params.position, case)
    }

    /// Accept iff p_target > 0 and u₂ · p_draft < p_target.
    fn accepts(&self, id: usize, u: f64, margin: &mut Margin) -> bool {
        let p_target = self.target.get(id).copied().unwrap_or(0.0);
        if p_target == 0.0 {
            return false;
        }
        let tested = u * self.draft.probability(id);
        margin.see((tested - p_target).abs() / self.uncertainty(id));
        tested < p_target
    }

    /// R = p_target − p_draft · e^(−δ) of one id; an id that the target removed has none.
    fn residual(&self, id: usize) -> f64 {
        match self.target[id] {
            0.0 => 0.0,
            p_target => p_target - self.draft.probability(id) * (-self.params.delta).exp(),
        }
    }

    /// A token from the residual, or the target's best where nothing is left.
    fn draw_residual(&self, margin: &mut Margin) -> (usize, Option<Noise>) {
        let mut ids = self.kept.to_vec();
        ids.sort_unstable();
        let certainty = |&id: &usize| self.residual(id) / self.uncertainty(id);
        let most = ids.iter().map(certainty).fold(f64::NEG_INFINITY, f64::max);
        margin.see(most.abs());
        if most <= 0.0 {
            return (self.kept[0], None);
        }
        let z = self.hash(Case::Residual);
        match self.params.draw {
            Draw::InverseCdf => {
                let weights: Vec<(usize, f64)> = ids.iter().map(|&id| (id, self.residual(id).max(0.0))).collect();
                (choose::inverse_cdf(&weights, uniform(z), margin), None)
            }
            Draw::Gumbel => {
                let left = ids.iter().filter(|&&id| self.residual(id) > 0.0);
                let scores: Vec<(usize, f64)> = left.map(|&id| (id, self.residual(id).ln())).collect();
                // A score says nothing here of how well R itself is known, so its own distance is not used.
                let (winner, noise) = choose::gumbel(&scores, z, &mut Margin::new());
                self.see_rivals(winner, &ids, z, margin);
                (winner, Some(noise))
            }
        }
    }

    /// The distance of a Gumbel draw from the residual to its nearest rival.
    ///
    /// ln R + g orders ids as R / E does. With every R known up to ε times its [`uncertainty`](Self::uncertainty) the
    /// winner's least value meets a rival's greatest at the ε computed here, also where the rival's R is not positive.
    fn see_rivals(&self, winner: usize, ids: &[usize], z: u64, margin: &mut Margin) {
        let rate = |id| 1.0 / noise(z, id).exponential;
        let won = rate(winner);
        for &id in ids.iter().filter(|&&id| id != winner) {
            let lost = rate(id);
            let gap = won * self.residual(winner) - lost * self.residual(id);
            margin.see(gap / (won * self.uncertainty(winner) + lost * self.uncertainty(id)));
        }
    }

    /// The unit in which p_target and p_draft of one id are known.
    ///
    /// An implementation in f32 has a relative error in each, and from integer masses an absolute one beside the best.
    fn uncertainty(&self, id: usize) -> f64 {
        self.target[id].max(self.draft.probability(id)) + 1e-6 * self.target[self.kept[0]]
    }
}
