//! Figures of `HiNFS`: 7 and 8, Filebench's workloads on one thread and on more; 10, the same by the size of
//! writes; 11, by the size of the buffer; 12, by how long the memory takes to write a line; 13, traces; and 4,
//! how often its model was right in 7, 8 and 13.
//!
//! Its own memory is emulated where no other one is asked for. The bars are of one run: writes in place, as
//! PMFS has them, which it is compared with; copy-on-write, as NOVA; what Novale does by itself; that with
//! writes that are buffered; and, where it is of use, buffers without the model, or of whole pages.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use novale_core::{BufferRules, Buffering, Ctx, Fs, Mode, OpenOptions, UpdatePolicy, Written};
use novale_pm::{Counters, Device};

use crate::hinfs_model::ByBlocks;
use crate::hinfs_trace::{self, Trace};
use crate::place::{EPOCH_NS, MB, Place, options};
use crate::plot::{Figure, Series};
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::target::Target;
use crate::workload::Profile;
use crate::{Common, bytes_text, filebench, shapes};

/// A way to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    update: UpdatePolicy,
    mode: Mode,
    has_model: bool,
    by_lines: bool,
}

const INPLACE: Bar = bar("inplace (PMFS)", UpdatePolicy::InPlace, Mode::Strict);
const COW: Bar = bar("cow (NOVA)", UpdatePolicy::Cow, Mode::Strict);
const AUTO: Bar = bar("auto", UpdatePolicy::Auto, Mode::Strict);
const BUFFERED: Bar = bar("buffered", UpdatePolicy::Auto, Mode::Buffered);
const NO_MODEL: Bar = Bar { name: "without the model", has_model: false, ..BUFFERED };
const BY_PAGES: Bar = Bar { name: "by pages", by_lines: false, ..BUFFERED };
/// Those of most figures; the first one is what the others are compared with.
const BARS: &[Bar] = &[INPLACE, COW, AUTO, BUFFERED, NO_MODEL];
/// Those by which the benefit model is judged.
const MODEL_BARS: &[Bar] = &[AUTO, BUFFERED, NO_MODEL];

const fn bar(name: &'static str, update: UpdatePolicy, mode: Mode) -> Bar {
    Bar { name, update, mode, has_model: true, by_lines: true }
}

/// The buffer's part of the dataset: 2 GB of 5 GB (5.2).
const BUFFER_PERCENT: u64 = 40;
/// ns that a line takes to be written (figure 12).
const WRITE_NS: [u64; 5] = [50, 100, 200, 400, 800];
/// Bytes of a request (figure 10).
const REQUESTS: [u32; 7] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];
/// The buffer's part of the dataset (figure 11).
const PERCENTS: [u64; 5] = [10, 25, 50, 75, 100];
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
    /// Only these figures, with commas: 4 (patterns of writes to a sync; how often the model is right is told
    /// with 8 and 13), 8 (with 7), 10, 11, 12, 13 (with 14's Postmark).
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8, 10, 11, 12, 13])]
    figure: Vec<u32>,
    /// A trace in `MobiGen`'s format for figure 13, beside those in the shape of traces that are not ours to
    /// give; may be given several times.
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Write an SVG for each figure into this folder.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// What is measured: a workload on so many threads, on this memory, with a buffer of this size.
struct Case {
    name: String,
    profile: Profile,
    threads: usize,
    device: Device,
    buffer_percent: u64,
    request: Option<u32>,
}

/// A figure: its cases, and what is compared in it.
struct Plan {
    number: u32,
    title: &'static str,
    bars: &'static [Bar],
    cases: Vec<Case>,
}

/// What one bar of a case gave.
#[derive(Debug, Default)]
struct Found {
    rates: Vec<u64>,
    counters: Counters,
}

/// How often the model was right.
pub(crate) struct Accuracy {
    pub(crate) name: String,
    pub(crate) counters: Counters,
    /// The same of the paper's model; of traces alone.
    pub(crate) by_blocks: Option<ByBlocks>,
}

