//! What is buffered is what every reader sees, is durable once that was asked for, and finds room in the
//! pool when it goes there.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use novale_arena::{Arena, ClientInfo, PidInfo};
use novale_core::{
    BufferRules, Ctx, Error, Fallocate, FileKind, Form, Fs, Ino, MkfsOptions, Mode, NewInode, Node,
    OpenOptions, RenameMode, Serial, SetAttr, SetXattr, WriteBack, has_left_behind, mkfs,
};
use novale_layout::PmAddr;
use novale_pm::{
    Observer, Pm, PmOptions, Purpose, SlotLock, SlotSpec, StoreEvent, survive_failing_slots,
};
use support::stop::StopAt;
use support::{MB, open_as, pool, verify};
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 10, hint: 0 };
const PAGE: u64 = 4096;

fn buffered() -> OpenOptions {
    let mode = Some(Mode::Buffered);
    // All writes are buffered, whatever syncs say.
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    OpenOptions { form: Form::Auto, mode, now_ns: 2, buffer_rules, ..OpenOptions::default() }
}

fn create(fs: &Fs, name: &str) -> Ino {
    create_by(fs, &CTX, name)
}

fn create_by(fs: &Fs, ctx: &Ctx, name: &str) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(ctx, Node::ROOT, name.as_bytes(), &new).unwrap().ino
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(fs.getattr(ino).unwrap().size).unwrap() + 10];
    let read = fs.read(&CTX, ino, 0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// The file system as a power cut leaves it that loses all that was not fenced.
fn after_crash(fs: Fs) -> Fs {
    open_as(fs.into_pm(), &buffered())
}

#[test]
fn nothing_is_stored_before_it_is_asked_for_and_all_of_it_then() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let ino = create(&fs, "f");
    fs.write(&CTX, ino, 10, &[1; 5000]).unwrap();
    fs.sync(&CTX, ino).unwrap();
    fs.write(&CTX, ino, 4000, &[2; 9000]).unwrap();
    fs.append(&CTX, ino, &[3; 100]).unwrap();
    let all = [&[0; 10][..], &[1; 3990], &[2; 9000], &[3; 100]].concat();
    assert_eq!(contents(&fs, ino), all);
    let fs = after_crash(fs);
    assert_eq!(contents(&fs, ino), [&[0; 10][..], &[1; 5000]].concat());
    fs.write(&CTX, ino, 4000, &[2; 9000]).unwrap();
    fs.append(&CTX, ino, &[3; 100]).unwrap();
    fs.sync(&CTX, ino).unwrap();
    assert_eq!(fs.buffer_use().unwrap().blocks, 0);
    let fs = after_crash(fs);
    assert_eq!(contents(&fs, ino), all);
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// tar with `--sparse` takes a file that has a length and no blocks for one hole, and stores none of its bytes.
#[test]
fn what_is_buffered_counts_as_blocks() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let ino = create(&fs, "f");
    let blocks = |fs: &Fs| fs.getattr(ino).unwrap().blocks;
    let empty = blocks(&fs);
    fs.write(&CTX, ino, 10, &[1; 9000]).unwrap();
    assert_eq!(blocks(&fs), empty + 3 * 8);
    // It is no less in the pool, whose log counts too.
    fs.sync(&CTX, ino).unwrap();
    let synced = blocks(&fs);
    assert!(synced >= empty + 3 * 8, "{synced}");
    fs.write(&CTX, ino, 1 << 20, &[1]).unwrap();
    assert_eq!(blocks(&fs), synced + 8);
}

#[test]
fn closing_keeps_everything() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let ino = create(&fs, "f");
    fs.write(&CTX, ino, 0, &[1; 5000]).unwrap();
    fs.close().unwrap();
    let fs = open_as(fs.into_pm(), &buffered());
    assert!(fs.opened().clean);
    assert_eq!(contents(&fs, ino), [1; 5000]);
}

/// A file without a name goes when the pool is closed, and nothing is stored of its bytes before.
#[test]
fn closing_drops_what_has_no_name() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let ino = create(&fs, "f");
    fs.hold(ino).unwrap();
    fs.unlink(&CTX, Node::ROOT, b"f").unwrap();
    let data = |fs: &Fs| fs.counters().of(Purpose::Data).lines;
    let before = data(&fs);
    fs.write(&CTX, ino, 0, &[1; 9000]).unwrap();
    fs.close().unwrap();
    assert_eq!(data(&fs), before);
    verify(&fs.into_pm());
}

