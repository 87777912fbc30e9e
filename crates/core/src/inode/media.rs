//! An inode as media has it: its lines, checked one by one.

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, IDENTITY_OFFSET, INODE_SIZE, INODES_PER_PAGE, IdentityLine, Ino,
    LayoutError, PmAddr, SEQ_RISE_LIMIT, Seed, VOLATILE_OFFSET, VolatileLine,
};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::inode::state::{InodePlace, State};

/// Generations of a number that a session is not expected to use up, as a power of two.
const GENERATIONS_LOG2: u32 = 12;

/// An inode's lines as they lie on media, checked one by one.
#[derive(Debug)]
pub(crate) struct MediaInode {
    pub(crate) identity: Result<IdentityLine, LayoutError>,
    pub(crate) lines: [Result<CommitLine, LayoutError>; 2],
    pub(crate) volatile: VolatileLine,
}

impl MediaInode {
    pub(crate) fn read(pm: &Pm, place: &InodePlace) -> Result<Self> {
        Ok(Self::decode(&Self::lines(pm, place)?, place))
    }

    /// An inode's lines, unchecked.
    #[inline]
    pub(crate) fn lines(pm: &Pm, place: &InodePlace) -> Result<[[u8; 64]; 4]> {
        let line = |offset: u64| pm.load_line(place.addr.add(offset));
        let [first, second] = COMMIT_OFFSETS;
        Ok([line(IDENTITY_OFFSET)?, line(first)?, line(second)?, line(VOLATILE_OFFSET)?])
    }

    /// Checks [`MediaInode::lines`].
    #[allow(clippy::inline_always, reason = "what it returns is 350 bytes, made where it stays")]
    #[inline(always)]
    pub(crate) fn decode(
        [identity, first, second, volatile]: &[[u8; 64]; 4],
        place: &InodePlace,
    ) -> Self {
        Self {
            identity: place.identity(identity),
            lines: [place.commit(first), place.commit(second)],
            volatile: VolatileLine::decode(volatile),
        }
    }

    /// The line with that number, where it validates.
    pub(crate) fn line(&self, slot: u8) -> Option<&CommitLine> {
        self.lines.get(usize::from(slot))?.as_ref().ok()
    }

    /// The newest line that validates and its number.
    pub(crate) fn newest(&self) -> Option<(&CommitLine, u8)> {
        match &self.lines {
            [Ok(first), Ok(second)] if first.op_seq > second.op_seq => Some((first, 0)),
            [_, Ok(second)] => Some((second, 1)),
            [Ok(first), Err(_)] => Some((first, 0)),
            [Err(_), Err(_)] => None,
        }
    }

    /// What is wrong with a line that is neither blank nor valid: torn by a crash that recovery has
    /// not seen yet, or damaged. Zeros are such a line: one that was never written says so.
    pub(crate) fn torn_line(&self) -> Option<LayoutError> {
        self.torn_lines().into_iter().flatten().next()
    }

    /// [`MediaInode::torn_line`] by slot.
    pub(crate) fn torn_lines(&self) -> [Option<LayoutError>; 2] {
        self.lines.map(|line| line.err().filter(|error| *error != LayoutError::Blank))
    }

    /// What no crash can have left: a line that is absurd though its checksum is right, or two lines
    /// of one number that differ, so that neither is the newer.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if let [Ok(first), Ok(second)] = &self.lines {
            let differ = first.op_seq == second.op_seq && first != second;
            return differ.then(|| format!("two of op_seq {:#x} that differ", first.op_seq));
        }
        let mut errors = self.lines.iter().filter_map(|line| line.err());
        let absurd = errors.find(|error| matches!(error, LayoutError::Field { .. }))?;
        Some(absurd.to_string())
    }

    /// Never used: both lines say so.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(&self.lines, [Err(LayoutError::Blank), Err(LayoutError::Blank)])
    }
}

/// Reads the commit state of an inode number that is to be used (again): the state that its next
/// commit goes on from, and the generation that was last in use.
pub(crate) fn free_inode(
    pm: &Pm,
    place: &InodePlace,
    ino: Ino,
    session: u32,
) -> Result<(State, u32)> {
    let media = MediaInode::read(pm, place)?;
    // An identity line that was torn with the create that stored it tells no generation; one above
    // those that earlier sessions can have given is as good as the next.
    let unknown = if media.is_blank() { 0 } else { session.saturating_mul(1 << GENERATIONS_LOG2) };
    let generation = media.identity.as_ref().map_or(unknown, |identity| identity.generation);
    if let Some((line, slot)) = media.newest() {
        if line.nlink != 0 {
            return Err(called_free(ino, place));
        }
        return Ok((State::of_line(line, slot), generation));
    }
    if media.is_blank() {
        // A number that was never used starts above all that an earlier use of these pages
        // could have left behind.
        let op_seq = u64::from(session) << 32;
        let blank = State { op_seq, ..State::of_line(&CommitLine::default(), 1) };
        return Ok((blank, generation));
    }
    Err(Error::damaged_inode(ino, "commit lines", place.addr, "neither validates"))
}

/// Refuses an inode with a number that can't be counted on from.
#[inline]
pub(crate) fn check_numbers(
    ino: Ino,
    place: &InodePlace,
    op_seq: u64,
    page_seq: u64,
) -> Result<()> {
    if op_seq < SEQ_RISE_LIMIT && page_seq < SEQ_RISE_LIMIT {
        return Ok(());
    }
    let found = format!("op_seq {op_seq:#x}, log pages up to {page_seq:#x}: all used up");
    Err(Error::damaged_inode(ino, "numbers", place.addr, found))
}

/// The error of a number in use that the allocator handed out as free.
pub(crate) fn called_free(ino: Ino, place: &InodePlace) -> Error {
    Error::damaged_inode(ino, "commit lines", place.addr, "in use, but the allocator calls it free")
}

/// The blocks of 16 numbers of which inodes lie in a page, each in its place.
pub(crate) fn blocks_in(pm: &Pm, pool: Seed, page: PmAddr) -> Vec<u64> {
    let mut blocks = Vec::new();
    for index in 0..INODES_PER_PAGE {
        let Ok(line) = pm.load_line(page.add(index * INODE_SIZE)) else { continue };
        let ino: Ino = IdentityLine::peek_ino(&line);
        if !ino.is_valid() || ino.get() % INODES_PER_PAGE != index {
            continue;
        }
        let proved = IdentityLine::decode(&line, pool.ino(ino)).is_ok();
        let block = ino.get() / INODES_PER_PAGE;
        if proved && !blocks.contains(&block) {
            blocks.push(block);
        }
    }
    blocks
}

/// Whether anything in a page proves that it is that of these 16 numbers: a line of one of them that validates,
/// or that says that it was never written.
pub(crate) fn is_of_block(pm: &Pm, pool: Seed, page: PmAddr, block: u64) -> bool {
    (0..INODES_PER_PAGE).any(|index| {
        let ino = Ino::new(block * INODES_PER_PAGE + index);
        let place = InodePlace::new(pool, ino, page.add(index * INODE_SIZE));
        let proves = |error: &LayoutError| *error == LayoutError::Blank;
        MediaInode::read(pm, &place).is_ok_and(|media| {
            let identity = media.identity.as_ref().map_or_else(proves, |_| true);
            identity || media.lines.iter().any(|line| line.as_ref().map_or_else(proves, |_| true))
        })
    })
}
