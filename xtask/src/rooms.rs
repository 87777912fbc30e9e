//! `cargo xtask rooms`: the files of core by room, and how their imports run in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tidy::{SourceFile, Tree};

const FOLDER: &str = "crates/core/src/";

/// Prints the rooms of core in the checkout at `root`, and the largest circle of files that use each
/// other by path. Unit tests are left out; a method's call is no path.
pub(crate) fn print(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let files: BTreeMap<&str, &SourceFile> = tree
        .files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(FOLDER)?.strip_suffix(".rs")?, file)))
        .collect();
    let mut rooms: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (path, file) in &files {
        let (files, lines) = rooms.entry(path.split_once('/').map_or("", |at| at.0)).or_default();
        (*files, *lines) = (*files + 1, *lines + file.text.lines().count());
    }
    println!("{:<10} {:>5} {:>6}", "room", "files", "lines");
    for (room, (files, lines)) in &rooms {
        println!("{:<10} {files:>5} {lines:>6}", if room.is_empty() { "(none)" } else { room });
    }
    let lines: usize = rooms.values().map(|(_, lines)| lines).sum();
    println!("{:<10} {:>5} {lines:>6}", "all", files.len());
    let circle = largest_circle(&arrows(&files));
    println!("largest circle: {} files {}", circle.len(), circle.join(" "));
    Ok(())
}

/// Which file uses which, by the paths that begin with `crate::`.
fn arrows<'a>(files: &BTreeMap<&'a str, &SourceFile>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let module = |path: &str| path.strip_suffix("/mod").unwrap_or(path).to_owned();
    let by_module: BTreeMap<String, &str> =
        files.keys().map(|path| (module(path), *path)).collect();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, file) in files {
        let uses = arrows.entry(path).or_default();
        for (at, token) in file.tokens.list.iter().enumerate() {
            if token.text != "crate" || token.is_test {
                continue;
            }
            let mut found = None;
            let mut name = String::new();
            let later = file.tokens.list.get(at + 1..).unwrap_or_default();
            for pair in later.chunks_exact(2).take_while(|pair| pair.iter().any(|t| t.text == "::"))
            {
                let [_, part] = pair else { break };
                name = if name.is_empty() {
                    part.text.clone()
                } else {
                    format!("{name}/{}", part.text)
                };
                found = by_module.get(&name).copied().or(found);
            }
            uses.extend(found.filter(|used| used != path));
        }
    }
    arrows
}

/// The largest set of files of which each leads to each.
fn largest_circle<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<&'a str> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|from| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*from]);
            while let Some(at) = open.pop() {
                let next = arrows.get(at).into_iter().flatten().copied();
                open.extend(next.filter(|next| seen.insert(*next)));
            }
            (*from, seen)
        })
        .collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|seen| seen.contains(to));
    let circle = |from: &&'a str| -> Vec<&'a str> {
        arrows.keys().copied().filter(|to| leads(from, to) && leads(to, from)).collect()
    };
    arrows.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_and_what_hangs_on_it_is_not_of_it() {
        let all = [
            ("a", "use crate::b::C;"),
            ("b", "use crate::d::e::F;"),
            ("d/e", "fn f() { crate::a::g() }"),
            ("h", "use crate::a;\n#[cfg(test)]\nmod tests { use crate::h; }"),
        ]
        .map(|(path, text)| (path, SourceFile::new(&format!("{path}.rs"), text.to_owned())));
        let files = all.iter().map(|(path, file)| (*path, file)).collect();
        assert_eq!(largest_circle(&arrows(&files)), ["a", "b", "d/e"]);
    }
}
