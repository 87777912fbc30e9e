//! What an image is put through: described, checked, dumped, repaired, shown, used and emptied, opened
//! again. Errors are welcome that say what is damaged and where; a panic is not, nor an error that blames
//! the arena, or nobody.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use novale_arena::Arena;
use novale_core::dump::{Dump, DumpLimits};
use novale_core::repair::Effort;
use novale_core::{
    Atime, Ctx, Error, Fallocate, FileKind, Fs, Ino, NewInode, Node, OpenOptions, Place,
    RenameMode, Seek, Serial, SetAttr, check, identify_slot, inspect, space,
};
use novale_layout::{MAX_LANES, PmAddr};
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};

use super::image::Image;
use super::message::kind_of;
use super::pools::Pools;
use super::recipe::Recipe;
use super::repaired::repaired;
use crate::diff::{now_ns_at, panic_text};
use crate::pool_file::PoolFile;

/// What the view of an image may take: it is a limit, not a measure.
const ARENA_BYTES: u64 = 64 << 20;
/// Names followed of a tree: the pools have fewer.
const NAMES_MAX: usize = 4000;
/// One in so many images is repaired, which takes ten times as long as all the rest.
const REPAIRED_ONE_IN: u64 = 8;
/// Inodes shown raw, and of each so many entries.
const DUMPED_INODES: u64 = 100;
const DUMPED_MAX: usize = 300;
/// Inodes changed.
const CHANGED_MAX: usize = 120;

/// What became of an image.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The damage, in words.
    pub wounds: Vec<String>,
    /// What was wrong with the answer.
    pub wrong: Vec<String>,
    /// The kinds of messages, each after the stage that it came in.
    pub messages: BTreeSet<String>,
    /// It was opened for writing.
    pub opened: bool,
    /// It was opened read-only.
    pub shown: bool,
    /// Messages and the code's places that stored something, as numbers.
    pub reached: BTreeSet<u64>,
    /// The branches that ran, and how often; none where they are not counted.
    pub edges: Vec<(usize, u8)>,
}

/// Makes the image and puts it through everything.
///
/// # Errors
/// The sound pool can't be made, or the machine has no memory files.
pub fn try_recipe(pools: &mut Pools, recipe: &Recipe) -> Result<Outcome, String> {
    let Image { pool, wounds, .. } = Image::new(pools, recipe)?;
    let mut outcome = Outcome { wounds, ..Outcome::default() };
    let sites = Arc::new(Sites::default());
    let mut trial = Trial { pool: &pool, sites: &sites, sound: false, outcome: &mut outcome };
    let repaired = number_of(recipe.to_string()).is_multiple_of(REPAIRED_ONE_IN);
    let slots = if repaired { pool.slots().map_err(|why| why.to_string())? } else { Vec::new() };
    novale_edges::take(&mut |_, _| ());
    let ran = catch_unwind(AssertUnwindSafe(|| {
        trial.run();
        if repaired {
            trial.repair(&slots);
        }
    }));
    novale_edges::take(&mut |edge, times| outcome.edges.push((edge, times)));
    if let Err(payload) = ran {
        outcome.wrong.push(format!("panic: {}", panic_text(payload.as_ref())));
    }
    outcome.reached.extend(sites.take());
    outcome.reached.extend(outcome.messages.iter().map(number_of));
    Ok(outcome)
}

fn number_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether a read-only opening may not fail by this: it is about one inode, and not the root, nor
/// a record that may speak of it.
fn must_be_shown(error: &Error) -> bool {
    let Error::Damaged { what, .. } = error else {
        return matches!(error, Error::Unrecoverable { .. });
    };
    let mut words = what.split(' ');
    words.next() == Some("inode")
        && words.next() != Some("1")
        && !["directory", "journal record"].iter().any(|part| what.contains(part))
}

/// The places in the code that stored, wrote back or fenced.
#[derive(Debug, Default)]
struct Sites(Mutex<HashSet<(&'static str, u32)>>);

impl Sites {
    fn meet(&self, site: &'static Location<'static>) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sites.insert((site.file(), site.line()));
    }

    fn take(&self) -> Vec<u64> {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *sites).into_iter().map(number_of).collect()
    }
}

