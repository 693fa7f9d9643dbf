//! LM-head weights on a card.

use super::error::check;
use super::kernel::{Kernel, Make, Shape};
use super::launch::{Extent, Launch, Map, Maps, Operands, Params, Results};
use super::rows::{self, Drawn, Uploaded};
use super::{CudaError, Device, Inputs, Outputs, Want, Workspace};
use crate::{Error, FusedHead, MAX_VOCABULARY, Row, RowError, Weights};
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaSlice, DevicePtr};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::ffi::c_void;

/// An LM head on a card that draws.
///
/// ```no_run
/// use klero::{Row, SamplingParams, Weights, cuda};
/// let weights = Weights::bf16(3, 8, vec![half::bf16::ONE; 24])?;
/// let head = cuda::Head::new(&cuda::Device::new(0)?, &weights)?;
/// let row = Row::new(SamplingParams { seed: Some(42), ..Default::default() }.check()?, 7);
/// for drawn in head.draw(&[0.5; 8], &[row])? {
///     println!("token {}", drawn?.token);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Head {
    device: Device,
    weights: Matrix,
    width: usize,
    half: bool,
    /// Weight rows, and how many of them are ids.
    height: usize,
    vocabulary: usize,
    /// The id of weight row 0, and the ids of all shards.
    first: usize,
    total: usize,
    /// How the kernel for sm_90 sees the weights; None for the portable one.
    views: Option<Views>,
    ids: Option<u32>,
}

/// Boxes of the weights, for the bulk copy engine.
struct Views {
    double: Map,
    single: Map,
    /// The last, partial block of 64 rows, filled up with zeros.
    tail: Option<(CudaSlice<u16>, Map)>,
}

impl Views {
    fn new(device: &Device, address: u64, half: bool, height: usize, width: usize) -> Result<Self, CudaError> {
        let full = height / BLOCK;
        let view = |address, blocks: usize, boxed| weight_map(half, address, width as u64, blocks as u64, boxed);
        let tail = (!height.is_multiple_of(BLOCK)).then(|| -> Result<_, CudaError> {
            let slice = check("cuMemAlloc", device.stream().alloc_zeros::<u16>(BLOCK * width))?;
            check("cuStreamSynchronize", device.stream().synchronize())?;
            let map = view(slice.device_ptr(slice.stream()).0, 1, 1)?;
            Ok((slice, map))
        });
        let tail = tail.transpose()?;
        // A view of no whole block is never read from; the tail's is one that can be described.
        let of = |boxed| match &tail {
            Some(tail) if full == 0 => Ok(tail.1),
            _ => view(address, full, boxed),
        };
        Ok(Self { double: of(2)?, single: of(1)?, tail })
    }
}

/// Where the weights lie.
enum Matrix {
    Owned(CudaSlice<u16>),
    Borrowed(u64),
}

impl Matrix {
    fn address(&self) -> u64 {
        match self {
            Self::Owned(slice) => slice.device_ptr(slice.stream()).0,
            Self::Borrowed(address) => *address,
        }
    }
}

const BLOCK: usize = 64;

/// Racers that a multiprocessor leaves for each row.
const SLOTS: usize = 4;

impl FusedHead<'_> {
    /// The weights on card 0: [`Head::new`].
    ///
    /// # Errors
    /// As [`Device::new`] and [`Head::new`].
    pub fn cuda(weights: &Weights) -> Result<Head, CudaError> {
        Head::new(&Device::new(0)?, weights)
    }
}

impl Head {
    /// Copies weights to a card.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] for weights other than bf16 and f16, a width that is no multiple of 8, or more than 2^20 rows;
    /// [`CudaError::Driver`] where memory is short.
    pub fn new(device: &Device, weights: &Weights) -> Result<Self, CudaError> {
        let (half, words) =
            weights.words().ok_or_else(|| Error::Shape("weights must be bf16 or f16 on a card".into()))?;
        device.bind()?;
        let slice = check("cuMemAlloc", device.stream().clone_htod(words))?;
        Self::over(device, Matrix::Owned(slice), half, weights.rows(), weights.cols())
    }

