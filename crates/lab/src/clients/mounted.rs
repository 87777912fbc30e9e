//! The mount as a client among others: its daemon, which opens the pool and may be killed, and workers
//! that know of nothing but the mount.
//!
//! Such a worker gives files a new content one after the other, each by a temporary file that takes
//! the old one's name, and writes over the same bytes of another one, over the end of a page: so a
//! look at the files tells which of its steps are done, and whether each is whole.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use novale_core::{Ctx, Error, Fs, Ino};
use novale_pm::PmOptions;
use rustix::mount::{UnmountFlags, unmount};

use super::child::said;
use super::field::{Count, Field, identity};
use super::worker::WorkerArgs;
use crate::diff::now_ns_at;

/// Files of a worker.
const FILES: u64 = 8;
/// Bytes of a file at most.
const BYTES_MAX: u64 = 40_000;
/// The file that is written over, where, and how many words.
const OVER: &str = "over";
const OVER_FROM: u64 = 2504;
const OVER_WORDS: usize = 375;

/// A daemon that serves the field's pool; gone, with all it made, when this goes.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    novale: PathBuf,
    mount: PathBuf,
    arena: PathBuf,
    /// What it writes down of its mount, which stays behind a kill.
    record: PathBuf,
}

impl Daemon {
    /// Makes a pool and mounts it below the field's folder.
    pub(super) fn start(novale: &Path, field: &Field) -> Result<Self, String> {
        field.clear()?;
        let slot = field.slot();
        let made = Command::new(novale).args(["mkfs", "--size", "512M"]).arg(&slot).output();
        let made = made.map_err(|why| format!("{}: {why}", novale.display()))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let mount = field.mount();
        std::fs::create_dir_all(&mount).map_err(|why| why.to_string())?;
        let mut child = Command::new(novale)
            .args(["mount", "--foreground", "-o", "direct"])
            .args([&slot, &mount])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("{}: {why}", novale.display()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // It says a line once the mount can be used, or ends.
            let _read = BufReader::new(stdout).read_line(&mut line);
        }
        let mut this = Self {
            child,
            novale: novale.to_owned(),
            mount,
            arena: PathBuf::new(),
            record: PathBuf::new(),
        };
        if line.is_empty() {
            return Err(format!("no mount: {}", this.said()));
        }
        this.arena = find_arena(field)?;
        let device = rustix::fs::stat(&this.mount).map_err(|why| why.to_string())?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        this.record = PathBuf::from(format!("/dev/shm/novale-mount-{major}.{minor}"));
        symlink(&this.arena, field.arena_name()).map_err(|why| why.to_string())?;
        Ok(this)
    }

    /// Kills it, in whatever it does, and takes the dead mount away.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|why| why.to_string())?;
        self.child.wait().map_err(|why| why.to_string())?;
        // Before the device's number is another mount's.
        let _removed = std::fs::remove_file(&self.record);
        unmount(&self.mount, UnmountFlags::DETACH).map_err(|why| why.to_string())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Unmounts as a user does; it is the last client, so it closes the pool.
    pub(super) fn unmount(&mut self) -> Result<(), String> {
        let ended = Command::new(&self.novale).arg("umount").arg(&self.mount).output();
        let ended = ended.map_err(|why| why.to_string())?;
        if !ended.status.success() {
            return Err(format!("umount: {}", String::from_utf8_lossy(&ended.stderr)));
        }
        let status = self.child.wait().map_err(|why| why.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the daemon: {status}, {}", self.said()))
        }
    }

    fn said(&mut self) -> String {
        let _ended = self.child.kill();
        said(&mut self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.is_alive() {
            let _killed = self.child.kill();
            let _waited = self.child.wait();
            let _removed = std::fs::remove_file(&self.record);
        }
        let _detached = unmount(&self.mount, UnmountFlags::DETACH);
        let _removed = std::fs::remove_file(&self.arena);
    }
}

/// The arena that the daemon made for the field's pool.
fn find_arena(field: &Field) -> Result<PathBuf, String> {
    let pm = field.pm(&PmOptions { read_only: true, ..PmOptions::default() })?;
    let mut uuid = identity(&pm)?.pool_uuid;
    uuid.reverse();
    let hex = format!("{:032x}", u128::from_le_bytes(uuid));
    let folder = std::fs::read_dir("/dev/shm").map_err(|why| why.to_string())?;
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "");
        name.starts_with(&format!("novale{hex}"))
    };
    let found = folder.filter_map(|entry| Some(entry.ok()?.path())).find(is_it);
    found.ok_or_else(|| "the daemon has no arena".to_owned())
}

