//! NVRTC, loaded at run time.
//!
//! cudarc's own loader knows neither the file names of NVIDIA's Python packages nor an explicit path, and ends the process where
//! it finds nothing. So the few functions that are needed are bound here.

use super::CudaError;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

type Program = *mut c_void;

/// The functions of NVRTC.
pub(super) struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

/// A compiled kernel and what the compiler said.
pub(super) struct Binary {
    pub cubin: Vec<u8>,
    pub log: String,
}

impl Nvrtc {
    /// The library, loaded once.
    pub fn get() -> Result<&'static Self, CudaError> {
        static LIBRARY: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        LIBRARY.get_or_init(load).as_ref().map_err(|reason| CudaError::NoNvrtc(reason.clone()))
    }

    /// Its version, as 13.0.
    pub fn version(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two integers are written.
        unsafe { (self.version)(&raw mut major, &raw mut minor) };
        format!("{major}.{minor}")
    }

    /// Compiles `source`, which includes `headers`; Err holds the log.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Binary, String> {
        let text = |s: &str| CString::new(s).map_err(|_| format!("{name} holds a zero byte"));
        let (name, source) = (text(name)?, text(source)?);
        let names = headers.iter().map(|h| text(h.0)).collect::<Result<Vec<_>, _>>()?;
        let bodies = headers.iter().map(|h| text(h.1)).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |of: &[CString]| of.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let mut program: Program = std::ptr::null_mut();
        let count = headers.len() as c_int;
        let (bodies_at, names_at, options_at) = (pointers(&bodies), pointers(&names), pointers(&options));
        // SAFETY: all texts end with a zero and live until the program is destroyed; the counts are those of the arrays.
        unsafe {
            let made = (self.create)(
                &raw mut program,
                source.as_ptr(),
                name.as_ptr(),
                count,
                bodies_at.as_ptr(),
                names_at.as_ptr(),
            );
            if made != 0 {
                return Err(format!("nvrtcCreateProgram returned {made}"));
            }
            let code = (self.compile)(program, options.len() as c_int, options_at.as_ptr());
            let log =
                String::from_utf8_lossy(&read(program, self.log_size, self.log)).trim_end_matches('\0').to_owned();
            let cubin = if code == 0 { read(program, self.cubin_size, self.cubin) } else { Vec::new() };
            (self.destroy)(&raw mut program);
            if code == 0 { Ok(Binary { cubin, log }) } else { Err(log) }
        }
    }
}

/// What a pair of functions tells the size of, and writes.
///
/// # Safety
/// The functions must be such a pair, and `program` one of theirs.
unsafe fn read(
    program: Program,
    size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    write: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
) -> Vec<u8> {
    let mut bytes = 0;
    // SAFETY: as the caller promises; the second function writes as many bytes as the first says.
    unsafe {
        size(program, &raw mut bytes);
        let mut out = vec![0u8; bytes];
        write(program, out.as_mut_ptr().cast());
        out
    }
}

/// Where the library may be: a path that the user names, what the system's loader finds, the usual folders of CUDA.
fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("KLERO_NVRTC") {
        return vec![path.into()];
    }
    const NAMES: [&str; 3] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];
    let folders = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = folders.chain([PathBuf::from("/usr/local/cuda")]).map(|folder| folder.join("lib64"));
    let named = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    NAMES.iter().map(PathBuf::from).chain(named).collect()
}

fn load() -> Result<Nvrtc, String> {
    let tried = candidates();
    for path in &tried {
        // SAFETY: loading runs the library's initialisers; by its name it is NVIDIA's, which ask nothing of the process.
        if let Ok(library) = unsafe { Library::new(path) } {
            return bind(Box::leak(Box::new(library)), path);
        }
    }
    let names: Vec<_> = tried.iter().map(|path| path.display().to_string()).collect();
    Err(format!(
        "none of {} could be loaded; install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, and name the file in \
         KLERO_NVRTC if it lies elsewhere",
        names.join(", ")
    ))
}

fn bind(library: &'static Library, path: &Path) -> Result<Nvrtc, String> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the types are those of nvrtc.h, the same in every version since 11.2.
            *unsafe { library.get($name) }.map_err(|error| format!("{}: {error}", path.display()))?
        };
    }
    Ok(Nvrtc {
        version: function!("nvrtcVersion"),
        create: function!("nvrtcCreateProgram"),
        compile: function!("nvrtcCompileProgram"),
        destroy: function!("nvrtcDestroyProgram"),
        log_size: function!("nvrtcGetProgramLogSize"),
        log: function!("nvrtcGetProgramLog"),
        cubin_size: function!("nvrtcGetCUBINSize"),
        cubin: function!("nvrtcGetCUBIN"),
    })
}
