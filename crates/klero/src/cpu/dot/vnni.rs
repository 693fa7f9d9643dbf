//! The dot products of `quantized` with AVX-512's sums of byte products, which are exact too.
//!
//! `vpdpbusd` adds four products of an unsigned and a signed byte to each 32-bit lane. Two weight rows are taken at once, eight
//! parts of each: lane b of either half of a register belongs to part b, as the lanes of the sum do. So four bytes of each part
//! must lie beside each other, which takes a transposition; it is done once for all hidden states. Weights become unsigned by
//! adding 128, for which 128 · Σ h is taken off again.

use super::Wanted;
use super::quantized::LANES;
use crate::Element;
use crate::weights::blocks::{Block, PART};
use half::f16;
use std::arch::x86_64::*;

/// Hidden states that share the unpacking of two weight rows: their sums fit the registers.
const TOGETHER: usize = 16;

/// Four numbers of a part.
const QUAD: usize = 4;
const QUADS: usize = PART / QUAD;

/// Eight parts of a hidden state.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    /// The numbers, by their place in a part, then by part.
    quads: [[[i8; QUAD]; LANES]; QUADS],
    /// −128 · Σ h of the first and of the second half of each part.
    offsets: [[i32; LANES]; 2],
    scales: [f32; LANES],
    /// Σ h.
    sums: [i32; LANES],
}

impl Group {
    /// A group of these numbers and scales.
    pub(super) fn new(values: &[[i16; PART]; LANES], scales: [f32; LANES]) -> Self {
        let sum = |half: &[i16]| half.iter().map(|h| i32::from(*h)).sum::<i32>();
        let quad = |i: usize| values.map(|part| std::array::from_fn(|k| part[i * QUAD + k] as i8));
        Self {
            quads: std::array::from_fn(quad),
            offsets: [0, PART / 2].map(|from| values.map(|part| -128 * sum(&part[from..][..PART / 2]))),
            scales,
            sums: values.map(|part| sum(&part)),
        }
    }
}

/// The dot product of every row of `rows` with every hidden state of `wanted`, each `width` groups.
///
/// # Safety
/// The processor must have the instruction sets.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn dot_rows<B: Block>(rows: &[B], hidden: &[Group], width: usize, wanted: &mut [Wanted]) {
    let Some(count) = wanted.first().map(|(_, out)| out.len()).filter(|count| *count > 0) else { return };
    let rows: Vec<&[B]> = rows.chunks_exact(rows.len() / count).collect();
    for wanted in wanted.chunks_mut(TOGETHER) {
        for r in (0..count).step_by(2) {
            let pair = [rows[r], rows[(r + 1).min(count - 1)]];
            let mut lanes = [_mm512_setzero_ps(); TOGETHER];
            for g in 0..width {
                let weights = Pair::unpack([part_of(pair[0], g), part_of(pair[1], g)]);
                for (lanes, (n, _)) in lanes.iter_mut().zip(&*wanted) {
                    *lanes = weights.add::<B>(&hidden[n * width + g], *lanes);
                }
            }
            for ((_, out), lanes) in wanted.iter_mut().zip(lanes) {
                for (out, sum) in out[r..].iter_mut().zip(add_trees(lanes)) {
                    *out = sum;
                }
            }
        }
    }
}

/// The blocks of a row that make group `g`.
#[inline(always)]
fn part_of<B: Block>(row: &[B], g: usize) -> &[B] {
    let size = LANES / B::PARTS;
    &row[g * size..((g + 1) * size).min(row.len())]
}

/// The lanes of either half, added by the tree l with l + 4, + 2, + 1.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn add_trees(lanes: __m512) -> [f32; 2] {
    let lanes = _mm512_add_ps(lanes, _mm512_shuffle_f32x4(lanes, lanes, 0xb1));
    let lanes = _mm512_add_ps(lanes, _mm512_permute_ps(lanes, 0x4e));
    let lanes = _mm512_add_ps(lanes, _mm512_permute_ps(lanes, 0xb1));
    [_mm512_cvtss_f32(lanes), _mm256_cvtss_f32(_mm512_extractf32x8_ps(lanes, 1))]
}

/// Eight parts of two weight rows; those beyond the end of a row are zero.
struct Pair {
    quads: [__m512i; QUADS],
    d: __m512,
    dmin: __m512,
    /// The scales of the halves of each part.
    scales: [__m512i; 2],
    minima: __m512i,
}

/// What is read of one weight row: its numbers plus 128, and its scales.
#[repr(C, align(64))]
struct Unpacked {
    values: [[i8; PART]; LANES],
    d: [f32; LANES],
    dmin: [f32; LANES],
    scales: [[i32; LANES]; 2],
    minima: [i32; LANES],
}

