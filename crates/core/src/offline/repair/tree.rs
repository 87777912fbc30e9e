//! What is to become of names and link counts, so that every name names an inode in use, every inode
//! in use has a name, and every directory one parent below the root. Pure: facts in, decisions out.
//!
//! A name that can't stay is taken out; so is one in a directory whose state may be an older one, where
//! directories of which that is not so have all the names that the inode says it has. What has no name
//! left goes to lost+found. A directory keeps the first name that is met on the way down from the root;
//! of directories in a circle, which no way leads to, the one of the lowest number goes to lost+found.

use std::collections::{BTreeMap, BTreeSet};

use novale_layout::{FileKind, Ino};

use crate::offline::repair::names::Name;

/// An inode in use.
#[derive(Debug, Clone)]
pub(super) struct TreeNode {
    pub(super) generation: u32,
    pub(super) kind: FileKind,
    /// As its line says: of a file, how many names it has.
    pub(super) links: u32,
    /// A directory's names, in order.
    pub(super) names: Vec<Name>,
    /// Its state may be an older one, and its names such as have gone since.
    pub(super) is_older: bool,
}

impl TreeNode {
    fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether a name of its number is one of this use of it.
    fn is_named(&self, name: &Name) -> bool {
        self.generation == name.generation && self.kind == name.kind
    }

    /// How many names it has.
    fn names_max(&self) -> u32 {
        if self.is_dir() { 1 } else { self.links }
    }
}

/// A name that can't stay.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) dir: Ino,
    pub(super) name: Name,
    pub(super) why: String,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) removed: Vec<Removed>,
    /// What gets a name in lost+found.
    pub(super) lost: Vec<Ino>,
    /// Links of each inode by its names, directories too; those in lost+found among them.
    pub(super) links: BTreeMap<Ino, u32>,
}

struct Solver<'a> {
    nodes: &'a BTreeMap<Ino, TreeNode>,
    /// How many names each inode has in directories whose state is no older one.
    sound_names: BTreeMap<Ino, u32>,
    /// The directory that each directory was reached from.
    parents: BTreeMap<Ino, Ino>,
    plan: Plan,
}

/// Decides. Every directory's names must be known.
pub(super) fn solve(nodes: &BTreeMap<Ino, TreeNode>) -> Plan {
    let mut sound_names = BTreeMap::new();
    let sound = nodes.values().filter(|node| !node.is_older);
    for name in sound.flat_map(|node| &node.names) {
        if nodes.get(&name.ino).is_some_and(|node| node.is_named(name)) {
            *sound_names.entry(name.ino).or_default() += 1;
        }
    }
    let mut solver = Solver { nodes, sound_names, parents: BTreeMap::new(), plan: Plan::default() };
    for (ino, node) in nodes {
        solver.plan.links.insert(*ino, if node.is_dir() { 2 } else { 0 });
    }
    solver.parents.insert(Ino::ROOT, Ino::ROOT);
    solver.descend(Ino::ROOT);
    let named = solver.named_out_of_reach();
    for circles in [false, true] {
        for (ino, _) in nodes.iter().filter(|(_, node)| node.is_dir()) {
            if !solver.parents.contains_key(ino) && (circles || !named.contains(ino)) {
                solver.lose(*ino);
            }
        }
    }
    let nameless = solver.plan.links.iter().filter(|(_, links)| **links == 0);
    let nameless: Vec<Ino> = nameless.map(|(ino, _)| *ino).collect();
    for ino in nameless {
        solver.plan.links.insert(ino, 1);
        solver.plan.lost.push(ino);
    }
    solver.plan
}

