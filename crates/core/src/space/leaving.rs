//! Slots that are being emptied while the pool is open, for all of its clients: a bit for each in a word of
//! the arena, and beside it what is asked of the one who empties, and how far that is.
//!
//! No page is taken there any more. One that is given back there is free in its slot's bitmap as any other,
//! so that it can be counted, and taken again where the slot stays after all; what can be taken is the count
//! of all free pages less those.
//!
//! An operation that looked before the bit was set may take a page there after it: it has noted it before.
//! All words are hints but the first, which is one as well: the slot leaves the pool when nobody uses it, by
//! a scan of all that is in use.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::time::Duration;

use crate::space::failed::failed_slots;
use novale_arena::{Arena, AtomicU64, sleep_while, wake_all};

// Words of the arena's root block.
const LEAVING_SLOTS: usize = 41;
/// How many slots there are that all clients have to know; 0 before the pool is open.
const SLOTS: usize = 42;
/// A bit for each slot that is coming: it is among those that are leaving until its pages may be taken.
const COMING_SLOTS: usize = 43;
/// What is asked of the one who empties; he sleeps on it.
const ASKED: usize = 48;
const STATE: usize = 49;
/// Pages that were moved since a slot was asked to leave.
const MOVED: usize = 50;
/// Files whose own pages were mapped, in the last round.
const MAPPED: usize = 51;

// Of the word [`ASKED`]: a number that rises with each, then what, the slot that is to go, and pages a second; where
// one is to be added, the descriptor and the process that has it, whose number the kernel keeps below 2^22.
const ASK_TURN_MASK: u64 = 0xffff;
const ASK_WHAT: u32 = 16;
const ASK_WHAT_MASK: u64 = 0xf;
const ASK_SLOT: u32 = 20;
const ASK_SLOT_MASK: u64 = 0x3f;
const ASK_PACE: u32 = 32;
const ASK_DESCRIPTOR: u32 = 26;
const ASK_PROCESS: u32 = 42;
const EMPTY: u64 = 1;
const CANCEL: u64 = 2;
const ADD: u64 = 3;
/// To add one for another to go.
const ADD_FOR: u64 = 4;
/// The least number that no process has.
const PROCESS_END: u32 = 1 << 22;

// Of the word [`STATE`]: the number of what was asked, and what became of it; of an adding that one has begun with, his
// process.
const STATE_WHAT: u32 = 16;
const STATE_WHAT_MASK: u64 = 0xffff;
const STATE_PROCESS: u32 = 32;
/// One adds the slot that was asked for, and no other does.
const CLAIMED: u64 = 9;

/// What is asked of the one who empties slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotAsk {
    /// To empty the last one for this one to go, so many pages a second at most; 0: as fast as it goes.
    Empty(u8, u32),
    /// To let the last one stay.
    Cancel,
    /// To add one.
    Add(OfferedSlot),
}

/// A slot that waits for a place in the pool, which a process has open, and locked so that others may share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferedSlot {
    process: u32,
    descriptor: u16,
    goes: Option<u8>,
}

impl OfferedSlot {
    /// The one that a process has under a number; `goes` is the slot that is to go for it. None where one of them is
    /// no such number.
    #[must_use]
    pub fn new(process: u32, descriptor: u16, goes: Option<u8>) -> Option<Self> {
        let is_slot = goes.is_none_or(|goes| u64::from(goes) <= ASK_SLOT_MASK);
        (process < PROCESS_END && is_slot).then_some(Self { process, descriptor, goes })
    }

    /// The process that has it open.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Its descriptor there.
    #[must_use]
    pub fn descriptor(&self) -> u16 {
        self.descriptor
    }

    /// The slot that is to go for it.
    #[must_use]
    pub fn goes(&self) -> Option<u8> {
        self.goes
    }

    fn from_word(word: u64, goes: Option<u8>) -> Self {
        let descriptor = u16::try_from(word >> ASK_DESCRIPTOR & 0xffff).unwrap_or(0);
        let process = u32::try_from(word >> ASK_PROCESS).unwrap_or(0);
        Self { process, descriptor, goes }
    }

