//! Which crash images to try at one point: of all that the hardware may keep, those that find most.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use fastrand::Rng;
use novale_pm::Purpose;

use super::durable::StateHash;
use super::hardware::{Hardware, LineBytes, LineKey, Pending};
use super::record::Event;

/// Lines of a page of the pool.
const LINES_PER_PAGE: u64 = 64;

/// What a crash leaves in the lines that were not durable; lines left out keep durable bytes.
#[derive(Debug, Clone)]
pub struct Image {
    /// The lines that differ from the durable ones, in their order.
    pub lines: Vec<(LineKey, LineBytes)>,
    /// The whole memory in one number.
    pub state: StateHash,
    /// How it was chosen.
    pub choice: Choice,
}

/// How an image was chosen, to be shown with a failure: in words, with the lines and the number that they
/// speak of.
#[derive(Debug, Clone, Copy)]
pub struct Choice(&'static str, [Option<LineKey>; 2], Option<u64>);

impl Choice {
    /// Any, drawn at random.
    pub(crate) const RANDOM: Self = Self("a random subset", [None; 2], None);

    fn lines(words: &'static str, lines: &[LineKey]) -> Self {
        Self(words, [lines.first().copied(), lines.get(1).copied()], None)
    }

    fn number(words: &'static str, lines: &[LineKey], number: usize) -> Self {
        Self(words, Self::lines(words, lines).1, Some(number as u64))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(words, lines, number) = self;
        write!(f, "{words}")?;
        for key in lines.iter().flatten() {
            write!(f, " {}:{:#x}", key.slot, key.line * 64)?;
        }
        match number {
            Some(bits) if words.ends_with("bits") => write!(f, " {bits:#b}"),
            Some(number) => write!(f, ", {number}"),
            None => Ok(()),
        }
    }
}

/// How many images to try at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// All subsets of whole lines, for up to so many of them; of those of metadata where all lines
    /// are more.
    pub subset_lines_max: usize,
    /// Lines of data that are tried one by one; others are tried all.
    pub data_lines_max: usize,
    /// Pairs of lines that are kept alone, and left out; as many calls, and pages that are left out.
    pub pairs: usize,
    /// Random subsets of 8-byte units.
    pub random: usize,
    /// Whether to cut at each store as well as at each fence: there the newest line is tried
    /// against the others.
    pub at_stores: bool,
}

impl Default for Effort {
    /// A few dozen images at a fence.
    fn default() -> Self {
        Self { subset_lines_max: 4, data_lines_max: 2, pairs: 4, random: 3, at_stores: false }
    }
}

/// The images to try at a fence, each once.
pub fn images(hardware: &Hardware, effort: Effort, random: &mut Rng) -> Vec<Image> {
    let mut choosing = Choosing::new(hardware);
    choosing.all_and_nothing();
    choosing.subsets(effort.subset_lines_max);
    choosing.calls();
    choosing.calls_and_pages_apart(effort.pairs, random);
    let lines = chosen_lines(hardware, effort, random);
    for key in &lines {
        choosing.alone_and_missing(*key);
        choosing.prefixes(*key);
        choosing.units(*key, false);
    }
    for _ in 0..effort.pairs.min(lines.len() * lines.len() / 2) {
        let (Some(a), Some(b)) = (random.choice(&lines), random.choice(&lines)) else { break };
        choosing.pair(*a, *b);
    }
    for _ in 0..effort.random {
        choosing.random(random);
    }
    choosing.images
}

/// The images that tear a line of metadata by a unit, or keep a unit of it alone.
pub fn images_by_units(hardware: &Hardware) -> Vec<Image> {
    let mut choosing = Choosing::new(hardware);
    let metadata = hardware.pending().iter().filter(|(_, stores)| !is_data(stores));
    for (key, _) in metadata {
        choosing.units(*key, false);
        choosing.units(*key, true);
    }
    choosing.images
}

/// The images to try after a store: what it stored against all else that is pending.
pub fn images_at_store(
    hardware: &Hardware,
    event: &Event,
    effort: Effort,
    random: &mut Rng,
) -> Vec<Image> {
    let mut choosing = Choosing::new(hardware);
    choosing.subsets(effort.subset_lines_max);
    choosing.all_and_nothing();
    let lines: Vec<LineKey> = event.stored_lines().collect();
    for key in lines.first().into_iter().chain(lines.last()) {
        choosing.alone_and_missing(*key);
        choosing.prefixes(*key);
    }
    let others: Vec<LineKey> = hardware.pending().keys().copied().collect();
    if let Some(newest) = lines.last() {
        for other in random.choose_multiple(others, effort.pairs) {
            choosing.pair(*newest, other);
        }
    }
    for _ in 0..effort.random {
        choosing.random(random);
    }
    choosing.images
}

