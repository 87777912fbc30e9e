//! Promise: a program under `novale run` may do what the kernel would let it, also where its user is
//! the administrator and its rights are not.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

mod harness;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use harness::support::{self, Scratch, Stopped};
use harness::{PLACE, direct, is_whole, mounted, succeeds, task};

const OTHER: u32 = 1001;

/// Runs a task through another program, beside a file that is closed to all but its owner, and a folder
/// that is open to all.
fn runs(name: &str, owner: u32, through: &[&str]) {
    let Some((scratch, slot)) = mounted(name) else { return };
    let (closed, open) = (scratch.in_dir("closed"), scratch.in_dir("open"));
    fs::write(&closed, b"secret").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&closed, Some(owner), Some(owner)).unwrap();
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    succeeds(&task_through(&scratch, name, through).output().unwrap());
    is_whole(&scratch, &slot);
}

/// A task that another program starts.
fn task_through(scratch: &Scratch, name: &str, through: &[&str]) -> Command {
    let task = task(scratch, name);
    let mut words =
        through.iter().map(OsStr::new).chain([task.get_program()]).chain(task.get_args());
    let mut command = Command::new(words.next().unwrap());
    command.args(words).envs(task.get_envs().map(|(name, value)| (name, value.unwrap())));
    command
}

/// What takes all capabilities from a program.
const WITHOUT: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

/// A server that acts for its users, by the user that the kernel takes for files alone, was given all
/// that the administrator may see, and what it made was the administrator's.
#[test]
fn for_whom_a_thread_acts() {
    runs("acts", 0, &[]);
}

/// The kernel judged who has a file open by the owner that it was told last: who had a file that a direct program gave
/// to somebody else could change its mode, and who was given it could not.
#[test]
fn owners_are_who_they_are_whoever_changes_them() {
    let Some((scratch, slot)) = mounted("owners_are_who_they_are") else { return };
    let files = ["own", "others"].map(|name| scratch.in_dir(name));
    for (file, owner) in files.iter().zip([0, OTHER]) {
        fs::write(file, b"open").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
        chown(file, Some(owner), Some(owner)).unwrap();
    }
    let mut peer = Command::new(WITHOUT[0]);
    peer.args(&WITHOUT[1..]).arg(std::env::current_exe().unwrap()).env(PLACE, scratch.dir());
    peer.args(["--exact", "tasks::had", "--ignored", "--nocapture"]);
    let mut peer = peer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(peer.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("open") {
        line.clear();
        assert!(says.read_line(&mut line).unwrap() > 0);
    }
    for (file, owner) in files.iter().zip([OTHER, 0]) {
        let mut given = direct(&scratch, Path::new("chown"));
        succeeds(&given.arg(owner.to_string()).arg(file).output().unwrap());
    }
    peer.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(peer.wait().unwrap().success());
    let modes = files.map(|file| fs::metadata(file).unwrap().permissions().mode() & 0o777);
    assert_eq!(modes, [0o666, 0o777]);
    is_whole(&scratch, &slot);
}

/// The administrator of a container has user 0 and no capabilities.
#[test]
fn what_user_0_has_no_capability_for() {
    runs("bounded", OTHER, &WITHOUT);
}

/// The administrator of a user namespace of its own is none of the machine's: what it had open it changed as
/// if it were, and a child that was made in one opened and changed all there is.
#[test]
fn what_a_user_namespace_takes() {
    runs("namespaced", OTHER, &[]);
}

/// A thread of the library's own, which a program that maps files' own pages has, kept the user, the
/// capabilities and the freedom that the program gave up: beside code that might be taken over.
#[test]
fn what_a_program_gives_up_no_thread_keeps() {
    let Some((scratch, slot)) = mounted("what_a_program_gives_up") else { return };
    let itself = std::env::current_exe().unwrap();
    let mut command = Command::new(support::program());
    command.env("NOVALE_PRELOAD", harness::library()).env(PLACE, scratch.dir());
    command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]).arg(itself);
    command.args(["--exact", "tasks::gives_up", "--ignored", "--nocapture"]);
    succeeds(&command.output().unwrap());
    is_whole(&scratch, &slot);
}

