//! Promise: `novale slot remove` of a mounted pool empties the slot beside a program that writes, goes on behind
//! a daemon that was killed, and is taken back when asked; the slot goes once the pool is unmounted. What was
//! acknowledged is there all the while.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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

fn work(mount: &[&str], name: &str) {
    let Some(scratch) = Scratch::for_mount(name) else { return };
    let _alone = alone();
    let [a, b, c] = ["a", "b", "c"].map(|name| scratch.slot(name));
    let dir = scratch.dir();
    novale(&["mkfs", "--size", "16M", &a, &b, &c]).ok();
    let mount = [mount, &[&a, &b, &c, &dir]].concat();
    novale(&mount).ok();
    let mut ledger = Ledger([(0, 0); FILES]);
    let at = scratch.in_dir("");
    ledger.write(&at, &AtomicBool::new(true));
    let is_over = AtomicBool::new(false);
    // The daemon is killed in the midst of it.
    thread::scope(|scope| {
        scope.spawn(|| ledger.write(&at, &is_over));
        let begun = novale(&["slot", "remove", "--no-wait", "--pace", "1", &c, &dir]).ok();
        assert!(begun.contains("begun: slot 2"), "{begun}");
        let moved = || slots_of(&scratch)["slots"][2]["emptying"]["pages_moved"].as_u64();
        assert!(eventually(|| moved().is_some_and(|moved| moved > 0)));
        let told = slots_of(&scratch);
        assert_eq!(told["slots"][2]["state"], "leaving", "{told}");
        assert_eq!(told["slots"][2]["emptying"]["state"], "moving", "{told}");
        let told: Value =
            serde_json::from_str(&novale(&["info", "--json", &a, &b, &c]).ok()).unwrap();
        let daemon = told["used_by"].as_u64().unwrap();
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), Signal::KILL).unwrap();
        assert!(ends(daemon));
    });
    novale(&["umount", &dir]);
    novale(&mount).ok();
    ledger.judge(&at);
    // The next one goes on by itself, and the same call waits for it.
    thread::scope(|scope| {
        scope.spawn(|| ledger.write(&at, &is_over));
        let emptied = novale(&["slot", "remove", "--pace", "0", &c, &a, &b]).ok();
        assert!(emptied.contains("emptied: slot 2"), "{emptied}");
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(slots_of(&scratch)["slots"][2]["emptying"]["state"], "emptied");
    let kept = novale(&["slot", "remove", "--cancel", &c, &dir]).ok();
    assert!(kept.contains("kept: slot 2"), "{kept}");
    assert_eq!(slots_of(&scratch)["slots"][2]["state"], "ok");
    let emptied = novale(&["slot", "remove", "--json", &c, &dir]).ok();
    let emptied: Value = serde_json::from_str(&emptied).unwrap();
    assert_eq!((&emptied["done"], &emptied["slot"]), (&"emptied".into(), &2.into()));
    ledger.judge(&at);
    novale(&["umount", &dir]).ok();
    novale(&["slot", "remove", &c, &a, &b]).ok();
    let checked = novale(&["check", &a, &b]).ok();
    assert!(checked.contains("no errors"), "{checked}");
    novale(&["mount", &a, &b, &dir]).ok();
    ledger.judge(&at);
    novale(&["umount", &dir]).ok();
}

#[test]
fn a_writer_misses_nothing() {
    work(&["mount"], "a_writer_misses_nothing");
}

#[test]
fn nor_beside_direct_clients() {
    work(&["mount", "-o", "direct"], "nor_beside_direct_clients");
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
    novale(&["umount", &dir]).ok();
    novale(&["mount", "-o", "ro", &a, &b, &dir]).ok();
    novale(&["slot", "remove", &b, &dir]).refused(1, &["can't be emptied"]);
    novale(&["umount", &dir]).ok();
}
