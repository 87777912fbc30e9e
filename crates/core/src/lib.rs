//! The Novale file system: NOVA's per-inode logs over a pool (`novale-pm`) with its volatile view in
//! an arena (`novale-arena`). It owns no clock, thread, randomness or environment: a caller hands
//! them in with each call ([`Ctx`]), so that a run replays.

mod error;
mod types;

pub use error::{Error, Result};
pub use types::*;
