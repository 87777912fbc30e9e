//! Commits: an operation counts once the inode's commit line, or a lane's journal record of
//! several inodes' lines, is durable together with all that it needs.
//!
//! One inode. Two-fence form: entries and data, fence, line, fence. Single-fence form: all of it
//! and the line, fence; the line carries a checksum of the rest, and recovery refuses a line whose
//! rest did not arrive, so that the other line stands. The line written is always the one that does
//! not stand, so a torn write of it loses nothing.
//!
//! Several inodes. The lane's record carries each inode's new line. Single-fence form: entries,
//! identity lines and record, fence; the record's checksum covers them. Two-fence form: a fence
//! before the record. After the fence the operation stores each inode's own line as well, and
//! leaves it in the cache: until they are durable the record stands for them. A lane has two records
//! in turn; a record's space is used again only when the own lines of its inodes are durable: those
//! of the last record are written back by the next one on the lane, whose fence completes them.
//! (Written back at once, they would make the next lock that is taken or released wait for them:
//! a fence in all but name.)

use std::sync::atomic::Ordering;

use novale_arena::Phase;
use novale_layout::{
    CommitLine, Ino, JOURNAL_OFFSETS, JOURNAL_RECORD_BYTES, JournalKind, JournalLines,
    JournalRecord, LINE, PmAddr, Seed,
};
use novale_pm::{Durable, Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::state::{InodePlace, State};
use crate::log::covered::record_crc;
use crate::op::call::{Call, OpKind};
use crate::op::lock::Locked;
use crate::op::quota::Counted;
use crate::seeded::{self, Bug};
use crate::space::failed::has_slot;
use crate::space::lane::Lane;

/// What a commit rests on.
#[derive(Debug)]
pub(crate) enum Rest {
    /// There is nothing but the line.
    Nothing,
    /// All of it is durable already.
    Durable(Durable),
    /// Written back, to be fenced first.
    Pending(Flushed),
    /// Written back, and covered by this checksum.
    Checksummed(Flushed, u32),
}

impl Rest {
    /// The rest in the form chosen.
    pub(crate) fn new(single: bool, pending: Flushed, crc: u32) -> Self {
        if single { Self::Checksummed(pending, crc) } else { Self::Pending(pending) }
    }
}

/// Commits one inode's `next` state; `next.slot` is the line that stands now and, on return, the
/// one written. Crash points: before the line (or its rest, checksummed) is durable the old line
/// stands; after it the new one.
pub(crate) fn one(
    pm: &Pm,
    session: u32,
    place: &InodePlace,
    next: &mut State,
    rest: Rest,
) -> Durable {
    next.slot ^= u8::from(!seeded::is_on(Bug::LineOverStanding));
    match rest {
        Rest::Pending(pending) if seeded::is_on(Bug::NoFenceBehindData) => {
            drop(pending);
            line_alone(pm, session, place, next)
        }
        Rest::Pending(pending) => {
            let durable = pm.fence(pending);
            pm.count_fence_before_commit();
            line_behind(pm, session, place, next, durable)
        }
        Rest::Durable(durable) => line_behind(pm, session, place, next, durable),
        Rest::Nothing => line_alone(pm, session, place, next),
        Rest::Checksummed(pending, crc) => {
            next.flags |= CommitLine::HAS_DATA_CRC;
            let line = place.stream_line(pm, next.slot, &next.line(session, Some(crc)));
            pm.fence(pending.and(line))
        }
    }
}

/// Stores the line whose rest is durable.
fn line_behind(
    pm: &Pm,
    session: u32,
    place: &InodePlace,
    next: &mut State,
    rest: Durable,
) -> Durable {
    rest.end();
    line_alone(pm, session, place, next)
}

fn line_alone(pm: &Pm, session: u32, place: &InodePlace, next: &mut State) -> Durable {
    next.flags &= State::REDO;
    pm.fence(place.stream_line(pm, next.slot, &next.line(session, None)))
}

/// Writes a certificate: the current state again, under an op_seq of its own (that of `state`) and
/// without a checksum, so that bytes which the last commit's checksum covers may change. It is
/// durable with the caller's next fence.
pub(crate) fn certificate(pm: &Pm, session: u32, place: &InodePlace, state: &mut State) -> Flushed {
    state.slot ^= u8::from(!seeded::is_on(Bug::CertificateOverStanding));
    state.flags = 0;
    place.stream_line(pm, state.slot, &state.line(session, None))
}

/// [`Bug::LinkCountInPlace`]: raises the link count in the line that stands.
pub(crate) fn raise_links_in_place(pm: &Pm, session: u32, place: &InodePlace, state: &State) {
    let raised = State { nlink: state.nlink + 1, ..*state };
    pm.fence(place.stream_line(pm, state.slot, &raised.line(session, None))).end();
}

/// One inode's share of a commit of several.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) ino: Ino,
    pub(crate) place: InodePlace,
    pub(crate) next: State,
    /// The checksum of the inode's new entries (of none, where it has none).
    pub(crate) crc: u32,
    /// A new identity line, stored and written back already.
    pub(crate) identity: Option<[u8; 64]>,
}

