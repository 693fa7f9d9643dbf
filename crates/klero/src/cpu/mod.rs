//! Arithmetic kernels for the CPU.
//!
//! Each kernel is one function over fixed-size arrays, marked `inline(always)` and compiled for several instruction sets:
//! the baseline of the target, and on x86-64 [`Level::Avx2`] and [`Level::Avx512`]. All are the same IEEE operations in the
//! same order, and the compiler contracts nothing, so their results are equal bit for bit; only their speed differs.

pub(crate) mod block;
pub(crate) mod dot;
pub(crate) mod philox;
pub(crate) mod sixteen;
pub(crate) mod widen;

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What the kernels are compiled for, the widest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// The baseline of the target.
    Baseline = 1,
    /// Eight numbers at a time, with fused multiply-add and f16 conversions.
    Avx2 = 2,
    /// Sixteen at a time, with masks and dot products of bytes.
    Avx512 = 3,
}

impl Level {
    const ALL: [Self; 3] = [Self::Baseline, Self::Avx2, Self::Avx512];

    /// The widest level that this processor runs.
    fn find() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let wide = has!("avx2") && has!("fma") && has!("f16c");
            let wider = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            match (wide, wider && has!("avx512vnni")) {
                (true, true) => return Self::Avx512,
                (true, false) => return Self::Avx2,
                _ => {}
            }
        }
        Self::Baseline
    }

    /// All levels that this processor runs.
    #[cfg(test)]
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| *level <= Self::find())
    }
}

/// The level that kernels run at, looked up once: 0 before that.
static LEVEL: AtomicU8 = AtomicU8::new(0);

#[cfg(test)]
thread_local! {
    /// The level that a test asks for on its thread.
    static FORCED: std::cell::Cell<Option<Level>> = const { std::cell::Cell::new(None) };
}

/// What `run` returns with the kernels at each level that is available.
#[cfg(test)]
pub(crate) fn at_each_level<T>(mut run: impl FnMut() -> T) -> Vec<T> {
    let at = |level| {
        FORCED.set(Some(level));
        let result = run();
        FORCED.set(None);
        result
    };
    Level::available().map(at).collect()
}

/// The level that kernels run at.
#[inline(always)]
pub(crate) fn level() -> Level {
    #[cfg(test)]
    if let Some(level) = FORCED.get() {
        return level;
    }
    match LEVEL.load(Relaxed) {
        0 => {
            LEVEL.store(Level::find() as u8, Relaxed);
            Level::find()
        }
        found => Level::ALL[usize::from(found) - 1],
    }
}

/// The vector instruction sets that the kernels use on this processor, by Rust's names of target features: those of the
/// widest build that runs here. Only the speed of a draw depends on them.
///
/// ```
/// let sets = klero::instruction_sets();
/// # #[cfg(target_arch = "x86_64")]
/// assert!(sets.starts_with(&["avx2", "fma", "f16c"]) || sets == ["sse2"]);
/// ```
pub fn instruction_sets() -> &'static [&'static str] {
    match level() {
        Level::Avx512 => &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"],
        Level::Avx2 => &["avx2", "fma", "f16c"],
        Level::Baseline if cfg!(target_feature = "sse2") => &["sse2"],
        Level::Baseline if cfg!(target_feature = "neon") => &["neon"],
        Level::Baseline => &[],
    }
}

/// Defines a function that runs `$body` with the widest instruction set the processor has. A body that is named with an
/// argument, as in `body(isa)`, is given that set's [`sixteen::Lanes`] before the others.
macro_rules! widest {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident $(($isa:ident))?;) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    $(let $isa = $crate::cpu::sixteen::Avx2::new();)?
                    $body($($isa,)? $($arg),*)
                }
                #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    $(let $isa = $crate::cpu::sixteen::Avx512::new();)?
                    $body($($isa,)? $($arg),*)
                }
                match $crate::cpu::level() {
                    // SAFETY: the features that `avx512` is compiled for were found on this processor.
                    $crate::cpu::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: the features that `avx2` is compiled for were found on this processor.
                    $crate::cpu::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::cpu::Level::Baseline => {}
                }
            }
            $(let $isa = $crate::cpu::sixteen::Plain;)?
            $body($($isa,)? $($arg),*)
        }
    };
}
pub(crate) use widest;
