//! Promise: what a program under `novale run` writes is counted exactly beside what goes through the mount,
//! and stays counted when the program is killed.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]

mod harness;

use std::fs;
use std::process::Command;

use harness::{is_whole, mounted, succeeds, task};
use serde_json::Value;

/// Writes and bytes of each kind of request that there was.
fn asked(slot: &str) -> Vec<(String, u64, u64)> {
    let mut command = Command::new(harness::support::program());
    let output = command.args(["stats", "--json", slot]).output().unwrap();
    let stats: Value = serde_json::from_str(&succeeds(&output)).unwrap();
    let of = |(how, asked): (&String, &Value)| {
        (how.clone(), asked["writes"].as_u64().unwrap(), asked["bytes"].as_u64().unwrap())
    };
    let all = stats["asked"].as_object().unwrap().iter().map(of);
    all.filter(|(_, writes, _)| *writes > 0).collect()
}

#[test]
fn also_when_they_are_killed() {
    let Some((scratch, slot)) = mounted("also_when_they_are_killed") else { return };
    fs::write(scratch.in_dir("mounted"), [1; 70]).unwrap();
    assert_eq!(asked(&slot), [("append".to_owned(), 1, 70)]);
    for round in 1..4 {
        let output = task(&scratch, "writes_and_dies").output().unwrap();
        assert!(!output.status.success(), "it kills itself");
        let append = ("append".to_owned(), 1 + round * 5, 70 + round * 5000);
        let paired = ("paired".to_owned(), round * 20, round * 20 * 64);
        assert_eq!(asked(&slot), [append, paired]);
    }
    is_whole(&scratch, &slot);
}

/// What the programs do that are run directly.
mod tasks {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use std::path::PathBuf;

    use super::harness::PLACE;

    #[test]
    #[ignore = "a task of another test"]
    fn writes_and_dies() {
        let threads: Vec<_> = (0..5)
            .map(|thread| {
                std::thread::spawn(move || {
                    let place = PathBuf::from(std::env::var(PLACE).unwrap());
                    let path = place.join(format!("{}-{thread}", std::process::id()));
                    let mut file = File::create_new(path).unwrap();
                    file.write_all(&[1; 1000]).unwrap();
                    for _ in 0..4 {
                        file.write_all_at(&[2; 64], 128).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .unwrap();
    }
}
