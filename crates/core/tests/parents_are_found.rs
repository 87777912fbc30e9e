//! A directory's parent is found by its number alone, as file handles need it: after a new opening,
//! moves and exchanges, and where the hint on media is missing or wrong.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use novale_core::{Ctx, Error, FileKind, Fs, Ino, NewInode, Node, OpenOptions, RenameMode};
use novale_layout::{
    INODE_SIZE, INODES_PER_PAGE, PmAddr, Superblock, VOLATILE_OFFSET, VOLATILE_PARENT_OFFSET,
};
use novale_pm::{Pm, Purpose};

const CTX: Ctx = Ctx { now_ns: 3, hint: 0 };

fn new_pool() -> Fs {
    let pm = support::pool(&[32 << 20], 2);
    open(pm, false)
}

fn open(pm: Pm, read_only: bool) -> Fs {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    support::open_as(pm, &options)
}

/// The same pool with a view of which nothing is known.
fn again(fs: Fs) -> Fs {
    open(fs.into_pm(), false)
}

fn mkdir(fs: &Fs, parent: Ino, name: &[u8]) -> Ino {
    let new =
        NewInode { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::current(parent), name, &new).unwrap().ino
}

/// Stores a hint, as a crash or an older program may have left it.
fn set_hint(pm: &Pm, ino: Ino, hint: u64) {
    let mut bytes = [0; 1024];
    pm.load(PmAddr::new(0, 0), &mut bytes).unwrap();
    let root = Superblock::decode(&bytes).unwrap().roots.inode_directory;
    let next = |page: PmAddr, word: u64| PmAddr::from_raw(pm.load_u64(page.add(word * 8)).unwrap());
    // Small numbers lie in the first chunk, the first table of the first page.
    let page = next(next(next(root, 0), 0), ino.get() / INODES_PER_PAGE);
    let inode = page.add(ino.get() % INODES_PER_PAGE * INODE_SIZE);
    let stored =
        pm.store_u64(inode.add(VOLATILE_OFFSET + VOLATILE_PARENT_OFFSET), hint, Purpose::Inode);
    pm.fence(pm.write_back(stored)).end();
}

/// `/a/b/c` and `/d`.
fn tree(fs: &Fs) -> [Ino; 4] {
    let a = mkdir(fs, Ino::ROOT, b"a");
    let b = mkdir(fs, a, b"b");
    [a, b, mkdir(fs, b, b"c"), mkdir(fs, Ino::ROOT, b"d")]
}

#[test]
fn behind_a_new_opening_moves_and_exchanges() {
    let fs = new_pool();
    let [a, b, c, d] = tree(&fs);
    let fs = again(fs);
    assert_eq!(
        [a, b, c, d].map(|ino| fs.parent(Node::current(ino)).unwrap().ino),
        [Ino::ROOT, a, b, Ino::ROOT]
    );

    fs.rename(&CTX, Node::current(b), b"c", Node::current(d), b"moved", RenameMode::Replace)
        .unwrap();
    let fs = again(fs);
    assert_eq!(fs.parent(Node::current(c)).unwrap().ino, d);

    fs.rename(&CTX, Node::current(d), b"moved", Node::current(a), b"b", RenameMode::Exchange)
        .unwrap();
    let fs = again(fs);
    assert_eq!([b, c].map(|ino| fs.parent(Node::current(ino)).unwrap().ino), [d, a]);
    assert!(matches!(fs.parent(Node::current(Ino::new(4000))), Err(Error::Stale)));
}

#[test]
fn without_a_hint_or_with_a_wrong_one() {
    let fs = new_pool();
    let [a, b, c, d] = tree(&fs);
    let mut pm = fs.into_pm();
    for hint in [0, d.get(), c.get(), 5000, u64::MAX] {
        set_hint(&pm, c, hint);
        for read_only in [true, false] {
            let fs = open(pm, read_only);
            assert_eq!(fs.parent(Node::current(c)).unwrap().ino, b, "hint {hint}");
            assert_eq!(fs.parent(Node::current(b)).unwrap().ino, a);
            pm = fs.into_pm();
        }
    }
}

#[test]
fn a_removed_directory_has_the_parent_that_was_known_or_none() {
    let fs = new_pool();
    let [_, b, c, d] = tree(&fs);
    let fs = again(fs);
    fs.hold(c).unwrap();
    fs.hold(d).unwrap();
    assert_eq!(fs.parent(Node::current(c)).unwrap().ino, b);
    fs.rmdir(&CTX, Node::current(b), b"c").unwrap();
    assert_eq!(fs.parent(Node::current(c)).unwrap().ino, b);
    fs.release(&CTX, c, 1).unwrap();
    assert!(matches!(fs.parent(Node::current(c)), Err(Error::Stale)));
}

/// A move below a directory that was reached by its number failed: no such file.
#[test]
fn a_move_finds_its_way_up_from_a_directory_that_no_look_up_passed() {
    let fs = new_pool();
    let [a, b, c, d] = tree(&fs);
    let fs = again(fs);
    let below = fs.rename(&CTX, Node::ROOT, b"a", Node::current(c), b"x", RenameMode::Replace);
    assert!(matches!(below, Err(Error::Invalid(_))), "{below:?}");
    fs.rename(&CTX, Node::ROOT, b"d", Node::current(c), b"x", RenameMode::Replace).unwrap();
    assert_eq!([d, c, b].map(|ino| fs.parent(Node::current(ino)).unwrap().ino), [c, b, a]);
}
