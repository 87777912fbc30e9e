//! A slot fails at each store of a sequence in turn, and comes back as it was at that moment, after a crash:
//! the other slot names nothing that was lost. Each operation that was acknowledged is there, and the one
//! that failed is there whole or not at all. That is so whether what was in the caches has come to the slots or not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::sync::Arc;

use novale_arena::Arena;
use novale_core::{
    Ctx, Error, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, Placement, RenameMode, Result,
    Serial, UpdatePolicy, mkfs,
};
use novale_layout::{FileKind, PmAddr};
use novale_pm::{Observer, Pm, PmOptions, Purpose, SlotLock, SlotSpec, survive_failing_slots};
use support::failing::{Failing, bytes_of};
use support::{MB, open_as, verify};
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const SLOT_BYTES: u64 = 2 * MB;
const FILES: usize = 12;

fn options(update: UpdatePolicy, placement: Placement) -> OpenOptions {
    OpenOptions { update: Some(update), placement, now_ns: 2, ..OpenOptions::default() }
}

/// A pool of two slots that has been used, so that both hold inodes and logs.
fn pool(failing: &Arc<Failing>, lanes: u32) -> Pm {
    let observer: Arc<dyn Observer> = failing.clone();
    let pm_options = PmOptions { observer: Some(observer), ..PmOptions::default() };
    let pm = Pm::anonymous(&[SLOT_BYTES; 2], &pm_options).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(2, lanes)).unwrap();
    pm
}

/// What a file may have: nothing where it is not there.
type Contents = Option<Vec<u8>>;

/// A file, by its two names, and what it may be after a crash.
#[derive(Clone, Default)]
struct May {
    contents: Vec<Contents>,
}

fn make(fs: &Fs, number: usize, kind: FileKind) -> Result<Ino> {
    make_by(fs, &CTX, number, kind)
}

fn make_by(fs: &Fs, ctx: &Ctx, number: usize, kind: FileKind) -> Result<Ino> {
    let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    Ok(fs.create(ctx, Node::current(Ino::ROOT), name('f', number).as_bytes(), &new)?.ino)
}

fn name(first: char, number: usize) -> String {
    format!("{first}{number}")
}

