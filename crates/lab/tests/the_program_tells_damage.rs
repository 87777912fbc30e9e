//! The promise: `novale info`, `check`, `dump` and `mount` answer a damaged pool as the library does: with
//! their exit codes and a message that names structure and place, never with a panic or without an
//! end; and what is mounted can be read, written and unmounted. A sample of the corpus, for
//! `NOVALE_LAB_SECONDS`, from `NOVALE_LAB_SEED` on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use novale_arena::Arena;
use novale_core::{Fs, OpenOptions, Serial, check, inspect, look_at_slot};
use novale_lab::diff::Budget;
use novale_lab::images::{Image, Pools, Recipe};
use novale_lab::watchdog::Watchdog;
use novale_pm::{Pm, PmOptions, SlotSpec};
use tempfile::TempDir;

const NAME: &str = "the_program_tells_damage";
const CORPUS: &str = include_str!("../corpus/images.txt");
/// No image takes longer than this, but for a hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names followed: the pools have fewer, and directories in a circle no end.
const NAMES_MAX: usize = 4000;
/// No image has more to show than this, in any form.
const DUMP_BYTES_MAX: usize = 16 << 20;
/// What the library says of damage that a system call only has a number for.
const EUCLEAN: i32 = 117;

/// What the library makes of an image: the exit code that each command should have.
struct Expected {
    info: i32,
    check: i32,
    show: i32,
    write: i32,
}

impl Expected {
    /// Of the image, which is in these files, too.
    fn of(image: &Image, slots: &[PathBuf]) -> Self {
        let failed = |ok: bool| i32::from(!ok);
        let seen = || remaining(slots).or_else(|| open(slots));
        let (info, check) = match seen() {
            Some(pm) => {
                let code = check(&pm, &Serial, &|_| ())
                    .map_or(8, |report| 4 * failed(report.findings.is_empty()));
                (failed(inspect(&pm).is_ok()), code)
            }
            None => (1, 8),
        };
        let mounts = |pm: Option<Pm>, read_only| {
            let options = OpenOptions { read_only, now_ns: 1, ..OpenOptions::default() };
            let arena = Arena::anonymous(64 << 20).unwrap();
            pm.is_some_and(|pm| Fs::open(pm, arena, &options, &Serial, &|_| ()).is_ok())
        };
        // For writing all slots are the pool's, in a copy: it changes the image.
        let all = image.pool.open(&PmOptions::default()).ok();
        Self { info, check, show: failed(mounts(seen(), true)), write: failed(mounts(all, false)) }
    }
}

/// For reading.
fn open(slots: &[PathBuf]) -> Option<Pm> {
    let slots: Vec<SlotSpec> = slots.iter().map(SlotSpec::new).collect();
    Pm::open(&slots, &PmOptions { read_only: true, ..PmOptions::default() }).ok()
}

/// The pool as a slot with its superblock describes it, where not every slot that there is has a place in it, or a place
/// has no slot: who reads sees what remains.
fn remaining(slots: &[PathBuf]) -> Option<Pm> {
    let seen = |slot| look_at_slot(&open(std::slice::from_ref(slot))?).ok();
    let count = |slot| seen(slot).and_then(|slot| Some((slot.pool, slot.slot_count?)));
    let (pool, count) = slots.iter().find_map(count)?;
    let mut places = vec![None; usize::from(count)];
    for slot in slots {
        let of_pool = seen(slot).filter(|slot| slot.pool == pool);
        if let Some(place) = of_pool.and_then(|slot| places.get_mut(usize::from(slot.index))) {
            *place = Some(SlotSpec::new(slot));
        }
    }
    let there = places.iter().flatten().count();
    let is_whole = there == slots.len() && there == places.len();
    Pm::open_some(&places).ok().filter(|_| !is_whole)
}

/// The image in files, and a directory to mount it on; unmounted when dropped.
struct Trial {
    program: PathBuf,
    folder: TempDir,
    slots: Vec<PathBuf>,
}

