//! `novale mkfs`: everything is checked before anything is changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use novale_core::{Error, FIRST_SLOT_BYTES_MIN, MkfsOptions, SLOT_BYTES_MIN, mkfs_check};
use novale_pm::{PmOptions, SlotMemory};
use novale_posix::{foreign_slot, mkfs_options, mkfs_over};
use serde::Serialize;
use uuid::Uuid;

use crate::base::args::{MethodArg, MkfsArgs, ModeArg};
use crate::base::progress::spin;
use crate::base::size::show_size;
use crate::holders::holder;
use crate::pools::locked::PoolLock;
use crate::pools::memory;
use crate::pools::slot_files::{self, ANOTHERS, Changed};
use crate::pools::slots;

/// The size of a slot that is created when none is given.
const DEFAULT_BYTES: u64 = 1 << 30;
/// The pool that was made, as JSON shows it.
#[derive(Debug, Serialize)]
struct MadeFacts {
    uuid: String,
    lanes: u32,
    slots: Vec<MadeSlot>,
}

#[derive(Debug, Serialize)]
struct MadeSlot {
    path: String,
    bytes: u64,
    /// What memory it is in.
    memory: &'static str,
}

pub(crate) fn run(args: &MkfsArgs) -> Result<()> {
    let paths = slots::absolute(&args.slots)?;
    slots::refuse_twice(&paths)?;
    slots::refuse_unnamed(&paths)?;
    for path in &paths {
        slot_files::check_kind(path)?;
    }
    let (there, missing): (Vec<_>, Vec<_>) = paths.iter().cloned().partition(|path| path.exists());
    let lock = holder::lock(&there)?;
    let mut lens = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        lens.push(check_slot(args, index, path, &lock)?);
    }
    let mut options = mkfs_options(args.lanes, paths.len());
    options.update = args.method.map(MethodArg::policy);
    options.mode = args.mode.map(ModeArg::mode);
    options.endurance = endurance(&args.endurance, paths.len())?;
    mkfs_check(&lens, options.lanes)?;
    slot_files::check_room(&paths, &lens)?;
    let mut changed = Changed::default();
    for path in &missing {
        changed.create(path, args.size.unwrap_or(DEFAULT_BYTES))?;
    }
    let _lock_of_new = holder::lock(&missing)?;
    if let Some(size) = args.size {
        changed.resize(there.iter().filter(|path| path.is_file()), &lock, size)?;
    }
    let only = changed.files_with(&lock)?;
    let slots = spin("preparing the slots", || make(&paths, only, &options, args.force))?;
    changed.keep();
    let made = facts(&paths, &slots, &options);
    if args.json {
        say!("{}", serde_json::to_string_pretty(&made)?)?;
    } else {
        show(&made, &slots::shown(&paths))?;
    }
    if !args.quiet {
        let memory: Vec<SlotMemory> = slots.iter().map(|(_, memory)| *memory).collect();
        memory::warn(&paths, &memory);
    }
    Ok(())
}

/// What the cells of each slot endure, where that was said.
fn endurance(said: &[u64], slots: usize) -> Result<Vec<u64>> {
    match said {
        [] => Ok(Vec::new()),
        [all] => Ok(vec![*all; slots]),
        each if each.len() == slots => Ok(each.to_vec()),
        each => bail!(
            "--endurance has {} numbers for {slots} slots: give one, or one for each",
            each.len()
        ),
    }
}

/// Makes the pool, in `only` those files; returns the slots' sizes in bytes, and what memory each is in.
fn make(
    paths: &[PathBuf],
    only: Vec<(u64, u64)>,
    options: &MkfsOptions,
    force: bool,
) -> Result<Vec<(u64, SlotMemory)>> {
    let pm = slots::open(paths, PmOptions { hugepages: true, only, ..PmOptions::default() })?;
    // Of what was opened: another user may have put a file there since it was looked for.
    if !force && let Some(slot) = foreign_slot(&pm) {
        let path = paths.get(usize::from(slot)).map(|path| path.display().to_string());
        bail!("{}: {ANOTHERS}", path.unwrap_or_default());
    }
    mkfs_over(&pm, options).map_err(|error| failed(paths, error))?;
    let slot = |slot| (pm.slot_len(slot), pm.slot_memory(slot));
    Ok((0..pm.slot_count()).map(slot).collect())
}

/// Of a slot that was cut off meanwhile, which it is.
fn failed(paths: &[PathBuf], error: Error) -> anyhow::Error {
    let slot = if let Error::Lost(at) = error { paths.get(usize::from(at.slot())) } else { None };
    match slot {
        Some(slot) => anyhow!(
            "{} was cut off, or its memory failed, while the pool was made there: no pool was made",
            slot.display()
        ),
        None => error.into(),
    }
}

/// Refuses a slot that is too small or holds something; returns the bytes that it is to have.
fn check_slot(args: &MkfsArgs, index: usize, path: &Path, lock: &PoolLock) -> Result<u64> {
    if lock.file(path).is_err() {
        return check_size(index, path, args.size.unwrap_or(DEFAULT_BYTES));
    }
    slot_files::check_held(path, lock, args.force)?;
    match slots::file_len(path) {
        Some(len) => check_size(index, path, args.size.unwrap_or(len)),
        None => slots::device_len(path),
    }
}

fn check_size(index: usize, path: &Path, bytes: u64) -> Result<u64> {
    let least = if index == 0 { FIRST_SLOT_BYTES_MIN } else { SLOT_BYTES_MIN };
    if bytes < least {
        bail!(
            "{} would have {}, but {} needs at least {}: give a larger --size",
            path.display(),
            show_size(bytes),
            if index == 0 { "the first slot" } else { "a further slot" },
            show_size(least)
        );
    }
    Ok(bytes)
}

fn facts(paths: &[PathBuf], slots: &[(u64, SlotMemory)], options: &MkfsOptions) -> MadeFacts {
    let slots = paths.iter().zip(slots).map(|(path, (bytes, memory))| MadeSlot {
        path: path.display().to_string(),
        bytes: *bytes,
        memory: memory::word(*memory),
    });
    MadeFacts {
        uuid: Uuid::from_bytes(options.pool_uuid).to_string(),
        lanes: options.lanes,
        slots: slots.collect(),
    }
}

fn show(made: &MadeFacts, paths: &str) -> Result<()> {
    say!("made pool {}, {} lanes", made.uuid, made.lanes)?;
    for (index, slot) in made.slots.iter().enumerate() {
        say!("  slot {index}  {}  {}", show_size(slot.bytes), slot.path)?;
    }
    say!("mount it: novale mount {paths} DIR")
}
