//! Files whose own pages are mapped, and writes to several places of a file at once.

use std::collections::BTreeSet;

use crate::contents::{Contents, PAGE_BYTES};
use crate::files::check_end;
use crate::state::{Body, Model};
use crate::tree::Tree;
use crate::types::{Attr, Error, Ino, Result};

const PAGE: u64 = PAGE_BYTES as u64;

impl Model {
    /// Keeps a file whose own pages are mapped from now on, as [`Model::hold`] does.
    ///
    /// # Errors
    /// [`Error::Stale`]; [`Error::IsDirectory`], [`Error::Invalid`] for other kinds but files.
    pub fn map(&mut self, ino: Ino) -> Result<()> {
        self.file(ino)?;
        self.sync(ino);
        let inode = self.inode_mut(ino)?;
        (inode.holds, inode.maps) = (inode.holds + 1, inode.maps + 1);
        Ok(())
    }

    /// Takes back a [`Model::map`].
    pub fn unmap(&mut self, ino: Ino) {
        if let Ok(inode) = self.inode_mut(ino) {
            inode.maps = inode.maps.saturating_sub(1);
        }
        self.release(ino, 1);
    }

    pub(crate) fn is_mapped(&self, ino: Ino) -> bool {
        self.inode(ino).is_ok_and(|inode| inode.maps > 0)
    }

    /// Whether any file is mapped.
    #[must_use]
    pub fn has_mapped(&self) -> bool {
        self.inodes.values().any(|inode| inode.maps > 0)
    }

    /// Stores to mapped pages, none beyond the end, and says so by the ctime: a crash may bring back,
    /// of each unit of eight bytes, what was there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that is not mapped; those of `read`.
    pub fn store(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64) -> Result<()> {
        self.file(ino)?;
        if !self.is_mapped(ino) {
            return Err(Error::Invalid);
        }
        if let Body::File(contents) = &mut self.inode_mut(ino)?.body {
            contents.store(offset, bytes);
        }
        self.drop_capability(ino);
        self.touch(ino, now_ns);
        Ok(())
    }

    /// Makes durable what was stored in pages; sets mtime, and ctime with it, where `now_ns` is later.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn flush(&mut self, ino: Ino, first_page: u64, pages: u64, now_ns: i64) -> Result<()> {
        self.file(ino)?;
        let inode = self.inode_mut(ino)?;
        if let Body::File(contents) = &mut inode.body {
            let stop = first_page.saturating_add(pages).saturating_mul(PAGE);
            contents.settle(first_page.saturating_mul(PAGE), stop);
        }
        if inode.attr.mtime_ns < now_ns {
            self.touch_contents(ino, now_ns);
            self.touch_earlier(ino, now_ns);
        }
        Ok(())
    }

    /// Writes all pieces, each at its offset, at once.
    ///
    /// # Errors
    /// [`Error::Busy`] for a file that is mapped; those of `write`.
    pub fn write_scattered(
        &mut self,
        ino: Ino,
        pieces: &[(u64, Vec<u8>)],
        now_ns: i64,
    ) -> Result<()> {
        self.file(ino)?;
        if self.is_mapped(ino) {
            return Err(Error::Busy);
        }
        for (offset, bytes) in pieces {
            check_end(*offset, bytes.len() as u64)?;
        }
        if pieces.iter().all(|(_, bytes)| bytes.is_empty()) {
            return Ok(());
        }
        self.change(ino, now_ns, |contents| {
            for (offset, bytes) in pieces {
                contents.write(*offset, bytes);
            }
        });
        self.sync(ino);
        Ok(())
    }

    /// Writes within a file change it in place from now on.
    #[must_use]
    pub fn overwriting_in_place(mut self, in_place: bool) -> Self {
        self.overwrites_in_place = in_place;
        self
    }

    /// Whether a file may change in place.
    #[must_use]
    pub fn changes_in_place(&self) -> bool {
        self.overwrites_in_place || self.has_mapped()
    }

    /// What a crash may leave while this becomes `after`, where nothing is committed yet: of files that
    /// are mapped, or were written in place, any part.
    #[must_use]
    pub fn becoming(&self, after: &Self) -> Self {
        let mut both = self.clone();
        for (ino, inode) in &mut both.inodes {
            let Some(after) = after.inodes.get(ino) else { continue };
            if inode.maps == 0 && inode.in_place_writes == after.in_place_writes {
                continue;
            }
            if let (Body::File(contents), Body::File(after)) = (&mut inode.body, &after.body) {
                contents.may_become(after);
            }
        }
        both
    }

    /// Files turned out to hold these bytes and access times. With `durable` nothing else comes back any
    /// more.
    pub fn turn_out(&mut self, found: &Tree, durable: bool) {
        for (path, node) in found.nodes() {
            let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            let ino = names.into_iter().try_fold(Ino::ROOT, |at, name| self.child(at, name));
            if let Some(ino) = ino {
                self.earlier_turn_out(ino, &node.contents, &node.attr);
            }
            let inode = ino.and_then(|ino| self.inodes.get_mut(&ino));
            let Some(inode) = inode else { continue };
            if let Body::File(contents) = &mut inode.body {
                turn_out_one(contents, &node.contents, durable);
                turn_out_access(&mut contents.accesses, &mut inode.attr, &node.attr, durable);
            }
        }
    }

    fn child(&self, at: Ino, name: &[u8]) -> Option<Ino> {
        match &self.inodes.get(&at)?.body {
            Body::Directory { entries, .. } => entries.get(name).copied(),
            Body::File(_) | Body::Symlink(_) | Body::Other => None,
        }
    }
}

/// A file of two names is found twice, the same each time.
fn turn_out_one(contents: &mut Contents, found: &Contents, durable: bool) {
    if !contents.loose.is_empty() {
        contents.turn_out(found, durable);
    }
}

fn turn_out_access(olds: &mut BTreeSet<i64>, attr: &mut Attr, found: &Attr, durable: bool) {
    if olds.is_empty() {
        return;
    }
    olds.insert(attr.atime_ns);
    attr.atime_ns = found.atime_ns;
    if durable {
        olds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Atime, Kind, NewInode, RangeOp};

    #[test]
    fn a_mapped_file_is_not_moved_and_its_stores_are_loose_until_they_are_flushed() {
        let mut model = Model::new(0o755, 0, 0, 0, Atime::Noatime);
        let new =
            NewInode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
        let ino = model.create(Ino::ROOT, b"f", &new, 1).unwrap().ino;
        model.write(ino, 0, &[1; 9000], 2).unwrap();
        assert_eq!(model.store(ino, 0, &[2; 8], 3), Err(Error::Invalid));
        model.map(ino).unwrap();
        let before = Tree::of(&model).unwrap();
        model.store(ino, 0, &[2; 8], 2).unwrap();
        assert_eq!(model.range(ino, RangeOp::Collapse, 0, 4096, 3), Err(Error::Busy));
        assert_eq!(model.write_scattered(ino, &[(0, vec![1])], 3), Err(Error::Busy));
        assert!(Tree::of(&model).unwrap().allows(&before));
        model.flush(ino, 1, 1, 2).unwrap();
        assert!(Tree::of(&model).unwrap().allows(&before));
        model.flush(ino, 0, 1, 2).unwrap();
        assert!(!Tree::of(&model).unwrap().allows(&before));
        model.unmap(ino);
        model.write_scattered(ino, &[(0, vec![3]), (20_000, vec![4])], 4).unwrap();
        assert_eq!(model.getattr(ino).unwrap().size, 20_001);
    }
}
