//! `HiNFS`' figure 13: a trace, or a shape of one, replayed by each way to write, and what its calls take.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use novale_pm::Device;

use crate::Common;
use crate::hinfs::{Accuracy, Bar, ratio, while_written_back};
use crate::hinfs_model::by_blocks;
use crate::place::{MB, Place};
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::target::{Handle, Open, Target};
use crate::trace::{self, Call};

/// What calls are counted as.
const PARTS: [&str; 4] = ["read", "write", "sync", "open, close and remove"];
/// The buffer's part of what is written: a tenth (5.3).
const BUFFER_PART: u64 = 10;

/// A trace to be replayed.
pub(crate) struct Trace {
    name: String,
    calls: Vec<Call>,
}

/// ns by part.
type Times = [u64; PARTS.len()];

impl Trace {
    /// Reads one from a file, whose name's last part is the trace's.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.extension().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, calls: trace::read(path)? })
    }

    pub(crate) fn made(name: &str, calls: Vec<Call>) -> Self {
        Self { name: name.to_owned(), calls }
    }

    fn bytes(&self) -> u64 {
        let written = |call: &Call| if let Call::Write { len, .. } = call { *len } else { 0 };
        self.calls.iter().map(written).sum()
    }

    /// Replays it; what it made is removed.
    fn replay(&self, target: &Target, round: u64) -> Result<Times> {
        let longest = self.calls.iter().map(|call| match call {
            Call::Write { len, .. } | Call::Read { len, .. } => *len,
            Call::Open { .. }
            | Call::Close { .. }
            | Call::Remove { .. }
            | Call::Attributes { .. }
            | Call::Sync { .. }
            | Call::Nothing => 0,
        });
        let data = vec![0x5a; usize::try_from(longest.max().unwrap_or(0))?];
        let mut replay = Replay {
            target,
            round,
            open: HashMap::new(),
            made: 0,
            there: BTreeSet::new(),
            data,
            times: [0; PARTS.len()],
        };
        self.calls.iter().try_for_each(|call| replay.call(*call))?;
        let Replay { open, there, times, .. } = replay;
        open.into_values().try_for_each(|open| target.close(open.file))?;
        there.into_iter().try_for_each(|file| target.remove(&name(round, file)))?;
        Ok(times)
    }
}

fn name(round: u64, file: u64) -> String {
    format!("{round}-{file}")
}

/// What a descriptor leads to.
struct OpenFile {
    file: Handle,
    index: u64,
    /// The descriptor's own position.
    at: u64,
}

/// A replay in the making.
struct Replay<'a> {
    target: &'a Target,
    round: u64,
    open: HashMap<u32, OpenFile>,
    /// Files, and those that were not removed.
    made: u64,
    there: BTreeSet<u64>,
    data: Vec<u8>,
    times: Times,
}

