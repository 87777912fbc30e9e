//! Many threads at once: on files of their own, on one shared file, and on names.
//!
//! Two figures each. By the clock, threads wait for CPUs that others have, and for each other. By what
//! they take of a CPU only what the memory between them makes them wait counts: on a busy machine that
//! tells whether an operation shares what it writes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use novale_core::{Ctx, FileKind, Form, Fs, Ino, Node, SetAttr};
use novale_layout::PmAddr;
use novale_pm::Purpose;
use tempfile::TempPath;

use crate::bed::new;
use crate::place::{EPOCH_NS, MB, Memory};
use crate::report::{Cell, Report};
use crate::stats::{cpu_ns, float, median};
use crate::{Common, setup};

/// Bytes of the file of each thread, and of the shared one.
const FILE_BYTES: u64 = 16 * MB;

/// Names made before they are removed.
const BATCH: u64 = 1000;
/// Appends before a file is emptied.
const APPENDS: u64 = 2048;

/// What all threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Durable stores to the bare memory.
    Limit(usize),
    /// Overwrites of a file of the thread's own, or of the one of all.
    Overwrite(usize, Share),
    Read(usize, Share),
    /// Appends to a file of the thread's own, which is emptied now and then.
    Append(usize),
    /// A create and an unlink, in a directory of the thread's own or in the one of all.
    CreateUnlink(Share),
    /// As many creates as [`BATCH`], in a directory of the thread's own, then as many unlinks.
    Batches,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Own,
    One,
}

const WORKS: &[(&str, Work)] = &[
    ("limit 64 B", Work::Limit(64)),
    ("overwrite 64 B, own files", Work::Overwrite(64, Share::Own)),
    ("overwrite 64 B, one file", Work::Overwrite(64, Share::One)),
    ("limit 4 KB", Work::Limit(4096)),
    ("overwrite 4 KB, own files", Work::Overwrite(4096, Share::Own)),
    ("overwrite 4 KB, one file", Work::Overwrite(4096, Share::One)),
    ("read 64 B, one file", Work::Read(64, Share::One)),
    ("read 4 KB, own files", Work::Read(4096, Share::Own)),
    ("read 4 KB, one file", Work::Read(4096, Share::One)),
    ("append 4 KB, own files", Work::Append(4096)),
    ("create and unlink, own directories", Work::CreateUnlink(Share::Own)),
    ("create and unlink, one directory", Work::CreateUnlink(Share::One)),
    ("create 1,000, unlink 1,000, own directories", Work::Batches),
];

/// What the threads work on: a file and a directory each, and one of each for all.
struct Field {
    fs: Fs,
    _file: Option<TempPath>,
    memory: Memory,
    files: Vec<Ino>,
    dirs: Vec<Ino>,
    appended: Vec<Ino>,
}

/// One thread's part.
struct Worker<'a> {
    field: &'a Field,
    index: usize,
    threads: usize,
    random: fastrand::Rng,
    buffer: Vec<u8>,
    now_ns: i64,
}

/// Measures all works with 1 thread, 2, 4 and so on, up to as many as asked for.
pub(crate) fn run(common: &Common) -> Result<Report> {
    let most = common.threads()?;
    let field = field(common, most)?;
    let counts: Vec<usize> = thread_counts(most);
    let works: Vec<_> = WORKS.iter().filter(|(name, _)| common.wants(name)).collect();
    let mut results = vec![vec![Vec::new(); counts.len()]; works.len()];
    for _ in 0..common.rounds {
        for ((_, work), row) in works.iter().zip(&mut results) {
            for (count, rounds) in counts.iter().zip(row) {
                rounds.push(rate(&field, *work, *count, common.millis)?);
            }
        }
    }
    let rows = works.iter().zip(&results).map(|((name, _), row)| cells(name, row, &counts));
    let mut setup = setup(common);
    setup.push(("duration", format!("{} ms each", common.millis)));
    Ok(Report {
        name: "threads",
        title: "thousands of operations a second, all threads together (auto form)".into(),
        setup,
        columns: columns(&counts),
        rows: rows.collect(),
    })
}