impl Unpacked {
    #[inline(always)]
    fn new<B: Block>(blocks: &[B]) -> Self {
        let mut own = Self {
            values: [[0; PART]; LANES],
            d: [0.0; LANES],
            dmin: [0.0; LANES],
            scales: [[1; LANES]; 2],
            minima: [0; LANES],
        };
        let mut d = [f16::ZERO; LANES];
        for (k, block) in blocks.iter().enumerate() {
            let (scales, parts) = (block.scales(), k * B::PARTS..(k + 1) * B::PARTS);
            block.integers(&mut own.values[parts.clone()]);
            d[parts].fill(scales.d);
            if B::PARTS > 1 {
                for p in 0..LANES {
                    own.scales[0][p] = i32::from(scales.parts[p][0]);
                    own.scales[1][p] = i32::from(scales.parts[p][1]);
                }
            }
            if B::MINIMA {
                own.dmin = [scales.dmin.widen(); LANES];
                for (wide, minimum) in own.minima.iter_mut().zip(scales.minima) {
                    *wide = i32::from(minimum);
                }
            }
        }
        for (wide, d) in own.d.iter_mut().zip(d) {
            *wide = d.widen();
        }
        own
    }
}

/// Two registers' worth of eight, side by side.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn beside(low: &[i32; LANES], high: &[i32; LANES]) -> __m512i {
    // SAFETY: eight numbers can be read of each.
    let (low, high) = unsafe { (_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())) };
    _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn beside_ps(low: &[f32; LANES], high: &[f32; LANES]) -> __m512 {
    // SAFETY: eight numbers can be read of each.
    let (low, high) = unsafe { (_mm256_loadu_ps(low.as_ptr()), _mm256_loadu_ps(high.as_ptr())) };
    _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)
}

impl Pair {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn unpack<B: Block>([low, high]: [&[B]; 2]) -> Self {
        let (low, high) = (Unpacked::new(low), Unpacked::new(high));
        let mut parts = [_mm512_setzero_si512(); LANES];
        for (part, (low, high)) in parts.iter_mut().zip(low.values.iter().zip(&high.values)) {
            // SAFETY: 32 bytes can be read of each.
            let (low, high) =
                unsafe { (_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())) };
            let both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
            *part = _mm512_xor_si512(both, _mm512_set1_epi8(-128));
        }
        Self {
            quads: transpose(parts),
            d: beside_ps(&low.d, &high.d),
            dmin: beside_ps(&low.dmin, &high.dmin),
            scales: [beside(&low.scales[0], &high.scales[0]), beside(&low.scales[1], &high.scales[1])],
            minima: beside(&low.minima, &high.minima),
        }
    }

    /// Adds eight parts of a hidden state and of two weight rows, each to its lane.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn add<B: Block>(&self, hidden: &Group, lanes: __m512) -> __m512 {
        let mut sums = [both(&hidden.offsets[0]), both(&hidden.offsets[1])];
        for (i, (weights, quad)) in self.quads.iter().zip(&hidden.quads).enumerate() {
            // SAFETY: 32 bytes can be read.
            let quad = unsafe { _mm256_loadu_si256(quad.as_ptr().cast()) };
            let half = i / (QUADS / 2);
            sums[half] = _mm512_dpbusd_epi32(sums[half], *weights, _mm512_broadcast_i64x4(quad));
        }
        let [first, second] = sums;
        let sum = match (B::PARTS > 1, B::HALVES) {
            (false, _) => _mm512_add_epi32(first, second),
            (true, false) => _mm512_mullo_epi32(_mm512_add_epi32(first, second), self.scales[0]),
            (true, true) => {
                _mm512_add_epi32(_mm512_mullo_epi32(first, self.scales[0]), _mm512_mullo_epi32(second, self.scales[1]))
            }
        };
        let a = both_ps(&hidden.scales);
        let lanes = _mm512_fmadd_ps(_mm512_mul_ps(self.d, a), _mm512_cvtepi32_ps(sum), lanes);
        if !B::MINIMA {
            return lanes;
        }
        let least = _mm512_mullo_epi32(self.minima, both(&hidden.sums));
        _mm512_fnmadd_ps(_mm512_mul_ps(self.dmin, a), _mm512_cvtepi32_ps(least), lanes)
    }
}

/// The same eight numbers in both halves.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn both(half: &[i32; LANES]) -> __m512i {
    // SAFETY: eight numbers can be read.
    _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(half.as_ptr().cast()) })
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn both_ps(half: &[f32; LANES]) -> __m512 {
    // SAFETY: eight numbers can be read.
    _mm512_broadcast_f32x8(unsafe { _mm256_loadu_ps(half.as_ptr()) })
}

/// From parts of eight quads to quads of eight parts, in each half.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn transpose(p: [__m512i; LANES]) -> [__m512i; QUADS] {
    let fours = |a, b, c, d| {
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ]
    };
    let (a, b) = (fours(p[0], p[1], p[2], p[3]), fours(p[4], p[5], p[6], p[7]));
    let first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    let mut quads = [_mm512_setzero_si512(); QUADS];
    for j in 0..QUADS / 2 {
        quads[j] = _mm512_permutex2var_epi64(a[j], first, b[j]);
        quads[j + QUADS / 2] = _mm512_permutex2var_epi64(a[j], second, b[j]);
    }
    quads
}
