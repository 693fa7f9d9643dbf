//! What a draw keeps on the card between its kernels.

use super::error::check;
use super::kernel::MAX_SAMPLES;
use super::{CudaError, Device};
use crate::Error;
use cudarc::driver::{CudaSlice, DevicePtr};

/// What is wanted besides tokens and statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// Log-normalisers and logprobs. They take canonical exponentials of all logits.
    pub logprobs: bool,
    /// How many shards of the vocabulary race on this card; 0 is 1.
    pub shards: usize,
}

/// Memory of a draw of up to some rows, to be used by one call at a time: 8 bytes for each 64 ids of a row with logprobs.
pub struct Workspace {
    pub(super) rows: usize,
    pub(super) samples: usize,
    pub(super) blocks: usize,
    pub(super) slots: usize,
    best: CudaSlice<u64>,
    fault: CudaSlice<u32>,
    pairs: Option<CudaSlice<u64>>,
    candidates: Option<CudaSlice<u64>>,
}

/// Where a part of a call keeps its things.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Addresses {
    pub best: u64,
    pub fault: u64,
    pub pairs: u64,
    pub candidates: u64,
}

impl Workspace {
    pub(super) fn new(
        device: &Device,
        rows: usize,
        samples: usize,
        blocks: usize,
        slots: usize,
        want: Want,
    ) -> Result<Self, CudaError> {
        if samples == 0 || samples > MAX_SAMPLES {
            return Err(Error::Shape(format!("samples is {samples}, must be 1 to {MAX_SAMPLES}")).into());
        }
        let stream = device.stream();
        let words = |count: usize| check("cuMemAlloc", stream.alloc_zeros::<u64>(count.max(1)));
        let logprobs = |count: usize| want.logprobs.then(|| words(count)).transpose();
        let workspace = Self {
            rows,
            samples,
            blocks,
            slots,
            best: words(rows * samples)?,
            fault: check("cuMemcpyHtoD", stream.clone_htod(&vec![u32::MAX; rows.max(1)]))?,
            pairs: logprobs(rows * blocks)?,
            candidates: logprobs(rows * samples * slots * 2)?,
        };
        check("cuStreamSynchronize", stream.synchronize())?;
        Ok(workspace)
    }

    /// Whether it serves log-normalisers and logprobs.
    pub fn has_logprobs(&self) -> bool {
        self.pairs.is_some()
    }

    /// The parts for rows from `first` on.
    pub(super) fn at(&self, first: usize, samples: usize) -> Addresses {
        let whole = |slice: &CudaSlice<u64>| slice.device_ptr(slice.stream()).0;
        let (first, samples) = (first as u64, samples as u64);
        Addresses {
            best: whole(&self.best) + first * samples * 8,
            fault: self.fault.device_ptr(self.fault.stream()).0 + first * 4,
            pairs: self.pairs.as_ref().map_or(0, |pairs| whole(pairs) + first * self.blocks as u64 * 8),
            candidates: self
                .candidates
                .as_ref()
                .map_or(0, |candidates| whole(candidates) + first * samples * self.slots as u64 * 16),
        }
    }
}
