//! The promise: the differential test finds a fault and shows it in a few steps. Each fault here is
//! put into a copy of the model on purpose; a test of file systems that passes them proves nothing.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::BTreeMap;

use novale_lab::diff::{Budget, Length, Machine, NoSpace, now_ns_at, search};
use novale_lab::workload::{Action, Failure, Op, Outcome, Subject, parse_steps, print_steps};
use novale_model::{Atime, Error, Ino, Model, RenameMode, SetAttr};

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
    fn apply(&mut self, op: &Op<'_>, now_ns: i64) -> Result<Outcome, Failure> {
        match *op {
            Op::Lookup { name, .. } => {
                let panics = self.fault == Fault::Panics && name.len() >= 200;
                assert!(!panics, "name of {} bytes", name.len());
                self.model.apply(op, now_ns)
            }
            Op::Unlink { parent, name } => self.unlink(parent, name, now_ns),
            Op::Rename { from, to, mode: RenameMode::Exchange }
                if self.fault == Fault::SwapsFilesOnly
                    && self.model.lookup(from.0, from.1).is_ok_and(|attr| attr.nlink > 1) =>
            {
                self.model.lookup(to.0, to.1)?;
                Ok(Outcome::Done)
            }
            Op::On { ino, action: Action::Set(set) } => self.setattr(ino, set, now_ns),
            Op::On { ino, action: Action::Write { offset, len, .. } } => {
                let written = self.change().apply(op, now_ns)?;
                let last = offset.saturating_add(u64::from(*len)).saturating_sub(1);
                let is_torn = self.fault == Fault::TornWrite && *len > 1;
                if is_torn && offset / 4096 != last / 4096 {
                    self.model.write(ino, last, &[0], now_ns)?;
                }
                Ok(written)
            }
            Op::On { ino, action: Action::Seek { offset, data } } => {
                self.seek(ino, *offset, *data).map(Outcome::Number)
            }
            Op::On { action: Action::Stat | Action::Read { .. } | Action::List { .. }, .. }
            | Op::Hold(_)
            | Op::Release(_)
            | Op::Map(_)
            | Op::Unmap(_) => self.model.apply(op, now_ns),
            Op::Create { .. }
            | Op::CreateUnnamed { .. }
            | Op::Link { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Copy { .. }
            | Op::On { .. } => self.change().apply(op, now_ns),
        }
    }

    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure> {
        Subject::limits(&mut self.model)
    }
}

impl Faulty {
    fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Outcome, Failure> {
        let size = self.model.getattr(ino)?.size;
        let old = set.size.and_then(|cut| {
            let len = 4096_u64.saturating_sub(cut % 4096).min(size.saturating_sub(cut));
            self.model.read(ino, cut, usize::try_from(len).unwrap(), 0).ok().map(|old| (cut, old))
        });
        let attr = self.change().setattr(ino, set, now_ns)?;
        if self.fault == Fault::UnclearedTail
            && let Some((cut, old)) = old
        {
            self.model.write(ino, cut, &old, now_ns)?;
            let again = SetAttr { size: Some(cut), mtime_ns: Some(attr.mtime_ns), ..*set };
            if cut % 4096 == 0 {
                self.model.setattr(ino, &again, now_ns)?;
            }
        }
        Ok(Outcome::Attr(attr))
    }

    fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<Outcome, Failure> {
        let old = self.model.getattr(parent).map(|attr| attr.mtime_ns).ok();
        let ino = self.model.lookup(parent, name).map(|attr| attr.ino).ok();
        self.change().unlink(parent, name, now_ns)?;
        if self.fault == Fault::OldMtime {
            let set = SetAttr { mtime_ns: old, ..SetAttr::default() };
            self.model.setattr(parent, &set, now_ns)?;
        }
        if let (Fault::LostWhenHeld, Some(ino)) = (self.fault, ino) {
            self.model.release(ino, 1);
        }
        Ok(Outcome::Done)
    }

    fn seek(&mut self, ino: Ino, offset: u64, data: bool) -> Result<u64, Failure> {
        let size = self.model.getattr(ino)?.size;
        self.model.is_zero(ino, 0, 0)?;
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
        Ok(at)
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
