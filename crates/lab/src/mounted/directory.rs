//! One step as system calls below one directory.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use novale_model::{Kind, NewInode, RangeOp, RenameMode, SetAttr, XattrMode};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_OMIT, Uid, XattrFlags, chownat, copy_file_range, fallocate, fchmod, fgetxattr,
    fremovexattr, fsetxattr, fstat, fsync, ftruncate, futimens, linkat, mknodat, openat,
    readlinkat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::look::{Meta, list};
use crate::workload::{Action, Path, Step, Target, fill_bytes};

/// What a step showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Success with nothing to show.
    Done,
    /// Attributes.
    Meta(Meta),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A count.
    Number(u64),
    /// Names in order.
    Names(Vec<Vec<u8>>),
    /// The step was left out: no system call says it, or the two sides may rightly differ.
    LeftOut,
    /// The system call's error.
    Errno(Errno),
}

/// A directory in which steps run.
#[derive(Debug)]
pub struct RealDirectory {
    root: OwnedFd,
    slots: BTreeMap<u8, OwnedFd>,
    /// For the opening of files.
    flags: OFlags,
}

/// Beyond this offset file systems have limits of their own.
const OFFSET_MAX: u64 = 1 << 42;

impl RealDirectory {
    /// Steps run below `root`; the caller has set the umask to 0.
    ///
    /// # Errors
    /// What open says.
    pub fn open(root: &std::path::Path) -> Result<Self, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        Ok(Self { root, slots: BTreeMap::new(), flags: OFlags::empty() })
    }

    /// Files are opened with `O_DIRECT` from here on.
    #[must_use]
    pub fn past_the_cache(self) -> Self {
        Self { flags: OFlags::DIRECT, ..self }
    }

    /// The directory.
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Closes what the slots hold.
    pub fn release_all(&mut self) {
        self.slots.clear();
    }

    /// Runs a step; [`Step::Compare`], [`Step::Remount`] and [`Step::Die`] are the caller's.
    pub fn run(&mut self, step: &Step) -> Seen {
        let mut sayable = step.clone();
        if !sayable.paths_mut().into_iter().all(|path| is_sayable(path)) {
            return Seen::LeftOut;
        }
        self.try_run(step).unwrap_or_else(Seen::Errno)
    }

    fn try_run(&mut self, step: &Step) -> Result<Seen, Errno> {
        match step {
            Step::Create { path, new } => self.create(&text(path), new)?,
            Step::Link { target: Target::Path(from), path: to } => {
                linkat(&self.root, text(from), &self.root, text(to), AtFlags::empty())?;
            }
            Step::Unlink(path) => unlinkat(&self.root, text(path), AtFlags::empty())?,
            Step::Rmdir(path) => unlinkat(&self.root, text(path), AtFlags::REMOVEDIR)?,
            Step::Rename { from, to, mode } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                renameat_with(&self.root, text(from), &self.root, text(to), flags)?;
            }
            Step::Hold { path, slot } => {
                let fd = self.open_at(path)?;
                self.slots.insert(*slot, fd);
            }
            Step::Release(slot) => {
                self.slots.remove(slot).ok_or(Errno::BADF)?;
            }
            Step::On { target, action } => return self.act(target, action),
            Step::Copy { from, from_offset, to, to_offset, len } => {
                return self.copy((from, *from_offset), (to, *to_offset), *len as usize);
            }
            // A link of a descriptor needs a privilege that has changed between kernels, and FUSE has no
            // files without names here.
            Step::Link { target: Target::Slot(_), .. }
            | Step::Unnamed { .. }
            | Step::Map { .. } => return Ok(Seen::LeftOut),
            Step::Compare | Step::Remount | Step::Die => {}
        }
        Ok(Seen::Done)
    }

    fn create(&self, path: &[u8], new: &NewInode) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(new.mode);
        let kind = match new.kind {
            Kind::Directory => {
                rustix::fs::mkdirat(&self.root, path, mode)?;
                return self.give(path, new);
            }
            Kind::Symlink => {
                symlinkat(new.target.as_slice(), &self.root, path)?;
                return self.give(path, new);
            }
            Kind::File => FileType::RegularFile,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
        };
        mknodat(&self.root, path, kind, mode, u64::from(new.rdev))?;
        self.give(path, new)
    }

    /// Gives a new inode its owner, which also takes set-id bits from a file.
    fn give(&self, path: &[u8], new: &NewInode) -> Result<(), Errno> {
        let (uid, gid) = (Uid::from_raw(new.uid), Gid::from_raw(new.gid));
        if new.uid + new.gid == 0 {
            return Ok(());
        }
        chownat(&self.root, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn act(&self, target: &Target, action: &Action) -> Result<Seen, Errno> {
        if let (Target::Path(path), Action::Readlink) = (target, action) {
            let bytes = readlinkat(&self.root, text(path), Vec::new())?;
            return Ok(Seen::Bytes(bytes.into_bytes()));
        }
        if let Target::Path(path) = target {
            let meta = Meta::of(&statat(&self.root, text(path), AtFlags::SYMLINK_NOFOLLOW)?);
            if *action == Action::Stat {
                return Ok(Seen::Meta(meta));
            }
            if let Action::Set(set) = action
                && !matches!(meta.kind, Kind::File | Kind::Directory)
            {
                return self.set_by_path(&text(path), set);
            }
        }
        let mut opened = None;
        let fd = self.descriptor(target, &mut opened)?;
        let is_xattr = matches!(
            action,
            Action::SetXattr { .. } | Action::GetXattr(_) | Action::RemoveXattr(_)
        );
        // What is open for its attributes alone has none of these.
        let is_plain = || -> Result<bool, Errno> {
            Ok(matches!(Meta::of(&fstat(fd)?).kind, Kind::File | Kind::Directory))
        };
        if is_xattr && !is_plain()? {
            return Ok(Seen::LeftOut);
        }
        act_on(fd, action)
    }

    /// A slot's descriptor, or one opened for this step, which is put into `opened`.
    fn descriptor<'a>(
        &'a self,
        target: &Target,
        opened: &'a mut Option<OwnedFd>,
    ) -> Result<&'a OwnedFd, Errno> {
        match target {
            Target::Path(path) => Ok(opened.insert(self.open_at(path)?)),
            Target::Slot(slot) => self.slots.get(slot).ok_or(Errno::BADF),
        }
    }

    fn copy(
        &self,
        (from, from_offset): (&Target, u64),
        (to, to_offset): (&Target, u64),
        len: usize,
    ) -> Result<Seen, Errno> {
        if from_offset >= OFFSET_MAX || to_offset >= OFFSET_MAX {
            return Ok(Seen::LeftOut);
        }
        let (mut opened_from, mut opened_to) = (None, None);
        let from = self.descriptor(from, &mut opened_from)?;
        let to = self.descriptor(to, &mut opened_to)?;
        let (mut at, mut place) = (from_offset, to_offset);
        // A copy within a file may make it longer: what is copied was there before.
        let left = Meta::of(&fstat(from)?).size.saturating_sub(from_offset).min(len as u64);
        let mut copied = copy_file_range(from, Some(&mut at), to, Some(&mut place), len)? as u64;
        // A call may copy less than there is; each goes on, so there are no more than bytes.
        for _ in 0..left {
            let rest = usize::try_from(left - copied).unwrap_or(0);
            match copy_file_range(from, Some(&mut at), to, Some(&mut place), rest)? {
                0 => break,
                count => copied += count as u64,
            }
        }
        Ok(Seen::Number(copied))
    }

    /// Opens files to write, directories to read, all others for their attributes alone: to open
    /// a device or a pipe would do something elsewhere.
    fn open_at(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let stat = statat(&self.root, text(path), AtFlags::SYMLINK_NOFOLLOW)?;
        let flags = match Meta::of(&stat).kind {
            Kind::File => OFlags::RDWR | self.flags,
            Kind::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                OFlags::PATH
            }
        };
        openat(&self.root, text(path), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }

    fn set_by_path(&self, path: &[u8], set: &SetAttr) -> Result<Seen, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            chownat(&self.root, path, uid, gid, flags)?;
        }
        if let Some(times) = timestamps(set) {
            utimensat(&self.root, path, &times, flags)?;
        }
        Ok(Seen::Done)
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all others are left out")]
fn act_on(fd: &OwnedFd, action: &Action) -> Result<Seen, Errno> {
    match action {
        Action::Stat => Ok(Seen::Meta(Meta::of(&fstat(fd)?))),
        Action::Set(set) => set_on(fd, set),
        Action::Read { offset, len } if *offset < OFFSET_MAX => {
            let mut bytes = vec![0; *len as usize];
            let read = rustix::io::pread(fd, &mut bytes, *offset)?;
            bytes.truncate(read);
            Ok(Seen::Bytes(bytes))
        }
        Action::Write { offset, len, fill } if *offset < OFFSET_MAX => {
            let bytes = fill_bytes(*fill, *len as usize);
            Ok(Seen::Number(rustix::io::pwrite(fd, &bytes, *offset)? as u64))
        }
        Action::Append { len, fill } => {
            let bytes = fill_bytes(*fill, *len as usize);
            let end = Meta::of(&fstat(fd)?).size;
            Ok(Seen::Number(rustix::io::pwrite(fd, &bytes, end)? as u64))
        }
        Action::Allocate { extend, offset, len } if *offset < OFFSET_MAX => {
            let keep = FallocateFlags::KEEP_SIZE;
            let flags = if *extend { FallocateFlags::empty() } else { keep };
            fallocate(fd, flags, *offset, *len)?;
            Ok(Seen::Done)
        }
        Action::Range { how, offset, len } if *offset < OFFSET_MAX => {
            match fallocate(fd, range_flags(*how), *offset, *len) {
                // Nobody has all of these, and FUSE the kernel does not even ask.
                Err(Errno::OPNOTSUPP) => Ok(Seen::LeftOut),
                done => done.map(|()| Seen::Done),
            }
        }
        Action::SetXattr { name, value, mode } if is_comparable(name) => {
            let flags = match mode {
                XattrMode::Any => XattrFlags::empty(),
                XattrMode::Create => XattrFlags::CREATE,
                XattrMode::Replace => XattrFlags::REPLACE,
            };
            let value = value.bytes();
            // How much an inode may have is each file system's own business.
            if value.len() > XATTR_BYTES_MAX {
                return Ok(Seen::LeftOut);
            }
            fsetxattr(fd, name.as_slice(), &value, flags)?;
            Ok(Seen::Done)
        }
        Action::GetXattr(name) if is_comparable(name) => Ok(Seen::Bytes(xattr(fd, name)?)),
        Action::RemoveXattr(name) if is_comparable(name) => {
            fremovexattr(fd, name.as_slice())?;
            Ok(Seen::Done)
        }
        Action::List { at_a_time } => Ok(Seen::Names(list(fd, *at_a_time as usize)?)),
        Action::Sync => fsync(fd).map(|()| Seen::Done),
        // Holes are each file system's own business, and so are names like `security.selinux`.
        _ => Ok(Seen::LeftOut),
    }
}

