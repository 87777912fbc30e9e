//! How long a pool takes to open (FAST '16, 5.5): closed clean, and after its clients died, for
//! table 4's datasets, each by files of its length written in pieces of its I/O size.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use novale_core::{Ctx, Executor, FileKind, Form, Fs, Ino, Node, OpenOptions, OpenReport, Serial};
use novale_pm::Pm;

use crate::bed::new;
use crate::place::{ARENA_BYTES, EPOCH_NS, MB, open_as, open_sized, options};
use crate::progress::Bar;
use crate::report::{Cell, Report};
use crate::stats::{cpu_ns, float, median};
use crate::{Common, setup};

/// Files of one directory.
const FILES_A_DIR: u64 = 1_000;
const KB: u64 = 1 << 10;

/// What `recovery` takes beside what all do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// MB of each of table 4's datasets: the paper's have 50 GB.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(128..=65_536))]
    pub(crate) dataset_mb: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { dataset_mb: 1_024 }
    }
}

/// What a pool holds: so many files of a length, written in pieces.
#[derive(Debug, Clone)]
struct Dataset {
    name: &'static str,
    files: u64,
    file_bytes: u64,
    piece_bytes: u64,
}

/// The pool of small files, and table 4 scaled by the number of files.
fn datasets(files: u64, dataset_mb: u64) -> Vec<Dataset> {
    let paper = |name, file_bytes, piece_bytes| Dataset {
        name,
        files: dataset_mb * MB / file_bytes,
        file_bytes,
        piece_bytes,
    };
    vec![
        Dataset { name: "small files", files, file_bytes: 4 * KB, piece_bytes: 4 * KB },
        Dataset { name: "empty files", files, file_bytes: 0, piece_bytes: 4 * KB },
        paper("videoserver", 128 * MB, MB),
        paper("fileserver", MB, 64 * KB),
        paper("mailserver", 128 * KB, 16 * KB),
    ]
}

/// Threads made for each pass: recovery takes milliseconds, threads microseconds.
pub(crate) struct Threads(pub(crate) usize);

impl Executor for Threads {
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let take_all = || {
            // Ends: the number only rises.
            while let Some(index) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < tasks)
            {
                task(index);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.0.min(tasks) {
                scope.spawn(take_all);
            }
            take_all();
        });
    }
}

/// Times of one way to open, in us, of all rounds: by the clock, and of this thread on a CPU.
#[derive(Default)]
pub(crate) struct Times {
    wall: Vec<u64>,
    cpu: Vec<u64>,
}

impl Times {
    pub(crate) fn open(
        &mut self,
        pm: Pm,
        options: &OpenOptions,
        exec: &dyn Executor,
    ) -> Result<Fs> {
        let (cpu, begun) = (cpu_ns(), Instant::now());
        let fs = open_as(pm, options, exec, ARENA_BYTES)?;
        self.wall.push(u64::try_from(begun.elapsed().as_micros())?);
        self.cpu.push((cpu_ns() - cpu) / 1_000);
        Ok(fs)
    }

    pub(crate) fn median(&self) -> u64 {
        median(self.wall.iter().copied()).max(1)
    }

    /// What other processes took is left out.
    fn cpu_median(&self) -> u64 {
        median(self.cpu.iter().copied()).max(1)
    }

    pub(crate) fn cells(&self) -> [Cell; 2] {
        let (least, most) = (self.wall.iter().min(), self.wall.iter().max());
        [
            Cell::Count(self.median()),
            Cell::Spread(least.copied().unwrap_or(0), most.copied().unwrap_or(0)),
        ]
    }
}

/// What one dataset's pool took.
struct Found {
    clean: Times,
    serial: Times,
    parallel: Times,
    report: OpenReport,
}

