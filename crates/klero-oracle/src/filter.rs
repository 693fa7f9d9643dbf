//! Which ids may be drawn (law, point 3): rank all ids once, then cut the list by top-p, top-k and min-p, in this
//! order or the other.

use crate::{Margin, Params};

/// All ids with x > −∞, best first: x descending, then id ascending (−0 equals +0).
pub(crate) fn ranked(x: &[f64]) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..x.len()).filter(|&id| x[id] > f64::NEG_INFINITY).collect();
    ids.sort_by(|&a, &b| x[b].partial_cmp(&x[a]).expect("x is never NaN").then(a.cmp(&b)));
    ids
}

/// The ids of `ranked` that all three cuts leave, still best first.
pub(crate) fn keep(x: &[f64], ranked: &[usize], params: &Params, margin: &mut Margin) -> Vec<usize> {
    let best = x[ranked[0]];
    let weight = |id: usize| (x[id] - best).exp();
    let top_k = usize::try_from(params.top_k).unwrap_or(usize::MAX);

    let mut kept = ranked.to_vec();
    if params.min_p_first {
        cut_by_ratio(&mut kept, weight, params.min_p, margin);
        kept.truncate(top_k);
        cut_by_mass(&mut kept, weight, params.top_p, usize::MAX, |before, limit| before >= limit, margin);
    } else {
        cut_by_mass(&mut kept, weight, params.top_p, top_k, |before, limit| before > limit, margin);
        kept.truncate(top_k);
        cut_by_ratio(&mut kept, weight, params.min_p, margin);
    }
    kept
}

/// top-p: removes an id whose mass before it is `beyond` the limit, `top_p` of the mass of `ids`.
///
/// The first id is never in question, nor is any id that top-k removes afterwards.
fn cut_by_mass(
    ids: &mut Vec<usize>,
    weight: impl Fn(usize) -> f64,
    top_p: f64,
    top_k: usize,
    beyond: impl Fn(f64, f64) -> bool,
    margin: &mut Margin,
) {
    if top_p == 1.0 {
        return;
    }
    let total: f64 = ids.iter().map(|&id| weight(id)).sum();
    let mut before = 0.0;
    let mut rank = 0;
    ids.retain(|&id| {
        if (1..top_k).contains(&rank) {
            margin.see((before / total - top_p).abs());
        }
        let stays = rank == 0 || !beyond(before, top_p * total);
        before += weight(id);
        rank += 1;
        stays
    });
}

/// min-p: removes an id whose probability is less than `min_p` of the best one's. The best one itself always stays.
fn cut_by_ratio(ids: &mut Vec<usize>, weight: impl Fn(usize) -> f64, min_p: f64, margin: &mut Margin) {
    if min_p == 0.0 {
        return;
    }
    for &id in &ids[1..] {
        margin.see((weight(id) - min_p).abs());
    }
    ids.retain(|&id| weight(id) >= min_p);
}
