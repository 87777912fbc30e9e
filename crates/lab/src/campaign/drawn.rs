//! Sequences drawn from a seed: random steps on pools of several kinds, logs long enough to be
//! collected, pools that are full.

use std::fmt::Write as _;
use std::ops::Range;

use fastrand::Rng;
use novale_core::{Atime, Form, Mode, UpdatePolicy};
use novale_model::SetAttr;

use super::shapes::ALL;
use super::workloads::Case;
use crate::crash::{CrashOptions, Effort, small_step};
use crate::diff::CoreOptions;
use crate::workload::{Action, Flavor, Generator, Step, parse_steps};

pub(super) const MB: u64 = 1 << 20;

/// Steps of a random sequence that are cut.
const STEPS: usize = 30;

/// Steps that are cut where a log is collected.
const STRETCH: usize = 60;

/// One in so many sequences is cut in all the ways of [`ALL`].
const ALL_ONE_IN: u64 = 8;

/// Lanes: as many as processors is one case among many.
const LANES: [u32; 5] = [1, 2, 3, 7, 16];

/// Random steps on one slot, in this form, sometimes after a past that is not cut.
pub(super) fn random(seed: u64, form: Form) -> Case {
    random_on(seed, form, vec![4 * MB])
}

/// One form or the other, by the seed.
pub(super) fn either(seed: u64, other: Form) -> Form {
    if seed.is_multiple_of(2) { Form::Auto } else { other }
}

/// Random steps with one lane or many, whatever the machine has.
pub(super) fn lanes(seed: u64) -> Case {
    let lanes = LANES.get(usize::try_from(seed % 5).unwrap_or(0)).copied().unwrap_or(1);
    random(seed, Form::Auto)
        .with(|options| (options.core.lanes, options.many_threads) = (lanes, true))
}

/// By a method of writes that is not the usual choice, in any form, files being mapped; every other time
/// files and directories get others meanwhile.
pub(super) fn methods(seed: u64) -> Case {
    let form = [Form::Auto, Form::Single, Form::Two];
    let form = form.get(usize::try_from(seed % 3).unwrap_or(0)).copied().unwrap_or_default();
    let chosen = UpdatePolicy::ALL.iter().cycle().nth(usize::try_from(seed / 3 % 64).unwrap_or(0));
    let chosen = chosen.copied().unwrap_or_default();
    let mut case = mapped(seed, form, seed % 2).with(|options| options.core.update = chosen);
    if seed % 4 < 2 {
        case.steps = with_methods(case.steps, seed);
    }
    case
}

/// With writes that are buffered, in any form and by any method but that of writes in place.
pub(super) fn buffered(seed: u64) -> Case {
    let form = [Form::Auto, Form::Single, Form::Two];
    let form = form.get(usize::try_from(seed % 3).unwrap_or(0)).copied().unwrap_or_default();
    let mut case = mapped(seed, form, seed % 2);
    case.options.core.mode = Mode::Buffered;
    // The time of a few steps: files go past the buffer, and back to it.
    case.options.core.eager_ms = if seed % 5 < 2 { 0 } else { 5_000 };
    if seed % 4 < 2 {
        case.steps = with_methods(case.steps, seed);
    }
    case
}

/// Before some writes their file gets another method, or none of its own; not that of writes in place, of
/// which a crash keeps other states.
fn with_methods(steps: Vec<Step>, seed: u64) -> Vec<Step> {
    let mut random = Rng::with_seed(seed);
    let mut numbers: Vec<u8> = UpdatePolicy::ALL.map(UpdatePolicy::number).into();
    numbers.retain(|number| *number != UpdatePolicy::InPlace.number());
    numbers.push(0);
    let mut mixed = Vec::new();
    for step in steps {
        if let Step::On { target, action: Action::Write { .. } | Action::Append { .. } } = &step
            && random.u32(0..3) == 0
        {
            let method = random.choice(&numbers).copied();
            let action = Action::Set(SetAttr { method, ..SetAttr::default() });
            mixed.push(Step::On { target: target.clone(), action });
        }
        mixed.push(step);
    }
    mixed
}

