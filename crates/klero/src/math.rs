//! The exponential and the logarithms that decide tokens.
//!
//! A decision must come out the same on every machine, so it cannot rest on a system library whose last bits differ
//! from one to the next. These functions are fixed sequences of IEEE add, multiply, fused multiply-add and divide.
//!
//! | function | domain | result against the true value |
//! |---|---|---|
//! | [`exp`] | every f32 | within 1.1 ulp (checked for every argument), 0 below −104, +∞ above 88.8 |
//! | [`ln`] | positive f64 | within 2 ulp |
//! | [`ln_1p`] | −½ ≤ v ≤ 0 | within 2 ulp |
//!
//! `exp` is also monotone, with exp(0) = 1, exp(−∞) = +0 and exp(y) ≤ 1 for y ≤ 0: checked for every f32 argument by
//! the tests, since integer weights are built on it.

pub(crate) const MAGIC: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer that sits in the low mantissa bits
pub(crate) const LN2_HIGH: f32 = 0.693_145_75; // the first twelve bits of ln 2, so that n · LN2_HIGH is exact
pub(crate) const LN2_LOW: f32 = 1.428_606_8e-6;
/// P, the highest power first.
pub(crate) const P: [f32; 5] = [1.392_637_6e-3, 8.363_333_5e-3, 0.041_666_552, 0.166_665_76, 0.5];
/// The least exponent of [`exp_or_zero`].
pub(crate) const LEAST: f32 = -87.0;

/// e^y in f32.
///
/// With n the integer nearest to y / ln 2 and r = y − n·ln 2 (so |r| ≤ 0.3466), e^y = 2^n · e^r. e^r is
/// 1 + r + r²·P(r), P of degree 4 interpolated at Chebyshev nodes; 2^n is applied in two exact halves, so that a
/// result below the normal range is rounded once.
///
/// ```
/// assert_eq!(klero::math::exp(0.0), 1.0);
/// assert_eq!(klero::math::exp(f32::NEG_INFINITY), 0.0);
/// assert!((klero::math::exp(-1.0) - 0.36787944).abs() < 1e-7);
/// ```
#[inline(always)]
#[allow(clippy::manual_clamp)] // two plain selections; `clamp` would treat NaN in more steps
pub fn exp(y: f32) -> f32 {
    let y = if y < -104.0 { -104.0 } else { y };
    let y = if y > 89.0 { 89.0 } else { y };
    let shifted = y.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let fraction = fraction(y, shifted - MAGIC);
    let n = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let half = n >> 1;
    fraction * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// e^r for r = y − n · ln 2.
#[inline(always)]
fn fraction(y: f32, n: f32) -> f32 {
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, y));
    let p = P[1..].iter().fold(P[0], |p, next| r.mul_add(p, *next));
    (r * r).mul_add(p, r) + 1.0
}

/// The bits of [`exp`] for −87 ≤ y ≤ 0, and 0 below (and for NaN).
///
/// It is cheaper by the two multiplications, and by the hundred cycles that processors take for each result below the normal
/// range. Where every sum has a term 1 and every integer weight counts in units of 2^−43, nobody can tell it from [`exp`].
#[inline(always)]
pub(crate) fn exp_or_zero(y: f32) -> f32 {
    let shifted = y.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let scaled = fraction(y, shifted - MAGIC).to_bits().wrapping_add(shifted.to_bits() << 23);
    if y >= LEAST { f32::from_bits(scaled) } else { 0.0 }
}

/// 2^n for −126 ≤ n ≤ 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// e^y in f64 for −700 ≤ y ≤ 0, within 1 ulp; used for the exactness allowance e^(−δ) of a verification.
///
/// The series of e^r on |r| ≤ 0.3466 to the fourteenth power: the first term left out is below 2^−60.
pub(crate) fn exp_f64(y: f64) -> f64 {
    let n = (y * std::f64::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-LN2_LOW_64, n.mul_add(-LN2_HIGH_64, y));
    let mut sum = 1.0;
    for k in (2..=14u32).rev() {
        sum = (r / f64::from(k)).mul_add(sum, 1.0);
    }
    r.mul_add(sum, 1.0) * f64::from_bits(((n as i64 + 1023) as u64) << 52)
}

const LN2_HIGH_64: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000); // 32 bits of ln 2, so that k · LN2_HIGH_64 is exact
const LN2_LOW_64: f64 = 1.908_214_929_270_587_7e-10;

/// ln x in f64, for positive x (subnormal ones too); ln 0 = −∞.
///
/// With x = 2^k · m and √½ ≤ m < √2: ln x = k·ln 2 + 2·artanh((m − 1)/(m + 1)).
///
/// ```
/// assert_eq!(klero::math::ln(1.0), 0.0);
/// assert!((klero::math::ln(10.0) - 10f64.ln()).abs() < 1e-15);
/// ```
pub fn ln(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    let (x, raised) = if x < f64::MIN_POSITIVE { (x * 2f64.powi(54), 54) } else { (x, 0) };
    // Adding 1 − √½ (in units of the mantissa) before the split moves m from [1, 2) to [√½, √2).
    let bits = x.to_bits() + (0x3ff0_0000_0000_0000 - 0x3fe6_a09e_667f_3bcd);
    let k = (bits >> 52) as i64 - 1023;
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + 0x3fe6_a09e_667f_3bcd);
    let k = (k - raised) as f64;
    let s = (m - 1.0) / (m + 1.0);
    k.mul_add(LN2_HIGH_64, k.mul_add(LN2_LOW_64, twice_artanh(s)))
}

