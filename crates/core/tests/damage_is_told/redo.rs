//! What a log has for its file, and recovery is to store there: a repair keeps it, and damage of it is told.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::attributes::{root, with_attributes};
use crate::pools::*;

/// A write of 64 bytes by the log, acknowledged, of which a crash has lost the store in place; returns where that is.
fn write_by_log(pm: Pm) -> (Pm, PmAddr) {
    let fs = try_open(pm).unwrap();
    let update = Some(Some(UpdatePolicy::FineLog));
    fs.setattr(&ctx(), Node::current(FILE), &SetAttr { update, ..SetAttr::default() }).unwrap();
    fs.write(&ctx(), FILE, 100, &[2; 64]).unwrap();
    let pm = fs.into_pm();
    let written = [&[1; 8][..], &[2; 64], &[1; 8]].concat();
    let at = bytes(&pm).windows(80).position(|bytes| bytes == written).unwrap();
    let at = PmAddr::new(0, at as u64 + 8);
    put(&pm, at, &[1; 64]);
    (pm, at)
}

/// A repair says `text`, and the write is there; returns the pool.
#[track_caller]
fn outlives_a_repair((pm, _): (Pm, PmAddr), effort: repair::Effort, text: &str) -> Fs {
    let report = repaired(&pm, effort).unwrap();
    assert!(report.changes.iter().any(|change| change.what.contains(text)), "{report:?}");
    assert_eq!(report.left.findings, [], "{report:?}");
    let (fs, mut found) = (try_open(pm).unwrap(), [0; 64]);
    assert_eq!(fs.read(&ctx(), FILE, 100, &mut found).unwrap(), 64);
    assert_eq!(found, [2; 64]);
    fs
}

/// The line by which a salvage takes the attributes from a file superseded the entries that recovery was to carry
/// out: a write that was acknowledged was lost.
#[test]
fn outlives_a_salvage_of_attributes() {
    let pm = with_attributes();
    let page = root(&pm);
    let damaged = write_by_log(pm);
    put(&damaged.0, page.add(12), &[1]);
    let text = "inode 3 has no extended attributes any more";
    let fs = outlives_a_repair(damaged, repair::Effort::Salvage, text);
    assert!(fs.listxattr(Node::current(FILE)).unwrap().is_empty());
}

/// So did the copy that a file gets of a page which another has, too: of what lay there when the repair began.
#[test]
fn outlives_a_copy_of_its_page() {
    const OTHER: Ino = Ino::new(4);
    let fs = try_open(pool()).unwrap();
    fs.write(&ctx(), OTHER, 0, &[9]).unwrap();
    let damaged = write_by_log(fs.into_pm());
    let addr = PmAddr::from_raw(damaged.1.raw() / PAGE * PAGE);
    let file_page = FilePage::new(0);
    let entry = Entry::Write { file_page, addr, count: 1, snapshot_epoch: 0 };
    change_last_entry(&damaged.0, OTHER, &entry);
    let text = "inode 3 had 1 pages that others have too";
    let fs = outlives_a_repair(damaged, repair::Effort::Safe, text);
    let mut found = [0; 2];
    assert_eq!(fs.read(&ctx(), OTHER, 0, &mut found).unwrap(), 1);
    assert_eq!(found, [1, 0]);
}

/// Such an entry that says where the file has nothing was refused by each mount, and passed over by a check.
#[test]
fn is_told_where_the_file_has_no_such_place() {
    let (pm, _) = write_by_log(pool());
    let (_, line) = newest(&pm, FILE);
    let entry = Entry::Redo(Redo::first_of(5000 - 63, &[2; 64]).0);
    let mut bytes = [0; ENTRY_BYTES_MAX];
    let len = entry.encode(line.op_seq, seed().ino(FILE).generation(1), &mut bytes);
    put(&pm, PmAddr::from_raw(line.log_tail.raw() + LINE - len as u64), &bytes[..len]);
    change_line(&pm, FILE, |_| ());
    let told = |what: &str| what.contains("inode 3 redo entry") && what.contains("has none");
    let found = findings(&pm);
    assert!(found.len() == 1 && told(&found[0]), "{found:?}");
    let report = repaired(&pm, repair::Effort::Safe).unwrap();
    assert!(report.needs_salvage.iter().any(|what| told(what)), "{report:?}");
    let report = repaired(&pm, repair::Effort::Salvage).unwrap();
    assert_eq!(report.left.findings, [], "{report:?}");
    let (fs, mut found) = (try_open(pm).unwrap(), [0; 5000]);
    assert_eq!(fs.read(&ctx(), FILE, 0, &mut found).unwrap(), 5000);
    assert_eq!(found, [1; 5000]);
}
