//! `novale slot` for a pool that is mounted: its daemon adds a slot, or empties the one that is to be removed, which
//! goes when nobody uses the pool any more.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use novale_arena::Arena;
use novale_core::{
    EmptyState, OfferedSlot, Progress, SlotAsk, ask_of_slots, awaited_clients, can_add_slot,
    has_come, live_clients, live_failed, live_free, mount_served, mounts_served, slots_asked,
    wait_for_slots, withdraw_slot_ask,
};
use novale_fuse::{KIND, MountEntry, MountTable};
use novale_posix::slots as changing;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::base::args::SlotRemoveArgs;
use crate::base::full;
use crate::base::progress::Bar;
use crate::commands::slot::change::{ComingSlot, tell};
use crate::holders::able::{self, ComingFile};
use crate::holders::{ask, holder};
use crate::mounts::empty;
use crate::mounts::leaving::with_bar;
use crate::pools::remaining;
use crate::pools::slots::{self, Found};

/// How long a daemon is given to begin.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
/// Pages of a slot that are its own: at its front, and the last.
const OWN_PAGES: u64 = novale_layout::FIRST_FREE_PAGE + 1;

/// A pool that a daemon serves.
pub(super) struct Mounted {
    found: Found,
    arena: Arena,
}

/// What was done, as JSON shows it.
#[derive(Debug, Serialize)]
struct Emptied {
    done: &'static str,
    /// The slot that is emptied: the pool's last one.
    slot: u8,
    path: String,
    /// Pages in use there: those of inodes and lanes, which go when nobody uses the pool.
    pages_left: Option<u64>,
    /// Files whose own pages programs have mapped.
    files_mapped: u64,
}

/// The pool of these slots, if a mount serves it.
pub(super) fn find(pool: &[PathBuf]) -> Result<Option<Mounted>> {
    // What is no whole pool is not mounted for writing, unless one of its slots has failed since.
    let Ok(found) = slots::find(pool) else { return refuse_failed(pool).map(|()| None) };
    Ok(served(&found)?.map(|arena| Mounted { found, arena }))
}

/// The arena of a pool that a mount serves.
fn served(found: &Found) -> Result<Option<Arena>> {
    let is_served =
        |arena: &Arena| mounts_served(arena).any(|(client, _)| !arena.is_dead_client(&client));
    Ok(holder::arena_in_use(found)?.filter(is_served))
}

/// Refuses a pool of which a slot has failed under its mount.
fn refuse_failed(pool: &[PathBuf]) -> Result<()> {
    let Ok(found) = remaining::find(pool) else { return Ok(()) };
    // A slot without which it was mounted counts among them.
    let is_lost = |arena: &Arena| live_failed(arena) != 0;
    if !found.has_first() || !served(&found)?.as_ref().is_some_and(is_lost) {
        return Ok(());
    }
    let left_out: Vec<String> = found.left_out.iter().map(ToString::to_string).collect();
    let left_out = left_out.join("; ");
    if is_mounted_without(&found) {
        bail!(
            "the pool is mounted without a part of it ({left_out}), so it is only read: unmount it first"
        );
    }
    bail!(
        "a slot of the pool has failed while it is mounted ({left_out}): unmount it, restore the slot, and mount it \
         again"
    )
}

/// Whether the daemon of a pool's mount says that none of the slots has failed which it had.
fn is_mounted_without(found: &Found) -> bool {
    let answer = found.paths.first().and_then(|first| ask::facts_of_pool(first));
    answer.is_some_and(|(_, facts)| facts.failed_slots.is_empty())
}

/// What a daemon was asked. Nobody asks for something else before its first answer was heard, which that of the next
/// one takes the place of.
struct Asked<'a> {
    turn: u64,
    state: EmptyState,
    /// Locked until then.
    lock: Option<&'a File>,
}

impl Asked<'_> {
    fn hear(&mut self, state: EmptyState) {
        self.state = state;
        if state != EmptyState::Waiting {
            self.let_others_ask();
        }
    }

    /// Whether the daemon has said that it added no slot.
    fn is_refused(&self) -> bool {
        [EmptyState::NotAlone, EmptyState::Refused].contains(&self.state)
    }

    fn let_others_ask(&mut self) {
        if let Some(file) = self.lock.take() {
            // It goes with the process at the latest.
            flock(file, FlockOperation::Unlock).unwrap_or_default();
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.let_others_ask();
    }
}

