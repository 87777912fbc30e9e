//! Promise: `novale slot add` of a mounted pool gives it the slot beside programs that write, which have its room
//! at once, those that use the pool directly among them; the pool has it from then on, whatever becomes of the daemon.
//! Where such a program could not open the slot, nothing is changed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use novale_posix::Pool;
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use support::{
    Daemon, Outcome, Scratch, Stopped, alone, arenas, ends, eventually, novale, program,
};

fn slots_of(scratch: &Scratch) -> Value {
    serde_json::from_str(&novale(&["slot", "status", "--json", &scratch.dir()]).ok()).unwrap()
}

fn bytes(number: usize, round: usize) -> Vec<u8> {
    vec![u8::try_from((number + round) % 250).unwrap() + 1; 100_000]
}

/// Writes files anew in turn, and returns the last round of each.
fn write(dir: &Path, is_over: &AtomicBool) -> [usize; 20] {
    let mut rounds = [0; 20];
    for turn in 0.. {
        let number = turn % 20;
        rounds[number] += 1;
        fs::write(dir.join(number.to_string()), bytes(number, rounds[number])).unwrap();
        if turn > 60 && is_over.load(Ordering::Acquire) {
            return rounds;
        }
    }
    rounds
}

fn judge(dir: &Path, rounds: &[usize; 20]) {
    for (number, round) in rounds.iter().enumerate() {
        let found = fs::read(dir.join(number.to_string())).unwrap();
        assert!(found == bytes(number, *round), "file {number}");
    }
    let large = fs::read(dir.join("large")).unwrap();
    assert!(large == vec![7; 40 << 20]);
}

fn daemon(slots: &[&str]) -> u64 {
    let told = novale(&[&["info", "--json"], slots].concat()).ok();
    serde_json::from_str::<Value>(&told).unwrap()["used_by"].as_u64().unwrap()
}

fn work(options: &[&str], name: &str, is_killed: bool) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&[&["mount"], options, &[a, b, &dir]].concat()).ok();
    let (at, is_over) = (scratch.in_dir(""), AtomicBool::new(false));
    let before = statvfs(&at).unwrap().f_blocks;
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&at, &is_over));
        let added = novale(&["slot", "add", "--size", "64M", c, &dir]).ok();
        assert!(added.contains("added: slot 2 is"), "{added}");
        is_over.store(true, Ordering::Release);
        writer.join().unwrap()
    });
    assert!(statvfs(&at).unwrap().f_blocks > before + 15_000);
    // More than the two have.
    fs::write(at.join("large"), vec![7; 40 << 20]).unwrap();
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][2]["path"], c, "{told}");
    assert_eq!(told["slots"][2]["state"], "ok", "{told}");
    assert!(told["slots"][2]["bytes_used"].as_u64().unwrap() > 10 << 20, "{told}");
    let again = novale(&["slot", "add", c, a, b]).ok();
    assert!(again.contains("already done"), "{again}");
    // Nobody takes it for a slot of his own.
    novale(&["mkfs", "--force", c]).refused(1, &["in use"]);
    let daemon = daemon(&[a, b, c]);
    if is_killed {
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), Signal::KILL).unwrap();
        assert!(ends(daemon));
        novale(&["umount", &dir]);
    } else {
        novale(&["umount", &dir]).ok();
    }
    novale(&["mount", a, b, &dir]).refused(1, &["missing: slot 2"]);
    novale(&["mount", a, b, c, &dir]).ok();
    judge(&at, &rounds);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, b, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

#[test]
fn its_room_is_there_at_once() {
    work(&[], "its_room_is_there_at_once", false);
}

#[test]
fn and_after_the_daemon_is_killed() {
    work(&["-o", "mode=buffered"], "and_after_the_daemon_is_killed", true);
}

#[test]
fn of_a_mount_that_is_shared() {
    work(&["-o", "direct"], "of_a_mount_that_is_shared", false);
}

/// By what a pool comes to its end in which a slot is to be replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Unmounted,
    /// And the same call is made with all slots.
    Killed,
    /// And the same call is made with the directory of the mount whose daemon is dead.
    KilledStillMounted,
    /// And the pool is mounted again.
    KilledMounted,
}

fn kill_daemon(slots: &[&str]) {
    let daemon = daemon(slots);
    kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), Signal::KILL).unwrap();
    assert!(ends(daemon));
}

