//! `novale slot add`, `remove`, `replace`: the slots of a pool that nobody uses, or that is mounted (`in_use`). All
//! that can be refused is, before anything is changed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use novale_core::{FIRST_SLOT_BYTES_MIN, SLOT_BYTES_MIN};
use novale_posix::slots::{self as changing, Coming};
use novale_posix::{OUR_FORMAT, what_it_holds};
use serde::Serialize;

use crate::base::args::{NewSlotArgs, SlotAddArgs, SlotRemoveArgs, SlotReplaceArgs};
use crate::base::size::show_size;
use crate::commands::slot::stranger::{Outside, outside};
use crate::commands::slot::{in_use, lost, named};
use crate::holders::holder;
use crate::mounts::leaving::{settle, with_bar};
use crate::pools::locked::PoolLock;
use crate::pools::slot_files::{self, Changed};
use crate::pools::slots::{self, Found, is_gone, without};

/// How long a slot is added anew where another one was added in the same moment, whose daemon may have more to do
/// before it tells of it.
const ADD_AGAIN: Duration = Duration::from_secs(2);

/// What was done, as JSON shows it.
#[derive(Debug, Serialize)]
struct ChangedSlot {
    done: &'static str,
    /// An earlier call has done it, and this one nothing.
    already: bool,
    /// The number of the slot that came.
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u8>,
    path: String,
}

pub(super) fn add(args: &SlotAddArgs) -> Result<()> {
    let begun = Instant::now();
    loop {
        let pool = slots::absolute(&named(&args.slots)?)?;
        let done = add_to(args, &pool);
        // Who named the directory did not name the slots.
        let is_again = done.is_err() && named_by_dir(&args.slots, &pool) && has_grown(&pool);
        if !is_again || begun.elapsed() > ADD_AGAIN {
            return done;
        }
    }
}

/// Whether a pool has more slots than these, as its first one says.
fn has_grown(pool: &[PathBuf]) -> bool {
    let count = pool.first().and_then(|first| slots::slot_count(first));
    count.is_some_and(|count| count > pool.len())
}

fn add_to(args: &SlotAddArgs, pool: &[PathBuf]) -> Result<()> {
    let new = as_named(one(&args.slot)?, &args.slots, pool);
    if !named_by_dir(&args.slots, pool) {
        refuse_member(&new, pool)?;
    }
    let all = with(&new, pool)?;
    let json = args.new.json;
    if let Some(slot) = last_of(&all, &new) {
        // Whoever uses the pool has it with this slot. Else the earlier call may have died before its fence.
        if let Ok(lock) = holder::lock(&all) {
            let only = lock.files()?;
            with_bar(&only, |helpers| Ok(changing::add(pool, &new, 0, helpers)?))?;
            settle(&all, &only);
        }
        return tell(json, "added", true, Some(slot), &new);
    }
    let coming = ComingSlot::new(&args.new, &new, None);
    if let Some(mounted) = in_use::find(pool)? {
        let index = mounted.add(coming, None)?;
        tell(json, "added", false, Some(index), &new)?;
        let then = "from the next mount on it is named with the others, in fstab too";
        return if json { Ok(()) } else { say!("{then}") };
    }
    let (mut made, [lock, _lock_of_new]) = coming.prepare(pool)?;
    let endurance = args.new.endurance.unwrap_or(0);
    let only = made.files_with(&lock)?;
    let index = with_bar(&only, |helpers| Ok(changing::add(pool, &new, endurance, helpers)?))?;
    made.keep();
    settle(&all, &only);
    tell(json, "added", false, Some(index), &new)
}

pub(super) fn remove(args: &SlotRemoveArgs) -> Result<()> {
    let given = slots::absolute(&named(&args.slots)?)?;
    let old = as_named(one(&args.slot)?, &args.slots, &given);
    let pool = with(&old, &given)?;
    slots::refuse_twice(&pool)?;
    let others = without(&pool, &old);
    if outside(&old, &others)? == Some(Outside::Gone) {
        refuse_cancel(args.cancel, &old)?;
        return tell(args.json, "removed", true, None, &old);
    }
    if let Some(mounted) = in_use::find(&pool)? {
        return mounted.remove(args, &old);
    }
    let lock = holder::lock(&pool)?;
    identify(&pool, &old)?;
    if args.cancel {
        let is_kept = with_bar(&lock.files()?, |helpers| Ok(changing::keep(&pool, helpers)?))?;
        let done = if is_kept { "kept" } else { "not leaving" };
        return tell(args.json, done, false, None, &old);
    }
    let only = lock.files()?;
    with_bar(&only, |helpers| Ok(changing::remove(&pool, &old, helpers)?))?;
    settle(&others, &only);
    tell(args.json, "removed", false, None, &old)
}

