//! The inode directory as media has it: which inode numbers have a place, and where.

use std::ops::Range;

use novale_layout::{
    COMMIT_OFFSETS, CommitLine, IDENTITY_OFFSET, INODE_SIZE, INODES_PER_CHUNK, INODES_PER_PAGE,
    IdentityLine, Ino, LINE, MAX_CHUNKS, PAGE, PmAddr, RoFeature, Seed, Superblock, WORDS_PER_PAGE,
    decode_page_word, words_of_line,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::inode::state::InodePlace;
use crate::pool::marks::PageMarks;

/// The inode pages of every chunk, and the pages that name them.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    items: Vec<Chunk>,
    /// Pages of the directory's second level.
    upper: Vec<PmAddr>,
    /// Words that name no page, or one that another word names.
    lost: Vec<Lost>,
    /// Lines of inodes that were never written are zeros.
    takes_zeros: bool,
}

/// One chunk of 8192 inode numbers.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The page that names the inode pages; null where that is not known.
    pub(crate) table: PmAddr,
    /// The inode pages, null where none is made yet.
    pub(crate) pages: Vec<PmAddr>,
}

/// Inode numbers whose place is not known, since a word of the directory is damaged.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    /// The page of the directory that does not name them.
    page: PmAddr,
    /// From the first to the last; a number between them that has a place is not lost.
    pub(crate) numbers: Range<u64>,
    pub(crate) why: Error,
    spans_tables: bool,
}

impl Lost {
    /// Whether a word is damaged that names more than the page of 16 inodes.
    pub(crate) fn is_of_tables(&self) -> bool {
        self.spans_tables
    }

    /// Whether a number without a place is among them.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.numbers.contains(&ino.get())
    }
}

impl Chunks {
    /// Reads the directory and marks its pages, those of inodes included. A damaged word is noted,
    /// and names nothing: see [`Chunks::lost`].
    pub(crate) fn read(pm: &Pm, root: PmAddr, marks: &PageMarks) -> Result<Self> {
        let mut this = Self::default();
        let in_use = words_in_use(pm, root)?;
        let behind = in_use.len();
        for (index, word) in (0..).zip(in_use) {
            let first = index * WORDS_PER_PAGE;
            let numbers = numbers_of(first);
            let end = numbers.end;
            let Some(page) = this.table(pm, marks, word, numbers) else {
                // Those after it keep their numbers.
                this.items.resize_with(to_len(first + WORDS_PER_PAGE), Chunk::default);
                continue;
            };
            match this.read_upper(pm, page, marks) {
                Ok(()) => this.upper.push(page),
                Err(why @ Error::Lost(_)) => {
                    this.lose(page, numbers_of(first), why);
                    this.items.resize_with(to_len(first + WORDS_PER_PAGE), Chunk::default);
                    continue;
                }
                Err(error) => return Err(error),
            }
            // Chunks come in order: a page of the second level that another follows is full.
            let missing = first + WORDS_PER_PAGE - this.items.len() as u64;
            if missing > 0 && to_len(index + 1) < behind {
                let found = format!("{missing} tables short, and another one follows");
                let why = Error::damaged("inode directory", page, found);
                this.lose(page, end - missing * INODES_PER_CHUNK..end, why);
                this.items.resize_with(to_len(first + WORDS_PER_PAGE), Chunk::default);
            }
        }
        let known = this.items.iter().rposition(|chunk| !chunk.table.is_null());
        this.items.truncate(known.map_or(0, |last| last + 1));
        if this.items.is_empty() && this.lost.is_empty() {
            // A word of the first chunk is null, which each pool has.
            let page = this.upper.first().copied().unwrap_or(root);
            let why = Error::damaged("inode directory", page, "no inode chunk");
            this.lose(page, 0..MAX_CHUNKS * INODES_PER_CHUNK, why);
        }
        Ok(this)
    }

