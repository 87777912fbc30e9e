//! Promise: extended attributes, and files without a name, are served in the process of a program
//! under `novale run`, as the kernel serves them where it can.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use harness::{is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds, task};

promises! {
    attributes_need_no_daemon: runs_without_the_daemon attributes;
    attributes_of_the_kernel_are_left_to_it: runs_with_the_daemon by_kernel;
    /// They were asked of what keeps a number here: a directory was none, and a file was no descriptor.
    flags_are_asked_of_what_a_number_leads_to: runs_with_the_daemon flags;
    /// A file that was empty already was left as it was: `: > stamp` changed no time, and it kept its
    /// capabilities, as those did whose owner was set to the one that they had.
    empty_files_are_emptied_all_the_same: runs_with_the_daemon empties;
    files_without_a_name_need_no_daemon: runs_without_the_daemon unnamed;
    children_use_files_without_a_name: runs_with_the_daemon inherited;
    /// The one who is not root may not open files by number: what a program had open when it gave up its
    /// rights could not be locked or inherited any more.
    who_gives_up_rights_keeps_files: runs_with_the_daemon rights;
}

#[test]
fn the_mount_tells_the_same_of_space() {
    let Some((scratch, slot)) = mounted("the_mount_tells_the_same_of_space") else { return };
    std::fs::write(scratch.in_dir("file"), vec![1; 100_000]).unwrap();
    let told = succeeds(&task(&scratch, "space").output().unwrap());
    let expected = tasks::told_of_space(std::path::Path::new(&scratch.dir()));
    assert!(told.contains(&expected), "{expected} not in {told}");
    is_whole(&scratch, &slot);
}

