//! GGUF's quantised blocks, bit for bit as they lie in a file.
//!
//! A type says how 32 of its weights at a time unpack; the dot product over them is the same for all (`cpu/dot/quantized`).

use super::Data;
use crate::Error;
use crate::cpu::dot::quantized::{PART, QuantizedRow, dot, dot_rows};
use crate::cpu::dot::widen_f16;
use crate::cpu::widest;
use half::f16;
use std::borrow::Cow;
use std::fmt::Debug;

/// A block of quantised weights. The types of this library are the only ones.
pub trait Block: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// Weights of a block.
    const WEIGHTS: usize;
    /// Bytes of a block in a file.
    const BYTES: usize;
    /// Whether the type subtracts a minimum.
    #[doc(hidden)]
    const SUBTRACTS: bool = false;

    /// Reads the blocks of a GGUF tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of [`Block::BYTES`].
    fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        super::multiple_of("bytes", bytes.len(), Self::BYTES)?;
        Ok(bytes.chunks_exact(Self::BYTES).map(Self::read).collect())
    }

    /// Reads one block.
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Self;

    /// The weights of part `part`, 32 of them, as f32.
    #[doc(hidden)]
    fn weights(&self, part: usize) -> [f32; PART];

    /// The two integers of part `part` beside the hidden state's `values`, whose sum is `sum`.
    #[doc(hidden)]
    fn integers(&self, part: usize, values: &[i16; PART], sum: i32) -> [i32; 2];

    /// The scales of these two.
    #[doc(hidden)]
    fn scales(&self) -> [f32; 2];

    /// `hidden · row` for every row of `rows`.
    #[doc(hidden)]
    fn dot(rows: &[Self], hidden: QuantizedRow<'_>, out: &mut [f32]);

    /// The data of a matrix.
    #[doc(hidden)]
    fn store(data: Cow<'_, [Self]>) -> Data<'_>;
}

mod sealed {
    pub trait Sealed {}
}

/// Thirty-two weights: `w[i] = d · qs[i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ8_0 {
    /// The scale.
    pub d: f16,
    /// The integers.
    pub qs: [i8; 32],
}

/// Thirty-two weights: `w[i] = d · (q[i] − 8)`, q of four bits: the low halves of the bytes, then the high ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ4_0 {
    /// The scale.
    pub d: f16,
    /// The integers, two a byte.
    pub qs: [u8; 16],
}

/// 256 weights in eight parts p: `w = (d · s_p) · q − dmin · m_p`, q of four bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ4K {
    /// The scale of the scales s.
    pub d: f16,
    /// The scale of the minima m.
    pub dmin: f16,
    /// s and m, six bits each.
    pub scales: [u8; 12],
    /// q: of each 32 bytes the low halves are a part, the high halves the next.
    pub qs: [u8; 128],
}

/// 256 weights as [`BlockQ4K`], q of five bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ5K {
    /// The scale of the scales s.
    pub d: f16,
    /// The scale of the minima m.
    pub dmin: f16,
    /// s and m, six bits each.
    pub scales: [u8; 12],
    /// The highest bits of q: bit p of byte i for part p.
    pub qh: [u8; 32],
    /// The other four bits, as in [`BlockQ4K`].
    pub qs: [u8; 128],
}

/// 256 weights in sixteen halves of parts: `w = (d · scales[i / 16]) · (q[i] − 32)`, q of six bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ6K {
    /// The low four bits of q.
    pub ql: [u8; 128],
    /// The high two bits.
    pub qh: [u8; 64],
    /// A scale for each sixteen weights.
    pub scales: [i8; 16],
    /// The scale of the scales.
    pub d: f16,
}

impl BlockQ8_0 {
    /// Quantises `values` in blocks of 32: `d = max|v| / 127` rounded to f16, `qs = round_half_even(v · 127 / max|v|)`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of 32.
    pub fn quantize(values: &[f32]) -> Result<Vec<Self>, Error> {
        super::multiple_of("values", values.len(), 32)?;
        let block = |chunk: &[f32]| {
            let largest = chunk.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            let mut qs = [0i8; 32];
            for (q, v) in qs.iter_mut().zip(chunk) {
                *q = (v * inverse).round_ties_even() as i8;
            }
            Self { d: f16::from_f32(largest / 127.0), qs }
        };
        Ok(values.chunks_exact(32).map(block).collect())
    }
}

impl Block for BlockQ8_0 {
    const WEIGHTS: usize = 32;
    const BYTES: usize = 34;

    fn read(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        Self { d: fields.f16(), qs: fields.bytes::<32>().map(|byte| byte as i8) }
    }

    fn weights(&self, _: usize) -> [f32; PART] {
        self.qs.map(|q| widen(self.d) * f32::from(q))
    }

