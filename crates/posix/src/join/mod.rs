//! Joining a pool that others have open, from any process: the library's side of direct access.
//!
//! Comes in: the paths of a pool's slots. Goes out: a file system on the arena that all of its
//! clients share ([`join`]), or one opened alone where nobody has the pool, for others to join
//! ([`open`]). Called by: programs that embed a pool, the preloaded library, a mount's daemon.
//! Never here: printing, the command line, a look at `/proc/locks`.
//!
//! Who joins is trusted as the owner of the pool is, and trusts the others: so the arena must be the
//! caller's own, and nobody else may be allowed to write it. It must be of the same meaning
//! ([`ABI`]), of this boot, and of the same pid and time namespaces, or nobody could tell
//! which clients live. A mount that lets the kernel keep what it has read keeps its slots' locks for
//! itself, and can't be joined; `novale mount -o direct` makes one that can.

mod arena_file;
mod error;
mod slots;

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use novale_arena::{Arena, PidInfo, SEGMENT_BYTES_MAX};
use novale_core::{
    ComingSlot, Ctx, Error, Executor, Fs, OpenOptions, PoolInfo, Progress, Served, SlotOpener,
    emulate, identify_slot, inspect, mount_served,
};
use novale_layout::{Ino, MAX_SLOTS, PAGE};
use novale_pm::{Device, Pm, PmError, PmOptions, SlotLock, SlotSpec, unlock_in_children};

pub use arena_file::{ABI, ArenaFile, remove_arenas_of_dead};
pub use error::JoinError;
pub use novale_arena::look_seldom;
pub use novale_pm::{fork_begins, fork_ended, forked};

use crate::costs::measure_costs;
use crate::wall_clock_ns;

/// The attribute of each inode of a mount in which its daemon tells the paths of the pool's slots, with a zero byte
/// between.
pub const SLOTS_TOLD: &str = "system.novale.slots";

/// What an arena may take at least where nothing else is said, bytes.
const ARENA_BYTES_MIN: u64 = 1 << 30;

/// A client of a pool that others may have open as well.
#[derive(Debug)]
pub struct Joined {
    /// The file system.
    pub fs: Arc<Fs>,
    /// The slots, in the pool's order.
    pub slots: Vec<PathBuf>,
    arena: ArenaFile,
    arena_descriptor: Option<RawFd>,
    is_first: bool,
    has_given_up: bool,
}

impl Joined {
    /// Whether nobody had the pool open, so that it was opened here.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether what programs that were killed had only buffered was given up, since the pool is not as they left it.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// The descriptors that the client needs as long as it lives.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let slots = (0..MAX_SLOTS).map_while(|slot| self.fs.pm().slot_file(slot));
        slots.map(AsRawFd::as_raw_fd).chain(self.arena_descriptor)
    }

    /// Where the arena is.
    #[must_use]
    pub fn arena(&self) -> &ArenaFile {
        &self.arena
    }

    /// Leaves; the last client closes the pool and removes its arena. Calls in flight must have
    /// returned; each later one fails.
    ///
    /// # Errors
    /// Those of [`Fs::close`].
    pub fn close(&self) -> Result<(), novale_core::Error> {
        let closed = self.fs.close();
        if self.fs.is_pool_closed() {
            // One that stays is replaced by the pool's next opening.
            self.arena.remove().unwrap_or_default();
        }
        closed
    }
}

/// Joins those who have a pool open. `slots` are all of its slots; in the pool's order it is quickest.
/// Takes about as long as the system calls after it: nothing is read of the files in the pool.
///
/// The access times and the commit form are those of the one who opened the pool. Children that the process makes by
/// `fork` have no part in the slots' locks ([`unlock_in_children`]).
///
/// # Errors
/// [`JoinError`] says why not, and what to do about it.
pub fn join(slots: &[PathBuf]) -> Result<Joined, JoinError> {
    unlock_in_children();
    join_from(slots, 0, slot_opener())
}

