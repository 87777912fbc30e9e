//! Slots that are added to a pool, replaced, and taken out of it, while nobody uses it (docs/DESIGN.md,
//! "Slots that come and go"). Comes in: a pool that was closed clean, and the slot that comes. Goes out: the
//! pool with it, or without the last one.
//!
//! Each of the three ends with one line that counts: the first copy of the superblock, where the number of
//! slots changes, and the first copy of the new slot's header, where a slot takes another's place. Before it
//! all that it names is durable; until then the pool is what it was, and the same call does it again.
//!
//! Never here: pages that inodes have, which [`super::evacuate`] moves.

use novale_layout::{
    BAD_PAGE_LIST_PAGE, FIRST_FREE_PAGE, MAX_SLOTS, PAGE, PmAddr, SLOT_HEADER_BYTES,
    SLOT_HEADER_OFFSET, SLOT_STATE_OFFSETS, SUPERBLOCK_BYTES, Seed, SlotHeader, SlotState,
    WEAR_PAGE, WearLine,
};
use novale_pm::{Flushed, Pm, Purpose, SlotKind};

use crate::base::error::{Error, Result};
use crate::base::exec::{Executor, Progress};
use crate::inode::chunks::words_in_use;
use crate::inode::media::blocks_in;
use crate::life::mkfs::{FIRST_SLOT_BYTES_MIN, SLOT_BYTES_MIN};
use crate::life::open::{Opened, survey};
use crate::life::{saved, wear};
use crate::op::journal;
use crate::pool::marks::PageMarks;
use crate::pool::{Pool, copies, nothing_lost, slot_state_place, store_slot_state};
use crate::seeded::{self, Bug};
use crate::space::reserve_of;

const PAGE_BYTES: usize = 4096;
/// What the first page of slot 0 has before its slot header.
const HEAD_BYTES: usize = 2048;
const _: () = assert!(SLOT_HEADER_OFFSET == HEAD_BYTES as u64);

/// A slot that comes, mapped alone.
#[derive(Debug, Clone, Copy)]
pub struct NewSlot<'a> {
    /// Its memory.
    pub pm: &'a Pm,
    /// Its name.
    pub uuid: [u8; 16],
    /// Writes that a cell of it endures, 0: unknown.
    pub endurance: u64,
}

/// The header of a slot that is mapped alone.
///
/// # Errors
/// [`Error::BadPool`] where it is none of a pool, or both copies are damaged.
pub fn slot_header(pm: &Pm) -> Result<SlotHeader> {
    copies::slot_header(pm, 0).map(|(header, _)| header)
}

/// Says durably of a slot that it is being emptied, or no more. Whoever opens the pool from then on takes no
/// page there. Nobody may use the pool.
///
/// # Errors
/// [`Error::BadPool`] says what was found; [`Error::Invalid`] for a slot that is not there.
pub fn set_leaving(pm: &Pm, slot: u8, leaving: bool) -> Result<()> {
    let pool = Pool::read(pm)?;
    pool.check_writable()?;
    pool.check_numbers()?;
    let state = if leaving { SlotState::LEAVING } else { 0 };
    set_state(pm, &pool, slot, state, 0)
}

/// The same of a slot that leaves for `goes` to go, itself or another. One that was emptied for that stays so.
///
/// # Errors
/// As [`set_leaving`].
pub fn set_leaving_for(pm: &Pm, slot: u8, goes: u8) -> Result<()> {
    set_going(pm, slot, SlotState::LEAVING, goes)
}

/// Says durably that it was emptied: it goes when nobody uses the pool.
pub(crate) fn set_emptied(pm: &Pm, slot: u8, goes: u8) -> Result<()> {
    set_going(pm, slot, SlotState::EMPTIED, goes)
}