/// There is nothing to take back of a removal that has come to its end.
fn refuse_cancel(cancel: bool, old: &Path) -> Result<()> {
    if cancel {
        bail!(
            "{} is out of the pool already: add it, to have it back (novale slot add)",
            old.display()
        );
    }
    Ok(())
}

pub(super) fn replace(args: &SlotReplaceArgs) -> Result<()> {
    if args.lost {
        return lost::replace(args);
    }
    let given = slots::absolute(&named(&args.slots)?)?;
    let [old, new] = [&args.old, &args.slot].map(|slot| one(slot));
    let [old, new] = [old?, new?].map(|slot| as_named(slot, &args.slots, &given));
    let pool = with(&old, &given)?;
    // A mount of it, or an earlier call, has come to the end.
    if !args.cancel
        && is_gone(&old)
        && let Some(slot) = place_of(&without(&with(&new, &pool)?, &old), &new)
    {
        return tell(args.new.json, "replaced", true, Some(slot), &new);
    }
    if outside(&old, &without(&pool, &old))? == Some(Outside::Gone) {
        bail!("{} is no slot of the pool any more, which is whole without it", old.display());
    }
    let coming = ComingSlot::new(&args.new, &new, Some(&old));
    if let Some(mounted) = in_use::find(&pool)? {
        return mounted.replace(args.cancel, coming, &old);
    }
    let (all, after) = (with(&new, &pool)?, with(&new, &without(&pool, &old))?);
    if is_to_go_for(&all, &old, &new) {
        return if args.cancel {
            have_stay(args.new.json, &all, &new)
        } else {
            end_replacing(args.new.json, &all, &old, &new)
        };
    }
    refuse_member(&new, &given)?;
    if args.cancel {
        return take_back(args, &pool, &old, &new);
    }
    let (mut made, [lock, _lock_of_new]) = coming.prepare(&pool)?;
    let endurance = args.new.endurance.unwrap_or(0);
    let only = made.files_with(&lock)?;
    let index =
        with_bar(&only, |helpers| Ok(changing::replace(&pool, &old, &new, endurance, helpers)?))?;
    made.keep();
    settle(&after, &only);
    tell(args.new.json, "replaced", false, Some(index), &new)
}

/// Whether one slot goes for another that was added for that while the pool was in use: that one is the pool's last,
/// and says so itself. One that is the last for another reason, or a copy of a slot, does not.
fn is_to_go_for(all: &[PathBuf], old: &Path, new: &Path) -> bool {
    let goes = || changing::leaves_for(all).ok().flatten().is_some_and(|goes| goes == old);
    last_of(all, new).is_some() && goes()
}

/// Has a slot that was added for another to go be one as the others.
fn have_stay(json: bool, all: &[PathBuf], new: &Path) -> Result<()> {
    let lock = holder::lock(all)?;
    with_bar(&lock.files()?, |helpers| Ok(changing::keep(all, helpers)?))?;
    tell(json, "kept", false, place_of(all, new), new)
}

fn end_replacing(json: bool, all: &[PathBuf], old: &Path, new: &Path) -> Result<()> {
    let lock = holder::lock(all)?;
    let only = lock.files()?;
    with_bar(&only, |helpers| Ok(changing::remove(all, old, helpers)?))?;
    let after = without(all, old);
    settle(&after, &only);
    tell(json, "replaced", false, place_of(&after, new), new)
}

fn take_back(args: &SlotReplaceArgs, pool: &[PathBuf], old: &Path, new: &Path) -> Result<()> {
    let all: Vec<PathBuf> = pool.iter().cloned().chain([new.to_owned()]).collect();
    slots::refuse_twice(&all)?;
    let lock = holder::lock(if new.exists() { &all } else { pool })?;
    identify(pool, old)?;
    let force = args.new.force;
    let only = lock.files()?;
    let is_kept =
        with_bar(&only, |helpers| Ok(changing::take_back(pool, old, new, force, helpers)?))?;
    let done = if is_kept { "kept" } else { "not being replaced" };
    tell(args.new.json, done, false, None, old)
}

/// The number of a slot, if these are all slots of a pool and it is one of them.
fn place_of(pool: &[PathBuf], slot: &Path) -> Option<u8> {
    place_in(&slots::find(pool).ok()?, slot)
}

/// The number of a slot of a pool.
pub(super) fn place_in(found: &Found, slot: &Path) -> Option<u8> {
    let place = found.paths.iter().position(|path| path.as_path() == slot)?;
    u8::try_from(place).ok()
}

