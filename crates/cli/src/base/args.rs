//! The command line.

#![allow(clippy::doc_markdown, reason = "these docs are help texts, read on a terminal")]

mod slot;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use novale_pm::{Device, DeviceError};
use novale_policy::{Mode, Placement, SlotLines, UpdatePolicy};

pub(crate) use crate::base::args::slot::{
    NewSlotArgs, SlotAddArgs, SlotCommand, SlotRemoveArgs, SlotReplaceArgs, SlotStatusArgs,
};
use crate::base::buffer::BufferArgs;
use crate::base::size::{parse_endurance, parse_lawn_slot, parse_size};

/// Novale, a file system for persistent memory, in user space.
#[derive(Debug, Parser)]
#[command(
    name = "novale",
    version,
    after_help = "Examples:
  novale mkfs --size 4G /dev/shm/pool     make a pool of one slot, in memory
  novale mount /dev/shm/pool /mnt         mount it, in the background
  novale umount /mnt                      returns when the pool is closed
  novale check /dev/shm/pool              verify it (--repair mends it)

A SLOT is a file (on tmpfs, on a DAX file system, or anywhere), or a DAX device (/dev/dax0.0).
All slots of a pool are named together; their order does not matter once they are made."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Mkfs(MkfsArgs),
    Mount(Box<MountArgs>),
    Umount(UmountArgs),
    Run(RunArgs),
    Info(InfoArgs),
    Set(SetArgs),
    Stats(StatsArgs),
    Wear(WearArgs),
    Check(CheckArgs),
    Dump(DumpArgs),
    #[command(subcommand)]
    Slot(SlotCommand),
    #[command(subcommand)]
    Quota(QuotaCommand),
    InstallHelper(InstallArgs),
    #[command(hide = true)]
    Ask(AskArgs),
    #[command(hide = true)]
    Manual(ManualArgs),
}

impl Command {
    /// Whether the result is wanted as JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Mkfs(args) => args.json,
            Self::Info(args) => args.json,
            Self::Stats(args) => args.json,
            Self::Wear(args) => args.json,
            Self::Check(args) => args.json,
            Self::Dump(args) => args.json,
            Self::Slot(SlotCommand::Status(args)) => args.json,
            Self::Slot(SlotCommand::Add(args)) => args.new.json,
            Self::Slot(SlotCommand::Remove(args)) => args.json,
            Self::Slot(SlotCommand::Replace(args)) => args.new.json,
            Self::Quota(QuotaCommand::Show(args)) => args.json,
            Self::Mount(_)
            | Self::Umount(_)
            | Self::Run(_)
            | Self::Set(_)
            | Self::Quota(QuotaCommand::Set(_) | QuotaCommand::Clear(_))
            | Self::InstallHelper(_)
            | Self::Slot(SlotCommand::Finish { .. })
            | Self::Ask(_)
            | Self::Manual(_) => false,
        }
    }
}

/// Make an empty pool of one or more slots.
///
/// A slot that is missing is created as a file of SIZE bytes, readable by its owner alone. An
/// existing one keeps its size unless --size is given. Refused are a slot of a pool in use, and,
/// without --force, a slot whose first 2 MB hold anything but zeroes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale mkfs --size 4G /dev/shm/pool
  novale mkfs --size 64G /mnt/pmem0/slot /mnt/pmem1/slot
  novale mkfs --force --lanes 32 /dev/dax0.0")]
