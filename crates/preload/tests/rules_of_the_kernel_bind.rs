//! Promise: what the kernel forbids a program it is forbidden under `novale run`, too: by settings against
//! other users' links, by rules that the program lays on itself, by a mount's flags, by what runs.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of calls, in a filter's fields"
)]
#![allow(clippy::indexing_slicing, reason = "tests stop at what fails")]
#![allow(
    deprecated,
    reason = "what vfork does is tried here, by children that only make one and end"
)]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

#[macro_use]
mod harness;

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::support::{Scratch, novale, program};
use harness::{direct, is_whole, library, mounted, runs_with_the_daemon, succeeds, task};

const OTHER: u32 = 1001;
const STATMOUNT: libc::c_long = 457;
const LISTMOUNT: libc::c_long = 458;

/// Settings that all distributions have on; back to what they were at the end.
struct Protected(Vec<(String, String)>);

impl Protected {
    fn new() -> Self {
        let paths = ["symlinks", "regular"].map(|what| format!("/proc/sys/fs/protected_{what}"));
        let before = paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap()));
        for (path, _) in &before {
            fs::write(path, "1").unwrap();
        }
        Self(before.to_vec())
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        self.0.iter().for_each(|(path, before)| fs::write(path, before).unwrap());
    }
}

/// The administrator wrote through a link that somebody else had put into a folder for all, and to a
/// file that somebody else had made there under the name that it was about to make.
#[test]
fn links_and_files_of_others_in_a_folder_for_all() {
    let Some((scratch, slot)) = mounted("links_of_others") else { return };
    let _protected = Protected::new();
    fs::write(scratch.in_dir("config"), b"before").unwrap();
    let folder = scratch.in_dir("all");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("../config", scratch.in_dir("all/link")).unwrap();
    fs::write(scratch.in_dir("all/trap"), b"").unwrap();
    for name in ["all/link", "all/trap"] {
        lchown(scratch.in_dir(name), Some(OTHER), None).unwrap();
    }
    succeeds(&task(&scratch, "protected").output().unwrap());
    assert_eq!(fs::read(scratch.in_dir("config")).unwrap(), b"before");
    is_whole(&scratch, &slot);
}

promises! {
    /// A program that had forbidden itself to make folders made them directly, and so did its children.
    what_a_program_forbids_itself_by_a_filter: runs_with_the_daemon filtered;
    /// A program that forbade itself all but what `true` needs, and became that, was killed for calls of the
    /// library's.
    what_a_program_does_not_need_that_forbids_itself_much: runs_with_the_daemon sandboxed;
    /// The library asked who it was after each child that shares its memory, and a filter killed for that.
    what_is_killed_for_a_call_makes_children: runs_with_the_daemon may_not_ask_who_it_is;
    /// A descriptor of the mount's root stayed, by which a path leads out of the program's own root.
    what_has_another_root_has_no_way_out: runs_with_the_daemon rooted;
    /// The same by Landlock, without a promise to get no new privileges.
    what_a_program_forbids_itself_by_landlock: runs_with_the_daemon landlocked;
    /// A rule on a folder that was open directly was one on what stood in its place.
    what_a_program_allows_itself_by_a_folder_that_is_open: runs_with_the_daemon allowed;
    /// A thread had given up its rights, and was given what another one's rights allow.
    what_one_thread_may_not_do_whose_rights_are_its_own: runs_with_the_daemon alone;
    /// What its parent had mapped stayed in its memory, where it had used the pool itself. Where it had not, it left the
    /// pool in its parent's name: the next `novale umount` closed that, and the parent went on with it.
    what_a_child_forbids_itself_is_its_own: runs_with_the_daemon child_forbids;
    /// It locked the pool and the arena as well: all memory of the machine, perhaps, and more than it may.
    what_locks_all_its_memory_locks_no_pool: runs_with_the_daemon locks_its_memory;
    /// Pool and arena counted: a shell that was told `ulimit -v` could allocate nothing any more, and ended.
    what_limits_its_memory_has_all_of_it: runs_with_the_daemon limits_its_memory;
    /// So did its tables, where it was told `ulimit -d`.
    what_limits_its_data_has_all_of_it: runs_with_the_daemon limits_its_data;
    /// The library's data had no room, and the loader ended the program.
    what_may_have_little_data_is_started: runs_with_the_daemon starts_with_little_data;
}

