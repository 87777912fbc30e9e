//! The promise: adding a slot, replacing one and taking one out may be cut off anywhere, by power cuts and by
//! deaths, and again while the same call goes on. What is left is a pool with all that it had, of which one set
//! of slots at most can be written; what is written there stays, and the same call goes on to the end; from `NOVALE_LAB_SEED` on, `NOVALE_LAB_SECONDS` for each kind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test stops at what fails, and says what it met"
)]

mod support;
#[path = "../../core/tests/support/tables.rs"]
mod tables;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fastrand::Rng;
use novale_arena::{Arena, PidInfo};
use novale_core::repair::{Effort, Help, SavedPiece, repair};
use novale_core::seeded::{Bug, switch};
use novale_core::{
    Beside, Ctx, FileKind, Fs, Ino, MkfsOptions, NewInode, Node, OpenOptions, Placement, Serial,
    SetXattr, XattrMode, check, inspect, mkfs, slot_header,
};
use novale_lab::crash::{Event, Hardware, LineBytes, LineKey, Recorder, What};
use novale_lab::diff::{Budget, Length};
use novale_layout::{PmAddr, SLOT_HEADER_OFFSET};
use novale_pm::{Observer, Pm, PmOptions, Purpose, SlotLock, SlotSpec, StoreEvent};
use novale_posix::slots::{Helpers, add, going, let_wait, remove, replace, replace_lost};
use support::{is_share, share};
use tempfile::TempDir;

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
/// Those of the pool, and the one that comes.
const SLOT_BYTES: [usize; 4] = [2 << 20, 1 << 20, 1 << 20, 2 << 20];
const FILES: u8 = 6;

/// What is done with slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Remove(usize),
    /// The last slot is emptied while the pool is used, and this one goes then without being asked for.
    RemoveInUse(usize),
    Add,
    /// The same while the pool is used, which goes on with what comes.
    AddInUse,
    /// And by two clients, of which one has it from its next operation on.
    AddBeside,
    Replace(usize),
    /// A slot comes while the pool is used, and this one goes for it when nobody uses it any more.
    ReplaceInUse(usize),
    /// And by two clients.
    ReplaceBeside(usize),
    /// A slot is lost, and may come back too late.
    ReplaceLost(usize),
}

impl Change {
    /// Slots, by their files, that may be a pool while this is done: what it was, and what it comes to.
    fn pools(self) -> Vec<Vec<usize>> {
        let before = vec![0, 1, 2];
        match self {
            Self::Remove(2) | Self::RemoveInUse(2) => vec![before, vec![0, 1]],
            Self::Remove(_) | Self::RemoveInUse(_) => vec![before, vec![0, 1], vec![0, 2]],
            Self::Add | Self::AddInUse | Self::AddBeside => vec![before, vec![0, 1, 2, 3]],
            Self::ReplaceInUse(slot) | Self::ReplaceBeside(slot) => {
                let after = (0..3).map(|of| if of == slot { 3 } else { of }).collect();
                vec![before, vec![0, 1, 2, 3], after]
            }
            Self::Replace(slot) | Self::ReplaceLost(slot) => {
                vec![before, (0..3).map(|of| if of == slot { 3 } else { of }).collect()]
            }
        }
    }

    /// The slot that goes.
    fn old(self) -> Option<usize> {
        match self {
            Self::Remove(slot)
            | Self::RemoveInUse(slot)
            | Self::Replace(slot)
            | Self::ReplaceInUse(slot)
            | Self::ReplaceBeside(slot) => Some(slot),
            Self::Add | Self::AddInUse | Self::AddBeside | Self::ReplaceLost(_) => None,
        }
    }
}

/// The slots' files less one.
fn without(files: &Files, lost: usize) -> Vec<Option<PathBuf>> {
    (0..3).map(|slot| (slot != lost).then(|| files.path(slot))).collect()
}

/// Tells a recorder of mapped slots by the numbers of their files.
struct Renumbered(Arc<Recorder>, Vec<u8>);

impl Renumbered {
    fn at(&self, addr: PmAddr) -> PmAddr {
        PmAddr::new(self.1[usize::from(addr.slot())], addr.byte())
    }
}

impl Observer for Renumbered {
    fn store(&self, event: StoreEvent<'_>) {
        self.0.store(StoreEvent { addr: self.at(event.addr), ..event });
    }