fn set_going(pm: &Pm, slot: u8, state: u32, goes: u8) -> Result<()> {
    let pool = Pool::read(pm)?;
    pool.check_writable()?;
    pool.check_numbers()?;
    let found = pool.slots.get(usize::from(slot)).map(|(_, state)| *state).unwrap_or_default();
    let is_emptied = found.evacuation_state == SlotState::EMPTIED && found.goes() == Some(goes);
    let state = if is_emptied { SlotState::EMPTIED } else { state };
    set_state(pm, &pool, slot, state, SlotState::going_word(goes))
}

/// Says durably of a slot that no other one takes its place. The caller has seen that none has taken it.
/// Nobody may use the pool.
///
/// # Errors
/// As [`set_leaving`].
pub fn take_back_slot(pm: &Pm, slot: u8) -> Result<()> {
    let pool = Pool::read(pm)?;
    pool.check_features()?;
    pool.check_numbers()?;
    if pool.given_up().is_some() {
        return pool.check_writable();
    }
    set_state(pm, &pool, slot, 0, 0)
}

/// Says durably that the others are being rid of a slot that is lost: nobody writes the pool from then on, not
/// with that slot either, should it come back.
pub(crate) fn set_given_up(pm: &Pm, pool: &Pool, lost: u8) -> Result<()> {
    set_state(pm, pool, 0, SlotState::HANDED_ON, SlotState::going_word(lost))
}

/// Stores, durably, what a slot says of its leaving.
fn set_state(pm: &Pm, pool: &Pool, slot: u8, evacuation_state: u32, heir: u64) -> Result<()> {
    let found = pool.slots.get(usize::from(slot));
    let (_, found) = found.ok_or(Error::Invalid("a slot that the pool does not have"))?;
    // Who stored the lines that stand may have died before its fence.
    pm.fence(pool.write_back(pm)).end();
    pool.repair_state_lines(pm);
    let (seq, evacuation_progress) = (found.seq + 1, heir);
    let state = SlotState { seq, evacuation_state, evacuation_progress, ..*found };
    pm.fence(store_slot_state(pm, pool.seed, slot, &state)).end();
    Ok(())
}

/// Says durably of a slot that another one takes its place: who would write to it is refused from then on.
fn hand_on(pm: &Pm, pool: &Pool, slot: u8, heir: &[u8; 16]) -> Result<()> {
    set_state(pm, pool, slot, SlotState::HANDED_ON, SlotState::heir_word(heir))
}

/// A pool that was closed clean, and what is in use of it.
fn clean_pool(
    pm: &Pm,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Pool, Opened)> {
    let pool = Pool::read(pm)?;
    pool.check_writable()?;
    surveyed(pm, pool, exec, progress)
}

/// The same of a pool that was read, and may have a slot that was handed on.
fn surveyed(
    pm: &Pm,
    mut pool: Pool,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Pool, Opened)> {
    if !pool.is_clean() {
        return Err(Error::Invalid("slots of a pool that was not closed clean"));
    }
    pool.check_features()?;
    pool.check_numbers()?;
    // Who stored what is read here may have died before its fence.
    pm.fence(pool.write_back(pm)).end();
    // The saved allocator would be of other slots; and copies of slots from before the change are old then.
    let state = saved::without(&pool);
    pool.next_session(pm, Flushed::none(), state)?;
    let lanes = journal::lane_pages(pm, pool.superblock.lane_count)?;
    let opened = survey(pm, &pool, &lanes, exec, progress)?;
    opened.refuse_damage()?;
    pool.repair_copies(pm);
    Ok((pool, opened))
}

/// Pages that the last slot needs of the others to go, and that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomToLeave {
    /// Those in use there, and what operations keep back.
    pub needed: u64,
    /// Free pages of the other slots.
    pub free: u64,
    /// Of those that are needed, those in use there.
    pub used: u64,
}

impl RoomToLeave {
    /// Whether it may go. One that has nothing needs no room: without it the pool has what it had before.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.used == 0 || self.needed <= self.free
    }
}

