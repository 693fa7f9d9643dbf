//! Dot products of hidden states with weight rows, in one fixed order: [`float`] for rows of plain numbers,
//! [`quantized`] for rows of blocks.
//!
//! A result depends on one hidden row and one weight row only. Several are taken at once for speed; each keeps its own
//! lanes.

pub(crate) mod float;
pub(crate) mod quantized;
#[cfg(target_arch = "x86_64")]
mod vnni;

use std::ops::Add;

/// A hidden state, by its number, and the place for its dot product with each weight row.
pub(crate) type Wanted<'o> = (usize, &'o mut [f32]);

/// Adds lanes pairwise, halves apart: with N = 16 the tree l with l + 8, + 4, + 2, + 1.
#[inline(always)]
pub(crate) fn add_tree<T: Copy + Add<Output = T>, const N: usize>(mut lanes: [T; N]) -> T {
    let mut half = N / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = lanes[l] + lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}
