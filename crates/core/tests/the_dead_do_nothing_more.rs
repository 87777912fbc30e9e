//! Promise: once somebody has settled for the clients that died at work, nothing of what they did comes later,
//! and what they had committed is seen.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::sync::Arc;
use std::thread::spawn;

use novale_arena::{Arena, PidInfo};
use novale_core::{
    Ctx, FileKind, Fs, MkfsOptions, NewInode, Node, OpenOptions, RenameMode, Serial, mkfs,
};
use novale_pm::{Observer, Pm, PmOptions, SlotLock, SlotSpec};
use support::MB;
use support::stop::StopAt;
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 1, hint: 0 };

/// A client that dies before so many events of a rename beside a living one; none where it has that many.
fn dies_at(event: u64) -> Option<Fs> {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(16 * MB).unwrap();
    let pm = |lock, observer| {
        let options = PmOptions { lock, observer, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    mkfs(&pm(SlotLock::Exclusive, None), &MkfsOptions::numbered(1, 2)).unwrap();
    let arena = Arena::anonymous(16 * MB).unwrap();
    let options = OpenOptions::default();
    let fs = Fs::open(pm(SlotLock::Held, None), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let file = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    for name in [b"old", b"new"] {
        fs.create(&CTX, Node::ROOT, name, &file).unwrap();
    }
    let stop = StopAt::new(u64::MAX);
    let observer = Some(stop.clone() as Arc<dyn Observer>);
    let dead = PidInfo { start_time: u64::MAX, ..PidInfo::current() };
    let dying = Fs::attach(pm(SlotLock::Held, observer), &arena, &options, dead).unwrap();
    stop.set(event);
    let thread = spawn(move || {
        let root = Node::ROOT;
        dying.rename(&CTX, root, b"old", root, b"new", RenameMode::Replace).unwrap();
    });
    stop.stops(&thread).then_some(fs)
}

#[test]
fn what_is_seen_behind_a_cheap_settling_stays() {
    let names = |fs: &Fs| [b"old", b"new"].map(|name| fs.lookup(&CTX, Node::ROOT, name).ok());
    let mut late = 0;
    for event in 0.. {
        let Some(fs) = dies_at(event) else {
            assert!(event > 5);
            break;
        };
        let before = names(&fs);
        fs.settle_cut_off().unwrap();
        let seen = names(&fs);
        late += u32::from(seen != before);
        fs.settle_dead().unwrap();
        assert_eq!(names(&fs), seen, "event {event}");
    }
    // Or it would have nothing to show.
    assert!(late > 0);
}
