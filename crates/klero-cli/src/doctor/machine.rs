//! The operating system, the processor, threads and memory.

use super::page::{Section, bytes};
use serde::Serialize;
use std::fs;
use std::num::{NonZeroU16, NonZeroUsize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind};

/// Asks the operating system once for all that is told here.
pub fn look() -> sysinfo::System {
    let memory = MemoryRefreshKind::nothing().with_ram();
    let kinds = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(memory);
    sysinfo::System::new_with_specifics(kinds)
}

/// What the machine is.
#[derive(Serialize)]
pub struct System {
    operating_system: Option<String>,
    kernel: Option<String>,
    processor: Option<String>,
    /// Instruction sets of interest that the processor has, and those that it has not.
    instruction_sets: Vec<&'static str>,
    instruction_sets_missing: Vec<&'static str>,
    /// Those that the kernels use.
    kernels: &'static [&'static str],
}

impl System {
    pub fn new(sysinfo: &sysinfo::System) -> Self {
        let (found, missing): (Vec<_>, Vec<_>) = instruction_sets().into_iter().partition(|(_, found)| *found);
        let names = |sets: Vec<(&'static str, bool)>| sets.into_iter().map(|(name, _)| name).collect();
        let brand = sysinfo.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Self {
            operating_system: sysinfo::System::long_os_version(),
            kernel: sysinfo::System::kernel_version(),
            processor: brand.filter(|brand| !brand.is_empty()),
            instruction_sets: names(found),
            instruction_sets_missing: names(missing),
            kernels: klero::instruction_sets(),
        }
    }

    pub fn section(&self) -> Section {
        let list = |sets: &[&str]| if sets.is_empty() { "none".to_owned() } else { sets.join(" ") };
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        Section::new("system")
            .with("operating system", known(&self.operating_system))
            .with("kernel", known(&self.kernel))
            .with("processor", known(&self.processor))
            .with("instruction sets", list(&self.instruction_sets))
            .with("not found", list(&self.instruction_sets_missing))
            .with("used by the kernels", list(self.kernels))
    }
}

#[allow(unused_macros, reason = "there are processors for which no instruction set is of interest")]
macro_rules! detected {
    ($detect:ident: $($set:tt)*) => { vec![$(($set, std::arch::$detect!($set))),*] };
}

/// Instruction sets that kernels for language models are written for, and whether the processor has them.
fn instruction_sets() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return detected!(is_x86_feature_detected:
        "sse4.2" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16");
    #[cfg(target_arch = "aarch64")]
    return detected!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "bf16" "i8mm" "sve" "sve2");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Vec::new();
}

/// How much can run at once.
#[derive(Serialize)]
pub struct Threads {
    /// Processors of the machine, as the operating system counts them.
    processors: usize,
    /// Those that this process may run on, where that is known.
    affinity: Option<usize>,
    /// How many of them this process can keep busy.
    usable: Option<usize>,
    /// Threads that draw.
    pool: usize,
    /// What says so, if it is not the number of usable processors.
    pool_set_by: Option<&'static str>,
}

impl Threads {
    pub fn new(sysinfo: &sysinfo::System, asked: Option<NonZeroU16>) -> Self {
        const VARIABLE: &str = "RAYON_NUM_THREADS";
        let pool = rayon::current_num_threads();
        let by_variable = || std::env::var(VARIABLE).is_ok_and(|value| value.parse() == Ok(pool)).then_some(VARIABLE);
        let status = fs::read_to_string("/proc/self/status").ok();
        Self {
            processors: sysinfo.cpus().len(),
            affinity: status.and_then(|status| allowed(&status)),
            usable: std::thread::available_parallelism().ok().map(NonZeroUsize::get),
            pool,
            pool_set_by: asked.map(|_| "--threads").or_else(by_variable),
        }
    }

    pub fn section(&self) -> Section {
        Section::new("threads")
            .with("processors", self.processors)
            .with(
                "usable",
                self.usable.map_or("unknown".to_owned(), |usable| format!("{usable}{}", self.limit(usable))),
            )
            .with(
                "drawing",
                format!("{}{}", self.pool, self.pool_set_by.map_or(String::new(), |by| format!(" ({by})"))),
            )
    }

    /// Why fewer processors are usable than there are.
    fn limit(&self, usable: usize) -> String {
        let allowed = self.affinity.unwrap_or(self.processors);
        let mut reasons = Vec::new();
        if allowed < self.processors {
            reasons.push(format!("its affinity allows this process {allowed}"));
        }
        if usable < allowed {
            reasons.push(format!("its cgroup allows it the time of {usable}"));
        }
        if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) }
    }
}

/// The number of processors that a process may run on, out of Linux's `/proc/self/status`: `Cpus_allowed_list: 0-3,8`.
fn allowed(status: &str) -> Option<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(range).sum()
}

/// How much memory there is, in bytes.
#[derive(Serialize)]
pub struct Memory {
    total: u64,
    /// What programs can have without anything being swapped out.
    available: u64,
    /// What this process's group may have, if that is less than all.
    cgroup_limit: Option<u64>,
    /// What is left of that.
    cgroup_free: Option<u64>,
}

impl Memory {
    pub fn new(sysinfo: &sysinfo::System) -> Self {
        let total = sysinfo.total_memory();
        let limits = sysinfo.cgroup_limits().filter(|limits| limits.total_memory < total);
        Self {
            total,
            available: sysinfo.available_memory(),
            cgroup_limit: limits.as_ref().map(|limits| limits.total_memory),
            cgroup_free: limits.as_ref().map(|limits| limits.free_memory),
        }
    }

    /// What this process can still have.
    pub fn free(&self) -> u64 {
        self.available.min(self.cgroup_free.unwrap_or(u64::MAX))
    }

    pub fn section(&self) -> Section {
        Section::new("memory")
            .with("total", bytes(self.total))
            .with("available", bytes(self.available))
            .with_some("allowed by the cgroup", self.cgroup_limit.map(bytes))
            .with_some("left of that", self.cgroup_free.map(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_processors_are_counted() {
        let status = |list: &str| format!("Name:\tklero\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems:\t0\n");
        assert_eq!(["0", "0-3", "0-3,8,10-11"].map(|list| allowed(&status(list))), [Some(1), Some(4), Some(7)]);
        assert_eq!(["", "3-1", "a", "0-18446744073709551615"].map(|list| allowed(&status(list))), [None; 4]);
        assert_eq!(allowed("Name:\tklero\n"), None);
    }

    #[test]
    fn limits_of_processors_are_named() {
        let usable = |affinity, usable| {
            Threads { processors: 16, affinity, usable: Some(usable), pool: 1, pool_set_by: None }.limit(usable)
        };
        assert_eq!(usable(Some(16), 16), "");
        assert_eq!(usable(None, 16), "");
        assert_eq!(usable(Some(4), 4), ": its affinity allows this process 4");
        assert_eq!(usable(Some(16), 3), ": its cgroup allows it the time of 3");
        assert_eq!(usable(Some(8), 2), ": its affinity allows this process 8, its cgroup allows it the time of 2");
    }
}
