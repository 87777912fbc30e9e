//! Promise: `novale wear` shows what reached each slot since the pool was made, open or closed, how evenly,
//! and how long the slots last.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;

use novale_posix::Pool;
use serde_json::Value;
use support::{Scratch, alone, eventually, novale};

fn wear(args: &[&str]) -> Value {
    serde_json::from_str(&novale(&[&["wear", "--json"], args].concat()).ok()).unwrap()
}

fn lines(wear: &Value) -> Vec<u64> {
    let slots = wear["slots"].as_array().unwrap();
    slots.iter().map(|slot| slot["lines"].as_u64().unwrap()).collect()
}

/// Three slots of 64 MB.
fn three(scratch: &Scratch) -> Vec<String> {
    ["a", "b", "c"].map(|name| scratch.slot(name)).to_vec()
}

fn with<'a>(first: &[&'a str], slots: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(slots.iter().map(String::as_str)).collect()
}

#[test]
fn wear_is_even_and_stays_known() {
    let _alone = alone();
    let scratch = Scratch::new();
    let slots = three(&scratch);
    novale(&with(&["mkfs", "--size", "64M", "--endurance", "pcm"], &slots)).ok();
    assert!(lines(&wear(&with(&[], &slots))).iter().all(|lines| *lines < 100));
    {
        let paths: Vec<std::path::PathBuf> = slots.iter().map(Into::into).collect();
        let pool = Pool::open(&paths).unwrap();
        let files = &pool;
        // So many that one extent of 256 pages is a small part of them.
        for turn in 0..120 {
            files.write_file("file", &vec![turn; 1 << 20]).unwrap();
        }
        let live = wear(&with(&[], &slots));
        assert_eq!(live["placement"], "wasa");
        // A megabyte has 16,384 lines.
        assert!(lines(&live).iter().sum::<u64>() >= 120 << 14, "{live}");
        assert!(live["skew_percent"].as_f64().unwrap() < 5.0, "{live}");
    }
    let closed = wear(&with(&[], &slots));
    assert!(closed["placement"].is_null(), "{closed}");
    assert!(lines(&closed).iter().sum::<u64>() >= 120 << 14, "{closed}");
    let slot = &closed["slots"][1];
    assert_eq!(slot["endurance"], 100_000_000);
    // Equations 2 and 3: endurance times size, by what it gets a day.
    let life = slot["days_of_life"].as_f64().unwrap();
    let by_hand = 1e8 * f64::from(64 << 20) / slot["bytes_per_day"].as_f64().unwrap();
    assert!((life / by_hand - 1.0).abs() < 1e-9, "{life} {by_hand}");
    assert!(closed["days_left"].as_f64().unwrap() < life);
    let shown = novale(&with(&["wear"], &slots)).ok();
    assert!(shown.contains("#####") && shown.contains("slot 2"), "{shown}");
    let picture = scratch.slot("wear.svg");
    novale(&with(&["wear", "--svg", &picture], &slots)).ok();
    assert!(fs::read_to_string(&picture).unwrap().contains("percent of what it endures"));
}

/// The daemon moves pages that nobody writes out of the slot that is worn least, for what is new.
#[test]
fn cold_pages_make_room_where_the_memory_is_worn_least() {
    let Some(scratch) = Scratch::for_mount("cold_pages_make_room") else { return };
    let _alone = alone();
    let slots = ["a", "b"].map(|name| scratch.slot(name)).to_vec();
    let (dir, log) = (scratch.dir(), scratch.slot("log"));
    novale(&with(&["mkfs", "--size", "32M", "--lanes", "1"], &slots)).ok();
    let mount = |words: &str| {
        let words = format!("method=cow,{words}");
        novale(&[&with(&["mount", "-o", &words], &slots)[..], &[&dir]].concat()).ok();
    };
    // What the lane has in hand goes back when the pool is closed, so the first slot is full after the second time.
    for part in [0..32, 32..35] {
        mount("placement=single");
        for old in part {
            fs::write(scratch.in_dir(&format!("old{old}")), vec![old; 1 << 20]).unwrap();
        }
        novale(&["umount", &dir]).ok();
    }
    let file = || {
        fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(scratch.in_dir("new"))
            .unwrap()
    };
    let wear_out = |writes: u64| {
        let before = lines(&wear(&with(&[], &slots)));
        let file = file();
        for turn in 0..writes {
            file.write_all_at(&[7; 4096], turn % 64 * 4096).unwrap();
        }
        let now = lines(&wear(&with(&[], &slots)));
        [now[0] - before[0], now[1] - before[1]]
    };
    mount("cold_after=0");
    wear_out(20_000);
    let [first, second] = wear_out(2000);
    assert!(first < second / 10, "{first} {second}");
    novale(&["umount", &dir]).ok();
    mount(&format!("cold_after=1,pace=1G,log={log}"));
    let is_told = || fs::read_to_string(&log).unwrap_or_default().contains("from slot 0 to slot 1");
    assert!(eventually(is_told), "{}", novale(&with(&["info"], &slots)).ok());
    assert!(eventually(|| {
        let [first, second] = wear_out(500);
        first > second
    }));
    for old in 0..35 {
        assert!(fs::read(scratch.in_dir(&format!("old{old}"))).unwrap() == vec![old; 1 << 20]);
    }
    novale(&["umount", &dir]).ok();
    novale(&with(&["check"], &slots)).ok();
}

#[test]
fn a_mount_uses_its_slots_as_it_is_told() {
    let Some(scratch) = Scratch::for_mount("a_mount_uses_its_slots") else { return };
    let _alone = alone();
    let slots = three(&scratch);
    novale(&with(&["mkfs", "--size", "64M"], &slots)).ok();
    let dir = scratch.dir();
    novale(&[&with(&["mount", "-o", "placement=single"], &slots)[..], &[&dir]].concat()).ok();
    fs::write(scratch.in_dir("file"), vec![1; 20 << 20]).unwrap();
    let live = wear(&with(&[], &slots));
    assert_eq!(live["placement"], "single");
    let [first, second, third] = lines(&live)[..] else { unreachable!("three slots") };
    assert!(first > 300_000 && second < 1000 && third < 1000, "{live}");
    // Nobody has said what the memory endures.
    assert!(live["days_left"].is_null() && live["slots"][0]["endurance"].is_null(), "{live}");
    let assumed = wear(&with(&["--endurance", "1e8"], &slots));
    assert!(assumed["days_left"].as_f64().unwrap() > 0.0, "{assumed}");
    novale(&["umount", &dir]).ok();
}

#[test]
fn what_is_wrong_is_said() {
    let _alone = alone();
    let scratch = Scratch::new();
    let slots = three(&scratch);
    let mkfs =
        |endurance| novale(&with(&["mkfs", "--size", "64M", "--endurance", endurance], &slots));
    mkfs("1e8,1e9").refused(1, &["2 numbers for 3 slots"]);
    mkfs("flash").refused(2, &["stt-ram"]);
    novale(&with(&["mkfs", "--size", "64M"], &slots)).ok();
    novale(&with(&["wear", "--watch"], &slots)).refused(1, &["nobody has the pool open"]);
}
