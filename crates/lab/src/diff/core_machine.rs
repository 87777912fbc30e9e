//! The product's library as a subject and a machine: on a pool in memory that outlives each open.

use std::collections::BTreeMap;

use novale_arena::Arena;
use novale_core::{
    Atime, BufferRules, CheckReport, Ctx, Error as FsError, Form, Fs, GcStats, MkfsOptions, Mode,
    OpenOptions, OpenReport, Placement, Serial, UpdatePolicy, Usage,
};
use novale_model::{Ino, PAGE_BYTES};
use novale_pm::{Pm, PmOptions};

use super::core_subject::OnFs;
use super::mapping::Mappings;
use super::run::{Machine, now_ns_at};
use crate::pool_file::PoolFile;
use crate::workload::Failure;

/// How a pool is made and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreOptions {
    /// Bytes of each slot.
    pub slots: Vec<u64>,
    /// Lanes.
    pub lanes: u32,
    /// The commit form.
    pub form: Form,
    /// Which methods writes take.
    pub update: UpdatePolicy,
    /// When writes become durable.
    pub mode: Mode,
    /// For how long after a sync writes may go past the buffer, ms; 0: none do.
    pub eager_ms: u32,
}

/// How a pool's files are written and committed.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// The commit form.
    pub form: Form,
    /// Which methods writes take.
    pub update: Option<UpdatePolicy>,
    /// When writes become durable.
    pub mode: Option<Mode>,
    /// For how long after a sync writes may go past the buffer, ms; 0: none do.
    pub eager_ms: u32,
}

impl Manner {
    /// The options that say so.
    pub fn options(self, now_ns: i64) -> OpenOptions {
        let Self { form, update, mode, eager_ms } = self;
        let buffer_rules = BufferRules { eager_ms, ..BufferRules::default() };
        OpenOptions { form, update, mode, buffer_rules, now_ns, ..OpenOptions::default() }
    }
}

impl From<Form> for Manner {
    fn from(form: Form) -> Self {
        Self { form, update: None, mode: None, eager_ms: 0 }
    }
}

impl CoreOptions {
    /// A pool of these slots, whose writes take what suits them.
    #[must_use]
    pub fn new(slots: Vec<u64>, lanes: u32, form: Form) -> Self {
        let (update, mode) = (UpdatePolicy::Auto, Mode::Strict);
        Self { slots, lanes, form, update, mode, eager_ms: 0 }
    }

    /// How files are written and committed.
    pub fn manner(&self) -> Manner {
        let Self { form, update, mode, eager_ms, .. } = *self;
        Manner { form, update: Some(update), mode: Some(mode), eager_ms }
    }
}

/// Bytes that the view may take.
const ARENA_BYTES: u64 = 256 << 20;

/// The library on a pool of its own.
#[derive(Debug)]
pub struct CoreMachine {
    /// `None` only while it is being opened again, or after that failed.
    fs: Option<Fs>,
    pool: PoolFile,
    manner: Manner,
    mappings: Mappings,
}

impl CoreMachine {
    /// Makes a pool and opens it.
    ///
    /// # Errors
    /// What the library says.
    pub fn new(options: &CoreOptions) -> Result<Self, String> {
        let pool = PoolFile::zeroed(&options.slots).map_err(|why| why.to_string())?;
        let pm = pool.open(&PmOptions::default())?;
        make_pool(&pm, options.lanes)?;
        let mut machine =
            Self { fs: None, pool, manner: options.manner(), mappings: Mappings::default() };
        machine.open(now_ns_at(0))?;
        Ok(machine)
    }

    /// An open file system that is never to be closed or killed.
    #[must_use]
    pub fn around(fs: Fs) -> Self {
        let (pool, mappings) = (PoolFile::default(), Mappings::default());
        Self { fs: Some(fs), pool, manner: Form::Auto.into(), mappings }
    }

    /// How opening went.
    ///
    /// # Errors
    /// It did not open.
    pub fn opened(&self) -> Result<OpenReport, String> {
        let fs = self.fs.as_ref().ok_or("it did not open before")?;
        Ok(*fs.opened())
    }

