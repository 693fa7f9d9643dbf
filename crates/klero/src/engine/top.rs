//! The best ids of a row, as many as fit, and how far down the list is complete.

use crate::order::Ranked;

/// The best ids below a ceiling. Every id above `floor` and below the ceiling that was offered is on the list.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    capacity: usize,
    ceiling: Ranked,
    floor: Ranked,
    ids: Vec<Ranked>,
}

impl Top {
    /// Lists at most `capacity` ids behind `ceiling`.
    pub(crate) fn new(capacity: usize, ceiling: Ranked) -> Self {
        Self { capacity, ceiling, floor: Ranked::LAST, ids: Vec::new() }
    }

    /// Whether an id with this x could be listed.
    pub(crate) fn may_hold(&self, x: f32) -> bool {
        self.capacity > 0 && x > f32::NEG_INFINITY && Ranked::new(x, 0) > self.floor
    }

    /// Offers the ids of a block.
    pub(crate) fn offer(&mut self, first_id: u32, x: &[f32]) {
        for (id, &x) in (first_id..).zip(x) {
            let ranked = Ranked::new(x, id);
            if x > f32::NEG_INFINITY && ranked > self.floor && ranked < self.ceiling {
                self.ids.push(ranked);
            }
        }
        // Twice the capacity is let in between two cuts, so that a cut costs a constant for each id.
        if self.ids.len() >= 2 * self.capacity + x.len() {
            self.cut();
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.floor = self.floor.max(other.floor);
        self.ids.extend(other.ids);
        self.ids.retain(|ranked| *ranked > self.floor);
        self.cut();
    }

    /// The list, best first.
    pub(crate) fn sorted(mut self) -> Vec<Ranked> {
        self.ids.sort_unstable_by(|a, b| b.cmp(a));
        self.ids
    }

    fn cut(&mut self) {
        if self.ids.len() > self.capacity {
            let (_, dropped, _) = self.ids.select_nth_unstable_by(self.capacity, |a, b| b.cmp(a));
            self.floor = *dropped;
            self.ids.truncate(self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_the_best_ids_however_it_was_gathered() {
        let x: Vec<f32> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 22) as f32).collect();
        let mut truth: Vec<Ranked> = x.iter().zip(0..).map(|(x, id)| Ranked::new(*x, id)).collect();
        truth.sort_unstable_by(|a, b| b.cmp(a));
        for capacity in [1, 7, 100, 4999, 5000, 6000] {
            let mut parts = [Top::new(capacity, truth[3]), Top::new(capacity, truth[3])];
            for (i, chunk) in x.chunks(64).enumerate() {
                parts[i % 2].offer(i as u32 * 64, chunk);
            }
            let [mut all, other] = parts;
            all.merge(other);
            let wanted = &truth[4..(4 + capacity).min(5000)];
            assert_eq!(all.sorted(), wanted);
        }
    }
}
