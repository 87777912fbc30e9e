//! Slots that are added to a pool, replaced and taken out of it, by the paths of their files, while nobody
//! uses the pool. The caller holds the locks of all of them.
//!
//! Each goes on where an earlier call of the same was cut off, when it gets the same paths: what the headers
//! say tells how far that came. Before a slot's header is erased, that of which the pool consists without it
//! is made durable: the earlier call may have died before its fence.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use novale_arena::Arena;
use novale_core::repair::{Change, Help, SavedPiece, give_up_slot};
use novale_core::{
    Ctx, Error, Executor, Fs, NewSlot, OpenOptions, Progress, RoomToLeave, add_slot,
    confirm_header, confirm_slots, forget_slot, going_slot, heir_of_slot, inspect,
    remove_last_slot, replace_slot, room_to_leave, saved_free, set_leaving, set_leaving_for,
    slot_header, slot_waits, take_back_slot, take_lost_place,
};
use novale_layout::{PAGE, SlotHeader};
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use uuid::Uuid;

use crate::join::{ArenaFile, JoinError, arena_bytes};
use crate::{process_owner, wall_clock_ns};

type Result<T, E = JoinError> = std::result::Result<T, E>;

/// Who does the work, and is told of it.
pub struct Helpers<'a> {
    /// Scans on many threads.
    pub exec: &'a dyn Executor,
    /// How far it is.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// How slots at these paths are mapped to be written to; `lock` is chosen here.
    pub mapping: &'a dyn Fn(&[PathBuf]) -> PmOptions,
    /// Told where what programs that were killed had only buffered is given up, since the pool is not as they left it.
    pub given_up: &'a dyn Fn(),
}

impl std::fmt::Debug for Helpers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Helpers").finish_non_exhaustive()
    }
}

impl Helpers<'_> {
    fn map(&self, paths: &[PathBuf]) -> Result<Pm> {
        map(paths, (self.mapping)(paths))
    }

    fn map_one(&self, path: &Path) -> Result<Pm> {
        self.map(&[path.to_owned()])
    }
}

/// What the slot is that is to come to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coming {
    /// No slot.
    Nothing,
    /// One of this pool that has no place in it: an earlier call began with it, or took it out.
    Begun,
    /// It has come: an earlier call has done that.
    Done,
    /// One that the pool has, by whatever path.
    Member(u8),
    /// A slot of this number that the pool does not use.
    Older(u8),
    /// One of another pool.
    Foreign,
}

/// A slot that was found, with what it says.
#[derive(Debug, Clone)]
struct Numbered {
    path: PathBuf,
    header: SlotHeader,
    /// How the name begins of the one that takes its place.
    heir: Option<[u8; 8]>,
    /// The number of the one that is to go once this one is empty, and that it is.
    goes: Option<(u8, bool)>,
    len: u64,
}

impl Numbered {
    fn is_heir_of(&self, old: &Self) -> bool {
        old.header.index == self.header.index
            && old.header.pool_uuid == self.header.pool_uuid
            && old.heir.is_some_and(|heir| self.header.slot_uuid.starts_with(&heir))
    }
}

fn refused(why: impl Into<String>) -> JoinError {
    JoinError::Core(Error::BadPool(why.into()))
}

fn map(paths: &[PathBuf], options: PmOptions) -> Result<Pm> {
    let specs: Vec<SlotSpec> = paths.iter().map(SlotSpec::new).collect();
    Ok(Pm::open(&specs, &PmOptions { lock: SlotLock::Held, ..options })?)
}

/// Maps slots to be looked at.
fn look(paths: &[PathBuf]) -> Result<Pm> {
    map(paths, PmOptions { read_only: true, ..PmOptions::default() })
}

