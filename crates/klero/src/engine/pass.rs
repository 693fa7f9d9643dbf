//! One pass over the logits: every thread takes tiles until none is left, and each row's visitor sees its blocks.

use super::Tiles;
use crate::mass::{BLOCK, Block, EMPTY};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a pass does for one row. Blocks come in any order, from several threads.
pub(crate) trait Visit: Sync {
    /// What a thread gathers on its own before it is merged.
    type Local;

    /// The row of logits to visit.
    fn row(&self) -> usize;
    /// How many ids take part; those of a block beyond it are shown as −∞.
    fn valid(&self) -> usize;
    /// An empty gathering.
    fn local(&self) -> Self::Local;
    /// Looks at the logits of one block.
    fn block(&self, local: &mut Self::Local, block: usize, logits: &Block);
    /// Adds what one thread gathered.
    fn merge(&self, local: Self::Local);
}

/// Visits all tiles on the current rayon pool, in one parallel region.
pub(crate) fn pass<V: Visit>(tiles: &dyn Tiles, tile: usize, visits: &[V]) {
    let valid = visits.iter().map(Visit::valid).max().unwrap_or(0);
    let rows: Vec<usize> = visits.iter().map(Visit::row).collect();
    let count = valid.div_ceil(tile);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut locals: Vec<V::Local> = visits.iter().map(Visit::local).collect();
        let mut logits = vec![0.0; rows.len() * tile];
        loop {
            let start = next.fetch_add(1, Relaxed) * tile;
            if start >= valid {
                break;
            }
            let ids = start..(start + tile).min(valid);
            tiles.fill(&rows, ids.clone(), &mut logits, tile);
            for ((visit, local), row) in visits.iter().zip(&mut locals).zip(logits.chunks_exact(tile)) {
                show(visit, local, start, &row[..ids.len()]);
            }
        }
        for (visit, local) in visits.iter().zip(locals) {
            visit.merge(local);
        }
    };
    // A copy for every thread; one that no thread was free for finds the tiles gone.
    let copies = count.min(rayon::current_num_threads());
    (0..copies).into_par_iter().with_max_len(1).for_each(|_| work());
}

fn show<V: Visit>(visit: &V, local: &mut V::Local, start: usize, logits: &[f32]) {
    let logits = &logits[..logits.len().min(visit.valid().saturating_sub(start))];
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
