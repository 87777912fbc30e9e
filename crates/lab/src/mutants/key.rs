//! Places that do something to the pool, and the mutants made of them.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;

use novale_layout::PmAddr;
use novale_pm::StoreKind;

use crate::crash::{Event, What};

/// A call of `pm` in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1.
    pub column: u32,
}

impl From<&'static Location<'static>> for Site {
    fn from(at: &'static Location<'static>) -> Self {
        Self { file: at.file(), line: at.line(), column: at.column() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.file.rsplit_once("/src/").map_or(self.file, |(_, short)| short);
        write!(f, "{short}:{}", self.line)
    }
}

/// What an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Does {
    /// Stores through the cache.
    Stores,
    /// Stores past the cache.
    Streams,
    /// Writes lines back.
    WritesBack,
    /// Waits for this thread's write-backs and streaming stores.
    Fences,
}

impl Does {
    /// The one that the table of needless calls calls so.
    pub(super) fn named(word: &str) -> Option<Self> {
        match word {
            "store" => Some(Self::Stores),
            "stream" => Some(Self::Streams),
            "write-back" => Some(Self::WritesBack),
            "fence" => Some(Self::Fences),
            _ => None,
        }
    }

    fn of(what: &What) -> Self {
        match what {
            What::Store { kind: StoreKind::Streaming, .. } => Self::Streams,
            What::Store { .. } => Self::Stores,
            What::WriteBack { .. } => Self::WritesBack,
            What::Fence => Self::Fences,
        }
    }
}

/// A place in its context, so that a needed use of a shared helper does not hide a needless one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The call.
    pub site: Site,
    /// What it does.
    pub does: Does,
    /// The kind of operation that it is part of.
    pub during: &'static str,
    /// The commit form of the run.
    pub form: &'static str,
    /// The fence that completes it; of a fence, what the thread did before it. None: nothing in the
    /// same operation.
    pub beside: Option<Site>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = match self.does {
            Does::Stores => "store",
            Does::Streams => "streaming store",
            Does::WritesBack => "write-back",
            Does::Fences => "fence",
        };
        write!(f, "{does} at {} in {} ({})", self.site, self.during, self.form)?;
        match (self.beside, self.does) {
            (Some(site), Does::Fences) => write!(f, ", behind {site}"),
            (Some(site), _) => write!(f, ", fenced at {site}"),
            (None, Does::Fences) => write!(f, ", first"),
            (None, _) => write!(f, ", not fenced there"),
        }
    }
}

/// What is changed at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// It does not happen.
    Removed,
    /// A streaming store goes to the cache and is not written back.
    Cached,
    /// It happens, as often as it does in a row, after what the thread does next, where that is this.
    Behind(Key),
}

/// A change of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mutant {
    /// Where.
    pub key: Key,
    /// What.
    pub how: How,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            How::Removed => write!(f, "no {}", self.key),
            How::Cached => write!(f, "left in the cache: {}", self.key),
            How::Behind(next) => write!(f, "{} behind the {next}", self.key),
        }
    }
}

/// An operation's events with the key of each.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    pub(super) events: Vec<Event>,
    pub(super) keys: Vec<Key>,
    /// The same thread's next event of another key.
    next: Vec<Option<usize>>,
}

impl Keyed {
    pub(super) fn new(events: Vec<Event>, during: &'static str, form: &'static str) -> Self {
        let follows = |index: usize, event: &Event, wanted: &dyn Fn(&Event) -> bool| {
            let later = events.iter().enumerate().skip(index + 1);
            later
                .filter(|(_, other)| other.thread == event.thread)
                .find(|(_, other)| wanted(other))
                .map(|(at, other)| (at, Site::from(other.site)))
        };
        let precedes = |index: usize, event: &Event| {
            let earlier = events.iter().take(index).rev();
            earlier
                .clone()
                .find(|other| other.thread == event.thread)
                .map(|other| other.site.into())
        };
        let key = |(index, event): (usize, &Event)| {
            let does = Does::of(&event.what);
            let beside = match does {
                Does::Fences => precedes(index, event),
                Does::Stores | Does::Streams | Does::WritesBack => {
                    follows(index, event, &|other| matches!(other.what, What::Fence))
                        .map(|(_, site)| site)
                }
            };
            Key { site: event.site.into(), does, during, form, beside }
        };
        let keys: Vec<Key> = events.iter().enumerate().map(key).collect();
        let next = |(index, event): (usize, &Event)| {
            let mut later = events.iter().zip(&keys).enumerate().skip(index + 1);
            let found = later.find(|(_, (other, key))| {
                other.thread == event.thread && Some(*key) != keys.get(index)
            });
            found.map(|(at, _)| at)
        };
        let next = events.iter().enumerate().map(next).collect();
        Self { events, keys, next }
    }

