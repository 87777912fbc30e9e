//! The figures of WASA ("Wear-aware Memory Management Scheme for Balancing Lifetime and Performance of
//! Multiple NVM Slots"): 2 to 4 and 11, how even a Postmark-like load wears the slots; 12, what that makes of
//! their life; 13 to 17, sequential writes of several threads.
//!
//! Wear is counted in lines that reach a slot, for all purposes, where the paper counts calls.

use std::path::PathBuf;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use novale_core::{Ctx, Fs, Ino, NewInode, Node, OpenOptions, Placement, Serial};
use novale_layout::FileKind;
use rustix::time::{ClockId, clock_gettime};

use crate::place::{ARENA_BYTES, EPOCH_NS, MB, open_as};
use crate::plot::{Figure, Series};
use crate::report::{Cell, Report};
use crate::{Common, bytes_text};

/// Bytes of a slot; the paper's have 2 GB.
const SLOT_BYTES: u64 = 256 * MB;
const SLOTS: [usize; 2] = [4, 8];
const LANES: u32 = 4;
/// Transactions after which the slots are looked at.
const TRANSACTIONS: [u64; 6] = [100, 500, 1000, 2000, 3500, 5000];
/// Bytes of a file: from 1 KB to 10 MB, evenly over their logarithm.
const FILE_BYTES: (f64, f64) = (1024.0, 10.0 * 1024.0 * 1024.0);
/// Files that are there before the first transaction.
const FILES: usize = 100;
/// Bytes of a request.
const UNIT: usize = 1024;
/// Files are removed, whatever the transaction, in a pool that is fuller than that, in percent: nine of ten
/// changes of names are new files, which no pool of this size holds.
const FULL_PERCENT: u64 = 70;
/// How much less even a single list wears 4 slots (IV.A), and how much longer WASA's last.
const PAPER_TIMES: (f64, f64) = (2600.0, 11_000.0);
const PAPER_LIFE: f64 = 2.5;
/// Small overwrites of one pool, and the pages that they go to.
const OVERWRITES: u64 = 2_000_000;
const OVERWRITTEN_PAGES: u64 = 2048;
/// Overwrites after which is looked whether cold pages are to move; of a mount it is a minute.
const COLD_LOOK: u64 = 20_000;
/// Bytes of sequential writes, and threads.
const WRITES: [u64; 4] = [1024, 16_384, 65_536, 1 << 20];
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Bytes that all threads write in a round.
const WRITTEN: u64 = 64 * MB;

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Write an SVG for each figure into this folder.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// The deviation of lines over the slots after so many transactions, and the most of one.
struct Worn {
    transactions: u64,
    deviation: f64,
    most: u64,
    all: u64,
}

/// Measures all of them, a report each.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for slots in SLOTS.into_iter().filter(|slots| common.wants(&format!("{slots} slots"))) {
        let mut all = Vec::new();
        for placement in Placement::ALL {
            all.push((placement, postmark(common, slots, placement)?));
        }
        if let Some(folder) = &options.svg {
            plot(slots, &all).write(folder)?;
        }
        reports.push(evenness(common, slots, &all));
    }
    if common.wants("overwrites") {
        reports.push(overwrites(common)?);
    }
    if common.wants("cold") {
        reports.push(beside_cold(common)?);
    }
    if common.wants("sequential") {
        reports.push(sequential(common)?);
    }
    Ok(reports)
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn real(count: u64) -> f64 {
    count as f64
}

fn pool(common: &Common, slots: usize, placement: Placement) -> Result<Fs> {
    let options = OpenOptions { placement, now_ns: EPOCH_NS, ..OpenOptions::default() };
    common.place().pool_of_slots(&vec![SLOT_BYTES; slots], LANES, &options)
}

fn ctx(turn: u64) -> Ctx {
    let hint = u32::try_from(turn % u64::from(LANES)).unwrap_or(0);
    Ctx { now_ns: EPOCH_NS, hint }
}

const ROOT: Node = Node::current(Ino::ROOT);
const NEW: NewInode<'static> =
    NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };

/// A load like Postmark's: files that come, go, are read and written.
struct Postmark<'a> {
    fs: &'a Fs,
    random: fastrand::Rng,
    files: Vec<(u64, Ino)>,
    made: u64,
}

