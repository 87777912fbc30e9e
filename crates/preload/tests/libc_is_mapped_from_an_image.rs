//! Promise: a program starts with an image of libc's text that was made once, where that can be believed, and
//! runs directly without it otherwise.
//!
//! Each program had some sixty pages of libc copied, to write jumps over its system calls: two thirds of a
//! millisecond an exec, with what else was done then.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod harness;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::support::Scratch;
use harness::{direct, is_whole, mounted, succeeds};

/// Uses the mount, and says how often an image is mapped.
const SCRIPT: &str = "echo text > file; cat file; sh -c 'mv file other; cat other'; rm other; \
                      grep -c /text- /proc/self/maps || true";

fn shell(scratch: &Scratch, cache: &Path) -> Command {
    let mut shell = direct(scratch, Path::new("sh"));
    shell.env("XDG_CACHE_HOME", cache).current_dir(scratch.dir()).args(["-ec", SCRIPT]);
    shell
}

fn run(scratch: &Scratch, cache: &Path) -> String {
    succeeds(&shell(scratch, cache).output().unwrap())
}

fn images(cache: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(cache.join("novale")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("text-")).collect()
}

#[test]
fn an_image_is_made_once_and_only_believed_as_it_was_made() {
    let Some((scratch, slot)) = mounted("an_image_is_made_once") else { return };
    let cache = tempfile::tempdir().unwrap();
    let with_image = "text\ntext\n2\n";
    assert_eq!(run(&scratch, cache.path()), with_image);
    let found = images(cache.path());
    let [image] = found.as_slice() else { panic!("{found:?}") };
    let (made, bytes) = (fs::metadata(image).unwrap(), fs::read(image).unwrap());
    assert_eq!(made.permissions().mode() & 0o777, 0o644);
    assert_eq!(run(&scratch, cache.path()), with_image);
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(modified(image), made.modified().unwrap());
    // Others could write it: what it would run is an `int3` everywhere.
    let damaged = fs::OpenOptions::new().write(true).open(image).unwrap();
    damaged.write_all_at(&vec![0xcc; bytes.len()], 0).unwrap();
    fs::set_permissions(image, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(run(&scratch, cache.path()), with_image);
    assert!(fs::read(image).unwrap() == bytes, "it was made anew");
    // It was cut off, also where all that is left are whole pages of code.
    let whole = bytes.len() as u64;
    for left in [4096, whole - 8, whole - 8 - 4096, whole - 1] {
        fs::OpenOptions::new().write(true).open(image).unwrap().set_len(left).unwrap();
        assert_eq!(run(&scratch, cache.path()), with_image);
        assert!(fs::read(image).unwrap() == bytes, "{left}: it was made anew");
    }
    is_whole(&scratch, &slot);
}

/// The images of all builds without a number had one name: who updated such a libc ran the code of the old one.
#[test]
fn a_libc_whose_build_has_no_number_has_no_image() {
    /// The head of the note.
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let Some((scratch, slot)) = mounted("no_number") else { return };
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
    let mut bytes = fs::read(libc.split_whitespace().last().unwrap()).unwrap();
    let note = bytes.windows(NOTE.len()).position(|at| at == NOTE).unwrap();
    // A kind that nobody knows.
    bytes[note + 8] = 99;
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("libc.so.6"), bytes).unwrap();
    let mut shell = shell(&scratch, cache.path());
    let output = shell.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    assert_eq!(succeeds(&output), "text\ntext\n0\n");
    assert_eq!(images(cache.path()), Vec::<PathBuf>::new());
    is_whole(&scratch, &slot);
}

/// The folder can't be made.
#[test]
fn programs_run_directly_without_an_image() {
    let Some((scratch, slot)) = mounted("without_an_image") else { return };
    assert_eq!(run(&scratch, Path::new("/proc/self")), "text\ntext\n0\n");
    is_whole(&scratch, &slot);
}
