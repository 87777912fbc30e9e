//! The superblock: what a pool is.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::{
    Crc32c, FORMAT_VERSION, INODE_DIRECTORY_PAGE, LANE_TABLE_PAGE, LINE, LayoutError, MAX_LANES,
    MAX_SLOTS, PAGE, PmAddr,
};

/// Bytes of the superblock, which opens page 0 of slot 0 and the last page of the last slot.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// The checksum kind that means CRC32C.
pub const CHECKSUM_CRC32C: u8 = 1;

const SUPERBLOCK: &str = "superblock";
pub(crate) const MAGIC: [u8; 8] = *b"NovalePM";

raw! {
    struct RawSuperblock, "Superblock", 1024 {
        0 magic: U64,
        8 version: U32,
        12 crc: U32,
        16 pool_uuid: [u8; 16],
        32 features_compat: U64,
        40 features_ro_compat: U64,
        48 features_incompat: U64,
        56 page_size: U32,
        60 line_size: U32,
        64 checksum_kind: u8,
        65 slot_count: u8,
        66 default_policy: u8,
        67 pad: u8,
        68 lane_count: U32,
        72 created_ns: I64,
        80 inode_directory: U64,
        88 lane_table: U64,
        96 pair_tables: U64,
        104 undo_tables: U64,
        112 descriptor_tables: U64,
        120 page_checksums: U64,
        128 shared_pages: U64,
        136 snapshots: U64,
        144 quota: U64,
        152 lost_found: U64,
        160 reserved: [u8; 864],
    }
}

/// A feature that a program must know to write a pool: a bit of `features_ro_compat`, set for good
/// before the feature is first used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoFeature {
    /// Inodes may have extended attributes, whose pages another program would take for free.
    Xattrs,
    /// Inodes may count for directory trees, which another program would leave out of new ones.
    Trees,
    /// A page may stand in several entries of an inode, of which the last one counts.
    MovedPages,
    /// The data checksum of a commit line may be of the last bytes of the file, whatever entry maps
    /// them: another program would take the commit for one of which a part is missing.
    Appends,
    /// A log may hold bytes of the file that are newer than those where they lie: another program would
    /// show the older ones after a crash.
    Redo,
    /// A page of a file may have two copies: another program would take the second for free, and show
    /// older bytes.
    Pairs,
    /// A log may name bytes elsewhere in the pool that are newer than those of the file: as `Redo`.
    Sources,
    /// Pages of a file may share the page that their second copies lie in: as `Pairs`.
    Slots,
    /// Lines of inodes that were never written say so, and zeros are damage: another program would make
    /// pages of inodes that are zeros.
    Unwritten,
}

impl RoFeature {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 9] = [
        Self::Xattrs,
        Self::Trees,
        Self::MovedPages,
        Self::Appends,
        Self::Redo,
        Self::Pairs,
        Self::Sources,
        Self::Slots,
        Self::Unwritten,
    ];
    /// The bits of all of them.
    pub const KNOWN: u64 = (1 << Self::ALL.len()) - 1;

    /// Its bit.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// Where the tables of the pool start: pages, or null where a pool has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roots {
    /// The root page of the inode directory; never null.
    pub inode_directory: PmAddr,
    /// The page that names each lane's page; never null.
    pub lane_table: PmAddr,
    /// The pair tables, by lane.
    pub pair_tables: PmAddr,
    /// The undo tables, by lane.
    pub undo_tables: PmAddr,
    /// The slice descriptor tables, by lane.
    pub descriptor_tables: PmAddr,
    /// The table of page checksums.
    pub page_checksums: PmAddr,
    /// The reference counts of shared pages.
    pub shared_pages: PmAddr,
    /// The snapshots.
    pub snapshots: PmAddr,
    /// The quota records.
    pub quota: PmAddr,
    /// The pages that a repair found without an owner.
    pub lost_found: PmAddr,
}

impl Roots {
    /// Those of a pool without any feature that has a table of its own: all that there are by now.
    #[must_use]
    pub fn fixed() -> Self {
        Self {
            inode_directory: PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE),
            lane_table: PmAddr::new(0, LANE_TABLE_PAGE * PAGE),
            ..Self::default()
        }
    }
}

/// What a pool is, written by mkfs and by a change of features.
///
/// It has no seed: it names its pool itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// The pool.
    pub pool_uuid: [u8; 16],
    /// Features that a program may ignore.
    pub features_compat: u64,
    /// Features that a program must know to write.
    pub features_ro_compat: u64,
    /// Features that a program must know to read.
    pub features_incompat: u64,
    /// The number of lanes, 1 to 512.
    pub lane_count: u32,
    /// The number of slots, 1 to 64.
    pub slot_count: u8,
    /// The update policy of inodes that name none.
    pub default_policy: u8,
    /// When the pool was made, ns since 1970.
    pub created_ns: i64,
    /// Where its tables start.
    pub roots: Roots,
}

