//! A directory being listed, and what was read of it ahead.

use std::collections::VecDeque;

use novale_posix::{Entry, File};

use crate::border::reply::Result;

/// Entries that are read from a directory at once.
const BATCH: usize = 128;

/// A directory, and what was read of it ahead of the caller.
pub(crate) struct Listing {
    file: File,
    ahead: VecDeque<(Entry, u64)>,
    /// The cookie of the last entry that was read.
    after: u64,
    /// None above this cookie is listed: what is made later would have it go on for ever. Fixed with
    /// the first entry, and anew when the listing starts again.
    last: Option<u64>,
    /// Nothing was after it when it was read.
    ended: bool,
}

impl Listing {
    pub(crate) fn new(file: File) -> Self {
        Self { file, ahead: VecDeque::new(), after: 0, last: None, ended: false }
    }

    pub(crate) fn seek(&mut self, cookie: u64) {
        self.ahead.clear();
        (self.after, self.ended) = (cookie, false);
        if cookie == 0 {
            self.last = None;
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<(Entry, u64)>> {
        if self.ahead.is_empty() && !self.ended {
            let last = match self.last {
                Some(last) => last,
                None => *self.last.insert(self.file.last_cookie()?),
            };
            let Self { file, ahead, after, ended, .. } = self;
            file.read_dir(*after, |entry, cookie| {
                if cookie > last {
                    return false;
                }
                ahead.push_back((entry, cookie));
                *after = cookie;
                ahead.len() < BATCH
            })?;
            *ended = ahead.len() < BATCH;
        }
        Ok(self.ahead.pop_front())
    }

    /// Takes back what `next` has returned.
    pub(crate) fn put_back(&mut self, entry: (Entry, u64)) {
        self.ahead.push_front(entry);
    }
}
