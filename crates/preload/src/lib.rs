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

mod base;
mod calls;
mod entry;
mod fds;
mod maps;
mod mounts;
mod numbers;
mod paths;
mod process;
mod text;

use std::ffi::{c_char, c_int};

use novale_posix::report::Event;

use crate::base::report;
use crate::base::settings::{self, BEGUN, CACHE, MAP, MOUNTS, REPORT, variable};
use crate::base::thread::Inside;
use crate::calls::open;
use crate::entry::{counted, dispatch};
use crate::fds::{shown, table};
use crate::mounts::state;
use crate::numbers::words;
use crate::process::{exec, signals};
use crate::text::{kept, objects};

/// Called by the loader before anything of the program runs, its own libraries' starts included.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(_count: c_int, _args: *const *const c_char, environment: *const *const c_char) {
    let _inside = Inside::new();
    let Some(mounts) = variable(environment, MOUNTS) else { return };
    report::begin(variable(environment, REPORT));
    counted::begin();
    settings::begin(environment);
    // Who is more confined than that is judged by the kernel, call by call.
    let begun = variable(environment, BEGUN).unwrap_or_default();
    if novale_posix::confinement().as_bytes() != begun {
        report::event(Event::BeganConfined);
        return;
    }
    report::event(Event::Began);
    if !mounts::begin(mounts)
        || !words::begin()
        || !table::begin(open::inherited)
        || !shown::begin()
    {
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
