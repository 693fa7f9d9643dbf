//! The kernels: their sources, the constants that they are compiled for, and what these cost.

use super::cache::Entry;
use super::nvrtc::Nvrtc;
use super::{CudaError, device::Target};
use rayon::prelude::*;

/// Files that the kernels include.
const HEADERS: [(&str, &str); 8] = [
    ("bits.cuh", include_str!("kernels/bits.cuh")),
    ("math.cuh", include_str!("kernels/math.cuh")),
    ("noise.cuh", include_str!("kernels/noise.cuh")),
    ("rows.cuh", include_str!("kernels/rows.cuh")),
    ("race.cuh", include_str!("kernels/race.cuh")),
    ("draw.cuh", include_str!("kernels/draw.cuh")),
    ("hopper.cuh", include_str!("kernels/hopper.cuh")),
    ("wgmma.cuh", include_str!("kernels/wgmma.cuh")),
];

/// Shared memory that a block of threads may have on sm_90.
const HOPPER_SHARED: u32 = 227 * 1024;

/// Shared memory that a block of threads may have on every card since sm_80.
const PORTABLE_SHARED: u32 = 99 * 1024;

/// Samples of a row that one pass can draw.
pub(super) const MAX_SAMPLES: usize = 8;

/// A kernel with its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    /// The fused head for sm_90.
    Hopper(Shape, Make),
    /// The fused head for every card since sm_80, with so many groups of 16 rows: 1, 2 or 4.
    Portable {
        /// Groups of rows.
        row_groups: u32,
        /// What it makes.
        make: Make,
    },
    /// The draw from ready logits.
    Logits,
    /// A bare read, for measurements.
    Read,
    /// Tokens and log-normalisers from what the others leave.
    Finish {
        /// Rows of a block of threads.
        rows: u32,
    },
}

/// How a fused head cuts its work. No result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Ids of a warpgroup's tile.
    pub ids: u32,
    /// Whether the two warpgroups share the rows, or the ids.
    pub split_rows: bool,
    /// Rows of hidden states in a stage.
    pub hidden_rows: u32,
    /// Blocks of threads that share weights.
    pub cluster: u32,
}

impl Shape {
    /// The shape for so many rows.
    pub fn of(rows: usize, edits: bool) -> Self {
        match rows {
            0..=16 => Self { ids: 128, split_rows: false, hidden_rows: 16, cluster: 1 },
            17..=64 => Self { ids: 128, split_rows: false, hidden_rows: 64, cluster: 1 },
            65..=128 => Self { ids: 128, split_rows: true, hidden_rows: 128, cluster: 1 },
            // An edited tile is a copy of the sums, for which there are registers up to 128 ids.
            _ => Self { ids: if edits { 128 } else { 192 }, split_rows: true, hidden_rows: 128, cluster: 2 },
        }
    }

    /// The most rows of a call that one launch takes.
    pub const MAX_ROWS: usize = 256;

    fn stage_bytes(self) -> u32 {
        (self.ids * if self.split_rows { 1 } else { 2 } + self.hidden_rows) * 128
    }
}

/// What a fused head is to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Make {
    /// f16 rather than bf16.
    pub half: bool,
    /// Log-normalisers and logprobs.
    pub logprob: bool,
    /// Masks and biases, or a vocabulary that is no multiple of 64.
    pub edits: bool,
    /// More than one sample of a row.
    pub samples: bool,
    /// The logits, written out.
    pub logits: bool,
    /// A draw; without it the product alone, for measurements.
    pub draw: bool,
}

