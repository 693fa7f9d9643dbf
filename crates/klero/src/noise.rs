//! Gumbel noise keyed by a row's hash and a vocabulary id.
//!
//! The id with the greatest x + g, g independent standard Gumbel noise, is a draw from softmax(x) (the Gumbel-max
//! trick, which FlashSampling fuses into the LM head). Here g is a function of `(z, id)`: neither tile nor batch row nor
//! shard enters, so any piece of a vocabulary can be raced anywhere and the pieces compared.
//!
//! The noise of an id has 64 bits r, taken from Philox4x32 with seven rounds under the key z: the top sixteen, h, come
//! eight ids to a block; the other forty-eight from a block of the id's own, which is computed only for the few ids
//! that can still win. E = −ln(1 − (r + ½)/2^64) is a standard exponential and g = −ln E. As E > h / 2^16, an id of
//! score x + g can reach a best score s only if h / 2^16 < exp(x − s): one comparison settles almost every id.

use crate::math::{ln, ln_1p};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Rounds of Philox: seven, the fewest that pass the usual batteries (Salmon et al., 2011).
pub const ROUNDS: usize = 7;

/// Philox4x32 with [`ROUNDS`] rounds.
///
/// ```
/// assert_eq!(klero::noise::philox([0; 2], [0; 4]), [0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48]);
/// ```
#[inline(always)]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let mut k = key;
    let mut c = counter;
    for _ in 0..ROUNDS {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(second >> 32) as u32 ^ c[1] ^ k[0], second as u32, (first >> 32) as u32 ^ c[3] ^ k[1], first as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// The Philox key of a row: the low and the high half of its hash.
#[inline(always)]
pub(crate) fn key(z: u64) -> [u32; 2] {
    [z as u32, (z >> 32) as u32]
}

/// h: the top sixteen of the random bits of `id`.
fn top_bits(z: u64, id: u32) -> u16 {
    let words = philox(key(z), [id / 8, 0, 0, 0]);
    let word = words[(id % 8 / 2) as usize];
    if id.is_multiple_of(2) { word as u16 } else { (word >> 16) as u16 }
}

/// The noise of one id, with the numbers it is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// r: 64 random bits.
    pub bits: u64,
    /// E: a standard exponential variate, between 2^−65 and 45.1.
    pub exponential: f64,
    /// g = −ln E: standard Gumbel, between −3.81 and 45.06.
    pub gumbel: f64,
}

impl Noise {
    /// The noise of `id` under the row hash `z`.
    ///
    /// ```
    /// let noise = klero::noise::Noise::of(16311652246244368851, 4);
    /// assert_eq!(noise.bits, 1260375256057799825);
    /// assert!((noise.gumbel - 2.6483014037180785).abs() < 1e-14);
    /// ```
    pub fn of(z: u64, id: u32) -> Self {
        let words = philox(key(z), [id, 1, 0, 0]);
        let bits = u64::from(top_bits(z, id)) << 48 | u64::from(words[1] & 0xFFFF) << 32 | u64::from(words[0]);
        Self::from_bits(bits)
    }

    /// The noise of the random bits r.
    pub fn from_bits(bits: u64) -> Self {
        // Beyond one half the complement is the accurate way: 1 − (r + ½)/2^64 = (!r + ½)/2^64.
        let unit = |r: u64| (r as f64 + 0.5) * 2f64.powi(-64);
        let exponential = if bits < 1 << 63 { -ln_1p(-unit(bits)) } else { -ln(unit(!bits)) };
        Self { bits, exponential, gumbel: -ln(exponential) }
    }
}

/// An id in a race: the top 44 bits of its score's key, then the complement of the id, in one integer.
///
/// The greater integer has the better score or, at equal 44 bits, the lower id. 0 stands for no id at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Racer(pub u64);

const ID_MASK: u64 = (crate::MAX_VOCABULARY - 1) as u64;

impl Racer {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(score: f64, id: u32) -> Self {
        let bits = (score + 0.0).to_bits();
        let key = if bits < 1 << 63 { bits | 1 << 63 } else { !bits };
        Self((key & !ID_MASK) | (ID_MASK - u64::from(id)))
    }

    pub(crate) fn id(self) -> u32 {
        (ID_MASK - (self.0 & ID_MASK)) as u32
    }

    /// The least score that equals this one in 44 bits; −∞ for [`Racer::NONE`].
    pub(crate) fn floor(self) -> f64 {
        if self == Self::NONE {
            return f64::NEG_INFINITY;
        }
        let key = self.0 & !ID_MASK;
        f64::from_bits(if key >= 1 << 63 { key & !(1 << 63) } else { !key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_finite_for_every_kind_of_bits() {
        for bits in [0, 1, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
            let noise = Noise::from_bits(bits);
            assert!(noise.gumbel.is_finite() && noise.exponential > 0.0, "{noise:?}");
        }
        for top in 0..=u16::MAX {
            for low in [0, 0xFFFF_FFFF_FFFF] {
                let noise = Noise::from_bits(u64::from(top) << 48 | low);
                assert!((-3.82..45.1).contains(&noise.gumbel), "{noise:?}");
                assert!(noise.exponential > f64::from(top) / 65536.0, "{noise:?}");
            }
        }
    }

    #[test]
    fn racers_compare_by_score_then_by_lower_id() {
        let scores = [-1e30, -3.5, -1e-300, -0.0, 0.0, 1e-300, 2.0, 2.0 + 1e-6, 1e30];
        for (i, a) in scores.iter().enumerate() {
            for (j, b) in scores.iter().enumerate() {
                let (left, right) = (Racer::new(*a, 7), Racer::new(*b, 9));
                if a == b {
                    assert!(left > right);
                } else {
                    assert_eq!(left > right, i > j, "{a} {b}");
                }
            }
            assert_eq!(Racer::new(*a, 12).id(), 12);
            assert!(Racer::new(*a, 0).floor() <= *a);
            assert!(Racer::new(*a, 0) > Racer::NONE);
        }
        assert_eq!(Racer::new(1.0, 0).id(), 0);
        assert_eq!(Racer::new(1.0, ID_MASK as u32).id(), ID_MASK as u32);
    }
}
