//! Transactions on names: one commit over directories and the inodes that they name.
//!
//! Crash points. Identity lines and log entries are stored where nothing reads them; then the
//! lane's journal record commits all inodes at once ([`crate::op::commit::many`]). Before it is durable
//! every line that stands is the old one; after it recovery finds all new lines in the record.

use arrayvec::ArrayVec;
use novale_arena::Phase;
use novale_layout::{
    COOKIE_LIMIT, Entry, FileKind, IDENTITY_OFFSET, Ino, JournalKind, Name, PmAddr,
};
use novale_pm::Flushed;

use crate::base::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::dir_index;
use crate::inode::dir_index::FoundName;
use crate::inode::state::{InodePlace, State};
use crate::inode::view::View;
use crate::log::covered::no_entries_crc;
use crate::log::{Appended, Appender, LogRoom};
use crate::op::call::Call;
use crate::op::commit::{Owing, Part};
use crate::op::lock::Locked;
use crate::op::quota::Counted;
use crate::seeded::{self, Bug};
use crate::space::Need;

/// Directories that an operation changes, or names of one that it adds or removes: two at most.
pub(crate) type Few<T> = ArrayVec<T, 2>;

/// So few things.
pub(crate) fn few<T>(things: impl IntoIterator<Item = T>) -> Few<T> {
    things.into_iter().collect()
}

/// Inodes that an operation changes: two directories, what is moved, and what it replaces.
const PARTS_MAX: usize = 4;

/// A name to be added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Add<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
}

/// What happens to one directory.
pub(crate) struct DirChange<'a> {
    pub(crate) dir: &'a Locked<'a>,
    pub(crate) removes: Few<(&'a [u8], FoundName)>,
    pub(crate) adds: Few<Add<'a>>,
    /// Change of the number of subdirectories.
    pub(crate) subdirs: i32,
}

/// What happens to one named inode. Its new entries, if any, are stored already.
pub(crate) struct InodeChange<'a> {
    pub(crate) view: View<'a>,
    pub(crate) place: InodePlace,
    pub(crate) next: State,
    pub(crate) crc: u32,
    pub(crate) identity: Option<[u8; 64]>,
}

impl<'a> InodeChange<'a> {
    /// A change of the link count alone.
    pub(crate) fn links(locked: &Locked<'a>, now_ns: i64, nlink: u32) -> Self {
        let mut next = locked.next_state();
        next.nlink = nlink;
        next.ctime_ns = now_ns;
        Self {
            view: locked.view,
            place: locked.place,
            crc: no_entries_crc(
                if nlink == 0 && !seeded::is_on(Bug::EndedWithGeneration) {
                    locked.place.seed
                } else {
                    locked.id.seed
                },
                next.op_seq,
            ),
            next,
            identity: None,
        }
    }
}

/// Room made for a directory's entries: all that could fail for it.
pub(crate) struct Ready {
    room: LogRoom,
    first_cookie: u64,
}

impl DirChange<'_> {
    fn lines(&self) -> impl Iterator<Item = u64> + '_ {
        let removes = self.removes.iter().map(|_| 1);
        removes.chain(self.adds.iter().map(|add| dentry_lines(add.name)))
    }
}

/// Lines of a name's dentry.
fn dentry_lines(name: &[u8]) -> u64 {
    (40 + name.len() as u64).div_ceil(64)
}

