//! Promise: a pool that an earlier build made opens with all that it had, closed clean or cut off. What writes
//! and what reads a pool agree with each other, whatever they have in common; these pools say what was agreed.
//!
//! `pools/NAME.lines` has the lines of a pool that are not zero, `pools/NAME.txt` what was to be seen of it.
//! `NOVALE_MAKE_POOLS=NAME` adds those of this build.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use novale_arena::Arena;
use novale_core::{
    Attr, Ctx, Fallocate, Form, Fs, Ino, MkfsOptions, Node, OpenOptions, Placement, Quota,
    RenameMode, Serial, SetAttr, SetXattr, UpdatePolicy, Usage, mkfs,
};
use novale_layout::{FileKind, INODE_DIRECTORY_PAGE, LINE, PAGE, PmAddr, WORDS_PER_PAGE};
use novale_pm::{Pm, PmOptions, Purpose};
use support::{MB, make, open_as, set_long_attribute, verify};

const SLOTS: [u64; 2] = [2 * MB, MB];
const LINE_BYTES: usize = 64;
/// A line's number, with its slot in the upper half; how many there are of it, one behind the other; and the line.
const ROW_BYTES: usize = 8 + 8 + LINE_BYTES;
const PROJECT: u32 = 7;

/// How a pool was made, and whether it was closed.
const HOW: [(&str, Form, bool); 3] =
    [("clean", Form::Auto, true), ("single", Form::Single, false), ("two", Form::Two, false)];

fn at(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pools")
}

fn open(pm: Pm, form: Form) -> Fs {
    let placement = Placement::Spread;
    open_as(pm, &OpenOptions { form, placement, now_ns: 2, ..OpenOptions::default() })
}

/// Something of everything that a pool can have.
fn fill(fs: &Fs) {
    let dir = make(fs, &at(10), Ino::ROOT, "directory", FileKind::Directory);
    make(fs, &at(11), dir, "link", FileKind::Symlink);
    let source = make(fs, &at(12), dir, "source", FileKind::File);
    fs.write(&at(13), source, 0, &[5; 9000]).unwrap();
    for (number, update) in (0..).zip(UpdatePolicy::ALL) {
        let now =
            |step: i64| Ctx { now_ns: 100 * number + step, hint: u32::try_from(number).unwrap() };
        let file = make(fs, &now(0), dir, &format!("{update:?}"), FileKind::File);
        fs.write(&now(1), file, 0, &[1; 9000]).unwrap();
        let set = SetAttr { update: Some(Some(update)), ..SetAttr::default() };
        fs.setattr(&now(2), Node::current(file), &set).unwrap();
        fs.write(&now(3), file, 100, &[2; 64]).unwrap();
        fs.write(&now(4), file, 4000, &[3; 300]).unwrap();
        fs.append(&now(5), file, &[4; 5000]).unwrap();
        if update == UpdatePolicy::Zcl {
            let generation = fs.getattr(source).unwrap().generation;
            let hold = fs.map_hold(&now(6), source, generation).unwrap().unwrap();
            let run = *fs.map_pages(&now(6), hold, 0, 1).unwrap().first().unwrap();
            fs.write_from(&now(6), file, 300, &[5; 500], &[run.bytes(&(0..500))]).unwrap();
            fs.open_release(&now(6), hold).unwrap();
        }
    }
    let holes = make(fs, &at(20), dir, &"long-name".repeat(28), FileKind::File);
    fs.write(&at(21), holes, 70_000, &[6; 100]).unwrap();
    fs.write(&at(22), holes, 0, &[7; 16_000]).unwrap();
    fs.fallocate(&at(23), holes, Fallocate::PunchHole, 5000, 9000).unwrap();
    let cut = SetAttr { size: Some(15_000), ..SetAttr::default() };
    fs.setattr(&at(24), Node::current(holes), &cut).unwrap();
    set_long_attribute(fs, &at(25), holes);
    let set = SetXattr { name: b"user.short", value: b"value", ..SetXattr::default() };
    fs.setxattr(&at(26), Node::current(dir), &set).unwrap();

    let tree = make(fs, &at(30), Ino::ROOT, "tree", FileKind::Directory);
    let counted = SetAttr { project: Some(PROJECT), ..SetAttr::default() };
    fs.setattr(&at(31), Node::current(tree), &counted).unwrap();
    fs.set_quota(&at(32), PROJECT, Usage { pages: 100, inodes: 10 }).unwrap();
    let inside = make(fs, &at(33), tree, "inside", FileKind::File);
    fs.write(&at(34), inside, 0, &[8; 5000]).unwrap();
    let [root, dir] = [Ino::ROOT, dir].map(Node::current);
    fs.link(&at(35), Node::current(source), root, b"second name").unwrap();
    fs.rename(&at(36), dir, b"source", root, b"moved", RenameMode::Replace).unwrap();
    make(fs, &at(37), Ino::ROOT, "gone", FileKind::File);
    fs.unlink(&at(38), root, b"gone").unwrap();
    // The last record of its lane, which may stand for the lines that are in the cache.
    fs.rename(&at(39), dir, b"link", root, b"link", RenameMode::Replace).unwrap();
    fs.write(&at(40), inside, 4090, &[9; 12]).unwrap();
}

