//! NOVA's microbenchmark (FAST '16, 5.2): files made, sixteen 4 KB appends and one fsync each, and
//! all of them removed, on one thread; the library and any mounted folder.

use std::path::PathBuf;

use anyhow::Result;

use crate::place::MB;
use crate::progress::Bar;
use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns};
use crate::target::{Open, Target};
use crate::{Common, setup};

/// Appends to each file.
const APPENDS: u64 = 16;
const APPEND_BYTES: usize = 4096;
/// The operations of a round, in their order.
const STEPS: [&str; 4] = ["create, close", "append 4 KB", "fsync", "unlink"];

/// Measures all targets, round by round, each `files` files a round.
pub(crate) fn run(common: &Common, dirs: &[PathBuf], no_library: bool) -> Result<Report> {
    let files = common.files.unwrap_or(10_000);
    let bytes = files * (APPENDS + 2) * 4096 + 256 * MB;
    let place = common.place();
    let targets = Target::all((!no_library).then_some((&place, bytes, 1)), dirs)?;
    let mut results = vec![[(); 4].map(|()| Rounds::default()); targets.len()];
    let bar = Bar::new("rounds", common.rounds * targets.len() as u64);
    let clock = clock_ns();
    for _ in 0..common.rounds {
        for (target, rounds) in targets.iter().zip(&mut results) {
            for (rounds, timer) in rounds.iter_mut().zip(round(target, files, clock)?) {
                rounds.push(timer.finish());
            }
            bar.step();
        }
    }
    let mut columns = vec!["operation".to_owned()];
    for target in &targets {
        columns.push(target.name().to_owned());
        columns.push(format!("{}: spread", target.name()));
    }
    let rows = STEPS.iter().enumerate().map(|(step, name)| {
        let mut cells = vec![Cell::from(*name)];
        for rounds in results.iter().filter_map(|rounds| rounds.get(step)) {
            let (least, most) = rounds.spread();
            cells.push(Cell::Count(rounds.median().ns));
            cells.push(Cell::Spread(least, most));
        }
        cells
    });
    let mut setup = setup(common);
    setup.push(("files", format!("{files} a round, {APPENDS} appends and an fsync each")));
    Ok(Report {
        name: "micro",
        title: "ns an operation, one thread (NOVA 5.2); Novale's appends are durable at once"
            .into(),
        setup,
        rows: rows.collect(),
        columns,
    })
}

/// One round on one target: the times of each step.
fn round(target: &Target, files: u64, clock: u64) -> Result<[Timer; 4]> {
    let timer = |count| Timer::new(clock, count);
    let mut timers = [timer(files)?, timer(files * APPENDS)?, Timer::single(clock)?, timer(files)?];
    let [creates, appends, syncs, removes] = &mut timers;
    let data = [0x5a; APPEND_BYTES];
    let names: Vec<String> = (0..files).map(|index| format!("micro/file {index}")).collect();
    target.make_dir("micro")?;
    for name in &names {
        creates.time(|| target.close(target.open(name, Open::New)?))?;
    }
    for name in &names {
        let file = target.open(name, Open::Append)?;
        for _ in 0..APPENDS {
            appends.time(|| target.append(&file, &data))?;
        }
        syncs.time(|| target.sync(&file))?;
        target.close(file)?;
    }
    for name in &names {
        removes.time(|| target.remove(name))?;
    }
    target.remove_dir("micro")?;
    Ok(timers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// 8 files: what is left is what was there before, and the pages are free again.
    #[test]
    fn a_round_leaves_nothing_behind() {
        let target = Target::library(&Place::default(), 64 * MB, 1).unwrap();
        round(&target, 8, 0).unwrap();
        let before = target.fs().unwrap().statfs().unwrap();
        round(&target, 8, 0).unwrap();
        let behind = target.fs().unwrap().statfs().unwrap();
        assert_eq!((behind.inodes, behind.pages_free), (before.inodes, before.pages_free));
    }
}
