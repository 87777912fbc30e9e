//! Slots of a pool are worn evenly, by their size and what they endure, and say how far they are worn.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use novale_arena::Arena;
use novale_core::{
    ColdMove, Ctx, Form, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, Placement, Serial,
    SetAttr, UpdatePolicy, inspect, live_wear, mkfs, saved_wear,
};
use novale_layout::{FileKind, PmAddr, WEAR_PAGE};
use novale_pm::{Pm, PmOptions, Purpose};
use support::{MB, open, open_as, pool, verify};

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const PAGE: u64 = 4096;

fn file(fs: &Fs, name: &[u8]) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::current(Ino::ROOT), name, &new).unwrap().ino
}

fn wasa(update: UpdatePolicy) -> OpenOptions {
    OpenOptions { update: Some(update), now_ns: 2, ..OpenOptions::default() }
}

/// Lines that reached each slot from `before` on.
fn since(fs: &Fs, before: &[u64]) -> Vec<u64> {
    fs.wear().unwrap().iter().zip(before).map(|(now, before)| now - before).collect()
}

/// Makes `count` files of `pages` pages, each removed when ten more are there.
fn come_and_go(fs: &Fs, count: usize, pages: u64) {
    let bytes = vec![7; usize::try_from(pages * PAGE).unwrap()];
    for turn in 0..count {
        let ino = file(fs, format!("f{turn}").as_bytes());
        fs.write(&CTX, ino, 0, &bytes).unwrap();
        if let Some(old) = turn.checked_sub(10) {
            fs.unlink(&CTX, Node::current(Ino::ROOT), format!("f{old}").as_bytes()).unwrap();
        }
    }
}

/// By how much the most worn slot is above its share, of lines in all; `shares` add up to 1.
fn skew(lines: &[u64], shares: &[f64]) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "counts of a test")]
    let real = |lines: u64| lines as f64;
    let all = real(lines.iter().sum());
    let over = lines.iter().zip(shares).map(|(lines, share)| real(*lines) / all / share);
    over.fold(0.0, f64::max) - 1.0
}

#[test]
fn what_reached_a_slot_is_known_at_the_next_opening() {
    let fs = open(pool(&[8 * MB, 8 * MB], 2), Form::Auto);
    assert_eq!(fs.wear().unwrap().len(), 2);
    come_and_go(&fs, 30, 20);
    let counted = fs.wear().unwrap();
    assert!(counted.iter().all(|lines| *lines > 10_000), "{counted:?}");
    fs.close().unwrap();
    let pm = fs.into_pm();
    let info = inspect(&pm).unwrap();
    let saved = saved_wear(&pm, &info).unwrap();
    // Closing stores something itself, of which the last lines are not in what it saves.
    for (saved, counted) in saved.iter().zip(&counted) {
        assert!((*counted..counted + 100).contains(saved), "{saved} of {counted}");
    }
    let fs = open(pm, Form::Auto);
    let now = fs.wear().unwrap();
    for (now, saved) in now.iter().zip(&saved) {
        assert!((*saved..saved + 100).contains(now), "{now} of {saved}");
    }
}

#[test]
fn a_wear_line_that_is_torn_leaves_the_one_before() {
    let fs = open(pool(&[8 * MB], 1), Form::Auto);
    come_and_go(&fs, 5, 20);
    fs.save_wear().unwrap();
    come_and_go_again(&fs);
    fs.save_wear().unwrap();
    let pm = fs.into_pm();
    let saved = |pm: &Pm| saved_wear(pm, &inspect(pm).unwrap()).unwrap()[0];
    let newest = saved(&pm);
    // The second line that was written, and not to the place of the first.
    let at = PmAddr::new(0, WEAR_PAGE * PAGE + 2 * 64);
    pm.fence(pm.stream(at.add(8), &[0xff; 8], Purpose::Other)).end();
    let before = saved(&pm);
    assert!((1000..newest).contains(&before), "{before} of {newest}");
    verify(&pm);
    let fs = open(pm, Form::Auto);
    assert!(fs.wear().unwrap()[0] >= before);
    fs.save_wear().unwrap();
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert!(saved(&pm) > before);
    verify(&pm);
}

/// Overwrites a file that is there.
fn come_and_go_again(fs: &Fs) {
    let ino = fs.lookup(&CTX, Node::current(Ino::ROOT), b"f0").unwrap().ino;
    for _ in 0..10 {
        fs.write(&CTX, ino, 0, &vec![9; 16 * 4096]).unwrap();
    }
}

