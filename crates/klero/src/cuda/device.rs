//! A card and its kernels.

use super::error::check;
use super::kernel::Kernel;
use super::{CudaError, nvrtc::Nvrtc};
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, CudaStream, result};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, Mutex};

/// A compute capability, written as the compiler's architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub major: i32,
    pub minor: i32,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // wgmma is there in the architecture-specific variant alone.
        let specific = if (self.major, self.minor) == (9, 0) { "a" } else { "" };
        write!(f, "sm_{}{}{specific}", self.major, self.minor)
    }
}

/// A card. Cloning it is cheap and names the same card.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    name: String,
    target: Target,
    multiprocessors: u32,
    loaded: Mutex<HashMap<Kernel, Loaded>>,
}

/// A kernel on the card; modules stay as long as the process.
#[derive(Clone, Copy)]
struct Loaded(sys::CUfunction);

// SAFETY: a handle of the driver, which may be used from any thread that the context is current on.
unsafe impl Send for Loaded {}

impl Device {
    /// Card `ordinal` of those that the driver lists.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::NoNvrtc`], [`CudaError::Card`] for one older than compute capability 8.0,
    /// [`CudaError::Driver`] if there is no such card.
    pub fn new(ordinal: usize) -> Result<Self, CudaError> {
        // SAFETY: asks whether the library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        Nvrtc::get()?;
        let context = check("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal))?;
        // The stream's order is all that is needed, and events would forbid capture in graphs of others.
        // SAFETY: every use of a buffer of this module is on one stream.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = check("cuDeviceGetAttribute", context.compute_capability())?;
        let name = check("cuDeviceGetName", context.name())?;
        if major < 8 {
            return Err(CudaError::Card { name, major, minor });
        }
        let count = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        let multiprocessors = check("cuDeviceGetAttribute", count)? as u32;
        let stream = check("cuStreamCreate", context.new_stream())?;
        let target = Target { major, minor };
        Ok(Self(Arc::new(Inner { context, stream, name, target, multiprocessors, loaded: Mutex::default() })))
    }

    /// The card's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its compute capability.
    pub fn compute_capability(&self) -> (i32, i32) {
        (self.0.target.major, self.0.target.minor)
    }

    /// The stream that this library's own calls are on.
    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.0.stream
    }

    /// Whether it has the kernel for sm_90.
    pub(super) fn is_hopper(&self) -> bool {
        (self.0.target.major, self.0.target.minor) == (9, 0)
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// Makes the card the calling thread's.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        check("cuCtxSetCurrent", self.0.context.bind_to_thread())
    }

    /// A kernel, compiled and loaded at its first use.
    pub(super) fn kernel(&self, kernel: Kernel) -> Result<sys::CUfunction, CudaError> {
        let mut loaded = self.0.loaded.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(found) = loaded.get(&kernel) {
            return Ok(found.0);
        }
        let function = self.load(kernel)?;
        loaded.insert(kernel, Loaded(function));
        Ok(function)
    }

    fn load(&self, kernel: Kernel) -> Result<sys::CUfunction, CudaError> {
        let cubin = kernel.cubin(&self.0.target)?;
        self.bind()?;
        let name = CString::new(kernel.function()).expect("a name of ours");
        // SAFETY: the cubin is one that NVRTC made, whole by its check sum, and outlives the call.
        let module = check("cuModuleLoadData", unsafe { result::module::load_data(cubin.as_ptr().cast()) })?;
        // SAFETY: the module was just loaded and is never unloaded.
        let function = check("cuModuleGetFunction", unsafe { result::module::get_function(module, name) })?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was just found.
        let set =
            unsafe { result::function::set_function_attribute(function, attribute, kernel.shared_bytes() as i32) };
        check("cuFuncSetAttribute", set)?;
        Ok(function)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.0.name, self.0.target)
    }
}
