//! Filebench's fileserver, webproxy, webserver and varmail as NOVA ran them (FAST '16, table 2): the
//! same steps in the same order, file sizes of a gamma distribution, and each step counted once.
//!
//! Each thread has its own share of the files, all of them in the same directories, and takes of it
//! at random. So no step waits for a file that another thread has, and none fails.

use anyhow::{Context, Result};

use crate::target::{Handle, Open, Target};

/// Files of one directory, where a workload does not put all into one.
const DIR_WIDTH: u64 = 20;
/// Files are at most so many times as long as the mean.
const SIZE_TIMES_MAX: f64 = 8.0;
/// The gamma distribution's shape, as in Filebench.
const GAMMA_SHAPE: f64 = 1.5;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Fileserver,
    Webproxy,
    Webserver,
    Varmail,
    /// Not Filebench's: reads and overwrites at random among appends, new files and removals, as FFSB has
    /// them.
    Mixed,
}

/// A workload's row of table 2, sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) mean_bytes: u64,
    read_bytes: usize,
    write_bytes: usize,
    append_bytes: usize,
    one_dir: bool,
    /// Files of the paper's small dataset.
    pub(crate) paper_files: u64,
}

const KB: usize = 1 << 10;

impl Profile {
    /// Filebench's four, in the order of NOVA's paper.
    pub(crate) const ALL: [Self; 4] =
        [Self::Fileserver, Self::Webproxy, Self::Webserver, Self::Varmail];

    pub(crate) fn shape(self) -> Shape {
        let shape = |name, mean: usize, (read_bytes, write_bytes), one_dir| Shape {
            name,
            mean_bytes: (mean * KB) as u64,
            read_bytes,
            write_bytes,
            append_bytes: write_bytes,
            one_dir,
            paper_files: 100_000,
        };
        match self {
            Self::Fileserver => shape("fileserver", 128, (16 * KB, 16 * KB), false),
            Self::Webproxy => shape("webproxy", 32, (KB * KB, 16 * KB), true),
            Self::Webserver => shape("webserver", 64, (KB * KB, 8 * KB), false),
            Self::Varmail => shape("varmail", 32, (KB * KB, 16 * KB), true),
            Self::Mixed => shape("mixed", 64, (4 * KB, 4 * KB), false),
        }
    }
}

/// What looks at each step as it runs.
pub(crate) trait Watch {
    /// Runs a step of this name.
    fn step<T>(&mut self, target: &Target, name: &'static str, step: impl FnOnce() -> T) -> T;
}

/// Counts the steps.
#[derive(Debug, Default)]
pub(crate) struct Count(pub(crate) u64);

impl Watch for Count {
    #[inline]
    fn step<T>(&mut self, _: &Target, _: &'static str, step: impl FnOnce() -> T) -> T {
        self.0 += 1;
        step()
    }
}

/// One thread's part of a workload.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    target: &'a Target,
    profile: Profile,
    shape: Shape,
    thread: usize,
    dirs: u64,
    /// The files that are there, by number, with their length in bytes.
    files: Vec<(u64, u64)>,
    next: u64,
    /// Of all files together.
    bytes: u64,
    /// Files are removed down to this; without it, one for each that is made.
    bytes_kept: Option<u64>,
    random: fastrand::Rng,
    data: Vec<u8>,
}

/// Makes the directories for `files` files; returns how many.
pub(crate) fn make_dirs(target: &Target, profile: Profile, files: u64) -> Result<u64> {
    let dirs = if profile.shape().one_dir { 1 } else { files.div_ceil(DIR_WIDTH).max(1) };
    for dir in 0..dirs {
        target.make_dir(&format!("d{dir}"))?;
    }
    Ok(dirs)
}

/// Removes what [`make_dirs`] made.
pub(crate) fn remove_dirs(target: &Target, dirs: u64) -> Result<()> {
    (0..dirs).try_for_each(|dir| target.remove_dir(&format!("d{dir}")))
}

