//! Rename in its three modes.

use crate::names::check_name;
use crate::state::Model;
use crate::types::{Attr, Error, Ino, Kind, RenameMode, Result};

impl Model {
    /// Moves a name, by the rules of POSIX and renameat2(2).
    ///
    /// Two names of one inode: nothing happens. Otherwise mtime and ctime of both parents and
    /// ctime of the moved and of a replaced inode change.
    ///
    /// # Errors
    /// In this order: those of a bad name; those of looking up the source, then the target
    /// ([`Error::NotFound`] of the target for an exchange alone); [`Error::Exists`] of `NoReplace`;
    /// [`Error::Invalid`] below itself; [`Error::NotFound`] into a removed directory;
    /// [`Error::OtherTree`];
    /// [`Error::NotDirectory`] and [`Error::IsDirectory`] for unlike kinds; [`Error::NotEmpty`].
    pub fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        now_ns: i64,
    ) -> Result<()> {
        check_name(from.1)?;
        check_name(to.1)?;
        let source = self.lookup(from.0, from.1)?;
        let target = match self.lookup(to.0, to.1) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        self.check_ancestors(from.0, source, to.0, target, mode)?;
        self.check_not_removed(to.0)?;
        match target {
            Some(target) if target.ino == source.ino => return Ok(()),
            _ => self.stay_in_tree(source, from.0, to.0)?,
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                self.stay_in_tree(target, to.0, from.0)?;
                self.sync(source.ino);
                self.sync(target.ino);
                self.exchange(from, source, to, target, now_ns);
            }
            Some(target) => {
                self.check_replaceable(source, target)?;
                self.sync(source.ino);
                self.unname(to, target);
                self.forget_name(target.ino, now_ns);
                self.move_name(from, source, to, now_ns);
            }
            None => self.move_name(from, source, to, now_ns),
        }
        self.touch_contents(from.0, now_ns);
        self.touch_contents(to.0, now_ns);
        Ok(())
    }

    /// No directory may come to lie below itself, whichever of the two moves.
    fn check_ancestors(
        &self,
        from_parent: Ino,
        source: Attr,
        to_parent: Ino,
        target: Option<Attr>,
        mode: RenameMode,
    ) -> Result<()> {
        if self.is_within(to_parent, source.ino) {
            return Err(Error::Invalid);
        }
        let swallows = |target: Attr| self.is_within(from_parent, target.ino);
        if mode == RenameMode::Exchange && target.is_some_and(swallows) {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// But for the top of a tree, all is moved among directories that count as it does.
    fn stay_in_tree(&self, moved: Attr, from: Ino, to: Ino) -> Result<()> {
        let [from, to] = [self.getattr(from)?.project, self.getattr(to)?.project];
        let is_directory = moved.kind == Kind::Directory;
        let is_top = is_directory && u64::from(moved.project) == moved.ino.0;
        let stays = from == moved.project && to == moved.project;
        if stays || is_top { Ok(()) } else { Err(Error::OtherTree) }
    }

    fn check_replaceable(&self, source: Attr, target: Attr) -> Result<()> {
        match (source.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) if !self.entries(target.ino)?.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Whether a directory is another one or lies somewhere below it.
    fn is_within(&self, directory: Ino, above: Ino) -> bool {
        let mut at = directory;
        // A tree of n inodes is at most n deep.
        for _ in 0..self.inode_count() {
            if at == above {
                return true;
            }
            match self.parent(at) {
                Ok(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
        false
    }

    fn move_name(&mut self, from: (Ino, &[u8]), source: Attr, to: (Ino, &[u8]), now_ns: i64) {
        self.unname(from, source);
        self.insert_entry(to.0, to.1, source.ino);
        self.touch(source.ino, now_ns);
    }

    fn exchange(
        &mut self,
        from: (Ino, &[u8]),
        source: Attr,
        to: (Ino, &[u8]),
        target: Attr,
        now_ns: i64,
    ) {
        self.unname(from, source);
        self.unname(to, target);
        self.insert_entry(to.0, to.1, source.ino);
        self.insert_entry(from.0, from.1, target.ino);
        self.touch(source.ino, now_ns);
        self.touch(target.ino, now_ns);
    }

    /// Removes an entry, and with a directory the ".." that named its parent.
    fn unname(&mut self, place: (Ino, &[u8]), child: Attr) {
        self.remove_entry(place.0, place.1);
        if child.kind == Kind::Directory {
            self.add_links(place.0, -1);
        }
    }
}
