//! Promise: in a mount with a mode a file's writes are durable when they return, or with its next `fsync`, as
//! the nearest choice says; and unmounting keeps everything.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::{
    Daemon, Scratch, alone, arenas, ends, eventually, facts, novale, program, signal_daemon,
};

/// The mode of a file by its own choice, and by its mount's.
fn modes(path: &Path) -> (Option<String>, Option<String>) {
    let said = novale(&["info", "--json", path.to_str().unwrap()]).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    let word = |key: &str| all.first().unwrap().get(key).unwrap().as_str().map(str::to_owned);
    (word("own_mode"), word("mount_mode"))
}

fn write(file: &mut File) {
    file.write_all(&[7; 10_000]).unwrap();
}

/// Takes away what a power cut takes beside the daemon.
fn cut_power(slot: &str) {
    assert!(ends(signal_daemon(slot, Signal::KILL)));
    for arena in arenas(slot) {
        fs::remove_file(arena).unwrap();
    }
}

/// Each file that is buffered has more pages reserved for it than it takes. A pool had no room any more by those of
/// others when it was a third full, and nobody wrote them back until they were old enough.
#[test]
fn a_pool_takes_as_many_files_in_a_buffer_as_without() {
    let Some(scratch) = Scratch::for_mount("a_pool_takes_as_many_files") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    let fill = "i=0; while printf %4096s x >\"$0/$i\"; do i=$((i + 1)); done 2>/dev/null; echo $i";
    let filled = |options: &str, is_direct: bool| -> u32 {
        novale(&["mkfs", "--force", "--size", "16M", &slot]).ok();
        novale(&["mount", "-o", options, &slot, &scratch.dir()]).ok();
        let mut run = Command::new(if is_direct { program() } else { "env".into() });
        if is_direct {
            run.args(["run", "--mount", &scratch.dir(), "--"]);
        }
        let said = run.args(["sh", "-c", fill, &scratch.dir()]).output().unwrap();
        let count = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
        // The last one was made, and could not be written to.
        assert!(fs::read_dir(scratch.dir()).unwrap().count() >= count as usize);
        novale(&["umount", &scratch.dir()]).ok();
        novale(&["check", &slot]).ok();
        count
    };
    let strict = filled("direct", false);
    for is_direct in [false, true] {
        let buffered = filled("direct,mode=buffered", is_direct);
        assert!(buffered >= strict - strict / 50, "{buffered} of {strict}, {is_direct}");
    }
}

/// Room was waited for in the first of its mounts alone in which some seemed to be on its way: in vain there, and what
/// the other one had in its buffer stayed.
#[test]
fn a_program_with_two_mounts_has_the_room_of_each() {
    let Some(scratch) = Scratch::for_mount("a_program_with_two_mounts") else { return };
    let _alone = alone();
    let (slot, other, place) = (scratch.slot("pool"), scratch.slot("other"), scratch.slot("place"));
    fs::create_dir(&place).unwrap();
    for slot in [&slot, &other] {
        novale(&["mkfs", "--size", "16M", slot]).ok();
    }
    novale(&["mount", "-o", "direct", &other, &place]).ok();
    novale(&["mount", "-o", "direct,mode=buffered", &slot, &scratch.dir()]).ok();
    let held = format!("{place}/held");
    let holder = File::create(&held).unwrap();
    fs::remove_file(&held).unwrap();
    let fill = ": >\"$1/touch\"; i=0; while printf %4096s x >\"$0/$i\"; do i=$((i + 1)); done \
                2>/dev/null; echo $i";
    let mut run = Command::new(program());
    run.args(["run", "--mount", &place, "--mount", &scratch.dir(), "--"]);
    let said = run.args(["sh", "-c", fill, &scratch.dir(), &place]).output().unwrap();
    let count: u64 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    // Of 4096 pages, two for each.
    assert!(count > 1700, "{count}");
    drop(holder);
    for dir in [&place, &scratch.dir()] {
        novale(&["umount", dir]).ok();
    }
}

