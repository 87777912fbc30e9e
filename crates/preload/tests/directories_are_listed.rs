//! Promise: directories that a program under `novale run` has open are listed in its own process, as the
//! kernel lists them, and the kernel goes on where the program has stopped.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]
#![allow(clippy::print_stdout, reason = "a task says what it finds")]

#[macro_use]
mod harness;

use harness::{is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds, task};

promises! {
    listings_need_no_daemon: runs_without_the_daemon listings;
    positions_are_kept_while_names_come_and_go: runs_without_the_daemon positions;
    /// Each name that was moved came again at the end of the listing, which so had none.
    who_moves_what_it_reads_comes_to_an_end: runs_without_the_daemon moves;
    what_is_no_directory_is_told: runs_without_the_daemon refusals;
    /// The kernel found the mount's root of each number whose directory it had not been given.
    the_kernel_starts_from_directories_too: runs_with_the_daemon kernel;
    children_go_on_in_a_listing: runs_with_the_daemon children;
    /// The kernel keeps a mount point from being removed, and a program that runs from being written
    /// to: both were done after its back.
    what_the_kernel_keeps_is_kept: runs_with_the_daemon kept;
    /// Directories were handed over with flags of the library's own, and files without `O_NOFOLLOW`.
    the_next_program_finds_the_flags: runs_with_the_daemon flags;
    /// It was another program's bad descriptor, and to go there was ENOTDIR.
    a_directory_that_was_removed_is_handed_over: runs_with_the_daemon removed;
    /// It was ENOTDIR, and another program's bad descriptor: its path was looked for a few times at once, or once.
    a_directory_that_is_moved_is_handed_over: runs_with_the_daemon on_the_move;
    /// A directory beside something else was passed over: a copy was told that the other one is no file, and the
    /// kernel met a placeholder where it had the other one already.
    directories_have_their_word_beside_others: runs_with_the_daemon beside;
    /// What a link with a slash after its text leads to was said to be no directory, where the kernel looks at the
    /// slash first.
    a_slash_may_stand_in_a_link: runs_with_the_daemon slashes;
}

/// What is listed directly, and in what order, is what the mount lists.
#[test]
fn the_mount_lists_the_same() {
    let Some((scratch, slot)) = mounted("the_mount_lists_the_same") else { return };
    for name in ["zebra", "a", "m", "1"] {
        std::fs::write(scratch.in_dir(name), name).unwrap();
    }
    std::fs::create_dir(scratch.in_dir("directory")).unwrap();
    std::os::unix::fs::symlink("a", scratch.in_dir("link")).unwrap();
    let direct = succeeds(&task(&scratch, "shows").output().unwrap());
    let mount = tasks::shown(std::path::Path::new(&scratch.dir()));
    assert!(mount.contains("zebra") && direct.contains(&mount), "{mount}\nnot in\n{direct}");
    is_whole(&scratch, &slot);
}

