//! System calls on a mount, next to the bare memory and to the same calls on folders of other file
//! systems.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::limit::Limit;
use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns};
use crate::target::new_folder;
use crate::{Common, bytes_text, count_for};

const MB: u64 = 1 << 20;
/// Overwrites from this length on have a file of their own, as those of the library have.
const WHOLE_BYTES: usize = 65_536;
/// `O_DSYNC`, as Linux has it nearly everywhere.
pub(crate) const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits().cast_signed();

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
    Call::Overwrite(128),
    Call::Overwrite(512),
    Call::Overwrite(1024),
    Call::Overwrite(4096),
    Call::Overwrite(16_384),
    Call::Overwrite(65_536),
    Call::Overwrite(1 << 20),
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

/// A folder of one file system, with files to write and read.
struct Side {
    name: String,
    folder: TempDir,
    /// A file that is overwritten by short pieces, so that its pages lie apart in the end.
    file: File,
    /// One that is overwritten by pieces of [`WHOLE_BYTES`] and more alone.
    whole: File,
    file_bytes: u64,
    random: fastrand::Rng,
    buffer: Vec<u8>,
    durable: bool,
    round: u64,
}

/// What a call took, round by round: in the folder, of the bare memory, in the other folders.
struct Taken {
    ours: Rounds,
    limit: Option<Rounds>,
    others: Vec<Rounds>,
}

/// Measures all calls in `dir` and in the others, round by round.
pub(crate) fn run(
    common: &Common,
    dir: &Path,
    others: &[PathBuf],
    durable: bool,
) -> Result<Report> {
    let mut ours = Side::new(dir, common.file_mb, false)?;
    let others: Result<Vec<Side>> =
        others.iter().map(|other| Side::new(other, common.file_mb, durable)).collect();
    let mut others = others?;
    let mut limit = Limit::new(&common.place(), common.file_mb * MB)?;
    let clock = clock_ns();
    let calls: Vec<Call> = CALLS.iter().copied().filter(|c| common.wants(&c.text())).collect();
    let mut results: Vec<Taken> =
        calls.iter().map(|call| Taken::new(*call, others.len())).collect();
    for _ in 0..common.rounds {
        for side in others.iter_mut().chain([&mut ours]) {
            side.round += 1;
            std::fs::create_dir(side.round_folder())?;
        }
        for (call, taken) in calls.iter().zip(&mut results) {
            let count = count_for(common.ops.min(2_000), call.bytes());
            let measure = |side: &mut Side| -> Result<_> {
                let mut timer = Timer::new(clock, count)?;
                side.run(*call, count, &mut timer)
                    .with_context(|| format!("{} in {}", call.text(), side.path().display()))?;
                Ok(timer.finish())
            };
            taken.ours.push(measure(&mut ours)?);
            for (side, rounds) in others.iter_mut().zip(&mut taken.others) {
                rounds.push(measure(side)?);
            }
            if let Some(rounds) = &mut taken.limit {
                let mut timer = Timer::new(clock, count)?;
                call.run_on(&mut limit, count, &mut timer)?;
                rounds.push(timer.finish());
            }
        }
    }
    let columns = ["calls", "ours", "spread", "alone", "p99", "limit", "ours / limit"];
    let of_others = others.iter().flat_map(|side| {
        [side.name.clone(), format!("{}: spread", side.name), format!("ours / {}", side.name)]
    });
    Ok(Report {
        name: "mount",
        title: "ns of system calls on one thread; a write to Novale is durable when it returns"
            .into(),
        setup: vec![
            ("ours", dir.display().to_string()),
            ("others", if durable { "with O_DSYNC" } else { "as they are" }.into()),
            ("rounds", format!("{}, interleaved", common.rounds)),
        ],
        columns: columns.map(str::to_owned).into_iter().chain(of_others).collect(),
        rows: calls.iter().zip(&results).map(|(call, taken)| taken.row(*call)).collect(),
    })
}

impl Taken {
    fn new(call: Call, others: usize) -> Self {
        let limit = (!matches!(call, Call::Name(_))).then(Rounds::default);
        Self { ours: Rounds::default(), limit, others: vec![Rounds::default(); others] }
    }

    fn row(&self, call: Call) -> Vec<Cell> {
        let ours = self.ours.median();
        let spread = |rounds: &Rounds| {
            let (least, most) = rounds.spread();
            Cell::Spread(least, most)
        };
        let (limit, times) = match &self.limit {
            Some(limit) => (Cell::Count(limit.median().ns), Cell::Ratio(self.ours.ratio(limit))),
            None => (Cell::Text(String::new()), Cell::Text(String::new())),
        };
        let head = [
            Cell::Text(call.text()),
            Cell::Count(ours.ns),
            spread(&self.ours),
            Cell::Count(ours.alone),
            Cell::Count(ours.p99),
            limit,
            times,
        ];
        let others = self.others.iter().flat_map(|other| {
            [Cell::Count(other.median().ns), spread(other), Cell::Ratio(self.ours.ratio(other))]
        });
        head.into_iter().chain(others).collect()
    }
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

    /// The same bytes to or from the bare memory.
    fn run_on(self, limit: &mut Limit, count: u64, timer: &mut Timer) -> Result<()> {
        match self {
            Self::Overwrite(len) | Self::Append(len) => limit.store(len as u64, count, timer),
            Self::Read(len) => limit.load(len as u64, count, timer),
            Self::Name(_) => Ok(()),
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
    fn new(dir: &Path, file_mb: u64, durable: bool) -> Result<Self> {
        let folder = new_folder(dir)?;
        let buffer = vec![0x5a; 1 << 20];
        let filled = |name| -> Result<File> {
            let mut options = File::options();
            options.read(true).write(true).create_new(true);
            options.custom_flags(if durable { DSYNC } else { 0 });
            let file = options.open(folder.path().join(name))?;
            (0..file_mb).try_for_each(|at| file.write_all_at(&buffer, at * MB))?;
            Ok(file)
        };
        let (file, whole) = (filled("file")?, filled("whole")?);
        let random = fastrand::Rng::with_seed(3);
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
        let file_bytes = file_mb * MB;
        Ok(Self { name, folder, file, whole, file_bytes, random, buffer, durable, round: 0 })
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
                    let file = if len < WHOLE_BYTES { &self.file } else { &self.whole };
                    timer.time(|| file.write_all_at(data, at))?;
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
                let flags = if self.durable { DSYNC } else { 0 };
                let mut options = File::options();
                options.append(true).create(true).custom_flags(flags);
                let mut file = options.open(&path)?;
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