/// The same with all descriptors ([`Joined::descriptors`]) from a number on, where a program around
/// does not look for them; `opener` maps slots that others add later, as [`open_coming`] does. Forks are the caller's
/// to tell of ([`fork_begins`]).
///
/// # Errors
/// As [`join`].
pub fn join_from(
    slots: &[PathBuf],
    descriptors: u32,
    opener: Box<SlotOpener>,
) -> Result<Joined, JoinError> {
    let lock = SlotLock::Shared;
    let options = PmOptions { lock, descriptors_from: descriptors, ..PmOptions::default() };
    let (pm, slots) = slots::open(slots, &options)?;
    let info = inspect(&pm)?;
    let name = ArenaFile::of(&pm, info.uuid)?;
    let arena = name.open_from(descriptors)?;
    let options = OpenOptions { now_ns: wall_clock_ns(), ..OpenOptions::of_arena(&arena) };
    let fs = Fs::attach(pm, &arena, &options, PidInfo::current())?;
    // Who starts a program anew after it was killed finds what that one has done. What fails here fails whoever
    // needs the inode.
    fs.settle_cut_off().unwrap_or_default();
    if fs.lacking_slots() != 0 {
        // One was added in between.
        fs.close().unwrap_or_default();
        return Err(Error::Closed.into());
    }
    fs.set_slot_opener(opener);
    let arena_descriptor = arena.file().map(AsRawFd::as_raw_fd);
    Ok(Joined {
        fs: Arc::new(fs),
        slots,
        arena: name,
        arena_descriptor,
        is_first: false,
        has_given_up: false,
    })
}

fn slot_opener() -> Box<SlotOpener> {
    Box::new(|coming| Some(open_coming(coming, 0).ok()?.0))
}

/// Maps a slot that another client has added, on a descriptor from a number on, which is returned with it.
///
/// # Errors
/// Those of [`Pm::open`]; another file at its path is one.
pub fn open_coming(coming: &ComingSlot, descriptors: u32) -> Result<(Pm, RawFd), PmError> {
    let (lock, only) = (SlotLock::Shared, vec![coming.file]);
    let options = PmOptions { lock, only, descriptors_from: descriptors, ..PmOptions::default() };
    let mapped = Pm::open(&[SlotSpec::new(&coming.path)], &options)?;
    let descriptor = mapped.slot_file(0).map_or(-1, AsRawFd::as_raw_fd);
    Ok((mapped, descriptor))
}

/// The mount with a device number as its daemon describes it, and the pool's slots in its order, where
/// that daemon is a client of the pool in `slots`, which this process could [`join`] now. It is the pool
/// that says that the mount is its own.
///
/// # Errors
/// As [`join`].
pub fn served(
    slots: &[PathBuf],
    device: (u32, u32),
) -> Result<Option<(Vec<PathBuf>, Served)>, JoinError> {
    let options = PmOptions { lock: SlotLock::Shared, ..PmOptions::default() };
    let (pm, slots) = slots::open(slots, &options)?;
    let arena = ArenaFile::of(&pm, inspect(&pm)?.uuid)?.open()?;
    Ok(mount_served(&arena, device).map(|served| (slots, served)))
}

/// Whether a living client of the pool whose first slot this is serves the mount with a device number, by what
/// the arena says, which is the caller's own. Descriptors are as for [`join_from`], and closed at the end.
///
/// # Errors
/// As [`join`].
pub fn is_served(first: &Path, descriptors: u32, device: (u32, u32)) -> Result<bool, JoinError> {
    let lock = SlotLock::Shared;
    let options = PmOptions { lock, descriptors_from: descriptors, ..PmOptions::default() };
    let pm = Pm::open(&[SlotSpec::new(first)], &options)?;
    let (pool, _) = identify_slot(&pm, 0)?;
    let arena = ArenaFile::of(&pm, pool)?.open_from(descriptors)?;
    Ok(mount_served(&arena, device).is_some())
}

