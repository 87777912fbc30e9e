//! NOVA's test of collection (FAST '16, 5.4): its fileserver on a pool that is 95 % full. What is
//! lost over time, what each collector reclaims, and the longest that anything waits.
//!
//! A step's time on a CPU has interrupts in it, and what a host takes from a virtual machine. So a
//! thread that only computes runs along, and its longest turn of what takes it [`CONTROL_US`] else is
//! what the machine adds; and of the longest steps it is told how many lines they stored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use novale_core::GcStats;

use crate::place::MB;
use crate::progress::Bar;
use crate::report::{Cell, Report};
use crate::stats::{cpu_ns, float, median};
use crate::target::Target;
use crate::workload::{Count, Profile, Watch, Worker, make_dirs};
use crate::{Common, setup};

/// Seconds at either end that are compared, where the run is long enough.
const END_SECONDS: usize = 30;

/// What `aging` takes beside what all do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// MB of the pool.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(64..=65_536))]
    pub(crate) pool_mb: u64,
    /// How full it is all the time.
    #[arg(long, default_value_t = 95, value_parser = clap::value_parser!(u64).range(1..=97))]
    pub(crate) percent: u64,
    /// How long it runs.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub(crate) seconds: u64,
}

/// About how long a turn of the control takes, in us.
const CONTROL_US: u64 = 20;
/// Longest steps that are told of.
const LONGEST: usize = 5;

/// A step's times in ns: by the clock, and of them the thread's own on a CPU, which does not count
/// what other processes take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Longest {
    wall_ns: u64,
    cpu_ns: u64,
}

impl Longest {
    fn note(&mut self, other: Self) {
        self.wall_ns = self.wall_ns.max(other.wall_ns);
        self.cpu_ns = self.cpu_ns.max(other.cpu_ns);
    }
}

/// One of the longest steps.
#[derive(Debug, Clone, Copy)]
struct Long {
    cpu_ns: u64,
    wall_ns: u64,
    name: &'static str,
    /// Lines that it stored.
    lines: u64,
    /// Log pages reclaimed meanwhile.
    reclaimed: u64,
}

/// The longest steps, the longest first.
#[derive(Debug, Clone, Default)]
struct LongSteps(Vec<Long>);

impl LongSteps {
    fn note(&mut self, step: Long) {
        if self.0.len() == LONGEST && self.0.last().is_some_and(|last| last.cpu_ns >= step.cpu_ns) {
            return;
        }
        let at = self.0.partition_point(|other| other.cpu_ns >= step.cpu_ns);
        self.0.insert(at, step);
        self.0.truncate(LONGEST);
    }
}

/// What one thread has seen.
#[derive(Debug)]
struct Seen {
    begun: Instant,
    /// Lines that the thread had stored when the last step ended.
    lines: u64,
    long: LongSteps,
    /// Steps in each second.
    seconds: Vec<u64>,
    any: Longest,
    /// Steps in which log pages were reclaimed, by this thread or meanwhile by another.
    collecting: Longest,
}

impl Watch for Seen {
    fn step<T>(&mut self, target: &Target, name: &'static str, step: impl FnOnce() -> T) -> T {
        let pages = || target.fs().map(novale_core::Fs::gc_stats).unwrap_or_default();
        let (before, cpu, begun) = (pages(), cpu_ns(), Instant::now());
        let value = step();
        let (ended, cpu) = (Instant::now(), cpu_ns() - cpu);
        let wall_ns = u64::try_from((ended - begun).as_nanos()).unwrap_or(u64::MAX);
        let times = Longest { wall_ns, cpu_ns: cpu };
        self.any.note(times);
        let behind = pages();
        if behind != before {
            self.collecting.note(times);
        }
        let stored = target.fs().map_or(0, |fs| fs.pm().thread_counters().lines());
        let lines = stored - std::mem::replace(&mut self.lines, stored);
        let all = |stats: GcStats| stats.fast_pages + stats.thorough_pages;
        let reclaimed = all(behind) - all(before);
        self.long.note(Long { cpu_ns: cpu, wall_ns, name, lines, reclaimed });
        let second = usize::try_from((ended - self.begun).as_secs()).unwrap_or(usize::MAX);
        if let Some(count) = self.seconds.get_mut(second) {
            *count += 1;
        }
        value
    }
}

