//! Which files the kernel may have mapped, of a shared file system.
//!
//! A mapping lives no longer than the open file that it was made of, whose end the kernel tells. A page
//! of a mapping is read without an owner, by the page cache, as nothing else is where files bypass it:
//! so a file is marked before its first page is handed out, no matter who maps it, and the mark goes when
//! the last open file has ended. Where the pool is mounted elsewhere too, that kernel's files are not
//! known here, and the mark stays until nobody holds the inode.
//!
//! To take the mark away the inode's lock is waited for, which a client may have that was stopped: so nothing that
//! other files need is locked then. Who opens the file meanwhile does not wait, and who maps it waits until the
//! mark is gone, to set it anew: nobody's mark is taken away behind his back. A client that sets it for a mapping to
//! come does so once more, under the lock, when the kernel has the file open: it stays then.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use novale_core::{Ctx, Fs, Ino, Result};

use crate::gate::Gate;
use crate::late::Late;
use crate::locked::locked;

/// What the kernel has of a file.
#[derive(Debug, Default)]
struct File {
    /// How many open files.
    open: u64,
    /// A thread takes the mark away, since the last one has ended.
    ends: bool,
    /// Another one was the last since that thread has begun.
    again: bool,
}

/// The files that the kernel has open, by their inodes.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Mutex<HashMap<u64, File>>,
    /// A mark was taken away.
    end: Condvar,
}

impl OpenFiles {
    fn files(&self) -> MutexGuard<'_, HashMap<u64, File>> {
        locked(&self.files)
    }

    /// One more was opened.
    pub(crate) fn opened(&self, ino: Ino) {
        self.files().entry(ino.get()).or_default().open += 1;
    }

    /// A page is to be mapped: waits until nobody is about to take the mark away, before it is set.
    pub(crate) fn before_mapping(&self, ino: Ino) {
        let ends =
            |files: &mut HashMap<u64, File>| files.get(&ino.get()).is_some_and(|file| file.ends);
        drop(self.end.wait_while(self.files(), ends).unwrap_or_else(PoisonError::into_inner));
    }

    /// One has ended, and with it the mappings made of it. What they have stored and was only answered to be written back
    /// is written before the mark goes: from then on others write by themselves. Whoever waits for that has no pass: what
    /// is written back needs one, which it does not get behind somebody who closes the gate.
    pub(crate) fn ended(
        &self,
        (fs, gate): (&Fs, &Gate),
        ctx: &Ctx,
        ino: Ino,
        late: &Late,
    ) -> Result<()> {
        if !self.begins_end(ino) {
            return Ok(());
        }
        loop {
            late.wait(&[ino]);
            // What a kernel wanted that has no open file any more, it wants no longer.
            let is_over = || self.files().get(&ino.get()).is_none_or(|file| file.open == 0);
            let done = match gate.enter() {
                Ok(_pass) if fs.mounts() == 1 => fs.end_mapped(ctx, ino, is_over),
                _ => Ok(()),
            };
            if self.is_end(ino) {
                return done;
            }
        }
    }

    /// Counts one less; says whether the caller is to take the mark away.
    fn begins_end(&self, ino: Ino) -> bool {
        let mut files = self.files();
        let Some(file) = files.get_mut(&ino.get()) else { return false };
        file.open = file.open.saturating_sub(1);
        if file.open > 0 {
            return false;
        }
        file.again = file.ends;
        !std::mem::replace(&mut file.ends, true)
    }

    /// The mark is gone; says whether it needn't be taken away once more.
    fn is_end(&self, ino: Ino) -> bool {
        let mut files = self.files();
        let Some(file) = files.get_mut(&ino.get()) else { return true };
        if std::mem::take(&mut file.again) && file.open == 0 {
            return false;
        }
        file.ends = false;
        if file.open == 0 {
            files.remove(&ino.get());
        }
        self.end.notify_all();
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics")]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use novale_arena::Arena;
    use novale_core::{FileKind, MkfsOptions, NewInode, Node, OpenOptions, Serial, mkfs};
    use novale_pm::{Pm, PmOptions};

    use super::*;
    use crate::late::{Answer, Write};
    use crate::novale::Novale;
    use crate::service::Reply;

    /// Tells when it is answered before it is done.
    struct Early(std::sync::mpsc::Sender<()>);

    impl Answer for Early {
        fn early(&mut self) {
            self.0.send(()).unwrap();
        }
        fn end(self: Box<Self>, _: Reply<usize>) {}
    }

    /// Of two that ended at once each took the other one for the last, and neither waited. What others wrote then was
    /// overwritten by what had been stored before.
    #[test]
    fn what_was_answered_early_is_written_before_the_mark_goes() {
        let pm = Pm::anonymous(&[16 << 20], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(1, 4)).unwrap();
        let arena = Arena::anonymous(64 << 20).unwrap();
        let fs = Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| ()).unwrap();
        let new =
            NewInode { kind: FileKind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
        let ctx = Novale::ctx();
        let ino = fs.create(&ctx, Node::ROOT, b"file", &new).unwrap().ino;
        let (files, late, gate) = (OpenFiles::default(), Arc::new(Late::default()), Gate::new());
        fs.add_mount();
        files.opened(ino);
        fs.set_mapped(&ctx, ino, true).unwrap();
        let (tell, told) = channel();
        let unused = || Box::new(|_: &[u8]| Ok(0_usize)) as Write;
        let now = late.begin(ino, b"late", unused, Box::new(Early(tell))).unwrap();
        told.recv().unwrap();
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            let (files, fs, late) = (&files, &fs, &late);
            let gate = &gate;
            scope.spawn(move || tell.send(files.ended((fs, gate), &ctx, ino, late)).unwrap());
            assert!(told.recv_timeout(Duration::from_millis(200)).is_err());
            assert!(fs.is_mapped(&ctx, ino).unwrap());
            // Who waits for that keeps no one from draining.
            gate.drain();
            late.end(now, Ok(4));
            told.recv().unwrap().unwrap();
        });
        assert!(!fs.is_mapped(&ctx, ino).unwrap());
    }
}
