//! System calls on a mount, next to the same calls on a folder of another file system.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns};
use crate::{Common, bytes_text, count_for};

const MB: u64 = 1 << 20;

/// A system call, or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Overwrite(usize),
    Append(usize),
    Read(usize),
    Name(NameCall),
}

/// A call on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameCall {
    Stat,
    StatMissing,
    OpenClose,
    CreateClose,
    Rename,
    Unlink,
    Mkdir,
    Rmdir,
}

const CALLS: &[Call] = &[
    Call::Overwrite(64),
    Call::Overwrite(4096),
    Call::Overwrite(65_536),
    Call::Append(64),
    Call::Append(4096),
    Call::Read(64),
    Call::Read(4096),
    Call::Read(65_536),
    Call::Name(NameCall::Stat),
    Call::Name(NameCall::StatMissing),
    Call::Name(NameCall::OpenClose),
    Call::Name(NameCall::CreateClose),
    Call::Name(NameCall::Rename),
    Call::Name(NameCall::Unlink),
    Call::Name(NameCall::Mkdir),
    Call::Name(NameCall::Rmdir),
];

/// A folder of one file system, with a file to write and read.
struct Side {
    folder: TempDir,
    file: File,
    file_bytes: u64,
    random: fastrand::Rng,
    buffer: Vec<u8>,
    round: u64,
}

/// Measures all calls in `dir` and in `other`, round by round.
pub(crate) fn run(common: &Common, dir: &Path, other: &Path) -> Result<Report> {
    let mut sides = [Side::new(dir, common.file_mb)?, Side::new(other, common.file_mb)?];
    let clock = clock_ns();
    let calls: Vec<Call> = CALLS.iter().copied().filter(|c| common.wants(&c.text())).collect();
    let mut results = vec![[Rounds::default(), Rounds::default()]; calls.len()];
    for _ in 0..common.rounds {
        for side in &mut sides {
            side.round += 1;
            std::fs::create_dir(side.round_folder())?;
        }
        for (call, rounds) in calls.iter().zip(&mut results) {
            let count = count_for(common.ops.min(2_000), call.bytes());
            for (side, rounds) in sides.iter_mut().zip(rounds) {
                let mut timer = Timer::new(clock, count)?;
                side.run(*call, count, &mut timer)
                    .with_context(|| format!("{} in {}", call.text(), side.path().display()))?;
                rounds.push(timer.finish());
            }
        }
    }
    Ok(Report {
        name: "mount",
        title: "ns of system calls on one thread; a write to Novale is durable when it returns"
            .into(),
        setup: vec![
            ("ours", dir.display().to_string()),
            ("other", other.display().to_string()),
            ("rounds", format!("{}, interleaved", common.rounds)),
        ],
        columns: [
            "calls",
            "ours",
            "spread",
            "alone",
            "p99",
            "other",
            "other: spread",
            "other: p99",
            "ours / other",
        ]
        .map(str::to_owned)
        .into(),
        rows: calls.iter().zip(&results).map(|(call, rounds)| row(*call, rounds)).collect(),
    })
}

fn row(call: Call, [ours, other]: &[Rounds; 2]) -> Vec<Cell> {
    let (mine, theirs) = (ours.median(), other.median());
    let spread = |rounds: &Rounds| {
        let (least, most) = rounds.spread();
        Cell::Spread(least, most)
    };
    vec![
        Cell::Text(call.text()),
        Cell::Count(mine.ns),
        spread(ours),
        Cell::Count(mine.alone),
        Cell::Count(mine.p99),
        Cell::Count(theirs.ns),
        spread(other),
        Cell::Count(theirs.p99),
        Cell::Ratio(ours.ratio(other)),
    ]
}

