//! Promise: a mount is usable when the command returns, and its pool is closed when it is gone.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use support::{
    Outcome, Scratch, Stopped, alone, arenas, ends, eventually, facts, head, novale, patch,
    program, signal_daemon,
};

#[test]
fn a_mount_is_usable_at_once_and_closed_when_umount_returns() {
    let Some(scratch) = Scratch::for_mount("a_mount_is_usable_at_once") else { return };
    let slot = scratch.pool();
    for round in 0..3 {
        novale(&["mount", &slot, &scratch.dir()]).ok();
        fs::write(scratch.in_dir(&format!("file{round}")), b"written at once").unwrap();
        let live = facts(&slot);
        assert_eq!(live["mounted_at"][0], scratch.dir().as_str());
        assert!(live["used_by"].as_u64().is_some() && live["inodes"] == round + 2, "{live}");
        assert_eq!(arenas(&slot).len(), 1);
        novale(&["umount", &scratch.dir()]).ok();
        let closed = facts(&slot);
        assert!(closed["clean"] == true && closed["used_by"].is_null(), "{closed}");
        assert!(!scratch.is_mounted() && arenas(&slot).is_empty());
    }
    let said = novale(&["check", &slot]).ok();
    assert!(said.contains("4 inodes"), "{said}");
}

#[test]
fn a_mount_warns_of_memory_that_power_takes_away_unless_it_is_to_be_quiet() {
    let Some(scratch) = Scratch::for_mount("a_mount_warns_of_memory") else { return };
    let slot = scratch.pool();
    for (more, lines) in [("rw", 1), ("quiet", 0)] {
        let mounted = novale(&["mount", "-o", more, &slot, &scratch.dir()]);
        assert_eq!(mounted.err.matches("the pool survives killed programs").count(), lines);
        assert_eq!(mounted.err.lines().count(), lines, "{}", mounted.err);
        mounted.ok();
        novale(&["umount", &scratch.dir()]).ok();
    }
    novale(&["mount", "--quiet", "-o", "remount,quiet", &scratch.dir()])
        .refused(1, &["not a Novale"]);
}

#[test]
fn a_pool_in_use_is_refused_by_whoever_would_disturb_it() {
    let Some(scratch) = Scratch::for_mount("a_pool_in_use_is_refused") else { return };
    let [a, b] = [scratch.slot("a"), scratch.slot("b")];
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    novale(&["mount", &b, &a, &scratch.dir()]).ok();
    let other = scratch.slot("other");
    fs::create_dir(&other).unwrap();
    let said = novale(&["info", "--json", &a, &b]).ok();
    let live: serde_json::Value = serde_json::from_str(&said).unwrap();
    let pid = format!("process {}", live["used_by"]);
    novale(&["check", &a, &b]).refused(8, &["in use", &pid, &scratch.dir(), "novale umount"]);
    novale(&["mkfs", "--force", &b]).refused(1, &["in use", &pid]);
    novale(&["mount", "-o", "ro", &a, &b, &other]).refused(1, &["in use", &pid]);
    novale(&["mount", "--foreground", &a, &b, &other]).refused(1, &["in use", &pid]);
    fs::remove_dir(&other).unwrap();
}

