//! Who has a pool: mounts, their daemons, other programs.
//!
//! Never here: changes of a pool or a mount.

pub(crate) mod able;
pub(crate) mod ask;
pub(crate) mod elsewhere;
pub(crate) mod facts;
pub(crate) mod held_slots;
pub(crate) mod holder;
pub(crate) mod in_time;
pub(crate) mod offered;
pub(crate) mod patience;
pub(crate) mod servers;
pub(crate) mod users;
