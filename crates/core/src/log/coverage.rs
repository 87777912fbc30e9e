//! Which pages a file's log maps in the end, without an index: the entries are taken from the
//! newest to the oldest, and each contributes what no newer one has covered.

use std::collections::BTreeMap;
use std::ops::Range;

use arrayvec::ArrayVec;
use novale_layout::{PAGE, PmAddr};

use crate::base::extent::Extent;

/// A write entry: file pages `first..end`, and where they lie (null: a hole).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) addr: PmAddr,
}

impl Mapping {
    /// Pages that lie somewhere.
    pub(crate) fn of(first: u64, extent: Extent) -> Self {
        Self { first, end: first + extent.pages, addr: extent.addr }
    }

    /// Pages that are a hole.
    pub(crate) fn hole(pages: Range<u64>) -> Self {
        Self { first: pages.start, end: pages.end, addr: PmAddr::NULL }
    }
}

/// Write entries kept without a heap: most files have few.
const FEW: usize = 8;

/// The write entries of a log, in its order.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    few: ArrayVec<Mapping, FEW>,
    /// All of them, where they are more.
    many: Vec<Mapping>,
}

impl Mappings {
    pub(crate) fn push(&mut self, mapping: Mapping) {
        if self.many.is_empty() && !self.few.is_full() {
            self.few.push(mapping);
        } else {
            self.many.extend(self.few.drain(..));
            self.many.push(mapping);
        }
    }

    /// Where a page of the file lies; none for a hole.
    pub(crate) fn page(&self, page: u64) -> Option<PmAddr> {
        let mut newest = self.all().iter().rev();
        let mapping = newest.find(|mapping| (mapping.first..mapping.end).contains(&page))?;
        (!mapping.addr.is_null()).then(|| mapping.addr.add((page - mapping.first) * PAGE))
    }

    pub(crate) fn all(&self) -> &[Mapping] {
        if self.many.is_empty() { &self.few } else { &self.many }
    }
}

/// Calls `each` with every (file page, extent) that the mappings, given oldest first, leave mapped.
pub(crate) fn resolve<E>(
    mappings: &[Mapping],
    each: &mut dyn FnMut(u64, Extent) -> Result<(), E>,
) -> Result<(), E> {
    if let [Mapping { first, end, addr }] = *mappings
        && !addr.is_null()
    {
        // What most files have.
        return each(first, Extent { addr, pages: end - first });
    }
    let mut covered = Covered::default();
    for mapping in mappings.iter().rev() {
        covered.add(mapping.first, mapping.end, &mut |first, end| {
            if mapping.addr.is_null() {
                return Ok(());
            }
            let addr = mapping.addr.add((first - mapping.first) * PAGE);
            each(first, Extent { addr, pages: end - first })
        })?;
    }
    Ok(())
}

/// Disjoint, not touching ranges: start to end.
#[derive(Debug, Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds `first..end` and calls `fresh` with the parts that were not in before.
    fn add<E>(
        &mut self,
        first: u64,
        end: u64,
        fresh: &mut dyn FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut from, mut at, mut to) = (first, first, end);
        if let Some((&start, &stop)) = self.0.range(..=first).next_back()
            && stop >= first
        {
            from = start;
            at = at.max(stop);
        }
        while let Some((&start, &stop)) = self.0.range(from..=end).next() {
            if at < start {
                fresh(at, start)?;
            }
            at = at.max(stop);
            to = to.max(stop);
            self.0.remove(&start);
        }
        if at < end {
            fresh(at, end)?;
        }
        self.0.insert(from, to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_stay_in_order_however_many() {
        for count in [0, 1, FEW, FEW + 1, 3 * FEW] {
            let mut mappings = Mappings::default();
            let firsts: Vec<u64> = (0..count as u64).collect();
            for first in &firsts {
                let (first, end) = (*first, first + 1);
                mappings.push(Mapping { first, end, addr: PmAddr::NULL });
            }
            let found: Vec<u64> = mappings.all().iter().map(|mapping| mapping.first).collect();
            assert_eq!(found, firsts);
        }
    }

    #[test]
    fn agrees_with_a_page_by_page_replay() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mappings: Vec<Mapping> = (0..random.u64(0..12))
                .map(|index| {
                    let first = random.u64(0..20);
                    let hole = random.u8(0..4) == 0;
                    let end =
                        if hole && random.bool() { u64::MAX } else { first + random.u64(1..8) };
                    let addr = if hole { PmAddr::NULL } else { PmAddr::new(0, (index + 1) << 20) };
                    Mapping { first, end, addr }
                })
                .collect();
            let mut replayed: BTreeMap<u64, PmAddr> = BTreeMap::new();
            for mapping in &mappings {
                for page in mapping.first..mapping.end.min(40) {
                    if mapping.addr.is_null() {
                        replayed.remove(&page);
                    } else {
                        replayed.insert(page, mapping.addr.add((page - mapping.first) * PAGE));
                    }
                }
            }
            let mut resolved = BTreeMap::new();
            resolve::<()>(&mappings, &mut |first, extent| {
                for step in 0..extent.pages {
                    let double = resolved.insert(first + step, extent.addr.add(step * PAGE));
                    assert_eq!(double, None);
                }
                Ok(())
            })
            .unwrap();
            assert_eq!(resolved, replayed);
        }
    }
}
