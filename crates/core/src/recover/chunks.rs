//! The inode directory as media has it: which inode numbers have a place, and where.

use novale_layout::{
    INODE_SIZE, INODES_PER_PAGE, Ino, PAGE, PmAddr, Seed, WORDS_PER_PAGE, decode_page_word,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::commit::InodePlace;
use crate::error::{Error, Result};

/// The inode pages of every chunk, and the pages that name them.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    /// Pages of the directory's second level.
    upper: Vec<PmAddr>,
}

/// One chunk of 8192 inode numbers.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The page that names the inode pages.
    pub(crate) table: PmAddr,
    /// The inode pages, null where none is made yet.
    pub(crate) pages: Vec<PmAddr>,
}

impl Chunks {
    pub(crate) fn read(pm: &Pm, root: PmAddr) -> Result<Self> {
        let mut this = Self::default();
        for page in words(pm, root)?.into_iter().take_while(|page| !page.is_null()) {
            this.upper.push(page);
            for table in words(pm, page)?.into_iter().take_while(|table| !table.is_null()) {
                this.chunks.push(Chunk { table, pages: words(pm, table)? });
            }
        }
        if this.chunks.is_empty() {
            return Err(Error::damaged("inode directory", root, "no inode chunk"));
        }
        Ok(this)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Where an inode lies; `None` for a number whose page is not made.
    pub(crate) fn place(&self, seed: Seed, ino: Ino) -> Option<InodePlace> {
        let chunk = self.chunks.get(usize::try_from(ino.chunk()).ok()?)?;
        let page = chunk.pages.get(usize::try_from(ino.index() / INODES_PER_PAGE).ok()?)?;
        let at = page.add(ino.index() % INODES_PER_PAGE * INODE_SIZE);
        (!page.is_null()).then(|| InodePlace::new(seed, ino, at))
    }

    /// Where an inode that a journal record names lies.
    pub(crate) fn place_named(&self, seed: Seed, ino: Ino) -> Result<InodePlace> {
        self.place(seed, ino).ok_or_else(|| {
            Error::damaged_inode(ino, "journal record", PmAddr::NULL, "a number without a place")
        })
    }

    /// Every page of the directory: of its second level, and the chunks' tables.
    pub(crate) fn directory_pages(&self) -> impl Iterator<Item = PmAddr> + '_ {
        self.upper.iter().copied().chain(self.chunks.iter().map(|chunk| chunk.table))
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

    /// Every inode page.
    pub(crate) fn inode_pages(&self) -> impl Iterator<Item = PmAddr> + '_ {
        self.chunks.iter().flat_map(|chunk| &chunk.pages).copied().filter(|page| !page.is_null())
    }
}

/// The words of a page of the directory.
fn words(pm: &Pm, page: PmAddr) -> Result<Vec<PmAddr>> {
    (0..WORDS_PER_PAGE)
        .map(|index| {
            let at = page.add(index * 8);
            let addr = decode_page_word(pm.load_u64(at)?)
                .map_err(|error| Error::damaged("inode directory", at, error))?;
            if addr.is_null() || pm.contains(addr, PAGE) {
                Ok(addr)
            } else {
                Err(Error::damaged("inode directory", at, addr))
            }
        })
        .collect()
}
