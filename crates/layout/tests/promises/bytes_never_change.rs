//! Version 1 of the format: these bytes are on media somewhere, and stay what they are.

use std::fmt::Write;

use novale_layout::{
    Attributes, CommitLine, Entry, FileKind, FilePage, IDENTITY_VERSION, IdentityLine, Ino,
    JournalKind, JournalLines, JournalRecord, LogLink, LogPageHeader, Name, Pair, PairLine,
    Partner, PmAddr, PoolState, QuotaLimit, Roots, SavedPageHeader, Seed, SlotHeader, SlotState,
    Source, Superblock, WearLine, XattrExtent, XattrNamespace, XattrPageHeader, XattrRecord,
    XattrValue,
};

use crate::structures::{Home, Logged, Structure};

const HOME: Home = Home {
    pool: *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff",
    ino: Ino::new(0x12_3456_789a),
    generation: 7,
    addr: PmAddr::new(2, 0x1_2345_6000),
};

/// Compares with hex digits, a line of media a line; zeros at the end are left out.
#[track_caller]
fn assert_bytes<T: Structure>(value: &T, expected: &[&str]) {
    let bytes = Structure::encode(value, &HOME);
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let hex = |line: &[u8]| {
        line.iter().fold(String::new(), |mut digits, byte| {
            write!(digits, "{byte:02x}").unwrap();
            digits
        })
    };
    let found: Vec<String> = bytes[..end].chunks(32).map(hex).collect();
    assert_eq!(found, expected);
}

fn page(number: u64) -> PmAddr {
    PmAddr::new(3, number * 4096)
}

fn commit_line() -> CommitLine {
    CommitLine {
        op_seq: 0x0102_0304_0506_0708,
        log_head: page(0x10),
        flags: 2,
        log_tail: page(0x11).add(64),
        size: 123_456_789,
        mtime_ns: 1_700_000_000_000_000_001,
        ctime_ns: -1,
        nlink: 2,
        session: 9,
        data_crc: 0,
    }
}

#[test]
fn of_the_superblock() {
    let roots = Roots {
        inode_directory: PmAddr::new(0, 3 * 4096),
        lane_table: PmAddr::new(0, 4 * 4096),
        lost_found: page(1),
        ..Roots::default()
    };
    let superblock = Superblock {
        pool_uuid: HOME.pool,
        features_compat: 1,
        features_ro_compat: 2,
        features_incompat: 4,
        lane_count: 16,
        slot_count: 4,
        default_policy: 1,
        created_ns: 1_700_000_000_000_000_000,
        roots,
    };
    assert_bytes(
        &superblock,
        &[
            "4e6f76616c65504d0100000017c189fe00112233445566778899aabbccddeeff",
            "0100000000000000020000000000000004000000000000000010000040000000",
            "010401001000000000002a36fe9c971700300000000000000040000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000010000000000003",
        ],
    );
}

#[test]
fn of_the_pool_state_line() {
    let state = PoolState {
        seq: 5,
        session: 3,
        flags: PoolState::CLEAN,
        saved_root: page(8),
        saved_bytes: 4032,
        saved_crc: 0xdead_beef,
        wear_summary: 77,
    };
    assert_bytes(
        &state,
        &[
            "050000000000000003000000010000000080000000000003c00f000000000000",
            "efbeadde000000004d00000000000000000000000000000000000000d5ac9313",
        ],
    );
}

#[test]
fn of_the_slot_header() {
    let header = SlotHeader {
        pool_uuid: HOME.pool,
        slot_uuid: [0xab; 16],
        index: 2,
        kind: 1,
        pages: 1 << 20,
        endurance: 1_000_000,
        wear_offset: 4096,
        bad_pages_offset: 8192,
        state_offset: 3072,
    };
    assert_bytes(
        &header,
        &[
            "4e6f7661536c6f740100000023ded69200112233445566778899aabbccddeeff",
            "abababababababababababababababab02010000000000000000100000000000",
            "40420f000000000000100000000000000020000000000000000c",
        ],
    );
}

#[test]
fn of_the_wear_line() {
    let wear = WearLine { seq: 5, lines: 0x0123_4567_89ab };
    assert_bytes(
        &wear,
        &[
            "0500000000000000ab8967452301000000000000000000000000000000000000",
            "00000000000000000000000000000000000000000000000000000000bf5e6fc3",
        ],
    );
}

#[test]
fn of_the_slot_state_line() {
    let state = SlotState {
        seq: 6,
        session: 3,
        flags: 0,
        evacuation_state: 1,
        evacuation_progress: 99,
        bad_page_root: page(12),
    };
    assert_bytes(
        &state,
        &[
            "0600000000000000030000000000000000000000010000006300000000000000",
            "00c0000000000003000000000000000000000000000000000000000073cc02ab",
        ],
    );
}

