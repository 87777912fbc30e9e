//! The promise: a pool of which a slot is lost is writable again with another in its place, has all that did not
//! lie there, and shows nothing in the place of what did but zeros and missing names.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use novale_core::repair::{Change, Help, RepairReport, SavedPiece, give_up_slot};
use novale_core::{
    Ctx, Error, Fs, Ino, MkfsOptions, NewSlot, Node, OpenOptions, Placement, Result, Serial,
    SetAttr, UpdatePolicy, inspect, mkfs, replace_slot, take_back_slot, take_lost_place,
};
use novale_layout::{FileKind, PAGE, PmAddr};
use novale_pm::{Pm, PmOptions, Purpose, SlotSpec};
use support::tables::move_table;
use support::{MB, open_as, set_long_attribute, verify, write_over};
use tempfile::TempDir;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const FILES: u64 = 60;
const SLOTS: usize = 3;

fn options() -> OpenOptions {
    let update = Some(UpdatePolicy::Auto);
    OpenOptions { placement: Placement::Spread, update, now_ns: 2, ..OpenOptions::default() }
}

/// The slots' files, and one more.
struct Files(TempDir);

impl Files {
    fn new(bytes: u64) -> Self {
        let made = Self(tempfile::Builder::new().prefix("novale-lost.").tempdir().unwrap());
        for slot in 0..=SLOTS {
            File::create_new(made.path(slot)).unwrap().set_len(bytes).unwrap();
        }
        mkfs(&made.whole(), &MkfsOptions::numbered(SLOTS, 3)).unwrap();
        made
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.0.path().join(slot.to_string())
    }

    fn open(&self, slots: &[usize]) -> Pm {
        let specs: Vec<SlotSpec> = slots.iter().map(|slot| spec(&self.path(*slot))).collect();
        Pm::open(&specs, &PmOptions::default()).unwrap()
    }

    fn whole(&self) -> Pm {
        self.open(&[0, 1, 2])
    }

    /// With the new one in the place of the one that is lost.
    fn mended(&self, lost: usize) -> Pm {
        let slots: Vec<usize> =
            (0..SLOTS).map(|slot| if slot == lost { 3 } else { slot }).collect();
        self.open(&slots)
    }

    fn without(&self, lost: usize, read_only: bool) -> Pm {
        let spec = |slot| (slot != lost).then(|| spec(&self.path(slot)));
        let specs: Vec<Option<SlotSpec>> = (0..SLOTS).map(spec).collect();
        Pm::open_there(&specs, &PmOptions { read_only, ..PmOptions::default() }).unwrap()
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        (0..SLOTS).map(|slot| fs::read(self.path(slot)).unwrap()).collect()
    }

    /// Gives the place of the lost slot to the new one.
    fn replace(&self, lost: usize) -> Result<RepairReport> {
        let (pm, new) = (self.without(lost, false), self.open(&[3]));
        let report = give_up(&pm, new.slot_len(0) / PAGE)?;
        let new = NewSlot { pm: &new, uuid: [9; 16], endurance: 0 };
        assert_eq!(usize::from(take_lost_place(&pm, &new)?), lost);
        Ok(report)
    }
}

fn spec(path: &Path) -> SlotSpec {
    SlotSpec::new(path)
}

fn give_up(pm: &Pm, new_pages: u64) -> Result<RepairReport> {
    let mut keep = |_: &SavedPiece<'_>| Ok(());
    let mut help =
        Help { exec: &Serial, progress: &|_| (), keep: &mut keep, now_ns: 7, owner: (0, 0) };
    give_up_slot(pm, new_pages, &mut help)
}

fn make(fs: &Fs, dir: Ino, name: &str, kind: FileKind) -> Ino {
    support::make(fs, &CTX, dir, name, kind)
}

/// Some are as long that pages of them lie in all slots, and their logs in one.
fn contents(number: u64) -> Vec<u8> {
    let unit = if number % 10 == 5 { 60_000 } else { 1500 };
    (0..number * unit).map(|at| u8::try_from((at * 7 + number) % 250 + 1).unwrap()).collect()
}

