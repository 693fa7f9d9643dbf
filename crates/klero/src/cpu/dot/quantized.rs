//! Rows of quantised blocks: the hidden state is quantised too, and the products are exact integers.
//!
//! **The hidden state** is cut into parts of 32: scale `a = max|h| / 127` in f32, values
//! `round_half_even(h · (127 / max|h|))`, or 0 where that quotient is not finite (max|h| below 4e-37). One that is not
//! finite makes its part's scale NaN, so that it shows in every logit instead of vanishing in an integer.
//!
//! **The sum.** Part b of a row belongs to lane b mod 8. With the weights' formula (`weights/blocks.rs`) and Σ over the
//! part's 32 pairs, in the order b = 0, 1, 2, …:
//!
//! ```text
//! lane = fma(d · a, f32(Σ s q h), lane)
//! lane = fma(−(dmin · a), f32(m Σ h), lane)        types with minima only
//! ```
//!
//! `d · a` and `dmin · a` are rounded to f32. The integers are exact, in f32 too: |h| ≤ 127, and |s q| is at most 128
//! (Q8_0), 8 (Q4_0), 63 · 15 (Q4_K), 63 · 31 (Q5_K) and 128 · 32 (Q6_K), so that |Σ s q h| ≤ 32 · 127 · 4096 < 2^24; and
//! |m Σ h| ≤ 63 · 32 · 127. At last the eight lanes are added by the tree l with l + 4, + 2, + 1.
//!
//! **How.** Where there is AVX-512, `vnni` does it. Else a group is eight parts, one for each lane: a super-block, or eight small blocks. It is unpacked once, to
//! the integers s q, and multiplied with several hidden states.

#[cfg(target_arch = "x86_64")]
use super::vnni;
use super::{Wanted, add_tree};
use crate::Element;
use crate::cpu::{Level, level, widest};
use crate::weights::blocks::{Block, BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, PART};
use half::f16;

/// Parts in a group, and lanes of a sum.
pub(super) const LANES: usize = 8;

/// Hidden states that share the unpacking of a weight row; their groups stay in the nearest cache.
const TOGETHER: usize = 8;

/// Hidden states up to which weights that need no unpacking are multiplied where they lie.
const DIRECT: usize = 2;

/// Hidden states as integers, each row in whole groups, in the form that this processor multiplies.
#[derive(Clone, Debug)]
pub(crate) struct Quantized {
    form: Form,
    width: usize,
}

#[derive(Clone, Debug)]
enum Form {
    Plain(Vec<Group>),
    #[cfg(target_arch = "x86_64")]
    Vnni(Vec<vnni::Group>),
}

/// Eight parts of a hidden state; those beyond its end are zero. The integers fit an i8; they are kept as the i16 that
/// the products need, so that they are widened once and not for every weight row.
/// Aligned, so that no load of the values reaches over two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Group {
    values: [[i16; PART]; LANES],
    scales: [f32; LANES],
    sums: [i32; LANES],
}

impl Group {
    const ZERO: Self = Self { scales: [0.0; LANES], sums: [0; LANES], values: [[0; PART]; LANES] };
}

impl Quantized {
    /// Quantises rows of `cols` numbers, a positive multiple of 32.
    pub(crate) fn new(hidden: &[f32], cols: usize) -> Self {
        let width = (cols / PART).div_ceil(LANES);
        let mut groups = vec![Group::ZERO; hidden.len() / cols * width];
        for (row, groups) in hidden.chunks_exact(cols).zip(groups.chunks_exact_mut(width)) {
            quantize(row, groups);
        }
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 {
            let bytes = |group: &Group| vnni::Group::new(&group.values, group.scales);
            return Self { form: Form::Vnni(groups.iter().map(bytes).collect()), width };
        }
        Self { form: Form::Plain(groups), width }
    }
}

/// One row of `width` groups.
#[inline(always)]
fn row(hidden: &[Group], width: usize, row: usize) -> &[Group] {
    &hidden[row * width..][..width]
}

widest! {
    /// Quantises one hidden state.
    fn quantize(row: &[f32], groups: &mut [Group]) = quantize_row;
}

#[inline(always)]
fn quantize_row(row: &[f32], groups: &mut [Group]) {
    for (group, chunk) in groups.iter_mut().zip(row.chunks(LANES * PART)) {
        for (b, part) in chunk.as_chunks::<PART>().0.iter().enumerate() {
            (group.scales[b], group.values[b]) = quantize_part(part);
            group.sums[b] = group.values[b].iter().map(|value| i32::from(*value)).sum();
        }
    }
}