/// The images that a store under way can leave if caches persist: none of it, a part, all.
pub fn images_in_store(hardware: &Hardware, event: &Event, random: &mut Rng) -> Vec<Image> {
    const UNITS_ALL: usize = 9;
    const UNITS_CHOSEN: usize = 4;
    let mut choosing = Choosing::new(hardware);
    choosing.all_and_nothing();
    let units = event.units();
    let counts: BTreeSet<usize> = match units {
        0..=UNITS_ALL => (0..units).collect(),
        _ => (0..UNITS_CHOSEN).map(|_| random.usize(1..units)).collect(),
    };
    for count in counts {
        let lines = hardware.torn(event, count);
        choosing.push(lines, Choice::number("units of the store under way", &[], count));
    }
    choosing.images
}

/// All lines of metadata, and some of data.
fn chosen_lines(hardware: &Hardware, effort: Effort, random: &mut Rng) -> Vec<LineKey> {
    let (data, mut lines): (Vec<_>, Vec<_>) =
        hardware.pending().iter().partition(|(_, stores)| is_data(stores));
    lines.extend(random.choose_multiple(data, effort.data_lines_max));
    lines.into_iter().map(|(key, _)| *key).collect()
}

fn is_data(stores: &[Pending]) -> bool {
    stores.iter().all(|store| store.purpose == Purpose::Data)
}

/// Whether the bits choose a line; `None` for one that is not among the keys, which ascend.
fn is_chosen(keys: &[LineKey], bits: u64, key: LineKey) -> Option<bool> {
    keys.binary_search(&key).ok().map(|index| bits >> index & 1 == 1)
}

/// A pending line, with what is asked for most of it.
struct Line<'h> {
    key: LineKey,
    stores: &'h [Pending],
    durable: LineBytes,
    durable_hash: StateHash,
    whole: LineBytes,
    whole_hash: StateHash,
}

struct Choosing<'h> {
    hardware: &'h Hardware,
    lines: Vec<Line<'h>>,
    seen: HashSet<StateHash>,
    images: Vec<Image>,
}

impl<'h> Choosing<'h> {
    fn new(hardware: &'h Hardware) -> Self {
        let line = |(key, stores): (&LineKey, &'h Vec<Pending>)| {
            let (durable, whole) =
                (hardware.durable_line(*key), hardware.line_with(*key, |_| true));
            Line {
                key: *key,
                stores,
                durable,
                durable_hash: StateHash::of_line(*key, &durable),
                whole,
                whole_hash: StateHash::of_line(*key, &whole),
            }
        };
        let lines = hardware.pending().iter().map(line).collect();
        Self { hardware, lines, seen: HashSet::new(), images: Vec::new() }
    }

    /// Adds the image that keeps what `keep` says of (line, index of the store, store), but for ordered
    /// stores behind one of their line that is not kept.
    fn add(&mut self, choice: Choice, mut keep: impl FnMut(LineKey, usize, &Pending) -> bool) {
        let (mut lines, mut state) = (Vec::new(), self.hardware.state());
        for line in &self.lines {
            let mut is_gone = false;
            let stores = line.stores.iter().enumerate();
            let kept = stores.map(|(index, store)| {
                let kept = keep(line.key, index, store) && !(store.ordered && is_gone);
                is_gone |= store.ordered && !kept;
                kept
            });
            let kept: Vec<bool> = kept.collect();
            let (bytes, hash) = if kept.iter().all(|kept| *kept) {
                (line.whole, line.whole_hash)
            } else if kept.iter().any(|kept| *kept) {
                let kept = |index| kept.get(index).copied().unwrap_or(false);
                let bytes = self.hardware.line_with(line.key, kept);
                (bytes, StateHash::of_line(line.key, &bytes))
            } else {
                continue;
            };
            if bytes != line.durable {
                lines.push((line.key, bytes));
                state = state.with(line.durable_hash, hash);
            }
        }
        if self.seen.insert(state) {
            self.images.push(Image { lines, state, choice });
        }
    }

    /// Adds the image of these lines.
    fn push(&mut self, lines: Vec<(LineKey, LineBytes)>, choice: Choice) {
        let mut state = self.hardware.state();
        for (key, line) in &lines {
            let old = StateHash::of_line(*key, &self.hardware.durable_line(*key));
            state = state.with(old, StateHash::of_line(*key, line));
        }
        if self.seen.insert(state) {
            self.images.push(Image { lines, state, choice });
        }
    }

    fn all_and_nothing(&mut self) {
        self.add(Choice::lines("none of the pending stores", &[]), |_, _, _| false);
        self.add(Choice::lines("all pending stores", &[]), |_, _, _| true);
    }

    fn alone_and_missing(&mut self, key: LineKey) {
        self.add(Choice::lines("nothing but the line at", &[key]), |other, _, _| other == key);
        self.add(Choice::lines("all but the line at", &[key]), |other, _, _| other != key);
    }

