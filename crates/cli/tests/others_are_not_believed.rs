//! Promise: what other users and other containers do in `/dev/shm`, and what their mounts say, neither
//! misleads a command nor keeps anybody from anything.
//!
//! The facts of a mount were files in `/dev/shm`. A user who could write one had root's `novale umount`
//! remove a file of root's, and root's `novale run` serve a user's mount from a pool of root's; a
//! container's daemon removed those of living mounts; and the names could be taken by anybody before.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{Scratch, arenas, ends, eventually, facts, novale, program, signal_daemon};

/// A user with no rights.
const NOBODY: u32 = 65534;

/// Runs a program so that it is told of the mount, or not at all; what it was told.
fn told(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(program());
    command.args(["run", "--strict"]).args(arguments).args(["sh", "-c", "echo $NOVALE_DIRECT"]);
    // Any library will do.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("libc.so")).unwrap();
    let output = command.env("NOVALE_PRELOAD", libc).env_remove("LD_PRELOAD").output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// The folder is of code that programs load: under another umask anybody could write it, and an administrator
/// who has a user's environment was led to that user's.
#[test]
fn code_is_kept_where_nobody_else_writes() {
    let Some(scratch) = Scratch::for_mount("code_is_kept_where_nobody_else_writes") else { return };
    let (slot, dir, home) = (scratch.pool(), scratch.dir(), scratch.slot("home"));
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("libc.so")).unwrap();
    let chosen = |place: &str| {
        let script = "umask 0; exec \"$0\" run --strict sh -c 'echo $NOVALE_CACHE'";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(program()).env("XDG_CACHE_HOME", place);
        let output = shell.env("NOVALE_PRELOAD", libc).env_remove("LD_PRELOAD").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let mode = |path: &str| fs::metadata(path).unwrap().mode() & 0o7777;
    fs::create_dir(&home).unwrap();
    let folder = format!("{home}/cache/novale");
    assert_eq!((chosen(&format!("{home}/cache")), mode(&folder)), (folder.clone(), 0o755));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!((chosen(&format!("{home}/cache")), mode(&folder)), (folder.clone(), 0o755));
    std::os::unix::fs::chown(&home, Some(NOBODY), None).unwrap();
    assert_eq!(chosen(&format!("{home}/cache")), "/var/cache/novale");
    novale(&["umount", &dir]).ok();
}

/// A mount was looked for, its daemon was asked, which may take its time, and then what its path led to was
/// taken away: by then another mount, where a directory on the way was renamed by its owner.
#[test]
fn no_mount_goes_that_a_path_has_come_to_lead_to() {
    let Some(scratch) = Scratch::for_mount("no_mount_goes_that") else { return };
    let (slot, other) = (scratch.pool(), scratch.slot("other"));
    let (his, roots) = (scratch.slot("his"), scratch.slot("roots"));
    let place = |folder: &str| format!("{folder}/m");
    for folder in [&his, &roots] {
        fs::create_dir_all(place(folder)).unwrap();
    }
    novale(&["mkfs", "--size", "16M", "--quiet", &other]).ok();
    novale(&["mount", &slot, &place(&his)]).ok();
    novale(&["mount", &other, &place(&roots)]).ok();
    signal_daemon(&slot, Signal::STOP);
    let mut umount = Command::new(program());
    umount.args(["umount", "--lazy", &place(&his)]).stderr(Stdio::piped());
    let umount = umount.spawn().unwrap();
    // By a child of its own.
    let children = format!("/proc/{0}/task/{0}/children", umount.id());
    while fs::read_to_string(&children).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let aside = scratch.slot("aside");
    fs::rename(&his, &aside).unwrap();
    symlink(&roots, &his).unwrap();
    let output = umount.wait_with_output().unwrap();
    signal_daemon(&slot, Signal::CONT);
    assert!(!output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("is not a Novale mount"),
        "{output:?}"
    );
    assert_eq!(facts(&other)["mounted_at"][0], place(&roots).as_str());
    novale(&["umount", &place(&roots), &place(&aside)]).ok();
}

/// A program that is called as a daemon is, and says whose it is.
const DAEMON_LIKE: &str = r"
import ctypes, os, signal
libc = ctypes.CDLL(None)
name, dumpable, mode = 15, 4, 0
libc.prctl(name, b'novale', 0, 0, 0)
libc.prctl(dumpable, mode, 0, 0, 0)
if os.geteuid() == 0:
    os.setresuid(0, 0, 0)
print(os.getuid(), flush=True)
signal.pause()
";

/// Root's `umount` of a directory that is not mounted waited for a process of any user: of one that may not be looked
/// into, which `/proc` shows as root's, and of a set-uid program that was called as a daemon is.
#[test]
fn no_daemon_is_waited_for_that_is_none() {
    let Some(scratch) = Scratch::for_mount("no_daemon_is_waited_for") else { return };
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.path().join("mount"), DAEMON_LIKE).unwrap();
    let which = "python3 -c 'import os, sys; print(os.path.realpath(sys.executable))'";
    let python = String::from_utf8(as_nobody(which).stdout).unwrap().trim().to_owned();
    if python.is_empty() {
        println!("skipped: no_daemon_is_waited_for: no python3");
        return;
    }
    let set_uid = place.path().join("set-uid");
    // Not by this process, which others that it starts would have the copy open from.
    assert!(Command::new("cp").arg(&python).arg(&set_uid).status().unwrap().success());
    fs::set_permissions(&set_uid, fs::Permissions::from_mode(0o4755)).unwrap();
    for (program, user) in [(Path::new(&python), NOBODY), (&set_uid, 0)] {
        let mut other = Command::new(program);
        other.args(["mount", "--daemon", &scratch.dir()]).current_dir(place.path());
        let mut other = other.uid(NOBODY).gid(NOBODY).stdout(Stdio::piped()).spawn().unwrap();
        let mut whose = String::new();
        BufReader::new(other.stdout.take().unwrap()).read_line(&mut whose).unwrap();
        let mut umount = Command::new(support::program());
        let mut umount =
            umount.args(["umount", &scratch.dir()]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(umount.stderr.take().unwrap()).read_line(&mut said).unwrap();
        for child in [&mut umount, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(said.contains("is not a Novale mount"), "{said}");
        // Set-uid programs may be none there.
        assert!([user, NOBODY].map(|user| format!("{user}\n")).contains(&whose), "{whose}");
    }
}

/// Does something as a user without rights.
fn as_nobody(script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).output().unwrap()
}

/// A pool was made in the file that another user had put there, whose it was.
#[test]
fn no_pool_is_made_in_another_users_file() {
    let scratch = Scratch::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let slot = scratch.slot("squatted");
    for bytes in [0, 16 << 20] {
        fs::File::create(&slot).unwrap().set_len(bytes).unwrap();
        std::os::unix::fs::chown(&slot, Some(NOBODY), Some(NOBODY)).unwrap();
        novale(&["mkfs", "--size", "16M", &slot]).refused(1, &["another user", "--force"]);
        assert_eq!(fs::metadata(&slot).unwrap().len(), bytes, "it is as it was");
        let made = novale_posix::make_pool(&[&slot], &novale_posix::MakePool::default());
        assert!(made.is_err() && fs::metadata(&slot).unwrap().len() == bytes);
    }
    // Who means it.
    novale(&["mkfs", "--size", "16M", "--force", &slot]).ok();
    // A link that another user has put there leads wherever he wants a file to be overwritten.
    let (link, empty) = (scratch.slot("link"), scratch.slot("empty"));
    fs::File::create(&empty).unwrap();
    symlink(&empty, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    novale(&["mkfs", "--size", "16M", &link]).refused(1, &["symbolic link of another user's"]);
    assert_eq!(fs::metadata(&empty).unwrap().len(), 0);
}

/// A link that another user had put in the place of his pool, or of a folder above it, led `novale slot add` of
/// root's to any pool of root's: a slot in that user's folder was added to it, for him to remove.
#[test]
fn no_pool_is_changed_that_another_users_link_leads_to() {
    let scratch = Scratch::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let [roots, his] = ["roots", "his"].map(|name| scratch.slot(name));
    for folder in [&roots, &his] {
        fs::create_dir(folder).unwrap();
    }
    let (pool, new) = (format!("{roots}/pool"), format!("{his}/new"));
    novale(&["mkfs", "--size", "16M", "--quiet", &pool]).ok();
    let link = |to: &str, name: &str, owner| {
        let link = format!("{his}/{name}");
        symlink(to, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(owner), Some(owner)).unwrap();
        link
    };
    let (file, folder) = (link(&pool, "file", NOBODY), link(&roots, "folder", NOBODY));
    for led in [&file, &format!("{folder}/pool")] {
        let saved = scratch.slot("saved");
        let slots = [
            &["slot", "add", "--size", "16M", &new, led][..],
            &["slot", "replace", "--size", "16M", led, &new],
        ];
        let repair = ["check", "--repair=salvage", "--yes", "--save", &saved, led];
        let others = "symbolic link of another user's";
        for words in slots {
            novale(words).refused(1, &[others]);
        }
        novale(&repair).refused(8, &[others]);
        assert!(!Path::new(&new).exists());
    }
    assert!(facts(&pool)["slots"].as_array().is_some_and(|slots| slots.len() == 1));
    // A new slot was made there, and removed again if the folder was still the same.
    let changed = || fs::metadata(&roots).unwrap().modified().unwrap();
    let before = changed();
    let led = format!("{folder}/led");
    novale(&["mkfs", "--size", "16M", &led]).refused(1, &["symbolic link of another user's"]);
    assert_eq!(changed(), before);
    // Root's own links lead where root wants.
    let (up, own) = (link("../roots", "up", 0), scratch.slot("own"));
    symlink(format!("{up}/pool"), &own).unwrap();
    novale(&["slot", "add", "--size", "16M", &new, &own]).ok();
}

/// The file of a slot that was to be made was looked for by its name, and then given to the pool's owner by
/// its name: a link that he had put there meanwhile made any file his.
#[test]
fn no_file_that_a_link_leads_to_is_given_to_a_pools_owner() {
    let scratch = Scratch::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = scratch.slot("his");
    fs::create_dir(&folder).unwrap();
    let (pool, new) = (format!("{folder}/pool"), format!("{folder}/new"));
    let victim = scratch.slot("victim");
    fs::write(&victim, "root's").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
    novale(&["mkfs", "--size", "16M", "--quiet", &pool]).ok();
    std::os::unix::fs::chown(&pool, Some(NOBODY), Some(NOBODY)).unwrap();
    // Who holds the lock is waited for, by a descriptor of that process: nothing was at the new one's path then.
    let mut holder = Command::new("flock");
    holder.args([&pool, "sh", "-c", &format!("echo held; read go; ln -s {victim} {new}")]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 5];
    holder.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let mut add = Command::new(program());
    add.args(["slot", "add", "--size", "16M", &new, &pool]).stderr(Stdio::piped());
    let mut add = add.spawn().unwrap();
    let fds = format!("/proc/{}/fd", add.id());
    let waits = || {
        let mut fds = fs::read_dir(&fds).into_iter().flatten().flatten();
        fds.any(|fd| {
            fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("pidfd"))
        })
    };
    while !waits() {
        assert!(add.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let output = add.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("made by somebody else just now"), "{said}");
    let found = fs::metadata(&victim).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o640), "it is as it was");
    assert!(fs::symlink_metadata(&new).unwrap().is_symlink(), "and so is the link");
}