#[inline(always)]
fn quantize_part(part: &[f32; PART]) -> (f32, [i16; PART]) {
    if !part.iter().all(|h| h.is_finite()) {
        return (f32::NAN, [0; PART]);
    }
    let largest = part.iter().fold(0.0f32, |most, h| most.max(h.abs()));
    let inverse = 127.0 / largest;
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let mut values = [0; PART];
    for (value, h) in values.iter_mut().zip(part) {
        *value = (h * inverse).round_ties_even() as i16;
    }
    (largest / 127.0, values)
}

/// A type of block that has a dot product.
pub(crate) trait Dot: Block {
    /// The dot product of every row of `rows` with every hidden state of `wanted`.
    fn dot(rows: &[Self], hidden: &Quantized, wanted: &mut [Wanted]);
}

macro_rules! dot {
    ($($block:ident)*) => {$(
        impl Dot for $block {
            fn dot(rows: &[Self], hidden: &Quantized, wanted: &mut [Wanted]) {
                widest! {
                    fn dot(rows: &[$block], hidden: &[Group], width: usize, wanted: &mut [Wanted]) = dot_rows;
                }
                match &hidden.form {
                    Form::Plain(groups) => dot(rows, groups, hidden.width, wanted),
                    // SAFETY: a hidden state takes this form where the instruction sets were found.
                    #[cfg(target_arch = "x86_64")]
                    Form::Vnni(groups) => unsafe { vnni::dot_rows(rows, groups, hidden.width, wanted) },
                }
            }
        }
    )*};
}
dot!(BlockQ8_0 BlockQ4_0 BlockQ4K BlockQ5K BlockQ6K);

#[inline(always)]
fn dot_rows<B: Block>(rows: &[B], hidden: &[Group], width: usize, wanted: &mut [Wanted]) {
    let Some(count) = wanted.first().map(|(_, out)| out.len()).filter(|count| *count > 0) else { return };
    if B::AS_STORED && wanted.len() <= DIRECT {
        for (n, out) in wanted {
            for (weights, out) in rows.chunks_exact(rows.len() / count).zip(out.iter_mut()) {
                *out = dot_row(weights, row(hidden, width, *n));
            }
        }
        return;
    }
    let mut group = Unpacked::ZERO;
    for wanted in wanted.chunks_mut(TOGETHER) {
        for (r, weights) in rows.chunks_exact(rows.len() / count).enumerate() {
            let mut lanes = [[0.0; LANES]; TOGETHER];
            for (g, blocks) in weights.chunks(LANES / B::PARTS).enumerate() {
                group.unpack(blocks);
                // Kept from seeing what was just stored, the compiler loads it as the products need it, instead of
                // spilling it widened.
                let group = &*std::hint::black_box(&mut group);
                for (lanes, (n, _)) in lanes.iter_mut().zip(&*wanted) {
                    group.add::<B>(&row(hidden, width, *n)[g], lanes);
                }
            }
            for ((_, out), lanes) in wanted.iter_mut().zip(lanes) {
                out[r] = add_tree(lanes);
            }
        }
    }
}

/// The dot product of one row of blocks that need no unpacking with one hidden state. Widening them to memory first pays only
/// where several hidden states take them from there.
#[inline(always)]
fn dot_row<B: Block>(row: &[B], hidden: &[Group]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (groups, tail) = row.as_chunks::<LANES>();
    for (blocks, hidden) in groups.iter().zip(hidden) {
        add_blocks(&mut lanes, blocks, hidden);
    }
    if let Some(hidden) = hidden.get(groups.len()) {
        add_blocks(&mut lanes, tail, hidden);
    }
    add_tree(lanes)
}

/// Adds up to eight blocks, each to its lane.
#[inline(always)]
fn add_blocks<B: Block>(lanes: &mut [f32; LANES], blocks: &[B], hidden: &Group) {
    let (mut dots, mut d) = ([0i32; LANES], [f16::ZERO; LANES]);
    for (b, (block, values)) in blocks.iter().zip(&hidden.values).enumerate() {
        let mut integers = [[0; PART]];
        block.integers(&mut integers);
        for (q, h) in integers[0].iter().zip(values) {
            dots[b] += i32::from(*q) * i32::from(*h);
        }
        d[b] = block.scales().d;
    }
    for b in 0..LANES {
        lanes[b] = (d[b].widen() * hidden.scales[b]).mul_add(dots[b] as f32, lanes[b]);
    }
}

