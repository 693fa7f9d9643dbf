//! What goes to a kernel, as it lies in the kernel's memory.

use super::CudaError;
use super::error::check;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig};
use std::ffi::c_void;

/// What a call reads, as addresses on the card. Arrays hold a number for each row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs {
    /// Hidden states `[rows, D]`, of the weights' type, aligned to 16 bytes.
    pub hidden: u64,
    /// From one row of hidden states to the next, in numbers; a multiple of 8.
    pub hidden_stride: usize,
    /// Rows of the call.
    pub rows: usize,
    /// Samples of each row, at least 1: `samples` tokens from one reading of the weights.
    pub samples: usize,
    /// f32: temperatures, at least 0.
    pub temperature: u64,
    /// u64: seeds.
    pub seed: u64,
    /// u64: positions.
    pub position: u64,
    /// u8, or 0 for none: bits 0–1 the case of the hash, bit 2 the draft stream, bit 3 argmax (no noise).
    pub kind: u64,
    /// u32 `[rows, allowed_words]`, or 0 for none: bit i of a row's words says whether id i may be drawn.
    pub allowed: u64,
    /// Words of 32 bits in a row of `allowed`.
    pub allowed_words: usize,
    /// Biases, if there are any.
    pub bias: Option<Bias>,
}

/// Biases of some ids, row after row, as addresses on the card.
#[derive(Clone, Copy, Debug)]
pub struct Bias {
    /// u32 `[rows + 1]`: where each row's begin.
    pub start: u64,
    /// u32: ids, ascending within a row.
    pub ids: u64,
    /// f32: what is added to their logits.
    pub values: u64,
}

/// What a call writes, as addresses on the card; 0 for what is not wanted. Arrays are `[samples, rows]` where not said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outputs {
    /// u32: the tokens.
    pub token: u64,
    /// u32 `[rows]`: 0 for a row that is right; else 1 (NaN) or 2 (infinite) · 2^24 + the lowest such id, or 3 · 2^24 (no finite
    /// logit is left).
    pub status: u64,
    /// f64: the token's score x + g, in 44 bits.
    pub score: u64,
    /// u64: the score and the token as one word, the greatest of which wins over shards.
    pub racer: u64,
    /// f64: the token's logprob.
    pub logprob: u64,
    /// f64 `[rows]`: the log-normaliser.
    pub log_normalizer: u64,
    /// f32 `[rows, V]`: the logits that were drawn from.
    pub logits: u64,
}

/// `Params` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Params {
    pub temperature: u64,
    pub seed: u64,
    pub position: u64,
    pub kind: u64,
    pub allowed: u64,
    pub bias_start: u64,
    pub bias_id: u64,
    pub bias: u64,
    pub best: u64,
    pub fault: u64,
    pub pairs: u64,
    pub candidates: u64,
    pub logits: u64,
    pub logits_stride: u64,
    pub allowed_stride: u32,
    pub rows: u32,
    pub samples: u32,
    pub slots: u32,
    pub first: u32,
    pub vocabulary: u32,
    pub slot: u32,
    pub unused: u32,
}

/// `Results` of the finishing kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Results {
    pub token: u64,
    pub racer: u64,
    pub score: u64,
    pub logprob: u64,
    pub log_normalizer: u64,
    pub status: u64,
    pub stride: u32,
    pub blocks: u32,
}

/// A view of memory that the bulk copy engine reads boxes of.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Map(sys::CUtensorMap);

/// `Maps` of the fused head for sm_90.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Maps {
    pub whole: Map,
    pub single: Map,
    pub tail: Map,
    pub hidden: Map,
}

/// `Shape` of the fused heads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub depth: u32,
    pub blocks: u32,
    pub full: u32,
    pub workers: u32,
}

impl Map {
    /// 16-bit numbers at `address`: `dims` numbers along each dimension, `strides` in numbers from one to the next along all but
    /// the first, boxes of `shape`. What lies outside reads as 0.
    pub fn new(half: bool, address: u64, dims: &[u64], strides: &[u64], shape: &[u32]) -> Result<Self, CudaError> {
        let bytes: Vec<u64> = strides.iter().map(|stride| stride * 2).collect();
        let steps = vec![1u32; dims.len()];
        let kind = if half {
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        } else {
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
        };
        let mut map = std::mem::MaybeUninit::<Self>::uninit();
        // SAFETY: the arrays are as long as the rank says; the map is aligned to 64 bytes and written whole on success.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr().cast(),
                kind,
                dims.len() as u32,
                address as *mut c_void,
                dims.as_ptr(),
                bytes.as_ptr(),
                shape.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        check("cuTensorMapEncodeTiled", result.result())?;
        // SAFETY: the call succeeded.
        Ok(unsafe { map.assume_init() })
    }
}

/// `Operands` of the portable fused head.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    pub weights: u64,
    pub hidden: u64,
    pub stride: u64,
    pub width: u32,
    pub height: u32,
}

/// A kernel with its grid.
pub(super) struct Launch {
    pub function: sys::CUfunction,
    pub grid: (u32, u32),
    pub threads: u32,
    pub shared: u32,
    /// Whether it may be set up while the kernel before it still runs, whose end it waits for itself.
    pub early: bool,
}

impl Launch {
    /// Puts it on a stream.
    ///
    /// # Safety
    /// `arguments` point to values of the types of the kernel's parameters; the addresses in them are good until it has run.
    pub unsafe fn on(&self, stream: sys::CUstream, arguments: &mut [*mut c_void]) -> Result<(), CudaError> {
        // SAFETY: plain numbers, for which all zeros are a value.
        let mut attribute: CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        let config = CUlaunchConfig {
            gridDimX: self.grid.0,
            gridDimY: self.grid.1,
            gridDimZ: 1,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            hStream: stream,
            attrs: &raw mut attribute,
            numAttrs: self.early.into(),
        };
        // SAFETY: as the caller promises; the configuration lives until the call returns.
        let result: Result<(), DriverError> = unsafe {
            sys::cuLaunchKernelEx(&raw const config, self.function, arguments.as_mut_ptr(), std::ptr::null_mut())
                .result()
        };
        check("cuLaunchKernelEx", result)
    }
}
