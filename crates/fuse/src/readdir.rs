//! Directory listings: `.` and `..` in front, the core's entries in batches behind.
//!
//! Invariant: nothing is looked up while the core lists, so a batch is copied out first. Cookies 1
//! and 2 are those of `.` and `..`; the core's start at 16 and stay below 2^63.

use novale_core::{Attr, Error, FileKind, Ino};
use novale_posix::hold_same;

use crate::novale::Novale;
use crate::service::{Errno, Listed, Reply};

/// Entries copied at a time: about what a reply of 4 KB takes.
const BATCH: usize = 64;
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl Novale {
    pub(crate) fn list(
        &self,
        ino: Ino,
        after: u64,
        take: &mut dyn FnMut(&Listed) -> bool,
    ) -> Reply<()> {
        for dot in self.dots(ino, after)? {
            if !take(&dot) {
                return Ok(());
            }
        }
        self.each_entry(ino, after, &mut |entry| Ok(take(entry)))
    }

    pub(crate) fn list_with_attributes(
        &self,
        ino: Ino,
        after: u64,
        take: &mut dyn FnMut(&Listed, &Attr) -> bool,
    ) -> Reply<()> {
        for dot in self.dots(ino, after)? {
            if !take(&dot, &self.done(self.fs.getattr(dot.ino))?) {
                return Ok(());
            }
        }
        let ctx = Self::ctx();
        let mut any = false;
        let listed = self.each_entry(ino, after, &mut |entry| {
            let held = self.done(hold_same(&self.fs, &ctx, entry.ino, entry.generation))?;
            // Removed since the batch was copied: it is no entry any more.
            let Some(attr) = held else { return Ok(true) };
            // The kernel goes on to a directory that it was shown without asking for its name.
            let noted = if attr.kind == FileKind::Directory {
                self.done(self.fs.note_parent(entry.ino, ino))
            } else {
                Ok(())
            };
            let taken = noted.is_ok() && take(entry, &attr);
            if !taken {
                self.give_back(&ctx, entry.ino, 1);
            }
            any |= taken;
            noted.map(|()| taken)
        });
        // An error instead of entries that are held would leak their holds: the next call meets it.
        if any { Ok(()) } else { listed }
    }

    fn dots(&self, ino: Ino, after: u64) -> Reply<Vec<Listed>> {
        let dot = |cookie, ino, name: &[u8]| {
            let (kind, name) = (FileKind::Directory, name.to_vec());
            Listed { cookie, ino, generation: 0, kind, name }
        };
        let mut dots = Vec::new();
        if after < DOT {
            dots.push(dot(DOT, ino, b"."));
        }
        if after < DOT_DOT {
            // One that was removed before anybody asked for its parent: its own number stands in.
            let parent = match self.fs.parent(ino) {
                Err(Error::NotFound) => ino,
                parent => self.done(parent)?,
            };
            dots.push(dot(DOT_DOT, parent, b".."));
        }
        Ok(dots)
    }

    fn each_entry(
        &self,
        ino: Ino,
        after: u64,
        take: &mut dyn FnMut(&Listed) -> Result<bool, Errno>,
    ) -> Reply<()> {
        let mut after = if after <= DOT_DOT { 0 } else { after };
        loop {
            let batch = self.batch(ino, after)?;
            let mut more = true;
            for entry in &batch {
                more = more && take(entry)?;
            }
            match batch.last() {
                Some(last) if more && batch.len() == BATCH => after = last.cookie,
                _ => return Ok(()),
            }
        }
    }

    fn batch(&self, ino: Ino, after: u64) -> Reply<Vec<Listed>> {
        let mut batch = Vec::with_capacity(BATCH);
        self.done(self.fs.readdir(&Self::ctx(), ino, after, &mut |entry| {
            batch.push(Listed {
                cookie: entry.cookie,
                ino: entry.ino,
                generation: entry.generation,
                kind: entry.kind,
                name: entry.name.to_vec(),
            });
            batch.len() < BATCH
        }))?;
        Ok(batch)
    }
}