#[test]
fn the_mount_sees_the_same_attributes() {
    let Some((scratch, slot)) = mounted("the_mount_sees_the_same_attributes") else { return };
    let file = scratch.in_dir("file");
    std::fs::write(&file, b"").unwrap();
    rustix::fs::setxattr(&file, "user.mount", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    succeeds(&task(&scratch, "sees").output().unwrap());
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(&file, "user.direct", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"two");
    assert!(rustix::fs::getxattr(&file, "user.mount", &mut value[..]).is_err());
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::{CStr, CString};
    use std::fs::{self, File};
    use std::io::{Error, Read, Seek, SeekFrom, Write};
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
    use std::path::{Path, PathBuf};

    use super::harness::{PLACE, exits_with};

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn told(result: isize) -> Result<usize, i32> {
        usize::try_from(result).map_err(|_| Error::last_os_error().raw_os_error().unwrap())
    }

    #[test]
    #[ignore = "a task of another test"]
    fn flags() {
        /// `file_getattr` and `file_setattr`, with `struct file_attr`.
        const CALLS: [i64; 2] = [468, 469];
        let folder = File::open(place()).unwrap();
        let file = File::create(place().join("f")).unwrap();
        let ask = |call: i64, dir: i32, name: &CStr, how: i32| {
            let mut flags = [0_u64; 3];
            let (at, len) = (flags.as_mut_ptr(), size_of_val(&flags));
            let done = unsafe { libc::syscall(call, dir, name.as_ptr(), at, len, how) };
            told(isize::try_from(done).unwrap())
        };
        let by_number = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        for call in CALLS {
            let by_path = ask(call, libc::AT_FDCWD, &c(&place().join("f")), 0);
            assert_eq!(ask(call, folder.as_raw_fd(), c"f", 0), by_path);
            assert_eq!(ask(call, file.as_raw_fd(), c"", libc::AT_EMPTY_PATH), by_path);
            assert_eq!(ask(call, libc::AT_FDCWD, &by_number, 0), by_path);
        }
    }

    fn set(path: &Path, name: &CStr, value: &[u8], flags: i32) -> Result<usize, i32> {
        let (path, at) = (c(path), value.as_ptr().cast());
        let set = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), at, value.len(), flags) };
        told(set as isize)
    }

    fn get(path: &Path, name: &CStr, room: usize) -> Result<Vec<u8>, i32> {
        let (path, mut value) = (c(path), vec![0u8; room]);
        let at = value.as_mut_ptr().cast();
        let len = told(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), at, room) })?;
        value.truncate(len);
        Ok(value)
    }

    fn names(path: &Path) -> Vec<String> {
        let (path, mut names) = (c(path), vec![0u8; 4096]);
        let len = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), 4096) };
        let text = String::from_utf8(names[..told(len).unwrap()].to_vec()).unwrap();
        let mut names: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        names.sort();
        names
    }

    /// All that `statfs` says, and that `fstatfs` says the same.
    pub(super) fn told_of_space(path: &Path) -> String {
        let open = File::open(path).unwrap();
        let [mut of_path, mut of_file] = [std::mem::MaybeUninit::<libc::statfs>::zeroed(); 2];
        let done = unsafe { libc::statfs(c(path).as_ptr(), of_path.as_mut_ptr()) };
        assert_eq!(
            (done, unsafe { libc::fstatfs(open.as_raw_fd(), of_file.as_mut_ptr()) }),
            (0, 0)
        );
        let [of_path, of_file] = [of_path, of_file].map(|found| unsafe { found.assume_init() });
        assert_eq!(format!("{of_path:?}"), format!("{of_file:?}"));
        format!("{of_path:?}")
    }

    #[test]
    #[ignore = "a task of another test"]
    fn space() {
        println!("{}", told_of_space(&place()));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn attributes() {
        let path = place().join("file");
        let file = File::create(&path).unwrap();
        let long = vec![7; 65_536];
        assert_eq!(set(&path, c"user.a", b"one", libc::XATTR_REPLACE), Err(libc::ENODATA));
        assert_eq!(set(&path, c"user.a", b"one", libc::XATTR_CREATE), Ok(0));
        assert_eq!(set(&path, c"user.a", b"one", libc::XATTR_CREATE), Err(libc::EEXIST));
        assert_eq!(set(&path, c"user.a", b"three", 0), Ok(0));
        assert_eq!(set(&path, c"trusted.long", &long, 0), Ok(0));
        assert_eq!(set(&path, c"user.b", &[&long[..], &[0]].concat(), 0), Err(libc::E2BIG));
        assert_eq!(get(&path, c"user.a", 100).unwrap(), b"three");
        assert_eq!(get(&path, c"user.a", 4), Err(libc::ERANGE));
        assert_eq!(get(&path, c"user.c", 4), Err(libc::ENODATA));
        assert_eq!(get(&path, c"trusted.long", 65_536).unwrap(), long);
        assert_eq!(get(&path, c"system.posix_acl_access", 100), Err(libc::ENODATA));
        assert_eq!(get(&path, c"security.capability", 100), Err(libc::ENODATA));
        assert_eq!(names(&path), ["trusted.long", "user.a"]);
        let len = unsafe { libc::listxattr(c(&path).as_ptr(), std::ptr::null_mut(), 0) };
        assert_eq!(told(len), Ok("trusted.long.user.a.".len()));
        let bad =
            unsafe { libc::getxattr(c(&path).as_ptr(), c"user.a".as_ptr(), 8 as *mut _, 100) };
        assert_eq!(told(bad), Err(libc::EFAULT));

        let fd = file.as_raw_fd();
        let mut value = [0u8; 8];
        let set = unsafe { libc::fsetxattr(fd, c"user.f".as_ptr(), b"f".as_ptr().cast(), 1, 0) };
        assert_eq!(set, 0);
        let at = value.as_mut_ptr().cast();
        assert_eq!(unsafe { libc::fgetxattr(fd, c"user.f".as_ptr(), at, 8) }, 1);
        assert_eq!(value[0], b'f');
        assert_eq!(unsafe { libc::fremovexattr(fd, c"user.f".as_ptr()) }, 0);
        assert_eq!(unsafe { libc::flistxattr(fd, std::ptr::null_mut(), 0) }, 20);
        assert_eq!(unsafe { libc::removexattr(c(&path).as_ptr(), c"user.a".as_ptr()) }, 0);
        assert_eq!(names(&path), ["trusted.long"]);

        // A link's own attributes are the administrator's alone.
        let link = place().join("link");
        symlink("file", &link).unwrap();
        let own = unsafe {
            libc::lsetxattr(c(&link).as_ptr(), c"trusted.l".as_ptr(), b"l".as_ptr().cast(), 1, 0)
        };
        assert_eq!(own, 0);
        assert_eq!(get(&link, c"trusted.l", 10).unwrap(), b"l");
        assert_eq!(get(&path, c"trusted.l", 10), Err(libc::ENODATA));
        let user = unsafe {
            libc::lsetxattr(c(&link).as_ptr(), c"user.l".as_ptr(), b"l".as_ptr().cast(), 1, 0)
        };
        assert_eq!(told(user as isize), Err(libc::EPERM));
        assert_eq!(names(&link), ["trusted.long"]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn empties() {
        const CAPABILITY: &CStr = c"security.capability";
        let file = place().join("stamp");
        fs::write(&file, b"").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        let allow = || {
            let open = File::options().write(true).open(&file).unwrap();
            open.set_times(fs::FileTimes::new().set_modified(old)).unwrap();
            let mut value = [0; 20];
            value[..8].copy_from_slice(&[1, 0, 0, 2, 1, 0, 0, 0]);
            set(&file, CAPABILITY, &value, 0).unwrap();
        };
        let is_allowed = || get(&file, CAPABILITY, 20).is_ok();
        allow();
        assert!(is_allowed());
        File::options().write(true).truncate(true).open(&file).unwrap();
        assert!(fs::metadata(&file).unwrap().modified().unwrap() > old);
        assert!(!is_allowed());
        allow();
        std::os::unix::fs::chown(&file, None, None).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), old);
        assert!(!is_allowed());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn by_kernel() {
        let path = place().join("file");
        let file = File::create(&path).unwrap();
        // One entry for a user beside the three of the mode.
        let acl: Vec<u8> = [
            (1u16, 6u16, u32::MAX),
            (2, 4, 1000),
            (4, 4, u32::MAX),
            (16, 4, u32::MAX),
            (32, 0, u32::MAX),
        ]
        .iter()
        .fold(2u32.to_le_bytes().to_vec(), |mut bytes, (tag, permissions, id)| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
            bytes
        });
        assert_eq!(set(&path, c"system.posix_acl_access", &acl, 0), Ok(0));
        assert_eq!(get(&path, c"system.posix_acl_access", 100).unwrap(), acl);
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(&path), ["system.posix_acl_access"]);
        assert!(get(&path, c"trusted.novale.project", 100).is_ok());
        assert_eq!(get(&path, c"security.capability", 100), Err(libc::ENODATA));
        let fd = file.as_raw_fd();
        let none = unsafe { libc::fgetxattr(fd, 8 as *const _, std::ptr::null_mut(), 0) };
        assert_eq!(told(none), Err(libc::EFAULT));
        let long = CString::new(vec![b'u'; 300]).unwrap();
        let none = unsafe { libc::fgetxattr(fd, long.as_ptr(), std::ptr::null_mut(), 0) };
        assert_eq!(told(none), Err(libc::ERANGE));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn sees() {
        let path = place().join("file");
        assert_eq!(get(&path, c"user.mount", 10).unwrap(), b"1");
        assert_eq!(unsafe { libc::removexattr(c(&path).as_ptr(), c"user.mount".as_ptr()) }, 0);
        assert_eq!(set(&path, c"user.direct", b"two", 0), Ok(0));
    }

    fn open_unnamed(flags: i32) -> Result<File, i32> {
        let at = c(&place());
        let fd = unsafe { libc::open(at.as_ptr(), libc::O_TMPFILE | flags, 0o640) };
        told(fd as isize).map(|_| unsafe { File::from_raw_fd(fd) })
    }

    fn link(file: &File, to: &Path) -> Result<usize, i32> {
        let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let (cwd, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        let done = unsafe { libc::linkat(cwd, from.as_ptr(), cwd, c(to).as_ptr(), follow) };
        told(done as isize)
    }

    #[test]
    #[ignore = "a task of another test"]
    fn unnamed() {
        let named = place().join("named");
        let mut file = open_unnamed(libc::O_RDWR).unwrap();
        file.write_all(b"without a name").unwrap();
        assert_eq!(
            (file.metadata().unwrap().nlink(), file.metadata().unwrap().mode() & 0o777),
            (0, 0o640)
        );
        assert_eq!(fs::read_dir(place()).unwrap().count(), 1);
        assert_eq!(link(&file, &named), Ok(0));
        assert_eq!(fs::read(&named).unwrap(), b"without a name");
        assert_eq!(link(&file, &named), Err(libc::EEXIST));
        let other = open_unnamed(libc::O_WRONLY).unwrap();
        let (fd, at, empty) = (other.as_raw_fd(), libc::AT_FDCWD, libc::AT_EMPTY_PATH);
        let second = c(&place().join("second"));
        let done = unsafe { libc::linkat(fd, c"".as_ptr(), at, second.as_ptr(), empty) };
        assert_eq!(done, 0);
        let never = open_unnamed(libc::O_RDWR | libc::O_EXCL).unwrap();
        assert_eq!(link(&never, &place().join("never")), Err(libc::ENOENT));
        assert_eq!(open_unnamed(libc::O_RDONLY).err(), Some(libc::EINVAL));
        let wrong =
            unsafe { libc::open(c(&named).as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600) };
        assert_eq!(told(wrong as isize), Err(libc::ENOTDIR));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn inherited() {
        let mut file = open_unnamed(libc::O_RDWR).unwrap();
        file.write_all(b"parent ").unwrap();
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let good = file.write_all(b"child").is_ok() && link(&file, &place().join("c")).is_ok();
            unsafe { libc::_exit(i32::from(!good)) };
        }
        assert_eq!(exits_with(pid), 0);
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "parent child");
        assert_eq!(fs::read_to_string(place().join("c")).unwrap(), text);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn rights() {
        let mut file = File::create(place().join("file")).unwrap();
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o444);
        let mut unreadable = options.open(place().join("unreadable")).unwrap();
        assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
        file.write_all(b"mine").unwrap();
        unreadable.write_all(b"still").unwrap();
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let good = unreadable.write_all(b" there").is_ok();
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let status = exits_with(pid);
        assert_eq!((status, unreadable.metadata().unwrap().len()), (0, 11));
    }
}
