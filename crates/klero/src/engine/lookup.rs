//! Single logits, looked up after the passes: those of the token drawn, of the ids asked for, of a block of the CDF.

use super::Call;
use super::exchange::{Damaged, Reader, Writer};
use super::plan::Plan;
use crate::Error;
use crate::mass::{BLOCK, Block, EMPTY};
use std::ops::Range;
use std::sync::Mutex;

/// Some ids of a block of a row, with their logits once they are looked up.
pub(crate) struct Wanted {
    row: usize,
    ids: Range<usize>,
    logits: Mutex<Block>,
}

impl Wanted {
    /// One id.
    pub(crate) fn id(plan: &Plan, id: u32) -> Self {
        let id = id as usize;
        Self { row: plan.row, ids: id..id + 1, logits: Mutex::new(EMPTY) }
    }

    /// A block.
    pub(crate) fn block(plan: &Plan, block: usize) -> Self {
        let ids = block * BLOCK..((block + 1) * BLOCK).min(plan.valid);
        Self { row: plan.row, ids, logits: Mutex::new(EMPTY) }
    }

    /// Whether the id is among those wanted.
    pub(crate) fn holds(&self, id: u32) -> bool {
        self.ids.contains(&(id as usize))
    }

    /// The logits of the block that holds the ids, −∞ beside them.
    pub(crate) fn found(&self) -> Block {
        *self.logits.lock().expect("no thread panicked")
    }

    fn lies_in(&self, ids: &Range<usize>) -> bool {
        ids.contains(&self.ids.start)
    }

    fn write(&self, ids: &Range<usize>, out: &mut Writer) {
        if self.lies_in(ids) {
            self.found()[self.ids.start % BLOCK..][..self.ids.len()].iter().for_each(|l| out.f32(*l));
        }
    }

    fn read(&self, ids: &Range<usize>, from: &mut Reader) -> Result<(), Damaged> {
        if self.lies_in(ids) {
            let values: Vec<f32> = self.ids.clone().map(|_| from.f32()).collect::<Result<_, _>>()?;
            self.put(&values);
        }
        Ok(())
    }

    fn put(&self, values: &[f32]) {
        let first = self.ids.start % BLOCK;
        self.logits.lock().expect("no thread panicked")[first..][..values.len()].copy_from_slice(values);
    }
}

/// Looks up everything wanted, each logit in the shard that holds it.
pub(crate) async fn look_up(call: &Call<'_>, wanted: &[&Wanted]) -> Result<(), Error> {
    for wanted in wanted.iter().filter(|wanted| wanted.lies_in(&call.tiles.ids())) {
        let mut logits = EMPTY;
        call.tiles.fill(&[wanted.row], wanted.ids.clone(), &mut logits, BLOCK);
        wanted.put(&logits[..wanted.ids.len()]);
    }
    call.exchange
        .share(wanted, |wanted, ids, out| wanted.write(ids, out), |wanted, ids, from| wanted.read(ids, from))
        .await
}
