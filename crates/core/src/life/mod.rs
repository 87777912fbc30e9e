//! The life of a pool: made, opened, recovered, saved, attached by clients, settled after a client dies.
//!
//! In: the memory of a pool and an arena. Out: an open [`crate::Fs`], or an error that says what is
//! damaged. Called once for each mount and each client, and by a client that meets the lock of a dead
//! client.
//!
//! Never here: what a running operation needs.

pub(crate) mod adding;
pub(crate) mod attach;
pub(crate) mod cold;
pub(crate) mod coming;
pub(crate) mod device;
pub(crate) mod evacuate;
pub(crate) mod leaving;
pub(crate) mod left;
pub(crate) mod mkfs;
pub(crate) mod open;
pub(crate) mod room;
pub(crate) mod saved;
pub(crate) mod scan;
pub(crate) mod serving;
pub(crate) mod settle;
pub(crate) mod slots;
pub(crate) mod wear;