    fn write_back(&self, at: PmAddr, len: u64, why: Purpose, site: &'static Location<'static>) {
        self.0.write_back(self.at(at), len, why, site);
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.0.fence(site);
    }
}

/// The files of slots.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("novale-lab-slots.").tempdir_in("/dev/shm").unwrap())
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.0.path().join(slot.to_string())
    }

    fn paths(&self, slots: &[usize]) -> Vec<PathBuf> {
        slots.iter().map(|slot| self.path(*slot)).collect()
    }

    /// Without cutting files short, which would have the kernel make their pages anew.
    fn lay(&self, slots: &[Vec<u8>]) {
        for (slot, bytes) in (0..).zip(slots) {
            let file =
                File::options().write(true).create(true).truncate(false).open(self.path(slot));
            file.unwrap().write_all_at(bytes, 0).unwrap();
        }
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        (0..SLOT_BYTES.len()).map(|slot| fs::read(self.path(slot)).unwrap()).collect()
    }

    fn map(&self, slots: &[usize]) -> Pm {
        Pm::open(
            &specs(&self.paths(slots)),
            &PmOptions { lock: SlotLock::Held, ..PmOptions::default() },
        )
        .unwrap()
    }

    fn is_slot(&self, slot: usize) -> bool {
        slot_header(&self.map(&[slot])).is_ok()
    }

    /// Carries a change out, or goes on with it; what it did.
    fn change(&self, change: Change) -> Result<Vec<Event>, String> {
        let recorder = Arc::new(Recorder::default());
        let mapping = |paths: &[PathBuf]| {
            let number =
                |path: &PathBuf| (0..4).find(|slot| self.path(usize::from(*slot)) == *path);
            // Without the lost one the others have the numbers of the pool.
            let is_pool = matches!(change, Change::ReplaceLost(_)) && paths.len() == 2;
            let known = || paths.iter().filter_map(number).collect();
            let numbers = if is_pool { vec![0, 1, 2] } else { known() };
            let observer = Some(Arc::new(Renumbered(recorder.clone(), numbers)) as Arc<_>);
            PmOptions { observer, lock: SlotLock::Held, ..PmOptions::default() }
        };
        let helpers =
            Helpers { exec: &Serial, progress: &|_| (), mapping: &mapping, given_up: &|| () };
        let pool = self.paths(&[0, 1, 2]);
        let done = match change {
            Change::Remove(slot) => remove(&pool, &self.path(slot), &helpers),
            Change::RemoveInUse(slot) => {
                let goes = || going(&pool).map_err(|why| why.to_string());
                if goes()?.is_none() {
                    let pm =
                        Pm::open(&specs(&pool), &mapping(&pool)).map_err(|why| why.to_string())?;
                    empty_in_use(pm, u8::try_from(slot).unwrap())?;
                }
                let old = goes()?.filter(|old| *old == self.path(slot));
                remove(&pool, &old.ok_or("it does not go by itself")?, &helpers)
            }
            Change::AddInUse | Change::AddBeside if inspect(&self.map(&[0, 1, 2, 3])).is_err() => {
                self.come_in_use(None, change == Change::AddBeside, &helpers)?;
                Ok(())
            }
            Change::ReplaceInUse(slot) | Change::ReplaceBeside(slot) => {
                if !self.is_slot(3) {
                    let beside = matches!(change, Change::ReplaceBeside(_));
                    self.come_in_use(u8::try_from(slot).ok(), beside, &helpers)?;
                }
                // As the command, by what the slots say.
                let (all, old) = (self.paths(&[0, 1, 2, 3]), self.path(slot));
                let goes = going(&all).map_err(|why| why.to_string())?;
                match goes.filter(|goes| *goes == old) {
                    Some(_) => remove(&all, &old, &helpers),
                    None => replace(&pool, &old, &self.path(3), 0, &helpers).map(drop),
                }
            }
            Change::Add | Change::AddInUse | Change::AddBeside => {
                add(&pool, &self.path(3), 0, &helpers).map(drop)
            }
            Change::Replace(slot) => {
                replace(&pool, &self.path(slot), &self.path(3), 0, &helpers).map(drop)
            }
            Change::ReplaceLost(slot) if self.is_at_end(slot) => Ok(()),
            Change::ReplaceLost(slot) => {
                let done = replace_lost(&without(self, slot), &self.path(3), 0, false, &helpers);
                done.map(drop)
            }
        };
        done.map_err(|why| why.to_string())?;
        Ok(recorder.take())
    }

    /// Whether a slot that was lost has been replaced.
    fn is_at_end(&self, lost: usize) -> bool {
        let after = Change::ReplaceLost(lost).pools().pop().unwrap();
        inspect(&self.map(&after)).is_ok_and(|found| found.given_up.is_none())
    }

    /// The files that can be read whole where a slot is lost.
    fn kept_without(&self, lost: usize) -> Vec<u8> {
        let specs: Vec<Option<SlotSpec>> =
            without(self, lost).iter().map(|path| path.as_ref().map(SlotSpec::new)).collect();
        let fs = open(Pm::open_some(&specs).unwrap()).unwrap();
        (0..FILES).filter(|number| judge_file(&fs, *number).is_ok()).collect()
    }

    /// Has the last one wait, and come while the pool is used, by two clients where it comes beside one.
    fn come_in_use(
        &self,
        goes: Option<u8>,
        beside: bool,
        helpers: &Helpers<'_>,
    ) -> Result<(), String> {
        let (pool, new) = (self.paths(&[0, 1, 2]), self.paths(&[3]));
        let_wait(&pool, &self.path(3), 0, helpers).map_err(|why| why.to_string())?;
        let map = |of: &[PathBuf], known: &[PathBuf]| {
            Pm::open(&specs(of), &(helpers.mapping)(known)).map_err(|why| why.to_string())
        };
        let known = self.paths(&[0, 1, 2, 3]);
        let pm = map(&pool, &known)?;
        if beside {
            let others = [map(&pool, &known)?, map(&new, &new)?];
            return add_beside(pm, map(&new, &new)?, goes, others);
        }
        add_in_use(pm, map(&new, &new)?, goes)
    }
}

