//! The order of ids: x descending, then id ascending, as one integer each.

/// An id with its x: the greater integer comes first in the order.
///
/// The high half is the bits of x made monotone (−0 counts as +0), the low half the complement of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ranked(pub u64);

impl Ranked {
    /// Behind every id.
    pub(crate) const LAST: Self = Self(0);
    /// Before every id.
    pub(crate) const FIRST: Self = Self(u64::MAX);

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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(Ranked::LAST < ranked && ranked < Ranked::FIRST);
        }
        assert_eq!(Ranked::new(-0.0, 3), Ranked::new(0.0, 3));
    }
}
