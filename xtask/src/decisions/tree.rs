//! The copy of the workspace that holds the mutants: which files have some, and what is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::mutant::{Mutant, Place, written};
use super::operators::{is_product, mutants};

/// The crates that have mutants, and how each asks whether one is on.
const CRATES: [(&str, &str); 2] =
    [("crates/arena", "crate::mutant::on"), ("crates/core", "novale_arena::mutant::on")];
/// Bugs to be switched on, and what tests share.
const LEFT_OUT: [&str; 1] = ["crates/core/src/seeded.rs"];
/// What the copy needs of the workspace.
const COPIED: [&str; 6] = ["Cargo.toml", "Cargo.lock", "crates", "third_party", "xtask", "docs"];
/// The switch, with the number of mutants to be filled in.
const SWITCH: &str = include_str!("switch.rs");

/// All that has mutants.
pub(super) struct Sources {
    /// Each file's text, by its path from the root.
    pub(super) texts: BTreeMap<String, String>,
    /// In the order of files and places; a mutant's number is its place here, counted from 1.
    pub(super) mutants: Vec<Mutant>,
}

impl Sources {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut sources = Self { texts: BTreeMap::new(), mutants: Vec::new() };
        for (folder, _) in CRATES {
            sources.read_module(root, &format!("{folder}/src/lib.rs"))?;
        }
        for (path, text) in &sources.texts {
            sources.mutants.extend(mutants(path, text).with_context(|| format!("read {path}"))?);
        }
        Ok(sources)
    }

    /// A file, and the modules that it names.
    fn read_module(&mut self, root: &Path, path: &str) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(root.join(path)).context(path.to_owned())?;
        let file = syn::parse_file(&text).with_context(|| format!("parse {path}"))?;
        let base = ["/lib.rs", "/mod.rs", ".rs"].iter().find_map(|end| path.strip_suffix(end));
        let base = base.unwrap_or(path).to_owned();
        self.texts.insert(path.to_owned(), text);
        for item in file.items {
            if let syn::Item::Mod(at) = item
                && at.content.is_none()
                && is_product(&at.attrs)
            {
                let [flat, folder] = ["", "/mod"].map(|end| format!("{base}/{}{end}.rs", at.ident));
                let child = if root.join(&flat).is_file() { flat } else { folder };
                if !LEFT_OUT.contains(&child.as_str()) {
                    self.read_module(root, &child)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn mutant(&self, id: usize) -> Option<&Mutant> {
        self.mutants.get(id.checked_sub(1)?)
    }

    /// By what a mutant is known from run to run.
    pub(super) fn key(&self, mutant: &Mutant) -> String {
        mutant.key(self.texts.get(&mutant.path).map_or("", String::as_str))
    }
}

/// Brings the copy at `to` up to date, with the mutants that `kept` keeps. What is as it should be is
/// not written, so that nothing is built anew for it. Returns where each mutant is, by file.
pub(super) fn write(
    root: &Path,
    to: &Path,
    sources: &Sources,
    kept: impl Fn(usize) -> bool,
) -> anyhow::Result<BTreeMap<String, Vec<Place>>> {
    for name in COPIED {
        copy(root, to, Path::new(name), sources)?;
    }
    let mut places = BTreeMap::new();
    for (path, text) in &sources.texts {
        let of_file = (1..).zip(&sources.mutants);
        let of_file: Vec<(usize, &Mutant)> =
            of_file.filter(|(id, mutant)| mutant.path == *path && kept(*id)).collect();
        let (_, asked) =
            CRATES.into_iter().find(|(folder, _)| path.starts_with(folder)).unwrap_or(CRATES[0]);
        let (mut text, found) = written(text, &of_file, |id| format!("{asked}({id})"));
        if path == "crates/arena/src/lib.rs" {
            text.push_str("#[doc(hidden)]\npub mod mutant;\n");
        }
        put(&to.join(path), text.as_bytes())?;
        places.insert(path.clone(), found);
    }
    let count = (sources.mutants.len() + 1).to_string();
    let switch = SWITCH.replace("\"COUNT\".len()", &count);
    put(&to.join("crates/arena/src/mutant.rs"), switch.as_bytes())?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    put(&to.join("Cargo.toml"), without_lints(&manifest).as_bytes())?;
    Ok(places)
}

/// Mutants are not written to please a lint.
fn without_lints(manifest: &str) -> String {
    let mut inside = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            inside = line.starts_with("[workspace.lints");
        }
        !inside
    });
    let rest: String = lines.flat_map(|line| [line, "\n"]).collect();
    format!(
        "{rest}\n[workspace.lints.rust]\nwarnings = \"allow\"\noverflowing_literals = \"allow\"\n\
        arithmetic_overflow = \"allow\"\nunconditional_panic = \"allow\"\n"
    )
}

fn copy(root: &Path, to: &Path, path: &Path, sources: &Sources) -> anyhow::Result<()> {
    let from = root.join(path);
    if from.is_dir() {
        if path.ends_with("target") {
            return Ok(());
        }
        for entry in std::fs::read_dir(&from)? {
            copy(root, to, &path.join(entry?.file_name()), sources)?;
        }
        return Ok(());
    }
    let written = path.to_str().is_some_and(|path| sources.texts.contains_key(path));
    if written || path == Path::new("Cargo.toml") {
        return Ok(());
    }
    put(&to.join(path), &std::fs::read(from)?)
}

fn put(path: &PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::COPIED;

    /// The copy does not build without a folder that the workspace's manifest names.
    #[test]
    fn each_folder_that_the_workspace_names_is_copied() {
        let manifest = std::fs::read_to_string(crate::workspace_root().join("Cargo.toml")).unwrap();
        let paths: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.split_once("path = \"")?.1.split_once('"'))
            .map(|(path, _)| path)
            .collect();
        assert!(paths.contains(&"crates/core"), "{paths:?}");
        let is_copied =
            |path: &&&str| COPIED.iter().any(|name| path.split('/').next() == Some(name));
        assert_eq!(paths.iter().find(|path| !is_copied(path)), None);
    }
}
