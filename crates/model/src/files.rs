//! Operations on one inode: attributes, bytes, symlink targets.

use crate::contents::{Contents, PAGE_BYTES};
use crate::state::{Body, Model};
use crate::types::{Atime, Attr, Error, Ino, Kind, MAX_FILE_BYTES, RangeOp, Result, SetAttr};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const PAGE: u64 = PAGE_BYTES as u64;
const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

impl Model {
    /// Changes attributes. Every call sets ctime, and one with a size mtime too, unless it gives
    /// one. Directories keep their set-id bits, as these say something else of them.
    ///
    /// # Errors
    /// A size: [`Error::IsDirectory`], [`Error::Invalid`] for other kinds but files,
    /// [`Error::TooLarge`].
    pub fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Attr> {
        if let Some(size) = set.size {
            self.file(ino)?;
            check_end(size, 0)?;
        }
        if let Some(size) = set.size {
            self.resize(ino, size, now_ns);
        }
        let changes = set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        if self.getattr(ino)?.kind != Kind::Directory && (changes || set.clear_set_id) {
            self.drop_capability(ino);
        }
        if let Some(mode) = set.mode {
            self.follow_mode(ino, mode);
        }
        if set.size.is_some() || set.mtime_ns.is_some() || set.project.is_some() {
            self.sync(ino);
        }
        self.change_earlier(ino, now_ns);
        let inode = self.inode_mut(ino)?;
        if let (Some(_), Body::File(contents)) = (set.atime_ns, &mut inode.body) {
            contents.accesses.clear();
        }
        let attr = &mut inode.attr;
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.project = set.project.unwrap_or(attr.project);
        attr.atime_ns = set.atime_ns.unwrap_or(attr.atime_ns);
        attr.mtime_ns = set.mtime_ns.unwrap_or(attr.mtime_ns);
        attr.ctime_ns = now_ns;
        if set.clear_set_id && attr.kind != Kind::Directory {
            let group_executes = attr.mode & GROUP_EXECUTE != 0;
            attr.mode &= !(SET_UID | if group_executes { SET_GID } else { 0 });
        }
        Ok(*attr)
    }

    /// At most `len` bytes from `offset`, none beyond the end; sets atime by the mode chosen.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`] for other kinds but files.
    pub fn read(&mut self, ino: Ino, offset: u64, len: usize, now_ns: i64) -> Result<Vec<u8>> {
        let bytes = self.file(ino)?.read(offset, len);
        if len > 0 {
            self.touch_access(ino, now_ns);
        }
        Ok(bytes)
    }

