//! The promise: damage is an error that names structure and place. Nothing is made of it, and the
//! rest of the pool can be read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_imports,
    clippy::indexing_slicing,
    reason = "a test panics"
)]

mod absurd_numbers;
mod attributes;
mod dead_clients;
mod held;
mod invariants;
mod lanes;
mod log_ends;
mod lost_words;
mod older_states;
mod pools;
mod redo;
#[path = "../support/stop.rs"]
mod stop;
mod the_rest_can_be_read;
mod zeros;