    #[inline(always)]
    fn integers(&self, _: usize, values: &[i16; PART], _: i32) -> [i32; 2] {
        [dot(&self.qs.map(i16::from), values), 0]
    }

    #[inline(always)]
    fn scales(&self) -> [f32; 2] {
        [widen(self.d), 0.0]
    }

    fn dot(rows: &[Self], hidden: QuantizedRow<'_>, out: &mut [f32]) {
        dot_q8_0(rows, hidden, out);
    }

    fn store(data: Cow<'_, [Self]>) -> Data<'_> {
        Data::Q8_0(data)
    }
}

impl Block for BlockQ4_0 {
    const WEIGHTS: usize = 32;
    const BYTES: usize = 18;

    fn read(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        Self { d: fields.f16(), qs: fields.bytes() }
    }

    fn weights(&self, _: usize) -> [f32; PART] {
        self.q().map(|q| widen(self.d) * f32::from(q))
    }

    #[inline(always)]
    fn integers(&self, _: usize, values: &[i16; PART], _: i32) -> [i32; 2] {
        [dot(&self.q(), values), 0]
    }

    #[inline(always)]
    fn scales(&self) -> [f32; 2] {
        [widen(self.d), 0.0]
    }

    fn dot(rows: &[Self], hidden: QuantizedRow<'_>, out: &mut [f32]) {
        dot_q4_0(rows, hidden, out);
    }

    fn store(data: Cow<'_, [Self]>) -> Data<'_> {
        Data::Q4_0(data)
    }
}

impl BlockQ4_0 {
    #[inline(always)]
    fn q(&self) -> [i16; PART] {
        let mut q = [0; PART];
        for i in 0..16 {
            q[i] = i16::from(self.qs[i] & 15) - 8;
            q[i + 16] = i16::from(self.qs[i] >> 4) - 8;
        }
        q
    }
}

impl Block for BlockQ4K {
    const WEIGHTS: usize = 256;
    const BYTES: usize = 144;
    const SUBTRACTS: bool = true;

    fn read(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        Self { d: fields.f16(), dmin: fields.f16(), scales: fields.bytes(), qs: fields.bytes() }
    }

    fn weights(&self, part: usize) -> [f32; PART] {
        let [s, m] = scale_and_minimum(&self.scales, part);
        affine(&nibbles(&self.qs, part), widen(self.d) * s as f32, widen(self.dmin) * m as f32)
    }

    #[inline(always)]
    fn integers(&self, part: usize, values: &[i16; PART], sum: i32) -> [i32; 2] {
        let [s, m] = scale_and_minimum(&self.scales, part);
        [s * dot(&nibbles(&self.qs, part), values), m * sum]
    }

    #[inline(always)]
    fn scales(&self) -> [f32; 2] {
        [widen(self.d), widen(self.dmin)]
    }

    fn dot(rows: &[Self], hidden: QuantizedRow<'_>, out: &mut [f32]) {
        dot_q4_k(rows, hidden, out);
    }

    fn store(data: Cow<'_, [Self]>) -> Data<'_> {
        Data::Q4K(data)
    }
}

impl Block for BlockQ5K {
    const WEIGHTS: usize = 256;
    const BYTES: usize = 176;
    const SUBTRACTS: bool = true;

    fn read(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        let (d, dmin, scales) = (fields.f16(), fields.f16(), fields.bytes());
        Self { d, dmin, scales, qh: fields.bytes(), qs: fields.bytes() }
    }

    fn weights(&self, part: usize) -> [f32; PART] {
        let [s, m] = scale_and_minimum(&self.scales, part);
        affine(&self.q(part), widen(self.d) * s as f32, widen(self.dmin) * m as f32)
    }

    #[inline(always)]
    fn integers(&self, part: usize, values: &[i16; PART], sum: i32) -> [i32; 2] {
        let [s, m] = scale_and_minimum(&self.scales, part);
        [s * dot(&self.q(part), values), m * sum]
    }

    #[inline(always)]
    fn scales(&self) -> [f32; 2] {
        [widen(self.d), widen(self.dmin)]
    }

    fn dot(rows: &[Self], hidden: QuantizedRow<'_>, out: &mut [f32]) {
        dot_q5_k(rows, hidden, out);
    }

    fn store(data: Cow<'_, [Self]>) -> Data<'_> {
        Data::Q5K(data)
    }
}

impl BlockQ5K {
    #[inline(always)]
    fn q(&self, part: usize) -> [i16; PART] {
        let low = nibbles(&self.qs, part);
        std::array::from_fn(|i| low[i] + (i16::from(self.qh[i] >> part & 1) << 4))
    }
}

impl Block for BlockQ6K {
    const WEIGHTS: usize = 256;
    const BYTES: usize = 210;

