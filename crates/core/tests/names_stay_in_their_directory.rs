//! What a walk has found stays told from what gets its number after its removal.
//!
//! How it happened: operations named a directory by its number alone. One that was removed between the
//! walk to it and the operation, its number used again for another, got the name that was meant for
//! the first.

#![allow(clippy::unwrap_used, clippy::wildcard_imports, reason = "a test fails by panicking")]

mod support;

use novale_core::*;
use support::{MB, open, pool, verify};

const CTX: Ctx = Ctx { now_ns: 9, hint: 0 };
/// Inodes made until a number comes back, at most.
const NUMBERS: usize = 10_000;

fn new(kind: FileKind) -> NewInode<'static> {
    let target: &[u8] = if kind == FileKind::Symlink { b"there" } else { b"" };
    NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target }
}

fn make(fs: &Fs, dir: Node, name: &[u8], kind: FileKind) -> Attr {
    fs.create(&CTX, dir, name, &new(kind)).unwrap()
}

/// An inode that was removed, and another one of the same kind that has its number.
fn replaced(fs: &Fs, kind: FileKind) -> (Node, Attr) {
    let gone = make(fs, Node::ROOT, b"gone", kind);
    if kind == FileKind::Directory {
        fs.rmdir(&CTX, Node::ROOT, b"gone").unwrap();
    } else {
        fs.unlink(&CTX, Node::ROOT, b"gone").unwrap();
    }
    (gone.node(), with_number(fs, gone.ino, b"now", kind))
}

/// Makes inodes until one has this number, which is free.
fn with_number(fs: &Fs, ino: Ino, name: &[u8], kind: FileKind) -> Attr {
    let tries = 0..NUMBERS;
    let mut made = tries.map(|index| {
        let other = make(fs, Node::ROOT, name, kind);
        let (aside, how) = (format!("other {index}"), RenameMode::NoReplace);
        if other.ino != ino {
            fs.rename(&CTX, Node::ROOT, name, Node::ROOT, aside.as_bytes(), how).unwrap();
        }
        other
    });
    made.find(|made| made.ino == ino).unwrap()
}

fn names(fs: &Fs, dir: Node) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(&CTX, dir, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    })
    .unwrap();
    names
}

#[track_caller]
fn is_stale<T>(result: Result<T>) {
    let error = result.err();
    assert!(matches!(error, Some(Error::Stale)), "{error:?}");
}

#[test]
fn a_directory_gets_no_name_that_was_meant_for_what_had_its_number() {
    let fs = open(pool(&[32 * MB], 1), Form::Single);
    let (gone, now) = replaced(&fs, FileKind::Directory);
    let other = make(&fs, Node::ROOT, b"file", FileKind::File);
    for kind in [FileKind::File, FileKind::Directory, FileKind::Symlink] {
        is_stale(fs.create(&CTX, gone, b"x", &new(kind)));
    }
    is_stale(fs.link(&CTX, other.node(), gone, b"x"));
    let mode = RenameMode::Replace;
    is_stale(fs.rename(&CTX, Node::ROOT, b"file", gone, b"x", mode));
    let unnamed = Unnamed { may_be_named: true, umask: 0 };
    is_stale(fs.create_unnamed(&CTX, gone, &new(FileKind::File), unnamed));
    let found = fs.lookup(&CTX, Node::ROOT, b"file").unwrap();
    fs.create_unnamed(&CTX, now.node(), &new(FileKind::File), unnamed)
        .and_then(|made| {
            is_stale(fs.link(&CTX, made.node(), gone, b"x"));
            fs.release(&CTX, made.ino, 1)
        })
        .unwrap();
    assert_eq!((found.ino, found.nlink), (other.ino, 1));
    assert_eq!(names(&fs, now.node()), Vec::<String>::new());
    fs.close().unwrap();
    verify(fs.pm());
}

