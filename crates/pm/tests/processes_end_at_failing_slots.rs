//! The promise: a process that is to end at the first fault in a pool says why, and ends, before anything that comes
//! after the fault is done.

#![allow(clippy::unwrap_used, reason = "a test stops at what fails")]

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use novale_layout::PmAddr;
use novale_pm::{Ending, Pm, PmOptions, SlotSpec, end_at_failing_slots};

const NAME: &str = "it_says_why_and_does_nothing_more";
const SLOT: &str = "NOVALE_TEST_SLOT";

#[test]
fn it_says_why_and_does_nothing_more() {
    if let Some(path) = std::env::var_os(SLOT) {
        return child(PathBuf::from(path));
    }
    let dir = tempfile::tempdir().unwrap();
    let (slot, me) = (dir.path().join("slot"), std::env::current_exe().unwrap());
    let ended = Command::new(me).args([NAME, "--exact", "--nocapture"]).env(SLOT, &slot).output();
    let ended = ended.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), said.contains("the slot failed")), (Some(7), true), "{said}");
    assert!(String::from_utf8_lossy(&ended.stdout).ends_with("{}"), "{ended:?}");
    assert!(!slot.with_extension("more").exists(), "it went on");
}

fn child(path: PathBuf) {
    let file = File::create_new(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    end_at_failing_slots(Ending { words: "the slot failed\n", answer: "{}", code: 7 }).unwrap();
    let more = path.with_extension("more");
    let pm = Pm::open(&[SlotSpec { path }], &PmOptions::default()).unwrap();
    file.set_len(4096).unwrap();
    let _zeros = pm.load_u64(PmAddr::new(0, 8192));
    File::create(more).unwrap();
}