impl Postmark<'_> {
    fn make(&mut self) -> Result<()> {
        let name = self.made;
        self.made += 1;
        let ctx = ctx(name);
        let ino = self.fs.create(&ctx, ROOT, name.to_string().as_bytes(), &NEW)?.ino;
        let (least, most) = FILE_BYTES;
        let bytes = least * (most / least).powf(self.random.f64());
        let mut left = bytes;
        while left > 0.0 {
            self.fs.append(&ctx, ino, &[7; UNIT])?;
            left -= real(UNIT as u64);
        }
        self.files.push((name, ino));
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let (name, _) = self.files.swap_remove(self.random.usize(..self.files.len()));
        self.fs.unlink(&ctx(name), ROOT, name.to_string().as_bytes())?;
        Ok(())
    }

    fn transaction(&mut self, turn: u64) -> Result<()> {
        let space = self.fs.statfs()?;
        let is_full = (space.pages - space.pages_free) * 100 > space.pages * FULL_PERCENT;
        if is_full || self.random.u8(..10) == 0 {
            self.remove()?;
        } else {
            self.make()?;
        }
        let Some((_, ino)) = self.random.choice(&self.files).copied() else { return Ok(()) };
        let size = self.fs.getattr(ino)?.size;
        let ctx = ctx(turn);
        let at = self.random.u64(..size.max(UNIT as u64)) / UNIT as u64 * UNIT as u64;
        if self.random.bool() {
            self.fs.read(&ctx, ino, at, &mut [0; UNIT])?;
        } else {
            self.fs.write(&ctx, ino, at, &[9; UNIT])?;
        }
        Ok(())
    }
}

fn postmark(common: &Common, slots: usize, placement: Placement) -> Result<Vec<Worn>> {
    let fs = pool(common, slots, placement)?;
    let mut load =
        Postmark { fs: &fs, random: fastrand::Rng::with_seed(4), files: Vec::new(), made: 0 };
    for _ in 0..FILES {
        load.make()?;
    }
    let before = fs.wear()?;
    let mut worn = Vec::new();
    let mut turn = 0;
    for transactions in TRANSACTIONS {
        while turn < transactions {
            load.transaction(turn)?;
            turn += 1;
        }
        let lines: Vec<u64> =
            fs.wear()?.iter().zip(&before).map(|(now, before)| now - before).collect();
        worn.push(Worn {
            transactions,
            deviation: deviation(&lines),
            most: lines.iter().copied().max().unwrap_or(0),
            all: lines.iter().sum(),
        });
    }
    Ok(worn)
}

fn deviation(lines: &[u64]) -> f64 {
    let count = real(lines.len() as u64).max(1.0);
    let mean = real(lines.iter().sum()) / count;
    let squares: f64 = lines.iter().map(|lines| (real(*lines) - mean).powi(2)).sum();
    (squares / count).sqrt()
}

fn of(all: &[(Placement, Vec<Worn>)], placement: Placement) -> &[Worn] {
    all.iter().find(|(other, _)| *other == placement).map_or(&[], |(_, worn)| worn)
}

fn evenness(common: &Common, slots: usize, all: &[(Placement, Vec<Worn>)]) -> Report {
    let mut columns = vec!["transactions".to_owned()];
    columns.extend(Placement::ALL.map(|placement| format!("deviation, {}", placement.name())));
    columns.extend(
        ["single x wasa", "lanes x wasa", "life, wasa x single", "wasa x lanes"].map(str::to_owned),
    );
    let by = |placement, row: usize| of(all, placement).get(row);
    let rows = TRANSACTIONS.iter().enumerate().map(|(row, transactions)| {
        let deviation = |placement| by(placement, row).map_or(0.0, |worn| worn.deviation);
        let most = |placement| {
            // The same load, but for what each method adds to it.
            by(placement, row).map_or(0.0, |worn| real(worn.most) / real(worn.all.max(1)))
        };
        let wasa = deviation(Placement::Wasa).max(1.0);
        let mut cells = vec![Cell::Count(*transactions)];
        cells.extend(
            Placement::ALL.map(|placement| Cell::Text(format!("{:.0}", deviation(placement)))),
        );
        cells.extend(
            [Placement::Single, Placement::Lanes].map(|of| Cell::Ratio(deviation(of) / wasa)),
        );
        let life = |of| Cell::Ratio(most(of) / most(Placement::Wasa).max(1e-9));
        cells.extend([Placement::Single, Placement::Lanes].map(life));
        cells
    });
    let (least, most) = PAPER_TIMES;
    let mut setup = crate::setup(common);
    setup.push(("paper", format!("of 4 slots, a single list deviates {least} to {most} times as much; WASA's live more than {PAPER_LIFE} times as long")));
    Report {
        name: "wasa",
        title: format!(
            "Figures 2 to 4, 11 and 12: lines written to {slots} slots of 256 MB, their standard deviation, by how slots are used"
        ),
        setup,
        columns,
        rows: rows.collect(),
    }
}

