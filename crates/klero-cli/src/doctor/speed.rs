//! Two figures for orientation: how long a draw takes, and how fast memory is read.

use super::page::Section;
use super::self_test;
use crate::words::count;
use klero::{Logits, Row, SamplingParams};
use rayon::prelude::*;
use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Logits of the row that is drawn from; as many as Qwen's models have.
const VOCABULARY: usize = 151_936;

/// Bytes that are read: more than caches hold.
const BYTES: u64 = 256 << 20;

/// What was measured, on the threads that draw.
#[derive(Serialize)]
pub struct Speed {
    vocabulary: usize,
    /// The median of several draws of a token without filters from ready f32 logits, in microseconds.
    draw_microseconds: f64,
    /// The best of several readings, in 10^9 bytes a second.
    read_gigabytes_per_second: f64,
}

impl Speed {
    /// Measures, with a part of `free` bytes of memory.
    pub fn measure(free: u64) -> Self {
        Self {
            vocabulary: VOCABULARY,
            draw_microseconds: draw().as_secs_f64() * 1e6,
            read_gigabytes_per_second: read(BYTES.min(free / 4)),
        }
    }

    pub fn section(&self) -> Section {
        Section::new("speed")
            .with(format!("{} logits", count(self.vocabulary)), format!("{:.0} µs a draw", self.draw_microseconds))
            .with("reading memory", format!("{:.1} GB/s", self.read_gigabytes_per_second))
    }
}

fn draw() -> Duration {
    let logits = self_test::logits(VOCABULARY);
    let batch = Logits::new(&logits, 1, VOCABULARY).expect("the logits are so many").batch();
    let sampling = SamplingParams { seed: Some(42), ..Default::default() }.check().expect("valid parameters");
    let mut times: Vec<Duration> = (0..101)
        .map(|position| {
            let start = Instant::now();
            black_box(batch.draw(&[Row::new(sampling, position)])).expect("one row for one");
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn read(bytes: u64) -> f64 {
    const PIECE: usize = 1 << 16;
    let words: Vec<u64> = (0..bytes / 8).collect();
    let seconds = (0..5).map(|_| {
        let start = Instant::now();
        let sum = |piece: &[u64]| piece.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        black_box(black_box(&words).par_chunks(PIECE).map(sum).reduce(|| 0, u64::wrapping_add));
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e9
}
