//! The law on its own integers, in the shortest way: every id sorted, weighed and given its noise, no bounds, no lists.
//!
//! The engine must agree with it bit for bit, also where a decision is so close that a truth in f64 cannot tell. Only
//! the arithmetic that the law itself names is the library's: exp, ln and the noise of an id.

use super::Case;
use klero::Draw;
use klero::hash::Stream;
use klero::math::{exp, ln};
use klero::noise::Noise;
use klero_oracle::hash::{Case as HashCase, MTP_OFFSET, row_hash};
use std::ops::Add;

const ONE: f64 = (1u64 << 43) as f64;

/// A row after temperature, on integers.
pub struct Masses {
    pub x: Vec<f32>,
    pub max: f32,
    /// ⌊exp(x − M) · 2^43⌋ of each id.
    pub weights: Vec<u64>,
    /// The mass of each block of 64 ids.
    pub blocks: Vec<u64>,
    pub total: u64,
}

/// A draw on integers.
#[derive(Debug)]
pub struct Drawn {
    pub token: u32,
    pub logprob: f64,
    pub log_normalizer: f64,
    /// The kept ids, best first.
    pub kept: Vec<u32>,
    /// W.
    pub weight: u64,
    pub accepted: Option<bool>,
    pub accept_probability: f64,
}

impl Masses {
    /// `logits` times 1/T, `temperature` as a person gives it.
    pub fn new(logits: &[f32], temperature: f64) -> Self {
        let inverse = 1.0 / temperature_used(temperature);
        let x: Vec<f32> = logits.iter().map(|l| l * inverse).collect();
        let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights = x.iter().map(|x| units(f64::from(exp(x - max)))).collect();
        let blocks: Vec<u64> = x.chunks(64).map(|block| block_mass(block, max)).collect();
        let total = blocks.iter().sum();
        Self { x, max, weights, blocks, total }
    }

    /// All ids with x > −∞, best first.
    pub fn order(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..self.x.len() as u32).filter(|id| self.x_of(*id) > f32::NEG_INFINITY).collect();
        ids.sort_by(|a, b| self.x_of(*b).partial_cmp(&self.x_of(*a)).expect("x is a number").then(a.cmp(b)));
        ids
    }

    pub fn x_of(&self, id: u32) -> f32 {
        self.x[id as usize]
    }

    pub fn weight_of(&self, id: u32) -> u64 {
        self.weights[id as usize]
    }

    /// Whether an integer mass is greater than top_p · total, in exact arithmetic.
    pub fn exceeds(&self, mass: u64, top_p: f64) -> bool {
        // top_p is a 24-bit integer over a power of two. Dividing by two at a time keeps the product in 128 bits.
        let (mut numerator, mut halvings) = (f64::from(top_p as f32), 0);
        while numerator.fract() != 0.0 {
            numerator *= 2.0;
            halvings += 1;
        }
        let product = numerator as u128 * u128::from(self.total);
        let whole = if halvings < 128 { product >> halvings } else { 0 };
        u128::from(mass) > whole
    }

    /// The kept ids, best first: three filters one after the other.
    pub fn keep(&self, top_p: f64, top_k: i64, min_p: f64) -> Vec<u32> {
        let mut kept = self.order();
        if (top_p as f32) < 1.0 {
            let mut before = 0;
            let mut rank = 0;
            kept.retain(|id| {
                let stays = rank == 0 || !self.exceeds(before, top_p);
                before += self.weight_of(*id);
                rank += 1;
                stays
            });
        }
        if top_k >= 1 {
            kept.truncate(top_k as usize);
        }
        kept.retain(|id| exp(self.x_of(*id) - self.max) >= min_p as f32);
        kept
    }
}

/// T as it is used: f32, raised to 1e-5 from below.
fn temperature_used(temperature: f64) -> f32 {
    if temperature < 1e-5 { 1e-5 } else { temperature as f32 }
}

fn units(value: f64) -> u64 {
    (value * ONE).floor() as u64
}

/// ⌊S · exp(m − M) · 2^43⌋ with S by the law's tree.
fn block_mass(block: &[f32], max: f32) -> u64 {
    let mut four = [(f32::NEG_INFINITY, 0.0f32); 4];
    for (pair, sixteen) in four.iter_mut().zip(block.chunks(16)) {
        let top = sixteen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if top > f32::NEG_INFINITY {
            let mut lanes = [0.0; 16];
            for (lane, x) in lanes.iter_mut().zip(sixteen) {
                *lane = exp(x - top);
            }
            *pair = (top, tree(lanes));
        }
    }
    let m = four.iter().map(|pair| pair.0).fold(f32::NEG_INFINITY, f32::max);
    if m == f32::NEG_INFINITY {
        return 0;
    }
    let part = |(top, sum): (f32, f32)| if top == f32::NEG_INFINITY { 0.0 } else { sum * exp(top - m) };
    let sum = (part(four[0]) + part(four[1])) + (part(four[2]) + part(four[3]));
    units(f64::from(sum * exp(m - max)))
}

/// i with i + 8, then + 4, + 2, + 1.
fn tree<T: Copy + Add<Output = T>>(v: [T; 16]) -> T {
    let eight: Vec<T> = (0..8).map(|i| v[i] + v[i + 8]).collect();
    let four: Vec<T> = (0..4).map(|i| eight[i] + eight[i + 4]).collect();
    (four[0] + four[2]) + (four[1] + four[3])
}

