//! One crash image, recovered and judged.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use novale_arena::Arena;
use novale_core::{Ctx, OpenReport, Serial, remove_last_slot, set_leaving};
use novale_layout::PmAddr;
use novale_model::Tree;
use novale_pm::{Observer, Pm, PmOptions, Purpose};

use super::hardware::{Caches, Hardware, LineBytes, LineKey};
use super::images::Image;
use super::probe::probe;
use super::record::{Event, Recorder};
use super::sight::Lines;
use crate::diff::{
    CoreMachine, Machine, Manner, OnFs, check_opened, new_arena, open_pool_in, panic_text,
    show_pool_in, snapshot,
};

/// A state that a user may find.
#[derive(Debug, Clone)]
pub struct State {
    /// What a failure calls it.
    pub name: &'static str,
    pub(crate) tree: Arc<Tree>,
    pub(super) inodes: u64,
    hash: u64,
}

/// What an image turned out to be.
pub(crate) struct Seen<'a> {
    /// Which state.
    pub(crate) state: &'a State,
    /// As it was found: bytes that were not durable may differ from the state's.
    pub(super) tree: Tree,
    /// The same and the inodes in one number, as [`State::hash`] says it.
    pub(super) hash: u64,
}

impl State {
    /// A tree of so many inodes.
    #[must_use]
    pub fn new(name: &'static str, tree: Tree, inodes: u64) -> Self {
        let hash = hash(&tree, inodes);
        Self { name, tree: Arc::new(tree), inodes, hash }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    /// Whether a crash may leave this tree of so many inodes of it.
    pub(crate) fn allows(&self, tree: &Tree, inodes: u64) -> bool {
        self.inodes == inodes && self.tree.allows(tree)
    }

    /// Tree and inodes in one number.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

fn hash(tree: &Tree, inodes: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (tree, inodes).hash(&mut hasher);
    hasher.finish()
}

/// What a user may find after a crash: one of these states.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// The states.
    pub states: Vec<State>,
}

impl Allowed {
    /// The same states, of which nothing is taken back that was buffered: what those find who live.
    #[must_use]
    pub fn exact(&self) -> Self {
        let exact = |state: &State| {
            let tree = Arc::new(Tree::clone(&state.tree).exact());
            State { tree, ..state.clone() }
        };
        Self { states: self.states.iter().map(exact).collect() }
    }

    /// Whether it is the very same states.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let pairs = self.states.iter().zip(&other.states);
        self.states.len() == other.states.len()
            && pairs.into_iter().all(|(state, other)| Arc::ptr_eq(&state.tree, &other.tree))
    }
}

/// How deep an image is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Recovered, checked, compared.
    Once,
    /// Shown read-only before; the same again after a death right after the recovery, then used in
    /// every way.
    Used,
}

/// What an image turned out to be.
#[derive(Debug, Clone)]
pub struct Judged {
    /// What was found in one number: a state's, but where bytes were not durable.
    pub found: u64,
    /// How the recovery went.
    pub report: OpenReport,
    /// What recovery did to the pool.
    pub recovery: Vec<Event>,
}

/// A pool in memory in which images are laid out and recovered; between them it holds the durable
/// bytes.
#[derive(Debug)]
pub struct Bench {
    /// `None` only while a file system has it, and after a failure.
    pm: Option<Pm>,
    arena: Option<Arena>,
    recorder: Arc<Recorder>,
    manner: Manner,
    /// Recovers at this time.
    now_ns: i64,
}