/// Slots of which one has twice the pages of the others: a share of two fifths.
const UNEQUAL: [u64; 4] = [32 * MB, 16 * MB, 16 * MB, 16 * MB];
const SHARES: [f64; 4] = [0.4, 0.2, 0.2, 0.2];

fn skew_of(placement: Placement) -> f64 {
    let fs = open_as(pool(&UNEQUAL, 2), &OpenOptions { placement, ..wasa(UpdatePolicy::Auto) });
    let before = fs.wear().unwrap();
    come_and_go(&fs, 200, 100);
    skew(&since(&fs, &before), &SHARES)
}

#[test]
fn slots_are_worn_by_their_size() {
    let by_wear = skew_of(Placement::Wasa);
    assert!(by_wear < 0.02, "{by_wear}");
    let by_turns = skew_of(Placement::Single);
    assert!(by_turns > 10.0 * by_wear, "{by_turns}");
}

#[test]
fn a_slot_that_endures_more_gets_more() {
    let pm = Pm::anonymous(&[16 * MB, 16 * MB], &PmOptions::default()).unwrap();
    let mut options = MkfsOptions::numbered(2, 2);
    options.endurance = vec![100, 300];
    mkfs(&pm, &options).unwrap();
    assert_eq!(inspect(&pm).unwrap().slots[1].endurance, 300);
    let fs = open_as(pm, &wasa(UpdatePolicy::Auto));
    let before = fs.wear().unwrap();
    come_and_go(&fs, 200, 30);
    let skew = skew(&since(&fs, &before), &[0.25, 0.75]);
    assert!(skew < 0.05, "{skew}");
}

/// A page that is copied for each overwrite does not go back and forth within a slot.
#[test]
fn overwritten_pages_come_from_all_slots() {
    let fs = open_as(pool(&[16 * MB; 4], 2), &wasa(UpdatePolicy::Cow));
    let ino = file(&fs, b"f");
    let before = fs.wear().unwrap();
    for _ in 0..40_000 {
        fs.write(&CTX, ino, 0, &[1; 4096]).unwrap();
    }
    let lines = since(&fs, &before);
    // What goes to the log and the inode's own lines stays where these are.
    let skew = skew(&lines, &[0.25; 4]);
    assert!(skew < 0.12, "{skew}: {lines:?}");
}

/// Small overwrites allocate nothing: a page that gets many leaves its slot.
#[test]
fn pages_with_two_copies_leave_a_worn_slot() {
    let by = |placement| {
        let options = OpenOptions { placement, ..wasa(UpdatePolicy::Auto) };
        let fs = open_as(pool(&[16 * MB; 4], 2), &options);
        let ino = file(&fs, b"f");
        fs.write(&CTX, ino, 0, &[1; 8192]).unwrap();
        let before = fs.wear().unwrap();
        for _ in 0..80_000 {
            fs.write(&CTX, ino, 2048, &[1; 1024]).unwrap();
        }
        skew(&since(&fs, &before), &[0.25; 4])
    };
    let (by_wear, spread) = (by(Placement::Wasa), by(Placement::Spread));
    assert!(by_wear < 0.6 && spread > 2.0, "{by_wear}, {spread}");
}

/// Who looks from outside sees what all clients have sent, and the next client goes by the same counts.
#[test]
fn wear_is_everybodys() {
    let arena = Arena::anonymous(64 * MB).unwrap();
    let pm = pool(&[8 * MB, 8 * MB], 2);
    let info = inspect(&pm).unwrap();
    assert_eq!(live_wear(&arena, &info).unwrap(), None);
    let fs = Fs::open(pm, arena.clone(), &wasa(UpdatePolicy::Auto), &Serial, &|_| {}).unwrap();
    come_and_go(&fs, 10, 20);
    assert_eq!(live_wear(&arena, &info).unwrap(), Some(fs.wear().unwrap()));
    assert_eq!(OpenOptions::of_arena(&arena).placement, Placement::Wasa);
}

/// The pages of a file that is written anew each time do not stay in the slot that they were in.
#[test]
fn files_that_are_written_anew_go_round() {
    let fs = open_as(pool(&[64 * MB; 3], 4), &wasa(UpdatePolicy::Auto));
    let ino = file(&fs, b"f");
    let before = fs.wear().unwrap();
    for _ in 0..60 {
        fs.setattr(&CTX, Node::current(ino), &SetAttr { size: Some(0), ..SetAttr::default() })
            .unwrap();
        fs.write(&CTX, ino, 0, &vec![5; 1 << 20]).unwrap();
    }
    let skew = skew(&since(&fs, &before), &[1.0 / 3.0; 3]);
    assert!(skew < 0.2, "{skew}");
}

