//! One step run on any file system that takes operations by inode number.

use std::collections::{BTreeMap, BTreeSet};

use novale_model::{Attr, Error, Ino, Kind, NewInode, RangeOp, RenameMode, SetAttr, XattrMode};

use super::bytes::fill_bytes;
use super::step::{Action, Path, Step, Target};

/// Why an operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It was refused, and changed nothing.
    Error(Error),
    /// The file system contradicts itself: always a bug.
    Broken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// An entry as a directory lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// What that is.
    pub kind: Kind,
}

/// A file system under test, in the model's types.
#[allow(missing_docs, reason = "each does what the model's operation of that name does")]
#[allow(clippy::missing_errors_doc, reason = "likewise")]
pub trait Subject {
    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr, Failure>;
    fn getattr(&mut self, ino: Ino) -> Result<Attr, Failure>;
    fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Attr, Failure>;
    fn readlink(&mut self, ino: Ino) -> Result<Vec<u8>, Failure>;
    fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure>;
    /// The file is held once.
    fn create_unnamed(&mut self, parent: Ino, new: &NewInode, now_ns: i64)
    -> Result<Attr, Failure>;
    fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now_ns: i64) -> Result<Attr, Failure>;
    fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure>;
    fn rmdir(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure>;
    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        now_ns: i64,
    ) -> Result<(), Failure>;
    fn read(&mut self, ino: Ino, offset: u64, len: usize, now_ns: i64) -> Result<Vec<u8>, Failure>;
    fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64)
    -> Result<usize, Failure>;
    fn append(&mut self, ino: Ino, bytes: &[u8], now_ns: i64) -> Result<u64, Failure>;
    fn fallocate(
        &mut self,
        ino: Ino,
        extend: bool,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure>;
    fn range(
        &mut self,
        ino: Ino,
        how: RangeOp,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure>;
    fn copy(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: usize,
        now_ns: i64,
    ) -> Result<u64, Failure>;
    /// `None` where the subject does not tell data from holes.
    fn seek(&mut self, ino: Ino, offset: u64, data: bool) -> Result<Option<u64>, Failure>;
    /// All entries in name order, got `at_a_time` entries a call.
    fn readdir(&mut self, ino: Ino, at_a_time: usize, now_ns: i64) -> Result<Vec<Entry>, Failure>;
    fn getxattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Failure>;
    fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<(), Failure>;
    /// All names in order.
    fn listxattr(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>, Failure>;
    fn removexattr(&mut self, ino: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure>;
    fn parent(&mut self, ino: Ino) -> Result<Ino, Failure>;
    fn limit(&mut self, ino: Ino, inodes: u64, now_ns: i64) -> Result<(), Failure>;
    /// The limits of directory trees that have any.
    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure>;
    fn hold(&mut self, ino: Ino) -> Result<(), Failure>;
    fn release(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure>;
    fn sync(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure>;
    fn map(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure>;
    fn unmap(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure>;
    fn store(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64) -> Result<(), Failure>;
    fn flush(&mut self, ino: Ino, page: u64, pages: u64, now_ns: i64) -> Result<(), Failure>;
    fn write_scattered(
        &mut self,
        ino: Ino,
        pieces: &[(u64, Vec<u8>)],
        now_ns: i64,
    ) -> Result<(), Failure>;
}

/// What a step returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Success with nothing to show.
    Done,
    /// Attributes.
    Attr(Attr),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// A count or an offset.
    Number(u64),
    /// A directory's entries.
    Entries(Vec<Entry>),
    /// An inode's number.
    Ino(Ino),
    /// No success.
    Failed(Failure),
}

/// What a sequence keeps between its steps, apart for each file system.
#[derive(Debug, Clone, Default)]
pub struct Session {
    slots: BTreeMap<u8, Held>,
}

/// What a slot keeps.
#[derive(Debug, Clone, Copy)]
struct Held {
    ino: Ino,
    is_mapped: bool,
}

impl Session {
    /// What the slots hold.
    #[must_use]
    pub fn held(&self) -> BTreeSet<Ino> {
        self.slots.values().map(|held| held.ino).collect()
    }

    /// The slots in use with what they hold.
    pub fn slots(&self) -> impl Iterator<Item = (u8, Ino)> {
        self.slots.iter().map(|(slot, held)| (*slot, held.ino))
    }

    /// The slots that have a file mapped.
    pub fn mapped(&self) -> impl Iterator<Item = u8> {
        self.slots.iter().filter(|(_, held)| held.is_mapped).map(|(slot, _)| *slot)
    }

    /// Puts something in a slot; what was there is released.
    fn put<S: Subject>(
        &mut self,
        subject: &mut S,
        slot: u8,
        held: Held,
        now_ns: i64,
    ) -> Result<(), Failure> {
        self.slots.insert(slot, held).map_or(Ok(()), |old| release(subject, old, now_ns))
    }

    /// Empties the slots with nothing said to the file system: it has died.
    pub fn forget_all(&mut self) {
        self.slots.clear();
    }
}

/// Runs one step; [`Step::Compare`], [`Step::Remount`] and [`Step::Die`] are the caller's business
/// and do nothing here.
pub fn run_step<S: Subject>(
    subject: &mut S,
    session: &mut Session,
    step: &Step,
    now_ns: i64,
) -> Outcome {
    try_step(subject, session, step, now_ns).unwrap_or_else(Outcome::Failed)
}

fn try_step<S: Subject>(
    subject: &mut S,
    session: &mut Session,
    step: &Step,
    now: i64,
) -> Result<Outcome, Failure> {
    match step {
        Step::Hold { path, slot } => {
            let ino = resolve(subject, path)?;
            subject.hold(ino)?;
            session.put(subject, *slot, Held { ino, is_mapped: false }, now)?;
            Ok(Outcome::Done)
        }
        Step::Unnamed { dir, new, slot } => {
            let dir = resolve(subject, dir)?;
            let made = subject.create_unnamed(dir, new, now)?;
            session.put(subject, *slot, Held { ino: made.ino, is_mapped: false }, now)?;
            Ok(Outcome::Attr(made))
        }
        Step::Map { target, slot } => {
            let ino = find(subject, session, target)?;
            subject.map(ino, now)?;
            session.put(subject, *slot, Held { ino, is_mapped: true }, now)?;
            Ok(Outcome::Done)
        }
        Step::Release(slot) => {
            let held = session.slots.remove(slot).ok_or(Error::NotFound)?;
            release(subject, held, now)?;
            Ok(Outcome::Done)
        }
        Step::Compare | Step::Remount | Step::Die => Ok(Outcome::Done),
        Step::Create { path, new } => {
            let (parent, name) = resolve_parent(subject, path)?;
            subject.create(parent, name, new, now).map(Outcome::Attr)
        }
        Step::Link { target, path } => {
            let ino = find(subject, session, target)?;
            let (parent, name) = resolve_parent(subject, path)?;
            subject.link(ino, parent, name, now).map(Outcome::Attr)
        }
        Step::Unlink(path) => {
            let (parent, name) = resolve_parent(subject, path)?;
            subject.unlink(parent, name, now).map(|()| Outcome::Done)
        }
        Step::Rmdir(path) => {
            let (parent, name) = resolve_parent(subject, path)?;
            subject.rmdir(parent, name, now).map(|()| Outcome::Done)
        }
        Step::Rename { from, to, mode } => {
            let from = resolve_parent(subject, from)?;
            let to = resolve_parent(subject, to)?;
            subject.rename(from, to, *mode, now).map(|()| Outcome::Done)
        }
        Step::On { target, action } => {
            let ino = find(subject, session, target)?;
            act(subject, ino, action, now)
        }
        Step::Copy { from, from_offset, to, to_offset, len } => {
            let from = find(subject, session, from)?;
            let to = find(subject, session, to)?;
            let (from, to) = ((from, *from_offset), (to, *to_offset));
            subject.copy(from, to, *len as usize, now).map(Outcome::Number)
        }
    }
}

fn release<S: Subject>(subject: &mut S, held: Held, now_ns: i64) -> Result<(), Failure> {
    if held.is_mapped { subject.unmap(held.ino, now_ns) } else { subject.release(held.ino, now_ns) }
}

fn act<S: Subject>(
    subject: &mut S,
    ino: Ino,
    action: &Action,
    now: i64,
) -> Result<Outcome, Failure> {
    match action {
        Action::Stat => subject.getattr(ino).map(Outcome::Attr),
        Action::Set(set) => subject.setattr(ino, set, now).map(Outcome::Attr),
        Action::Readlink => subject.readlink(ino).map(Outcome::Bytes),
        Action::Read { offset, len } => {
            subject.read(ino, *offset, *len as usize, now).map(Outcome::Bytes)
        }
        Action::Write { offset, len, fill } => {
            let bytes = fill_bytes(*fill, *len as usize);
            let written = subject.write(ino, *offset, &bytes, now)?;
            Ok(Outcome::Number(written as u64))
        }
        Action::Append { len, fill } => {
            let bytes = fill_bytes(*fill, *len as usize);
            subject.append(ino, &bytes, now).map(Outcome::Number)
        }
        Action::Store { offset, len, fill } => {
            let bytes = fill_bytes(*fill, *len as usize);
            subject.store(ino, *offset, &bytes, now).map(|()| Outcome::Done)
        }
        Action::Flush { page, pages } => {
            subject.flush(ino, *page, *pages, now).map(|()| Outcome::Done)
        }
        Action::Scatter { offset, len, fill, count, apart } => {
            let piece = |index: u32| {
                let at = offset.saturating_add(apart.saturating_mul(u64::from(index)));
                (at, fill_bytes(fill.saturating_add(index), *len as usize))
            };
            let pieces: Vec<_> = (0..*count).map(piece).collect();
            subject.write_scattered(ino, &pieces, now).map(|()| Outcome::Done)
        }
        Action::Allocate { extend, offset, len } => {
            subject.fallocate(ino, *extend, *offset, *len, now).map(|()| Outcome::Done)
        }
        Action::Range { how, offset, len } => {
            subject.range(ino, *how, *offset, *len, now).map(|()| Outcome::Done)
        }
        Action::Seek { offset, data } => {
            let found = subject.seek(ino, *offset, *data)?;
            Ok(found.map_or(Outcome::Done, Outcome::Number))
        }
        Action::List { at_a_time } => {
            subject.readdir(ino, *at_a_time as usize, now).map(Outcome::Entries)
        }
        Action::SetXattr { name, value, mode } => {
            subject.setxattr(ino, name, &value.bytes(), *mode, now).map(|()| Outcome::Done)
        }
        Action::GetXattr(name) => subject.getxattr(ino, name).map(Outcome::Bytes),
        Action::RemoveXattr(name) => subject.removexattr(ino, name, now).map(|()| Outcome::Done),
        Action::ListXattr => subject.listxattr(ino).map(|names| Outcome::Bytes(names.join(&0))),
        Action::Limit { inodes } => subject.limit(ino, *inodes, now).map(|()| Outcome::Done),
        Action::Parent => subject.parent(ino).map(Outcome::Ino),
        Action::Sync => subject.sync(ino, now).map(|()| Outcome::Done),
    }
}

fn find<S: Subject>(subject: &mut S, session: &Session, target: &Target) -> Result<Ino, Failure> {
    match target {
        Target::Path(path) => resolve(subject, path),
        Target::Slot(slot) => {
            Ok(session.slots.get(slot).map(|held| held.ino).ok_or(Error::NotFound)?)
        }
    }
}

fn resolve<S: Subject>(subject: &mut S, path: &Path) -> Result<Ino, Failure> {
    let mut at = Ino::ROOT;
    for name in &path.0 {
        at = subject.lookup(at, name)?.ino;
    }
    Ok(at)
}

/// The root has no name to act upon: that is an invalid argument here, on every side.
fn resolve_parent<'p, S: Subject>(
    subject: &mut S,
    path: &'p Path,
) -> Result<(Ino, &'p [u8]), Failure> {
    let (name, parents) = path.0.split_last().ok_or(Error::Invalid)?;
    let mut at = Ino::ROOT;
    for name in parents {
        at = subject.lookup(at, name)?.ino;
    }
    Ok((at, name))
}
