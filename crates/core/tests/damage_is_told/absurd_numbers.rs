//! What contradicts the format under a right checksum is an error that names structure and place:
//! no panic, no wrapped number, nothing of another file.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

/// Uses three inodes in every way; only a panic counts.
fn use_all(fs: &Fs) {
    let c = ctx();
    for ino in [Ino::ROOT, DIR, FILE] {
        let mut bytes = [0; 9000];
        let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        drop(fs.getattr(ino));
        drop(fs.readdir(&c, Node::current(ino), 0, &mut |_| true));
        drop(fs.read(&c, ino, 0, &mut bytes));
        drop(fs.read(&c, ino, u64::MAX - 10, &mut bytes));
        drop(fs.seek(ino, 0, Seek::Hole));
        drop(fs.seek(ino, 0, Seek::Data));
        drop(fs.write(&c, ino, 4000, &[1; 300]));
        drop(fs.append(&c, ino, &[1; 300]));
        drop(fs.fallocate(&c, ino, Fallocate::Extend, 0, 9000));
        drop(fs.setattr(&c, Node::current(ino), &SetAttr { mode: Some(0o600), ..size(100) }));
        drop(fs.setattr(&c, Node::current(ino), &size(100_000)));
        drop(fs.create(&c, Node::current(ino), b"new", &new(FileKind::File)));
        drop(fs.unlink(&c, Node::current(ino), b"new"));
    }
    drop(fs.rename(&c, Node::ROOT, b"f", Node::current(DIR), b"g", RenameMode::Replace));
    drop(fs.rename(&c, Node::ROOT, b"d", Node::current(DIR), b"g", RenameMode::Replace));
    drop(fs.unlink(&c, Node::current(DIR), b"x"));
    drop(fs.unlink(&c, Node::ROOT, b"f"));
    drop(fs.rmdir(&c, Node::ROOT, b"d"));
}

/// Checks, opens and uses the pool, and says what opening it said; `check` must find something.
fn told(pm: Pm) -> String {
    let found = check(&pm, &Serial, &|_| {});
    assert!(found.is_err() || !found.unwrap().findings.is_empty(), "check finds nothing");
    match try_open(pm) {
        Ok(fs) => {
            let said = fs.getattr(FILE).map_or_else(|error| error.to_string(), |_| "fine".into());
            use_all(&fs);
            drop(fs.close());
            said
        }
        Err(error) => error.to_string(),
    }
}

/// Every number of a commit line was taken as it came: an `op_seq` of 2^64 - 1 overflowed with the
/// next operation, and saturating only hid it; a size of 0 made a full directory removable.
#[test]
fn of_a_commit_lines_numbers() {
    type Change = fn(&mut CommitLine);
    let cases: [(&str, Change); 6] = [
        ("op_seq: expected below 2^63", |line| line.op_seq = u64::MAX),
        ("op_seq: expected below 2^63", |line| line.op_seq = 1 << 63),
        ("size: expected below 2^63", |line| line.size = u64::MAX),
        ("it ends before its tail", |line| line.log_tail = PmAddr::new(255, (1 << 48) - 64)),
        ("not in the pool", |line| line.log_head = PmAddr::new(255, (1 << 48) - PAGE)),
        ("entries end at byte", |line| line.log_tail = line.log_tail.add(LINE)),
    ];
    for (expected, change) in cases {
        for clean in [true, false] {
            let pm = pool();
            change_line(&pm, FILE, change);
            if !clean {
                mark_unclean(&pm);
            }
            let said = told(pm);
            let named = said.contains("inode 3") && said.contains(expected);
            assert!(named, "{expected}, clean {clean}: {said}");
        }
    }
    let pm = pool();
    change_line(&pm, Ino::ROOT, |line| line.size = 0);
    let said = told(pm);
    assert!(said.contains("2 names, its commit line counts 0"), "{said}");
}

