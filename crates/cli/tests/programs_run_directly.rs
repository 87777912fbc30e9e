//! Promise: `novale run` tells a program where the shared mounts are, or says why it can't.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::{Scratch, novale};

const SHOW: &str = "echo \"$LD_PRELOAD|$NOVALE_DIRECT\"";

/// What a run came to: exit code, standard output, standard error.
type Ran = (i32, String, String);

/// A library that any program can load: one that this one has loaded.
fn library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().find_map(|line| line.split_whitespace().nth(5).filter(|p| p.contains("libc")));
    libc.unwrap().to_owned()
}

fn run(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_novale"));
    command.arg("run").args(arguments).env("NOVALE_PRELOAD", library()).env_remove("LD_PRELOAD");
    change(&mut command);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// To look what a program is it was opened, which waits for a writer.
#[test]
fn a_fifo_is_no_program() {
    let scratch = Scratch::new();
    let fifo = scratch.slot("fifo");
    assert!(Command::new("mkfifo").args(["-m", "755", &fifo]).status().unwrap().success());
    let script = scratch.slot("script");
    fs::write(&script, format!("#!{fifo}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for program in [&fifo, &script] {
        let mut command = Command::new("timeout");
        command.arg("60").arg(env!("CARGO_BIN_EXE_novale")).args(["run", program]);
        let code = command.env("NOVALE_PRELOAD", library()).status().unwrap().code();
        assert_eq!(code, Some(126), "{program}");
    }
}

#[test]
fn a_program_is_told_of_the_shared_mounts() {
    let Some(scratch) = Scratch::for_mount("a_program_is_told") else { return };
    let [a, b] = [scratch.slot("a"), scratch.slot("b")];
    novale(&["mkfs", "--size", "16M", &a, &b]).ok();
    novale(&["mount", "-o", "direct", &b, &a, &scratch.dir()]).ok();
    let dir = scratch.dir();
    let entry = format!("{dir}={a}:{b}");
    let library = library();
    let told = run(&["--mount", &dir, "sh", "-c", SHOW], |_| ());
    assert_eq!(told, (0, format!("{library}|{entry}\n"), String::new()));
    // Others' mounts may be there as well.
    let (code, all, _) = run(&["--strict", "sh", "-c", SHOW], |_| ());
    assert!(code == 0 && all.contains(&entry), "{all}");
    let (_, kept, _) = run(&["--mount", &dir, "--", "sh", "-c", SHOW], |command| {
        command.env("LD_PRELOAD", &library);
    });
    assert_eq!(kept, format!("{library}:{library}|{entry}\n"));
    assert_eq!(run(&["--mount", &dir, "sh", "-c", "exit 7"], |_| ()).0, 7);
    assert_eq!(run(&["--mount", &dir, "/no/such/program"], |_| ()).0, 127);
    assert_eq!(run(&["--mount", &dir, "/etc/passwd"], |_| ()).0, 126);
}

#[test]
fn a_program_is_told_what_its_mappings_are() {
    let Some(scratch) = Scratch::for_mount("told_what_its_mappings_are") else { return };
    let pool = scratch.pool();
    novale(&["mount", "-o", "direct,map=dax", &pool, &scratch.dir()]).ok();
    let dir = scratch.dir();
    let told = |more: &[&str]| {
        let all = [&["--mount", &dir], more, &["sh", "-c", "echo $NOVALE_MAP"]].concat();
        run(&all, |_| ()).1
    };
    assert_eq!((told(&[]), told(&["--map", "atomic"])), ("dax\n".into(), "atomic\n".into()));
}

/// Each program was told of mounts of other people that it never came to, in the middle of what scripts
/// read from it.
#[test]
fn what_is_said_of_a_mount_is_said_to_who_uses_it() {
    let Some(scratch) = Scratch::for_mount("what_is_said_of_a_mount") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    let below = scratch.in_dir("below");
    fs::create_dir(&below).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below).status();
    assert!(mounted.unwrap().success());
    let says_so = |arguments: &[&str], at: &str| {
        let (code, _, why) = run(arguments, |command| _ = command.current_dir(at));
        assert_eq!(code, 0, "{why}");
        let said = |line: &&str| line.contains("runs without direct access") && line.contains(&dir);
        why.lines().filter(said).count()
    };
    assert_eq!(says_so(&["true"], "/"), 0);
    assert_eq!(says_so(&["-v", "true"], "/"), 1);
    assert_eq!(says_so(&["true"], &dir), 1);
    assert_eq!(says_so(&["true", &format!("--file={dir}/x")], "/"), 1);
    // Who uses it is not started where that is asked for.
    let strict = |at: &str| run(&["--strict", "true"], |command| _ = command.current_dir(at));
    assert_eq!(strict(&dir).0, 125);
    assert!(strict(&dir).2.contains("something else is mounted below it"));
    assert!(Command::new("umount").arg(&below).status().unwrap().success());
    novale(&["umount", &dir]).ok();
    // One that is not shared is as good a mount as any, but not where all is to be direct.
    novale(&["mount", &slot, &dir]).ok();
    assert_eq!(says_so(&["true"], &dir), 0);
    let (code, _, why) = strict(&dir);
    assert!(code == 125 && why.contains("is not shared"), "{code}: {why}");
}

/// One that can't be told to programs, or whose slot went at that moment, kept all others from it.
#[test]
fn one_mount_keeps_nothing_from_others() {
    let Some(scratch) = Scratch::for_mount("one_mount_keeps_nothing_from_others") else { return };
    let Some(other) = Scratch::for_mount("one_mount_keeps_nothing_from_others") else { return };
    let (slot, dir, odd) = (scratch.pool(), scratch.dir(), other.slot("odd=name"));
    novale(&["mkfs", "--size", "16M", &odd]).ok();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    novale(&["mount", "-o", "direct", &odd, &other.dir()]).ok();
    let (code, all, why) = run(&["--strict", "sh", "-c", SHOW], |_| ());
    assert!(code == 0 && all.contains(&format!("{dir}={slot}")), "{code}: {all}{why}");
    let (code, _, why) = run(&["--strict", "true", &other.dir()], |_| ());
    assert!(code == 125 && why.contains("can't be told to programs"), "{code}: {why}");
}

#[test]
fn what_keeps_a_program_from_running_directly_is_said() {
    let Some(scratch) = Scratch::for_mount("what_keeps_a_program") else { return };
    let (slot, dir) = (scratch.pool(), scratch.dir());
    let refused = |arguments: &[&str], words: &[&str], change: &dyn Fn(&mut Command)| {
        let through: Vec<&str> = arguments.iter().copied().chain(["sh", "-c", SHOW]).collect();
        let (code, said, why) = run(&through, change);
        assert_eq!((code, said.as_str()), (0, "|\n"), "{why}");
        assert!(why.contains("runs without direct access"), "{why}");
        let strict: Vec<&str> = ["--strict"].into_iter().chain(through).collect();
        let (code, said, why) = run(&strict, change);
        assert_eq!((code, said.as_str()), (125, ""), "{why}");
        for word in words {
            assert!(why.contains(word), "'{word}' is missing in: {why}");
        }
    };
    let as_is = |_: &mut Command| ();
    refused(&["--mount", &dir], &["is not a Novale mount", &dir], &as_is);
    novale(&["mount", &slot, &dir]).ok();
    refused(&["--mount", &dir], &["is not shared", "-o direct"], &as_is);
    novale(&["umount", &dir]).ok();
    novale(&["mount", "-o", "direct", &slot, &dir]).ok();
    let other = Path::new(&slot).with_file_name("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    novale(&["mount", &slot, other]).ok();
    refused(&["--mount", other], &[other, "shows the mount at", &dir, "name that one"], &as_is);
    assert!(novale(&["umount", other]).err.contains("it is mounted at"));
    refused(&["--mount", &dir], &["libnovale_preload.so", "NOVALE_PRELOAD"], &|command| {
        // Neither beside this copy nor where packages have it.
        let copy = Path::new(&slot).with_file_name("novale");
        // Not by this process: a program that the other test starts at this moment would have the
        // copy open for writing, and the kernel runs no such file.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_novale")).arg(&copy).status();
        assert!(copied.unwrap().success());
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new(copy);
        command.args(arguments).env_remove("NOVALE_PRELOAD").env_remove("LD_PRELOAD");
    });
    // What a path there leads to is not in the pool.
    fs::create_dir(scratch.in_dir("below")).unwrap();
    let below = scratch.in_dir("below");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below).status();
    assert!(mounted.unwrap().success());
    refused(&["--mount", &dir], &["something else is mounted below it", "below"], &as_is);
    assert!(Command::new("umount").arg(&below).status().unwrap().success());
    let program = PathBuf::from(&slot).with_file_name("novale");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(program.parent().unwrap(), readable).unwrap();
    refused(&["--mount", &dir], &["permission denied"], &|command| {
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new(&program);
        command
            .args(arguments)
            .env("NOVALE_PRELOAD", library())
            .env_remove("LD_PRELOAD")
            .uid(65534);
    });
}

/// Each build of libc and of Novale left a megabyte there, for ever.
#[test]
fn old_images_of_libc_are_removed() {
    let Some(scratch) = Scratch::for_mount("old_images_of_libc_are_removed") else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct", &slot, &scratch.dir()]).ok();
    let cache = scratch.slot("cache");
    let folder = Path::new(&cache).join("novale");
    fs::create_dir_all(&folder).unwrap();
    let make = |name: &str, seconds: u64| {
        let file = fs::File::create_new(folder.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    for number in 0..12 {
        make(&format!("text-{number:02}"), 1000 - number);
        make(&format!("calls-{number:02}"), number);
    }
    make("other", 0);
    let ran = run(&["--mount", &scratch.dir(), "true"], |command| {
        command.env("XDG_CACHE_HOME", &cache);
    });
    assert_eq!(ran.0, 0, "{}", ran.2);
    let left = |kind: &str| {
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.starts_with(kind));
        names.sort();
        names
    };
    let newest: Vec<_> = (0..8).map(|number| format!("text-{number:02}")).collect();
    assert_eq!(left("text-"), newest);
    assert_eq!((left("calls-").len(), left("other").len()), (12, 1));
}