/// What a daemon is asked for.
#[derive(Debug, Clone, Copy)]
enum Work {
    Add,
    Empty,
    Keep,
}

impl Work {
    fn failed(self) -> &'static str {
        match self {
            Self::Add => "can't be added",
            Self::Empty => "can't be emptied",
            Self::Keep => "can't be kept",
        }
    }

    /// Said where the daemon has ended meanwhile.
    fn cut_off(self) -> &'static str {
        match self {
            Self::Add => {
                "the mount has ended meanwhile, before it said whether the pool has the new slot: unmount it, and make \
                 the same call with the pool's slots in place of the directory, which goes on"
            }
            Self::Empty | Self::Keep => {
                "the pool is not in use any more: what was moved stays so; the same command goes on, and \
                 so does the next mount"
            }
        }
    }
}

impl Mounted {
    /// Has the daemon add a slot, and returns its number; where another is to go for it, the new one gets nothing.
    pub(super) fn add(&self, mut coming: ComingSlot<'_>, goes: Option<u8>) -> Result<u8> {
        self.refuse_to_add(&coming)?;
        let (new, pool) = (coming.path, &self.found.paths);
        let (mut made, lock) = coming.prepare_beside(pool)?;
        let of_old =
            self.found.info.slots.iter().zip(pool).find(|(_, path)| coming.old == Some(path));
        let endurance = coming.args.endurance.or(of_old.map(|(slot, _)| slot.endurance));
        let endurance = endurance.unwrap_or(0);
        let only = made.files_with(&lock)?;
        with_bar(&only, |helpers| Ok(changing::let_wait(pool, new, endurance, helpers)?))?;
        holder::let_share(new, &lock)?;
        let descriptor = u16::try_from(lock.file(new)?.as_raw_fd()).context("its descriptor")?;
        let offered = OfferedSlot::new(std::process::id(), descriptor, goes);
        let last = u8::try_from(pool.len())?;
        // From here on it may be the pool's, whatever is heard of it.
        let ask = SlotAsk::Add(offered.context("the number of a process or a slot")?);
        let (done, is_refused) = match self.ask(ask) {
            Ok(mut asked) => (self.wait(&mut asked, last, Work::Add), asked.is_refused()),
            Err(error) => (Err(error), true),
        };
        match done {
            // What the pool has is not taken back, whatever was said of it.
            Err(error) if is_refused && !self.has_come(new, last).unwrap_or(true) => {
                with_bar(&only, |helpers| Ok(changing::forget(new, helpers)?))?;
                return Err(if self.has_got_another() { added_meanwhile(new) } else { error });
            }
            done => {
                made.keep();
                done?;
            }
        }
        self.tell_awaited();
        Ok(last)
    }

    /// Whether the pool has this one, with that number.
    fn has_come(&self, new: &Path, number: u8) -> Result<bool> {
        let found = new.metadata().with_context(|| new.display().to_string())?;
        let is_device = found.file_type().is_char_device();
        let file = if is_device { (0, found.rdev()) } else { (found.dev(), found.ino()) };
        Ok(has_come(&self.arena, number, file)?)
    }

    /// Whether another slot was added since the pool's slots were looked at, for which this one has no number.
    fn has_got_another(&self) -> bool {
        let pool = &self.found.paths;
        let count = pool.first().and_then(|first| slots::slot_count(first));
        count.is_some_and(|count| count > pool.len())
    }

