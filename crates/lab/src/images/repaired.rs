//! A damaged pool, repaired: whatever could be read before can be read still, byte for byte, but what
//! the repair says it gave up; the pool is sound then and opens for writing, and a second repair
//! finds nothing to do.

use std::collections::BTreeMap;

use novale_arena::Arena;
use novale_core::repair::{Effort, Help, RepairReport, repair};
use novale_core::{Ctx, Error, FileKind, Fs, Ino, Node, OpenOptions, Serial};
use novale_pm::{Pm, PmOptions};

use crate::diff::now_ns_at;
use crate::pool_file::PoolFile;

const ARENA_BYTES: u64 = 64 << 20;
/// Inode numbers that are read: the pools have fewer.
const NUMBERS: u64 = 320;
/// Bytes of each that are compared.
const BYTES_MAX: usize = 300_000;
/// What no repair mends: the pool, or an inode, is at the end of its numbers.
const FOR_EVER: [&str; 2] = ["all used up", "as often as its format counts"];

/// What could be read of each inode: kind, size, bytes.
pub type Readable = BTreeMap<u64, (FileKind, u64, Vec<u8>)>;

/// What a repair came to.
#[derive(Debug, Default)]
pub struct Repaired {
    /// What it did, where it could begin.
    pub report: Option<RepairReport>,
    /// Why it could not begin, or ended.
    pub error: Option<Error>,
    /// What can be read after it, where it came to its end.
    pub after: Readable,
    /// What was wrong with that.
    pub wrong: Vec<String>,
}

/// A pool with these bytes in its slots.
///
/// # Errors
/// What the machine says.
pub fn copied(slots: &[Vec<u8>]) -> Result<PoolFile, String> {
    let lens: Vec<u64> = slots.iter().map(|slot| slot.len() as u64).collect();
    let file = PoolFile::zeroed(&lens).map_err(|why| why.to_string())?;
    for (slot, bytes) in (0..).zip(slots) {
        file.put(slot, 0, bytes).map_err(|why| why.to_string())?;
    }
    Ok(file)
}

/// Repairs a pool.
///
/// # Errors
/// Those of the repair.
pub fn run_repair(pm: &Pm, effort: Effort) -> Result<RepairReport, Error> {
    let mut keep = |_: &novale_core::repair::SavedPiece<'_>| Ok(());
    let mut help = Help {
        exec: &Serial,
        progress: &|_| (),
        keep: &mut keep,
        now_ns: now_ns_at(2000),
        owner: (0, 0),
    };
    repair(pm, effort, &mut help)
}

/// What can be read of a pool; nothing where it can't be opened.
pub fn readable(pool: &PoolFile) -> Readable {
    let mut found = Readable::new();
    let options = PmOptions { read_only: true, ..PmOptions::default() };
    let (Ok(pm), Ok(arena)) = (pool.open(&options), Arena::anonymous(ARENA_BYTES)) else {
        return found;
    };
    let options = OpenOptions { read_only: true, now_ns: 1, ..OpenOptions::default() };
    let Ok(fs) = Fs::open(pm, arena, &options, &Serial, &|_| ()) else { return found };
    for number in 1..NUMBERS {
        found.extend(read(&fs, Ino::new(number)).map(|what| (number, what)));
    }
    found
}

fn read(fs: &Fs, ino: Ino) -> Option<(FileKind, u64, Vec<u8>)> {
    let attr = fs.getattr(ino).ok()?;
    let bytes = match attr.kind {
        FileKind::File => {
            let mut bytes = vec![0; BYTES_MAX];
            let count = fs.read(&Ctx { now_ns: 1, hint: 0 }, ino, 0, &mut bytes).ok()?;
            bytes.truncate(count);
            bytes
        }
        FileKind::Symlink => fs.readlink(Node::current(ino)).ok()?,
        // Names may go, by reasons that the repair gives.
        FileKind::Directory => return None,
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => vec![],
    };
    Some((attr.kind, attr.size, bytes))
}

