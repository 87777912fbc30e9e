//! What goes on from a state that may be an old one after a salvage: who repairs has it alone. Its owner and rights of
//! then let users read, or run, what others had stored since.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

const WHO_REPAIRS: (u32, u32) = (70, 80);
/// Entries of one line that a log page has.
const PAGE_ENTRIES: u32 = 63;
/// Of the pools here.
const LANES: u64 = 1;
const USERS: &[u8] = b"user.a";
const CAPABILITY: &[u8] = b"security.capability";

fn set(fs: &Fs, ino: Ino, set: &SetAttr) {
    fs.setattr(&ctx(), Node::current(ino), set).unwrap();
}

fn set_mode(fs: &Fs, ino: Ino, mode: u32) {
    set(fs, ino, &SetAttr { mode: Some(mode), ..SetAttr::default() });
}

fn set_xattr(fs: &Fs, name: &[u8], value: &[u8]) {
    let set = SetXattr { name, value, ..SetXattr::default() };
    fs.setxattr(&ctx(), Node::current(FILE), &set).unwrap();
}

fn closed(fs: Fs) -> Pm {
    fs.close().unwrap();
    fs.into_pm()
}

/// Damages the newest entry of an inode, which has one line.
fn damage_last_entry(pm: &Pm, ino: Ino) {
    let (_, line) = newest(pm, ino);
    flip(pm, line.log_tail.add(20), 3);
}

/// Salvages a pool, which has to be sound then; returns what was given up.
#[track_caller]
fn salvage(pm: &Pm) -> String {
    let mut kept = std::collections::BTreeSet::new();
    let mut help = repair::Help {
        exec: &Serial,
        progress: &|_| {},
        keep: &mut |piece| {
            // As it was before the repair, and not what its first round has stored there.
            assert!(kept.insert(piece.at), "{} was kept twice", piece.at);
            Ok(())
        },
        now_ns: 9,
        owner: WHO_REPAIRS,
    };
    let report = repair::repair(pm, repair::Effort::Salvage, &mut help).unwrap();
    assert_eq!(report.left.findings, [], "{report:?}");
    let lost = report.changes.into_iter().filter(|change| change.is_loss);
    lost.map(|change| change.what).collect::<Vec<_>>().join("\n")
}

/// After a salvage the inode is of who repairs, with `mode`, and what it had been is told.
#[track_caller]
fn is_shut(pm: Pm, ino: Ino, mode: u32, had: &str) -> Fs {
    let said = salvage(&pm);
    assert!(said.contains(had), "{said}");
    let now = format!("mode {mode:#o}, owner 70:80 now");
    assert!(said.contains(&now), "{said}");
    let fs = try_open(pm).unwrap();
    let attr = fs.getattr(ino).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (mode, WHO_REPAIRS.0, WHO_REPAIRS.1));
    fs
}

#[test]
fn of_a_log_that_ends_before_its_newest_entry() {
    let fs = try_open(pool()).unwrap();
    set_mode(&fs, FILE, 0o4755);
    set(&fs, FILE, &SetAttr { mode: Some(0o600), uid: Some(5), ..SetAttr::default() });
    let pm = closed(fs);
    damage_last_entry(&pm, FILE);
    let fs = is_shut(pm, FILE, 0o700, "mode 0o4755, owner 1:2");
    let mut found = [0; 5000];
    assert_eq!(fs.read(&ctx(), FILE, 0, &mut found).unwrap(), 5000);
    assert_eq!(found, [1; 5000]);
}

#[test]
fn of_a_log_without_a_readable_entry() {
    for first_lost in [0, LINE] {
        let fs = try_open(pool()).unwrap();
        set_mode(&fs, FILE, 0o600);
        let pm = closed(fs);
        let (_, line) = newest(&pm, FILE);
        flip(&pm, line.log_head.add(first_lost + 20), 3);
        is_shut(pm, FILE, 0o700, "mode 0o755, owner 1:2");
    }
}

/// Behind a full page comes one of which nothing can be read, or its header alone.
#[test]
fn of_a_log_that_ends_with_a_page() {
    for first_lost in [0, LINE] {
        ends_with_a_page(first_lost);
    }
}

fn ends_with_a_page(first_lost: u64) {
    let fs = try_open(pool()).unwrap();
    let x = fs.lookup(&ctx(), Node::current(DIR), b"x").unwrap().ino;
    let mut pages = std::collections::BTreeSet::new();
    for index in 0..=PAGE_ENTRIES {
        set_mode(&fs, x, 0o700 + index % 8);
        pages.insert(newest(fs.pm(), x).1.log_tail.raw() / PAGE);
    }
    assert_eq!(pages.len(), 2);
    let pm = closed(fs);
    let (_, line) = newest(&pm, x);
    assert_eq!(line.log_tail.raw() % PAGE, LINE);
    flip(&pm, PmAddr::from_raw(line.log_tail.raw() - LINE + first_lost + 20), 3);
    is_shut(pm, x, 0o700, "mode 0o706, owner 1:2");
}