fn open(pm: Pm) -> Result<Fs, String> {
    open_for(pm, Placement::Lanes)
}

fn open_for(pm: Pm, placement: Placement) -> Result<Fs, String> {
    let options = OpenOptions { placement, now_ns: 2, ..OpenOptions::default() };
    let arena = Arena::anonymous(32 << 20).map_err(|why| why.to_string())?;
    Fs::open(pm, arena, &options, &Serial, &|_| {}).map_err(|why| why.to_string())
}

/// Directories, files in several pages that were written over, and extended attributes in pages. Each slot is
/// a lane's, and has some of all: data, logs, attributes, inodes, the lane's own page.
fn filled(files: &Files, came_before: bool) {
    files.lay(&SLOT_BYTES.map(|len| vec![0; len]));
    if came_before {
        let all = [0, 1, 2, 3];
        mkfs(&files.map(&all), &MkfsOptions::numbered(4, 3)).unwrap();
        // Its state is newer than that of any slot that comes.
        (0..9).for_each(|_| open(files.map(&all)).unwrap().close().unwrap());
        let mapping = |_: &[PathBuf]| PmOptions { lock: SlotLock::Held, ..PmOptions::default() };
        let helpers =
            Helpers { exec: &Serial, progress: &|_| (), mapping: &mapping, given_up: &|| () };
        remove(&files.paths(&all), &files.path(3), &helpers).unwrap();
    } else {
        mkfs(&files.map(&[0, 1, 2]), &MkfsOptions::numbered(3, 3)).unwrap();
    }
    let fs = open(files.map(&[0, 1, 2])).unwrap();
    let new = |kind| NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    for number in 0..FILES {
        let ctx = Ctx { hint: number.into(), ..CTX };
        let make = |dir, name: &[u8], kind| {
            fs.create(&ctx, Node::current(dir), name, &new(kind)).unwrap().ino
        };
        let dir = make(Ino::ROOT, &[b'd', b'a' + number], FileKind::Directory);
        let file = make(dir, b"file", FileKind::File);
        fs.write(&ctx, file, 0, &[9; 9000]).unwrap();
        fs.write(&ctx, file, 100, &[number; 5000]).unwrap();
        let (mode, clear_set_gid) = (XattrMode::Any, false);
        let set = SetXattr { name: b"user.long", value: &[3; 5000], mode, clear_set_gid };
        fs.setxattr(&ctx, Node::current(file), &set).unwrap();
    }
    fs.close().unwrap();
}

