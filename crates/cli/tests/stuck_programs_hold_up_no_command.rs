//! Promise: a program that waits for a mount that does not answer holds up no command on other mounts, whatever it
//! keeps from others meanwhile.
//!
//! `novale umount` waited without end for a process of any user that kept the lock of its own memory.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Outcome, Scratch, Stopped, alone, eventually, novale, program};

/// Keeps the lock of its memory from when it is told to until the daemon of a file's mount answers. A fault waits for
/// that daemon, by a call that keeps the lock, and a second thread waits to change the memory.
const KEEPS_ITS_LOCK: &str = r"
import ctypes, mmap, os, sys, threading
libc = ctypes.CDLL(None)
death, name, kill = 1, 15, 9
libc.prctl(death, kill, 0, 0, 0)
libc.prctl(name, b'novale', 0, 0, 0)
mapped = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), mmap.PAGESIZE)
place = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
memory = os.open('/proc/self/mem', os.O_RDONLY)
print('ready', flush=True)
sys.stdin.readline()
reader = threading.Thread(target=os.pread, args=(memory, 1, place))
reader.start()
# The first argument of its call, once it waits in it.
call = f'/proc/self/task/{reader.native_id}/syscall'
while open(call).read().split()[1:2] != [hex(memory)]:
    pass
mmap.mmap(-1, mmap.PAGESIZE)
";

/// Has a file mapped, and no descriptor of it.
const MAPS: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(15, b'maps', 0, 0, 0)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
file = os.open(sys.argv[1], os.O_RDWR)
libc.mmap(None, 4096, 1, 1, file, 0)
os.close(file)
print('ready', flush=True)
sys.stdin.readline()
";

/// Killed when this is dropped: after a failure too.
struct Killed(Child);

impl Killed {
    /// Returns when it is ready.
    fn python(script: &str, file: &Path, here: &str) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(file).current_dir(here);
        let mut python = Self(python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = String::new();
        BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        python
    }

    fn tell(&self) {
        self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    }

    fn waits_in_the_kernel(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('D'))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// Unmounts, or is killed after half a minute.
fn umount(dir: &str) -> Outcome {
    let mut timeout = Command::new("timeout");
    timeout.arg("30").arg(program()).args(["umount", dir]);
    Outcome::of(&timeout.output().unwrap())
}

#[test]
fn one_that_keeps_the_lock_of_its_memory() {
    let Some(scratch) = Scratch::for_mount("one_that_keeps_the_lock") else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: one_that_keeps_the_lock: no python3");
        return;
    }
    let _alone = alone();
    let (stuck, empty) = (Scratch::new(), Scratch::new());
    let stuck_slot = stuck.pool();
    for (scratch, slot) in [(&stuck, &stuck_slot), (&scratch, &scratch.pool())] {
        novale(&["mount", slot, &scratch.dir()]).ok();
        fs::write(scratch.in_dir("file"), [1; 8192]).unwrap();
    }
    let keeper = Killed::python(KEEPS_ITS_LOCK, &stuck.in_dir("file"), &scratch.dir());
    let other = Killed::python(MAPS, &scratch.in_dir("file"), "/");
    let stopped = Stopped::daemon_of(&stuck_slot);
    keeper.tell();
    assert!(eventually(|| keeper.waits_in_the_kernel()));
    let [keeper_shown, other_shown] =
        [(&keeper, "novale"), (&other, "maps")].map(|(of, name)| format!("{} ({name})", of.0.id()));
    umount(&scratch.dir()).refused(1, &["busy", &keeper_shown, &other_shown]);
    umount(&empty.dir()).refused(1, &["is not a Novale mount"]);
    // It did so all the time.
    assert!(keeper.waits_in_the_kernel());
    drop(stopped);
    drop((keeper, other));
    for dir in [scratch.dir(), stuck.dir()] {
        novale(&["umount", &dir]).ok();
    }
}

/// A look at the file that a process runs asked the daemon of its mount.
#[test]
fn one_whose_file_is_in_a_mount_that_does_not_answer() {
    let Some(stuck) = Scratch::for_mount("one_whose_file_is_in_a_mount") else { return };
    let _alone = alone();
    let (slot, empty, called) = (stuck.pool(), Scratch::new(), stuck.in_dir("novale"));
    novale(&["mount", "-o", "direct", &slot, &stuck.dir()]).ok();
    // Not by this process, which others that it starts would have the copy open from.
    let mut copy = Command::new("sh");
    copy.args(["-c", "cp \"$(command -v cat)\" \"$0\""]).arg(&called);
    assert!(copy.status().unwrap().success());
    let cat = Command::new(&called).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut cat = Killed(cat.unwrap());
    cat.tell();
    cat.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let stopped = Stopped::daemon_of(&slot);
    umount(&empty.dir()).refused(1, &["is not a Novale mount"]);
    drop(stopped);
    drop(cat);
    novale(&["umount", &stuck.dir()]).ok();
}
