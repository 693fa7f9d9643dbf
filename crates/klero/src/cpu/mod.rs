//! Arithmetic kernels for the CPU.
//!
//! Each kernel is one plain function over fixed-size arrays, marked `inline(always)` and compiled twice: once for the
//! baseline of the target and once with wider vectors and fused multiply-add. Both are the same IEEE operations in the
//! same order, and the compiler contracts nothing, so their results are equal bit for bit; only their speed differs.

pub(crate) mod block;
pub(crate) mod dot;
pub(crate) mod philox;

/// Whether this processor runs the wider build of the kernels.
#[inline(always)]
pub(crate) fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The vector instruction sets that the kernels use on this processor, by Rust's names of target features: those of the
/// wider build if it runs here, else those of the target's baseline. Only the speed of a draw depends on them.
///
/// ```
/// let sets = klero::instruction_sets();
/// # #[cfg(target_arch = "x86_64")]
/// assert!(sets == ["avx2", "fma"] || sets == ["sse2"]);
/// ```
pub fn instruction_sets() -> &'static [&'static str] {
    match is_wide() {
        true => &["avx2", "fma"],
        false if cfg!(target_feature = "sse2") => &["sse2"],
        false if cfg!(target_feature = "neon") => &["neon"],
        false => &[],
    }
}

/// Defines a function that runs `$body` with the widest instruction set the processor has.
macro_rules! widest {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path;) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                if $crate::cpu::is_wide() {
                    // SAFETY: the two features that `wide` is compiled for were found on this processor.
                    return unsafe { wide($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use widest;
