//! Promise: a direct program that is stopped in the middle of an operation holds up who needs the same inode, and
//! nobody else, however many wait.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[allow(unused_macros, reason = "its test is written out")]
mod harness;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::support::{Scratch, eventually, novale};
use harness::{append, is_in_call, is_whole, stop_holding, stop_while, task};
use rustix::process::{Pid, Signal, kill_process};

/// More than the threads that the daemon is given.
const WRITERS: usize = 12;

const PAGE: usize = 4096;

/// Each thread of the mount's daemon waited for it, and none was left for other files.
#[test]
fn many_wait_through_the_mount() {
    let Some(scratch) = Scratch::for_mount("many_wait_through_the_mount") else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct,threads=4", &slot, &scratch.dir()]).ok();
    let (held, other) = (scratch.in_dir("held"), scratch.in_dir("other"));
    fs::write(&other, "text").unwrap();
    let mut busy = task(&scratch, "is_busy").spawn().unwrap();
    assert!(eventually(|| fs::metadata(&held).is_ok_and(|held| held.len() > 0)));
    let process = Pid::from_child(&busy);
    let first = stop_holding(process, &held);
    let others = (1..WRITERS).map(|_| append(&held));
    let writers: Vec<_> = std::iter::once(first).chain(others).collect();
    // All of them have asked by then.
    std::thread::sleep(Duration::from_millis(300));
    let mut reads = Command::new("cat").arg(&other).stdout(Stdio::piped()).spawn().unwrap();
    let is_served = eventually(|| reads.try_wait().unwrap().is_some());
    kill_process(process, Signal::CONT).unwrap();
    busy.kill().unwrap();
    busy.wait().unwrap();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    assert_eq!(reads.wait_with_output().unwrap().stdout, b"text");
    assert!(is_served, "all wait");
    is_whole(&scratch, &slot);
}

/// The kernel keeps a program's table of mappings locked while it ends one, and waited for the stopped program. A thread
/// that has the file's lock may be of that very program, and need the table: both waited for ever.
#[test]
fn a_mapping_is_ended_and_what_it_has_stored_is_written() {
    let test = "a_mapping_is_ended_and_what_it_has_stored_is_written";
    let Some(scratch) = Scratch::for_mount(test) else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct", &slot, &scratch.dir()]).ok();
    let held = scratch.in_dir("held");
    fs::write(&held, [0; PAGE]).unwrap();
    let file = File::options().read(true).write(true).open(&held).unwrap();
    let mut busy = task(&scratch, "gives_it_names").spawn().unwrap();
    assert!(eventually(|| fs::exists(scratch.in_dir("name")).unwrap()));
    let process = Pid::from_child(&busy);
    let (none, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    let at = unsafe { libc::mmap(none, PAGE, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // The page is there.
    unsafe { at.cast::<u8>().write(1) };
    // By a path that needs no directory of the mount, which the program has locked too at times.
    let open = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let chmod = || Command::new("chmod").arg("640").arg(&open).spawn().unwrap();
    let mut changes = stop_while(process, chmod);
    let (tell, told) = std::sync::mpsc::channel();
    let (at, is_over) = (at.expose_provenance(), AtomicBool::new(false));
    let (has_ended, syncs) = std::thread::scope(|scope| {
        let ends = scope.spawn(|| {
            let at: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
            unsafe { at.write(7) };
            assert_eq!(unsafe { libc::munmap(at.cast(), PAGE) }, 0);
            tell.send(unsafe { libc::gettid() }).unwrap();
            file.sync_all().unwrap();
            assert!(is_over.load(Ordering::Relaxed), "nothing is durable yet");
        });
        let mut thread = None;
        let has_ended = eventually(|| {
            thread = thread.or_else(|| told.try_recv().ok());
            thread.is_some()
        });
        let syncs = thread.is_some_and(|it| eventually(|| is_in_call(it, libc::SYS_fsync)));
        is_over.store(true, Ordering::Relaxed);
        kill_process(process, Signal::CONT).unwrap();
        ends.join().unwrap();
        (has_ended, syncs)
    });
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert!(has_ended && syncs, "it waits to end its mapping");
    assert!(changes.wait().unwrap().success());
    assert_eq!(fs::read(&held).unwrap()[0], 7);
    drop(file);
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::harness::PLACE;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    #[test]
    #[ignore = "a task of another test"]
    fn gives_it_names() {
        let [held, name] = ["held", "name"].map(|name| place().join(name));
        loop {
            fs::hard_link(&held, &name).unwrap();
            fs::remove_file(&name).unwrap();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn is_busy() {
        let place = place();
        let held = File::create(place.join("held")).unwrap();
        loop {
            held.write_all_at(&[1; 10_000], 0).unwrap();
        }
    }
}
