//! The promise: what check, dump, info and repair answer to a damaged pool stays as it was looked over.
//!
//! The pools are kept as bytes (`crates/core/tests/pools`, `corpus/pools`), so that nothing but these answers, and
//! the damage, may change them. `corpus/answers.txt` has a line for each pool, what is there of it and kind of
//! damage, with a number for each seed: a hash of all that is answered, and of the bytes that a repair leaves.
//! The first seeds are tried, or with `NOVALE_LAB_EACH` and in a share all of them.
//!
//! Where one differs, `NOVALE_LAB_ANSWERS=FOLDER` writes the answers themselves there, a file for each: those of two
//! builds are compared by `diff -r`. `NOVALE_LAB_ACCEPT=1` takes the new ones.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at what fails, and writes what it is asked for"
)]

mod support;
#[path = "../../core/tests/support/tables.rs"]
mod tables;

use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fastrand::Rng;
use novale_arena::Arena;
use novale_core::dump::{Dump, DumpLimits};
use novale_core::repair::{Effort, Help, SavedPiece, give_up_slot, repair};
use novale_core::{Fs, Ino, OpenOptions, Progress, Serial, check, identify_slot, inspect, space};
use novale_lab::damage::{Kind, wound};
use novale_lab::images::copied;
use novale_lab::pool_file::PoolFile;
use novale_layout::{LINE, PAGE, PmAddr};
use novale_pm::{Pm, PmOptions, SlotSpec};
use support::{is_share, one_in, share};
use tables::move_table;
use xxhash_rust::xxh3::xxh3_64;

const ANSWERS: &str = include_str!("../corpus/answers.txt");
/// A pool: its name, bytes of each slot, and its lines that are not zero, as `pools_of_earlier_builds_open` writes
/// them.
type Kept = (&'static str, &'static [u64], &'static [u8]);
const TWO: &[u64] = &[2 << 20, 1 << 20];
/// Those of `images` have one slot.
const ONE: &[u64] = &[3 << 20];
const POOLS: [Kept; 7] = [
    ("clean", TWO, include_bytes!("../../core/tests/pools/v1-clean.lines")),
    ("single", TWO, include_bytes!("../../core/tests/pools/v1-single.lines")),
    ("two", TWO, include_bytes!("../../core/tests/pools/v1-two.lines")),
    ("tree closed", ONE, include_bytes!("../corpus/pools/tree-closed.lines")),
    ("tree crashed", ONE, include_bytes!("../corpus/pools/tree-crashed.lines")),
    ("full crashed", ONE, include_bytes!("../corpus/pools/full-crashed.lines")),
    ("logs crashed", ONE, include_bytes!("../corpus/pools/logs-crashed.lines")),
];
const ROW_BYTES: usize = 8 + 8 + 64;
/// What the view of a pool may take: it is a limit, not a measure.
const ARENA_BYTES: u64 = 16 << 20;
/// Seeds of each kind of damage; every second one has a wound of any kind beside it.
const SEEDS: u64 = 16;
/// Of these the first so many are tried where nothing else is asked for.
const FIRST_SEEDS: u64 = 4;
/// Inodes that are dumped, and pages.
const NUMBERS: u64 = 40;
const PAGES: usize = 8;
/// Items of each that are.
const LIMITS: DumpLimits = DumpLimits { items: 100, behind: true };

/// What is there of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    All,
    /// The second slot is lost.
    First,
    /// The same, with the table that names the pages of all inodes in it.
    NoTable,
}

fn pool_of((_, lens, rows): Kept) -> PoolFile {
    let pool = PoolFile::zeroed(lens).unwrap();
    for row in rows.chunks(ROW_BYTES) {
        let number = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().unwrap());
        let (slot, first) =
            (u8::try_from(number(0) >> 32).unwrap(), number(0) & u64::from(u32::MAX));
        let lines = row[16..].repeat(usize::try_from(number(8)).unwrap());
        pool.put(slot, first * LINE, &lines).unwrap();
    }
    pool
}

fn open(pool: &PoolFile, there: There, read_only: bool) -> Pm {
    let mut specs: Vec<Option<SlotSpec>> = pool.specs().into_iter().map(Some).collect();
    if there != There::All {
        specs[1] = None;
    }
    Pm::open_there(&specs, &PmOptions { read_only, ..PmOptions::default() }).unwrap()
}

/// What is told of how far something is.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<(&'static str, u64, u64)>>);

impl Told {
    fn by(&self) -> impl Fn(Progress) {
        |Progress { what, done, total }| self.0.lock().unwrap().push((what, done, total))
    }
}

/// All that is answered, and the same to be read, with a heading before each, where that is asked for.
#[derive(Default)]
struct Answers {
    all: String,
    shown: Option<String>,
}

impl Answers {
    fn add(&mut self, heading: &str, answer: &impl Debug) {
        write!(self.all, "{answer:?}").unwrap();
        if let Some(shown) = &mut self.shown {
            writeln!(shown, "== {heading}\n{answer:#?}").unwrap();
        }
    }

