//! Reading, writing and positioning on descriptors, and whole files by path.

use std::ffi::OsStr;

use novale_core::{Attr, Error as FsError, Fallocate, Place, Seek, SetAttr};

use crate::description::{Description, Fd};
use crate::{Error, Files, OpenOptions, Result};

/// What a seek counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The start of the file.
    Start(u64),
    /// The present position.
    Current(i64),
    /// The end of the file.
    End(i64),
    /// The next stored byte at or behind an offset.
    Data(u64),
    /// The next hole at or behind an offset.
    Hole(u64),
}

impl Files {
    /// Closes a descriptor; the description lives on in its duplicates.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, fd: Fd) -> Result<()> {
        self.table.remove(fd).map(drop)
    }

    /// A second descriptor of the same description: both share its position.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: Fd) -> Result<Fd> {
        self.table.insert(self.table.get(fd)?)
    }

    /// Reads at the position and moves it; 0 at the end of the file.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::read`].
    pub fn read(&self, fd: Fd, buf: &mut [u8]) -> Result<usize> {
        let file = self.table.get(fd)?;
        let mut offset = file.offset();
        let bytes = self.read_described(fd, &file, *offset, buf)?;
        *offset += bytes as u64;
        Ok(bytes)
    }

    /// Reads at an offset and leaves the position alone.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::read`].
    pub fn read_at(&self, fd: Fd, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.table.get(fd)?;
        self.read_described(fd, &file, offset, buf)
    }

    fn read_described(
        &self,
        fd: Fd,
        file: &Description,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        if !file.read {
            return Err(Error::WrongAccess(fd, "reading"));
        }
        Ok(self.fs().read(&self.ctx(), file.ino, offset, buf)?)
    }

    /// Writes at the position, or at the end when opened to append, and moves the position.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::write`].
    pub fn write(&self, fd: Fd, bytes: &[u8]) -> Result<usize> {
        let file = writable(fd, self.table.get(fd)?)?;
        self.before_write(&file, bytes)?;
        let mut offset = file.offset();
        if file.append {
            *offset = self.fs().append(&self.ctx(), file.ino, bytes)? + bytes.len() as u64;
            return Ok(bytes.len());
        }
        let written = self.fs().write(&self.ctx(), file.ino, *offset, bytes)?;
        *offset += written as u64;
        Ok(written)
    }

    fn before_write(&self, file: &Description, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() { Ok(()) } else { self.drop_set_id(file.ino) }
    }

    /// Writes at an offset and leaves the position alone.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::write`].
    pub fn write_at(&self, fd: Fd, offset: u64, bytes: &[u8]) -> Result<usize> {
        let file = writable(fd, self.table.get(fd)?)?;
        self.before_write(&file, bytes)?;
        Ok(self.fs().write(&self.ctx(), file.ino, offset, bytes)?)
    }

    /// Moves the position, beyond the end too, and returns it.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` (before the start), `ENXIO` (no data or hole there).
    pub fn seek(&self, fd: Fd, whence: Whence) -> Result<u64> {
        let file = self.table.get(fd)?;
        let mut offset = file.offset();
        let new = match whence {
            Whence::Start(to) => Some(to),
            Whence::Current(by) => offset.checked_add_signed(by),
            Whence::End(by) => self.fs().getattr(file.ino)?.size.checked_add_signed(by),
            Whence::Data(from) => Some(self.fs().seek(file.ino, from, Seek::Data)?),
            Whence::Hole(from) => Some(self.fs().seek(file.ino, from, Seek::Hole)?),
        };
        let new = new.filter(|to| i64::try_from(*to).is_ok());
        *offset = new.ok_or(FsError::Invalid("a position before the start or above 2^63 - 1"))?;
        Ok(*offset)
    }

    /// Attributes of an open file.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::getattr`].
    pub fn fstat(&self, fd: Fd) -> Result<Attr> {
        Ok(self.fs().getattr(self.table.get(fd)?.ino)?)
    }

    /// Cuts or extends an open file to a length in bytes.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::setattr`].
    pub fn truncate(&self, fd: Fd, size: u64) -> Result<()> {
        let file = writable(fd, self.table.get(fd)?)?;
        let clear_set_id = self.clears(&self.fs().getattr(file.ino)?);
        let changes = SetAttr { size: Some(size), clear_set_id, ..SetAttr::default() };
        self.fs().setattr(&self.ctx(), file.ino, &changes)?;
        Ok(())
    }

    /// Reserves space for a range of bytes, or punches, zeroes, takes out or inserts it; what the flags
    /// of the system call ask for, [`crate::fallocate_mode`] says.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::fallocate`].
    pub fn fallocate(&self, fd: Fd, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let file = writable(fd, self.table.get(fd)?)?;
        self.drop_set_id(file.ino)?;
        Ok(self.fs().fallocate(&self.ctx(), file.ino, mode, offset, len)?)
    }

    /// Copies up to `len` bytes from one offset to another and leaves the positions alone; returns how
    /// many, fewer at the end of the source and above [`novale_core::COPY_BYTES_MAX`]. What one call
    /// copies is there all together after a crash, or none of it.
    ///
    /// # Errors
    /// `EBADF`, also for a target opened to append, and those of [`novale_core::Fs::copy_range`].
    pub fn copy_range(
        &self,
        (from, from_offset): (Fd, u64),
        (to, to_offset): (Fd, u64),
        len: u64,
    ) -> Result<u64> {
        let source = self.table.get(from)?;
        let target = writable(to, self.table.get(to)?)?;
        if !source.read {
            return Err(Error::WrongAccess(from, "reading"));
        }
        if target.append {
            return Err(Error::WrongAccess(to, "writing at an offset"));
        }
        let from = Place { ino: source.ino, offset: from_offset };
        let to = Place { ino: target.ino, offset: to_offset };
        self.drop_set_id(target.ino)?;
        Ok(self.fs().copy_range(&self.ctx(), from, to, len)?)
    }

    /// Makes an open file durable, as far as it is not yet.
    ///
    /// # Errors
    /// `EBADF`, and those of [`novale_core::Fs::sync`].
    pub fn sync(&self, fd: Fd) -> Result<()> {
        Ok(self.fs().sync(&self.ctx(), self.table.get(fd)?.ino)?)
    }

    /// Everything that a file holds.
    ///
    /// # Errors
    /// Those of [`Files::open`] and [`Files::read`].
    pub fn read_file(&self, path: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let fd = self.open(path, &OpenOptions::new().read(true))?;
        let all = self.read_to_end(fd);
        self.close(fd)?;
        all
    }

    /// What an open file holds from its position on; a file that grows meanwhile is read up to the
    /// length seen first.
    fn read_to_end(&self, fd: Fd) -> Result<Vec<u8>> {
        let size = usize::try_from(self.fstat(fd)?.size).map_err(|_| FsError::TooLarge)?;
        let mut all = vec![0; size];
        let mut filled = 0;
        while let Some(rest) = all.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let bytes = self.read(fd, rest)?;
            if bytes == 0 {
                break;
            }
            filled += bytes;
        }
        all.truncate(filled);
        Ok(all)
    }

    /// Makes or empties a file and fills it, mode 0666 where it is new. Two operations: a crash
    /// between them leaves an empty file.
    ///
    /// # Errors
    /// Those of [`Files::open`] and [`Files::write`].
    pub fn write_file(&self, path: impl AsRef<OsStr>, bytes: &[u8]) -> Result<()> {
        let fd = self.open(path, &OpenOptions::new().write(true).create(true).truncate(true))?;
        let written = self.write_all(fd, bytes);
        self.close(fd)?;
        written
    }

    /// Writes all of it at the position, in as many writes as it takes.
    ///
    /// # Errors
    /// Those of [`Files::write`].
    pub fn write_all(&self, fd: Fd, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = self.write(fd, bytes)?;
            if written == 0 {
                return Err(FsError::NoSpace.into());
            }
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

fn writable(fd: Fd, file: std::sync::Arc<Description>) -> Result<std::sync::Arc<Description>> {
    if file.write { Ok(file) } else { Err(Error::WrongAccess(fd, "writing")) }
}