pub(crate) struct MkfsArgs {
    /// The size of each slot, in bytes or with a suffix K, M, G or T [default: 1G for a slot that is
    /// created].
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Overwrite what the slots hold.
    #[arg(long)]
    pub(crate) force: bool,
    /// Journals and allocation extents, about one for each CPU that will use the pool at once, 1 to
    /// 512 [default: the CPUs of this machine, at least 4].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) lanes: Option<u32>,
    /// How the pool's files are written, where neither a file nor a mount says otherwise [default: auto].
    #[arg(long, value_enum, value_name = "METHOD")]
    pub(crate) method: Option<MethodArg>,
    /// When writes become durable to the pool's files, where neither a file nor a mount says otherwise
    /// [default: strict].
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// How many writes a cell of the memory endures: a number (also 1e8), dram (1e18), stt-ram (1e15) or pcm
    /// (1e8); one for all slots, or one for each, in their order. Slots are worn evenly by it.
    #[arg(long, value_delimiter = ',', value_name = "WRITES", value_parser = parse_endurance)]
    pub(crate) endurance: Vec<u64>,
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not say that the pool does not survive a power cut, where its memory does not.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The slots, the first one becoming slot 0.
    #[arg(required = true, value_name = "SLOT")]
    pub(crate) slots: Vec<PathBuf>,
}

/// Mount a pool.
///
/// Returns when the mount can be used; a daemon serves it in the background. As root, the mount is
/// for all users, as mounts are (allow_other is on); permissions are checked by the kernel. Other
/// users need fusermount3 (package fuse3), and -o allow_other needs user_allow_other in
/// /etc/fuse.conf. A dead mount at DIR is detached first.
///
/// The daemon ends by `novale umount`, umount(8), SIGTERM or SIGINT. A signal takes the mount out of
/// the tree at once and refuses new opens; files that are open have the grace time to be closed
/// and are cut off then; the pool is closed clean.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  novale mount /dev/shm/pool /mnt
  novale mount -o ro,noatime slot0 slot1 /mnt
  novale mount --foreground /dev/dax0.0 /mnt
  novale mount -o direct /dev/shm/pool /mnt
  novale mount --device pcm,flush=clflush /dev/shm/pool /mnt
  novale mount -o remount,ro /mnt")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct MountArgs {
    /// Mount options, separated by commas: ro rw remount allow_other noatime relatime strictatime
    /// nosuid suid nodev dev noexec exec nosymfollow symfollow acl noacl user_xattr nouser_xattr
    /// threads=N grace=SECONDS, and for fstab log=FILE arena_max=SIZE index_memory=SIZE pace=SIZE form=FORM
    /// cold_after=SECONDS method=METHOD placement=PLACEMENT lawn_slot=BYTES mode=MODE buffer=SIZE write_back=SECONDS
    /// age=SECONDS low=PERCENT high=PERCENT eager=SECONDS unit=UNIT device=DEVICE populate direct map=WHAT quiet.
    /// What mount(8) and fstab add is taken as well. dirsync and lazytime change nothing, nor does sync but in mode buffered, where every write is durable then:
    /// every other operation is durable when it returns. An argument wins
    /// over the word that asks for the same. With ro nothing is written to the pool: one that was not
    /// closed clean shows what recovery would leave.
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Serve from this process instead of the background, until a signal or an unmount.
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Seconds that open files have at the end [default: 10].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u64>,
    /// Threads that serve [default: the CPUs, 4 to 64].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// How commits are ordered: by a checksum after one fence, by two fences, or as each pays.
    /// [default: auto]
    #[arg(long, value_enum)]
    pub(crate) form: Option<FormArg>,
    /// How files' bytes are written. For comparisons: auto takes what suits a write [default: the pool's, else
    /// auto].
    #[arg(long, value_enum)]
    pub(crate) method: Option<MethodArg>,
    /// How the slots are used, where there are several. For comparisons: wasa wears them evenly [default:
    /// wasa].
    #[arg(long, value_enum)]
    pub(crate) placement: Option<PlacementArg>,
    /// What method lawn takes for a slot: 64, 128, 256, 512 or 1024 bytes [default: 64].
    #[arg(long, value_parser = parse_lawn_slot, value_name = "BYTES")]
    pub(crate) lawn_slot: Option<SlotLines>,
    /// When writes become durable to files that don't say so themselves (`novale set --mode`) [default: the
    /// pool's; where that has none, before they return, for all files].
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArg>,
    /// Memory for bytes that are not durable yet, in mode buffered, in bytes or with a suffix [default: a
    /// quarter of what the index may take].
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub(crate) buffer: Option<u64>,
    #[command(flatten)]
    pub(crate) buffer_rules: BufferArgs,
    /// Emulate a slower memory, for this mount and all who join it: its delays and its bandwidth, as the
    /// papers had them. DEVICE is dram (none), stt-ram, pcm, hinfs, optane or cxl, values, or a name with
    /// values after it: read, write, barrier (ns: of a load from no cache, of a unit written, of a fence),
    /// bandwidth, read_bandwidth (bytes a second; bandwidth=1/8 of DRAM's), writers (at once), unit (bytes),
    /// flush (clflush, clflushopt, clwb: all stores through the caches). As an option of -o with colons for
    /// the commas. Refused where this machine is slower. Not a property of the pool.
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<Device>,
    /// Fault all of the pool in first, in 2 MB pages where they can be had.
    #[arg(long)]
    pub(crate) populate: bool,
    /// Let programs under `novale run` and users of the library have the pool beside this mount, or
    /// mount it beside them. The kernel then keeps nothing that it has read: through the mount each
    /// look at a file comes to the daemon. Root's second directory shows the first mount, as without this;
    /// another daemon of the pool has a mount of its own, and locks and mapped files are each mount's.
    #[arg(long)]
    pub(crate) direct: bool,
    /// What mappings of files are to programs under `novale run`, which says more of it with its own
    /// --map: that wins [default: kernel].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) map: Option<MapKind>,
    /// The most DRAM that indexes may take, with a suffix K, M, G or T [default: a quarter of the
    /// pool, at least 1G; used as needed].
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub(crate) arena_max: Option<u64>,
    /// DRAM that is enough for indexes, with a suffix: beyond it those of files that nobody has used
    /// lately are dropped, to be read again when needed [default: three quarters of --arena-max].
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub(crate) index_memory: Option<u64>,
    /// Bytes a second that the daemon moves at most when it empties a slot, with a suffix, where `novale slot
    /// remove` does not say, where it goes on with what an earlier one began, and of --cold-after [default: 16M].
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub(crate) pace: Option<u64>,
    /// Of a pool of several slots: seconds after which a file that nobody has changed may be moved, at that pace,
    /// to a slot that is worn, so that what is new finds room where the memory is worn least; 0: never [default: 600].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) cold_after: Option<u32>,
    /// Where the daemon's messages go [default: the system's log, once it is in the background].
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Do not say that the pool does not survive a power cut, where its memory does not.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Started by `novale mount`: reports on standard output, then leaves the terminal.
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
    /// The slots, in any order, and the directory to mount on.
    #[arg(required = true, value_name = "SLOT... DIR")]
    pub(crate) paths: Vec<PathBuf>,
}