    fn pair(&mut self, a: LineKey, b: LineKey) {
        self.add(Choice::lines("nothing but the lines at", &[a, b]), |key, _, _| {
            key == a || key == b
        });
        self.add(Choice::lines("all but the lines at", &[a, b]), |key, _, _| key != a && key != b);
    }

    fn subsets(&mut self, lines_max: usize) {
        let keys: Vec<LineKey> = self.lines.iter().map(|line| line.key).collect();
        if keys.len() <= lines_max {
            for bits in 0..1_u64 << keys.len() {
                self.add(
                    Choice("the pending lines of the bits", [None; 2], Some(bits)),
                    |key, _, _| is_chosen(&keys, bits, key) == Some(true),
                );
            }
            return;
        }
        let metadata = self.lines.iter().filter(|line| !is_data(line.stores));
        let keys: Vec<LineKey> = metadata.map(|line| line.key).collect();
        if keys.len() <= lines_max {
            for (bits, data) in (0..1_u64 << keys.len()).flat_map(|n| [(n, false), (n, true)]) {
                let words =
                    if data { "all data, metadata by bits" } else { "no data, metadata by bits" };
                self.add(Choice(words, [None; 2], Some(bits)), |key, _, _| {
                    is_chosen(&keys, bits, key).unwrap_or(data)
                });
            }
        }
    }

    /// The calls with pending stores, in their order.
    fn pending_calls(&self) -> BTreeSet<u64> {
        self.hardware.pending().values().flatten().map(|store| store.call).collect()
    }

    fn calls(&mut self) {
        let calls = self.pending_calls();
        for (count, last) in (1..).zip(&calls) {
            self.add(Choice::number("what the first calls stored", &[], count), |_, _, store| {
                store.call <= *last
            });
        }
    }

    /// Some calls alone and left out, and some pages left out: where more lines are pending than are
    /// tried one by one, what was stored together is lost together.
    fn calls_and_pages_apart(&mut self, count: usize, random: &mut Rng) {
        let calls = self.pending_calls();
        for (index, call) in random.choose_multiple(calls.iter().enumerate(), count) {
            self.add(Choice::number("what one call stored alone", &[], index), |_, _, store| {
                store.call == *call
            });
            self.add(Choice::number("all but what one call stored", &[], index), |_, _, store| {
                store.call != *call
            });
        }
        let page_of = |key: LineKey| (key.slot, key.line / LINES_PER_PAGE);
        let pages: BTreeSet<(u8, u64)> =
            self.hardware.pending().keys().map(|key| page_of(*key)).collect();
        if pages.len() < 2 {
            return;
        }
        for (slot, page) in random.choose_multiple(pages, count) {
            let first = LineKey { slot, line: page * LINES_PER_PAGE };
            self.add(Choice::lines("all but the page of the line at", &[first]), |key, _, _| {
                page_of(key) != (slot, page)
            });
        }
    }

    fn stores(&self, key: LineKey) -> &'h [Pending] {
        self.hardware.pending().get(&key).map(Vec::as_slice).unwrap_or_default()
    }

    fn prefixes(&mut self, key: LineKey) {
        let stores = self.stores(key).iter().enumerate();
        let ordered: Vec<usize> =
            stores.filter(|(_, store)| store.ordered).map(|(index, _)| index).collect();
        for count in 1..ordered.len() {
            let end = ordered.get(count).copied().unwrap_or(0);
            self.add(
                Choice::number("all, of this line the first ordered stores:", &[key], count),
                |other, index, store| other != key || !store.ordered || index < end,
            );
            self.add(
                Choice::number("nothing but of this line the first ordered stores:", &[key], count),
                |other, index, store| other == key && store.ordered && index < end,
            );
        }
    }

    /// Leaves out each unordered unit of a line in turn, or keeps it and nothing else.
    fn units(&mut self, key: LineKey, alone: bool) {
        let words = if alone { "nothing but of the line at" } else { "all but of the line at" };
        let stores = self.stores(key).iter().enumerate();
        for (index, _) in stores.filter(|(_, store)| !store.ordered) {
            let keep = |other, at, _: &Pending| (other == key && at == index) == alone;
            self.add(Choice::number(words, &[key], index), keep);
        }
    }

    fn random(&mut self, random: &mut Rng) {
        let (mut at, mut whole, mut prefix) = (None, 0, 0);
        self.add(Choice::RANDOM, |key, _, store| {
            if at != Some(key) {
                (at, whole, prefix) = (Some(key), random.u8(0..3), random.usize(0..=8));
            }
            match whole {
                0 => false,
                1 => true,
                _ if store.ordered => {
                    let kept = prefix > 0;
                    prefix = prefix.saturating_sub(1);
                    kept
                }
                _ => random.bool(),
            }
        });
    }
}
