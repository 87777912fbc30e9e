//! The promise: each pair of operations, over names and sizes chosen to get into each other's way,
//! survives a power cut at any fence (the shape that ACE explores: Mohan and others, OSDI 2018,
//! section 5). The pairs come in a random order; `NOVALE_LAB_SECONDS` lets all of them be tried.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

use std::time::Instant;

use fastrand::Rng;
use novale_core::Form;
use novale_lab::crash::{CrashOptions, CrashSummary, Effort, explore};
use novale_lab::diff::{Budget, CoreOptions};
use novale_lab::workload::{Step, parse_steps, print_steps};

const POOL_BYTES: u64 = 4 << 20;

/// What is there before: two directories, a file of one page and a bit with two names, an empty
/// one, and one of several pages with a hole.
const SETUP: &str = "
    create /A kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /B kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /A/foo kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    write /A/foo offset=0 len=5000 fill=1
    link /A/foo /B/link
    create /A/bar kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    create /big kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    write /big offset=0 len=4096 fill=2
    write /big offset=12288 len=9000 fill=3
";

/// The operations of which pairs are made.
const OPERATIONS: &str = "
    create /A/new kind=file mode=644 uid=1 gid=1 rdev=0 target=%
    create /A/n*200 kind=directory mode=2755 uid=1 gid=1 rdev=0 target=%
    create /B/symlink kind=symlink mode=777 uid=0 gid=0 rdev=0 target=t*100
    create /B/device kind=char mode=600 uid=0 gid=0 rdev=259 target=%
    link /A/bar /A/new
    link /A/foo /B/n*100
    unlink /A/foo
    unlink /B/link
    unlink /A/bar
    unlink /big
    rmdir /B
    rmdir /A
    rename /A/foo /A/new mode=replace
    rename /A/foo /B/moved mode=replace
    rename /A/foo /A/bar mode=replace
    rename /A/bar /B/link mode=replace
    rename /A/foo /B/link mode=replace
    rename /A /C mode=noreplace
    rename /B /A/B mode=replace
    rename /A /B mode=exchange
    rename /A/bar /big mode=exchange
    rename /A/bar /B mode=exchange
    hold /A/bar slot=1
    hold /big slot=2
    release slot=1
    write /A/bar offset=0 len=8 fill=11
    write /A/bar offset=4090 len=20000 fill=12
    append /A/foo len=1 fill=13
    append /A/foo len=4096 fill=14
    write /A/foo offset=64 len=64 fill=15
    write /A/foo offset=1 len=7 fill=16
    write /A/foo offset=2048 len=4000 fill=17
    write /A/foo offset=40000 len=100 fill=18
    write /big offset=0 len=21288 fill=19
    write /big offset=4096 len=8192 fill=20
    set /A/foo size=0
    set /A/foo size=4096
    set /A/foo size=4500
    set /A/foo size=9000
    set /big size=13000
    set /big size=5000000
    set /A/bar size=100
    allocate /big extend=1 offset=4096 len=30000
    allocate /A/bar extend=0 offset=0 len=8192
    set /A/foo mode=6755 uid=3
    set /A mtime=5 atime=-7
    set /A/foo gid=2 clear_set_id=1 size=300
    remount
    die
";

fn try_pairs(name: &str, seconds: u64, form: Form) {
    let (setup, operations) = (parse_steps(SETUP).unwrap(), parse_steps(OPERATIONS).unwrap());
    let mut pairs: Vec<(&Step, &Step)> = operations
        .iter()
        .flat_map(|first| operations.iter().map(move |then| (first, then)))
        .collect();
    let budget = Budget::from_env(seconds, 0);
    Rng::with_seed(budget.seed).shuffle(&mut pairs);
    println!("{name}: seed {}, {} s", budget.seed, budget.time.as_secs());
    let (start, mut tried, mut summary) = (Instant::now(), 0, CrashSummary::default());
    for (first, then) in &pairs {
        if start.elapsed() >= budget.time {
            break;
        }
        let options = CrashOptions {
            core: CoreOptions { slots: vec![POOL_BYTES], lanes: 1, form },
            from_step: setup.len(),
            effort: Effort {
                subset_lines_max: 4,
                data_lines_max: 2,
                random: 3,
                ..Effort::default()
            },
            used_one_in: 24,
            nested_one_in: 89,
            many_threads: tried % 3 == 2,
            cut_off_one_in: 6,
            seed: budget.seed,
            ..CrashOptions::default()
        };
        let steps: Vec<Step> = setup.iter().chain([*first, *then]).cloned().collect();
        match explore(&steps, &options) {
            Ok(explored) => summary += explored,
            Err(failure) => panic!("{name}: {failure}\nin\n{}", print_steps(&steps)),
        }
        tried += 1;
    }
    println!("{name}: {tried} of {} pairs, {summary:?}", pairs.len());
}

#[test]
fn in_the_single_fence_form() {
    try_pairs("pairs, single", 8, Form::Single);
}

#[test]
fn in_the_two_fence_form() {
    try_pairs("pairs, two", 8, Form::Two);
}