    /// All mutants that change these events.
    pub(super) fn mutants(&self) -> BTreeSet<Mutant> {
        let mut mutants = BTreeSet::new();
        for (index, key) in self.keys.iter().enumerate() {
            if self.waits_for_nothing(index) {
                continue;
            }
            mutants.insert(Mutant { key: *key, how: How::Removed });
            if key.does == Does::Streams {
                mutants.insert(Mutant { key: *key, how: How::Cached });
            }
            if let Some((_, next)) = self.pair(index) {
                mutants.insert(Mutant { key: *key, how: How::Behind(next) });
            }
        }
        mutants
    }

    /// A fence that has nothing to complete costs nothing and orders nothing: it follows another one.
    fn waits_for_nothing(&self, index: usize) -> bool {
        let Some(event) = self.events.get(index) else { return true };
        let before = self.events.iter().take(index).rev();
        let before = before.clone().find(|other| other.thread == event.thread);
        matches!(event.what, What::Fence)
            && before.is_none_or(|other| matches!(other.what, What::Fence))
    }

    /// The event after which this one, with its equals in a row, can be put, if that makes a difference
    /// to the memory.
    fn pair(&self, index: usize) -> Option<(usize, Key)> {
        let next = self.next.get(index).copied().flatten()?;
        if self.waits_for_nothing(index) || self.waits_for_nothing(next) {
            return None;
        }
        let (first, second) = (self.events.get(index)?, self.events.get(next)?);
        let key = *self.keys.get(next)?;
        order_matters(&first.what, &second.what).then_some((next, key))
    }

    /// The events as the mutant has them, each with its place in the original.
    pub(super) fn mutated(&self, mutant: &Mutant) -> Vec<(usize, Event)> {
        let mut mutated = Vec::with_capacity(self.events.len());
        let mut delayed: Vec<(usize, usize)> = Vec::new();
        for (index, (event, key)) in self.events.iter().zip(&self.keys).enumerate() {
            let mut event = event.clone();
            let is_meant = *key == mutant.key;
            match mutant.how {
                How::Removed if is_meant => continue,
                How::Cached if is_meant => {
                    if let What::Store { kind, .. } = &mut event.what {
                        *kind = StoreKind::Plain;
                    }
                }
                How::Behind(wanted) if is_meant => {
                    if let Some((next, found)) = self.pair(index)
                        && found == wanted
                    {
                        delayed.push((next, index));
                        continue;
                    }
                }
                How::Removed | How::Cached | How::Behind(_) => {}
            }
            mutated.push((index, event));
            // What waited for this event comes now.
            for (_, at) in delayed.extract_if(.., |(behind, _)| *behind == index) {
                mutated.extend(self.events.get(at).map(|event| (at, event.clone())));
            }
        }
        mutated
    }
}

