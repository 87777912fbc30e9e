//! Promise: a mount that can't be served is not there, and one that can't be taken away stays as it is.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Outcome, Scratch, arenas, eventually, facts, novale, program};

/// A limit of processes and threads; it is taken away when it is dropped.
struct TaskLimit(PathBuf);

impl TaskLimit {
    /// One for nobody yet, or nothing where this machine has no cgroups for it.
    fn new() -> Option<Self> {
        let name = format!("novale-test-{}", std::process::id());
        ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].into_iter().find_map(|parent| {
            let group = Path::new(parent).join(&name);
            fs::create_dir(&group).ok()?;
            let this = Self(group);
            this.0.join("pids.max").exists().then_some(this)
        })
    }

    /// Mounts with no more than so many processes and threads, the command itself among them.
    fn mount(&self, tasks: u32, arguments: &str) -> Outcome {
        fs::write(self.0.join("pids.max"), tasks.to_string()).unwrap();
        let (group, program) = (self.0.display(), program());
        let script = format!(
            "echo $$ > {group}/cgroup.procs && exec '{}' mount -q {arguments}",
            program.display()
        );
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script]).env("RAYON_NUM_THREADS", "1");
        Outcome::of(&shell.output().unwrap())
    }
}

impl Drop for TaskLimit {
    fn drop(&mut self) {
        // Those in it may be about to end.
        assert!(eventually(|| fs::remove_dir(&self.0).is_ok()) || std::thread::panicking());
    }
}

/// The daemon said that the mount can be used, and ended as one of its threads could not be started; or it left the
/// pool's arena behind.
#[test]
fn a_mount_whose_threads_cannot_be_started_is_refused() {
    let Some(scratch) = Scratch::for_mount("a_mount_whose_threads_cannot_be_started") else {
        return;
    };
    let Some(limit) = TaskLimit::new() else {
        println!("skipped: a_mount_whose_threads_cannot_be_started: no limit of tasks");
        return;
    };
    let slot = scratch.pool();
    // One of those before it serves, one of those that serve, and one of those behind them is too many.
    for (tasks, how) in
        [(3, ""), (3, "--direct"), (4, "--direct"), (20, ""), (37, "--direct"), (37, ""), (38, "")]
    {
        let words = format!("{how} --threads 32 {slot} {}", scratch.dir());
        let refused = limit.mount(tasks, &words);
        refused.refused(1, &["a thread could not be started", "pids.max"]);
        assert!(!scratch.is_mounted());
        assert!(facts(&slot)["clean"] == true && arenas(&slot).is_empty());
    }
    limit.mount(64, &format!("--threads 4 {slot} {}", scratch.dir())).ok();
    assert!(scratch.is_mounted());
    novale(&["umount", &scratch.dir()]).ok();
}

/// umount(2) says of a process' own root that it is done, and makes it read-only for all who have it.
#[test]
fn a_mount_that_is_the_own_root_is_not_unmounted_and_stays_writable() {
    let Some(scratch) = Scratch::for_mount("a_mount_that_is_the_own_root") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let folder = program().parent().unwrap().display().to_string();
    let script = format!(
        "cd '{}' || exit 9
         for each in usr bin lib lib64 proc program; do mkdir $each; done
         for each in usr bin lib lib64 proc; do test ! -d /$each || mount --rbind /$each $each || exit 9; done
         mount --bind '{folder}' program && exec chroot . /program/novale umount /",
        scratch.dir()
    );
    let mut inside = Command::new("unshare");
    inside.args(["-m", "--propagation", "private", "/bin/sh", "-c", &script]);
    Outcome::of(&inside.output().unwrap()).refused(1, &["root directory", "from outside"]);
    fs::write(scratch.in_dir("after"), b"still writable").unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    assert!(!scratch.is_mounted());
}

/// What was said to be full was the arena, with a limit that it was far from.
#[test]
fn a_mount_without_room_for_its_memory_names_what_is_full() {
    let Some(scratch) = Scratch::for_mount("a_mount_without_room_for_its_memory") else { return };
    // Beside the mount point: other pools lie in what is hidden.
    let pool = Path::new(&scratch.dir()).with_file_name("pool").display().to_string();
    novale(&["mkfs", "--size", "64M", &pool]).ok();
    let script = "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"";
    for how in ["--direct", "--quiet"] {
        let mut inside = Command::new("unshare");
        inside.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]).arg(program());
        let refused = inside.args(["mount", how, &pool, &scratch.dir()]).output().unwrap();
        Outcome::of(&refused).refused(1, &["/dev/shm is full", "remount,size="]);
    }
    assert!(!scratch.is_mounted());
}