/// Room for what the last slot has, in a pool that was closed clean. Moving takes pages for a moment that
/// are not counted here: it may still find none.
///
/// # Errors
/// As [`remove_last_slot`].
pub fn room_to_leave(
    pm: &Pm,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<RoomToLeave> {
    let (pool, opened) = clean_pool(pm, exec, progress)?;
    let last = pm.slot_count().saturating_sub(1);
    let used = used_in(&pool, &opened.pages, last).count() as u64;
    let usable = pool.slots.iter().map(|(of, _)| of.pages.saturating_sub(FIRST_FREE_PAGE + 1));
    let needed = used + reserve_of(usable.sum());
    let free = free_outside(&pool, &opened.pages, pool.leaving() | 1 << last).count() as u64;
    Ok(RoomToLeave { needed, free, used })
}

/// Makes durable what a pool says of its slots: who stored it may have died before its fence, and a slot that
/// it does not have any more is about to be erased. Nobody may use the pool.
///
/// # Errors
/// [`Error::BadPool`] says what was found.
pub fn confirm_slots(pm: &Pm) -> Result<()> {
    let mut pool = Pool::read(pm)?;
    if !seeded::is_on(Bug::ErasedUnconfirmed) {
        pm.fence(pool.write_back(pm)).end();
    }
    pool.repair_copies(pm);
    Ok(())
}

/// The same of a slot that is mapped alone, and has taken another's place.
///
/// # Errors
/// [`Error::BadPool`] where it is none of a pool.
pub fn confirm_header(pm: &Pm) -> Result<()> {
    let (header, bad) = copies::slot_header(pm, 0)?;
    if seeded::is_on(Bug::ErasedUnconfirmed) {
        return Ok(());
    }
    let copies = header_places(header.pages).into_iter();
    let written = copies.fold(Flushed::none(), |pending, at| {
        pending.and(pm.write_back_range(at, SLOT_HEADER_BYTES as u64, Purpose::Other))
    });
    pm.fence(written).end();
    if let Some(bad) = bad {
        pm.fence(bad.rewrite(pm)).end();
    }
    Ok(())
}

/// The places of a header's replica and of its first copy, in a slot of so many pages that is mapped alone.
fn header_places(pages: u64) -> [PmAddr; 2] {
    [pages - 1, 0].map(|page| PmAddr::new(0, page * PAGE + SLOT_HEADER_OFFSET))
}

/// Stores the header of a slot that is mapped alone: with the first copy, which comes last, it counts.
fn write_header(pm: &Pm, header: &SlotHeader) {
    for at in header_places(header.pages) {
        pm.fence(pm.stream(at, &header.encode(), Purpose::Other)).end();
    }
}

/// Takes the last slot out of the pool, once nothing is in it: the pages of inodes, of the inode directory
/// and of lanes are moved here, files before ([`crate::Fs::empty_slot`]). Nobody may use the pool.
///
/// # Errors
/// [`Error::Invalid`] for a pool that was not closed clean, or of one slot; [`Error::NoSpace`]. What was
/// moved stays so.
pub fn remove_last_slot(
    pm: &Pm,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    let (pool, opened) = clean_pool(pm, exec, progress)?;
    let last = pm.slot_count().saturating_sub(1);
    if last == 0 {
        return Err(Error::Invalid("the only slot of a pool is taken out"));
    }
    move_named_out(pm, &pool, &opened, last)?;
    // Read anew: the commit must not rest on what was done being all there is. What is read is durable then,
    // words that a dead process stored to lead out of the slot too.
    let (mut pool, opened) = clean_pool(pm, exec, progress)?;
    let left = used_in(&pool, &opened.pages, last).count();
    if left > 0 {
        return Err(Error::BadPool(format!("slot {last} still has {left} pages in use")));
    }
    pool.slots.pop();
    pool.superblock.slot_count -= 1;
    pool.write_superblock(pm);
    Ok(())
}

/// Pages in use of a slot, without its own.
fn used_in<'a>(pool: &Pool, pages: &'a PageMarks, slot: u8) -> impl Iterator<Item = PmAddr> + 'a {
    let count = pool.slots.get(usize::from(slot)).map_or(0, |(header, _)| header.pages);
    (FIRST_FREE_PAGE..count.saturating_sub(1))
        .filter(move |page| pages.word(slot.into(), page / 64) >> (page % 64) & 1 != 0)
        .map(move |page| PmAddr::new(slot, page * PAGE))
}