/// What a program's mappings of files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MapKind {
    /// Through the mount, in the kernel's pages.
    Kernel,
    /// The file's own pages in the pool: for files that only programs run so map.
    Dax,
    /// A replica, of which msync publishes all changes at once: for files that only one process maps.
    Atomic,
}

/// The commit form on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormArg {
    Auto,
    Single,
    Two,
}

/// When writes become durable, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Before they return.
    Strict,
    /// With the file's next fsync, or after 5 to 35 seconds: HiNFS. After a power cut
    /// each file is what some first part of its writes left, all of those at least that came before
    /// its last fsync.
    Buffered,
}

impl ModeArg {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Strict => Mode::Strict,
            Self::Buffered => Mode::Buffered,
        }
    }
}

/// The methods of writes on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodArg {
    /// Appends in place, small overwrites of parts of pages by paired pages, all else copy-on-write.
    Auto,
    /// Copy-on-write alone, of appends too, as NOVA. All others append in place: that has no name of its own.
    Cow,
    /// Overwrites in place, as PMFS: after a crash any 8 bytes of one may be old or new.
    Inplace,
    /// Overwrites first to the file's log, then in place: the fine-grained redo log that LAWN is compared
    /// with.
    Finelog,
    /// Overwrites up to 8 KB by paired pages, LAWN's alternate writing: each line to that of a page's two
    /// copies in which it is not current.
    Paired,
    /// Overwrites up to 8 KB by adaptive differential logging: pages written up to half in place, under
    /// an undo log, the others by copies.
    Adl,
    /// As adl; what a program writes from a mapping of a file in the pool is its own redo log (zero-copy
    /// logging).
    Zcl,
    /// Overwrites of parts of up to two pages by slots, LAWN's zone: as paired, with second copies of lines
    /// in pages that 64 pages of the file share.
    Lawn,
}

