//! System calls of many threads, in folders of several file systems: on files and directories of a
//! thread's own, and on a file of all.
//!
//! As in `threads` the figure that counts on a busy machine is what an operation takes of a CPU, the
//! kernel's part included. Waiting takes nothing of one: so the waits of all threads (context switches
//! that they asked for) are counted besides.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::Common;
use crate::report::{Cell, Report};
use crate::stats::{cpu_ns, float, median};
use crate::target::new_folder;

/// Bytes of the file of each thread, and of the shared one.
const FILE_BYTES: u64 = 8 << 20;
/// Names made before they are removed, and appends before a file is emptied.
const BATCH: u64 = 500;

/// What all threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Read(usize, Share),
    Overwrite(usize, Share),
    Append(usize),
    Stat,
    OpenClose,
    /// [`BATCH`] names made in a directory of the thread's own, then removed.
    CreateUnlink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Own,
    One,
}

const WORKS: &[(&str, Work)] = &[
    ("read 64 B, one file", Work::Read(64, Share::One)),
    ("read 4 KB, one file", Work::Read(4096, Share::One)),
    ("read 4 KB, own files", Work::Read(4096, Share::Own)),
    ("overwrite 64 B, own files", Work::Overwrite(64, Share::Own)),
    ("overwrite 4 KB, own files", Work::Overwrite(4096, Share::Own)),
    ("overwrite 4 KB, one file", Work::Overwrite(4096, Share::One)),
    ("append 64 B, own files", Work::Append(64)),
    ("append 4 KB, own files", Work::Append(4096)),
    ("stat, one file", Work::Stat),
    ("open and close, one file", Work::OpenClose),
    ("create and unlink, own directories", Work::CreateUnlink),
];

/// A folder of one file system.
struct Side {
    name: String,
    folder: TempDir,
    most: usize,
}

/// What the threads of one round took.
#[derive(Debug, Clone, Copy)]
struct Taken {
    /// Of a CPU, per operation.
    cpu_ns: u64,
    /// Waits per 1,000 operations.
    waits: u64,
}

/// One thread's part.
struct Worker {
    /// Those that are nobody else's: of one size together, however many the threads are, so that the
    /// caches serve as much of them.
    own: Vec<File>,
    one: File,
    appended: File,
    dir: PathBuf,
    shared: PathBuf,
    random: fastrand::Rng,
    buffer: Vec<u8>,
}

/// Measures all works in all folders, with one thread and with as many as asked for.
pub(crate) fn run(common: &Common, dirs: &[PathBuf]) -> Result<Report> {
    let most = common.threads()?;
    let sides: Result<Vec<Side>> = dirs.iter().map(|dir| Side::new(dir, most)).collect();
    let sides = sides?;
    let works: Vec<_> = WORKS.iter().filter(|(name, _)| common.wants(name)).collect();
    let mut results = vec![vec![[const { Vec::new() }; 2]; sides.len()]; works.len()];
    for _ in 0..common.rounds {
        for ((_, work), row) in works.iter().zip(&mut results) {
            for (side, [alone, together]) in sides.iter().zip(row) {
                alone.push(side.measure(*work, 1, common.ops)?);
                together.push(side.measure(*work, most, common.ops)?);
            }
        }
    }
    let rows = works.iter().zip(&results).map(|((name, _), row)| cells(name, row, most));
    let of_side = |side: &Side| {
        ["1: CPU ns", "1: spread", "all: CPU ns", "all: spread", "times one, by CPU", "waits"]
            .map(|what| format!("{}: {what}", side.name))
    };
    Ok(Report {
        name: "calls",
        title: format!("ns of a CPU of system calls, one thread and {most}; waits in 1,000 calls"),
        setup: vec![
            ("rounds", format!("{}, interleaved", common.rounds)),
            ("calls", format!("{} a thread and round", common.ops)),
        ],
        columns: std::iter::once("work".to_owned()).chain(sides.iter().flat_map(of_side)).collect(),
        rows: rows.collect(),
    })
}

fn cells(name: &str, row: &[[Vec<Taken>; 2]], threads: usize) -> Vec<Cell> {
    let mut cells = vec![Cell::from(name)];
    for [alone, together] in row {
        let cpu = |rounds: &[Taken]| median(rounds.iter().map(|taken| taken.cpu_ns));
        for rounds in [alone, together] {
            let all = || rounds.iter().map(|taken| taken.cpu_ns);
            cells.push(Cell::Count(cpu(rounds)));
            cells.push(Cell::Spread(all().min().unwrap_or(0), all().max().unwrap_or(0)));
        }
        let times = float(threads as u64) * float(cpu(alone)) / float(cpu(together).max(1));
        cells.push(Cell::Ratio(times));
        cells.push(Cell::Count(median(together.iter().map(|taken| taken.waits))));
    }
    cells
}

