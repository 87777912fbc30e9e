//! Promise: a program that starts under `novale run` and touches no file of a mount has few page faults more than
//! without it: they are nearly all that it costs.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

mod harness;

use std::process::Command;

use harness::{PLACE, is_whole, mounted, succeeds, task};

/// Page faults more, at most. It had 42 when its functions stood anywhere in the library and what it kept was
/// memory from a heap, and 29 when what they write to did; without optimisation, which inlines none of them, 99. A debug
/// build, whose functions lie apart, has 91 of late.
const MORE_MAX: u64 = if cfg!(debug_assertions) { 96 } else { 28 };

#[test]
fn programs_that_use_no_mount() {
    let Some((scratch, slot)) = mounted("programs_that_use_no_mount") else { return };
    let said = |output: &std::process::Output| {
        let text = succeeds(output);
        let line = text.lines().find_map(|line| line.split_once("faults: ")).unwrap();
        line.1.trim().parse::<u64>().unwrap()
    };
    let direct = said(&task(&scratch, "starts").output().unwrap());
    let mut plain = Command::new(std::env::current_exe().unwrap());
    plain.args(["--exact", "tasks::starts", "--ignored", "--nocapture"]).env(PLACE, scratch.dir());
    let plain = said(&plain.output().unwrap());
    assert!(direct > plain, "the library is in use");
    assert!(direct - plain <= MORE_MAX, "{} more", direct - plain);
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::process::Command;

    fn faults_of_children() -> i64 {
        let mut used = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, used.as_mut_ptr()) }, 0);
        unsafe { used.assume_init() }.ru_minflt
    }

    #[test]
    #[ignore = "a task of another test"]
    #[allow(clippy::print_stdout, reason = "what its test reads")]
    fn starts() {
        // The first finds what the others keep.
        let each = (0..9).map(|_| {
            let before = faults_of_children();
            assert!(Command::new("/bin/true").status().unwrap().success());
            faults_of_children() - before
        });
        let mut each: Vec<i64> = each.collect();
        each.sort_unstable();
        println!("faults: {}", each.get(each.len() / 2).unwrap());
    }
}
