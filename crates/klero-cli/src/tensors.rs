//! Tensors out of a safetensors file.
//!
//! Errors are texts: they end in a message to the user, beside a file or a line number.

use crate::failure::Failure;
use half::{bf16, f16};
use klero::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Weights};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The bytes of a file.
pub struct TensorFile {
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

    /// The tensors in it. Shapes and offsets are checked here, so that a damaged file is refused as a whole.
    pub fn tensors(&self) -> Result<Tensors<'_>, Failure> {
        Tensors::read(&self.bytes).map_err(|error| Failure::Run(format!("{} {error}", self.path.display())))
    }
}

/// Named tensors.
pub struct Tensors<'b>(SafeTensors<'b>);

impl<'b> Tensors<'b> {
    /// The tensors in the bytes of a file.
    pub fn read(bytes: &'b [u8]) -> Result<Self, String> {
        SafeTensors::deserialize(bytes).map(Self).map_err(|error| format!("is not a safetensors file: {error}"))
    }

    /// A row of numbers: a whole tensor `[n]`, or one row of `[rows, n]`.
    pub fn row(&self, name: &str, row: Option<usize>) -> Result<Cow<'b, [f32]>, String> {
        let tensor = self.tensor(name)?;
        match (tensor.shape(), row) {
            ([n], None) => floats(name, &tensor, 0..*n),
            ([rows, width], Some(row)) if row < *rows => floats(name, &tensor, row * width..(row + 1) * width),
            ([rows, _], Some(row)) => Err(format!("row is {row}, must be below {rows}, the rows of `{name}`")),
            (shape @ [_, _], None) => Err(format!("tensor `{name}` has shape {shape:?}: give `row`")),
            (shape, _) => {
                let rule = if row.is_some() { "[rows, n] for a `row`" } else { "[n], or [rows, n] with `row`" };
                Err(format!("tensor `{name}` has shape {shape:?}, must be {rule}"))
            }
        }
    }

    /// All rows of a tensor `[rows, n]`, of which there must be `rows`.
    pub fn rows(&self, name: &str, rows: usize) -> Result<Cow<'b, [f32]>, String> {
        let tensor = self.tensor(name)?;
        match tensor.shape() {
            [found, width] if *found == rows => floats(name, &tensor, 0..rows * width),
            shape => Err(format!("tensor `{name}` has shape {shape:?}, must be [{rows}, n]")),
        }
    }

    /// A bitmask in words of 32 bits: a whole tensor `[words]`, or one row of `[rows, words]`.
    pub fn bitmask(&self, name: &str, row: Option<usize>) -> Result<Cow<'b, [u32]>, String> {
        let tensor = self.tensor(name)?;
        if !matches!(tensor.dtype(), Dtype::I32 | Dtype::U32) {
            return Err(format!("tensor `{name}` is {}, must be I32 or U32", tensor.dtype()));
        }
        let data: &'b [u8] = tensor.data();
        match (tensor.shape(), row) {
            ([_], _) => Ok(numbers(data, u32::from_le_bytes)),
            ([rows, words], Some(row)) if row < *rows => {
                Ok(numbers(&data[row * words * 4..][..words * 4], u32::from_le_bytes))
            }
            (shape, _) => {
                Err(format!("tensor `{name}` has shape {shape:?}, must be [words], or [rows, words] with `row`"))
            }
        }
    }

    /// Weights `[V, D]` in f32, bf16 or f16, or as the bytes of GGUF blocks `[V, bytes of a row]`.
    pub fn weights(&self, name: &str, blocks: BlockType) -> Result<Weights<'b>, String> {
        let tensor = self.tensor(name)?;
        let data: &'b [u8] = tensor.data();
        let &[rows, width] = tensor.shape() else {
            return Err(format!("tensor `{name}` has shape {:?}, must be [V, D]", tensor.shape()));
        };
        let weights = match tensor.dtype() {
            Dtype::F32 => Weights::f32(rows, width, numbers(data, f32::from_le_bytes)),
            Dtype::BF16 => Weights::bf16(rows, width, numbers(data, bf16::from_le_bytes)),
            Dtype::F16 => Weights::f16(rows, width, numbers(data, f16::from_le_bytes)),
            Dtype::U8 => match blocks {
                BlockType::Q8_0 => blocks_of(width, BlockQ8_0::BYTES, 32, |cols| {
                    Weights::q8_0(rows, cols, BlockQ8_0::from_bytes(data)?)
                }),
                BlockType::Q4_0 => blocks_of(width, BlockQ4_0::BYTES, 32, |cols| {
                    Weights::q4_0(rows, cols, BlockQ4_0::from_bytes(data)?)
                }),
                BlockType::Q4K => blocks_of(width, BlockQ4K::BYTES, 256, |cols| {
                    Weights::q4_k(rows, cols, BlockQ4K::from_bytes(data)?)
                }),
                BlockType::Q5K => blocks_of(width, BlockQ5K::BYTES, 256, |cols| {
                    Weights::q5_k(rows, cols, BlockQ5K::from_bytes(data)?)
                }),
                BlockType::Q6K => blocks_of(width, BlockQ6K::BYTES, 256, |cols| {
                    Weights::q6_k(rows, cols, BlockQ6K::from_bytes(data)?)
                }),
            },
            other => return Err(format!("tensor `{name}` is {other}, must be F32, BF16, F16, or U8 (GGUF blocks)")),
        };
        weights.map_err(|error| format!("tensor `{name}`: {error}"))
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'b>, String> {
        self.0.tensor(name).map_err(|error| error.to_string())
    }
}

/// The GGUF type of weights that a file holds as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum BlockType {
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

/// Weights whose rows are `width` bytes of blocks, given the numbers of a row.
fn blocks_of<'b>(
    width: usize,
    bytes: usize,
    numbers: usize,
    weights: impl FnOnce(usize) -> Result<Weights<'b>, klero::Error>,
) -> Result<Weights<'b>, klero::Error> {
    if !width.is_multiple_of(bytes) {
        return Err(klero::Error::Shape(format!("rows of {width} bytes, must be blocks of {bytes}")));
    }
    weights(width / bytes * numbers)
}

/// Some elements of a tensor as f32, which they widen to exactly.
fn floats<'b>(name: &str, tensor: &TensorView<'b>, range: Range<usize>) -> Result<Cow<'b, [f32]>, String> {
    let bytes = |size: usize| -> &'b [u8] { &tensor.data()[range.start * size..range.end * size] };
    match tensor.dtype() {
        Dtype::F32 => Ok(numbers(bytes(4), f32::from_le_bytes)),
        Dtype::BF16 => Ok(numbers(bytes(2), bf16::from_le_bytes).iter().map(|n| n.to_f32()).collect()),
        Dtype::F16 => Ok(numbers(bytes(2), f16::from_le_bytes).iter().map(|n| n.to_f32()).collect()),
        other => Err(format!("tensor `{name}` is {other}, must be F32, BF16 or F16")),
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
