//! Making a pool.

use novale_layout::{
    BAD_PAGE_LIST_PAGE, COMMIT_OFFSETS, CommitLine, FIRST_FREE_PAGE, FileKind, IDENTITY_VERSION,
    INODE_DIRECTORY_PAGE, INODE_SIZE, INODES_PER_PAGE, IdentityLine, Ino, LANE_TABLE_PAGE,
    MAX_LANES, MAX_SLOTS, PAGE, PmAddr, PoolState, RoFeature, Roots, SLOT_HEADER_OFFSET,
    SLOT_STATE_OFFSETS, Seed, SlotHeader, SlotState, Superblock, WEAR_PAGE,
};
use novale_pm::{Pm, Purpose, SlotKind};
use novale_policy::{Mode, UpdatePolicy};

use crate::base::error::{Error, Result};
use crate::inode::numbers::{INODE_PAGES_AT_ONCE, stream_unwritten};
use crate::inode::state::InodePlace;
use crate::pool::{store_pool_state, store_slot_state};

/// Smallest first slot, in bytes: it holds the first inodes and lanes.
pub const FIRST_SLOT_BYTES_MIN: u64 = 2 << 20;
/// Smallest further slot, in bytes.
pub const SLOT_BYTES_MIN: u64 = 1 << 20;

/// How to make a pool.
#[derive(Debug, Clone)]
pub struct MkfsOptions {
    /// Lanes, 1 to 512: about one for each CPU that will use the pool at once.
    pub lanes: u32,
    /// The pool's name.
    pub pool_uuid: [u8; 16],
    /// The slots' names, one each.
    pub slot_uuids: Vec<[u8; 16]>,
    /// Time, ns since 1970.
    pub now_ns: i64,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// Which methods writes take where neither the file nor the one who opens the pool says so.
    pub update: Option<UpdatePolicy>,
    /// When writes become durable, likewise.
    pub mode: Option<Mode>,
    /// Writes that a cell of each slot endures, 0: unknown; slots that it does not reach are unknown.
    pub endurance: Vec<u64>,
}

impl MkfsOptions {
    /// A pool that is the same whenever it is made: its slots are named by their numbers from 1, the
    /// root directory is user 0's and as old as 1970. For tests and measurements.
    #[must_use]
    pub fn numbered(slots: usize, lanes: u32) -> Self {
        Self {
            lanes,
            pool_uuid: [7; 16],
            slot_uuids: (1..=u8::MAX).take(slots).map(|slot| [slot; 16]).collect(),
            now_ns: 1,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            update: None,
            mode: None,
            endurance: Vec::new(),
        }
    }
}

/// Makes an empty pool. A crash in the middle leaves none: what makes it one is written last, and not where a slot
/// has failed meanwhile.
///
/// # Errors
/// [`Error::BadPool`] for too small a slot, too many slots or lanes; [`Error::Lost`] where one has failed.
pub fn mkfs(pm: &Pm, options: &MkfsOptions) -> Result<()> {
    let pages = check(pm, options)?;
    // What an earlier pool left goes first, and durably.
    let mut pending = novale_pm::Flushed::none();
    for (slot, pages) in (0..).zip(&pages) {
        for page in (0..FIRST_FREE_PAGE).chain([pages - 1]) {
            pending =
                pending.and(pm.stream_zero(PmAddr::new(slot, page * PAGE), PAGE, Purpose::Other));
        }
    }
    pm.fence(pending).end();

    let seed = Seed::pool(&options.pool_uuid);
    let upper = PmAddr::new(0, FIRST_FREE_PAGE * PAGE);
    let table = upper.add(PAGE);
    let inodes = table.add(PAGE);
    let fixed = 2 + INODE_PAGES_AT_ONCE;
    let lanes_at = FIRST_FREE_PAGE + fixed;
    let mut pending = pm.stream_zero(upper, 2 * PAGE, Purpose::Inode);
    for page in 0..INODE_PAGES_AT_ONCE {
        let (first, at) = (Ino::new(page * INODES_PER_PAGE), inodes.add(page * PAGE));
        pending = pending.and(stream_unwritten(pm, seed, first, at));
    }
    pending = pending.and(write_lanes(pm, options.lanes, &pages, lanes_at));
    let root = InodePlace::new(seed, Ino::ROOT, inodes.add(Ino::ROOT.index() * INODE_SIZE));
    // These are streamed; what is stored over them must come after them.
    pm.fence(pending).end();
    let mut pending = write_root(pm, &root, options);
    let word =
        |at: PmAddr, value: PmAddr| pm.write_back(pm.store_u64(at, value.raw(), Purpose::Inode));
    let directory = PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE);
    pending = pending.and(word(upper, table)).and(word(directory, upper));
    for page in 0..INODE_PAGES_AT_ONCE {
        pending = pending.and(word(table.add(page * 8), inodes.add(page * PAGE)));
    }
    for (slot, pages) in (0..).zip(&pages) {
        pending = pending.and(write_slot(pm, options, slot, *pages, seed));
    }
    pending = pending.and(store_pool_state(
        pm,
        seed,
        &PoolState { seq: 1, session: 1, flags: PoolState::CLEAN, ..PoolState::default() },
    ));
    pm.fence(pending).end();
    refuse_failed(pm)?;
    write_superblock(pm, options, &pages);
    refuse_failed(pm)
}

