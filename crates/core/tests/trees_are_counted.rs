//! What the inodes of a directory tree use is counted for it: always, and after any end of a session.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use novale_core::*;
use novale_pm::Pm;

fn ctx() -> Ctx {
    Ctx { now_ns: 10, hint: 0 }
}

fn open(pm: Pm) -> Fs {
    support::open_as(pm, &OpenOptions::default())
}

fn fresh() -> Fs {
    let pm = support::pool(&[16 * support::MB], 2);
    open(pm)
}

fn make(fs: &Fs, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" };
    fs.create(&ctx(), Node::current(parent), name.as_bytes(), &new).unwrap().ino
}

/// Makes a directory the top of a tree of its own.
fn top(fs: &Fs, ino: Ino) -> u32 {
    let project = u32::try_from(ino.get()).unwrap();
    let set = SetAttr { project: Some(project), ..SetAttr::default() };
    fs.setattr(&ctx(), Node::current(ino), &set).unwrap();
    project
}

/// What the inodes themselves say, directory by directory.
fn summed(fs: &Fs) -> BTreeMap<u32, Usage> {
    let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![Ino::ROOT];
    while let Some(ino) = waiting.pop() {
        let attr = fs.getattr(ino).unwrap();
        if !seen.insert(ino) {
            continue;
        }
        if attr.project != 0 {
            let sum = sums.entry(attr.project).or_default();
            sum.pages += attr.blocks / 8;
            sum.inodes += 1;
        }
        if attr.kind == FileKind::Directory {
            fs.readdir(&ctx(), Node::current(ino), 0, &mut |entry| {
                waiting.push(entry.ino);
                true
            })
            .unwrap();
        }
    }
    sums
}

fn counted(fs: &Fs) -> BTreeMap<u32, Usage> {
    let all = fs.quotas().unwrap().into_iter().map(|(project, quota)| (project, quota.used));
    all.filter(|(_, used)| *used != Usage::default()).collect()
}

/// Uses two trees and what is outside for all that counts.
fn use_trees(fs: &Fs) -> [Ino; 2] {
    let [a, b] = ["a", "b"].map(|name| make(fs, Ino::ROOT, name, FileKind::Directory));
    top(fs, a);
    top(fs, b);
    for (index, dir) in [a, b, Ino::ROOT].into_iter().enumerate() {
        for file in 0..40 {
            let ino = make(
                fs,
                dir,
                &format!("file {file} with a name of more than a line"),
                FileKind::File,
            );
            fs.write(&ctx(), ino, 0, &vec![1; 3000 * (file % 7 + 1)]).unwrap();
            for _ in 0..index * 100 {
                fs.write(&ctx(), ino, 0, b"again").unwrap();
            }
            fs.fallocate(&ctx(), ino, Fallocate::KeepSize, 40_000, 8192).unwrap();
            let cut = SetAttr { size: Some(5000), ..SetAttr::default() };
            fs.setattr(&ctx(), Node::current(ino), &cut).unwrap();
            if file % 3 == 0 {
                fs.unlink(
                    &ctx(),
                    Node::current(dir),
                    format!("file {file} with a name of more than a line").as_bytes(),
                )
                .unwrap();
            }
        }
        let below = make(fs, dir, "below", FileKind::Directory);
        let link = NewInode {
            kind: FileKind::Symlink,
            mode: 0o777,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: b"somewhere",
        };
        fs.create(&ctx(), Node::current(below), b"link", &link).unwrap();
        let mode = RenameMode::Replace;
        fs.rename(&ctx(), Node::current(below), b"link", Node::current(dir), b"moved", mode)
            .unwrap();
    }
    [a, b]
}

#[test]
fn as_its_inodes_say() {
    let fs = fresh();
    use_trees(&fs);
    let sums = summed(&fs);
    assert_eq!(sums.len(), 2);
    assert_eq!(counted(&fs), sums);
}

#[test]
fn across_a_clean_close() {
    let fs = fresh();
    use_trees(&fs);
    // A close copies pages with two copies into one: what trees use is less by the second copies.
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    let sums = summed(&fs);
    assert_eq!(counted(&fs), sums);
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    assert!(fs.opened().from_saved);
    assert_eq!(counted(&fs), sums);
    assert_eq!(summed(&fs), sums);
}