/// Puts the table of all inodes into slot 1, where that of a later chunk may lie.
fn move_table(files: &Files) {
    let pm = files.map(&[0, 1, 2]);
    tables::move_table(&pm, 0);
    let mut keep = |_: &SavedPiece<'_>| Ok(());
    let mut help =
        Help { exec: &Serial, progress: &|_| {}, keep: &mut keep, now_ns: 5, owner: (0, 0) };
    // What is free is said anew.
    assert!(repair(&pm, Effort::Safe, &mut help).unwrap().left.findings.is_empty());
    open(pm).unwrap().close().unwrap();
}

/// Writes files over with what they have, and leaves the pool open.
fn write_and_die(files: &Files) {
    let fs = open(files.map(&[0, 1, 2])).unwrap();
    for number in 0..FILES {
        let ctx = Ctx { hint: number.into(), ..CTX };
        let dir = fs.lookup(&ctx, Node::current(Ino::ROOT), &[b'd', b'a' + number]).unwrap();
        let file = fs.lookup(&ctx, Node::current(dir.ino), b"file").unwrap().ino;
        fs.write(&ctx, file, 200, &[number; 70]).unwrap();
    }
}

fn specs(paths: &[PathBuf]) -> Vec<SlotSpec> {
    paths.iter().map(SlotSpec::new).collect()
}

/// Empties the last slot in rounds, while files are written over with what they have.
fn empty_in_use(pm: Pm, goes: u8) -> Result<(), String> {
    let fs = open(pm)?;
    let told = |why: novale_core::Error| format!("emptied in use: {why}");
    fs.begin_leaving(&CTX, 2, Some(goes)).map_err(told)?;
    let mut steps = 0;
    loop {
        let round = fs.empty_round(&CTX, 2, &mut |_| {
            steps += 1;
            let number = steps % FILES;
            let ctx = Ctx { hint: number.into(), ..CTX };
            let dir = fs.lookup(&ctx, Node::current(Ino::ROOT), &[b'd', b'a' + number]).unwrap();
            let file = fs.lookup(&ctx, Node::current(dir.ino), b"file").unwrap().ino;
            fs.write(&ctx, file, 200, &[number; 70]).unwrap();
            true
        });
        if round.map_err(told)?.moved == 0 {
            break;
        }
    }
    fs.confirm_emptied(&CTX, 2, goes).map_err(told)?;
    fs.close().map_err(told)
}

/// Adds a slot between files being written over with what they have, whose pages come to lie there; none of them
/// where another is to go for it.
fn add_in_use(pm: Pm, new: Pm, goes: Option<u8>) -> Result<(), String> {
    let fs = open_for(pm, Placement::Wasa)?;
    let told = |why: novale_core::Error| format!("added in use: {why}");
    let write = |number: u8| {
        let ctx = Ctx { hint: number.into(), ..CTX };
        let dir =
            fs.lookup(&ctx, Node::current(Ino::ROOT), &[b'd', b'a' + number]).map_err(told)?;
        let file = fs.lookup(&ctx, Node::current(dir.ino), b"file").map_err(told)?.ino;
        let mut bytes = vec![9; 9000];
        bytes.splice(100..5100, [number; 5000]);
        fs.write(&ctx, file, 0, &bytes).map(drop).map_err(told)
    };
    write(0)?;
    let added = fs.add_slot(&CTX, new, goes).map_err(told)?;
    (1..FILES).try_for_each(write)?;
    let is_used = fs.wear().map_err(told)?.get(3).is_some_and(|lines| *lines > 150);
    if added != Some(3) || is_used == goes.is_some() {
        return Err(format!("added in use: {added:?}, {:?}", fs.wear()));
    }
    fs.close().map_err(told)
}

