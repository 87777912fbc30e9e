//! The product's library as a subject: its types and errors in the model's terms.

use std::collections::BTreeMap;

use novale_core::{
    ClearSetId, Ctx, Error as FsError, Fallocate, FileKind, Fs, Node, Piece, Place, Seek,
    SetAttr as FsSetAttr, Unnamed, Usage,
};
use novale_model::{Attr, Error, Ino, Kind, NewInode, RangeOp, RenameMode, SetAttr, XattrMode};

use super::mapping::{self, Mappings};
use crate::workload::{Entry, Failure, Subject};

/// What has an open file system, or a directory of one that stands for its root.
pub trait OnFs {
    /// The file system.
    ///
    /// # Errors
    /// [`Failure::Broken`] when there is none any more.
    fn fs(&self) -> Result<&Fs, Failure>;

    /// The directory that is the root to the steps.
    fn root(&self) -> novale_core::Ino {
        novale_core::Ino::ROOT
    }

    /// Files whose own pages the steps have mapped.
    fn mappings(&mut self) -> &mut Mappings;
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
        FsError::QuotaExceeded => Error::QuotaExceeded,
        FsError::OtherTree => Error::OtherTree,
        FsError::TooManyLinks => Error::TooManyLinks,
        FsError::NoSpace => Error::NoSpace,
        FsError::NoMemory => Error::NoMemory,
        FsError::ReadOnly => Error::ReadOnly,
        FsError::Stale => Error::Stale,
        FsError::Pinned => Error::Busy,
        FsError::NoSuchOffset => Error::NoSuchOffset,
        FsError::NoAttribute => Error::NoAttribute,
        FsError::NameRange => Error::NameRange,
        FsError::ValueTooLong => Error::ValueTooLong,
        FsError::Denied(_) => Error::Denied,
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

/// The library's number of what the steps know by `ino`.
fn to_fs(on: &impl OnFs, ino: Ino) -> novale_core::Ino {
    if ino == Ino::ROOT { on.root() } else { novale_core::Ino::new(ino.0) }
}

/// The other way round.
fn from_fs(on: &impl OnFs, ino: novale_core::Ino) -> Ino {
    if ino == on.root() { Ino::ROOT } else { Ino(ino.get()) }
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

fn attr(on: &impl OnFs, attr: novale_core::Attr) -> Attr {
    Attr {
        ino: from_fs(on, attr.ino),
        kind: kind(attr.kind),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        project: attr.project,
        size: attr.size,
        atime_ns: attr.atime_ns,
        mtime_ns: attr.mtime_ns,
        ctime_ns: attr.ctime_ns,
        birth_ns: attr.birth_ns,
    }
}

fn new_inode(new: &NewInode) -> novale_core::NewInode<'_> {
    novale_core::NewInode {
        kind: file_kind(new.kind),
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        rdev: new.rdev,
        target: &new.target,
    }
}

impl<T: OnFs> Subject for T {
    fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr, Failure> {
        self.fs()?
            .lookup(&ctx(0), Node::current(to_fs(self, parent)), name)
            .map(|found| attr(self, found))
            .map_err(failed)
    }

    fn getattr(&mut self, ino: Ino) -> Result<Attr, Failure> {
        self.fs()?.getattr(to_fs(self, ino)).map(|found| attr(self, found)).map_err(failed)
    }

    fn setattr(&mut self, ino: Ino, set: &SetAttr, now_ns: i64) -> Result<Attr, Failure> {
        let set = FsSetAttr {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime_ns: set.atime_ns,
            mtime_ns: set.mtime_ns,
            project: set.project,
            clear_set_id: if set.clear_set_id {
                ClearSetId::Executable
            } else {
                ClearSetId::Nothing
            },
        };
        self.fs()?
            .setattr(&ctx(now_ns), Node::current(to_fs(self, ino)), &set)
            .map(|found| attr(self, found))
            .map_err(failed)
    }

    fn readlink(&mut self, ino: Ino) -> Result<Vec<u8>, Failure> {
        self.fs()?.readlink(Node::current(to_fs(self, ino))).map_err(failed)
    }

    fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        let made = self.fs()?.create(
            &ctx(now_ns),
            Node::current(to_fs(self, parent)),
            name,
            &new_inode(new),
        );
        made.map(|found| attr(self, found)).map_err(failed)
    }