/// Measures the figures, a report each.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Vec<Report>> {
    let own = common.place().device;
    let device = own.map_or_else(|| "hinfs".parse(), Ok)?;
    let (mut reports, mut accuracies) = (Vec::new(), Vec::new());
    let plans = [figure_8(common, device)?, figure_10(device), figure_11(device), figure_12()?];
    for plan in plans.into_iter().filter(|plan| options.figure.contains(&plan.number)) {
        let (report, figure, foretold) = measure(common, options, &plan)?;
        if let Some(folder) = &options.svg {
            figure.write(folder)?;
        }
        reports.push(report);
        accuracies.extend(foretold);
    }
    if options.figure.contains(&13) {
        let read = options.traces.iter().map(|path| Trace::read(path));
        let shaped = shapes::ALL.iter().filter(|shape| common.wants(shape.name));
        for trace in read.chain(shaped.map(|shape| Ok(Trace::made(shape.name, shape.calls())))) {
            let trace = trace?;
            let (report, accuracy) = hinfs_trace::measure(common, &trace, BARS, device)?;
            reports.push(report);
            accuracies.push(accuracy);
        }
    }
    if options.figure.contains(&4) {
        for pattern in shapes::PATTERNS.iter().filter(|pattern| common.wants(pattern.name)) {
            let trace = Trace::made(pattern.name, pattern.calls());
            let (report, _) = hinfs_trace::measure(common, &trace, MODEL_BARS, device)?;
            reports.push(report);
        }
    }
    let accuracies: Vec<Vec<Cell>> = accuracies.iter().filter_map(Accuracy::row).collect();
    if !accuracies.is_empty() {
        reports.push(figure_4(accuracies));
    }
    Ok(reports)
}

fn figure_8(common: &Common, device: Device) -> Result<Plan> {
    let mut threads: Vec<usize> = vec![1, common.threads()?];
    threads.dedup();
    let mut cases = Vec::new();
    for profile in Profile::ALL {
        for threads in &threads {
            let name = format!("{} on {threads}", profile.shape().name);
            cases.push(Case { threads: *threads, ..Case::new(name, profile, device) });
        }
    }
    let title = "steps a second, by workload and threads (HiNFS, figures 7 and 8)";
    Ok(Plan { number: 8, title, bars: BARS, cases })
}

fn figure_10(device: Device) -> Plan {
    let case = |bytes: u32| {
        let name = bytes_text(bytes.into());
        Case { request: Some(bytes), ..Case::new(name, Profile::Fileserver, device) }
    };
    let title =
        "steps a second of fileserver on one thread, by the size of requests (HiNFS, figure 10)";
    let cases = REQUESTS.into_iter().map(case).collect();
    Plan { number: 10, title, bars: &[INPLACE, BUFFERED, BY_PAGES], cases }
}

fn figure_11(device: Device) -> Plan {
    let mut cases = Vec::new();
    for profile in [Profile::Fileserver, Profile::Webproxy] {
        for percent in PERCENTS {
            let name = format!("{}, {percent} %", profile.shape().name);
            cases.push(Case { buffer_percent: percent, ..Case::new(name, profile, device) });
        }
    }
    let title = "steps a second on one thread, by the buffer's part of the data (HiNFS, figure 11)";
    Plan { number: 11, title, bars: &[INPLACE, BUFFERED], cases }
}

fn figure_12() -> Result<Plan> {
    let mut cases = Vec::new();
    for write_ns in WRITE_NS {
        let device = format!("hinfs,write={write_ns}").parse()?;
        cases.push(Case::new(format!("{write_ns} ns a line"), Profile::Webproxy, device));
    }
    let title = "steps a second of webproxy on one thread, by latency (HiNFS, figure 12)";
    Ok(Plan { number: 12, title, bars: &[INPLACE, COW, AUTO, BUFFERED], cases })
}

