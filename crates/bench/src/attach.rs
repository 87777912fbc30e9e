//! What it costs to join a pool that others have open, and to leave it: each program that is started
//! under `novale run`, and each child that it forks, does both.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use novale_core::{Ctx, FileKind, Node, Serial};
use novale_posix::join::{self, Joined, Opening};

use crate::bed::new;
use crate::place::{EPOCH_NS, MB, Place};
use crate::progress::Bar;
use crate::report::{Cell, Report};
use crate::stats::median;
use crate::{Common, setup};

/// Files of one directory.
const FILES_A_DIR: u64 = 1_000;
/// Clients that the pool has beside the one that comes and goes.
const OTHERS: [usize; 3] = [1, 100, 400];
/// Comings and goings of a round.
const TIMES: usize = 50;

/// Times in ns: to join, to look at a first file, to leave.
type Times = [Vec<u64>; 3];

/// Joins and leaves a pool of files, beside more and more others.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let files = common.files.unwrap_or(100_000);
    let folder = common.slots_in.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let place = Place { folder: Some(folder), ..common.place() };
    let (pm, slot) = place.made(files * 3 * 4096 + 256 * MB, 4)?;
    drop(pm);
    let slot = slot.context("a slot in a folder has a file")?;
    let slots = [slot.to_path_buf()];
    let first = join::open(&slots, &Opening::default(), &Serial, &|_| ())?;
    fill(&first, files)?;
    let bar = Bar::new("rounds", common.rounds * OTHERS.len() as u64);
    let mut others = vec![first];
    let mut rows = Vec::new();
    for count in OTHERS {
        while others.len() < count {
            others.push(join::join(&slots)?);
        }
        let mut times = Times::default();
        for _ in 0..common.rounds {
            for _ in 0..TIMES {
                once(&slots, &mut times)?;
            }
            bar.step();
        }
        rows.push(row(count, &times));
    }
    for other in others.iter().rev() {
        other.close()?;
    }
    let mut setup = setup(common);
    setup.push(("files", files.to_string()));
    Ok(Report {
        name: "attach",
        title: "ns to join a pool that is open, to look at a file, and to leave".into(),
        setup,
        columns: ["others", "join", "spread", "first look", "spread", "leave", "spread"]
            .map(str::to_owned)
            .into(),
        rows,
    })
}

fn row(others: usize, times: &Times) -> Vec<Cell> {
    let mut cells = vec![Cell::Count(others as u64)];
    for times in times {
        let (least, most) = (times.iter().min().copied(), times.iter().max().copied());
        cells.push(Cell::Count(median(times.iter().copied())));
        cells.push(Cell::Spread(least.unwrap_or(0), most.unwrap_or(0)));
    }
    cells
}

fn once(slots: &[PathBuf], [joins, looks, leaves]: &mut Times) -> Result<()> {
    let ns = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let begun = Instant::now();
    let joined = join::join(slots)?;
    joins.push(ns(begun));
    let begun = Instant::now();
    joined.fs.lookup(&Ctx { now_ns: EPOCH_NS, hint: 0 }, Node::ROOT, b"dir0")?;
    looks.push(ns(begun));
    let begun = Instant::now();
    joined.close()?;
    drop(joined);
    leaves.push(ns(begun));
    Ok(())
}

fn fill(joined: &Joined, files: u64) -> Result<()> {
    let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
    for dir in 0..files.div_ceil(FILES_A_DIR) {
        let name = format!("dir{dir}");
        let made =
            joined.fs.create(&ctx, Node::ROOT, name.as_bytes(), &new(FileKind::Directory))?;
        for file in 0..FILES_A_DIR.min(files - dir * FILES_A_DIR) {
            let name = format!("file{file}");
            joined.fs.create(&ctx, made.node(), name.as_bytes(), &new(FileKind::File))?;
        }
    }
    Ok(())
}
