//! Whose a page is: by its place, by the tables that name it, or by the logs of all inodes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use novale_layout::{
    BAD_PAGE_LIST_PAGE, FIRST_FREE_PAGE, INODE_DIRECTORY_PAGE, INODES_PER_CHUNK, INODES_PER_PAGE,
    Ino, LANE_TABLE_PAGE, PAGE, PmAddr, WEAR_PAGE,
};

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::inode::state::LogId;
use crate::log;
use crate::log::Item;
use crate::log::pairs::PartnerPages;
use crate::log::replay::say;
use crate::offline::dump::Dump;
use crate::offline::dump::names::ReplayedLog;
use crate::op::standing;
use crate::op::xattr_set::Xattrs;

/// Inodes of one task.
const TASK_INODES: u64 = 256;
/// Damaged inodes that are named; more are only counted.
const REMARKS_MAX: usize = 20;

/// Whose a page is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Owner {
    /// The pool's, by its place: what for.
    Reserved(&'static str),
    /// The journal of a lane.
    Lane(u32),
    /// A page of the inode directory.
    Directory,
    /// Inodes, from the first number on.
    Inodes(u64),
    /// A page of an inode's log.
    Log(Ino),
    /// A page of an inode's extended attributes.
    Xattrs(Ino),
    /// A page of a file.
    Data {
        /// The file.
        ino: Ino,
        /// The page's place in it, in pages.
        file_page: u64,
    },
    /// A page with second copies of lines of a file's pages.
    Partner {
        /// The file.
        ino: Ino,
        /// The page's place in the file, in pages; the first one's of those that share the slots of this page.
        file_page: u64,
    },
    /// The saved allocator's, free for all others: its place in the chain.
    Saved(u64),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved(what) => write!(f, "reserved: {what}"),
            Self::Lane(lane) => write!(f, "the journal of lane {lane}"),
            Self::Directory => write!(f, "a page of the inode directory"),
            Self::Inodes(first) => {
                write!(f, "inodes {first} to {}", first + (INODES_PER_PAGE - 1))
            }
            Self::Log(ino) => write!(f, "a log page of inode {ino}"),
            Self::Xattrs(ino) => write!(f, "extended attributes of inode {ino}"),
            Self::Data { ino, file_page } => {
                let byte = u128::from(*file_page) * u128::from(PAGE);
                write!(f, "data of inode {ino} at byte {byte}")
            }
            Self::Partner { ino, file_page } => {
                let byte = u128::from(*file_page) * u128::from(PAGE);
                write!(f, "second copies of lines of inode {ino}, from byte {byte} on")
            }
            Self::Saved(index) => {
                write!(f, "free, and page {index} of the saved allocator until then")
            }
        }
    }
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageDump {
    /// Where it lies.
    pub at: PmAddr,
    /// Whose it is; nobody's is free, and several owners are damage.
    pub owners: Vec<Owner>,
    /// Whether the saved allocator calls it used, where there is one that counts.
    pub saved: Option<bool>,
    /// What could not be asked: inodes that are damaged may own it, too.
    pub remarks: Vec<String>,
    /// What it holds, 4096 bytes.
    pub bytes: Vec<u8>,
}

/// What a search through inodes came to.
#[derive(Default)]
struct Search {
    owners: Vec<Owner>,
    remarks: Vec<String>,
    unasked: u64,
}

