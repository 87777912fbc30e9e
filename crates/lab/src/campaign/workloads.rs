//! Which sequences there are to be cut: a line each in [`WORKLOADS`]. A new mechanism registers here.

use novale_core::Form;

use super::drawn::{MB, either};
use super::{drawn, flights, shapes};
use crate::crash::{Caches, CrashOptions};
use crate::workload::{Step, parse_steps};

/// A sequence, and how it is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The steps.
    pub steps: Vec<Step>,
    /// The pool, and what is tried.
    pub options: CrashOptions,
}

impl Case {
    /// The same with other options.
    pub(super) fn with(mut self, change: impl FnOnce(&mut CrashOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// The same behind more that is not cut.
    pub(super) fn with_past(mut self, text: &str) -> Self {
        let steps = parse_steps(text).unwrap_or_default();
        let at = self.options.from_step;
        self.options.from_step += steps.len();
        self.steps.splice(at..at, steps);
        self
    }
}

/// A kind of sequences.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// Where its cases come from.
    pub how: How,
    /// A collector is to run in what is cut.
    pub collects: bool,
}

/// Where a workload's cases come from.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// The case of a number from 0, and how many there are; all are run once, in an order of the seed's.
    Each(fn(u64) -> (Case, u64)),
    /// As many as seeds.
    Drawn(fn(u64) -> Case),
    /// Variations of those, of any workload, that reached a new place in the product; the first
    /// ones are drawn.
    Guided(fn(u64) -> Case),
}

use How::{Drawn, Each, Guided};

/// All workloads.
#[rustfmt::skip]
pub const WORKLOADS: &[Workload] = &[
    line("single", "each operation alone, every image of up to 12 lines", Each(shapes::single)),
    line("pairs", "all pairs of operations", Each(shapes::pairs)),
    line("sizes", "offsets and lengths around every border, on six files", Each(shapes::sizes)),
    line("appends", "appends at every border, cut off, and what raises the end behind them", Each(shapes::appends)),
    line("overwrites", "overwrites at every border by every method, cut off, and what comes behind them", Each(shapes::overwrites)),
    line("names", "names of every length in lines, in every use", Each(shapes::names)),
    line("held", "triples of operations on two open files, with names or without", Each(shapes::held)),
    line("mapped", "triples of operations on a file whose own pages are mapped", Each(shapes::mapped)),
    line("trees", "triples of operations below directories with limits", Each(shapes::trees)),
    line("borders", "every constant of core and layout, and its neighbours, as a length and as a count", Each(shapes::borders)),
    line("pairs-full", "all pairs of operations, on a pool that is full or nearly", Each(shapes::pairs_full)),
    line("held-dropped", "those of `held` while views are dropped", Each(|number| shapes::dropped(shapes::held(number)))),
    line("mapped-dropped", "those of `mapped` while views are dropped", Each(|number| shapes::dropped(shapes::mapped(number)))),
    line("overwrites-dropped", "those of `overwrites` while views are dropped", Each(|number| shapes::dropped(shapes::overwrites(number)))),
    line("maps", "random steps, files mapped among them", Drawn(|seed| drawn::mapped(seed, either(seed, Form::Single), u64::from(seed % 4 == 0)))),
    line("random", "random steps, in the form that fits", Drawn(|seed| drawn::random(seed, Form::Auto))),
    line("methods", "random steps, each sequence by one of the write methods", Drawn(drawn::methods)),
    line("buffered", "random steps whose writes are buffered, files mapped among them", Drawn(drawn::buffered)),
    line("reads", "random steps, files read behind them, by two rules for access times", Drawn(drawn::reads)),
    line("two", "random steps in the two-fence form", Drawn(|seed| drawn::random(seed, Form::Two))),
    line("threads", "random steps by several threads, some never seen again", Drawn(|seed| drawn::random(seed, either(seed, Form::Two)).with(|options| options.many_threads = true))),
    line("lanes", "random steps on 1, 2, 3, 7 or 16 lanes", Drawn(drawn::lanes)),
    line("slots", "random steps on three slots", Drawn(|seed| drawn::random_on(seed, Form::Auto, vec![3 * MB, 2 * MB, 2 * MB]).with(|options| options.many_threads = true))),
    line("eadr", "random steps where caches persist, cut within stores", Drawn(|seed| drawn::random(seed, either(seed, Form::Two)).with(|options| (options.caches, options.many_threads) = (Caches::Kept, seed % 3 == 1)))),
    line("cut-off", "random steps, every other one cut off for good", Drawn(|seed| drawn::random(seed, Form::Auto).with(|options| (options.cut_off_one_in, options.many_threads) = (2, true)))),
    line("twice", "an operation cut off by a power cut that tears it, and others behind the recovery", Drawn(drawn::twice)),
    line("in-flight", "operations of several clients in flight together, some of which die", Drawn(flights::in_flight)),
    line("leaving", "those of `in-flight` beside the emptying of a slot, some of which dies", Drawn(flights::leaving)),
    line("long", "random steps behind three thousand others", Drawn(drawn::long)),
    line("full", "random steps on a full pool", Drawn(drawn::full)),
    line("collect-names", "a directory's log while it is collected", Drawn(drawn::churned_directory)).collecting(),
    line("collect-data", "a file's log while it is collected", Drawn(drawn::churned_file)).collecting(),
    line("collect-moved", "a file's log while it is collected, the pages moving about the file", Drawn(drawn::moved_file)).collecting(),
    line("collect-dead", "a log while a run of dead pages is cut out of it", Drawn(drawn::dead_run)).collecting(),
    line("guided", "variations of what reached new places", Guided(|seed| drawn::random(seed, Form::Auto))),
];

const fn line(name: &'static str, what: &'static str, how: How) -> Workload {
    Workload { name, what, how, collects: false }
}

impl Workload {
    const fn collecting(self) -> Self {
        Self { collects: true, ..self }
    }

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.iter().find(|workload| workload.name == name).copied()
    }
}
