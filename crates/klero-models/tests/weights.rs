//! Tensor types: what a file stores does not change what the model computes, beyond its rounding.

mod support;

use candle_core::quantized::{GgmlDType, QTensor, ggml_file::qtensor_from_ggml};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use klero::{Block, BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Weights};
use klero_models::Model;
use klero_oracle::hash::splitmix64;
use support::tiny::{DIM, TempFile, Tiny};

const MATRICES: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

fn hidden(name: &str, tiny: &Tiny) -> Vec<f32> {
    let model = Model::load(&TempFile::new(name, &tiny.bytes()).0).unwrap();
    model.forward(&mut [(&mut model.new_sequence(), &[7, 100, 3, 250])]).unwrap()
}

/// The tiny model with its first layer's matrices stored as another type.
fn stored(kind: u32, encode: impl Fn(&[f32]) -> Vec<u8>) -> Tiny {
    let mut tiny = Tiny::llama();
    for part in MATRICES {
        let tensor = tiny.tensor(&format!("blk.0.{part}.weight"));
        (tensor.kind, tensor.data) = (kind, encode(&tensor.values()));
    }
    tiny
}

fn q8_0(values: &[f32]) -> Vec<u8> {
    let bytes = |block: &BlockQ8_0| [&block.d.to_le_bytes()[..], &block.qs.map(|q| q as u8)].concat();
    BlockQ8_0::quantize(values).unwrap().iter().flat_map(bytes).collect()
}

/// Blocks of 32: scale, least value, and 16 bytes of two 4-bit steps, the low halves first.
fn q4_1(values: &[f32]) -> Vec<u8> {
    let block = |chunk: &[f32]| {
        let (step, least) = levels(chunk);
        let q = |i: usize| ((chunk[i] - least.to_f32()) / step.to_f32()).round().clamp(0.0, 15.0) as u8;
        let halves = (0..16).map(|i| q(i) | q(i + 16) << 4);
        [step.to_le_bytes(), least.to_le_bytes()].concat().into_iter().chain(halves).collect::<Vec<u8>>()
    };
    values.chunks_exact(32).flat_map(block).collect()
}

/// The f32 values that `q4_1` stores.
fn q4_1_rounded(values: &[f32]) -> Vec<u8> {
    let block = |chunk: &[f32]| {
        let (step, least) = levels(chunk);
        let (step, least) = (step.to_f32(), least.to_f32());
        let round = |v: &f32| ((v - least) / step).round().clamp(0.0, 15.0) * step + least;
        chunk.iter().flat_map(|v| round(v).to_le_bytes()).collect::<Vec<u8>>()
    };
    values.chunks_exact(32).flat_map(block).collect()
}

fn levels(chunk: &[f32]) -> (f16, f16) {
    let least = chunk.iter().copied().fold(f32::INFINITY, f32::min);
    let most = chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (f16::from_f32((most - least) / 15.0), f16::from_f32(least))
}

/// The bytes of a type that candle quantises to.
fn quantised(values: &[f32], dtype: GgmlDType) -> Vec<u8> {
    let tensor = Tensor::from_slice(values, values.len(), &Device::Cpu).unwrap();
    QTensor::quantize(&tensor, dtype).unwrap().data().unwrap().into_owned()
}

