//! GGUF files: typed access to metadata, and tensors as [`Weights`].
//!
//! A tensor is read some rows at a time. Matrices keep the types that [`Weights`] multiplies: f32, bf16, f16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K. Every other quantised type
//! becomes Q8_0, whose error is far below their own. A matrix made of several tensors (queries, keys and values, say) is
//! kept in their type if it is the same for all; else it becomes Q8_0 if all are quantised, and f32 if not.

use super::requantise::requantise;
use super::{CHUNK, Tensors, check_shape, header};
use crate::ModelError;
use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::{GgmlDType, ggml_file::qtensor_from_ggml};
use half::{bf16, f16};
use klero::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Weights};
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// An open GGUF file whose tensors all lie inside it.
pub(crate) struct Gguf {
    path: PathBuf,
    file: Mutex<File>,
    content: Content,
}

impl Gguf {
    /// Opens a file and checks that its header is sound and that every tensor is there.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let io = |source| ModelError::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let mut header = vec![0; header::measure(&file, size)? as usize];
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        file.read_exact(&mut header).map_err(io)?;
        let content = Content::read(&mut Cursor::new(header)).map_err(ModelError::format)?;
        check_tensors(&content, size)?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), content })
    }

    /// A metadata value, if the file has it.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    /// A text, if the file has it.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "a text", |value| value.to_string().ok().map(String::as_str))
    }

    /// A non-negative integer, if the file has it.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.typed(key, "an integer ≥ 0", |value| match *value {
            Value::Bool(_) => None,
            Value::I32(signed) => usize::try_from(signed).ok(),
            Value::I64(signed) => usize::try_from(signed).ok(),
            _ => usize::try_from(value.to_u64().ok()?).ok(),
        })
    }

    /// A number, if the file has it.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a number", |value| match *value {
            Value::F32(number) => Some(f64::from(number)),
            Value::F64(number) => Some(number),
            _ => None,
        })
    }

    /// A flag, if the file has it.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", |value| value.to_bool().ok())
    }

    /// The elements of an array, if the file has it.
    pub(crate) fn list(&self, key: &str) -> Result<Option<&[Value]>, ModelError> {
        self.typed(key, "an array", |value| value.to_vec().ok().map(Vec::as_slice))
    }

    fn typed<'v, T>(
        &'v self,
        key: &str,
        rule: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || {
            let found = format!("of type {:?}", value.value_type());
            ModelError::Key { key: key.to_owned(), found, rule: rule.to_owned() }
        };
        read(value).map(Some).ok_or_else(wrong)
    }

    /// Number of rows of a matrix.
    pub(crate) fn rows(&self, name: &str) -> Result<usize, ModelError> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        Ok(info.shape.dims().first().copied().unwrap_or(0))
    }

    fn info(&self, name: &str, expected: &[usize]) -> Result<&TensorInfo, ModelError> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        check_shape(name, info.shape.dims(), expected)?;
        let block = info.ggml_dtype.block_size();
        if expected.last().is_none_or(|width| width % block != 0) {
            return Err(ModelError::Format(format!("rows of tensor `{name}` are not whole blocks of {block}")));
        }
        Ok(info)
    }

    fn read(&self, info: &TensorInfo, start: u64, length: u64) -> Result<Vec<u8>, ModelError> {
        let io = |source| ModelError::Io { path: self.path.clone(), source };
        let mut bytes = vec![0; length as usize];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.content.tensor_data_offset + info.offset + start)).map_err(io)?;
        file.read_exact(&mut bytes).map_err(io)?;
        Ok(bytes)
    }
}

impl Tensors for Gguf {
    fn names(&self) -> Vec<&str> {
        self.content.tensor_infos.keys().map(String::as_str).collect()
    }

    fn own_name(&self, name: &str) -> String {
        name.to_owned()
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        let info = self.info(name, &[length])?;
        let bytes = self.read(info, 0, tensor_bytes(name, info)?)?;
        decode(info.ggml_dtype, &bytes, length)
    }

    fn matrix(&self, parts: &[(&str, usize)], cols: usize) -> Result<Weights<'static>, ModelError> {
        let infos: Vec<_> =
            parts.iter().map(|(name, rows)| self.info(name, &[*rows, cols])).collect::<Result<_, _>>()?;
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let read = Parts { file: self, infos: &infos, cols };
        Ok(match Stored::common(&infos) {
            Stored::F32 => Weights::f32(rows, cols, read.chunks(1, decode)?),
            Stored::Bf16 => Weights::bf16(rows, cols, read.halves(bf16::from_le_bytes)?),
            Stored::F16 => Weights::f16(rows, cols, read.halves(f16::from_le_bytes)?),
            Stored::Q8_0 => Weights::q8_0(rows, cols, read.chunks(32, q8_0)?),
            Stored::Q4_0 => Weights::q4_0(rows, cols, read.blocks(32, BlockQ4_0::from_bytes)?),
            Stored::Q4K => Weights::q4_k(rows, cols, read.blocks(256, BlockQ4K::from_bytes)?),
            Stored::Q5K => Weights::q5_k(rows, cols, read.blocks(256, BlockQ5K::from_bytes)?),
            Stored::Q6K => Weights::q6_k(rows, cols, read.blocks(256, BlockQ6K::from_bytes)?),
        }?)
    }
}

