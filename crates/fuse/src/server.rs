//! A mount and its daemon's threads, from the first request to the closed pool.
//!
//! Order at the end, whatever the cause: no new opens, the tree detached, open files allowed to
//! finish for a while, the rest cut off, the pool closed.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::follow::follow;
use crate::mount::{MountError, Mounted, mount};
use crate::service::Service;
use crate::threads::start_thread;
use crate::unmount::write_back;
use crate::{MountOptions, Novale, Transport};

/// Time for the kernel to end a connection that was cut.
const CUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for the first answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What is mounted where.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Shown as the source in `/proc/mounts`.
    pub source: OsString,
    /// The mount point.
    pub target: PathBuf,
    /// The options of the mount.
    pub options: MountOptions,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutDown {
    /// Nothing was open any more.
    Finished,
    /// Open files were cut off.
    CutOff,
}

/// A mounted file system that is being served.
#[derive(Debug)]
pub struct Server {
    service: Arc<Novale>,
    mounted: Mounted,
    thread: JoinHandle<()>,
    ended: Receiver<io::Result<()>>,
}

impl Server {
    /// Mounts and serves; the mount is usable when this returns. `on_end` is called once, when the
    /// kernel has ended the connection: because of [`Server::shut_down`], or because somebody
    /// unmounted.
    ///
    /// # Errors
    /// Those of the mount; a mount that cannot be served is taken away again.
    pub fn start(
        service: Arc<Novale>,
        transport: &dyn Transport,
        config: &ServerConfig,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, MountError> {
        let (device, mounted) = mount(&config.options, &config.source, &config.target)?;
        let asked: Arc<dyn Service> = service.clone();
        let connected = transport.connect(device, asked).and_then(|connection| {
            let (end, ended) = channel();
            let serve = move || {
                // The receiver outlives the thread, unless the process is about to end anyway.
                end.send(connection.serve()).unwrap_or_default();
                on_end();
            };
            Ok((start_thread("novale-mount", serve)?, ended))
        });
        let answered = connected.and_then(|(thread, ended)| {
            // All serve or none does, where one finds no descriptor, say; nobody hears why before the end.
            if mounted.is_cut(ANSWER_TIMEOUT)? {
                let end = ended.recv().unwrap_or(Ok(()));
                return Err(end.err().unwrap_or_else(|| io::ErrorKind::NotConnected.into()));
            }
            // Without it a remount leaves access times as they were, and what is buffered unwritten.
            follow(mounted.device(), Arc::downgrade(&service))?;
            Ok((thread, ended))
        });
        match answered {
            Ok((thread, ended)) => Ok(Self { service, mounted, thread, ended }),
            Err(error) => {
                mounted.detach()?;
                Err(MountError::Serve(error))
            }
        }
    }

    /// The mount point, absolute.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.mounted.target()
    }

    /// The mount's device number, major and minor.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        self.mounted.device()
    }

    /// Takes the mount away and closes the pool clean; open files have `grace` to be closed and
    /// are cut off then. When the kernel has ended the connection already, only closes the pool.
    ///
    /// A process that cannot reach `/sys/fs/fuse` cuts files off by ending: requests fail with
    /// `ESHUTDOWN` until it does.
    ///
    /// # Errors
    /// Those of the unmount and of [`Novale::close`]: the pool was not closed clean then. What ended the
    /// serving, where that was no unmount.
    pub fn shut_down(self, grace: Duration) -> Result<ShutDown, EndError> {
        let detached = self.take_away();
        let (how, served) = match self.ended.recv_timeout(grace) {
            Err(RecvTimeoutError::Timeout) => (ShutDown::CutOff, Ok(())),
            Ok(served) => (ShutDown::Finished, served),
            Err(RecvTimeoutError::Disconnected) => (ShutDown::Finished, Ok(())),
        };
        self.service.close().map_err(EndError::Close)?;
        if how == ShutDown::Finished {
            self.thread.join().map_err(|_| EndError::Panicked)?;
        } else if self.ended.try_recv().is_err() && self.mounted.cut().is_ok() {
            // The pool is closed already: a thread that is late loses nothing.
            drop(self.ended.recv_timeout(CUT_TIMEOUT));
        }
        detached.map_err(EndError::Unmount)?;
        served.map_err(EndError::Served)?;
        Ok(how)
    }

    /// Writes mapped pages back, refuses what opens, and detaches.
    fn take_away(&self) -> Result<(), MountError> {
        if self.mounted.is_there().map_err(MountError::Device)? {
            write_back(self.mounted.target());
        }
        self.service.drain();
        self.mounted.detach()
    }
}

/// Why a server did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// The mount could not be taken away; the pool was closed.
    #[error(transparent)]
    Unmount(MountError),
    /// The pool could not be closed clean; the next mount recovers it.
    #[error("the pool was not closed clean: {0}")]
    Close(novale_core::Error),
    /// Requests could no longer be served; the mount was taken away, and the pool closed.
    #[error("serving the mount: {0}")]
    Served(io::Error),
    /// A serving thread panicked.
    #[error("a serving thread panicked")]
    Panicked,
}
