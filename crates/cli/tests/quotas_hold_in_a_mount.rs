//! Promise: a directory with a quota holds no more than it, no matter who writes, and says what it uses.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use support::{Outcome, Scratch, alone, novale};

const PROJECT: &str = "trusted.novale.project";

/// What `show --json` says of a directory's tree.
fn shown(dir: &str) -> serde_json::Value {
    let said = novale(&["quota", "show", "--json", dir]).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    all.into_iter().next().unwrap()
}

#[test]
fn what_exceeds_it_is_refused_until_there_is_room() {
    let Some(scratch) = Scratch::for_mount("what_exceeds_it_is_refused") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let tree = scratch.in_dir("tree").display().to_string();
    // A tree with something in it, a link to elsewhere among it.
    fs::create_dir_all(format!("{tree}/below")).unwrap();
    fs::write(format!("{tree}/below/old"), vec![1; 100_000]).unwrap();
    symlink("/nowhere", format!("{tree}/link")).unwrap();
    novale(&["quota", "show", &tree]).refused(1, &["in no tree"]);
    novale(&["quota", "set", "--space", "1M", "--inodes", "8", &tree]).ok();

    let quota = shown(&tree);
    assert_eq!((&quota["bytes_max"], &quota["inodes_max"]), (&(1 << 20).into(), &8.into()));
    assert_eq!(quota["inodes_used"], 4);
    let used = Command::new("du").args(["-s", "-B1", &tree]).output().unwrap();
    let used = String::from_utf8(used.stdout).unwrap();
    let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(quota["bytes_used"], used);

    let full = fs::write(format!("{tree}/new"), vec![2; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded);
    fs::write(format!("{tree}/new"), vec![2; 500_000]).unwrap();
    fs::write(scratch.in_dir("outside"), vec![2; 2 << 20]).unwrap();
    let moved = fs::rename(scratch.in_dir("outside"), format!("{tree}/moved")).unwrap_err();
    assert_eq!(moved.kind(), ErrorKind::CrossesDevices);
    let many = (0..8).find_map(|number| fs::create_dir(format!("{tree}/{number}")).err()).unwrap();
    assert_eq!(many.kind(), ErrorKind::QuotaExceeded);
    let space = rustix::fs::statvfs(&tree).unwrap();
    assert_eq!((space.f_blocks, space.f_files), (256, 8));

    // Across a remount; then a greater limit for space alone.
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(shown(&tree)["inodes_used"], 8);
    novale(&["quota", "set", "--space", "none", &tree]).ok();
    assert_eq!((&shown(&tree)["bytes_max"], &shown(&tree)["inodes_max"]), (&0.into(), &8.into()));
    fs::write(format!("{tree}/new"), vec![2; 2 << 20]).unwrap();

    // And without any.
    novale(&["quota", "clear", &tree]).ok();
    novale(&["quota", "show", &tree]).refused(1, &["in no tree"]);
    fs::rename(scratch.in_dir("outside"), format!("{tree}/moved")).unwrap();
    // What is in directories below counted for it on, and could not be moved out of it.
    novale(&["quota", "show", &format!("{tree}/below")]).refused(1, &["in no tree"]);
    fs::rename(format!("{tree}/below/old"), scratch.in_dir("old")).unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// Names are their directory's pages: hard links alone filled the pool, and files without bytes.
#[test]
fn names_take_room_of_it() {
    let Some(scratch) = Scratch::for_mount("names_take_room_of_it") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let tree = scratch.in_dir("tree").display().to_string();
    fs::create_dir(&tree).unwrap();
    novale(&["quota", "set", "--space", "256K", &tree]).ok();
    fs::write(format!("{tree}/one"), "").unwrap();
    let name =
        |kind: char, number: usize| format!("{tree}/{number}{}", kind.to_string().repeat(240));
    let link = |number| fs::hard_link(format!("{tree}/one"), name('l', number));
    let make = |number| fs::write(name('f', number), "");
    let refused = (0..5000).find_map(|number| link(number).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
    assert_eq!(make(0).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert!(shown(&tree)["bytes_used"].as_u64().unwrap() <= 256 << 10);
    // What is there can be renamed, and removed for others.
    fs::rename(name('l', 0), name('r', 0)).unwrap();
    (1..1000).map_while(|number| fs::remove_file(name('l', number)).ok()).for_each(drop);
    let full = (0..5000).find_map(|number| make(number).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// Its owner could keep a directory from having one.
#[test]
fn what_is_deeper_than_a_path_is_long_counts_too() {
    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};

    const LEVELS: u64 = 40;
    let Some(scratch) = Scratch::for_mount("deeper_than_a_path") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let tree = scratch.in_dir("tree").display().to_string();
    fs::create_dir(&tree).unwrap();
    let name = "d".repeat(200);
    let mut dir = open(&tree, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        mkdirat(&dir, &name, Mode::RWXU).unwrap();
        mkdirat(&dir, "beside", Mode::RWXU).unwrap();
        dir = openat(&dir, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(dir);
    novale(&["quota", "set", "--inodes", "100", &tree]).ok();
    assert_eq!(shown(&tree)["inodes_used"], 1 + 2 * LEVELS);
    novale(&["quota", "clear", &tree]).ok();
    novale(&["quota", "show", &tree]).refused(1, &["in no tree"]);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// The walk went into what was mounted below: it ended at another file system, for ever, where a user had mounted one,
/// and another directory of the pool came to count for the tree.
#[test]
fn what_is_mounted_below_does_not_count_and_hides_nothing() {
    let Some(scratch) = Scratch::for_mount("what_is_mounted_below") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let [tree, outside] = ["tree", "outside"].map(|name| scratch.in_dir(name));
    for dir in ["tree/other", "tree/bound", "outside/in"] {
        fs::create_dir_all(scratch.in_dir(dir)).unwrap();
    }
    for file in ["file", "other/hidden", "bound/hidden"] {
        fs::write(tree.join(file), b"x").unwrap();
    }
    let script = format!(
        "{}; mount -t tmpfs none tree/other && touch tree/other/new && mount --bind outside tree/bound && \
         mount --bind /proc/version tree/file && exec \"$@\"",
        support::without_mounts(&scratch.dir())
    );
    // What it mounts is gone with it.
    let quota = |words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]);
        unshare.arg(support::program()).arg("quota").args(words).arg(&tree);
        Outcome::of(&unshare.current_dir(scratch.dir()).output().unwrap()).ok()
    };
    let [tree_shown, outside_shown] = [&tree, &outside].map(|dir| dir.display().to_string());
    quota(&["set", "--inodes", "100"]);
    assert_eq!(shown(&tree_shown)["inodes_used"], 6);
    novale(&["quota", "show", &outside_shown]).refused(1, &["in no tree"]);
    quota(&["clear"]);
    novale(&["quota", "show", &tree_shown]).refused(1, &["in no tree"]);
    novale(&["quota", "show", &format!("{tree_shown}/bound/hidden")]).refused(1, &["in no tree"]);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// An owner who renamed things again and again kept them, and all below, from counting.
#[test]
fn what_is_renamed_meanwhile_counts_too() {
    let Some(scratch) = Scratch::for_mount("renamed_meanwhile") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    for round in 0..10 {
        let tree = scratch.in_dir(&format!("tree{round}"));
        fs::create_dir_all(tree.join("x/y/z")).unwrap();
        fs::create_dir(tree.join("w")).unwrap();
        (0..50).for_each(|file| fs::write(tree.join(format!("f{file}")), b"").unwrap());
        let (has_ended, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Refused for what does not count yet.
                let swap = |one: &str, other: &str| {
                    let _refused = fs::rename(tree.join(one), tree.join(other));
                };
                while !has_ended.load(Relaxed) {
                    for [one, other] in [["x", "u"], ["f7", "g7"], ["x/y", "x/v"], ["x/y", "w/y"]] {
                        swap(one, other);
                        swap(other, one);
                    }
                    has_begun.store(true, Relaxed);
                }
            });
            while !has_begun.load(Relaxed) {
                std::thread::yield_now();
            }
            novale(&["quota", "set", "--inodes", "100", &tree.display().to_string()]).ok();
            has_ended.store(true, Relaxed);
        });
        assert_eq!(shown(&tree.display().to_string())["inodes_used"], 55);
    }
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// The tree that something counts for.
fn tree_of(path: &Path) -> u32 {
    let mut value = [0; 16];
    let len = lgetxattr(path, PROJECT, &mut value[..]).unwrap();
    str::from_utf8(value.get(..len).unwrap()).unwrap().parse().unwrap()
}

/// Names below a directory that count for a tree.
fn counting(dir: &Path, tree: u32) -> usize {
    let below = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: PathBuf| {
        usize::from(tree_of(&path) == tree) + if path.is_dir() { counting(&path, tree) } else { 0 }
    };
    below.map(count).sum()
}

/// What was made in the top of a tree counted for it, though it was taken away: it could not be linked, or moved out
/// of there, and no later call changed that.
#[test]
fn what_is_made_while_one_is_taken_away_counts_for_none() {
    let Some(scratch) = Scratch::for_mount("made_while_taken_away") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    for round in 0..5 {
        let tree = scratch.in_dir(&format!("tree{round}"));
        fs::create_dir_all(tree.join("x/y/z")).unwrap();
        fs::create_dir(tree.join("w")).unwrap();
        (0..50).for_each(|file| fs::write(tree.join(format!("x/y/z/{file}")), b"").unwrap());
        let shown = tree.display().to_string();
        novale(&["quota", "set", "--inodes", "1000000", &shown]).ok();
        let own = tree_of(&tree);
        let (has_ended, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for made in 0.. {
                    if has_ended.load(Relaxed) {
                        return;
                    }
                    fs::write(tree.join(format!("made{}", made % 1000)), b"").unwrap();
                    for [from, to] in [["x", "u"], ["u", "x"], ["x/y", "w/y"], ["w/y", "x/y"]] {
                        let _refused = fs::rename(tree.join(from), tree.join(to));
                    }
                    has_begun.store(true, Relaxed);
                }
            });
            while !has_begun.load(Relaxed) {
                std::thread::yield_now();
            }
            novale(&["quota", "clear", &shown]).ok();
            has_ended.store(true, Relaxed);
        });
        let is_made = |path: &PathBuf| path.display().to_string().contains("/made");
        let made = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().path());
        assert!(made.filter(is_made).all(|path| tree_of(&path) == 0));
        assert_eq!(tree_of(&tree), 0);
        assert_eq!(counting(&tree, own), 0);
        novale(&["quota", "clear", &shown]).refused(1, &["not the top"]);
    }
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// A directory that was moved out of the tree as soon as it might be kept what it had counting for the number of the
/// tree that was gone, without a limit, and no later call changed that.
#[test]
fn what_is_moved_out_while_one_is_taken_away_counts_for_the_tree_around() {
    let Some(scratch) = Scratch::for_mount("moved_out_while_taken_away") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    for round in 0..5 {
        let outer = scratch.in_dir(&format!("outer{round}"));
        let (tree, out) = (outer.join("tree"), outer.join("out"));
        (0..500).for_each(|dir| fs::create_dir_all(tree.join(format!("x/{dir}"))).unwrap());
        let [outer_shown, tree_shown] = [&outer, &tree].map(|dir| dir.display().to_string());
        for dir in [&tree_shown, &outer_shown] {
            novale(&["quota", "set", "--inodes", "100000", dir]).ok();
        }
        let (own, around) = (tree_of(&tree), tree_of(&outer));
        assert_ne!(own, around);
        std::thread::scope(|scope| {
            scope.spawn(|| while fs::rename(tree.join("x"), &out).is_err() {});
            novale(&["quota", "clear", &tree_shown]).ok();
        });
        assert_eq!((counting(&outer, own), counting(&outer, around)), (0, 502));
    }
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

#[test]
fn one_that_was_taken_away_in_part_is_taken_away_by_the_same_call() {
    let Some(scratch) = Scratch::for_mount("taken_away_in_part") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let [outer, tree] = ["outer", "outer/tree"].map(|name| scratch.in_dir(name));
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::write(tree.join("below/file"), b"x").unwrap();
    let [outer_shown, tree_shown] = [&outer, &tree].map(|dir| dir.display().to_string());
    for dir in [&tree_shown, &outer_shown] {
        novale(&["quota", "set", "--inodes", "100", dir]).ok();
    }
    // As the call leaves it that ends here.
    let (own, around) = (tree_of(&tree), tree_of(&outer));
    lremovexattr(&tree, "trusted.novale.quota").unwrap();
    lsetxattr(&tree, PROJECT, around.to_string().as_bytes(), XattrFlags::empty()).unwrap();
    assert_eq!(counting(&outer, own), 2);
    novale(&["quota", "clear", &tree_shown]).ok();
    assert_eq!(counting(&outer, own), 0);
    // The limits of the one around it are there.
    let left = shown(&outer_shown);
    assert_eq!((&left["inodes_used"], &left["inodes_max"]), (&4.into(), &100.into()));
    novale(&["quota", "clear", &tree_shown]).refused(1, &["not the top"]);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// A directory that was moved while a call that ended midway had its contents counted, and not itself, kept those
/// counting for a tree that was gone, wherever it lay by then.
#[test]
fn what_counts_for_a_tree_from_elsewhere_counts_for_what_holds_it_once_it_is_taken_away() {
    let Some(scratch) = Scratch::for_mount("counts_from_elsewhere") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let [outer, tree, free] = ["outer", "outer/tree", "free"].map(|name| scratch.in_dir(name));
    let moved = [outer.join("moved"), free.join("moved")];
    fs::create_dir_all(&tree).unwrap();
    for dir in &moved {
        fs::create_dir_all(dir.join("below/deep")).unwrap();
        fs::write(dir.join("below/deep/file"), b"x").unwrap();
    }
    let [outer_shown, tree_shown] = [&outer, &tree].map(|dir| dir.display().to_string());
    for dir in [&tree_shown, &outer_shown] {
        novale(&["quota", "set", "--inodes", "100", dir]).ok();
    }
    let (own, around) = (tree_of(&tree), tree_of(&outer));
    for path in moved
        .iter()
        .flat_map(|dir| ["below", "below/deep", "below/deep/file"].map(|name| dir.join(name)))
    {
        lsetxattr(&path, PROJECT, own.to_string().as_bytes(), XattrFlags::empty()).unwrap();
    }
    novale(&["quota", "clear", &tree_shown]).ok();
    let root = scratch.in_dir("");
    assert_eq!((counting(&root, own), counting(&outer, around)), (0, 5));
    assert_eq!(counting(&free, 0), 4);
    novale(&["quota", "clear", &tree_shown]).refused(1, &["not the top"]);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

#[test]
fn trees_in_trees_count_for_themselves() {
    let Some(scratch) = Scratch::for_mount("trees_in_trees_count_for_themselves") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let [outer, inner] =
        ["outer", "outer/inner"].map(|name| scratch.in_dir(name).display().to_string());
    fs::create_dir_all(&inner).unwrap();
    for dir in [&outer, &inner] {
        fs::write(format!("{dir}/file"), b"x").unwrap();
    }
    novale(&["quota", "set", "--inodes", "100", &inner]).ok();
    novale(&["quota", "set", "--inodes", "100", &outer]).ok();
    assert_eq!(
        (&shown(&inner)["inodes_used"], &shown(&outer)["inodes_used"]),
        (&2.into(), &2.into())
    );
    let all = novale(&["quota", "show", "--all", &scratch.dir()]).ok();
    assert_eq!(all.lines().count(), 3, "{all}");
    novale(&["quota", "clear", &inner]).ok();
    assert_eq!(shown(&outer)["inodes_used"], 4);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// The link came to be of the tree, and the directory, which was shown as one, had no limit.
#[test]
fn a_directory_that_a_link_leads_to_is_limited() {
    let Some(scratch) = Scratch::for_mount("a_link_leads_to") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let [tree, link] = ["tree", "link"].map(|name| scratch.in_dir(name));
    fs::create_dir(&tree).unwrap();
    symlink("tree", &link).unwrap();
    let [tree_shown, link_shown] = [&tree, &link].map(|path| path.display().to_string());
    novale(&["quota", "set", "--inodes", "2", &link_shown]).ok();
    assert_eq!(shown(&tree_shown)["inodes_max"], 2);
    assert_eq!(shown(&tree_shown), shown(&link_shown));
    assert_eq!(tree_of(&link), 0);
    fs::write(tree.join("file"), b"x").unwrap();
    let full = fs::write(tree.join("other"), b"x").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::QuotaExceeded);
    novale(&["quota", "clear", &link_shown]).ok();
    assert_eq!(tree_of(&tree), 0);
    fs::write(tree.join("other"), b"x").unwrap();
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

/// Of more trees than an attribute's value has room for none was shown.
#[test]
fn all_trees_are_shown_however_many_there_are() {
    const TREES: usize = 2000;
    let Some(scratch) = Scratch::for_mount("all_trees_are_shown") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    for number in 0..TREES {
        let dir = scratch.in_dir(&number.to_string());
        fs::create_dir(&dir).unwrap();
        let own = fs::metadata(&dir).unwrap().ino().to_string();
        lsetxattr(&dir, PROJECT, own.as_bytes(), XattrFlags::empty()).unwrap();
    }
    let all = novale(&["quota", "show", "--all", &scratch.dir()]).ok();
    assert_eq!(all.lines().count(), 1 + TREES);
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["check", &slot]).ok();
}

#[test]
fn a_wrong_place_and_a_wrong_limit_are_told() {
    let Some(scratch) = Scratch::for_mount("a_wrong_place_and_a_wrong_limit_are_told") else {
        return;
    };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let file = scratch.in_dir("file").display().to_string();
    fs::write(&file, b"x").unwrap();
    novale(&["quota", "set", "--inodes", "9", &file]).refused(1, &["not a directory"]);
    novale(&["quota", "set", &scratch.dir()]).refused(1, &["give a limit"]);
    novale(&["quota", "set", "--space", "much", &scratch.dir()]).refused(2, &["no size"]);
    novale(&["quota", "set", "--inodes", "0", &scratch.dir()]).refused(2, &["no number"]);
    novale(&["quota", "clear", &scratch.dir()]).refused(1, &["not the top"]);
    novale(&["quota", "show", "/proc"]).refused(1, &["not in a mount of Novale"]);
    novale(&["umount", &scratch.dir()]).ok();
}
