//! Rows of logits, ready or still to be computed, and all that can be drawn from them.

use crate::engine::exchange::Exchange;
use crate::engine::outcome::Drawn;
use crate::engine::{self, Call, Tiles};
use crate::shard::{Part, Shard, ShardStep};
use crate::{Draw, Error, Outcome, Policy, Row, RowError, Speculated, Speculation, TokenLogprob};
use rayon::prelude::*;
use std::fmt;
use std::ops::Range;

/// Rows of logits of one width: from [`crate::Logits::batch`] or [`crate::FusedHead::batch`].
///
/// ```
/// use klero::{Logits, Row, SamplingParams};
/// let sampling = SamplingParams { seed: Some(7), ..Default::default() }.check().unwrap();
/// let batch = Logits::new(&[1.0, 1.0, 1.0, 1.0], 1, 4)?.batch();
/// let rows = [Row::new(sampling, 0)];
/// let four = batch.samples(&rows, 4)?.remove(0);
/// assert_eq!(four.len(), 4);
/// assert_eq!(four[0], batch.draw(&rows)?[0]); // sample 0 is the ordinary draw
/// # Ok::<(), klero::Error>(())
/// ```
pub struct Batch<'a> {
    tiles: Box<dyn Tiles + Send + 'a>,
    rows: usize,
    vocabulary: usize,
    tile: usize,
    policy: Policy<'a>,
}

/// Rows whose prompt logprobs are computed together: what a call remembers of a row grows with the vocabulary.
const TOGETHER: usize = 64;

/// The logprob of a token that a prompt holds.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptLogprob {
    /// The token of the prompt.
    pub token: TokenLogprob,
    /// The best tokens in its place.
    pub top: Vec<TokenLogprob>,
}

/// A row with everything that a draw does not keep.
pub(crate) struct FullRow {
    /// The unprocessed logits of the valid vocabulary.
    pub logits: Vec<f32>,
    /// x; −∞ where an id takes no part.
    pub x: Vec<f32>,
    pub outcome: Outcome,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(tiles: impl Tiles + Send + 'a, rows: usize, vocabulary: usize, tile: usize) -> Self {
        Self { tiles: Box::new(tiles), rows, vocabulary, tile, policy: Policy::default() }
    }

    /// The same rows with settings that hold for all of them.
    pub fn with_policy(self, policy: Policy<'a>) -> Self {
        Self { policy, ..self }
    }

    /// Draws a token for every row, on the current rayon pool.
    ///
    /// # Errors
    /// [`Error::Shape`] if `rows` does not hold one entry per row of logits, or the policy's blacklist an id beyond the
    /// vocabulary. What is wrong with a single row is that row's [`RowError`].
    pub fn draw(&self, rows: &[Row]) -> Result<Vec<Result<Outcome, RowError>>, Error> {
        self.expect(rows.len())?;
        self.outcomes(&numbered(rows))
    }

    /// The same tokens as [`Batch::draw`], and nothing else: no logprobs, no sums where none decides.
    ///
    /// # Errors
    /// As [`Batch::draw`].
    pub fn tokens(&self, rows: &[Row]) -> Result<Vec<Result<u32, RowError>>, Error> {
        self.expect(rows.len())?;
        self.run(&numbered(rows), true, |drawn| drawn.token)
    }

    /// Draws `n` tokens for every row, sample j with the seed of [`crate::Sampling::sample`]. The logits are computed once.
    ///
    /// # Errors
    /// As [`Batch::draw`].
    pub fn samples(&self, rows: &[Row], n: usize) -> Result<Vec<Vec<Result<Outcome, RowError>>>, Error> {
        self.expect(rows.len())?;
        let mut all = Vec::with_capacity(rows.len() * n);
        for (i, row) in rows.iter().enumerate() {
            all.extend((0..n as u64).map(|j| (i, Row { sampling: row.sampling.sample(j), ..*row })));
        }
        let mut outcomes = self.outcomes(&all)?.into_iter();
        Ok(rows.iter().map(|_| outcomes.by_ref().take(n).collect()).collect())
    }

    /// Verifies whole drafts, whose rows lie one behind the other.
    ///
    /// # Errors
    /// As [`Batch::draw`].
    pub fn verify(&self, drafts: &[Speculation]) -> Result<Vec<Result<Speculated, RowError>>, Error> {
        if let Some(i) = drafts.iter().position(|draft| draft.rows.is_empty()) {
            return Err(Error::Shape(format!("draft {i} has no rows, must have one more than tokens")));
        }
        let rows: Vec<Row> = drafts.iter().flat_map(|draft| draft.rows.iter().copied()).collect();
        let mut outcomes = self.draw(&rows)?.into_iter();
        let mut next = |n| -> Vec<_> { outcomes.by_ref().take(n).collect() };
        Ok(drafts.iter().map(|draft| Speculated::of(next(draft.rows.len()))).collect())
    }

    /// The logprobs of a prompt's own tokens: entry i is that of `tokens[i + 1]` under row i, so there is one less than
    /// tokens. `row` gives the parameters; its position, draft and ids are left aside.
    ///
    /// # Errors
    /// As [`Batch::draw`], with one token per row of logits.
    pub fn prompt_logprobs(&self, tokens: &[u32], row: &Row) -> Result<Vec<Result<PromptLogprob, RowError>>, Error> {
        self.expect(tokens.len())?;
        // Nobody looks at the token that is drawn; the inverse CDF finds one without noise.
        let sampling = crate::Sampling { draw: Draw::InverseCdf, ..row.sampling };
        let rows: Vec<(usize, Row)> = tokens
            .windows(2)
            .enumerate()
            .map(|(i, pair)| (i, Row { sampling, draft: None, ids: &pair[1..], ..*row }))
            .collect();
        let mut all = Vec::with_capacity(rows.len());
        for rows in rows.chunks(TOGETHER) {
            all.extend(self.outcomes(rows)?.into_iter().map(|outcome| outcome.map(prompt_logprob)));
        }
        Ok(all)
    }