fn number(path: &Path) -> Result<Numbered> {
    let pm = look(&[path.to_owned()])?;
    let no_slot = |why| refused(format!("{} is no slot of a pool: {why}", path.display()));
    let header = slot_header(&pm).map_err(no_slot)?;
    let len = pm.slot_len(0);
    if len < header.pages * PAGE {
        let made = header.pages * PAGE;
        let shown = path.display();
        return Err(refused(format!("{shown} was cut off: it has {len} bytes of {made}")));
    }
    let heir = heir_of_slot(&pm)?;
    let goes = going_slot(&pm)?;
    Ok(Numbered { path: path.to_owned(), header, heir, goes, len })
}

/// The slots of a pool by their numbers; a number may be there twice.
fn numbered(paths: &[PathBuf]) -> Result<Vec<Numbered>> {
    let mut slots: Vec<Numbered> = paths.iter().map(|path| number(path)).collect::<Result<_>>()?;
    slots.sort_by_key(|slot| slot.header.index);
    for pair in slots.windows(2) {
        let [one, other] = pair else { continue };
        if one.header.pool_uuid != other.header.pool_uuid {
            return Err(refused(format!(
                "{} belongs to pool {}, but {} to pool {}: name the slots of one pool",
                one.path.display(),
                Uuid::from_bytes(one.header.pool_uuid),
                other.path.display(),
                Uuid::from_bytes(other.header.pool_uuid)
            )));
        }
    }
    Ok(slots)
}

/// The same, each number once.
fn numbered_once(paths: &[PathBuf]) -> Result<Vec<Numbered>> {
    let slots = numbered(paths)?;
    let twice = slots.windows(2).find_map(|pair| match pair {
        [one, other] if one.header.index == other.header.index => Some((one, other)),
        _ => None,
    });
    match twice {
        Some((one, other)) => Err(refused(format!(
            "{} and {} are both slot {} of the pool: name the one that it uses",
            one.path.display(),
            other.path.display(),
            one.header.index
        ))),
        None => Ok(slots),
    }
}

fn named<'a>(slots: &'a [Numbered], path: &Path) -> Result<&'a Numbered> {
    let found = slots.iter().find(|slot| slot.path == path);
    found.ok_or_else(|| refused(format!("{} is none of the pool's slots", path.display())))
}

fn paths_of<'a>(slots: impl IntoIterator<Item = &'a Numbered>) -> Vec<PathBuf> {
    slots.into_iter().map(|slot| slot.path.clone()).collect()
}

/// Opens a pool with recovery, alone.
fn open(pm: Pm, helpers: &Helpers<'_>) -> Result<Fs> {
    let arena = Arena::anonymous(arena_bytes(&inspect(&pm)?)).map_err(JoinError::Arena)?;
    let options = OpenOptions { now_ns: wall_clock_ns(), ..OpenOptions::default() };
    Ok(Fs::open(pm, arena, &options, helpers.exec, helpers.progress)?)
}

/// The pool, mapped, after a recovery and a clean end where it needs them, and with what programs that were
/// killed have only buffered.
fn closed(paths: &[PathBuf], helpers: &Helpers<'_>) -> Result<Pm> {
    let mut pm = helpers.map(paths)?;
    let info = inspect(&pm)?;
    let mut stored = BTreeSet::new();
    if let Some(first) = paths.first() {
        let slot = fs::metadata(first).map_err(|source| JoinError::io("slot 0", source))?;
        let arena = ArenaFile::new(info.uuid, &slot)?;
        if let Some(client) = arena.live_clients()?.first() {
            return Err(refused(format!("process {client} has the pool open")));
        }
        if arena.has_left_behind()? {
            if !arena.end_session_of_dead(pm, false)? {
                (helpers.given_up)();
            }
            pm = helpers.map(paths)?;
        } else {
            // Clients that were killed have left it, with nothing that the pool lacks. It is found by slot 0, which may
            // be another file soon.
            stored = arena.stored_behind()?;
            arena.remove()?;
        }
    }
    if inspect(&pm)?.clean {
        return Ok(pm);
    }
    let fs = open(pm, helpers)?;
    fs.sync_left(&Ctx { now_ns: wall_clock_ns(), hint: 0 }, &stored);
    fs.close()?;
    Ok(fs.into_pm())
}

