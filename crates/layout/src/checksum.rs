//! CRC32C, seeded by what a structure belongs to.

use novale_crc::append;

use crate::error::check_crc;
use crate::{Ino, LayoutError, LogLink, PmAddr};

/// The start of a checksum: the CRC32C of the names of what the bytes belong to.
///
/// A line that turns up in another pool, inode, generation or place fails its checksum there,
/// because its seed is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The seed of what belongs to the pool.
    #[inline]
    #[must_use]
    pub fn pool(uuid: &[u8; 16]) -> Self {
        Self(append(0, uuid))
    }

    /// The seed of what belongs to an inode.
    #[inline]
    #[must_use]
    pub fn ino(self, ino: Ino) -> Self {
        self.word(ino.get())
    }

    /// The seed of what belongs to one life of an inode.
    #[inline]
    #[must_use]
    pub fn generation(self, generation: u32) -> Self {
        Self(append(self.0, &generation.to_le_bytes()))
    }

    /// The seed of what belongs to a place.
    #[inline]
    #[must_use]
    pub fn addr(self, addr: PmAddr) -> Self {
        self.word(addr.raw())
    }

    /// The checksum of `bytes` under this seed.
    #[inline]
    #[must_use]
    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        append(self.0, bytes)
    }

    /// A line with its checksum in its last four bytes, over all that is before.
    #[inline]
    #[must_use]
    pub(crate) fn seal(self, mut line: [u8; 64]) -> [u8; 64] {
        if let Some((bytes, crc)) = line.split_last_chunk_mut::<4>() {
            *crc = self.checksum(bytes).to_le_bytes();
        }
        line
    }

    /// Refuses a line whose last four bytes are not the checksum of what is before.
    #[inline]
    pub(crate) fn check_sealed(
        self,
        line: &[u8; 64],
        structure: &'static str,
    ) -> Result<(), LayoutError> {
        let Some((bytes, crc)) = line.split_last_chunk::<4>() else { return Ok(()) };
        check_crc(structure, self.checksum(bytes), u32::from_le_bytes(*crc))
    }

    #[inline]
    fn word(self, word: u64) -> Self {
        Self(append(self.0, &word.to_le_bytes()))
    }
}

/// A running CRC32C.
#[derive(Debug, Clone, Copy, Default)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The checksum of no bytes.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// The checksum of no bytes under a seed.
    #[inline]
    #[must_use]
    pub const fn seeded(seed: Seed) -> Self {
        Self(seed.0)
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = append(self.0, bytes);
    }

    /// The checksum of all bytes so far.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u32 {
        self.0
    }
}

/// The running data checksum of a single-fence commit.
///
/// It covers, from the log's head to its tail, each entry whose `op_seq` is the commit line's: the
/// link to the log page that it opens, where it opens one; its bytes; the checksum of each page
/// that it maps, so that pages can be summed while they are copied, before the entry is made.
/// `docs/SPEC.md`, "Data checksum", has the exact order.
#[derive(Debug, Clone, Copy)]
pub struct DataCrc(Crc32c);

impl DataCrc {
    /// Starts the checksum of one inode's commit line; `seed` is pool, ino, generation.
    #[inline]
    #[must_use]
    pub fn new(seed: Seed, op_seq: u64) -> Self {
        Self(Crc32c::seeded(seed.word(op_seq)))
    }

    /// Starts the checksum of a journal record, to which each line adds itself by
    /// [`DataCrc::line`].
    #[inline]
    #[must_use]
    pub fn record(pool_seed: Seed) -> Self {
        Self(Crc32c::seeded(pool_seed))
    }

    /// Opens the part of the record's next line; its data checksum follows.
    #[inline]
    pub fn line(&mut self, ino: Ino, op_seq: u64) {
        self.bytes(&ino.get().to_le_bytes());
        self.bytes(&op_seq.to_le_bytes());
    }

    /// Adds the link to a log page whose first entry comes next: of the log's first page its address
    /// alone.
    #[inline]
    pub fn link(&mut self, link: LogLink) {
        self.bytes(&link.raw().to_le_bytes());
    }

    /// Adds an entry's bytes, or an identity line.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds the checksum (without a seed) of a data page that the entry maps; in a record, the
    /// data checksum of the line's own entries.
    #[inline]
    pub fn crc(&mut self, crc: u32) {
        self.bytes(&crc.to_le_bytes());
    }

    /// The checksum.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u32 {
        self.0.finish()
    }
}
