//! Promise: a mount on an emulated memory is as slow as that, for all who share it, and says so; one that
//! this machine is too slow for is refused.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]
#![cfg(target_arch = "x86_64")]

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use novale_posix::join::{self, Opening};
use novale_posix::{Files, Pool};
use support::{Scratch, alone, facts, novale};

/// The least time that one of several writes takes.
fn least(mut write: impl FnMut()) -> Duration {
    let mut once = || {
        let begun = Instant::now();
        write();
        begun.elapsed()
    };
    (0..10).map(|_| once()).min().unwrap()
}

const BARRIER: Duration = Duration::from_micros(900);

#[test]
fn all_clients_are_on_the_mounts_device() {
    let Some(scratch) = Scratch::for_mount("all_clients_are_on") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    let device = "device=stt-ram:barrier=900000:write=0";
    novale(&["mount", "-o", &format!("direct,{device}"), &slot, &scratch.dir()]).ok();
    let file = File::create(scratch.in_dir("file")).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    assert!(least(|| file.write_all_at(&[2; 10], 0).unwrap()) >= BARRIER);
    let joined = join::join(&[PathBuf::from(&slot)]).unwrap();
    let files = Files::new(joined.fs.clone());
    assert!(least(|| files.write_file("other", b"text").unwrap()) >= BARRIER);
    assert_eq!(joined.fs.pm().device().unwrap().barrier_ns, Some(900_000));
    joined.close().unwrap();
    drop((files, joined));
    let told = novale(&["info", &slot]).ok() + &novale(&["stats", &slot]).ok();
    assert_eq!(told.matches("memory    emulated stt-ram: reads as DRAM's").count(), 2, "{told}");
    assert!(facts(&slot)["device"].as_str().unwrap().contains("barrier 900000 ns"));
    drop(file);
    novale(&["umount", &scratch.dir()]).ok();
    // It was no property of the pool.
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert!(facts(&slot)["device"].is_null());
    assert!(!novale(&["info", &slot]).ok().contains("emulated"));
}

/// Slower than any machine here, however busy it is.
const PCM: &str = "pcm:read=100000:barrier=1000000:write=0";

/// What a mount asked for that joins others was taken for said, and was not so.
#[test]
fn who_joins_has_the_device_and_the_placement_of_the_first() {
    let Some(scratch) = Scratch::for_mount("who_joins_has_the_device") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    let joined = join::open(
        &[PathBuf::from(&slot)],
        &Opening { device: PCM.parse().ok(), ..Opening::default() },
        &novale_core::Serial,
        &|_| {},
    );
    let joined = joined.unwrap();
    let mount =
        |words: &str| novale(&["mount", "-o", &format!("direct,{words}"), &slot, &scratch.dir()]);
    for words in ["device=pcm", "placement=spread", "device=dram", "method=cow", "lawn_slot=256"] {
        mount(words).refused(1, &["is in use", words, "unmount"]);
        assert!(!scratch.is_mounted());
    }
    let told = mount(&format!("device={PCM},placement=wasa,method=auto,form=two"));
    assert!(told.err.contains("form"), "{}", told.err);
    told.ok();
    joined.close().unwrap();
    drop(joined);
    novale(&["umount", &scratch.dir()]).ok();
}

#[test]
fn what_can_not_be_emulated_is_said() {
    let Some(scratch) = Scratch::for_mount("what_can_not_be_emulated") else { return };
    let _alone = alone();
    let (slot, dir) = (scratch.pool(), scratch.dir());
    let mount = |option: &str| novale(&["mount", "-o", option, &slot, &dir]);
    mount("device=barrier=1").refused(1, &["a fence takes", "ns on this machine"]);
    mount("direct,device=pcm:read=1").refused(1, &["pcm", "a load takes"]);
    mount("device=tape").refused(1, &["'tape'", "stt-ram, pcm, hinfs"]);
    novale(&["mount", "--device", "write=fast", &slot, &dir]).refused(2, &["write=fast"]);
    // Nothing is left behind.
    assert!(!scratch.is_mounted() && support::arenas(&slot).is_empty());
    mount("device=dram").ok();
    assert!(facts(&slot)["device"].is_null());
}

#[test]
fn a_program_opens_a_pool_on_a_device() {
    let _alone = alone();
    let scratch = Scratch::new();
    let slot = scratch.pool();
    let opening = Opening { device: "barrier=900000".parse().ok(), ..Opening::default() };
    let pool = Pool::open_as(&[&slot], &opening).unwrap();
    assert!(least(|| pool.write_file("/file", b"text").unwrap()) >= BARRIER);
    // Who joins is on it, whatever he asks for.
    let other = Pool::open(&[&slot]).unwrap();
    assert!(least(|| other.write_file("/other", b"text").unwrap()) >= BARRIER);
    other.close().unwrap();
    pool.close().unwrap();
}
