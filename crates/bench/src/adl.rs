//! The figures of ADL and ZCL ("Copy-on-Write with Adaptive Differential Logging for Persistent Memory"):
//! 4a, sequential writes; 4c, traces of two applications; table 2, what of both is stored; 6, sequential
//! writes by how long the memory takes to write a line.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use novale_core::UpdatePolicy;

use crate::place::{MB, Place};
use crate::plot::{Figure, Series};
use crate::replay::{self, Paper, Replayed};
use crate::report::{Cell, Report};
use crate::stats::{Round, Rounds, float};
use crate::writer::{METHODS, Stored, Writer, on_cpu};
use crate::{Common, bytes_text, count_for, killed, setup};

const KB: u64 = 1024;
/// The longest sequential write, in KB.
const KB_MAX: u64 = 12;
/// The paper's bytes of sequential writes of 1 KB: asked for, and stored by copy-on-write, ADL and ZCL.
const PAPER_STORED: [&str; 4] = ["1G", "4G", "2G", "1G"];
/// The paper's gains over copy-on-write in figure 4a, in percent: KB a write, ADL, ZCL.
const PAPER_GAINS: [(u64, f64, f64); 2] = [(1, 149.7, 318.5), (5, 88.4, 173.8)];

/// ns that a line takes to be written, beside the machine's own (figure 6).
const WRITE_NS: [u64; 5] = [0, 100, 200, 400, 800];
/// Bytes of a write of figure 6.
const REQUEST: u64 = KB;

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Measure figure 6, too: on a memory whose lines are flushed by `clflush` and take 0 to 800 ns.
    #[arg(long)]
    latencies: bool,
    /// Measure 6.6, too: opening a pool of so many MB of files after a kill.
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    recovery: Option<u64>,
    /// A trace in `MobiGen`'s format to replay; may be given several times.
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Write an SVG for each figure into this folder.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// One size's rounds and bytes, by method.
struct Size {
    bytes: u64,
    rounds: Vec<Rounds>,
    stored: Vec<Stored>,
}

/// Measures all figures, a report each.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Vec<Report>> {
    let traces =
        options.traces.iter().map(|path| replay::read(path)).collect::<Result<Vec<_>>>()?;
    let all = (1..=KB_MAX).map(|kb| kb * KB).filter(|bytes| common.wants(&bytes_text(*bytes)));
    let sizes = sequential(common, &common.place(), all)?;
    let latencies = if options.latencies { latencies(common)? } else { Vec::new() };
    let replayed = traces.iter().map(|trace| trace.run(common)).collect::<Result<Vec<_>>>()?;
    if let Some(folder) = &options.svg {
        plot_4a(&sizes).write(folder)?;
        if !replayed.is_empty() {
            plot_4c(&replayed).write(folder)?;
        }
        if options.latencies {
            plot_6(&latencies).write(folder)?;
        }
    }
    let mut reports = vec![figure_4a(common, &sizes), lines_4a(common, &sizes)];
    if !replayed.is_empty() {
        reports.push(figure_4c(common, &replayed));
    }
    reports.push(table_2(common, &sizes, &replayed));
    if options.latencies {
        reports.push(figure_6(common, &latencies));
    }
    if let Some(dataset_mb) = options.recovery {
        reports.push(killed::run(common, dataset_mb)?);
    }
    Ok(reports)
}

/// Measures writes of 1 KB on a memory of each latency.
fn latencies(common: &Common) -> Result<Vec<(u64, Size)>> {
    let mut measured = Vec::new();
    for write_ns in WRITE_NS {
        let device = Some(format!("write={write_ns},flush=clflush").parse()?);
        let place = Place { device, ..common.place() };
        let sizes = sequential(common, &place, std::iter::once(REQUEST))?;
        measured.extend(sizes.into_iter().map(|size| (write_ns, size)));
    }
    Ok(measured)
}

/// Measures each size, its rounds interleaved over the methods, when all of a new file was written so.
fn sequential(common: &Common, place: &Place, all: impl Iterator<Item = u64>) -> Result<Vec<Size>> {
    let file_bytes = common.file_mb * MB;
    let mut writers = Writer::all(place, file_bytes)?;
    let mut sizes = Vec::new();
    for bytes in all {
        let (pass, count) = (file_bytes / bytes, count_for(common.ops, bytes));
        for writer in &mut writers {
            writer.renew()?;
            writer.sequential(bytes, pass)?;
        }
        let mut rounds = vec![Rounds::default(); METHODS.len()];
        for _ in 0..common.rounds {
            for (writer, rounds) in writers.iter_mut().zip(&mut rounds) {
                rounds.push(Round::whole(on_cpu(|| writer.sequential(bytes, count))?));
            }
        }
        let stored = writers.iter_mut().map(|writer| {
            // From the same place on, whatever the rounds were.
            writer.rewind();
            writer.stored((bytes, pass), Writer::sequential)
        });
        let stored = stored.collect::<Result<_>>()?;
        sizes.push(Size { bytes, rounds, stored });
    }
    Ok(sizes)
}

