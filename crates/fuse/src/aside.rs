//! Requests that wait until programs have given way which have a file's own pages mapped.
//!
//! They are put aside and answered by a thread of their own: those who give way make requests too, for
//! which the serving threads must be there. The thread is there while anything waits.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use novale_core::Ino;

use crate::locked::locked;
use crate::service::{Errno, Reply, Service};

/// How long a request waits: who has the file mapped may be stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the file is looked at though nobody has said that it is free: who should have may have
/// died after giving way.
const TICK: Duration = Duration::from_millis(100);
/// For so long after a request that has waited in vain others for the same file do not wait: the
/// kernel asks for a page more than once before it gives up.
const LOST: Duration = Duration::from_secs(1);

/// What answers a request, told whether the kernel may map the file now.
type Answer = Box<dyn FnOnce(Reply<()>) + Send>;

struct Waiting {
    ino: Ino,
    until: Instant,
    answer: Answer,
}

#[derive(Default)]
struct List {
    waiting: Vec<Waiting>,
    /// A thread looks after them.
    attended: bool,
    /// The files that were waited for in vain last, and until when nobody waits for them.
    lost: Vec<(Ino, Instant)>,
}

/// The requests that wait.
pub(crate) struct Aside {
    service: Arc<dyn Service>,
    list: Arc<Mutex<List>>,
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").finish_non_exhaustive()
    }
}

impl Aside {
    pub(crate) fn new(service: Arc<dyn Service>) -> Self {
        Self { service, list: Arc::default() }
    }

    /// Answers a request of the kernel's to have a file mapped: at once where it can be, later where
    /// somebody has to give way.
    pub(crate) fn when_mapped(&self, ino: Ino, answer: impl FnOnce(Reply<()>) + Send + 'static) {
        match self.service.maps(ino, true) {
            Ok(true) => answer(Ok(())),
            Ok(false) => self.put(ino, Box::new(answer)),
            Err(error) => answer(Err(error)),
        }
    }

    /// Whether any request waits.
    pub(crate) fn waits(&self) -> bool {
        locked(&self.list).attended
    }

    fn put(&self, ino: Ino, answer: Answer) {
        let now = Instant::now();
        let until = now + PATIENCE;
        let mut list = locked(&self.list);
        list.lost.retain(|(_, end)| *end > now);
        if list.lost.iter().any(|(lost, _)| *lost == ino) {
            return answer(Err(Errno(libc::EIO)));
        }
        list.waiting.push(Waiting { ino, until, answer });
        if list.attended {
            return;
        }
        let (service, all) = (self.service.clone(), self.list.clone());
        let attend = move || attend(&*service, &all);
        list.attended = Builder::new().name("novale-aside".to_owned()).spawn(attend).is_ok();
        if !list.attended {
            list.waiting.drain(..).for_each(|it| (it.answer)(Err(Errno(libc::EIO))));
        }
    }
}

/// Answers what waits; ends when nothing does, each of which has an end.
fn attend(service: &dyn Service, all: &Mutex<List>) {
    loop {
        let turn = service.mappings_turn();
        let waiting = std::mem::take(&mut locked(all).waiting);
        let look = |it| look(service, all, it);
        let left: Vec<Waiting> = waiting.into_iter().filter_map(look).collect();
        let mut list = locked(all);
        list.waiting.extend(left);
        if list.waiting.is_empty() {
            list.attended = false;
            return;
        }
        drop(list);
        service.wait_for_mappings(turn, TICK);
    }
}

/// Answers a request if it can be; gives it back where it has to wait.
fn look(service: &dyn Service, all: &Mutex<List>, it: Waiting) -> Option<Waiting> {
    let now = Instant::now();
    match service.maps(it.ino, false) {
        Ok(true) => (it.answer)(Ok(())),
        Ok(false) if now < it.until => return Some(it),
        Ok(false) => {
            locked(all).lost.push((it.ino, now + LOST));
            (it.answer)(Err(Errno(libc::EIO)));
        }
        Err(error) => (it.answer)(Err(error)),
    }
    None
}
