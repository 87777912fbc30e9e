//! Single operations of the library on one thread, next to the limit of the same run.

use anyhow::Result;
use novale_core::Form;

use crate::bed::{Bed, Find, Kind, Names};
use crate::limit::Limit;
use crate::place::MB;
use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns};
use crate::{Common, bytes_text, count_for, setup};

/// What is measured, in the order of a round.
const KINDS: &[Kind] = &[
    Kind::Overwrite(64),
    Kind::Overwrite(512),
    Kind::Overwrite(1024),
    Kind::Overwrite(4096),
    Kind::Overwrite(16_384),
    Kind::Overwrite(65_536),
    Kind::Overwrite(1 << 20),
    Kind::Append(64),
    Kind::Append(4096),
    Kind::Append(65_536),
    Kind::Read(64),
    Kind::Read(4096),
    Kind::Read(65_536),
    Kind::Chase(64),
    Kind::Chase(4096),
    Kind::Names(Names::Create),
    Kind::Names(Names::Rename),
    Kind::Names(Names::Unlink),
    Kind::Names(Names::Mkdir),
    Kind::Names(Names::Rmdir),
    Kind::Find(Find::Stat),
    Kind::Find(Find::Lookup),
    Kind::Find(Find::Missing),
];

/// One operation's rounds.
struct Row {
    kind: Kind,
    limit: Option<Rounds>,
    forms: [Rounds; 2],
}

/// Measures all operations in both commit forms.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let (place, bytes) = (common.place(), common.file_mb * MB);
    let mut limit = Limit::new(&place, bytes)?;
    let mut beds = [Bed::new(&place, bytes, Form::Single)?, Bed::new(&place, bytes, Form::Two)?];
    let clock = clock_ns();
    let mut rows: Vec<Row> = KINDS
        .iter()
        .filter(|kind| common.wants(&kind_text(**kind)))
        .map(|kind| Row {
            kind: *kind,
            limit: limit_of(*kind).map(|_| Rounds::default()),
            forms: [Rounds::default(), Rounds::default()],
        })
        .collect();
    for _ in 0..common.rounds {
        for bed in &mut beds {
            bed.next_round()?;
        }
        for row in &mut rows {
            measure(row, &mut limit, &mut beds, (common.ops, clock))?;
        }
    }
    let mut setup = setup(common);
    setup.push(("clock", format!("{clock} ns, taken off each time")));
    Ok(Report {
        name: "ops",
        title: "ns of the library's operations, one thread".into(),
        setup,
        columns: columns(),
        rows: rows.iter().map(cells).collect(),
    })
}

/// One round of one operation: the limit, then each form.
fn measure(
    row: &mut Row,
    limit: &mut Limit,
    beds: &mut [Bed; 2],
    (ops, clock): (u64, u64),
) -> Result<()> {
    let count = count_for(ops, row.kind.bytes());
    if let Some(rounds) = &mut row.limit {
        let mut timer = Timer::new(clock, count)?;
        match limit_of(row.kind) {
            Some(Access::Store(bytes)) => limit.store(bytes, count, &mut timer)?,
            Some(access @ (Access::Load(bytes) | Access::Chase(bytes))) => {
                let [bed, _] = &*beds;
                let (range, chases) = (bed.read_range(), matches!(access, Access::Chase(_)));
                limit.load_from(bed.fs().pm(), &range, (bytes, chases), (count, &mut timer))?;
            }
            None => {}
        }
        rounds.push(timer.finish());
    }
    for (bed, rounds) in beds.iter_mut().zip(&mut row.forms) {
        let mut timer = Timer::new(clock, count)?;
        if matches!(row.kind, Kind::Read(_) | Kind::Chase(_) | Kind::Find(_)) {
            // What the operations before left in the caches is not what a reader finds.
            bed.run(row.kind, count, &mut Timer::new(clock, count)?)?;
        }
        bed.run(row.kind, count, &mut timer)?;
        rounds.push(timer.finish());
    }
    Ok(())
}

/// The memory access that an operation can't do without.
pub(crate) enum Access {
    Store(u64),
    Load(u64),
    /// Each from a place that the one before tells.
    Chase(u64),
}

pub(crate) fn limit_of(kind: Kind) -> Option<Access> {
    match kind {
        Kind::Overwrite(bytes) | Kind::Append(bytes) => Some(Access::Store(bytes)),
        Kind::Read(bytes) => Some(Access::Load(bytes)),
        Kind::Chase(bytes) => Some(Access::Chase(bytes)),
        Kind::Names(_) | Kind::Find(_) => None,
    }
}

fn columns() -> Vec<String> {
    let mut columns = vec!["operation".to_owned(), "limit".to_owned()];
    for form in ["single", "two"] {
        for figure in ["ns", "spread", "alone", "p99", "x limit"] {
            columns.push(format!("{form}: {figure}"));
        }
    }
    columns
}

fn cells(row: &Row) -> Vec<Cell> {
    let limit = row.limit.as_ref();
    let mut cells = vec![
        Cell::Text(kind_text(row.kind)),
        limit.map_or(Cell::None, |limit| Cell::Count(limit.median().ns)),
    ];
    for rounds in &row.forms {
        let (median, (least, greatest)) = (rounds.median(), rounds.spread());
        cells.push(Cell::Count(median.ns));
        cells.push(Cell::Spread(least, greatest));
        cells.push(Cell::Count(median.alone));
        cells.push(Cell::Count(median.p99));
        cells.push(limit.map_or(Cell::None, |limit| Cell::Ratio(rounds.ratio(limit))));
    }
    cells
}

/// The operation as a report names it.
pub(crate) fn kind_text(kind: Kind) -> String {
    match kind {
        Kind::Overwrite(bytes) => format!("overwrite {}", bytes_text(bytes)),
        Kind::Append(bytes) => format!("append {}", bytes_text(bytes)),
        Kind::Read(bytes) => format!("read {}", bytes_text(bytes)),
        Kind::Chase(bytes) => format!("read {}, one after the other", bytes_text(bytes)),
        Kind::Names(Names::Create) => "create".into(),
        Kind::Names(Names::Rename) => "rename".into(),
        Kind::Names(Names::Unlink) => "unlink".into(),
        Kind::Names(Names::Mkdir) => "mkdir".into(),
        Kind::Names(Names::Rmdir) => "rmdir".into(),
        Kind::Find(Find::Stat) => "stat by inode".into(),
        Kind::Find(Find::Lookup) => "look-up, 10,000 names".into(),
        Kind::Find(Find::Missing) => "look-up of no name".into(),
    }
}
