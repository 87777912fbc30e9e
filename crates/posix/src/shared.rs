//! What the front door and every open file share: the file system, the clock, for whom they act.

use std::sync::Arc;

use novale_core::{Attr, Ctx, Error as FsError, Fs, Ino, SetAttr};

use crate::owner::Owner;
use crate::room::with_room;
use crate::{Result, thread_hint};

/// The time in nanoseconds since 1970, from whatever clock the caller likes.
pub(crate) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What open files need after their [`crate::Files`] lent them out.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) fs: Arc<Fs>,
    pub(crate) clock: Clock,
    pub(crate) owner: Owner,
    /// Whose holds its files have.
    pub(crate) process: u32,
}

impl Shared {
    pub(crate) fn ctx(&self) -> Ctx {
        Ctx { now_ns: (self.clock)(), hint: thread_hint() }
    }

    /// Takes set-id bits away, ahead of a change of contents.
    pub(crate) fn drop_set_id(&self, ino: Ino) -> Result<(), FsError> {
        if self.owner.is_privileged() {
            return Ok(());
        }
        let attr = self.fs.getattr(ino)?;
        let changer = self.owner.changer(&attr);
        with_room(&self.fs, || changer.before_write(&self.fs, &self.ctx(), &attr))
    }

    /// Changes attributes. A change of owner or size takes set-id bits away, whatever `changes` says.
    pub(crate) fn set_attr(&self, attr: &Attr, changes: &SetAttr) -> Result<Attr, FsError> {
        let changes = self.owner.changer(attr).changing(changes);
        with_room(&self.fs, || self.fs.setattr(&self.ctx(), attr.node(), &changes))
    }
}
