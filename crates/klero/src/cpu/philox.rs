//! The top sixteen noise bits of the 64 ids of a block: eight Philox counters side by side.

use super::widest;
use crate::mass::BLOCK;
use crate::noise::{key, philox};

widest! {
    /// `h` of the ids of block `block` under the row hash `z`.
    pub(crate) fn top_bits(z: u64, block: u32) -> [u16; BLOCK] = compute;
}

#[inline(always)]
pub(crate) fn compute(z: u64, block: u32) -> [u16; BLOCK] {
    let key = key(z);
    let mut words = [[0u32; 8]; 4];
    for lane in 0..8 {
        let four = philox(key, [block * 8 + lane as u32, 0, 0, 0]);
        for (word, value) in words.iter_mut().zip(four) {
            word[lane] = value;
        }
    }
    let mut bits = [0u16; BLOCK];
    for lane in 0..8 {
        for (w, word) in words.iter().enumerate() {
            bits[lane * 8 + w * 2] = word[lane] as u16;
            bits[lane * 8 + w * 2 + 1] = (word[lane] >> 16) as u16;
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    #[test]
    fn a_block_holds_the_top_bits_of_each_id() {
        for (z, block) in [(0u64, 0u32), (0x0123_4567_89ab_cdef, 16_383), (u64::MAX, 7)] {
            for (i, h) in top_bits(z, block).into_iter().enumerate() {
                assert_eq!(u64::from(h), Noise::of(z, block * 64 + i as u32).bits >> 48);
            }
        }
    }
}
