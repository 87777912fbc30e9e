//! Lines and fences of each operation: of one that needs nothing new, and the mean over many, with
//! the log pages and the collection that they need.

use anyhow::Result;
use novale_core::{Form, Fs};
use novale_pm::Counters;

use crate::bed::{Bed, Find, Kind, Names, Probe};
use crate::ops::kind_text;
use crate::place::MB;
use crate::report::{Cell, Report};
use crate::stats::{float, median};
use crate::{Common, count_for, setup};

const KINDS: &[Kind] = &[
    Kind::Overwrite(64),
    Kind::Overwrite(4096),
    Kind::Overwrite(8192),
    Kind::Overwrite(65_536),
    Kind::Append(64),
    Kind::Append(4096),
    Kind::Names(Names::Create),
    Kind::Names(Names::Rename),
    Kind::Names(Names::Unlink),
    Kind::Names(Names::Mkdir),
    Kind::Names(Names::Rmdir),
    Kind::Read(4096),
    Kind::Find(Find::Lookup),
];

/// What each operation did.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<Counters>);

impl Probe for Lines {
    fn observe<T>(&mut self, fs: &Fs, operation: impl FnOnce() -> T) -> T {
        let before = fs.counters();
        let value = operation();
        self.0.push(&fs.counters() - &before);
        value
    }
}

impl Lines {
    /// The median and the mean of a figure.
    pub(crate) fn figure(&self, figure: impl Fn(&Counters) -> u64) -> [Cell; 2] {
        let sum: u64 = self.0.iter().map(&figure).sum();
        let count = u64::try_from(self.0.len()).unwrap_or(u64::MAX).max(1);
        let mean = float(sum) / float(count);
        [Cell::Count(median(self.0.iter().map(&figure))), Cell::Ratio(mean)]
    }
}

/// Counts what each operation stores, in both commit forms.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let mut beds = [
        Bed::new(&common.place(), common.file_mb * MB, Form::Single)?,
        Bed::new(&common.place(), common.file_mb * MB, Form::Two)?,
    ];
    for bed in &mut beds {
        bed.next_round()?;
    }
    let mut rows = Vec::new();
    for kind in KINDS.iter().filter(|kind| common.wants(&kind_text(**kind))) {
        let mut row = vec![Cell::Text(kind_text(*kind))];
        for bed in &mut beds {
            let mut lines = Lines::default();
            bed.run(*kind, count_for(common.ops, kind.bytes()), &mut lines)?;
            row.extend(lines.figure(Counters::lines));
            row.extend(lines.figure(Counters::write_backs));
            row.extend(lines.figure(|counters| counters.fences_with_pending));
        }
        rows.push(row);
    }
    Ok(Report {
        name: "lines",
        title: "lines stored, lines written back and fences that wait, of each operation: the \
                median one, and the mean with the log pages and collection that all needed"
            .into(),
        setup: setup(common),
        columns: columns(),
        rows,
    })
}

fn columns() -> Vec<String> {
    let mut columns = vec!["operation".to_owned()];
    for form in ["single", "two"] {
        for figure in ["lines", "write-backs", "fences"] {
            columns.push(format!("{form}: {figure}"));
            columns.push(format!("{form}: mean {figure}"));
        }
    }
    columns
}
