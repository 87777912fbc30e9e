//! The promise: a slot that was copied before the pool was last opened, closed or changed is not taken for the slot
//! itself, slot 0 no more than another.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use novale_arena::Arena;
use novale_core::repair::{Effort, Help, SavedPiece, repair};
use novale_core::{
    Ctx, Error, Form, Fs, Ino, OpenOptions, Serial, check, inspect, remove_last_slot, room_to_leave,
};
use novale_layout::{FileKind, PmAddr, SLOT_STATE_OFFSETS};
use novale_pm::{Pm, PmOptions, Purpose};
use support::{MB, make, open, pool, verify};

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const LENS: [u64; 3] = [3 * MB, MB, MB];

/// The bytes of all slots.
type Image = Vec<Vec<u8>>;

fn image(pm: &Pm) -> Image {
    let slot = |slot| {
        let mut bytes = vec![0; usize::try_from(pm.slot_len(slot)).unwrap()];
        pm.load(PmAddr::new(slot, 0), &mut bytes).unwrap();
        bytes
    };
    (0..pm.slot_count()).map(slot).collect()
}

fn memory(image: &[Vec<u8>]) -> Pm {
    let lens: Vec<u64> = image.iter().map(|slot| slot.len() as u64).collect();
    let pm = Pm::anonymous(&lens, &PmOptions::default()).unwrap();
    for (slot, bytes) in (0..).zip(image) {
        pm.fence(pm.stream(PmAddr::new(slot, 0), bytes, Purpose::Other)).end();
    }
    pm
}

fn refusal(image: &[Vec<u8>]) -> String {
    let Err(Error::BadPool(by_look)) = inspect(&memory(image)) else { panic!("it is looked at") };
    let arena = Arena::anonymous(256 * MB).unwrap();
    let opened = Fs::open(memory(image), arena, &OpenOptions::default(), &Serial, &|_| {});
    let Err(Error::BadPool(by_opening)) = opened else { panic!("it is opened") };
    assert_eq!(by_look, by_opening);
    by_look
}

/// Images of a pool, at each moment from which on it is another one.
fn history() -> Vec<(&'static str, Image)> {
    let mut moments = vec![("made", image(&pool(&LENS, 2)))];
    let mut session = |in_it, behind_it: Option<&'static str>| {
        let fs = open(memory(&moments.last().unwrap().1), Form::Auto);
        let file = make(&fs, &CTX, Ino::ROOT, in_it, FileKind::File);
        fs.write(&CTX, file, 0, &vec![7; 300_000]).unwrap();
        moments.push((in_it, image(fs.pm())));
        if let Some(behind_it) = behind_it {
            fs.close().unwrap();
            moments.push((behind_it, image(&fs.into_pm())));
        }
    };
    session("open", Some("closed"));
    session("open again", Some("closed again"));
    session("killed", None);
    session("recovered", Some("closed at last"));
    moments
}

#[test]
fn each_moment_has_slots_of_its_own() {
    let moments = history();
    for (now, (at, newer)) in moments.iter().enumerate() {
        verify(&memory(newer));
        for (before, older) in &moments[..now] {
            for slot in 0..LENS.len() {
                let mut mixed = newer.clone();
                mixed[slot].clone_from(&older[slot]);
                let why = refusal(&mixed);
                assert!(why.contains("old copy"), "{at}, slot {slot} of {before}: {why}");
                if slot == 0 {
                    assert!(why.starts_with("slot 0 is of session"), "{at}, {before}: {why}");
                }
            }
        }
    }
}

/// The newer of a slot's state lines, and the older one.
fn state_lines(slot: &[u8]) -> [usize; 2] {
    let seq = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap());
    let [first, second] = SLOT_STATE_OFFSETS.map(|at| usize::try_from(at).unwrap());
    if seq(first) > seq(second) { [first, second] } else { [second, first] }
}

/// Ways to damage a line of 64 bytes: one bit of numbers and of what is reserved, zeros in part or all over, garbage.
fn damages(line: &[u8]) -> Vec<Vec<u8>> {
    let flipped = |byte: usize| {
        let mut bytes = line.to_vec();
        bytes[byte] ^= 1;
        bytes
    };
    let mut damages: Vec<Vec<u8>> = [0, 8, 40].map(flipped).into();
    for zeros in [8, 32, 64] {
        damages.push([vec![0; zeros], line[zeros..].to_vec()].concat());
    }
    damages.push(vec![0x55; 64]);
    damages
}

