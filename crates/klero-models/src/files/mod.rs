//! Model files: metadata, and tensors as [`Weights`].
//!
//! A model is one GGUF file, or a folder of safetensors files with their JSON files. Tensors are asked for by the names that
//! GGUF files give them; a folder translates.

mod gguf;
mod header;
mod json;
mod names;
mod requantise;
mod safetensors;

pub(crate) use gguf::Gguf;
pub(crate) use json::{Json, bytes};
pub(crate) use safetensors::Folder;

use crate::ModelError;
use klero::Weights;

/// Elements converted at a time while a tensor is read, so that loading needs little more memory than the finished model.
const CHUNK: usize = 1 << 18;

/// Where a model's tensors come from.
pub(crate) trait Tensors: Sync {
    /// The names of all tensors, as the model's own files have them.
    fn names(&self) -> Vec<&str>;

    /// What the model's own files call a tensor.
    fn own_name(&self, name: &str) -> String;

    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool {
        self.names().contains(&&*self.own_name(name))
    }

    /// A tensor with one dimension, as f32.
    fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, ModelError>;

    /// The matrices `parts`, each `[rows, cols]` with its own number of rows, one below the other as a single matrix.
    fn matrix(&self, parts: &[(&str, usize)], cols: usize) -> Result<Weights<'static>, ModelError>;
}

fn check_shape(name: &str, found: &[usize], expected: &[usize]) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (found.to_vec(), expected.to_vec());
    Err(ModelError::TensorShape { name: name.to_owned(), found, expected })
}
