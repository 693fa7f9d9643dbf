//! Sixteen f32 at a time, in the registers of each instruction set.
//!
//! The compiler makes good vector code of most plain loops, but not of the tree in which a sixteen is reduced: its shuffles
//! are written out here. A [`Lanes`] is a witness: there is one only where its instruction set was found, so its methods
//! are safe to call.

use crate::Element;
use crate::mass::{BLOCK, Block, SIXTEEN};
use crate::math::{LEAST, LN2_HIGH, LN2_LOW, MAGIC, P};
use half::{bf16, f16};

/// Sixteens in a block.
pub(crate) const SIXTEENS: usize = BLOCK / SIXTEEN;

/// Operations on sixteen f32. All are IEEE operations, rounded once, and give the same bits in every implementation.
pub(crate) trait Lanes: Copy {
    /// Sixteen f32.
    type F: Copy;

    /// Whether registers hold the sums of four weight rows with four hidden states.
    const MANY_REGISTERS: bool = false;

    fn load(self, from: &[f32; SIXTEEN]) -> Self::F;
    fn store(self, x: Self::F, to: &mut [f32; SIXTEEN]);
    fn splat(self, x: f32) -> Self::F;
    /// Asks for what will soon be loaded; the address need not be one.
    #[inline(always)]
    fn prefetch<T>(self, _from: *const T) {}
    fn load_bf16(self, from: &[bf16; SIXTEEN]) -> Self::F;
    fn load_f16(self, from: &[f16; SIXTEEN]) -> Self::F;
    /// Numbers below 2^16, exactly.
    fn widen(self, from: &[u16; SIXTEEN]) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// [`exp_or_zero`](crate::math::exp_or_zero) of each number.
    #[inline(always)]
    fn exp_or_zero(self, y: Self::F) -> Self::F {
        let shifted = self.mul_add(y, self.splat(std::f32::consts::LOG2_E), self.splat(MAGIC));
        let n = self.sub(shifted, self.splat(MAGIC));
        let r = self.mul_add(n, self.splat(-LN2_LOW), self.mul_add(n, self.splat(-LN2_HIGH), y));
        let mut p = self.splat(P[0]);
        for next in &P[1..] {
            p = self.mul_add(r, p, self.splat(*next));
        }
        let fraction = self.add(self.mul_add(self.mul(r, r), p, r), self.splat(1.0));
        self.keep(self.scale(fraction, shifted), y, LEAST)
    }

    /// x · 2^n, where `n` is what [`Lanes::mul_add`] made of an integer n by adding [`MAGIC`]; right where x and
    /// the result are normal.
    fn scale(self, x: Self::F, n: Self::F) -> Self::F;
    /// x where y ≥ least, else 0 (also where y is NaN).
    fn keep(self, x: Self::F, y: Self::F, least: f32) -> Self::F;
    /// One bit for each a < b.
    fn less(self, a: Self::F, b: Self::F) -> u16;
    /// Whether all numbers are finite.
    fn are_finite(self, x: [Self::F; SIXTEENS]) -> bool;
    /// The greatest number of each sixteen; if all are numbers.
    fn maxima(self, x: [Self::F; SIXTEENS]) -> [f32; SIXTEENS];
    /// The sum of each sixteen by the tree i with i + 8, + 4, + 2, + 1.
    fn sums(self, x: [Self::F; SIXTEENS]) -> [f32; SIXTEENS];

    /// The sixteens of a block.
    #[inline(always)]
    fn load_block(self, from: &Block) -> [Self::F; SIXTEENS] {
        let (sixteens, _) = from.as_chunks::<SIXTEEN>();
        four([0, 1, 2, 3], |j| self.load(&sixteens[j]))
    }

    /// Writes the sixteens of a block.
    #[inline(always)]
    fn store_block(self, x: [Self::F; SIXTEENS], to: &mut Block) {
        let (sixteens, _) = to.as_chunks_mut::<SIXTEEN>();
        for (x, to) in x.into_iter().zip(sixteens) {
            self.store(x, to);
        }
    }
}

/// A type of numbers that lanes can load.
pub(crate) trait Load: Element {
    /// Sixteen numbers, widened.
    fn load<L: Lanes>(isa: L, from: &[Self; SIXTEEN]) -> L::F;
}

