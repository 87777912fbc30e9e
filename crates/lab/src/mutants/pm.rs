//! The mutants of `pm` itself: each instruction that it executes left out, cut short, left in the cache
//! or stored after the next one, at every place of a line that a call can begin and end at.
//!
//! What a call owes is simple enough to need no recovery: after its fence the range holds what was
//! asked for, its neighbours what they held, and no line of it is still on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use novale_layout::PmAddr;
use novale_pm::lab::{Executed, How, Mutation, Noted, Which, traced};
use novale_pm::{Observer, Pm, PmOptions, Purpose, StoreEvent};

use super::key::Site;
use super::sites::Call;

/// Bytes of the pool: the places tried lie around the border of its first two pages, and what is
/// copied after them.
const POOL_BYTES: u64 = 4 * PAGE;
const PAGE: u64 = 4096;
const LINE: usize = 64;

/// First byte of the lines that are looked at.
const FROM: u64 = PAGE - 256;
const COPIED_FROM: u64 = 2 * PAGE + 5;

/// Where in a line a call begins, and how many bytes it stores.
const OFFSETS: [u64; 9] = [0, 1, 7, 8, 9, 56, 57, 63, 64];
const LENGTHS: [usize; 14] = [0, 1, 7, 8, 9, 56, 63, 64, 65, 72, 128, 136, 200, 512];

/// The functions of the module of instructions that do something to a pool.
const INSTRUCTIONS: [&str; 7] = [
    "store_u64",
    "copy_in",
    "stream_words",
    "stream_line",
    "stream_lines",
    "write_back_lines",
    "fence",
];

/// A call that stores a range, and returns when it is durable.
type Store = fn(&Pm, PmAddr, &[u8]);

const CALLS: [(&str, Store); 8] = [
    ("stream", |pm, addr, bytes| pm.fence(pm.stream(addr, bytes, Purpose::Data)).end()),
    ("stream_zero", |pm, addr, bytes| {
        pm.fence(pm.stream_zero(addr, bytes.len() as u64, Purpose::Data)).end();
    }),
    ("stream_copy", |pm, addr, bytes| {
        let from = PmAddr::new(0, COPIED_FROM);
        if let Ok(copied) = pm.stream_copy(addr, from, bytes.len() as u64, Purpose::Data) {
            pm.fence(copied).end();
        }
    }),
    ("stream_line", |pm, addr, bytes| match bytes.first_chunk::<LINE>() {
        Some(line) if addr.is_line_aligned() && bytes.len() == LINE => {
            pm.fence(pm.stream_line(addr, line, Purpose::Data)).end();
        }
        _ => pm.fence(pm.stream(addr, bytes, Purpose::Data)).end(),
    }),
    ("store", |pm, addr, bytes| {
        pm.fence(pm.write_back(pm.store(addr, bytes, Purpose::Log))).end();
    }),
    ("two stores that are joined", |pm, addr, bytes| {
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let first = pm.store(addr, head, Purpose::Log);
        let second = pm.store(addr.add(head.len() as u64), tail, Purpose::Log);
        pm.fence(pm.write_back(second.join(first))).end();
    }),
    ("store_line and store_u64", |pm, addr, bytes| {
        if !addr.byte().is_multiple_of(8) || !bytes.len().is_multiple_of(8) {
            return pm.fence(pm.write_back(pm.store(addr, bytes, Purpose::Log))).end();
        }
        let mut at = addr;
        let mut rest = bytes;
        while let Some((word, behind)) = rest.split_first_chunk::<8>() {
            let stored = match rest.first_chunk::<LINE>() {
                Some(line) if at.is_line_aligned() => pm.store_line(at, line, Purpose::Commit),
                _ => pm.store_u64(at, u64::from_le_bytes(*word), Purpose::Commit),
            };
            let len = if at.is_line_aligned() && rest.len() >= LINE { LINE } else { 8 };
            drop(stored);
            (at, rest) = (at.add(len as u64), rest.get(len..).unwrap_or(behind));
        }
        pm.fence(pm.write_back_range(addr, bytes.len() as u64, Purpose::Commit)).end();
    }),
    ("a store of another, written back again", |pm, addr, bytes| {
        drop(pm.store(addr, bytes, Purpose::Log));
        pm.fence(pm.write_back_range(addr, bytes.len() as u64, Purpose::Log)).end();
    }),
];

