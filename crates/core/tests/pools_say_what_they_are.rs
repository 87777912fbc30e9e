//! What a pool says of itself stands on two copies each, and binds a program to what it knows.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::wildcard_imports,
    reason = "a test panics"
)]

mod support;

use novale_arena::Arena;
use novale_core::*;
use novale_layout::{
    Crc32c, PAGE, PmAddr, RoFeature, SLOT_HEADER_OFFSET, SUPERBLOCK_BYTES, Superblock,
};
use novale_pm::{Pm, Purpose};

use support::MB;

const LENS: [u64; 2] = [16 * MB, 8 * MB];

fn pool() -> Pm {
    support::pool(&LENS, 4)
}

fn open(pm: Pm, read_only: bool) -> Result<Fs> {
    let options = OpenOptions { read_only, now_ns: 2, ..OpenOptions::default() };
    Fs::open(pm, Arena::anonymous(64 * MB).unwrap(), &options, &Serial, &|_| {})
}

fn last_page(slot: u8) -> u64 {
    (LENS.get(usize::from(slot)).unwrap() / PAGE - 1) * PAGE
}

/// The superblock's two copies, then each slot header's.
fn copies() -> Vec<[PmAddr; 2]> {
    let header = |slot| [0, last_page(slot)].map(|at| PmAddr::new(slot, at + SLOT_HEADER_OFFSET));
    vec![[PmAddr::new(0, 0), PmAddr::new(1, last_page(1))], header(0), header(1)]
}

fn put(pm: &Pm, at: PmAddr, bytes: &[u8]) {
    pm.fence(pm.stream(at, bytes, Purpose::Other)).end();
}

fn get<const LEN: usize>(pm: &Pm, at: PmAddr) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    pm.load(at, &mut bytes).unwrap();
    bytes
}

fn findings(pm: &Pm) -> Vec<Finding> {
    check(pm, &Serial, &|_| {}).unwrap().findings
}

/// One damaged copy was read past in silence for ever: the next damage would have been fatal.
#[test]
fn a_damaged_copy_is_told_by_place_and_rewritten_when_opened_for_writing() {
    for at in copies().into_iter().flatten() {
        let pm = pool();
        let whole: [u8; 128] = get(&pm, at);
        put(&pm, at.add(64), &[0xee; 8]);
        let told = inspect(&pm).unwrap().bad_copies;
        assert_eq!(told.len(), 1, "{told:?}");
        let copy = if at.byte() < PAGE { "first copy" } else { "replica" };
        assert!(told.iter().all(|told| told.contains(copy)), "{told:?}");
        assert!(findings(&pm).iter().any(|finding| finding.at == at), "{:?}", findings(&pm));

        let fs = open(pm, true).unwrap();
        fs.close().unwrap();
        let pm = fs.into_pm();
        assert_ne!(get(&pm, at), whole, "opened read-only, nothing is written");

        let fs = open(pm, false).unwrap();
        fs.close().unwrap();
        let pm = fs.into_pm();
        assert_eq!(get(&pm, at), whole);
        assert_eq!(findings(&pm), []);
    }
}

#[test]
fn two_damaged_copies_are_refused_with_what_to_do() {
    for pair in copies() {
        let pm = pool();
        for at in pair {
            put(&pm, at.add(64), &[0xee; 8]);
        }
        let refused = inspect(&pm).unwrap_err().to_string();
        assert!(refused.contains("so is the replica: restore the slot"), "{refused}");
    }
}

/// A later version in the superblock alone was called damage.
#[test]
fn a_later_version_is_told_from_damage() {
    for pair in copies() {
        let pm = pool();
        for at in pair {
            put(&pm, at.add(8), &[2, 0, 0, 0, 0, 0, 0, 0]);
        }
        let refused = inspect(&pm).unwrap_err().to_string();
        assert!(refused.contains("format version 2"), "{refused}");
    }
}

/// A new pool whose superblock says something else, in both copies.
fn changed_pool(change: impl Fn(&mut Superblock)) -> Pm {
    let pm = pool();
    for at in copies().into_iter().take(1).flatten() {
        let mut superblock = Superblock::decode(&get::<SUPERBLOCK_BYTES>(&pm, at)).unwrap();
        change(&mut superblock);
        put(&pm, at, &superblock.encode());
    }
    pm
}

/// A pool with a feature that a writer must know was once opened for writing without a word.
#[test]
fn unknown_features_bind_as_far_as_they_say() {
    let may_be_ignored = || changed_pool(|superblock| superblock.features_compat = 1 << 63);
    open(may_be_ignored(), false).unwrap().close().unwrap();

    let read_only = || changed_pool(|superblock| superblock.features_ro_compat = 1 << 63);
    let refused = open(read_only(), false).unwrap_err().to_string();
    assert!(refused.contains("0x8000000000000000") && refused.contains("read-only"), "{refused}");
    let pm = read_only();
    let before = image(&pm);
    let fs = open(pm, true).unwrap();
    assert_eq!(fs.getattr(Ino::ROOT).unwrap().kind, FileKind::Directory);
    fs.close().unwrap();
    assert!(image(fs.pm()) == before, "a read-only opening wrote");

    let unreadable = || changed_pool(|superblock| superblock.features_incompat = 1);
    let refused = open(unreadable(), true).unwrap_err().to_string();
    assert!(refused.contains("newer release"), "{refused}");
}

