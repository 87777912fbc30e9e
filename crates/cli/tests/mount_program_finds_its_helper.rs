//! Promise: called as mount.fuse.novale, the program does what mount(8) and fstab expect.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use support::{Scratch, called, novale};

const HELPER: &str = "/somewhere/sbin/mount.fuse.novale";

fn options_at(dir: &str) -> String {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(dir));
    line.and_then(|line| line.split(' ').nth(3)).unwrap_or_default().to_owned()
}

#[test]
fn slots_come_with_colons_and_flags_before_the_options() {
    let Some(scratch) = Scratch::for_mount("slots_come_with_colons") else { return };
    let [a, b] = [scratch.slot("a"), scratch.slot("b")];
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    let (source, dir) = (format!("{a}:{b}"), scratch.dir());
    let words = "rw,noexec,nosuid,nodev,user,nofail,_netdev,noatime,x-systemd.device-timeout=5";
    called(HELPER, &[&source, &dir, "-v", "-n", "-s", "-o", words]).ok();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(&dir)).unwrap();
    assert!(
        line.starts_with(&format!("{source} {dir} fuse.novale rw,nosuid,nodev,noexec,noatime"))
    );
    fs::write(scratch.in_dir("file"), b"x").unwrap();
    novale(&["umount", &dir]).ok();
}

/// A source of two slots was taken for one file if there was one of that path, which anybody could make in /dev/shm
/// with a pool of his own in it: root mounted that in the place of the pool.
#[test]
fn a_source_of_two_slots_is_never_one_file() {
    let Some(scratch) = Scratch::for_mount("a_source_of_two_slots_is_never") else { return };
    let [a, b] = [scratch.slot("a"), scratch.slot("b")];
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    let (source, dir) = (format!("{a}:{b}"), scratch.dir());
    novale(&["mount", &a, &b, &dir]).ok();
    fs::write(scratch.in_dir("roots"), b"x").unwrap();
    novale(&["umount", &dir]).ok();
    fs::create_dir_all(Path::new(&source).parent().unwrap()).unwrap();
    // Nor is one made there: it could not be mounted.
    let unnamed = [source.as_str(), "colon", "symbolic link"];
    novale(&["mkfs", "--size", "16M", &source]).refused(1, &unnamed);
    novale(&["slot", "add", &source, &a, &b, "--size", "16M"]).refused(1, &unnamed);
    novale(&["slot", "replace", &b, &source, &a, "--size", "16M"]).refused(1, &unnamed);
    let other = scratch.slot("other");
    novale(&["mkfs", "--size", "16M", &other]).ok();
    fs::rename(&other, &source).unwrap();
    called(HELPER, &[&source, &dir]).ok();
    assert!(scratch.in_dir("roots").exists());
    novale(&["umount", &dir]).ok();
    // What can't be named so is not mounted; by another path it can be.
    novale(&["mount", &source, &dir]).refused(1, &unnamed);
    called(HELPER, &[&a, &dir, "-f"]).refused(32, &["missing"]);
    assert!(!scratch.is_mounted());
    let link = scratch.slot("li:nk");
    symlink(&source, &link).unwrap();
    called(HELPER, &[&link, &dir]).ok();
    assert!(!scratch.in_dir("roots").exists());
    novale(&["umount", &dir]).ok();
}

/// The mount showed the slots in the pool's order: mount(8) did not know its line of fstab in it,
/// mounted again and failed, and umount(8) found nothing by that name.
#[test]
fn the_source_is_shown_as_it_was_given() {
    let Some(scratch) = Scratch::for_mount("the_source_is_shown") else { return };
    let [a, b] = [scratch.slot("a"), scratch.slot("b")];
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    let (source, dir) = (format!("{b}:{}", a.replace("/a", "/./a")), scratch.dir());
    called(HELPER, &[&source, &dir]).ok();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(table.lines().any(|line| line.starts_with(&format!("{source} {dir} "))), "{table}");
    fs::write(scratch.in_dir("file"), b"x").unwrap();
    assert!(Command::new("umount").arg(&source).status().unwrap().success());
    novale(&["check", &a, &b]).ok();
}

#[test]
fn a_remount_changes_what_it_names_and_keeps_the_rest() {
    let Some(scratch) = Scratch::for_mount("a_remount_changes_what_it_names") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    called(HELPER, &[&slot, &dir, "-o", "rw,noexec,noatime"]).ok();
    called(HELPER, &[&slot, &dir, "-o", "remount,ro"]).ok();
    assert!(fs::write(scratch.in_dir("file"), b"x").is_err());
    assert!(options_at(&dir).starts_with("ro,noexec,noatime"), "{}", options_at(&dir));
    called(HELPER, &[&slot, &dir, "-o", "remount,rw,exec"]).ok();
    fs::write(scratch.in_dir("file"), b"x").unwrap();
    assert!(options_at(&dir).starts_with("rw,noatime"), "{}", options_at(&dir));
}

