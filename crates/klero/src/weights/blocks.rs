//! Blocks of quantised weights, as GGUF files hold them.
//!
//! Every type here is one formula. A block is cut into *parts* of 32 consecutive weights; weight i of part p is
//!
//! ```text
//! w = (d · s[p][i / 16]) · q[p][i] − dmin · m[p]
//! ```
//!
//! with the block's f16 scale `d` (and `dmin`), the small integers q, and for each part a whole-number scale s for each
//! half and a whole-number minimum m. A type without these has s = 1, m = 0. [`Block`] says how a type stores them, and
//! is all that the dot product and [`Weights::row`](crate::Weights::row) know of it.

use crate::{Element, Error};
use half::f16;

/// Weights in a part.
pub(crate) const PART: usize = 32;

/// How a type stores its weights.
pub(crate) trait Block: Copy + Sync {
    /// Parts in a block: 1, or 8.
    const PARTS: usize;
    /// Whether the halves of a part have scales of their own.
    const HALVES: bool = false;
    /// Whether the type has minima.
    const MINIMA: bool = false;
    /// Whether the integers lie in a block as they are multiplied, with s = 1 and no minima: there is nothing to unpack.
    const AS_STORED: bool = false;

    /// The scales.
    fn scales(&self) -> Scales;

    /// The integers q of each part, into the first [`Block::PARTS`] of `out`.
    fn integers(&self, out: &mut [[i8; PART]]);
}

/// The scales of a block; what stands beyond its parts means nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    /// The scale of all weights.
    pub d: f16,
    /// The scale of all minima.
    pub dmin: f16,
    /// The whole-number scales of each part's halves.
    pub parts: [[i16; 2]; 8],
    /// The whole-number minimum of each part.
    pub minima: [u8; 8],
}

impl Scales {
    /// One scale for all.
    #[inline(always)]
    fn plain(d: f16) -> Self {
        Self { d, dmin: f16::ZERO, parts: [[1; 2]; 8], minima: [0; 8] }
    }

    /// Eight scales and eight minima of six bits each, as Q4_K and Q5_K pack them: the first four of each are the low
    /// six bits of bytes 0..4 and 4..8; the last four have their low four bits in bytes 8..12 (scales in the low
    /// halves, minima in the high ones) and their two highest bits on top of bytes 0..4 and 4..8.
    #[inline(always)]
    fn six_bits(d: f16, dmin: f16, packed: &[u8; 12]) -> Self {
        let word = |i: usize| u32::from_le_bytes([packed[i], packed[i + 1], packed[i + 2], packed[i + 3]]);
        let (scales, minima, rest) = (word(0), word(4), word(8));
        let six = |word: u32| (word & 0x3f3f_3f3f).to_le_bytes();
        let joined = |low: u32, high: u32| (low & 0x0f0f_0f0f | (high >> 2) & 0x3030_3030).to_le_bytes();
        let (low, high) = (six(scales), joined(rest, scales));
        let both = |low: [u8; 4], high: [u8; 4]| std::array::from_fn(|p| if p < 4 { low[p] } else { high[p - 4] });
        let parts: [u8; 8] = both(low, high);
        let minima = both(six(minima), joined(rest >> 4, minima));
        Self { d, dmin, parts: parts.map(|scale| [i16::from(scale); 2]), minima }
    }
}

/// Writes the weights of a block, a whole number of parts, by the formula above: each product and the difference is
/// rounded to f32.
pub(crate) fn dequantize<B: Block>(block: &B, out: &mut [f32]) {
    let mut integers = [[0; PART]; 8];
    block.integers(&mut integers[..B::PARTS]);
    let scales = block.scales();
    let (d, dmin) = (scales.d.widen(), scales.dmin.widen());
    for (p, out) in out.chunks_exact_mut(PART).enumerate() {
        let minimum = dmin * f32::from(scales.minima[p]);
        for (i, out) in out.iter_mut().enumerate() {
            *out = d * f32::from(scales.parts[p][i / 16]) * f32::from(integers[p][i]) - minimum;
        }
    }
}

/// Thirty-two weights of GGUF's `Q8_0`: `w[i] = d · qs[i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ8_0 {
    /// The scale.
    pub d: f16,
    /// The integers.
    pub qs: [i8; 32],
}

impl BlockQ8_0 {
    /// Bytes of one block in a file: the scale, little-endian, then the integers.
    pub const BYTES: usize = 34;

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

    /// Reads the blocks of a GGUF tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of [`BlockQ8_0::BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        read(bytes, |block: &[u8; Self::BYTES]| Self {
            d: half_at(block, 0),
            qs: bytes_at::<32>(block, 2).map(|q| q as i8),
        })
    }
}

