//! What a mount's daemon says of the mount, for the commands that meet the mount later.
//!
//! `umount`, `remount` and `info` start from a mount and need to know what its daemon runs with, also
//! when the pool's files were moved or removed meanwhile. The daemon itself says so, through the mount
//! ([`novale_fuse::FACTS`]): the kernel leads the question to who serves the mount, whatever the
//! namespace of who asks, and nothing is left behind by one that dies. A mount of another user may
//! say what it likes; who asks believes its own mounts and root's ([`MountEntry::is_believed`]).
//!
//! [`MountEntry::is_believed`]: novale_fuse::MountEntry::is_believed

use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use novale_core::{Form, Fs, Ino};
use novale_layout::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::base::size::show_size;

/// How a mount was made, and who uses its pool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The daemon, and the pid namespace that has it under this number.
    pub(crate) pid: u32,
    pub(crate) pid_namespace: u64,
    /// The slots' paths as they were, for messages.
    pub(crate) slots: Vec<String>,
    /// The slots' files, wherever they were moved.
    pub(crate) slot_files: Vec<SlotFile>,
    pub(crate) read_only: bool,
    pub(crate) threads: usize,
    pub(crate) grace_seconds: u64,
    /// Pages a second at which a slot is emptied where nothing else is asked for.
    #[serde(default)]
    pub(crate) pace: u32,
    /// The words of `-o` that ask for what the daemon runs with.
    pub(crate) daemon_words: Vec<String>,
    /// Which form commits take, in words.
    #[serde(default)]
    pub(crate) commits: String,
    /// Which methods writes take, as `--method` names them.
    #[serde(default)]
    pub(crate) method: String,
    /// How many bytes `lawn` writes as one; 0 of a daemon that does not say it.
    #[serde(default)]
    pub(crate) lawn_slot: u32,
    /// When writes become durable, in words; nothing where all are when they return.
    #[serde(default)]
    pub(crate) mode: String,
    /// The memory that is emulated, in words; nothing where none is.
    #[serde(default)]
    pub(crate) device: String,
    /// Slots that have failed since the pool was opened.
    #[serde(default)]
    pub(crate) failed_slots: Vec<u8>,
    /// Processes that use the pool and serve no mount.
    pub(crate) programs: Vec<u32>,
    /// Files that a slot which leaves waits for, some of them.
    #[serde(default)]
    pub(crate) waited_for: Vec<MappedFile>,
}

/// A file whose own pages programs have mapped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MappedFile {
    pub(crate) inode: u64,
    /// The processes that have.
    pub(crate) processes: Vec<u32>,
}

/// What the daemon has found and done that changes the pool's slots.
#[derive(Debug, Default)]
pub(crate) struct ChangedSlots {
    /// Files that were mapped when a slot that leaves was looked through last.
    pub(crate) mapped: Vec<Ino>,
}

/// The same, for all threads.
pub(crate) type Changing = Arc<Mutex<ChangedSlots>>;

/// Looks at it, or changes it.
pub(crate) fn of_changing<T>(changing: &Changing, act: impl FnOnce(&mut ChangedSlots) -> T) -> T {
    act(&mut changing.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes what is answered.
pub(crate) type Answer = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// What makes two files one slot: file system, inode, and the number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotFile(u64, u64, u64);

impl SlotFile {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let device = if metadata.file_type().is_char_device() { metadata.rdev() } else { 0 };
        Self(metadata.dev(), metadata.ino(), device)
    }
}

impl Facts {
    /// What the daemon that is this process answers from now on: `self`, and who uses the pool by then.
    pub(crate) fn answered(mut self, fs: Arc<Fs>, changing: Changing) -> Answer {
        self.pid = std::process::id();
        self.pid_namespace = pid_namespace();
        self.commits = commits(&fs);
        fs.update_policy().name().clone_into(&mut self.method);
        self.lawn_slot = fs.slot_lines().bytes();
        self.mode = mode(&fs);
        self.device = fs.pm().device().map(ToString::to_string).unwrap_or_default();
        Box::new(move || {
            let files = (0..MAX_SLOTS).map_while(|slot| fs.pm().slot_file(slot));
            let files = files.flat_map(File::metadata);
            let slot_files = files.map(|file| SlotFile::of(&file)).collect();
            let added = fs.slots_added();
            let added = added.iter().map(|path| path.display().to_string());
            let slots = self.slots.iter().cloned().chain(added).collect();
            let failed = fs.failed_slots() & !fs.pm().absent_slots();
            let failed_slots = (0..MAX_SLOTS).filter(|slot| failed >> slot & 1 != 0).collect();
            let waited_for = mapped_now(&fs, &changing);
            let programs = fs.programs();
            let now =
                Self { slots, slot_files, failed_slots, programs, waited_for, ..self.clone() };
            // Numbers and texts can be written.
            serde_json::to_vec(&now).unwrap_or_default()
        })
    }
}

/// What is answered of the slots: those that the pool was found with, and those that came.
pub(crate) fn slots_told(found: Vec<PathBuf>, fs: Arc<Fs>) -> Answer {
    Box::new(move || {
        let added = fs.slots_added();
        let all: Vec<&[u8]> =
            found.iter().chain(&added).map(|path| path.as_os_str().as_bytes()).collect();
        all.join(&0)
    })
}

/// Those that still are, and by whom.
fn mapped_now(fs: &Fs, changing: &Changing) -> Vec<MappedFile> {
    let then = of_changing(changing, |changed| changed.mapped.clone());
    let by_whom = |ino: Ino| {
        let processes = fs.mapped_by(ino).unwrap_or_default();
        MappedFile { inode: ino.get(), processes }
    };
    then.into_iter().map(by_whom).filter(|file| !file.processes.is_empty()).collect()
}

/// When writes become durable.
fn mode(fs: &Fs) -> String {
    let Some(mode) = fs.mode_of_writes() else { return String::new() };
    let blocks_max = fs.buffer_use().map_or(0, |usage| usage.blocks_max);
    let rules = fs.buffer_rules();
    let past = match rules.eager_ms / 1000 {
        0 => "nothing goes past it".to_owned(),
        seconds => format!("past it for {seconds} s after an fsync what gains nothing"),
    };
    format!(
        "{}; a buffer of {}, by {}; written back every {} s what is older than {} s, and from {} % free on up \
         to {} %; {past}",
        mode.name(),
        show_size(blocks_max * 4096),
        if rules.by_lines { "lines" } else { "pages" },
        rules.interval_ms / 1000,
        rules.age_ms / 1000,
        rules.low_percent,
        rules.high_percent
    )
}

/// Which form commits take, and why.
fn commits(fs: &Fs) -> String {
    match fs.commit_form() {
        (Form::Single, _) => "single-fence, as was chosen".to_owned(),
        (Form::Two, _) => "two-fence, as was chosen".to_owned(),
        (Form::Auto, None) => format!("single-fence up to {} bytes", Form::SUMMED_BYTES_MAX),
        (Form::Auto, Some(costs)) => format!(
            "single-fence up to {} bytes: a fence takes {} ns, the checksum of a page {} ns",
            costs.summed_bytes_max(),
            costs.fence_ns,
            costs.page_sum_ns
        ),
    }
}

/// What tells this process' pid namespace from others; 0 where that can't be seen.
pub(crate) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}