    fn create_unnamed(
        &mut self,
        parent: Ino,
        new: &NewInode,
        now_ns: i64,
    ) -> Result<Attr, Failure> {
        let (fs, how) = (self.fs()?, Unnamed { may_be_named: true, umask: 0 });
        let made = fs.create_unnamed(
            &ctx(now_ns),
            Node::current(to_fs(self, parent)),
            &new_inode(new),
            how,
        );
        made.map(|found| attr(self, found)).map_err(failed)
    }

    fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now_ns: i64) -> Result<Attr, Failure> {
        let linked = self.fs()?.link(
            &ctx(now_ns),
            Node::current(to_fs(self, ino)),
            Node::current(to_fs(self, parent)),
            name,
        );
        linked.map(|found| attr(self, found)).map_err(failed)
    }

    fn unlink(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        self.fs()?.unlink(&ctx(now_ns), Node::current(to_fs(self, parent)), name).map_err(failed)
    }

    fn rmdir(&mut self, parent: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        self.fs()?.rmdir(&ctx(now_ns), Node::current(to_fs(self, parent)), name).map_err(failed)
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
        let (from, to) = ((to_fs(self, from.0), from.1), (to_fs(self, to.0), to.1));
        self.fs()?
            .rename(&ctx(now_ns), Node::current(from.0), from.1, Node::current(to.0), to.1, mode)
            .map_err(failed)
    }

    fn read(&mut self, ino: Ino, offset: u64, len: usize, now_ns: i64) -> Result<Vec<u8>, Failure> {
        // What is not read must not show.
        let mut bytes = vec![0xee; len];
        let read = self.fs()?.read(&ctx(now_ns), to_fs(self, ino), offset, &mut bytes);
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
        self.fs()?.write(&ctx(now_ns), to_fs(self, ino), offset, bytes).map_err(failed)
    }

    fn append(&mut self, ino: Ino, bytes: &[u8], now_ns: i64) -> Result<u64, Failure> {
        self.fs()?.append(&ctx(now_ns), to_fs(self, ino), bytes).map_err(failed)
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
        self.fs()?.fallocate(&ctx(now_ns), to_fs(self, ino), how, offset, len).map_err(failed)
    }

    fn range(
        &mut self,
        ino: Ino,
        how: RangeOp,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<(), Failure> {
        let how = match how {
            RangeOp::Punch => Fallocate::PunchHole,
            RangeOp::Zero => Fallocate::ZeroRange,
            RangeOp::ZeroKeepSize => Fallocate::ZeroRangeKeepSize,
            RangeOp::Collapse => Fallocate::CollapseRange,
            RangeOp::Insert => Fallocate::InsertRange,
        };
        self.fs()?.fallocate(&ctx(now_ns), to_fs(self, ino), how, offset, len).map_err(failed)
    }

    fn copy(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: usize,
        now_ns: i64,
    ) -> Result<u64, Failure> {
        let place = |(ino, offset)| Place { ino: to_fs(self, ino), offset };
        let copied = self.fs()?.copy_range(&ctx(now_ns), place(from), place(to), len as u64);
        copied.map_err(failed)
    }

    fn seek(&mut self, ino: Ino, offset: u64, data: bool) -> Result<Option<u64>, Failure> {
        let what = if data { Seek::Data } else { Seek::Hole };
        self.fs()?.seek(to_fs(self, ino), offset, what).map(Some).map_err(failed)
    }

    fn readdir(&mut self, ino: Ino, at_a_time: usize, now_ns: i64) -> Result<Vec<Entry>, Failure> {
        let (fs, ctx) = (self.fs()?, ctx(now_ns));
        let mut entries = Vec::new();
        let mut cookie = 0;
        // Each turn adds an entry or ends.
        loop {
            let mut turn = 0;
            let mut bad_cookie = false;
            fs.readdir(&ctx, Node::current(to_fs(self, ino)), cookie, &mut |entry| {
                bad_cookie |= entry.cookie < 16 || entry.cookie >= 1 << 63;
                cookie = entry.cookie;
                let (name, kind) = (entry.name.to_vec(), kind(entry.kind));
                entries.push(Entry { name, ino: from_fs(self, entry.ino), kind });
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

    fn getxattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Failure> {
        self.fs()?.getxattr(Node::current(to_fs(self, ino)), name).map_err(failed)
    }

    fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<(), Failure> {
        let mode = match mode {
            XattrMode::Any => novale_core::XattrMode::Any,
            XattrMode::Create => novale_core::XattrMode::Create,
            XattrMode::Replace => novale_core::XattrMode::Replace,
        };
        let set = novale_core::SetXattr { name, value, mode, clear_set_gid: false };
        self.fs()?.setxattr(&ctx(now_ns), Node::current(to_fs(self, ino)), &set).map_err(failed)
    }

    fn listxattr(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>, Failure> {
        let list = self.fs()?.listxattr(Node::current(to_fs(self, ino))).map_err(failed)?;
        let names = list.split_inclusive(|byte| *byte == 0);
        let mut names: Vec<_> =
            names.map(|name| name.strip_suffix(&[0]).unwrap_or(name).to_vec()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn removexattr(&mut self, ino: Ino, name: &[u8], now_ns: i64) -> Result<(), Failure> {
        self.fs()?.removexattr(&ctx(now_ns), Node::current(to_fs(self, ino)), name).map_err(failed)
    }

    fn parent(&mut self, ino: Ino) -> Result<Ino, Failure> {
        self.fs()?
            .parent(Node::current(to_fs(self, ino)))
            .map(|parent| from_fs(self, parent.ino))
            .map_err(failed)
    }

    fn limit(&mut self, ino: Ino, inodes: u64, now_ns: i64) -> Result<(), Failure> {
        let (fs, ino) = (self.fs()?, to_fs(self, ino));
        let project = fs.getattr(ino).map_err(failed)?.project;
        fs.set_quota(&ctx(now_ns), project, Usage { pages: 0, inodes }).map_err(failed)
    }

    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure> {
        let all = self.fs()?.quotas().map_err(failed)?.into_iter();
        let limits = all.map(|(project, quota)| (project, quota.limit.inodes));
        Ok(limits.filter(|(_, inodes)| *inodes > 0).collect())
    }

    fn hold(&mut self, ino: Ino) -> Result<(), Failure> {
        self.fs()?.hold(to_fs(self, ino)).map_err(failed)
    }

    fn release(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        self.fs()?.release(&ctx(now_ns), to_fs(self, ino), 1).map_err(failed)
    }

    fn sync(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        self.fs()?.sync(&ctx(now_ns), to_fs(self, ino)).map_err(failed)
    }

    fn map(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        let (fs, ino) = (self.fs()?, to_fs(self, ino));
        let mapping = mapping::map(fs, &ctx(now_ns), ino).map_err(failed)?;
        self.mappings().push(mapping);
        Ok(())
    }

    fn unmap(&mut self, ino: Ino, now_ns: i64) -> Result<(), Failure> {
        let ino = to_fs(self, ino);
        let mapping = self.mappings().take(ino).ok_or(Error::Invalid)?;
        self.fs()?.open_release(&ctx(now_ns), mapping.hold()).map_err(failed)
    }

    fn store(&mut self, ino: Ino, offset: u64, bytes: &[u8], now_ns: i64) -> Result<(), Failure> {
        let fs_ino = to_fs(self, ino);
        // What is no file is refused as such.
        self.fs()?.is_mapped(&ctx(now_ns), fs_ino).map_err(failed)?;
        let mut mapping = self.mappings().take(fs_ino).ok_or(Error::Invalid)?;
        let stored = mapping.store(self.fs()?, &ctx(now_ns), offset, bytes);
        self.mappings().push(mapping);
        stored
    }

    fn flush(&mut self, ino: Ino, page: u64, pages: u64, now_ns: i64) -> Result<(), Failure> {
        self.fs()?.map_flush(&ctx(now_ns), to_fs(self, ino), page, pages).map_err(failed)
    }

    fn write_scattered(
        &mut self,
        ino: Ino,
        pieces: &[(u64, Vec<u8>)],
        now_ns: i64,
    ) -> Result<(), Failure> {
        let pieces: Vec<Piece<'_>> =
            pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes }).collect();
        self.fs()?.write_scattered(&ctx(now_ns), to_fs(self, ino), &pieces).map_err(failed)
    }
}