impl Solver<'_> {
    /// The directories that others name which no way leads to either.
    fn named_out_of_reach(&self) -> BTreeSet<Ino> {
        let dirs = self.nodes.iter().filter(|(dir, _)| !self.parents.contains_key(dir));
        let names = dirs.flat_map(|(dir, node)| node.names.iter().map(move |name| (*dir, name)));
        let stay = names.filter(|(dir, name)| self.why_not(*dir, name).is_none());
        stay.map(|(_, name)| name.ino).collect()
    }

    /// Puts a directory below lost+found, with all that it leads to.
    fn lose(&mut self, ino: Ino) {
        self.parents.insert(ino, Ino::NULL);
        self.plan.lost.push(ino);
        self.descend(ino);
    }

    /// Takes the names below a directory.
    fn descend(&mut self, top: Ino) {
        let mut open = vec![top];
        while let Some(dir) = open.pop() {
            let Some(node) = self.nodes.get(&dir) else { continue };
            let mut once = BTreeSet::new();
            for name in &node.names {
                let twice = || (!once.insert(&name.text)).then(|| "it is there twice".to_owned());
                if let Some(why) = self.why_not(dir, name).or_else(twice) {
                    self.plan.removed.push(Removed { dir, name: name.clone(), why });
                    continue;
                }
                if name.kind == FileKind::Directory {
                    self.parents.insert(name.ino, dir);
                    *self.plan.links.entry(dir).or_default() += 1;
                    open.push(name.ino);
                } else {
                    *self.plan.links.entry(name.ino).or_default() += 1;
                }
            }
        }
    }

    /// Why a name can't stay.
    fn why_not(&self, dir: Ino, name: &Name) -> Option<String> {
        let ino = name.ino.get();
        let Some(node) = self.nodes.get(&name.ino) else {
            return Some(format!("it names inode {ino}, which is not in use"));
        };
        if !node.is_named(name) {
            return Some(format!("it names another use of inode {ino}"));
        }
        let is_older = self.nodes.get(&dir).is_some_and(|dir| dir.is_older);
        let elsewhere = self.sound_names.get(&name.ino).copied().unwrap_or(0);
        if is_older && elsewhere > 0 && elsewhere >= node.names_max() {
            return Some(format!("inode {ino} has all its names in directories of no older state"));
        }
        let other = self.parents.get(&name.ino).filter(|_| node.is_dir())?;
        Some(if *other == dir {
            format!("directory {ino} has another name there")
        } else {
            format!("directory {ino} has its name elsewhere")
        })
    }
}

#[cfg(test)]
mod tests {
    use FileKind::{Directory, File};

    use super::*;

    fn name(cookie: u64, text: &str, ino: u64, kind: FileKind) -> Name {
        Name { cookie, ino: Ino::new(ino), generation: 1, kind, text: text.as_bytes().to_vec() }
    }

    fn dir(names: Vec<Name>) -> TreeNode {
        TreeNode { generation: 1, kind: Directory, links: 2, names, is_older: false }
    }

    fn file() -> TreeNode {
        TreeNode { generation: 1, kind: File, links: 1, names: vec![], is_older: false }
    }

    fn solved(nodes: Vec<(u64, TreeNode)>) -> (Vec<u64>, Vec<u64>, Vec<u32>) {
        let nodes = nodes.into_iter().map(|(ino, node)| (Ino::new(ino), node)).collect();
        let plan = solve(&nodes);
        let removed = plan.removed.iter().map(|removed| removed.name.cookie).collect();
        let lost = plan.lost.iter().map(|ino| ino.get()).collect();
        (removed, lost, plan.links.into_values().collect())
    }

    #[test]
    fn a_sound_tree_stays_as_it_is() {
        let nodes = vec![
            (1, dir(vec![name(16, "d", 2, Directory), name(17, "f", 3, File)])),
            (2, dir(vec![name(16, "g", 3, File)])),
            (3, file()),
        ];
        assert_eq!(solved(nodes), (vec![], vec![], vec![3, 2, 2]));
    }

