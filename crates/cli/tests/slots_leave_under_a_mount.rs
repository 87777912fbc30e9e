//! Promise: `novale slot remove` of a mounted pool empties the slot beside a program that writes, goes on behind
//! a daemon that was killed, and is taken back when asked; the slot goes once the pool is unmounted, or with the
//! next mount where the daemon was killed. What was acknowledged is there all the while.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use novale_posix::{OpenOptions, Pool};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Scratch, alone, ends, eventually, novale};

const FILES: usize = 40;

fn bytes(number: usize, round: usize) -> Vec<u8> {
    vec![u8::try_from((number + round) % 250).unwrap() + 1; 30_000 + number * 5000]
}

/// What a program wrote, as far as it was told: of each file the round that is whole, and the one begun.
struct Ledger([(usize, usize); FILES]);

impl Ledger {
    /// Writes files anew in turn until it is over, or the mount is dead; each write of a file is whole.
    fn write(&mut self, dir: &Path, is_over: &AtomicBool) {
        for turn in 0.. {
            let number = turn % FILES;
            let (_, begun) = &mut self.0[number];
            *begun += 1;
            let round = *begun;
            if fs::write(dir.join("new"), bytes(number, round)).is_err()
                || fs::rename(dir.join("new"), dir.join(number.to_string())).is_err()
            {
                return;
            }
            self.0[number].0 = round;
            if turn >= FILES && is_over.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn judge(&mut self, dir: &Path) {
        for (number, (whole, begun)) in self.0.iter_mut().enumerate() {
            let found = fs::read(dir.join(number.to_string())).unwrap();
            let round = [*whole, *begun].into_iter().find(|round| found == bytes(number, *round));
            assert!(round.is_some(), "file {number} is not as in round {whole} or {begun}");
            (*whole, *begun) = (round.unwrap(), *begun);
        }
    }
}

fn slots_of(scratch: &Scratch) -> Value {
    serde_json::from_str(&novale(&["slot", "status", "--json", &scratch.dir()]).ok()).unwrap()
}

/// As the mount was asked for, by who goes on and by who is asked.
fn goes_at_the_mounts_pace(scratch: &Scratch, old: &str) {
    assert_eq!(slots_of(scratch)["slots"][2]["emptying"]["pace"], 2);
    novale(&["slot", "remove", "--no-wait", old, &scratch.dir()]).ok();
    assert_eq!(slots_of(scratch)["slots"][2]["emptying"]["pace"], 2);
}

fn work(mount: &[&str], name: &str, goes: usize) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let slots = ["a", "b", "c"].map(|name| scratch.slot(name));
    let ([a, b, c], dir, old) = (&slots, scratch.dir(), &slots[goes]);
    let left: Vec<&String> = slots.iter().filter(|slot| *slot != old).collect();
    let [first, second] = [left[0], left[1]];
    novale(&["mkfs", "--size", "16M", a, b, c]).ok();
    let mount = [mount, &[a, b, c, &dir]].concat();
    novale(&mount).ok();
    let mut ledger = Ledger([(0, 0); FILES]);
    let at = scratch.in_dir("");
    ledger.write(&at, &AtomicBool::new(true));
    let is_over = AtomicBool::new(false);
    // The daemon is killed in the midst of it.
    thread::scope(|scope| {
        scope.spawn(|| ledger.write(&at, &is_over));
        let begun = novale(&["slot", "remove", "--no-wait", "--pace", "1", old, &dir]).ok();
        assert!(begun.contains("begun: slot 2"), "{begun}");
        let moved = || slots_of(&scratch)["slots"][2]["emptying"]["pages_moved"].as_u64();
        assert!(eventually(|| moved().is_some_and(|moved| moved > 0)));
        let told = slots_of(&scratch);
        assert_eq!(told["slots"][2]["state"], "leaving", "{told}");
        assert_eq!(told["slots"][2]["emptying"]["state"], "moving", "{told}");
        assert_eq!(told["slots"][2]["emptying"]["pace"], 1, "{told}");
        let shown = novale(&["slot", "status", &dir]).ok();
        assert!(shown.contains("left, 1 a second at most"), "{shown}");
        let told: Value = serde_json::from_str(&novale(&["info", "--json", a, b, c]).ok()).unwrap();
        let daemon = told["used_by"].as_u64().unwrap();
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), Signal::KILL).unwrap();
        assert!(ends(daemon));
    });
    novale(&["umount", &dir]);
    let slow = [&mount[..], &["-o", "pace=8K"]].concat();
    novale(&slow).ok();
    ledger.judge(&at);
    goes_at_the_mounts_pace(&scratch, old);
    // The next one goes on by itself, and the same call waits for it.
    thread::scope(|scope| {
        scope.spawn(|| ledger.write(&at, &is_over));
        let emptied = novale(&["slot", "remove", "--pace", "0", old, first, second]).ok();
        assert!(emptied.contains("emptied: slot 2"), "{emptied}");
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(slots_of(&scratch)["slots"][2]["emptying"]["state"], "emptied");
    let kept = novale(&["slot", "remove", "--cancel", old, &dir]).ok();
    assert!(kept.contains("kept: slot 2"), "{kept}");
    assert_eq!(slots_of(&scratch)["slots"][2]["state"], "ok");
    let emptied = novale(&["slot", "remove", "--json", old, &dir]).ok();
    let emptied: Value = serde_json::from_str(&emptied).unwrap();
    assert_eq!((&emptied["done"], &emptied["slot"]), (&"emptied".into(), &2.into()));
    ledger.judge(&at);
    let told = slots_of(&scratch);
    assert_eq!(told["slots"][2]["emptied_for"], goes, "{told}");
    if mount.contains(&"direct") {
        kill(daemon_of(&slots));
        novale(&["umount", &dir]);
        let told = novale(&["slot", "status", a, b, c]).ok();
        assert!(told.contains("goes with the next mount"), "{told}");
    } else {
        novale(&["umount", &dir]).ok();
        let checked = novale(&["check", first, second]).ok();
        assert!(checked.contains("no errors"), "{checked}");
    }
    // As an fstab says it that nobody has changed.
    novale(&mount).ok();
    ledger.judge(&at);
    assert_eq!(slots_of(&scratch)["slots"].as_array().unwrap().len(), 2);
    novale(&["umount", &dir]).ok();
    let checked = novale(&["check", first, second]).ok();
    assert!(checked.contains("no errors"), "{checked}");
}

/// Who serves the pool.
/// Until it is gone others see the pool in use.
fn kill(daemon: Pid) {
    kill_process(daemon, Signal::KILL).unwrap();
    assert!(ends(daemon.as_raw_nonzero().get().unsigned_abs().into()));
}

fn daemon_of(slots: &[String]) -> Pid {
    let paths = slots.iter().map(String::as_str);
    let told = novale(&["info", "--json"].into_iter().chain(paths).collect::<Vec<_>>()).ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    Pid::from_raw(i32::try_from(told["used_by"].as_i64().unwrap()).unwrap()).unwrap()
}

#[test]
fn a_writer_misses_nothing() {
    work(&["mount"], "a_writer_misses_nothing", 2);
}

#[test]
fn nor_beside_direct_clients() {
    work(&["mount", "-o", "direct"], "nor_beside_direct_clients", 1);
}

/// The status said how many files are mapped, and neither which nor by whom.
#[test]
fn files_that_a_slot_waits_for_are_named() {
    let name = "files_that_a_slot_waits_for_are_named";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let ([a, b], dir) = (["a", "b"].map(|name| scratch.slot(name)), scratch.dir());
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    novale(&["mount", "-o", "direct", &a, &b, &dir]).ok();
    fs::create_dir(scratch.in_dir("folder")).unwrap();
    let paths: Vec<_> = (0..8).map(|of| scratch.in_dir(&format!("folder/{of}"))).collect();
    for path in &paths {
        fs::write(path, vec![7; 500_000]).unwrap();
    }
    let pool = Pool::open(&[&a, &b]).unwrap();
    let how = OpenOptions::new().read(true).write(true);
    let open = |number: usize| pool.open_file(format!("/folder/{number}"), &how).unwrap();
    let map = |number: usize| open(number).map(0, 500_000).unwrap();
    let maps: Vec<_> = (0..8).map(map).collect();
    let said = novale(&["slot", "remove", &b, &dir]).ok();
    assert!(said.contains("`novale slot status` names them"), "{said}");
    let told = slots_of(&scratch)["slots"][1]["emptying"].clone();
    let files = told["waits_for"].as_array().unwrap();
    assert!(!files.is_empty() && told["files_mapped"] == files.len(), "{told}");
    let shown = novale(&["slot", "status", &a, &b]).ok();
    for file in files {
        let path = Path::new(file["path"].as_str().unwrap());
        assert_eq!(path.metadata().unwrap().ino(), file["inode"].as_u64().unwrap(), "{told}");
        assert!(paths.iter().any(|mapped| mapped == path), "{told}");
        assert_eq!(file["processes"], serde_json::json!([std::process::id()]), "{told}");
        let line =
            format!("waits for {}, mapped by process {}", path.display(), std::process::id());
        assert!(shown.contains(&line), "{shown}");
    }
    let gone = Path::new(files[0]["path"].as_str().unwrap());
    fs::remove_file(gone).unwrap();
    let shown = novale(&["slot", "status", &a, &b]).ok();
    let line = format!("waits for inode {}, mapped", files[0]["inode"]);
    assert!(shown.contains(&line), "{shown}");
    drop(maps);
    let told = slots_of(&scratch);
    assert!(told["slots"][1]["emptying"]["waits_for"].is_null(), "{told}");
    pool.close().unwrap();
    novale(&["umount", &dir]).ok();
}

#[test]
fn what_can_not_leave_is_said() {
    let Some(scratch) = Scratch::for_mount("what_can_not_leave_is_said") else { return };
    let _alone = alone();
    let ([a, b], dir) = (["a", "b"].map(|name| scratch.slot(name)), scratch.dir());
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    novale(&["mount", &a, &b, &dir]).ok();
    fs::write(scratch.in_dir("large"), vec![1; 22 << 20]).unwrap();
    novale(&["slot", "remove", &b, &dir]).refused(1, &["slot 1 stays", "no room"]);
    assert_eq!(slots_of(&scratch)["slots"][1]["state"], "ok");
    fs::remove_file(scratch.in_dir("large")).unwrap();
    novale(&["slot", "remove", &b, &dir]).ok();
    novale(&["slot", "remove", "--cancel", &b, &dir]).ok();
    novale(&["umount", &dir]).ok();
    novale(&["mount", "-o", "ro", &a, &b, &dir]).ok();
    novale(&["slot", "remove", &b, &dir]).refused(1, &["read-only"]);
    novale(&["umount", &dir]).ok();
}

/// A command that waits for the daemon has nothing of the mount open, and is told of its end.
#[test]
fn a_command_that_waits_keeps_no_mount_busy() {
    let name = "a_command_that_waits_keeps_no_mount_busy";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let ([a, b], dir) = (["a", "b"].map(|name| scratch.slot(name)), scratch.dir());
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    novale(&["mount", &a, &b, &dir]).ok();
    fs::write(scratch.in_dir("large"), vec![1; 8 << 20]).unwrap();
    thread::scope(|scope| {
        let emptied = scope.spawn(|| novale(&["slot", "remove", "--pace", "1", &b, &dir]));
        let state = || slots_of(&scratch)["slots"][1]["emptying"]["state"] == "moving";
        assert!(eventually(state));
        let unmounted = novale(&["umount", &dir]);
        emptied.join().unwrap().refused(1, &["not in use any more", "the next mount"]);
        unmounted.ok();
    });
}

/// Whether somebody waits for a process to end, by its handle. Who has the handle may still look what the process is.
fn is_waited_for(pid: u32) -> bool {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let tells =
        |path: &Path, what: &str| fs::read_to_string(path).is_ok_and(|it| it.contains(what));
    let line = format!("Pid:\t{pid}\n");
    entries(Path::new("/proc")).any(|process| {
        tells(&process.path().join("wchan"), "poll")
            && entries(&process.path().join("fdinfo")).any(|handle| tells(&handle.path(), &line))
    })
}

/// The taking out is nobody's call: it must not change a pool to which another user's link has come to lead.
#[test]
fn no_slot_is_taken_out_that_another_users_link_leads_to() {
    let name = "no_slot_is_taken_out_that_another_users_link_leads_to";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b] = &slots;
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", a, b, &dir]).ok();
    novale(&["slot", "remove", b, &dir]).ok();
    let daemon = daemon_of(&slots);
    kill_process(daemon, Signal::KILL).unwrap();
    assert!(ends(u64::try_from(daemon.as_raw_nonzero().get()).unwrap()));
    novale(&["umount", &dir]);
    let before = slots.clone().map(|slot| fs::read(slot).unwrap());
    let [la, lb] = ["la", "lb"].map(|name| scratch.slot(name));
    for (slot, link) in [(a, &la), (b, &lb)] {
        symlink(slot, link).unwrap();
        lchown(link, Some(65534), Some(65534)).unwrap();
    }
    novale(&["slot", "finish", &la, &lb]).refused(1, &["symbolic link of another user's"]);
    assert!(slots.clone().map(|slot| fs::read(slot).unwrap()) == before);
    novale(&["slot", "finish", a, b]).ok();
    novale(&["check", a]).ok();
}

