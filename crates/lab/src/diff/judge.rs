//! Whether two results of one step are the same to a user.

use std::collections::BTreeMap;

use novale_model::{Attr, Error, Ino, Kind, Model, PAGE_BYTES};

use crate::workload::{Entry, Failure, Outcome};

/// Which inode of the machine is which of the model.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    by_model: BTreeMap<Ino, Ino>,
    by_machine: BTreeMap<Ino, Ino>,
}

impl Numbers {
    /// Both sides give the root the same number.
    pub(super) fn with_root() -> Self {
        let root = || BTreeMap::from([(Ino::ROOT, Ino::ROOT)]);
        Self { by_model: root(), by_machine: root() }
    }

    /// Notes that the two are one, or says that they were not so far. The machine may use the
    /// number of an inode again that the model has no more.
    pub(super) fn same(&mut self, model: Ino, machine: Ino) -> Result<(), String> {
        match self.by_model.insert(model, machine) {
            Some(old) if old != machine => {
                return Err(format!("was inode {}, now is inode {}", old.0, machine.0));
            }
            _ => {}
        }
        self.by_machine.insert(machine, model);
        Ok(())
    }

    /// As [`Self::same`], and no living inode shares the machine's number.
    fn same_alive(&mut self, oracle: &Model, model: Ino, machine: Ino) -> Result<(), String> {
        if let Some(other) = self.by_machine.get(&machine)
            && *other != model
            && oracle.getattr(*other).is_ok()
        {
            return Err(format!("inode {} is another living inode's number", machine.0));
        }
        self.same(model, machine)
    }
}

/// Compares what a step returned, `model` being the oracle after it.
pub(super) fn judge(
    model: &Model,
    numbers: &mut Numbers,
    expected: &Outcome,
    found: &Outcome,
) -> Result<(), String> {
    match (expected, found) {
        (_, Outcome::Failed(Failure::Broken(why))) => Err(why.clone()),
        (Outcome::Attr(expected), Outcome::Attr(found)) => {
            numbers.same_alive(model, expected.ino, found.ino)?;
            judge_attr(expected, found)
        }
        (Outcome::Ino(expected), Outcome::Ino(found)) => {
            numbers.same_alive(model, *expected, *found)
        }
        (Outcome::Entries(expected), Outcome::Entries(found)) => {
            judge_entries(model, numbers, expected, found)
        }
        (Outcome::Bytes(expected), Outcome::Bytes(found)) => judge_bytes(expected, found),
        (expected, found) if expected == found => Ok(()),
        (expected, found) => Err(format!("model {expected:?}, found {found:?}")),
    }
}

fn judge_attr(expected: &Attr, found: &Attr) -> Result<(), String> {
    let mut found = Attr { ino: expected.ino, ..*found };
    // What a directory's size counts is every file system's own business.
    if found.kind == Kind::Directory {
        found.size = 0;
    }
    if *expected == found {
        return Ok(());
    }
    Err(format!("attributes differ:\nmodel {expected:?}\nfound {found:?}"))
}

fn judge_bytes(expected: &[u8], found: &[u8]) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("model {} bytes, found {}", expected.len(), found.len()));
    }
    let differs = expected.iter().zip(found).position(|(expected, found)| expected != found);
    let Some(at) = differs else { return Ok(()) };
    let shown =
        |bytes: &[u8]| format!("{:02x?}", bytes.iter().skip(at).take(16).collect::<Vec<_>>());
    Err(format!("bytes differ at {at}: model {}, found {}", shown(expected), shown(found)))
}

fn judge_entries(
    model: &Model,
    numbers: &mut Numbers,
    expected: &[Entry],
    found: &[Entry],
) -> Result<(), String> {
    let show = |entries: &[Entry]| -> Vec<String> {
        entries
            .iter()
            .map(|entry| format!("{} {:?}", entry.name.escape_ascii(), entry.kind))
            .collect()
    };
    if show(expected) != show(found) {
        return Err(format!("model {:?}, found {:?}", show(expected), show(found)));
    }
    let mut pairs = expected.iter().zip(found);
    pairs.try_for_each(|(expected, found)| numbers.same_alive(model, expected.ino, found.ino))
}

/// Judges where data or a hole was found: a file system may call zeros a hole or not, but may not
/// skip other bytes.
pub(super) fn judge_seek(
    model: &Model,
    ino: Ino,
    (offset, data): (u64, bool),
    found: &Outcome,
) -> Result<(), String> {
    let size = model.getattr(ino).map_err(|why| why.to_string())?.size;
    let is_zero = |from, to| model.is_zero(ino, from, to).unwrap_or(false);
    let ok = match found {
        Outcome::Failed(Failure::Broken(why)) => return Err(why.clone()),
        Outcome::Failed(Failure::Error(Error::NoSuchOffset)) => {
            offset >= size || data && is_zero(offset, size)
        }
        Outcome::Number(at) if data => *at >= offset && *at < size && is_zero(offset, *at),
        Outcome::Number(at) if *at == size => offset < size,
        Outcome::Number(at) => {
            let page_end = (at / PAGE_BYTES as u64 + 1) * PAGE_BYTES as u64;
            *at >= offset && *at < size && is_zero(*at, page_end)
        }
        Outcome::Failed(Failure::Error(_))
        | Outcome::Done
        | Outcome::Attr(_)
        | Outcome::Bytes(_)
        | Outcome::Entries(_)
        | Outcome::Ino(_) => false,
    };
    if ok { Ok(()) } else { Err(format!("of {size} bytes, found {found:?}")) }
}
