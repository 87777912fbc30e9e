//! What a pool's size, its slots and its lanes cost before it has a file: tables in DRAM, the allocator as it is saved,
//! and opening, after a clean close and after a death. Slots are private memory of which only what is touched is there.
//!
//! Beside what is counted stands what the sizes of the tables come to, which holds for sizes that were not measured.

use std::fs;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use novale_core::{Ctx, FileKind, Fs, MkfsOptions, Node, mkfs, space};
use novale_pm::{Pm, PmOptions};

use crate::bed::new;
use crate::place::{EPOCH_NS, MB, open_as, options};
use crate::progress::Bar;
use crate::recovery::Threads;
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::{Common, setup};

const GB: u64 = 1024 * MB;
/// What the arena may grow to.
const ARENA_BYTES: u64 = 8 * GB;
const PAGE_BYTES: u64 = 4096;
/// How often it is looked how much memory is in use.
const LOOK: Duration = Duration::from_millis(1);
/// Pages of a range of the allocator's bitmap, and bytes of a range in its table.
const RANGE_PAGES: u64 = 512;
const RANGE_BYTES: u64 = 128;
/// Ranges whose free pages one word sums.
const GROUP: u64 = 64;
const LANE_BYTES: u64 = 1024;
/// Of a page that has a part of the saved allocator.
const SAVED_BYTES_A_PAGE: u64 = 4096 - 64;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Pools, each as GB:SLOTS:LANES.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "GB:SLOTS:LANES",
        default_value = "4:1:4,16:1:4,64:1:4,64:4:4,64:4:64,64:64:64,1024:16:16,12288:64:64"
    )]
    pools: Vec<Shape>,
}

/// A pool's size, slots and lanes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    gb: u64,
    slots: u64,
    lanes: u32,
}

impl FromStr for Shape {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':').map(u64::from_str);
        let mut next = || parts.next().and_then(Result::ok);
        let whole = || anyhow!("{text} is not GB:SLOTS:LANES");
        let [gb, slots, lanes] = [next(), next(), next()].map(|part| part.ok_or_else(whole));
        Ok(Self { gb: gb?, slots: slots?, lanes: u32::try_from(lanes?)? })
    }
}

/// What was counted of one pool.
#[derive(Default)]
struct Found {
    arena: u64,
    saved: u64,
    clean_us: Vec<u64>,
    clean_heap: u64,
    crashed_us: Vec<u64>,
    crashed_heap: u64,
    close_us: Vec<u64>,
    close_heap: u64,
    say_us: Vec<u64>,
}

/// Makes pools of each shape, and opens them in both ways, round by round.
pub(crate) fn run(common: &Common, wanted: &Options) -> Result<Report> {
    let exec = Threads(common.threads()?);
    // What does not go by the size.
    let least = Shape { gb: 1, slots: 1, lanes: 1 };
    let base = measure(least, 1, &exec)?.arena - tables(least);
    let bar = Bar::new("pools", wanted.pools.len() as u64);
    let mut rows = Vec::new();
    for shape in &wanted.pools {
        rows.push(row(*shape, base, &measure(*shape, common.rounds, &exec)?));
        bar.step();
    }
    let mut setup = setup(common);
    setup.push(("threads", exec.0.to_string()));
    Ok(Report {
        name: "capacity",
        title: "what empty pools cost: KB of DRAM, KB that closing saves, us to open and to close"
            .into(),
        setup,
        columns: [
            "GB",
            "slots",
            "lanes",
            "arena",
            "by its tables",
            "heap, clean",
            "heap, crashed",
            "saved",
            "by its bits",
            "open, clean",
            "spread",
            "open, crashed",
            "spread",
            "close",
            "heap, close",
            "say",
        ]
        .map(str::to_owned)
        .into(),
        rows,
    })
}

fn row(shape: Shape, base: u64, found: &Found) -> Vec<Cell> {
    let kb = |bytes: u64| Cell::Count(bytes.div_ceil(1024));
    let spread = |times: &[u64]| {
        let (least, most) = (times.iter().min(), times.iter().max());
        Cell::Spread(least.copied().unwrap_or(0), most.copied().unwrap_or(0))
    };
    let us = |times: &[u64]| Cell::Count(median(times.iter().copied()));
    vec![
        Cell::Count(shape.gb),
        Cell::Count(shape.slots),
        Cell::Count(u64::from(shape.lanes)),
        kb(found.arena),
        kb(base + tables(shape)),
        kb(found.clean_heap),
        kb(found.crashed_heap),
        kb(found.saved),
        kb(saved(shape)),
        us(&found.clean_us),
        spread(&found.clean_us),
        us(&found.crashed_us),
        spread(&found.crashed_us),
        us(&found.close_us),
        kb(found.close_heap),
        us(&found.say_us),
    ]
}

