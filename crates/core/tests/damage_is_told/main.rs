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
mod invariants;
mod pools;
mod redo;
mod the_rest_can_be_read;
