//! Rotary position embedding.
//!
//! At position t, pair i of a head is turned by the angle t · base^(−2i / n), n being the number of rotated elements. A
//! pair is (2i, 2i + 1) or (i, i + n / 2): see [`Pairing`]. Scaling stretches the wavelengths, which is to say that it
//! divides the angles. The angles are computed in f64 for the positions of one call only; no table is kept, so a long
//! context costs nothing.

use crate::config::{Attention, Pairing, RopeScaling};
use std::f64::consts::TAU;

/// The rotation's angular speeds, one per pair.
pub(crate) struct Rope {
    speeds: Vec<f64>,
}

impl Rope {
    /// `factors`, where a file has them, stretch the wavelengths pair by pair.
    pub(crate) fn new(attention: &Attention, rotated: usize, factors: Option<&[f32]>) -> Self {
        let speed = |i: usize| attention.rope_base.powf(-2.0 * i as f64 / rotated as f64);
        let factor = |i: usize| factors.map_or(1.0, |factors| f64::from(factors[i]));
        let speeds = (0..rotated / 2).map(|i| attention.rope_scaling.apply(speed(i)) / factor(i));
        Self { speeds: speeds.collect() }
    }

    /// The (sine, cosine) of every pair at `position`.
    pub(crate) fn turns(&self, position: usize) -> impl Iterator<Item = (f32, f32)> + '_ {
        self.speeds.iter().map(move |speed| {
            let (sin, cos) = (position as f64 * speed).sin_cos();
            (sin as f32, cos as f32)
        })
    }
}

impl RopeScaling {
    /// The angular speed that takes the place of `speed`.
    fn apply(self, speed: f64) -> f64 {
        match self {
            Self::None => speed,
            Self::Linear(factor) => speed / factor,
            Self::Llama3 { factor, low, high, context } => {
                let turns = context * speed / TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                kept * speed + (1.0 - kept) * speed / factor
            }
        }
    }
}

/// Turns the pairs at the front of one head.
pub(crate) fn rotate(head: &mut [f32], turns: &[(f32, f32)], pairing: Pairing) {
    let (stride, apart) = match pairing {
        Pairing::Neighbours => (2, 1),
        Pairing::Halves => (1, turns.len()),
    };
    for (i, (sin, cos)) in turns.iter().enumerate() {
        let (first, second) = (i * stride, i * stride + apart);
        let (x, y) = (head[first], head[second]);
        head[first] = x * cos - y * sin;
        head[second] = x * sin + y * cos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(rope_scaling: RopeScaling) -> Rope {
        Rope::new(&Attention { rope_base: 10_000.0, rope_scaling, window: None }, 4, None)
    }

    #[test]
    fn products_depend_on_the_distance_only() {
        let rope = rope(RopeScaling::None);
        let product = |t: usize, u: usize, pairing| {
            let (mut q, mut k) = ([1.0f32, 2.0, -0.5, 0.25, 9.0], [0.5f32, -1.0, 3.0, 1.0, 9.0]);
            rotate(&mut q, &rope.turns(t).collect::<Vec<_>>(), pairing);
            rotate(&mut k, &rope.turns(u).collect::<Vec<_>>(), pairing);
            assert_eq!((q[4], k[4]), (9.0, 9.0), "only the front of a head is turned");
            crate::math::dot(&q, &k)
        };
        for pairing in [Pairing::Neighbours, Pairing::Halves] {
            assert!((product(0, 0, pairing) - product(7, 7, pairing)).abs() < 1e-4);
            assert!((product(12, 5, pairing) - product(107, 100, pairing)).abs() < 1e-4);
        }
    }

    #[test]
    fn pairings_are_one_rotation_of_other_elements() {
        let turns: Vec<_> = rope(RopeScaling::None).turns(3).collect();
        let (mut neighbours, mut halves) = ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]);
        rotate(&mut neighbours, &turns, Pairing::Neighbours);
        rotate(&mut halves, &turns, Pairing::Halves);
        assert_eq!(neighbours, [halves[0], halves[2], halves[1], halves[3]]);
    }

    #[test]
    fn scaling_slows_long_wavelengths() {
        let none = rope(RopeScaling::None).speeds;
        assert_eq!(rope(RopeScaling::Linear(8.0)).speeds, [none[0] / 8.0, none[1] / 8.0]);
        // Pair 0 turns 1303 times within the context, pair 1 13 times: more than `high`, between, less than `low`.
        let llama3 = |low, high| rope(RopeScaling::Llama3 { factor: 8.0, low, high, context: 8192.0 }).speeds;
        assert_eq!(llama3(1.0, 4.0), none);
        assert_eq!(llama3(20.0, 40.0), [none[0], none[1] / 8.0]);
        let between = llama3(10.0, 20.0)[1];
        assert!(none[1] / 8.0 < between && between < none[1]);
    }
}
