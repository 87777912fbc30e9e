//! Promise: `novale run --report` tells of each call on a mount's files which way it went, with its bytes,
//! and through the mount why; and ends as the program does.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "JSON by key; what is missing is null")]
#![allow(unsafe_code, reason = "a mapping")]

mod harness;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use harness::support::Scratch;
use harness::{PLACE, is_whole, mounted};
use novale_posix::report::{BYTES, MAGIC};
use serde_json::Value;

/// Runs a program and returns what it came to, with the report.
fn reported(scratch: &Scratch, program: &Path, arguments: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report");
    let mut command = Command::new(harness::support::program());
    command.env("NOVALE_PRELOAD", harness::library()).env(PLACE, scratch.dir());
    command.arg("run").arg(format!("--report={}", file.display()));
    command.args(["--mount", &scratch.dir(), "--"]).arg(program).args(arguments);
    let output = command.output().unwrap();
    (output, serde_json::from_slice(&fs::read(file).unwrap()).unwrap())
}

/// Calls and bytes of a call that went one way.
fn counted(report: &Value, call: &str, why: Option<&str>) -> (u64, u64) {
    let all = report["calls"].as_array().unwrap();
    let is_it = |row: &&Value| {
        let says = row["why"].as_str();
        row["call"] == call
            && says.is_some() == why.is_some()
            && says.unwrap_or_default().contains(why.unwrap_or_default())
    };
    let mut rows = all.iter().filter(is_it);
    let row = rows.next();
    assert!(rows.next().is_none(), "{report:#}");
    row.map_or((0, 0), |row| (row["calls"].as_u64().unwrap(), row["bytes"].as_u64().unwrap()))
}

/// The run had ended, and what its path led to by then was another's, who made it shorter: programs were ended.
#[test]
fn what_may_become_shorter_is_no_report() {
    let Some((scratch, slot)) = mounted("what_may_become_shorter") else { return };
    let other = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    fs::write(other.path(), &bytes).unwrap();
    let mut touch = harness::direct(&scratch, Path::new("touch"));
    touch.env("NOVALE_REPORT", other.path()).arg(scratch.in_dir("file"));
    harness::succeeds(&touch.output().unwrap());
    assert!(scratch.in_dir("file").exists());
    assert!(fs::read(other.path()).unwrap() == bytes, "it has counted there");
    is_whole(&scratch, &slot);
}

#[test]
fn each_call_is_told_with_its_way() {
    let Some((scratch, slot)) = mounted("each_call_is_told_with_its_way") else { return };
    let outside = tempfile::tempdir().unwrap();
    let link = outside.path().join("link");
    symlink(scratch.in_dir("file"), &link).unwrap();
    let task = std::env::current_exe().unwrap();
    let link = link.to_str().unwrap();
    let given = ["--exact", "tasks::calls", "--ignored", "--nocapture", "--skip", link];
    let (output, report) = reported(&scratch, &task, &given);
    harness::succeeds(&output);
    assert_eq!(report["programs_begun"], 1);
    assert_eq!(counted(&report, "write", None), (4, 3010), "{report:#}");
    assert_eq!(counted(&report, "pread64", None), (1, 500));
    assert_eq!(counted(&report, "openat", Some("outside")), (1, 0));
    assert_eq!(counted(&report, "mmap", Some("mapped")), (1, 4096));
    assert_eq!(counted(&report, "write", Some("mapped")), (1, 7));
    assert_eq!(counted(&report, "unlink", None), (1, 0));
    assert_eq!(counted(&report, "mkdir", None).0, 0, "none was made");
    is_whole(&scratch, &slot);
}

#[test]
fn programs_that_are_not_served_are_named() {
    let Some((scratch, slot)) = mounted("programs_that_are_not_served") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("static");
    // A program without an interpreter, as far as its first bytes tell; the kernel refuses to run it.
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(64, 0);
    (head[18], head[32], head[54]) = (62, 64, 56);
    fs::write(&program, head).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = program.to_str().unwrap();
    let script = format!("exec 2>/dev/null; {path}; {path}; exit 7");
    let (output, report) = reported(&scratch, Path::new("bash"), &["-c", &script]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(report["not_served"][0]["program"], path, "{report:#}");
    assert!(report["not_served"][0]["starts"].as_u64() >= Some(2), "{report:#}");
    let (output, _) = reported(&scratch, Path::new("bash"), &["-c", "kill -USR1 $$"]);
    assert_eq!(output.status.signal(), Some(rustix::process::Signal::USR1.as_raw()));
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use super::PLACE;

    #[test]
    #[ignore = "a task of another test"]
    fn calls() {
        let place = PathBuf::from(std::env::var(PLACE).unwrap());
        let link = std::env::args().next_back().unwrap();
        let path = place.join("file");
        let mut file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        for _ in 0..3 {
            file.write_all(&[1; 1000]).unwrap();
        }
        file.read_exact_at(&mut [0; 500], 0).unwrap();
        let mut by_link = File::options().write(true).open(Path::new(&link)).unwrap();
        by_link.write_all(&[2; 10]).unwrap();
        let access = rustix::mm::ProtFlags::READ;
        let how = rustix::mm::MapFlags::SHARED;
        // SAFETY: a mapping that nobody uses.
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, access, how, &file, 0) }.unwrap();
        file.write_all(&[3; 7]).unwrap();
        fs::remove_file(path).unwrap();
    }
}