/// It was reported done, the mount said rw, and every write failed.
#[test]
fn a_pool_opened_read_only_is_not_remounted_for_writing() {
    let Some(scratch) = Scratch::for_mount("a_pool_opened_read_only_is_not_remounted") else {
        return;
    };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    called(HELPER, &[&slot, &dir, "-o", "ro"]).ok();
    let remount = |words| called(HELPER, &[&slot, &dir, "-o", words]);
    remount("remount,rw").refused(32, &["opened read-only", "unmount it", &slot]);
    assert!(options_at(&dir).starts_with("ro,"), "{}", options_at(&dir));
    remount("remount,ro,noexec").ok();
    assert!(options_at(&dir).starts_with("ro,noexec"), "{}", options_at(&dir));
}

/// What the daemon was started with cannot change, and was said to have.
#[test]
fn a_remount_says_what_it_cannot_change() {
    let Some(scratch) = Scratch::for_mount("a_remount_says_what_it_cannot_change") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    called(HELPER, &[&slot, &dir, "-o", "noatime,threads=3"]).ok();
    let same = called(HELPER, &[&slot, &dir, "-o", "noatime,threads=3,remount,noexec"]);
    assert_eq!(same.err, "");
    same.ok();
    let other = called(HELPER, &[&slot, &dir, "-o", "remount,relatime,threads=5,grace=1"]);
    assert!(other.err.contains("threads=5 and grace=1 can't be changed"), "{}", other.err);
    other.ok();
    assert!(options_at(&dir).starts_with("rw,noexec,relatime"), "{}", options_at(&dir));
    novale(&["mount", "--threads", "2", "-o", "remount,ro", &dir])
        .refused(1, &["--threads", "unmount"]);
}

#[test]
fn mistakes_have_the_exit_codes_of_mount() {
    let Some(scratch) = Scratch::for_mount("mistakes_have_the_exit_codes_of_mount") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    called(HELPER, &[&slot]).refused(1, &[]);
    called(HELPER, &[&slot, &dir, "-o", "bogus"]).refused(32, &["bogus"]);
    called(HELPER, &[&scratch.slot("none"), &dir]).refused(32, &["does not exist"]);
    called(HELPER, &[&slot, &dir, "-f", "-o", "ro"]).ok();
    // A source or a directory that is not there passed the check that -f is.
    called(HELPER, &[&scratch.slot("none"), &dir, "-f"]).refused(32, &["does not exist"]);
    called(HELPER, &[&slot, &scratch.slot("none"), "-f"]).refused(32, &["cannot mount on"]);
    called(HELPER, &[&slot, &slot, "-f"]).refused(32, &["cannot mount on"]);
    called(HELPER, &[&slot, &dir, "-f", "-o", "remount,ro"])
        .refused(32, &["is not a Novale mount"]);
    assert!(!scratch.is_mounted());
    called(HELPER, &[&slot, &dir, "-s", "-o", "bogus,ro"]).ok();
    assert!(options_at(&dir).starts_with("ro,"));
}

/// The words won for threads and grace, the arguments for the rest, and the record of the mount had
/// the words: a remount told what was not so.
#[test]
fn an_argument_wins_over_its_word_and_a_remount_knows() {
    let Some(scratch) = Scratch::for_mount("an_argument_wins_over_its_word") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    let arguments = ["--threads", "3", "--grace", "2", "--form", "two"];
    let words = ["-o", "threads=5,grace=4,form=single,arena_max=2G", &slot, &dir];
    novale(&[&["mount"], &arguments[..], &words[..]].concat()).ok();
    let remount = |words: &str| {
        let done = called(HELPER, &[&slot, &dir, "-o", &format!("remount,{words}")]);
        let told = done.err.clone();
        done.ok();
        told
    };
    assert_eq!(remount("threads=3,grace=2,form=two,arena_max=2048M"), "");
    let told = remount("threads=5,grace=4,form=single");
    assert!(told.contains("form=single and threads=5 and grace=4 can't be changed"), "{told}");
}

/// It was refused as unknown, while its opposite was taken.
#[test]
fn symbolic_links_are_not_followed_where_that_is_asked() {
    let Some(scratch) = Scratch::for_mount("symbolic_links_are_not_followed") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    called(HELPER, &[&slot, &dir, "-o", "nosymfollow"]).ok();
    fs::write(scratch.in_dir("file"), b"x").unwrap();
    std::os::unix::fs::symlink("file", scratch.in_dir("link")).unwrap();
    let refused = fs::read(scratch.in_dir("link")).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(rustix::io::Errno::LOOP.raw_os_error())));
    assert!(options_at(&dir).contains("nosymfollow"), "{}", options_at(&dir));
    called(HELPER, &[&slot, &dir, "-o", "remount,symfollow"]).ok();
    assert_eq!(fs::read(scratch.in_dir("link")).unwrap(), b"x");
}