/// Free pages of all slots that are not leaving.
fn free_outside<'a>(
    pool: &'a Pool,
    pages: &'a PageMarks,
    leaving: u64,
) -> impl Iterator<Item = PmAddr> + 'a {
    let slots = pool.slots.iter().filter(move |(of, _)| leaving >> of.index & 1 == 0);
    slots.flat_map(move |(of, _)| {
        (FIRST_FREE_PAGE..of.pages - 1)
            .filter(|page| pages.word(of.index.into(), page / 64) >> (page % 64) & 1 == 0)
            .map(|page| PmAddr::new(of.index, page * PAGE))
    })
}

/// Moves the pages that a word of 8 bytes names: from the top down, each copied durably before its word
/// changes, so that the word leads to the same bytes before and after a crash. What was moved is erased once the word
/// is durable: the slot may stay after all, and a repair would find two pages of the same inodes.
fn move_named_out(pm: &Pm, pool: &Pool, opened: &Opened, slot: u8) -> Result<()> {
    let leaving = pool.leaving() | 1 << slot;
    let mut free = free_outside(pool, &opened.pages, leaving);
    let mut erased = Flushed::none();
    let mut page_of = |word: PmAddr| -> Result<PmAddr> {
        let page = PmAddr::from_raw(pm.load_u64(word)?);
        if page.is_null() || page.slot() != slot {
            return Ok(page);
        }
        let health = pm.health();
        let to = free.next().ok_or(Error::NoSpace)?;
        let mut bytes = [0; PAGE_BYTES];
        pm.load(page, &mut bytes)?;
        let copied = pm.stream(to, &bytes, Purpose::Inode);
        let named = || pm.write_back(pm.store_u64(word, to.raw(), Purpose::Inode));
        if seeded::is_on(Bug::MovedPageNamedEarly) {
            pm.fence(copied.and(named())).end();
            return Ok(to);
        }
        pm.fence(copied.and(std::mem::replace(&mut erased, Flushed::none()))).end();
        nothing_lost(pm, health)?;
        pm.fence(named()).end();
        nothing_lost(pm, health)?;
        erased = pm.stream_zero(page, PAGE, Purpose::Inode);
        Ok(to)
    };
    for lane in 0..u64::from(pool.superblock.lane_count) {
        page_of(pool.superblock.roots.lane_table.add(lane * 8))?;
    }
    for upper in words_in_use(pm, pool.superblock.roots.inode_directory)? {
        let upper = page_of(upper.at)?;
        for table in words_in_use(pm, upper)? {
            let table = page_of(table.at)?;
            for inodes in words_in_use(pm, table)? {
                page_of(inodes.at)?;
            }
        }
    }
    pm.fence(erased).end();
    Ok(())
}

/// Adds a slot to the end of the pool. What it held is gone from the first store on. Nobody may use the pool.
///
/// # Errors
/// [`Error::BadPool`] for too small a slot or too many, [`Error::Invalid`] for a pool that was not closed
/// clean; the pool is as it was then.
pub fn add_slot(
    pm: &Pm,
    new: &NewSlot<'_>,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    let (mut pool, _) = clean_pool(pm, exec, progress)?;
    let MadeLast { superblock, pages, worn } = make_last(&mut pool, new, None)?;
    forget_inodes(&pool, new, pages, &worn);
    pm.fence(pm.stream(PmAddr::new(0, 0), &superblock, Purpose::Other)).end();
    Ok(())
}

