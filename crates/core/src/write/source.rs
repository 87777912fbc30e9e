//! Overwrites by zero-copy logging (ZCL, "Copy-on-Write with Adaptive Differential Logging" 3.2 and 4.2):
//! where the user's bytes lie in the pool already, they are the redo log of the write, and the file's log
//! says where they lie.
//!
//! Crash points. (1) The user's bytes are written back, and source entries stored that name them; fence.
//! (2) A line with the new times; fence. (3) The bytes in place; fence; only then the lock is released.
//! Until (2) nothing has changed in place. After it recovery, or who settles for a dead client, stores the
//! bytes that the entries name, as those of a redo log, if they are still there: each entry has their
//! checksum. As long as the call has not returned they are, unless somebody stores to the buffer that is
//! being written: their pages stay where they are, since the writer holds their file to be mapped. After (3)
//! it does not matter: where they are still there the file gets what it has, and else nothing.
//!
//! What is left: where another thread or process stores to the buffer while it is written from, or after
//! the writer has died and before somebody has settled for it, and (3) was not complete, each unit of 8
//! bytes is the old one or the new one, as by a write in place. Nothing else can come into the file.

use novale_layout::{Entry, RoFeature, Source};
use novale_pm::Purpose;
use novale_policy::Method;

use crate::base::error::Result;
use crate::base::types::SourceRun;
use crate::fs::Fs;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::write::fine_log::Homes;
use crate::write::plan::{WriteBytes, WritePlan};
use crate::write::small::SMALL_BYTES_MAX;

impl Fs {
    /// Overwrites bytes of pages that the file has, or as without a source where that does not hold them;
    /// says which.
    pub(crate) fn write_from_source(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        plan: &WritePlan,
        written: &WriteBytes<'_>,
    ) -> Result<Method> {
        let WriteBytes { data, source, .. } = *written;
        let homes = self.homes(&locked.view, plan.offset, data)?;
        if !self.holds(source, data)? || overlap(source, &homes) {
            // The superblock may not say of an undo log that there is one.
            return if self.is_used(RoFeature::Redo) {
                self.write_undo(call, locked, plan, data)
            } else {
                self.write_copied(call, locked, plan, data)
            };
        }
        let entries = source_entries(plan.offset, data, source);
        let mut tx = FileTx::begin(self, call, locked);
        tx.strip()?;
        if !seeded::is_on(Bug::SourceCached) {
            for run in source {
                tx.also(self.pm.write_back_range(run.addr, run.len, Purpose::Data));
            }
        }
        self.commit_then_store(tx, &entries, &homes, plan.end)?;
        Ok(Method::Source)
    }

    /// Whether these runs of the pool are as long as the bytes, and hold just them.
    fn holds(&self, source: &[SourceRun], data: &[u8]) -> Result<bool> {
        let mut rest = data;
        let mut room = [0; SMALL_BYTES_MAX];
        for run in source {
            let len = usize::try_from(run.len).unwrap_or(usize::MAX);
            let Some((now, later)) = rest.split_at_checked(len) else { return Ok(false) };
            let found = room.get_mut(..len).unwrap_or_default();
            if run.addr.is_null() || len == 0 || !self.pm.contains(run.addr, run.len) {
                return Ok(false);
            }
            self.pm.load(run.addr, found)?;
            if found != now {
                return Ok(false);
            }
            rest = later;
        }
        Ok(rest.is_empty())
    }
}

/// The entries that name the bytes of a write, as long as the runs where they lie.
fn source_entries(mut offset: u64, mut data: &[u8], source: &[SourceRun]) -> Vec<Entry> {
    let entry = |run: &SourceRun| {
        let len = usize::try_from(run.len).unwrap_or(usize::MAX);
        let (now, later) = data.split_at(len.min(data.len()));
        let crc = novale_crc::append(0, now);
        let length = u32::try_from(now.len()).unwrap_or(0);
        let entry = Source { offset, length, crc, from: run.addr };
        (offset, data) = (offset + run.len, later);
        Entry::Source(entry)
    };
    source.iter().map(entry).collect()
}

/// Whether the write goes over bytes that it is from.
fn overlap(source: &[SourceRun], homes: &Homes<'_>) -> bool {
    let touch = |run: &SourceRun, home: u64, len: u64| {
        let from = run.addr.raw();
        from < home + len && home < from + run.len
    };
    homes
        .iter()
        .any(|(home, bytes)| source.iter().any(|run| touch(run, home.raw(), bytes.len() as u64)))
}

#[cfg(test)]
mod tests {
    use novale_arena::Arena;
    use novale_layout::{Ino, PmAddr};
    use novale_pm::{Pm, Purpose};
    use novale_policy::UpdatePolicy;

    use super::*;
    use crate::base::exec::Serial;
    use crate::fixture::{CTX, MB, with_file};
    use crate::fs::OpenOptions;

    fn reopen(pm: Pm) -> Fs {
        let options = OpenOptions { update: Some(UpdatePolicy::Zcl), ..OpenOptions::default() };
        Fs::open(pm, Arena::anonymous(16 * MB).unwrap(), &options, &Serial, &|_| {}).unwrap()
    }

    /// Runs of the pool where bytes of a mapped file lie.
    fn runs(fs: &Fs, ino: Ino, offset: u64, len: u64) -> Vec<SourceRun> {
        let generation = fs.getattr(ino).unwrap().generation;
        let hold = fs.map_hold(&CTX, ino, generation).unwrap().unwrap();
        let pages = fs.map_pages(&CTX, hold, 0, 8).unwrap();
        let addr = pages.first().unwrap().addr.add(offset);
        vec![SourceRun { addr, len }]
    }

