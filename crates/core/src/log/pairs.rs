//! Which pages of a file have two copies in the end, by its log alone: a pair entry counts while the page
//! lies where it says.

use std::collections::BTreeMap;
use std::ops::Range;

use novale_layout::{Ino, PAGE, Pair, PmAddr, RoFeature};

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::inode::pairs::GROUP;

/// The pages that the partners of a file's pages lie in, each once.
#[derive(Debug, Default)]
pub(crate) struct PartnerPages {
    /// Of those that are shared by their addresses: the group of the pages that share one, and the slots
    /// in use.
    shared: BTreeMap<u64, (u64, u64)>,
}

impl PartnerPages {
    /// The page that a pair has its partner in, if no pair before it has.
    pub(crate) fn take(&mut self, ino: Ino, pair: &Pair) -> Result<Option<PmAddr>> {
        let Some(page) = pair.partner_page().filter(|_| pair.partner.is_shared()) else {
            return Ok(pair.partner_page());
        };
        let (group, slots) = (pair.file_page.get() / GROUP, pair.partner.slots_of(pair.word));
        let Some((of, used)) = self.shared.get_mut(&page.raw()) else {
            self.shared.insert(page.raw(), (group, slots));
            return Ok(Some(page));
        };
        if *of != group || *used & slots != 0 {
            let found = format!("slots {slots:#x} of file page {}, in use", pair.file_page.get());
            return Err(Error::damaged_inode(ino, "pair entry", page, found));
        }
        *used |= slots;
        Ok(None)
    }
}

/// The bit of the feature that a pair entry uses.
pub(crate) fn feature_of(pair: &Pair) -> u64 {
    if pair.partner.is_shared() { RoFeature::Slots.bit() } else { RoFeature::Pairs.bit() }
}

/// The newest pair entry of each page that no later entry has mapped or taken out.
#[derive(Debug, Default)]
pub(crate) struct LoggedPairs(BTreeMap<u64, Pair>);

impl LoggedPairs {
    /// Takes in the log's next pair entry.
    pub(crate) fn pair(&mut self, pair: &Pair) {
        self.0.insert(pair.file_page.get(), *pair);
    }

    /// Takes in that the log's next entry says where these pages lie, or that they are a hole.
    pub(crate) fn map(&mut self, pages: Range<u64>) {
        let ended: Vec<u64> = self.0.range(pages).map(|(page, _)| *page).collect();
        for page in ended {
            self.0.remove(&page);
        }
    }

    /// Those that count of pages that lie there in the end, from file page `first` on.
    pub(crate) fn of(&self, first: u64, extent: Extent) -> impl Iterator<Item = (u64, &Pair)> {
        let home = move |page| extent.addr.add((page - first) * PAGE);
        let pairs = self.0.range(first..first + extent.pages);
        pairs.map(|(page, pair)| (*page, pair)).filter(move |(page, pair)| pair.home == home(*page))
    }
}