impl<'a> Worker<'a> {
    /// The share of thread `thread`, without files yet, in `dirs` directories.
    pub(crate) fn new(target: &'a Target, profile: Profile, thread: usize, dirs: u64) -> Self {
        let shape = profile.shape();
        Self {
            target,
            profile,
            shape,
            thread,
            dirs,
            files: Vec::new(),
            next: 0,
            bytes: 0,
            bytes_kept: None,
            random: fastrand::Rng::with_seed(thread as u64 + 1),
            data: vec![0x5a; shape.read_bytes.max(shape.write_bytes)],
        }
    }

    /// With requests of so many bytes instead of the workload's own.
    pub(crate) fn with_requests(mut self, bytes: usize) -> Self {
        (self.shape.read_bytes, self.shape.write_bytes) = (bytes, bytes);
        self.shape.append_bytes = bytes;
        self.data = vec![0x5a; bytes];
        self
    }

    /// Makes one file, and the log that a webserver writes to before all others.
    pub(crate) fn fill(&mut self, watch: &mut impl Watch) -> Result<()> {
        if self.profile == Profile::Webserver && self.next == 0 {
            let name = self.log_name();
            self.target.close(self.target.open(&name, Open::New)?)?;
        }
        let size = self.random_size();
        self.make(size, watch)
    }

    /// Removes all that is left of the share.
    pub(crate) fn clear(&mut self) -> Result<()> {
        while let Some((file, _)) = self.files.pop() {
            self.target.remove(&self.name(file))?;
        }
        if self.profile == Profile::Webserver && self.next > 0 {
            self.target.remove(&self.log_name())?;
        }
        Ok(())
    }

    /// Keeps the files' length together at what it is now.
    pub(crate) fn keep_bytes(&mut self) {
        self.bytes_kept = Some(self.bytes);
    }

    /// Goes through the workload's steps once.
    pub(crate) fn turn(&mut self, watch: &mut impl Watch) -> Result<()> {
        match self.profile {
            Profile::Fileserver => self.fileserver(watch),
            Profile::Webproxy => self.webproxy(watch),
            Profile::Webserver => self.webserver(watch),
            Profile::Varmail => self.varmail(watch),
            Profile::Mixed => self.mixed(watch),
        }
    }

    /// Four overwrites of a request and four reads of one, a place of its own each; an append, a new file
    /// and a removal.
    fn mixed(&mut self, watch: &mut impl Watch) -> Result<()> {
        for _ in 0..4 {
            self.overwrite_somewhere(watch)?;
            self.read_somewhere(watch)?;
        }
        let index = self.pick()?;
        self.append_to(index, false, watch)?;
        let size = self.random_size();
        self.make(size, watch)?;
        self.remove_some(watch)
    }

    fn overwrite_somewhere(&mut self, watch: &mut impl Watch) -> Result<()> {
        let (name, offset) = self.somewhere(self.shape.write_bytes)?;
        let target = self.target;
        let data = self.data.get(..self.shape.write_bytes).unwrap_or_default();
        let handle = target.open(&name, Open::Write)?;
        watch.step(target, "overwrite", || target.write_at(&handle, offset, data))?;
        target.close(handle)
    }

    fn read_somewhere(&mut self, watch: &mut impl Watch) -> Result<()> {
        let (name, offset) = self.somewhere(self.shape.read_bytes)?;
        let target = self.target;
        let into = self.data.get_mut(..self.shape.read_bytes).unwrap_or_default();
        let handle = target.open(&name, Open::Read)?;
        watch.step(target, "read", || target.read_at(&handle, offset, into))?;
        target.close(handle)
    }

    /// A file and a multiple of a request's length within it.
    fn somewhere(&mut self, request: usize) -> Result<(String, u64)> {
        let index = self.pick()?;
        let size = self.files.get(index).map_or(0, |(_, size)| *size);
        let requests = (size / request as u64).max(1);
        Ok((self.name_at(index), self.random.u64(0..requests) * request as u64))
    }

