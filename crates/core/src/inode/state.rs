//! What an inode is on media: its place, its log, the state that a commit line says, its attributes.

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, IDENTITY_OFFSET, IdentityLine, Ino, LayoutError, PmAddr, Seed,
};
use novale_pm::{Dirty, Flushed, Pm, Purpose};

use crate::inode::words::XattrSet;

/// Where an inode lies on media, and the seed of its lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodePlace {
    pub(crate) addr: PmAddr,
    pub(crate) seed: Seed,
    /// Its lines that were never written are zeros: of a pool that is not yet `RoFeature::Unwritten`.
    takes_zeros: bool,
}

impl InodePlace {
    #[inline]
    pub(crate) fn new(pool: Seed, ino: Ino, addr: PmAddr) -> Self {
        Self { addr, seed: pool.ino(ino), takes_zeros: false }
    }

    /// The same where zeros are lines that were never written.
    #[inline]
    pub(crate) fn taking_zeros(self, takes_zeros: bool) -> Self {
        Self { takes_zeros, ..self }
    }

    /// Checks the bytes of its identity line.
    #[inline]
    pub(crate) fn identity(&self, bytes: &[u8; 64]) -> Result<IdentityLine, LayoutError> {
        IdentityLine::decode(bytes, self.seed).map_err(|error| self.refused(bytes, error))
    }

    /// Checks the bytes of one of its commit lines.
    #[inline]
    pub(crate) fn commit(&self, bytes: &[u8; 64]) -> Result<CommitLine, LayoutError> {
        CommitLine::decode(bytes, self.seed).map_err(|error| self.refused(bytes, error))
    }

    #[cold]
    fn refused(&self, bytes: &[u8; 64], error: LayoutError) -> LayoutError {
        if self.takes_zeros && *bytes == [0; 64] { LayoutError::Blank } else { error }
    }

    pub(crate) fn commit_addr(&self, slot: u8) -> PmAddr {
        let [first, second] = COMMIT_OFFSETS;
        self.addr.add(if slot == 0 { first } else { second })
    }

    /// Brings the line that does not stand into the cache: a commit of several inodes will store it
    /// plainly.
    pub(crate) fn prefetch_next(&self, pm: &Pm, next: &State) {
        pm.prefetch(self.commit_addr(next.slot ^ 1));
    }

    /// Stores the identity line.
    pub(crate) fn store_identity(&self, pm: &Pm, line: &[u8; 64]) -> Flushed {
        pm.stream(self.addr.add(IDENTITY_OFFSET), line, Purpose::Inode)
    }

    /// Streams a commit line whose fence follows in the same operation.
    pub(crate) fn stream_line(&self, pm: &Pm, slot: u8, line: &CommitLine) -> Flushed {
        pm.stream(self.commit_addr(slot), &line.encode(self.seed), Purpose::Commit)
    }

    /// Stores a commit line that may be left in the cache: an ordinary store, which a later owner
    /// of the lock finds in order.
    pub(crate) fn store_line(&self, pm: &Pm, slot: u8, line: &[u8; 64]) -> Dirty {
        pm.store_line(self.commit_addr(slot), line, Purpose::Commit)
    }
}

/// Whose log it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogId {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    /// The pool's seed with inode and generation.
    pub(crate) seed: Seed,
}

impl LogId {
    pub(crate) fn new(pool: Seed, ino: Ino, generation: u32) -> Self {
        Self { ino, generation, seed: pool.ino(ino).generation(generation) }
    }

    /// That of an inode whose place is known.
    #[inline]
    pub(crate) fn in_place(ino: Ino, generation: u32, place: &InodePlace) -> Self {
        Self { ino, generation, seed: place.seed.generation(generation) }
    }
}

/// What an inode's commit line says, and which of the two lines stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) op_seq: u64,
    pub(crate) log_head: PmAddr,
    /// The last committed line of the log; null for an empty log.
    pub(crate) log_tail: PmAddr,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) nlink: u32,
    /// The line (0 or 1) that holds this state; the next commit writes the other one.
    pub(crate) slot: u8,
    /// The flags of that line: whether it has a data checksum, and what that covers. A certificate
    /// comes before bytes that it covers change in place.
    pub(crate) flags: u16,
}

impl State {
    /// In memory alone, among the flags: entries of the operation are to be redone after a crash.
    pub(crate) const REDO: u16 = 1 << 15;
    /// In memory alone, too: the data checksum is of entries, and of no bytes of the file.
    pub(crate) const NO_DATA: u16 = 1 << 14;

    const IN_MEMORY: u16 = Self::REDO | Self::NO_DATA;

    /// The commit line for this state.
    pub(crate) fn line(&self, session: u32, data_crc: Option<u32>) -> CommitLine {
        CommitLine {
            op_seq: self.op_seq,
            log_head: self.log_head,
            flags: data_crc.map_or(0, |_| self.flags & !Self::IN_MEMORY | CommitLine::HAS_DATA_CRC),
            log_tail: self.log_tail,
            size: self.size,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            nlink: self.nlink,
            session,
            data_crc: data_crc.unwrap_or(0),
        }
    }

    /// The op_seq of the inode's next operation. It rises with the session too: what an operation of
    /// an older session left behind a log's tail is then older than anything written since.
    pub(crate) fn next_op_seq(&self, session: u32) -> u64 {
        (self.op_seq + 1).max(u64::from(session) << 32)
    }

    /// The state that a line found on media stands for.
    pub(crate) fn of_line(line: &CommitLine, slot: u8) -> Self {
        Self {
            op_seq: line.op_seq,
            log_head: line.log_head,
            log_tail: line.log_tail,
            size: line.size,
            mtime_ns: line.mtime_ns,
            ctime_ns: line.ctime_ns,
            nlink: line.nlink,
            slot,
            flags: line.flags,
        }
    }
}

/// Attributes that change by a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attrs {
    /// Permission, set-id and sticky bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) flags: u32,
    pub(crate) project: u32,
    pub(crate) policy: u8,
    pub(crate) xattrs: XattrSet,
}