/// The same, where it is the last one.
fn last_of(pool: &[PathBuf], slot: &Path) -> Option<u8> {
    place_of(pool, slot).filter(|place| usize::from(*place) + 1 == pool.len())
}

/// Refuses a slot that is to come, and is named among those that the pool has.
fn refuse_member(new: &Path, pool: &[PathBuf]) -> Result<()> {
    if slots::absolute(pool)?.iter().any(|path| path.as_path() == new) {
        bail!(
            "{} is named twice: as the new slot, and as one that the pool has; name each slot once, and a \
             new one first that the pool has not",
            new.display()
        );
    }
    Ok(())
}

/// A slot that is to come.
pub(super) struct ComingSlot<'a> {
    pub(super) args: &'a NewSlotArgs,
    pub(super) path: &'a Path,
    /// The one whose place it takes.
    pub(super) old: Option<&'a PathBuf>,
    /// The least bytes of it.
    least: u64,
    /// The number of the slot whose place an earlier call may have given it.
    pub(super) begun: Option<u8>,
}

impl<'a> ComingSlot<'a> {
    pub(super) fn new(args: &'a NewSlotArgs, path: &'a Path, old: Option<&'a PathBuf>) -> Self {
        Self { args, path, old, least: SLOT_BYTES_MIN, begun: None }
    }
}

impl ComingSlot<'_> {
    /// Locks all slots, and makes the file of the one that comes where it is not there.
    fn prepare(mut self, pool: &[PathBuf]) -> Result<(Changed, [PoolLock; 2])> {
        let new = self.path.to_owned();
        let all: Vec<PathBuf> = pool.iter().chain([&new]).cloned().collect();
        slots::refuse_twice(&all)?;
        slots::refuse_taken_apart(std::slice::from_ref(&new))?;
        slots::refuse_long(all.iter().filter(|path| Some(*path) != self.old))?;
        slot_files::check_kind(&new)?;
        let is_there = new.exists();
        let locked = holder::lock(if is_there { &all } else { pool })?;
        identify(pool, self.old.unwrap_or(&new))?;
        if let Some(old) = self.old {
            self.least = replaced_bytes(old)?;
        }
        let mut made = Changed::default();
        if is_there {
            self.check_it(pool, &locked)?;
        } else {
            self.create(&mut made, pool, &locked)?;
        }
        let locked_new = holder::lock(if is_there { &[] } else { std::slice::from_ref(&new) })?;
        Ok((made, [locked, locked_new]))
    }

    /// The same for a pool that others use, whose slots stay theirs.
    pub(super) fn prepare_beside(&mut self, pool: &[PathBuf]) -> Result<(Changed, PoolLock)> {
        let new = self.path.to_owned();
        let all: Vec<PathBuf> = pool.iter().chain([&new]).cloned().collect();
        slots::refuse_twice(&all)?;
        slots::refuse_taken_apart(std::slice::from_ref(&new))?;
        // The pool has the one that is to go until nobody uses it any more, and is mounted with both where the daemon
        // has died.
        slots::refuse_long(&all)?;
        slot_files::check_kind(&new)?;
        if let Some(old) = self.old {
            self.least = replaced_bytes(old)?;
        }
        let (mut made, only) = (Changed::default(), std::slice::from_ref(&new));
        if new.exists() {
            let locked = holder::lock(only)?;
            self.check_it(pool, &locked)?;
            return Ok((made, locked));
        }
        let first = pool.first().context("a pool has a slot")?;
        self.create(&mut made, pool, &holder::beside(first)?)?;
        Ok((made, holder::lock(only)?))
    }

    fn create(&self, made: &mut Changed, pool: &[PathBuf], lock: &PoolLock) -> Result<()> {
        let Some(size) = self.args.size else {
            bail!("{} is not there: give --size to have it made", self.path.display());
        };
        self.check_len(size)?;
        let path = self.path.to_owned();
        slot_files::check_room(std::slice::from_ref(&path), &[size])?;
        made.create(&path, size)?;
        match (made.last(), pool.first()) {
            (Some(file), Some(other)) => slot_files::share_as(file, lock.file(other)?),
            _ => Ok(()),
        }
    }

    fn check_it(&self, pool: &[PathBuf], lock: &PoolLock) -> Result<()> {
        let shown = self.path.display();
        let len = slots::file_len(self.path).map_or_else(|| slots::device_len(self.path), Ok)?;
        if let Some(size) = self.args.size.filter(|size| *size != len) {
            bail!(
                "{shown} is there and has {}, not {}: --size is for one that is yet to be made",
                show_size(len),
                show_size(size)
            );
        }
        self.check_len(len)?;
        let coming = changing::coming(pool, self.old.map(PathBuf::as_path), self.path)?;
        let held = match coming {
            Coming::Member(slot) => {
                bail!("{shown} is slot {slot} of the pool itself, or a copy of it")
            }
            Coming::Older(slot) if self.begun == Some(slot) => return Ok(()),
            Coming::Begun | Coming::Done => {
                let file = lock.file(self.path)?;
                let is_file = file.metadata()?.is_file();
                if !is_file || what_it_holds(&slot_files::head_of(file)?) == Some(OUR_FORMAT) {
                    return Ok(());
                }
                None
            }
            Coming::Older(slot) => Some(format!("slot {slot} of the pool as it was earlier")),
            Coming::Foreign => Some("a slot of another pool".to_owned()),
            Coming::Nothing => None,
        };
        if let Some(held) = held.filter(|_| !self.args.force) {
            bail!("{shown} holds {held}: give --force to overwrite it, or another slot");
        }
        slot_files::check_held(self.path, lock, self.args.force)
    }

    fn check_len(&self, len: u64) -> Result<()> {
        if len < self.least {
            bail!(
                "{} has {}, and needs at least {}: give a larger one",
                self.path.display(),
                show_size(len),
                show_size(self.least)
            );
        }
        Ok(())
    }
}

