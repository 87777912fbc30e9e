//! What is answered once the kernel has dropped its pages of a file, for which it writes back what mappings have
//! stored to them.
//!
//! It is told by a thread of its own: the kernel waits, while it is told, until its writes of those pages are
//! answered, for which the serving threads must be there. The one who asked waits for his answer, and with him
//! whoever else wants the inode's lock in the kernel, which those writes do without.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Builder;

use fuser::{INodeNo, Notifier};
use novale_core::Seek;

use crate::fuser_convert::ino;
use crate::locked::locked;
use crate::service::{Changes, Errno, Reply, Service, Sought};
use crate::stores::OldStores;

/// Holes that a seek goes through since mappings have filled each; after that the rest is called data.
const HOLES_MAX: usize = 64;

/// Whether a change of attributes is made once what mappings have stored before is written back, which the kernel would
/// do later, and set the time once more. Not where the length changes too, as when an NFS server truncates: until that
/// is answered the kernel lets no write-back of the file begin, and waits for it here. It has the time of the change
/// then, or that of the write-back.
pub(crate) fn is_after_stores(changes: &Changes) -> bool {
    changes.mtime.is_some() && changes.size.is_none()
}

/// What has the kernel drop pages of a file.
pub(crate) struct Drops {
    service: Arc<dyn Service>,
    node: INodeNo,
    notifier: Option<Notifier>,
}

impl Drops {
    pub(crate) fn new(
        service: &Arc<dyn Service>,
        node: INodeNo,
        notifier: &OnceLock<Notifier>,
    ) -> Self {
        Self { service: service.clone(), node, notifier: notifier.get().cloned() }
    }

    /// Whether the kernel has dropped its pages of a range, and what it has written back of them is done. Not to be asked
    /// by a serving thread.
    fn drop_pages(&self, bytes: &Range<u64>) -> bool {
        let from = i64::try_from(bytes.start).unwrap_or(i64::MAX);
        let len = i64::try_from(bytes.end).unwrap_or(i64::MAX).saturating_sub(from);
        let told = self.notifier.as_ref().map(|it| it.inval_inode(self.node, from, len));
        let is_told = matches!(told, Some(Ok(())));
        if is_told {
            self.service.late().wait(&[ino(self.node)]);
        }
        is_told
    }

    /// Answers once those of a part that has changed are dropped, and of all parts behind it: `change` changes the next
    /// one, from an offset on, and says where it ends, if anything is left to be dropped. Where no thread can be had for
    /// that, nothing is dropped.
    pub(crate) fn part_by_part(
        self,
        first: Range<u64>,
        mut change: impl FnMut(&dyn Service, u64) -> Reply<Option<u64>> + Send + 'static,
        answer: impl FnOnce(Reply<()>) + Send + 'static,
    ) {
        by_own_thread(move |is_own| {
            let (start, mut part) = (first.start, first);
            let done = loop {
                if is_own && self.drop_pages(&part) {
                    self.service.pages_are_dropped(ino(self.node), &part, u64::MAX);
                }
                match change(&*self.service, part.end) {
                    Ok(None) => break Ok(()),
                    Ok(Some(end)) => part = part.end..end,
                    Err(error) => break Err(error),
                }
            };
            // After the answer what is stored counts.
            self.service.is_erased(ino(self.node), &(start..part.end));
            answer(done);
        });
    }

    /// Has those of a range dropped that the kernel could not write back. It takes them for clean: what reads its
    /// pages (a mapping, `splice`, a copy that it makes by itself) would show bytes that the file has not.
    pub(crate) fn give_up(self, bytes: Range<u64>) {
        self.before(bytes, || ());
    }

    /// Has what was stored to a range's pages written back first, and answers then. The kernel may have read them
    /// again.
    pub(crate) fn before(self, bytes: Range<u64>, answer: impl FnOnce() + Send + 'static) {
        by_own_thread(move |is_own| {
            if is_own {
                self.drop_pages(&bytes);
            }
            answer();
        });
    }

    /// Seeks data or a hole from an offset on, beside what mappings have stored.
    pub(crate) fn seek(
        self,
        (offset, what): (u64, Seek),
        answer: impl FnOnce(Reply<u64>) + Send + 'static,
    ) {
        match self.service.seek(ino(self.node), offset, what, &(0..0)) {
            Ok(Sought::At(at)) => answer(Ok(at)),
            Err(error) => answer(Err(error)),
            Ok(Sought::After(hole)) => by_own_thread(move |is_own| {
                let found = is_own.then(|| self.seek_again((offset, what), hole)).flatten();
                answer(found.unwrap_or_else(|| self.all_is_data(offset, what)));
            }),
        }
    }

    /// None where the kernel can't be told, or mappings have filled hole after hole.
    fn seek_again(&self, (offset, what): (u64, Seek), mut hole: Range<u64>) -> Option<Reply<u64>> {
        for _ in 0..HOLES_MAX {
            if !self.drop_pages(&hole) {
                return None;
            }
            match self.service.seek(ino(self.node), offset, what, &hole) {
                Ok(Sought::At(at)) => return Some(Ok(at)),
                Err(error) => return Some(Err(error)),
                Ok(Sought::After(next)) => hole = next,
            }
        }
        None
    }

    /// What is true of any file: holes need not be told.
    fn all_is_data(&self, offset: u64, what: Seek) -> Reply<u64> {
        let size = self.service.getattr(ino(self.node))?.size;
        match what {
            _ if offset >= size => Err(Errno(libc::ENXIO)),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}

/// Has the pages of files dropped that nobody has written to for long, so that nothing need be kept of them.
pub(crate) fn drop_old(service: &Arc<dyn Service>, notifier: &OnceLock<Notifier>, old: OldStores) {
    let (service, notifier) = (service.clone(), notifier.get().cloned());
    by_own_thread(move |is_own| {
        for (file, writes) in old.files.iter().filter(|_| is_own) {
            let (service, notifier, node) =
                (service.clone(), notifier.clone(), INodeNo(file.get()));
            let drops = Drops { service, node, notifier };
            if drops.drop_pages(&(0..u64::MAX)) {
                drops.service.pages_are_dropped(*file, &(0..u64::MAX), *writes);
            }
        }
    });
}

/// Runs work by a thread of its own, or here where none can be had, and tells it which.
fn by_own_thread(work: impl FnOnce(bool) + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work)));
    let own = work.clone();
    let started = Builder::new().name("novale-drops".to_owned()).spawn(move || run(&own, true));
    if started.is_err() {
        run(&work, false);
    }
}

fn run<W: FnOnce(bool)>(work: &Mutex<Option<W>>, is_own: bool) {
    let work = locked(work).take();
    if let Some(work) = work {
        work(is_own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Time;

    #[test]
    fn a_change_of_length_waits_for_no_write_back() {
        let mtime = Some(Time::Now);
        assert!(is_after_stores(&Changes { mtime, ..Changes::default() }));
        assert!(!is_after_stores(&Changes { mtime, size: Some(0), ..Changes::default() }));
        assert!(!is_after_stores(&Changes { size: Some(0), ..Changes::default() }));
    }
}
