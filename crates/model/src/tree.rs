//! A snapshot of everything that a user can see, for comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::contents::Contents;
use crate::state::{Body, Model};
use crate::types::{Attr, Ino, Result};

/// What one path shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// The attributes; the inode number is set to 0, as two file systems may number differently.
    pub attr: Attr,
    /// A file's bytes.
    pub contents: Contents,
    /// A symlink's target.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in byte order, of the same inode: this one, unless it is a hard link.
    pub first_path: Vec<u8>,
}

impl Node {
    /// Whether a crash may leave what was found of what was to be `self`.
    fn allows(&self, found: &Self) -> bool {
        let Self { attr, contents, target, xattrs, first_path } = self;
        let mut attr = *attr;
        if contents.accesses.contains(&found.attr.atime_ns) {
            attr.atime_ns = found.attr.atime_ns;
        }
        let is_like =
            (target, xattrs, first_path) == (&found.target, &found.xattrs, &found.first_path);
        is_like
            && (contents.allows(&found.contents) && attr == found.attr
                || contents.allows_earlier(&attr, &found.contents, &found.attr))
    }
}

/// All nodes of a file system by path; the root's path is empty, others look like `/a/b`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    nodes: BTreeMap<Vec<u8>, Node>,
    /// Inodes that directory trees may have.
    limits: BTreeMap<u32, u64>,
}

impl Tree {
    /// The snapshot of a model, access times included.
    ///
    /// # Errors
    /// None, unless the model contradicts itself.
    pub fn of(model: &Model) -> Result<Self> {
        let mut tree = Self { limits: model.limits.clone(), ..Self::default() };
        let mut waiting = vec![(Vec::new(), Ino::ROOT)];
        // A directory has one name, so each inode waits as often as it has names.
        while let Some((path, ino)) = waiting.pop() {
            let inode = model.inode(ino)?;
            let (mut contents, mut target) = (Contents::default(), Vec::new());
            match &inode.body {
                Body::File(stored) => contents = stored.clone(),
                Body::Symlink(stored) => target.clone_from(stored),
                Body::Directory { entries, .. } => {
                    waiting.extend(entries.iter().map(|(name, child)| (join(&path, name), *child)));
                }
                Body::Other => {}
            }
            tree.insert(path, inode.attr, (contents, target), inode.xattrs.clone());
        }
        Ok(tree.numbered_alike())
    }

    /// Adds a node under its inode's own number; [`Tree::numbered_alike`] ends the building.
    pub fn insert(
        &mut self,
        path: Vec<u8>,
        attr: Attr,
        (contents, target): (Contents, Vec<u8>),
        xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    ) {
        let node = Node { attr, contents, target, xattrs, first_path: Vec::new() };
        self.nodes.insert(path, node);
    }

    /// Sets the limits of directory trees.
    pub fn set_limits(&mut self, limits: BTreeMap<u32, u64>) {
        self.limits = limits;
    }

    /// Replaces inode numbers by first paths, so that trees of two file systems compare.
    #[must_use]
    pub fn numbered_alike(mut self) -> Self {
        let mut first_paths: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
        for (path, node) in &mut self.nodes {
            let first = first_paths.entry(node.attr.ino).or_insert_with(|| path.clone());
            node.first_path.clone_from(first);
            node.attr.ino = Ino(0);
        }
        self
    }

    /// The same, of which a crash takes nothing back.
    #[must_use]
    pub fn exact(mut self) -> Self {
        for node in self.nodes.values_mut() {
            node.contents = std::mem::take(&mut node.contents).exact();
        }
        self
    }

