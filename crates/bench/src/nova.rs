//! The library beside the real NOVA: its kernel module was run natively on a machine of the same
//! kind (DRAM as NVMM, no system call, quiet), and its figures stand here as they were found. The
//! goal is half of its copy-on-write form, and for reads 1.2 times a plain copy out of the mapping.

use anyhow::Result;
use novale_core::Form;

use crate::bed::{Bed, Kind, Names};
use crate::limit::Limit;
use crate::ops::{Access, kind_text, limit_of};
use crate::place::MB;
use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns, float};
use crate::{Common, count_for, setup};

/// Operations, and what NOVA's copy-on-write form took for each, in ns.
const NOVA_NS: &[(Kind, u64)] = &[
    (Kind::Overwrite(64), 1_920),
    (Kind::Overwrite(512), 2_060),
    (Kind::Overwrite(1024), 2_010),
    (Kind::Overwrite(4096), 1_260),
    (Kind::Overwrite(65_536), 2_790),
    (Kind::Append(64), 1_340),
    (Kind::Append(4096), 990),
    (Kind::Append(65_536), 2_630),
    (Kind::Read(64), 200),
    (Kind::Read(4096), 590),
    (Kind::Read(65_536), 4_640),
    (Kind::Chase(64), 200),
    (Kind::Chase(4096), 590),
    (Kind::Names(Names::Create), 2_440),
    (Kind::Names(Names::Rename), 3_870),
    (Kind::Names(Names::Unlink), 4_200),
    (Kind::Names(Names::Mkdir), 3_200),
];

/// The greatest share of NOVA's time, and for reads of the plain copy's.
const SHARE_MAX: f64 = 0.5;
const COPIES_MAX: f64 = 1.2;

/// Measures the library in the form that it chooses, and the memory limit, round by round.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let (place, bytes) = (common.place(), common.file_mb * MB);
    let mut limit = Limit::new(&place, bytes)?;
    let mut bed = Bed::new(&place, bytes, Form::Auto)?;
    let clock = clock_ns();
    let kinds: Vec<_> =
        NOVA_NS.iter().filter(|(kind, _)| common.wants(&kind_text(*kind))).collect();
    let mut results = vec![[Rounds::default(), Rounds::default()]; kinds.len()];
    for _ in 0..common.rounds {
        bed.next_round()?;
        for ((kind, _), [ours, bare]) in kinds.iter().zip(&mut results) {
            let count = count_for(common.ops, kind.bytes());
            let mut timer = Timer::new(clock, count)?;
            match limit_of(*kind) {
                Some(Access::Store(bytes)) => limit.store(bytes, count, &mut timer)?,
                Some(access @ (Access::Load(bytes) | Access::Chase(bytes))) => {
                    let (range, chases) = (bed.read_range(), matches!(access, Access::Chase(_)));
                    limit.load_from(bed.fs().pm(), &range, (bytes, chases), (count, &mut timer))?;
                }
                None => {}
            }
            bare.push(timer.finish());
            let mut timer = Timer::new(clock, count)?;
            bed.run(*kind, count, &mut timer)?;
            ours.push(timer.finish());
        }
    }
    Ok(Report {
        name: "nova",
        title:
            "ns an operation of the library, one thread, beside NOVA's kernel module run natively"
                .into(),
        setup: setup(common),
        columns: [
            "operation",
            "NOVA",
            "library",
            "spread",
            "of NOVA",
            "bare memory",
            "times it",
            "goal",
        ]
        .map(str::to_owned)
        .into(),
        rows: kinds.iter().zip(&results).map(|(row, rounds)| cells(row, rounds)).collect(),
    })
}

fn cells((kind, nova): &(Kind, u64), [ours, bare]: &[Rounds; 2]) -> Vec<Cell> {
    let (least, most) = ours.spread();
    let share = float(ours.median().ns) / float(*nova);
    let limit = limit_of(*kind).map(|_| (bare.median().ns, ours.ratio(bare)));
    let met = match (kind, limit) {
        (Kind::Read(_) | Kind::Chase(_), Some((_, times))) => times <= COPIES_MAX,
        _ => share <= SHARE_MAX,
    };
    let [bare, times] =
        limit.map_or([Cell::None, Cell::None], |(ns, times)| [Cell::Count(ns), Cell::Ratio(times)]);
    vec![
        Cell::Text(kind_text(*kind)),
        Cell::Count(*nova),
        Cell::Count(ours.median().ns),
        Cell::Spread(least, most),
        Cell::Ratio(share),
        bare,
        times,
        Cell::from(if met { "met" } else { "missed" }),
    ]
}