/// The same beside another client, which has mapped the pool's slots, and the one that comes once it is there.
fn add_beside(pm: Pm, new: Pm, goes: Option<u8>, [own, coming]: [Pm; 2]) -> Result<(), String> {
    let told = |why: novale_core::Error| format!("added beside: {why}");
    let options = OpenOptions { placement: Placement::Wasa, now_ns: 2, ..OpenOptions::default() };
    let arena = Arena::anonymous(32 << 20).map_err(|why| why.to_string())?;
    let fs = Fs::open(pm, arena.clone(), &options, &Serial, &|_| {}).map_err(told)?;
    let options = OpenOptions::of_arena(&arena);
    let other = Fs::attach(own, &arena, &options, PidInfo::current()).map_err(told)?;
    let coming = Mutex::new(Some(coming));
    other.set_slot_opener(Box::new(move |_| coming.lock().unwrap().take()));
    let write = |fs: &Fs, number: u8| {
        let ctx = Ctx { hint: number.into(), ..CTX };
        let dir =
            fs.lookup(&ctx, Node::current(Ino::ROOT), &[b'd', b'a' + number]).map_err(told)?;
        let file = fs.lookup(&ctx, Node::current(dir.ino), b"file").map_err(told)?.ino;
        let mut bytes = vec![9; 9000];
        bytes.splice(100..5100, [number; 5000]);
        fs.write(&ctx, file, 0, &bytes).map(drop).map_err(told)
    };
    write(&other, 0)?;
    let beside = Beside { path: Path::new("it"), may: &|_| true };
    let added = fs.add_slot_beside(&CTX, new, goes, &beside).map_err(told)?;
    write(&other, 1)?;
    if added != Some(3) || !fs.open_slots(&CTX).map_err(told)? {
        return Err(format!("added beside: {added:?}"));
    }
    (2..FILES).try_for_each(|number| write(&other, number))?;
    let is_used = other.wear().map_err(told)?.get(3).is_some_and(|lines| *lines > 150);
    if is_used == goes.is_some() {
        return Err(format!("added beside: {:?}", other.wear()));
    }
    fs.close().map_err(told)?;
    other.close().map_err(told)
}

/// Makes a file that was not there, and closes the pool.
fn write_more(fs: &Fs) -> Result<(), String> {
    let new = NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let made = fs.create(&CTX, Node::current(Ino::ROOT), b"more", &new);
    let written = made.and_then(|made| fs.write(&CTX, made.ino, 0, &[4; 5000]));
    written.and_then(|_| fs.close()).map_err(|why| format!("written: {why}"))
}

/// Whether these slots are a sound pool that has what it had, and what was written since.
fn judge_pool(pm: Pm, is_written: bool) -> Result<(), String> {
    let all: Vec<u8> = (0..FILES).collect();
    judge_pool_of(pm, is_written, &all)
}

/// The same of a pool that has kept these files.
fn judge_pool_of(pm: Pm, is_written: bool, kept: &[u8]) -> Result<(), String> {
    let fs = open(pm)?;
    let more = fs.lookup(&CTX, Node::current(Ino::ROOT), b"more").map(|attr| attr.ino);
    let mut read = vec![0; 5000];
    let is_there = more.is_ok_and(|more| {
        fs.read(&CTX, more, 0, &mut read).ok() == Some(5000) && read == [4; 5000]
    });
    if is_there != is_written {
        return Err(format!("what was written is there: {is_there}"));
    }
    kept.iter().try_for_each(|number| judge_file(&fs, *number))?;
    fs.close().map_err(|why| why.to_string())?;
    // After the opening, which rewrites a copy of the superblock that a cut tore.
    let report = check(&fs.into_pm(), &Serial, &|_| {}).map_err(|why| why.to_string())?;
    if report.findings.is_empty() { Ok(()) } else { Err(format!("{:?}", report.findings)) }
}

/// Whether a file has what it had.
fn judge_file(fs: &Fs, number: u8) -> Result<(), String> {
    let find = |dir, name: &[u8]| {
        let found = fs.lookup(&CTX, Node::current(dir), name);
        found.map(|attr| attr.ino).map_err(|why| format!("file {number}: {why}"))
    };
    let file = find(find(Ino::ROOT, &[b'd', b'a' + number])?, b"file")?;
    let mut read = vec![0; 9001];
    let len = fs.read(&CTX, file, 0, &mut read).map_err(|why| why.to_string())?;
    let mut wanted = vec![9; 9000];
    wanted.splice(100..5100, [number; 5000]);
    let value = fs.getxattr(Node::current(file), b"user.long").map_err(|why| why.to_string())?;
    if read.get(..len) != Some(&wanted[..]) || value != [3; 5000] {
        return Err(format!("file {number} is another"));
    }
    Ok(())
}

/// A kind of change under test: its files, and what it is begun with.
struct Trial {
    change: Change,
    files: Files,
    judged: usize,
    /// The files that a lost slot leaves.
    kept: Vec<u8>,
    /// What comes was a slot of the pool before, by the same number: what it still has could be taken for what it is
    /// to say.
    came_before: bool,
}

impl Trial {
    fn new(change: Change, came_before: bool) -> Self {
        Self { change, files: Files::new(), judged: 0, kept: Vec::new(), came_before }
    }