/// All that is to be seen, as text.
fn describe(fs: &Fs) -> String {
    let mut text = String::new();
    describe_dir(fs, Ino::ROOT, "", &mut text);
    for (project, quota) in fs.quotas().unwrap() {
        let Quota { used, limit } = quota;
        let inodes = [used, limit].map(|usage| usage.inodes);
        writeln!(text, "tree {project}: inodes {inodes:?}, pages {}", limit.pages).unwrap();
    }
    text
}

fn describe_dir(fs: &Fs, dir: Ino, path: &str, text: &mut String) {
    let mut names = Vec::new();
    fs.readdir(&at(0), Node::current(dir), 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    })
    .unwrap();
    names.sort();
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        let attr = fs.lookup(&at(0), Node::current(dir), name.as_bytes()).unwrap();
        let (path, node) = (format!("{path}/{name}"), Node::current(attr.ino));
        // Not its blocks: that a page has two copies ends as a pool is closed.
        let Attr { kind, mode, nlink, uid, gid, rdev, project, size, .. } = attr;
        writeln!(text, "{path}: {kind:?} {mode:o} {nlink} {uid}:{gid} {rdev} {project} {size}")
            .unwrap();
        let Attr { ino, generation, atime_ns, mtime_ns, ctime_ns, birth_ns, .. } = attr;
        writeln!(text, "  {ino:?}.{generation} {atime_ns} {mtime_ns} {ctime_ns} {birth_ns}")
            .unwrap();
        for name in fs.listxattr(node).unwrap().split(|byte| *byte == 0) {
            if !name.is_empty() {
                let (value, name) =
                    (fs.getxattr(node, name).unwrap(), String::from_utf8_lossy(name));
                writeln!(text, "  {name}: {} bytes, {:x}", value.len(), sum(&value)).unwrap();
            }
        }
        match attr.kind {
            FileKind::Directory => describe_dir(fs, attr.ino, &path, text),
            FileKind::Symlink => {
                let target = fs.readlink(node).unwrap();
                writeln!(text, "  leads to {}", String::from_utf8(target).unwrap()).unwrap();
            }
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => (),
            FileKind::File => {
                let mut bytes = vec![0; usize::try_from(attr.size).unwrap()];
                assert_eq!(fs.peek(&at(0), attr.ino, 0, &mut bytes).unwrap(), bytes.len());
                writeln!(text, "  {:x}", sum(&bytes)).unwrap();
            }
        }
    }
}

/// None of the file system's own checksums, which are among what is looked at.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn lines_of(pm: &Pm) -> Vec<u8> {
    let mut rows: Vec<(u64, u64, [u8; LINE_BYTES])> = Vec::new();
    for (slot, len) in (0_u8..).zip(SLOTS) {
        for at in 0..len / LINE {
            let (number, mut line) = (u64::from(slot) << 32 | at, [0; LINE_BYTES]);
            pm.load(PmAddr::new(slot, at * LINE), &mut line).unwrap();
            match rows.last_mut() {
                Some((first, count, last)) if *last == line && *first + *count == number => {
                    *count += 1;
                }
                _ => rows.push((number, 1, line)),
            }
        }
    }
    rows.retain(|(_, _, line)| line.iter().any(|byte| *byte != 0));
    let bytes = |(number, count, line): &(u64, u64, [u8; LINE_BYTES])| {
        [&number.to_le_bytes()[..], &count.to_le_bytes(), line].concat()
    };
    rows.iter().flat_map(bytes).collect()
}

