//! A field that the format does not allow is refused by name, however right the checksum.

use novale_layout::{
    Attributes, CommitLine, Entry, FileKind, FilePage, IDENTITY_VERSION, IdentityLine, Ino,
    JournalKind, JournalLines, JournalRecord, LayoutError, LogLink, LogPageHeader, Name, Pair,
    PairLine, Partner, PmAddr, PoolState, Redo, Roots, SIZE_LIMIT, SavedPageHeader, SlotHeader,
    SlotState, Source, Superblock, XattrPageHeader,
};

use crate::structures::{Home, Logged, Structure, documented_crc};

const HOME: Home =
    Home { pool: [7; 16], ino: Ino::new(12), generation: 3, addr: PmAddr::new(1, 4096) };
const PAGE: PmAddr = PmAddr::new(0, 9 * 4096);
/// A counter that has come to its end.
const END: [u8; 8] = (1_u64 << 63).to_le_bytes();
/// An address of no page, and one with a reserved bit.
const ODD: u64 = PAGE.raw() + 64;
const RESERVED: u64 = PAGE.raw() | 1 << 50;

/// `value` with these bytes at `offset`, under a right checksum.
fn edited<T: Structure>(value: &T, offset: usize, edit: &[u8]) -> Result<T, LayoutError> {
    let mut bytes = Structure::encode(value, &HOME);
    bytes[offset..][..edit.len()].copy_from_slice(edit);
    let crc = documented_crc::<T>(&bytes, &HOME);
    bytes[T::CRC].copy_from_slice(&crc.to_le_bytes());
    Structure::decode(&bytes, &HOME)
}

#[track_caller]
fn refuses<T: Structure>(value: &T, offset: usize, edit: &[u8], expected: &str) {
    match edited(value, offset, edit) {
        Err(LayoutError::Field { field, .. }) => assert_eq!(field, expected),
        other => panic!("{expected}: {other:?}"),
    }
}

/// Refuses words that are no page there.
#[track_caller]
fn refuses_no_page<T: Structure>(value: &T, offset: usize, field: &str) {
    refuses(value, offset, &ODD.to_le_bytes(), field);
    refuses(value, offset, &RESERVED.to_le_bytes(), field);
}

/// Reads over reserved bytes that a later version may use.
#[track_caller]
fn ignores<T: Structure>(value: &T, offset: usize, length: usize) {
    assert_eq!(edited(value, offset, &vec![0xff; length]).as_ref(), Ok(value));
}

#[test]
fn of_the_superblock() {
    let roots = Roots { inode_directory: PAGE, lane_table: PAGE, ..Roots::default() };
    let value = Superblock {
        pool_uuid: HOME.pool,
        features_compat: 0,
        features_ro_compat: 0,
        features_incompat: 0,
        lane_count: 8,
        slot_count: 1,
        default_policy: 0,
        created_ns: 0,
        roots,
    };
    refuses(&value, 0, b"novale", "magic");
    refuses(&value, 8, &[2], "version");
    refuses(&value, 56, &[1], "page_size");
    refuses(&value, 60, &[128], "line_size");
    refuses(&value, 64, &[0], "checksum_kind");
    refuses(&value, 65, &[0], "slot_count");
    refuses(&value, 65, &[65], "slot_count");
    refuses(&value, 68, &[0], "lane_count");
    refuses(&value, 68, &513_u32.to_le_bytes(), "lane_count");
    refuses(&value, 80, &[0; 8], "inode_directory");
    refuses(&value, 88, &[0; 8], "lane_table");
    let fields = [
        "inode_directory",
        "lane_table",
        "pair_tables",
        "undo_tables",
        "descriptor_tables",
        "page_checksums",
        "shared_pages",
        "snapshots",
        "quota",
        "lost_found",
    ];
    for (index, field) in fields.into_iter().enumerate() {
        refuses_no_page(&value, 80 + 8 * index, field);
    }
    ignores(&value, 67, 1);
    ignores(&value, 160, 864);
}

