//! Who the process is, as the kernel knows it: asked for when first needed, and again when a call has
//! changed it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::base::sys::{limit_of, sys};
use crate::mounts::{self, helper};

/// Who the process is: words of a page that the kernel wipes in children, since the call that makes one may
/// put it into another user namespace. Zeroes are nothing known.
#[repr(C)]
pub(crate) struct KnownUser {
    /// User in the lower half, group in the upper.
    owner: AtomicU64,
    /// Bits of [`IS_KNOWN`] and what follows it; stored after `owner`.
    facts: AtomicU32,
    /// The user who may use here what is its own, plus 1; [`NOBODY`] where that is nobody.
    own: AtomicU64,
}

const IS_KNOWN: u32 = 1;
/// No permission bits stop the process.
const IS_ROOT: u32 = 2;
/// Users are called here what they are called on the machine.
const NAMES_USERS: u32 = 4;
const NOBODY: u64 = 1 << 33;

/// A call has changed who the process is, or was: it counts for its children as well.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".novale_data")]
static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// What lets the administrator do without permissions here, as bits of the effective set: `CHOWN`,
/// `DAC_OVERRIDE`, `DAC_READ_SEARCH`, `FOWNER`, `FSETID`, `SYS_ADMIN`, `MKNOD`, `SETFCAP`.
const CAPABILITIES: u64 = 0x1f | 1 << 21 | 1 << 27 | 1 << 31;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Set as soon as a thread has acted for another user than the process is, or has changed who it is
/// beside others: which one of the threads that is, only the kernel knows.
static ACTS_FOR_OTHERS: AtomicBool = AtomicBool::new(false);

/// Whether files may grow to a certain size alone.
#[unsafe(link_section = ".novale_data")]
static HAS_SIZE_LIMIT: AtomicBool = AtomicBool::new(false);

/// What the kernel calls the user namespace of the machine.
const FIRST_NAMESPACE: &[u8] = b"user:[4026531837]";

/// What may be done here without asking the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// No permission bits stop the process.
    All,
    /// What an owner may do with its own by the bits for owners, whatever else there is: groups, access
    /// control lists and capabilities only add to it.
    Own(u32),
    /// Nothing.
    Kernel,
}

/// What the process may do here.
pub(crate) fn rights() -> Rights {
    if is_root() {
        return Rights::All;
    }
    let Some(known) = mounts::who() else { return Rights::Kernel };
    let mut own = known.own.load(Ordering::Acquire);
    if own == 0 {
        own = own_user().map_or(NOBODY, |user| u64::from(user) + 1);
        // Not where a call has changed it meanwhile.
        own = match known.own.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => own,
            Err(now) => now,
        };
    }
    u32::try_from(own - 1).map_or(Rights::Kernel, Rights::Own)
}

/// The user that the process is in every respect since it began.
fn own_user() -> Option<u32> {
    if HAS_CHANGED.load(Ordering::Acquire) {
        return None;
    }
    let (mut users, mut groups) = ([0u32; 3], [0u32; 3]);
    for (number, [real, effective, saved]) in
        [(libc::SYS_getresuid, &mut users), (libc::SYS_getresgid, &mut groups)]
    {
        let (real, effective, saved) = (&raw mut *real, &raw mut *effective, &raw mut *saved);
        if sys!(number, real, effective, saved) != 0 {
            return None;
        }
    }
    let [user, ..] = users;
    let [group, ..] = groups;
    (is_in_first_namespace() && users == [user; 3] && groups == [group; 3]).then_some(user)
}

/// Whether users are called here what they are called on the machine.
fn is_in_first_namespace() -> bool {
    let mut namespace = [0u8; FIRST_NAMESPACE.len() + 1];
    let link = c"/proc/thread-self/ns/user";
    let len = sys!(libc::SYS_readlink, link.as_ptr(), namespace.as_mut_ptr(), namespace.len());
    usize::try_from(len).is_ok_and(|len| namespace.get(..len) == Some(FIRST_NAMESPACE))
}

/// Before any other thread runs: to ask for the umask is to set it.
#[inline]
pub(crate) fn begin() {
    let umask = sys!(libc::SYS_umask, 0o077);
    sys!(libc::SYS_umask, umask);
    set_umask(umask as u32);
    limits_changed();
}

