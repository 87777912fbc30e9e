//! Clients, their operations and records, and what is settled for dead ones.
//!
//! Never here: what an operation does to the pool.

pub(crate) mod client;
pub(crate) mod counts;
pub(crate) mod holds;
pub(crate) mod op;
pub(crate) mod record;
pub(crate) mod settle;