fn figure_4a(common: &Common, sizes: &[Size]) -> Report {
    let mut columns: Vec<String> = vec!["sequential write".into(), "cow: ns".into()];
    columns.extend(gain_names().map(str::to_owned));
    columns.extend(["paper: adl", "paper: zcl"].map(str::to_owned));
    let row = |size: &Size| {
        let mut cells = gain_cells(common, bytes_text(size.bytes), size);
        let paper = PAPER_GAINS.iter().find(|(kb, ..)| kb * KB == size.bytes);
        cells.extend(paper.map_or([Cell::None, Cell::None], |(_, adl, zcl)| {
            [Cell::Percent(*adl), Cell::Percent(*zcl)]
        }));
        cells
    };
    Report {
        name: "adl-4a",
        title: "sequential writes over a file: how much faster than cow, by CPU time, beside the paper's \
                figures; zcl writes from a buffer in the pool"
            .into(),
        setup: setup(common),
        columns,
        rows: sizes.iter().map(row).collect(),
    }
}

/// What the writes of figure 4a cost in lines and fences, at the sizes that the paper gives figures of.
fn lines_4a(common: &Common, sizes: &[Size]) -> Report {
    let told = |size: &&Size| PAPER_GAINS.iter().any(|row| row.0 * KB == size.bytes);
    let sizes: Vec<&Size> = sizes.iter().filter(told).collect();
    let mut columns = vec!["a write".to_owned()];
    for size in &sizes {
        let kb = size.bytes / KB;
        columns.extend(["lines", "fences"].map(|what| format!("{kb} KB: {what}")));
    }
    let row = |(index, method): (usize, &UpdatePolicy)| {
        let mut cells = vec![Cell::Text(method.name().to_owned())];
        for stored in sizes.iter().filter_map(|size| size.stored.get(index)) {
            let count = float(stored.count.max(1));
            cells.extend([stored.lines, stored.fences].map(|sum| Cell::Ratio(float(sum) / count)));
        }
        cells
    };
    Report {
        name: "adl-4a-lines",
        title: "lines stored and fences that wait, a sequential write, exact: the mean over the file, log \
                pages and collection included"
            .into(),
        setup: vec![memory(common)],
        columns,
        rows: METHODS.iter().enumerate().map(row).collect(),
    }
}

fn figure_4c(common: &Common, replayed: &[Replayed]) -> Report {
    let mut columns: Vec<String> = vec!["trace".into(), "cow: us".into()];
    columns.extend(gain_names().map(str::to_owned));
    columns.extend(["paper: adl", "paper: zcl"].map(str::to_owned));
    let rows = replayed.iter().flat_map(|trace| {
        let parts = [("all calls", &trace.calls), ("writes alone", &trace.writes)];
        parts.map(|(part, rounds)| {
            let mut cells = vec![Cell::Text(format!("{}: {part}", trace.name))];
            cells.push(Cell::Count(base(rounds).median().ns / 1000));
            cells.extend(gains(rounds).map(Cell::Percent));
            let paper = trace.paper().filter(|_| part == "all calls");
            cells.extend(paper.map_or([Cell::None, Cell::None], |paper| {
                [Cell::Percent(paper.adl_gain), Cell::Percent(paper.zcl_gain)]
            }));
            cells
        })
    });
    Report {
        name: "adl-4c",
        title: "traces replayed: how much faster than cow, by CPU time, beside the paper's figures"
            .into(),
        setup: vec![memory(common), ("rounds", format!("{}, interleaved", common.rounds))],
        columns,
        rows: rows.collect(),
    }
}

fn table_2(common: &Common, sizes: &[Size], replayed: &[Replayed]) -> Report {
    let mut columns: Vec<String> = vec!["bytes".into(), "asked".into()];
    columns.extend(METHODS.iter().map(|method| method.name().to_owned()));
    columns.extend(["asked", "cow", "adl", "zcl"].map(|column| format!("paper: {column}")));
    let mut rows = Vec::new();
    let sizes = sizes.iter().filter(|size| size.bytes == KB);
    let runs = sizes.map(|size| ("sequential 1 KB", &size.stored, Some(PAPER_STORED)));
    let replays = replayed
        .iter()
        .map(|trace| (&*trace.name, &trace.stored, trace.paper().map(|paper| paper.stored)));
    for (name, stored, paper) in runs.chain(replays) {
        let asked = stored.first().map_or(0, |stored| stored.asked);
        for what in ["contents", "all purposes"] {
            let mut cells = vec![Cell::Text(format!("{name}: {what}")), Cell::Count(asked)];
            cells.extend(stored.iter().map(|stored| {
                Cell::Count(if what == "contents" { stored.data } else { stored.all })
            }));
            let paper = paper.filter(|_| what == "contents");
            cells.extend((0..4).map(|index| {
                let text = paper.and_then(|paper| paper.get(index).copied());
                text.map_or(Cell::None, Cell::from)
            }));
            rows.push(cells);
        }
    }
    Report {
        name: "adl-table-2",
        title: "bytes asked for and stored, exact: as contents of files (logs of old or new contents are \
                among the other purposes), and for all purposes; the paper's are of contents and logs of \
                contents"
            .into(),
        setup: vec![memory(common)],
        columns,
        rows,
    }
}

