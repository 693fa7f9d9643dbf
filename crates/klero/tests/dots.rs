//! The dot product of each weight type against a twin that does, one number after the other, what docs/law.md writes
//! down: bit for bit, for ordinary blocks and for the worst, however the rows are grouped.

mod common;

use common::types::Type;
use common::{Rng, on_threads};
use half::{bf16, f16};

/// Thirty-two weights in integers: weight i is d · s[i / 16] · q[i] − dmin · m.
struct Part {
    d: f32,
    s: [i64; 2],
    q: Vec<i64>,
    dmin: f32,
    m: i64,
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// `count` bits of a byte from bit `from`.
fn cut(byte: u8, from: usize, count: usize) -> i64 {
    (i64::from(byte) >> from) % (1 << count)
}

fn parts(kind: Type, block: &[u8]) -> Vec<Part> {
    let plain = |q: Vec<i64>| vec![Part { d: half(block, 0), s: [1, 1], q, dmin: 0.0, m: 0 }];
    match kind {
        Type::Q8_0 => plain((0..32).map(|i| i64::from(block[2 + i] as i8)).collect()),
        Type::Q4_0 => plain((0..32).map(|i| cut(block[2 + i % 16], i / 16 * 4, 4) - 8).collect()),
        Type::Q4K => (0..8).map(|p| with_minimum(block, p, |i| nibble(&block[16..], p, i))).collect(),
        Type::Q5K => {
            let five = |p, i: usize| nibble(&block[48..], p, i) + 16 * cut(block[16 + i], p, 1);
            (0..8).map(|p| with_minimum(block, p, |i| five(p, i))).collect()
        }
        Type::Q6K => (0..8).map(|p| six_bits(block, p)).collect(),
        _ => panic!("not a block"),
    }
}

/// Element i of part p of Q4_K: 64 elements in 32 bytes, the first half of them low.
fn nibble(qs: &[u8], p: usize, i: usize) -> i64 {
    cut(qs[p / 2 * 32 + i], p % 2 * 4, 4)
}

fn with_minimum(block: &[u8], p: usize, q: impl Fn(usize) -> i64) -> Part {
    let packed = &block[4..16];
    let (s, m) = if p < 4 {
        (cut(packed[p], 0, 6), cut(packed[p + 4], 0, 6))
    } else {
        let (s, m) = (cut(packed[p + 4], 0, 4), cut(packed[p + 4], 4, 4));
        (s + 16 * cut(packed[p - 4], 6, 2), m + 16 * cut(packed[p], 6, 2))
    };
    Part { d: half(block, 0), s: [s; 2], q: (0..32).map(q).collect(), dmin: half(block, 2), m }
}

/// Part p of Q6_K.
fn six_bits(block: &[u8], p: usize) -> Part {
    let (h, r) = (p / 4, p % 4);
    let low = |i: usize| cut(block[64 * h + 32 * (r % 2) + i], r / 2 * 4, 4);
    let high = |i: usize| cut(block[128 + 32 * h + i], 2 * r, 2);
    let s = [0, 1].map(|side| i64::from(block[192 + 2 * p + side] as i8));
    Part { d: half(block, 208), s, q: (0..32).map(|i| low(i) + 16 * high(i) - 32).collect(), dmin: 0.0, m: 0 }
}

/// A hidden state's scale and integers, part by part.
fn quantized(hidden: &[f32]) -> Vec<(f32, Vec<i64>)> {
    let part = |part: &[f32]| {
        if part.iter().any(|h| !h.is_finite()) {
            return (f32::NAN, vec![0; 32]);
        }
        let most = part.iter().fold(0f32, |most, h| if h.abs() > most { h.abs() } else { most });
        let steps = if (127.0 / most).is_finite() { 127.0 / most } else { 0.0 };
        (most / 127.0, part.iter().map(|h| (h * steps).round_ties_even() as i64).collect())
    };
    hidden.chunks(32).map(part).collect()
}

fn quantized_logit(kind: Type, row: &[u8], hidden: &[f32]) -> f32 {
    let parts = row.chunks(kind.block().1).flat_map(|block| parts(kind, block));
    let mut lanes = [0f32; 8];
    for (b, (part, (a, values))) in parts.zip(quantized(hidden)).enumerate() {
        let dot: i64 = (0..32).map(|i| part.s[i / 16] * part.q[i] * values[i]).sum();
        let least = part.m * values.iter().sum::<i64>();
        assert!(dot.abs() < 1 << 24 && least.abs() < 1 << 24, "integers are exact in f32");
        let lane = &mut lanes[b % 8];
        *lane = f32::mul_add(part.d * a, dot as f32, *lane);
        if matches!(kind, Type::Q4K | Type::Q5K) {
            *lane = f32::mul_add(-(part.dmin * a), least as f32, *lane);
        }
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

fn float_logit(kind: Type, row: &[u8], hidden: &[f32]) -> f32 {
    let weight = |bytes: &[u8]| match kind {
        Type::F32 => f32::from_le_bytes(bytes.try_into().unwrap()),
        Type::Bf16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
        _ => f16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
    };
    let mut lanes = [0f32; 16];
    for (i, (bytes, h)) in row.chunks(kind.block().1).zip(hidden).enumerate() {
        lanes[i % 16] = h.mul_add(weight(bytes), lanes[i % 16]);
    }
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
    }
    lanes[0]
}

/// Compares all logits of a matrix with the twin's.
fn check(kind: Type, cols: usize, bytes: &[u8], hidden: &[f32]) {
    let width = cols / kind.block().0 * kind.block().1;
    let rows = bytes.len() / width;
    let weights = kind.weights(rows, cols, bytes).unwrap();
    for threads in [1, 3] {
        let mut logits = vec![0.0; hidden.len() / cols * rows];
        on_threads(threads, || weights.matmul(hidden, &mut logits)).unwrap();
        for (n, (hidden, logits)) in hidden.chunks(cols).zip(logits.chunks(rows)).enumerate() {
            for (id, (row, found)) in bytes.chunks(width).zip(logits).enumerate() {
                let truth = match kind.quantized() {
                    true => quantized_logit(kind, row, hidden),
                    false => float_logit(kind, row, hidden),
                };
                let same = found.to_bits() == truth.to_bits() || (found.is_nan() && truth.is_nan());
                assert!(same, "{kind:?} [{rows}, {cols}] id {id} of hidden state {n}: {found} for {truth}");
            }
        }
    }
}

/// Hidden states of ordinary and of odd sizes; parts that are zero, tiny, huge, or of one size.
fn hidden(rng: &mut Rng, numbers: usize) -> Vec<f32> {
    let mut size = 1.0;
    (0..numbers)
        .map(|i| {
            if i % 32 == 0 {
                size = [1.0, 1.0, 1.0, 0.0, 1e-3, 1e-30, 3e-37, 1e-41, 1e30][rng.below(9)];
            }
            let sign = if rng.below(5) == 0 { 1.0 } else { rng.normal() as f32 };
            sign * size
        })
        .collect()
}

#[test]
fn every_type_is_its_twin_to_the_bit() {
    let mut rng = Rng::new(1);
    for kind in Type::ALL {
        let widths: &[usize] = match kind.block().0 {
            1 => &[1, 15, 16, 17, 64, 100],
            32 => &[32, 64, 224, 256, 288, 544],
            _ => &[256, 512, 768, 1280],
        };
        for cols in widths {
            // Weight rows around the tasks of a matmul, hidden states around those that share an unpacked row.
            for (rows, states) in [(1, 1), (3, 2), (5, 7), (64, 8), (67, 9), (130, 17)] {
                let bytes = kind.random(&mut rng, rows * cols, 0.5);
                check(kind, *cols, &bytes, &hidden(&mut rng, states * cols));
            }
        }
    }
}

#[test]
fn the_worst_blocks_are_their_twins_to_the_bit() {
    let mut rng = Rng::new(2);
    // Scales: ordinary, zero, −0, the smallest, the greatest subnormal, the greatest of either sign.
    let scales = [0x2000, 0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff];
    for kind in Type::QUANTIZED {
        let (unit, size) = kind.block();
        let mut bytes = Vec::new();
        for filling in [0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0] {
            for d in scales {
                let mut block = vec![filling; size];
                for (at, _) in kind.scales() {
                    block[*at..at + 2].copy_from_slice(&u16::to_le_bytes(d));
                }
                // A row of it and one that has it beside ordinary blocks.
                bytes.extend(block.repeat(512 / unit));
                let mut row = kind.random(&mut rng, 512, 0.5);
                row[..size].copy_from_slice(&block);
                bytes.extend(row);
            }
        }
        let ones = [1.0f32; 512];
        let minus: Vec<f32> = ones.map(|h| -h).to_vec();
        check(kind, 512, &bytes, &[&ones[..], &minus, &hidden(&mut rng, 3 * 512)].concat());
    }
}

#[test]
fn what_is_not_finite_shows() {
    let mut rng = Rng::new(3);
    for kind in Type::QUANTIZED {
        let bytes = kind.random(&mut rng, 5 * 512, 0.5);
        let size = kind.block().1;
        for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
            let mut bytes = bytes.clone();
            let (last, (at, _)) = (2 * bytes.len() / 5 - size, kind.scales()[0]);
            bytes[last + at..last + at + 2].copy_from_slice(&bad.to_le_bytes());
            let mut out = vec![0.0; 10];
            kind.weights(5, 512, &bytes).unwrap().matmul(&hidden(&mut rng, 1024), &mut out).unwrap();
            let finite: Vec<bool> = out.iter().map(|logit| logit.is_finite()).collect();
            assert_eq!(finite, [true, false, true, true, true].repeat(2), "{kind:?} {bad}");
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut states = hidden(&mut rng, 1024);
            states[700] = bad;
            let mut out = vec![0.0; 10];
            kind.weights(5, 512, &bytes).unwrap().matmul(&states, &mut out).unwrap();
            assert!(out[..5].iter().all(|logit| logit.is_finite()) && out[5..].iter().all(|logit| logit.is_nan()));
        }
    }
}

#[test]
fn a_row_is_the_formula_of_its_type() {
    let mut rng = Rng::new(4);
    for kind in Type::QUANTIZED {
        let bytes = kind.random(&mut rng, 512, 0.5);
        let mut row = vec![0.0; 512];
        kind.weights(1, 512, &bytes).unwrap().row(0, &mut row).unwrap();
        let parts: Vec<Part> = bytes.chunks(kind.block().1).flat_map(|block| parts(kind, block)).collect();
        for (i, found) in row.iter().enumerate() {
            let (part, i) = (&parts[i / 32], i % 32);
            let truth = part.d * part.s[i / 16] as f32 * part.q[i] as f32 - part.dmin * part.m as f32;
            assert_eq!(found.to_bits(), truth.to_bits(), "{kind:?} element {i}");
        }
    }
}
