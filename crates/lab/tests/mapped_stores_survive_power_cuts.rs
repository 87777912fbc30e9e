//! Promise: after a power cut a file whose pages are mapped has what was flushed of the mapping, and of
//! other stores any part; its size and all other files are as after one operation or another; and what
//! an atomic mapping publishes is there all of it or not at all. `NOVALE_LAB_SECONDS` and
//! `NOVALE_LAB_SEED` make it go on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test panics and tells"
)]

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use novale_core::{
    Ctx, Error, Fallocate, FileKind, Form, Fs, HoldId, Ino, MappedRun, NewInode, Node, Piece,
    SetAttr,
};
use novale_lab::crash::{Effort, Event, Hardware, Image, Recorder, What, images};
use novale_lab::diff::{Budget, check_opened, check_pool, make_pool, now_ns_at, open_pool};
use novale_pm::{Observer, Pm, PmOptions, Purpose};

const LENS: [u64; 1] = [4 << 20];
const PAGE: usize = 4096;
const STEPS: usize = 8;
const SIZE_MAX: usize = 6 * PAGE;
const EFFORT: Effort =
    Effort { subset_lines_max: 3, data_lines_max: 1, pairs: 2, random: 3, at_stores: false };

/// What a file may hold: for each byte what it holds now, and what else a power cut may bring back.
#[derive(Debug, Clone, Default)]
struct May {
    now: Vec<u8>,
    else_too: Vec<Vec<u8>>,
}

impl May {
    fn resize(&mut self, size: usize) {
        self.now.resize(size, 0);
        self.else_too.resize(size, Vec::new());
    }

    /// Bytes that are stored and not durable.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        for (offset, byte) in (at..).zip(bytes) {
            let old = std::mem::replace(&mut self.now[offset], *byte);
            self.else_too[offset].push(old);
        }
    }

    /// Bytes that are written, durably.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.resize(self.now.len().max(at + bytes.len()));
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.flush(at, at + bytes.len());
    }

    fn flush(&mut self, from: usize, to: usize) {
        let end = to.min(self.now.len());
        for old in self.else_too.get_mut(from..end).unwrap_or_default() {
            old.clear();
        }
    }

    fn allows(&self, at: usize, byte: u8) -> bool {
        self.now[at] == byte || self.else_too[at].contains(&byte)
    }
}

/// Two files: one that is mapped at times, one that atomic mappings publish to.
#[derive(Debug, Clone, Default)]
struct Files {
    mapped: May,
    atomic: Vec<u8>,
}

/// What a crash in the middle of an operation may leave.
struct Allowed<'a> {
    before: &'a Files,
    after: &'a Files,
}

impl Allowed<'_> {
    fn judge(&self, mapped: &[u8], atomic: &[u8]) -> Result<(), String> {
        let (before, after) = (&self.before.mapped, &self.after.mapped);
        if atomic != self.before.atomic && atomic != self.after.atomic {
            return Err("the atomic file is neither as before nor as after".to_owned());
        }
        let is_after = mapped.len() == after.now.len();
        if !is_after && mapped.len() != before.now.len() {
            return Err(format!("{} bytes long", mapped.len()));
        }
        let grew = before.now.len() != after.now.len();
        for (at, byte) in mapped.iter().enumerate() {
            // With the size the rest is there as well.
            let good = match (is_after, grew) {
                (true, true) => after.allows(at, *byte),
                (false, true) => {
                    before.allows(at, *byte) || at < after.now.len() && after.allows(at, *byte)
                }
                _ => before.allows(at, *byte) || after.allows(at, *byte),
            };
            if !good {
                let (was, is) = (before.now.get(at), after.now.get(at));
                return Err(format!("byte {at} is {byte}: it was {was:?}, and is {is:?}"));
            }
        }
        Ok(())
    }
}

fn ctx(step: usize) -> Ctx {
    Ctx { now_ns: now_ns_at(step), hint: 0 }
}