impl Trial {
    fn new(program: &Path, image: &Image) -> Self {
        let folder = TempDir::with_prefix("novale-lab.").unwrap();
        let slots = image.save(folder.path()).unwrap();
        let this = Self { program: program.to_owned(), folder, slots };
        fs::create_dir(this.directory()).unwrap();
        this
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Runs a command on the slots; its exit code and what it said, which has no panic in it.
    fn run(&self, words: &[&str], behind: Option<&Path>) -> (i32, String) {
        let mut command = Command::new(&self.program);
        let output = command.args(words).args(&self.slots).args(behind).stdin(Stdio::null());
        said(words, output.output().unwrap())
    }

    /// Expects an exit code, and of a failure that it names structure and place.
    fn expect(&self, words: &[&str], behind: Option<&Path>, expected: i32) {
        let (code, said) = self.run(words, behind);
        assert_eq!(code, expected, "novale {words:?}: {said}");
        assert!(code == 0 || names_place(&said), "novale {words:?} names no place: {said}");
    }

    /// Shows what lies there. Only a slot that is none, or a path that leads nowhere, is a failure.
    fn dump(&self) {
        for what in ["superblock", "slots", "lanes", "saved", "inode 1", "path /a", "page 0:0x8000"]
        {
            for format in [&["dump"][..], &["dump", "--json", "--behind", "--hex"]] {
                let mut command = Command::new(&self.program);
                command.args(format).args(&self.slots).args(what.split(' ')).stdin(Stdio::null());
                let (code, text) = said(format, command.output().unwrap());
                let is_told =
                    text.contains("no name") || text.contains("inode ") || text.contains("slot");
                assert!(code == 0 || code == 1 && is_told, "dump {what}: {code} {text}");
                assert!(text.len() < DUMP_BYTES_MAX, "dump {what}: {} bytes", text.len());
            }
        }
    }

    /// Mounts, uses what is there, and unmounts.
    fn mount(&self, options: &str, expected: i32) -> bool {
        let options = format!("{options},log={}", self.log().display());
        self.expect(&["mount", "-o", &options], Some(&self.directory()), expected);
        if expected != 0 {
            return false;
        }
        let met_damage = use_all(&self.directory());
        let output = Command::new(&self.program).arg("umount").arg(self.directory()).output();
        let (code, text) = said(&["umount"], output.unwrap());
        // The pool may not close, which the daemon tells.
        assert!(code == 0 || code == 1, "umount: {text}");
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        assert!(!log.contains("panicked"), "the daemon said: {log}");
        let told = (!met_damage && code == 0) || names_place(&log) || names_place(&text);
        assert!(told, "damage was met, umount: {code} {text}, and the daemon said: {log}");
        true
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let (program, directory) = (&self.program, self.directory());
        drop(Command::new(program).args(["umount", "--force"]).arg(&directory).output());
        let detached = rustix::mount::unmount(&directory, rustix::mount::UnmountFlags::DETACH);
        // Nothing is mounted any more, if all went well.
        detached.unwrap_or(());
    }
}

fn said(words: &[&str], output: Output) -> (i32, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let said = text(output.stdout) + &text(output.stderr);
    assert!(!said.contains("panicked"), "novale {words:?}: {said}");
    (output.status.code().unwrap_or(-1), said)
}

/// Whether a message says where: an address, or which slot, and what of it.
fn names_place(said: &str) -> bool {
    let of_a_slot = |line: &str| line.contains("slot") && !line.ends_with("slot");
    let of_the_pool = |line: &str| {
        line.contains(":0x")
            || of_a_slot(line)
            || line.contains("superblock")
            || line.contains("the pool uses features")
            || line.contains("the pool was opened")
            || line.contains("state lines")
            || line.contains("inode ")
            || line.contains("directory ")
    };
    said.lines().any(of_the_pool)
}

/// Reads and writes below a directory; whether any call met damage.
fn use_all(top: &Path) -> bool {
    let mut damage = false;
    let mut meet = |result: std::io::Result<()>| {
        damage |= result.is_err_and(|why| why.raw_os_error() == Some(EUCLEAN));
    };
    let (mut open, mut names) = (vec![top.to_owned()], 0);
    while let Some(directory) = open.pop() {
        let listed = match fs::read_dir(&directory) {
            Ok(listed) => listed,
            Err(why) => {
                meet(Err(why));
                continue;
            }
        };
        for entry in listed {
            names += 1;
            if names > NAMES_MAX {
                return damage;
            }
            match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
                Ok((path, kind)) if kind.is_dir() => open.push(path),
                Ok((path, kind)) if kind.is_file() => meet(use_file(&path)),
                Ok((path, _)) => meet(fs::symlink_metadata(path).map(drop)),
                Err(why) => meet(Err(why)),
            }
        }
        meet(fs::write(directory.join("new"), [7; 5000]));
    }
    damage
}

fn use_file(path: &Path) -> std::io::Result<()> {
    let mut bytes = vec![0; 100_000];
    let mut file = File::open(path)?;
    let count = file.read(&mut bytes)?;
    drop(file);
    match File::options().append(true).open(path) {
        Ok(mut file) => {
            std::io::Write::write_all(&mut file, bytes.get(..count.min(100)).unwrap_or_default())
        }
        Err(why) if why.kind() == ErrorKind::ReadOnlyFilesystem => Ok(()),
        Err(why) => Err(why),
    }
}

/// Images that are tried.
const IMAGES: u64 = 60;

#[test]
fn as_the_library_does() {
    let program = match program::built() {
        Ok(program) => program,
        Err(why) => return println!("skipped: {NAME}: {why}"),
    };
    let mut recipes: Vec<Recipe> = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().unwrap())
        .collect();
    let budget = Budget::from_env(IMAGES, 0);
    Rng::with_seed(budget.seed).shuffle(&mut recipes);
    let (watchdog, start, mut pools) = (Watchdog::new(PATIENCE), Instant::now(), Pools::default());
    let mut met: BTreeMap<&str, u32> = BTreeMap::new();
    // However slow the machine is, some are tried.
    let goes_on = |(done, _): &(u64, Recipe)| budget.goes_on(*done, start);
    for (_, recipe) in (0..).zip(recipes).take_while(goes_on) {
        watchdog.begin(recipe.to_string());
        println!("{recipe}");
        let image = Image::new(&mut pools, &recipe).unwrap();
        let trial = Trial::new(&program, &image);
        let expected = Expected::of(&image, &trial.slots);
        trial.expect(&["info"], None, expected.info);
        trial.expect(&["check"], None, expected.check);
        trial.dump();
        let shown = trial.mount("ro", expected.show);
        let written = trial.mount("rw", expected.write);
        for (what, count) in [("images", true), ("shown", shown), ("written to", written)] {
            *met.entry(what).or_default() += u32::from(count);
        }
    }
    println!("{NAME}: {met:?}");
}