#[test]
fn by_recovery() {
    let fs = fresh();
    use_trees(&fs);
    let sums = summed(&fs);
    let fs = open(fs.into_pm());
    assert!(!fs.opened().clean);
    assert_eq!(counted(&fs), sums);
}

#[test]
fn names_stay_in_their_tree_but_the_tops() {
    let fs = fresh();
    let [a, b] = use_trees(&fs);
    let moved =
        |from, name: &[u8], to, new: &[u8], mode| fs.rename(&ctx(), from, name, to, new, mode);
    let other = |result: Result<()>| assert!(matches!(result, Err(Error::OtherTree)), "{result:?}");
    other(moved(Node::current(a), b"moved", Node::current(b), b"x", RenameMode::Replace));
    other(moved(Node::current(a), b"moved", Node::ROOT, b"x", RenameMode::Replace));
    other(moved(Node::ROOT, b"moved", Node::current(a), b"x", RenameMode::Replace));
    other(moved(Node::current(a), b"below", Node::current(b), b"below", RenameMode::Exchange));
    let inside = fs.lookup(&ctx(), Node::current(a), b"moved").unwrap();
    other(fs.link(&ctx(), inside.node(), Node::current(b), b"x").map(|_| ()));
    moved(Node::current(a), b"moved", Node::current(a), b"y", RenameMode::Replace).unwrap();
    // What is in a tree and is to count for it keeps its name until it does.
    let project = |count| SetAttr { project: Some(count), ..SetAttr::default() };
    fs.setattr(&ctx(), inside.node(), &project(0)).unwrap();
    other(moved(Node::current(a), b"y", Node::current(a), b"z", RenameMode::Replace));
    other(moved(Node::current(a), b"y", Node::ROOT, b"z", RenameMode::Replace));
    fs.setattr(&ctx(), inside.node(), &project(inside.project)).unwrap();
    // So does what counts for a tree that its directory counts for no more: it would count for ever.
    let below = fs.lookup(&ctx(), Node::current(a), b"below").unwrap();
    let deep = Node::current(below.ino);
    make(&fs, below.ino, "left", FileKind::File);
    fs.setattr(&ctx(), below.node(), &project(0)).unwrap();
    other(moved(deep, b"left", Node::ROOT, b"left", RenameMode::Replace));
    other(moved(deep, b"left", Node::current(a), b"left", RenameMode::Replace));
    fs.setattr(&ctx(), below.node(), &project(below.project)).unwrap();
    // A tree moves as a whole, below another one too, and back.
    let sums = summed(&fs);
    moved(Node::ROOT, b"a", Node::current(b), b"a", RenameMode::Replace).unwrap();
    moved(Node::current(b), b"a", Node::ROOT, b"c", RenameMode::Replace).unwrap();
    assert_eq!(summed(&fs).keys().collect::<Vec<_>>(), sums.keys().collect::<Vec<_>>());
    assert_eq!(counted(&fs), summed(&fs));
}

#[test]
fn what_changes_trees_takes_its_count_along() {
    let fs = fresh();
    let [a, b] = use_trees(&fs);
    let file = fs.lookup(&ctx(), Node::current(a), b"moved").unwrap();
    let before = counted(&fs);
    let to = u32::try_from(b.get()).unwrap();
    let set = SetAttr { project: Some(to), ..SetAttr::default() };
    assert_eq!(fs.setattr(&ctx(), file.node(), &set).unwrap().project, to);
    let after = counted(&fs);
    assert_eq!(after[&to].inodes, before[&to].inodes + 1);
    assert_eq!(after, summed(&fs));
    assert_eq!(after[&file.project].inodes, before[&file.project].inodes - 1);
}

