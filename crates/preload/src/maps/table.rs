//! The table of parts, in the order of their addresses.
//!
//! A program may have tens of thousands of parts: one that changes the access of single pages has one for each. So what a
//! call asks is answered by the parts of its own range. What is asked about a file, and how many parts there are of a
//! kind, is kept up as parts come and go.
//!
//! Parts never overlap. Whoever adds one has taken out before what was at its addresses, and this holds for parts too
//! that stay when the kernel's mapping has taken their place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use novale_core::Ino;

use crate::maps::openings::Opening;
use crate::maps::{Part, Source};

/// A mount and a file of it.
type File = (usize, Ino);

/// A source that has parts.
struct Shows {
    of: Arc<Source>,
    /// Where they begin: in the file, and as addresses.
    places: BTreeSet<(u64, u64)>,
}

pub(crate) struct Table {
    /// By where they begin.
    parts: BTreeMap<u64, Part>,
    /// By file, and by where the source is in memory.
    sources: BTreeMap<(usize, Ino, usize), Shows>,
    /// By number and by where they are in memory, with how many parts each has.
    openings: BTreeMap<(u32, usize), (Arc<Opening>, usize)>,
    /// Parts that lack pages ([`Part::lacks`]): file, place in it, and where they begin.
    lacking: BTreeSet<(usize, Ino, u64, u64)>,
    replicas: usize,
    pieces: usize,
}

/// What is asked.
impl Table {
    pub(crate) const fn new() -> Self {
        Self {
            parts: BTreeMap::new(),
            sources: BTreeMap::new(),
            openings: BTreeMap::new(),
            lacking: BTreeSet::new(),
            replicas: 0,
            pieces: 0,
        }
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Parts that are replicas.
    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }

    /// Pieces of the pool in them, at most.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Parts that do not show all of what their file may get.
    pub(crate) fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// All of them: for calls that are rare.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.values()
    }

    /// The parts that have something in a range of addresses.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = &Part> {
        let before = self.parts.range(..=range.start).next_back();
        let from = before.map_or(range.start, |(start, _)| *start);
        let there = self.parts.range(from..range.end.max(from)).map(|(_, part)| part);
        there.inspect(|_| visited()).filter(|part| part.within(range).is_some())
    }

    /// What lies in a range of addresses, piece by piece.
    pub(crate) fn pieces_in(&self, range: &Range<u64>) -> Vec<Part> {
        self.within(range).filter_map(|part| part.piece(range)).collect()
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.within(range).next().is_some()
    }

    /// The part that a range of addresses lies in.
    pub(crate) fn around(&self, range: &Range<u64>) -> Option<Part> {
        let (_, part) = self.parts.range(..=range.start).next_back()?;
        visited();
        (range.end <= part.end()).then(|| part.clone())
    }

    /// What the parts are of, as far as it is chosen.
    pub(crate) fn sources(&self, is_chosen: impl Fn(&Source) -> bool) -> Vec<Arc<Source>> {
        let all = self.sources.values().map(|shows| &shows.of);
        all.filter(|of| is_chosen(of)).cloned().collect()
    }

    fn shown_of(&self, (mount, ino): File) -> impl Iterator<Item = &Shows> {
        self.sources.range((mount, ino, 0)..=(mount, ino, usize::MAX)).map(|(_, shows)| shows)
    }

    /// What the parts of a file are of.
    pub(crate) fn sources_of(&self, file: File) -> impl Iterator<Item = &Arc<Source>> {
        self.shown_of(file).map(|shows| &shows.of)
    }

    /// The parts of a source.
    pub(crate) fn of_source(&self, source: &Arc<Source>) -> impl Iterator<Item = &Part> {
        let shows = self.sources.get(&key(source)).into_iter();
        shows.flat_map(|shows| &shows.places).filter_map(|(_, start)| self.parts.get(start))
    }

    /// The replicas of a file that have something of a range of it. A replica is of a source of its own, whose parts have
    /// no byte of the file twice.
    pub(crate) fn replicas_of(&self, file: File, bytes: Range<u64>) -> impl Iterator<Item = &Part> {
        let (from, to) = (bytes.start, bytes.end);
        let replicas = self.shown_of(file).filter(|shows| shows.of.base.is_some());
        let places = replicas.flat_map(move |shows| {
            let before = shows.places.range(..=(from, u64::MAX)).next_back();
            let first = before.map_or((from, 0), |place| *place);
            shows.places.range(first..(to, 0).max(first))
        });
        let parts = places.filter_map(|(_, start)| self.parts.get(start)).inspect(|_| visited());
        parts.filter(move |part| part.offset.max(from) < (part.offset + part.len).min(to))
    }

    /// Where those parts of a file begin that lack something before a place in it.
    pub(crate) fn lacking_of(&self, (mount, ino): File, to: u64) -> Vec<u64> {
        let lacking = self.lacking.range((mount, ino, 0, 0)..(mount, ino, to, 0));
        let parts = lacking.filter_map(|(.., start)| self.parts.get(start));
        parts.filter(|part| part.lacks() && part.shown.end < to).map(|part| part.start).collect()
    }

    /// What parts were mapped by.
    pub(crate) fn openings(&self) -> impl Iterator<Item = &Arc<Opening>> {
        self.openings.values().map(|(by, _)| by)
    }

    /// The same of one number.
    pub(crate) fn openings_of(&self, number: u32) -> impl Iterator<Item = &Arc<Opening>> {
        self.openings.range((number, 0)..=(number, usize::MAX)).map(|(_, (by, _))| by)
    }
}

