//! What the mutants are tried on: sequences that reach every call of `pm` in `core`.

use std::fmt::{self, Write as _};

use novale_core::{Form, UpdatePolicy};

use crate::clients::SETUP;
use crate::crash::small_step;
use crate::diff::CoreOptions;
use crate::workload::{Flavor, Generator, Step, parse_steps};

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

/// Every operation, in every way in which it touches the pool differently.
const OPERATIONS: &str = "
    create /A kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /B kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /A/foo kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    write /A/foo offset=0 len=5000 fill=1
    write /A/foo offset=100 len=8 fill=2
    write /A/foo offset=4096 len=4096 fill=3
    append /A/foo len=10 fill=4
    write /A/foo offset=20000 len=100 fill=5
    setxattr /A/foo name=user.a mode=any len=5000 fill=3
    setxattr /A/foo name=user.b mode=any len=10 fill=4
    setxattr /A name=system.posix_acl_default mode=any acl=u:7,u5:6,g:5,m:7,o:0
    create /A/heir kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    rmdir /A/heir
    setxattr /A name=system.posix_acl_default mode=any acl=%
    set /A/foo size=5000
    write /A/foo offset=6000 len=77 fill=6
    set /A/foo size=6001
    set /A/foo size=9000
    set /A/foo size=7001
    append /A/foo len=20000 fill=7
    write /A/foo offset=3 len=20001 fill=8
    write /A/foo offset=65536 len=16384 fill=9
    set /A/foo size=300
    allocate /A/foo extend=1 offset=1000 len=30000
    set /A/foo size=100
    allocate /A/foo extend=0 offset=0 len=20000
    punch /A/foo offset=50 len=20
    punch /A/foo offset=100 len=17000
    zero /A/foo offset=4000 len=9000
    zero_keep_size /A/foo offset=8192 len=4096
    insert /A/foo offset=4096 len=8192
    collapse /A/foo offset=0 len=4096
    copy /A/foo /A/foo from=0 to=20480 len=9000
    link /A/foo /B/link
    unlink /A/foo
    create /A/bar kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    append /A/bar len=4096 fill=10
    rename /A/bar /B/link mode=replace
    create /B/symlink kind=symlink mode=777 uid=0 gid=0 rdev=0 target=t*100
    create /B/device kind=char mode=600 uid=0 gid=0 rdev=259 target=%
    create /A/n*200 kind=directory mode=2755 uid=1 gid=1 rdev=0 target=%
    rename /A/n*200 /B/moved mode=replace
    rename /A /B mode=exchange
    create /one kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    create /two kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    rename /one /two mode=exchange
    set /one mode=6755 uid=3
    set /one mtime=5 atime=-7
    set /one gid=2 clear_set_id=1 size=300
    hold /one slot=1
    unlink /one
    write /two offset=0 len=8 fill=11
    release slot=1
    rmdir /A/moved
    unlink /A/symlink
    remount
    write /two offset=1 len=20 fill=12
    remount
    write /two offset=1 len=20 fill=13
    write /two offset=0 len=9000 fill=13
    set /two size=5000
    write /two offset=20000 len=100 fill=14
    remount
    create /three kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    die
    write /two offset=1 len=20 fill=13
    unlink /three
    remount
";