/// ln(1 + v) in f64, for −½ ≤ v ≤ 0: 2·artanh(v / (2 + v)).
///
/// ```
/// let tiny = klero::math::ln_1p(-1e-18);
/// assert!((tiny + 1e-18).abs() < 1e-33);
/// ```
pub fn ln_1p(v: f64) -> f64 {
    twice_artanh(v / (2.0 + v))
}

/// 2·artanh(s) = 2s + 2s·(s²/3 + s⁴/5 + …) for |s| ≤ 1/3.
///
/// Sixteen terms: the first one left out is below 9^−17 / 35 of the result, 1/64 of a rounding.
fn twice_artanh(s: f64) -> f64 {
    let square = s * s;
    let mut sum = 0.0;
    for k in (1..=16u32).rev() {
        sum = square * (sum + 1.0 / f64::from(2 * k + 1));
    }
    (2.0 * s).mul_add(sum, 2.0 * s)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::cpu::widest! {
        /// Checks the arguments with bits `low..=high`, whose values go one way, and returns the greatest error in ulp.
        fn worst_error(low: u32, high: u32) -> f64 = check_arguments;
    }

    #[inline(always)]
    fn check_arguments(low: u32, high: u32) -> f64 {
        let mut worst = 0.0f64;
        let mut last = exp(f32::from_bits(low));
        for bits in low..=high {
            let y = f32::from_bits(bits);
            let found = exp(y);
            let ordered = if y.is_sign_negative() { found <= last } else { found >= last };
            assert!(ordered, "exp is not monotone at {y:e}");
            assert!(y > 0.0 || (0.0..=1.0).contains(&found), "exp({y:e}) = {found:e}");
            last = found;
            let truth = f64::from(y).exp();
            if truth < f64::from(f32::MAX) {
                let power = f64::from_bits(truth.to_bits() & 0x7ff0_0000_0000_0000).max(f64::from(f32::MIN_POSITIVE));
                worst = worst.max((f64::from(found) - truth).abs() / (power * f64::from(f32::EPSILON)));
            }
        }
        worst
    }

    #[test]
    fn exp_or_zero_has_the_bits_of_exp_where_it_is_not_zero() {
        for bits in (LEAST.to_bits()..f32::INFINITY.to_bits() | 1 << 31).step_by(997).chain([LEAST.to_bits(), 1 << 31])
        {
            let y = f32::from_bits(bits);
            assert_eq!(exp_or_zero(y), if y < LEAST { 0.0 } else { exp(y) }, "{y:e}");
        }
        for bits in ((-0f32).to_bits()..=LEAST.to_bits()).step_by(331) {
            let y = f32::from_bits(bits);
            assert_eq!(exp_or_zero(y).to_bits(), exp(y).to_bits(), "{y:e}");
        }
        assert_eq!((exp_or_zero(f32::NEG_INFINITY), exp_or_zero(f32::NAN)), (0.0, 0.0));
    }

    #[test]
    fn exp_is_monotone_and_within_its_bound_for_every_argument() {
        use rayon::prelude::*;
        const CHUNK: usize = 1 << 22;
        let pieces =
            |low: u32, high: u32| (low..=high).step_by(CHUNK).map(move |from| (from, high.min(from + CHUNK as u32)));
        let ranges: Vec<(u32, u32)> =
            pieces(0, 89f32.to_bits()).chain(pieces((-0f32).to_bits(), (-105f32).to_bits())).collect();
        let worst = ranges.into_par_iter().map(|(low, high)| worst_error(low, high)).reduce(|| 0.0, f64::max);
        assert!(worst <= 1.1, "exp is {worst} ulp off");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-1e30), 0.0);
    }

    /// Distance in units of the last place of the truth.
    fn ulps(found: f64, truth: f64) -> f64 {
        if found == truth {
            0.0
        } else {
            (found - truth).abs() / (truth.abs() * f64::EPSILON / 2.0).max(f64::MIN_POSITIVE)
        }
    }

    #[test]
    fn logarithms_are_within_two_ulp() {
        let mut state = 1u64;
        let mut worst = (0.0f64, 0.0f64);
        for _ in 0..2_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 11) as f64 * 2f64.powi(-53);
            let scale = 2f64.powi((state % 140) as i32 - 70);
            for x in [unit + f64::MIN_POSITIVE, 0.5 + unit, (0.5 + unit) * scale] {
                worst.0 = worst.0.max(ulps(ln(x), x.ln()));
            }
            for v in [-unit / 2.0, -unit * scale.min(0.5)] {
                worst.1 = worst.1.max(ulps(ln_1p(v), v.ln_1p()));
            }
        }
        // Half an ulp of the reference's own is in these distances, and an ulp is one or two of these units.
        assert!(worst.0 <= 5.0 && worst.1 <= 5.0, "{worst:?}");
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert!((ln(f64::from_bits(1)) - f64::from_bits(1).ln()).abs() < 1e-12);
        assert_eq!(ln_1p(0.0), 0.0);
    }
}
