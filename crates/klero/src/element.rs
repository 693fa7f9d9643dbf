//! The number types in which logits and weights may lie in memory.

use crate::cpu::dot::widen_f16;
use half::{bf16, f16};
use std::fmt::Debug;

/// A number that widens to f32 without rounding: f32, bf16, f16. Nothing else can be one.
pub trait Element: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The same number as f32.
    fn widen(self) -> f32;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        widen_f16(u32::from(self.to_bits()))
    }
}