fn contents(fs: &Fs, name: &[u8]) -> Vec<u8> {
    let attr = fs.lookup(&ctx(0), Node::ROOT, name).unwrap();
    let mut bytes = vec![1; attr.size as usize];
    assert_eq!(fs.read(&ctx(0), attr.ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

struct Lab {
    fs: Fs,
    recorder: Arc<Recorder>,
    hardware: Hardware,
    form: Form,
    files: Files,
    inos: [(Ino, u32); 2],
    map: Option<(HoldId, Vec<MappedRun>)>,
    random: Rng,
    images: u64,
}

impl Lab {
    fn new(seed: u64) -> Self {
        let recorder = Arc::new(Recorder::default());
        let observer = Some(recorder.clone() as Arc<dyn Observer>);
        let pm = Pm::anonymous(&LENS, &PmOptions { observer, ..PmOptions::default() }).unwrap();
        let hardware = Hardware::used_before(&LENS);
        recorder.unheard(|| hardware.show(&pm));
        make_pool(&pm, 1).unwrap();
        let form = [Form::Auto, Form::Two, Form::Single][seed as usize % 3];
        let fs = open_pool(pm, form, 1).unwrap();
        let inos = [&b"mapped"[..], b"atomic"].map(|name| {
            let kind = FileKind::File;
            let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
            let made = fs.create(&ctx(0), Node::ROOT, name, &new).unwrap();
            (made.ino, made.generation)
        });
        let (map, random) = (None, Rng::with_seed(seed));
        let files = Files::default();
        let mut lab = Self { fs, recorder, hardware, form, files, inos, map, random, images: 0 };
        for event in lab.recorder.take() {
            lab.hardware.apply(&event);
        }
        lab
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.random.usize(1..most);
        (0..len).map(|_| self.random.u8(1..)).collect()
    }

    fn is_mapped(&self, at: usize, len: usize) -> bool {
        let pages = (at / PAGE) as u64..((at + len).div_ceil(PAGE)) as u64;
        let runs = self.map.as_ref().map_or(&[][..], |(_, runs)| runs);
        let has = |page| {
            runs.iter().any(|run| (run.file_page..run.file_page + run.pages).contains(&page))
        };
        at + len <= self.files.mapped.now.len() && pages.into_iter().all(has)
    }

    /// Stores to the mapping, as its program does: nothing writes it back.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let (_, runs) = self.map.as_ref().unwrap();
        for (offset, byte) in (at..).zip(bytes) {
            let page = (offset / PAGE) as u64;
            let run =
                runs.iter().rfind(|run| (run.file_page..run.file_page + run.pages).contains(&page));
            let run = run.unwrap();
            let addr = run.addr.add((page - run.file_page) * PAGE as u64 + (offset % PAGE) as u64);
            drop(self.fs.pm().store(addr, &[*byte], Purpose::Data));
        }
        self.files.mapped.store(at, bytes);
    }

    fn map(&mut self, step: usize) {
        let (ino, generation) = self.inos[0];
        if self.map.is_none() {
            let hold = self.fs.map_hold(&ctx(step), ino, generation).unwrap().unwrap();
            // It is stored to.
            let hold = self.fs.hold_to_write(hold).unwrap();
            self.map = Some((hold, Vec::new()));
        }
        let (hold, _) = self.map.as_ref().unwrap();
        let runs = self.fs.map_pages(&ctx(step), *hold, 0, 64).unwrap();
        let hold = *hold;
        self.map = Some((hold, runs));
    }

    /// Does one thing; what there is is then to be found in `files`.
    fn act(&mut self, step: usize) {
        let (ctx, at) = (ctx(step), self.random.usize(..SIZE_MAX - 9000));
        let [(mapped, _), (atomic, _)] = self.inos;
        let size = self.files.mapped.now.len();
        match self.random.u8(..16) {
            0..=3 => {
                let bytes = self.bytes(40);
                if self.is_mapped(at, bytes.len()) {
                    self.store(at, &bytes);
                }
            }
            4 | 5 => {
                let pages = self.random.usize(1..4);
                let first = at / PAGE;
                self.fs.map_flush(&ctx, mapped, first as u64, pages as u64).unwrap();
                self.files.mapped.flush(first * PAGE, (first + pages) * PAGE);
            }
            6..=8 => {
                let most = if self.random.bool() { 60 } else { 9000 };
                let bytes = self.bytes(most);
                self.fs.write(&ctx, mapped, at as u64, &bytes).unwrap();
                self.files.mapped.write(at, &bytes);
            }
            9 | 10 => {
                let size = Some(at as u64);
                self.fs
                    .setattr(&ctx, Node::current(mapped), &SetAttr { size, ..SetAttr::default() })
                    .unwrap();
                self.files.mapped.resize(at);
            }
            11 => {
                let zeros = vec![0; self.random.usize(1..9000)];
                let how = Fallocate::ZeroRange;
                self.fs.fallocate(&ctx, mapped, how, at as u64, zeros.len() as u64).unwrap();
                self.files.mapped.write(at, &zeros);
            }
            12 => {
                let len = self.random.usize(1..9000);
                let how = Fallocate::PunchHole;
                self.fs.fallocate(&ctx, mapped, how, at as u64, len as u64).unwrap();
                let zeros = vec![0; len.min(size.saturating_sub(at))];
                if !zeros.is_empty() {
                    self.files.mapped.write(at, &zeros);
                }
            }
            13 => match self.map.take() {
                Some((hold, _)) => self.fs.open_release(&ctx, hold).unwrap(),
                None => self.map(step),
            },
            14 => self.map(step),
            _ => self.publish(&ctx, atomic),
        }
    }

    /// What `msync` of an atomic mapping does: some pages at once.
    fn publish(&mut self, ctx: &Ctx, ino: Ino) {
        let mut after = self.files.atomic.clone();
        let mut pieces: Vec<(usize, Vec<u8>)> = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let most = if self.random.bool() { 60 } else { 5000 };
            pieces.push((self.random.usize(..30_000), self.bytes(most)));
        }
        for (at, bytes) in &pieces {
            after.resize(after.len().max(at + bytes.len()), 0);
            after[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let given: Vec<Piece<'_>> =
            pieces.iter().map(|(at, bytes)| Piece { offset: *at as u64, bytes }).collect();
        self.fs.write_scattered(ctx, ino, &given).unwrap();
        self.files.atomic = after;
    }

    fn step(&mut self, step: usize) -> Result<(), String> {
        let before = self.files.clone();
        self.act(step);
        // What is seen now.
        assert!(contents(&self.fs, b"mapped") == self.files.mapped.now, "step {step}");
        assert!(contents(&self.fs, b"atomic") == self.files.atomic, "step {step}");
        let after = self.files.clone();
        let events: Vec<Event> = self.recorder.take();
        for event in &events {
            if matches!(event.what, What::Fence) {
                let allowed = Allowed { before: &before, after: &after };
                self.cut(&allowed).map_err(|why| format!("at {}: {why}", event.site))?;
            }
            self.hardware.apply(event);
        }
        let allowed = Allowed { before: &after, after: &after };
        self.cut(&allowed).map_err(|why| format!("behind it: {why}"))
    }

    fn cut(&mut self, allowed: &Allowed<'_>) -> Result<(), String> {
        for image in images(&self.hardware, EFFORT, &mut self.random) {
            self.images += 1;
            self.judge(&image, allowed)
                .map_err(|why| format!("keeping {}: {why}", image.choice))?;
        }
        Ok(())
    }

    fn judge(&self, image: &Image, allowed: &Allowed<'_>) -> Result<(), String> {
        let pm = Pm::anonymous(&LENS, &PmOptions::default()).unwrap();
        self.hardware.after_cut(&image.lines).show(&pm);
        let fs = open_pool(pm, self.form, 1 << 20)?;
        check_opened(&fs)?;
        allowed.judge(&contents(&fs, b"mapped"), &contents(&fs, b"atomic"))?;
        // Nothing of a mapping is left.
        let (ino, generation) = self.inos[0];
        let hold = fs.map_hold(&ctx(0), ino, generation).map_err(|why| why.to_string())?;
        fs.open_release(&ctx(0), hold.ok_or("it is gone")?).map_err(|why| why.to_string())?;
        fs.close().map_err(|why| why.to_string())?;
        check_pool(&fs.into_pm()).map(drop)
    }
}

#[test]
fn what_was_flushed_or_published_is_there() {
    let (budget, start) = (Budget::from_env(3, STEPS), Instant::now());
    let (mut images, mut done) = (0, 0);
    while budget.goes_on(done, start) {
        let seed = budget.seed + done;
        let mut lab = Lab::new(seed);
        for step in 0..budget.steps {
            if let Err(why) = lab.step(step) {
                panic!("seed {seed}, step {step}: {why}");
            }
        }
        images += lab.images;
        done += 1;
    }
    println!("{done} sequences, {images} images");
    assert!(images > 100);
}

/// By who knows nothing of which pages were stored to.
#[test]
fn what_was_synced_is_there() {
    let syncs: [fn(&Fs, Ino); 2] =
        [|fs, ino| fs.sync(&ctx(9), ino).unwrap(), |fs, _| fs.sync_all(&ctx(9)).unwrap()];
    for sync in syncs {
        let mut lab = Lab::new(2);
        let ino = lab.inos[0].0;
        lab.fs.write(&ctx(1), ino, 0, &[7; 3 * PAGE]).unwrap();
        lab.files.mapped.write(0, &[7; 3 * PAGE]);
        lab.map(2);
        lab.store(100, b"stored");
        lab.store(2 * PAGE - 3, b"stored too");
        sync(&lab.fs, ino);
        lab.files.mapped.flush(0, 3 * PAGE);
        for event in lab.recorder.take() {
            lab.hardware.apply(&event);
        }
        let files = lab.files.clone();
        lab.cut(&Allowed { before: &files, after: &files }).unwrap();
    }
}

/// An atomic mapping's pages are replaced; those of the other kind of mapping must stay.
#[test]
fn an_atomic_mapping_does_not_publish_to_pages_that_are_mapped() {
    let mut lab = Lab::new(1);
    lab.map(1);
    let given = [Piece { offset: 0, bytes: b"published" }];
    let refused = lab.fs.write_scattered(&ctx(1), lab.inos[0].0, &given);
    assert!(matches!(refused, Err(Error::Pinned)));
}
