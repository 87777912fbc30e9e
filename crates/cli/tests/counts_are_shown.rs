//! Promise: `novale stats` shows exactly what all clients of a pool were asked for and stored, while it is
//! open, and to nobody but its user.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use novale_posix::Files;
use novale_posix::join::{self, Joined};
use rustix::process::Signal;
use serde_json::Value;
use support::{Scratch, alone, ends, eventually, novale, program, signal_daemon};

/// Set for a client that is a process of its own: the slot.
const CHILD: &str = "NOVALE_TEST_CHILD";

fn client(slot: &str) -> Joined {
    join::join(&[PathBuf::from(slot)]).unwrap()
}

fn stats(slot: &str) -> Value {
    serde_json::from_str(&novale(&["stats", "--json", slot]).ok()).unwrap()
}

/// How often and how many bytes were asked for in a way.
fn asked(stats: &Value, how: &str) -> (u64, u64) {
    let of = |key: &str| stats["asked"][how][key].as_u64().unwrap();
    (of("writes"), of("bytes"))
}

/// A sum, by its key.
fn sum(stats: &Value, key: &str) -> u64 {
    stats[key].as_u64().unwrap()
}

/// Lines stored for a purpose.
fn lines(stats: &Value, purpose: &str) -> u64 {
    sum(&stats["stored"][purpose], "lines")
}

/// Not a test of its own: the client that [`what_all_clients_count_is_added_up_and_stays`] kills.
#[test]
fn counting_client() {
    let Ok(slot) = std::env::var(CHILD) else { return };
    let files = Files::new(client(&slot).fs);
    files.write_file("child", &[1; 100]).unwrap();
    println!("attached");
    std::thread::park();
}

#[test]
fn what_all_clients_count_is_added_up_and_stays() {
    let Some(scratch) = Scratch::for_mount("what_all_clients_count") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct", &slot, &scratch.dir()]).ok();
    // Through the mount.
    let mut file = File::create(scratch.in_dir("file")).unwrap();
    file.write_all(&vec![1; 8192]).unwrap();
    file.write_all_at(&[2; 64], 640).unwrap();
    let before = stats(&slot);
    file.write_all_at(&[3; 64], 640).unwrap();
    let after = stats(&slot);
    let grown = |key: &str| sum(&after, key) - sum(&before, key);
    assert_eq!(asked(&after, "append"), (1, 8192));
    assert_eq!(asked(&after, "paired"), (2, 128));
    // 64 bytes over others: the line, an entry and a commit line, past the caches.
    assert_eq!((grown("bytes_asked"), grown("bytes_stored"), grown("lines")), (64, 192, 3));
    assert_eq!((grown("lines_streamed"), grown("write_backs")), (3, 0));
    for purpose in ["data", "log", "commit"] {
        assert_eq!(lines(&after, purpose) - lines(&before, purpose), 1, "{purpose}");
    }
    // Of a client of the library, also when it is killed.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "counting_client", "--nocapture"]).env(CHILD, &slot);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap().contains("attached")));
    let living = stats(&slot);
    assert_eq!(asked(&living, "append"), (2, 8292));
    assert_eq!(living["clients"].as_array().unwrap().len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| stats(&slot)["clients"].as_array().unwrap().len() == 1));
    let dead = stats(&slot);
    assert_eq!(dead["asked"], living["asked"]);
    // The daemon may have settled for it.
    assert!(lines(&dead, "data") == lines(&living, "data"));
    // The next client counts on where that one did.
    let joined = client(&slot);
    Files::new(joined.fs.clone()).write_file("other", &[1; 50]).unwrap();
    joined.close().unwrap();
    drop(joined);
    let all = stats(&slot);
    assert_eq!(asked(&all, "append"), (3, 8342));
    let amplification = all["write_amplification"].as_f64().unwrap();
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let expected = sum(&all, "bytes_stored") as f64 / sum(&all, "bytes_asked") as f64;
    assert!((amplification - expected).abs() < 1e-6);
    let told = novale(&["stats", &slot]).ok();
    for words in ["8.2 KiB in 5 writes", "paired", "in 3 writes", "fences", "commit"] {
        assert!(told.contains(words), "'{words}' is missing in:\n{told}");
    }
}

#[test]
fn they_are_there_as_long_as_the_pool_is_open() {
    let Some(scratch) = Scratch::for_mount("they_are_there_as_long") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["stats", &slot]).refused(1, &["nobody has the pool open"]);
    // A mount that shares the pool with nobody.
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("file"), [1; 100]).unwrap();
    assert_eq!(asked(&stats(&slot), "append"), (1, 100));
    // Intervals, until it is closed.
    let mut command = Command::new(program());
    command.args(["stats", "--watch", "--json", &slot]).stdout(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let output = BufReader::new(watch.stdout.take().unwrap());
    let mut writes = 0;
    for line in output.lines() {
        let interval: Value = serde_json::from_str(&line.unwrap()).unwrap();
        writes += sum(&interval, "writes");
        if interval["clients"].as_array().unwrap().is_empty() {
            break;
        }
        if writes == 0 {
            fs::write(scratch.in_dir("other"), [1; 100]).unwrap();
        } else {
            novale(&["umount", &scratch.dir()]).ok();
        }
    }
    assert_eq!(writes, 1);
    assert!(watch.wait().unwrap().success());
    // In words each line says by which method, too.
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let mut watch = Command::new(program());
    watch.args(["stats", "--watch", &slot]).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // Each interval has at least a write, once the first was begun.
    let told = std::iter::repeat_with(|| {
        fs::write(scratch.in_dir("file"), [1; 100]).unwrap();
        lines.next().unwrap().unwrap()
    });
    let told = told.take(9).find(|line| !line.starts_with("writes 0,")).unwrap();
    assert!(told.contains("append),"), "{told}");
    novale(&["umount", &scratch.dir()]).ok();
    lines.for_each(drop);
    assert!(watch.wait().unwrap().success());
    // Of a daemon that was killed they stay until the next mount.
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::write(scratch.in_dir("file"), [1; 200]).unwrap();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    assert_eq!(asked(&stats(&slot), "append"), (1, 200));
    assert!(novale(&["stats", &slot]).ok().contains("died"));
    novale(&["umount", &scratch.dir()]).ok();
}

/// Another user's arena may say anything: neither is it read, nor can a user read root's.
#[test]
fn another_users_are_not_believed() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let Some(scratch) = Scratch::for_mount("another_users_are_not_believed") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct", &slot, &scratch.dir()]).ok();
    let arena = support::arenas(&slot).remove(0);
    chown(&arena, Some(65534), Some(65534)).unwrap();
    novale(&["stats", &slot]).refused(1, &["another user's"]);
    chown(&arena, Some(0), Some(0)).unwrap();
    fs::set_permissions(&arena, fs::Permissions::from_mode(0o666)).unwrap();
    novale(&["stats", &slot]).refused(1, &["another user's"]);
    fs::set_permissions(&arena, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(stats(&slot)["writes"], 0);
}
