//! A field, by its place in `docs/SPEC.md`, of a structure whose checksum stands in its middle or runs
//! over parts: superblock, slot header, log page, saved allocator, journal record. Any field, reserved
//! ones too, and the checksum made right again.

use std::ops::Range;

use fastrand::Rng;
use novale_layout::{
    Crc32c, Field, Ino, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES, PAGE, PmAddr, SLOT_HEADER_BYTES,
    SLOT_HEADER_OFFSET, SUPERBLOCK_BYTES, Seed, Structure,
};

use super::load;
use super::structures::Surgeon;
use super::values::number;

/// Bytes of a line, the last four of which are its checksum.
const LINE: usize = 64;
const COVERED: usize = 60;

/// Inodes that a record's first line names; more are in the second.
const HEADER_INOS: usize = 4;

/// Commit lines in a record.
const LINES_MAX: usize = 8;

/// A structure in place.
struct Sealed {
    structure: Structure,
    at: PmAddr,
    /// Where another copy of it is.
    twin: Option<PmAddr>,
    bytes: Vec<u8>,
    /// What its checksum does not cover, itself first.
    open: Range<usize>,
    /// Where its checksum begins; what a superblock or slot header has no seed for.
    crc_at: usize,
    seed: Option<Seed>,
}

impl Sealed {
    fn seal(&mut self) {
        let mut crc = self.seed.map_or_else(Crc32c::new, Crc32c::seeded);
        crc.update(self.bytes.get(..self.open.start).unwrap_or_default());
        crc.update(self.bytes.get(self.open.end..).unwrap_or_default());
        put_number(&mut self.bytes, self.crc_at, crc.finish());
    }
}

impl Surgeon<'_> {
    /// Changes a field of a structure with a checksum of its own kind.
    pub(super) fn field(&self, random: &mut Rng) -> Option<String> {
        let mut sealed = match random.u32(0..5) {
            0 => self.sealed_superblock(random)?,
            1 => self.sealed_slot_header(random)?,
            2 => self.sealed_log_page(random)?,
            3 => self.sealed_saved_page()?,
            _ => return self.record_field(random),
        };
        let crc_at = sealed.crc_at;
        let fields = sealed.structure.fields().iter().filter(|field| field.offset != crc_at);
        let field = random.choice(fields.copied().collect::<Vec<_>>())?;
        let what = change(&mut sealed.bytes, 0, &field, random)?;
        sealed.seal();
        for at in sealed.twin.into_iter().chain([sealed.at]) {
            self.put(at, &sealed.bytes);
        }
        Some(format!("{} at {}: {what}", sealed.structure.title(), sealed.at))
    }

    fn sealed_superblock(&self, random: &mut Rng) -> Option<Sealed> {
        let last = self.pm.slot_count() - 1;
        let replica = PmAddr::new(last, self.pm.slot_len(last) - PAGE);
        let at = PmAddr::new(0, 0);
        let bytes = load::<SUPERBLOCK_BYTES>(self.pm, at)?.to_vec();
        let twin = random.bool().then_some(replica);
        let structure = Structure::Superblock;
        Some(Sealed { structure, at, twin, bytes, open: 12..16, crc_at: 12, seed: None })
    }

    fn sealed_slot_header(&self, random: &mut Rng) -> Option<Sealed> {
        let slot = random.u8(0..self.pm.slot_count());
        let at = PmAddr::new(slot, SLOT_HEADER_OFFSET);
        let replica = PmAddr::new(slot, self.pm.slot_len(slot) - PAGE + SLOT_HEADER_OFFSET);
        let bytes = load::<SLOT_HEADER_BYTES>(self.pm, at)?.to_vec();
        let twin = random.bool().then_some(replica);
        let structure = Structure::SlotHeader;
        Some(Sealed { structure, at, twin, bytes, open: 12..16, crc_at: 12, seed: None })
    }

    /// The next pointer is not under the checksum: it changes in place.
    fn sealed_log_page(&self, random: &mut Rng) -> Option<Sealed> {
        let patient = self.patient(random)?;
        let at = self.page_of_log(&patient, random)?;
        let seed = Some(patient.seed.generation(patient.generation).addr(at));
        let bytes = self.pm.load_line(at).ok()?.to_vec();
        let structure = Structure::LogPage;
        Some(Sealed { structure, at, twin: None, bytes, open: 20..32, crc_at: 20, seed })
    }

    fn sealed_saved_page(&self) -> Option<Sealed> {
        let (_, state) = self.saving_state()?;
        let at = state.saved_root;
        let bytes = self.pm.load_line(at).ok()?.to_vec();
        let (structure, seed) = (Structure::SavedPage, Some(self.seed.addr(at)));
        Some(Sealed { structure, at, twin: None, bytes, open: 16..20, crc_at: 16, seed })
    }

    /// A field of a journal record's head or of a commit line in it; both have checksums.
    fn record_field(&self, random: &mut Rng) -> Option<String> {
        let at = self.journal_page()?.add(*random.choice(&JOURNAL_OFFSETS)?);
        let mut record = load::<JOURNAL_RECORD_BYTES>(self.pm, at)?.to_vec();
        let (first, used) = lines_of(&record)?;
        let (structure, line) = match random.usize(0..used) {
            0 => (Structure::JournalHeader, 0),
            1 if first == 2 => (Structure::JournalInos, 1),
            line => (Structure::Commit, line),
        };
        let fields = structure.fields().iter().filter(|field| field.name != "crc");
        let field = random.choice(fields.copied().collect::<Vec<_>>())?;
        let what = change(&mut record, line * LINE, &field, random)?;
        // The count may be another one now.
        let (first, used) = lines_of(&record)?;
        for index in first..used {
            self.seal_record_line(&mut record, index, index - first)?;
        }
        let mut crc = Crc32c::seeded(self.seed);
        for (index, line) in record.chunks(LINE).take(used).enumerate() {
            let is_inos = index == 1 && first == 2;
            crc.update(line.get(..if is_inos { LINE } else { COVERED })?);
        }
        put_number(&mut record, COVERED, crc.finish());
        self.put(at, record.get(..used * LINE)?);
        Some(format!("{} {line} of the record at {at}: {what}", structure.title()))
    }

    /// Makes the checksum of a commit line in a record right, for the inode that the record names.
    fn seal_record_line(&self, record: &mut [u8], line: usize, inode: usize) -> Option<()> {
        let (of, index) = match inode.checked_sub(HEADER_INOS) {
            None => (Structure::JournalHeader, inode),
            Some(index) => (Structure::JournalInos, index),
        };
        let start = if of == Structure::JournalHeader { 0 } else { LINE };
        let inos = named(of, "inos")?.numbers(record.get(start..)?);
        let ino = *inos.get(index)?;
        let seed = self.seed.ino(Ino::new(ino));
        let line = record.get_mut(line * LINE..(line + 1) * LINE)?;
        let mut crc = Crc32c::seeded(seed);
        crc.update(line.get(..COVERED)?);
        put_number(line, COVERED, crc.finish());
        Some(())
    }
}

