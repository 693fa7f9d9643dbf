//! Positions: what t is at each kind of step.
//!
//! The position t of a draw is the number of tokens before the new one. A draw depends on it, so two runs agree only where
//! they count alike: prompt tokens included, padding left out.

use std::ops::Range;

/// The position of the first token after a prompt of `tokens`.
///
/// ```
/// assert_eq!(klero::position::prefill(12), 12);
/// ```
pub fn prefill(tokens: u64) -> u64 {
    tokens
}

/// The positions of the rows of a decode step (`new` = 1) or a verification step (`new` = 1 + drafts), after which the
/// sequence holds `total` tokens, `new` of them fed in this step. None unless 1 ≤ new ≤ total.
///
/// Row j predicts what follows the j-th new token, so it stands at total − new + 1 + j.
///
/// ```
/// use klero::position::step;
/// assert_eq!(step(13, 1), Some(13..14)); // after a prompt of 12 and one token
/// assert_eq!(step(17, 5), Some(13..18)); // the same with four drafts behind that token
/// assert_eq!(step(3, 4), None);
/// ```
pub fn step(total: u64, new: u64) -> Option<Range<u64>> {
    (1..=total).contains(&new).then(|| total - new + 1..total + 1)
}
