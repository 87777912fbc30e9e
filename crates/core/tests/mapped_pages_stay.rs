//! Promise: as long as a client has a file's own pages mapped, each of them stays where it is, is what
//! reads and writes of all clients see, and goes to no other file.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::collections::BTreeMap;

use fastrand::Rng;
use novale_arena::{Arena, PidInfo};
use novale_core::{
    Ctx, Error, Fallocate, FileKind, Form, Fs, HoldId, Ino, MkfsOptions, NewInode, Node,
    OpenOptions, Place, Seek, Serial, SetAttr, UpdatePolicy, mkfs,
};
use novale_layout::PmAddr;
use novale_pm::{Pm, PmOptions, Purpose, SlotLock, SlotSpec};
use support::{MB, open, pool, verify};
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };
const PAGE: usize = 4096;

fn make(fs: &Fs, name: &[u8]) -> (Ino, u32) {
    let kind = FileKind::File;
    let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let made = fs.create(&CTX, Node::ROOT, name, &new).unwrap();
    (made.ino, made.generation)
}

fn set_size(fs: &Fs, ino: Ino, size: usize) {
    let size = Some(size as u64);
    fs.setattr(&CTX, Node::current(ino), &SetAttr { size, ..SetAttr::default() }).unwrap();
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let size = usize::try_from(fs.getattr(ino).unwrap().size).unwrap();
    let mut bytes = vec![1; size];
    assert_eq!(fs.read(&CTX, ino, 0, &mut bytes).unwrap(), size);
    bytes
}

fn free(fs: &Fs) -> u64 {
    fs.statfs().unwrap().pages_free
}

/// A mapping, as a process has one: where each page was when it was made.
struct Map<'a> {
    fs: &'a Fs,
    hold: HoldId,
    pages: BTreeMap<usize, PmAddr>,
}

impl<'a> Map<'a> {
    fn new(fs: &'a Fs, (ino, generation): (Ino, u32)) -> Self {
        let hold = fs.map_hold(&CTX, ino, generation).unwrap().unwrap();
        let mut map = Self { fs, hold, pages: BTreeMap::new() };
        map.look(1 << 20);
        map
    }

    /// Maps what is not mapped yet; what is must lie where it lay.
    fn look(&mut self, pages: u64) {
        for run in self.fs.map_pages(&CTX, self.hold, 0, pages).unwrap() {
            for page in 0..run.pages {
                let at = run.addr.add(page * PAGE as u64);
                let file_page = usize::try_from(run.file_page + page).unwrap();
                assert_eq!(*self.pages.entry(file_page).or_insert(at), at, "page {file_page}");
            }
        }
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        let at = self.pages[&(offset / PAGE)].add((offset % PAGE) as u64);
        let pm = self.fs.pm();
        pm.fence(pm.stream(at, bytes, Purpose::Data)).end();
    }

    /// What the mapping shows of the first `size` bytes, as far as it is mapped.
    fn assert_shows(&self, expected: &[u8]) {
        for (page, at) in &self.pages {
            let Some(rest) = expected.get(page * PAGE..) else { continue };
            let rest = &rest[..rest.len().min(PAGE)];
            let mut seen = vec![0; rest.len()];
            self.fs.pm().load(*at, &mut seen).unwrap();
            assert!(seen == rest, "page {page} of the mapping");
        }
    }

    fn end(self) {
        self.fs.open_release(&CTX, self.hold).unwrap();
    }
}

