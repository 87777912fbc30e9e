//! Who the process is, as the kernel knows it: asked for when first needed, and again when a call has
//! changed it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::sys::sys;

/// User in the lower half, group in the upper; [`UNKNOWN`] before they are asked for.
static OWNER: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;
static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Before any other thread runs: to ask for the umask is to set it.
pub(crate) fn begin() {
    let umask = sys!(libc::SYS_umask, 0o077);
    sys!(libc::SYS_umask, umask);
    set_umask(umask as u32);
}

/// The umask.
pub(crate) fn umask() -> u32 {
    UMASK.load(Ordering::Relaxed)
}

/// The process has set its umask.
pub(crate) fn set_umask(umask: u32) {
    UMASK.store(umask & 0o777, Ordering::Relaxed);
}

/// The process may have become another user's.
pub(crate) fn changed() {
    OWNER.store(UNKNOWN, Ordering::Release);
}

/// Who owns the inodes that this process makes.
pub(crate) fn owner() -> (u32, u32) {
    let mut known = OWNER.load(Ordering::Acquire);
    if known == UNKNOWN {
        let (uid, gid) = (sys!(libc::SYS_geteuid), sys!(libc::SYS_getegid));
        known = u64::from(uid as u32) | u64::from(gid as u32) << 32;
        OWNER.store(known, Ordering::Release);
    }
    (known as u32, (known >> 32) as u32)
}

/// Whether no permission bits stop the process.
pub(crate) fn is_root() -> bool {
    owner().0 == 0
}
