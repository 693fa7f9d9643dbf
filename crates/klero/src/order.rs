//! The order of ids: x descending, then id ascending, as one integer each.

use std::ops::Range;

/// An id with its x: the greater integer comes first in the order.
///
/// The high half is the bits of x made monotone (−0 counts as +0), the low half the complement of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ranked(pub u64);

impl Ranked {
    /// Behind every id.
    pub(crate) const LAST: Self = Self(0);
    #[inline(always)]
    pub(crate) fn new(x: f32, id: u32) -> Self {
        let bits = (x + 0.0).to_bits();
        let key = if bits < 1 << 31 { bits | 1 << 31 } else { !bits };
        Self(u64::from(key) << 32 | u64::from(!id))
    }

    pub(crate) fn x(self) -> f32 {
        let key = (self.0 >> 32) as u32;
        f32::from_bits(if key >= 1 << 31 { key & !(1 << 31) } else { !key })
    }

    pub(crate) fn id(self) -> u32 {
        !(self.0 as u32)
    }

    /// Whether this is one of `ids` with a finite x.
    pub(crate) fn is_sound(self, ids: &Range<usize>) -> bool {
        ids.contains(&(self.id() as usize)) && self.x().is_finite()
    }
}

/// Where an id stands in the order of a row whose greatest x is `max`: the *smaller* integer comes first.
///
/// Above stands the depth max − x as the bits of an f32, which are ordered as positive numbers are; below it the exact
/// order, since different x can have one depth. So a range of places is a range of the order, and places near each other
/// have masses near each other: what a search by halving wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub u128);

impl Place {
    /// Before every id.
    pub(crate) const FIRST: Self = Self(0);
    /// Behind every id: the last place of an infinite depth.
    pub(crate) const END: Self = Self(0x7f80_0000 << 64 | u64::MAX as u128);

    #[inline(always)]
    pub(crate) fn new(x: f32, id: u32, max: f32) -> Self {
        Self::of(Ranked::new(x, id), max)
    }

    #[inline(always)]
    pub(crate) fn of(ranked: Ranked, max: f32) -> Self {
        let depth = (max - ranked.x()) + 0.0;
        Self(u128::from(depth.to_bits()) << 64 | u128::from(!ranked.0))
    }

    /// Before every id that lies this deep or deeper.
    pub(crate) fn at_depth(depth: f32) -> Self {
        Self(u128::from(depth.to_bits()) << 64)
    }

    /// Whether an id stands before this place; as a rule its depth alone tells.
    #[inline(always)]
    pub(crate) fn is_behind(self, x: f32, id: u32, max: f32) -> bool {
        let (depth, own) = (max - x, self.depth());
        depth < own || (depth == own && Self::new(x, id, max) < self)
    }

    /// max − x of the ids here.
    pub(crate) fn depth(self) -> f32 {
        f32::from_bits((self.0 >> 64) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_order_of_ids() {
        let max = 1000.0;
        let xs = [max, 999.999_94, 1.0, 1e-30, 0.0, -1e-30, -1.0, -1e38];
        for (i, a) in xs.iter().enumerate() {
            for (j, b) in xs.iter().enumerate() {
                let (one, other) = (Place::new(*a, 5, max), Place::new(*b, 6, max));
                assert_eq!(one < other, i <= j, "{a} {b}");
                assert_eq!(one < other, Ranked::new(*a, 5) > Ranked::new(*b, 6));
            }
            assert_eq!(Place::END.depth(), f32::INFINITY);
            assert!(Place::new(*a, 5, max) > Place::FIRST && Place::new(*a, 5, max) < Place::END);
        }
        for (x, id) in xs.iter().flat_map(|x| [(*x, 4), (*x, 5), (*x, 6)]) {
            for end in xs.map(|x| Place::new(x, 5, max)).into_iter().chain([Place::FIRST, Place::END]) {
                assert_eq!(end.is_behind(x, id, max), Place::new(x, id, max) < end, "{x} {id} {end:?}");
            }
        }
        assert_eq!(Place::new(-0.0, 1, 0.0), Place::new(0.0, 1, -0.0));
        assert_eq!(Place::new(990.0, 1, max).depth(), 10.0);
        assert!(Place::at_depth(10.0) <= Place::new(990.0, 0, max));
        assert!(Place::at_depth(10.0) > Place::new(990.1, 0, max));
    }

    #[test]
    fn order_is_x_descending_then_id_ascending() {
        let xs = [f32::NEG_INFINITY, -1e30, -1.0, -1e-45, 0.0, 1e-45, 1.0, 1e30];
        for (i, a) in xs.iter().enumerate() {
            for (j, b) in xs.iter().enumerate() {
                let ahead = Ranked::new(*a, 5) > Ranked::new(*b, 6);
                assert_eq!(ahead, i >= j);
            }
            let ranked = Ranked::new(*a, 77);
            assert_eq!((ranked.x(), ranked.id()), (*a, 77));
            assert!(Ranked::LAST < ranked);
        }
        assert_eq!(Ranked::new(-0.0, 3), Ranked::new(0.0, 3));
    }
}
