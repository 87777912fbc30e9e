//! The product's library as a subject: its types and errors in the model's terms.

use std::collections::BTreeMap;

use novale_core::{
    ClearSetId, ColdMove, Ctx, Error as FsError, Fallocate, FileKind, Fs, Node, Piece, Place, Seek,
    SetAttr as FsSetAttr, Unnamed, UpdatePolicy, Usage,
};
use novale_model::{Attr, Error, Ino, Kind, NewInode, RangeOp, RenameMode, SetAttr, XattrMode};

use super::by_source;
use super::mapping::{self, Mappings};
use crate::workload::{Action, Entry, Failure, Op, Outcome, Subject, fill_bytes};

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
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are on names")]
    fn apply(&mut self, op: &Op<'_>, now_ns: i64) -> Result<Outcome, Failure> {
        match *op {
            Op::On { ino, action: Action::Store { offset, len, fill } } => {
                store(self, ino, *offset, &fill_bytes(*fill, *len as usize), now_ns)
            }
            Op::On { ino, action } => on(self, ino, action, now_ns),
            Op::Map(ino) => {
                let (fs, ino) = (self.fs()?, to_fs(self, ino));
                let mapping = mapping::map(fs, &ctx(now_ns), ino).map_err(failed)?;
                self.mappings().push(mapping);
                Ok(Outcome::Done)
            }
            Op::Unmap(ino) => {
                let ino = to_fs(self, ino);
                let mapping = self.mappings().take(ino).ok_or(Error::Invalid)?;
                done(self.fs()?.open_release(&ctx(now_ns), mapping.hold()))
            }
            _ => on_names(self, op, now_ns),
        }
    }

    fn limits(&mut self) -> Result<BTreeMap<u32, u64>, Failure> {
        let all = self.fs()?.quotas().map_err(failed)?.into_iter();
        let limits = all.map(|(project, quota)| (project, quota.limit.inodes));
        Ok(limits.filter(|(_, inodes)| *inodes > 0).collect())
    }
}

fn done(result: Result<(), FsError>) -> Result<Outcome, Failure> {
    result.map(|()| Outcome::Done).map_err(failed)
}

fn shown(on: &impl OnFs, result: Result<novale_core::Attr, FsError>) -> Result<Outcome, Failure> {
    result.map(|found| Outcome::Attr(attr(on, found))).map_err(failed)
}

/// Operations on names, and those on whole inodes.
fn on_names(subject: &impl OnFs, op: &Op<'_>, now_ns: i64) -> Result<Outcome, Failure> {
    let (fs, ctx) = (subject.fs()?, ctx(now_ns));
    let node = |ino| Node::current(to_fs(subject, ino));
    match *op {
        Op::Lookup { parent, name } => shown(subject, fs.lookup(&ctx, node(parent), name)),
        Op::Create { parent, name, new } => {
            shown(subject, fs.create(&ctx, node(parent), name, &new_inode(new)))
        }
        Op::CreateUnnamed { dir, new } => {
            let how = Unnamed { may_be_named: true, umask: 0 };
            shown(subject, fs.create_unnamed(&ctx, node(dir), &new_inode(new), how))
        }
        Op::Link { ino, parent, name } => {
            shown(subject, fs.link(&ctx, node(ino), node(parent), name))
        }
        Op::Unlink { parent, name } => done(fs.unlink(&ctx, node(parent), name)),
        Op::Rmdir { parent, name } => done(fs.rmdir(&ctx, node(parent), name)),
        Op::Rename { from, to, mode } => {
            let mode = match mode {
                RenameMode::Replace => novale_core::RenameMode::Replace,
                RenameMode::NoReplace => novale_core::RenameMode::NoReplace,
                RenameMode::Exchange => novale_core::RenameMode::Exchange,
            };
            done(fs.rename(&ctx, node(from.0), from.1, node(to.0), to.1, mode))
        }
        Op::Copy { from, to, len } => {
            let place = |(ino, offset)| Place { ino: to_fs(subject, ino), offset };
            let (from, to, len) = (place(from), place(to), u64::from(len));
            let copied = by_source::copy(fs, &ctx, from, to, len);
            let copied = copied.unwrap_or_else(|| fs.copy_range(&ctx, from, to, len));
            copied.map(Outcome::Number).map_err(failed)
        }
        Op::Hold(ino) => done(fs.hold(to_fs(subject, ino))),
        Op::Release(ino) => done(fs.release(&ctx, to_fs(subject, ino), 1)),
        Op::On { .. } | Op::Map(_) | Op::Unmap(_) => {
            Err(Failure::Broken(format!("no operation on names: {op:?}")))
        }
    }
}