impl Observer for Sites {
    fn store(&self, event: StoreEvent<'_>) {
        self.meet(event.site);
    }

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, site: &'static Location<'static>) {
        self.meet(site);
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.meet(site);
    }
}

/// A name of the tree.
struct Name {
    dir: Ino,
    text: Vec<u8>,
    ino: Ino,
    kind: FileKind,
}

struct Trial<'t> {
    pool: &'t PoolFile,
    sites: &'t Arc<Sites>,
    /// The check found nothing.
    sound: bool,
    outcome: &'t mut Outcome,
}

impl Trial<'_> {
    fn run(&mut self) {
        self.sound = self.look();
        self.dump();
        if let Some(fs) = self.open("show", true) {
            self.outcome.shown = true;
            self.walk("show", &fs);
            self.note("show", fs.close());
        }
        let Some(fs) = self.open("use", false) else { return };
        self.outcome.opened = true;
        let names = self.walk("use", &fs);
        self.change(&fs, &names);
        self.empty(&fs, &names);
        self.note("use", fs.close());
        drop(fs);
        if let Some(pm) = self.pm("after", true)
            && let Some(report) = self.note("after", check(&pm, &Serial, &|_| ()))
            && self.sound
        {
            let first = report.findings.first();
            let wrong = first.map(|finding| format!("sound, yet after its use {}", finding.what));
            self.outcome.wrong.extend(wrong);
        }
        drop(self.open("after", false));
    }

    fn ctx() -> Ctx {
        Ctx { now_ns: now_ns_at(1000), hint: 1 }
    }

    fn pm(&mut self, stage: &str, read_only: bool) -> Option<Pm> {
        let observer = Some(self.sites.clone() as Arc<dyn Observer>);
        let options = PmOptions { read_only, observer, ..PmOptions::default() };
        match self.pool.open(&options) {
            Ok(pm) => Some(pm),
            Err(why) => {
                self.meet(stage, &why);
                None
            }
        }
    }

    fn open(&mut self, stage: &str, read_only: bool) -> Option<Fs> {
        let pm = self.pm(stage, read_only)?;
        let arena = match Arena::anonymous(ARENA_BYTES) {
            Ok(arena) => arena,
            Err(why) => {
                self.outcome.wrong.push(format!("{stage}: no arena: {why}"));
                return None;
            }
        };
        let options = OpenOptions {
            read_only,
            atime: Atime::Strict,
            now_ns: now_ns_at(999),
            ..OpenOptions::default()
        };
        let opened = Fs::open(pm, arena, &options, &Serial, &|_| ());
        if read_only
            && let Err(error) = &opened
            && must_be_shown(error)
        {
            self.outcome.wrong.push(format!("{stage}: refused for a part of it: {error}"));
        }
        self.note(stage, opened)
    }

    /// Takes a message in.
    fn meet(&mut self, stage: &str, message: &str) {
        self.outcome.messages.insert(format!("{stage}: {}", kind_of(message)));
    }

    /// Takes a result in and judges its error.
    fn note<T>(&mut self, stage: &str, result: Result<T, Error>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let text = error.to_string();
        self.meet(stage, &text);
        let blames_nobody = if let Error::Damaged { what, at, .. } = &error {
            what.is_empty() || at.is_null()
        } else {
            matches!(error, Error::BadArena(_))
        };
        if blames_nobody {
            self.outcome.wrong.push(format!("{stage}: {text}"));
        }
        if self.sound && matches!(error, Error::Damaged { .. } | Error::Unrecoverable { .. }) {
            self.outcome.wrong.push(format!("sound by its check, yet {stage}: {text}"));
        }
        None
    }

    /// What describes and checks it; whether the check found nothing.
    fn look(&mut self) -> bool {
        let Some(pm) = self.pm("look", true) else { return false };
        self.note("info", inspect(&pm));
        self.note("info", space(&pm));
        for slot in 0..pm.slot_count() {
            self.note("info", identify_slot(&pm, slot));
        }
        let Some(report) = self.note("check", check(&pm, &Serial, &|_| ())) else { return false };
        for finding in &report.findings {
            self.meet("finding", &finding.what);
        }
        report.findings.is_empty()
    }

    /// Repairs copies of the image, with and without giving something up.
    fn repair(&mut self, slots: &[Vec<u8>]) {
        for effort in [Effort::Safe, Effort::Salvage] {
            match repaired(slots, effort) {
                Ok(done) => {
                    let wrong = done.wrong.into_iter();
                    self.outcome
                        .wrong
                        .extend(wrong.map(|what| format!("{effort:?} repair: {what}")));
                    for change in done.report.iter().flat_map(|report| &report.changes) {
                        self.meet("repair", &change.what);
                    }
                }
                Err(why) => self.outcome.wrong.push(format!("repair: {why}")),
            }
        }
    }

    /// Shows every structure as it lies there: whatever the damage, all of it, within its limits.
    fn dump(&mut self) {
        let Some(pm) = self.pm("dump", true) else { return };
        let dump = Dump::new(&pm);
        let (pool, slots, lanes) = (dump.pool(), dump.slots(), dump.lanes());
        if (pool.superblocks.len(), pool.states.len()) != (2, 2)
            || slots.iter().any(|slot| (slot.headers.len(), slot.states.len()) != (2, 2))
            || lanes.len() > usize::try_from(MAX_LANES).unwrap_or(usize::MAX)
        {
            self.outcome.wrong.push("dump: a copy is not shown, or too many lanes".to_owned());
        }
        let limits = DumpLimits { items: DUMPED_MAX, behind: true };
        if dump.saved(limits).pages.len() > DUMPED_MAX {
            self.outcome.wrong.push("dump: the saved allocator goes beyond its limit".to_owned());
        }
        for number in 0..DUMPED_INODES {
            let inode = dump.inode(Ino::new(number), limits);
            let entries = || inode.log.pages.iter().flat_map(|page| &page.entries);
            if entries().count().max(inode.names.len()).max(inode.extents.len()) > DUMPED_MAX {
                self.outcome.wrong.push(format!("dump: inode {number} goes beyond its limit"));
            }
            let in_use = inode.verdict.contains("in use:") && !inode.verdict.starts_with("not");
            let refused = entries().find_map(|entry| entry.refused.as_ref());
            if let (true, true, Some(why)) = (self.sound, in_use, refused) {
                self.outcome.wrong.push(format!("sound, yet dump refuses in {number}: {why}"));
            }
            self.meet("dump", &inode.verdict);
            self.meet("dump", &inode.log.end);
        }
        if let Err(why) = dump.find(b"a/b/c") {
            self.meet("dump", &why);
        }
        let page = PmAddr::new(0, novale_layout::FIRST_FREE_PAGE * novale_layout::PAGE);
        self.note("dump", dump.page(page, &Serial, &|_| ()));
    }

    /// Lists the whole tree, and reads what it leads to.
    fn walk(&mut self, stage: &str, fs: &Fs) -> Vec<Name> {
        let c = Self::ctx();
        let mut names: Vec<Name> = Vec::new();
        let (mut seen, mut open) = (HashSet::from([Ino::ROOT]), vec![Ino::ROOT]);
        while let Some(dir) = open.pop() {
            let first = names.len();
            let listed = fs.readdir(&c, Node::current(dir), 0, &mut |entry| {
                let (text, ino, kind) = (entry.name.to_vec(), entry.ino, entry.kind);
                names.push(Name { dir, text, ino, kind });
                names.len() < NAMES_MAX
            });
            self.note(stage, listed);
            for Name { text, ino, kind, .. } in names.get(first..).unwrap_or_default() {
                self.note(stage, fs.lookup(&c, Node::current(dir), text));
                if seen.insert(*ino) {
                    self.read(stage, fs, *ino);
                    open.extend((*kind == FileKind::Directory).then_some(*ino));
                }
            }
        }
        self.note(stage, fs.statfs());
        names
    }

    fn read(&mut self, stage: &str, fs: &Fs, ino: Ino) {
        let c = Self::ctx();
        let Some(attr) = self.note(stage, fs.getattr(ino)) else { return };
        match attr.kind {
            FileKind::File => {
                let mut bytes = vec![0; 70_000];
                for offset in [0, 40_000, attr.size.saturating_sub(10), attr.size / 2, u64::MAX] {
                    self.note(stage, fs.read(&c, ino, offset, &mut bytes));
                    self.note(stage, fs.seek(ino, offset, Seek::Data));
                    self.note(stage, fs.seek(ino, offset, Seek::Hole));
                }
            }
            FileKind::Symlink => drop(self.note(stage, fs.readlink(Node::current(ino)))),
            FileKind::Directory
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => {}
        }
    }

    fn change(&mut self, fs: &Fs, names: &[Name]) {
        let c = Self::ctx();
        let new = |kind| NewInode { kind, mode: 0o700, uid: 1, gid: 1, rdev: 0, target: b"" };
        for Name { dir, text, ino, kind } in names.iter().take(CHANGED_MAX) {
            let (ino, dir) = (*ino, *dir);
            let resized = |size| SetAttr { size: Some(size), ..SetAttr::default() };
            if *kind == FileKind::Directory {
                self.note(
                    "use",
                    fs.create(&c, Node::current(ino), b"new file", &new(FileKind::File)),
                );
                self.note(
                    "use",
                    fs.create(&c, Node::current(ino), b"new dir", &new(FileKind::Directory)),
                );
            } else {
                self.note("use", fs.write(&c, ino, 4000, &[1; 300]));
                self.note("use", fs.append(&c, ino, &[2; 9000]));
                self.note("use", fs.fallocate(&c, ino, Fallocate::Extend, 50_000, 9000));
                for how in [Fallocate::PunchHole, Fallocate::ZeroRange] {
                    self.note("use", fs.fallocate(&c, ino, how, 3000, 9000));
                }
                for how in [Fallocate::InsertRange, Fallocate::CollapseRange] {
                    self.note("use", fs.fallocate(&c, ino, how, 4096, 8192));
                }
                let [from, to] = [1000, 30_000].map(|offset| Place { ino, offset });
                self.note("use", fs.copy_range(&c, from, to, 20_000));
                self.note("use", fs.setattr(&c, Node::current(ino), &resized(100)));
                self.note("use", fs.setattr(&c, Node::current(ino), &resized(100_000)));
                self.note("use", fs.link(&c, Node::current(ino), Node::current(dir), b"new link"));
                self.note("use", fs.unlink(&c, Node::current(dir), b"new link"));
            }
            let owner = SetAttr { uid: Some(7), mode: Some(0o751), ..SetAttr::default() };
            self.note("use", fs.setattr(&c, Node::current(ino), &owner));
            let moved = fs.rename(
                &c,
                Node::current(dir),
                text,
                Node::ROOT,
                b"moved",
                RenameMode::NoReplace,
            );
            if self.note("use", moved).is_some() {
                let back = fs.rename(
                    &c,
                    Node::ROOT,
                    b"moved",
                    Node::current(dir),
                    text,
                    RenameMode::Replace,
                );
                self.note("use", back);
            }
        }
    }

    fn empty(&mut self, fs: &Fs, names: &[Name]) {
        let c = Self::ctx();
        for Name { dir, text, ino, kind } in names.iter().rev() {
            if *kind == FileKind::Directory {
                self.note("use", fs.unlink(&c, Node::current(*ino), b"new file"));
                self.note("use", fs.rmdir(&c, Node::current(*ino), b"new dir"));
                self.note("use", fs.rmdir(&c, Node::current(*dir), text));
            } else {
                self.note("use", fs.unlink(&c, Node::current(*dir), text));
            }
        }
    }
}
