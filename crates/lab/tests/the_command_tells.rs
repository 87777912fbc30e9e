//! The promise: `novale-lab` says what it found in a form that a program can read, by its exit code
//! too, and tells what is wrong with a file or a name that it is given.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use novale_lab::campaign::{Case, How, WORKLOADS, parse_replay, print_replay};
use rustix::process::{Pid, Signal, kill_process};

fn lab(arguments: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let program = env!("CARGO_BIN_EXE_novale-lab");
    let Output { status, stdout, stderr } =
        Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Each command whose `--json` is read by programs.
#[test]
fn a_run_is_one_json_object_and_its_progress_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let object = |arguments: &[&str], codes: &[i32]| {
        let (code, out, err) = lab(arguments, folder.path());
        assert!(codes.contains(&code.unwrap()), "{arguments:?}: {out}{err}");
        let object: serde_json::Value = serde_json::from_str(&out).unwrap();
        for key in ["violations", "seconds", "seed"] {
            assert!(object[key].is_number(), "{key} in {object}");
        }
        // Standard error is no terminal here: at least one plain line.
        assert!(err.lines().any(|line| line.starts_with("novale-lab: ")), "{arguments:?}: {err}");
        assert!(!err.contains('\u{1b}'), "{err}");
        assert_eq!(object["violations"], 0, "{object}");
        object
    };
    let run = ["run", "--json", "--workload", "names", "--threads", "2", "--sequences", "9"];
    let ran = object(&run, &[0]);
    assert!(ran["crash_states"].as_u64().unwrap() > 100 && ran["sequences"] == 9, "{ran}");
    assert!(ran["points_passed"].as_u64().unwrap() > 10, "{ran}");
    let bugs = object(&["bugs", "--json", "--bug", "shown-early", "--bug", "lane-order"], &[0]);
    assert!(bugs["crash_states"].as_u64().unwrap() > 10 && bugs["caught"] == 2, "{bugs}");
    let images = object(&["images", "--json", "--images", "9", "--threads", "2"], &[0]);
    assert_eq!(images["images"], 18, "{images}");
    let clients = object(&["clients", "--json", "--deaths", "5"], &[0]);
    assert!(clients["deaths"].as_u64().unwrap() >= 5, "{clients}");
    let mutants = object(&["mutants", "--json", "--trials", "90", "--threads", "1"], &[0]);
    assert_eq!(mutants["trials"], 90, "{mutants}");
    // What is asked for by its number, and not done in the time, is incomplete.
    for arguments in [
        ["run", "--json", "--workload=long", "--sequences=99999", "--seconds=1"],
        ["images", "--json", "--threads=1", "--images=99999999", "--seconds=1"],
        ["clients", "--json", "--processes=2", "--deaths=99999999", "--seconds=1"],
        ["mutants", "--json", "--threads=1", "--trials=99999999", "--seconds=1"],
    ] {
        object(&arguments, &[3]);
    }
}

/// A bug that its sequence does not catch is a violation, also for who reads the object alone.
#[test]
fn a_missed_bug_is_a_violation() {
    let (code, out, _) = lab(&["bugs", "--canary", "--json"], Path::new("/"));
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &object["violations"]), (Some(1), &1.into()), "{object}");
}

/// A second run of mutants begins with what the first one caught; what is no such file is refused.
#[test]
fn what_mutants_caught_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        let trials = ["mutants", "--json", "--trials=90", "--threads=1", "--keep=kept"];
        let (code, out, err) = lab(&trials, folder.path());
        (code, serde_json::from_str::<serde_json::Value>(&out).unwrap_or_default(), err)
    };
    let (code, first, err) = run();
    assert_eq!((code, &first["kept"]), (Some(0), &0.into()), "{first} {err}");
    let (code, second, err) = run();
    assert_eq!((code, &second["kept"]), (Some(0), &first["caught"]), "{second} {err}");
    assert!(first["caught"].as_u64().unwrap() > 30, "{first}");
    assert!(second["caught"].as_u64() > first["caught"].as_u64(), "{second}");
    std::fs::write(folder.path().join("kept"), "no such thing").unwrap();
    let (code, _, err) = run();
    assert!(code == Some(2) && err.contains("kept"), "{code:?} {err}");
}

