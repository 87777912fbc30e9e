//! The promise: the oracle itself is right. The same sequences run on the model and as system calls
//! in a directory of this machine; each step must succeed or fail on both, change the times of the
//! same files, and leave the same names, attributes and bytes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail and speak as the test does"
)]

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use novale_lab::diff::{Budget, now_ns_at, shrink};
use novale_lab::mounted::{Meta, RealDirectory, Seen, look_at_all};
use novale_lab::workload::{
    Action, Failure, Flavor, Generator, Outcome, Session, Step, Target, print_steps, run_step,
};
use novale_model::{Atime, Kind, Model, Node, Tree};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// Runs that find a shrunk sequence at most.
const SHRINK_RUNS_MAX: usize = 2_000;

/// What one path shows on either side: attributes, bytes up to the last that is not 0, times.
type State = BTreeMap<Vec<u8>, (Meta, Vec<u8>, (i64, i64))>;

fn linux_state(directory: &RealDirectory) -> State {
    let shown = look_at_all(directory.root()).unwrap();
    shown.into_iter().map(|(path, node)| (path, (node.meta, node.bytes, node.times))).collect()
}

fn model_state(model: &Model) -> State {
    let tree = Tree::of(model).unwrap();
    tree.nodes()
        .map(|(path, node)| {
            let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
            (path, (meta(node), bytes(node), (node.attr.mtime_ns, node.attr.ctime_ns)))
        })
        .collect()
}

fn meta(node: &Node) -> Meta {
    let attr = &node.attr;
    Meta {
        kind: attr.kind,
        mode: attr.mode,
        nlink: u64::from(attr.nlink),
        uid: attr.uid,
        gid: attr.gid,
        rdev: u64::from(attr.rdev),
        size: if attr.kind == Kind::Directory { 0 } else { attr.size },
    }
}

fn bytes(node: &Node) -> Vec<u8> {
    const READ_BYTES_MAX: usize = 8 << 20;
    let mut bytes = node.contents.read(0, READ_BYTES_MAX);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    if node.attr.kind == Kind::Symlink { node.target.clone() } else { bytes }
}

/// The paths whose mtime and ctime a step changed, of those that were and are there.
fn changed(before: &State, after: &State) -> Vec<String> {
    let pairs = before.iter().filter_map(|(path, old)| Some((path, old, after.get(path)?)));
    let changed = pairs.filter(|(_, old, new)| old.2 != new.2).map(|(path, old, new)| {
        let mtime = if old.2.0 == new.2.0 { "" } else { " mtime" };
        let ctime = if old.2.1 == new.2.1 { "" } else { " ctime" };
        format!("/{}{mtime}{ctime}", path.escape_ascii())
    });
    changed.collect()
}

/// System calls create with the caller as owner, and no set-id bits of a directory.
fn plain_create(mut step: Step) -> Step {
    if let Step::Create { new, .. } = &mut step {
        (new.uid, new.gid) = (0, 0);
        // A shorter sequence may ask for less than all permissions of a symlink, which Linux shows.
        new.mode = if new.kind == Kind::Symlink { 0o777 } else { new.mode & 0o1777 };
    }
    step
}

/// Steps of which the two sides may rightly think differently.
fn is_comparable(model: &mut Model, session: &mut Session, step: &Step) -> bool {
    let mut kind = |target: &Target| {
        let stat = Step::On { target: target.clone(), action: Action::Stat };
        let shown = run_step(model, session, &stat, 0);
        if let Outcome::Attr(attr) = shown { Some(attr.kind) } else { None }
    };
    match step {
        // The directory of the test is no root, and its own attributes stay.
        Step::On { target: Target::Path(path), .. } if path.0.is_empty() => false,
        // A write clears set-id bits for those without privilege only; a change of owner for all,
        // which on the model its caller asks for. Several changes are several calls.
        Step::On { target, action: Action::Set(set) } => {
            let one = [
                set.mode.is_some(),
                set.uid.is_some() || set.gid.is_some(),
                set.size.is_some(),
                set.atime_ns.is_some() || set.mtime_ns.is_some(),
            ];
            let owner = set.uid.is_some() || set.gid.is_some();
            one.iter().filter(|given| **given).count() == 1
                && (!owner || set.clear_set_id)
                && kind(target).is_none_or(|kind| kind == Kind::File || kind == Kind::Directory)
        }
        Step::On {
            target,
            action: Action::Allocate { .. } | Action::Append { .. } | Action::Range { .. },
        } => kind(target) == Some(Kind::File),
        // What is neither file nor directory can be held, but not opened to be synced.
        Step::On { target, action: Action::Sync } => {
            kind(target).is_none_or(|kind| kind == Kind::File || kind == Kind::Directory)
        }
        // Linux lists a removed directory that is held as none, the model as an empty one.
        Step::On { action: Action::Readlink | Action::List { .. }, target: Target::Slot(_) }
        | Step::Unnamed { .. }
        | Step::Map { .. }
        | Step::Compare
        | Step::Remount
        | Step::Die => false,
        Step::Create { .. }
        | Step::Link { .. }
        | Step::Unlink(_)
        | Step::Rmdir(_)
        | Step::Rename { .. }
        | Step::On { .. }
        | Step::Copy { .. }
        | Step::Hold { .. }
        | Step::Release(_) => true,
    }
}

