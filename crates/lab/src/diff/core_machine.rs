//! The product's library as a subject and a machine: on a pool in memory that outlives each open.

use novale_arena::Arena;
use novale_core::{
    Atime, CheckReport, Ctx, Error as FsError, Fallocate, FileKind, Form, Fs, MkfsOptions,
    OpenOptions, Seek, Serial, SetAttr as FsSetAttr,
};
use novale_model::{Attr, Error, Ino, Kind, NewInode, PAGE_BYTES, RenameMode, SetAttr};
use novale_pm::{Pm, PmOptions};

use super::run::{Machine, now_ns_at};
use crate::pool_file::PoolFile;
use crate::workload::{Entry, Failure, Subject};

/// How a pool is made and opened.
#[derive(Debug, Clone)]
pub struct CoreOptions {
    /// Bytes of each slot.
    pub slots: Vec<u64>,
    /// Lanes.
    pub lanes: u32,
    /// The commit form.
    pub form: Form,
}

/// Bytes that the view may take.
const ARENA_BYTES: u64 = 256 << 20;

/// The library on a pool of its own.
#[derive(Debug)]
pub struct CoreMachine {
    /// `None` only while it is being opened again, or after that failed.
    fs: Option<Fs>,
    pool: PoolFile,
    form: Form,
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
        let mut machine = Self { fs: None, pool, form: options.form };
        machine.open(now_ns_at(0))?;
        Ok(machine)
    }

    /// An open file system that is never to be closed or killed.
    #[must_use]
    pub fn around(fs: Fs) -> Self {
        Self { fs: Some(fs), pool: PoolFile::default(), form: Form::Auto }
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
        let pm = self.pool.open(&PmOptions::default())?;
        let fs = open_pool(pm, self.form, now_ns)?;
        check_opened(&fs)?;
        self.fs = Some(fs);
        Ok(())
    }

    fn fs(&self) -> Result<&Fs, Failure> {
        self.fs.as_ref().ok_or_else(|| Failure::Broken("it did not open again".to_owned()))
    }
}

/// Makes an empty pool whose root has mode 755 and owner 0.
///
/// # Errors
/// What the library says.
pub fn make_pool(pm: &Pm, lanes: u32) -> Result<(), String> {
    let slot_uuids = (0..pm.slot_count()).map(|slot| [slot + 1; 16]).collect();
    let options = MkfsOptions {
        lanes,
        pool_uuid: [0xab; 16],
        slot_uuids,
        now_ns: now_ns_at(0),
        root_uid: 0,
        root_gid: 0,
        root_mode: 0o755,
    };
    novale_core::mkfs(pm, &options).map_err(|why| format!("mkfs: {why}"))
}

