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

/// As [`compute`], for any ids.
#[inline(always)]
pub(crate) fn compute_of(z: u64, ids: &[u32; BLOCK]) -> [u16; BLOCK] {
    let key = key(z);
    let mut bits = [0; BLOCK];
    for (bits, id) in bits.iter_mut().zip(ids) {
        let [a, b, c, d] = philox(key, [id / 8, 0, 0, 0]);
        // Selections, which vectors have, in place of an index.
        let low = if id & 2 == 0 { a } else { b };
        let high = if id & 2 == 0 { c } else { d };
        let word = if id & 4 == 0 { low } else { high };
        *bits = (word >> (16 * (id & 1))) as u16;
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
            let ids = std::array::from_fn(|i| block * 64 + i as u32);
            assert_eq!(compute_of(z, &ids), top_bits(z, block));
            for (i, h) in top_bits(z, block).into_iter().enumerate() {
                assert_eq!(u64::from(h), Noise::of(z, block * 64 + i as u32).bits >> 48);
            }
        }
    }
}
