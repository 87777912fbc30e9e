//! Promise: set-id bits fall as they do on the machine's own file system, whatever a caller without
//! privilege changes (the rules of xfstests' generic/193, 314, 355, 673 and 683 to 688).

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use novale_core::{Ctx, Ino, Node, SetAttr};
use support::{Mount, NOBODY, as_nobody};
use tempfile::TempDir;

/// What is done to the file `f`, as a shell command.
const CHANGES: [&str; 20] = [
    "printf x | dd of=f conv=notrunc status=none",
    "printf x >> f",
    "dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc oflag=direct status=none",
    ": > f",
    "truncate -s 3 f",
    "truncate -s 9000 f",
    "fallocate -l 20000 f",
    "fallocate -n -l 20000 f",
    "fallocate -p -o 0 -l 8192 f",
    "fallocate -p -o 10 -l 20 f",
    "fallocate -z -l 8192 f",
    "fallocate -z -n -l 8192 f",
    FALLOCATE_BY_I386,
    "python3 -c 'import os; f = os.open(\"f\", os.O_RDWR); os.copy_file_range(f, f, 10, 0, 5000)'",
    "chgrp $(id -g) f",
    "chown $(id -u) f",
    "python3 -c 'import os; os.chown(\"f\", -1, -1)' 2>/dev/null || echo refused",
    "exec 3<f; python3 -c 'import os; os.chown(3, -1, -1)' 2>/dev/null || echo refused",
    "touch f",
    "cat f",
];