fn put(contents: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    contents.resize(contents.len().max(at + bytes.len()), 0);
    contents[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Makes a file in steps, until one fails; what it may have then.
fn work(fs: &Fs, number: usize) -> (May, Result<()>) {
    let mut now: Contents = None;
    let byte = u8::try_from(number).unwrap() + 1;
    let writes = [(0, 5000), (50, 100), (4096, 4096), (8192, 300), (10, 3), (8000, 9000)];
    let ino = match make(fs, number, FileKind::File) {
        Ok(ino) => ino,
        Err(error) => return (May { contents: vec![None, Some(vec![])] }, Err(error)),
    };
    now.replace(vec![]);
    for (turn, (at, len)) in writes.into_iter().enumerate() {
        let bytes = vec![byte + u8::try_from(turn * 20).unwrap(); len];
        let mut next = now.clone().unwrap();
        put(&mut next, at, &bytes);
        if let Err(error) = fs.write(&CTX, ino, at as u64, &bytes) {
            return (May { contents: vec![now, Some(next)] }, Err(error));
        }
        now = Some(next);
    }
    let (dir, old, new) = (Node::current(Ino::ROOT), name('f', number), name('g', number));
    let named = fs.link(&CTX, Node::current(ino), dir, new.as_bytes()).map(drop);
    let named = named.and_then(|()| fs.unlink(&CTX, dir, old.as_bytes()));
    let named = named.and_then(|()| {
        let (from, to) = ((dir, new.as_bytes()), (dir, old.as_bytes()));
        fs.rename(&CTX, from.0, from.1, to.0, to.1, RenameMode::Replace)
    });
    let gone = named.is_ok() && number.is_multiple_of(3);
    let removed = if gone { fs.unlink(&CTX, dir, old.as_bytes()) } else { named };
    match removed {
        Ok(()) if gone => (May { contents: vec![None] }, Ok(())),
        Err(error) if gone => (May { contents: vec![None, now] }, Err(error)),
        result => (May { contents: vec![now] }, result),
    }
}

fn read(fs: &Fs, number: usize) -> Contents {
    let find = |first| fs.lookup(&CTX, Node::current(Ino::ROOT), name(first, number).as_bytes());
    let attr = match find('f') {
        Err(Error::NotFound) => find('g'),
        found => found,
    };
    match attr {
        Err(Error::NotFound) => None,
        Err(error) => panic!("file {number}: {error}"),
        Ok(attr) => {
            let mut bytes = vec![0; usize::try_from(attr.size).unwrap()];
            fs.read(&CTX, attr.ino, 0, &mut bytes).unwrap();
            Some(bytes)
        }
    }
}

/// Fails the slot at one store; says whether there were so many, and how many operations failed.
fn fail_at(at: u64, update: UpdatePolicy, placement: Placement) -> (bool, usize) {
    let failing = Failing::at(at);
    let fs = Arc::new(open_as(pool(&failing, 2), &options(update, placement)));
    failing.begin(&fs, 1);
    let mut files = Vec::new();
    let mut failures = 0;
    for number in 0..FILES {
        let (may, result) = work(&fs, number);
        files.push(may);
        match result {
            Ok(()) => {}
            Err(Error::Lost(_)) => failures += 1,
            Err(error) => panic!("store {at}, file {number}: {error}"),
        }
    }
    let slots = [failing.left(fs.pm(), 0), failing.had()];
    let has_failed = fs.failed_slots() != 0;
    if !has_failed {
        return (false, failures);
    }
    drop(fs);
    has_all(&slots, &files, &options(update, placement), &format!("store {at}"));
    (true, failures)
}

/// Opens the pool once the slots are back; each file is as it may be.
fn has_all(slots: &[Vec<u8>; 2], files: &[May], options: &OpenOptions, what: &str) -> Fs {
    let pm = Pm::anonymous(&[SLOT_BYTES; 2], &PmOptions::default()).unwrap();
    for (slot, bytes) in (0..).zip(slots) {
        pm.fence(pm.stream(PmAddr::new(slot, 0), bytes, Purpose::Data)).end();
    }
    verify(&pm);
    let fs = open_as(pm, options);
    for (number, may) in files.iter().enumerate() {
        let found = read(&fs, number);
        assert!(
            may.contents.contains(&found),
            "{what}: file {number} is none of the {} that it may be",
            may.contents.len()
        );
    }
    fs
}

#[test]
fn no_commit_leads_to_what_was_lost() {
    for (update, placement) in [
        (UpdatePolicy::Auto, Placement::Spread),
        (UpdatePolicy::Cow, Placement::Wasa),
        (UpdatePolicy::Adl, Placement::Spread),
    ] {
        let (mut at, mut failures) = (1, 0);
        loop {
            let (has_failed, failed) = fail_at(at, update, placement);
            if !has_failed {
                break;
            }
            failures += failed;
            at += 1;
        }
        assert!(at > 300 && failures > 300, "{update:?}: {at} stores, {failures} failures");
    }
}

/// Gives files second names while a slot fails at one store, by turns files of different inode pages: no record has a
/// line of what the last one has. The lane may be in that slot, too. Says how many names
/// were refused, where there were so many stores.
fn name_again_at(at: u64, hint: u32, lanes: u32) -> Option<usize> {
    let blank = vec![0; usize::try_from(SLOT_BYTES).unwrap()];
    let failing = Failing::without_caches_at(at, vec![blank; 2]);
    let options = options(UpdatePolicy::Auto, Placement::Lanes);
    let fs = Arc::new(open_as(pool(&failing, lanes), &options));
    // Of lanes in turn, whose pages of inodes are in both slots.
    let files: Vec<Ino> = (0..32)
        .map(|number| {
            let ctx = Ctx { hint: u32::try_from(number).unwrap() % lanes, ..CTX };
            make_by(&fs, &ctx, number, FileKind::File).unwrap()
        })
        .collect();
    fs.close().unwrap();
    let pm = Arc::into_inner(fs).unwrap().into_pm();
    let fs = Arc::new(open_as(pm, &options));
    failing.begin(&fs, 1);
    let ctx = Ctx { hint, ..CTX };
    let link = |(number, file): (usize, &Ino)| {
        let (dir, second) = (Node::current(Ino::ROOT), name('g', number));
        fs.link(&ctx, Node::current(*file), dir, second.as_bytes()).is_ok()
    };
    let named: Vec<bool> = files.iter().enumerate().map(link).collect();
    let slots = [failing.left(fs.pm(), 0), failing.had()];
    let has_failed = fs.failed_slots() != 0;
    drop(fs);
    if has_failed {
        let fs = has_all(&slots, &[], &options, &format!("store {at}"));
        for (number, is_named) in named.iter().enumerate() {
            let found =
                fs.lookup(&CTX, Node::current(Ino::ROOT), name('g', number).as_bytes()).is_ok();
            assert!(found || !is_named, "store {at}: the second name of file {number}");
        }
    }
    let refused = named.iter().filter(|is_named| !**is_named).count();
    has_failed.then_some(refused)
}

/// A record stands for lines of inodes that are in the caches, until the lane's next one has written them back. Where the
/// slot failed in that, the next one but one was stored in its place.
#[test]
fn no_record_goes_whose_lines_were_lost_in_the_caches() {
    for lanes in [2, 4] {
        for hint in 0..lanes {
            let name = |at| name_again_at(at, hint, lanes);
            let refused: Vec<usize> = (1..1000).map_while(name).collect();
            let (count, refused) = (refused.len(), refused.iter().sum::<usize>());
            let what = format!("lane {hint} of {lanes}: {count} stores, {refused} refused");
            assert!((60..999).contains(&count) && refused > 3 * count, "{what}");
        }
    }
}

/// Fails a slot at one store of the closing; says whether there were so many.
fn fail_at_closing(at: u64, slot: u8) -> bool {
    let failing = Failing::at(at);
    let options = options(UpdatePolicy::Auto, Placement::Wasa);
    let fs = Arc::new(open_as(pool(&failing, 2), &options));
    let files: Vec<May> = (0..4).map(|number| work(&fs, number).0).collect();
    failing.begin(&fs, slot);
    let closed = fs.close();
    if fs.failed_slots() == 0 {
        closed.unwrap();
        return false;
    }
    let had = failing.had();
    let other = bytes_of(fs.pm(), 1 - slot);
    let slots = if slot == 0 { [had, other] } else { [other, had] };
    let what = format!("slot {slot} at store {at} of the closing, {closed:?}");
    has_all(&slots, &files, &options, &what);
    true
}

/// The others were of a session by then that the slot knew nothing of: it was called an old copy, and with slot 0 the
/// pool did not open any more.
#[test]
fn a_slot_that_fails_as_the_pool_is_closed_comes_back() {
    for slot in [0, 1] {
        let failed = (1..1000).take_while(|at| fail_at_closing(*at, slot)).count();
        assert!((9..999).contains(&failed), "slot {slot}: {failed} stores");
    }
}

/// Fails a slot at one store of an opening; says whether there were so many.
fn fail_at_opening(at: u64, slot: usize, left: &[Vec<u8>; 2], files: &[May]) -> bool {
    let slots = [(); 2].map(|()| NamedTempFile::new().unwrap());
    slots.iter().zip(left).for_each(|(slot, bytes)| std::fs::write(slot.path(), bytes).unwrap());
    let (failing, file) = (Failing::at(at), slots[slot].path().to_owned());
    let fail = move || {
        let had = std::fs::read(&file).unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
        had
    };
    assert!(failing.fail.set(Box::new(fail)).is_ok());
    let observer: Arc<dyn Observer> = failing.clone();
    let lock = SlotLock::Held;
    let pm_options = PmOptions { observer: Some(observer), lock, ..PmOptions::default() };
    let specs = slots.each_ref().map(|slot| SlotSpec::new(slot.path()));
    let pm = Pm::open(&specs, &pm_options).unwrap();
    let options = options(UpdatePolicy::Auto, Placement::Wasa);
    let arena = Arena::anonymous(64 * MB).unwrap();
    let opened = Fs::open(pm, arena, &options, &Serial, &|_| ());
    let had = failing.had();
    if had.is_empty() {
        opened.unwrap();
        return false;
    }
    let what = format!("slot {slot} at store {at} of the opening, {:?}", opened.as_ref().err());
    assert!(matches!(opened, Ok(_) | Err(Error::Lost(_))), "{what}");
    drop(opened);
    let other = std::fs::read(slots[1 - slot].path()).unwrap();
    has_all(&if slot == 0 { [had, other] } else { [other, had] }, files, &options, &what);
    true
}

#[test]
fn a_slot_that_fails_as_the_pool_is_opened_comes_back() {
    survive_failing_slots().unwrap();
    let options = options(UpdatePolicy::Auto, Placement::Wasa);
    for is_closed in [false, true] {
        let fs = open_as(pool(&Arc::default(), 2), &options);
        let files: Vec<May> = (0..4).map(|number| work(&fs, number).0).collect();
        if is_closed {
            fs.close().unwrap();
        }
        let left = [0, 1].map(|slot| bytes_of(fs.pm(), slot));
        for slot in [0, 1] {
            let count = (1..1000).take_while(|at| fail_at_opening(*at, slot, &left, &files));
            let count = count.count();
            assert!((3..999).contains(&count), "slot {slot}: {count} stores");
        }
    }
}
