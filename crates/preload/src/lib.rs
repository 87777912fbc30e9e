//! Direct access for programs that were built without knowing of Novale.
//!
//! `novale run` has the loader put this library into a program. Before the program starts, it
//! replaces the system calls in libc, and those in other libraries and the program that concern files,
//! by jumps to itself. A call on a path below a mount, or on a file
//! opened there, it serves from the pool's two segments, in the program's own process;
//! all others go on to the kernel after a few instructions. What it does not serve itself goes
//! through the mount, to which a descriptor can be handed at any time.
//!
//! Comes in: the program's system calls, as registers. Goes out: calls of `novale-core`.
//! Never here: how a file system works; what another client of the library could use.
//!
//! On a machine that is not an x86-64 Linux this library does nothing: the mount serves everything.

#![allow(
    unsafe_code,
    reason = "a program's registers, memory and signals, its libc's text, and system calls"
)]
#![cfg_attr(
    all(target_arch = "x86_64", target_os = "linux"),
    expect(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::fn_to_numeric_cast_any,
        reason = "the kernel takes its arguments as registers, whatever their types"
    ),
    expect(clippy::unnecessary_wraps, reason = "what serves a call has one type")
)]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod calls;
mod confined;
mod dispatch;
mod entry;
mod exec;
mod giving;
mod growing;
mod guard;
mod heap;
mod helper;
mod image;
mod kept;
mod kernel;
mod lock;
mod locks;
mod maps;
mod mounts;
mod numbers;
mod objects;
mod patch;
mod paths;
mod replicas;
mod report;
mod room;
mod shown;
mod signals;
mod sites;
mod sleepers;
mod spelling;
mod state;
mod sys;
mod table;
mod thread;

use std::ffi::{CStr, c_char, c_int};

use novale_posix::report::Event;

use crate::thread::Inside;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// The mounts to serve, as `novale run` names them.
const MOUNTS: &[u8] = b"NOVALE_DIRECT=";
/// What the kernel forbade `novale run`, for a program to compare itself with.
const BEGUN: &[u8] = b"NOVALE_BEGUN=";
/// What mappings of files are to be, a word for each: `dax` or `atomic`, the kernel's otherwise.
const MAP: &[u8] = b"NOVALE_MAP=";
/// Where tables of sites are kept.
const CACHE: &[u8] = b"NOVALE_CACHE=";
/// Set where it is to be said that direct access is put back.
const VERBOSE: &[u8] = b"NOVALE_VERBOSE=";
/// Set where a program is to end rather than go through a mount whose pool it can't join.
const STRICT: &[u8] = b"NOVALE_STRICT=";

/// Names the memory that calls are counted in.
const REPORT: &[u8] = b"NOVALE_REPORT=";

/// Called by the loader before anything of the program runs, its own libraries' starts included.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(_count: c_int, _args: *const *const c_char, environment: *const *const c_char) {
    let _inside = Inside::new();
    let Some(mounts) = variable(environment, MOUNTS) else { return };
    report::begin(variable(environment, REPORT));
    // Who is more confined than that is judged by the kernel, call by call.
    let begun = variable(environment, BEGUN).unwrap_or_default();
    if novale_posix::confinement().as_bytes() != begun {
        report::event(Event::BeganConfined);
        return;
    }
    report::event(Event::Began);
    if !mounts::begin(mounts) || !table::begin() || !shown::begin() {
        return;
    }
    exec::begin(environment);
    state::begin();
    maps::begin(variable(environment, MAP));
    dispatch::begin();
    kept::begin(variable(environment, CACHE));
    if objects::begin() {
        signals::begin();
    }
}

/// A variable's value in a list of strings that ends with a null pointer.
fn variable<'a>(mut environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
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

/// Tells the program's user something, where standard error is a terminal or a pipe: a program may
/// have put a file of its own there.
fn say(message: &str) {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = sys::sys!(libc::SYS_fstat, 2, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let kind = unsafe { found.assume_init() }.st_mode & libc::S_IFMT;
    if got != 0 || !matches!(kind, libc::S_IFCHR | libc::S_IFIFO) {
        return;
    }
    let line = format!("novale: {message}\n");
    sys::sys!(libc::SYS_write, 2, line.as_ptr(), line.len());
}