    fn read(fs: &Fs, ino: Ino, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(fs.read(&CTX, ino, at, &mut bytes).unwrap(), len);
        bytes
    }

    /// A file of ones, and one to map.
    fn two_files() -> (Fs, Ino, Ino) {
        let (fs, ino) = with_file();
        let file = novale_layout::FileKind::File;
        let new = crate::NewInode { kind: file, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
        let root = crate::Node::current(Ino::ROOT);
        let buffer = fs.create(&CTX, root, b"buffer", &new).unwrap().ino;
        fs.write(&CTX, ino, 0, &[1; 9000]).unwrap();
        fs.write(&CTX, buffer, 0, &[7; 9000]).unwrap();
        (reopen(fs.into_pm()), ino, buffer)
    }

    /// Each entry says where its run goes, which nobody looks at but recovery.
    #[test]
    fn bytes_of_two_runs_come_back_each_to_its_place() {
        let (fs, ino, buffer) = two_files();
        fs.write(&CTX, buffer, 0, &[8; 30]).unwrap();
        let source = [runs(&fs, buffer, 0, 30), runs(&fs, buffer, 100, 30)].concat();
        let bytes = [[8; 30], [7; 30]].concat();
        let hold = fs.map_hold(&CTX, ino, fs.getattr(ino).unwrap().generation).unwrap().unwrap();
        let home = fs.map_pages(&CTX, hold, 0, 1).unwrap().first().unwrap().addr;
        fs.open_release(&CTX, hold).unwrap();
        fs.write_from(&CTX, ino, 10, &bytes, &source).unwrap();
        // It is not closed, and what was stored in place is lost.
        let pm = fs.into_pm();
        pm.fence(pm.stream(home.add(10), &[1; 60], Purpose::Data)).end();
        let fs = reopen(pm);
        assert_eq!(read(&fs, ino, 0, 80), [&[1; 10][..], &bytes, &[1; 10]].concat());
    }

    #[test]
    fn bytes_overlap_their_source_where_they_have_one_in_common() {
        let at = |byte: u64| PmAddr::new(0, 4096 + byte);
        let bytes = [0; 20];
        for (from, len, overlaps) in [
            (0, 99, false),
            (0, 100, false),
            (0, 101, true),
            (110, 1, true),
            (90, 50, true),
            (119, 20, true),
            (120, 20, false),
            (121, 20, false),
        ] {
            let homes = Homes::from_iter([(at(5000), &bytes[..0]), (at(100), &bytes[..])]);
            let source = [SourceRun { addr: at(from), len }, SourceRun { addr: at(9000), len: 7 }];
            assert_eq!(overlap(&source, &homes), overlaps, "{len} bytes from {from}");
        }
    }

    #[test]
    fn what_lies_in_the_pool_is_not_stored_twice() {
        let (fs, ino, buffer) = two_files();
        let source = runs(&fs, buffer, 100, 2000);
        // The features first.
        fs.write_from(&CTX, ino, 3000, &[7; 2000], &source).unwrap();
        let before = fs.pm.counters();
        fs.write_from(&CTX, ino, 3000, &[7; 2000], &source).unwrap();
        let spent = fs.pm.counters() - before;
        // The bytes, their entry and the line.
        assert_eq!(spent.lines(), 33 + 1 + 1);
        assert_eq!(read(&fs, ino, 2990, 2020), [vec![1; 10], vec![7; 2000], vec![1; 10]].concat());
    }

    #[test]
    fn bytes_that_lie_in_the_pool_take_capabilities_away_too() {
        let (fs, ino, buffer) = two_files();
        let source = runs(&fs, buffer, 0, 100);
        let (node, name) = (crate::Node::current(ino), b"security.capability");
        let set = crate::SetXattr { name, value: &[1; 20], ..crate::SetXattr::default() };
        fs.setxattr(&CTX, node, &set).unwrap();
        fs.write_from(&CTX, ino, 50, &[7; 100], &source).unwrap();
        assert!(matches!(fs.getxattr(node, name), Err(crate::Error::NoAttribute)));
    }

    #[test]
    fn a_source_that_holds_other_bytes_is_not_believed() {
        let (fs, ino, buffer) = two_files();
        let source = runs(&fs, buffer, 0, 100);
        let nowhere = [SourceRun { addr: novale_layout::PmAddr::new(60, 4096), len: 100 }];
        let shorter = [SourceRun { len: 99, ..source[0] }];
        for (fill, source) in [(3, &source[..]), (4, &nowhere), (7, &shorter)] {
            fs.write_from(&CTX, ino, 50, &[fill; 100], source).unwrap();
            assert_eq!(read(&fs, ino, 50, 100), [fill; 100]);
        }
        assert_eq!(read(&fs, buffer, 0, 9000), [7; 9000]);
    }

    /// What the user does with the bytes after the call is not the file's.
    #[test]
    fn the_source_is_the_users_again_after_the_call() {
        let (fs, ino, buffer) = two_files();
        let source = runs(&fs, buffer, 0, 200);
        fs.write_from(&CTX, ino, 4000, &[7; 200], &source).unwrap();
        fs.pm.fence(fs.pm.stream(source[0].addr, &[9; 200], Purpose::Data)).end();
        let fs = reopen(fs.into_pm());
        assert_eq!(read(&fs, ino, 4000, 200), [7; 200]);
        fs.close().unwrap();
        assert!(crate::check(&fs.into_pm(), &Serial, &|_| {}).unwrap().findings.is_empty());
    }
}