    /// Reads the tables that a page of the second level names.
    fn read_upper(&mut self, pm: &Pm, page: PmAddr, marks: &PageMarks) -> Result<()> {
        for word in words_in_use(pm, page)? {
            let first = self.items.len() as u64 * INODES_PER_CHUNK;
            let Some(table) = self.table(pm, marks, word, first..first + INODES_PER_CHUNK) else {
                self.items.push(Chunk::default());
                continue;
            };
            let words = match words(pm, table) {
                Ok(words) => words,
                Err(why @ Error::Lost(_)) => {
                    self.lose(table, first..first + INODES_PER_CHUNK, why);
                    self.items.push(Chunk::default());
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut pages = Vec::new();
            for (index, word) in (0..).zip(words) {
                let first = first + index * INODES_PER_PAGE;
                let numbers = first..first + INODES_PER_PAGE;
                pages.push(self.page(pm, marks, word, numbers).unwrap_or(PmAddr::NULL));
            }
            self.items.push(Chunk { table, pages });
        }
        Ok(())
    }

    /// As [`Chunks::page`], of a word before or among those in use: chunks come in order, so that a
    /// null one is damaged.
    fn table(
        &mut self,
        pm: &Pm,
        marks: &PageMarks,
        word: DirectoryWord,
        numbers: Range<u64>,
    ) -> Option<PmAddr> {
        if word.value != 0 {
            return self.page(pm, marks, word, numbers);
        }
        let why = Error::damaged("inode directory", word.at, "null, and words behind it are not");
        self.lose(word.at.page(), numbers, why);
        None
    }

    /// The page that a word names, or null; `None` for a damaged word, which loses these inode
    /// numbers.
    fn page(
        &mut self,
        pm: &Pm,
        marks: &PageMarks,
        word: DirectoryWord,
        numbers: Range<u64>,
    ) -> Option<PmAddr> {
        let DirectoryWord { at, value } = word;
        let damaged = |found: &dyn std::fmt::Display| Error::damaged("inode directory", at, found);
        let judged = match decode_page_word(value) {
            Ok(addr) if addr.is_null() => Ok(addr),
            Ok(addr) if !pm.may_hold(addr, PAGE) => Err(damaged(&addr)),
            Ok(addr) => {
                marks.mark(addr, 1, &|| format!("word {at} of the inode directory")).map(|()| addr)
            }
            Err(error) => Err(damaged(&error)),
        };
        match judged {
            Ok(addr) => Some(addr),
            Err(why) => {
                self.lose(at.page(), numbers, why);
                None
            }
        }
    }

    /// Notes lost numbers, once a page of the directory: those between are asked for elsewhere first.
    fn lose(&mut self, page: PmAddr, numbers: Range<u64>, why: Error) {
        match self.lost.last_mut() {
            Some(last) if last.page == page => last.numbers.end = numbers.end,
            _ => {
                let spans_tables = numbers.end - numbers.start > INODES_PER_PAGE;
                self.lost.push(Lost { page, numbers, why, spans_tables });
            }
        }
    }

    /// Has a chunk whose table is lost name these pages, which prove to be its own.
    pub(crate) fn adopt(&mut self, chunk: u64, pages: &[PmAddr], marks: &PageMarks) -> Result<()> {
        for page in pages.iter().filter(|page| !page.is_null()) {
            marks.mark(*page, 1, &|| format!("chunk {chunk} of the inode directory"))?;
        }
        let first = chunk * INODES_PER_CHUNK;
        self.lost.retain(|lost| lost.numbers.start != first || !lost.is_of_tables());
        if self.items.len() <= to_len(chunk) {
            self.items.resize_with(to_len(chunk + 1), Chunk::default);
        }
        if let Some(item) = self.items.get_mut(to_len(chunk)) {
            item.pages = pages.to_vec();
        }
        Ok(())
    }

    /// Takes zeros for lines that were never written, in a pool that has them so.
    pub(crate) fn of_pool(mut self, superblock: &Superblock) -> Self {
        self.takes_zeros = superblock.features_ro_compat & RoFeature::Unwritten.bit() == 0;
        self
    }

    pub(crate) fn takes_zeros(&self) -> bool {
        self.takes_zeros
    }

    /// Makes all lines of zeros lines that say that they were never written, durably. It can be cut off
    /// anywhere: of each line one unit of 8 bytes changes, and both are blank until the pool says that zeros
    /// are not.
    pub(crate) fn say_unwritten(&mut self, pm: &Pm, pool: Seed) -> Result<()> {
        let all = 0..self.items.len() as u64 * INODES_PER_CHUNK;
        let mut pending = Flushed::none();
        for ino in self.placed(all) {
            let (Some(at), seed) = (self.addr(ino), pool.ino(ino)) else { continue };
            let [first, second] = COMMIT_OFFSETS;
            let commit = CommitLine::never_written(seed);
            let identity = IdentityLine::never_written(seed);
            for (offset, line) in [(IDENTITY_OFFSET, identity), (first, commit), (second, commit)] {
                if pm.load_line(at.add(offset))? == [0; 64] {
                    pending = pending.and(pm.stream(at.add(offset), &line, Purpose::Inode));
                }
            }
        }
        pm.fence(pending).end();
        self.takes_zeros = false;
        Ok(())
    }

    /// What of the directory is damaged.
    pub(crate) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.items.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Those of these numbers that have a place. Most pages of most chunks are not made.
    pub(crate) fn placed(&self, numbers: Range<u64>) -> impl Iterator<Item = Ino> + '_ {
        let pages = numbers.start / INODES_PER_PAGE..numbers.end.div_ceil(INODES_PER_PAGE);
        pages
            .map(|page| page * INODES_PER_PAGE)
            .filter(|first| self.addr(Ino::new(*first)).is_some())
            .flat_map(move |first| {
                // Number 0 is nobody's.
                first.max(numbers.start).max(1)..(first + INODES_PER_PAGE).min(numbers.end)
            })
            .map(Ino::new)
    }

    /// Where an inode lies; `None` for a number whose page is not made.
    pub(crate) fn place(&self, seed: Seed, ino: Ino) -> Option<InodePlace> {
        Some(InodePlace::new(seed, ino, self.addr(ino)?).taking_zeros(self.takes_zeros))
    }

    /// The address of an inode; `None` for a number whose page is not made.
    pub(crate) fn addr(&self, ino: Ino) -> Option<PmAddr> {
        let chunk = self.items.get(usize::try_from(ino.chunk()).ok()?)?;
        let page = chunk.pages.get(usize::try_from(ino.index() / INODES_PER_PAGE).ok()?)?;
        let at = page.add(ino.index() % INODES_PER_PAGE * INODE_SIZE);
        (!page.is_null()).then_some(at)
    }

    /// The pages of the directory's second level.
    pub(crate) fn upper_pages(&self) -> impl Iterator<Item = PmAddr> + '_ {
        self.upper.iter().copied()
    }

