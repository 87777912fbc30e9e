//! A word to the program's user.

use crate::base::sys::sys;

/// Tells the program's user something, where standard error is a terminal or a pipe: a program may
/// have put a file of its own there.
pub(crate) fn say(message: &str) {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = sys!(libc::SYS_fstat, 2, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let kind = unsafe { found.assume_init() }.st_mode & libc::S_IFMT;
    if got != 0 || !matches!(kind, libc::S_IFCHR | libc::S_IFIFO) {
        return;
    }
    let line = format!("novale: {message}\n");
    sys!(libc::SYS_write, 2, line.as_ptr(), line.len());
}
