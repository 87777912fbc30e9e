//! Which pages of a file have two copies in the end, by its log alone: a pair entry counts while the page
//! lies where it says.

use std::collections::BTreeMap;
use std::ops::Range;

use novale_layout::{PAGE, Pair};

use crate::base::extent::Extent;

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