/// What is changed.
impl Table {
    /// Adds a part where there is none.
    pub(crate) fn add(&mut self, part: Part) {
        debug_assert!(!self.overlaps(&(part.start..part.end())), "a part in another's place");
        self.replicas += usize::from(part.of.base.is_some());
        self.pieces += part.shown.pieces;
        let shows = self.sources.entry(key(&part.of));
        let shows = shows.or_insert_with(|| Shows { of: part.of.clone(), places: BTreeSet::new() });
        shows.places.insert((part.offset, part.start));
        let opening = self.openings.entry(key_of_opening(&part.by));
        opening.or_insert_with(|| (part.by.clone(), 0)).1 += 1;
        let start = part.start;
        self.parts.insert(start, part);
        self.note_lacking(start);
    }

    fn remove(&mut self, start: u64) -> Option<Part> {
        let part = self.parts.remove(&start)?;
        self.replicas -= usize::from(part.of.base.is_some());
        self.pieces -= part.shown.pieces;
        self.lacking.remove(&lack(&part));
        let source = key(&part.of);
        if let Some(shows) = self.sources.get_mut(&source) {
            shows.places.remove(&(part.offset, part.start));
            if shows.places.is_empty() {
                self.sources.remove(&source);
            }
        }
        let opening = key_of_opening(&part.by);
        if let Some((_, parts)) = self.openings.get_mut(&opening) {
            *parts -= 1;
            if *parts == 0 {
                self.openings.remove(&opening);
            }
        }
        Some(part)
    }

    /// Notes whether a part lacks something now.
    fn note_lacking(&mut self, start: u64) {
        let Some(part) = self.parts.get(&start) else { return };
        if part.lacks() {
            self.lacking.insert(lack(part));
        } else {
            self.lacking.remove(&lack(part));
        }
    }

    /// Has a part end where an address lies in it, and another one begin there.
    fn split(&mut self, at: u64) {
        let Some((_, part)) = self.parts.range_mut(..at).next_back() else { return };
        visited();
        let (start, len) = (part.start, at - part.start);
        if part.len <= len {
            return;
        }
        let behind =
            Part { start: at, len: part.len - len, offset: part.offset + len, ..part.clone() };
        part.len = len;
        self.note_lacking(start);
        self.add(behind);
    }

    /// Takes out what lies in a range of addresses.
    pub(crate) fn take_out(&mut self, range: &Range<u64>) -> Vec<Part> {
        if range.is_empty() {
            return Vec::new();
        }
        self.split(range.start);
        self.split(range.end);
        let starts = self.starts_in(range);
        starts.into_iter().filter_map(|start| self.remove(start)).collect()
    }

    fn starts_in(&self, range: &Range<u64>) -> Vec<u64> {
        self.parts.range(range.clone()).inspect(|_| visited()).map(|(start, _)| *start).collect()
    }

    /// Takes out the parts of a source that are chosen. The kernel's mapping has taken the place of all of them.
    pub(crate) fn take_out_given(
        &mut self,
        source: &Arc<Source>,
        is_chosen: impl Fn(&Part) -> bool,
    ) -> Vec<Part> {
        let of: Vec<(u64, bool)> =
            self.of_source(source).map(|part| (part.start, is_chosen(part))).collect();
        let mut taken = Vec::new();
        for (start, is_chosen) in of {
            if is_chosen {
                taken.extend(self.remove(start));
            } else {
                self.note_lacking(start);
            }
        }
        taken
    }