#[test]
fn removed_trees_count_nothing() {
    let fs = fresh();
    let [a, b] = use_trees(&fs);
    for dir in [a, b] {
        for _ in 0..2 {
            let mut names = Vec::new();
            fs.readdir(&ctx(), Node::current(dir), 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.kind));
                true
            })
            .unwrap();
            for (name, kind) in names {
                if kind == FileKind::Directory {
                    fs.rmdir(&ctx(), Node::current(dir), &name).unwrap();
                } else {
                    fs.unlink(&ctx(), Node::current(dir), &name).unwrap();
                }
            }
        }
    }
    fs.rmdir(&ctx(), Node::ROOT, b"a").unwrap();
    fs.rmdir(&ctx(), Node::ROOT, b"b").unwrap();
    assert_eq!(counted(&fs), BTreeMap::new());
}

fn limit(fs: &Fs, project: u32, pages: u64, inodes: u64) {
    fs.set_quota(&ctx(), project, Usage { pages, inodes }).unwrap();
}

fn is_over<T: std::fmt::Debug>(result: &Result<T>) {
    assert!(matches!(result, Err(Error::QuotaExceeded)), "{result:?}");
}

/// Second copies are pages beside those of a file: where a limit leaves none, overwrites copy.
#[test]
fn overwrites_take_no_second_copy_beyond_a_limit() {
    let grown = |update: UpdatePolicy, is_limited: bool| {
        let options = OpenOptions { update: Some(update), ..OpenOptions::default() };
        let fs = support::open_as(support::pool(&[16 * support::MB], 2), &options);
        let dir = make(&fs, Ino::ROOT, "tree", FileKind::Directory);
        let project = top(&fs, dir);
        let file = make(&fs, dir, "file", FileKind::File);
        fs.write(&ctx(), file, 0, &vec![1; 16 * 4096]).unwrap();
        let before = counted(&fs)[&project].pages;
        if is_limited {
            limit(&fs, project, before, 0);
        }
        for page in 0..16 {
            fs.write(&ctx(), file, page * 4096 + 100, &[2; 20]).unwrap();
        }
        let mut bytes = [0; 40];
        fs.read(&ctx(), file, 15 * 4096 + 90, &mut bytes).unwrap();
        assert_eq!(bytes, [[1; 10], [2; 10], [2; 10], [1; 10]].concat()[..]);
        counted(&fs)[&project].pages - before
    };
    for update in [UpdatePolicy::Lawn, UpdatePolicy::Paired] {
        assert!(grown(update, false) > 0);
        assert_eq!(grown(update, true), 0);
    }
}

#[test]
fn limits_hold_for_what_grows_and_nothing_else() {
    let fs = fresh();
    let dir = make(&fs, Ino::ROOT, "tree", FileKind::Directory);
    let project = top(&fs, dir);
    let file = make(&fs, dir, "file", FileKind::File);
    fs.write(&ctx(), file, 0, &vec![1; 3 * 4096]).unwrap();
    let attribute = |name, value: &[u8]| {
        let set = SetXattr { name, value, mode: XattrMode::Any, clear_set_gid: false };
        fs.setxattr(&ctx(), Node::current(file), &set)
    };
    attribute(b"user.old", &[1; 10_000]).unwrap();
    let used = counted(&fs)[&project];
    limit(&fs, project, used.pages + 2, used.inodes + 1);

    fs.write(&ctx(), file, 3 * 4096, &vec![2; 8192]).unwrap();
    is_over(&fs.write(&ctx(), file, 5 * 4096, b"x"));
    is_over(&fs.write(&ctx(), file, 5 * 4096, &vec![3; 100_000]));
    is_over(&fs.append(&ctx(), file, b"x"));
    is_over(&fs.fallocate(&ctx(), file, Fallocate::KeepSize, 100_000, 1));
    is_over(&attribute(b"user.x", &vec![1; 20_000]));
    // Other values in the place of old ones.
    attribute(b"user.old", &[2; 10_000]).unwrap();
    attribute(b"user.old", &[3; 9_000]).unwrap();
    attribute(b"user.beside", &[4; 10]).unwrap();
    is_over(&attribute(b"user.old", &vec![1; 20_000]));
    assert_eq!(fs.getattr(file).unwrap().size, 5 * 4096);
    // Overwrites, also of many pages, renames, cuts and removals go on.
    fs.write(&ctx(), file, 10, &vec![4; 4 * 4096]).unwrap();
    fs.write(&ctx(), file, 10, b"small").unwrap();
    fs.rename(
        &ctx(),
        Node::current(dir),
        b"file",
        Node::current(dir),
        b"renamed",
        RenameMode::Replace,
    )
    .unwrap();
    // A new name may take a page.
    let one_more = NewInode { kind: FileKind::File, mode: 0, uid: 0, gid: 0, rdev: 0, target: b"" };
    is_over(&fs.create(&ctx(), Node::current(dir), b"other", &one_more));
    is_over(&fs.link(&ctx(), Node::current(file), Node::current(dir), b"link"));
    limit(&fs, project, used.pages + 4, used.inodes + 1);
    let other = make(&fs, dir, "other", FileKind::File);
    is_over(&fs.create(&ctx(), Node::current(dir), b"one more", &one_more));
    fs.link(&ctx(), Node::current(other), Node::current(dir), b"link").unwrap();
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&ctx(), Node::current(file), &cut).unwrap();
    fs.write(&ctx(), file, 0, &vec![5; 3 * 4096]).unwrap();
    fs.unlink(&ctx(), Node::current(dir), b"link").unwrap();
    fs.unlink(&ctx(), Node::current(dir), b"other").unwrap();
    fs.create(&ctx(), Node::current(dir), b"one more", &one_more).unwrap();
    // Outside nothing is limited.
    make(&fs, Ino::ROOT, "outside", FileKind::File);
    assert_eq!(counted(&fs), summed(&fs));
}

