//! Traces in the shapes of those that `HiNFS` replays and that are not ours to give (figure 13): a desktop
//! (usr0, usr1) and computers of developers (LASR); and Postmark's (figure 14), whose small files live
//! shortly. The paper names where traces come from and, of what is in them, that LASR has no sync at all; the
//! numbers here are chosen, and a figure of them says no more than they do.

use crate::trace::Call;

/// A shape, from which calls are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Files that are open at once.
    files: u32,
    /// In a hundred steps: reads, overwrites near what was written last, appends, and files that are removed
    /// for new ones.
    reads: u32,
    overwrites: u32,
    appends: u32,
    removes: u32,
    /// One file in so many is synced with each of its writes, none at 0.
    synced: u32,
    /// The least and the greatest bytes of an access, evenly.
    bytes: (u64, u64),
    seed: u64,
}

/// Steps of a shape.
const STEPS: u32 = 20_000;
/// An overwrite begins at most so far before the end.
const NEAR_BYTES: u64 = 32 << 10;

pub(crate) const ALL: [Shape; 4] = [
    Shape {
        name: "desktop 1 (as usr0)",
        files: 64,
        reads: 35,
        overwrites: 30,
        appends: 30,
        removes: 5,
        synced: 8,
        bytes: (512, 8 << 10),
        seed: 0,
    },
    Shape {
        name: "desktop 2 (as usr1)",
        files: 64,
        reads: 25,
        overwrites: 40,
        appends: 30,
        removes: 5,
        synced: 5,
        bytes: (512, 12 << 10),
        seed: 1,
    },
    Shape {
        name: "developers (as LASR)",
        files: 32,
        reads: 40,
        overwrites: 20,
        appends: 30,
        removes: 10,
        synced: 0,
        bytes: (64, 4 << 10),
        seed: 2,
    },
    Shape {
        name: "small files (as Postmark)",
        files: 64,
        reads: 25,
        overwrites: 0,
        appends: 25,
        removes: 50,
        synced: 0,
        bytes: (512, 10 << 10),
        seed: 3,
    },
];

/// So many writes of one kind, then a sync, again and again: what the benefit model judges by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    bytes: u64,
    /// Each write to the file's end; otherwise to its next page, in turn.
    appends: bool,
    writes_to_a_sync: u32,
}

/// Writes of a pattern.
const PATTERN_WRITES: u32 = 16_000;
/// The pages that a pattern writes over.
const PATTERN_PAGES: u64 = 64;
const PAGE: u64 = 4 << 10;

pub(crate) const PATTERNS: [Pattern; 7] = [
    pattern("4 KB over pages, 4 to a sync", PAGE, false, 4),
    pattern("4 KB over pages, 16 to a sync", PAGE, false, 16),
    pattern("100 B to the end, 4 to a sync", 100, true, 4),
    pattern("100 B to the end, 6 to a sync", 100, true, 6),
    pattern("100 B to the end, 16 to a sync", 100, true, 16),
    pattern("100 B over pages, 4 to a sync", 100, false, 4),
    pattern("100 B over pages, 16 to a sync", 100, false, 16),
];

const fn pattern(name: &'static str, bytes: u64, appends: bool, writes_to_a_sync: u32) -> Pattern {
    Pattern { name, bytes, appends, writes_to_a_sync }
}

impl Pattern {
    pub(crate) fn calls(&self) -> Vec<Call> {
        let fd = 0;
        let mut calls = vec![Call::Open { fd, makes: true }];
        if !self.appends {
            calls.extend([
                Call::Write { fd, at: Some(0), len: PATTERN_PAGES * PAGE },
                Call::Sync { fd },
            ]);
        }
        for write in 1..=PATTERN_WRITES {
            let page = u64::from(write) % PATTERN_PAGES;
            let at = if self.appends { u64::from(write - 1) * self.bytes } else { page * PAGE };
            calls.push(Call::Write { fd, at: Some(at), len: self.bytes });
            if write.is_multiple_of(self.writes_to_a_sync) {
                calls.push(Call::Sync { fd });
            }
        }
        calls
    }
}

impl Shape {
    /// The same calls each time.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut calls: Vec<Call> =
            (0..self.files).map(|fd| Call::Open { fd, makes: true }).collect();
        let mut lengths = vec![0_u64; self.files as usize];
        for _ in 0..STEPS {
            // Some files are used much more than others.
            let fd = random.u32(0..self.files).min(random.u32(0..self.files));
            let Some(length) = lengths.get_mut(fd as usize) else { continue };
            let len = random.u64(self.bytes.0..=self.bytes.1);
            let near = length.saturating_sub(random.u64(0..NEAR_BYTES));
            let pick = random.u32(0..self.reads + self.overwrites + self.appends + self.removes);
            let at = match pick {
                pick if pick < self.reads => {
                    calls.push(Call::Read { fd, at: Some(near), len });
                    continue;
                }
                pick if pick < self.reads + self.overwrites => near,
                pick if pick < self.reads + self.overwrites + self.appends => *length,
                _ => {
                    calls.extend([Call::Remove { fd }, Call::Open { fd, makes: true }]);
                    *length = 0;
                    continue;
                }
            };
            calls.push(Call::Write { fd, at: Some(at), len });
            *length = (*length).max(at + len);
            if self.synced > 0 && fd.is_multiple_of(self.synced) {
                calls.push(Call::Sync { fd });
            }
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_syncs_after_so_many_writes() {
        for pattern in PATTERNS {
            let calls = pattern.calls();
            let syncs = calls.iter().filter(|call| matches!(call, Call::Sync { .. })).count();
            let writes = calls.iter().filter(|call| matches!(call, Call::Write { .. })).count();
            let first = usize::from(!pattern.appends);
            let of_each = usize::try_from(pattern.writes_to_a_sync).unwrap();
            assert_eq!(syncs - first, (writes - first) / of_each, "{pattern:?}");
        }
    }

    #[test]
    fn calls_are_of_files_that_are_open_and_the_same_each_time() {
        for shape in ALL {
            let calls = shape.calls();
            assert_eq!(calls, shape.calls());
            let mut open = vec![false; shape.files as usize];
            for call in &calls {
                match *call {
                    Call::Open { fd, .. } => open[fd as usize] = true,
                    Call::Remove { fd } => open[fd as usize] = false,
                    Call::Read { fd, .. } | Call::Write { fd, .. } | Call::Sync { fd } => {
                        assert!(open[fd as usize], "{call:?}");
                    }
                    Call::Close { .. } | Call::Attributes { .. } | Call::Nothing => {}
                }
            }
            let syncs = calls.iter().filter(|call| matches!(call, Call::Sync { .. })).count();
            assert_eq!(syncs == 0, shape.synced == 0, "{shape:?}");
        }
    }
}
