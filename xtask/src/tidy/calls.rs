//! Calls that a crate must not make, each with what to do instead.

use super::source::SourceFile;
use super::tokens::Token;
use super::{Finding, Tree};

/// A sequence of tokens that may not stand in some crates.
struct Ban {
    tokens: &'static [&'static str],
    crates: Crates,
    tests: Tests,
    instead: &'static str,
}

/// The crates that a ban is for, by folder name.
enum Crates {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// Whether a ban is for tests too.
#[derive(PartialEq)]
enum Tests {
    Banned,
    Free,
}

/// The crates whose runs replay: all that they know of the world is handed in.
const REPLAYING: Crates = Crates::Only(&["core", "layout", "policy", "model"]);
/// The crates that are, or serve, a command line.
const PROGRAMS: &[&str] = &["cli", "bench", "lab", "xtask"];
/// The crates that may not spell bytes on media.
const ABOVE_LAYOUT: Crates = Crates::Only(&["core", "policy", "posix", "fuse", "cli"]);

const BANS: &[Ban] = &[
    Ban {
        tokens: &["unsafe"],
        crates: Crates::AllBut(&["pm", "arena", "preload", "capi"]),
        tests: Tests::Banned,
        instead: "a function of `pm` or `arena`; unsafe stays in the few crates that need it",
    },
    Ban {
        tokens: &["static", "mut"],
        crates: Crates::AllBut(&[]),
        tests: Tests::Banned,
        instead: "an atomic, or state that is handed in",
    },
    Ban {
        tokens: &["mem", "::", "transmute"],
        crates: Crates::AllBut(&["preload"]),
        tests: Tests::Banned,
        instead: "zerocopy, `from_le_bytes`, or a pointer cast with its SAFETY comment",
    },
    Ban {
        tokens: &["sleep", "("],
        crates: Crates::AllBut(&["bench"]),
        tests: Tests::Free,
        instead: "wait for the condition itself: a lock, a channel, poll on a descriptor",
    },
    Ban {
        tokens: &["SystemTime"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the time that the caller hands in (`Ctx::now_ns`), so that a run replays",
    },
    Ban {
        tokens: &["Instant"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the time that the caller hands in (`Ctx::now_ns`), so that a run replays",
    },
    Ban {
        tokens: &["thread"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the executor that the caller hands in",
    },
    Ban {
        tokens: &["fastrand"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "a number that the caller hands in, so that a run replays",
    },
    Ban {
        tokens: &["env", "::"],
        crates: Crates::AllBut(&["cli", "fuse", "bench", "lab", "xtask"]),
        tests: Tests::Free,
        instead: "an option that the caller hands in",
    },
    Ban {
        tokens: &["std", "::", "fs"],
        crates: REPLAYING,
        tests: Tests::Free,
        instead: "the pool through `pm`; this crate opens no files",
    },
    Ban {
        tokens: &["libc", "::"],
        crates: Crates::Only(&["core", "layout", "policy", "model"]),
        tests: Tests::Banned,
        instead: "an error of this layer; errno lives in `posix` and the shims",
    },
    Ban {
        tokens: &["process", "::", "exit"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "an error that the caller handles",
    },
    Ban {
        tokens: &["println", "!"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "a returned value, or a progress callback; libraries never print",
    },
    Ban {
        tokens: &["print", "!"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "a returned value, or a progress callback; libraries never print",
    },
    Ban {
        tokens: &["eprintln", "!"],
        crates: Crates::AllBut(PROGRAMS),
        tests: Tests::Free,
        instead: "a returned error; libraries never print",
    },
    Ban {
        tokens: &["from_le_bytes"],
        crates: ABOVE_LAYOUT,
        tests: Tests::Free,
        instead: "a structure of `layout`: bytes on media are spelled there alone",
    },
    Ban {
        tokens: &["to_le_bytes"],
        crates: ABOVE_LAYOUT,
        tests: Tests::Free,
        instead: "a structure of `layout`: bytes on media are spelled there alone",
    },
];

/// A ban that one file is free of.
struct Exemption {
    path: &'static str,
    tokens: &'static [&'static str],
    /// Why; it must hold for every use in the file.
    #[expect(dead_code, reason = "read by people")]
    because: &'static str,
}

/// Places where a banned call is right.
const EXEMPTIONS: &[Exemption] = &[];

/// Words that mark unfinished work, in any text; spelled so that this file has none.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Banned calls, unfinished work, and Rust files that are none.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = stale_exemptions(tree);
    for file in &tree.files {
        findings.extend(BANS.iter().flat_map(|ban| banned(file, ban)));
        findings.extend(unfinished(file));
        if let Some(error) = &file.parse_error {
            let (path, message) = (file.path.clone(), error.clone());
            findings.push(Finding {
                path,
                line: 0,
                rule: "parse",
                message,
            });
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
    let exempt = EXEMPTIONS
        .iter()
        .any(|e| e.path == file.path && e.tokens == ban.tokens);
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
        .filter(move |found| {
            found
                .iter()
                .zip(tokens)
                .all(|(token, text)| token.text == *text)
        })
        .filter_map(|found| found.first())
}

/// Exemptions whose file no longer needs them.
fn stale_exemptions(tree: &Tree) -> Vec<Finding> {
    let stale = EXEMPTIONS.iter().filter(|exemption| {
        let file = tree.file(exemption.path);
        file.is_none_or(|file| uses(file, exemption.tokens).next().is_none())
    });
    stale
        .map(|exemption| Finding {
            path: exemption.path.to_owned(),
            line: 0,
            rule: "forbidden-call",
            message: format!(
                "no longer uses `{}`: drop its exemption",
                exemption.tokens.concat()
            ),
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
        check(&Tree {
            files: vec![SourceFile::new(path, text.to_owned())],
            paths: Vec::new(),
        })
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
            assert_eq!(
                findings.len(),
                1,
                "{:?} in {concerned}: {findings:?}",
                ban.tokens
            );
            assert!(findings[0].message.ends_with(ban.instead));
            if !other.is_empty() {
                let hits = found(&format!("crates/{other}/src/x.rs"), &code);
                let same = hits
                    .iter()
                    .filter(|hit| hit.message.ends_with(ban.instead))
                    .count();
                assert_eq!(same, 0, "{:?} in {other}: {hits:?}", ban.tokens);
            }
            let in_test = found(&format!("crates/{concerned}/tests/x.rs"), &code);
            assert_eq!(
                in_test.is_empty(),
                ban.tests == Tests::Free,
                "{:?}",
                ban.tokens
            );
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
