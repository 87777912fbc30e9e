//! A pool prepared for looking at single operations of the library, on one thread.

use std::ops::Range;

use anyhow::{Context, Result};
use novale_core::{Ctx, FileKind, Form, Fs, Ino, NewInode, Node, RenameMode, UpdatePolicy};

use crate::place::{EPOCH_NS, MB, Place, Pool};
use crate::stats::Timer;

/// Names in the directory that is looked up in.
pub(crate) const LOOKUP_NAMES: u64 = 10_000;
/// Overwrites from this length on are of a file that has no shorter ones: NOVA's were, and a long piece
/// whose pages lie apart takes longer to free.
const WHOLE_BYTES: u64 = 65_536;
/// Most names that a directory of one round gets.
const NAMES_MAX: u64 = 20_000;

/// An operation of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At random places of a large file, aligned to their size.
    Overwrite(u64),
    /// To a file that is new each round.
    Append(u64),
    /// From random places of a large file.
    Read(u64),
    /// The same, each from a place that the bytes of the one before tell: the CPU can't begin it early.
    Chase(u64),
    /// A change of names in a directory that is new each round.
    Names(Names),
    /// A search.
    Find(Find),
}

/// Operations on as many names; each takes what the one before it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Create,
    Rename,
    Unlink,
    Mkdir,
    Rmdir,
}

/// Searches among [`LOOKUP_NAMES`] files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    /// By inode number.
    Stat,
    /// By name, all in one directory.
    Lookup,
    /// By a name that is not there.
    Missing,
}

impl Kind {
    /// Bytes that one operation moves, for choosing how many are run.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Overwrite(bytes)
            | Self::Append(bytes)
            | Self::Read(bytes)
            | Self::Chase(bytes) => bytes,
            Self::Names(_) | Self::Find(_) => 64,
        }
    }
}

/// What looks at each operation as it runs.
pub(crate) trait Probe {
    /// Runs `operation` on `fs` and notes what it is after.
    fn observe<T>(&mut self, fs: &Fs, operation: impl FnOnce() -> T) -> T;
}

impl Probe for Timer {
    #[inline]
    fn observe<T>(&mut self, _fs: &Fs, operation: impl FnOnce() -> T) -> T {
        self.time(operation)
    }
}

/// A pool with files to work on.
#[derive(Debug)]
pub(crate) struct Bed {
    pool: Pool,
    /// A file that is overwritten by some pages at most, so that its pages lie apart in the end.
    file: Ino,
    /// One that is overwritten by long pieces alone.
    whole: Ino,
    file_bytes: u64,
    /// A file that is only read, so that no read is the first after a change.
    read_file: Ino,
    names: Ino,
    inodes: Vec<Ino>,
    /// Names made before time is taken: as many as any operation needs, and as many others.
    texts: [Vec<String>; 2],
    /// The directory of this round and the files made in it.
    made: (Ino, u64),
    round: u64,
    clock_ns: i64,
    random: fastrand::Rng,
    data: Vec<u8>,
}

impl Bed {
    pub(crate) fn new(place: &Place, file_bytes: u64, form: Form) -> Result<Self> {
        Self::by(place, file_bytes, form, UpdatePolicy::Auto)
    }

    /// One whose writes take these methods.
    pub(crate) fn by(
        place: &Place,
        file_bytes: u64,
        form: Form,
        update: UpdatePolicy,
    ) -> Result<Self> {
        let pool = place.pool_by(file_bytes * 3 + 256 * MB, 4, form, update)?;
        let data = vec![0xa5; 1 << 20];
        let mut bed = Self {
            pool,
            file: Ino::NULL,
            whole: Ino::NULL,
            file_bytes,
            read_file: Ino::NULL,
            names: Ino::NULL,
            inodes: Vec::new(),
            texts: [texts("name"), texts("moved")],
            made: (Ino::NULL, 0),
            round: 0,
            clock_ns: EPOCH_NS,
            random: fastrand::Rng::with_seed(2),
            data,
        };
        bed.file = bed.large_file(b"overwritten")?;
        bed.read_file = bed.large_file(b"read")?;
        bed.whole = bed.large_file(b"overwritten whole")?;
        bed.names = bed.make(Ino::ROOT, b"names", FileKind::Directory)?;
        for index in 0..LOOKUP_NAMES {
            let name = format!("name {index:08}");
            let ino = bed.make(bed.names, name.as_bytes(), FileKind::File)?;
            bed.inodes.push(ino);
        }
        // The first read of a file notes its access time; the others do not.
        let mut byte = [0];
        let ctx = bed.tick();
        bed.pool.fs.read(&ctx, bed.read_file, 0, &mut byte)?;
        Ok(bed)
    }

