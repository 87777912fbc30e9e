//! What the mutants are tried on: sequences that reach every call of `pm` in `core`.

use std::fmt::{self, Write as _};

use novale_core::{Form, UpdatePolicy};

use crate::crash::small_step;
use crate::diff::CoreOptions;
use crate::workload::{Flavor, Generator, Step, parse_steps, sequence};

const MB: u64 = 1 << 20;

/// How often a run ends on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Never.
    Never,
    /// Recoveries are made from its acts.
    Recovered,
    /// Its clients die, and one that is left settles for them and does the steps.
    Settled,
    /// There are no steps: damaged pools are repaired.
    Repaired,
}

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) core: CoreOptions,
    /// Two of three operations are done by a thread of their own, which never fences again.
    pub(super) many_threads: bool,
    /// Each read changes the access time.
    pub(super) strict_atime: bool,
    pub(super) ends: Ends,
    /// Steps of which no mutant is made.
    pub(super) setup: Vec<Step>,
    pub(super) steps: Vec<Step>,
}

impl Plan {
    fn new(name: &str, core: CoreOptions, setup: &str, steps: &str) -> Self {
        // A test parses all texts.
        let parsed = |text| parse_steps(text).unwrap_or_default();
        Self {
            name: format!("{name}, {:?}", core.form),
            core,
            many_threads: false,
            strict_atime: false,
            ends: Ends::Recovered,
            setup: parsed(setup),
            steps: parsed(steps),
        }
    }

    fn with_threads(self) -> Self {
        Self { name: format!("{}, threads", self.name), many_threads: true, ..self }
    }
}

/// The runs that are always the same, each in both forms.
const FIXED: [fn(Form) -> Plan; 32] = [
    |form| always("operations", "operations", (1, form, 3)),
    |form| always("operations", "operations", (2, form, 3)).with_threads(),
    |form| always("names in turn", "in turn", (1, form, 3)).with_threads(),
    settling,
    |form| always("openings", "openings", (1, form, 2)),
    |form| always("closings", "closings", (1, form, 2)),
    |form| always("heirs", "heirs", (1, form, 3)),
    |form| first_use(form, "attributes", "setxattr /f name=user.a mode=replace len=10 fill=1"),
    |form| first_use(form, "trees", "set /f project=3"),
    |form| first_use(form, "moved pages", "collapse /f offset=0 len=4096"),
    without_names,
    |form| without_names(form).with_threads(),
    |form| always("mapped files", "mapped", (1, form, 3)),
    |form| always("mapped files", "mapped", (2, form, 3)).with_threads(),
    |form| by(UpdatePolicy::InPlace, always("in place", "methods", (1, form, 3))),
    |form| {
        let plan = always("by the log", "methods", (1, form, 3));
        by(UpdatePolicy::FineLog, plan.with_threads())
    },
    |form| by(UpdatePolicy::FineLog, settling(form)),
    |form| by(UpdatePolicy::Paired, always("paired pages", "methods", (1, form, 3))),
    |form| by(UpdatePolicy::Adl, always("undo log", "methods", (1, form, 3))),
    |form| by(UpdatePolicy::Lawn, always("slots of pages", "methods", (1, form, 3))),
    |form| by(UpdatePolicy::Zcl, always("sources", "sources", (1, form, 3))),
    removals,
    access_times,
    names,
    names_in_little_space,
    names_behind_names,
    overwrites,
    fragments,
    full,
    slots,
    inodes,
    |_| repairs(),
];

/// Number of runs that are always the same.
pub(super) const FIXED_COUNT: usize = 2 * FIXED.len();

/// After the fixed runs, one in so many is of repairs.
const REPAIRS_ONE_IN: usize = 4;
/// And one in so many, of the others, settles: its clients die elsewhere each time.
const SETTLING_ONE_IN: usize = 7;

