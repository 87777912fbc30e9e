//! The source tree in memory: every file's text and, for Rust, its tokens.

use std::path::Path;

use anyhow::Context as _;

use super::tokens::Tokens;

/// What rules look at.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// In order of path.
    pub(crate) files: Vec<SourceFile>,
    /// Every path below the root, folders too, that documents may name.
    pub(crate) paths: Vec<String>,
}

/// One text file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root, with '/'.
    pub(crate) path: String,
    pub(crate) text: String,
    /// None where the file is not Rust.
    pub(crate) tokens: Tokens,
    /// Why the tokens could not be read.
    pub(crate) parse_error: Option<String>,
}

/// Folders that belong to the tree, beside the root's own files; all else (target, .git) does not.
const FOLDERS: &[&str] = &[".ci", ".cargo", "crates", "docs", "scripts", "xtask"];

/// Kinds of files that are read.
const EXTENSIONS: &[&str] = &["rs", "md", "sh", "toml", "c"];

impl Tree {
    /// Reads all files of the tree below `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![String::new()];
        // Ends: each folder is visited once, and links are not followed.
        while let Some(folder) = folders.pop() {
            tree.read_folder(root, &folder, &mut folders)
                .with_context(|| format!("reading {}", root.join(&folder).display()))?;
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.paths.sort();
        Ok(tree)
    }

    fn read_folder(
        &mut self,
        root: &Path,
        folder: &str,
        folders: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        for entry in root.join(folder).read_dir()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let is_folder = entry.file_type()?.is_dir();
            if is_folder && folder.is_empty() && !FOLDERS.contains(&path.as_str()) {
                continue;
            }
            self.paths.push(path.clone());
            if is_folder {
                folders.push(path);
            } else if EXTENSIONS.contains(&extension(&path)) {
                let text = std::fs::read_to_string(root.join(&path))?;
                self.files.push(SourceFile::new(&path, text));
            }
        }
        Ok(())
    }

    /// The file at `path`, if it was read.
    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SourceFile {
    /// A file of the given text; Rust is split into tokens.
    pub(crate) fn new(path: &str, text: String) -> Self {
        let (tokens, parse_error) = match extension(path) {
            "rs" => match Tokens::read(&text, is_test_only(path)) {
                Ok(tokens) => (tokens, None),
                Err(error) => (Tokens::default(), Some(error)),
            },
            _ => (Tokens::default(), None),
        };
        Self { path: path.to_owned(), text, tokens, parse_error }
    }

    /// What its name ends with, without the dot.
    pub(crate) fn extension(&self) -> &str {
        extension(&self.path)
    }

    /// The folder that it is in; empty for the root.
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The folder name of its crate: `core` in `crates/core/src/lib.rs`, `xtask` in `xtask/`.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        rest.split_once('/').map(|(name, _)| name)
    }
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Whether the whole file is, by its place, compiled for tests and measurements only.
fn is_test_only(path: &str) -> bool {
    let mut parts = path.split('/').rev();
    let stem = parts.next().and_then(|name| name.strip_suffix(".rs")).unwrap_or("");
    let named = stem == "tests" || stem.ends_with("_tests") || stem.ends_with("_test");
    named || parts.any(|part| matches!(part, "tests" | "examples" | "benches"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_its_crate_and_whether_it_is_a_test() {
        let crate_of = |path| SourceFile::new(path, String::new()).crate_name().map(str::to_owned);
        assert_eq!(crate_of("crates/core/src/lib.rs").as_deref(), Some("core"));
        assert_eq!(crate_of("xtask/src/main.rs").as_deref(), Some("xtask"));
        assert_eq!(crate_of("README.md"), None);
        assert!(is_test_only("crates/core/tests/common/mod.rs"));
        assert!(is_test_only("crates/core/src/log/tests.rs"));
        assert!(is_test_only("crates/layout/src/spec_test.rs"));
        assert!(!is_test_only("crates/core/src/log/mod.rs"));
    }
}