/// Opens a pool of each dataset, clean and not.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Report> {
    let threads = common.threads()?;
    let datasets = datasets(common.files.unwrap_or(20_000), options.dataset_mb);
    let datasets: Vec<_> = datasets.iter().filter(|set| common.wants(set.name)).collect();
    let bar = Bar::new("datasets", datasets.len() as u64);
    let mut rows = Vec::new();
    for dataset in &datasets {
        rows.push(row(dataset, &measure(common, dataset, threads)?));
        bar.step();
    }
    let mut setup = setup(common);
    setup.push(("datasets", format!("{} MB; the paper's have 50 GB", options.dataset_mb)));
    setup.push(("threads", format!("1, and {threads}")));
    let columns = [
        "dataset",
        "files",
        "log entries",
        "clean",
        "spread",
        "unclean, 1 thread",
        "1: spread",
        "all threads",
        "all: spread",
        "1 thread, CPU",
        "GB/s",
        "a million inodes",
        "a million entries",
    ];
    Ok(Report {
        name: "recovery",
        title: "us to open a pool; GB/s and shares of what the unclean one takes of a CPU on one thread".into(),
        setup,
        columns: columns.map(str::to_owned).into(),
        rows,
    })
}

fn row(dataset: &Dataset, found: &Found) -> Vec<Cell> {
    let Found { clean, serial, parallel, report } = found;
    let us = serial.cpu_median();
    let million = |count: u64| Cell::Count(us * 1_000_000 / count.max(1));
    let bytes = dataset.files * dataset.file_bytes;
    let mut cells =
        vec![Cell::from(dataset.name), Cell::Count(dataset.files), Cell::Count(report.log_entries)];
    cells.extend([clean, serial, parallel].into_iter().flat_map(Times::cells));
    cells.extend([
        Cell::Count(us),
        Cell::Ratio(float(bytes) / float(us) / 1_000.0),
        million(report.inodes),
        million(report.log_entries),
    ]);
    cells
}

/// Fills a pool and opens it in each way, round by round.
fn measure(common: &Common, dataset: &Dataset, threads: usize) -> Result<Found> {
    let Dataset { files, file_bytes, .. } = *dataset;
    // A page of log a file at least, and the inodes.
    let bytes = files * (file_bytes + 3 * 4096) + file_bytes / 8 + 256 * MB;
    let (pm, _slot) = common.place().made(bytes, u32::try_from(threads)?)?;
    let mut fs = open_sized(pm, Form::Auto, &Serial, ARENA_BYTES)?;
    fill(&fs, dataset)?;
    let (mut clean, mut serial, mut parallel) =
        (Times::default(), Times::default(), Times::default());
    for _ in 0..common.rounds {
        fs.close()?;
        fs = clean.open(fs.into_pm(), &options(), &Serial)?;
        anyhow::ensure!(fs.opened().clean, "the pool was closed, and is not clean");
        fs = serial.open(fs.into_pm(), &options(), &Serial)?;
        anyhow::ensure!(!fs.opened().clean, "the pool was not closed, and is clean");
        fs = parallel.open(fs.into_pm(), &options(), &Threads(threads))?;
    }
    let report = *fs.opened();
    Ok(Found { clean, serial, parallel, report })
}

fn fill(fs: &Fs, dataset: &Dataset) -> Result<()> {
    let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
    let data = vec![0x5a; usize::try_from(dataset.piece_bytes)?];
    let mut dir = Ino::ROOT;
    for index in 0..dataset.files {
        if index % FILES_A_DIR == 0 {
            let name = format!("dir {index}");
            dir = fs.create(&ctx, Node::ROOT, name.as_bytes(), &new(FileKind::Directory))?.ino;
        }
        let name = format!("file {index}");
        let ino = fs.create(&ctx, Node::current(dir), name.as_bytes(), &new(FileKind::File))?.ino;
        for _ in 0..dataset.file_bytes / dataset.piece_bytes {
            fs.append(&ctx, ino, &data)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// 3 files of 8 pieces: an entry each piece and each name, in one directory more.
    #[test]
    fn a_dataset_has_an_entry_for_each_piece_and_name() {
        let dataset =
            Dataset { name: "mail", files: 3, file_bytes: 128 * KB, piece_bytes: 16 * KB };
        let (pm, _slot) = Place::default().made(64 * MB, 1).unwrap();
        let fs = open_sized(pm, Form::Auto, &Serial, 64 * MB).unwrap();
        fill(&fs, &dataset).unwrap();
        let fs = open_sized(fs.into_pm(), Form::Auto, &Threads(2), 64 * MB).unwrap();
        let OpenReport { inodes, log_entries, .. } = *fs.opened();
        assert_eq!((inodes, log_entries), (5, 3 * 8 + 3 + 1));
    }
}
