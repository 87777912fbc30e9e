//! Promise: under `novale run --map=dax` a program's mappings show the files' own pages, in accord with
//! all other clients, and no other file's; under `--map=atomic` what it stores is a file's only once
//! msync has published it.
//!
//! Each test runs this very program again, directly, to do one of the tasks below.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

mod harness;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::support::{self, Scratch, facts, program};
use harness::{PLACE, exits_with, is_whole, library, mounted};

const PAGE: usize = 4096;

/// One of the tasks, by this program: run directly with such mappings, or through the mount.
fn task(scratch: &Scratch, map: Option<&str>, name: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = match map {
        Some(map) => {
            let mut command = Command::new(program());
            command.env("NOVALE_PRELOAD", library());
            command.args(["run", "--strict", "--map", map, "--mount", &scratch.dir(), "--"]);
            command.arg(own);
            command
        }
        None => Command::new(own),
    };
    command.env(PLACE, scratch.dir()).stdin(Stdio::null());
    command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
    command
}

/// What a task that succeeds says on standard error.
fn succeeds(output: &Output) -> String {
    harness::succeeds(output);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn stores_are_seen_by_all_and_go_to_no_other_file() {
    let Some((scratch, slot)) = mounted("stores_are_seen") else { return };
    succeeds(&task(&scratch, Some("dax"), "own_pages").output().unwrap());
    // After the mapping the mount reads what was stored.
    let bytes = fs::read(scratch.in_dir("kept")).unwrap();
    assert_eq!(&bytes[PAGE..PAGE + 6], b"stored");
    is_whole(&scratch, &slot);
}

#[test]
fn what_was_published_is_there_and_nothing_else() {
    let Some((scratch, slot)) = mounted("what_was_published") else { return };
    let said = succeeds(&task(&scratch, Some("atomic"), "replicas").output().unwrap());
    assert!(said.contains("discarded"), "{said}");
    let bytes = fs::read(scratch.in_dir("file")).unwrap();
    assert_eq!(
        (&bytes[10..19], &bytes[2 * PAGE..2 * PAGE + 9]),
        (&b"published"[..], &b"published"[..])
    );
    assert!(bytes[PAGE..PAGE + 9].iter().all(|byte| *byte == 7));
    is_whole(&scratch, &slot);
}

/// What was zeroed and copied by a descriptor did not show in replicas, nor what another replica of the process had
/// published; what was moved in the file stood at its old place.
#[test]
fn replicas_show_what_the_process_changes_by_a_descriptor() {
    let Some((scratch, slot)) = mounted("by_a_descriptor") else { return };
    succeeds(&task(&scratch, Some("atomic"), "changed_by_descriptor").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Each `execve` that failed left the pool once more in the address space, as the thread that gives way might look
/// at it.
#[test]
fn programs_that_do_not_start_leave_nothing() {
    let Some((scratch, slot)) = mounted("programs_that_do_not_start") else { return };
    succeeds(&task(&scratch, Some("dax"), "starts_in_vain").output().unwrap());
    is_whole(&scratch, &slot);
}

/// How it gives way is a promise of its own.
#[test]
fn who_comes_by_the_kernel_is_given_way() {
    let Some((scratch, slot)) = mounted("given_way") else { return };
    let file = scratch.in_dir("file");
    fs::write(&file, vec![7; 3 * PAGE]).unwrap();
    let mut maps = task(&scratch, Some("dax"), "maps_until_told");
    let mut maps = maps.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The first line that is no more of the test's own.
    let mut seen = Vec::new();
    while !seen.ends_with(b"mapped\n") {
        let mut byte = [0];
        maps.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    let by_kernel = |map| task(&scratch, map, "maps_once").output().unwrap().status;
    assert!(by_kernel(None).success());
    assert!(by_kernel(Some("kernel")).success());
    // Reading and writing go on; removed, it stays as long as it is mapped.
    File::options().write(true).open(&file).unwrap().write_all_at(b"by the mount", 0).unwrap();
    let free = || facts(&slot)["bytes_free"].as_u64().unwrap();
    maps.kill().unwrap();
    maps.wait().unwrap();
    assert!(by_kernel(None).success());
    let before = free();
    fs::remove_file(&file).unwrap();
    assert!(support::eventually(|| free() > before));
    is_whole(&scratch, &slot);
}

#[test]
fn children_hold_what_they_have_mapped_longer_than_their_parents() {
    let Some((scratch, slot)) = mounted("children_hold") else { return };
    succeeds(&task(&scratch, Some("dax"), "orphans").output().unwrap());
    assert!(support::eventually(|| fs::exists(scratch.in_dir("done")).unwrap()));
    assert_eq!(fs::read(scratch.in_dir("done")).unwrap(), b"good");
    is_whole(&scratch, &slot);
}

/// A parent that had no descriptor left to wait for its child with did not wait, and what it had mapped was shown in the
/// child on pages that were another file's by then.
#[test]
fn children_of_a_parent_without_a_descriptor_show_the_file() {
    let Some((scratch, slot)) = mounted("without_a_descriptor") else { return };
    succeeds(&task(&scratch, Some("dax"), "forks_without_a_descriptor").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Zero-copy logging: the kernel's call finds that its buffer is a file's own page.
#[test]
fn what_is_written_from_own_pages_is_its_own_log() {
    let Some((scratch, slot)) = mounted("what_is_written_from_own_pages") else { return };
    support::novale(&["set", "--method", "zcl", &scratch.dir()]).ok();
    let logs_sources = || {
        let said = support::novale(&["info", &slot]).ok();
        said.contains("zero-copy logging")
    };
    // What the kernel maps is no log.
    succeeds(&task(&scratch, None, "write_from_mapping").output().unwrap());
    assert!(!logs_sources());
    succeeds(&task(&scratch, Some("dax"), "write_from_mapping").output().unwrap());
    assert!(logs_sources());
    is_whole(&scratch, &slot);
}

/// The pool is mapped for reading and writing, and may be executed. So `pkey_mprotect` made a file writable
/// that was open for reading alone, `madvise` made holes of it, and what a mount forbids to execute could be.
#[test]
fn mappings_allow_what_their_files_and_the_mount_allow() {
    let Some(scratch) = Scratch::for_mount("mappings_allow_what") else { return };
    let slot = scratch.pool();
    support::novale(&["mount", "-o", "direct,noexec", &slot, &scratch.dir()]).ok();
    succeeds(&task(&scratch, Some("dax"), "rights_of_mappings").output().unwrap());
    is_whole(&scratch, &slot);
}

#[test]
fn mappings_in_pieces_are_made_shorter() {
    let Some((scratch, slot)) = mounted("mappings_in_pieces") else { return };
    succeeds(&task(&scratch, Some("dax"), "remapped_pieces").output().unwrap());
    is_whole(&scratch, &slot);
}

/// What `mprotect` made writable was copied. So `MADV_DONTNEED` showed zeros in the file's place, and of what had been
/// cut off the file and was the kernel's by then nothing could be copied: `ENOMEM`.
#[test]
fn private_mappings_show_the_file_again_when_they_are_made_writable() {
    let Some((scratch, slot)) = mounted("made_writable") else { return };
    succeeds(&task(&scratch, Some("dax"), "made_writable").output().unwrap());
    is_whole(&scratch, &slot);
}

/// Who stores to a file's own pages tells nobody, and without `msync` the file kept its times for good: programs that
/// go by them (make, rsync) did not see that it was another one.
#[test]
fn files_that_were_stored_to_are_newer() {
    let Some((scratch, slot)) = mounted("stored_to") else { return };
    for name in ["ends", "starts_another"] {
        fs::write(scratch.in_dir(name), vec![1; PAGE]).unwrap();
        succeeds(&task(&scratch, Some("dax"), name).output().unwrap());
        assert_eq!(fs::read(scratch.in_dir(name)).unwrap()[0], 2);
        assert!(modified(scratch.in_dir(name)) > OLD, "{name}");
    }
    is_whole(&scratch, &slot);
}

/// A time long ago, in seconds.
const OLD: i64 = 1000;

fn make_old(file: &File) {
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(OLD as u64)).unwrap();
}

fn modified(path: impl AsRef<Path>) -> i64 {
    std::os::unix::fs::MetadataExt::mtime(&fs::metadata(path).unwrap())
}

mod tasks {
    use std::os::unix::process::CommandExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Pages of the address space that are in use.
    fn pages() -> u64 {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// Has this thread run before its children, on one processor.
    fn run_before_children() {
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
            let first = libc::sched_param { sched_priority: 1 };
            let how = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            assert_eq!(libc::sched_setscheduler(0, how, &raw const first), 0);
        }
    }

    /// Such a mapping would promise that stores are durable without a call, also where it has become the kernel's.
    fn refuses_sync(file: &File) -> bool {
        let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        let fd = file.as_raw_fd();
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, flags, fd, 0) };
        let error = std::io::Error::last_os_error().raw_os_error();
        (at, error) == (libc::MAP_FAILED, Some(libc::EOPNOTSUPP))
    }

    #[test]
    #[ignore = "a task of another test"]
    fn forks_without_a_descriptor() {
        let (path, other) = (place().join("file"), place().join("other"));
        fs::write(&path, vec![1; 8 * PAGE]).unwrap();
        let (file, others) = (open(&path), File::create(&other).unwrap());
        let map = self::map(&file, 8 * PAGE);
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            limit.rlim_cur = 64;
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
        while unsafe { libc::dup(2) } >= 0 {}
        run_before_children();
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(map[5 * PAGE].into()) };
        }
        unmap(map);
        file.write_all_at(&vec![3; 8 * PAGE], 0).unwrap();
        for _ in 0..8 {
            others.write_all_at(&vec![2; 64 * PAGE], 0).unwrap();
        }
        assert_eq!(libc::WEXITSTATUS(exits_with(child)), 3);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_in_vain() {
        let path = place().join("mapped");
        fs::write(&path, vec![1; 8 * PAGE]).unwrap();
        let map = map_at(0, &open(&path), 8 * PAGE, libc::MAP_SHARED, 0);
        let program = place().join("program");
        fs::write(&program, "no program").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let name = std::ffi::CString::new(program.to_str().unwrap()).unwrap();
        let mut start = || {
            let words = [name.as_ptr(), std::ptr::null()];
            assert_eq!(unsafe { libc::execv(name.as_ptr(), words.as_ptr()) }, -1);
            let why = std::io::Error::last_os_error().raw_os_error();
            assert_eq!(why, Some(libc::ENOEXEC));
            map[PAGE] += 1;
        };
        start();
        let before = pages();
        for _ in 0..20 {
            start();
        }
        // The pool is 16,384 pages and more.
        assert!(pages() < before + 8192, "{} pages after {before}", pages());
        // A thread that stores meanwhile met what was shut, and the program ended.
        let (is_done, file) = (AtomicBool::new(false), open(&path));
        let other = self::map(&file, PAGE);
        let stored = std::thread::scope(|scope| {
            let stores = scope.spawn(|| {
                let mut stored = 0_u64;
                let at = other.as_mut_ptr().cast::<libc::c_void>().cast::<u64>();
                while !is_done.load(Ordering::Relaxed) {
                    stored += 1;
                    unsafe { at.write_volatile(stored) };
                    assert_eq!(unsafe { at.read_volatile() }, stored);
                }
                stored
            });
            (0..20).for_each(|_| start());
            is_done.store(true, Ordering::Relaxed);
            stores.join().unwrap()
        });
        let bytes = fs::read(&path).unwrap();
        assert_eq!((&bytes[..8], bytes[PAGE]), (&stored.to_le_bytes()[..], 42));
    }

    fn map_at<'a>(at: usize, file: &File, len: usize, flags: i32, offset: usize) -> &'a mut [u8] {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = i64::try_from(offset).unwrap();
        unsafe {
            let at = libc::mmap(at as *mut _, len, access, flags, file.as_raw_fd(), offset);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
        }
    }

    fn map<'a>(file: &File, len: usize) -> &'a mut [u8] {
        map_at(0, file, len, libc::MAP_SHARED, 0)
    }

    fn sync(map: &[u8]) {
        assert_eq!(
            unsafe { libc::msync(map.as_ptr().cast_mut().cast(), map.len(), libc::MS_SYNC) },
            0
        );
    }

    fn unmap(map: &[u8]) {
        assert_eq!(unsafe { libc::munmap(map.as_ptr().cast_mut().cast(), map.len()) }, 0);
    }

    fn read(file: &File, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at as u64).unwrap();
        bytes
    }

    /// Parts of mappings end by `munmap` and by other mappings; all of them with the program.
    #[test]
    #[ignore = "a task of another test"]
    fn ends() {
        let path = place().join("ends");
        let file = open(&path);
        let aged = |what: &dyn Fn()| {
            make_old(&file);
            what();
            modified(&path)
        };
        let read_alone = map_privately(&file, PAGE);
        assert_eq!(
            aged(&|| unsafe { assert_eq!(libc::munmap(read_alone, PAGE), 0) }),
            OLD,
            "a mapping that can be read alone"
        );
        let map = map(&file, PAGE);
        map[0] = 3;
        assert!(aged(&|| unmap(map)) > OLD);
        let map = self::map(&file, PAGE);
        let at = map.as_mut_ptr();
        unsafe {
            assert_eq!(libc::mprotect(at.cast(), PAGE, libc::PROT_READ), 0);
        }
        let over = || {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let made = unsafe { libc::mmap(at.cast(), PAGE, libc::PROT_READ, flags, -1, 0) };
            assert_eq!(made, at.cast());
        };
        assert!(aged(&over) > OLD);
        let map = self::map(&file, PAGE);
        make_old(&file);
        map[0] = 2;
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts_another() {
        let file = open(&place().join("starts_another"));
        let map = map(&file, PAGE);
        make_old(&file);
        map[0] = 2;
        panic!("{}", Command::new("/bin/true").exec());
    }

    /// A private mapping that can be read alone.
    fn map_privately(file: &File, len: usize) -> *mut libc::c_void {
        let fd = file.as_raw_fd();
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        at
    }

    #[test]
    #[ignore = "a task of another test"]
    fn made_writable() {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let path = place().join("private");
        fs::write(&path, vec![3; 8 * PAGE]).unwrap();
        // The file is removed and closed: it is found by its number.
        let file = open(&path);
        let locked = open(&path);
        let at = map_privately(&file, 6 * PAGE);
        drop(file);
        let map = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), 6 * PAGE) };
        let whole = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).unwrap(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        assert_eq!(unsafe { libc::fcntl(locked.as_raw_fd(), libc::F_SETLK, &whole) }, 0);
        unsafe {
            assert_eq!(libc::mprotect(at.byte_add(PAGE), 2 * PAGE, both), 0);
            map[PAGE] = 4;
            map[2 * PAGE] = 5;
            assert_eq!(libc::madvise(at.byte_add(PAGE), PAGE, libc::MADV_DONTNEED), 0);
        }
        assert_eq!([0, 1, 2, 3].map(|page| map[page * PAGE]), [3, 3, 5, 3]);
        assert_eq!(read(&locked, 0, 8 * PAGE), vec![3; 8 * PAGE]);
        // The descriptor that this took must not end the process' locks.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let failed = unsafe { libc::fcntl(locked.as_raw_fd(), libc::F_SETLK, &whole) } != 0;
            unsafe { libc::_exit(i32::from(!failed)) };
        }
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        drop(locked);
        // What was cut off is the kernel's to refuse, when it is touched.
        let file = open(&path);
        let at = map_privately(&file, 8 * PAGE);
        let other = map_at(0, &file, 8 * PAGE, libc::MAP_PRIVATE, 0);
        file.set_len(4 * PAGE as u64).unwrap();
        fs::remove_file(&path).unwrap();
        let map = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), 4 * PAGE) };
        assert_eq!(unsafe { libc::mprotect(at, 8 * PAGE, both) }, 0);
        map[0] = 6;
        assert_eq!((map[0], map[PAGE], other[0]), (6, 3, 3));
        assert_eq!(unsafe { libc::madvise(at, 8 * PAGE, libc::MADV_DONTNEED) }, 0);
        assert_eq!(map, [3; 4 * PAGE]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn write_from_mapping() {
        let [buffer, target] = ["buffer", "target"].map(|name| {
            fs::write(place().join(name), [1; 2 * PAGE]).unwrap();
            open(&place().join(name))
        });
        let map = map(&buffer, 2 * PAGE);
        map[4000..4300].fill(7);
        target.write_all_at(&map[3900..4400], 100).unwrap();
        map.fill(9);
        let expected = [vec![1; 100], vec![7; 300], vec![1; 100]].concat();
        assert_eq!(read(&target, 100, 500), expected);
        assert_eq!(read(&target, 0, 100), [1; 100]);
        unmap(map);
    }

    /// How many pieces of the pool the process has mapped, beside the pool itself.
    fn pieces() -> usize {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.ends_with("/pool")).count() - 1
    }

    #[test]
    #[ignore = "a task of another test"]
    fn rights_of_mappings() {
        let refused = |result: libc::c_long| {
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((result, error), (-1, Some(libc::EACCES)));
        };
        let path = place().join("guarded");
        fs::write(&path, [7; 2 * PAGE]).unwrap();
        let (reads, both) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let file = File::open(&path).unwrap();
        let (null, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
        let at = unsafe { libc::mmap(null, 2 * PAGE, reads, shared, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(pieces(), 1);
        refused(unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, PAGE, both, -1) });
        refused(unsafe { libc::madvise(at, PAGE, libc::MADV_REMOVE) }.into());
        refused(unsafe { libc::mprotect(at, PAGE, reads | libc::PROT_EXEC) }.into());
        assert_eq!(read(&file, 0, 2 * PAGE), [7; 2 * PAGE]);
        assert_eq!(unsafe { libc::munmap(at, 2 * PAGE) }, 0);
        let other = place().join("other");
        fs::write(&other, [7; 2 * PAGE]).unwrap();
        let file = open(&other);
        let map = map(&file, 2 * PAGE);
        let second = map[PAGE..].as_mut_ptr().cast();
        assert_eq!(unsafe { libc::madvise(second, PAGE, libc::MADV_REMOVE) }, 0);
        assert_eq!((map[0], map[PAGE], pieces() > 0), (7, 0, true));
        assert_eq!(read(&file, PAGE, PAGE), [0; PAGE]);
        // What a child has at these addresses is its own: nothing is put in its place later.
        assert_eq!(unsafe { libc::madvise(map.as_mut_ptr().cast(), PAGE, libc::MADV_DONTFORK) }, 0);
        assert_eq!(pieces(), 0);
        unmap(map);
        cannot_be_replaced();
    }

    /// A mapping that the program has sealed stayed on pages that were the file's no more when it had to give way,
    /// and what was stored there was lost.
    fn cannot_be_replaced() {
        let mapped = |name: &str| {
            let path = place().join(name);
            fs::write(&path, [7; 2 * PAGE]).unwrap();
            let file = open(&path);
            let map = map(&file, 2 * PAGE);
            assert!(pieces() > 0);
            (file, map)
        };
        let (_file, map) = mapped("advised");
        let part = libc::iovec { iov_base: map.as_mut_ptr().cast(), iov_len: PAGE };
        let myself = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        for advice in [libc::MADV_DONTFORK, libc::MADV_REMOVE] {
            let call = libc::SYS_process_madvise;
            let done = unsafe { libc::syscall(call, myself, &raw const part, 1, advice, 0) };
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((done, error), (-1, Some(libc::EINVAL)));
        }
        assert_eq!((map[0], pieces() > 0), (7, true));
        unmap(map);
        let (_file, map) = mapped("attached");
        let bits = libc::IPC_CREAT | 0o600;
        let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGE, bits) };
        assert!(segment >= 0);
        let at = unsafe { libc::shmat(segment, map.as_ptr().cast(), libc::SHM_REMAP) };
        assert_eq!(unsafe { libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) }, 0);
        // As far as the segment goes.
        assert_eq!((at.cast::<u8>().cast_const(), pieces()), (map.as_ptr(), 1));
        assert_eq!((map[0], map[PAGE]), (0, 7));
        unmap(map);
        // The kernel counts pages from the beginning of the file that it has mapped, which was the pool's.
        let (file, map) = mapped("rearranged");
        file.write_all_at(&[8; PAGE], PAGE as u64).unwrap();
        let (first, call) = (map.as_mut_ptr(), libc::SYS_remap_file_pages);
        assert_eq!(unsafe { libc::syscall(call, first, PAGE, 0, 1, 0) }, 0);
        assert_eq!((map[0], map[PAGE], pieces()), (8, 8, 0));
        map[0] = 9;
        assert_eq!((read(&file, 0, 1), read(&file, PAGE, 1), map[PAGE]), (vec![7], vec![9], 9));
        unmap(map);
        // It stays until the program ends. Kernels before 6.10 seal nothing.
        let (file, map) = mapped("sealed");
        _ = unsafe { libc::syscall(libc::SYS_mseal, map.as_mut_ptr(), 2 * PAGE, 0) };
        assert_eq!(pieces(), 0);
        map[0] = 9;
        assert_eq!(read(&file, 0, 2), [9, 7]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn remapped_pieces() {
        let path = place().join("pieces");
        fs::write(&path, [7; 4 * PAGE]).unwrap();
        let file = open(&path);
        let map = map(&file, 4 * PAGE);
        let (at, second) = (map.as_mut_ptr().cast(), map[PAGE..].as_mut_ptr().cast());
        let remap = |len, new_len, flags, to: *mut libc::c_void| {
            let to = unsafe { libc::mremap(at, len, new_len, flags, to) };
            let failed = || std::io::Error::last_os_error().raw_os_error().unwrap();
            if to == libc::MAP_FAILED { Err(failed()) } else { Ok(to) }
        };
        let (moves, fixed) = (libc::MREMAP_MAYMOVE, libc::MREMAP_FIXED);
        // Over itself the kernel moves nothing, and to a place it moves what may move.
        assert_eq!(remap(2 * PAGE, 2 * PAGE, moves | fixed, second), Err(libc::EINVAL));
        assert_eq!(remap(2 * PAGE, 2 * PAGE, fixed, second), Err(libc::EINVAL));
        assert_eq!(unsafe { libc::mprotect(second, PAGE, libc::PROT_READ) }, 0);
        assert_eq!(remap(4 * PAGE, 6 * PAGE, moves, at), Err(libc::EFAULT));
        // Shorter it may be in any pieces.
        assert_eq!(remap(4 * PAGE, 3 * PAGE, 0, at), Ok(at));
        assert_eq!(remap(3 * PAGE, PAGE, moves, at), Ok(at));
        assert_eq!((map[0], pieces()), (7, 1));
        assert_eq!(unsafe { libc::mprotect(second, PAGE, libc::PROT_READ) }, -1);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn own_pages() {
        let (path, kept) = (place().join("file"), place().join("kept"));
        fs::write(&path, vec![7; 8 * PAGE]).unwrap();
        fs::write(&kept, vec![7; 3 * PAGE]).unwrap();
        let (file, kept) = (open(&path), open(&kept));
        let (whole, second) = (map(&file, 8 * PAGE), map(&file, 8 * PAGE));
        assert!(pieces() >= 2 && refuses_sync(&file));
        whole[5000..5006].copy_from_slice(b"stored");
        assert_eq!(
            (&read(&file, 5000, 6)[..], &second[5000..5006]),
            (&b"stored"[..], &b"stored"[..])
        );
        open(&path).write_all_at(b"written", 4090).unwrap();
        assert_eq!(&whole[4090..4097], b"written");
        sync(whole);
        // Cut and grown, it is zeros, and the same pages.
        file.set_len(100).unwrap();
        file.set_len(8 * PAGE as u64).unwrap();
        assert!(whole[100..].iter().all(|byte| *byte == 0));
        second[20_000] = 9;
        assert_eq!((whole[20_000], read(&file, 20_000, 1)[0]), (9, 9));
        // In parts.
        unmap(&whole[2 * PAGE..3 * PAGE]);
        whole[0] = 1;
        whole[7 * PAGE] = 2;
        assert_eq!((second[0], second[7 * PAGE]), (1, 2));
        let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        map_at(whole.as_ptr() as usize, &file, PAGE, nothing, 0)[0] = 77;
        assert_eq!(second[0], 1);
        // Moved and longer.
        file.set_len(16 * PAGE as u64).unwrap();
        let moved = unsafe {
            let at = second.as_mut_ptr().cast();
            let at = libc::mremap(at, 8 * PAGE, 16 * PAGE, libc::MREMAP_MAYMOVE);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), 16 * PAGE)
        };
        moved[15 * PAGE] = 5;
        assert_eq!((moved[20_000], read(&file, 15 * PAGE, 1)[0]), (9, 5));
        // A private one keeps its stores to itself.
        let private = map_at(0, &file, PAGE, libc::MAP_PRIVATE, PAGE);
        private[0] = 200;
        assert_ne!(read(&file, PAGE, 1)[0], 200);
        // A call that fails leaves everything as it was, and so does a child.
        let not_there = Command::new("/no/such/program").status();
        assert!(not_there.is_err());
        moved[1] = 3;
        assert_eq!(read(&file, 1, 1)[0], 3);
        // Moved by the kernel's call, it would be in the kernel's pages.
        let to = File::create(place().join("sent")).unwrap();
        let mut from = 20_000;
        let sent =
            unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), &raw mut from, 1 << 20) };
        assert_eq!((sent, from), (45_536, 65_536));
        assert_eq!(fs::read(place().join("sent")).unwrap()[0], 9);
        assert_eq!(unsafe { libc::isatty(file.as_raw_fd()) }, 0);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOTTY));
        // No name any more, and much else is written.
        fs::remove_file(&path).unwrap();
        drop(file);
        moved.fill(0x33);
        fs::write(place().join("other"), vec![0x44; 4 << 20]).unwrap();
        assert!(moved.iter().all(|byte| *byte == 0x33));
        assert!(fs::read(place().join("other")).unwrap().iter().all(|byte| *byte == 0x44));
        map(&kept, 3 * PAGE)[PAGE..PAGE + 6].copy_from_slice(b"stored");
        kept.sync_all().unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replicas() {
        let path = place().join("file");
        fs::write(&path, vec![7; 3 * PAGE]).unwrap();
        let file = open(&path);
        assert!(refuses_sync(&file));
        let replica = map(&file, 3 * PAGE);
        for at in [10, 2 * PAGE] {
            replica[at..at + 9].copy_from_slice(b"published");
        }
        assert_eq!(read(&file, 10, 9), [7; 9]);
        file.write_all_at(b"written", 100).unwrap();
        assert_eq!(&replica[100..107], b"written");
        sync(replica);
        assert_eq!(
            (&read(&file, 10, 9)[..], &read(&file, 100, 7)[..]),
            (&b"published"[..], &b"written"[..])
        );
        assert_eq!(read(&file, 2 * PAGE, 9), b"published");
        // What others write is not undone by what was not changed here.
        Command::new("sh")
            .args(["-c", "printf other | dd of=file bs=1 seek=8000 conv=notrunc status=none"])
            .current_dir(place())
            .status()
            .unwrap();
        replica[3000] = 1;
        sync(replica);
        assert_eq!(read(&file, 8000, 5), b"other");
        replica[PAGE..PAGE + 9].copy_from_slice(b"discarded");
        // Who has the file open for reading alone can't make the mapping one to store to.
        let reads = File::open(&path).unwrap();
        unsafe {
            let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
            let none = std::ptr::null_mut();
            let at = libc::mmap(none, PAGE, access, flags, reads.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at, PAGE, access | libc::PROT_WRITE), -1);
            assert_eq!(libc::munmap(at, PAGE), 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn changed_by_descriptor() {
        let path = place().join("file");
        fs::write(&path, (0..4).flat_map(|page| [b'a' + page; PAGE]).collect::<Vec<u8>>()).unwrap();
        let file = open(&path);
        let (one, other) = (map(&file, 4 * PAGE), map(&file, 4 * PAGE));
        // The kernel has made a copy of each page.
        for page in 0..4 {
            (one[page * PAGE], other[page * PAGE + 1]) = (b'1', b'2');
        }
        let change = |mode, page: usize| unsafe {
            let (at, len) = ((page * PAGE).cast_signed() as i64, PAGE.cast_signed() as i64);
            match libc::fallocate(file.as_raw_fd(), mode, at, len) {
                0 => 0,
                _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
            }
        };
        assert_eq!(change(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0), 0);
        assert_eq!(change(libc::FALLOC_FL_ZERO_RANGE, 1), 0);
        let (mut from, mut to) = (3 * PAGE.cast_signed() as i64, 2 * PAGE.cast_signed() as i64);
        let copied = unsafe {
            let fd = file.as_raw_fd();
            libc::copy_file_range(fd, &raw mut from, fd, &raw mut to, PAGE, 0)
        };
        assert_eq!(copied, PAGE.cast_signed());
        for replica in [&*one, &*other] {
            assert!(replica[..2 * PAGE].iter().all(|byte| *byte == 0));
            assert!(replica[2 * PAGE..3 * PAGE].iter().all(|byte| *byte == b'd'));
        }
        for moves in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
            assert_eq!(change(moves, 1), libc::EBUSY);
        }
        // Published of the one, and shown in the other, where what was stored and not published yet stays.
        (other[3 * PAGE + 10], one[3 * PAGE + 20]) = (b'3', b'4');
        sync(one);
        let shown = [0, 1, 2, 10, 20].map(|at| other[3 * PAGE + at]);
        assert_eq!(shown, *b"12d34");
        sync(other);
        assert_eq!(read(&file, 3 * PAGE, 3), b"12d");
        assert_eq!([one[3 * PAGE + 1], one[3 * PAGE + 10]], *b"23");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_until_told() {
        let map = map(&open(&place().join("file")), 3 * PAGE);
        map[0] = 1;
        println!("mapped");
        let _told = std::io::stdin().read(&mut [0]).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn maps_once() {
        let map = map(&open(&place().join("file")), 3 * PAGE);
        assert!(unsafe { map.as_ptr().add(PAGE).read_volatile() } > 0);
    }

    /// Its child goes on when it has ended: the file has no name, and is the child's to keep.
    #[test]
    #[ignore = "a task of another test"]
    fn orphans() {
        let path = place().join("file");
        fs::write(&path, vec![7; 16 * PAGE]).unwrap();
        let file = open(&path);
        let map = map(&file, 16 * PAGE);
        fs::remove_file(&path).unwrap();
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        if unsafe { libc::fork() } > 0 {
            return;
        }
        unsafe {
            libc::close(ends[1]);
            libc::close(1);
            libc::close(2);
            // Until the parent is gone.
            libc::read(ends[0], (&raw mut ends).cast(), 1);
        }
        drop(file);
        map.fill(0x33);
        fs::write(place().join("other"), vec![0x44; 4 << 20]).unwrap();
        let good = map.iter().all(|byte| *byte == 0x33)
            && fs::read(place().join("other")).unwrap().iter().all(|byte| *byte == 0x44);
        let word: &[u8] = if good { b"good" } else { b"bad!" };
        fs::write(place().join("new"), word).unwrap();
        fs::rename(place().join("new"), place().join("done")).unwrap();
        unsafe { libc::_exit(0) };
    }
}
