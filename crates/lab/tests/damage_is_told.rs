//! The promise: a damaged pool gives errors, never a panic, a hang, or a use of memory outside.
//! Random sequences fill pools, random wounds follow, most with right checksums; then the pool is
//! checked, opened, read, used and closed. `NOVALE_LAB_SECONDS` and `NOVALE_LAB_SEED` make it go on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;
use novale_core::{Form, Serial};
use novale_lab::crash::{probe, small_step};
use novale_lab::damage::{Kind, wound};
use novale_lab::diff::{
    Budget, CoreMachine, make_pool, now_ns_at, open_pool, panic_text, snapshot,
};
use novale_lab::pool_file::PoolFile;
use novale_lab::watchdog::Watchdog;
use novale_lab::workload::{Flavor, Generator, Session, Step, run_step};
use novale_pm::PmOptions;

const POOL_BYTES: u64 = 8 << 20;

/// No case takes longer than this, but for a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pool in which a sequence ran, closed or not.
fn filled(seed: u64, pool: &PoolFile) -> Result<(), String> {
    make_pool(&pool.open(&PmOptions::default())?, 2)?;
    let fs = open_pool(pool.open(&PmOptions::default())?, Form::Auto, now_ns_at(0))?;
    let mut machine = CoreMachine::around(fs);
    let mut session = Session::default();
    let steps = Generator::new(seed, Flavor::of_seed(seed)).steps(150, 1000);
    for (index, step) in steps.into_iter().map(small_step).enumerate() {
        if !matches!(step, Step::Remount | Step::Die) {
            run_step(&mut machine, &mut session, &step, now_ns_at(index + 1));
        }
    }
    if seed.is_multiple_of(2) { machine.close() } else { Ok(()) }
}

/// Uses a damaged pool in every way; all errors are welcome.
fn use_it(seed: u64, pool: &PoolFile) -> Result<(), String> {
    let now_ns = now_ns_at(1000);
    let pm = pool.open(&PmOptions { read_only: true, ..PmOptions::default() })?;
    let checked = novale_core::check(&pm, &Serial, &|_| ());
    let looked = novale_core::inspect(&pm);
    drop((checked.is_ok(), looked.is_ok(), pm));
    let fs = open_pool(pool.open(&PmOptions::default())?, Form::Auto, now_ns)?;
    let mut machine = CoreMachine::around(fs);
    let shown = snapshot(&mut machine, now_ns);
    let mut session = Session::default();
    let steps = Generator::new(seed, Flavor::of_seed(seed)).steps(60, 1000);
    for (index, step) in steps.into_iter().map(small_step).enumerate() {
        run_step(&mut machine, &mut session, &step, now_ns + i64::try_from(index).unwrap());
    }
    let probed = probe(&mut machine, now_ns);
    let closed = machine.close();
    drop(machine);
    let again = open_pool(pool.open(&PmOptions::default())?, Form::Auto, now_ns)?;
    drop(again);
    shown.map(drop).and(probed).and(closed)
}

#[test]
fn by_errors_alone() {
    let watchdog = Watchdog::new(PATIENCE);
    let budget = Budget::from_env(800, 0);
    println!("damage: first seed {}, {}", budget.seed, budget.length);
    let start = Instant::now();
    let (mut cases, mut survived, mut panics) = (0, 0, Vec::new());
    for seed in budget.seed.. {
        if !budget.goes_on(cases, start) {
            break;
        }
        let pool = PoolFile::zeroed(&[POOL_BYTES]).unwrap();
        filled(seed, &pool).unwrap();
        let mut random = Rng::with_seed(seed);
        let pm = pool.open(&PmOptions::default()).unwrap();
        let wounds: Vec<String> = (0..random.u32(1..4))
            .filter_map(|_| wound(&pm, Kind::any(&mut random), &mut random))
            .collect();
        drop(pm);
        watchdog.begin(format!("seed {seed}: {wounds:#?}"));
        match catch_unwind(AssertUnwindSafe(|| use_it(seed, &pool))) {
            Ok(used) => survived += u32::from(used.is_ok()),
            Err(payload) => {
                panics.push(format!("seed {seed}: {}\n{wounds:#?}", panic_text(payload.as_ref())));
            }
        }
        cases += 1;
        if panics.len() > 20 {
            break;
        }
    }
    println!("damage: {cases} cases, {survived} of them harmless");
    assert!(panics.is_empty(), "{} panics:\n{}", panics.len(), panics.join("\n"));
}
