//! What can go wrong with a card.

use crate::{Error, RowError};
use cudarc::driver::result::DriverError;
use thiserror::Error;

/// Why a call on a card failed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CudaError {
    /// NVIDIA's driver is not there.
    #[error("no CUDA driver: libcuda.so.1 was not found; it comes with NVIDIA's driver")]
    NoDriver,
    /// NVRTC is not there.
    #[error("no NVRTC, which compiles the kernels: {0}")]
    NoNvrtc(String),
    /// A call of the driver failed.
    #[error("{call}: {reason}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's name and description of the error.
        reason: String,
    },
    /// A kernel did not compile.
    #[error("NVRTC could not compile {kernel} for {target}: {log}")]
    Compile {
        /// The kernel's source.
        kernel: &'static str,
        /// The card's architecture.
        target: String,
        /// What the compiler said.
        log: String,
    },
    /// The card is too old.
    #[error("{name} has compute capability {major}.{minor}, must be 8.0 or newer")]
    Card {
        /// The card.
        name: String,
        /// Its compute capability.
        major: i32,
        /// The part after the point.
        minor: i32,
    },
    /// A device address is not aligned.
    #[error("{name} is at address {address:#x}, must be a multiple of {alignment}")]
    Alignment {
        /// The argument.
        name: &'static str,
        /// Its address.
        address: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// Arguments do not fit together.
    #[error(transparent)]
    Arguments(#[from] Error),
    /// A row asks for what the card does not do.
    #[error("row {row}: {what} is not drawn on a card")]
    Unsupported {
        /// The row.
        row: usize,
        /// What it asks for.
        what: &'static str,
    },
    /// A row's arguments are wrong.
    #[error(transparent)]
    Row(#[from] RowError),
}

/// Turns the driver's answer to `call` into ours.
pub(super) fn check<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| {
        let text = |found: Result<&std::ffi::CStr, DriverError>| {
            found.map_or_else(|_| "?".to_owned(), |text| text.to_string_lossy().into_owned())
        };
        CudaError::Driver { call, reason: format!("{}, {}", text(error.error_name()), text(error.error_string())) }
    })
}
