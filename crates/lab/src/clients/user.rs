//! Workers that know of nothing but files: a program that was built without Novale, in a mount that
//! the kernel serves, or under `novale run`, where the same calls are served in its own process.
//!
//! Such a worker gives files a new content one after the other, each by a temporary file that takes
//! the old one's name, writes over the same bytes of another one, over the end of a page, and adds a line
//! to a third one: so a look at the files tells which of its steps are done, and whether each is
//! whole. Between them it makes and removes what nobody looks for, and keeps removed files open. A
//! thread of its own works in the directory that all share, and lists.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use novale_core::{Ctx, Error, Fs, Ino, Node};
use rustix::process::{Signal, getpgrp, kill_process_group};

use super::field::{Count, Field};
use super::worker::{SHARED, SHARED_NAMES, WorkerArgs};
use crate::diff::now_ns_at;

/// Files of a worker.
const FILES: u64 = 8;
/// Bytes of a file at most.
const BYTES_MAX: u64 = 40_000;
/// The file that is written over, where, and how many words.
const OVER: &str = "over";
const OVER_FROM: u64 = 2504;
const OVER_WORDS: usize = 375;
/// The file that lines are added to, and bytes of a line.
const LINES: &str = "lines";
const LINE_BYTES: usize = 16;
/// One line in so many is written by another program, which has inherited the file.
const PROGRAM_ONE_IN: u64 = 48;
/// Removed files that are kept open.
const REMOVED_MAX: usize = 3;
/// Time between two points at which such a worker may kill itself.
const POINT: Duration = Duration::from_micros(7);

/// Works on files until all is done, or the folder says stop.
///
/// # Errors
/// What was refused, or found as it should not be.
pub(super) fn work_on_files(args: &WorkerArgs) -> Result<(), String> {
    let home = Field::at(&args.folder).mount().join(&args.name);
    let ended = AtomicBool::new(false);
    let mut worker = FileWorker::new(args, &home).map_err(|why| format!("to begin: {why}"))?;
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| work_beside(args, &home, &ended));
        if args.die_at > 0 {
            let time = POINT.saturating_mul(u32::try_from(args.die_at).unwrap_or(u32::MAX));
            let ended = &ended;
            scope.spawn(move || die_behind(time, ended));
        }
        let done = worker.work(args, &ended);
        ended.store(true, Ordering::Relaxed);
        let beside = beside.join().map_err(|_| "a thread panicked".to_owned())?;
        done.and(beside)
    })
}

/// Kills this process, and what it has started, after some time.
fn die_behind(time: Duration, ended: &AtomicBool) {
    let start = std::time::Instant::now();
    while start.elapsed() < time {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        std::thread::park_timeout(time.min(Duration::from_millis(1)));
    }
    let _killed = kill_process_group(getpgrp(), Signal::KILL);
}

struct FileWorker<'w> {
    home: &'w Path,
    count: Count,
    over: File,
    lines: File,
    removed: Vec<(u64, File)>,
}

