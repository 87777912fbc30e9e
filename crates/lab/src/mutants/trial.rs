//! One mutant on one stretch of a run: replayed beside the original, judged where they differ.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::thread::ThreadId;

use fastrand::Rng;
use novale_core::Form;
use novale_layout::{PAGE, SUPERBLOCK_BYTES};
use novale_pm::StoreKind;

use super::judge::Judge;
use super::key::Mutant;
use super::recording::{Act, Expected, Pool};
use crate::crash::{Choice, Depth, Event, Hardware, Image, LINE_BYTES, LineBytes, LineKey, What};
use crate::images::CutRepair;

/// Lines that are kept or lost one by one, at each point.
const LINES_MAX: usize = 6;
/// Calls whose stores are kept or lost together, at each point.
const SITES_MAX: usize = 8;
/// Lines of which all subsets are tried.
const SUBSET_LINES_MAX: usize = 4;

/// What came of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// An image was wrong.
    Caught {
        /// The operation, where the power was cut, what the memory kept.
        cut: String,
        /// What was wrong.
        what: String,
    },
    /// Every image was right.
    Survived,
    /// The memory was never in a state that the original can't be in.
    NoDifference,
}

/// The memory before a stretch of a run, and what judges images of it.
pub(super) struct Stretch {
    pub(super) hardware: Hardware,
    judge: Judge,
}

impl Stretch {
    pub(super) fn new(hardware: Hardware, form: Form) -> Result<Self, String> {
        let judge = Judge::opens(&hardware, form)?;
        Ok(Self { hardware, judge })
    }

    /// One of which the images are repaired again.
    pub(super) fn of_repair(hardware: Hardware, repair: CutRepair) -> Self {
        Self { hardware, judge: Judge::Repairs(Box::new(repair)) }
    }

    /// Lets an act happen.
    pub(super) fn advance(&mut self, act: &Act) -> Result<(), String> {
        if act.behind_death {
            self.hardware.forget(None);
        }
        for event in &act.keyed.events {
            let changed = self.hardware.apply(event);
            self.judge.update(&self.hardware, &changed)?;
        }
        Ok(())
    }

    /// Tries a mutant on the acts; `None` for the original itself, of which every image must be
    /// right.
    pub(super) fn catch<'a>(
        &mut self,
        mutant: Option<&Mutant>,
        acts: impl Iterator<Item = &'a Act>,
        random: &mut Rng,
    ) -> Result<Outcome, String> {
        let mut trial = Trial {
            judge: &mut self.judge,
            mutant,
            mutated: self.hardware.clone(),
            original: self.hardware.clone(),
            touched: BTreeSet::new(),
            streaming: BTreeMap::new(),
            is_changed: true,
            images: 0,
            random,
        };
        let caught = trial.run(acts)?;
        let touched: Vec<LineKey> = trial.touched.iter().copied().collect();
        let images = trial.images;
        if let Some((cut, what)) = caught {
            self.judge.renew(&self.hardware)?;
            return Ok(Outcome::Caught { cut, what });
        }
        self.judge.update(&self.hardware, &touched)?;
        Ok(if images > 0 { Outcome::Survived } else { Outcome::NoDifference })
    }
}

/// Where the power was cut and what was wrong then.
type Wrong = (String, String);

struct Trial<'t> {
    judge: &'t mut Judge,
    mutant: Option<&'t Mutant>,
    mutated: Hardware,
    original: Hardware,
    touched: BTreeSet<LineKey>,
    /// The 8-byte units that streaming stores go to which their thread has not fenced.
    streaming: BTreeMap<(u8, u64), ThreadId>,
    /// Something has happened since the last cut.
    is_changed: bool,
    images: u64,
    random: &'t mut Rng,
}