    /// Weights that already lie on the card, bf16 or (`half`) f16, `[height, width]` without gaps. They may be changed in place
    /// between calls.
    ///
    /// # Errors
    /// As [`Head::new`], and [`CudaError::Alignment`] for an address that is no multiple of 16.
    ///
    /// # Safety
    /// The memory must hold the weights as long as the head is used.
    pub unsafe fn borrowed(
        device: &Device,
        address: u64,
        half: bool,
        height: usize,
        width: usize,
    ) -> Result<Self, CudaError> {
        aligned("weights", address)?;
        device.bind()?;
        Self::over(device, Matrix::Borrowed(address), half, height, width)
    }

    fn over(device: &Device, weights: Matrix, half: bool, height: usize, width: usize) -> Result<Self, CudaError> {
        if height == 0 || height > MAX_VOCABULARY {
            return Err(Error::Vocabulary(height).into());
        }
        if width == 0 || !width.is_multiple_of(8) {
            return Err(Error::Shape(format!("weights have {width} columns, must be a positive multiple of 8")).into());
        }
        let views =
            device.is_hopper().then(|| Views::new(device, weights.address(), half, height, width)).transpose()?;
        let vocabulary = height;
        let device = device.clone();
        Ok(Self { device, weights, width, half, height, vocabulary, first: 0, total: height, views, ids: None })
    }

    /// The same head, of whose rows only the first `vocabulary` are ids; the others are padding.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] if there are not so many.
    pub fn with_vocabulary(self, vocabulary: usize) -> Result<Self, CudaError> {
        if vocabulary == 0 || vocabulary > self.height {
            let text = format!("vocabulary is {vocabulary}, must be 1 to {}, the rows of the weights", self.height);
            return Err(Error::Shape(text).into());
        }
        Ok(Self { vocabulary, ..self })
    }

    /// The same head as a shard: its row 0 is id `first` of a vocabulary of `total` ids.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] if `first` is no multiple of 64 or the shard does not fit.
    pub fn with_shard(self, first: usize, total: usize) -> Result<Self, CudaError> {
        if !first.is_multiple_of(BLOCK) || first + self.vocabulary > total || total > MAX_VOCABULARY {
            let text = format!(
                "a shard of {} ids from {first} must begin at a multiple of 64 and end by {total}",
                self.vocabulary
            );
            return Err(Error::Shards(text).into());
        }
        Ok(Self { first, total, ..self })
    }

    /// The same head with tiles of `ids` (64, 128 or 192) ids. No result depends on it.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] for another number.
    pub fn with_tile(self, ids: u32) -> Result<Self, CudaError> {
        if ![64, 128, 192].contains(&ids) {
            return Err(Error::Shape(format!("a tile of {ids} ids, must be 64, 128 or 192")).into());
        }
        Ok(Self { ids: Some(ids), ..self })
    }

    /// The same head with the kernel that other cards than sm_90 use: its logits differ in the last bits.
    pub fn portable(self) -> Self {
        Self { views: None, ..self }
    }

    /// The number of ids.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The card.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Memory for draws of up to `rows` rows with `samples` samples each, of this head or of all shards of its vocabulary on
    /// this card.
    ///
    /// # Errors
    /// [`CudaError::Driver`] where memory is short.
    pub fn workspace(&self, rows: usize, samples: usize, want: Want) -> Result<Workspace, CudaError> {
        let slots = self.device.multiprocessors() as usize * SLOTS * want.shards.max(1);
        self.device.bind()?;
        Workspace::new(&self.device, rows, samples, self.total.div_ceil(BLOCK), slots, want)
    }

