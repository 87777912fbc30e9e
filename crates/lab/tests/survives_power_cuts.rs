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
use novale_lab::workload::{Flavor, Generator, Step, parse_steps, print_steps};

const MB: u64 = 1 << 20;

/// Explorations that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 150;

fn run(name: &str, seconds: u64, form: Form, lanes: u32, many_threads: bool) {
    let core = CoreOptions { slots: vec![6 * MB], lanes, form };
    run_behind(name, seconds, &[], &core, many_threads);
}

/// Runs sequences behind a setup that is not cut.
fn run_behind(name: &str, seconds: u64, setup: &[Step], core: &CoreOptions, many_threads: bool) {
    let budget = Budget::from_env(seconds, 30);
    println!("{name}: first seed {}, {} s", budget.seed, budget.time.as_secs());
    let start = Instant::now();
    let mut summary = CrashSummary::default();
    let mut seed = budget.seed;
    while start.elapsed() < budget.time {
        let options = CrashOptions {
            core: core.clone(),
            // Every third sequence has a past that is not cut: longer logs, more names.
            from_step: setup.len() + if seed.is_multiple_of(3) { 4 * budget.steps } else { 0 },
            effort: Effort {
                subset_lines_max: 5,
                data_lines_max: 3,
                random: 4,
                ..Effort::default()
            },
            used_one_in: 16,
            nested_one_in: 97,
            many_threads,
            cut_off_one_in: 8,
            seed,
            ..CrashOptions::default()
        };
        let count = options.from_step - setup.len() + budget.steps;
        let steps = Generator::new(seed, Flavor::of_seed(seed / 3)).steps(count, 1000);
        let steps = setup.iter().cloned().chain(steps.into_iter().map(small_step));
        let steps: Vec<Step> = steps.collect();
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

#[test]
fn on_three_slots() {
    let core = CoreOptions { slots: vec![3 * MB, 2 * MB, 2 * MB], lanes: 2, form: Form::Auto };
    run_behind("slots", 7, &[], &core, true);
}

#[test]
fn in_a_full_pool() {
    let core = CoreOptions { slots: vec![2 * MB], lanes: 1, form: Form::Auto };
    let mut setup = "create /ballast kind=file mode=600 uid=0 gid=0 rdev=0 target=%\n".to_owned();
    setup.push_str(&"append /ballast len=65536 fill=3\n".repeat(28));
    setup.push_str(&"append /ballast len=4096 fill=3\n".repeat(20));
    setup.push_str("set /ballast size=1500000\n");
    run_behind("full", 7, &parse_steps(&setup).unwrap(), &core, false);
}