/// A pool whose slots endure so much.
fn pool_that_endures(lens: &[u64], endurance: &[u64]) -> Pm {
    let pm = Pm::anonymous(lens, &PmOptions::default()).unwrap();
    let mut options = MkfsOptions::numbered(lens.len(), 2);
    options.endurance = endurance.to_vec();
    mkfs(&pm, &options).unwrap();
    pm
}

/// The coolest slot is as good as full: the others are worn evenly all the same.
#[test]
fn a_slot_with_short_runs_alone_is_passed_over() {
    const TEN_12: u64 = 1_000_000_000_000;
    let lens = [8 * MB, 32 * MB, 32 * MB, 32 * MB, 32 * MB];
    let fs = open_as(pool_that_endures(&lens, &[TEN_12, 1, 1, 1, 1]), &wasa(UpdatePolicy::Auto));
    let before = fs.wear().unwrap();
    come_and_go(&fs, 120, 200);
    let lines = since(&fs, &before);
    let skew = skew(&lines[1..], &[0.25; 4]);
    assert!(skew < 0.1, "{skew}: {lines:?}");
}

/// Where no cooler slot has room a page of a hot one is overwritten where it is.
#[test]
fn a_hot_slot_without_a_cooler_one_is_not_copied_within() {
    let fs =
        open_as(pool_that_endures(&[128 * MB, 4 * MB], &[1, 1_000_000]), &wasa(UpdatePolicy::Auto));
    let ino = file(&fs, b"f");
    for at in 0..60 {
        fs.write(&CTX, ino, at * MB, &vec![1; 1 << 20]).unwrap();
    }
    let before = fs.wear().unwrap();
    for turn in 0..5000_u64 {
        fs.write(&CTX, ino, turn * 7 % 15_000 * PAGE + 100, &[2; 64]).unwrap();
    }
    let lines = since(&fs, &before);
    assert!(lines[0] < 5000 * 8, "{lines:?}");
}

/// A pool of two slots, the first of which is full of files that were last changed at 5.
fn full_of_old_files() -> Pm {
    let options = OpenOptions { placement: Placement::Single, ..wasa(UpdatePolicy::Cow) };
    let fs = open_as(pool(&[32 * MB; 2], 2), &options);
    for old in 0..OLD_FILES {
        let ino = file(&fs, &[b'a' + old]);
        fs.write(&CTX, ino, 0, &vec![old; 1 << 20]).unwrap();
    }
    fs.close().unwrap();
    fs.into_pm()
}

const OLD_FILES: u8 = 33;
const LATER: Ctx = Ctx { now_ns: 1000, hint: 0 };

/// Overwrites pages of a file again and again.
fn wear_out(fs: &Fs, ino: Ino, writes: u64) -> Vec<u64> {
    let before = fs.wear().unwrap();
    for turn in 0..writes {
        fs.write(&LATER, ino, turn % 64 * PAGE, &[8; 4096]).unwrap();
    }
    since(fs, &before)
}

/// Allocation alone can't help where the slot that is worn least has no room.
#[test]
fn pages_that_nobody_writes_make_room_in_the_slot_that_is_worn_least() {
    let fs = open_as(full_of_old_files(), &wasa(UpdatePolicy::Cow));
    let ino = file(&fs, b"new");
    assert_eq!(fs.cold_move().unwrap(), None, "no slot has got much more than another");
    wear_out(&fs, ino, 20_000);
    let without = wear_out(&fs, ino, 5000);
    assert!(without[0] < without[1] / 20, "{without:?}");
    let cold = ColdMove { from: 0, to: 1, pages: 8192 / 16 };
    assert_eq!(fs.cold_move().unwrap(), Some(cold));
    // Nothing is that old, and nobody is asked twice.
    assert_eq!(fs.move_cold(&LATER, cold, 5, &mut |_| true).unwrap(), 0);
    assert_eq!(fs.move_cold(&LATER, cold, 1000, &mut |_| false).unwrap(), 64);
    let mut told = 0;
    let mut step = |pages| {
        told += pages;
        true
    };
    let moved = fs.move_cold(&LATER, cold, 1000, &mut step).unwrap();
    assert_eq!((moved, told), (512, 512));
    assert_eq!(fs.cold_move().unwrap(), None, "there is room now");
    let with = wear_out(&fs, ino, 5000);
    assert!(with[0] > with[1], "{with:?}");
    for old in 0..OLD_FILES {
        let found = fs.lookup(&LATER, Node::current(Ino::ROOT), &[b'a' + old]).unwrap();
        assert_eq!(found.ctime_ns, 5);
        let mut bytes = vec![0; 1 << 20];
        fs.read(&LATER, found.ino, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == old), "{old}");
    }
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// What has no room stays, and is where it was.
#[test]
fn no_page_goes_to_a_slot_without_room() {
    let fs = open_as(full_of_old_files(), &wasa(UpdatePolicy::Cow));
    let back = ColdMove { from: 1, to: 0, pages: 100 };
    let free = fs.statfs().unwrap().pages_free;
    let moved = fs.move_cold(&LATER, back, 1000, &mut |_| true).unwrap();
    assert!(moved < 64, "{moved}");
    assert_eq!(fs.statfs().unwrap().pages_free, free);
    fs.close().unwrap();
    verify(&fs.into_pm());
}

