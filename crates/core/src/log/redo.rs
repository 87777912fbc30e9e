//! Bytes that a log has for its file, and that may not lie there yet: those of redo entries of the newest
//! operation, in the session that crashed or whose client died.

use novale_layout::{PAGE, PmAddr, Redo, Source};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::inode::state::LogId;
use crate::log::coverage::Mappings;

/// Bytes within one page of a file that the log has, and where they belong.
#[derive(Debug)]
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
    /// The first byte of the file, and the bytes.
    pub(crate) fn load(self, pm: &Pm) -> Result<(u64, Vec<u8>)> {
        let source = match self {
            Self::Entry(redo) => return Ok((redo.offset(), redo.bytes().to_vec())),
            Self::Pool(source) => source,
        };
        if !pm.contains(source.from, source.length.into()) {
            let found = format!("{} bytes at {}, outside of the pool", source.length, source.from);
            return Err(Error::damaged("source entry", source.from, found));
        }
        let mut bytes = vec![0; usize::try_from(source.length).unwrap_or(0)];
        pm.load(source.from, &mut bytes)?;
        Ok((source.offset, bytes))
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
