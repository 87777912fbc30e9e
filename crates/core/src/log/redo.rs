//! Bytes that a log has for its file, and that may not lie there yet: those of redo entries of the newest
//! operation, in the session that crashed or whose client died.

use novale_layout::{PAGE, PmAddr, Redo, RoFeature, Source};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::inode::state::LogId;
use crate::log::coverage::Mappings;
use crate::seeded::{self, Bug};

/// Bytes within one page of a file that the log has, and where they belong.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    pub(crate) offset: u64,
    pub(crate) at: PmAddr,
    pub(crate) bytes: Vec<u8>,
}

impl Owed {
    /// Whether they lie there.
    pub(crate) fn is_there(&self, pm: &Pm) -> Result<bool> {
        let mut found = vec![0; self.bytes.len()];
        pm.load(self.at, &mut found)?;
        Ok(found == self.bytes)
    }
}

/// Where an entry's bytes of the file are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RedoFrom<'a> {
    /// In the entry.
    Entry(&'a Redo),
    /// Elsewhere in the pool.
    Pool(&'a Source),
}

impl RedoFrom<'_> {
    /// The bit of the feature that such an entry uses.
    pub(crate) fn feature(self) -> u64 {
        match self {
            Self::Entry(_) => RoFeature::Redo.bit(),
            Self::Pool(_) => RoFeature::Sources.bit(),
        }
    }

    /// The first byte of the file, and the bytes; none where others lie there by now.
    pub(crate) fn load(self, pm: &Pm) -> Result<Option<(u64, Vec<u8>)>> {
        let source = match self {
            Self::Entry(redo) => return Ok(Some((redo.offset(), redo.bytes().to_vec()))),
            Self::Pool(source) => source,
        };
        if !pm.may_hold(source.from, source.length.into()) {
            let found = format!("{} bytes at {}, outside of the pool", source.length, source.from);
            return Err(Error::damaged("source entry", source.from, found));
        }
        let mut bytes = vec![0; usize::try_from(source.length).unwrap_or(0)];
        pm.load(source.from, &mut bytes)?;
        let is_asked = !seeded::is_on(Bug::SourceNotAsked);
        let are_the_users = novale_crc::append(0, &bytes) == source.crc || !is_asked;
        Ok(are_the_users.then_some((source.offset, bytes)))
    }
}

/// The redo entries of one operation.
#[derive(Debug, Default)]
pub(crate) struct Redone(Vec<(u64, Vec<u8>)>);

impl Redone {
    /// Takes in the log's next entry of the operation.
    pub(crate) fn push(&mut self, bytes: (u64, Vec<u8>)) {
        self.0.push(bytes);
    }

    /// Where the bytes belong in a file of so many bytes whose pages lie as `mappings` say.
    pub(crate) fn owed(&self, id: &LogId, mappings: &Mappings, size: u64) -> Result<Vec<Owed>> {
        let mut owed = Vec::new();
        for (offset, bytes) in &self.0 {
            let (mut offset, mut rest) = (*offset, &bytes[..]);
            while !rest.is_empty() {
                let from = offset % PAGE;
                let room = usize::try_from(PAGE - from).unwrap_or(0);
                let (now, later) = rest.split_at(rest.len().min(room));
                let page = mappings.page(offset / PAGE);
                let Some(page) = page.filter(|_| offset + now.len() as u64 <= size) else {
                    let found = format!("bytes at {offset}, where the file has none");
                    return Err(Error::damaged_inode(id.ino, "redo entry", PmAddr::NULL, found));
                };
                owed.push(Owed { offset, at: page.add(from), bytes: now.to_vec() });
                (offset, rest) = (offset + now.len() as u64, later);
            }
        }
        Ok(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::extent::Extent;
    use crate::log::coverage::Mapping;

    #[test]
    fn bytes_are_owed_page_by_page_where_the_file_has_them_and_nowhere_else() {
        let id = LogId::new(novale_layout::Seed::pool(&[0; 16]), novale_layout::Ino::ROOT, 1);
        let mut mappings = Mappings::default();
        mappings.push(Mapping::of(2, Extent { addr: PmAddr::new(0, 8 * PAGE), pages: 3 }));
        mappings.push(Mapping::hole(3..4));
        let size = 5 * PAGE - 10;
        let owed = |offset, len| {
            Redone(vec![(offset, vec![7; len])]).owed(&id, &mappings, size).map(|owed| {
                let parts = owed.iter().map(|owed| (owed.offset, owed.at.byte(), owed.bytes.len()));
                parts.collect::<Vec<_>>()
            })
        };
        let start = 2 * PAGE;
        assert_eq!(owed(start + 9, 20).unwrap(), [(start + 9, 8 * PAGE + 9, 20)]);
        assert_eq!(owed(size - 6, 6).unwrap(), [(size - 6, 11 * PAGE - 16, 6)]);
        for (offset, len) in [(size - 6, 7), (3 * PAGE, 1), (3 * PAGE - 4, 8), (start - 1, 1)] {
            assert!(owed(offset, len).is_err(), "{len} bytes at {offset}");
        }
    }

    #[test]
    fn bytes_beyond_the_pool_are_damage() {
        let pm = Pm::anonymous(&[16 * PAGE], &novale_pm::PmOptions::default()).unwrap();
        let load = |byte: u64, length: u32| {
            let crc = novale_crc::append(0, &[0; 64]);
            let source = Source { offset: 9, from: PmAddr::new(0, byte), length, crc };
            RedoFrom::Pool(&source).load(&pm)
        };
        assert_eq!(load(16 * PAGE - 64, 64).unwrap(), Some((9, vec![0; 64])));
        assert_eq!(load(16 * PAGE - 64, 63).unwrap(), None);
        let said = load(16 * PAGE - 64, 65).unwrap_err().to_string();
        assert!(said.contains("65 bytes at ") && said.contains("outside of the pool"), "{said}");
    }

    #[test]
    fn bytes_over_a_border_are_owed_to_both_pages() {
        let id = LogId::new(novale_layout::Seed::pool(&[0; 16]), novale_layout::Ino::ROOT, 1);
        let mut mappings = Mappings::default();
        for (page, at) in [(0, 9), (1, 5)] {
            mappings.push(Mapping::of(page, Extent { addr: PmAddr::new(0, at * PAGE), pages: 1 }));
        }
        let owed = Redone(vec![(PAGE - 3, vec![1, 2, 3, 4, 5])]).owed(&id, &mappings, 2 * PAGE);
        let [first, second] = owed.unwrap().try_into().unwrap();
        assert_eq!((first.at, first.bytes), (PmAddr::new(0, 10 * PAGE - 3), vec![1, 2, 3]));
        assert_eq!((second.at, second.bytes), (PmAddr::new(0, 5 * PAGE), vec![4, 5]));
    }
}
