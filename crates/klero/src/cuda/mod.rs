//! The fused head on an NVIDIA GPU: hidden states × weights → tokens in one pass over the weights, logits never stored.
//!
//! The kernels are CUDA C++ sources of this crate. NVRTC compiles them for the card that is found, once: the result is kept on
//! disk. Neither the driver nor NVRTC is linked; where one is missing, [`CudaError`] says which and where it was looked for.
//!
//! - [`Device`]: a card, with its compiled kernels.
//! - [`Head`]: weights on a card. [`Head::draw`] takes hidden states and rows from the host and waits for the tokens;
//!   [`Head::enqueue`] takes device addresses, puts the draw on a stream and returns at once, without synchronisation or
//!   allocation, so that it can be captured in a graph.
//! - [`Device::draw_logits`]: the same draw from ready logits.
//!
//! From equal logits the card draws what the CPU draws, and its log-normalisers and logprobs have the same bits. The logits of a
//! fused head are sums in the order of the tensor cores, the same for every batch size, and differ from the CPU's in the last
//! bits.

mod cache;
mod device;
mod error;
mod head;
mod kernel;
mod launch;
mod logits;
mod nvrtc;
mod rows;
mod workspace;

pub use device::Device;
pub use error::CudaError;
pub use head::Head;
pub use kernel::{Compiled, compile_all};
pub use launch::{Bias, Inputs, Outputs};
pub use rows::Drawn;
pub use workspace::{Want, Workspace};
