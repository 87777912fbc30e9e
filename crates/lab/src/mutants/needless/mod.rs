//! Mutants that survive because nothing needs what they take away, each with the proof; and the calls
//! that no run reaches.

mod repair;

use std::path::Path;

use super::key::{Does, How, Mutant, Site};
use super::sites::Call;

/// Survivors of one kind.
struct Needless {
    file: &'static str,
    /// A part of the source line of the call.
    code: &'static str,
    how: &'static [Taken],
    /// A part of the kind of operation and form, where it is needless in these alone.
    only: &'static str,
    /// What it does, where the line does several things.
    does: Option<Does>,
    /// A part of the source line of what is beside it ([`super::Key::beside`]).
    beside: &'static str,
    /// A part of the source line of what it is put behind.
    next: &'static str,
    why: &'static str,
}

/// What of a place is needless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Removed,
    Cached,
    Behind,
}

use Taken::{Behind, Cached, Removed};

const NEEDLESS: &[Needless] = &[
    Needless {
        file: "core/src/map/read.rs",
        code: "self.pm.",
        how: &[Removed, Behind],
        only: "look",
        does: None,
        beside: "",
        next: "",
        why: "an access time may be lost, and nothing waits for it; the order of its words is kept",
    },
    Needless {
        file: "core/src/name/parent.rs",
        code: "self.pm.",
        how: &[Removed, Behind],
        only: "",
        does: None,
        beside: "",
        next: "",
        why: "a hint of a directory's parent is believed where that names the directory; without one all are searched",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "self.pm.stream(",
        why: "the next store goes to where nothing leads yet: a new log page, or behind the tail",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pending)",
        how: &[Removed],
        only: "two-fence",
        does: None,
        beside: "pm.write_back(word)",
        next: "",
        why: "the create fences again before its record; but another thread may take a number of these pages as soon as they are in the arena, and its fence does not complete this one's write-backs",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.write_back(word)",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "",
        why: "as the fence behind it: the create fences again on this thread, another thread counts on it",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pm.write_back(word))",
        how: &[Removed],
        only: "create",
        does: Some(Does::Fences),
        beside: "",
        next: "",
        why: "the making of the chunk's first pages fences again on this thread; another thread may make pages in the chunk as soon as it is in the arena, and counts on it",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pm.write_back(word))",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "",
        why: "as without the fence",
    },
    Needless {
        file: "core/src/op/commit.rs",
        code: "pm.write_back_range(addr, LINE",
        how: &[Behind],
        only: "two-fence",
        does: None,
        beside: "",
        next: "pm.fence(std::mem::replace(&mut pending",
        why: "the own lines of a record are due before its space is used again, by the next record but one: the fence behind this record is early enough",
    },
    Needless {
        file: "core/src/inode/state.rs",
        code: "pm.stream(self.commit_addr(slot)",
        how: &[Behind],
        only: "two-fence",
        does: None,
        beside: "self.pm.fence(pending.and(line))",
        next: "",
        why: "a certificate puts a checksum behind, and this form has none; collection does not ask for the form",
    },
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.fence(directory",
        how: &[Removed, Behind],
        only: "recovery",
        does: None,
        beside: "",
        next: "",
        why: "opened for writing, the fence of the repairs completes the same; opened for reading it is the last one",
    },
    Needless {
        file: "core/src/op/journal.rs",
        code: "pm.write_back_range(record.at",
        how: &[Behind],
        only: "recovery",
        does: None,
        beside: "",
        next: "",
        why: "as the fence behind it",
    },
    Needless {
        file: "core/src/inode/chunks.rs",
        code: "pm.write_back_range(",
        how: &[Behind],
        only: "recovery",
        does: None,
        beside: "",
        next: "",
        why: "as the fence behind it",
    },
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "",
        does: None,
        beside: "pm.write_back_range(at, LINE",
        next: "pm.stream(at, &line.encode(place.seed)",
        why: "certificates need this fence where records were erased before them, and there it is caught; here none was",
    },
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "behind a power cut",
        does: None,
        beside: "",
        next: "pm.stream(at, &state.encode(",
        why: "behind a power cut the state lines are durable; behind a death it is caught",
    },
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "opening",
        does: None,
        beside: "",
        next: "pm.stream(at, &state.encode(",
        why: "behind an orderly end the state lines are durable; behind a death it is caught",
    },
    Needless {
        file: "core/src/op/commit.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "",
        does: None,
        beside: "self.pm.write_back_range(addr.add(from as u64)",
        next: "pm.stream(self.commit_addr(slot)",
        why: "zeros that are seen and written back again are durable already, unless a process died behind \
              their store: `what_the_lab_found` has that",
    },
    Needless {
        file: "core/src/life/mkfs.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "mkfs",
        does: None,
        beside: "",
        next: "pm.stream(self.addr.add(IDENTITY_OFFSET)",
        why: "the identity line is streamed by the thread that streamed the zeros, and stays behind them; what is \
              stored plainly comes behind the fence, and where it does not it is caught",
    },
    Needless {
        file: "core/src/life/mkfs.rs",
        code: ".and(pm.write_back(named))",
        how: &[Behind],
        only: "mkfs",
        does: None,
        beside: "",
        next: "pm.fence(pending)",
        why: "the words are needed with the superblock, two fences later",
    },
    Needless {
        file: "core/src/pool/copies.rs",
        code: "pm.fence(pm.stream(",
        how: &[Removed],
        only: "recovery",
        does: Some(Does::Fences),
        beside: "",
        next: "",
        why: "the other copy stands meanwhile, and the fence of the repairs follows before the session rises",
    },
    Needless {
        file: "core/src/pool/copies.rs",
        code: "pm.fence(pm.stream(",
        how: &[Behind],
        only: "recovery",
        does: None,
        beside: "",
        next: "",
        why: "as without the fence",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "self.write_back(page",
        how: &[Removed, Behind],
        only: "two-fence",
        does: None,
        beside: "",
        next: "",
        why: "in this form the entries were durable before the line that is accepted was stored",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "self.write_back(addr, u64::from(count)",
        how: &[Removed, Behind],
        only: "two-fence",
        does: None,
        beside: "",
        next: "",
        why: "in this form the data was durable before the line that is accepted was stored",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "accepted.write_back(",
        how: &[Removed, Behind],
        only: "behind a power cut",
        does: None,
        beside: "",
        next: "",
        why: "behind a power cut nothing is in the caches: what recovery reads is durable, and writing it back does nothing; \
              behind a death the same mutants are caught",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "self.write_back(",
        how: &[Removed, Behind],
        only: "behind a power cut",
        does: None,
        beside: "",
        next: "",
        why: "as above",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "pm.write_back_range(place.addr",
        how: &[Removed, Behind],
        only: "behind a power cut",
        does: None,
        beside: "",
        next: "",
        why: "as above",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "self.pm.fence(pending)",
        how: &[Removed, Behind],
        only: "behind a power cut",
        does: None,
        beside: "",
        next: "",
        why: "as above: there is nothing to complete",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.write_back_range(at, LINE",
        how: &[Removed, Behind],
        only: "opening",
        does: None,
        beside: "",
        next: "",
        why: "behind an orderly end every state line is durable; behind a death the same mutants are caught",
    },
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.fence(pending)",
        how: &[Removed, Behind],
        only: "opening",
        does: None,
        beside: "pm.write_back_range(at, LINE",
        next: "",
        why: "as above: there is nothing to complete",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "pm.store_u64(at, parent.get()",
        why: "the next store is the hint in a page that nothing names without the word that is fenced: nobody reads it, \
              and who takes the page zeroes it",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "accepted.write_back(*addr, count * PAGE",
        how: &[Removed, Behind],
        only: "two-fence",
        does: None,
        beside: "",
        next: "",
        why: "in this form the data was durable before the line that is accepted was stored",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.fence(stored)",
        how: &[Behind],
        only: "",
        does: Some(Does::Fences),
        beside: "",
        next: "self.pm.stream(",
        why: "the next store goes to a new page, or behind the tail: nothing leads there before the next fence, which is \
              this one's too, and the replica has the bit",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.fence(stored)",
        how: &[Behind],
        only: "",
        does: Some(Does::Fences),
        beside: "",
        next: "pm.stream(extent.addr, now",
        why: "as above",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.fence(stored)",
        how: &[Behind],
        only: "",
        does: Some(Does::Fences),
        beside: "",
        next: "pm.stream(page, &image",
        why: "as above",
    },
    Needless {
        file: "core/src/name/create.rs",
        code: "self.pm.fence(std::mem::replace(&mut inherited",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "pm.store_u64(at, parent.get()",
        why: "the next store is the hint of an inode that nothing names yet",
    },
    Needless {
        file: "core/src/name/create.rs",
        code: "self.pm.fence(std::mem::replace(&mut inherited",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "self.pm.stream(",
        why: "the next store goes to a new log page, or behind the tail: it means nothing without the record, which has \
              a fence of its own",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "create",
        does: None,
        beside: "",
        next: "pm.stream(page, &image",
        why: "the next store goes to a new page of attributes, where nothing leads yet",
    },
    Needless {
        file: "core/src/inode/numbers.rs",
        code: "pm.fence(pending)",
        how: &[Behind],
        only: "create unnamed",
        does: None,
        beside: "",
        next: "pm.stream(self.addr.add(IDENTITY_OFFSET)",
        why: "the identity line lies in a page that nothing names without the word that is fenced, and who takes it zeroes it",
    },
];

