//! The small operations between the matrices, each in one fixed order.
//!
//! Every function here works on one row and uses only IEEE additions, multiplications, divisions and `exp`, so what it
//! returns depends on that row alone. Sums run in sixteen lanes, which the compiler turns into vector instructions
//! without reordering anything: lane `l` takes elements l, l + 16, l + 32, …, and the lanes are added pairwise,
//! halves apart.

use crate::config::Gate;

pub(crate) const LANES: usize = 16;

/// a · b
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            lanes[l] += a[l] * b[l];
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// x += y
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// x = weight · x / √(mean(x²) + ε)
pub(crate) fn rms_norm(x: &mut [f32], weight: &[f32], epsilon: f32) {
    let scale = 1.0 / (dot(x, x) / x.len() as f32 + epsilon).sqrt();
    for (x, w) in x.iter_mut().zip(weight) {
        *x = *x * scale * w;
    }
}

/// x *= factor
pub(crate) fn scale(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// out = g(gate) · up, where `gate_up` holds the two one after the other. Both gates are x · σ(s): SiLU with s = x, and
/// GELU with s = √(8/π) (x + 0.044715 x³), as ½ (1 + tanh(s / 2)) = σ(s).
pub(crate) fn gated(gate: Gate, gate_up: &[f32], out: &mut [f32]) {
    match gate {
        Gate::Silu => gated_by(gate_up, out, |x| x),
        Gate::Gelu => gated_by(gate_up, out, |x| 1.595_769 * (x + 0.044_715 * x * x * x)),
    }
}

fn gated_by(gate_up: &[f32], out: &mut [f32], s: impl Fn(f32) -> f32) {
    let (gate, up) = gate_up.split_at(out.len());
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + (-s(*gate)).exp()) * up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_takes_every_element_once() {
        for length in [0, 1, 15, 16, 17, 64, 100] {
            let a: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let naive: f32 = a.iter().map(|v| v * v).sum();
            assert_eq!(dot(&a, &a), naive);
        }
    }

    #[test]
    fn a_normalised_row_has_mean_square_one() {
        let mut x = [3.0, -3.0, 3.0, 3.0];
        rms_norm(&mut x, &[1.0, 1.0, 2.0, 1.0], 0.0);
        assert_eq!(x, [1.0, -1.0, 2.0, 1.0]);
    }

    #[test]
    fn gates_open_and_close() {
        for gate in [Gate::Silu, Gate::Gelu] {
            let mut out = [0.0; 3];
            gated(gate, &[0.0, 100.0, -100.0, 5.0, 2.0, 7.0], &mut out);
            assert_eq!(out, [0.0, 200.0, 0.0]);
        }
    }

    #[test]
    fn gelu_is_the_usual_approximation() {
        for x in [-3.0, -0.7, 0.0, 0.1, 1.0, 2.5f64] {
            let mut out = [0.0];
            gated(Gate::Gelu, &[x as f32, 1.0], &mut out);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            let truth = 0.5 * x * (1.0 + inner.tanh());
            assert!((f64::from(out[0]) - truth).abs() < 1e-6, "{x}: {} {truth}", out[0]);
        }
    }
}
