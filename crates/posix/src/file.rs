//! Open files: what can be done with one, without a look at any table.
//!
//! Invariant: a file holds its inode from open to the drop of its last clone, so that one without a
//! name stays readable while it is open.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use novale_core::{Attr, Error as FsError, Fallocate, HoldId, Ino, Node, Place, SetAttr};

use crate::position::{self, Target, Whence, Written};
use crate::room::with_room;
use crate::shared::Shared;
use crate::vectored;
use crate::{Entry, Error, OpenOptions, Result};

/// An open file or directory, usable from many threads. Clones share its position, as duplicates of a
/// descriptor do.
#[derive(Clone)]
pub struct File {
    inner: Arc<Inner>,
}

#[expect(clippy::struct_excessive_bools, reason = "each is one O_ flag, independent of the others")]
struct Inner {
    ino: Ino,
    hold: HoldId,
    read: bool,
    write: bool,
    append: bool,
    sync: bool,
    offset: Mutex<u64>,
    shared: Arc<Shared>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A child of fork has its parent's values, and no hold of its own.
        if self.shared.process != process::id() {
            return;
        }
        // Nobody is left to be told; what can fail here, damage and a closed pool, fails everywhere.
        self.shared.fs.open_release(&self.shared.ctx(), self.hold).unwrap_or_default();
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("ino", &self.inner.ino).finish_non_exhaustive()
    }
}

impl File {
    /// Takes over a hold of the inode.
    pub(crate) fn new(shared: Arc<Shared>, hold: HoldId, options: &OpenOptions) -> Self {
        let inner = Inner {
            ino: hold.ino(),
            hold,
            read: options.read,
            write: options.write,
            append: options.append,
            sync: options.sync,
            offset: Mutex::new(0),
            shared,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// The inode.
    pub(crate) fn ino(&self) -> Ino {
        self.inner.ino
    }

    /// The position in bytes, locked as long as a sequential call runs.
    fn offset(&self) -> MutexGuard<'_, u64> {
        self.inner.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file is shared with, where it is open for reading and writing.
    pub(crate) fn mappable(&self) -> Result<&Shared> {
        self.readable()?;
        self.writable().map(|file| &*file.shared)
    }

    /// What a write at an offset asks first.
    pub(crate) fn before_write_at(&self, bytes: &[u8]) -> Result<&Shared> {
        let file = self.writable()?;
        self.before_write(bytes)?;
        Ok(&file.shared)
    }

    fn readable(&self) -> Result<&Inner> {
        if self.inner.read { Ok(&self.inner) } else { Err(Error::WrongAccess("reading")) }
    }

    fn writable(&self) -> Result<&Inner> {
        if self.inner.write { Ok(&self.inner) } else { Err(Error::WrongAccess("writing")) }
    }

    /// Reads at the position and moves it; 0 at the end of the file.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::read`].
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        self.readable()?;
        let mut offset = self.offset();
        let bytes = self.read_at(*offset, buf)?;
        *offset += bytes as u64;
        Ok(bytes)
    }

    /// Reads at an offset and leaves the position alone.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::read`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.readable()?;
        Ok(file.shared.fs.read(&file.shared.ctx(), file.ino, offset, buf)?)
    }

