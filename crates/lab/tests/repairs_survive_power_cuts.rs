//! The promise: a repair may be cut off anywhere. What the power cut leaves is repaired by the next
//! one to a sound pool, with all that could be read before; for `NOVALE_LAB_SECONDS`, from
//! `NOVALE_LAB_SEED` on.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at what fails, and says what it met"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use novale_core::repair::{Effort, Help, SavedPiece, repair};
use novale_core::{
    Ctx, FileKind, Form, Fs, NewInode, Node, OpenOptions, Serial, SetXattr, UpdatePolicy,
};
use novale_lab::crash::{Event, Hardware, LineKey, Recorder, What};
use novale_lab::diff::{Budget, Manner, make_pool, new_arena, open_pool};
use novale_lab::images::{CutRepair, Image, Pools, Recipe};
use novale_lab::pool_file::PoolFile;
use novale_pm::{Observer, PmOptions, Purpose, StoreKind};

const CORPUS: &str = include_str!("../corpus/images.txt");
/// Repairs that are cut.
const REPAIRS: u64 = 16;
/// Images of a cut that are repaired.
const IMAGES_AT_A_FENCE: usize = 5;

fn recipes() -> Vec<Recipe> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().unwrap()).collect()
}

/// Cuts a repair of these slots at its fences; how often, or what was wrong.
fn cut(slots: &[Vec<u8>], effort: Effort, random: &mut Rng) -> Result<usize, String> {
    let Some(repair) = CutRepair::record(slots, effort)? else { return Ok(0) };
    repair.cut_at_fences(slots.to_vec(), IMAGES_AT_A_FENCE, random)
}

#[test]
fn at_every_fence() {
    let mut recipes = recipes();
    let budget = Budget::from_env(REPAIRS, 0);
    let mut random = Rng::with_seed(budget.seed);
    random.shuffle(&mut recipes);
    let (start, mut pools) = (Instant::now(), Pools::default());
    let (mut repairs, mut cuts, mut wrong) = (0, 0, Vec::new());
    for recipe in recipes {
        if !budget.goes_on(repairs, start) {
            break;
        }
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        for effort in [Effort::Safe, Effort::Salvage] {
            match cut(&slots, effort, &mut random) {
                Ok(0) => {}
                Ok(count) => (repairs, cuts) = (repairs + 1, cuts + count),
                Err(what) => wrong.push(format!("{recipe} ({effort:?}): {what}")),
            }
        }
    }
    println!("repairs_survive_power_cuts: {repairs} repairs, cut {cuts} times");
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), wrong);
    assert!(cuts as u64 > repairs, "no repair was cut");
}

/// The first repair of the corpus that is like this, and the pool.
fn first(effort: Effort, is_meant: impl Fn(&CutRepair) -> bool) -> (Vec<Vec<u8>>, CutRepair) {
    let mut pools = Pools::default();
    let repairs = recipes().into_iter().filter_map(|recipe| {
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        Some((CutRepair::record(&slots, effort).unwrap()?, slots))
    });
    let (repair, slots) = repairs.into_iter().find(|(repair, _)| is_meant(repair)).unwrap();
    (slots, repair)
}

/// Cuts a repair wherever one line alone is under way, and tears that line in every way that leaves one
/// unit out.
fn tear_single_lines((slots, repair): (Vec<Vec<u8>>, CutRepair)) {
    let mut hardware = Hardware::with(slots);
    let mut torn = 0;
    for event in &repair.events {
        if matches!(event.what, What::Fence)
            && hardware.pending().len() == 1
            && let Some((key, units)) = hardware.pending().first_key_value()
            && units.len() > 1
        {
            for missing in 0..units.len() {
                let line = hardware.line_with(*key, |index| index != missing);
                let left = hardware.after_cut(&[(*key, line)]).durable_copy();
                assert_eq!(repair.judge_cut(&left), Ok(()), "{key:?} without unit {missing}");
                torn += 1;
            }
        }
        hardware.apply(event);
    }
    assert!(torn > 0, "no line was alone");
}

/// A file's entry named a page of another file. The repair gave it a copy and stored its new commit
/// line; cut off in the middle of that line, the next repair took the torn line for a newer state
/// that was lost, and refused to go on without a salvage.
#[test]
fn of_a_file_that_shares_pages_in_the_middle_of_its_line() {
    tear_single_lines(first(Effort::Safe, |repair| repair.says("pages that others have too") > 0));
}

/// Files without names got some in a lost+found that the repair made. Cut off in the middle of its
/// first commit line, it was an inode of which nothing can be read: the next repair asked for a
/// salvage, and no mount for writing was allowed.
#[test]
fn of_a_new_lost_and_found_in_the_middle_of_its_line() {
    tear_single_lines(first(Effort::Safe, |repair| repair.says("/lost+found is made") > 0));
}