    /// Asks the daemon for something, once those before have heard what became of what they asked.
    fn ask(&self, ask: SlotAsk) -> Result<Asked<'_>> {
        let begun = Instant::now();
        let mut asked = Asked { turn: 0, state: EmptyState::Waiting, lock: self.arena.file() };
        let is_mine = || {
            let lock = asked.lock.map(|file| flock(file, FlockOperation::NonBlockingLockExclusive));
            lock.is_none_or(|locked| locked.is_ok())
        };
        loop {
            if is_mine()
                && let Some(turn) = ask_of_slots(&self.arena, ask)
            {
                asked.turn = turn;
                return Ok(asked);
            }
            if begun.elapsed() > ANSWER_MAX {
                bail!(
                    "the mount does not begin with what another command has asked: it may be stopped"
                );
            }
            wait_for_slots(&self.arena, None, &slots_asked(&self.arena, None), LOOK);
        }
    }

    /// Adds a slot for another to go when nobody uses the pool any more: then it takes the place of that one, and
    /// gets nothing before. One that came already is emptied for that.
    pub(super) fn replace(&self, cancel: bool, coming: ComingSlot<'_>, old: &Path) -> Result<()> {
        let (paths, slots, new) = (&self.found.paths, &self.found.info.slots, coming.path);
        let json = coming.args.json;
        let going = slots.iter().zip(paths).find(|(_, path)| path.as_path() == old);
        let (going, _) = going.context("the slot that is to go is none of the pool's")?;
        let there = slots.iter().zip(paths).next_back().filter(|(_, path)| path.as_path() == new);
        self.refuse_read_only()?;
        if cancel {
            let (slot, path) = there.with_context(|| {
                format!(
                    "{} is no slot that came to the pool: nothing is to be taken back",
                    new.display()
                )
            })?;
            self.wait(&mut self.ask(SlotAsk::Cancel)?, slot.index, Work::Keep)?;
            return tell(json, "kept", false, Some(slot.index), path);
        }
        let last = match there {
            Some((slot, _)) if slot.pages < going.pages => bail!("the new slot is the shorter one"),
            Some((slot, _)) => {
                let mut asked = self.ask(SlotAsk::Empty(going.index, 0))?;
                self.wait(&mut asked, slot.index, Work::Empty)?;
                slot.index
            }
            None => self.add(coming, Some(going.index))?,
        };
        tell(json, "to be replaced", false, Some(last), new)?;
        if json {
            return Ok(());
        }
        say!(
            "it takes the place of slot {}, {}, once the pool is unmounted; where a program has the pool open \
             after that, with the next mount",
            going.index,
            old.display()
        )
    }

    /// Refuses what the daemon would, before anything is made.
    fn refuse_to_add(&self, coming: &ComingSlot<'_>) -> Result<()> {
        let new = coming.path;
        let there = if new.exists() { Some(new) } else { new.parent() };
        let device = there.and_then(|path| path.metadata().ok()).map(|found| found.dev());
        let device = device.map(|device| (rustix::fs::major(device), rustix::fs::minor(device)));
        if device.is_some_and(|device| mount_served(&self.arena, device).is_some()) {
            bail!("{} lies in the pool itself: name a slot elsewhere", new.display());
        }
        if let Some(slot) = self.found.info.slots.iter().find(|slot| slot.is_leaving) {
            bail!(
                "slot {} is leaving: have it stay first (novale slot remove --cancel), or unmount the pool",
                slot.index
            );
        }
        if !can_add_slot(&self.arena, self.found.paths.len()) {
            bail!(
                "as many slots were added as can be before the pool is opened next: unmount it, and mount it with \
                 all of them"
            );
        }
        self.refuse_read_only()?;
        let unable = self.unable(new, coming.args.size)?;
        if !unable.is_empty() {
            bail!("busy: {unable}: end what can't have the slot, or name one that it can open");
        }
        Ok(())
    }

    /// The processes that use the pool and may not be able to open a slot that is there, or is to be made, and why.
    fn unable(&self, new: &Path, bytes: Option<u64>) -> Result<String> {
        let clients = live_clients(&self.arena);
        let mut served = mounts_served(&self.arena).map(|(client, _)| client.process.pid);
        // Who adds it has it.
        let daemon = served.next().filter(|_| served.next().is_none());
        let processes = clients.iter().map(|client| client.pid).filter(|pid| Some(*pid) != daemon);
        let processes: Vec<u32> = processes.collect();
        if processes.is_empty() {
            return Ok(String::new());
        }
        let there = if new.exists() { new } else { new.parent().context("its folder")? };
        let path = there.canonicalize().with_context(|| there.display().to_string())?;
        let found = path.metadata().with_context(|| path.display().to_string())?;
        let bytes = bytes.unwrap_or(if found.is_file() { found.len() } else { 0 });
        let first = self.found.paths.first().and_then(|first| first.metadata().ok());
        let like = first.filter(|first| found.is_dir() && first.is_file());
        let unable = able::unable(&processes, &ComingFile { path: &path, found, bytes, like });
        let unable: Vec<String> = unable.iter().map(ToString::to_string).collect();
        Ok(unable.join("; "))
    }

    /// Says what a slot waits for that was added.
    fn tell_awaited(&self) {
        let awaited = awaited_clients(&self.arena).unwrap_or_default();
        let named: Vec<String> = awaited.iter().map(ToString::to_string).collect();
        if !named.is_empty() {
            remark!(
                "novale: nothing goes to the slot until each operation on the pool has ended that began before: that \
                 of process {}",
                named.join(", ")
            );
        }
    }

    fn refuse_read_only(&self) -> Result<()> {
        let Some(mount) = self.read_only()? else { return Ok(()) };
        bail!("the pool is mounted read-only, at {}: mount it for writing first", mount.display());
    }

    /// Where it is mounted read-only, also by what was said after the daemon began.
    fn read_only(&self) -> Result<Option<PathBuf>> {
        let table = MountTable::read().context("/proc/self/mountinfo")?;
        let is_read_only = |mount: &&MountEntry| {
            mount_served(&self.arena, mount.device).is_some() && mount.is_read_only()
        };
        Ok(table.of_kind(KIND).find(is_read_only).map(|mount| mount.target.clone()))
    }

    pub(super) fn remove(&self, args: &SlotRemoveArgs, old: &Path) -> Result<()> {
        let (goes, number, path) = self.last(old)?;
        self.refuse_read_only()?;
        let (ask, work) = if args.cancel {
            (SlotAsk::Cancel, Work::Keep)
        } else {
            let before = self.found.info.slots.last().and_then(|last| last.goes);
            if let Some(other) = before.filter(|other| *other != goes) {
                remark!("novale: slot {other}, which was to go, stays now");
            }
            let pace = match args.pace {
                None => pace_of(&self.found),
                Some(0) => 0,
                bytes => empty::pace(bytes),
            };
            (SlotAsk::Empty(goes, pace), Work::Empty)
        };
        let is_leaving = self.is_leaving();
        let mut asked = self.ask(ask)?;
        let done = if args.no_wait { "begun" } else { self.wait(&mut asked, number, work)? };
        let done = if args.cancel && !is_leaving { "not leaving" } else { done };
        let facts = Emptied {
            done,
            slot: number,
            path: path.display().to_string(),
            pages_left: self.pages_left(number)?,
            files_mapped: slots_asked(&self.arena, Some(asked.turn)).mapped,
        };
        if args.json {
            return say!("{}", serde_json::to_string_pretty(&facts)?);
        }
        facts.tell(old)
    }

    /// Whether a slot is leaving, or was to by what was asked last: the daemon may not have begun with it.
    fn is_leaving(&self) -> bool {
        let is_asked = slots_asked(&self.arena, None).pace.is_some();
        is_asked || self.found.info.slots.iter().any(|slot| slot.is_leaving)
    }

    /// The number of the slot that is to go, and the slot that is to be emptied for it: the last.
    fn last(&self, old: &Path) -> Result<(u8, u8, &Path)> {
        let (slots, paths) = (&self.found.info.slots, &self.found.paths);
        let going = slots.iter().zip(paths).find(|(_, path)| path.as_path() == old);
        let (going, _) = going.context("the slot that is to go is none of the pool's")?;
        let last = slots.iter().zip(paths).next_back().filter(|_| slots.len() > 1);
        let Some((last, path)) = last else {
            bail!("it is the only slot of its pool: replace it, or remove the pool's file");
        };
        if last.pages < going.pages {
            bail!(
                "{} would take the place of {}, and is shorter: replace one of the two by a longer slot first, \
                 unmounted",
                path.display(),
                old.display()
            );
        }
        Ok((going.index, last.index, path))
    }

    /// Waits until it is done.
    fn wait(&self, asked: &mut Asked<'_>, slot: u8, work: Work) -> Result<&'static str> {
        let (begun, bar, turn) = (Instant::now(), Bar::new(), asked.turn);
        loop {
            let so_far = slots_asked(&self.arena, Some(turn));
            asked.hear(so_far.state);
            match so_far.state {
                EmptyState::Waiting if !so_far.is_last => {
                    bail!("another command has asked something else of the pool's slots meanwhile")
                }
                EmptyState::Waiting if begun.elapsed() > ANSWER_MAX => {
                    if matches!(work, Work::Add) && withdraw_slot_ask(&self.arena, turn) {
                        asked.hear(EmptyState::Refused);
                    }
                    bail!("the mount does not begin with it: it may be stopped")
                }
                EmptyState::Waiting => {}
                EmptyState::Moving => {
                    let left = self.pages_left(slot)?.unwrap_or(0);
                    let (done, total) = (so_far.moved, so_far.moved + left);
                    bar.show(Progress { what: "moving pages", done, total });
                }
                EmptyState::Emptied => return Ok("emptied"),
                EmptyState::Added => return Ok("added"),
                EmptyState::NotAlone => bail!(
                    "busy: a program has come to use the pool that can't open the slot: make the same call again, \
                     which names it"
                ),
                EmptyState::Stays => return Ok("kept"),
                EmptyState::NoRoom => bail!(
                    "slot {slot} stays: the other slots have no room for what it has in use and what is kept \
                     back: free space, or add a slot first"
                ),
                EmptyState::Failed | EmptyState::Refused => {
                    let full = full::folder().map_or_else(String::new, |full| format!("; {full}"));
                    bail!("slot {slot} {}: the mount's log says why{full}", work.failed())
                }
            }
            if live_clients(&self.arena).is_empty() {
                bail!("{}", work.cut_off());
            }
            wait_for_slots(&self.arena, Some(turn), &so_far, LOOK);
        }
    }

    fn pages_left(&self, slot: u8) -> Result<Option<u64>> {
        Ok(pages_left(&self.found, live_free(&self.arena, &self.found.info)?.as_deref(), slot))
    }
}

