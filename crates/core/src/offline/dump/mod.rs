//! What lies in a pool, as it lies there, for who looks for the cause of something.
//!
//! Comes in: a pool's memory, sound or not, whole or not, perhaps in use. Goes out: structures with
//! all their fields, whether each is refused and why, what stands and why the other does not. Called
//! by `novale dump`. `shown` is one structure; `pool`, `lanes`, `inode`, `log`, `xattrs`, `saved`
//! and `owner` are what can be looked at. Never in here: a store. A part that can't be read ends no look
//! at the rest, every walk is bounded by the pool's pages, and what is kept of it by [`DumpLimits`].

mod inode;
mod lanes;
mod log;
mod names;
mod owner;
mod pool;
mod saved;
mod shown;
mod xattrs;

use novale_layout::{
    Ino, LANE_TABLE_PAGE, LINE, PAGE, PmAddr, PoolState, Seed, Structure, Superblock,
};
use novale_pm::Pm;

use crate::inode::chunks::Chunks;
use crate::op::journal::Journal;
use crate::pool::marks::PageMarks;

pub use crate::offline::dump::inode::{InodeDump, RecordOf};
pub use crate::offline::dump::lanes::{LaneDump, RecordDump};
pub use crate::offline::dump::log::{LogDump, LogPageDump};
pub use crate::offline::dump::names::{ExtentDump, NameDump};
pub use crate::offline::dump::owner::{Owner, PageDump};
pub use crate::offline::dump::pool::{PoolDump, SlotDump};
pub use crate::offline::dump::saved::SavedDump;
pub use crate::offline::dump::shown::{Shown, Value};
pub use crate::offline::dump::xattrs::XattrsDump;

/// How much of long things is kept; what is left out is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpLimits {
    /// Log entries, names and extents, of each so many.
    pub items: usize,
    /// Whether what lies after a log's tail is looked at.
    pub behind: bool,
}

impl Default for DumpLimits {
    fn default() -> Self {
        Self { items: 10_000, behind: false }
    }
}

/// A pool that is looked at.
#[derive(Debug)]
pub struct Dump<'a> {
    pm: &'a Pm,
    seed: Seed,
    state: Option<PoolState>,
    directory: PmAddr,
    lanes: Vec<Result<PmAddr, String>>,
    chunks: Chunks,
    journal: Journal,
    remarks: Vec<String>,
}

impl<'a> Dump<'a> {
    /// Reads what is needed to find the rest, as far as it can be read.
    #[must_use]
    pub fn new(pm: &'a Pm) -> Self {
        let mut remarks = Vec::new();
        let superblock = pool::superblock(pm, &mut remarks);
        let uuid = superblock
            .as_ref()
            .map(|superblock| superblock.pool_uuid)
            .or_else(|| pool::uuid_of_slots(pm, &mut remarks))
            .unwrap_or_default();
        let seed = Seed::pool(&uuid);
        let state = pool::state(pm, seed);
        if state.is_none() {
            remarks.push("neither of the pool's state lines stands".to_owned());
        }
        let directory = superblock.as_ref().map_or_else(
            || PmAddr::new(0, novale_layout::INODE_DIRECTORY_PAGE * PAGE),
            |superblock| superblock.roots.inode_directory,
        );
        let mut this = Self {
            pm,
            seed,
            state,
            directory,
            lanes: lane_pages(pm, superblock.as_ref()),
            chunks: Chunks::default(),
            journal: Journal::default(),
            remarks,
        };
        this.read_chunks(superblock.as_ref());
        this.read_journal();
        this
    }

    fn read_chunks(&mut self, superblock: Option<&Superblock>) {
        let pages = (0..self.pm.slot_count()).map(|slot| self.pm.slot_len(slot) / PAGE).collect();
        match Chunks::read(self.pm, self.directory, &PageMarks::new(pages)) {
            Ok(chunks) => {
                self.chunks = match superblock {
                    Some(superblock) => chunks.of_pool(superblock),
                    None => chunks,
                }
            }
            Err(error) => self.remarks.push(error.to_string()),
        }
        self.remarks.extend(self.chunks.lost().iter().map(|lost| lost.why.to_string()));
    }

    fn read_journal(&mut self) {
        let pages: Vec<PmAddr> = self.lanes.iter().flatten().copied().collect();
        self.remarks.extend(self.lanes.iter().filter_map(|page| page.clone().err()));
        let session = self.state.map_or(u32::MAX, |state| state.session);
        let (pm, seed) = (self.pm, self.seed);
        let judged = Journal::read(pm, seed, &pages).and_then(|mut journal| {
            journal.judge(pm, seed, session, &|ino| self.chunks.place(seed, ino))?;
            Ok(journal)
        });
        match judged {
            Ok(journal) => self.journal = journal,
            Err(error) => self.remarks.push(error.to_string()),
        }
    }

    /// What could not be read, or not be believed, of what leads to the rest.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn is_clean(&self) -> bool {
        self.state.is_some_and(|state| state.flags & PoolState::CLEAN != 0)
    }

    /// A line as a structure; one that lies nowhere is refused for that.
    fn line<T>(
        &self,
        structure: Structure,
        at: PmAddr,
        decode: impl FnOnce(&[u8; 64]) -> Result<T, novale_layout::LayoutError>,
    ) -> (Shown, Option<T>) {
        match self.pm.load_line(at) {
            Ok(bytes) => {
                let judged = decode(&bytes);
                (Shown::new(structure, at, &bytes, &judged), judged.ok())
            }
            Err(error) => (Shown::unreadable(structure, at, error), None),
        }
    }

    /// Whether a whole page lies there.
    fn is_page(&self, addr: PmAddr) -> bool {
        !addr.is_null() && addr.is_page_aligned() && self.pm.contains(addr, PAGE)
    }
}

/// Each lane's page, or what is wrong with the word that names it.
fn lane_pages(pm: &Pm, superblock: Option<&Superblock>) -> Vec<Result<PmAddr, String>> {
    let count = superblock.map_or(1, |superblock| superblock.lane_count);
    let table = superblock.map_or_else(
        || PmAddr::new(0, LANE_TABLE_PAGE * PAGE),
        |superblock| superblock.roots.lane_table,
    );
    let words = u64::from(count.min(novale_layout::MAX_LANES));
    let page = |lane: u64| {
        let at = PmAddr::from_raw(table.raw().wrapping_add(lane * 8));
        let word = pm.load_u64(at).map_err(|error| format!("page of lane {lane}: {error}"))?;
        match novale_layout::decode_page_word(word) {
            Ok(page) if !page.is_null() && pm.contains(page, PAGE) => Ok(page),
            Ok(page) => Err(format!("page of lane {lane} at {at}: no page of the pool: {page}")),
            Err(error) => Err(format!("page of lane {lane} at {at}: {error}")),
        }
    };
    (0..words).map(page).collect()
}

/// The line of a commit slot of an inode.
fn line_addr(inode: PmAddr, offset: u64) -> PmAddr {
    debug_assert!(offset.is_multiple_of(LINE));
    inode.add(offset)
}

/// The number of an inode, in words.
fn named(ino: Ino) -> String {
    format!("inode {}", ino.get())
}
