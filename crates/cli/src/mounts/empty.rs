//! The daemon's part in a slot's coming and leaving: it adds one, or it empties the slot that leaves while the pool is
//! used, so many pages a second, until it is asked to let it stay. What is asked, and how far it is, stands in the
//! arena. One that an earlier daemon has begun with is gone on with. While nothing is asked it moves pages that nobody
//! writes to slots that are worn.

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use novale_arena::PidInfo;
use novale_core::{
    Beside, ColdMove, Ctx, EmptyState, Error, Fs, Ino, OfferedSlot, SlotAsk, inspect, look_at_slot,
};
use novale_fuse::{KIND, MountEntry, MountTable, start_thread};
use novale_layout::PAGE;
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use novale_posix::wall_clock_ns;

use crate::base::out::in_words;
use crate::base::voice::Voice;
use crate::holders::able::{self, ComingFile};
use crate::holders::facts::{Changing, of_changing};
use crate::holders::offered::Offered;

/// Pages a second, unless said: 16 MB.
const PACE: u32 = 4096;

/// Pages a second of a mount that was asked for so many bytes.
pub(crate) fn pace(bytes: Option<u64>) -> u32 {
    let pages = |bytes: u64| u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX);
    bytes.map_or(PACE, pages).max(1)
}

/// Seconds after which a file that nobody has changed is taken to be cold, unless said.
const COLD_AFTER: u32 = 600;