    /// Reads into several buffers one after the other, as one read.
    ///
    /// # Errors
    /// Those of [`File::read`]; `ENOMEM` where there is no memory for a buffer as long as all.
    pub fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        vectored::read(bufs, |buf| self.read(buf))
    }

    /// As [`File::read_vectored`], at an offset.
    ///
    /// # Errors
    /// Those of [`File::read_vectored`].
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        vectored::read(bufs, |buf| self.read_at(offset, buf))
    }

    /// Writes at the position, or at the end when opened to append, and moves the position.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::write`].
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        let file = self.writable()?;
        self.before_write(bytes)?;
        let mut offset = self.offset();
        let to = if file.append { Target::End } else { Target::Offset(*offset) };
        let written = Self::write_to(file, to, bytes)?;
        *offset = written.end;
        Ok(written.bytes)
    }

    fn write_to(file: &Inner, to: Target, bytes: &[u8]) -> Result<Written> {
        let fs = &file.shared.fs;
        let write = if file.sync { position::write_durable } else { position::write };
        Ok(with_room(fs, || write(fs, &file.shared.ctx(), file.ino, to, bytes))?)
    }

    fn before_write(&self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        Ok(self.inner.shared.drop_set_id(self.inner.ino)?)
    }

    /// Writes at an offset, also when opened to append, and leaves the position alone.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::write`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let file = self.writable()?;
        self.before_write(bytes)?;
        Ok(Self::write_to(file, Target::Offset(offset), bytes)?.bytes)
    }

    /// Writes several buffers one after the other, as one write: all of them or nothing.
    ///
    /// # Errors
    /// Those of [`File::write`]; `ENOMEM` where there is no memory for a buffer as long as all.
    pub fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> Result<usize> {
        vectored::write(bufs, |bytes| self.write(bytes))
    }

    /// As [`File::write_vectored`], at an offset.
    ///
    /// # Errors
    /// Those of [`File::write_vectored`].
    pub fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        vectored::write(bufs, |bytes| self.write_at(offset, bytes))
    }

    /// Writes all of it at the position, in as many writes as it takes.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub fn write_all(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = self.write(bytes)?;
            if written == 0 {
                return Err(FsError::NoSpace.into());
            }
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// What the file holds from its position on; one that grows meanwhile is read up to the length
    /// seen first.
    pub(crate) fn read_to_end(&self) -> Result<Vec<u8>> {
        let size = usize::try_from(self.attr()?.size).map_err(|_| FsError::TooLarge)?;
        let mut all = vectored::zeros(size)?;
        let mut filled = 0;
        while let Some(rest) = all.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let bytes = self.read(rest)?;
            if bytes == 0 {
                break;
            }
            filled += bytes;
        }
        all.truncate(filled);
        Ok(all)
    }

    /// Moves the position, beyond the end too, and returns it.
    ///
    /// # Errors
    /// `EINVAL` (before the start), `ENXIO` (no data or hole there).
    pub fn seek(&self, whence: Whence) -> Result<u64> {
        let (fs, ino) = (&self.inner.shared.fs, self.inner.ino);
        let mut offset = self.offset();
        *offset = position::sought(fs, ino, *offset, whence)?;
        Ok(*offset)
    }

    /// Its attributes.
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::getattr`].
    pub fn attr(&self) -> Result<Attr> {
        Ok(self.inner.shared.fs.getattr(self.inner.ino)?)
    }

    /// Changes attributes, as [`crate::Files::set_attr`]. A new size wants the file open for writing.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::setattr`].
    pub fn set_attr(&self, changes: &SetAttr) -> Result<Attr> {
        if changes.size.is_some() {
            self.writable()?;
        }
        Ok(self.inner.shared.set_attr(&self.attr()?, changes)?)
    }

    /// Cuts or extends it to a length in bytes.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::setattr`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.set_attr(&SetAttr { size: Some(size), ..SetAttr::default() }).map(drop)
    }

    /// Reserves space for a range of bytes, or punches, zeroes, takes out or inserts it; what the flags
    /// of the system call ask for, [`crate::fallocate_mode`] says.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::fallocate`].
    pub fn fallocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let file = self.writable()?;
        file.shared.drop_set_id(file.ino)?;
        let fs = &file.shared.fs;
        Ok(with_room(fs, || fs.fallocate(&file.shared.ctx(), file.ino, mode, offset, len))?)
    }

    /// Copies up to `len` bytes and returns how many: fewer at the end of the source and above
    /// [`novale_core::COPY_BYTES_MAX`]. What one call copies is there all together after a crash, or
    /// none of it. Each file is copied from or to at the offset given, its position left alone, or at
    /// its position, which is moved.
    ///
    /// # Errors
    /// `EBADF`, also for a target opened to append, `EXDEV` between two pools, and those of
    /// [`novale_core::Fs::copy_range`].
    pub fn copy_range(
        &self,
        from_offset: Option<u64>,
        (target, to_offset): (&Self, Option<u64>),
        len: u64,
    ) -> Result<u64> {
        let (from, to) = (self.readable()?, target.writable()?);
        if to.append {
            return Err(Error::WrongAccess("writing at an offset"));
        }
        if !Arc::ptr_eq(&from.shared.fs, &to.shared.fs) {
            return Err(Error::OtherPool);
        }
        let same = Arc::ptr_eq(&self.inner, &target.inner);
        if same && from_offset.is_none() && to_offset.is_none() {
            return Err(FsError::Invalid("a copy of a file's bytes onto themselves").into());
        }
        // The one who locks both positions does it in the order of their addresses.
        let (mut from_position, mut to_position);
        if Arc::as_ptr(&self.inner) < Arc::as_ptr(&target.inner) {
            from_position = from_offset.is_none().then(|| self.offset());
            to_position = to_offset.is_none().then(|| target.offset());
        } else {
            to_position = to_offset.is_none().then(|| target.offset());
            from_position = from_offset.is_none().then(|| self.offset());
        }
        let place = |ino, given: Option<u64>, position: &Option<MutexGuard<'_, u64>>| Place {
            ino,
            offset: given.or(position.as_deref().copied()).unwrap_or_default(),
        };
        let source = place(from.ino, from_offset, &from_position);
        let sink = place(to.ino, to_offset, &to_position);
        to.shared.drop_set_id(to.ino)?;
        let fs = &from.shared.fs;
        let copied = with_room(fs, || fs.copy_range(&from.shared.ctx(), source, sink, len))?;
        for position in [&mut from_position, &mut to_position].into_iter().flatten() {
            **position += copied;
        }
        Ok(copied)
    }

    /// Makes it durable, as far as it is not yet.
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::sync`].
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner.shared.fs.sync(&self.inner.shared.ctx(), self.inner.ino)?)
    }

    /// Lists an open directory after the entry with `after` as its cookie, from the start with 0,
    /// until `each` returns `false`. `.` and `..` are not among the entries, and none that is made
    /// meanwhile; in several calls, a listing ends whatever others make when it stops after
    /// [`File::last_cookie`].
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::readdir`].
    pub fn read_dir(&self, after: u64, mut each: impl FnMut(Entry, u64) -> bool) -> Result<()> {
        let (shared, ino) = (&self.inner.shared, self.inner.ino);
        let node = Node::current(ino);
        shared.fs.readdir(&shared.ctx(), node, after, &mut |entry| {
            each(Entry::from(entry), entry.cookie)
        })?;
        Ok(())
    }
}

impl File {
    /// The cookie that no entry of an open directory is above at this moment.
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::last_cookie`].
    pub fn last_cookie(&self) -> Result<u64> {
        let (shared, ino) = (&self.inner.shared, self.inner.ino);
        Ok(shared.fs.last_cookie(&shared.ctx(), Node::current(ino))?)
    }
}

impl io::Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(File::read(self, buf)?)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(File::read_vectored(self, bufs)?)
    }
}

impl io::Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(File::write(self, bytes)?)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(File::write_vectored(self, bufs)?)
    }

    /// Nothing is left to do: all clients see what `write` returned for. It is durable, too, but in mode
    /// buffered, where [`File::sync`] makes it so.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let whence = match to {
            io::SeekFrom::Start(offset) => Whence::Start(offset),
            io::SeekFrom::End(by) => Whence::End(by),
            io::SeekFrom::Current(by) => Whence::Current(by),
        };
        Ok(File::seek(self, whence)?)
    }
}
