//! Files and functions stay short enough to be read in one go.

use super::{Finding, SourceFile, Tree};

/// Lines, comments and blanks included, above which a file is two files.
const FILE_LINES_MAX: usize = 800;
/// Lines that a file should stay below.
const FILE_LINES_AIM: usize = 300;
/// Lines of code, signature included, above which a function is two functions.
const FUNCTION_LINES_MAX: usize = 70;

/// Source files above the limit, and functions above theirs.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_source(file)) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(Finding {
                path: file.path.clone(),
                line: 0,
                rule: "file-length",
                message: format!("{lines} lines, at most {FILE_LINES_MAX}: split it by purpose"),
            });
        }
        for function in &file.tokens.functions {
            if function.code_lines > FUNCTION_LINES_MAX {
                let message = format!(
                    "`{}` has {} lines of code, at most {FUNCTION_LINES_MAX}: move straight-line \
                     work into a function of its own",
                    function.name, function.code_lines
                );
                let (path, line) = (file.path.clone(), function.line);
                findings.push(Finding { path, line, rule: "function-length", message });
            }
        }
    }
    findings
}

/// Names the source files that are longer than aimed at.
pub(super) fn notes(tree: &Tree) -> Vec<String> {
    let sources = tree.files.iter().filter(|file| is_source(file));
    sources
        .map(|file| (file.text.lines().count(), &file.path))
        .filter(|(lines, _)| *lines > FILE_LINES_AIM)
        .map(|(lines, path)| format!("{path}: {lines} lines, aim below {FILE_LINES_AIM}"))
        .collect()
}

fn is_source(file: &SourceFile) -> bool {
    ["rs", "sh", "c"].contains(&file.extension())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(path: &str, text: String) -> Tree {
        Tree { files: vec![SourceFile::new(path, text)], paths: Vec::new() }
    }

    #[test]
    fn a_file_above_800_lines_fails_and_one_of_800_is_noted() {
        let long = tree("crates/core/src/x.rs", "// line\n".repeat(801));
        assert_eq!(check(&long).len(), 1);
        let limit = tree("crates/core/src/x.rs", "// line\n".repeat(800));
        assert_eq!(check(&limit), []);
        assert_eq!(notes(&limit).len(), 1);
        assert!(notes(&tree("crates/core/src/x.rs", "// line\n".repeat(300))).is_empty());
        assert_eq!(check(&tree("docs/SPEC.md", "line\n".repeat(801))), [], "prose is not limited");
    }

    #[test]
    fn a_function_above_70_lines_fails() {
        let function = |lines: usize| format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        assert_eq!(check(&tree("xtask/src/x.rs", function(70))), []);
        let findings = check(&tree("xtask/src/x.rs", function(71)));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`a` has 71 lines"), "{}", findings[0]);
    }
}
