//! A trace replayed by each method, one call after the other.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use novale_core::{FileKind, Ino, Node};

use crate::bed::new;
use crate::stats::{Round, Rounds};
use crate::trace::{self, Call};
use crate::writer::{METHODS, Stored, Writer, on_cpu};
use crate::{Common, place::MB};

/// What the paper says of a trace.
#[derive(Debug)]
pub(crate) struct Paper {
    /// What the trace's file is called after.
    trace: &'static str,
    /// Gains over copy-on-write, in percent (6.3).
    pub(crate) adl_gain: f64,
    pub(crate) zcl_gain: f64,
    /// Bytes asked for, and stored by copy-on-write, ADL and ZCL (table 2).
    pub(crate) stored: [&'static str; 4],
}

const PAPER: [Paper; 2] = [
    Paper {
        trace: "facebook",
        adl_gain: 136.9,
        zcl_gain: 136.0,
        stored: ["11.9M", "57.5M", "12.7M", "11.9M"],
    },
    Paper {
        trace: "twitter",
        adl_gain: 150.6,
        zcl_gain: 149.2,
        stored: ["4.8M", "21.7M", "4.8M", "4.8M"],
    },
];

/// A trace to be replayed.
#[derive(Debug)]
pub(crate) struct Trace {
    name: String,
    calls: Vec<Call>,
}

/// What replaying it took, by method.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) name: String,
    /// All calls.
    pub(crate) calls: Vec<Rounds>,
    /// The writes alone, to files that are there.
    pub(crate) writes: Vec<Rounds>,
    /// By all calls.
    pub(crate) stored: Vec<Stored>,
}

/// Reads a trace from a file, whose name's last part is the trace's.
pub(crate) fn read(path: &Path) -> Result<Trace> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let name = name.rsplit('.').next().unwrap_or(&name).to_owned();
    Ok(Trace { name, calls: trace::read(path)? })
}

impl Replayed {
    /// What the paper says of this trace.
    pub(crate) fn paper(&self) -> Option<&'static Paper> {
        PAPER.iter().find(|paper| paper.trace == self.name)
    }
}

impl Trace {
    /// Replays it by each method in turn, round by round; the first time is not counted.
    pub(crate) fn run(&self, common: &Common) -> Result<Replayed> {
        let mut writers = Writer::all(&common.place(), MB)?;
        let none = vec![Rounds::default(); METHODS.len()];
        let (mut calls, mut alone, mut stored) = (none.clone(), none, Vec::new());
        for round in 0..=common.rounds {
            stored.clear();
            for (index, writer) in writers.iter_mut().enumerate() {
                let (all_ns, bytes, steps) = self.once(writer, round)?;
                let alone_ns = write_again(writer, round, &steps)?;
                stored.push(bytes);
                for (rounds, ns) in [(&mut calls, all_ns), (&mut alone, alone_ns)] {
                    if let Some(rounds) = rounds.get_mut(index).filter(|_| round > 0) {
                        rounds.push(Round::whole(ns));
                    }
                }
            }
        }
        Ok(Replayed { name: self.name.clone(), calls, writes: alone, stored })
    }

    /// One replay: its time, what it stored, and its writes.
    fn once(&self, writer: &mut Writer, round: u64) -> Result<(u64, Stored, Vec<Step>)> {
        let mut replay = Replay::new(writer, &format!("calls {round}"))?;
        let before = replay.writer.fs().counters();
        let ns = on_cpu(|| self.calls.iter().try_for_each(|call| replay.call(*call)))?;
        let spent = &replay.writer.fs().counters() - &before;
        let asked = replay.steps.iter().map(|step| step.len).sum();
        let stored = Stored::of(replay.steps.len() as u64, asked, &spent);
        let steps = std::mem::take(&mut replay.steps);
        replay.remove()?;
        Ok((ns, stored, steps))
    }
}

/// The time of a replay's writes, to new files that are made before.
fn write_again(writer: &mut Writer, round: u64, steps: &[Step]) -> Result<u64> {
    let mut replay = Replay::new(writer, &format!("writes {round}"))?;
    for _ in 0..steps.iter().map(|step| step.file + 1).max().unwrap_or(0) {
        replay.make()?;
    }
    let ns = on_cpu(|| steps.iter().try_for_each(|step| replay.write(*step)))?;
    replay.remove()?;
    Ok(ns)
}

/// A write to one of the files of a replay.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// In the order in which they were made.
    file: usize,
    at: u64,
    len: u64,
}