/// The limit of descriptors was taken for 0 and set to that: no program could open anything.
#[test]
fn who_may_not_ask_for_its_limits_opens_files() {
    let Some((scratch, slot)) = mounted("limits_untold") else { return };
    let file = scratch.in_dir("file");
    let mut run = direct(&scratch, std::path::Path::new("sh"));
    run.args(["-c", "echo made > \"$0\" && cat \"$0\""]).arg(&file);
    let forbid = || {
        forbid(&[libc::SYS_getrlimit, libc::SYS_prlimit64], fails_with(libc::EPERM));
        Ok(())
    };
    let output = unsafe { run.pre_exec(forbid) }.output().unwrap();
    succeeds(&output);
    assert_eq!(output.stdout, b"made\n");
    is_whole(&scratch, &slot);
}

/// Lays a filter on this process, by which this is what calls come to.
fn forbid(calls: &[libc::c_long], verdict: u32) {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let (jump, give) = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::BPF_RET | libc::BPF_K);
    let step = |code: u32, k: u32, jt: usize| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: 0,
        k,
    };
    let mut steps = vec![step(load, 0, 0)];
    steps.extend((1..).zip(calls).map(|(nth, call)| {
        // Behind the others, and behind what allows the call.
        step(jump, *call as u32, calls.len() - nth + 1)
    }));
    steps.push(step(give, libc::SECCOMP_RET_ALLOW, 0));
    steps.push(step(give, verdict, 0));
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER;
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) }, 0);
}

/// Filters name calls, and those of containers are often older than the kernel: what is newer than they are, they refuse.
/// A program sees the same as without, directly, or by the mount where the library can't do without the call.
#[test]
fn filters_older_than_a_call() {
    let Some((scratch, slot)) = mounted("filters_older_than_a_call") else { return };
    let script = "set -e; cd \"$0\"; mkdir -p w/a/b; echo x >w/a/b/c; ln -s b w/a/l; cp -a w v; \
         mv v/a/b/c v/a/d; (cd v; tar c .) | tar x -C w; find w v | sort; cat w/a/b/c v/a/d; \
         ls -l w/a | wc -l; (cd w/a/b && pwd -P && cd .. && /bin/pwd); rm -r w v; ls -A";
    let dir = scratch.dir();
    let of_late = [
        libc::SYS_memfd_create,
        libc::SYS_statx,
        libc::SYS_clone3,
        libc::SYS_close_range,
        libc::SYS_openat2,
        libc::SYS_faccessat2,
        libc::SYS_fchmodat2,
        STATMOUNT,
        LISTMOUNT,
    ];
    for call in of_late {
        for error in [libc::EPERM, libc::ENOSYS] {
            let run = |words: &[&str]| {
                let mut run = Command::new(program());
                run.env("NOVALE_PRELOAD", library()).arg("run").args(words);
                without(call, error, run)
            };
            let mut plain = Command::new("sh");
            plain.args(["-c", script, &dir]);
            let plain = without(call, error, plain);
            let done = run(&["--mount", &dir, "--", "sh", "-c", script, &dir]);
            assert_eq!(succeeds(&done), succeeds(&plain), "{call} {error}: {done:?}");
            let strict = run(&["--strict", "--mount", &dir, "--", "ls", &dir]);
            let said = String::from_utf8_lossy(&strict.stderr);
            if call == libc::SYS_statx {
                assert_eq!(strict.status.code(), Some(125), "{strict:?}");
                assert!(said.contains("statx is refused"), "{said}");
            } else {
                succeeds(&strict);
            }
        }
    }
    is_whole(&scratch, &slot);
}

