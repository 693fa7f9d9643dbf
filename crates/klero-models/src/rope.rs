//! Rotary position embedding.
//!
//! At position t, pair i of a head, the elements (2i, 2i + 1), is turned by the angle t · base^(−2i / n), n being the
//! number of rotated elements. Llama's files have their query and key rows permuted for this interleaved pairing. The
//! angles are computed in f64 for the positions of one call only; no table is kept, so a long context costs nothing.

/// The rotation's angular speeds, one per pair.
pub(crate) struct Rope {
    speeds: Vec<f64>,
}

impl Rope {
    /// `factors`, where a file has them, stretch the wavelengths pair by pair.
    pub(crate) fn new(base: f64, rotated: usize, factors: Option<&[f32]>) -> Self {
        let speed = |i: usize| base.powf(-2.0 * i as f64 / rotated as f64);
        let factor = |i: usize| factors.map_or(1.0, |factors| f64::from(factors[i]));
        Self { speeds: (0..rotated / 2).map(|i| speed(i) / factor(i)).collect() }
    }

    /// The (sine, cosine) of every pair at `position`.
    pub(crate) fn turns(&self, position: usize) -> impl Iterator<Item = (f32, f32)> + '_ {
        self.speeds.iter().map(move |speed| {
            let (sin, cos) = (position as f64 * speed).sin_cos();
            (sin as f32, cos as f32)
        })
    }
}

/// Turns the pairs at the front of one head.
pub(crate) fn rotate(head: &mut [f32], turns: &[(f32, f32)]) {
    for (pair, (sin, cos)) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
        let [x, y] = *pair;
        *pair = [x * cos - y * sin, x * sin + y * cos];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_depend_on_the_distance_only() {
        let rope = Rope::new(10_000.0, 4, None);
        let product = |t: usize, u: usize| {
            let (mut q, mut k) = ([1.0f32, 2.0, -0.5, 0.25, 9.0], [0.5f32, -1.0, 3.0, 1.0, 9.0]);
            rotate(&mut q, &rope.turns(t).collect::<Vec<_>>());
            rotate(&mut k, &rope.turns(u).collect::<Vec<_>>());
            assert_eq!((q[4], k[4]), (9.0, 9.0), "only the front of a head is turned");
            crate::math::dot(&q, &k)
        };
        assert!((product(0, 0) - product(7, 7)).abs() < 1e-4);
        assert!((product(12, 5) - product(107, 100)).abs() < 1e-4);
    }
}