#[test]
fn of_the_identity_line() {
    let identity = IdentityLine {
        version: IDENTITY_VERSION,
        kind: FileKind::CharDevice,
        policy: 3,
        ino: HOME.ino,
        generation: HOME.generation,
        mode: 0o020_644,
        uid: 1000,
        gid: 1001,
        birth_ns: 1_700_000_000_000_000_002,
        rdev: 0x0103,
        flags: 0x10,
        project: 42,
        xattr_root: page(0x20),
    };
    assert_bytes(
        &identity,
        &[
            "d2b2fdc3010001039a7856341200000007000000a4210000e8030000e9030000",
            "02002a36fe9c971703010000100000002a000000000000000000020000000003",
        ],
    );
}

#[test]
fn of_the_commit_line() {
    assert_bytes(
        &commit_line(),
        &[
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff02000000090000000000000063b0f564",
        ],
    );
}

#[test]
fn of_lines_that_were_never_written() {
    let seed = Seed::pool(&HOME.pool).ino(HOME.ino);
    let mut line = [0; 64];
    line[60..].copy_from_slice(&[0xee, 0x68, 0x1b, 0xd4]);
    assert_eq!(CommitLine::never_written(seed), line);
    line.rotate_right(4);
    assert_eq!(IdentityLine::never_written(seed), line);
}

#[test]
fn of_the_log_page_header() {
    let header = LogPageHeader {
        ino: HOME.ino,
        generation: HOME.generation,
        session: 9,
        page_seq: 4,
        next: LogLink::page(page(0x12)),
    };
    assert_bytes(&header, &["9a78563412000000070000000900000004000000c7aa75320020010000000003"]);
    // With where it ends: 60 lines, 0b111100, and 0b000011.
    let header = LogPageHeader { next: LogLink::new(page(0x12), 60), ..header };
    assert_bytes(&header, &["9a78563412000000070000000900000004000000c7aa7532fc20010000000003"]);
}

#[test]
fn of_the_write_entry() {
    let entry = Entry::Write {
        file_page: FilePage::new(0x1234),
        addr: page(0x99),
        count: 16,
        snapshot_epoch: 2,
    };
    assert_bytes(
        &Logged(11, entry),
        &["109c3a78010101000b0000000000000034120000000000000090090000000003", "1000000002"],
    );
}

#[test]
fn of_the_pair_entry() {
    let (home, partner) = (page(0x99), page(0x77));
    let pair = Pair {
        file_page: FilePage::new(5),
        home,
        partner: Partner::own(partner),
        word: 0xf0,
        changed: 0xff,
    };
    assert_bytes(
        &Logged(12, Entry::Pair(pair)),
        &[
            "acd60d43020101000c0000000000000005000000000000000090090000000003",
            "0070070000000003f000000000000000ff",
        ],
    );
}

#[test]
fn of_the_source_entry() {
    let from = PmAddr::new(1, 0x1003);
    let source = Source { offset: 0x1234, length: 100, crc: 0x0a0b_0c0d, from };
    assert_bytes(
        &Logged(12, Entry::Source(source)),
        &["fbef97af070101000c000000000000003412000000000000640000000d0c0b0a", "0310000000000001"],
    );
}

#[test]
fn of_the_attributes_entry() {
    let attributes = Attributes {
        mode: 0o4755,
        uid: 1,
        gid: 2,
        flags: 3,
        project: 4,
        policy: 5,
        xattr_root: page(6),
        atime_ns: 7,
    };
    assert_bytes(
        &Logged(13, Entry::Attributes(attributes)),
        &[
            "bca6e46f030101000d00000000000000ed090000010000000200000003000000",
            "0400000005000000006000000000000307",
        ],
    );
}

#[test]
fn of_the_dentry_entries() {
    let add = |name: &[u8]| Entry::DentryAdd {
        ino: Ino::new(0xbeef),
        cookie: 16,
        generation: 1,
        kind: FileKind::Directory,
        name: Name::new(name).unwrap(),
    };
    assert_bytes(
        &Logged(14, add(b"a name of 24 bytes, full")),
        &[
            "4bc519fe040101000e00000000000000efbe0000000000001000000000000000",
            "010000000218000061206e616d65206f662032342062797465732c2066756c6c",
        ],
    );
    assert_bytes(
        &Logged(14, add(b"a name of 25 bytes, longer")),
        &[
            "a447edde040201000e00000000000000efbe0000000000001000000000000000",
            "01000000021a000061206e616d65206f662032352062797465732c206c6f6e67",
            "6572",
        ],
    );
    let delete = Entry::DentryDelete { ino: Ino::new(0xbeef), cookie: 16, generation: 1 };
    assert_bytes(
        &Logged(15, delete),
        &["bb588998050101000f00000000000000efbe0000000000001000000000000000", "01"],
    );
}