/// One random change of a file, in the file system and in memory.
fn change(random: &mut Rng, fs: &Fs, ino: Ino, model: &mut Vec<u8>) {
    let offset = random.usize(..90_000);
    let most = if random.bool() { 300 } else { 30_000 };
    let len = random.usize(1..most);
    let bytes: Vec<u8> = (0..len).map(|_| random.u8(1..)).collect();
    let end = offset + len;
    let range = (offset as u64, len as u64);
    let grow = |model: &mut Vec<u8>, end: usize| model.resize(model.len().max(end), 0);
    match random.u8(..9) {
        0..=2 => {
            fs.write(&CTX, ino, range.0, &bytes).unwrap();
            grow(model, end);
            model[offset..end].copy_from_slice(&bytes);
        }
        3 => {
            fs.append(&CTX, ino, &bytes).unwrap();
            model.extend(&bytes);
        }
        4 => {
            set_size(fs, ino, offset);
            model.resize(offset, 0);
        }
        5 => {
            fs.fallocate(&CTX, ino, Fallocate::PunchHole, range.0, range.1).unwrap();
            let stop = end.min(model.len());
            if let Some(range) = model.get_mut(offset..stop) {
                range.fill(0);
            }
        }
        6 => {
            fs.fallocate(&CTX, ino, Fallocate::ZeroRange, range.0, range.1).unwrap();
            grow(model, end);
            model[offset..end].fill(0);
        }
        7 => {
            fs.fallocate(&CTX, ino, Fallocate::Extend, range.0, range.1).unwrap();
            grow(model, end);
        }
        _ => {
            // From the front to beyond the end of the longest.
            let to = Place { ino, offset: 200_000 };
            let done = fs.copy_range(&CTX, Place { ino, offset: 0 }, to, range.1).unwrap();
            let done = usize::try_from(done).unwrap();
            if done > 0 {
                grow(model, 200_000 + done);
                model.copy_within(..done, 200_000);
            }
        }
    }
    if model.len() > 250_000 {
        set_size(fs, ino, 70_000);
        model.truncate(70_000);
    }
}

#[test]
fn whatever_is_done_to_a_mapped_file_the_mapping_shows_it() {
    for (seed, form) in (0..12).zip([Form::Single, Form::Two].into_iter().cycle()) {
        let fs = open(pool(&[16 * MB], 2), form);
        let mut random = Rng::with_seed(seed);
        let (ino, generation) = make(&fs, b"file");
        let mut model = Vec::new();
        for _ in 0..10 {
            change(&mut random, &fs, ino, &mut model);
        }
        for _ in 0..6 {
            let mut map = Map::new(&fs, (ino, generation));
            for _ in 0..25 {
                change(&mut random, &fs, ino, &mut model);
                let (at, len) = (random.usize(..100_000), random.usize(1..64));
                if at + len <= model.len() && at % PAGE + len <= PAGE {
                    map.look(1 << 20);
                    let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                    map.store(at, &bytes);
                    model[at..at + len].copy_from_slice(&bytes);
                }
                assert!(contents(&fs, ino) == model, "seed {seed}");
                map.assert_shows(&model);
            }
            map.end();
            for _ in 0..5 {
                change(&mut random, &fs, ino, &mut model);
                assert!(contents(&fs, ino) == model, "seed {seed}");
            }
        }
        fs.close().unwrap();
        verify(&fs.into_pm());
    }
}

#[test]
fn what_is_cut_off_is_free_only_behind_the_last_mapping() {
    let fs = open(pool(&[16 * MB], 2), Form::Auto);
    let file = make(&fs, b"file");
    fs.write(&CTX, file.0, 0, &vec![7; 64 * PAGE]).unwrap();
    let [first, second] = [(); 2].map(|()| Map::new(&fs, file));
    let before = free(&fs);
    set_size(&fs, file.0, 10);
    assert!(free(&fs) <= before, "pages that are mapped were freed");
    // What others get is none of these pages.
    let (other, _) = make(&fs, b"other");
    fs.write(&CTX, other, 0, &vec![9; 64 * PAGE]).unwrap();
    first.store(20 * PAGE, b"stored by one who has not seen it go");
    assert!(contents(&fs, other).iter().all(|byte| *byte == 9));
    first.end();
    let one_left = free(&fs);
    second.end();
    assert!(free(&fs) >= one_left + 63);
    fs.close().unwrap();
    verify(&fs.into_pm());
}

