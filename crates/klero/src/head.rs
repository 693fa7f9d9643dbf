//! The fused head: from final hidden states and LM-head weights to tokens, without the logits ever being stored.
//!
//! The vocabulary is taken tile by tile. A tile's logits live in a small buffer of the thread that computed them; each
//! row takes from them what its draw needs (see `engine`), and the buffer is used again. A weight row is read once for
//! all hidden states of the call.

use crate::batch::Batch;
use crate::engine::{self, Tiles};
use crate::weights::Hidden;
use crate::{Error, MAX_VOCABULARY, Outcome, Policy, Row, RowError, Weights};
use std::ops::Range;

/// An LM head that draws.
///
/// ```
/// use klero::{FusedHead, Row, SamplingParams, Weights};
/// let weights = Weights::f32(3, 2, vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
/// let head = FusedHead::new(&weights)?;
/// let sampling = SamplingParams { temperature: 0.0, ..Default::default() }.check().unwrap();
/// let outcomes = head.draw(&[2.0, 5.0], &[Row::new(sampling, 0)])?;
/// assert_eq!(outcomes[0].as_ref().unwrap().token, 2);
/// assert_eq!(head.logits(&[2.0, 5.0])?, [2.0, 5.0, 7.0]);
/// # Ok::<(), klero::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FusedHead<'w> {
    weights: &'w Weights<'w>,
    tile: usize,
    policy: Policy<'w>,
}

impl<'w> FusedHead<'w> {
    /// A head over `weights` `[V, D]`.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] above 2^20 ids.
    pub fn new(weights: &'w Weights<'w>) -> Result<Self, Error> {
        if weights.rows() > MAX_VOCABULARY {
            return Err(Error::Vocabulary(weights.rows()));
        }
        Ok(Self { weights, tile: engine::TILE, policy: Policy::default() })
    }

    /// The same head with tiles of `ids` (rounded up to a multiple of 64). No result depends on it.
    pub fn with_tile(self, ids: usize) -> Self {
        Self { tile: engine::tile(ids), ..self }
    }

    /// The same head with settings that hold for every row.
    pub fn with_policy(self, policy: Policy<'w>) -> Self {
        Self { policy, ..self }
    }

    /// All that can be drawn from the rows of `hidden` `[rows, D]`. Nothing is computed yet.
    ///
    /// # Errors
    /// [`Error::Shape`] if `hidden` is not whole rows of D numbers.
    pub fn batch<'x>(&self, hidden: &'x [f32]) -> Result<Batch<'x>, Error>
    where
        'w: 'x,
    {
        let (found, width) = (hidden.len(), self.weights.cols());
        if !found.is_multiple_of(width) {
            return Err(Error::Shape(format!("hidden has length {found}, must be a multiple of {width}")));
        }
        let tiles = HeadTiles { weights: self.weights, hidden: self.weights.prepare(hidden) };
        Ok(Batch::new(tiles, found / width, self.weights.rows(), self.tile).with_policy(self.policy))
    }

    /// Draws a token for every row of `hidden` `[rows, D]`, on the current rayon pool: [`Batch::draw`].
    ///
    /// # Errors
    /// [`Error::Shape`] if `hidden` does not hold D numbers for each row; else as [`Batch::draw`].
    pub fn draw(&self, hidden: &[f32], rows: &[Row]) -> Result<Vec<Result<Outcome, RowError>>, Error> {
        let (found, width) = (hidden.len(), self.weights.cols());
        if rows.len().checked_mul(width) != Some(found) {
            return Err(Error::Shape(format!("hidden has length {found}, must be {} rows · {width}", rows.len())));
        }
        self.batch(hidden)?.draw(rows)
    }

    /// The logits `[rows, V]` that [`FusedHead::draw`] draws from, bit for bit, written out.
    ///
    /// # Errors
    /// [`Error::Shape`] if `hidden` is not whole rows of D numbers.
    pub fn logits(&self, hidden: &[f32]) -> Result<Vec<f32>, Error> {
        let mut logits = vec![0.0; hidden.len() / self.weights.cols() * self.weights.rows()];
        self.weights.matmul(hidden, &mut logits)?;
        Ok(logits)
    }
}

struct HeadTiles<'w, 'x> {
    weights: &'w Weights<'w>,
    hidden: Hidden<'x>,
}

impl Tiles for HeadTiles<'_, '_> {
    fn ids(&self) -> Range<usize> {
        0..self.weights.rows()
    }

    fn fill(&self, rows: &[usize], ids: Range<usize>, out: &mut [f32], stride: usize) {
        let width = ids.len();
        self.weights.dot(&self.hidden, rows, ids, out.chunks_mut(stride).map(|row| &mut row[..width]));
    }
}