impl Fs {
    /// Makes all room that the changes of directories need; nothing is stored by it.
    pub(crate) fn ready(&self, call: &Call<'_>, dirs: &[DirChange<'_>]) -> Result<Few<Ready>> {
        let mut ready = Few::new();
        for change in dirs {
            match self.ready_one(call, change) {
                Ok(one) => ready.push(one),
                Err(error) => {
                    self.unready(call, ready)?;
                    return Err(error);
                }
            }
        }
        Ok(ready)
    }

    /// Gives back what [`Fs::ready`] took.
    pub(crate) fn unready(&self, call: &Call<'_>, ready: Few<Ready>) -> Result<()> {
        ready.into_iter().try_for_each(|one| one.room.give_back(&self.env(call)))
    }

    fn ready_one(&self, call: &Call<'_>, change: &DirChange<'_>) -> Result<Ready> {
        let (view, arena) = (&change.dir.view, self.arena());
        let first_cookie = view.next_cookie();
        if first_cookie + change.adds.len() as u64 > COOKIE_LIMIT {
            // Every place in the order of readdir has been used once.
            return Err(Error::NoSpace);
        }
        if view.nlink().checked_add_signed(change.subdirs).is_none() {
            return Err(Error::TooManyLinks);
        }
        for (index, add) in change.adds.iter().enumerate() {
            dir_index::reserve(&self.pm, arena, view, add.name, first_cookie + index as u64)?;
        }
        let reserved = change.adds.is_empty() && !seeded::is_on(Bug::NoReserve);
        let need = if reserved { Need::Release } else { Need::Growth };
        let room = LogRoom::make(&self.env(call), view, change.lines(), need)?;
        Ok(Ready { room, first_cookie })
    }

    /// Stores the directories' entries, commits everything and publishes it.
    pub(crate) fn commit_names(
        &self,
        call: &Call<'_>,
        kind: JournalKind,
        dirs: &[DirChange<'_>],
        ready: Few<Ready>,
        inodes: &[InodeChange<'_>],
        mut pending: Flushed,
    ) -> Result<()> {
        for dir in dirs {
            dir.dir.place.prefetch_next(&self.pm, &dir.dir.view.state());
        }
        for inode in inodes {
            inode.place.prefetch_next(&self.pm, &inode.next);
        }
        // Before the first streaming store: taking a lock would wait for it to drain.
        let lane = self.allocator.journal_lane(self.arena(), &call.op, call.hint)?;
        let mut parts: ArrayVec<Part, PARTS_MAX> = ArrayVec::new();
        let mut stored: Few<(Appended, Few<(u64, PmAddr)>)> = Few::new();
        for (change, ready) in dirs.iter().zip(ready) {
            let (part, appended, at, flushed) = self.append_names(call, change, ready);
            pending = pending.and(flushed);
            parts.push(part);
            stored.push((appended, at));
        }
        for inode in inodes {
            if let Some(identity) = &inode.identity {
                let flushed = if seeded::is_on(Bug::IdentityNotFlushed) {
                    let at = inode.place.addr.add(IDENTITY_OFFSET);
                    seeded::stream_but_a_line(&self.pm, at, identity, 0)
                } else {
                    inode.place.store_identity(&self.pm, identity)
                };
                pending = pending.and(flushed);
            }
            parts.push(Part {
                ino: inode.view.ino(),
                place: inode.place,
                next: inode.next,
                crc: inode.crc,
                identity: inode.identity,
            });
        }
        if seeded::is_on(Bug::NamesShownEarly) {
            let mut shown = dirs.iter().zip(&stored);
            shown.try_for_each(|(change, (_, at))| {
                change.dir.view.publish(|| self.show_added(change, at))
            })?;
        }
        let owing = Owing { pending, single: self.is_single(0) };
        self.commit_many(call, &lane, kind, &mut parts, owing)?.end();
        drop(lane);
        // No reader sees one of them changed and another not, nor does one whose client dies here
        // leave it so: a counter that stays odd sends readers to the lock, and so to settle.
        let views =
            || dirs.iter().map(|change| &change.dir.view).chain(inodes.iter().map(|i| &i.view));
        views().for_each(View::publish_begin);
        for (inode, part) in inodes.iter().zip(parts.iter().skip(dirs.len())) {
            inode.view.set_state(&part.next);
        }
        let mut shown = dirs.iter().zip(&parts).zip(&stored);
        let published = shown.try_for_each(|((change, part), (appended, at))| {
            self.show_names(change, &part.next, appended, at)
        });
        views().for_each(View::publish_end);
        published?;
        call.op.clear_notes();
        call.op.set_phase(Phase::Published);
        for (change, (appended, _)) in dirs.iter().zip(&stored) {
            self.collect_if_grown(call, change.dir, appended);
        }
        Ok(())
    }

    /// Appends one directory's entries.
    fn append_names(
        &self,
        call: &Call<'_>,
        change: &DirChange<'_>,
        ready: Ready,
    ) -> (Part, Appended, Few<(u64, PmAddr)>, Flushed) {
        let dir = change.dir;
        let mut next = dir.next_state();
        let mut writer =
            Appender::new(&self.pm, dir.id, self.session, &dir.view, next.op_seq, ready.room);
        for (_, found) in &change.removes {
            writer.push(&Entry::DentryDelete {
                ino: found.ino,
                cookie: found.cookie,
                generation: found.generation,
            });
        }
        let mut at = Few::new();
        for (index, add) in change.adds.iter().enumerate() {
            let cookie = ready.first_cookie + index as u64;
            // The name was checked when the operation began.
            let Ok(name) = Name::new(add.name) else {
                continue;
            };
            let Add { ino, generation, kind, .. } = *add;
            at.push((
                cookie,
                writer.push(&Entry::DentryAdd { ino, cookie, generation, kind, name }),
            ));
        }
        let mut appended = writer.finish();
        Locked::apply_log(&mut next, &appended);
        next.mtime_ns = call.now_ns;
        next.ctime_ns = call.now_ns;
        next.nlink = next.nlink.saturating_add_signed(change.subdirs);
        next.size =
            (next.size + change.adds.len() as u64).saturating_sub(change.removes.len() as u64);
        let pending = std::mem::replace(&mut appended.pending, Flushed::none());
        let part =
            Part { ino: dir.view.ino(), place: dir.place, next, crc: appended.crc, identity: None };
        (part, appended, at, pending)
    }

    /// Shows a directory's new state, while its counter is odd.
    fn show_names(
        &self,
        change: &DirChange<'_>,
        next: &State,
        appended: &Appended,
        at: &[(u64, PmAddr)],
    ) -> Result<()> {
        let view = &change.dir.view;
        let before = Counted::of(view);
        view.set_state(next);
        appended.publish(view);
        self.recount(before, view)?;
        // Names are added first: room for them was made, and removing could take it away.
        if !seeded::is_on(Bug::NamesShownEarly) {
            self.show_added(change, at)?;
        }
        let mut removes = change.removes.iter();
        removes.try_for_each(|(name, found)| dir_index::remove(self.arena(), view, name, found))
    }

    fn show_added(&self, change: &DirChange<'_>, at: &[(u64, PmAddr)]) -> Result<()> {
        let mut added = change.adds.iter().zip(at);
        added.try_for_each(|(add, (cookie, addr))| {
            let view = &change.dir.view;
            dir_index::add(&self.pm, self.arena(), view, add.name, *cookie, *addr)
        })
    }

    /// The dentry of `name`, under the directory's lock.
    pub(crate) fn find_locked(&self, dir: &Locked<'_>, name: &[u8]) -> Result<Option<FoundName>> {
        if dir.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        dir_index::find(&self.pm, self.arena(), &dir.view, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dentry_lines_match_the_entry() {
        for len in [1, 24, 25, 88, 89, 152, 153, 216, 217, 255] {
            let name = vec![b'n'; len];
            let entry = Entry::DentryAdd {
                ino: Ino::ROOT,
                cookie: 16,
                generation: 1,
                kind: FileKind::File,
                name: Name::new(&name).unwrap(),
            };
            assert_eq!(dentry_lines(&name), entry.lines() as u64, "{len}");
        }
    }
}
