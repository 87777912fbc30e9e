//! The figures of LAWN ("logless, alternate writing for NVMM"): 5, random writes, random reads and mixes of
//! both; 6, bytes stored for a request of 1 KB; 8, sizes of slots.
//!
//! `lawn` is its zone of slots. Paired pages (`paired`, and `auto` below whole pages) write alternately too,
//! with a page for the second copies of each. Both are all or nothing for the write.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use novale_core::{SlotLines, UpdatePolicy};

use crate::place::MB;
use crate::plot::{Figure, Series};
use crate::report::{Cell, Report};
use crate::stats::{Round, Rounds, float};
use crate::writer::{Beside, METHODS, Stored, Writer, on_cpu};
use crate::{Common, bytes_text, count_for, setup};

/// Bytes of a request.
const BYTES: [u64; 6] = [128, 256, 512, 1024, 2048, 4096];
/// Reads in ten requests.
const MIXES: [(&str, u64); 5] = [
    ("random write", 0),
    ("read-write 3-7", 3),
    ("read-write 5-5", 5),
    ("read-write 7-3", 7),
    ("random read", 10),
];
/// The paper's bandwidth of random writes by LAWN: bytes, times that of NOVA (copy-on-write), times that
/// of fine-grained logging (5.2).
const PAPER_TIMES: [(u64, f64, f64); 2] = [(128, 12.0, 1.9), (1024, 5.6, 4.3)];
/// The request of figure 6, in bytes.
const REQUEST: u64 = 1024;
/// How much less LAWN stores for it than copy-on-write and than fine-grained logging, in percent.
const PAPER_LESS: (f64, f64) = (75.3, 53.8);

/// The requests of figure 8, in bytes.
const SLOT_REQUESTS: [u64; 3] = [64, 128, 1024];

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Folders of other file systems to measure beside, whose writes are durable by `O_DSYNC`; by the
    /// clock, since the kernel's own threads work for them too.
    dirs: Vec<PathBuf>,
    /// Write an SVG for each figure into this folder.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// One mix of one size, by method.
struct Case {
    mix: &'static str,
    bytes: u64,
    count: u64,
    /// By method, then by folder.
    rounds: Vec<Rounds>,
}

/// Measures both figures, a report each.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Vec<Report>> {
    let file_bytes = common.file_mb * MB;
    let mut writers = Writer::all(&common.place(), file_bytes)?;
    let beside = options.dirs.iter().map(|dir| Beside::new(dir, file_bytes));
    let mut beside = beside.collect::<Result<Vec<_>>>()?;
    let (mut cases, mut stored, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in BYTES {
        for writer in &mut writers {
            writer.renew()?;
            writer.touch(bytes)?;
        }
        cases.extend(mixes(common, &mut writers, &mut beside, bytes)?);
        if bytes == REQUEST {
            let count = (bytes, file_bytes / bytes);
            let of = |writer: &mut Writer| {
                writer.stored(count, |writer, len, count| writer.mixed(len, 0, count))
            };
            stored = writers.iter_mut().map(of).collect::<Result<_>>()?;
            for beside in &mut beside {
                let all = beside.stored(bytes, file_bytes / bytes)?;
                others
                    .push((beside.name.clone(), all.map(|all| float(all) / float(count.1.max(1)))));
            }
        }
    }
    cases.sort_by_key(|case| MIXES.iter().position(|(mix, _)| *mix == case.mix));
    if let Some(folder) = &options.svg {
        for (mix, _) in MIXES {
            plot_5(&cases, mix).write(folder)?;
        }
        plot_6(&stored, &others).write(folder)?;
    }
    let slots = slot_sizes(common, file_bytes)?;
    if let Some(folder) = &options.svg {
        plot_8(&slots).write(folder)?;
    }
    Ok(vec![
        figure_5(common, &cases, &beside),
        figure_6(common, &stored, &others),
        figure_8(common, &slots),
    ])
}