impl Trial<'_> {
    fn run<'a>(&mut self, acts: impl Iterator<Item = &'a Act>) -> Result<Option<Wrong>, String> {
        for act in acts {
            if act.behind_death {
                self.mutated.forget(None);
                self.original.forget(None);
                self.streaming.clear();
            }
            if let Some(caught) = self.try_act(act)? {
                return Ok(Some(caught));
            }
        }
        Ok(None)
    }

    fn try_act(&mut self, act: &Act) -> Result<Option<Wrong>, String> {
        let events = match self.mutant {
            Some(mutant) => act.keyed.mutated(mutant),
            None => act.keyed.events.iter().cloned().enumerate().collect(),
        };
        let was_left = !is_superblock_whole(&self.original);
        let mut done = 0;
        for (index, event) in &events {
            if matches!(event.what, What::Fence) {
                let up_to = done.max(*index);
                self.follow(act, done..up_to);
                done = up_to;
                let place = format!("{}, at the fence at {}", act.name, event.site);
                let is_new = std::mem::take(&mut self.is_changed);
                let caught = is_new.then(|| self.cut(&place, &act.during)).flatten();
                if caught.is_some() {
                    return Ok(caught);
                }
            }
            if let Some(what) = self.overtaken(event) {
                return Ok(Some((format!("{}, at {}", act.name, event.site), what)));
            }
            self.apply(event)?;
        }
        self.follow(act, done..act.keyed.events.len());
        let mut after = act.after.clone();
        if after.pool == Pool::Whole && was_left && !is_superblock_whole(&self.original) {
            let stored = || act.keyed.events.iter().flat_map(Event::stored_lines);
            let is_of =
                |[first, replica]: [LineKey; 2]| stored().any(|key| key == first || key == replica);
            if !superblock_lines(&self.original).any(is_of) {
                after.pool = Pool::SuperblockLeft;
            }
        }
        Ok(self.cut(&format!("behind {}", act.name), &after))
    }

    /// A streaming store is not ordered before a plain store, nor before one of another thread, to the
    /// same bytes, until its own thread fences it: which of the two lasts is left to the machine.
    fn overtaken(&mut self, event: &Event) -> Option<String> {
        let What::Store { addr, bytes, kind, .. } = &event.what else {
            if matches!(event.what, What::Fence) {
                self.streaming.retain(|_, thread| *thread != event.thread);
            }
            return None;
        };
        let units = addr.byte() / 8..(addr.byte() + bytes.len() as u64).div_ceil(8);
        for unit in units {
            let key = (addr.slot(), unit);
            let streams = *kind == StoreKind::Streaming;
            if let Some(thread) = self.streaming.get(&key)
                && !(streams && *thread == event.thread)
            {
                return Some(format!("a store at {addr} over a streaming one that is not fenced"));
            }
            if streams {
                self.streaming.insert(key, event.thread);
            }
        }
        None
    }

    /// Lets the original go on to the same place.
    fn follow(&mut self, act: &Act, range: std::ops::Range<usize>) {
        for event in act.keyed.events.get(range).unwrap_or_default() {
            let changed = self.original.apply(event);
            self.is_changed |= stores(event) || !changed.is_empty();
            self.touched.extend(changed);
        }
    }

    fn apply(&mut self, event: &Event) -> Result<(), String> {
        let changed = self.mutated.apply(event);
        self.is_changed |= stores(event) || !changed.is_empty();
        self.judge.update(&self.mutated, &changed)?;
        self.touched.extend(changed);
        Ok(())
    }

    /// The lines of which a crash of the mutant may keep something else than one of the original.
    fn different_lines(&self) -> Vec<LineKey> {
        if self.mutant.is_none() {
            return self.mutated.pending().keys().copied().collect();
        }
        let (ours, theirs) = (&self.mutated, &self.original);
        let pending = ours.pending().keys().chain(theirs.pending().keys());
        let lines: BTreeSet<LineKey> = pending.chain(&self.touched).copied().collect();
        let count =
            |hardware: &Hardware, key: &LineKey| hardware.pending().get(key).map_or(0, Vec::len);
        let differs = |key: &LineKey| {
            count(ours, key) != count(theirs, key)
                || ours.durable_line(*key) != theirs.durable_line(*key)
                || ours.line_with(*key, |_| true) != theirs.line_with(*key, |_| true)
        };
        lines.into_iter().filter(differs).collect()
    }

    fn cut(&mut self, place: &str, expected: &Expected) -> Option<Wrong> {
        let different = self.different_lines();
        if different.is_empty() {
            return None;
        }
        for (choice, lines) in self.images(&different) {
            self.images += 1;
            let ends = matches!(expected.pool, Pool::Closing | Pool::Closed);
            let deep = ends || self.images.is_multiple_of(8);
            let depth = if deep { Depth::Used } else { Depth::Once };
            let image = Image { lines, state: self.mutated.state(), choice: Choice::RANDOM };
            if let Err(what) = self.judge.judge(&self.mutated, &image, expected, depth) {
                return Some((format!("power cut {place}, keeping {choice}"), what));
            }
        }
        None
    }

    /// Whether a line's pending stores keep their order.
    fn is_ordered(&self, key: LineKey) -> bool {
        let stores = self.mutated.pending().get(&key).and_then(|stores| stores.first());
        stores.is_some_and(|store| store.ordered)
    }

    /// The images to try, each once.
    fn images(&mut self, different: &[LineKey]) -> Vec<Chosen> {
        let mut images = Images { hardware: &self.mutated, seen: HashSet::new(), all: Vec::new() };
        let is_different = |key: LineKey| different.binary_search(&key).is_ok();
        images.add("all pending stores", |_, _| true);
        images.add("all but what differs", |key, _| !is_different(key));
        images.add("what differs alone", |key, _| is_different(key));
        images.add("none of the pending stores", |_, _| false);
        for at in self.random.choose_multiple(different.iter().copied(), LINES_MAX) {
            images.add("all but a line", |key, _| key != at);
            images.add("a line alone", |key, _| key == at);
            let stores = self.mutated.pending().get(&at).map_or(0, Vec::len);
            let ordered = self.is_ordered(at);
            for end in (1..stores).filter(|_| ordered) {
                images.add("a line in part, and all others", |key, i| key != at || i < end);
                images.add("a line in part alone", |key, i| key == at && i < end);
            }
        }
        let pending: Vec<LineKey> = self.mutated.pending().keys().copied().collect();
        // What one call of the source stored goes together: the few lines of one are not lost among the
        // many of another, and what lay there before may stay. Where order is kept lines go as a whole.
        let site = |key: LineKey, index: usize| {
            let stores = self.mutated.pending().get(&key)?;
            let store = stores.get(index).filter(|store| !store.ordered).or(stores.last())?;
            Some((store.site.file(), store.site.line()))
        };
        let stores = self.mutated.pending().iter().map(|(key, stores)| (*key, stores.len()));
        let stores = stores.flat_map(|(key, count)| (0..count).map(move |index| (key, index)));
        let sites: BTreeSet<_> = stores.map(|(key, index)| site(key, index)).collect();
        for of in sites.into_iter().take(SITES_MAX) {
            images.add("all but what one call stored", |key, index| site(key, index) != of);
            images.add("what one call stored alone", |key, index| site(key, index) == of);
            images.add("what differs and what one call stored", |key, index| {
                is_different(key) || site(key, index) == of
            });
        }
        let others = pending.iter().copied().filter(|key| !is_different(*key));
        for at in self.random.choose_multiple(others, LINES_MAX) {
            images.add("all but what differs and a line", |key, _| !is_different(key) && key != at);
            images.add("what differs and a line alone", |key, _| is_different(key) || key == at);
            images.add("a line alone", |key, _| key == at);
            images.add("all but a line", |key, _| key != at);
        }
        if pending.len() <= SUBSET_LINES_MAX {
            for bits in 0..1_u32 << pending.len() {
                let kept = |key| pending.binary_search(&key).is_ok_and(|at| bits >> at & 1 == 1);
                images.add("some lines", |key, _| kept(key));
            }
        }
        for _ in 0..4 {
            let seed = self.random.u64(..);
            images.add("a random subset", |key, index| {
                let ordered = self.is_ordered(key);
                let unit = if ordered { 0 } else { index as u64 };
                Rng::with_seed(seed ^ key.line ^ unit << 40).bool()
            });
        }
        let mut all = images.all;
        let max = self.judge.images_max();
        if all.len() > max {
            // The first ones say most.
            let (_, rest) = all.split_at_mut(max / 3);
            self.random.shuffle(rest);
            all.truncate(max);
        }
        all
    }
}