    /// Judges what is left: what may be a pool is one with all that it had, one is, and the same call goes on
    /// to the end, also after it was written to.
    fn judge(&mut self, left: &[Vec<u8>]) -> Result<(), String> {
        self.judged += 1;
        if let Change::ReplaceLost(_) = self.change {
            return self.judge_lost(left);
        }
        let (mut pools, mut written) = (0, 0);
        for pool in self.change.pools() {
            self.files.lay(left);
            if inspect(&self.files.map(&pool)).is_ok() {
                let is_written =
                    self.judge_written(&pool).map_err(|why| format!("slots {pool:?}: {why}"))?;
                pools += 1;
                written += usize::from(is_written);
            }
        }
        if pools == 0 {
            return Err("no pool is left".to_owned());
        }
        if written > 1 && matches!(self.change, Change::Replace(_)) {
            return Err("both the old slot and the new one can be written".to_owned());
        }
        if written == 0 {
            self.files.lay(left);
            self.end(false)?;
        }
        Ok(())
    }

    /// The same where a slot was lost. If it is there with the others once more, they are written with it, and have
    /// all, or not at all: one set of slots can be written at most, and the same call goes on.
    fn judge_lost(&self, left: &[Vec<u8>]) -> Result<(), String> {
        let all: Vec<u8> = (0..FILES).collect();
        let mut written = 0;
        for (pool, kept) in self.change.pools().iter().zip([&all, &self.kept]) {
            self.files.lay(left);
            if open(self.files.map(pool)).is_ok() {
                written += 1;
                judge_pool_of(self.files.map(pool), false, kept)
                    .map_err(|why| format!("slots {pool:?}: {why}"))?;
            }
        }
        if written > 1 {
            return Err("both the lost slot and the new one can be written".to_owned());
        }
        self.files.lay(left);
        self.go_on()?;
        let after = self.change.pools().pop().unwrap();
        judge_pool_of(self.files.map(&after), false, &self.kept)
            .map_err(|why| format!("made again: {why}"))
    }

    /// Writes to slots that are a pool, if they let themselves be written: no others do then, and what was
    /// written is there when the same call has gone on.
    fn judge_written(&self, pool: &[usize]) -> Result<bool, String> {
        match open(self.files.map(pool)) {
            Err(why) if why.contains("is being replaced") => return Ok(false),
            opened => write_more(&opened?)?,
        }
        judge_pool(self.files.map(pool), true)?;
        for other in self.change.pools().iter().filter(|other| *other != pool) {
            if open(self.files.map(other)).is_ok() {
                return Err(format!("slots {other:?} can be written as well"));
            }
        }
        self.end(true).map(|()| true)
    }

    /// Goes on to the end, where all is there, with what was written in between.
    fn end(&self, is_written: bool) -> Result<(), String> {
        self.go_on()?;
        let after = self.change.pools().pop().unwrap();
        judge_pool(self.files.map(&after), is_written).map_err(|why| format!("made again: {why}"))
    }

    /// The same call once more, where it has not come to its end.
    fn go_on(&self) -> Result<Vec<Event>, String> {
        if self.change.old().is_some_and(|old| !self.files.is_slot(old)) {
            return Ok(Vec::new());
        }
        self.files.change(self.change).map_err(|why| format!("made again: {why}"))
    }

    /// Goes on in memory of which some may be in a dead process' caches, cuts that, and judges it, and what is
    /// durable behind its end.
    fn cut_again(&mut self, hardware: &mut Hardware, random: &mut Rng) -> Result<(), String> {
        self.files.lay(&shown(hardware));
        let events = self.go_on()?;
        let fences = events.iter().filter(|event| matches!(event.what, What::Fence)).count();
        let (at, mut seen) = (random.usize(0..fences.max(1)), 0);
        for event in &events {
            if matches!(event.what, What::Fence) {
                if seen == at {
                    let (keeping, lines) = image(hardware, random);
                    let left = hardware.after_cut(&lines).durable_copy();
                    self.judge(&left).map_err(|why| {
                        format!("cut again at fence {at} of {fences}, keeping {keeping}: {why}")
                    })?;
                }
                seen += 1;
            }
            hardware.apply(event);
        }
        hardware.lose_pending();
        self.judge(&hardware.durable_copy()).map_err(|why| format!("durable behind it: {why}"))
    }