impl Block for BlockQ8_0 {
    const PARTS: usize = 1;
    const AS_STORED: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        Scales::plain(self.d)
    }

    #[inline(always)]
    fn integers(&self, out: &mut [[i8; PART]]) {
        out[0] = self.qs;
    }
}

/// Thirty-two weights of GGUF's `Q4_0`: `w[i] = d · (q[i] − 8)`, where q\[i\] and q\[i + 16\] are the low and the high
/// four bits of `qs[i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ4_0 {
    /// The scale.
    pub d: f16,
    /// The integers, two a byte.
    pub qs: [u8; 16],
}

impl BlockQ4_0 {
    /// Bytes of one block in a file: the scale, little-endian, then the integers.
    pub const BYTES: usize = 18;

    /// Reads the blocks of a GGUF tensor.
    ///
    /// ```
    /// let mut bytes = [0x98; 18]; // low halves 8, high halves 9
    /// bytes[..2].copy_from_slice(&half::f16::from_f32(0.5).to_le_bytes());
    /// let head = klero::Weights::q4_0(1, 32, klero::BlockQ4_0::from_bytes(&bytes)?)?;
    /// let mut row = [0.0; 32];
    /// head.row(0, &mut row)?;
    /// assert_eq!((row[0], row[16]), (0.0, 0.5));
    /// # Ok::<(), klero::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of [`BlockQ4_0::BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        read(bytes, |block: &[u8; Self::BYTES]| Self { d: half_at(block, 0), qs: bytes_at(block, 2) })
    }
}

impl Block for BlockQ4_0 {
    const PARTS: usize = 1;

    #[inline(always)]
    fn scales(&self) -> Scales {
        Scales::plain(self.d)
    }

    #[inline(always)]
    fn integers(&self, out: &mut [[i8; PART]]) {
        for (i, q) in self.qs.iter().enumerate() {
            out[0][i] = (q & 15) as i8 - 8;
            out[0][i + 16] = (q >> 4) as i8 - 8;
        }
    }
}

/// 256 weights of GGUF's `Q4_K`, in eight parts of 32: weight i of part p is `(d · s[p]) · q[p][i] − dmin · m[p]`.
///
/// `q[2j][i]` and `q[2j + 1][i]` are the low and the high four bits of `qs[32 j + i]`. `scales` packs the eight s and the
/// eight m, six bits each: for p < 4, s\[p\] is the low six bits of byte p and m\[p\] those of byte p + 4; for p ≥ 4,
/// s\[p\] has the low four bits of byte p + 4 and above them the top two of byte p − 4, and m\[p\] the high four bits of
/// byte p + 4 and above them the top two of byte p.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ4K {
    /// The scale of the parts' scales.
    pub d: f16,
    /// The scale of the parts' minima.
    pub dmin: f16,
    /// The scale and the minimum of each part, packed.
    pub scales: [u8; 12],
    /// The integers, two a byte.
    pub qs: [u8; 128],
}

impl BlockQ4K {
    /// Bytes of one block in a file: d and dmin, little-endian, the scales, the integers.
    pub const BYTES: usize = 144;

    /// Reads the blocks of a GGUF tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of [`BlockQ4K::BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        read(bytes, |block: &[u8; Self::BYTES]| Self {
            d: half_at(block, 0),
            dmin: half_at(block, 2),
            scales: bytes_at(block, 4),
            qs: bytes_at(block, 16),
        })
    }
}

impl Block for BlockQ4K {
    const PARTS: usize = 8;
    const MINIMA: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        Scales::six_bits(self.d, self.dmin, &self.scales)
    }

    #[inline(always)]
    fn integers(&self, out: &mut [[i8; PART]]) {
        for (parts, qs) in out.as_chunks_mut::<2>().0.iter_mut().zip(self.qs.as_chunks::<PART>().0) {
            // Eight at a time, for left to itself the compiler takes byte by byte.
            let [low, high] = parts.each_mut().map(|part| part.as_chunks_mut::<8>().0);
            for ((low, high), qs) in low.iter_mut().zip(high).zip(qs.as_chunks::<8>().0) {
                let qs = u64::from_le_bytes(*qs);
                *low = (qs & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes().map(|q| q as i8);
                *high = (qs >> 4 & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes().map(|q| q as i8);
            }
        }
    }
}

/// 256 weights of GGUF's `Q5_K`: as [`BlockQ4K`], but bit p of `qh[i]` is a fifth bit above the four of `q[p][i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ5K {
    /// The scale of the parts' scales.
    pub d: f16,
    /// The scale of the parts' minima.
    pub dmin: f16,
    /// The scale and the minimum of each part, packed as in [`BlockQ4K`].
    pub scales: [u8; 12],
    /// The highest bits of the integers, a bit for each part.
    pub qh: [u8; 32],
    /// The low four bits of the integers, two a byte.
    pub qs: [u8; 128],
}