fn figure_4(rows: Vec<Vec<Cell>>) -> Report {
    let columns = ["workload", "syncs", "of them eager", "foretold", "a file's later ones"];
    let mut columns = columns.map(str::to_owned).to_vec();
    columns.push("a block's later ones (the paper's model)".to_owned());
    let title = "how often the Buffer Benefit Model was right (HiNFS, figure 4)".to_owned();
    Report { name: "hinfs-4", title, setup: Vec::new(), columns, rows }
}

impl Accuracy {
    /// A row of figure 4; none where nobody synced.
    fn row(&self) -> Option<Vec<Cell>> {
        let share = |part, all| Cell::Text(format!("{:.1} %", ratio(part * 100, all)));
        let [lazy, eager] = Buffering::Verdict.counts(&self.counters);
        let [foretold, right] = Buffering::Foretold.counts(&self.counters);
        let [first, first_right] = Buffering::FirstForetold.counts(&self.counters);
        let later = share(right.saturating_sub(first_right), foretold.saturating_sub(first));
        let syncs = lazy + eager;
        (syncs > 0).then(|| {
            let name = Cell::Text(self.name.clone());
            let by_blocks = self.by_blocks.map(|blocks| share(blocks.right, blocks.later));
            let by_blocks = by_blocks.unwrap_or(Cell::None);
            vec![
                name,
                Cell::Count(syncs),
                share(eager, syncs),
                share(right, foretold),
                later,
                by_blocks,
            ]
        })
    }
}

