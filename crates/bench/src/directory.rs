//! One directory from ten entries to ten million: look-ups and creates by its size, the memory that
//! an entry takes in the arena and in the pool, and what opening the pool takes in the end.

use std::time::Instant;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use novale_core::{Ctx, Executor, FileKind, Form, Fs, Ino, Node, Serial};
use novale_pm::Pm;

use crate::bed::new;
use crate::place::{EPOCH_NS, MB, open_sized};
use crate::progress::Bar;
use crate::recovery::Threads;
use crate::report::{Cell, Report};
use crate::stats::{clock_ns, cpu_ns};
use crate::{Common, setup};

/// Longest time that is told from longer ones, in ns.
const NS_MAX: u64 = 10_000_000_000;
const PAGE: u64 = 4096;

/// What `directory` takes beside what all do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Entries in the end; figures are taken at 10, 100, 1,000 and so on up to it.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10..=100_000_000))]
    pub(crate) entries: u64,
    /// Make all entries links to one file, which takes a tenth of the memory.
    #[arg(long)]
    pub(crate) links: bool,
}

/// Grows a directory and measures at each size.
pub(crate) fn run(common: &Common, options: &Options) -> Result<Report> {
    // A name's log entry and its share of growing; an inode each, and its view.
    let (pool_bytes, arena_bytes) = if options.links { (96, 48) } else { (420, 384) };
    let place = common.place();
    let (pm, _slot) = place.made(options.entries * pool_bytes + 256 * MB, 1)?;
    let arena_bytes = options.entries * arena_bytes + 256 * MB;
    let fs = open_sized(pm, Form::Auto, &Serial, arena_bytes)?;
    let mut growth = Growth::new(&fs, options)?;
    let bar = Bar::new("sizes", u64::from(options.entries.ilog10()));
    let mut rows = Vec::new();
    let mut size = 10;
    while size <= options.entries {
        growth.grow_to(size)?;
        rows.push(growth.row(common.ops)?);
        size *= 10;
        bar.step();
    }
    let mut setup = setup(common);
    let entries = if options.links { "links to one file" } else { "empty files of their own" };
    setup.push(("entries", entries.into()));
    setup
        .push(("creates", "all since the size before, each timed; CPU time of the longest".into()));
    setup.push(("opened in the end", reopened(fs, arena_bytes, common.threads()?)?));
    Ok(Report {
        name: "directory",
        title: "ns by the size of a directory, and bytes of an entry".into(),
        setup,
        columns: [
            "entries",
            "create p50",
            "p99",
            "longest",
            "longest, CPU",
            "look-up p50",
            "p99",
            "longest",
            "arena bytes",
            "pool bytes",
        ]
        .map(str::to_owned)
        .into(),
        rows,
    })
}

/// Closes the pool and opens it, then opens it as after a death: what that took.
fn reopened(fs: Fs, arena_bytes: u64, threads: usize) -> Result<String> {
    let opened = |pm: Pm, exec: &dyn Executor| -> Result<(Fs, String)> {
        let (cpu, begun) = (cpu_ns(), Instant::now());
        let fs = open_sized(pm, Form::Auto, exec, arena_bytes)?;
        let (us, cpu) = (since(begun, 0) / 1_000, (cpu_ns() - cpu) / 1_000);
        Ok((fs, format!("{us} us ({cpu} of this thread's CPU)")))
    };
    let (fs, serial) = opened(fs.into_pm(), &Serial)?;
    let (fs, parallel) = opened(fs.into_pm(), &Threads(threads))?;
    fs.close()?;
    let (_fs, clean) = opened(fs.into_pm(), &Serial)?;
    Ok(format!("clean {clean}; unclean {serial}, on {threads} threads {parallel}"))
}

/// A directory that grows.
struct Growth<'a> {
    fs: &'a Fs,
    dir: Ino,
    /// What all entries name, where they are links.
    file: Option<Ino>,
    count: u64,
    now_ns: i64,
    clock_ns: u64,
    creates: Histogram<u64>,
    longest_cpu_ns: u64,
    random: fastrand::Rng,
    /// Bytes in use before the first entry: of the arena, of the pool.
    before: (u64, u64),
}

