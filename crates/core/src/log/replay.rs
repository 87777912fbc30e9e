//! What the entries of a log say: the one place that tells their kinds apart.
//!
//! A reader of a log implements [`Fold`], which has a method for each thing that an entry can say, and
//! hands it to [`replay`]. A new kind of entry is one arm in each function here and perhaps one method of
//! the trait: then the compiler names every reader that has to decide what it makes of it.

use std::ops::Range;

use novale_layout::{
    Attributes, CommitLine, Entry, EntryHeader, FileKind, Ino, Name, PAGE, Pair, PmAddr,
};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::inode::state::LogId;
use crate::log::entries::write_end;
use crate::log::redo::RedoFrom;
use crate::log::{FILE_PAGES_MAX, Item, Logged, walk};

/// A name that an entry adds to a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameSaid<'a> {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
    pub(crate) cookie: u64,
    pub(crate) name: &'a Name,
}

/// What a reader of a log makes of it, from its head on.
pub(crate) trait Fold {
    /// A page of the log, before its entries.
    fn page(&mut self, _addr: PmAddr, _seq: u64) -> Result<()> {
        Ok(())
    }

    /// An entry, before what it says.
    fn entry(&mut self, _at: &Logged<'_>) -> Result<()> {
        Ok(())
    }

    /// The pages of the file from `first` on lie in `extent`.
    fn map(&mut self, at: &Logged<'_>, first: u64, extent: Extent) -> Result<()>;

    /// These pages of the file are a hole: up to its end where they end at [`FILE_PAGES_MAX`].
    fn unmap(&mut self, at: &Logged<'_>, pages: Range<u64>) -> Result<()>;

    /// These bytes are the file's, where it has its own.
    fn redo(&mut self, at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()>;

    /// A page of the file has two copies, if it lies where the entry says.
    fn pair(&mut self, at: &Logged<'_>, pair: &Pair) -> Result<()>;

    /// The inode has these attributes.
    fn attributes(&mut self, at: &Logged<'_>, attributes: &Attributes) -> Result<()>;

    /// The directory has one name more.
    fn name(&mut self, at: &Logged<'_>, name: &NameSaid<'_>) -> Result<()>;

    /// The directory's name with this cookie is gone.
    fn unname(&mut self, at: &Logged<'_>, cookie: u64) -> Result<()>;
}

/// Tells a fold what the log of an inode says, up to the tail of `line`. Where the kind of the inode is
/// known, what it can't have is refused.
pub(crate) fn replay(
    pm: &Pm,
    id: &LogId,
    kind: Option<FileKind>,
    line: &CommitLine,
    fold: &mut impl Fold,
) -> Result<()> {
    walk(pm, id, line.log_head, line.log_tail, &mut |item| match item {
        Item::Page { addr, seq } => fold.page(addr, seq),
        Item::Entry(at, entry) => {
            if let Some(kind) = kind {
                check_entry(id.ino, kind, line.op_seq, at.addr, &at.header, entry)?;
            }
            say(&at, entry, fold)
        }
    })
}

/// Tells a fold what one entry says.
#[inline]
pub(crate) fn say(at: &Logged<'_>, entry: &Entry, fold: &mut impl Fold) -> Result<()> {
    fold.entry(at)?;
    match *entry {
        Entry::Write { file_page, addr, count, .. } if addr.is_null() => {
            fold.unmap(at, file_page.get()..write_end(file_page.get(), count))
        }
        Entry::Write { file_page, addr, count, .. } => {
            fold.map(at, file_page.get(), Extent { addr, pages: u64::from(count) })
        }
        Entry::Redo(ref redo) => fold.redo(at, RedoFrom::Entry(redo)),
        Entry::Source(ref source) => fold.redo(at, RedoFrom::Pool(source)),
        Entry::Attributes(ref attributes) => fold.attributes(at, attributes),
        Entry::DentryAdd { ino, cookie, generation, kind, ref name } => {
            fold.name(at, &NameSaid { ino, generation, kind, cookie, name })
        }
        Entry::DentryDelete { cookie, .. } => fold.unname(at, cookie),
        Entry::Pair(ref pair) => fold.pair(at, pair),
    }
}

/// Refuses an entry that an inode of this kind, whose newest operation is `op_seq`, can't have.
fn check_entry(
    ino: Ino,
    kind: FileKind,
    op_seq: u64,
    at: PmAddr,
    header: &EntryHeader,
    entry: &Entry,
) -> Result<()> {
    if header.op_seq > op_seq {
        let found = format!("op_seq {}, the inode's is {op_seq}", header.op_seq);
        return Err(Error::damaged_inode(ino, "log entry", at, found));
    }
    let of_directories = match entry {
        Entry::DentryAdd { .. } | Entry::DentryDelete { .. } => true,
        Entry::Write { .. } | Entry::Redo(_) | Entry::Source(_) | Entry::Pair(_) => false,
        Entry::Attributes(_) => return Ok(()),
    };
    if of_directories != (kind == FileKind::Directory) {
        let found = format!("{:?} in a {kind:?}", entry.kind());
        return Err(Error::damaged_inode(ino, "log entry", at, found));
    }
    if let Entry::DentryAdd { ino: named, .. } = entry
        && (*named == ino || *named == Ino::ROOT)
    {
        let found = format!("a name of inode {}, which lies above it", named.get());
        return Err(Error::damaged_inode(ino, "log entry", at, found));
    }
    Ok(())
}

/// A write's pages must lie in the pool and in the range of a file.
pub(super) fn check_extent(pm: &Pm, id: &LogId, at: PmAddr, entry: &Entry) -> Result<()> {
    if let Entry::Pair(pair) = entry {
        let Pair { file_page, home, partner, .. } = *pair;
        // One that ends slots may name a page in a slot of the pool that is gone.
        let has_partner = pair.partner_page().is_none_or(|page| pm.may_hold(page, PAGE));
        let placed = pm.may_hold(home, PAGE) && has_partner;
        if placed && file_page.get() < FILE_PAGES_MAX {
            return Ok(());
        }
        let partner = partner.page();
        let found = format!("copies at {home} and {partner} of file page {}", file_page.get());
        return Err(Error::damaged_inode(id.ino, "pair entry", at, found));
    }
    let Entry::Write { file_page, addr, count, .. } = *entry else {
        return Ok(());
    };
    let len = u64::from(count) * PAGE;
    let placed = addr.is_null() || pm.may_hold(addr, len);
    if placed
        && file_page.get() < FILE_PAGES_MAX
        && (addr.is_null() || file_page.get() + u64::from(count) <= FILE_PAGES_MAX)
    {
        return Ok(());
    }
    let found = format!("{count} pages at {addr} for file page {}", file_page.get());
    Err(Error::damaged_inode(id.ino, "write entry", at, found))
}
