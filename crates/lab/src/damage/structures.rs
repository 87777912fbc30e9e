//! One structure of a pool, found by following the pool's own addresses, and stored again with a
//! field changed and its checksum right.

use fastrand::Rng;
use novale_layout::{
    COMMIT_OFFSETS, CommitLine, Crc32c, ENTRY_BYTES_MAX, Entry, FileKind, IDENTITY_OFFSET,
    INODE_SIZE, INODES_PER_PAGE, IdentityLine, Ino, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES,
    JournalLines, JournalRecord, LOG_NEXT_OFFSET, LogLink, LogPageHeader, MAX_SLOTS, PAGE,
    POOL_STATE_OFFSETS, Partner, PmAddr, PoolState, Redo, SAVED_PAYLOAD_OFFSET, SEQ_LIMIT,
    SIZE_LIMIT, SLOT_HEADER_OFFSET, SLOT_STATE_OFFSETS, SOURCE_BYTES_MAX, SUPERBLOCK_BYTES,
    SavedPageHeader, Seed, SlotHeader, SlotState, Superblock,
};
use novale_pm::Pm;

use super::values::{addr, ino, number, short, time};
use super::{Kind, load, put};

/// Inodes looked for: sequences make no more.
const INODES: u64 = 128;
/// Pages looked for of a log.
const LOG_PAGES: usize = 32;

/// Changes a structure of that kind and says what; nothing, if there is none of it.
pub(super) fn wound(pm: &Pm, kind: Kind, random: &mut Rng) -> Option<String> {
    let superblock: [u8; SUPERBLOCK_BYTES] = load(pm, PmAddr::new(0, 0))?;
    let superblock = Superblock::decode(&superblock).ok()?;
    let seed = Seed::pool(&superblock.pool_uuid);
    let surgeon = Surgeon { pm, seed, superblock, pages: pm.slot_len(0) / PAGE };
    match kind {
        Kind::Superblock => Some(surgeon.superblock(random)),
        Kind::SlotHeader => surgeon.slot_header(random),
        Kind::PoolState => surgeon.pool_state(random),
        Kind::SlotState => surgeon.slot_state(random),
        Kind::Saved => surgeon.saved(random),
        Kind::Tables => surgeon.tables(random),
        Kind::Journal => surgeon.journal(random),
        Kind::CommitLine => surgeon.commit_line(random),
        Kind::Identity => surgeon.identity(random),
        Kind::LogPage => surgeon.log_page(random),
        Kind::LogCycle => surgeon.log_cycle(random),
        Kind::Entry => surgeon.entry(random),
        Kind::NameCycle => surgeon.name_cycle(random),
        Kind::Resealed => surgeon.resealed(random),
        Kind::Name => surgeon.name(random),
        Kind::Xattrs => surgeon.xattrs(random),
        Kind::Field => surgeon.field(random),
        Kind::Bits
        | Kind::Word
        | Kind::Line
        | Kind::Torn
        | Kind::Zeroed
        | Kind::Noise
        | Kind::CutOff => None,
    }
}

/// Finds a pool's structures.
pub(super) struct Surgeon<'p> {
    pub(super) pm: &'p Pm,
    pub(super) seed: Seed,
    superblock: Superblock,
    pub(super) pages: u64,
}

/// An inode in use or used once.
pub(super) struct Patient {
    pub(super) ino: Ino,
    pub(super) at: PmAddr,
    pub(super) seed: Seed,
    pub(super) generation: u32,
    lines: Vec<(u64, CommitLine)>,
}