impl MethodArg {
    pub(crate) fn policy(self) -> UpdatePolicy {
        match self {
            Self::Auto => UpdatePolicy::Auto,
            Self::Cow => UpdatePolicy::Cow,
            Self::Inplace => UpdatePolicy::InPlace,
            Self::Finelog => UpdatePolicy::FineLog,
            Self::Paired => UpdatePolicy::Paired,
            Self::Adl => UpdatePolicy::Adl,
            Self::Zcl => UpdatePolicy::Zcl,
            Self::Lawn => UpdatePolicy::Lawn,
        }
    }
}

/// The ways in which a pool's slots are used, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacementArg {
    /// New pages from the slot that is worn least, for its size and what its cells endure (WASA).
    Wasa,
    /// New pages from all slots in turn, by how much of each is free.
    Spread,
    /// New pages from the first slot that has some, as one list of free pages gives them.
    Single,
    /// Each lane with slots of its own, as a list of free pages for each CPU gives them.
    Lanes,
}

impl PlacementArg {
    pub(crate) fn placement(self) -> Placement {
        match self {
            Self::Wasa => Placement::Wasa,
            Self::Spread => Placement::Spread,
            Self::Single => Placement::Single,
            Self::Lanes => Placement::Lanes,
        }
    }
}

/// Unmount, and return when the pool is closed.
///
/// A mount on which files are open, or that is some program's working directory, is busy and stays,
/// unless --lazy or --force is given. A mount whose daemon is gone is detached.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale umount /mnt
  novale umount --force /mnt     cuts off what is open")]
pub(crate) struct UmountArgs {
    /// Detach now; open files stay usable, and the pool is closed after the last of them. Returns
    /// without waiting for that.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) lazy: bool,
    /// Cut off open files: they fail from now on.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The mount points.
    #[arg(required = true, value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
}

/// Run a program so that it serves its files in shared mounts itself, without the kernel.
///
/// The program need not know of it. Its calls on files below a mount made with -o direct go to the
/// pool's memory, and all other clients see what it does at once; what can't be served so goes
/// through the mount: programs that are linked statically or have set-id bits, and whatever the
/// program starts of that kind. Who may not use the pool's files has the mount alone, and this says so.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes are the program's; 125 if it was not run, or ended, because of --strict, 126 if it can't be
executed, 127 if it is not there.

Examples:
  novale mount -o direct /dev/shm/pool /mnt
  novale run sqlite3 /mnt/database
  novale run --report cp -r /usr/include /mnt
  novale run --mount /mnt -- redis-server --dir /mnt/redis"
)]
pub(crate) struct RunArgs {
    /// A shared mount that the program is to serve itself; can be given several times [default: all
    /// shared mounts whose pools the caller may use].
    #[arg(long = "mount", value_name = "DIR")]
    pub(crate) mounts: Vec<PathBuf>,
    /// Fail where the program could only run through the mount, or uses another Novale mount that can't
    /// be used directly; a program that can't join a pool later ends with 125. Calls that only the kernel
    /// can do, locks above all, go through the mount all the same.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Say of every shared mount that can't be used directly why that is, and not only of those that the
    /// working directory is in or an argument names; and where direct access is put back into the
    /// environment of a program that was started with another one.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// What mmap of a file shows: the kernel's pages, which every program may map; the file's own pages
    /// in the pool, which only programs that are run directly can map meanwhile; or a replica of which
    /// msync publishes all changes at once, and which is discarded without [default: what the mount says,
    /// by -o map=WHAT, or the kernel's].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) map: Option<MapKind>,
    /// Count the calls on files of shared mounts, direct ones and those through the mount with the
    /// reason, in the program and all that it starts, and show them on standard error when it ends; as
    /// JSON in FILE where one is given. The program runs as a child then, which gets the signals sent to
    /// this one.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-"
    )]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM [ARGS]..."
    )]
    pub(crate) command: Vec<OsString>,
}

