//! A pool's slots in memory files: they outlive the mapping, as memory outlives a process, and are
//! gone with the last descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use rustix::fs::{MemfdFlags, memfd_create};

/// The slots.
#[derive(Debug, Default)]
pub struct PoolFile {
    files: Vec<File>,
}

impl PoolFile {
    /// Zeroed slots of these lengths in bytes.
    ///
    /// # Errors
    /// No memory, or no descriptors.
    pub fn zeroed(lens: &[u64]) -> io::Result<Self> {
        let file = |len: &u64| {
            let file = File::from(memfd_create("novale-lab", MemfdFlags::CLOEXEC)?);
            file.set_len(*len)?;
            Ok(file)
        };
        Ok(Self { files: lens.iter().map(file).collect::<io::Result<_>>()? })
    }

    /// Maps them.
    ///
    /// # Errors
    /// What `Pm` says.
    pub fn open(&self, options: &PmOptions) -> Result<Pm, String> {
        // The machine that died may hold the slots still; nobody else knows of them.
        let options = PmOptions { lock: SlotLock::Held, ..options.clone() };
        Pm::open(&self.specs(), &options).map_err(|why| why.to_string())
    }

    /// Where each slot is mapped from.
    #[must_use]
    pub fn specs(&self) -> Vec<SlotSpec> {
        let path = |file: &File| SlotSpec::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        self.files.iter().map(path).collect()
    }

    /// All bytes of a slot.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn contents(&self, slot: u8) -> io::Result<Vec<u8>> {
        let file = self.files.get(usize::from(slot)).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// All bytes of all slots.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn slots(&self) -> io::Result<Vec<Vec<u8>>> {
        (0..).zip(&self.files).map(|(slot, _)| self.contents(slot)).collect()
    }

    /// Stores bytes from outside, as a crash image does.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn put(&self, slot: u8, byte: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.files.get(usize::from(slot)).ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(bytes, byte)
    }
}