/// The greatest cookie overflowed when the next one was counted, and others were no key of the
/// index: "damaged arena". A write in a directory replaced its names, a name in a file its pages. Words
/// were refused when the file was used, and not by a check.
#[test]
fn of_a_log_entry() {
    let add = |cookie| Entry::DentryAdd {
        ino: FILE,
        cookie,
        generation: 1,
        kind: FileKind::File,
        name: Name::new(b"f").unwrap(),
    };
    let delete = |cookie| Entry::DentryDelete { ino: FILE, cookie, generation: 1 };
    let write =
        |addr, count| Entry::Write { file_page: FilePage::new(0), addr, count, snapshot_epoch: 0 };
    let pair = |home, partner| {
        let (file_page, home) = (FilePage::new(0), PmAddr::new(0, home));
        let partner = Partner::own(partner);
        Entry::Pair(Pair { file_page, home, partner, word: 1, changed: 1 })
    };
    let root = [
        ("cookie: expected 16 to 2^48 - 1", add(u64::MAX)),
        ("cookie: expected 16 to 2^48 - 1", add(1 << 62)),
        ("cookie: expected 16 to 2^48 - 1", add(0)),
        ("cookie: expected 16 to 2^48 - 1", delete(u64::MAX)),
        ("Write in a Directory", write(PmAddr::new(0, 4096), 1)),
        ("Write in a Directory", write(PmAddr::NULL, u32::MAX - 1)),
        ("Pair in a Directory", pair(0x8000, PmAddr::new(0, 0x9000))),
    ];
    let file = [
        ("copies at 0:0x8000 and 63:0x1000", pair(0x8000, PmAddr::new(63, 4096))),
        ("copies at 0:0x8000000000 and", pair(0x80_0000_0000, PmAddr::new(0, 4096))),
        ("DentryAdd in a File", add(17)),
        ("DentryDelete in a File", delete(17)),
        ("5000 pages at 0:0x1000", write(PmAddr::new(0, 4096), 5000)),
    ];
    let cases = root.iter().map(|case| (Ino::ROOT, case));
    for (ino, (expected, entry)) in cases.chain(file.iter().map(|case| (FILE, case))) {
        for clean in [true, false] {
            let pm = pool();
            change_last_entry(&pm, ino, entry);
            if !clean {
                mark_unclean(&pm);
            }
            let said = told(pm);
            let named = said.contains(&format!("inode {} ", ino.get())) && said.contains(expected);
            assert!(named, "{entry:?}, clean {clean}: {said}");
        }
    }
}

/// Each of many entries could name all of the pool's pages, which opening the pool read for each of them: an image of
/// 64 MB took hours.
#[test]
fn of_pages_that_a_checksum_covers() {
    const MAX: u32 = 16;
    let size_of = |count: u32| {
        let (pm, first) = (pool(), PmAddr::new(0, 8 * MB));
        let (file_page, addr) = (FilePage::new(0), first);
        change_last_entry(&pm, FILE, &Entry::Write { file_page, addr, count, snapshot_epoch: 0 });
        let (at, mut line) = newest(&pm, FILE);
        let mut crc = DataCrc::new(seed().ino(FILE).generation(1), line.op_seq);
        let mut page = [0; 4096];
        if line.log_tail.byte() % PAGE == LINE {
            crc.link(LogLink::page(line.log_head));
        }
        crc.bytes(&pm.load_line(line.log_tail).unwrap());
        for index in 0..u64::from(count) {
            pm.load(first.add(index * PAGE), &mut page).unwrap();
            let mut of_page = Crc32c::new();
            of_page.update(&page);
            crc.crc(of_page.finish());
        }
        (line.flags, line.data_crc) = (CommitLine::HAS_DATA_CRC, crc.finish());
        line.size = u64::from(count) * PAGE;
        put(&pm, at, &line.encode(seed().ino(FILE)));
        mark_unclean(&pm);
        try_open(pm).unwrap().getattr(FILE).map(|attr| attr.size / PAGE)
    };
    assert_eq!(size_of(MAX).unwrap(), u64::from(MAX));
    // The line before stands.
    assert_eq!(size_of(MAX + 1).unwrap(), 0);
}

/// Makes an inode's newest line older by one, and its only one.
fn set_back(pm: &Pm, ino: Ino) {
    let (newest, _) = newest(pm, ino);
    let never = CommitLine::never_written(seed().ino(ino));
    let other = COMMIT_OFFSETS.map(|offset| place(pm, ino).add(offset)).into_iter();
    other.filter(|at| *at != newest).for_each(|at| put(pm, at, &never));
    change_line(pm, ino, |line| line.op_seq -= 1);
}

/// An entry newer than the line that names the log's tail was taken by all but `check`.
#[test]
fn of_an_entry_newer_than_its_inode() {
    let pm = pool();
    set_back(&pm, FILE);
    let said = told(pm);
    assert!(said.contains("inode 3 log entry at ") && said.contains("the inode's is"), "{said}");
}