#[test]
fn of_state_lines() {
    let pool = PoolState { seq: 1, ..PoolState::default() };
    refuses(&pool, 0, &END, "seq");
    refuses(&pool, 8, &(1_u32 << 31).to_le_bytes(), "session");
    refuses_no_page(&pool, 16, "saved_root");
    ignores(&pool, 36, 4);
    ignores(&pool, 48, 12);
    let slot = SlotState { seq: 1, ..SlotState::default() };
    refuses(&slot, 0, &END, "seq");
    refuses(&slot, 8, &(1_u64 << 32).to_le_bytes(), "session");
    refuses_no_page(&slot, 32, "bad_page_root");
    ignores(&slot, 40, 20);
}

#[test]
fn of_the_slot_header() {
    let value = SlotHeader {
        pool_uuid: HOME.pool,
        slot_uuid: [2; 16],
        index: 1,
        kind: 0,
        pages: 64,
        endurance: 0,
        wear_offset: 4096,
        bad_pages_offset: 8192,
        state_offset: 3072,
    };
    refuses(&value, 0, b"X", "magic");
    refuses(&value, 8, &[0], "version");
    refuses(&value, 48, &[64], "index");
    for pages in [0, 9, (1 << 36) + 1, u64::MAX] {
        refuses(&value, 56, &pages.to_le_bytes(), "pages");
    }
    ignores(&value, 50, 6);
    ignores(&value, 96, 32);
}

#[test]
fn of_the_identity_line() {
    let value = IdentityLine {
        version: IDENTITY_VERSION,
        kind: FileKind::File,
        policy: 0,
        ino: HOME.ino,
        generation: HOME.generation,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        birth_ns: 0,
        rdev: 0,
        flags: 0,
        project: 0,
        xattr_root: PmAddr::NULL,
    };
    refuses(&value, 4, &[2], "version");
    refuses(&value, 6, &[0], "state");
    refuses(&value, 8, &[0; 8], "ino");
    refuses(&value, 8, &(1_u64 << 40).to_le_bytes(), "ino");
    refuses(&value, 20, &0o644_u32.to_le_bytes(), "mode");
    refuses_no_page(&value, 56, "xattr_root");
    ignores(&value, 52, 4);
}

#[test]
fn of_the_commit_line() {
    let value = CommitLine {
        op_seq: 1,
        log_head: PAGE,
        log_tail: PAGE.add(64),
        nlink: 1,
        ..CommitLine::default()
    };
    refuses(&value, 8, &RESERVED.to_le_bytes(), "log_head");
    refuses(&value, 16, &(PAGE.raw() + 65).to_le_bytes(), "log_tail");
    refuses(&value, 16, &(RESERVED + 64).to_le_bytes(), "log_tail");
    // Line 0 of a page is its header; and there is no tail without a head.
    refuses(&value, 16, &PAGE.raw().to_le_bytes(), "log_tail");
    refuses(&value, 8, &[0; 8], "log_tail");
    refuses(&value, 0, &END, "op_seq");
    // No operation has that number: it says that the line was never written, where all else is zero.
    refuses(&value, 0, &[0; 8], "op_seq");
    refuses(&value, 24, &END, "size");
    let empty = CommitLine { log_tail: PmAddr::NULL, ..value };
    assert_eq!(edited(&value, 16, &[0; 8]), Ok(empty));
}

#[test]
fn of_the_log_page_header() {
    let (ino, generation) = (HOME.ino, HOME.generation);
    let value = LogPageHeader { ino, generation, session: 1, page_seq: 1, next: LogLink::NONE };
    refuses(&value, 0, &[0; 8], "ino");
    refuses_no_page(&value, 24, "next");
    // An end without a page, lines that no page has, and a count whose complement is another.
    refuses(&value, 24, &[0xfc, 0], "next");
    refuses(&value, 24, &[0xc0, 0x1f], "next");
    refuses(&value, 24, &[0xfb, 0x10], "next");
    refuses(&value, 24, &[0x3c, 0x10], "next");
    let linked = LogPageHeader { next: LogLink::new(PmAddr::new(0, 4096), 60), ..value };
    assert_eq!(edited(&value, 24, &[0xfc, 0x10]), Ok(linked));
    refuses(&value, 35, &[0x80], "page_seq");
    ignores(&value, 36, 28);
    let long_lived = LogPageHeader { page_seq: 1 << 32 | 1, ..value };
    assert_eq!(edited(&value, 32, &[1]), Ok(long_lived));
}