/// Whoever had made a file with the arena's name kept root from these commands, of a pool that nobody had open: it was said
/// to be another user's.
#[test]
fn names_that_others_have_taken_keep_nobody_from_a_pool_that_is_not_in_use() {
    let scratch = Scratch::new();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| scratch.slot(name));
    novale(&["mkfs", "--size", "16M", "--quiet", &a, &b]).ok();
    let pool = novale_posix::Pool::open(&[&a, &b]).unwrap();
    let arena = arenas(&a).remove(0);
    pool.close().unwrap();
    assert!(as_nobody(&format!("touch {}", arena.display())).status.success());
    let look = |other: &str| {
        novale(&["slot", "status", &a, other]).ok();
        novale(&["wear", &a, other]).ok();
        novale(&["stats", &a, other]).refused(1, &["nobody has the pool open"]);
    };
    look(&b);
    novale(&["slot", "add", "--size", "16M", &c, &a, &b]).ok();
    novale(&["slot", "remove", &c, &a, &b]).ok();
    fs::remove_file(&c).unwrap();
    novale(&["slot", "replace", "--size", "16M", &b, &c, &a]).ok();
    fs::remove_file(&c).unwrap();
    novale(&["slot", "replace", "--lost", "--size", "16M", &c, &d, &a]).ok();
    assert_eq!(fs::metadata(&arena).unwrap().uid(), NOBODY);
    // What is this user's and no arena goes with the next opening.
    fs::remove_file(&arena).unwrap();
    fs::write(&arena, "").unwrap();
    fs::set_permissions(&arena, fs::Permissions::from_mode(0o600)).unwrap();
    look(&d);
    fs::remove_file(&arena).unwrap();

    // In use by that user.
    fs::set_permissions(Path::new(&a).parent().unwrap(), fs::Permissions::from_mode(0o755))
        .unwrap();
    std::os::unix::fs::chown(&a, Some(NOBODY), None).unwrap();
    let script = format!("touch {}; exec flock -s {a} sh -c 'echo; read go'", arena.display());
    let mut user = Command::new("sh");
    user.args(["-c", &script]).uid(NOBODY).gid(NOBODY).stdin(Stdio::piped());
    let mut user = user.stdout(Stdio::piped()).spawn().unwrap();
    user.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let holder = format!("a is in use by process {} (flock), another user's", user.id());
    let commands = [
        &["slot", "status", &a, &d][..],
        &["wear", &a, &d],
        &["stats", &a, &d],
        &["slot", "add", "--size", "16M", &c, &a, &d],
    ];
    for command in commands {
        novale(command).refused(1, &[&holder]);
    }
    drop(user.stdin.take());
    user.wait().unwrap();
    fs::remove_file(&arena).unwrap();
}

