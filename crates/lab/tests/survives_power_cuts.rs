//! The promise: every operation is durable when it returns and all or nothing if the power goes
//! before. Each sequence is cut at each fence and behind each operation; `NOVALE_LAB_SECONDS` and
//! `NOVALE_LAB_SEED` make it go on longer and elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

use std::time::Instant;

use novale_core::Form;
use novale_lab::crash::{CrashOptions, CrashSummary, Effort, explore, small_step};
use novale_lab::diff::{Budget, CoreOptions, shrink};
use novale_lab::workload::{Flavor, Generator, Step, print_steps};

const MB: u64 = 1 << 20;

/// Explorations that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 150;

fn run(name: &str, seconds: u64, form: Form, lanes: u32, many_threads: bool) {
    let budget = Budget::from_env(seconds, 30);
    println!("{name}: first seed {}, {} s", budget.seed, budget.time.as_secs());
    let start = Instant::now();
    let mut summary = CrashSummary::default();
    let mut seed = budget.seed;
    while start.elapsed() < budget.time {
        let options = CrashOptions {
            core: CoreOptions { slots: vec![12 * MB], lanes, form },
            effort: Effort { subset_lines_max: 5, data_lines_max: 3, random: 4 },
            used_one_in: 16,
            nested_one_in: 97,
            many_threads,
            seed,
        };
        let steps = Generator::new(seed, Flavor::of_seed(seed)).steps(budget.steps, 1000);
        let steps: Vec<Step> = steps.into_iter().map(small_step).collect();
        match explore(&steps, &options) {
            Ok(explored) => summary += explored,
            Err(failure) => fail(name, seed, steps, *failure, &options),
        }
        seed += 1;
    }
    println!("{name}: {summary:?}");
}

fn fail(
    name: &str,
    seed: u64,
    mut steps: Vec<Step>,
    mut failure: novale_lab::crash::CrashFailure,
    options: &CrashOptions,
) {
    steps.truncate(failure.index + 1);
    let steps = shrink(steps, SHRINK_RUNS_MAX, &mut |candidate: &[Step]| {
        explore(candidate, options).is_err_and(|found| {
            failure = *found;
            true
        })
    });
    panic!("{name}, seed {seed}: {failure}\nin\n{}", print_steps(&steps));
}

#[test]
fn in_the_form_that_fits() {
    run("auto", 7, Form::Auto, 2, false);
}

#[test]
fn in_the_two_fence_form() {
    run("two", 7, Form::Two, 1, false);
}

#[test]
fn when_each_thread_fences_for_itself() {
    run("threads", 7, Form::Auto, 2, true);
}

#[test]
fn when_threads_share_a_lane_in_the_two_fence_form() {
    run("threads, two", 7, Form::Two, 1, true);
}
