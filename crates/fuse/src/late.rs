//! Write-backs that are answered before they are done.
//!
//! The kernel writes back what a mapping has stored while it ends that mapping, and keeps the program's table of
//! mappings locked until it is answered. Another thread of the program may have the inode's lock, by direct access, and
//! need that table: to take memory, or to touch some for the first time. Then each waits for the other, for ever. So a
//! write-back of a shared file system that takes long is answered as if it were done, and is done later.
//!
//! All that reads or changes the bytes of such a file waits until it is done. So does what is written back after it,
//! which is kept in order. Mapped stores are durable once `fsync` or `msync` has returned, which is a request that
//! waits likewise, and tells of an error. A daemon that is killed loses them, as it does those that the kernel has not
//! written back; so does a loss of power right after `sync`, which asks nothing.
//!
//! One that waits for room is not answered: that has an end, and the program is to be told. Not covered: a change of the
//! file's length, until which the kernel begins no write-back of it; and what is beyond [`KEPT_MAX`].

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use novale_core::Ino;

use crate::locked::locked;
use crate::service::{Errno, Reply};
use crate::threads::start_thread;

/// A write-back that has taken so long is answered: it takes a fraction of a millisecond as a rule.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often those that run are looked at.
const TICK: Duration = Duration::from_millis(20);
/// The looks after the last one ran, before nobody looks any more.
const IDLE_LOOKS: u32 = 50;
/// Bytes that are kept of those that came behind one, of all files; more wait unanswered.
const KEPT_MAX: usize = 256 << 20;

/// What answers a write-back.
pub(crate) trait Answer: Send {
    /// Says that all is written, which it will be.
    fn early(&mut self);
    /// Says what came of it, if nothing was said yet.
    fn end(self: Box<Self>, written: Reply<usize>);
}

/// Writes the bytes of a request back.
pub(crate) type Write = Box<dyn FnOnce(&[u8]) -> Reply<usize> + Send>;

/// One that is being done by the thread that has the request.
struct Running {
    ino: Ino,
    since: Instant,
    is_answered: bool,
    /// It waits for room.
    waits: bool,
    answer: Box<dyn Answer>,
}

/// One that was answered, behind others of its file.
struct Kept {
    bytes: Vec<u8>,
    write: Write,
    answer: Box<dyn Answer>,
}

/// A file with write-backs that were answered.
#[derive(Default)]
struct File {
    /// Those that still run.
    running: usize,
    /// Those to be done then, in this order.
    kept: VecDeque<Kept>,
    /// A thread does them.
    is_attended: bool,
}

#[derive(Default)]
struct State {
    running: HashMap<u64, Running>,
    next: u64,
    is_watched: bool,
    /// None is answered early any more.
    is_over: bool,
    files: HashMap<u64, File>,
    kept_bytes: usize,
    /// What failed after it was answered, for who makes the file durable.
    errors: HashMap<u64, Errno>,
}

impl State {
    /// There is nothing more to be done for a file.
    fn forget_if_done(&mut self, ino: Ino) {
        if self.files.get(&ino.get()).is_some_and(|file| file.running == 0 && !file.is_attended) {
            self.files.remove(&ino.get());
        }
    }

    fn note(&mut self, ino: Ino, written: Reply<usize>) {
        if let Err(error) = written {
            // As the kernel says of what was mapped.
            let is_quotas = error == Errno(libc::EDQUOT);
            let error = if is_quotas { Errno(libc::ENOSPC) } else { error };
            self.errors.insert(ino.get(), error);
        }
    }
}

/// All write-backs of a mount that are not done yet.
#[derive(Default)]
pub struct Late {
    state: Mutex<State>,
    change: Condvar,
    /// There are files with some that were answered, or errors: else nobody needs to look.
    is_any: AtomicBool,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

/// A write-back that its thread is to do now.
#[derive(Debug)]
#[must_use = "it runs until it is ended"]
pub(crate) struct Now(u64);

impl Late {
    /// Waits until a file has none that was answered and is not done.
    pub(crate) fn wait(&self, inos: &[Ino]) {
        if self.is_any.load(Ordering::Acquire) {
            let is_late =
                |state: &mut State| inos.iter().any(|it| state.files.contains_key(&it.get()));
            drop(self.wait_while(locked(&self.state), is_late));
        }
    }

    /// The same of all files.
    pub(crate) fn wait_for_all(&self) {
        drop(self.wait_while(locked(&self.state), |state| !state.files.is_empty()));
    }

    /// Answers none early from now on, and waits for all.
    pub(crate) fn end_all(&self) {
        locked(&self.state).is_over = true;
        self.wait_for_all();
    }

    /// What has failed of a file since this was asked last.
    pub(crate) fn error(&self, ino: Ino) -> Reply<()> {
        if !self.is_any.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = locked(&self.state);
        let error = state.errors.remove(&ino.get());
        self.changed(&state);
        error.map_or(Ok(()), Err)
    }

