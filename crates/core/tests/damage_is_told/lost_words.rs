//! A zero in the place of a word of the inode table, as a bad block leaves it that was cleared: the pool is not opened for
//! writing, since who has which pages is known no more, and a repair finds the inodes again.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

/// So many that the last of them are of the third page of inodes.
const FILES: u64 = 40;

fn name(file: u64) -> Vec<u8> {
    format!("file {file}").into_bytes()
}

fn contents(file: u64) -> [u8; 4096] {
    [u8::try_from(file).unwrap() + 1; 4096]
}

/// A pool of which the word of the second page of inodes is zero.
fn without_a_word(is_clean: bool) -> Pm {
    let fs = try_open(empty_pool()).unwrap();
    for file in 0..FILES {
        let made = fs.create(&ctx(), Node::ROOT, &name(file), &new(FileKind::File)).unwrap();
        fs.write(&ctx(), made.ino, 0, &contents(file)).unwrap();
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    if !is_clean {
        mark_unclean(&pm);
    }
    let table = word(&pm, word(&pm, PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE)));
    put(&pm, table.add(8), &[0; 8]);
    pm
}

#[track_caller]
fn all_is_there(pm: Pm) {
    let fs = try_open(pm).unwrap();
    for file in 0..FILES {
        let found = fs.lookup(&ctx(), Node::ROOT, &name(file)).unwrap();
        let mut bytes = [0; 4096];
        assert_eq!(fs.read(&ctx(), found.ino, 0, &mut bytes).unwrap(), bytes.len());
        assert_eq!(bytes, contents(file));
    }
}

/// The pages of 16 files were taken for free and written over, and their names led to other files.
#[test]
fn who_has_which_pages_is_not_guessed() {
    for is_clean in [true, false] {
        let pm = without_a_word(is_clean);
        let copy = Pm::anonymous(&[pm.slot_len(0)], &novale_pm::PmOptions::default()).unwrap();
        put(&copy, PmAddr::new(0, 0), &bytes(&pm));
        let refused = try_open(copy).unwrap_err();
        assert!(matches!(refused, Error::Unrecoverable { .. }), "{is_clean}: {refused}");
        let report = repaired(&pm, repair::Effort::Safe).unwrap();
        assert_eq!(report.left.findings, [], "{report:?}");
        all_is_there(pm);
    }
}
