//! What an inode's log comes to: a directory's names, a file's pages; and the way along a path.

use std::collections::BTreeMap;
use std::ops::Range;

use novale_layout::{Attributes, FileKind, Ino, PAGE, Pair, PmAddr};

use crate::base::error::Result;
use crate::base::extent::Extent;
use crate::log::Logged;
use crate::log::coverage::{Mapping, resolve};
use crate::log::pairs::LoggedPairs;
use crate::log::redo::RedoFrom;
use crate::log::replay::{Fold, NameSaid};
use crate::offline::dump::{Dump, DumpLimits, named};

/// A name of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameDump {
    /// Its place in the order of readdir.
    pub cookie: u64,
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: Ino,
    /// That inode's generation, as the name says.
    pub generation: u32,
    /// That inode's kind, as the name says.
    pub kind: FileKind,
    /// The entry that says so.
    pub at: PmAddr,
}

/// Pages of a file that lie next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentDump {
    /// The first page of the file.
    pub file_page: u64,
    /// Pages.
    pub pages: u64,
    /// The first page of the pool.
    pub addr: PmAddr,
}

/// What a log comes to, entry by entry.
#[derive(Debug, Default)]
pub(super) struct ReplayedLog {
    names: BTreeMap<u64, NameDump>,
    mappings: Vec<Mapping>,
    pairs: LoggedPairs,
    /// The extended attributes of the newest attributes entry, where there is one.
    pub(super) xattr_root: Option<PmAddr>,
}

impl Fold for ReplayedLog {
    fn map(&mut self, _at: &Logged<'_>, first: u64, extent: Extent) -> Result<()> {
        self.mappings.push(Mapping::of(first, extent));
        self.pairs.map(first..first + extent.pages);
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, pages: Range<u64>) -> Result<()> {
        self.pairs.map(pages.clone());
        self.mappings.push(Mapping::hole(pages));
        Ok(())
    }

    fn redo(&mut self, _at: &Logged<'_>, _from: RedoFrom<'_>) -> Result<()> {
        Ok(())
    }

    fn pair(&mut self, _at: &Logged<'_>, pair: &Pair) -> Result<()> {
        self.pairs.pair(pair);
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        self.xattr_root = Some(attributes.xattr_root);
        Ok(())
    }

    fn name(&mut self, at: &Logged<'_>, said: &NameSaid<'_>) -> Result<()> {
        let NameSaid { ino, generation, kind, cookie, name } = *said;
        let name = name.as_bytes().to_vec();
        self.names.insert(cookie, NameDump { cookie, name, ino, generation, kind, at: at.addr });
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, cookie: u64) -> Result<()> {
        self.names.remove(&cookie);
        Ok(())
    }
}

impl ReplayedLog {
    /// The names that are left, in the order of readdir.
    pub(super) fn names(&self) -> impl Iterator<Item = &NameDump> {
        self.names.values()
    }

    /// The pages that are mapped in the end, in the order of the file.
    pub(super) fn extents(&self) -> Vec<ExtentDump> {
        let mut extents = Vec::new();
        let resolved: std::result::Result<(), std::convert::Infallible> =
            resolve(&self.mappings, &mut |file_page, extent| {
                extents.push(ExtentDump { file_page, pages: extent.pages, addr: extent.addr });
                Ok(())
            });
        match resolved {
            Ok(()) => extents.sort_by_key(|extent| extent.file_page),
        }
        extents
    }

    /// The pages of these extents that have two copies in the end.
    pub(super) fn pairs(&self, extents: &[ExtentDump]) -> impl Iterator<Item = &Pair> {
        extents.iter().flat_map(|extent| {
            let ExtentDump { file_page, pages, addr } = *extent;
            self.pairs.of(file_page, Extent { addr, pages }).map(|(_, pair)| pair)
        })
    }
}

impl ExtentDump {
    /// The page of the file that lies at `page`, if one does.
    pub(super) fn file_page_at(&self, page: PmAddr) -> Option<u64> {
        let same_slot = self.addr.slot() == page.slot();
        let away = page.byte().checked_sub(self.addr.byte()).filter(|_| same_slot)? / PAGE;
        (away < self.pages).then(|| self.file_page + away)
    }
}

impl Dump<'_> {
    /// Follows a path from the root directory; symbolic links are not followed.
    ///
    /// # Errors
    /// In words, how far it led and what is not there.
    pub fn find(&self, path: &[u8]) -> std::result::Result<Ino, String> {
        let mut ino = Ino::ROOT;
        for part in path.split(|byte| *byte == b'/') {
            if part.is_empty() || part == b"." {
                continue;
            }
            let limits = DumpLimits { items: 0, behind: false };
            let (replay, end) = self.replay(ino, limits)?;
            let found = replay.names().find(|name| name.name == part).map(|name| name.ino);
            ino = found.ok_or_else(|| {
                let part = part.escape_ascii();
                format!("{} has no name \"{part}\" (its log: {end})", named(ino))
            })?;
        }
        Ok(ino)
    }
}
