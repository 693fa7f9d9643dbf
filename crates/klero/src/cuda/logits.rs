//! The draw from ready logits on a card.

use super::error::check;
use super::head::finish;
use super::kernel::Kernel;
use super::launch::{Launch, Params};
use super::rows::{self, Drawn, Received, Uploaded};
use super::{CudaError, Device, Want, Workspace};
use crate::{Error, MAX_VOCABULARY, Row, RowError};
use cudarc::driver::DevicePtr;
use std::ffi::c_void;

/// `Logits` of the kernel.
#[repr(C)]
struct Values {
    values: u64,
    stride: u64,
    blocks: u32,
}

/// Blocks of 64 ids that a warp takes, and warps of a block of threads.
const COLUMN: usize = 2;
const WARPS: usize = 8;

impl Device {
    /// Draws a token from each row of `logits` `[rows, V]`, which are copied to the card, and waits for it: what
    /// [`crate::Logits::draw`] draws, with the same bits.
    ///
    /// # Errors
    /// As [`super::Head::draw`].
    pub fn draw_logits(&self, logits: &[f32], rows: &[Row]) -> Result<Vec<Result<Drawn, RowError>>, CudaError> {
        if rows.is_empty() || !logits.len().is_multiple_of(rows.len()) || logits.is_empty() {
            let text =
                format!("logits has length {}, must be a positive multiple of {} rows", logits.len(), rows.len());
            return Err(Error::Shape(text).into());
        }
        let vocabulary = logits.len() / rows.len();
        if vocabulary > MAX_VOCABULARY {
            return Err(Error::Vocabulary(vocabulary).into());
        }
        self.bind()?;
        let stream = self.stream();
        let values = check("cuMemcpyHtoD", stream.clone_htod(logits))?;
        let uploaded = Uploaded::new(self, rows, vocabulary)?;
        let blocks = vocabulary.div_ceil(64);
        let columns = blocks.div_ceil(COLUMN).next_multiple_of(WARPS);
        let workspace =
            Workspace::new(self, rows.len(), 1, blocks, columns, Want { logprobs: true, ..Want::default() })?;
        let inputs = uploaded.inputs(rows.len(), 1);
        let received = Received::new(self, rows.len(), 1)?;
        let mut params = Params { vocabulary: vocabulary as u32, ..rows::params(&inputs, &workspace, 0, rows.len()) };
        let mut from = Values { values: values.device_ptr(stream).0, stride: vocabulary as u64, blocks: blocks as u32 };
        let launch = Launch {
            function: self.kernel(Kernel::Logits)?,
            grid: ((columns / WARPS) as u32, rows.len().div_ceil(16) as u32),
            threads: (WARPS * 32) as u32,
            shared: 0,
            early: false,
        };
        let mut arguments: [*mut c_void; 2] = [(&raw mut params).cast(), (&raw mut from).cast()];
        // SAFETY: the parameters of `draw_logits`; all memory is of this call, which waits for the stream below.
        unsafe {
            launch.on(stream.cu_stream(), &mut arguments)?;
            finish(self, stream.cu_stream(), params, blocks, 0, rows.len(), &received.outputs())?;
        }
        Ok(received.read(rows)?.into_iter().map(|mut samples| samples.remove(0)).collect())
    }
}
