//! Promise: names that lead into a mount by a symbolic link elsewhere, or by a bind mount of it, are served in
//! the program's own process, and the kernel judges at each call where they lead.
//!
//! They were the kernel's, each a round trip to the daemon or several, forty times as long and more.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]

mod harness;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::support::{self, Scratch, Stopped, novale, program};
use harness::{PLACE, is_whole, library, mounted, succeeds, task};

const OTHER: u32 = 1001;

/// Links and mounts beside the mount; they go at the end.
struct Beside {
    folder: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Beside {
    /// `link` and `near` lead to the mount, `deep` and `chain` to a directory in it.
    fn new(scratch: &Scratch) -> Self {
        let mount = PathBuf::from(scratch.dir());
        let folder = mount.parent().unwrap().to_owned();
        fs::create_dir_all(mount.join("d/d")).unwrap();
        symlink(&mount, folder.join("link")).unwrap();
        symlink(mount.file_name().unwrap(), folder.join("near")).unwrap();
        symlink(mount.join("d"), folder.join("deep")).unwrap();
        symlink("near/d", folder.join("chain")).unwrap();
        Self { folder, mounts: Vec::new() }
    }

    fn mount(&mut self, arguments: &[&str], from: &Path, at: &str) {
        let at = self.folder.join(at);
        fs::create_dir_all(&at).unwrap();
        assert!(
            Command::new("mount").args(arguments).arg(from).arg(&at).status().unwrap().success()
        );
        self.mounts.push(at);
    }

    /// `bound` shows the directory `d` of the mount.
    fn bind(&mut self) {
        self.mount(&["--bind"], &self.folder.join("dir/d"), "bound");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for mount in self.mounts.iter().rev() {
            assert!(Command::new("umount").arg(mount).status().unwrap().success());
        }
        for link in ["link", "near", "deep", "chain"] {
            fs::remove_file(self.folder.join(link)).unwrap();
        }
    }
}

/// Which way leads into the mount is learnt while the daemon is at work, and it is stopped after that.
#[test]
fn names_need_no_daemon() {
    let Some((scratch, slot)) = mounted("names_need_no_daemon") else { return };
    let mut beside = Beside::new(&scratch);
    beside.bind();
    let [ready, done] = ["ready", "done"].map(|name| beside.folder.join(name));
    assert!(Command::new("mkfifo").arg(&ready).status().unwrap().success());
    let mut running = task(&scratch, "all_names");
    let mut running = running
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::read(&ready).unwrap();
    let daemon = Stopped::daemon_of(&slot);
    running.stdin.take().unwrap().write_all(b"go on").unwrap();
    // At its end the kernel asks the daemon about what it has open.
    let served = support::eventually(|| done.exists());
    drop(daemon);
    succeeds(&running.wait_with_output().unwrap());
    assert!(served, "it waits for the daemon");
    drop(beside);
    is_whole(&scratch, &slot);
}

#[test]
fn the_kernel_says_where_a_name_leads() {
    let Some((scratch, slot)) = mounted("the_kernel_says_where") else { return };
    let mut beside = Beside::new(&scratch);
    beside.bind();
    beside.mount(&["-t", "tmpfs"], Path::new("none"), "strict");
    succeeds(&task(&scratch, "judged").output().unwrap());
    drop(beside);
    is_whole(&scratch, &slot);
}

/// One of two places at each moment, and never nothing: a link is replaced all the time.
#[test]
fn a_link_that_is_replaced_leads_to_one_place_or_the_other() {
    let Some((scratch, slot)) = mounted("a_link_that_is_replaced") else { return };
    let beside = Beside::new(&scratch);
    succeeds(&task(&scratch, "replaced").output().unwrap());
    drop(beside);
    is_whole(&scratch, &slot);
}

/// The text of a link was read in one folder, and what it says begins in that folder: another one took its place
/// between the two, and led to a third.
#[test]
fn a_folder_that_is_replaced_leads_to_one_place_or_the_other() {
    let Some((scratch, slot)) = mounted("a_folder_that_is_replaced") else { return };
    let beside = Beside::new(&scratch);
    succeeds(&task(&scratch, "replaced_folder").output().unwrap());
    drop(beside);
    is_whole(&scratch, &slot);
}

/// A thread that waits for a file system that hangs kept the others from starting programs: they were told to
/// try again. Its question was this library's, or its own call.
#[test]
fn who_waits_for_a_file_system_keeps_nobody_from_exec() {
    let Some((scratch, slot)) = mounted("who_waits_for_a_file_system") else { return };
    let hung = PathBuf::from(scratch.dir()).parent().unwrap().join("hung");
    let other = scratch.slot("other");
    novale(&["mkfs", "--size", "16M", &other]).ok();
    fs::create_dir(&hung).unwrap();
    novale(&["mount", &other, hung.to_str().unwrap()]).ok();
    for call in ["stat_while_it_hangs", "chdir_while_it_hangs"] {
        let daemon = Stopped::daemon_of(&other);
        let output = task(&scratch, call).output().unwrap();
        drop(daemon);
        assert!(succeeds(&output).ends_with("started\n"), "{call}");
    }
    novale(&["umount", hung.to_str().unwrap()]).ok();
    is_whole(&scratch, &slot);
}

/// What a process has open elsewhere may have the path of something else here: 64 bytes of it were taken for a
/// link's text, since that is what the kernel says is its length.
#[test]
fn the_kernel_goes_by_links_of_processes() {
    let Some((scratch, slot)) = mounted("the_kernel_goes_by_links") else { return };
    let beside = Beside::new(&scratch);
    let long = 64 - scratch.dir().len() - 1;
    let [here, there] = ["a", "b"].map(|letter| scratch.in_dir(&letter.repeat(long)));
    for (folder, text) in [(&here, "here"), (&there, "there")] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("file"), text).unwrap();
    }
    // Another namespace of mounts has the second one in the place of the first.
    let script = "mount --bind \"$2\" \"$1\" && cd \"$1\" && exec sleep 600 <\"$1\"";
    let mut holder = Command::new("unshare");
    holder.args(["-m", "sh", "-c", script, "sh"]).arg(&here).arg(&there);
    let mut holder = holder.spawn().unwrap();
    let process = PathBuf::from(format!("/proc/{}", holder.id()));
    let shown = || fs::read_link(process.join("fd/0")).is_ok_and(|path| path == here);
    assert!(support::eventually(shown));
    let link = beside.folder.join("process");
    symlink(&process, &link).unwrap();
    let read = task(&scratch, "by_links_of_processes").output().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    succeeds(&read);
    drop(beside);
    is_whole(&scratch, &slot);
}

