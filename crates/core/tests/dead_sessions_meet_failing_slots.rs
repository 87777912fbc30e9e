//! Clients that were all killed, with bytes that were only buffered, and a slot that failed before and is back without what
//! the caches had: what was buffered is written back, and every inode is as records and lines say.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_arena::{Arena, ClientInfo, PidInfo};
use novale_core::{
    BufferRules, Ctx, Error, FileKind, Form, Fs, Ino, MkfsOptions, Mode, NewInode, Node,
    OpenOptions, Result, Serial, check, has_left_behind, mkfs,
};
use novale_pm::{Observer, Pm, PmOptions, SlotLock, SlotSpec, survive_failing_slots};
use support::failing::Failing;
use support::{MB, verify};
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 10, hint: 0 };
const SLOT_BYTES: u64 = 4 * MB;
const FILES: usize = 40;
const LEN: usize = 6000;
/// When the process began that is killed.
const OTHER: u64 = 1 << 60;

fn buffered() -> OpenOptions {
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    let mode = Some(Mode::Buffered);
    OpenOptions { form: Form::Auto, mode, now_ns: 2, buffer_rules, ..OpenOptions::default() }
}

/// Of one of four lanes.
fn by(thread: usize) -> Ctx {
    Ctx { hint: u32::try_from(thread % 4).unwrap(), ..CTX }
}

fn make(fs: &Fs, thread: usize, name: &str) -> Result<Ino> {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    Ok(fs.create(&by(thread), Node::ROOT, name.as_bytes(), &new)?.ino)
}

/// A pool in two files, of which the only client is going to be killed.
struct Left {
    slots: [NamedTempFile; 2],
    arena: Arena,
    lives: Arc<AtomicBool>,
    client: ManuallyDrop<Arc<Fs>>,
    failing: Arc<Failing>,
    files: Vec<Ino>,
}

impl Left {
    /// The second slot fails at a store from now on.
    fn failing_at(at: u64, lanes: u32) -> Self {
        survive_failing_slots().unwrap();
        let slots = [(); 2].map(|()| NamedTempFile::new().unwrap());
        for slot in &slots {
            slot.as_file().set_len(SLOT_BYTES).unwrap();
        }
        mkfs(&map(&slots, None), &MkfsOptions::numbered(2, lanes)).unwrap();
        let arena = Arena::anonymous(64 * MB).unwrap();
        let lives = Arc::new(AtomicBool::new(true));
        let probe = lives.clone();
        let is_alive = move |client: &ClientInfo| {
            client.process.start_time != OTHER || probe.load(Ordering::SeqCst)
        };
        assert!(arena.set_alive_probe(Box::new(is_alive)));
        let first =
            Fs::open(map(&slots, None), arena.clone(), &buffered(), &Serial, &|_| ()).unwrap();
        let failing = Failing::without_caches_at(at, bytes(&slots));
        let process = PidInfo { start_time: OTHER, ..PidInfo::current() };
        let pm = map(&slots, Some(failing.clone()));
        let client = Fs::attach(pm, &arena, &OpenOptions::of_arena(&arena), process).unwrap();
        first.close().unwrap();
        let files: Vec<Ino> = (0..FILES)
            .map(|number| make(&client, number, &format!("f{number}")).unwrap())
            .collect();
        for (number, file) in files.iter().enumerate() {
            client.write(&by(number), *file, 0, &[1; LEN]).unwrap();
            client.sync(&CTX, *file).unwrap();
            client.write(&by(number), *file, 0, &[2; LEN]).unwrap();
        }
        let client = ManuallyDrop::new(Arc::new(client));
        failing.begin(&client, 1);
        Self { slots, arena, lives, client, failing, files }
    }

    /// It is killed, and the slot is back, if it has failed.
    fn is_killed(&self) {
        self.lives.store(false, Ordering::SeqCst);
        self.is_back(&self.failing.had());
    }

    fn is_back(&self, had: &[u8]) {
        self.slots[1].as_file().write_all_at(had, 0).unwrap();
    }

    fn end(&self, observer: Option<Arc<Failing>>) -> Result<bool> {
        let pm = map(&self.slots, observer);
        Fs::end_session_of_dead(pm, &self.arena, 11, PidInfo::current())
    }

    /// Of the files that are left the pool has what was buffered.
    fn judge(&self, removed: impl Fn(usize) -> bool, what: &str) -> Fs {
        self.judge_as(&buffered(), removed, what).unwrap()
    }

    /// The same of a pool that is opened in some way.
    fn judge_as(
        &self,
        options: &OpenOptions,
        removed: impl Fn(usize) -> bool,
        what: &str,
    ) -> Result<Fs> {
        let arena = Arena::anonymous(64 * MB).unwrap();
        let fs = Fs::open(map(&self.slots, None), arena, options, &Serial, &|_| ())?;
        for (number, file) in self.files.iter().enumerate() {
            let found = fs.lookup(&CTX, Node::ROOT, format!("f{number}").as_bytes());
            if removed(number) {
                assert!(matches!(found, Err(Error::NotFound)), "{what}: file {number} is there");
                continue;
            }
            let mut read = [0; LEN + 1];
            assert_eq!(fs.read(&CTX, *file, 0, &mut read).unwrap(), LEN, "{what}: file {number}");
            assert!(read[..LEN] == [2; LEN], "{what}: file {number}");
        }
        Ok(fs)
    }
}

fn map(slots: &[NamedTempFile; 2], observer: Option<Arc<Failing>>) -> Pm {
    let observer = observer.map(|observer| observer as Arc<dyn Observer>);
    let options = PmOptions { lock: SlotLock::Held, observer, ..PmOptions::default() };
    Pm::open(&slots.each_ref().map(|slot| SlotSpec::new(slot.path())), &options).unwrap()
}

