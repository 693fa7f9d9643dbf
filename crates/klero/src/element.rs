//! Numbers in the types that models keep them in, widened to f32 without rounding.

use crate::cpu::widen::{widen_bf16, widen_f16};
use half::{bf16, f16};
use std::fmt::Debug;

/// A number type that f32 holds exactly: [`f32`], [`struct@half::bf16`] or [`struct@half::f16`].
///
/// Everything is computed from the widened numbers, so a bf16 number gives the same bits as the f32 number equal to it.
/// The trait is sealed: the three types above are all there are.
///
/// ```
/// use klero::Element;
/// assert_eq!(half::f16::from_f32(0.1).widen(), 0.099_975_586);
/// ```
pub trait Element: Copy + Send + Sync + Debug + sealed::Sealed + 'static {
    /// The same number as f32: exact for every finite number and infinity, subnormal ones too; NaN stays NaN.
    fn widen(self) -> f32;

    /// Writes the widened numbers.
    #[doc(hidden)]
    fn widen_all(from: &[Self], to: &mut [f32]);

    /// The numbers as they are, where they are f32.
    #[doc(hidden)]
    fn as_f32(_numbers: &[Self]) -> Option<&[f32]> {
        None
    }
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    fn widen_all(from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn as_f32(numbers: &[f32]) -> Option<&[f32]> {
        Some(numbers)
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    fn widen_all(from: &[bf16], to: &mut [f32]) {
        widen_bf16(from, to);
    }
}

impl Element for f16 {
    /// Without a branch or a call, so that loops over it vectorise, and without a subnormal f32, which costs processors
    /// a hundred cycles where subnormal f16 are common (the scales of blocks): the exponent moves from bias 15 to 127
    /// by an addition, twice for infinities and NaN; and m · 2^-24, a subnormal f16, is 2^-14 · (1 + m / 1024) less 2^-14.
    #[inline(always)]
    fn widen(self) -> f32 {
        const BIAS: i32 = (127 - 15) << 23;
        const LEAST_NORMAL: i32 = (127 - 14) << 23;
        // Signed, for comparisons of signed integers are the ones that vectors have.
        let bits = i32::from(self.to_bits() as i16);
        let magnitude = bits & 0x7fff;
        let shifted = magnitude << 13;
        let normal = shifted + BIAS + if magnitude > 0x7bff { BIAS } else { 0 };
        let least = f32::from_bits(LEAST_NORMAL as u32);
        let subnormal = f32::from_bits((shifted + LEAST_NORMAL) as u32) - least;
        let widened = if magnitude > 0x03ff { f32::from_bits(normal as u32) } else { subnormal };
        f32::from_bits(widened.to_bits() | bits as u32 & 0x8000_0000)
    }

    fn widen_all(from: &[f16], to: &mut [f32]) {
        widen_f16(from, to);
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_half_widens_it() {
        for bits in 0..=u16::MAX {
            let (short, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            for (found, truth) in [(short.widen(), short.to_f32()), (brain.widen(), brain.to_f32())] {
                if truth.is_nan() {
                    assert!(found.is_nan(), "{bits:#06x}");
                } else {
                    assert_eq!(found.to_bits(), truth.to_bits(), "{bits:#06x}");
                }
            }
        }
    }
}
