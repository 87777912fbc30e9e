//! Promise: a program uses no pool in the place of another one's mount.
//!
//! Where the mounts and their pools are, the environment says, of the moment in which `novale run` was
//! called. A pool that others kept open was used at its path also when another one was mounted there. Under
//! `--strict` a program ends that can't use the pool; it went through the mount.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "the calls are the C library's own")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::support::{Scratch, ends, facts, novale};
use harness::{direct, is_whole, mounted};
use novale_posix::join::join;
use rustix::process::{Pid, Signal, kill_process};

/// It took the others for dead, which seemed to have begun at other times, and their locks away.
#[test]
fn who_begins_in_another_time_namespace_does_not_join() {
    let Some((scratch, slot)) = mounted("another_time_namespace") else { return };
    let moved = ["--time", "--boottime", "1000", "--fork", "--"];
    let there = Command::new("unshare").args(moved).arg("true").output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("skipped: no time namespaces here");
        return;
    }
    let file = scratch.in_dir("file");
    let makes = ["sh", "-c", "echo made > \"$0\""];
    let mut strict = direct(&scratch, Path::new("unshare"));
    let output = strict.args(moved).args(makes).arg(&file).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(125) && why.contains("of another time namespace"),
        "{why}"
    );
    let mut run = Command::new("unshare");
    run.args(moved).arg(harness::support::program());
    let output = run.args(["run", "--strict", "--mount", &scratch.dir(), "true"]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(125) && why.contains("of another time namespace"),
        "{why}"
    );
    harness::succeeds(&without_strict(&strict).output().unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"made\n");
    is_whole(&scratch, &slot);
}

#[test]
fn where_another_pool_is_mounted_by_now_the_mount_serves_it() {
    let Some((scratch, slot)) = mounted("where_another_pool_is_mounted") else { return };
    let (dir, other) = (scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    fs::write(scratch.in_dir("file"), b"the first pool's").unwrap();
    let joined = join(&[PathBuf::from(&slot)]).unwrap();
    for (is_remounted, is_strict) in [(false, true), (true, true), (true, false)] {
        let mut shell = direct(&scratch, Path::new("sh"));
        if !is_strict {
            shell = without_strict(&shell);
        }
        shell.args(["-c", "echo ready; read go; exec cat \"$0/file\"", &dir]);
        let pipes = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = pipes.spawn().unwrap();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        let mut text = String::new();
        said.read_line(&mut text).unwrap();
        if is_remounted {
            remount(&slot, &dir, &other);
            fs::write(scratch.in_dir("file"), b"the second's").unwrap();
        }
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        said.read_to_string(&mut text).unwrap();
        let mut why = String::new();
        shell.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        let ends = is_remounted && is_strict;
        let code = shell.wait().unwrap().code();
        assert_eq!(code, Some(if ends { 125 } else { 0 }), "{why}");
        let expected = match (is_remounted, is_strict) {
            (false, _) => "the first pool's",
            (true, true) => "",
            (true, false) => "the second's",
        };
        assert_eq!(
            (text.as_str(), why.contains("another pool is mounted")),
            (&*format!("ready\n{expected}"), is_remounted),
            "{why}"
        );
        if is_remounted && is_strict {
            remount(&other, &dir, &slot);
        }
    }
    joined.close().unwrap();
    drop(joined);
    is_whole(&scratch, &other);
}

/// Programs that came to a mount after something was mounted over it went on at what that hides, and so did `novale run`.
#[test]
fn what_is_mounted_over_a_mount_is_shown() {
    let Some((scratch, slot)) = mounted("what_is_mounted_over") else { return };
    let dir = scratch.dir();
    fs::write(scratch.in_dir("file"), b"hidden").unwrap();
    let says = |script: &str| {
        let mut shell = without_strict(&direct(&scratch, Path::new("sh")));
        let output = shell.args(["-ec", script, &dir]).output().unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), why)
    };
    let memory =
        "mount -t tmpfs none \"$0\"; echo shown >\"$0/over\"; ls \"$0\"; umount \"$0\"; ls \"$0\"";
    let (shown, why) = says(memory);
    assert_eq!(shown, "over\nfile\n", "{why}");
    assert!(why.contains("something else is mounted over it by now"), "{why}");
    let folder = "mkdir \"$0/s\"; echo shown >\"$0/s/over\"; mount --bind \"$0/s\" \"$0\"; ls \"$0\"; \
                  umount \"$0\"; ls \"$0\"";
    let (shown, why) = says(folder);
    assert_eq!(shown, "over\nfile\ns\n", "{why}");
    let below = scratch.in_dir("s");
    let bound = ["--bind", below.to_str().unwrap()];
    let covers = [
        (&["-t", "tmpfs", "none"][..], "is not a Novale mount"),
        (&bound, "something else is mounted over it"),
    ];
    for (words, why) in covers {
        assert!(Command::new("mount").args(words).arg(&dir).status().unwrap().success());
        novale(&["run", "--strict", "--mount", &dir, "--", "true"]).refused(125, &[why]);
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    }
    is_whole(&scratch, &slot);
}