/// A program from before extended attributes took their pages for free, and wrote over them.
#[test]
fn what_another_program_would_misread_is_said_before_its_first_use() {
    let said = |fs: &Fs| {
        copies()[0].map(|at| {
            Superblock::decode(&get::<SUPERBLOCK_BYTES>(fs.pm(), at)).unwrap().features_ro_compat
        })
    };
    let ctx = Ctx { now_ns: 3, hint: 0 };
    let fs = open(pool(), false).unwrap();
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let ino = fs.create(&ctx, Node::ROOT, b"f", &new).unwrap().ino;
    fs.write(&ctx, ino, 0, &[1; 9000]).unwrap();
    let punch = |how| fs.fallocate(&ctx, ino, how, 0, 4096).unwrap();
    punch(Fallocate::PunchHole);
    let made = RoFeature::Unwritten.bit();
    assert_eq!(said(&fs), [made; 2]);

    fs.append(&ctx, ino, &[1; 5]).unwrap();
    let mut bits = made | RoFeature::Appends.bit();
    assert_eq!(said(&fs), [bits; 2]);
    let set = SetXattr { name: b"user.a", value: b"1", ..SetXattr::default() };
    fs.setxattr(&ctx, Node::current(ino), &set).unwrap();
    bits |= RoFeature::Xattrs.bit();
    assert_eq!(said(&fs), [bits; 2]);
    fs.setattr(&ctx, Node::current(ino), &SetAttr { project: Some(9), ..SetAttr::default() })
        .unwrap();
    bits |= RoFeature::Trees.bit();
    assert_eq!(said(&fs), [bits; 2]);
    punch(Fallocate::CollapseRange);
    bits |= RoFeature::MovedPages.bit();
    assert_eq!(said(&fs), [bits; 2]);
    fs.close().unwrap();
    let options = OpenOptions { update: Some(UpdatePolicy::FineLog), ..OpenOptions::default() };
    let fs = support::open_as(fs.into_pm(), &options);
    fs.write(&ctx, ino, 0, &[2; 50]).unwrap();
    bits |= RoFeature::Redo.bit();
    assert_eq!(said(&fs), [bits; 2]);
    fs.close().unwrap();
    let fs = support::open_as(fs.into_pm(), &OpenOptions::default());
    fs.write(&ctx, ino, 0, &[2; 50]).unwrap();
    bits |= RoFeature::Pairs.bit();
    assert_eq!(said(&fs), [bits; 2]);
    fs.close().unwrap();
    let options = OpenOptions { update: Some(UpdatePolicy::Zcl), ..OpenOptions::default() };
    let fs = support::open_as(fs.into_pm(), &options);
    let other = fs.create(&ctx, Node::ROOT, b"other", &new).unwrap().ino;
    fs.write(&ctx, other, 0, &[1; 100]).unwrap();
    let hold = fs.map_hold(&ctx, ino, fs.getattr(ino).unwrap().generation).unwrap().unwrap();
    let run = *fs.map_pages(&ctx, hold, 0, 1).unwrap().first().unwrap();
    fs.write_from(&ctx, other, 10, &[2; 50], &[run.bytes(&(0..50))]).unwrap();
    fs.open_release(&ctx, hold).unwrap();
    bits |= RoFeature::Sources.bit();
    assert_eq!(said(&fs), [bits; 2]);
    fs.close().unwrap();
    let options = OpenOptions { update: Some(UpdatePolicy::Lawn), ..OpenOptions::default() };
    let fs = support::open_as(fs.into_pm(), &options);
    fs.write(&ctx, ino, 0, &[2; 50]).unwrap();
    assert_eq!(said(&fs), [RoFeature::KNOWN; 2]);
    fs.close().unwrap();
    assert_eq!(findings(fs.pm()), []);
}

/// A copy had bytes in the reserved part, and a checksum that covered them. A feature's first use wrote
/// the first line alone, with the checksum of a superblock that has zeros there: the copy was damaged.
#[test]
fn a_feature_is_said_by_a_copy_whose_reserved_bytes_are_used() {
    const CRC: std::ops::Range<usize> = 12..16;
    for at in copies()[0] {
        let pm = pool();
        let mut bytes: [u8; SUPERBLOCK_BYTES] = get(&pm, at);
        bytes[500..510].fill(0xee);
        let mut crc = Crc32c::new();
        crc.update(&bytes[..CRC.start]);
        crc.update(&bytes[CRC.end..]);
        bytes[CRC].copy_from_slice(&crc.finish().to_le_bytes());
        put(&pm, at, &bytes);
        assert_eq!(findings(&pm), []);

        let fs = open(pm, false).unwrap();
        let set = SetXattr { name: b"user.a", value: b"1", ..SetXattr::default() };
        fs.setxattr(&Ctx { now_ns: 3, hint: 0 }, Node::ROOT, &set).unwrap();
        let told = inspect(fs.pm()).unwrap();
        let bits = RoFeature::Unwritten.bit() | RoFeature::Xattrs.bit();
        assert_eq!((told.bad_copies, told.features[1]), (vec![], bits));
    }
}

