//! llm-samplers' chains, measured on request; see `benches/README.md`.

use anyhow::{Result, anyhow};
use llm_samplers::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Deserialize;
use std::hint::black_box;
use std::io::{Write, stdin, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Request {
    Version,
    Draw(Draw),
    Product {},
    Generate {},
}

#[derive(Deserialize)]
struct Draw {
    input: PathBuf,
    temperature: f32,
    top_k: i64,
    top_p: f32,
    min_p: f32,
    logprobs: usize,
    budget_ms: u64,
}

fn main() -> Result<()> {
    for line in stdin().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Version => "{\"version\": \"llm-samplers 0.0.7\"}".to_owned(),
            Request::Draw(draw) if draw.logprobs == 0 => format!("{{\"us\": {}}}", draw.us()?),
            _ => "{\"skip\": \"only draws, without logprobs\"}".to_owned(),
        };
        writeln!(stdout(), "{answer}")?;
    }
    Ok(())
}

impl Draw {
    fn us(&self) -> Result<f64> {
        let bytes = std::fs::read(&self.input)?;
        let row: Vec<f32> = bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let mut resources = SimpleSamplerResources::new(Some(Box::new(StdRng::seed_from_u64(1))), None);
        let mut draw = || -> Result<u32> {
            let mut chain = SamplerChain::new();
            if self.temperature > 0.0 {
                if self.top_k > 0 {
                    chain += SampleTopK::new(self.top_k as usize, 1);
                }
                if self.top_p < 1.0 {
                    chain += SampleTopP::new(self.top_p, 1);
                }
                if self.min_p > 0.0 {
                    chain += SampleMinP::new(self.min_p, 1);
                }
                chain += SampleTemperature::new(self.temperature);
                chain += SampleRandDistrib::new();
            } else {
                chain += SampleGreedy::new();
            }
            let mut logits = Logits::try_from_iter(row.iter().copied())?;
            chain.sample_token(&mut resources, &mut logits)?.ok_or_else(|| anyhow!("no token"))
        };
        draw()?;
        let (budget, start) = (Duration::from_millis(self.budget_ms), Instant::now());
        let mut times = Vec::new();
        while times.len() < 3 || start.elapsed() < budget {
            let start = Instant::now();
            black_box(draw()?);
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}
