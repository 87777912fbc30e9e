//! `novale stats`: what all clients of a pool were asked for and stored, while it is open.
//!
//! Each client counts in the pool's arena, which is its user's alone; here that is read and added up,
//! without becoming a client, so that nobody waits for anybody.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use novale_core::{Buffering, Written, buffer_use_of, counted, emulated, live_clients};
use novale_pm::{Counters, Purpose};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use uuid::Uuid;

use crate::base::args::StatsArgs;
use crate::base::size::show_size;
use crate::holders::holder;
use crate::holders::patience::patiently_by;
use crate::pools::slots::{self, Found};

/// The counts, as JSON shows them.
#[derive(Debug, Serialize)]
struct Stats {
    pool: String,
    /// The memory that is emulated, in words.
    device: Option<String>,
    /// Processes that have it open.
    clients: Vec<u32>,
    /// What was asked for, by how it was written.
    asked: BTreeMap<&'static str, Requests>,
    writes: u64,
    bytes_asked: u64,
    bytes_stored: u64,
    /// Bytes stored for each byte that was asked for; none where none was.
    write_amplification: Option<f64>,
    /// By what they are for.
    stored: BTreeMap<&'static str, Stored>,
    /// Of the write buffer; none where nothing was ever buffered.
    buffer: Option<BufferStats>,
    lines: u64,
    lines_streamed: u64,
    write_backs: u64,
    fences: u64,
    /// Those with something to wait for.
    fences_with_pending: u64,
    /// Those between what a commit depends on and its line.
    fences_before_commits: u64,
    /// Lines that were sent to each slot.
    slot_lines: Vec<u64>,
}