impl Bench {
    /// A bench with the durable bytes of this memory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(hardware: &Hardware, manner: Manner, now_ns: i64) -> Result<Self, String> {
        let lens: Vec<u64> = hardware.durable().iter().map(|slot| slot.len() as u64).collect();
        let recorder = Arc::new(Recorder::watching(&lens));
        let pm = recorded_memory(&lens, &recorder, hardware.caches())?;
        recorder.unheard(|| hardware.lay_out(&pm));
        Ok(Self { pm: Some(pm), arena: Some(new_arena()?), recorder, manner, now_ns })
    }

    /// Takes over lines that have become durable.
    ///
    /// # Errors
    /// A failure before has left no bench.
    pub fn update(&self, hardware: &Hardware, lines: &[LineKey]) -> Result<(), String> {
        let lines = lines.iter().map(|key| (*key, hardware.durable_line(*key)));
        self.put(lines)
    }

    /// Recovers the image and judges it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(
        &mut self,
        hardware: &Hardware,
        image: &Image,
        allowed: &Allowed,
        depth: Depth,
    ) -> Result<Judged, String> {
        self.put(image.lines.iter().copied())?;
        let mut touched: BTreeSet<LineKey> = image.lines.iter().map(|(key, _)| *key).collect();
        let judged = catch_unwind(AssertUnwindSafe(|| self.recover(&mut touched, allowed, depth)));
        let judged = judged.unwrap_or_else(|payload| Err(panic_text(payload.as_ref())))?;
        let lines = touched.into_iter().map(|key| (key, hardware.durable_line(key)));
        self.put(lines)?;
        Ok(judged)
    }

    /// The lines that the last recovery that was judged, its check and the first look loaded.
    pub(super) fn seen(&self) -> Lines {
        self.recorder.watch().lines()
    }

    fn recover(
        &mut self,
        touched: &mut BTreeSet<LineKey>,
        allowed: &Allowed,
        depth: Depth,
    ) -> Result<Judged, String> {
        let shown = match depth {
            Depth::Once => None,
            Depth::Used => {
                Some(self.look_read_only(allowed).map_err(|why| format!("read-only: {why}"))?)
            }
        };
        self.recorder.watch().begin();
        let mut machine = self.open()?;
        let report = machine.opened()?;
        let recovery = self.recorder.take();
        touched.extend(recovery.iter().flat_map(Event::stored_lines));
        let seen = look(&mut machine, allowed, self.now_ns)?;
        self.recorder.watch().end();
        self.give_up(machine)?;
        if let Some(shown) = shown.filter(|shown| shown.hash != seen.hash) {
            let (shown, seen) = (shown.state.name, seen.state.name);
            return Err(format!("shown read-only as {shown}, recovered as {seen}"));
        }
        if depth == Depth::Used {
            self.again_and_use(allowed, &seen)?;
        }
        touched.extend(self.recorder.take_stored_lines());
        Ok(Judged { found: seen.hash, report, recovery })
    }

    /// What a mount shows that may not recover. It must store nothing.
    fn look_read_only<'a>(&mut self, allowed: &'a Allowed) -> Result<Seen<'a>, String> {
        let (pm, arena) = self.take()?;
        let fs = show_pool_in(pm, arena, self.now_ns)?;
        check_opened(&fs)?;
        let mut machine = CoreMachine::around(fs);
        let seen = look(&mut machine, allowed, self.now_ns)?;
        machine.close()?;
        self.give_up(machine)?;
        match self.recorder.take().iter().flat_map(Event::stored_lines).next() {
            None => Ok(seen),
            Some(line) => Err(format!("it stored to {line:?}")),
        }
    }

    /// Dies after the recovery, recovers again, uses everything, empties it and closes it.
    fn again_and_use(&mut self, allowed: &Allowed, found: &Seen<'_>) -> Result<(), String> {
        let mut machine = self.open().map_err(|why| format!("second time: {why}"))?;
        let again = look(&mut machine, allowed, self.now_ns)
            .map_err(|why| format!("second time: {why}"))?;
        if again.hash != found.hash {
            let (found, again) = (found.state.name, again.state.name);
            return Err(format!("recovered as {found}, then as {again}"));
        }
        if machine.fs().is_ok_and(|fs| fs.leaving_slot().is_some()) {
            take_out(machine.pm()?, self.manner, allowed, self.now_ns)?;
        }
        let used = |why| format!("in use afterwards: {why}");
        probe(&mut machine, self.now_ns).map_err(used)?;
        machine.close().map_err(used)?;
        self.give_up(machine)?;
        let mut machine = self.open().map_err(|why| format!("closed after use: {why}"))?;
        // That each page is free again that nothing owns, opening has just checked: the allocator
        // that was saved agrees with what the logs name.
        match machine.inode_count() {
            Some(1) => self.give_up(machine),
            left => Err(format!("emptied, and {left:?} inodes are in use")),
        }
    }

    fn take(&mut self) -> Result<(Pm, Arena), String> {
        let pm = self.pm.take().ok_or("a failure before left no memory")?;
        Ok((pm, self.arena.take().ok_or("a failure before left no arena")?))
    }

    fn open(&mut self) -> Result<CoreMachine, String> {
        let (pm, arena) = self.take()?;
        let fs = open_pool_in(pm, arena, self.manner, self.now_ns)?;
        check_opened(&fs)?;
        Ok(CoreMachine::around(fs))
    }

    /// All that the file system knows is gone, as with its process.
    fn give_up(&mut self, machine: CoreMachine) -> Result<(), String> {
        let (pm, arena) = machine.into_parts()?;
        (self.pm, self.arena) = (Some(pm), Some(arena));
        Ok(())
    }

    fn put(&self, lines: impl Iterator<Item = (LineKey, LineBytes)>) -> Result<(), String> {
        let pm = self.pm.as_ref().ok_or("a failure before left no memory")?;
        self.recorder.unheard(|| put_lines(pm, lines));
        Ok(())
    }
}