/// Bytes of the arena's tables that go by the pool's size, slots and lanes.
fn tables(shape: Shape) -> u64 {
    let ranges = shape.ranges();
    let groups = (ranges.div_ceil(GROUP) + shape.slots) * 8;
    let wear = (1 + shape.slots) * 64;
    ranges * (RANGE_BYTES + 8) + groups + wear + u64::from(shape.lanes) * (LANE_BYTES + 8)
}

/// Bytes of pages that the allocator is saved in: a bit for each page, and for each of 8192 numbers of inodes.
fn saved(shape: Shape) -> u64 {
    (shape.ranges() * RANGE_PAGES / 8 + 1024).div_ceil(SAVED_BYTES_A_PAGE) * PAGE_BYTES
}

impl Shape {
    fn slot_bytes(self) -> u64 {
        self.gb * GB / self.slots / PAGE_BYTES * PAGE_BYTES
    }

    fn ranges(self) -> u64 {
        (self.slot_bytes() / PAGE_BYTES).div_ceil(RANGE_PAGES) * self.slots
    }
}

fn measure(shape: Shape, rounds: u64, exec: &Threads) -> Result<Found> {
    let lens = vec![shape.slot_bytes(); usize::try_from(shape.slots)?];
    let mut pm = Pm::anonymous(&lens, &PmOptions::default())?;
    let options =
        MkfsOptions { now_ns: EPOCH_NS, ..MkfsOptions::numbered(lens.len(), shape.lanes) };
    mkfs(&pm, &options)?;
    let mut found = Found::default();
    for round in 0..=rounds {
        let (fs, crashed_us, heap) = opened(pm, exec)?;
        found.arena = found.arena.max(fs.index_memory().used_bytes);
        // The first one has no death before it.
        if round > 0 {
            found.crashed_us.push(crashed_us);
            found.crashed_heap = found.crashed_heap.max(heap);
        }
        let counted = fs.counters();
        let (closed, us, heap) = watched(|| fs.close())?;
        closed?;
        found.close_us.push(us);
        // The first one touches pages of the slots, which are this process' own memory too.
        let before = Some(found.close_heap).filter(|_| round > 0).unwrap_or(u64::MAX);
        found.close_heap = before.min(heap);
        found.saved = found.saved.max((&fs.counters() - &counted).total().bytes);
        pm = fs.into_pm();
        let (said, us, _) = watched(|| space(&pm))?;
        said?.context("a pool that was closed clean says what is free")?;
        found.say_us.push(us);
        let (fs, clean_us, heap) = opened(pm, exec)?;
        found.clean_us.push(clean_us);
        found.clean_heap = found.clean_heap.max(heap);
        let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
        let name = format!("f{round}");
        fs.create(&ctx, Node::ROOT, name.as_bytes(), &new(FileKind::File))?;
        // As one that was killed.
        pm = fs.into_pm();
    }
    Ok(found)
}

/// The pool opened, how long that took, and how much heap it took meanwhile.
fn opened(pm: Pm, exec: &Threads) -> Result<(Fs, u64, u64)> {
    let (fs, us, heap) = watched(|| open_as(pm, &options(), exec, ARENA_BYTES))?;
    Ok((fs?, us, heap))
}

/// What something comes to, how long it took, in us, and how much heap it took meanwhile, what is streamed to the slots
/// included.
fn watched<T>(what: impl FnOnce() -> T) -> Result<(T, u64, u64)> {
    let (before, most, is_over) = (heap_bytes()?, AtomicU64::new(0), AtomicBool::new(false));
    let (done, us) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                most.fetch_max(heap_bytes().unwrap_or(0), Ordering::AcqRel);
                std::thread::park_timeout(LOOK);
            }
        });
        let begun = Instant::now();
        let done = what();
        let us = u64::try_from(begun.elapsed().as_micros());
        is_over.store(true, Ordering::Release);
        (done, us)
    });
    Ok((done, us?, most.into_inner().saturating_sub(before)))
}

/// Memory of this process' own that is in use: its heap, and what is there of the slots.
fn heap_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kb.context("RssAnon")? * 1024)
}