#[test]
fn names_that_others_have_taken_keep_nobody_from_sharing_a_pool() {
    let Some(scratch) = Scratch::for_mount("names_that_others_have_taken") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    let mount = || novale(&["mount", "-o", "direct", &slot, &dir]);
    mount().ok();
    let arena = arenas(&slot).remove(0);
    novale(&["umount", &dir]).ok();
    let name = arena.display();
    for take in ["touch", "mkfifo", "mkdir", "ln -s /etc/passwd"] {
        let taken = as_nobody(&format!("{take} {name}"));
        assert!(taken.status.success(), "{taken:?}");
        let squatter = fs::symlink_metadata(&arena).unwrap().ino();
        mount().ok();
        assert_eq!(arenas(&slot).len(), 2, "{take}");
        let (code, entry) = told(&["--mount", &dir]);
        assert!(code == 0 && entry.contains(&slot), "{take}: {code} {entry}");
        let one = novale_posix::join::join(&[PathBuf::from(&slot)]).unwrap();
        novale(&["umount", &dir]).refused(1, &["busy", &std::process::id().to_string()]);
        one.close().unwrap();
        drop(one);
        // One that was killed is replaced, and what it has left is found.
        assert!(ends(signal_daemon(&slot, Signal::KILL)));
        mount().ok();
        assert_eq!(arenas(&slot).len(), 2, "{take}");
        novale(&["umount", &dir]).ok();
        assert!(facts(&slot)["clean"] == true && arenas(&slot).len() == 1, "{take}");
        assert_eq!(fs::symlink_metadata(&arena).unwrap().ino(), squatter, "{take}");
        let removed = fs::remove_dir(&arena).or_else(|_| fs::remove_file(&arena));
        removed.unwrap();
    }
    // A program that runs can't be opened to be written to.
    let run = format!("cp /bin/sleep {name} && {{ {name} 100 >&- 2>&- <&- & echo $!; }}");
    let taken = as_nobody(&run);
    let squatter = String::from_utf8_lossy(&taken.stdout).trim().parse().unwrap();
    let runs = || fs::read_link(format!("/proc/{squatter}/exe")).is_ok_and(|exe| exe == arena);
    if !eventually(runs) {
        println!("skipped: names_that_others_have_taken: nothing is executed in /dev/shm here");
        fs::remove_file(&arena).unwrap();
        return;
    }
    mount().ok();
    let (code, entry) = told(&["--mount", &dir]);
    assert!(code == 0 && entry.contains(&slot), "{code} {entry}");
    let one = novale_posix::join::join(&[PathBuf::from(&slot)]).unwrap();
    one.close().unwrap();
    drop(one);
    novale(&["umount", &dir]).ok();
    kill_process(Pid::from_raw(squatter).unwrap(), Signal::KILL).unwrap();
    fs::remove_file(&arena).unwrap();
}