/// Through a mount that is to be read alone the kernel refuses changes; under `--strict` a program that comes
/// to one ends, since nothing there is served.
#[test]
fn what_is_shown_read_only_is_the_kernels() {
    let Some((scratch, slot)) = mounted("what_is_shown_read_only") else { return };
    let mut beside = Beside::new(&scratch);
    beside.mount(&["-o", "bind,ro"], &beside.folder.join("dir/d"), "closed");
    fs::write(scratch.in_dir("d/file"), "text").unwrap();
    let run = |options: &[&str], outside: &str| {
        let mut command = Command::new(program());
        command.env("NOVALE_OUTSIDE", outside);
        command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir()).arg("run");
        command.args(options).args(["--mount", &scratch.dir(), "--"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "tasks::read_only", "--ignored", "--nocapture"]);
        command.stdin(Stdio::null()).output().unwrap()
    };
    succeeds(&run(&[], "1"));
    // Where names from outside are to be the kernel's nothing is promised of them.
    succeeds(&run(&["--strict"], "0"));
    let ended = run(&["--strict"], "1");
    assert_eq!(ended.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("by another mount of it"));
    drop(beside);
    is_whole(&scratch, &slot);
}

/// The administrator followed a link of its own, in a folder for all, and then one that another user had put
/// in its place; and who has no capabilities comes to no link in another's closed folder.
#[test]
fn the_kernel_says_who_follows_a_link() {
    let Some((scratch, slot)) = mounted("the_kernel_says_who") else { return };
    let beside = Beside::new(&scratch);
    let setting = "/proc/sys/fs/protected_symlinks";
    let before = fs::read_to_string(setting).unwrap();
    fs::write(setting, "1").unwrap();
    let all = beside.folder.join("all");
    fs::create_dir(&all).unwrap();
    fs::set_permissions(&all, fs::Permissions::from_mode(0o1777)).unwrap();
    let output = task(&scratch, "follows").output().unwrap();
    fs::write(setting, before).unwrap();
    succeeds(&output);
    let closed = beside.folder.join("closed");
    fs::create_dir(&closed).unwrap();
    symlink(scratch.dir(), closed.join("link")).unwrap();
    let without = ["--bounding-set=-all", "--inh-caps=-all", "--"];
    let task = task(&scratch, "comes");
    let mut command = Command::new("setpriv");
    command.args(without).arg(task.get_program()).args(task.get_args());
    command.envs(task.get_envs().map(|(name, value)| (name, value.unwrap())));
    let [ready, closed_now] = ["ready", "closed-now"].map(|name| beside.folder.join(name));
    for fifo in [&ready, &closed_now] {
        assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    }
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    fs::read(&ready).unwrap();
    chown(&closed, Some(OTHER), Some(OTHER)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&closed_now, "").unwrap();
    succeeds(&running.wait_with_output().unwrap());
    drop(beside);
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::io::{ErrorKind, Read};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{lchown, symlink};
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::OTHER;
    use super::harness::{PLACE, calls};

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn fails_with<T: std::fmt::Debug>(result: std::io::Result<T>, errno: i32) {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn all_names() {
        let folder = place().parent().unwrap().to_owned();
        let ways = ["link", "near", "deep", "bound"].map(|way| folder.join(way));
        fs::write(place().join("file"), "text").unwrap();
        fs::write(place().join("d/file"), "text").unwrap();
        let open = File::open(folder.join("bound")).unwrap();
        for way in &ways {
            assert_eq!(fs::metadata(way.join("file")).unwrap().len(), 4);
        }
        // A relative link that leads deeper is followed from where the path starts.
        let relative = ["link", "chain"].map(Path::new);
        std::env::set_current_dir(&folder).unwrap();
        for way in relative {
            assert_eq!(fs::metadata(way.join("file")).unwrap().len(), 4);
        }
        std::env::set_current_dir(folder.join("bound")).unwrap();
        // The kernel has met these, and looks when one of their names goes.
        for name in ["file", "d/file"] {
            fs::remove_file(place().join(name)).unwrap();
            fs::write(place().join(name), "text").unwrap();
        }
        fs::write(folder.join("ready"), "").unwrap();
        std::io::stdin().read_exact(&mut [0; 5]).unwrap();
        for way in &ways {
            calls::names(way);
            if !way.ends_with("bound") {
                calls::files(way);
            }
        }
        // The kernel has these directories open, which are of another mount of the pool.
        calls::names(Path::new(""));
        let path = CString::new("file").unwrap();
        let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
        let got = unsafe { libc::fstatat(open.as_raw_fd(), path.as_ptr(), found.as_mut_ptr(), 0) };
        assert_eq!((got, unsafe { found.assume_init() }.st_size), (0, 4));
        std::env::set_current_dir(&folder).unwrap();
        relative.into_iter().for_each(calls::names);
        fs::write("done", "").unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn judged() {
        let folder = place().parent().unwrap().to_owned();
        let at = |name: &str| folder.join(name);
        fs::write(place().join("file"), "text").unwrap();
        fs::write(place().join("d/inner"), "text").unwrap();
        symlink("../file", place().join("d/up")).unwrap();
        symlink(place().join("file"), place().join("d/far")).unwrap();
        // Mounts are different ones, whatever they show.
        fails_with(fs::rename(at("bound/inner"), at("link/moved")), libc::EXDEV);
        fails_with(fs::rename(at("link/file"), at("bound/moved")), libc::EXDEV);
        fails_with(fs::hard_link(at("bound/inner"), at("deep/linked")), libc::EXDEV);
        // That something is there already is said before it.
        fails_with(fs::hard_link(at("bound/inner"), at("deep/inner")), libc::EEXIST);
        opened_by_another_mount(&folder);
        fs::rename(at("deep/inner"), at("link/inner")).unwrap();
        fs::rename(at("near/inner"), place().join("d/inner")).unwrap();
        // What a part of the mount is shown in has another folder above it.
        assert_eq!(fs::metadata(at("deep/up")).unwrap().len(), 4);
        fails_with(fs::metadata(at("bound/up")), libc::ENOENT);
        fails_with(fs::metadata(at("bound/../file")), libc::ENOENT);
        assert_eq!(fs::metadata(at("bound/far")).unwrap().len(), 4);
        assert_eq!(fs::metadata(at("deep/../file")).unwrap().len(), 4);
        assert_eq!(mount_number(&at("bound/inner")), number_in_table(&at("bound")));
        assert_eq!(mount_number(&at("deep/inner")), number_in_table(&place()));
        // A name that leads elsewhere now.
        fs::remove_file(at("link")).unwrap();
        fails_with(fs::metadata(at("link/file")), libc::ENOENT);
        fs::create_dir(at("link")).unwrap();
        fails_with(fs::metadata(at("link/file")), libc::ENOENT);
        fs::write(at("link/file"), "others").unwrap();
        assert_eq!(fs::metadata(at("link/file")).unwrap().len(), 6);
        fs::remove_dir_all(at("link")).unwrap();
        symlink("deep", at("link")).unwrap();
        assert_eq!(fs::metadata(at("link/inner")).unwrap().len(), 4);
        assert_eq!(fs::metadata(at("link/file")).unwrap_err().kind(), ErrorKind::NotFound);
        // A mount in which no links are followed.
        symlink(place().join("d"), at("strict/link")).unwrap();
        assert_eq!(fs::metadata(at("strict/link/inner")).unwrap().len(), 4);
        let again =
            Command::new("mount").args(["-o", "remount,nosymfollow"]).arg(at("strict")).status();
        assert!(again.unwrap().success());
        fails_with(fs::metadata(at("strict/link/inner")), libc::ELOOP);
    }

    /// A file has the mount that it was opened by.
    fn opened_by_another_mount(folder: &Path) {
        let file = File::open(folder.join("bound/inner")).unwrap();
        let own = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let to = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
        let link = |from: &CString, to: &CString, flags| {
            let (fd, from, to) = (file.as_raw_fd(), from.as_ptr(), to.as_ptr());
            let done = unsafe { libc::linkat(fd, from, libc::AT_FDCWD, to, flags) };
            if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        let empty = CString::default();
        for (from, flags) in [(&own, libc::AT_SYMLINK_FOLLOW), (&empty, libc::AT_EMPTY_PATH)] {
            fails_with(link(from, &to("dir/d/linked"), flags), libc::EXDEV);
            fails_with(link(from, &to("dir/d/inner"), flags), libc::EEXIST);
            link(from, &to("bound/linked"), flags).unwrap();
            fs::remove_file(folder.join("dir/d/linked")).unwrap();
        }
        // The kernel passes over flags that mean nothing, and `O_SYNC` has two bits.
        let (by, only_sync) = (to("bound/inner"), libc::O_SYNC & !libc::O_DSYNC);
        let other = unsafe { libc::open(by.as_ptr(), libc::O_RDWR | only_sync | 0x14) };
        let flags = unsafe { libc::fcntl(other, libc::F_GETFL) };
        assert_eq!(flags & !0o100_000, libc::O_RDWR | libc::O_SYNC);
        assert_eq!(unsafe { libc::close(other) }, 0);
        let number = number_of(file.as_raw_fd(), &empty, libc::AT_EMPTY_PATH);
        assert_eq!(number, number_in_table(&folder.join("bound")));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn by_links_of_processes() {
        let link = place().parent().unwrap().join("process");
        for way in ["fd/0", "cwd"] {
            let file = link.join(way).join("file");
            for _ in 0..3 {
                assert_eq!(fs::metadata(&file).unwrap().len(), 5, "{way}");
                assert_eq!(fs::read_to_string(&file).unwrap(), "there", "{way}");
            }
        }
    }

    /// Becomes another program while another thread makes a call that does not end.
    fn start_beside(call: impl Fn() + Send + 'static) {
        std::thread::spawn(call);
        std::thread::sleep(Duration::from_millis(500));
        let failed = Command::new("echo").arg("started").exec();
        assert_eq!(failed.raw_os_error(), None);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn stat_while_it_hangs() {
        let hung = place().parent().unwrap().join("hung");
        start_beside(move || drop(fs::metadata(hung.join("folder/file"))));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn chdir_while_it_hangs() {
        let hung = place().parent().unwrap().join("hung");
        start_beside(move || drop(std::env::set_current_dir(hung.join("folder"))));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn follows() {
        let all = place().parent().unwrap().join("all");
        fs::write(place().join("d/file"), "text").unwrap();
        let link = all.join("link");
        symlink(place().join("d/file"), &link).unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"text");
        assert_eq!(fs::metadata(&link).unwrap().len(), 4);
        lchown(&link, Some(OTHER), None).unwrap();
        fails_with(fs::metadata(&link), libc::EACCES);
        fails_with(fs::read(&link), libc::EACCES);
        fails_with(fs::write(&link, "other"), libc::EACCES);
        // Before the end of a path it is followed.
        fs::remove_file(&link).unwrap();
        symlink(place().join("d"), &link).unwrap();
        assert_eq!(fs::read(link.join("file")).unwrap(), b"text");
        lchown(&link, Some(OTHER), None).unwrap();
        assert_eq!(fs::read(link.join("file")).unwrap(), b"text");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn comes() {
        let above = place().parent().unwrap().to_owned();
        let file = above.join("closed/link/file");
        fs::write(place().join("file"), "text").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"text");
        assert_eq!(fs::metadata(&file).unwrap().len(), 4);
        fs::write(above.join("ready"), "").unwrap();
        fs::read(above.join("closed-now")).unwrap();
        fails_with(fs::metadata(&file), libc::EACCES);
        fails_with(fs::read(&file), libc::EACCES);
        fails_with(fs::remove_file(&file), libc::EACCES);
    }

    fn mount_number(path: &Path) -> u64 {
        number_of(libc::AT_FDCWD, &CString::new(path.as_os_str().as_bytes()).unwrap(), 0)
    }

    fn number_of(dir: i32, path: &CString, flags: i32) -> u64 {
        let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
        let mask = libc::STATX_BASIC_STATS;
        let got = unsafe { libc::statx(dir, path.as_ptr(), flags, mask, found.as_mut_ptr()) };
        assert_eq!(got, 0);
        unsafe { found.assume_init() }.stx_mnt_id
    }

    fn number_in_table(mount: &Path) -> u64 {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_mount = |line: &&str| line.split(' ').nth(4) == mount.to_str();
        let line = table.lines().find(of_mount).unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaced() {
        let folder = place().parent().unwrap().to_owned();
        fs::create_dir_all(folder.join("other")).unwrap();
        fs::write(folder.join("other/file"), "others").unwrap();
        fs::write(place().join("file"), "text").unwrap();
        fs::write(place().join("d/file"), "deeper").unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (turn, to) in
                    ["other", "dir", "dir/d", "near"].iter().cycle().take(4000).enumerate()
                {
                    let new = folder.join(format!("new-{turn}"));
                    symlink(to, &new).unwrap();
                    fs::rename(&new, folder.join("link")).unwrap();
                }
                ended.store(true, Ordering::Release);
            });
            let mut seen = [0; 7];
            while !ended.load(Ordering::Acquire) {
                let len = fs::metadata(folder.join("link/file")).unwrap().len();
                assert!([4, 6].contains(&len), "{len}");
                let text = fs::read_to_string(folder.join("link/file")).unwrap();
                assert!(["text", "others", "deeper"].contains(&text.as_str()), "{text}");
                seen[text.len()] += 1;
            }
            assert!(seen[4] > 0 && seen[6] > 0);
        });
        fs::remove_dir_all(folder.join("other")).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaced_folder() {
        let mount = place();
        let folder = mount.parent().unwrap().to_owned();
        let at = |name: &str| folder.join(name);
        // Each link of two says by a link beside it where it leads: of the other pair it leads to `third`.
        for (number, (text, other)) in [("one", "two"), ("two", "one")].iter().enumerate() {
            let pair = at(&format!("pair-{number}"));
            fs::create_dir(&pair).unwrap();
            for place in [format!("d/{text}"), format!("third/{other}")] {
                fs::create_dir_all(mount.join(&place)).unwrap();
            }
            fs::write(mount.join("d").join(text).join("file"), "text").unwrap();
            fs::write(mount.join("third").join(other).join("file"), "wrong!").unwrap();
            symlink(format!("{text}-way/{text}"), pair.join("link")).unwrap();
            symlink(mount.join("d"), pair.join(format!("{text}-way"))).unwrap();
            symlink(mount.join("third"), pair.join(format!("{other}-way"))).unwrap();
        }
        symlink("pair-0", at("pair")).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..6000 {
                    symlink(format!("pair-{}", turn % 2), at("new")).unwrap();
                    fs::rename(at("new"), at("pair")).unwrap();
                }
                ended.store(true, Ordering::Release);
            });
            while !ended.load(Ordering::Acquire) {
                assert_eq!(fs::metadata(at("pair/link/file")).unwrap().len(), 4);
            }
        });
        for pair in ["pair-0", "pair-1"] {
            fs::remove_dir_all(at(pair)).unwrap();
        }
        fs::remove_file(at("pair")).unwrap();
    }

    #[test]
    #[ignore = "a task of another test"]
    fn read_only() {
        let closed = place().parent().unwrap().join("closed");
        let refused = |error: std::io::Error| {
            assert_eq!(error.raw_os_error(), Some(libc::EROFS), "{error}");
        };
        assert_eq!(fs::metadata(closed.join("file")).unwrap().len(), 4);
        refused(fs::remove_file(closed.join("file")).unwrap_err());
        refused(fs::create_dir(closed.join("made")).unwrap_err());
        refused(fs::rename(closed.join("file"), closed.join("moved")).unwrap_err());
        refused(fs::write(closed.join("file"), "other").unwrap_err());
        assert_eq!(fs::read(place().join("d/file")).unwrap(), b"text");
    }
}