/// What slots of one size come to, for each of [`SLOT_REQUESTS`].
struct OfSlots {
    slot: SlotLines,
    /// Of a mix of reads and writes, and what a write stores.
    requests: Vec<(Rounds, Stored)>,
    /// Pages of the pool that the slots of the file take at the end, of a hundred of its own.
    room: f64,
}

/// Measures all sizes of slots, interleaved.
fn slot_sizes(common: &Common, file_bytes: u64) -> Result<Vec<OfSlots>> {
    if !common.wants("slots") {
        return Ok(Vec::new());
    }
    let place = common.place();
    let mut writers = Vec::new();
    for slot in SlotLines::ALL {
        writers.push(Writer::with_slots(&place, file_bytes, UpdatePolicy::Lawn, slot)?);
    }
    let mut all: Vec<OfSlots> = SlotLines::ALL
        .map(|slot| OfSlots { slot, requests: Vec::new(), room: 0.0 })
        .into_iter()
        .collect();
    for bytes in SLOT_REQUESTS {
        let count = count_for(common.ops, bytes);
        let mut rounds = vec![Rounds::default(); writers.len()];
        for writer in &mut writers {
            writer.renew()?;
            writer.touch(bytes)?;
        }
        for _ in 0..common.rounds {
            for (writer, rounds) in writers.iter_mut().zip(&mut rounds) {
                rounds.push(Round::whole(on_cpu(|| writer.mixed(bytes, 5, count))?));
            }
        }
        for ((writer, rounds), of) in writers.iter_mut().zip(rounds).zip(&mut all) {
            let stored =
                writer.stored((bytes, count), |writer, len, count| writer.mixed(len, 0, count))?;
            of.requests.push((rounds, stored));
            of.room = writer.room_beside()?;
        }
    }
    Ok(all)
}

fn figure_8(common: &Common, sizes: &[OfSlots]) -> Report {
    let mut columns = vec!["slot".to_owned()];
    for bytes in SLOT_REQUESTS {
        let request = bytes_text(bytes);
        columns.push(format!("{request}: MB/s"));
        columns.push(format!("{request}: bytes stored"));
    }
    columns.push("room, % of the file".to_owned());
    let row = |of: &OfSlots| {
        let mut cells = vec![Cell::Text(bytes_text(of.slot.bytes().into()))];
        for (bytes, (rounds, stored)) in SLOT_REQUESTS.into_iter().zip(&of.requests) {
            let count = count_for(common.ops, bytes);
            cells.push(Cell::Count(bytes * count * 1000 / rounds.median().ns.max(1)));
            cells.push(Cell::Ratio(float(stored.all) / float(stored.count.max(1))));
        }
        cells.push(Cell::Ratio(of.room));
        cells
    };
    Report {
        name: "lawn-8",
        title: "slots of 1 to 16 lines: MB (10^6 bytes) a second of CPU time, one thread, half of the \
                requests reads, at random multiples of their size; bytes stored for a write, for all \
                purposes; pages that slots take after the last"
            .into(),
        setup: setup(common),
        columns,
        rows: sizes.iter().map(row).collect(),
    }
}

fn plot_8(sizes: &[OfSlots]) -> Figure {
    let ours = |(index, of): (usize, &OfSlots)| {
        let per = |(_, stored): &(Rounds, Stored)| float(stored.all) / float(stored.count.max(1));
        let name = format!("slots of {}", bytes_text(of.slot.bytes().into()));
        Series::numbered(&name, index, of.requests.iter().map(per).map(Some).collect())
    };
    Figure {
        file: "lawn-8".into(),
        title: "LAWN, figure 8: slot sizes".into(),
        groups: SLOT_REQUESTS.map(bytes_text).into(),
        x: "bytes of a request".into(),
        y: "bytes stored for all purposes".into(),
        series: sizes.iter().enumerate().map(ours).collect(),
    }
}

