//! One structure of a pool, found by following the pool's own addresses, and stored again with a
//! field changed and its checksum right.

use fastrand::Rng;
use novale_layout::{
    COMMIT_OFFSETS, CommitLine, ENTRY_BYTES_MAX, Entry, IDENTITY_OFFSET, INODE_SIZE,
    INODES_PER_PAGE, IdentityLine, Ino, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES, JournalLines,
    JournalRecord, LINE, LOG_NEXT_OFFSET, LogPageHeader, PAGE, POOL_STATE_OFFSETS, PmAddr,
    PoolState, SUPERBLOCK_BYTES, Seed, Superblock,
};
use novale_pm::{Pm, Purpose};

use super::values::{addr, ino, number, short, time};

/// Inodes looked for: sequences make no more.
const INODES: u64 = 128;

/// Changes something in the pool and says what; nothing, if what was chosen is not there.
pub fn wound(pm: &Pm, random: &mut Rng) -> Option<String> {
    let superblock: [u8; SUPERBLOCK_BYTES] = load(pm, PmAddr::new(0, 0))?;
    let surgeon = Surgeon {
        pm,
        seed: Superblock::decode(&superblock).map(|found| Seed::pool(&found.pool_uuid)).ok()?,
        superblock: Superblock::decode(&superblock).ok()?,
        pages: pm.slot_len(0) / PAGE,
    };
    match random.u32(0..16) {
        0 => surgeon.bytes(random),
        1 => surgeon.words(random),
        2 => surgeon.lines(random),
        3 => Some(surgeon.superblock(random)),
        4 => surgeon.pool_state(random),
        5 => surgeon.tables(random),
        6 => surgeon.journal(random),
        7..10 => surgeon.commit_line(random),
        10 => surgeon.identity(random),
        11 => surgeon.log_page(random),
        _ => surgeon.entry(random),
    }
}

struct Surgeon<'p> {
    pm: &'p Pm,
    seed: Seed,
    superblock: Superblock,
    pages: u64,
}

/// An inode in use or used once.
struct Patient {
    ino: Ino,
    at: PmAddr,
    seed: Seed,
    generation: u32,
    lines: Vec<(u64, CommitLine)>,
}

fn load<const N: usize>(pm: &Pm, at: PmAddr) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    pm.load(at, &mut bytes).ok()?;
    Some(bytes)
}