/// The umask.
pub(crate) fn umask() -> u32 {
    UMASK.load(Ordering::Relaxed)
}

/// The process has set its umask.
pub(crate) fn set_umask(umask: u32) {
    UMASK.store(umask & 0o777, Ordering::Relaxed);
}

/// Who the calling thread is to the kernel: user, group, and whether no permission bits stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who(u32, u32, bool);

/// Asks the kernel who the calling thread is.
pub(crate) fn who() -> Who {
    let (uid, gid) = (sys!(libc::SYS_geteuid) as u32, sys!(libc::SYS_getegid) as u32);
    Who(uid, gid, uid == 0 && has_capabilities() && is_in_first_namespace())
}

/// The calling thread may have become another user's, who was this one before.
pub(crate) fn changed(before: Who) {
    // To the kernel each thread has rights of its own, which libc alone changes for all.
    if who() != before && helper::has_other_threads() {
        ACTS_FOR_OTHERS.store(true, Ordering::Release);
    }
    // Asked for what nobody is, the kernel changes nothing and tells.
    let (uid, gid) = (sys!(libc::SYS_setfsuid, u32::MAX), sys!(libc::SYS_setfsgid, u32::MAX));
    if (uid, gid) != (sys!(libc::SYS_geteuid), sys!(libc::SYS_getegid)) {
        ACTS_FOR_OTHERS.store(true, Ordering::Release);
    }
    HAS_CHANGED.store(true, Ordering::Release);
    if let Some(known) = mounts::who() {
        known.own.store(NOBODY, Ordering::Release);
        known.facts.store(0, Ordering::Release);
    }
}

/// The process may have set its limits.
#[inline]
pub(crate) fn limits_changed() {
    let limit = limit_of(libc::RLIMIT_FSIZE);
    HAS_SIZE_LIMIT
        .store(limit.is_none_or(|[soft, _]| soft != libc::RLIM_INFINITY), Ordering::Relaxed);
}

/// Whether files may grow to a certain size alone (`RLIMIT_FSIZE`): what may make one larger is the
/// kernel's then, which knows the limit of the moment, and sends the signal.
pub(crate) fn has_size_limit() -> bool {
    HAS_SIZE_LIMIT.load(Ordering::Relaxed)
}

/// Who owns the inodes that this process makes.
pub(crate) fn owner() -> (u32, u32) {
    known().0
}

/// Whether no permission bits stop the process: a user 0 with its capabilities.
pub(crate) fn is_root() -> bool {
    known().1 & IS_ROOT != 0 && !ACTS_FOR_OTHERS.load(Ordering::Acquire)
}

/// Whether users and groups are called here what they are called on the machine: the kernel tells who owns
/// what otherwise.
pub(crate) fn names_users() -> bool {
    known().1 & NAMES_USERS != 0
}

/// User and group, and what is known besides.
fn known() -> ((u32, u32), u32) {
    let known = mounts::who();
    let facts = known.map_or(0, |known| known.facts.load(Ordering::Acquire));
    if let Some(known) = known.filter(|_| facts & IS_KNOWN != 0) {
        let owner = known.owner.load(Ordering::Relaxed);
        return ((owner as u32, (owner >> 32) as u32), facts);
    }
    let (uid, gid) = (sys!(libc::SYS_geteuid) as u32, sys!(libc::SYS_getegid) as u32);
    // The link in `/proc` takes the kernel longest: it is read once.
    let names_users = is_in_first_namespace();
    let is_root = uid == 0 && has_capabilities() && names_users;
    let facts = [(true, IS_KNOWN), (is_root, IS_ROOT), (names_users, NAMES_USERS)];
    let facts = facts.iter().fold(0, |all, (is, fact)| if *is { all | fact } else { all });
    if let Some(known) = known {
        known.owner.store(u64::from(uid) | u64::from(gid) << 32, Ordering::Relaxed);
        known.facts.store(facts, Ordering::Release);
    }
    ((uid, gid), facts)
}

fn has_capabilities() -> bool {
    let header = [CAPABILITY_VERSION_3, 0];
    // Effective, permitted and inheritable, of the lower 32 and of the upper.
    let mut sets = [0u32; 6];
    let asked = sys!(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr());
    asked == 0 && u64::from(sets[0]) & CAPABILITIES == CAPABILITIES
}