/// What a slot is that is to come to a pool, in the place of one of its slots or behind the last.
///
/// # Errors
/// Slots that can't be mapped, or are none of one pool.
pub fn coming(pool: &[PathBuf], old: Option<&Path>, new: &Path) -> Result<Coming> {
    let slots = numbered_once(pool)?;
    let old = old.map(|old| named(&slots, old)).transpose()?;
    Ok(coming_to(&slots, old, new))
}

fn coming_to(slots: &[Numbered], old: Option<&Numbered>, new: &Path) -> Coming {
    let Ok(new) = number(new) else { return Coming::Nothing };
    let index = new.header.index;
    let here = |slot: &&Numbered| slot.header.slot_uuid == new.header.slot_uuid;
    if slots.first().is_none_or(|slot| slot.header.pool_uuid != new.header.pool_uuid) {
        return Coming::Foreign;
    }
    if let Some(slot) = slots.iter().find(here) {
        return Coming::Member(slot.header.index);
    }
    match old {
        Some(old) if new.is_heir_of(old) => Coming::Done,
        None if usize::from(index) == slots.len() && is_whole(slots, Some(&new)) => Coming::Done,
        _ if usize::from(index) >= slots.len() => Coming::Begun,
        _ => Coming::Older(index),
    }
}

/// Whether these are all slots of a pool.
fn is_whole(slots: &[Numbered], more: Option<&Numbered>) -> bool {
    look(&paths_of(slots.iter().chain(more))).is_ok_and(|pm| inspect(&pm).is_ok())
}

/// Adds a slot to the end of a pool; returns its number. What it held is gone.
///
/// # Errors
/// Those of opening, and of [`add_slot`]; the pool is as it was then.
pub fn add(pool: &[PathBuf], new: &Path, endurance: u64, helpers: &Helpers<'_>) -> Result<u8> {
    let slots = numbered_once(pool)?;
    let coming = coming_to(&slots, None, new);
    if let Coming::Member(slot) = coming {
        return Err(is_member(new, slot));
    }
    let mut paths = paths_of(&slots);
    if coming == Coming::Done {
        paths.push(new.to_owned());
        let pm = helpers.map(&paths)?;
        confirm_slots(&pm)?;
        return Ok(pm.slot_count() - 1);
    }
    let pm = closed(&paths, helpers)?;
    let index = pm.slot_count();
    let more = helpers.map_one(new)?;
    let new = NewSlot { pm: &more, uuid: Uuid::new_v4().into_bytes(), endurance };
    add_slot(&pm, &new, helpers.exec, helpers.progress)?;
    Ok(index)
}

/// Makes a slot wait to be the one after the last of a pool that is in use ([`Fs::add_slot`]). What it held is
/// gone.
///
/// # Errors
/// Those of [`slot_waits`]; the slot is as it was then.
pub fn let_wait(pool: &[PathBuf], new: &Path, endurance: u64, helpers: &Helpers<'_>) -> Result<()> {
    let more = helpers.map_one(new)?;
    let uuid = Uuid::new_v4().into_bytes();
    Ok(slot_waits(&look(pool)?, &NewSlot { pm: &more, uuid, endurance })?)
}

/// Makes a slot that waits, and did not come, none of any pool.
///
/// # Errors
/// It can't be mapped.
pub fn forget(new: &Path, helpers: &Helpers<'_>) -> Result<()> {
    forget_slot(&helpers.map_one(new)?);
    Ok(())
}

fn is_member(new: &Path, slot: u8) -> JoinError {
    refused(format!("{} is slot {slot} of the pool itself, or a copy of it", new.display()))
}

