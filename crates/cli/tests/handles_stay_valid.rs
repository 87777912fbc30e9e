//! Promise: a file handle of a mount leads to its file or directory for as long as that exists,
//! through mounts of the pool, and to nothing else afterwards. NFS servers hand such handles out.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at what fails")]
#![allow(clippy::indexing_slicing, reason = "a missing line is a failure")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{Scratch, eventually, novale};

/// `name PATH...` prints the handles of paths, `open MOUNT HANDLE...` where handles lead: the inode
/// number and path, or the name of the error.
const SCRIPT: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
def name(path):
    handle, mount = Handle(len=128), ctypes.c_int()
    failed = libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0)
    return errno.errorcode[ctypes.get_errno()] if failed else \
        "%d:%s" % (handle.type, bytes(handle.bytes[:handle.len]).hex())
def lead(mount, text):
    kind, data = text.split(":")
    data = bytes.fromhex(data)
    handle = Handle(len(data), int(kind), (ctypes.c_ubyte * 128)(*data))
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    said = "%d %s" % (os.fstat(fd).st_ino, os.readlink("/proc/self/fd/%d" % fd))
    os.close(fd)
    return said
if sys.argv[1] == "name":
    print("\n".join(map(name, sys.argv[2:])))
else:
    mount = os.open(sys.argv[2], os.O_RDONLY)
    print("\n".join(lead(mount, handle) for handle in sys.argv[3:]))
"#;

fn script<A: AsRef<std::ffi::OsStr>>(command: &str, arguments: &[A]) -> Option<Vec<String>> {
    let output = Command::new("python3").args(["-c", SCRIPT, command]).args(arguments).output();
    let Ok(output) = output else {
        println!("skipped: handles_stay_valid: no python3");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// Where handles lead on the mount.
fn lead(scratch: &Scratch, handles: &[String]) -> Vec<String> {
    let mut arguments = vec![scratch.dir()];
    arguments.extend_from_slice(handles);
    script("open", &arguments).unwrap()
}

fn number(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).unwrap().ino()
}

/// Unmounts; a program that the other test starts at this moment has a copy of what is open here.
fn unmount(scratch: &Scratch) {
    assert!(eventually(|| novale(&["umount", &scratch.dir()]).code == 0));
}

/// Whatever the kernel remembers of names and inodes that nobody uses goes.
fn forget() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

#[test]
fn while_the_pool_is_mounted_and_when_it_is_mounted_again() {
    let Some(scratch) = Scratch::for_mount("handles_while_the_pool_is_mounted") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    fs::create_dir_all(scratch.in_dir("a/b/c")).unwrap();
    fs::create_dir(scratch.in_dir("d")).unwrap();
    fs::write(scratch.in_dir("a/b/c/file"), b"deep").unwrap();
    let names = ["", "a", "a/b/c", "d", "a/b/c/file"];
    let paths = names.map(|name| scratch.in_dir(name));
    let Some(handles) = script("name", &paths) else { return };
    let shown = |path: &Path| format!("{} {}", number(path), path.display());
    let inos = paths.each_ref().map(|path| number(path));
    forget();
    for (led, path) in lead(&scratch, &handles).iter().zip(&paths).take(4) {
        assert_eq!(*led, shown(path).trim_end_matches('/'));
    }
    // Directories are found by their names upwards, a file needs none.
    fs::rename(scratch.in_dir("a/b"), scratch.in_dir("d/moved")).unwrap();
    unmount(&scratch);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let led = lead(&scratch, &handles);
    assert_eq!(led[1], shown(&scratch.in_dir("a")));
    assert_eq!(led[2], format!("{} {}", inos[2], scratch.in_dir("d/moved/c").display()));
    assert!(led[4].starts_with(&format!("{} ", inos[4])), "{led:?}");
    assert_eq!(number(&scratch.in_dir("d/moved/c/file")), inos[4]);
    assert_eq!(fs::read_dir(scratch.in_dir("")).unwrap().count(), 2);
    unmount(&scratch);
    novale(&["check", &slot]).ok();
}

#[test]
fn of_what_is_removed_they_are_stale_also_when_its_number_is_used_again() {
    let Some(scratch) = Scratch::for_mount("handles_of_what_is_removed") else { return };
    let slot = scratch.pool();
    // Each thread makes files of numbers that are its own for a while.
    novale(&["mount", "--threads", "1", &slot, &scratch.dir()]).ok();
    let (file, folder) = (scratch.in_dir("file"), scratch.in_dir("folder"));
    fs::write(&file, b"first").unwrap();
    fs::create_dir(&folder).unwrap();
    let Some(handles) = script("name", &[&file, &folder]) else { return };
    let inos = [number(&file), number(&folder)];
    fs::remove_file(&file).unwrap();
    fs::remove_dir(&folder).unwrap();
    // The kernel has the inode until the release of the written file is answered, after its close.
    assert!(eventually(|| lead(&scratch, &handles) == ["ESTALE", "ESTALE"]));
    let again = |ino| {
        let names = (0..2000).map(|index| scratch.in_dir(&format!("again-{ino}-{index}")));
        names.take_while(|name| fs::write(name, b"x").is_ok()).any(|name| number(&name) == ino)
    };
    assert!(inos.into_iter().all(again), "numbers are not used again");
    assert_eq!(lead(&scratch, &handles), ["ESTALE", "ESTALE"]);
    forget();
    assert_eq!(lead(&scratch, &handles), ["ESTALE", "ESTALE"]);
    unmount(&scratch);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    // Numbers that nobody ever had: the next chunk's, 0, and the greatest.
    let never = [8200, 0, u64::MAX].map(|ino| {
        // The number's upper half comes first, then the generation; all little-endian.
        let swapped = ino.rotate_right(32).swap_bytes();
        format!("129:{swapped:016x}01000000")
    });
    let all = [&handles[..], &never].concat();
    assert!(lead(&scratch, &all).iter().all(|led| led == "ESTALE"), "{:?}", lead(&scratch, &all));
    unmount(&scratch);
}