#[test]
fn a_removed_file_stays_as_long_as_it_is_mapped() {
    let fs = open(pool(&[16 * MB], 2), Form::Auto);
    let file = make(&fs, b"file");
    fs.write(&CTX, file.0, 0, &vec![7; 64 * PAGE]).unwrap();
    let map = Map::new(&fs, file);
    fs.unlink(&CTX, Node::ROOT, b"file").unwrap();
    map.store(5, b"still there");
    assert_eq!(&contents(&fs, file.0)[5..16], b"still there");
    set_size(&fs, file.0, PAGE);
    let before = free(&fs);
    map.end();
    assert!(free(&fs) >= before + 64);
    assert!(matches!(fs.getattr(file.0), Err(Error::Stale)));
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// A view that had been dropped did not know that the line that stands has a checksum: recovery refused
/// a commit whose page was mapped and stored to since, and the write was gone.
#[test]
fn a_checksum_is_known_of_when_the_view_was_dropped_meanwhile() {
    let options = |form| OpenOptions { form, index_bytes: Some(0), ..OpenOptions::default() };
    let fs = support::open_as(pool(&[16 * MB], 2), &options(Form::Single));
    let file = make(&fs, b"file");
    fs.write(&CTX, file.0, 0, &[1; PAGE]).unwrap();
    for number in 0..100 {
        make(&fs, format!("other {number}").as_bytes());
    }
    let map = Map::new(&fs, file);
    map.store(100, b"mapped");
    let fs = open(fs.into_pm(), Form::Single);
    assert_eq!(&contents(&fs, file.0)[100..106], b"mapped");
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// Nor that the newest operation's entries are to be redone after a crash: recovery would store what they have over what
/// was stored to the page since.
#[test]
fn what_is_to_be_redone_is_known_of_also_when_the_view_was_dropped_meanwhile() {
    for (update, others) in
        [(UpdatePolicy::FineLog, 100), (UpdatePolicy::FineLog, 0), (UpdatePolicy::Adl, 0)]
    {
        let index_bytes = (others > 0).then_some(0);
        let options = OpenOptions { form: Form::Two, index_bytes, ..OpenOptions::default() };
        let fs = support::open_as(pool(&[16 * MB], 2), &options);
        let file = make(&fs, b"file");
        fs.write(&CTX, file.0, 0, &[1; PAGE]).unwrap();
        let update = Some(Some(update));
        fs.setattr(&CTX, Node::current(file.0), &SetAttr { update, ..SetAttr::default() }).unwrap();
        fs.write(&CTX, file.0, 96, b"by the log").unwrap();
        for number in 0..others {
            make(&fs, format!("other {number}").as_bytes());
        }
        let map = Map::new(&fs, file);
        map.store(100, b"mapped");
        let fs = open(fs.into_pm(), Form::Two);
        assert_eq!(&contents(&fs, file.0)[96..106], b"by tmapped", "{update:?}, {others}");
        fs.close().unwrap();
        verify(&fs.into_pm());
    }
}

/// The last commit's checksum covered the page that was then stored to: recovery refused the commit,
/// and the write was gone.
#[test]
fn stores_to_mapped_pages_cost_no_commit_its_checksum() {
    for pages in [1, 2] {
        let fs = open(pool(&[16 * MB], 2), Form::Single);
        let file = make(&fs, b"file");
        fs.write(&CTX, file.0, 0, &[1; PAGE]).unwrap();
        let mut map = Map::new(&fs, file);
        if pages == 2 {
            // A new page of a file that is mapped: it may be mapped next.
            fs.write(&CTX, file.0, PAGE as u64, &[2; PAGE]).unwrap();
            map.look(2);
        }
        for page in 0..pages {
            map.store(page * PAGE + 100, b"mapped");
        }
        // As a power cut: nothing is closed.
        let fs = open(fs.into_pm(), Form::Single);
        let seen = contents(&fs, file.0);
        assert_eq!(seen.len(), pages * PAGE);
        assert!(seen.chunks(PAGE).all(|page| &page[100..106] == b"mapped"));
        fs.close().unwrap();
        verify(&fs.into_pm());
    }
}

#[test]
fn mappings_of_the_kernel_and_of_the_file_itself_exclude_each_other() {
    let fs = open(pool(&[16 * MB], 2), Form::Auto);
    let file = make(&fs, b"file");
    fs.hold(file.0).unwrap();
    fs.set_mapped(&CTX, file.0, true).unwrap();
    assert!(matches!(fs.map_hold(&CTX, file.0, file.1), Err(Error::Mapped)));
    fs.set_mapped(&CTX, file.0, false).unwrap();
    let map = Map::new(&fs, file);
    assert!(matches!(fs.set_mapped(&CTX, file.0, true), Err(Error::Pinned)));
    for how in [Fallocate::CollapseRange, Fallocate::InsertRange] {
        fs.write(&CTX, file.0, 0, &[1; 3 * PAGE]).unwrap();
        let refused = fs.fallocate(&CTX, file.0, how, 0, PAGE as u64);
        assert!(matches!(refused, Err(Error::Pinned)));
    }
    map.end();
    fs.set_mapped(&CTX, file.0, true).unwrap();
    fs.release(&CTX, file.0, 1).unwrap();
    assert_eq!(fs.map_hold(&CTX, file.0, file.1 + 1).unwrap(), None);
    assert!(matches!(fs.map_hold(&CTX, Ino::ROOT, 1), Err(Error::IsDirectory)));
    fs.close().unwrap();
}

/// A copy by holes passed over what was stored to a mapping, as long as the kernel had not written it back.
#[test]
fn a_file_that_a_kernel_has_mapped_is_data_up_to_its_end() {
    let fs = open(pool(&[16 * MB], 2), Form::Auto);
    let (ino, _) = make(&fs, b"file");
    fs.hold(ino).unwrap();
    set_size(&fs, ino, 3 * PAGE);
    let seek = |offset, what| fs.seek(ino, offset, what);
    assert!(matches!(seek(7, Seek::Data), Err(Error::NoSuchOffset)));
    assert_eq!(seek(7, Seek::Hole).unwrap(), 7);
    fs.set_mapped(&CTX, ino, true).unwrap();
    assert_eq!(seek(7, Seek::Data).unwrap(), 7);
    assert_eq!(seek(7, Seek::Hole).unwrap(), 3 * PAGE as u64);
    assert!(matches!(seek(3 * PAGE as u64, Seek::Data), Err(Error::NoSuchOffset)));
    fs.set_mapped(&CTX, ino, false).unwrap();
    assert!(matches!(seek(7, Seek::Data), Err(Error::NoSuchOffset)));
    fs.release(&CTX, ino, 1).unwrap();
    fs.close().unwrap();
}

#[test]
fn who_can_gives_way_to_a_kernel() {
    let fs = open(pool(&[16 * MB], 2), Form::Auto);
    let file = make(&fs, b"file");
    let can = || fs.map_hold_giving_way(&CTX, file.0, file.1);
    let holds = [can().unwrap().unwrap(), can().unwrap().unwrap()];
    let turn = fs.mappings_turn();
    assert!(!fs.is_wanted(&CTX, file.0).unwrap());
    assert!(!fs.ask_to_map(&CTX, file.0).unwrap());
    assert!(fs.is_wanted(&CTX, file.0).unwrap() && !fs.is_mapped(&CTX, file.0).unwrap());
    // Who holds it is woken; nobody else begins.
    assert_ne!(fs.mappings_turn(), turn);
    assert!(matches!(can(), Err(Error::Mapped)));
    fs.open_release(&CTX, holds[0]).unwrap();
    assert!(!fs.ask_to_map(&CTX, file.0).unwrap());
    let turn = fs.mappings_turn();
    fs.open_release(&CTX, holds[1]).unwrap();
    assert_ne!(fs.mappings_turn(), turn, "who asked is told of the last one");
    assert!(fs.ask_to_map(&CTX, file.0).unwrap());
    assert!(fs.is_mapped(&CTX, file.0).unwrap() && !fs.is_wanted(&CTX, file.0).unwrap());
    assert!(matches!(can(), Err(Error::Mapped)));
    fs.set_mapped(&CTX, file.0, false).unwrap();
    // Where one can't, it is said at once, and nobody is asked to.
    let fixed = fs.map_hold(&CTX, file.0, file.1).unwrap().unwrap();
    let hold = can().unwrap().unwrap();
    assert!(matches!(fs.ask_to_map(&CTX, file.0), Err(Error::Pinned)));
    assert!(!fs.is_wanted(&CTX, file.0).unwrap());
    for hold in [fixed, hold] {
        fs.open_release(&CTX, hold).unwrap();
    }
    // What was said of others does not count for those who come after the last of them.
    let hold = can().unwrap().unwrap();
    assert!(!fs.ask_to_map(&CTX, file.0).unwrap());
    fs.open_release(&CTX, hold).unwrap();
    fs.close().unwrap();
}

#[test]
fn who_finds_that_it_cannot_give_way_has_the_kernel_refused() {
    let fs = open(pool(&[16 * MB], 2), Form::Auto);
    let file = make(&fs, b"file");
    let can = || fs.map_hold_giving_way(&CTX, file.0, file.1);
    let stays = || fs.map_hold_staying(&CTX, file.0, file.1);
    let before = can().unwrap().unwrap();
    assert!(!fs.ask_to_map(&CTX, file.0).unwrap());
    assert!(!fs.has_way_to_map(&CTX, file.0).unwrap());
    let turn = fs.mappings_turn();
    let hold = stays().unwrap().unwrap();
    assert_ne!(fs.mappings_turn(), turn, "who waits looks again");
    fs.open_release(&CTX, before).unwrap();
    for refused in [fs.has_way_to_map(&CTX, file.0), fs.ask_to_map(&CTX, file.0)] {
        assert!(matches!(refused, Err(Error::Pinned)));
    }
    // Nobody waits any more, so that others begin as ever.
    assert!(!fs.is_wanted(&CTX, file.0).unwrap());
    let other = can().unwrap().unwrap();
    for hold in [hold, other] {
        fs.open_release(&CTX, hold).unwrap();
    }
    assert!(fs.has_way_to_map(&CTX, file.0).unwrap() && fs.is_mapped(&CTX, file.0).unwrap());
    assert!(matches!(stays(), Err(Error::Mapped)));
    fs.set_mapped(&CTX, file.0, false).unwrap();
    fs.close().unwrap();
}

#[test]
fn the_mappings_of_a_dead_client_end_with_it() {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(16 * MB).unwrap();
    let pm = |lock| {
        let options = PmOptions { lock, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    mkfs(&pm(SlotLock::Exclusive), &MkfsOptions::numbered(1, 2)).unwrap();
    let arena = Arena::anonymous(64 * MB).unwrap();
    let options = OpenOptions::default();
    let fs = Fs::open(pm(SlotLock::Held), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let file = make(&fs, b"file");
    fs.write(&CTX, file.0, 0, &vec![7; 64 * PAGE]).unwrap();
    let me = PidInfo::current();
    let ended = PidInfo { start_time: u64::MAX, ..me };
    let dead = Fs::attach(pm(SlotLock::Held), &arena, &options, ended).unwrap();
    let living = Fs::attach(pm(SlotLock::Held), &arena, &options, me).unwrap();
    let (theirs, mine) = (Map::new(&dead, file), Map::new(&living, file));
    set_size(&fs, file.0, PAGE);
    let before = free(&fs);
    drop(theirs);
    // As after SIGKILL: who holds something does not give its slot back.
    drop(dead);
    fs.settle_dead().unwrap();
    assert_eq!(fs.clients(), 2);
    assert!(free(&fs) <= before, "a page that the living one has mapped was freed");
    mine.end();
    assert!(free(&fs) >= before + 63);
    living.close().unwrap();
    drop(living);
    fs.close().unwrap();
    verify(&fs.into_pm());
}