/// A pool that was closed clean, with a file whose extended attributes are damaged, and what a write to that file by
/// a method stores.
fn write_beside_damage(update: UpdatePolicy) -> (Vec<Vec<u8>>, Vec<Event>) {
    let manner = Manner { update: Some(update), ..Form::Auto.into() };
    let ctx = Ctx { now_ns: 5, hint: 0 };
    let pool = PoolFile::zeroed(&[2 << 20]).unwrap();
    let pm = pool.open(&PmOptions::default()).unwrap();
    make_pool(&pm, 1).unwrap();
    let fs = open_pool(pm, manner, 5).unwrap();
    let (kind, mode) = (FileKind::File, 0o644);
    let new = NewInode { kind, mode, uid: 0, gid: 0, rdev: 0, target: b"" };
    let file = fs.create(&ctx, Node::ROOT, b"f", &new).unwrap().ino;
    fs.write(&ctx, file, 0, &[1; 9000]).unwrap();
    let long = SetXattr { name: b"user.long", value: &[3; 9000], ..SetXattr::default() };
    fs.setxattr(&ctx, Node::current(file), &long).unwrap();
    fs.close().unwrap();
    drop(fs);
    let bytes = pool.contents(0).unwrap();
    let value = bytes.chunks(4096).position(|page| page == [3; 4096]).unwrap();
    pool.put(0, value as u64 * 4096, &[4]).unwrap();
    let slots = pool.slots().unwrap();
    let recorder = Arc::new(Recorder::default());
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    let pm = pool.open(&PmOptions { observer, ..PmOptions::default() }).unwrap();
    let fs = open_pool(pm, manner, 6).unwrap();
    fs.write(&ctx, file, 4000, &[2; 700]).unwrap();
    (slots, recorder.take())
}

/// The bytes of that file, as who only reads sees them.
fn contents(slots: &[Vec<u8>]) -> Vec<u8> {
    let pm = laid(slots).open(&PmOptions::default()).unwrap();
    let options = OpenOptions { read_only: true, now_ns: 8, ..OpenOptions::default() };
    let fs = Fs::open(pm, new_arena().unwrap(), &options, &Serial, &|_| {}).unwrap();
    let ctx = Ctx { now_ns: 8, hint: 0 };
    let (file, mut bytes) = (fs.lookup(&ctx, Node::ROOT, b"f").unwrap().ino, vec![0; 9000]);
    assert_eq!(fs.read(&ctx, file, 0, &mut bytes).unwrap(), 9000);
    bytes
}

/// The line by which a salvage gave the attributes up superseded what recovery was to carry out: an acknowledged
/// write by the log was lost, and one that an undo log was to take back stayed half done.
#[test]
fn of_a_file_to_which_recovery_owes_bytes() {
    let mut random = Rng::with_seed(1);
    for update in [UpdatePolicy::FineLog, UpdatePolicy::Adl] {
        let (slots, events) = write_beside_damage(update);
        let mut cuts = 0;
        for (_, shown) in deaths(&slots, &events) {
            let (pool, before) = (laid(&shown), contents(&shown));
            let pm = pool.open(&PmOptions::default()).unwrap();
            let mut keep = |_: &SavedPiece<'_>| Ok(());
            let mut help = Help {
                exec: &Serial,
                progress: &|_| {},
                keep: &mut keep,
                now_ns: 9,
                owner: (0, 0),
            };
            let report = repair(&pm, Effort::Salvage, &mut help).unwrap();
            assert!(report.left.findings.is_empty() && report.changes.iter().any(|it| it.is_loss));
            drop(pm);
            assert!(contents(&pool.slots().unwrap()) == before, "{update:?}");
            cuts += cut(&shown, Effort::Salvage, &mut random).unwrap();
        }
        assert!(cuts > 100, "{update:?}: cut {cuts} times");
    }
}

/// Many files without names, in a lost+found of several log pages. The header of a page was streamed,
/// and the word in it that names the next page stored over it before any fence: which of the two would
/// last was left to the machine.
#[test]
fn which_store_to_a_new_log_page_comes_last() {
    const LINES_OF_A_PAGE: usize = 63;
    let is_meant = |repair: &CutRepair| repair.says("had no name") > LINES_OF_A_PAGE;
    let (_, repair) = first(Effort::Salvage, is_meant);
    let (mut streamed, mut linked) = (BTreeSet::new(), 0);
    for event in &repair.events {
        match &event.what {
            What::Fence => streamed.clear(),
            What::Store { kind: StoreKind::Streaming, .. } => streamed.extend(event.stored_lines()),
            What::Store { .. } => {
                linked += 1;
                let both = event.stored_lines().find(|line| streamed.contains(line));
                assert_eq!(both, None, "stored over a line that is streamed, at {}", event.site);
            }
            What::WriteBack { .. } => {}
        }
    }
    assert!(linked > 0, "no page was linked");
}

