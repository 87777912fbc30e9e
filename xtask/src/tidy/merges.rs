//! What a merge leaves where two changes met and nobody decided.

use super::{Finding, Tree};

/// How the lines begin that set both sides apart.
const MARKERS: [&str; 3] = ["<<<<<<<", "|||||||", ">>>>>>>"];

/// Conflicts that are still in the text.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, line) in file.text.lines().enumerate() {
            let is_marker = |marker: &&str| line.strip_prefix(*marker).is_some_and(begins_a_word);
            if MARKERS.iter().any(is_marker) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: number + 1,
                    rule: "merge",
                    message: "a merge's conflict stands here: decide, and take the marker out"
                        .into(),
                });
            }
        }
    }
    findings
}

fn begins_a_word(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::SourceFile;

    #[test]
    fn markers_are_found_and_tables_are_not() {
        let text = "| a |\n<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> 1234567\n<<<<<<<<<\n";
        let files = vec![SourceFile::new("docs/HACKING.md", text.to_owned())];
        let tree = Tree { files, ..Tree::default() };
        let lines: Vec<usize> = check(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 6]);
    }
}