    /// Notes what may be done with a range from now on. Pieces that differ no more are one part again.
    pub(crate) fn set_access(&mut self, range: &Range<u64>, access: u64) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let is_writable = access & libc::PROT_WRITE as u64 != 0;
        for (_, part) in self.parts.range_mut(range.clone()) {
            visited();
            part.access = access;
            part.stored |= part.shared && is_writable;
        }
        self.join(range);
    }

    /// Notes that what lies in a range may have been stored to.
    pub(crate) fn may_be_stored_to(&mut self, range: &Range<u64>) {
        let starts: Vec<u64> = self.within(range).map(|part| part.start).collect();
        for start in starts {
            if let Some(part) = self.parts.get_mut(&start) {
                part.stored |= part.shared;
            }
        }
    }

    /// Makes one part of those that go on in each other, from the one before a range to the one behind it.
    fn join(&mut self, range: &Range<u64>) {
        let before = self.parts.range(..range.start).next_back();
        let mut at = before.map_or(range.start, |(start, _)| *start);
        let later = self.parts.range(at..=range.end).map(|(start, _)| *start);
        let starts: Vec<u64> = later.filter(|start| *start > at).collect();
        for start in starts {
            let goes_on = self.parts.get(&at).zip(self.parts.get(&start));
            if !goes_on.is_some_and(|(part, next)| part.goes_on_in(next)) {
                at = start;
                continue;
            }
            let len = self.remove(start).map_or(0, |next| next.len);
            if let Some(part) = self.parts.get_mut(&at) {
                part.len += len;
            }
            self.note_lacking(at);
        }
    }

    /// Has more shown in the parts that begin there, and notes it.
    pub(crate) fn show_more(&mut self, starts: &[u64], mut show: impl FnMut(&mut Part)) {
        for start in starts {
            let Some(part) = self.parts.get_mut(start) else { continue };
            self.pieces -= part.shown.pieces;
            show(part);
            self.pieces += part.shown.pieces;
            self.note_lacking(*start);
        }
    }
}

fn key(source: &Arc<Source>) -> (usize, Ino, usize) {
    (source.mount, source.ino, Arc::as_ptr(source).addr())
}

fn key_of_opening(by: &Arc<Opening>) -> (u32, usize) {
    (by.number, Arc::as_ptr(by).addr())
}

fn lack(part: &Part) -> (usize, Ino, u64, u64) {
    (part.of.mount, part.of.ino, part.offset, part.start)
}

