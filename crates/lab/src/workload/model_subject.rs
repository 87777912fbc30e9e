//! The model as a subject: it runs steps itself.

use std::collections::BTreeMap;

use novale_model::{Attr, Ino, Model, NewInode, RangeOp, RenameMode, SetAttr, XattrMode};

use super::subject::{Entry, Failure, Subject};

impl Subject for Model {
    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr, Failure> {
        Ok(Self::lookup(self, parent, name)?)
    }

    fn getattr(&mut self, ino: Ino) -> Result<Attr, Failure> {
        Ok(Self::getattr(self, ino)?)
    }

    fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Attr, Failure> {
        Ok(Self::setattr(self, ino, set, now_ns)?)
    }

    fn readlink(&mut self, ino: Ino) -> Result<Vec<u8>, Failure> {
        Ok(Self::readlink(self, ino)?)
    }

    fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        Ok(Self::create(self, parent, name, new, now_ns)?)
    }

    fn create_unnamed(
        &mut self,
        parent: Ino,
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        Ok(Self::create_unnamed(self, parent, new, now_ns)?)
    }

    fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now_ns: i64) -> Result<Attr, Failure> {
        Ok(Self::link(self, ino, parent, name, now_ns)?)
    }

    fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        Ok(Self::unlink(self, parent, name, now_ns)?)
    }

    fn rmdir(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        Ok(Self::rmdir(self, parent, name, now_ns)?)
    }

    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Ok(Self::rename(self, from, to, mode, now_ns)?)
    }

    fn read(&mut self, ino: Ino, offset: u64, len: usize, now_ns: i64) -> Result<Vec<u8>, Failure> {
        Ok(Self::read(self, ino, offset, len, now_ns)?)
    }

    fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        now_ns: i64,
    ) -> Result<usize, Failure> {
        Ok(Self::write(self, ino, offset, bytes, now_ns)?)
    }

    fn append(&mut self, ino: Ino, bytes: &[u8], now_ns: i64) -> Result<u64, Failure> {
        Ok(Self::append(self, ino, bytes, now_ns)?)
    }

    fn fallocate(
        &mut self,
        ino: Ino,
        extend: bool,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Ok(Self::fallocate(self, ino, extend, offset, len, now_ns)?)
    }

    fn range(
        &mut self,
        ino: Ino,
        how: RangeOp,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Ok(Self::range(self, ino, how, offset, len, now_ns)?)
    }

    fn copy(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: usize,
        now_ns: i64,
    ) -> Result<u64, Failure> {
        Ok(Self::copy(self, from, to, len, now_ns)?)
    }

    /// The model does not tell data from holes; it only refuses what has neither.
    fn seek(&mut self, ino: Ino, _: u64, _: bool) -> Result<Option<u64>, Failure> {
        self.is_zero(ino, 0, 0)?;
        Ok(None)
    }

    fn readdir(&mut self, ino: Ino, _: usize, _: i64) -> Result<Vec<Entry>, Failure> {
        let entries = Self::readdir(self, ino)?.into_iter();
        let entry = |(name, ino)| {
            let kind = Self::getattr(self, ino)?.kind;
            Ok(Entry { name, ino, kind })
        };
        entries.map(entry).collect()
    }

    fn getxattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Failure> {
        Ok(Self::getxattr(self, ino, name)?)
    }

    fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Ok(Self::setxattr(self, ino, name, value, mode, now_ns)?)
    }

    fn listxattr(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(Self::listxattr(self, ino)?)
    }

    fn removexattr(&mut self, ino: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        Ok(Self::removexattr(self, ino, name, now_ns)?)
    }

    fn parent(&mut self, ino: Ino) -> Result<Ino, Failure> {
        Ok(Self::parent(self, ino)?)
    }

    fn limit(&mut self, ino: Ino, inodes: u64, now_ns: i64) -> Result<(), Failure> {
        Ok(Self::limit(self, ino, inodes, now_ns)?)
    }

    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure> {
        Ok(Self::limits(self).clone())
    }

    fn hold(&mut self, ino: Ino) -> Result<(), Failure> {
        Ok(Self::hold(self, ino)?)
    }

    fn release(&mut self, ino: Ino, _: i64) -> Result<(), Failure> {
        Self::release(self, ino, 1);
        Ok(())
    }

    fn sync(&mut self, ino: Ino, _: i64) -> Result<(), Failure> {
        Self::getattr(self, ino)?;
        Ok(())
    }

    fn map(&mut self, ino: Ino, _: i64) -> Result<(), Failure> {
        Ok(Self::map(self, ino)?)
    }

    fn unmap(&mut self, ino: Ino, _: i64) -> Result<(), Failure> {
        Self::unmap(self, ino);
        Ok(())
    }

    fn store(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64) -> Result<(), Failure> {
        Ok(Self::store(self, ino, offset, bytes, now_ns)?)
    }

    fn flush(&mut self, ino: Ino, page: u64, pages: u64, now_ns: i64) -> Result<(), Failure> {
        Ok(Self::flush(self, ino, page, pages, now_ns)?)
    }

    fn write_scattered(
        &mut self,
        ino: Ino,
        pieces: &[(u64, Vec<u8>)],
        now_ns: i64,
    ) -> Result<(), Failure> {
        Ok(Self::write_scattered(self, ino, pieces, now_ns)?)
    }
}