/// It would be walked for ever.
#[test]
fn of_a_log_page_that_is_behind_itself() {
    let fs = try_open(pool()).unwrap();
    for turn in 0..100_u64 {
        fs.write(&ctx(), FILE, turn % 9 * PAGE, &[3; 100]).unwrap();
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    let (_, line) = newest(&pm, FILE);
    let of_page = seed().ino(FILE).generation(1).addr(line.log_head);
    let header = pm.load_line(line.log_head).unwrap();
    let mut header = LogPageHeader::decode(&header, of_page).unwrap();
    assert!(!header.next.next().is_null());
    header.next = header.next.with_next(line.log_head);
    put(&pm, line.log_head, &header.encode(of_page));
    let said = told(pm);
    assert!(said.contains("inode 3 log page at ") && said.contains("page number"), "{said}");
}

/// A log's pages are numbered for ever; the number had 32 bits, which a busy file uses up in days.
#[test]
fn a_log_outlives_32_bits_of_page_numbers() {
    let pm = pool();
    let (_, line) = newest(&pm, FILE);
    let of_page = seed().ino(FILE).generation(1).addr(line.log_head);
    let header = pm.load_line(line.log_head).unwrap();
    let mut header = LogPageHeader::decode(&header, of_page).unwrap();
    header.page_seq = u64::from(u32::MAX);
    put(&pm, line.log_head, &header.encode(of_page));
    let fs = try_open(pm).unwrap();
    for turn in 0..300_u64 {
        fs.write(&ctx(), FILE, turn % 9 * PAGE, &[3; 100]).unwrap();
    }
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert_eq!(check(&pm, &Serial, &|_| {}).unwrap().findings, []);
    let fs = try_open(pm).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(fs.read(&ctx(), FILE, 8 * PAGE, &mut bytes).unwrap(), 100);
    assert_eq!(bytes, [3; 100]);
}

/// The counters of the pool's own lines wrapped with the next mount.
#[test]
fn of_the_pools_own_counters() {
    type Change = fn(&mut PoolState);
    let cases: [(&str, Change); 3] = [
        ("seq: expected below 2^63", |state| state.seq = u64::MAX),
        ("session: expected below 2^31", |state| state.session = u32::MAX),
        ("as many as its format counts", |state| state.session = SESSION_LIMIT - 1),
    ];
    for (expected, change) in cases {
        let pm = pool();
        for offset in POOL_STATE_OFFSETS {
            let at = PmAddr::new(0, offset);
            let mut state = PoolState::decode(&pm.load_line(at).unwrap(), seed()).unwrap();
            change(&mut state);
            put(&pm, at, &state.encode(seed()));
        }
        for offset in SLOT_STATE_OFFSETS {
            let (at, of_slot) = (PmAddr::new(0, offset), seed().addr(PmAddr::new(0, 0)));
            let mut state = SlotState::decode(&pm.load_line(at).unwrap(), of_slot).unwrap();
            state.session = u64::from(SESSION_LIMIT - 1);
            put(&pm, at, &state.encode(of_slot));
        }
        let said = try_open(pm).unwrap_err().to_string();
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// With the first superblock damaged, its replica was looked for where the slot's header said:
/// beyond what an address can name.
#[test]
fn of_a_slots_length() {
    for pages in [0, 1, 9, (1 << 36) + 1, 1 << 40, u64::MAX] {
        let pm = pool();
        for page in [0, 16 * MB - PAGE] {
            let at = PmAddr::new(0, page + SLOT_HEADER_OFFSET);
            let mut bytes = [0; SLOT_HEADER_BYTES];
            pm.load(at, &mut bytes).unwrap();
            let mut header = SlotHeader::decode(&bytes).unwrap();
            header.pages = pages;
            put(&pm, at, &header.encode());
        }
        put(&pm, PmAddr::new(0, 0), &[1; 64]);
        let said = try_open(pm).unwrap_err().to_string();
        assert!(said.contains("pages: expected 10 to 2^36"), "{pages}: {said}");
    }
}

/// Changes the length in the first copy of the slot's header; returns the header.
fn set_pages(pm: &Pm, pages: u64) -> SlotHeader {
    let at = PmAddr::new(0, SLOT_HEADER_OFFSET);
    let mut bytes = [0; SLOT_HEADER_BYTES];
    pm.load(at, &mut bytes).unwrap();
    let header = SlotHeader { pages, ..SlotHeader::decode(&bytes).unwrap() };
    put(pm, at, &header.encode());
    header
}

/// A header that validates with another length leads the replicas into a page of a file: a mount of
/// a pool closed clean believed the saved allocator, looked at no file, and wrote them there.
#[test]
fn of_a_slots_length_that_leads_into_a_file() {
    // Of 512 pages at most, so that the saved bitmap has as many words whatever the length.
    let pm = fill(empty_pool_of(2 * MB));
    let addr = PmAddr::new(0, 400 * PAGE);
    let write = Entry::Write { file_page: FilePage::new(0), addr, count: 1, snapshot_epoch: 0 };
    change_last_entry(&pm, FILE, &write);
    set_pages(&pm, 401);
    let said = try_open(pm).unwrap_err().to_string();
    assert!(said.contains("another owner"), "{said}");
    assert!(said.contains("`novale check --repair`"), "{said}");
}

/// A number just below its limit was counted on from: the next operation stored a line or a page
/// that nothing could read any more, and the file was lost.
#[test]
fn of_numbers_that_end_here() {
    type Wound = fn(&Pm);
    let cases: [(&str, Wound); 5] = [
        ("inode 3 numbers at ", |pm| change_line(pm, FILE, |line| line.op_seq = SEQ_LIMIT - 1)),
        ("inode 3 numbers at ", |pm| {
            let (_, line) = newest(pm, FILE);
            let of_page = seed().ino(FILE).generation(1).addr(line.log_head);
            let header = pm.load_line(line.log_head).unwrap();
            let mut header = LogPageHeader::decode(&header, of_page).unwrap();
            header.page_seq = SEQ_LIMIT - 1;
            put(pm, line.log_head, &header.encode(of_page));
        }),
        ("journal at ", |pm| {
            let page = word(pm, PmAddr::new(0, LANE_TABLE_PAGE * PAGE));
            let records = JOURNAL_OFFSETS.iter().filter_map(|offset| {
                let mut bytes = [0; JOURNAL_RECORD_BYTES];
                pm.load(page.add(*offset), &mut bytes).unwrap();
                Some((page.add(*offset), JournalRecord::decode(&bytes, seed()).ok()?))
            });
            let (at, mut record) = records.max_by_key(|(_, record)| record.lane_seq).unwrap();
            record.lane_seq = SEQ_LIMIT - 1;
            let (bytes, len) = record.encode(seed());
            put(pm, at, &bytes[..len]);
            mark_unclean(pm);
        }),
        ("state line at ", |pm| {
            let at = PmAddr::new(0, POOL_STATE_OFFSETS[0]);
            let mut state = PoolState::decode(&pm.load_line(at).unwrap(), seed()).unwrap();
            (state.seq, state.session) = (SEQ_LIMIT - 1, 3);
            put(pm, at, &state.encode(seed()));
        }),
        ("state line at ", |pm| {
            let (at, of_slot) =
                (PmAddr::new(0, SLOT_STATE_OFFSETS[0]), seed().addr(PmAddr::new(0, 0)));
            let mut state = SlotState::decode(&pm.load_line(at).unwrap(), of_slot).unwrap();
            (state.seq, state.session) = (SEQ_LIMIT - 1, 3);
            put(pm, at, &state.encode(of_slot));
        }),
    ];
    for (index, (expected, wound)) in cases.into_iter().enumerate() {
        let pm = pool();
        wound(&pm);
        let found = findings(&pm);
        assert!(found.iter().any(|what| what.contains(expected)), "{index}: {found:?}");
        let said = match try_open(pm) {
            Ok(fs) => {
                assert_eq!(fs.getattr(FILE).unwrap().size, 5000);
                let said = fs.append(&ctx(), FILE, &[1; 9000]).unwrap_err().to_string();
                assert!(fs.unlink(&ctx(), Node::ROOT, b"f").is_err());
                fs.close().unwrap();
                assert_eq!(findings(&fs.into_pm()).len(), 1, "{index}");
                said
            }
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected) && said.contains("used up"), "{index}: {said}");
    }
}

/// Of a number that no inode has `check` did not look at the line, and the next create met it.
#[test]
fn of_a_free_inodes_numbers() {
    let fs = try_open(pool()).unwrap();
    fs.unlink(&ctx(), Node::ROOT, b"f").unwrap();
    fs.close().unwrap();
    let pm = fs.into_pm();
    change_line(&pm, FILE, |line| line.op_seq = SEQ_LIMIT - 1);
    let found = check(&pm, &Serial, &|_| {}).unwrap().findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].what.contains(&format!("inode 3 numbers at {}", found[0].at)), "{found:?}");
    let fs = try_open(pm).unwrap();
    let create = |name| fs.create(&ctx(), Node::ROOT, name, &new(FileKind::File));
    let said = create(b"a").unwrap_err().to_string();
    assert!(said.contains("inode 3 numbers at "), "{said}");
    assert!(create(b"a").unwrap().ino != FILE);
}