fn pool_bytes(fs: &Fs) -> Result<u64> {
    let space = fs.statfs()?;
    Ok((space.pages - space.pages_free) * PAGE)
}

fn since(begun: Instant, clock_ns: u64) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(NS_MAX).saturating_sub(clock_ns).max(1)
}

impl<'a> Growth<'a> {
    fn new(fs: &'a Fs, options: &Options) -> Result<Self> {
        let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
        let dir = fs.create(&ctx, Node::ROOT, b"dir", &new(FileKind::Directory))?.ino;
        let file = fs.create(&ctx, Node::ROOT, b"file", &new(FileKind::File))?.ino;
        Ok(Self {
            fs,
            dir,
            file: options.links.then_some(file),
            count: 0,
            now_ns: EPOCH_NS,
            clock_ns: clock_ns(),
            creates: Histogram::new_with_bounds(1, NS_MAX, 3)?,
            longest_cpu_ns: 0,
            random: fastrand::Rng::with_seed(1),
            before: (fs.index_memory().used_bytes, pool_bytes(fs)?),
        })
    }

    fn grow_to(&mut self, count: u64) -> Result<()> {
        self.creates.reset();
        self.longest_cpu_ns = 0;
        while self.count < count {
            let name = format!("name {:09}", self.count);
            self.now_ns += 1_000;
            let ctx = Ctx { now_ns: self.now_ns, hint: 0 };
            let (cpu, begun) = (cpu_ns(), Instant::now());
            match self.file {
                Some(file) => self.fs.link(
                    &ctx,
                    Node::current(file),
                    Node::current(self.dir),
                    name.as_bytes(),
                ),
                None => self.fs.create(
                    &ctx,
                    Node::current(self.dir),
                    name.as_bytes(),
                    &new(FileKind::File),
                ),
            }
            .with_context(|| format!("entry {}", self.count))?;
            self.creates.saturating_record(since(begun, self.clock_ns));
            self.longest_cpu_ns = self.longest_cpu_ns.max(cpu_ns() - cpu);
            self.count += 1;
        }
        Ok(())
    }

    /// Looks `ops` random names up and says what was found at this size.
    fn row(&mut self, ops: u64) -> Result<Vec<Cell>> {
        let mut lookups = Histogram::<u64>::new_with_bounds(1, NS_MAX, 3)?;
        let ctx = Ctx { now_ns: self.now_ns, hint: 0 };
        for _ in 0..ops {
            let name = format!("name {:09}", self.random.u64(0..self.count));
            let begun = Instant::now();
            self.fs.lookup(&ctx, Node::current(self.dir), name.as_bytes())?;
            lookups.saturating_record(since(begun, self.clock_ns));
        }
        let (arena, pool) = self.before;
        let each = |bytes: u64| Cell::Count(bytes / self.count);
        Ok(vec![
            Cell::Count(self.count),
            Cell::Count(self.creates.value_at_quantile(0.5)),
            Cell::Count(self.creates.value_at_quantile(0.99)),
            Cell::Count(self.creates.max()),
            Cell::Count(self.longest_cpu_ns),
            Cell::Count(lookups.value_at_quantile(0.5)),
            Cell::Count(lookups.value_at_quantile(0.99)),
            Cell::Count(lookups.max()),
            each(self.fs.index_memory().used_bytes - arena),
            each(pool_bytes(self.fs)?.saturating_sub(pool)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// 1,000 links to one file: each is found, and the file counts them.
    #[test]
    fn a_grown_directory_names_what_it_was_given() {
        let place = Place::default();
        let (pm, _slot) = place.made(64 * MB, 1).unwrap();
        let fs = open_sized(pm, Form::Auto, &Serial, 64 * MB).unwrap();
        let mut growth = Growth::new(&fs, &Options { entries: 1_000, links: true }).unwrap();
        growth.grow_to(1_000).unwrap();
        growth.row(100).unwrap();
        assert_eq!(fs.getattr(growth.file.unwrap()).unwrap().nlink, 1_001);
        assert_eq!(fs.getattr(growth.dir).unwrap().size, 64_000);
    }
}
