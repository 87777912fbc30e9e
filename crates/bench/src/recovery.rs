//! How long a pool takes to open: closed clean, and after its clients died.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use novale_core::{Ctx, Executor, FileKind, Form, Fs, Ino, Serial};
use novale_pm::Pm;

use crate::bed::new;
use crate::place::{EPOCH_NS, MB, open_with};
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::{Common, setup};

/// Files of one directory.
const FILES_A_DIR: u64 = 1_000;
const FILE_BYTES: usize = 4096;

/// Threads made for each pass: recovery takes milliseconds, threads microseconds.
struct Threads(usize);

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
            for _ in 0..self.0.min(tasks) {
                scope.spawn(take_all);
            }
        });
    }
}

/// Times of one way to open, in us, of all rounds.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn open(&mut self, pm: Pm, exec: &dyn Executor) -> Result<Fs> {
        let begun = Instant::now();
        let fs = open_with(pm, Form::Auto, exec)?;
        self.0.push(u64::try_from(begun.elapsed().as_micros())?);
        Ok(fs)
    }

    fn row(&self, name: &str) -> Vec<Cell> {
        let (least, most) = (self.0.iter().min(), self.0.iter().max());
        vec![
            Cell::from(name),
            Cell::Count(median(self.0.iter().copied())),
            Cell::Spread(least.copied().unwrap_or(0), most.copied().unwrap_or(0)),
        ]
    }
}

/// Opens a pool of many files, clean and not.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let threads = common.threads()?;
    let bytes = common.files * 3 * 4096 + 256 * MB;
    let pool = common.place().pool(bytes, u32::try_from(threads)?, Form::Auto)?;
    fill(&pool.fs, common.files)?;
    let (fs, file) = pool.into_parts();
    let (mut clean, mut serial, mut parallel) =
        (Times::default(), Times::default(), Times::default());
    let mut fs = fs;
    for _ in 0..common.rounds {
        fs.close()?;
        fs = clean.open(fs.into_pm(), &Serial)?;
        anyhow::ensure!(fs.opened().clean, "the pool was closed, and is not clean");
        fs = serial.open(fs.into_pm(), &Serial)?;
        anyhow::ensure!(!fs.opened().clean, "the pool was not closed, and is clean");
        fs = parallel.open(fs.into_pm(), &Threads(threads))?;
    }
    let report = *fs.opened();
    drop((fs, file));
    let mut setup = setup(common);
    setup.push((
        "pool",
        format!(
            "{} files of 4 KB, {} inodes and {} pages in use, {} log entries",
            common.files, report.inodes, report.pages_used, report.log_entries
        ),
    ));
    Ok(Report {
        name: "recovery",
        title: "us to open a pool".into(),
        setup,
        columns: ["opening", "us", "spread"].map(str::to_owned).into(),
        rows: vec![
            clean.row("closed clean"),
            serial.row("all clients dead, one thread"),
            parallel.row(&format!("all clients dead, {threads} threads")),
        ],
    })
}

fn fill(fs: &Fs, files: u64) -> Result<()> {
    let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
    let data = [0x5a; FILE_BYTES];
    let mut dir = Ino::ROOT;
    for index in 0..files {
        if index % FILES_A_DIR == 0 {
            let name = format!("dir {index}");
            dir = fs.create(&ctx, Ino::ROOT, name.as_bytes(), &new(FileKind::Directory))?.ino;
        }
        let name = format!("file {index}");
        let ino = fs.create(&ctx, dir, name.as_bytes(), &new(FileKind::File))?.ino;
        fs.write(&ctx, ino, 0, &data)?;
    }
    Ok(())
}
