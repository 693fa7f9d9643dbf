//! Drawing from ready logits.

use crate::batch::Batch;
use crate::engine::{self, Tiles};
use crate::{Element, Error, MAX_VOCABULARY, Outcome, Row, RowError};
use std::ops::Range;

/// Logits `[rows, vocabulary]` in f32, bf16 or f16, one row every `stride` elements.
///
/// ```
/// use klero::{Logits, Row, SamplingParams};
/// let values = [1.0, 5.0, 2.0, 0.0, /* a second row */ 0.0, 0.0, 9.0, 1.0];
/// let logits = Logits::new(&values, 2, 4)?;
/// let sampling = SamplingParams { temperature: 0.0, ..Default::default() }.check().unwrap();
/// let outcomes = logits.draw(&[Row::new(sampling, 0), Row::new(sampling, 7)])?;
/// assert_eq!(outcomes[0].as_ref().unwrap().token, 1);
/// assert_eq!(outcomes[1].as_ref().unwrap().token, 2);
/// # Ok::<(), klero::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a, E = f32> {
    data: &'a [E],
    rows: usize,
    vocabulary: usize,
    stride: usize,
    tile: usize,
}

impl<'a, E: Element> Logits<'a, E> {
    /// Rows that lie one behind the other.
    ///
    /// # Errors
    /// As [`Logits::with_stride`].
    pub fn new(data: &'a [E], rows: usize, vocabulary: usize) -> Result<Self, Error> {
        Self::with_stride(data, rows, vocabulary, vocabulary)
    }

    /// Rows that begin every `stride` elements.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] above 2^20 ids; [`Error::Shape`] if the stride is narrower than the vocabulary or `data`
    /// is too short.
    pub fn with_stride(data: &'a [E], rows: usize, vocabulary: usize, stride: usize) -> Result<Self, Error> {
        if vocabulary > MAX_VOCABULARY {
            return Err(Error::Vocabulary(vocabulary));
        }
        if stride < vocabulary {
            return Err(Error::Shape(format!("stride is {stride}, must be at least the vocabulary, {vocabulary}")));
        }
        let needed = match rows {
            0 => Some(0),
            _ => (rows - 1).checked_mul(stride).and_then(|start| start.checked_add(vocabulary)),
        };
        if needed.is_none_or(|needed| data.len() < needed) {
            let found = data.len();
            return Err(Error::Shape(format!("logits [{rows}, {vocabulary}] with stride {stride} do not fit {found}")));
        }
        Ok(Self { data, rows, vocabulary, stride, tile: engine::READY_TILE })
    }

    /// The same logits, visited in tiles of `ids` (rounded up to a multiple of 64). No result depends on it.
    pub fn with_tile(self, ids: usize) -> Self {
        Self { tile: engine::tile(ids), ..self }
    }

    /// All that can be drawn from these rows.
    pub fn batch(&self) -> Batch<'a> {
        Batch::new(*self, self.rows, self.vocabulary, self.tile)
    }

    /// Draws a token for every row, on the current rayon pool: [`Batch::draw`].
    ///
    /// # Errors
    /// As [`Batch::draw`].
    pub fn draw(&self, rows: &[Row]) -> Result<Vec<Result<Outcome, RowError>>, Error> {
        self.batch().draw(rows)
    }
}

impl<E: Element> Tiles for Logits<'_, E> {
    fn ids(&self) -> Range<usize> {
        0..self.vocabulary
    }

    fn fill(&self, rows: &[usize], ids: Range<usize>, out: &mut [f32], stride: usize) {
        for (&row, out) in rows.iter().zip(out.chunks_mut(stride)) {
            let logits = &self.data[row * self.stride + ids.start..][..ids.len()];
            E::widen_all(logits, &mut out[..ids.len()]);
        }
    }

    fn ready(&self, row: usize, ids: Range<usize>) -> Option<&[f32]> {
        E::as_f32(&self.data[row * self.stride..][ids])
    }
}