impl Call {
    fn text(self) -> String {
        let sized = |word: &str, len: usize| format!("{word} {}", bytes_text(len as u64));
        match self {
            Self::Overwrite(len) => sized("pwrite", len),
            Self::Append(len) => sized("append", len),
            Self::Read(len) => sized("pread", len),
            Self::Name(NameCall::Stat) => "stat".into(),
            Self::Name(NameCall::StatMissing) => "stat of no file".into(),
            Self::Name(NameCall::OpenClose) => "open, close".into(),
            Self::Name(NameCall::CreateClose) => "create, close".into(),
            Self::Name(NameCall::Rename) => "rename".into(),
            Self::Name(NameCall::Unlink) => "unlink".into(),
            Self::Name(NameCall::Mkdir) => "mkdir".into(),
            Self::Name(NameCall::Rmdir) => "rmdir".into(),
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Overwrite(len) | Self::Append(len) | Self::Read(len) => len as u64,
            Self::Name(_) => 64,
        }
    }
}

impl Side {
    fn new(dir: &Path, file_mb: u64) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("novale-bench-")
            .tempdir_in(dir)
            .with_context(|| format!("no folder can be made in {}", dir.display()))?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("file"))?;
        let buffer = vec![0x5a; 1 << 20];
        for at in 0..file_mb {
            file.write_all_at(&buffer, at * MB)?;
        }
        let random = fastrand::Rng::with_seed(3);
        Ok(Self { folder, file, file_bytes: file_mb * MB, random, buffer, round: 0 })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn round_folder(&self) -> PathBuf {
        self.path().join(format!("round {}", self.round))
    }

    fn run(&mut self, call: Call, count: u64, timer: &mut Timer) -> Result<()> {
        match call {
            Call::Overwrite(len) => {
                for _ in 0..count {
                    let at = self.offset(len);
                    let data = self.buffer.get(..len).unwrap_or_default();
                    timer.time(|| self.file.write_all_at(data, at))?;
                }
            }
            Call::Read(len) => {
                // One that is open for writing would be read past the kernel's cache, and writes
                // leave nothing in it.
                let file = File::open(self.path().join("file"))?;
                for at in (0..self.file_bytes).step_by(self.buffer.len()) {
                    file.read_exact_at(&mut self.buffer, at)?;
                }
                for _ in 0..count {
                    let at = self.offset(len);
                    let into = self.buffer.get_mut(..len).unwrap_or_default();
                    timer.time(|| file.read_exact_at(into, at))?;
                }
            }
            Call::Append(len) => {
                use std::io::Write;
                let path = self.round_folder().join("appended");
                let mut file = File::options().append(true).create(true).open(&path)?;
                let data = self.buffer.get(..len).unwrap_or_default();
                for _ in 0..count {
                    timer.time(|| file.write_all(data))?;
                }
                std::fs::remove_file(path)?;
            }
            Call::Name(call) => self.run_names(call, count, timer)?,
        }
        Ok(())
    }

    fn offset(&mut self, len: usize) -> u64 {
        self.random.u64(0..self.file_bytes / len as u64) * len as u64
    }

    /// Calls on names, in the folder of the round; each takes what the one before it left.
    fn run_names(&self, call: NameCall, count: u64, timer: &mut Timer) -> Result<()> {
        let folder = self.round_folder();
        let file = self.path().join("file");
        let missing = self.path().join("missing");
        for index in 0..count {
            let name = folder.join(format!("name {index}"));
            let moved = folder.join(format!("moved {index}"));
            match call {
                NameCall::Stat => timer.time(|| std::fs::metadata(&file).map(|_| ()))?,
                NameCall::StatMissing => {
                    let found = timer.time(|| std::fs::metadata(&missing));
                    anyhow::ensure!(found.is_err(), "{} is there", missing.display());
                }
                NameCall::OpenClose => timer.time(|| File::open(&file).map(drop))?,
                NameCall::CreateClose => timer.time(|| File::create_new(&name).map(drop))?,
                NameCall::Rename => timer.time(|| std::fs::rename(&name, &moved))?,
                NameCall::Unlink => timer.time(|| std::fs::remove_file(&moved))?,
                NameCall::Mkdir => timer.time(|| std::fs::create_dir(&name))?,
                NameCall::Rmdir => timer.time(|| std::fs::remove_dir(&name))?,
            }
        }
        Ok(())
    }
}