impl Replay<'_> {
    /// What a descriptor that is not open is asked for is left out, as `Mobibench` leaves it.
    fn call(&mut self, call: Call) -> Result<()> {
        match call {
            Call::Open { fd, makes } => {
                self.close(fd)?;
                if makes {
                    let begun = Instant::now();
                    let index = self.made;
                    let file = self.target.open(&name(self.round, index), Open::New)?;
                    self.count(3, begun.elapsed());
                    self.made += 1;
                    self.there.insert(index);
                    self.open.insert(fd, OpenFile { file, index, at: 0 });
                }
                Ok(())
            }
            Call::Close { fd } => self.close(fd),
            Call::Remove { fd } => {
                let Some(index) = self.open.get(&fd).map(|open| open.index) else { return Ok(()) };
                self.close(fd)?;
                let begun = Instant::now();
                self.target.remove(&name(self.round, index))?;
                self.count(3, begun.elapsed());
                self.there.remove(&index);
                Ok(())
            }
            Call::Read { fd, at, len } => self.access(fd, at, len, true),
            Call::Write { fd, at, len } => self.access(fd, at, len, false),
            Call::Sync { fd } => {
                let Some(open) = self.open.get(&fd) else { return Ok(()) };
                let begun = Instant::now();
                self.target.sync(&open.file)?;
                self.count(2, begun.elapsed());
                Ok(())
            }
            Call::Attributes { .. } | Call::Nothing => Ok(()),
        }
    }

    fn close(&mut self, fd: u32) -> Result<()> {
        let Some(open) = self.open.remove(&fd) else { return Ok(()) };
        let begun = Instant::now();
        self.target.close(open.file)?;
        self.count(3, begun.elapsed());
        Ok(())
    }

    fn access(&mut self, fd: u32, at: Option<u64>, len: u64, reads: bool) -> Result<()> {
        let Some(OpenFile { file, at: own, .. }) = self.open.get_mut(&fd) else { return Ok(()) };
        let from = at.unwrap_or(*own);
        let bytes = self.data.get_mut(..usize::try_from(len)?).unwrap_or_default();
        let begun = Instant::now();
        let done = if reads {
            self.target.read_at(file, from, bytes)? as u64
        } else {
            self.target.write_at(file, from, bytes)?;
            len
        };
        let took = begun.elapsed();
        if at.is_none() {
            *own += done;
        }
        self.count(usize::from(!reads), took);
        Ok(())
    }

    fn count(&mut self, part: usize, took: Duration) {
        if let Some(time) = self.times.get_mut(part) {
            *time += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        }
    }
}

/// Replays a trace by each bar in turn, round by round; the first time is not counted.
pub(crate) fn measure(
    common: &Common,
    trace: &Trace,
    bars: &[Bar],
    device: Device,
) -> Result<(Report, Accuracy)> {
    let place = Place { device: Some(device), ..common.place() };
    let buffer_bytes = (trace.bytes() / BUFFER_PART).max(MB);
    let target = |bar: &Bar| -> Result<Target> {
        Ok(Target::of(place.pool_as(
            trace.bytes() * 2 + 256 * MB,
            1,
            &bar.options(buffer_bytes),
        )?))
    };
    let targets: Vec<Target> = bars.iter().map(target).collect::<Result<_>>()?;
    let mut rounds: Vec<Vec<Times>> = vec![Vec::new(); bars.len()];
    for round in 0..=common.rounds {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            let times = while_written_back(target, || trace.replay(target, round))?;
            if round > 0 {
                rounds.push(times);
            }
        }
    }
    let total = |rounds: &[Times]| median(rounds.iter().map(|times| times.iter().sum()));
    let base = rounds.first().map_or(0, |rounds| total(rounds));
    let rows = bars.iter().zip(&rounds).map(|(bar, rounds)| {
        let part = |part: usize| {
            median(rounds.iter().map(|times: &Times| times.get(part).copied().unwrap_or(0)))
        };
        let mut cells = vec![Cell::from(bar.name), Cell::Count(total(rounds) / 1000)];
        cells.push(Cell::Ratio(ratio(total(rounds), base)));
        cells.extend((0..PARTS.len()).map(|index| Cell::Count(part(index) / 1000)));
        cells
    });
    let rows = rows.collect();
    let mut columns = ["way", "us", "of the first's"].map(str::to_owned).to_vec();
    columns.extend(PARTS.map(|part| format!("{part}: us")));
    let buffered = bars.iter().position(|bar| bar.name == "buffered");
    let fs = buffered.and_then(|index| targets.get(index)?.fs());
    let counters = fs.map(|fs| fs.pm().counters()).unwrap_or_default();
    let setup = vec![("memory", place.describe()), ("rounds", common.rounds.to_string())];
    let title = format!("the trace {}, time by call (HiNFS, figure 13)", trace.name);
    let report = Report { name: "hinfs-13", title, setup, columns, rows };
    let line_ns = device.write_ns.unwrap_or(0);
    let by_blocks = Some(by_blocks(&trace.calls, line_ns));
    Ok((report, Accuracy { name: trace.name.clone(), counters, by_blocks }))
}
