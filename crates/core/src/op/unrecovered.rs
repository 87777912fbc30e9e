//! What the view of a pool that was opened read-only needs beside the inodes' own lines, since
//! nothing is stored to make them say what stands.

use std::collections::BTreeMap;

use novale_layout::{CommitLine, Ino, PmAddr};

use crate::base::error::{Error, Result};
use crate::inode::chunks::Lost;
use crate::inode::state::InodePlace;

/// What recovery would have stored, and what it could not have mended.
#[derive(Debug, Default)]
pub(crate) struct Unrecovered {
    /// The pool was not closed clean: a line that does not validate is torn, and another stands.
    crashed: bool,
    /// The lines that stand where the inodes' own lines don't say so, by the inodes' places.
    lines: BTreeMap<PmAddr, CommitLine>,
    damaged: BTreeMap<Ino, Error>,
    lost: Vec<Lost>,
}

impl Unrecovered {
    /// Of a pool that was closed clean or not, the lines that recovery would have installed, by their
    /// inodes' places, the inodes that can't be believed, and the numbers whose place is not known.
    pub(crate) fn new(
        clean: bool,
        lines: BTreeMap<PmAddr, CommitLine>,
        damaged: BTreeMap<Ino, Error>,
        lost: Vec<Lost>,
    ) -> Self {
        Self { crashed: !clean, lines, damaged, lost }
    }

    /// Refuses an inode that was found damaged.
    pub(crate) fn check(&self, ino: Ino) -> Result<()> {
        self.damaged.get(&ino).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Why a number has no place: it is not in use, or the word that named its page is damaged.
    pub(crate) fn no_place(&self, ino: Ino) -> Error {
        let lost = self.lost.iter().find(|lost| lost.numbers.contains(&ino.get()));
        lost.map_or(Error::Stale, |lost| lost.why.clone())
    }

    /// The line that stands, where the inode's own lines don't say so.
    pub(crate) fn line(&self, place: &InodePlace) -> Option<&CommitLine> {
        self.lines.get(&place.addr)
    }

    /// A line that does not validate is damage, and not the trace of a crash.
    pub(crate) fn torn_is_damage(&self) -> bool {
        !self.crashed
    }
}
