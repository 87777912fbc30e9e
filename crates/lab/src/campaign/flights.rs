//! Sequences of flights: steps that several clients have in flight together, on few names and files.

use std::fmt::Write as _;
use std::ops::Range;

use fastrand::Rng;
use novale_core::{Form, UpdatePolicy};

use super::drawn::{MB, around_dead, random_on};
use super::workloads::Case;
use crate::crash::Effort;
use crate::workload::{Action, Path, Step, Target, parse_steps};

/// Steps of a flight at most, and flights of a sequence.
const FLIGHT: u32 = 4;
const FLIGHTS: usize = 8;
const FILE: &str = "kind=file mode=755 uid=0 gid=0 rdev=0 target=%";

/// Operations of two or three clients in flight together, on few names in two directories and on two
/// files that are held; in every other sequence clients die among them.
pub(super) fn in_flight(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let mut text = String::new();
    for (path, kind) in [("/a", "directory"), ("/b", "directory"), ("/F", "file"), ("/b/F", "file")]
    {
        writeln!(text, "create {path} kind={kind} mode=755 uid=0 gid=0 rdev=0 target=%")
            .unwrap_or_default();
    }
    text.push_str("hold /F slot=0\nhold /b/F slot=1\nwrite @0 offset=0 len=9000 fill=1\n");
    if random.u32(0..3) == 0 {
        // The log grows from four pages in flight, and a dead one is taken out of it.
        let dead = random.u32(100..122)..random.u32(192..210);
        around_dead(&mut text, "@0", false, random.u32(230..252), &dead);
    }
    let mut made = Vec::new();
    for _ in 0..random.usize(0..40) {
        writeln!(text, "{}", flying(&mut random, &mut made, 0..30)).unwrap_or_default();
    }
    let from_step = text.lines().count();
    for _ in 0..FLIGHTS {
        text.push_str("compare\n");
        let kinds = random.choice(KINDS).unwrap_or(0..30);
        for _ in 0..random.u32(2..=FLIGHT) {
            writeln!(text, "{}", flying(&mut random, &mut made, kinds.clone())).unwrap_or_default();
        }
        if random.u32(0..12) == 0 {
            text.push_str("remount\nhold /F slot=0\nhold /b/F slot=1\n");
        }
    }
    let form = if random.bool() { Form::Auto } else { Form::Two };
    let mut case = random_on(seed, form, vec![4 * MB]);
    case.steps = parse_steps(&text).unwrap_or_default();
    let options = &mut case.options;
    options.core.lanes = random.u32(1..=3);
    options.core.update =
        random.choice(UpdatePolicy::ALL).filter(|_| random.bool()).unwrap_or_default();
    (options.from_step, options.clients) = (from_step, random.usize(2..=3));
    options.dies_one_in = random.choice([0, 1, 2]).unwrap_or(0);
    (options.effort, options.nested_one_in) = (Effort::default(), 400);
    case
}

/// The same on two slots, of which the last is emptied beside them, or pages move between them.
pub(super) fn leaving(seed: u64) -> Case {
    let file = |n| format!("create /w{n} {FILE}\nappend /w{n} len=5000 fill=1\n");
    let mut case = in_flight(seed).with_past(&(0..6).map(file).collect::<String>());
    let (core, mut random) = (&mut case.options.core, Rng::with_seed(!seed));
    (core.slots, core.lanes) = (vec![2 * MB; 2], 2);
    let (flights, target) = (case.steps.split_off(case.options.from_step), Path::default());
    for step in flights.into_iter().take(12) {
        let action = Action::Leave { stays: random.choice([0, 0, 0, 1, 2, 3]).unwrap_or(0) };
        let leave = Step::On { target: Target::Path(target.clone()), action };
        let then = (step == Step::Compare).then_some(leave);
        case.steps.extend([step].into_iter().chain(then));
    }
    case
}

/// A step that can be in flight with others like it. `made`: names that may be there, the latest last.
fn flying(random: &mut Rng, made: &mut Vec<String>, kinds: Range<u32>) -> String {
    let slot = random.u32(0..2);
    let (offset, fill) = (random.u32(0..3) * 4096 + random.u32(0..3) * 100, random.u32(1..250));
    let len = random.choice([8, 300, 4096, 8192, 9000]).unwrap_or(1);
    let letter = if random.u32(0..4) == 0 { 'd' } else { 'f' };
    let directory = random.choice(["", "/a", "/b"]).unwrap_or("");
    let fresh = format!("{directory}/{letter}{}", random.u32(0..9));
    let recent = random.usize(0..made.len().clamp(1, 5)) * random.usize(0..2);
    let known = made.iter().rev().filter(|name| name.contains(letter)).nth(recent);
    let known = known.or(made.last()).unwrap_or(&fresh).clone();
    match random.u32(kinds) {
        0..5 => {
            made.push(fresh.clone());
            let kind = if letter == 'd' { "directory" } else { "file" };
            format!("create {fresh} kind={kind} mode=755 uid=0 gid=0 rdev=0 target=%")
        }
        5..8 if letter == 'd' => format!("rmdir {known}"),
        5..8 => format!("unlink {known}"),
        8..12 => {
            let replaced = random.choice(&*made).cloned();
            let to = replaced.filter(|_| random.bool()).unwrap_or(fresh);
            made.push(to.clone());
            let how = if random.u32(0..4) == 0 { "exchange" } else { "replace" };
            format!("rename {known} {to} mode={how}")
        }
        12 => {
            made.push(fresh.clone());
            format!("link @{slot} {fresh}")
        }
        13..16 => format!("stat {known}"),
        16..18 => {
            format!("list {} at_a_time=100", if directory.is_empty() { "/" } else { directory })
        }
        18 => format!("read @{slot} offset=0 len=20000"),
        19..24 => format!("write @{slot} offset={offset} len={len} fill={fill}"),
        24..26 => format!("append @{slot} len={len} fill={fill}"),
        26 => format!("set @{slot} size={offset}"),
        27 => format!("set @{slot} mode={fill:o}"),
        28 => format!("punch @{slot} offset={offset} len={len}"),
        _ => format!("copy @{slot} @{} from=0 to={offset} len={len}", 1 - slot),
    }
}

/// Steps on names, on the bytes of files, and all: numbers of kinds of steps.
const KINDS: [Range<u32>; 3] = [0..18, 18..30, 0..30];
