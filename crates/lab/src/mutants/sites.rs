//! The calls of `pm` in the source of `core` that store, write back or fence.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_64;

use super::key::{Does, Site};
use super::needless::why_unreached;
use crate::source::files;

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
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Relative to the source folder of `core`.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: u32,
    /// The method called.
    pub method: String,
    /// `Type::function`, or `file::function` outside of an `impl`.
    pub function: String,
    /// Its number among the function's calls that do the same, from 1.
    pub nth: usize,
    /// A hash of the function's text.
    pub text: u64,
}

impl Call {
    /// What it does; `None` for a method of another crate's making.
    pub(super) fn does(&self) -> Option<Does> {
        match self.method.split('_').next()? {
            "store" => Some(Does::Stores),
            "stream" => Some(Does::Streams),
            "write" => Some(Does::WritesBack),
            "fence" => Some(Does::Fences),
            _ => None,
        }
    }
}

/// What of the source was reached.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Calls in the source of `core`.
    pub calls: Vec<Call>,
    /// Those that were not reached.
    pub unreached: Vec<Call>,
    /// Those that nothing reaches, with the reason.
    pub excused: Vec<(Call, &'static str)>,
}

impl Reach {
    /// By files and lines as the compiler names them.
    ///
    /// # Errors
    /// When the source is not where this program was built.
    pub fn of<'a>(reached: impl Iterator<Item = (&'a str, u32)>) -> io::Result<Self> {
        let in_core = |(file, line): (&'a str, u32)| {
            (file.rsplit_once("core/src/").map_or(file, |(_, file)| file), line)
        };
        let reached: BTreeSet<(&str, u32)> = reached.map(in_core).collect();
        let mut this = Self { calls: calls_in_core()?, ..Self::default() };
        let is_reached =
            |call: &&Call| reached.contains(&(&*call.file.to_string_lossy(), call.line));
        for call in this.calls.iter().filter(|call| !is_reached(call)) {
            match why_unreached(call) {
                Some(why) => this.excused.push((call.clone(), why)),
                None => this.unreached.push(call.clone()),
            }
        }
        Ok(this)
    }

    /// How many were reached.
    pub fn reached(&self) -> usize {
        self.calls.len() - self.unreached.len() - self.excused.len()
    }
}

/// The calls in one line that do this, or anything. What streams stores less than a line plainly.
pub(super) fn calls_at(site: Site, does: Option<Does>) -> Vec<&'static Call> {
    static CALLS: LazyLock<Vec<Call>> = LazyLock::new(|| calls_in_core().unwrap_or_default());
    let ends = does.filter(|does| *does != Does::Fences).map(|_| Does::Streams);
    let is_there = |call: &&Call| {
        call.line == site.line
            && Path::new(site.file).ends_with(&call.file)
            && does.is_none_or(|_| [does, ends].contains(&call.does()))
    };
    CALLS.iter().filter(is_there).collect()
}

/// All calls in the source of `core`, its unit tests left out.
///
/// # Errors
/// When the source is not where this program was built.
pub fn calls_in_core() -> io::Result<Vec<Call>> {
    let mut files = files("core")?;
    files.retain(|(file, _)| !file.ends_with("tests.rs"));
    let mut calls: Vec<Call> = files.iter().flat_map(|(file, text)| calls_in(text, file)).collect();
    calls.sort();
    Ok(calls)
}

/// The calls in one file: `pm.METHOD(`, `pm().METHOD(`, over line ends. A function that passes its
/// caller on (`#[track_caller]`) is no place itself; the calls of it are.
fn calls_in(text: &str, file: &Path) -> Vec<Call> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let helpers = passed_on(code);
    let functions = functions_in(code, file);
    let text_at = |at: usize| {
        let start = functions.range(..=at).next_back().map_or(0, |(start, _)| *start);
        let end = functions.range(at + 1..).next().map_or(code.len(), |(end, _)| *end);
        xxh3_64(code.get(start..end).unwrap_or_default().as_bytes())
    };
    let mut counts = BTreeMap::new();
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
            let function = functions.range(..=at).next_back();
            let function = function.map(|(_, name)| name.clone()).unwrap_or_default();
            let (file, method) = (file.to_owned(), name.to_owned());
            let mut call = Call { file, line, method, function, nth: 0, text: text_at(at) };
            let count: &mut usize = counts.entry((call.function.clone(), call.does())).or_default();
            *count += 1;
            call.nth = *count;
            calls.push(call);
        }
    }
    calls
}

/// Where each function begins, and its name with its type's, or the file's. Of one in another's body,
/// nothing is said.
fn functions_in(code: &str, file: &Path) -> BTreeMap<usize, String> {
    let stem = if file.ends_with("mod.rs") { file.parent() } else { Some(file) };
    let stem = stem.and_then(Path::file_stem).unwrap_or_default().to_string_lossy();
    let (mut functions, mut owner, mut at) = (BTreeMap::new(), stem.to_string(), 0);
    for line in code.split_inclusive('\n') {
        if line.starts_with("impl") {
            // `impl<'a> Type<'a> {`, `impl Type {`, `impl Trait for Type {`.
            let plain = line.trim_start_matches("impl");
            let generic = plain.strip_prefix('<').and_then(|rest| rest.split_once("> "));
            let named = generic.map_or(plain.trim_start(), |(_, rest)| rest);
            let named = named.split_once(" for ").map_or(named, |(_, rest)| rest);
            owner = named.chars().take_while(|c| is_name(*c)).collect();
        } else if line.starts_with('}') {
            owner = stem.to_string();
        }
        let words = line.trim_start().split_once("fn ").filter(|(before, _)| {
            line.len() - line.trim_start().len() <= 4
                && before.split_whitespace().all(|word| {
                    word.starts_with("pub") || ["const", "unsafe", "async"].contains(&word)
                })
        });
        if let Some((_, rest)) = words {
            let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
            functions.insert(at, format!("{owner}::{name}"));
        }
        at += line.len();
    }
    functions
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
        assert!(calls.iter().all(|call| call.function == "f::f" && call.nth == 1));
    }

    #[test]
    fn a_call_is_of_its_type_and_function_and_numbered_there() {
        let text = "impl<'a> Fs<'a> {\n    pub(crate) fn f() {\n        pm.fence(pm.fence(a));\n    }\n}\n\
                    fn g() {\n    pm.fence(a);\n}\nimpl A for B<'_> {\n    fn h() { pm.fence(a) }\n}\n";
        let calls = calls_in(text, Path::new("log/mod.rs"));
        let found: Vec<_> = calls.iter().map(|call| (call.function.as_str(), call.nth)).collect();
        assert_eq!(found, [("Fs::f", 1), ("Fs::f", 2), ("log::g", 1), ("B::h", 1)]);
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