/// It was "not mounted", and what came next found the slot being taken out.
#[test]
fn another_unmount_waits_for_it_too() {
    let Some(scratch) = Scratch::for_mount("another_unmount_waits_for_it_too") else { return };
    let _alone = alone();
    // A process as it is seen while it takes its time.
    let (own, dir) = (scratch.slot("novale"), scratch.dir());
    // By a process of its own: what another test starts meanwhile would have it open for writing.
    assert!(Command::new("cp").args(["-L", "/bin/sh", &own]).status().unwrap().success());
    fs::write(scratch.slot("slot"), "echo begun; read -r end").unwrap();
    let mut it = Command::new(&own);
    it.args(["slot", "finish", "--of", &dir, "--", "a"])
        .current_dir(Path::new(&own).parent().unwrap());
    let mut it = it.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    it.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    thread::scope(|scope| {
        let unmounted = scope.spawn(|| novale(&["umount", &dir]));
        let is_waited_for = eventually(|| is_waited_for(it.id()));
        drop(it.stdin.take());
        it.wait().unwrap();
        unmounted.join().unwrap().ok();
        assert!(is_waited_for);
    });
}

/// A mount beside a daemon that takes the slot out, which may take its time, found a pool that was changed in
/// part, or left the slot where it was.
#[test]
fn a_mount_waits_for_the_one_who_takes_it_out() {
    let name = "a_mount_waits_for_the_one_who_takes_it_out";
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let (slots, dir) = (["a", "b"].map(|name| scratch.slot(name)), scratch.dir());
    let [a, b] = &slots;
    novale(&["mkfs", "--size", "16M", a, b]).ok();
    novale(&["mount", a, b, &dir]).ok();
    novale(&["slot", "remove", b, &dir]).ok();
    let daemon = daemon_of(&slots);
    kill_process(daemon, Signal::KILL).unwrap();
    assert!(ends(u64::try_from(daemon.as_raw_nonzero().get()).unwrap()));
    novale(&["umount", &dir]);
    let mut other = Command::new("flock");
    other.args([a, "sh", "-c", "echo locked; read -r end"]).stdin(Stdio::piped());
    let mut other = other.stdout(Stdio::piped()).spawn().unwrap();
    other.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    thread::scope(|scope| {
        let mounted = scope.spawn(|| novale(&["mount", a, b, &dir]));
        let is_waited_for = eventually(|| is_waited_for(other.id()));
        drop(other.stdin.take());
        other.wait().unwrap();
        mounted.join().unwrap().ok();
        assert!(is_waited_for);
    });
    assert_eq!(slots_of(&scratch)["slots"].as_array().unwrap().len(), 1);
    novale(&["umount", &dir]).ok();
}