/// The last slot of what memory shows of a pool can be taken out, and what is left has all that it shows.
pub(crate) fn take_out(
    pm: &Pm,
    manner: Manner,
    allowed: &Allowed,
    now_ns: i64,
) -> Result<(), String> {
    let told = |why: novale_core::Error| format!("taking a slot out: {why}");
    let last = pm.slot_count() - 1;
    let all = copy_of(pm, last + 1)?;
    set_leaving(&all, last, true).map_err(told)?;
    let fs = open_pool_in(all, new_arena()?, manner, now_ns)?;
    fs.empty_slot(&Ctx { now_ns, hint: 0 }, last, 0, &|_| ()).map_err(told)?;
    fs.close().map_err(told)?;
    let all = fs.into_pm();
    remove_last_slot(&all, &Serial, &|_| ()).map_err(told)?;
    let fs = open_pool_in(copy_of(&all, last)?, new_arena()?, manner, now_ns)?;
    check_opened(&fs)?;
    let mut left = CoreMachine::around(fs);
    look(&mut left, allowed, now_ns).map_err(|why| format!("a slot taken out: {why}"))?;
    left.close()
}

/// The first slots of a pool, in memory of their own.
fn copy_of(pm: &Pm, slots: u8) -> Result<Pm, String> {
    let lens: Vec<u64> = (0..slots).map(|slot| pm.slot_len(slot)).collect();
    let copy = Pm::anonymous(&lens, &PmOptions::default()).map_err(|why| why.to_string())?;
    for (slot, len) in (0..).zip(lens) {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        pm.load(PmAddr::new(slot, 0), &mut bytes).map_err(|why| why.to_string())?;
        copy.fence(copy.stream(PmAddr::new(slot, 0), &bytes, Purpose::Other)).end();
    }
    Ok(copy)
}

/// Zeroed memory whose stores are recorded.
pub(super) fn recorded_memory(
    lens: &[u64],
    recorder: &Arc<Recorder>,
    caches: Caches,
) -> Result<Pm, String> {
    Pm::anonymous(lens, &recorded(recorder, caches)).map_err(|why| why.to_string())
}

/// How memory is mapped whose stores are recorded.
pub(super) fn recorded(recorder: &Arc<Recorder>, caches: Caches) -> PmOptions {
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    PmOptions { observer, eadr: Some(caches == Caches::Kept), ..PmOptions::default() }
}

/// Stores lines from outside; the caller sees to it that nobody records it.
pub(super) fn put_lines(pm: &Pm, lines: impl Iterator<Item = (LineKey, LineBytes)>) {
    for (key, line) in lines {
        drop(pm.store_line(key.addr(), &line, Purpose::Other));
    }
}

/// Which of the allowed states it is.
pub(super) fn look<'a>(
    machine: &mut CoreMachine,
    allowed: &'a Allowed,
    now_ns: i64,
) -> Result<Seen<'a>, String> {
    let seen = look_at_names(machine, allowed, now_ns)?;
    let inodes = machine.inode_count();
    if inodes != Some(seen.state.inodes) {
        let (name, count) = (seen.state.name, seen.state.inodes);
        return Err(format!("as {name}, but {inodes:?} inodes are in use, not {count}"));
    }
    Ok(seen)
}

/// As [`look`], where numbers of inodes may be lost until the pool is opened again.
pub(crate) fn look_at_names<'a>(
    machine: &mut CoreMachine,
    allowed: &'a Allowed,
    now_ns: i64,
) -> Result<Seen<'a>, String> {
    let tree = snapshot(machine, now_ns)?;
    let mut states = allowed.states.iter();
    let same = states.clone().find(|state| *state.tree == tree);
    let Some(state) = same.or_else(|| states.find(|state| state.tree.allows(&tree))) else {
        let difference = |state: &State| {
            let lines = state.tree.difference(&tree, (state.name, "found"));
            format!("not {}:\n{lines}", state.name)
        };
        let differences: Vec<String> = allowed.states.iter().map(difference).collect();
        return Err(differences.join("\n"));
    };
    let hash = hash(&tree, state.inodes);
    Ok(Seen { state, tree, hash })
}
