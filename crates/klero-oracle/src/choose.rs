//! The two ways to draw one id from a list of candidates (law, point 6). Both take the candidates in vocabulary order.

use crate::Margin;
use crate::hash::{Noise, noise};

/// Inverse CDF: the first id whose running weight is greater than u · total.
pub(crate) fn inverse_cdf(weights: &[(usize, f64)], u: f64, margin: &mut Margin) -> usize {
    let total: f64 = weights.iter().map(|&(_, weight)| weight).sum();
    let threshold = u * total;
    let mut before = 0.0;
    for (rank, &(id, weight)) in weights.iter().enumerate() {
        let running = before + weight;
        if running > threshold {
            // Neither end of the list has a neighbour that the draw could slip to.
            if rank > 0 {
                margin.see(threshold - before);
            }
            if rank + 1 < weights.len() {
                margin.see(running - threshold);
            }
            return id;
        }
        before = running;
    }
    // u · total was rounded up to the total itself.
    margin.see(0.0);
    let last = weights.iter().rfind(|&&(_, weight)| weight > 0.0);
    last.expect("a total above zero has a weight above zero").0
}

/// Gumbel-max: the id with the greatest score plus noise, equal ones (see [`cell`]) by lower id.
pub(crate) fn gumbel(scores: &[(usize, f64)], z: u64, margin: &mut Margin) -> (usize, Noise) {
    let noisy: Vec<f64> = scores.iter().map(|&(id, s)| s + noise(z, id).gumbel).collect();
    let mut winner = 0;
    for rank in 1..noisy.len() {
        if cell(noisy[rank]) > cell(noisy[winner]) {
            winner = rank;
        }
    }
    for (rank, &loser) in noisy.iter().enumerate() {
        if rank != winner {
            margin.see(flip_distance(noisy[winner], loser));
        }
    }
    let id = scores[winner].0;
    (id, noise(z, id))
}

/// Scores are compared by the upper 44 bits of an integer in the same order: those that agree in them share a cell.
fn cell(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    let key = if bits < 1 << 63 { bits | 1 << 63 } else { !bits };
    key >> 20
}

/// The smallest score of a cell.
fn floor(cell: u64) -> f64 {
    let key = cell << 20;
    f64::from_bits(if key < 1 << 63 { !key } else { key & !(1 << 63) })
}

/// How far two scores must move, together, before the loser may win: until they change places or share a cell, or,
/// where they share one, until one of them leaves it. Where many cells lie between, that is all but their difference.
fn flip_distance(winner: f64, loser: f64) -> f64 {
    let (high, low) = (cell(winner), cell(loser));
    let width = |cell| floor(cell + 1) - floor(cell);
    match high - low {
        0 => (winner - floor(high)).min(floor(high + 1) - loser),
        1 => (winner - floor(high)).min(floor(high) - loser),
        _ => (winner - loser - width(high).max(width(low))).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_keep_the_order_of_scores() {
        let scores = [-1e38, -1e7, -2.5, -1e-300, 0.0, 1e-300, 2.5, 1e7, 1e38];
        for pair in scores.windows(2) {
            assert!(cell(pair[0]) < cell(pair[1]), "{pair:?}");
        }
        assert_eq!(cell(-0.0), cell(0.0));
        for score in scores {
            assert!(floor(cell(score)) <= score && score < floor(cell(score) + 1), "{score}");
        }
    }

    #[test]
    fn scores_in_one_cell_go_to_the_lower_id() {
        // Cells are 2^11 wide from 2^43 on; no noise leads out of the middle of one.
        let width = 2f64.powi(11);
        let score = 2f64.powi(43) + 0.5 * width;
        for z in 0..50 {
            let draw = |scores: &[(usize, f64)]| gumbel(scores, z, &mut Margin::new()).0;
            assert_eq!(draw(&[(4, score), (5, score), (9, score)]), 4);
            assert_eq!(draw(&[(4, score), (5, score + width), (9, score + width)]), 5);
        }
    }

    #[test]
    fn distance_to_a_flip() {
        // Cells are 2^-9 wide at 10^7.
        let tick = 2f64.powi(-9);
        let base = 1e7;
        assert_eq!(floor(cell(base)), base);
        assert_eq!(flip_distance(base + 0.25 * tick, base + 0.5 * tick), 0.25 * tick);
        assert_eq!(flip_distance(base + 0.25 * tick, base - 0.5 * tick), 0.25 * tick);
        assert_eq!(flip_distance(base + 10.0 * tick, base), 9.0 * tick);
        assert!((flip_distance(3.0, 1.0) - 2.0).abs() < 1e-8);
    }

    #[test]
    fn inverse_cdf_takes_the_first_running_weight_above_the_threshold() {
        let weights = [(2, 0.25), (5, 0.0), (7, 0.5), (9, 0.25)];
        let pick = |u| {
            let mut margin = Margin::new();
            (inverse_cdf(&weights, u, &mut margin), margin.smallest())
        };
        assert_eq!(pick(0.0), (2, 0.25));
        assert_eq!(pick(0.125), (2, 0.125));
        assert_eq!(pick(0.25), (7, 0.0), "an equal running weight is not greater");
        assert_eq!(pick(0.5), (7, 0.25));
        assert_eq!(pick(1.0 - 2f64.powi(-53)).0, 9);
        assert_eq!(inverse_cdf(&[(3, 1e-9)], 0.5, &mut Margin::new()), 3);
    }
}
