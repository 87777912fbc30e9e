//! File capabilities go in the commit that makes them go.
//!
//! What changes a file's contents takes `security.capability` away, for any caller. Its commit has an
//! attributes entry for that, which names the pages of the attributes that stay: they are taken with
//! the room for the log, before anything is stored, and are in no data checksum. A crash leaves both
//! or neither. A file without capabilities costs one load.

use novale_layout::Entry;
use novale_pm::Flushed;

use crate::base::error::Result;
use crate::base::extent::{Extent, Extents};
use crate::fs::{Call, Fs, Locked};
use crate::inode::state::Attrs;
use crate::inode::view::View;
use crate::log::entries::attributes_entry;
use crate::log::{Appender, Room};
use crate::op::xattr_set::ReadyXattrs;
use crate::space::Need;

/// Room for the entries of a change of contents, and for what becomes of the extended attributes.
#[derive(Debug)]
pub(crate) struct WriteRoom {
    log: Room,
    xattrs: Option<Box<ReadyXattrs>>,
}

/// What an attributes entry in a log is about to change in the view; mostly nothing.
#[derive(Debug)]
pub(crate) struct Strip {
    changed: Option<(Attrs, u64)>,
    /// The pages that the commit frees.
    pub(crate) freed: Extents,
}

impl Strip {
    /// Whether there is an entry, with pages that no checksum covers.
    pub(crate) fn is_any(&self) -> bool {
        self.changed.is_some()
    }

    /// Shows the attributes that stay: a part of the commit.
    pub(crate) fn show(&self, view: &View<'_>) {
        if let Some((attrs, op_seq)) = &self.changed {
            view.set_attrs(attrs, view.rdev());
            view.set_attr_seq(*op_seq);
        }
    }
}

impl Fs {
    /// Makes room for so many entries of a line each: all that can still fail.
    pub(crate) fn room_for_entries(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        entries: usize,
        need: Need,
    ) -> Result<WriteRoom> {
        let xattrs = match self.without_capability(locked)? {
            Some(xattrs) => Some(Box::new(self.ready_xattrs(call, xattrs)?)),
            None => None,
        };
        self.room_beside(call, locked, (entries, xattrs), need)
    }

    fn room_beside(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        (entries, xattrs): (usize, Option<Box<ReadyXattrs>>),
        need: Need,
    ) -> Result<WriteRoom> {
        let mut room = WriteRoom { log: Room::default(), xattrs };
        let lines = entries + usize::from(room.xattrs.is_some());
        match Room::make(&self.env(call), &locked.view, (0..lines).map(|_| 1), need) {
            Ok(log) => room.log = log,
            Err(error) => return self.no_room(call, room).and(Err(error)),
        }
        Ok(room)
    }

    /// Makes room for an entry for each run of new pages, and in the index for where they come to lie.
    pub(crate) fn room_for_runs(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        runs: &[(u64, Extent)],
        need: Need,
    ) -> Result<WriteRoom> {
        let room = self.room_for_entries(call, locked, runs.len(), need)?;
        self.with_index(call, locked, runs, room)
    }

    /// The same where no byte of the file changes, and so no capability goes.
    pub(crate) fn room_for_unseen_runs(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        runs: &[(u64, Extent)],
        need: Need,
    ) -> Result<WriteRoom> {
        let room = self.room_beside(call, locked, (runs.len(), None), need)?;
        self.with_index(call, locked, runs, room)
    }

    fn with_index(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        runs: &[(u64, Extent)],
        room: WriteRoom,
    ) -> Result<WriteRoom> {
        for (page, extent) in runs {
            let reserved = locked.view.index().reserve(self.arena(), *page, extent.pages);
            if let Err(error) = reserved {
                return self.no_room(call, room).and(Err(error.into()));
            }
        }
        Ok(room)
    }

    /// Gives room back that is not needed after all.
    pub(crate) fn no_room(&self, call: &Call<'_>, room: WriteRoom) -> Result<()> {
        let given = room.log.give_back(&self.env(call));
        room.xattrs.map_or(Ok(()), |xattrs| self.unready_xattrs(call, &xattrs)).and(given)
    }

    /// Begins to append the entries of a commit: that of the attributes first, where they change.
    pub(crate) fn appender<'a>(
        &'a self,
        locked: &Locked<'_>,
        op_seq: u64,
        room: WriteRoom,
    ) -> (Appender<'a>, Strip, Flushed) {
        let (view, WriteRoom { log, xattrs }) = (&locked.view, room);
        let mut writer = Appender::new(&self.pm, locked.id, self.session, view, op_seq, log);
        let mut strip = Strip { changed: None, freed: Extents::default() };
        let Some(xattrs) = xattrs else { return (writer, strip, Flushed::none()) };
        let mut attrs = view.attrs();
        attrs.xattrs = xattrs.set;
        writer.push(&Entry::Attributes(attributes_entry(&attrs, view.atime_ns())));
        let pending = xattrs.store(&self.pm, &locked.id, op_seq);
        strip.changed = Some((attrs, op_seq));
        strip.freed = xattrs.freed;
        (writer, strip, pending)
    }
}
