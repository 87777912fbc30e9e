//! The promise holds for clients that share a pool: when one dies in the middle of an operation, the
//! others find all of it or nothing, and nothing that it held is held any more. One in some of the
//! stores, other ones for each operation; `NOVALE_LAB_EACH=1` tries each, and takes minutes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test panics and tells"
)]

mod support;

use std::fmt::Write;

use novale_core::{Form, Mode, UpdatePolicy};
use novale_lab::clients::{
    DeathOptions, DeathSummary, Holding, Points, die_everywhere, die_holding, die_settling,
};
use novale_lab::diff::CoreOptions;
use novale_lab::workload::{Step, parse_steps};
use support::{FILE, cases, is_share, one_in, share};

/// Lets a client die in each operation, at other ones of its points each time.
fn all_die(setup: &[Step], victims: Vec<Step>, mut options: DeathOptions) -> DeathSummary {
    let mut total = DeathSummary::default();
    for victim in victims {
        options.first = (options.first + 1) % options.stride as u64;
        match die_everywhere(setup, &victim, &options) {
            Ok(summary) => total += summary,
            Err(why) => panic!("{:?}, {:?}: {why}", options.core.update, options.points),
        }
    }
    println!("{:?}, {:?}: {total:?}", options.core.update, options.points);
    total
}

fn run(form: Form, lanes: u32, (points, stride): (Points, usize), power: bool) {
    let core = CoreOptions::new(vec![4 << 20], lanes, form);
    let options = DeathOptions { core, points, stride: one_in(stride), first: 0, power, seed: 1 };
    let (setup, victims) = cases();
    let total = all_die(&setup, victims, options);
    // One operation may be done at each of the stores that are tried of it, or at none.
    assert!(is_share() || (total.done > 0 && total.done < total.deaths));
}

/// A survivor has the file mapped that the victim changes.
fn run_mapped((points, stride): (Points, usize), power: bool) {
    let core = CoreOptions::new(vec![2 << 20], 1, Form::Auto);
    let options = DeathOptions { core, points, stride: one_in(stride), first: 0, power, seed: 4 };
    let setup = format!(
        "create /f {FILE}\nwrite /f offset=0 len=20000 fill=1\nmap /f slot=1\n\
         store @1 offset=0 len=9000 fill=2\nset /f size=14000\n"
    );
    let victims = "write /f offset=100 len=9000 fill=7
        write /f offset=13000 len=9000 fill=7
        append /f len=12 fill=7
        set /f size=5000
        set /f size=30000
        allocate /f extend=1 offset=8192 len=40000
        punch /f offset=100 len=9000
        zero /f offset=9000 len=20000
        copy /f /f from=0 to=12000 len=6000
        flush /f page=0 pages=9
        map /f slot=2";
    let setup = parse_steps(&setup).unwrap();
    let total = all_die(&setup, parse_steps(victims).unwrap(), options);
    assert!(total.done > 0 && total.done < total.deaths);
}

/// Who settles dies as well: what it has begun another one ends, and nothing twice.
#[test]
fn and_so_does_who_settles_for_them() {
    let core = CoreOptions::new(vec![4 << 20], 2, Form::Auto);
    let (setup, victims) = cases();
    let stride = one_in(61);
    let mut total = DeathSummary::default();
    // Before and behind the commit of most, and while the last of them frees pages.
    for (points, at, power) in
        [(Points::Pool, 2, true), (Points::Arena, 30, false), (Points::Arena, 46, false)]
    {
        let mut options =
            DeathOptions { core: core.clone(), points, stride, first: 0, power, seed: 1 };
        for victim in &victims {
            options.first = (options.first + 1) % options.stride as u64;
            match die_settling(&setup, (victim, at), &options) {
                Ok(summary) => total += summary,
                Err(why) => panic!("{why}"),
            }
        }
    }
    println!("{total:?}");
    assert!(is_share() || (total.done > 0 && total.done < total.deaths));
}

