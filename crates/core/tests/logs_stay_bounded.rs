//! A log is at most a small multiple of what is live in it, whatever came and went.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_imports,
    clippy::cast_possible_truncation,
    reason = "a test panics"
)]

mod support;

use novale_core::*;
use novale_pm::Pm;

use support::MB;

const PAGE: u64 = 4096;

fn open() -> Fs {
    let pm = support::pool(&[64 * MB], 1);
    reopen(pm)
}

fn reopen(pm: Pm) -> Fs {
    let options = OpenOptions { now_ns: 2, ..OpenOptions::default() };
    support::open_as(pm, &options)
}

const CTX: Ctx = Ctx { now_ns: 3, hint: 0 };

fn file() -> NewInode<'static> {
    NewInode { kind: FileKind::File, mode: 0o644, uid: 1, gid: 2, rdev: 0, target: b"" }
}

fn free(fs: &Fs) -> u64 {
    fs.statfs().unwrap().pages_free
}

fn sound(fs: Fs) -> Pm {
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert_eq!(check(&pm, &Serial, &|_| {}).unwrap().findings, []);
    pm
}

/// A removal stayed in the log of a directory with more living names than one window of collection
/// holds, once its name had been collected without it. The log ate the reserve, and a full pool could
/// not delete any more.
#[test]
fn removals_leave_a_directory_of_many_names() {
    let fs = open();
    for name in 0..3000 {
        fs.create(&CTX, Node::ROOT, format!("stays{name}").as_bytes(), &file()).unwrap();
    }
    // Names that come and go, each living long enough for the log to grow by a page meanwhile.
    let mut least = u64::MAX;
    let mut at_first = 0;
    for round in 0..40_000 {
        fs.create(&CTX, Node::ROOT, format!("comes{round}").as_bytes(), &file()).unwrap();
        if round >= 150 {
            fs.unlink(&CTX, Node::ROOT, format!("comes{}", round - 150).as_bytes()).unwrap();
        }
        if round == 4000 {
            at_first = free(&fs);
        }
        least = least.min(free(&fs));
    }
    assert!(at_first - least < 100, "{at_first} pages were free, then {least}");
    let names = |fs: &Fs| {
        let mut names = Vec::new();
        fs.readdir(&CTX, Node::ROOT, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        names
    };
    let before = names(&fs);
    assert_eq!(before.len(), 3150);
    assert_eq!(names(&reopen(sound(fs))), before);
}

/// One name in sixty stays: each page of the log has one that lives.
#[test]
fn names_that_stay_here_and_there_leave_no_page_each() {
    let fs = open();
    let mut most = 0;
    for stays in 0..200 {
        fs.create(&CTX, Node::ROOT, format!("stays{stays}").as_bytes(), &file()).unwrap();
        for _ in 0..30 {
            fs.create(&CTX, Node::ROOT, b"comes", &file()).unwrap();
            fs.unlink(&CTX, Node::ROOT, b"comes").unwrap();
        }
        most = most.max(fs.getattr(Ino::ROOT).unwrap().blocks / 8);
    }
    // Four pages of what lives, and two windows.
    assert!(most < 40, "the log came to {most} pages");
    sound(fs);
}

/// A hole stayed in a file's log for ever, unless everything before it went: so did each punch and
/// each cutting off of a file with more pieces than one window holds.
#[test]
fn holes_leave_a_file_of_many_pieces() {
    let fs = open();
    let f = fs.create(&CTX, Node::ROOT, b"f", &file()).unwrap().ino;
    for piece in 0..2000 {
        fs.write(&CTX, f, piece * 2 * PAGE, &[1; 4096]).unwrap();
    }
    let mut least = u64::MAX;
    let mut at_first = 0;
    for round in 0..200_000_u64 {
        let end = (4000 + round % 7) * PAGE;
        fs.write(&CTX, f, end, &[2; 4096]).unwrap();
        fs.setattr(
            &CTX,
            Node::current(f),
            &SetAttr { size: Some(end - 100), ..SetAttr::default() },
        )
        .unwrap();
        if round == 2000 {
            at_first = free(&fs);
        }
        least = least.min(free(&fs));
    }
    assert!(at_first - least < 100, "{at_first} pages were free, then {least}");
    let mut before = vec![0; 4010 * 4096];
    let len = fs.read(&CTX, f, 0, &mut before).unwrap();
    let fs = reopen(sound(fs));
    let mut after = vec![0; 4010 * 4096];
    assert_eq!(fs.read(&CTX, f, 0, &mut after).unwrap(), len);
    assert!(before == after);
}

/// Each collapse and each insertion maps all pages after it anew, and leaves them where older
/// entries say that they are: those look alive, and came at more pages a time than a step looks at.
#[test]
fn pages_that_move_about_their_file() {
    const PIECES: u64 = 2_000;
    let fs = open();
    let f = fs.create(&CTX, Node::ROOT, b"f", &file()).unwrap();
    // Every other page, so that each is an entry of its own.
    for index in 0..PIECES {
        fs.write(&CTX, f.ino, index * 2 * PAGE, &[index as u8; 64]).unwrap();
    }
    let data = PIECES;
    let mut most = 0;
    for round in 0..200 {
        // Mostly near the start, now and then anywhere.
        let at = if round % 3 == 0 { round * 379 % (2 * PIECES) } else { round % 7 } * PAGE;
        fs.fallocate(&CTX, f.ino, Fallocate::InsertRange, at, PAGE).unwrap();
        fs.fallocate(&CTX, f.ino, Fallocate::CollapseRange, at, PAGE).unwrap();
        most = most.max(fs.getattr(f.ino).unwrap().blocks / 8 - data);
    }
    // 33 pages of what lives, and as many for the last operation.
    assert!(most < 33 * 3, "the log came to {most} pages");
    let pm = sound(fs);
    let fs = reopen(pm);
    let f = fs.lookup(&CTX, Node::ROOT, b"f").unwrap();
    let mut byte = [0];
    for index in 0..PIECES {
        fs.read(&CTX, f.ino, index * 2 * PAGE, &mut byte).unwrap();
        assert_eq!(byte[0], index as u8);
    }
    sound(fs);
}

/// A log of one page, which is the most of what small files have, was never collected: it grew by pages of the
/// reserve, which were used up in the end, and overwrites on a full pool were refused.
#[test]
fn overwrites_of_many_small_files_on_a_full_pool() {
    const FILES: usize = 150;
    const BYTES: usize = 24 * PAGE as usize;
    for (len, rounds) in [(PAGE as usize, 40_000), (100, 40_000)] {
        let fs = reopen(support::pool(&[16 * MB], 1));
        let create =
            |name: &str| fs.create(&CTX, Node::ROOT, name.as_bytes(), &file()).unwrap().ino;
        let inos: Vec<Ino> = (0..FILES).map(|name| create(&name.to_string())).collect();
        let mut bytes = vec![vec![1; BYTES]; FILES];
        for (ino, bytes) in inos.iter().zip(&bytes) {
            fs.write(&CTX, *ino, 0, bytes).unwrap();
        }
        let rest = create("rest");
        while fs.append(&CTX, rest, &[2; PAGE as usize]).is_ok() {}
        let mut random = 1_u64;
        for round in 0..rounds {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (of, at) =
                ((random >> 40) as usize % FILES, (random >> 17) as usize % (BYTES / len));
            let new = &mut bytes[of][at * len..][..len];
            new.fill((round % 251_u64) as u8);
            let written = fs.write(&CTX, inos[of], (at * len) as u64, new);
            let left = free(&fs);
            assert_eq!(
                written.ok(),
                Some(len),
                "{len} bytes, round {round}: {left} pages are free"
            );
        }
        let fs = reopen(sound(fs));
        let mut read = vec![0; BYTES];
        for (ino, bytes) in inos.iter().zip(&bytes) {
            fs.read(&CTX, *ino, 0, &mut read).unwrap();
            assert!(read == *bytes, "{len} bytes, inode {ino:?}");
        }
    }
}
