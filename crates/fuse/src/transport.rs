//! How requests reach a service.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Service;

/// A way to carry requests from a FUSE device to a [`Service`].
pub trait Transport {
    /// Shakes hands with the kernel over the device of a mount made just now.
    ///
    /// # Errors
    /// Those of the device, and a kernel that speaks no protocol version known here.
    fn connect(
        &self,
        device: OwnedFd,
        service: Arc<dyn Service>,
    ) -> io::Result<Box<dyn Connection>>;
}

/// A mount's connection, ready to serve.
pub trait Connection: Send {
    /// Serves until the kernel ends the connection, because the last mount and the last open file
    /// are gone or the connection was cut.
    ///
    /// # Errors
    /// Those of the device.
    fn serve(self: Box<Self>) -> io::Result<()>;
}
