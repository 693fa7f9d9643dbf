//! One draw taken apart, so that a person can follow it.
//!
//! The numbers are those the draw decided by: the same order, integer masses, noise and scores. Only the presentation
//! sorts the whole row, which the draw itself never does.

use crate::batch::{Batch, FullRow};
use crate::hash::{Case, row_hash, uniform};
use crate::mass;
use crate::math::exp;
use crate::noise::Noise;
use crate::order::Ranked;
use crate::params::{Draw, FilterOrder, Sampling};
use crate::{Element, Error, Logits, Outcome, Row, RowError};

/// A draw and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What was drawn.
    pub outcome: Outcome,
    /// How.
    pub draw: Draw,
    /// z, the row's 64 random bits.
    pub hash: u64,
    /// u, the uniform number of z: what the inverse CDF looks for.
    pub uniform: f64,
    /// How many ids are left after the mask with a finite logit.
    pub candidates: usize,
    /// The mass of all kept ids in the whole distribution.
    pub kept_mass: f64,
    /// Where each filter that removes anything cuts, in the order in which they are applied.
    pub cuts: Vec<Cut>,
    /// The best tokens, best first, and the drawn one if it is not among them.
    pub tokens: Vec<ExplainedToken>,
}

/// Where a filter cuts the order of ids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// What becomes of the ids behind the cut, unless a filter applied earlier removes them: never [`Fate::Kept`].
    pub fate: Fate,
    /// How many ids stand before the cut.
    pub rank: usize,
    /// Their mass in the whole distribution.
    pub mass: f64,
}

/// One token of an [`Explanation`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplainedToken {
    /// The token.
    pub token: u32,
    /// Its place in the order of ids, from 0.
    pub rank: usize,
    /// The model's logit.
    pub logit: f32,
    /// x, the logit after penalties and bias, times 1/T.
    pub scaled: f32,
    /// Its probability before the filters.
    pub probability: f64,
    /// The mass of all better ids: what top-p looks at.
    pub mass_before: f64,
    /// What the filters did with it.
    pub fate: Fate,
    /// Its part in the draw; None for a removed token.
    pub lot: Option<Lot>,
}

/// What the filters did with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may be drawn.
    Kept,
    /// The mass before it is greater than top_p.
    TopP,
    /// Its rank is top_k or more.
    TopK,
    /// Its probability is below min_p of the best one's.
    MinP,
}

/// A kept token's part in the draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lot {
    /// The Gumbel race: the greatest score wins.
    Race {
        /// The noise of the id.
        noise: Noise,
        /// x + g.
        score: f64,
    },
    /// The inverse CDF: the token is drawn if u falls into this part of [0, 1).
    Interval {
        /// The running mass before the id, in vocabulary order.
        from: f64,
        /// The running mass with it.
        to: f64,
    },
}

impl<E: Element> Logits<'_, E> {
    /// Draws row `row` as [`Logits::draw`] does and explains it by its `shown` best tokens: [`Batch::explain`].
    ///
    /// # Errors
    /// As [`Batch::explain`].
    pub fn explain(&self, row: usize, asked: &Row, shown: usize) -> Result<Result<Explanation, RowError>, Error> {
        self.batch().explain(row, asked, shown)
    }
}

impl Batch<'_> {
    /// Draws row `row` and explains it by its `shown` best tokens. A draft is left aside.
    ///
    /// ```
    /// use klero::{Fate, Logits, Row, SamplingParams};
    /// let values = [0.5f32, 0.3, 0.2].map(f32::ln);
    /// let sampling = SamplingParams { top_p: 0.55, top_k: 2, seed: Some(1), ..Default::default() }.check().unwrap();
    /// let explanation = Logits::new(&values, 1, 3)?.batch().explain(0, &Row::new(sampling, 0), 3)?.unwrap();
    /// let fates: Vec<Fate> = explanation.tokens.iter().map(|token| token.fate).collect();
    /// assert_eq!(fates, [Fate::Kept, Fate::Kept, Fate::TopP]);
    /// # Ok::<(), klero::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there is no such row; the row's own faults as [`RowError`].
    pub fn explain(&self, row: usize, asked: &Row, shown: usize) -> Result<Result<Explanation, RowError>, Error> {
        let asked = Row { draft: None, ..*asked };
        Ok(self.row_in_full(row, &asked)?.map(|full| explain(&full, &asked, shown)))
    }
}

