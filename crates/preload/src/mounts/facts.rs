//! What the kernel says of mounts without asking whom they are served by: by the number of a mount that is
//! never given twice (Linux 6.8).

use std::mem::MaybeUninit;

use crate::base::sys::sys;

/// Of Linux 6.8.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
/// Bytes of a question to both.
const QUESTION_BYTES: u64 = 32;
/// What is asked for: the superblock's and the mount's basics.
const BASICS: u64 = 3;
pub(crate) const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Flags of a mount, and of a superblock the first one, as the kernel calls them.
pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const NO_EXEC: u64 = 8;
/// Mounts in mounts that are looked at.
const ABOVE_MAX: usize = 16;
const ID_MAPPED: u64 = 0x10_0000;
const NO_SYM_FOLLOW: u64 = 0x20_0000;
/// File systems as their superblocks call themselves: those of programs, and that of processes.
const OF_PROGRAMS: u64 = 0x6573_5546;
const OF_PROCESSES: u64 = libc::PROC_SUPER_MAGIC as u64;

/// What a path or a descriptor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) device: u64,
    /// The mount's number that is never given twice.
    pub(crate) mount: u64,
    pub(crate) ino: u64,
    pub(crate) is_directory: bool,
    pub(crate) is_link: bool,
    /// It is the root of its mount.
    pub(crate) is_root: bool,
    pub(crate) size: u64,
    pub(crate) owner: u32,
    /// When it was changed, its name too: seconds, nanoseconds.
    changed: (i64, u32),
}

impl Seen {
    /// Whether two looks have shown one and the same, whatever has become of it between them.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let identity = |seen: &Self| (seen.device, seen.mount, seen.ino);
        identity(self) == identity(other)
    }
}

/// Looks at what a path, with a NUL, leads to from a directory, or at a descriptor with an empty one. What
/// it leads to is not asked; file systems on the way are. Nothing where the kernel numbers no mount for good.
pub(crate) fn look(dir: i32, path: &[u8], flags: i32) -> Option<Seen> {
    look_at(dir, path, flags, STATX_MNT_ID_UNIQUE)
}

/// As [`look`], where the kernel numbers no mount for good: the mount is told by the number that may be another's one
/// day.
pub(crate) fn guess(dir: i32, path: &[u8]) -> Option<Seen> {
    look_at(dir, path, 0, libc::STATX_MNT_ID)
}

fn look_at(dir: i32, path: &[u8], flags: i32, number: u32) -> Option<Seen> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let of_empty = if path.first() == Some(&0) { libc::AT_EMPTY_PATH } else { 0 };
    let flags = flags | of_empty | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let known = libc::STATX_TYPE | libc::STATX_INO | number;
    let mask = known | libc::STATX_SIZE | libc::STATX_UID | libc::STATX_CTIME;
    let got = sys!(libc::SYS_statx, dir, path.as_ptr(), flags, mask, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let kind = u32::from(found.stx_mode) & libc::S_IFMT;
    (got == 0 && found.stx_mask & known == known).then_some(Seen {
        device: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        mount: found.stx_mnt_id,
        ino: found.stx_ino,
        is_directory: kind == libc::S_IFDIR,
        is_link: kind == libc::S_IFLNK,
        is_root: found.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
        size: found.stx_size,
        owner: found.stx_uid,
        changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
    })
}

/// What a mount is like at this moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// The device number of its files.
    pub(crate) device: u64,
    /// What kind of file system it shows.
    kind: u64,
    flags: u64,
    of_superblock: u64,
    above: u64,
    /// The number by which `statx` calls it where it is not asked for the other one.
    pub(crate) short: u64,
}

impl Facts {
    /// Nothing where the kernel can't say.
    pub(crate) fn of(mount: u64) -> Option<Self> {
        let asked = [QUESTION_BYTES, mount, BASICS, 0];
        let mut told = [0_u64; 64];
        let got = sys!(STATMOUNT, asked.as_ptr(), told.as_mut_ptr(), size_of_val(&told), 0);
        let low = u64::from(u32::MAX);
        let [major, minor] = [*told.get(2)? & low, *told.get(2)? >> 32];
        let facts = Self {
            device: libc::makedev(major as u32, minor as u32),
            kind: *told.get(3)?,
            flags: *told.get(8)?,
            of_superblock: *told.get(4)? & low,
            above: *told.get(6)?,
            short: *told.get(7)? & low,
        };
        (got == 0).then_some(facts)
    }

    /// Whether files may be changed through it and links followed, by the users that they are shown to
    /// have: the kernel judges all calls otherwise.
    pub(crate) fn allow_all(&self) -> bool {
        let forbidding = READ_ONLY | NO_SYM_FOLLOW | ID_MAPPED;
        self.flags & forbidding == 0 && self.of_superblock & READ_ONLY == 0
    }

    /// Whether its files are the kernel's own view of processes, by whose links it goes without a text.
    pub(crate) fn is_of_processes(&self) -> bool {
        self.kind == OF_PROCESSES
    }

    /// Whether a program serves it, as a pool's mount: what lies at its path may be another one by now.
    pub(crate) fn is_of_a_program(&self) -> bool {
        self.kind == OF_PROGRAMS
    }

    /// Whether nothing in it may be executed.
    pub(crate) fn forbid_exec(&self) -> bool {
        self.flags & NO_EXEC != 0
    }
}

/// Whether links in a mount lead where their text says: it is followed there and in all that the mount is
/// mounted in, and the mount is not of processes. False where the kernel can't say.
pub(crate) fn are_texts_followed(mount: u64) -> bool {
    let mut at = mount;
    for _ in 0..ABOVE_MAX {
        let Some(facts) = Facts::of(at) else {
            // What the topmost one of a namespace is in can't be asked for.
            return at != mount;
        };
        if facts.flags & NO_SYM_FOLLOW != 0 || at == mount && facts.is_of_processes() {
            return false;
        }
        if facts.above == at {
            return true;
        }
        at = facts.above;
    }
    false
}

/// Whether nothing is mounted below a mount; false where the kernel can't say.
pub(crate) fn is_bare(mount: u64) -> bool {
    let asked = [QUESTION_BYTES, mount, 0, 0];
    let mut first = [0_u64];
    sys!(LISTMOUNT, asked.as_ptr(), first.as_mut_ptr(), first.len(), 0) == 0
}
