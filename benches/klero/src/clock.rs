//! Time.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Microseconds of one call: the median of as many calls as fit into `budget`, at least three. One call before is not
/// counted.
pub fn us<T>(budget: Duration, mut call: impl FnMut() -> T) -> f64 {
    black_box(call());
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || start.elapsed() < budget {
        let start = Instant::now();
        black_box(call());
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    median(&mut times)
}

/// The middle one.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
