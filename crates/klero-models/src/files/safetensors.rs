//! A folder of safetensors files, read as the model they hold.
//!
//! The tensors lie in `model.safetensors`, or in several files that `model.safetensors.index.json` lists. Each header is
//! checked before anything is read: that tensors follow one another without gap or overlap, that their sizes are those of
//! their shapes, and that the file ends where they end. Matrices in f32, bf16 and f16 are kept in their type; one made of
//! several tensors of different types becomes f32.

use super::names::safetensors_name;
use super::{CHUNK, Json, Tensors, check_shape};
use crate::{Architecture, ModelError};
use half::{bf16, f16};
use klero::Weights;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of a header, and how many files there may be.
const MAX_HEADER: u64 = 1 << 24;
const MAX_FILES: usize = 1 << 12;

/// The tensors of a folder.
pub(crate) struct Folder {
    files: Vec<Opened>,
    places: HashMap<String, Place>,
    architecture: Architecture,
}

struct Opened {
    path: PathBuf,
    file: Mutex<File>,
}

/// Where a tensor lies.
struct Place {
    file: usize,
    start: u64,
    info: TensorInfo,
}

impl Folder {
    /// Opens the files of a folder.
    pub(crate) fn open(folder: &Path, architecture: Architecture) -> Result<Self, ModelError> {
        let mut this = Self { files: vec![], places: HashMap::new(), architecture };
        for path in paths(folder)? {
            this.add(path)?;
        }
        Ok(this)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), ModelError> {
        let io = |source| ModelError::Io { path: path.clone(), source };
        let mut file = File::open(&path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let (metadata, start) =
            header(&mut file, size).map_err(|why| ModelError::Format(format!("{}: {why}", path.display())))?;
        for (name, info) in metadata.tensors() {
            let place = Place { file: self.files.len(), start: start + info.data_offsets.0 as u64, info: info.clone() };
            if self.places.insert(name.clone(), place).is_some() {
                return Err(ModelError::Format(format!("{}: tensor `{name}` is there twice", path.display())));
            }
        }
        self.files.push(Opened { path, file: Mutex::new(file) });
        Ok(())
    }

    /// The tensor `name`, which must have a shape and be made of numbers.
    fn place(&self, name: &str, expected: &[usize]) -> Result<&Place, ModelError> {
        let name = self.own_name(name);
        let place = self.places.get(&name).ok_or_else(|| ModelError::MissingTensor(name.clone()))?;
        check_shape(&name, &place.info.shape, expected)?;
        let dtype = place.info.dtype;
        if matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) {
            return Ok(place);
        }
        let supported = "F32, BF16, F16".to_owned();
        Err(ModelError::Unsupported { what: "the tensor type", found: dtype.to_string(), supported })
    }

    /// All elements of some tensors, one after the other.
    fn elements<T>(&self, places: &[&Place], read: impl Fn(Dtype, &[u8]) -> Vec<T>) -> Result<Vec<T>, ModelError> {
        let count = |place: &&Place| place.info.shape.iter().product::<usize>();
        let mut all = Vec::with_capacity(places.iter().map(count).sum());
        for place in places {
            let Opened { path, file } = &self.files[place.file];
            let io = |source| ModelError::Io { path: path.clone(), source };
            let width = place.info.dtype.bitsize() / 8;
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(place.start)).map_err(io)?;
            let mut left = count(place);
            while left > 0 {
                let mut bytes = vec![0; left.min(CHUNK) * width];
                file.read_exact(&mut bytes).map_err(io)?;
                all.extend(read(place.info.dtype, &bytes));
                left -= bytes.len() / width;
            }
        }
        Ok(all)
    }
}

impl Tensors for Folder {
    fn names(&self) -> Vec<&str> {
        self.places.keys().map(String::as_str).collect()
    }

    fn own_name(&self, name: &str) -> String {
        safetensors_name(self.architecture, name)
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        let mut vector = self.elements(&[self.place(name, &[length])?], numbers)?;
        if name.ends_with("norm.weight") {
            let offset = self.architecture.norm_offset();
            vector.iter_mut().for_each(|weight| *weight += offset);
        }
        Ok(vector)
    }

    fn matrix(&self, parts: &[(&str, usize)], cols: usize) -> Result<Weights<'static>, ModelError> {
        let place = |(name, rows): &(&str, usize)| self.place(name, &[*rows, cols]);
        let places = parts.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let common = |dtype| places.iter().all(|place| place.info.dtype == dtype);
        Ok(if common(Dtype::BF16) {
            Weights::bf16(rows, cols, self.elements(&places, |_, bytes| halves(bytes, bf16::from_le_bytes))?)
        } else if common(Dtype::F16) {
            Weights::f16(rows, cols, self.elements(&places, |_, bytes| halves(bytes, f16::from_le_bytes))?)
        } else {
            Weights::f32(rows, cols, self.elements(&places, numbers)?)
        }?)
    }
}

fn halves<T>(bytes: &[u8], read: impl Fn([u8; 2]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|pair| read(*pair)).collect()
}

fn numbers(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::BF16 => halves(bytes, |pair| bf16::from_le_bytes(pair).to_f32()),
        Dtype::F16 => halves(bytes, |pair| f16::from_le_bytes(pair).to_f32()),
        _ => bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
    }
}

/// The files of a folder.
fn paths(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let wrong = |why: &str| ModelError::Format(format!("{}: {why}", index.display()));
    let json = Json::read(&index)?;
    let map =
        json.value("weight_map").and_then(|map| map.as_object()).ok_or_else(|| wrong("`weight_map` is missing"))?;
    let names: Option<BTreeSet<&str>> = map.values().map(|name| name.as_str()).collect();
    let names = names.ok_or_else(|| wrong("`weight_map` holds something other than file names"))?;
    if names.len() > MAX_FILES {
        return Err(wrong("it lists too many files"));
    }
    let plain = |name: &&str| {
        let mut parts = Path::new(name).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
    };
    if let Some(name) = names.iter().find(|name| !plain(name)) {
        return Err(wrong(&format!("{name:?} is not the name of a file beside it")));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The header of a file of `size` bytes, and where its data begins.
fn header(file: &mut File, size: u64) -> Result<(Metadata, u64), String> {
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| "it is shorter than a header's length".to_owned())?;
    let length = u64::from_le_bytes(length);
    let start = length.checked_add(8).filter(|start| *start <= size);
    let start = start.ok_or_else(|| format!("its header goes on after its last byte ({size}); is it cut short?"))?;
    if length > MAX_HEADER {
        return Err(format!("a header of {length} bytes, must be at most {MAX_HEADER}"));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(|error| error.to_string())?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| error.to_string())?;
    let end = start.saturating_add(metadata.data_len() as u64);
    if end != size {
        return Err(format!("its tensors end at byte {end}, but it has {size}; is it cut short?"));
    }
    Ok((metadata, start))
}