/// One replay in the making, in a directory of its own.
struct Replay<'a> {
    writer: &'a mut Writer,
    dir: Ino,
    /// Open descriptors: the file and the descriptor's own position.
    open: HashMap<u32, (usize, u64)>,
    files: Vec<Ino>,
    /// What was written.
    steps: Vec<Step>,
}

impl<'a> Replay<'a> {
    fn new(writer: &'a mut Writer, name: &str) -> Result<Self> {
        let ctx = writer.tick();
        let dir = new(FileKind::Directory);
        let dir = writer.fs().create(&ctx, Node::ROOT, name.as_bytes(), &dir)?.ino;
        Ok(Self { writer, dir, open: HashMap::new(), files: Vec::new(), steps: Vec::new() })
    }

    /// What a descriptor that is not open is asked for is left out, as `Mobibench` leaves it.
    fn call(&mut self, call: Call) -> Result<()> {
        match call {
            Call::Open { fd, makes: true } => {
                let file = self.make()?;
                self.open.insert(fd, (file, 0));
            }
            Call::Open { fd, makes: false } | Call::Close { fd } | Call::Remove { fd } => {
                self.open.remove(&fd);
            }
            Call::Read { fd, at, len } => self.read(fd, at, len)?,
            Call::Write { fd, at, len } => {
                if let Some((file, at)) = self.position(fd, at, len) {
                    let step = Step { file, at, len };
                    self.write(step)?;
                    self.steps.push(step);
                }
            }
            Call::Attributes { fd } => {
                if let Some((file, _)) = self.open.get(&fd) {
                    self.writer.fs().getattr(self.ino(*file))?;
                }
            }
            Call::Sync { .. } | Call::Nothing => {}
        }
        Ok(())
    }

    fn make(&mut self) -> Result<usize> {
        let (ctx, file) = (self.writer.tick(), self.files.len());
        let (dir, name) = (Node::current(self.dir), name(file));
        let made = self.writer.fs().create(&ctx, dir, name.as_bytes(), &new(FileKind::File))?;
        self.files.push(made.ino);
        Ok(file)
    }

    fn write(&mut self, step: Step) -> Result<()> {
        self.writer.write(self.ino(step.file), step.at, step.len)
    }

    fn read(&mut self, fd: u32, at: Option<u64>, len: u64) -> Result<()> {
        let Some((file, from)) = self.position(fd, at, 0) else { return Ok(()) };
        let count = self.writer.read(self.ino(file), from, len)?;
        self.position(fd, at, count as u64);
        Ok(())
    }

    /// The file of a descriptor and where an access goes, which moves its own position by `len`.
    fn position(&mut self, fd: u32, at: Option<u64>, len: u64) -> Option<(usize, u64)> {
        let (file, own) = self.open.get_mut(&fd)?;
        let from = at.unwrap_or(*own);
        if at.is_none() {
            *own += len;
        }
        Some((*file, from))
    }

    fn ino(&self, file: usize) -> Ino {
        self.files.get(file).copied().unwrap_or(Ino::NULL)
    }

    /// Removes all files: the next replay has as much room.
    fn remove(self) -> Result<()> {
        for file in 0..self.files.len() {
            let (ctx, name) = (self.writer.tick(), name(file));
            self.writer.fs().unlink(&ctx, Node::current(self.dir), name.as_bytes())?;
        }
        Ok(())
    }
}

fn name(file: usize) -> String {
    format!("file {file}")
}

#[cfg(test)]
mod tests {
    use novale_core::UpdatePolicy;

    use super::*;
    use crate::place::Place;

    #[test]
    fn calls_go_to_the_files_that_their_descriptors_have_then() {
        let place = Place { small_pages: true, ..Place::default() };
        let mut writer = Writer::new(&place, MB, UpdatePolicy::Auto).unwrap();
        let open = |fd| Call::Open { fd, makes: true };
        let write = |fd, at, len| Call::Write { fd, at, len };
        let calls = vec![
            write(3, None, 100),
            open(3),
            write(3, None, 10),
            write(3, None, 5),
            write(3, Some(2), 4),
            Call::Close { fd: 3 },
            write(3, None, 100),
            open(3),
            write(3, None, 7),
            Call::Open { fd: 3, makes: false },
            write(3, None, 100),
        ];
        let trace = Trace { name: "t".into(), calls };
        let (_, stored, steps) = trace.once(&mut writer, 0).unwrap();
        assert_eq!((stored.count, stored.asked), (4, 26));
        let steps: Vec<_> = steps.iter().map(|step| (step.file, step.at, step.len)).collect();
        assert_eq!(steps, [(0, 0, 10), (0, 10, 5), (0, 2, 4), (1, 0, 7)]);
    }
}
