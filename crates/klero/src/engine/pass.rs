//! One pass over the logits: every thread takes tiles until none is left, and each row's visitor sees its blocks.

use super::Call;
use super::exchange::{Damaged, Reader, Writer};
use super::plan::Plan;
use crate::Error;
use crate::mass::{BLOCK, Block, EMPTY};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a pass does for one row. Blocks come in any order, from several threads and several shards.
pub(crate) trait Visit: Sync {
    /// What a thread gathers on its own before it is merged.
    type Local;

    /// The row to visit.
    fn plan(&self) -> &Plan<'_>;
    /// An empty gathering.
    fn local(&self) -> Self::Local;
    /// Looks at the logits of one block; ids that do not belong to the row are −∞.
    fn block(&self, local: &mut Self::Local, block: usize, logits: &Block);
    /// Adds what one thread gathered.
    fn merge(&self, local: Self::Local);
    /// Writes what this shard gathered of its `ids`.
    fn write(&self, ids: &Range<usize>, out: &mut Writer);
    /// Adds what the shard that holds `ids` gathered.
    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged>;
}

/// Visits all tiles on the current rayon pool, in one parallel region, and joins what other shards found in theirs.
pub(crate) async fn pass<V: Visit>(call: &Call<'_>, visits: &[V]) -> Result<(), Error> {
    visit_tiles(call, visits);
    call.exchange.share(visits, |visit, ids, out| visit.write(ids, out), |visit, ids, from| visit.read(ids, from)).await
}

fn visit_tiles<V: Visit>(call: &Call<'_>, visits: &[V]) {
    let (tiles, first) = (call.tiles, call.tiles.ids().start);
    let valid = visits.iter().map(|visit| visit.plan().valid).max().unwrap_or(0).min(tiles.ids().end);
    // No wider than the vocabulary, which a thread's buffer would hold for nothing.
    let tile = call.tile.min(valid.saturating_sub(first).next_multiple_of(BLOCK)).max(BLOCK);
    let mut rows: Vec<usize> = visits.iter().map(|visit| visit.plan().row).collect();
    rows.dedup();
    let slots = slots(visits);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut locals: Vec<V::Local> = visits.iter().map(Visit::local).collect();
        let are_ready = rows.first().is_none_or(|row| tiles.ready(*row, first..first).is_some());
        let mut filled = vec![0.0; if are_ready { 0 } else { rows.len() * tile }];
        loop {
            let start = first + next.fetch_add(1, Relaxed) * tile;
            if start >= valid {
                break;
            }
            let ids = start..(start + tile).min(valid);
            if !are_ready {
                tiles.fill(&rows, ids.clone(), &mut filled, tile);
            }
            for ((visit, local), slot) in visits.iter().zip(&mut locals).zip(&slots) {
                let ready = tiles.ready(visit.plan().row, ids.clone());
                show(visit, local, start, ready.unwrap_or_else(|| &filled[slot * tile..][..ids.len()]));
            }
        }
        for (visit, local) in visits.iter().zip(locals) {
            visit.merge(local);
        }
    };
    // A copy for every thread; one that no thread was free for finds the tiles gone.
    let copies = valid.saturating_sub(first).div_ceil(tile).min(rayon::current_num_threads());
    (0..copies).into_par_iter().with_max_len(1).for_each(|_| work());
}

/// Where each visit's row lies among the rows that are filled: visits of one row follow each other and share it.
fn slots<V: Visit>(visits: &[V]) -> Vec<usize> {
    let mut slot = 0;
    let mut slots = vec![0; visits.len()];
    for (i, pair) in visits.windows(2).enumerate() {
        slot += usize::from(pair[0].plan().row != pair[1].plan().row);
        slots[i + 1] = slot;
    }
    slots
}

fn show<V: Visit>(visit: &V, local: &mut V::Local, start: usize, logits: &[f32]) {
    let logits = &logits[..logits.len().min(visit.plan().valid.saturating_sub(start))];
    let (blocks, tail) = logits.as_chunks::<BLOCK>();
    for (i, block) in blocks.iter().enumerate() {
        visit.block(local, start / BLOCK + i, block);
    }
    if !tail.is_empty() {
        let mut block = EMPTY;
        block[..tail.len()].copy_from_slice(tail);
        visit.block(local, start / BLOCK + blocks.len(), &block);
    }
}
