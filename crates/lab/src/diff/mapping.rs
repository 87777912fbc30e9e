//! A program that has a file's own pages mapped: it finds each page once, and stores there from then on.

use std::collections::BTreeMap;

use novale_core::{Ctx, Fs, HoldId, Ino, Node, Result, SetAttr};
use novale_layout::{PAGE, PmAddr};
use novale_pm::Purpose;

use super::core_subject::subject_error;
use crate::workload::Failure;

/// The mappings of one client, which end with it.
#[derive(Debug, Default)]
pub struct Mappings(Vec<Mapping>);

impl Mappings {
    pub(super) fn push(&mut self, mapping: Mapping) {
        self.0.push(mapping);
    }

    /// The newest one of a file.
    pub(super) fn take(&mut self, ino: Ino) -> Option<Mapping> {
        let place = self.0.iter().rposition(|mapping| mapping.hold.ino() == ino)?;
        Some(self.0.swap_remove(place))
    }
}

/// One mapping of a file.
#[derive(Debug)]
pub(super) struct Mapping {
    hold: HoldId,
    /// Where the pages are that were touched.
    pages: BTreeMap<u64, PmAddr>,
}

/// Maps a file.
pub(super) fn map(fs: &Fs, ctx: &Ctx, ino: Ino) -> Result<Mapping> {
    let generation = fs.getattr(ino)?.generation;
    let hold = fs.map_hold(ctx, ino, generation)?.ok_or(novale_core::Error::Stale)?;
    Ok(Mapping { hold, pages: BTreeMap::new() })
}

impl Mapping {
    pub(super) fn hold(&self) -> HoldId {
        self.hold
    }

    /// Stores bytes as the program does, and notes the time. Pages beyond the end are stored to if they
    /// were touched before: the program has them still.
    pub(super) fn store(
        &mut self,
        fs: &Fs,
        ctx: &Ctx,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let failed = |why| subject_error(&why);
        let stop = offset.saturating_add(bytes.len() as u64);
        let (first, end) = (offset / PAGE, stop.div_ceil(PAGE));
        let found = fs.map_pages(ctx, self.hold, first, end - first).map_err(failed)?;
        for run in found {
            for page in 0..run.pages {
                self.touch(run.file_page + page, run.addr.add(page * PAGE))?;
            }
        }
        for (page, addr) in self.pages.range(first..end) {
            let (from, to) = (offset.max(page * PAGE), stop.min((page + 1) * PAGE));
            let [start, end] =
                [from - offset, to - offset].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            let bytes = bytes.get(start..end).unwrap_or_default();
            // The one who stores to a mapping owes nothing.
            drop(fs.pm().store(addr.add(from % PAGE), bytes, Purpose::Data));
        }
        let attr = fs.getattr(self.hold.ino()).map_err(failed)?;
        if attr.ctime_ns != ctx.now_ns {
            // As if pages had been added, which the model does not tell from others.
            let set = SetAttr { uid: Some(attr.uid), ..SetAttr::default() };
            fs.setattr(ctx, Node::current(self.hold.ino()), &set).map_err(failed)?;
        }
        Ok(())
    }

    /// Notes where a page is: the same place as ever.
    fn touch(&mut self, page: u64, addr: PmAddr) -> Result<(), Failure> {
        match self.pages.insert(page, addr) {
            Some(old) if old != addr => {
                let why = format!("page {page} was mapped at {old:?}, and is at {addr:?} now");
                Err(Failure::Broken(why))
            }
            _ => Ok(()),
        }
    }
}