/// What was tried in `pm`.
#[derive(Debug, Default)]
pub struct PmReport {
    /// Each mutant, with the call that caught it and what was wrong.
    pub mutants: Vec<(PmMutant, Option<String>)>,
    /// Instructions in the source of `pm`.
    pub calls: Vec<Call>,
    /// Those that no call reached.
    pub unreached: Vec<Call>,
    /// What was wrong without any mutant.
    pub broken: Vec<String>,
}

impl PmReport {
    /// Mutants that were caught.
    pub fn caught(&self) -> usize {
        self.mutants.iter().filter(|(_, caught)| caught.is_some()).count()
    }

    /// Mutants that nothing caught.
    pub fn survivors(&self) -> impl Iterator<Item = &PmMutant> {
        self.mutants.iter().filter(|(_, caught)| caught.is_none()).map(|(mutant, _)| mutant)
    }

    /// All were caught, all was reached, and nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.survivors().next().is_none() && self.unreached.is_empty() && self.broken.is_empty()
    }
}

/// A mutant of `pm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PmMutant {
    /// The instruction's place.
    pub site: Site,
    /// Which of its executions in a call.
    pub which: Which,
    /// What is changed.
    pub how: How,
}

impl fmt::Display for PmMutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self.which {
            Which::Each => "",
            Which::First => "the first time, ",
            Which::Later => "but for the first time, ",
        };
        let how = match self.how {
            How::Removed => "removed",
            How::WithoutFirst => "without its first unit",
            How::WithoutLast => "without its last unit",
            How::Cached => "left in the cache",
            How::Behind => "behind the next",
        };
        write!(f, "{which}pm's {} {how}", self.site)
    }
}

/// Tries all mutants of `pm`.
pub fn try_pm() -> PmReport {
    let mut report = PmReport::default();
    let benches = match benches() {
        Ok(benches) => benches,
        Err(why) => return PmReport { broken: vec![why], ..report },
    };
    let cases: Vec<Case<'_>> = benches.iter().flat_map(cases_on).collect();
    let mut places: BTreeMap<Site, Place> = BTreeMap::new();
    for (index, case) in cases.iter().enumerate() {
        match case.run(None) {
            Ok(trace) => note_places(&trace, index, &mut places),
            Err(why) => report.broken.push(format!("{case}: {why}")),
        }
    }
    for (site, place) in &places {
        for (which, how) in place.mutants() {
            let mutation = Mutation { site: place.location, which, how };
            let wrong = |index: &usize| {
                let case = cases.get(*index)?;
                case.run(Some(mutation)).err().map(|why| format!("{case}: {why}"))
            };
            let mutant = PmMutant { site: *site, which, how };
            report.mutants.push((mutant, place.cases.iter().find_map(wrong)));
        }
    }
    match calls_in_pm() {
        Ok(calls) => report.calls = calls,
        Err(why) => report.broken.push(format!("the source of pm: {why}")),
    }
    let is_reached = |call: &&Call| {
        places
            .keys()
            .any(|site| site.line == call.line && Path::new(site.file).ends_with(&call.file))
    };
    report.unreached = report.calls.iter().filter(|call| !is_reached(call)).cloned().collect();
    report
}

/// A pool to try calls on.
struct Bench {
    name: &'static str,
    pm: Pm,
    /// Where byte [`FROM`] is mapped: known from where a store to it goes.
    base: usize,
    is_eadr: bool,
}

/// Makes a copy go the way that an observer can be told of.
struct Deaf;

impl Observer for Deaf {
    fn store(&self, _: StoreEvent<'_>) {}
    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {}
    fn fence(&self, _: &'static Location<'static>) {}
}

fn benches() -> Result<Vec<Bench>, String> {
    let mut benches = Vec::new();
    for (name, is_eadr, is_watched) in
        [("", false, false), ("watched, ", false, true), ("eADR, ", true, false)]
    {
        let observer = is_watched.then(|| Arc::new(Deaf) as Arc<dyn Observer>);
        let options = PmOptions { observer, eadr: Some(is_eadr), ..PmOptions::default() };
        let pm = Pm::anonymous(&[POOL_BYTES], &options).map_err(|why| why.to_string())?;
        let trace = traced(None, || drop(pm.store_u64(PmAddr::new(0, FROM), 0, Purpose::Other)));
        let Some((Executed::Store { at, .. }, _)) = trace.first() else {
            return Err("a store of pm is not seen".to_owned());
        };
        benches.push(Bench { name, base: *at, pm, is_eadr });
    }
    Ok(benches)
}

/// One call at one place of one length.
struct Case<'b> {
    bench: &'b Bench,
    name: &'static str,
    call: Store,
    offset: u64,
    len: usize,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bench, name, offset, len, .. } = self;
        write!(f, "{}{name}, {len} bytes from {:#x}", bench.name, FROM + 64 + offset)
    }
}

