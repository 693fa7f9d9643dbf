//! What the shards of a vocabulary tell each other.
//!
//! A draw over shards is the same code as any other. Where a pass ends, each shard writes down what its threads gathered,
//! the messages are carried to all, and each adds what the others found: the merge between threads once more, between
//! machines. While a draw waits for messages it is a suspended future, which [`Exchange`] wakes; without shards nothing is
//! written and nothing waits.

use crate::Error;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// A message that does not hold what it must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damaged;

/// The way to the other shards of a call.
pub(crate) enum Exchange {
    /// There are none.
    Alone,
    /// They are reached through this place, which holds the given ids.
    Shards(Range<usize>, Mailbox),
}

/// The messages of other shards, each with the shard's ids.
pub(crate) type Messages = Vec<(Range<usize>, Vec<u8>)>;

/// Where a message is left for the others, and theirs are found.
#[derive(Clone, Default)]
pub(crate) struct Mailbox(Arc<Mutex<Letters>>);

#[derive(Default)]
struct Letters {
    outgoing: Option<Vec<u8>>,
    incoming: Option<Messages>,
}

impl Mailbox {
    fn open(&self) -> MutexGuard<'_, Letters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the message for the others.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.open().outgoing.take()
    }

    /// Brings the messages of the others, each with the ids of its shard.
    pub(crate) fn bring(&self, messages: Messages) {
        self.open().incoming = Some(messages);
    }
}

impl Exchange {
    /// Writes something of each item for the other shards, and adds what they wrote.
    pub(crate) async fn share<T>(
        &self,
        items: &[T],
        write: impl Fn(&T, &Range<usize>, &mut Writer),
        read: impl Fn(&T, &Range<usize>, &mut Reader) -> Result<(), Damaged>,
    ) -> Result<(), Error> {
        let Self::Shards(own, mailbox) = self else { return Ok(()) };
        if items.is_empty() {
            return Ok(());
        }
        let mut out = Writer::default();
        for item in items {
            write(item, own, &mut out);
        }
        mailbox.open().outgoing = Some(out.0);
        let others = poll_fn(|_| mailbox.open().incoming.take().map_or(Poll::Pending, Poll::Ready)).await;
        for (ids, message) in others {
            let mut from = Reader(&message);
            let added = items.iter().try_for_each(|item| read(item, &ids, &mut from));
            if added.is_err() || !from.0.is_empty() {
                return Err(Error::Shards(format!("the message of the shard with ids {ids:?} is damaged")));
            }
        }
        Ok(())
    }
}

/// Writes numbers, little-endian.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn f32(&mut self, value: f32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Many numbers, their count first.
    pub(crate) fn list(&mut self, values: impl ExactSizeIterator<Item = u64>) {
        self.u64(values.len() as u64);
        values.for_each(|value| self.u64(value));
    }
}

/// Reads what a [`Writer`] wrote.
pub(crate) struct Reader<'m>(&'m [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damaged> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub(crate) fn f32(&mut self) -> Result<f32, Damaged> {
        Ok(f32::from_le_bytes(self.take()?))
    }

    /// A list of at most `most` numbers.
    pub(crate) fn list(&mut self, most: usize) -> Result<Vec<u64>, Damaged> {
        let count = self.u64()?;
        if count > most as u64 {
            return Err(Damaged);
        }
        (0..count).map(|_| self.u64()).collect()
    }
}