/// Random steps, most of what they change being read behind it, by a rule for access times.
pub(super) fn reads(seed: u64) -> Case {
    let atime = if seed.is_multiple_of(3) { Atime::Relatime } else { Atime::Strict };
    let mut case = random(seed, either(seed, Form::Two)).with(|options| options.atime = atime);
    let mut chance = Rng::with_seed(seed);
    let read = |step: &Step| {
        let Step::On { target, .. } = step else { return None };
        Some(Step::On { target: target.clone(), action: Action::Read { offset: 0, len: 9 } })
    };
    let with_read = |step: Step| {
        let then = read(&step).filter(|_| chance.u32(0..3) > 0);
        [Some(step), then].into_iter().flatten()
    };
    case.steps = case.steps.into_iter().flat_map(with_read).collect();
    case
}

/// Random steps with files that are mapped, on bytes above all or, of turn 1, on all.
pub(super) fn mapped(seed: u64, form: Form, turn: u64) -> Case {
    let mut case = random(seed, form).with(|options| options.many_threads = seed % 5 == 1);
    let flavor = if turn == 1 { Flavor::Mixed } else { Flavor::Bytes };
    let steps = Generator::mapping(seed, flavor).steps(case.steps.len(), 1000);
    case.steps = steps.into_iter().map(small_step).collect();
    case
}

/// A few operations on few names, each cut off for good by a power cut, which the next ones go on from:
/// what one leaves torn, another may complete.
pub(super) fn twice(seed: u64) -> Case {
    let mut chance = Rng::with_seed(seed);
    let form = if chance.bool() { Form::Auto } else { Form::Two };
    let mut case = random(seed, form);
    let flavor = if chance.u32(0..3) > 0 { Flavor::Names } else { Flavor::Mixed };
    let past = chance.usize(0..12);
    let mut steps = Generator::new(seed, flavor).steps(past + 4, 1000);
    let ends = steps.split_off(past);
    steps.extend(ends.into_iter().flat_map(|step| [step.clone(), beside(&step), step]));
    case.steps = steps.into_iter().map(small_step).collect();
    let options = &mut case.options;
    (options.core.lanes, options.from_step) = (1, past);
    (options.cut_off_one_in, options.nested_one_in, options.by_units) = (2, 0, true);
    options.effort =
        Effort { subset_lines_max: 2, data_lines_max: 0, pairs: 0, random: 1, at_stores: false };
    case
}

/// The same on another name beside the one that it makes.
fn beside(step: &Step) -> Step {
    let mut step = step.clone();
    if let Step::Create { path, .. } | Step::Link { path, .. } | Step::Rename { to: path, .. } =
        &mut step
        && let Some(last) = path.0.last_mut().and_then(|name| name.last_mut())
    {
        *last = if *last == b'k' { b'j' } else { b'k' };
    }
    step
}

/// The same after a past of thousands of steps, in depth at its end.
pub(super) fn long(seed: u64) -> Case {
    const PAST: usize = 3000;
    let mut case = random_on(seed, Form::Auto, vec![12 * MB]);
    let steps = Generator::new(seed, Flavor::of_seed(seed)).steps(PAST + STEPS / 2, 10_000);
    case.steps = steps.into_iter().map(small_step).collect();
    case.options.from_step = PAST;
    case
}

pub(super) fn random_on(seed: u64, form: Form, slots: Vec<u64>) -> Case {
    // Every third sequence has a past: longer logs, more names.
    let from_step = if seed.is_multiple_of(3) { 4 * STEPS } else { 0 };
    // Some are cut in every way that there is, at each store too.
    let effort = match seed % ALL_ONE_IN {
        0 => ALL,
        _ => Effort { subset_lines_max: 8, data_lines_max: 3, ..Effort::default() },
    };
    let options = CrashOptions {
        core: CoreOptions::new(slots, 2, form),
        from_step,
        effort,
        used_one_in: 16,
        seed,
        ..CrashOptions::default()
    };
    let steps = Generator::new(seed, Flavor::of_seed(seed / 3)).steps(from_step + STEPS, 1000);
    Case { steps: steps.into_iter().map(small_step).collect(), options }
}

