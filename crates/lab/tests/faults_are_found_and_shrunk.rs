//! The promise: the differential test finds a fault and shows it in a few steps. Each fault here is
//! put into a copy of the model on purpose; a test of file systems that passes them proves nothing.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::BTreeMap;

use novale_lab::diff::{Budget, Length, Machine, NoSpace, now_ns_at, search};
use novale_lab::workload::{Entry, Failure, Subject, parse_steps, print_steps};
use novale_model::{
    Atime, Attr, Error, Ino, Model, NewInode, RangeOp, RenameMode, SetAttr, XattrMode,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A write over a page's border loses its last byte.
    TornWrite,
    /// A cut within a page leaves the old bytes to come back.
    UnclearedTail,
    /// A removed name leaves its directory's mtime.
    OldMtime,
    /// What was done last before a death is gone.
    LostAtDeath,
    /// A file held beyond its last name is gone.
    LostWhenHeld,
    /// An exchange does nothing for directories.
    SwapsFilesOnly,
    /// A look-up panics on long names.
    Panics,
}

struct Faulty {
    model: Model,
    before: Model,
    fault: Fault,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        let model = Model::new(0o755, 0, 0, now_ns_at(0), Atime::Noatime);
        Self { before: model.clone(), model, fault }
    }

    /// The model, about to be changed.
    fn change(&mut self) -> &mut Model {
        if self.fault == Fault::LostAtDeath {
            self.before = self.model.clone();
        }
        &mut self.model
    }
}

impl Subject for Faulty {
    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr, Failure> {
        assert!(self.fault != Fault::Panics || name.len() < 200, "name of {} bytes", name.len());
        Subject::lookup(&mut self.model, parent, name)
    }

    fn getattr(&mut self, ino: Ino) -> Result<Attr, Failure> {
        Subject::getattr(&mut self.model, ino)
    }

    fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Attr, Failure> {
        let size = self.model.getattr(ino)?.size;
        let old = set.size.and_then(|cut| {
            let len = 4096_u64.saturating_sub(cut % 4096).min(size.saturating_sub(cut));
            self.model.read(ino, cut, usize::try_from(len).unwrap(), 0).ok().map(|old| (cut, old))
        });
        let attr = Subject::setattr(self.change(), ino, set, now_ns)?;
        if self.fault == Fault::UnclearedTail
            && let Some((cut, old)) = old
        {
            self.model.write(ino, cut, &old, now_ns)?;
            let again = SetAttr { size: Some(cut), mtime_ns: Some(attr.mtime_ns), ..*set };
            if cut % 4096 == 0 {
                self.model.setattr(ino, &again, now_ns)?;
            }
        }
        Ok(attr)
    }

    fn readlink(&mut self, ino: Ino) -> Result<Vec<u8>, Failure> {
        Subject::readlink(&mut self.model, ino)
    }

    fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        Subject::create(self.change(), parent, name, new, now_ns)
    }

    fn create_unnamed(
        &mut self,
        parent: Ino,
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        Subject::create_unnamed(self.change(), parent, new, now_ns)
    }

    fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now_ns: i64) -> Result<Attr, Failure> {
        Subject::link(self.change(), ino, parent, name, now_ns)
    }

    fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        let old = self.model.getattr(parent).map(|attr| attr.mtime_ns).ok();
        let ino = self.model.lookup(parent, name).map(|attr| attr.ino).ok();
        Subject::unlink(self.change(), parent, name, now_ns)?;
        if self.fault == Fault::OldMtime {
            let set = SetAttr { mtime_ns: old, ..SetAttr::default() };
            self.model.setattr(parent, &set, now_ns)?;
        }
        if let (Fault::LostWhenHeld, Some(ino)) = (self.fault, ino) {
            self.model.release(ino, 1);
        }
        Ok(())
    }

    fn rmdir(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        Subject::rmdir(self.change(), parent, name, now_ns)
    }

    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        now_ns: i64,
    ) -> Result<(), Failure> {
        let is_directory = self.model.lookup(from.0, from.1).is_ok_and(|attr| attr.nlink > 1);
        if self.fault == Fault::SwapsFilesOnly && mode == RenameMode::Exchange && is_directory {
            self.model.lookup(to.0, to.1)?;
            return Ok(());
        }
        Subject::rename(self.change(), from, to, mode, now_ns)
    }

    fn read(&mut self, ino: Ino, offset: u64, len: usize, now_ns: i64) -> Result<Vec<u8>, Failure> {
        Subject::read(&mut self.model, ino, offset, len, now_ns)
    }

    fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        now_ns: i64,
    ) -> Result<usize, Failure> {
        let written = Subject::write(self.change(), ino, offset, bytes, now_ns)?;
        let last = offset.saturating_add(bytes.len() as u64).saturating_sub(1);
        if self.fault == Fault::TornWrite && written > 1 && offset / 4096 != last / 4096 {
            Subject::write(&mut self.model, ino, last, &[0], now_ns)?;
        }
        Ok(written)
    }

    fn append(&mut self, ino: Ino, bytes: &[u8], now_ns: i64) -> Result<u64, Failure> {
        Subject::append(self.change(), ino, bytes, now_ns)
    }

    fn fallocate(
        &mut self,
        ino: Ino,
        extend: bool,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Subject::fallocate(self.change(), ino, extend, offset, len, now_ns)
    }

    fn range(
        &mut self,
        ino: Ino,
        how: RangeOp,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Subject::range(self.change(), ino, how, offset, len, now_ns)
    }

    fn copy(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: usize,
        now_ns: i64,
    ) -> Result<u64, Failure> {
        Subject::copy(self.change(), from, to, len, now_ns)
    }

    fn seek(&mut self, ino: Ino, offset: u64, data: bool) -> Result<Option<u64>, Failure> {
        let size = self.model.getattr(ino)?.size;
        Subject::seek(&mut self.model, ino, offset, data)?;
        if offset >= size || data && self.model.is_zero(ino, offset, size)? {
            return Err(Error::NoSuchOffset.into());
        }
        // Data is what reads as anything but zeros: a file may be as long as a disk.
        let is_zero = |from, to| self.model.is_zero(ino, from, to);
        let (mut at, mut end) = (offset, size);
        while data && end - at > 1 {
            let middle = at.midpoint(end);
            if is_zero(offset, middle)? { at = middle } else { end = middle }
        }
        while !data && at < size && !is_zero(at, at.saturating_add(4096))? {
            at = size.min(at.saturating_add(4096));
        }
        Ok(Some(at))
    }

    fn readdir(&mut self, ino: Ino, at_a_time: usize, now_ns: i64) -> Result<Vec<Entry>, Failure> {
        Subject::readdir(&mut self.model, ino, at_a_time, now_ns)
    }

    fn getxattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Failure> {
        Subject::getxattr(&mut self.model, ino, name)
    }

    fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<(), Failure> {
        Subject::setxattr(self.change(), ino, name, value, mode, now_ns)
    }

    fn listxattr(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>, Failure> {
        Subject::listxattr(&mut self.model, ino)
    }

    fn removexattr(&mut self, ino: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        Subject::removexattr(self.change(), ino, name, now_ns)
    }

    fn parent(&mut self, ino: Ino) -> Result<Ino, Failure> {
        Subject::parent(&mut self.model, ino)
    }

    fn limit(&mut self, ino: Ino, inodes: u64, now_ns: i64) -> Result<(), Failure> {
        Subject::limit(self.change(), ino, inodes, now_ns)
    }

    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure> {
        Subject::limits(&mut self.model)
    }

    fn hold(&mut self, ino: Ino) -> Result<(), Failure> {
        Subject::hold(&mut self.model, ino)
    }

    fn release(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        Subject::release(&mut self.model, ino, now_ns)
    }

    fn sync(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        Subject::sync(&mut self.model, ino, now_ns)
    }

    fn map(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        Subject::map(&mut self.model, ino, now_ns)
    }

    fn unmap(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        Subject::unmap(&mut self.model, ino, now_ns)
    }

    fn store(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64) -> Result<(), Failure> {
        Subject::store(self.change(), ino, offset, bytes, now_ns)
    }

    fn flush(&mut self, ino: Ino, page: u64, pages: u64, now_ns: i64) -> Result<(), Failure> {
        Subject::flush(self.change(), ino, page, pages, now_ns)
    }

    fn write_scattered(
        &mut self,
        ino: Ino,
        pieces: &[(u64, Vec<u8>)],
        now_ns: i64,
    ) -> Result<(), Failure> {
        Subject::write_scattered(self.change(), ino, pieces, now_ns)
    }
}

impl Machine for Faulty {
    fn remount(&mut self, _: i64) -> Result<(), String> {
        self.model.release_all();
        Ok(())
    }

    fn die(&mut self, _: i64) -> Result<(), String> {
        if self.fault == Fault::LostAtDeath {
            self.model = self.before.clone();
        }
        self.model.release_all();
        Ok(())
    }

    fn inode_count(&mut self) -> Option<u64> {
        Some(self.model.inode_count() as u64)
    }

    fn bytes_available(&mut self) -> Option<u64> {
        None
    }

    fn generation(&mut self, _: Ino) -> Option<u32> {
        Some(0)
    }
}

fn budget(sequences: u64) -> Budget {
    Budget { seed: 1, length: Length::Sequences(sequences), steps: 300, setup: Vec::new() }
}

#[test]
fn no_fault_none_found() {
    let summary = search(&budget(20), NoSpace::Wrong, |_| Faulty::new(Fault::None)).unwrap();
    assert!(summary.steps >= 300 && summary.opens > 0, "{summary:?}");
}

#[test]
fn each_fault_is_shown_in_a_few_steps() {
    for (fault, steps_max) in [
        (Fault::TornWrite, 2),
        (Fault::UnclearedTail, 4),
        (Fault::OldMtime, 2),
        (Fault::LostAtDeath, 2),
        (Fault::LostWhenHeld, 6),
        (Fault::SwapsFilesOnly, 4),
        (Fault::Panics, 1),
    ] {
        let found = search(&budget(1000), NoSpace::Wrong, |_| Faulty::new(fault)).unwrap_err();
        assert!(found.steps.len() <= steps_max, "{fault:?} in too many steps:\n{found}");
        assert_eq!(parse_steps(&print_steps(&found.steps)).unwrap(), found.steps);
    }
}
