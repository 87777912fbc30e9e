//! Promise: once a tree has begun or ended, each inode counts for what the directory counts for that it lies in, but for
//! the tops of trees, whatever was renamed meanwhile and whatever an earlier call has left.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use novale_core::*;

const NONE: Usage = Usage { pages: 0, inodes: 0 };

fn ctx(hint: u32) -> Ctx {
    Ctx { now_ns: 10, hint }
}

fn fresh() -> Fs {
    support::open_as(support::pool(&[32 * support::MB], 4), &OpenOptions::default())
}

fn make(fs: &Fs, parent: Node, name: &str, kind: FileKind) -> Node {
    let new = NewInode { kind, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" };
    fs.create(&ctx(0), parent, name.as_bytes(), &new).unwrap().node()
}

fn directory(fs: &Fs, parent: Node, name: &str) -> Node {
    make(fs, parent, name, FileKind::Directory)
}

fn number(node: Node) -> u32 {
    u32::try_from(node.ino.get()).unwrap()
}

fn counts_for(fs: &Fs, node: Node) -> u32 {
    fs.getattr(node.ino).unwrap().project
}

/// Sets the number of one inode alone, as a call does that ends there.
fn set_alone(fs: &Fs, node: Node, project: u32) {
    let set = SetAttr { project: Some(project), ..SetAttr::default() };
    fs.setattr(&ctx(0), node, &set).unwrap();
}

fn begin(fs: &Fs, node: Node) {
    fs.begin_tree(&ctx(0), node, Usage { pages: 0, inodes: 1 << 20 }).unwrap();
}

fn rename(fs: &Fs, hint: u32, from: (Node, &str), to: (Node, &str)) -> Result<()> {
    let (from, name) = from;
    fs.rename(&ctx(hint), from, name.as_bytes(), to.0, to.1.as_bytes(), RenameMode::Replace)
}

/// What is named below a directory, with the directory's number: each has that, but for the tops of trees. The counts
/// are theirs.
fn assert_counted(fs: &Fs) {
    let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
    let mut waiting = vec![(Ino::ROOT, None)];
    while let Some((ino, holder)) = waiting.pop() {
        let attr = fs.getattr(ino).unwrap();
        let is_top = u64::from(attr.project) == ino.get() && attr.kind == FileKind::Directory;
        assert!(is_top || holder.is_none_or(|holder| holder == attr.project), "inode {ino:?}");
        if attr.project != 0 {
            let sum = sums.entry(attr.project).or_default();
            (sum.pages, sum.inodes) = (sum.pages + attr.blocks / 8, sum.inodes + 1);
        }
        if attr.kind == FileKind::Directory {
            let below = &mut |entry: &DirEntry<'_>| {
                waiting.push((entry.ino, Some(attr.project)));
                true
            };
            fs.readdir(&ctx(0), Node::current(ino), 0, below).unwrap();
        }
    }
    let counted = fs.quotas().unwrap().into_iter().map(|(tree, quota)| (tree, quota.used));
    assert_eq!(counted.filter(|(_, used)| *used != NONE).collect::<BTreeMap<_, _>>(), sums);
}

/// `outer/tree/{below/deep/file,file}`, and `outer/tree/inner`, the top of a tree.
struct Nested {
    outer: Node,
    tree: Node,
    below: Node,
    deep: Node,
    file: Node,
    inner: Node,
}

fn nested(fs: &Fs) -> Nested {
    let outer = directory(fs, Node::ROOT, "outer");
    let tree = directory(fs, outer, "tree");
    let below = directory(fs, tree, "below");
    let deep = directory(fs, below, "deep");
    let file = make(fs, deep, "file", FileKind::File);
    fs.write(&ctx(0), file.ino, 0, &[1; 10_000]).unwrap();
    make(fs, tree, "file", FileKind::File);
    let inner = directory(fs, tree, "inner");
    make(fs, inner, "file", FileKind::File);
    begin(fs, inner);
    Nested { outer, tree, below, deep, file, inner }
}

#[test]
fn a_tree_has_all_below_it_but_other_trees() {
    let fs = fresh();
    let Nested { outer, tree, file, inner, .. } = nested(&fs);
    begin(&fs, tree);
    begin(&fs, outer);
    assert_counted(&fs);
    assert_eq!(
        [tree, file, inner].map(|node| counts_for(&fs, node)),
        [number(tree), number(tree), number(inner)]
    );
    fs.end_tree(&ctx(0), tree).unwrap();
    assert_counted(&fs);
    assert_eq!(
        [tree, file, inner].map(|node| counts_for(&fs, node)),
        [number(outer), number(outer), number(inner)]
    );
    assert!(matches!(fs.end_tree(&ctx(0), tree), Err(Error::NoAttribute)));
    fs.end_tree(&ctx(0), outer).unwrap();
    fs.end_tree(&ctx(0), inner).unwrap();
    assert_counted(&fs);
    assert!(fs.quotas().unwrap().values().all(|quota| *quota == Quota::default()));
}