impl Dump<'_> {
    /// The page that holds `addr`: whose it is, and what is in it. Reads all inodes.
    ///
    /// # Errors
    /// [`Error::Damaged`] where no slot has such a page.
    pub fn page(
        &self,
        addr: PmAddr,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<PageDump> {
        let at = addr.page();
        let mut bytes = vec![0; 4096];
        self.pm.load(at, &mut bytes)?;
        let mut owners: Vec<Owner> = self.reserved(at).into_iter().collect();
        let lanes = (0..).zip(&self.lanes);
        let lanes = lanes.filter(|(_, page)| page.as_ref() == Ok(&at));
        owners.extend(lanes.map(|(lane, _)| Owner::Lane(lane)));
        owners.extend(
            self.chunks.directory_pages().filter(|page| *page == at).map(|_| Owner::Directory),
        );
        owners.extend(self.inodes_at(at).map(Owner::Inodes));
        let found = self.search(at, exec, progress);
        owners.extend(found.owners);
        if owners.is_empty() {
            owners.extend(self.saved_index(at).map(Owner::Saved));
        }
        let mut remarks = found.remarks;
        if found.unasked > remarks.len() as u64 {
            let more = found.unasked - remarks.len() as u64;
            remarks.push(format!("{more} more damaged inodes"));
        }
        owners.sort();
        Ok(PageDump { at, owners, saved: self.saved_says(at), remarks, bytes })
    }

    fn reserved(&self, at: PmAddr) -> Option<Owner> {
        let number = at.byte() / PAGE;
        let pages = self.pm.slot_len(at.slot()) / PAGE;
        let of_the_pool = at.slot() == 0;
        Some(Owner::Reserved(match number {
            0 if of_the_pool => "superblock, slot header, state lines",
            0 => "slot header, state lines",
            WEAR_PAGE => "wear lines",
            BAD_PAGE_LIST_PAGE => "the bad-page list",
            INODE_DIRECTORY_PAGE if of_the_pool => "the root of the inode directory",
            LANE_TABLE_PAGE if of_the_pool => "the lane table",
            number if number < FIRST_FREE_PAGE => "nothing yet",
            number if number == pages - 1 => "the replicas of slot header and superblock",
            _ => return None,
        }))
    }

    /// The first number of the inodes in a page.
    fn inodes_at(&self, at: PmAddr) -> impl Iterator<Item = u64> {
        (0..).zip(self.chunks.iter()).flat_map(move |(chunk, pages)| {
            let places = (0..).zip(&pages.pages).filter(move |(_, page)| **page == at);
            places.map(move |(index, _)| chunk * INODES_PER_CHUNK + index * INODES_PER_PAGE)
        })
    }

    fn search(
        &self,
        at: PmAddr,
        exec: &dyn Executor,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Search {
        let total = self.chunks.len() as u64 * INODES_PER_CHUNK;
        let done = AtomicU64::new(0);
        let found = Mutex::new(Search::default());
        exec.run(usize::try_from(total / TASK_INODES).unwrap_or(usize::MAX), &|task| {
            let first = task as u64 * TASK_INODES;
            let mut block = Search::default();
            for ino in self.chunks.placed(first..first + TASK_INODES) {
                if let Err(error) = self.owns(ino, at, &mut block.owners) {
                    block.unasked += 1;
                    block.remarks.push(error.to_string());
                }
            }
            let done = done.fetch_add(TASK_INODES, Ordering::Relaxed) + TASK_INODES;
            progress(Progress { what: "asking inodes", done, total });
            let mut all = found.lock().unwrap_or_else(PoisonError::into_inner);
            all.owners.extend(block.owners);
            all.unasked += block.unasked;
            let room = REMARKS_MAX.saturating_sub(all.remarks.len());
            all.remarks.extend(block.remarks.into_iter().take(room));
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what an inode owns of a page.
    fn owns(&self, ino: Ino, at: PmAddr, owners: &mut Vec<Owner>) -> Result<()> {
        let Some(place) = self.chunks.place(self.seed, ino) else { return Ok(()) };
        let session = self.state.map(|state| state.session);
        let decided = standing::decide(self.pm, session, &self.journal, ino, &place)?;
        let Some(standing) = decided.filter(|standing| standing.line.nlink > 0) else {
            return Ok(());
        };
        let identity = standing
            .identity
            .map_err(|error| Error::damaged_inode(ino, "identity line", place.addr, error))?;
        let id = LogId::new(self.seed, ino, identity.generation);
        let (head, tail) = (standing.line.log_head, standing.line.log_tail);
        let mut replay = ReplayedLog::default();
        let mut in_log = false;
        let walked = log::walk(self.pm, &id, head, tail, &mut |item| {
            match item {
                Item::Page { addr, .. } => in_log |= addr == at,
                Item::Entry(at, entry) => say(&at, entry, &mut replay)?,
            }
            Ok(())
        });
        owners.extend(in_log.then_some(Owner::Log(ino)));
        let extents = replay.extents();
        let pages = extents.iter().filter_map(|extent| extent.file_page_at(at));
        owners.extend(pages.map(|file_page| Owner::Data { ino, file_page }));
        let mut partners = PartnerPages::default();
        for pair in replay.pairs(&extents) {
            if partners.take(ino, pair)? == Some(at) {
                owners.push(Owner::Partner { ino, file_page: pair.file_page.get() });
            }
        }
        walked?;
        let root = replay.xattr_root.unwrap_or(identity.xattr_root);
        let mut in_xattrs = false;
        Xattrs::read(self.pm, &id, root)?.for_each_page(&mut |extent| {
            let away = at.raw().wrapping_sub(extent.addr.raw()) / PAGE;
            in_xattrs |= away < extent.pages;
            Ok(())
        })?;
        owners.extend(in_xattrs.then_some(Owner::Xattrs(ino)));
        Ok(())
    }
}
