//! Weight matrices of every type: a logit is the documented sum, bit for bit, however rows are grouped; and near the true
//! product.

mod common;

use common::{Rng, on_threads};
use half::{bf16, f16};
use klero::{Block, BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Error, FusedHead, Weights};

const ROWS: usize = 7;
const COLS: usize = 768;

/// Bytes of blocks: random integers under scales of ordinary size, or of an extreme kind.
fn bytes<B: Block>(seed: u64, scale_at: &[usize], kind: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let blocks = ROWS * COLS / B::WEIGHTS;
    let mut all: Vec<u8> = (0..blocks * B::BYTES).map(|_| rng.bits() as u8).collect();
    for block in all.chunks_exact_mut(B::BYTES) {
        if kind == 1 {
            block.fill(0xFF);
        }
        for at in scale_at {
            let scale = match kind {
                2 => f16::from_bits(rng.bits() as u16 & 0x3FF), // subnormal
                3 => f16::from_f32(-0.01),
                4 => f16::ZERO,
                _ => f16::from_f32(0.002 + 0.05 * rng.unit() as f32),
            };
            block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    all
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// What a part of 32 weights is, read out of a block's bytes as the format describes it.
struct Part {
    d: f32,
    e: f32,
    /// The integer scale of each half, the integer minimum.
    scales: [i32; 2],
    minimum: i32,
    q: Vec<i32>,
}

fn q8_0(block: &[u8], _: usize) -> Part {
    let q = block[2..].iter().map(|byte| i32::from(*byte as i8)).collect();
    Part { d: half(block, 0), e: 0.0, scales: [1; 2], minimum: 0, q }
}

fn q4_0(block: &[u8], _: usize) -> Part {
    let q = (0..32).map(|i| i32::from(block[2 + i % 16] >> (i / 16 * 4) & 15) - 8).collect();
    Part { d: half(block, 0), e: 0.0, scales: [1; 2], minimum: 0, q }
}

/// The six-bit scale and minimum of part p, from twelve bytes.
fn six_bits(packed: &[u8], p: usize) -> (i32, i32) {
    let at = |i: usize| i32::from(packed[i]);
    match p < 4 {
        true => (at(p) % 64, at(p + 4) % 64),
        false => (at(p + 4) % 16 + at(p - 4) / 64 * 16, at(p + 4) / 16 + at(p) / 64 * 16),
    }
}

fn q4_k(block: &[u8], p: usize) -> Part {
    let (scale, minimum) = six_bits(&block[4..16], p);
    let q = (0..32).map(|i| i32::from(block[16 + p / 2 * 32 + i]) >> (p % 2 * 4) & 15).collect();
    Part { d: half(block, 0), e: half(block, 2), scales: [scale; 2], minimum, q }
}

fn q5_k(block: &[u8], p: usize) -> Part {
    let (scale, minimum) = six_bits(&block[4..16], p);
    let high = |i: usize| i32::from(block[16 + i]) >> p & 1;
    let q = (0..32).map(|i| (i32::from(block[48 + p / 2 * 32 + i]) >> (p % 2 * 4) & 15) + 16 * high(i)).collect();
    Part { d: half(block, 0), e: half(block, 2), scales: [scale; 2], minimum, q }
}

fn q6_k(block: &[u8], p: usize) -> Part {
    let (four, k) = (p / 4, p % 4);
    let low = |i: usize| i32::from(block[four * 64 + k % 2 * 32 + i]) >> (k / 2 * 4) & 15;
    let high = |i: usize| i32::from(block[128 + four * 32 + i]) >> (k * 2) & 3;
    let scale = |j: usize| i32::from(block[192 + 2 * p + j] as i8);
    let q = (0..32).map(|i| low(i) + 16 * high(i) - 32).collect();
    Part { d: half(block, 208), e: 0.0, scales: [scale(0), scale(1)], minimum: 0, q }
}

/// The documented sum, in the shortest way.
fn logit<B: Block>(row: &[u8], hidden: &[f32], subtracts: bool, part: fn(&[u8], usize) -> Part) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (b, h) in hidden.chunks(32).enumerate() {
        let most = h.iter().fold(0.0f32, |most, h| most.max(h.abs()));
        let (a, inverse) = (most / 127.0, if most > 0.0 { 127.0 / most } else { 0.0 });
        let v: Vec<i32> = h.iter().map(|h| (h * inverse).round_ties_even() as i32).collect();
        let block = b * 32 / B::WEIGHTS;
        let part = part(&row[block * B::BYTES..][..B::BYTES], b * 32 % B::WEIGHTS / 32);
        let dot = |range: std::ops::Range<usize>| range.map(|i| part.q[i] * v[i]).sum::<i32>();
        let i = part.scales[0] * dot(0..16) + part.scales[1] * dot(16..32);
        let n = part.minimum * v.iter().sum::<i32>();
        assert!(i.abs() < 1 << 24 && n.abs() < 1 << 24, "an integer that f32 does not hold");
        lanes[b % 8] = (part.d * a).mul_add(i as f32, lanes[b % 8]);
        if subtracts {
            lanes[b % 8] = (-(part.e * a)).mul_add(n as f32, lanes[b % 8]);
        }
    }
    let four: Vec<f32> = (0..4).map(|l| lanes[l] + lanes[l + 4]).collect();
    (four[0] + four[2]) + (four[1] + four[3])
}

fn hidden(rows: usize, cols: usize) -> Vec<f32> {
    let mut rng = Rng::new(3);
    // A part of zeros and parts of very different size are among them.
    (0..rows * cols).map(|i| rng.normal() as f32 * [1.0, 0.0, 30.0, 1e-4][i / 32 % 4]).collect()
}

fn check<B: Block>(name: &str, scale_at: &[usize], subtracts: bool, part: fn(&[u8], usize) -> Part) {
    for kind in 0..5 {
        let bytes = bytes::<B>(kind as u64, scale_at, kind);
        let weights = Weights::quantized(ROWS, COLS, B::from_bytes(&bytes).unwrap()).unwrap();
        let (x, row_bytes) = (hidden(3, COLS), COLS / B::WEIGHTS * B::BYTES);
        let logits = FusedHead::new(&weights).unwrap().logits(&x).unwrap();
        let mut dequantised = vec![0.0; COLS];
        for (h, logits) in x.chunks(COLS).zip(logits.chunks(ROWS)) {
            for (id, (row, found)) in bytes.chunks(row_bytes).zip(logits).enumerate() {
                let expected = logit::<B>(row, h, subtracts, part);
                assert_eq!(found.to_bits(), expected.to_bits(), "{name} kind {kind} id {id}: {found} {expected}");
                weights.row(id, &mut dequantised).unwrap();
                let terms = || dequantised.iter().zip(h).map(|(w, h)| f64::from(*w) * f64::from(*h));
                // Each hidden number is off by at most half of 1/127 of the greatest of its part.
                let step: f64 = dequantised
                    .chunks(32)
                    .zip(h.chunks(32))
                    .map(|(w, h)| {
                        let most = h.iter().fold(0.0f32, |most, h| most.max(h.abs()));
                        w.iter().map(|w| f64::from(w.abs() * most)).sum::<f64>() / 254.0
                    })
                    .sum();
                // The minimum is subtracted by itself, so rounding is relative to both parts.
                let size = terms().map(f64::abs).sum::<f64>() + step * 254.0;
                let distance = (f64::from(*found) - terms().sum::<f64>()).abs();
                assert!(distance <= 1.001 * step + 1e-5 * size, "{name} kind {kind} id {id}: off by {distance}");
            }
        }
    }
}

#[test]
fn quantised_rows_give_the_documented_sums() {
    check::<BlockQ8_0>("Q8_0", &[0], false, q8_0);
    check::<BlockQ4_0>("Q4_0", &[0], false, q4_0);
    check::<BlockQ4K>("Q4_K", &[0, 2], true, q4_k);
    check::<BlockQ5K>("Q5_K", &[0, 2], true, q5_k);
    check::<BlockQ6K>("Q6_K", &[208], false, q6_k);
}

/// w = d·s·q − e·m, each operation in f32 in the order of the formats' readers.
#[test]
fn rows_are_dequantised_as_the_formats_say() {
    fn check<B: Block>(scale_at: &[usize], weight: fn(&Part, usize) -> f32, part: fn(&[u8], usize) -> Part) {
        for kind in 0..5 {
            let bytes = bytes::<B>(kind as u64 + 9, scale_at, kind);
            let weights = Weights::quantized(ROWS, COLS, B::from_bytes(&bytes).unwrap()).unwrap();
            let mut row = vec![0.0; COLS];
            for (id, row_bytes) in bytes.chunks(COLS / B::WEIGHTS * B::BYTES).enumerate() {
                weights.row(id, &mut row).unwrap();
                for (i, found) in row.iter().enumerate() {
                    let block = &row_bytes[i / B::WEIGHTS * B::BYTES..][..B::BYTES];
                    let expected = weight(&part(block, i % B::WEIGHTS / 32), i % 32);
                    assert_eq!(found.to_bits(), expected.to_bits(), "kind {kind} id {id} weight {i}");
                }
            }
        }
    }
    let plain = |part: &Part, i: usize| part.d * part.q[i] as f32;
    let affine =
        |part: &Part, i: usize| part.d * part.scales[0] as f32 * part.q[i] as f32 - part.e * part.minimum as f32;
    check::<BlockQ8_0>(&[0], plain, q8_0);
    check::<BlockQ4_0>(&[0], plain, q4_0);
    check::<BlockQ4K>(&[0, 2], affine, q4_k);
    check::<BlockQ5K>(&[0, 2], affine, q5_k);
    check::<BlockQ6K>(&[208], |part, i| part.d * part.scales[i / 16] as f32 * part.q[i] as f32, q6_k);
}

/// Every type, in a shape that leaves tails.
fn every_type() -> Vec<(&'static str, Weights<'static>)> {
    let mut rng = Rng::new(12);
    let (rows, cols) = (201, 512);
    let data: Vec<f32> = (0..rows * cols).map(|_| rng.normal() as f32).collect();
    fn blocks<B: Block>(rows: usize, cols: usize, scale_at: &[usize]) -> Weights<'static> {
        let mut bytes = bytes::<B>(5, scale_at, 0);
        let wanted = rows * cols / B::WEIGHTS * B::BYTES;
        while bytes.len() < wanted {
            bytes.extend_from_within(..);
        }
        Weights::quantized(rows, cols, B::from_bytes(&bytes[..wanted]).unwrap()).unwrap()
    }
    vec![
        ("f32", Weights::f32(rows, cols, data.clone()).unwrap()),
        ("bf16", Weights::bf16(rows, cols, data.iter().map(|w| bf16::from_f32(*w)).collect::<Vec<_>>()).unwrap()),
        ("f16", Weights::f16(rows, cols, data.iter().map(|w| f16::from_f32(*w)).collect::<Vec<_>>()).unwrap()),
        ("Q8_0", blocks::<BlockQ8_0>(rows, cols, &[0])),
        ("Q4_0", blocks::<BlockQ4_0>(rows, cols, &[0])),
        ("Q4_K", blocks::<BlockQ4K>(rows, cols, &[0, 2])),
        ("Q5_K", blocks::<BlockQ5K>(rows, cols, &[0, 2])),
        ("Q6_K", blocks::<BlockQ6K>(rows, cols, &[208])),
    ]
}

#[test]
fn logits_do_not_depend_on_batch_or_threads_for_any_type() {
    for (name, weights) in every_type() {
        let (head, x) = (FusedHead::new(&weights).unwrap(), hidden(5, 512));
        let whole = on_threads(3, || head.logits(&x).unwrap());
        for (i, h) in x.chunks(512).enumerate() {
            let alone = on_threads(1, || head.logits(h).unwrap());
            let same = alone.iter().zip(&whole[i * 201..]).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name} row {i}");
        }
    }
}