/// The bits are gone: a check says so, and a repair sets them. Those that entries of a log use were forgotten.
#[test]
fn features_in_use_that_are_not_said_are_repaired() {
    let ctx = Ctx { now_ns: 3, hint: 0 };
    let file = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let methods = [
        (UpdatePolicy::FineLog, RoFeature::Redo),
        (UpdatePolicy::Paired, RoFeature::Pairs),
        (UpdatePolicy::Lawn, RoFeature::Slots),
        (UpdatePolicy::Zcl, RoFeature::Sources),
    ];
    for (method, feature) in methods {
        let fs = open(pool(), false).unwrap();
        let set = SetXattr { name: b"user.a", value: b"1", ..SetXattr::default() };
        fs.setxattr(&ctx, Node::ROOT, &set).unwrap();
        let ino = fs.create(&ctx, Node::ROOT, b"f", &file).unwrap().ino;
        fs.write(&ctx, ino, 0, &[1; 9000]).unwrap();
        let update = Some(Some(method));
        fs.setattr(&ctx, Node::current(ino), &SetAttr { update, ..SetAttr::default() }).unwrap();
        if method == UpdatePolicy::Zcl {
            let source = fs.create(&ctx, Node::ROOT, b"source", &file).unwrap();
            fs.write(&ctx, source.ino, 0, &[2; 64]).unwrap();
            let hold = fs.map_hold(&ctx, source.ino, source.generation).unwrap().unwrap();
            let run = *fs.map_pages(&ctx, hold, 0, 1).unwrap().first().unwrap();
            fs.write_from(&ctx, ino, 100, &[2; 64], &[run.bytes(&(0..64))]).unwrap();
        } else {
            fs.write(&ctx, ino, 100, &[2; 64]).unwrap();
        }
        // Not closed, which would end the pairs.
        let pm = fs.into_pm();
        for at in copies()[0] {
            let mut superblock = Superblock::decode(&get::<SUPERBLOCK_BYTES>(&pm, at)).unwrap();
            superblock.features_ro_compat = 0;
            put(&pm, at, &superblock.encode());
        }
        let found: String = findings(&pm).into_iter().map(|found| found.what).collect();
        let is_said = |feature| found.contains(&format!("the feature {feature:?}"));
        assert!([RoFeature::Xattrs, feature].into_iter().all(is_said), "{found}");
        let mut help = repair::Help {
            exec: &Serial,
            progress: &|_| {},
            keep: &mut |_| Ok(()),
            now_ns: 4,
            owner: (0, 0),
        };
        let report = repair::repair(&pm, repair::Effort::Safe, &mut help).unwrap();
        assert!(report.left.findings.is_empty(), "{report:?}");
        let both = RoFeature::Xattrs.bit() | feature.bit();
        assert_eq!(inspect(&pm).unwrap().features[1] & both, both);
    }
}

fn image(pm: &Pm) -> Vec<u8> {
    let mut image = vec![0; LENS.iter().sum::<u64>() as usize];
    let (first, second) = image.split_at_mut(*LENS.first().unwrap() as usize);
    pm.load(PmAddr::new(0, 0), first).unwrap();
    pm.load(PmAddr::new(1, 0), second).unwrap();
    image
}

#[test]
fn a_closed_pool_tells_the_space_that_it_told_when_open() {
    let fs = open(pool(), false).unwrap();
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    for number in 0..300 {
        let ctx = Ctx { now_ns: 3, hint: number };
        let made = fs.create(&ctx, Node::ROOT, format!("file{number}").as_bytes(), &new).unwrap();
        fs.write(&ctx, made.ino, 0, &[1; 5000]).unwrap();
    }
    fs.close().unwrap();
    let closed = space(fs.pm()).unwrap().unwrap();
    let fs = open(fs.into_pm(), true).unwrap();
    let told = fs.statfs().unwrap();
    assert_eq!((closed.pages_available, closed.inodes), (told.pages_available, told.inodes));

    let fs = open(fs.into_pm(), false).unwrap();
    assert_eq!(space(fs.pm()).unwrap(), None, "in use, only a scan would tell");
}

/// `df -i` promised sixteen inodes a free page, as if names took no room: a quarter more than came.
#[test]
fn as_many_inodes_can_be_made_as_are_promised() {
    let fs = open(pool(), false).unwrap();
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let promised = fs.statfs().unwrap().inodes_free;
    let create = |number: u64| {
        let name = format!("{number:08}");
        fs.create(&Ctx { now_ns: 3, hint: 0 }, Node::ROOT, name.as_bytes(), &new).map(drop)
    };
    let made = (0..2 * promised).take_while(|number| create(*number).is_ok()).count() as u64;
    let off = made.abs_diff(promised);
    assert!(off < promised / 50, "{promised} promised, {made} made");
    let left = fs.statfs().unwrap().inodes_free;
    assert!(left < promised / 50, "{left} left of {promised} when no more can be made");
}