    fn fileserver(&mut self, watch: &mut impl Watch) -> Result<()> {
        let size = self.random_size();
        self.make(size, watch)?;
        let index = self.pick()?;
        self.append_to(index, false, watch)?;
        let index = self.pick()?;
        self.read_whole(index, watch)?;
        self.remove_some(watch)?;
        let index = self.pick()?;
        let (name, target) = (self.name_at(index), self.target);
        watch.step(target, "size", || target.size(&name)).map(drop)
    }

    fn webproxy(&mut self, watch: &mut impl Watch) -> Result<()> {
        self.remove_one(watch)?;
        self.make(self.shape.append_bytes as u64, watch)?;
        for _ in 0..5 {
            let index = self.pick()?;
            self.read_whole(index, watch)?;
        }
        Ok(())
    }

    fn webserver(&mut self, watch: &mut impl Watch) -> Result<()> {
        for _ in 0..10 {
            let index = self.pick()?;
            self.read_whole(index, watch)?;
        }
        let (name, target) = (self.log_name(), self.target);
        let data = self.data.get(..self.shape.append_bytes).unwrap_or_default();
        let log = target.open(&name, Open::Append)?;
        watch.step(target, "append", || target.append(&log, data))?;
        target.close(log)
    }

    fn varmail(&mut self, watch: &mut impl Watch) -> Result<()> {
        self.remove_one(watch)?;
        let target = self.target;
        let (file, name) = self.take_name();
        let size = self.shape.append_bytes;
        let data = self.data.get(..size).unwrap_or_default();
        let handle = watch.step(target, "create", || target.open(&name, Open::New))?;
        watch.step(target, "append", || target.append(&handle, data))?;
        watch.step(target, "sync", || target.sync(&handle))?;
        watch.step(target, "close", || target.close(handle))?;
        self.files.push((file, size as u64));
        self.bytes += size as u64;
        let index = self.pick()?;
        self.append_to(index, true, watch)?;
        let index = self.pick()?;
        self.read_whole(index, watch)
    }

    /// Makes a file of `size` bytes.
    fn make(&mut self, size: u64, watch: &mut impl Watch) -> Result<()> {
        let target = self.target;
        let (file, name) = self.take_name();
        let handle = watch.step(target, "create", || target.open(&name, Open::New))?;
        watch.step(target, "write a file", || self.write(&handle, size))?;
        watch.step(target, "close", || target.close(handle))?;
        self.files.push((file, size));
        self.bytes += size;
        Ok(())
    }

    fn write(&self, handle: &Handle, size: u64) -> Result<()> {
        let mut left = usize::try_from(size)?;
        while left > 0 {
            let data = self.data.get(..left.min(self.shape.write_bytes)).unwrap_or_default();
            self.target.append(handle, data)?;
            left -= data.len();
        }
        Ok(())
    }

    /// Opens a file and appends to it; as a mail server, reads it first and syncs it.
    fn append_to(&mut self, index: usize, mail: bool, watch: &mut impl Watch) -> Result<()> {
        let (name, target) = (self.name_at(index), self.target);
        let handle = watch.step(target, "open", || target.open(&name, Open::Append))?;
        if mail {
            watch.step(target, "read a file", || self.read_all(&handle))?;
        }
        let data = self.data.get(..self.shape.append_bytes).unwrap_or_default();
        watch.step(target, "append", || target.append(&handle, data))?;
        if mail {
            watch.step(target, "sync", || target.sync(&handle))?;
        }
        watch.step(target, "close", || target.close(handle))?;
        if let Some((_, size)) = self.files.get_mut(index) {
            *size += self.shape.append_bytes as u64;
            self.bytes += self.shape.append_bytes as u64;
        }
        Ok(())
    }

    fn read_whole(&mut self, index: usize, watch: &mut impl Watch) -> Result<()> {
        let (name, target) = (self.name_at(index), self.target);
        let handle = watch.step(target, "open", || target.open(&name, Open::Read))?;
        watch.step(target, "read a file", || self.read_all(&handle))?;
        watch.step(target, "close", || target.close(handle))
    }

