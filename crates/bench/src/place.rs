//! The memory that benchmarks run on: private, or a file in a folder such as /dev/shm, populated,
//! on 2 MB pages where the kernel gives them.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use novale_arena::Arena;
use novale_core::{Executor, Form, Fs, MkfsOptions, OpenOptions, Serial, UpdatePolicy, mkfs};
use novale_pm::{Device, MODEL_WORDS, Model, Pm, PmOptions, SlotSpec};
use tempfile::TempPath;

/// One MB in bytes.
pub(crate) const MB: u64 = 1 << 20;
/// What the arena may grow to.
pub(crate) const ARENA_BYTES: u64 = 1024 * MB;
/// The time at which pools are made and opened, ns; a benchmark's own clock goes on from here.
pub(crate) const EPOCH_NS: i64 = 1_700_000_000_000_000_000;

/// Where pools lie.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// A folder for slot files; none: private memory.
    pub(crate) folder: Option<PathBuf>,
    /// Stay on 4 KB pages.
    pub(crate) small_pages: bool,
    /// A memory to emulate.
    pub(crate) device: Option<Device>,
}

/// Mapped memory; its file, where it has one, goes with it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) pm: Pm,
    file: Option<TempPath>,
}

impl Place {
    /// Maps and populates `bytes` bytes.
    pub(crate) fn memory(&self, bytes: u64) -> Result<Memory> {
        let options =
            PmOptions { populate: true, hugepages: !self.small_pages, ..PmOptions::default() };
        let Some(folder) = &self.folder else {
            let pm = self.emulated(Pm::anonymous(&[bytes], &options)?)?;
            return Ok(Memory { pm, file: None });
        };
        let file = tempfile::Builder::new()
            .prefix("novale-bench-")
            .tempfile_in(folder)
            .with_context(|| format!("no slot file can be made in {}", folder.display()))?;
        file.as_file().set_len(bytes)?;
        let path = file.into_temp_path();
        let pm = self.emulated(Pm::open(&[SlotSpec::new(&*path)], &options)?)?;
        let file = Some(path);
        Ok(Memory { pm, file })
    }

    /// On the memory that is to be emulated.
    fn emulated(&self, mut pm: Pm) -> Result<Pm> {
        if let Some(device) = self.device.filter(|device| !device.is_own()) {
            let words = [const { AtomicU64::new(0) }; MODEL_WORDS];
            pm.set_model(Model::start(&device, Box::new(words))?)?;
        }
        Ok(pm)
    }

    /// Makes a pool of one slot and opens it.
    pub(crate) fn pool(&self, bytes: u64, lanes: u32, form: Form) -> Result<Pool> {
        self.pool_by(bytes, lanes, form, UpdatePolicy::Auto)
    }

    /// The same, whose writes take these methods.
    pub(crate) fn pool_by(
        &self,
        bytes: u64,
        lanes: u32,
        form: Form,
        update: UpdatePolicy,
    ) -> Result<Pool> {
        self.pool_as(bytes, lanes, &OpenOptions { form, update: Some(update), ..options() })
    }

    /// The same, opened so.
    pub(crate) fn pool_as(&self, bytes: u64, lanes: u32, options: &OpenOptions) -> Result<Pool> {
        let (pm, file) = self.made(bytes, lanes)?;
        Ok(Pool { fs: open_as(pm, options, &Serial, ARENA_BYTES)?, file })
    }

    /// Makes a pool of several slots in private memory, and opens it.
    pub(crate) fn pool_of_slots(
        &self,
        slots: &[u64],
        lanes: u32,
        options: &OpenOptions,
    ) -> Result<Fs> {
        let pm = PmOptions { populate: true, hugepages: !self.small_pages, ..PmOptions::default() };
        let pm = self.emulated(Pm::anonymous(slots, &pm)?)?;
        mkfs(&pm, &mkfs_options(slots.len(), lanes))?;
        open_as(pm, options, &Serial, ARENA_BYTES)
    }

    /// Makes a pool of one slot.
    pub(crate) fn made(&self, bytes: u64, lanes: u32) -> Result<(Pm, Option<TempPath>)> {
        let Memory { pm, file } = self.memory(bytes)?;
        mkfs(&pm, &mkfs_options(1, lanes))?;
        Ok((pm, file))
    }

    /// What a report says of the memory.
    pub(crate) fn describe(&self) -> String {
        let pages =
            if self.small_pages { "4 KB pages" } else { "2 MB pages where the kernel gives them" };
        let kind = match &self.folder {
            None => "private anonymous memory".to_owned(),
            Some(folder) => format!("a file in {}", folder.display()),
        };
        let device = self.device.filter(|device| !device.is_own());
        let device = device.map_or_else(
            || "DRAM standing in for NVMM".to_owned(),
            |device| format!("{device} (a model, on DRAM)"),
        );
        format!("{kind}, populated, {pages}; {device}")
    }
}

fn mkfs_options(slots: usize, lanes: u32) -> MkfsOptions {
    MkfsOptions { now_ns: EPOCH_NS, ..MkfsOptions::numbered(slots, lanes) }
}

/// Opens the pool in this memory with a new view of at most `arena_bytes` bytes.
pub(crate) fn open_sized(pm: Pm, form: Form, exec: &dyn Executor, arena_bytes: u64) -> Result<Fs> {
    open_as(pm, &OpenOptions { form, ..options() }, exec, arena_bytes)
}

pub(crate) fn options() -> OpenOptions {
    OpenOptions { now_ns: EPOCH_NS, ..OpenOptions::default() }
}

/// The same, opened so.
pub(crate) fn open_as(
    pm: Pm,
    options: &OpenOptions,
    exec: &dyn Executor,
    arena_bytes: u64,
) -> Result<Fs> {
    let arena = Arena::anonymous(arena_bytes)?;
    Ok(Fs::open(pm, arena, options, exec, &|_| {})?)
}

/// An open file system; the file of its slot goes with it.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) fs: Fs,
    file: Option<TempPath>,
}

impl Pool {
    /// The file system, and what to keep for as long as it is in use.
    pub(crate) fn into_parts(self) -> (Fs, Option<TempPath>) {
        (self.fs, self.file)
    }
}
