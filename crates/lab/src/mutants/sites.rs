//! The calls of `pm` in the source of `core` that store, write back or fence.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The methods of `Pm` that do something to a pool.
const METHODS: [&str; 10] = [
    "store_u64",
    "store_line",
    "store",
    "stream",
    "stream_line",
    "stream_zero",
    "stream_copy",
    "write_back",
    "write_back_range",
    "fence",
];

/// A call in the source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Relative to the source folder of `core`.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: u32,
    /// The method called.
    pub method: String,
}

/// All calls in the source of `core`, its unit tests left out.
///
/// # Errors
/// When the source is not where this program was built.
pub fn calls_in_core() -> io::Result<Vec<Call>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src");
    let mut calls = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(&root).unwrap_or(&path).to_owned();
                calls.extend(calls_in(&fs::read_to_string(&path)?, &file));
            }
        }
    }
    calls.sort();
    Ok(calls)
}

/// The calls in one file: `pm.METHOD(`, `pm().METHOD(`, over line ends. A function that passes its
/// caller on (`#[track_caller]`) is no place itself; the calls of it are.
fn calls_in(text: &str, file: &Path) -> Vec<Call> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let helpers = passed_on(code);
    let mut calls = Vec::new();
    for (at, _) in code.match_indices('.') {
        let before = code.get(..at).unwrap_or_default();
        let call = code.get(at + 1..).unwrap_or_default();
        let is_call =
            |name: &str| call.strip_prefix(name).is_some_and(|rest| rest.starts_with('('));
        let receiver = before.trim_end();
        let is_pm = ["pm", "pm()"].iter().any(|name| {
            receiver.strip_suffix(name).is_some_and(|before| !before.ends_with(is_name))
        });
        let method = METHODS.iter().copied().filter(|_| is_pm).find(|name| is_call(name));
        let helper = helpers.iter().filter(|_| !is_pm).find(|(name, _)| is_call(name));
        let is_inside = helpers.iter().any(|(_, range)| range.contains(&at));
        let name = method.or(helper.map(|(name, _)| *name)).filter(|_| !is_inside);
        if let Some(name) = name {
            let line = u32::try_from(before.matches('\n').count() + 1).unwrap_or(0);
            calls.push(Call { file: file.to_owned(), line, method: name.to_owned() });
        }
    }
    calls
}

/// The functions marked `#[track_caller]`: name and range in the text.
fn passed_on(code: &str) -> Vec<(&str, std::ops::Range<usize>)> {
    let functions = code.match_indices("#[track_caller]").filter_map(|(start, _)| {
        let text = code.get(start..)?;
        let name = text.split_once("fn ")?.1.split(|c| !is_name(c)).next()?;
        // The end of the function as rustfmt leaves it.
        let end = text.find("\n    }\n").or_else(|| text.find("\n}\n"))?;
        Some((name, start..start + end))
    });
    functions.collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_over_line_ends_and_nothing_else_is() {
        let text = "fn f() {\n pm.fence(self.pm\n  .stream(a));\n word.store(1); journal.write_back(pm);\n \
                    fs.pm().store_u64(b);\n}\n#[cfg(test)]\nmod tests { pm.fence(c) }";
        let calls = calls_in(text, Path::new("f.rs"));
        let found: Vec<_> = calls.iter().map(|call| (call.line, call.method.as_str())).collect();
        assert_eq!(found, [(2, "fence"), (3, "stream"), (5, "store_u64")]);
    }

    #[test]
    fn a_helper_that_passes_its_caller_on_is_called_where_it_is_called() {
        let text = "impl A {\n    #[track_caller]\n    fn keep(&self) {\n        self.pm.fence(a);\n    }\n\n    \
                    fn f(&self) {\n        self.keep();\n    }\n}\n";
        let calls = calls_in(text, Path::new("f.rs"));
        let found: Vec<_> = calls.iter().map(|call| (call.line, call.method.as_str())).collect();
        assert_eq!(found, [(8, "keep")]);
    }

    #[test]
    fn the_source_of_core_has_calls() {
        assert!(calls_in_core().unwrap().len() > 40);
    }
}