#[test]
fn a_hidden_state_that_is_not_finite_shows_in_every_logit_of_any_type() {
    for (name, weights) in every_type() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = hidden(1, 512);
            x[300] = bad;
            let logits = FusedHead::new(&weights).unwrap().logits(&x).unwrap();
            assert!(logits.iter().all(|logit| !logit.is_finite()), "{name}");
        }
    }
}

/// Half-precision rows are the f32 rows that they widen to.
#[test]
fn half_precision_weights_are_widened_exactly() {
    let mut rng = Rng::new(2);
    let (rows, cols) = (66, 77);
    let data: Vec<f32> = (0..rows * cols).map(|_| rng.normal() as f32).collect();
    let x = hidden(2, cols);
    let logits = |weights: &Weights| FusedHead::new(weights).unwrap().logits(&x).unwrap();
    let narrow: Vec<f16> = data.iter().map(|w| f16::from_f32(*w)).collect();
    let wide: Vec<f32> = narrow.iter().map(|w| w.to_f32()).collect();
    assert_eq!(logits(&Weights::f16(rows, cols, narrow).unwrap()), logits(&Weights::f32(rows, cols, wide).unwrap()));
    let narrow: Vec<bf16> = data.iter().map(|w| bf16::from_f32(*w)).collect();
    let wide: Vec<f32> = narrow.iter().map(|w| w.to_f32()).collect();
    assert_eq!(logits(&Weights::bf16(rows, cols, narrow).unwrap()), logits(&Weights::f32(rows, cols, wide).unwrap()));
}

#[test]
fn blocks_that_do_not_fit_are_refused_by_name() {
    let shape = |error: Error| match error {
        Error::Shape(text) => text,
        other => panic!("{other:?}"),
    };
    let refused = shape(BlockQ4K::from_bytes(&[0; 143]).unwrap_err());
    assert!(refused.contains("143") && refused.contains("144"), "{refused}");
    let one = BlockQ6K::from_bytes(&[0; 210]).unwrap();
    let refused = shape(Weights::quantized(1, 128, one.clone()).unwrap_err());
    assert!(refused.contains("128") && refused.contains("256"), "{refused}");
    let refused = shape(Weights::quantized(2, 256, one).unwrap_err());
    assert!(refused.contains("[2, 256]") && refused.contains("found 1"), "{refused}");
    let refused = shape(Weights::f16(2, 3, vec![f16::ONE; 5]).unwrap_err());
    assert!(refused.contains("[2, 3]") && refused.contains("found 5"), "{refused}");
}
