//! A recovered file system put to use: everything can be made, written, moved and removed.

use novale_model::{Attr, Ino, Kind, NewInode, RenameMode, SetAttr};

use crate::diff::snapshot;
use crate::workload::{Failure, Subject, fill_bytes};

/// Makes and uses files, then removes everything that there is.
///
/// # Errors
/// What did not work.
pub fn probe(subject: &mut impl Subject, now_ns: i64) -> Result<(), String> {
    use_new_files(subject, now_ns).map_err(|why| format!("{why:?}"))?;
    let tree = snapshot(subject, now_ns)?;
    for (path, node) in tree.nodes() {
        if node.attr.kind == Kind::File {
            rewrite(subject, path, now_ns)
                .map_err(|why| format!("write to {}: {why:?}", path.escape_ascii()))?;
        }
    }
    // Children come behind their parents in byte order, so they are removed first.
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
    let file = create(subject, directory, b"file", Kind::File, now_ns)?.ino;
    let bytes = fill_bytes(4242, 9000);
    subject.write(file, 100, &bytes, now_ns)?;
    if subject.read(file, 100, bytes.len(), now_ns)? != bytes {
        return Err(Failure::Broken("other bytes than written".to_owned()));
    }
    let cut = SetAttr { size: Some(5000), ..SetAttr::default() };
    subject.setattr(file, &cut, now_ns)?;
    subject.link(file, Ino::ROOT, b"probe link", now_ns)?;
    let (from, to) = ((directory, &b"file"[..]), (Ino::ROOT, &b"probe file"[..]));
    subject.rename(from, to, RenameMode::Replace, now_ns)?;
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
    subject.create(parent, name, &new, now_ns)
}

fn rewrite(subject: &mut impl Subject, path: &[u8], now_ns: i64) -> Result<(), Failure> {
    let ino = resolve(subject, path)?;
    subject.write(ino, 10, b"probe", now_ns)?;
    subject.append(ino, b"probe", now_ns)?;
    Ok(())
}

fn remove(subject: &mut impl Subject, path: &[u8], kind: Kind, now_ns: i64) -> Result<(), Failure> {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (parent, name) = path.split_at(slash);
    let parent = resolve(subject, parent)?;
    let name = name.get(1..).unwrap_or_default();
    if kind == Kind::Directory {
        subject.rmdir(parent, name, now_ns)
    } else {
        subject.unlink(parent, name, now_ns)
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
