//! A Novale mount of the test's own, taken away when it is dropped, also after a failure.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use novale_arena::Arena;
use novale_core::{Fs, MkfsOptions, OpenOptions, Serial, mkfs};
use novale_fuse::{
    Atime, FuserTransport, MountOptions, Novale, Server, ServerConfig, Settings, ShutDown,
};
use novale_pm::{Pm, PmOptions};
use tempfile::TempDir;

/// The user and group that stand for "not root".
pub(crate) const NOBODY: u32 = 65534;

pub(crate) struct Mount {
    pub(crate) fs: Arc<Fs>,
    server: Option<Server>,
    directory: TempDir,
}

impl Mount {
    /// Mounts an empty file system with the given options, or says why that can't be done here.
    pub(crate) fn new(test: &str, words: &str) -> Option<Self> {
        Self::with_threads(test, words, 4)
    }

    /// The same, served by so many threads.
    pub(crate) fn with_threads(test: &str, words: &str, threads: usize) -> Option<Self> {
        if let Some(why) = unable() {
            println!("skipped: {test}: {why}");
            return None;
        }
        let options = MountOptions::parse(words).unwrap();
        let fs = Arc::new(file_system(options.atime.unwrap_or_default()));
        let settings = Settings { atime: options.atime.unwrap_or_default(), ..Settings::default() };
        let service = Arc::new(Novale::new(fs.clone(), settings));
        let directory = TempDir::new().unwrap();
        let config = ServerConfig {
            source: "/slots/a b:/slots/c".into(),
            target: directory.path().to_owned(),
            options,
        };
        let transport = FuserTransport { threads, acl: true };
        let server = Server::start(service, &transport, &config, || ()).unwrap();
        Some(Self { fs, server: Some(server), directory })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Ends the mount and says how it went.
    pub(crate) fn end(mut self, grace: Duration) -> ShutDown {
        self.server.take().unwrap().shut_down(grace).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(server) = self.server.take()
            && let Err(error) = server.shut_down(Duration::from_secs(1))
        {
            println!("the mount did not end well: {error}");
        }
    }
}

/// An empty file system in private memory.
pub(crate) fn file_system(atime: Atime) -> Fs {
    let pm = Pm::anonymous(&[256 << 20], &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
    let arena = Arena::anonymous(256 << 20).unwrap();
    let atime = match atime {
        Atime::Relative => novale_core::Atime::Relatime,
        Atime::Never => novale_core::Atime::Noatime,
        Atime::Always => novale_core::Atime::Strict,
    };
    let open = OpenOptions { atime, ..OpenOptions::default() };
    Fs::open(pm, arena, &open, &Serial, &|_| ()).unwrap()
}

pub(crate) fn unable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting without fusermount3 needs root".to_owned());
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.err().map(|error| format!("/dev/fuse: {error}"))
}

/// Waits for a condition that comes about in other threads; false when it does not within a minute.
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

/// Runs a shell script as nobody, in a directory.
pub(crate) fn as_nobody(directory: &Path, script: &str) -> bool {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(script).current_dir(directory).uid(NOBODY).gid(NOBODY);
    shell.status().unwrap().success()
}

/// Runs a Python script with arguments, or says that there is no Python.
pub(crate) fn python(test: &str, script: &str, arguments: &[&Path]) -> Option<String> {
    match Command::new("python3").arg("-c").arg(script).args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            println!("skipped: {test}: python3: {error}");
            None
        }
    }
}
