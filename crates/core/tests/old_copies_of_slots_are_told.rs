//! The promise: a slot that was copied before the pool was last opened, closed or changed is not taken for the slot
//! itself, slot 0 no more than another.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use novale_arena::Arena;
use novale_core::{
    Ctx, Error, Form, Fs, Ino, OpenOptions, Serial, inspect, remove_last_slot, room_to_leave,
};
use novale_layout::{FileKind, PmAddr};
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
