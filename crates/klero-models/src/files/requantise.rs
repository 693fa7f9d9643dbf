//! Weights of any type as Q8_0, nearly without loss.
//!
//! In GGUF's small types, thirty-two neighbouring weights stand on a few evenly spaced levels. Scaling the largest to
//! 127, as one would for arbitrary numbers, puts the levels up to half a step of Q8_0 off its integers. But the scale
//! may also be the levels' spacing divided by a whole number k: then all levels are equally far from integers, and one
//! of the eight or so k that use the range well brings them close. Measured on SmolLM2's Q4_1, this takes away nearly
//! all that requantising adds to the error of a logprob.
//!
//! The spacing is guessed from the weights themselves, so one function serves every type; where the guess fails, the
//! plain scale has the smaller error and is taken.

use half::f16;
use klero::BlockQ8_0;

/// Quantises whole blocks of 32 weights.
pub(crate) fn requantise(weights: &[f32]) -> Vec<BlockQ8_0> {
    weights.as_chunks::<32>().0.iter().map(block).collect()
}

fn block(weights: &[f32; 32]) -> BlockQ8_0 {
    let largest = weights.iter().fold(0.0f32, |most, w| most.max(w.abs()));
    let plain = rounded(largest / 127.0);
    let scale = match level_scale(weights, largest) {
        Some(scale) if error(weights, scale) < error(weights, plain) => scale,
        _ => plain,
    };
    let inverse = inverse(scale);
    BlockQ8_0 { d: f16::from_f32(scale), qs: weights.map(|w| nearest(w * inverse) as i8) }
}

/// The best scale of the form spacing / k, if the weights have levels.
fn level_scale(weights: &[f32; 32], largest: f32) -> Option<f32> {
    // The level next to zero, where weights are dense, most likely has a neighbour in use.
    let middle = weights.iter().copied().fold(f32::INFINITY, |a, b| if b.abs() < a.abs() { b } else { a });
    let apart = weights.iter().map(|w| (w - middle).abs()).filter(|gap| *gap > largest * 1e-3);
    let spacing = apart.fold(f32::INFINITY, f32::min);
    if !spacing.is_finite() {
        return None;
    }
    let lowest = weights.iter().copied().fold(f32::INFINITY, f32::min);
    let highest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = (127.0 * spacing / largest) as u32;
    let scales = (most / 2 + 1..=most).map(|k| rounded(spacing / k as f32));
    // Levels between two that fit, a whole number of scales apart, fit as well.
    let misfit = |scale: f32| off(lowest, scale, inverse(scale)).powi(2) + off(highest, scale, inverse(scale)).powi(2);
    scales.map(|scale| (misfit(scale), scale)).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, scale)| scale)
}

/// Sum of the squared errors at one scale.
fn error(weights: &[f32; 32], scale: f32) -> f32 {
    let inverse = inverse(scale);
    weights.iter().map(|w| off(*w, scale, inverse).powi(2)).sum()
}

fn off(weight: f32, scale: f32, inverse: f32) -> f32 {
    weight - nearest(weight * inverse) * scale
}

/// The nearest integer that a Q8_0 block can hold.
fn nearest(steps: f32) -> f32 {
    /// Adding this leaves no room for a fraction, so that two additions round.
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23
    ((steps + ROUND) - ROUND).clamp(-127.0, 127.0)
}

/// The scale as the block stores it.
fn rounded(scale: f32) -> f32 {
    f16::from_f32(scale).to_f32()
}

fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(weights: &[f32; 32], block: &BlockQ8_0) -> f32 {
        let off = |(w, q): (&f32, &i8)| (w - block.d.to_f32() * f32::from(*q)).abs();
        weights.iter().zip(&block.qs).map(off).fold(0.0, f32::max)
    }

    #[test]
    fn levels_around_zero_are_kept_exactly() {
        let d = f16::from_f32(0.0123).to_f32();
        let weights = std::array::from_fn(|i| (i as f32 * 5.0 % 16.0 - 8.0) * d);
        assert_eq!(worst(&weights, &block(&weights)), 0.0);
    }

    #[test]
    fn shifted_levels_are_kept_better_than_by_the_plain_scale() {
        let (mut mine, mut plain) = (0.0, 0.0);
        for shift in 0..50 {
            let weights = std::array::from_fn(|i| (i as f32 * 7.0 % 16.0 - 8.0) * 0.01 + shift as f32 * 2e-4);
            mine += worst(&weights, &block(&weights));
            plain += worst(&weights, &BlockQ8_0::quantize(&weights).unwrap()[0]);
        }
        assert!(mine < plain / 3.0, "{mine} {plain}");
    }

    #[test]
    fn anything_else_is_kept_as_well_as_by_the_plain_scale() {
        for step in [0.0, 0.37, 1e-9, 1e9] {
            let weights: [f32; 32] = std::array::from_fn(|i| (i as f32 * step).sin() * step.min(1e4));
            let bound = weights.iter().fold(0.0f32, |most, w| most.max(w.abs())) / 127.0;
            assert!(worst(&weights, &block(&weights)) <= bound.max(1e-7), "step {step}");
        }
    }
}
