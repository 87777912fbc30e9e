//! The program under test, with pools and mount points of the test's own. All of it is taken down
//! when it is dropped, also after a failure.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// What a run of the program came to.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(!err.contains("panicked"), "{err}");
        Self { code: output.status.code().unwrap(), out, err }
    }

    /// The run succeeded; its standard output.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// The run failed with a code and said something that has all these words.
    pub(crate) fn refused(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "'{word}' is missing in: {}", self.err);
        }
    }
}

/// One test at a time: a child that another one starts has, until it runs its program, what is open
/// here, and a mount is busy with it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program under its own name.
pub(crate) fn novale<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Outcome {
    called("novale", arguments)
}

/// The program: cargo names it to the tests of its own package; for others it is beside them.
pub(crate) fn program() -> PathBuf {
    let named = option_env!("CARGO_BIN_EXE_novale").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("novale"));
    let program = named.or_else(beside).unwrap();
    assert!(program.exists(), "{} is not built: cargo build -p novale-cli", program.display());
    program
}

/// Runs the program under another name.
pub(crate) fn called<A: AsRef<std::ffi::OsStr>>(name: &str, arguments: &[A]) -> Outcome {
    let mut command = Command::new(program());
    command.arg0(name).args(arguments).stdin(Stdio::null());
    Outcome::of(&command.output().unwrap())
}

/// A folder for pools and one for mount points.
pub(crate) struct Scratch {
    pools: TempDir,
    mounts: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let pools = tempfile::Builder::new().prefix("novale-cli-test.").tempdir_in(memory);
        let pools = pools.unwrap_or_else(|_| TempDir::new().unwrap());
        let mounts = TempDir::new().unwrap();
        fs::create_dir(mounts.path().join("dir")).unwrap();
        Self { pools, mounts }
    }

    /// One for a test that mounts, or nothing where that can't be done.
    pub(crate) fn for_mount(test: &str) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        if !rustix::process::geteuid().is_root() {
            println!("skipped: {test}: not root");
        } else if let Err(error) = device {
            println!("skipped: {test}: /dev/fuse: {error}");
        } else {
            return Some(Self::new());
        }
        None
    }

    pub(crate) fn slot(&self, name: &str) -> String {
        self.pools.path().join(name).to_str().unwrap().to_owned()
    }

    /// The mount point.
    pub(crate) fn dir(&self) -> String {
        self.mounts.path().join("dir").to_str().unwrap().to_owned()
    }

    pub(crate) fn in_dir(&self, name: &str) -> PathBuf {
        self.mounts.path().join("dir").join(name)
    }

    /// A pool of one slot of 64 MB.
    pub(crate) fn pool(&self) -> String {
        let slot = self.slot("pool");
        novale(&["mkfs", "--size", "64M", &slot]).ok();
        slot
    }

    /// Whether anything is mounted on the mount point.
    pub(crate) fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.lines().any(|line| line.split(' ').nth(1) == Some(&self.dir()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for _ in 0..4 {
            if self.is_mounted() {
                let ended = called("novale", &["umount", "--force", &self.dir()]);
                print!("{}{}", ended.out, ended.err);
            }
        }
        for slot in fs::read_dir(self.pools.path()).into_iter().flatten().flatten() {
            let slot = slot.path();
            let info = called("novale", &["info", "--json", slot.to_str().unwrap_or_default()]);
            let facts: serde_json::Value = serde_json::from_str(&info.out).unwrap_or_default();
            for arena in facts["uuid"].as_str().map(arenas_of).unwrap_or_default() {
                fs::remove_file(arena).unwrap_or_default();
            }
        }
    }
}

/// A daemon of its own, for a pool that others may serve too: in the foreground, where no other one's mount is
/// shown instead.
pub(crate) struct Daemon {
    child: Child,
    dir: String,
}

impl Daemon {
    /// Returns when it has mounted the pool.
    pub(crate) fn start(words: &str, slots: &[&str], dir: &str) -> Self {
        let mut command = Command::new(program());
        command.args(["mount", "--foreground", "-o", words]).args(slots).arg(dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut this = Self { child: command.spawn().unwrap(), dir: dir.to_owned() };
        let mut line = String::new();
        BufReader::new(this.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line}{}", this.said());
        this
    }

    /// Unmounts; what it has said until its end.
    pub(crate) fn umount(mut self) -> String {
        // A command of another test may be looking at it at this moment.
        assert!(eventually(|| novale(&["umount", &self.dir]).code == 0), "{}", self.dir);
        self.said()
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            novale(&["umount", "--force", &self.dir]);
            self.child.kill().unwrap_or_default();
            self.child.wait().map(drop).unwrap_or_default();
        }
    }
}

/// What `info --json` says of a pool of one slot.
pub(crate) fn facts(slot: &str) -> serde_json::Value {
    serde_json::from_str(&novale(&["info", "--json", slot]).ok()).unwrap()
}

/// The arena files of a pool of one slot.
pub(crate) fn arenas(slot: &str) -> Vec<PathBuf> {
    arenas_of(facts(slot)["uuid"].as_str().unwrap())
}

/// The arena files of a pool.
pub(crate) fn arenas_of(uuid: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let prefix = format!("novale-{uuid}-");
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

/// Shell words that take all of Novale's mounts but one out of a mount namespace that was copied from
/// here: other tests wait until nobody has theirs.
pub(crate) fn without_mounts(but: &str) -> String {
    format!(
        "awk '$3 == \"fuse.novale\" && $2 != \"{but}\" {{ print $2 }}' /proc/self/mounts | \
         while read -r other; do umount -l \"$other\"; done"
    )
}

/// Sends a signal to the daemon of a pool and returns its process number.
pub(crate) fn signal_daemon(slot: &str, signal: Signal) -> u64 {
    let pid = facts(slot)["used_by"].as_u64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
    pid
}

/// A daemon that does nothing until this is dropped: by a failed test too, since it could not be
/// unmounted then.
pub(crate) struct Stopped(pub(crate) u64);

impl Stopped {
    /// Returns when all its threads are stopped.
    pub(crate) fn daemon_of(slot: &str) -> Self {
        let stopped = Self(signal_daemon(slot, Signal::STOP));
        assert!(eventually(|| is_stopped(stopped.0)));
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), Signal::CONT).unwrap_or_default();
    }
}

/// Whether a process has ended, or does so soon.
pub(crate) fn ends(pid: u64) -> bool {
    eventually(|| !fs::exists(format!("/proc/{pid}")).unwrap())
}

/// Whether all threads of a process are stopped.
pub(crate) fn is_stopped(pid: u64) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads
        .map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).unwrap())
        .all(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')))
}

/// Waits for a condition that another process brings about; false when it does not within a minute.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Overwrites bytes of a file.
pub(crate) fn patch(path: &str, at: SeekFrom, bytes: &[u8]) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(at).unwrap();
    file.write_all(bytes).unwrap();
}

/// The first bytes of a file.
pub(crate) fn head(path: &str) -> Vec<u8> {
    let mut head = vec![0; 8192];
    File::open(path).unwrap().read_exact(&mut head).unwrap();
    head
}
