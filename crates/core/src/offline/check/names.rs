//! Names against inodes: existence, generation, kind, link counts, reachability.

use std::collections::{HashMap, HashSet};

use novale_layout::{FileKind, Ino, PmAddr};

use crate::offline::check::{Finding, Inventory};

/// Adds to the findings what names and inodes contradict each other in.
pub(super) fn check(all: &mut Inventory) {
    let mut found = Vec::new();
    let mut links: HashMap<Ino, u32> = HashMap::new();
    let mut subdirs: HashMap<Ino, Vec<Ino>> = HashMap::new();
    for name in &all.names {
        let (dir, ino) = (name.dir.get(), name.ino.get());
        match all.inodes.get(&name.ino) {
            // Told by its damage.
            None if all.damaged.contains(&name.ino) => {}
            None => found.push(format!("directory {dir} names inode {ino}, which is not in use")),
            Some(seen) if seen.generation != name.generation || seen.kind != name.kind => {
                found.push(format!(
                    "directory {dir} names inode {ino} as {:?} of generation {}, it is {:?} of {}",
                    name.kind, name.generation, seen.kind, seen.generation
                ));
            }
            Some(_) => {}
        }
        *links.entry(name.ino).or_default() += 1;
        if name.kind == FileKind::Directory {
            subdirs.entry(name.dir).or_default().push(name.ino);
        }
    }
    let mut untraced = HashSet::new();
    link_counts(all, &links, &subdirs, &mut found, &mut untraced);
    reachability(all, &subdirs, &mut found, &mut untraced);
    if !untraced.is_empty() {
        found.push(format!(
            "{} inodes lack names or links, which may be in the {} damaged ones",
            untraced.len(),
            all.damaged.len()
        ));
    }
    found.sort();
    all.findings.extend(found.into_iter().map(|what| Finding { at: PmAddr::NULL, what }));
}

fn link_counts(
    all: &Inventory,
    links: &HashMap<Ino, u32>,
    subdirs: &HashMap<Ino, Vec<Ino>>,
    found: &mut Vec<String>,
    untraced: &mut HashSet<Ino>,
) {
    for (ino, seen) in &all.inodes {
        let names = links.get(ino).copied().unwrap_or(0);
        let below = subdirs.get(ino).map_or(0, Vec::len);
        let is_dir = seen.kind == FileKind::Directory;
        let expected = if is_dir { 2 + u32::try_from(below).unwrap_or(u32::MAX) } else { names };
        let lacks_name = names == 0 && *ino != Ino::ROOT;
        if !all.damaged.is_empty() && (seen.nlink > expected || lacks_name) {
            untraced.insert(*ino);
            continue;
        }
        if seen.nlink != expected {
            found.push(format!(
                "inode {} has {} links, expected {expected}",
                ino.get(),
                seen.nlink
            ));
        }
        if is_dir && names != u32::from(*ino != Ino::ROOT) {
            found.push(format!("directory {} has {names} names", ino.get()));
        } else if !is_dir && names == 0 {
            found.push(format!("inode {} has no name", ino.get()));
        }
    }
}

fn reachability(
    all: &Inventory,
    subdirs: &HashMap<Ino, Vec<Ino>>,
    found: &mut Vec<String>,
    untraced: &mut HashSet<Ino>,
) {
    if !all.inodes.contains_key(&Ino::ROOT) && !all.damaged.contains(&Ino::ROOT) {
        found.push("the root directory is gone".into());
    }
    let mut reached = HashSet::from([Ino::ROOT]);
    let mut open = vec![Ino::ROOT];
    while let Some(dir) = open.pop() {
        for below in subdirs.get(&dir).into_iter().flatten() {
            if reached.insert(*below) {
                open.push(*below);
            }
        }
    }
    for (ino, seen) in &all.inodes {
        if seen.kind != FileKind::Directory || reached.contains(ino) {
            continue;
        }
        if all.damaged.is_empty() {
            found.push(format!("directory {} can't be reached from the root", ino.get()));
        } else {
            untraced.insert(*ino);
        }
    }
}