impl Superblock {
    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let roots = &self.roots;
        let mut raw = RawSuperblock {
            magic: u64::from_le_bytes(MAGIC).into(),
            version: FORMAT_VERSION.into(),
            crc: U32::ZERO,
            pool_uuid: self.pool_uuid,
            features_compat: self.features_compat.into(),
            features_ro_compat: self.features_ro_compat.into(),
            features_incompat: self.features_incompat.into(),
            page_size: 4096.into(),
            line_size: 64.into(),
            checksum_kind: CHECKSUM_CRC32C,
            slot_count: self.slot_count,
            default_policy: self.default_policy,
            pad: 0,
            lane_count: self.lane_count.into(),
            created_ns: self.created_ns.into(),
            inode_directory: roots.inode_directory.raw().into(),
            lane_table: roots.lane_table.raw().into(),
            pair_tables: roots.pair_tables.raw().into(),
            undo_tables: roots.undo_tables.raw().into(),
            descriptor_tables: roots.descriptor_tables.raw().into(),
            page_checksums: roots.page_checksums.raw().into(),
            shared_pages: roots.shared_pages.raw().into(),
            snapshots: roots.snapshots.raw().into(),
            quota: roots.quota.raw().into(),
            lost_found: roots.lost_found.raw().into(),
            reserved: [0; 864],
        };
        let bytes: [u8; SUPERBLOCK_BYTES] = transmute!(raw);
        raw.crc = superblock_checksum(&bytes).into();
        transmute!(raw)
    }

    /// Checks bytes that were read back; features are the caller's to check.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, else the first thing that is wrong: magic and
    /// version first, so that another format is called that and not damage.
    pub fn decode(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self, LayoutError> {
        if bytes == &[0; SUPERBLOCK_BYTES] {
            return Err(LayoutError::Blank);
        }
        let raw: RawSuperblock = transmute!(*bytes);
        let magic = raw.magic.get();
        check(magic == u64::from_le_bytes(MAGIC), SUPERBLOCK, "magic", "NovalePM", magic)?;
        let version = raw.version.get();
        check(version == FORMAT_VERSION, SUPERBLOCK, "version", "1", version.into())?;
        check_crc(SUPERBLOCK, superblock_checksum(bytes), raw.crc.get())?;
        let page_size = u64::from(raw.page_size.get());
        check(page_size == PAGE, SUPERBLOCK, "page_size", "4096", page_size)?;
        let line_size = u64::from(raw.line_size.get());
        check(line_size == LINE, SUPERBLOCK, "line_size", "64", line_size)?;
        let checksum = raw.checksum_kind;
        check(checksum == CHECKSUM_CRC32C, SUPERBLOCK, "checksum_kind", "1", checksum.into())?;
        let lane_count = raw.lane_count.get();
        let lanes_ok = (1..=MAX_LANES).contains(&lane_count);
        check(lanes_ok, SUPERBLOCK, "lane_count", "1 to 512", lane_count.into())?;
        let slot_count = raw.slot_count;
        let slots_ok = (1..=MAX_SLOTS).contains(&slot_count);
        check(slots_ok, SUPERBLOCK, "slot_count", "1 to 64", slot_count.into())?;
        Ok(Self {
            pool_uuid: raw.pool_uuid,
            features_compat: raw.features_compat.get(),
            features_ro_compat: raw.features_ro_compat.get(),
            features_incompat: raw.features_incompat.get(),
            lane_count,
            slot_count,
            default_policy: raw.default_policy,
            created_ns: raw.created_ns.get(),
            roots: decode_roots(&raw)?,
        })
    }
}

fn decode_roots(raw: &RawSuperblock) -> Result<Roots, LayoutError> {
    let page = |word: U64, field| PmAddr::decode_page(word.get(), SUPERBLOCK, field);
    let inode_directory = page(raw.inode_directory, "inode_directory")?;
    let lane_table = page(raw.lane_table, "lane_table")?;
    check(!inode_directory.is_null(), SUPERBLOCK, "inode_directory", "a page", 0)?;
    check(!lane_table.is_null(), SUPERBLOCK, "lane_table", "a page", 0)?;
    Ok(Roots {
        inode_directory,
        lane_table,
        pair_tables: page(raw.pair_tables, "pair_tables")?,
        undo_tables: page(raw.undo_tables, "undo_tables")?,
        descriptor_tables: page(raw.descriptor_tables, "descriptor_tables")?,
        page_checksums: page(raw.page_checksums, "page_checksums")?,
        shared_pages: page(raw.shared_pages, "shared_pages")?,
        snapshots: page(raw.snapshots, "snapshots")?,
        quota: page(raw.quota, "quota")?,
        lost_found: page(raw.lost_found, "lost_found")?,
    })
}

fn superblock_checksum(bytes: &[u8; SUPERBLOCK_BYTES]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&bytes[..12]);
    crc.update(&bytes[16..]);
    crc.finish()
}
