//! Threads that make room in the write buffer at once flush different files.
//!
//! All began with the file that was written least recently, and waited for its lock: one flushed while the
//! others looked on, and fileserver on two threads was slower in mode `buffered` than without.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test panics and tells")]

mod support;

use std::panic::Location;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use novale_core::{
    BufferRules, Ctx, FileKind, Form, Ino, MkfsOptions, Mode, NewInode, Node, OpenOptions,
    WriteBack, mkfs,
};
use novale_layout::PmAddr;
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};
use support::{MB, open_as};

/// A call hangs when it does not come back for so long, however busy the machine is.
const STILL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Passes,
    /// The next fence is held.
    Armed,
    Holds,
}

/// Holds one thread at its first fence, as long as it is asked to.
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, state: State) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    fn wait_while(&self, state: State) {
        let held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(held, STILL, |now| *now == state).unwrap();
        assert!(!waited.1.timed_out(), "nothing came of it");
    }
}

impl Observer for Gate {
    fn store(&self, _: StoreEvent<'_>) {}
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}
    fn fence(&self, _: &'static Location<'static>) {
        let is_armed = *self.state.lock().unwrap() == State::Armed;
        if is_armed {
            self.set(State::Holds);
            self.wait_while(State::Holds);
        }
    }
}

#[test]
fn who_makes_room_passes_by_a_file_that_another_one_flushes() {
    let gate = Arc::new(Gate { state: Mutex::new(State::Passes), changed: Condvar::new() });
    let observer: Arc<dyn Observer> = gate.clone();
    let pm = PmOptions { observer: Some(observer), ..PmOptions::default() };
    let pm = Pm::anonymous(&[16 * MB], &pm).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 2)).unwrap();
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    let (mode, buffer_bytes) = (Some(Mode::Buffered), Some(MB));
    let options = OpenOptions {
        form: Form::Auto,
        mode,
        buffer_bytes,
        buffer_rules,
        now_ns: 2,
        ..OpenOptions::default()
    };
    let fs = open_as(pm, &options);
    let file = |name: &[u8], now_ns| -> Ino {
        let ctx = Ctx { now_ns, hint: 0 };
        let new =
            NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
        let ino = fs.create(&ctx, Node::ROOT, name, &new).unwrap().ino;
        fs.write(&ctx, ino, 0, &vec![1; 100 * 4096]).unwrap();
        ino
    };
    let (older, newer) = (file(b"older", 10), file(b"newer", 20));
    // One of them is enough.
    let half = WriteBack { free_percent: 50, since_before_ns: i64::MIN, waits: true };
    let flush = |hint| fs.write_back(&Ctx { now_ns: 30, hint }, half).unwrap().files;
    std::thread::scope(|scope| {
        gate.set(State::Armed);
        let first = scope.spawn(|| flush(0));
        gate.wait_while(State::Armed);
        let (done, second) = channel();
        scope.spawn(move || done.send(flush(1)).unwrap_or_default());
        let files = second.recv_timeout(STILL);
        let blocks = fs.buffer_use().unwrap().blocks;
        gate.set(State::Passes);
        assert_eq!(files, Ok(1), "the second thread waited for the first one");
        assert_eq!(blocks, 100);
        assert_eq!(first.join().unwrap(), 1);
    });
    assert_eq!(fs.buffer_use().unwrap().blocks, 0);
    for ino in [older, newer] {
        assert_eq!(fs.getattr(ino).unwrap().size, 100 * 4096);
    }
    fs.close().unwrap();
    support::verify(&fs.into_pm());
}
