//! Pure decisions: which update method a write takes, which commit form, which slot new pages
//! come from. A policy sees plain values and returns plain values; executors in `core` act.
//! To add one: one file with its unit test, and one line here.

mod benefit;
mod form;
mod mode;
mod rules;
mod slots;
mod update;
mod zone;

pub use benefit::{BufferCosts, SyncedSoon, Tally};
pub use form::{CommitCosts, Form};
pub use mode::Mode;
pub use rules::BufferRules;
pub use slots::{Placement, SlotLoad, SlotPolicy, Turn, wear, wear_of_all};
pub use update::{
    FINE_LOG_BYTES_MAX, Method, PAIRED_BYTES_MAX, UNDO_BYTES_MAX, UpdatePolicy, WriteShape,
};
pub use zone::{LAWN_BYTES_MAX, SlotLines, ZoneUse};