    fn word(self) -> u64 {
        let goes = u64::from(self.goes.unwrap_or(0));
        let what = self.goes.map_or(ADD, |_| ADD_FOR);
        let place = u64::from(self.process) << ASK_PROCESS;
        place | u64::from(self.descriptor) << ASK_DESCRIPTOR | goes << ASK_SLOT | what << ASK_WHAT
    }
}

/// How far the emptying of a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum EmptyState {
    /// Nobody has begun with what was asked.
    Waiting = 0,
    /// Pages are being moved.
    Moving = 1,
    /// No inode has pages there, but for files that are mapped.
    Emptied = 2,
    /// The other slots have no room; the slot stays.
    NoRoom = 3,
    /// It stays, as was asked.
    Stays = 4,
    /// It failed; the one who empties has said why.
    Failed = 5,
    /// A slot was added.
    Added = 6,
    /// None was: another client has the pool open.
    NotAlone = 7,
    /// None was, and the pool is as it was; the one who was asked has said why.
    Refused = 8,
}

/// What is known of the emptying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyProgress {
    /// What became of what was asked last.
    pub state: EmptyState,
    /// Pages that were moved.
    pub moved: u64,
    /// Files that a program has mapped, whose pages stay until it has given them up.
    pub mapped: u64,
    /// Pages a second at most, 0: as fast as it goes; none where a daemon goes on by itself.
    pub pace: Option<u32>,
    /// Nothing else was asked since.
    pub is_last: bool,
}

/// Each slot that is being emptied, by its bit.
#[inline]
pub(crate) fn leaving_slots(arena: &Arena) -> u64 {
    match arena.root()[LEAVING_SLOTS].load(Acquire) {
        0 => 0,
        slots => slots & !coming_slots(arena),
    }
}

/// Each slot that is coming, by its bit.
pub(crate) fn coming_slots(arena: &Arena) -> u64 {
    arena.root()[COMING_SLOTS].load(Acquire)
}

/// How many slots all clients have to know. An operation asks when it has its record, so that who has raised the
/// number finds each one that has not seen it.
#[inline]
pub(crate) fn slots_to_know(arena: &Arena) -> u64 {
    arena.root()[SLOTS].load(SeqCst)
}

/// Has all clients know so many slots from their next operation on.
pub(crate) fn tell_slots(arena: &Arena, slots: u64) {
    arena.root()[SLOTS].store(slots, SeqCst);
}

/// Tells all clients that no pages are taken yet from slots that come.
pub(crate) fn tell_coming(arena: &Arena, slots: u64) {
    // In this order no client sees one of them leave.
    arena.root()[COMING_SLOTS].fetch_or(slots, AcqRel);
    arena.root()[LEAVING_SLOTS].fetch_or(slots, AcqRel);
}

/// Tells all clients that slots which were coming are there to leave.
pub(crate) fn tell_here_to_leave(arena: &Arena, slots: u64) {
    arena.root()[COMING_SLOTS].fetch_and(!slots, AcqRel);
}

/// Tells all clients that pages are taken there from now on.
pub(crate) fn tell_come(arena: &Arena, slots: u64) {
    arena.root()[LEAVING_SLOTS].fetch_and(!slots, AcqRel);
    arena.root()[COMING_SLOTS].fetch_and(!slots, AcqRel);
}

/// Tells all clients that slots are being emptied, by their bits.
pub(crate) fn tell_leaving(arena: &Arena, slots: u64) {
    arena.root()[LEAVING_SLOTS].fetch_or(slots, AcqRel);
}

/// Tells all clients that they stay.
pub(crate) fn tell_staying(arena: &Arena, slots: u64) {
    arena.root()[LEAVING_SLOTS].fetch_and(!slots, AcqRel);
}

/// Each slot from which nothing is taken: those that have failed, those that are leaving, and those that come.
#[inline]
pub(crate) fn closed_slots(arena: &Arena) -> u64 {
    failed_slots(arena) | arena.root()[LEAVING_SLOTS].load(Acquire)
}