/// Measures all mixes of one size, interleaved over the methods.
fn mixes(
    common: &Common,
    writers: &mut [Writer],
    beside: &mut [Beside],
    bytes: u64,
) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let wanted = |mix: &str| common.wants(&format!("{mix} {}", bytes_text(bytes)));
    for (mix, reads) in MIXES.into_iter().filter(|(mix, _)| wanted(mix)) {
        let count = count_for(common.ops, bytes);
        let mut rounds = vec![Rounds::default(); METHODS.len() + beside.len()];
        for _ in 0..common.rounds {
            let (ours, others) = rounds.split_at_mut(METHODS.len());
            for (writer, rounds) in writers.iter_mut().zip(ours) {
                rounds.push(Round::whole(on_cpu(|| writer.mixed(bytes, reads, count))?));
            }
            for (folder, rounds) in beside.iter_mut().zip(others) {
                let begun = Instant::now();
                folder.mixed(bytes, reads, count)?;
                rounds.push(Round::whole(u64::try_from(begun.elapsed().as_nanos())?));
            }
        }
        cases.push(Case { mix, bytes, count, rounds });
    }
    Ok(cases)
}

impl Case {
    fn of(&self, method: UpdatePolicy) -> Rounds {
        let mut all = METHODS.iter().zip(&self.rounds);
        all.find(|(other, _)| **other == method)
            .map(|(_, rounds)| rounds.clone())
            .unwrap_or_default()
    }

    /// MB a second, of 10^6 bytes.
    fn bandwidth(&self, rounds: &Rounds) -> u64 {
        self.bytes * self.count * 1000 / rounds.median().ns.max(1)
    }

    /// What the paper says of this size.
    fn paper(&self) -> Option<(f64, f64)> {
        let all = PAPER_TIMES.iter().filter(|_| self.mix == "random write");
        all.filter(|(bytes, ..)| *bytes == self.bytes).map(|(_, cow, log)| (*cow, *log)).next()
    }
}

fn figure_5(common: &Common, cases: &[Case], beside: &[Beside]) -> Report {
    let mut columns = vec!["MB/s".to_owned()];
    columns.extend(METHODS.iter().map(|method| method.name().to_owned()));
    columns.extend(beside.iter().map(|folder| folder.name.clone()));
    columns.extend(
        [
            "auto x cow",
            "paired x cow",
            "lawn x cow",
            "paper: lawn x cow",
            "paired x finelog",
            "lawn x finelog",
            "paper: lawn x finelog",
        ]
        .map(str::to_owned),
    );
    let row = |case: &Case| {
        let mut cells = vec![Cell::Text(format!("{} {}", case.mix, bytes_text(case.bytes)))];
        cells.extend(case.rounds.iter().map(|rounds| Cell::Count(case.bandwidth(rounds))));
        let times = |base, method| Cell::Ratio(case.of(base).ratio(&case.of(method)));
        let paper = case
            .paper()
            .map_or([Cell::None, Cell::None], |(cow, log)| [Cell::Ratio(cow), Cell::Ratio(log)]);
        let [paper_cow, paper_log] = paper;
        cells.extend([
            times(UpdatePolicy::Cow, UpdatePolicy::Auto),
            times(UpdatePolicy::Cow, UpdatePolicy::Paired),
            times(UpdatePolicy::Cow, UpdatePolicy::Lawn),
            paper_cow,
            times(UpdatePolicy::FineLog, UpdatePolicy::Paired),
            times(UpdatePolicy::FineLog, UpdatePolicy::Lawn),
            paper_log,
        ]);
        cells
    };
    Report {
        name: "lawn-5",
        title: "MB (10^6 bytes) a second of CPU time (folders: by the clock), one thread, requests at random \
                multiples of their size"
            .into(),
        setup: setup(common),
        columns,
        rows: cases.iter().map(row).collect(),
    }
}

/// The bytes that the device of another file system is given for each write, by folder.
type Others = [(String, Option<f64>)];

