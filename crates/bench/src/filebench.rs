//! NOVA's macrobenchmarks (FAST '16, 5.3): the four workloads of table 2 on many threads.

use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use novale_core::{OpenOptions, UpdatePolicy};

use crate::place::{self, MB};
use crate::progress::Bar;
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::target::Target;
use crate::workload::{Count, Profile, Shape, Worker, files_of, make_dirs, remove_dirs};
use crate::{Common, setup};

/// Threads of the paper.
const THREADS: u16 = 50;

/// What `filebench` takes beside what all do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Folders to measure beside the library, on mounts of any kind.
    pub(crate) dirs: Vec<PathBuf>,
    /// Measure the library by each of these write methods (separated by commas), on a pool each, and not
    /// by the default alone; and a mix with overwrites as one more workload.
    #[arg(long, value_delimiter = ',', value_name = "METHOD")]
    pub(crate) methods: Vec<Method>,
    /// Read and write so many bytes at once, instead of the workload's own sizes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) request: Option<u32>,
    /// Leave the library out.
    #[arg(long)]
    pub(crate) no_library: bool,
    /// MB of files before each workload begins: their number is this by their mean length.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(8..=65_536))]
    pub(crate) dataset_mb: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,
}

/// A write method by its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Method(pub(crate) UpdatePolicy);

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        UpdatePolicy::named(name).map(Self).ok_or_else(|| {
            format!(
                "no such method; there are {}",
                UpdatePolicy::ALL.map(UpdatePolicy::name).join(", ")
            )
        })
    }
}

/// Runs each workload on each target, round by round.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Report> {
    let threads = usize::from(common.threads.unwrap_or(THREADS));
    let more = (!options.methods.is_empty()).then_some(Profile::Mixed);
    let all = Profile::ALL.into_iter().chain(more);
    let profiles: Vec<Profile> = all.filter(|p| common.wants(p.shape().name)).collect();
    // Webserver's logs only grow; with a pool for each method, all of which are there at once, less.
    let for_logs = if options.methods.is_empty() { 2048 } else { 256 };
    let bytes = (options.dataset_mb * 3 + for_logs) * MB;
    let place = common.place();
    let lanes = u32::try_from(common.threads()?)?;
    let by_default = options.methods.is_empty() && !options.no_library;
    let mut targets = Target::all(by_default.then_some((&place, bytes, lanes)), &options.dirs)?;
    for Method(method) in &options.methods {
        let open = OpenOptions { update: Some(*method), ..place::options() };
        targets.push(Target::named(method.name(), place.pool_as(bytes, lanes, &open)?));
    }
    let mut results = vec![vec![Vec::new(); targets.len()]; profiles.len()];
    let bar = Bar::new("measurements", common.rounds * (profiles.len() * targets.len()) as u64);
    for _ in 0..common.rounds {
        for (profile, results) in profiles.iter().zip(&mut results) {
            for (target, rates) in targets.iter().zip(results) {
                rates.push(rate(target, *profile, threads, options)?);
                bar.step();
            }
        }
    }
    let mut columns = ["workload", "files", "of the paper's"].map(str::to_owned).to_vec();
    for target in &targets {
        columns.push(target.name().to_owned());
        columns.push(format!("{}: spread", target.name()));
    }
    let mut rows = Vec::new();
    for (profile, results) in profiles.iter().zip(&results) {
        let shape = profile.shape();
        let files = files_of(&shape, options.dataset_mb * MB)?;
        let mut cells =
            vec![Cell::from(shape.name), Cell::Count(files), paper_share(&shape, files)];
        for rates in results {
            let (least, most) = (rates.iter().min(), rates.iter().max());
            cells.push(Cell::Count(median(rates.iter().copied())));
            cells.push(Cell::Spread(least.copied().unwrap_or(0), most.copied().unwrap_or(0)));
        }
        rows.push(cells);
    }
    let mut setup = setup(common);
    setup.push(("threads", threads.to_string()));
    let requests =
        options.request.map_or_else(|| "as in table 2".to_owned(), |bytes| format!("{bytes} B"));
    setup.push(("dataset", format!("{} MB each; lengths as in table 2", options.dataset_mb)));
    setup.push(("requests", requests));
    setup.push(("duration", format!("{} s each", options.seconds)));
    Ok(Report {
        name: "filebench",
        title: "steps a second, all threads together (NOVA 5.3)".into(),
        setup,
        columns,
        rows,
    })
}

/// The dataset's share of the paper's small one.
fn paper_share(shape: &Shape, files: u64) -> Cell {
    let percent = files * 1_000 / shape.paper_files;
    Cell::Text(format!("{}.{} %", percent / 10, percent % 10))
}

/// Steps a second of one workload on one target, which is as before in the end.
pub(crate) fn rate(
    target: &Target,
    profile: Profile,
    threads: usize,
    options: &Options,
) -> Result<u64> {
    let files = files_of(&profile.shape(), options.dataset_mb * MB)?.max(threads as u64 * 2);
    let dirs = make_dirs(target, profile, files)?;
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let (steps, took) = std::thread::scope(|scope| -> Result<(u64, Duration)> {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (stop, start) = (&stop, &start);
                let mut worker = Worker::new(target, profile, thread, dirs);
                if let Some(bytes) = options.request {
                    worker = worker.with_requests(bytes as usize);
                }
                scope.spawn(move || -> Result<u64> {
                    let mut count = Count::default();
                    let share = files / threads as u64;
                    let filled = (0..share).try_for_each(|_| worker.fill(&mut count));
                    // All come here, or those that do wait for ever.
                    start.wait();
                    filled?;
                    let before = count.0;
                    while !stop.load(Ordering::Relaxed) {
                        worker.turn(&mut count)?;
                    }
                    let steps = count.0 - before;
                    worker.clear()?;
                    Ok(steps)
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(options.seconds));
        stop.store(true, Ordering::Relaxed);
        let took = begun.elapsed();
        let mut steps = 0;
        for worker in workers {
            steps += worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok((steps, took))
    })?;
    remove_dirs(target, dirs)?;
    Ok(steps * 1_000 / u64::try_from(took.as_millis())?.max(1))
}
