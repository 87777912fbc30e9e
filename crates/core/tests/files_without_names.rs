//! A file that was made without a name gets one whole, or goes and leaves nothing.

#![allow(clippy::unwrap_used, clippy::wildcard_imports, reason = "a test fails by panicking")]

mod support;

use novale_core::*;
use support::{MB, open, pool, verify};

const CTX: Ctx = Ctx { now_ns: 9, hint: 0 };
const NAMED: Unnamed = Unnamed { may_be_named: true, umask: 0o027 };
const FORMS: [Form; 2] = [Form::Single, Form::Two];

fn new(kind: FileKind) -> NewInode<'static> {
    NewInode { kind, mode: 0o666, uid: 1, gid: 2, rdev: 0, target: b"" }
}

/// A file without a name in the root directory, with two pages and a half.
fn unnamed(fs: &Fs) -> Ino {
    let made = fs.create_unnamed(&CTX, Node::ROOT, &new(FileKind::File), NAMED).unwrap();
    assert_eq!((made.nlink, made.mode, made.size), (0, 0o640, 0));
    fs.write(&CTX, made.ino, 0, &[3; 10_000]).unwrap();
    made.ino
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; 20_000];
    let read = fs.read(&CTX, ino, 0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn it_gets_a_name_that_stays() {
    for form in FORMS {
        let fs = open(pool(&[16 * MB], 1), form);
        let ino = unnamed(&fs);
        let set = SetXattr { name: b"user.a", value: b"1", ..SetXattr::default() };
        fs.setxattr(&CTX, Node::current(ino), &set).unwrap();
        assert_eq!(fs.link(&CTX, Node::current(ino), Node::ROOT, b"f").unwrap().nlink, 1);
        fs.release(&CTX, ino, 1).unwrap();
        fs.write(&CTX, ino, 10_000, &[4; 10]).unwrap();
        // After the death of its only client, and after a close.
        let fs = open(fs.into_pm(), form);
        let found = fs.lookup(&CTX, Node::ROOT, b"f").unwrap();
        assert_eq!((found.ino, found.nlink, found.size), (ino, 1, 10_010));
        assert_eq!(contents(&fs, ino), [vec![3; 10_000], vec![4; 10]].concat());
        assert_eq!(fs.getxattr(Node::current(ino), b"user.a").unwrap(), b"1");
        fs.close().unwrap();
        verify(fs.pm());
    }
}

#[test]
fn without_one_it_goes_with_its_last_hold_and_all_of_its_pages() {
    for form in FORMS {
        let fs = open(pool(&[16 * MB], 1), form);
        // What the first file of a pool leaves behind for good: inode pages, and a page in hand.
        let first = unnamed(&fs);
        fs.release(&CTX, first, 1).unwrap();
        let before = fs.statfs().unwrap();
        let ino = unnamed(&fs);
        assert!(fs.statfs().unwrap().pages_free < before.pages_free);
        fs.hold(ino).unwrap();
        fs.release(&CTX, ino, 1).unwrap();
        assert_eq!(contents(&fs, ino).len(), 10_000);
        fs.release(&CTX, ino, 1).unwrap();
        assert!(matches!(fs.getattr(ino), Err(Error::Stale)));
        assert_eq!(fs.statfs().unwrap(), before);
        fs.close().unwrap();
        verify(fs.pm());
    }
}

#[test]
fn no_recovery_and_no_close_keeps_one_without_a_name() {
    for (form, dies) in [(Form::Single, true), (Form::Two, true), (Form::Auto, false)] {
        let fs = open(pool(&[16 * MB], 1), form);
        let ino = unnamed(&fs);
        if !dies {
            fs.close().unwrap();
            verify(fs.pm());
        }
        let fs = open(fs.into_pm(), form);
        assert!(matches!(fs.getattr(ino), Err(Error::Stale)), "{form:?}");
        assert_eq!(fs.opened().inodes, 1);
        // Its number is used again, under another generation.
        let made = fs.create(&CTX, Node::ROOT, b"g", &new(FileKind::File)).unwrap();
        assert_eq!((made.ino, made.size, contents(&fs, made.ino)), (ino, 0, Vec::new()));
        fs.close().unwrap();
        verify(fs.pm());
    }
}

#[test]
fn a_name_comes_once_and_only_to_files_that_may_have_one() {
    let fs = open(pool(&[16 * MB], 1), Form::Auto);
    let secret = Unnamed { may_be_named: false, ..NAMED };
    let secret = fs.create_unnamed(&CTX, Node::ROOT, &new(FileKind::File), secret).unwrap().ino;
    assert!(matches!(fs.link(&CTX, Node::current(secret), Node::ROOT, b"s"), Err(Error::NotFound)));

    let ino = unnamed(&fs);
    fs.link(&CTX, Node::current(ino), Node::ROOT, b"f").unwrap();
    fs.unlink(&CTX, Node::ROOT, b"f").unwrap();
    assert!(matches!(fs.link(&CTX, Node::current(ino), Node::ROOT, b"f"), Err(Error::NotFound)));

    let dir = new(FileKind::Directory);
    let made = fs.create_unnamed(&CTX, Node::ROOT, &dir, NAMED);
    assert!(matches!(made, Err(Error::Invalid(_))), "{made:?}");
    let made = fs.create_unnamed(&CTX, Node::current(ino), &new(FileKind::File), NAMED);
    assert!(matches!(made, Err(Error::NotDirectory)), "{made:?}");
    let dir = fs.create(&CTX, Node::ROOT, b"d", &dir).unwrap().ino;
    fs.hold(dir).unwrap();
    fs.rmdir(&CTX, Node::ROOT, b"d").unwrap();
    let made = fs.create_unnamed(&CTX, Node::current(dir), &new(FileKind::File), NAMED);
    assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
}

#[test]
fn it_counts_for_the_tree_that_it_was_made_in() {
    let fs = open(pool(&[16 * MB], 1), Form::Auto);
    let tree = fs.create(&CTX, Node::ROOT, b"t", &new(FileKind::Directory)).unwrap().ino;
    fs.setattr(&CTX, Node::current(tree), &SetAttr { project: Some(5), ..SetAttr::default() })
        .unwrap();
    let used = || fs.quotas().unwrap()[&5].used;
    let before = used();
    let made =
        fs.create_unnamed(&CTX, Node::current(tree), &new(FileKind::File), NAMED).unwrap().ino;
    fs.write(&CTX, made, 0, &[1; 3 * 4096]).unwrap();
    // Three pages, and one of its log.
    assert_eq!((used().pages, used().inodes), (before.pages + 4, before.inodes + 1));
    assert!(matches!(fs.link(&CTX, Node::current(made), Node::ROOT, b"f"), Err(Error::OtherTree)));
    fs.release(&CTX, made, 1).unwrap();
    assert_eq!(used(), before);
    fs.set_quota(&CTX, 5, Usage { pages: 0, inodes: before.inodes }).unwrap();
    let refused = fs.create_unnamed(&CTX, Node::current(tree), &new(FileKind::File), NAMED);
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
}