/// Whatever comes after a buffered write and is durable itself has the write with it, or says nothing of
/// the file's bytes.
#[test]
fn what_is_durable_at_once_brings_what_came_before() {
    type Act = fn(&Fs, Ino);
    let acts: [Act; 8] = [
        |fs, ino| {
            let size = Some(6000);
            fs.setattr(&CTX, Node::current(ino), &SetAttr { size, ..SetAttr::default() })
                .map(drop)
                .unwrap();
        },
        |fs, ino| {
            let mtime_ns = Some(5);
            fs.setattr(&CTX, Node::current(ino), &SetAttr { mtime_ns, ..SetAttr::default() })
                .map(drop)
                .unwrap();
        },
        |fs, ino| fs.fallocate(&CTX, ino, Fallocate::Extend, 0, 9000).unwrap(),
        |fs, _| {
            create(fs, "g");
            let replace = RenameMode::Replace;
            fs.rename(&CTX, Node::ROOT, b"f", Node::ROOT, b"g", replace).unwrap();
        },
        |fs, ino| {
            fs.link(&CTX, Node::current(ino), Node::ROOT, b"l").map(drop).unwrap();
        },
        |fs, ino| {
            let generation = fs.getattr(ino).unwrap().generation;
            fs.map_hold(&CTX, ino, generation).unwrap().unwrap();
        },
        |fs, ino| fs.set_mapped(&CTX, ino, true).unwrap(),
        |fs, _| fs.sync_all(&CTX).unwrap(),
    ];
    for (index, act) in acts.into_iter().enumerate() {
        let fs = open_as(pool(&[16 * MB], 2), &buffered());
        let ino = create(&fs, "f");
        fs.write(&CTX, ino, 0, &[1; 5000]).unwrap();
        act(&fs, ino);
        let fs = after_crash(fs);
        assert_eq!(contents(&fs, ino).get(..5000), Some(&[1; 5000][..]), "{index}");
    }
}

#[test]
fn a_file_and_a_directory_choose_for_themselves() {
    let options = OpenOptions { mode: Some(Mode::Strict), ..buffered() };
    let fs = open_as(pool(&[16 * MB], 2), &options);
    let choose = |node, mode| {
        let set = SetAttr { mode_of_writes: Some(mode), ..SetAttr::default() };
        fs.setattr(&CTX, node, &set).unwrap();
    };
    let strict = create(&fs, "strict");
    choose(Node::ROOT, Some(Mode::Buffered));
    let lazy = create(&fs, "lazy");
    assert_eq!(fs.mode_of(lazy).unwrap(), Some(Mode::Buffered));
    fs.write(&CTX, strict, 0, &[1; 100]).unwrap();
    assert_eq!(fs.buffer_use().unwrap().blocks, 0);
    fs.write(&CTX, lazy, 0, &[1; 100]).unwrap();
    assert_eq!(fs.buffer_use().unwrap().blocks, 1);
    // What is buffered goes with the next write, which is not.
    choose(Node::current(lazy), Some(Mode::Strict));
    fs.write(&CTX, lazy, 200, &[2; 100]).unwrap();
    assert_eq!(fs.buffer_use().unwrap().blocks, 0);
    assert_eq!(contents(&fs, lazy), [[1; 100], [0; 100], [2; 100]].concat());
}

/// A client that was not told of modes waits for nothing: a file that is to be buffered is not.
#[test]
fn without_a_mode_all_writes_are_durable() {
    let fs = open_as(pool(&[16 * MB], 2), &OpenOptions { mode: None, ..buffered() });
    let ino = create(&fs, "f");
    let set = SetAttr { mode_of_writes: Some(Some(Mode::Buffered)), ..SetAttr::default() };
    fs.setattr(&CTX, Node::current(ino), &set).unwrap();
    fs.write(&CTX, ino, 0, &[1; 100]).unwrap();
    assert_eq!(fs.buffer_use().unwrap().blocks, 0);
    assert_eq!(contents(&after_crash(fs), ino), [1; 100]);
}

