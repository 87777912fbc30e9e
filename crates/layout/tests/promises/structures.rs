//! The structures as `docs/SPEC.md` has them: arbitrary values, seeds, what the checksum covers.

use std::fmt::Debug;
use std::ops::Range;

use novale_layout::{
    Attributes, COOKIE_LIMIT, COOKIE_MIN, CommitLine, Entry, FileKind, FilePage, IDENTITY_VERSION,
    IdentityLine, Ino, JournalKind, JournalLines, JournalRecord, LOG_ENTRY_LINES, LayoutError,
    LogLink, LogPageHeader, Name, Pair, PairLine, Partner, PmAddr, PoolState, REDO_BYTES_MAX, Redo,
    Roots, SEQ_LIMIT, SESSION_LIMIT, SIZE_LIMIT, SLOT_PAGES_MAX, SLOT_PAGES_MIN, SOURCE_BYTES_MAX,
    SavedPageHeader, Seed, SlotHeader, SlotState, Source, Superblock, WearLine, XattrPageHeader,
};
use proptest::prelude::*;

/// What bytes can belong to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    pub(crate) pool: [u8; 16],
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) addr: PmAddr,
}

/// A part of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Pool,
    Ino,
    Generation,
    Addr,
}

impl Home {
    /// The seed, by the crate.
    pub(crate) fn seed(&self, parts: &[Part]) -> Seed {
        parts.iter().fold(Seed::pool(&self.pool), |seed, part| match part {
            Part::Pool => seed,
            Part::Ino => seed.ino(self.ino),
            Part::Generation => seed.generation(self.generation),
            Part::Addr => seed.addr(self.addr),
        })
    }

    /// The bytes that the seed stands for, by the document.
    pub(crate) fn names(&self, parts: &[Part]) -> Vec<u8> {
        let name = |part: &Part| match part {
            Part::Pool => self.pool.to_vec(),
            Part::Ino => self.ino.get().to_le_bytes().to_vec(),
            Part::Generation => self.generation.to_le_bytes().to_vec(),
            Part::Addr => self.addr.raw().to_le_bytes().to_vec(),
        };
        parts.iter().flat_map(name).collect()
    }

    /// Another home that differs in one part.
    pub(crate) fn elsewhere(&self, part: Part) -> Self {
        let mut home = *self;
        match part {
            Part::Pool => home.pool[7] ^= 0x10,
            Part::Ino => home.ino = Ino::new(self.ino.get() ^ 1),
            Part::Generation => home.generation ^= 1,
            Part::Addr => home.addr = PmAddr::from_raw(self.addr.raw() ^ 4096),
        }
        home
    }
}

/// A structure with a checksum.
pub(crate) trait Structure: Debug + Clone + PartialEq {
    /// The parts of its seed; none: it has no seed.
    const SEED: &[Part];
    /// Where its checksum lies.
    const CRC: Range<usize>;
    /// What else the checksum leaves out.
    const OPEN: Range<usize> = 0..0;
    /// Whether byte `index` of `len` is under the checksum.
    fn covers(index: usize, _len: usize) -> bool {
        !Self::CRC.contains(&index) && !Self::OPEN.contains(&index)
    }
    fn any(home: Home) -> BoxedStrategy<Self>;
    /// The bytes to store, without what lies after them.
    fn encode(&self, home: &Home) -> Vec<u8>;
    fn decode(bytes: &[u8], home: &Home) -> Result<Self, LayoutError>;
}

/// CRC32C a bit at a time, from its definition.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
    };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The checksum that the document gives to encoded bytes.
pub(crate) fn documented_crc<T: Structure>(bytes: &[u8], home: &Home) -> u32 {
    let mut covered = home.names(T::SEED);
    let inside = |index: &usize| T::covers(*index, bytes.len());
    covered.extend((0..bytes.len()).filter(inside).map(|index| bytes[index]));
    crc32c(&covered)
}

pub(crate) fn home() -> BoxedStrategy<Home> {
    (any::<[u8; 16]>(), ino(), any::<u32>(), page())
        .prop_map(|(pool, ino, generation, addr)| Home { pool, ino, generation, addr })
        .boxed()
}

/// A structure and its home.
pub(crate) fn housed<T: Structure>() -> BoxedStrategy<(Home, T)> {
    home().prop_flat_map(|home| (Just(home), T::any(home))).boxed()
}