#[test]
fn of_every_entry() {
    let value = Logged(1, Entry::Pair(PAIR));
    refuses(&value, 4, &[0], "kind");
    refuses(&value, 4, &[8], "kind");
    refuses(&value, 5, &[0], "lines");
    refuses(&value, 5, &[2], "lines");
    refuses(&value, 6, &[2], "version");
    ignores(&value, 7, 1);
    let limit = FilePage::LIMIT.to_le_bytes();
    refuses(&value, 16, &limit, "file_page");
}

const PAIR: Pair = Pair {
    file_page: FilePage::new(5),
    home: PAGE,
    partner: Partner::own(PmAddr::new(0, 8192)),
    word: 1,
    changed: 1,
};

#[test]
fn of_the_pair_entry() {
    let value = Logged(1, Entry::Pair(PAIR));
    refuses(&value, 24, &[0; 8], "home");
    refuses(&value, 32, &[0; 8], "partner");
    refuses_no_page(&value, 24, "home");
    refuses_no_page(&value, 32, "partner");
    refuses(&value, 32, &PAGE.raw().to_le_bytes(), "partner");
    refuses(&value, 32, &Partner::slots(PAGE, 3).raw().to_le_bytes(), "partner");
    // A shift of no slots.
    refuses(&value, 32, &((PAGE.raw() + 4096) | 3).to_le_bytes(), "partner");
    let partner = Partner::slots(PmAddr::new(0, 8192), 63);
    let bytes = partner.raw().to_le_bytes();
    assert_eq!(edited(&value, 32, &bytes).unwrap().1, Entry::Pair(Pair { partner, ..PAIR }));
    refuses(&value, 48, &[0; 8], "changed");
    ignores(&value, 56, 8);
}

#[test]
fn of_the_source_entry() {
    let source = Source { offset: 100, length: 7, crc: 1, from: PmAddr::new(1, 4099) };
    let value = Logged(1, Entry::Source(source));
    refuses(&value, 24, &[0; 4], "length");
    refuses(&value, 24, &[0xff; 4], "length");
    refuses(&value, 16, &[0xff; 8], "offset");
    refuses(&value, 32, &[0; 8], "from");
    refuses(&value, 38, &[1], "from");
    ignores(&value, 40, 24);
}

#[test]
fn of_the_write_entry() {
    let write = |file_page, addr, count| {
        let file_page = FilePage::new(file_page);
        Logged(1, Entry::Write { file_page, addr, count, snapshot_epoch: 0 })
    };
    let value = write(5, PAGE, 2);
    refuses(&value, 16, &FilePage::LIMIT.to_le_bytes(), "file_page");
    refuses_no_page(&value, 24, "addr");
    refuses(&value, 32, &[0; 4], "count");
    refuses(&value, 32, &[0xff; 4], "count");
    ignores(&value, 40, 24);
    // The last page of a slot is the last that an entry may name, and that of a file likewise.
    let last = PmAddr::new(0, (1 << 48) - 4096);
    refuses(&write(5, last, 1), 32, &[2], "count");
    refuses(&write(FilePage::LIMIT - 1, PAGE, 1), 32, &[2], "count");
    refuses(&write(FilePage::LIMIT - 1, PmAddr::NULL, 1), 32, &[2], "count");
    for accepted in [
        write(5, last, 1),
        write(FilePage::LIMIT - 1, PAGE, 1),
        write(FilePage::LIMIT - 1, PmAddr::NULL, u32::MAX),
    ] {
        ignores(&accepted, 40, 1);
    }
}

