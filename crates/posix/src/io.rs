//! Reading, writing and positioning on descriptors, and whole files by path.

use std::ffi::OsStr;

use novale_core::{Attr, Fallocate};

use crate::{Fd, File, Files, OpenOptions, Result, Whence};

impl Files {
    /// The open file of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file(&self, fd: Fd) -> Result<File> {
        self.table.get(fd)
    }

    /// Closes a descriptor; the open file lives on in its duplicates.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, fd: Fd) -> Result<()> {
        self.table.remove(fd).map(drop)
    }

    /// A second descriptor of the same open file: both share its position.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: Fd) -> Result<Fd> {
        self.table.insert(self.table.get(fd)?)
    }

    /// As [`File::read`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::read`].
    pub fn read(&self, fd: Fd, buf: &mut [u8]) -> Result<usize> {
        self.table.get(fd)?.read(buf)
    }

    /// As [`File::read_at`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::read_at`].
    pub fn read_at(&self, fd: Fd, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.table.get(fd)?.read_at(offset, buf)
    }

    /// As [`File::write`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::write`].
    pub fn write(&self, fd: Fd, bytes: &[u8]) -> Result<usize> {
        self.table.get(fd)?.write(bytes)
    }

    /// As [`File::write_at`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::write_at`].
    pub fn write_at(&self, fd: Fd, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.table.get(fd)?.write_at(offset, bytes)
    }

    /// As [`File::write_all`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::write_all`].
    pub fn write_all(&self, fd: Fd, bytes: &[u8]) -> Result<()> {
        self.table.get(fd)?.write_all(bytes)
    }

    /// As [`File::seek`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::seek`].
    pub fn seek(&self, fd: Fd, whence: Whence) -> Result<u64> {
        self.table.get(fd)?.seek(whence)
    }

    /// Attributes of an open file.
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::attr`].
    pub fn fstat(&self, fd: Fd) -> Result<Attr> {
        self.table.get(fd)?.attr()
    }

    /// As [`File::set_len`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::set_len`].
    pub fn truncate(&self, fd: Fd, size: u64) -> Result<()> {
        self.table.get(fd)?.set_len(size)
    }

    /// As [`File::fallocate`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::fallocate`].
    pub fn fallocate(&self, fd: Fd, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.table.get(fd)?.fallocate(mode, offset, len)
    }

    /// As [`File::copy_range`], from one offset to another.
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::copy_range`].
    pub fn copy_range(
        &self,
        (from, from_offset): (Fd, u64),
        (to, to_offset): (Fd, u64),
        len: u64,
    ) -> Result<u64> {
        let (source, target) = (self.table.get(from)?, self.table.get(to)?);
        source.copy_range(Some(from_offset), (&target, Some(to_offset)), len)
    }

    /// As [`File::sync`].
    ///
    /// # Errors
    /// `EBADF`, and those of [`File::sync`].
    pub fn sync(&self, fd: Fd) -> Result<()> {
        self.table.get(fd)?.sync()
    }

    /// Everything that a file holds.
    ///
    /// # Errors
    /// Those of [`Files::open_file`] and [`File::read`].
    pub fn read_file(&self, path: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.open_file(path, &OpenOptions::new().read(true))?.read_to_end()
    }

    /// Makes or empties a file and fills it, mode 0666 where it is new. Two operations: a crash
    /// between them leaves an empty file.
    ///
    /// # Errors
    /// Those of [`Files::open_file`] and [`File::write`].
    pub fn write_file(&self, path: impl AsRef<OsStr>, bytes: &[u8]) -> Result<()> {
        let how = OpenOptions::new().write(true).create(true).truncate(true);
        self.open_file(path, &how)?.write_all(bytes)
    }
}