fn plot(slots: usize, all: &[(Placement, Vec<Worn>)]) -> Figure {
    let series = all.iter().map(|(placement, worn)| {
        let bars = worn.iter().map(|worn| Some(worn.deviation.max(1.0).log10())).collect();
        Series::placed(*placement, bars)
    });
    Figure {
        file: format!("wasa-11-{slots}-slots"),
        title: format!("WASA 11: deviation of lines over {slots} slots"),
        groups: all.first().map_or(Vec::new(), |(_, worn)| {
            worn.iter().map(|worn| worn.transactions.to_string()).collect()
        }),
        x: "transactions".to_owned(),
        y: "standard deviation, power of ten".to_owned(),
        series: series.collect(),
    }
}

/// Small overwrites of few pages, most of them of very few: what allocation alone can't spread.
struct Overwrites<'a> {
    fs: &'a Fs,
    ino: Ino,
    random: fastrand::Rng,
    before: Vec<u64>,
}

impl<'a> Overwrites<'a> {
    fn begin(fs: &'a Fs) -> Result<Self> {
        let ino = fs.create(&ctx(0), ROOT, b"f", &NEW)?.ino;
        fs.write(&ctx(0), ino, 0, &vec![1; usize::try_from(OVERWRITTEN_PAGES * 4096)?])?;
        Ok(Self { fs, ino, random: fastrand::Rng::with_seed(5), before: fs.wear()? })
    }

    fn one(&mut self, turn: u64) -> Result<()> {
        // Zipf-like: page n about 1 / n as often as the first.
        let page = real(OVERWRITTEN_PAGES).powf(self.random.f64());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a page")]
        let page = (page as u64 - 1).min(OVERWRITTEN_PAGES - 1);
        self.fs.write(&ctx(turn), self.ino, page * 4096 + 1024, &[9; 512])?;
        Ok(())
    }

    /// The lines that reached each slot, how far they deviate, and the most of one over the mean.
    fn cells(&self) -> Result<Vec<Cell>> {
        let lines: Vec<u64> =
            self.fs.wear()?.iter().zip(&self.before).map(|(now, before)| now - before).collect();
        let mean = real(lines.iter().sum()) / real(lines.len() as u64);
        let most = real(lines.iter().copied().max().unwrap_or(0));
        let each = lines.iter().map(|lines| Cell::Count(*lines));
        let all = [Cell::Text(format!("{:.0}", deviation(&lines))), Cell::Ratio(most / mean)];
        Ok(each.chain(all).collect())
    }
}

/// What [`Overwrites::cells`] are.
const SLOT_COLUMNS: [&str; 6] =
    ["slot 0", "slot 1", "slot 2", "slot 3", "deviation", "most x mean"];

fn overwrites(common: &Common) -> Result<Report> {
    let mut rows = Vec::new();
    for placement in Placement::ALL {
        let fs = pool(common, 4, placement)?;
        let mut overwrites = Overwrites::begin(&fs)?;
        (0..OVERWRITES).try_for_each(|turn| overwrites.one(turn))?;
        let mut row = vec![Cell::from(placement.name())];
        row.extend(overwrites.cells()?);
        rows.push(row);
    }
    Ok(Report {
        name: "wasa",
        title: format!(
            "{OVERWRITES} overwrites of 512 bytes of {OVERWRITTEN_PAGES} pages, zipf-like: lines that reached each slot"
        ),
        setup: crate::setup(common),
        columns: ["placement"].into_iter().chain(SLOT_COLUMNS).map(str::to_owned).collect(),
        rows,
    })
}

/// A pool of four slots, of which the first two are full of files that nobody writes any more.
fn half_full(common: &Common) -> Result<Fs> {
    let fs = pool(common, 4, Placement::Single)?;
    let old = Ctx { now_ns: EPOCH_NS - 1, hint: 0 };
    for name in 0..2 * SLOT_BYTES / MB {
        let ino = fs.create(&old, ROOT, name.to_string().as_bytes(), &NEW)?.ino;
        fs.write(&old, ino, 0, &vec![3; usize::try_from(MB)?])?;
    }
    fs.close()?;
    let options = OpenOptions { now_ns: EPOCH_NS, ..OpenOptions::default() };
    open_as(fs.into_pm(), &options, &Serial, ARENA_BYTES)
}