/// Opens a pool with a view of its own.
///
/// # Errors
/// What the library says.
pub fn open_pool(pm: Pm, form: Form, now_ns: i64) -> Result<Fs, String> {
    let arena = Arena::anonymous(ARENA_BYTES).map_err(|why| format!("arena: {why}"))?;
    let options = OpenOptions { atime: Atime::Noatime, form, now_ns, ..OpenOptions::default() };
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
    let counts = [
        ("inodes, as opened", opened.inodes, report.inodes),
        ("pages used, as opened", opened.pages_used, report.pages_used),
        ("inodes, by statfs", free.inodes, report.inodes),
        ("pages free, by statfs", free.pages_free, report.pages - report.pages_used),
    ];
    for (what, found, counted) in counts {
        if found != counted {
            return Err(format!("{what}: {found}, but the check counts {counted}"));
        }
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

/// What the library's error is in the model's terms.
#[must_use]
#[allow(clippy::wildcard_enum_match_arm, reason = "the library may add errors")]
pub fn subject_error(error: &FsError) -> Failure {
    Failure::Error(match error {
        FsError::NotFound => Error::NotFound,
        FsError::Exists => Error::Exists,
        FsError::NotDirectory => Error::NotDirectory,
        FsError::IsDirectory => Error::IsDirectory,
        FsError::NotEmpty => Error::NotEmpty,
        FsError::InvalidName => Error::InvalidName,
        FsError::NameTooLong => Error::NameTooLong,
        FsError::Invalid(_) => Error::Invalid,
        FsError::NotPermitted(_) => Error::NotPermitted,
        FsError::TooLarge => Error::TooLarge,
        FsError::TooManyLinks => Error::TooManyLinks,
        FsError::NoSpace => Error::NoSpace,
        FsError::NoMemory => Error::NoMemory,
        FsError::ReadOnly => Error::ReadOnly,
        FsError::Stale => Error::Stale,
        FsError::NoSuchOffset => Error::NoSuchOffset,
        FsError::Unsupported(_) => Error::Unsupported,
        // Damage and the like, and what this was not written for.
        _ => return Failure::Broken(error.to_string()),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "given to map_err")]
fn failed(error: FsError) -> Failure {
    subject_error(&error)
}

/// Callers are spread over lanes, the same way in each run.
fn ctx(now_ns: i64) -> Ctx {
    let hint = u32::try_from(now_ns.unsigned_abs() % 5).unwrap_or(0);
    Ctx { now_ns, hint }
}

fn number(ino: Ino) -> novale_core::Ino {
    novale_core::Ino::new(ino.0)
}

const KINDS: [(FileKind, Kind); 7] = [
    (FileKind::File, Kind::File),
    (FileKind::Directory, Kind::Directory),
    (FileKind::Symlink, Kind::Symlink),
    (FileKind::Fifo, Kind::Fifo),
    (FileKind::Socket, Kind::Socket),
    (FileKind::CharDevice, Kind::CharDevice),
    (FileKind::BlockDevice, Kind::BlockDevice),
];

fn kind(kind: FileKind) -> Kind {
    KINDS.iter().find(|(theirs, _)| *theirs == kind).map_or(Kind::File, |(_, ours)| *ours)
}

fn file_kind(kind: Kind) -> FileKind {
    KINDS.iter().find(|(_, ours)| *ours == kind).map_or(FileKind::File, |(theirs, _)| *theirs)
}

fn attr(attr: novale_core::Attr) -> Attr {
    Attr {
        ino: Ino(attr.ino.get()),
        kind: kind(attr.kind),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        atime_ns: attr.atime_ns,
        mtime_ns: attr.mtime_ns,
        ctime_ns: attr.ctime_ns,
        birth_ns: attr.birth_ns,
    }
}

impl Subject for CoreMachine {
    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr, Failure> {
        self.fs()?.lookup(&ctx(0), number(parent), name).map(attr).map_err(failed)
    }

    fn getattr(&mut self, ino: Ino) -> Result<Attr, Failure> {
        self.fs()?.getattr(number(ino)).map(attr).map_err(failed)
    }

    fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Attr, Failure> {
        let set = FsSetAttr {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime_ns: set.atime_ns,
            mtime_ns: set.mtime_ns,
            clear_set_id: set.clear_set_id,
        };
        self.fs()?.setattr(&ctx(now_ns), number(ino), &set).map(attr).map_err(failed)
    }

    fn readlink(&mut self, ino: Ino) -> Result<Vec<u8>, Failure> {
        self.fs()?.readlink(number(ino)).map_err(failed)
    }

    fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        let new = novale_core::NewInode {
            kind: file_kind(new.kind),
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            target: &new.target,
        };
        let made = self.fs()?.create(&ctx(now_ns), number(parent), name, &new);
        made.map(attr).map_err(failed)
    }

    fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now_ns: i64) -> Result<Attr, Failure> {
        let linked = self.fs()?.link(&ctx(now_ns), number(ino), number(parent), name);
        linked.map(attr).map_err(failed)
    }

    fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        self.fs()?.unlink(&ctx(now_ns), number(parent), name).map_err(failed)
    }

    fn rmdir(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        self.fs()?.rmdir(&ctx(now_ns), number(parent), name).map_err(failed)
    }

    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        now_ns: i64,
    ) -> Result<(), Failure> {
        let mode = match mode {
            RenameMode::Replace => novale_core::RenameMode::Replace,
            RenameMode::NoReplace => novale_core::RenameMode::NoReplace,
            RenameMode::Exchange => novale_core::RenameMode::Exchange,
        };
        let (from, to) = ((number(from.0), from.1), (number(to.0), to.1));
        self.fs()?.rename(&ctx(now_ns), from.0, from.1, to.0, to.1, mode).map_err(failed)
    }

    fn read(&mut self, ino: Ino, offset: u64, len: usize, now_ns: i64) -> Result<Vec<u8>, Failure> {
        // What is not read must not show.
        let mut bytes = vec![0xee; len];
        let read = self.fs()?.read(&ctx(now_ns), number(ino), offset, &mut bytes);
        bytes.truncate(read.map_err(failed)?);
        Ok(bytes)
    }

    fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        now_ns: i64,
    ) -> Result<usize, Failure> {
        self.fs()?.write(&ctx(now_ns), number(ino), offset, bytes).map_err(failed)
    }

    fn append(&mut self, ino: Ino, bytes: &[u8], now_ns: i64) -> Result<u64, Failure> {
        self.fs()?.append(&ctx(now_ns), number(ino), bytes).map_err(failed)
    }

    fn fallocate(
        &mut self,
        ino: Ino,
        extend: bool,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure> {
        let how = if extend { Fallocate::Extend } else { Fallocate::KeepSize };
        self.fs()?.fallocate(&ctx(now_ns), number(ino), how, offset, len).map_err(failed)
    }

    fn seek(&mut self, ino: Ino, offset: u64, data: bool) -> Result<Option<u64>, Failure> {
        let what = if data { Seek::Data } else { Seek::Hole };
        self.fs()?.seek(number(ino), offset, what).map(Some).map_err(failed)
    }

    fn readdir(&mut self, ino: Ino, at_a_time: usize, now_ns: i64) -> Result<Vec<Entry>, Failure> {
        let (fs, ctx) = (self.fs()?, ctx(now_ns));
        let mut entries = Vec::new();
        let mut cookie = 0;
        // Each turn adds an entry or ends.
        loop {
            let mut turn = 0;
            let mut bad_cookie = false;
            fs.readdir(&ctx, number(ino), cookie, &mut |entry| {
                bad_cookie |= entry.cookie < 16 || entry.cookie >= 1 << 63;
                cookie = entry.cookie;
                let (name, kind) = (entry.name.to_vec(), kind(entry.kind));
                entries.push(Entry { name, ino: Ino(entry.ino.get()), kind });
                turn += 1;
                turn < at_a_time
            })
            .map_err(failed)?;
            if bad_cookie {
                return Err(Failure::Broken(format!("a cookie out of range: {cookie}")));
            }
            if turn < at_a_time {
                break;
            }
            if entries.len() > 1 << 20 {
                return Err(Failure::Broken("readdir runs in circles".to_owned()));
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn parent(&mut self, ino: Ino) -> Result<Ino, Failure> {
        self.fs()?.parent(number(ino)).map(|parent| Ino(parent.get())).map_err(failed)
    }

    fn hold(&mut self, ino: Ino) -> Result<(), Failure> {
        self.fs()?.hold(number(ino)).map_err(failed)
    }

    fn release(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        self.fs()?.release(&ctx(now_ns), number(ino), 1).map_err(failed)
    }

    fn sync(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        self.fs()?.sync(&ctx(now_ns), number(ino)).map_err(failed)
    }
}
