//! Causal attention of one head at one position.
//!
//! For a query q at position t with keys k_a … k_t and values v_a … v_t, a being 0 or the beginning of a window:
//!
//! ```text
//! s_j = (q · k_j) · scale      w_j = exp(s_j − max s)        out = Σ_j w_j · v_j / Σ_j w_j
//! ```
//!
//! Both sums run over j = a, a + 1, …, t in this order, and exactly those positions take part, however the prompt was cut
//! into chunks: that is what makes a hidden state reproducible. A tiled or running softmax would be as exact but would
//! round differently for each tiling.

use crate::math::{LANES, dot};

/// Writes the head's output; `keys` and `values` hold positions a to t, one after the other. `weights` is scratch.
pub(crate) fn attend(
    query: &[f32],
    (keys, values): (&[f32], &[f32]),
    scale: f32,
    weights: &mut Vec<f32>,
    out: &mut [f32],
) {
    let width = query.len();
    weights.clear();
    weights.extend(keys.chunks_exact(width).map(|key| dot(query, key) * scale));
    let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0;
    for weight in weights.iter_mut() {
        *weight = (*weight - largest).exp();
        total += *weight;
    }
    // Sixteen elements of the output at a time, so that their sums stay in registers over all positions.
    let (blocks, rest) = out.as_chunks_mut::<LANES>();
    for (block, out) in blocks.iter_mut().enumerate() {
        *out = weighted_sum(weights, values, width, block * LANES).map(|sum| sum / total);
    }
    for (i, out) in (blocks.len() * LANES..).zip(rest) {
        let [sum] = weighted_sum(weights, values, width, i);
        *out = sum / total;
    }
}

/// Σ_j w_j · v_j for the `N` elements from `start` on.
fn weighted_sum<const N: usize>(weights: &[f32], values: &[f32], width: usize, start: usize) -> [f32; N] {
    let mut sums = [0.0f32; N];
    for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
        let value = value[start..].first_chunk::<N>().expect("the elements lie inside a head");
        for (sum, v) in sums.iter_mut().zip(value) {
            *sum += weight * v;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_formula() {
        let (width, positions) = (20, 9);
        let wave = |n: usize, step: f32| (0..n).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
        let (q, k, v) = (wave(width, 0.7), wave(width * positions, 1.3), wave(width * positions, 0.9));
        let mut out = vec![0.0; width];
        attend(&q, (&k, &v), 0.25, &mut Vec::new(), &mut out);
        let score = |j: usize| {
            let sum: f64 = (0..width).map(|i| f64::from(q[i]) * f64::from(k[j * width + i])).sum();
            (sum * 0.25).exp()
        };
        let total: f64 = (0..positions).map(score).sum();
        for (i, out) in out.iter().enumerate() {
            let truth: f64 = (0..positions).map(|j| score(j) / total * f64::from(v[j * width + i])).sum();
            assert!((f64::from(*out) - truth).abs() < 1e-6, "{out} {truth}");
        }
    }

    #[test]
    fn one_position_returns_its_value() {
        let mut out = [0.0; 2];
        attend(&[1.0, 2.0], (&[3.0, 4.0], &[5.0, 6.0]), 1.0, &mut vec![7.0], &mut out);
        assert_eq!(out, [5.0, 6.0]);
    }
}