#[test]
fn what_was_not_asked_for_goes_with_the_power() {
    let Some(scratch) = Scratch::for_mount("what_was_not_asked_for") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", &slot]).ok();
    novale(&["mount", "-o", "mode=buffered,buffer=8M", &slot, &scratch.dir()]).ok();
    assert!(facts(&slot)["mode"].as_str().unwrap().starts_with("buffered; a buffer of 7."));
    let create = |name: &str| File::create(scratch.in_dir(name)).unwrap();
    write(&mut create("buffered"));
    let mut synced = create("synced");
    write(&mut synced);
    synced.sync_all().unwrap();
    let mut options = File::options();
    let syncs = rustix::fs::OFlags::DSYNC.bits().cast_signed();
    options.write(true).create(true).custom_flags(syncs);
    write(&mut options.open(scratch.in_dir("dsync")).unwrap());
    let own = scratch.in_dir("own");
    drop(create("own"));
    novale(&["set", "--mode", "strict", own.to_str().unwrap()]).ok();
    assert_eq!(modes(&own), (Some("strict".into()), Some("buffered".into())));
    fs::write(&own, [7; 10_000]).unwrap();
    let names = ["buffered", "synced", "dsync", "own"];
    let all = || names.map(|name| fs::read(scratch.in_dir(name)).unwrap().len());
    assert_eq!(all(), [10_000; 4]);
    cut_power(&slot);
    novale(&["mount", "-o", "mode=buffered", &slot, &scratch.dir()]).ok();
    assert_eq!(all(), [0, 10_000, 10_000, 10_000]);
    // A mount that ends in order keeps all, and the next one needs no mode for that.
    fs::write(scratch.in_dir("buffered"), [7; 10_000]).unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(all(), [10_000; 4]);
    assert!(facts(&slot)["mode"].is_null());
    assert_eq!(modes(&own), (Some("strict".into()), None));
    novale(&["set", "--mode", "buffered", own.to_str().unwrap()]).ok();
    let said = novale(&["info", own.to_str().unwrap()]).ok();
    assert!(
        said.contains("strict, for the mount has no mode; its own choice, buffered,"),
        "{said}"
    );
    novale(&["umount", &scratch.dir()]).ok();
}

/// A mount that has become read-only is written back, whatever the rules say.
#[test]
fn a_mount_that_is_only_read_from_now_on_leaves_nothing_buffered() {
    let Some(scratch) = Scratch::for_mount("a_mount_that_is_only_read") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    let words = "mode=buffered,write_back=3600,age=3600";
    novale(&["mount", "-o", words, &slot, &scratch.dir()]).ok();
    write(&mut File::create(scratch.in_dir("f")).unwrap());
    let blocks = || {
        let said = novale(&["stats", "--json", &slot]).ok();
        let stats: serde_json::Value = serde_json::from_str(&said).unwrap();
        stats["buffer"]["blocks"].as_u64().unwrap()
    };
    assert_eq!(blocks(), 3);
    novale(&["mount", "-o", "remount,ro", &scratch.dir()]).ok();
    assert!(eventually(|| blocks() == 0));
    cut_power(&slot);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("f")).unwrap().len(), 10_000);
    novale(&["umount", &scratch.dir()]).ok();
}

#[test]
fn what_is_said_of_a_buffer_that_is_not_there_is_told() {
    let Some(scratch) = Scratch::for_mount("what_is_said_of_a_buffer") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    for (words, told) in [("low=10", true), ("buffer=8M", true), ("low=10,mode=strict", false)] {
        let mounted = novale(&["mount", "-o", words, &slot, &scratch.dir()]);
        assert_eq!(mounted.err.contains("nothing is buffered"), told, "{words}");
        mounted.ok();
        novale(&["umount", &scratch.dir()]).ok();
    }
}

/// Here its daemon is killed. A mount that others can't join has its slots locked by descriptors of their own, so that
/// nothing was said of it.
#[test]
fn what_an_unmount_leaves_only_buffered_is_said() {
    let Some(scratch) = Scratch::for_mount("what_an_unmount_leaves") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", "-o", "mode=buffered,age=3600", &slot, &scratch.dir()]).ok();
    let mut file = File::create(scratch.in_dir("f")).unwrap();
    write(&mut file);
    rustix::mount::unmount(scratch.dir(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let mut umount = Command::new(program());
    umount.args(["umount", &scratch.dir()]).stderr(Stdio::piped());
    let mut umount = umount.spawn().unwrap();
    let mut said = BufReader::new(umount.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("waiting for process")));
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    let said: String = said.collect();
    assert_eq!(umount.wait().unwrap().code(), Some(1));
    let both = "not closed clean, and bytes that were only buffered may not be in it";
    assert!(said.contains(both), "{said}");
    assert!(novale(&["info", &slot]).ok().contains(both));
    assert_eq!(facts(&slot)["buffered_left"], true);
    drop(file);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("f")).unwrap().len(), 10_000);
    novale(&["umount", &scratch.dir()]).ok();
    assert_eq!(facts(&slot)["buffered_left"], false);
}

