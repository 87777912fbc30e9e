//! One step run on any file system that takes operations by inode number.

use std::collections::{BTreeMap, BTreeSet};

use novale_model::{Attr, Error, Ino, Kind, NewInode, RenameMode};

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

/// An operation by inode number.
#[derive(Debug, Clone, Copy)]
pub enum Op<'a> {
    /// Find a name.
    Lookup {
        /// The directory.
        parent: Ino,
        /// The name in it.
        name: &'a [u8],
    },
    /// Make an inode.
    Create {
        /// The directory.
        parent: Ino,
        /// Its name there.
        name: &'a [u8],
        /// What.
        new: &'a NewInode,
    },
    /// Make a file without a name, held once.
    CreateUnnamed {
        /// The directory that it is made in.
        dir: Ino,
        /// What.
        new: &'a NewInode,
    },
    /// Give an inode another name.
    Link {
        /// The inode.
        ino: Ino,
        /// The directory of the new name.
        parent: Ino,
        /// The new name.
        name: &'a [u8],
    },
    /// Remove a name of anything but a directory.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The name in it.
        name: &'a [u8],
    },
    /// Remove an empty directory.
    Rmdir {
        /// Its directory.
        parent: Ino,
        /// Its name there.
        name: &'a [u8],
    },
    /// Move or swap names.
    Rename {
        /// The old directory and name.
        from: (Ino, &'a [u8]),
        /// The new ones.
        to: (Ino, &'a [u8]),
        /// What becomes of an existing target.
        mode: RenameMode,
    },
    /// Copy bytes.
    Copy {
        /// A file and an offset in it.
        from: (Ino, u64),
        /// Likewise.
        to: (Ino, u64),
        /// At most so many.
        len: u32,
    },
    /// Do something with one inode.
    On {
        /// Which.
        ino: Ino,
        /// What.
        action: &'a Action,
    },
    /// Keep an inode, as an open file is kept.
    Hold(Ino),
    /// Give up one hold.
    Release(Ino),
    /// Map a file's own pages.
    Map(Ino),
    /// Give up a mapping.
    Unmap(Ino),
}

/// A file system under test, in the model's types.
pub trait Subject {
    /// Does what the model's operation of that name does. A seek of a subject that does not tell data
    /// from holes is [`Outcome::Done`].
    ///
    /// # Errors
    /// Why it did not succeed.
    fn apply(&mut self, op: &Op<'_>, now_ns: i64) -> Result<Outcome, Failure>;

    /// The limits of directory trees that have any.
    ///
    /// # Errors
    /// Why they can't be told.
    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure>;

    /// Does something with one inode.
    ///
    /// # Errors
    /// Those of [`Subject::apply`].
    fn on(&mut self, ino: Ino, action: &Action, now_ns: i64) -> Result<Outcome, Failure> {
        self.apply(&Op::On { ino, action }, now_ns)
    }

    /// What a name leads to.
    ///
    /// # Errors
    /// Those of [`Subject::apply`].
    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr, Failure> {
        self.apply(&Op::Lookup { parent, name }, 0)?.attr()
    }
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

/// What an outcome shows, or that it is another one.
macro_rules! shows {
    ($($(#[$doc:meta])* $name:ident $variant:ident $type:ty)*) => {
        impl Outcome {
            $($(#[$doc])*
            ///
            /// # Errors
            /// [`Failure::Broken`] for another outcome.
            pub fn $name(self) -> Result<$type, Failure> {
                let Self::$variant(found) = self else {
                    return Err(Failure::Broken(format!("{} expected: {self:?}", stringify!($name))));
                };
                Ok(found)
            })*
        }
    };
}

shows! {
    /// The attributes that it shows.
    attr Attr Attr
    /// The entries that it shows.
    entries Entries Vec<Entry>
    /// The bytes that it shows.
    bytes Bytes Vec<u8>
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
    let op = match step {
        Step::Hold { path, slot } => {
            let ino = resolve(subject, path)?;
            subject.apply(&Op::Hold(ino), now)?;
            session.put(subject, *slot, Held { ino, is_mapped: false }, now)?;
            return Ok(Outcome::Done);
        }
        Step::Unnamed { dir, new, slot } => {
            let dir = resolve(subject, dir)?;
            let made = subject.apply(&Op::CreateUnnamed { dir, new }, now)?.attr()?;
            session.put(subject, *slot, Held { ino: made.ino, is_mapped: false }, now)?;
            return Ok(Outcome::Attr(made));
        }
        Step::Map { target, slot } => {
            let ino = find(subject, session, target)?;
            subject.apply(&Op::Map(ino), now)?;
            session.put(subject, *slot, Held { ino, is_mapped: true }, now)?;
            return Ok(Outcome::Done);
        }
        Step::Release(slot) => {
            let held = session.slots.remove(slot).ok_or(Error::NotFound)?;
            release(subject, held, now)?;
            return Ok(Outcome::Done);
        }
        Step::Compare | Step::Remount | Step::Die => return Ok(Outcome::Done),
        Step::Create { path, new } => {
            let (parent, name) = resolve_parent(subject, path)?;
            Op::Create { parent, name, new }
        }
        Step::Link { target, path } => {
            let ino = find(subject, session, target)?;
            let (parent, name) = resolve_parent(subject, path)?;
            Op::Link { ino, parent, name }
        }
        Step::Unlink(path) => {
            let (parent, name) = resolve_parent(subject, path)?;
            Op::Unlink { parent, name }
        }
        Step::Rmdir(path) => {
            let (parent, name) = resolve_parent(subject, path)?;
            Op::Rmdir { parent, name }
        }
        Step::Rename { from, to, mode } => {
            let from = resolve_parent(subject, from)?;
            Op::Rename { from, to: resolve_parent(subject, to)?, mode: *mode }
        }
        Step::On { target, action } => Op::On { ino: find(subject, session, target)?, action },
        Step::Copy { from, from_offset, to, to_offset, len } => {
            let from = (find(subject, session, from)?, *from_offset);
            Op::Copy { from, to: (find(subject, session, to)?, *to_offset), len: *len }
        }
    };
    subject.apply(&op, now)
}

fn release<S: Subject>(subject: &mut S, held: Held, now_ns: i64) -> Result<(), Failure> {
    let op = if held.is_mapped { Op::Unmap(held.ino) } else { Op::Release(held.ino) };
    subject.apply(&op, now_ns).map(drop)
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
