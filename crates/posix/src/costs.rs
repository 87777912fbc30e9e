//! What a fence and a checksum cost on this machine, measured before a pool is opened: the commit form
//! goes by it ([`novale_core::Form::Auto`]).
//!
//! Measured are commits of a page as the two forms make them, with the locked instruction after them that
//! ends an operation: on many processors the fence itself does not wait for the stores, and that one
//! does. They go to the pool's own memory, to a page that this version of the format leaves blank; its
//! bytes are stored again as they are, so that nothing changes, whenever the power fails.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use novale_core::{CommitCosts, Form, OpenOptions};
use novale_layout::{Crc32c, LINE, PAGE, PmAddr, WEAR_PAGE};
use novale_pm::{Flushed, Pm, Purpose};

/// Times that each is measured; the median counts.
const ROUNDS: usize = 100;

/// Lets [`Form::Auto`] go by what is measured now, below 1 ms; where nothing may be stored, or somebody
/// chose a form, nothing is measured.
pub fn measure_costs(pm: &Pm, options: &mut OpenOptions) {
    let chosen = options.form != Form::Auto || options.costs.is_some();
    if !chosen && !options.read_only && !pm.is_read_only() {
        options.costs = measured(pm);
    }
}

fn measured(pm: &Pm) -> Option<CommitCosts> {
    let at = PmAddr::new(0, WEAR_PAGE * PAGE);
    let mut page = vec![0; usize::try_from(PAGE).ok()?];
    pm.load(at, &mut page).ok()?;
    let (data, line) = page.split_at(page.len() - usize::try_from(LINE).ok()?);
    let lock = AtomicU64::new(0);
    // The data, what is done before the line, the line, the end of the operation.
    let commit = |between: &dyn Fn()| {
        median(|| {
            let stored = pm.stream(at, data, Purpose::Other);
            between();
            let line = pm.stream(at.add(PAGE - LINE), line, Purpose::Other);
            pm.fence(stored.and(line)).end();
            lock.fetch_add(1, Ordering::AcqRel);
        })
    };
    let sum = || {
        let mut crc = Crc32c::new();
        crc.update(black_box(&page));
        black_box(crc.finish());
    };
    let alone = commit(&|| ());
    let fenced = commit(&|| pm.fence(Flushed::none()).end());
    let summed = commit(&sum);
    Some(CommitCosts {
        fence_ns: nanoseconds(fenced.saturating_sub(alone)),
        page_sum_ns: nanoseconds(summed.saturating_sub(alone)),
    })
}

/// The median time that a thing takes, the first time not counted.
fn median(mut once: impl FnMut()) -> Duration {
    once();
    let mut times = [Duration::ZERO; ROUNDS];
    for time in &mut times {
        let begun = Instant::now();
        once();
        *time = begun.elapsed();
    }
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().unwrap_or_default()
}

fn nanoseconds(time: Duration) -> u16 {
    u16::try_from(time.as_nanos()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use novale_pm::PmOptions;

    use super::*;

    fn pool() -> Pm {
        let pm = Pm::anonymous(&[4 << 20], &PmOptions::default()).unwrap();
        novale_core::mkfs(&pm, &crate::make::mkfs_options(Some(1), 1)).unwrap();
        pm
    }

    #[test]
    fn costs_are_measured_and_change_nothing() {
        let (pm, mut options) = (pool(), OpenOptions::default());
        let page = || {
            let mut bytes = vec![0; 4096];
            pm.load(PmAddr::new(0, WEAR_PAGE * PAGE), &mut bytes).unwrap();
            bytes
        };
        let before = page();
        measure_costs(&pm, &mut options);
        assert!(options.costs.is_some());
        assert_eq!(page(), before);
    }

    #[test]
    fn what_was_chosen_stays() {
        let pm = pool();
        for (form, read_only) in [(Form::Single, false), (Form::Two, false), (Form::Auto, true)] {
            let mut options = OpenOptions { form, read_only, ..OpenOptions::default() };
            measure_costs(&pm, &mut options);
            assert_eq!(options.costs, None);
        }
        assert_eq!(pm.counters().lines(), pool().counters().lines());
    }
}
