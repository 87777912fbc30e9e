//! Requests that wait until programs have given way which have a file's own pages mapped.
//!
//! They are put aside and answered by a thread of their own: those who give way make requests too, for
//! which the serving threads must be there. Each file has one while anything waits for it: it may have to wait
//! for the file's inode, which a stopped program has locked.

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
    /// The files with a thread that looks after them.
    attended: Vec<Ino>,
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
        !locked(&self.list).attended.is_empty()
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
        if list.attended.contains(&ino) {
            return;
        }
        let (service, all) = (self.service.clone(), self.list.clone());
        let attend = move || attend(&*service, &all, ino);
        if Builder::new().name("novale-aside".to_owned()).spawn(attend).is_ok() {
            list.attended.push(ino);
        } else {
            take_of(&mut list, ino).for_each(|it| (it.answer)(Err(Errno(libc::EIO))));
        }
    }
}

fn take_of(list: &mut List, ino: Ino) -> impl Iterator<Item = Waiting> {
    list.waiting.extract_if(.., move |it| it.ino == ino)
}

/// Answers what waits for a file; ends when nothing does, each of which has an end.
fn attend(service: &dyn Service, all: &Mutex<List>, ino: Ino) {
    loop {
        let turn = service.mappings_turn();
        let waiting: Vec<Waiting> = take_of(&mut locked(all), ino).collect();
        let look = |it| look(service, all, it);
        let left: Vec<Waiting> = waiting.into_iter().filter_map(look).collect();
        let mut list = locked(all);
        list.waiting.extend(left);
        if list.waiting.iter().all(|it| it.ino != ino) {
            list.attended.retain(|attended| *attended != ino);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics")]
mod tests {
    use std::sync::mpsc::channel;

    use novale_arena::Arena;
    use novale_core::{FileKind, Fs, MkfsOptions, NewInode, OpenOptions, Serial, mkfs};
    use novale_pm::{Pm, PmOptions};

    use super::*;
    use crate::late::{self, Write};
    use crate::{Novale, Settings};

    /// A write-back of one file takes long.
    struct Late;

    impl late::Answer for Late {
        fn early(&mut self) {}
        fn end(self: Box<Self>, _: Reply<usize>) {}
    }

    /// One thread looked after all files, and waited for the inode of the first.
    #[test]
    fn a_file_whose_inode_is_locked_holds_up_no_other() {
        let pm = Pm::anonymous(&[16 << 20], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
        let arena = Arena::anonymous(64 << 20).unwrap();
        let fs = Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap();
        let fs = Arc::new(fs);
        let settings = Settings { shared: true, ..Settings::default() };
        let service: Arc<dyn Service> = Arc::new(Novale::new(fs.clone(), settings));
        let new =
            NewInode { kind: FileKind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
        let ctx = Novale::ctx();
        let [busy, other] = [&b"busy"[..], b"other"].map(|name| {
            let made = service.make(Ino::ROOT, name, &new, 0).unwrap();
            let hold = fs.map_hold_giving_way(&ctx, made.ino, made.generation).unwrap();
            (made.ino, hold.unwrap())
        });
        let aside = Aside::new(service.clone());
        let (tell, told) = channel();
        aside.when_mapped(busy.0, |_| ());
        let unused = || Box::new(|_: &[u8]| Ok(0_usize)) as Write;
        let late = service.late().begin(busy.0, b"late", unused, Box::new(Late)).unwrap();
        // Longer than until it is answered, and the file looked at once more.
        std::thread::sleep(3 * TICK);
        aside.when_mapped(other.0, move |ready| tell.send(ready).unwrap());
        fs.open_release(&ctx, other.1).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE / 2), Ok(Ok(())));
        service.late().end(late, Ok(4));
        fs.open_release(&ctx, busy.1).unwrap();
    }
}