/// Puts a slot in the place of another, of the pool whose slots are named, the old one among them; returns
/// its number. The old one is no slot of a pool after that. An `endurance` of 0 stands for the old one's.
///
/// # Errors
/// Those of opening, and of [`replace_slot`]; the pool is as it was then.
pub fn replace(
    pool: &[PathBuf],
    old: &Path,
    new: &Path,
    endurance: u64,
    helpers: &Helpers<'_>,
) -> Result<u8> {
    let slots = numbered_once(pool)?;
    let leaving = named(&slots, old)?;
    match coming_to(&slots, Some(leaving), new) {
        Coming::Member(slot) => return Err(is_member(new, slot)),
        Coming::Done => confirm_header(&helpers.map_one(new)?)?,
        Coming::Nothing | Coming::Begun | Coming::Older(_) | Coming::Foreign => {
            let endurance = if endurance == 0 { leaving.header.endurance } else { endurance };
            put_in(&slots, leaving, new, endurance, helpers)?;
        }
    }
    forget_slot(&helpers.map_one(old)?);
    Ok(leaving.header.index)
}

/// Puts a slot, empty, in the place of one that is lost, of the pool whose slots are given by their numbers; says
/// which it is, and what was given up for it. With `force` also where programs that were killed have left bytes
/// that the pool does not have, which are lost then.
///
/// # Errors
/// Those of [`give_up_slot`], before which nothing is changed where the new slot is too short; the same call goes on.
pub fn replace_lost(
    pool: &[Option<PathBuf>],
    new: &Path,
    endurance: u64,
    force: bool,
    helpers: &Helpers<'_>,
) -> Result<(u8, Vec<Change>)> {
    let there: Vec<PathBuf> = pool.iter().flatten().cloned().collect();
    let specs: Vec<Option<SlotSpec>> =
        pool.iter().map(|path| path.as_ref().map(SlotSpec::new)).collect();
    let options = PmOptions { lock: SlotLock::Held, ..(helpers.mapping)(&there) };
    let pm = Pm::open_there(&specs, &options)?;
    if let Some(first) = pool.first().and_then(Option::as_ref) {
        let slot = fs::metadata(first).map_err(|source| JoinError::io("slot 0", source))?;
        let arena = ArenaFile::new(inspect(&pm)?.uuid, &slot)?;
        if let Some(client) = arena.live_clients()?.first() {
            return Err(refused(format!("process {client} has the pool open")));
        }
        if arena.has_left_behind()? && !force {
            return Err(refused(
                "programs that were killed have left bytes that are not in the pool yet, and that only a whole pool \
                 can take: restore the slot, or give --force, with which they are lost",
            ));
        }
    }
    let more = helpers.map_one(new)?;
    let mut keep = |_: &SavedPiece<'_>| Ok(());
    let mut help = Help {
        exec: helpers.exec,
        progress: helpers.progress,
        keep: &mut keep,
        now_ns: wall_clock_ns(),
        owner: process_owner(),
    };
    let report = give_up_slot(&pm, more.slot_len(0) / PAGE, &mut help)?;
    let new = NewSlot { pm: &more, uuid: Uuid::new_v4().into_bytes(), endurance };
    Ok((take_lost_place(&pm, &new)?, report.changes))
}

fn put_in(
    pool: &[Numbered],
    leaving: &Numbered,
    new: &Path,
    endurance: u64,
    helpers: &Helpers<'_>,
) -> Result<()> {
    let pm = closed(&paths_of(pool), helpers)?;
    // The one that goes names it before it has come: a call that goes on leaves it its name.
    let waits = number(new).ok().filter(|new| {
        new.header.pool_uuid == leaving.header.pool_uuid
            && usize::from(new.header.index) >= pool.len()
    });
    let uuid = waits.map_or_else(|| Uuid::new_v4().into_bytes(), |new| new.header.slot_uuid);
    let more = helpers.map_one(new)?;
    let new = NewSlot { pm: &more, uuid, endurance };
    Ok(replace_slot(&pm, leaving.header.index, &new, helpers.exec, helpers.progress)?)
}