impl Make {
    fn defines(self) -> [(&'static str, u32); 6] {
        [
            ("HALF", self.half.into()),
            ("LOGPROB", self.logprob.into()),
            ("EDITS", self.edits.into()),
            ("SAMPLES", most_samples(self)),
            ("LOGITS", self.logits.into()),
            ("DRAW", self.draw.into()),
        ]
    }
}

impl Kernel {
    /// The source's name and text, and the name of its function.
    fn source(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Hopper(..) => ("fused_hopper.cu", include_str!("kernels/fused_hopper.cu"), "fused_head"),
            Self::Portable { .. } => ("fused_portable.cu", include_str!("kernels/fused_portable.cu"), "fused_head"),
            Self::Logits => ("logits.cu", include_str!("kernels/logits.cu"), "draw_logits"),
            Self::Read => ("read.cu", include_str!("kernels/read.cu"), "read"),
            Self::Finish { .. } => ("finish.cu", include_str!("kernels/finish.cu"), "finish"),
        }
    }

    pub fn function(self) -> &'static str {
        self.source().2
    }

    fn defines(self) -> Vec<(&'static str, u32)> {
        match self {
            Self::Hopper(shape, make) => vec![
                ("IDS", shape.ids),
                ("SPLIT_ROWS", shape.split_rows.into()),
                ("HIDDEN_ROWS", shape.hidden_rows),
                ("CLUSTER", shape.cluster),
                ("STAGES", stages(shape, make)),
            ]
            .into_iter()
            .chain(make.defines())
            .collect(),
            Self::Portable { row_groups, make } => {
                let own = [("ROW_GROUPS", row_groups), ("STAGES", portable_stages(row_groups, make))];
                own.into_iter().chain(make.defines()).collect()
            }
            Self::Logits => vec![("EDITS", 1), ("LOGITS", 0)],
            Self::Read => Vec::new(),
            Self::Finish { rows } => vec![("ROWS", rows), ("MAX_SAMPLES", MAX_SAMPLES as u32)],
        }
    }

    /// Dynamic shared memory in bytes.
    pub fn shared_bytes(self) -> u32 {
        match self {
            // The first operand is always read as 64 rows, the last of which may lie beyond the stages.
            Self::Hopper(shape, make) => {
                let beyond = 64u32.saturating_sub(shape.hidden_rows) * 128;
                stages(shape, make) * shape.stage_bytes() + state_bytes(make).max(beyond)
            }
            Self::Portable { row_groups, make } => {
                portable_stages(row_groups, make) * portable_stage_bytes(row_groups) + state_bytes(make)
            }
            Self::Logits | Self::Read | Self::Finish { .. } => 0,
        }
    }

    /// The kernel as machine code for a card, from the cache if it is there.
    pub fn cubin(self, target: &Target) -> Result<Vec<u8>, CudaError> {
        let nvrtc = Nvrtc::get()?;
        let options = self.options(target);
        let mut parts: Vec<&str> = HEADERS.iter().map(|header| header.1).collect();
        let version = nvrtc.version();
        parts.extend([self.source().1, &version]);
        parts.extend(options.iter().map(String::as_str));
        let entry = Entry::of(&parts);
        if let Some(cubin) = entry.read() {
            return Ok(cubin);
        }
        let cubin = self.compile(nvrtc, target)?.0;
        entry.write(&cubin);
        Ok(cubin)
    }

    fn options(self, target: &Target) -> Vec<String> {
        // No contraction: a product and a sum are rounded as they are written.
        let fixed = ["-std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v"];
        let mut options = vec![format!("--gpu-architecture={target}")];
        options.extend(fixed.map(str::to_owned));
        options.extend(self.defines().iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }

    fn compile(self, nvrtc: &Nvrtc, target: &Target) -> Result<(Vec<u8>, String), CudaError> {
        let (name, source, _) = self.source();
        let binary = nvrtc
            .compile(name, source, &HEADERS, &self.options(target))
            .map_err(|log| CudaError::Compile { kernel: name, target: target.to_string(), log })?;
        Ok((binary.cubin, binary.log))
    }
}

/// Bytes of a stage of the portable kernel: 64 numbers of its weight rows and hidden states.
fn portable_stage_bytes(row_groups: u32) -> u32 {
    (4 / row_groups * 64 + row_groups * 16) * 128
}

/// Its stages: as many as shared memory holds, at most 4.
fn portable_stages(row_groups: u32, make: Make) -> u32 {
    ((PORTABLE_SHARED - state_bytes(make)) / portable_stage_bytes(row_groups)).min(4)
}

