//! A [`Tree`] of any subject, read through its own operations.

use std::collections::BTreeMap;

use novale_model::{Attr, Contents, Error, Ino, Kind, Tree};

use crate::workload::{Action, Failure, Outcome, Subject};

/// Files up to this size are read whole; of larger ones what `seek` calls data.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// Bytes a read: unlike a page, so that reads cross its borders.
const READ_BYTES: usize = 100_000;

/// Paths beyond this count mean that the directories run in circles.
const PATHS_MAX: usize = 100_000;

/// Everything that a user can see.
///
/// # Errors
/// What could not be read, in words.
pub fn snapshot(subject: &mut impl Subject, now_ns: i64) -> Result<Tree, String> {
    let mut tree = Tree::default();
    tree.set_limits(subject.limits().map_err(|why| format!("limits of trees: {why:?}"))?);
    let mut waiting = vec![(Vec::new(), Ino::ROOT)];
    for _ in 0..PATHS_MAX {
        let Some((path, ino)) = waiting.pop() else {
            return Ok(tree.numbered_alike());
        };
        let at = |why| format!("snapshot of {}: {why}", path.escape_ascii());
        let node = node(subject, ino, now_ns).map_err(|why| at(format!("{why:?}")))?;
        for (name, child, kind) in node.entries {
            let found = subject.lookup(ino, &name);
            match found {
                Ok(attr) if attr.ino == child && attr.kind == kind => {}
                other => {
                    let name = name.escape_ascii();
                    return Err(at(format!("{name} is listed as {child:?}, look-up: {other:?}")));
                }
            }
            waiting.push(([path.as_slice(), b"/", &name].concat(), child));
        }
        tree.insert(path, node.attr, (node.contents, node.target), node.xattrs);
    }
    Err(format!("more than {PATHS_MAX} paths"))
}

struct Shown {
    attr: Attr,
    contents: Contents,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    entries: Vec<(Vec<u8>, Ino, Kind)>,
}

fn node(subject: &mut impl Subject, ino: Ino, now_ns: i64) -> Result<Shown, Failure> {
    let attr = subject.on(ino, &Action::Stat, now_ns)?.attr()?;
    let mut xattrs = BTreeMap::new();
    let names = subject.on(ino, &Action::ListXattr, now_ns)?.bytes()?;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = name.to_vec();
        let value = subject.on(ino, &Action::GetXattr(name.clone()), now_ns)?.bytes()?;
        xattrs.insert(name, value);
    }
    let mut shown = Shown {
        attr,
        contents: Contents::default(),
        target: Vec::new(),
        xattrs,
        entries: Vec::new(),
    };
    match attr.kind {
        Kind::File => shown.contents = contents(subject, ino, attr.size, now_ns)?,
        Kind::Symlink => shown.target = subject.on(ino, &Action::Readlink, now_ns)?.bytes()?,
        Kind::Directory => {
            shown.attr.size = 0;
            let list = Action::List { at_a_time: u32::MAX };
            let entries = subject.on(ino, &list, now_ns)?.entries()?;
            let entries = entries.into_iter().map(|entry| (entry.name, entry.ino, entry.kind));
            shown.entries = entries.collect();
        }
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {}
    }
    Ok(shown)
}

fn contents(
    subject: &mut impl Subject,
    ino: Ino,
    size: u64,
    now_ns: i64,
) -> Result<Contents, Failure> {
    let mut contents = Contents::default();
    let mut at = 0;
    // Each turn reads at least a byte or ends.
    while at < size {
        let end = if size > WHOLE_BYTES_MAX {
            let Some(data) = find(subject, ino, at, true, now_ns)? else {
                break;
            };
            at = data;
            find(subject, ino, at, false, now_ns)?.unwrap_or(size)
        } else {
            size
        };
        let len = usize::try_from(end.saturating_sub(at)).unwrap_or(READ_BYTES).min(READ_BYTES);
        let read = Action::Read { offset: at, len: u32::try_from(len).unwrap_or(u32::MAX) };
        let bytes = subject.on(ino, &read, now_ns)?.bytes()?;
        if bytes.is_empty() {
            return Err(Failure::Broken(format!("no bytes at {at} of {size}, {len} asked")));
        }
        contents.write(at, &bytes);
        at += bytes.len() as u64;
    }
    contents.truncate(size);
    Ok(contents)
}

fn find(
    subject: &mut impl Subject,
    ino: Ino,
    offset: u64,
    data: bool,
    now_ns: i64,
) -> Result<Option<u64>, Failure> {
    match subject.on(ino, &Action::Seek { offset, data }, now_ns) {
        Err(Failure::Error(Error::NoSuchOffset)) => Ok(None),
        Ok(Outcome::Number(found)) => Ok(Some(found)),
        // A subject that cannot tell has all bytes read.
        Ok(_) => Ok(data.then_some(offset)),
        Err(failure) => Err(failure),
    }
}