/// The middle one of three goes at the unmount, for one that came while the pool was in use.
fn replaced(name: &str, end: End) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c", "d"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c, d] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b, c]).ok();
    novale(&["mount", a, b, c, &dir]).ok();
    let (at, is_over) = (scratch.in_dir(""), AtomicBool::new(false));
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&at, &is_over));
        novale(&["slot", "replace", "--size", "8M", b, d, &dir]).refused(1, &["needs at least"]);
        let told = novale(&["slot", "replace", "--size", "40M", b, d, &dir]).ok();
        assert!(told.contains("it takes the place of slot 1"), "{told}");
        // Whatever it is called.
        let link = scratch.slot("link");
        std::os::unix::fs::symlink(d, &link).unwrap();
        let again = novale(&["slot", "replace", b, &link, &dir]).ok();
        assert!(again.contains("it takes the place of slot 1"), "{again}");
        is_over.store(true, Ordering::Release);
        writer.join().unwrap()
    });
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][3]["emptied_for"], 1, "{told}");
    let kept = novale(&["slot", "replace", "--cancel", b, d, &dir]).ok();
    assert!(kept.contains("kept: slot 3"), "{kept}");
    fs::write(at.join("huge"), vec![7; 60 << 20]).unwrap();
    novale(&["slot", "replace", b, d, &dir]).refused(1, &["no room"]);
    fs::remove_file(at.join("huge")).unwrap();
    novale(&["slot", "replace", b, d, &dir]).ok();
    let other = novale(&["slot", "remove", d, &dir]);
    assert!(other.err.contains("slot 1, which was to go, stays now"), "{}", other.err);
    other.ok();
    novale(&["slot", "replace", b, d, &dir]).ok();
    if end != End::Unmounted {
        kill_daemon(&[a, b, c, d]);
    }
    if end == End::KilledStillMounted {
        let done = novale(&["slot", "replace", b, d, &dir]).ok();
        assert!(done.contains("replaced: slot 1 is"), "{done}");
    }
    novale(&["umount", &dir]);
    if end == End::Killed {
        let done = novale(&["slot", "replace", b, d, a, c]).ok();
        assert!(done.contains("replaced: slot 1 is"), "{done}");
    }
    if end == End::KilledMounted {
        novale(&["mount", a, b, c, d, &dir]).ok();
    } else {
        novale(&["mount", a, d, c, &dir]).ok();
    }
    let again = novale(&["slot", "replace", b, d, &dir]).ok();
    assert!(again.contains("already done: replaced: slot 1 is"), "{again}");
    fs::write(at.join("large"), vec![7; 40 << 20]).unwrap();
    judge(&at, &rounds);
    let told = slots_of(&scratch);
    assert_eq!(told["slots"].as_array().unwrap().len(), 3, "{told}");
    assert_eq!(told["slots"][1]["path"], d, "{told}");
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, d, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
    // It is no slot any more.
    novale(&["slot", "add", "--force", b, a, d, c]).ok();
}

#[test]
fn one_takes_the_place_of_another_at_the_unmount() {
    replaced("one_takes_the_place_of_another_at_the_unmount", End::Unmounted);
}

#[test]
fn or_by_the_same_call_where_the_daemon_was_killed() {
    replaced("or_by_the_same_call_where_the_daemon_was_killed", End::Killed);
}

#[test]
fn also_beside_its_dead_mount() {
    replaced("also_beside_its_dead_mount", End::KilledStillMounted);
}

#[test]
fn or_with_the_next_mount() {
    replaced("or_with_the_next_mount", End::KilledMounted);
}

