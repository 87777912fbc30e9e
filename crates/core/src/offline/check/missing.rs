//! The files of which something is in a slot that is missing, by their names.

use std::collections::HashMap;

use novale_layout::{Ino, PmAddr};
use novale_pm::Pm;

use crate::offline::check::{Finding, Inventory};

/// More directories are above no file that can be named.
const DEPTH_MAX: usize = 4096;

/// What of an inode is in a slot that is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missing {
    /// That slot, or one of them.
    pub(super) slot: u8,
    /// Pages of its data; none where nothing of it can be read.
    pub(super) pages: Option<u64>,
}

impl Missing {
    pub(super) fn add(&mut self, pages: u64) {
        self.pages = self.pages.map(|before| before + pages);
    }
}

/// What is said of a slot that is missing.
pub(crate) fn missing_slot(slot: u8) -> String {
    format!("slot {slot} is missing: what lies there is lost")
}

/// Adds to the findings which slots are missing, and what is damaged by it.
pub(super) fn check(pm: &Pm, all: &mut Inventory) {
    let absent = (0..pm.slot_count()).filter(|slot| pm.is_absent(*slot));
    for slot in absent {
        all.findings.push(Finding { at: PmAddr::NULL, what: missing_slot(slot) });
    }
    let mut names: HashMap<Ino, (Ino, &[u8])> = HashMap::new();
    for name in all.names.iter().filter(|_| !all.lost.is_empty()) {
        names.insert(name.ino, (name.dir, &name.name));
    }
    let mut unnamed = 0_u64;
    for (ino, Missing { slot, pages }) in &all.lost {
        let Some(path) = path(*ino, &names) else {
            // Of such a number it is not known whether it is in use; of a file with pages it is.
            unnamed += u64::from(pages.is_none());
            if let Some(pages) = pages {
                let what = format!(
                    "inode {}, whose directory is lost: {pages} pages are in slot {slot}, which is missing",
                    ino.get()
                );
                all.findings.push(Finding { at: PmAddr::NULL, what });
            }
            continue;
        };
        let (ino, path) = (ino.get(), path.escape_ascii());
        let what = match pages {
            None => format!(
                "{path} (inode {ino}) can't be read: it is in slot {slot}, which is missing"
            ),
            Some(pages) => {
                format!(
                    "{path} (inode {ino}): {pages} of its pages are in slot {slot}, which is missing"
                )
            }
        };
        all.findings.push(Finding { at: PmAddr::NULL, what });
    }
    if unnamed > 0 {
        let what = format!(
            "{unnamed} inode numbers are in a slot that is missing, and no directory that can be read names them"
        );
        all.findings.push(Finding { at: PmAddr::NULL, what });
    }
}

/// The path of an inode, one of them; none where a directory above it can't be read.
fn path(ino: Ino, names: &HashMap<Ino, (Ino, &[u8])>) -> Option<Vec<u8>> {
    let mut parts = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT {
        let (dir, name) = names.get(&at)?;
        parts.push(*name);
        at = *dir;
        if parts.len() > DEPTH_MAX {
            return None;
        }
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    Some(if path.is_empty() { vec![b'/'] } else { path })
}
