//! Names and openings of files: what a reader of the folder listing relies on.

use super::source::SourceFile;
use super::{Finding, Tree};

/// Names that say nothing about the promise that a failing test breaks.
const EMPTY_TEST_NAMES: &[&str] =
    &["all", "api", "basic", "integration", "it", "main", "misc", "smoke", "test", "tests"];
/// Lines of text, examples aside, that a module's opening doc may have.
const MODULE_DOC_LINES_MAX: usize = 25;
/// A folder with more source files than this needs a module doc.
const FOLDER_FILES_MAX: usize = 3;

/// Test names, opening sentences, module docs and offsets outside `layout`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.extension() == "rs") {
        let messages = [
            ("test-name", test_name(file)),
            ("opening", opening(file)),
            ("module-doc", module_doc(file, tree)),
        ];
        for (rule, message) in messages {
            if let Some(message) = message {
                findings.push(Finding { path: file.path.clone(), line: 0, rule, message });
            }
        }
        findings.extend(offsets(file));
    }
    findings
}

/// An integration test is named after the promise that would be broken.
fn test_name(file: &SourceFile) -> Option<String> {
    let (_, name) = file.path.split_once("/tests/")?;
    let stem = name.strip_suffix(".rs")?;
    let top = !stem.contains('/');
    let words = stem.split('_').count();
    let empty = EMPTY_TEST_NAMES.contains(&stem) || stem.starts_with("test_");
    let bad = top && (empty || words < 2);
    bad.then(|| {
        format!("`{stem}` says nothing: name the promise it breaks, such as `rename_is_atomic`")
    })
}

/// Every file opens with one sentence of purpose.
fn opening(file: &SourceFile) -> Option<String> {
    let mut lines = file.text.lines().skip_while(|line| line.is_empty());
    let first = lines.next().unwrap_or("");
    let Some(start) = first.strip_prefix("//! ") else {
        return Some(format!("opens with `{first}`; instead: `//!` and one sentence of purpose"));
    };
    let rest = lines.map_while(|line| line.strip_prefix("//! "));
    let paragraph: Vec<&str> = std::iter::once(start).chain(rest).collect();
    let ends = paragraph.last().is_some_and(|line| line.ends_with(['.', ':']));
    (!ends).then(|| "its opening paragraph ends without a full stop".to_owned())
}

/// A folder of several files opens with a module doc that can be read at a glance.
fn module_doc(file: &SourceFile, tree: &Tree) -> Option<String> {
    let name = file.path.rsplit('/').next().unwrap_or("");
    if !matches!(name, "mod.rs" | "lib.rs" | "main.rs") {
        return None;
    }
    let doc = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut example = false;
    let text = doc.filter(|line| {
        let fence = line.trim_start().starts_with("```");
        example ^= fence;
        !example && !fence
    });
    let lines = text.count();
    let siblings = tree
        .files
        .iter()
        .filter(|other| other.extension() == "rs" && other.folder() == file.folder());
    let files = siblings.count();
    if lines > MODULE_DOC_LINES_MAX {
        Some(format!("its module doc has {lines} lines, at most {MODULE_DOC_LINES_MAX}"))
    } else if files > FOLDER_FILES_MAX && lines < 2 {
        Some(format!(
            "opens a folder of {files} files with {lines} lines; instead: what comes in, who calls \
             it, what must never be here"
        ))
    } else {
        None
    }
}

/// An offset on media is a constant of `layout`; the arena's own are in DRAM.
fn offsets(file: &SourceFile) -> Vec<Finding> {
    if matches!(file.crate_name(), Some("layout" | "arena")) {
        return Vec::new();
    }
    let pairs = file.tokens.list.iter().zip(file.tokens.list.iter().skip(1));
    pairs
        .filter(|(keyword, _)| keyword.text == "const" && !keyword.is_test)
        .filter(|(_, name)| name.text.ends_with("_OFFSET") || name.text.ends_with("_OFFSETS"))
        .map(|(_, name)| Finding {
            path: file.path.clone(),
            line: name.line,
            rule: "offset",
            message: format!("`{}`; instead: a constant of `layout`", name.text),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let files = vec![SourceFile::new(path, text.to_owned())];
        check(&Tree { files, paths: Vec::new() }).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_test_named_after_nothing_fails() {
        for stem in ["basic", "test_rename", "mount"] {
            assert_eq!(rules(&format!("crates/core/tests/{stem}.rs"), "//! A.\n"), ["test-name"]);
        }
        assert!(rules("crates/core/tests/rename_is_atomic.rs", "//! A.\n").is_empty());
        assert!(rules("crates/core/tests/common/mod.rs", "//! A.\n").is_empty());
    }

    #[test]
    fn a_file_without_a_sentence_of_purpose_fails() {
        let path = "crates/core/src/x.rs";
        assert_eq!(rules(path, "use a;\n"), ["opening"]);
        assert_eq!(rules(path, "//! A title\n//!\n//! A sentence.\n"), ["opening"]);
        assert!(rules(path, "//! A sentence over\n//! two lines.\n//!\n//! More\n").is_empty());
    }

    #[test]
    fn a_module_doc_is_there_and_short() {
        let doc = |lines| "//! A.\n".repeat(lines);
        assert_eq!(rules("crates/core/src/lib.rs", &doc(26)), ["module-doc"]);
        assert!(rules("crates/core/src/lib.rs", &doc(25)).is_empty());
        let example = format!("//! ```\n{}//! ```\n", doc(30));
        assert!(rules("crates/core/src/lib.rs", &format!("//! A.\n//!\n{example}")).is_empty());

        let file = |name: &str, lines| SourceFile::new(&format!("xtask/src/{name}"), doc(lines));
        let folder = |lines| Tree {
            files: vec![file("mod.rs", lines), file("a.rs", 1), file("b.rs", 1), file("c.rs", 1)],
            paths: Vec::new(),
        };
        assert_eq!(check(&folder(1))[0].rule, "module-doc");
        assert_eq!(check(&folder(2)), []);
    }

    #[test]
    fn an_offset_outside_layout_fails() {
        let text = "//! A.\npub const TAIL_OFFSET: u64 = 16;\n";
        assert_eq!(rules("crates/core/src/x.rs", text), ["offset"]);
        assert!(rules("crates/layout/src/x.rs", text).is_empty());
    }
}
