//! What `novale run --report` counts: calls and bytes that programs served themselves, and those that
//! went through the mount, with the reason.
//!
//! All programs of a run share one memory of [`WORDS`] words, zeroes but for the first, to which each
//! only adds:
//!
//! | words | what |
//! |---|---|
//! | 1 | [`MAGIC`] |
//! | one for each [`Event`] | how often it happened |
//! | `CALL_WORDS` for each of [`CALLS_MAX`] calls | its name, then calls and bytes for each way |
//! | `PROGRAM_WORDS` for each of [`PROGRAMS_MAX`] programs | state, starts, path |
//!
//! A call's first way is the direct one; the others are through the mount, one for each [`Why`]. Names
//! and paths end with a NUL.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::IntoBytes;

/// First word of a report.
pub const MAGIC: u64 = zerocopy::transmute!(*b"nov.rpt1");
/// Calls that are told apart.
pub const CALLS_MAX: usize = 96;
/// Programs that could not be served, told apart by path; more of them are only counted.
pub const PROGRAMS_MAX: usize = 32;

const WAYS: usize = 1 + Why::ALL.len();
const NAME_WORDS: usize = 3;
const CALL_WORDS: usize = NAME_WORDS + WAYS * 2;
const PATH_WORDS: usize = 16;
const PROGRAM_WORDS: usize = 2 + PATH_WORDS;

const EVENTS_AT: usize = 1;
const CALLS_AT: usize = EVENTS_AT + Event::ALL.len();
const PROGRAMS_AT: usize = CALLS_AT + CALLS_MAX * CALL_WORDS;
/// Words of a report.
pub const WORDS: usize = PROGRAMS_AT + PROGRAMS_MAX * PROGRAM_WORDS;
/// Bytes of a report.
pub const BYTES: usize = WORDS * 8;

/// States of a program's entry: free, its path being written, readable.
const FREE: u64 = 0;
const WRITING: u64 = 1;
const READABLE: u64 = 2;

/// Why a call on a mount's file was the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No reason of the file's: such a call is never served.
    Call,
    /// The kernel has the file mapped, for this process or another one.
    Mapped,
    /// Another process has the descriptor too, and with it its position.
    Shared,
    /// The kernel judges what the user may do.
    Rights,
    /// The process has a limit on the size of its files.
    SizeLimit,
    /// The process uses `io_uring` or the kernel's asynchronous calls.
    Asynchronous,
    /// The pool could not be joined.
    Unjoined,
    /// The path leads into the mount by a symbolic link or another mount outside of it.
    Outside,
    /// A file's own pages are not mapped where threads that sleep on a futex in them could not be found.
    Sleepers,
}

impl Why {
    /// All reasons, in the order of their ways.
    pub const ALL: [Self; 9] = [
        Self::Call,
        Self::Mapped,
        Self::Shared,
        Self::Rights,
        Self::SizeLimit,
        Self::Asynchronous,
        Self::Unjoined,
        Self::Outside,
        Self::Sleepers,
    ];

    /// The reason in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Call => "only the kernel does this",
            Self::Mapped => "the kernel has the file mapped",
            Self::Shared => "another process shares the position",
            Self::Rights => "the kernel judges permissions",
            Self::SizeLimit => "the size of files is limited",
            Self::Asynchronous => "the process uses io_uring or aio",
            Self::Unjoined => "the pool could not be joined",
            Self::Outside => "the path comes from outside the mount",
            Self::Sleepers => "threads that sleep could not be found",
        }
    }
}

/// What happens to a process as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A program began with the library.
    Began,
    /// One was more confined from the start than `novale run`, so that nothing of it is served.
    BeganConfined,
    /// A process confined itself, or is Go in part, and nothing of it was served from then on.
    Confined,
    /// A process changed its root or its mounts: all its paths are the kernel's from then on.
    Moved,
    /// A program was started that can't have the library, and finds no room among [`PROGRAMS_MAX`].
    Unnamed,
}

impl Event {
    /// All events, in the order of their words.
    pub const ALL: [Self; 5] =
        [Self::Began, Self::BeganConfined, Self::Confined, Self::Moved, Self::Unnamed];
}

/// A report that programs add to.
#[derive(Debug, Clone, Copy)]
pub struct Counters<'a>(&'a [AtomicU64]);

