//! Directory listings: `.` and `..` in front, the core's entries in batches behind.
//!
//! Invariant: nothing is looked up while the core lists, so a batch is copied out first.

use novale_core::{Attr, DirEntry, FileKind, Ino, Node};
use novale_posix::{after_dots, hold_same, list_dots};

use crate::novale::Novale;
use crate::service::{Errno, Listed, Reply};

/// Entries copied at a time: about what a reply of 4 KB takes.
const BATCH: usize = 64;

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
                self.done(self.fs.note_parent(attr.node(), Node::current(ino)))
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
        let listed = |dot: &DirEntry<'_>| {
            let DirEntry { cookie, ino, generation, kind, name } = *dot;
            Listed { cookie, ino, generation, kind, name: name.to_vec() }
        };
        let dots = self.done(list_dots(&self.fs, Node::current(ino), after))?;
        Ok(dots.iter().map(listed).collect())
    }

    fn each_entry(
        &self,
        ino: Ino,
        after: u64,
        take: &mut dyn FnMut(&Listed) -> Result<bool, Errno>,
    ) -> Reply<()> {
        let mut after = after_dots(after);
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
        self.done(self.fs.readdir(&Self::ctx(), Node::current(ino), after, &mut |entry| {
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
