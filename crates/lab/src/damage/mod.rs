//! Wounds for a pool: bytes that no crash leaves, but bad memory, bad software or an enemy may.
//! Some are raw; most keep their checksums right, so that what believes a checksum is tried as
//! well. Comes in: an open `Pm` and a seed. Goes out: what was done, in words. Called by the tests.
//! Never in here: what recovery should make of it, but that it says so and ends.

mod structures;
mod values;

pub use structures::wound;