    fn read_all(&mut self, handle: &Handle) -> Result<()> {
        let into = self.data.get_mut(..self.shape.read_bytes).unwrap_or_default();
        let mut offset = 0;
        loop {
            match self.target.read_at(handle, offset, into)? {
                0 => return Ok(()),
                bytes => offset += bytes as u64,
            }
        }
    }

    fn remove_some(&mut self, watch: &mut impl Watch) -> Result<()> {
        let Some(kept) = self.bytes_kept else { return self.remove_one(watch) };
        while self.bytes > kept && self.files.len() > 1 {
            self.remove_one(watch)?;
        }
        Ok(())
    }

    fn remove_one(&mut self, watch: &mut impl Watch) -> Result<()> {
        let index = self.pick()?;
        let (file, size) = self.files.swap_remove(index);
        let (name, target) = (self.name(file), self.target);
        self.bytes -= size;
        watch.step(target, "remove", || target.remove(&name))
    }

    fn pick(&mut self) -> Result<usize> {
        anyhow::ensure!(!self.files.is_empty(), "a thread without files: too small a dataset");
        Ok(self.random.usize(0..self.files.len()))
    }

    fn take_name(&mut self) -> (u64, String) {
        let file = self.next;
        self.next += 1;
        (file, self.name(file))
    }

    fn name_at(&self, index: usize) -> String {
        self.files.get(index).map_or_else(String::new, |(file, _)| self.name(*file))
    }

    fn name(&self, file: u64) -> String {
        // Neighbours of a share lie in different directories.
        let dir = (file.wrapping_mul(0x9e37_79b9) + self.thread as u64) % self.dirs;
        format!("d{dir}/{:02}-{file:08}", self.thread)
    }

    fn log_name(&self) -> String {
        format!("d0/log-{}", self.thread)
    }

    /// A file's length: gamma of shape 1.5 about the mean.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and far below 2^53"
    )]
    fn random_size(&mut self) -> u64 {
        let mean = crate::stats::float(self.shape.mean_bytes);
        let mut logarithm = || -(1.0 - self.random.f64()).ln();
        let (first, second) = (logarithm(), logarithm());
        let angle = (self.random.f64() * std::f64::consts::TAU).cos();
        // The sum of an exponential and half the square of a normal variable.
        let gamma = first + second * angle * angle;
        ((gamma / GAMMA_SHAPE).min(SIZE_TIMES_MAX) * mean) as u64
    }
}

/// How many files a dataset of `bytes` bytes has.
pub(crate) fn files_of(shape: &Shape, bytes: u64) -> Result<u64> {
    let files = bytes / shape.mean_bytes;
    (files > 0).then_some(files).context("a dataset of less than a file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{MB, Place};

    /// Steps of a turn as Filebench counts them, and nothing left behind when all is cleared.
    #[test]
    fn each_profile_has_its_steps_and_leaves_nothing_behind() {
        let all = Profile::ALL.into_iter().chain([Profile::Mixed]);
        for (profile, steps) in all.zip([11, 19, 31, 13, 15]) {
            let target = Target::library(&Place::default(), 64 * MB, 1).unwrap();
            let dirs = make_dirs(&target, profile, 40).unwrap();
            let mut worker = Worker::new(&target, profile, 0, dirs);
            let mut count = Count::default();
            (0..8).for_each(|_| worker.fill(&mut count).unwrap());
            let before = count.0;
            (0..5).for_each(|_| worker.turn(&mut count).unwrap());
            assert_eq!(count.0 - before, 5 * steps, "{profile:?}");
            worker.clear().unwrap();
            remove_dirs(&target, dirs).unwrap();
            // The root is left.
            assert_eq!(target.fs().unwrap().statfs().unwrap().inodes, 1, "{profile:?}");
        }
    }

    #[test]
    fn lengths_are_about_the_mean() {
        let target = Target::library(&Place::default(), 64 * MB, 1).unwrap();
        let mut worker = Worker::new(&target, Profile::Fileserver, 0, 1);
        let all: u64 = (0..20_000).map(|_| worker.random_size()).sum();
        let mean = all / 20_000;
        assert!((120 << 10..136 << 10).contains(&mean), "{mean}");
    }
}