/// Bytes of the rows' state beside the stages, and of the barriers.
fn state_bytes(make: Make) -> u32 {
    most_samples(make) * 128 * (8 + 8 + 4) + 16 * 16
}

/// Stages of the ring: as many as shared memory holds, at most 16.
fn stages(shape: Shape, make: Make) -> u32 {
    let beyond = 64u32.saturating_sub(shape.hidden_rows) * 128;
    ((HOPPER_SHARED - state_bytes(make).max(beyond)) / shape.stage_bytes()).min(16)
}

fn most_samples(make: Make) -> u32 {
    if make.samples { MAX_SAMPLES as u32 } else { 1 }
}

/// A kernel as the compiler made it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The kernel and its constants.
    pub name: String,
    /// The architecture it was made for.
    pub target: String,
    /// Registers a thread at launch.
    pub registers: u32,
    /// Bytes spilled from registers.
    pub spilled: u32,
    /// Bytes of shared memory, dynamic and static.
    pub shared: u32,
    /// Warnings of the compiler about speed.
    pub warnings: Vec<String>,
}

/// Compiles every kernel for every architecture it is for, without a card: what a machine without one can check.
///
/// # Errors
/// [`CudaError::NoNvrtc`], [`CudaError::Compile`].
pub fn compile_all() -> Result<Vec<Compiled>, CudaError> {
    let nvrtc = Nvrtc::get()?;
    let one = |(kernel, target): (Kernel, Target)| {
        let log = kernel.compile(nvrtc, &target)?.1;
        let number = |before: &str, after: &str| number(&log, before, after);
        Ok(Compiled {
            name: format!("{kernel:?}"),
            target: target.to_string(),
            registers: number("Used ", " registers"),
            spilled: number("", " bytes spill stores"),
            shared: number("", " bytes smem") + kernel.shared_bytes(),
            warnings: log.lines().filter(|l| l.contains("Performance Loss")).map(str::to_owned).collect(),
        })
    };
    everything().into_par_iter().map(one).collect()
}

/// The number in a line of the compiler's report between two texts; 0 where there is none.
fn number(log: &str, before: &str, after: &str) -> u32 {
    let found = log.split(after).next().filter(|head| head.len() < log.len());
    let digits = found.map(|head| head.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    digits
        .filter(|d| found.is_some_and(|head| head[..head.len() - d.len()].ends_with(before)))
        .map_or(0, |d| d.parse().unwrap_or(0))
}

/// Each kernel with each architecture that it is for, in all shapes, and with all that changes its code.
fn everything() -> Vec<(Kernel, Target)> {
    let hopper = Target { major: 9, minor: 0 };
    let mut all = Vec::new();
    let plain = Make { half: false, logprob: false, edits: false, samples: false, logits: false, draw: true };
    for rows in [16, 64, 128, 256] {
        for make in [
            plain,
            Make { logprob: true, half: true, ..plain },
            Make { logprob: true, edits: true, samples: true, logits: true, ..plain },
        ] {
            all.push((Kernel::Hopper(Shape::of(rows, make.edits), make), hopper));
        }
    }
    let full = Make { logprob: true, edits: true, samples: true, logits: true, ..plain };
    for make in [plain, Make { half: true, logprob: true, ..plain }, full] {
        for row_groups in [1, 2, 4] {
            all.push((Kernel::Portable { row_groups, make }, Target { major: 8, minor: 0 }));
        }
        // The newest architecture that every NVRTC of CUDA 13 knows.
        all.push((Kernel::Portable { row_groups: 4, make }, Target { major: 12, minor: 0 }));
    }
    for target in [Target { major: 8, minor: 0 }, hopper] {
        all.extend(
            [Kernel::Logits, Kernel::Read, Kernel::Finish { rows: 1 }, Kernel::Finish { rows: 2 }]
                .map(|kernel| (kernel, target)),
        );
    }
    all
}
