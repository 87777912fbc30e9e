//! Wounds for a pool: bytes that no crash leaves, but bad memory, bad software or an enemy may.
//! Some are raw; most keep their checksums right, so that what believes a checksum is tried as
//! well. Comes in: an open `Pm`, a kind and a seed. Goes out: what was done, in words. Called by the
//! tests and by `images`. Never in here: what recovery should make of it, but that it says so and
//! ends.

mod fields;
mod raw;
mod resealed;
mod structures;
mod values;
mod xattrs;

use fastrand::Rng;
use novale_layout::PmAddr;
use novale_pm::{Pm, Purpose};

/// What is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Some bits of a line.
    Bits,
    /// A word.
    Word,
    /// A line is blank, or that of another place.
    Line,
    /// Lines of a page are those of another.
    Torn,
    /// A page is zeroed.
    Zeroed,
    /// Random bytes over the front of a page.
    Noise,
    /// A slot ends early. What has the pool's files must do it.
    CutOff,
    /// The superblock, or both its copies.
    Superblock,
    /// A slot header.
    SlotHeader,
    /// A pool state line.
    PoolState,
    /// A slot state line.
    SlotState,
    /// The saved allocator.
    Saved,
    /// The inode directory or the lane table.
    Tables,
    /// A journal record.
    Journal,
    /// A commit line.
    CommitLine,
    /// An identity line.
    Identity,
    /// A log page's header or successor.
    LogPage,
    /// A log runs in a circle.
    LogCycle,
    /// A log entry.
    Entry,
    /// Directories name each other in a circle.
    NameCycle,
    /// Any field of a line, its checksum made right again.
    Resealed,
    /// A name with bytes that none may have.
    Name,
    /// A page of extended attributes, or a record in it.
    Xattrs,
    /// Any field of a structure with a checksum of its own kind, which is made right again.
    Field,
}

impl Kind {
    /// All kinds, by the names that recipes have for them.
    pub const ALL: [(&str, Self); 24] = [
        ("bits", Self::Bits),
        ("word", Self::Word),
        ("line", Self::Line),
        ("torn", Self::Torn),
        ("zeroed", Self::Zeroed),
        ("noise", Self::Noise),
        ("cut-off", Self::CutOff),
        ("superblock", Self::Superblock),
        ("slot-header", Self::SlotHeader),
        ("pool-state", Self::PoolState),
        ("slot-state", Self::SlotState),
        ("saved", Self::Saved),
        ("tables", Self::Tables),
        ("journal", Self::Journal),
        ("commit-line", Self::CommitLine),
        ("identity", Self::Identity),
        ("log-page", Self::LogPage),
        ("log-cycle", Self::LogCycle),
        ("entry", Self::Entry),
        ("name-cycle", Self::NameCycle),
        ("resealed", Self::Resealed),
        ("name", Self::Name),
        ("xattrs", Self::Xattrs),
        ("field", Self::Field),
    ];

    /// Any kind but [`Kind::CutOff`]; those with most fields more often.
    pub fn any(random: &mut Rng) -> Self {
        let often = [
            Self::Resealed,
            Self::Field,
            Self::CommitLine,
            Self::Entry,
            Self::Journal,
            Self::LogPage,
            Self::Bits,
        ];
        loop {
            let pick = random.usize(0..Self::ALL.len() + often.len());
            let all = Self::ALL.iter().map(|(_, kind)| *kind);
            match all.chain(often).nth(pick) {
                Some(Self::CutOff) | None => {}
                Some(kind) => return kind,
            }
        }
    }
}

/// Changes something of that kind and says what; nothing, if there is none of it in the pool.
pub fn wound(pm: &Pm, kind: Kind, random: &mut Rng) -> Option<String> {
    match kind {
        Kind::Bits => raw::bits(pm, random),
        Kind::Word => raw::word(pm, random),
        Kind::Line => raw::line(pm, random),
        Kind::Torn => raw::torn(pm, random),
        Kind::Zeroed => raw::zeroed(pm, random),
        Kind::Noise => raw::noise(pm, random),
        Kind::CutOff
        | Kind::Superblock
        | Kind::SlotHeader
        | Kind::PoolState
        | Kind::SlotState
        | Kind::Saved
        | Kind::Tables
        | Kind::Journal
        | Kind::CommitLine
        | Kind::Identity
        | Kind::LogPage
        | Kind::LogCycle
        | Kind::Entry
        | Kind::NameCycle
        | Kind::Resealed
        | Kind::Name
        | Kind::Xattrs
        | Kind::Field => structures::wound(pm, kind, random),
    }
}

fn load<const N: usize>(pm: &Pm, at: PmAddr) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    pm.load(at, &mut bytes).ok()?;
    Some(bytes)
}

fn put(pm: &Pm, at: PmAddr, bytes: &[u8]) {
    let dirty = pm.store(at, bytes, Purpose::Other);
    pm.fence(pm.write_back(dirty)).end();
}