/// What all threads did in one round.
#[derive(Debug, Clone, Copy)]
struct Rate {
    /// Thousands of operations a second, all together.
    thousands: u64,
    /// Nanoseconds of a CPU that one operation took.
    cpu_ns: u64,
}

fn columns(counts: &[usize]) -> Vec<String> {
    let mut columns = vec!["work".to_owned()];
    for count in counts {
        let threads = if *count == 1 { "thread" } else { "threads" };
        columns.push(format!("{count} {threads}"));
        columns.push(format!("{count}: spread"));
        columns.push(format!("{count}: CPU ns"));
    }
    columns.push("times one".to_owned());
    columns.push("by CPU".to_owned());
    columns
}

fn cells(name: &str, row: &[Vec<Rate>], counts: &[usize]) -> Vec<Cell> {
    let mut cells = vec![Cell::from(name)];
    for rounds in row {
        let rates = || rounds.iter().map(|rate| rate.thousands);
        cells.push(Cell::Count(median(rates())));
        cells.push(Cell::Spread(rates().min().unwrap_or(0), rates().max().unwrap_or(0)));
        cells.push(Cell::Count(median(rounds.iter().map(|rate| rate.cpu_ns))));
    }
    let of = |rounds: Option<&Vec<Rate>>, figure: fn(&Rate) -> u64| {
        float(median(rounds.into_iter().flatten().map(figure)).max(1))
    };
    let (one, most) = (row.first(), row.last());
    let threads = counts.last().map_or(1.0, |count| float(*count as u64));
    cells.push(Cell::Ratio(of(most, |rate| rate.thousands) / of(one, |rate| rate.thousands)));
    cells.push(Cell::Ratio(threads * of(one, |rate| rate.cpu_ns) / of(most, |rate| rate.cpu_ns)));
    cells
}

/// 1, 2, 4, ... and the most.
fn thread_counts(most: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|log2| 1 << log2);
    powers.take_while(|count| *count < most).chain([most]).collect()
}

fn field(common: &Common, threads: usize) -> Result<Field> {
    let files = threads as u64 + 1;
    let lanes = u32::try_from(threads)?;
    let pool = common.place().pool(files * FILE_BYTES * 2 + 512 * MB, lanes, Form::Auto)?;
    let memory = common.place().memory(files * FILE_BYTES)?;
    let (fs, file) = pool.into_parts();
    let ctx = Ctx { now_ns: EPOCH_NS, hint: 0 };
    let data = vec![0x5a; 1 << 20];
    let mut field = Field {
        fs,
        _file: file,
        memory,
        files: Vec::new(),
        dirs: Vec::new(),
        appended: Vec::new(),
    };
    for index in 0..files {
        let make = |word: &str, kind| {
            let name = format!("{word} {index}");
            field.fs.create(&ctx, Node::ROOT, name.as_bytes(), &new(kind)).map(|attr| attr.ino)
        };
        let (file, dir) = (make("file", FileKind::File)?, make("dir", FileKind::Directory)?);
        for at in (0..FILE_BYTES).step_by(data.len()) {
            field.fs.write(&ctx, file, at, &data)?;
        }
        field.appended.push(make("appended", FileKind::File)?);
        field.files.push(file);
        field.dirs.push(dir);
    }
    Ok(field)
}

/// How fast `threads` threads are at `work`.
fn rate(field: &Field, work: Work, threads: usize, millis: u64) -> Result<Rate> {
    let (stop, done, used) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|index| {
                let (stop, done, used, start) = (&stop, &done, &used, &start);
                scope.spawn(move || -> Result<()> {
                    let mut worker = Worker::new(field, (index, threads));
                    start.wait();
                    let (mut count, begun) = (0, cpu_ns());
                    while !stop.load(Ordering::Relaxed) {
                        worker.step(work, count)?;
                        count += 1;
                    }
                    used.fetch_add(cpu_ns() - begun, Ordering::Relaxed);
                    done.fetch_add(count, Ordering::Relaxed);
                    // What a batch has left would be in the way of the next.
                    while work == Work::Batches && !count.is_multiple_of(2 * BATCH) {
                        worker.step(work, count)?;
                        count += 1;
                    }
                    Ok(())
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(millis));
        stop.store(true, Ordering::Relaxed);
        let took = begun.elapsed();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        let micros = u64::try_from(took.as_micros())?.max(1);
        let done = done.load(Ordering::Relaxed);
        Ok(Rate {
            thousands: done * 1000 / micros,
            cpu_ns: used.load(Ordering::Relaxed) / done.max(1),
        })
    })
}