/// How a pool is opened by the one who comes first.
#[derive(Debug, Default)]
pub struct Opening {
    /// How its slots are mapped; `lock` is chosen here.
    pub pm: PmOptions,
    /// How it is opened.
    pub fs: OpenOptions,
    /// How large the arena may become, in bytes; by the pool's size where nothing is said.
    pub arena_bytes: Option<u64>,
    /// A memory to be emulated for all who join; who joins others takes theirs.
    pub device: Option<Device>,
}

/// Opens a pool that nobody has open, for others to join from then on; where somebody has, and shares
/// it, joins them ([`Joined::is_first`] tells).
///
/// # Errors
/// As [`join`], and those of [`Fs::open`]; [`JoinError::Changing`] where somebody has the slots locked and there is
/// nobody to join.
pub fn open(
    slots: &[PathBuf],
    opening: &Opening,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Joined, JoinError> {
    unlock_in_children();
    let alone = PmOptions { lock: SlotLock::Exclusive, ..opening.pm.clone() };
    let (pm, slots) = match slots::open(slots, &alone) {
        Err(JoinError::NotShared { .. }) => return join_holders(slots),
        opened => opened?,
    };
    let info = inspect(&pm)?;
    let name = ArenaFile::of(&pm, info.uuid)?;
    if !name.live_clients()?.is_empty() {
        // Without the locks that prove it: a program may close descriptors that are not its own.
        drop(pm);
        return join_holders(&slots);
    }
    if name.has_left_behind()? {
        let has_given_up = !name.end_session_of_dead(pm, opening.fs.read_only)?;
        // The arena is gone, and the pool another session's.
        let joined = open(&slots, opening, exec, progress)?;
        return Ok(Joined { has_given_up, ..joined });
    }
    let stored = name.stored_behind()?;
    let arena = name.create(opening.arena_bytes.unwrap_or_else(|| arena_bytes(&info)))?;
    let arena_descriptor = arena.file().map(AsRawFd::as_raw_fd);
    let fs = open_in(pm, (arena, &stored), opening, exec, progress).inspect_err(|_| {
        name.remove().unwrap_or_default();
    })?;
    fs.set_slot_opener(slot_opener());
    fs.pm().share()?;
    Ok(Joined {
        fs: Arc::new(fs),
        slots,
        arena: name,
        arena_descriptor,
        is_first: true,
        has_given_up: false,
    })
}

/// Joins those who have a pool. That they do was seen, so it is there, whether they can be joined or not.
fn join_holders(slots: &[PathBuf]) -> Result<Joined, JoinError> {
    match join(slots) {
        Err(JoinError::NotOpen) => Err(JoinError::Changing),
        joined => joined,
    }
}

/// Opens a pool in its new arena, with the device that it is to be on, and by what its memory costs then. `stored` are
/// the files of [`ArenaFile::stored_behind`], of the arena before.
///
/// # Errors
/// Those of [`Fs::open`], and [`JoinError::Device`].
pub fn open_in(
    mut pm: Pm,
    (arena, stored): (Arena, &BTreeSet<Ino>),
    opening: &Opening,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Fs, JoinError> {
    if let Some(device) = &opening.device {
        emulate(&mut pm, &arena, device)?;
    }
    let mut options = opening.fs;
    measure_costs(&pm, &mut options);
    let fs = Fs::open(pm, arena, &options, exec, progress)?;
    fs.sync_left(&Ctx { now_ns: options.now_ns, hint: 0 }, stored);
    Ok(fs)
}

/// How large an arena may become where nothing else is said: a quarter of the pool, in bytes. Memory
/// is used as it is needed.
#[must_use]
pub fn arena_bytes(pool: &PoolInfo) -> u64 {
    let pages: u64 = pool.slots.iter().map(|slot| slot.pages).sum();
    (pages.saturating_mul(PAGE) / 4).clamp(ARENA_BYTES_MIN, SEGMENT_BYTES_MAX)
}
