//! Weight matrices: the LM head, or any linear layer that must give the same bits whatever the batch.
//!
//! A matrix `W[rows, cols]` lies row by row, a row per vocabulary id. What a logit *is* for each type (the order of the
//! sum, the quantisation of the hidden state) is written down in `cpu/dot` and in docs/law.md; it never depends on the
//! other rows of a batch, on threads, or on the tile a row was computed in.

pub(crate) mod blocks;

pub use blocks::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0};

use crate::cpu::dot::quantized::{Dot, Quantized};
use crate::cpu::dot::{Wanted, float};
use crate::{Element, Error};
use blocks::{Block, PART};
use half::{bf16, f16};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// A matrix of weights `[rows, cols]`, row-major, owned or borrowed.
///
/// ```
/// let head = klero::Weights::f32(3, 2, vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
/// let mut logits = [0.0; 3];
/// head.matmul(&[2.0, 5.0], &mut logits)?;
/// assert_eq!(logits, [2.0, 5.0, 7.0]);
/// # Ok::<(), klero::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    rows: usize,
    cols: usize,
    data: Data<'a>,
}

#[derive(Clone, Debug)]
enum Data<'a> {
    F32(Cow<'a, [f32]>),
    Bf16(Cow<'a, [bf16]>),
    F16(Cow<'a, [f16]>),
    Q8_0(Cow<'a, [BlockQ8_0]>),
    Q4_0(Cow<'a, [BlockQ4_0]>),
    Q4K(Cow<'a, [BlockQ4K]>),
    Q5K(Cow<'a, [BlockQ5K]>),
    Q6K(Cow<'a, [BlockQ6K]>),
}

/// A constructor for each type.
macro_rules! constructors {
    ($($(#[$meta:meta])* $name:ident: $variant:ident of $unit:ty, $elements:literal;)*) => {$(
        $(#[$meta])*
        pub fn $name(rows: usize, cols: usize, data: impl Into<Cow<'a, [$unit]>>) -> Result<Self, Error> {
            let data = data.into();
            shape(rows, cols, $elements, data.len())?;
            Ok(Self { rows, cols, data: Data::$variant(data) })
        }
    )*};
}

impl<'a> Weights<'a> {
    constructors! {
        /// f32 weights.
        ///
        /// # Errors
        /// [`Error::Shape`] if `data` does not hold `rows · cols` elements or `cols` is 0.
        f32: F32 of f32, 1;

        /// bf16 weights.
        ///
        /// # Errors
        /// As [`Weights::f32`].
        bf16: Bf16 of bf16, 1;

        /// f16 weights.
        ///
        /// # Errors
        /// As [`Weights::f32`].
        f16: F16 of f16, 1;

        /// Q8_0 weights: `cols / 32` blocks a row.
        ///
        /// # Errors
        /// [`Error::Shape`] if `cols` is not a positive multiple of 32 or the number of blocks is not `rows · cols / 32`.
        q8_0: Q8_0 of BlockQ8_0, 32;

        /// Q4_0 weights: `cols / 32` blocks a row.
        ///
        /// # Errors
        /// As [`Weights::q8_0`].
        q4_0: Q4_0 of BlockQ4_0, 32;

        /// Q4_K weights: `cols / 256` blocks a row.
        ///
        /// # Errors
        /// [`Error::Shape`] if `cols` is not a positive multiple of 256 or the number of blocks is not
        /// `rows · cols / 256`.
        q4_k: Q4K of BlockQ4K, 256;

        /// Q5_K weights: `cols / 256` blocks a row.
        ///
        /// # Errors
        /// As [`Weights::q4_k`].
        q5_k: Q5K of BlockQ5K, 256;

        /// Q6_K weights: `cols / 256` blocks a row.
        ///
        /// # Errors
        /// As [`Weights::q4_k`].
        q6_k: Q6K of BlockQ6K, 256;
    }

    /// Number of rows; for an LM head, the vocabulary size V.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length of a row; for an LM head, the hidden size D.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Writes row `row` as f32.
    ///
    /// f32, bf16 and f16 are exact. A quantised weight is `(d · s) · q − dmin · m` in the terms of its block type
    /// ([`BlockQ8_0`] and the others; no s, no m: s = 1, m = 0), each operation rounded to f32, as other readers of GGUF
    /// compute it.
    ///
    /// # Errors
    /// [`Error::Shape`] if the row does not exist or `out` is not `cols` long.
    pub fn row(&self, row: usize, out: &mut [f32]) -> Result<(), Error> {
        if row >= self.rows {
            return Err(Error::Shape(format!("row {row} of a matrix with {} rows", self.rows)));
        }
        expect_len("out", out.len(), self.cols)?;
        match &self.data {
            Data::F32(data) => widen(data, row, out),
            Data::Bf16(data) => widen(data, row, out),
            Data::F16(data) => widen(data, row, out),
            Data::Q8_0(data) => dequantize(data, row, out),
            Data::Q4_0(data) => dequantize(data, row, out),
            Data::Q4K(data) => dequantize(data, row, out),
            Data::Q5K(data) => dequantize(data, row, out),
            Data::Q6K(data) => dequantize(data, row, out),
        }
        Ok(())
    }

    /// `out[n, rows] = x[n, cols] · Wᵀ`, in parallel on the current rayon pool.
    ///
    /// The bits of each output depend only on its row of `x` and its row of `W`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `x` is not whole rows of `cols`, or `out` does not hold a result for each.
    pub fn matmul(&self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        multiple_of("x", x.len(), self.cols)?;
        let n = x.len() / self.cols;
        expect_len("out", out.len(), n * self.rows)?;
        let hidden = self.prepare(x);
        let wanted: Vec<usize> = (0..n).collect();
        let mut columns: Vec<_> = out.chunks_exact_mut(self.rows.max(1)).map(|row| row.chunks_mut(TILE)).collect();
        // One task per range of weight rows, so that a range is read once for all rows of x.
        let tasks: Vec<(usize, Vec<&mut [f32]>)> = (0..self.rows)
            .step_by(TILE)
            .map(|start| (start, columns.iter_mut().filter_map(Iterator::next).collect()))
            .collect();
        tasks.into_par_iter().for_each(|(start, pieces)| {
            let ids = start..(start + TILE).min(self.rows);
            self.dot(&hidden, &wanted, ids, pieces);
        });
        Ok(())
    }

    /// bf16 weights as they are.
    #[cfg(feature = "cuda")]
    pub(crate) fn bf16_values(&self) -> Option<&[bf16]> {
        if let Data::Bf16(data) = &self.data { Some(data) } else { None }
    }

    /// f16 weights as they are.
    #[cfg(feature = "cuda")]
    pub(crate) fn f16_values(&self) -> Option<&[f16]> {
        if let Data::F16(data) = &self.data { Some(data) } else { None }
    }

    /// Brings hidden states `[n, cols]` into the form that this type's dot product takes.
    pub(crate) fn prepare<'x>(&self, x: &'x [f32]) -> Hidden<'x> {
        match self.data {
            Data::F32(_) | Data::Bf16(_) | Data::F16(_) => Hidden::F32(x),
            _ => Hidden::Quantized(Quantized::new(x, self.cols)),
        }
    }

    /// The logits of `ids` for the hidden rows `wanted`: `out[k]` receives those of `wanted[k]`.
    pub(crate) fn dot<'o>(
        &self,
        hidden: &Hidden,
        wanted: &[usize],
        ids: Range<usize>,
        out: impl IntoIterator<Item = &'o mut [f32]>,
    ) {
        let mut wanted: Vec<Wanted> = wanted.iter().copied().zip(out).collect();
        match hidden {
            Hidden::F32(x) => self.dot_float(x, &ids, &mut wanted),
            Hidden::Quantized(x) => self.dot_quantized(x, &ids, &mut wanted),
        }
    }

    fn dot_float(&self, x: &[f32], ids: &Range<usize>, wanted: &mut [Wanted]) {
        match &self.data {
            Data::F32(data) => float::dot_f32(span(data, ids, self.cols), x, self.cols, wanted),
            Data::Bf16(data) => float::dot_bf16(span(data, ids, self.cols), x, self.cols, wanted),
            Data::F16(data) => float::dot_f16(span(data, ids, self.cols), x, self.cols, wanted),
            _ => unreachable!("{PREPARED}"),
        }
    }

    fn dot_quantized(&self, x: &Quantized, ids: &Range<usize>, wanted: &mut [Wanted]) {
        match &self.data {
            Data::Q8_0(data) => Dot::dot(span(data, ids, self.cols / 32), x, wanted),
            Data::Q4_0(data) => Dot::dot(span(data, ids, self.cols / 32), x, wanted),
            Data::Q4K(data) => Dot::dot(span(data, ids, self.cols / 256), x, wanted),
            Data::Q5K(data) => Dot::dot(span(data, ids, self.cols / 256), x, wanted),
            Data::Q6K(data) => Dot::dot(span(data, ids, self.cols / 256), x, wanted),
            _ => unreachable!("{PREPARED}"),
        }
    }
}

const PREPARED: &str = "hidden states are prepared by the weights that use them";

/// Weight rows that one task of a matmul takes.
const TILE: usize = 64;

/// Hidden states in the form a weight type multiplies.
#[derive(Debug)]
pub(crate) enum Hidden<'x> {
    F32(&'x [f32]),
    Quantized(Quantized),
}

fn widen<E: Element>(data: &[E], row: usize, out: &mut [f32]) {
    let row = &data[row * out.len()..];
    for (out, w) in out.iter_mut().zip(row) {
        *out = w.widen();
    }
}

fn dequantize<B: Block>(data: &[B], row: usize, out: &mut [f32]) {
    let (elements, width) = (B::PARTS * PART, out.len() / (B::PARTS * PART));
    for (out, block) in out.chunks_exact_mut(elements).zip(&data[row * width..]) {
        blocks::dequantize(block, out);
    }
}

fn span<'d, T>(data: &'d [T], rows: &Range<usize>, width: usize) -> &'d [T] {
    &data[rows.start * width..rows.end * width]
}

fn shape(rows: usize, cols: usize, block: usize, found: usize) -> Result<(), Error> {
    if cols == 0 || !cols.is_multiple_of(block) {
        return Err(Error::Shape(format!("cols is {cols}, must be a positive multiple of {block}")));
    }
    let expected = rows.checked_mul(cols / block);
    if expected != Some(found) {
        let unit = if block == 1 { "elements" } else { "blocks" };
        return Err(Error::Shape(format!("weights [{rows}, {cols}] need rows · cols / {block} {unit}, found {found}")));
    }
    Ok(())
}

fn multiple_of(name: &str, found: usize, unit: usize) -> Result<(), Error> {
    if !found.is_multiple_of(unit) {
        return Err(Error::Shape(format!("{name} has length {found}, must be a multiple of {unit}")));
    }
    Ok(())
}

fn expect_len(name: &str, found: usize, expected: usize) -> Result<(), Error> {
    if found != expected {
        return Err(Error::Shape(format!("{name} has length {found}, must be {expected}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_do_not_depend_on_the_grouping_of_weight_rows() {
        let (rows, cols) = (67, 96);
        let data: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919 % 1013) as f32 - 506.0) / 97.0).collect();
        let x: Vec<f32> = (0..3 * cols).map(|i| ((i * 104_729 % 997) as f32 - 498.0) / 61.0).collect();
        let halves: Vec<bf16> = data.iter().map(|v| bf16::from_f32(*v)).collect();
        let blocks = BlockQ8_0::quantize(&data).unwrap();
        for weights in [
            Weights::f32(rows, cols, &data[..]).unwrap(),
            Weights::bf16(rows, cols, &halves[..]).unwrap(),
            Weights::q8_0(rows, cols, &blocks[..]).unwrap(),
        ] {
            let mut whole = vec![0.0; 3 * rows];
            weights.matmul(&x, &mut whole).unwrap();
            let hidden = weights.prepare(&x);
            for row in 0..3 {
                for id in 0..rows {
                    let mut one = [0.0];
                    weights.dot(&hidden, &[row], id..id + 1, [&mut one[..]]);
                    assert_eq!(one[0].to_bits(), whole[row * rows + id].to_bits());
                }
            }
        }
    }

    #[test]
    fn a_hidden_state_that_is_not_finite_shows_in_the_logits() {
        let blocks = BlockQ8_0::quantize(&[1.0; 64]).unwrap();
        let weights = Weights::q8_0(1, 64, blocks).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [0.5; 64];
            x[40] = bad;
            let mut out = [0.0];
            weights.matmul(&x, &mut out).unwrap();
            assert!(out[0].is_nan());
        }
    }

    #[test]
    fn wrong_shapes_are_refused_by_name() {
        let error = Weights::f32(2, 3, vec![0.0; 5]).unwrap_err().to_string();
        assert!(error.contains("[2, 3]") && error.contains("found 5"), "{error}");
        assert!(Weights::q8_0(1, 33, vec![]).is_err());
        assert!(Weights::f32(usize::MAX, 2, vec![]).is_err());
        assert!(BlockQ8_0::quantize(&[0.0; 31]).is_err());
    }
}