/// What a script mounts below a mount, or makes read-only, the programs come to that it starts then: they went on
/// below it, at what it hides.
#[test]
fn what_was_mounted_before_a_program_began_it_comes_to() {
    let Some((scratch, slot)) = mounted("what_was_mounted_before") else { return };
    let dir = scratch.dir();
    let says = |is_strict: bool, script: &str| {
        let strict = direct(&scratch, Path::new("sh"));
        let mut shell = if is_strict { strict } else { without_strict(&strict) };
        let output = shell.args(["-c", script]).current_dir(&dir).output().unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), why)
    };
    let below = "mkdir -p below; echo hidden > below/f; mount -t tmpfs none below; ls below; \
         sh -c 'echo shown > below/g'; cat below/g; umount below; cat below/f";
    assert_eq!(says(false, below), ("shown\nhidden\n".into(), String::new()));
    let frozen =
        "mount -o remount,bind,ro .; sh -c 'echo more >> below/f' 2> /dev/null || echo refused
         mount -o remount,bind,rw .; cat below/f";
    assert_eq!(says(false, frozen), ("refused\nhidden\n".into(), String::new()));
    // Where all is to be direct it is said, and ends the program where that is not what can take it away.
    for (before, after, code, expected) in [
        ("mount -t tmpfs none below", "umount below", 0, "something else is mounted below it"),
        ("mount -o remount,bind,ro .", "mount -o remount,bind,rw .", 125, "it is read-only"),
    ] {
        let (said, why) = says(true, &format!("{before}; ls below; echo $?; {after}"));
        assert_eq!(said, format!("{code}\n"), "{why}");
        assert!(why.contains(expected), "{why}");
    }
    is_whole(&scratch, &slot);
}

/// A mount went under a program that used it, and the kernel gave its device's number to the next one: what
/// was opened there was read from the first pool, and written to it.
#[test]
fn where_another_mount_has_the_number_by_now_it_is_the_kernels() {
    the_number_is_anothers("where_another_mount_has_the_number", |dir, daemon| {
        novale(&["umount", "--lazy", dir]).ok();
        ends(daemon)
    });
}

/// The daemon was killed, and nobody had settled for it: the arena said of the next mount that it was the dead
/// one's.
#[test]
fn where_another_mount_has_a_dead_ones_number_it_is_the_kernels() {
    the_number_is_anothers("where_another_mount_has_a_dead", |dir, daemon| {
        kill_daemon(daemon);
        let is_dead = ends(daemon);
        assert!(Command::new("umount").args(["-l", dir]).status().unwrap().success());
        is_dead
    });
}