/// The lines of the superblock's first copy and of its replica.
fn superblock_lines(hardware: &Hardware) -> impl Iterator<Item = [LineKey; 2]> + use<> {
    let slots = hardware.durable();
    let slot = u8::try_from(slots.len().saturating_sub(1)).unwrap_or(0);
    let end = slots.last().map_or(0, |bytes| bytes.len() as u64);
    let replica = end.saturating_sub(PAGE) / LINE_BYTES as u64;
    (0..(SUPERBLOCK_BYTES / LINE_BYTES) as u64)
        .map(move |line| [LineKey { slot: 0, line }, LineKey { slot, line: replica + line }])
}

/// Whether both copies of the superblock are durable and alike. So each operation leaves them, or is
/// caught behind its act: where they are not when an act begins, a process died as it stored them.
fn is_superblock_whole(hardware: &Hardware) -> bool {
    let stays = |key| hardware.line_with(key, |_| true) == hardware.durable_line(key);
    superblock_lines(hardware).all(|[first, replica]| {
        stays(first)
            && stays(replica)
            && hardware.durable_line(first) == hardware.durable_line(replica)
    })
}

fn stores(event: &Event) -> bool {
    matches!(event.what, What::Store { .. })
}

/// What was kept, and the lines that differ from the durable ones then.
type Chosen = (&'static str, Vec<(LineKey, LineBytes)>);

/// Collects images of one memory.
struct Images<'h> {
    hardware: &'h Hardware,
    seen: HashSet<Vec<(LineKey, LineBytes)>>,
    all: Vec<Chosen>,
}

