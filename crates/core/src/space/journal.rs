//! Lanes for the journal's records, where slots have failed as well.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Op, Owner};
use novale_layout::PmAddr;

use crate::base::error::{Error, Result};
use crate::space::failed::has_slot;
use crate::space::lane::Lane;
use crate::space::{Allocator, lane};

/// How often one who has a lane looks for another one that others have.
const SECOND_LANE_TRIES: u32 = 1 << 18;

/// What was found of lanes for a journal's record.
enum FoundLane<'a> {
    Found(Lane<'a>),
    /// Others have some, which may be as good.
    Held,
    /// All have lost something.
    Lost,
}

impl Allocator {
    /// As [`Self::lane`], one whose journal is in a slot that has not failed, and whose last record does not
    /// stand for lines that were lost.
    pub(crate) fn journal_lane<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        hint: u32,
    ) -> Result<Lane<'a>> {
        if self.lost_slots(arena) == 0 {
            match self.lane(arena, op, hint) {
                Ok(lane) if !self.has_lost(arena, &lane) => return Ok(lane),
                Err(error) if self.lost_slots(arena) == 0 => return Err(error),
                // A slot has failed meanwhile.
                Ok(_) | Err(_) => {}
            }
        }
        // Who waits may do so for one who has died, and can't be settled for as long as a slot is lost.
        match self.seek_journal_lane(arena, op, hint)? {
            FoundLane::Found(lane) => Ok(lane),
            FoundLane::Held => self.await_journal_lane(arena, op, hint),
            FoundLane::Lost => Err(self.no_lane(arena)),
        }
    }

    /// Waits for the lanes in turn, but for those whose journals are lost.
    #[cold]
    fn await_journal_lane<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        hint: u32,
    ) -> Result<Lane<'a>> {
        for step in 0..self.lane_count {
            let index = hint.wrapping_add(step);
            if self.is_lost(arena, lane::journal_page(arena, self.lane_at(index).1)?) {
                continue;
            }
            match self.lock_lane(arena, op, index) {
                Ok(lane) if !self.has_lost(arena, &lane) => return Ok(lane),
                Ok(_) | Err(Error::OwnerDead) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.no_lane(arena))
    }

    /// What to say where no lane can be had for what was lost.
    fn no_lane(&self, arena: &Arena) -> Error {
        let slot = self.lost_slots(arena).trailing_zeros();
        Error::Lost(PmAddr::new(u8::try_from(slot).unwrap_or(0), 0))
    }

    /// Looks at all lanes once for one that nobody has and that has lost nothing.
    fn seek_journal_lane<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        hint: u32,
    ) -> Result<FoundLane<'a>> {
        let mut found = FoundLane::Lost;
        for step in 0..self.lane_count {
            let (index, off) = self.lane_at(hint.wrapping_add(step));
            if self.is_lost(arena, lane::journal_page(arena, off)?) {
                continue;
            }
            // Looked at first: each try would take the word from the cache of who has the lane.
            let word = arena.word(off)?.load(Ordering::Relaxed);
            let free = if Owner::of_lock_word(word).is_none() { op.try_lock(off)? } else { None };
            let Some(guard) = free else {
                found = FoundLane::Held;
                continue;
            };
            let lane = Lane::new(arena, index, off, guard)?;
            if !self.has_lost(arena, &lane) {
                return Ok(FoundLane::Found(lane));
            }
        }
        Ok(found)
    }

    /// Whether a lane's journal has lost something: its place, or a line that its last record stands for.
    fn has_lost(&self, arena: &Arena, lane: &Lane<'_>) -> bool {
        let lost = self.lost_slots(arena);
        let mut places = [lane.journal().0].into_iter().chain(lane.own_lines());
        lost != 0 && places.any(|at| has_slot(lost, at.slot()))
    }

    /// As [`Self::journal_lane`], for one who has a lane, and so waits for no other one for ever; none where there is
    /// none, or others keep them all.
    pub(crate) fn second_journal_lane<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        hint: u32,
    ) -> Option<Lane<'a>> {
        for _ in 0..SECOND_LANE_TRIES {
            match self.seek_journal_lane(arena, op, hint).ok()? {
                FoundLane::Found(lane) => return Some(lane),
                FoundLane::Lost => return None,
                // Its journal's place is there, so that an owner who lives seeks no further lane, and gives it up
                // soon. One who has died keeps it for as long as a slot is lost.
                FoundLane::Held => std::hint::spin_loop(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use novale_arena::{PidInfo, Settler};
    use novale_pm::{Pm, PmOptions};

    use super::*;
    use crate::fixture::{CTX, MB, open};
    use crate::op::call::OpKind;
    use crate::space::failed::tell_failed;
    use crate::{MkfsOptions, mkfs};

    /// Settles for nobody, and counts how often it was asked to.
    struct SettlesNone(AtomicU32);

    impl Settler for SettlesNone {
        fn settle(&self, _: Owner) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    /// While a slot was lost each operation waited for a lane whose owner had died and could not be settled for, though
    /// other lanes were free; where all had lost their journals it waited for each of them in turn.
    #[test]
    fn nobody_is_waited_for_whose_lane_is_not_needed() {
        const HELD: u32 = 4;
        for (lost, found, asked) in [(0..HELD, Some(4), 0), (HELD..8, None, 4), (0..8, None, 0)] {
            let pm = Pm::anonymous(&[8 * MB; 2], &PmOptions::default()).unwrap();
            mkfs(&pm, &MkfsOptions::numbered(2, 8)).unwrap();
            let fs = open(pm);
            let arena = fs.arena();
            let call = fs.call(OpKind::Manage, &CTX);
            for index in 0..8 {
                let lane = fs.allocator.lock_lane(arena, &call.op, index).unwrap();
                lane.set_journal(PmAddr::new(u8::from(lost.contains(&index)), 1 << 20), 1);
            }
            drop(call);
            let process = PidInfo { start_time: 1 << 60, ..PidInfo::current() };
            let dead = arena.attach(process).unwrap();
            let others = dead.op(OpKind::Manage as u32, 0);
            let lock = |lane| others.lock(fs.allocator.lane_at(lane).1).unwrap();
            let _held: Vec<_> = (0..HELD).map(lock).collect();
            tell_failed(arena, 0b10);
            let settler = SettlesNone(AtomicU32::new(0));
            let mut op = fs.client.op(OpKind::Manage as u32, 0);
            op.set_settler(&settler);
            match fs.allocator.journal_lane(arena, &op, 0) {
                Ok(lane) => assert_eq!(Some(lane.index()), found, "{lost:?}"),
                Err(error) => {
                    assert!(matches!(error, Error::Lost(at) if at.slot() == 1), "{error}");
                    assert_eq!(found, None, "{lost:?}");
                }
            }
            assert_eq!(settler.0.load(Ordering::Relaxed), asked, "{lost:?}");
        }
    }
}