impl<'w> FileWorker<'w> {
    fn new(args: &WorkerArgs, home: &'w Path) -> io::Result<Self> {
        let count = Count::open(&args.folder.join(&args.name))?;
        // The kernel treats writing descriptors that read too in a way of their own.
        let reads = args.seed.is_multiple_of(2);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).read(reads);
        let over = options.open(home.join(OVER))?;
        let lines = OpenOptions::new().append(true).create(true).open(home.join(LINES))?;
        Ok(Self { home, count, over, lines, removed: Vec::new() })
    }

    fn work(&mut self, args: &WorkerArgs, ended: &AtomicBool) -> Result<(), String> {
        let stop = Field::at(&args.folder).stop();
        for index in 1..=args.operations {
            if index % 16 == 0 && stop.exists() || ended.load(Ordering::Relaxed) {
                break;
            }
            self.aside(args.seed, index).map_err(|why| format!("before step {index}: {why}"))?;
            self.step(args.seed, index).map_err(|why| format!("step {index}: {why}"))?;
        }
        Ok(())
    }

    fn step(&mut self, seed: u64, index: u64) -> io::Result<()> {
        self.count.begin(index)?;
        let fresh = self.home.join("fresh");
        let bytes = content(seed, index);
        let mut file = File::create(&fresh)?;
        if index.is_multiple_of(3) {
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            file.write_all_at(tail, head.len() as u64)?;
            file.write_all_at(head, 0)?;
        } else {
            file.write_all(&bytes)?;
        }
        drop(file);
        fs::rename(fresh, self.home.join(file_name(index)))?;
        self.over.write_all_at(&index.to_le_bytes().repeat(OVER_WORDS), OVER_FROM)?;
        self.add_line(index)?;
        self.count.done(index)
    }

    fn add_line(&mut self, index: u64) -> io::Result<()> {
        if !index.is_multiple_of(PROGRAM_ONE_IN) {
            return self.lines.write_all(&line(index));
        }
        // The shell forks for it, and its child writes by what both have inherited.
        let status = Command::new("sh")
            .args(["-c", "printf '%15s\n' $0 | cat", &index.to_string()])
            .stdin(Stdio::null())
            .stdout(self.lines.try_clone()?)
            .status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    }

    /// Makes and removes what nobody looks for after a death.
    fn aside(&mut self, seed: u64, index: u64) -> io::Result<()> {
        let home = self.home;
        if index.is_multiple_of(4) {
            let gone = home.join("gone");
            let mut file = File::options().read(true).write(true).create_new(true).open(&gone)?;
            fs::remove_file(&gone)?;
            file.write_all(&content(seed, index))?;
            self.removed.push((index, file));
        }
        if self.removed.len() > REMOVED_MAX {
            let (at, mut file) = self.removed.remove(0);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut bytes)?;
            if bytes != content(seed, at) {
                return Err(io::Error::other(format!("a removed file of step {at} has changed")));
            }
        }
        if index.is_multiple_of(5) {
            let directory = home.join("d");
            let [x, y, z] = ["x", "y", "z"].map(|name| directory.join(name));
            fs::create_dir(&directory)?;
            fs::write(&x, b"x")?;
            fs::rename(&x, &y)?;
            fs::hard_link(&y, &z)?;
            symlink("y", &x)?;
            let through = fs::read(&x)?;
            fs::remove_dir_all(&directory)?;
            if through != b"x" {
                return Err(io::Error::other("other bytes through a link"));
            }
        }
        Ok(())
    }
}

fn line(index: u64) -> Vec<u8> {
    format!("{index:>15}\n").into_bytes()
}

/// Works in the directory that all share, and lists the worker's own, while the worker works.
fn work_beside(args: &WorkerArgs, home: &Path, ended: &AtomicBool) -> Result<(), String> {
    let shared = Field::at(&args.folder).mount().join(String::from_utf8_lossy(SHARED).as_ref());
    let mut random = Rng::with_seed(args.seed);
    while !ended.load(Ordering::Relaxed) {
        let done = work_shared(&shared, &mut random)
            .and_then(|()| if random.u32(0..8) == 0 { list(home) } else { Ok(()) });
        if let Err(why) = done {
            ended.store(true, Ordering::Relaxed);
            return Err(why);
        }
    }
    Ok(())
}

/// What stays there while a directory is listed is listed once.
fn list(home: &Path) -> Result<(), String> {
    let text = |why: io::Error| format!("listing: {why}");
    let mut kept = 0;
    for entry in fs::read_dir(home).map_err(text)? {
        let name = entry.map_err(text)?.file_name();
        kept += u32::from(name == OVER || name == LINES);
    }
    if kept == 2 { Ok(()) } else { Err(format!("of two files that stay {kept} are listed")) }
}