impl Load for f32 {
    #[inline(always)]
    fn load<L: Lanes>(isa: L, from: &[f32; SIXTEEN]) -> L::F {
        isa.load(from)
    }
}

impl Load for bf16 {
    #[inline(always)]
    fn load<L: Lanes>(isa: L, from: &[bf16; SIXTEEN]) -> L::F {
        isa.load_bf16(from)
    }
}

impl Load for f16 {
    #[inline(always)]
    fn load<L: Lanes>(isa: L, from: &[f16; SIXTEEN]) -> L::F {
        isa.load_f16(from)
    }
}

/// What `f` makes of four things; inlined into a kernel, as `map` of an array is not always.
#[inline(always)]
pub(crate) fn four<T, U>([a, b, c, d]: [T; SIXTEENS], f: impl Fn(T) -> U) -> [U; SIXTEENS] {
    [f(a), f(b), f(c), f(d)]
}

/// Plain arrays: the baseline.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; SIXTEEN] {
    std::array::from_fn(f)
}

#[inline(always)]
fn tree(mut x: [f32; SIXTEEN], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = SIXTEEN / 2;
    while half > 0 {
        for i in 0..half {
            x[i] = f(x[i], x[i + half]);
        }
        half /= 2;
    }
    x[0]
}

impl Lanes for Plain {
    type F = [f32; SIXTEEN];

