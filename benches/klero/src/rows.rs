//! Rows of logits: made up, and those of real models.

use anyhow::Result;
use klero::FusedHead;
use klero_models::Model;
use std::path::{Path, PathBuf};

/// Independent normal numbers, standard deviation 3: a flat row.
pub fn flat(vocabulary: usize, seed: u64) -> Vec<f32> {
    (0..vocabulary as u64).map(|i| (normal(seed, i) * 3.0) as f32).collect()
}

/// A normal number, by Box and Muller from two hashes.
pub fn normal(seed: u64, i: u64) -> f64 {
    let unit = |n: u64| ((klero::hash::splitmix64(seed ^ n) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (-2.0 * unit(2 * i).ln()).sqrt() * (std::f64::consts::TAU * unit(2 * i + 1)).cos()
}

/// The models whose rows are measured: those there are of the default model and Gemma 3 270M.
pub fn models() -> Vec<(&'static str, PathBuf)> {
    let Ok(default) = klero_models::default_model() else { return vec![] };
    let gemma = default.with_file_name("gemma-3-270m.Q4_K_M.gguf");
    let mut models = vec![("SmolLM2-135M", default)];
    models.extend(gemma.exists().then_some(("Gemma 3 270M", gemma)));
    models
}

/// The logits after a text.
pub fn real(model: &Path) -> Result<Vec<f32>> {
    let model = Model::load(model)?;
    let tokenizer = model.tokenizer();
    let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let text = tokenizer.encode("Once upon a time, in a small harbour town, there lived a", false)?;
    let tokens: Vec<u32> = begin.into_iter().chain(text).collect();
    let hidden = model.forward(&mut [(&mut model.new_sequence(), &tokens)])?;
    Ok(FusedHead::new(model.head())?.logits(&hidden[hidden.len() - model.config().dim..])?)
}