/// The runs in order: the fixed ones, then random ones from `seed` on, without end.
pub(super) fn plan(turn: usize, seed: u64) -> Plan {
    let form = if turn.is_multiple_of(2) { Form::Single } else { Form::Two };
    match FIXED.get(turn / 2) {
        Some(make) => make(form),
        None if turn.is_multiple_of(REPAIRS_ONE_IN) => repairs(),
        None if turn.is_multiple_of(SETTLING_ONE_IN) => settling(form),
        None => random(seed.wrapping_add((turn - FIXED_COUNT) as u64), form),
    }
}

/// The repairs of the list; their form is that of the pools.
fn repairs() -> Plan {
    Plan {
        ends: Ends::Repaired,
        name: "repairs".to_owned(),
        ..Plan::new("", one_slot(1, Form::Auto, 1), "", "")
    }
}

/// One of the sequences of `sequences.txt`, on so many lanes, in a pool of so many MB.
fn always(name: &str, steps: &str, (lanes, form, pool_mb): (u32, Form, u64)) -> Plan {
    Plan::new(name, one_slot(lanes, form, pool_mb), "", sequence(steps))
}

fn one_slot(lanes: u32, form: Form, pool_mb: u64) -> CoreOptions {
    CoreOptions::new(vec![pool_mb * MB], lanes, form)
}

/// A run whose writes take these methods.
fn by(update: UpdatePolicy, plan: Plan) -> Plan {
    let core = CoreOptions { update, ..plan.core };
    Plan { name: format!("{}, {update:?}", plan.name), core, ..plan }
}

fn settling(form: Form) -> Plan {
    let plan = Plan::new(
        "settling",
        one_slot(1, form, 4),
        sequence("settled: before"),
        sequence("settled"),
    );
    Plan { ends: Ends::Settled, ..plan }
}

fn access_times(form: Form) -> Plan {
    let plan = always("access times", "access times", (1, form, 3));
    Plan { strict_atime: true, ends: Ends::Never, ..plan }
}

/// The first use of a feature, of which a pool has one in its life, and of the others after it.
fn first_use(form: Form, name: &str, step: &str) -> Plan {
    let (setup, work) = (sequence("first use: before"), sequence("first use: others"));
    let work = format!("{step}\n{work}");
    Plan::new(&format!("first use of {name}"), one_slot(1, form, 2), setup, &work)
}

/// Files that are made without a name, and get one or go. The first of them makes inode pages, and one
/// of the last the next.
fn without_names(form: Form) -> Plan {
    let file = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
    let mut text = sequence("without names").to_owned();
    // Where three records have come between, a torn line has nothing to fall back on but an own one.
    for index in 0..4 {
        add(&mut text, format_args!("unnamed / slot=0 {file}"));
        for other in 0..3 {
            add(&mut text, format_args!("create /x{index}{other} {file}"));
        }
        add(&mut text, format_args!("append @0 len=100 fill=5"));
        add(&mut text, format_args!("link @0 /y{index}"));
    }
    for index in 0..40 {
        add(&mut text, format_args!("unnamed / slot={} {file}", index % 3));
        if index > 32 {
            add(&mut text, format_args!("append @{} len={} fill=3", index % 3, index * 90));
        }
        add(&mut text, format_args!("link @{} /n{index}", index % 3));
    }
    Plan::new("files without names", one_slot(1, form, 3), "", &text)
}

/// Names that go one after the other, so that no number is used again, in directories whose logs are
/// about to grow by a page, and have a dead one after a living one.
fn removals(form: Form) -> Plan {
    let (mut setup, mut text) = (String::new(), String::new());
    for dir in 0..6 {
        let kind = "mode=700 uid=0 gid=0 rdev=0 target=%";
        add(&mut setup, format_args!("create /d{dir} kind=directory {kind}"));
        for index in 0..140 {
            add(&mut setup, format_args!("create /d{dir}/n{index} kind=fifo {kind}"));
        }
        for index in (62..128).chain(4..42) {
            add(&mut setup, format_args!("unlink /d{dir}/n{index}"));
        }
        for index in 42..54 {
            add(&mut text, format_args!("unlink /d{dir}/n{index}"));
        }
    }
    Plan::new("removals", one_slot(1, form, 4), &setup, &text)
}