/// Measures a figure: the table, the plot, and how the model did.
fn measure(
    common: &Common,
    options: &Options,
    plan: &Plan,
) -> Result<(Report, Figure, Vec<Accuracy>)> {
    let (mut rows, mut accuracies, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    let mut gains = vec![Vec::new(); plan.bars.len()];
    let cases: Vec<&Case> = plan.cases.iter().filter(|case| common.wants(&case.name)).collect();
    for case in &cases {
        let found = rates(common, options, case, plan.bars)?;
        let rates: Vec<u64> =
            found.iter().map(|found| median(found.rates.iter().copied())).collect();
        let base = rates.first().copied().unwrap_or_default();
        let mut cells = vec![Cell::Text(case.name.clone())];
        cells.extend(rates.iter().map(|rate| Cell::Count(*rate)));
        cells.extend(rates.iter().skip(1).map(|rate| Cell::Ratio(ratio(*rate, base))));
        cells.extend(found.iter().map(|found| Cell::Ratio(stored_by_asked(&found.counters))));
        rows.push(cells);
        groups.push(case.name.clone());
        for (gains, rate) in gains.iter_mut().zip(&rates) {
            gains.push(Some(ratio(*rate, base)));
        }
        let foretold = plan.bars.iter().zip(found).filter(|(bar, _)| bar.name == BUFFERED.name);
        accuracies.extend(foretold.map(|(_, found)| Accuracy {
            name: case.name.clone(),
            counters: found.counters,
            by_blocks: None,
        }));
    }
    let mut columns = vec!["case".to_owned()];
    columns.extend(plan.bars.iter().map(|bar| bar.name.to_owned()));
    columns.extend(plan.bars.iter().skip(1).map(|bar| format!("{} x inplace", bar.name)));
    columns.extend(plan.bars.iter().map(|bar| format!("{}: stored/asked", bar.name)));
    let memory = cases.first().map(|case| case.place(common).describe());
    let setup = vec![
        ("memory", memory.unwrap_or_default()),
        ("rounds", format!("{}, interleaved, of {} s", common.rounds, options.seconds)),
        (
            "dataset",
            format!(
                "{} MB; a buffer of {BUFFER_PERCENT} % of it, but in figure 11",
                options.dataset_mb
            ),
        ),
    ];
    let series = plan.bars.iter().zip(gains).enumerate();
    let series = series.map(|(index, (bar, bars))| Series::numbered(bar.name, index, bars));
    let figure = Figure {
        file: format!("hinfs-{}", plan.number),
        title: plan.title.to_owned(),
        groups,
        x: "case".to_owned(),
        y: "times what inplace does".to_owned(),
        series: series.collect(),
    };
    let name = match plan.number {
        8 => "hinfs-8",
        10 => "hinfs-10",
        11 => "hinfs-11",
        _ => "hinfs-12",
    };
    Ok((Report { name, title: plan.title.to_owned(), setup, columns, rows }, figure, accuracies))
}

#[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
pub(crate) fn ratio(rate: u64, base: u64) -> f64 {
    rate as f64 / base.max(1) as f64
}

/// Bytes that reached the pool for each that a caller wrote.
fn stored_by_asked(counters: &Counters) -> f64 {
    let asked = Written::ALL.map(|how| how.asked(counters).bytes).into_iter().sum();
    ratio(counters.bytes(), asked)
}

impl Case {
    fn new(name: String, profile: Profile, device: Device) -> Self {
        let (buffer_percent, request) = (BUFFER_PERCENT, None);
        Self { name, profile, threads: 1, device, buffer_percent, request }
    }

    fn place(&self, common: &Common) -> Place {
        Place { device: Some(self.device), ..common.place() }
    }
}

/// Steps a second of each bar, in rounds that are interleaved.
fn rates(common: &Common, options: &Options, case: &Case, bars: &[Bar]) -> Result<Vec<Found>> {
    let dataset = options.dataset_mb * MB;
    let buffer_bytes = dataset * case.buffer_percent / 100;
    let lanes = u32::try_from(common.threads()?)?;
    let target = |bar: &Bar| -> Result<Target> {
        let open = bar.options(buffer_bytes);
        Ok(Target::of(case.place(common).pool_as(dataset * 3 + 768 * MB, lanes, &open)?))
    };
    let targets: Vec<Target> = bars.iter().map(target).collect::<Result<_>>()?;
    let mut found: Vec<Found> = targets.iter().map(|_| Found::default()).collect();
    let how = filebench::Options {
        dirs: Vec::new(),
        methods: Vec::new(),
        request: case.request,
        no_library: false,
        dataset_mb: options.dataset_mb,
        seconds: options.seconds,
    };
    for _ in 0..common.rounds {
        for (target, found) in targets.iter().zip(&mut found) {
            found.rates.push(rate(target, case, &how)?);
        }
    }
    for (target, found) in targets.iter().zip(&mut found) {
        found.counters = target.fs().map(|fs| fs.pm().counters()).unwrap_or_default();
    }
    Ok(found)
}

impl Bar {
    /// How a pool is opened for it, with a buffer of so many bytes.
    pub(crate) fn options(&self, buffer_bytes: u64) -> OpenOptions {
        let Self { has_model, by_lines, .. } = *self;
        OpenOptions {
            update: Some(self.update),
            mode: Some(self.mode),
            buffer_bytes: Some(buffer_bytes),
            buffer_rules: BufferRules { has_model, by_lines, ..BufferRules::default() },
            ..options()
        }
    }
}

/// Steps a second on one target, while a thread of its own writes back what is buffered.
fn rate(target: &Target, case: &Case, how: &filebench::Options) -> Result<u64> {
    while_written_back(target, || filebench::rate(target, case.profile, case.threads, how))
}

/// Does something while a thread of its own writes back what is buffered.
pub(crate) fn while_written_back<T>(target: &Target, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(fs) = target.fs().filter(|fs| fs.mode_of_writes() == Some(Mode::Buffered)) {
            scope.spawn(|| write_back(fs, &over));
        }
        let done = act();
        over.store(true, Ordering::Relaxed);
        done
    })
}

fn write_back(fs: &Fs, over: &AtomicBool) -> novale_core::Result<()> {
    while !over.load(Ordering::Relaxed) {
        fs.wait_for_low_buffer(PAUSE)?;
        fs.write_back_by_rules(&Ctx { now_ns: EPOCH_NS, hint: 1 })?;
    }
    Ok(())
}
