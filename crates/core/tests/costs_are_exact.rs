//! What each operation costs in persistent memory, exactly: lines stored, lines written back, and
//! fences. A change of any figure is a change of what a user pays, and of docs/PERFORMANCE.md.
//!
//! Streamed lines need no write-back; a line that two calls store is counted twice; a fence costs
//! time only when something is pending before it. Both commit forms: single-fence, two-fence.
//!
//! An operation on names leaves its inodes' own lines in the cache; the next one on the lane writes
//! them back. Here that is the create before it, of two lines.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write;

use novale_core::{
    BufferRules, Ctx, Fallocate, FileKind, Form, Fs, Ino, Mode, NewInode, Node, OpenOptions, Place,
    RenameMode, Seek, SetAttr, SetXattr, Unnamed, UpdatePolicy,
};
use novale_pm::Counters;

use support::MB;

const PAGE: usize = 4096;

/// What one operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    lines: u64,
    write_backs: u64,
    fences: u64,
    fences_with_pending: u64,
}

const fn cost(lines: u64, write_backs: u64, fences: u64) -> Cost {
    Cost { lines, write_backs, fences, fences_with_pending: fences }
}

/// The files and directories that every case starts with, made by the thread that runs the case.
/// The logs of `a`, `b` and `f` have a page with room: what is counted is the operation alone.
struct World {
    fs: Fs,
    /// Two directories; `a` has the names "f", "g" and "sub", `b` has "h".
    a: Ino,
    b: Ino,
    /// A file of four pages.
    f: Ino,
    /// An empty file.
    g: Ino,
}

fn options(form: Form) -> OpenOptions {
    OpenOptions { form, now_ns: 2, ..OpenOptions::default() }
}

fn ctx() -> Ctx {
    Ctx { now_ns: 1_000, hint: 0 }
}

fn inode(kind: FileKind, target: &[u8]) -> NewInode<'_> {
    NewInode { kind, mode: 0o755, uid: 1, gid: 1, rdev: 0, target }
}

impl World {
    fn new(form: Form) -> Self {
        Self::with(options(form))
    }

    fn with(options: OpenOptions) -> Self {
        let pm = support::pool(&[32 * MB], 1);
        let fs = support::open_as(pm, &options);
        let none = Ino::NULL;
        let mut world = Self { fs, a: none, b: none, f: none, g: none };
        world.a = world.create(Ino::ROOT, b"a", FileKind::Directory);
        world.b = world.create(Ino::ROOT, b"b", FileKind::Directory);
        world.f = world.create(world.a, b"f", FileKind::File);
        world.g = world.create(world.a, b"g", FileKind::File);
        world.create(world.a, b"sub", FileKind::Directory);
        world.create(world.b, b"h", FileKind::File);
        world.write(world.f, 0, 4 * PAGE);
        // The superblock says of each feature that it is used, before the first time.
        let set = SetXattr { name: b"user.first", value: b"1", ..SetXattr::default() };
        world.fs.setxattr(&ctx(), Node::ROOT, &set).unwrap();
        let h = world.fs.lookup(&ctx(), Node::current(world.b), b"h").unwrap().ino;
        world.write(h, 0, 2 * PAGE);
        world.write(h, 64, 64);
        world.fs.fallocate(&ctx(), h, Fallocate::CollapseRange, 0, PAGE as u64).unwrap();
        world
    }

    fn create(&self, dir: Ino, name: &[u8], kind: FileKind) -> Ino {
        self.fs.create(&ctx(), Node::current(dir), name, &inode(kind, b"")).unwrap().ino
    }

    fn write(&self, ino: Ino, at: usize, len: usize) {
        let data = vec![0x5a; len];
        assert_eq!(self.fs.write(&ctx(), ino, at as u64, &data).unwrap(), len);
    }

    fn append(&self, ino: Ino, len: usize) {
        self.fs.append(&ctx(), ino, &vec![0x5a; len]).unwrap();
    }

