//! The law on its own integers, in the shortest way: every id sorted, weighed and given its noise, no bounds, no lists.
//!
//! The engine must agree with it bit for bit, also where a decision is so close that a truth in f64 cannot tell. Only
//! the arithmetic that the law itself names is the library's: exp, ln and the noise of an id.

use super::{Case, ProposalCase};
use klero::hash::Stream;
use klero::math::{exp, ln};
use klero::noise::Noise;
use klero::{Confidence, Draw, FilterOrder};
use klero_oracle::hash::{Case as HashCase, MTP_OFFSET, row_hash};
use std::cmp::Ordering;
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
    pub confidence: Confidence,
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
        share(top_p, self.total).compare(mass) == Ordering::Greater
    }

    /// The kept ids, best first: three filters one after the other.
    pub fn keep(&self, top_p: f64, top_k: i64, min_p: f64, order: FilterOrder) -> Vec<u32> {
        let all = self.order();
        let small = |id: &u32| exp(self.x_of(*id) - self.max) < min_p as f32;
        let most = usize::try_from(top_k).unwrap_or(usize::MAX);
        let mut kept = all.clone();
        match order {
            FilterOrder::TopPFirst => {
                self.cut(&mut kept, top_p, self.total, |side| side == Ordering::Greater);
                kept.truncate(most);
                kept.retain(|id| !small(id));
            }
            FilterOrder::MinPFirst => {
                kept.retain(|id| !small(id));
                kept.truncate(most);
                let rest = kept.iter().map(|id| self.weight_of(*id)).sum();
                let total = if kept.len() < all.len() { rest } else { self.total };
                self.cut(&mut kept, top_p, total, |side| side != Ordering::Less);
            }
        }
        kept
    }

    /// Removes ids whose mass before them is beyond top_p · total.
    fn cut(&self, kept: &mut Vec<u32>, top_p: f64, total: u64, beyond: impl Fn(Ordering) -> bool) {
        if top_p as f32 == 1.0 {
            return;
        }
        let limit = share(top_p, total);
        let (mut before, mut rank) = (0, 0);
        kept.retain(|id| {
            let stays = rank == 0 || !beyond(limit.compare(before));
            before += self.weight_of(*id);
            rank += 1;
            stays
        });
    }
}

/// top_p · total, as an integer over a power of two.
struct Share {
    whole: u128,
    rest: bool,
}

impl Share {
    /// How a mass compares with it.
    fn compare(&self, mass: u64) -> Ordering {
        match u128::from(mass).cmp(&self.whole) {
            Ordering::Equal if self.rest => Ordering::Less,
            side => side,
        }
    }
}

fn share(top_p: f64, total: u64) -> Share {
    // top_p is a 24-bit integer over a power of two. Dividing by two at a time keeps the product in 128 bits.
    let (mut numerator, mut halvings) = (f64::from(top_p as f32), 0);
    while numerator.fract() != 0.0 {
        numerator *= 2.0;
        halvings += 1;
    }
    let product = numerator as u128 * u128::from(total);
    let whole = if halvings < 128 { product >> halvings } else { 0 };
    let rest = if halvings < 128 { whole << halvings != product } else { product != 0 };
    Share { whole, rest }
}