/// A test counts the parts that are looked at.
#[inline]
fn visited() {
    #[cfg(test)]
    tests::VISITED.set(tests::VISITED.get() + 1);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use novale_core::Ino;

    use super::Table;
    use crate::base::lock::Lock;
    use crate::maps::growing::Shown;
    use crate::maps::openings::Opening;
    use crate::maps::{PAGE, Part, Source};

    thread_local! {
        pub(super) static VISITED: Cell<usize> = const { Cell::new(0) };
    }

    const READS: u64 = libc::PROT_READ as u64;
    const WRITES: u64 = READS | libc::PROT_WRITE as u64;

    fn source(ino: u64) -> Arc<Source> {
        let (hold, given) = (Lock::new(None), AtomicBool::new(false));
        let stores = AtomicBool::new(false);
        let (mount, ino, generation) = (0, Ino::new(ino), 1);
        Arc::new(Source { mount, ino, generation, hold, base: None, anchor: None, given, stores })
    }

    fn addresses(pages: Range<u64>) -> Range<u64> {
        pages.start * PAGE..pages.end * PAGE
    }

    fn part(pages: Range<u64>, first: u64, of: &Arc<Source>, by: &Arc<Opening>) -> Part {
        let Range { start, end } = addresses(pages);
        let (len, offset) = (end - start, first * PAGE);
        let shown = Shown::new(offset + len / 2);
        let (of, by) = (of.clone(), by.clone());
        let (shared, stored, writes) = (true, false, true);
        Part { start, len, offset, shared, access: READS, stored, writes, shown, of, by }
    }

    /// Where each page is in what file, and whether it may be and may have been stored to.
    type Model = BTreeMap<u64, (u64, u64, u64, bool)>;

    /// What a table says of pages; that its counts are those of its parts, too.
    fn look(table: &Table) -> Model {
        let mut model = Model::new();
        for part in table.parts() {
            for page in 0..part.len / PAGE {
                let at = part.start / PAGE + page;
                let place = part.offset / PAGE + page;
                let said = (part.of.ino.get(), place, part.access, part.stored);
                assert!(model.insert(at, said).is_none(), "two parts at {at}");
            }
        }
        let all = || table.parts();
        assert_eq!(table.len(), all().count());
        assert_eq!(table.lacking(), all().filter(|part| part.lacks()).count());
        assert_eq!(table.pieces(), all().map(|part| part.shown.pieces).sum::<usize>());
        let places: usize = table.sources.values().map(|shows| shows.places.len()).sum();
        let opened: usize = table.openings.values().map(|(_, parts)| parts).sum();
        assert_eq!((places, opened), (table.len(), table.len()));
        for source in table.sources(|_| true) {
            let its = all().filter(|part| Arc::ptr_eq(&part.of, &source)).count();
            assert_eq!(table.of_source(&source).count(), its);
        }
        model
    }

    #[test]
    fn a_table_says_of_each_page_what_was_done_to_it() {
        let mut random = fastrand::Rng::with_seed(7);
        let sources = [source(2), source(3), source(4)];
        let openings = [Opening::numbered(1), Opening::numbered(2), Opening::numbered(3)];
        let (mut table, mut model) = (Table::new(), Model::new());
        for _ in 0..1000 {
            let start = random.u64(0..60);
            let pages = start..random.u64(start..64) + 1;
            match random.u8(0..4) {
                0 => {
                    let (of, first) = (random.usize(0..3), random.u64(0..40));
                    table.take_out(&addresses(pages.clone()));
                    table.add(part(pages.clone(), first, &sources[of], &openings[of]));
                    let ino = sources[of].ino.get();
                    model.extend(
                        pages
                            .clone()
                            .zip(first..)
                            .map(|(page, place)| (page, (ino, place, READS, false))),
                    );
                }
                1 => {
                    let ended = table.take_out(&addresses(pages.clone()));
                    let before = model.len();
                    model.retain(|page, _| !pages.contains(page));
                    let ended: u64 = ended.iter().map(|part| part.len / PAGE).sum();
                    assert_eq!(usize::try_from(ended).unwrap(), before - model.len());
                }
                way => {
                    let access = if way == 2 { READS } else { WRITES };
                    table.set_access(&addresses(pages.clone()), access);
                    for (_, said) in model.range_mut(pages.clone()) {
                        *said = (said.0, said.1, access, said.3 || access == WRITES);
                    }
                }
            }
            assert_eq!(look(&table), model);
            let within: u64 =
                table.pieces_in(&addresses(pages.clone())).iter().map(|part| part.len / PAGE).sum();
            assert_eq!(usize::try_from(within).unwrap(), model.range(pages).count());
        }
        drop(table.take_out(&(0..u64::MAX)));
        assert_eq!((table.len(), table.pieces(), table.lacking()), (0, 0, 0));
        assert!(table.sources.is_empty() && table.openings.is_empty());
    }

    #[test]
    fn pieces_that_differ_no_more_are_one() {
        let (of, by) = (source(2), Opening::numbered(1));
        let mut table = Table::new();
        table.add(part(0..100, 0, &of, &by));
        table.set_access(&addresses(0..100), WRITES);
        for page in (0..100).step_by(2) {
            table.set_access(&addresses(page..page + 1), READS);
        }
        assert_eq!(table.len(), 100);
        for page in (0..100).step_by(2) {
            table.set_access(&addresses(page..page + 1), WRITES);
        }
        assert_eq!(table.len(), 1);
        // Another place of the file, and another descriptor.
        table.add(part(100..101, 101, &of, &by));
        table.add(part(101..102, 102, &of, &Opening::numbered(2)));
        table.set_access(&addresses(0..102), READS);
        table.set_access(&addresses(0..102), WRITES);
        assert_eq!(table.len(), 3);
    }

    /// Each call looked at all parts, several times.
    #[test]
    fn a_call_looks_at_the_parts_of_its_range() {
        let (of, by) = (source(2), Opening::numbered(1));
        let mut table = Table::new();
        table.add(part(0..8_000, 0, &of, &by));
        VISITED.set(0);
        for page in (0..8_000).step_by(2) {
            let range = addresses(page..page + 1);
            assert!(table.around(&range).is_some() && table.pieces_in(&range).len() == 1);
            table.set_access(&range, WRITES);
        }
        assert_eq!(table.len(), 8_000);
        for page in 0..8_000 {
            assert_eq!(table.take_out(&addresses(page..page + 1)).len(), 1);
        }
        assert!(VISITED.get() < 12 * 8_000, "{}", VISITED.get());
    }
}