#[test]
fn of_the_pair_line() {
    let pair = PairLine {
        op_seq: 21,
        ino: HOME.ino,
        home: page(0x30),
        partner: page(0x31),
        install_seq: 20,
        word: 0x5555,
        changed: 0xff,
        mtime_ns: 1_700_000_000_000_000_003,
        data_crc: 0x0bad_cafe,
    };
    assert_bytes(
        &pair,
        &[
            "15000000000000009a0803000000670345130300000012031400000000000000",
            "5555000000000000ff0000000000000003002a36fe9c9717fecaad0bfa38afd1",
        ],
    );
}

#[test]
fn of_the_journal_record() {
    let record = |count: u64, data_crc| {
        let mut lines = JournalLines::new();
        for index in 0..count {
            lines.push(Ino::new(100 + index), commit_line()).unwrap();
        }
        JournalRecord {
            lane_seq: 31,
            session: 9,
            lane: 5,
            kind: JournalKind::Rename,
            data_crc,
            identity_mask: 2,
            lines,
        }
    };
    assert_bytes(
        &record(2, Some(0x1234_5678)),
        &[
            "1f00000000000000090000007856341202040500020100006400000000000000",
            "65000000000000000000000000000000000000000000000000000000713368fa",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff020000000900000000000000649a7e79",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff0200000009000000000000005fbe6765",
        ],
    );
    assert_bytes(
        &record(5, None),
        &[
            "1f00000000000000090000000000000005040500020000006400000000000000",
            "650000000000000066000000000000006700000000000000000000003e307b17",
            "6800000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff020000000900000000000000649a7e79",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff0200000009000000000000005fbe6765",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff02000000090000000000000012d24c41",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff02000000090000000000000029f6555d",
            "08070605040302010200010000000003401001000000000315cd5b0700000000",
            "01002a36fe9c9717ffffffffffffffff020000000900000000000000502bd3e9",
        ],
    );
}

#[test]
fn of_the_saved_page_header() {
    let header = SavedPageHeader { next: page(0x40), page_index: 1, payload_bytes: 4032 };
    assert_bytes(&header, &["000004000000000301000000c00f000014ddf79d"]);
}

#[test]
fn of_the_extended_attribute_page_header() {
    let header = XattrPageHeader {
        ino: HOME.ino,
        generation: HOME.generation,
        page_index: 1,
        next: page(0x40),
        op_seq: 0x0102_0304_0506,
        payload_bytes: 4032,
        payload_crc: 0xaabb_ccdd,
        pages: 3,
        summary: XattrPageHeader::HAS_ACL_ACCESS,
    };
    let expected = [
        "9a78563412000000070000000100000000000400000000030605040302010000",
        "c00f0000ddccbbaa03000000020000000000000000000000000000001eeadd61",
    ];
    assert_bytes(&header, &expected);
}

#[test]
fn of_extended_attribute_records() {
    let extent = XattrExtent { addr: page(0x40), count: 2 };
    let values = [
        XattrValue::Inline(b"val".to_vec()),
        XattrValue::Paged { len: 8000, crc: 0xaabb_ccdd, extents: vec![extent] },
    ];
    let found = values.map(|value| {
        let mut bytes = Vec::new();
        XattrRecord { namespace: XattrNamespace::User, name: b"ab".to_vec(), value }
            .encode(&mut bytes);
        bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        })
    });
    let expected = [
        concat!("01020000", "03000000", "00000000", "00000000", "6162", "76616c"),
        concat!(
            "01020100",
            "401f0000",
            "ddccbbaa",
            "00000000",
            "6162",
            "0000040000000003",
            "02000000",
            "00000000"
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn of_quotas() {
    let limits = [
        QuotaLimit { project: 2, pages_max: 0x0102, inodes_max: 0 },
        QuotaLimit { project: 0x0300, pages_max: 0, inodes_max: 1 << 40 },
    ];
    let hex = QuotaLimit::encode_all(&limits).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let expected = concat!(
        "02000000",
        "00000000",
        "0201000000000000",
        "0000000000000000",
        "00030000",
        "00000000",
        "0000000000000000",
        "0000000000010000",
    );
    assert_eq!(hex, expected);
}
