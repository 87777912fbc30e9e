//! One sequence of steps on a file system and on the model side by side. Comes in: a [`Machine`]
//! and steps. Goes out: the first step after which the two differ, shrunk and as text. Called by
//! the tests. Never in here: knowledge of the pool's bytes.

mod by_source;
mod core_machine;
mod core_subject;
mod judge;
mod mapping;
mod run;
mod search;
mod shrink;
mod snapshot;

pub use core_machine::{
    CoreMachine, CoreOptions, Manner, check_opened, check_pool, make_pool, new_arena, open_pool,
    open_pool_in, show_pool_in,
};
pub use core_subject::{OnFs, subject_error};
pub use mapping::Mappings;
pub use run::{
    Machine, Mismatch, NoSpace, Summary, check_no_space, compare_run, now_ns_at, panic_text,
};
pub use search::{Budget, Found, Length, search};
pub use shrink::shrink;
pub use snapshot::snapshot;