/// Files were handed to the kernel by one call: where a filter refused it, their numbers led nowhere from then on.
#[test]
fn a_filter_refuses_how_files_are_handed_over() {
    let Some((scratch, slot)) = mounted("a_filter_refuses_how_files_are_handed_over") else {
        return;
    };
    let script = "exec 3>\"$0/file\" && echo direct >&3 && (echo child >&3) && echo parent >&3";
    for error in [libc::EPERM, libc::ENOSYS] {
        let mut run = direct(&scratch, "sh".as_ref());
        run.args(["-c", script, &scratch.dir()]);
        succeeds(&without(libc::SYS_dup3, error, run));
        let found = fs::read_to_string(scratch.in_dir("file")).unwrap();
        assert_eq!(found, "direct\nchild\nparent\n");
    }
    is_whole(&scratch, &slot);
}

/// What a command comes to where a call fails so, whoever makes it.
fn without(call: libc::c_long, error: i32, mut command: Command) -> Output {
    let laid = move || {
        forbid(&[call], fails_with(error));
        Ok(())
    };
    unsafe { command.pre_exec(laid) }.output().unwrap()
}

/// Where the kernel may not tell a program what a mount's flags are, `novale run` has told it.
#[test]
fn what_a_mount_forbids_to_execute() {
    let Some(scratch) = Scratch::for_mount("what_a_mount_forbids_to_execute") else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct,noexec", &slot, &scratch.dir()]).ok();
    let place = scratch.in_dir("program");
    fs::copy("/bin/true", &place).unwrap();
    let mut test = direct(&scratch, "test".as_ref());
    test.arg("-x").arg(&place);
    let tested = without(STATMOUNT, libc::EPERM, test);
    assert_eq!(tested.status.code(), Some(1), "{tested:?}");
    is_whole(&scratch, &slot);
}

/// What calls come to that fail.
fn fails_with(error: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | error as u32
}

/// Programs followed links in a mount of which they are not to be followed.
#[test]
fn what_a_mount_forbids() {
    let Some(scratch) = Scratch::for_mount("what_a_mount_forbids") else { return };
    let slot = scratch.pool();
    novale(&["mount", "-o", "direct,nosymfollow", &slot, &scratch.dir()]).ok();
    let refused = direct(&scratch, "true".as_ref()).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("nosymfollow"), "{refused:?}");
    is_whole(&scratch, &slot);
}

/// A program was run while another one, which the kernel knew nothing of, wrote to it.
#[test]
fn what_is_open_for_writing_is_not_run() {
    let Some((scratch, slot)) = mounted("what_is_open_for_writing") else { return };
    let place = scratch.in_dir("program");
    fs::copy("/bin/true", &place).unwrap();
    let by_mount = |program: &str| Command::new(program);
    let by_itself = |program: &str| direct(&scratch, program.as_ref());
    let ways: [&dyn Fn(&str) -> Command; 2] = [&by_mount, &by_itself];
    for (writes, runs) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut holder = ways[writes]("sh");
        holder.args(["-c", "exec 3>>\"$0\"; echo open; read -r _ || true"]).arg(&place);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
        let mut run = ways[runs]("sh");
        let ran = run.args(["-c", "\"$0\""]).arg(&place).output().unwrap();
        assert_eq!(ran.status.code(), Some(126), "{writes} {runs}: {ran:?}");
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        // The kernel gives a file up to the daemon a moment after it was closed.
        let until = Instant::now() + Duration::from_secs(60);
        while !ways[runs]("sh").args(["-c", "\"$0\""]).arg(&place).status().unwrap().success() {
            assert!(Instant::now() < until, "{writes} {runs}: it stays open for writing");
        }
    }
    // What has refused to run it has left nothing behind: it is written directly, and runs.
    succeeds(
        &by_itself("sh").args(["-c", "echo >>\"$0\" && \"$0\""]).arg(&place).output().unwrap(),
    );
    is_whole(&scratch, &slot);
}

