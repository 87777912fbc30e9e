//! Promise: what any client was asked for and stored is counted for all to see, exactly, and stays
//! counted when it has left or died.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::{Command, Stdio};

use novale_arena::{Arena, PidInfo};
use novale_core::{
    Buffering, Ctx, FileKind, Form, Fs, Ino, MkfsOptions, Mode, NewInode, Node, OpenOptions, Piece,
    Place, Serial, UpdatePolicy, Written, counted, mkfs,
};
use novale_pm::{Counters, Pm, PmOptions, Purpose, SlotLock, SlotSpec};
use support::MB;
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 9, hint: 1 };

fn make(fs: &Fs, name: &str) -> Ino {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::ROOT, name.as_bytes(), &new).unwrap().ino
}

/// What all clients have counted while something was done.
fn during(arena: &Arena, done: impl FnOnce()) -> Counters {
    let before = counted(arena).unwrap();
    done();
    counted(arena).unwrap() - before
}

/// The kinds that were asked for, how often and how many bytes.
fn asked(counters: &Counters) -> Vec<(&'static str, u64, u64)> {
    let all = Written::ALL.map(|how| (how.name(), how.asked(counters)));
    let some = all.into_iter().filter(|(_, asked)| asked.count > 0);
    some.map(|(name, asked)| (name, asked.count, asked.bytes)).collect()
}

#[test]
fn by_method_and_purpose() {
    for (update, method, lines) in [
        (UpdatePolicy::Cow, "cow", [64, 1, 1]),
        (UpdatePolicy::InPlace, "inplace", [1, 0, 1]),
        (UpdatePolicy::FineLog, "finelog", [1, 2, 1]),
        (UpdatePolicy::Paired, "paired", [1, 1, 1]),
        (UpdatePolicy::Adl, "adl", [1, 2, 2]),
    ] {
        let arena = Arena::anonymous(16 * MB).unwrap();
        let options =
            OpenOptions { update: Some(update), form: Form::Single, ..OpenOptions::default() };
        let pm = support::pool(&[8 * MB], 1);
        let fs = Fs::open(pm, arena.clone(), &options, &Serial, &|_| ()).unwrap();
        assert_eq!(counted(&arena).unwrap(), fs.counters(), "{update:?}");
        let file = make(&fs, "file");
        fs.write(&CTX, file, 0, &[1; 8192]).unwrap();
        let write = || assert_eq!(fs.write(&CTX, file, 4096 + 640, &[2; 64]).unwrap(), 64);
        // Of what the commit before has summed, of features and of second copies there is no more then.
        write();
        let done = during(&arena, write);
        assert_eq!(asked(&done), [(method, 1, 64)]);
        let of = [Purpose::Data, Purpose::Log, Purpose::Commit].map(|p| done.of(p).lines);
        assert_eq!(of, lines, "{update:?}");
        assert_eq!(done.lines(), lines.iter().sum::<u64>());
        assert_eq!(done.bytes(), 64 * done.lines());
    }
}

#[test]
fn whatever_asks_for_bytes() {
    let arena = Arena::anonymous(16 * MB).unwrap();
    let pm = support::pool(&[8 * MB], 1);
    let fs = Fs::open(pm, arena.clone(), &OpenOptions::default(), &Serial, &|_| ()).unwrap();
    let file = make(&fs, "file");
    let done = during(&arena, || {
        fs.append(&CTX, file, &[1; 100]).unwrap();
        fs.append(&CTX, file, &vec![1; 30_000]).unwrap();
        fs.write(&CTX, file, 50, &vec![2; 20_000]).unwrap();
        fs.write(&CTX, file, 50, b"").unwrap();
        fs.write(&CTX, file, 7, &[3; 10]).unwrap();
        // A hole has no page to make a pair of.
        fs.write(&CTX, file, 60_000, &[3; 10]).unwrap();
        fs.write(&CTX, file, 40_970, &[3; 11]).unwrap();
        let place = |offset| Place { ino: file, offset };
        fs.copy_range(&CTX, place(0), place(8192), 500).unwrap();
        let pieces = [Piece { offset: 5, bytes: b"five" }, Piece { offset: 9000, bytes: b"six" }];
        fs.write_scattered(&CTX, file, &pieces).unwrap();
        fs.write(&CTX, Ino::ROOT, 0, b"no file").unwrap_err();
    });
    let expected = [
        ("cow", 3, 20_021),
        ("append", 2, 30_100),
        ("paired", 1, 10),
        ("copied", 1, 500),
        ("published", 1, 7),
    ];
    assert_eq!(asked(&done), expected);
}

#[test]
fn whatever_is_buffered() {
    let arena = Arena::anonymous(16 * MB).unwrap();
    let options = OpenOptions { mode: Some(Mode::Buffered), ..OpenOptions::default() };
    let pm = support::pool(&[8 * MB], 1);
    let fs = Fs::open(pm, arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let file = make(&fs, "file");
    let done = during(&arena, || {
        fs.write(&CTX, file, 0, &[1; 5000]).unwrap();
        fs.write(&CTX, file, 4990, &[2; 20]).unwrap();
    });
    assert_eq!(asked(&done), [("buffered", 2, 5020)]);
    // A block, and two lines of it.
    assert_eq!(Buffering::Hit.counts(&done), [1, 2]);
}

#[test]
fn also_when_it_has_left_or_died() {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(64 * MB).unwrap();
    let pm = |lock| {
        let options = PmOptions { lock, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    mkfs(&pm(SlotLock::Exclusive), &MkfsOptions::numbered(1, 4)).unwrap();
    let (arena, options) = (Arena::anonymous(64 * MB).unwrap(), OpenOptions::default());
    let first = Fs::open(pm(SlotLock::Held), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let join = |process| Fs::attach(pm(SlotLock::Held), &arena, &options, process).unwrap();
    let mut expected = counted(&arena).unwrap();
    for round in 0..4 {
        let is_dead = round % 2 == 0;
        // A process that lives as long as it works, or its threads would settle for each other.
        let mut body = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = PidInfo { pid: body.id(), start_time: 0 };
        let client = join(if is_dead { process } else { PidInfo::current() });
        let write = |name: String| {
            let file = make(&client, &name);
            client.append(&CTX, file, &[7; 1000]).unwrap();
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || write(format!("{round}-{thread}")));
            }
        });
        body.kill().and_then(|()| body.wait()).unwrap();
        if !is_dead {
            client.close().unwrap();
        }
        expected += &client.counters();
        drop(client);
        assert_eq!(counted(&arena).unwrap(), expected, "round {round}");
    }
    assert_eq!(asked(&expected), [("append", 12, 12_000)]);
    first.settle_dead().unwrap();
    first.close().unwrap();
}
