//! A first walk over a GGUF header that trusts nothing.
//!
//! The header is a list of metadata (key, type, value) and a list of tensors (name, dimensions, type, offset), each
//! with a count in front that a damaged or hostile file can make as large as it likes. The reader that follows turns
//! every element of an array into a value of its own and multiplies dimensions, so this walk first measures the header
//! without storing it and refuses what cannot belong to a model. Its cost is one pass over a few megabytes.

use crate::ModelError;
use std::io::{BufReader, Read, Seek};

/// Array elements in all metadata together: four arrays (tokens, scores, types, merges) over 2^20 ids.
const MAX_ELEMENTS: u64 = 1 << 22;
/// Metadata entries, and tensors, of one file.
const MAX_ENTRIES: u64 = 1 << 16;
/// Bytes of a key or of a tensor's name.
const MAX_NAME: u64 = 1 << 12;
/// Elements of one tensor.
const MAX_TENSOR: u64 = 1 << 40;
const MAX_DIMENSIONS: u32 = 4;

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Checks the header of a GGUF file of `size` bytes and returns the header's length.
pub(crate) fn measure(file: impl Read + Seek, size: u64) -> Result<u64, ModelError> {
    let mut walk = Walk { reader: BufReader::new(file), at: 0, size, elements: 0 };
    if walk.bytes()? != *b"GGUF" {
        return refuse("it does not begin with `GGUF`");
    }
    let version = walk.u32()?;
    if !(2..=3).contains(&version) {
        return refuse(format!("version {version}, must be 2 or 3"));
    }
    let (tensors, entries) = (walk.u64()?, walk.u64()?);
    if tensors > MAX_ENTRIES || entries > MAX_ENTRIES {
        return refuse(format!("{tensors} tensors and {entries} metadata entries, must be at most {MAX_ENTRIES} each"));
    }
    for _ in 0..entries {
        walk.metadata()?;
    }
    for _ in 0..tensors {
        walk.tensor()?;
    }
    Ok(walk.at)
}

struct Walk<R> {
    reader: BufReader<R>,
    at: u64,
    size: u64,
    elements: u64,
}

impl<R: Read + Seek> Walk<R> {
    fn metadata(&mut self) -> Result<(), ModelError> {
        let key = self.name()?;
        let kind = self.u32()?;
        if key == b"general.alignment" {
            let alignment = if kind == 4 { self.u32()? } else { 0 };
            if !alignment.is_power_of_two() {
                return refuse("general.alignment must be a power of two of type u32");
            }
            return Ok(());
        }
        match kind {
            STRING => self.string(),
            ARRAY => self.array(),
            _ => self.skip(width(kind)?),
        }
    }

    fn array(&mut self) -> Result<(), ModelError> {
        let (kind, count) = (self.u32()?, self.u64()?);
        self.elements = self.elements.saturating_add(count);
        if self.elements > MAX_ELEMENTS {
            return refuse(format!("its metadata arrays have more than {MAX_ELEMENTS} elements"));
        }
        if kind != STRING {
            return self.skip(width(kind)? * count);
        }
        (0..count).try_for_each(|_| self.string())
    }

    fn tensor(&mut self) -> Result<(), ModelError> {
        let name = self.name()?;
        let dimensions = self.u32()?;
        let mut elements = Some(1u64);
        for _ in 0..dimensions.min(MAX_DIMENSIONS) {
            // A dimension of 0 must not hide how large the others are: not everyone multiplies them in this order.
            let dimension = self.u64()?.max(1);
            elements = elements.and_then(|n| n.checked_mul(dimension));
        }
        if dimensions > MAX_DIMENSIONS || elements.is_none_or(|n| n > MAX_TENSOR) {
            return refuse(format!("tensor `{}` has an impossible shape", String::from_utf8_lossy(&name)));
        }
        self.skip(4 + 8) // its type and offset
    }

    fn name(&mut self) -> Result<Vec<u8>, ModelError> {
        let length = self.u64()?;
        if length > MAX_NAME {
            return refuse(format!("a name of {length} bytes, must be at most {MAX_NAME}"));
        }
        self.advance(length)?;
        let mut name = vec![0; length as usize];
        self.reader.read_exact(&mut name).map_err(ModelError::format)?;
        Ok(name)
    }

    fn string(&mut self) -> Result<(), ModelError> {
        let length = self.u64()?;
        self.skip(length)
    }

    fn u32(&mut self) -> Result<u32, ModelError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ModelError> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        self.advance(N as u64)?;
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(ModelError::format)?;
        Ok(bytes)
    }

    fn skip(&mut self, length: u64) -> Result<(), ModelError> {
        self.advance(length)?;
        self.reader.seek_relative(length as i64).map_err(ModelError::format)
    }

    /// Moves `at` past `length` bytes, which must be there.
    fn advance(&mut self, length: u64) -> Result<(), ModelError> {
        match self.at.checked_add(length) {
            Some(end) if end <= self.size => {
                self.at = end;
                Ok(())
            }
            _ => refuse(format!("its header goes on after its last byte ({}); is it cut short?", self.size)),
        }
    }
}

/// Bytes of one scalar of type `kind`.
fn width(kind: u32) -> Result<u64, ModelError> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => refuse(format!("a metadata value of type {kind}")),
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::Format(why.into()))
}
