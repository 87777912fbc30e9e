//! The limit: what the bare memory takes for the same bytes. Streaming stores and one fence to a
//! random place of a populated mapping, and copies out of one. It goes through `novale-pm`, since
//! nothing else stores to a pool; its checks and counters are some ns of each access.

use std::ops::Range;

use anyhow::Result;
use novale_layout::PmAddr;
use novale_pm::{Pm, Purpose};

use crate::bed::told_by;
use crate::place::{MB, Memory, Place};
use crate::report::{Cell, Report};
use crate::stats::{Rounds, Timer, clock_ns};
use crate::{Common, bytes_text, count_for, setup};

/// Sizes of durable stores, in bytes.
pub(crate) const STORE_BYTES: &[u64] = &[64, 128, 512, 1024, 4096, 16_384, 65_536, 1 << 20];
/// Sizes of loads, in bytes.
pub(crate) const LOAD_BYTES: &[u64] = &[64, 4096, 65_536, 1 << 20];

/// The memory that limits are measured on.
#[derive(Debug)]
pub(crate) struct Limit {
    memory: Memory,
    bytes: u64,
    data: Vec<u8>,
    random: fastrand::Rng,
}

impl Limit {
    pub(crate) fn new(place: &Place, bytes: u64) -> Result<Self> {
        Ok(Self {
            memory: place.memory(bytes)?,
            bytes,
            data: vec![0x5a; 1 << 20],
            random: fastrand::Rng::with_seed(1),
        })
    }

    fn place(&mut self, range: &Range<u64>, len: u64) -> PmAddr {
        let slots = (range.end - range.start) / len;
        PmAddr::new(0, range.start + self.random.u64(0..slots.max(1)) * len)
    }

    /// Durable stores of `len` bytes.
    pub(crate) fn store(&mut self, len: u64, count: u64, timer: &mut Timer) -> Result<()> {
        for _ in 0..count {
            let at = self.place(&(0..self.bytes), len);
            let data = self.data.get(..usize::try_from(len)?).unwrap_or_default();
            let pm = &self.memory.pm;
            timer.time(|| pm.fence(pm.stream(at, data, Purpose::Data)).end());
        }
        Ok(())
    }

    /// Copies of `len` bytes out of a range of another pool's first slot: as warm as what is read
    /// there. `chases`: each from a place that the one before tells.
    pub(crate) fn load_from(
        &mut self,
        pm: &Pm,
        range: &Range<u64>,
        (len, chases): (u64, bool),
        (count, timer): (u64, &mut Timer),
    ) -> Result<()> {
        let mut told = 0;
        for _ in 0..count {
            let at = self.place(range, len).add(told);
            let into = self.data.get_mut(..usize::try_from(len)?).unwrap_or_default();
            timer.time(|| pm.load(at, into))?;
            told = if chases { told_by(into) } else { 0 };
        }
        Ok(())
    }

    /// Copies of `len` bytes out.
    pub(crate) fn load(&mut self, len: u64, count: u64, timer: &mut Timer) -> Result<()> {
        for _ in 0..count {
            let at = self.place(&(0..self.bytes), len);
            let into = self.data.get_mut(..usize::try_from(len)?).unwrap_or_default();
            let pm = &self.memory.pm;
            timer.time(|| pm.load(at, into))?;
        }
        Ok(())
    }
}

/// Measures the limit alone.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let mut limit = Limit::new(&common.place(), common.file_mb * MB)?;
    let clock = clock_ns();
    let cases = STORE_BYTES
        .iter()
        .map(|len| (true, *len))
        .chain(LOAD_BYTES.iter().map(|len| (false, *len)));
    let mut results: Vec<((bool, u64), Rounds)> =
        cases.map(|case| (case, Rounds::default())).collect();
    for _ in 0..common.rounds {
        for ((stores, len), rounds) in &mut results {
            let count = count_for(common.ops, *len);
            let mut timer = Timer::new(clock, count)?;
            if *stores {
                limit.store(*len, count, &mut timer)?;
            } else {
                limit.load(*len, count, &mut timer)?;
            }
            rounds.push(timer.finish());
        }
    }
    Ok(Report {
        name: "limit",
        title: "ns of bare memory: durable random stores (streaming, one fence) and random loads"
            .into(),
        setup: setup(common),
        columns: ["access", "ns", "spread", "alone", "p99"].map(str::to_owned).into(),
        rows: results.iter().map(row).collect(),
    })
}

fn row(((stores, len), rounds): &((bool, u64), Rounds)) -> Vec<Cell> {
    let (what, median) = (if *stores { "store" } else { "load" }, rounds.median());
    let (least, greatest) = rounds.spread();
    vec![
        Cell::Text(format!("{what} {}", bytes_text(*len))),
        Cell::Count(median.ns),
        Cell::Spread(least, greatest),
        Cell::Count(median.alone),
        Cell::Count(median.p99),
    ]
}
