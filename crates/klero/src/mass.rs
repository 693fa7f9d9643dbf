//! The sums that decide, as integers.
//!
//! Floating-point sums depend on the order of the terms; top-p, the inverse CDF and the residual must not. So the
//! exponentials are added in f32 only inside a block of 64 consecutive ids, in one fixed tree; everything beyond is a
//! sum of integers, which no order, thread or shard can change.
//!
//! With M the greatest x of the row: an id weighs ⌊exp(x − M) · 2^43⌋; a block with greatest value m and
//! S = Σ exp(x − m) has the mass ⌊S · exp(m − M) · 2^43⌋. At 2^20 ids a total stays within 2^63.

use crate::math::exp_or_zero;

/// Ids of a block.
pub(crate) const BLOCK: usize = 64;
/// Ids of a sixteen, the unit of the sum tree.
pub(crate) const SIXTEEN: usize = 16;

/// One number per id of a block; ids that do not take part hold −∞.
pub(crate) type Block = [f32; BLOCK];

/// A block that takes no part.
pub(crate) const EMPTY: Block = [f32::NEG_INFINITY; BLOCK];

const ONE: f64 = (1u64 << 43) as f64;

/// A value in [0, 2^20] as an integer in units of 2^−43, rounded down.
#[inline(always)]
pub(crate) fn units(value: f64) -> u64 {
    (value * ONE) as u64
}

/// The mass that an integer in units of 2^−43 stands for.
pub(crate) fn value(units: u64) -> f64 {
    units as f64 / ONE
}

/// The weight of one id.
#[inline(always)]
pub(crate) fn weight(x: f32, max: f32) -> u64 {
    weight_of(exp_or_zero(x - max))
}

/// ⌊e · 2^43⌋ for 0 ≤ e ≤ 1: the mantissa of e, shifted as its exponent says. Vectors have no conversion to u64.
#[inline(always)]
pub(crate) fn weight_of(e: f32) -> u64 {
    let bits = e.to_bits();
    let mantissa = u64::from(bits & 0x7f_ffff | 1 << 23) << 20;
    mantissa >> 127u32.wrapping_sub(bits >> 23).min(63)
}

/// m and S of a block: what is kept of 64 ids, eight bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub max: f32,
    pub sum: f32,
}

impl Pair {
    pub(crate) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };

    /// The block's mass beside a row whose greatest value is `max`.
    #[inline(always)]
    pub(crate) fn mass(self, max: f32) -> u64 {
        if self.max == f32::NEG_INFINITY { 0 } else { units(f64::from(self.sum * exp_or_zero(self.max - max))) }
    }

    /// Whether these bits are a pair that a block can have.
    pub(crate) fn is_sound(bits: u64) -> bool {
        let pair = Self::from_bits(bits);
        bits == Self::EMPTY.to_bits() || (pair.max.is_finite() && (0.0..=BLOCK as f32).contains(&pair.sum))
    }

    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.max.to_bits()) << 32 | u64::from(self.sum.to_bits())
    }

    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { max: f32::from_bits((bits >> 32) as u32), sum: f32::from_bits(bits as u32) }
    }
}

/// ⌊top_p · total⌋, exactly: an integer mass is greater than top_p · total if and only if it is greater than this.
pub(crate) fn limit(top_p: f32, total: u64) -> u64 {
    share(top_p, total).0
}

/// The greatest integer below top_p · total: an integer mass is at least top_p · total if and only if it is greater than
/// this. 0 where there is none.
pub(crate) fn limit_below(top_p: f32, total: u64) -> u64 {
    let (whole, exact) = share(top_p, total);
    whole.saturating_sub(u64::from(exact))
}

/// ⌊top_p · total⌋ and whether nothing was rounded away.
fn share(top_p: f32, total: u64) -> (u64, bool) {
    let bits = top_p.to_bits();
    let exponent = (bits >> 23) as i32;
    // top_p = mantissa · 2^(max(exponent, 1) − 150), at most 1.
    let mantissa = u128::from(bits & 0x7f_ffff) | if exponent > 0 { 1 << 23 } else { 0 };
    let (product, shift) = (mantissa * u128::from(total), (150 - exponent.max(1)) as u32);
    let whole = product.checked_shr(shift).unwrap_or(0);
    (whole as u64, whole.checked_shl(shift).unwrap_or(0) == product)
}

/// ⌊u · total⌋ for u = ⌊z / 2^11⌋ · 2^−53, exactly.
pub(crate) fn target(z: u64, total: u64) -> u64 {
    ((u128::from(z >> 11) * u128::from(total)) >> 53) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_exact() {
        assert_eq!(limit(1.0, 1 << 63), 1 << 63);
        assert_eq!(limit(0.5, 7), 3);
        assert_eq!(limit(f32::from_bits(1), 1 << 63), 0);
        assert_eq!(limit(0.0, u64::MAX), 0);
        assert_eq!(limit(0.95, 1 << 43), (f64::from(0.95f32) * ONE) as u64);
        assert_eq!(limit(f32::MIN_POSITIVE, 1 << 63), 0);
        assert_eq!(limit(2f32.powi(-60), 1 << 63), 8);
    }

    #[test]
    fn limit_below_is_exact() {
        assert_eq!(limit_below(0.5, 8), 3);
        assert_eq!(limit_below(0.5, 7), 3);
        assert_eq!(limit_below(0.75, 1 << 63), (3 << 61) - 1);
        assert_eq!(limit_below(f32::from_bits(1), 1 << 43), 0);
        assert_eq!(limit_below(0.0, 5), 0);
    }

    #[test]
    fn target_stays_below_the_total() {
        for total in [1, 2, 1 << 43, 1 << 63] {
            assert_eq!(target(0, total), 0);
            assert!(target(u64::MAX, total) < total);
        }
    }

    #[test]
    fn a_weight_is_the_floor_of_the_product() {
        for bits in (0..=1f32.to_bits()).step_by(9973).chain([1, 1f32.to_bits() - 1, 1f32.to_bits()]) {
            let e = f32::from_bits(bits);
            assert_eq!(weight_of(e), (f64::from(e) * ONE) as u64, "{e:e}");
        }
    }

    #[test]
    fn weights_are_monotone_and_end_at_zero() {
        assert_eq!(weight(3.0, 3.0), 1 << 43);
        assert_eq!(weight(f32::NEG_INFINITY, 3.0), 0);
        assert_eq!(weight(-40.0, 0.0), 0);
        assert!(weight(-29.0, 0.0) > 0);
    }
}