    /// Its pool's memory.
    ///
    /// # Errors
    /// It did not open.
    pub fn pm(&self) -> Result<&Pm, String> {
        let fs = self.fs.as_ref().ok_or("it did not open before")?;
        Ok(fs.pm())
    }

    /// Forgets all that is not stored, as a death does: what is left are the pool's memory, and an
    /// arena as good as new.
    ///
    /// # Errors
    /// It did not open, or somebody keeps the arena.
    pub fn into_parts(self) -> Result<(Pm, Arena), String> {
        let fs = self.fs.ok_or("it did not open before")?;
        let (pm, arena) = fs.into_parts();
        let arena = arena.renewed().map_err(|_| "the arena is in use still")?;
        Ok((pm, arena))
    }

    /// Says when reads change the access time; first they never do.
    pub fn set_atime(&self, atime: Atime) {
        if let Some(fs) = &self.fs {
            fs.set_atime(atime);
        }
    }

    /// Log pages reclaimed since it was opened; none if it did not open.
    pub fn collected(&self) -> GcStats {
        self.fs.as_ref().map(Fs::gc_stats).unwrap_or_default()
    }

    /// Closes it; it is of no use afterwards.
    ///
    /// # Errors
    /// What the library says.
    pub fn close(&self) -> Result<(), String> {
        let fs = self.fs.as_ref().ok_or("it did not open before")?;
        fs.close().map_err(|why| format!("close: {why}"))
    }

    fn open(&mut self, now_ns: i64) -> Result<(), String> {
        self.mappings = Mappings::default();
        let pm = self.pool.open(&PmOptions::default())?;
        let fs = open_pool(pm, self.manner, now_ns)?;
        check_opened(&fs)?;
        self.fs = Some(fs);
        Ok(())
    }
}

impl OnFs for CoreMachine {
    fn fs(&self) -> Result<&Fs, Failure> {
        self.fs.as_ref().ok_or_else(|| Failure::Broken("it did not open again".to_owned()))
    }

    fn mappings(&mut self) -> &mut Mappings {
        &mut self.mappings
    }
}

/// Makes an empty pool whose root has mode 755 and owner 0.
///
/// # Errors
/// What the library says.
pub fn make_pool(pm: &Pm, lanes: u32) -> Result<(), String> {
    let slots = usize::from(pm.slot_count());
    // The sequences kept for seeded bugs are of pools with this name: checksums go by it, and so does what
    // a torn line lacks.
    let options = MkfsOptions {
        pool_uuid: [0xab; 16],
        now_ns: now_ns_at(0),
        ..MkfsOptions::numbered(slots, lanes)
    };
    novale_core::mkfs(pm, &options).map_err(|why| format!("mkfs: {why}"))
}

/// Opens a pool with a view of its own.
///
/// # Errors
/// What the library says.
pub fn open_pool(pm: Pm, manner: impl Into<Manner>, now_ns: i64) -> Result<Fs, String> {
    open_pool_in(pm, new_arena()?, manner, now_ns)
}

/// An arena that no view is in.
///
/// # Errors
/// What the kernel says.
pub fn new_arena() -> Result<Arena, String> {
    Arena::anonymous(ARENA_BYTES).map_err(|why| format!("arena: {why}"))
}

/// Opens a pool with its view in this arena.
///
/// # Errors
/// What the library says.
pub fn open_pool_in(
    pm: Pm,
    arena: Arena,
    manner: impl Into<Manner>,
    now_ns: i64,
) -> Result<Fs, String> {
    open_as(pm, arena, &manner.into().options(now_ns))
}

/// Shows a pool, without recovering one that crashed, with its view in this arena.
///
/// # Errors
/// What the library says.
pub fn show_pool_in(pm: Pm, arena: Arena, now_ns: i64) -> Result<Fs, String> {
    open_as(pm, arena, &OpenOptions { read_only: true, now_ns, ..OpenOptions::default() })
}

/// Pools of several slots drop each view that nobody has used since the hand came by, others none: both
/// ways are run by whatever draws slots. Of two slots each lane has its own, more are worn evenly. The sequences of the seeded bugs have one slot, and count on
/// when a log is collected.
fn open_as(pm: Pm, arena: Arena, options: &OpenOptions) -> Result<Fs, String> {
    let index_bytes = (pm.slot_count() > 1).then_some(0);
    let placement = if pm.slot_count() == 2 { Placement::Lanes } else { options.placement };
    let options = OpenOptions { atime: Atime::Noatime, index_bytes, placement, ..*options };
    Fs::open(pm, arena, &options, &Serial, &|_| ()).map_err(|why| format!("open: {why}"))
}