    /// Begins a draw in which these logits are one shard of the vocabulary; see [`ShardStep`].
    ///
    /// # Errors
    /// As [`Batch::draw`], and [`Error::Shards`] if the shard does not fit the vocabulary.
    pub fn shard(self, shard: Shard, rows: &[Row<'a>]) -> Result<ShardStep<'a>, Error> {
        self.begin(shard, rows, false, outcome)
    }

    /// As [`Batch::shard`], for the tokens alone: where no sum decides, messages have a few bytes a row.
    ///
    /// # Errors
    /// As [`Batch::shard`].
    pub fn shard_tokens(self, shard: Shard, rows: &[Row<'a>]) -> Result<ShardStep<'a, u32>, Error> {
        self.begin(shard, rows, true, |drawn| drawn.token)
    }

    fn begin<T>(
        self,
        shard: Shard,
        rows: &[Row<'a>],
        bare: bool,
        wanted: impl Fn(Drawn) -> T + Send + 'a,
    ) -> Result<ShardStep<'a, T>, Error> {
        self.expect(rows.len())?;
        self.check_policy(shard.vocabulary)?;
        let part = Part::new(shard, self.vocabulary, rows)?;
        let rows = numbered(rows);
        ShardStep::begin(part, move |exchange, ids| async move {
            let tiles = ShardTiles { tiles: &*self.tiles, ids };
            let call = Call { tiles: &tiles, vocabulary: shard.vocabulary, exchange, ..self.call(bare) };
            let drawn = engine::draw(&call, &rows).await?;
            Ok(drawn.into_iter().map(|drawn| drawn.map(&wanted)).collect())
        })
    }

    /// One row drawn, with all its logits and x.
    pub(crate) fn row_in_full(&self, row: usize, asked: &Row) -> Result<Result<FullRow, RowError>, Error> {
        if row >= self.rows {
            return Err(Error::Shape(format!("row {row} of {} rows of logits", self.rows)));
        }
        let outcome = match self.outcomes(&[(row, *asked)])?.remove(0) {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error)),
        };
        let mut logits = vec![0.0; asked.vocabulary.unwrap_or(self.vocabulary)];
        logits.par_chunks_mut(self.tile).enumerate().for_each(|(i, out)| {
            let first = i * self.tile;
            self.tiles.fill(&[row], first..first + out.len(), out, out.len());
        });
        let x = engine::alone(engine::x(&self.call(false), (row, asked), &logits))?;
        Ok(x.map(|x| FullRow { logits, x, outcome }))
    }

    fn outcomes(&self, rows: &[(usize, Row)]) -> Result<Vec<Result<Outcome, RowError>>, Error> {
        self.run(rows, false, outcome)
    }

    fn run<T>(
        &self,
        rows: &[(usize, Row)],
        bare: bool,
        wanted: impl Fn(Drawn) -> T,
    ) -> Result<Vec<Result<T, RowError>>, Error> {
        self.check_policy(self.vocabulary)?;
        let drawn = engine::alone(engine::draw(&self.call(bare), rows))?;
        Ok(drawn.into_iter().map(|drawn| drawn.map(&wanted)).collect())
    }

    fn call(&self, bare: bool) -> Call<'_> {
        let (tiles, exchange) = (&*self.tiles as &dyn Tiles, Exchange::Alone);
        Call { tiles, tile: self.tile, vocabulary: self.vocabulary, policy: self.policy, bare, exchange }
    }

    pub(crate) fn expect(&self, rows: usize) -> Result<(), Error> {
        match rows == self.rows {
            true => Ok(()),
            false => Err(Error::Shape(format!("{rows} rows of parameters for {} rows of logits", self.rows))),
        }
    }

    fn check_policy(&self, vocabulary: usize) -> Result<(), Error> {
        match self.policy.blacklist.and_then(|list| list.last()) {
            Some(id) if *id as usize >= vocabulary => {
                Err(Error::Shape(format!("the blacklist holds id {id}, must be below the vocabulary, {vocabulary}")))
            }
            _ => Ok(()),
        }
    }
}

fn numbered<'r>(rows: &[Row<'r>]) -> Vec<(usize, Row<'r>)> {
    rows.iter().copied().enumerate().collect()
}

fn outcome(drawn: Drawn) -> Outcome {
    drawn.outcome.expect("only a bare draw has none")
}

fn prompt_logprob(outcome: Outcome) -> PromptLogprob {
    PromptLogprob { token: outcome.asked[0], top: outcome.top }
}

/// Logits of a shard under the ids of the whole vocabulary.
struct ShardTiles<'t> {
    tiles: &'t (dyn Tiles + Send + 't),
    ids: Range<usize>,
}

impl ShardTiles<'_> {
    /// The shard's own numbers of these ids.
    fn own(&self, ids: Range<usize>) -> Range<usize> {
        ids.start - self.ids.start..ids.end - self.ids.start
    }
}

impl Tiles for ShardTiles<'_> {
    fn ids(&self) -> Range<usize> {
        self.ids.clone()
    }

    fn fill(&self, rows: &[usize], ids: Range<usize>, out: &mut [f32], stride: usize) {
        self.tiles.fill(rows, self.own(ids), out, stride);
    }

    fn ready(&self, row: usize, ids: Range<usize>) -> Option<&[f32]> {
        self.tiles.ready(row, self.own(ids))
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch [{}, {}]", self.rows, self.vocabulary)
    }
}