/// Any operation on any name of the shared directory; it may be refused for what others do there.
fn work_shared(shared: &Path, random: &mut Rng) -> Result<(), String> {
    let mut name = || shared.join(format!("n{}", random.u32(0..SHARED_NAMES)));
    let (name, other) = (name(), name());
    let (what, done) = match random.u32(0..8) {
        0 => ("mkdir", fs::create_dir(&name)),
        1 => ("unlink", fs::remove_file(&name)),
        2 => ("rmdir", fs::remove_dir(&name)),
        3 => ("rename", fs::rename(&name, &other)),
        4 => ("link", fs::hard_link(&name, &other)),
        5 => ("stat", fs::metadata(&name).map(drop)),
        _ => ("write", write_shared(&name, random)),
    };
    match done {
        Err(why) if !is_explained(what, why.kind()) => {
            Err(format!("{what} {} ({}): {why}", name.display(), other.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_shared(name: &Path, random: &mut Rng) -> io::Result<()> {
    let bytes = vec![1; random.usize(1..30_000)];
    let mut options = File::options();
    let mut file = options.create(random.bool()).append(true).read(true).open(name)?;
    let told = |what: &str, why: io::Error| io::Error::new(why.kind(), format!("{what}: {why}"));
    file.write_all(&bytes).map_err(|why| told("appending", why))?;
    let from = SeekFrom::Start(random.u64(0..20_000));
    file.seek(from).map_err(|why| told("seeking", why))?;
    let mut found = [0; 100];
    file.read(&mut found).map(drop).map_err(|why| told("reading", why))
}

/// Whether what the names lead to explains a refusal, which others may change at any time.
fn is_explained(what: &str, why: ErrorKind) -> bool {
    use ErrorKind as K;
    match what {
        "mkdir" => why == K::AlreadyExists,
        "unlink" | "write" => matches!(why, K::NotFound | K::IsADirectory),
        "rmdir" => matches!(why, K::NotFound | K::NotADirectory),
        "rename" => matches!(why, K::NotFound | K::NotADirectory | K::IsADirectory),
        "link" => matches!(why, K::NotFound | K::AlreadyExists | K::PermissionDenied),
        _ => why == K::NotFound,
    }
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
pub(super) fn judge_files(
    fs: &Fs,
    name: &str,
    seed: u64,
    (begun, done): (u64, u64),
) -> Result<bool, String> {
    let ctx = Ctx { now_ns: now_ns_at(0), hint: 0 };
    let home = fs.lookup(&ctx, Node::ROOT, name.as_bytes()).map_err(|why| why.to_string())?.ino;
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
    judge_lines(fs, home, (begun, done), first > done).map_err(|why| {
        format!("{name}/{LINES}, seed {seed}: {done} steps done, {begun} begun: {why}")
    })?;
    Ok(found_done)
}

/// Each step that is done has added its line, once.
fn judge_lines(
    fs: &Fs,
    home: Ino,
    (begun, done): (u64, u64),
    over_done: bool,
) -> Result<(), String> {
    let found = read_file(fs, home, LINES)?.unwrap_or_default();
    let lines = (found.len() / LINE_BYTES) as u64;
    let expected: Vec<u8> = (1..=lines).flat_map(line).collect();
    let in_time = lines == done || lines == begun && over_done;
    if found == expected && in_time { Ok(()) } else { Err(format!("{lines} lines are there")) }
}

/// A file's bytes; none where there is no such file.
fn read_file(fs: &Fs, directory: Ino, name: &str) -> Result<Option<Vec<u8>>, String> {
    let ctx = Ctx { now_ns: now_ns_at(0), hint: 0 };
    let attr = match fs.lookup(&ctx, Node::current(directory), name.as_bytes()) {
        Ok(attr) => attr,
        Err(Error::NotFound) => return Ok(None),
        Err(why) => return Err(format!("{name}: {why}")),
    };
    let mut bytes = vec![0; usize::try_from(attr.size).unwrap_or(0)];
    let read = fs.read(&ctx, attr.ino, 0, &mut bytes).map_err(|why| format!("{name}: {why}"))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}