    fn set(&self, ino: Ino, set: SetAttr) {
        self.fs.setattr(&ctx(), Node::current(ino), &set).unwrap();
    }

    fn resize(&self, ino: Ino, size: u64) {
        self.set(ino, SetAttr { size: Some(size), ..SetAttr::default() });
    }

    fn range(&self, how: Fallocate, at: usize, len: usize) {
        self.fs.fallocate(&ctx(), self.f, how, at as u64, len as u64).unwrap();
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) {
        self.fs
            .rename(&ctx(), Node::current(from.0), from.1, Node::current(to.0), to.1, mode)
            .unwrap();
    }
}

struct Case {
    name: &'static str,
    prepare: fn(&World),
    run: fn(&World),
    /// Single-fence, two-fence.
    costs: [Cost; 2],
}

fn measure(case: &Case, form: Form) -> Cost {
    let world = World::new(form);
    (case.prepare)(&world);
    spent_by(&world, case.run)
}

fn spent_by(world: &World, run: impl FnOnce(&World)) -> Cost {
    let before = world.fs.counters();
    run(world);
    let done: Counters = &world.fs.counters() - &before;
    Cost {
        lines: done.lines(),
        write_backs: done.write_backs(),
        fences: done.fences,
        fences_with_pending: done.fences_with_pending,
    }
}

/// Measures all cases in both forms; fails with a table of those that changed.
fn check(cases: &[Case]) {
    let mut changed = String::new();
    for case in cases {
        let found = [Form::Single, Form::Two].map(|form| measure(case, form));
        if found != case.costs {
            let Case { name, costs, .. } = case;
            writeln!(changed, "{name}\n  expected {costs:?}\n  found    {found:?}").unwrap();
        }
    }
    assert!(changed.is_empty(), "costs changed:\n{changed}");
}