/// Text, a line at a time.
fn add(text: &mut String, line: fmt::Arguments<'_>) {
    // To write into a string never fails.
    text.write_fmt(line).unwrap_or_default();
    text.push('\n');
}

/// The last two thirds of a run are cut; before, its logs grow.
fn cut_late(mut plan: Plan) -> Plan {
    let late = plan.steps.split_off(plan.steps.len() / 3);
    Plan { setup: plan.steps, steps: late, ..plan }
}

/// What leaves little space, so that pages which are freed are soon used again.
fn ballast(pages: u32) -> String {
    let mut text = String::from("create /ballast kind=file mode=600 uid=0 gid=0 rdev=0 target=%\n");
    text.push_str(&"append /ballast len=65536 fill=3\n".repeat(pages as usize / 16));
    text
}

/// Takes a page that was given back alone, then most free pages, and gives as many back.
fn use_free_pages(text: &mut String, turn: u32) {
    for len in [4096, 122_880] {
        add(text, format_args!("write /ballast offset=0 len={len} fill={}", turn % 200 + 1));
    }
}

/// A directory whose names come and go until both collectors have run.
fn names(form: Form) -> Plan {
    cut_late(Plan::new("names", one_slot(1, form, 4), "", &coming_and_going(&|_, _| ())))
}

/// The same where each page that is freed is soon used again.
fn names_in_little_space(form: Form) -> Plan {
    let steps = coming_and_going(&|text, index| use_free_pages(text, index));
    let plan = Plan::new("names in little space", one_slot(1, form, 2), "", &steps);
    let ballast = parse_steps(&ballast(440)).unwrap_or_default();
    let plan = cut_late(plan);
    Plan { setup: ballast.into_iter().chain(plan.setup).collect(), ..plan }
}

/// Names that come and go after many that stay, in little space: collection starts in the middle of
/// the log.
fn names_behind_names(form: Form) -> Plan {
    let kind = "kind=fifo mode=644 uid=0 gid=0 rdev=0 target=%";
    let mut setup = ballast(656);
    setup.push_str("create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%\n");
    for index in 100..340 {
        add(&mut setup, format_args!("create /d/{index}n*50 {kind}"));
    }
    let mut text = String::new();
    for index in 0..40 {
        let name = ["xn*100", "yn*75"].get(index as usize % 2).copied().unwrap_or_default();
        add(&mut text, format_args!("create /d/{name} {kind}"));
        use_free_pages(&mut text, index);
        add(&mut text, format_args!("unlink /d/{name}"));
        use_free_pages(&mut text, index + 1);
    }
    let plan = cut_late(Plan::new("names behind names", one_slot(1, form, 3), "", &text));
    let before = parse_steps(&setup).unwrap_or_default();
    Plan { ends: Ends::Never, setup: before.into_iter().chain(plan.setup).collect(), ..plan }
}

fn coming_and_going(between: &dyn Fn(&mut String, u32)) -> String {
    let mut text = String::from("create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..130 {
        let kind = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
        // Dentries of several lines now and then leave a page's last lines blank.
        let end = |index| "_of_four_lines".repeat(if index % 3 == 1 { 13 } else { 0 });
        let name = |index: u32| format!("/d/n{index}{}", end(index));
        add(&mut text, format_args!("create {} {kind}", name(index)));
        between(&mut text, index);
        // A name goes some operations after it came, so that its inode's own line counts for long.
        if index >= 3 && (index - 3) % 5 != 0 {
            add(&mut text, format_args!("unlink {}", name(index - 3)));
            between(&mut text, index + 1);
        }
        if index % 40 == 39 {
            let from = index / 40 * 40;
            add(&mut text, format_args!("rename /d/n{from} /d/again mode=replace"));
        }
    }
    text
}

