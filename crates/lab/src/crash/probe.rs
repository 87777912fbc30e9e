//! A recovered file system put to use: everything can be made, written, moved and removed.

use novale_model::{Attr, Error, Ino, Kind, NewInode, RenameMode, SetAttr};

use crate::diff::{Machine, snapshot};
use crate::workload::{Action, Failure, Op, Subject, fill_bytes};

/// Where fewer bytes are free, what makes something new may be refused.
pub const BYTES_ROOMY: u64 = 1 << 20;

/// Makes and uses files, removes everything that there is, and makes files once more: on a full pool
/// that is when there must be room.
///
/// # Errors
/// What did not work.
pub fn probe(machine: &mut impl Machine, now_ns: i64) -> Result<(), String> {
    let is_roomy = machine.bytes_available().is_none_or(|bytes| bytes > BYTES_ROOMY);
    probe_below(machine, is_roomy, now_ns)
}

/// As [`probe`], of what may be a part of a file system only; on a roomy one nothing may be refused
/// for want of space.
///
/// # Errors
/// What did not work.
pub fn probe_below(machine: &mut impl Subject, is_roomy: bool, now_ns: i64) -> Result<(), String> {
    let refused = |why: &Failure| *why == Failure::Error(Error::NoSpace) && !is_roomy;
    match use_new_files(machine, now_ns) {
        Err(why) if !refused(&why) => return Err(format!("new files: {why:?}")),
        Ok(()) | Err(_) => {}
    }
    let tree = snapshot(machine, now_ns)?;
    for (path, node) in tree.nodes() {
        if node.attr.kind != Kind::File {
            continue;
        }
        match rewrite(machine, path, now_ns) {
            Err(why) if !refused(&why) => {
                return Err(format!("write to {}: {why:?}", path.escape_ascii()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    remove_all(machine, now_ns)?;
    use_new_files(machine, now_ns).map_err(|why| format!("new files at last: {why:?}"))?;
    remove_all(machine, now_ns)
}

fn remove_all(subject: &mut impl Subject, now_ns: i64) -> Result<(), String> {
    let tree = snapshot(subject, now_ns)?;
    // Children come after their parents in byte order, so they are removed first.
    let mut paths: Vec<_> = tree.nodes().map(|(path, node)| (path, node.attr.kind)).collect();
    paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.split(|byte| *byte == b'/').count()));
    for (path, kind) in paths.into_iter().filter(|(path, _)| !path.is_empty()) {
        remove(subject, path, kind, now_ns)
            .map_err(|why| format!("remove {}: {why:?}", path.escape_ascii()))?;
    }
    let left = snapshot(subject, now_ns)?.nodes().count();
    if left == 1 { Ok(()) } else { Err(format!("{left} paths are left after removing all")) }
}

fn use_new_files(subject: &mut impl Subject, now_ns: i64) -> Result<(), Failure> {
    let directory = create(subject, Ino::ROOT, b"probe", Kind::Directory, now_ns)?.ino;
    let ino = create(subject, directory, b"file", Kind::File, now_ns)?.ino;
    let (offset, len, fill) = (100, 9000, 4242);
    subject.on(ino, &Action::Write { offset, len, fill }, now_ns)?;
    let read = subject.on(ino, &Action::Read { offset, len }, now_ns)?.bytes()?;
    if read != fill_bytes(fill, len as usize) {
        return Err(Failure::Broken("other bytes than written".to_owned()));
    }
    let cut = SetAttr { size: Some(5000), ..SetAttr::default() };
    subject.on(ino, &Action::Set(cut), now_ns)?;
    let link = Op::Link { ino, parent: Ino::ROOT, name: b"probe link" };
    subject.apply(&link, now_ns)?;
    let (from, to) = ((directory, &b"file"[..]), (Ino::ROOT, &b"probe file"[..]));
    subject.apply(&Op::Rename { from, to, mode: RenameMode::Replace }, now_ns)?;
    create(subject, directory, b"socket", Kind::Socket, now_ns)?;
    Ok(())
}

fn create(
    subject: &mut impl Subject,
    parent: Ino,
    name: &[u8],
    kind: Kind,
    now_ns: i64,
) -> Result<Attr, Failure> {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
    subject.apply(&Op::Create { parent, name, new: &new }, now_ns)?.attr()
}

fn rewrite(subject: &mut impl Subject, path: &[u8], now_ns: i64) -> Result<(), Failure> {
    let ino = resolve(subject, path)?;
    subject.on(ino, &Action::Write { offset: 10, len: 5, fill: 1 }, now_ns)?;
    subject.on(ino, &Action::Append { len: 5, fill: 2 }, now_ns)?;
    Ok(())
}

fn remove(subject: &mut impl Subject, path: &[u8], kind: Kind, now_ns: i64) -> Result<(), Failure> {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (parent, name) = path.split_at(slash);
    let parent = resolve(subject, parent)?;
    let name = name.get(1..).unwrap_or_default();
    let is_dir = kind == Kind::Directory;
    let op = if is_dir { Op::Rmdir { parent, name } } else { Op::Unlink { parent, name } };
    subject.apply(&op, now_ns)?;
    match subject.lookup(parent, name) {
        Err(Failure::Error(Error::NotFound)) => Ok(()),
        Err(why) => Err(why),
        Ok(_) => Err(Failure::Broken("the name is there still".to_owned())),
    }
}

fn resolve(subject: &mut impl Subject, path: &[u8]) -> Result<Ino, Failure> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut at = Ino::ROOT;
    for name in names {
        at = subject.lookup(at, name)?.ino;
    }
    Ok(at)
}