fn explain(full: &FullRow, asked: &Row, shown: usize) -> Explanation {
    let sampling = asked.sampling;
    let mut ranked: Vec<Ranked> =
        (0..).zip(&full.x).map(|(id, x)| Ranked::new(*x, id)).filter(|ranked| ranked.x() > f32::NEG_INFINITY).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let outcome = full.outcome.clone();
    let hash = row_hash(asked.stream.seed(sampling.seed), asked.position, Case::Fresh);
    let order = Order::new(&ranked, outcome.log_normalizer, &sampling, outcome.kept, hash);
    let cuts = order.cuts();
    let drawn = ranked.iter().position(|ranked| ranked.id() == outcome.token).expect("the drawn token is finite");
    let last = shown.min(ranked.len());
    let tokens =
        (0..last).chain((drawn >= last).then_some(drawn)).map(|rank| order.token(&full.logits, &cuts, rank)).collect();
    Explanation {
        draw: sampling.draw,
        hash,
        uniform: uniform(hash),
        candidates: ranked.len(),
        kept_mass: order.before(outcome.kept),
        cuts,
        tokens,
        outcome,
    }
}

/// A row in the order of ids, with the masses that the filters saw.
struct Order<'a> {
    ranked: &'a [Ranked],
    sampling: &'a Sampling,
    kept: usize,
    hash: u64,
    max: f32,
    total: f64,
    /// The mass of the ids before each rank.
    before: Vec<u64>,
}

impl<'a> Order<'a> {
    fn new(ranked: &'a [Ranked], log_normalizer: f64, sampling: &'a Sampling, kept: usize, hash: u64) -> Self {
        let max = ranked[0].x();
        let mut before = vec![0];
        for ranked in ranked {
            before.push(before[before.len() - 1] + mass::weight(ranked.x(), max));
        }
        let total = (log_normalizer - f64::from(max)).exp();
        Self { ranked, sampling, kept, hash, max, total, before }
    }

    fn before(&self, rank: usize) -> f64 {
        (mass::value(self.before[rank]) / self.total).min(1.0)
    }

    fn token(&self, logits: &[f32], cuts: &[Cut], rank: usize) -> ExplainedToken {
        let (token, scaled) = (self.ranked[rank].id(), self.ranked[rank].x());
        ExplainedToken {
            token,
            rank,
            logit: logits[token as usize],
            scaled,
            probability: mass::value(mass::weight(scaled, self.max)) / self.total,
            mass_before: self.before(rank),
            fate: fate(cuts, rank),
            lot: (rank < self.kept).then(|| self.lot(rank)),
        }
    }

    fn cuts(&self) -> Vec<Cut> {
        let (sampling, all) = (self.sampling, self.ranked.len());
        let top_k = sampling.top_k.map_or(all, |k| k.min(all));
        let min_p = self.ranked.partition_point(|ranked| exp(ranked.x() - self.max) >= sampling.min_p);
        let top_p = |limit: fn(f32, u64) -> u64, left: usize| {
            let limit = limit(sampling.top_p, self.before[left]);
            let removes = |rank: &usize| sampling.top_p < 1.0 && self.before[*rank] > limit;
            (0..left).find(removes).unwrap_or(all)
        };
        let cuts = match sampling.filter_order {
            FilterOrder::TopPFirst => [(Fate::TopP, top_p(mass::limit, all)), (Fate::TopK, top_k), (Fate::MinP, min_p)],
            FilterOrder::MinPFirst => {
                let left = top_k.min(min_p);
                [(Fate::MinP, min_p), (Fate::TopK, top_k), (Fate::TopP, top_p(mass::limit_below, left))]
            }
        };
        let cut = |(fate, rank): (Fate, usize)| (rank < all).then(|| Cut { fate, rank, mass: self.before(rank) });
        cuts.into_iter().filter_map(cut).collect()
    }

    fn lot(&self, rank: usize) -> Lot {
        let ranked = self.ranked[rank];
        match self.sampling.draw {
            Draw::Gumbel => {
                let noise = Noise::of(self.hash, ranked.id());
                Lot::Race { noise, score: f64::from(ranked.x()) + noise.gumbel }
            }
            Draw::InverseCdf => {
                let kept = &self.ranked[..self.kept];
                let ahead = kept.iter().filter(|other| other.id() < ranked.id());
                let running: u64 = ahead.map(|other| mass::weight(other.x(), self.max)).sum();
                let all = self.before[self.kept] as f64;
                let own = mass::weight(ranked.x(), self.max);
                Lot::Interval { from: running as f64 / all, to: (running + own) as f64 / all }
            }
        }
    }
}

