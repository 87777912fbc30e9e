//! Slots of shared pages, that lines of a file are written to, keep what was written: beside all that else
//! changes the file, through closing and after a crash, with the pages of the pool counted.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test panics"
)]

use novale_arena::Arena;
use novale_core::{
    Ctx, Fallocate, Form, Fs, MkfsOptions, NewInode, Node, OpenOptions, Serial, SetAttr, SlotLines,
    UpdatePolicy, check, mkfs,
};
use novale_layout::{FileKind, Ino};
use novale_pm::{Pm, PmOptions};

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };
const MB: u64 = 1 << 20;
const FILE: NewInode<'static> =
    NewInode { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };

fn pool() -> Pm {
    let pm = Pm::anonymous(&[16 * MB], &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(1, 2)).unwrap();
    pm
}

fn open(pm: Pm, form: Form, slot_lines: SlotLines) -> Fs {
    let update = Some(UpdatePolicy::Lawn);
    let options = OpenOptions { form, update, slot_lines, ..OpenOptions::default() };
    Fs::open(pm, Arena::anonymous(16 * MB).unwrap(), &options, &Serial, &|_| {}).unwrap()
}

fn create(fs: &Fs) -> Ino {
    fs.create(&CTX, Node::ROOT, b"f", &FILE).unwrap().ino
}