    fn look(&mut self, pm: &Pm, random: &mut Rng) {
        self.add("info", &inspect(pm));
        self.add("space", &space(pm));
        let all = 0..pm.slot_count();
        self.add("slots", &all.map(|slot| identify_slot(pm, slot)).collect::<Vec<_>>());
        let told = Told::default();
        self.add("check", &check(pm, &Serial, &told.by()));
        let dump = Dump::new(pm);
        self.add("remarks", &dump.remarks());
        self.add("pool", &(dump.pool(), dump.slots(), dump.lanes(), dump.saved(LIMITS)));
        for number in 0..NUMBERS {
            self.add("inode", &dump.inode(Ino::new(number), LIMITS));
        }
        for path in
            ["/directory/Cow", "tree/inside", "link/none", "top 1/a/deep/moved", "many 0/log"]
        {
            self.add("path", &dump.find(path.as_bytes()));
        }
        for _ in 0..PAGES {
            let slot = random.u8(0..pm.slot_count());
            let page = PmAddr::new(slot, random.u64(0..=pm.slot_len(slot) / PAGE) * PAGE);
            self.add("page", &dump.page(page, &Serial, &told.by()));
        }
        self.add("told", &told);
    }

    /// What an opening says; what recovery stores is not asked here.
    fn open(&mut self, pm: Pm, read_only: bool) {
        let options = OpenOptions { read_only, now_ns: 60, ..OpenOptions::default() };
        let arena = Arena::anonymous(ARENA_BYTES).unwrap();
        let fs = Fs::open(pm, arena, &options, &Serial, &|_| ());
        self.add("open", &fs.map(|fs| fs.statfs().map(|is| (is.pages_free, is.inodes))));
    }

    fn repair(&mut self, slots: &[Vec<u8>], there: There, effort: Effort) {
        let pool = copied(slots).unwrap();
        let mut kept = Vec::new();
        let mut keep = |piece: &SavedPiece<'_>| {
            kept.push((piece.ino, piece.at, xxh3_64(piece.bytes)));
            Ok(())
        };
        let told = Told::default();
        let mut help = Help {
            exec: &Serial,
            progress: &told.by(),
            keep: &mut keep,
            now_ns: 50,
            owner: (0, 0),
        };
        let pm = open(&pool, there, false);
        let done = match there {
            There::All => repair(&pm, effort, &mut help),
            There::First | There::NoTable => give_up_slot(&pm, TWO[1] / PAGE, &mut help),
        };
        drop(pm);
        self.add("repair", &(effort, there, done));
        self.add("kept", &kept);
        self.add("told", &told);
        let pages = |bytes: &Vec<u8>| bytes.chunks(4096).map(xxh3_64).collect::<Vec<_>>();
        self.add("left", &pool.slots().unwrap().iter().map(pages).collect::<Vec<_>>());
    }
}

fn answers(pool: Kept, there: There, kind: Kind, seed: u64) -> Answers {
    let pool = pool_of(pool);
    let mut random = Rng::with_seed(seed);
    let kinds = [kind].into_iter().chain((seed % 2 == 1).then(|| Kind::any(&mut random)));
    let pm = open(&pool, There::All, false);
    if there == There::NoTable {
        move_table(&pm, 0);
    }
    let shown = folder().map(|_| String::new());
    let mut answers = Answers { shown, ..Answers::default() };
    for kind in kinds.collect::<Vec<_>>() {
        answers.add("wound", &wound(&pm, kind, &mut random));
    }
    drop(pm);
    answers.look(&open(&pool, there, true), &mut random);
    let slots = pool.slots().unwrap();
    answers.repair(&slots, there, Effort::Safe);
    if there == There::All {
        answers.repair(&slots, there, Effort::Salvage);
    }
    for read_only in [true, false] {
        answers.open(open(&copied(&slots).unwrap(), there, read_only), read_only);
    }
    answers
}

/// The rows of `ANSWERS`: name, and what it is of.
fn rows() -> Vec<(String, Kept, There, Kind)> {
    let mut rows = Vec::new();
    for pool in POOLS {
        let parts: &[There] =
            if pool.1 == ONE { &[There::All] } else { &[There::All, There::First, There::NoTable] };
        for there in parts {
            let kinds = Kind::ALL.iter().filter(|(_, kind)| *kind != Kind::CutOff);
            rows.extend(
                kinds.map(|(name, kind)| {
                    (format!("{} {there:?} {name}", pool.0), pool, *there, *kind)
                }),
            );
        }
    }
    rows
}

fn folder() -> Option<PathBuf> {
    std::env::var_os("NOVALE_LAB_ANSWERS").map(PathBuf::from)
}

#[test]
fn of_each_pool_and_kind() {
    let accepts = std::env::var_os("NOVALE_LAB_ACCEPT").is_some() && !is_share();
    let seeds = if accepts || is_share() || one_in(2) == 1 { SEEDS } else { FIRST_SEEDS };
    let (mut text, mut changed) = (String::new(), Vec::new());
    for (name, pool, there, kind) in share(rows()) {
        write!(text, "{name}:").unwrap();
        // What names inodes is of few words, which few wounds meet.
        let seeds = if kind == Kind::Tables { 3 * seeds } else { seeds };
        for seed in 0..seeds {
            let answers = answers(pool, there, kind, seed);
            write!(text, " {:08x}", xxh3_64(answers.all.as_bytes()) >> 32).unwrap();
            if let (Some(folder), Some(shown)) = (folder(), answers.shown) {
                fs::write(folder.join(format!("{name} {seed}")), shown).unwrap();
            }
        }
        let row = text.lines().next_back().unwrap();
        changed.extend((!ANSWERS.lines().any(|known| known.starts_with(row))).then_some(name));
        text.push('\n');
    }
    if accepts {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/answers.txt");
        return fs::write(file, text).unwrap();
    }
    assert!(
        changed.is_empty(),
        "other answers than before, see the head of this file: {changed:#?}"
    );
}
