//! The arguments of `novale slot`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::base::size::{parse_endurance, parse_pace, parse_size};

/// Look after the slots of a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum SlotCommand {
    Status(SlotStatusArgs),
    Add(SlotAddArgs),
    Remove(SlotRemoveArgs),
    Replace(SlotReplaceArgs),
    /// Take out the slot that was emptied, of a pool that nobody has open any more: what a daemon does last.
    #[command(hide = true)]
    Finish {
        /// The directory that it was mounted on, by which it is found.
        #[arg(long)]
        of: Option<PathBuf>,
        /// The pool's slots.
        slots: Vec<PathBuf>,
    },
}

/// Show each slot of a pool: where it is, how much is free, how far it is worn, and whether it works.
///
/// Of a pool in use its clients say what is free and what has failed; of one that was closed clean it is
/// known what is free, of one that was not, it is not. What lanes have in hand counts as used.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale slot status /dev/shm/slot0 /dev/shm/slot1
  novale slot status --json /mnt/novale")]
pub(crate) struct SlotStatusArgs {
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The slots, in any order, or the directory that the pool is mounted on.
    #[arg(required = true, value_name = "SLOT|DIR")]
    pub(crate) slots: Vec<PathBuf>,
}

/// How a slot comes to a pool.
#[derive(Debug, Args)]
pub(crate) struct NewSlotArgs {
    /// The size of the new slot's file, which is made with the owner and mode of the pool's first one, in
    /// bytes or with a suffix K, M, G or T.
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Overwrite what the new slot holds, or take one of another user.
    #[arg(long)]
    pub(crate) force: bool,
    /// How many writes a cell of its memory endures: a number (also 1e8), dram, stt-ram or pcm; of one that
    /// replaces another, as many as of that unless said.
    #[arg(long, value_name = "WRITES", value_parser = parse_endurance)]
    pub(crate) endurance: Option<u64>,
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Add a slot to a pool, also while it is mounted.
///
/// It becomes the last one, and new pages come from it from then on. A call that was cut off is made again
/// with the same slots.
///
/// The daemon of a mounted pool adds it beside all that goes on. Programs that use the pool directly, and other mounts
/// of it, map it when they next do something there. Where the kernel does not say of one that it can open the slot
/// (by its root, its rights, its limits), it is named, and nothing is changed. From the next mount on the slot is named
/// with the others. Four can be added before the pool is mounted anew, and none while one is leaving.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale slot add --size 64G /mnt/pmem2/slot /mnt/pmem0/slot /mnt/pmem1/slot
  novale slot add --size 64G /mnt/pmem2/slot /mnt/novale")]
pub(crate) struct SlotAddArgs {
    #[command(flatten)]
    pub(crate) new: NewSlotArgs,
    /// The new slot.
    #[arg(value_name = "NEW")]
    pub(crate) slot: PathBuf,
    /// All slots that the pool has, in any order, or the directory that it is mounted on.
    #[arg(required = true, value_name = "SLOT|DIR")]
    pub(crate) slots: Vec<PathBuf>,
}

/// Take a slot out of a pool, or empty it while the pool is mounted.
///
/// All that the pool's last slot has is moved to the others; where another one is to go, the last takes its
/// place, which must be at least as long. A call that was cut off may be made again with the same slots, and
/// goes on; until then the pool can be mounted, and takes no new pages from the last slot, which `novale slot
/// status` calls leaving. The slot that went is no slot of a pool after it.
///
/// Of a pool that is mounted the daemon does the long part, beside all who use it: it empties the last slot but
/// for pages of inodes and lanes. The slot goes when the pool is unmounted, or, where a program has it open
/// after that or the daemon was killed, with the next mount. Where the daemon ends before the slot is empty, the
/// next mount goes on. Files whose own pages a program has mapped stay until it has given them up:
/// `novale slot status` names them, and the programs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale slot remove /mnt/pmem1/slot /mnt/pmem0/slot /mnt/pmem2/slot
  novale slot remove --no-wait /mnt/pmem1/slot /mnt/novale")]
pub(crate) struct SlotRemoveArgs {
    /// Take back a removal that was cut off, or that a mount is at: new pages come from the last slot again.
    #[arg(long)]
    pub(crate) cancel: bool,
    /// Of a mounted pool: return once it is asked for.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Of a mounted pool: move so many bytes a second at most, with a suffix; 0: as fast as it goes [default: that of
    /// the mount (`-o pace=SIZE`), 16M].
    #[arg(long, value_name = "SIZE", value_parser = parse_pace)]
    pub(crate) pace: Option<u64>,
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The slot that is to go.
    #[arg(value_name = "OLD")]
    pub(crate) slot: PathBuf,
    /// All other slots of the pool, in any order, or the directory that the pool is mounted on.
    #[arg(required = true, value_name = "SLOT|DIR")]
    pub(crate) slots: Vec<PathBuf>,
}

/// Put a slot in the place of another, also while the pool is mounted.
///
/// What the old one has in use is copied; the new one must be at least as long. The pool is as it was until
/// the copy is whole, so a call that was cut off is made again with the same slots; cut off at its end it may
/// leave the pool read-only until then. The old slot is no slot of a pool after it.
///
/// To a mounted pool NEW is added as by `novale slot add`, and gets no pages. It takes the place of OLD when the pool is
/// unmounted, or, where a program has it open after that or the daemon was killed, with the next mount or by the
/// same call. All slots are to be named until then; with --cancel NEW stays what was added.
///
/// With --lost OLD is one that can't be read any more, or is not there: what lay there is given up, and NEW begins
/// empty. Files whose inode or log lay there are gone, those with data there have zeros in their place; `novale
/// check` of the other slots says beforehand which, and this call too. What has no name left is in /lost+found.
/// The pool must not be mounted, and slot 0 can't be given up. A call that was cut off is made again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale slot replace --size 64G /mnt/pmem0/slot /mnt/pmem2/slot /mnt/pmem1/slot
  novale slot replace --lost --size 64G /mnt/pmem1/slot /mnt/pmem2/slot /mnt/pmem0/slot")]
pub(crate) struct SlotReplaceArgs {
    #[command(flatten)]
    pub(crate) new: NewSlotArgs,
    /// Take back a call that was cut off before NEW had its place: OLD is the pool's slot as before. With
    /// --force also where NEW is gone for good.
    #[arg(long)]
    pub(crate) cancel: bool,
    /// OLD is lost: give up what lay there.
    #[arg(long, conflicts_with = "cancel")]
    pub(crate) lost: bool,
    /// The slot that is to go.
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The one that takes its place.
    #[arg(value_name = "NEW")]
    pub(crate) slot: PathBuf,
    /// All other slots of the pool, in any order, or the directory that it is mounted on.
    #[arg(value_name = "SLOT")]
    pub(crate) slots: Vec<PathBuf>,
}