/// In a pool closed clean a mount reads the inodes' own lines, and `check` took a newer one from the
/// journal: it called sound what could not be used, and after its use a directory had no way to it.
#[test]
fn of_a_record_newer_than_what_was_closed() {
    let pm = pool();
    set_back(&pm, DIR);
    let text = "commit lines at ";
    let found = findings(&pm);
    assert!(found[0].contains("inode 2 ") && found[0].contains(text), "{found:?}");
    assert!(found[0].contains("older than its journal record"), "{found:?}");
}

/// Of two different lines of one number recovery and `check` took the first, and the loading of the
/// inode the second.
#[test]
fn of_two_lines_of_one_number() {
    for clean in [true, false] {
        let pm = pool();
        let (_, other) = newest(&pm, DIR);
        for (mtime_ns, offset) in (0..).zip(COMMIT_OFFSETS) {
            let line = CommitLine { mtime_ns, flags: 0, ..other };
            put(&pm, place(&pm, DIR).add(offset), &line.encode(seed().ino(DIR)));
        }
        if !clean {
            mark_unclean(&pm);
        }
        assert!(findings(&pm)[0].contains("that differ"));
        let said = match try_open(pm) {
            Ok(fs) => fs.getattr(DIR).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(
            said.contains("inode 2 commit lines at ") && said.contains("that differ"),
            "{said}"
        );
    }
}

/// A record that needs no judging was believed of an inode that has no place: what it said of that
/// inode was dropped in silence, and what it said of the others was taken.
#[test]
fn of_a_record_of_an_inode_without_a_place() {
    let pm = pool();
    let page = word(&pm, PmAddr::new(0, LANE_TABLE_PAGE * PAGE));
    for offset in JOURNAL_OFFSETS {
        let at = page.add(offset);
        let mut bytes = [0; JOURNAL_RECORD_BYTES];
        pm.load(at, &mut bytes).unwrap();
        let mut record = JournalRecord::decode(&bytes, seed()).unwrap();
        let mut lines = JournalLines::new();
        for (ino, line) in record.lines.iter() {
            let ino = if *ino == Ino::ROOT { *ino } else { Ino::new(8000) };
            lines.push(ino, *line).unwrap();
        }
        (record.lines, record.data_crc) = (lines, None);
        let (bytes, len) = record.encode(seed());
        put(&pm, at, &bytes[..len]);
    }
    mark_unclean(&pm);
    assert!(findings(&pm).iter().any(|found| found.contains("inode 8000 journal record at ")));
    let fs = open_read_only(pm).unwrap();
    assert_eq!(fs.lookup(&ctx(), Node::ROOT, b"f").unwrap().size, 5000);
    let said = try_open(fs.into_pm()).unwrap_err().to_string();
    assert!(said.contains("inode 8000 journal record at "), "{said}");
}

/// A name of an inode that is not in use was looked up 65536 times and then not found; one of another
/// generation or kind was followed by `unlink`, which took a link of whatever had the number by then.
#[test]
fn of_a_name_that_leads_elsewhere() {
    let cases =
        [(FILE, 2, FileKind::File), (DIR, 1, FileKind::File), (Ino::new(60), 1, FileKind::File)];
    for (ino, generation, kind) in cases {
        let pm = pool();
        let name = Name::new(b"f").unwrap();
        change_last_entry(
            &pm,
            Ino::ROOT,
            &Entry::DentryAdd { ino, cookie: 17, generation, kind, name },
        );
        let fs = try_open(pm).unwrap();
        let mode = RenameMode::Replace;
        let tries = [
            fs.lookup(&ctx(), Node::ROOT, b"f").map(drop),
            fs.unlink(&ctx(), Node::ROOT, b"f"),
            fs.rename(&ctx(), Node::ROOT, b"f", Node::current(DIR), b"g", mode),
            fs.rename(&ctx(), Node::current(DIR), b"x", Node::ROOT, b"f", mode),
        ];
        for (index, tried) in tries.into_iter().enumerate() {
            let said = tried.map_or_else(|error| error.to_string(), |()| "done".into());
            let expected = format!("it names inode {}", ino.get());
            assert!(said.contains("dentry at ") && said.contains(&expected), "{index}: {said}");
        }
        assert_eq!(fs.getattr(DIR).unwrap().nlink, 2);
    }
}

/// Directories in a circle had paths without end: what walks a tree never came back.
#[test]
fn of_directories_in_a_circle() {
    let fs = try_open(pool()).unwrap();
    let below =
        fs.create(&ctx(), Node::current(DIR), b"below", &new(FileKind::Directory)).unwrap().ino;
    let inside =
        fs.create(&ctx(), Node::current(below), b"inside", &new(FileKind::Directory)).unwrap();
    fs.close().unwrap();
    let pm = fs.into_pm();
    for (ino, expected) in [
        (Ino::ROOT, "inode 5 log entry at "),
        (below, "inode 5 log entry at "),
        (DIR, "it names directory 2, which directory 1 names already"),
    ] {
        let add = Entry::DentryAdd {
            ino,
            cookie: 16,
            generation: 1,
            kind: FileKind::Directory,
            name: Name::new(b"inside").unwrap(),
        };
        change_last_entry(&pm, below, &add);
        let copy = empty_pool();
        put(&copy, PmAddr::new(0, 0), &bytes(&pm));
        assert!(!findings(&copy).is_empty());
        let fs = try_open(copy).unwrap();
        fs.lookup(&ctx(), Node::ROOT, b"d").unwrap();
        let mode = RenameMode::Replace;
        let tries = [
            fs.lookup(&ctx(), Node::current(DIR), b"below")
                .and_then(|_| fs.lookup(&ctx(), Node::current(below), b"inside"))
                .map(drop),
            fs.rmdir(&ctx(), Node::current(below), b"inside"),
            fs.rename(&ctx(), Node::current(below), b"inside", Node::ROOT, b"g", mode),
        ];
        for tried in tries {
            let said = tried.map_or_else(|error| error.to_string(), |()| "done".into());
            assert!(said.contains(expected) || said.contains("below itself"), "{ino:?}: {said}");
        }
    }
    assert_eq!(inside.nlink, 2);
}

/// A page that two files of a cleanly closed pool name was given back twice: "damaged arena".
#[test]
fn of_a_page_given_back_twice() {
    let pm = pool();
    let (_, line) = newest(&pm, FILE);
    let other = Entry::Write {
        file_page: FilePage::new(0),
        addr: line.log_head,
        count: 1,
        snapshot_epoch: 0,
    };
    change_last_entry(&pm, FILE, &other);
    let fs = try_open(pm).unwrap();
    drop(fs.unlink(&ctx(), Node::ROOT, b"f"));
    let said = fs.close().unwrap_err().to_string();
    assert!(said.contains(&format!("a page at {}", line.log_head)), "{said}");
}

/// The header says one page less than the slot has, and a file names that page: "damaged arena".
#[test]
fn of_a_page_behind_the_last() {
    let pm = pool();
    let last = PmAddr::new(0, 16 * MB - PAGE);
    let write =
        Entry::Write { file_page: FilePage::new(0), addr: last, count: 1, snapshot_epoch: 0 };
    change_last_entry(&pm, FILE, &write);
    let header = set_pages(&pm, 4095);
    // Its replicas are where it says, so that nothing is to be rewritten and no file looked at.
    let replica = PmAddr::new(0, 4094 * PAGE);
    let mut superblock = [0; SUPERBLOCK_BYTES];
    pm.load(PmAddr::new(0, 0), &mut superblock).unwrap();
    put(&pm, replica, &superblock);
    put(&pm, replica.add(SLOT_HEADER_OFFSET), &header.encode());
    let fs = try_open(pm).unwrap();
    drop(fs.unlink(&ctx(), Node::ROOT, b"f"));
    let said = fs.close().unwrap_err().to_string();
    assert!(said.contains(&format!("a page at {last}: in none of the slots")), "{said}");
}