fn figure_6(common: &Common, latencies: &[(u64, Size)]) -> Report {
    let mut columns: Vec<String> = vec!["a line".into(), "cow: ns".into()];
    columns.extend(gain_names().map(str::to_owned));
    let row = |(write_ns, size): &(u64, Size)| gain_cells(common, format!("{write_ns} ns"), size);
    Report {
        name: "adl-6",
        title: "sequential writes of 1 KB by what a line takes to be written beside the machine's own, \
                each flushed by clflush: how much faster than cow, by CPU time"
            .into(),
        setup: vec![("rounds", format!("{}, interleaved", common.rounds))],
        columns,
        rows: latencies.iter().map(row).collect(),
    }
}

fn plot_6(latencies: &[(u64, Size)]) -> Figure {
    Figure {
        file: "adl-6".into(),
        title: "ADL and ZCL, figure 6: sequential writes of 1 KB by latency".into(),
        groups: latencies.iter().map(|(write_ns, _)| format!("{write_ns} ns")).collect(),
        x: "what a line takes to be written, beside the machine's own".into(),
        y: "faster than cow, percent".into(),
        series: ours(latencies.iter().map(|(_, size)| &size.rounds)),
    }
}

fn memory(common: &Common) -> (&'static str, String) {
    ("memory", common.place().describe())
}

fn plot_4a(sizes: &[Size]) -> Figure {
    let paper = |of: fn(&(u64, f64, f64)) -> f64| {
        let one = |size: &Size| PAPER_GAINS.iter().find(|row| row.0 * KB == size.bytes).map(of);
        sizes.iter().map(one).collect()
    };
    let mut series = ours(sizes.iter().map(|size| &size.rounds));
    series.push(Series::paper("paper: adl", false, paper(|row| row.1)));
    series.push(Series::paper("paper: zcl", true, paper(|row| row.2)));
    Figure {
        file: "adl-4a".into(),
        title: "ADL and ZCL, figure 4a: sequential writes".into(),
        groups: sizes.iter().map(|size| bytes_text(size.bytes)).collect(),
        x: "bytes of a write".into(),
        y: "faster than cow, percent".into(),
        series,
    }
}

fn plot_4c(replayed: &[Replayed]) -> Figure {
    let paper =
        |of: fn(&Paper) -> f64| replayed.iter().map(|trace| trace.paper().map(of)).collect();
    let mut series = ours(replayed.iter().map(|trace| &trace.calls));
    series.push(Series::paper("paper: adl", false, paper(|paper| paper.adl_gain)));
    series.push(Series::paper("paper: zcl", true, paper(|paper| paper.zcl_gain)));
    Figure {
        file: "adl-4c".into(),
        title: "ADL and ZCL, figure 4c: traces".into(),
        groups: replayed.iter().map(|trace| trace.name.clone()).collect(),
        x: "trace, all of its calls".into(),
        y: "faster than cow, percent".into(),
        series,
    }
}

/// A bar of each method's gain in each group.
fn ours<'a>(groups: impl Iterator<Item = &'a Vec<Rounds>>) -> Vec<Series> {
    let groups: Vec<Vec<f64>> = groups.map(|rounds| gains(rounds).collect()).collect();
    let bars = |index| groups.iter().map(|gains| gains.get(index).copied()).collect();
    gain_names().enumerate().map(|(index, name)| Series::ours(name, bars(index))).collect()
}

/// A row's name, what copy-on-write takes for a write, and the gains of the others.
fn gain_cells(common: &Common, name: String, size: &Size) -> Vec<Cell> {
    let ns = base(&size.rounds).median().ns / count_for(common.ops, size.bytes);
    let mut cells = vec![Cell::Text(name), Cell::Count(ns)];
    cells.extend(gains(&size.rounds).map(Cell::Percent));
    cells
}

/// The methods that copy-on-write is compared with.
fn gain_names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().filter(|method| **method != UpdatePolicy::Cow).map(|method| method.name())
}

/// How much faster each of them is than copy-on-write, in percent: the medians of the rounds' ratios.
fn gains(rounds: &[Rounds]) -> impl Iterator<Item = f64> {
    let others = METHODS.iter().zip(rounds).filter(|(method, _)| **method != UpdatePolicy::Cow);
    others.map(|(_, rounds_of)| (base(rounds).ratio(rounds_of) - 1.0) * 100.0)
}

/// The rounds of copy-on-write.
fn base(rounds: &[Rounds]) -> Rounds {
    let cow = METHODS.iter().zip(rounds).find(|(method, _)| **method == UpdatePolicy::Cow);
    cow.map(|(_, rounds)| rounds.clone()).unwrap_or_default()
}