/// What a slot brings that is durably all that the pool's last one is, but for the first superblock.
pub(crate) struct MadeLast {
    /// The superblock by which the pool has it.
    pub(crate) superblock: [u8; SUPERBLOCK_BYTES],
    pub(crate) pages: u64,
    pub(crate) worn: WearLine,
}

/// Stores durably in a slot all that makes it the one after the last; where it comes for another to go, it says so,
/// and that it is empty, from the moment when the pool has it.
///
/// # Errors
/// [`Error::BadPool`] for too small a slot or too many; nothing is stored then.
pub(crate) fn make_last(pool: &mut Pool, new: &NewSlot<'_>, goes: Option<u8>) -> Result<MadeLast> {
    let index = index_behind_last(pool)?;
    let pages = pages_of(new, least_for(pool, goes)?)?;
    let worn = worn_so_far(new.pm, pool)?;
    let header = new_header(new, pool.superblock.pool_uuid, index, pages);
    blank(new.pm, pages, worn.lines > 0);
    write_header(new.pm, &header);
    let seed = pool.seed.addr(PmAddr::new(index, 0));
    let state = SlotState {
        seq: 1,
        session: pool.state.session.into(),
        evacuation_state: goes.map_or(0, |_| SlotState::EMPTIED),
        evacuation_progress: goes.map_or(0, SlotState::going_word),
        ..SlotState::default()
    };
    // Not where the next one goes, which would tear the only one.
    let place = PmAddr::new(0, slot_state_place(state.seq));
    let pending = new.pm.stream(place, &state.encode(seed), Purpose::Other);
    pool.superblock.slot_count += 1;
    let superblock = pool.superblock.encode();
    let replica = new.pm.stream(PmAddr::new(0, (pages - 1) * PAGE), &superblock, Purpose::Other);
    let pending = pending.and(replica).and(write_wear(new.pm, &worn, seed));
    if !seeded::is_on(Bug::AddedBeforeItsState) {
        new.pm.fence(pending).end();
    }
    Ok(MadeLast { superblock, pages, worn })
}

/// Zeroes durably what a slot has of its own, but its wear where that is to stay.
fn blank(pm: &Pm, pages: u64, is_worn: bool) {
    let own = (0..FIRST_FREE_PAGE).chain([pages - 1]);
    let zeroed = own.filter(|page| *page != WEAR_PAGE || !is_worn);
    let zeroed = zeroed.fold(Flushed::none(), |pending, page| {
        pending.and(pm.stream_zero(PmAddr::new(0, page * PAGE), PAGE, Purpose::Other))
    });
    pm.fence(zeroed).end();
}

fn write_wear(new: &Pm, worn: &WearLine, seed: Seed) -> Flushed {
    new.stream(WearLine::addr(0, worn.seq), &worn.encode(seed), Purpose::Other)
}

/// Makes a slot that is to take another's place say that it is the pool's, and none of its slots: by this it
/// is known where the work is cut off. One that says so keeps what it has.
fn let_wait(pool: &Pool, new: &NewSlot<'_>, pages: u64, is_worn: bool) -> Result<()> {
    let superblock = &pool.superblock;
    let waits = |found: &SlotHeader| {
        found.pool_uuid == superblock.pool_uuid && found.index >= superblock.slot_count
    };
    let found = slot_header(new.pm).ok().filter(waits);
    if found.is_none() {
        blank(new.pm, pages, is_worn);
    } else {
        // The one that goes is about to name it; who stored it may have died before its fence.
        confirm_header(new.pm)?;
    }
    // There is no number for it beside as many slots as there may be.
    if found.is_none_or(|found| found.pages != pages) && superblock.slot_count < MAX_SLOTS {
        let header = new_header(new, superblock.pool_uuid, superblock.slot_count, pages);
        write_header(new.pm, &header);
    }
    Ok(())
}