impl<'a> Worker<'a> {
    fn new(field: &'a Field, (index, threads): (usize, usize)) -> Self {
        Self {
            field,
            index,
            threads,
            random: fastrand::Rng::with_seed(index as u64),
            buffer: vec![0xa5; 4096],
            now_ns: EPOCH_NS + 1,
        }
    }

    /// One operation, the `count`th of this thread.
    fn step(&mut self, work: Work, count: u64) -> Result<()> {
        self.now_ns += 1_000;
        let hint = u32::try_from(self.index)?;
        let ctx = Ctx { now_ns: self.now_ns, hint };
        match work {
            Work::Limit(len) => {
                let slots = FILE_BYTES / len as u64;
                let base = self.index as u64 * FILE_BYTES;
                let at = PmAddr::new(0, base + self.random.u64(0..slots) * len as u64);
                let data = self.buffer.get(..len).unwrap_or_default();
                let pm = &self.field.memory.pm;
                pm.fence(pm.stream(at, data, Purpose::Data)).end();
            }
            Work::Overwrite(len, share) => {
                let (file, at) = (self.file(share)?, self.offset(len));
                let data = self.buffer.get(..len).unwrap_or_default();
                self.field.fs.write(&ctx, file, at, data)?;
            }
            Work::Read(len, share) => {
                let (file, at) = (self.file(share)?, self.offset(len));
                let into = self.buffer.get_mut(..len).unwrap_or_default();
                self.field.fs.read(&ctx, file, at, into)?;
            }
            Work::Append(len) => {
                let file = *self.field.appended.get(self.index).context("no file to append to")?;
                let data = self.buffer.get(..len).unwrap_or_default();
                self.field.fs.append(&ctx, file, data)?;
                if count % APPENDS == APPENDS - 1 {
                    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                    self.field.fs.setattr(&ctx, Node::current(file), &empty)?;
                }
            }
            Work::Batches => {
                let dir = pick(&self.field.dirs, self.index, Share::Own)?;
                let name = format!("{} {}", self.index, count % BATCH);
                let (name, fs) = (name.as_bytes(), &self.field.fs);
                if (count / BATCH).is_multiple_of(2) {
                    fs.create(&ctx, Node::current(dir), name, &new(FileKind::File))?;
                } else {
                    fs.unlink(&ctx, Node::current(dir), name)?;
                }
            }
            Work::CreateUnlink(share) => {
                let dir = pick(&self.field.dirs, self.index, share)?;
                let name = format!("{} {count}", self.index);
                let (name, fs) = (name.as_bytes(), &self.field.fs);
                fs.create(&ctx, Node::current(dir), name, &new(FileKind::File))?;
                fs.unlink(&ctx, Node::current(dir), name)?;
            }
        }
        Ok(())
    }

    fn offset(&mut self, len: usize) -> u64 {
        self.random.u64(0..FILE_BYTES / len as u64) * len as u64
    }

    /// A file to work on. Those that are nobody else's have one size together, however many the
    /// threads are: with more bytes in use the caches would serve fewer of them.
    fn file(&mut self, share: Share) -> Result<Ino> {
        let own = self.field.files.len() - 1;
        let mine = (own - self.index).div_ceil(self.threads);
        let index = self.index + self.random.usize(0..mine) * self.threads;
        pick(&self.field.files, index, share)
    }
}

/// The inode `index`, or the last one, which is for all.
fn pick(inos: &[Ino], index: usize, share: Share) -> Result<Ino> {
    let picked = match share {
        Share::Own => inos.get(index),
        Share::One => inos.last(),
    };
    picked.copied().context("no inode for this thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_double_up_to_the_most() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(4), [1, 2, 4]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
    }
}