/// The line says nothing that the one before it does not tell; the slot was taken for an old copy of itself.
#[test]
fn a_slot_whose_newer_state_line_is_damaged_is_none() {
    for (at, whole) in history().iter().skip(1).step_by(2) {
        for slot in 0..LENS.len() {
            let [newer, _] = state_lines(&whole[slot]);
            for bytes in damages(&whole[slot][newer..newer + 64]) {
                if *at == "open" && slot > 0 && bytes == [0; 64] {
                    // As one that was copied when the pool was made, and had a single line.
                    continue;
                }
                let mut damaged = whole.clone();
                damaged[slot][newer..newer + 64].copy_from_slice(&bytes);
                let shown = format!("{at}, slot {slot}: {bytes:x?}");
                is_read_and_mended(&damaged, &whole[slot][newer..newer + 64], slot, newer, &shown);
            }
        }
    }
}

fn is_read_and_mended(damaged: &Image, line: &[u8], slot: usize, at: usize, shown: &str) {
    let place = PmAddr::new(u8::try_from(slot).unwrap(), at as u64);
    let pm = memory(damaged);
    let found = check(&pm, &Serial, &|_| {}).unwrap().findings;
    assert_eq!((found.len(), found[0].at), (1, place), "{shown}: {found:?}");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let arena = Arena::anonymous(256 * MB).unwrap();
    let fs = Fs::open(pm, arena, &options, &Serial, &|_| {}).unwrap();
    assert_eq!(image(&fs.into_pm()), *damaged, "{shown}");
    let mut keep = |_: &SavedPiece<'_>| Ok(());
    let mut help =
        Help { exec: &Serial, progress: &|_| {}, keep: &mut keep, now_ns: 0, owner: (0, 0) };
    let pm = memory(damaged);
    let report = repair(&pm, Effort::Safe, &mut help).unwrap();
    assert_eq!((report.changes.len(), report.left.findings.len()), (1, 0), "{shown}: {report:?}");
    assert_eq!(&image(&pm)[slot][at..at + 64], line, "{shown}");
    let fs = open(memory(damaged), Form::Auto);
    make(&fs, &CTX, Ino::ROOT, "after", FileKind::File);
    verify(&memory(&image(fs.pm())));
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// Of an old copy the older line may be damaged as well: it says itself that it is the older one.
#[test]
fn an_old_copy_with_a_damaged_line_stays_one() {
    let moments = history();
    for pair in moments[1..].windows(2) {
        let [(_, older), (at, newer)] = pair else { panic!("two moments") };
        for slot in 0..LENS.len() {
            let [_, before] = state_lines(&older[slot]);
            let mut mixed = newer.clone();
            mixed[slot].clone_from(&older[slot]);
            mixed[slot][before + 40] ^= 1;
            assert!(refusal(&mixed).contains("old copy"), "{at}, slot {slot}");
        }
    }
}

/// Cuts of a session's beginning: those of the slots' lines that are of the next session already.
fn cut_off(before: &Image, behind: &Image, slots: usize) -> Image {
    let mut cut = before.clone();
    for slot in 0..slots {
        let lines = SLOT_STATE_OFFSETS.map(|at| usize::try_from(at).unwrap());
        for at in lines {
            cut[slot][at..at + 64].copy_from_slice(&behind[slot][at..at + 64]);
        }
    }
    cut
}

/// A session that was cut off in its beginning, or in the closing, left its number to the next one: a copy of slot
/// 0 from then was of that number, and of a pool that was closed.
#[test]
fn a_session_that_was_cut_off_leaves_its_number_to_none() {
    let moments = history();
    let named = |name| &moments.iter().find(|(at, _)| *at == name).unwrap().1;
    for (before, behind) in [("closed", "open again"), ("open again", "closed again")] {
        for slots in 1..=LENS.len() {
            let cut = cut_off(named(before), named(behind), slots);
            let fs = open(memory(&cut), Form::Auto);
            make(&fs, &CTX, Ino::ROOT, "after", FileKind::File);
            let in_it = image(fs.pm());
            fs.close().unwrap();
            let closed = image(&fs.into_pm());
            for newer in [in_it, closed] {
                verify(&memory(&newer));
                for slot in 0..LENS.len() {
                    let mut mixed = newer.clone();
                    mixed[slot].clone_from(&cut[slot]);
                    assert!(refusal(&mixed).contains("old copy"), "{before}, {slots}, slot {slot}");
                }
            }
        }
    }
}

/// Pages of the inode directory move between slots while nobody uses the pool.
#[test]
fn slots_that_stay_behind_one_that_goes_are_new() {
    let fs = open(pool(&LENS, 2), Form::Auto);
    make(&fs, &CTX, Ino::ROOT, "file", FileKind::File);
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert!(room_to_leave(&pm, &Serial, &|_| {}).unwrap().is_enough());
    let with_it = image(&pm);
    remove_last_slot(&pm, &Serial, &|_| {}).unwrap();
    let without = &image(&pm)[..2];
    verify(&memory(without));
    let mixed = [without[0].clone(), with_it[1].clone()];
    assert!(refusal(&mixed).contains("slot 1 is of session"));
}