    /// Says of one that is being done that it is to wait for room; false where it was answered already: it waits where
    /// nobody has to wait for it.
    pub(crate) fn waits(&self, Now(id): &Now) -> bool {
        let mut state = locked(&self.state);
        let running = state.running.get_mut(id).filter(|it| !it.is_answered);
        running.map(|it| it.waits = true).is_some()
    }

    /// Begins one: the caller is to do it, and to [`Late::end`] it; or it is answered, and done behind others of its
    /// file.
    pub(crate) fn begin(
        self: &Arc<Self>,
        ino: Ino,
        bytes: &[u8],
        write: impl FnOnce() -> Write,
        mut answer: Box<dyn Answer>,
    ) -> Option<Now> {
        let has_no_room = |state: &mut State| {
            state.files.contains_key(&ino.get()) && state.kept_bytes + bytes.len() > KEPT_MAX
        };
        let mut state = self.wait_while(locked(&self.state), has_no_room);
        if let Some(file) = state.files.get_mut(&ino.get()) {
            if file.is_attended || self.attend(ino) {
                file.is_attended = true;
                answer.early();
                file.kept.push_back(Kept { bytes: bytes.to_vec(), write: write(), answer });
                state.kept_bytes += bytes.len();
                return None;
            }
            state = self.wait_while(state, |state| state.files.contains_key(&ino.get()));
        }
        let id = state.next;
        state.next += 1;
        let since = Instant::now();
        let running = Running { ino, since, is_answered: false, waits: false, answer };
        state.running.insert(id, running);
        if !state.is_watched {
            let late = self.clone();
            state.is_watched = start_thread("novale-late", move || late.watch()).is_ok();
        }
        Some(Now(id))
    }

    /// Ends one that the caller has done.
    pub(crate) fn end(&self, Now(id): Now, written: Reply<usize>) {
        let mut state = locked(&self.state);
        let Some(running) = state.running.remove(&id) else { return };
        if running.is_answered {
            if let Some(file) = state.files.get_mut(&running.ino.get()) {
                file.running -= 1;
            }
            state.note(running.ino, written);
            state.forget_if_done(running.ino);
            self.changed(&state);
        }
        drop(state);
        running.answer.end(written);
    }

    /// Answers those that take long; ends some time after there is none.
    fn watch(&self) {
        let mut looks = 0;
        while looks < IDLE_LOOKS {
            std::thread::park_timeout(TICK);
            let mut state = locked(&self.state);
            let State { running, files, is_over, .. } = &mut *state;
            looks = if running.is_empty() { looks + 1 } else { 0 };
            let is_due = |it: &&mut Running| {
                !*is_over && !it.is_answered && !it.waits && it.since.elapsed() >= PATIENCE
            };
            for it in running.values_mut().filter(is_due) {
                files.entry(it.ino.get()).or_default().running += 1;
                it.is_answered = true;
                // Before the kernel can know of it.
                self.is_any.store(true, Ordering::Release);
                it.answer.early();
            }
            state.is_watched = looks < IDLE_LOOKS;
        }
    }

    /// Starts the thread that does those of a file which were kept.
    fn attend(self: &Arc<Self>, ino: Ino) -> bool {
        let late = self.clone();
        start_thread("novale-late", move || late.do_kept(ino)).is_ok()
    }

    /// Does one after the other, each once those that ran have ended: one that began earlier may be answered meanwhile.
    fn do_kept(&self, ino: Ino) {
        let runs =
            |state: &mut State| state.files.get(&ino.get()).is_some_and(|file| file.running > 0);
        let mut state = locked(&self.state);
        loop {
            state = self.wait_while(state, runs);
            let file = state.files.get_mut(&ino.get());
            let Some(it) = file.and_then(|file| file.kept.pop_front()) else { break };
            drop(state);
            let written = (it.write)(&it.bytes);
            it.answer.end(written);
            state = locked(&self.state);
            state.kept_bytes -= it.bytes.len();
            state.note(ino, written);
            self.changed(&state);
        }
        if let Some(file) = state.files.get_mut(&ino.get()) {
            file.is_attended = false;
        }
        state.forget_if_done(ino);
        self.changed(&state);
    }

    fn changed(&self, state: &State) {
        let is_any = !state.files.is_empty() || !state.errors.is_empty();
        self.is_any.store(is_any, Ordering::Release);
        self.change.notify_all();
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        condition: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.change.wait_while(state, condition).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use super::*;

    const EIO: Errno = Errno(libc::EIO);

    /// Tells what is answered.
    struct Told(&'static str, Sender<(&'static str, Option<Reply<usize>>)>);

    impl Answer for Told {
        fn early(&mut self) {
            self.1.send((self.0, None)).unwrap();
        }
        fn end(self: Box<Self>, written: Reply<usize>) {
            self.1.send((self.0, Some(written))).unwrap();
        }
    }