    #[inline(always)]
    fn load(self, from: &[f32; SIXTEEN]) -> Self::F {
        *from
    }

    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; SIXTEEN]) {
        *to = x;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; SIXTEEN]
    }

    #[inline(always)]
    fn widen(self, from: &[u16; SIXTEEN]) -> Self::F {
        each(|i| f32::from(from[i]))
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16; SIXTEEN]) -> Self::F {
        each(|i| from[i].widen())
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; SIXTEEN]) -> Self::F {
        each(|i| from[i].widen())
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn scale(self, x: Self::F, n: Self::F) -> Self::F {
        each(|i| f32::from_bits(x[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }

    #[inline(always)]
    fn keep(self, x: Self::F, y: Self::F, least: f32) -> Self::F {
        each(|i| if y[i] >= least { x[i] } else { 0.0 })
    }

    #[inline(always)]
    fn less(self, a: Self::F, b: Self::F) -> u16 {
        (0..SIXTEEN).fold(0, |bits, i| bits | u16::from(a[i] < b[i]) << i)
    }

    #[inline(always)]
    fn are_finite(self, x: [Self::F; SIXTEENS]) -> bool {
        x.as_flattened().iter().all(|x| x.is_finite())
    }

    #[inline(always)]
    fn maxima(self, x: [Self::F; SIXTEENS]) -> [f32; SIXTEENS] {
        x.map(|x| tree(x, |a, b| if b > a { b } else { a }))
    }

    #[inline(always)]
    fn sums(self, x: [Self::F; SIXTEENS]) -> [f32; SIXTEENS] {
        x.map(|x| tree(x, |a, b| a + b))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, SIXTEEN, SIXTEENS, four};
    use half::{bf16, f16};
    use std::arch::x86_64::*;

    /// Two registers of eight.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());

    /// One register of sixteen.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(());

    impl Avx2 {
        /// Safe where these instruction sets are enabled, nowhere else.
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        pub(crate) fn new() -> Self {
            Self(())
        }

        /// The trees of four sixteens side by side: the halves of a tree's step are brought together by shuffles, so that
        /// each step is one operation for all.
        #[inline(always)]
        fn trees(self, x: [[__m256; 2]; SIXTEENS], f: impl Fn(__m256, __m256) -> __m256) -> [f32; SIXTEENS] {
            // SAFETY: `self` is the witness of AVX2.
            unsafe {
                let [a, b, c, d] = four(x, |[low, high]| f(low, high));
                let pair = |a, b| f(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
                let (ab, cd) = (pair(a, b), pair(c, d));
                let two = f(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
                let one = f(two, _mm256_movehdup_ps(two));
                // Lanes 0, 2, 4, 6 hold the sixteens 0, 2, 1, 3.
                let sorted = _mm256_permutevar8x32_ps(one, _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0));
                let mut out = [0.0; SIXTEENS];
                _mm_storeu_ps(out.as_mut_ptr(), _mm256_castps256_ps128(sorted));
                out
            }
        }
    }

    impl Lanes for Avx2 {
        type F = [__m256; 2];

        #[inline(always)]
        fn load(self, from: &[f32; SIXTEEN]) -> Self::F {
            // SAFETY: `self` is the witness of AVX2; sixteen numbers can be read.
            unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
        }

        #[inline(always)]
        fn store(self, x: Self::F, to: &mut [f32; SIXTEEN]) {
            // SAFETY: `self` is the witness of AVX2; sixteen numbers can be written.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
                _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
            }
        }

        #[inline(always)]
        fn splat(self, x: f32) -> Self::F {
            // SAFETY: `self` is the witness of AVX2.
            unsafe { [_mm256_set1_ps(x); 2] }
        }

        #[inline(always)]
        fn widen(self, from: &[u16; SIXTEEN]) -> Self::F {
            // SAFETY: `self` is the witness of AVX2; sixteen numbers can be read.
            unsafe {
                let all = _mm256_loadu_si256(from.as_ptr().cast());
                let wide = |half| _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(half));
                [wide(_mm256_castsi256_si128(all)), wide(_mm256_extracti128_si256(all, 1))]
            }
        }

        #[inline(always)]
        fn load_bf16(self, from: &[bf16; SIXTEEN]) -> Self::F {
            // SAFETY: `self` is the witness of AVX2; sixteen numbers can be read.
            unsafe {
                let all = _mm256_loadu_si256(from.as_ptr().cast());
                let wide = |half| _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
                [wide(_mm256_castsi256_si128(all)), wide(_mm256_extracti128_si256(all, 1))]
            }
        }

        #[inline(always)]
        fn load_f16(self, from: &[f16; SIXTEEN]) -> Self::F {
            // SAFETY: `self` is the witness of F16C; sixteen numbers can be read.
            unsafe {
                let all = _mm256_loadu_si256(from.as_ptr().cast());
                [_mm256_cvtph_ps(_mm256_castsi256_si128(all)), _mm256_cvtph_ps(_mm256_extracti128_si256(all, 1))]
            }
        }

        #[inline(always)]
        fn add(self, a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: `self` is the witness of AVX2.
            unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        }

        #[inline(always)]
        fn sub(self, a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: `self` is the witness of AVX2.
            unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
        }

        #[inline(always)]
        fn mul(self, a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: `self` is the witness of AVX2.
            unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        }

        #[inline(always)]
        fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
            // SAFETY: `self` is the witness of FMA.
            unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
        }

        #[inline(always)]
        fn scale(self, x: Self::F, n: Self::F) -> Self::F {
            let one = |x, n| {
                // SAFETY: `self` is the witness of AVX2.
                unsafe {
                    let shifted = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
                    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shifted))
                }
            };
            [one(x[0], n[0]), one(x[1], n[1])]
        }

        #[inline(always)]
        fn keep(self, x: Self::F, y: Self::F, least: f32) -> Self::F {
            // SAFETY: `self` is the witness of AVX2.
            let one = |x, y| unsafe { _mm256_and_ps(x, _mm256_cmp_ps(y, _mm256_set1_ps(least), _CMP_GE_OQ)) };
            [one(x[0], y[0]), one(x[1], y[1])]
        }

        #[inline(always)]
        fn less(self, a: Self::F, b: Self::F) -> u16 {
            // SAFETY: `self` is the witness of AVX2.
            let one = |a, b| unsafe { _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) };
            (one(a[0], b[0]) | one(a[1], b[1]) << 8) as u16
        }

        #[inline(always)]
        fn are_finite(self, x: [Self::F; SIXTEENS]) -> bool {
            // SAFETY: `self` is the witness of AVX2.
            unsafe {
                // x · 0 is 0 for finite numbers alone, and NaN for the others.
                let zero = _mm256_setzero_ps();
                let mut sum = zero;
                for [low, high] in x {
                    sum = _mm256_fmadd_ps(high, zero, _mm256_fmadd_ps(low, zero, sum));
                }
                _mm256_movemask_ps(_mm256_cmp_ps(sum, zero, _CMP_UNORD_Q)) == 0
            }
        }

        #[inline(always)]
        fn maxima(self, x: [Self::F; SIXTEENS]) -> [f32; SIXTEENS] {
            // SAFETY: `self` is the witness of AVX2.
            self.trees(x, |a, b| unsafe { _mm256_max_ps(b, a) })
        }

        #[inline(always)]
        fn sums(self, x: [Self::F; SIXTEENS]) -> [f32; SIXTEENS] {
            // SAFETY: `self` is the witness of AVX2.
            self.trees(x, |a, b| unsafe { _mm256_add_ps(a, b) })
        }
    }

    impl Avx512 {
        /// Safe where these instruction sets are enabled, nowhere else.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline]
        pub(crate) fn new() -> Self {
            Self(())
        }

        /// As [`Avx2::trees`].
        #[inline(always)]
        fn trees(self, x: [__m512; SIXTEENS], f: impl Fn(__m512, __m512) -> __m512) -> [f32; SIXTEENS] {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe {
                let pair = |a, b| f(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
                let (ab, cd) = (pair(x[0], x[1]), pair(x[2], x[3]));
                let four = f(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
                let two = f(four, _mm512_permute_ps(four, 0x4e));
                let one = f(two, _mm512_permute_ps(two, 0xb1));
                let firsts = _mm512_maskz_compress_ps(0x1111, one);
                let mut out = [0.0; SIXTEENS];
                _mm_storeu_ps(out.as_mut_ptr(), _mm512_castps512_ps128(firsts));
                out
            }
        }
    }

    impl Lanes for Avx512 {
        type F = __m512;

        const MANY_REGISTERS: bool = true;

        #[inline(always)]
        fn load(self, from: &[f32; SIXTEEN]) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512; sixteen numbers can be read.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }

        #[inline(always)]
        fn store(self, x: __m512, to: &mut [f32; SIXTEEN]) {
            // SAFETY: `self` is the witness of AVX-512; sixteen numbers can be written.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
        }

        #[inline(always)]
        fn splat(self, x: f32) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        fn widen(self, from: &[u16; SIXTEEN]) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512; sixteen numbers can be read.
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()))) }
        }

        #[inline(always)]
        fn prefetch<T>(self, from: *const T) {
            // SAFETY: a prefetch of any address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }

        #[inline(always)]
        fn load_bf16(self, from: &[bf16; SIXTEEN]) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512; sixteen numbers can be read.
            unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))
            }
        }

        #[inline(always)]
        fn load_f16(self, from: &[f16; SIXTEEN]) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512; sixteen numbers can be read.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
        }

        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        fn sub(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_sub_ps(a, b) }
        }

        #[inline(always)]
        fn mul(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_mul_ps(a, b) }
        }

        #[inline(always)]
        fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn scale(self, x: __m512, n: __m512) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe {
                let shifted = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
                _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), shifted))
            }
        }

        #[inline(always)]
        fn keep(self, x: __m512, y: __m512, least: f32) -> __m512 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_set1_ps(least), _CMP_GE_OQ), x) }
        }

        #[inline(always)]
        fn less(self, a: __m512, b: __m512) -> u16 {
            // SAFETY: `self` is the witness of AVX-512.
            unsafe { _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) }
        }

        #[inline(always)]
        fn are_finite(self, x: [__m512; SIXTEENS]) -> bool {
            /// NaN of both kinds and both infinities.
            const ODD: i32 = 0x99;
            // SAFETY: `self` is the witness of AVX-512.
            let [a, b, c, d] = four(x, |x| unsafe { _mm512_fpclass_ps_mask(x, ODD) });
            a | b | c | d == 0
        }

        #[inline(always)]
        fn maxima(self, x: [__m512; SIXTEENS]) -> [f32; SIXTEENS] {
            // SAFETY: `self` is the witness of AVX-512.
            self.trees(x, |a, b| unsafe { _mm512_max_ps(b, a) })
        }

        #[inline(always)]
        fn sums(self, x: [__m512; SIXTEENS]) -> [f32; SIXTEENS] {
            // SAFETY: `self` is the witness of AVX-512.
            self.trees(x, |a, b| unsafe { _mm512_add_ps(a, b) })
        }
    }
}