/// Nothing changes the pool of a mount that was made read-only: of two that are emptied at the same pace, that one
/// is not at its end when the other is, and goes on when it may be written to again.
#[test]
fn a_mount_that_is_read_only_by_now_is_not_emptied_meanwhile() {
    let name = "a_mount_that_is_read_only_by_now";
    let (Some(held), Some(free)) = (Scratch::for_mount(name), Scratch::for_mount(name)) else {
        return;
    };
    let _alone = alone();
    let state = |scratch: &Scratch| slots_of(scratch)["slots"][1]["emptying"]["state"].clone();
    for (scratch, is_held) in [(&held, true), (&free, false)] {
        let slots = ["a", "b"].map(|name| scratch.slot(name));
        novale(&["mkfs", "--size", "16M", &slots[0], &slots[1]]).ok();
        novale(&["mount", "-o", "pace=256K", &slots[0], &slots[1], &scratch.dir()]).ok();
        for file in 0..8 {
            fs::write(scratch.in_dir(&file.to_string()), vec![file; 500_000]).unwrap();
        }
        novale(&["slot", "remove", "--no-wait", &slots[1], &scratch.dir()]).ok();
        if is_held {
            novale(&["mount", "-o", "remount,ro", &held.dir()]).ok();
        }
    }
    assert!(eventually(|| state(&free) == "emptied"));
    assert_eq!(state(&held), "moving");
    novale(&["mount", "-o", "remount,rw", &held.dir()]).ok();
    assert!(eventually(|| state(&held) == "emptied"));
    for scratch in [held, free] {
        assert!((0..8).all(|file| {
            fs::read(scratch.in_dir(&file.to_string())).unwrap() == vec![file; 500_000]
        }));
        novale(&["umount", &scratch.dir()]).ok();
    }
}