    pub(crate) fn fs(&self) -> &Fs {
        &self.pool.fs
    }

    /// Where in the slot the read file lies, about: after the overwritten one.
    pub(crate) fn read_range(&self) -> Range<u64> {
        self.file_bytes..2 * self.file_bytes
    }

    /// The time of the next operation. Benchmarks leave the cost of a real clock to the callers
    /// that have one.
    fn tick(&mut self) -> Ctx {
        self.clock_ns += 1_000;
        ctx(self.clock_ns)
    }

    fn make(&mut self, parent: Ino, name: &[u8], kind: FileKind) -> Result<Ino> {
        let ctx = self.tick();
        Ok(self.pool.fs.create(&ctx, Node::current(parent), name, &new(kind))?.ino)
    }

    fn large_file(&mut self, name: &[u8]) -> Result<Ino> {
        let ino = self.make(Ino::ROOT, name, FileKind::File)?;
        for at in (0..self.file_bytes).step_by(self.data.len()) {
            let ctx = self.tick();
            self.pool.fs.write(&ctx, ino, at, &self.data)?;
        }
        Ok(ino)
    }

    /// Starts a round: a new directory for those that make names.
    pub(crate) fn next_round(&mut self) -> Result<()> {
        self.round += 1;
        let name = format!("round {}", self.round);
        self.made = (self.make(Ino::ROOT, name.as_bytes(), FileKind::Directory)?, 0);
        Ok(())
    }

    /// Runs `count` operations under `probe`; of names, at most [`NAMES_MAX`].
    pub(crate) fn run(&mut self, kind: Kind, count: u64, probe: &mut impl Probe) -> Result<()> {
        match kind {
            Kind::Overwrite(bytes) => self.overwrite(bytes, count, probe),
            Kind::Append(bytes) => self.append(bytes, count, probe),
            Kind::Read(bytes) => self.read(bytes, count, probe),
            Kind::Chase(bytes) => self.chase(bytes, count, probe),
            Kind::Find(Find::Stat) => self.stat(count, probe),
            Kind::Find(Find::Lookup) => self.lookup(0, count, probe),
            Kind::Find(Find::Missing) => self.lookup(LOOKUP_NAMES, count, probe),
            Kind::Names(names) => {
                if matches!(names, Names::Create | Names::Mkdir) {
                    self.made.1 = count.min(NAMES_MAX);
                }
                self.each_name(names, probe)
            }
        }
    }

    fn overwrite(&mut self, bytes: u64, count: u64, probe: &mut impl Probe) -> Result<()> {
        let len = usize::try_from(bytes)?;
        let file = if bytes < WHOLE_BYTES { self.file } else { self.whole };
        for _ in 0..count {
            let at = self.random.u64(0..self.file_bytes / bytes) * bytes;
            let ctx = self.tick();
            let (fs, data) = (&self.pool.fs, self.data.get(..len).unwrap_or_default());
            probe.observe(fs, || fs.write(&ctx, file, at, data))?;
        }
        Ok(())
    }

    fn append(&mut self, bytes: u64, count: u64, probe: &mut impl Probe) -> Result<()> {
        let len = usize::try_from(bytes)?;
        let ino = self.make(self.made.0, b"appended", FileKind::File)?;
        for _ in 0..count {
            let ctx = self.tick();
            let (fs, data) = (&self.pool.fs, self.data.get(..len).unwrap_or_default());
            probe.observe(fs, || fs.append(&ctx, ino, data))?;
        }
        let ctx = self.tick();
        Ok(self.pool.fs.unlink(&ctx, Node::current(self.made.0), b"appended")?)
    }