#[test]
fn a_daemon_in_another_container_disturbs_no_mount() {
    let Some(scratch) = Scratch::for_mount("a_daemon_in_another_container") else { return };
    let (slot, dir, other) = (scratch.pool(), scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    let place = scratch.slot("place");
    fs::create_dir(&place).unwrap();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    // Whose mount table shows nothing of the mount here, as that of a container shows nothing.
    let novale_program = program();
    let inside = format!(
        "{1}; {0} mount -o direct {other} {place} && {0} umount {place}",
        novale_program.display(),
        support::without_mounts("none")
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "-p", "-f", "--mount-proc", "sh", "-c", &inside]);
    let ended = unshare.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let (code, entry) = told(&["--mount", &dir]);
    assert!(code == 0 && entry.contains(&slot), "{code} {entry}");
    novale(&["umount", &dir]).ok();
    assert_eq!(facts(&slot)["clean"], true);
}

/// What is in use by a process that a container can't see was said to be closed or dead there.
#[test]
fn a_pool_in_use_outside_of_a_container_is_said_to_be() {
    let Some(scratch) = Scratch::for_mount("a_pool_in_use_outside") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    for options in ["direct", "ro"] {
        novale(&["mount", "-o", options, &slot, &dir]).ok();
        let inside = format!("{0} info {slot} && {0} info --json {slot}", program().display());
        let mut unshare = Command::new("unshare");
        unshare.args(["-p", "-f", "--mount-proc", "sh", "-c", &inside]);
        let said = unshare.output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout);
        let words = ["in use by a process of another pid", "(its daemon is in another pid"];
        for word in words.into_iter().chain(["\"used_elsewhere\": true"]) {
            assert!(said.contains(word), "{options}: {said}");
        }
        assert_eq!(facts(&slot)["used_elsewhere"], false);
        novale(&["umount", &dir]).ok();
    }
}