    /// Puts a draw on a stream (a `CUstream`, as a number) and returns.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] and [`CudaError::Alignment`] for arguments that do not fit; [`CudaError::Driver`] if a launch
    /// fails. What is wrong with a row's logits is in its status.
    ///
    /// # Safety
    /// All addresses must be good, and the workspace be used by no other call, until the stream has passed the draw. Errors of
    /// kernels show in later calls, as with all work on a stream.
    pub unsafe fn enqueue(
        &self,
        stream: u64,
        inputs: &Inputs,
        workspace: &Workspace,
        outputs: &Outputs,
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe {
            self.race(stream, inputs, workspace, outputs.logits, 0)?;
            self.finish(stream, inputs, workspace, outputs)
        }
    }

    /// The first half of [`Head::enqueue`]: one shard's race. `slot` is the shard's number among those on this card. The second
    /// half, once for all shards, is [`Head::finish`].
    ///
    /// # Errors
    /// As [`Head::enqueue`].
    ///
    /// # Safety
    /// As [`Head::enqueue`].
    pub unsafe fn race(
        &self,
        stream: u64,
        inputs: &Inputs,
        workspace: &Workspace,
        logits: u64,
        slot: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.launch(stream, inputs, workspace, logits, slot, true) }
    }

    /// The product of [`Head::race`] without a draw, for measurements.
    ///
    /// # Errors
    /// As [`Head::enqueue`].
    ///
    /// # Safety
    /// As [`Head::enqueue`].
    pub unsafe fn product(&self, stream: u64, inputs: &Inputs, workspace: &Workspace) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.launch(stream, inputs, workspace, 0, 0, false) }
    }

    /// Reads the weights once and does nothing with them: the floor of any draw, for measurements.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    ///
    /// # Safety
    /// As [`Head::enqueue`].
    pub unsafe fn read(&self, stream: u64, workspace: &Workspace) -> Result<(), CudaError> {
        self.device.bind()?;
        let launch = Launch {
            function: self.device.kernel(Kernel::Read)?,
            grid: (self.device.multiprocessors() * 2, 1),
            threads: 512,
            shared: 0,
            early: false,
        };
        let (mut from, mut count) = (self.weights.address(), (self.height * self.width / 8) as u64);
        let mut never = workspace.at(0, 1).fault;
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut from).cast(), (&raw mut count).cast(), (&raw mut never).cast()];
        // SAFETY: the parameters of `read`, and the caller's promise.
        unsafe { launch.on(stream as CUstream, &mut arguments) }
    }

    unsafe fn launch(
        &self,
        stream: u64,
        inputs: &Inputs,
        workspace: &Workspace,
        logits: u64,
        slot: usize,
        draw: bool,
    ) -> Result<(), CudaError> {
        self.check(inputs, workspace)?;
        self.device.bind()?;
        let stream = stream as CUstream;
        if let Some(Views { tail: Some((tail, _)), .. }) = &self.views {
            let (rest, row) = (self.height % BLOCK, self.width * 2);
            let from = self.weights.address() + ((self.height - rest) * row) as u64;
            let to = tail.device_ptr(tail.stream()).0;
            // SAFETY: the last rows of the weights, to the block that holds as many.
            check("cuMemcpyDtoDAsync", unsafe {
                cudarc::driver::result::memcpy_dtod_async(to, from, rest * row, stream)
            })?;
        }
        for first in (0..inputs.rows).step_by(Shape::MAX_ROWS) {
            let rows = (inputs.rows - first).min(Shape::MAX_ROWS);
            let mut params = self.params(inputs, workspace, first, rows);
            params.slot = (slot * SLOTS * self.device.multiprocessors() as usize) as u32;
            if logits != 0 {
                params.logits = logits + (first * self.vocabulary * 4) as u64;
                params.logits_stride = self.vocabulary as u64;
            }
            // SAFETY: as the caller promises.
            unsafe { self.fuse(stream, inputs, first, params, draw)? };
        }
        Ok(())
    }

    /// One launch of the fused head.
    unsafe fn fuse(
        &self,
        stream: CUstream,
        inputs: &Inputs,
        first: usize,
        params: Params,
        draw: bool,
    ) -> Result<(), CudaError> {
        let make = Make {
            half: self.half,
            logprob: params.pairs != 0,
            edits: params.allowed != 0 || params.bias_start != 0 || !self.vocabulary.is_multiple_of(BLOCK),
            samples: params.samples > 1,
            logits: params.logits != 0,
            draw,
        };
        let hidden = inputs.hidden + (first * inputs.hidden_stride * 2) as u64;
        // SAFETY: as the caller promises.
        unsafe {
            match &self.views {
                Some(views) => self.fuse_hopper(stream, views, (hidden, inputs.hidden_stride), params, make),
                None => self.fuse_portable(stream, (hidden, inputs.hidden_stride), params, make),
            }
        }
    }

    fn extent(&self, workers: u32) -> Extent {
        let (depth, full) = (self.width.div_ceil(64) as u32, (self.height / BLOCK) as u32);
        let blocks = self.height.div_ceil(BLOCK) as u32;
        Extent { depth, blocks, full, workers: workers.min(blocks) }
    }

    unsafe fn fuse_hopper(
        &self,
        stream: CUstream,
        views: &Views,
        (hidden, stride): (u64, usize),
        mut params: Params,
        make: Make,
    ) -> Result<(), CudaError> {
        let rows = params.rows as usize;
        let mut shape = Shape::of(rows, make.edits);
        shape.ids = self.ids.map_or(shape.ids, |ids| if make.edits { ids.min(128) } else { ids });
        let kernel = Kernel::Hopper(shape, make);
        let mut extent = self.extent(self.device.multiprocessors() / shape.cluster);
        let whole = match (shape.ids / BLOCK as u32 / shape.cluster).max(1) {
            1 => views.single,
            2 => views.double,
            boxed => {
                weight_map(self.half, self.weights.address(), self.width as u64, u64::from(extent.full.max(1)), boxed)?
            }
        };
        let (width, boxed) = (self.width as u64, [64, shape.hidden_rows]);
        let hidden = Map::new(self.half, hidden, &[width, rows as u64], &[stride as u64], &boxed)?;
        let tail = views.tail.as_ref().map_or(views.single, |tail| tail.1);
        let mut maps = Maps { whole, single: views.single, tail, hidden };
        let launch = Launch {
            function: self.device.kernel(kernel)?,
            grid: (extent.workers * shape.cluster, 1),
            threads: 384,
            shared: kernel.shared_bytes(),
            early: false,
        };
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut maps).cast(), (&raw mut params).cast(), (&raw mut extent).cast()];
        // SAFETY: the parameters of `fused_head`, and the caller's promise.
        unsafe { launch.on(stream, &mut arguments) }
    }

    unsafe fn fuse_portable(
        &self,
        stream: CUstream,
        (hidden, stride): (u64, usize),
        mut params: Params,
        make: Make,
    ) -> Result<(), CudaError> {
        let row_groups = params.rows.div_ceil(16).next_power_of_two().min(4);
        let kernel = Kernel::Portable { row_groups, make };
        let mut extent = self.extent(self.device.multiprocessors());
        let (width, height) = (self.width as u32, self.height as u32);
        let mut operands = Operands { weights: self.weights.address(), hidden, stride: stride as u64, width, height };
        let launch = Launch {
            function: self.device.kernel(kernel)?,
            grid: (extent.workers, params.rows.div_ceil(16 * row_groups)),
            threads: 128,
            shared: kernel.shared_bytes(),
            early: false,
        };
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut operands).cast(), (&raw mut params).cast(), (&raw mut extent).cast()];
        // SAFETY: the parameters of `fused_head`, and the caller's promise.
        unsafe { launch.on(stream, &mut arguments) }
    }

    /// The second half of [`Head::enqueue`].
    ///
    /// # Errors
    /// As [`Head::enqueue`].
    ///
    /// # Safety
    /// As [`Head::enqueue`].
    pub unsafe fn finish(
        &self,
        stream: u64,
        inputs: &Inputs,
        workspace: &Workspace,
        outputs: &Outputs,
    ) -> Result<(), CudaError> {
        self.device.bind()?;
        for first in (0..inputs.rows).step_by(Shape::MAX_ROWS) {
            let rows = (inputs.rows - first).min(Shape::MAX_ROWS);
            let params = self.params(inputs, workspace, first, rows);
            // SAFETY: as the caller promises.
            unsafe { finish(&self.device, stream as CUstream, params, workspace.blocks, first, inputs.rows, outputs)? };
        }
        Ok(())
    }

    fn params(&self, inputs: &Inputs, workspace: &Workspace, first: usize, rows: usize) -> Params {
        let params = rows::params(inputs, workspace, first, rows);
        Params { first: self.first as u32, vocabulary: self.vocabulary as u32, ..params }
    }

    fn check(&self, inputs: &Inputs, workspace: &Workspace) -> Result<(), CudaError> {
        if inputs.hidden_stride < self.width || !inputs.hidden_stride.is_multiple_of(8) {
            let text = format!(
                "hidden_stride is {}, must be a multiple of 8 and at least {}",
                inputs.hidden_stride, self.width
            );
            return Err(Error::Shape(text).into());
        }
        aligned("hidden", inputs.hidden)?;
        rows::fits(inputs, workspace)?;
        if workspace.blocks < self.total.div_ceil(BLOCK) {
            return Err(Error::Shape(format!(
                "the workspace is for {} ids, not {}",
                workspace.blocks * BLOCK,
                self.total
            ))
            .into());
        }
        Ok(())
    }

    /// Draws a token for every row of `hidden` `[rows, D]`, which is rounded to the weights' type, and waits for it.
    ///
    /// Rows may ask for a Gumbel draw without filters, or for `top_k = 1`; for biases, bans and allowed ids.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] for a row that asks for more; [`CudaError::Arguments`] if `hidden` does not hold D numbers for
    /// each row; [`CudaError::Driver`].
    pub fn draw(&self, hidden: &[f32], rows: &[Row]) -> Result<Vec<Result<Drawn, RowError>>, CudaError> {
        Ok(self.draw_samples(hidden, rows, 1)?.into_iter().map(|mut samples| samples.remove(0)).collect())
    }

    /// As [`Head::draw`], with `samples` tokens of each row.
    ///
    /// # Errors
    /// As [`Head::draw`].
    pub fn draw_samples(
        &self,
        hidden: &[f32],
        rows: &[Row],
        samples: usize,
    ) -> Result<Vec<Vec<Result<Drawn, RowError>>>, CudaError> {
        if rows.len().checked_mul(self.width) != Some(hidden.len()) {
            let text = format!("hidden has length {}, must be {} rows · {}", hidden.len(), rows.len(), self.width);
            return Err(Error::Shape(text).into());
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.device.bind()?;
        let stream = self.device.stream();
        let words = if self.half {
            hidden.iter().map(|v| f16::from_f32(*v).to_bits()).collect::<Vec<_>>()
        } else {
            hidden.iter().map(|v| bf16::from_f32(*v).to_bits()).collect()
        };
        let hidden = check("cuMemcpyHtoD", stream.clone_htod(&words))?;
        let uploaded = Uploaded::new(&self.device, rows, self.vocabulary)?;
        let inputs = Inputs {
            hidden: hidden.device_ptr(stream).0,
            hidden_stride: self.width,
            ..uploaded.inputs(rows.len(), samples)
        };
        let workspace = self.workspace(rows.len(), samples, Want { logprobs: true, ..Want::default() })?;
        let received = rows::Received::new(&self.device, rows.len(), samples)?;
        // SAFETY: all memory is of this call, which waits for the stream below.
        unsafe { self.enqueue(stream.cu_stream() as u64, &inputs, &workspace, &received.outputs())? };
        received.read(rows)
    }

    /// The logits `[rows, V]` that [`Head::draw`] draws from, bit for bit.
    ///
    /// # Errors
    /// As [`Head::draw`].
    pub fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, CudaError> {
        let count = hidden.len() / self.width;
        let sampling =
            crate::SamplingParams { seed: Some(0), ..Default::default() }.check().expect("the defaults are right");
        let rows = vec![Row::new(sampling, 0); count];
        let stream = self.device.stream();
        self.device.bind()?;
        let words = if self.half {
            hidden.iter().map(|v| f16::from_f32(*v).to_bits()).collect::<Vec<_>>()
        } else {
            hidden.iter().map(|v| bf16::from_f32(*v).to_bits()).collect()
        };
        let hidden = check("cuMemcpyHtoD", stream.clone_htod(&words))?;
        let uploaded = Uploaded::new(&self.device, &rows, self.vocabulary)?;
        let inputs =
            Inputs { hidden: hidden.device_ptr(stream).0, hidden_stride: self.width, ..uploaded.inputs(count, 1) };
        let workspace = self.workspace(count, 1, Want::default())?;
        let received = rows::Received::new(&self.device, count, 1)?;
        let logits = check("cuMemAlloc", stream.alloc_zeros::<f32>((count * self.vocabulary).max(1)))?;
        let outputs = Outputs { logits: logits.device_ptr(stream).0, ..received.outputs() };
        // SAFETY: all memory is of this call, which waits for the stream below.
        unsafe { self.enqueue(stream.cu_stream() as u64, &inputs, &workspace, &outputs)? };
        let mut values = check("cuMemcpyDtoH", stream.clone_dtoh(&logits))?;
        check("cuStreamSynchronize", stream.synchronize())?;
        values.truncate(count * self.vocabulary);
        Ok(values)
    }
}