/// Takes a slot out of the pool whose slots are named, itself among them. The last one is emptied into the
/// others; for another one the last is, and takes its place then.
///
/// # Errors
/// Those of opening; one that says with numbers that the others have no room for what the last one has, or
/// that the last is too short to take the place of another. The pool is as it was.
pub fn remove(pool: &[PathBuf], old: &Path, helpers: &Helpers<'_>) -> Result<()> {
    let mut slots = numbered(pool)?;
    let leaving = named(&slots, old)?.clone();
    let same = |slot: &&Numbered| slot.header.index == leaving.header.index && slot.path != old;
    if let Some(other) = slots.iter().find(same) {
        return forget_replaced(&leaving, other, helpers);
    }
    let all = paths_of(&numbered_once(pool)?);
    let Some(last) = slots.pop().filter(|_| !slots.is_empty()) else {
        inspect(&look(&all)?)?;
        return Err(refused(
            "it is the only slot of its pool: replace it, or remove the pool's file",
        ));
    };
    let is_last = last.path == leaving.path;
    if !is_last && last.len < leaving.header.pages * PAGE {
        return Err(refused(format!(
            "{} would take the place of {}, and is shorter: {} bytes of {}; replace one of the two \
             by a longer slot first",
            last.path.display(),
            old.display(),
            last.len,
            leaving.header.pages * PAGE
        )));
    }
    // An earlier call may have taken the last one out.
    if is_whole(&slots, None) {
        confirm_slots(&helpers.map(&paths_of(&slots))?)?;
    } else {
        take_last_out(&all, leaving.header.index, helpers)?;
    }
    if !is_last {
        put_in(&slots, &leaving, &last.path, last.header.endurance, helpers)?;
    }
    forget_slot(&helpers.map_one(old)?);
    Ok(())
}

/// The slot of these that is to go by [`remove`] without its being asked for again: the last one was emptied for
/// that while the pool was in use, or is out already, or has begun to take its place.
///
/// # Errors
/// One of them is no slot.
pub fn going(pool: &[PathBuf]) -> Result<Option<PathBuf>> {
    let slots = numbered(pool)?;
    let Some((last, others)) = slots.split_last() else { return Ok(None) };
    let has_heir = |slot: &&Numbered| {
        let other = slots.iter().find(|other| other.is_heir_of(slot));
        let waits = |heir: [u8; 8]| last.header.slot_uuid.starts_with(&heir);
        other.is_some() || slot.heir.is_some_and(waits)
    };
    let is_to_go = |slot: &&Numbered| {
        let numbered = last.goes.filter(|(goes, _)| *goes == slot.header.index);
        numbered.is_some_and(|(_, is_empty)| is_empty || is_whole(others, None))
    };
    let found = slots.iter().find(has_heir).or_else(|| slots.iter().find(is_to_go));
    Ok(found.map(|slot| slot.path.clone()))
}

/// The slot of these for which the last one is being emptied, or was, or came to the pool.
///
/// # Errors
/// One of them is no slot.
pub fn leaves_for(pool: &[PathBuf]) -> Result<Option<PathBuf>> {
    let slots = numbered_once(pool)?;
    let goes = slots.last().and_then(|last| last.goes);
    let found = slots.iter().find(|slot| goes.is_some_and(|(goes, _)| slot.header.index == goes));
    Ok(found.map(|slot| slot.path.clone()))
}

/// Ends what an earlier call of [`remove`] has begun, which has put another slot in the place of one.
fn forget_replaced(leaving: &Numbered, other: &Numbered, helpers: &Helpers<'_>) -> Result<()> {
    let (old, new) = (leaving.path.display(), other.path.display());
    if other.header.slot_uuid == leaving.header.slot_uuid {
        return Err(refused(format!("{new} is the same slot as {old}, or a copy")));
    }
    if !other.is_heir_of(leaving) {
        let index = leaving.header.index;
        return Err(refused(format!(
            "{new} is a slot {index} as well as {old}, and none that took its place: leave it out"
        )));
    }
    confirm_header(&helpers.map_one(&other.path)?)?;
    forget_slot(&helpers.map_one(&leaving.path)?);
    Ok(())
}