/// Repairs a copy of a pool and judges what came of it.
///
/// # Errors
/// What the machine says.
pub fn repaired(slots: &[Vec<u8>], effort: Effort) -> Result<Repaired, String> {
    let before = readable(&copied(slots)?);
    let pool = copied(slots)?;
    let mut this = Repaired::default();
    let Ok(pm) = pool.open(&PmOptions::default()) else { return Ok(this) };
    match run_repair(&pm, effort) {
        Ok(report) => this.report = Some(report),
        Err(error) => this.error = Some(error),
    }
    drop(pm);
    this.judge(&pool, &before, effort);
    Ok(this)
}

impl Repaired {
    fn judge(&mut self, pool: &PoolFile, before: &Readable, effort: Effort) {
        let Some(report) = &self.report else {
            let known = |error: &Error| {
                matches!(error, Error::BadPool(_) | Error::NoSpace)
                    || FOR_EVER.iter().any(|words| error.to_string().contains(words))
                    || is_of_the_whole(error)
            };
            let wrong = self.error.as_ref().filter(|error| !known(error));
            self.wrong.extend(wrong.map(|error| format!("the repair ended: {error}")));
            return;
        };
        let losses: Vec<&str> =
            report.changes.iter().filter(|c| c.is_loss).map(|c| c.what.as_str()).collect();
        if effort == Effort::Safe && !losses.is_empty() {
            self.wrong.push(format!("a safe repair gave something up: {losses:?}"));
        }
        let given_up = |number: u64| losses.iter().any(|what| names_inode(what, number));
        self.after = readable(pool);
        for (number, was) in before {
            let is = self.after.get(number);
            if is != Some(was) && !given_up(*number) {
                let size = is.map(|(kind, size, _)| (kind, size));
                let what = format!("inode {number} was {:?} of {}, is {size:?}", was.0, was.1);
                self.wrong.push(format!("{what}; changes: {:?}", report.changes));
            }
        }
        let refused = !report.needs_salvage.is_empty() || !report.beyond.is_empty();
        if refused {
            return;
        }
        let stays = |what: &str| FOR_EVER.iter().any(|words| what.contains(words));
        let left: Vec<&str> = report.left.findings.iter().map(|f| f.what.as_str()).collect();
        if !left.is_empty() && !left.iter().any(|what| stays(what)) {
            self.wrong.push(format!("left behind a repair: {left:?}; {:?}", report.changes));
        }
        if left.is_empty() {
            self.opens(pool);
        }
    }

    /// It opens for writing, and there is nothing more to repair.
    fn opens(&mut self, pool: &PoolFile) {
        let again = pool
            .open(&PmOptions::default())
            .and_then(|pm| run_repair(&pm, Effort::Salvage).map_err(|error| error.to_string()));
        match again {
            Ok(report) if report.changes.is_empty() => {}
            Ok(report) => {
                self.wrong.push(format!("a second repair changes: {:?}", report.changes));
            }
            Err(why) => self.wrong.push(format!("a second repair ends: {why}")),
        }
        let options = OpenOptions { now_ns: 1, ..OpenOptions::default() };
        let opened = pool.open(&PmOptions::default()).and_then(|pm| {
            let arena = Arena::anonymous(ARENA_BYTES).map_err(|why| why.to_string())?;
            Fs::open(pm, arena, &options, &Serial, &|_| ()).map_err(|error| error.to_string())
        });
        // What its features forbid, no repair allows.
        let refused = opened.err().filter(|why| !why.contains("features"));
        self.wrong.extend(refused.map(|why| format!("repaired, it does not open: {why}")));
    }
}

/// Whether too little can be read of a pool to repair the rest.
fn is_of_the_whole(error: &Error) -> bool {
    let Error::Damaged { what, .. } = error else { return false };
    ["address", "page of lane", "inode directory", "slot ", "a lane's page"]
        .iter()
        .any(|part| what.contains(part))
}

/// Whether a text names an inode by this number.
pub(super) fn names_inode(text: &str, number: u64) -> bool {
    text.split("inode ").skip(1).any(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse() == Ok(number)
    })
}
