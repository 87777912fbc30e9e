//! The rules that hold between the model's inodes, checked: the oracle's own oracle.

use std::collections::BTreeMap;

use crate::state::{Body, Inode, Model};
use crate::types::Ino;

impl Model {
    /// Every rule that does not hold, in words; none in a sound model.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::from([(Ino::ROOT, 1)]);
        let mut found = Vec::new();
        for (ino, inode) in &self.inodes {
            let Body::Directory { entries, parent } = &inode.body else {
                continue;
            };
            self.count_names(*ino, inode, entries, &mut names, &mut found);
            if inode.attr.nlink > 0 && *ino != Ino::ROOT {
                *names.entry(*parent).or_default() += 1;
            }
        }
        for (ino, inode) in &self.inodes {
            let counted = names.get(ino).copied().unwrap_or(0);
            check_inode(*ino, inode, counted, &mut found);
        }
        found
    }

    /// Counts the names that a directory gives: its entries and its own ".".
    fn count_names(
        &self,
        ino: Ino,
        inode: &Inode,
        entries: &BTreeMap<Vec<u8>, Ino>,
        names: &mut BTreeMap<Ino, u32>,
        found: &mut Vec<String>,
    ) {
        if inode.attr.nlink > 0 {
            *names.entry(ino).or_default() += 1;
        } else if !entries.is_empty() {
            found.push(format!("removed directory {ino:?} has entries"));
        }
        for (name, child) in entries {
            *names.entry(*child).or_default() += 1;
            match self.inodes.get(child).map(|child| &child.body) {
                None => found.push(format!("{name:?} in {ino:?} names {child:?}, which is gone")),
                Some(Body::Directory { parent, .. }) if *parent != ino => {
                    found.push(format!("{child:?} has the parent {parent:?}, lies in {ino:?}"));
                }
                Some(_) => {}
            }
        }
    }
}

fn check_inode(ino: Ino, inode: &Inode, names: u32, found: &mut Vec<String>) {
    let attr = &inode.attr;
    if attr.nlink != names {
        found.push(format!("{ino:?} has nlink {}, {names} names counted", attr.nlink));
    }
    if names == 0 && inode.holds == 0 {
        found.push(format!("{ino:?} has neither names nor holds"));
    }
    let size = match &inode.body {
        Body::File(contents) => contents.size(),
        Body::Symlink(target) => target.len() as u64,
        Body::Directory { .. } | Body::Other => 0,
    };
    if attr.size != size {
        found.push(format!("{ino:?} has size {}, holds {size} bytes", attr.size));
    }
}