/// A store to a file that the steps have mapped.
fn store(
    subject: &mut impl OnFs,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
    now_ns: i64,
) -> Result<Outcome, Failure> {
    let ino = to_fs(subject, ino);
    // What is no file is refused as such.
    subject.fs()?.is_mapped(&ctx(now_ns), ino).map_err(failed)?;
    let mut mapping = subject.mappings().take(ino).ok_or(Error::Invalid)?;
    let stored = mapping.store(subject.fs()?, &ctx(now_ns), offset, bytes);
    subject.mappings().push(mapping);
    stored.map(|()| Outcome::Done)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the others are on data")]
fn on(subject: &impl OnFs, ino: Ino, action: &Action, now_ns: i64) -> Result<Outcome, Failure> {
    let (fs, ctx, number) = (subject.fs()?, ctx(now_ns), to_fs(subject, ino));
    let node = Node::current(number);
    match action {
        Action::Stat => shown(subject, fs.getattr(number)),
        Action::Set(set) => shown(subject, fs.setattr(&ctx, node, &set_attr(set))),
        Action::Readlink => fs.readlink(node).map(Outcome::Bytes).map_err(failed),
        Action::List { at_a_time } => list(subject, node, *at_a_time as usize, &ctx),
        Action::SetXattr { name, value, mode } => {
            let mode = match mode {
                XattrMode::Any => novale_core::XattrMode::Any,
                XattrMode::Create => novale_core::XattrMode::Create,
                XattrMode::Replace => novale_core::XattrMode::Replace,
            };
            let value = &value.bytes();
            let set = novale_core::SetXattr { name, value, mode, clear_set_gid: false };
            done(fs.setxattr(&ctx, node, &set))
        }
        Action::GetXattr(name) => fs.getxattr(node, name).map(Outcome::Bytes).map_err(failed),
        Action::RemoveXattr(name) => done(fs.removexattr(&ctx, node, name)),
        Action::ListXattr => {
            let list = fs.listxattr(node).map_err(failed)?;
            let names = list.split_inclusive(|byte| *byte == 0);
            let mut names: Vec<_> =
                names.map(|name| name.strip_suffix(&[0]).unwrap_or(name)).collect();
            names.sort_unstable();
            Ok(Outcome::Bytes(names.join(&0)))
        }
        Action::Limit { inodes } => {
            let project = fs.getattr(number).map_err(failed)?.project;
            done(fs.set_quota(&ctx, project, Usage { pages: 0, inodes: *inodes }))
        }
        Action::Parent => {
            let parent = fs.parent(node).map_err(failed)?;
            Ok(Outcome::Ino(from_fs(subject, parent.ino)))
        }
        Action::Sync => done(fs.sync(&ctx, number)),
        Action::Leave { stays } => done(leave(fs, &ctx, *stays)),
        _ => on_data(fs, number, action, &ctx),
    }
}

/// Does what [`Action::Leave`] says. Where others have the slot stay meanwhile, or take the room, that is all.
fn leave(fs: &Fs, ctx: &Ctx, stays: u8) -> Result<(), FsError> {
    let Some(last @ 1..) = fs.pm().slot_count().checked_sub(1) else { return Ok(()) };
    let (from, to) = if stays == 2 { (0, last) } else { (last, 0) };
    match stays {
        0 => fs.begin_leaving(ctx, last, Some(last)).map(drop)?,
        1 => return fs.end_leaving(ctx, last),
        _ => {
            let cold = ColdMove { from, to, pages: 64 };
            return fs.move_cold(ctx, cold, i64::MAX, &mut |_| true).map(drop);
        }
    }
    match fs.empty_round(ctx, last, &mut |_| true) {
        Err(FsError::NoSpace) => Ok(()),
        Err(FsError::Invalid(_)) if fs.leaving_slot().is_none() => Ok(()),
        emptied => emptied.map(drop),
    }
}

/// Actions on a file's bytes.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others are not on data")]
fn on_data(fs: &Fs, ino: novale_core::Ino, action: &Action, ctx: &Ctx) -> Result<Outcome, Failure> {
    match action {
        Action::Read { offset, len } => {
            // What is not read must not show.
            let mut bytes = vec![0xee; *len as usize];
            let read = fs.read(ctx, ino, *offset, &mut bytes);
            bytes.truncate(read.map_err(failed)?);
            Ok(Outcome::Bytes(bytes))
        }
        Action::Write { offset, len, fill } => {
            let written = fs.write(ctx, ino, *offset, &fill_bytes(*fill, *len as usize));
            written.map(|bytes| Outcome::Number(bytes as u64)).map_err(failed)
        }
        Action::Append { len, fill } => {
            let start = fs.append(ctx, ino, &fill_bytes(*fill, *len as usize));
            start.map(Outcome::Number).map_err(failed)
        }
        Action::Flush { page, pages } => done(fs.map_flush(ctx, ino, *page, *pages)),
        Action::Scatter { .. } => {
            let pieces = action.pieces();
            let pieces: Vec<Piece<'_>> =
                pieces.iter().map(|(offset, bytes)| Piece { offset: *offset, bytes }).collect();
            done(fs.write_scattered(ctx, ino, &pieces))
        }
        Action::Allocate { extend, offset, len } => {
            let how = if *extend { Fallocate::Extend } else { Fallocate::KeepSize };
            done(fs.fallocate(ctx, ino, how, *offset, *len))
        }
        Action::Range { how, offset, len } => {
            let how = match how {
                RangeOp::Punch => Fallocate::PunchHole,
                RangeOp::Zero => Fallocate::ZeroRange,
                RangeOp::ZeroKeepSize => Fallocate::ZeroRangeKeepSize,
                RangeOp::Collapse => Fallocate::CollapseRange,
                RangeOp::Insert => Fallocate::InsertRange,
            };
            done(fs.fallocate(ctx, ino, how, *offset, *len))
        }
        Action::Seek { offset, data } => {
            let what = if *data { Seek::Data } else { Seek::Hole };
            fs.seek(ino, *offset, what).map(Outcome::Number).map_err(failed)
        }
        other => Err(Failure::Broken(format!("no action on data: {other:?}"))),
    }
}

fn set_attr(set: &SetAttr) -> FsSetAttr {
    let clear_set_id = if set.clear_set_id { ClearSetId::Executable } else { ClearSetId::Nothing };
    FsSetAttr {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime_ns: set.atime_ns,
        mtime_ns: set.mtime_ns,
        project: set.project,
        update: set.method.map(UpdatePolicy::numbered),
        mode_of_writes: None,
        clear_set_id,
    }
}

/// All entries in name order, got `at_a_time` entries a call.
fn list(subject: &impl OnFs, node: Node, at_a_time: usize, ctx: &Ctx) -> Result<Outcome, Failure> {
    let fs = subject.fs()?;
    let mut entries = Vec::new();
    let mut cookie = 0;
    // Each turn adds an entry or ends.
    loop {
        let mut turn = 0;
        let mut bad_cookie = false;
        fs.readdir(ctx, node, cookie, &mut |entry| {
            bad_cookie |= entry.cookie < 16 || entry.cookie >= 1 << 63;
            cookie = entry.cookie;
            let (name, kind) = (entry.name.to_vec(), kind(entry.kind));
            entries.push(Entry { name, ino: from_fs(subject, entry.ino), kind });
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
    Ok(Outcome::Entries(entries))
}