impl Side {
    fn new(dir: &Path, threads: usize) -> Result<Self> {
        let folder = new_folder(dir)?;
        let data = vec![0x5a; 1 << 20];
        for index in 0..=threads {
            let file = File::create_new(folder.path().join(format!("file {index}")))?;
            for at in (0..FILE_BYTES).step_by(data.len()) {
                file.write_all_at(&data, at)?;
            }
            std::fs::create_dir(folder.path().join(format!("dir {index}")))?;
        }
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, folder, most: threads })
    }

    fn worker(&self, index: usize, threads: usize) -> Result<Worker> {
        let path = |name: &str, index: usize| self.folder.path().join(format!("{name} {index}"));
        let open = |index| OpenOptions::new().read(true).write(true).open(path("file", index));
        let shared = path("file", self.most);
        let own: Result<Vec<_>, _> = (index..self.most).step_by(threads).map(open).collect();
        let appended = OpenOptions::new().append(true).create(true).open(path("end", index))?;
        Ok(Worker {
            own: own?,
            one: open(self.most)?,
            appended,
            dir: path("dir", index),
            shared,
            random: fastrand::Rng::with_seed(index as u64),
            buffer: vec![0xa5; 4096],
        })
    }

    /// What `threads` threads take for `count` operations each, all at once.
    fn measure(&self, work: Work, threads: usize, count: u64) -> Result<Taken> {
        let start = Barrier::new(threads);
        let taken = std::thread::scope(|scope| {
            let each = |index| {
                let start = &start;
                scope.spawn(move || -> Result<(u64, u64)> {
                    let worker = self.worker(index, threads);
                    start.wait();
                    worker?.run(work, count)
                })
            };
            let threads: Vec<_> = (0..threads).map(each).collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?);
            ended.collect::<Result<Vec<_>>>()
        })?;
        let calls = threads as u64 * count;
        let cpu_ns = taken.iter().map(|(ns, _)| ns).sum::<u64>() / calls;
        let waits = taken.iter().map(|(_, waits)| waits).sum::<u64>() * 1000 / calls;
        Ok(Taken { cpu_ns, waits })
    }
}

impl Worker {
    /// Nanoseconds of a CPU, and waits, of `count` operations.
    fn run(mut self, work: Work, count: u64) -> Result<(u64, u64)> {
        let (begun, waited) = (cpu_ns(), waits()?);
        for turn in 0..count {
            self.step(work, turn)?;
        }
        let taken = (cpu_ns() - begun, waits()?.saturating_sub(waited));
        if work == Work::CreateUnlink {
            // What a batch has left would be in the way of the next.
            for name in std::fs::read_dir(&self.dir)? {
                std::fs::remove_file(name?.path())?;
            }
        }
        Ok(taken)
    }

    fn step(&mut self, work: Work, turn: u64) -> Result<()> {
        match work {
            Work::Read(len, share) => {
                let (at, file) = (self.offset(len), self.random.usize(0..self.own.len()));
                let file = if share == Share::Own { self.own.get(file) } else { Some(&self.one) };
                let file = file.context("no file")?;
                file.read_exact_at(self.buffer.get_mut(..len).unwrap_or_default(), at)?;
            }
            Work::Overwrite(len, share) => {
                let (at, file) = (self.offset(len), self.random.usize(0..self.own.len()));
                let file = if share == Share::Own { self.own.get(file) } else { Some(&self.one) };
                let file = file.context("no file")?;
                file.write_all_at(self.buffer.get(..len).unwrap_or_default(), at)?;
            }
            Work::Append(len) => {
                self.appended.write_all(self.buffer.get(..len).unwrap_or_default())?;
                if turn % BATCH == BATCH - 1 {
                    self.appended.set_len(0)?;
                }
            }
            Work::Stat => {
                std::fs::metadata(&self.shared)?;
            }
            Work::OpenClose => drop(File::open(&self.shared)?),
            Work::CreateUnlink => {
                let name = self.dir.join((turn % BATCH).to_string());
                if (turn / BATCH).is_multiple_of(2) {
                    drop(File::create_new(name)?);
                } else {
                    std::fs::remove_file(name)?;
                }
            }
        }
        Ok(())
    }

    fn offset(&mut self, len: usize) -> u64 {
        self.random.u64(0..FILE_BYTES / len as u64) * len as u64
    }
}

/// Context switches that the calling thread has asked for.
fn waits() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).context("no count of context switches")
}
