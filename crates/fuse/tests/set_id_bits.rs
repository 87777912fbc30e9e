//! Promise: set-id bits fall as they do on the machine's own file system, whatever a caller without
//! privilege changes (the rules of xfstests' generic/193, 314, 355, 673 and 683 to 688).

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use support::{Mount, NOBODY};
use tempfile::TempDir;

/// What is done to the file `f`, as a shell command.
const CHANGES: [&str; 19] = [
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
    "python3 -c 'import os; f = os.open(\"f\", os.O_RDWR); os.copy_file_range(f, f, 10, 0, 5000)'",
    "chgrp $(id -g) f",
    "chown $(id -u) f",
    "python3 -c 'import os; os.chown(\"f\", -1, -1)' 2>/dev/null || echo refused",
    "exec 3<f; python3 -c 'import os; os.chown(3, -1, -1)' 2>/dev/null || echo refused",
    "touch f",
    "cat f",
];

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
    // Of changes of owner the kernel does not say who has the right: of users none is taken to have it.
    let is_told = |change: &str, at: usize| at < 3 || !change.contains("os.chown");
    let callers = |change| {
        let all = CALLERS.into_iter().enumerate();
        all.filter(move |(at, _)| is_told(change, *at)).map(move |(_, caller)| (change, caller))
    };
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