/// By each method of writes.
#[test]
fn while_they_overwrite() {
    let setup = format!(
        "create /f {FILE}\nwrite /f offset=0 len=9000 fill=1
         create /g {FILE}\nwrite /g offset=0 len=5000 fill=3
         write /f offset=200 len=64 fill=4"
    );
    let setup = parse_steps(&setup).unwrap();
    // The copy is a write from a mapping where that is a method of its own. The last one maps a page anew that may have
    // a second copy.
    let victims = "write /f offset=100 len=64 fill=2\nwrite /f offset=4000 len=5000 fill=2
        copy /g /f from=50 to=3000 len=2000\nwrite /f offset=0 len=4096 fill=5";
    for update in share(UpdatePolicy::ALL.to_vec()) {
        let core = CoreOptions { update, ..CoreOptions::new(vec![2 << 20], 1, Form::Auto) };
        let (points, stride) = (Points::Pool, one_in(2));
        let options = DeathOptions { core, points, stride, first: 0, power: true, seed: 5 };
        let total = all_die(&setup, parse_steps(victims).unwrap(), options);
        assert!(total.done > 0 && total.done < total.deaths);
    }
}

#[test]
fn while_another_one_has_the_file_mapped() {
    run_mapped((Points::Pool, 3), true);
    run_mapped((Points::Arena, 9), false);
}

