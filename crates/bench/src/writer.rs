//! A pool whose writes take one method, with a file to write and read, and a buffer that lies in the pool
//! and is mapped: what zero-copy logging writes from.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use novale_core::{Ctx, FileKind, Fs, Ino, Node, OpenOptions, SlotLines, SourceRun, UpdatePolicy};
use novale_layout::PAGE;
use novale_pm::{Counters, Purpose};
use tempfile::TempDir;

use crate::bed::new;
use crate::mount::DSYNC;
use crate::place::{EPOCH_NS, MB, Place, Pool, options};
use crate::stats::{cpu_ns, float};
use crate::target::new_folder;

/// The methods that are compared, each a column.
pub(crate) const METHODS: [UpdatePolicy; UpdatePolicy::ALL.len()] = UpdatePolicy::ALL;
/// Pages of the mapped buffer: longer writes are not logged by any method.
const BUFFER_PAGES: u64 = 4;
const FILE: &[u8] = b"file";
/// The longest write.
const DATA_BYTES: usize = 1 << 20;

/// A pool that is written by one method.
#[derive(Debug)]
pub(crate) struct Writer {
    pool: Pool,
    method: UpdatePolicy,
    file: Ino,
    file_bytes: u64,
    /// Where the next sequential write goes.
    next: u64,
    /// The mapped buffer; it holds the bytes of `data`.
    buffer: SourceRun,
    clock_ns: i64,
    random: fastrand::Rng,
    data: Vec<u8>,
    read: Vec<u8>,
}

/// What some writes asked for and what was stored, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stored {
    /// Writes.
    pub(crate) count: u64,
    /// Bytes that the writes were of.
    pub(crate) asked: u64,
    /// Stored as contents of files, copies and what fills pages up included; undo and redo logs not.
    pub(crate) data: u64,
    /// Stored for all purposes.
    pub(crate) all: u64,
    /// The lines that were touched by it, 64 bytes each.
    pub(crate) lines: u64,
    /// Fences that waited for something.
    pub(crate) fences: u64,
}

impl Writer {
    /// One with a file of `file_bytes` bytes.
    pub(crate) fn new(place: &Place, file_bytes: u64, method: UpdatePolicy) -> Result<Self> {
        Self::with_slots(place, file_bytes, method, SlotLines::default())
    }

    /// The same, with slots of so many lines.
    pub(crate) fn with_slots(
        place: &Place,
        file_bytes: u64,
        method: UpdatePolicy,
        slot_lines: SlotLines,
    ) -> Result<Self> {
        // Each page may have two copies. What the buffer's hold keeps goes with the pool.
        let options = OpenOptions { update: Some(method), slot_lines, ..options() };
        let pool = place.pool_as(file_bytes * 2 + 128 * MB, 4, &options)?;
        let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
        let data = vec![0xa5; DATA_BYTES];
        let fs = &pool.fs;
        let made = fs.create(&ctx, Node::ROOT, b"buffer", &new(FileKind::File))?;
        let bytes = BUFFER_PAGES * PAGE;
        fs.write(&ctx, made.ino, 0, data.get(..usize::try_from(bytes)?).unwrap_or_default())?;
        let hold = fs.map_hold(&ctx, made.ino, made.generation)?.context("no buffer")?;
        let runs = fs.map_pages(&ctx, hold, 0, BUFFER_PAGES)?;
        let run = runs.first().filter(|run| run.pages == BUFFER_PAGES);
        let buffer = SourceRun { addr: run.context("the buffer lies in pieces")?.addr, len: bytes };
        let mut writer = Self {
            pool,
            method,
            file: Ino::NULL,
            file_bytes,
            next: 0,
            buffer,
            clock_ns: EPOCH_NS,
            random: fastrand::Rng::with_seed(3),
            data,
            read: vec![0; DATA_BYTES],
        };
        writer.fill()?;
        Ok(writer)
    }

    /// Puts a new file in the place of the file: how earlier writes have scattered its pages is forgotten.
    pub(crate) fn renew(&mut self) -> Result<()> {
        let ctx = self.tick();
        self.fs().unlink(&ctx, Node::ROOT, FILE)?;
        self.fill()
    }

