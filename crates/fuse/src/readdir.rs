//! Directory listings: `.` and `..` in front, the core's entries in batches after.
//!
//! Invariants: nothing is looked up while the core lists, so a batch is copied out first. Who has a
//! directory open reads to an end that is fixed with its first read from the start. An NFS server
//! opens it for each of its reads: those end where the directory does then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use novale_core::{Attr, Ctx, DirEntry, FileKind, Ino, Node};
use novale_posix::{Span, after_dots, hold_same, list_dots};

use crate::locked::locked;
use crate::novale::Novale;
use crate::service::{Errno, Listed, Reply};

/// Entries copied at a time: about what a reply of 4 KB takes.
const BATCH: usize = 64;

/// Where the listings of open directories end, by the number that each was opened under.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    opened: AtomicU64,
    ends: Mutex<HashMap<u64, u64>>,
}

impl Listings {
    fn ends(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        locked(&self.ends)
    }

    /// A directory was opened; its end is fixed when it is read.
    pub(crate) fn opened(&self) -> u64 {
        let handle = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        self.ends().insert(handle, 0);
        handle
    }

    pub(crate) fn closed(&self, handle: u64) {
        self.ends().remove(&handle);
    }
}

impl Novale {
    /// What a read of an open directory is to list.
    fn span(&self, ino: Ino, handle: u64, after: u64) -> Reply<Span> {
        let end = self.listings.ends().get(&handle).copied().unwrap_or_default();
        let fixed = Span { after, end }.fixed(&self.fs, &Self::ctx(), Node::current(ino));
        let span = self.done(fixed)?;
        if let Some(known) = self.listings.ends().get_mut(&handle) {
            *known = span.end;
        }
        Ok(span)
    }

    pub(crate) fn list(
        &self,
        (ino, handle): (Ino, u64),
        after: u64,
        take: &mut dyn FnMut(&Listed) -> bool,
    ) -> Reply<()> {
        let span = self.span(ino, handle, after)?;
        for dot in self.dots(ino, after)? {
            if !take(&dot) {
                return Ok(());
            }
        }
        self.each_entry(ino, span, &mut |entry| Ok(take(entry)))
    }

    pub(crate) fn list_with_attributes(
        &self,
        (ino, handle): (Ino, u64),
        after: u64,
        take: &mut dyn FnMut(&Listed, Option<&Attr>) -> bool,
    ) -> Reply<()> {
        let span = self.span(ino, handle, after)?;
        for dot in self.dots(ino, after)? {
            let attr = match self.done(self.fs.getattr(dot.ino)) {
                Err(Errno(libc::EIO | libc::EUCLEAN)) => None,
                attr => Some(attr?),
            };
            if !take(&dot, attr.as_ref()) {
                return Ok(());
            }
        }
        let ctx = Self::ctx();
        let mut any = false;
        let listed = self.each_entry(ino, span, &mut |entry| {
            let taken = match self.shown(&ctx, ino, entry) {
                Ok(Some(attr)) => {
                    let taken = take(entry, Some(&attr));
                    if !taken {
                        self.give_back(&ctx, entry.ino, 1);
                    }
                    taken
                }
                // Removed since the batch was copied: it is no entry any more.
                Ok(None) => return Ok(true),
                // What is damaged is one name, and not the directory.
                Err(Errno(libc::EIO | libc::EUCLEAN)) => take(entry, None),
                Err(error) => return Err(error),
            };
            any |= taken;
            Ok(taken)
        });
        // An error instead of entries that are held would leak their holds: the next call meets it.
        if any { Ok(()) } else { listed }
    }

    /// Holds an entry of a directory that is shown with its attributes; nothing where it is gone.
    fn shown(&self, ctx: &Ctx, directory: Ino, entry: &Listed) -> Reply<Option<Attr>> {
        let held = self.done(hold_same(&self.fs, ctx, entry.ino, entry.generation))?;
        // The kernel goes on to a directory that it was shown without asking for its name.
        let is_directory = |attr: &Attr| attr.kind == FileKind::Directory;
        if let Some(attr) = held.filter(is_directory) {
            let noted = self.fs.note_parent(attr.node(), Node::current(directory));
            self.done(noted).inspect_err(|_| self.give_back(ctx, entry.ino, 1))?;
        }
        Ok(held)
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
        span: Span,
        take: &mut dyn FnMut(&Listed) -> Result<bool, Errno>,
    ) -> Reply<()> {
        let mut after = after_dots(span.after);
        loop {
            let batch = self.batch(ino, after)?;
            let mut more = true;
            for entry in &batch {
                more = more && entry.cookie <= span.end && take(entry)?;
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