/// Show what a pool is, also while it is in use, or how a file in a mount is written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale info /dev/shm/pool
  novale info --json slot0 slot1
  novale info /mnt/database")]
pub(crate) struct InfoArgs {
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The slots, in any order; or files and directories in mounts.
    #[arg(required = true, value_name = "SLOT|PATH")]
    pub(crate) slots: Vec<PathBuf>,
}

/// Choose how files are written.
///
/// A choice holds for a file from then on, whatever the mount says; of a directory, for what is made in it
/// from then on. What is there already stays as it is written, and can be read by all methods. The owner
/// and root may choose.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("choice").required(true).multiple(true).args(["method", "mode"]))]
#[command(after_help = "Examples:
  novale set --method adl /mnt/database
  novale set --method none /mnt/database     the mount's default again
  novale set --mode buffered /mnt/build
  novale info /mnt/database")]
pub(crate) struct SetArgs {
    /// The method, as in `novale mount --method`; none: that of the mount.
    #[arg(long, value_enum, value_name = "METHOD|none")]
    pub(crate) method: Option<ChosenMethod>,
    /// When writes become durable, where the mount has a mode (`novale mount --mode`); none: as the mount
    /// says.
    #[arg(long, value_enum, value_name = "MODE|none")]
    pub(crate) mode: Option<ChosenMode>,
    /// Files and directories in mounts.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// A mode of writes, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChosenMode(pub(crate) Option<ModeArg>);

impl ValueEnum for ChosenMode {
    fn value_variants<'a>() -> &'a [Self] {
        const CHOICES: &[ChosenMode] = &[
            ChosenMode(Some(ModeArg::Strict)),
            ChosenMode(Some(ModeArg::Buffered)),
            ChosenMode(None),
        ];
        CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self.0 {
            Some(mode) => mode.to_possible_value(),
            None => Some(PossibleValue::new("none").help("The mount's default, or the pool's")),
        }
    }
}

/// A method of writes, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChosenMethod(pub(crate) Option<MethodArg>);

impl ValueEnum for ChosenMethod {
    fn value_variants<'a>() -> &'a [Self] {
        const CHOICES: &[ChosenMethod] = &[
            ChosenMethod(Some(MethodArg::Auto)),
            ChosenMethod(Some(MethodArg::Cow)),
            ChosenMethod(Some(MethodArg::Inplace)),
            ChosenMethod(Some(MethodArg::Finelog)),
            ChosenMethod(Some(MethodArg::Paired)),
            ChosenMethod(Some(MethodArg::Adl)),
            ChosenMethod(Some(MethodArg::Zcl)),
            ChosenMethod(Some(MethodArg::Lawn)),
            ChosenMethod(None),
        ];
        CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self.0 {
            Some(method) => method.to_possible_value(),
            None => Some(PossibleValue::new("none").help("The mount's default, or the pool's")),
        }
    }
}

/// Show what a pool's clients were asked to write and what they stored, while it is open.
///
/// Counted are all clients since the pool was opened: the mount, programs under `novale run`, users of the
/// library, those that left or died included. What opening took (recovery) is in it; what a program stores
/// to a file's own pages that it has mapped is not. Only who has the pool open may see it: the counts lie
/// where its clients share memory. They go when the last of them closes the pool.
///
/// A line is 64 bytes. Streamed lines go past the caches, others are written back; either way a fence
/// waits for them: both together are what the slots got. In JSON `slot_lines` has them for each slot, by its
/// number.
///
/// A write is counted by what was done: one of `auto` as `paired`, `cow` or `append`, one of `zcl` as `adl`
/// where its bytes were no log of their own.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale stats /dev/shm/pool
  novale stats --json slot0 slot1
  novale stats --watch=5 /dev/shm/pool")]
pub(crate) struct StatsArgs {
    /// Show what was counted in each second, or in so many, until the pool is closed.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) watch: Option<u64>,
    /// Print JSON, with --watch an object on a line each time; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The slots, in any order.
    #[arg(required = true, value_name = "SLOT")]
    pub(crate) slots: Vec<PathBuf>,
}

/// Show how far a pool's slots are worn, and how long they last.
///
/// What counts is lines of 64 bytes that reached a slot, for any purpose, since the pool was made; of a pool
/// that is open up to now, else as far as its slots say: what was written between the last time that they were
/// told and a crash is not counted. The lifetime is that of WASA's equations: writes that a cell endures, times
/// the size of the slot, by the bytes that it gets a day. It takes the memory to spread what it gets over its
/// cells.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale wear /dev/shm/slot0 /dev/shm/slot1
  novale wear --endurance pcm slot0 slot1 slot2 slot3
  novale wear --watch=10 --json slot0 slot1
  novale wear --svg wear.svg slot0 slot1")]
pub(crate) struct WearArgs {
    /// Go by what reaches the slots in each second, or in so many, until the pool is closed.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) watch: Option<u64>,
    /// How many writes a cell endures, where the pool does not say so: a number (also 1e8), dram (1e18),
    /// stt-ram (1e15) or pcm (1e8).
    #[arg(long, value_name = "WRITES", value_parser = parse_endurance)]
    pub(crate) endurance: Option<u64>,
    /// Draw the slots' wear into this file, as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON, with --watch an object on a line each time; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The slots, in any order.
    #[arg(required = true, value_name = "SLOT")]
    pub(crate) slots: Vec<PathBuf>,
}

/// Started by `novale info`: asks a mount for its space, which a stuck daemon never answers.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// The mount point.
    pub(crate) dir: PathBuf,
}