/// Directories, files of several lengths that were written over, links, extended attributes.
fn fill(fs: &Fs) {
    for number in 0..FILES {
        let dir = make(fs, Ino::ROOT, &format!("d{number}"), FileKind::Directory);
        make(fs, dir, "link", FileKind::Symlink);
        let file = make(fs, dir, "file", FileKind::File);
        if number % 10 == 5 {
            // By several lanes, each of which has pages of a slot.
            for (hint, bytes) in (0..).zip(contents(number).chunks(40_960)) {
                let ctx = Ctx { hint, ..CTX };
                fs.write(&ctx, file, u64::from(hint) * 40_960, bytes).unwrap();
            }
            continue;
        }
        write_over(fs, &CTX, file, &contents(number), number % 2 == 1);
        set_long_attribute(fs, &CTX, file);
    }
}

/// What can be read of a file: its pages, none for one that is lost; nothing where the file is.
type Seen = BTreeMap<u64, Option<Vec<Option<Vec<u8>>>>>;

fn look(fs: &Fs) -> Seen {
    let find = |dir, name: &str| fs.lookup(&CTX, Node::current(dir), name.as_bytes());
    let look = |number: u64| -> Result<Vec<Option<Vec<u8>>>> {
        let file = find(find(Ino::ROOT, &format!("d{number}"))?.ino, "file")?.ino;
        let pages = contents(number).len().div_ceil(4096) as u64;
        let page = |page: u64| {
            let mut read = vec![0; 4096];
            match fs.read(&CTX, file, page * PAGE, &mut read) {
                Ok(len) => Ok(Some(read[..len].to_vec())),
                Err(Error::Lost(_)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        (0..pages).map(page).collect()
    };
    (0..FILES).map(|number| (number, look(number).ok())).collect()
}

/// What was to be seen without the slot is there as it was; of the rest nothing but zeros.
fn compare(before: &Seen, after: &Seen) {
    let (mut whole, mut holed) = (0, 0);
    for (number, seen) in before {
        let Some(seen) = seen else { continue };
        let now = after[number].as_ref().unwrap();
        whole += usize::from(seen.iter().all(Option::is_some));
        for (page, (seen, now)) in seen.iter().zip(now).enumerate() {
            let now = now.as_ref().unwrap();
            let is_zero = now.iter().all(|byte| *byte == 0);
            holed += usize::from(seen.is_none());
            let is_it = seen.as_ref().map_or(is_zero, |seen| seen == now);
            assert!(is_it, "file {number}, page {page}");
        }
    }
    assert!(whole > 0 && holed > 0, "{whole} whole files, {holed} pages lost");
}

fn filled(is_closed: bool) -> Files {
    let files = Files::new(16 * MB);
    let fs = open_as(files.whole(), &options());
    fill(&fs);
    fs.close().unwrap();
    if !is_closed {
        // Of what was written last it is asked whether it is there.
        let fs = open_as(fs.into_pm(), &options());
        let file = |number: u64| {
            let dir = format!("d{number}");
            let dir = fs.lookup(&CTX, Node::current(Ino::ROOT), dir.as_bytes()).unwrap().ino;
            fs.lookup(&CTX, Node::current(dir), b"file").unwrap().ino
        };
        for number in (0..FILES).filter(|number| number % 3 == 0) {
            for (at, bytes) in (0..).step_by(5000).zip(contents(number).chunks(5000)) {
                fs.write(&CTX, file(number), at, bytes).unwrap();
            }
        }
        make(&fs, Ino::ROOT, "last", FileKind::Directory);
    }
    files
}

fn seen_without(files: &Files, lost: usize) -> Seen {
    look(&open_as(files.without(lost, true), &OpenOptions { read_only: true, ..options() }))
}

fn mended(files: &Files, lost: usize) {
    let before = seen_without(files, lost);
    let report = files.replace(lost).unwrap();
    assert!(report.changes.iter().any(|change| change.is_loss));
    let pm = files.mended(lost);
    verify(&pm);
    let fs = open_as(pm, &options());
    compare(&before, &look(&fs));
    // All of it can be used.
    let file = make(&fs, Ino::ROOT, "new", FileKind::File);
    fs.write(&CTX, file, 0, &vec![1; 20 << 20]).unwrap();
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// Pages became zeros of which all that counts lay in the slots that are left: a second copy lay in the lost one, with no
/// line of the page in it any more.
#[test]
fn pages_of_which_an_old_second_copy_is_lost_are_kept() {
    let mut kept = 0;
    for lost in [1, 2] {
        let files = Files::new(16 * MB);
        let (placement, update) = (Placement::Lanes, Some(UpdatePolicy::Paired));
        let paired = OpenOptions { placement, update, ..options() };
        let fs = open_as(files.whole(), &paired);
        let inos: Vec<Ino> = (0..40)
            .map(|number| make(&fs, Ino::ROOT, &number.to_string(), FileKind::File))
            .collect();
        let mut bytes = vec![1; 16_000];
        for (number, ino) in (0..).zip(&inos) {
            // Of lanes that have pages of different slots.
            let [home, second] = [number, number / 3].map(|hint| Ctx { hint: hint % 3, ..CTX });
            fs.write(&home, *ino, 0, &vec![1; 16_000]).unwrap();
            // There and back.
            for (page, byte) in [(0, 2), (0, 3), (2, 2), (2, 3)] {
                fs.write(&second, *ino, page * 4096 + 70, &[byte; 100]).unwrap();
            }
        }
        for page in [0, 2] {
            bytes[page * 4096 + 70..][..100].fill(3);
        }
        // A close puts pages together.
        drop(fs);
        let is_whole = |fs: &Fs, ino: Ino| {
            let mut read = vec![0; bytes.len()];
            fs.read(&CTX, ino, 0, &mut read).is_ok() && read == bytes
        };
        let read_only = OpenOptions { read_only: true, ..options() };
        let before = open_as(files.without(lost, true), &read_only);
        let report = files.replace(lost).unwrap();
        let after = open_as(files.mended(lost), &options());
        for ino in inos.into_iter().filter(|ino| is_whole(&before, *ino)) {
            assert!(is_whole(&after, ino), "slot {lost}, inode {}: {report:#?}", ino.get());
        }
        let is_told = |change: &&Change| change.what.contains("no second copy any more");
        kept += report.changes.iter().filter(is_told).count();
        assert!(!report.changes.iter().filter(is_told).any(|change| change.is_loss));
        after.close().unwrap();
        verify(after.pm());
    }
    assert!(kept > 0);
}

#[test]
fn a_slot_of_a_pool_that_was_closed() {
    for lost in [1, 2] {
        mended(&filled(true), lost);
    }
}

#[test]
fn a_slot_of_a_pool_that_was_not() {
    for lost in [1, 2] {
        mended(&filled(false), lost);
    }
}

/// A file of which pages were lost ended, where a write had been acknowledged and lay in the log alone: what the
/// repair appends to the log supersedes that write.
#[test]
fn a_write_that_only_the_log_has_is_kept_beside_pages_that_are_lost() {
    const PAGES: u16 = 1300;
    let files = Files::new(16 * MB);
    let fs = open_as(files.whole(), &options());
    let file = make(&fs, Ino::ROOT, "file", FileKind::File);
    let page = |number: u16| [(number + 1).to_le_bytes(); 2048].concat();
    // By few entries, so that the log is one page, and in several slots.
    for first in (0..PAGES).step_by(325) {
        let pages: Vec<u8> = (first..first + 325).flat_map(page).collect();
        fs.write(&CTX, file, u64::from(first) * PAGE, &pages).unwrap();
    }
    let bytes = files.bytes();
    let numbers = |slot: usize| {
        let found =
            bytes[slot].chunks(4096).filter(|found| found.chunks(2).all(|two| two == &found[..2]));
        let numbers = found.map(|found| u16::from_le_bytes([found[0], found[1]]));
        numbers.filter_map(|number| number.checked_sub(1)).collect::<BTreeSet<u16>>()
    };
    let lost = (1..SLOTS).find(|slot| !numbers(*slot).is_empty()).unwrap();
    let gone = numbers(lost);
    assert!(numbers(0).contains(&0) && !gone.contains(&0));
    let update = Some(Some(UpdatePolicy::FineLog));
    fs.setattr(&CTX, Node::current(file), &SetAttr { update, ..SetAttr::default() }).unwrap();
    fs.write(&CTX, file, 100, &[99; 64]).unwrap();
    let written = [&page(0)[..100], &[99; 64]].concat();
    let slot = fs::read(files.path(0)).unwrap();
    let at = slot.chunks(4096).position(|page| page[..164] == written).unwrap();
    // As where the power went before these bytes were durable in their place.
    let at = PmAddr::new(0, at as u64 * PAGE + 100);
    fs.pm().fence(fs.pm().stream(at, &page(0)[100..164], Purpose::Data)).end();
    drop(fs);
    files.replace(lost).unwrap();
    let pm = files.mended(lost);
    verify(&pm);
    let fs = open_as(pm, &options());
    for number in 0..PAGES {
        let mut expected = if gone.contains(&number) { vec![0; 4096] } else { page(number) };
        if number == 0 {
            expected[100..164].fill(99);
        }
        let mut found = [7; 4096];
        fs.read(&CTX, file, u64::from(number) * PAGE, &mut found).unwrap();
        assert!(found == *expected, "page {number}");
    }
}

/// The lost slot comes back too late: it was unplugged, say.
#[test]
fn a_slot_that_was_given_up_is_never_written_with_the_others_again() {
    let files = filled(true);
    let before = seen_without(&files, 1);
    give_up(&files.without(1, false), u64::MAX).unwrap();
    let refused = inspect(&files.whole()).unwrap_err().to_string();
    assert!(refused.contains("slot 1 is of session"), "{refused}");
    let arena = novale_arena::Arena::anonymous(64 * MB).unwrap();
    let opened = Fs::open(files.without(1, false), arena, &options(), &Serial, &|_| ());
    let refused = opened.unwrap_err().to_string();
    assert!(refused.contains("slot 1 is missing"), "{refused}");
    // The same call once more.
    mended_again(&files, &before);
    let refused = inspect(&files.whole()).unwrap_err().to_string();
    assert!(refused.contains("slot 1 is of session"), "{refused}");
}

fn mended_again(files: &Files, before: &Seen) {
    files.replace(1).unwrap();
    let pm = files.mended(1);
    verify(&pm);
    compare(before, &look(&open_as(pm, &options())));
}

/// Until its end nobody writes, and nobody takes the mark away who does not know of it.
#[test]
fn the_mark_keeps_the_pool_from_being_written() {
    let files = filled(true);
    let pm = files.without(2, false);
    give_up(&pm, u64::MAX).unwrap();
    let new = files.open(&[3]);
    let slot0 = fs::read(files.path(0)).unwrap();
    take_lost_place(&pm, &NewSlot { pm: &new, uuid: [9; 16], endurance: 0 }).unwrap();
    drop((pm, new));
    // As if the last store had been cut off.
    fs::write(files.path(0), slot0).unwrap();
    let pm = files.mended(2);
    let refused = take_back_slot(&pm, 0).unwrap_err().to_string();
    assert!(refused.contains("slot 2 is lost"), "{refused}");
    // Slot 0 has the mark.
    let other = Pm::anonymous(&[16 * MB], &PmOptions::default()).unwrap();
    let new = NewSlot { pm: &other, uuid: [8; 16], endurance: 0 };
    let refused = replace_slot(&pm, 0, &new, &Serial, &|_| ()).unwrap_err().to_string();
    assert!(refused.contains("slot 2 is lost"), "{refused}");
    let arena = novale_arena::Arena::anonymous(64 * MB).unwrap();
    let refused = Fs::open(pm, arena, &options(), &Serial, &|_| ()).unwrap_err().to_string();
    assert!(refused.contains("--lost"), "{refused}");
    files.replace(2).unwrap();
    verify(&files.mended(2));
}

/// Entries that no longer count name places of the lost slot, which must be places of the new one.
#[test]
fn a_slot_too_short_is_refused_before_anything_changes() {
    let files = filled(true);
    let before = files.bytes();
    let refused = give_up(&files.without(1, false), 300).unwrap_err().to_string();
    assert!(refused.contains("300 pages") && refused.contains("a longer one"), "{refused}");
    assert!(files.bytes() == before);
    fs::copy(files.path(1), files.0.path().join("kept")).unwrap();
    let pm = Pm::open_there(&[None, Some(spec(&files.path(1)))], &PmOptions::default()).unwrap();
    assert!(give_up(&pm, u64::MAX).unwrap_err().to_string().contains("slot 0"));
}

#[test]
fn a_table_of_inodes_that_is_lost_is_made_anew() {
    let files = Files::new(32 * MB);
    let fs = open_as(files.whole(), &options());
    let dir = make(&fs, Ino::ROOT, "dir", FileKind::Directory);
    for number in 0..8500 {
        let file = make(&fs, dir, &format!("f{number}"), FileKind::File);
        fs.write(&CTX, file, 0, &number.to_string().into_bytes()).unwrap();
    }
    fs.close().unwrap();
    move_table(fs.pm(), 1);
    drop(fs);
    let report = files.replace(1).unwrap();
    let made = |change: &Change| change.what.contains("the table of chunk 1 was lost");
    assert!(report.changes.iter().any(made), "{}", report.changes.len());
    let pm = files.mended(1);
    verify(&pm);
    let fs = open_as(pm, &options());
    // Their directory may be lost, and then they are in lost+found.
    let find = |dir, name: &str| fs.lookup(&CTX, Node::current(dir), name.as_bytes()).ok();
    let dirs = ["dir", "lost+found"].map(|name| find(Ino::ROOT, name));
    let dirs: Vec<Ino> = dirs.into_iter().flatten().map(|dir| dir.ino).collect();
    let all = (0..9000).flat_map(|number| [format!("f{number}"), format!("#{number}")]);
    let files = all
        .flat_map(|name| dirs.iter().filter_map(move |dir| find(*dir, &name)).collect::<Vec<_>>());
    let mut found = 0;
    for file in files.filter(|file| file.ino.get() >= 8192) {
        let mut read = [0; 10];
        let len = fs.read(&CTX, file.ino, 0, &mut read).unwrap();
        // A page of it may have been lost.
        let is_its = read[..len].iter().all(|byte| byte.is_ascii_digit() || *byte == 0);
        assert!(is_its && len > 0, "{read:?}");
        found += 1;
    }
    assert!(found > 50, "{found} files");
}

/// Of a pool that was closed clean its journals say nothing more: what lies elsewhere is all there.
#[test]
fn a_lost_journal_is_damage_where_the_pool_was_not_closed_clean() {
    let files = Files::new(8 * MB);
    let damaged = |lost| {
        let fs = open_as(files.without(lost, true), &OpenOptions { read_only: true, ..options() });
        fs.opened().damaged
    };
    for (clean, expected) in [(true, 0), (false, 1)] {
        let fs = open_as(files.whole(), &options());
        if clean {
            fs.close().unwrap();
        }
        drop(fs);
        assert_eq!([damaged(1), damaged(2)], [expected; 2], "closed clean: {clean}");
    }
}

/// The others say of which session it is, and nothing says that it was closed.
#[test]
fn a_pool_without_its_first_slot_is_of_its_session_and_not_closed() {
    let files = Files::new(8 * MB);
    open_as(files.whole(), &options()).close().unwrap();
    let whole = inspect(&files.whole()).unwrap();
    let rest = inspect(&files.without(0, true)).unwrap();
    assert_eq!((rest.uuid, rest.session), (whole.uuid, whole.session));
    assert!(whole.clean && !rest.clean);
}