/// Survivors that are needed where the runs seldom or never lead; each says what shows it.
const SELDOM: &[Needless] = &[
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.stream_zero(*at, JOURNAL_RECORD_BYTES",
        how: &[Removed, Cached, Behind],
        only: "recovery behind a power cut",
        does: None,
        beside: "",
        next: "",
        why: "a torn record is erased for the next one in its place, torn as well: \
              `a_torn_record_is_not_completed_by_the_next_in_its_place`; of rejected ones it is caught",
    },
    Needless {
        file: "core/src/life/open.rs",
        code: "pm.fence(pending)",
        how: &[Removed, Behind],
        only: "recovery behind a power cut",
        does: None,
        beside: "pm.stream_zero(*at, JOURNAL_RECORD_BYTES",
        next: "",
        why: "as above",
    },
    Needless {
        file: "core/src/log/mod.rs",
        code: "self.pm.stream(self.tail.add(LINE), &[0; LINE_BYTES]",
        how: &[Removed, Cached, Behind],
        only: "",
        does: None,
        beside: "",
        next: "",
        why: "an entry must lie there that an older page of the same log left: \
              `a_blank_line_at_the_end_of_a_log_page_is_blank`",
    },
    Needless {
        file: "core/src/log/mod.rs",
        code: "self.pm.fence(blank)",
        how: &[Removed, Behind],
        only: "",
        does: None,
        beside: "",
        next: "",
        why: "as above",
    },
    Needless {
        file: "core/src/inode/state.rs",
        code: "pm.stream(self.commit_addr(slot)",
        how: &[Removed, Cached, Behind],
        only: "create",
        does: None,
        beside: "self.pm.fence(pending.and(line))",
        next: "",
        why: "the certificate of collection is needed where a commit lies on both sides of the end of a log page \
              that is copied: the seeded bug `no-certificate`",
    },
    Needless {
        file: "core/src/gc/collect.rs",
        code: "pm.fence(self.pm.write_back(word))",
        how: &[Removed, Behind],
        only: "create",
        does: None,
        beside: "",
        next: "",
        why: "the skipped page must be used again before its predecessor is written back for something else: caught \
              in write, and by the seeded bug `skip-not-fenced`",
    },
    Needless {
        file: "core/src/life/scan.rs",
        code: "accepted.write_back(addr, PAGE",
        how: &[Removed, Behind],
        only: "two-fence",
        does: None,
        beside: "",
        next: "",
        why: "in this form the entries were durable before the line that is accepted was stored, but not the pointer \
              past a page that collection skips: `while_a_log_grows_and_is_collected` lets clients die there",
    },
    Needless {
        file: "core/src/life/settle.rs",
        code: "pm.fence(pending)",
        how: &[Removed],
        only: "settling",
        does: None,
        beside: "",
        next: "",
        why: "the fence behind the certificates completes the same; where there are certificates it is caught",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.stream(at, &bytes",
        how: &[Removed, Behind],
        only: "write",
        does: Some(Does::Streams),
        beside: "",
        next: "",
        why: "nothing but an older program asks whether there were appends in place, and would misread them: \
              `what_another_program_would_misread_is_said_before_its_first_use`",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.stream(at, &bytes",
        how: &[Removed, Cached, Behind],
        only: "shift",
        does: Some(Does::Streams),
        beside: "",
        next: "",
        why: "nothing but an older program asks whether pages were moved, and would misread it: \
              `what_another_program_would_misread_is_said_before_its_first_use`",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.stream(at, &bytes",
        how: &[Removed, Cached, Behind],
        only: "append",
        does: Some(Does::Streams),
        beside: "",
        next: "",
        why: "as above, of appends",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.stream(at, &bytes",
        how: &[Removed, Cached, Behind],
        only: "write",
        does: Some(Does::Streams),
        beside: "",
        next: "",
        why: "as above, of appends",
    },
    Needless {
        file: "core/src/pool/mod.rs",
        code: "pm.stream(at, &bytes",
        how: &[Behind],
        only: "two-fence",
        does: Some(Does::Streams),
        beside: "",
        next: "",
        why: "the first copy waits for the next fence then, which in this form comes before the commit line; where the \
              operation is refused behind it, it is caught",
    },
    Needless {
        file: "",
        code: "write_back",
        how: &[Behind],
        only: "settling",
        does: None,
        beside: "pm.fence(pending)",
        next: "pm.fence(pending)",
        why: "as without the fence",
    },
    Needless {
        file: "core/src/write/cow.rs",
        code: "pm.write_back_range(addr.add(from",
        how: &[Removed, Behind],
        only: "",
        does: None,
        beside: "",
        next: "",
        why: "the gap's zeros are seen and not durable only where their process died before its fence: \
              `a_gap_that_a_dead_process_zeroed_is_zero_after_the_next_write`",
    },
    Needless {
        file: "core/src/op/commit.rs",
        code: "pm.fence(pending)",
        how: &[Removed, Behind],
        only: "",
        does: None,
        beside: "pm.write_back_range(addr.add(from",
        next: "",
        why: "as above",
    },
];

/// Calls that no run of the mutants reaches.
const UNREACHED: &[(&str, &str, &str)] = &[
    (
        "write/cow.rs",
        "self.pm.fence(prepared.pending)",
        "a write that is given up after its data was streamed: only when another thread wins a race, or \
         when the arena is full just then (`failures_and_races_lose_nothing` has both)",
    ),
    (
        "cow.rs",
        "self.pm.fence(Flushed::none())",
        "a write that can't read an old page of its file: only on a damaged medium",
    ),
    (
        "pool/mod.rs",
        "pm.fence(pm.write_back_range(first, LINE",
        "a feature's bit that a process stored before it died, set by the next: a death between this store \
         and its fence, of which a pool has one in its life",
    ),
    ("seeded.rs", "", "a seeded bug"),
    ("op/commit.rs", "&raised.line(", "a seeded bug"),
    ("life/open.rs", "repair(&pm, &pool, &opened))", "a seeded bug"),
    (
        "write/small.rs",
        "self.pm.fence(Flushed::none())",
        "a write that is given up after its data was streamed, as above",
    ),
    (
        "offline/repair/write.rs",
        "self.pm.stream(at, &[0; LINE_BYTES]",
        "the rest of a page that a long name does not fit in: a repair adds long names only where two \
         share a cookie, and then there is room in the pools of the list",
    ),
    (
        "life/settle.rs",
        "stream_zero(record.at",
        "a record that is seen was stored behind all that it covers, and without a power cut all of that is \
         seen too: only one that is damaged besides does not stand",
    ),
];

/// Why a survivor may survive; `None` if nothing is known.
pub(super) fn why(mutant: &Mutant) -> Option<&'static str> {
    row(NEEDLESS, mutant)
        .or_else(|| row(repair::NEEDLESS, mutant))
        .or_else(|| row(SELDOM, mutant))
        .or_else(|| row(repair::SELDOM, mutant))
}

/// Whether it is proved that nothing needs what a mutant lacks: it must never be caught.
pub(super) fn is_proved(mutant: &Mutant) -> bool {
    row(NEEDLESS, mutant).or_else(|| row(repair::NEEDLESS, mutant)).is_some()
}

fn row(rows: &'static [Needless], mutant: &Mutant) -> Option<&'static str> {
    let (taken, next) = match mutant.how {
        How::Removed => (Taken::Removed, None),
        How::Cached => (Taken::Cached, None),
        How::Behind(next) => (Taken::Behind, Some(next.site)),
    };
    let line = source_line(mutant.key.site)?;
    let beside = mutant.key.beside.and_then(source_line).unwrap_or_default();
    let next = next.and_then(source_line).unwrap_or_default();
    let found = rows.iter().find(|row| {
        row.how.contains(&taken)
            && mutant.key.site.file.ends_with(row.file)
            && line.contains(row.code)
            && beside.contains(row.beside)
            && (taken != Taken::Behind || next.contains(row.next))
            && row.does.is_none_or(|does| does == mutant.key.does)
            && (mutant.key.during.contains(row.only) || mutant.key.form.contains(row.only))
    });
    found.map(|row| row.why)
}

/// Why a call may stay unreached.
pub(super) fn why_unreached(call: &Call) -> Option<&'static str> {
    let path = Path::new("crates/core/src").join(&call.file);
    let line = line_of(&path, call.line)?;
    let found = UNREACHED
        .iter()
        .find(|(file, code, _)| call.file.as_path() == Path::new(file) && line.contains(code));
    found.map(|(_, _, why)| *why)
}

/// The line of the source that a site is in.
fn source_line(site: Site) -> Option<String> {
    line_of(Path::new(site.file), site.line)
}

fn line_of(file: &Path, line: u32) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(file)).ok()?;
    text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?).map(str::to_owned)
}
