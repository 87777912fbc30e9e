//! The allocator's state across a clean close: the bitmaps of pages and inode numbers and what
//! directory trees with a quota use, as words, in a chain of pages that the saved state itself counts as
//! free. They are read before anything is stored, and the clean flag falls before anything is allocated.

use std::collections::BTreeMap;

use novale_arena::Op;
use novale_layout::{
    Crc32c, FIRST_FREE_PAGE, INODES_PER_CHUNK, INODES_PER_PAGE, PAGE, PmAddr, PoolState,
    SAVED_PAYLOAD_BYTES_MAX, SAVED_PAYLOAD_OFFSET, SavedPageHeader, decode_words, encode_words,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::chunks::{Chunk, Chunks};
use crate::life::saved;
use crate::op::quota::Usage;
use crate::pool::Pool;
use crate::pool::marks::PageMarks;
use crate::space::{Need, Wanted, reserve_of};

pub(crate) const INODE_WORDS: usize = 128;
/// Words that a page of the chain has.
const WORDS_A_PAGE: usize = SAVED_PAYLOAD_BYTES_MAX as usize / 8;
/// Words of a project: its number, pages, inodes.
const PROJECT_WORDS: usize = 3;

/// The saved bitmaps.
#[derive(Debug)]
pub(crate) struct Saved {
    words: Vec<u64>,
    /// Where each slot's page words start.
    slots: Vec<usize>,
    /// Where the inode words start.
    inodes: usize,
    /// What directory trees with a quota use.
    pub(crate) projects: BTreeMap<u32, Usage>,
}

impl Saved {
    pub(crate) fn page_word(&self, slot: usize, index: u64) -> u64 {
        let first = self.slots.get(slot).copied().unwrap_or(usize::MAX);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        first.checked_add(index).and_then(|at| self.words.get(at)).copied().unwrap_or(u64::MAX)
    }

    /// Refuses what calls other pages in use than these.
    pub(crate) fn check_pages(&self, pool: &Pool, pages: &PageMarks) -> Result<()> {
        for (slot, (header, _)) in pool.slots.iter().enumerate() {
            for index in 0..header.pages.div_ceil(64) {
                let in_slot = u64::MAX >> (64 - (header.pages - index * 64).min(64));
                if (self.page_word(slot, index) ^ pages.word(slot, index)) & in_slot != 0 {
                    let at = PmAddr::new(header.index, index * 64 * PAGE);
                    let found = "other pages are in use than inodes and the pool itself have";
                    return Err(Error::damaged("saved allocator", at, found));
                }
            }
        }
        Ok(())
    }

    /// Inode numbers in use, 0 among them.
    pub(crate) fn inodes_used(&self, chunks: usize) -> u64 {
        let words = self.words.get(self.inodes..).unwrap_or_default();
        words.iter().take(chunks * INODE_WORDS).map(|word| u64::from(word.count_ones())).sum()
    }

    /// Free pages of a slot that has so many.
    fn free_pages(&self, slot: usize, pages: u64) -> u64 {
        // The last word's bits after the slot's end are no pages.
        let bits = |word: u64| u64::MAX >> (64 - (pages - word * 64).min(64));
        (0..pages.div_ceil(64)).map(|word| ones(!self.page_word(slot, word) & bits(word))).sum()
    }

    /// Whether each inode number in use has a page.
    pub(crate) fn has_places(&self, chunks: &Chunks) -> bool {
        // A word has the numbers of four pages.
        let (in_word, of_page) = (64 / INODES_PER_PAGE, (1 << INODES_PER_PAGE) - 1);
        let in_use = |chunk: usize, page: u64| {
            let word = usize::try_from(page / in_word).unwrap_or(usize::MAX);
            (self.inode_word(chunk, word) >> (page % in_word * INODES_PER_PAGE)) & of_page != 0
        };
        chunks.iter().enumerate().all(|(number, chunk): (usize, &Chunk)| {
            let mut pages = (0..).zip(&chunk.pages);
            pages.all(|(index, page)| !page.is_null() || !in_use(number, index))
        })
    }

    pub(crate) fn inode_word(&self, chunk: usize, index: usize) -> u64 {
        self.words.get(self.inodes + chunk * INODE_WORDS + index).copied().unwrap_or(u64::MAX)
    }
}

/// Words of the page bitmap of each slot.
fn slot_words(pool: &Pool) -> Vec<usize> {
    let words = |pages: u64| usize::try_from(pages.div_ceil(512) * 8).unwrap_or(usize::MAX);
    pool.slots.iter().map(|(header, _)| words(header.pages)).collect()
}

/// Reads the saved state; `None` where there is none.
pub(crate) fn read(pm: &Pm, pool: &Pool, chunks: usize) -> Result<Option<Saved>> {
    let state = &pool.state;
    if state.saved_root.is_null() {
        return Ok(None);
    }
    if let Some(slot) = pool.slots.iter().find(|(header, _)| pm.is_absent(header.index)) {
        // How many words are of it is not known.
        return Err(Error::Lost(PmAddr::new(slot.0.index, 0)));
    }
    let mut slots = Vec::new();
    let mut total = 0;
    for words in slot_words(pool) {
        slots.push(total);
        total += words;
    }
    let inodes = total;
    total += chunks * INODE_WORDS;
    let projects = total;
    total += project_words(state, total, chunks)?;
    let mut words = Vec::with_capacity(total);
    let mut crc = Crc32c::new();
    let (mut before, mut page) = (PmAddr::NULL, state.saved_root);
    let mut index = 0;
    while words.len() < total {
        if page.is_null() {
            return Err(Error::damaged("saved allocator", before, "the chain ends early"));
        }
        let header = SavedPageHeader::decode(&pm.load_line(page)?, pool.seed.addr(page))
            .map_err(|error| Error::damaged("saved allocator", page, error))?;
        let len = usize::try_from(header.payload_bytes.min(SAVED_PAYLOAD_BYTES_MAX)).unwrap_or(0);
        if header.page_index != index || len == 0 || !len.is_multiple_of(8) {
            return Err(Error::damaged(
                "saved allocator",
                page,
                format!("page {} of {len} bytes, expected page {index}", header.page_index),
            ));
        }
        let mut bytes = vec![0; len];
        pm.load(page.add(SAVED_PAYLOAD_OFFSET), &mut bytes)?;
        crc.update(&bytes);
        words.extend(decode_words(&bytes));
        (before, page) = (page, header.next);
        index += 1;
    }
    if crc.finish() != state.saved_crc || words.len() != total {
        return Err(Error::damaged(
            "saved allocator",
            state.saved_root,
            "its checksum does not match",
        ));
    }
    let projects = words.get(projects..).unwrap_or_default();
    let projects = read_projects(projects).ok_or_else(|| {
        Error::damaged("saved allocator", state.saved_root, "projects out of order")
    })?;
    Ok(Some(Saved { words, slots, inodes, projects }))
}

/// Words after those of the bitmaps: there are no more projects than inodes.
fn project_words(state: &PoolState, bitmaps: usize, chunks: usize) -> Result<usize> {
    let words = usize::try_from(state.saved_bytes / 8).unwrap_or(usize::MAX).checked_sub(bitmaps);
    let is_whole = |words: &usize| {
        let projects = words / PROJECT_WORDS;
        state.saved_bytes.is_multiple_of(8)
            && words.is_multiple_of(PROJECT_WORDS)
            && projects <= chunks * INODE_WORDS * 64
    };
    words.filter(is_whole).ok_or_else(|| {
        let found = format!("{} bytes, {} of them bitmaps", state.saved_bytes, bitmaps * 8);
        Error::damaged("saved allocator", state.saved_root, found)
    })
}

/// Projects and what they use, rising; `None` for anything else.
fn read_projects(words: &[u64]) -> Option<BTreeMap<u32, Usage>> {
    let mut projects = BTreeMap::new();
    for entry in words.chunks_exact(PROJECT_WORDS) {
        let [project, pages, inodes] = *entry else { return None };
        let project = u32::try_from(project).ok().filter(|project| *project > 0)?;
        if projects.last_key_value().is_some_and(|(last, _)| *last >= project) {
            return None;
        }
        projects.insert(project, Usage { pages, inodes });
    }
    Some(projects)
}

/// The clean state line that names no bitmaps: the next opening scans.
pub(crate) fn without(pool: &Pool) -> PoolState {
    PoolState { flags: PoolState::CLEAN, saved_root: PmAddr::NULL, ..pool.state }
}

/// Writes the bitmaps into free pages; returns the clean state line that names them, to be stored
/// after a fence. A pool too full for them is clean without: the next opening scans.
pub(crate) fn write(fs: &Fs, op: &Op<'_>, pool: &Pool) -> Result<(PoolState, Flushed)> {
    let clean = without(pool);
    let words = snapshot(fs)?;
    let pages = words.len().div_ceil(WORDS_A_PAGE) as u64;
    let arena = fs.arena();
    let Ok(extents) = fs.allocator.take_all(arena, op, 0, Wanted::once(pages), Need::Release)
    else {
        return Ok((clean, Flushed::none()));
    };
    // In a list: they may lie in as many pieces as there are.
    let places =
        extents.iter().flat_map(|of| (0..of.pages).map(move |page| of.addr.add(page * PAGE)));
    let places: Vec<PmAddr> = places.collect();
    let place = |index: usize| places.get(index).copied().unwrap_or_default();
    let (mut pending, mut crc) = (Flushed::none(), Crc32c::new());
    // Page by page: all of it is 400 MB for 12 TB.
    for (index, part) in words.chunks(WORDS_A_PAGE).map(encode_words).enumerate() {
        crc.update(&part);
        let page = place(index);
        let header = SavedPageHeader {
            next: place(index + 1),
            page_index: u32::try_from(index).unwrap_or(u32::MAX),
            payload_bytes: u32::try_from(part.len()).unwrap_or(0),
        };
        let mut image = header.encode(pool.seed.addr(page)).to_vec();
        image.extend_from_slice(&part);
        debug_assert!(image.len() as u64 <= PAGE);
        pending = pending.and(fs.pm().stream(page, &image, Purpose::Other));
    }
    let named = PoolState {
        saved_root: place(0),
        saved_bytes: words.len() as u64 * 8,
        saved_crc: crc.finish(),
        ..clean
    };
    Ok((named, pending))
}

/// The words: each slot's pages, each chunk's inode numbers, then projects.
fn snapshot(fs: &Fs) -> Result<Vec<u64>> {
    let arena = fs.arena();
    let mut words = Vec::new();
    for range in fs.allocator.ranges.all() {
        for index in 0..8 {
            words.push(fs.allocator.ranges.word(arena, range, index)?);
        }
    }
    for chunk in 0..fs.inodes.chunk_count(arena)? {
        for index in 0..INODE_WORDS {
            words.push(fs.inodes.word(arena, chunk, index)?);
        }
    }
    for (project, quota) in fs.projects.all(arena)? {
        if quota.used != Usage::default() {
            words.extend([project.into(), quota.used.pages, quota.used.inodes]);
        }
    }
    debug_assert_eq!(INODE_WORDS as u64 * 64, INODES_PER_CHUNK);
    Ok(words)
}

/// Space and inodes of a pool that is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free pages of 4096 bytes, without the reserve for deletes and overwrites.
    pub pages_available: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// What a pool that was closed clean has room for, by its saved allocator; `None` where only a scan
/// would tell.
///
/// # Errors
/// [`Error::BadPool`] and [`Error::Damaged`] say what was found.
pub fn space(pm: &Pm) -> Result<Option<Space>> {
    let Some((pool, chunks, saved)) = of_closed(pm)? else { return Ok(None) };
    let (mut free, mut usable) = (0, 0);
    for (slot, (header, _)) in pool.slots.iter().enumerate() {
        free += saved.free_pages(slot, header.pages);
        usable += header.pages.saturating_sub(FIRST_FREE_PAGE + 1);
    }
    let words = usize::try_from(INODES_PER_CHUNK / 64).unwrap_or_default();
    let places = (0..chunks).flat_map(|chunk| (0..words).map(move |word| (chunk, word)));
    let numbers: u64 = places.map(|(chunk, word)| ones(saved.inode_word(chunk, word))).sum();
    // Number 0 is nobody's and counts as used.
    Ok(Some(Space {
        pages_available: free.saturating_sub(reserve_of(usable)),
        inodes: numbers.saturating_sub(1),
    }))
}

/// Free pages of each slot of a pool that was closed clean, by its saved allocator; `None` where only a
/// scan would tell.
///
/// # Errors
/// As [`space`].
pub fn saved_free(pm: &Pm) -> Result<Option<Vec<u64>>> {
    let Some((pool, _, saved)) = of_closed(pm)? else { return Ok(None) };
    let slots = pool.slots.iter().enumerate();
    Ok(Some(slots.map(|(slot, (header, _))| saved.free_pages(slot, header.pages)).collect()))
}

/// The pool, its chunks and its saved allocator, where that says what is free.
fn of_closed(pm: &Pm) -> Result<Option<(Pool, usize, Saved)>> {
    let pool = Pool::read(pm)?;
    if !pool.is_clean() {
        return Ok(None);
    }
    let chunks = Chunks::read(pm, pool.superblock.roots.inode_directory, &pool.no_pages())?.len();
    let saved = saved::read(pm, &pool, chunks)?;
    Ok(saved.map(|saved| (pool, chunks, saved)))
}

fn ones(word: u64) -> u64 {
    word.count_ones().into()
}
