//! The sound pools that images start from, made once and kept as bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use novale_core::{
    Ctx, Error, FileKind, Form, Fs, Ino, NewInode, Node, RenameMode, SetAttr, SetXattr,
};
use novale_pm::PmOptions;

use super::recipe::Shape;
use crate::diff::{make_pool, now_ns_at, open_pool};
use crate::pool_file::PoolFile;

/// Bytes of the first slot, and of a second.
const SLOT_BYTES: [u64; 2] = [3 << 20, 1 << 20];

/// The pools made so far: the bytes of each slot.
#[derive(Debug, Default)]
pub struct Pools {
    made: BTreeMap<(Shape, bool), Vec<Vec<u8>>>,
}

impl Pools {
    /// The slots of a pool.
    ///
    /// # Errors
    /// It can't be made.
    pub(super) fn slots(&mut self, shape: Shape, closed: bool) -> Result<&[Vec<u8>], String> {
        match self.made.entry((shape, closed)) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(make(shape, closed)?)),
        }
    }
}

fn make(shape: Shape, closed: bool) -> Result<Vec<Vec<u8>>, String> {
    let slots = if shape == Shape::Slots { 2 } else { 1 };
    let lens = SLOT_BYTES.get(..slots).unwrap_or_default();
    let file = PoolFile::zeroed(lens).map_err(|why| why.to_string())?;
    make_pool(&file.open(&PmOptions::default())?, 2)?;
    let open = || open_pool(file.open(&PmOptions::default())?, Form::Auto, now_ns_at(0));
    let fs = open()?;
    // In two sessions, so that a crashed pool has lines of an older one.
    fill(&fs, shape, 0).and_then(|()| fs.close()).map_err(|why| why.to_string())?;
    let fs = open()?;
    fill(&fs, shape, 1).map_err(|why| why.to_string())?;
    if closed {
        fs.close().map_err(|why| why.to_string())?;
    }
    drop(fs);
    (0..).zip(lens).map(|(slot, _)| file.contents(slot).map_err(|why| why.to_string())).collect()
}

fn fill(fs: &Fs, shape: Shape, session: u64) -> Result<(), Error> {
    match shape {
        Shape::Tree | Shape::Slots => tree(fs, session),
        Shape::Logs => logs(fs, session),
        Shape::Full => full(fs, session),
    }
}

fn ctx(session: u64) -> Ctx {
    let now_ns = now_ns_at(usize::try_from(session).unwrap_or(0) + 1);
    Ctx { now_ns, hint: u32::try_from(session).unwrap_or(0) }
}

fn make_inode(fs: &Fs, c: &Ctx, dir: Ino, name: &str, kind: FileKind) -> Result<Ino, Error> {
    let target: &[u8] = if kind == FileKind::Symlink { b"a/file" } else { b"" };
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target };
    Ok(fs.create(c, Node::current(dir), name.as_bytes(), &new)?.ino)
}

fn tree(fs: &Fs, session: u64) -> Result<(), Error> {
    let c = ctx(session);
    let top = make_inode(fs, &c, Ino::ROOT, &format!("top {session}"), FileKind::Directory)?;
    let below = make_inode(fs, &c, top, "a", FileKind::Directory)?;
    let deep = make_inode(fs, &c, below, "deep", FileKind::Directory)?;
    for (index, dir) in [Ino::ROOT, top, below, deep].into_iter().enumerate() {
        let name = format!("{} of {session}", "name ".repeat(index * 12));
        let file = make_inode(fs, &c, dir, &name, FileKind::File)?;
        fs.write(&c, file, 0, &[7; 9000])?;
        fs.write(&c, file, 40_000, &[8; 5000])?;
        fs.setattr(
            &c,
            Node::current(file),
            &SetAttr { size: Some(42_000), mode: Some(0o640), ..SetAttr::default() },
        )?;
        fs.link(&c, Node::current(file), Node::current(below), format!("link {index}").as_bytes())?;
        attributes(fs, &c, file, index)?;
    }
    make_inode(fs, &c, top, "symlink", FileKind::Symlink)?;
    make_inode(fs, &c, top, "socket", FileKind::Socket)?;
    make_inode(fs, &c, top, "gone", FileKind::File)?;
    fs.unlink(&c, Node::current(top), b"gone")?;
    fs.rename(
        &c,
        Node::current(below),
        b"link 0",
        Node::current(deep),
        b"moved",
        RenameMode::Replace,
    )
}

/// Some short attributes, and a long one.
fn attributes(fs: &Fs, c: &Ctx, file: Ino, index: usize) -> Result<(), Error> {
    for (name, len) in [(&b"user.short"[..], 20), (b"user.long", 3000), (b"trusted.more", 900)] {
        let value = vec![7; len * (index + 1)];
        fs.setxattr(
            c,
            Node::current(file),
            &SetXattr { name, value: &value, ..SetXattr::default() },
        )?;
    }
    Ok(())
}

fn logs(fs: &Fs, session: u64) -> Result<(), Error> {
    let c = ctx(session);
    let dir = make_inode(fs, &c, Ino::ROOT, &format!("many {session}"), FileKind::Directory)?;
    let file = make_inode(fs, &c, dir, "log", FileKind::File)?;
    for turn in 0..200_u64 {
        fs.write(&c, file, turn % 40 * 8192, &[9; 100])?;
        let name = format!("a name of some bytes {turn}");
        make_inode(fs, &c, dir, &name, FileKind::Fifo)?;
        if turn % 3 == 0 {
            fs.unlink(&c, Node::current(dir), name.as_bytes())?;
        }
    }
    Ok(())
}

fn full(fs: &Fs, session: u64) -> Result<(), Error> {
    const FILES_MAX: u32 = 1000;
    let c = ctx(session);
    for index in 0..FILES_MAX {
        let name = format!("{session} {index}");
        let made = make_inode(fs, &c, Ino::ROOT, &name, FileKind::File);
        match made.and_then(|file| fs.write(&c, file, 0, &vec![1; 65_536])) {
            Err(Error::NoSpace) => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}