fn cases_on(bench: &Bench) -> impl Iterator<Item = Case<'_>> {
    let places = OFFSETS.into_iter().flat_map(|offset| LENGTHS.map(|len| (offset, len)));
    // Long enough to be streamed with caches that persist, too.
    let places = places.chain([(0, 3584), (3, 3500)]);
    places.flat_map(move |(offset, len)| {
        CALLS.map(|(name, call)| Case { bench, name, call, offset, len })
    })
}

impl Case<'_> {
    /// Makes the call, changed by a mutation; what was executed.
    fn run(&self, mutation: Option<Mutation>) -> Result<Vec<Noted>, String> {
        let pm = &self.bench.pm;
        let before = background();
        drop(pm.store(PmAddr::new(0, FROM), &before, Purpose::Other));
        drop(pm.store(PmAddr::new(0, COPIED_FROM), &wanted("", before.len()), Purpose::Other));
        let expected = wanted(self.name, self.len);
        let start = 64 + usize::try_from(self.offset).unwrap_or(0);
        let addr = PmAddr::new(0, FROM + start as u64);
        let trace = traced(mutation, || (self.call)(pm, addr, &expected));

        let mut found = vec![0; before.len()];
        pm.load(PmAddr::new(0, FROM), &mut found).map_err(|why| why.to_string())?;
        let mut model = before;
        if let Some(range) = model.get_mut(start..start + self.len) {
            range.copy_from_slice(&expected);
        }
        if let Some(at) = found.iter().zip(&model).position(|(found, model)| found != model) {
            return Err(format!("other bytes than asked for at {:#x}", FROM + at as u64));
        }
        self.check_durable(&trace, self.bench.base + start)?;
        check_order(&trace)?;
        Ok(trace)
    }

    /// Whether after all that was executed each line of the range is durable.
    fn check_durable(&self, trace: &[Noted], start: usize) -> Result<(), String> {
        let lines = |at: usize, len: usize| {
            let end = if len == 0 { 0 } else { (at + len).div_ceil(LINE) };
            at / LINE..end
        };
        let [mut dirty, mut under_way] = [BTreeSet::new(), BTreeSet::new()];
        let mut durable = BTreeSet::new();
        for (executed, _) in trace {
            match *executed {
                Executed::Store { at, len } if self.bench.is_eadr => durable.extend(lines(at, len)),
                Executed::Store { at, len } => dirty.extend(lines(at, len)),
                Executed::Stream { at, len } => under_way.extend(lines(at, len)),
                Executed::WriteBack { at, len } => {
                    under_way.extend(lines(at, len).filter(|line| dirty.remove(line)));
                }
                Executed::Fence => durable.append(&mut under_way),
            }
        }
        let left = dirty.iter().chain(&under_way).next().copied();
        let lacking = lines(start, self.len).find(|line| !durable.contains(line));
        match (left, lacking) {
            (None, None) if self.len == 0 || trace.iter().any(|(e, _)| *e == Executed::Fence) => {
                Ok(())
            }
            (None, None) => Err("no fence".to_owned()),
            (Some(line), _) | (None, Some(line)) => {
                let at = (line * LINE).wrapping_sub(self.bench.base) as u64;
                Err(format!("the line at {:#x} is not durable", FROM.wrapping_add(at)))
            }
        }
    }
}

/// Words that follow each other in a line are stored in ascending order: a crash keeps a prefix.
fn check_order(trace: &[Noted]) -> Result<(), String> {
    let in_word = |executed: &Executed| match *executed {
        Executed::Store { at, len: 8 } => Some(at),
        Executed::Store { .. }
        | Executed::Stream { .. }
        | Executed::WriteBack { .. }
        | Executed::Fence => None,
    };
    let words: Vec<usize> = trace.iter().filter_map(|(executed, _)| in_word(executed)).collect();
    if words.is_sorted() { Ok(()) } else { Err("words are stored out of order".to_owned()) }
}