fn pool_of(rows: &[u8]) -> Pm {
    let pm = Pm::anonymous(&SLOTS, &PmOptions::default()).unwrap();
    for row in rows.chunks_exact(ROW_BYTES) {
        let [number, count] =
            [0, 8].map(|at| u64::from_le_bytes(row[at..at + 8].try_into().unwrap()));
        let slot = u8::try_from(number >> 32).unwrap();
        let at = PmAddr::new(slot, (number & u64::from(u32::MAX)) * LINE);
        for line in 0..count {
            pm.fence(pm.stream(at.add(line * LINE), &row[16..], Purpose::Other)).end();
        }
    }
    pm
}

fn make_pools(build: &str) {
    fs::create_dir_all(folder()).unwrap();
    for (how, form, is_closed) in HOW {
        let pm = Pm::anonymous(&SLOTS, &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(SLOTS.len(), 2)).unwrap();
        let fs = open(pm, form);
        fill(&fs);
        let seen = describe(&fs);
        if is_closed {
            fs.close().unwrap();
        }
        let path = folder().join(format!("{build}-{how}"));
        fs::write(path.with_extension("lines"), lines_of(&fs.into_pm())).unwrap();
        fs::write(path.with_extension("txt"), seen).unwrap();
    }
}

#[test]
fn with_all_that_they_had() {
    if let Ok(build) = std::env::var("NOVALE_MAKE_POOLS") {
        make_pools(&build);
    }
    let mut tried = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "lines") {
            continue;
        }
        let (rows, seen) = (fs::read(&path).unwrap(), path.with_extension("txt"));
        let expected = fs::read_to_string(seen).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy();
        verify(&pool_of(&rows));
        for read_only in [true, false] {
            let options = OpenOptions { read_only, now_ns: 50, ..OpenOptions::default() };
            let fs = open_as(pool_of(&rows), &options);
            assert_eq!(fs.opened().clean, name.ends_with("clean"), "{name}");
            assert_eq!(describe(&fs), expected, "{name}, read-only: {read_only}");
            if !read_only {
                make(&fs, &at(51), Ino::ROOT, "new", FileKind::File);
                fs.close().unwrap();
                verify(&fs.into_pm());
            }
            tried += 1;
        }
    }
    assert!(tried >= 2 * HOW.len(), "{tried}");
}

/// Of a page that nobody has used yet nothing but the word says that it has inodes, and the first opening for writing
/// stores to it.
#[test]
fn not_with_a_word_that_names_another_page_of_inodes() {
    let rows = fs::read(folder().join("v1-clean.lines")).unwrap();
    let word = |pm: &Pm, at: PmAddr| PmAddr::from_raw(pm.load_u64(at).unwrap());
    let pm = pool_of(&rows);
    let table = word(&pm, word(&pm, PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE)));
    let words = (0..WORDS_PER_PAGE).map(|index| table.add(index * 8));
    let used: Vec<PmAddr> = words.filter(|at| !word(&pm, *at).is_null()).collect();
    for at in used {
        for bit in 12..22 {
            let pm = pool_of(&rows);
            let line = at.raw() / LINE * LINE;
            let (line, within) = (PmAddr::from_raw(line), at.raw() - line);
            let mut bytes = pm.load_line(line).unwrap();
            bytes[usize::try_from(within + bit / 8).unwrap()] ^= 1 << (bit % 8);
            pm.fence(pm.stream(line, &bytes, Purpose::Other)).end();
            let options = OpenOptions { now_ns: 50, ..OpenOptions::default() };
            let arena = Arena::anonymous(64 * MB).unwrap();
            let opened = Fs::open(pm, arena, &options, &Serial, &|_| {});
            assert!(opened.is_err(), "word {at}, bit {bit}");
        }
    }
}