    /// Cuts a change at one of `stride` of its fences that `how` says, and has it die there.
    fn cut(&mut self, stride: usize, how: &How<'_>, random: &mut Rng) -> Result<(), String> {
        filled(&self.files, self.came_before);
        if let Change::ReplaceLost(lost) = self.change {
            if lost == 2 {
                write_and_die(&self.files);
            }
            self.kept = self.files.kept_without(lost);
            assert!((2..usize::from(FILES)).contains(&self.kept.len()), "{:?}", self.kept);
            if lost == 1 {
                // Nothing can be read without it before it is made anew.
                move_table(&self.files);
            }
        }
        let mut hardware = Hardware::with(self.files.bytes());
        let events = self.files.change(self.change)?;
        let mut turn = random.usize(0..stride);
        for (number, event) in events.iter().enumerate() {
            let is_fence = matches!(event.what, What::Fence) && !hardware.pending().is_empty();
            turn += usize::from(is_fence && (how.at)(event, &hardware));
            if turn >= stride {
                turn = 0;
                let place = format!("{:?}, event {number} of {}", self.change, events.len());
                self.cut_here(&hardware, how, random)
                    .map_err(|why| format!("{place}, {}: {why}", event.site))?;
            }
            hardware.apply(event);
        }
        hardware.lose_pending();
        self.judge(&hardware.durable_copy()).map_err(|why| format!("behind it: {why}"))
    }

    /// Cuts, some of the cuts twice, and a death that is cut behind.
    fn cut_here(
        &mut self,
        hardware: &Hardware,
        how: &How<'_>,
        random: &mut Rng,
    ) -> Result<(), String> {
        for _ in 0..how.images {
            let (keeping, lines) = image(hardware, random);
            let mut left = hardware.after_cut(&lines);
            self.judge(&left.durable_copy()).map_err(|why| format!("keeping {keeping}: {why}"))?;
            if how.dies && random.u8(0..4) == 0 {
                self.cut_again(&mut left, random)?;
            }
        }
        if how.dies {
            let mut dead = hardware.clone();
            dead.forget(None);
            self.cut_again(&mut dead, random).map_err(|why| format!("death: {why}"))?;
        }
        Ok(())
    }
}

/// Where a change is cut, and how often.
struct How<'a> {
    at: &'a dyn Fn(&Event, &Hardware) -> bool,
    images: usize,
    /// It dies there as well, and is cut twice.
    dies: bool,
}

/// What a cut leaves of the lines under way, and how that was chosen: all but one, half of them, or half of
/// their units. The lab's own choice goes through all pairs of hundreds of lines.
fn image(hardware: &Hardware, random: &mut Rng) -> (&'static str, Vec<(LineKey, LineBytes)>) {
    let keys: Vec<LineKey> = hardware.pending().keys().copied().collect();
    let (missing, way) = (random.usize(0..keys.len().max(1)), random.u8(0..4));
    let lines = (0..).zip(&keys).filter_map(|(index, key)| {
        let keeps = match way {
            0 => index != missing,
            1 | 2 => random.bool(),
            _ => {
                let units = random.u64(..);
                return Some((
                    *key,
                    hardware.line_with(*key, |unit| units >> (unit % 64) & 1 != 0),
                ));
            }
        };
        keeps.then(|| (*key, hardware.line_with(*key, |_| true)))
    });
    let ways = ["all but one line", "half of the lines", "half of the lines", "half of the units"];
    (ways[usize::from(way)], lines.collect())
}

/// What the caches show, durable or not.
fn shown(hardware: &Hardware) -> Vec<Vec<u8>> {
    let line = |key| (key, hardware.line_with(key, |_| true));
    let lines: Vec<_> = hardware.pending().keys().map(|key| line(*key)).collect();
    hardware.after_cut(&lines).durable_copy()
}

#[test]
fn by_cuts_deaths_and_cuts_behind_them() {
    let budget = Budget::from_env(1, 0);
    let mut random = Rng::with_seed(budget.seed);
    let changes = [
        (Change::Remove(2), 4),
        (Change::Remove(1), 5),
        (Change::RemoveInUse(2), 9),
        (Change::RemoveInUse(1), 12),
        (Change::Add, 1),
        (Change::AddInUse, 3),
        (Change::AddBeside, 3),
        (Change::ReplaceInUse(1), 9),
        (Change::ReplaceInUse(2), 9),
        (Change::ReplaceBeside(1), 9),
        (Change::Replace(0), 1),
        (Change::Replace(2), 1),
        (Change::ReplaceLost(1), 4),
        (Change::ReplaceLost(2), 4),
    ];
    for (change, stride) in share(changes.to_vec()) {
        let mut trial = Trial::new(change, true);
        let begun = Instant::now();
        loop {
            let how = How { at: &|_, _| true, images: 2, dies: true };
            let cut = trial.cut(stride, &how, &mut random);
            cut.unwrap_or_else(|why| panic!("{why}"));
            if !matches!(budget.length, Length::Time(time) if begun.elapsed() < time) {
                break;
            }
        }
        println!("slots_survive_power_cuts: {change:?}: {} cuts judged", trial.judged);
        assert!(trial.judged > 2, "{change:?}");
    }
    if !is_share() {
        what_the_dead_named_is_durable();
        each_wrong_order_is_seen(&mut random);
    }
}

