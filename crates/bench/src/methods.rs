//! Overwrites by each write method, next to the limit of the same run: time, and lines that reach the
//! pool (LAWN, figures 5 and 6, in the small).

use anyhow::Result;
use novale_core::{Form, UpdatePolicy};

use crate::bed::{Bed, Kind};
use crate::limit::Limit;
use crate::lines::Lines;
use crate::place::MB;
use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns};
use crate::{Common, bytes_text, count_for, setup};

/// Bytes of an overwrite, at random places that are multiples of it.
const BYTES: &[u64] = &[64, 128, 512, 1024, 2048, 4096];
const METHODS: [UpdatePolicy; UpdatePolicy::ALL.len()] = UpdatePolicy::ALL;

/// One size's rounds, by method.
struct Row {
    bytes: u64,
    limit: Rounds,
    rounds: Vec<Rounds>,
    lines: Vec<Cell>,
}

/// Measures each size by each method, interleaved.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let (place, bytes) = (common.place(), common.file_mb * MB);
    let mut limit = Limit::new(&place, bytes)?;
    let beds = METHODS.iter().map(|update| Bed::by(&place, bytes, Form::Auto, *update));
    let mut beds = beds.collect::<Result<Vec<Bed>>>()?;
    let clock = clock_ns();
    let wanted = BYTES.iter().filter(|bytes| common.wants(&bytes_text(**bytes)));
    let new = |bytes: &u64| Row {
        bytes: *bytes,
        limit: Rounds::default(),
        rounds: vec![Rounds::default(); METHODS.len()],
        lines: Vec::new(),
    };
    let mut rows: Vec<Row> = wanted.map(new).collect();
    for _ in 0..common.rounds {
        for row in &mut rows {
            let count = count_for(common.ops, row.bytes);
            let mut timer = Timer::new(clock, count)?;
            limit.store(row.bytes, count, &mut timer)?;
            row.limit.push(timer.finish());
            for (bed, rounds) in beds.iter_mut().zip(&mut row.rounds) {
                let mut timer = Timer::new(clock, count)?;
                bed.run(Kind::Overwrite(row.bytes), count, &mut timer)?;
                rounds.push(timer.finish());
            }
        }
    }
    for row in &mut rows {
        for bed in &mut beds {
            let mut lines = Lines::default();
            bed.run(Kind::Overwrite(row.bytes), count_for(common.ops, row.bytes), &mut lines)?;
            let [_, mean] = lines.figure(novale_pm::Counters::lines);
            row.lines.push(mean);
        }
    }
    let mut setup = setup(common);
    setup.push(("clock", format!("{clock} ns, taken off each time")));
    Ok(Report {
        name: "methods",
        title: "ns of an overwrite by each write method, one thread, and the lines of 64 bytes that it \
                stores, with what log pages and collection add"
            .into(),
        setup,
        columns: columns(),
        rows: rows.iter().map(cells).collect(),
    })
}

fn columns() -> Vec<String> {
    let mut columns = vec!["overwrite".to_owned(), "limit".to_owned()];
    for method in METHODS {
        for figure in ["ns", "x limit", "lines"] {
            columns.push(format!("{}: {figure}", method.name()));
        }
    }
    columns
}

fn cells(row: &Row) -> Vec<Cell> {
    let mut cells = vec![Cell::Text(bytes_text(row.bytes)), Cell::Count(row.limit.median().ns)];
    for (rounds, lines) in row.rounds.iter().zip(&row.lines) {
        cells.push(Cell::Count(rounds.median().ns));
        cells.push(Cell::Ratio(rounds.ratio(&row.limit)));
        cells.push(lines.clone());
    }
    cells
}