fn all(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; fs.getattr(ino).unwrap().size as usize];
    assert_eq!(fs.read(&CTX, ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn sound(pm: &Pm) {
    let found = check(pm, &Serial, &|_| {}).unwrap().findings;
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn who_joins_takes_the_same_slots() {
    for slot_lines in SlotLines::ALL {
        let arena = Arena::anonymous(16 * MB).unwrap();
        let options = OpenOptions { slot_lines, ..OpenOptions::default() };
        let fs = Fs::open(pool(), arena.clone(), &options, &Serial, &|_| {}).unwrap();
        assert_eq!(OpenOptions::of_arena(&arena).slot_lines, slot_lines);
        assert_eq!(OpenOptions::of_arena(&arena).placement, options.placement);
        assert_eq!(OpenOptions::of_arena(&arena).update, Some(fs.update_policy()));
        fs.close().unwrap();
    }
}

/// What a file holds beside what it should.
struct Bed {
    fs: Fs,
    ino: Ino,
    expected: Vec<u8>,
    random: fastrand::Rng,
}

impl Bed {
    fn new(seed: u64, form: Form, slot_lines: SlotLines, bytes: usize) -> Self {
        let fs = open(pool(), form, slot_lines);
        let ino = create(&fs);
        let expected = vec![7; bytes];
        fs.write(&CTX, ino, 0, &expected).unwrap();
        Self { fs, ino, expected, random: fastrand::Rng::with_seed(seed) }
    }

    fn write(&mut self, at: usize, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|_| self.random.u8(..)).collect();
        self.fs.write(&CTX, self.ino, at as u64, &bytes).unwrap();
        let end = self.expected.len().max(at + len);
        self.expected.resize(end, 0);
        self.expected[at..at + len].copy_from_slice(&bytes);
    }

    fn write_somewhere(&mut self) {
        let lens = [1, 8, 64, 100, 128, 512, 1000, 3000, 4096, 5000];
        let len = lens[self.random.usize(..lens.len())].min(self.expected.len());
        let at = self.random.usize(..=self.expected.len() - len);
        let is_aligned = self.random.bool();
        self.write(if is_aligned { at / 64 * 64 } else { at }, len);
    }

    fn step(&mut self) {
        let size = self.expected.len();
        match self.random.u32(..60) {
            0 => {
                let to = self.random.usize(1000..size + 5000).min(400_000);
                let set = SetAttr { size: Some(to as u64), ..SetAttr::default() };
                self.fs.setattr(&CTX, Node::current(self.ino), &set).unwrap();
                self.expected.resize(to, 0);
            }
            1 => self.write(size, 300),
            2 => {
                let from = self.random.usize(..size);
                let to = size.min(from + 6000);
                let (from, len) = (from as u64, (to - from) as u64);
                self.fs.fallocate(&CTX, self.ino, Fallocate::PunchHole, from, len).unwrap();
                self.expected[from as usize..to].fill(0);
            }
            3 => {
                let methods = UpdatePolicy::ALL;
                let update = Some(Some(methods[self.random.usize(..methods.len())]));
                let set = SetAttr { update, ..SetAttr::default() };
                self.fs.setattr(&CTX, Node::current(self.ino), &set).unwrap();
            }
            4 if size > 20_000 => {
                let how = Fallocate::CollapseRange;
                self.fs.fallocate(&CTX, self.ino, how, 4096, 4096).unwrap();
                drop(self.expected.drain(4096..8192));
            }
            5 => {
                self.fs.write_slots_back(&CTX).unwrap();
            }
            _ => self.write_somewhere(),
        }
    }

    fn holds(&self, what: &str) {
        let found = all(&self.fs, self.ino);
        assert_eq!(found.len(), self.expected.len(), "{what}");
        let wrong = found.iter().zip(&self.expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{what}");
    }

    /// As after a crash that left all, or closed.
    fn again(self, closed: bool, form: Form, slot_lines: SlotLines) -> Self {
        if closed {
            self.fs.close().unwrap();
        }
        let pm = self.fs.into_pm();
        sound(&pm);
        Self { fs: open(pm, form, slot_lines), ..self }
    }
}

#[test]
fn beside_all_that_changes_a_file() {
    for seed in 0..12 {
        let form = if seed % 2 == 0 { Form::Single } else { Form::Two };
        let slot_lines = SlotLines::ALL[seed as usize % 5];
        let mut bed = Bed::new(seed, form, slot_lines, 40_000 + 25_000 * seed as usize);
        for round in 0..6 {
            for step in 0..120 {
                bed.step();
                if step % 8 == 0 {
                    bed.holds(&format!("seed {seed}, round {round}, step {step}"));
                }
            }
            bed = bed.again(round % 2 == 1, form, slot_lines);
            bed.holds(&format!("seed {seed}, round {round}, opened again"));
        }
    }
}

/// All pages share one for their lines, and what they took is free when they are gone.
#[test]
fn pages_share_their_slots() {
    let mut bed = Bed::new(1, Form::Single, SlotLines::default(), 64 * 4096);
    let free = |bed: &Bed| bed.fs.statfs_of(Ino::ROOT).unwrap().pages_free;
    let before = free(&bed);
    for page in 0..64 {
        bed.write(page * 4096 + page % 7 * 64, 64);
    }
    bed.holds("64 lines in slots");
    // One of slots, and two of the log.
    assert!(before - free(&bed) <= 4, "{} pages", before - free(&bed));
    for page in 0..64 {
        bed.write(page * 4096 + page % 7 * 64, 64);
    }
    bed.holds("64 lines back in their pages");
    let (log, ino) = (before - free(&bed), bed.ino);
    assert!(log <= 6, "{log} pages");
    bed.fs.unlink(&CTX, Node::ROOT, b"f").unwrap();
    assert!(free(&bed) > before, "{ino:?}");
    bed.fs.close().unwrap();
    sound(&bed.fs.into_pm());
}

/// A line that has no place beside the others of its page takes these along.
#[test]
fn a_page_moves_where_its_slots_are_taken() {
    let mut bed = Bed::new(2, Form::Single, SlotLines::default(), 64 * 4096);
    for round in 0..40 {
        for page in 0..64 {
            bed.write(page * 4096 + (page * 11 + round * 5) % 63 * 64, 64 + round % 2 * 64);
        }
        bed.holds(&format!("round {round}"));
    }
    bed = bed.again(false, Form::Two, SlotLines::default());
    bed.holds("opened again");
    bed.fs.close().unwrap();
    sound(&bed.fs.into_pm());
}

/// Write-back leaves 2 pages of slots to 64 of the file, and what was written least recently goes first.
#[test]
fn what_was_written_long_ago_goes_back() {
    let mut bed = Bed::new(3, Form::Two, SlotLines::default(), 64 * 4096);
    for page in 0..64 {
        bed.write(page * 4096 + 64, 1024);
    }
    let free = bed.fs.statfs_of(Ino::ROOT).unwrap().pages_free;
    assert!(bed.fs.write_slots_back(&CTX).unwrap() > 0);
    assert_eq!(bed.fs.write_slots_back(&CTX).unwrap(), 0);
    bed.holds("written back");
    // 16 pages of four slots of a kilobyte, or more; two stay.
    let freed = bed.fs.statfs_of(Ino::ROOT).unwrap().pages_free - free;
    assert!((12..=14).contains(&freed), "{freed} pages");
    bed = bed.again(false, Form::Two, SlotLines::default());
    bed.holds("opened again");
}
