//! Ties `docs/SPEC.md` to the crate: its tables must say what the raw structures are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{AclTag, EntryKind, FileKind, JournalKind, RoFeature, Structure, XattrNamespace};

/// Size in bytes, then (offset, bytes, name) a field.
type Table = (usize, Vec<(usize, usize, String)>);

fn table(structure: Structure) -> Table {
    let fields =
        structure.fields().iter().map(|field| (field.offset, field.bytes, field.name.to_owned()));
    (structure.bytes(), fields.collect())
}

fn crate_tables() -> BTreeMap<String, Table> {
    let named = |structure: &Structure| (structure.title().to_owned(), table(*structure));
    Structure::ALL.iter().map(named).collect()
}

fn crate_path(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn spec() -> String {
    crate_path("../../docs/SPEC.md")
}

/// The cells of a table row, without code marks.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().replace('`', "")).collect())
}

/// The rows of the table below a heading that starts with `heading`.
fn rows_below(spec: &str, heading: &str) -> Vec<Vec<String>> {
    spec.lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter_map(cells)
        .skip(2)
        .collect()
}

/// Every "### Title (N bytes)" of the document with its table.
fn spec_tables(spec: &str) -> BTreeMap<String, Table> {
    let headings = spec.lines().filter_map(|line| {
        let (title, size) = line.strip_prefix("### ")?.strip_suffix(" bytes)")?.split_once(" (")?;
        Some((line, title.to_owned(), size.parse().unwrap()))
    });
    headings
        .map(|(line, title, size)| {
            let fields = rows_below(spec, line).into_iter().map(|row| {
                let [offset, bytes, field, meaning] = &row[..] else {
                    panic!("{title}: a row needs four cells: {row:?}");
                };
                assert!(!meaning.is_empty(), "{title}: {field} has no meaning");
                (offset.parse().unwrap(), bytes.parse().unwrap(), field.clone())
            });
            (title.clone(), (size, fields.collect()))
        })
        .collect()
}

#[test]
fn the_tables_of_the_document_are_the_raw_structures() {
    let in_spec = spec_tables(&spec());
    let in_crate = crate_tables();
    for (title, table) in &in_crate {
        assert_eq!(in_spec.get(title), Some(table), "{title}");
    }
    let unknown: Vec<_> = in_spec.keys().filter(|title| !in_crate.contains_key(*title)).collect();
    assert!(unknown.is_empty(), "tables of no raw structure: {unknown:?}");
}

#[test]
fn the_tables_leave_no_gap() {
    for (title, (size, fields)) in spec_tables(&spec()) {
        let mut end = 0;
        for (offset, bytes, field) in fields {
            assert_eq!(offset, end, "{title}: {field}");
            end = offset + bytes;
        }
        assert_eq!(end, size, "{title}");
    }
}

#[test]
fn every_raw_structure_is_compared() {
    let known = crate_tables();
    let mut declared = 0;
    for file in [
        "entry/attributes.rs",
        "entry/dentry.rs",
        "entry/header.rs",
        "entry/redo.rs",
        "entry/pair.rs",
        "entry/source.rs",
        "entry/write.rs",
        "inode/commit.rs",
        "inode/identity.rs",
        "inode/mod.rs",
        "journal/mod.rs",
        "log.rs",
        "pair.rs",
        "pool_state.rs",
        "quota.rs",
        "saved.rs",
        "slot.rs",
        "superblock.rs",
        "wear.rs",
        "acl.rs",
        "xattr.rs",
    ] {
        let text = crate_path(&format!("src/{file}"));
        for line in text.lines().filter(|line| line.starts_with("    struct Raw")) {
            let title = line.split('"').nth(1).unwrap();
            assert!(known.contains_key(title), "{file}: {title} is not compared");
            declared += 1;
        }
    }
    assert_eq!(declared, known.len());
}

