//! A state that stands for each damaged inode: of what can be read, or none.
//!
//! Crash points. Each inode is given its state by one commit line, in the place of a line that does
//! not stand, and each is judged by itself: a crash between two leaves the rest as damaged as they
//! were. Doubtful records go when all that they speak of has a line of its own above them.

use std::collections::BTreeMap;
use std::ops::Range;

use novale_layout::{
    Attributes, Entry, FileKind, FilePage, IDENTITY_VERSION, IdentityLine, Ino,
    JOURNAL_RECORD_BYTES, LogPageHeader, PAGE, Pair, PmAddr,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::inode::state::LogId;
use crate::log::Logged;
use crate::log::redo::RedoFrom;
use crate::log::replay::{Fold, NameSaid, replay};
use crate::offline::dump::{Dump, DumpLimits};
use crate::offline::repair::gather::{Damage, Gathered, Inode, LostRun};
use crate::offline::repair::write::Writer;
use crate::offline::repair::{Change, Repair, SavedPiece};
use crate::pool::Pool;

/// Of a mode, what a file's owner may do, and what its group and others may.
const OWNER_BITS: u32 = 0o700;
const OTHERS_BITS: u32 = 0o077;

/// What names say of inodes: generation and kind.
type Hints = BTreeMap<Ino, Vec<(u32, FileKind)>>;

impl Repair<'_, '_> {
    /// Gives damaged inodes a state; says whether there was anything to do.
    pub(super) fn salvage(&mut self, pool: &Pool, all: &mut Gathered) -> Result<bool> {
        if self.give_up_words(pool, all) {
            return Ok(true);
        }
        let records: Vec<(PmAddr, Vec<Ino>)> =
            all.journal.doubtful().map(|record| (record.at, record.inos().collect())).collect();
        let named = records.iter().flat_map(|(_, inos)| inos);
        let damaged = all.inodes.values().filter(|inode| inode.damage.is_some());
        let mut inos: Vec<Ino> = damaged.map(|inode| inode.ino).chain(named.copied()).collect();
        inos.sort_unstable();
        inos.dedup();
        if inos.is_empty() && records.is_empty() {
            return Ok(false);
        }
        let hints = hints(all);
        self.keep(&inos, &records)?;
        let slots = pool.slots.iter().map(|(header, _)| header.pages).collect();
        let mut writer = Writer::new(self.pm, pool.state.session, &all.marks, slots);
        // What takes pages comes when every log was read as far as it can be.
        let is_unread = |inode: &Inode| matches!(inode.damage, Some(Damage::Identity(_)));
        let are_unread = all.inodes.values().any(is_unread);
        for ino in inos {
            let Some(inode) = all.inodes.get_mut(&ino) else { continue };
            if is_unread(inode) || !are_unread {
                self.salvage_inode(&mut writer, inode, &hints)?;
            }
        }
        if are_unread {
            return Ok(true);
        }
        for (at, _) in records {
            let len = JOURNAL_RECORD_BYTES as u64;
            self.pm.fence(self.pm.stream_zero(at, len, Purpose::Journal)).end();
            self.lost(at, "a journal record that can't be judged is erased");
        }
        Ok(true)
    }

    /// Hands everything that may be given up to the caller: the inodes, their logs and attributes.
    fn keep(&mut self, inos: &[Ino], records: &[(PmAddr, Vec<Ino>)]) -> Result<()> {
        let dump = Dump::new(self.pm);
        for ino in inos {
            let shown = dump.inode(*ino, DumpLimits { items: usize::MAX, behind: false });
            let logs = shown.log.pages.iter().map(|page| &page.header);
            let pages = logs.chain(&shown.xattrs.pages).map(|header| (header.at, PAGE));
            let inode = (!shown.at.is_null()).then_some((shown.at, novale_layout::INODE_SIZE));
            for (at, len) in inode.into_iter().chain(pages) {
                self.keep_piece(*ino, at, len)?;
            }
        }
        for (at, _) in records {
            self.keep_piece(Ino::NULL, *at, JOURNAL_RECORD_BYTES as u64)?;
        }
        Ok(())
    }

    fn keep_piece(&mut self, ino: Ino, at: PmAddr, len: u64) -> Result<()> {
        if self.pm.is_absent(at.slot()) || !self.kept.insert(at) {
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        self.pm.load(at, &mut bytes)?;
        (self.help.keep)(&SavedPiece { ino, at, bytes: &bytes }).map_err(Error::NotKept)
    }

    fn salvage_inode(
        &mut self,
        writer: &mut Writer<'_>,
        inode: &mut Inode,
        hints: &Hints,
    ) -> Result<()> {
        let (ino, at) = (inode.ino, inode.place.addr);
        let Some(damage) = inode.damage.clone() else {
            // Only a record of it is to go. It stays as it is where no number is left for another line.
            if inode.is_used_up() {
                return Ok(());
            }
            return writer.commit(inode, &[], Flushed::none(), |_| ());
        };
        let why = damage.error();
        // What a part of the log says may be an old state, whose pages are another's by now.
        let is_whole = matches!(damage, Damage::Xattrs(_))
            || matches!(damage, Damage::Data(..)) && inode.kind() == Some(FileKind::File);
        if damage.is_absence() && !is_whole && inode.kind() != Some(FileKind::Directory) {
            return self.end(writer, inode, why);
        }
        match damage {
            Damage::NoState(_) if inode.slot.is_none() => {
                // Above all that the session that ends can have numbered.
                let next = u64::from(writer.session + 1) << 32;
                inode.op_seq_max = inode.op_seq_max.max(next);
                self.end(writer, inode, why)
            }
            Damage::NoState(_) | Damage::Doubted(_) => {
                let what = format!("{why}; inode {ino} goes on from its newest readable state");
                if inode.is_torn && inode.is_in_use() {
                    return self.shut(writer, inode, &what);
                }
                self.lost(at, what);
                writer.commit(inode, &[], Flushed::none(), |_| ())
            }
            Damage::Identity(_) => match identity(self.pm, inode, hints, self.help.owner) {
                Some(identity) => {
                    let line = identity.encode(inode.place.seed);
                    self.pm.fence(inode.place.store_identity(self.pm, &line)).end();
                    let kind = identity.kind;
                    self.lost(at, format!("{why}; written anew: a {kind:?} of its generation"));
                    Ok(())
                }
                None => self.end(writer, inode, why),
            },
            Damage::Log(_) => {
                if inode.read_to.is_null() {
                    inode.line.log_head = PmAddr::NULL;
                }
                inode.line.log_tail = inode.read_to;
                if inode.kind() == Some(FileKind::Directory) {
                    inode.line.size = inode.names.list.len() as u64;
                }
                let what =
                    format!("{why}; the log of inode {ino} ends before it, the rest is lost");
                self.shut(writer, inode, &what)
            }
            Damage::Data(_, ref runs) => {
                let what = format!("{why}; {}", what_of_data(ino, runs));
                let is_loss = runs.iter().any(|run| run.kept.is_null());
                self.changes.push(Change { at, what, is_loss });
                writer.commit(inode, &without_copies(runs), Flushed::none(), |_| ())
            }
            Damage::Xattrs(_) => self.give_up_xattrs(writer, inode, why),
        }
    }

    /// Goes on from a state that may be an old one. Its owner and rights have perhaps been changed since, and its pages
    /// may have bytes that others have stored since: it is who repairs alone that may have it, until they have looked.
    fn shut(&mut self, writer: &mut Writer<'_>, inode: &mut Inode, what: &str) -> Result<()> {
        let (old, new) = (attributes(inode), self.only_mine(inode));
        let is_same = inode.xattr_root() == new.xattr_root;
        let without = if is_same { "" } else { ", without its extended attributes" };
        let was = format!("mode {:#o}, owner {}:{}", old.mode, old.uid, old.gid);
        let now = format!("mode {:#o}, owner {}:{}", new.mode, new.uid, new.gid);
        self.lost(
            inode.place.addr,
            format!("{what}; what it had then, {was}, may be old: {now} now{without}"),
        );
        self.older.insert(inode.ino);
        writer.commit(inode, &[Entry::Attributes(new)], Flushed::none(), |_| ())
    }

    /// An inode's attributes by which who repairs alone has it.
    fn only_mine(&self, inode: &Inode) -> Attributes {
        let old = attributes(inode);
        let (uid, gid) = self.help.owner;
        let mode = match inode.kind() {
            Some(FileKind::Symlink) => old.mode,
            _ => old.mode & OWNER_BITS,
        };
        let xattr_root = if inode.is_xattr_harmless { old.xattr_root } else { PmAddr::NULL };
        Attributes { mode, uid, gid, xattr_root, ..old }
    }

    /// An ACL may have been among the attributes: then the group's bits are the most that anybody had by it, and what
    /// others may is not of those whom it names.
    fn give_up_xattrs(
        &mut self,
        writer: &mut Writer<'_>,
        inode: &mut Inode,
        why: &Error,
    ) -> Result<()> {
        let old = attributes(inode);
        let has_acls = inode.kind() != Some(FileKind::Symlink);
        let mode = if has_acls { old.mode & !OTHERS_BITS } else { old.mode };
        let rights = if mode == old.mode { "" } else { ", and nobody but its owner rights" };
        let what = format!("{why}; inode {} has no extended attributes any more", inode.ino);
        self.lost(inode.place.addr, what + rights);
        let entry = [Entry::Attributes(Attributes { xattr_root: PmAddr::NULL, mode, ..old })];
        writer.commit(inode, &entry, Flushed::none(), |_| ())
    }

    /// Ends an inode of which nothing can be read. The root begins anew, as who repairs alone has it.
    fn end(&mut self, writer: &mut Writer<'_>, inode: &mut Inode, why: &Error) -> Result<()> {
        let (ino, at) = (inode.ino, inode.place.addr);
        let is_root = ino == Ino::ROOT;
        // Of a log that was not read as a whole its pages may be another's.
        inode.owed.clear();
        let said = format!("inode {ino} is given up");
        let said = if is_root { "the root begins anew, empty" } else { &said };
        self.lost(at, format!("{why}; {said}"));
        (inode.line.log_head, inode.line.log_tail) = (PmAddr::NULL, PmAddr::NULL);
        // Without an identity line that is written anew.
        let is_known = is_root && inode.identity.is_some();
        let entry = is_known.then(|| Entry::Attributes(self.only_mine(inode)));
        writer.commit(inode, entry.as_slice(), Flushed::none(), |line| {
            (line.nlink, line.size) = (if is_root { 2 } else { 0 }, 0);
        })
    }
}

/// What becomes of a file's pages of which a copy is lost.
fn what_of_data(ino: Ino, runs: &[LostRun]) -> String {
    let zeros = runs.iter().filter(|run| run.kept.is_null());
    match zeros.map(|run| run.pages).sum::<u64>() {
        0 => format!("{} pages of inode {ino} have no second copy any more", runs.len()),
        pages => format!("{pages} pages of inode {ino} are zeros now"),
    }
}

/// The entries by which a file has no pages there: holes, and pages that lie where they did, without a second copy.
fn without_copies(runs: &[LostRun]) -> Vec<Entry> {
    let entry = |first: u64, pages: u32, addr: PmAddr| {
        let file_page = FilePage::new(first);
        Entry::Write { file_page, addr, count: pages, snapshot_epoch: 0 }
    };
    let of = |run: &LostRun| {
        let (mut first, end, kept) = (run.first, run.first + run.pages, run.kept);
        std::iter::from_fn(move || {
            let pages = u32::try_from(end - first).unwrap_or(u32::MAX);
            let at = first;
            first += u64::from(pages);
            (pages > 0).then(|| entry(at, pages, kept))
        })
    };
    runs.iter().flat_map(of).collect()
}

fn hints(all: &Gathered) -> Hints {
    let mut hints = Hints::new();
    for name in all.inodes.values().flat_map(|inode| &inode.names.list) {
        let hint = (name.generation, name.kind);
        let known = hints.entry(name.ino).or_default();
        if !known.contains(&hint) {
            known.push(hint);
        }
    }
    hints
}

pub(super) fn attributes(inode: &Inode) -> Attributes {
    let of_identity = |identity: &IdentityLine| Attributes {
        mode: identity.mode & 0o7777,
        uid: identity.uid,
        gid: identity.gid,
        flags: identity.flags,
        project: identity.project,
        policy: identity.policy,
        xattr_root: PmAddr::NULL,
        atime_ns: identity.birth_ns,
    };
    inode.attributes.or_else(|| inode.identity.as_ref().map(of_identity)).unwrap_or_default()
}

/// An identity line in the place of a lost one: the generation is proved by the log's first page, or
/// else is what all names say; the kind is what names or log say; owner and mode are those of the
/// newest attributes entry, or else who repairs alone has it.
fn identity(pm: &Pm, inode: &Inode, hints: &Hints, (uid, gid): (u32, u32)) -> Option<IdentityLine> {
    let said = hints.get(&inode.ino).map(Vec::as_slice).unwrap_or_default();
    let proved = proved_generation(pm, inode);
    let root = (inode.ino == Ino::ROOT).then_some((1, FileKind::Directory));
    let named = said.iter().find(|(generation, _)| proved.is_none_or(|found| found == *generation));
    let only = named.filter(|_| proved.is_some() || said.len() == 1).copied();
    let generation = proved.or(root.or(only).map(|(generation, _)| generation))?;
    let KindSaid { kind: of_log, attributes } = log_says(pm, inode, generation);
    let kind = root.or(only).map(|(_, kind)| kind).or(of_log)?;
    let mode = if kind == FileKind::Directory { 0o700 } else { 0o600 };
    let only_mine = Attributes { mode, uid, gid, ..Attributes::default() };
    let attributes = attributes.unwrap_or(only_mine);
    Some(IdentityLine {
        version: IDENTITY_VERSION,
        kind,
        policy: attributes.policy,
        ino: inode.ino,
        generation,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        birth_ns: inode.line.ctime_ns,
        rdev: 0,
        flags: attributes.flags,
        project: attributes.project,
        xattr_root: PmAddr::NULL,
    })
}

/// The generation that the log's first page names, under its checksum.
fn proved_generation(pm: &Pm, inode: &Inode) -> Option<u32> {
    let head = inode.line.log_head;
    let line = pm.load_line(head).ok().filter(|_| !head.is_null())?;
    let generation = LogPageHeader::peek_generation(&line);
    let seed = inode.place.seed.generation(generation).addr(head);
    LogPageHeader::decode(&line, seed).is_ok().then_some(generation)
}

/// What kind of inode a log is of, and its newest attributes.
fn log_says(pm: &Pm, inode: &Inode, generation: u32) -> KindSaid {
    let mut said = KindSaid::default();
    let id = LogId::in_place(inode.ino, generation, &inode.place);
    // As far as it can be read.
    let _walked = replay(pm, &id, None, &inode.line, &mut said);
    said
}

/// What a log says of what its inode is.
#[derive(Default)]
struct KindSaid {
    kind: Option<FileKind>,
    attributes: Option<Attributes>,
}

impl Fold for KindSaid {
    fn map(&mut self, _at: &Logged<'_>, _first: u64, _extent: Extent) -> Result<()> {
        self.kind = Some(FileKind::File);
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, _pages: Range<u64>) -> Result<()> {
        self.kind = Some(FileKind::File);
        Ok(())
    }

    fn redo(&mut self, _at: &Logged<'_>, _from: RedoFrom<'_>) -> Result<()> {
        self.kind = Some(FileKind::File);
        Ok(())
    }

    fn pair(&mut self, _at: &Logged<'_>, _pair: &Pair) -> Result<()> {
        self.kind = Some(FileKind::File);
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        self.attributes = Some(*attributes);
        Ok(())
    }

    fn name(&mut self, _at: &Logged<'_>, _name: &NameSaid<'_>) -> Result<()> {
        self.kind = Some(FileKind::Directory);
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, _cookie: u64) -> Result<()> {
        self.kind = Some(FileKind::Directory);
        Ok(())
    }
}