impl BlockQ5K {
    /// Bytes of one block in a file: d and dmin, little-endian, the scales, the high bits, the low bits.
    pub const BYTES: usize = 176;

    /// Reads the blocks of a GGUF tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of [`BlockQ5K::BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        read(bytes, |block: &[u8; Self::BYTES]| Self {
            d: half_at(block, 0),
            dmin: half_at(block, 2),
            scales: bytes_at(block, 4),
            qh: bytes_at(block, 16),
            qs: bytes_at(block, 48),
        })
    }
}

impl Block for BlockQ5K {
    const PARTS: usize = 8;
    const MINIMA: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        Scales::six_bits(self.d, self.dmin, &self.scales)
    }

    #[inline(always)]
    fn integers(&self, out: &mut [[i8; PART]]) {
        for (j, (parts, qs)) in out.as_chunks_mut::<2>().0.iter_mut().zip(self.qs.as_chunks::<PART>().0).enumerate() {
            for (i, (q, high)) in qs.iter().zip(&self.qh).enumerate() {
                let high = high >> (2 * j);
                parts[0][i] = (q & 15 | (high & 1) << 4) as i8;
                parts[1][i] = (q >> 4 | (high & 2) << 3) as i8;
            }
        }
    }
}

/// 256 weights of GGUF's `Q6_K`, in eight parts of 32: weight i of part p is `(d · s) · (q[p][i] − 32)`, with a scale
/// `s = scales[2 p + i / 16]` for each sixteen weights.
///
/// With p = 4 h + r: the low four bits of `q[p][i]` are, for r < 2, the low ones of `ql[64 h + 32 r + i]`, for r ≥ 2 the
/// high ones of `ql[64 h + 32 (r − 2) + i]`; its high two are bits 2 r and 2 r + 1 of `qh[32 h + i]`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockQ6K {
    /// The low four bits of the integers, two a byte.
    pub ql: [u8; 128],
    /// The high two bits of the integers, four a byte.
    pub qh: [u8; 64],
    /// A scale for each sixteen weights.
    pub scales: [i8; 16],
    /// The scale of the scales.
    pub d: f16,
}

impl BlockQ6K {
    /// Bytes of one block in a file: the low bits, the high bits, the scales, then d, little-endian.
    pub const BYTES: usize = 210;

    /// Reads the blocks of a GGUF tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the length is not a multiple of [`BlockQ6K::BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, Error> {
        read(bytes, |block: &[u8; Self::BYTES]| Self {
            ql: bytes_at(block, 0),
            qh: bytes_at(block, 128),
            scales: bytes_at::<16>(block, 192).map(|scale| scale as i8),
            d: half_at(block, 208),
        })
    }
}

impl Block for BlockQ6K {
    const PARTS: usize = 8;
    const HALVES: bool = true;

    #[inline(always)]
    fn scales(&self) -> Scales {
        let parts = std::array::from_fn(|p| [self.scales[2 * p], self.scales[2 * p + 1]].map(i16::from));
        Scales { parts, ..Scales::plain(self.d) }
    }

    #[inline(always)]
    fn integers(&self, out: &mut [[i8; PART]]) {
        for h in 0..2 {
            for r in 0..2 {
                let (ql, qh) = (&self.ql[64 * h + PART * r..], &self.qh[PART * h..][..PART]);
                for (i, (low, high)) in ql.iter().zip(qh).enumerate() {
                    let high = high >> (2 * r);
                    out[4 * h + r][i] = (low & 15 | (high & 3) << 4) as i8 - 32;
                    out[4 * h + r + 2][i] = (low >> 4 | high & 0x30) as i8 - 32;
                }
            }
        }
    }
}

/// Reads whole blocks of `N` bytes.
fn read<B, const N: usize>(bytes: &[u8], block: impl Fn(&[u8; N]) -> B) -> Result<Vec<B>, Error> {
    super::multiple_of("bytes", bytes.len(), N)?;
    Ok(bytes.as_chunks().0.iter().map(block).collect())
}

/// The little-endian f16 at `start`.
fn half_at(block: &[u8], start: usize) -> f16 {
    f16::from_le_bytes([block[start], block[start + 1]])
}

fn bytes_at<const N: usize>(block: &[u8], start: usize) -> [u8; N] {
    std::array::from_fn(|i| block[start + i])
}