/// Verify a pool, and repair it on demand.
///
/// Every page is accounted for exactly once, every inode is reachable with the right link count,
/// and all checksums and orders hold. A pool in use is refused. Without --repair nothing is changed.
///
/// --repair mends what needs no guess and gives nothing up: copies, words of the inode directory,
/// the saved allocator, names of nothing, link counts, pages with two owners, and what has lost its
/// name, which goes to /lost+found under its inode's number. A pool with other damage is left as it
/// is. --repair=salvage gives damaged inodes a state as well: of what can be read, the rest is given
/// up. Their inodes, log pages and pages of attributes are kept in --save first; data that only a lost
/// piece of a log named, and attributes' long values, are not: copy the slots for these. What a repair
/// would do is shown first; it asks on a terminal, and needs --yes elsewhere. Cut off anywhere, it can
/// be run again.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes, as fsck's: 0 no errors, 1 errors were found and all of them repaired, 4 errors are
left, 8 the check could not run, 16 a wrong call.

Examples:
  novale check /dev/shm/pool
  novale check --repair --dry-run /dev/shm/pool
  novale check --repair --yes slot0 slot1
  novale check --repair=salvage --save /var/tmp/pieces /dev/shm/pool"
)]
pub(crate) struct CheckArgs {
    /// Repair what was found.
    #[arg(long, value_enum, value_name = "EFFORT", num_args = 0..=1, require_equals = true,
        default_missing_value = "safe")]
    pub(crate) repair: Option<EffortArg>,
    /// Show what a repair would do, and do nothing.
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,
    /// Repair without asking.
    #[arg(long, requires = "repair", conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Where the pieces of damaged inodes are kept as files, before a salvage gives them up; made if
    /// need be.
    #[arg(long, requires = "repair", value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The slots, in any order.
    #[arg(required = true, value_name = "SLOT")]
    pub(crate) slots: Vec<PathBuf>,
}

/// How far a repair goes, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffortArg {
    Safe,
    Salvage,
}