/// The name gives way to the one that the inode has elsewhere, which is all that it has.
#[test]
fn of_a_directory_to_which_a_name_comes_back() {
    let fs = try_open(pool()).unwrap();
    let mode = RenameMode::Replace;
    fs.rename(&ctx(), Node::current(DIR), b"x", Node::ROOT, b"moved", mode).unwrap();
    let pm = closed(fs);
    damage_last_entry(&pm, DIR);
    let fs = is_shut(pm, DIR, 0o700, "mode 0o755, owner 1:2");
    fs.lookup(&ctx(), Node::ROOT, b"moved").unwrap();
    assert!(matches!(fs.lookup(&ctx(), Node::current(DIR), b"x"), Err(Error::NotFound)));
}

#[test]
fn of_an_older_line() {
    let pm = with_older_line();
    is_shut(pm, FILE, 0o700, "mode 0o4755, owner 1:2");
}

#[test]
fn of_an_older_line_whose_log_ends_early() {
    let pm = with_older_line();
    damage_last_entry(&pm, FILE);
    is_shut(pm, FILE, 0o700, "mode 0o755, owner 1:2");
}

/// The file's newest line is damaged: the other one's newest entry makes it a program with a set-id bit.
fn with_older_line() -> Pm {
    let fs = try_open(pool()).unwrap();
    set_mode(&fs, FILE, 0o4755);
    set_mode(&fs, FILE, 0o600);
    let pm = closed(fs);
    let (at, _) = newest(&pm, FILE);
    flip(&pm, at.add(32), 0);
    pm
}

/// After a crash it can't be told from a line that was torn; but for the pages, which are another's.
#[test]
fn of_an_older_line_whose_pages_are_anothers() {
    let fs = try_open(pool()).unwrap();
    fs.write(&ctx(), FILE, 0, &[9; 4096]).unwrap();
    let fs = try_open(closed(fs)).unwrap();
    fs.write(&ctx(), FILE, 0, &[0; 4096]).unwrap();
    let (damaged, _) = newest(fs.pm(), FILE);
    let secret = fs.create(&ctx(), Node::ROOT, b"secret", &new(FileKind::File)).unwrap().ino;
    fs.write(&ctx(), secret, 0, &[4; 4096]).unwrap();
    fs.write(&ctx(), secret, 4096, &[4; 904]).unwrap();
    let pm = fs.into_pm();
    flip(&pm, damaged.add(32), 0);
    let fs = is_shut(pm, FILE, 0o700, "mode 0o755, owner 1:2");
    assert_eq!(fs.getattr(secret).unwrap().uid, 1);
}

/// A crash that tears a directory's line leaves no name in two directories, since one record has both: the name of the
/// directory that is torn goes, which is no guess, and nothing shows there what has come to lie in another.
#[test]
fn a_torn_directorys_name_gives_way_to_that_of_a_sound_one() {
    for moved in [&b"x"[..], b"sub"] {
        for to_is_older in [true, false] {
            with_a_moved_name(moved, to_is_older);
        }
    }
}

fn with_a_moved_name(moved: &[u8], to_is_older: bool) {
    let fs = try_open(empty_pool()).unwrap();
    let make = |parent, name: &[u8], kind| fs.create(&ctx(), parent, name, &new(kind)).unwrap().ino;
    let dirs = [b"a", b"b"].map(|name| make(Node::ROOT, name, FileKind::Directory));
    let [from, to] = if to_is_older { [dirs[1], dirs[0]] } else { dirs };
    make(Node::current(from), b"x", FileKind::File);
    make(Node::current(from), b"sub", FileKind::Directory);
    let (from_node, to_node) = (Node::current(from), Node::current(to));
    fs.rename(&ctx(), from_node, moved, to_node, moved, RenameMode::Replace).unwrap();
    // Its record is gone by then.
    for name in [b"1", b"2", b"3", b"4"] {
        make(Node::ROOT, name, FileKind::File);
    }
    let (damaged, _) = newest(fs.pm(), from);
    let pm = fs.into_pm();
    flip(&pm, damaged.add(32), 0);
    let report = repaired(&pm, repair::Effort::Safe).unwrap();
    assert_eq!(report.left.findings, [], "{report:?}");
    let fs = try_open(pm).unwrap();
    fs.lookup(&ctx(), to_node, moved).unwrap();
    assert!(matches!(fs.lookup(&ctx(), from_node, moved), Err(Error::NotFound)));
}

/// The same where its attributes are another's by now.
#[test]
fn of_an_older_line_whose_attributes_are_refused() {
    let fs = try_open(pool()).unwrap();
    set_xattr(&fs, USERS, b"value");
    set(&fs, FILE, &SetAttr { uid: Some(5), ..SetAttr::default() });
    let (damaged, line) = newest(fs.pm(), FILE);
    let bytes = fs.pm().load_line(line.log_tail).unwrap();
    let (_, entry) = Entry::decode(&bytes, seed().ino(FILE).generation(1)).unwrap();
    let Entry::Attributes(attributes) = entry else { panic!("{entry:?}") };
    let pm = fs.into_pm();
    flip(&pm, attributes.xattr_root.add(12), 0);
    flip(&pm, damaged.add(32), 0);
    is_shut(pm, FILE, 0o700, "mode 0o755, owner 1:2");
}