mod tasks {
    use super::harness::exits_with;
    use std::fs::{self, File, OpenOptions};
    use std::io::{Error, ErrorKind, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::{OTHER, fails_with, forbid, program};
    use crate::harness::PLACE;

    fn at(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    fn is_denied<T>(result: std::io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn protected() {
        assert!(is_denied(OpenOptions::new().write(true).open(at("all/link"))));
        assert!(is_denied(fs::read(at("all/link"))));
        assert!(is_denied(fs::metadata(at("all/link"))));
        assert!(is_denied(fs::write(at("all/trap"), b"a secret")));
        // What is not to be made may be opened, and one's own in any case.
        OpenOptions::new().write(true).open(at("all/trap")).unwrap();
        fs::write(at("all/own"), b"one").unwrap();
        fs::write(at("all/own"), b"two").unwrap();
        std::os::unix::fs::symlink("own", at("all/mine")).unwrap();
        assert_eq!(fs::read(at("all/mine")).unwrap(), b"two");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn child_forbids() {
        let forbids = || {
            forbid(&[libc::SYS_mkdirat], fails_with(libc::EPERM));
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            !maps.contains("/dev/shm/")
        };
        let child_does = |does: &dyn Fn() -> bool| {
            let child = unsafe { libc::fork() };
            if child == 0 {
                unsafe { libc::_exit(i32::from(!does())) };
            }
            assert_eq!(exits_with(child), 0);
        };
        fs::write(at("file"), b"parent").unwrap();
        child_does(&forbids);
        let umount = || {
            let mount = std::env::var(PLACE).unwrap();
            Command::new(program()).args(["umount", &mount]).output().unwrap()
        };
        let refused = String::from_utf8(umount().stderr).unwrap();
        assert!(refused.contains("used directly"), "{refused}");
        child_does(&|| fs::write(at("child"), b"own").is_ok() && forbids());
        let _open = fs::File::open(at("file")).unwrap();
        child_does(&forbids);
        assert_eq!(fs::read(at("child")).unwrap(), b"own");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locks_its_memory() {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(at("locked")).unwrap();
        file.write_all(b"before ").unwrap();
        assert_eq!(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }, 0);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("/dev/shm/novale-"), "{maps}");
        file.write_all(b"after").unwrap();
        assert_eq!(fs::read(at("locked")).unwrap(), b"before after");
        // Of what the library had set aside for a million descriptors, nothing was ever used.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let in_memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kb = in_memory.trim().split(' ').next().unwrap().parse::<u64>().unwrap();
        assert!(kb < 200_000, "{kb} KB are in memory");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn limits_its_memory() {
        limits_to_what_it_has(libc::RLIMIT_AS, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn limits_its_data() {
        limits_to_what_it_has(libc::RLIMIT_DATA, 5);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_with_little_data() {
        fs::write(at("read"), b"by a small program").unwrap();
        for kb in [1024, 2048, 3072] {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("ulimit -d {kb}; exec cat \"$0\"")]).arg(at("read"));
            let output = shell.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((&*output.stdout, &*said), (&b"by a small program"[..], ""), "{kb}");
        }
        // A child in its parent's memory, whose limits nobody hears of.
        let path = std::ffi::CString::new(at("read").as_os_str().as_encoded_bytes()).unwrap();
        let words = [c"grep".as_ptr(), c"-q".as_ptr(), c"small".as_ptr(), path.as_ptr()];
        let words = [words, [std::ptr::null(); 4]].concat();
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        #[expect(
            deprecated,
            reason = "what vfork does is tried here, by a child that only becomes another program"
        )]
        let child = unsafe { libc::vfork() };
        if child == 0 {
            unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) };
            unsafe { libc::execv(c"/bin/grep".as_ptr(), words.as_ptr()) };
            unsafe { libc::_exit(126) };
        }
        let mut status = -1;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// Without what the library has of it, which `/proc/self/statm` tells in a place, there is room for more.
    fn limits_to_what_it_has(resource: libc::__rlimit_resource_t, place: usize) {
        const MORE: usize = 16 << 20;
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(at("limited")).unwrap();
        file.write_all(b"before ").unwrap();
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let used = statm.trim().split(' ').nth(place).unwrap().parse::<u64>().unwrap() * 4096;
        let limit = libc::rlimit { rlim_cur: used, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let more = unsafe { libc::mmap(std::ptr::null_mut(), MORE, access, own, -1, 0) };
        assert_ne!(more, libc::MAP_FAILED);
        file.write_all(b"after").unwrap();
        assert_eq!(fs::read(at("limited")).unwrap(), b"before after");
    }

    /// Lays a rule on this process, by which it makes no folders, and looks at what it does then.
    fn forbids(lay: impl FnOnce()) {
        fs::write(at("file"), b"0123456789").unwrap();
        let mut file = OpenOptions::new().read(true).write(true).open(at("file")).unwrap();
        file.read_exact(&mut [0; 3]).unwrap();
        fs::create_dir(at("before")).unwrap();
        // The kernel learns of this one while it is empty.
        let read = OpenOptions::new().read(true).write(true).create_new(true).open(at("mapped"));
        let mapped = read.unwrap();
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        assert_eq!(exits_with(child), 0);
        mapped.write_all_at(b"mapped", 0).unwrap();
        lay();
        let access = libc::PROT_READ;
        let bytes = unsafe {
            libc::mmap(std::ptr::null_mut(), 6, access, libc::MAP_SHARED, mapped.as_raw_fd(), 0)
        };
        assert_eq!(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), 6) }, b"mapped");
        assert!(is_denied(fs::create_dir(at("behind"))));
        let made = |()| fs::create_dir(at("of a thread"));
        assert!(is_denied(std::thread::spawn(move || made(())).join().unwrap()));
        // What a child of fork begins with is not all there any more.
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        assert_eq!(exits_with(child), 0);
        for shell in [&["mkdir"][..], &["env", "mkdir"][..]] {
            let made = Command::new(shell[0]).args(&shell[1..]).arg(at("of a child")).output();
            assert!(!made.unwrap().status.success());
        }
        assert!(!at("of a child").exists() && !at("behind").exists());
        // All else goes on as before, with the position that it had.
        file.write_all(b"abc").unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "6789");
        assert_eq!(fs::read(at("file")).unwrap(), b"012abc6789");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(
            !maps.contains("/dev/shm/novale-"),
            "nothing of the pool is mapped any more: {maps}"
        );
        // Calls of the program's found two that this library had kept of the mount.
        for fd in fs::read_dir("/proc/self/fd").unwrap() {
            let shown = fs::read_link(fd.unwrap().path()).unwrap_or_default();
            let is_kept = shown == at("") || shown.ends_with("exe");
            assert!(!is_kept, "{}", shown.display());
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn filtered() {
        let verdict = super::fails_with(libc::EACCES);
        forbids(|| super::forbid(&[libc::SYS_mkdir, libc::SYS_mkdirat], verdict));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn may_not_ask_who_it_is() {
        fs::write(at("file"), b"text").unwrap();
        super::forbid(&[libc::SYS_getpid], libc::SECCOMP_RET_KILL_PROCESS);
        let words = [c"true".as_ptr().cast_mut(), std::ptr::null_mut()];
        for _ in 0..2 {
            let mut child = 0;
            let none = std::ptr::null();
            let made = unsafe {
                libc::posix_spawnp(
                    &raw mut child,
                    words[0],
                    none,
                    none.cast(),
                    words.as_ptr(),
                    none.cast(),
                )
            };
            assert_eq!((made, exits_with(child)), (0, 0));
        }
        // A child's child is no reason to take the block for one's own.
        let child = unsafe { libc::vfork() };
        if child == 0 {
            let mut status = 0;
            let grandchild = unsafe { libc::vfork() };
            if grandchild == 0 {
                unsafe { libc::_exit(3) };
            }
            unsafe { libc::waitpid(grandchild, &raw mut status, 0) };
            unsafe { libc::_exit(libc::WEXITSTATUS(status) + 1) };
        }
        assert_eq!(exits_with(child), 4 << 8);
        // All signals are blocked until the child has made a call, and none after that.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        let none = std::ptr::null();
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, none, &raw mut mask) };
        assert_eq!(unsafe { libc::sigismember(&raw const mask, libc::SIGTERM) }, 0);
        assert_eq!(fs::read(at("file")).unwrap(), b"text");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sandboxed() {
        let path = at("open");
        fs::write(&path, b"").unwrap();
        // Of what starting and ending takes, none.
        let killing = move || {
            // It is a client of its own by then.
            drop(File::open(&path)?);
            let calls = [
                libc::SYS_rt_sigprocmask,
                libc::SYS_rt_sigaction,
                libc::SYS_futex,
                libc::SYS_sched_yield,
                libc::SYS_faccessat2,
                libc::SYS_statx,
                libc::SYS_readlink,
                libc::SYS_fcntl,
                libc::SYS_prctl,
                libc::SYS_gettid,
                libc::SYS_madvise,
            ];
            super::forbid(&calls, libc::SECCOMP_RET_KILL_PROCESS);
            Ok(())
        };
        // Sought in a folder where it is not, too.
        let mut run = Command::new("true");
        run.env("PATH", "/nowhere:/usr/bin:/bin");
        let status = unsafe { run.pre_exec(killing) }.status().unwrap();
        assert!(status.success(), "{status}");
    }

    const MAKE_DIRECTORY: u64 = 1 << 7;

    #[test]
    #[ignore = "a task of another test"]
    fn rooted() {
        let _file = File::create(at("file")).unwrap();
        // What is open is shown to others as it is.
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go; readlink /proc/$0/fd/*", &std::process::id().to_string()]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::os::unix::fs::chroot("/proc").unwrap();
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let shown = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
        let root = std::env::var(PLACE).unwrap();
        let below = format!("{root}/");
        assert!(shown.lines().any(|shown| shown.starts_with(&below)), "{shown}");
        assert!(!shown.lines().any(|shown| shown == root), "{shown}");
    }

    fn ruleset() -> i64 {
        let handled = [MAKE_DIRECTORY];
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, handled.as_ptr(), 8, 0) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn landlocked() {
        forbids(|| {
            let rules = ruleset();
            if rules < 0 {
                println!("no Landlock here: {}", Error::last_os_error());
                std::process::exit(0);
            }
            assert_eq!(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) }, 0);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn allowed() {
        fs::create_dir(at("open")).unwrap();
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(at("open")).unwrap();
        let rules = ruleset();
        if rules < 0 {
            return;
        }
        let mut rule = MAKE_DIRECTORY.to_le_bytes().to_vec();
        rule.extend(folder.as_raw_fd().to_le_bytes());
        let (number, rule) = (libc::SYS_landlock_add_rule, rule.as_ptr());
        assert_eq!(unsafe { libc::syscall(number, rules, 1, rule, 0) }, 0);
        assert_eq!(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) }, 0);
        fs::create_dir(at("open/new")).unwrap();
        assert!(is_denied(fs::create_dir(at("new"))));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn alone() {
        fs::write(at("closed"), b"secret").unwrap();
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o600)).unwrap();
        chown(at("closed"), Some(OTHER), Some(OTHER)).unwrap();
        let (to_main, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_main) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
            let number = libc::SYS_capset;
            assert_eq!(unsafe { libc::syscall(number, header.as_ptr(), none.as_ptr()) }, 0);
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
            File::open(at("closed")).map(drop)
        });
        from_thread.recv().unwrap();
        // By this thread's rights it is known anew who the process is.
        fs::read(at("closed")).unwrap();
        to_thread.send(()).unwrap();
        assert!(is_denied(thread.join().unwrap()));
    }
}