/// Each path of a user went through the mount, at a hundred times the cost.
#[test]
fn what_is_a_users_own_needs_no_daemon() {
    let Some((scratch, slot)) = mounted("what_is_a_users_own") else { return };
    let daemon = Stopped::daemon_of(&slot);
    let mut task = task_through(&scratch, "own", &WITHOUT);
    let mut running = task.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = support::eventually(|| running.try_wait().unwrap().is_some());
    drop(daemon);
    if !ended {
        running.kill().unwrap();
    }
    succeeds(&running.wait_with_output().unwrap());
    is_whole(&scratch, &slot);
}

/// The kernel opens a file again for a program that forks, by the rights of that moment.
#[test]
fn what_a_user_has_open_stays_open_when_its_mode_changes() {
    let Some((scratch, slot)) = mounted("what_a_user_has_open") else { return };
    succeeds(&task_through(&scratch, "closes", &WITHOUT).output().unwrap());
    is_whole(&scratch, &slot);
}

/// A program with a limit of what files may grow to wrote on beyond it.
#[test]
fn how_large_files_may_be() {
    runs("limited", 0, &[]);
}

/// The limit was held against the library's own files, too: the memory that clients share, and what it keeps of
/// the code of libraries. The program was ended by SIGXFSZ when these grew.
#[test]
fn how_large_files_may_be_is_said_of_the_programs_own() {
    let Some((scratch, slot)) = mounted("of_the_programs_own") else { return };
    let mut task = task(&scratch, "makes_many");
    task.env("XDG_CACHE_HOME", scratch.slot("cache")).stdin(Stdio::null());
    let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    unsafe {
        task.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    succeeds(&task.output().unwrap());
    is_whole(&scratch, &slot);
}

/// After what the kernel had appended for a user who had given the file set-id bits, the position was counted from
/// an end that it knew of: what was written next lay over what others had appended.
#[test]
fn what_is_appended_moves_the_position_to_the_end() {
    runs("gave_set_id", 0, &WITHOUT);
}

/// A file that had no set-id bits when it was opened kept those that it got later, whoever wrote to it.
#[test]
fn set_id_bits_fall_whoever_opened_the_file() {
    runs("set_ids", 0, &[]);
}

/// A child of a process that had given up its user, and so may not join the pool, could map nothing.
#[test]
fn what_a_child_maps_that_may_not_join() {
    runs("child_maps", 0, &[]);
}

/// The daemon took its times from a clock that is up to 4 ms ahead of the other's: what a program wrote
/// directly was older than what it had written through the mount before.
#[test]
fn all_times_are_of_one_clock() {
    runs("stamps", 0, &[]);
}

/// A file was handed to the kernel by a descriptor that was closed again: all locks that the process had
/// on it by another one went with it, and two processes wrote to one database.
#[test]
fn locks_outlast_what_is_handed_over() {
    runs("locked", 0, &[]);
}

mod tasks {
    use super::harness::exits_with;
    use std::fs::{self, File, OpenOptions};
    use std::io::{Error, ErrorKind, Seek, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::{OTHER, PLACE};

    fn at(name: &str) -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn had() {
        let open = |name| File::options().read(true).write(true).open(at(name)).unwrap();
        let files = [open("own"), open("others")];
        println!("open");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let mode = fs::Permissions::from_mode(0o777);
        let [was_own, is_own] = files.map(|file| file.set_permissions(mode.clone()));
        assert_eq!(was_own.unwrap_err().raw_os_error(), Some(libc::EPERM));
        is_own.unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn acts() {
        assert_eq!(fs::read(at("closed")).unwrap(), b"secret");
        unsafe {
            libc::setfsgid(OTHER);
            libc::setfsuid(OTHER);
        }
        assert_eq!(File::open(at("closed")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        File::create(at("open/own")).unwrap().write_all(b"own").unwrap();
        fs::create_dir(at("open/folder")).unwrap();
        unsafe {
            libc::setfsuid(0);
            libc::setfsgid(0);
        }
        for name in ["open/own", "open/folder"] {
            let found = fs::metadata(at(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (OTHER, OTHER), "{name}");
        }
        assert_eq!(fs::read(at("closed")).unwrap(), b"secret");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn set_ids() {
        type Change = fn(&File);
        let changes: [(&str, Change); 5] = [
            ("write", |mut file| file.write_all(b"more").unwrap()),
            ("write at", |file| file.write_all_at(b"more", 0).unwrap()),
            ("truncate", |file| file.set_len(7).unwrap()),
            ("allocate", |file| {
                assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 100) }, 0);
            }),
            ("copy", |file| {
                let (fd, mut to) = (file.as_raw_fd(), 100);
                let from = std::ptr::null_mut();
                assert_eq!(unsafe { libc::copy_file_range(fd, from, fd, &raw mut to, 4, 0) }, 4);
            }),
        ];
        for (name, change) in changes {
            let path = at(name);
            assert_eq!(unsafe { libc::setegid(OTHER) }, 0);
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
            file.write_all_at(b"contents", 0).unwrap();
            // The kernel knows the file without the bits.
            assert_eq!(unsafe { libc::seteuid(OTHER) }, 0);
            assert_eq!(unsafe { libc::seteuid(0) }, 0);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(unsafe { libc::seteuid(OTHER) }, 0);
            change(&file);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{name}");
            assert_eq!(unsafe { libc::seteuid(0) }, 0);
            assert_eq!(unsafe { libc::setegid(0) }, 0);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn child_maps() {
        // It has joined.
        fs::read(at("closed")).unwrap();
        assert_eq!(unsafe { libc::setegid(OTHER) }, 0);
        assert_eq!(unsafe { libc::seteuid(OTHER) }, 0);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(at("open/own")).unwrap();
        let child = unsafe { libc::fork() };
        if child == 0 {
            let written = file.write_all_at(b"mapped", 0).is_ok();
            let (none, access) = (std::ptr::null_mut(), libc::PROT_READ);
            let fd = file.as_raw_fd();
            let map = unsafe { libc::mmap(none, 4096, access, libc::MAP_SHARED, fd, 0) };
            let is_mapped = map != libc::MAP_FAILED
                && unsafe { std::slice::from_raw_parts(map.cast::<u8>(), 6) } == b"mapped";
            unsafe { libc::_exit(i32::from(!(written && is_mapped))) };
        }
        assert_eq!(exits_with(child), 0);
    }

    fn limit_sizes(soft: u64) {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn makes_many() {
        const FILES: usize = 2500;
        for number in 0..FILES {
            File::create_new(at(&number.to_string())).unwrap();
        }
        assert_eq!(fs::read_dir(at("")).unwrap().count(), FILES);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn gave_set_id() {
        let mut log = OpenOptions::new().append(true).create_new(true).open(at("log")).unwrap();
        log.set_permissions(fs::Permissions::from_mode(0o4755)).unwrap();
        log.write_all(b"first").unwrap();
        assert_eq!(fs::metadata(at("log")).unwrap().mode() & 0o7777, 0o755);
        let other = OpenOptions::new().write(true).open(at("log")).unwrap();
        for end in [5, 15, 25] {
            other.write_all_at(b"other", end).unwrap();
            log.write_all(b"again").unwrap();
            assert_eq!(log.stream_position().unwrap(), end + 10);
        }
        other.write_all_at(b"other", 35).unwrap();
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        limit_sizes(40);
        assert_eq!(log.write(b"more").unwrap_err().raw_os_error(), Some(libc::EFBIG));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn limited() {
        const LIMIT: u64 = 10_000;
        let path = at("limited");
        let mut file = File::create_new(&path).unwrap();
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        limit_sizes(LIMIT);
        let is_refused = |error: Error| error.raw_os_error() == Some(libc::EFBIG);
        assert_eq!(file.write(&[1; 12_000]).unwrap(), 10_000, "as far as the limit");
        assert!(is_refused(file.write(b"more").unwrap_err()));
        assert!(is_refused(file.write_at(b"far", 20_000).unwrap_err()));
        assert_eq!(file.write_at(b"two", LIMIT - 2).unwrap(), 2);
        let mut appending = OpenOptions::new().append(true).open(&path).unwrap();
        assert!(is_refused(appending.write(b"more").unwrap_err()));
        assert!(is_refused(file.set_len(LIMIT + 1).unwrap_err()));
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        assert_eq!(unsafe { libc::truncate(name.as_ptr(), 10_001) }, -1);
        assert!(is_refused(Error::last_os_error()));
        assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 10_001) }, -1);
        assert!(is_refused(Error::last_os_error()));
        assert_eq!(fs::metadata(&path).unwrap().len(), LIMIT);
        // A program that is started has the limit too, and is ended by the signal.
        let script =
            format!("trap - XFSZ; exec dd if=/dev/zero bs=20000 count=2 of={}", path.display());
        let ended = std::process::Command::new("env")
            .args(["--default-signal=XFSZ", "sh", "-c", &script])
            .status()
            .unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(libc::SIGXFSZ));
        limit_sizes(libc::RLIM_INFINITY);
        file.seek(std::io::SeekFrom::Start(LIMIT)).unwrap();
        file.write_all(b"more").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), LIMIT + 4);
        // The kernel has not seen it grow, and goes by the end that it knows.
        file.write_all_at(b"more", LIMIT + 4).unwrap();
        limit_sizes(LIMIT + 8);
        assert!(is_refused(appending.write(b"more").unwrap_err()));
        assert!(is_refused(file.set_len(LIMIT + 9).unwrap_err()));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn own() {
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/one"), b"one").unwrap();
        symlink("one", at("d/link")).unwrap();
        assert_eq!(fs::read(at("d/link")).unwrap(), b"one");
        fs::hard_link(at("d/one"), at("two")).unwrap();
        fs::rename(at("two"), at("d/three")).unwrap();
        fs::set_permissions(at("d/three"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(at("d/one")).unwrap().mode(), 0o100_640);
        let file = File::options().write(true).open(at("d/one")).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(fs::read_dir(at("d")).unwrap().count(), 3);
        for name in ["d/one", "d/link", "d/three"] {
            fs::remove_file(at(name)).unwrap();
        }
        fs::remove_dir(at("d")).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn closes() {
        fs::create_dir(at("d")).unwrap();
        let set = |name, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode));
        let mut files = Vec::new();
        for (name, mode) in [("d/none", 0), ("d/read", 0o400), ("d/made", 0o200)] {
            files.push(File::create(at(name)).unwrap());
            set(name, mode).unwrap();
        }
        let made = File::options().create_new(true).write(true).mode(0o000).open(at("d/closed"));
        files.push(made.unwrap());
        let dir = File::open(at("d")).unwrap();
        set("d", 0).unwrap();
        assert_eq!(File::open(at("d/read")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        for file in &mut files {
            file.write_all(b"own ").unwrap();
            let into = Stdio::from(file.try_clone().unwrap());
            let child = Command::new("echo").arg("child's").stdout(into).status().unwrap();
            assert!(child.success());
            assert_eq!(file.metadata().unwrap().len(), 12);
        }
        drop(dir);
        set("d", 0o700).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn stamps() {
        let stamp = |name: &str| {
            fs::write(at(name), b"x").unwrap();
            let found = fs::metadata(at(name)).unwrap();
            (found.mtime(), found.mtime_nsec())
        };
        for _ in 0..200 {
            // A program with a limit writes through the mount.
            limit_sizes(1 << 30);
            let first = stamp("mount");
            limit_sizes(libc::RLIM_INFINITY);
            let second = stamp("direct");
            assert!(second >= first, "{second:?} behind {first:?}");
        }
    }

    /// Whether a lock of the process lies on the file, as one by a description would meet it.
    fn is_locked(file: &File) -> bool {
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap();
        let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        assert_eq!(asked, 0);
        i32::from(lock.l_type) == libc::F_WRLCK
    }

    #[test]
    #[ignore = "a task of another test"]
    fn locked() {
        let open = || OpenOptions::new().read(true).write(true).open(at("file")).unwrap();
        fs::write(at("file"), [1; 4096]).unwrap();
        let (before, file, mapped, inherited) = (open(), open(), open(), open());
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap();
        let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
        assert_eq!(set, 0);
        let after = open();
        assert!(is_locked(&before) && is_locked(&after));
        let (none, access) = (std::ptr::null_mut(), libc::PROT_READ);
        let fd = mapped.as_raw_fd();
        let map = unsafe { libc::mmap(none, 4096, access, libc::MAP_SHARED, fd, 0) };
        assert_ne!(map, libc::MAP_FAILED);
        assert!(is_locked(&after));
        let late = open();
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(i32::from(!is_locked(&late))) };
        }
        let status = exits_with(child);
        assert!(status == 0 && is_locked(&after));
        drop(inherited);
        assert!(!is_locked(&after), "as any close of the program's gives them up");
    }

    /// What is left to the administrator of a user namespace, by another user's file that is open and by name.
    fn is_nobody(file: &File) {
        let is_refused = |error: Error| error.kind() == ErrorKind::PermissionDenied;
        let mode = fs::Permissions::from_mode(0o666);
        assert!(is_refused(file.set_permissions(mode.clone()).unwrap_err()));
        assert!(is_refused(file.set_modified(std::time::UNIX_EPOCH).unwrap_err()));
        assert!(is_refused(fs::set_permissions(at("closed"), mode).unwrap_err()));
        assert!(is_refused(File::open(at("closed")).unwrap_err()));
        assert_ne!(file.metadata().unwrap().uid(), OTHER, "whom nobody is called here");
        assert_eq!(file.read_at(&mut [0; 9], 0).unwrap(), 6, "what is open stays open");
    }

    /// What a process does on its own, and how it ends: by a test's panic, too.
    fn alone(what: impl FnOnce()) -> ! {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        unsafe { libc::_exit(i32::from(ran.is_err())) }
    }

    fn ends_well(child: i32) {
        assert!(child > 0, "{}", Error::last_os_error());
        assert_eq!(exits_with(child), 0);
    }

    extern "C" fn starts_namespaced(file: *mut libc::c_void) -> i32 {
        let file = unsafe { &*file.cast::<File>() };
        alone(|| is_nobody(file))
    }

    #[test]
    #[ignore = "a task of another test"]
    fn namespaced() {
        let file = OpenOptions::new().read(true).write(true).open(at("closed")).unwrap();
        let child = unsafe { libc::fork() };
        if child == 0 {
            alone(|| {
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, 0);
                is_nobody(&file);
            });
        }
        ends_well(child);
        let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if child == 0 {
            alone(|| is_nobody(&file));
        }
        ends_well(i32::try_from(child).unwrap());
        let mut stack = vec![0_u128; 1 << 16];
        let top = stack.as_mut_ptr_range().end;
        let argument = (&raw const file).cast_mut().cast();
        ends_well(unsafe { libc::clone(starts_namespaced, top.cast(), flags, argument) });
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    }

    /// What the kernel says of each thread of this process by one line of its status.
    fn threads(line: &str) -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap();
        let said = |status: String| {
            status
                .lines()
                .find_map(|text| text.strip_prefix(line)?.strip_prefix(":").map(str::to_owned))
                .unwrap()
        };
        tasks.map(|task| said(status(task.unwrap()))).collect()
    }

    /// Maps a file, gives something up in a process of its own, and says what `line` is of all threads.
    fn given_up(give_up: impl FnOnce(), line: &str, expected: &[&str]) {
        let child = unsafe { libc::fork() };
        if child == 0 {
            alone(|| {
                let file = OpenOptions::new().read(true).write(true).open(at("mapped")).unwrap();
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
                let map = unsafe { libc::mmap(none, 8192, access, libc::MAP_SHARED, fd, 0) };
                assert_ne!(map, libc::MAP_FAILED);
                unsafe { map.cast::<u8>().write(7) };
                assert_eq!(threads(line).len(), 2, "the program's and the library's own");
                give_up();
                assert_eq!(threads(line), expected, "{line}");
                unsafe { map.cast::<u8>().write(8) };
                assert_eq!(unsafe { map.cast::<u8>().read() }, 8);
            });
        }
        ends_well(child);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn gives_up() {
        fs::write(at("mapped"), [1; 8192]).unwrap();
        fs::set_permissions(at("mapped"), fs::Permissions::from_mode(0o666)).unwrap();
        let user = || {
            assert_eq!(unsafe { libc::setgid(OTHER) }, 0);
            assert_eq!(unsafe { libc::setuid(OTHER) }, 0);
        };
        given_up(user, "Uid", &["\t1001\t1001\t1001\t1001"; 2]);
        given_up(user, "CapEff", &["\t0000000000000000"; 2]);
        let no_more =
            || assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        given_up(no_more, "NoNewPrivs", &["\t1"; 2]);
        // The kernel makes one for a process of one thread alone.
        let namespace = || assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, 0);
        given_up(namespace, "Uid", &["\t65534\t65534\t65534\t65534"; 2]);
        let confined = || {
            no_more();
            let allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
            let filter = libc::sock_fprog { len: 1, filter: (&raw const allow).cast_mut() };
            let mode = libc::SECCOMP_MODE_FILTER;
            let laid = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) };
            assert_eq!(laid, 0);
        };
        given_up(confined, "Seccomp", &["\t2"]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn bounded() {
        assert_eq!(File::open(at("closed")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        fs::write(at("open/own"), b"own").unwrap();
        assert_eq!(fs::read(at("open/own")).unwrap(), b"own");
        let refused = chown(at("open/own"), Some(OTHER), None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }
}
