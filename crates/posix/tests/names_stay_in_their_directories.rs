//! Promise: while directories are made and removed by many, a path leads to the directory that it names
//! at some moment of the call, or to none; never to another one.
//!
//! How it happened: a name meant for a directory landed in another one, which had got the number of the
//! first between the walk and the operation.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use novale_core::RenameMode;
use novale_posix::{Error, Files, OpenOptions};
use support::files;

const THREADS: u64 = 6;
const DIRECTORIES: u64 = 3;
/// Steps of each thread where nothing is said.
const STEPS: u64 = 50_000;

/// One step on a directory whose number is `own`: all names made in it begin with that number.
fn step(files: &Files, own: u64, random: &mut fastrand::Rng) -> Result<(), Error> {
    let dir = format!("/d{own}");
    let mut path = || format!("{dir}/{own} {}", random.u8(0..3));
    let (one, other) = (path(), path());
    let exclusive = OpenOptions::new().write(true).create_new(true);
    match random.u8(0..13) {
        0 | 1 => files.create_dir(&dir, 0o755).map(drop),
        2 | 3 => files.remove_dir(&dir),
        4 => files.write_file(&one, b"x"),
        5 => files.open_file(&one, &exclusive).map(drop),
        6 => files.create_dir(&one, 0o755).map(drop),
        7 => files.symlink(format!("{own} 0"), &one).map(drop),
        8 => files.hard_link(&one, &other).map(drop),
        9 => {
            let mode = if random.bool() { RenameMode::Replace } else { RenameMode::Exchange };
            files.rename_with(&one, &other, mode)
        }
        10 | 11 => files.remove_file(&one).or_else(|_| files.remove_dir(&one)),
        _ => {
            for entry in files.read_dir(&dir)? {
                let name = entry.name.to_str().unwrap();
                assert!(name.starts_with(&format!("{own} ")), "{dir} has {name}");
            }
            Ok(())
        }
    }
}

/// What the others may have done to the names explains these, and nothing else: no directory is ever
/// seen as something else.
fn is_explained(error: &Error) -> bool {
    let expected = [
        libc::ENOENT,
        libc::EEXIST,
        libc::ENOTEMPTY,
        libc::EISDIR,
        libc::ELOOP,
        libc::EPERM,
        libc::ENOTDIR,
    ];
    expected.contains(&error.errno())
}

#[test]
fn no_name_shows_up_in_a_foreign_directory() {
    let steps = std::env::var("NOVALE_STORM_STEPS").ok().and_then(|steps| steps.parse().ok());
    let files = files();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let files = &files;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..steps.unwrap_or(STEPS) {
                    let own = random.u64(0..DIRECTORIES);
                    if let Err(error) = step(files, own, &mut random) {
                        assert!(is_explained(&error), "{error}");
                    }
                }
            });
        }
    });
    let fs = files.fs();
    fs.close().unwrap();
    let report = novale_core::check(fs.pm(), &novale_core::Serial, &|_| {}).unwrap();
    assert_eq!(report.findings, []);
}