/// No threads, no time: such a run said that nothing was wrong.
#[test]
fn a_run_that_would_try_nothing_is_refused() {
    for arguments in [
        ["run", "--seconds=0"],
        ["run", "--threads=0"],
        ["run", "--violations=0"],
        ["images", "--threads=0"],
        ["mutants", "--seconds=0"],
        ["mutants", "--threads=0"],
        ["clients", "--seconds=0"],
        ["clients", "--processes=0"],
        ["clients", "--deaths=0"],
        ["bugs", "--find=0"],
        ["bugs", "--threads=0"],
    ] {
        let (code, out, err) = lab(&arguments, Path::new("/"));
        let (option, _) = arguments[1].split_once('=').unwrap();
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        let told = err.lines().next().unwrap();
        assert!(told.contains("invalid value '0'") && told.contains(option), "{err}");
    }
    let (code, out, err) = lab(&["images", "--seconds=0"], Path::new("/"));
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("name one with --corpus"), "{err}");
}

/// `clients` had a pool and an arena of half a gigabyte each in /dev/shm, and the one who ended it by a
/// signal had them there for good.
#[test]
fn a_signal_ends_it_with_what_was_found_and_nothing_left() {
    let folder = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let in_use = || std::fs::read_dir(memory.path()).unwrap().count();
    let memory_name = memory.path().to_str().unwrap();
    let clients = ["clients", "--seconds", "600", "--memory", memory_name, "--json"];
    let run = ["run", "--seconds", "600", "--threads", "1", "--json"];
    let mutants = ["mutants", "--seconds", "600", "--threads", "1", "--json"];
    let bugs = ["bugs", "--json"];
    let images = ["images", "--seconds", "600", "--threads", "2", "--json"];
    for (arguments, signal, code) in [
        (&clients[..], Signal::TERM, 143),
        (&clients, Signal::INT, 130),
        (&run, Signal::TERM, 143),
        (&mutants, Signal::INT, 130),
        (&bugs, Signal::TERM, 143),
        (&images, Signal::INT, 130),
    ] {
        let child = Command::new(env!("CARGO_BIN_EXE_novale-lab"))
            .args(arguments)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        // The last one that is taken over: those of the others are whole by then.
        wait_until(|| is_caught(pid, Signal::HUP) && (arguments[0] != "clients" || in_use() > 0));
        kill_process(pid, signal).unwrap();
        let Output { status, stdout, .. } = child.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
        let object: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        if arguments[0] == "bugs" {
            assert!(object["untried"].as_u64().unwrap() > 0, "{object}");
        } else {
            assert_eq!(object["violations"], 0, "{object}");
        }
        assert!(object["seconds"].as_f64().unwrap() < 300.0, "{object}");
        assert_eq!(in_use(), 0, "{arguments:?}");
    }
}

