//! Which folder of a crate may use which: the rooms of docs/ARCHITECTURE.md, as data.
//!
//! A room may use itself and the rooms before it. Imports and paths count; a method call tells nothing
//! of the folder that its `impl` stands in, so it does not. Two types of a crate never have one name.

use std::collections::BTreeMap;

use super::source::SourceFile;
use super::{Finding, Tree};

/// The rooms of one crate, from the ground up.
struct House {
    /// The crate's source folder.
    folder: &'static str,
    /// Folders, each with the files beside them that count as part of it.
    rooms: &'static [(&'static str, &'static [&'static str])],
    /// Files that may look at all rooms, and that no room may use.
    roofs: &'static [&'static str],
}

const HOUSES: &[House] = &[
    House {
        folder: "crates/core/src/",
        rooms: &[
            ("base", &["seeded"]),
            ("space", &[]),
            ("pool", &[]),
            ("inode", &[]),
            ("log", &[]),
            ("op", &["fs"]),
            ("gc", &[]),
            ("map", &[]),
            ("write", &[]),
            ("attr", &[]),
            ("name", &[]),
            ("life", &[]),
            ("offline", &[]),
        ],
        roofs: &["lib", "fixture"],
    },
    House {
        folder: "crates/preload/src/",
        rooms: &[
            ("base", &[]),
            ("text", &[]),
            ("numbers", &[]),
            ("mounts", &[]),
            ("fds", &[]),
            ("paths", &[]),
            ("maps", &[]),
            ("process", &[]),
            ("calls", &[]),
            ("entry", &[]),
        ],
        roofs: &["lib"],
    },
    House {
        folder: "crates/arena/src/",
        rooms: &[("base", &[]), ("memory", &[]), ("clients", &[]), ("tables", &[])],
        roofs: &["lib"],
    },
    House {
        folder: "crates/capi/src/",
        rooms: &[("border", &[]), ("calls", &[])],
        roofs: &["lib"],
    },
    House {
        folder: "crates/cli/src/",
        rooms: &[
            ("base", &[]),
            ("pools", &[]),
            ("holders", &[]),
            ("mounts", &[]),
            ("commands", &[]),
        ],
        roofs: &["main"],
    },
];

/// Uses of a room above, files outside all rooms, and rooms without a folder.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    HOUSES.iter().flat_map(|house| check_house(house, tree)).collect()
}

fn check_house(house: &House, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let Some(path) = file.path.strip_prefix(house.folder) else { continue };
        let name = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if house.roofs.contains(&name) {
            continue;
        }
        match house.floor(name) {
            Some(floor) => findings.extend(climbs(house, file, floor)),
            None => findings.push(finding(file, 0, "is in no room; see xtask's rooms")),
        }
    }
    findings.extend(namesakes(house, tree));
    findings.extend(house.rooms.iter().filter_map(|(room, _)| {
        let folder = format!("{}{room}", house.folder);
        let missing = !tree.paths.is_empty() && !tree.paths.contains(&folder);
        let message = "is a room in xtask's rooms, and no folder".to_owned();
        missing.then_some(Finding { path: folder, line: 0, rule: "room", message })
    }));
    findings
}

/// Every use of a room above `floor`, in a file on it.
fn climbs(house: &House, file: &SourceFile, floor: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for tokens in file.tokens.list.windows(3) {
        let [krate, colons, name] = tokens else { continue };
        let is_path = krate.text == "crate" && colons.text == "::" && !krate.is_test;
        let used = house.floor(&name.text).filter(|used| is_path && *used > floor);
        if used.is_some() {
            let room = house.rooms.get(floor).map_or("", |(room, _)| room);
            let message = format!("`{room}` must not use `{}`, a room above it", name.text);
            findings.push(finding(file, name.line, &message));
        }
    }
    findings
}

/// Types whose name another one of the crate has.
fn namesakes(house: &House, tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with(house.folder)) {
        for tokens in file.tokens.list.windows(2) {
            let [word, name] = tokens else { continue };
            let is_type = ["struct", "enum", "trait"].contains(&word.text.as_str());
            if !is_type || word.is_test {
                continue;
            }
            if let Some(other) = first.insert(&name.text, &file.path) {
                let message =
                    format!("`{}` is a type of {other} as well: name one of them anew", name.text);
                findings.push(finding(file, name.line, &message));
            }
        }
    }
    findings
}

fn finding(file: &SourceFile, line: usize, message: &str) -> Finding {
    Finding { path: file.path.clone(), line, rule: "room", message: message.to_owned() }
}

impl House {
    /// The place in the order of a room, or of a file that counts as part of one.
    fn floor(&self, name: &str) -> Option<usize> {
        self.rooms.iter().position(|(room, files)| *room == name || files.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        let files = vec![SourceFile::new(path, text.to_owned())];
        check(&Tree { files, paths: Vec::new() }).len()
    }

    #[test]
    fn a_room_uses_those_below_it_and_no_other() {
        let log = "crates/core/src/log/walk.rs";
        assert_eq!(found(log, "use crate::base::error::Error;"), 0);
        assert_eq!(found(log, "use crate::log::entries;"), 0);
        assert_eq!(found(log, "use crate::write::cow;"), 1);
        assert_eq!(found(log, "fn f() { crate::life::open::g() }"), 1, "a path without an import");
        assert_eq!(found("crates/core/src/fs.rs", "use crate::gc::collect;"), 1);
        assert_eq!(found("crates/core/src/lib.rs", "pub use crate::fs::Fs;"), 0);
    }

    #[test]
    fn two_types_have_two_names() {
        let log = "crates/core/src/log/walk.rs";
        assert_eq!(found(log, "struct A;\nenum B { A }\nimpl A {}"), 0);
        assert_eq!(found(log, "struct A;\nmod inner { pub(crate) enum A {} }"), 1);
        assert_eq!(found(log, "struct A;\n#[cfg(test)]\nmod tests { struct A; }"), 0);
    }

    #[test]
    fn tests_may_use_all_of_it() {
        let text = "#[cfg(test)]\nmod tests {\n use crate::life::mkfs;\n}";
        assert_eq!(found("crates/core/src/log/mod.rs", text), 0);
    }

    #[test]
    fn each_file_has_a_room_and_each_room_a_folder() {
        assert_eq!(found("crates/core/src/stray.rs", ""), 1);
        let tree = Tree { files: Vec::new(), paths: vec!["crates/core/src/base".to_owned()] };
        let all: usize = HOUSES.iter().map(|house| house.rooms.len()).sum();
        assert_eq!(check(&tree).len(), all - 1);
    }
}