    fn read(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        let (ql, qh) = (fields.bytes(), fields.bytes());
        Self { ql, qh, scales: fields.bytes::<16>().map(|byte| byte as i8), d: fields.f16() }
    }

    fn weights(&self, part: usize) -> [f32; PART] {
        let q = self.q(part);
        std::array::from_fn(|i| widen(self.d) * f32::from(self.scales[2 * part + i / 16]) * f32::from(q[i]))
    }

    #[inline(always)]
    fn integers(&self, part: usize, values: &[i16; PART], _: i32) -> [i32; 2] {
        let q = self.q(part);
        let ([q0, q1], [v0, v1]) = (halves(&q), halves(values));
        let [s0, s1] = [self.scales[2 * part], self.scales[2 * part + 1]].map(i32::from);
        [s0 * dot(q0, v0) + s1 * dot(q1, v1), 0]
    }

    #[inline(always)]
    fn scales(&self) -> [f32; 2] {
        [widen(self.d), 0.0]
    }

    fn dot(rows: &[Self], hidden: QuantizedRow<'_>, out: &mut [f32]) {
        dot_q6_k(rows, hidden, out);
    }

    fn store(data: Cow<'_, [Self]>) -> Data<'_> {
        Data::Q6K(data)
    }
}

impl BlockQ6K {
    /// q − 32 of a part. Four parts share 64 bytes of low bits (two nibbles each) and 32 bytes of high bits.
    #[inline(always)]
    fn q(&self, part: usize) -> [i16; PART] {
        let (four, k) = (part / 4, part % 4);
        let low: &[u8; PART] = self.ql[64 * four + 32 * (k % 2)..].first_chunk().expect("64 bytes for four parts");
        let high: &[u8; PART] = self.qh[32 * four..].first_chunk().expect("32 bytes for four parts");
        std::array::from_fn(|i| i16::from(low[i] >> (4 * (k / 2)) & 15 | (high[i] >> (2 * k) & 3) << 4) - 32)
    }
}

widest! {
    fn dot_q8_0(rows: &[BlockQ8_0], hidden: QuantizedRow<'_>, out: &mut [f32]) = dot_rows;
}
widest! {
    fn dot_q4_0(rows: &[BlockQ4_0], hidden: QuantizedRow<'_>, out: &mut [f32]) = dot_rows;
}
widest! {
    fn dot_q4_k(rows: &[BlockQ4K], hidden: QuantizedRow<'_>, out: &mut [f32]) = dot_rows;
}
widest! {
    fn dot_q5_k(rows: &[BlockQ5K], hidden: QuantizedRow<'_>, out: &mut [f32]) = dot_rows;
}
widest! {
    fn dot_q6_k(rows: &[BlockQ6K], hidden: QuantizedRow<'_>, out: &mut [f32]) = dot_rows;
}

/// s and m of a part: the low six bits of bytes 0–3 and 4–7 for the first four; for the others the halves of bytes 8–11 below
/// the two highest bits of those.
#[inline(always)]
fn scale_and_minimum(packed: &[u8; 12], part: usize) -> [i32; 2] {
    let [s, m] = match part {
        0..4 => [packed[part] & 63, packed[part + 4] & 63],
        _ => [packed[part + 4] & 15 | packed[part - 4] >> 6 << 4, packed[part + 4] >> 4 | packed[part] >> 6 << 4],
    };
    [i32::from(s), i32::from(m)]
}

/// The four bits of each weight of a part of `Q4_K` and `Q5_K`.
#[inline(always)]
fn nibbles(qs: &[u8; 128], part: usize) -> [i16; PART] {
    let bytes: &[u8; PART] = qs[32 * (part / 2)..].first_chunk().expect("32 bytes for two parts");
    bytes.map(|byte| i16::from(byte >> (4 * (part % 2)) & 15))
}

fn affine(q: &[i16; PART], scale: f32, minimum: f32) -> [f32; PART] {
    q.map(|q| scale * f32::from(q) - minimum)
}

#[inline(always)]
fn halves(part: &[i16; PART]) -> [&[i16; 16]; 2] {
    let (low, high) = part.split_first_chunk().expect("sixteen of 32");
    [low, high.first_chunk().expect("the other sixteen")]
}

#[inline(always)]
fn widen(half: f16) -> f32 {
    widen_f16(u32::from(half.to_bits()))
}

/// The fields of a block in a file, one after the other.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("a block has all its bytes");
        self.0 = rest;
        *field
    }

    fn f16(&mut self) -> f16 {
        f16::from_le_bytes(self.bytes())
    }
}

macro_rules! seal {
    ($($block:ty),*) => { $(impl sealed::Sealed for $block {})* };
}
seal!(BlockQ8_0, BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K);