impl Surgeon<'_> {
    pub(super) fn put(&self, at: PmAddr, bytes: &[u8]) {
        put(self.pm, at, bytes);
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
        if random.bool() {
            // Of one slot only: the replica lies at the end of the last.
            let last = self.pm.slot_count() - 1;
            let page = self.pm.slot_len(last) / PAGE - 1;
            self.put(PmAddr::new(last, page * PAGE), &new.encode());
        }
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

    fn slot_header(&self, random: &mut Rng) -> Option<String> {
        let slot = random.u8(0..self.pm.slot_count());
        let pages = self.pm.slot_len(slot) / PAGE;
        let page = if random.bool() { 0 } else { pages.saturating_sub(1) };
        let at = PmAddr::new(slot, page * PAGE + SLOT_HEADER_OFFSET);
        let mut new = SlotHeader::decode(&load(self.pm, at)?).ok()?;
        match random.u32(0..6) {
            0 => new.pool_uuid = [random.u8(..); 16],
            1 => new.index = random.u8(0..MAX_SLOTS),
            2 => new.state_offset = number(random, new.state_offset),
            _ => new.pages = number(random, new.pages),
        }
        self.put(at, &new.encode());
        Some(format!("the header at {at}: {new:?}"))
    }

    fn slot_state(&self, random: &mut Rng) -> Option<String> {
        let slot = random.u8(0..self.pm.slot_count());
        let at = PmAddr::new(slot, *random.choice(&SLOT_STATE_OFFSETS)?);
        let seed = self.seed.addr(PmAddr::new(slot, 0));
        let mut new = SlotState::decode(&self.pm.load_line(at).ok()?, seed).ok()?;
        match random.u32(0..3) {
            0 => new.seq = number(random, new.seq),
            1 => new.session = number(random, new.session),
            _ => new.evacuation_state = short(random, new.evacuation_state),
        }
        self.put(at, &new.encode(seed));
        Some(format!("the slot state at {at}: {new:?}"))
    }

    /// The newest pool state line that names a saved allocator.
    pub(super) fn saving_state(&self) -> Option<(PmAddr, PoolState)> {
        let states = POOL_STATE_OFFSETS.iter().filter_map(|offset| {
            let at = PmAddr::new(0, *offset);
            let state = PoolState::decode(&self.pm.load_line(at).ok()?, self.seed).ok()?;
            (!state.saved_root.is_null()).then_some((at, state))
        });
        states.max_by_key(|(_, state)| state.seq)
    }

    /// A page header of the saved allocator, or a word after it with the pool state's checksum
    /// right: what the bitmaps say.
    fn saved(&self, random: &mut Rng) -> Option<String> {
        let (at, mut state) = self.saving_state()?;
        let root = state.saved_root;
        let seed = self.seed.addr(root);
        let mut header = SavedPageHeader::decode(&self.pm.load_line(root).ok()?, seed).ok()?;
        match random.u32(0..5) {
            0 => header.next = addr(random, header.next, self.pages).page(),
            1 => header.page_index = short(random, header.page_index),
            2 => header.payload_bytes = short(random, header.payload_bytes) % 4033,
            _ => {
                let word = root.add(SAVED_PAYLOAD_OFFSET + random.u64(0..64) * 8);
                let new = number(random, self.pm.load_u64(word).ok()?);
                self.put(word, &new.to_le_bytes());
                let mut bytes = vec![0; usize::try_from(state.saved_bytes.min(4032)).ok()?];
                self.pm.load(root.add(SAVED_PAYLOAD_OFFSET), &mut bytes).ok()?;
                let mut crc = Crc32c::new();
                crc.update(&bytes);
                state.saved_crc = crc.finish();
                self.put(at, &state.encode(self.seed));
                return Some(format!("the saved allocator's word at {word}: {new:#x}"));
            }
        }
        self.put(root, &header.encode(seed));
        Some(format!("the saved allocator's page {root}: {header:?}"))
    }

    /// A word of the inode directory, of a chunk's table, or of the lane table.
    fn tables(&self, random: &mut Rng) -> Option<String> {
        let roots = &self.superblock.roots;
        let table = match random.u32(0..5) {
            0 => roots.inode_directory,
            1 => self.page_named(roots.inode_directory)?,
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

    /// The page that a word leads into, which another wound may have moved.
    fn page_named(&self, at: PmAddr) -> Option<PmAddr> {
        self.word(at).map(PmAddr::page)
    }

    /// The first lane's page.
    pub(super) fn journal_page(&self) -> Option<PmAddr> {
        self.page_named(self.superblock.roots.lane_table)
    }

    fn journal(&self, random: &mut Rng) -> Option<String> {
        let page = self.journal_page()?;
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
        let (lane_seq, session) = (record.lane_seq, record.session);
        let lines: Vec<_> = record.lines.iter().collect();
        Some(format!("the record at {at}: {lane_seq} of session {session}, {lines:?}"))
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

    pub(super) fn patient(&self, random: &mut Rng) -> Option<Patient> {
        let mut found: Vec<Patient> =
            (1..INODES).filter_map(|index| self.patient_of(Ino::new(index))).collect();
        (!found.is_empty()).then(|| found.swap_remove(random.usize(0..found.len())))
    }

    /// The page that names the pages of the first inodes.
    fn chunk_table(&self) -> Option<PmAddr> {
        self.page_named(self.page_named(self.superblock.roots.inode_directory)?)
    }

    fn patient_of(&self, ino: Ino) -> Option<Patient> {
        let word = self.chunk_table()?.add(ino.index() / INODES_PER_PAGE * 8);
        let page = self.page_named(word)?;
        self.patient_at(ino, page.add(ino.index() % INODES_PER_PAGE * INODE_SIZE))
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

    /// A page of the log that some line of the inode names, by walking its next pointers.
    pub(super) fn page_of_log(&self, patient: &Patient, random: &mut Rng) -> Option<PmAddr> {
        let (_, line) = random.choice(&patient.lines)?;
        let mut pages = Vec::new();
        let mut page = line.log_head;
        while !page.is_null() && pages.len() < LOG_PAGES && !pages.contains(&page) {
            let Some(next) = self.page_named(page.add(LOG_NEXT_OFFSET)) else { break };
            pages.push(page);
            page = next;
        }
        random.choice(&pages).copied()
    }

    /// A page's successor becomes one before it, or itself, and the numbers go on rising if they can.
    fn log_cycle(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let (from, to) = (self.page_of_log(&patient, random)?, self.page_of_log(&patient, random)?);
        let link = LogLink::from_raw(self.pm.load_u64(from.add(LOG_NEXT_OFFSET)).ok()?);
        self.put(from.add(LOG_NEXT_OFFSET), &link.with_next(to).raw().to_le_bytes());
        if random.bool() {
            let seed = patient.seed.generation(patient.generation).addr(to);
            let mut header = LogPageHeader::decode(&self.pm.load_line(to).ok()?, seed).ok()?;
            header.page_seq = header.page_seq.saturating_add(random.u64(1..5)) % SEQ_LIMIT;
            self.put(to, &header.encode(seed));
        }
        Some(format!("inode {}: behind log page {from} follows {to}", patient.ino.get()))
    }

    /// A name leads to a directory above it, to itself, or a second time to a directory.
    fn name_cycle(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let other = if random.bool() { self.patient(random)? } else { self.patient_of(Ino::ROOT)? };
        self.change_entries(&patient, random, |entry, _| {
            let Entry::DentryAdd { ino, generation, kind, .. } = entry else { return false };
            (*ino, *generation, *kind) = (other.ino, other.generation, FileKind::Directory);
            true
        })
    }

    fn log_page(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        let page = self.page_of_log(&patient, random)?;
        let seed = patient.seed.generation(patient.generation).addr(page);
        let mut header = LogPageHeader::decode(&self.pm.load_line(page).ok()?, seed).ok()?;
        if random.bool() {
            let next = addr(random, page, self.pages);
            // The word says where the page ends, too.
            let end = if next.is_null() { 0 } else { header.next.raw() % PAGE };
            self.put(page.add(LOG_NEXT_OFFSET), &(next.raw() ^ end).to_le_bytes());
            return Some(format!("the page behind {page} is {next}"));
        }
        header.page_seq = number(random, header.page_seq);
        self.put(page, &header.encode(seed));
        Some(format!("the log page {page}: {header:?}"))
    }

    fn entry(&self, random: &mut Rng) -> Option<String> {
        let patient = self.patient(random)?;
        self.change_entries(&patient, random, |entry, random| {
            self.change_entry(entry, random);
            true
        })
    }

    /// An entry of one of the inode's log pages: its place, operation, bytes and meaning.
    pub(super) fn entry_of(
        &self,
        patient: &Patient,
        random: &mut Rng,
    ) -> Option<(PmAddr, u64, Vec<u8>, Entry)> {
        let page = self.page_of_log(patient, random)?;
        let seed = patient.seed.generation(patient.generation);
        let bytes: [u8; 4096] = load(self.pm, page)?;
        let mut places = Vec::new();
        let mut at = 64;
        while let Some((header, entry)) =
            bytes.get(at..).and_then(|rest| Entry::decode(rest, seed).ok())
        {
            let end = at + usize::from(header.lines) * 64;
            let place = page.add(at as u64);
            places.push((place, header.op_seq, bytes.get(at..end)?.to_vec(), entry));
            at = end;
        }
        let count = places.len().max(1);
        places.into_iter().nth(random.usize(0..count))
    }

    /// Changes one entry of a log page, encoded again if that takes as many lines.
    fn change_entries(
        &self,
        patient: &Patient,
        random: &mut Rng,
        change: impl Fn(&mut Entry, &mut Rng) -> bool,
    ) -> Option<String> {
        let (at, mut op_seq, bytes, mut entry) = self.entry_of(patient, random)?;
        let seed = patient.seed.generation(patient.generation);
        let old = format!("{entry:?}");
        if random.u32(0..5) == 0 {
            op_seq = number(random, op_seq);
        } else if !change(&mut entry, random) {
            return None;
        }
        let mut out = [0; ENTRY_BYTES_MAX];
        let len = entry.encode(op_seq, seed, &mut out);
        if len != bytes.len() {
            return None;
        }
        self.put(at, out.get(..len)?);
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
            Entry::Pair(pair) => match random.u32(0..4) {
                0 => pair.word = number(random, pair.word),
                1 => pair.changed = number(random, pair.changed).max(1),
                2 => pair.home = addr(random, pair.home, self.pages).page(),
                _ => {
                    let page = addr(random, pair.partner.page(), self.pages).page();
                    let shift = random.u32(0..64);
                    let is_shared = random.bool();
                    let slots = Partner::slots(page, shift);
                    pair.partner = if is_shared { slots } else { Partner::own(page) };
                }
            },
            Entry::Attributes(attributes) => attributes.atime_ns = time(random, 0),
            Entry::DentryAdd { ino: of, cookie, generation, .. } => match random.u32(0..3) {
                0 => *of = ino(random, *of),
                1 => *cookie = number(random, *cookie),
                _ => *generation = short(random, *generation),
            },
            Entry::Redo(redo) => {
                let offset = number(random, redo.offset()) % SIZE_LIMIT;
                (*redo, _) = Redo::first_of(offset, redo.bytes());
            }
            Entry::Source(source) => match random.u32(0..3) {
                0 => source.from = addr(random, source.from, self.pages),
                1 => source.length = short(random, source.length).clamp(1, SOURCE_BYTES_MAX),
                _ => source.offset = number(random, source.offset) % SIZE_LIMIT,
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
