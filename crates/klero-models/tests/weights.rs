//! Tensor types: what a file stores does not change what the model computes, beyond its rounding.

mod support;

use half::{bf16, f16};
use klero::BlockQ8_0;
use klero_models::Model;
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