/// Takes the last slot out, for the one with this number to go.
fn take_last_out(all: &[PathBuf], goes: u8, helpers: &Helpers<'_>) -> Result<()> {
    let pm = closed(all, helpers)?;
    let last = pm.slot_count() - 1;
    let room = room_to_leave(&pm, helpers.exec, helpers.progress)?;
    if !room.is_enough() {
        set_leaving(&pm, last, false)?;
        return Err(no_room(last, &room));
    }
    set_leaving_for(&pm, last, goes)?;
    let fs = open(pm, helpers)?;
    let ctx = Ctx { now_ns: wall_clock_ns(), hint: 0 };
    let emptied = fs.empty_slot(&ctx, last, room.used, helpers.progress);
    fs.close()?;
    let pm = fs.into_pm();
    let removed = emptied.and_then(|()| remove_last_slot(&pm, helpers.exec, helpers.progress));
    if removed.is_err() {
        set_leaving(&pm, last, false)?;
    }
    match removed {
        Err(Error::NoSpace) => Err(no_room(last, &room)),
        removed => Ok(removed?),
    }
}

fn no_room(slot: u8, room: &RoomToLeave) -> JoinError {
    let [used, needed, free] = [room.used, room.needed, room.free].map(|pages| pages * PAGE / 1024);
    refused(format!(
        "slot {slot} has {used} KiB in use, and the others have {free} KiB free, of which {} KiB are kept \
         back: free space, or add a slot first",
        needed - used
    ))
}

/// Takes a removal back that was cut off: pages of the slot that was leaving are taken again. Returns
/// whether one was.
///
/// # Errors
/// Those of [`inspect`]; one that says that the slot is out already, and how it comes back.
pub fn keep(pool: &[PathBuf], helpers: &Helpers<'_>) -> Result<bool> {
    let mut slots = numbered_once(pool)?;
    let all = paths_of(&slots);
    if let Some(last) = slots.pop().filter(|_| is_whole(&slots, None)) {
        return Err(refused(format!(
            "{} is out of the pool already: go on without --cancel, or add it (novale slot add)",
            last.path.display()
        )));
    }
    let pm = helpers.map(&all)?;
    let leaving: Vec<u8> =
        inspect(&pm)?.slots.iter().filter(|of| of.is_leaving).map(|of| of.index).collect();
    leaving.iter().try_for_each(|slot| set_leaving(&pm, *slot, false))?;
    Ok(!leaving.is_empty())
}

/// Takes a replacement back that was cut off: the old slot is the pool's as before, and the new one no slot of
/// it. Returns whether one was. With `force` also where `new` is not the slot that was to come: the caller knows
/// that it is gone for good.
///
/// # Errors
/// Those of [`inspect`]; one that says that the new slot has its place already, or is another one.
pub fn take_back(
    pool: &[PathBuf],
    old: &Path,
    new: &Path,
    force: bool,
    helpers: &Helpers<'_>,
) -> Result<bool> {
    let slots = numbered_once(pool)?;
    let leaving = named(&slots, old)?;
    let coming = coming_to(&slots, Some(leaving), new);
    let shown = new.display();
    if coming == Coming::Done {
        return Err(refused(format!(
            "{shown} has taken the place of {} already: go on without --cancel",
            old.display()
        )));
    }
    let Some(heir) = leaving.heir else { return Ok(false) };
    let begun = number(new)
        .is_ok_and(|new| coming == Coming::Begun && new.header.slot_uuid.starts_with(&heir));
    if !begun && !force {
        return Err(refused(format!(
            "{shown} is not the slot that was to take the place of {}, and that one may have it: name it, or \
             give --force where it is gone for good",
            old.display()
        )));
    }
    take_back_slot(&helpers.map(&paths_of(&slots))?, leaving.header.index)?;
    if begun {
        forget_slot(&helpers.map_one(new)?);
    }
    Ok(true)
}

/// Opens a pool that was changed, and closes it, so that it says what is free.
///
/// # Errors
/// Those of opening and closing.
pub fn settle(pool: &[PathBuf], helpers: &Helpers<'_>) -> Result<()> {
    let pm = closed(&paths_of(&numbered_once(pool)?), helpers)?;
    if saved_free(&pm)?.is_some() {
        return Ok(());
    }
    Ok(open(pm, helpers)?.close()?)
}
