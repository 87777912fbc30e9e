//! The promise: when memory or space is refused at any point of an operation, the operation is done
//! or nothing has changed, and the file system goes on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test panics and tells"
)]

mod support;

use novale_core::{Form, UpdatePolicy};
use novale_lab::diff::CoreOptions;
use novale_lab::refusals::{RefusalSummary, Refused, refuse_everywhere};
use novale_lab::workload::{Step, parse_steps};
use support::{FILE, cases, share};

fn run(setup: &[Step], victims: &[Step], options: &CoreOptions) {
    let mut totals = [RefusalSummary::default(); 2];
    let mut wrong = Vec::new();
    for (total, what) in totals.iter_mut().zip([Refused::Allocations, Refused::Reads]) {
        for (victim, reopened) in victims.iter().flat_map(|step| [(step, false), (step, true)]) {
            match refuse_everywhere(setup, victim, what, options, reopened) {
                Ok(summary) => *total += summary,
                Err(why) => wrong.push(why),
            }
        }
        println!("{what:?}: {total:?}");
    }
    assert!(totals.iter().any(|total| total.refused > 0), "{totals:?}");
    assert!(wrong.is_empty(), "{} refusals did harm:\n{}", wrong.len(), wrong.join("\n"));
}

fn pool(form: Form, lanes: u32) -> CoreOptions {
    CoreOptions::new(vec![2 << 20], lanes, form)
}

#[test]
fn of_every_operation() {
    let (setup, victims) = cases();
    run(&setup, &victims, &pool(Form::Auto, 2));
    run(&setup, &victims, &pool(Form::Two, 1));
}

#[test]
fn of_overwrites_by_each_method() {
    let setup = format!("create /f {FILE}\nwrite /f offset=0 len=9000 fill=1\n");
    let logged = format!("{setup}{}", "write /f offset=9 len=700 fill=3\n".repeat(19));
    // Pages with two copies: what is stored then goes to pages that the file has.
    let paired = format!("{setup}write /f offset=4000 len=4500 fill=4\n");
    let victims = "write /f offset=100 len=64 fill=2\nwrite /f offset=4000 len=4500 fill=2";
    let victims = parse_steps(victims).unwrap();
    let setups = [&setup, &logged, &paired];
    let each = |update| setups.map(|setup| (update, setup));
    for (update, setup) in share(UpdatePolicy::ALL.into_iter().flat_map(each).collect()) {
        let options = CoreOptions { update, ..pool(Form::Auto, 1) };
        run(&parse_steps(setup).unwrap(), &victims, &options);
    }
}

/// The log grows at some of these writes, and collection runs.
#[test]
fn while_a_log_grows() {
    for writes in [62, 63, 125, 126, 188, 189, 251, 252, 314, 315] {
        let writes = "write /f offset=0 len=64 fill=1\n".repeat(writes);
        let setup = parse_steps(&format!("create /f {FILE}\n{writes}")).unwrap();
        let victim = parse_steps("write /f offset=4096 len=64 fill=2").unwrap();
        run(&setup, &victim, &pool(Form::Auto, 1));
    }
}

/// Names come and go until their directory's log and index have grown and been collected.
#[test]
fn while_a_directory_grows() {
    let name = |n: usize| format!("/{n}{}", "x".repeat(n % 5 * 50));
    for names in [14, 15, 16, 40, 41, 63, 64, 65, 127, 128, 129] {
        let created = (0..names).map(|n| format!("create {} {FILE}\n", name(n)));
        let removed = (0..names).step_by(3).map(|n| format!("unlink {}\n", name(n)));
        let setup: String = created.chain(removed).collect();
        let victims = format!(
            "create /new {FILE}\nunlink {}\nrename {} /other mode=replace\nlink {} /link\n",
            name(1),
            name(2),
            name(4)
        );
        let (setup, victims) = (parse_steps(&setup).unwrap(), parse_steps(&victims).unwrap());
        run(&setup, &victims, &pool(Form::Auto, 1));
    }
}

/// A file of many extents is written to, cut, and removed.
#[test]
fn of_a_file_in_many_pieces() {
    let piece = |n| format!("write /f offset={} len=4096 fill=1\n", n * 7 % 100 * 8192);
    let setup: String = (0..100).map(piece).collect();
    let setup = parse_steps(&format!("create /f {FILE}\ncreate /g {FILE}\n{setup}")).unwrap();
    let victims = parse_steps(
        "unlink /f
         set /f size=0
         set /f size=100000
         write /f offset=1000 len=700000 fill=3
         allocate /f extend=1 offset=0 len=1000000
         punch /f offset=1000 len=700000
         punch /f offset=1000 len=2000
         zero /f offset=1000 len=1000000
         collapse /f offset=4096 len=8192
         insert /f offset=4096 len=1048576
         copy /f /g from=1000 to=500 len=700000
         copy /f /f from=0 to=1048576 len=700000
         rename /g /f mode=replace",
    )
    .unwrap();
    run(&setup, &victims, &pool(Form::Auto, 2));
}

/// Attributes in lines, in pages and in a chain of pages are set, replaced and removed; they follow a
/// mode, are inherited, and a capability goes with a change of contents.
#[test]
fn of_extended_attributes() {
    let long =
        |n: usize| format!("setxattr /f name=user.{} mode=any len=1000 fill={n}\n", "l".repeat(n));
    let chain: String = (100..112).map(long).collect();
    let setup = parse_steps(&format!(
        "create /f {FILE}\n{chain}setxattr /f name=user.paged mode=any len=9000 fill=1
         setxattr /f name=system.posix_acl_access mode=any acl=u:6,g:4,g9:7,m:5,o:4
         create /cap {FILE}\nwrite /cap offset=0 len=9000 fill=2
         setxattr /cap name=security.capability mode=any len=20 fill=3
         create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
         setxattr /d name=system.posix_acl_default mode=any acl=u:7,u5:6,g:5,m:7,o:0"
    ))
    .unwrap();
    let victims = parse_steps(&format!(
        "setxattr /f name=user.short mode=any len=10 fill=4
         setxattr /f name=user.paged mode=any len=20000 fill=5
         setxattr /f name=user.paged mode=any len=5 fill=6
         removexattr /f name=user.paged
         setxattr /cap name=user.paged mode=any len=65536 fill=7
         set /f mode=600
         set /f project=3
         write /cap offset=100 len=64 fill=8
         write /cap offset=0 len=50000 fill=9
         punch /cap offset=100 len=5000
         copy /f /cap from=0 to=100 len=0
         set /cap size=100
         create /d/f {FILE}
         create /d/d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
         unlink /f
         setxattr /d name=system.posix_acl_default mode=any acl=u:7,g:5,o:0"
    ))
    .unwrap();
    run(&setup, &victims, &pool(Form::Auto, 2));
    run(&setup, &victims, &pool(Form::Two, 1));
}