    #[test]
    fn names_of_nothing_of_another_life_and_twice_go() {
        let mut old = name(18, "old", 3, File);
        old.generation = 2;
        let names = vec![
            name(16, "a", 3, File),
            name(17, "none", 9, File),
            old,
            name(19, "a", 4, File),
            name(20, "kind", 3, Directory),
        ];
        let nodes = vec![(1, dir(names)), (3, file()), (4, file())];
        assert_eq!(solved(nodes), (vec![17, 18, 19, 20], vec![4], vec![2, 1, 1]));
    }

    #[test]
    fn what_lost_its_parent_goes_to_lost_and_found_as_a_whole() {
        let nodes = vec![
            (1, dir(vec![])),
            (2, dir(vec![name(16, "sub", 5, Directory), name(17, "f", 6, File)])),
            (5, dir(vec![])),
            (6, file()),
        ];
        assert_eq!(solved(nodes), (vec![], vec![2], vec![2, 3, 2, 1]));
    }

    #[test]
    fn what_lies_deeper_stays_there_whatever_its_number_is() {
        let nodes =
            vec![(1, dir(vec![])), (3, dir(vec![])), (5, dir(vec![name(16, "sub", 3, Directory)]))];
        assert_eq!(solved(nodes), (vec![], vec![5], vec![2, 2, 3]));
    }

    #[test]
    fn a_circle_is_cut_at_its_lowest_number() {
        let nodes = vec![
            (1, dir(vec![])),
            (7, dir(vec![name(16, "b", 8, Directory)])),
            (8, dir(vec![name(17, "a", 7, Directory), name(18, "f", 9, File)])),
            (9, file()),
        ];
        assert_eq!(solved(nodes), (vec![17], vec![7], vec![2, 3, 2, 1]));
    }

    /// Whatever the order in which they are met, and the root's too.
    #[test]
    fn names_of_an_older_state_give_way() {
        let moved =
            |cookie| vec![name(cookie, "sub", 5, Directory), name(cookie + 1, "f", 6, File)];
        let older = |names| TreeNode { is_older: true, ..dir(names) };
        let below = |first, second| {
            let names = vec![name(16, "a", 2, Directory), name(17, "b", 3, Directory)];
            vec![(1, dir(names)), (2, first), (3, second), (5, dir(vec![])), (6, file())]
        };
        let links = vec![4, 2, 3, 2, 1];
        let (first, second) = (older(moved(20)), dir(moved(30)));
        assert_eq!(solved(below(first, second)), (vec![20, 21], vec![], links));
        let (first, second) = (dir(moved(20)), older(moved(30)));
        assert_eq!(solved(below(first, second)), (vec![30, 31], vec![], vec![4, 3, 2, 2, 1]));
        let mut names = moved(20);
        names.push(name(16, "b", 3, Directory));
        let nodes = vec![(1, older(names)), (3, dir(moved(30))), (5, dir(vec![])), (6, file())];
        assert_eq!(solved(nodes), (vec![20, 21], vec![], vec![3, 3, 2, 1]));
    }

    /// A link more than the others have is one that may be there.
    #[test]
    fn names_of_an_older_state_stay_where_the_inode_has_as_many() {
        let linked = TreeNode { links: 2, ..file() };
        let older = TreeNode { is_older: true, ..dir(vec![name(20, "f", 6, File)]) };
        let names = vec![name(16, "a", 2, Directory), name(17, "g", 6, File)];
        let nodes = vec![(1, dir(names)), (2, older), (6, linked)];
        assert_eq!(solved(nodes), (vec![], vec![], vec![3, 2, 2]));
    }

    #[test]
    fn a_directory_keeps_the_name_nearest_to_the_root() {
        let nodes = vec![
            (1, dir(vec![name(16, "x", 3, Directory), name(17, "y", 3, Directory)])),
            (2, dir(vec![name(18, "z", 3, Directory)])),
            (3, dir(vec![])),
        ];
        assert_eq!(solved(nodes), (vec![17, 18], vec![2], vec![3, 2, 2]));
    }
}