/// Two of one kind in one home.
pub(crate) fn pair_housed<T: Structure>() -> BoxedStrategy<(Home, T, T)> {
    home().prop_flat_map(|home| (Just(home), T::any(home), T::any(home))).boxed()
}

pub(crate) fn ino() -> BoxedStrategy<Ino> {
    prop_oneof![2u64..1 << 20, 2u64..(1 << 40) - 1].prop_map(Ino::new).boxed()
}

fn partner() -> BoxedStrategy<Partner> {
    let slots = (page(), 0..64_u32).prop_map(|(page, shift)| Partner::slots(page, shift));
    prop_oneof![page().prop_map(Partner::own), slots].boxed()
}

pub(crate) fn page() -> BoxedStrategy<PmAddr> {
    (0u8..64, 1u64..1 << 36).prop_map(|(slot, page)| PmAddr::new(slot, page * 4096)).boxed()
}

pub(crate) fn link() -> BoxedStrategy<LogLink> {
    let with_end =
        (page(), 1..=LOG_ENTRY_LINES).prop_map(|(page, lines)| LogLink::new(page, lines));
    prop_oneof![page().prop_map(LogLink::page), with_end].boxed()
}

pub(crate) fn link_or_none() -> BoxedStrategy<LogLink> {
    prop_oneof![1 => Just(LogLink::NONE), 4 => link()].boxed()
}

pub(crate) fn page_or_null() -> BoxedStrategy<PmAddr> {
    prop_oneof![1 => Just(PmAddr::NULL), 4 => page()].boxed()
}

/// A counter, small or of any size.
fn seq() -> BoxedStrategy<u64> {
    prop_oneof![1u64..1 << 20, 1..SEQ_LIMIT].boxed()
}

pub(crate) fn cookie() -> impl Strategy<Value = u64> + Clone {
    COOKIE_MIN..COOKIE_LIMIT
}

fn file_page() -> BoxedStrategy<FilePage> {
    prop_oneof![0u64..1000, 0u64..1 << 50].prop_map(FilePage::new).boxed()
}

fn kind() -> BoxedStrategy<FileKind> {
    proptest::sample::select(&FileKind::ALL[..]).boxed()
}

pub(crate) fn name() -> BoxedStrategy<Name> {
    let byte = any::<u8>().prop_map(|byte| if byte == 0 || byte == b'/' { b'x' } else { byte });
    let short = proptest::collection::vec(byte.clone(), 1..=40);
    let long = proptest::collection::vec(byte, 1..=255);
    // The two names that no entry has.
    let named = |bytes: &Vec<u8>| bytes != b"." && bytes != b"..";
    prop_oneof![short, long]
        .prop_filter("a dot or two", named)
        .prop_map(|bytes| Name::new(&bytes).unwrap())
        .boxed()
}

pub(crate) fn commit_line() -> BoxedStrategy<CommitLine> {
    let log = prop_oneof![
        Just((PmAddr::NULL, PmAddr::NULL)),
        page().prop_map(|head| (head, PmAddr::NULL)),
        (page(), page(), 1u64..64).prop_map(|(head, tail, line)| (head, tail.add(line * 64))),
    ];
    let words = (seq(), 0..SIZE_LIMIT, any::<i64>(), any::<i64>());
    let halves = (any::<u32>(), any::<u32>(), any::<u32>(), 0u16..4096);
    (log, words, halves)
        .prop_map(|((log_head, log_tail), words, halves)| CommitLine {
            op_seq: words.0,
            log_head,
            flags: halves.3,
            log_tail,
            size: words.1,
            mtime_ns: words.2,
            ctime_ns: words.3,
            nlink: halves.0,
            session: halves.1,
            data_crc: halves.2,
        })
        .boxed()
}