/// The rules are said by words, shown, and what the buffer did is counted.
#[test]
fn a_pool_may_be_made_for_it_and_the_rules_be_chosen() {
    let Some(scratch) = Scratch::for_mount("a_pool_may_be_made_for_it") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", "--mode", "buffered", &slot]).ok();
    let words = "buffer=8M,write_back=1,age=3600,low=10,high=30,eager=7";
    novale(&["mount", "-o", words, &slot, &scratch.dir()]).ok();
    let mode = facts(&slot)["mode"].as_str().unwrap().to_owned();
    for part in ["every 1 s", "older than 3600 s", "from 10 % free on up to 30 %", "for 7 s"] {
        assert!(mode.contains(part), "{mode}");
    }
    let mut file = File::create(scratch.in_dir("f")).unwrap();
    for _ in 0..3 {
        write(&mut file);
        file.sync_all().unwrap();
    }
    drop(file);
    write(&mut File::create(scratch.in_dir("g")).unwrap());
    let stats: serde_json::Value =
        serde_json::from_str(&novale(&["stats", "--json", &slot]).ok()).unwrap();
    let buffer = |key: &str| stats["buffer"][key].as_u64().unwrap();
    // The file's first write alone went to the buffer, and from there to the pool.
    let counts = ["blocks", "files_flushed", "lines_written_back", "writes_eager", "syncs_eager"];
    assert_eq!(counts.map(buffer), [3, 1, 157, 2, 3]);
    assert!(novale(&["stats", &slot]).ok().contains("eager writes"));
    novale(&["umount", &scratch.dir()]).ok();
    let mount = |words| novale(&["mount", "-o", words, &slot, &scratch.dir()]);
    mount("low=30").refused(1, &["30 %", "20 %"]);
    mount("eager=soon").refused(1, &["eager=soon", "0 to 3600"]);
    // Of no size that is of use, or of one that no machine or no pool's memory has.
    mount("buffer=4K").refused(1, &["4.0 KiB", "64.0 KiB or more"]);
    mount("buffer=1000T").refused(1, &["1000.0 TiB", "this machine's memory"]);
    mount("buffer=40M,arena_max=32M").refused(1, &["40.0 MiB", "32.0 MiB", "arena_max"]);
}