#[test]
fn a_directory_loses_and_shows_no_name_of_its_own_for_what_had_its_number() {
    let fs = open(pool(&[32 * MB], 1), Form::Single);
    let (gone, now) = replaced(&fs, FileKind::Directory);
    make(&fs, now.node(), b"f", FileKind::File);
    make(&fs, now.node(), b"d", FileKind::Directory);
    make(&fs, Node::ROOT, b"file", FileKind::File);
    is_stale(fs.unlink(&CTX, gone, b"f"));
    is_stale(fs.rmdir(&CTX, gone, b"d"));
    for mode in [RenameMode::Replace, RenameMode::NoReplace] {
        is_stale(fs.rename(&CTX, gone, b"f", Node::ROOT, b"stolen", mode));
        is_stale(fs.rename(&CTX, gone, b"f", gone, b"other", mode));
    }
    is_stale(fs.rename(&CTX, gone, b"d", Node::ROOT, b"file", RenameMode::Exchange));
    is_stale(fs.rename(&CTX, Node::ROOT, b"file", gone, b"d", RenameMode::Exchange));
    is_stale(fs.lookup(&CTX, gone, b"f"));
    is_stale(fs.readdir(&CTX, gone, 0, &mut |_| true));
    is_stale(fs.parent(gone));
    assert_eq!(names(&fs, now.node()), ["f", "d"]);
    fs.close().unwrap();
    verify(fs.pm());
}

#[test]
fn a_file_gets_no_attribute_that_was_meant_for_what_had_its_number() {
    let fs = open(pool(&[32 * MB], 1), Form::Single);
    let (gone, now) = replaced(&fs, FileKind::File);
    let set = |value| SetXattr { name: b"user.a", value, ..SetXattr::default() };
    fs.setxattr(&CTX, now.node(), &set(b"own")).unwrap();
    let before = fs.getattr(now.ino).unwrap();
    is_stale(fs.setattr(&CTX, gone, &SetAttr { mode: Some(0), ..SetAttr::default() }));
    is_stale(fs.setattr(&CTX, gone, &SetAttr { size: Some(7), ..SetAttr::default() }));
    is_stale(fs.setxattr(&CTX, gone, &set(b"x")));
    is_stale(fs.removexattr(&CTX, gone, b"user.a"));
    is_stale(fs.getxattr(gone, b"user.a"));
    is_stale(fs.listxattr(gone));
    is_stale(fs.link(&CTX, gone, Node::ROOT, b"x"));
    assert_eq!(fs.getattr(now.ino).unwrap(), before);
    assert_eq!(fs.getxattr(now.node(), b"user.a").unwrap(), b"own");
    fs.close().unwrap();
    verify(fs.pm());
}

#[test]
fn a_symbolic_link_leads_nowhere_for_what_had_its_number() {
    let fs = open(pool(&[32 * MB], 1), Form::Two);
    let (gone, now) = replaced(&fs, FileKind::Symlink);
    assert_eq!(fs.readlink(now.node()).unwrap(), b"there");
    is_stale(fs.readlink(gone));
}

/// How it happened: a directory that is removed and open leads to its parent by a number that was
/// noted, which another directory may have by then.
#[test]
fn a_removed_directory_leads_to_its_parent_and_to_nobody_elses() {
    let fs = open(pool(&[32 * MB], 1), Form::Single);
    let above = make(&fs, Node::ROOT, b"above", FileKind::Directory);
    let below = make(&fs, above.node(), b"below", FileKind::Directory);
    fs.hold(below.ino).unwrap();
    fs.rmdir(&CTX, above.node(), b"below").unwrap();
    assert_eq!(fs.parent(below.node()).unwrap().ino, above.ino);
    fs.rmdir(&CTX, Node::ROOT, b"above").unwrap();
    assert!(matches!(fs.parent(below.node()), Err(Error::NotFound)));
    with_number(&fs, above.ino, b"now", FileKind::Directory);
    assert!(matches!(fs.parent(below.node()), Err(Error::NotFound)));
    fs.release(&CTX, below.ino, 1).unwrap();
    fs.close().unwrap();
    verify(fs.pm());
}
