//! The promise: log collection can be cut off anywhere. Logs grow here until both collectors run,
//! in files and directories, with what they must not resurrect (holes, deletes) among the entries.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and tell as the test does"
)]

use std::fmt::Write as _;

use novale_core::Form;
use novale_lab::crash::{CrashOptions, Effort, explore};
use novale_lab::diff::{Budget, CoreOptions};
use novale_lab::workload::parse_steps;

const MB: u64 = 1 << 20;

fn run(name: &str, text: &str, form: Form) {
    let budget = Budget::from_env(0, 0);
    let options = CrashOptions {
        core: CoreOptions { slots: vec![12 * MB], lanes: 1, form },
        from_step: 0,
        effort: Effort { subset_lines_max: 2, data_lines_max: 1, random: 1, ..Effort::default() },
        used_one_in: 64,
        nested_one_in: 211,
        many_threads: false,
        cut_off_one_in: 0,
        seed: budget.seed,
        ..CrashOptions::default()
    };
    let steps = parse_steps(text).unwrap();
    match explore(&steps, &options) {
        Ok(summary) => println!("{name}: {summary:?}"),
        Err(failure) => panic!("{name}: {failure}"),
    }
}

/// A directory whose names come and go, some for good, so that windows are half dead.
fn churn(names: u32) -> String {
    let mut text = String::from("create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=\n");
    for index in 0..names {
        writeln!(text, "create /d/n{index} kind=file mode=644 uid=0 gid=0 rdev=0 target=").unwrap();
        if index % 5 != 0 {
            writeln!(text, "unlink /d/n{index}").unwrap();
        }
        if index % 40 == 39 {
            writeln!(text, "rename /d/n{} /d/again mode=replace", index / 40 * 40).unwrap();
        }
    }
    text
}

/// A file overwritten here and there and cut off now and then.
fn overwrites(count: u32) -> String {
    let mut text = String::from("create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=\n");
    for index in 0..count {
        let page = index * 7 % 11;
        writeln!(text, "write /f offset={} len=4096 fill={}", page * 4096, index % 250 + 1)
            .unwrap();
        if index % 50 == 49 {
            writeln!(text, "set /f size={}", page * 4096).unwrap();
            writeln!(text, "set /f mode={}", if index % 100 == 49 { 600 } else { 640 }).unwrap();
        }
    }
    text
}

#[test]
fn of_a_directory() {
    run("directory", &churn(110), Form::Auto);
}

#[test]
fn of_a_file_in_the_single_fence_form() {
    run("file, single", &overwrites(260), Form::Auto);
}

#[test]
fn of_a_file_in_the_two_fence_form() {
    run("file, two", &overwrites(200), Form::Two);
}
