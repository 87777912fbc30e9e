//! Promise: what a process has open stays its file, whatever it or its parent had open before: also where it has left
//! the pool and come again, and where it was made by other means than libc's.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

#[macro_use]
mod harness;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use harness::{is_whole, mounted, runs_with_the_daemon, succeeds, support, task};
use rustix::process::Signal;

promises! {
    /// What was open since before `execve` had failed had a hold of a client that was no more, whose word the first
    /// file that was opened after that got: the one was closed, and the other one was freed while it was open.
    what_was_open_before_a_program_did_not_start_ends_alone: runs_with_the_daemon starts_in_vain;
}

/// A child that has memory and a stack of its own took its parent's holds for its own: what it had open ended with its
/// parent.
#[test]
fn a_child_with_a_stack_of_its_own_outlives_its_parent() {
    let Some((scratch, slot)) = mounted("with_a_stack_of_its_own") else { return };
    let said = succeeds(&task(&scratch, "makes_a_child").output().unwrap());
    assert!(said.contains("it is the child's file"), "{said}");
    is_whole(&scratch, &slot);
}

/// What could not be handed to the kernel, as the daemon was dead, a child of fork held by nobody: its parent closed and
/// removed it, and the child read and wrote another file, which had its number by then.
#[test]
fn a_child_holds_what_the_kernel_can_not_open() {
    let Some((scratch, slot)) = mounted("what_the_kernel_can_not_open") else { return };
    let mut running = task(&scratch, "forks_without_a_daemon");
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().ends_with("it is open")));
    assert!(support::ends(support::signal_daemon(&slot, Signal::KILL)));
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
    assert!(Command::new("umount").args(["-l", &scratch.dir()]).status().unwrap().success());
    support::novale(&["check", &slot]).ok();
}

mod tasks {
    use std::ffi::{CString, c_void};
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::path::{Path, PathBuf};

    use super::harness::{PLACE, exits_with};

    const BYTES: usize = 64 << 10;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    /// Whether a file that is open still has its bytes when its name has gone, and others have been made since.
    fn stays_without_a_name(file: &File, path: &Path) -> bool {
        let mut found = vec![0; BYTES];
        file.write_all_at(&vec![7; BYTES], 0).unwrap();
        fs::remove_file(path).unwrap();
        for other in 0..8 {
            let other = path.with_extension(other.to_string());
            fs::write(&other, vec![8; BYTES]).unwrap();
        }
        file.read_exact_at(&mut found, 0).is_ok() && found.iter().all(|byte| *byte == 7)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_in_vain() {
        let program = place().join("program");
        fs::write(&program, "no program").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = place().join("file");
        let before = open(&path);
        let name = CString::new(program.as_os_str().as_bytes()).unwrap();
        let words = [name.as_ptr(), std::ptr::null()];
        assert_eq!(unsafe { libc::execv(name.as_ptr(), words.as_ptr()) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOEXEC));
        let since = open(&path);
        drop(before);
        assert!(stays_without_a_name(&since, &path));
    }

    /// A pipe's ends: the one to read from, and the one to write to.
    fn pipe() -> [File; 2] {
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        ends.map(|end| unsafe { File::from_raw_fd(end) })
    }

    /// What a child is given.
    struct Given {
        inherited: File,
        /// Says that the child has a file open.
        opened: [File; 2],
        /// Says by its end that the parent has ended.
        ended: [File; 2],
    }

    extern "C" fn child(given: *mut c_void) -> i32 {
        let Given { inherited, opened: [_, mut opened], ended: [mut ended, own] } =
            *unsafe { Box::from_raw(given.cast::<Given>()) };
        drop((inherited, own));
        let path = place().join("childs");
        let file = open(&path);
        opened.write_all(b"o").unwrap();
        assert_eq!(ended.read(&mut [0]).unwrap(), 0);
        if stays_without_a_name(&file, &path) {
            println!("it is the child's file");
        }
        std::io::stdout().flush().unwrap();
        unsafe { libc::_exit(0) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_a_child() {
        let [opened, ended] = [pipe(), pipe()];
        let mut is_opened = opened[0].try_clone().unwrap();
        let inherited = open(&place().join("parents"));
        let given = Box::into_raw(Box::new(Given { inherited, opened, ended }));
        let mut stack = vec![0_u128; 16 << 10];
        let top = stack.as_mut_ptr_range().end.cast();
        let made = unsafe { libc::clone(child, top, libc::SIGCHLD, given.cast()) };
        assert!(made > 0);
        is_opened.read_exact(&mut [0]).unwrap();
        unsafe { libc::_exit(0) };
    }

    #[test]
    #[ignore = "a task of another test"]
    fn forks_without_a_daemon() {
        let (path, other) = (place().join("file"), place().join("other"));
        let file = open(&path);
        file.write_all_at(&vec![7; BYTES], 0).unwrap();
        println!("it is open");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        let [mut begins, mut begin] = pipe();
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut found = vec![0; BYTES];
            let good = begins.read_exact(&mut [0]).is_ok()
                && file.read_exact_at(&mut found, 0).is_ok()
                && found.iter().all(|byte| *byte == 7)
                && file.write_all_at(&vec![9; BYTES], 0).is_ok();
            unsafe { libc::_exit(i32::from(!good)) };
        }
        assert!(child > 0);
        drop(file);
        fs::remove_file(&path).unwrap();
        fs::write(&other, vec![8; BYTES]).unwrap();
        begin.write_all(b"b").unwrap();
        assert_eq!(exits_with(child), 0);
        assert!(fs::read(&other).unwrap().iter().all(|byte| *byte == 8));
    }
}