/// Show what lies in a pool, structure by structure, damaged ones too; changes nothing.
///
/// WHAT is one of: superblock (both copies, the state lines), slots (headers and state lines), lanes
/// (the journals), saved (the allocator's state as it was saved), inode NUMBER, path PATH (its lines,
/// its log entry by entry, names or extents), page ADDRESS (whose it is). Addresses are SLOT:0xOFFSET,
/// fields have the names of docs/SPEC.md. Of what is kept twice it says which copy stands and why the
/// other does not; what is refused is shown raw, with the reason. No lock is taken: a pool in use
/// may change meanwhile. A slot that is missing may be left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale dump /dev/shm/pool superblock
  novale dump /dev/shm/pool path /etc/fstab
  novale dump --json slot0 slot1 inode 17
  novale dump --hex /dev/shm/pool page 0:0x8000")]
pub(crate) struct DumpArgs {
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Of a page, what is in it.
    #[arg(long)]
    pub(crate) hex: bool,
    /// Of an inode, what lies after the committed tail of its log.
    #[arg(long)]
    pub(crate) behind: bool,
    /// Log entries, names and extents that are shown, of each so many.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub(crate) limit: usize,
    /// The slots, in any order, and what is to be shown.
    #[arg(required = true, value_name = "SLOT... WHAT")]
    pub(crate) words: Vec<OsString>,
}

/// Limit what directory trees of a mount use, and show it.
///
/// A tree is a directory with all that is below it. What is made in it counts for it; what it may not
/// exceed fails with "disk quota exceeded", and df shows the tree's own space. A name can't be moved
/// from a tree to another (mv copies then); a tree in a tree counts for itself alone. Needs root.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    Set(QuotaSetArgs),
    Show(QuotaShowArgs),
    Clear(QuotaClearArgs),
}

/// Limit a directory with all that is below it; what it exceeds already stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale quota set --space 10G /mnt/alice
  novale quota set --space none --inodes 100000 /mnt/alice")]
pub(crate) struct QuotaSetArgs {
    /// Bytes, with a suffix K, M, G or T, or none [default: as before].
    #[arg(long, value_name = "SIZE", value_parser = parse_space)]
    pub(crate) space: Option<Limit>,
    /// Inodes, or none [default: as before].
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    pub(crate) inodes: Option<Limit>,
    /// The directory, in a mount.
    pub(crate) dir: PathBuf,
}

/// Show what the tree of a directory uses and may use.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale quota show /mnt/alice
  novale quota show --all --json /mnt")]
pub(crate) struct QuotaShowArgs {
    /// All trees of the mount.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON; of a failure, an object with `error`.
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory, in a mount.
    pub(crate) dir: PathBuf,
}

/// Make a tree a part of what is around it again, without limits of its own.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  novale quota clear /mnt/alice")]
pub(crate) struct QuotaClearArgs {
    /// The directory, in a mount.
    pub(crate) dir: PathBuf,
}

fn parse_device(text: &str) -> Result<Device, String> {
    text.parse().map_err(|error: DeviceError| error.to_string())
}

/// A limit; 0 is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(pub(crate) u64);

fn parse_space(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(0)) } else { parse_size(text).map(Limit) }
}

fn parse_count(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(0));
    }
    let number = text.parse().ok().filter(|number: &u64| *number > 0);
    number.map(Limit).ok_or_else(|| format!("'{text}' is no number of inodes, nor none"))
}

/// Let mount(8) and fstab mount pools: links mount.fuse.novale to this program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  novale install-helper
  mount -t fuse.novale /dev/shm/pool /mnt
  mount -t fuse.novale -o noatime slot0:slot1 /mnt
In /etc/fstab:
  /mnt/pmem0/slot0:/mnt/pmem1/slot1  /data  fuse.novale  noatime,nofail  0 0")]
pub(crate) struct InstallArgs {
    /// The directory where mount(8) looks for helpers.
    #[arg(long, default_value = "/sbin")]
    pub(crate) dir: PathBuf,
    /// Replace a helper that is not this program.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Write the manual pages novale(1), novale-mkfs(1) and so on into a directory.
#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// The directory.
    pub(crate) dir: PathBuf,
}
