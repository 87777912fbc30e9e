//! The promise: a slot can be added to a pool, replaced and taken out of it, and the pool has all that it
//! had, wherever that lay.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use novale_core::{
    Ctx, Error, Fs, Ino, NewSlot, Node, OpenOptions, Placement, Serial, UpdatePolicy, add_slot,
    forget_slot, inspect, remove_last_slot, replace_slot, room_to_leave, saved_wear, set_leaving,
    slot_header,
};
use novale_layout::{FIRST_FREE_PAGE, FileKind, IdentityLine, PAGE, PmAddr, Seed, WEAR_PAGE};
use novale_pm::{Pm, PmOptions, Purpose};
use support::{MB, open_as, pool, set_long_attribute, verify, write_over};

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const FILES: u64 = 60;

fn options() -> OpenOptions {
    let update = Some(UpdatePolicy::Auto);
    OpenOptions { placement: Placement::Spread, update, now_ns: 2, ..OpenOptions::default() }
}

fn make(fs: &Fs, dir: Ino, name: &str, kind: FileKind) -> Ino {
    support::make(fs, &CTX, dir, name, kind)
}

fn contents(number: u64) -> Vec<u8> {
    (0..number * 1500).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

/// Directories, files of several lengths that were written over, names, links, extended attributes.
fn fill(fs: &Fs) {
    for number in 0..FILES {
        let dir = make(fs, Ino::ROOT, &format!("d{number}"), FileKind::Directory);
        make(fs, dir, "link", FileKind::Symlink);
        let gone = make(fs, dir, "gone", FileKind::File);
        let file = make(fs, dir, "file", FileKind::File);
        // Entries that end a page's slots stay, and name a page that need not be there any more.
        write_over(fs, &CTX, file, &contents(number), number % 2 == 1);
        fs.write(&CTX, gone, 0, &[1; 5000]).unwrap();
        fs.unlink(&CTX, Node::current(dir), b"gone").unwrap();
        set_long_attribute(fs, &CTX, file);
    }
}

fn judge(pm: Pm) -> Pm {
    verify(&pm);
    let fs = open_as(pm, &options());
    for number in 0..FILES {
        let find =
            |dir, name: &str| fs.lookup(&CTX, Node::current(dir), name.as_bytes()).unwrap().ino;
        let dir = find(Ino::ROOT, &format!("d{number}"));
        let file = find(dir, "file");
        let mut read = vec![0; contents(number).len() + 10];
        let len = fs.read(&CTX, file, 0, &mut read).unwrap();
        assert_eq!(read.get(..len).unwrap(), contents(number), "file {number}");
        assert_eq!(fs.getxattr(Node::current(file), b"user.long").unwrap(), vec![3; 9000]);
        assert_eq!(fs.readlink(Node::current(find(dir, "link"))).unwrap(), b"over there");
        assert!(fs.lookup(&CTX, Node::current(dir), b"gone").is_err());
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    verify(&pm);
    pm
}

fn slot(bytes: u64) -> Pm {
    Pm::anonymous(&[bytes], &PmOptions::default()).unwrap()
}

fn lines_of(pm: &Pm, page: u64) -> Vec<[u8; 64]> {
    let at = |line| PmAddr::new(0, page * PAGE + line * 64);
    (0..PAGE / 64).map(|line| pm.load_line(at(line)).unwrap()).collect()
}

/// Whether a slot has pages that prove to be of inodes.
fn has_inodes(pm: &Pm) -> bool {
    (FIRST_FREE_PAGE..pm.slot_len(0) / PAGE).any(|page| {
        lines_of(pm, page).iter().any(|line| {
            let ino = IdentityLine::peek_ino(line);
            IdentityLine::decode(line, Seed::pool(&[7; 16]).ino(ino)).is_ok()
        })
    })
}

fn filled(lens: &[u64]) -> Pm {
    let fs = open_as(pool(lens, 3), &options());
    fill(&fs);
    fs.close().unwrap();
    fs.into_pm()
}

/// The slots of a pool and one more, or the first ones alone, as a new mapping has them.
fn with(pm: &Pm, count: u8, more: Option<&Pm>) -> Pm {
    let sources: Vec<(&Pm, u8)> =
        (0..count).map(|slot| (pm, slot)).chain(more.map(|more| (more, 0))).collect();
    copied(&sources)
}

fn copied(sources: &[(&Pm, u8)]) -> Pm {
    let lens: Vec<u64> = sources.iter().map(|(pm, slot)| pm.slot_len(*slot)).collect();
    let all = Pm::anonymous(&lens, &PmOptions::default()).unwrap();
    for (to, (pm, from)) in (0..).zip(sources) {
        let mut bytes = vec![0; usize::try_from(pm.slot_len(*from)).unwrap()];
        pm.load(PmAddr::new(*from, 0), &mut bytes).unwrap();
        let stored = all.stream(PmAddr::new(to, 0), &bytes, Purpose::Other);
        all.fence(stored).end();
    }
    all
}

fn empty(pm: Pm, slot: u8) -> (Pm, Result<(), Error>) {
    set_leaving(&pm, slot, true).unwrap();
    let fs = open_as(pm, &options());
    let emptied = fs.empty_slot(&CTX, slot, 0, &|_| ());
    fs.close().unwrap();
    (fs.into_pm(), emptied)
}

#[test]
fn the_last_slot_is_emptied_and_taken_out() {
    let (pm, emptied) = empty(filled(&[16 * MB, 8 * MB, 8 * MB]), 2);
    emptied.unwrap();
    remove_last_slot(&pm, &Serial, &|_| ()).unwrap();
    let left = judge(with(&pm, 2, None));
    assert_eq!(inspect(&left).unwrap().slots.len(), 2);
    let refused = inspect(&pm).unwrap_err().to_string();
    assert!(refused.contains("slot 2 is none of them"), "{refused}");
}

/// A removal that fails in the middle left the slot in the pool, with pages of inodes that a repair found twice.
#[test]
fn what_is_moved_out_of_a_slot_is_erased_there() {
    let (pm, emptied) = empty(filled(&[16 * MB, 8 * MB, 32 * MB]), 2);
    emptied.unwrap();
    assert!(has_inodes(&copied(&[(&pm, 2)])));
    remove_last_slot(&pm, &Serial, &|_| ()).unwrap();
    assert!(!has_inodes(&copied(&[(&pm, 2)])));
    judge(with(&pm, 2, None));
}

#[test]
fn what_finds_no_room_elsewhere_stays() {
    let pm = filled(&[4 * MB, 16 * MB]);
    let room = room_to_leave(&pm, &Serial, &|_| ()).unwrap();
    assert!(!room.is_enough() && room.needed > room.used && room.free < room.used, "{room:?}");
    let (pm, emptied) = empty(pm, 1);
    assert!(matches!(emptied, Err(Error::NoSpace)), "{emptied:?}");
    let pm = judge(pm);
    set_leaving(&pm, 1, false).unwrap();
    let pm = judge(pm);
    let refused = remove_last_slot(&pm, &Serial, &|_| ()).unwrap_err();
    assert!(matches!(refused, Error::NoSpace | Error::BadPool(_)), "{refused}");
    judge(pm);
}

#[test]
fn a_slot_is_added_and_used() {
    let pm = filled(&[16 * MB, 8 * MB]);
    let new = slot(8 * MB);
    let rubbish = vec![0x5a; 8 << 20];
    new.fence(new.stream(PmAddr::new(0, 0), &rubbish, Purpose::Other)).end();
    let coming = NewSlot { pm: &new, uuid: [9; 16], endurance: 0 };
    add_slot(&pm, &coming, &Serial, &|_| ()).unwrap();
    let pages = new.slot_len(0) / PAGE;
    for page in (0..FIRST_FREE_PAGE).chain([pages - 1]) {
        assert!(lines_of(&new, page).iter().all(|line| *line != [0x5a; 64]), "page {page}");
    }
    let pm = judge(with(&pm, 2, Some(&new)));
    let fs = open_as(pm, &options());
    let before = fs.wear().unwrap();
    let file = make(&fs, Ino::ROOT, "large", FileKind::File);
    fs.write(&CTX, file, 0, &vec![1; 16 << 20]).unwrap();
    assert!(fs.wear().unwrap().last() > before.last(), "nothing was stored to the new slot");
    fs.close().unwrap();
    judge(fs.into_pm());
}

/// Its cells are as worn as they were, whatever became of its bytes.
#[test]
fn a_slot_that_comes_back_has_its_wear() {
    let wear_of =
        |pm: &Pm, slot: usize| *saved_wear(pm, &inspect(pm).unwrap()).unwrap().get(slot).unwrap();
    let (pm, emptied) = empty(filled(&[16 * MB, 8 * MB, 8 * MB]), 2);
    emptied.unwrap();
    let worn = wear_of(&pm, 2);
    assert!(worn > 0);
    remove_last_slot(&pm, &Serial, &|_| ()).unwrap();
    let (left, out) = (with(&pm, 2, None), copied(&[(&pm, 2)]));
    forget_slot(&out);
    let before = lines_of(&out, WEAR_PAGE);
    // As of one that was moved out of it: that of the root.
    let mut bytes = [0; 4096];
    pm.load(PmAddr::new(0, (FIRST_FREE_PAGE + 2) * PAGE), &mut bytes).unwrap();
    out.fence(out.stream(PmAddr::new(0, 99 * PAGE), &bytes, Purpose::Other)).end();
    assert!(has_inodes(&out));
    let coming = NewSlot { pm: &out, uuid: [9; 16], endurance: 0 };
    add_slot(&left, &coming, &Serial, &|_| ()).unwrap();
    // A repair would take them for pages whose word is lost.
    assert!(!has_inodes(&out));
    // What was said stays until it is said anew: a cut in between must not forget it.
    assert!(before.iter().filter(|line| **line != [0; 64]).count() > 1);
    assert_eq!(
        lines_of(&out, WEAR_PAGE).iter().zip(&before).filter(|(now, was)| now != was).count(),
        1
    );
    let pm = judge(with(&left, 2, Some(&out)));
    assert!(wear_of(&pm, 2) >= worn);
}

#[test]
fn each_slot_is_replaced_by_a_longer_one() {
    let mut pm = filled(&[16 * MB, 8 * MB, 8 * MB]);
    for number in 0..3 {
        let new = slot(pm.slot_len(number) + MB);
        let coming = NewSlot { pm: &new, uuid: [40 + number; 16], endurance: 0 };
        replace_slot(&pm, number, &coming, &Serial, &|_| ()).unwrap();
        let header = slot_header(&new).unwrap();
        assert_eq!((header.pool_uuid, header.index), ([7; 16], number));
        let sources: Vec<(&Pm, u8)> =
            (0..3).map(|slot| if slot == number { (&new, 0) } else { (&pm, slot) }).collect();
        pm = judge(copied(&sources));
        assert_eq!(inspect(&pm).unwrap().slots.last().map(|slot| slot.index), Some(2));
    }
    let alone = with(&pm, 1, None);
    forget_slot(&alone);
    assert!(slot_header(&alone).is_err());
}