/// What the record of several inodes has to be fenced with.
#[derive(Debug)]
pub(crate) struct Owing {
    /// Stores that the commit needs, streamed or written back already.
    pub(crate) pending: Flushed,
    /// Whether the record's checksum covers them, so that one fence does for both.
    pub(crate) single: bool,
}

/// Commits several inodes at once through the lane's journal. Once the record is stored, `lost_slots` is asked for
/// those that are lost by then, by their bits; where the record is in one of these, `another` is asked for a further
/// lane, for the same record. Where there is none, each own line that can be durable is so at once.
fn many<'a>(
    pool @ (pm, ..): (&Pm, Seed, u32),
    (first, kind): (&Lane<'_>, JournalKind),
    parts: &mut [Part],
    owing: Owing,
    lost_slots: impl Fn() -> u64,
    another: impl Fn() -> Option<Lane<'a>>,
) -> Durable {
    let single = owing.single;
    let (mut stored, mut durable) = store_record(pool, (first, kind), parts, owing);
    let (mut further, mut lost) = (None, lost_slots());
    let mut is_without = false;
    // Each round one slot more is lost.
    while has_slot(lost, stored.at.slot()) {
        let Some(next) = another() else {
            is_without = true;
            break;
        };
        further.as_ref().unwrap_or(first).record_written(stored.seq, std::iter::empty());
        durable.end();
        let owing = Owing { pending: Flushed::none(), single };
        (stored, durable) = store_record(pool, (&next, kind), parts, owing);
        further = Some(next);
        lost = lost_slots();
    }
    let by_another = seeded::is_on(Bug::OwnLinesByAnother);
    let lines = JournalRecord::own_lines(&stored.bytes, stored.lines);
    for (part, line) in parts.iter_mut().zip(lines) {
        part.next.slot ^= 1;
        part.next.flags = 0;
        // Not written back: the record stands for the line until the lane's next one does that.
        let _own = part.place.store_line(pm, part.next.slot, line);
        if by_another {
            let addr = part.place.commit_addr(part.next.slot);
            drop(pm.write_back_range(addr, LINE, Purpose::Commit));
        }
    }
    let own_lines = parts.iter().map(|part| part.place.commit_addr(part.next.slot));
    if is_without {
        let lines = own_lines.clone().map(|addr| pm.write_back_range(addr, LINE, Purpose::Commit));
        durable.end();
        durable = pm.fence(lines.fold(Flushed::none(), Flushed::and));
    }
    let lane = further.as_ref().unwrap_or(first);
    // The lane's last record stands for what was lost as it was written back.
    let owed = lane.own_lines_in(lost);
    lane.record_written(stored.seq, own_lines.chain(owed));
    durable
}

/// A record that is stored.
struct StoredRecord {
    at: PmAddr,
    seq: u64,
    bytes: [u8; JOURNAL_RECORD_BYTES],
    /// How many it has.
    lines: usize,
}

