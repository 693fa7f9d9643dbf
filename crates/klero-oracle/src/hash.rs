//! Randomness without state: every random number is a hash of `(seed, position, case)` (law, point 5), and the noise
//! of one token id is a hash of that hash and the id (law, point 6).
//!
//! SplitMix64 is Steele, Lea and Flood's (2014), Philox4x32 is Salmon, Moraes, Dror and Shaw's (2011).

/// The odd constant of SplitMix64, 2^64 divided by the golden ratio.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// What the draft stream ("mtp") adds to the seed.
pub const MTP_OFFSET: u64 = 1_000_000_007;

/// What a random number at one position is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// A fresh draw.
    Draw = 0,
    /// The draw after a rejected draft.
    Residual = 1,
    /// The test whether a draft is accepted.
    Accept = 2,
}

/// The finaliser of SplitMix64, a bijection of the 64-bit words.
pub fn mix(y: u64) -> u64 {
    let y = (y ^ (y >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let y = (y ^ (y >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    y ^ (y >> 31)
}

/// SplitMix64 of one word: adds the constant, then mixes.
pub fn splitmix64(y: u64) -> u64 {
    mix(y.wrapping_add(GOLDEN_GAMMA))
}

/// The seed of sample `sample` of several that share one request seed.
pub fn sample_seed(seed: u64, sample: u64) -> u64 {
    match sample {
        0 => seed,
        _ => splitmix64(seed ^ splitmix64(sample)),
    }
}

/// The hash z of one row: all its randomness for one case.
pub fn row_hash(seed: u64, position: u64, case: Case) -> u64 {
    let q = position.wrapping_mul(3).wrapping_add(case as u64).wrapping_mul(GOLDEN_GAMMA);
    match case {
        Case::Draw | Case::Residual => splitmix64(seed.wrapping_add(q ^ (q << 13))),
        Case::Accept => splitmix64(seed ^ q),
    }
}

/// The uniform number in [0, 1) of a row hash, a multiple of 2^-53.
pub fn uniform(z: u64) -> f64 {
    (z >> 11) as f64 * 2f64.powi(-53)
}

/// Philox4x32 with the given number of rounds; Klero uses 7.
pub fn philox4x32(rounds: u32, key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let [mut k0, mut k1] = key;
    let mut c = counter;
    for _ in 0..rounds {
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(b >> 32) as u32 ^ c[1] ^ k0, b as u32, (a >> 32) as u32 ^ c[3] ^ k1, a as u32];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    c
}

/// The noise of one token id in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// 64 random bits.
    pub r: u64,
    /// The exponential variate E of these bits, E = −ln(1 − (r + ½)·2^-64).
    pub exponential: f64,
    /// The Gumbel variate g = −ln E.
    pub gumbel: f64,
}

/// The noise of token `id` in the row with hash `z`.
pub fn noise(z: u64, id: usize) -> Noise {
    let r = noise_bits(z, u32::try_from(id).expect("a token id fits 32 bits"));
    let exponential = exponential(r);
    Noise { r, exponential, gumbel: -exponential.ln() }
}

/// The 64 bits r: 16 from a counter shared by eight ids, 48 from a counter of this id alone.
fn noise_bits(z: u64, id: u32) -> u64 {
    let key = [z as u32, (z >> 32) as u32];
    let shared = philox4x32(7, key, [id / 8, 0, 0, 0]);
    let own = philox4x32(7, key, [id, 1, 0, 0]);
    let word = shared[(id % 8 / 2) as usize];
    let high = if id.is_multiple_of(2) { word & 0xFFFF } else { word >> 16 };
    (u64::from(high) << 48) | (u64::from(own[1] & 0xFFFF) << 32) | u64::from(own[0])
}

/// E of the bits r, from whichever end of the interval keeps all the precision.
fn exponential(r: u64) -> f64 {
    let unit = |r: u64| (r as f64 + 0.5) * 2f64.powi(-64);
    if r < 1 << 63 { -(-unit(r)).ln_1p() } else { -unit(!r).ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_its_published_stream() {
        let stream = [0, GOLDEN_GAMMA, GOLDEN_GAMMA.wrapping_mul(2)].map(splitmix64);
        assert_eq!(stream, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
    }

    #[test]
    fn philox_gives_its_check_vectors() {
        assert_eq!(philox4x32(7, [0; 2], [0; 4]), [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]);
        assert_eq!(philox4x32(10, [0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn noise_is_finite_at_both_ends_and_smooth_in_the_middle() {
        let gumbel = |r| -exponential(r).ln();
        assert!((45.0..45.1).contains(&gumbel(0)));
        assert!((-3.9..-3.8).contains(&gumbel(u64::MAX)));
        let step = exponential(1 << 63) - exponential((1 << 63) - 1);
        assert!(step.abs() < 1e-15, "{step}");
    }

    #[test]
    fn samples_and_cases_have_their_own_streams() {
        assert_eq!(sample_seed(7, 0), 7);
        assert_ne!(sample_seed(7, 1), sample_seed(8, 0));
        assert_ne!(sample_seed(7, 1), sample_seed(7, 2));
        let hashes = [Case::Draw, Case::Residual, Case::Accept].map(|c| row_hash(7, 5, c));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
    }
}
