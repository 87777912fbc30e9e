//! Promise: what leads into a mount is served in the program's own process, however its path is spelled.
//!
//! Only paths that began with the mount point were: `cd /srv; novale run dd of=data/x` went through the
//! kernel, ten times slower, with not a word, as did tar -C, find, rm and python from outside the mount.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

#[macro_use]
mod harness;

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::support::{self, Stopped};
use harness::{is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds, task};

promises! {
    relative_paths_and_detours_need_no_daemon: runs_without_the_daemon spellings;
    directories_above_the_mount_are_started_from: runs_without_the_daemon descriptors;
    names_elsewhere_are_the_kernels: runs_with_the_daemon elsewhere;
    links_to_the_same_mount_need_no_daemon: runs_without_the_daemon links;
    /// Where the thread that looks had asked the kernel before the other went elsewhere, it noted the old
    /// directory, which stayed noted.
    where_a_thread_went_while_another_looked: runs_with_the_daemon goes_while_another_looks;
}

/// By a symbolic link or a bind mount the kernel opens a file, and each write went to it.
#[test]
fn what_the_kernel_has_opened_is_served_from_then_on() {
    let Some((scratch, slot)) = mounted("what_the_kernel_has_opened") else { return };
    let above = PathBuf::from(scratch.dir()).parent().unwrap().to_owned();
    let [link, bound, ready, done] =
        ["link", "bound", "ready", "done"].map(|name| above.join(name));
    std::os::unix::fs::symlink(scratch.dir(), &link).unwrap();
    std::fs::create_dir(&bound).unwrap();
    std::fs::create_dir(scratch.in_dir("d")).unwrap();
    assert!(Command::new("mkfifo").arg(&ready).status().unwrap().success());
    let bind = || Command::new("mount").arg("--bind").arg(scratch.in_dir("d")).arg(&bound).status();
    assert!(bind().unwrap().success());
    let mut running = task(&scratch, "opened_by_the_kernel");
    let mut running = running
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // All is open now: what follows needs no daemon.
    std::fs::read(&ready).unwrap();
    let daemon = Stopped::daemon_of(&slot);
    running.stdin.take().unwrap().write_all(b"go on").unwrap();
    // The kernel, which has the files open, asks the daemon at their end.
    let served = support::eventually(|| done.exists());
    drop(daemon);
    succeeds(&running.wait_with_output().unwrap());
    assert!(Command::new("umount").arg(&bound).status().unwrap().success());
    std::fs::remove_file(&link).unwrap();
    assert!(served, "it waits for the daemon");
    is_whole(&scratch, &slot);
}

