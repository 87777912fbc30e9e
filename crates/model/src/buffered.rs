//! Files whose writes are buffered: a crash leaves of each a first part of its writes, all of those at
//! least that came before its last sync. Names and attributes are as ever.

use std::collections::{BTreeMap, BTreeSet};

use crate::contents::Contents;
use crate::state::{Body, Model};
use crate::types::{Attr, Ino};

/// What a file was before a write that a crash may take back.
#[derive(Debug, Clone)]
pub(crate) struct Earlier {
    contents: Contents,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl Contents {
    /// Whether a crash may leave `found`, with these attributes, of a file that was to have `attr`.
    pub(crate) fn allows_earlier(&self, attr: &Attr, found: &Self, found_attr: &Attr) -> bool {
        self.earlier.iter().any(|earlier| {
            let Earlier { contents, mtime_ns, ctime_ns } = earlier;
            let (mtime_ns, ctime_ns) = (*mtime_ns, *ctime_ns);
            let attr = Attr { size: contents.size(), mtime_ns, ctime_ns, ..*attr };
            contents.allows(found) && attr == *found_attr
        })
    }

    /// The same, of which nothing is taken back.
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.earlier.clear();
        self
    }
}

impl Model {
    /// Writes are buffered from now on.
    #[must_use]
    pub fn buffering(mut self, buffers: bool) -> Self {
        self.buffers = buffers;
        self
    }

    /// Whether a crash may take writes back.
    #[must_use]
    pub fn is_buffering(&self) -> bool {
        self.buffers
    }

