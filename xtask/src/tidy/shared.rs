//! What processes share is versioned by meaning: a number in the source, raised by hand. This rule sees
//! to it that nobody forgets: the constants and enumerations of the files that say what the shared words
//! are have a fingerprint, and the one who changes one decides anew. Comments and functions don't count.

use super::source::SourceFile;
use super::tokens::Token;
use super::{Finding, Tree};

/// The declarations that one number stands for.
struct Shared {
    /// Where the number is, and its name.
    number: (&'static str, &'static str),
    /// Files, and folders with a slash after.
    of: &'static [&'static str],
    fingerprint: u64,
}

const SHARED: &[Shared] = &[
    Shared {
        number: ("crates/arena/src/memory/arena.rs", "LAYOUT"),
        of: &["crates/arena/src/"],
        fingerprint: 0xa480_7cf8_5d80_ae18,
    },
    Shared {
        number: ("crates/core/src/life/attach.rs", "SHARED"),
        of: &[
            "crates/core/src/inode/",
            "crates/core/src/space/",
            "crates/core/src/op/call.rs",
            "crates/core/src/op/counted.rs",
            "crates/core/src/op/pages.rs",
            "crates/core/src/op/quota.rs",
            "crates/core/src/map/hold.rs",
            "crates/core/src/map/kernel_mapped.rs",
            "crates/core/src/life/attach.rs",
            "crates/core/src/life/device.rs",
            "crates/core/src/life/room.rs",
            "crates/core/src/life/serving.rs",
            "crates/core/src/life/settle.rs",
            "crates/pm/src/counters.rs",
            "crates/pm/src/counters/",
            "crates/pm/src/device/model.rs",
            "crates/pm/src/purpose.rs",
        ],
        fingerprint: 0x1684_f05a_8f1f_e27a,
    },
];

/// Declarations of shared words that changed since their number was last thought of.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    SHARED.iter().filter_map(|shared| check_one(shared, tree)).collect()
}

fn check_one(shared: &Shared, tree: &Tree) -> Option<Finding> {
    let (path, name) = shared.number;
    tree.file(path)?;
    let is_of = |file: &&SourceFile| {
        shared
            .of
            .iter()
            .any(|of| file.path == *of || of.ends_with('/') && file.path.starts_with(of))
    };
    let found = tree.files.iter().filter(is_of).fold(START, fingerprint);
    if found == shared.fingerprint {
        return None;
    }
    let message = format!(
        "constants or enumerations that programs share have changed; instead: raise `{name}` if one \
         means something else now, then put {found:#x} into xtask/src/tidy/shared.rs"
    );
    Some(Finding { path: path.to_owned(), line: 0, rule: "shared-meaning", message })
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash so far, carried on over a file's constants and enumerations.
fn fingerprint(hash: u64, file: &SourceFile) -> u64 {
    let mut rest = &file.tokens.list[..];
    let mut hash = hash;
    while let [first, next, ..] = rest {
        let is_const = first.text == "const" && next.text != "fn" && next.text != "{";
        let ends = if first.is_test {
            None
        } else if is_const {
            end(rest, |token, depth| depth == 0 && token.text == ";")
        } else if first.text == "enum" {
            end(rest, |token, depth| depth == 0 && token.text == "}")
        } else {
            None
        };
        let (item, later) = rest.split_at(ends.unwrap_or(0).max(1));
        if ends.is_some() {
            hash = item.iter().fold(hash, |hash, token| fnv(hash, &token.text));
        }
        rest = later;
    }
    hash
}

/// How many tokens there are up to the one that ends an item.
fn end(tokens: &[Token], is_end: impl Fn(&Token, i32) -> bool) -> Option<usize> {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => depth -= 1,
            _ => {}
        }
        if is_end(token, depth) {
            return Some(index + 1);
        }
    }
    None
}

/// FNV-1a over a token, carried on.
fn fnv(hash: u64, token: &str) -> u64 {
    token
        .bytes()
        .chain([0])
        .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        fingerprint(START, &SourceFile::new("crates/core/src/inode/view.rs", text.to_owned()))
    }

    #[test]
    fn words_count_and_comments_and_functions_do_not() {
        let text = "const SIZE: usize = 7;\nenum Kind { A = 1, B }\nfn f() -> u64 { 1 }";
        let same = "/// More of it.\nconst SIZE : usize = 7; // seven\n\nenum Kind {\n A = 1, B }\nfn g() {}";
        assert_eq!(of(text), of(same));
        assert_ne!(of(text), of(&text.replace('7', "8")));
        assert_ne!(of(text), of(&text.replace("A = 1, B", "B, A = 1")));
        let extra = "#[cfg(test)]\nmod tests { const ONLY: u8 = 1; }";
        assert_eq!(of(text), of(&format!("{text}\n{extra}")));
    }

    #[test]
    fn a_constant_in_a_function_counts_and_a_const_fn_does_not() {
        assert_ne!(of("fn f() { const WORD: u64 = 1; }"), of("fn f() { const WORD: u64 = 2; }"));
        assert_eq!(of("const fn f() -> u64 { 1 }"), of("const fn f() -> u64 { 2 }"));
    }
}
