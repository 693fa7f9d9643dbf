//! What a model remembers of one sequence: the keys and values of its tokens.

use crate::Config;
use crate::ModelError;
use std::ops::Range;

/// The state of one text while it grows: each layer's keys and values at every position so far.
///
/// Made by [`Model::new_sequence`](crate::Model::new_sequence), grown by [`Model::forward`](crate::Model::forward).
/// Memory grows with the text, `2 · layers · kv_heads · head_dim` f32 a token. A clone continues independently.
#[derive(Clone, Debug)]
pub struct Sequence {
    shape: Shape,
    length: usize,
    /// For each layer and key-value head, its keys position after position.
    keys: Vec<Vec<f32>>,
    /// The values, likewise.
    values: Vec<Vec<f32>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl Shape {
    fn of(config: &Config) -> Self {
        Self { layers: config.layers.len(), kv_heads: config.kv_heads, head_dim: config.head_dim }
    }
}

impl Sequence {
    pub(crate) fn new(config: &Config) -> Self {
        let heads = config.layers.len() * config.kv_heads;
        Self { shape: Shape::of(config), length: 0, keys: vec![vec![]; heads], values: vec![vec![]; heads] }
    }

    /// Number of tokens fed so far, which is also the position of the next one.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no token was fed yet.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets all tokens from position `length` on, so that the text can go on differently from there.
    pub fn truncate(&mut self, length: usize) {
        if length < self.length {
            self.length = length;
            for head in self.keys.iter_mut().chain(&mut self.values) {
                head.truncate(length * self.shape.head_dim);
            }
        }
    }

    /// Refuses a sequence of another model, or `added` tokens more than the context holds.
    pub(crate) fn check(&self, config: &Config, added: usize) -> Result<(), ModelError> {
        if self.shape != Shape::of(config) {
            return Err(ModelError::ForeignSequence);
        }
        let length = self.length.saturating_add(added);
        if length > config.context {
            return Err(ModelError::ContextFull { length, limit: config.context });
        }
        Ok(())
    }

    /// Appends one position's keys and values (all heads) to a layer; [`Sequence::advance`] follows after the last.
    pub(crate) fn push(&mut self, layer: usize, keys: &[f32], values: &[f32]) {
        let Shape { kv_heads, head_dim, .. } = self.shape;
        let mine = layer * kv_heads..(layer + 1) * kv_heads;
        for (head, key) in self.keys[mine.clone()].iter_mut().zip(keys.chunks_exact(head_dim)) {
            head.extend_from_slice(key);
        }
        for (head, value) in self.values[mine].iter_mut().zip(values.chunks_exact(head_dim)) {
            head.extend_from_slice(value);
        }
    }

    /// Counts `tokens` positions that every layer has received.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }

    /// Keys and values of one head for some positions.
    pub(crate) fn head(&self, layer: usize, head: usize, positions: Range<usize>) -> (&[f32], &[f32]) {
        let index = layer * self.shape.kv_heads + head;
        let elements = positions.start * self.shape.head_dim..positions.end * self.shape.head_dim;
        (&self.keys[index][elements.clone()], &self.values[index][elements])
    }
}