    fn read(&mut self, bytes: u64, count: u64, probe: &mut impl Probe) -> Result<()> {
        let len = usize::try_from(bytes)?;
        for _ in 0..count {
            let at = self.random.u64(0..self.file_bytes / bytes) * bytes;
            let ctx = self.tick();
            let (fs, data) = (&self.pool.fs, self.data.get_mut(..len).unwrap_or_default());
            probe.observe(fs, || fs.read(&ctx, self.read_file, at, data))?;
        }
        Ok(())
    }

    fn chase(&mut self, bytes: u64, count: u64, probe: &mut impl Probe) -> Result<()> {
        let len = usize::try_from(bytes)?;
        let mut told = 0;
        for _ in 0..count {
            let at = (self.random.u64(0..self.file_bytes / bytes) ^ told) * bytes;
            let ctx = self.tick();
            let (fs, data) = (&self.pool.fs, self.data.get_mut(..len).unwrap_or_default());
            probe.observe(fs, || fs.read(&ctx, self.read_file, at, data))?;
            told = told_by(data);
        }
        Ok(())
    }

    fn stat(&mut self, count: u64, probe: &mut impl Probe) -> Result<()> {
        let fs = &self.pool.fs;
        for _ in 0..count {
            let ino = *self.random.choice(&self.inodes).context("no inodes")?;
            probe.observe(fs, || fs.getattr(ino))?;
        }
        Ok(())
    }

    fn lookup(&mut self, from: u64, count: u64, probe: &mut impl Probe) -> Result<()> {
        let [names, _] = &self.texts;
        for _ in 0..count {
            self.clock_ns += 1_000;
            let ctx = ctx(self.clock_ns);
            let index = from + self.random.u64(0..LOOKUP_NAMES);
            let name = names.get(usize::try_from(index)?).context("no name")?;
            let fs = &self.pool.fs;
            let found =
                probe.observe(fs, || fs.lookup(&ctx, Node::current(self.names), name.as_bytes()));
            anyhow::ensure!(found.is_ok() == (from == 0), "a look-up of {name} failed");
        }
        Ok(())
    }

    /// Runs one operation on each name of this round.
    fn each_name(&mut self, what: Names, probe: &mut impl Probe) -> Result<()> {
        let (dir, count) = self.made;
        let [names, moved] = &self.texts;
        let fs = &self.pool.fs;
        for (name, moved) in names.iter().zip(moved).take(usize::try_from(count)?) {
            self.clock_ns += 1_000;
            let (name, moved, ctx) = (name.as_bytes(), moved.as_bytes(), ctx(self.clock_ns));
            let make = |kind| fs.create(&ctx, Node::current(dir), name, &new(kind)).map(|_| ());
            match what {
                Names::Create => probe.observe(fs, || make(FileKind::File)),
                Names::Mkdir => probe.observe(fs, || make(FileKind::Directory)),
                Names::Rename => probe.observe(fs, || {
                    fs.rename(
                        &ctx,
                        Node::current(dir),
                        name,
                        Node::current(dir),
                        moved,
                        RenameMode::Replace,
                    )
                }),
                Names::Rmdir => probe.observe(fs, || fs.rmdir(&ctx, Node::current(dir), name)),
                Names::Unlink => probe.observe(fs, || fs.unlink(&ctx, Node::current(dir), moved)),
            }?;
        }
        Ok(())
    }
}

/// 0, as only the one who has read the bytes knows: all bytes of a file are the same.
pub(crate) fn told_by(data: &[u8]) -> u64 {
    let first = std::hint::black_box(data.first().copied().unwrap_or(0));
    u64::from(first ^ data.get(1).copied().unwrap_or(first))
}

fn ctx(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}

fn texts(word: &str) -> Vec<String> {
    (0..NAMES_MAX).map(|index| format!("{word} {index:08}")).collect()
}

/// A plain new inode.
pub(crate) fn new(kind: FileKind) -> NewInode<'static> {
    NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" }
}