/// A pool was refused a second directory, where other file systems are the same one in both.
#[test]
fn a_pool_is_mounted_on_two_directories() {
    let Some(scratch) = Scratch::for_mount("a_pool_is_mounted_on_two") else { return };
    let (slot, dir, other) = (scratch.pool(), scratch.dir(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    novale(&["mount", &slot, &dir]).ok();
    let again = novale(&["mount", "-o", "nosuid,threads=3,strictatime", &slot, &other]);
    let late = "threads=3 and strictatime can't be changed while mounted";
    assert!(again.err.contains(late), "{}", again.err);
    again.ok();
    fs::write(scratch.in_dir("file"), b"seen in both").unwrap();
    assert_eq!(fs::read(format!("{other}/file")).unwrap(), b"seen in both");
    assert_eq!(facts(&slot)["mounted_at"], serde_json::json!([dir, other]));
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(&other)).unwrap();
    assert!(line.contains("nosuid"), "{line}");
    novale(&["umount", &other]).refused(1, &["stays open", &dir]);
    novale(&["mount", &slot, &other]).ok();
    // One after the other: the pool is closed when the command returns.
    novale(&["umount", &dir, &other]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    novale(&["mount", "-o", "direct,mode=buffered", &slot, &dir]).ok();
    let strict = ["mount", "-o", "direct,mode=strict", &slot, &other];
    novale(&strict).refused(1, &[&dir, "mode=buffered"]);
    let synced = ["mount", "-o", "direct,mode=buffered,sync", &slot, &other];
    novale(&synced).refused(1, &[&dir, "without sync", "remount,sync"]);
    novale(&["mount", "-o", "remount,sync", &dir]).ok();
    novale(&synced).ok();
    novale(&["mount", "-o", "remount,ro", &dir]).ok();
    novale(&["umount", &other]).refused(1, &["stays open"]);
    let again = novale(&["mount", "-o", "direct,sync", &slot, &other]);
    assert!(again.err.contains("rw can't be changed while mounted"), "{}", again.err);
    again.ok();
    // A signal takes both away: the second one stayed, as a dead mount.
    assert!(ends(signal_daemon(&slot, Signal::TERM)));
    fs::remove_dir(&other).unwrap();
    assert!(!scratch.is_mounted());
}

/// With `-o direct` a second daemon served the second directory: locks did not count between the two, and what was
/// written in the one to a file that was mapped in the other was lost.
#[test]
fn a_shared_pool_is_one_on_two_directories_too() {
    let Some(scratch) = Scratch::for_mount("a_shared_pool_is_one_on_two") else { return };
    let (slot, dir, other) = (scratch.pool(), scratch.dir(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    novale(&["mount", &slot, &dir]).ok();
    novale(&["mount", "-o", "direct", &slot, &other]).refused(1, &["in use", &dir]);
    novale(&["umount", &dir]).ok();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    let again = novale(&["mount", "--direct", "--mode", "buffered", &slot, &other]);
    let said = format!("novale: {other}: mode=buffered can't be changed while mounted");
    assert!(again.err.starts_with(&said) && again.err.lines().count() == 1, "{}", again.err);
    again.ok();
    let locked = File::create(scratch.in_dir("file")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    let waits = File::open(format!("{other}/file")).unwrap();
    let lock = flock(&waits, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(lock, Err(Errno::WOULDBLOCK));
    assert_eq!(facts(&slot)["mounted_at"], serde_json::json!([dir, other]));
    drop((locked, waits));
    let (from, to) = (format!("{other}/file"), format!("{dir}/copy"));
    novale(&["run", "--strict", "cp", &from, &to]).ok();
    novale(&["umount", &dir, &other]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    fs::remove_dir(&other).unwrap();
}

/// The second directory was refused for the first one, which the caller had not named, where that was unmounted
/// between the moments when it was found and shown.
#[test]
fn a_pool_is_mounted_anew_whose_mount_goes_before_it_is_shown() {
    let Some(scratch) = Scratch::for_mount("a_pool_is_mounted_anew_whose") else { return };
    let _alone = alone();
    let (slot, dir, other) = (scratch.pool(), scratch.dir(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    fs::write(scratch.in_dir("file"), b"kept").unwrap();
    let stopped = Stopped::daemon_of(&slot);
    thread::scope(|scope| {
        let mounts = scope.spawn(|| novale(&["mount", "-o", "direct", &slot, &other]));
        // It has found the mount by then, and its child waits for the daemon's answer.
        assert!(eventually(|| is_asked(&dir)));
        unmount(&dir, UnmountFlags::DETACH).unwrap();
        drop(stopped);
        mounts.join().unwrap().ok();
    });
    assert_eq!(fs::read(format!("{other}/file")).unwrap(), b"kept");
    assert_eq!(facts(&slot)["mounted_at"], serde_json::json!([other]));
    novale(&["umount", &other]).ok();
    fs::remove_dir(&other).unwrap();
}

/// Whether a command has a mount open to ask its daemon.
fn is_asked(dir: &str) -> bool {
    let arguments = format!("novale\0ask\0--\0{dir}\0");
    let asks = |process: &Path| {
        let is_it = fs::read(process.join("cmdline")).is_ok_and(|it| it == arguments.as_bytes());
        let open = fs::read_dir(process.join("fd")).ok().filter(|_| is_it);
        let mut open = open.into_iter().flatten().flatten();
        open.any(|number| fs::read_link(number.path()).is_ok_and(|path| path == Path::new(dir)))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| asks(&process.path()))
}

/// Each looked for a mount before the other had one, and started a daemon; of a pool that is not shared one of the
/// two was refused.
#[test]
fn a_pool_that_two_mount_at_once_has_one_daemon() {
    let Some(scratch) = Scratch::for_mount("a_pool_that_two_mount_at_once") else { return };
    let (slot, dir, other) = (scratch.pool(), scratch.dir(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    for round in 0..12 {
        let how = ["direct", "direct", "rw"][round % 3];
        let mount = |at: &str| novale(&["mount", "--quiet", "-o", how, &slot, at]).ok();
        thread::scope(|scope| {
            scope.spawn(|| mount(&dir));
            scope.spawn(|| mount(&other));
        });
        let device = |at: &str| fs::metadata(at).unwrap().dev();
        let devices = (device(&dir), device(&other));
        novale(&["umount", &dir, &other]).ok();
        assert_eq!(devices.0, devices.1, "round {round}");
    }
    fs::remove_dir(&other).unwrap();
}

/// A second daemon served the pool beside the first, whose mount was there still for who had it open.
#[test]
fn a_shared_pool_whose_mount_cannot_be_shown_is_refused_a_second_daemon() {
    let Some(scratch) = Scratch::for_mount("a_shared_pool_whose_mount") else { return };
    let (slot, dir, other) = (scratch.pool(), scratch.dir(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    let call = |command: &str, words: &[&str]| {
        assert!(Command::new(command).args(words).status().unwrap().success(), "{words:?}");
    };
    let mount = |at: &str| novale(&["mount", "--quiet", "-o", "direct", &slot, at]);
    mount(&dir).ok();
    fs::create_dir(scratch.in_dir("part")).unwrap();
    call("mount", &["--bind", &format!("{dir}/part"), &other]);
    call("umount", &[&dir]);
    let part = mount(&dir);
    call("umount", &[&other]);
    part.refused(1, &["process", "a part of it", &other]);

    mount(&dir).ok();
    call("mount", &["-t", "tmpfs", "none", &dir]);
    let hidden = mount(&other);
    call("umount", &[&dir]);
    hidden.refused(1, &["process", "hides it", &dir]);

    let stopped = Stopped::daemon_of(&slot);
    let stuck = mount(&other);
    drop(stopped);
    stuck.refused(1, &[&dir, "has not answered"]);

    // One that is hidden, and one that can be shown.
    mount(&other).ok();
    call("mount", &["-t", "tmpfs", "none", &dir]);
    let third = scratch.slot("third");
    fs::create_dir(&third).unwrap();
    let shown = mount(&third);
    call("umount", &[&dir]);
    shown.ok();
    novale(&["umount", &third, &other]).refused(1, &["stays open"]);

    let open = File::create(scratch.in_dir("open")).unwrap();
    call("umount", &["-l", &dir]);
    mount(&other).refused(1, &["process", "--lazy"]);
    drop(open);
    mount(&other).ok();
    novale(&["umount", &other]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    fs::remove_dir(&other).unwrap();
    fs::remove_dir(&third).unwrap();
}

#[test]
fn a_busy_mount_stays_unless_it_is_forced_or_lazy() {
    let Some(scratch) = Scratch::for_mount("a_busy_mount_stays") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let mut open = File::create(scratch.in_dir("open")).unwrap();
    let me = format!("{} (", std::process::id());
    novale(&["umount", &scratch.dir()]).refused(1, &["busy", &me, "--lazy", "--force"]);
    open.write_all(b"still works").unwrap();
    novale(&["umount", "--force", &scratch.dir()]).ok();
    assert!(open.write_all(b"cut off").is_err());
    assert_eq!(facts(&slot)["clean"], true);
    drop(open);

    novale(&["mount", &slot, &scratch.dir()]).ok();
    let mut open = File::options().append(true).open(scratch.in_dir("open")).unwrap();
    novale(&["umount", "--lazy", &scratch.dir()]).ok();
    assert!(!scratch.is_mounted());
    open.write_all(b" and goes on").unwrap();
    drop(open);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("open")).unwrap(), b"still works and goes on");
}

/// What a program is in, or has mapped, is no descriptor of it.
#[test]
fn a_busy_mount_names_who_works_in_it_or_maps_a_file() {
    let Some(scratch) = Scratch::for_mount("a_busy_mount_names") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let mut program = Command::new("cat");
    program.current_dir(scratch.dir()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut program = program.spawn().unwrap();
    let works = format!("{} (cat)", program.id());
    novale(&["umount", &scratch.dir()]).refused(1, &["busy", &works]);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    novale(&["umount", &scratch.dir()]).ok();
}

/// A stranger's process called itself so that root's command seemed to say more.
#[test]
fn a_busy_mount_says_a_name_on_one_line() {
    let Some(scratch) = Scratch::for_mount("a_busy_mount_says_a_name") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let mut program = Command::new("sh");
    program.args(["-c", "printf 'x)\\nnovale: ok' > /proc/$$/comm && echo named && read wait"]);
    program.current_dir(scratch.dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut named = [0; 5];
    program.stdout.as_mut().unwrap().read_exact(&mut named).unwrap();
    let works = format!("{} (x)\\u000anovale: ok)", program.id());
    novale(&["umount", &scratch.dir()]).refused(1, &["busy", &works]);
    drop(program.stdin.take());
    program.wait().unwrap();
    novale(&["umount", &scratch.dir()]).ok();
}

#[test]
fn a_signal_unmounts_cuts_off_after_the_grace_time_and_closes_clean() {
    let Some(scratch) = Scratch::for_mount("a_signal_unmounts") else { return };
    let slot = scratch.pool();
    let log = scratch.slot("log");
    novale(&["mount", "--grace", "1", "--log", &log, &slot, &scratch.dir()]).ok();
    let mut open = File::create(scratch.in_dir("open")).unwrap();
    let start = Instant::now();
    let pid = signal_daemon(&slot, Signal::TERM);
    assert!(eventually(|| !scratch.is_mounted()));
    open.write_all(b"within the grace time").unwrap();
    assert!(ends(pid), "the daemon has not ended");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(open.write_all(b"too late").is_err());
    assert!(fs::read_to_string(&log).unwrap().contains("cut off"));
    assert_eq!(facts(&slot)["clean"], true);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("open")).unwrap(), b"within the grace time");
}

#[test]
fn a_dead_mount_is_mounted_over_and_its_pool_recovered() {
    let Some(scratch) = Scratch::for_mount("a_dead_mount_is_mounted_over") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("acknowledged"), b"durable").unwrap();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    // Its attributes may be in the kernel's cache, where somebody looked at it.
    assert!(fs::write(scratch.in_dir("more"), b"").is_err());
    assert!(novale(&["info", &slot]).ok().contains("dead: its daemon is gone"));
    let again = novale(&["mount", &slot, &scratch.dir()]);
    assert!(again.err.contains("is gone; detached"), "{}", again.err);
    assert!(again.err.contains("recovered it: 2 inodes"), "{}", again.err);
    again.ok();
    assert_eq!(fs::read(scratch.in_dir("acknowledged")).unwrap(), b"durable");
    assert_eq!(arenas(&slot).len(), 1, "the dead daemon's arena was replaced");
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    let gone = novale(&["umount", &scratch.dir()]);
    assert!(gone.err.contains("its daemon is gone"), "{}", gone.err);
    gone.ok();
    // It stayed, and with it its memory.
    assert!(!scratch.is_mounted() && arenas(&slot).is_empty());
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
}

/// The kernel had been told that a sync has nothing to do, and dropped what was stored to mappings: it said that it
/// was durable, again and again.
#[test]
fn a_sync_fails_once_nobody_serves_the_mount() {
    let Some(scratch) = Scratch::for_mount("a_sync_fails_once_nobody_serves") else { return };
    let slot = scratch.pool();
    for options in ["rw", "direct", "mode=buffered"] {
        novale(&["mount", "-o", options, &slot, &scratch.dir()]).ok();
        let mut file = File::create(scratch.in_dir("file")).unwrap();
        file.write_all(b"durable").unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        assert!(ends(signal_daemon(&slot, Signal::KILL)));
        assert!(file.sync_all().is_err() && file.sync_data().is_err(), "{options}");
        drop(file);
        novale(&["umount", &scratch.dir()]).ok();
    }
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"durable");
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

#[test]
fn whoever_unmounts_the_pool_is_closed_and_can_be_mounted_again() {
    let Some(scratch) = Scratch::for_mount("whoever_unmounts") else { return };
    let slot = scratch.pool();
    let unmount = || Command::new("umount").arg(scratch.dir()).status().unwrap().success();
    for _ in 0..5 {
        novale(&["mount", &slot, &scratch.dir()]).ok();
        fs::write(scratch.in_dir("file"), b"x").unwrap();
        assert!(unmount());
    }
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert!(unmount());
    novale(&["check", &slot]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    novale(&["umount", &scratch.dir()]).refused(1, &["is not a Novale mount"]);
}

/// The daemon was known by the pool's path: without it, umount called it gone and did not wait.
#[test]
fn umount_waits_for_the_daemon_also_when_the_pool_was_moved_or_removed() {
    let Some(scratch) = Scratch::for_mount("umount_waits_for_the_daemon_also") else { return };
    let (slot, moved) = (scratch.pool(), scratch.slot("moved"));
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("file"), vec![7; 8 << 20]).unwrap();
    fs::rename(&slot, &moved).unwrap();
    let live = facts(&moved);
    assert_eq!(live["mounted_at"][0], scratch.dir().as_str());
    novale(&["check", &moved]).refused(8, &["in use", &scratch.dir(), "novale umount"]);
    let ended = novale(&["umount", &scratch.dir()]);
    assert_eq!(ended.err, "");
    ended.ok();
    let closed = facts(&moved);
    assert!(closed["clean"] == true && closed["used_by"].is_null(), "{closed}");

    novale(&["mount", &moved, &scratch.dir()]).ok();
    let pool = File::open(&moved).unwrap();
    fs::remove_file(&moved).unwrap();
    let ended = novale(&["umount", &scratch.dir()]);
    assert_eq!(ended.err, "");
    ended.ok();
    let lock = rustix::fs::flock(&pool, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(lock, Ok(()), "the daemon was not waited for");
}

#[test]
fn info_tells_of_a_daemon_that_does_not_answer() {
    let Some(scratch) = Scratch::for_mount("info_tells_of_a_daemon") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let stopped = Stopped::daemon_of(&slot);
    let told = novale(&["info", &slot]);
    drop(stopped);
    assert!(told.ok().contains("its daemon does not answer"));
}

/// umount(2) waited for a stopped daemon and could not be killed, and so did `umount --force`, which
/// opened the mount first.
#[test]
fn umount_of_a_daemon_that_does_not_answer_says_so_and_force_cuts_it_off() {
    let Some(scratch) = Scratch::for_mount("umount_of_a_daemon_that_does_not_answer") else {
        return;
    };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("file"), b"kept").unwrap();
    let stopped = Stopped::daemon_of(&slot);
    novale(&["umount", &scratch.dir()]).refused(1, &["has not answered", "--force"]);
    assert!(scratch.is_mounted());
    let mut force = Command::new(env!("CARGO_BIN_EXE_novale"));
    let mut force = force.args(["umount", "--force", &scratch.dir()]).spawn().unwrap();
    assert!(eventually(|| !scratch.is_mounted()));
    drop(stopped);
    assert!(force.wait().unwrap().success());
    assert_eq!(facts(&slot)["clean"], true);
}

/// The arena was looked for by where the pool had been: it took memory until the pool's next mount.
#[test]
fn a_dead_mount_leaves_no_arena_also_when_its_pool_was_moved() {
    let Some(scratch) = Scratch::for_mount("a_dead_mount_leaves_no_arena") else { return };
    let (slot, moved) = (scratch.pool(), scratch.slot("moved"));
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::rename(&slot, &moved).unwrap();
    assert!(ends(signal_daemon(&moved, Signal::KILL)));
    assert_eq!(arenas(&moved).len(), 1);
    novale(&["umount", &scratch.dir()]).ok();
    assert!(arenas(&moved).is_empty());
}

/// A pool was made where another one's clients had been killed: their arena took memory until the machine
/// was started again.
#[test]
fn a_pool_made_over_another_leaves_no_arena_of_that_one() {
    let Some(scratch) = Scratch::for_mount("a_pool_made_over_another") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    let left = arenas(&slot);
    assert_eq!(left.len(), 1);
    novale(&["mkfs", "--force", &slot]).ok();
    assert!(!left[0].exists());
}

/// umount waited ten minutes in silence for a daemon that served the other mount.
#[test]
fn umount_says_when_the_pool_is_mounted_elsewhere_too() {
    let Some(scratch) = Scratch::for_mount("umount_says_when_the_pool_is_mounted_elsewhere") else {
        return;
    };
    let (slot, other) = (scratch.pool(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let bind = Command::new("mount").args(["--bind", &scratch.dir(), &other]).status();
    assert!(bind.unwrap().success());
    novale(&["umount", &scratch.dir()]).refused(1, &["stays open", &other]);
    assert!(!scratch.is_mounted());
    novale(&["umount", &other]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    fs::remove_dir(&other).unwrap();
}

/// umount waited ten minutes for a daemon that another mount namespace kept at work, without a word, and
/// then advised to kill it.
#[test]
fn umount_says_at_once_that_another_namespace_has_the_mount_and_ends_it_there_if_asked() {
    let Some(scratch) = Scratch::for_mount("umount_says_at_once_that") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    for is_mounted_here in [false, true] {
        novale(&["mount", "--grace", "1", &slot, &dir]).ok();
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "--propagation", "private", "sh", "-c"]);
        // Other tests' mounts are not held.
        let script = format!("{}; echo has it; exec sleep 60", support::without_mounts(&dir));
        let mut other = unshare.arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "has it\n");
        let start = Instant::now();
        let mut polite = Command::new(env!("CARGO_BIN_EXE_novale"));
        polite.args(["umount", &dir]).stderr(Stdio::piped());
        // Asked where the mount is gone here, or for the first time.
        let polite = (!is_mounted_here).then(|| {
            let mut polite = polite.spawn().unwrap();
            let mut said = String::new();
            BufReader::new(polite.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
            for word in ["another mount namespace", &format!("{} (", other.id()), &dir, "--force"] {
                assert!(said.contains(word), "'{word}' is missing in: {said}");
            }
            assert!(!scratch.is_mounted() && facts(&slot)["used_by"].is_number());
            polite
        });
        novale(&["umount", "--force", &dir]).ok();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(polite.is_none_or(|mut polite| polite.wait().unwrap().success()));
        let closed = facts(&slot);
        assert!(closed["clean"] == true && closed["used_by"].is_null(), "{closed}");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

/// A daemon that is out of the tree was known by a file in `/dev/shm`; now by its own command line.
#[test]
fn a_pool_that_a_lazy_unmount_has_left_open_is_waited_for_or_cut_off() {
    let Some(scratch) = Scratch::for_mount("a_pool_that_a_lazy_unmount") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    for forced in [false, true] {
        novale(&["mount", "--grace", "1", &slot, &dir]).ok();
        let mut open = File::create(scratch.in_dir("open")).unwrap();
        novale(&["umount", "--lazy", &dir]).ok();
        let mut umount = Command::new(env!("CARGO_BIN_EXE_novale"));
        umount.arg("umount").args(forced.then_some("--force")).arg(&dir);
        let mut umount = umount.spawn().unwrap();
        if !forced {
            std::thread::sleep(Duration::from_millis(500));
            assert!(umount.try_wait().unwrap().is_none(), "it did not wait");
            open.write_all(b"still usable").unwrap();
            drop(open);
        }
        assert!(umount.wait().unwrap().success());
        let closed = facts(&slot);
        assert!(closed["clean"] == true && closed["used_by"].is_null(), "{closed}");
    }
    novale(&["umount", &dir]).refused(1, &["is not a Novale mount"]);
}

/// The daemon opened a log named relative to where it was started in the root directory.
#[test]
fn the_log_is_where_it_was_asked_for_also_by_an_option() {
    let Some(scratch) = Scratch::for_mount("the_log_is_where_it_was_asked_for") else { return };
    let slot = scratch.pool();
    let folder = Path::new(&slot).parent().unwrap();
    for arguments in [["--log", "one.log"], ["-o", "log=two.log,form=two,noatime"]] {
        let mut mount = Command::new(env!("CARGO_BIN_EXE_novale"));
        mount.current_dir(folder).arg("mount").args(arguments).args(["--grace", "0"]);
        assert!(mount.args([&slot, &scratch.dir()]).status().unwrap().success());
        let open = File::create(scratch.in_dir("open")).unwrap();
        assert!(ends(signal_daemon(&slot, Signal::TERM)));
        drop(open);
    }
    for log in ["one.log", "two.log"] {
        let log = folder.join(log);
        assert!(fs::read_to_string(&log).unwrap().contains("cut off"), "{}", log.display());
        fs::remove_file(log).unwrap();
    }
}

/// A dead mount's pool was mounted again elsewhere; umount waited for that other daemon.
#[test]
fn a_dead_mount_goes_without_waiting_for_the_pools_next_daemon() {
    let Some(scratch) = Scratch::for_mount("a_dead_mount_goes_without_waiting") else { return };
    let (slot, other) = (scratch.pool(), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    novale(&["mount", &slot, &other]).ok();
    let gone = novale(&["umount", &scratch.dir()]);
    assert!(gone.err.contains("its daemon is gone"), "{}", gone.err);
    gone.ok();
    assert_eq!(facts(&slot)["mounted_at"][0], other.as_str());
    novale(&["umount", &other]).ok();
    fs::remove_dir(&other).unwrap();
}

#[test]
fn a_damaged_copy_of_the_superblock_is_told_and_rewritten_by_a_mount_for_writing() {
    let Some(scratch) = Scratch::for_mount("a_damaged_copy_of_the_superblock") else { return };
    let slot = scratch.pool();
    let whole = head(&slot);
    patch(&slot, SeekFrom::Start(72), b"damage");
    for (options, then) in
        [("ro", "mounting it for writing rewrites it"), ("rw", "it is rewritten")]
    {
        let mounted = novale(&["mount", "-o", options, &slot, &scratch.dir()]);
        let told = "slot 0: the first copy of the superblock is damaged";
        assert!(mounted.err.contains(told) && mounted.err.contains(then), "{}", mounted.err);
        mounted.ok();
        novale(&["umount", &scratch.dir()]).ok();
    }
    assert!(head(&slot).starts_with(&whole[..1024]));
    novale(&["check", &slot]).ok();
}

#[test]
fn a_read_only_mount_writes_nothing() {
    let Some(scratch) = Scratch::for_mount("a_read_only_mount_writes_nothing") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("file"), b"kept").unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    let before = fs::read(&slot).unwrap();
    novale(&["mount", "-o", "ro", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"kept");
    assert!(fs::write(scratch.in_dir("file"), b"no").is_err());
    novale(&["umount", &scratch.dir()]).ok();
    assert!(fs::read(&slot).unwrap() == before, "a read-only mount changed the pool");

    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    let before = fs::read(&slot).unwrap();
    let shown = novale(&["mount", "-o", "ro", &slot, &scratch.dir()]);
    assert!(shown.err.contains("showing what recovery would leave: 2 inodes"), "{}", shown.err);
    shown.ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"kept");
    novale(&["umount", &scratch.dir()]).ok();
    assert!(fs::read(&slot).unwrap() == before, "a read-only mount recovered the pool");
}

#[test]
fn in_the_foreground_it_says_when_it_is_ready_and_ends_with_a_signal() {
    let Some(scratch) = Scratch::for_mount("in_the_foreground") else { return };
    let slot = scratch.pool();
    let mut command = Command::new(env!("CARGO_BIN_EXE_novale"));
    command.args(["mount", "--foreground", &slot, &scratch.dir()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("mounted ") && line.contains(&scratch.dir()), "{line}");
    assert!(scratch.is_mounted());
    signal_daemon(&slot, Signal::INT);
    assert!(child.wait().unwrap().success());
    output.read_to_string(&mut line).unwrap();
    assert!(line.contains("unmounting") && !scratch.is_mounted(), "{line}");
    assert_eq!(facts(&slot)["clean"], true);
}

#[test]
fn what_cannot_be_mounted_is_said_and_leaves_the_pool_closed() {
    let Some(scratch) = Scratch::for_mount("what_cannot_be_mounted_is_said") else { return };
    let slot = scratch.pool();
    let missing = format!("{}/none", scratch.dir());
    novale(&["mount", &slot, &missing]).refused(1, &[&missing]);
    novale(&["mount", &slot, &slot]).refused(1, &["not a directory"]);
    novale(&["mount", &slot]).refused(1, &["the only path"]);
    let unknown = ["mount", "-o", "rw,data=journal", &slot, &scratch.dir()];
    novale(&unknown).refused(1, &["unknown mount option 'data=journal'", "mount --help"]);
    let tiny = ["mount", "--arena-max", "4K", &slot, &scratch.dir()];
    assert_eq!(novale(&tiny).code, 1);
    novale(&["umount", &scratch.dir()]).refused(1, &["is not a Novale mount"]);
    novale(&["umount", "/proc"]).refused(1, &["one of type proc"]);
    novale(&["umount", &missing]).refused(1, &["the mount point", &missing, "No such file"]);
    assert!(!scratch.is_mounted());
    let left = facts(&slot);
    assert!(left["clean"] == true && left["used_by"].is_null(), "{left}");
    assert!(arenas(&slot).is_empty());
}

/// A listing hands the kernel its directories without a look-up of each; below a remounted pool's
/// root their parents were then unknown, and listing them ended with an error that `ls` hides.
#[test]
fn a_tree_is_whole_when_it_is_first_seen_by_listing() {
    let Some(scratch) = Scratch::for_mount("a_tree_is_whole_when_it_is_first_seen") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::create_dir_all(scratch.in_dir("a/b/c")).unwrap();
    fs::write(scratch.in_dir("a/b/c/file"), b"deep").unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let found = Command::new("find").arg(scratch.dir()).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.lines().count(), 5, "{found}");
    novale(&["umount", &scratch.dir()]).ok();
}

/// The arena had the pool's UUID for a name: the second daemon removed the first one's file.
#[test]
fn a_pool_and_its_copy_have_arenas_of_their_own() {
    let Some(scratch) = Scratch::for_mount("a_pool_and_its_copy") else { return };
    let (slot, copy, other) = (scratch.pool(), scratch.slot("copy"), scratch.slot("other"));
    fs::create_dir(&other).unwrap();
    fs::copy(&slot, &copy).unwrap();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    novale(&["mount", &copy, &other]).ok();
    assert_eq!(arenas(&slot).len(), 2);
    novale(&["umount", &other]).ok();
    assert_eq!(arenas(&slot).len(), 1);
    fs::remove_dir(&other).unwrap();
}

/// The first failure kept the others from being unmounted.
#[test]
fn umount_goes_on_behind_a_failure() {
    let Some(scratch) = Scratch::for_mount("umount_goes_on") else { return };
    let (slot, other) = (scratch.pool(), scratch.slot("other"));
    novale(&["mount", &slot, &scratch.dir()]).ok();
    novale(&["umount", &other, &scratch.dir()]).refused(1, &[&other]);
    assert!(!scratch.is_mounted());
    assert_eq!(facts(&slot)["clean"], true);
}

/// fusermount3 said of it that there is no entry in /etc/mtab.
#[test]
fn whose_mount_it_is_is_told_to_who_may_not_unmount_it() {
    let Some(scratch) = Scratch::for_mount("whose_mount_it_is") else { return };
    if Command::new("fusermount3").arg("-V").output().is_err() {
        println!("skipped: whose_mount_it_is: no fusermount3");
        return;
    }
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    // Everybody may go there, and run the program.
    let folder = Path::new(&slot).parent().unwrap();
    let program = folder.join("novale");
    fs::copy(env!("CARGO_BIN_EXE_novale"), &program).unwrap();
    for open in [folder, Path::new(&scratch.dir()).parent().unwrap(), &program] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut umount = Command::new(&program);
    umount.arg("umount").arg(scratch.dir()).uid(65534).gid(65534);
    let refused = umount.output().unwrap();
    fs::remove_file(&program).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("is the mount of root"), "{said}");
    assert!(scratch.is_mounted());
}

/// It ended with status 0, and the command had said nothing or that all was well.
#[test]
fn a_mount_whose_threads_get_no_descriptors_is_refused() {
    let Some(scratch) = Scratch::for_mount("a_mount_whose_threads_get_no_descriptors") else {
        return;
    };
    let slot = scratch.pool();
    let (pool, dir) = (slot.as_str(), scratch.dir());
    for way in ["--foreground", "--quiet"] {
        let program = program();
        let mount = format!(
            "ulimit -n 48; exec '{}' mount --threads 64 {way} {pool} {dir}",
            program.display()
        );
        let output = Command::new("/bin/sh").args(["-c", &mount]).output().unwrap();
        Outcome::of(&output).refused(1, &["Too many open files"]);
        assert!(!scratch.is_mounted());
        assert!(facts(&slot)["clean"] == true && arenas(&slot).is_empty());
    }
}

/// The mount stayed, dead, and the pool open.
#[test]
fn a_daemon_whose_command_is_gone_leaves_no_mount() {
    let Some(scratch) = Scratch::for_mount("a_daemon_whose_command_is_gone") else { return };
    let slot = scratch.pool();
    let mut daemon = Command::new(program());
    daemon.args(["mount", "--daemon", "--", &slot, &scratch.dir()]);
    let (listener, says) = std::io::pipe().unwrap();
    drop(listener);
    let output = daemon.stdin(Stdio::null()).stdout(says).stderr(Stdio::piped()).output();
    Outcome::of(&output.unwrap()).refused(1, &["Broken pipe"]);
    assert!(!scratch.is_mounted());
    assert!(facts(&slot)["clean"] == true && arenas(&slot).is_empty());
}