/// Makes a slot say durably that it waits to be the one after the last of the pool in `pm`, which may be in use
/// and is only read ([`crate::Fs::add_slot`]). What it held is gone, but for one that waited already.
///
/// # Errors
/// [`Error::BadPool`] for too small a slot or too many; nothing is stored then.
pub fn slot_waits(pm: &Pm, new: &NewSlot<'_>) -> Result<()> {
    let pool = Pool::read(pm)?;
    index_behind_last(&pool)?;
    let pages = pages_of(new, SLOT_BYTES_MIN)?;
    let worn = worn_so_far(new.pm, &pool)?;
    let_wait(&pool, new, pages, worn.lines > 0)?;
    forget_inodes(&pool, new, pages, &worn);
    Ok(())
}

/// Takes the pages of inodes from a slot that was this pool's before, durably: a repair knows such pages by what
/// they have, and takes those that nobody names for pages whose word is lost.
fn forget_inodes(pool: &Pool, new: &NewSlot<'_>, pages: u64, worn: &WearLine) {
    if worn.lines == 0 {
        return;
    }
    let places = (FIRST_FREE_PAGE..pages - 1).map(|page| PmAddr::new(0, page * PAGE));
    let of_pool = places.filter(|page| !blocks_in(new.pm, pool.seed, *page).is_empty());
    let erased = of_pool.fold(Flushed::none(), |pending, page| {
        pending.and(new.pm.stream_zero(page, PAGE, Purpose::Inode))
    });
    new.pm.fence(erased).end();
}

/// The least bytes of a slot that comes, for another to go where that is said.
fn least_for(pool: &Pool, goes: Option<u8>) -> Result<u64> {
    let Some(goes) = goes else { return Ok(SLOT_BYTES_MIN) };
    let (old, _) = pool
        .slots
        .get(usize::from(goes))
        .ok_or(Error::Invalid("a slot that the pool does not have"))?;
    let least = if goes == 0 { FIRST_SLOT_BYTES_MIN } else { SLOT_BYTES_MIN };
    Ok(least.max(old.pages * PAGE))
}

/// The number of a slot that is to come.
fn index_behind_last(pool: &Pool) -> Result<u8> {
    let index = pool.superblock.slot_count;
    if index >= MAX_SLOTS {
        return Err(Error::BadPool(format!("the pool has {index} slots, as many as there may be")));
    }
    Ok(index)
}

fn pages_of(new: &NewSlot<'_>, least: u64) -> Result<u64> {
    let len = new.pm.slot_len(0);
    if len < least {
        return Err(Error::BadPool(format!("the new slot has {len} bytes; it needs {least}")));
    }
    Ok(len / PAGE)
}

fn new_header(new: &NewSlot<'_>, pool_uuid: [u8; 16], index: u8, pages: u64) -> SlotHeader {
    let [state_offset, _] = SLOT_STATE_OFFSETS;
    SlotHeader {
        pool_uuid,
        slot_uuid: new.uuid,
        index,
        kind: match new.pm.slot_kind(0) {
            SlotKind::File | SlotKind::Anonymous => 0,
            SlotKind::DaxFile => 1,
            SlotKind::DaxDevice => 2,
        },
        pages,
        endurance: new.endurance,
        wear_offset: WEAR_PAGE * PAGE,
        bad_pages_offset: BAD_PAGE_LIST_PAGE * PAGE,
        state_offset,
    }
}