/// What the lines hold before a call.
fn background() -> Vec<u8> {
    (0_u8..=250).cycle().take(4096).collect()
}

/// What a call is to store; zeros for the one that zeroes.
fn wanted(name: &str, len: usize) -> Vec<u8> {
    match name {
        "stream_zero" => vec![0; len],
        _ => (3_u8..=239).rev().cycle().take(len).collect(),
    }
}

/// An instruction that cases reach.
struct Place {
    location: &'static Location<'static>,
    cases: Vec<usize>,
    /// What can be changed of the first execution in a call, and of later ones.
    hows: [BTreeSet<How>; 2],
}

impl Place {
    fn mutants(&self) -> Vec<(Which, How)> {
        let [first, later] = &self.hows;
        let each = first.union(later).map(|how| (Which::Each, *how));
        // Without later ones the first is each.
        let apart = first.iter().filter(|_| !later.is_empty()).map(|how| (Which::First, *how));
        each.chain(apart).chain(later.iter().map(|how| (Which::Later, *how))).collect()
    }
}

fn note_places(trace: &[Noted], case: usize, places: &mut BTreeMap<Site, Place>) {
    let mut met = BTreeSet::new();
    for (index, (executed, location)) in trace.iter().enumerate() {
        let new = || Place { location, cases: Vec::new(), hows: Default::default() };
        let site = Site::from(*location);
        let place = places.entry(site).or_insert_with(new);
        if place.cases.last() != Some(&case) {
            place.cases.push(case);
        }
        let next = trace.get(index + 1).map(|(next, _)| *next);
        let [first, later] = &mut place.hows;
        let of = if met.insert(site) { first } else { later };
        of.extend(hows(*executed, next));
    }
}

/// What can be changed of an instruction that makes a difference to the memory.
fn hows(executed: Executed, next: Option<Executed>) -> Vec<How> {
    let (unit, len) = match executed {
        Executed::Store { len: 8, .. } => (8, 8),
        Executed::Store { len, .. } => (1, len),
        Executed::Stream { len, .. } => (8, len),
        Executed::WriteBack { len, .. } => (LINE, len),
        Executed::Fence => (1, 0),
    };
    let mut hows = vec![How::Removed];
    if len > unit {
        hows.extend([How::WithoutFirst, How::WithoutLast]);
    }
    if matches!(executed, Executed::Stream { .. }) {
        hows.push(How::Cached);
    }
    let overlaps = |at: usize, len: usize, other: usize, other_len: usize| {
        at / LINE < (other + other_len).div_ceil(LINE) && other / LINE < (at + len).div_ceil(LINE)
    };
    let matters = match (executed, next) {
        (Executed::Fence, _) | (_, None) => false,
        (_, Some(Executed::Fence)) => true,
        (Executed::Store { at, len }, Some(Executed::WriteBack { at: other, len: other_len })) => {
            overlaps(at, len, other, other_len)
        }
        (Executed::Store { at, len: 8 }, Some(Executed::Store { at: other, len: 8 })) => {
            overlaps(at, 8, other, 8)
        }
        (_, Some(_)) => false,
    };
    if matters {
        hows.push(How::Behind);
    }
    hows
}

/// The instructions in the source of `pm`.
fn calls_in_pm() -> io::Result<Vec<Call>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pm/src");
    let mut calls = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        // What is stored to a window is its owner's, who asks for what is owed for it by `dax.rs`.
        let is_left_out =
            ["execution_tests.rs", "window.rs"].iter().any(|left| name == Path::new(left));
        if !is_source || is_left_out {
            continue;
        }
        for (line, text) in (1..).zip(std::fs::read_to_string(&path)?.lines()) {
            let called = INSTRUCTIONS.iter().filter(|name| text.contains(&format!("cpu::{name}(")));
            calls.extend(called.map(|method| Call {
                file: name.clone(),
                line,
                method: (*method).to_owned(),
                ..Call::default()
            }));
        }
    }
    calls.sort();
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_of_pm_is_needed_and_noticed_when_gone() {
        let report = try_pm();
        assert_eq!(report.broken, Vec::<String>::new());
        let survivors: Vec<String> = report.survivors().map(ToString::to_string).collect();
        assert_eq!(survivors, Vec::<String>::new());
        assert_eq!(report.unreached, []);
        assert!(report.mutants.len() > 50, "{}", report.mutants.len());
    }
}