/// A pool is filled through the buffer: what was taken fits, all of it, and what does not fit was refused.
#[test]
fn what_was_taken_has_room() {
    let fs = open_as(pool(&[8 * MB], 2), &buffered());
    let mut files = Vec::new();
    let refused = loop {
        let ino = create(&fs, &format!("f{}", files.len()));
        match fs.write(&CTX, ino, 100, &vec![1; 30_000]) {
            Ok(_) => files.push(ino),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    fs.sync_all(&CTX).unwrap();
    assert_eq!(fs.buffer_use().unwrap().pages_reserved, 0);
    let fs = after_crash(fs);
    for ino in files {
        assert_eq!(contents(&fs, ino), [&[0; 100][..], &vec![1; 30_000]].concat());
    }
}

/// A file's write-back takes two pages at most here, and six are reserved for it.
#[test]
fn what_is_available_is_less_what_a_write_back_takes() {
    const FILES: u64 = 300;
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    for number in 0..FILES {
        let ino = create(&fs, &format!("f{number}"));
        fs.write(&CTX, ino, 0, &[7; 100]).unwrap();
    }
    let told = fs.statfs().unwrap().pages_available;
    assert!(fs.buffer_use().unwrap().pages_reserved >= 6 * FILES);
    fs.sync_all(&CTX).unwrap();
    let left = fs.statfs().unwrap().pages_available;
    assert!((left - FILES..=left).contains(&told), "{told} were said, {left} are left");
}

/// Changes in a full pool let their files' logs grow, from the reserve. What was reserved for the buffer stays:
/// else its files could not be flushed, and the pool not be closed.
#[test]
fn changes_leave_what_is_reserved() {
    let fs = open_as(pool(&[8 * MB], 2), &buffered());
    let choose = |mode| {
        let set = SetAttr { mode_of_writes: Some(mode), ..SetAttr::default() };
        fs.setattr(&CTX, Node::ROOT, &set).unwrap();
    };
    let lazy: Vec<Ino> = (0..4).map(|file| create(&fs, &format!("l{file}"))).collect();
    for ino in &lazy {
        fs.write(&CTX, *ino, 0, &vec![1; 200_000]).unwrap();
    }
    choose(Some(Mode::Strict));
    let without_log: Vec<Ino> = (0..300).map(|file| create(&fs, &format!("e{file}"))).collect();
    let mut strict = Vec::new();
    loop {
        let ino = create(&fs, &format!("s{}", strict.len()));
        match fs.write(&CTX, ino, 0, &vec![1; 16_384]) {
            Ok(_) => strict.push(ino),
            Err(error) => break assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }
    let reserved = fs.buffer_use().unwrap().pages_reserved;
    assert!(reserved >= 4 * 49, "{reserved}");
    for round in 0..100_u8 {
        for ino in &strict {
            fs.write(&CTX, *ino, 4096, &[round; 8192]).unwrap();
        }
    }
    let mut refused = 0;
    for ino in &without_log {
        let set = SetAttr { uid: Some(7), ..SetAttr::default() };
        match fs.setattr(&CTX, Node::current(*ino), &set) {
            Ok(_) => {}
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "the reserve was never used up");
    for ino in &lazy {
        fs.sync(&CTX, *ino).unwrap();
        assert_eq!(contents(&fs, *ino), vec![1; 200_000]);
    }
    assert_eq!(fs.buffer_use().unwrap().pages_reserved, 0);
    fs.close().unwrap();
    verify(&fs.into_pm());
}

/// A buffer of few blocks: who finds none left flushes others' files, the least recently written first.
#[test]
fn a_full_buffer_gives_up_what_is_oldest() {
    let options = OpenOptions { buffer_bytes: Some(64 * (PAGE + 64)), ..buffered() };
    let fs = open_as(pool(&[64 * MB], 2), &options);
    let files: Vec<Ino> = (0..20).map(|file| create(&fs, &format!("f{file}"))).collect();
    for (now_ns, ino) in (100..).zip(&files) {
        fs.write(&Ctx { now_ns, hint: 0 }, *ino, 0, &vec![2; 10 * 4096]).unwrap();
        assert!(fs.buffer_use().unwrap().blocks <= 64);
    }
    let fs = after_crash(fs);
    let kept: Vec<bool> = files.iter().map(|ino| !contents(&fs, *ino).is_empty()).collect();
    let flushed = kept.iter().filter(|kept| **kept).count();
    assert!(flushed > 0 && flushed < files.len(), "{kept:?}");
    assert!(kept.is_sorted_by(|before, after| before >= after), "{kept:?}");
}

#[test]
fn what_is_old_is_written_back() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let (old, new) = (create(&fs, "old"), create(&fs, "new"));
    fs.write(&Ctx { now_ns: 100, hint: 0 }, old, 0, &[1; 100]).unwrap();
    fs.write(&Ctx { now_ns: 200, hint: 0 }, new, 0, &[1; 100]).unwrap();
    // Written again since, and dirty for as long.
    fs.write(&Ctx { now_ns: 300, hint: 0 }, old, 50, &[1; 100]).unwrap();
    let what = WriteBack { free_percent: 20, since_before_ns: 150, waits: false };
    assert_eq!(fs.write_back(&CTX, what).unwrap().files, 1);
    let fs = after_crash(fs);
    assert_eq!((contents(&fs, old).len(), contents(&fs, new).len()), (150, 0));
}

#[test]
fn a_removed_file_stores_nothing() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let ino = create(&fs, "f");
    fs.write(&CTX, ino, 0, &vec![1; 50_000]).unwrap();
    fs.unlink(&CTX, Node::ROOT, b"f").unwrap();
    let use_now = fs.buffer_use().unwrap();
    assert_eq!((use_now.blocks, use_now.pages_reserved), (0, 0));
    assert!(matches!(fs.getattr(ino), Err(Error::Stale)));
}

/// A capability is gone when the write returns, and not when its bytes go to the pool.
#[test]
fn a_write_takes_capabilities_away_at_once() {
    let fs = open_as(pool(&[16 * MB], 2), &buffered());
    let (node, name) = (Node::current(create(&fs, "f")), b"security.capability");
    fs.write(&CTX, node.ino, 0, &[1; 100]).unwrap();
    fs.setxattr(&CTX, node, &SetXattr { name, value: &[1; 20], ..SetXattr::default() }).unwrap();
    fs.write(&CTX, node.ino, 50, &[2; 100]).unwrap();
    assert!(matches!(fs.getxattr(node, name), Err(Error::NoAttribute)));
    assert_eq!(contents(&fs, node.ino), [[1; 50].as_slice(), &[2; 100]].concat());
}

/// A pool in a file, of which a client opened the arena and left, and another one died, as all clients had then.
struct Abandoned {
    slot: NamedTempFile,
    arena: Arena,
    /// When the process began that lives, beside this one.
    lives: Arc<AtomicU64>,
    /// As the pool was when the first of two files was synced, and had not been written to again.
    copy: Vec<u8>,
    files: [Ino; 2],
}

fn map(slot: &NamedTempFile) -> Pm {
    let options = PmOptions { lock: SlotLock::Held, ..PmOptions::default() };
    Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
}

/// When the process of the other client began.
const OTHER: u64 = u64::MAX;

fn abandoned() -> Abandoned {
    let slot = NamedTempFile::new().unwrap();
    slot.as_file().set_len(16 * MB).unwrap();
    mkfs(&map(&slot), &MkfsOptions::numbered(1, 2)).unwrap();
    let arena = Arena::anonymous(64 * MB).unwrap();
    let lives = Arc::new(AtomicU64::new(OTHER));
    let probe = lives.clone();
    let is_alive =
        move |client: &ClientInfo| client.process.start_time == probe.load(Ordering::SeqCst);
    assert!(arena.set_alive_probe(Box::new(is_alive)));
    let first = Fs::open(map(&slot), arena.clone(), &buffered(), &Serial, &|_| ()).unwrap();
    let ended = PidInfo { start_time: OTHER, ..PidInfo::current() };
    let options = OpenOptions::of_arena(&arena);
    let other = ManuallyDrop::new(Fs::attach(map(&slot), &arena, &options, ended).unwrap());
    let files = [create(&first, "f"), create(&other, "g")];
    first.write(&CTX, files[0], 0, &[1; 5000]).unwrap();
    other.sync(&CTX, files[0]).unwrap();
    let copy = std::fs::read(slot.path()).unwrap();
    first.write_durable(&CTX, files[0], Some(0), &[2; 100]).unwrap();
    first.write(&CTX, files[0], 100, &[3; 100]).unwrap();
    other.write(&CTX, files[1], 0, &[4; 9000]).unwrap();
    first.close().unwrap();
    lives.store(0, Ordering::SeqCst);
    assert!(has_left_behind(&arena));
    Abandoned { slot, arena, lives, copy, files }
}

#[test]
fn what_clients_that_all_died_have_buffered_is_written_back() {
    let Abandoned { slot, arena, files, .. } = abandoned();
    assert!(Fs::end_session_of_dead(map(&slot), &arena, 11, PidInfo::current()).unwrap());
    assert!(!has_left_behind(&arena));
    let fs = open_as(map(&slot), &buffered());
    assert!(fs.opened().clean);
    assert_eq!(contents(&fs, files[0]), [&[2; 100][..], &[3; 100], &[1; 4800]].concat());
    assert_eq!(contents(&fs, files[1]), [4; 9000]);
    fs.close().unwrap();
    verify(fs.pm());
}

/// The session of a pool with a mode, in which nothing is buffered, was taken for one that left something.
#[test]
fn nothing_is_left_behind_where_all_is_in_the_pool() {
    let Abandoned { slot, arena, lives, files, .. } = abandoned();
    lives.store(OTHER, Ordering::SeqCst);
    let fs = Fs::attach(map(&slot), &arena, &OpenOptions::of_arena(&arena), PidInfo::current());
    let fs = ManuallyDrop::new(fs.unwrap());
    for file in files {
        assert!(has_left_behind(&arena));
        fs.sync(&CTX, file).unwrap();
    }
    assert!(!has_left_behind(&arena));
    // What a file without a name has goes with it.
    fs.hold(files[1]).unwrap();
    fs.unlink(&CTX, Node::ROOT, b"g").unwrap();
    fs.write(&CTX, files[1], 0, &[5; 10]).unwrap();
    assert!(!has_left_behind(&arena));
    fs.write(&CTX, files[0], 7000, &[5; 10]).unwrap();
    assert!(has_left_behind(&arena));
}

/// Who ended the session and had no descriptor left to look with took the dead for alive at the end: it left the pool
/// open and said that all was written back, and the arena was removed.
#[test]
fn a_session_ends_only_where_all_others_are_seen_to_be_dead() {
    let Abandoned { slot, arena, lives, files, .. } = abandoned();
    lives.store(OTHER, Ordering::SeqCst);
    let end = || Fs::end_session_of_dead(map(&slot), &arena, 11, PidInfo::current());
    assert!(matches!(end(), Err(Error::OthersLive)));
    assert!(has_left_behind(&arena));
    lives.store(0, Ordering::SeqCst);
    assert!(has_left_behind(&arena) && end().unwrap());
    let fs = open_as(map(&slot), &buffered());
    assert_eq!(contents(&fs, files[0]), [&[2; 100][..], &[3; 100], &[1; 4800]].concat());
    assert_eq!(contents(&fs, files[1]), [4; 9000]);
    fs.close().unwrap();
    verify(fs.pm());
}

/// A client whose process began then ends the session of dead ones, and dies at this event; whether it came
/// through before.
fn ends_and_dies(left: &Abandoned, start_time: u64, event: u64) -> bool {
    let stop = StopAt::new(event);
    let observer: Option<Arc<dyn Observer>> = Some(stop.clone());
    let options = PmOptions { lock: SlotLock::Held, observer, ..PmOptions::default() };
    let pm = Pm::open(&[SlotSpec::new(left.slot.path())], &options).unwrap();
    let process = PidInfo { start_time, ..PidInfo::current() };
    let arena = left.arena.clone();
    left.lives.store(start_time, Ordering::SeqCst);
    let ending = std::thread::spawn(move || {
        assert!(Fs::end_session_of_dead(pm, &arena, 11, process).unwrap());
    });
    if !stop.stops(&ending) {
        ending.join().unwrap();
        return true;
    }
    left.lives.store(0, Ordering::SeqCst);
    false
}

/// Who ends the session may die in it, at any store, and the next one after it. The last client to leave
/// said that the pool was closed before it flushed: a death in between, of a mount's daemon too, lost what was
/// buffered, which the next one did not look for.
#[test]
fn deaths_in_the_ending_of_a_dead_session_lose_nothing() {
    for event in 0.. {
        let left = abandoned();
        let came_through = ends_and_dies(&left, OTHER - 1, event);
        if has_left_behind(&left.arena) && !ends_and_dies(&left, OTHER - 2, event / 2) {
            let process = PidInfo::current();
            assert!(Fs::end_session_of_dead(map(&left.slot), &left.arena, 12, process).unwrap());
        }
        let Abandoned { slot, arena, files, .. } = left;
        assert!(!has_left_behind(&arena));
        let fs = open_as(map(&slot), &buffered());
        let first = [&[2; 100][..], &[3; 100], &[1; 4800]].concat();
        assert!(contents(&fs, files[0]) == first, "death before event {event}");
        assert!(contents(&fs, files[1]) == [4; 9000], "death before event {event}");
        fs.close().unwrap();
        verify(fs.pm());
        if came_through {
            assert!(event > 10, "there are {event} events");
            return;
        }
    }
}

/// Bytes of another state of a file, and free lists that are not this pool's, would damage it.
#[test]
fn a_pool_that_was_changed_since_is_left_alone() {
    let Abandoned { slot, arena, copy, files, .. } = abandoned();
    std::fs::write(slot.path(), &copy).unwrap();
    assert!(!Fs::end_session_of_dead(map(&slot), &arena, 11, PidInfo::current()).unwrap());
    assert_eq!(std::fs::read(slot.path()).unwrap(), copy);
    let fs = open_as(map(&slot), &buffered());
    assert_eq!(contents(&fs, files[0]), [1; 5000]);
    fs.close().unwrap();
    verify(fs.pm());
    // And one that was opened since.
    assert!(!Fs::end_session_of_dead(map(&slot), &arena, 11, PidInfo::current()).unwrap());
}

/// A pool in two files, of which a client opened the arena and left, and another one has files and may be killed.
struct Failing {
    slots: [NamedTempFile; 2],
    arena: Arena,
    /// Whether it lives.
    lives: Arc<AtomicBool>,
    other: ManuallyDrop<Arc<Fs>>,
    /// Fails the second slot behind a record there.
    behind_record: Arc<BehindRecord>,
    files: Vec<Ino>,
}

/// Fails the second slot once a record has come there, where that is asked for.
#[derive(Default)]
struct BehindRecord {
    fs: OnceLock<Weak<Fs>>,
    is_asked: AtomicBool,
    is_stored: AtomicBool,
}

impl Observer for BehindRecord {
    fn store(&self, event: StoreEvent<'_>) {
        let is_record = event.purpose == Purpose::Journal && event.addr.slot() == 1;
        if is_record && self.is_asked.load(Ordering::SeqCst) {
            self.is_stored.store(true, Ordering::SeqCst);
        }
    }

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}

    fn fence(&self, _: &'static Location<'static>) {
        if self.is_stored.swap(false, Ordering::SeqCst) {
            self.is_asked.store(false, Ordering::SeqCst);
            self.fs.get().and_then(Weak::upgrade).unwrap().pm().set_failed(1 << 1);
        }
    }
}

/// Each of so many threads has a lane of its own.
fn by(thread: u64) -> Ctx {
    Ctx { hint: u32::try_from(thread % 4).unwrap(), ..CTX }
}

impl Failing {
    /// Its files were synced, and then written to; the second slot may have been emptied between the two.
    fn new(is_emptied: bool) -> Self {
        survive_failing_slots().unwrap();
        let slots = [(); 2].map(|()| NamedTempFile::new().unwrap());
        for slot in &slots {
            slot.as_file().set_len(16 * MB).unwrap();
        }
        mkfs(&Self::map_of(&slots), &MkfsOptions::numbered(2, 4)).unwrap();
        let arena = Arena::anonymous(64 * MB).unwrap();
        let lives = Arc::new(AtomicBool::new(true));
        let probe = lives.clone();
        let is_alive = move |client: &ClientInfo| {
            client.process.start_time != OTHER || probe.load(Ordering::SeqCst)
        };
        assert!(arena.set_alive_probe(Box::new(is_alive)));
        let map = || Self::map_of(&slots);
        let first = Fs::open(map(), arena.clone(), &buffered(), &Serial, &|_| ()).unwrap();
        let ended = PidInfo { start_time: OTHER, ..PidInfo::current() };
        let options = OpenOptions::of_arena(&arena);
        let behind_record = Arc::new(BehindRecord::default());
        let observer: Arc<dyn Observer> = behind_record.clone();
        let pm = Self::map_by(&slots, Some(observer));
        let other = Arc::new(Fs::attach(pm, &arena, &options, ended).unwrap());
        behind_record.fs.set(Arc::downgrade(&other)).unwrap();
        let other = ManuallyDrop::new(other);
        let files: Vec<Ino> =
            (0..40).map(|name| create_by(&other, &by(name), &format!("f{name}"))).collect();
        for (number, file) in (0..).zip(&files) {
            other.write(&by(number), *file, 0, &[1; 16_000]).unwrap();
            other.sync(&CTX, *file).unwrap();
        }
        if is_emptied {
            assert!(other.begin_leaving(&CTX, 1, Some(1)).unwrap().is_enough());
            while other.empty_round(&CTX, 1, &mut |_| true).unwrap().moved > 0 {}
        }
        for (number, file) in (0..).zip(&files) {
            other.write(&by(number), *file, 0, &[2; 16_000]).unwrap();
        }
        first.close().unwrap();
        Self { slots, arena, lives, other, behind_record, files }
    }

    fn map_of(slots: &[NamedTempFile; 2]) -> Pm {
        Self::map_by(slots, None)
    }

    fn map_by(slots: &[NamedTempFile; 2], observer: Option<Arc<dyn Observer>>) -> Pm {
        let options = PmOptions { lock: SlotLock::Held, observer, ..PmOptions::default() };
        Pm::open(&slots.each_ref().map(|slot| SlotSpec::new(slot.path())), &options).unwrap()
    }

    fn map(&self) -> Pm {
        Self::map_of(&self.slots)
    }

    /// A slot fails; returns what it had.
    fn cut(&self, slot: usize) -> Vec<u8> {
        let kept = std::fs::read(self.slots[slot].path()).unwrap();
        self.slots[slot].as_file().set_len(0).unwrap();
        kept
    }

    fn is_back(&self, slot: usize, kept: &[u8]) {
        self.slots[slot].as_file().write_all_at(kept, 0).unwrap();
    }

    fn end(&self, pm: Pm) -> Result<bool, Error> {
        self.lives.store(false, Ordering::SeqCst);
        Fs::end_session_of_dead(pm, &self.arena, 11, PidInfo::current())
    }

    /// The pool has what was buffered, whether it was synced or not.
    fn judge(&self) -> Fs {
        let fs = open_as(self.map(), &buffered());
        for (number, file) in self.files.iter().enumerate() {
            assert!(contents(&fs, *file) == [2; 16_000], "file {number}");
        }
        fs
    }
}

fn comes_back(slot: usize, is_emptied: bool) {
    let pool = Failing::new(is_emptied);
    let kept = pool.cut(slot);
    assert!(pool.files.iter().any(|file| pool.other.sync(&CTX, *file).is_err()));
    pool.is_back(slot, &kept);
    // It fails once more while what is left is written back, and is back then.
    let pm = pool.map();
    pool.slots[slot].as_file().set_len(0).unwrap();
    assert!(matches!(pool.end(pm), Err(Error::Lost(_))));
    assert!(has_left_behind(&pool.arena));
    pool.is_back(slot, &kept);
    assert!(pool.end(pool.map()).unwrap());
    let fs = pool.judge();
    fs.close().unwrap();
    verify(fs.pm());
}

/// The first opening said that a slot had failed, which was back, and that the bytes were kept; by failing it ended the
/// session, so that the second one gave them up without a word.
#[test]
fn a_slot_that_fails_and_comes_back_keeps_what_was_buffered() {
    comes_back(0, false);
    comes_back(1, false);
}

/// Nothing is stored there but the lines of inodes: the first that failed was shown all the same, so that the slot, back,
/// seemed to be another, and all that was buffered for any slot was given up.
#[test]
fn a_slot_that_leaves_fails_and_comes_back_keeps_what_was_buffered() {
    comes_back(1, true);
}

/// The first that fails is the line of an inode which gets a second name: the journal's record says so.
#[test]
fn a_name_that_met_a_slot_failing_is_there_whole_or_not_at_all() {
    let mut named = 0;
    for number in 0..8 {
        let pool = Failing::new(true);
        let file = Node::current(pool.files[usize::try_from(number).unwrap()]);
        pool.other.sync(&CTX, file.ino).unwrap();
        let kept = pool.cut(1);
        // Lanes are in both slots, too.
        let linked = pool.other.link(&by(number + number / 4), file, Node::ROOT, b"second");
        let is_lost = matches!(linked, Err(Error::Lost(_)));
        assert!(is_lost || linked.is_ok());
        pool.is_back(1, &kept);
        assert!(pool.end(pool.map()).unwrap(), "file {number}");
        let fs = pool.judge();
        let is_there = fs.lookup(&CTX, Node::ROOT, b"second").is_ok();
        assert_eq!(fs.getattr(file.ino).unwrap().nlink, 1 + u32::from(is_there));
        assert!(is_there || is_lost);
        named += usize::from(is_there && is_lost);
        fs.close().unwrap();
        verify(fs.pm());
    }
    assert!(named > 0, "no line was lost");
}

/// Removes a file while the second slot fails: with the journal's record, or behind it. Others of the record's inodes go on.
/// Says whether the call met it.
fn remove_and_go_on(number: usize, has_record: bool, is_power_cut: bool) -> bool {
    let pool = Failing::new(true);
    let thread = u64::try_from(number + number / 4).unwrap();
    let name = format!("f{number}");
    pool.other.sync(&CTX, pool.files[number]).unwrap();
    let kept = std::fs::read(pool.slots[1].path()).unwrap();
    if has_record {
        pool.behind_record.is_asked.store(true, Ordering::SeqCst);
    } else {
        pool.slots[1].as_file().set_len(0).unwrap();
    }
    let removed = pool.other.unlink(&by(thread), Node::ROOT, name.as_bytes());
    let is_lost = matches!(removed, Err(Error::Lost(_)));
    assert!(is_lost || removed.is_ok());
    // The directory's next commits, and the number may be another file's.
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let made = |round: u64| {
        let name = format!("new{round}");
        pool.other.create(&by(round), Node::ROOT, name.as_bytes(), &new).is_ok()
    };
    let made: Vec<u64> = (0..8).filter(|round| made(*round)).collect();
    if !has_record {
        pool.is_back(1, &kept);
    }
    if !is_power_cut {
        assert!(pool.end(pool.map()).unwrap(), "file {number}");
    }
    let fs = open_as(pool.map(), &buffered());
    let others = (0..).zip(&pool.files).filter(|(other, _)| *other != number);
    for (other, file) in others.filter(|_| !is_power_cut) {
        assert!(contents(&fs, *file) == [2; 16_000], "file {other}");
    }
    for round in made {
        fs.lookup(&CTX, Node::ROOT, format!("new{round}").as_bytes()).unwrap();
    }
    match fs.lookup(&CTX, Node::ROOT, name.as_bytes()) {
        Ok(found) => assert!(is_lost && found.nlink == 1),
        Err(error) => assert!(matches!(error, Error::NotFound), "file {number}: {error}"),
    }
    fs.close().unwrap();
    verify(fs.pm());
    is_lost
}

/// A record that was refused as its slot had failed was there when the slot was back, under numbers that the directory had
/// used again for its next name: the name of the removed file led to an inode that was free.
#[test]
fn a_removal_that_met_a_slot_failing_is_there_whole_or_not_at_all() {
    for has_record in [false, true] {
        for is_power_cut in [false, true] {
            let remove = |number: &usize| remove_and_go_on(*number, has_record, is_power_cut);
            assert!((0..8).filter(remove).count() > 0, "no record was lost");
        }
    }
}