/// The word on which the one who empties sleeps, and what it says.
pub(crate) fn asked_word(arena: &Arena) -> &AtomicU64 {
    &arena.root()[ASKED]
}

/// What was asked last, and its number.
pub(crate) fn asked(arena: &Arena) -> Option<(u64, SlotAsk)> {
    asked_by(asked_word(arena).load(Acquire))
}

fn asked_by(word: u64) -> Option<(u64, SlotAsk)> {
    let slot = u8::try_from(word >> ASK_SLOT & ASK_SLOT_MASK).unwrap_or(0);
    let pace = u32::try_from(word >> ASK_PACE).unwrap_or(0);
    let ask = match word >> ASK_WHAT & ASK_WHAT_MASK {
        EMPTY => SlotAsk::Empty(slot, pace),
        CANCEL => SlotAsk::Cancel,
        ADD => SlotAsk::Add(OfferedSlot::from_word(word, None)),
        ADD_FOR => SlotAsk::Add(OfferedSlot::from_word(word, Some(slot))),
        _ => return None,
    };
    Some((word & ASK_TURN_MASK, ask))
}

/// Whether it was said what became of what was asked with this number, or nobody says it any more.
pub(crate) fn is_answered(arena: &Arena, turn: u64) -> bool {
    let said = arena.root()[STATE].load(Acquire);
    is_of(said, turn) && what_of(said) != CLAIMED || is_given_up(arena, said, turn)
}

/// Whether one has begun with an adding that was asked for with this number, or was.
pub(crate) fn is_claimed(arena: &Arena, turn: u64) -> bool {
    is_of(arena.root()[STATE].load(Acquire), turn)
}

/// Has one process alone add what was asked for with this number; says whether it is this one. Who asked takes the
/// slot back where he is refused, so nobody else may be adding it then.
pub(crate) fn claim(arena: &Arena, turn: u64, process: u32) -> bool {
    let word = &arena.root()[STATE];
    let claimed = u64::from(process) << STATE_PROCESS | CLAIMED << STATE_WHAT;
    let free = |said| is_open(said, turn).then_some(claimed | turn & ASK_TURN_MASK);
    word.fetch_update(AcqRel, Acquire, free).is_ok()
}

/// Whether nothing was said yet of what was asked with this number, nor of what was asked later.
fn is_open(said: u64, turn: u64) -> bool {
    !is_of(said, turn) && !is_of_later(said, turn)
}

fn what_of(said: u64) -> u64 {
    said >> STATE_WHAT & STATE_WHAT_MASK
}

fn is_of(said: u64, turn: u64) -> bool {
    what_of(said) != 0 && said & ASK_TURN_MASK == turn & ASK_TURN_MASK
}

/// Whether it was said of something that was asked later.
fn is_of_later(said: u64, turn: u64) -> bool {
    let since = said.wrapping_sub(turn) & ASK_TURN_MASK;
    what_of(said) != 0 && (1..=ASK_TURN_MASK / 2).contains(&since)
}

/// Whether the one who had begun with it is dead.
fn is_given_up(arena: &Arena, said: u64, turn: u64) -> bool {
    let lives = |process: u64| {
        let mut clients = arena.clients().filter(|client| !arena.is_dead_client(client));
        clients.any(|client| u64::from(client.process.pid) == process)
    };
    is_of(said, turn) && what_of(said) == CLAIMED && !lives(said >> STATE_PROCESS)
}

/// Asks the one who empties slots of the pool that is open in `arena`, and wakes him. Returns the number of
/// what is asked; none while nobody has begun with what was asked before.
#[must_use = "by it one learns what became of it"]
pub fn ask_of_slots(arena: &Arena, ask: SlotAsk) -> Option<u64> {
    let asked = match ask {
        SlotAsk::Empty(slot, pace) => {
            let slot = u64::from(slot) & ASK_SLOT_MASK;
            u64::from(pace) << ASK_PACE | slot << ASK_SLOT | EMPTY << ASK_WHAT
        }
        SlotAsk::Cancel => CANCEL << ASK_WHAT,
        SlotAsk::Add(offered) => offered.word(),
    };
    let word = asked_word(arena);
    let before = word.load(Acquire);
    if asked_by(before).is_some_and(|(turn, _)| !is_answered(arena, turn)) {
        return None;
    }
    let turn = (before + 1) & ASK_TURN_MASK;
    // Another one may have asked meanwhile.
    word.compare_exchange(before, asked | turn, AcqRel, Acquire).ok()?;
    wake_all(word);
    Some(turn)
}

