//! The promise: random sequences reach every operation, both its success and its errors, and their
//! text replays. What a generator never makes, no differential test can find.

use std::collections::{BTreeMap, BTreeSet};

use novale_lab::workload::{
    Failure, Flavor, Generator, Outcome, Session, Step, parse_steps, print_steps, run_step,
};
use novale_model::{Atime, Error, Model, Tree};

/// Successes by verb and errors met in sequences of the first seeds, on the model alone.
fn survey() -> (BTreeMap<String, u32>, BTreeSet<String>, u32) {
    let (mut successes, mut errors, mut steps_in_all) = (BTreeMap::new(), BTreeSet::new(), 0);
    for seed in 0..200 {
        // Every other one maps files.
        let make = if seed % 2 == 0 { Generator::new } else { Generator::mapping };
        let steps = make(seed, Flavor::of_seed(seed)).steps(400, 50);
        let (mut model, mut session) =
            (Model::new(0o755, 0, 0, 0, Atime::Noatime), Session::default());
        for (now, step) in (1..).zip(&steps) {
            if matches!(step, Step::Remount | Step::Die) {
                session.forget_all();
                model.release_all();
            }
            let verb = step.to_string().split(' ').next().unwrap_or_default().to_owned();
            match run_step(&mut model, &mut session, step, now) {
                Outcome::Failed(Failure::Error(error)) => {
                    errors.insert(format!("{verb} {error:?}"));
                }
                Outcome::Done
                | Outcome::Attr(_)
                | Outcome::Bytes(_)
                | Outcome::Number(_)
                | Outcome::Entries(_)
                | Outcome::Ino(_) => *successes.entry(verb).or_default() += 1,
                Outcome::Failed(Failure::Broken(why)) => assert_eq!(why, "", "the model broke"),
            }
            steps_in_all += 1;
            assert_eq!(model.contradictions(), Vec::<String>::new(), "after {step}, seed {seed}");
        }
    }
    (successes, errors, steps_in_all)
}

/// What operations on names must be refused for.
const REFUSALS: [([&str; 3], Error); 5] = [
    (["create", "link", "rename"], Error::Exists),
    (["create", "link", "rename"], Error::NotFound),
    (["create", "unlink", "rename"], Error::NotDirectory),
    (["create", "link", "rename"], Error::NameTooLong),
    (["create", "link", "rename"], Error::InvalidName),
];

/// Errors that are met, each by its verb.
const ERRORS: &[&str] = &[
    "rename Invalid",
    "setxattr Exists",
    "setxattr NoAttribute",
    "setxattr NotPermitted",
    "setxattr Unsupported",
    "setxattr NameRange",
    "setxattr ValueTooLong",
    "setxattr Denied",
    "setxattr Invalid",
    "getxattr NoAttribute",
    "removexattr NoAttribute",
    "rename NotEmpty",
    "rename IsDirectory",
    "rmdir NotEmpty",
    "rmdir NotDirectory",
    "unlink IsDirectory",
    "link NotPermitted",
    "link OtherTree",
    "rename OtherTree",
    "write IsDirectory",
    "write TooLarge",
    "set TooLarge",
    "read Invalid",
    "readlink Invalid",
    "punch Invalid",
    "collapse Invalid",
    "insert Invalid",
    "copy Invalid",
    "copy IsDirectory",
    "store Invalid",
    "scatter Busy",
    "collapse Busy",
    "insert Busy",
];

#[test]
fn every_operation_succeeds_often_and_fails_in_each_way() {
    let (successes, errors, steps) = survey();
    let succeeded: u32 = successes.values().sum();
    assert!(succeeded * 2 > steps, "only {succeeded} of {steps} steps succeed: {successes:?}");
    for verb in [
        "create",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "stat",
        "set",
        "readlink",
        "read",
        "write",
        "append",
        "allocate",
        "punch",
        "zero",
        "zero_keep_size",
        "collapse",
        "insert",
        "copy",
        "seek",
        "list",
        "parent",
        "hold",
        "unnamed",
        "release",
        "map",
        "store",
        "flush",
        "scatter",
        "sync",
        "compare",
        "remount",
        "die",
    ] {
        let count = successes.get(verb).copied().unwrap_or(0);
        assert!(count >= 10, "{verb} succeeds {count} times: {successes:?}");
    }
    for (verbs, error) in REFUSALS {
        for verb in verbs {
            let text = format!("{verb} {error:?}");
            assert!(errors.contains(&text), "{text} is not in {errors:?}");
        }
    }
    for wanted in ERRORS {
        assert!(errors.contains(*wanted), "{wanted} is not in {errors:?}");
    }
}

#[test]
fn the_text_of_a_sequence_replays_it() {
    for seed in 0..9 {
        let steps = Generator::mapping(seed, Flavor::of_seed(seed)).steps(300, 40);
        assert_eq!(parse_steps(&print_steps(&steps)).as_deref(), Ok(steps.as_slice()));
    }
}

#[test]
fn a_seed_makes_the_same_state_each_time() {
    let run = |seed| {
        let (mut model, mut session) =
            (Model::new(0o755, 0, 0, 0, Atime::Noatime), Session::default());
        for (now, step) in (1..).zip(Generator::new(seed, Flavor::Mixed).steps(200, 50)) {
            run_step(&mut model, &mut session, &step, now);
        }
        Tree::of(&model)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn bad_text_is_named_with_its_line() {
    for (text, part) in [
        ("stat /a\nfly /b", "line 2: unknown step fly"),
        ("stat a", "a is no path"),
        ("read /a offset=1", "len= is missing"),
        ("unlink /a /b", "too many words"),
        ("release slot=300", "300 is no number in range"),
    ] {
        let why = parse_steps(text).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}