#[test]
fn what_is_no_directory_is_no_tree() {
    let fs = fresh();
    let Nested { file, .. } = nested(&fs);
    assert!(matches!(fs.begin_tree(&ctx(0), file, NONE), Err(Error::NotDirectory)));
    assert!(matches!(fs.end_tree(&ctx(0), file), Err(Error::NotDirectory)));
}

/// The root directory lies in nothing.
#[test]
fn a_tree_of_all() {
    let fs = fresh();
    nested(&fs);
    begin(&fs, Node::ROOT);
    assert_counted(&fs);
    assert_eq!(counts_for(&fs, Node::ROOT), number(Node::ROOT));
    fs.end_tree(&ctx(0), Node::ROOT).unwrap();
    assert_counted(&fs);
    assert_eq!(counts_for(&fs, Node::ROOT), 0);
}

#[test]
fn what_a_beginning_left_out_the_same_call_counts() {
    let fs = fresh();
    let Nested { tree, below, deep, file, .. } = nested(&fs);
    set_alone(&fs, tree, number(tree));
    set_alone(&fs, below, number(tree));
    assert_eq!([deep, file].map(|node| counts_for(&fs, node)), [0, 0]);
    begin(&fs, tree);
    assert_counted(&fs);
}

/// What counts already may be moved to where the call has been, with what does not count yet below it.
#[test]
fn what_a_beginning_left_out_counts_wherever_it_was_moved() {
    let fs = fresh();
    let Nested { tree, below, deep, file, .. } = nested(&fs);
    let other = directory(&fs, tree, "other");
    for node in [tree, below, other, deep] {
        set_alone(&fs, node, number(tree));
    }
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Relaxed) {
                rename(&fs, 1, (below, "deep"), (other, "deep")).unwrap();
                rename(&fs, 1, (other, "deep"), (below, "deep")).unwrap();
            }
        });
        for _ in 0..300 {
            fs.begin_tree(&ctx(0), tree, NONE).unwrap();
            assert_eq!(counts_for(&fs, file), number(tree));
            set_alone(&fs, file, 0);
        }
        has_ended.store(true, Relaxed);
    });
    begin(&fs, tree);
    assert_counted(&fs);
}

#[test]
fn what_an_end_left_out_the_same_call_counts() {
    let fs = fresh();
    let Nested { outer, tree, below, file, .. } = nested(&fs);
    begin(&fs, tree);
    begin(&fs, outer);
    set_alone(&fs, tree, number(outer));
    set_alone(&fs, below, number(outer));
    assert_eq!(counts_for(&fs, file), number(tree));
    // By its owner, as it counts for what is around.
    rename(&fs, 0, (tree, "below"), (outer, "below")).unwrap();
    fs.end_tree(&ctx(0), tree).unwrap();
    assert_counted(&fs);
    assert_eq!(fs.quotas().unwrap()[&number(tree)], Quota::default());
}

/// Whoever makes a directory with the number of one that is gone has nothing of that one's on his account.
#[test]
fn what_an_end_left_out_is_none_of_the_next_tree_of_that_number() {
    let fs = fresh();
    let Nested { outer, tree, below, deep, file, .. } = nested(&fs);
    begin(&fs, outer);
    for node in [below, deep, file] {
        set_alone(&fs, node, number(tree));
    }
    begin(&fs, tree);
    assert_counted(&fs);
    let next = directory(&fs, Node::ROOT, "next");
    for node in [deep, file] {
        set_alone(&fs, node, number(next));
    }
    begin(&fs, next);
    assert_eq!(counts_for(&fs, file), number(tree));
    assert_counted(&fs);
    assert_eq!(fs.quotas().unwrap()[&number(next)].used.inodes, 1);
}

/// What an administrator has numbered is limited as long as it is there, and no end of another tree takes it.
#[test]
fn a_number_that_is_set_by_hand_stays() {
    const CHOSEN: u32 = 1 << 20;
    let fs = fresh();
    let Nested { outer, tree, .. } = nested(&fs);
    let [chosen, left] = ["chosen", "left"].map(|name| make(&fs, Node::ROOT, name, FileKind::File));
    set_alone(&fs, chosen, CHOSEN);
    let limit = Usage { pages: 1000, inodes: 7 };
    fs.set_quota(&ctx(0), CHOSEN, limit).unwrap();
    begin(&fs, outer);
    begin(&fs, tree);
    set_alone(&fs, left, number(tree));
    fs.end_tree(&ctx(0), tree).unwrap();
    assert_eq!([chosen, left].map(|node| counts_for(&fs, node)), [CHOSEN, 0]);
    assert_eq!(fs.quotas().unwrap()[&CHOSEN].limit, limit);
}

#[test]
fn what_has_no_name_any_more_counts_for_what_the_top_lies_in() {
    let fs = fresh();
    let Nested { outer, tree, deep, file, .. } = nested(&fs);
    begin(&fs, outer);
    begin(&fs, tree);
    fs.hold(file.ino).unwrap();
    fs.unlink(&ctx(0), deep, b"file").unwrap();
    fs.end_tree(&ctx(0), tree).unwrap();
    assert_eq!(counts_for(&fs, file), number(outer));
    fs.release(&ctx(0), file.ino, 1).unwrap();
    assert_counted(&fs);
}

