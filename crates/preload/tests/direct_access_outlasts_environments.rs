//! Promise: what a program under `novale run` starts runs directly too, also where it has another
//! `LD_PRELOAD` or an empty environment; and not where `NOVALE_DIRECT` is set and empty.
//!
//! Direct access was lost there without a word: git's tests and `env -i` do it.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod harness;

use std::path::Path;

use harness::{direct, is_whole, mounted, succeeds};

/// Whether a program is served tells a shell by what it has loaded.
const LOADED: &str = "grep -q novale_preload /proc/self/maps && echo direct || echo mount";

#[test]
fn the_library_is_put_back_where_a_program_is_started() {
    let Some((scratch, slot)) = mounted("the_library_is_put_back") else { return };
    let run = |script: &str| {
        let script = script.replace("LOADED", &format!("/bin/sh -c '{LOADED}'"));
        succeeds(&direct(&scratch, Path::new("sh")).args(["-c", &script]).output().unwrap())
    };
    assert_eq!(run("LOADED"), "direct\n");
    assert_eq!(run("env -i LOADED"), "direct\n");
    assert_eq!(run("unset LD_PRELOAD; LOADED"), "direct\n");
    assert_eq!(run("env -u NOVALE_DIRECT LOADED"), "direct\n");
    assert_eq!(run("exec env -i env -i LOADED"), "direct\n");
    let other = "LD_PRELOAD=libdl.so.2 sh -c 'echo $LD_PRELOAD'";
    let named = run(other);
    assert!(
        named.starts_with("libdl.so.2:") && named.ends_with("/libnovale_preload.so\n"),
        "{named}"
    );
    // With all that the session says.
    let mut told = direct(&scratch, Path::new("env"));
    told.env("NOVALE_OUTSIDE", "0").args(["-i", "sh", "-c", "echo $NOVALE_OUTSIDE"]);
    assert_eq!(succeeds(&told.output().unwrap()), "0\n");
    // Who does not want it says so.
    assert_eq!(run("env NOVALE_DIRECT= LD_PRELOAD= LOADED; LOADED"), "mount\ndirect\n");
    assert_eq!(run("NOVALE_DIRECT= env -u LD_PRELOAD LOADED"), "mount\n");
    is_whole(&scratch, &slot);
}

/// `vfork` and `posix_spawn` run in the memory of whom they were called by.
#[test]
fn the_library_is_put_back_in_borrowed_memory() {
    let Some((scratch, slot)) = mounted("the_library_is_put_back_in_borrowed") else { return };
    let run = |script: String| {
        let python = direct(&scratch, Path::new("python3")).args(["-c", &script]).output();
        succeeds(&python.unwrap())
    };
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let shell = format!("['/bin/sh', '-c', '''{LOADED}''']");
    let spawn = format!(
        "import os\nfor env in {{}}, {{'LD_PRELOAD': ''}}, {{'A': 'b' * 5000}}, {{'NOVALE_DIRECT': ''}}:\n \
         os.waitpid(os.posix_spawn('/bin/sh', {shell}, env), 0)"
    );
    assert_eq!(run(spawn), "direct\ndirect\ndirect\nmount\n");
    // The search for a program fails in several directories first.
    let vfork = format!(
        "import subprocess\nprint(subprocess.run(['sh'] + {shell}[1:], env={{'PATH': '/a:/b:/bin'}}, \
         close_fds=False, stdout=subprocess.PIPE).stdout.decode(), end='')"
    );
    assert_eq!(run(vfork), "direct\n");
    is_whole(&scratch, &slot);
}

/// All of it is said where `-v` asks for it.
#[test]
fn what_is_put_back_is_said() {
    let Some((scratch, slot)) = mounted("what_is_put_back_is_said") else { return };
    let words = |more: &[&str]| {
        let mut command = std::process::Command::new(harness::support::program());
        command.env("NOVALE_PRELOAD", harness::library()).arg("run").args(more);
        command.args(["--mount", &scratch.dir(), "--", "env", "-i", "env", "-i", "true"]);
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(words(&[]), "");
    let said = words(&["-v"]);
    assert!(said.matches("put back").count() >= 2, "{said}");
    is_whole(&scratch, &slot);
}
