//! One walk of some tokens through the decoder.
//!
//! ```text
//! x = scale · embedding[token]
//! for each layer:
//!     q, k, v = qkv · rms_norm(x) + bias         q and k normalised head by head, turned by their position;
//!                                                k and v kept by the sequence
//!     x += rms_norm(output · attention(q, keys, values))
//!     x += rms_norm(down · (g(gate · h) ⊙ up · h))        h = rms_norm(x)
//! hidden = rms_norm(x)
//! ```
//!
//! The bias, the norms of heads and the norms of what is added are there in some architectures only.
//!
//! The rows of a batch, one per fed token, walk through the layers together so that each weight is read once for all of
//! them. No operation mixes rows: a matrix multiplies row by row with bits that do not depend on the other rows, norms
//! and gates are rowwise, and attention reads one sequence up to the row's own position in one order. So a hidden state
//! has the same bits for any chunking of the prompt, any batch mates and any number of threads, and a long call is cut
//! into pieces at will.

use crate::attention::attend;
use crate::decoder::{Decoder, Layer};
use crate::math::{add, gated, rms_norm, scale};
use crate::rope::{Rope, rotate};
use crate::{Config, ModelError, Sequence};
use klero::Weights;
use rayon::prelude::*;

/// Rows that walk together: enough to read the weights rarely, few enough to bound the memory of a long prompt.
const ROWS: usize = 64;

/// Multiplications that are worth handing to another thread.
const WORTH_A_TASK: usize = 1 << 16;

/// Each sequence with its new tokens.
pub(crate) type Batch<'b, 's> = [(&'b mut Sequence, &'s [u32])];

/// Feeds a batch that was checked, and returns the hidden state at every fed position, `[rows, dim]`.
pub(crate) fn run(
    config: &Config,
    embedding: &Weights,
    decoder: &Decoder,
    batch: &mut Batch,
) -> Result<Vec<f32>, ModelError> {
    let mut rows = Vec::new();
    for (sequence, (state, tokens)) in batch.iter().enumerate() {
        let row = |(i, token): (usize, &u32)| Row { sequence, token: *token, position: state.len() + i };
        rows.extend(tokens.iter().enumerate().map(row));
    }
    let mut hidden = vec![0.0; rows.len() * config.dim];
    let mut pass = Pass { config, batch, rows: &[], buffers: Buffers::default() };
    for (rows, hidden) in rows.chunks(ROWS).zip(hidden.chunks_mut(ROWS * config.dim)) {
        pass.rows = rows;
        pass.begin(embedding, decoder)?;
        for (l, layer) in decoder.layers.iter().enumerate() {
            pass.layer(l, layer)?;
        }
        normalise(config, &pass.buffers.x, &decoder.norm, hidden);
    }
    for (sequence, tokens) in batch {
        sequence.advance(tokens.len());
    }
    Ok(hidden)
}

/// One fed token: whose it is, which, and where it stands.
struct Row {
    sequence: usize,
    token: u32,
    position: usize,
}

/// The rows that walk now, and what is known of them.
struct Pass<'p, 'b, 's> {
    config: &'p Config,
    batch: &'p mut Batch<'b, 's>,
    rows: &'p [Row],
    buffers: Buffers,
}

/// Intermediate values `[rows, …]`, reused by every layer.
#[derive(Default)]
struct Buffers {
    /// Sine and cosine of each rotated pair, for each kind of attention.
    turns: Vec<Vec<(f32, f32)>>,
    x: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    gated: Vec<f32>,
    /// What a half layer adds to `x`.
    change: Vec<f32>,
}