    /// Longer than anything is waited for that is to be answered.
    const LONG: Duration = Duration::from_millis(200);

    /// The file's bytes were those of the earlier one.
    #[test]
    fn one_that_began_before_is_done_before() {
        let (late, ino) = (Arc::new(Late::default()), Ino::ROOT);
        let (tell, told) = channel();
        let (done, order): (_, Receiver<Vec<u8>>) = channel();
        let (go, goes) = channel::<()>();
        let begin = |name: &'static str, write: Write| {
            late.begin(ino, name.as_bytes(), || write, Box::new(Told(name, tell.clone())))
        };
        let writes = |goes: Option<Receiver<()>>| {
            let done = done.clone();
            Box::new(move |bytes: &[u8]| {
                goes.map(|goes| goes.recv());
                done.send(bytes.to_vec()).unwrap();
                Ok(bytes.len())
            }) as Write
        };
        let earlier = begin("older", writes(None)).unwrap();
        locked(&late.state).running.get_mut(&earlier.0).unwrap().since += 1000 * PATIENCE;
        let first = begin("first", writes(None)).unwrap();
        assert_eq!(told.recv().unwrap(), ("first", None));
        assert!(begin("kept", writes(Some(goes))).is_none());
        assert_eq!(told.recv().unwrap(), ("kept", None));
        late.end(first, Ok(5));
        assert_eq!(told.recv().unwrap(), ("first", Some(Ok(5))));
        locked(&late.state).running.get_mut(&earlier.0).unwrap().since -= 2000 * PATIENCE;
        assert_eq!(told.recv().unwrap(), ("older", None));
        assert!(begin("newer", writes(None)).is_none());
        assert_eq!(told.recv().unwrap(), ("newer", None));
        go.send(()).unwrap();
        assert_eq!(order.recv().unwrap(), b"kept");
        assert!(order.recv_timeout(LONG).is_err());
        late.end(earlier, Ok(5));
        assert_eq!(order.recv().unwrap(), b"newer");
        late.wait_for_all();
    }

    /// It was told that all is written, and what waited for it in the thread that looks for room never ended.
    #[test]
    fn one_that_waits_for_room_is_not_answered() {
        let late = Arc::new(Late::default());
        let (tell, told) = channel();
        let unused = || Box::new(|_: &[u8]| Ok(0_usize)) as Write;
        let now = late.begin(Ino::ROOT, b"full", unused, Box::new(Told("full", tell))).unwrap();
        assert!(late.waits(&now));
        assert!(told.recv_timeout(LONG).is_err());
        late.wait(&[Ino::ROOT]);
        late.end(now, Err(Errno(libc::ENOSPC)));
        assert_eq!(told.recv().unwrap(), ("full", Some(Err(Errno(libc::ENOSPC)))));
    }

    #[test]
    fn what_takes_long_is_answered_and_what_follows_it_waits() {
        let (late, ino) = (Arc::new(Late::default()), Ino::ROOT);
        let (tell, told) = channel();
        let begin = |name: &'static str, write: Write| {
            late.begin(ino, name.as_bytes(), || write, Box::new(Told(name, tell.clone())))
        };
        let unused = || Box::new(|_: &[u8]| Ok(0_usize)) as Write;
        let quick = begin("quick", unused()).unwrap();
        late.end(quick, Ok(5));
        assert_eq!(told.recv().unwrap(), ("quick", Some(Ok(5))));
        let slow = begin("slow", unused()).unwrap();
        assert_eq!(told.recv().unwrap(), ("slow", None));

        let (done, order): (_, Receiver<Vec<u8>>) = channel();
        for name in ["one", "two"] {
            let done = done.clone();
            let write = move |bytes: &[u8]| {
                done.send(bytes.to_vec()).unwrap();
                if bytes == b"two" { Err(EIO) } else { Ok(bytes.len()) }
            };
            assert!(begin(name, Box::new(write)).is_none());
            assert_eq!(told.recv().unwrap(), (name, None));
        }
        // Others don't wait.
        late.wait(&[]);
        let waits = thread::spawn({
            let late = late.clone();
            move || (late.wait(&[ino]), late.error(ino), late.error(ino))
        });
        assert!(order.try_recv().is_err() && !waits.is_finished());
        late.end(slow, Ok(4));
        assert_eq!(waits.join().unwrap(), ((), Err(EIO), Ok(())));
        let order: Vec<Vec<u8>> = order.try_iter().collect();
        assert_eq!(order, [b"one", b"two"]);
        let ends: Vec<_> = (0..3).map(|_| told.recv().unwrap()).collect();
        assert!(ends.contains(&("slow", Some(Ok(4)))) && ends.contains(&("two", Some(Err(EIO)))));
        assert!(begin("again", unused()).is_some(), "the file has none any more");
        late.wait_for_all();
    }
}