impl Surgeon<'_> {
    fn put(&self, at: PmAddr, bytes: &[u8]) {
        let dirty = self.pm.store(at, bytes, Purpose::Other);
        self.pm.fence(self.pm.write_back(dirty)).end();
    }

    /// A line that is not all zeros.
    fn used_line(&self, random: &mut Rng) -> Option<(PmAddr, [u8; 64])> {
        const TRIES: usize = 10_000;
        (0..TRIES).find_map(|_| {
            // Most of what is used lies in front.
            let pages = if random.bool() { self.pages.min(64) } else { self.pages };
            let at = PmAddr::new(0, random.u64(0..pages * PAGE / LINE) * LINE);
            let line = self.pm.load_line(at).ok()?;
            (line != [0; 64]).then_some((at, line))
        })
    }

    fn bytes(&self, random: &mut Rng) -> Option<String> {
        let (at, _) = self.used_line(random)?;
        let at = at.add(random.u64(0..LINE));
        let [byte] = load(self.pm, at)?;
        self.put(at, &[byte ^ (1 << random.u32(0..8))]);
        Some(format!("a bit at {at}"))
    }

    fn words(&self, random: &mut Rng) -> Option<String> {
        let (at, _) = self.used_line(random)?;
        let at = at.add(random.u64(0..8) * 8);
        let old = self.pm.load_u64(at).ok()?;
        let new = if random.bool() {
            number(random, old)
        } else {
            addr(random, PmAddr::from_raw(old), self.pages).raw()
        };
        self.put(at, &new.to_le_bytes());
        Some(format!("the word at {at}: {old:#x} to {new:#x}"))
    }

    fn lines(&self, random: &mut Rng) -> Option<String> {
        let (at, _) = self.used_line(random)?;
        let (from, line) = self.used_line(random)?;
        match random.u32(0..3) {
            0 => {
                self.put(at, &[0; 64]);
                Some(format!("the line at {at} blank"))
            }
            1 => {
                self.put(at, &line);
                Some(format!("the line at {from} copied to {at}"))
            }
            _ => {
                let page: [u8; 4096] = load(self.pm, from.page())?;
                self.put(at.page(), &page);
                Some(format!("the page at {} copied to {}", from.page(), at.page()))
            }
        }
    }

    fn superblock(&self, random: &mut Rng) -> String {
        let mut new = self.superblock;
        let what = match random.u32(0..6) {
            0 => "lane count",
            1 => "slot count",
            2 => "incompatible features",
            3 => "inode directory",
            4 => "lane table",
            _ => "read-only features",
        };
        match what {
            "lane count" => new.lane_count = short(random, new.lane_count).clamp(1, 512),
            "slot count" => new.slot_count = random.u8(1..=64),
            "incompatible features" => new.features_incompat = number(random, 0),
            "inode directory" => {
                new.roots.inode_directory =
                    addr(random, new.roots.inode_directory, self.pages).page();
            }
            "lane table" => {
                new.roots.lane_table = addr(random, new.roots.lane_table, self.pages).page();
            }
            _ => new.features_ro_compat = number(random, 0),
        }
        self.put(PmAddr::new(0, 0), &new.encode());
        format!("the superblock's {what}")
    }

    fn pool_state(&self, random: &mut Rng) -> Option<String> {
        let offset = *random.choice(&POOL_STATE_OFFSETS)?;
        let at = PmAddr::new(0, offset);
        let mut new = PoolState::decode(&self.pm.load_line(at).ok()?, self.seed).ok()?;
        let old = format!("{new:?}");
        match random.u32(0..6) {
            0 => new.seq = number(random, new.seq),
            1 => new.session = short(random, new.session),
            2 => new.flags ^= PoolState::CLEAN,
            3 => new.saved_root = addr(random, new.saved_root, self.pages).page(),
            4 => new.saved_bytes = number(random, new.saved_bytes),
            _ => new.saved_crc ^= 1,
        }
        self.put(at, &new.encode(self.seed));
        Some(format!("a pool state: {old} to {new:?}"))
    }

    /// A word of the inode directory, of a chunk's table, or of the lane table.
    fn tables(&self, random: &mut Rng) -> Option<String> {
        let roots = &self.superblock.roots;
        let table = match random.u32(0..5) {
            0 => roots.inode_directory,
            1 => self.word(roots.inode_directory)?,
            2 => roots.lane_table,
            _ => self.chunk_table()?,
        };
        let at = table.add(random.u64(0..6) * 8);
        let old = self.word(at)?;
        let new = addr(random, old, self.pages);
        self.put(at, &new.raw().to_le_bytes());
        Some(format!("the table word at {at}: {old} to {new}"))
    }

    fn word(&self, at: PmAddr) -> Option<PmAddr> {
        let aligned = at.byte().is_multiple_of(8);
        if aligned { self.pm.load_u64(at).ok().map(PmAddr::from_raw) } else { None }
    }

    fn journal(&self, random: &mut Rng) -> Option<String> {
        let page = self.word(self.superblock.roots.lane_table)?;
        let at = page.add(*random.choice(&JOURNAL_OFFSETS)?);
        let bytes: [u8; JOURNAL_RECORD_BYTES] = load(self.pm, at)?;
        let mut record = JournalRecord::decode(&bytes, self.seed).ok()?;
        let chosen = random.usize(0..record.lines.as_slice().len());
        let mut lines = JournalLines::new();
        for (index, (mut of, mut line)) in record.lines.as_slice().iter().copied().enumerate() {
            if index == chosen && random.bool() {
                of = ino(random, of);
            } else if index == chosen {
                self.change_line(&mut line, random);
            }
            line.flags &= !CommitLine::HAS_DATA_CRC;
            lines.push(of, line).ok()?;
        }
        record.lines = lines;
        match random.u32(0..4) {
            0 => record.session = short(random, record.session),
            1 => record.data_crc = None,
            2 => record.lane_seq = number(random, record.lane_seq),
            _ => {}
        }
        let (bytes, len) = record.encode(self.seed);
        self.put(at, bytes.get(..len)?);
        Some(format!("the record at {at}: {record:?}"))
    }

    fn change_line(&self, line: &mut CommitLine, random: &mut Rng) {
        match random.u32(0..10) {
            0 => line.op_seq = number(random, line.op_seq),
            1 => line.log_head = addr(random, line.log_head, self.pages).page(),
            2 | 3 => line.log_tail = addr(random, line.log_tail, self.pages),
            4 => line.log_tail = PmAddr::new(0, line.log_tail.byte() + 64 * random.u64(0..64)),
            5 => line.size = number(random, line.size),
            6 => line.nlink = short(random, line.nlink),
            7 => line.session = short(random, line.session),
            8 => line.mtime_ns = time(random, line.mtime_ns),
            _ => line.ctime_ns = time(random, line.ctime_ns),
        }
    }

    fn patient(&self, random: &mut Rng) -> Option<Patient> {
        let table = self.chunk_table()?;
        let mut found: Vec<Patient> = (1..INODES)
            .filter_map(|index| {
                let page = self.word(table.add(index / INODES_PER_PAGE * 8))?;
                self.patient_at(Ino::new(index), page.add(index % INODES_PER_PAGE * INODE_SIZE))
            })
            .collect();
        (!found.is_empty()).then(|| found.swap_remove(random.usize(0..found.len())))
    }

    /// The page that names the pages of the first inodes.
    fn chunk_table(&self) -> Option<PmAddr> {
        self.word(self.word(self.superblock.roots.inode_directory)?)
    }

    fn patient_at(&self, ino: Ino, at: PmAddr) -> Option<Patient> {
        let seed = self.seed.ino(ino);
        let identity = self.pm.load_line(at.add(IDENTITY_OFFSET)).ok()?;
        let identity = IdentityLine::decode(&identity, seed).ok()?;
        let lines = COMMIT_OFFSETS.iter().filter_map(|offset| {
            let line = self.pm.load_line(at.add(*offset)).ok()?;
            Some((*offset, CommitLine::decode(&line, seed).ok()?))
        });
        Some(Patient { ino, at, seed, generation: identity.generation, lines: lines.collect() })
    }

    fn commit_line(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let (offset, mut line) = *random.choice(&patient.lines)?;
        let old = format!("{line:?}");
        self.change_line(&mut line, random);
        self.put(patient.at.add(offset), &line.encode(patient.seed));
        Some(format!("a commit line of inode {}: {old} to {line:?}", patient.ino.get()))
    }

    fn identity(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let at = patient.at.add(IDENTITY_OFFSET);
        let mut line = IdentityLine::decode(&self.pm.load_line(at).ok()?, patient.seed).ok()?;
        match random.u32(0..4) {
            0 => line.generation = short(random, line.generation),
            1 => line.mode = line.mode & !0o7777 | short(random, 0) & 0o7777,
            2 => line.xattr_root = addr(random, line.xattr_root, self.pages).page(),
            _ => line.birth_ns = time(random, line.birth_ns),
        }
        self.put(at, &line.encode(patient.seed));
        Some(format!("the identity of inode {}: {line:?}", patient.ino.get()))
    }

    fn log_page(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let page = patient.lines.first()?.1.log_head;
        let seed = patient.seed.generation(patient.generation).addr(page);
        let mut header = LogPageHeader::decode(&self.pm.load_line(page).ok()?, seed).ok()?;
        if random.bool() {
            let next = addr(random, page, self.pages);
            self.put(page.add(LOG_NEXT_OFFSET), &next.raw().to_le_bytes());
            return Some(format!("the page behind {page} is {next}"));
        }
        header.page_seq = number(random, header.page_seq);
        self.put(page, &header.encode(seed));
        Some(format!("the log page {page}: {header:?}"))
    }

    /// An entry of the first log page, encoded again if that takes as many lines.
    fn entry(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let page = patient.lines.first()?.1.log_head;
        let seed = patient.seed.generation(patient.generation);
        let bytes: [u8; 4096] = load(self.pm, page)?;
        let mut places = Vec::new();
        let mut at = 64;
        while let Some((header, entry)) =
            bytes.get(at..).and_then(|rest| Entry::decode(rest, seed).ok())
        {
            places.push((at, header.op_seq, usize::from(header.lines), entry));
            at += usize::from(header.lines) * 64;
        }
        let count = places.len().max(1);
        let (at, mut op_seq, lines, mut entry) = places.into_iter().nth(random.usize(0..count))?;
        let old = format!("{entry:?}");
        if random.u32(0..5) == 0 {
            op_seq = number(random, op_seq);
        } else {
            self.change_entry(&mut entry, random);
        }
        let mut out = [0; ENTRY_BYTES_MAX];
        let len = entry.encode(op_seq, seed, &mut out);
        if len != lines * 64 {
            return None;
        }
        self.put(page.add(at as u64), out.get(..len)?);
        Some(format!("inode {}: {old} to {entry:?}, {op_seq}", patient.ino.get()))
    }

    fn change_entry(&self, entry: &mut Entry, random: &mut Rng) {
        match entry {
            Entry::Write { file_page, addr: at, count, .. } => match random.u32(0..3) {
                0 => {
                    let page = number(random, file_page.get()) % (1 << 52);
                    *file_page = novale_layout::FilePage::new(page);
                }
                1 => *at = addr(random, *at, self.pages).page(),
                _ => *count = short(random, *count).max(1),
            },
            Entry::Words(words) => {
                if let Some(word) = words.first_mut() {
                    word.word = number(random, word.word);
                }
            }
            Entry::Attributes(attributes) => attributes.atime_ns = time(random, 0),
            Entry::DentryAdd { ino: of, cookie, generation, .. } => match random.u32(0..3) {
                0 => *of = ino(random, *of),
                1 => *cookie = number(random, *cookie),
                _ => *generation = short(random, *generation),
            },
            Entry::DentryDelete { ino: of, cookie, .. } => {
                if random.bool() {
                    *of = ino(random, *of);
                } else {
                    *cookie = number(random, *cookie);
                }
            }
        }
    }
}
