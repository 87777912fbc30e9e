//! A pool and its files in one call, for programs that embed one.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process;

use novale_core::{Error as FsError, OpenOptions};
use novale_pm::survive_failing_slots;
use rustix::thread::{Timespec, nanosleep};

use crate::join::{self, JoinError, Joined, Opening};
use crate::{AllCpus, Files, Result, process_owner, wall_clock_ns};

/// How often a pool that others are closing is tried again, a millisecond after the last time.
const CLOSING_TRIES: u32 = 5000;
/// The same for one that somebody has alone: until it is open for others, or for as long as he likes.
const ALONE_TRIES: u32 = 100;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Opens again what fails because others come or go just now. They tell nobody when they are done: a
/// lock that is waited for has no time limit, and who holds it may keep it for days.
fn patiently<T>(mut open: impl FnMut() -> Result<T, JoinError>) -> Result<T, JoinError> {
    let mut tries = 0;
    loop {
        let opened = open();
        let tries_max = match &opened {
            Err(JoinError::NotOpen | JoinError::Changing) => CLOSING_TRIES,
            // Or a name that another user has taken, while the own arena is gone or not there yet.
            Err(JoinError::NotShared { .. } | JoinError::Foreign { .. }) => ALONE_TRIES,
            Ok(_) | Err(_) => 0,
        };
        if tries >= tries_max {
            return opened;
        }
        tries += 1;
        // A signal only makes it shorter.
        let _rest = nanosleep(&PAUSE);
    }
}

/// A pool that this process uses, alone or beside others, and its files.
///
/// Dropping it leaves the pool as [`Pool::close`] does, and tells nobody of failures.
///
/// It is of the process that opened it: a child made by `fork` opens its own. One that closes or drops its
/// parent's leaves the parent what it has.
#[derive(Debug)]
pub struct Pool {
    files: Files,
    joined: Joined,
    process: u32,
    left: bool,
}

impl Pool {
    /// Opens a pool by the paths of all its slots, in any order. Where another process has it open and
    /// shares it, this one joins; else it opens the pool for others to join, after a crash with a
    /// recovery on all CPUs. While others open or close it at this moment it waits: a few seconds for
    /// who closes it, a tenth of one for who has it alone, and may stay so. New inodes belong to the process's effective user and group.
    ///
    /// From then on SIGBUS is handled where a slot fails ([`survive_failing_slots`]): the call that met it
    /// fails with `EIO`. All others go to the handler that the process has set before.
    ///
    /// # Errors
    /// Those of [`join::open`].
    pub fn open(slots: &[impl AsRef<Path>]) -> Result<Self, JoinError> {
        let fs = OpenOptions { now_ns: wall_clock_ns(), ..OpenOptions::default() };
        Self::open_as(slots, &Opening { fs, ..Opening::default() })
    }

    /// The same, where nobody has it open in another way than by default: on an emulated memory, for one.
    ///
    /// # Errors
    /// Those of [`join::open`].
    pub fn open_as(slots: &[impl AsRef<Path>], opening: &Opening) -> Result<Self, JoinError> {
        // Where it can't be, a slot that fails ends the process, as before.
        survive_failing_slots().unwrap_or_default();
        let slots: Vec<PathBuf> = slots.iter().map(|slot| slot.as_ref().to_owned()).collect();
        let joined = patiently(|| join::open(&slots, opening, &AllCpus, &|_| ()))?;
        let (uid, gid) = process_owner();
        let files = Files::new(joined.fs.clone()).owner(uid, gid);
        Ok(Self { files, joined, process: process::id(), left: false })
    }

    /// Leaves the pool, and closes it where nobody else has it. Files that are still open are cut off:
    /// calls on them fail with `ESHUTDOWN`, and until they are dropped the slots stay locked. So are
    /// files' own pages that are mapped ([`Map`](crate::Map)).
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::close`]: what was written is there all the same, and the next opening
    /// recovers the pool. `ESHUTDOWN` in a child of the process that opened it: it stays open there.
    pub fn close(mut self) -> Result<()> {
        self.left = true;
        self.leave()
    }

    fn leave(&self) -> Result<()> {
        if self.process != process::id() {
            return Err(FsError::Closed.into());
        }
        Ok(self.joined.close()?)
    }
}

impl Deref for Pool {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.left {
            self.leave().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JoinError, patiently};

    /// Who opened the pool while its last user left it was refused, where another user had taken the arena's name.
    #[test]
    fn a_name_that_another_user_has_is_looked_at_again() {
        let mut tries = 0;
        let opened = patiently(|| {
            tries += 1;
            let foreign = JoinError::Foreign { path: "/arena".into() };
            if tries < 3 { Err(foreign) } else { Ok(tries) }
        });
        assert_eq!(opened.unwrap(), 3);
    }
}