/// Stores the record of several inodes in a lane's journal.
#[allow(clippy::inline_always, reason = "what it returns is 1 KB, made where it stays")]
#[inline(always)]
fn store_record(
    (pm, pool, session): (&Pm, Seed, u32),
    (lane, kind): (&Lane<'_>, JournalKind),
    parts: &[Part],
    owing: Owing,
) -> (StoredRecord, Durable) {
    let Owing { mut pending, single } = owing;
    let (page, seq) = lane.journal();
    let seq = seq + 1;
    let forgotten = seeded::is_on(Bug::OwnLinesForgotten) || seeded::is_on(Bug::OwnLinesByAnother);
    for addr in lane.own_lines().filter(|_| !forgotten) {
        pending = pending.and(pm.write_back_range(addr, LINE, Purpose::Commit));
    }
    if !single {
        pm.fence(std::mem::replace(&mut pending, Flushed::none())).end();
        pm.count_fence_before_commit();
    }
    let record = record(pool, session, lane, kind, seq, single, parts);
    let (bytes, len) = record.encode(pool);
    let [first, second] = JOURNAL_OFFSETS;
    let at = page.add(if seq.is_multiple_of(2) { first } else { second });
    let stored = pm.stream(at, bytes.get(..len).unwrap_or_default(), Purpose::Journal);
    let durable = pm.fence(pending.and(stored));
    (StoredRecord { at, seq, bytes, lines: record.lines.len() }, durable)
}

fn record(
    pool: Seed,
    session: u32,
    lane: &Lane<'_>,
    kind: JournalKind,
    seq: u64,
    single: bool,
    parts: &[Part],
) -> JournalRecord {
    let mut lines = JournalLines::new();
    let mut identity_mask = 0;
    for (index, part) in parts.iter().enumerate() {
        // No operation has more than four inodes, and a record holds eight.
        let pushed = lines.push(part.ino, part.next.line(session, None));
        debug_assert!(pushed.is_ok(), "a record of more than eight lines");
        if part.identity.is_some() {
            identity_mask |= 1 << index;
        }
    }
    let data_crc = single.then(|| {
        let lines = parts.iter().map(|part| (part.ino, part.next.op_seq, part.crc));
        record_crc(pool, lines, parts.iter().filter_map(|part| part.identity.as_ref()))
    });
    JournalRecord {
        lane_seq: seq,
        session,
        lane: lane.index(),
        kind,
        data_crc,
        identity_mask,
        lines,
    }
}

impl Fs {
    /// Commits one inode and publishes its new state; `publish` changes what else readers see. The state
    /// stays where it lies: to copy what was just put together waits for what was streamed before.
    pub(crate) fn commit(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        next: &mut State,
        rest: Rest,
        publish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // No line leads to what was lost. What was taken for it stays out of use until the next opening.
        if let Err(lost) = self.check_places(call, [locked.place.addr]) {
            // For readers that wait.
            locked.view.publish(|| ());
            return Err(lost);
        }
        call.op.forget_commits();
        call.op.note_commit(locked.id.ino.get(), next.op_seq, next.slot ^ 1);
        call.op.set_phase(Phase::Committing);
        // An operation that has one lock alone.
        let is_write = matches!(call.kind, OpKind::Write) && next.flags & State::REDO == 0;
        if seeded::is_on(Bug::UnlockedEarly) && is_write {
            return self.commit_unlocked(locked, *next, rest, publish);
        }
        if seeded::is_on(Bug::ShownEarly) {
            let slot = next.slot ^ 1;
            locked.view.publish(|| locked.view.set_state(&State { slot, ..*next }));
        }
        one(&self.pm, self.session, &locked.place, next, rest).end();
        if let Err(lost) = self.check_line(call, locked.place.addr) {
            locked.view.publish(|| ());
            return Err(lost);
        }
        call.op.set_phase(Phase::Fenced);
        let before = Counted::of(&locked.view);
        let published = locked.view.publish(|| {
            locked.view.set_state(next);
            publish()
        });
        // The pages are in the log and the index now. What the commit frees is known by the note of the
        // commit, until it is being given back.
        call.op.clear_notes_but_commits();
        call.op.set_phase(Phase::Published);
        // `?`, not `and`: `and` copies the error's bytes even on success, and that load stalls until the
        // streaming stores have drained.
        published?;
        self.recount(before, &locked.view)?;
        self.check_slots(call)
    }

    /// Refuses to show what a commit line says whose slot has failed since the operation began: it is lost, or it is in
    /// the slot when that is back. Until then nobody commits the inode, which lies in that slot itself, and what the
    /// line leads to stays out of use, so that either is sound, and what was buffered stays so.
    fn check_line(&self, call: &Call<'_>, place: PmAddr) -> Result<()> {
        match self.check_slots(call) {
            Err(lost) if self.allocator.is_lost(self.arena(), place) => Err(lost),
            _ => Ok(()),
        }
    }

    /// The slots that are lost by now, by their bits: found so by the operation, or told by another client, of whose
    /// finding this one has seen nothing yet.
    fn lost_by_now(&self, call: &Call<'_>) -> u64 {
        // What the operation has found is told to all, and it is refused once its change is shown.
        let _found = self.check_slots(call);
        self.allocator.lost_slots(self.arena())
    }

    /// As [`Fs::check_slots`], before inodes that lie there are committed.
    fn check_places(
        &self,
        call: &Call<'_>,
        inodes: impl IntoIterator<Item = PmAddr>,
    ) -> Result<()> {
        self.check_slots(call)?;
        match call.health.failed | self.pm.lacking() {
            0 => Ok(()),
            _ => {
                match inodes.into_iter().find(|place| self.allocator.is_lost(self.arena(), *place))
                {
                    Some(place) => Err(Error::Lost(place)),
                    None => Ok(()),
                }
            }
        }
    }

    /// [`Bug::UnlockedEarly`]: shows the change, and unlocks the file while it becomes durable.
    fn commit_unlocked(
        &self,
        locked: &Locked<'_>,
        mut next: State,
        rest: Rest,
        publish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        locked.view.publish(|| {
            locked.view.set_state(&State { slot: next.slot ^ 1, ..next });
            publish()
        })?;
        let lock = self.arena().word(locked.view.lock_off())?;
        let owner = lock.swap(0, Ordering::Release);
        one(&self.pm, self.session, &locked.place, &mut next, rest).end();
        while lock.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).is_err() {}
        Ok(())
    }

    /// Commits several inodes through the journal; the caller publishes, and asks
    /// [`Fs::check_slots`] then.
    pub(crate) fn commit_many(
        &self,
        call: &Call<'_>,
        lane: &Lane<'_>,
        kind: JournalKind,
        parts: &mut [Part],
        owing: Owing,
    ) -> Result<Durable> {
        self.check_places(call, parts.iter().map(|part| part.place.addr))?;
        call.op.forget_commits();
        for part in parts.iter() {
            call.op.note_commit(part.ino.get(), part.next.op_seq, part.next.slot ^ 1);
        }
        call.op.set_phase(Phase::Committing);
        if seeded::is_on(Bug::RecordOverAnothers)
            && seeded::by_another(lane.index(), self.client.info().slot)
        {
            let own_lines: Vec<PmAddr> = lane.own_lines().collect();
            lane.record_written(lane.journal().1 + 1, own_lines.into_iter());
        }
        let pool = (&self.pm, self.seed, self.session);
        // A record whose slot has failed is lost, or it is in the slot when that is back: others of its inodes are in
        // slots that go on, and can't wait for that. So their change is shown, and a further record stands for the lines
        // that were lost with the first; the two say the same. Where no other lane can be had the change is shown all
        // the same, since the numbers that the first has used may not be used for another one.
        let another = || self.allocator.second_journal_lane(self.arena(), &call.op, call.hint);
        let durable = many(pool, (lane, kind), parts, owing, || self.lost_by_now(call), another);
        call.op.set_phase(Phase::Fenced);
        Ok(durable)
    }
}