/// A file overwritten here and there and cut off now and then, until both collectors have run.
fn overwrites(form: Form) -> Plan {
    let mut text = ballast(432);
    text.push_str("create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..330 {
        let (offset, fill) = (index * 7 % 11 * 4096, index % 250 + 1);
        add(&mut text, format_args!("write /f offset={offset} len=64 fill={fill}"));
        if index % 4 == 3 && index > 150 {
            use_free_pages(&mut text, index / 4);
        }
        if index % 50 == 49 {
            add(&mut text, format_args!("set /f size={offset}"));
            let mode = if index % 100 == 49 { 600 } else { 640 };
            add(&mut text, format_args!("set /f mode={mode}"));
        }
    }
    cut_late(Plan::new("overwrites", one_slot(1, form, 2), "", &text))
}

/// Free space in single pages: a small write has several entries, and a commit may lie on both sides
/// of a log page's end.
fn fragments(form: Form) -> Plan {
    let mut setup = String::new();
    for index in 0..700 {
        let kind = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
        add(&mut setup, format_args!("create /s{index} {kind}"));
        add(&mut setup, format_args!("append /s{index} len=4096 fill=1"));
    }
    for index in (0..700).step_by(2) {
        add(&mut setup, format_args!("unlink /s{index}"));
    }
    add(&mut setup, format_args!("remount"));
    let mut text = String::from("create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..110 {
        let (offset, len) = (index * 7 % 5 * 8192, if index % 3 == 0 { 5000 } else { 8192 });
        add(&mut text, format_args!("write /f offset={offset} len={len} fill={}", index + 1));
    }
    // More entries than a log page has.
    add(&mut text, format_args!("write /f offset=0 len={} fill=9", 280 * 4096));
    let mut plan = Plan::new("fragments", one_slot(1, form, 4), &setup, &text);
    // A first third of the writes only fills the log.
    let late = plan.steps.split_off(plan.steps.len() / 3);
    plan.setup.append(&mut plan.steps);
    Plan { steps: late, ..plan }
}

/// More inodes than a chunk's table names, on pages that were used before.
fn inodes(form: Form) -> Plan {
    let kind = "kind=fifo mode=644 uid=0 gid=0 rdev=0 target=%";
    let mut setup = String::from("create /big kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n");
    for _ in 0..60 {
        setup.push_str("append /big len=65536 fill=77\n");
    }
    setup.push_str("unlink /big\n");
    for index in 0..8187 {
        add(&mut setup, format_args!("create /i{index} {kind}"));
    }
    let mut text = String::new();
    for index in 0..8 {
        add(&mut text, format_args!("create /j{index} {kind}"));
    }
    let plan = Plan::new("inodes", one_slot(1, form, 8), &setup, &text);
    Plan { ends: Ends::Never, ..plan }
}

/// A pool in which nothing fits any more.
fn full(form: Form) -> Plan {
    let mut setup = ballast(448);
    setup.push_str(&"append /ballast len=4096 fill=3\n".repeat(20));
    Plan::new("full", one_slot(1, form, 2), &setup, sequence("full"))
}

fn slots(form: Form) -> Plan {
    let mut plan = random(7, form);
    plan.steps.truncate(25);
    plan.steps.extend(parse_steps("die\nremount").unwrap_or_default());
    plan.core = CoreOptions::new(vec![2 * MB, MB, MB], 2, form);
    Plan { name: format!("three slots, {form:?}"), ..plan }
}

fn random(seed: u64, form: Form) -> Plan {
    let generated = Generator::new(seed, Flavor::of_seed(seed)).steps(60, 1000);
    let lanes = if seed.is_multiple_of(4) { 2 } else { 1 };
    let plan = Plan::new(&format!("random, seed {seed}"), one_slot(lanes, form, 4), "", "");
    let steps = generated.into_iter().map(small_step).collect();
    Plan { many_threads: seed.is_multiple_of(3), steps, ..plan }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fixed_run_has_steps() {
        for turn in 0..FIXED_COUNT {
            let plan = plan(turn, 1);
            assert!(plan.steps.len() > 6 || plan.ends == Ends::Repaired, "{}", plan.name);
        }
        assert!(parse_steps(sequence("operations")).unwrap().len() > 40);
        assert!(parse_steps(sequence("in turn")).unwrap().len() > 20);
        assert!(parse_steps(sequence("methods")).unwrap().len() > 20);
    }
}
