//! Which sequences there are to be cut: a line each in [`WORKLOADS`].

use novale_core::Form;

use crate::crash::{CrashOptions, Effort, small_step};
use crate::diff::CoreOptions;
use crate::workload::{Flavor, Generator, Step};

/// A sequence, and how it is cut.
#[derive(Debug, Clone)]
pub struct Case {
    /// The steps.
    pub steps: Vec<Step>,
    /// The pool, and what is tried.
    pub options: CrashOptions,
}

/// A kind of sequences.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// The case of a seed.
    pub make: fn(u64) -> Case,
}

const MB: u64 = 1 << 20;

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload { name: "random", what: "random steps, form as it fits", make: random },
    Workload { name: "random-two", what: "random steps, two-fence form, one lane", make: two },
    Workload {
        name: "threads",
        what: "random steps, every other by its own thread",
        make: threads,
    },
];

/// Steps of a random sequence that are cut.
const STEPS: usize = 30;

fn random(seed: u64) -> Case {
    with(seed, &CoreOptions { slots: vec![6 * MB], lanes: 2, form: Form::Auto }, false)
}

fn two(seed: u64) -> Case {
    with(seed, &CoreOptions { slots: vec![6 * MB], lanes: 1, form: Form::Two }, false)
}

fn threads(seed: u64) -> Case {
    with(seed, &CoreOptions { slots: vec![6 * MB], lanes: 2, form: Form::Auto }, true)
}

fn with(seed: u64, core: &CoreOptions, many_threads: bool) -> Case {
    let options = CrashOptions {
        core: core.clone(),
        // Every third sequence has a past that is not cut: longer logs, more names.
        from_step: if seed.is_multiple_of(3) { 4 * STEPS } else { 0 },
        effort: Effort { subset_lines_max: 5, data_lines_max: 3, ..Effort::default() },
        used_one_in: 16,
        nested_one_in: 97,
        many_threads,
        seed,
        ..CrashOptions::default()
    };
    let count = options.from_step + STEPS;
    let steps = Generator::new(seed, Flavor::of_seed(seed / 3)).steps(count, 1000);
    Case { steps: steps.into_iter().map(small_step).collect(), options }
}
