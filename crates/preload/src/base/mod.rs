//! What everything else stands on: system calls, memory, locks, a thread's own block, the program's
//! memory, settings, the report.
//!
//! Never here: the pool, descriptors, or what a call means.

pub(crate) mod begun;
pub(crate) mod classes;
pub(crate) mod guard;
pub(crate) mod heap;
pub(crate) mod imports;
pub(crate) mod left;
pub(crate) mod lock;
pub(crate) mod report;
pub(crate) mod said;
pub(crate) mod say;
pub(crate) mod settings;
pub(crate) mod sys;
pub(crate) mod thread;
pub(crate) mod vectors;
