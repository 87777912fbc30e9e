//! Figures of `HiNFS`: 7 and 8, Filebench's workloads on one thread and on more; 12, the same by how long
//! the memory takes to write a line.
//!
//! Its own memory is emulated where no other one is asked for. The bars are of one run: writes in place, as
//! PMFS has them, which it is compared with; copy-on-write, as NOVA; what Novale does by itself; and that
//! with writes that are buffered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use novale_core::{Ctx, Fs, Mode, OpenOptions, UpdatePolicy, WriteBack};
use novale_pm::Device;

use crate::place::{EPOCH_NS, MB, Place, options};
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::target::Target;
use crate::workload::Profile;
use crate::{Common, filebench};

/// Names of the bars, their methods and modes.
const BARS: [(&str, UpdatePolicy, Mode); 4] = [
    ("inplace (PMFS)", UpdatePolicy::InPlace, Mode::Strict),
    ("cow (NOVA)", UpdatePolicy::Cow, Mode::Strict),
    ("auto", UpdatePolicy::Auto, Mode::Strict),
    ("buffered", UpdatePolicy::Auto, Mode::Buffered),
];
/// The buffer's part of the dataset: 2 GB of 5 GB (5.2).
const BUFFER_PERCENT: u64 = 40;
/// ns that a line takes to be written (figure 12).
const WRITE_NS: [u64; 5] = [50, 100, 200, 400, 800];
/// How long who writes back sleeps at most.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// MB of files before each workload begins.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(8..=65_536))]
    dataset_mb: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// What is measured: a workload on so many threads, on this memory.
struct Case {
    name: String,
    profile: Profile,
    threads: usize,
    device: Device,
}

/// Measures the figures, a report each.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Vec<Report>> {
    let own = common.place().device;
    let device = own.map_or_else(|| "hinfs".parse(), Ok)?;
    let mut threads: Vec<usize> = vec![1, common.threads()?];
    threads.dedup();
    let mut cases = Vec::new();
    for profile in Profile::ALL {
        for threads in &threads {
            let name = format!("{} on {threads}", profile.shape().name);
            cases.push(Case { name, profile, threads: *threads, device });
        }
    }
    let mut slower = Vec::new();
    for write_ns in WRITE_NS {
        let device = format!("hinfs,write={write_ns}").parse()?;
        let (name, profile) = (format!("{write_ns} ns a line"), Profile::Webproxy);
        slower.push(Case { name, profile, threads: 1, device });
    }
    let titles = [
        ("hinfs-8", "steps a second, by workload and threads (HiNFS, figures 7 and 8)"),
        ("hinfs-12", "steps a second of webproxy on one thread, by latency (HiNFS, figure 12)"),
    ];
    let figure = |(name, title): (&'static str, &str), cases: Vec<Case>| {
        let cases: Vec<Case> = cases.into_iter().filter(|case| common.wants(&case.name)).collect();
        report(common, options, (name, title.to_owned()), &cases)
    };
    let [first, second] = titles;
    Ok(vec![figure(first, cases)?, figure(second, slower)?])
}

fn report(
    common: &Common,
    options: &Options,
    (name, title): (&'static str, String),
    cases: &[Case],
) -> Result<Report> {
    let mut columns = vec!["workload".to_owned()];
    columns.extend(BARS.map(|(name, ..)| name.to_owned()));
    columns.extend(["buffered x inplace", "buffered x cow", "buffered x auto"].map(str::to_owned));
    let mut rows = Vec::new();
    for case in cases {
        let rates = rates(common, options, case)?;
        let mut cells = vec![Cell::Text(case.name.clone())];
        cells.extend(rates.iter().map(|rate| Cell::Count(*rate)));
        let [others @ .., buffered] = rates.as_slice() else { continue };
        cells.extend(others.iter().map(|rate| Cell::Ratio(ratio(*buffered, *rate))));
        rows.push(cells);
    }
    let memory = cases.first().map(|case| case.place(common).describe());
    let setup = vec![
        ("memory", memory.unwrap_or_default()),
        ("rounds", format!("{}, interleaved, of {} s", common.rounds, options.seconds)),
        ("dataset", format!("{} MB; a buffer of {BUFFER_PERCENT} % of it", options.dataset_mb)),
    ];
    Ok(Report { name, title, setup, columns, rows })
}

#[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
fn ratio(rate: u64, base: u64) -> f64 {
    rate as f64 / base.max(1) as f64
}

impl Case {
    fn place(&self, common: &Common) -> Place {
        Place { device: Some(self.device), ..common.place() }
    }
}

/// Steps a second of each bar: medians of rounds that are interleaved.
fn rates(common: &Common, options: &Options, case: &Case) -> Result<Vec<u64>> {
    let targets: Vec<Target> =
        BARS.iter().map(|bar| target(common, options, case, bar)).collect::<Result<_>>()?;
    let mut rates = vec![Vec::new(); targets.len()];
    let how = filebench::Options {
        dirs: Vec::new(),
        methods: Vec::new(),
        request: None,
        no_library: false,
        dataset_mb: options.dataset_mb,
        seconds: options.seconds,
    };
    for _ in 0..common.rounds {
        for (target, rates) in targets.iter().zip(&mut rates) {
            rates.push(rate(target, case, &how)?);
        }
    }
    Ok(rates.into_iter().map(|rates| median(rates.into_iter())).collect())
}

fn target(
    common: &Common,
    settings: &Options,
    case: &Case,
    (_, update, mode): &(&str, UpdatePolicy, Mode),
) -> Result<Target> {
    let dataset = settings.dataset_mb * MB;
    let open = OpenOptions {
        update: Some(*update),
        mode: Some(*mode),
        buffer_bytes: Some(dataset * BUFFER_PERCENT / 100),
        ..options()
    };
    let lanes = u32::try_from(common.threads()?)?;
    Ok(Target::of(case.place(common).pool_as(dataset * 3 + 768 * MB, lanes, &open)?))
}

/// Steps a second on one target, while a thread of its own writes back what is buffered.
fn rate(target: &Target, case: &Case, how: &filebench::Options) -> Result<u64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(fs) = target.fs().filter(|fs| fs.mode_of_writes() == Some(Mode::Buffered)) {
            scope.spawn(|| write_back(fs, &over));
        }
        let rate = filebench::rate(target, case.profile, case.threads, how);
        over.store(true, Ordering::Relaxed);
        rate
    })
}

fn write_back(fs: &Fs, over: &AtomicBool) -> novale_core::Result<()> {
    while !over.load(Ordering::Relaxed) {
        fs.wait_for_low_buffer(PAUSE)?;
        let usage = fs.buffer_use()?;
        let is_low =
            (usage.blocks_max - usage.blocks.min(usage.blocks_max)) * 20 < usage.blocks_max;
        if is_low {
            let what = WriteBack { free_percent: 20, since_before_ns: i64::MIN };
            fs.write_back(&Ctx { now_ns: EPOCH_NS, hint: 1 }, what)?;
        }
    }
    Ok(())
}
