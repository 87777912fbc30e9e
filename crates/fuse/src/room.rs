//! Requests that wait for room: the kernel gives up a removed file a moment after its program was told
//! that it is closed and removed, by a request that comes after others.
//!
//! They are put aside and tried again by a thread of their own, as what they wait for is a request that
//! the serving threads must be there for. The thread is there while anything waits.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use novale_core::Short;
use novale_posix::ROOM_PATIENCE;

use crate::locked::locked;
use crate::service::{Errno, Reply, Service};

/// How long a request waits at most, while others go and leave it too little.
const LONGEST: Duration = Duration::from_secs(5);
/// Requests that wait at once; those beyond are refused at once.
const WAITING_MAX: usize = 256;

/// Tries a request again and answers it, unless it fails for want of room and may be tried once more;
/// says where there is none then.
type Step = Box<dyn FnMut(&dyn Service, bool) -> Option<Short> + Send>;

struct Waiting {
    step: Step,
    until: Instant,
}

#[derive(Default)]
struct List {
    waiting: Vec<Waiting>,
    /// Those that are being tried, which wait too.
    tried: usize,
    /// A thread looks after them.
    attended: bool,
}

/// The requests that wait.
pub(crate) struct Room {
    service: Arc<dyn Service>,
    list: Arc<Mutex<List>>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// Whether there was no room: in the pool, or in the limits of a directory tree.
pub(crate) fn is_full<T>(done: &Reply<T>) -> bool {
    short(done).is_some()
}

fn short<T>(done: &Reply<T>) -> Option<Short> {
    match done {
        Err(Errno(libc::ENOSPC)) => Some(Short::Pool),
        Err(Errno(libc::EDQUOT)) => Some(Short::Tree),
        _ => None,
    }
}

impl Room {
    pub(crate) fn new(service: Arc<dyn Service>) -> Self {
        Self { service, list: Arc::default() }
    }

    /// Makes a request and answers it; again, where there is no room but some on its way.
    pub(crate) fn make<T: Send + 'static>(
        &self,
        mut request: impl FnMut(&dyn Service) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(Reply<T>) + Send + 'static,
    ) {
        let first = request(&*self.service);
        if is_full(&first) {
            self.again(request, answer);
        } else {
            answer(first);
        }
    }

    /// Has a request that found no room made again.
    pub(crate) fn again<T: Send + 'static>(
        &self,
        mut request: impl FnMut(&dyn Service) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(Reply<T>) + Send + 'static,
    ) {
        let mut answer = Some(answer);
        let mut step: Step = Box::new(move |service, last| {
            let done = request(service);
            if let Some(short) = short(&done).filter(|_| !last) {
                return Some(short);
            }
            if let Some(answer) = answer.take() {
                answer(done);
            }
            None
        });
        let mut list = locked(&self.list);
        if list.waiting.len() + list.tried < WAITING_MAX
            && (list.attended || self.attend(&mut list))
        {
            list.waiting.push(Waiting { step, until: Instant::now() + LONGEST });
            return;
        }
        drop(list);
        step(&*self.service, true);
    }

    /// Starts the thread; false where there can be none.
    fn attend(&self, list: &mut List) -> bool {
        // Most of those who find no room find that none is on its way.
        if self.service.room_turn().is_none() {
            return false;
        }
        let (service, all) = (self.service.clone(), self.list.clone());
        let attend = move || attend(&*service, &all);
        list.attended = Builder::new().name("novale-room".to_owned()).spawn(attend).is_ok();
        list.attended
    }
}

/// Makes a request, and waits here where there is no room but some on its way.
pub(crate) fn with_room<T>(
    service: &dyn Service,
    request: impl Fn(&dyn Service) -> Reply<T>,
) -> Reply<T> {
    let until = Instant::now() + LONGEST;
    loop {
        let turn = service.room_turn();
        let done = request(service);
        match (short(&done), turn) {
            (Some(short), Some(turn)) if Instant::now() < until => {
                service.wait_for_room(turn, short, ROOM_PATIENCE);
            }
            _ => return done,
        }
    }
}

/// Takes all out that are to be tried.
fn take(list: &mut List) -> Vec<Waiting> {
    list.tried = list.waiting.len();
    std::mem::take(&mut list.waiting)
}

/// Tries what waits again each time that something has gone; ends when nothing waits, each of which
/// has an end.
fn attend(service: &dyn Service, all: &Mutex<List>) {
    loop {
        // Before they are tried: what goes meanwhile is not missed.
        let turn = service.room_turn();
        let waiting = take(&mut locked(all));
        let now = Instant::now();
        let mut short = Short::Tree;
        let left = waiting.into_iter().filter_map(|mut it| {
            let last = turn.is_none() || now >= it.until;
            let found = (it.step)(service, last)?;
            if found == Short::Pool {
                short = found;
            }
            Some(it)
        });
        let left: Vec<Waiting> = left.collect();
        let mut list = locked(all);
        list.tried = 0;
        list.waiting.extend(left);
        if list.waiting.is_empty() {
            list.attended = false;
            return;
        }
        drop(list);
        if let Some(turn) = turn {
            service.wait_for_room(turn, short, ROOM_PATIENCE);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics")]
mod tests {
    use std::sync::mpsc::channel;

    use novale_arena::Arena;
    use novale_core::{FileKind, Fs, Ino, MkfsOptions, NewInode, OpenOptions, Serial, mkfs};
    use novale_pm::{Pm, PmOptions};

    use super::*;
    use crate::service::OpenRequest;
    use crate::{Novale, Settings};

    /// A service in which a removed file is still open.
    fn with_room_on_its_way() -> Arc<dyn Service> {
        let pm = Pm::anonymous(&[16 << 20], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
        let arena = Arena::anonymous(64 << 20).unwrap();
        let fs = Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap();
        let service = Novale::new(Arc::new(fs), Settings::default());
        let file =
            NewInode { kind: FileKind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
        let open = OpenRequest { stores: true, ..OpenRequest::default() };
        let (made, _) = service.create(Ino::ROOT, b"f", (&file, 0), open).unwrap();
        service.write(None, made.ino, 0, &vec![1; 1 << 20]).unwrap();
        service.unlink(Ino::ROOT, b"f", None).unwrap();
        assert!(service.room_turn().is_some());
        Arc::new(service)
    }

    /// While those that waited were tried, as many more were let in each time.
    #[test]
    fn those_that_are_tried_count_among_those_that_wait() {
        let room = Room::new(with_room_on_its_way());
        let (answer, answers) = channel();
        let full = || Err::<(), _>(Errno(libc::ENOSPC));
        let ask = |request: Box<dyn FnMut() -> Reply<()> + Send>| {
            let (mut request, answer) = (request, answer.clone());
            room.again(move |_| request(), move |done| answer.send(done).unwrap());
        };
        let (begin, started) = channel();
        let (go, goes) = channel::<()>();
        // It is tried until all have asked.
        ask(Box::new(move || {
            begin.send(()).unwrap_or_default();
            goes.recv().unwrap_or_default();
            Err(Errno(libc::ENOSPC))
        }));
        started.recv().unwrap();
        (1..WAITING_MAX).for_each(|_| ask(Box::new(full)));
        assert!(answers.try_recv().is_err(), "all of them wait");
        ask(Box::new(full));
        assert_eq!(answers.try_recv(), Ok(full()), "one more does not");
        drop((go, started));
        for _ in 0..WAITING_MAX {
            assert_eq!(answers.recv().unwrap(), full());
        }
    }
}
