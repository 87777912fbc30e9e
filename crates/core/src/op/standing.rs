//! Which state of an inode stands after a crash.
//!
//! Candidates are its two lines and its lines in the journal's records; the greatest op_seq wins. A
//! line with a data checksum counts, in the session that crashed, only if the checksum holds, unless
//! a record shows a newer one of the inode, or a newer line was rejected: then it was durable before
//! that one was stored. A line without names counts in any case: only a durable record takes the last
//! name, and what its checksum covers may be in use elsewhere since.

use novale_layout::{COMMIT_OFFSETS, CommitLine, IdentityLine, Ino, LayoutError, PmAddr};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::inode::media;
use crate::inode::media::MediaInode;
use crate::inode::state::{InodePlace, LogId};
use crate::log::covered::covered_crc;
use crate::op::journal::Journal;
use crate::seeded::{self, Bug};

/// An inode as it stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) identity: Result<IdentityLine, LayoutError>,
    pub(crate) line: CommitLine,
    /// What recovery has to store so that the inode's own lines say so, by slot.
    pub(crate) install: [Option<CommitLine>; 2],
    /// Own lines that were refused.
    pub(crate) rejected: u32,
    /// What is wrong with own lines that do not validate and are not blank, by slot.
    pub(crate) torn: [Option<LayoutError>; 2],
    /// The line is from a record, and the inode's own are older: never in a pool closed clean.
    pub(crate) by_record: bool,
    /// The line was written in the session that crashed.
    pub(crate) is_recent: bool,
}

impl Standing {
    /// What is wrong with the first of its torn lines.
    pub(crate) fn torn(&self) -> Option<LayoutError> {
        self.torn.into_iter().flatten().next()
    }

    /// Where its torn lines are, that have to be zero, durably, before bytes that its log owes are
    /// stored: a certificate, cut off in its turn, may bring a torn line just what it lacks, and what
    /// that line says of the bytes in place has then been undone. Zeros are refused as the torn line was,
    /// so that whoever begins again puts a certificate there, and in a pool closed clean they stay damage.
    pub(crate) fn torn_lines(&self, place: &InodePlace) -> impl Iterator<Item = PmAddr> {
        torn_lines(self.torn, place)
    }
}

/// Where an inode's own lines are that are torn.
pub(crate) fn torn_lines(
    torn: [Option<LayoutError>; 2],
    place: &InodePlace,
) -> impl Iterator<Item = PmAddr> {
    let stay = seeded::is_on(Bug::TornLineStays);
    let torn = COMMIT_OFFSETS.into_iter().zip(torn).filter(move |_| !stay);
    let inode = place.addr;
    torn.filter_map(move |(offset, torn)| torn.map(|_| inode.add(offset)))
}