/// Runs the fileserver on a full pool through the library.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Report> {
    let threads = common.threads()?;
    let lanes = u32::try_from(threads)?;
    let target = Target::library(&common.place(), options.pool_mb * MB, lanes)?;
    let all = age(&target, threads, options)?;
    Ok(report(common, options, threads, &all))
}

/// What all threads have seen.
#[derive(Debug, Default)]
struct All {
    seconds: Vec<u64>,
    any: Longest,
    collecting: Longest,
    long: LongSteps,
    /// The longest turn of a thread that only computes, ns of a CPU, and the usual one.
    control: [u64; 2],
    reclaimed: GcStats,
    /// Permille of the pages in use when it began and in the end.
    used: [u64; 2],
}

fn age(target: &Target, threads: usize, options: &Options) -> Result<All> {
    let fs = target.fs().context("collection is the library's")?;
    let files = options.pool_mb * MB / Profile::Fileserver.shape().mean_bytes;
    let dirs = make_dirs(target, Profile::Fileserver, files)?;
    let workers: Vec<_> = (0..threads)
        .map(|thread| Mutex::new(Worker::new(target, Profile::Fileserver, thread, dirs)))
        .collect();
    fill(fs, &workers, options.percent)?;
    let seconds = usize::try_from(options.seconds)?;
    let before = fs.gc_stats();
    let mut all = All { seconds: vec![0; seconds], ..All::default() };
    all.used[0] = used_permille(fs)?;
    let (start, bar) = (Barrier::new(threads), Bar::new("seconds", options.seconds));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let running: Vec<_> = workers
            .iter()
            .enumerate()
            .map(|(thread, worker)| {
                let (start, bar) = (&start, (thread == 0).then_some(&bar));
                scope.spawn(move || {
                    let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                    start.wait();
                    work(&mut worker, seconds, bar)
                })
            })
            .collect();
        let control = scope.spawn(|| control(&ended));
        let seen: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ended.store(true, Ordering::Relaxed);
        all.control = control.join().map_err(|_| anyhow::anyhow!("the control panicked"))?;
        for seen in seen {
            let seen = seen.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            all.seconds.iter_mut().zip(&seen.seconds).for_each(|(sum, count)| *sum += count);
            all.any.note(seen.any);
            all.collecting.note(seen.collecting);
            seen.long.0.into_iter().for_each(|step| all.long.note(step));
        }
        Ok(())
    })?;
    let behind = fs.gc_stats();
    all.reclaimed = GcStats {
        fast_pages: behind.fast_pages - before.fast_pages,
        thorough_pages: behind.thorough_pages - before.thorough_pages,
    };
    all.used[1] = used_permille(fs)?;
    Ok(all)
}

/// Makes files until so many percent of the pages are in use; the threads' shares keep that.
fn fill(fs: &novale_core::Fs, workers: &[Mutex<Worker<'_>>], percent: u64) -> Result<()> {
    let mut count = Count::default();
    while used_permille(fs)? < percent * 10 {
        for worker in workers {
            worker.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut count)?;
        }
    }
    for worker in workers {
        worker.lock().unwrap_or_else(PoisonError::into_inner).keep_bytes();
    }
    Ok(())
}

fn used_permille(fs: &novale_core::Fs) -> Result<u64> {
    let space = fs.statfs()?;
    Ok((space.pages - space.pages_free) * 1_000 / space.pages.max(1))
}

fn work(worker: &mut Worker<'_>, seconds: usize, bar: Option<&Bar>) -> Result<Seen> {
    let begun = Instant::now();
    let mut seen = Seen {
        begun,
        seconds: vec![0; seconds],
        lines: 0,
        long: LongSteps::default(),
        any: Longest::default(),
        collecting: Longest::default(),
    };
    let end = Duration::from_secs(seconds as u64);
    let mut shown = 0;
    while begun.elapsed() < end {
        worker.turn(&mut seen)?;
        if let Some(bar) = bar
            && begun.elapsed().as_secs() > shown
        {
            shown += 1;
            bar.step();
        }
    }
    Ok(seen)
}