/// Checks what is stored.
///
/// # Errors
/// What is wrong with it, a line each.
pub fn check_pool(pm: &Pm) -> Result<CheckReport, String> {
    let report = novale_core::check(pm, &Serial, &|_| ()).map_err(|why| format!("check: {why}"))?;
    if report.findings.is_empty() {
        return Ok(report);
    }
    let lines: Vec<String> = report.findings.iter().map(|finding| format!("{finding:?}")).collect();
    Err(format!("check found:\n{}", lines.join("\n")))
}

/// Checks a file system that was just opened, and that its free lists agree with the check.
///
/// # Errors
/// What is wrong, a line each.
pub fn check_opened(fs: &Fs) -> Result<(), String> {
    let report = check_pool(fs.pm())?;
    let (opened, free) = (fs.opened(), fs.statfs().map_err(|why| why.to_string())?);
    // An opening that drops views takes pairs apart: fewer pages are in use then than it has found.
    let most = if fs.pm().slot_count() > 1 { report.pages_used } else { u64::MAX };
    let counts = [
        ("inodes, as opened", opened.inodes, report.inodes),
        ("pages used, as opened", opened.pages_used.min(most), report.pages_used),
        ("inodes, by statfs", free.inodes, report.inodes),
        ("pages free, by statfs", free.pages_free, report.pages - report.pages_used),
    ];
    // What is free of a slot that leaves is not to be had.
    let told = if fs.leaving_slot().is_some() { 3 } else { 4 };
    for (what, found, counted) in counts.into_iter().take(told) {
        if found != counted {
            return Err(format!("{what}: {found}, but the check counts {counted}"));
        }
    }
    let quotas = fs.quotas().map_err(|why| why.to_string())?;
    let used = quotas.into_iter().map(|(project, quota)| (project, quota.used));
    let found: BTreeMap<u32, Usage> = used.filter(|(_, used)| *used != Usage::default()).collect();
    if found != report.projects {
        return Err(format!("trees use {found:?}, but the check counts {:?}", report.projects));
    }
    Ok(())
}

impl Machine for CoreMachine {
    fn remount(&mut self, now_ns: i64) -> Result<(), String> {
        let fs = self.fs.take().ok_or("it did not open before")?;
        fs.close().map_err(|why| format!("close: {why}"))?;
        if !matches!(fs.getattr(novale_core::Ino::ROOT), Err(FsError::Closed)) {
            return Err("it still answers after its close".to_owned());
        }
        drop(fs);
        check_pool(&self.pool.open(&PmOptions::default())?)?;
        self.open(now_ns)?;
        let clean = self.fs.as_ref().is_some_and(|fs| fs.opened().clean);
        if clean { Ok(()) } else { Err("closed, but not found clean".to_owned()) }
    }

    fn die(&mut self, now_ns: i64) -> Result<(), String> {
        if self.manner.mode == Some(Mode::Buffered)
            && let Some(fs) = &self.fs
        {
            // What may go with the process is the power cuts' to judge.
            fs.sync_all(&Ctx { now_ns, hint: 0 }).map_err(|why| format!("sync: {why}"))?;
        }
        drop(self.fs.take());
        self.open(now_ns)?;
        let clean = self.fs.as_ref().is_some_and(|fs| fs.opened().clean);
        if clean { Err("died, but found clean".to_owned()) } else { Ok(()) }
    }

    fn inode_count(&mut self) -> Option<u64> {
        Some(self.fs.as_ref()?.statfs().ok()?.inodes)
    }

    fn bytes_available(&mut self) -> Option<u64> {
        Some(self.fs.as_ref()?.statfs().ok()?.pages_available * PAGE_BYTES as u64)
    }

    fn generation(&mut self, ino: Ino) -> Option<u32> {
        let attr = self.fs.as_ref()?.getattr(novale_core::Ino::new(ino.0)).ok()?;
        Some(attr.generation)
    }
}