/// Puts a slot in the place of another, with the same number and all that it has in use; the wear stays the
/// new one's own. The pool has the new one once its header says so; before that the old one says that it was
/// handed on, so that at no time both can be written. It is the caller's to erase ([`forget_slot`]). The new
/// one's name stays what it is in a call that goes on. Nobody may use the pool.
///
/// # Errors
/// [`Error::BadPool`] where the new one is smaller, or the old one was handed on to another one;
/// [`Error::Invalid`] for a pool that was not closed clean; the pool is as it was then.
pub fn replace_slot(
    pm: &Pm,
    slot: u8,
    new: &NewSlot<'_>,
    exec: &dyn Executor,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    let pool = Pool::read(pm)?;
    refuse_other_heirs(&pool, slot, &new.uuid)?;
    let (pool, opened) = surveyed(pm, pool, exec, progress)?;
    let old = pool.slots.get(usize::from(slot));
    let (_, state) = old.ok_or(Error::Invalid("a slot that the pool does not have"))?;
    let pages = pages_of(new, least_for(&pool, Some(slot))?)?;
    let worn = worn_so_far(new.pm, &pool)?;
    let_wait(&pool, new, pages, worn.lines > 0)?;
    forget_inodes(&pool, new, pages, &worn);
    let (mut pending, mut done) = (Flushed::none(), 0);
    let total = used_in(&pool, &opened.pages, slot).count() as u64;
    for page in used_in(&pool, &opened.pages, slot).chain(own_pages(slot)) {
        let mut bytes = [0; PAGE_BYTES];
        pm.load(page, &mut bytes)?;
        pending = pending.and(new.pm.stream(at_new(page), &bytes, Purpose::Other));
        progress(Progress { what: "copying pages", done, total });
        done += 1;
    }
    pending = pending.and(copy_head(pm, slot, new.pm)?);
    pending = pending.and(write_wear(new.pm, &worn, pool.seed.addr(PmAddr::new(slot, 0))));
    if slot + 1 == pm.slot_count() {
        let replica = PmAddr::new(0, (pages - 1) * PAGE);
        pending = pending.and(new.pm.stream(replica, &pool.superblock.encode(), Purpose::Other));
    }
    let header = new_header(new, pool.superblock.pool_uuid, slot, pages);
    if seeded::is_on(Bug::SlotNamedEarly) {
        let [_, first] = header_places(pages);
        pending = pending.and(new.pm.stream(first, &header.encode(), Purpose::Other));
        pending = pending.and(write_states(&pool, slot, state, new.pm));
    }
    new.pm.fence(pending).end();
    hand_on(pm, &pool, slot, &new.uuid)?;
    // As long as the new one waits, its own lines say for which one it does.
    new.pm.fence(write_states(&pool, slot, state, new.pm)).end();
    write_header(new.pm, &header);
    Ok(())
}

/// Puts a slot, empty, in the place of one that is lost and of which the others name nothing any more
/// ([`crate::repair::give_up_slot`]); returns its number. `pm` has the others, with that one not there. Nobody may
/// use the pool.
///
/// Crash points. All that the slot has of its own is durable before its header says its number, with the first copy
/// last; from then on the pool is whole, and still nobody writes it. The mark in slot 0's state line goes last.
///
/// # Errors
/// [`Error::Invalid`] where no slot was given up, [`Error::BadPool`] for too small a slot.
pub fn take_lost_place(pm: &Pm, new: &NewSlot<'_>) -> Result<u8> {
    let pool = Pool::read(pm)?;
    let lost = pool.given_up().filter(|lost| pm.is_absent(*lost) && pool.is_clean());
    let lost = lost.ok_or(Error::Invalid("no slot of the pool was given up"))?;
    let pages = pages_of(new, SLOT_BYTES_MIN)?;
    let worn = worn_so_far(new.pm, &pool)?;
    // Who stored what is read here may have died before its fence.
    pm.fence(pool.write_back(pm)).end();
    blank(new.pm, pages, worn.lines > 0);
    let_wait(&pool, new, pages, worn.lines > 0)?;
    forget_inodes(&pool, new, pages, &worn);
    let seed = pool.seed.addr(PmAddr::new(lost, 0));
    let state = SlotState { seq: 1, session: pool.state.session.into(), ..SlotState::default() };
    let place = PmAddr::new(0, slot_state_place(state.seq));
    let mut pending = new.pm.stream(place, &state.encode(seed), Purpose::Other);
    if lost + 1 == pm.slot_count() {
        let replica = PmAddr::new(0, (pages - 1) * PAGE);
        let stored = new.pm.stream(replica, &pool.superblock.encode(), Purpose::Other);
        pending = pending.and(stored);
    }
    new.pm.fence(pending.and(write_wear(new.pm, &worn, seed))).end();
    write_header(new.pm, &new_header(new, pool.superblock.pool_uuid, lost, pages));
    set_state(pm, &pool, 0, 0, 0)?;
    Ok(lost)
}

