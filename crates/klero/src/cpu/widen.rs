//! Rows of bf16 and f16 as f32.

use super::sixteen::{Lanes, Load};
use super::widest;
use crate::mass::SIXTEEN;
use half::{bf16, f16};

widest! {
    /// Writes the same numbers as f32.
    pub(crate) fn widen_bf16(from: &[bf16], to: &mut [f32]) = widen(isa);
}
widest! {
    /// As [`widen_bf16`].
    pub(crate) fn widen_f16(from: &[f16], to: &mut [f32]) = widen(isa);
}

#[inline(always)]
fn widen<L: Lanes, E: Load>(isa: L, from: &[E], to: &mut [f32]) {
    let (sixteens, tail) = from.as_chunks::<SIXTEEN>();
    let (wide, wide_tail) = to.as_chunks_mut::<SIXTEEN>();
    for (to, from) in wide.iter_mut().zip(sixteens) {
        isa.store(E::load(isa, from), to);
    }
    for (to, from) in wide_tail.iter_mut().zip(tail) {
        *to = from.widen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    #[test]
    fn every_build_widens_every_half() {
        // A tail shorter than sixteen too.
        let bits = (0..=u16::MAX).chain(0..7);
        let (short, brain): (Vec<f16>, Vec<bf16>) = bits.map(|b| (f16::from_bits(b), bf16::from_bits(b))).unzip();
        let mut wide = vec![0.0; short.len()];
        let agree = |truth: Vec<f32>, wide: &[f32]| {
            for (found, truth) in wide.iter().zip(truth) {
                assert!(found.to_bits() == truth.to_bits() || (found.is_nan() && truth.is_nan()), "{truth:e}");
            }
        };
        crate::cpu::at_each_level(|| {
            widen_f16(&short, &mut wide);
            agree(short.iter().map(|h| h.widen()).collect(), &wide);
            widen_bf16(&brain, &mut wide);
            agree(brain.iter().map(|h| h.widen()).collect(), &wide);
        });
    }
}
