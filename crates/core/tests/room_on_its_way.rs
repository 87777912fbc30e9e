//! A client that finds no room learns whether a removed file that somebody holds is on its way out, and
//! nobody waits for one twice in vain.

#![allow(clippy::unwrap_used, clippy::wildcard_imports, reason = "a test panics")]

mod support;

use std::time::{Duration, Instant};

use novale_core::*;
use support::MB;

const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

fn make(fs: &Fs, name: &[u8]) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::ROOT, name, &new).unwrap().ino
}

#[test]
fn room_is_on_its_way_while_what_was_removed_is_held() {
    let fs = support::open(support::pool(&[16 * MB], 2), Form::Auto);
    make(&fs, b"not held");
    fs.unlink(&CTX, Node::ROOT, b"not held").unwrap();
    assert_eq!(fs.room_turn(), None);
    let held = make(&fs, b"held");
    fs.hold(held).unwrap();
    assert_eq!(fs.room_turn(), None);
    fs.unlink(&CTX, Node::ROOT, b"held").unwrap();
    let turn = fs.room_turn().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT);
            fs.release(&CTX, held, 1).unwrap();
        });
        let start = Instant::now();
        assert!(fs.wait_for_room(turn, Short::Pool, LONG));
        assert!(start.elapsed() < LONG, "nobody woke it");
    });
    // What has gone by then is not waited for.
    assert!(fs.wait_for_room(turn, Short::Pool, LONG));
    assert_eq!(fs.room_turn(), None);
}

#[test]
fn replaced_files_and_files_without_names_count_too() {
    let fs = support::open(support::pool(&[16 * MB], 2), Form::Auto);
    let held = make(&fs, b"old");
    fs.hold(held).unwrap();
    make(&fs, b"new");
    fs.rename(&CTX, Node::ROOT, b"new", Node::ROOT, b"old", RenameMode::Replace).unwrap();
    assert!(fs.room_turn().is_some());
    fs.release(&CTX, held, 1).unwrap();
    assert_eq!(fs.room_turn(), None);
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let how = Unnamed { may_be_named: true, umask: 0 };
    let unnamed = fs.create_unnamed(&CTX, Node::ROOT, &new, how).unwrap();
    assert!(fs.room_turn().is_some());
    fs.link(&CTX, unnamed.node(), Node::ROOT, b"named").unwrap();
    assert_eq!(fs.room_turn(), None);
}

#[test]
fn nobody_waits_twice_for_what_stays_open() {
    let fs = support::open(support::pool(&[16 * MB], 2), Form::Auto);
    let stays = make(&fs, b"stays");
    fs.hold(stays).unwrap();
    fs.unlink(&CTX, Node::ROOT, b"stays").unwrap();
    assert!(!fs.wait_for_room(fs.room_turn().unwrap(), Short::Pool, SHORT));
    assert_eq!(fs.room_turn(), None);
    let next = make(&fs, b"next");
    fs.hold(next).unwrap();
    fs.unlink(&CTX, Node::ROOT, b"next").unwrap();
    assert!(fs.room_turn().is_some(), "a further one may go");
}

/// The last one as well, which is no room for a large write, and is for a small one.
#[test]
fn a_page_with_two_copies_gives_one_back_at_once() {
    let options = OpenOptions { update: Some(UpdatePolicy::Paired), ..OpenOptions::default() };
    let fs = support::open_as(support::pool(&[16 * MB], 2), &options);
    let file = make(&fs, b"file");
    fs.write(&CTX, file, 0, &[1; 4096]).unwrap();
    assert_eq!(fs.room_turn(), None);
    let before = fs.getattr(file).unwrap().blocks;
    fs.write(&CTX, file, 64, &[2; 64]).unwrap();
    assert!(fs.getattr(file).unwrap().blocks > before);
    assert!(fs.wait_for_room(fs.room_turn().unwrap(), Short::Pool, SHORT));
    assert_eq!(fs.getattr(file).unwrap().blocks, before);
    assert_eq!(fs.room_turn(), None);
}