/// Whether a step sets or removes an access list.
fn is_of_acl(step: &Step) -> bool {
    let Step::On { action: Action::SetXattr { name, .. } | Action::RemoveXattr(name), .. } = step
    else {
        return false;
    };
    name.starts_with(b"system.")
}

/// The kernel stamps files by a clock that moves every few milliseconds, and by a finer one where
/// somebody looks: until the coarse one is past now, a change may get the stamp of the one before.
fn wait_for_the_next_tick() {
    let now = |clock| {
        let now = clock_gettime(clock);
        (now.tv_sec, now.tv_nsec)
    };
    let begun = now(ClockId::Realtime);
    while now(ClockId::RealtimeCoarse) <= begun {
        std::hint::spin_loop();
    }
}

/// Where a sequence runs: every other one where ext4 is, if it is there. A tmpfs has no ranges but
/// holes.
fn folder_of(seed: u64) -> &'static str {
    const EXT4: u64 = 0xef53;
    let other = env!("CARGO_TARGET_TMPDIR");
    let is_ext4 = rustix::fs::statfs(other)
        .is_ok_and(|found| found.f_type.cast_unsigned() == EXT4 && found.f_bsize == 4096);
    if is_ext4 && seed.is_multiple_of(2) { other } else { "/dev/shm" }
}

fn compare(folder: &str, steps: &[Step]) -> Result<(), (usize, String)> {
    let folder = TempDir::with_prefix_in("novale-lab.", folder).unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut linux = RealDirectory::open(folder.path()).unwrap();
    let (mut model, mut session) =
        (Model::new(0o755, 0, 0, now_ns_at(0), Atime::Noatime), Session::default());
    let (mut linux_before, mut model_before) = (linux_state(&linux), model_state(&model));
    for (index, step) in steps.iter().enumerate() {
        let step = &plain_create(step.clone());
        if !is_comparable(&mut model, &mut session, step) {
            continue;
        }
        wait_for_the_next_tick();
        let seen = linux.run(step);
        if seen == Seen::LeftOut {
            continue;
        }
        let outcome = run_step(&mut model, &mut session, step, now_ns_at(index + 1));
        let wrong = |what: String| (index, format!("{step}: {what}"));
        if matches!(seen, Seen::Errno(_)) != matches!(outcome, Outcome::Failed(_)) {
            return Err(wrong(format!("model {outcome:?}, Linux {seen:?}")));
        }
        let refused = matches!(outcome, Outcome::Failed(_));
        if let Outcome::Failed(Failure::Broken(why)) = outcome {
            return Err(wrong(why));
        }
        let (linux_after, model_after) = (linux_state(&linux), model_state(&model));
        let (mut model_times, mut linux_times) =
            (changed(&model_before, &model_after), changed(&linux_before, &linux_after));
        if matches!(step, Step::On { action: Action::Allocate { .. }, .. }) {
            // Whether a reservation changes the mtime, file systems disagree.
            for paths in model_times.iter_mut().chain(&mut linux_times) {
                *paths = paths.replace(" mtime", "");
            }
        }
        if is_of_acl(step) {
            // Whether an access list that is none already changes the ctime, too.
            for paths in model_times.iter_mut().chain(&mut linux_times) {
                *paths = paths.replace(" ctime", "");
            }
            model_times.retain(|paths| paths.ends_with(" mtime"));
            linux_times.retain(|paths| paths.ends_with(" mtime"));
        }
        // ext4 changes the times before it looks at the range.
        let touches = refused && matches!(step, Step::On { action: Action::Range { .. }, .. });
        if model_times != linux_times && !touches {
            let what = format!("times changed: model {model_times:?}, Linux {linux_times:?}");
            return Err(wrong(what));
        }
        let strip = |state: &State| -> Vec<_> {
            state
                .iter()
                .map(|(path, (meta, bytes, _))| (path.clone(), *meta, bytes.clone()))
                .collect()
        };
        if strip(&linux_after) != strip(&model_after) {
            let show = |state: &State| -> Vec<String> {
                state
                    .iter()
                    .map(|(path, node)| format!("{} {:?}", path.escape_ascii(), node.0))
                    .collect()
            };
            let (model, linux) = (show(&model_after), show(&linux_after));
            return Err(wrong(format!("model {model:#?}\nLinux {linux:#?}")));
        }
        (linux_before, model_before) = (linux_after, model_after);
    }
    Ok(())
}

#[test]
fn in_results_times_and_trees() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: model_agrees_with_linux: not root, so no owners and devices");
    }
    // What is created has the mode asked for.
    rustix::process::umask(rustix::fs::Mode::empty());
    let budget = Budget::from_env(15, 120);
    println!("model and Linux: first seed {}, {}", budget.seed, budget.length);
    let start = Instant::now();
    for seed in budget.seed.. {
        let mut steps = Generator::plain(seed, Flavor::of_seed(seed)).steps(budget.steps, 1000);
        if let Err((index, mut what)) = compare(folder_of(seed), &steps) {
            steps.truncate(index + 1);
            let steps = shrink(steps, SHRINK_RUNS_MAX, &mut |candidate: &[Step]| {
                compare(folder_of(seed), candidate).is_err_and(|(_, why)| {
                    what = why;
                    true
                })
            });
            panic!("seed {seed}: {what}\nin\n{}", print_steps(&steps));
        }
        if !budget.goes_on(seed - budget.seed + 1, start) {
            return println!("model and Linux: {} sequences", seed - budget.seed + 1);
        }
    }
}