/// The f32 values that those bytes store.
fn rounded(values: &[f32], dtype: GgmlDType) -> Vec<u8> {
    let all = dequantised(&quantised(values, dtype), dtype, values.len());
    all.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// What candle makes of the bytes.
fn dequantised(bytes: &[u8], dtype: GgmlDType, n: usize) -> Vec<f32> {
    let tensor = qtensor_from_ggml(dtype, bytes, vec![n], &Device::Cpu).unwrap();
    tensor.dequantize(&Device::Cpu).unwrap().to_vec1().unwrap()
}

/// Two independent readers of the same bytes agree to the last bit.
#[test]
fn blocks_hold_the_weights_that_candle_reads() {
    fn check<B: Block>(dtype: GgmlDType, scale_at: &[usize]) {
        let (blocks, mut state) = (400, 1);
        let mut next = || {
            state = splitmix64(state);
            state
        };
        let mut bytes: Vec<u8> = (0..blocks * B::BYTES).map(|_| next() as u8).collect();
        for block in bytes.chunks_exact_mut(B::BYTES) {
            for at in scale_at {
                let scale = f16::from_f32((next() % 2001) as f32 / 1e4 - 0.1);
                block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
        }
        let n = blocks * B::WEIGHTS;
        let weights = Weights::quantized(1, n, B::from_bytes(&bytes).unwrap()).unwrap();
        let mut row = vec![0.0; n];
        weights.row(0, &mut row).unwrap();
        let same = row.iter().zip(dequantised(&bytes, dtype, n)).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{dtype:?}");
    }
    check::<BlockQ8_0>(GgmlDType::Q8_0, &[0]);
    check::<BlockQ4_0>(GgmlDType::Q4_0, &[0]);
    check::<BlockQ4K>(GgmlDType::Q4K, &[0, 2]);
    check::<BlockQ5K>(GgmlDType::Q5K, &[0, 2]);
    check::<BlockQ6K>(GgmlDType::Q6K, &[208]);
}

#[test]
fn every_type_gives_nearly_the_same_hidden_state() {
    let whole = Tiny::llama();
    let f16s = |values: &[f32]| values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    let bf16s = |values: &[f32]| values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
    for (name, tiny, truth, tolerance) in [
        ("f16", stored(1, f16s), &whole, 0.002),
        ("bf16", stored(30, bf16s), &whole, 0.02),
        ("q8_0", stored(8, q8_0), &whole, 0.2),
        ("q4_1", stored(3, q4_1), &stored(0, q4_1_rounded), 0.2),
        ("q4_0", stored(2, |v| quantised(v, GgmlDType::Q4_0)), &stored(0, |v| rounded(v, GgmlDType::Q4_0)), 0.2),
    ] {
        let (found, truth) = (hidden(name, &tiny), hidden("truth", truth));
        let worst = found.iter().zip(&truth).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst > 0.0 && worst < tolerance, "{name} is off by {worst}");
    }
}

#[test]
fn matrices_of_different_types_are_joined() {
    let mut tiny = Tiny::llama();
    let tensor = tiny.tensor("blk.0.attn_v.weight");
    (tensor.kind, tensor.data) = (8, q8_0(&tensor.values()));
    let (found, truth) = (hidden("mixed", &tiny), hidden("pure", &Tiny::llama()));
    assert!(found.iter().zip(&truth).all(|(a, b)| (a - b).abs() < 0.1));
}

#[test]
fn an_untied_head_is_used() {
    let mut tiny = Tiny::llama();
    tiny.f32("output.weight", &[258, DIM]);
    let model = Model::load(&TempFile::new("untied", &tiny.bytes()).0).unwrap();
    let (mut row, last) = ([0.0; DIM], tiny.tensor("output.weight").values());
    model.head().row(257, &mut row).unwrap();
    assert_eq!(row[..], last[257 * DIM..]);
}

#[test]
fn rope_factors_stretch_the_wavelengths() {
    let mut tiny = Tiny::llama();
    let plain = hidden("plain", &tiny);
    tiny.f32("rope_freqs.weight", &[DIM / 4]);
    tiny.tensor("rope_freqs.weight").data = 1f32.to_le_bytes().repeat(DIM / 4);
    assert_eq!(hidden("ones", &tiny), plain);
    tiny.tensor("rope_freqs.weight").data = 8f32.to_le_bytes().repeat(DIM / 4);
    let stretched = hidden("eights", &tiny);
    assert_eq!(stretched[..DIM], plain[..DIM], "position 0 is not turned");
    assert_ne!(stretched[DIM..], plain[DIM..]);
}