    /// The nodes by path.
    pub fn nodes(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_slice(), node))
    }

    /// Changes every node's attributes, to leave out what two file systems need not share.
    pub fn for_each_attr(&mut self, mut change: impl FnMut(&mut Attr)) {
        self.nodes.values_mut().for_each(|node| change(&mut node.attr));
    }

    /// Whether a crash may leave what was found of what was to be `self`: the same, but for bytes and
    /// access times that were not durable.
    #[must_use]
    pub fn allows(&self, found: &Self) -> bool {
        self.limits == found.limits
            && self.nodes.len() == found.nodes.len()
            && self
                .nodes
                .iter()
                .zip(&found.nodes)
                .all(|((path, node), (at, found))| path == at && node.allows(found))
    }

    /// What differs, a line each: empty exactly if the two are equal.
    #[must_use]
    pub fn difference(&self, other: &Self, names: (&str, &str)) -> String {
        let mut lines = String::new();
        if self.limits != other.limits {
            let (a, b) = (&self.limits, &other.limits);
            lines = format!("limits of trees: {} {a:?}, {} {b:?}\n", names.0, names.1);
        }
        let paths: BTreeSet<_> = self.nodes.keys().chain(other.nodes.keys()).collect();
        for path in paths {
            let shown = show_path(path);
            match (self.nodes.get(path), other.nodes.get(path)) {
                (Some(a), Some(b)) => lines.push_str(&node_difference(&shown, names, a, b)),
                (Some(a), None) => lines.push_str(&only(&shown, names.0, a)),
                (None, Some(b)) => lines.push_str(&only(&shown, names.1, b)),
                (None, None) => {}
            }
        }
        lines
    }
}

/// A path below a directory.
fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}

fn only(path: &str, side: &str, node: &Node) -> String {
    format!("{path}: only in {side} ({:?}, nlink {})\n", node.attr.kind, node.attr.nlink)
}

fn show_path(path: &[u8]) -> String {
    let path = if path.is_empty() { b"/" } else { path };
    path.escape_ascii().to_string()
}

fn node_difference(path: &str, sides: (&str, &str), a: &Node, b: &Node) -> String {
    let mut lines = String::new();
    let mut compare = |what: &str, a: &dyn fmt::Display, b: &dyn fmt::Display| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            lines.extend([path, ": ", what, ": ", sides.0, " ", &a, ", ", sides.1, " ", &b, "\n"]);
        }
    };
    compare("kind", &kind(a), &kind(b));
    compare("mode", &mode(a), &mode(b));
    compare("nlink", &a.attr.nlink, &b.attr.nlink);
    compare("uid", &a.attr.uid, &b.attr.uid);
    compare("gid", &a.attr.gid, &b.attr.gid);
    compare("rdev", &a.attr.rdev, &b.attr.rdev);
    compare("project", &a.attr.project, &b.attr.project);
    compare("size", &a.attr.size, &b.attr.size);
    compare("atime", &a.attr.atime_ns, &b.attr.atime_ns);
    compare("mtime", &a.attr.mtime_ns, &b.attr.mtime_ns);
    compare("ctime", &a.attr.ctime_ns, &b.attr.ctime_ns);
    compare("birth", &a.attr.birth_ns, &b.attr.birth_ns);
    compare("bytes in all", &a.contents.size(), &b.contents.size());
    compare("target", &show_path(&a.target), &show_path(&b.target));
    compare("same file as", &show_path(&a.first_path), &show_path(&b.first_path));
    let names: BTreeSet<_> = a.xattrs.keys().chain(b.xattrs.keys()).collect();
    for name in names {
        let value = |node: &Node| {
            node.xattrs.get(name).map_or("none".to_owned(), |value| show_value(value))
        };
        compare(&format!("attribute {}", name.escape_ascii()), &value(a), &value(b));
    }
    if let Some(at) = a.contents.first_difference(&b.contents) {
        let bytes = |node: &Node| format!("{:02x?} at {at}", node.contents.read(at, 16));
        compare("bytes", &bytes(a), &bytes(b));
    }
    lines
}

/// A value's length and first bytes.
fn show_value(value: &[u8]) -> String {
    let first: Vec<_> = value.iter().take(16).collect();
    format!("{} bytes {first:02x?}", value.len())
}

fn kind(node: &Node) -> String {
    format!("{:?}", node.attr.kind)
}

fn mode(node: &Node) -> String {
    format!("0o{:o}", node.attr.mode)
}