/// Refuses to go on where another slot takes the place of this one, or any slot that of another.
fn refuse_other_heirs(pool: &Pool, slot: u8, heir: &[u8; 16]) -> Result<()> {
    if pool.given_up().is_some() {
        return pool.check_writable();
    }
    for (header, state) in &pool.slots {
        let Some(named) = state.heir() else { continue };
        if header.index != slot {
            return pool.check_writable();
        }
        if !heir.starts_with(&named) {
            return Err(Error::BadPool(format!(
                "slot {slot} was to be replaced by another slot, which may have its place already: name that \
                 one, or take it back with `novale slot replace --cancel`, with --force where it is gone"
            )));
        }
    }
    Ok(())
}

/// Pages at the front of a slot that are copied as they are.
fn own_pages(slot: u8) -> impl Iterator<Item = PmAddr> {
    (BAD_PAGE_LIST_PAGE..FIRST_FREE_PAGE).map(move |page| PmAddr::new(slot, page * PAGE))
}

/// The same place in a slot that is mapped alone.
fn at_new(at: PmAddr) -> PmAddr {
    PmAddr::new(0, at.byte())
}

/// Copies what the first page of slot 0 has before its header.
fn copy_head(pm: &Pm, slot: u8, new: &Pm) -> Result<Flushed> {
    if slot != 0 {
        return Ok(Flushed::none());
    }
    let mut bytes = [0; HEAD_BYTES];
    pm.load(PmAddr::new(0, 0), &mut bytes)?;
    Ok(new.stream(PmAddr::new(0, 0), &bytes, Purpose::Other))
}

/// Stores the state lines of a slot that takes the place of another.
fn write_states(pool: &Pool, slot: u8, state: &SlotState, new: &Pm) -> Flushed {
    let seed = pool.seed.addr(PmAddr::new(slot, 0));
    let state = SlotState { evacuation_state: 0, evacuation_progress: 0, ..*state };
    SLOT_STATE_OFFSETS.into_iter().fold(Flushed::none(), |pending, at| {
        pending.and(new.stream(PmAddr::new(0, at), &state.encode(seed), Purpose::Other))
    })
}

/// How far a slot that comes is worn, where it says so as one that this pool had.
fn worn_so_far(new: &Pm, pool: &Pool) -> Result<WearLine> {
    let mut worn = WearLine::default();
    for slot in 0..MAX_SLOTS {
        let of = wear::newest_of(new, pool.seed.addr(PmAddr::new(slot, 0)))?;
        worn = if of.lines > worn.lines { of } else { worn };
    }
    Ok(WearLine { seq: worn.seq + 1, ..worn })
}

/// Takes from a slot what makes it one, so that it is none of any pool. Its state lines go last: as long as a
/// header stands, they say to whom it was handed on.
pub fn forget_slot(pm: &Pm) {
    let pages = pm.slot_len(0) / PAGE;
    let made = copies::slot_header(pm, 0).map_or(pages, |(header, _)| header.pages.min(pages));
    let last = (made.max(1) - 1) * PAGE;
    let headers = [0, last].map(|page| (page + SLOT_HEADER_OFFSET, SLOT_HEADER_BYTES as u64));
    for zeroed in [headers, [(0, PAGE), (last, PAGE)]] {
        let zeroed = zeroed.into_iter().fold(Flushed::none(), |pending, (at, bytes)| {
            pending.and(pm.stream_zero(PmAddr::new(0, at), bytes, Purpose::Other))
        });
        pm.fence(zeroed).end();
    }
}