    /// Puts `bytes` at `offset`; a gap beyond the end reads as zeros. No bytes: no change.
    ///
    /// # Errors
    /// Those of `read`; [`Error::TooLarge`].
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64) -> Result<usize> {
        self.file(ino)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        check_end(offset, bytes.len() as u64)?;
        let is_inside = offset + bytes.len() as u64 <= self.file(ino)?.size();
        if self.overwrites_in_place
            && is_inside
            && let Some(inode) = self.inodes.get_mut(&ino)
        {
            inode.in_place_writes += 1;
        }
        self.keep_earlier(ino);
        self.change(ino, now_ns, |contents| contents.write(offset, bytes));
        Ok(bytes.len())
    }

    /// Puts `bytes` at the end and returns the offset where that was.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append(&mut self, ino: Ino, bytes: &[u8], now_ns: i64) -> Result<u64> {
        let end = self.file(ino)?.size();
        self.write(ino, end, bytes, now_ns)?;
        Ok(end)
    }

    /// Reserves space, which no one sees; with `extend` the size rises to cover the range.
    /// Sets ctime in any case, and mtime with the size.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range of no bytes; those of `write`.
    pub fn fallocate(
        &mut self,
        ino: Ino,
        extend: bool,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<()> {
        let size = self.file(ino)?.size();
        if len == 0 {
            return Err(Error::Invalid);
        }
        check_end(offset, len)?;
        if extend && offset + len > size {
            self.resize(ino, offset + len, now_ns);
        }
        self.drop_capability(ino);
        self.sync(ino);
        self.touch(ino, now_ns);
        Ok(())
    }

    /// Changes a range of a file. Sets mtime and ctime, whether a byte changes or not.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range of no bytes; to collapse or insert also for one that is not of
    /// whole pages, that reaches the end, or that starts after it. Those of `write`.
    pub fn range(
        &mut self,
        ino: Ino,
        how: RangeOp,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<()> {
        let size = self.file(ino)?.size();
        if len == 0 {
            return Err(Error::Invalid);
        }
        check_end(offset, len)?;
        let end = offset + len;
        let is_whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        match how {
            RangeOp::Punch | RangeOp::ZeroKeepSize | RangeOp::Zero => {}
            RangeOp::Collapse if is_whole && end < size => {}
            RangeOp::Insert if is_whole => {
                check_end(size, len)?;
                if offset >= size {
                    return Err(Error::Invalid);
                }
            }
            RangeOp::Collapse | RangeOp::Insert => return Err(Error::Invalid),
        }
        if matches!(how, RangeOp::Collapse | RangeOp::Insert) && self.is_mapped(ino) {
            return Err(Error::Busy);
        }
        self.change(ino, now_ns, |contents| match how {
            RangeOp::Punch | RangeOp::ZeroKeepSize => contents.zero(offset, end),
            RangeOp::Zero => {
                contents.zero(offset, end);
                contents.truncate(size.max(end));
            }
            RangeOp::Collapse => contents.collapse(offset, len),
            RangeOp::Insert => contents.insert(offset, len),
        });
        self.sync(ino);
        Ok(())
    }

    /// Copies up to `len` bytes, fewer at the end of the source; returns how many.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the ranges overlap in one file; those of `read` and `write`.
    pub fn copy(
        &mut self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: usize,
        now_ns: i64,
    ) -> Result<u64> {
        let bytes = self.file(from)?.read(from_offset, len);
        self.file(to)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = bytes.len() as u64;
        let is_apart = from_offset.saturating_add(count) <= to_offset
            || to_offset.saturating_add(count) <= from_offset;
        if from == to && !is_apart {
            return Err(Error::Invalid);
        }
        self.write(to, to_offset, &bytes, now_ns)?;
        self.sync(to);
        self.touch_access(from, now_ns);
        Ok(count)
    }

    /// Whether a file reads as zeros from one offset to another.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn is_zero(&self, ino: Ino, from: u64, to: u64) -> Result<bool> {
        Ok(self.file(ino)?.is_zero(from, to))
    }

    /// The bytes of a file, all of them, without touching its times.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn contents(&self, ino: Ino) -> Result<Contents> {
        self.file(ino).cloned()
    }

    /// A symlink's target.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other kinds.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.inode(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            Body::File(_) | Body::Directory { .. } | Body::Other => Err(Error::Invalid),
        }
    }

    pub(crate) fn file(&self, ino: Ino) -> Result<&Contents> {
        let inode = self.inode(ino)?;
        match &inode.body {
            Body::File(contents) => Ok(contents),
            Body::Directory { .. } => Err(Error::IsDirectory),
            Body::Symlink(_) | Body::Other => Err(Error::Invalid),
        }
    }

    pub(crate) fn change(&mut self, ino: Ino, now_ns: i64, change: impl FnOnce(&mut Contents)) {
        let Some(inode) = self.inodes.get_mut(&ino) else {
            return;
        };
        if let Body::File(contents) = &mut inode.body {
            change(contents);
            inode.attr.size = contents.size();
        }
        self.drop_capability(ino);
        self.touch_contents(ino, now_ns);
    }

    fn resize(&mut self, ino: Ino, size: u64, now_ns: i64) {
        self.change(ino, now_ns, |contents| contents.truncate(size));
    }

    fn touch_access(&mut self, ino: Ino, now_ns: i64) {
        let mode = self.atime;
        let Some(inode) = self.inodes.get_mut(&ino) else {
            return;
        };
        let attr = &mut inode.attr;
        let stale = attr.atime_ns <= attr.mtime_ns
            || attr.atime_ns <= attr.ctime_ns
            || now_ns.saturating_sub(attr.atime_ns) >= DAY_NS;
        let due = match mode {
            Atime::Noatime => false,
            Atime::Relatime => stale,
            Atime::Strict => true,
        };
        if due && let Body::File(contents) = &mut inode.body {
            contents.accesses.insert(attr.atime_ns);
            attr.atime_ns = now_ns;
        }
    }
}

pub(crate) fn check_end(offset: u64, len: u64) -> Result<()> {
    let end = offset.checked_add(len).ok_or(Error::TooLarge)?;
    if end > MAX_FILE_BYTES { Err(Error::TooLarge) } else { Ok(()) }
}