impl Pass<'_, '_, '_> {
    fn begin(&mut self, embedding: &Weights, decoder: &Decoder) -> Result<(), ModelError> {
        let Self { config, rows, buffers, .. } = self;
        buffers.fit(config, rows.len());
        for (row, x) in rows.iter().zip(buffers.x.chunks_exact_mut(config.dim)) {
            embedding.row(row.token as usize, x)?;
            scale(x, config.embedding_scale);
        }
        let turns = |rope: &Rope| rows.iter().flat_map(|row| rope.turns(row.position)).collect();
        buffers.turns = decoder.ropes.iter().map(turns).collect();
        Ok(())
    }

    fn layer(&mut self, l: usize, layer: &Layer) -> Result<(), ModelError> {
        let b = &mut self.buffers;
        normalise(self.config, &b.x, &layer.attention_norm, &mut b.normed);
        layer.qkv.matmul(&b.normed, &mut b.qkv)?;
        self.remember(l, layer);
        self.attend(l);
        let b = &mut self.buffers;
        layer.output.matmul(&b.attended, &mut b.change)?;
        self.add(layer.post_attention_norm.as_deref());

        let b = &mut self.buffers;
        normalise(self.config, &b.x, &layer.feed_forward_norm, &mut b.normed);
        layer.gate_up.matmul(&b.normed, &mut b.gate_up)?;
        gate(self.config, &b.gate_up, &mut b.gated);
        layer.down.matmul(&b.gated, &mut b.change)?;
        self.add(layer.post_feed_forward_norm.as_deref());
        Ok(())
    }

    /// Adds what a half layer changes.
    fn add(&mut self, norm: Option<&[f32]>) {
        let b = &mut self.buffers;
        if let Some(norm) = norm {
            b.change.chunks_exact_mut(self.config.dim).for_each(|row| rms_norm(row, norm, self.config.norm_epsilon));
        }
        add(&mut b.x, &b.change);
    }

    /// Finishes queries, keys and values, and gives keys and values to their sequences.
    fn remember(&mut self, l: usize, layer: &Layer) {
        let Self { config, batch, rows, buffers } = self;
        let width = config.query_dim() + 2 * config.kv_dim();
        let turns = buffers.turns[config.layers[l]].chunks_exact(config.rope_dim / 2);
        for ((row, qkv), turns) in rows.iter().zip(buffers.qkv.chunks_exact_mut(width)).zip(turns) {
            if let Some(bias) = &layer.bias {
                add(qkv, bias);
            }
            let (query, key_and_value) = qkv.split_at_mut(config.query_dim());
            let (key, value) = key_and_value.split_at_mut(config.kv_dim());
            for (heads, norm) in [&mut *query, &mut *key].into_iter().zip(0..) {
                for head in heads.chunks_exact_mut(config.head_dim) {
                    if let Some(norms) = &layer.head_norms {
                        rms_norm(head, &norms[norm], config.norm_epsilon);
                    }
                    rotate(head, turns, config.rope_pairing);
                }
            }
            batch[row.sequence].0.push(l, key, value);
        }
    }

    /// Attention of every row and head.
    fn attend(&mut self, l: usize) {
        let Self { config, batch, rows, buffers } = self;
        let (batch, qkv) = (&**batch, &buffers.qkv);
        let (heads, head_dim, width) = (config.heads, config.head_dim, config.query_dim() + 2 * config.kv_dim());
        let window = config.attention(l).window.unwrap_or(usize::MAX);
        let reach = rows.iter().map(|row| (row.position + 1).min(window)).max().unwrap_or(1);
        let heads_a_task = (WORTH_A_TASK / (2 * head_dim * reach)).max(1);
        let outputs = buffers.attended.par_chunks_exact_mut(head_dim).with_min_len(heads_a_task);
        outputs.enumerate().for_each_init(Vec::new, |weights, (i, out)| {
            let (row, head) = (&rows[i / heads], i % heads);
            let query = &qkv[i / heads * width + head * head_dim..][..head_dim];
            let end = row.position + 1;
            let seen = end.saturating_sub(window)..end;
            let memory = batch[row.sequence].0.head(l, head * config.kv_heads / heads, seen);
            attend(query, memory, config.attention_scale, weights, out);
        });
    }
}

impl Buffers {
    fn fit(&mut self, config: &Config, rows: usize) {
        let (dim, wide) = (config.dim, config.feed_forward);
        self.x.resize(rows * dim, 0.0);
        self.normed.resize(rows * dim, 0.0);
        self.qkv.resize(rows * (config.query_dim() + 2 * config.kv_dim()), 0.0);
        self.attended.resize(rows * config.query_dim(), 0.0);
        self.gate_up.resize(rows * 2 * wide, 0.0);
        self.gated.resize(rows * wide, 0.0);
        self.change.resize(rows * dim, 0.0);
    }
}

fn normalise(config: &Config, x: &[f32], weight: &[f32], out: &mut [f32]) {
    out.copy_from_slice(x);
    out.chunks_exact_mut(config.dim).for_each(|row| rms_norm(row, weight, config.norm_epsilon));
}

fn gate(config: &Config, gate_up: &[f32], out: &mut [f32]) {
    let wide = config.feed_forward;
    // An exponential costs about as much as sixteen multiplications.
    let rows_a_task = (WORTH_A_TASK / (16 * wide)).max(1);
    let rows = out.par_chunks_exact_mut(wide).zip(gate_up.par_chunks_exact(2 * wide));
    rows.with_min_len(rows_a_task).for_each(|(out, gate_up)| gated(config.architecture.gate(), gate_up, out));
}
