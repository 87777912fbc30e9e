//! What the inodes of a directory tree use is counted for it: always, and after any end of a session.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

use std::collections::{BTreeMap, BTreeSet};

use novale_arena::Arena;
use novale_core::*;
use novale_pm::{Pm, PmOptions};

const MB: u64 = 1 << 20;

fn ctx() -> Ctx {
    Ctx { now_ns: 10, hint: 0 }
}

fn open(pm: Pm) -> Fs {
    let arena = Arena::anonymous(64 * MB).unwrap();
    Fs::open(pm, arena, &OpenOptions::default(), &Serial, &|_| {}).unwrap()
}

fn fresh() -> Fs {
    let pm = Pm::anonymous(&[16 * MB], &PmOptions::default()).unwrap();
    let options = MkfsOptions {
        lanes: 2,
        pool_uuid: [7; 16],
        slot_uuids: vec![[8; 16]],
        now_ns: 1,
        root_uid: 0,
        root_gid: 0,
        root_mode: 0o755,
    };
    mkfs(&pm, &options).unwrap();
    open(pm)
}

fn make(fs: &Fs, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" };
    fs.create(&ctx(), parent, name.as_bytes(), &new).unwrap().ino
}

/// Makes a directory the top of a tree of its own.
fn top(fs: &Fs, ino: Ino) -> u32 {
    let project = u32::try_from(ino.get()).unwrap();
    let set = SetAttr { project: Some(project), ..SetAttr::default() };
    fs.setattr(&ctx(), ino, &set).unwrap();
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
            fs.readdir(&ctx(), ino, 0, &mut |entry| {
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
            fs.setattr(&ctx(), ino, &cut).unwrap();
            if file % 3 == 0 {
                fs.unlink(
                    &ctx(),
                    dir,
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
        fs.create(&ctx(), below, b"link", &link).unwrap();
        let mode = RenameMode::Replace;
        fs.rename(&ctx(), below, b"link", dir, b"moved", mode).unwrap();
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
    let sums = summed(&fs);
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
    other(moved(a, b"moved", b, b"x", RenameMode::Replace));
    other(moved(a, b"moved", Ino::ROOT, b"x", RenameMode::Replace));
    other(moved(Ino::ROOT, b"moved", a, b"x", RenameMode::Replace));
    other(moved(a, b"below", b, b"below", RenameMode::Exchange));
    let inside = fs.lookup(&ctx(), a, b"moved").unwrap();
    other(fs.link(&ctx(), inside.ino, b, b"x").map(|_| ()));
    moved(a, b"moved", a, b"y", RenameMode::Replace).unwrap();
    // A tree moves as a whole, below another one too, and back.
    let sums = summed(&fs);
    moved(Ino::ROOT, b"a", b, b"a", RenameMode::Replace).unwrap();
    moved(b, b"a", Ino::ROOT, b"c", RenameMode::Replace).unwrap();
    assert_eq!(summed(&fs).keys().collect::<Vec<_>>(), sums.keys().collect::<Vec<_>>());
    assert_eq!(counted(&fs), summed(&fs));
}

#[test]
fn what_changes_trees_takes_its_count_along() {
    let fs = fresh();
    let [a, b] = use_trees(&fs);
    let file = fs.lookup(&ctx(), a, b"moved").unwrap();
    let before = counted(&fs);
    let to = u32::try_from(b.get()).unwrap();
    let set = SetAttr { project: Some(to), ..SetAttr::default() };
    assert_eq!(fs.setattr(&ctx(), file.ino, &set).unwrap().project, to);
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
            fs.readdir(&ctx(), dir, 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.kind));
                true
            })
            .unwrap();
            for (name, kind) in names {
                if kind == FileKind::Directory {
                    fs.rmdir(&ctx(), dir, &name).unwrap();
                } else {
                    fs.unlink(&ctx(), dir, &name).unwrap();
                }
            }
        }
    }
    fs.rmdir(&ctx(), Ino::ROOT, b"a").unwrap();
    fs.rmdir(&ctx(), Ino::ROOT, b"b").unwrap();
    assert_eq!(counted(&fs), BTreeMap::new());
}
