//! What the other crates rely on, one promise a file, for every structure alike.
//!
//! `structures` says, independently of the crate, what each structure's checksum covers, and makes
//! arbitrary ones.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, like the tests, fail by a panic"
)]

mod bad_fields_are_named;
mod bytes_never_change;
mod damage_is_detected;
mod data_checksum_covers_the_commit;
mod foreign_bytes_are_refused;
mod garbage_never_panics;
mod what_is_encoded_is_decoded;

mod structures;