/// Decides an inode; `None` for one that was never used. Data checksums are asked for in the session
/// that crashed, if one did.
#[allow(clippy::inline_always, reason = "what it returns is 400 bytes, moved about once a call")]
#[inline(always)]
pub(crate) fn decide(
    pm: &Pm,
    crashed: Option<u32>,
    journal: &Journal,
    ino: Ino,
    place: &InodePlace,
) -> Result<Option<Standing>> {
    let media = MediaInode::decode(&MediaInode::lines(pm, place)?, place);
    let records = journal.of(ino);
    if media.is_blank() && records.is_empty() {
        return Ok(None);
    }
    if let Some(error) = journal.doubt(ino) {
        return Err(error.clone());
    }
    if let Some(found) = media.contradiction() {
        return Err(Error::damaged_inode(ino, "commit lines", place.addr, found));
    }
    let generation = media.identity.as_ref().map_or(0, |identity| identity.generation);
    let own = choose_own(pm, crashed, journal, ino, generation, place, &media)?;
    let from_record = records
        .iter()
        .filter(|(record, _)| journal.is_good_record(*record))
        .map(|(_, line)| line)
        .max_by_key(|line| if seeded::is_on(Bug::LaneOrder) { 0 } else { line.op_seq });
    let seen = media.lines.iter().flatten().map(|line| line.op_seq);
    let op_seq_max = seen.chain(records.iter().map(|(_, line)| line.op_seq)).max().unwrap_or(0);
    let own_line = own.slot.and_then(|slot| media.line(slot));
    let record_wins = match (from_record, own_line) {
        (Some(record), Some(line)) => record.op_seq > line.op_seq,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let standing = if record_wins { from_record } else { own_line };
    let Some(line) = standing else {
        if media.is_blank() {
            // Its creation was not committed. It stays blank: a certificate torn by a further
            // crash would be a line that nothing explains, and the next session starts above all
            // that this one has numbered.
            return Ok(None);
        }
        return Err(Error::damaged_inode(ino, "commit lines", place.addr, "neither validates"));
    };
    // Every op_seq ends: what was seen and does not stand is replaced by a certificate, under a
    // number of its own: two lines of one number, the certificate and what it replaces, would
    // leave it open which one stands. And a line that a crash tore is overwritten, so that one
    // found later is damage.
    let torn = media.torn_lines();
    let is_torn = torn.iter().any(Option::is_some);
    let open = own.rejected > 0 || is_torn || op_seq_max > line.op_seq;
    let needed = record_wins || (open && !seeded::is_on(Bug::RejectedNotEnded));
    let mut install = [None; 2];
    if needed {
        media::check_numbers(ino, place, op_seq_max, 0)?;
        let certificate = CommitLine {
            op_seq: op_seq_max + u64::from(!seeded::is_on(Bug::CertificateSameNumber)),
            log_tail: certificate_tail(&media, line),
            flags: 0,
            data_crc: 0,
            session: crashed.unwrap_or(line.session),
            ..*line
        };
        let slots = slots_to_write(&media, own.slot);
        install = slots.map(|write| write.then_some(certificate));
    }
    Ok(Some(Standing {
        by_record: record_wins,
        is_recent: crashed == Some(line.session),
        line: *line,
        identity: media.identity,
        install,
        rejected: own.rejected,
        torn,
    }))
}

/// The error of an inode of which a record says more than its own lines, where the pool was closed
/// clean and every line with it.
pub(crate) fn only_in_record(ino: Ino, place: &InodePlace) -> Error {
    let found = "older than its journal record, though the pool was closed clean";
    Error::damaged_inode(ino, "commit lines", place.addr, found)
}

/// The log's tail in a certificate: that of the line that stands.
fn certificate_tail(media: &MediaInode, line: &CommitLine) -> PmAddr {
    if !seeded::is_on(Bug::TailOfRejected) {
        return line.log_tail;
    }
    let newest = media.lines.iter().flatten().max_by_key(|line| line.op_seq);
    newest.map_or(PmAddr::NULL, |newest| newest.log_tail)
}

/// Which lines a certificate is written to: the one beside the line that stands; with none standing,
/// since the record does, every one that was written, or the first.
fn slots_to_write(media: &MediaInode, own_slot: Option<u8>) -> [bool; 2] {
    if let Some(slot) = own_slot {
        return [slot != 0, slot == 0];
    }
    let [first, second] = &media.lines;
    let written = |line: &Result<CommitLine, LayoutError>| *line != Err(LayoutError::Blank);
    [written(first) || !written(second), written(second)]
}

/// Which of the inode's own lines counts, and how many were refused before it.
#[derive(Default)]
struct Own {
    slot: Option<u8>,
    rejected: u32,
}

/// The newest of the inode's own lines that counts.
fn choose_own(
    pm: &Pm,
    crashed: Option<u32>,
    journal: &Journal,
    ino: Ino,
    generation: u32,
    place: &InodePlace,
    media: &MediaInode,
) -> Result<Own> {
    let [first, second] = &media.lines;
    let mut lines = [(first, 0), (second, 1)];
    if let (Ok(first), Ok(second)) = (first, second)
        && second.op_seq > first.op_seq
    {
        lines.reverse();
    }
    let mut own = Own::default();
    for (line, slot) in lines {
        let Ok(line) = line else { continue };
        let asked = line.has_data_crc()
            && line.nlink > 0
            && crashed == Some(line.session)
            && own.rejected == 0
            && !(media.torn_line().is_some() && seeded::is_on(Bug::TornNotAsked))
            && !journal.has_newer(ino, line.op_seq);
        if asked && !holds(pm, &LogId::in_place(ino, generation, place), line)? {
            own.rejected += 1;
            continue;
        }
        own.slot = Some(slot);
        break;
    }
    Ok(own)
}

/// Whether all that a line's checksum covers is there.
fn holds(pm: &Pm, id: &LogId, line: &CommitLine) -> Result<bool> {
    match covered_crc(pm, id, line) {
        Ok(crc) => Ok(crc == line.data_crc),
        // It may be there, in a slot that is not.
        Err(Error::Lost(at)) if pm.is_absent(at.slot()) => Err(Error::Lost(at)),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error),
    }
}
