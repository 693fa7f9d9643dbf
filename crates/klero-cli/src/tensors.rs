//! Tensors out of a safetensors file.
//!
//! Errors are texts: they end in a message to the user, beside a file or a line number.

use crate::failure::Failure;
use crate::numbers::Numbers;
use half::{bf16, f16};
use klero::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Weights};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The bytes of a file.
pub(crate) struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Reads the whole file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = std::fs::read(path);
        let bytes = bytes.map_err(|error| Failure::Run(format!("cannot read {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// The tensors in it.
    pub fn tensors(&self) -> Result<Tensors<'_>, Failure> {
        let wrong = |error| Failure::Run(format!("{} is not a safetensors file: {error}", self.path.display()));
        Tensors::deserialize(&self.bytes).map_err(wrong)
    }
}

/// Named tensors.
#[derive(Debug)]
pub struct Tensors<'b>(SafeTensors<'b>);

/// Which rows of a tensor are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// A whole tensor `[n]`, or one row of `[rows, n]`.
    One(Option<usize>),
    /// All of a tensor `[rows, n]` with so many rows.
    All(usize),
}

impl<'b> Tensors<'b> {
    /// The tensors in the bytes of a safetensors file. Shapes and offsets are checked here, so that a damaged file is
    /// refused as a whole.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn deserialize(bytes: &'b [u8]) -> Result<Self, String> {
        SafeTensors::deserialize(bytes).map(Self).map_err(|error| error.to_string())
    }

    /// Rows of numbers.
    pub(crate) fn numbers(&self, name: &str, rows: Rows) -> Result<Numbers<'b>, String> {
        let tensor = self.tensor(name)?;
        let data = &tensor.data()[place(name, &tensor, rows)?];
        match tensor.dtype() {
            Dtype::F32 => Ok(Numbers::F32(numbers(data, f32::from_le_bytes))),
            Dtype::F16 => Ok(Numbers::F16(numbers(data, f16::from_le_bytes))),
            Dtype::BF16 => Ok(Numbers::BF16(numbers(data, bf16::from_le_bytes))),
            other => Err(format!("tensor `{name}` is {other}, must be F32, F16 or BF16")),
        }
    }

    /// Rows of words of 32 bits, and the words of a row. A tensor `[n]` has one row, whichever is meant.
    pub(crate) fn words(&self, name: &str, rows: Rows) -> Result<(Cow<'b, [u32]>, usize), String> {
        let tensor = self.tensor(name)?;
        let rows = if tensor.shape().len() == 1 { Rows::One(None) } else { rows };
        let data = &tensor.data()[place(name, &tensor, rows)?];
        match tensor.dtype() {
            Dtype::I32 | Dtype::U32 => {
                Ok((numbers(data, u32::from_le_bytes), tensor.shape().last().copied().unwrap_or_default()))
            }
            other => Err(format!("tensor `{name}` is {other}, must be I32 or U32")),
        }
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'b>, String> {
        self.0.tensor(name).map_err(|error| error.to_string())
    }

    /// Weights `[V, D]` in f32, bf16 or f16, or as the bytes of GGUF blocks `[V, bytes of a row]`.
    pub(crate) fn weights(&self, name: &str, blocks: BlockType) -> Result<Weights<'b>, String> {
        let tensor = self.tensor(name)?;
        let data: &'b [u8] = tensor.data();
        let &[rows, width] = tensor.shape() else {
            return Err(format!("tensor `{name}` has shape {:?}, must be [V, D]", tensor.shape()));
        };
        let weights = match tensor.dtype() {
            Dtype::F32 => Weights::f32(rows, width, numbers(data, f32::from_le_bytes)),
            Dtype::BF16 => Weights::bf16(rows, width, numbers(data, bf16::from_le_bytes)),
            Dtype::F16 => Weights::f16(rows, width, numbers(data, f16::from_le_bytes)),
            Dtype::U8 => blocks.weights(rows, width, data),
            other => return Err(format!("tensor `{name}` is {other}, must be F32, BF16, F16, or U8 (GGUF blocks)")),
        };
        weights.map_err(|error| format!("tensor `{name}`: {error}"))
    }
}