#[test]
fn the_constants_of_the_document_are_the_constants_of_the_crate() {
    let [first_commit, second_commit] = crate::COMMIT_OFFSETS;
    let [first_journal, second_journal] = crate::JOURNAL_OFFSETS;
    let [first_state, second_state] = crate::POOL_STATE_OFFSETS;
    let [first_slot_state, second_slot_state] = crate::SLOT_STATE_OFFSETS;
    let expected: BTreeMap<String, Vec<u64>> = BTreeMap::from(
        [
            ("PAGE", vec![crate::PAGE]),
            ("LINE", vec![crate::LINE]),
            ("FORMAT_VERSION", vec![crate::FORMAT_VERSION.into()]),
            ("MAX_SLOTS", vec![crate::MAX_SLOTS.into()]),
            ("MAX_LANES", vec![crate::MAX_LANES.into()]),
            ("MAX_CHUNKS", vec![crate::MAX_CHUNKS]),
            ("POOL_STATE_OFFSETS", vec![first_state, second_state]),
            ("SLOT_HEADER_OFFSET", vec![crate::SLOT_HEADER_OFFSET]),
            ("SLOT_STATE_OFFSETS", vec![first_slot_state, second_slot_state]),
            ("WEAR_PAGE", vec![crate::WEAR_PAGE]),
            ("BAD_PAGE_LIST_PAGE", vec![crate::BAD_PAGE_LIST_PAGE]),
            ("INODE_DIRECTORY_PAGE", vec![crate::INODE_DIRECTORY_PAGE]),
            ("LANE_TABLE_PAGE", vec![crate::LANE_TABLE_PAGE]),
            ("FIRST_FREE_PAGE", vec![crate::FIRST_FREE_PAGE]),
            ("INODE_SIZE", vec![crate::INODE_SIZE]),
            ("INODES_PER_CHUNK", vec![crate::INODES_PER_CHUNK]),
            ("INODES_PER_PAGE", vec![crate::INODES_PER_PAGE]),
            ("IDENTITY_OFFSET", vec![crate::IDENTITY_OFFSET]),
            ("COMMIT_OFFSETS", vec![first_commit, second_commit]),
            ("VOLATILE_OFFSET", vec![crate::VOLATILE_OFFSET]),
            ("JOURNAL_OFFSETS", vec![first_journal, second_journal]),
            ("JOURNAL_RECORD_BYTES", vec![crate::JOURNAL_RECORD_BYTES as u64]),
            ("LOG_NEXT_OFFSET", vec![crate::LOG_NEXT_OFFSET]),
            ("LOG_ENTRY_LINES", vec![crate::LOG_ENTRY_LINES]),
            ("SAVED_PAYLOAD_OFFSET", vec![crate::SAVED_PAYLOAD_OFFSET]),
            ("XATTR_PAYLOAD_OFFSET", vec![crate::XATTR_PAYLOAD_OFFSET]),
            ("XATTR_CHAIN_PAGES_MAX", vec![crate::XATTR_CHAIN_PAGES_MAX.into()]),
            ("XATTR_INLINE_BYTES_MAX", vec![crate::XATTR_INLINE_BYTES_MAX.into()]),
            ("XATTR_VALUE_BYTES_MAX", vec![crate::XATTR_VALUE_BYTES_MAX.into()]),
            ("XATTR_LIST_BYTES_MAX", vec![crate::XATTR_LIST_BYTES_MAX as u64]),
        ]
        .map(|(name, values)| (name.to_owned(), values)),
    );
    let found: BTreeMap<String, Vec<u64>> = rows_below(&spec(), "### Constants")
        .into_iter()
        .map(|row| {
            let values = row[1].split(", ").map(|value| value.parse().unwrap());
            (row[0].clone(), values.collect())
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_numbers_of_the_document_are_the_numbers_of_the_crate() {
    let spec = spec();
    let found = |heading| -> Vec<(u64, String)> {
        let rows = rows_below(&spec, heading).into_iter();
        rows.map(|row| (row[0].parse().unwrap(), row[1].clone())).collect()
    };
    let kinds = FileKind::ALL.map(|kind| (kind.to_u8().into(), format!("{kind:?}")));
    assert_eq!(found("### Kinds of inode"), kinds);
    let kinds = EntryKind::ALL.map(|kind| (kind.to_u8().into(), format!("{kind:?}")));
    assert_eq!(found("### Kinds of entry"), kinds);
    let kinds = JournalKind::ALL.map(|kind| (kind.to_u8().into(), format!("{kind:?}")));
    assert_eq!(found("### Kinds of record"), kinds);
    let namespaces = XattrNamespace::ALL.map(|one| (one.to_u8().into(), format!("{one:?}")));
    assert_eq!(found("### Namespaces"), namespaces);
    let features = RoFeature::ALL.map(|one| (one.bit(), format!("{one:?}")));
    assert_eq!(found("### Features for writing"), features);
    let tags = AclTag::ALL.map(|tag| (tag.to_u16().into(), format!("{tag:?}")));
    assert_eq!(found("### Tags"), tags);
}