/// The path in the mount table led to another pool by then.
#[test]
fn a_mount_is_coupled_with_no_pool_but_its_own() {
    let Some(scratch) = Scratch::for_mount("a_mount_is_coupled_with_no_pool") else { return };
    let [mine, other, link] = ["mine", "other", "link"].map(|name| scratch.slot(name));
    let place = scratch.slot("place");
    fs::create_dir(&place).unwrap();
    for pool in [&mine, &other] {
        novale(&["mkfs", "--size", "16M", pool]).ok();
    }
    symlink(&mine, &link).unwrap();
    novale(&["mount", "-o", "direct", &link, &scratch.dir()]).ok();
    novale(&["mount", "-o", "direct", &other, &place]).ok();
    let (code, entry) = told(&["--mount", &scratch.dir()]);
    assert!(code == 0 && entry.contains(&mine), "{code} {entry}");
    fs::remove_file(&link).unwrap();
    symlink(&other, &link).unwrap();
    assert_eq!(told(&["--mount", &scratch.dir()]), (125, String::new()));
    let (code, all) = told(&[]);
    assert!(code == 0 && all.contains(&place) && !all.contains(&scratch.dir()), "{code} {all}");
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["umount", &place]).ok();
    assert_eq!((&facts(&mine)["clean"], &facts(&other)["clean"]), (&true.into(), &true.into()));
}