/// Each fork said that a descriptor can't be handed to the kernel, on the program's own standard error.
#[test]
fn a_directory_too_deep_for_a_path_is_told_by_what_needs_it() {
    let Some((scratch, slot)) = mounted("a_directory_too_deep_for_a_path_is_told_by_what_needs_it")
    else {
        return;
    };
    for (words, is_told) in [(&[][..], false), (&["-v"], true), (&["--strict"], true)] {
        let mut command = std::process::Command::new(harness::support::program());
        command.env("NOVALE_PRELOAD", harness::library()).env(harness::PLACE, scratch.dir());
        command.arg("run").args(words).args(["--mount", &scratch.dir(), "--"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "tasks::deep", "--ignored", "--nocapture"]);
        let output = command.output().unwrap();
        succeeds(&output);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("can't be handed to the kernel"), is_told, "{words:?}: {said}");
    }
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::{CStr, CString};
    use std::fmt::Write;
    use std::fs::{self, File, OpenOptions};
    use std::io::ErrorKind;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::harness::{PLACE, exits_with};

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn error() -> i32 {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    /// An open listing.
    struct Listing(*mut libc::DIR);

    impl Listing {
        fn open(path: &Path) -> Self {
            let listing = unsafe { libc::opendir(c(path).as_ptr()) };
            assert!(!listing.is_null());
            Self(listing)
        }

        /// Name, inode, kind, and where to go on.
        fn next(&self) -> Option<(String, u64, u8, i64)> {
            let entry = unsafe { libc::readdir(self.0) };
            if entry.is_null() {
                return None;
            }
            let entry = unsafe { &*entry };
            let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
            let name = name.to_str().unwrap().to_owned();
            Some((name, entry.d_ino, entry.d_type, unsafe { libc::telldir(self.0) }))
        }

        fn names(&self) -> Vec<String> {
            std::iter::from_fn(|| self.next()).map(|(name, ..)| name).collect()
        }
    }

    impl Drop for Listing {
        fn drop(&mut self) {
            assert_eq!(unsafe { libc::closedir(self.0) }, 0);
        }
    }

    /// All that a listing says.
    pub(super) fn shown(path: &Path) -> String {
        let listing = Listing::open(path);
        let mut text = String::new();
        while let Some((name, ino, kind, position)) = listing.next() {
            writeln!(text, "{name} {ino} {kind} {position}").unwrap();
        }
        text
    }

    #[test]
    #[ignore = "a task of another test"]
    fn shows() {
        println!("{}", shown(&place()));
    }

    fn make(directory: &Path, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|index| format!("name {index}")).collect();
        for name in &names {
            fs::write(directory.join(name), b"").unwrap();
        }
        names
    }

    #[test]
    #[ignore = "a task of another test"]
    fn moves() {
        let directory = place().join("own");
        fs::create_dir(&directory).unwrap();
        // More than libc reads at a time.
        let count = make(&directory, 3000).len();
        let listing = Listing::open(&directory);
        let mut seen = Vec::new();
        while let Some((name, ..)) = listing.next() {
            if name.starts_with('.') {
                continue;
            }
            assert!(seen.len() < 2 * count, "no end");
            fs::rename(directory.join(&name), place().join("away")).unwrap();
            fs::rename(place().join("away"), directory.join(&name)).unwrap();
            seen.push(name);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
        fs::write(directory.join("new"), b"").unwrap();
        assert!(listing.next().is_none());
        unsafe { libc::rewinddir(listing.0) };
        assert_eq!(listing.names().len(), count + 3);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn listings() {
        let directory = place().join("own");
        fs::create_dir(&directory).unwrap();
        // More than one call returns, and than the core hands out at a time.
        let mut expected = make(&directory, 3000);
        fs::create_dir(directory.join("sub")).unwrap();
        expected.extend(["sub", ".", ".."].map(str::to_owned));
        let mut found = Listing::open(&directory).names();
        assert_eq!(found[..2], [".", ".."]);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let sub = directory.join("sub");
        let listing = Listing::open(&sub);
        let (own, above) = (listing.next().unwrap(), listing.next().unwrap());
        assert_eq!(own.1, fs::metadata(&sub).unwrap().ino());
        assert_eq!(above.1, fs::metadata(&directory).unwrap().ino());
        assert_eq!((own.2, listing.next()), (libc::DT_DIR, None));

        let open = File::open(&directory).unwrap();
        assert!(open.metadata().unwrap().is_dir());
        open.sync_all().unwrap();
        open.set_permissions(fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        let fd = unsafe { libc::openat(open.as_raw_fd(), c"name 7".as_ptr(), libc::O_RDONLY) };
        assert!(fd >= 0);
        assert_eq!(
            unsafe { libc::unlinkat(open.as_raw_fd(), c"sub".as_ptr(), libc::AT_REMOVEDIR) },
            0
        );
        // A directory that is removed while it is open lists nothing.
        drop(listing);
        fs::create_dir(&sub).unwrap();
        let listing = Listing::open(&sub);
        fs::remove_dir(&sub).unwrap();
        assert_eq!(listing.names(), Vec::<String>::new());
        fs::remove_dir_all(&directory).unwrap();
        assert!(!fs::exists(&directory).unwrap());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn positions() {
        let directory = place().join("d");
        let names = make(&directory, 500);
        let listing = Listing::open(&directory);
        let mut seen = Vec::new();
        let mut half = 0;
        for (index, old) in names.iter().enumerate().take(250) {
            let (name, _, _, position) = listing.next().unwrap();
            half = position;
            seen.push(name);
            // Names in front and after go, and others come.
            fs::remove_file(directory.join(old)).unwrap();
            fs::write(directory.join(format!("new {index}")), b"").unwrap();
        }
        let rest = listing.names();
        unsafe { libc::seekdir(listing.0, half) };
        let stayed = rest.iter().filter(|name| directory.join(name).exists());
        assert!(listing.names().iter().eq(stayed));
        for name in &names[250..] {
            let times = seen.iter().chain(&rest).filter(|found| *found == name).count();
            assert_eq!(times, 1, "{name}");
        }
        unsafe { libc::rewinddir(listing.0) };
        let mut now = listing.names();
        now.sort();
        assert_eq!(now.len(), 502);
        now.dedup();
        assert_eq!(now.len(), 502);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn refusals() {
        let (directory, file) = (place().join("d"), place().join("file"));
        fs::write(&file, b"x").unwrap();
        let open = |path: &Path, flags| unsafe { libc::open(c(path).as_ptr(), flags, 0o600) };
        let error = || std::io::Error::last_os_error().raw_os_error().unwrap();
        for (path, flags, expected) in [
            (&directory, libc::O_RDWR, libc::EISDIR),
            (&directory, libc::O_WRONLY | libc::O_DIRECTORY, libc::EISDIR),
            (&directory, libc::O_RDONLY | libc::O_CREAT, libc::EISDIR),
            (&file, libc::O_RDONLY | libc::O_DIRECTORY, libc::ENOTDIR),
        ] {
            assert_eq!((open(path, flags), error()), (-1, expected), "{path:?} {flags:o}");
        }
        let mut options = OpenOptions::new();
        let opened =
            options.read(true).custom_flags(libc::O_DIRECTORY).open(place().join("absent"));
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotFound);
        // One to start from is good for nothing else.
        let start = open(&directory, libc::O_PATH | libc::O_DIRECTORY | libc::O_RDWR);
        let flags = unsafe { libc::fcntl(start, libc::F_GETFL) };
        assert_eq!(flags, libc::O_PATH | libc::O_DIRECTORY);
        let made = unsafe { libc::openat(start, c"made".as_ptr(), libc::O_CREAT, 0o600) };
        assert!(made >= 0 && directory.join("made").exists());
        assert_eq!(unsafe { libc::unlinkat(start, c"made".as_ptr(), 0) }, 0);
        let list = |fd: i32, bytes: &mut [u8]| unsafe {
            libc::syscall(libc::SYS_getdents64, fd, bytes.as_mut_ptr(), bytes.len())
        };
        let mut bytes = [0; 256];
        let file = File::open(&file).unwrap();
        assert_eq!((list(file.as_raw_fd(), &mut bytes), error()), (-1, libc::ENOTDIR));
        let directory = File::open(&directory).unwrap();
        assert_eq!((list(directory.as_raw_fd(), &mut bytes[..8]), error()), (-1, libc::EINVAL));
        assert!(list(directory.as_raw_fd(), &mut bytes) > 0);
        assert_eq!(list(directory.as_raw_fd(), &mut bytes), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn kernel() {
        let (from, to) = (place().join("from"), place().join("to"));
        fs::create_dir_all(from.join("deep/er")).unwrap();
        fs::write(from.join("deep/er/file"), b"here").unwrap();
        let open = File::open(from.join("deep/er")).unwrap();
        let fd = open.as_raw_fd();
        let start = unsafe { libc::open(c(&from).as_ptr(), libc::O_PATH) };
        assert_eq!(unsafe { libc::fchmod(start, 0o700) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        assert_eq!(unsafe { libc::fsync(start) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        // It is found where it is by then.
        fs::rename(&from, &to).unwrap();
        assert_eq!(unsafe { libc::mknodat(fd, c"fifo".as_ptr(), libc::S_IFIFO | 0o600, 0) }, 0);
        assert!(to.join("deep/er/fifo").exists());
        assert_eq!(unsafe { libc::fchdir(fd) }, 0);
        assert_eq!(std::env::current_dir().unwrap(), to.join("deep/er"));
        assert_eq!(fs::read("file").unwrap(), b"here");
        let link = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        assert_eq!(link, to.join("deep/er"));
        assert_eq!(fs::read_dir(&link).unwrap().count(), 2);
        let run = std::process::Command::new("sh").args(["-c", "ls | wc -l"]).output().unwrap();
        assert_eq!(run.stdout, b"2\n");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn on_the_move() {
        let here = place().join("here");
        fs::create_dir_all(here.join("moved/below")).unwrap();
        fs::create_dir(place().join("there")).unwrap();
        // A long listing, in which a name that is moved may be missed.
        for number in 0..3000 {
            File::create(here.join(format!("{number}"))).unwrap();
        }
        let ends = AtomicBool::new(false);
        let moves = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let [from, to] = ["here", "there"].map(|name| c(&place().join(name).join("moved")));
                while !ends.load(Ordering::Relaxed) {
                    for (from, to) in [(&from, &to), (&to, &from)] {
                        rename(from, to);
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let _ends = Ends(&ends);
            let start = unsafe { libc::open(c(&here).as_ptr(), libc::O_PATH) };
            for round in 0..30 {
                let mut below = -1;
                while below < 0 {
                    below = unsafe { libc::openat(start, c"moved/below".as_ptr(), libc::O_RDONLY) };
                }
                let seen = moves.load(Ordering::Relaxed);
                while moves.load(Ordering::Relaxed) == seen {}
                let link = fs::read_link(format!("/proc/self/fd/{below}")).unwrap();
                assert!(link.starts_with(place()), "{}", link.display());
                if round % 2 == 0 {
                    let gone_to = unsafe { libc::fchdir(below) };
                    assert_eq!((gone_to, error()), (0, error()), "{round}");
                } else {
                    let open = unsafe { File::from_raw_fd(libc::dup(below)) };
                    let mut next = Command::new("stat");
                    next.args(["--format=%F", "-"]).stdin(open).current_dir("/");
                    let said = next.output().unwrap();
                    assert_eq!(String::from_utf8_lossy(&said.stdout), "directory\n", "{said:?}");
                }
                unsafe { libc::close(below) };
            }
        });
    }

    /// The whole program fails with it: others wait for it to be moved.
    fn rename(from: &CStr, to: &CStr) {
        if unsafe { libc::rename(from.as_ptr(), to.as_ptr()) } != 0 {
            println!("{from:?} to {to:?}: {}", error());
            std::process::exit(1);
        }
    }

    /// Has a thread end, also after a failure.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn deep() {
        let name = CString::new("d".repeat(250)).unwrap();
        let mut at = unsafe { libc::open(c(&place()).as_ptr(), libc::O_PATH) };
        for _ in 0..17 {
            unsafe { libc::mkdirat(at, name.as_ptr(), 0o755) };
            let below = unsafe { libc::openat(at, name.as_ptr(), libc::O_RDONLY) };
            assert!(below >= 0);
            unsafe { libc::close(at) };
            at = below;
        }
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        assert_eq!(exits_with(child), 0);
        assert_eq!((unsafe { libc::fchdir(at) }, error()), (-1, libc::ENOTDIR));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn kept() {
        let (point, program) = (place().join("point"), place().join("sleep"));
        fs::create_dir(&point).unwrap();
        fs::copy("/bin/sleep", &program).unwrap();
        let mut running = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let busy = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
        let mut options = OpenOptions::new();
        let open = options.write(true).open(&program).map(drop);
        let cut = unsafe { libc::truncate(c(&program).as_ptr(), 0) };
        let cut = if cut == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!((busy(open), busy(cut)), (Some(libc::ETXTBSY), Some(libc::ETXTBSY)));
        let mut options = OpenOptions::new();
        options.write(true).open(&program).unwrap();
        let mount = |program: &str, arguments: &[&str]| {
            let status = std::process::Command::new(program).args(arguments).arg(&point).status();
            assert!(status.unwrap().success());
        };
        mount("mount", &["-t", "tmpfs", "none"]);
        let removed = fs::remove_dir(&point);
        let moved = fs::rename(&point, place().join("moved"));
        mount("umount", &[]);
        assert_eq!((busy(removed), busy(moved)), (Some(libc::EBUSY), Some(libc::EBUSY)));
        fs::remove_dir(&point).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn removed() {
        let gone = place().join("gone");
        fs::create_dir(&gone).unwrap();
        let (open, again) = (File::open(&gone).unwrap(), File::open(&gone).unwrap());
        fs::remove_dir(&gone).unwrap();
        let mut next = Command::new("stat");
        let said = next.args(["--format=%F %h", "-"]).stdin(open).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "directory 0\n", "{said:?}");
        assert_eq!(unsafe { libc::fchdir(again.as_raw_fd()) }, 0);
        assert_eq!(std::env::current_dir().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::write("new", b"").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!place().join("gone").exists());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn children() {
        let directory = place().join("many");
        fs::create_dir(&directory).unwrap();
        make(&directory, 2000);
        let fd = unsafe { libc::open(c(&directory).as_ptr(), libc::O_RDONLY) };
        assert!(fd >= 0);
        let list = || {
            let mut bytes = [0u8; 4096];
            let got = unsafe { libc::syscall(libc::SYS_getdents64, fd, bytes.as_mut_ptr(), 4096) };
            let mut names = Vec::new();
            let mut rest = &bytes[..usize::try_from(got).unwrap()];
            while !rest.is_empty() {
                let len = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
                names.push(CStr::from_bytes_until_nul(&rest[19..]).unwrap().to_owned());
                rest = &rest[len..];
            }
            names
        };
        let mut all = list();
        let mut is_over = false;
        while !is_over {
            let mut ends = [0; 2];
            assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let text: Vec<u8> =
                    list().iter().flat_map(|name| name.to_bytes_with_nul().to_vec()).collect();
                unsafe { libc::write(ends[1], text.as_ptr().cast(), text.len()) };
                unsafe { libc::_exit(0) };
            }
            unsafe { libc::close(ends[1]) };
            let mut bytes = [0u8; 8192];
            let got = unsafe { libc::read(ends[0], bytes.as_mut_ptr().cast(), bytes.len()) };
            unsafe { libc::close(ends[0]) };
            exits_with(pid);
            let text = &bytes[..usize::try_from(got).unwrap()];
            is_over = text.is_empty();
            all.extend(
                text.split_inclusive(|byte| *byte == 0)
                    .map(|name| CStr::from_bytes_with_nul(name).unwrap().to_owned()),
            );
            all.extend(list());
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!((count, all.len()), (2002, 2002));
    }

    /// What comes of the same in the mount, and in a folder of the machine's own.
    fn alike<T: PartialEq + std::fmt::Debug>(of: impl Fn(&Path) -> T) {
        let own = tempfile::tempdir().unwrap();
        for folder in [own.path(), &place()] {
            fs::create_dir(folder.join("folder")).unwrap();
            fs::write(folder.join("bytes"), b"bytes").unwrap();
        }
        assert_eq!(of(&place()), of(own.path()));
    }

    fn opened(path: &Path, flags: i32) -> Result<i32, Option<i32>> {
        let fd = unsafe { libc::open(c(path).as_ptr(), flags, 0o600) };
        if fd < 0 { Err(std::io::Error::last_os_error().raw_os_error()) } else { Ok(fd) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn flags() {
        alike(|place| {
            let plain = [0, libc::O_NOFOLLOW, libc::O_NOATIME, libc::O_NONBLOCK];
            let mut seen = Vec::new();
            for flags in plain.iter().flat_map(|flags| [*flags, flags | libc::O_DIRECTORY]) {
                for (name, flags) in [("folder", flags), ("bytes", flags & !libc::O_DIRECTORY)] {
                    for flags in [flags, flags | libc::O_PATH] {
                        let fd = opened(&place.join(name), flags).unwrap();
                        let shown = format!("/proc/self/fdinfo/{fd}");
                        let next =
                            Command::new("grep").args(["flags", &shown]).output().unwrap().stdout;
                        seen.push((name, flags, String::from_utf8(next).unwrap()));
                        unsafe { libc::close(fd) };
                    }
                }
            }
            seen
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn beside() {
        alike(|place| {
            let file = opened(&place.join("bytes"), libc::O_RDWR).unwrap();
            assert_eq!(unsafe { libc::flock(file, libc::LOCK_SH) }, 0);
            let folder = opened(&place.join("folder"), libc::O_RDONLY).unwrap();
            let nothing = opened(Path::new("/dev/null"), libc::O_RDWR).unwrap();
            let failed = |moved: isize| {
                assert_eq!(moved, -1);
                std::io::Error::last_os_error().raw_os_error()
            };
            let none = std::ptr::null_mut();
            let copied = |from, to| unsafe { libc::copy_file_range(from, none, to, none, 9, 0) };
            let sent = |from, to| unsafe { libc::sendfile(to, from, std::ptr::null_mut(), 9) };
            // By a fork the position is the kernel's.
            let child = unsafe { libc::fork() };
            if child == 0 {
                unsafe { libc::_exit(0) };
            }
            exits_with(child);
            [
                failed(copied(nothing, folder)),
                failed(copied(folder, nothing)),
                failed(copied(nothing, file)),
                failed(sent(folder, file)),
                failed(sent(file, folder)),
            ]
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn slashes() {
        alike(|place| {
            let links = [("link", "bytes/"), ("again", "link"), ("to-folder", "folder/")];
            for (name, to) in links {
                std::os::unix::fs::symlink(to, place.join(name)).unwrap();
            }
            links.map(|(name, _)| {
                [libc::O_CREAT | libc::O_RDWR, libc::O_CREAT, libc::O_RDWR, libc::O_RDONLY]
                    .map(|flags| opened(&place.join(name), flags).map(|_| ()))
            })
        });
    }
}
