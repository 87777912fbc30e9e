//! The promise: the library does what POSIX says, in every step of random sequences, and what it
//! said is there after a close and after a death. `NOVALE_LAB_SECONDS` and `NOVALE_LAB_SEED` make it
//! go on longer and elsewhere; a failure prints a sequence for `parse_steps`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

use novale_core::{Form, Mode};
use novale_lab::diff::{Budget, CoreMachine, CoreOptions, NoSpace, Summary, search};
use novale_lab::workload::parse_steps;

const MB: u64 = 1 << 20;

fn run(name: &str, sequences: u64, no_space: NoSpace, options: &CoreOptions) -> Summary {
    run_behind(name, &Budget::from_env(sequences, 2000), no_space, options)
}

fn run_behind(name: &str, budget: &Budget, no_space: NoSpace, options: &CoreOptions) -> Summary {
    println!("{name}: first seed {}, {}", budget.seed, budget.length);
    match search(budget, no_space, |_| CoreMachine::new(options).unwrap()) {
        Ok(summary) => {
            println!("{name}: {summary:?}");
            summary
        }
        Err(found) => panic!("{name} differs:\n{found}"),
    }
}

#[test]
fn in_the_form_that_fits() {
    let options = CoreOptions::new(vec![64 * MB], 4, Form::Auto);
    run("auto", 40, NoSpace::Wrong, &options);
}

#[test]
fn in_the_single_fence_form_on_one_lane() {
    let options = CoreOptions::new(vec![64 * MB], 1, Form::Single);
    run("single", 24, NoSpace::Wrong, &options);
}

#[test]
fn in_the_two_fence_form_on_three_slots() {
    let options = CoreOptions::new(vec![32 * MB, 8 * MB, 24 * MB], 2, Form::Two);
    run("two", 20, NoSpace::Wrong, &options);
}

#[test]
fn with_writes_that_are_buffered() {
    let mode = Mode::Buffered;
    let options = CoreOptions { mode, ..CoreOptions::new(vec![64 * MB], 2, Form::Auto) };
    run("buffered", 24, NoSpace::Wrong, &options);
}

#[test]
fn with_too_little_space() {
    let options = CoreOptions::new(vec![8 * MB], 1, Form::Auto);
    let mut budget = Budget::from_env(30, 600);
    let mut setup = "create /ballast kind=file mode=600 uid=0 gid=0 rdev=0 target=%\n".to_owned();
    // Until nothing fits any more; then there is room again for a few hundred pages.
    setup.push_str(&"append /ballast len=1048576 fill=3\n".repeat(7));
    setup.push_str(&"append /ballast len=16384 fill=3\n".repeat(60));
    setup.push_str("compare\nset /ballast size=7000000\n");
    budget.setup = parse_steps(&setup).unwrap();
    let summary = run_behind("small", &budget, NoSpace::Allowed, &options);
    assert!(summary.no_space > 0, "there was space: {summary:?}");
    // What is buffered has room reserved: none of it is refused when it is flushed.
    let buffered = CoreOptions { mode: Mode::Buffered, ..options };
    let summary = run_behind("small and buffered", &budget, NoSpace::Allowed, &buffered);
    assert!(summary.no_space > 0, "there was space: {summary:?}");
}
