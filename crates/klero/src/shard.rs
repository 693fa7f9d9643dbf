//! A vocabulary cut into shards, each on a machine or device of its own.
//!
//! Every shard runs the same draw over its own ids. Where the draw needs to know what the others hold, it stops with a
//! message; once the messages of all shards are there it goes on. All shards arrive at the same outcomes, bit for bit those
//! of a single one. They must be asked for the same rows, seeds included (a random seed is another one on each shard), and a
//! message says so if they are not. What a message holds follows from what the rows ask for: 8 bytes a row for a Gumbel draw whose token
//! alone is wanted, the pairs (m, S) of its blocks where sums decide or logprobs are wanted, and the best ids where filters
//! are set. As a rule there are one or two rounds; a flat row under top-p takes more.

use crate::engine::exchange::{Exchange, Mailbox, Messages};
use crate::hash::splitmix64;
use crate::mass::BLOCK;
use crate::{Error, MAX_VOCABULARY, Outcome, Row, RowError};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Where a shard lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its first id, a multiple of 64.
    pub first: usize,
    /// The ids of all shards together.
    pub vocabulary: usize,
}

/// How far a draw over shards has come: one for outcomes ([`crate::Batch::shard`]) or for tokens alone
/// ([`crate::Batch::shard_tokens`]).
///
/// ```
/// use klero::{Error, Logits, Row, SamplingParams, Shard, ShardStep};
/// let values: Vec<f32> = (0..200).map(|i| (i as f32 * 0.37).sin() * 4.0).collect();
/// let params = SamplingParams { top_p: 0.9, seed: Some(3), ..Default::default() };
/// let rows = [Row::new(params.check().unwrap(), 12)];
///
/// // Two shards. In an engine each is on a device of its own, and an all-gather carries the messages.
/// let (low, high) = values.split_at(128);
/// let shard = |first| Shard { first, vocabulary: 200 };
/// let mut steps = [
///     Logits::new(low, 1, 128)?.batch().shard(shard(0), &rows)?,
///     Logits::new(high, 1, 72)?.batch().shard(shard(128), &rows)?,
/// ];
/// let outcomes = loop {
///     let messages: Vec<Vec<u8>> = steps.iter().filter_map(|step| step.message().map(<[u8]>::to_vec)).collect();
///     let [a, b] = steps;
///     steps = [a.merge(&messages)?, b.merge(&messages)?];
///     if let [ShardStep::Done(a), ShardStep::Done(b)] = &steps {
///         assert_eq!(a, b);
///         break a.clone();
///     }
/// };
/// assert_eq!(outcomes, Logits::new(&values, 1, 200)?.draw(&rows)?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum ShardStep<'a, T = Outcome> {
    /// The shards must hear of each other.
    Exchange(ShardDraw<'a, T>),
    /// What became of each row, the same for every shard.
    Done(Rows<T>),
}

type Rows<T> = Vec<Result<T, RowError>>;

/// A draw that waits for the messages of all shards.
pub struct ShardDraw<'a, T> {
    part: Part,
    mailbox: Mailbox,
    message: Vec<u8>,
    draw: Pin<Box<dyn Future<Output = Result<Rows<T>, Error>> + Send + 'a>>,
}

impl<'a, T> ShardStep<'a, T> {
    /// Starts a draw, which is given its way to the other shards.
    pub(crate) fn begin<F>(part: Part, draw: impl FnOnce(Exchange, Range<usize>) -> F) -> Result<Self, Error>
    where
        F: Future<Output = Result<Rows<T>, Error>> + Send + 'a,
    {
        let mailbox = Mailbox::default();
        let ids = part.ids.clone();
        let draw = Box::pin(draw(Exchange::Shards(ids.clone(), mailbox.clone()), ids));
        ShardDraw { part, mailbox, message: Vec::new(), draw }.go_on()
    }

    /// The message that must reach all shards; None where the draw is done.
    pub fn message(&self) -> Option<&[u8]> {
        match self {
            Self::Exchange(draw) => Some(&draw.message),
            Self::Done(_) => None,
        }
    }

    /// Goes on with the messages of all shards, this one's among them, in any order. A draw that is done stays so.
    ///
    /// # Errors
    /// [`Error::Shards`] if they do not belong together, or one is damaged.
    pub fn merge(self, messages: &[impl AsRef<[u8]>]) -> Result<Self, Error> {
        match self {
            Self::Exchange(draw) => draw.merge(messages),
            Self::Done(_) => Ok(self),
        }
    }

