//! Promise: a client that is stopped in the middle of an operation holds up who needs the same inode, and nobody else
//! who opens and closes files of the mount.
//!
//! This test plays the kernel itself, so it needs no mount and no privileges.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

mod support;

use std::fs;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::thread;

use novale_arena::Arena;
use novale_core::{
    Ctx, FileKind, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, Serial, SetAttr, mkfs,
};
use novale_fuse::{Caller, Novale, OpenRequest, Service, Settings};
use novale_layout::PmAddr;
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};
use support::eventually;

const CTX: Ctx = Ctx { now_ns: 0, hint: 0 };
const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };

/// Stops a thread before its next store, write-back or fence, under the lock of what it changes.
#[derive(Default)]
struct Stop {
    is_armed: AtomicBool,
    has_stopped: AtomicBool,
    goes_on: AtomicBool,
}

impl Stop {
    fn event(&self) {
        if self.is_armed.swap(false, SeqCst) {
            self.has_stopped.store(true, SeqCst);
            while !self.goes_on.load(SeqCst) {
                thread::yield_now();
            }
        }
    }
}

impl Observer for Stop {
    fn store(&self, _: StoreEvent<'_>) {
        self.event();
    }
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {
        self.event();
    }
    fn fence(&self, _: &'static Location<'static>) {
        self.event();
    }
}

/// Lets the thread go on, also after a failure.
struct GoOn(Arc<Stop>);

impl Drop for GoOn {
    fn drop(&mut self) {
        self.0.goes_on.store(true, SeqCst);
    }
}

fn shared_service(stop: Arc<Stop>) -> (Arc<Fs>, Novale) {
    let options = PmOptions { observer: Some(stop), ..PmOptions::default() };
    let pm = Pm::anonymous(&[64 << 20], &options).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
    let arena = Arena::anonymous(64 << 20).unwrap();
    let fs = Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap();
    let fs = Arc::new(fs);
    (fs.clone(), Novale::new(fs, Settings { shared: true, ..Settings::default() }))
}

/// Whether a thread of this process sleeps.
fn sleeps(thread: rustix::thread::Pid) -> bool {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = fs::read_to_string(path).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('S')
}

/// The last close of a file that was mapped waited for the stopped client, and with it each open and last close of
/// every other file.
#[test]
fn who_closes_a_file_that_was_mapped_holds_up_no_other() {
    let stop = Arc::new(Stop::default());
    let (fs, service) = shared_service(stop.clone());
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let [held, other] =
        [&b"held"[..], b"other"].map(|name| service.make(Ino::ROOT, name, &new, 0).unwrap().ino);
    let open = |ino| service.open(CALLER, ino, OpenRequest::default()).map(drop);
    let close = |ino| service.closed(ino, OpenRequest::default());
    open(held).unwrap();
    assert!(service.maps(held, true).unwrap());
    stop.is_armed.store(true, SeqCst);
    let (tell, told) = channel();
    thread::scope(|scope| {
        let go_on = GoOn(stop.clone());
        let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let (node, fs) = (Node::current(held), &fs);
        scope.spawn(move || fs.setattr(&CTX, node, &change).unwrap());
        assert!(eventually(|| stop.has_stopped.load(SeqCst)));
        scope.spawn(|| {
            tell.send(rustix::thread::gettid()).unwrap();
            close(held);
        });
        let closing = told.recv().unwrap();
        assert!(eventually(|| sleeps(closing)));
        // Of the same file too: what opens it needs no lock.
        let opening = scope.spawn(|| (open(other), close(other), open(held)));
        let is_served = eventually(|| opening.is_finished());
        let mapping = is_served.then(|| {
            let mapping = scope.spawn(|| {
                tell.send(rustix::thread::gettid()).unwrap();
                service.maps(held, true)
            });
            let thread = told.recv().unwrap();
            assert!(eventually(|| mapping.is_finished() || sleeps(thread)));
            mapping
        });
        drop(go_on);
        assert!(is_served, "others wait");
        assert!(mapping.unwrap().join().unwrap().unwrap());
    });
    assert!(fs.is_mapped(&CTX, held).unwrap(), "who mapped it meanwhile has lost the mark");
    close(held);
    assert!(!fs.is_mapped(&CTX, held).unwrap());
}