    /// Makes durable what was written to a file.
    pub fn sync(&mut self, ino: Ino) {
        if let Some(Body::File(contents)) = self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            contents.earlier.clear();
        }
    }

    /// Makes durable what was written to any file.
    pub fn sync_all(&mut self) {
        let all: Vec<Ino> = self.inodes.keys().copied().collect();
        for ino in all {
            self.sync(ino);
        }
    }

    /// A crash may leave the file as it is now, whatever is written to it next.
    pub(crate) fn keep_earlier(&mut self, ino: Ino) {
        // What is mapped changes in place.
        let Some(inode) = self.inodes.get_mut(&ino).filter(|inode| self.buffers && inode.maps == 0)
        else {
            return;
        };
        let (mtime_ns, ctime_ns) = (inode.attr.mtime_ns, inode.attr.ctime_ns);
        if let Body::File(contents) = &mut inode.body {
            let earlier = std::mem::take(&mut contents.earlier);
            let now = Earlier { contents: contents.clone(), mtime_ns, ctime_ns };
            contents.earlier = earlier;
            contents.earlier.push(now);
        }
    }

    /// A change of its attributes is there whatever a crash leaves of a file's writes.
    pub(crate) fn change_earlier(&mut self, ino: Ino, now_ns: i64) {
        self.each_earlier(ino, |earlier| earlier.ctime_ns = now_ns);
    }

    /// The same of both times.
    pub(crate) fn touch_earlier(&mut self, ino: Ino, now_ns: i64) {
        self.each_earlier(ino, |earlier| {
            (earlier.mtime_ns, earlier.ctime_ns) = (now_ns, now_ns);
        });
    }

    fn each_earlier(&mut self, ino: Ino, change: impl FnMut(&mut Earlier)) {
        if let Some(Body::File(contents)) = self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            contents.earlier.iter_mut().for_each(change);
        }
    }

    /// A file turned out to be so: nothing else comes back any more.
    pub(crate) fn earlier_turn_out(&mut self, ino: Ino, found: &Contents, found_attr: &Attr) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let Body::File(contents) = &mut inode.body else { return };
        if contents.earlier.is_empty() {
            return;
        }
        // What was stored through a mapping is as durable as it was in each state that this may be: a write that
        // is taken back has not made it so.
        let mut loose = BTreeMap::<u64, BTreeSet<[u8; 8]>>::new();
        let earlier = contents.earlier.iter().map(|earlier| (&earlier.contents, earlier.mtime_ns));
        let states = earlier.chain([(&*contents, inode.attr.mtime_ns)]);
        for (state, mtime_ns) in states {
            if !state.allows(found) || mtime_ns != found_attr.mtime_ns {
                continue;
            }
            let mut state = state.clone();
            state.turn_out(found, false);
            for (unit, olds) in state.loose {
                loose.entry(unit).or_default().extend(olds);
            }
        }
        contents.clone_from(found);
        contents.loose = loose;
        let Attr { size, mtime_ns, ctime_ns, .. } = *found_attr;
        inode.attr = Attr { size, mtime_ns, ctime_ns, ..inode.attr };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use crate::types::{Atime, Kind, NewInode, SetAttr};

    /// With an empty file.
    fn with_file(buffers: bool) -> (Model, Ino) {
        let mut model = Model::new(0o755, 0, 0, 0, Atime::Noatime).buffering(buffers);
        let new =
            NewInode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
        let ino = model.create(Ino::ROOT, b"f", &new, 1).unwrap().ino;
        (model, ino)
    }

    #[test]
    fn a_store_that_was_not_durable_is_not_by_a_write_that_is_taken_back() {
        let (mut model, ino) = with_file(true);
        model.write(ino, 0, &[1; 8], 2).unwrap();
        model.sync(ino);
        let before = Tree::of(&model).unwrap();
        model.map(ino).unwrap();
        model.store(ino, 0, &[2; 8], 2).unwrap();
        model.unmap(ino);
        let stored = Tree::of(&model).unwrap();
        model.write(ino, 0, &[3; 8], 4).unwrap();
        // The process dies, and the bytes of the mapping stay in the caches.
        model.turn_out(&stored, false);
        assert!(Tree::of(&model).unwrap().allows(&stored));
        assert!(Tree::of(&model).unwrap().allows(&before));
        // A flush of no pages leaves its time, whatever comes back of the bytes.
        model.write(ino, 0, &[4; 8], 5).unwrap();
        model.flush(ino, 0, 0, 6).unwrap();
        let found = Tree::of(&model).unwrap();
        let mut taken_back = stored;
        taken_back.for_each_attr(|attr| {
            if attr.kind == Kind::File {
                (attr.mtime_ns, attr.ctime_ns) = (6, 6);
            }
        });
        assert!(found.allows(&taken_back));
    }

    #[test]
    fn a_crash_leaves_a_first_part_of_the_writes_since_the_last_sync() {
        let (mut model, ino) = with_file(true);
        let mut trees = vec![Tree::of(&model).unwrap()];
        for (offset, now_ns) in [(20, 2), (30, 3), (40, 4)] {
            model.write(ino, offset, &[1; 10], now_ns).unwrap();
            trees.push(Tree::of(&model).unwrap());
        }
        let allows =
            |model: &Model, index: usize| Tree::of(model).unwrap().allows(&trees[index].clone());
        assert!((0..4).all(|index| allows(&model, index)));
        let mut skipped = model.clone();
        skipped.write(ino, 30, &[0; 10], 4).unwrap();
        assert!(!Tree::of(&model).unwrap().allows(&Tree::of(&skipped).unwrap()));
        let mut synced = model.clone();
        synced.sync(ino);
        assert_eq!((0..4).filter(|index| allows(&synced, *index)).count(), 1);
        // A change of the mode is there with any of them.
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        model.setattr(ino, &mode, 9).unwrap();
        assert!((0..4).all(|index| !allows(&model, index)));
        let (mut first, ino) = with_file(false);
        first.setattr(ino, &mode, 9).unwrap();
        let found = Tree::of(&first).unwrap();
        assert!(Tree::of(&model).unwrap().allows(&found));
        model.turn_out(&found, true);
        assert_eq!(Tree::of(&model).unwrap(), found);
        assert!(!allows(&model, 1));
    }

    /// What was stored through a mapping is loose still when a write turns out to be lost: its length stayed.
    #[test]
    fn a_lost_write_goes_from_a_file_that_was_mapped() {
        let (mut model, ino) = with_file(true);
        model.write(ino, 0, &[1], 2).unwrap();
        model.map(ino).unwrap();
        model.store(ino, 0, &[2], 3).unwrap();
        model.unmap(ino);
        let found = Tree::of(&model).unwrap().exact();
        model.write(ino, 8, &[3], 4).unwrap();
        model.turn_out(&found, false);
        assert_eq!(model.getattr(ino).unwrap().size, 1);
        assert_eq!(Tree::of(&model).unwrap(), found);
    }
}
