//! What the view of a pool that was opened read-only needs beside the inodes' own lines, since
//! nothing is stored to make them say what stands.

use std::collections::BTreeMap;

use novale_layout::{CommitLine, Ino, PmAddr};

use crate::base::error::{Error, Result};
use crate::inode::chunks::Lost;
use crate::inode::state::InodePlace;
use crate::log::redo::Owed;

/// What recovery would have stored, and what it could not have mended.
#[derive(Debug, Default)]
pub(crate) struct Unrecovered {
    /// Nobody writes to the pool.
    only_reads: bool,
    /// The pool was not closed clean: a line that does not validate is torn, and another stands.
    crashed: bool,
    /// The lines that stand where the inodes' own lines don't say so, by the inodes' places.
    lines: BTreeMap<PmAddr, CommitLine>,
    damaged: BTreeMap<Ino, Error>,
    lost: Vec<Lost>,
    /// Bytes of files that their logs have, and that recovery would have stored where they belong.
    owed: BTreeMap<Ino, Vec<Owed>>,
    /// Lines of inodes that were never written are zeros.
    takes_zeros: bool,
}

impl Unrecovered {
    /// Of a pool that was closed clean or not, the lines that recovery would have installed, by their
    /// inodes' places, the inodes that can't be believed, the numbers whose place is not known, and the
    /// bytes that it would have stored.
    pub(crate) fn new(
        clean: bool,
        lines: BTreeMap<PmAddr, CommitLine>,
        damaged: BTreeMap<Ino, Error>,
        lost: Vec<Lost>,
        owed: BTreeMap<Ino, Vec<Owed>>,
    ) -> Self {
        let (only_reads, crashed, takes_zeros) = (true, !clean, false);
        Self { only_reads, crashed, lines, damaged, lost, owed, takes_zeros }
    }

    /// The same of a pool in which zeros are lines that were never written.
    pub(crate) fn taking_zeros(self, takes_zeros: bool) -> Self {
        Self { takes_zeros, ..self }
    }

    /// An inode's place, as its lines are to be read.
    #[inline]
    pub(crate) fn place(&self, place: InodePlace) -> InodePlace {
        place.taking_zeros(self.takes_zeros)
    }

    /// Whether the pool was opened read-only: of an inode a part that can't be read need not keep the
    /// others from being shown.
    pub(crate) fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// Whether some bytes of an inode are not those of its pages.
    pub(crate) fn owes(&self, ino: Ino) -> bool {
        self.owed.contains_key(&ino)
    }

    /// Puts such bytes over what was read from byte `offset` of an inode on.
    pub(crate) fn lay_over(&self, ino: Ino, offset: u64, read: &mut [u8]) {
        for owed in self.owed.get(&ino).into_iter().flatten() {
            let bytes = (owed.offset..).zip(&owed.bytes);
            for (at, byte) in bytes.skip_while(|(at, _)| *at < offset) {
                let place = usize::try_from(at - offset).ok().and_then(|at| read.get_mut(at));
                let Some(place) = place else { break };
                *place = *byte;
            }
        }
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
