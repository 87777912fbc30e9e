//! Style as a test: what docs/HACKING.md asks of the source tree and no lint of the compiler checks.
//!
//! In: the workspace's root folder. Out: findings, each with its place and what to do instead. Each
//! rule is one file and a pure function over a [`Tree`] in memory, so that its unit tests can show
//! that it fails. Called by `cargo xtask tidy` and, as a plain test, by `cargo test -p xtask`.
//!
//! Never here: anything that changes a file, or needs git or the network.

mod arrows;
mod bans;
mod calls;
mod docs;
mod length;
mod merges;
mod names;
mod packages;
mod rooms;
mod shared;
mod source;
mod tokens;

use std::fmt;
use std::path::Path;

pub(crate) use source::{SourceFile, Tree};

/// The outcome of all rules on one tree.
#[derive(Debug)]
pub(crate) struct Report {
    /// What must change, in order of path and line.
    pub(crate) findings: Vec<Finding>,
    /// What is worth knowing and fails nothing.
    pub(crate) notes: Vec<String>,
    /// Number of files read.
    pub(crate) files: usize,
}

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the workspace's root, with '/'.
    pub(crate) path: String,
    /// Counted from 1; 0 where the whole file is meant.
    pub(crate) line: usize,
    /// The rule's name.
    pub(crate) rule: &'static str,
    /// What was found, and what to do instead.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, message } = self;
        if *line == 0 {
            write!(f, "{path}: {rule}: {message}")
        } else {
            write!(f, "{path}:{line}: {rule}: {message}")
        }
    }
}

/// Reads the tree below `root` and applies every rule to it.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let tree = Tree::read(root)?;
    let packages = packages::read(root)?;
    let mut findings = Vec::new();
    for rule in [
        length::check,
        merges::check,
        calls::check,
        names::check,
        docs::check,
        rooms::check,
        shared::check,
    ] {
        findings.extend(rule(&tree));
    }
    findings.extend(arrows::check(&packages));
    findings.extend(docs::check_dependencies(&tree, &packages));
    findings.extend(docs::check_crates(&tree, &packages));
    findings.sort();
    Ok(Report { findings, notes: length::notes(&tree), files: tree.files.len() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_source_tree_is_tidy() {
        let report = super::check(crate::workspace_root()).unwrap();
        assert!(report.files > 20, "only {} files were found", report.files);
        let listing: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(listing.is_empty(), "\n{}\n", listing.join("\n"));
    }
}