/// Whether putting the first of two neighbours of a thread after the second can lose anything. Without
/// a fence between them nothing orders stores to different lines; and a write-back that comes earlier,
/// as a cache may do it at any time, only makes durable what may be durable anyway.
fn order_matters(first: &What, second: &What) -> bool {
    match (first, second) {
        (What::Store { kind: StoreKind::Streaming, .. }, What::WriteBack { .. })
        | (What::WriteBack { .. }, What::WriteBack { .. } | What::Store { .. })
        | (What::Fence, What::WriteBack { .. } | What::Fence) => false,
        (What::Store { .. } | What::WriteBack { .. }, What::Fence)
        | (What::Fence, What::Store { .. }) => true,
        (What::Store { .. }, What::WriteBack { .. }) => overlap(first, second),
        (What::Store { kind: first_kind, .. }, What::Store { kind, .. }) => {
            [*first_kind, *kind] == [StoreKind::Ordered; 2] && overlap(first, second)
        }
    }
}

/// Whether the two touch a line both.
fn overlap(first: &What, second: &What) -> bool {
    let lines = |what: &What| match what {
        What::Store { addr, bytes, .. } => Some((*addr, bytes.len() as u64)),
        What::WriteBack { addr, len } => Some((*addr, *len)),
        What::Fence => None,
    };
    let (Some((first, first_len)), Some((second, second_len))) = (lines(first), lines(second))
    else {
        return false;
    };
    let end = |addr: PmAddr, len: u64| (addr.byte() + len).div_ceil(64);
    first.slot() == second.slot()
        && first.byte() / 64 < end(second, second_len)
        && second.byte() / 64 < end(first, first_len)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use novale_pm::{Pm, PmOptions, Purpose};

    use super::*;
    use crate::crash::Recorder;

    fn keyed(run: impl FnOnce(&Pm)) -> Keyed {
        let recorder = Arc::new(Recorder::default());
        let options = PmOptions { observer: Some(recorder.clone()), ..PmOptions::default() };
        run(&Pm::anonymous(&[8192], &options).unwrap());
        Keyed::new(recorder.take(), "a test", "two fences")
    }

    fn data_line_fence() -> Keyed {
        keyed(|pm| {
            let data = pm.stream(PmAddr::new(0, 4096), &[1; 64], Purpose::Data);
            pm.fence(data).end();
            let line = pm.store_line(PmAddr::new(0, 64), &[2; 64], Purpose::Commit);
            pm.fence(pm.write_back(line)).end();
        })
    }

    #[test]
    fn each_event_can_go_and_neighbours_swap_where_the_memory_sees_it() {
        use Does::{Fences, Stores, Streams, WritesBack};

        let keyed = data_line_fence();
        let does: Vec<Does> = keyed.keys.iter().map(|key| key.does).collect();
        assert_eq!(does, [Streams, Fences, Stores, WritesBack, Fences]);
        let (mut removed, mut cached, mut swapped) = (0, 0, 0);
        for mutant in keyed.mutants() {
            match mutant.how {
                How::Removed => removed += 1,
                How::Cached => cached += 1,
                How::Behind(_) => swapped += 1,
            }
        }
        assert_eq!((removed, cached, swapped), (5, 1, 4));
    }

    #[test]
    fn a_swap_puts_the_event_just_behind_the_next() {
        let keyed = data_line_fence();
        let (fence, line) = (keyed.keys[1], keyed.keys[2]);
        let mutant = Mutant { key: fence, how: How::Behind(line) };
        let order: Vec<usize> = keyed.mutated(&mutant).iter().map(|(index, _)| *index).collect();
        assert_eq!(order, [0, 2, 1, 3, 4]);
        let removed = Mutant { key: line, how: How::Removed };
        let order: Vec<usize> = keyed.mutated(&removed).iter().map(|(index, _)| *index).collect();
        assert_eq!(order, [0, 1, 3, 4]);
    }

    #[test]
    fn stores_to_different_lines_have_no_order_to_lose() {
        let keyed = keyed(|pm| {
            drop(pm.store_u64(PmAddr::new(0, 0), 1, Purpose::Log));
            drop(pm.store_u64(PmAddr::new(0, 64), 1, Purpose::Log));
            drop(pm.store_u64(PmAddr::new(0, 72), 1, Purpose::Log));
        });
        let swaps = keyed.mutants().iter().filter(|m| matches!(m.how, How::Behind(_))).count();
        assert_eq!(swaps, 1);
    }
}