    /// Every page of the directory: of its second level, and the chunks' tables.
    pub(crate) fn directory_pages(&self) -> impl Iterator<Item = PmAddr> + '_ {
        let tables = self.items.iter().map(|chunk| chunk.table).filter(|table| !table.is_null());
        self.upper.iter().copied().chain(tables)
    }

    /// Writes the directory's words back: a process that named a page may have died before its
    /// fence.
    pub(crate) fn write_back(&self, pm: &Pm, root: PmAddr) -> Flushed {
        std::iter::once(root)
            .chain(self.directory_pages())
            .fold(Flushed::none(), |pending, page| {
                pending.and(pm.write_back_range(page, PAGE, Purpose::Inode))
            })
    }
}

/// The words of a page of the directory, each with its place.
/// A word of the inode directory, and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectoryWord {
    pub(crate) at: PmAddr,
    pub(crate) value: u64,
}

/// The numbers of the chunks that a page of the second level names, by the first of them.
fn numbers_of(first: u64) -> Range<u64> {
    first * INODES_PER_CHUNK..(first + WORDS_PER_PAGE) * INODES_PER_CHUNK
}

fn words(pm: &Pm, page: PmAddr) -> Result<Vec<DirectoryWord>> {
    let mut words = Vec::with_capacity(to_len(WORDS_PER_PAGE));
    for line in (0..PAGE).step_by(to_len(LINE)).map(|offset| page.add(offset)) {
        let values = words_of_line(&pm.load_line(line)?);
        let places = (0..).step_by(8).map(|offset| line.add(offset));
        words.extend(places.zip(values).map(|(at, value)| DirectoryWord { at, value }));
    }
    Ok(words)
}

/// The words of a page up to the last that is not null.
pub(crate) fn words_in_use(pm: &Pm, page: PmAddr) -> Result<Vec<DirectoryWord>> {
    let mut words = words(pm, page)?;
    let last = words.iter().rposition(|word| word.value != 0);
    words.truncate(last.map_or(0, |last| last + 1));
    Ok(words)
}

fn to_len(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
