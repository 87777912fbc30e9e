//! The promise: every operation is durable when it returns and all or nothing if the power goes
//! before, in every workload of the lab. `NOVALE_LAB_SECONDS` (for each) and `NOVALE_LAB_SEED` make it
//! go on longer and elsewhere; `novale-lab run` does the same for as long as one likes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

mod support;

use std::time::Duration;

use novale_core::{Ctx, Form, NewInode, Node};
use novale_lab::campaign::{Campaign, How, Rates, WORKLOADS, Workload, parse_replay, print_replay};
use novale_lab::crash::{CrashSummary, Effort, explore};
use novale_lab::diff::{Budget, Length, make_pool, open_pool};
use novale_layout::{FileKind, INODES_PER_CHUNK};
use novale_pm::{Pm, PmOptions};
use support::{is_share, share};

/// No workload here takes so long: what was not run then is a failure.
const PATIENCE: Duration = Duration::from_secs(900);

/// So many sequences of each workload; in a share some of them, one by one.
fn run(workloads: &[(&'static str, u64)]) {
    if !is_share() {
        return workloads.iter().for_each(|(name, sequences)| run_one(name, *sequences, 0));
    }
    let each = |(name, sequences): &(&'static str, u64)| {
        let name = *name;
        (0..*sequences).map(move |after| (name, after))
    };
    for (name, after) in share(workloads.iter().flat_map(each).collect()) {
        run_one(name, 1, after);
    }
}

/// So many sequences of a workload, so many seeds behind the first.
fn run_one(name: &str, sequences: u64, after: u64) {
    let budget = Budget::from_env(sequences, 0);
    let (sequences, time) = match budget.length {
        Length::Sequences(count) => (Some(count), PATIENCE),
        Length::Time(time) => (None, time),
    };
    let campaign = Campaign {
        workloads: vec![Workload::named(name).unwrap()],
        seed: budget.seed + after,
        sequences,
        time,
        threads: 1,
        violations_max: 1,
        rates: Rates::default(),
    };
    let report = campaign.run(&|_| ());
    let (states, done) = (report.crash_states, report.sequences);
    println!("{name}: {done} sequences, {states} crash states, {:?}", report.summary);
    if let Some(violation) = report.violations.first() {
        panic!("{}", print_replay(&violation.case, &violation.failure.to_string()));
    }
    assert!(states > 0);
    assert!(
        sequences.is_none_or(|count| done == count),
        "{name}: incomplete, {done} of {sequences:?} sequences in {time:?}"
    );
}

#[test]
fn in_short_sequences() {
    run(&[("single", 8), ("pairs", 8), ("held", 8)]);
}

#[test]
fn around_every_border() {
    run(&[("sizes", 25), ("names", 3), ("borders", 9)]);
}

#[test]
fn in_trees_with_limits_and_on_a_full_pool() {
    run(&[("trees", 4), ("pairs-full", 3)]);
}

#[test]
fn while_views_are_dropped() {
    run(&[("held-dropped", 6), ("mapped-dropped", 4), ("overwrites-dropped", 3)]);
}

#[test]
fn in_random_sequences() {
    run(&[("random", 1), ("two", 1), ("slots", 1)]);
}

#[test]
fn when_each_thread_fences_for_itself() {
    run(&[("threads", 1), ("lanes", 1)]);
}

#[test]
fn where_caches_persist() {
    run(&[("eadr", 4)]);
}

#[test]
fn when_recovery_follows_recovery() {
    run(&[("cut-off", 2), ("twice", 12), ("appends", 10)]);
}

#[test]
fn by_every_method_of_writes() {
    run(&[("overwrites", 15), ("methods", 2)]);
}

#[test]
fn of_buffered_writes() {
    run(&[("buffered", 4)]);
}

#[test]
fn of_reads_that_change_access_times() {
    run(&[("reads", 1)]);
}

#[test]
fn with_several_operations_in_flight_together() {
    run(&[("in-flight", 3)]);
}

/// What a seed says happens again: the same points, images and deaths, or a failure could not be
/// replayed.
#[test]
fn with_clients_that_die_in_flight_and_the_same_again() {
    let How::Drawn(make) = Workload::named("in-flight").unwrap().how else { panic!() };
    let (mut seen, mut again) = (CrashSummary::default(), CrashSummary::default());
    for seed in 1..5 {
        let mut case = make(seed);
        let options = &mut case.options;
        options.effort = Effort { random: 1, pairs: 0, data_lines_max: 0, ..Effort::default() };
        (options.clients, options.dies_one_in) = (3, 1);
        (options.used_one_in, options.nested_one_in) = (0, 0);
        for seen in [&mut seen, &mut again] {
            *seen += explore(&case.steps, options).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
    println!("{seen:?}");
    assert!(seen.deaths > 0 && seen.settled_in_flight > 0, "{seen:?}");
    assert_eq!(seen, again);
}

#[test]
fn while_a_slot_is_emptied() {
    run(&[("leaving", 1)]);
}

#[test]
fn of_files_that_are_mapped() {
    run(&[("mapped", 10), ("maps", 2)]);
}

#[test]
fn in_a_full_pool() {
    run(&[("full", 1)]);
}

#[test]
fn while_logs_are_collected() {
    run(&[
        ("collect-names", 1),
        ("collect-data", 1),
        ("collect-moved", 1),
        ("collect-dead", 1),
        ("long", 1),
    ]);
}

/// For long the workloads for collection met the thorough collector alone: windows of which more than
/// half lives, around a page that is dead, were never in the stretch that is cut.
#[test]
fn while_either_collector_runs() {
    let mut seen = CrashSummary::default();
    for (name, seed) in
        [("collect-names", 1), ("collect-data", 1), ("collect-moved", 1), ("collect-dead", 1)]
    {
        let How::Drawn(make) = Workload::named(name).unwrap().how else { panic!("{name}") };
        let mut case = make(seed);
        let options = &mut case.options;
        options.effort = Effort {
            subset_lines_max: 2,
            data_lines_max: 0,
            pairs: 0,
            random: 0,
            at_stores: false,
        };
        (options.used_one_in, options.nested_one_in) = (0, 0);
        seen += explore(&case.steps, options).unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{seen:?}");
    assert!(seen.collected_fast > 0 && seen.collected_thorough > 0, "{seen:?}");
}

/// A log of one page grows where there is little room, and is written anew behind the operation.
#[test]
fn while_a_short_log_is_written_anew_in_a_full_pool() {
    let file = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
    let pieces = |name, bytes: u64| {
        let piece = move |at| format!("write /{name} offset={} len=65536 fill=1\n", at * 65536);
        (0..bytes / 65536).map(piece).collect::<String>()
    };
    let over = |n| format!("write /f offset={} len=4096 fill={}\n", n * 7 % 16 * 4096, n % 200);
    let over: String = (0..70).map(over).collect();
    let text = format!(
        "options slots=2097152 form=auto lanes=1 from_step=91 subset_lines_max=6 data_lines_max=1 pairs=8 \
         random=8 at_stores=1 used_one_in=16 nested_one_in=40 cut_off_one_in=4 many_threads=0 eadr=0 seed=1\n\
         create /f {file}\ncreate /g {file}\n{}{}{over}",
        pieces("f", 1 << 16),
        pieces("g", 27 << 16)
    );
    let case = parse_replay(&text).unwrap();
    let seen = explore(&case.steps, &case.options).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{seen:?}");
    assert!(seen.collected_thorough > 0, "{seen:?}");
}

/// The first chunk of inodes is there from mkfs on. No workload has so many that another one comes.
#[test]
fn while_the_directory_of_inodes_gets_a_chunk() {
    let create = |n| format!("create /d/{n} kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n");
    // No inode has the number 0; the root and the directory are there.
    let before = INODES_PER_CHUNK - 3;
    assert_eq!(number_behind(before), INODES_PER_CHUNK);
    let options = format!(
        "options slots=25165824 form=auto lanes=1 from_step={} subset_lines_max=1 data_lines_max=1 pairs=1 \
         random=1 at_stores=0 used_one_in=0 nested_one_in=1000 cut_off_one_in=0 many_threads=0 eadr=0 seed=1\n",
        before + 1
    );
    let directory = "create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%\n";
    let text = [options, directory.to_owned(), (0..=before).map(create).collect()].concat();
    let case = parse_replay(&text).unwrap();
    let seen = explore(&case.steps, &case.options).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{seen:?}");
}

/// The number of the file that is made behind so many others in a directory.
fn number_behind(others: u64) -> u64 {
    let pm = Pm::anonymous(&[24 << 20], &PmOptions::default()).unwrap();
    make_pool(&pm, 1).unwrap();
    let fs = open_pool(pm, Form::Auto, 0).unwrap();
    let make = |dir, name: &str, kind| {
        let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
        let ctx = Ctx { now_ns: 1, hint: 0 };
        fs.create(&ctx, dir, name.as_bytes(), &new).unwrap().ino
    };
    let dir = Node::current(make(Node::ROOT, "d", FileKind::Directory));
    (0..=others).map(|n| make(dir, &n.to_string(), FileKind::File).get()).max().unwrap()
}

#[test]
fn in_sequences_that_grow() {
    run(&[("guided", 2)]);
}

#[test]
fn every_workload_is_run_above() {
    let source = include_str!("survives_power_cuts.rs");
    for Workload { name, .. } in WORKLOADS {
        assert!(source.contains(&format!("\"{name}\"")), "{name}");
    }
}
