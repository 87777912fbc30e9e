//! Promise: a command that goes through a mount whose daemon does not answer says so, goes on waiting, and
//! does what it was asked for as soon as the daemon goes on. `umount` says who keeps the mount in another
//! namespace.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics, and says what it skips"
)]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use support::{Scratch, Stopped, alone, facts, novale, program, without_mounts};

#[test]
fn commands_on_paths_of_a_mount_whose_daemon_is_stopped() {
    let Some(scratch) = Scratch::for_mount("commands_on_paths") else { return };
    let _alone = alone();
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let path = scratch.in_dir("file").display().to_string();
    fs::write(&path, b"x").unwrap();
    let tree = scratch.in_dir("tree").display().to_string();
    fs::create_dir(&tree).unwrap();
    let inner = scratch.in_dir("inner").display().to_string();
    novale(&["mkfs", "--quiet", "--size", "16M", &inner]).ok();
    for words in [
        &["info", path.as_str()][..],
        &["set", "--method", "cow", &path],
        &["quota", "set", "--space", "1M", &tree],
        &["quota", "show", &tree],
        &["quota", "clear", &tree],
        &["wear", &inner],
        &["check", &inner],
        &["dump", &inner, "superblock"],
    ] {
        let stopped = Stopped::daemon_of(&slot);
        let mut command = Command::new(program());
        command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut said = BufReader::new(running.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("{}: waiting for process", scratch.dir())), "{line}");
        assert!(line.contains(&format!("kill -CONT {}", stopped.0)), "{line}");
        assert!(running.try_wait().unwrap().is_none(), "{words:?} waits no longer");
        drop(stopped);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(running.wait().unwrap().success(), "{words:?}: {rest}");
        assert_eq!(rest, "", "{words:?}");
    }
    novale(&["umount", &scratch.dir()]).ok();
}

/// Where no process was seen in the namespace umount waited ten minutes, and did not say what for: a user could
/// make such a one, by a descriptor of it alone.
#[test]
fn umount_where_a_namespace_has_the_mount_that_no_process_or_one_thread_alone_is_in() {
    let Some(scratch) = Scratch::for_mount("umount_where_a_namespace_has_the_mount") else {
        return;
    };
    let _alone = alone();
    let (slot, dir, bound) = (scratch.pool(), scratch.dir(), scratch.slot("bound"));
    let me = format!("process {} (", std::process::id());
    for kept in ["by a descriptor", "by a bind mount", "for a thread"] {
        novale(&["mount", "--grace", "1", &slot, &dir]).ok();
        let namespace = namespace_with(&dir);
        let (by, namespace, thread) = match kept {
            "by a descriptor" => (["no process is in", &me], Some(namespace), None),
            "by a bind mount" => {
                File::create(&bound).unwrap();
                let opened = format!("/proc/self/fd/{}", namespace.as_raw_fd());
                let is_bound = mount_bind(opened.as_str(), bound.as_str());
                drop(namespace);
                // Linux 6.18 numbers namespaces by batches of each CPU, and binds none of a lower number than its own.
                if is_bound == Err(Errno::INVAL) {
                    println!(
                        "skipped: umount_where_a_namespace_is_bound: it seems older than this one"
                    );
                    novale(&["umount", "--force", &dir]).ok();
                    continue;
                }
                is_bound.unwrap();
                (["no process is in", &bound], None, None)
            }
            _ => ([dir.as_str(), &me], None, Some(thread_in(namespace))),
        };
        let mut polite = Command::new(program());
        let mut polite = polite.args(["umount", &dir]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(polite.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        let ended = novale(&["umount", "--force", &dir]);
        for word in ["another mount namespace", "umount --force", by[0], by[1]] {
            assert!(said.contains(word), "{kept}: '{word}' is missing in: {said}");
        }
        ended.ok();
        assert!(polite.wait().unwrap().success());
        assert_eq!(facts(&slot)["clean"], true);
        drop(namespace);
        if let Some((end, thread)) = thread {
            drop(end);
            thread.join().unwrap();
        }
        if kept == "by a bind mount" {
            unmount(bound.as_str(), UnmountFlags::empty()).unwrap();
        }
    }
}

/// A mount namespace that no process is in, with this mount of Novale's alone.
fn namespace_with(dir: &str) -> File {
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "--propagation", "private", "sh", "-c"]);
    let script = format!("{}; echo has it; exec sleep 60", without_mounts(dir));
    let mut process = unshare.arg(script).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "has it\n");
    let namespace = File::open(format!("/proc/{}/ns/mnt", process.id())).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    namespace
}

/// A thread that is in a mount namespace until what is returned with it is dropped.
fn thread_in(namespace: File) -> (Sender<()>, JoinHandle<()>) {
    let ((end, ended), (enters, entered)) = (channel(), channel());
    let thread = thread::spawn(move || {
        // One that shares its root and working directory with others may not enter it.
        #[allow(deprecated, reason = "only where descriptors are unshared it is not safe")]
        rustix::thread::unshare(UnshareFlags::FS).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount)).unwrap();
        drop(namespace);
        enters.send(()).unwrap();
        // It fails as the other end is dropped.
        assert!(ended.recv().is_err());
    });
    entered.recv().unwrap();
    (end, thread)
}
