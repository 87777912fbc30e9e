//! What recovery takes after a writer was killed in the middle of its writes, by method (ADL, 6.6).
//!
//! The writer is a process of its own that maps the slot; it is killed as soon as it says that it is at
//! work. Its view goes with it, so that the pool is opened as after a reboot.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use novale_core::{Ctx, FileKind, Fs, Ino, Node, OpenOptions, Serial, UpdatePolicy};
use novale_pm::{Pm, PmOptions, SlotSpec};
use tempfile::TempPath;

use crate::bed::new;
use crate::filebench::Method;
use crate::place::{self, ARENA_BYTES, EPOCH_NS, MB, Place};
use crate::progress::Bar;
use crate::recovery::Times;
use crate::report::{Cell, Report};
use crate::stats::float;
use crate::{Common, setup};

/// Where slots lie unless the caller says so: another process maps them.
const FOLDER: &str = "/dev/shm";
/// The methods compared, copy-on-write first, and the us that the paper's NOVA takes to mount by them.
const METHODS: [(UpdatePolicy, Option<u64>); 5] = [
    (UpdatePolicy::Cow, Some(12_024)),
    (UpdatePolicy::Adl, Some(12_057)),
    (UpdatePolicy::FineLog, None),
    (UpdatePolicy::Lawn, None),
    (UpdatePolicy::Auto, None),
];
/// Bytes of a write: less than a page, which `adl` logs.
const WRITE_BYTES: usize = 1024;
/// Writes until the writer says that it is at work.
const WRITES_BEFORE: u64 = 1_000;

/// The hidden command that writes until it is killed.
#[derive(Debug, Args)]
pub(crate) struct Writer {
    slot: PathBuf,
    method: Method,
}

/// A pool of one method.
struct Subject {
    method: UpdatePolicy,
    paper_us: Option<u64>,
    slot: TempPath,
    times: Times,
}

/// Fills a pool for each method, and opens each after a kill, round by round.
pub(crate) fn run(common: &Common, dataset_mb: u64) -> Result<Report> {
    let slots_in = common.slots_in.clone().or_else(|| Some(FOLDER.into()));
    let common = &Common { slots_in, ..common.clone() };
    let place = common.place();
    let subjects = METHODS.into_iter().map(|method| Subject::new(&place, method, dataset_mb));
    let mut subjects = subjects.collect::<Result<Vec<_>>>()?;
    let bar = Bar::new("kills", common.rounds * METHODS.len() as u64);
    for _ in 0..common.rounds {
        for subject in &mut subjects {
            subject.kill_and_open()?;
            bar.step();
        }
    }
    let cow = subjects.first().map_or(1, |subject| subject.times.median());
    let row = |subject: &Subject| {
        let mut cells = vec![Cell::from(subject.method.name())];
        cells.extend(subject.times.cells());
        cells.push(Cell::Ratio(float(subject.times.median()) / float(cow)));
        cells.push(subject.paper_us.map_or(Cell::None, Cell::Count));
        cells
    };
    let mut setup = setup(common);
    setup.push(("dataset", format!("{dataset_mb} files of 1 MB; the paper's has 5,000")));
    Ok(Report {
        name: "adl-6.6",
        title: "us to open a pool on one thread after its writer was killed in the middle of overwrites of \
                1 KB"
            .into(),
        setup,
        columns: ["method", "us", "spread", "of cow", "paper: us"].map(str::to_owned).into(),
        rows: subjects.iter().map(row).collect(),
    })
}

impl Subject {
    fn new(
        place: &Place,
        (method, paper_us): (UpdatePolicy, Option<u64>),
        dataset_mb: u64,
    ) -> Result<Self> {
        // A second copy of each page, and room for logs.
        let (pm, slot) = place.made((dataset_mb * 2 + 128) * MB, 2)?;
        let slot = slot.context("the slot has no file")?;
        let fs = place::open_as(pm, &options(method), &Serial, ARENA_BYTES)?;
        let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
        let data = vec![0x5a; 64 << 10];
        for index in 0..dataset_mb {
            let name = name_of(index);
            let ino = fs.create(&ctx, Node::ROOT, name.as_bytes(), &new(FileKind::File))?.ino;
            for _ in 0..16 {
                fs.append(&ctx, ino, &data)?;
            }
        }
        fs.close()?;
        Ok(Self { method, paper_us, slot, times: Times::default() })
    }

    /// Lets a process write to the pool, kills it, opens the pool and closes it.
    fn kill_and_open(&mut self) -> Result<()> {
        let program = std::env::current_exe()?;
        let mut writer = Command::new(program)
            .arg("killed-writer")
            .args([self.slot.as_os_str(), self.method.name().as_ref()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = [0];
        let is_at_work = match &mut writer.stdout {
            Some(stdout) => stdout.read_exact(&mut said).is_ok(),
            None => false,
        };
        writer.kill()?;
        writer.wait()?;
        anyhow::ensure!(is_at_work, "the writer ended before it was killed");
        let fs = self.times.open(mapped(&self.slot)?, &options(self.method), &Serial)?;
        anyhow::ensure!(!fs.opened().clean, "the writer was killed, and the pool is clean");
        fs.close()?;
        Ok(())
    }
}

/// Overwrites parts of files at random for ever.
pub(crate) fn write_until_killed(writer: &Writer) -> Result<()> {
    let fs =
        place::open_as(mapped(&writer.slot)?, &options(writer.method.0), &Serial, ARENA_BYTES)?;
    let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
    let mut files = Vec::new();
    while let Some(found) = found(&fs, &ctx, files.len())? {
        files.push(found);
    }
    let mut random = fastrand::Rng::new();
    let data = [0xa5; WRITE_BYTES];
    for count in 1_u64.. {
        let ino = *random.choice(&files).context("no files")?;
        let at = random.u64(0..MB / WRITE_BYTES as u64) * WRITE_BYTES as u64;
        fs.write(&ctx, ino, at, &data)?;
        if count == WRITES_BEFORE {
            std::io::stdout().write_all(b"!")?;
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

fn found(fs: &Fs, ctx: &Ctx, index: usize) -> Result<Option<Ino>> {
    match fs.lookup(ctx, Node::ROOT, name_of(index as u64).as_bytes()) {
        Ok(found) => Ok(Some(found.ino)),
        Err(novale_core::Error::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn name_of(index: u64) -> String {
    format!("file {index}")
}

fn mapped(slot: &Path) -> Result<Pm> {
    let options = PmOptions { populate: true, ..PmOptions::default() };
    Ok(Pm::open(&[SlotSpec::new(slot)], &options)?)
}

fn options(method: UpdatePolicy) -> OpenOptions {
    OpenOptions { update: Some(method), ..place::options() }
}