/// Works through the mount until all is done, or the folder says stop.
///
/// # Errors
/// What the mount refused.
pub(super) fn work_mounted(args: &WorkerArgs) -> Result<(), String> {
    let field = Field::at(&args.folder);
    let count = Count::open(&args.folder.join(&args.name)).map_err(|why| why.to_string())?;
    let home = field.mount().join(&args.name);
    // The kernel treats writing descriptors that read too in a way of their own.
    let mut options = File::options();
    options.write(true).create(true).truncate(false).read(args.seed.is_multiple_of(2));
    let over = options.open(home.join(OVER)).map_err(|why| why.to_string())?;
    for index in 1..=args.operations {
        if index % 16 == 0 && field.stop().exists() {
            break;
        }
        let step = || {
            count.begin(index)?;
            let fresh = home.join("fresh");
            let mut file = File::create(&fresh)?;
            file.write_all(&content(args.seed, index))?;
            drop(file);
            std::fs::rename(fresh, home.join(file_name(index)))?;
            over.write_all_at(&index.to_le_bytes().repeat(OVER_WORDS), OVER_FROM)?;
            count.done(index)
        };
        step().map_err(|why: std::io::Error| format!("step {index}: {why}"))?;
    }
    Ok(())
}

fn file_name(index: u64) -> String {
    format!("f{}", index % FILES)
}

/// What a step writes: no two have the same.
fn content(seed: u64, index: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ index.rotate_left(32));
    let words = random.u64(1..BYTES_MAX / 8);
    (0..words).flat_map(|_| index.to_le_bytes()).collect()
}

/// Compares a worker's files with what it did; says whether the step in flight was found done.
pub(super) fn judge_mounted(
    fs: &Fs,
    name: &str,
    seed: u64,
    (begun, done): (u64, u64),
) -> Result<bool, String> {
    let ctx = Ctx { now_ns: now_ns_at(0), hint: 0 };
    let home = fs.lookup(&ctx, Ino::ROOT, name.as_bytes()).map_err(|why| why.to_string())?.ino;
    let mut found_done = false;
    for file in 0..FILES {
        let last = (1..=done).rev().take(8).find(|index| index % FILES == file);
        let in_flight = (begun > done && begun % FILES == file).then_some(begun);
        let found =
            read_file(fs, home, &file_name(file)).map_err(|why| format!("{name}: {why}"))?;
        let is = |index: Option<u64>| found == index.map(|index| content(seed, index));
        if in_flight.is_some() && is(in_flight) {
            found_done = true;
        } else if !is(last) {
            let start = found.as_deref().and_then(|bytes| bytes.first_chunk()).copied();
            let shown = start.map(u64::from_le_bytes);
            return Err(format!(
                "{name}/{}, seed {seed}: {done} steps done, {begun} begun, but it is of step \
                 {shown:?}, {} bytes",
                file_name(file),
                found.as_ref().map_or(0, Vec::len)
            ));
        }
    }
    let over = read_file(fs, home, OVER).map_err(|why| format!("{name}: {why}"))?;
    let over = over.unwrap_or_default();
    let at = usize::try_from(OVER_FROM).unwrap_or(0);
    let (words, rest) = over.get(at..).unwrap_or_default().as_chunks();
    let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
    let is_whole = rest.is_empty()
        && words.len() == if first == 0 { 0 } else { OVER_WORDS }
        && words.iter().all(|word| u64::from_le_bytes(*word) == first);
    if !is_whole || (first != done && first != begun) || (first > done && !found_done) {
        return Err(format!(
            "{name}/{OVER}, seed {seed}: {done} steps done, {begun} begun, but it is of step {first}, \
             {} bytes, whole: {is_whole}",
            over.len()
        ));
    }
    Ok(found_done)
}

/// A file's bytes; none where there is no such file.
fn read_file(fs: &Fs, directory: Ino, name: &str) -> Result<Option<Vec<u8>>, String> {
    let ctx = Ctx { now_ns: now_ns_at(0), hint: 0 };
    let attr = match fs.lookup(&ctx, directory, name.as_bytes()) {
        Ok(attr) => attr,
        Err(Error::NotFound) => return Ok(None),
        Err(why) => return Err(format!("{name}: {why}")),
    };
    let mut bytes = vec![0; usize::try_from(attr.size).unwrap_or(0)];
    let read = fs.read(&ctx, attr.ino, 0, &mut bytes).map_err(|why| format!("{name}: {why}"))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}