    fn fill(&mut self) -> Result<()> {
        let ctx = self.tick();
        self.file = self.fs().create(&ctx, Node::ROOT, FILE, &new(FileKind::File))?.ino;
        self.next = 0;
        let step = DATA_BYTES as u64;
        for at in (0..self.file_bytes).step_by(DATA_BYTES) {
            self.write(self.file, at, step.min(self.file_bytes - at))?;
        }
        Ok(())
    }

    /// One of each method.
    pub(crate) fn all(place: &Place, file_bytes: u64) -> Result<Vec<Self>> {
        METHODS.iter().map(|method| Self::new(place, file_bytes, *method)).collect()
    }

    pub(crate) fn fs(&self) -> &Fs {
        &self.pool.fs
    }

    /// The time of the next operation.
    pub(crate) fn tick(&mut self) -> Ctx {
        self.clock_ns += 1_000;
        Ctx { now_ns: self.clock_ns, hint: 0 }
    }

    /// Writes `len` bytes to a file, by [`UpdatePolicy::Zcl`] from the buffer as far as it reaches.
    #[inline]
    pub(crate) fn write(&mut self, ino: Ino, at: u64, len: u64) -> Result<()> {
        let ctx = self.tick();
        let data = self.data.get(..usize::try_from(len)?).context("a write above 1 MB")?;
        let source = [SourceRun { len, ..self.buffer }];
        let is_named = self.method == UpdatePolicy::Zcl && len <= self.buffer.len;
        let source = if is_named { &source[..] } else { &[] };
        self.pool.fs.write_from(&ctx, ino, at, data, source)?;
        Ok(())
    }

    /// Reads up to `len` bytes, 1 MB at most.
    #[inline]
    pub(crate) fn read(&mut self, ino: Ino, at: u64, len: u64) -> Result<usize> {
        let ctx = self.tick();
        let len = usize::try_from(len)?.min(DATA_BYTES);
        let room = self.read.get_mut(..len).unwrap_or_default();
        Ok(self.pool.fs.read(&ctx, ino, at, room)?)
    }

    /// Writes the file from where the last such write ended, and from its start again.
    pub(crate) fn sequential(&mut self, len: u64, count: u64) -> Result<()> {
        for _ in 0..count {
            if self.next + len > self.file_bytes {
                self.next = 0;
            }
            self.write(self.file, self.next, len)?;
            self.next += len;
        }
        Ok(())
    }

    /// Has the next sequential write go to the start of the file.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Accesses of `len` bytes at random multiples of it, of which `reads` in ten are reads.
    pub(crate) fn mixed(&mut self, len: u64, reads: u64, count: u64) -> Result<()> {
        for _ in 0..count {
            let at = self.random.u64(0..self.file_bytes / len) * len;
            if self.random.u64(0..10) < reads {
                self.read(self.file, at, len)?;
            } else {
                self.write(self.file, at, len)?;
            }
        }
        Ok(())
    }

    /// Writes `len` bytes at the start of each page, so that each is as the method leaves it.
    pub(crate) fn touch(&mut self, len: u64) -> Result<()> {
        for at in (0..self.file_bytes).step_by(4096) {
            self.write(self.file, at, len)?;
        }
        Ok(())
    }

    /// Pages that the file has beside its own, of its log and of second copies, in a hundred of its own.
    pub(crate) fn room_beside(&self) -> Result<f64> {
        let blocks = self.fs().getattr(self.file)?.blocks * 512;
        Ok(float(blocks.saturating_sub(self.file_bytes)) / float(self.file_bytes) * 100.0)
    }

    /// What `count` writes of `len` bytes store.
    pub(crate) fn stored(
        &mut self,
        (len, count): (u64, u64),
        run: impl FnOnce(&mut Self, u64, u64) -> Result<()>,
    ) -> Result<Stored> {
        let before = self.fs().counters();
        run(self, len, count)?;
        Ok(Stored::of(count, count * len, &(&self.fs().counters() - &before)))
    }
}