/// What was only buffered was lost with the last one who had the pool open.
#[test]
fn what_is_buffered_outlives_all_who_have_the_pool_open() {
    let Some(scratch) = Scratch::for_mount("what_is_buffered_outlives_all") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", &slot]).ok();
    let name = |index: usize| scratch.in_dir(&format!("f{index}"));
    // From a mount of one kind to one of the other, and from one that was taken away before.
    let ways = ["mode=buffered", "direct,mode=buffered", "direct,mode=buffered", "mode=buffered"];
    novale(&["mount", "-o", ways[0], &slot, &scratch.dir()]).ok();
    for (index, words) in ways.into_iter().enumerate() {
        write(&mut File::create(name(index)).unwrap());
        assert!(ends(signal_daemon(&slot, Signal::KILL)));
        if index % 2 == 0 {
            novale(&["umount", &scratch.dir()]).ok();
        }
        novale(&["check", "--repair", "--yes", &slot]).refused(8, &["mount it once"]);
        let read_only = novale(&["mount", "-o", "ro", &slot, &scratch.dir()]);
        read_only.refused(1, &["/dev/shm/novale-", "mount it once for writing"]);
        novale(&["mount", "-o", words, &slot, &scratch.dir()]).ok();
        let lens = (0..=index).map(|index| fs::read(name(index)).unwrap().len());
        assert_eq!(lens.collect::<Vec<_>>(), vec![10_000; index + 1]);
    }
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// A pool with a mode, and nothing that was only buffered, was refused with `-o ro` when its daemon had been killed, and
/// for good where a slot was missing. With some it is shown without them, where their file is away meanwhile.
#[test]
fn a_pool_with_a_mode_is_shown_as_it_is() {
    let Some(scratch) = Scratch::for_mount("a_pool_with_a_mode_is_shown") else { return };
    let _alone = alone();
    let slots = [scratch.slot("a"), scratch.slot("b")];
    let both = || [slots[0].as_str(), slots[1].as_str()];
    let dir = scratch.dir();
    let mount = |words: &str, slots: &[&str]| {
        novale(&[&["mount", "-o", words], slots, &[dir.as_str()]].concat())
    };
    let kill = || {
        assert!(ends(signal_daemon(&slots[0], Signal::KILL)));
        novale(&["umount", &dir]).ok();
    };
    novale(&[&["mkfs", "--size", "32M", "--mode", "buffered"], &both()[..]].concat()).ok();
    mount("direct", &both()).ok();
    let mut file = File::create(scratch.in_dir("f")).unwrap();
    write(&mut file);
    file.sync_all().unwrap();
    drop(file);
    kill();
    let lost = scratch.slot("lost");
    fs::rename(&slots[1], &lost).unwrap();
    mount("ro", &both()[..1]).ok();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    novale(&["umount", &dir]).ok();
    fs::rename(&lost, &slots[1]).unwrap();
    mount("direct", &both()).ok();
    write(&mut File::create(scratch.in_dir("g")).unwrap());
    kill();
    let refused = mount("ro", &both());
    let is_arena = |word: &&str| word.starts_with("/dev/shm/novale-") && !word.contains("test");
    let arena = refused.err.split_whitespace().find(is_arena).unwrap();
    let arena = arena.trim_end_matches(':').to_owned();
    refused.refused(1, &["with all slots", "out of its folder"]);
    let away = scratch.slot("away");
    fs::rename(&arena, &away).unwrap();
    mount("ro", &both()).ok();
    assert_eq!(fs::metadata(scratch.in_dir("g")).unwrap().len(), 0);
    novale(&["umount", &dir]).ok();
    fs::rename(&away, &arena).unwrap();
    mount("direct", &both()).ok();
    assert_eq!(fs::read(scratch.in_dir("g")).unwrap().len(), 10_000);
    novale(&["umount", &dir]).ok();
    novale(&[&["check"], &both()[..]].concat()).ok();
}

/// Programs went by what the mount was made with, and a remount for something else took sync away.
#[test]
fn what_is_remounted_with_sync_is_so_for_programs_that_run_directly() {
    let Some(scratch) = Scratch::for_mount("what_is_remounted_with_sync") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    let dir = scratch.dir();
    let words = "direct,mode=buffered,write_back=3600,age=3600";
    novale(&["mount", "-o", words, &slot, &dir]).ok();
    let buffered = |name: &str| {
        let file = scratch.in_dir(name).to_str().unwrap().to_owned();
        let blocks = || -> u64 {
            let said = novale(&["stats", "--json", &slot]).ok();
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            said["buffer"]["blocks"].as_u64().unwrap_or(0)
        };
        let before = blocks();
        let to = format!("of={file}");
        let dd = ["run", "--strict", "--", "dd", "if=/dev/zero", &to, "bs=4k", "count=20"];
        novale(&dd).ok();
        blocks() - before
    };
    assert_eq!(buffered("first"), 20);
    novale(&["mount", "-o", "remount,sync", &dir]).ok();
    assert_eq!(buffered("second"), 0);
    novale(&["mount", "-o", "remount,noatime", &dir]).ok();
    assert_eq!(buffered("third"), 0);
    novale(&["mount", "-o", "remount,async", &dir]).ok();
    assert_eq!(buffered("fourth"), 20);
    novale(&["umount", &dir]).ok();
}

/// It went without what was buffered, and nothing was said of it.
#[test]
fn a_copy_of_a_pool_is_said_to_go_without_what_is_buffered() {
    let Some(scratch) = Scratch::for_mount("a_copy_of_a_pool_is_said") else { return };
    let _alone = alone();
    let (slot, copy) = (scratch.slot("pool"), scratch.slot("copy"));
    novale(&["mkfs", "--size", "32M", &slot]).ok();
    let words = "mode=buffered,write_back=3600,age=3600";
    novale(&["mount", "-o", words, &slot, &scratch.dir()]).ok();
    let file = scratch.in_dir("file");
    write(&mut File::create(&file).unwrap());
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    novale(&["umount", &scratch.dir()]).ok();
    fs::copy(&slot, &copy).unwrap();
    let left = arenas(&slot);
    let mount = |slot: &str| {
        let mounted = novale(&["mount", slot, &scratch.dir()]);
        let said = mounted.err.clone();
        mounted.ok();
        let len = fs::metadata(&file).unwrap().len();
        novale(&["umount", &scratch.dir()]).ok();
        (len, said.contains("goes without that"), said)
    };
    let (len, is_told, said) = mount(&copy);
    assert!(len == 0 && is_told && said.contains(left[0].to_str().unwrap()), "{len} {said}");
    // It was closed clean.
    assert!(!mount(&copy).1);
    let (len, is_told, said) = mount(&slot);
    assert!(len == 10_000 && !is_told, "{len} {said}");
    assert!(arenas(&slot).is_empty());
}

/// It was full, and found full again by each mount that was to write back what was in it.
#[test]
fn what_is_buffered_outlives_all_in_memory_that_is_full() {
    let Some(scratch) = Scratch::for_mount("outlives_all_in_memory_that_is_full") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "128M", &slot]).ok();
    novale(&["mount", "-o", "mode=buffered,arena_max=16M", &slot, &scratch.dir()]).ok();
    let scattered = File::create(scratch.in_dir("scattered")).unwrap();
    let far = (0..100_000).find(|page| scattered.write_at(b"x", page << 30).is_err()).unwrap();
    let bytes = vec![7; 100_000];
    let name = |index: usize| scratch.in_dir(&format!("f{index}"));
    let made = (0..10_000).take_while(|index| fs::write(name(*index), &bytes).is_ok()).count();
    assert!(far > 1000 && made > 5, "{far} pages, {made} files");
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    drop(scattered);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    for index in 0..made {
        assert!(fs::read(name(index)).unwrap() == bytes, "file {index} of {made}");
    }
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// Nothing was said of it.
#[test]
fn what_a_container_that_was_killed_had_only_buffered_is_said_to_be_gone() {
    let Some(scratch) = Scratch::for_mount("what_a_container_that_was_killed") else { return };
    let _alone = alone();
    let (slot, dir, program) = (scratch.pool(), scratch.dir(), program());
    for words in ["mode=buffered", "direct,mode=buffered"] {
        // All processes of a pid namespace end with the first one.
        let inside =
            format!("{} mount -q -o {words} {slot} {dir} && date >{dir}/f", program.display());
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "-p", "-f", "--mount-proc", "sh", "-c", &inside]);
        let ended = unshare.output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        for times in [1, 0] {
            let mounted = novale(&["mount", "-q", "-o", words, &slot, &dir]);
            let told = "what they had only buffered is gone";
            assert_eq!(mounted.err.matches(told).count(), times, "{}", mounted.err);
            mounted.ok();
            novale(&["umount", &dir]).ok();
        }
    }
    novale(&["check", &slot]).ok();
}

#[test]
fn programs_that_share_a_pool_have_one_mode() {
    let Some(scratch) = Scratch::for_mount("programs_that_share_a_pool") else { return };
    let _alone = alone();
    let slot = scratch.slot("pool");
    novale(&["mkfs", "--size", "32M", "--mode", "buffered", &slot]).ok();
    novale(&["mount", "-o", "direct", &slot, &scratch.dir()]).ok();
    assert!(facts(&slot)["mode"].as_str().unwrap().starts_with("buffered"));
    let second = scratch.dir() + "-second";
    fs::create_dir(&second).unwrap();
    let strict = ["mount", "--foreground", "-o", "direct,mode=strict", &slot, &second];
    novale(&strict).refused(1, &["mode=strict"]);
    let beside = Daemon::start("direct,mode=buffered", &[&slot], &second);
    write(&mut File::create(scratch.in_dir("f")).unwrap());
    assert_eq!(fs::read(format!("{second}/f")).unwrap().len(), 10_000);
    beside.umount();
    novale(&["umount", &scratch.dir()]).ok();
    fs::remove_dir(&second).unwrap();
    novale(&["mount", "-o", "mode=lazy", &slot, &scratch.dir()]).refused(1, &["strict, buffered"]);
}