#[test]
fn of_the_attributes_entry() {
    let value = Logged(1, Entry::Attributes(Attributes::default()));
    refuses(&value, 16, &0o100_644_u32.to_le_bytes(), "mode");
    refuses_no_page(&value, 40, "xattr_root");
    ignores(&value, 37, 3);
    ignores(&value, 56, 8);
}

#[test]
fn of_dentry_entries() {
    let name = Name::new(b"a name of 25 bytes, longer").unwrap();
    let kind = FileKind::File;
    let add = Entry::DentryAdd { ino: HOME.ino, cookie: 16, generation: 1, kind, name };
    let value = Logged(1, add);
    refuses(&value, 16, &[0; 8], "ino");
    refuses(&value, 36, &[0], "kind");
    refuses(&value, 36, &[8], "kind");
    refuses(&value, 37, &[0], "name_length");
    for cookie in [0, 15, 1 << 48, u64::MAX] {
        refuses(&value, 24, &cookie.to_le_bytes(), "cookie");
    }
    refuses(&value, 37, &[24], "lines");
    refuses(&value, 37, &[89], "lines");
    refuses(&value, 40, b"/", "byte");
    refuses(&value, 65, &[0], "byte");
    ignores(&value, 38, 2);
    ignores(&value, 100, 28);
    let delete = Entry::DentryDelete { ino: HOME.ino, cookie: 16, generation: 1 };
    refuses(&Logged(1, delete), 16, &[0xff; 8], "ino");
    refuses(&Logged(1, delete), 24, &[0xff; 8], "cookie");
    ignores(&Logged(1, delete), 36, 28);
}

#[test]
fn of_the_redo_entry() {
    let value = Logged(1, Entry::Redo(Redo::first_of(100, &[7; 40]).0));
    refuses(&value, 16, &[0xff; 8], "offset");
    refuses(&value, 16, &(SIZE_LIMIT - 39).to_le_bytes(), "offset");
    refuses(&value, 24, &[0, 0], "length");
    refuses(&value, 24, &[0x21, 1], "length");
    refuses(&value, 24, &[32, 0], "lines");
    ignores(&value, 26, 6);
    ignores(&value, 72, 56);
}

#[test]
fn of_the_pair_line() {
    let value = PairLine {
        op_seq: 1,
        ino: HOME.ino,
        home: PAGE,
        partner: PmAddr::NULL,
        install_seq: 1,
        word: 0,
        changed: 0,
        mtime_ns: 0,
        data_crc: 0,
    };
    refuses(&value, 8, &[12, 0, 0], "home");
    refuses(&value, 8, &[0], "ino");
}

#[test]
fn of_the_journal_record() {
    let line = CommitLine { op_seq: 4, nlink: 1, ..CommitLine::default() };
    let mut lines = JournalLines::new();
    lines.push(HOME.ino, line).unwrap();
    lines.push(Ino::new(13), line).unwrap();
    let value = JournalRecord {
        lane_seq: 1,
        session: 1,
        lane: 0,
        kind: JournalKind::Link,
        data_crc: None,
        identity_mask: 0,
        lines,
    };
    refuses(&value, 0, &END, "lane_seq");
    refuses(&value, 16, &[0], "count");
    refuses(&value, 16, &[9], "count");
    refuses(&value, 17, &[0], "kind");
    refuses(&value, 17, &[7], "kind");
    refuses(&value, 20, &[4], "identity_mask");
    refuses(&value, 24, &[0], "ino");
    ignores(&value, 22, 2);
    ignores(&value, 56, 4);
    // A line that brings a data checksum of its own would be asked twice.
    let flagged = CommitLine { flags: CommitLine::HAS_DATA_CRC, ..line };
    let flagged = flagged.encode(HOME.seed(CommitLine::SEED));
    refuses(&value, 64, &flagged, "line flags");
    // A line belongs to the inode beside it.
    let foreign = edited(&value, 24, &[14]);
    assert!(matches!(foreign, Err(LayoutError::Checksum { .. })), "{foreign:?}");
}

