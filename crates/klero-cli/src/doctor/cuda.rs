//! CUDA: whether NVIDIA's driver and its compiler are there, asked of the libraries themselves at run time.
//!
//! Types and numbers are those of `cuda.h` and `nvrtc.h`. Nothing is linked: a machine without the libraries gets the
//! reason for each.

use super::page::{Section, bytes};
use libloading::Library;
use serde::Serialize;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

/// The names of the driver's library and of the runtime compiler's, in the order in which they are tried.
#[cfg(windows)]
const NAMES: [&[&str]; 2] = [&["nvcuda.dll"], &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]];
#[cfg(not(windows))]
const NAMES: [&[&str]; 2] =
    [&["libcuda.so.1", "libcuda.so"], &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"]];

/// What there is of CUDA.
#[derive(Serialize)]
pub struct Cuda {
    /// Whether this build draws with it.
    used: bool,
    driver: Finding<Driver>,
    nvrtc: Finding<Nvrtc>,
}

/// Something that was looked for.
#[derive(Serialize)]
#[serde(untagged)]
enum Finding<T> {
    Found(T),
    Missing { reason: String },
}

impl<T> From<Result<T, String>> for Finding<T> {
    fn from(found: Result<T, String>) -> Self {
        found.map_or_else(|reason| Self::Missing { reason }, Self::Found)
    }
}

impl<T> Finding<T> {
    fn describe(&self, found: impl Fn(&T) -> String) -> String {
        match self {
            Self::Found(value) => found(value),
            Self::Missing { reason } => reason.clone(),
        }
    }
}

/// The driver.
#[derive(Serialize)]
struct Driver {
    library: &'static str,
    /// The newest version of CUDA that it serves.
    version: String,
    devices: Finding<Vec<Device>>,
}

/// A GPU.
#[derive(Serialize)]
struct Device {
    name: String,
    compute_capability: String,
    /// In bytes.
    memory: usize,
}

/// The runtime compiler.
#[derive(Serialize)]
struct Nvrtc {
    library: &'static str,
    version: String,
}

impl Cuda {
    /// Looks for both libraries.
    pub fn probe() -> Self {
        let [driver, nvrtc] = NAMES;
        Self { used: false, driver: probe_driver(driver).into(), nvrtc: probe_nvrtc(nvrtc).into() }
    }

    pub fn section(&self) -> Section {
        let mut section = Section::new("CUDA (not used by this build)").with(
            "driver",
            self.driver.describe(|driver| format!("{}, for CUDA up to {}", driver.library, driver.version)),
        );
        if let Finding::Found(driver) = &self.driver {
            section = section.with("devices", driver.devices.describe(|devices| list(devices)));
        }
        section.with("NVRTC", self.nvrtc.describe(|nvrtc| format!("{}, version {}", nvrtc.library, nvrtc.version)))
    }
}

fn list(devices: &[Device]) -> String {
    let line = |Device { name, compute_capability, memory }: &Device| {
        format!("{name}, compute capability {compute_capability}, {}", bytes(*memory as u64))
    };
    let lines: Vec<String> = devices.iter().map(line).collect();
    if lines.is_empty() { "none".to_owned() } else { lines.join("\n") }
}

fn probe_driver(names: &[&'static str]) -> Result<Driver, String> {
    let (library, handle) = open(names)?;
    let api = DriverApi::load(handle)?;
    Ok(Driver { library, version: api.version()?, devices: api.devices().into() })
}

/// Loads the first of some libraries that is there. It stays loaded as long as the process runs: a driver that was
/// started cannot be taken away safely.
fn open(names: &[&'static str]) -> Result<(&'static str, &'static Library), String> {
    let mut reasons = vec!["not found".to_owned()];
    for name in names {
        // SAFETY: loading runs the library's initialisers. By its name it is NVIDIA's, and those ask nothing of the
        // process that loads it.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok((name, Box::leak(Box::new(library)))),
            Err(error) => reasons.push(why(name, &error)),
        }
    }
    Err(reasons.join("\n"))
}

/// The system's reason for an error, which may begin with the name or not.
fn why(name: &str, error: &libloading::Error) -> String {
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("{name}: {}", reason.trim_start_matches(&format!("{name}: ")))
}

/// A function of a library.
///
/// # Safety
/// `F` must be the type of a pointer to that function.
unsafe fn function<F: Copy>(library: &'static Library, name: &str) -> Result<F, String> {
    // SAFETY: that the type is right is what the caller promises; the library is never unloaded.
    unsafe { library.get::<F>(name) }
        .map(|found| *found)
        .map_err(|error| format!("it has no function {}", why(name, &error)))
}

/// CUresult and nvrtcResult: 0 is success.
type Status = c_int;

/// The functions of the driver that are asked here.
struct DriverApi {
    get_error_name: unsafe extern "system" fn(Status, *mut *const c_char) -> Status,
    get_error_string: unsafe extern "system" fn(Status, *mut *const c_char) -> Status,
    driver_get_version: unsafe extern "system" fn(*mut c_int) -> Status,
    init: unsafe extern "system" fn(c_uint) -> Status,
    device_get_count: unsafe extern "system" fn(*mut c_int) -> Status,
    device_get: unsafe extern "system" fn(*mut c_int, c_int) -> Status,
    device_get_name: unsafe extern "system" fn(*mut c_char, c_int, c_int) -> Status,
    device_get_attribute: unsafe extern "system" fn(*mut c_int, c_int, c_int) -> Status,
    device_total_mem: unsafe extern "system" fn(*mut usize, c_int) -> Status,
}

/// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
const COMPUTE_CAPABILITY: [c_int; 2] = [75, 76];

impl DriverApi {
    fn load(library: &'static Library) -> Result<Self, String> {
        // SAFETY: the fields have the types of these functions in `cuda.h`.
        unsafe {
            Ok(Self {
                get_error_name: function(library, "cuGetErrorName")?,
                get_error_string: function(library, "cuGetErrorString")?,
                driver_get_version: function(library, "cuDriverGetVersion")?,
                init: function(library, "cuInit")?,
                device_get_count: function(library, "cuDeviceGetCount")?,
                device_get: function(library, "cuDeviceGet")?,
                device_get_name: function(library, "cuDeviceGetName")?,
                device_get_attribute: function(library, "cuDeviceGetAttribute")?,
                device_total_mem: function(library, "cuDeviceTotalMem_v2")?,
            })
        }
    }

    fn version(&self) -> Result<String, String> {
        let mut version = 0;
        // SAFETY: the pointer is to an integer that outlives the call. The driver need not be started for this one.
        self.check("cuDriverGetVersion", unsafe { (self.driver_get_version)(&mut version) })?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Starts the driver and asks for its devices.
    fn devices(&self) -> Result<Vec<Device>, String> {
        // SAFETY: takes flags, which must be 0.
        self.check("cuInit", unsafe { (self.init)(0) })?;
        let mut count = 0;
        // SAFETY: the pointer is to an integer that outlives the call; the driver is started.
        self.check("cuDeviceGetCount", unsafe { (self.device_get_count)(&mut count) })?;
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(&self, ordinal: c_int) -> Result<Device, String> {
        let (mut device, mut name, mut memory, mut capability) = (0, [0u8; 256], 0, [0; 2]);
        // SAFETY: the driver is started, and the ordinal is below the number of devices.
        self.check("cuDeviceGet", unsafe { (self.device_get)(&mut device, ordinal) })?;
        let length = name.len() as c_int;
        // SAFETY: at most `length` bytes are written to the buffer, which is as long.
        let status = unsafe { (self.device_get_name)(name.as_mut_ptr().cast(), length, device) };
        self.check("cuDeviceGetName", status)?;
        for (value, attribute) in capability.iter_mut().zip(COMPUTE_CAPABILITY) {
            // SAFETY: the pointer is to an integer that outlives the call; the device was given by the driver.
            let status = unsafe { (self.device_get_attribute)(value, attribute, device) };
            self.check("cuDeviceGetAttribute", status)?;
        }
        // SAFETY: as above; the number of bytes is a size_t.
        self.check("cuDeviceTotalMem", unsafe { (self.device_total_mem)(&mut memory, device) })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        let [major, minor] = capability;
        Ok(Device { name, compute_capability: format!("{major}.{minor}"), memory })
    }

    fn check(&self, function: &str, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let (name, text) = (self.ask(self.get_error_name, status), self.ask(self.get_error_string, status));
        Err(format!(
            "{function} fails with {}, code {status}: {}",
            name.as_deref().unwrap_or("an error"),
            text.as_deref().unwrap_or("no further reason")
        ))
    }

    /// The text that the driver has for an error.
    fn ask(
        &self,
        text: unsafe extern "system" fn(Status, *mut *const c_char) -> Status,
        status: Status,
    ) -> Option<String> {
        let mut found = ptr::null();
        // SAFETY: the pointer is to a pointer that outlives the call.
        let known = unsafe { text(status, &mut found) } == 0 && !found.is_null();
        // SAFETY: for an error that it knows the driver gives a text that ends in 0 and is never changed.
        known.then(|| unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned())
    }
}

fn probe_nvrtc(names: &[&'static str]) -> Result<Nvrtc, String> {
    let (library, handle) = open(names)?;
    type Version = unsafe extern "system" fn(*mut c_int, *mut c_int) -> Status;
    // SAFETY: the type is that of the function in `nvrtc.h`.
    let version: Version = unsafe { function(handle, "nvrtcVersion") }?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to integers that outlive the call.
    match unsafe { version(&mut major, &mut minor) } {
        0 => Ok(Nvrtc { library, version: format!("{major}.{minor}") }),
        status => Err(format!("{library}: nvrtcVersion fails with code {status}")),
    }
}