/// The first commit line of a record, and how many lines it has in all; a count that none can have is
/// taken for what fits.
fn lines_of(record: &[u8]) -> Option<(usize, usize)> {
    let count = named(Structure::JournalHeader, "count")?.of(record)?;
    let count = usize::from(*count.first()?).min(LINES_MAX);
    let first = if count > HEADER_INOS { 2 } else { 1 };
    Some((first, first + count))
}

fn named(structure: Structure, name: &str) -> Option<Field> {
    structure.fields().iter().find(|field| field.name == name).copied()
}

/// Gives a field of a structure that begins at byte `start` another number; says which.
fn change(bytes: &mut [u8], start: usize, field: &Field, random: &mut Rng) -> Option<String> {
    let at = start + field.offset;
    let place = bytes.get_mut(at..at + field.bytes)?;
    // Of an array one word.
    let len = field.bytes.min(8);
    let word = random.usize(0..field.bytes.div_ceil(len)) * len;
    let end = (word + len).min(field.bytes);
    let place = place.get_mut(word..end)?;
    let mut old = [0; 8];
    old.get_mut(..place.len())?.copy_from_slice(place);
    let new = number(random, u64::from_le_bytes(old)).to_le_bytes();
    place.copy_from_slice(new.get(..place.len())?);
    let name = field.name;
    Some(format!("{name} from {:#x} to {:#x}", u64::from_le_bytes(old), u64::from_le_bytes(new)))
}

fn put_number(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use novale_core::{Form, Serial};
    use novale_pm::PmOptions;

    use super::super::{Kind, wound};
    use super::*;
    use crate::diff::{CoreMachine, make_pool, now_ns_at, open_pool};
    use crate::pool_file::PoolFile;
    use crate::workload::{Session, parse_steps, run_step};

    /// A structure whose checksum is wrong is told as such; what is resealed must never be.
    #[test]
    fn no_checksum_is_wrong_and_each_structure_has_its_turn() {
        let mut met = BTreeSet::new();
        for seed in 0..300 {
            let pool = PoolFile::zeroed(&[3 << 20]).unwrap();
            make_pool(&pool.open(&PmOptions::default()).unwrap(), 1).unwrap();
            let pm = pool.open(&PmOptions::default()).unwrap();
            let mut machine = CoreMachine::around(open_pool(pm, Form::Two, now_ns_at(0)).unwrap());
            let steps = "create /a kind=file mode=600 uid=0 gid=0 rdev=0 target=%\n\
                         create /b kind=file mode=600 uid=0 gid=0 rdev=0 target=%\n\
                         rename /a /b mode=replace\n";
            for step in parse_steps(steps).unwrap() {
                run_step(&mut machine, &mut Session::default(), &step, now_ns_at(1));
            }
            if seed % 2 == 0 {
                machine.close().unwrap();
            }
            drop(machine);
            let pm = pool.open(&PmOptions::default()).unwrap();
            let Some(what) = wound(&pm, Kind::Field, &mut Rng::with_seed(seed)) else { continue };
            let said = match novale_core::check(&pm, &Serial, &|_| ()) {
                Ok(report) => format!("{report:?}"),
                Err(why) => why.to_string(),
            };
            // By the pool's name all checksums but the superblock's are seeded.
            let renamed = what.contains("pool_uuid");
            assert!(renamed || !said.contains("checksum: expected"), "{what}: {said}");
            met.insert(what.split(" at ").next().unwrap_or_default().to_owned());
        }
        assert!(met.len() >= 6, "{met:?}");
    }
}