/// The GGUF type of weights that a file holds as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum BlockType {
    #[default]
    #[serde(rename = "q8_0")]
    Q8_0,
    #[serde(rename = "q4_0")]
    Q4_0,
    #[serde(rename = "q4_k")]
    Q4K,
    #[serde(rename = "q5_k")]
    Q5K,
    #[serde(rename = "q6_k")]
    Q6K,
}

impl BlockType {
    /// Numbers and bytes of a block.
    fn block(self) -> (usize, usize) {
        match self {
            Self::Q8_0 => (32, BlockQ8_0::BYTES),
            Self::Q4_0 => (32, BlockQ4_0::BYTES),
            Self::Q4K => (256, BlockQ4K::BYTES),
            Self::Q5K => (256, BlockQ5K::BYTES),
            Self::Q6K => (256, BlockQ6K::BYTES),
        }
    }

    /// Weights whose rows are `width` bytes of blocks.
    fn weights(self, rows: usize, width: usize, data: &[u8]) -> Result<Weights<'static>, klero::Error> {
        let (numbers, bytes) = self.block();
        if !width.is_multiple_of(bytes) {
            return Err(klero::Error::Shape(format!("rows of {width} bytes, must be blocks of {bytes}")));
        }
        let cols = width / bytes * numbers;
        match self {
            Self::Q8_0 => Weights::q8_0(rows, cols, BlockQ8_0::from_bytes(data)?),
            Self::Q4_0 => Weights::q4_0(rows, cols, BlockQ4_0::from_bytes(data)?),
            Self::Q4K => Weights::q4_k(rows, cols, BlockQ4K::from_bytes(data)?),
            Self::Q5K => Weights::q5_k(rows, cols, BlockQ5K::from_bytes(data)?),
            Self::Q6K => Weights::q6_k(rows, cols, BlockQ6K::from_bytes(data)?),
        }
    }
}

/// Where rows lie in the bytes of a tensor.
fn place(name: &str, tensor: &TensorView, rows: Rows) -> Result<Range<usize>, String> {
    let bytes = tensor.data().len();
    match (tensor.shape(), rows) {
        ([_], Rows::One(None)) => Ok(0..bytes),
        ([rows, _], Rows::One(Some(row))) if row < *rows => {
            let width = bytes / rows;
            Ok(row * width..(row + 1) * width)
        }
        ([found, _], Rows::All(rows)) if *found == rows => Ok(0..bytes),
        ([rows, _], Rows::One(Some(row))) => Err(format!("row is {row}, must be below {rows}, the rows of `{name}`")),
        (shape @ [_, _], Rows::One(None)) => Err(format!("tensor `{name}` has shape {shape:?}: give `row`")),
        (shape, rows) => {
            let rule = match rows {
                Rows::One(None) => "[n], or [rows, n] with `row`".to_owned(),
                Rows::One(Some(_)) => "[rows, n] for a `row`".to_owned(),
                Rows::All(rows) => format!("[{rows}, n] for the draft"),
            };
            Err(format!("tensor `{name}` has shape {shape:?}, must be {rule}"))
        }
    }
}

/// Little-endian numbers: borrowed where they lie aligned and the machine is little-endian, else copied.
fn numbers<T: bytemuck::Pod, const N: usize>(data: &[u8], read: fn([u8; N]) -> T) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(data) {
        Ok(numbers) if cfg!(target_endian = "little") => Cow::Borrowed(numbers),
        _ => Cow::Owned(data.as_chunks().0.iter().map(|bytes| read(*bytes)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_aligned_or_not() {
        let values: Vec<f32> = (0..9).map(|i| i as f32 * 1.5 - 3.0).collect();
        for shift in 0..4 {
            let mut bytes = vec![0; shift];
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            assert_eq!(*numbers(&bytes[shift..], f32::from_le_bytes), values[..]);
        }
    }
}