/// The new one's path was counted in the place of the old one's. Where the daemon died before the old one went, no mount
/// had room for the pool's slots.
#[test]
fn the_paths_of_both_have_room_in_a_mount() {
    let Some(scratch) = Scratch::for_mount("the_paths_of_both_have_room_in_a_mount") else {
        return;
    };
    let _alone = alone();
    let (top, dir) = (PathBuf::from(scratch.slot("top")), scratch.dir());
    let folder = [200; 3].iter().fold(top, |folder, len| folder.join("x".repeat(*len)));
    fs::create_dir_all(&folder).unwrap();
    let slots = ["a", "b", "c", "d", "e", "f", "g"].map(|slot| folder.join(slot));
    let [pool @ .., new] = slots.each_ref().map(|slot| slot.to_str().unwrap());
    novale(&[&["mkfs", "--size", "2M", "--quiet"], &pool[..]].concat()).ok();
    novale(&[&["mount"], &pool[..], &[&*dir]].concat()).ok();
    let replaced = novale(&["slot", "replace", "--size", "2M", pool[2], new, &dir]);
    replaced.refused(1, &["paths of the 7 slots", "shorter"]);
    assert!(!Path::new(new).exists());
    novale(&["umount", &dir]).ok();
    fs::remove_dir_all(folder.ancestors().nth(2).unwrap()).unwrap();
}

/// The new slot was one as the others first: a writer filled it, then it could not be emptied, and the pool had one
/// slot more, full. A daemon that died in between left the same, and the same call was refused. From the moment when
/// the pool has it no page is taken there.
#[test]
fn a_full_pool_gets_no_slot_more() {
    let Some(scratch) = Scratch::for_mount("a_full_pool_gets_no_slot_more") else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", a, b, &dir]).ok();
    let (at, is_over) = (scratch.in_dir(""), AtomicBool::new(false));
    let fill = || {
        let names = 0..;
        let write = |number: &u32| fs::write(at.join(format!("fill{number}")), vec![5; 1 << 19]);
        names.take_while(|number| write(number).is_ok()).count()
    };
    assert!(fill() > 40);
    thread::scope(|scope| {
        // All that is free is taken at once.
        let writer = scope.spawn(|| {
            let mut turn = 0_u64;
            while !is_over.load(Ordering::Acquire) {
                turn += 1;
                let _full = fs::write(at.join(format!("more{}", turn % 64)), vec![6; 1 << 16]);
            }
        });
        let told = novale(&["slot", "replace", "--size", "20M", b, c, &dir]).ok();
        assert!(told.contains("it takes the place of slot 1"), "{told}");
        is_over.store(true, Ordering::Release);
        writer.join().unwrap();
    });
    fill();
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][2]["emptied_for"], 1, "{told}");
    assert_eq!(told["slots"][2]["emptying"]["state"], "emptied", "{told}");
    assert_eq!(told["slots"][2]["emptying"]["pages_left"], 0, "{told}");
    kill_daemon(&[a, b, c]);
    novale(&["umount", &dir]);
    let done = novale(&["slot", "replace", b, c, a]).ok();
    assert!(done.contains("replaced: slot 1 is"), "{done}");
    novale(&["mount", a, c, &dir]).ok();
    assert!(fs::read(at.join("fill1")).unwrap() == vec![5; 1 << 19]);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// A copy of a slot is as long as the slot, has its name and its place, and nothing says that it came for another.