/// `fallocate(f, 0, 0, 10000)` by the numbers of programs of 32 bits, which those of 64 bits can call too (`int 0x80`).
/// Where that ends it, on other processors for one, it says nothing.
const FALLOCATE_BY_I386: &str = "python3 -c '
import ctypes, mmap, os
code = bytes.fromhex(\"535589fbb84401000031c931d231f6bf1027000031edcd805d5bc3\")
at = mmap.mmap(-1, 4096, prot=7)
at.write(code)
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(at)))
print(call(os.open(\"f\", os.O_RDWR)))'";

const MODES: [u32; 4] = [0o6666, 0o6676, 0o6777, 0o2666];

/// Who changes the file, as setpriv(1) is told: a user, root, root without the right to keep such bits, and a user
/// with it.
const CALLERS: [&[&str]; 4] = [
    &["--reuid=65534", "--regid=65534"],
    &["--reuid=0", "--regid=0"],
    &["--regid=0", "--bounding-set=-fsetid"],
    &["--reuid=65534", "--regid=65534", "--inh-caps=+fsetid", "--ambient-caps=+fsetid"],
];

/// The caller's other group.
const OTHER_GROUP: u32 = 12_345;

/// Owner and group of the file: neither is the caller's, both, one of them, the group another of his.
const OWNERS: [(u32, u32); 5] =
    [(0, 0), (NOBODY, NOBODY), (NOBODY, 0), (0, NOBODY), (0, OTHER_GROUP)];

/// Makes the file, changes it as `caller`, and tells what was said and the mode left; none where the change
/// failed.
fn changed(
    folder: &Path,
    change: &str,
    mode: u32,
    (uid, gid): (u32, u32),
    caller: &[&str],
) -> Option<String> {
    let file = folder.join("f");
    fs::write(&file, [7; 6000]).unwrap();
    chown(&file, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    let mut shell = Command::new("setpriv");
    shell.args(caller).arg(format!("--groups={OTHER_GROUP}")).args(["/bin/sh", "-c", change]);
    let output = shell.current_dir(folder).output().unwrap();
    let left = fs::metadata(&file).unwrap().mode() & 0o7777;
    fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| format!("{said}{left:o}"))
}

#[test]
fn set_id_bits_fall_as_on_the_machines_own_file_system() {
    let Some(mount) = Mount::new("set_id_bits_fall_as_on_the_machines_own_file_system", "") else {
        return;
    };
    let reference = TempDir::new().unwrap();
    fs::set_permissions(reference.path(), Permissions::from_mode(0o755)).unwrap();
    let (mut compared, mut different) = (0, Vec::new());
    let callers = |change| CALLERS.into_iter().map(move |caller| (change, caller));
    for (change, caller) in CHANGES.into_iter().flat_map(callers) {
        // Of root's changes a few say all.
        let is_user = caller == CALLERS[0];
        let modes = MODES.into_iter().skip(if is_user { 0 } else { 2 });
        let owners = OWNERS.into_iter().take(if is_user { OWNERS.len() } else { 1 });
        for (mode, owner) in modes.flat_map(|mode| owners.clone().map(move |owner| (mode, owner))) {
            let run = |folder| changed(folder, change, mode, owner, caller);
            let (expected, found) = (run(reference.path()), run(mount.root()));
            // What the reference can't do says nothing.
            if expected.is_some() && expected != found {
                let what = format!("{change}, by {caller:?}, of {owner:?}, mode {mode:o}");
                different.push(format!("{what}: expected {expected:?}, found {found:?}"));
            }
            compared += u32::from(expected.is_some());
        }
    }
    assert!(compared > 250, "only {compared} changes could be made here");
    assert!(different.is_empty(), "{} of {compared}:\n{}", different.len(), different.join("\n"));
}

/// Changes owners in a folder, as users with each set of the capabilities that count, and tells what came of it.
const OWNERS_CHANGED: &str = r"
import ctypes, itertools, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
path = os.path.join(sys.argv[1], 'f')
CHOWN, SEARCH, OVERRIDE, FOWNER, FSETID = 0, 1, 2, 3, 4
def become(uid, have):
    bits = sum(1 << one for one in have)
    os.setgroups([])
    libc.prctl(8, 1, 0, 0, 0)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    header = struct.pack('Ii', 0x20080522, 0)
    assert libc.capset(header, struct.pack('6I', bits, bits, 0, 0, 0, 0)) == 0
def change(call, uid, have):
    become(uid, have)
    try:
        if call == 'fd':
            os.chown(os.open(path, os.O_RDONLY), -1, -1)
        else:
            os.chown(path, *call)
        return 0
    except OSError as error:
        return error.errno
sets = [some for n in range(4) for some in itertools.combinations((CHOWN, FOWNER, FSETID), n)]
modes, owners = (0o4755, 0o2644, 0o6711, 0o644), ((1000, 1000), (1000, 7), (2000, 2000))
calls = ((-1, -1), 'fd', (5, -1), (-1, 7))
for case in itertools.product((0, 1000), sets, modes, owners, calls):
    uid, some, mode, owner, call = case
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    os.chown(path, *owner)
    os.chmod(path, mode)
    child = os.fork()
    if child == 0:
        os._exit(change(call, uid, some + (SEARCH, OVERRIDE)))
    ended = os.waitpid(child, 0)[1]
    found = os.stat(path)
    print(case, ended >> 8, oct(found.st_mode), found.st_uid, found.st_gid)
    os.unlink(path)
";

/// The kernel leaves set-id bits to us, and with them the question whether the caller may take them: root without
/// `CAP_FOWNER` took them from everybody's files, and who has it without being root was refused.
#[test]
fn who_may_take_set_id_bits_by_a_change_of_owner_is_who_may_elsewhere() {
    let name = "who_may_take_set_id_bits_by_a_change_of_owner_is_who_may_elsewhere";
    let Some(mount) = Mount::new(name, "") else { return };
    let reference = TempDir::new().unwrap();
    for folder in [reference.path(), mount.root()] {
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    }
    let run = |folder| support::python(name, OWNERS_CHANGED, &[folder]);
    let (Some(expected), Some(found)) = (run(reference.path()), run(mount.root())) else { return };
    let pairs = expected.lines().zip(found.lines());
    let different: Vec<_> = pairs.filter(|(expected, found)| expected != found).collect();
    assert!(expected.lines().count() == 768 && found.lines().count() == 768);
    assert!(different.is_empty(), "{} of 768:\n{different:#?}", different.len());
}

/// Gives a file set-id bits that the kernel does not know of, as a direct program does after the kernel has asked; then
/// has a user change the file.
fn changed_unseen(mount: &Mount, change: &str) {
    let path = mount.path("f");
    fs::write(&path, vec![1; 9000]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let ino = Ino::new(fs::metadata(&path).unwrap().ino());
    let given = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
    mount.fs.setattr(&Ctx { now_ns: 1, hint: 0 }, Node::current(ino), &given).unwrap();
    assert!(as_nobody(mount.root(), change), "{change}");
    assert_eq!(mount.fs.getattr(ino).unwrap().mode, 0o777, "{change}");
}

#[test]
fn bits_that_the_kernel_has_not_seen_fall_by_fallocate() {
    let Some(mount) = Mount::new("bits_that_the_kernel_has_not_seen", "") else { return };
    for how in ["-l 20000", "-n -l 20000", "-p -o 0 -l 4096", "-z -l 4096", "-z -n -l 4096"] {
        changed_unseen(&mount, &format!("fallocate {how} f"));
    }
}

/// They stayed: another user who may write the file made its owner's program another one.
#[test]
fn bits_that_the_kernel_has_not_seen_fall_by_a_copy() {
    let Some(mount) = Mount::new("bits_that_the_kernel_has_not_seen_copy", "") else { return };
    if support::python("bits_that_the_kernel_has_not_seen_copy", "", &[]).is_none() {
        return;
    }
    fs::write(mount.path("other"), vec![2; 100]).unwrap();
    for from in ["other", "f"] {
        let copy = format!("os.copy_file_range(os.open('{from}', os.O_RDONLY), to, 100, 0, 5000)");
        let program = format!("import os; to = os.open('f', os.O_WRONLY); assert {copy} == 100");
        changed_unseen(&mount, &format!("python3 -c \"{program}\""));
    }
}