/// Computes until it is over; the longest and the usual turn, ns of a CPU.
fn control(ended: &AtomicBool) -> [u64; 2] {
    let (mut turns, mut longest, mut value) = (Vec::new(), 0, 1_u64);
    // About 3 ns each.
    let count = CONTROL_US * 1_000 / 3;
    while !ended.load(Ordering::Relaxed) {
        let begun = cpu_ns();
        for _ in 0..count {
            value = std::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        }
        let took = cpu_ns() - begun;
        longest = longest.max(took);
        if turns.len() < 10_000 {
            turns.push(took);
        }
    }
    [longest, median(turns.into_iter())]
}

fn report(common: &Common, options: &Options, threads: usize, all: &All) -> Report {
    let ends = END_SECONDS.min(all.seconds.len() / 2).max(1);
    let sum = |seconds: &[u64]| seconds.iter().sum::<u64>();
    let first = sum(all.seconds.get(..ends).unwrap_or_default()) / ends as u64;
    let last = sum(all.seconds.get(all.seconds.len() - ends..).unwrap_or_default()) / ends as u64;
    let loss = 100.0 * (1.0 - float(last) / float(first.max(1)));
    let us = |ns: u64| Cell::Ratio(float(ns) / 1000.0);
    let percent = |permille: u64| Cell::Ratio(float(permille) / 10.0);
    let row = |name: &str, value| vec![Cell::from(name), value];
    let rows = vec![
        row("steps a second, first seconds", Cell::Count(first)),
        row("steps a second, last seconds", Cell::Count(last)),
        row("lost, %", Cell::Ratio(loss)),
        row("pages reclaimed, fast", Cell::Count(all.reclaimed.fast_pages)),
        row("pages reclaimed, thorough", Cell::Count(all.reclaimed.thorough_pages)),
        row("longest step, us by the clock", us(all.any.wall_ns)),
        row("longest step, us of a CPU", us(all.any.cpu_ns)),
        row("longest that collected, us by the clock", us(all.collecting.wall_ns)),
        row("longest that collected, us of a CPU", us(all.collecting.cpu_ns)),
        row("longest turn of a thread that computes, us of a CPU", us(all.control[0])),
        row("its usual turn, us of a CPU", us(all.control[1])),
        row("pages in use at first, %", percent(all.used[0])),
        row("pages in use at last, %", percent(all.used[1])),
    ];
    let told = all.long.0.iter().map(|step| {
        let text = format!(
            "{} us of a CPU ({} by the clock), {} lines stored, {} log pages reclaimed",
            step.cpu_ns / 1_000,
            step.wall_ns / 1_000,
            step.lines,
            step.reclaimed
        );
        row(step.name, Cell::Text(text))
    });
    let rows = rows.into_iter().chain(told).collect();
    let mut setup = setup(common);
    setup.push(("pool", format!("{} MB, {} % full", options.pool_mb, options.percent)));
    setup.push(("threads", threads.to_string()));
    setup.push(("duration", format!("{} s; the first and last {ends} compared", options.seconds)));
    Report {
        name: "aging",
        title: "a fileserver on a nearly full pool (NOVA 5.4), through the library".into(),
        setup,
        columns: ["figure", "found"].map(str::to_owned).into(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// 128 MB, 90 %, 2 s: it stays as full as it was, and collection has pages to reclaim, if not at once on a
    /// busy machine.
    #[test]
    fn a_full_pool_stays_as_full_and_goes_on() {
        let reclaims = || {
            let target = Target::library(&Place::default(), 128 * MB, 2).unwrap();
            let options = Options { pool_mb: 128, percent: 90, seconds: 2 };
            let all = age(&target, 2, &options).unwrap();
            assert!(all.seconds.iter().sum::<u64>() > 0);
            assert!(all.used.iter().all(|used| (880..=950).contains(used)), "{:?}", all.used);
            let GcStats { fast_pages, thorough_pages } = all.reclaimed;
            fast_pages + thorough_pages > 0
        };
        assert!((0..10).any(|_| reclaims()));
    }
}