/// Random steps on a pool that was filled and has a few pages left: some steps fit and others don't.
pub(super) fn full(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let left = random.u32(0..110);
    let mut case = random_on(seed, Form::Auto, vec![2 * MB]);
    (case.options.core.lanes, case.options.many_threads) = (1, random.bool());
    let from = std::mem::take(&mut case.options.from_step);
    case = case.with_past(&filled(left));
    case.options.from_step += from;
    case
}

/// Steps that fill a pool of 3 MB or less with what nobody looks at, and give so many pages back.
pub(super) fn filled(left: u32) -> String {
    let file = "kind=file mode=600 uid=0 gid=0 rdev=0 target=%";
    let mut text =
        format!("create /left {file}\nallocate /left extend=0 offset=0 len={}\n", left * 4096);
    writeln!(text, "create /ballast {file}").unwrap_or_default();
    for (piece, pages) in [16; 48].into_iter().chain([1; 16]).enumerate() {
        let (at, len) = (piece * 65_536, pages * 4096);
        writeln!(text, "allocate /ballast extend=0 offset={at} len={len}").unwrap_or_default();
    }
    text + "unlink /left\n"
}

/// A directory whose names come and go until its log is collected, cut near the end.
pub(super) fn churned_directory(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let (names, kept_one_in) = (random.u32(90..200), random.u32(2..9));
    let mut text = String::from("create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..names {
        let pad = "n".repeat(random.usize(0..30));
        let path = format!("/d/{pad}{index}");
        writeln!(text, "create {path} kind=file mode=644 uid=0 gid=0 rdev=0 target=%")
            .unwrap_or_default();
        if !index.is_multiple_of(kept_one_in) {
            writeln!(text, "unlink {path}").unwrap_or_default();
        } else if random.u32(0..5) == 0 {
            writeln!(text, "rename {path} /d/again mode=replace").unwrap_or_default();
        }
    }
    collected(&text, seed, &mut random)
}

/// A file overwritten here and there, cut and extended, until its log is collected.
pub(super) fn churned_file(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let pages = random.u32(3..40);
    let mut text = String::from("create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..random.u32(150..320) {
        let at = random.u32(0..pages) * 4096 + if random.u32(0..4) == 0 { 100 } else { 0 };
        let step = match random.u32(0..40) {
            0 => format!("set /f size={at}"),
            1 => format!("set /f mode={:o}", random.u32(0..0o7777)),
            2 => format!("set /f uid={}", random.u32(0..9)),
            3 => format!("allocate /f extend=1 offset={at} len=8192"),
            8 => format!("punch /f offset={at} len=10000"),
            9 => format!("collapse /f offset={} len=4096", at / 4096 * 4096),
            10 => format!("insert /f offset={} len=4096", at / 4096 * 4096),
            4..8 => format!("append /f len=4096 fill={}", index % 250 + 1),
            _ => format!("write /f offset={at} len=4096 fill={}", index % 250 + 1),
        };
        writeln!(text, "{step}").unwrap_or_default();
    }
    collected(&text, seed, &mut random)
}