impl<'a> Counters<'a> {
    /// `None` where the memory is no report.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        let is_report = words.first().is_some_and(|magic| magic.load(Ordering::Relaxed) == MAGIC);
        (words.len() == WORDS && is_report).then_some(Self(words))
    }

    fn add(self, at: usize, count: u64) {
        if let Some(word) = self.0.get(at) {
            word.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Something has happened.
    pub fn event(self, event: Event) {
        self.add(EVENTS_AT + event as usize, 1);
    }

    /// Says how the call `call` is called.
    pub fn name_call(self, call: usize, name: &str) {
        self.put_text(CALLS_AT + call * CALL_WORDS, NAME_WORDS, name.as_bytes());
    }

    /// The call `call` was served directly, or why not.
    pub fn call(self, call: usize, way: Result<(), Why>) {
        self.add(way_at(call, way), 1);
    }

    /// It has moved so many bytes.
    pub fn bytes(self, call: usize, way: Result<(), Why>, bytes: u64) {
        self.add(way_at(call, way) + 1, bytes);
    }

    /// A program was started that can't have the library.
    pub fn program(self, path: &[u8]) {
        for index in 0..PROGRAMS_MAX {
            let at = PROGRAMS_AT + index * PROGRAM_WORDS;
            let Some(state) = self.0.get(at) else { return };
            let claim =
                || state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Acquire);
            if claim().is_ok() {
                self.put_text(at + 2, PATH_WORDS, path);
                state.store(READABLE, Ordering::Release);
            }
            // One whose path is just being written has another one, as far as this one knows.
            if state.load(Ordering::Acquire) == READABLE && self.has_text(at + 2, PATH_WORDS, path)
            {
                self.add(at + 1, 1);
                return;
            }
        }
        self.event(Event::Unnamed);
    }

    fn put_text(self, at: usize, words: usize, text: &[u8]) {
        for (index, word) in text_words(text, words).enumerate() {
            if let Some(to) = self.0.get(at + index) {
                to.store(word, Ordering::Relaxed);
            }
        }
    }

    fn has_text(self, at: usize, words: usize, text: &[u8]) -> bool {
        let is_there = |(index, word): (usize, u64)| {
            self.0.get(at + index).is_some_and(|there| there.load(Ordering::Relaxed) == word)
        };
        text_words(text, words).enumerate().all(is_there)
    }
}

fn way_at(call: usize, way: Result<(), Why>) -> usize {
    let way = way.map_or_else(|why| 1 + why as usize, |()| 0);
    CALLS_AT + call * CALL_WORDS + NAME_WORDS + way * 2
}

/// A text cut to so many words, with a NUL after it.
fn text_words(text: &[u8], words: usize) -> impl Iterator<Item = u64> + '_ {
    let text = text.get(..words * 8 - 1).unwrap_or(text);
    (0..words).map(|word| {
        let mut bytes = [0; 8];
        let part = text.get(word * 8..).unwrap_or_default();
        bytes.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        zerocopy::transmute!(bytes)
    })
}

/// A report as it is read.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How often each event happened, in the order of [`Event::ALL`].
    pub events: [u64; Event::ALL.len()],
    /// The ways that calls have gone.
    pub calls: Vec<Counted>,
    /// Programs that could not be served, and how often they were started.
    pub programs: Vec<(String, u64)>,
}

/// Calls of one name that went one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The call's name.
    pub name: String,
    /// Why it went through the mount; `None` for the direct way.
    pub why: Option<Why>,
    /// How often it was made.
    pub calls: u64,
    /// The bytes that it moved.
    pub bytes: u64,
}

impl Report {
    /// Reads what programs have written; `None` where that is no report.
    #[must_use]
    pub fn read(words: &[u64]) -> Option<Self> {
        if words.len() != WORDS || words.first() != Some(&MAGIC) {
            return None;
        }
        let mut report = Self::default();
        report.events.copy_from_slice(words.get(EVENTS_AT..CALLS_AT)?);
        let (calls, programs) = words.get(CALLS_AT..)?.split_at(CALLS_MAX * CALL_WORDS);
        for call in calls.chunks_exact(CALL_WORDS) {
            let (name, ways) = call.split_at(NAME_WORDS);
            let reasons = [None].into_iter().chain(Why::ALL.map(Some));
            for (why, counts) in reasons.zip(ways.chunks_exact(2)) {
                let &[calls, bytes] = counts else { continue };
                if calls > 0 {
                    report.calls.push(Counted { name: text(name), why, calls, bytes });
                }
            }
        }
        for program in programs.chunks_exact(PROGRAM_WORDS) {
            if let [READABLE, starts, path @ ..] = program {
                report.programs.push((text(path), *starts));
            }
        }
        Some(report)
    }

    /// How often an event happened.
    #[must_use]
    pub fn count(&self, event: Event) -> u64 {
        self.events.get(event as usize).copied().unwrap_or(0)
    }
}

fn text(words: &[u64]) -> String {
    let text = words.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        assert!(Counters::new(&words).is_none(), "it is no report yet");
        words[0].store(MAGIC, Ordering::Relaxed);
        let counters = Counters::new(&words).unwrap();
        counters.name_call(CALLS_MAX - 1, "pread64");
        for (index, why) in Why::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, index);
            counters.call(CALLS_MAX - 1, Err(why));
        }
        counters.call(CALLS_MAX - 1, Ok(()));
        counters.bytes(CALLS_MAX - 1, Err(Why::ALL[Why::ALL.len() - 1]), 7);
        counters.event(Event::Began);
        let long = "/x".repeat(100);
        for _ in 0..2 {
            for index in 0..=PROGRAMS_MAX {
                counters.program(format!("{index}{long}").as_bytes());
            }
        }
        let read: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let report = Report::read(&read).unwrap();
        assert_eq!(report.calls.len(), 1 + Why::ALL.len());
        assert!(report.calls.iter().all(|call| call.name == "pread64" && call.calls == 1));
        assert_eq!(report.calls.last().unwrap().bytes, 7);
        assert_eq!(report.count(Event::Began), 1);
        assert_eq!(report.count(Event::Unnamed), 2);
        assert_eq!(report.programs.len(), PROGRAMS_MAX);
        let (path, starts) = report.programs.last().unwrap();
        assert!(path.starts_with("31/x/x") && path.len() == PATH_WORDS * 8 - 1, "{path}");
        assert_eq!(*starts, 2);
    }
}