/// A removal that died behind the store of a word that names a moved page, and before its fence, was gone on with
/// by a session that was closed, and saved what is free by that word. A power cut then left the word as it was
/// before: the page it named counted as free.
fn what_the_dead_named_is_durable() {
    let mut trial = Trial::new(Change::RemoveInUse(2), false);
    filled(&trial.files, trial.came_before);
    let mut hardware = Hardware::with(trial.files.bytes());
    let is_fence_of = |event: &Event, file| {
        matches!(event.what, What::Fence) && event.site.file().ends_with(file)
    };
    for event in trial.files.change(trial.change).unwrap() {
        if is_fence_of(&event, "life/slots.rs") && hardware.pending().len() == 1 {
            let mut dead = hardware.clone();
            dead.forget(None);
            trial.files.lay(&shown(&dead));
            for event in trial.go_on().unwrap() {
                dead.apply(&event);
                if is_fence_of(&event, "pool/mod.rs") {
                    let left = dead.after_cut(&[]).durable_copy();
                    trial.judge(&left).unwrap_or_else(|why| panic!("{}: {why}", event.site));
                }
            }
        }
        hardware.apply(&event);
    }
    println!("slots_survive_power_cuts: words of the dead: {} cuts judged", trial.judged);
    assert!(trial.judged > 4, "{}", trial.judged);
}

/// Under the same roof, for a bug is switched on for all of the process. Each is cut where it does something.
fn each_wrong_order_is_seen(random: &mut Rng) {
    const SUPERBLOCK: (u8, u64) = (0, 0);
    const NEW_HEADER: (u8, u64) = (3, SLOT_HEADER_OFFSET / 64);
    // The file of the fence, a line that is under way there, and the least lines that are.
    for (bug, change, file, line, least) in [
        (Bug::MovedPageNamedEarly, Change::Remove(2), "life/slots.rs", None, 65),
        (Bug::MovedLogNamedEarly, Change::Remove(2), "op/commit.rs", None, 3),
        (Bug::SlotNamedEarly, Change::Replace(1), "life/slots.rs", Some(NEW_HEADER), 65),
        (Bug::AddedBeforeItsState, Change::Add, "life/slots.rs", Some(SUPERBLOCK), 1),
        (Bug::AddedBeforeItsState, Change::AddInUse, "life/adding.rs", Some(SUPERBLOCK), 1),
        (Bug::AddedBeforeItsState, Change::AddBeside, "life/adding.rs", Some(SUPERBLOCK), 1),
        (Bug::AddedBeforeItsState, Change::ReplaceInUse(1), "life/adding.rs", Some(SUPERBLOCK), 1),
        (Bug::ErasedUnconfirmed, Change::Remove(2), "pool/mod.rs", Some(SUPERBLOCK), 1),
        (Bug::ErasedUnconfirmed, Change::Replace(1), "life/slots.rs", Some(NEW_HEADER), 1),
    ] {
        let mut trial = Trial::new(change, false);
        let at = |event: &Event, hardware: &Hardware| {
            let has = |(slot, line)| hardware.pending().contains_key(&LineKey { slot, line });
            event.site.file().ends_with(file)
                && hardware.pending().len() >= least
                && line.is_none_or(has)
        };
        let dies = bug == Bug::ErasedUnconfirmed;
        let how = How { at: &at, images: if dies { 0 } else { 6 }, dies };
        switch(Some(bug));
        let caught = (0..16).find_map(|_| trial.cut(1, &how, random).err());
        switch(None);
        println!("slots_survive_power_cuts: {bug:?}: {}, {caught:?}", trial.judged);
        assert!(caught.is_some(), "{bug:?} is not seen");
    }
}