/// Refuses slots of which one was cut off, say, while it was written.
fn refuse_failed(pm: &Pm) -> Result<()> {
    let failed = pm.health().failed;
    let slot = u8::try_from(failed.trailing_zeros()).ok().filter(|_| failed != 0);
    slot.map_or(Ok(()), |slot| Err(Error::Lost(PmAddr::new(slot, 0))))
}

/// Checks the options; returns the pages of each slot.
fn check(pm: &Pm, options: &MkfsOptions) -> Result<Vec<u64>> {
    let count = pm.slot_count();
    if options.slot_uuids.len() != usize::from(count) {
        let names = options.slot_uuids.len();
        return Err(Error::BadPool(format!("{names} names for {count} slots")));
    }
    let lens: Vec<u64> = (0..count).map(|slot| pm.slot_len(slot)).collect();
    mkfs_check(&lens, options.lanes)?;
    Ok(lens.iter().map(|len| len / PAGE).collect())
}

/// Whether slots of these lengths, in bytes, can be a pool of so many lanes: what [`mkfs`] refuses,
/// told before anything is done with the slots.
///
/// # Errors
/// [`Error::BadPool`] for too small a slot, too many slots or lanes.
pub fn mkfs_check(lens: &[u64], lanes: u32) -> Result<()> {
    if lens.is_empty() || lens.len() > usize::from(MAX_SLOTS) {
        let count = lens.len();
        return Err(Error::BadPool(format!("a pool has 1 to {MAX_SLOTS} slots, not {count}")));
    }
    if lanes == 0 || lanes > MAX_LANES {
        return Err(Error::BadPool(format!("a pool has 1 to {MAX_LANES} lanes, not {lanes}")));
    }
    for (slot, &len) in lens.iter().enumerate() {
        let least = if slot == 0 { FIRST_SLOT_BYTES_MIN } else { SLOT_BYTES_MIN };
        if len < least {
            return Err(Error::BadPool(format!(
                "slot {slot} has {len} bytes; it needs at least {least}"
            )));
        }
    }
    let first = lens.first().map_or(0, |len| len / PAGE);
    if FIRST_FREE_PAGE + 2 + INODE_PAGES_AT_ONCE + u64::from(lanes) + 64 > first {
        return Err(Error::BadPool(format!(
            "{lanes} lanes do not fit the first slot: give fewer, or a larger slot"
        )));
    }
    Ok(())
}