/// The whole draw of a good row.
pub fn draw(case: &Case) -> Drawn {
    let params = &case.params;
    let masses = Masses::new(&case.logits, params.temperature);
    let order = masses.order();
    let kept = match params.temperature < 1e-5 {
        true => order.clone(),
        false => masses.keep(params.top_p, params.top_k, params.min_p),
    };
    let removed = kept.len() < order.len();
    let weight = if removed { kept.iter().map(|id| masses.weight_of(*id)).sum() } else { masses.total };
    let seed = params.seed.expect("tests give seeds");
    let seed = if case.stream == Stream::Draft { seed.wrapping_add(MTP_OFFSET) } else { seed };
    let z = |hash_case| row_hash(seed, case.position, hash_case);

    let mut drawn = Drawn {
        token: 0,
        logprob: 0.0,
        log_normalizer: f64::from(masses.max) + ln(masses.total as f64 / ONE),
        kept,
        weight,
        accepted: None,
        accept_probability: 1.0,
    };
    let mut ids = drawn.kept.clone();
    ids.sort_unstable();
    drawn.token = match (&case.draft, params.draw) {
        (Some(_), _) => verify(case, &masses, &ids, z(HashCase::Accept), z(HashCase::Residual), &mut drawn),
        (None, Draw::Gumbel) => race(ids.iter().map(|id| (*id, f64::from(masses.x_of(*id)))), z(HashCase::Draw)),
        (None, Draw::InverseCdf) if removed => {
            let weights: Vec<(u32, u64)> = ids.iter().map(|id| (*id, masses.weight_of(*id))).collect();
            running(&weights, z(HashCase::Draw))
        }
        (None, Draw::InverseCdf) => by_blocks(&masses, z(HashCase::Draw)),
    };
    let x = masses.x_of(drawn.token);
    drawn.logprob = f64::from(x) - f64::from(masses.max) - ln(weight as f64 / ONE) + 0.0; // never −0
    drawn
}

/// The greatest score plus noise by its upper 44 bits, then the lower id; ids come in ascending order.
fn race(scores: impl Iterator<Item = (u32, f64)>, z: u64) -> u32 {
    let mut best: Option<(u64, u32)> = None;
    for (id, score) in scores {
        let bits = (score + Noise::of(z, id).gumbel + 0.0).to_bits();
        let key = (if bits < 1 << 63 { bits | 1 << 63 } else { !bits }) >> 20;
        if best.is_none_or(|(most, _)| key > most) {
            best = Some((key, id));
        }
    }
    best.expect("some id is kept").1
}

/// running · 2^53 > (z >> 11) · total.
fn hit(running: u64, z: u64, total: u64) -> bool {
    u128::from(running) << 53 > u128::from(z >> 11) * u128::from(total)
}

fn running(weights: &[(u32, u64)], z: u64) -> u32 {
    let total = weights.iter().map(|(_, weight)| weight).sum();
    let mut before = 0;
    for (id, weight) in weights {
        before += weight;
        if hit(before, z, total) {
            return *id;
        }
    }
    panic!("u · total is below the total");
}

/// By the masses of blocks, then by single weights inside the block, which may not reach as far.
fn by_blocks(masses: &Masses, z: u64) -> u32 {
    let mut before = 0;
    for (block, mass) in masses.blocks.iter().enumerate() {
        if !hit(before + mass, z, masses.total) {
            before += mass;
            continue;
        }
        let ids = block * 64..masses.x.len().min(block * 64 + 64);
        let mut last = None;
        for id in ids.clone() {
            before += masses.weights[id];
            if hit(before, z, masses.total) {
                return id as u32;
            }
            last = if masses.weights[id] > 0 { Some(id) } else { last };
        }
        let fallback = || ids.clone().rfind(|id| masses.x[*id] > f32::NEG_INFINITY);
        return last.or_else(fallback).expect("a block with a mass has an id") as u32;
    }
    panic!("u · total is below the total");
}

fn verify(case: &Case, masses: &Masses, ids: &[u32], accept: u64, residual: u64, drawn: &mut Drawn) -> u32 {
    let draft = case.draft.as_ref().expect("a draft to verify");
    let p = |id: u32| masses.weight_of(id) as f64 / drawn.weight as f64;
    let q = |id: u32| f64::from(exp(draft.logprobs[id as usize]));
    let decay = (-draft.delta).exp();
    let mut rest = vec![0.0f64; masses.x.len().next_multiple_of(64)];
    for id in ids {
        rest[*id as usize] = (p(*id) - q(*id) * decay).max(0.0);
    }
    drawn.accept_probability = (1.0 - rest.chunks(64).map(block_sum).sum::<f64>()).max(0.0);

    let u = (accept >> 11) as f64 * 2f64.powi(-53);
    let drafted = u32::try_from(draft.token).ok().filter(|id| ids.contains(id));
    let accepted = drafted.filter(|id| p(*id) > 0.0 && u * q(*id) < p(*id));
    drawn.accepted = Some(accepted.is_some());
    if let Some(token) = accepted {
        return token;
    }
    let most = rest.iter().copied().fold(0.0, f64::max);
    let left = || ids.iter().map(|id| (*id, rest[*id as usize])).filter(|(_, rest)| *rest > 0.0);
    match case.params.draw {
        _ if most == 0.0 => drawn.kept[0],
        Draw::Gumbel => race(left().map(|(id, rest)| (id, ln(rest))), residual),
        Draw::InverseCdf => {
            let weights: Vec<(u32, u64)> = left().map(|(id, rest)| (id, units(rest / most))).collect();
            running(&weights, residual)
        }
    }
}

fn block_sum(block: &[f64]) -> f64 {
    let sixteen = |j: usize| tree(block[j * 16..][..16].try_into().expect("sixteen ids"));
    (sixteen(0) + sixteen(1)) + (sixteen(2) + sixteen(3))
}