fn bytes(slots: &[NamedTempFile; 2]) -> Vec<Vec<u8>> {
    slots.iter().map(|slot| std::fs::read(slot.path()).unwrap()).collect()
}

/// Removes files, and then has the second slot fail.
fn removed() -> (Left, impl Fn(usize) -> bool) {
    let left = Left::failing_at(u64::MAX, 4);
    // Behind the last of them each lane's record is all that there is of some inode in the slot.
    let is_removed = |number: usize| number.is_multiple_of(3);
    for number in (0..FILES).filter(|number| is_removed(*number)) {
        left.client.unlink(&by(number), Node::ROOT, format!("f{number}").as_bytes()).unwrap();
    }
    left.failing.fail_now();
    // Who asks tells the others.
    assert_eq!(left.client.failed_slots(), 0b10);
    (left, is_removed)
}

/// Files were free whose last lines said that they had a name.
#[test]
fn inodes_that_nobody_has_loaded_are_as_their_records_say() {
    let (left, is_removed) = removed();
    left.is_killed();
    assert!(left.end(None).unwrap());
    let fs = left.judge(is_removed, "removed");
    verify(fs.pm());
    fs.close().unwrap();
    verify(fs.pm());
}

/// Makes files, of which some are named again and removed, until the slot has failed and for some rounds more. Says
/// whether it has.
fn work(left: &Left) -> bool {
    let mut after = 0;
    for round in 0..12 {
        let (name, second) = (format!("new{round}"), format!("second{round}"));
        if let Ok(file) = make(&left.client, round, &name) {
            let file = Node::current(file);
            let _linked = left.client.link(&by(round), file, Node::ROOT, second.as_bytes());
        }
        if round.is_multiple_of(2) {
            let _removed = left.client.unlink(&by(round + 1), Node::ROOT, name.as_bytes());
        }
        // Of two lanes, files of the same: the last record of the one stands for what the other might lose.
        for (turn, file) in left.files[round * 2..].iter().skip(1).step_by(2).take(2).enumerate() {
            let (file, name) = (Node::current(*file), format!("again{round}.{turn}"));
            let by = by(round + 1 - turn);
            let _linked = left.client.link(&by, file, Node::ROOT, name.as_bytes());
        }
        after += usize::from(left.client.failed_slots() != 0);
        if after > 4 {
            break;
        }
    }
    after > 0
}

/// Lets a slot fail at each store of names that come and go; at how many of them something was left damaged beside all
/// the files that are whole.
fn damaged_by_names(lanes: u32) -> usize {
    let (mut at, mut damaged) = (1, 0);
    loop {
        let left = Left::failing_at(at, lanes);
        if !work(&left) {
            break;
        }
        left.is_killed();
        let ended = left.end(None);
        assert!(matches!(ended, Ok(true)), "{lanes} lanes, store {at}: {ended:?}");
        let found = check(&map(&left.slots, None), &Serial, &|_| ()).unwrap().findings;
        let what = format!("{lanes} lanes, store {at}, {} findings", found.len());
        let read_only = OpenOptions { read_only: true, ..buffered() };
        match left.judge_as(&read_only, |_| false, &what) {
            Ok(_) => damaged += usize::from(!found.is_empty()),
            // A page of the root's own log was lost, without which nothing can be named.
            Err(Error::Damaged { what, .. }) if what == "inode 1 log page" && !found.is_empty() => {
            }
            Err(error) => panic!("{what}: {error}"),
        }
        at += 1;
    }
    assert!(at > 30, "{at} stores");
    damaged
}

/// One file that was damaged, as its identity line was lost, kept the mount, and all that was buffered, from everybody.
#[test]
fn an_inode_that_is_damaged_keeps_nobody_from_the_others() {
    assert!(damaged_by_names(4) > 0);
}

/// Where no lane was to be had but those whose last records stood for inodes in the slot, all that was buffered was given
/// up, for one inode that was behind its view by the commit that had met the failure.
#[test]
fn a_commit_that_is_lost_with_its_record_takes_nothing_along() {
    damaged_by_names(2);
}

/// Ends a session whose slot is back, while it fails once more at a store; says whether there were so many.
fn ends_failing_at(at: u64) -> bool {
    let (left, is_removed) = removed();
    left.is_killed();
    let (failing, file) = (Failing::at(at), left.slots[1].reopen().unwrap());
    let path = left.slots[1].path().to_owned();
    let fail = move || {
        let had = std::fs::read(&path).unwrap();
        file.set_len(0).unwrap();
        had
    };
    assert!(failing.fail.set(Box::new(fail)).is_ok());
    let ended = left.end(Some(failing.clone()));
    let had = failing.had();
    if had.is_empty() {
        assert!(matches!(ended, Ok(true)), "{ended:?}");
        return false;
    }
    left.is_back(&had);
    let what = format!("store {at}, {ended:?}");
    match ended {
        Ok(has_ended) => assert!(has_ended, "{what}"),
        Err(Error::Lost(_)) if has_left_behind(&left.arena) => {
            let again = left.end(None);
            assert!(matches!(again, Ok(true)), "{what}: {again:?}");
        }
        Err(Error::Lost(_)) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    let fs = left.judge(is_removed, &what);
    verify(fs.pm());
    true
}

#[test]
fn a_slot_that_fails_again_as_the_session_ends_comes_back() {
    let count = (1..2000).take_while(|at| ends_failing_at(*at)).count();
    assert!((50..1999).contains(&count), "{count} stores");
}