/// The log grows at some of these writes, and collection reclaims pages of it.
#[test]
fn while_a_log_grows_and_is_collected() {
    let core = CoreOptions::new(vec![2 << 20], 1, Form::Auto);
    let options =
        DeathOptions { core, points: Points::Pool, stride: 1, first: 0, power: true, seed: 2 };
    let mut total = DeathSummary::default();
    for writes in share(vec![62, 63, 125, 126, 188, 189, 251, 252, 314, 315]) {
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
    assert!(is_share() || total.done > 0 && total.done < total.deaths);
}

/// Of many freed pages none is lost but those of the piece that was being given back.
#[test]
fn while_many_pages_are_freed() {
    free_many_pages(Points::Pool, 1);
}

/// At one in so many stores: there are twelve thousand.
#[test]
fn while_many_pages_are_freed_in_the_arena() {
    free_many_pages(Points::Arena, one_in(241));
}

fn free_many_pages(points: Points, stride: usize) {
    let core = CoreOptions::new(vec![16 << 20], 2, Form::Auto);
    let options = DeathOptions { core, points, stride, first: 0, power: false, seed: 3 };
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
    run(Form::Auto, 2, (Points::Pool, 1), false);
}

#[test]
fn and_are_settled_for_in_the_two_fence_form() {
    run(Form::Two, 1, (Points::Pool, 1), false);
}

#[test]
fn and_the_power_fails_then() {
    run(Form::Auto, 1, (Points::Pool, 3), true);
}

#[test]
fn and_are_settled_for_between_stores_to_the_arena() {
    run(Form::Auto, 2, (Points::Arena, 7), false);
}

/// What a client has open is closed for it: by the client that settles, also for one that died settling.
#[test]
fn while_they_open_and_close_files() {
    let closes = Holding::OpensRemovesCloses;
    for (what, kept) in [
        (Holding::Opens, true),
        (Holding::Makes, false),
        (closes, false),
        (closes, true),
        (Holding::Settles, false),
    ] {
        match die_holding(what, kept, one_in(3)) {
            Ok(deaths) => {
                println!("{what:?}, kept {kept}: {deaths} deaths");
                assert!(deaths > 20);
            }
            Err(why) => panic!("{why}"),
        }
    }
}

/// What a client has mapped is unmapped for it, and no page that another one has mapped goes to a file.
#[test]
fn while_they_map_and_unmap_files() {
    for (what, kept) in [
        (Holding::MapsCutsWrites, false),
        (Holding::MapsCutsWrites, true),
        (Holding::MapsRemoves, false),
        (Holding::MapsRemoves, true),
        (Holding::GivesWay, false),
        (Holding::GivesWay, true),
    ] {
        match die_holding(what, kept, one_in(3)) {
            Ok(deaths) => {
                println!("{what:?}, kept {kept}: {deaths} deaths");
                assert!(deaths > 20);
            }
            Err(why) => panic!("{why}"),
        }
    }
}

/// Another one goes on, and the slot can be taken out in the end. So it is where pages that nobody writes move.
#[test]
fn while_they_empty_a_slot() {
    let file = |name| {
        format!(
            "create /{name} {FILE}\nwrite /{name} offset=0 len=9000 fill=1\n\
             write /{name} offset=100 len=64 fill=2\n"
        )
    };
    let setup: String = ["d", "e", "f", "g", "h"].map(file).concat()
        + "setxattr /g name=user.long mode=any len=6000 fill=4\nwrite /g offset=100 len=64 fill=2\n";
    let (leave, stay, cold) = ("leave / stays=0", "leave / stays=1", "leave / stays=2");
    for (mode, points, stride, power) in [
        (Mode::Strict, Points::Pool, one_in(3), true),
        (Mode::Buffered, Points::Pool, one_in(3), true),
        // There are twelve thousand.
        (Mode::Strict, Points::Arena, one_in(701), false),
    ] {
        let slots = vec![2 << 20, 1 << 20];
        // Images of several slots are opened with views dropped; so is the pool, in this form.
        let core = CoreOptions { mode, ..CoreOptions::new(slots, 2, Form::Single) };
        let options = DeathOptions { core, points, stride, first: 0, power, seed: 6 };
        let mut total = DeathSummary::default();
        for (before, victim) in [("", leave), (leave, stay), ("", cold)] {
            let setup = parse_steps(&format!("{setup}\n{before}")).unwrap();
            let victim = parse_steps(victim).unwrap().remove(0);
            match die_everywhere(&setup, &victim, &options) {
                Ok(summary) => total += summary,
                Err(why) => panic!("{mode:?}, {points:?}: {why}"),
            }
        }
        println!("{mode:?}, {points:?}: {total:?}");
        assert!(total.deaths > 5, "{total:?}");
    }
}

/// At one in so many stores; the power is cut at each fence of the settling then.
#[test]
fn and_the_power_fails_then_behind_a_death_in_the_arena() {
    run(Form::Two, 1, (Points::Arena, 19), true);
}

/// What a directory's first load has entered goes with its client: who lives finds each name once, and not
/// when it is removed.
#[test]
fn while_they_load_what_they_use() {
    let core = CoreOptions::new(vec![4 << 20], 1, Form::Auto);
    let (points, stride) = (Points::Arena, one_in(5));
    let options = DeathOptions { core, points, stride, first: 0, power: false, seed: 9 };
    let (mut setup, _) = cases();
    setup.push(Step::Remount);
    let victims = format!("create /d/new {FILE}\nunlink /d/l\nrename /d/f /g/g mode=replace");
    let total = all_die(&setup, share(parse_steps(&victims).unwrap()), options);
    assert!(is_share() || (total.done > 0 && total.done < total.deaths));
}

/// Writes to the buffer, flushes of it, and what comes beside it: who lives sees the write of a client that
/// died whole or not at all and nothing else of the file's missing; the power takes what was not flushed.
#[test]
fn while_their_writes_are_buffered() {
    run_buffered((Points::Pool, 2), true);
}

#[test]
fn and_are_settled_for_while_their_writes_are_buffered() {
    run_buffered((Points::Arena, 7), false);
}

fn run_buffered((points, stride): (Points, usize), power: bool) {
    let setup = format!(
        "create /f {FILE}\nwrite /f offset=0 len=9000 fill=1\nsync /f\nwrite /f offset=100 len=64 fill=2\n\
         write /f offset=3000 len=9000 fill=3\ncreate /g {FILE}\nwrite /g offset=50 len=5000 fill=4"
    );
    let setup = parse_steps(&setup).unwrap();
    let victims = "write /f offset=150 len=64 fill=5\nwrite /f offset=4096 len=4096 fill=5
        write /f offset=14000 len=70 fill=5\nappend /f len=12 fill=5\nwrite /f offset=0 len=20000 fill=5
        sync /f\nset /f mode=600\nset /f size=5000\nset /f size=30000\nrename /g /f mode=replace\nunlink /f
        link /g /h\ncopy /g /f from=50 to=3000 len=2000\npunch /f offset=100 len=9000\nmap /f slot=2";
    let core =
        CoreOptions { mode: Mode::Buffered, ..CoreOptions::new(vec![2 << 20], 1, Form::Auto) };
    let options = DeathOptions { core, points, stride: one_in(stride), first: 0, power, seed: 5 };
    let total = all_die(&setup, share(parse_steps(victims).unwrap()), options);
    assert!(is_share() || (total.done > 0 && total.done < total.deaths));
    // Between one store of what has reserved them and the next they are nobody's.
    assert!(total.reserved_left <= 3.max(total.deaths / 25), "{total:?}");
}

/// A file has at most 4,096 blocks in the buffer: the write that brings more waits for a flush of them, 34,000
/// stores to the arena. One in 6,007 of them, and of the stores to the pool.
#[test]
fn while_a_write_has_the_buffer_flushed() {
    let mut setup = format!("create /f {FILE}\n");
    for part in 0..16 {
        writeln!(setup, "write /f offset={} len=1048576 fill=1", part << 20).unwrap();
    }
    let setup = parse_steps(&setup).unwrap();
    for (points, stride) in [(Points::Arena, 6007), (Points::Pool, 1409)] {
        let core =
            CoreOptions { mode: Mode::Buffered, ..CoreOptions::new(vec![40 << 20], 1, Form::Auto) };
        let options = DeathOptions { core, points, stride, first: 0, power: false, seed: 6 };
        let victims = parse_steps("write /f offset=100 len=9000 fill=5").unwrap();
        let total = all_die(&setup, victims, options);
        assert!(total.deaths > 2, "no flush: {total:?}");
    }
}

/// The survivor has them open: what they have stays theirs until it closes them.
#[test]
fn while_files_have_no_name() {
    let setup = format!(
        "create /g {FILE}\nwrite /g offset=50 len=5000 fill=4\nhold /g slot=1\nunlink /g\n\
         unnamed / slot=2 {FILE}\nwrite @2 offset=0 len=9000 fill=1"
    );
    let setup = parse_steps(&setup).unwrap();
    let victims = "write @1 offset=100 len=64 fill=5\nappend @2 len=9000 fill=5\nset @1 size=100
        setxattr @2 name=user.long mode=any len=6000 fill=4\npunch @2 offset=100 len=8000\nlink @2 /h
        copy @2 @1 from=50 to=3000 len=2000";
    for (points, stride) in [(Points::Pool, 1), (Points::Arena, one_in(7))] {
        let core = CoreOptions::new(vec![2 << 20], 1, Form::Auto);
        // A power cut ends what has no name, whatever was done to it.
        let options = DeathOptions { core, points, stride, first: 0, power: false, seed: 8 };
        let total = all_die(&setup, share(parse_steps(victims).unwrap()), options);
        assert!(is_share() || (total.done > 0 && total.done < total.deaths));
    }
}

/// What was taken for an operation that a full pool refuses is given back, and to nobody twice.
#[test]
fn while_they_are_refused() {
    let setup = format!(
        "create /d {FILE}\ncreate /f {FILE}\nwrite /f offset=0 len=9000 fill=1\n\
         setxattr /f name=user.a mode=any len=3000 fill=4\nappend /d len=1930000 fill=2\n"
    );
    let setup = parse_steps(&setup).unwrap();
    // There is room for the pages of data, and none for an entry that maps them.
    let refused = "append /f len=8096 fill=7\nsetxattr /f name=user.b mode=any len=8096 fill=7\n";
    for (points, power) in [(Points::Pool, true), (Points::Arena, false)] {
        let core = CoreOptions::new(vec![2 << 20], 1, Form::Auto);
        let options = DeathOptions { core, points, stride: 1, first: 0, power, seed: 7 };
        let total = all_die(&setup, parse_steps(refused).unwrap(), options);
        assert!(total.deaths > 5 && total.done == 0, "{total:?}");
    }
}
