//! What docs/SPEC.md states and a check once passed over: it is found, and a repair mends it.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

/// A check of the wounded pool says `text`, and a repair leaves a pool that opens.
#[track_caller]
fn is_found_and_mended(pm: &Pm, text: &str, effort: repair::Effort) {
    let found = findings(pm);
    assert!(found.iter().any(|what| what.contains(text)), "{text}: {found:?}");
    let report = repaired(pm, effort).unwrap();
    assert_eq!(report.left.findings, [], "{report:?}");
    assert!(
        effort == repair::Effort::Salvage || report.changes.iter().all(|change| !change.is_loss)
    );
}

/// The root of the inode directory, its page of the second level, and the first chunk's table.
fn levels(pm: &Pm) -> [PmAddr; 3] {
    let root = PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE);
    [root, word(pm, root), word(pm, word(pm, root))]
}

fn names(pm: Pm) -> Vec<String> {
    let fs = try_open(pm).unwrap();
    let mut names = Vec::new();
    for dir in [Ino::ROOT, DIR] {
        fs.readdir(&ctx(), Node::current(dir), 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
    }
    let mut bytes = vec![0; 6000];
    assert_eq!(fs.read(&ctx(), FILE, 0, &mut bytes).unwrap(), 5000);
    fs.close().unwrap();
    names
}

/// A word of the upper levels is one store of eight bytes, like any that names 16 inodes; one that was
/// damaged lost 8192 of them, or all, and was beyond a repair.
#[test]
fn of_words_that_name_tables() {
    for (level, bad) in [(0, 0), (1, 0), (0, 0xabc), (1, u64::MAX), (1, 1 << 40)] {
        let pm = pool();
        let at = levels(&pm)[level];
        put(&pm, at, &u64::to_le_bytes(bad));
        if bad == 0 {
            // Nothing is left to check then, but what a further word shows.
            put(&pm, at.add(8), &u64::to_le_bytes(1 << 40));
        }
        let report = repaired(&pm, repair::Effort::Safe);
        match report {
            Ok(report) => {
                assert_eq!(report.left.findings, [], "{level} {bad:#x}: {report:?}");
                assert_eq!(names(pm), ["d", "f", "x"], "{level} {bad:#x}");
            }
            Err(error) => panic!("{level} {bad:#x}: {error}"),
        }
    }
}

/// A word beyond the end of a level, which names nothing, made all before it seem lost.
#[test]
fn of_words_behind_the_end() {
    for level in [0, 1] {
        let pm = pool();
        put(&pm, levels(&pm)[level].add(5 * 8), &u64::to_le_bytes(1 << 40));
        is_found_and_mended(&pm, "inode directory", repair::Effort::Safe);
        assert_eq!(names(pm), ["d", "f", "x"], "{level}");
    }
}

/// Each level that names one page again and again multiplies what a look at it takes: a check and a repair
/// looked at two billion inodes of a pool of 16 MB.
#[test]
fn of_words_that_all_name_one_page() {
    let (told, all_are_told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pm = pool();
        for level in levels(&pm) {
            let named = word(&pm, level);
            (0..WORDS_PER_PAGE)
                .for_each(|at| put(&pm, level.add(at * 8), &named.raw().to_le_bytes()));
        }
        is_told(&pm);
        let pm = pool();
        let (second, table) = (PmAddr::new(0, 2000 * PAGE), PmAddr::new(0, 2001 * PAGE));
        for page in [second, table] {
            put(&pm, page, &[0; 4096]);
        }
        let last = (WORDS_PER_PAGE - 1) * 8;
        put(&pm, levels(&pm)[0].add(last), &second.raw().to_le_bytes());
        put(&pm, second.add(last), &table.raw().to_le_bytes());
        is_told(&pm);
        told.send(()).unwrap();
    });
    all_are_told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
}

/// A check finds something, and a repair comes to an end.
fn is_told(pm: &Pm) {
    assert_ne!(findings(pm), [""; 0]);
    drop(repaired(pm, repair::Effort::Safe));
}

#[test]
fn of_tables_that_the_superblock_names() {
    let pm = pool();
    for at in [0, 16 * MB - PAGE] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        pm.load(PmAddr::new(0, at), &mut bytes).unwrap();
        let mut superblock = Superblock::decode(&bytes).unwrap();
        superblock.roots.snapshots = PmAddr::new(0, 100 * PAGE);
        put(&pm, PmAddr::new(0, at), &superblock.encode());
    }
    is_found_and_mended(&pm, "tables that there are not", repair::Effort::Safe);
    assert_eq!(names(pm), ["d", "f", "x"]);
}

/// Its checksum would be asked for in the session that it names, over pages that are others' by then.
#[test]
fn of_a_line_from_a_session_to_come() {
    let pm = pool();
    change_line(&pm, FILE, |line| line.session = 70);
    is_found_and_mended(&pm, "of session 70, the pool's is 3", repair::Effort::Salvage);
    assert_eq!(names(pm), ["d", "f", "x"]);
}
