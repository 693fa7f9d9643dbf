//! candle's sampler and its product of quantised weights, measured on request; see `benches/README.md`.

use anyhow::Result;
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use serde::Deserialize;
use std::hint::black_box;
use std::io::{Write, stdin, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Request {
    Version,
    Draw(Draw),
    Product(Product),
    Generate {},
}

#[derive(Deserialize)]
struct Draw {
    input: PathBuf,
    temperature: f64,
    top_k: i64,
    top_p: f64,
    min_p: f64,
    logprobs: usize,
    budget_ms: u64,
}

#[derive(Deserialize)]
struct Product {
    weights: String,
    vocabulary: usize,
    dim: usize,
    rows: usize,
    budget_ms: u64,
}

fn main() -> Result<()> {
    let mut kept = None;
    for line in stdin().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Version => "{\"version\": \"candle-core and candle-transformers 0.11.1\"}".to_owned(),
            Request::Draw(draw) => told(draw.us()?, "it has no such filter, and no logprobs"),
            Request::Product(product) => told(product.us(&mut kept)?, "not a quantised type"),
            Request::Generate {} => told(None, "only draws and products"),
        };
        writeln!(stdout(), "{answer}")?;
    }
    Ok(())
}

fn told(us: Option<f64>, why_not: &str) -> String {
    match us {
        Some(us) => format!("{{\"us\": {us}}}"),
        None => format!("{{\"skip\": \"{why_not}\"}}"),
    }
}

/// The median of as many calls as fit into the budget, at least three; one before is not counted.
fn us<T>(budget_ms: u64, mut call: impl FnMut() -> T) -> f64 {
    black_box(call());
    let (budget, start) = (Duration::from_millis(budget_ms), Instant::now());
    let mut times = Vec::new();
    while times.len() < 3 || start.elapsed() < budget {
        let start = Instant::now();
        black_box(call());
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

impl Draw {
    fn us(&self) -> Result<Option<f64>> {
        let (temperature, p, k) = (self.temperature, self.top_p, self.top_k as usize);
        let sampling = match (temperature > 0.0, self.top_k > 0, self.top_p < 1.0) {
            (false, ..) => Sampling::ArgMax,
            (true, false, false) => Sampling::All { temperature },
            (true, true, false) => Sampling::TopK { k, temperature },
            (true, false, true) => Sampling::TopP { p, temperature },
            (true, true, true) => Sampling::TopKThenTopP { k, p, temperature },
        };
        if self.min_p > 0.0 || self.logprobs > 0 {
            return Ok(None);
        }
        let bytes = std::fs::read(&self.input)?;
        let row: Vec<f32> = bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let mut sampler = LogitsProcessor::from_sampling(1, sampling);
        // A tensor of its own for each draw: all begin with a slice of numbers.
        let mut draw = || sampler.sample(&Tensor::from_slice(&row, row.len(), &Device::Cpu)?);
        draw()?;
        Ok(Some(us(self.budget_ms, draw)))
    }
}

/// The weights of the last product, which is often asked for again.
type Kept = Option<((String, usize, usize), QMatMul)>;

impl Product {
    fn us(&self, kept: &mut Kept) -> Result<Option<f64>> {
        let dtype = match &*self.weights {
            "q8_0" => GgmlDType::Q8_0,
            "q6_k" => GgmlDType::Q6K,
            "q4_k" => GgmlDType::Q4K,
            _ => return Ok(None),
        };
        let key = (self.weights.clone(), self.vocabulary, self.dim);
        if kept.as_ref().is_none_or(|(name, _)| *name != key) {
            // In parts, as the numbers before they are quantised take four bytes each.
            let weights = Tensor::rand(-1f32, 1.0, (self.vocabulary, self.dim), &Device::Cpu)?;
            let weights = QTensor::quantize(&weights, dtype)?;
            *kept = Some((key, QMatMul::from_arc(Arc::new(weights))?));
        }
        let Some((_, weights)) = kept else { return Ok(None) };
        let hidden = Tensor::rand(-1f32, 1.0, (self.rows, self.dim), &Device::Cpu)?.to_dtype(DType::F32)?;
        Ok(Some(us(self.budget_ms, || weights.forward(&hidden))))
    }
}