/// A file of scattered pages that move to other offsets and back, each time by as many entries, so
/// that its log is collected while holes cancel what maps the same pages elsewhere.
pub(super) fn moved_file(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let pieces = random.u32(20..60);
    let mut text = String::from("create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..pieces {
        // Every other page, so that no two are of one entry.
        let at = index * 7 % pieces * 8192;
        writeln!(text, "write /f offset={at} len=4096 fill={}", index + 1).unwrap_or_default();
    }
    for index in 0..random.u32(20..60) {
        let page = random.u32(0..pieces * 2);
        let (at, fill) = (page * 4096, index % 200 + 20);
        let step = match random.u32(0..20) {
            0..6 => format!("insert /f offset={at} len={}", random.u32(1..4) * 4096),
            6..12 => format!("collapse /f offset={at} len={}", random.u32(1..4) * 4096),
            12..15 => format!("punch /f offset={at} len={}", random.u32(1..30_000)),
            15 => format!("set /f size={at}"),
            16 => format!("zero_keep_size /f offset={at} len=8192"),
            _ => format!("write /f offset={at} len=4096 fill={fill}"),
        };
        writeln!(text, "{step}").unwrap_or_default();
    }
    collected_at_the_end(parse_steps(&text).unwrap_or_default(), seed, &mut random)
}

/// A log of much that lives around a run that is dead, cut while it grows from eight pages: the fast
/// collector takes the dead pages out. A directory's log or a file's.
pub(super) fn dead_run(seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    let directory = random.bool();
    let kind = if directory { "directory" } else { "file" };
    let mut text = format!("create /a kind={kind} mode=755 uid=0 gid=0 rdev=0 target=%\n");
    // Two pages' lines, so that one page at least is dead whole.
    let dead = random.u32(100..190)..random.u32(320..350);
    around_dead(&mut text, "/a", directory, 8 * 63 + random.u32(10..50), &dead);
    collected_at_the_end(parse_steps(&text).unwrap_or_default(), seed, &mut random)
}

/// Adds steps of so many lines in the log of what `name` names, of which some are dead at their end; in
/// every other one there are holes, moves and deletes among these that what is older needs.
pub(super) fn around_dead(
    text: &mut String,
    name: &str,
    directory: bool,
    lines: u32,
    dead: &Range<u32>,
) {
    for line in 0..lines {
        let is_dead = dead.contains(&line);
        let needed = is_dead && dead.start % 2 == 1 && line % 37 == 5;
        let step = match (directory, is_dead && line % 2 == 1) {
            (true, _) if needed => format!("unlink {name}/n{}", line % 90),
            (false, true) if needed => format!("punch {name} offset={} len=4096", line % 90 * 4096),
            (false, false) if needed => {
                format!("collapse {name} offset={} len=4096", line * 3000 / 4096 * 4096)
            }
            (true, true) => format!("unlink {name}/n{}", line - 1),
            (true, false) => {
                format!("create {name}/n{line} kind=file mode=644 uid=0 gid=0 rdev=0 target=%")
            }
            (false, _) => {
                let at = if is_dead { 0 } else { u64::from(line) * 4096 };
                format!("write {name} offset={at} len=4096 fill={}", line % 250 + 1)
            }
        };
        writeln!(text, "{step}").unwrap_or_default();
    }
}

/// Cuts a stretch of a long sequence, in which about one collection falls.
fn collected(text: &str, seed: u64, random: &mut Rng) -> Case {
    let mut steps = parse_steps(text).unwrap_or_default();
    let end = random.usize(STRETCH..steps.len().max(STRETCH + 1));
    steps.truncate(end);
    collected_at_the_end(steps, seed, random)
}

/// Cuts the last stretch of a sequence.
fn collected_at_the_end(steps: Vec<Step>, seed: u64, random: &mut Rng) -> Case {
    let form = if random.bool() { Form::Auto } else { Form::Two };
    let options = CrashOptions {
        core: CoreOptions::new(vec![6 * MB], 1, form),
        from_step: steps.len().saturating_sub(STRETCH),
        effort: Effort {
            subset_lines_max: 3,
            data_lines_max: 1,
            pairs: 2,
            random: 1,
            at_stores: false,
        },
        used_one_in: 40,
        nested_one_in: 150,
        cut_off_one_in: 16,
        many_threads: random.u32(0..4) == 0,
        seed,
        ..CrashOptions::default()
    };
    Case { steps, options }
}
