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

use crate::base::settings::{self, Variable};
use crate::base::thread::Inside;
use crate::base::{begun, imports, report};
use crate::calls::open;
use crate::entry::counted;
use crate::fds::table;
use crate::mounts::state;
use crate::process::{confined, signals};
use crate::text::objects::{self, Replaced};

/// Called by the loader before the program runs. What the starts of its own libraries do may come before.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// Each program that starts runs this, and most end soon: what it takes is mostly the pages that it touches first.
/// All of its functions stand side by side in a section of their own, or are inlined into those; they take
/// no memory from the heap, and call few of the standard library's functions and of libc's. What they write to
/// stands side by side too (`.novale_data`), apart from tables of which they touch nothing (`.novale_tables`).
#[unsafe(link_section = ".text.novale_start")]
extern "C" fn start(_count: c_int, _args: *const *const c_char, environment: *const *const c_char) {
    imports::bind();
    let _inside = Inside::new();
    // SAFETY: the loader hands over the list, before anything else runs.
    unsafe { settings::begin(environment) };
    if settings::value(Variable::Mounts).is_none() || begun::is_in_valgrind() {
        return;
    }
    if let Some(path) = settings::value(Variable::Report) {
        report::begin(path);
        counted::begin();
    }
    // Who is more confined than that is judged by the kernel, call by call.
    if !begun::is_as_begun() {
        report::event(Event::BeganConfined);
        return;
    }
    report::event(Event::Began);
    // SAFETY: nothing else runs yet.
    unsafe { table::begin(open::inherited) };
    // SAFETY: as above.
    unsafe { mounts::begin(table::has_memory) };
    state::begin();
    // SAFETY: as above.
    unsafe { maps::begin(settings::value(Variable::Map)) };
    let seen = objects::begin();
    if seen != Replaced::None {
        signals::begin();
    }
    if seen == Replaced::Part {
        // There is one thread, which is let go on as if it were in a call.
        confined::before_unseen_calls();
    }
}