/// What became of bytes that were to be buffered.
#[derive(Debug, Serialize)]
struct BufferStats {
    /// Blocks of a page in use now, all of them dirty, and how many there may be.
    blocks: u64,
    blocks_max: u64,
    /// Pages of writes to the buffer that it had already.
    hits: u64,
    /// Lines that were not written to the pool, since they were written again or removed before.
    lines_absorbed: u64,
    lines_fetched: u64,
    files_flushed: u64,
    lines_written_back: u64,
    /// Writes that went past it, and lines of theirs.
    writes_eager: u64,
    lines_eager: u64,
    /// Syncs that said that buffering pays, and that it does not.
    syncs_lazy: u64,
    syncs_eager: u64,
    /// Of a hundred syncs, those that the model had foretold; and of those that were not their file's first.
    accuracy_percent: Option<f64>,
    accuracy_later_percent: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Requests {
    writes: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Stored {
    lines: u64,
    lines_streamed: u64,
    write_backs: u64,
    bytes: u64,
}

pub(crate) fn run(args: &StatsArgs) -> Result<()> {
    let found = patiently_by(&args.slots, slots::find)?;
    let Some(arena) = holder::arena_in_use(&found)? else {
        bail!("{}: nobody has the pool open: its counts went with it", slots::shown(&found.paths));
    };
    let buffer = |counters: &Counters| -> Result<Option<BufferStats>> {
        let usage = buffer_use_of(&arena)?;
        Ok(usage.and_then(|usage| BufferStats::new(usage, counters)))
    };
    let now = || -> Result<(Vec<u32>, Counters)> {
        let clients = live_clients(&arena).into_iter().map(|process| process.pid).collect();
        Ok((clients, counted(&arena)?))
    };
    let (clients, mut before) = now()?;
    let device = emulated(&arena)?.map(|device| device.to_string());
    let stats = |clients, counters: &Counters| -> Result<Stats> {
        let (device, buffer) = (device.clone(), buffer(counters)?);
        Ok(Stats { device, buffer, ..Stats::new(&found, clients, counters) })
    };
    let Some(seconds) = args.watch else { return print(args, &stats(clients, &before)?) };
    // Until nobody has the pool open, or nobody listens, or a signal ends it.
    loop {
        if is_unheard(seconds)? {
            return Ok(());
        }
        let (clients, counters) = now()?;
        let is_closed = clients.is_empty();
        let stats = stats(clients, &(&counters - &before))?;
        if args.json {
            say!("{}", serde_json::to_string(&stats)?)?;
        } else {
            watch(&stats)?;
        }
        if is_closed {
            return Ok(());
        }
        before = counters;
    }
}

/// Waits for so many seconds; true, and earlier, where nobody reads standard output any more.
pub(crate) fn is_unheard(seconds: u64) -> Result<bool> {
    let interval = Timespec { tv_sec: i64::try_from(seconds)?, tv_nsec: 0 };
    let output = std::io::stdout();
    match poll(&mut [PollFd::new(&output, PollFlags::empty())], Some(&interval)) {
        // A signal that stopped this program and let it go on: an interval that is shorter.
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

fn print(args: &StatsArgs, stats: &Stats) -> Result<()> {
    if args.json { say!("{}", serde_json::to_string_pretty(stats)?) } else { show(stats) }
}

impl Stats {
    fn new(found: &Found, clients: Vec<u32>, counters: &Counters) -> Self {
        let total = counters.total();
        let asked: BTreeMap<_, _> = Written::ALL
            .map(|how| (how.name(), how.asked(counters)))
            .map(|(name, asked)| (name, Requests { writes: asked.count, bytes: asked.bytes }))
            .into();
        let bytes_asked = asked.values().map(|asked| asked.bytes).sum();
        let stored = Purpose::ALL.map(|purpose| {
            let of = counters.of(purpose);
            let (lines, lines_streamed) = (of.lines, of.lines_streamed);
            let stored =
                Stored { lines, lines_streamed, write_backs: of.write_backs, bytes: of.bytes };
            (word(purpose), stored)
        });
        let slots = found.info.slots.iter().map(|slot| counters.slot_lines(slot.index));
        Self {
            pool: Uuid::from_bytes(found.info.uuid).to_string(),
            device: None,
            clients,
            writes: asked.values().map(|asked| asked.writes).sum(),
            asked,
            bytes_asked,
            bytes_stored: total.bytes,
            write_amplification: ratio(total.bytes, bytes_asked),
            stored: stored.into(),
            buffer: None,
            lines: total.lines,
            lines_streamed: total.lines_streamed,
            write_backs: total.write_backs,
            fences: counters.fences,
            fences_with_pending: counters.fences_with_pending,
            fences_before_commits: counters.fences_before_commits,
            slot_lines: slots.collect(),
        }
    }

    fn amplification(&self) -> String {
        self.write_amplification.map_or_else(|| "-".to_owned(), |times| format!("{times:.2}"))
    }
}

impl BufferStats {
    fn new((blocks, blocks_max): (u64, u64), counters: &Counters) -> Option<Self> {
        let of = |what: Buffering| what.counts(counters);
        let ([hits, again], [_, dropped]) = (of(Buffering::Hit), of(Buffering::Dropped));
        let ([_, lines_fetched], [files_flushed, lines_written_back]) =
            (of(Buffering::Fetched), of(Buffering::WrittenBack));
        let ([writes_eager, lines_eager], [syncs_lazy, syncs_eager]) =
            (of(Buffering::Eager), of(Buffering::Verdict));
        let ([foretold, right], [first, first_right]) =
            (of(Buffering::Foretold), of(Buffering::FirstForetold));
        let later = (right.saturating_sub(first_right) * 100, foretold.saturating_sub(first));
        let is_used = Written::Buffered.asked(counters).count + writes_eager + blocks > 0;
        is_used.then(|| Self {
            blocks,
            blocks_max,
            hits,
            lines_absorbed: again + dropped,
            lines_fetched,
            files_flushed,
            lines_written_back,
            writes_eager,
            lines_eager,
            syncs_lazy,
            syncs_eager,
            accuracy_percent: ratio(right * 100, foretold),
            accuracy_later_percent: ratio(later.0, later.1),
        })
    }

    fn show(&self) -> Result<()> {
        say!("buffer    {} of {} blocks in use, all dirty", self.blocks, self.blocks_max)?;
        let row =
            |what: &str, count: u64, more: String| say!("          {what:<18} {count:>12}{more}");
        row("hits", self.hits, " pages of writes".to_owned())?;
        row("lines absorbed", self.lines_absorbed, String::new())?;
        row("lines fetched", self.lines_fetched, String::new())?;
        let flushed = format!(" in {} flushes", self.files_flushed);
        row("lines written back", self.lines_written_back, flushed)?;
        row("eager writes", self.writes_eager, format!(" of {} lines", self.lines_eager))?;
        let of_all = self.accuracy_percent.map(|percent| format!(", {percent:.1} % foretold"));
        let later = self.accuracy_later_percent;
        let later = later.map(|percent| format!(" ({percent:.1} % of a file's later ones)"));
        let accuracy: String = of_all.into_iter().chain(later).collect();
        row("syncs, lazy", self.syncs_lazy, format!(" and {} eager{accuracy}", self.syncs_eager))
    }
}

/// How many times as much one is; none of nothing.
#[allow(clippy::cast_precision_loss, reason = "a ratio that people read")]
fn ratio(stored: u64, asked: u64) -> Option<f64> {
    (asked > 0).then(|| stored as f64 / asked as f64)
}

fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Data => "data",
        Purpose::Log => "log",
        Purpose::Commit => "commit",
        Purpose::Journal => "journal",
        Purpose::Inode => "inode",
        Purpose::Other => "other",
    }
}

/// All of it.
fn show(stats: &Stats) -> Result<()> {
    say!("pool      {}", stats.pool)?;
    if let Some(device) = &stats.device {
        say!("memory    {device}")?;
    }
    let pids: Vec<String> = stats.clients.iter().map(ToString::to_string).collect();
    match pids.len() {
        0 => say!("clients   none: those that had it open died")?,
        count => say!("clients   {count}: processes {}", pids.join(" "))?,
    }
    say!("asked     {} in {} writes", show_size(stats.bytes_asked), stats.writes)?;
    for (how, asked) in stats.asked.iter().filter(|(_, asked)| asked.writes > 0) {
        say!("          {how:<10} {:>12} in {} writes", show_size(asked.bytes), asked.writes)?;
    }
    let times = stats.amplification();
    say!("stored    {}, {times} bytes for each that was asked for", show_size(stats.bytes_stored))?;
    say!("          {:<10} {:>12} {:>12} {:>12}", "lines", "stored", "streamed", "written back")?;
    for purpose in Purpose::ALL.map(word) {
        let Some(of) = stats.stored.get(purpose).filter(|of| of.lines + of.write_backs > 0) else {
            continue;
        };
        say!(
            "          {purpose:<10} {:>12} {:>12} {:>12}",
            of.lines,
            of.lines_streamed,
            of.write_backs
        )?;
    }
    let (lines, streamed, backs) = (stats.lines, stats.lines_streamed, stats.write_backs);
    say!("          {:<10} {lines:>12} {streamed:>12} {backs:>12}", "all")?;
    if let Some(buffer) = &stats.buffer {
        buffer.show()?;
    }
    let (waited, before) = (stats.fences_with_pending, stats.fences_before_commits);
    say!(
        "fences    {}: {waited} with lines to wait for, {before} of them before a commit line",
        stats.fences
    )?;
    if stats.slot_lines.len() > 1 {
        for (slot, lines) in stats.slot_lines.iter().enumerate() {
            say!("slot {slot:<4} {lines} lines sent")?;
        }
    }
    Ok(())
}

/// An interval, on a line.
fn watch(stats: &Stats) -> Result<()> {
    let methods = stats.asked.iter().filter(|(_, asked)| asked.writes > 0);
    let methods: Vec<String> =
        methods.map(|(how, asked)| format!("{} {how}", asked.writes)).collect();
    let methods =
        if methods.is_empty() { String::new() } else { format!(" ({})", methods.join(", ")) };
    say!(
        "writes {}{methods}, {} asked, {} stored ({} times), {} lines, {} streamed, {} written back, {} fences",
        stats.writes,
        show_size(stats.bytes_asked),
        show_size(stats.bytes_stored),
        stats.amplification(),
        stats.lines,
        stats.lines_streamed,
        stats.write_backs,
        stats.fences_with_pending
    )
}