/// Another pool that had come to the path of the mount's slot was given the new one, and the mount was said to have it.
#[test]
fn no_slot_is_added_to_another_pool_than_the_mounts() {
    let Some(scratch) = Scratch::for_mount("no_slot_is_added_to_another_pool") else { return };
    let [slot, moved, new] = ["slot", "moved", "new"].map(|name| scratch.slot(name));
    novale(&["mkfs", "--size", "16M", &slot]).ok();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::rename(&slot, &moved).unwrap();
    novale(&["mkfs", "--size", "16M", &slot]).ok();
    novale(&["slot", "add", "--size", "16M", &new, &scratch.dir()])
        .refused(1, &["another file is at"]);
    novale(&["umount", &scratch.dir()]).ok();
    for pool in [&slot, &moved] {
        assert!(facts(pool)["slots"].as_array().is_some_and(|slots| slots.len() == 1));
    }
}

/// A lock that the daemon was started with counted as a slot: the pool was said to be changed under the mount.
#[test]
fn what_a_daemon_was_started_with_is_no_slot() {
    let Some(scratch) = Scratch::for_mount("what_a_daemon_was_started_with") else { return };
    let (slot, lock) = (scratch.pool(), scratch.slot("lock"));
    let mut shell = Command::new("sh");
    let script = "exec 9<>\"$1\" && flock 9 && exec \"$0\" mount --quiet \"$2\" \"$3\"";
    shell.args(["-c", script]).arg(program()).args([&lock, &slot, &scratch.dir()]);
    assert!(shell.status().unwrap().success());
    novale(&["umount", &scratch.dir()]).ok();
}

#[test]
fn a_daemon_tells_of_its_mount_to_its_user_and_to_nobody_else() {
    let Some(scratch) = Scratch::for_mount("a_daemon_tells_of_its_mount") else { return };
    let slot = scratch.pool();
    novale(&["mount", "--threads", "3", &slot, &scratch.dir()]).ok();
    let name = novale_fuse::FACTS;
    let mut value = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(scratch.dir(), name, &mut value[..]).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&value[..len]).unwrap();
    assert_eq!(said["pid"], facts(&slot)["used_by"]);
    assert_eq!((&said["threads"], &said["slots"][0]), (&3.into(), &slot.as_str().into()));
    let asks = "import os, sys\ntry: print(os.getxattr(sys.argv[1], sys.argv[2]))\n\
                except OSError as error: print(error.strerror)";
    for folder in [scratch.dir(), format!("{}/..", scratch.dir())] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut python = Command::new("python3");
    python.args(["-c", asks, &scratch.dir(), name]).uid(NOBODY).gid(NOBODY);
    match python.output() {
        Ok(output) => assert_eq!(output.stdout, b"No data available\n", "{output:?}"),
        Err(error) => println!("skipped: as another user: python3: {error}"),
    }
}