/// It was the one that had its name by then: who renames directories led root's relative paths to other files.
#[test]
fn the_working_directory_is_the_one_that_was_gone_to() {
    let Some((scratch, slot)) = mounted("is_the_one_that_was_gone_to") else { return };
    let names = ["d", "e"].map(|name| scratch.in_dir(name));
    for name in &names {
        std::fs::create_dir(name).unwrap();
    }
    let [one, other] = names.map(|name| CString::new(name.into_os_string().into_vec()).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (from, exchanges) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
            while !is_over.load(Ordering::Relaxed) {
                let (one, other) = (one.as_ptr(), other.as_ptr());
                assert_eq!(unsafe { libc::renameat2(from, one, from, other, exchanges) }, 0);
            }
        });
        let output = task(&scratch, "descends").output();
        is_over.store(true, Ordering::Relaxed);
        succeeds(&output.unwrap());
    });
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, File, OpenOptions};
    use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::harness::{PLACE, calls};

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    /// What programs do with names and files, by one spelling of the mount point.
    fn works(mount: &Path) {
        fs::write(mount.join("file"), "text").unwrap();
        assert_eq!(fs::metadata(place().join("file")).unwrap().len(), 4);
        calls::names(mount);
        calls::files(mount);
        fs::remove_file(mount.join("file")).unwrap();
        assert!(fs::metadata(mount.join("file")).is_err());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn spellings() {
        let mount = place();
        let (above, name) = (mount.parent().unwrap(), mount.file_name().unwrap());
        let (further, step) = (above.parent().unwrap(), above.file_name().unwrap());
        let side = above.join("side");
        fs::create_dir(&side).unwrap();
        let doubled = format!("/{}", mount.display()).replace('/', "//./");
        let around = further.join(step).join("..").join(step).join(name);
        works(Path::new(&doubled));
        works(&around);
        works(&Path::new("/proc/self/root").join(mount.strip_prefix("/").unwrap()));
        std::env::set_current_dir(above).unwrap();
        works(Path::new(name));
        works(&Path::new(".//").join(name));
        works(&Path::new("/proc/self/cwd").join(name));
        std::env::set_current_dir(further).unwrap();
        works(&Path::new(step).join(name));
        works(&Path::new(step).join("..").join(step).join(name));
        std::env::set_current_dir(&side).unwrap();
        works(&Path::new("..").join(name));
        works(&Path::new("../..").join(step).join(name));
        fs::remove_dir(&side).unwrap();
    }

    fn open_at(dir: &File, path: &Path, flags: i32) -> File {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let fd = unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), flags, 0o600) };
        assert!(fd >= 0, "{path:?}: {}", std::io::Error::last_os_error());
        unsafe { File::from_raw_fd(fd) }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn descriptors() {
        let mount = place();
        let (above, name) = (mount.parent().unwrap(), mount.file_name().unwrap());
        let (further, step) = (above.parent().unwrap(), above.file_name().unwrap());
        let side = above.join("side");
        fs::create_dir(&side).unwrap();
        let file = Path::new(name).join("file");
        for (dir, path) in [
            (above, file.clone()),
            (above, Path::new(".").join(&file)),
            (above, Path::new("..").join(step).join(&file)),
            (further, Path::new(step).join(&file)),
            (Path::new("/"), mount.strip_prefix("/").unwrap().join("file")),
        ] {
            let dir = File::open(dir).unwrap();
            let mut file = open_at(&dir, &path, libc::O_CREAT | libc::O_RDWR | libc::O_EXCL);
            file.write_all(b"text").unwrap();
            let mut text = String::new();
            open_at(&dir, &path, libc::O_RDONLY).read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
            let path = CString::new(path.as_os_str().as_bytes()).unwrap();
            assert_eq!(unsafe { libc::unlinkat(dir.as_raw_fd(), path.as_ptr(), 0) }, 0);
        }
        fs::remove_dir(&side).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn links() {
        let mount = place();
        fs::write(mount.join("d/file"), "text").unwrap();
        symlink(mount.join("d"), mount.join("whole")).unwrap();
        symlink(mount.join("whole/file"), mount.join("twice")).unwrap();
        symlink(&mount, mount.join("d/root")).unwrap();
        for path in ["whole/file", "twice", "d/root/whole/../d/file", "d/root/d/root/twice"] {
            assert_eq!(fs::read_to_string(mount.join(path)).unwrap(), "text", "{path}");
            assert_eq!(fs::metadata(mount.join(path)).unwrap().len(), 4);
        }
        fs::write(mount.join("whole/new"), "new").unwrap();
        fs::rename(mount.join("whole/new"), mount.join("d/root/moved")).unwrap();
        assert_eq!(fs::read_to_string(mount.join("moved")).unwrap(), "new");
        assert!(fs::symlink_metadata(mount.join("twice")).unwrap().is_symlink());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn opened_by_the_kernel() {
        let above = place().parent().unwrap().to_owned();
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true);
        let mut files = ["link/one", "bound/two"].map(|path| open.open(above.join(path)).unwrap());
        fs::write(above.join("ready"), "").unwrap();
        std::io::stdin().read_exact(&mut [0; 5]).unwrap();
        for file in &mut files {
            for _ in 0..100 {
                file.write_all(b"text").unwrap();
            }
            assert_eq!(file.metadata().unwrap().len(), 400);
            file.seek(SeekFrom::Start(396)).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
            file.set_len(4).unwrap();
            file.sync_all().unwrap();
        }
        assert_eq!(fs::read(place().join("d/two")).unwrap(), b"text");
        fs::write(above.join("done"), "").unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn descends() {
        for round in 0..5000 {
            let directory = File::open(place().join("d")).unwrap();
            assert_eq!(unsafe { libc::fchdir(directory.as_raw_fd()) }, 0);
            let [gone_to, here] = [directory.metadata(), fs::metadata(".")];
            assert_eq!(gone_to.unwrap().ino(), here.unwrap().ino(), "{round}");
        }
        std::env::set_current_dir("/").unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn goes_while_another_looks() {
        let mount = place();
        let (above, name) = (mount.parent().unwrap(), mount.file_name().unwrap());
        let side = above.join("side");
        fs::create_dir_all(side.join(name)).unwrap();
        // From above the name leads into the mount, from beside it to another directory.
        let file = Path::new(name).join("where");
        for place in [above, &side] {
            fs::write(place.join(&file), place.as_os_str().as_bytes()).unwrap();
        }
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    let _either = fs::metadata(&file);
                }
            });
            let goes = |place: &&Path| {
                std::env::set_current_dir(place).unwrap();
                fs::read(&file).unwrap() != place.as_os_str().as_bytes()
            };
            let wrong = [above, &side].into_iter().cycle().take(400_000).filter(goes).count();
            has_ended.store(true, Ordering::Relaxed);
            assert_eq!(wrong, 0);
        });
        std::env::set_current_dir("/").unwrap();
        fs::remove_dir_all(&side).unwrap();
    }

    /// `..` after a symbolic link is not where the link is, and a name elsewhere is not the mount's.
    #[test]
    #[ignore = "a task of another test"]
    fn elsewhere() {
        let mount = place();
        let (above, name) = (mount.parent().unwrap(), mount.file_name().unwrap());
        let (side, far) = (above.join("side"), above.join("far"));
        fs::create_dir_all(side.join("inner").join(name)).unwrap();
        symlink("side/inner", &far).unwrap();
        fs::write(mount.join("file"), "text").unwrap();
        std::env::set_current_dir(above).unwrap();
        let missing = |path: PathBuf| fs::metadata(path).unwrap_err().kind() == ErrorKind::NotFound;
        // These lead to side/m and side/inner/m.
        assert!(missing(Path::new("far/..").join(name).join("file")));
        assert!(missing(far.join("..").join(name).join("file")));
        assert!(missing(Path::new("far").join(name).join("file")));
        std::env::set_current_dir(&side).unwrap();
        assert!(missing(Path::new("inner").join(name).join("file")));
        fs::create_dir(mount.join("d")).unwrap();
        std::env::set_current_dir(mount.join("d")).unwrap();
        works(Path::new(".."));
        works(Path::new("/proc/self/cwd/.."));
        fs::write(mount.join("file"), "text").unwrap();
        // Out of the mount and in again.
        assert_eq!(fs::read(mount.join("..").join(name).join("file")).unwrap(), b"text");
        fs::remove_file(&far).unwrap();
        std::env::set_current_dir("/").unwrap();
        fs::remove_dir_all(&side).unwrap();
    }
}