/// A page for each lane, spread over the slots, and the table that names them.
fn write_lanes(pm: &Pm, lanes: u32, pages: &[u64], first_free: u64) -> novale_pm::Flushed {
    let mut next: Vec<u64> = pages.iter().map(|_| FIRST_FREE_PAGE).collect();
    if let Some(first) = next.first_mut() {
        *first = first_free;
    }
    let table = PmAddr::new(0, LANE_TABLE_PAGE * PAGE);
    let mut pending = novale_pm::Flushed::none();
    for lane in 0..u64::from(lanes) {
        let turn = usize::try_from(lane).unwrap_or(0) % pages.len();
        // A small further slot keeps most of its pages; its share goes to the first one.
        let slot =
            if next.get(turn).zip(pages.get(turn)).is_some_and(|(next, pages)| *next < pages / 4) {
                turn
            } else {
                0
            };
        let Some(page) = next.get_mut(slot) else {
            continue;
        };
        let addr = PmAddr::new(u8::try_from(slot).unwrap_or(0), *page * PAGE);
        *page += 1;
        let named = pm.store_u64(table.add(lane * 8), addr.raw(), Purpose::Other);
        pending =
            pending.and(pm.stream_zero(addr, PAGE, Purpose::Journal)).and(pm.write_back(named));
    }
    pending
}

fn write_root(pm: &Pm, place: &InodePlace, options: &MkfsOptions) -> novale_pm::Flushed {
    let identity = IdentityLine {
        version: IDENTITY_VERSION,
        kind: FileKind::Directory,
        policy: 0,
        ino: Ino::ROOT,
        generation: 1,
        mode: options.root_mode & 0o7777,
        uid: options.root_uid,
        gid: options.root_gid,
        birth_ns: options.now_ns,
        rdev: 0,
        flags: 0,
        project: 0,
        xattr_root: PmAddr::NULL,
    };
    let line = CommitLine {
        op_seq: (1 << 32) + 1,
        mtime_ns: options.now_ns,
        ctime_ns: options.now_ns,
        nlink: 2,
        session: 1,
        ..CommitLine::default()
    };
    let [first, _] = COMMIT_OFFSETS;
    place.store_identity(pm, &identity.encode(place.seed)).and(pm.stream(
        place.addr.add(first),
        &line.encode(place.seed),
        Purpose::Commit,
    ))
}

fn write_slot(
    pm: &Pm,
    options: &MkfsOptions,
    slot: u8,
    pages: u64,
    seed: Seed,
) -> novale_pm::Flushed {
    let [state_offset, _] = SLOT_STATE_OFFSETS;
    let header = SlotHeader {
        pool_uuid: options.pool_uuid,
        slot_uuid: options.slot_uuids.get(usize::from(slot)).copied().unwrap_or_default(),
        index: slot,
        kind: match pm.slot_kind(slot) {
            SlotKind::File | SlotKind::Anonymous => 0,
            SlotKind::DaxFile => 1,
            SlotKind::DaxDevice => 2,
        },
        pages,
        endurance: options.endurance.get(usize::from(slot)).copied().unwrap_or(0),
        wear_offset: WEAR_PAGE * PAGE,
        bad_pages_offset: BAD_PAGE_LIST_PAGE * PAGE,
        state_offset,
    }
    .encode();
    let state = SlotState { seq: 1, session: 1, ..SlotState::default() };
    let mut pending = store_slot_state(pm, seed, slot, &state);
    for page in [0, pages - 1] {
        let at = PmAddr::new(slot, page * PAGE + SLOT_HEADER_OFFSET);
        pending = pending.and(pm.stream(at, &header, Purpose::Other));
    }
    pending
}

/// The superblock and its replica: after either there is a pool.
fn write_superblock(pm: &Pm, options: &MkfsOptions, pages: &[u64]) {
    let last_slot = pm.slot_count() - 1;
    let superblock = Superblock {
        pool_uuid: options.pool_uuid,
        features_compat: 0,
        features_ro_compat: RoFeature::Unwritten.bit(),
        features_incompat: 0,
        lane_count: options.lanes,
        slot_count: pm.slot_count(),
        default_policy: options.update.map_or(0, UpdatePolicy::number)
            | options.mode.map_or(0, Mode::bits),
        created_ns: options.now_ns,
        roots: Roots::fixed(),
    }
    .encode();
    let last_page = pages.last().map_or(0, |pages| pages - 1);
    let replica = pm.stream(PmAddr::new(last_slot, last_page * PAGE), &superblock, Purpose::Other);
    pm.fence(pm.stream(PmAddr::new(0, 0), &superblock, Purpose::Other).and(replica)).end();
}