/// The runs that are always the same, each in both forms.
const FIXED: [fn(Form) -> Plan; 31] = [
    |form| Plan::new("operations", one_slot(1, form, 3), "", OPERATIONS),
    |form| Plan::new("operations", one_slot(2, form, 3), "", OPERATIONS).with_threads(),
    |form| Plan::new("names in turn", one_slot(1, form, 3), "", IN_TURN).with_threads(),
    settling,
    |form| Plan::new("openings", one_slot(1, form, 2), "", OPENINGS),
    |form| Plan::new("closings", one_slot(1, form, 2), "", CLOSINGS),
    |form| Plan::new("heirs", one_slot(1, form, 3), "", HEIRS),
    |form| first_use(form, "attributes", "setxattr /f name=user.a mode=replace len=10 fill=1"),
    |form| first_use(form, "trees", "set /f project=3"),
    |form| first_use(form, "moved pages", "collapse /f offset=0 len=4096"),
    without_names,
    |form| without_names(form).with_threads(),
    |form| Plan::new("mapped files", one_slot(1, form, 3), "", MAPPED),
    |form| Plan::new("mapped files", one_slot(2, form, 3), "", MAPPED).with_threads(),
    |form| by(UpdatePolicy::InPlace, Plan::new("in place", one_slot(1, form, 3), "", METHODS)),
    |form| {
        let plan = Plan::new("by the log", one_slot(1, form, 3), "", METHODS);
        by(UpdatePolicy::FineLog, plan.with_threads())
    },
    |form| by(UpdatePolicy::FineLog, settling(form)),
    |form| by(UpdatePolicy::Paired, Plan::new("paired pages", one_slot(1, form, 3), "", METHODS)),
    |form| by(UpdatePolicy::Adl, Plan::new("undo log", one_slot(1, form, 3), "", METHODS)),
    |form| by(UpdatePolicy::Zcl, Plan::new("sources", one_slot(1, form, 3), "", SOURCES)),
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

fn one_slot(lanes: u32, form: Form, pool_mb: u64) -> CoreOptions {
    CoreOptions::new(vec![pool_mb * MB], lanes, form)
}

/// What is done when a dead client's operation has been settled.
const SETTLED: &str = "
    create /afterwards kind=file mode=600 uid=0 gid=0 rdev=0 target=%
    write /f offset=100 len=5000 fill=9
    write /d/f offset=0 len=64 fill=9
    create /beside kind=directory mode=700 uid=0 gid=0 rdev=0 target=%
    link /d/f /beside/f
    unlink /f
    rename /afterwards /d/f mode=replace
    rmdir /g/e
";

/// One opening after the other, so that many end in the middle.
const OPENINGS: &str = "
    create /a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    die
    append /a len=10 fill=1
    die
    remount
    die
    die
    link /a /b
    remount
    remount
    die
";

/// Sessions in which space changes hands and no record is made, so that nothing but the allocator is
/// stored before the end.
const CLOSINGS: &str = "
    create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    remount
    append /f len=9000 fill=1
    remount
    append /f len=20000 fill=2
    remount
    write /f offset=4096 len=4096 fill=3
    remount
    set /f size=100
    remount
    append /f len=5000 fill=4
    die
    append /f len=30000 fill=5
    remount
";

/// New inodes that have attributes from the beginning.
const HEIRS: &str = "
    create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    setxattr /d name=system.posix_acl_default mode=any acl=u:7,u5:6,g:5,m:7,o:0
    create /d/a kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /d/b kind=file mode=666 uid=0 gid=0 rdev=0 target=%
    create /d/a/c kind=directory mode=700 uid=0 gid=0 rdev=0 target=%
    create /d/a/e kind=fifo mode=666 uid=0 gid=0 rdev=0 target=%
    unnamed /d/a slot=1 kind=file mode=666 uid=0 gid=0 rdev=0 target=%
    link @1 /d/named
    rmdir /d/a/c
    unlink /d/b
    create /d/a/f kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /d/g kind=file mode=640 uid=0 gid=0 rdev=0 target=%
    remount
    create /d/a/h kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /d/i kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    unlink /d/g
    create /d/j kind=file mode=666 uid=0 gid=0 rdev=0 target=%
";

/// A file whose own pages are mapped: changed in place, cut, grown, flushed; one that is published to.
const MAPPED: &str = "
    create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    write /f offset=0 len=20000 fill=1
    setxattr /f name=user.a mode=any len=5000 fill=3
    map /f slot=1
    store @1 offset=100 len=9000 fill=2
    flush /f page=0 pages=2
    write /f offset=60 len=9 fill=3
    write /f offset=4000 len=9000 fill=4
    store @1 offset=8192 len=4096 fill=5
    write /f offset=24000 len=9000 fill=6
    flush /f page=0 pages=20
    punch /f offset=100 len=9000
    zero /f offset=9000 len=30000
    setxattr /f name=security.capability mode=any len=20 fill=5
    set /f size=5000
    store @1 offset=0 len=20000 fill=7
    allocate /f extend=0 offset=8192 len=12288
    store @1 offset=0 len=20000 fill=17
    setxattr /f name=security.capability mode=any len=20 fill=6
    append /f len=20000 fill=8
    set /f size=6000
    allocate /f extend=0 offset=8192 len=8192
    store @1 offset=4096 len=12288 fill=18
    set /f size=30000
    set /f size=6000
    allocate /f extend=0 offset=8192 len=8192
    store @1 offset=4096 len=12288 fill=19
    allocate /f extend=1 offset=20000 len=100
    set /f size=100
    store @1 offset=0 len=4000 fill=9
    set /f size=30000
    allocate /f extend=1 offset=28000 len=20000
    copy /f /f from=0 to=20480 len=9000
    release slot=1
    write /f offset=10 len=10 fill=10
    map /f slot=2
    store @2 offset=0 len=100 fill=11
    flush /f page=0 pages=1
    release slot=2
    scatter /f offset=10 len=100 fill=12 count=3 apart=8192
    scatter /f offset=60000 len=5000 fill=13 count=2 apart=9000
    setxattr /f name=security.capability mode=any len=20 fill=7
    scatter /f offset=0 len=4096 fill=14 count=4 apart=4096
    remount
    scatter /f offset=1 len=9 fill=15 count=2 apart=70000
    map /f slot=1
    unlink /f
    write @1 offset=0 len=9000 fill=16
    set @1 size=10
    die
    remount
";

/// Operations on inodes that the next ones do not touch, so that own lines count for long.
const IN_TURN: &str = "
    create /A kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /B kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /C kind=directory mode=755 uid=0 gid=0 rdev=0 target=%
    create /A/a kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    create /B/b kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    create /C/c kind=file mode=644 uid=0 gid=0 rdev=0 target=%
    link /A/a /A/a2
    link /B/b /B/b2
    link /C/c /C/c2
    rename /A/a /A/a3 mode=replace
    rename /B/b /B/b3 mode=replace
    rename /C/c /C/c3 mode=replace
    rename /A/a2 /A/a3 mode=exchange
    rename /B/b2 /B/b3 mode=exchange
    rename /C/c2 /C/c3 mode=exchange
    unlink /A/a2
    unlink /B/b2
    unlink /C/c2
    unlink /A/a3
    unlink /B/b3
    unlink /C/c3
    rmdir /A
    rmdir /B
    rmdir /C
";

/// Overwrites, and what comes after them.
const SOURCES: &str = "
    create /f kind=file mode=6755 uid=1 gid=1 rdev=0 target=%
    create /h kind=file mode=644 uid=1 gid=1 rdev=0 target=%
    write /f offset=0 len=9000 fill=1
    write /h offset=0 len=9000 fill=2
    copy /h /f from=100 to=30 len=64
    map /h slot=1
    store @1 offset=100 len=200 fill=3
    copy /h /f from=50 to=4000 len=2000
    store @1 offset=60 len=200 fill=4
    flush /h page=0 pages=1
    copy /h /f from=4000 to=100 len=200
    release slot=1
    write /f offset=64 len=64 fill=5
    die
    copy /h /f from=100 to=4000 len=200
    remount
    unlink /f
    unlink /h
";

const METHODS: &str = "
    create /f kind=file mode=6755 uid=1 gid=1 rdev=0 target=%
    write /f offset=0 len=9000 fill=1
    write /f offset=100 len=64 fill=2
    write /f offset=4000 len=200 fill=3
    write /f offset=4000 len=200 fill=4
    append /f len=100 fill=5
    write /f offset=9000 len=90 fill=6
    set /f mode=600
    write /f offset=0 len=8192 fill=7
    write /f offset=0 len=9000 fill=8
    write /f offset=30 len=10 fill=9
    map /f slot=1
    store @1 offset=30 len=64 fill=10
    flush /f page=0 pages=1
    write /f offset=32 len=64 fill=11
    release slot=1
    write /f offset=64 len=64 fill=12
    link /f /g
    write /g offset=1 len=700 fill=13
    punch /f offset=4096 len=4096
    write /f offset=5000 len=64 fill=14
    write /f offset=5001 len=64 fill=15
    die
    write /f offset=10 len=64 fill=16
    remount
    write /f offset=11 len=64 fill=17
    unlink /f
    unlink /g
";

/// A run whose writes take these methods.
fn by(update: UpdatePolicy, plan: Plan) -> Plan {
    let core = CoreOptions { update, ..plan.core };
    Plan { name: format!("{}, {update:?}", plan.name), core, ..plan }
}

fn settling(form: Form) -> Plan {
    let plan = Plan::new("settling", one_slot(1, form, 4), SETUP, SETTLED);
    Plan { ends: Ends::Settled, ..plan }
}

fn access_times(form: Form) -> Plan {
    let work = "
        create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        append /f len=10 fill=1
        set /f mode=640
        read /f offset=0 len=10
        read /f offset=0 len=10
        remount
        read /f offset=0 len=10
    ";
    let plan = Plan::new("access times", one_slot(1, form, 3), "", work);
    Plan { strict_atime: true, ends: Ends::Never, ..plan }
}

/// The first use of a feature, of which a pool has one in its life, and of the others after it.
fn first_use(form: Form, name: &str, step: &str) -> Plan {
    let setup = "
        create /f kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        append /f len=20000 fill=1
    ";
    let work = format!(
        "{step}
        setxattr /f name=user.b mode=any len=5000 fill=1
        set / project=4
        collapse /f offset=4096 len=4096
        limit / inodes=9
        create /g kind=file mode=644 uid=0 gid=0 rdev=0 target=%
        removexattr /f name=user.b"
    );
    Plan::new(&format!("first use of {name}"), one_slot(1, form, 2), setup, &work)
}

/// Files that are made without a name, and get one or go. The first of them makes inode pages, and one
/// of the last the next.
fn without_names(form: Form) -> Plan {
    let file = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
    let mut text = format!(
        "unnamed / slot=0 {file}
        write @0 offset=0 len=5000 fill=1
        unnamed / slot=1 {file}
        link @0 /first
        release slot=1
        unnamed / slot=1 {file}
        append @1 len=100 fill=2
        unnamed / slot=1 {file}
        setxattr @1 name=user.a mode=any len=10 fill=4
        link @1 /second
        unlink /second
        release slot=1\n"
    );
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

/// Takes most free pages and gives as many back.
fn use_free_pages(text: &mut String, turn: u32) {
    add(text, format_args!("write /ballast offset=0 len=122880 fill={}", turn % 200 + 1));
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

/// Dentries of several lines now and then leave a page's last lines blank.
fn long_end(index: u32) -> String {
    if index % 3 == 1 { "_of_four_lines".repeat(13) } else { String::new() }
}

fn coming_and_going(between: &dyn Fn(&mut String, u32)) -> String {
    let mut text = String::from("create /d kind=directory mode=755 uid=0 gid=0 rdev=0 target=%\n");
    for index in 0..130 {
        let kind = "kind=file mode=644 uid=0 gid=0 rdev=0 target=%";
        let name = |index: u32| format!("/d/n{index}{}", long_end(index));
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
    let mut setup =
        String::from("create /ballast kind=file mode=600 uid=0 gid=0 rdev=0 target=%\n");
    setup.push_str(&"append /ballast len=65536 fill=3\n".repeat(28));
    setup.push_str(&"append /ballast len=4096 fill=3\n".repeat(20));
    let work = "
        create /f kind=file mode=600 uid=0 gid=0 rdev=0 target=%
        write /ballast offset=8192 len=16384 fill=4
        write /ballast offset=9000 len=16384 fill=5
        set /ballast size=1500000
        append /ballast len=65536 fill=6
        append /ballast len=40960 fill=6
        append /ballast len=12288 fill=6
        write /ballast offset=0 len=40960 fill=7
        punch /ballast offset=100 len=5000
        punch /ballast offset=40960 len=20480
        zero /ballast offset=8192 len=8192
        collapse /ballast offset=4096 len=8192
        remount
    ";
    Plan::new("full", one_slot(1, form, 2), &setup, work)
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
        assert!(parse_steps(OPERATIONS).unwrap().len() > 40);
        assert!(parse_steps(IN_TURN).unwrap().len() > 20);
        assert!(parse_steps(METHODS).unwrap().len() > 20);
    }
}
