//! What a client counts for others to see: bytes that it was asked for, by how they were written, and what
//! it stored.
//!
//! The counts are `novale-pm`'s, in words of the client's own in the arena: who adds all of them up has what
//! all clients did since the pool was opened, those included that left or died.

use novale_arena::Arena;
use novale_pm::{ASKED_KINDS, Asked, Counters};
use novale_policy::Method;

use crate::base::error::Result;
use crate::fs::Fs;

/// How bytes were written that a caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Written {
    /// By whole new pages.
    Cow = 0,
    /// At the end of a file.
    Append = 1,
    /// Over the old ones.
    InPlace = 2,
    /// To a file's log, then over the old ones.
    FineLog = 3,
    /// To pages with two copies.
    Paired = 4,
    /// From a file to a file.
    Copied = 5,
    /// In several places of a file at once: what an atomic mapping publishes.
    Published = 6,
    /// Over the old ones, which were in the log meanwhile, and by whole new pages.
    Undo = 7,
    /// Over the old ones, by a log that said where in the pool they lay.
    Source = 8,
    /// To the write buffer.
    Buffered = 9,
    /// To slots that pages share.
    Lawn = 17,
}

/// What became of bytes that were to be buffered; of each kind there are two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Buffering {
    /// Blocks that were there when a write came, and their lines that it wrote once more.
    Hit = 10,
    /// Writes that began or ended within a line, and lines whose rest came from the pool.
    Fetched = 11,
    /// Files that were flushed, and lines of theirs.
    WrittenBack = 12,
    /// Files that were removed, and lines of theirs that nobody had to write.
    Dropped = 13,
    /// Writes that went past the buffer, and lines of theirs.
    Eager = 14,
    /// Syncs for which the model had foretold something, and those for which that was right.
    Foretold = 15,
    /// Syncs that said to buffer, and that said not to.
    Verdict = 16,
    /// Of the syncs of [`Buffering::Foretold`] each file's first, and those for which what its directory's
    /// files foretold was right. The paper counts the others alone (`HiNFS` 3.2).
    FirstForetold = 18,
}

const _: () = assert!((Written::Buffered as usize) < Buffering::Hit as usize);
const _: () = assert!((Buffering::Verdict as usize) < Written::Lawn as usize);
const _: () = assert!((Written::Lawn as usize) < Buffering::FirstForetold as usize);
const _: () = assert!((Buffering::FirstForetold as usize) < ASKED_KINDS);

impl Buffering {
    /// Both counts.
    #[must_use]
    pub fn counts(self, counters: &Counters) -> [u64; 2] {
        let Asked { count, bytes } = counters.asked.get(self as usize).copied().unwrap_or_default();
        [count, bytes]
    }
}

impl Written {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Cow,
        Self::Append,
        Self::InPlace,
        Self::FineLog,
        Self::Paired,
        Self::Copied,
        Self::Published,
        Self::Undo,
        Self::Source,
        Self::Buffered,
        Self::Lawn,
    ];

    /// In a word; of a method, that of the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cow => "cow",
            Self::Append => "append",
            Self::InPlace => "inplace",
            Self::FineLog => "finelog",
            Self::Paired => "paired",
            Self::Copied => "copied",
            Self::Published => "published",
            Self::Undo => "adl",
            Self::Source => "zcl",
            Self::Buffered => "buffered",
            Self::Lawn => "lawn",
        }
    }

    /// How many writes were made so, and of how many bytes.
    #[must_use]
    pub fn asked(self, counters: &Counters) -> Asked {
        counters.asked.get(self as usize).copied().unwrap_or_default()
    }
}

impl From<Method> for Written {
    fn from(method: Method) -> Self {
        match method {
            Method::CopyOnWrite => Self::Cow,
            Method::Append => Self::Append,
            Method::InPlace => Self::InPlace,
            Method::FineLog => Self::FineLog,
            Method::Paired => Self::Paired,
            Method::Undo => Self::Undo,
            Method::Source => Self::Source,
            Method::Lawn => Self::Lawn,
        }
    }
}

/// What all clients in `arena` have counted, those that left or died included. Of an operation in flight
/// a part may be missing.
///
/// # Errors
/// [`Error::BadArena`](crate::Error::BadArena) when the arena is damaged.
pub fn counted(arena: &Arena) -> Result<Counters> {
    let mut sum = Counters::default();
    arena.visit_counts(&mut |words| sum += &Counters::of_words(words))?;
    Ok(sum)
}

impl Fs {
    /// Counts where others see it from now on, and what was counted so far as well.
    pub(crate) fn count_for_all(&mut self) {
        let blocks = self.client.count_blocks();
        let source = move |words| Some(Box::new(blocks.take(words)?) as novale_pm::CountWords);
        self.pm.set_count_source(Some(Box::new(source)));
    }

    /// Counts what became of bytes that were to be buffered.
    pub(crate) fn count_buffering(&self, what: Buffering, counts: [u64; 2]) {
        let [first, second] = counts;
        self.pm.count_two(what as usize, first, second);
    }

    /// A caller's bytes were written.
    #[inline]
    pub(crate) fn count_written(&self, how: Written, bytes: u64) {
        self.pm.count_asked(how as usize, bytes);
    }
}