/// The logits of a good row after penalties, bias, mask and force_top_k.
pub fn staged(case: &Case) -> Vec<f32> {
    let (edits, params) = (&case.edits, &case.params);
    let mut logits = case.logits.clone();
    for (id, l) in (0u32..).zip(logits.iter_mut()).filter(|(_, l)| **l > f32::NEG_INFINITY) {
        let written = edits.output.iter().filter(|other| **other == id).count();
        if written > 0 || edits.prompt.contains(&id) {
            let rho = params.repetition_penalty as f32;
            *l = if *l > 0.0 { *l / rho } else { *l * rho };
        }
        if written > 0 {
            *l -= params.frequency_penalty as f32 * written as f32 + params.presence_penalty as f32;
        }
        if let Some((_, bias)) = edits.bias.iter().find(|(other, _)| *other == id) {
            *l += bias;
        }
    }
    for (id, l) in (0u32..).zip(logits.iter_mut()) {
        let allowed = edits.allowed.as_ref().is_none_or(|words| words[id as usize / 32] >> (id % 32) & 1 == 1);
        if !allowed || edits.banned.contains(&id) || edits.blacklist.contains(&id) {
            *l = f32::NEG_INFINITY;
        }
    }
    if edits.force_top_k > 0 {
        let mut ids: Vec<usize> = (0..logits.len()).collect();
        ids.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).expect("a number").then(a.cmp(b)));
        ids.iter().skip(edits.force_top_k).for_each(|id| logits[*id] = f32::NEG_INFINITY);
    }
    logits
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
    let masses = Masses::new(&staged(case), params.temperature);
    let order = masses.order();
    let kept = match params.temperature < 1e-5 {
        true => order.clone(),
        false => masses.keep(params.top_p, params.top_k, params.min_p, params.filter_order),
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
        confidence: Confidence { entropy: 0.0, largest: 0.0, smaller: 0.0 },
    };
    let mut ids = drawn.kept.clone();
    ids.sort_unstable();
    let coupled = |proposal: &ProposalCase| matches!(proposal, ProposalCase::Coupled);
    drawn.token = match (case.draft.as_ref().filter(|draft| !coupled(&draft.proposal)), params.draw) {
        (Some(_), _) => verify(case, &masses, &ids, z(HashCase::Accept), z(HashCase::Residual), &mut drawn),
        (None, Draw::Gumbel) => race(ids.iter().map(|id| (*id, f64::from(masses.x_of(*id)))), z(HashCase::Draw)),
        (None, Draw::InverseCdf) if removed => {
            let weights: Vec<(u32, u64)> = ids.iter().map(|id| (*id, masses.weight_of(*id))).collect();
            running(&weights, z(HashCase::Draw))
        }
        (None, Draw::InverseCdf) => by_blocks(&masses, z(HashCase::Draw)),
    };
    if let Some(draft) = case.draft.as_ref().filter(|draft| coupled(&draft.proposal)) {
        drawn.accepted = Some(draft.token == i64::from(drawn.token));
        let p = |id: u32| masses.weight_of(id) as f64 / weight as f64;
        drawn.accept_probability = u32::try_from(draft.token).ok().filter(|id| drawn.kept.contains(id)).map_or(0.0, p);
    }
    drawn.confidence = confidence(&masses, &drawn);
    let x = masses.x_of(drawn.token);
    drawn.logprob = f64::from(x) - f64::from(masses.max) - ln(weight as f64 / ONE) + 0.0; // never −0
    drawn
}

/// Entropy, largest and smaller probabilities, from integer sums.
fn confidence(masses: &Masses, drawn: &Drawn) -> Confidence {
    let share = |sum: u64| sum as f64 / drawn.weight as f64;
    let depth = |id: &u32| masses.x_of(*id) - masses.max;
    let term = |id: &u32| match exp(depth(id)) {
        0.0 => 0,
        e => units(f64::from(e) * -f64::from(depth(id))),
    };
    let smaller = drawn.kept.iter().filter(|id| masses.x_of(**id) < masses.x_of(drawn.token));
    Confidence {
        entropy: ln(drawn.weight as f64 / ONE) + share(drawn.kept.iter().map(term).sum()),
        largest: share(1 << 43),
        smaller: share(smaller.map(|id| masses.weight_of(*id)).sum()),
    }
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
    let q = |id: u32| match &draft.proposal {
        ProposalCase::Distribution(logprobs) => f64::from(exp(logprobs[id as usize])),
        _ => f64::from(u8::from(draft.token == i64::from(id))),
    };
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
