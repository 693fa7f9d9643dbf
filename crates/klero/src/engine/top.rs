//! The best ids of a row, as many as fit, and how far down the list is complete.

use crate::cpu::block::{at_least, ones};
use crate::mass::Block;
use crate::order::Ranked;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ids that are let in between two cuts of a full list: half as many as it holds, so that a cut costs a constant for each.
fn slack(capacity: usize) -> usize {
    (capacity / 2).clamp(64, 512)
}

/// The best ids. Every id above `floor` that was offered is on the list.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    capacity: usize,
    floor: Ranked,
    ids: Vec<Ranked>,
}

impl Top {
    /// Lists at most `capacity` ids.
    pub(crate) fn new(capacity: usize) -> Self {
        // Taken at once, so that the list never holds two of its sizes while it grows.
        let room = if capacity > 0 { capacity + slack(capacity) + 1 } else { 0 };
        Self { capacity, floor: Ranked::LAST, ids: Vec::with_capacity(room) }
    }

    /// Offers an id with x greater than −∞.
    pub(crate) fn offer(&mut self, ranked: Ranked) {
        if ranked > self.floor && self.capacity > 0 {
            self.ids.push(ranked);
        }
        if self.ids.len() > self.capacity + slack(self.capacity) {
            self.cut();
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        other.ids.into_iter().for_each(|ranked| self.offer(ranked));
    }

    /// The list, best first.
    pub(crate) fn sorted(mut self) -> Vec<Ranked> {
        self.cut();
        self.ids.sort_unstable_by(|a, b| b.cmp(a));
        self.ids.shrink_to_fit();
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

/// A list that several threads fill. One a row and not one a thread, since memory must not grow with the threads.
pub(crate) struct SharedTop {
    capacity: usize,
    floor: AtomicU64,
    top: Mutex<Top>,
}

impl SharedTop {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, floor: AtomicU64::new(Ranked::LAST.0), top: Mutex::new(Top::new(capacity)) }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Ids with a smaller x have no place on the list.
    pub(crate) fn floor(&self) -> f32 {
        match (self.capacity, self.floor.load(Relaxed)) {
            (0, _) => f32::INFINITY,
            (_, floor) if floor == Ranked::LAST.0 => f32::NEG_INFINITY,
            (_, floor) => Ranked(floor).x(),
        }
    }

    /// Offers the ids of a block whose x is finite and at least `least`.
    pub(crate) fn offer(&self, first_id: u32, x: &Block, least: f32) {
        let mask = at_least(x, least.max(self.floor()).max(f32::MIN));
        if mask == 0 {
            return;
        }
        let mut top = self.open();
        for i in ones(mask) {
            top.offer(Ranked::new(x[i], first_id + i as u32));
        }
        // Only where it has risen: other threads read it all the time.
        if top.floor.0 != self.floor.load(Relaxed) {
            self.floor.store(top.floor.0, Relaxed);
        }
    }

    /// Offers ids that another list holds.
    pub(crate) fn extend(&self, ids: impl IntoIterator<Item = Ranked>) {
        let mut top = self.open();
        ids.into_iter().for_each(|ranked| top.offer(ranked));
    }

    /// The list so far.
    pub(crate) fn snapshot(&self) -> Vec<Ranked> {
        self.open().clone().sorted()
    }

    /// The list, best first.
    pub(crate) fn sorted(self) -> Vec<Ranked> {
        self.top.into_inner().unwrap_or_else(PoisonError::into_inner).sorted()
    }

    fn open(&self) -> MutexGuard<'_, Top> {
        self.top.lock().unwrap_or_else(PoisonError::into_inner)
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
        for capacity in [0, 1, 7, 100, 4999, 5000, 6000] {
            let (shared, mut own) = (SharedTop::new(capacity), Top::new(capacity));
            for (i, chunk) in x.chunks(64).enumerate() {
                let first = i as u32 * 64;
                match (i % 2, chunk.try_into()) {
                    (0, Ok(block)) => shared.offer(first, block, f32::MIN),
                    _ => chunk.iter().zip(first..).for_each(|(x, id)| own.offer(Ranked::new(*x, id))),
                }
            }
            shared.extend(own.sorted());
            assert_eq!(shared.snapshot(), truth[..capacity.min(5000)]);
            assert_eq!(shared.sorted(), truth[..capacity.min(5000)]);
        }
    }
}
