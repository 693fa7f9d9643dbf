//! Tensors out of a safetensors file.
//!
//! Errors are texts: they end in a message to the user, beside a file or a line number.

use crate::failure::Failure;
use half::bf16;
use klero::{BlockQ8_0, Weights};
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
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
        let read = SafeTensors::deserialize(&self.bytes);
        let wrong = |error| Failure::Run(format!("{} is not a safetensors file: {error}", self.path.display()));
        read.map(Tensors).map_err(wrong)
    }
}

/// Named tensors.
pub struct Tensors<'b>(SafeTensors<'b>);

impl<'b> Tensors<'b> {
    /// An f32 row: a whole tensor `[n]`, or one row of `[rows, n]`.
    pub fn row(&self, name: &str, row: Option<usize>) -> Result<Cow<'b, [f32]>, String> {
        let tensor = self.0.tensor(name).map_err(|error| error.to_string())?;
        if tensor.dtype() != Dtype::F32 {
            return Err(format!("tensor `{name}` is {}, must be F32", tensor.dtype()));
        }
        let data: &'b [u8] = tensor.data();
        match (tensor.shape(), row) {
            ([_], None) => Ok(numbers(data, f32::from_le_bytes)),
            ([rows, width], Some(row)) if row < *rows => {
                Ok(numbers(&data[row * width * 4..][..width * 4], f32::from_le_bytes))
            }
            ([rows, _], Some(row)) => Err(format!("row is {row}, must be below {rows}, the rows of `{name}`")),
            (shape @ [_, _], None) => Err(format!("tensor `{name}` has shape {shape:?}: give `row`")),
            (shape, _) => {
                let rule = if row.is_some() { "[rows, n] for a `row`" } else { "[n], or [rows, n] with `row`" };
                Err(format!("tensor `{name}` has shape {shape:?}, must be {rule}"))
            }
        }
    }

    /// Weights `[V, D]` in f32 or bf16, or the bytes of Q8_0 blocks `[V, D / 32 · 34]`.
    pub fn weights(&self, name: &str) -> Result<Weights<'b>, String> {
        let tensor = self.0.tensor(name).map_err(|error| error.to_string())?;
        let data: &'b [u8] = tensor.data();
        let &[rows, width] = tensor.shape() else {
            return Err(format!("tensor `{name}` has shape {:?}, must be [V, D]", tensor.shape()));
        };
        let weights = match tensor.dtype() {
            Dtype::F32 => Weights::f32(rows, width, numbers(data, f32::from_le_bytes)),
            Dtype::BF16 => Weights::bf16(rows, width, numbers(data, bf16::from_le_bytes)),
            Dtype::U8 if width % BlockQ8_0::BYTES == 0 => BlockQ8_0::from_bytes(data)
                .and_then(|blocks| Weights::q8_0(rows, width / BlockQ8_0::BYTES * 32, blocks)),
            Dtype::U8 => {
                return Err(format!("tensor `{name}` has rows of {width} bytes, must be Q8_0 blocks of 34"));
            }
            other => {
                return Err(format!("tensor `{name}` is {other}, must be F32, BF16 or U8 (Q8_0 blocks)"));
            }
        };
        weights.map_err(|error| format!("tensor `{name}`: {error}"))
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