/// An ACL's entries: tag, permissions, whose. The owner, a user, the group, the mask, others.
const ACL: [[u8; 8]; 5] = [
    [1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
    [2, 0, 6, 0, 5, 0, 0, 0],
    [4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff],
    [16, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
    [32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
];

fn nothing(_: &World) {}

#[test]
fn data_costs_its_lines_an_entry_and_a_commit_line() {
    check(&[
        Case {
            name: "overwrite 4 KB",
            prepare: nothing,
            run: |w| w.write(w.f, PAGE, PAGE),
            costs: [cost(66, 0, 1), cost(66, 0, 2)],
        },
        Case {
            name: "overwrite 4 KB of a page with two copies: as of one with one",
            prepare: |w| w.write(w.f, PAGE + 128, 64),
            run: |w| w.write(w.f, PAGE, PAGE),
            costs: [cost(66, 0, 1), cost(66, 0, 2)],
        },
        Case {
            name: "overwrite 64 B: the line, the entry of its page's two copies, the commit line",
            prepare: nothing,
            run: |w| w.write(w.f, PAGE + 128, 64),
            costs: [cost(3, 0, 1), cost(3, 0, 2)],
        },
        Case {
            name: "overwrite 8 KB across three pages: 129 lines",
            prepare: nothing,
            run: |w| w.write(w.f, 100, 2 * PAGE),
            costs: [cost(133, 0, 1), cost(133, 0, 2)],
        },
        Case {
            name: "write 64 KB",
            prepare: nothing,
            run: |w| w.write(w.f, 0, 16 * PAGE),
            costs: [cost(1026, 0, 2), cost(1026, 0, 2)],
        },
    ]);
}

#[test]
fn what_lies_beyond_the_end_costs_its_lines() {
    check(&[
        Case {
            name: "append 4 KB",
            prepare: nothing,
            run: |w| w.append(w.f, PAGE),
            costs: [cost(66, 0, 1), cost(66, 0, 2)],
        },
        Case {
            name: "append 64 B to a new page: a line of it, the entry, the commit line",
            prepare: nothing,
            run: |w| w.append(w.f, 64),
            costs: [cost(3, 0, 1), cost(3, 0, 2)],
        },
        Case {
            name: "append 64 B to a page begun: they and the commit line",
            prepare: |w| w.append(w.f, 64),
            run: |w| w.append(w.f, 64),
            costs: [cost(2, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "append 64 B to a page begun that the last commit's checksum covers",
            prepare: |w| {
                w.append(w.f, 100);
                w.write(w.f, 3 * PAGE, PAGE + 192);
            },
            run: |w| w.append(w.f, 64),
            costs: [cost(6, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "write 64 B over the end: the lines of its page, the entry, the commit line",
            prepare: |w| w.append(w.f, 64),
            run: |w| w.write(w.f, 4 * PAGE + 32, 64),
            costs: [cost(4, 0, 1), cost(4, 0, 2)],
        },
        Case {
            name: "append 4 KB to a page begun: 63 lines of it, and one of a new page",
            prepare: |w| w.append(w.f, 64),
            run: |w| w.append(w.f, PAGE),
            costs: [cost(66, 0, 1), cost(66, 0, 2)],
        },
        Case {
            name: "write 4 KB of a hole behind the end, whose page's zeros may not be durable",
            prepare: |w| {
                w.append(w.f, 100);
                w.resize(w.f, 5 * PAGE as u64);
                w.resize(w.f, 4 * PAGE as u64 + 100);
            },
            run: |w| w.write(w.f, 8 * PAGE, PAGE),
            costs: [cost(66, 63, 2), cost(66, 63, 2)],
        },
        Case {
            name: "write 4 KB behind an end that hides 3996 bytes: zeros with the rest, then the line",
            prepare: |w| w.resize(w.f, 100),
            run: |w| w.write(w.f, 8 * PAGE, PAGE),
            costs: [cost(129, 1, 2), cost(129, 1, 2)],
        },
    ]);
}

#[test]
fn an_attribute_costs_its_page_and_a_fence_before_the_commit() {
    let set = |w: &World, ino, len: usize| {
        let set = SetXattr { name: b"user.a", value: &vec![7; len], ..SetXattr::default() };
        w.fs.setxattr(&ctx(), ino, &set).unwrap();
    };
    let world = |prepare: &dyn Fn(&World), run: &dyn Fn(&World), form| {
        let world = World::new(form);
        prepare(&world);
        let before = world.fs.counters();
        run(&world);
        let done: Counters = &world.fs.counters() - &before;
        (done.lines(), done.write_backs(), done.fences)
    };
    for form in [Form::Single, Form::Two] {
        // Two lines of the chain's page, the entry, the commit line.
        assert_eq!(
            world(&|_| (), &|w| set(w, Node::current(w.f), 10), form),
            (4, 0, 2),
            "{form:?}"
        );
        // Whatever the length of another value.
        let long = |w: &World| {
            let value = vec![1; 60_000];
            let set = SetXattr { name: b"user.long", value: &value, ..SetXattr::default() };
            w.fs.setxattr(&ctx(), Node::current(w.f), &set).unwrap();
        };
        assert_eq!(world(&long, &|w| set(w, Node::current(w.f), 10), form), (4, 0, 2), "{form:?}");
        // A write to a file with attributes costs what any does.
        let write = world(&|w| set(w, Node::current(w.f), 10), &|w| w.write(w.f, 0, PAGE), form);
        assert_eq!(write, (66, 0, if form == Form::Single { 1 } else { 2 }), "{form:?}");
    }
}

#[test]
fn commits_in_the_two_fence_form_are_counted() {
    for (form, counted) in [(Form::Single, 0), (Form::Two, 2)] {
        let world = World::with(options(form));
        let before = world.fs.counters();
        world.write(world.f, 0, PAGE);
        world.rename((world.a, b"f"), (world.b, b"new"), RenameMode::Replace);
        let done: Counters = &world.fs.counters() - &before;
        assert_eq!(done.fences_before_commits, counted, "{form:?}");
    }
}

#[test]
fn a_new_log_page_costs_a_header_and_a_pointer() {
    check(&[
        Case {
            name: "first write of a file: its log's first page",
            prepare: nothing,
            run: |w| w.write(w.g, 0, PAGE),
            costs: [cost(67, 0, 1), cost(67, 0, 2)],
        },
        Case {
            name: "overwrite 4 KB whose entry starts the log's second page",
            prepare: |w| (0..62).for_each(|_| w.write(w.f, 0, PAGE)),
            run: |w| w.write(w.f, 0, PAGE),
            costs: [cost(68, 1, 1), cost(68, 1, 2)],
        },
        Case {
            name: "first name of a directory",
            prepare: nothing,
            run: |w| {
                let sub = w.fs.lookup(&ctx(), Node::current(w.a), b"sub").unwrap().ino;
                w.create(sub, b"x", FileKind::File);
            },
            costs: [cost(8, 2, 1), cost(8, 2, 2)],
        },
        Case {
            name: "create whose entry starts the directory's second log page",
            prepare: |w| {
                for index in 0..62 {
                    w.create(w.b, format!("{index}").as_bytes(), FileKind::File);
                }
            },
            run: |w| {
                w.create(w.b, b"x", FileKind::File);
            },
            costs: [cost(9, 3, 1), cost(9, 3, 2)],
        },
        Case {
            name: "create of a two-line name with one line left: the page ends early",
            prepare: |w| {
                for index in 0..61 {
                    w.create(w.b, format!("{index}").as_bytes(), FileKind::File);
                }
            },
            run: |w| {
                w.create(w.b, &[b'x'; 80], FileKind::File);
            },
            costs: [cost(10, 3, 1), cost(10, 3, 2)],
        },
    ]);
}

#[test]
fn making_costs_entries_a_record_and_a_line_an_inode() {
    check(&[
        Case {
            name: "create",
            prepare: nothing,
            run: |w| {
                w.create(w.a, b"new", FileKind::File);
            },
            costs: [cost(7, 2, 1), cost(7, 2, 2)],
        },
        Case {
            name: "create with a name of 255 bytes (5 lines)",
            prepare: nothing,
            run: |w| {
                w.create(w.a, &[b'n'; 255], FileKind::File);
            },
            costs: [cost(11, 2, 1), cost(11, 2, 2)],
        },
        Case {
            name: "mkdir: a hint of its parent",
            prepare: nothing,
            run: |w| {
                w.create(w.a, b"new", FileKind::Directory);
            },
            costs: [cost(8, 3, 1), cost(8, 3, 2)],
        },
        Case {
            name: "create without a name: a fence in either form",
            prepare: nothing,
            run: |w| {
                let how = Unnamed { may_be_named: true, umask: 0 };
                w.fs.create_unnamed(&ctx(), Node::current(w.a), &inode(FileKind::File, b""), how)
                    .unwrap();
            },
            costs: [cost(4, 2, 1), cost(4, 2, 1)],
        },
        Case {
            name: "create of a file that inherits an ACL: two lines of a page, before the record",
            prepare: |w| {
                let value = [&2_u32.to_le_bytes()[..], &ACL.concat()].concat();
                let name = b"system.posix_acl_default";
                let set = SetXattr { name, value: &value, ..SetXattr::default() };
                w.fs.setxattr(&ctx(), Node::current(w.a), &set).unwrap();
            },
            run: |w| {
                w.create(w.a, b"new", FileKind::File);
            },
            costs: [cost(9, 2, 2), cost(9, 2, 2)],
        },
        Case {
            name: "symlink: its page, its entry in its own log's first page",
            prepare: nothing,
            run: |w| {
                w.fs.create(&ctx(), Node::current(w.a), b"new", &inode(FileKind::Symlink, b"../b"))
                    .unwrap();
            },
            costs: [cost(73, 2, 1), cost(73, 2, 2)],
        },
        Case {
            name: "link",
            prepare: nothing,
            run: |w| {
                w.fs.link(&ctx(), Node::current(w.f), Node::current(w.b), b"new").unwrap();
            },
            costs: [cost(6, 2, 1), cost(6, 2, 2)],
        },
    ]);
}

#[test]
fn removing_costs_an_entry_a_record_and_a_line_an_inode() {
    check(&[
        Case {
            name: "unlink of an empty file",
            prepare: nothing,
            run: |w| w.fs.unlink(&ctx(), Node::current(w.a), b"g").unwrap(),
            costs: [cost(6, 2, 1), cost(6, 2, 2)],
        },
        Case {
            name: "unlink of a file with pages: freeing them costs nothing",
            prepare: nothing,
            run: |w| w.fs.unlink(&ctx(), Node::current(w.a), b"f").unwrap(),
            costs: [cost(6, 2, 1), cost(6, 2, 2)],
        },
        Case {
            name: "unlink of an open file, and its last release",
            prepare: |w| w.fs.hold(w.f).unwrap(),
            run: |w| {
                w.fs.unlink(&ctx(), Node::current(w.a), b"f").unwrap();
                w.fs.release(&ctx(), w.f, 1).unwrap();
            },
            costs: [cost(6, 2, 1), cost(6, 2, 2)],
        },
        Case {
            name: "rmdir",
            prepare: nothing,
            run: |w| w.fs.rmdir(&ctx(), Node::current(w.a), b"sub").unwrap(),
            costs: [cost(6, 2, 1), cost(6, 2, 2)],
        },
    ]);
}

#[test]
fn renames_cost_two_entries_and_a_line_an_inode() {
    const REPLACE: RenameMode = RenameMode::Replace;
    const EXCHANGE: RenameMode = RenameMode::Exchange;
    check(&[
        Case {
            name: "rename in one directory",
            prepare: nothing,
            run: |w| w.rename((w.a, b"f"), (w.a, b"new"), REPLACE),
            costs: [cost(7, 2, 1), cost(7, 2, 2)],
        },
        Case {
            name: "rename across directories",
            prepare: nothing,
            run: |w| w.rename((w.a, b"f"), (w.b, b"new"), REPLACE),
            costs: [cost(9, 2, 1), cost(9, 2, 2)],
        },
        Case {
            name: "rename over a file of the same directory",
            prepare: nothing,
            run: |w| w.rename((w.a, b"g"), (w.a, b"f"), REPLACE),
            costs: [cost(10, 2, 1), cost(10, 2, 2)],
        },
        Case {
            name: "rename over a file of another directory",
            prepare: nothing,
            run: |w| w.rename((w.a, b"f"), (w.b, b"h"), REPLACE),
            costs: [cost(12, 2, 1), cost(12, 2, 2)],
        },
        Case {
            name: "rename of a directory across directories",
            prepare: nothing,
            run: |w| w.rename((w.a, b"sub"), (w.b, b"new"), REPLACE),
            costs: [cost(10, 3, 1), cost(10, 3, 2)],
        },
        Case {
            name: "exchange in one directory",
            prepare: nothing,
            run: |w| w.rename((w.a, b"f"), (w.a, b"g"), EXCHANGE),
            costs: [cost(11, 2, 1), cost(11, 2, 2)],
        },
        Case {
            name: "exchange across directories",
            prepare: nothing,
            run: |w| w.rename((w.a, b"f"), (w.b, b"h"), EXCHANGE),
            costs: [cost(13, 2, 1), cost(13, 2, 2)],
        },
    ]);
}

#[test]
fn attributes_cost_an_entry_and_a_commit_line() {
    check(&[
        Case {
            name: "chmod",
            prepare: nothing,
            run: |w| w.set(w.f, SetAttr { mode: Some(0o600), ..SetAttr::default() }),
            costs: [cost(2, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "chown",
            prepare: nothing,
            run: |w| w.set(w.f, SetAttr { uid: Some(7), gid: Some(7), ..SetAttr::default() }),
            costs: [cost(2, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "utimens of both times",
            prepare: nothing,
            run: |w| {
                let set = SetAttr { atime_ns: Some(5), mtime_ns: Some(6), ..SetAttr::default() };
                w.set(w.f, set);
            },
            costs: [cost(2, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "utimens of the modification time alone",
            prepare: nothing,
            run: |w| w.set(w.f, SetAttr { mtime_ns: Some(6), ..SetAttr::default() }),
            costs: [cost(1, 0, 1), cost(1, 0, 1)],
        },
        Case {
            name: "truncate down by pages",
            prepare: nothing,
            run: |w| w.resize(w.f, PAGE as u64),
            costs: [cost(2, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "truncate down within the last page",
            prepare: nothing,
            run: |w| w.resize(w.f, 4 * PAGE as u64 - 10),
            costs: [cost(1, 0, 1), cost(1, 0, 1)],
        },
        Case {
            name: "truncate up",
            prepare: nothing,
            run: |w| w.resize(w.f, MB),
            costs: [cost(1, 0, 1), cost(1, 0, 1)],
        },
        Case {
            name: "truncate up over an end that hides 3996 bytes",
            prepare: |w| w.resize(w.f, 100),
            run: |w| w.resize(w.f, MB),
            costs: [cost(64, 1, 2), cost(64, 1, 2)],
        },
    ]);
}

#[test]
fn reserved_pages_cost_their_zeros() {
    check(&[
        Case {
            name: "fallocate of a page behind the end, keeping the size",
            prepare: nothing,
            run: |w| {
                let at = 4 * PAGE as u64;
                w.fs.fallocate(&ctx(), w.f, Fallocate::KeepSize, at, PAGE as u64).unwrap();
            },
            costs: [cost(66, 0, 2), cost(66, 0, 2)],
        },
        Case {
            name: "fallocate of what is there",
            prepare: nothing,
            run: |w| {
                w.fs.fallocate(&ctx(), w.f, Fallocate::Extend, 0, PAGE as u64).unwrap();
            },
            costs: [cost(1, 0, 1), cost(1, 0, 1)],
        },
    ]);
}

#[test]
fn ranges_cost_the_pages_at_their_ends() {
    check(&[
        Case {
            name: "punch two pages: a hole",
            prepare: nothing,
            run: |w| w.range(Fallocate::PunchHole, PAGE, 2 * PAGE),
            costs: [cost(2, 0, 1), cost(2, 0, 2)],
        },
        Case {
            name: "punch 100 bytes of a page",
            prepare: nothing,
            run: |w| w.range(Fallocate::PunchHole, PAGE + 50, 100),
            costs: [cost(66, 0, 1), cost(66, 0, 2)],
        },
        Case {
            name: "punch two pages and a part of those around them",
            prepare: nothing,
            run: |w| w.range(Fallocate::PunchHole, 100, 3 * PAGE),
            costs: [cost(132, 0, 1), cost(132, 0, 2)],
        },
        Case {
            name: "punch what is a hole: the times",
            prepare: nothing,
            run: |w| w.range(Fallocate::PunchHole, 8 * PAGE, PAGE),
            costs: [cost(1, 0, 1), cost(1, 0, 1)],
        },
        Case {
            name: "zero a page",
            prepare: nothing,
            run: |w| w.range(Fallocate::ZeroRange, PAGE, PAGE),
            costs: [cost(66, 0, 2), cost(66, 0, 2)],
        },
        Case {
            name: "collapse a page before three: a hole, and an entry for each run that moves",
            prepare: nothing,
            run: |w| w.range(Fallocate::CollapseRange, 0, PAGE),
            costs: [cost(3, 0, 2), cost(3, 0, 2)],
        },
        Case {
            name: "insert a page before three",
            prepare: nothing,
            run: |w| w.range(Fallocate::InsertRange, PAGE, PAGE),
            costs: [cost(3, 0, 2), cost(3, 0, 2)],
        },
        Case {
            name: "copy 4 KB from one file to another",
            prepare: nothing,
            run: |w| {
                let place = |ino, offset| Place { ino, offset };
                w.fs.copy_range(&ctx(), place(w.f, 0), place(w.g, 0), PAGE as u64).unwrap();
            },
            // The log of the other file begins with it: a header more. And the source's access time,
            // three words of a line.
            costs: [cost(70, 1, 2), cost(70, 1, 2)],
        },
    ]);
}

#[test]
fn reading_costs_nothing_but_an_access_time_that_is_due() {
    check(&[
        Case {
            // Three words of one line, each counted.
            name: "first read since a change: the access time, unfenced",
            prepare: nothing,
            run: |w| {
                w.fs.read(&ctx(), w.f, 0, &mut [0; 64]).unwrap();
            },
            costs: [cost(3, 1, 0), cost(3, 1, 0)],
        },
        Case {
            // As read(2): no access. It changed the access time.
            name: "a read of no bytes",
            prepare: nothing,
            run: |w| {
                w.fs.read(&ctx(), w.f, 0, &mut []).unwrap();
            },
            costs: [cost(0, 0, 0), cost(0, 0, 0)],
        },
        Case {
            name: "further reads, look-ups, listings, attributes, holds, sync",
            prepare: |w| {
                let later = Ctx { now_ns: 2_000, hint: 0 };
                w.fs.read(&later, w.f, 0, &mut [0; 64]).unwrap();
            },
            run: |w| {
                w.fs.read(&Ctx { now_ns: 3_000, hint: 0 }, w.f, 0, &mut [0; 64]).unwrap();
                w.fs.lookup(&ctx(), Node::current(w.a), b"f").unwrap();
                w.fs.getattr(w.f).unwrap();
                w.fs.readdir(&ctx(), Node::current(w.a), 0, &mut |_| true).unwrap();
                w.fs.seek(w.f, 0, Seek::Hole).unwrap();
                w.fs.hold(w.f).unwrap();
                w.fs.release(&ctx(), w.f, 1).unwrap();
                w.fs.sync(&ctx(), w.f).unwrap();
            },
            costs: [cost(0, 0, 0), cost(0, 0, 0)],
        },
    ]);
}

/// Overwrites by the methods that a mount may choose: lines and fences in the single-fence form.
#[test]
fn overwrites_cost_what_their_method_says() {
    for (update, len, expected) in [
        (UpdatePolicy::Cow, 64, cost(66, 0, 1)),
        (UpdatePolicy::InPlace, 64, cost(2, 0, 2)),
        (UpdatePolicy::InPlace, PAGE, cost(65, 0, 2)),
        // The bytes twice, the first time in entries of up to 288 bytes.
        (UpdatePolicy::FineLog, 64, cost(4, 0, 2)),
        (UpdatePolicy::FineLog, 1024, cost(16 + 18 + 1, 0, 2)),
        // The old bytes in the log, by a commit of their own, then as in place; a page is copied.
        (UpdatePolicy::Adl, 64, cost(2 + 1 + 1 + 1, 0, 3)),
        (UpdatePolicy::Adl, 1024, cost(18 + 1 + 16 + 1, 0, 3)),
        (UpdatePolicy::Adl, PAGE, cost(64 + 2, 0, 1)),
        // The bytes lie nowhere in the pool.
        (UpdatePolicy::Zcl, 64, cost(2 + 1 + 1 + 1, 0, 3)),
        (UpdatePolicy::Paired, 64, cost(3, 0, 1)),
        (UpdatePolicy::Paired, 1024, cost(16 + 2, 0, 1)),
        (UpdatePolicy::Paired, PAGE, cost(64 + 2, 0, 1)),
        (UpdatePolicy::Lawn, 64, cost(3, 0, 1)),
        (UpdatePolicy::Lawn, 1024, cost(16 + 2, 0, 1)),
        (UpdatePolicy::Lawn, PAGE, cost(64 + 2, 0, 1)),
    ] {
        let world = World::with(OpenOptions { update: Some(update), ..options(Form::Single) });
        // What the commit before has summed costs a certificate, once.
        world.write(world.f, PAGE, len);
        let spent = spent_by(&world, |world| world.write(world.f, PAGE, len));
        assert_eq!(spent, expected, "{update:?} {len}");
    }
}

/// A write to the buffer stores nothing, and what is written over in it reaches the pool once: the newer
/// lines, an entry for each page or run of pages, and the line.
#[test]
fn what_is_buffered_costs_its_newer_lines_once() {
    let mode = Some(Mode::Buffered);
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    for (offset, len, expected) in [
        (PAGE + 100, 64, cost(2 + 1 + 1, 0, 2)),
        (PAGE, 2048, cost(32 + 1 + 1, 0, 2)),
        (PAGE, PAGE, cost(64 + 1 + 1, 0, 2)),
        // A page that is not the file's yet, as far as the file goes.
        (4 * PAGE, 100, cost(2 + 1 + 1, 0, 2)),
    ] {
        let world = World::with(OpenOptions { mode, buffer_rules, ..options(Form::Single) });
        world.write(world.f, PAGE, 1);
        world.fs.sync(&ctx(), world.f).unwrap();
        world.write(world.f, offset, len);
        world.fs.sync(&ctx(), world.f).unwrap();
        let spent = spent_by(&world, |world| {
            for _ in 0..3 {
                world.write(world.f, offset, len);
            }
        });
        assert_eq!(spent, cost(0, 0, 0), "{offset} {len}");
        let spent = spent_by(&world, |world| world.fs.sync(&ctx(), world.f).unwrap());
        assert_eq!(spent, expected, "{offset} {len}");
        let spent = spent_by(&world, |world| world.fs.sync(&ctx(), world.f).unwrap());
        assert_eq!(spent, cost(0, 0, 0), "{offset} {len}");
    }
}

/// What is appended in the buffer goes behind the end in the page that is there, unless something before
/// the end is newer, too: then the page is copied, as far as the file goes. A line that is stored in part
/// is written back.
#[test]
fn what_is_appended_in_the_buffer_costs_its_lines() {
    type Change = fn(&World);
    let mode = Some(Mode::Buffered);
    let buffer_rules = BufferRules { has_model: false, ..BufferRules::default() };
    let tries: [(Change, Cost); 4] = [
        (|w| w.append(w.f, 200), cost(4 + 1, 1, 2)),
        (|w| w.append(w.f, PAGE), cost(63 + 2 + 1 + 1, 1, 2)),
        // Zeros lie between.
        (|w| w.write(w.f, 4 * PAGE + 1000, 24), cost(15 + 1, 1, 2)),
        (
            |w| {
                w.fs.write(&ctx(), w.f, 4 * PAGE as u64 + 99, &[1; 2]).unwrap();
            },
            cost(2 + 1 + 1, 0, 2),
        ),
    ];
    for (index, (change, expected)) in tries.into_iter().enumerate() {
        let world = World::with(OpenOptions { mode, buffer_rules, ..options(Form::Single) });
        world.append(world.f, 100);
        world.fs.sync(&ctx(), world.f).unwrap();
        change(&world);
        let read = |fs: &Fs| {
            let mut bytes = vec![1; 6 * PAGE];
            let len = fs.read(&ctx(), world.f, 0, &mut bytes).unwrap();
            bytes.truncate(len);
            bytes
        };
        let seen = read(&world.fs);
        assert_eq!(spent_by(&world, |w| w.fs.sync(&ctx(), w.f).unwrap()), expected, "{index}");
        assert!(read(&world.fs) == seen, "{index}");
        let fs = support::open(world.fs.into_pm(), Form::Single);
        assert!(read(&fs) == seen, "{index}");
    }
}