/// A process that died before each of its fences in turn: the memory that it left, and what of that others see.
fn deaths(slots: &[Vec<u8>], events: &[Event]) -> Vec<(Hardware, Vec<Vec<u8>>)> {
    let (mut hardware, mut deaths) = (Hardware::with(slots.to_vec()), Vec::new());
    for event in events {
        if matches!(event.what, What::Fence) && !hardware.pending().is_empty() {
            let mut left = hardware.clone();
            left.forget(None);
            let lines = left.pending().keys().map(|key| (*key, left.line_with(*key, |_| true)));
            let shown = left.after_cut(&lines.collect::<Vec<_>>()).durable_copy();
            deaths.push((left, shown));
        }
        hardware.apply(event);
    }
    deaths
}

/// A pool of these slots.
fn laid(slots: &[Vec<u8>]) -> PoolFile {
    let lens: Vec<u64> = slots.iter().map(|slot| slot.len() as u64).collect();
    let pool = PoolFile::zeroed(&lens).unwrap();
    for (slot, bytes) in (0..).zip(slots) {
        pool.put(slot, 0, bytes).unwrap();
    }
    pool
}

/// What a session does to a pool that it opens and makes a file in; none where that can't be opened.
fn session(slots: &[Vec<u8>]) -> Vec<Event> {
    let pool = laid(slots);
    let recorder = Arc::new(Recorder::default());
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    let pm = pool.open(&PmOptions { observer, ..PmOptions::default() }).unwrap();
    let Ok(fs) = open_pool(pm, Form::Auto, 5) else { return Vec::new() };
    let ctx = Ctx { now_ns: 5, hint: 0 };
    let (kind, mode) = (FileKind::File, 0o644);
    let new = NewInode { kind, mode, uid: 0, gid: 0, rdev: 0, target: b"" };
    // In a damaged pool it may fail.
    if let Ok(made) = fs.create(&ctx, Node::ROOT, b"made by who died", &new) {
        fs.write(&ctx, made.ino, 0, &[7; 5000]).unwrap_or_default();
    }
    recorder.take()
}

/// The lines that are in the caches alone and have what some state is judged by: lines of inodes, records, those
/// of the pool.
fn states_of_the_dead(hardware: &Hardware) -> Vec<LineKey> {
    let is_of = |purpose| matches!(purpose, Purpose::Commit | Purpose::Journal | Purpose::Other);
    let pending = hardware.pending().iter();
    let states = pending.filter(|(_, stores)| stores.iter().any(|store| is_of(store.purpose)));
    states.map(|(key, _)| *key).collect()
}

/// A repair went on from what dead processes had left in the caches: the state line of a session that the
/// pool was opened in, for one. A power cut left what the repair had stored and took that line back: the pool
/// was one that was closed clean, with a saved allocator that knew nothing of the repair's pages.
#[test]
fn what_a_killed_process_left_is_durable_before_it_is_built_on() {
    const DEATHS: usize = 40;
    let (mut pools, mut seen) = (Pools::default(), 0);
    for recipe in recipes() {
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        for (mut hardware, shown) in deaths(&slots, &session(&slots)) {
            let Some(repair) = CutRepair::record(&shown, Effort::Salvage).unwrap() else {
                continue;
            };
            let dead = states_of_the_dead(&hardware);
            let (mut is_first, mut is_over) = (true, false);
            for event in &repair.events {
                if let What::Store { purpose, .. } = event.what {
                    let is_commit = purpose == Purpose::Commit;
                    let mut left = dead.iter().filter(|key| hardware.pending().contains_key(key));
                    let found = left.find(|key| is_commit || (is_first && key.line < 64));
                    assert_eq!(found, None, "{recipe}: at {}", event.site);
                    (is_first, is_over) = (false, is_over || is_commit);
                }
                if is_over {
                    break;
                }
                hardware.apply(event);
            }
            seen += usize::from(is_over && !dead.is_empty());
        }
        if seen >= DEATHS {
            return;
        }
    }
    panic!("{seen} repairs behind a death");
}

/// A repair was killed before the last fence of a salvage, whose line was in the cache. The pool was sound
/// by that line, and a mount went on from it; a power cut brought the damaged state back, with pages that
/// were others' by then.
#[test]
fn what_a_killed_repair_left_is_durable_once_the_pool_is_open() {
    const DEATHS: usize = 40;
    let (mut pools, mut seen) = (Pools::default(), 0);
    for recipe in recipes() {
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        let Some(repair) = CutRepair::record(&slots, Effort::Salvage).unwrap() else { continue };
        for (mut hardware, shown) in deaths(&slots, &repair.events) {
            let opening = session(&shown);
            let dead = states_of_the_dead(&hardware);
            if opening.is_empty() || dead.is_empty() {
                continue;
            }
            for event in &opening {
                hardware.apply(event);
            }
            let left = dead.iter().find(|key| hardware.pending().contains_key(key));
            assert_eq!(left, None, "{recipe}: of {} events", opening.len());
            seen += 1;
        }
        if seen >= DEATHS {
            return;
        }
    }
    panic!("{seen} openings behind a death");
}