/// How far it is with what was asked with this number; without one, with what was asked last.
#[must_use]
pub fn slots_asked(arena: &Arena, turn: Option<u64>) -> EmptyProgress {
    let root = arena.root();
    let said = root[STATE].load(Acquire);
    let state = match what_of(said) {
        _ if turn.is_some_and(|turn| said & ASK_TURN_MASK != turn) => EmptyState::Waiting,
        1 => EmptyState::Moving,
        2 => EmptyState::Emptied,
        3 => EmptyState::NoRoom,
        4 => EmptyState::Stays,
        5 => EmptyState::Failed,
        6 => EmptyState::Added,
        7 => EmptyState::NotAlone,
        8 => EmptyState::Refused,
        CLAIMED if is_given_up(arena, said, said) => EmptyState::Failed,
        _ => EmptyState::Waiting,
    };
    let last = root[ASKED].load(Acquire) & ASK_TURN_MASK;
    EmptyProgress {
        state,
        moved: root[MOVED].load(Relaxed),
        mapped: root[MAPPED].load(Relaxed),
        pace: asked(arena).and_then(|(_, ask)| match ask {
            SlotAsk::Empty(_, pace) => Some(pace),
            SlotAsk::Cancel | SlotAsk::Add(..) => None,
        }),
        is_last: turn.is_none_or(|turn| turn == last),
    }
}

/// Says what became of what was asked with this number, unless it was said of something that was asked later: of that
/// another client may have said it.
pub(crate) fn say_state(arena: &Arena, turn: u64, state: EmptyState) {
    let word = &arena.root()[STATE];
    let now = (state as u64) << STATE_WHAT | turn & ASK_TURN_MASK;
    // Nobody waits for what was not said.
    let free = |said| (!is_of_later(said, turn)).then_some(now);
    let _is_said = word.fetch_update(AcqRel, Acquire, free);
    wake_all(word);
}

/// Takes an adding back that was asked for with this number, unless one has begun with it, or something was said of
/// what was asked later; says whether it did. Nobody begins with it then.
#[must_use = "the slot may be the pool's otherwise"]
pub fn withdraw_slot_ask(arena: &Arena, turn: u64) -> bool {
    let word = &arena.root()[STATE];
    let refused = (EmptyState::Refused as u64) << STATE_WHAT | turn & ASK_TURN_MASK;
    let free = |said| is_open(said, turn).then_some(refused);
    let is_withdrawn = word.fetch_update(AcqRel, Acquire, free).is_ok();
    wake_all(word);
    is_withdrawn
}

/// Sleeps until something else is said than that it is so far, `timeout` at most; with what was asked with this
/// number, or with what was asked last.
pub fn wait_for_slots(arena: &Arena, turn: Option<u64>, so_far: &EmptyProgress, timeout: Duration) {
    if slots_asked(arena, turn).state == so_far.state {
        let word = &arena.root()[STATE];
        let said = u32::try_from(word.load(Acquire)).unwrap_or(0);
        sleep_while(word, said, timeout);
    }
}

/// Counts pages that were moved; begins anew where none are given.
pub(crate) fn count_moved(arena: &Arena, more: Option<u64>) {
    let moved = &arena.root()[MOVED];
    match more {
        Some(more) => drop(moved.fetch_add(more, Relaxed)),
        None => moved.store(0, Relaxed),
    }
}

/// Says how many files are mapped.
pub(crate) fn say_mapped(arena: &Arena, files: u64) {
    arena.root()[MAPPED].store(files, Relaxed);
}