    /// Runs a draw to its end: `all_gather` takes this shard's message and returns those of all.
    ///
    /// # Errors
    /// As [`ShardStep::merge`], and what `all_gather` fails with.
    pub fn finish<E: From<Error>>(
        mut self,
        mut all_gather: impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Rows<T>, E> {
        loop {
            match self {
                Self::Done(outcomes) => return Ok(outcomes),
                Self::Exchange(draw) => {
                    let messages = all_gather(&draw.message)?;
                    self = draw.merge(&messages)?;
                }
            }
        }
    }
}

impl<'a, T> ShardDraw<'a, T> {
    fn merge(self, messages: &[impl AsRef<[u8]>]) -> Result<ShardStep<'a, T>, Error> {
        self.mailbox.bring(self.part.others(messages)?);
        self.go_on()
    }

    fn go_on(mut self) -> Result<ShardStep<'a, T>, Error> {
        match self.draw.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcomes) => Ok(ShardStep::Done(outcomes?)),
            Poll::Pending => {
                self.message = self.part.seal(&self.mailbox.take().expect("a draw that waits has left a message"));
                self.part.round += 1;
                Ok(ShardStep::Exchange(self))
            }
        }
    }
}

impl<T> std::fmt::Debug for ShardDraw<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShardDraw of ids {:?}, round {}", self.part.ids, self.part.round)
    }
}

/// What a shard says of itself at the head of each message.
#[derive(Clone)]
pub(crate) struct Part {
    ids: Range<usize>,
    vocabulary: usize,
    rows: usize,
    /// A fingerprint of what the rows ask for, which must be the same on every shard.
    asked: u64,
    round: u64,
}

const MAGIC: u64 = u64::from_le_bytes(*b"klero\0\0\x01");
/// Bytes of the checksum, and of what stands before the body with it.
const CHECKSUM: usize = 8;
const HEADER: usize = CHECKSUM + 7 * 8;

/// A checksum: shards trust each other, but not the wire between them.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(bytes.len() as u64, |sum, word| splitmix64(sum ^ word))
}

/// A hash of the rows' parameters, seeds and positions.
fn fingerprint(rows: &[Row]) -> u64 {
    let asked = rows.iter().map(|row| {
        let draft = row.draft.map(|draft| (draft.token, std::mem::discriminant(&draft.proposal)));
        format!("{:?} {} {:?} {:?} {draft:?} {:?}", row.sampling, row.position, row.stream, row.vocabulary, row.ids)
    });
    asked.fold(0, |sum, row| splitmix64(sum ^ checksum(row.as_bytes())))
}

impl Part {
    /// A shard of `width` ids.
    pub(crate) fn new(shard: Shard, width: usize, rows: &[Row]) -> Result<Self, Error> {
        let Shard { first, vocabulary } = shard;
        if vocabulary > MAX_VOCABULARY {
            return Err(Error::Vocabulary(vocabulary));
        }
        let end = first.saturating_add(width);
        if !first.is_multiple_of(BLOCK) || end > vocabulary || (end < vocabulary && !end.is_multiple_of(BLOCK)) {
            let rule = "shards must begin and end at multiples of 64, the last at the vocabulary";
            return Err(Error::Shards(format!("ids {first}..{end} of a vocabulary of {vocabulary}: {rule}")));
        }
        Ok(Self { ids: first..end, vocabulary, rows: rows.len(), asked: fingerprint(rows), round: 0 })
    }

