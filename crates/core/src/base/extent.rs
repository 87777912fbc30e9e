//! Runs of pool pages.

use novale_layout::{PAGE, PmAddr};

/// Bytes of a file, from one offset to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) offset: u64,
    pub(crate) end: u64,
}

/// Contiguous pages of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    /// The first page's address.
    pub(crate) addr: PmAddr,
    /// Number of pages.
    pub(crate) pages: u64,
}

impl Extent {
    pub(crate) fn end(&self) -> PmAddr {
        self.addr.add(self.pages * PAGE)
    }

    /// The raw address of each page.
    pub(crate) fn each_raw(self) -> impl Iterator<Item = u64> {
        (0..self.pages).map(move |page| self.addr.add(page * PAGE).raw())
    }
}

/// A list of extents; two are kept inline, since most operations touch no more, and the rest in a
/// box, so that the list is moved by a few registers.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    inline: [Extent; 2],
    inline_len: usize,
    #[allow(clippy::box_collection, reason = "a null word instead of three")]
    spill: Option<Box<Vec<Extent>>>,
}

impl Extents {
    /// Appends an extent, merging it with the last one where the two touch.
    #[inline]
    pub(crate) fn push(&mut self, extent: Extent) {
        if let Some(last) = self.last_mut()
            && last.end() == extent.addr
        {
            last.pages += extent.pages;
            return;
        }
        if let Some(place) = self.inline.get_mut(self.inline_len) {
            *place = extent;
            self.inline_len += 1;
        } else {
            self.spill.get_or_insert_default().push(extent);
        }
    }

    /// Appends one page.
    pub(crate) fn push_page(&mut self, addr: PmAddr) {
        self.push(Extent { addr, pages: 1 });
    }

    #[inline]
    fn last_mut(&mut self) -> Option<&mut Extent> {
        if let Some(last) = self.spill.as_mut().and_then(|spill| spill.last_mut()) {
            return Some(last);
        }
        let index = self.inline_len.checked_sub(1)?;
        self.inline.get_mut(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        let spill = self.spill.as_ref().map_or(&[][..], |spill| spill);
        self.inline.iter().take(self.inline_len).chain(spill).copied()
    }

    /// The first extent, where that is a single page.
    #[inline]
    pub(crate) fn first_page(&self) -> Option<PmAddr> {
        match (self.inline_len, self.inline) {
            (1.., [Extent { addr, pages: 1 }, _]) => Some(addr),
            _ => None,
        }
    }

    /// Number of extents.
    pub(crate) fn len(&self) -> usize {
        self.inline_len + self.spill.as_ref().map_or(0, |spill| spill.len())
    }

    /// Number of pages in all extents.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        match (self.inline_len, &self.inline) {
            (0, _) => 0,
            (1, [Extent { pages, .. }, _]) => *pages,
            _ => self.iter().map(|extent| extent.pages).sum(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inline_len == 0
    }
}

/// The address of the `index`th page of a list of extents.
#[inline]
pub(crate) fn page_at(extents: &Extents, mut index: u64) -> PmAddr {
    for extent in extents.iter() {
        if index < extent.pages {
            return extent.addr.add(index * PAGE);
        }
        index -= extent.pages;
    }
    PmAddr::NULL
}

/// Splits holes and extents where either ends: (file page, extent) pairs.
pub(crate) fn match_extents(holes: &[(u64, u64)], extents: &Extents) -> Vec<(u64, Extent)> {
    let mut pairs = Vec::new();
    let mut free = extents.iter();
    let mut extent = Extent::default();
    for &(mut page, mut missing) in holes {
        while missing > 0 {
            if extent.pages == 0 {
                let Some(next) = free.next() else {
                    return pairs;
                };
                extent = next;
            }
            let pages = missing.min(extent.pages);
            pairs.push((page, Extent { addr: extent.addr, pages }));
            extent.addr = extent.addr.add(pages * PAGE);
            extent.pages -= pages;
            page += pages;
            missing -= pages;
        }
    }
    pairs
}

/// Number of pages that `len` bytes from `offset` touch.
pub(crate) fn pages_touched(offset: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (offset + len - 1) / PAGE - offset / PAGE + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_extents_merge_and_others_spill_in_order() {
        let mut list = Extents::default();
        for index in 0..10 {
            list.push_page(PmAddr::new(0, index * 2 * PAGE));
            list.push_page(PmAddr::new(0, (index * 2 + 1) * PAGE));
        }
        assert_eq!(list.iter().count(), 1);
        for index in 0..10 {
            list.push_page(PmAddr::new(1, index * 2 * PAGE));
        }
        assert_eq!(list.pages(), 30);
        let addrs: Vec<_> = list.iter().skip(1).map(|extent| extent.addr.byte()).collect();
        assert_eq!(addrs, (0..10).map(|index| index * 2 * PAGE).collect::<Vec<_>>());
    }
}