/// A child was to get a file that its parent had open, and got the other pool's with the same number: what it wrote
/// to it, it wrote there.
#[test]
fn what_is_open_in_a_mount_that_went_a_child_writes_to() {
    let Some((scratch, slot)) = mounted("what_is_open_in_a_mount_that_went") else { return };
    let (dir, other) = (scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    let daemon = daemon_of(&slot);
    let said = appends_after(&scratch, |file| {
        novale(&["umount", "--lazy", &dir]).ok();
        novale(&["mount", "-o", "direct", &other, &dir]).ok();
        make_with_number(&scratch, file);
    });
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the second's\n");
    assert_eq!(said, "0\nthere\n");
    // It serves the file until nobody has it open.
    assert!(ends(daemon));
    remount(&other, &dir, &slot);
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the first pool's\nmore\n");
    is_whole(&scratch, &slot);
}

/// As above; the daemon was killed, and there is no way to the file any more.
#[test]
fn what_is_open_in_a_dead_mount_a_child_does_not_get_of_another() {
    let Some((scratch, slot)) = mounted("what_is_open_in_a_dead_mount") else { return };
    let (dir, other) = (scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    let said = appends_after(&scratch, |file| {
        kill_mount(&slot, &dir);
        novale(&["mount", "-o", "direct", &other, &dir]).ok();
        make_with_number(&scratch, file);
    });
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the second's\n");
    assert_eq!(said, "1\ngone\n");
    remount(&other, &dir, &slot);
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the first pool's\n");
    is_whole(&scratch, &slot);
}

/// Where nothing is mounted any more the folder may be another user's, who makes links there by the names that the
/// mount has for open files: root's programs opened what these led to, and gave it to their children.
#[test]
fn what_is_open_in_a_dead_mount_is_not_what_lies_there_by_now() {
    let Some((scratch, slot)) = mounted("what_is_open_in_a_dead_mount_is_not") else { return };
    let dir = scratch.dir();
    let secret = Path::new(&dir).parent().unwrap().join("secret");
    fs::write(&secret, b"secret\n").unwrap();
    let root = fs::metadata(&dir).unwrap().ino();
    let numbers = scratch.in_dir(".novale");
    let said = appends_after(&scratch, |file| {
        kill_mount(&slot, &dir);
        fs::create_dir(&numbers).unwrap();
        for name in names(root, file) {
            std::os::unix::fs::symlink(&secret, numbers.join(name)).unwrap();
        }
    });
    assert_eq!((&*fs::read(&secret).unwrap(), &*said), (&b"secret\n"[..], "1\ngone\n"));
    // Nor is anything taken away there.
    assert_eq!(fs::read_dir(&numbers).unwrap().count(), names(root, 0).count());
    fs::remove_dir_all(&numbers).unwrap();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the first pool's\n");
    is_whole(&scratch, &slot);
}

/// Makes files until one of them, `file`, has a number.
fn make_with_number(scratch: &Scratch, number: u64) {
    let made = scratch.in_dir("file");
    let has_it = (0..1000).any(|other| {
        fs::write(&made, b"the second's\n").unwrap();
        let has_it = fs::metadata(&made).unwrap().ino() == number;
        if !has_it {
            fs::rename(&made, scratch.in_dir(&format!("other_{other}"))).unwrap();
        }
        has_it
    });
    assert!(has_it, "no file has the number {number}");
}

/// Names by which a mount has a file that was opened as `file` in its root.
fn names(root: u64, file: u64) -> impl Iterator<Item = String> {
    (0..8).map(move |generation| format!("{file}.{generation}:{root}:file"))
}

/// Has a shell that runs directly open a file, and a child of it append to that after `change`, which is told the
/// file's number; then whether the shell can list the folder that it has open. What it says of both.
fn appends_after(scratch: &Scratch, change: impl FnOnce(u64)) -> String {
    fs::write(scratch.in_dir("file"), b"the first pool's\n").unwrap();
    let file = fs::metadata(scratch.in_dir("file")).unwrap().ino();
    let mut shell = without_strict(&direct(scratch, Path::new("sh")));
    let script = "exec 3>>\"$0/file\" 4<\"$0\"; echo ready; read go; /bin/echo more >&3; echo $?; \
                  ls /proc/self/fd/4/ | grep -q file && echo there || echo gone";
    shell.args(["-c", script, &scratch.dir()]).stderr(Stdio::null());
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    change(file);
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    shell.wait().unwrap();
    text
}

/// A daemon was killed, and the same pool mounted again: its programs go on with what they have open, directories
/// too, which they could give to no child and start from nowhere any more.
#[test]
fn where_the_same_pool_is_mounted_again_programs_go_on() {
    let Some((scratch, slot)) = mounted("where_the_same_pool_is_mounted_again") else { return };
    let dir = scratch.dir();
    for name in ["here", "there"] {
        fs::create_dir(scratch.in_dir(name)).unwrap();
    }
    let mut task = harness::task(&scratch, "goes_on");
    task.current_dir(scratch.in_dir("here")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut task = task.spawn().unwrap();
    let (mut go, mut said) = (task.stdin.take().unwrap(), task.stdout.take().unwrap());
    for _ in 0..2 {
        tasks::wait_for(&mut said, tasks::READY);
        kill_mount(&slot, &dir);
        novale(&["mount", "-o", "direct", &slot, &dir]).ok();
        go.write_all(&[tasks::GO]).unwrap();
    }
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(task.wait().unwrap().success(), "{text}");
    let found = |name: &str| fs::read_to_string(scratch.in_dir(name)).unwrap();
    for turn in ["first", "second"] {
        for name in ["here/relative", "there/by_child", "there/file"] {
            assert_eq!(found(&format!("{name}_{turn}")), turn, "{name}");
        }
    }
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::io::{Read, Write, stdin, stdout};
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::process::Command;

    use super::harness::{PLACE, exits_with};

    pub(super) const READY: u8 = 1;
    pub(super) const GO: u8 = 2;

    /// Reads until a byte comes.
    pub(super) fn wait_for(from: &mut impl Read, wanted: u8) {
        let mut byte = [0];
        while byte != [wanted] {
            from.read_exact(&mut byte).unwrap();
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn goes_on() {
        let there = Path::new(&std::env::var(PLACE).unwrap()).join("there");
        for turn in ["first", "second"] {
            let folder = File::open(&there).unwrap();
            let file = File::create(there.join(format!("file_{turn}"))).unwrap();
            let mut out = stdout();
            out.write_all(&[READY]).unwrap();
            out.flush().unwrap();
            wait_for(&mut stdin(), GO);
            let name = CString::new(format!("by_child_{turn}")).unwrap();
            // SAFETY: the child makes calls alone.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a descriptor that is open.
                let moved = unsafe { libc::fchdir(folder.as_raw_fd()) };
                let flags = libc::O_CREAT | libc::O_WRONLY;
                // SAFETY: the name lives.
                let made = unsafe { libc::open(name.as_ptr(), flags, 0o600) };
                // SAFETY: the text lives.
                let wrote = unsafe { libc::write(made, turn.as_ptr().cast(), turn.len()) };
                let failed = moved != 0 || wrote.cast_unsigned() != turn.len();
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(failed)) };
            }
            assert_eq!(exits_with(child), 0, "{turn}");
            // The working directory is one of the mount that has gone.
            fs::write(format!("relative_{turn}"), turn).unwrap();
            // The next program has a file.
            let mut echo = Command::new("/bin/echo");
            echo.args(["-n", turn]).current_dir("/").stdout(file);
            assert!(echo.status().unwrap().success(), "{turn}");
        }
    }
}

/// Kills a mount's daemon and takes the dead mount away.
fn kill_mount(slot: &str, dir: &str) {
    let daemon = daemon_of(slot);
    kill_daemon(daemon);
    assert!(ends(daemon));
    assert!(Command::new("umount").args(["-l", dir]).status().unwrap().success());
}

fn kill_daemon(daemon: u64) {
    let pid = i32::try_from(daemon).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

fn daemon_of(slot: &str) -> u64 {
    facts(slot).get("used_by").and_then(serde_json::Value::as_u64).unwrap()
}

/// Takes a mount away under a program that has used it, and has another pool's get its number.
fn the_number_is_anothers(name: &str, take_away: impl Fn(&str, u64) -> bool) {
    let Some((scratch, slot)) = mounted(name) else { return };
    let (dir, other) = (scratch.dir(), scratch.slot("other"));
    novale(&["mkfs", "--size", "16M", &other]).ok();
    let elsewhere = Path::new(&dir).parent().unwrap().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    fs::write(scratch.in_dir("file"), b"the first pool's\n").unwrap();
    let known = fs::metadata(scratch.in_dir("file")).unwrap();
    let mut shell = without_strict(&direct(&scratch, Path::new("sh")));
    let script = "[ -e \"$0/file\" ]; echo ready; read go; read line <\"$1/file\"; echo \"$line\"; \
                  echo written >\"$1/file\"";
    shell.args(["-c", script, &dir, elsewhere]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    let mut text = String::new();
    said.read_line(&mut text).unwrap();
    let daemon = daemon_of(&slot);
    let is_free = take_away(&dir, daemon);
    // The kernel gives out the lowest number: what is free below is taken before.
    let mut fillers = 0;
    let found = loop {
        novale(&["mount", &other, elsewhere]).ok();
        fs::write(format!("{elsewhere}/file"), b"the second's\n").unwrap();
        let found = fs::metadata(format!("{elsewhere}/file")).unwrap();
        if found.dev() >= known.dev() || fillers == FILLERS_MAX {
            break found;
        }
        novale(&["umount", elsewhere]).ok();
        mount_filler(&dir);
        fillers += 1;
    };
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    said.read_to_string(&mut text).unwrap();
    shell.wait().unwrap();
    for _ in 0..fillers {
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    }
    if is_free && (found.dev(), found.ino()) != (known.dev(), known.ino()) {
        println!("skipped: {name}: another one has it");
    }
    assert_eq!(text, "ready\nthe second's\n");
    assert_eq!(fs::read(format!("{elsewhere}/file")).unwrap(), b"written\n");
    novale(&["umount", elsewhere]).ok();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"the first pool's\n");
    is_whole(&scratch, &slot);
}

/// Numbers that are looked for at most.
const FILLERS_MAX: u32 = 64;

fn mount_filler(at: &str) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none", at]).status().unwrap();
    assert!(mounted.success());
}

/// Mounts another pool in the place of the one that is there.
fn remount(there: &str, dir: &str, other: &str) {
    let daemon = daemon_of(there);
    novale(&["umount", "--lazy", dir]).ok();
    // It may not, where another namespace has a copy: then the next mount has another number.
    let _is_gone = ends(daemon);
    novale(&["mount", "-o", "direct", other, dir]).ok();
}

/// The same command without `--strict`.
fn without_strict(strict: &Command) -> Command {
    let mut command = Command::new(strict.get_program());
    command.args(strict.get_args().filter(|argument| *argument != "--strict"));
    for (name, value) in strict.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
}
