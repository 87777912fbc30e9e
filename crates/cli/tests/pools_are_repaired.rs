//! Promise: `novale check --repair` shows what it would do, asks, mends what needs no guess, gives
//! something up only where it is told to, and keeps that first.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, lsetxattr};
use support::{Scratch, novale, patch};

const EUCLEAN: i32 = 117;
/// The word that names the root's page, in the first table of inodes.
const ROOT_WORD: u64 = (8 + 1) * 4096;
/// The identity line of the root: inode 1 of the page after the directory's.
const ROOT_IDENTITY: u64 = (8 + 2) * 4096 + 256;

#[test]
fn what_needs_no_guess_is_mended_when_asked_for() {
    let scratch = Scratch::new();
    let slot = scratch.pool();
    patch(&slot, SeekFrom::Start(2048 + 60), b"damage");
    let before = fs::read(&slot).unwrap();
    let shown = novale(&["check", "--repair", "--dry-run", &slot]);
    assert_eq!(shown.code, 4, "{}{}", shown.out, shown.err);
    assert!(
        shown.out.contains("mends: slot 0: the first copy of the slot header"),
        "{}",
        shown.out
    );
    assert!(shown.out.contains("nothing was changed"), "{}", shown.out);
    novale(&["check", "--repair", &slot]).refused(8, &["nobody can be asked", "--yes"]);
    assert!(fs::read(&slot).unwrap() == before, "a dry run, or nothing, changed the pool");
    let done = novale(&["check", "--repair", "--yes", "--json", &slot]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(report["changes"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&report["changes"][0]["gives_up"], &report["dry_run"]),
        (&false.into(), &false.into())
    );
    assert!(novale(&["check", "--repair", "--yes", &slot]).ok().contains("no errors"));
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
}

/// Pages that nobody has were read by the mapping, which gave each hole of the slot's file memory: all that a file that
/// says to be long may ask for.
#[test]
fn a_dry_run_leaves_the_holes_of_a_slot() {
    let scratch = Scratch::new();
    let (whole, sparse) = (scratch.pool(), scratch.slot("sparse"));
    patch(&whole, SeekFrom::Start(ROOT_WORD), &[0; 8]);
    let copied = Command::new("cp").args(["--sparse=always", &whole, &sparse]).status().unwrap();
    assert!(copied.success());
    let before = fs::metadata(&sparse).unwrap().blocks();
    let shown = novale(&["check", "--repair", "--dry-run", &sparse]);
    assert!(shown.out.contains("is found, and named again"), "{}{}", shown.out, shown.err);
    // The pool's own pages may be read where they are holes.
    let after = fs::metadata(&sparse).unwrap().blocks();
    assert!(after < before + 1024, "{before} blocks, then {after}");
}

#[test]
fn what_is_given_up_is_kept_first() {
    let scratch = Scratch::new();
    let (slot, pieces) = (scratch.slot("pool"), scratch.slot("pieces"));
    novale(&["mkfs", "--size", "16M", &slot]).ok();
    patch(&slot, SeekFrom::Start(ROOT_IDENTITY + 8), b"damage");
    let before = fs::read(&slot).unwrap();
    let refused = novale(&["check", "--repair", "--yes", &slot]);
    assert_eq!(refused.code, 4, "{}{}", refused.out, refused.err);
    assert!(refused.out.contains("needs --repair=salvage: damaged pool: inode 1 identity line"));
    novale(&["check", "--repair=salvage", "--yes", &slot]).refused(16, &["--save DIR"]);
    assert!(fs::read(&slot).unwrap() == before, "a repair that was refused changed the pool");
    let salvage = ["check", "--repair=salvage", "--yes", "--save", &pieces, &slot];
    let piece = format!("{pieces}/inode-1-slot-0-{ROOT_IDENTITY:#x}");
    // Pieces are of all users, and who may write there would have them written over any file.
    fs::create_dir(&pieces).unwrap();
    fs::set_permissions(&pieces, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = novale(&salvage);
    assert!(
        refused.code != 1
            && format!("{}{}", refused.out, refused.err).contains("others may write there")
    );
    fs::set_permissions(&pieces, fs::Permissions::from_mode(0o755)).unwrap();
    // Only root may make a link another user's.
    if rustix::process::geteuid().is_root() {
        let link = scratch.slot("link");
        symlink(&pieces, &link).unwrap();
        lchown(&link, Some(65534), Some(65534)).unwrap();
        let below = format!("{link}/below");
        for dir in [&link, &below] {
            let refused = novale(&["check", "--repair=salvage", "--yes", "--save", dir, &slot]);
            assert!(refused.code != 1 && refused.err.contains("a symbolic link of another user's"));
        }
        assert_eq!(fs::read_dir(&pieces).unwrap().count(), 0);
    }
    symlink(scratch.slot("victim"), &piece).unwrap();
    assert!(novale(&salvage).code != 1 && !fs::exists(scratch.slot("victim")).unwrap());
    fs::remove_file(&piece).unwrap();
    let done = novale(&salvage);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    assert_eq!(fs::metadata(&piece).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(done.out.contains("gives up: damaged pool: inode 1 identity line"), "{}", done.out);
    let at = usize::try_from(ROOT_IDENTITY).unwrap();
    assert_eq!(fs::read(&piece).unwrap(), before[at..at + 256]);
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
    // The same inode once more, into the same folder: what was cut off is completed, and what is there stays.
    for (there, named) in [(&before[at..at + 9], ""), (&[1; 256], ".2")] {
        fs::write(&slot, &before).unwrap();
        fs::write(&piece, there).unwrap();
        assert_eq!(novale(&salvage).code, 1);
        assert_eq!(fs::read(format!("{piece}{named}")).unwrap(), before[at..at + 256]);
        assert!(fs::read(&piece).unwrap().starts_with(there));
    }
}

/// A file goes on from a state whose pages another one has by now, which fills the pool.
#[test]
fn a_full_pool_that_needs_copies_says_what_to_do() {
    let Some(scratch) = Scratch::for_mount("a_full_pool_that_needs_copies") else { return };
    let (slot, dir, pieces) = (scratch.slot("pool"), scratch.dir(), scratch.slot("pieces"));
    novale(&["mkfs", "--size", "3M", &slot]).ok();
    novale(&["mount", "-o", "method=cow", &slot, &dir]).ok();
    let mut file = File::create(scratch.in_dir("file")).unwrap();
    let number = file.metadata().unwrap().ino();
    for _ in 0..2 {
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&vec![7; 800_000]).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    let mut others = File::create(scratch.in_dir("others")).unwrap();
    while others.write_all(&[8; 4096]).is_ok() {}
    drop(others);
    novale(&["umount", &dir]).ok();
    let said = novale(&["dump", "--json", &slot, "inode", &number.to_string()]).ok();
    let inode: serde_json::Value = serde_json::from_str(&said).unwrap();
    let entries = inode["log"]["pages"][0]["entries"].as_array().unwrap();
    let last = entries.last().unwrap()["at"].as_str().unwrap();
    let at = u64::from_str_radix(last.trim_start_matches("0:0x"), 16).unwrap();
    patch(&slot, SeekFrom::Start(at + 20), b"damage");
    let before = fs::read(&slot).unwrap();
    let salvage = ["check", "--repair=salvage", "--yes", "--save", &pieces, &slot];
    let refused = novale(&salvage);
    assert_eq!(refused.code, 8, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("copy all that can be read"), "{}", refused.err);
    assert!(fs::read(&slot).unwrap() == before);
    // Another file gives way.
    novale(&["mount", &slot, &dir]).ok();
    fs::remove_file(scratch.in_dir("others")).unwrap();
    novale(&["umount", &dir]).ok();
    assert_eq!(novale(&salvage).code, 1);
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
}

/// Makes a file of 9,000 bytes in a directory of a mounted pool; the pool is unmounted then, as if it had not been closed,
/// and the directory's log damaged, so that a salvage has no name for the file.
fn lose_a_name(scratch: &Scratch) {
    let (slot, dir) = (scratch.slot("pool"), scratch.dir());
    fs::create_dir(scratch.in_dir("sub")).unwrap();
    fs::write(scratch.in_dir("sub/kept"), [7; 9000]).unwrap();
    let number = fs::metadata(scratch.in_dir("sub")).unwrap().ino();
    novale(&["umount", &dir]).ok();
    let said = novale(&["dump", "--json", &slot, "inode", &number.to_string()]).ok();
    let inode: serde_json::Value = serde_json::from_str(&said).unwrap();
    let entry = inode["log"]["pages"][0]["entries"][0]["at"].as_str().unwrap();
    let at = u64::from_str_radix(entry.trim_start_matches("0:0x"), 16).unwrap();
    // The only name in the directory.
    patch(&slot, SeekFrom::Start(at + 20), b"damage");
    // The state line that says that it was closed is gone.
    let said = novale(&["dump", "--json", &slot, "superblock"]).ok();
    let pool: serde_json::Value = serde_json::from_str(&said).unwrap();
    let states = pool["states"].as_array().unwrap();
    let clean = states.iter().find(|line| line["notes"][0] == "stands").unwrap();
    let clean = clean["at"].as_str().unwrap().trim_start_matches("0:0x");
    patch(&slot, SeekFrom::Start(u64::from_str_radix(clean, 16).unwrap()), &[0; 64]);
}

/// What the only file in a directory holds.
fn only_file_in(dir: &Path) -> Vec<u8> {
    let files: Vec<_> = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    fs::read(&files[0]).unwrap()
}

/// A pool whose daemon was killed, with a damaged inode, was not mounted for writing any more.
#[test]
fn a_pool_that_was_refused_for_writing_is_mounted_after_its_repair() {
    let test = "a_pool_that_was_refused_for_writing_is_mounted_after_its_repair";
    let Some(scratch) = Scratch::for_mount(test) else { return };
    let (slot, dir, pieces) = (scratch.pool(), scratch.dir(), scratch.slot("pieces"));
    novale(&["mount", &slot, &dir]).ok();
    lose_a_name(&scratch);
    novale(&["mount", &slot, &dir]).refused(1, &["could destroy it"]);
    let salvage = ["check", "--repair=salvage", "--yes", "--save", &pieces, &slot];
    assert_eq!(novale(&salvage).code, 1);
    novale(&["mount", &slot, &dir]).ok();
    assert_eq!(only_file_in(&scratch.in_dir("lost+found")), [7; 9000]);
    fs::write(scratch.in_dir("sub/new"), b"written").unwrap();
    novale(&["umount", &dir]).ok();
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
}

/// Any user may make a directory of that name where the root is everybody's, and read in it what lay in a directory that
/// was closed to all.
#[test]
fn what_a_repair_finds_lies_where_only_root_comes() {
    let Some(scratch) = Scratch::for_mount("what_a_repair_finds") else { return };
    let (slot, dir, pieces) = (scratch.pool(), scratch.dir(), scratch.slot("pieces"));
    novale(&["mount", &slot, &dir]).ok();
    let makes = |name: &str, owner, mode| {
        let dir = scratch.in_dir(name);
        fs::create_dir(&dir).unwrap();
        lchown(&dir, Some(owner), None).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    };
    makes("lost+found", 1001, 0o700);
    makes("lost+found.2", 0, 0o710);
    makes("lost+found.3", 0, 0o705);
    makes("lost+found.4", 0, 0o700);
    lose_a_name(&scratch);
    let salvage = ["check", "--repair=salvage", "--yes", "--save", &pieces, &slot];
    assert_eq!(novale(&salvage).code, 1);
    novale(&["mount", &slot, &dir]).ok();
    assert_eq!(only_file_in(&scratch.in_dir("lost+found.4")), [7; 9000]);
    novale(&["umount", &dir]).ok();
}

/// Of a file with an ACL the group's bits are the most that anybody has by it. They were left, and no ACL: the group, to
/// which it gave nothing, had all that it gave another user. So were those of others, and who was named with less had them.
#[test]
fn who_loses_an_access_list_gives_nobody_more() {
    let Some(scratch) = Scratch::for_mount("who_loses_an_access_list") else { return };
    let (slot, dir, pieces) = (scratch.pool(), scratch.dir(), scratch.slot("pieces"));
    novale(&["mount", &slot, &dir]).ok();
    let file = scratch.in_dir("file");
    fs::write(&file, b"kept").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o675)).unwrap();
    let mark = b"the mark of attributes";
    lsetxattr(&file, "user.mark", mark, XattrFlags::empty()).unwrap();
    novale(&["umount", &dir]).ok();
    let bytes = fs::read(&slot).unwrap();
    let at = bytes.windows(mark.len()).position(|here| here == mark).unwrap();
    patch(&slot, SeekFrom::Start(at as u64), b"damage");
    let salvage = ["check", "--repair=salvage", "--yes", "--save", &pieces, &slot];
    let done = novale(&salvage);
    assert!(
        done.out.contains("no extended attributes any more, and nobody but its owner rights"),
        "{}",
        done.out
    );
    novale(&["mount", &slot, &dir]).ok();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    novale(&["umount", &dir]).ok();
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
}

/// The first name of a directory was its whole listing's error, where the kernel asks for names with attributes.
#[test]
fn a_damaged_inode_hides_none_of_the_names_beside_it() {
    let Some(scratch) = Scratch::for_mount("a_damaged_inode_hides_none") else { return };
    let (slot, dir) = (scratch.slot("pool"), scratch.dir());
    novale(&["mkfs", "--size", "16M", &slot]).ok();
    novale(&["mount", &slot, &dir]).ok();
    let names = ["first", "second", "third"];
    for name in names {
        fs::write(scratch.in_dir(name), name).unwrap();
    }
    novale(&["umount", &dir]).ok();
    let shown = novale(&["dump", "--json", &slot, "path", "/first"]).ok();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let at = shown["at"].as_str().unwrap().strip_prefix("0:0x").unwrap();
    let at = u64::from_str_radix(at, 16).unwrap();
    patch(&slot, SeekFrom::Start(at + 8), b"damage");
    novale(&["mount", "-o", "ro", &slot, &dir]).ok();
    let listed = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut listed: Vec<String> = listed.map(|name| name.into_string().unwrap()).collect();
    listed.sort();
    assert_eq!(listed, names);
    assert_eq!(fs::read(scratch.in_dir("second")).unwrap(), b"second");
    let damaged = fs::metadata(scratch.in_dir("first")).unwrap_err();
    assert_eq!(damaged.raw_os_error(), Some(EUCLEAN));
    novale(&["umount", &dir]).ok();
}