#[test]
fn of_the_saved_page_header() {
    let value = SavedPageHeader { next: PmAddr::NULL, page_index: 0, payload_bytes: 0 };
    refuses_no_page(&value, 0, "next");
    refuses(&value, 12, &4033_u32.to_le_bytes(), "payload_bytes");
    ignores(&value, 20, 44);
}

#[test]
fn of_the_extended_attribute_page_header() {
    let value = XattrPageHeader {
        ino: HOME.ino,
        generation: HOME.generation,
        page_index: 0,
        next: PmAddr::NULL,
        op_seq: 5,
        payload_bytes: 20,
        payload_crc: 0,
        pages: 1,
        summary: XattrPageHeader::HAS_CAPABILITY,
    };
    refuses(&value, 0, &[0; 8], "ino");
    refuses_no_page(&value, 16, "next");
    refuses(&value, 24, &END, "op_seq");
    refuses(&value, 32, &[0; 4], "payload_bytes");
    refuses(&value, 32, &4033_u32.to_le_bytes(), "payload_bytes");
    refuses(&value, 40, &[0; 4], "pages");
    refuses(&value, 40, &(1_u32 << 28).to_le_bytes(), "pages");
    refuses(&value, 44, &[8], "summary");
    ignores(&value, 48, 12);
}

#[test]
fn a_record_holds_8_lines_and_no_more() {
    let mut lines = JournalLines::new();
    for number in 1..=8 {
        lines.push(Ino::new(number), CommitLine::default()).unwrap();
    }
    let ninth = lines.push(Ino::new(9), CommitLine::default());
    assert!(matches!(ninth, Err(LayoutError::Field { field: "count", .. })), "{ninth:?}");
    assert_eq!(lines.len(), 8);
}

#[test]
#[should_panic(expected = "no data checksum of its own")]
fn a_record_takes_no_line_with_a_data_checksum() {
    let flags = CommitLine::HAS_DATA_CRC;
    let mut lines = JournalLines::new();
    lines.push(HOME.ino, CommitLine { op_seq: 1, flags, ..CommitLine::default() }).unwrap();
    let kind = JournalKind::Other;
    let (lane_seq, session, lane, identity_mask) = (1, 1, 0, 0);
    let record =
        JournalRecord { lane_seq, session, lane, kind, data_crc: None, identity_mask, lines };
    Structure::encode(&record, &HOME);
}

#[test]
#[should_panic(expected = "12 bits")]
fn a_commit_line_takes_no_flag_beyond_12_bits() {
    let line = CommitLine { op_seq: 1, flags: 1 << 12, ..CommitLine::default() };
    Structure::encode(&line, &HOME);
}

#[test]
fn errors_say_what_was_expected_and_found() {
    let value = SavedPageHeader { next: PmAddr::NULL, page_index: 0, payload_bytes: 0 };
    let error = edited(&value, 12, &4033_u32.to_le_bytes()).unwrap_err();
    let text = "saved page header: payload_bytes: expected at most 4032, found 0xfc1";
    assert_eq!(error.to_string(), text);
}

/// A record's checksum once ran over the lines' own checksums, and so could not tell one valid line
/// of an inode from another: a torn record whose place held an older one passed.
#[test]
fn a_record_with_a_line_of_an_older_record_is_refused() {
    let record = |size: u64| {
        let line = CommitLine { op_seq: 4, nlink: 1, size, ..CommitLine::default() };
        let mut lines = JournalLines::new();
        lines.push(HOME.ino, line).unwrap();
        lines.push(Ino::new(13), line).unwrap();
        JournalRecord {
            lane_seq: 1,
            session: 1,
            lane: 0,
            kind: JournalKind::Link,
            data_crc: None,
            identity_mask: 0,
            lines,
        }
    };
    let seed = HOME.seed(JournalRecord::SEED);
    let (mut torn, (old, _)) = (record(1).encode(seed).0, record(2).encode(seed));
    assert!(JournalRecord::decode(&torn, seed).is_ok());
    torn[64..128].copy_from_slice(&old[64..128]);
    assert!(matches!(JournalRecord::decode(&torn, seed), Err(LayoutError::Checksum { .. })));
}