    /// The message with this body: a checksum, what the shard says of itself, the body.
    fn seal(&self, body: &[u8]) -> Vec<u8> {
        let numbers = [self.ids.start, self.ids.end, self.vocabulary, self.rows].map(|number| number as u64);
        let mut message = vec![0; CHECKSUM];
        for number in [MAGIC, self.round, self.asked].into_iter().chain(numbers) {
            message.extend_from_slice(&number.to_le_bytes());
        }
        message.extend_from_slice(body);
        let sum = checksum(&message[CHECKSUM..]);
        message[..CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        message
    }

    /// The bodies of the other shards' messages, each with its ids, after a look at all headers.
    fn others(&self, messages: &[impl AsRef<[u8]>]) -> Result<Messages, Error> {
        let mut all = Vec::with_capacity(messages.len());
        for message in messages {
            all.push((self.ids_of(message.as_ref())?, message.as_ref()[HEADER..].to_vec()));
        }
        all.sort_by_key(|(ids, _)| (ids.start, ids.end));
        let end = all.iter().try_fold(0, |end, (ids, _)| (ids.start == end).then_some(ids.end));
        if end != Some(self.vocabulary) {
            let found: Vec<_> = all.iter().map(|(ids, _)| ids).collect();
            return Err(Error::Shards(format!("ids {found:?} do not make up a vocabulary of {}", self.vocabulary)));
        }
        let own = all.iter().position(|(ids, _)| *ids == self.ids);
        all.remove(own.ok_or_else(|| Error::Shards("this shard's own message is missing".to_owned()))?);
        Ok(all)
    }

    /// The ids of the shard that sent a message of this round.
    fn ids_of(&self, message: &[u8]) -> Result<Range<usize>, Error> {
        let wrong = |what: &str| Error::Shards(format!("a message is {what}"));
        let header = message.get(..HEADER).ok_or_else(|| wrong("too short"))?;
        let mut numbers = header.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || numbers.next().unwrap_or_default();
        let (sum, magic) = (next(), next());
        if magic != MAGIC {
            return Err(wrong("not one of this version"));
        }
        if sum != checksum(&message[CHECKSUM..]) {
            return Err(wrong("damaged: its checksum does not hold"));
        }
        let (round, asked, start, end) = (next().wrapping_add(1), next(), next() as usize, next() as usize);
        if (round, next() as usize, next() as usize) != (self.round, self.vocabulary, self.rows) {
            return Err(wrong("of another round, vocabulary or number of rows"));
        }
        if asked != self.asked {
            return Err(wrong("for rows with other parameters, seeds or positions"));
        }
        if start > end || end > self.vocabulary || !start.is_multiple_of(BLOCK) {
            return Err(wrong("of a shard that cannot be"));
        }
        Ok(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, Draw, Logits, SamplingParams};

    /// Bodies that no shard can have written, under checksums that hold, in any round and for rows of every kind: an error or
    /// some outcome, never a panic or a draw without end.
    #[test]
    fn damaged_messages_end_in_an_error_or_an_outcome() {
        let vocabulary = 64 * 20;
        let mut state = 41;
        let mut below = |n: usize| {
            state = splitmix64(state);
            (state % n as u64) as usize
        };
        let logits: Vec<f32> = (0..vocabulary).map(|_| below(1000) as f32 * 5e-4).collect();
        let (low, high) = logits.split_at(64 * 7);
        let (mut refused, mut drawn) = (0, 0);
        for round in 0..6000u64 {
            let bit = |bit: u64| round >> bit & 1 == 1;
            let params = SamplingParams {
                seed: Some(round),
                top_p: if bit(0) { 0.9 } else { 1.0 },
                top_k: if bit(1) { 20 } else { -1 },
                draw: if bit(2) { Draw::InverseCdf } else { Draw::Gumbel },
                kept_ids: bit(3),
                confidence: bit(4),
                raw_logprobs: bit(5),
                top_logprobs: if bit(6) { 5 } else { 0 },
                ..Default::default()
            };
            let draft = bit(7).then_some(Draft::one_hot(3));
            let rows = [Row { draft, ..Row::new(params.check().unwrap(), 5) }];
            let parts = [(low, 0), (high, low.len())].map(|(part, first)| {
                let batch = Logits::new(part, 1, part.len()).unwrap().batch();
                batch.shard(Shard { first, vocabulary }, &rows).unwrap()
            });
            let [mut one, mut other] = parts;
            let ended = loop {
                let (Some(own), Some(message)) = (one.message(), other.message()) else { break true };
                let (own, sound) = (own.to_vec(), message.to_vec());
                let mut body = sound[HEADER..].to_vec();
                for _ in 0..if body.is_empty() { 0 } else { below(4) } {
                    let place = below(body.len());
                    body[place] = [0, 0xFF, below(256) as u8][below(3)];
                }
                let damaged = match &other {
                    ShardStep::Exchange(draw) => Part { round: draw.part.round - 1, ..draw.part.clone() }.seal(&body),
                    ShardStep::Done(_) => break true,
                };
                match (one.merge(&[own.clone(), damaged]), other.merge(&[own, sound])) {
                    (Ok(next), Ok(partner)) => (one, other) = (next, partner),
                    (Err(Error::Shards(_)), _) | (_, Err(Error::Shards(_))) => break false,
                    other => panic!("{other:?}"),
                }
            };
            *(if ended { &mut drawn } else { &mut refused }) += 1;
        }
        assert!(refused > 500 && drawn > 500, "{refused} refused, {drawn} drawn");
    }
}