fn range_flags(how: RangeOp) -> FallocateFlags {
    match how {
        RangeOp::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        RangeOp::Zero => FallocateFlags::ZERO_RANGE,
        RangeOp::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        RangeOp::Collapse => FallocateFlags::COLLAPSE_RANGE,
        RangeOp::Insert => FallocateFlags::INSERT_RANGE,
    }
}

/// The longest value that every file system has room for.
const XATTR_BYTES_MAX: usize = 300;

/// Whether file systems agree on attributes of that name: some have no `trusted.`, and the kernel
/// itself knows some of `security.`.
pub(super) fn is_comparable(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// The value of an extended attribute.
pub(super) fn xattr(fd: &OwnedFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1 << 16];
    let len = fgetxattr(fd, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn set_on(fd: &OwnedFd, set: &SetAttr) -> Result<Seen, Errno> {
    match set.size {
        Some(size) if size < OFFSET_MAX => ftruncate(fd, size)?,
        Some(_) => return Ok(Seen::LeftOut),
        None => {}
    }
    if set.uid.is_some() || set.gid.is_some() {
        rustix::fs::fchown(fd, set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw))?;
    }
    if let Some(mode) = set.mode {
        fchmod(fd, Mode::from_raw_mode(mode))?;
    }
    if let Some(times) = timestamps(set) {
        futimens(fd, &times)?;
    }
    Ok(Seen::Done)
}

fn timestamps(set: &SetAttr) -> Option<Timestamps> {
    const SECOND_NS: i64 = 1_000_000_000;
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let time = |ns: Option<i64>| {
        ns.map_or(omit, |ns| Timespec {
            tv_sec: ns.div_euclid(SECOND_NS),
            tv_nsec: ns.rem_euclid(SECOND_NS),
        })
    };
    let given = set.atime_ns.is_some() || set.mtime_ns.is_some();
    given.then(|| Timestamps {
        last_access: time(set.atime_ns),
        last_modification: time(set.mtime_ns),
    })
}

/// A path as the kernel takes it; the root itself is ".".
fn text(path: &Path) -> Vec<u8> {
    if path.0.is_empty() { b".".to_vec() } else { path.0.join(&b'/') }
}

fn is_sayable(path: &Path) -> bool {
    let sayable = |name: &Vec<u8>| !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
    path.0.iter().all(sayable)
}
