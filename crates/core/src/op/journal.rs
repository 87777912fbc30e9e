//! The lanes' records as recovery finds them, and which of them count.

use std::collections::{BTreeMap, BTreeSet};

use novale_layout::{
    CommitLine, IDENTITY_OFFSET, Ino, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES, JournalRecord,
    LANE_TABLE_PAGE, PAGE, PmAddr, SEQ_RISE_LIMIT, Seed, decode_page_word,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::inode::media::MediaInode;
use crate::inode::state::{InodePlace, LogId};
use crate::log::covered::{covered_crc, no_entries_crc, record_crc};
use crate::seeded::{self, Bug};

/// The lanes' pages, by lane.
pub(crate) fn lane_pages(pm: &Pm, lanes: u32) -> Result<Vec<PmAddr>> {
    let table = PmAddr::new(0, LANE_TABLE_PAGE * PAGE);
    (0..u64::from(lanes))
        .map(|lane| {
            let at = table.add(lane * 8);
            let page = decode_page_word(pm.load_u64(at)?)
                .map_err(|error| Error::damaged(format!("page of lane {lane}"), at, error))?;
            if page.is_null() || !pm.may_hold(page, PAGE) {
                return Err(Error::damaged(format!("page of lane {lane}"), at, page));
            }
            Ok(page)
        })
        .collect()
}

/// A record and where it lies.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) at: PmAddr,
    body: JournalRecord,
    /// It is whole, or known to have been durable.
    pub(crate) good: bool,
    /// Why it can't be judged: nothing that it speaks of can be believed then.
    doubt: Option<Error>,
    /// That one of its inodes has no place. What it says of the others may count all the same.
    placeless: Option<Error>,
}

impl Record {
    /// Whether it is known if it counts.
    pub(crate) fn is_judged(&self) -> bool {
        self.doubt.is_none()
    }

    /// The inodes that it speaks of.
    pub(crate) fn inos(&self) -> impl Iterator<Item = Ino> {
        self.body.lines.iter().map(|(ino, _)| *ino)
    }
}

/// Inode pages are never given back, and durable before a record speaks of their inodes.
fn placeless(ino: Ino, record: PmAddr) -> Error {
    Error::damaged_inode(ino, "journal record", record, "a number without a place")
}

/// For each inode that records speak of: record and line.
type ByIno = BTreeMap<Ino, Vec<(usize, CommitLine)>>;

fn by_ino(records: &[Record]) -> ByIno {
    let mut found = ByIno::new();
    for (index, record) in records.iter().enumerate() {
        for (ino, line) in record.body.lines.iter() {
            found.entry(*ino).or_default().push((index, *line));
        }
    }
    found
}

/// All records of all lanes.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) records: Vec<Record>,
    by_ino: ByIno,
    /// The newest record number of each lane.
    pub(crate) last_seq: Vec<u64>,
    /// Where records are that a crash tore.
    pub(crate) torn: Vec<PmAddr>,
    /// Of lanes whose page is in a slot that is not there.
    lost: Vec<Error>,
}

impl Journal {
    /// Reads the records. None of them is judged yet.
    pub(crate) fn read(pm: &Pm, pool: Seed, pages: &[PmAddr]) -> Result<Self> {
        let mut this = Self::default();
        let read = if seeded::is_on(Bug::LanesByCpus) { 1 } else { pages.len() };
        for page in pages.iter().take(read) {
            let mut last_seq = 0;
            if pm.is_absent(page.slot()) {
                this.lost.push(Error::Lost(*page));
                this.last_seq.push(last_seq);
                continue;
            }
            for offset in JOURNAL_OFFSETS {
                let at = page.add(offset);
                let mut bytes = [0; JOURNAL_RECORD_BYTES];
                pm.load(at, &mut bytes)?;
                // A record that is blank or torn was not committed, or is being overwritten,
                // when its inodes' own lines are durable.
                let Ok(record) = JournalRecord::decode(&bytes, pool) else {
                    this.torn.extend(Some(at).filter(|_| bytes.iter().any(|byte| *byte != 0)));
                    continue;
                };
                last_seq = last_seq.max(record.lane_seq);
                let (doubt, placeless) = (None, None);
                this.records.push(Record { at, body: record, good: false, doubt, placeless });
            }
            this.last_seq.push(last_seq);
        }
        this.by_ino = by_ino(&this.records);
        Ok(this)
    }

    /// Refuses a lane whose records have a number that can't be counted on from.
    pub(crate) fn check_numbers(last_seq: &[u64], pages: &[PmAddr]) -> Result<()> {
        match last_seq.iter().zip(pages).find(|(seq, _)| **seq >= SEQ_RISE_LIMIT) {
            Some((seq, page)) => {
                Err(Error::damaged("journal", *page, format!("lane_seq {seq:#x}: all used up")))
            }
            None => Ok(()),
        }
    }

    /// Keeps the records that name one of these inodes.
    pub(crate) fn keep_naming(&mut self, inos: &BTreeSet<Ino>) {
        let records = std::mem::take(&mut self.records).into_iter();
        self.records = records
            .filter(|record| record.body.lines.iter().any(|(ino, _)| inos.contains(ino)))
            .collect();
        self.by_ino = by_ino(&self.records);
    }