fn attributes() -> BoxedStrategy<Attributes> {
    let ids = (0u32..0o10000, any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    (ids, any::<u8>(), page_or_null(), any::<i64>())
        .prop_map(|((mode, uid, gid, flags, project), policy, xattr_root, atime_ns)| Attributes {
            mode,
            uid,
            gid,
            flags,
            project,
            policy,
            xattr_root,
            atime_ns,
        })
        .boxed()
}

pub(crate) fn entry() -> BoxedStrategy<Entry> {
    let placed = (page(), 1u32..1 << 20)
        .prop_filter("in the slot", |(addr, count)| {
            addr.byte() + u64::from(*count) * 4096 <= 1 << 48
        })
        .boxed();
    let hole = any::<u32>().prop_map(|count| (PmAddr::NULL, count.max(1))).boxed();
    let write = (file_page(), prop_oneof![placed, hole], any::<u32>()).prop_map(
        |(file_page, (addr, count), snapshot_epoch)| Entry::Write {
            file_page,
            addr,
            count,
            snapshot_epoch,
        },
    );
    let pair = (file_page(), page(), partner(), any::<u64>(), 1..u64::MAX)
        .prop_filter("two copies", |(_, home, partner, _, _)| *home != partner.page())
        .prop_map(|(file_page, home, partner, word, changed)| {
            Entry::Pair(Pair { file_page, home, partner, word, changed })
        });
    let add = (ino(), cookie(), any::<u32>(), kind(), name()).prop_map(
        |(ino, cookie, generation, kind, name)| Entry::DentryAdd {
            ino,
            cookie,
            generation,
            kind,
            name,
        },
    );
    let delete = (ino(), cookie(), any::<u32>())
        .prop_map(|(ino, cookie, generation)| Entry::DentryDelete { ino, cookie, generation });
    let bytes = proptest::collection::vec(any::<u8>(), 1..=REDO_BYTES_MAX);
    let redo =
        (0..1u64 << 60, bytes).prop_map(|(at, bytes)| Entry::Redo(Redo::first_of(at, &bytes).0));
    let source = (0..1u64 << 60, 1..=SOURCE_BYTES_MAX, any::<u32>(), 1..1u64 << 40).prop_map(
        |(offset, length, crc, from)| {
            Entry::Source(Source { offset, length, crc, from: PmAddr::new(0, from) })
        },
    );
    prop_oneof![write, pair, attributes().prop_map(Entry::Attributes), add, delete, redo, source]
        .boxed()
}

impl Structure for Superblock {
    const SEED: &[Part] = &[];
    const CRC: Range<usize> = 12..16;

    fn any(home: Home) -> BoxedStrategy<Self> {
        let roots = (page(), page(), proptest::array::uniform8(page_or_null())).prop_map(
            |(inode_directory, lane_table, others)| Roots {
                inode_directory,
                lane_table,
                pair_tables: others[0],
                undo_tables: others[1],
                descriptor_tables: others[2],
                page_checksums: others[3],
                shared_pages: others[4],
                snapshots: others[5],
                quota: others[6],
                lost_found: others[7],
            },
        );
        let features = any::<[u64; 3]>();
        (features, 1u32..=512, 1u8..=64, any::<u8>(), any::<i64>(), roots)
            .prop_map(move |(features, lane_count, slot_count, policy, created_ns, roots)| Self {
                pool_uuid: home.pool,
                features_compat: features[0],
                features_ro_compat: features[1],
                features_incompat: features[2],
                lane_count,
                slot_count,
                default_policy: policy,
                created_ns,
                roots,
            })
            .boxed()
    }

    fn encode(&self, _: &Home) -> Vec<u8> {
        Self::encode(self).to_vec()
    }

    fn decode(bytes: &[u8], _: &Home) -> Result<Self, LayoutError> {
        Self::decode(bytes.try_into().unwrap())
    }
}

impl Structure for SlotHeader {
    const SEED: &[Part] = &[];
    const CRC: Range<usize> = 12..16;

    fn any(home: Home) -> BoxedStrategy<Self> {
        let pages = SLOT_PAGES_MIN..=SLOT_PAGES_MAX;
        (any::<[u8; 16]>(), 0u8..64, any::<u8>(), pages, any::<[u64; 4]>())
            .prop_map(move |(slot_uuid, index, kind, pages, words)| Self {
                pool_uuid: home.pool,
                slot_uuid,
                index,
                kind,
                pages,
                endurance: words[0],
                wear_offset: words[1],
                bad_pages_offset: words[2],
                state_offset: words[3],
            })
            .boxed()
    }

    fn encode(&self, _: &Home) -> Vec<u8> {
        Self::encode(self).to_vec()
    }

    fn decode(bytes: &[u8], _: &Home) -> Result<Self, LayoutError> {
        Self::decode(bytes.try_into().unwrap())
    }
}

/// The structures of one line, whose `encode` and `decode` take a seed.
macro_rules! line {
    ($type:ty, $seed:expr, $crc:expr, $open:expr, |$home:ident| $any:expr) => {
        impl Structure for $type {
            const SEED: &[Part] = &$seed;
            const CRC: Range<usize> = $crc;
            const OPEN: Range<usize> = $open;

            fn any($home: Home) -> BoxedStrategy<Self> {
                $any.boxed()
            }

            fn encode(&self, home: &Home) -> Vec<u8> {
                <$type>::encode(self, home.seed(Self::SEED)).to_vec()
            }

            fn decode(bytes: &[u8], home: &Home) -> Result<Self, LayoutError> {
                <$type>::decode(bytes.try_into().unwrap(), home.seed(Self::SEED))
            }
        }
    };
}

line!(PoolState, [Part::Pool], 60..64, 0..0, |_home| {
    (seq(), 0..SESSION_LIMIT, any::<[u64; 2]>(), any::<[u32; 2]>(), page_or_null()).prop_map(
        |(seq, session, words, halves, saved_root)| Self {
            seq,
            session,
            flags: halves[0],
            saved_root,
            saved_bytes: words[0],
            saved_crc: halves[1],
            wear_summary: words[1],
        },
    )
});

line!(SlotState, [Part::Pool, Part::Addr], 60..64, 0..0, |_home| {
    let session = 0..=u64::from(SESSION_LIMIT);
    (seq(), session, any::<u64>(), any::<[u32; 2]>(), page_or_null()).prop_map(
        |(seq, session, evacuation_progress, halves, bad_page_root)| Self {
            seq,
            session,
            flags: halves[0],
            evacuation_state: halves[1],
            evacuation_progress,
            bad_page_root,
        },
    )
});

line!(WearLine, [Part::Pool, Part::Addr], 60..64, 0..0, |_home| {
    (seq(), 0..WearLine::LINES_LIMIT).prop_map(|(seq, lines)| Self { seq, lines })
});

line!(IdentityLine, [Part::Pool, Part::Ino], 0..4, 0..0, |home| {
    (kind(), 0u32..0o10000, any::<[u32; 5]>(), any::<u8>(), any::<i64>(), page_or_null()).prop_map(
        move |(kind, mode, halves, policy, birth_ns, xattr_root)| Self {
            version: IDENTITY_VERSION,
            kind,
            policy,
            ino: home.ino,
            generation: home.generation,
            mode: kind.with_mode(mode),
            uid: halves[0],
            gid: halves[1],
            birth_ns,
            rdev: halves[2],
            flags: halves[3],
            project: halves[4],
            xattr_root,
        },
    )
});

line!(CommitLine, [Part::Pool, Part::Ino], 60..64, 0..0, |_home| { commit_line() });

line!(
    LogPageHeader,
    [Part::Pool, Part::Ino, Part::Generation, Part::Addr],
    20..24,
    24..32,
    |home| {
        (any::<u32>(), seq(), link_or_none()).prop_map(move |(session, page_seq, next)| Self {
            ino: home.ino,
            generation: home.generation,
            session,
            page_seq,
            next,
        })
    }
);

line!(PairLine, [Part::Pool, Part::Ino, Part::Generation], 60..64, 0..0, |home| {
    (any::<[u64; 4]>(), page(), page_or_null(), any::<i64>(), any::<u32>())
        .prop_filter("a home in a slot's first page is none", |(_, home, ..)| home.byte() != 0)
        .prop_map(move |(words, page, partner, mtime_ns, data_crc)| Self {
            op_seq: words[0],
            ino: home.ino,
            home: page,
            partner,
            install_seq: words[1],
            word: words[2],
            changed: words[3],
            mtime_ns,
            data_crc,
        })
});

line!(SavedPageHeader, [Part::Pool, Part::Addr], 16..20, 0..0, |_home| {
    (page_or_null(), any::<u32>(), 0u32..=4032).prop_map(|(next, page_index, payload_bytes)| Self {
        next,
        page_index,
        payload_bytes,
    })
});

line!(
    XattrPageHeader,
    [Part::Pool, Part::Ino, Part::Generation, Part::Addr],
    60..64,
    0..0,
    |home| {
        let counts = (any::<u32>(), 1u32..=4032, any::<u32>(), 1u32..1 << 28, 0u32..8);
        (seq(), page_or_null(), counts).prop_map(move |(op_seq, next, counts)| Self {
            ino: home.ino,
            generation: home.generation,
            page_index: counts.0,
            next,
            op_seq,
            payload_bytes: counts.1,
            payload_crc: counts.2,
            pages: counts.3,
            summary: counts.4,
        })
    }
);

impl Structure for JournalRecord {
    const SEED: &[Part] = &[Part::Pool];
    const CRC: Range<usize> = 60..64;

    fn any(_: Home) -> BoxedStrategy<Self> {
        let line = (ino(), commit_line()).prop_map(|(ino, mut line)| {
            line.flags &= !CommitLine::HAS_DATA_CRC;
            (ino, line)
        });
        let lines = proptest::collection::vec(line, 1..=8);
        let head = (seq(), any::<u32>(), any::<u16>(), any::<u8>());
        let kind = proptest::sample::select(&JournalKind::ALL[..]);
        // A checksum of 0 is a checksum like any other.
        let data_crc = prop_oneof![Just(None), Just(Some(0)), any::<u32>().prop_map(Some)];
        (head, kind, data_crc, lines)
            .prop_map(|((lane_seq, session, lane, mask), kind, data_crc, items)| {
                let mut lines = JournalLines::new();
                for (ino, line) in &items {
                    lines.push(*ino, *line).unwrap();
                }
                let identity_mask = mask & (0xff >> (8 - items.len()));
                Self { lane_seq, session, lane, kind, data_crc, identity_mask, lines }
            })
            .boxed()
    }

    fn encode(&self, home: &Home) -> Vec<u8> {
        let (bytes, used) = Self::encode(self, home.seed(Self::SEED));
        assert!(bytes[used..].iter().all(|byte| *byte == 0));
        bytes[..used].to_vec()
    }

    /// Each commit line's own checksum stays outside; the line of further inodes has none.
    fn covers(index: usize, len: usize) -> bool {
        let further_inodes = index / 64 == 1 && len > 5 * 64;
        further_inodes || index % 64 < 60
    }

    /// After the used bytes lies what an earlier, longer record left.
    fn decode(bytes: &[u8], home: &Home) -> Result<Self, LayoutError> {
        let mut record = [0xa5; 1024];
        record[..bytes.len()].copy_from_slice(bytes);
        Self::decode(&record, home.seed(Self::SEED))
    }
}

/// An entry with the operation that wrote it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Logged(pub(crate) u64, pub(crate) Entry);

impl Structure for Logged {
    const SEED: &[Part] = &[Part::Pool, Part::Ino, Part::Generation];
    const CRC: Range<usize> = 0..4;

    fn any(_: Home) -> BoxedStrategy<Self> {
        (any::<u64>(), entry()).prop_map(|(op_seq, entry)| Self(op_seq, entry)).boxed()
    }

    fn encode(&self, home: &Home) -> Vec<u8> {
        let mut out = [0xa5; 320];
        let used = self.1.encode(self.0, home.seed(Self::SEED), &mut out);
        assert_eq!(used, self.1.lines() * 64);
        out[..used].to_vec()
    }

    /// After the entry lies the rest of its page.
    fn decode(bytes: &[u8], home: &Home) -> Result<Self, LayoutError> {
        let mut page = bytes.to_vec();
        page.extend([0x5a; 320]);
        let (header, entry) = Entry::decode(&page, home.seed(Self::SEED))?;
        assert_eq!(header.kind, entry.kind());
        assert_eq!(header.bytes(), entry.lines() * 64);
        Ok(Self(header.op_seq, entry))
    }
}

/// Calls a macro with a name and a type for each structure.
macro_rules! for_each_structure {
    ($call:ident) => {
        $call! { superblock, novale_layout::Superblock }
        $call! { pool_state_line, novale_layout::PoolState }
        $call! { slot_header, novale_layout::SlotHeader }
        $call! { slot_state_line, novale_layout::SlotState }
        $call! { wear_line, novale_layout::WearLine }
        $call! { identity_line, novale_layout::IdentityLine }
        $call! { commit_line, novale_layout::CommitLine }
        $call! { log_page_header, novale_layout::LogPageHeader }
        $call! { log_entry, $crate::structures::Logged }
        $call! { pair_line, novale_layout::PairLine }
        $call! { journal_record, novale_layout::JournalRecord }
        $call! { saved_page_header, novale_layout::SavedPageHeader }
        $call! { xattr_page_header, novale_layout::XattrPageHeader }
    };
}

pub(crate) use for_each_structure;
