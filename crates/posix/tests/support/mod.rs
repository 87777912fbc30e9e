//! A file system of the test's own, in private memory.

use std::sync::Arc;

use novale_posix::Files;

pub(crate) fn files() -> Files {
    Files::new(Arc::new(novale_core::Fs::memory(0o755)))
}
