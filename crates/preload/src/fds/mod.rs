//! Open file descriptions, and what of them the kernel has.
//!
//! Never here: paths, and what a call does.

pub(crate) mod forget;
pub(crate) mod holds;
pub(crate) mod kernel;
pub(crate) mod locks;
pub(crate) mod quiet;
pub(crate) mod reader;
pub(crate) mod shown;
pub(crate) mod table;
