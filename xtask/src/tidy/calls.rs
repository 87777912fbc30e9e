//! Calls that a crate must not make, each with what to do instead.

use super::bans::{BANS, Ban, Crates, EXEMPTIONS, Tests};
use super::source::SourceFile;
use super::tokens::Token;
use super::{Finding, Tree};

/// Words that mark unfinished work, in any text; spelled so that this file has none.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Banned calls, unfinished work, and Rust files that are none.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = stale_exemptions(tree);
    for file in &tree.files {
        findings.extend(BANS.iter().flat_map(|ban| banned(file, ban)));
        findings.extend(unfinished(file));
        if let Some(error) = &file.parse_error {
            let (path, message) = (file.path.clone(), error.clone());
            findings.push(Finding { path, line: 0, rule: "parse", message });
        }
    }
    findings
}

fn banned(file: &SourceFile, ban: &Ban) -> Vec<Finding> {
    let concerned = match (&ban.crates, file.crate_name()) {
        (Crates::Only(names), Some(name)) => names.contains(&name),
        (Crates::AllBut(names), Some(name)) => !names.contains(&name),
        (_, None) => false,
    };
    // A build script is a program that runs before its crate is there.
    let concerned = concerned && !file.path.ends_with("/build.rs");
    let exempt = EXEMPTIONS.iter().any(|e| e.path == file.path && e.tokens == ban.tokens);
    if !concerned || exempt {
        return Vec::new();
    }
    let counts = |token: &Token| ban.tests == Tests::Banned || !token.is_test;
    uses(file, ban.tokens)
        .filter(|token| counts(token))
        .map(|token| Finding {
            path: file.path.clone(),
            line: token.line,
            rule: "forbidden-call",
            message: format!("`{}`; instead: {}", ban.tokens.concat(), ban.instead),
        })
        .collect()
}

/// The first token of each place where `tokens` stand in this order.
fn uses<'a>(
    file: &'a SourceFile,
    tokens: &'static [&'static str],
) -> impl Iterator<Item = &'a Token> {
    file.tokens
        .list
        .windows(tokens.len())
        .filter(move |found| found.iter().zip(tokens).all(|(token, text)| token.text == *text))
        .filter_map(|found| found.first())
}

/// Exemptions whose file no longer needs them.
fn stale_exemptions(tree: &Tree) -> Vec<Finding> {
    let stale = EXEMPTIONS.iter().filter(|exemption| {
        let file = tree.file(exemption.path);
        // A tree that lists no paths is a few files of a test.
        file.map_or(!tree.paths.is_empty(), |file| uses(file, exemption.tokens).next().is_none())
    });
    stale
        .map(|exemption| Finding {
            path: exemption.path.to_owned(),
            line: 0,
            rule: "forbidden-call",
            message: format!("no longer uses `{}`: drop its exemption", exemption.tokens.concat()),
        })
        .collect()
}

fn unfinished(file: &SourceFile) -> Vec<Finding> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for word in UNFINISHED {
            if line.split(|c| !is_word(c)).any(|found| found == *word) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: number + 1,
                    rule: "unfinished",
                    message: format!("`{word}`; instead: do it, or open an issue"),
                });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree { files: vec![SourceFile::new(path, text.to_owned())], paths: Vec::new() })
    }

    #[test]
    fn every_ban_can_fail_and_spares_the_other_crates() {
        for ban in BANS {
            let code = format!("fn a() {{ {} }}", ban.tokens.join(" ").replace('(', "()"));
            let (concerned, other) = match ban.crates {
                Crates::Only(names) => (names[0], "elsewhere"),
                Crates::AllBut(names) => ("elsewhere", names.first().copied().unwrap_or("")),
            };
            let findings = found(&format!("crates/{concerned}/src/x.rs"), &code);
            assert_eq!(findings.len(), 1, "{:?} in {concerned}: {findings:?}", ban.tokens);
            assert!(findings[0].message.ends_with(ban.instead));
            if !other.is_empty() {
                let hits = found(&format!("crates/{other}/src/x.rs"), &code);
                let same = hits.iter().filter(|hit| hit.message.ends_with(ban.instead)).count();
                assert_eq!(same, 0, "{:?} in {other}: {hits:?}", ban.tokens);
            }
            let in_test = found(&format!("crates/{concerned}/tests/x.rs"), &code);
            assert_eq!(in_test.is_empty(), ban.tests == Tests::Free, "{:?}", ban.tokens);
        }
    }

    #[test]
    fn bans_reach_into_macros() {
        let code = "macro_rules! m { () => { unsafe { a() } } }";
        assert_eq!(found("crates/core/src/x.rs", code).len(), 1);
    }

    #[test]
    fn unfinished_work_is_found_in_any_text() {
        for word in UNFINISHED {
            assert_eq!(found("docs/X.md", &format!("a\n{word}: b\n")).len(), 1);
            assert_eq!(found("docs/X.md", &format!("a{word} b\n")).len(), 0);
        }
    }

    #[test]
    fn code_that_does_not_parse_is_found() {
        assert_eq!(found("crates/core/src/x.rs", "fn a() {")[0].rule, "parse");
    }
}
