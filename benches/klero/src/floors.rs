//! What the machine cannot do without: the least passes that a draw is made of, with AVX2 where there is.
//!
//! The bodies are plain loops over eight lanes, compiled for the wide instruction set and called where it is found.

use rayon::prelude::*;

const LANES: usize = 8;

/// e^y by a polynomial, good enough to cost what an exponential costs.
#[inline(always)]
fn exp(y: f32) -> f32 {
    let t = (y * std::f32::consts::LOG2_E).max(-126.0);
    let n = (t + 12_582_912.0) - 12_582_912.0;
    let f = t - n;
    let p = f.mul_add(0.009_618_13, 0.055_504_1);
    let p = f.mul_add(f.mul_add(p, 0.240_226_5), std::f32::consts::LN_2);
    let p = f.mul_add(p, 1.0);
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

#[inline(always)]
fn largest_body(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 4 * LANES];
    for chunk in row.as_chunks::<{ 4 * LANES }>().0 {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

#[inline(always)]
fn exp_sum_body(row: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 2 * LANES];
    for chunk in row.as_chunks::<{ 2 * LANES }>().0 {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += exp(*x - 12.0);
        }
    }
    lanes.into_iter().sum()
}

/// Philox4x32 with seven rounds for eight counters at a time, an exponential and a comparison an id: sixteen bits an id.
#[inline(always)]
fn race_body(row: &[f32]) -> f32 {
    let mut passed = [0u32; LANES];
    for (at, chunk) in row.as_chunks::<64>().0.iter().enumerate() {
        let mut words: [[u32; LANES]; 4] = [std::array::from_fn(|i| (at * LANES + i) as u32), [0; 8], [0; 8], [0; 8]];
        let (mut k0, mut k1) = (0x1234_5678u32, 0x9ABC_DEF0u32);
        for _ in 0..7 {
            let [x0, x1, x2, x3] = words;
            let product = |x: [u32; LANES], by: u64| x.map(|x| u64::from(x) * by);
            let (a, b) = (product(x0, 0xD251_1F53), product(x2, 0xCD9E_8D57));
            let mixed =
                |p: [u64; LANES], x: [u32; LANES], key: u32| std::array::from_fn(|i| (p[i] >> 32) as u32 ^ x[i] ^ key);
            words = [mixed(b, x1, k0), b.map(|p| p as u32), mixed(a, x3, k1), a.map(|p| p as u32)];
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        for (part, word) in chunk.as_chunks::<{ 2 * LANES }>().0.iter().zip(words) {
            let (low, high) = part.split_at(LANES);
            for (i, bits) in word.into_iter().enumerate() {
                let passes = |bits: u32, x: f32| u32::from((bits as f32) < 65_536.0 * exp(x - 14.0));
                passed[i] += passes(bits & 0xFFFF, low[i]) + passes(bits >> 16, high[i]);
            }
        }
    }
    passed.into_iter().sum::<u32>() as f32
}

macro_rules! wide {
    ($(#[$meta:meta])* $name:ident = $body:ident) => {
        $(#[$meta])*
        pub fn $name(row: &[f32]) -> f32 {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn wide(row: &[f32]) -> f32 {
                    $body(row)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: both instruction sets were found on this processor.
                    return unsafe { wide(row) };
                }
            }
            $body(row)
        }
    };
}

wide! {
    /// One pass for the largest.
    largest = largest_body
}
wide! {
    /// One pass of exponentials and their sum.
    exp_sum = exp_sum_body
}
wide! {
    /// One pass of hashes, exponentials and comparisons.
    race = race_body
}

/// Reads memory in as many threads as the pool has.
pub fn read(memory: &[f32]) -> f32 {
    let part = memory.len().div_ceil(rayon::current_num_threads()).next_multiple_of(4 * LANES);
    memory.par_chunks(part).map(largest).reduce(|| f32::NEG_INFINITY, f32::max)
}