/// The same overwrites there, with such files moved to the slots that are worn more, and without.
fn beside_cold(common: &Common) -> Result<Report> {
    let mut rows = Vec::new();
    for is_moving in [false, true] {
        let fs = half_full(common)?;
        // What filled the slots has worn them, too.
        let mut overwrites = Overwrites { before: vec![0; 4], ..Overwrites::begin(&fs)? };
        let mut moved = 0;
        for turn in 0..OVERWRITES {
            overwrites.one(turn)?;
            if is_moving
                && turn % COLD_LOOK == 0
                && let Some(cold) = fs.cold_move()?
            {
                moved += fs.move_cold(&ctx(turn), cold, EPOCH_NS, &mut |_| true)?;
            }
        }
        let mut row = vec![Cell::from(if is_moving { "moved" } else { "stay" })];
        row.extend(overwrites.cells()?);
        row.push(Cell::Count(moved));
        rows.push(row);
    }
    let columns = ["cold pages"].into_iter().chain(SLOT_COLUMNS).chain(["pages moved"]);
    Ok(Report {
        name: "wasa",
        title:
            "the same where nobody writes what fills slots 0 and 1: lines since the pool was made"
                .to_owned(),
        setup: crate::setup(common),
        columns: columns.map(str::to_owned).collect(),
        rows,
    })
}

/// Seconds of this thread on a CPU.
fn on_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

/// Bytes that so many threads write in a second of a CPU, each to a file of its own: what waits for a CPU of a
/// machine with fewer does not count, nor what sleeps.
fn write_all(fs: &Fs, files: &[Ino], bytes: u64) -> Result<f64> {
    let data = vec![3; usize::try_from(bytes)?];
    let count = (WRITTEN / files.len() as u64 / bytes).max(1);
    let start = Barrier::new(files.len());
    let seconds: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(files)
            .map(|(turn, ino)| {
                let (data, start) = (&data, &start);
                scope.spawn(move || -> Result<f64> {
                    start.wait();
                    let begun = on_cpu();
                    for at in 0..count {
                        fs.write(&ctx(turn), *ino, at * bytes, data)?;
                    }
                    Ok(on_cpu() - begun)
                })
            })
            .collect();
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined.map(|spent| spent.map_err(|_| anyhow!("a thread panicked"))?).sum::<Result<f64>>()
    })?;
    Ok(real(count * bytes * files.len() as u64) / seconds)
}

fn sequential(common: &Common) -> Result<Report> {
    let mut rows = Vec::new();
    let pools = [Placement::Wasa, Placement::Spread, Placement::Lanes]
        .map(|placement| pool(common, 4, placement));
    let pools: Vec<Fs> = pools.into_iter().collect::<Result<_>>()?;
    for threads in THREADS {
        for bytes in WRITES {
            let mut rates = vec![Vec::new(); pools.len()];
            for _ in 0..common.rounds {
                for (fs, rates) in pools.iter().zip(&mut rates) {
                    rates.push(round(fs, threads, bytes)?);
                }
            }
            let median = |rates: &mut Vec<f64>| {
                rates.sort_by(f64::total_cmp);
                rates.get(rates.len() / 2).copied().context("a round")
            };
            let medians: Vec<f64> = rates.iter_mut().map(median).collect::<Result<_>>()?;
            let [wasa, spread, lanes] = medians[..] else { continue };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "MB/s")]
            let mb = |rate: f64| Cell::Count((rate / 1e6) as u64);
            rows.push(vec![
                Cell::Text(format!("{threads} threads, {}", bytes_text(bytes))),
                mb(wasa),
                mb(spread),
                mb(lanes),
                Cell::Percent((wasa / spread - 1.0) * 100.0),
                Cell::Percent((wasa / lanes - 1.0) * 100.0),
            ]);
        }
    }
    let columns = [
        "MB in a second of a CPU",
        "wasa",
        "spread",
        "lanes",
        "wasa over spread",
        "wasa over lanes",
    ];
    Ok(Report {
        name: "wasa",
        title: "Figures 13 to 17: sequential writes to 4 slots, each thread to a new file"
            .to_owned(),
        setup: crate::setup(common),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    })
}

/// One round with new files, which go again.
fn round(fs: &Fs, threads: usize, bytes: u64) -> Result<f64> {
    let name = |thread: usize| format!("s{thread}");
    let files: Vec<Ino> = (0..threads)
        .map(|thread| Ok(fs.create(&ctx(0), ROOT, name(thread).as_bytes(), &NEW)?.ino))
        .collect::<Result<_>>()?;
    let rate = write_all(fs, &files, bytes)?;
    for thread in 0..threads {
        fs.unlink(&ctx(0), ROOT, name(thread).as_bytes())?;
    }
    Ok(rate)
}