/// A file in a folder of another file system, whose writes are durable when they return.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The folder, as the caller calls it.
    pub(crate) name: String,
    _folder: TempDir,
    file: File,
    file_bytes: u64,
    random: fastrand::Rng,
    data: Vec<u8>,
}

impl Beside {
    /// One with a file of `file_bytes` bytes in a new folder in `dir`.
    pub(crate) fn new(dir: &Path, file_bytes: u64) -> Result<Self> {
        let folder = new_folder(dir)?;
        let mut options = File::options();
        options.create_new(true).read(true).write(true).custom_flags(DSYNC);
        let file = options.open(folder.path().join("file"))?;
        let data = vec![0xa5; DATA_BYTES];
        for at in (0..file_bytes).step_by(DATA_BYTES) {
            file.write_all_at(&data, at)?;
        }
        let random = fastrand::Rng::with_seed(3);
        let name = dir.display().to_string();
        Ok(Self { name, _folder: folder, file, file_bytes, random, data })
    }

    /// As [`Writer::mixed`].
    pub(crate) fn mixed(&mut self, len: u64, reads: u64, count: u64) -> Result<()> {
        let data = self.data.get_mut(..usize::try_from(len)?).context("an access above 1 MB")?;
        for _ in 0..count {
            let at = self.random.u64(0..self.file_bytes / len) * len;
            if self.random.u64(0..10) < reads {
                self.file.read_exact_at(data, at)?;
            } else {
                self.file.write_all_at(data, at)?;
            }
        }
        Ok(())
    }

    /// The bytes that its device is given by `count` random writes of `len` bytes, and by what the file system
    /// keeps of them for later; none where it has no device.
    pub(crate) fn stored(&mut self, len: u64, count: u64) -> Result<Option<u64>> {
        rustix::fs::syncfs(&self.file).context("syncfs")?;
        let before = self.sent()?;
        self.mixed(len, 0, count)?;
        rustix::fs::syncfs(&self.file).context("syncfs")?;
        Ok(self.sent()?.zip(before).map(|(after, before)| after - before))
    }

    /// The bytes that its device was given since the machine began.
    fn sent(&self) -> Result<Option<u64>> {
        let device = self.file.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let Ok(stat) = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")) else {
            return Ok(None);
        };
        // Reads, merged, sectors, ms; the same of writes. A sector is 512 bytes for all devices.
        let sectors = stat.split_whitespace().nth(6).context("a device's counters")?;
        Ok(Some(sectors.parse::<u64>()? * 512))
    }
}

impl Stored {
    pub(crate) fn of(count: u64, asked: u64, spent: &Counters) -> Self {
        let data = spent.of(Purpose::Data).bytes;
        let fences = spent.fences_with_pending;
        Self { count, asked, data, all: spent.bytes(), lines: spent.lines(), fences }
    }
}

/// What this thread runs on a CPU meanwhile, in ns, without the turns of others.
pub(crate) fn on_cpu(run: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = cpu_ns();
    run()?;
    Ok((cpu_ns() - before).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(method: UpdatePolicy) -> Stored {
        let place = Place { small_pages: true, ..Place::default() };
        let mut writer = Writer::new(&place, MB, method).unwrap();
        writer.sequential(1024, 1024).unwrap();
        writer.stored((1024, 1024), Writer::sequential).unwrap()
    }

    #[test]
    fn each_method_stores_what_it_is_about() {
        let [cow, paired, zcl, lawn] =
            [UpdatePolicy::Cow, UpdatePolicy::Paired, UpdatePolicy::Zcl, UpdatePolicy::Lawn]
                .map(spent);
        assert_eq!((cow.asked, cow.data), (MB, 4 * MB));
        assert_eq!((paired.data, zcl.data), (MB, MB));
        // Lines of a page whose slots are taken are stored once more.
        assert!(lawn.data <= cow.data / 2, "{lawn:?} {cow:?}");
        assert!(zcl.all < cow.all / 3, "{zcl:?} {cow:?}");
    }
}