impl Images<'_> {
    /// Adds the image that keeps the pending stores that `keep` says, by line and index.
    fn add(&mut self, choice: &'static str, keep: impl Fn(LineKey, usize) -> bool) {
        let mut lines = Vec::new();
        for key in self.hardware.pending().keys() {
            let line = self.hardware.line_with(*key, |index| keep(*key, index));
            if line != self.hardware.durable_line(*key) {
                lines.push((*key, line));
            }
        }
        if self.seen.insert(lines.clone()) {
            self.all.push((choice, lines));
        }
    }
}

#[cfg(test)]
mod tests {
    use novale_core::UpdatePolicy;
    use novale_layout::{PmAddr, SLOT_HEADER_OFFSET};
    use novale_pm::Purpose;

    use super::super::key::Keyed;
    use super::super::recording::settled;
    use super::super::workloads::{Ends, FIXED_COUNT, Plan, plan};
    use super::*;
    use crate::clients::Points;
    use crate::workload::sequence;

    /// `act`, and a store by one who lives, over a copy, which nobody completes.
    fn then_stores(act: &Act, byte: u64) -> Act {
        let mut act = act.clone();
        let mut event = act.keyed.events.last().unwrap().clone();
        let (addr, kind, purpose) = (PmAddr::new(0, byte), StoreKind::Streaming, Purpose::Other);
        event.what = What::Store { addr, bytes: vec![7; 64], kind, purpose };
        act.keyed.events.push(event);
        act.keyed = Keyed::new(act.keyed.events, "settling", "");
        act
    }

    /// A client died as it set a feature's bit, and the power cut behind the settling tore the first copy:
    /// recovery rewrote it from the replica, as it should, and was blamed.
    #[test]
    fn the_superblock_is_rewritten_where_a_dead_process_left_it() {
        let mut plans = (0..FIXED_COUNT).map(|turn| plan(turn, 1));
        let is_first_use =
            |plan: &Plan| plan.ends == Ends::Settled && plan.core.update == UpdatePolicy::FineLog;
        let plan = plans.find(is_first_use).unwrap();
        let victim = sequence("settled: victims").lines().nth(1).unwrap();
        let (mut left, mut points) = (0, 0..);
        while let Some(point) = points.next()
            && let Some((mut stretch, acts)) =
                settled(&plan, victim, (Points::Pool, point)).unwrap()
        {
            let mut caught = |acts: &[Act]| {
                stretch.catch(None, acts.iter(), &mut Rng::with_seed(point)).unwrap()
            };
            assert_eq!(caught(&acts[..2]), Outcome::Survived, "{point}");
            for (byte, copy) in [(0, "superblock"), (SLOT_HEADER_OFFSET, "slot header")] {
                let outcome = caught(&[then_stores(&acts[0], byte)]);
                let told = |what: &str| what.contains(copy);
                assert!(
                    matches!(&outcome, Outcome::Caught { what, .. } if told(what)),
                    "{outcome:?}"
                );
            }
            left += u64::from(!is_superblock_whole(&stretch.hardware));
        }
        assert!(left > 2 && left + 2 < points.start, "{left} of {}", points.start);
    }
}