/// Launches the finishing kernel for some rows of a call.
///
/// # Safety
/// As [`Head::enqueue`].
pub(super) unsafe fn finish(
    device: &Device,
    stream: CUstream,
    mut params: Params,
    blocks: usize,
    first: usize,
    stride: usize,
    outputs: &Outputs,
) -> Result<(), CudaError> {
    let at = |address: u64, bytes: u64| if address == 0 { 0 } else { address + first as u64 * bytes };
    let mut results = Results {
        token: at(outputs.token, 4),
        racer: at(outputs.racer, 8),
        score: at(outputs.score, 8),
        logprob: at(outputs.logprob, 8),
        log_normalizer: at(outputs.log_normalizer, 8),
        status: at(outputs.status, 4),
        stride: stride as u32,
        blocks: blocks as u32,
    };
    let together = if params.rows == 1 { 1 } else { 2 };
    let launch = Launch {
        function: device.kernel(Kernel::Finish { rows: together })?,
        grid: (params.rows.div_ceil(together), 1),
        threads: 1024,
        shared: 0,
        early: device.compute_capability().0 >= 9,
    };
    let mut arguments: [*mut c_void; 2] = [(&raw mut params).cast(), (&raw mut results).cast()];
    // SAFETY: the parameters of `finish`, and the caller's promise.
    unsafe { launch.on(stream, &mut arguments) }
}

/// Whole blocks of 64 weight rows, so that column 8 j + 2 c + e of a block is its row 16 c + 2 j + e.
fn weight_map(half: bool, address: u64, width: u64, blocks: u64, boxed: u32) -> Result<Map, CudaError> {
    Map::new(
        half,
        address,
        &[width, 2, 4, 8, blocks],
        &[width, 16 * width, 2 * width, 64 * width],
        &[64, 2, 4, 8, boxed],
    )
}

fn aligned(name: &'static str, address: u64) -> Result<(), CudaError> {
    if address == 0 || !address.is_multiple_of(16) {
        return Err(CudaError::Alignment { name, address, alignment: 16 });
    }
    Ok(())
}

impl Weights<'_> {
    /// The bits of 16-bit weights, and whether they are f16.
    fn words(&self) -> Option<(bool, &[u16])> {
        self.bf16_values()
            .map(|v| (false, v.reinterpret_cast()))
            .or_else(|| self.f16_values().map(|v| (true, v.reinterpret_cast())))
    }
}