fn figure_6(common: &Common, stored: &[Stored], others: &Others) -> Report {
    let columns = ["method", "contents", "all purposes", "in lines", "than cow", "than finelog"];
    let all_of = |method| {
        let mut all = METHODS.iter().zip(stored);
        all.find(|(other, _)| **other == method).map_or(1.0, |(_, stored)| float(stored.all))
    };
    let [cow, log] = [UpdatePolicy::Cow, UpdatePolicy::FineLog].map(all_of);
    let change = |all: f64, base: f64| Cell::Percent((all / base - 1.0) * 100.0);
    let count = float(stored.first().map_or(1, |stored| stored.count.max(1)));
    let other = |(name, each): &(String, Option<f64>)| {
        let of = |base: f64| each.map_or(Cell::None, |each| change(each * count, base));
        let all = each.map_or(Cell::None, Cell::Ratio);
        vec![Cell::Text(name.clone()), Cell::None, all, Cell::None, of(cow), of(log)]
    };
    let row = |(method, stored): (&UpdatePolicy, &Stored)| {
        let per = |bytes: u64| Cell::Ratio(float(bytes) / float(stored.count.max(1)));
        vec![
            Cell::Text(method.name().to_owned()),
            per(stored.data),
            per(stored.all),
            per(stored.lines * 64),
            change(float(stored.all), cow),
            change(float(stored.all), log),
        ]
    };
    let paper = vec![
        Cell::Text("paper: lawn".into()),
        Cell::None,
        Cell::None,
        Cell::None,
        Cell::Percent(-PAPER_LESS.0),
        Cell::Percent(-PAPER_LESS.1),
    ];
    let ours = METHODS.iter().zip(stored).map(row);
    Report {
        name: "lawn-6",
        title: "bytes stored for a random write of 1 KB, log pages and collection included: as contents of \
                files, for all purposes, and 64 for each line that is touched; of another file system those \
                that its device is given"
            .into(),
        setup: setup(common),
        columns: columns.map(str::to_owned).into(),
        rows: ours.chain(others.iter().map(other)).chain([paper]).collect(),
    }
}

fn plot_5(cases: &[Case], mix: &str) -> Figure {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.mix == mix).collect();
    let mut series: Vec<Series> = (METHODS.iter().enumerate())
        .map(|(index, method)| {
            let of =
                |case: &&Case| case.rounds.get(index).map(|rounds| float(case.bandwidth(rounds)));
            Series::ours(method.name(), cases.iter().map(of).collect())
        })
        .collect();
    if cases.iter().any(|case| case.paper().is_some()) {
        let of = |case: &&Case| {
            case.paper()
                .map(|(times, _)| times * float(case.bandwidth(&case.of(UpdatePolicy::Cow))))
        };
        series.push(Series::paper(
            "paper: lawn, of our cow",
            false,
            cases.iter().map(of).collect(),
        ));
    }
    Figure {
        file: format!("lawn-5-{}", mix.replace(' ', "-")),
        title: format!("LAWN, figure 5: {mix}"),
        groups: cases.iter().map(|case| bytes_text(case.bytes)).collect(),
        x: "bytes of a request".into(),
        y: "MB/s of CPU time".into(),
        series,
    }
}

fn plot_6(stored: &[Stored], others: &Others) -> Figure {
    let per = |stored: &Stored| float(stored.all) / float(stored.count.max(1));
    let ours = METHODS.iter().zip(stored);
    let mut series: Vec<Series> =
        ours.map(|(method, stored)| Series::ours(method.name(), vec![Some(per(stored))])).collect();
    let cow = METHODS.iter().zip(stored).find(|(method, _)| **method == UpdatePolicy::Cow);
    let paper = cow.map(|(_, stored)| per(stored) * (1.0 - PAPER_LESS.0 / 100.0));
    series.extend(others.iter().map(|(name, each)| Series::ours(name, vec![*each])));
    series.push(Series::paper("paper: lawn, of our cow", false, vec![paper]));
    Figure {
        file: "lawn-6".into(),
        title: "LAWN, figure 6: bytes stored for 1 KB".into(),
        groups: vec!["random write of 1 KB".into()],
        x: "request".into(),
        y: "bytes stored for all purposes".into(),
        series,
    }
}