#[cfg(test)]
mod tests {
    use novale_pm::PmOptions;

    use super::*;
    use crate::fixture::{CTX, MB, open, with_file};
    use crate::log::covered::no_entries_crc;
    use crate::space::failed::tell_failed;
    use crate::{MkfsOptions, mkfs};

    /// Another client had told that a slot was lost, and this one, which had met nothing, forgot the lines there that
    /// the lane's last record stood for: the next record but one was stored over it.
    #[test]
    fn lines_stay_with_the_lane_though_another_client_found_them_lost() {
        let pm = Pm::anonymous(&[8 * MB; 2], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(2, 4)).unwrap();
        let fs = open(pm);
        let call = fs.call(OpKind::Attributes, &CTX);
        let root = fs.lock(&call, Ino::ROOT).unwrap();
        let lane = |index| fs.allocator.lock_lane(fs.arena(), &call.op, index).unwrap();
        let lane = (0..4).map(lane).find(|lane| lane.journal().0.slot() == 0).unwrap();
        let owed = PmAddr::new(1, 1 << 20);
        lane.record_written(lane.journal().1, std::iter::once(owed));
        tell_failed(fs.arena(), 0b10);
        let next = root.next_state();
        let crc = no_entries_crc(root.place.seed, next.op_seq);
        let mut parts = [Part { ino: Ino::ROOT, place: root.place, next, crc, identity: None }];
        let owing = Owing { pending: Flushed::none(), single: true };
        let done = fs.commit_many(&call, &lane, JournalKind::Create, &mut parts, owing);
        done.unwrap().end();
        let own = root.place.commit_addr(parts[0].next.slot);
        assert_eq!(lane.own_lines().collect::<Vec<_>>(), [own, owed]);
    }

    #[test]
    fn what_can_not_be_shown_is_told() {
        let (fs, ino) = with_file();
        let call = fs.call(OpKind::Attributes, &CTX);
        let file = fs.lock(&call, ino).unwrap();
        let refused = || Err(Error::NoMemory);
        let committed = fs.commit(&call, &file, &mut file.next_state(), Rest::Nothing, refused);
        assert!(matches!(committed, Err(Error::NoMemory)), "{committed:?}");
    }
}
