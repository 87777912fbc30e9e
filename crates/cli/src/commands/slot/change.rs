//! `novale slot add`, `remove`, `replace`: the slots of a pool that nobody uses. All that can be refused is,
//! before anything is changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use novale_core::{FIRST_SLOT_BYTES_MIN, SLOT_BYTES_MIN};
use novale_pm::PmOptions;
use novale_posix::slots::{self as changing, Coming, Helpers};
use novale_posix::{OUR_FORMAT, what_it_holds};
use serde::Serialize;

use crate::base::args::{NewSlotArgs, SlotAddArgs, SlotRemoveArgs, SlotReplaceArgs};
use crate::base::progress::{AllCpus, Bar};
use crate::base::size::show_size;
use crate::holders::holder;
use crate::pools::locked::PoolLock;
use crate::pools::slot_files::{self, Changed};
use crate::pools::slots;

/// What was done, as JSON shows it.
#[derive(Debug, Serialize)]
struct ChangedSlot {
    done: &'static str,
    /// The number of the slot that came.
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u8>,
    path: String,
}

pub(super) fn add(args: &SlotAddArgs) -> Result<()> {
    let new = one(&args.slot)?;
    let pool = slots::absolute(&args.slots)?;
    let coming = ComingSlot { args: &args.new, path: &new, old: None, least: SLOT_BYTES_MIN };
    let (mut made, [lock, _lock_of_new]) = coming.prepare(&pool)?;
    let endurance = args.new.endurance.unwrap_or(0);
    let only = made.files_with(&lock)?;
    let index = with_bar(&only, |helpers| Ok(changing::add(&pool, &new, endurance, helpers)?))?;
    made.keep();
    tell(args.new.json, "added", Some(index), &new)
}

pub(super) fn remove(args: &SlotRemoveArgs) -> Result<()> {
    let old = one(&args.slot)?;
    let pool = with(&old, &args.slots)?;
    slots::refuse_twice(&pool)?;
    let lock = holder::lock(&pool)?;
    identify(&pool, &old)?;
    if args.cancel {
        let is_kept = with_bar(&lock.files()?, |helpers| Ok(changing::keep(&pool, helpers)?))?;
        let done = if is_kept { "kept" } else { "not leaving" };
        return tell(args.json, done, None, &old);
    }
    with_bar(&lock.files()?, |helpers| Ok(changing::remove(&pool, &old, helpers)?))?;
    tell(args.json, "removed", None, &old)
}

pub(super) fn replace(args: &SlotReplaceArgs) -> Result<()> {
    let (old, new) = (one(&args.old)?, one(&args.slot)?);
    let pool = with(&old, &args.slots)?;
    let coming = ComingSlot { args: &args.new, path: &new, old: Some(&old), least: SLOT_BYTES_MIN };
    let (mut made, [lock, _lock_of_new]) = coming.prepare(&pool)?;
    let endurance = args.new.endurance.unwrap_or(0);
    let only = made.files_with(&lock)?;
    let index =
        with_bar(&only, |helpers| Ok(changing::replace(&pool, &old, &new, endurance, helpers)?))?;
    made.keep();
    tell(args.new.json, "replaced", Some(index), &new)
}

/// A slot that is to come.
struct ComingSlot<'a> {
    args: &'a NewSlotArgs,
    path: &'a Path,
    /// The one whose place it takes.
    old: Option<&'a PathBuf>,
    /// The least bytes of it.
    least: u64,
}

impl ComingSlot<'_> {
    /// Locks all slots, and makes the file of the one that comes where it is not there.
    fn prepare(mut self, pool: &[PathBuf]) -> Result<(Changed, [PoolLock; 2])> {
        let new = self.path.to_owned();
        let all: Vec<PathBuf> = pool.iter().chain([&new]).cloned().collect();
        slots::refuse_twice(&all)?;
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
                "the slot that is to go can't be read. Where an earlier call has ended it is out already; one \
                 that is lost is neither removed nor replaced, for what lay there is nowhere else: `novale \
                 check` on the other slots names the files, `novale mount -o ro` shows what remains"
            } else {
                "the other slots of the pool"
            }
        })?;
    }
    Ok(())
}

fn one(path: &Path) -> Result<PathBuf> {
    let absolute = slots::absolute(&[path.to_owned()])?;
    absolute.into_iter().next().context("a slot's path")
}

/// The slots, and one that may be among them.
fn with(slot: &PathBuf, others: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = slots::absolute(others)?;
    if !all.contains(slot) {
        all.push(slot.clone());
    }
    Ok(all)
}

/// Does something with slots, in `only` those files.
fn with_bar<T>(only: &[(u64, u64)], act: impl FnOnce(&Helpers<'_>) -> Result<T>) -> Result<T> {
    let bar = Bar::new();
    act(&Helpers {
        exec: &AllCpus,
        progress: &|progress| bar.show(progress),
        mapping: &|_| PmOptions { only: only.to_vec(), ..PmOptions::default() },
    })
}

fn tell(json: bool, done: &'static str, slot: Option<u8>, path: &Path) -> Result<()> {
    let facts = ChangedSlot { done, slot, path: path.display().to_string() };
    if json {
        return say!("{}", serde_json::to_string_pretty(&facts)?);
    }
    match (done, slot) {
        (_, Some(slot)) => say!("{done}: slot {slot} is {}", facts.path),
        ("removed", None) => say!("{done}: {} is no slot of the pool any more", facts.path),
        (_, None) => say!("{done}: {} is a slot of the pool", facts.path),
    }
}