/// What the filters do with a rank: the first that removes it counts.
fn fate(cuts: &[Cut], rank: usize) -> Fate {
    cuts.iter().find(|cut| cut.rank <= rank).map_or(Fate::Kept, |cut| cut.fate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplingParams;

    fn explained(params: &SamplingParams, shown: usize) -> Explanation {
        let values: Vec<f32> = (0..300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 4e6).collect();
        let row = Row::new(params.check().unwrap(), 3);
        Logits::new(&values, 1, 300).unwrap().explain(0, &row, shown).unwrap().unwrap()
    }

    #[test]
    fn the_drawn_token_has_the_best_score_or_holds_u() {
        for seed in 0..50 {
            let params = SamplingParams { seed: Some(seed), top_k: 40, ..Default::default() };
            let race = explained(&params, 40);
            let score = |token: &ExplainedToken| match token.lot {
                Some(Lot::Race { score, .. }) => score,
                _ => panic!("{token:?}"),
            };
            let best = race.tokens.iter().max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
            assert_eq!(best.token, race.outcome.token);

            let cdf = explained(&SamplingParams { draw: Draw::InverseCdf, ..params }, 40);
            let drawn = cdf.tokens.iter().find(|token| token.token == cdf.outcome.token).unwrap();
            match drawn.lot {
                Some(Lot::Interval { from, to }) => assert!(from <= cdf.uniform && cdf.uniform < to),
                _ => panic!("{drawn:?}"),
            }
        }
    }

    #[test]
    fn masses_add_up_and_the_drawn_token_is_always_shown() {
        let explanation = explained(&SamplingParams { seed: Some(9), ..Default::default() }, 300);
        let total: f64 = explanation.tokens.iter().map(|token| token.probability).sum();
        assert!((total - 1.0).abs() < 1e-6 && (explanation.kept_mass - 1.0).abs() < 1e-6);
        let few = explained(&SamplingParams { seed: Some(9), temperature: 1e6, ..Default::default() }, 1);
        assert_eq!(few.tokens.last().unwrap().token, few.outcome.token);
    }

    #[test]
    fn the_fate_names_the_first_filter_that_removes() {
        let params = SamplingParams { seed: Some(1), top_p: 0.8, top_k: 3, min_p: 0.3, ..Default::default() };
        let explanation = explained(&params, 30);
        assert_eq!(explanation.outcome.kept, explanation.tokens.iter().filter(|t| t.fate == Fate::Kept).count());
        for pair in explanation.tokens[..30].windows(2) {
            assert!(pair[0].fate == Fate::Kept || pair[1].fate != Fate::Kept);
        }
    }

    #[test]
    fn the_kept_ids_end_at_the_first_cut() {
        let mut binding = std::collections::HashSet::new();
        for filter_order in [FilterOrder::TopPFirst, FilterOrder::MinPFirst] {
            for i in 0..512 {
                let top_p = [1.0, 0.999, 0.9, 0.5, 0.3, 0.1, 0.01, 1e-30][i % 8];
                let top_k = [-1, 1, 2, 5, 20, 100, 299, 400][i / 8 % 8];
                let min_p = [0.0, 1e-30, 1e-9, 0.01, 0.1, 0.3, 0.7, 0.999][i / 64];
                let params = SamplingParams { seed: Some(1), top_p, top_k, min_p, filter_order, ..Default::default() };
                let Explanation { outcome, candidates, cuts, tokens, .. } = explained(&params, 300);
                let first = cuts.iter().min_by_key(|cut| cut.rank);
                assert_eq!(outcome.kept, first.map_or(candidates, |cut| cut.rank), "{params:?}");
                assert!(cuts.iter().all(|cut| cut.mass == tokens[cut.rank].mass_before), "{params:?}");
                assert_eq!(tokens.iter().filter(|token| token.fate == Fate::Kept).count(), outcome.kept, "{params:?}");
                binding.extend(first.map(|cut| format!("{filter_order:?} {:?}", cut.fate)));
            }
        }
        assert_eq!(binding.len(), 6, "{binding:?}");
    }
}
