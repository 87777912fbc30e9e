//! Mounts: made, changed, ended.
//!
//! Never here: other commands.

pub(crate) mod again;
pub(crate) mod background;
pub(crate) mod daemon;
pub(crate) mod empty;
pub(crate) mod helper;
pub(crate) mod leaving;
pub(crate) mod mount;
pub(crate) mod remount;
pub(crate) mod umount;
