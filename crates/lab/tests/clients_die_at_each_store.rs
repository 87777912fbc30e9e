//! The promise holds for clients that share a pool: when one dies in the middle of an operation, the
//! others find all of it or nothing, and nothing that it held is held any more.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test panics and tells"
)]

use novale_core::Form;
use novale_lab::clients::{DeathOptions, DeathSummary, die_everywhere};
use novale_lab::diff::CoreOptions;
use novale_lab::workload::parse_steps;

const FILE: &str = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
const DIR: &str = "kind=directory mode=755 uid=0 gid=0 rdev=0 target=%";

/// Every operation, with something there for it to work on.
fn cases() -> (String, Vec<String>) {
    let setup = format!(
        "create /d {DIR}\ncreate /d/e {DIR}\ncreate /g {DIR}\ncreate /f {FILE}\ncreate /d/f {FILE}\n\
         create /g/f {FILE}\nwrite /f offset=0 len=20000 fill=1\nwrite /d/f offset=4000 len=300 fill=2\n\
         link /f /d/l\ncreate /gone {FILE}\nappend /gone len=9000 fill=3\nunlink /gone\n"
    );
    let victims = [
        format!("create /new {FILE}"),
        format!("create /d/new {DIR}"),
        "create /link kind=symlink mode=777 uid=0 gid=0 rdev=0 target=some/where".to_owned(),
        "write /f offset=4096 len=4096 fill=7".to_owned(),
        "write /f offset=100 len=64 fill=7".to_owned(),
        "write /f offset=30000 len=64 fill=7".to_owned(),
        "write /f offset=1000 len=18000 fill=7".to_owned(),
        "append /d/f len=12 fill=7".to_owned(),
        "append /d/f len=70000 fill=7".to_owned(),
        "set /f size=5000".to_owned(),
        "set /f size=50000".to_owned(),
        "set /f mode=600".to_owned(),
        "allocate /f extend=1 offset=8192 len=40000".to_owned(),
        "link /f /g/l".to_owned(),
        "unlink /d/l".to_owned(),
        "unlink /d/f".to_owned(),
        "rmdir /d/e".to_owned(),
        "rename /f /new mode=replace".to_owned(),
        "rename /f /d/f mode=replace".to_owned(),
        "rename /d/e /g/e mode=replace".to_owned(),
        "rename /d /g/f mode=exchange".to_owned(),
    ];
    (setup, victims.to_vec())
}

fn run(form: Form, lanes: u32, power: bool) {
    let core = CoreOptions { slots: vec![4 << 20], lanes, form };
    let options = DeathOptions { core, power, seed: 1 };
    let (setup, victims) = cases();
    let setup = parse_steps(&setup).unwrap();
    let mut total = DeathSummary::default();
    for victim in &victims {
        let victim = parse_steps(victim).unwrap().remove(0);
        match die_everywhere(&setup, &victim, &options) {
            Ok(summary) => total += summary,
            Err(why) => panic!("{why}"),
        }
    }
    println!("{total:?}");
    assert!(total.done > 0 && total.done < total.deaths);
}

/// The log grows at some of these writes, and collection reclaims pages of it.
#[test]
fn while_a_log_grows_and_is_collected() {
    let core = CoreOptions { slots: vec![4 << 20], lanes: 1, form: Form::Auto };
    let options = DeathOptions { core, power: true, seed: 2 };
    let mut total = DeathSummary::default();
    for writes in [62, 63, 125, 126, 188, 189, 251, 252, 314, 315] {
        let setup =
            format!("create /f {FILE}\n") + &"write /f offset=0 len=64 fill=1\n".repeat(writes);
        let setup = parse_steps(&setup).unwrap();
        let victim = parse_steps("write /f offset=4096 len=64 fill=2").unwrap().remove(0);
        match die_everywhere(&setup, &victim, &options) {
            Ok(summary) => total += summary,
            Err(why) => panic!("behind {writes} writes: {why}"),
        }
    }
    println!("{total:?}");
    assert!(total.done > 0 && total.done < total.deaths);
}

/// Of many freed pages none is lost but those of the piece that was being given back.
#[test]
fn while_many_pages_are_freed() {
    let core = CoreOptions { slots: vec![16 << 20], lanes: 2, form: Form::Auto };
    let options = DeathOptions { core, power: false, seed: 3 };
    let piece = |n| format!("write /f offset={} len=4096 fill=1\n", n * 7 % 300 * 8192);
    let setup: String = (0..300).map(piece).collect();
    let setup = parse_steps(&format!("create /f {FILE}\n{setup}")).unwrap();
    for victim in ["unlink /f", "set /f size=0"] {
        let victim = parse_steps(victim).unwrap().remove(0);
        let summary = die_everywhere(&setup, &victim, &options);
        println!("{:?}", summary.unwrap());
    }
}

#[test]
fn and_are_settled_for() {
    run(Form::Auto, 2, false);
}

#[test]
fn and_are_settled_for_in_the_two_fence_form() {
    run(Form::Two, 1, false);
}

#[test]
fn and_the_power_fails_then() {
    run(Form::Auto, 1, true);
}