/// Bytes that a slot needs which takes another's place.
fn replaced_bytes(old: &Path) -> Result<u64> {
    let pm = slots::open(&[old.to_owned()], slots::reading())?;
    let header = novale_core::slot_header(&pm)?;
    let least = if header.index == 0 { FIRST_SLOT_BYTES_MIN } else { SLOT_BYTES_MIN };
    Ok(slots::page_bytes(header.pages).max(least))
}

/// Refuses what is no slot; of the one that is to go says what that comes to.
fn identify(pool: &[PathBuf], old: &Path) -> Result<()> {
    for path in pool {
        slots::identify(path).map(drop).with_context(|| {
            if path.as_path() == old {
                "the slot that is to go can't be read, and the others are no whole pool without it. Check that \
                 it is the right file, and that all slots that the pool has are named. What lay in one \
                 that is lost is nowhere else: `novale check` on the other slots names the files, `novale mount -o ro` \
                 shows what remains, `novale slot replace --lost` gives its place to another"
            } else {
                "one that is named as a slot of the pool is none: name those that `novale info` shows, and a \
                 new one first"
            }
        })?;
    }
    Ok(())
}

/// The slot as its mount names it, if it is one of the mount's by another path. Where slots are named one by one, two
/// paths of one slot are refused later.
fn as_named(slot: PathBuf, given: &[PathBuf], pool: &[PathBuf]) -> PathBuf {
    if !named_by_dir(given, pool) || slot_files::is_link_of_another(&slot) {
        return slot;
    }
    let is_same = |path: &&PathBuf| slots::is_same_file(path, &slot);
    pool.iter().find(is_same).cloned().unwrap_or(slot)
}

pub(super) fn one(path: &Path) -> Result<PathBuf> {
    let absolute = slots::absolute(&[path.to_owned()])?;
    absolute.into_iter().next().context("a slot's path")
}

/// Whether the slots of a pool were named by where it is mounted.
fn named_by_dir(given: &[PathBuf], pool: &[PathBuf]) -> bool {
    given.len() == 1 && !pool.iter().any(|slot| Some(slot) == given.first())
}

/// The slots, and one that may be among them.
pub(super) fn with(slot: &PathBuf, others: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = slots::absolute(others)?;
    if !all.contains(slot) {
        all.push(slot.clone());
    }
    Ok(all)
}

pub(super) fn tell(
    json: bool,
    done: &'static str,
    already: bool,
    slot: Option<u8>,
    path: &Path,
) -> Result<()> {
    let facts = ChangedSlot { done, already, slot, path: path.display().to_string() };
    if json {
        return say!("{}", serde_json::to_string_pretty(&facts)?);
    }
    let done = match done {
        _ if already => format!("already done: {done}"),
        "to be replaced" => "added".to_owned(),
        done => done.to_owned(),
    };
    match (done.as_str(), slot) {
        (_, Some(slot)) => say!("{done}: slot {slot} is {}", facts.path),
        ("not leaving", None) => say!("nothing to take back: no slot of the pool is leaving"),
        ("not being replaced", None) => {
            say!("nothing to take back: {} is not being replaced", facts.path)
        }
        (_, None) if facts.done == "removed" => {
            say!("{done}: {} is no slot of the pool any more", facts.path)
        }
        (_, None) => say!("{done}: {} is a slot of the pool", facts.path),
    }
}