#[test]
fn a_copy_of_a_slot_takes_no_place() {
    let _alone = alone();
    let scratch = Scratch::new();
    let slots = ["a", "b", "c", "d"].map(|name| scratch.slot(name));
    let [a, b, c, d] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b, c]).ok();
    fs::copy(c, d).unwrap();
    for others in [&[a, c][..], &[a], &[a, b, c]] {
        let told = novale(&[&["slot", "replace", "--force", b, d], others].concat());
        assert_eq!((told.code, told.out.as_str()), (1, ""), "{others:?}: {}", told.err);
    }
    let checked = novale(&["check", a, b, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// The second one was refused, since it had looked at the pool's slots before, or its own mount did not know of the
/// other one's slot yet: by words that are of a pool of which a slot is missing, or that is not mounted.
#[test]
fn two_are_added_at_once_through_two_mounts() {
    let mounts = [0; 2].map(|_| Scratch::for_mount("two_are_added_at_once_through_two_mounts"));
    let [Some(scratch), Some(second)] = mounts else { return };
    let _alone = alone();
    let (slots, dirs) = (["a", "b"].map(|name| scratch.slot(name)), [scratch.dir(), second.dir()]);
    let [a, b] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    let daemons = dirs.each_ref().map(|dir| Daemon::start("direct", &[a, b], dir));
    let mut has = vec![a.to_owned(), b.to_owned()];
    for turn in 0..2 {
        let new = [0, 1].map(|mount| scratch.slot(&format!("new{turn}{mount}")));
        thread::scope(|scope| {
            let add = |(new, dir): (&String, &String)| {
                let (new, dir) = (new.clone(), dir.clone());
                move || novale(&["slot", "add", "--size", "8M", &new, &dir])
            };
            let added: Vec<_> = new.iter().zip(&dirs).map(|pair| scope.spawn(add(pair))).collect();
            for added in added {
                added.join().unwrap().ok();
            }
        });
        has.extend(new);
        let told = slots_of(&scratch);
        let paths = told["slots"].as_array().unwrap().iter();
        let mut paths: Vec<&str> = paths.map(|slot| slot["path"].as_str().unwrap()).collect();
        paths.sort_unstable();
        assert_eq!(paths, has, "{told}");
    }
    for daemon in daemons {
        daemon.umount();
    }
    let slots: Vec<&str> = has.iter().map(String::as_str).collect();
    let checked = novale(&[&["check"], &slots[..]].concat()).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

const ROUND: usize = 45 << 16;

/// A program that uses the pool directly, and writes to a file what it is fed.
struct Direct {
    child: Child,
    rounds: usize,
}

impl Direct {
    fn start(scratch: &Scratch, name: &str) -> Self {
        let file = format!("of={}", scratch.in_dir(name).display());
        let child = Command::new(program())
            .args(["run", "--strict", "dd", &file, "bs=65536", "iflag=fullblock", "status=none"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, rounds: 0 }
    }

    fn feed(&mut self) {
        self.rounds += 1;
        let bytes = vec![u8::try_from(self.rounds).unwrap(); ROUND];
        self.child.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    /// What the file has when all was written.
    fn fed(&self) -> Vec<u8> {
        (1..=self.rounds).flat_map(|round| vec![u8::try_from(round).unwrap(); ROUND]).collect()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Who is killed when the slot is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Killed {
    Nobody,
    Writer,
    Daemon,
}

/// Programs that use the pool directly go on while it gets a slot, and fill that.
fn beside_programs(name: &str, killed: Killed) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", "-o", "direct", a, b, &dir]).ok();
    let [mut one, mut two] = ["one", "two"].map(|name| Direct::start(&scratch, name));
    let pool = Pool::open(&[a, b]).unwrap();
    let has = |writer: &Direct, name: &str| {
        let fed = writer.fed();
        eventually(|| pool.read_file(name).is_ok_and(|found| found == fed))
    };
    for round in 0..7 {
        one.feed();
        two.feed();
        if round == 1 {
            // They are in the middle of their writes.
            let added = novale(&["slot", "add", "--size", "64M", c, &dir]).ok();
            assert!(added.contains("added: slot 2 is"), "{added}");
        }
    }
    pool.write_file("/mine", &vec![5; 100_000]).unwrap();
    assert!(has(&one, "/one") && has(&two, "/two"));
    let told = slots_of(&scratch);
    assert!(told["slots"][2]["bytes_used"].as_u64().unwrap() > 10 << 20, "{told}");
    let at = scratch.in_dir("");
    assert!(fs::read(at.join("one")).unwrap() == one.fed());
    match killed {
        Killed::Nobody => {}
        Killed::Writer => one.child.kill().unwrap(),
        Killed::Daemon => kill_daemon(&[a, b, c]),
    }
    two.feed();
    assert!(has(&two, "/two"));
    let fed = [one.fed(), two.fed()];
    if killed == Killed::Writer {
        assert!(!one.child.wait().unwrap().success());
    } else {
        one.end();
    }
    two.end();
    pool.close().unwrap();
    novale(&["umount", &dir]);
    novale(&["mount", a, b, &dir]).refused(1, &["missing: slot 2"]);
    novale(&["mount", a, b, c, &dir]).ok();
    for (name, fed) in ["one", "two"].into_iter().zip(fed) {
        assert!(fs::read(at.join(name)).unwrap() == fed, "{name}");
    }
    assert!(fs::read(at.join("mine")).unwrap() == vec![5; 100_000]);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, b, c]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

#[test]
fn programs_that_use_the_pool_directly_go_on_in_it() {
    beside_programs("programs_that_use_the_pool_directly_go_on_in_it", Killed::Nobody);
}

#[test]
fn also_when_one_of_them_is_killed() {
    beside_programs("also_when_one_of_them_is_killed", Killed::Writer);
}

#[test]
fn also_when_the_daemon_is_killed() {
    beside_programs("also_when_the_daemon_is_killed", Killed::Daemon);
}

/// Both daemons heard what was asked, and the one that came later said that the slot was refused: the command took
/// back what the pool had.
#[test]
fn one_of_two_mounts_adds_it() {
    let Some(scratch) = Scratch::for_mount("one_of_two_mounts_adds_it") else { return };
    let _alone = alone();
    let (dir, second) = (scratch.dir(), scratch.slot("second"));
    fs::create_dir(&second).unwrap();
    let slots = ["a", "b", "c", "d", "e"].map(|name| scratch.slot(name));
    let all: Vec<&str> = slots.iter().map(String::as_str).collect();
    novale(&["mkfs", "--size", "16M", all[0]]).ok();
    let daemons = [&dir, &second].map(|at| Daemon::start("direct", &all[..1], at));
    for slot in &all[1..] {
        let added = novale(&["slot", "add", "--size", "16M", slot, &dir]).ok();
        assert!(added.contains("added: slot"), "{added}");
        let file = Path::new(&second).join(Path::new(slot).file_name().unwrap());
        fs::write(file, vec![7; 10 << 20]).unwrap();
    }
    let told = slots_of(&scratch);
    assert_eq!(told["slots"].as_array().unwrap().len(), 5, "{told}");
    for daemon in daemons {
        daemon.umount();
    }
    novale(&[&["mount"], &all[..], &[&dir]].concat()).ok();
    for slot in &all[1..] {
        let file = scratch.in_dir("").join(Path::new(slot).file_name().unwrap());
        assert!(fs::read(file).unwrap() == vec![7; 10 << 20]);
    }
    novale(&["umount", &dir]).ok();
    let checked = novale(&[&["check"], &all[..]].concat()).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// One that has not a descriptor left can't open it, whatever else it may.
#[test]
fn a_program_that_could_not_open_it_keeps_it_away() {
    let name = "a_program_that_could_not_open_it_keeps_it_away";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", "-o", "direct", a, b, &dir]).ok();
    let mut writer = Direct::start(&scratch, "one");
    let file = scratch.in_dir("one");
    let has = |writer: &Direct| {
        let fed = writer.fed();
        eventually(|| fs::read(&file).is_ok_and(|found| found == fed))
    };
    writer.feed();
    assert!(has(&writer));
    let process = Pid::from_raw(i32::try_from(writer.child.id()).unwrap()).unwrap();
    let limit = |current| {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        prlimit(Some(process), Resource::Nofile, Rlimit { current, maximum }).unwrap()
    };
    let before = limit(Some(4));
    let said = format!("process {} (dd) has no descriptor left", writer.child.id());
    novale(&["slot", "add", "--size", "16M", c, &dir]).refused(1, &["busy", &said]);
    assert!(!Path::new(c).exists());
    limit(before.current);
    novale(&["slot", "add", "--size", "16M", c, &dir]).ok();
    writer.feed();
    assert!(has(&writer));
    writer.end();
    novale(&["umount", &dir]).ok();
}

#[test]
fn who_comes_later_has_it() {
    let Some(scratch) = Scratch::for_mount("who_comes_later_has_it") else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", "-o", "direct", a, b, &dir]).ok();
    // A shell is told the slots that there are when it begins, and what it runs later by its environment.
    let shell = format!("read line && exec cp {0}file {0}as-told", scratch.in_dir("").display());
    let mut shell = Command::new(program())
        .args(["run", "--strict", "sh", "-c", &shell])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let runs = || fs::read_to_string(format!("/proc/{}/comm", shell.id())).unwrap();
    while runs() != "sh\n" {
        thread::yield_now();
    }
    novale(&["slot", "add", "--size", "16M", c, &dir]).ok();
    // One that comes now has it, named by all slots or served by the mount.
    fs::write(scratch.in_dir("file"), vec![3; 20 << 20]).unwrap();
    let pool = Pool::open(&[a, b, c]).unwrap();
    assert!(pool.read_file("/file").unwrap() == vec![3; 20 << 20]);
    pool.close().unwrap();
    shell.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(shell.wait().unwrap().success());
    assert!(fs::read(scratch.in_dir("as-told")).unwrap() == vec![3; 20 << 20]);
    fs::remove_file(scratch.in_dir("as-told")).unwrap();
    let copy = scratch.in_dir("copy").display().to_string();
    let file = scratch.in_dir("file").display().to_string();
    novale(&["run", "--strict", "cp", &file, &copy]).ok();
    assert!(fs::read(&copy).unwrap() == vec![3; 20 << 20]);
    // Behind a slot that leaves none can come.
    fs::remove_file(&copy).unwrap();
    fs::remove_file(&file).unwrap();
    novale(&["slot", "remove", c, &dir]).ok();
    let d = scratch.slot("d");
    novale(&["slot", "add", "--size", "16M", &d, &dir]).refused(1, &["slot 2 is leaving"]);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", a, b]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// What the daemon could not add was left as a file that waits for a place, and a mount that is read-only since it
/// began was given slots.
#[test]
fn what_can_not_be_added_leaves_nothing() {
    let Some(scratch) = Scratch::for_mount("what_can_not_be_added_leaves_nothing") else { return };
    let _alone = alone();
    let slots = ["a", "b", "c", "d", "e", "f"].map(|name| scratch.slot(name));
    let [a, .., last] = slots.each_ref().map(String::as_str);
    let dir = scratch.dir();
    novale(&["mkfs", "--size", "16M", a]).ok();
    for options in [&["ro", a][..], &["remount,ro"]] {
        novale(&[&["mount", "-o"], options, &[dir.as_str()]].concat()).ok();
        novale(&["slot", "add", "--size", "16M", last, &dir]).refused(1, &["read-only"]);
        assert!(!Path::new(last).exists());
        novale(&["umount", &dir]).ok();
        novale(&["mount", a, &dir]).ok();
    }
    // A pool that has a slot in itself can neither be unmounted nor mounted again.
    let own = scratch.in_dir("own").display().to_string();
    novale(&["slot", "add", "--size", "2M", &own, &dir]).refused(1, &["in the pool itself"]);
    assert!(!Path::new(&own).exists());
    for slot in &slots[1..5] {
        novale(&["slot", "add", "--size", "2M", slot, &dir]).ok();
    }
    novale(&["slot", "add", "--size", "2M", last, &dir]).refused(1, &["as many slots were added"]);
    assert!(!Path::new(last).exists());
    novale(&["umount", &dir]).ok();
    let all: Vec<&str> = slots[..5].iter().map(String::as_str).collect();
    novale(&[&["mount"], &all[..], &[&dir]].concat()).ok();
    novale(&["slot", "add", "--size", "2M", last, &dir]).ok();
    novale(&["mount", "-o", "remount,ro", &dir]).ok();
    for ask in [&["remove", last][..], &["remove", "--cancel", last], &["replace", a, last]] {
        novale(&[&["slot"], ask, &[&dir]].concat()).refused(1, &["read-only"]);
    }
    novale(&["umount", &dir]).ok();
}

/// The second one's ask took the place of the first one's, which was never heard of again: its file was left
/// waiting for a place.
#[test]
fn two_that_come_at_once_leave_nothing_that_waits() {
    let name = "two_that_come_at_once_leave_nothing_that_waits";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let slots = ["a", "b", "c", "d", "e"].map(|name| scratch.slot(name));
    let (a, dir) = (slots[0].as_str(), scratch.dir());
    novale(&["mkfs", "--size", "16M", a]).ok();
    novale(&["mount", a, &dir]).ok();
    // Nobody is heard before all of them wait for a place.
    let asked = File::open(&arenas(a)[0]).unwrap();
    flock(&asked, FlockOperation::LockExclusive).unwrap();
    let waits = |slot: &String| fs::read(slot).is_ok_and(|slot| slot.iter().any(|byte| *byte != 0));
    let done: Vec<Outcome> = thread::scope(|scope| {
        let add = |slot: &'static str| {
            let slot = scratch.slot(slot);
            // By the directory each of them would be added anew.
            scope.spawn(move || novale(&["slot", "add", "--size", "2M", &slot, a]))
        };
        let threads = ["b", "c", "d", "e"].map(add);
        assert!(eventually(|| slots[1..].iter().all(waits)));
        flock(&asked, FlockOperation::Unlock).unwrap();
        threads.map(|thread| thread.join().unwrap()).into_iter().collect()
    });
    let lost = done.iter().filter(|done| done.code != 0);
    let is_told = |done: &Outcome| done.err.contains("another slot was added to the pool");
    assert!(
        lost.clone().count() == 3 && lost.clone().all(is_told),
        "{:?}",
        lost.map(|of| &of.err).collect::<Vec<_>>()
    );
    let done: Vec<i32> = done.iter().map(|done| done.code).collect();
    let told = slots_of(&scratch);
    let there =
        |path: &str| told["slots"].as_array().unwrap().iter().any(|slot| slot["path"] == path);
    assert!(done.contains(&0), "{done:?}");
    for (slot, code) in slots[1..].iter().zip(&done) {
        let is_there = there(slot);
        assert_eq!((Path::new(slot).exists(), *code == 0), (is_there, is_there), "{slot}: {told}");
    }
    novale(&["umount", &dir]).ok();
}

#[test]
fn one_comes_whatever_its_name() {
    let Some(scratch) = Scratch::for_mount("one_comes_whatever_its_name") else { return };
    let _alone = alone();
    let (a, dir) = (scratch.slot("a"), scratch.dir());
    let b = Path::new(&a).with_file_name(OsStr::from_bytes(b"b\xff"));
    let missing = scratch.slot("missing");
    novale(&["mkfs", "--size", "16M", &a]).ok();
    novale(&["mount", &a, &dir]).ok();
    let arguments = ["slot", "add", "--size", "16M"].map(OsStr::new);
    novale(&[&arguments[..], &[b.as_os_str(), OsStr::new(&dir)]].concat()).ok();
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][1]["state"], "ok", "{told}");
    // More is free than the slot has that is named here.
    let told = novale(&["info", &a]).ok();
    let free = told.lines().find(|line| line.starts_with("free")).unwrap();
    assert!(!free.contains(" of "), "{told}");
    novale(&["umount", &dir]).ok();
    let told = novale(&["slot", "status", &a, &missing]).ok();
    assert!(told.contains("missing: it is not there"), "{told}");
}

#[test]
fn where_the_daemon_dies_meanwhile_it_is_said_how_to_go_on() {
    let name = "where_the_daemon_dies_meanwhile_it_is_said_how_to_go_on";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a]).ok();
    novale(&["mount", a, &dir]).ok();
    let process = i32::try_from(daemon(&[a])).unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::STOP).unwrap();
    thread::scope(|scope| {
        let asks = scope.spawn(|| novale(&["slot", "add", "--size", "16M", b, &dir]));
        // It has found the mount by then.
        while !Path::new(b).exists() {
            thread::yield_now();
        }
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        asks.join().unwrap().refused(1, &["the mount has ended meanwhile", "the same call"]);
    });
    novale(&["umount", &dir]);
    novale(&["slot", "add", b, a]).ok();
    let checked = novale(&["check", a, b]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// The slot was asked for on, of a daemon that went on once nobody waited for it any more.
#[test]
fn what_a_command_has_given_up_does_not_come_later() {
    let Some(scratch) = Scratch::for_mount("what_a_command_has_given_up") else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a]).ok();
    novale(&["mount", a, &dir]).ok();
    let stopped = Stopped::daemon_of(a);
    novale(&["slot", "add", "--size", "16M", b, &dir]).refused(1, &["does not begin"]);
    assert!(!Path::new(b).exists());
    drop(stopped);
    novale(&["slot", "add", "--size", "16M", c, &dir]).ok();
    novale(&["umount", &dir]).ok();
    novale(&["check", a, c]).ok();
}

#[test]
fn beside_a_slot_that_has_failed_none_comes() {
    let Some(scratch) = Scratch::for_mount("beside_a_slot_that_has_failed_none_comes") else {
        return;
    };
    let _alone = alone();
    let (slots, dir) = (["a", "b", "c"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b, c] = slots.each_ref().map(String::as_str);
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", a, b, &dir]).ok();
    fs::write(scratch.in_dir("large"), vec![7; 20 << 20]).unwrap();
    fs::OpenOptions::new().write(true).open(b).unwrap().set_len(8192).unwrap();
    fs::read(scratch.in_dir("large")).unwrap_err();
    novale(&["slot", "add", "--size", "16M", c, &dir]).refused(1, &["has failed", b]);
    assert!(!Path::new(c).exists());
}