fn taken(fs: &Fs) -> u64 {
    let memory = fs.index_memory();
    memory.used_bytes - memory.free_bytes
}

/// Each pass over the inodes loaded the logs of all of them.
#[test]
fn files_that_were_changed_lately_are_passed_by_without_their_locks() {
    let fs = open_as(full_of_old_files(), &wasa(UpdatePolicy::Cow));
    let before = taken(&fs);
    let cold = ColdMove { from: 0, to: 1, pages: 8192 / 16 };
    assert_eq!(fs.move_cold(&LATER, cold, 5, &mut |_| true).unwrap(), 0);
    assert_eq!(taken(&fs), before, "no view was made");
    assert_eq!(fs.move_cold(&LATER, cold, 1000, &mut |_| false).unwrap(), 64);
    assert!(taken(&fs) > before);
}

/// The next pass went through all that the one before had found nothing in.
#[test]
fn a_move_begins_where_the_last_one_ended() {
    let options = OpenOptions { placement: Placement::Single, ..wasa(UpdatePolicy::Cow) };
    let fs = open_as(pool(&[64 * MB; 2], 2), &options);
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    for number in 0..1000 {
        let name = number.to_string();
        fs.create(&LATER, Node::current(Ino::ROOT), name.as_bytes(), &new).unwrap();
    }
    let last = file(&fs, b"last");
    fs.write(&CTX, last, 0, &vec![1; 4 << 20]).unwrap();
    let cold = ColdMove { from: 0, to: 1, pages: 1 << 20 };
    for looks in [15, 0] {
        let mut told = Vec::new();
        let mut step = |pages| {
            told.push(pages);
            pages == 0
        };
        assert_eq!(fs.move_cold(&LATER, cold, 1000, &mut step).unwrap(), 64);
        assert_eq!(told.len() - 1, looks, "{told:?}");
    }
    // All the others come after it.
    let mut looks = 0;
    let mut step = |pages| {
        looks += u64::from(pages == 0);
        true
    };
    assert_eq!(fs.move_cold(&LATER, cold, 1000, &mut step).unwrap(), 1024 - 128);
    assert_eq!(looks, 15);
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// Where the slot that is worn least has no cold files, those of another one make room.
#[test]
fn cold_files_may_come_from_each_slot_that_is_worn_less() {
    let single = OpenOptions { placement: Placement::Single, ..wasa(UpdatePolicy::Cow) };
    let fs = open_as(pool(&[16 * MB, 16 * MB, 32 * MB], 2), &single);
    for old in 0..OLD_FILES {
        let ino = file(&fs, &[b'a' + old]);
        fs.write(&CTX, ino, 0, &vec![old; 1 << 20]).unwrap();
    }
    fs.close().unwrap();
    let fs = open_as(fs.into_pm(), &wasa(UpdatePolicy::Cow));
    wear_out(&fs, file(&fs, b"new"), 20_000);
    let ways = fs.cold_moves().unwrap();
    assert_eq!(ways.iter().map(|cold| cold.to).collect::<Vec<_>>(), [2, 2], "{ways:?}");
    assert_eq!(ways.iter().map(|cold| u32::from(cold.from)).sum::<u32>(), 1, "{ways:?}");
    for cold in ways {
        let moved = fs.move_cold(&LATER, cold, 1000, &mut |_| true).unwrap();
        assert!(moved >= 4096 / 16, "{moved} of {cold:?}");
    }
    fs.close().unwrap();
    verify(&fs.into_pm());
}
