//! Promise: `novale slot status` says of each slot where it is, what is free, how far it is worn and whether it
//! works, of a pool that is closed, open or mounted.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]

mod support;

use std::fs;

use novale_posix::Pool;
use serde_json::Value;
use support::{Scratch, alone, novale};

const SLOT_BYTES: u64 = 32 << 20;

fn status(args: &[&str]) -> Value {
    serde_json::from_str(&novale(&[&["slot", "status", "--json"], args].concat()).ok()).unwrap()
}

fn sum(status: &Value, key: &str) -> u64 {
    status["slots"].as_array().unwrap().iter().map(|slot| slot[key].as_u64().unwrap()).sum()
}

#[test]
fn slots_of_a_pool_are_shown_closed_and_open() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (a, b) = (scratch.slot("a"), scratch.slot("b"));
    novale(&["mkfs", "--size", "32M", "--endurance", "pcm", &a, &b]).ok();
    let new = status(&[&b, &a]);
    assert_eq!(
        (&new["slots"][1]["path"], &new["slots"][1]["state"]),
        (&b.clone().into(), &"ok".into())
    );
    assert_eq!(new["in_use"], false);
    {
        let pool = Pool::open(&[&a, &b]).unwrap();
        pool.write_file("file", &vec![7; 10 << 20]).unwrap();
        let open = status(&[&a, &b]);
        assert_eq!(open["in_use"], true);
        assert!(sum(&open, "bytes_used") >= 10 << 20, "{open}");
        assert_eq!(sum(&open, "bytes_used") + sum(&open, "bytes_free"), 2 * SLOT_BYTES);
        assert!(sum(&open, "lines") > sum(&new, "lines") + (10 << 14), "{open}");
        pool.close().unwrap();
    }
    let closed = status(&[&a, &b]);
    assert!(sum(&closed, "bytes_used") >= 10 << 20, "{closed}");
    assert!(closed["slots"][0]["worn_percent"].as_f64().unwrap() > 0.0, "{closed}");
    let shown = novale(&["slot", "status", &a, &b]).ok();
    assert!(shown.contains("slot 1    ok") && shown.contains("% worn"), "{shown}");
}

#[test]
fn slots_are_named_by_the_directory_too() {
    let Some(scratch) = Scratch::for_mount("slots_are_named_by_the_directory_too") else { return };
    let _alone = alone();
    let (a, b, dir) = (scratch.slot("a"), scratch.slot("b"), scratch.dir());
    novale(&["mkfs", "--size", "32M", &a, &b]).ok();
    novale(&["mount", &b, &a, &dir]).ok();
    fs::write(scratch.in_dir("file"), vec![1; 4 << 20]).unwrap();
    let shown = status(&[&dir]);
    assert_eq!((&shown["in_use"], &shown["slots"][0]["path"]), (&true.into(), &a.into()));
    assert!(sum(&shown, "bytes_used") >= 4 << 20, "{shown}");
    novale(&["umount", &dir]).ok();
}