    /// Judges the records of the session that crashed: one counts when its checksum holds, or
    /// when it is known to have been durable, since a newer line of one of its inodes exists. A
    /// record of an older session was durable when that session ended.
    pub(crate) fn judge(
        &mut self,
        pm: &Pm,
        pool: Seed,
        session: u32,
        place: &dyn Fn(Ino) -> Option<InodePlace>,
    ) -> Result<()> {
        for index in 0..self.records.len() {
            let judged = self.is_good(pm, pool, session, index, place);
            let Some(record) = self.records.get_mut(index) else { continue };
            let lost = record.body.lines.iter().find(|(ino, _)| place(*ino).is_none());
            record.placeless = lost.map(|(ino, _)| placeless(*ino, record.at));
            match judged {
                Ok(good) => record.good = good,
                Err(error) if error.is_damage() => record.doubt = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_good(
        &self,
        pm: &Pm,
        pool: Seed,
        session: u32,
        index: usize,
        place: &dyn Fn(Ino) -> Option<InodePlace>,
    ) -> Result<bool> {
        let Some(Record { at, body: record, .. }) = self.records.get(index) else {
            return Ok(false);
        };
        let Some(data_crc) = record.data_crc else {
            return Ok(true);
        };
        if record.session != session {
            return Ok(true);
        }
        let known = |(ino, line): &(Ino, CommitLine)| -> Result<bool> {
            let place = place(*ino).ok_or_else(|| placeless(*ino, *at))?;
            let media = MediaInode::read(pm, &place)?;
            let own = media.lines.iter().flatten().any(|own| own.op_seq >= line.op_seq);
            Ok(own || self.has_newer(*ino, line.op_seq))
        };
        for line in record.lines.iter() {
            if known(line)? {
                return Ok(true);
            }
        }
        let mut lines = Vec::new();
        let mut identities = Vec::new();
        for (bit, (ino, line)) in record.lines.iter().enumerate() {
            let Some(place) = place(*ino) else { return Ok(false) };
            let media = MediaInode::read(pm, &place)?;
            let identity = media.identity.ok();
            let generation = identity.as_ref().map_or(0, |identity| identity.generation);
            let id = LogId::new(pool, *ino, generation);
            let entries = if line.nlink == 0 {
                let early = seeded::is_on(Bug::EndedWithGeneration);
                no_entries_crc(if early { id.seed } else { place.seed }, line.op_seq)
            } else {
                match covered_crc(pm, &id, line) {
                    Ok(crc) => crc,
                    // It may have arrived, in a slot that is not there.
                    Err(Error::Lost(at)) if pm.is_absent(at.slot()) => return Err(Error::Lost(at)),
                    // What it covers did not arrive.
                    Err(error) if error.is_damage() => return Ok(false),
                    Err(error) => return Err(error),
                }
            };
            lines.push((*ino, line.op_seq, entries));
            if record.identity_mask >> bit & 1 != 0 {
                identities.push(pm.load_line(place.addr.add(IDENTITY_OFFSET))?);
            }
        }
        Ok(record_crc(pool, lines.into_iter(), identities.iter()) == data_crc)
    }

    /// Writes back the records that count, of the session that crashed: what rests on them is stored
    /// next.
    pub(crate) fn write_back(&self, pm: &Pm, session: u32) -> Flushed {
        let accepted =
            self.records.iter().filter(|record| record.good && record.body.session == session);
        accepted.fold(Flushed::none(), |pending, record| {
            let len = JOURNAL_RECORD_BYTES as u64;
            pending.and(pm.write_back_range(record.at, len, Purpose::Journal))
        })
    }

    /// Whether the record at a place counts, and why not, in words.
    pub(crate) fn verdict(&self, at: PmAddr) -> String {
        let Some(record) = self.records.iter().find(|record| record.at == at) else {
            return "not judged".to_owned();
        };
        match record.doubt.as_ref().or(record.placeless.as_ref()) {
            Some(doubt) => format!("can't be judged: {doubt}"),
            None if record.good => "counts".to_owned(),
            None => "does not count: what its data checksum covers is not there".to_owned(),
        }
    }

    /// Whether any record has a line of `ino` newer than `op_seq`.
    pub(crate) fn has_newer(&self, ino: Ino, op_seq: u64) -> bool {
        self.of(ino).iter().any(|(_, line)| line.op_seq > op_seq)
    }

    /// Why an inode's standing can't be told, where that is so.
    pub(crate) fn doubt(&self, ino: Ino) -> Option<&Error> {
        self.of(ino).iter().find_map(|(index, _)| self.records.get(*index)?.doubt.as_ref())
    }

    /// The records that can't be judged, or not be taken whole: why.
    pub(crate) fn doubts(&self) -> impl Iterator<Item = &Error> {
        self.records.iter().filter_map(|record| record.doubt.as_ref().or(record.placeless.as_ref()))
    }

    /// Of each lane that is lost, that its records can't be read. In a pool that was closed clean they say
    /// nothing that the inodes do not say themselves.
    pub(crate) fn lost(&self) -> &[Error] {
        &self.lost
    }

    /// The places of those records.
    pub(crate) fn doubtful(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.doubt.is_some() || record.placeless.is_some())
    }

    /// The records that speak of an inode, with its line in each.
    pub(crate) fn of(&self, ino: Ino) -> &[(usize, CommitLine)] {
        self.by_ino.get(&ino).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_good_record(&self, index: usize) -> bool {
        self.records.get(index).is_some_and(|record| record.good)
    }
}