/// Eight parts of a weight row; those beyond its end are zero, and add nothing.
#[repr(C, align(64))]
struct Unpacked {
    values: [[i16; PART]; LANES],
    d: [f32; LANES],
    dmin: f32,
    minima: [i32; LANES],
}

impl Unpacked {
    const ZERO: Self = Self { d: [0.0; LANES], dmin: 0.0, minima: [0; LANES], values: [[0; PART]; LANES] };

    #[inline(always)]
    fn unpack<B: Block>(&mut self, blocks: &[B]) {
        if blocks.len() * B::PARTS < LANES {
            *self = Self::ZERO;
        }
        let mut d = [f16::ZERO; LANES];
        for (k, block) in blocks.iter().enumerate() {
            let mut scales = block.scales();
            if B::PARTS > 1 {
                // From memory a scale goes to all lanes in one load; the compiler would cut it out of a register.
                std::hint::black_box(&mut scales.parts);
            }
            let mut integers = [[0; PART]; LANES];
            block.integers(&mut integers);
            let parts = k * B::PARTS..(k + 1) * B::PARTS;
            d[parts.clone()].fill(scales.d);
            for ((values, integers), s) in self.values[parts].iter_mut().zip(&integers).zip(&scales.parts) {
                for (i, (value, q)) in values.iter_mut().zip(integers).enumerate() {
                    *value = i16::from(*q) * s[i / 16];
                }
            }
            if B::MINIMA {
                self.dmin = scales.dmin.widen();
                self.minima = scales.minima.map(i32::from);
            }
        }
        self.d = d.map(f16::widen);
    }

    /// Adds eight parts, each to its lane.
    #[inline(always)]
    fn add<B: Block>(&self, hidden: &Group, lanes: &mut [f32; LANES]) {
        let mut dots = [0i32; LANES];
        for (dot, (values, h)) in dots.iter_mut().zip(self.values.iter().zip(&hidden.values)) {
            for (value, h) in values.iter().zip(h) {
                *dot += i32::from(*value) * i32::from(*h);
            }
        }
        for (b, lane) in lanes.iter_mut().enumerate() {
            *lane = (self.d[b] * hidden.scales[b]).mul_add(dots[b] as f32, *lane);
        }
        if B::MINIMA {
            for (b, lane) in lanes.iter_mut().enumerate() {
                let least = self.minima[b] * hidden.sums[b];
                *lane = (-(self.dmin * hidden.scales[b])).mul_add(least as f32, *lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::splitmix64;

    /// Blocks of random bits, scales too, but for those that are not finite.
    fn blocks<B>(read: fn(&[u8]) -> Result<Vec<B>, crate::Error>, bytes: usize) -> Vec<B> {
        read(&(0..bytes as u64).map(|i| splitmix64(i) as u8 & 0xbf).collect::<Vec<_>>()).unwrap()
    }

    fn builds_agree<B: Dot>(blocks: &[B], rows: usize) {
        let cols = blocks.len() / rows * B::PARTS * PART;
        let mut hidden: Vec<f32> = (0..19 * cols as u64).map(|i| splitmix64(!i) as i32 as f32 * 1e-9).collect();
        hidden[5] = f32::NAN;
        hidden[cols..cols + PART].fill(0.0);
        // One hidden state takes another way than several, and few another than many.
        for states in [1, 2, 11, 19] {
            let run = || {
                let mut out = vec![0.0f32; states * rows];
                let quantized = Quantized::new(&hidden, cols);
                B::dot(blocks, &quantized, &mut out.chunks_mut(rows).enumerate().collect::<Vec<_>>());
                out.iter().map(|logit| if logit.is_nan() { u32::MAX } else { logit.to_bits() }).collect::<Vec<_>>()
            };
            let all = crate::cpu::at_each_level(run);
            assert!(all.iter().all(|one| *one == all[0]), "{states} states");
        }
    }

    #[test]
    fn every_build_of_a_kernel_gives_the_same_bits() {
        builds_agree(&blocks(BlockQ8_0::from_bytes, 3 * 13 * BlockQ8_0::BYTES), 3);
        builds_agree(&blocks(BlockQ4_0::from_bytes, 3 * 13 * BlockQ4_0::BYTES), 3);
        builds_agree(&blocks(BlockQ4K::from_bytes, 4 * 2 * BlockQ4K::BYTES), 4);
        builds_agree(&blocks(BlockQ5K::from_bytes, 3 * 2 * BlockQ5K::BYTES), 3);
        builds_agree(&blocks(BlockQ6K::from_bytes, 3 * 2 * BlockQ6K::BYTES), 3);
    }
}