/// Mounts as a user, in a namespace of its own, and lets root's commands meet the mount. `$N` is the
/// program, `$U` a folder of the user's, `$R` one of root's pools, `$M` where that is mounted.
const HOSTILE: &str = r#"
set -eu
mount --make-rprivate /
eval "$ALONE"
mount -t tmpfs -o mode=755 none /mnt
mknod /mnt/fuse c 10 229; chmod 666 /mnt/fuse; mount --bind /mnt/fuse /dev/fuse
mkdir -p /mnt/u/m "$M"; chown -R 65534 /mnt/u
as() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/mnt/u "$@"; }
"$N" mount -o direct "$R" "$M"
echo secret > "$M/secret"; chmod 600 "$M/secret"
as "$N" mkfs --size 16M "$U/pool" > /dev/null
as ln -s "$U/pool" "$U/link"
as "$N" mount -o direct "$U/link" /mnt/u/m
echo "its own: $(as "$N" run --strict --mount /mnt/u/m sh -c 'echo $NOVALE_DIRECT')"
# The path that the mount table shows leads to root's pool from here on.
as ln -sfn "$R" "$U/link"
echo "named: $("$N" run --strict --mount /mnt/u/m sh -c 'echo $NOVALE_DIRECT' 2>&1)"
echo "slot: $("$N" slot add --size 16M "$U/more" /mnt/u/m 2>&1)"
echo "all: $("$N" run --strict sh -c 'echo $NOVALE_DIRECT' 2>&1)"
# Both daemons die: the one pool is nobody's then, and neither is its arena.
"$N" info "$R" | grep -q "mounted   $M"
kill -9 $(pgrep -u 65534 -f "mount --daemon.*$U/link")
kill -9 $(pgrep -u 0 -f "mount --daemon.*$R")
sleep 0.5
before=$(stat -c %n /dev/shm/novale-"$ID"-*)
"$N" umount /mnt/u/m
echo "left: $(stat -c %n /dev/shm/novale-"$ID"-* | grep -cxF "$before")"
"$N" umount "$M"
echo "then: $(ls /dev/shm | grep -c "novale-$ID-" || true)"
as rm -f /dev/shm/novale-"$("$N" info "$U/pool" | awk '/^pool/ { print $2 }')"-*
"#;

#[test]
fn a_users_mount_leads_root_to_no_pool_and_no_file_of_roots() {
    let Some(scratch) = Scratch::for_mount("a_users_mount_leads_root") else { return };
    let has = |tool: &str| Command::new(tool).arg("-V").output().is_ok();
    if !has("fusermount3") || !has("setpriv") {
        println!("skipped: a_users_mount_leads_root: no fusermount3, or no setpriv");
        return;
    }
    let slot = scratch.pool();
    let id = facts(&slot)["uuid"].as_str().unwrap().to_owned();
    let folder = Path::new(&slot).parent().unwrap();
    let (mine, copy) = (folder.join("users"), folder.join("novale"));
    fs::create_dir(&mine).unwrap();
    std::os::unix::fs::chown(&mine, Some(NOBODY), None).unwrap();
    // Not by this process, which others that it starts would have the copy open from.
    assert!(Command::new("cp").arg(program()).arg(&copy).status().unwrap().success());
    for open in [folder, &copy] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("libc.so")).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", HOSTILE]).env("NOVALE_PRELOAD", libc);
    unshare
        .env("ALONE", support::without_mounts("none"))
        .env("N", &copy)
        .env("U", &mine)
        .env("R", &slot)
        .env("ID", &id);
    let output = unshare.env("M", "/mnt/root").env_remove("LD_PRELOAD").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or("");
    assert!(output.status.success(), "{output:?}");
    assert!(line("its own: ").starts_with("/mnt/u/m="), "{output:?}");
    assert!(line("named: ").contains("another user's mount"), "{output:?}");
    // It was added to the pool that the path leads to.
    assert!(line("slot: ").contains("another user's mount"), "{output:?}");
    let all = line("all: ");
    assert!(all.contains("/mnt/root=") && !all.contains("/mnt/u/m="), "{output:?}");
    assert_eq!((line("left: "), line("then: ")), ("1", "0"), "{output:?}");
}
