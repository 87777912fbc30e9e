//! What the documents say must be there: paths, links, crates and dependencies.

use super::packages::Package;
use super::{Finding, SourceFile, Tree};

const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const DESIGN: &str = "docs/DESIGN.md";
/// Documents whose code spans are read as paths where they look like one.
const WITH_PATHS: &[&str] = &[ARCHITECTURE, "docs/HACKING.md", "README.md"];
/// Where a path of the tree starts.
const STARTS: &[&str] = &["crates/", "docs/", "scripts/", "xtask/", ".ci/", ".cargo/"];

/// Paths and links that lead nowhere.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files.iter().filter(|file| file.extension() == "md");
    documents.flat_map(|file| check_document(tree, file)).collect()
}

fn check_document(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let mut named: Vec<String> = links(line).map(|link| resolve(file.folder(), link)).collect();
        if WITH_PATHS.contains(&file.path.as_str()) {
            named.extend(code_spans(line).filter(|span| is_path(span)).map(str::to_owned));
        }
        for path in named {
            let path = path.trim_end_matches('/');
            if !tree.paths.iter().any(|known| known == path) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: number + 1,
                    rule: "path",
                    message: format!("names `{path}`, which does not exist"),
                });
            }
        }
    }
    findings
}

/// The targets of Markdown links on this line that lead into the tree.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

/// The text between single backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(span: &str) -> bool {
    let plain = !span.contains([' ', '*', '<', '{', '$', '[']);
    plain && STARTS.iter().any(|start| span.starts_with(start))
}

/// A link's target relative to the root.
fn resolve(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Outside crates that docs/DESIGN.md does not account for, with what for and why this one.
pub(super) fn check_dependencies(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let text = tree.file(DESIGN).map_or("", |file| &file.text);
    let mut missing: Vec<&str> = packages
        .iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| !dependency.own)
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !text.contains(&format!("| `{name}` |")))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    let message = |name| format!("lacks the row `| `{name}` | what for | why this one |`");
    missing.into_iter().map(|name| finding(DESIGN, "dependency", message(name))).collect()
}

/// Crates that the code map of docs/ARCHITECTURE.md leaves out.
pub(super) fn check_crates(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let text = tree.file(ARCHITECTURE).map_or("", |file| &file.text);
    let folder = |package: &Package| package.manifest.trim_end_matches("Cargo.toml").to_owned();
    let folders = packages.iter().map(folder);
    folders
        .filter(|folder| !text.contains(&format!("| `{folder}` |")))
        .map(|folder| finding(ARCHITECTURE, "code-map", format!("lacks a row for `{folder}`")))
        .collect()
}

fn finding(path: &str, rule: &'static str, message: String) -> Finding {
    Finding { path: path.to_owned(), line: 0, rule, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::Dependency;

    fn tree(path: &str, text: &str) -> Tree {
        Tree {
            files: vec![SourceFile::new(path, text.to_owned())],
            paths: vec!["crates/core/src/lib.rs".to_owned(), "crates/core".to_owned()],
        }
    }

    fn package() -> Package {
        let dependency = Dependency { name: "crc32c".to_owned(), dev: false, own: false };
        Package {
            name: "novale-core".to_owned(),
            manifest: "crates/core/Cargo.toml".to_owned(),
            text: String::new(),
            dependencies: vec![dependency],
        }
    }

    #[test]
    fn a_named_path_must_exist() {
        let good = "See `crates/core/src/lib.rs`, `crates/core/` and `crates/*/tests`.";
        assert_eq!(check(&tree(ARCHITECTURE, good)), []);
        let bad = "a\nSee `crates/core/src/gone.rs`.";
        let findings = check(&tree(ARCHITECTURE, bad));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
    }

    #[test]
    fn a_link_must_lead_somewhere() {
        let good = "[core](../crates/core/src/lib.rs#x), [web](https://example.org/a), [here](#b)";
        assert_eq!(check(&tree("docs/SPEC.md", good)), []);
        assert_eq!(check(&tree("docs/SPEC.md", "[core](crates/core/src/lib.rs)")).len(), 1);
    }

    #[test]
    fn a_dependency_needs_its_row() {
        let row = tree(DESIGN, "| `crc32c` | checksums | the CPU's own instruction |");
        assert_eq!(check_dependencies(&row, &[package()]), []);
        assert_eq!(check_dependencies(&tree(DESIGN, "uses crc32c"), &[package()]).len(), 1);
    }

    #[test]
    fn a_crate_needs_its_place_in_the_code_map() {
        let row = tree(ARCHITECTURE, "| `crates/core/` | the file system |");
        assert_eq!(check_crates(&row, &[package()]), []);
        assert_eq!(check_crates(&tree(ARCHITECTURE, "core"), &[package()]).len(), 1);
    }
}
