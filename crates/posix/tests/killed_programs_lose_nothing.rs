//! Promise: what programs that were killed have left in their arena stays there until it is in the pool, and
//! a program that becomes another one by exec keeps nobody from anything.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use novale_core::Mode;
use novale_posix::join::{ArenaFile, Opening};
use novale_posix::{MakePool, Pool, make_pool};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

const SLOT: &str = "NOVALE_TEST_SLOT";
const BYTES: &[u8] = b"only buffered";
/// Room for the pool and a new arena, not for the one that is there.
const ROOM: u64 = 512 << 20;

fn slot_of_parent() -> Option<PathBuf> {
    std::env::var_os(SLOT).map(PathBuf::from)
}

/// One of this file's tests as a program.
fn program(name: &str, slot: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(SLOT, slot);
    command
}

fn runs(name: &str, slot: &Path) -> Output {
    program(name, slot).output().unwrap()
}

fn made_in(folder: &tempfile::TempDir) -> PathBuf {
    let slot = folder.path().join("pool");
    let made = MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() };
    make_pool(&[&slot], &made).unwrap();
    slot
}

#[test]
fn one_is_killed_with_what_it_buffered() {
    let Some(slot) = slot_of_parent() else { return };
    let mut opening = Opening::default();
    opening.fs.mode = Some(Mode::Buffered);
    let pool = Pool::open_as(&[slot], &opening).unwrap();
    pool.write_file("/f", BYTES).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

#[test]
fn one_has_no_memory_for_their_arena() {
    let Some(slot) = slot_of_parent() else { return };
    let told = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = told.split(' ').next().unwrap().parse().unwrap();
    let most = Some(pages * 4096 + ROOM);
    setrlimit(Resource::As, Rlimit { current: most, maximum: most }).unwrap();
    let opening = Opening { arena_bytes: Some(4 << 20), ..Opening::default() };
    let refused = Pool::open_as(&[slot], &opening).unwrap_err();
    println!("refused: {refused}");
}

/// It was taken for one in which nothing is left, and removed.
#[test]
fn an_arena_that_can_not_be_opened_just_now_stays() {
    if slot_of_parent().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let slot = made_in(&folder);
    let killed = runs("one_is_killed_with_what_it_buffered", &slot);
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let refused = runs("one_has_no_memory_for_their_arena", &slot);
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(said.contains("refused: map the arena: Cannot allocate memory"), "{refused:?}");
    assert_eq!(Pool::open(&[&slot]).unwrap().read_file("/f").unwrap(), BYTES);
}

/// The old one was removed before.
#[test]
fn an_arena_goes_once_another_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let slot = folder.path().join("pool");
    std::fs::write(&slot, "").unwrap();
    let arena = ArenaFile::new([7; 16], &slot.metadata().unwrap()).unwrap();
    arena.create(4 << 20).unwrap().set_generation(2);
    let too_small = arena.create(1);
    let there = arena.open().map(|arena| arena.generation());
    arena.remove().unwrap();
    assert!(too_small.is_err());
    assert_eq!(there.unwrap(), 2);
}

#[test]
fn one_becomes_another_program() {
    let Some(slot) = slot_of_parent() else { return };
    let pool = Pool::open(&[&slot]).unwrap();
    pool.write_file("/f", BYTES).unwrap();
    let failed = program("one_opens_what_it_had_open", &slot).exec();
    panic!("{failed}");
}

#[test]
fn one_opens_what_it_had_open() {
    let Some(slot) = slot_of_parent() else { return };
    let pool = Pool::open(&[slot]).unwrap();
    assert_eq!(pool.read_file("/f").unwrap(), BYTES);
    pool.close().unwrap();
}

/// Its client lived on with the process, so that nobody was the last to leave.
#[test]
fn a_program_that_execs_has_left_its_pool() {
    if slot_of_parent().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let slot = made_in(&folder);
    let ended = runs("one_becomes_another_program", &slot);
    assert!(ended.status.success(), "{ended:?}");
    let pool = Pool::open(&[&slot]).unwrap();
    assert!(pool.fs().opened().clean, "the next program was the last to leave");
    assert_eq!(pool.read_file("/f").unwrap(), BYTES);
}
