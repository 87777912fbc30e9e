//! What `novale run` tells a program, by its environment.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

/// The mounts to serve, as `novale run` names them.
pub(crate) const MOUNTS: &[u8] = b"NOVALE_DIRECT=";
/// What the kernel forbade `novale run`, for a program to compare itself with.
pub(crate) const BEGUN: &[u8] = b"NOVALE_BEGUN=";
/// What mappings of files are to be, a word for each: `dax` or `atomic`, the kernel's otherwise.
pub(crate) const MAP: &[u8] = b"NOVALE_MAP=";
/// Where tables of sites are kept.
pub(crate) const CACHE: &[u8] = b"NOVALE_CACHE=";
/// Set where it is to be said that direct access is put back.
pub(crate) const VERBOSE: &[u8] = b"NOVALE_VERBOSE=";
/// Set where a program is to end rather than go through a mount whose pool it can't join.
pub(crate) const STRICT: &[u8] = b"NOVALE_STRICT=";
/// `0` where names that lead into a mount from outside are to be the kernel's.
pub(crate) const OUTSIDE: &[u8] = b"NOVALE_OUTSIDE=";
/// Names the memory that calls are counted in.
pub(crate) const REPORT: &[u8] = b"NOVALE_REPORT=";

static IS_STRICT: AtomicBool = AtomicBool::new(false);
static SERVES_OUTSIDE: AtomicBool = AtomicBool::new(false);

/// Notes what is asked for again and again.
pub(crate) fn begin(environment: *const *const c_char) {
    IS_STRICT.store(variable(environment, STRICT).is_some(), Ordering::Release);
    let is_off = variable(environment, OUTSIDE) == Some(b"0");
    SERVES_OUTSIDE.store(!is_off, Ordering::Release);
}

/// Whether this program is to end rather than go through a mount whose pool it can't join.
pub(crate) fn is_strict() -> bool {
    IS_STRICT.load(Ordering::Acquire)
}

/// Whether names that lead into a mount from outside are served in this program.
pub(crate) fn serves_outside() -> bool {
    SERVES_OUTSIDE.load(Ordering::Acquire)
}

/// A variable's value in a list of strings that ends with a null pointer.
pub(crate) fn variable<'a>(mut environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    loop {
        // SAFETY: the loader hands over the list, which ends with a null pointer.
        let entry = unsafe { *environment };
        if entry.is_null() {
            return None;
        }
        // SAFETY: a string of the environment, which stays where it is.
        let entry = unsafe { CStr::from_ptr(entry) };
        if let Some(value) = entry.to_bytes().strip_prefix(name) {
            return Some(value);
        }
        // SAFETY: not yet at the end.
        environment = unsafe { environment.add(1) };
    }
}