/// Of two that were to be added at once, the second one.
fn added_meanwhile(new: &Path) -> anyhow::Error {
    anyhow!(
        "{} was not added: another slot was added to the pool in the same moment; make the same call again, with that \
         slot among the others where they are named one by one",
        new.display()
    )
}

/// Pages a second at which a pool's mount empties a slot where nothing else is asked for.
pub(super) fn pace_of(found: &Found) -> u32 {
    let facts = found.paths.first().and_then(|first| ask::facts_of_pool(first));
    facts.map(|(_, facts)| facts.pace).filter(|pace| *pace > 0).unwrap_or_else(|| empty::pace(None))
}

/// Pages in use of a slot, `free` being those that are free of each.
pub(super) fn pages_left(found: &Found, free: Option<&[u64]>, slot: u8) -> Option<u64> {
    let pages = found.info.slots.get(usize::from(slot))?.pages;
    let free = free?.get(usize::from(slot))?;
    Some(pages.saturating_sub(OWN_PAGES + free))
}

impl Emptied {
    fn tell(&self, old: &Path) -> Result<()> {
        let (slot, path) = (self.slot, &self.path);
        match self.done {
            "kept" => return say!("kept: slot {slot}, {path}, takes new pages again"),
            "not leaving" => return say!("nothing to take back: no slot of the pool is leaving"),
            "begun" => {
                return say!("begun: slot {slot}, {path}; `novale slot status` says how far it is");
            }
            _ => {}
        }
        let left = self.pages_left.map_or_else(|| "some".to_owned(), |left| left.to_string());
        say!("emptied: slot {slot}, {path}, gets no new pages; {left} of inodes and lanes remain")?;
        if self.files_mapped > 0 {
            say!(
                "{} files stay there as long as programs map their pages: `novale slot status` names them",
                self.files_mapped
            )?;
        }
        let place = if Path::new(path) == old { "" } else { ", and takes the place of the other" };
        say!(
            "it goes once the pool is unmounted{place}; where a program has the pool open after that, with the \
             next mount"
        )
    }
}
