//! Quantised blocks: read as candle reads them, and kept in a model as they are.

mod support;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, ggml_file::qtensor_from_ggml};
use half::f16;
use klero::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Error, Weights};
use klero_models::Model;
use support::Random;
use support::tiny::{TempFile, Tiny};

/// A type of block: its name and number in GGUF, its size, and where its f16 scales stand, with their usual values.
struct Kind {
    name: &'static str,
    number: u32,
    dtype: GgmlDType,
    elements: usize,
    bytes: usize,
    scales: &'static [(usize, f32)],
    weights: fn(usize, usize, &[u8]) -> Result<Weights<'static>, Error>,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "q8_0",
        number: 8,
        dtype: GgmlDType::Q8_0,
        elements: 32,
        bytes: 34,
        scales: &[(0, 1.0 / 64.0)],
        weights: |rows, cols, bytes| Weights::q8_0(rows, cols, BlockQ8_0::from_bytes(bytes)?),
    },
    Kind {
        name: "q4_0",
        number: 2,
        dtype: GgmlDType::Q4_0,
        elements: 32,
        bytes: 18,
        scales: &[(0, 1.0 / 4.0)],
        weights: |rows, cols, bytes| Weights::q4_0(rows, cols, BlockQ4_0::from_bytes(bytes)?),
    },
    Kind {
        name: "q4_k",
        number: 12,
        dtype: GgmlDType::Q4K,
        elements: 256,
        bytes: 144,
        scales: &[(0, 1.0 / 256.0), (2, 1.0 / 32.0)],
        weights: |rows, cols, bytes| Weights::q4_k(rows, cols, BlockQ4K::from_bytes(bytes)?),
    },
    Kind {
        name: "q5_k",
        number: 13,
        dtype: GgmlDType::Q5K,
        elements: 256,
        bytes: 176,
        scales: &[(0, 1.0 / 512.0), (2, 1.0 / 32.0)],
        weights: |rows, cols, bytes| Weights::q5_k(rows, cols, BlockQ5K::from_bytes(bytes)?),
    },
    Kind {
        name: "q6_k",
        number: 14,
        dtype: GgmlDType::Q6K,
        elements: 256,
        bytes: 210,
        scales: &[(208, 1.0 / 1024.0)],
        weights: |rows, cols, bytes| Weights::q6_k(rows, cols, BlockQ6K::from_bytes(bytes)?),
    },
];

impl Kind {
    /// Blocks of random bits, but for scales that make weights of about `size`.
    fn random(&self, random: &mut Random, elements: usize, size: f32) -> Vec<u8> {
        let count = elements / self.elements * self.bytes;
        let mut bytes: Vec<u8> = (0..count).map(|_| random.below(256) as u8).collect();
        for block in bytes.chunks_exact_mut(self.bytes) {
            for (at, usual) in self.scales {
                let factor = (random.below(4000) as f32 - 2000.0) / 1000.0;
                block[*at..at + 2].copy_from_slice(&f16::from_f32(factor * usual * size).to_le_bytes());
            }
        }
        bytes
    }

    /// What candle reads.
    fn values(&self, bytes: &[u8]) -> Vec<f32> {
        let elements = bytes.len() / self.bytes * self.elements;
        let tensor = qtensor_from_ggml(self.dtype, bytes, vec![elements], &Device::Cpu).unwrap();
        tensor.dequantize(&Device::Cpu).unwrap().to_vec1().unwrap()
    }
}

#[test]
fn rows_are_what_candle_reads() {
    let mut random = Random(1);
    for kind in &KINDS {
        let (rows, cols) = (300, 512);
        let mut bytes = kind.random(&mut random, rows * cols, 0.5);
        for (i, block) in bytes.chunks_exact_mut(kind.bytes).enumerate().take(200) {
            // Scales of every bit pattern that is finite.
            for (at, _) in kind.scales {
                let half = f16::from_bits(random.below(1 << 16) as u16);
                let half = if half.is_finite() { half } else { f16::from_bits(i as u16) };
                block[*at..at + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
        let weights = (kind.weights)(rows, cols, &bytes).unwrap();
        let mut found = vec![0.0; cols];
        for (row, truth) in kind.values(&bytes).chunks(cols).enumerate() {
            weights.row(row, &mut found).unwrap();
            for (i, (found, truth)) in found.iter().zip(truth).enumerate() {
                assert_eq!(found.to_bits(), truth.to_bits(), "{} row {row} element {i}: {found} {truth}", kind.name);
            }
        }
    }
}

const MATRICES: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

/// Hidden states of a model whose first layer has blocks of the given kinds, and of one with their values in f32.
fn hidden(name: &str, kind: impl Fn(&str) -> &'static Kind) -> [Vec<f32>; 2] {
    let (mut blocks, mut floats) = (Tiny::sized(256, 512), Tiny::sized(256, 512));
    let mut random = Random(2);
    for part in MATRICES {
        let (name, kind) = (format!("blk.0.{part}.weight"), kind(part));
        let tensor = blocks.tensor(&name);
        tensor.kind = kind.number;
        tensor.data = kind.random(&mut random, tensor.data.len() / 4, 0.1);
        floats.tensor(&name).data = kind.values(&tensor.data).iter().flat_map(|w| w.to_le_bytes()).collect();
    }
    [blocks, floats].map(|tiny| {
        let model = Model::load(&TempFile::new(name, &tiny.bytes()).0).unwrap();
        model.forward(&mut [(&mut model.new_sequence(), &[7, 100, 3, 250])]).unwrap()
    })
}

/// The root mean square of a difference, relative to the first.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let squares: f32 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    (squares / a.iter().map(|a| a.powi(2)).sum::<f32>()).sqrt()
}

#[test]
fn a_model_of_blocks_computes_what_its_values_compute() {
    let kind = |name: &str| KINDS.iter().find(|kind| kind.name == name).unwrap();
    for name in ["q8_0", "q4_0", "q4_k", "q5_k", "q6_k"] {
        let [blocks, floats] = hidden(name, |_| kind(name));
        let distance = distance(&floats, &blocks);
        assert!(distance > 0.0 && distance < 0.05, "{name} is off by {distance}");
    }
    // Queries, keys and values are one matrix, which becomes Q8_0 where their types differ.
    let mixed = |part: &str| kind(if part == "attn_v" || part == "ffn_down" { "q6_k" } else { "q4_k" });
    let [blocks, floats] = hidden("mixed", mixed);
    let distance = distance(&floats, &blocks);
    assert!(distance > 0.0 && distance < 0.05, "mixed types are off by {distance}");
}

#[test]
fn a_head_keeps_its_type() {
    let mut random = Random(3);
    for kind in &KINDS {
        let mut tiny = Tiny::sized(256, 512);
        tiny.f32("output.weight", &[258, 256]);
        let tensor = tiny.tensor("output.weight");
        (tensor.kind, tensor.data) = (kind.number, kind.random(&mut random, 258 * 256, 0.1));
        let own = (kind.weights)(258, 256, &tensor.data).unwrap();
        let model = Model::load(&TempFile::new(&format!("head-{}", kind.name), &tiny.bytes()).0).unwrap();
        let state: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).sin()).collect();
        let [mut found, mut truth] = [vec![0.0; 258], vec![0.0; 258]];
        model.head().matmul(&state, &mut found).unwrap();
        own.matmul(&state, &mut truth).unwrap();
        assert!(found == truth, "{}", kind.name);
    }
}