/// The tensors of a matrix, about to be read.
struct Parts<'g> {
    file: &'g Gguf,
    infos: &'g [&'g TensorInfo],
    cols: usize,
}

impl Parts<'_> {
    /// Reads all rows, a chunk at a time, into one vector; `unit` elements become one `T`.
    fn chunks<T: Copy>(
        &self,
        unit: usize,
        convert: impl Fn(GgmlDType, &[u8], usize) -> Result<Vec<T>, ModelError>,
    ) -> Result<Vec<T>, ModelError> {
        let elements: usize = self.infos.iter().map(|info| info.shape.elem_count()).sum();
        let mut all = Vec::with_capacity(elements / unit);
        for info in self.infos {
            let row_bytes = self.cols / info.ggml_dtype.block_size() * info.ggml_dtype.type_size();
            let rows = info.shape.elem_count() / self.cols;
            let step = (CHUNK / self.cols).max(1);
            for row in (0..rows).step_by(step) {
                let count = step.min(rows - row);
                let bytes = self.file.read(info, (row * row_bytes) as u64, (count * row_bytes) as u64)?;
                all.extend_from_slice(&convert(info.ggml_dtype, &bytes, count * self.cols)?);
            }
        }
        Ok(all)
    }

    /// Reads tensors that are all of one type of two bytes.
    fn halves<T: Copy>(&self, read: impl Fn([u8; 2]) -> T) -> Result<Vec<T>, ModelError> {
        self.chunks(1, |_, bytes, _| Ok(bytes.as_chunks().0.iter().map(|pair| read(*pair)).collect()))
    }

    /// Reads tensors that are all of one type of block.
    fn blocks<T: Copy>(
        &self,
        unit: usize,
        read: impl Fn(&[u8]) -> Result<Vec<T>, klero::Error>,
    ) -> Result<Vec<T>, ModelError> {
        self.chunks(unit, |_, bytes, _| Ok(read(bytes)?))
    }
}

/// The type in which a matrix is kept in memory.
#[derive(Clone, Copy, PartialEq)]
enum Stored {
    F32,
    Bf16,
    F16,
    Q8_0,
    Q4_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Stored {
    fn of(dtype: GgmlDType) -> Self {
        match dtype {
            GgmlDType::F32 => Self::F32,
            GgmlDType::BF16 => Self::Bf16,
            GgmlDType::F16 => Self::F16,
            GgmlDType::Q4_0 => Self::Q4_0,
            GgmlDType::Q4K => Self::Q4K,
            GgmlDType::Q5K => Self::Q5K,
            GgmlDType::Q6K => Self::Q6K,
            _ => Self::Q8_0,
        }
    }

    /// The type of a matrix made of several tensors.
    fn common(infos: &[&TensorInfo]) -> Self {
        let first = infos.first().map_or(Self::F32, |info| Self::of(info.ggml_dtype));
        let floats = [Self::F32, Self::Bf16, Self::F16];
        if infos.iter().all(|info| Self::of(info.ggml_dtype) == first) {
            first
        } else if infos.iter().any(|info| floats.contains(&Self::of(info.ggml_dtype))) {
            Self::F32
        } else {
            Self::Q8_0
        }
    }
}

/// Checks that every tensor lies inside the file, and that they do not share bytes (so that no small file can ask for
/// much memory).
fn check_tensors(content: &Content, size: u64) -> Result<(), ModelError> {
    let mut total = 0u64;
    for (name, info) in &content.tensor_infos {
        let bytes = tensor_bytes(name, info)?;
        total = total.saturating_add(bytes);
        let end = content.tensor_data_offset.checked_add(info.offset).and_then(|start| start.checked_add(bytes));
        if end.is_none_or(|end| end > size) {
            let message = format!("tensor `{name}` ends after the file's last byte ({size}); is it cut short?");
            return Err(ModelError::Format(message));
        }
    }
    if total > size {
        return Err(ModelError::Format(format!("its tensors take {total} bytes, the whole file has {size}")));
    }
    Ok(())
}

fn tensor_bytes(name: &str, info: &TensorInfo) -> Result<u64, ModelError> {
    let (elements, block) = (info.shape.elem_count(), info.ggml_dtype.block_size());
    if elements % block != 0 {
        return Err(ModelError::Format(format!("tensor `{name}` is not whole blocks of {block}")));
    }
    Ok((elements / block * info.ggml_dtype.type_size()) as u64)
}

/// One piece of a quantised tensor as Q8_0.
fn q8_0(dtype: GgmlDType, bytes: &[u8], elements: usize) -> Result<Vec<BlockQ8_0>, ModelError> {
    match dtype {
        GgmlDType::Q8_0 => Ok(BlockQ8_0::from_bytes(bytes)?),
        _ => Ok(requantise(&decode(dtype, bytes, elements)?)),
    }
}

/// The values of one piece of a tensor.
fn decode(dtype: GgmlDType, bytes: &[u8], elements: usize) -> Result<Vec<f32>, ModelError> {
    let values = || {
        let tensor = qtensor_from_ggml(dtype, bytes, vec![elements], &Device::Cpu)?;
        tensor.dequantize(&Device::Cpu)?.to_vec1()
    };
    values().map_err(ModelError::format)
}