/// As many trees as can be are limited: one more is refused before it begins, and the limits of those whose directory is
/// removed are free for others.
#[test]
fn limits_are_those_of_trees_that_are_there() {
    const LIMITS: usize = 2730;
    let fs = fresh();
    let dirs: Vec<Node> =
        (0..=LIMITS).map(|dir| directory(&fs, Node::ROOT, &format!("d{dir}"))).collect();
    let last = dirs[LIMITS];
    let file = make(&fs, last, "file", FileKind::File);
    dirs[..LIMITS].iter().for_each(|dir| begin(&fs, *dir));
    let limit = Usage { pages: 0, inodes: 9 };
    assert!(matches!(fs.begin_tree(&ctx(0), last, limit), Err(Error::NoSpace)));
    assert_eq!([last, file].map(|node| counts_for(&fs, node)), [0, 0]);
    // One without limits takes no place.
    fs.begin_tree(&ctx(0), last, NONE).unwrap();
    assert_counted(&fs);
    fs.rmdir(&ctx(0), Node::ROOT, b"d7").unwrap();
    fs.begin_tree(&ctx(0), last, limit).unwrap();
    let quotas = fs.quotas().unwrap();
    assert_eq!(quotas[&number(dirs[7])], Quota::default());
    assert_eq!(quotas[&number(last)], Quota { used: Usage { pages: 2, inodes: 2 }, limit });
    assert_eq!(quotas.values().filter(|quota| quota.limit != NONE).count(), LIMITS);
}

/// A file with names in two trees counts once.
#[test]
fn a_file_of_two_trees_counts_for_the_last() {
    let fs = fresh();
    let [a, b] = ["a", "b"].map(|name| directory(&fs, Node::ROOT, name));
    let file = make(&fs, a, "file", FileKind::File);
    fs.link(&ctx(0), file, b, b"link").unwrap();
    for (node, inodes) in [(a, [2, 0]), (b, [1, 2])] {
        begin(&fs, node);
        assert_eq!(counts_for(&fs, file), number(node));
        let quotas = fs.quotas().unwrap();
        let used = |node| quotas.get(&number(node)).map_or(0, |quota| quota.used.inodes);
        assert_eq!([used(a), used(b)], inodes);
    }
}

/// Owners that rename, make and remove again and again kept what is below from counting for its tree, or had it count
/// for one that was gone.
#[test]
fn nothing_is_passed_by_whatever_is_renamed_meanwhile() {
    const ROUNDS: usize = 400;
    let fs = fresh();
    let outer = directory(&fs, Node::ROOT, "outer");
    let tree = directory(&fs, outer, "tree");
    let dirs: Vec<Node> = (0..8).map(|dir| directory(&fs, tree, &format!("d{dir}"))).collect();
    for (index, dir) in dirs.iter().enumerate() {
        (0..20).for_each(|file| _ = make(&fs, *dir, &format!("f{file}"), FileKind::File));
        (0..4).for_each(|below| _ = directory(&fs, *dir, &format!("x{index}.{below}")));
    }
    let places: Vec<Node> = dirs.iter().copied().chain([tree, outer, Node::ROOT]).collect();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for hint in 1..3_u32 {
            let (fs, places, dirs, has_ended) = (&fs, &places, &dirs, &has_ended);
            scope.spawn(move || {
                let mut state = u64::from(hint);
                let mut next = |below: usize| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    usize::try_from(state >> 33).unwrap() % below
                };
                while !has_ended.load(Relaxed) {
                    // Most are refused: it is not there, or counts for something else.
                    let name = format!("x{}.{}", next(8), next(4));
                    let to = places[next(places.len())];
                    for from in places {
                        drop(rename(fs, hint, (*from, &name), (to, &name)));
                    }
                    let (from, to) = (dirs[next(8)], dirs[next(8)]);
                    let file = format!("f{}", next(20));
                    drop(rename(fs, hint, (from, &file), (to, &file)));
                    let new = NewInode {
                        kind: FileKind::Directory,
                        mode: 0o755,
                        uid: 0,
                        gid: 0,
                        rdev: 0,
                        target: b"",
                    };
                    if let Ok(made) = fs.create(&ctx(hint), to, b"new", &new) {
                        drop(fs.create(
                            &ctx(hint),
                            made.node(),
                            b"deep",
                            &NewInode { kind: FileKind::File, ..new },
                        ));
                        drop(rename(fs, hint, (to, "new"), (from, "moved")));
                    }
                    drop(fs.unlink(&ctx(hint), to, b"deep"));
                }
            });
        }
        for round in 0..ROUNDS {
            begin(&fs, tree);
            if round % 2 == 0 {
                begin(&fs, outer);
            }
            fs.end_tree(&ctx(0), tree).unwrap();
            if round % 2 == 0 {
                fs.end_tree(&ctx(0), outer).unwrap();
            }
        }
        begin(&fs, tree);
        has_ended.store(true, Relaxed);
    });
    assert_counted(&fs);
    fs.end_tree(&ctx(0), tree).unwrap();
    assert_counted(&fs);
    assert!(fs.quotas().unwrap().values().all(|quota| *quota == Quota::default()));
}
