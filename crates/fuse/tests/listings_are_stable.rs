//! Promise: a listing shows each name that stays once, in whatever pieces it is read and whatever
//! comes and goes meanwhile; a place in it can be gone back to; `.` and `..` are right.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_core::{Ctx, FileKind, Ino, NewInode, Node};
use rustix::fs::{RawDir, SeekFrom, seek};
use support::Mount;

/// A name as a listing shows it, and the place after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    name: String,
    ino: u64,
    behind: u64,
}

/// What one read of a directory with a buffer of `bytes` shows; nothing at its end.
fn piece(directory: &File, bytes: usize) -> Vec<Shown> {
    let mut buffer = vec![MaybeUninit::uninit(); bytes];
    let mut listing = RawDir::new(directory, &mut buffer);
    let mut shown = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        shown.push(Shown { name, ino: entry.ino(), behind: entry.next_entry_cookie() });
        if listing.is_buffer_empty() {
            break;
        }
    }
    shown
}

/// All that is listed from where the directory stands.
fn rest(directory: &File, bytes: usize) -> Vec<Shown> {
    let mut all = Vec::new();
    loop {
        let shown = piece(directory, bytes);
        if shown.is_empty() {
            return all;
        }
        all.extend(shown);
    }
}

fn dots(path: &Path) -> [u64; 2] {
    let listed = rest(&File::open(path).unwrap(), 4096);
    [".", ".."].map(|dot| listed.iter().find(|shown| shown.name == dot).unwrap().ino)
}

fn number(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn both_dots_are_right_at_the_root_and_behind_a_move() {
    let Some(mount) = Mount::new("both_dots_are_right", "") else { return };
    let (a, b) = (mount.path("a"), mount.path("b"));
    fs::create_dir_all(a.join("d/below")).unwrap();
    fs::create_dir(&b).unwrap();
    let root = number(mount.root());
    assert_eq!(dots(mount.root()), [root, root]);
    assert_eq!(dots(&a), [number(&a), root]);
    assert_eq!(dots(&a.join("d")), [number(&a.join("d")), number(&a)]);
    fs::rename(a.join("d"), b.join("e")).unwrap();
    assert_eq!(dots(&b.join("e")), [number(&b.join("e")), number(&b)]);
    assert_eq!(dots(&b.join("e/below"))[1], number(&b.join("e")));
}

#[test]
fn names_that_stay_are_shown_once_while_others_come_and_go() {
    let Some(mount) = Mount::new("names_that_stay_are_shown_once", "") else { return };
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    let touch = |name: &str| drop(File::create(dir.join(name)).unwrap());
    for index in 0..600 {
        touch(&format!("stays-{index}"));
        touch(&format!("goes-{index}"));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                for index in 0..600 {
                    fs::remove_file(dir.join(format!("goes-{index}"))).unwrap();
                    touch(&format!("comes-{round}-{index}"));
                    fs::rename(
                        dir.join(format!("comes-{round}-{index}")),
                        dir.join(format!("goes-{index}")),
                    )
                    .unwrap();
                }
            }
        });
        for bytes in [300, 1000, 5000, 40_000].repeat(3) {
            let listed = rest(&File::open(&dir).unwrap(), bytes);
            let mut stay: Vec<&str> = listed
                .iter()
                .map(|shown| shown.name.as_str())
                .filter(|name| name.starts_with("stays-"))
                .collect();
            assert_eq!(stay.len(), 600, "in pieces of {bytes} bytes");
            stay.sort_unstable();
            stay.dedup();
            assert_eq!(stay.len(), 600);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_place_can_be_gone_back_to_when_names_have_come_and_gone() {
    let Some(mount) = Mount::new("a_place_can_be_gone_back_to", "") else { return };
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for index in 0..300 {
        File::create(dir.join(format!("{index}"))).unwrap();
    }
    let directory = File::open(&dir).unwrap();
    let before = rest(&directory, 2000);
    assert_eq!(before.len(), 302);
    // Of every third name the place after it is kept and the name removed.
    let is_kept = |shown: &Shown| shown.name.parse::<u32>().map_or(true, |index| index % 3 != 0);
    for shown in before.iter().filter(|shown| !is_kept(shown)) {
        fs::remove_file(dir.join(&shown.name)).unwrap();
    }
    for index in 300..400 {
        File::create(dir.join(format!("{index}"))).unwrap();
    }
    for (index, shown) in before.iter().enumerate() {
        seek(&directory, SeekFrom::Start(shown.behind)).unwrap();
        // What was made since the directory was read from its start is beyond its end.
        let expected = before.iter().skip(index + 1).find(|shown| is_kept(shown));
        let next = piece(&directory, 300).first().map(|shown| shown.name.clone());
        assert_eq!(next.as_ref(), expected.map(|shown| &shown.name), "behind {}", shown.name);
    }
    seek(&directory, SeekFrom::Start(0)).unwrap();
    let names: Vec<String> = rest(&directory, 700).into_iter().map(|shown| shown.name).collect();
    assert_eq!(names.len(), 302);
    assert_eq!(names.first().map(String::as_str), Some("."));
}

/// Each name that was moved came again at the end of the listing, which so had none.
#[test]
fn who_moves_what_it_reads_comes_to_an_end() {
    let Some(mount) = Mount::new("who_moves_what_it_reads", "") else { return };
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for index in 0..300 {
        File::create(dir.join(format!("{index}"))).unwrap();
    }
    let directory = File::open(&dir).unwrap();
    for bytes in [300, 5000] {
        seek(&directory, SeekFrom::Start(0)).unwrap();
        let mut seen = Vec::new();
        loop {
            let shown = piece(&directory, bytes);
            let names = shown.iter().map(|shown| shown.name.clone());
            let names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
            if shown.is_empty() || seen.len() > 300 {
                break;
            }
            for name in &names {
                fs::rename(dir.join(name), mount.path("away")).unwrap();
                fs::rename(mount.path("away"), dir.join(name)).unwrap();
            }
            seen.extend(names);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 300, "in pieces of {bytes} bytes");
    }
    // From the start again all is there, also what came since.
    File::create(dir.join("new")).unwrap();
    assert_eq!(rest(&directory, 700).len(), 0);
    seek(&directory, SeekFrom::Start(0)).unwrap();
    assert_eq!(rest(&directory, 700).len(), 303);
}

#[test]
fn a_hundred_thousand_names_are_listed() {
    let Some(mount) = Mount::new("a_hundred_thousand_names_are_listed", "") else { return };
    fs::create_dir(mount.path("d")).unwrap();
    let dir = Ino::new(number(&mount.path("d")));
    let ctx = Ctx { now_ns: 1, hint: 0 };
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    for index in 0..100_000 {
        mount
            .fs
            .create(&ctx, Node::current(dir), format!("name-{index}").as_bytes(), &new)
            .unwrap();
    }
    let mut seen = vec![false; 100_000];
    for shown in rest(&File::open(mount.path("d")).unwrap(), 32_768) {
        let Some(index) = shown.name.strip_prefix("name-") else { continue };
        let seen = seen.get_mut(index.parse::<usize>().unwrap()).unwrap();
        assert!(!*seen, "{} is shown twice", shown.name);
        *seen = true;
    }
    assert!(seen.into_iter().all(|seen| seen));
}