/// Whether a process has a handler for a signal.
fn is_caught(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

#[test]
fn every_workload_is_listed_with_what_it_is() {
    let (code, out, _) = lab(&["list"], Path::new("/"));
    assert_eq!((code, out.lines().count()), (Some(0), WORKLOADS.len()));
    for (line, workload) in out.lines().zip(WORKLOADS) {
        assert!(line.starts_with(workload.name) && line.ends_with(workload.what), "{line}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let How::Each(make) = WORKLOADS[0].how else { unreachable!("the first is exhaustive") };
    let (case, _) = make(3);
    let good = print_replay(&case, "found\nthis");
    file("none", "create /a\n");
    file("missing", &good.replace(" lanes=1", ""));
    file("unknown", &good.replace(" lanes=1", " lanes=1 lames=1"));
    file("number", &good.replace("lanes=1", "lanes=x"));
    file("twice", &good.replace(" lanes=1", " lanes=1 lanes=1"));
    file("lanes", &good.replace("lanes=1", "lanes=0"));
    file("slots", &good.replace("slots=3145728", "slots=4096"));
    file("huge", &good.replace("slots=3145728", "slots=1099511627776"));
    file("flag", &good.replace("eadr=0", "eadr=7"));
    file("subsets", &good.replace("subset_lines_max=12", "subset_lines_max=60"));
    let from = format!("from_step={}", case.options.from_step);
    file("from", &good.replace(&from, "from_step=999"));
    let too_far = format!("from_step=999, but there are {} steps", case.steps.len());
    file("len", &format!("{good}write /a offset=0 len=4000000000 fill=1\n"));
    file("step", &format!("{good}frobnicate /a\n"));
    file("name", &format!("{good}unlink /n*100000000000\n"));
    file("empty", good.split_inclusive('\n').nth(2).unwrap());
    let lines = good.lines().count();
    let unknown_step = format!("line {}: ", lines + 1);
    for (arguments, reason) in [
        (vec!["replay", "absent"], "read absent: No such file"),
        (vec!["replay", "none"], "none: it has no line of options"),
        (vec!["replay", "missing"], "missing: line 3: lanes= is missing"),
        (vec!["replay", "unknown"], "unknown: line 3: lames= is no option"),
        (vec!["replay", "number"], "number: line 3: lanes=x is no number from 0 to"),
        (vec!["replay", "twice"], "twice: line 3: lanes= is there twice"),
        (vec!["replay", "lanes"], "line 3: slots=3145728 lanes=0: "),
        (vec!["replay", "slots"], "line 3: slots=4096 lanes=1: "),
        (vec!["replay", "huge"], "line 3: slots=1099511627776 is no number from 4096 to"),
        (vec!["replay", "flag"], "line 3: eadr=7 is no number from 0 to 1"),
        (vec!["replay", "subsets"], "line 3: subset_lines_max=60 is no number from 0 to 16"),
        (vec!["replay", "from"], too_far.as_str()),
        (vec!["replay", "len"], "len=4000000000 is more than"),
        (vec!["replay", "step"], unknown_step.as_str()),
        (vec!["replay", "name"], "n*100000000000 is more than 65536 bytes"),
        (vec!["replay", "empty"], "empty: it has no steps"),
        (vec!["run", "--workload", "nonsense"], "no workload `nonsense`"),
        (vec!["run", "--out", "absent"], "absent is no directory"),
        (vec!["clients", "--out", "absent"], "absent is no directory"),
        (vec!["clients", "--mount", "absent"], "no program absent"),
        (vec!["clients", "--memory", "absent"], "a folder in absent"),
        (vec!["images", "--out", "absent"], "absent is no directory"),
        (vec!["run", "--out", "/proc"], "write to /proc: "),
    ] {
        let (code, out, err) = lab(&arguments, folder.path());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.starts_with("novale-lab: ") && err.contains(reason), "{arguments:?}: {err}");
    }
    for arguments in [
        ["run", "--seconds", "18446744073709551615"],
        ["mutants", "--seconds", "18446744073709551615"],
        ["clients", "--seconds", "18446744073709551615"],
        ["images", "--seconds", "18446744073709551615"],
        ["bugs", "--find", "18446744073709551615"],
        ["bugs", "--canary", "--find=1"],
    ] {
        let (code, out, err) = lab(&arguments, folder.path());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
    }
    file("good", &good);
    let (code, out, _) = lab(&["replay", "good"], folder.path());
    assert_eq!(code, Some(0), "{out}");
    assert!(out.starts_with("no violation in "), "{out}");
}

/// What `run` leaves of a violation is short, and is one as long as the fault is there, and no longer.
#[test]
fn a_violation_leaves_a_short_sequence_that_shows_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let bug = "--bug=identity-not-flushed";
    // It ends with the first one, long before its time.
    let run = [
        "run",
        bug,
        "--workload=names",
        "--seconds=600",
        "--threads=1",
        "--violations=1",
        "--json",
    ];
    let (code, out, err) = lab(&run, folder.path());
    assert_eq!(code, Some(1), "{out}{err}");
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    let files: Vec<&str> =
        object["replay_files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert_eq!(files.len() as u64, object["violations"].as_u64().unwrap());
    for file in files {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.starts_with("# step "), "{text}");
        assert!(parse_replay(&text).unwrap().steps.len() <= 6, "{text}");
        let (code, out, _) = lab(&["replay", bug, file], folder.path());
        assert_eq!(code, Some(1), "{text}{out}");
        let (code, out, _) = lab(&["replay", file], folder.path());
        assert_eq!(code, Some(0), "{text}{out}");
    }
}

#[test]
fn a_replay_file_holds_all_of_a_case() {
    for workload in WORKLOADS {
        for seed in [0, 3, 11] {
            let case: Case = match workload.how {
                How::Each(make) => make(seed * 31 % make(0).1).0,
                How::Drawn(make) | How::Guided(make) => make(seed),
            };
            let read = parse_replay(&print_replay(&case, "a failure\n# of two lines"));
            assert_eq!(read.unwrap(), case, "{}", workload.name);
        }
    }
}