/// An identity line that is written anew has the owner and mode that the log says, as far as it can be read.
#[test]
fn of_a_lost_identity_with_a_log_that_ends_early() {
    let fs = try_open(pool()).unwrap();
    set_mode(&fs, FILE, 0o644);
    set_mode(&fs, FILE, 0o600);
    let pm = closed(fs);
    damage_last_entry(&pm, FILE);
    flip(&pm, place(&pm, FILE).add(IDENTITY_OFFSET + 20), 3);
    is_shut(pm, FILE, 0o600, "mode 0o644, owner 1:2");
}

/// The same beside an older line.
#[test]
fn of_a_lost_identity_with_an_older_line() {
    let fs = try_open(pool()).unwrap();
    set_mode(&fs, FILE, 0o644);
    set_mode(&fs, FILE, 0o600);
    let pm = closed(fs);
    let (at, _) = newest(&pm, FILE);
    flip(&pm, at.add(32), 0);
    flip(&pm, place(&pm, FILE).add(IDENTITY_OFFSET + 20), 3);
    is_shut(pm, FILE, 0o600, "mode 0o644, owner 1:2");
}

/// Capabilities and lists of then would count again as soon as anybody else may have the file.
#[test]
fn has_no_attributes_that_give_rights() {
    for gives in [false, true] {
        let fs = try_open(pool()).unwrap();
        set_xattr(&fs, USERS, b"value");
        if gives {
            set_xattr(&fs, CAPABILITY, &[1; 20]);
        }
        set_mode(&fs, FILE, 0o600);
        let pm = closed(fs);
        damage_last_entry(&pm, FILE);
        let fs = is_shut(pm, FILE, 0o700, "mode 0o755, owner 1:2");
        let left = fs.listxattr(Node::current(FILE)).unwrap();
        assert_eq!(left, if gives { &b""[..] } else { b"user.a\0" });
    }
}

/// A root whose log ends early lets nobody in but who repairs.
#[test]
fn of_the_root() {
    let pm = pool();
    damage_last_entry(&pm, Ino::ROOT);
    is_shut(pm, Ino::ROOT, 0o700, "mode 0o755, owner 0:0");
}

/// Of the root neither line could be read: it begins anew, and not with the owner and mode that it was made with.
#[test]
fn of_a_root_that_begins_anew() {
    let fs = try_open(pool()).unwrap();
    set_mode(&fs, Ino::ROOT, 0o750);
    let pm = closed(fs);
    damage_both_lines(&pm, Ino::ROOT);
    erase_records(&pm);
    let said = salvage(&pm);
    assert!(said.contains("the root begins anew"), "{said}");
    let fs = try_open(pm).unwrap();
    let root = fs.getattr(Ino::ROOT).unwrap();
    assert_eq!((root.mode, root.uid, root.gid), (0o700, WHO_REPAIRS.0, WHO_REPAIRS.1));
    fs.lookup(&ctx(), Node::ROOT, b"lost+found").unwrap();
}

/// With both lines damaged, what the journal still has of an inode stands: its creation, perhaps.
#[test]
fn of_a_record_alone() {
    let fs = try_open(pool()).unwrap();
    set_mode(&fs, FILE, 0o600);
    let pm = closed(fs);
    damage_both_lines(&pm, FILE);
    is_shut(pm, FILE, 0o700, "mode 0o755, owner 1:2");
}

fn damage_both_lines(pm: &Pm, ino: Ino) {
    for offset in COMMIT_OFFSETS {
        flip(pm, place(pm, ino).add(offset + 32), 0);
    }
}

/// The lanes have no record of anything any more.
fn erase_records(pm: &Pm) {
    for lane in 0..LANES {
        let page = word(pm, PmAddr::new(0, LANE_TABLE_PAGE * PAGE).add(lane * 8));
        put(pm, page, &[0; 4096]);
    }
}

/// A state that is known to be the newest stays whose it is.
#[test]
fn of_what_is_the_newest_state_nothing_is_changed() {
    let pm = pool();
    flip(&pm, place(&pm, FILE).add(IDENTITY_OFFSET + 20), 3);
    let said = salvage(&pm);
    assert!(said.contains("written anew") && !said.contains("may be old"), "{said}");
    let other = try_open(pm).unwrap().getattr(DIR).unwrap();
    assert_eq!((other.mode, other.uid), (0o755, 1));
}

/// A lost+found is of who repairs as well, who could not have come to what is there else.
#[test]
fn what_has_lost_its_name_lies_where_only_who_repairs_comes() {
    let pm = pool();
    damage_last_entry(&pm, DIR);
    salvage(&pm);
    let fs = try_open(pm).unwrap();
    let found = fs.lookup(&ctx(), Node::ROOT, b"lost+found").unwrap();
    assert_eq!((found.mode, found.uid, found.gid), (0o700, WHO_REPAIRS.0, WHO_REPAIRS.1));
    let lost = fs.lookup(&ctx(), Node::current(found.ino), b"#4").unwrap();
    assert_eq!((lost.mode, lost.uid), (0o755, 1));
}
