//! Zeros in the place of an inode's lines, as a bad block leaves them that was cleared: damage like any other. They
//! passed for lines that were never written, so that an older state stood, or the inode went with its name, without
//! a word.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

/// A number that nobody had.
const UNUSED: Ino = Ino::new(40);

/// A pool whose file was made 0600 last, closed clean or cut off; nothing else changed since it was closed before.
fn with_newer_line(is_clean: bool) -> Pm {
    let fs = try_open(pool()).unwrap();
    for mode in [0o640, 0o600] {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        fs.setattr(&ctx(), Node::current(FILE), &set).unwrap();
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    if !is_clean {
        mark_unclean(&pm);
    }
    pm
}

/// Where the lines of an inode lie: identity, the newer commit line, the older one.
fn lines(pm: &Pm, ino: Ino) -> [PmAddr; 3] {
    let at = place(pm, ino);
    let (newer, _) = newest(pm, ino);
    let [first, second] = COMMIT_OFFSETS.map(|offset| at.add(offset));
    [at.add(IDENTITY_OFFSET), newer, if newer == first { second } else { first }]
}

fn zero_line(pm: &Pm, at: PmAddr) {
    put(pm, at, &[0; 64]);
}

fn zero_inode(pm: &Pm, ino: Ino) {
    put(pm, place(pm, ino), &[0; 256]);
}

fn zeroed_inode(pm: Pm, ino: Ino) -> Pm {
    zero_inode(&pm, ino);
    pm
}

/// The lane has no record of anything any more.
fn erase_records(pm: &Pm) {
    let page = word(pm, PmAddr::new(0, LANE_TABLE_PAGE * PAGE));
    put(pm, page, &[0; 4096]);
}

#[track_caller]
fn is_told(pm: &Pm, text: &str) {
    let found = findings(pm);
    assert!(found.iter().any(|found| found.contains(text)), "{text}: {found:?}");
}

/// What is damaged is told, by a check and to who uses it, and a repair that is to lose nothing leaves it all.
#[track_caller]
fn is_told_and_stays(pm: Pm, text: &str) -> Pm {
    is_told(&pm, text);
    let fs = open_read_only(pm).unwrap();
    let said = fs.getattr(FILE).unwrap_err().to_string();
    assert!(said.contains("inode 3 "), "{said}");
    let fs = try_open(fs.into_pm()).unwrap();
    assert!(matches!(fs.getattr(FILE), Err(Error::Damaged { .. })));
    fs.close().unwrap();
    let pm = fs.into_pm();
    let report = repaired(&pm, repair::Effort::Safe).unwrap();
    assert_eq!(report.changes.iter().filter(|change| change.is_loss).count(), 0, "{report:?}");
    is_told(&pm, text);
    let fs = open_read_only(pm).unwrap();
    let mut names = Vec::new();
    fs.readdir(&ctx(), Node::ROOT, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .unwrap();
    assert!(names.contains(&b"f".to_vec()), "{report:?}");
    fs.into_pm()
}

#[track_caller]
fn salvaged(pm: &Pm, text: &str) {
    let report = repaired(pm, repair::Effort::Salvage).unwrap();
    assert_eq!(report.left.findings, [], "{report:?}");
    let lost = report.changes.iter().filter(|change| change.is_loss);
    assert!(lost.clone().any(|change| change.what.contains(text)), "{text}: {report:?}");
}

/// It goes on from the older state, as one that may be old, where a line was lost.
#[test]
fn of_each_line_in_a_pool_closed_clean() {
    for (index, what, kept) in [
        (0, "inode 3 identity line", 0o600),
        (1, "inode 3 commit lines", 0o600),
        (2, "inode 3 commit lines", 0o600),
    ] {
        let pm = with_newer_line(true);
        zero_line(&pm, lines(&pm, FILE)[index]);
        let pm = is_told_and_stays(pm, what);
        salvaged(&pm, "inode 3");
        let attr = try_open(pm).unwrap().getattr(FILE).unwrap();
        assert_eq!((attr.mode, attr.size), (kept, 5000), "line {index}");
    }
}

/// Nobody is told of it but by a record, if there is one.
#[test]
fn of_a_whole_inode_in_a_pool_closed_clean() {
    for has_record in [true, false] {
        let pm = with_newer_line(true);
        zero_inode(&pm, FILE);
        if !has_record {
            erase_records(&pm);
        }
        let pm = is_told_and_stays(pm, "inode 3 ");
        salvaged(&pm, "inode 3");
        let fs = try_open(pm).unwrap();
        if !has_record {
            assert!(matches!(fs.lookup(&ctx(), Node::ROOT, b"f"), Err(Error::NotFound)));
        }
        assert_eq!(fs.lookup(&ctx(), Node::current(DIR), b"x").unwrap().kind, FileKind::File);
    }
}

#[test]
fn of_a_page_of_inodes() {
    let pm = pool();
    erase_records(&pm);
    put(&pm, place(&pm, Ino::ROOT).page(), &[0; 4096]);
    for ino in 1..16 {
        is_told(&pm, &format!("inode {ino} commit lines"));
    }
    salvaged(&pm, "the root begins anew");
}

/// After a crash a line beside a valid one is one that the crash tore: the other stands, and a new one takes its place.
#[test]
fn of_a_commit_line_after_a_crash() {
    for (index, mode) in [(1, 0o640), (2, 0o600)] {
        let pm = with_newer_line(false);
        erase_records(&pm);
        zero_line(&pm, lines(&pm, FILE)[index]);
        assert_eq!(findings(&pm), Vec::<String>::new(), "line {index}");
        let fs = try_open(pm).unwrap();
        assert_eq!(fs.getattr(FILE).unwrap().mode, mode, "line {index}");
        fs.close().unwrap();
        assert_eq!(findings(fs.pm()), Vec::<String>::new(), "line {index}");
        let both = COMMIT_OFFSETS.map(|offset| place(fs.pm(), FILE).add(offset));
        for at in both {
            let line = fs.pm().load_line(at).unwrap();
            assert!(CommitLine::decode(&line, seed().ino(FILE)).is_ok(), "line {index} at {at}");
        }
    }
}

type Damages<'a> = &'a dyn Fn(&Pm);

/// No crash leaves both lines so, where no record has one, nor the identity of an inode in use.
#[test]
fn of_what_no_crash_leaves() {
    let identity = |pm: &Pm| zero_line(pm, lines(pm, FILE)[0]);
    let whole = |pm: &Pm| zero_inode(pm, FILE);
    let both = |pm: &Pm| {
        let [_, newer, older] = lines(pm, FILE);
        for at in [newer, older] {
            zero_line(pm, at);
        }
    };
    let cases: [(Damages<'_>, &str); 3] = [
        (&identity, "inode 3 identity line"),
        (&whole, "inode 3 commit lines"),
        (&both, "inode 3 commit lines"),
    ];
    for (damage, what) in cases {
        let pm = with_newer_line(false);
        erase_records(&pm);
        damage(&pm);
        is_told(&pm, what);
        assert!(matches!(try_open(pm), Err(Error::Unrecoverable { .. })), "{what}");
    }
}

/// A record has what both lines had.
#[test]
fn of_both_lines_after_a_crash_with_a_record() {
    let pm = pool();
    mark_unclean(&pm);
    let [_, newer, older] = lines(&pm, Ino::ROOT);
    for at in [newer, older] {
        zero_line(&pm, at);
    }
    let fs = try_open(pm).unwrap();
    assert_eq!(fs.lookup(&ctx(), Node::ROOT, b"d").unwrap().ino, DIR);
    fs.close().unwrap();
    assert_eq!(findings(fs.pm()), Vec::<String>::new());
}

/// Numbers that nobody had are told as well: whose they were is not to be seen.
#[test]
fn of_a_number_that_nobody_had() {
    let pm = zeroed_inode(pool(), UNUSED);
    is_told(&pm, "inode 40 commit lines");
    salvaged(&pm, "inode 40 is given up");
    let fs = try_open(pm).unwrap();
    for number in 0..60 {
        let name = format!("file {number}");
        fs.create(&ctx(), Node::ROOT, name.as_bytes(), &new(FileKind::File)).unwrap();
    }
}

/// A creation that a crash cut off has left a torn identity line, or a whole one, beside lines that say that they were
/// never written: it has not happened.
#[test]
fn are_not_what_a_creation_has_left_that_was_cut_off() {
    for is_clean in [true, false] {
        for bits in [0, 1] {
            let pm = pool();
            let identity = pm.load_line(place(&pm, FILE).add(IDENTITY_OFFSET)).unwrap();
            let mut identity = IdentityLine::decode(&identity, seed().ino(FILE)).unwrap();
            identity.ino = UNUSED;
            let at = place(&pm, UNUSED).add(IDENTITY_OFFSET);
            put(&pm, at, &identity.encode(seed().ino(UNUSED)));
            (0..bits).for_each(|bit| flip(&pm, at.add(20), bit));
            if !is_clean {
                mark_unclean(&pm);
            }
            assert_eq!(findings(&pm), Vec::<String>::new());
            let fs = try_open(pm).unwrap();
            assert!(matches!(fs.getattr(UNUSED), Err(Error::Stale)));
            let made = (0..60).map(|number| {
                let name = format!("file {number}");
                fs.create(&ctx(), Node::ROOT, name.as_bytes(), &new(FileKind::File)).unwrap().ino
            });
            assert!(made.collect::<Vec<_>>().contains(&UNUSED));
        }
    }
}

/// Every number of every page that is made says that it was never written: a pool grows, and is whole after a crash.
#[test]
fn are_nowhere_in_pages_that_are_made() {
    let fs = try_open(empty_pool()).unwrap();
    for number in 0..200 {
        let name = format!("file {number}");
        fs.create(&ctx(), Node::ROOT, name.as_bytes(), &new(FileKind::File)).unwrap();
    }
    assert_eq!(findings(fs.pm()), Vec::<String>::new());
    let fs = try_open(fs.into_pm()).unwrap();
    fs.close().unwrap();
    assert_eq!(findings(fs.pm()), Vec::<String>::new());
}

/// A pool as earlier builds made them: what was never written is zeros, and the pool does not say otherwise.
fn earlier(pm: Pm) -> Pm {
    for ino in (1..64).map(Ino::new) {
        let lines = [IDENTITY_OFFSET, COMMIT_OFFSETS[0], COMMIT_OFFSETS[1]];
        for at in lines.map(|offset| place(&pm, ino).add(offset)) {
            let (line, seed) = (pm.load_line(at).unwrap(), seed().ino(ino));
            if [CommitLine::never_written(seed), IdentityLine::never_written(seed)].contains(&line)
            {
                zero_line(&pm, at);
            }
        }
    }
    for at in [0, 16 * MB - PAGE].map(|at| PmAddr::new(0, at)) {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        pm.load(at, &mut bytes).unwrap();
        let mut superblock = Superblock::decode(&bytes).unwrap();
        superblock.features_ro_compat = 0;
        put(&pm, at, &superblock.encode());
    }
    pm
}

/// They are lines that were never written there, until somebody opens it for writing.
#[test]
fn of_a_pool_that_an_earlier_build_made() {
    for is_clean in [true, false] {
        let pm = earlier(pool());
        if !is_clean {
            mark_unclean(&pm);
        }
        assert_eq!(findings(&pm), Vec::<String>::new());
        let image = bytes(&pm);
        let fs = open_read_only(pm).unwrap();
        assert_eq!(fs.getattr(FILE).unwrap().size, 5000);
        assert!(matches!(fs.getattr(UNUSED), Err(Error::Stale)));
        let pm = fs.into_pm();
        assert!(bytes(&pm) == image);
        let fs = try_open(pm).unwrap();
        assert_eq!(fs.getattr(FILE).unwrap().size, 5000);
        fs.close().unwrap();
        let pm = fs.into_pm();
        assert_eq!(findings(&pm), Vec::<String>::new());
        assert_eq!(inspect(&pm).unwrap().features[1], RoFeature::Unwritten.bit());
        is_told(&zeroed_inode(pm, UNUSED), "inode 40 commit lines");
    }
}
