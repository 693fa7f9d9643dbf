//! The random bits of a row: a hash of its seed, its position and the case, and nothing else.
//!
//! Nothing is kept between calls, so a draw can be repeated from `(seed, position)` alone, whatever was drawn before,
//! beside it, or on which machine. The hash is DeepInfer's (its `random_sampling_ref`), so its tokens can be had again.

/// 2^64 divided by the golden ratio, the increment of SplitMix64.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a draft stream adds to the seed.
pub const DRAFT_SEED_OFFSET: u64 = 1_000_000_007;

/// SplitMix64: adds [`GOLDEN`], then mixes.
///
/// ```
/// assert_eq!(klero::hash::splitmix64(0), 0xe220_a839_7b1d_cdaf);
/// ```
pub fn splitmix64(y: u64) -> u64 {
    let z = y.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What a random number is for; each case has numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// An ordinary draw, also that of the row after the last draft.
    Fresh = 0,
    /// The draw that replaces a rejected draft.
    Residual = 1,
    /// The test that accepts or rejects a draft.
    Accept = 2,
}

/// z, the 64 random bits of `(seed, position, case)`.
///
/// With q = (3·position + case)·[`GOLDEN`]: z = SplitMix64(seed + (q ^ (q << 13))), and for [`Case::Accept`]
/// z = SplitMix64(seed ^ q). All arithmetic wraps.
///
/// ```
/// use klero::hash::{Case, row_hash, uniform};
/// assert!((uniform(row_hash(42, 7, Case::Fresh)) - 0.27898193635640955).abs() < 1e-16);
/// ```
pub fn row_hash(seed: u64, position: u64, case: Case) -> u64 {
    let q = position.wrapping_mul(3).wrapping_add(case as u64).wrapping_mul(GOLDEN);
    match case {
        Case::Fresh | Case::Residual => splitmix64(seed.wrapping_add(q ^ (q << 13))),
        Case::Accept => splitmix64(seed ^ q),
    }
}

/// u = ⌊z / 2^11⌋ · 2^−53, in [0, 1).
pub fn uniform(z: u64) -> f64 {
    (z >> 11) as f64 * 2f64.powi(-53)
}

/// Which stream of random numbers a row takes: the target model and its draft do not share theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Stream {
    /// The model whose tokens are emitted.
    #[default]
    #[serde(rename = "target")]
    Target,
    /// The draft module ("mtp"); adds [`DRAFT_SEED_OFFSET`] to the seed.
    #[serde(rename = "mtp")]
    Draft,
}

impl Stream {
    /// The seed that this stream hashes.
    pub fn seed(self, seed: u64) -> u64 {
        match self {
            Self::Target => seed,
            Self::Draft => seed.wrapping_add(DRAFT_SEED_OFFSET),
        }
    }
}