/// How long a file of a mount that was asked for so many seconds is unchanged when it is cold; none: no file is.
pub(crate) fn cold_after(seconds: Option<u32>) -> Option<Duration> {
    let seconds = seconds.unwrap_or(COLD_AFTER);
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// How often is looked whether cold files are to be moved: a tenth of the time after which they are, within this.
const COLD_LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// How long nothing is looked at while nothing is asked.
const IDLE: Duration = Duration::from_secs(600);
/// How often is looked after files that are mapped.
const MAPPED: Duration = Duration::from_secs(10);
/// And whether a mount was made read-only, or may be written to again.
const READ_ONLY: Duration = Duration::from_secs(1);
/// And after operations that have pages there in hand.
const IN_HAND: Duration = Duration::from_millis(100);

/// How often, and how many times, is looked after operations that a slot which came waits for, before it is said that
/// it was added.
const OPEN_LOOK: Duration = Duration::from_millis(2);
const OPEN_TRIES: u32 = 500;

/// After a failure with nothing that was asked, which may come again at once.
const FAILED: Duration = Duration::from_secs(1);

/// No slot's number: an earlier call did not say which one is to go.
const NOT_KNOWN: u8 = u8::MAX;

/// What was asked, with its number.
type Ask = (u64, SlotAsk);

/// How it is done.
pub(crate) struct Manner {
    /// How a slot that comes is mapped.
    pub(crate) mapping: PmOptions,
    /// At how many pages a second what an earlier daemon began with is emptied, and cold files are moved.
    pub(crate) pace: u32,
    /// When a file is cold; none: never.
    pub(crate) cold_after: Option<Duration>,
    /// The mount's device number, major and minor.
    pub(crate) device: (u32, u32),
}

/// Starts the thread that does it, which ends with the pool; what others may know of it is told in `changing`.
pub(crate) fn start(
    fs: Arc<Fs>,
    voice: Arc<Voice>,
    changing: Changing,
    manner: Manner,
) -> Result<()> {
    let emptier = Emptier { fs, voice, changing, manner, read_only: Cell::default() };
    let run = move || emptier.run();
    start_thread("novale-empty", run)?;
    Ok(())
}

struct Emptier {
    fs: Arc<Fs>,
    voice: Arc<Voice>,
    changing: Changing,
    manner: Manner,
    /// Whether the mount is read-only, and until when that is believed.
    read_only: Cell<(bool, Option<Instant>)>,
}

fn now() -> Ctx {
    Ctx { now_ns: wall_clock_ns(), hint: 0 }
}

impl Emptier {
    fn run(&self) {
        // Of a pool that is just opened nothing is asked: its slots say what was begun.
        let begun = |_| (0, SlotAsk::Empty(self.begun_for(), self.manner.pace));
        let mut seen = 0;
        let mut ask = self.fs.leaving_slot().map(begun);
        let (mut cold_after, mut said) = (self.manner.cold_after, String::new());
        loop {
            let served = ask.map(|asked| asked.0);
            let next = match ask {
                Some(asked) => {
                    seen = asked.0;
                    self.serve(asked)
                }
                None => self.idle(seen, &mut cold_after),
            };
            let next = match next {
                Err(error) if !matches!(error, Error::Closed) => {
                    self.tell_failed(&error, served, &mut said);
                    self.fs.wait_for_slot_ask(seen, FAILED)
                }
                next => next,
            };
            match next {
                Ok(next) => ask = next,
                Err(_) => return,
            }
        }
    }

    /// Says why something failed, and that it did where it was asked for; of what comes again and again once.
    fn tell_failed(&self, error: &Error, served: Option<u64>, said: &mut String) {
        let words = format!("emptying a slot: {error}");
        if served.is_some() || words != *said {
            self.voice.say(&words);
            *said = words;
        }
        if let Some(turn) = served {
            self.fs.tell_emptying(turn, EmptyState::Failed);
        }
    }

    /// The slot that is to go by what the last one says; one that does not say is begun for itself, and stays
    /// until it is asked for again.
    fn begun_for(&self) -> u8 {
        let info = inspect(self.fs.pm());
        info.ok().and_then(|info| info.slots.last()?.goes).unwrap_or(NOT_KNOWN)
    }

    /// What is asked next, if anything is within a time, or as long as the mount is read-only: nothing moves then.
    fn next(&self, seen: u64, within: Duration) -> Result<Option<Ask>, Error> {
        let mut until = Instant::now() + within;
        loop {
            // One that came may wait for a process that is stopped.
            let is_open = self.fs.open_slots(&now())?;
            let left = until.saturating_duration_since(Instant::now());
            let next =
                self.fs.wait_for_slot_ask(seen, if is_open { left } else { left.min(IN_HAND) })?;
            if next.is_none() && !is_open && !left.is_zero() {
                continue;
            }
            if next.is_some() || left.is_zero() && !self.is_read_only() {
                return Ok(next);
            }
            if left.is_zero() {
                until = Instant::now() + READ_ONLY;
            }
        }
    }

    /// Whether the mount was made read-only after it began, as was seen within [`READ_ONLY`]. The kernel's table
    /// says so: a daemon that asks its own mount, and is killed meanwhile, may hang for ever.
    fn is_read_only(&self) -> bool {
        let (is_read_only, until) = self.read_only.get();
        if until.is_some_and(|until| Instant::now() < until) {
            return is_read_only;
        }
        let is_it = |mount: &MountEntry| mount.device == self.manner.device && mount.is_read_only();
        let is_read_only = MountTable::read().is_ok_and(|table| table.of_kind(KIND).any(is_it));
        self.read_only.set((is_read_only, Some(Instant::now() + READ_ONLY)));
        is_read_only
    }

    /// Waits for what is asked next. In between pages that nobody writes make room where the memory is worn least,
    /// until that fails.
    fn idle(&self, seen: u64, cold_after: &mut Option<Duration>) -> Result<Option<Ask>, Error> {
        let Some(age) = *cold_after else { return self.next(seen, IDLE) };
        let (least, most) = COLD_LOOK;
        let soon = (age / 10).clamp(least, most);
        let mut within = soon;
        loop {
            let asked = self.next(seen, within)?;
            if asked.is_some() {
                return Ok(asked);
            }
            let mut heard = Heard::default();
            match self.move_cold(seen, age, &mut heard) {
                Err(error) if !matches!(error, Error::Closed) => {
                    self.voice.say(&format!("cold pages stay where they are: {error}"));
                    *cold_after = None;
                    return Ok(None);
                }
                // Nothing is cold, of all that there is: all inodes were looked at for it.
                Ok(Some(0)) => within = age.max(soon),
                moved => {
                    moved?;
                    within = soon;
                }
            }
            let asked = heard.end()?;
            if asked.is_some() {
                return Ok(asked);
            }
        }
    }

    /// Moves pages of files that nobody has changed for so long, where that is of use; says how many. Where the slot
    /// that is worn least has none of them, those of the next one.
    fn move_cold(&self, seen: u64, age: Duration, heard: &mut Heard) -> Result<Option<u64>, Error> {
        let (now, age) = (now(), i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
        let before = now.now_ns.saturating_sub(age);
        let mut all = None;
        for cold in self.fs.cold_moves()? {
            let moved = self.fs.move_cold(&now, cold, before, &mut |moved| {
                heard.goes_on(self.next(seen, time_for(moved, self.manner.pace)))
            })?;
            all = Some(moved);
            if moved > 0 {
                let ColdMove { from, to, .. } = cold;
                self.voice.say(&format!(
                    "{moved} pages of files that nobody changes went from slot {from} to slot {to}, which is worn more"
                ));
            }
            if moved > 0 || !heard.is_quiet() {
                break;
            }
        }
        Ok(all)
    }

    /// Does what was asked; returns what is asked meanwhile.
    fn serve(&self, (turn, ask): Ask) -> Result<Option<Ask>, Error> {
        match ask {
            SlotAsk::Cancel => {
                self.fs.end_leaving(&now(), self.last())?;
                self.tell_which(Vec::new());
                self.fs.tell_emptying(turn, EmptyState::Stays);
                Ok(None)
            }
            // Another mount's daemon does it.
            SlotAsk::Add(_) if !self.fs.claim_slot_ask(turn) => Ok(None),
            SlotAsk::Add(offered) => {
                let before = self.slot_count();
                let state = match self.add(offered) {
                    // It has nothing, and gets nothing.
                    Ok(true) if offered.goes().is_some() => EmptyState::Emptied,
                    Ok(true) => {
                        self.open_slots(turn);
                        EmptyState::Added
                    }
                    Ok(false) => EmptyState::NotAlone,
                    Err(error) => {
                        self.voice.say(&format!("adding a slot: {}", in_words(&error)));
                        let is_as_it_was = before.is_some() && self.slot_count() == before;
                        if is_as_it_was { EmptyState::Refused } else { EmptyState::Failed }
                    }
                };
                self.fs.count_emptied(None);
                self.fs.tell_emptying(turn, state);
                Ok(None)
            }
            SlotAsk::Empty(goes, pace) => {
                let (slot, goes) = (self.last(), Some(goes).filter(|goes| *goes != NOT_KNOWN));
                let room = self.fs.begin_leaving(&now(), slot, goes)?;
                if !room.is_enough() {
                    return self.give_up(turn, slot);
                }
                self.fs.count_emptied(None);
                self.fs.tell_emptying(turn, EmptyState::Moving);
                match self.empty(turn, (slot, goes), pace) {
                    Err(Error::NoSpace) => self.give_up(turn, slot),
                    Err(error) if !matches!(error, Error::Closed) => {
                        // The pool has all that it had.
                        self.fs.end_leaving(&now(), slot)?;
                        Err(error)
                    }
                    done => done,
                }
            }
        }
    }

    /// Adds the slot that a process has open, which waits until it is told; false where another client has the
    /// pool open that could not open it. The process has it locked, and shares the lock: nobody takes the slot in between.
    fn add(&self, slot: OfferedSlot) -> Result<bool> {
        let offered = Offered::by(slot.process(), slot.descriptor())?;
        let link = offered.path();
        let path = fs::read_link(&link).with_context(|| link.display().to_string())?;
        let options = PmOptions { lock: SlotLock::Shared, ..self.manner.mapping.clone() };
        let new = Pm::open(&[SlotSpec::new(&link)], &options)?;
        let found = fs::metadata(&link).with_context(|| link.display().to_string())?;
        let file = ComingFile { path: &path, found, bytes: new.slot_len(0), like: None };
        let may = |processes: &[PidInfo]| {
            let processes: Vec<u32> = processes.iter().map(|process| process.pid).collect();
            able::unable(&processes, &file).is_empty()
        };
        let beside = Beside { path: &path, may: &may };
        Ok(self.fs.add_slot_beside(&now(), new, slot.goes(), &beside)?.is_some())
    }

    /// Has pages be taken from a slot that came, unless that takes long: then it is done later.
    fn open_slots(&self, turn: u64) {
        for _ in 0..OPEN_TRIES {
            if self.fs.open_slots(&now()).is_ok_and(|is_open| is_open) {
                return;
            }
            if !matches!(self.fs.wait_for_slot_ask(turn, OPEN_LOOK), Ok(None)) {
                return;
            }
        }
    }

    /// How many slots the pool has, as its first one says.
    fn slot_count(&self) -> Option<u8> {
        look_at_slot(self.fs.pm()).ok()?.slot_count
    }

    fn tell_which(&self, mapped: Vec<Ino>) {
        of_changing(&self.changing, |changed| changed.mapped = mapped);
    }

    /// The slot that is emptied, whichever is to go.
    fn last(&self) -> u8 {
        self.fs.pm().slot_count().saturating_sub(1)
    }

    fn give_up(&self, turn: u64, slot: u8) -> Result<Option<Ask>, Error> {
        self.fs.end_leaving(&now(), slot)?;
        self.voice.say(&format!("slot {slot} stays: the others have no room for what it has"));
        self.fs.tell_emptying(turn, EmptyState::NoRoom);
        Ok(None)
    }

    /// Goes through all inodes until a round moves nothing, and operations have nothing in hand there.
    fn empty(
        &self,
        turn: u64,
        (slot, goes): (u8, Option<u8>),
        pace: u32,
    ) -> Result<Option<Ask>, Error> {
        loop {
            let mut heard = Heard::default();
            let round = self.fs.empty_round(&now(), slot, &mut |moved| {
                self.fs.count_emptied(Some(moved));
                heard.goes_on(self.next(turn, time_for(moved, pace)))
            })?;
            let asked = heard.end()?;
            if round.is_stopped {
                return Ok(asked);
            }
            self.fs.tell_mapped(round.mapped);
            self.tell_which(round.mapped_files);
            let wait = if round.moved > 0 {
                Duration::ZERO
            } else if self.fs.is_in_hand(slot)? {
                self.fs.settle_dead()?;
                IN_HAND
            } else {
                if let Some(goes) = goes {
                    self.fs.confirm_emptied(&now(), slot, goes)?;
                }
                self.fs.tell_emptying(turn, EmptyState::Emptied);
                if round.mapped == 0 {
                    return Ok(None);
                }
                MAPPED
            };
            let asked = self.next(turn, wait)?;
            if asked.is_some() {
                return Ok(asked);
            }
        }
    }
}

/// What was heard between the steps of what is under way.
#[derive(Default)]
struct Heard {
    asked: Option<Ask>,
    failed: Option<Error>,
}

impl Heard {
    /// Whether it goes on after what was heard just now.
    fn goes_on(&mut self, next: Result<Option<Ask>, Error>) -> bool {
        match next {
            Ok(next) => self.asked = next,
            Err(error) => self.failed = Some(error),
        }
        self.is_quiet()
    }

    fn is_quiet(&self) -> bool {
        self.asked.is_none() && self.failed.is_none()
    }

    fn end(self) -> Result<Option<Ask>, Error> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.asked),
        }
    }
}

/// How long so many pages are to take.
fn time_for(pages: u64, pace: u32) -> Duration {
    let nanos = pages.saturating_mul(1_000_000_000);
    nanos.checked_div(pace.into()).map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_in_whole_pages_and_never_none() {
        assert_eq!([None, Some(1), Some(1 << 20)].map(pace), [4096, 1, 256]);
        assert_eq!(pace(Some(u64::MAX)), u32::MAX);
    }

    #[test]
    fn so_many_pages_take_their_time() {
        assert_eq!(time_for(64, 64), Duration::from_secs(1));
        assert_eq!(time_for(64, 0), Duration::ZERO);
        assert_eq!(time_for(0, 7), Duration::ZERO);
    }
}