#[test]
fn limits_are_kept_and_shown() {
    let fs = fresh();
    let [a, b] = use_trees(&fs).map(|ino| fs.getattr(ino).unwrap().project);
    limit(&fs, a, 1000, 0);
    limit(&fs, b, 0, 200);
    limit(&fs, 77, 5, 5);
    limit(&fs, 77, 0, 0);
    let shown = |fs: &Fs| -> BTreeMap<u32, Usage> {
        let all = fs.quotas().unwrap().into_iter();
        all.map(|(project, quota)| (project, quota.limit))
            .filter(|(_, limit)| *limit != Usage::default())
            .collect()
    };
    let limits = BTreeMap::from([
        (a, Usage { pages: 1000, inodes: 0 }),
        (b, Usage { pages: 0, inodes: 200 }),
    ]);
    assert_eq!(shown(&fs), limits);
    assert_eq!(fs.listxattr(Node::ROOT).unwrap(), b"");
    let dir = fs.lookup(&ctx(), Node::ROOT, b"a").unwrap().ino;
    let (project, quota) = fs.quota_of(dir).unwrap().unwrap();
    assert_eq!((project, quota.limit), (a, limits[&a]));
    let space = fs.statfs_of(dir).unwrap();
    assert_eq!((space.pages, space.pages_available), (1000, 1000 - quota.used.pages));
    let dir = fs.lookup(&ctx(), Node::ROOT, b"b").unwrap().ino;
    let (_, quota) = fs.quota_of(dir).unwrap().unwrap();
    let (space, all) = (fs.statfs_of(dir).unwrap(), fs.statfs().unwrap());
    assert_eq!((space.inodes, space.inodes_free), (quota.used.inodes, 200 - quota.used.inodes));
    assert_eq!((space.pages, space.pages_available), (all.pages, all.pages_available));
    assert_eq!(fs.quota_of(Ino::ROOT).unwrap(), None);
    assert_eq!(fs.statfs_of(Ino::ROOT).unwrap(), fs.statfs().unwrap());
    // After a crash, and after a clean close.
    let fs = open(fs.into_pm());
    assert_eq!(shown(&fs), limits);
    fs.close().unwrap();
    let fs = open(fs.into_pm());
    assert!(fs.opened().from_saved);
    assert_eq!(shown(&fs), limits);
    fs.close().unwrap();
    let report = check(&fs.into_pm(), &Serial, &|_| {}).unwrap();
    assert_eq!(report.findings, []);
}
