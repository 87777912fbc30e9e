//! Promise: through the mount, the file system behaves as POSIX and Linux say.

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{
    CWD, FallocateFlags, FileType, FlockOperation, Mode, RenameFlags, SeekFrom as From, Timespec,
    Timestamps, makedev, mknodat, renameat_with, seek,
};
use rustix::time::{ClockId, clock_gettime};
use support::{Mount, NOBODY, as_nobody, eventually, python};

fn mode_of(path: &std::path::Path) -> u32 {
    fs::metadata(path).map_or(u32::MAX, |meta| meta.mode() & 0o7777)
}

#[test]
fn proc_mounts_shows_the_source_and_the_type() {
    let Some(mount) = Mount::new("proc_mounts_shows_the_source_and_the_type", "noexec") else {
        return;
    };
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(mount.root().to_str().unwrap())).unwrap();
    assert!(line.starts_with("/slots/a\\040b:/slots/c "), "{line}");
    assert!(line.contains(" fuse.novale rw,noexec,relatime,"), "{line}");
    assert!(line.contains("default_permissions,allow_other"), "{line}");
}

#[test]
fn a_listing_is_complete_and_has_both_dots() {
    let Some(mount) = Mount::new("a_listing_is_complete_and_has_both_dots", "") else {
        return;
    };
    fs::create_dir(mount.path("d")).unwrap();
    let names: BTreeSet<String> =
        (0..700).map(|n| format!("{n:03}-{}", "x".repeat(n % 200))).collect();
    for name in &names {
        File::create(mount.path("d").join(name)).unwrap();
    }
    let listed = fs::read_dir(mount.path("d")).unwrap();
    let listed: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    let directory = File::open(mount.path("d")).unwrap();
    let raw: Vec<_> = rustix::fs::Dir::read_from(&directory).unwrap().map(Result::unwrap).collect();
    let number_of = |name: &[u8]| {
        raw.iter().find(|entry| entry.file_name().to_bytes() == name).map(rustix::fs::DirEntry::ino)
    };
    assert_eq!(number_of(b"."), Some(fs::metadata(mount.path("d")).unwrap().ino()));
    assert_eq!(number_of(b".."), Some(fs::metadata(mount.root()).unwrap().ino()));
}

#[test]
fn a_tree_can_be_removed_while_it_is_listed() {
    let Some(mount) = Mount::new("a_tree_can_be_removed_while_it_is_listed", "") else {
        return;
    };
    for n in 0..500 {
        fs::create_dir_all(mount.path(&format!("t/{}/{n}", n % 7))).unwrap();
    }
    fs::remove_dir_all(mount.path("t")).unwrap();
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
    assert_eq!(fs::metadata(mount.root()).unwrap().nlink(), 2);
}

#[test]
fn every_kind_of_inode_can_be_made() {
    let Some(mount) = Mount::new("every_kind_of_inode_can_be_made", "") else {
        return;
    };
    let node = |name: &str, kind, device| {
        let mode = Mode::from_raw_mode(0o640);
        mknodat(CWD, mount.path(name), kind, mode, device).unwrap();
        fs::symlink_metadata(mount.path(name)).unwrap()
    };
    assert!(node("fifo", FileType::Fifo, 0).file_type().is_fifo());
    assert!(node("socket", FileType::Socket, 0).file_type().is_socket());
    assert!(node("file", FileType::RegularFile, 0).file_type().is_file());
    let null = node("null", FileType::CharacterDevice, makedev(1, 3));
    assert!(null.file_type().is_char_device());
    assert_eq!((null.rdev(), null.mode() & 0o7777), (makedev(1, 3), 0o640));
    assert!(node("block", FileType::BlockDevice, makedev(1, 0)).file_type().is_block_device());
    File::options().write(true).open(mount.path("null")).unwrap().write_all(b"gone").unwrap();
    symlink("to/nowhere", mount.path("link")).unwrap();
    assert_eq!(fs::read_link(mount.path("link")).unwrap().to_str(), Some("to/nowhere"));
}

/// The clock by which files are stamped.
fn coarse() -> (i64, i64) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// Waits until it shows another time.
fn tick() {
    let before = coarse();
    while coarse() == before {
        std::hint::spin_loop();
    }
}

#[test]
fn links_and_times_are_right_at_once_under_every_name() {
    let Some(mount) = Mount::new("links_and_times_are_right_at_once_under_every_name", "") else {
        return;
    };
    let (a, b) = (mount.path("a"), mount.path("b"));
    fs::write(&a, b"1").unwrap();
    let before = fs::metadata(&a).unwrap();
    tick();
    fs::hard_link(&a, &b).unwrap();
    let linked = fs::metadata(&a).unwrap();
    assert_eq!((linked.nlink(), fs::metadata(&b).unwrap().nlink()), (2, 2));
    let ctime = |m: &fs::Metadata| (m.ctime(), m.ctime_nsec());
    assert!(ctime(&linked) > ctime(&before));
    tick();
    fs::rename(&b, mount.path("c")).unwrap();
    let renamed = fs::metadata(&a).unwrap();
    assert!(ctime(&renamed) > ctime(&linked));
    tick();
    fs::remove_file(&a).unwrap();
    let unlinked = fs::metadata(mount.path("c")).unwrap();
    assert_eq!(unlinked.nlink(), 1);
    assert!(ctime(&unlinked) > ctime(&renamed));
    tick();
    fs::write(&a, b"2").unwrap();
    let victim = File::open(mount.path("c")).unwrap();
    fs::rename(&a, mount.path("c")).unwrap();
    let gone = victim.metadata().unwrap();
    assert_eq!(gone.nlink(), 0);
    assert!(ctime(&gone) > ctime(&unlinked));
}

#[test]
fn rename_takes_its_flags() {
    let Some(mount) = Mount::new("rename_takes_its_flags", "") else {
        return;
    };
    fs::write(mount.path("a"), b"a").unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/b"), b"b").unwrap();
    let (a, b) = (mount.path("a"), mount.path("d/b"));
    let refused = renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    renameat_with(CWD, &a, CWD, mount.path("d"), RenameFlags::EXCHANGE).unwrap();
    assert!(fs::metadata(&a).unwrap().is_dir());
    assert_eq!(fs::metadata(mount.root()).unwrap().nlink(), 3);
    let below = renameat_with(CWD, &a, CWD, mount.path("a/x"), RenameFlags::empty());
    assert_eq!(below, Err(rustix::io::Errno::INVAL));
    let whiteout = renameat_with(CWD, &a, CWD, mount.path("w"), RenameFlags::WHITEOUT);
    assert_eq!(whiteout, Err(rustix::io::Errno::INVAL));
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed_and_then_is_gone() {
    let Some(mount) = Mount::new("an_unlinked_file_lives_until_it_is_closed", "") else {
        return;
    };
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("f")).unwrap();
    file.write_all(b"still").unwrap();
    let ino = novale_core::Ino::new(file.metadata().unwrap().ino());
    fs::remove_file(mount.path("f")).unwrap();
    file.write_all(b" here").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    let generation = mount.fs.getattr(ino).unwrap().generation;
    drop(file);
    let gone = || mount.fs.getattr(ino).map_or(true, |attr| attr.generation != generation);
    assert!(eventually(gone), "inode {} is still there", ino.get());
}

#[test]
fn data_of_all_sizes_and_offsets_comes_back() {
    let Some(mount) = Mount::new("data_of_all_sizes_and_offsets_comes_back", "") else {
        return;
    };
    let pattern: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(mount.path("f"))
        .unwrap();
    for (offset, len) in [(0_usize, 1), (4095, 2), (100, 300_000), (3_000_001, 1_999_999)] {
        file.write_all_at(&pattern[offset..offset + len], offset as u64).unwrap();
        let mut back = vec![0; len];
        file.read_exact_at(&mut back, offset as u64).unwrap();
        assert!(back == pattern[offset..offset + len], "{len} bytes at {offset}");
    }
    assert_eq!(file.metadata().unwrap().len(), 5_000_000);
    let hole = fs::read(mount.path("f")).unwrap();
    assert!(hole[300_100..3_000_001].iter().all(|byte| *byte == 0));
    drop(File::options().write(true).truncate(true).open(mount.path("f")).unwrap());
    assert_eq!(file.metadata().unwrap().len(), 0);
    file.set_len(10).unwrap();
    let mut end = File::options().append(true).open(mount.path("f")).unwrap();
    end.write_all(b"end").unwrap();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"\0\0\0\0\0\0\0\0\0\0end");
}

#[test]
fn space_is_reserved_and_holes_are_found() {
    let Some(mount) = Mount::new("space_is_reserved_and_holes_are_found", "") else {
        return;
    };
    let file = File::create_new(mount.path("f")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 5000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5000);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5000);
    let punched = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(punched, Err(rustix::io::Errno::OPNOTSUPP));
    let sparse = File::create_new(mount.path("sparse")).unwrap();
    sparse.write_all_at(b"x", 1 << 20).unwrap();
    assert_eq!(seek(&sparse, From::Hole(1 << 20)), Ok((1 << 20) + 1));
    assert_eq!(seek(&sparse, From::Data((1 << 20) + 1)), Err(rustix::io::Errno::NXIO));
    let space = rustix::fs::statvfs(mount.root()).unwrap();
    assert_eq!((space.f_bsize, space.f_namemax), (4096, 255));
    assert!(space.f_bfree <= space.f_blocks && space.f_ffree <= space.f_files);
}

#[test]
fn set_id_bits_fall_with_a_change_by_others() {
    let Some(mount) = Mount::new("set_id_bits_fall_with_a_change_by_others", "") else {
        return;
    };
    let file = mount.path("f");
    let arm = |mode| {
        fs::write(&file, b"program").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(mode_of(&file), mode);
    };
    arm(0o6777);
    fs::write(&file, b"root may").unwrap();
    assert_eq!(mode_of(&file), 0o6777);
    assert!(as_nobody(mount.root(), "printf x >> f"));
    assert_eq!(mode_of(&file), 0o777);
    arm(0o6777);
    let past_the_cache =
        "dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc oflag=direct 2>/dev/null";
    assert!(as_nobody(mount.root(), past_the_cache));
    assert_eq!(mode_of(&file), 0o777);
    arm(0o6777);
    assert!(as_nobody(mount.root(), ": > f"));
    assert_eq!(mode_of(&file), 0o777);
    arm(0o6777);
    assert!(as_nobody(mount.root(), "truncate -s 3 f"));
    assert_eq!(mode_of(&file), 0o777);
    arm(0o6777);
    assert!(as_nobody(mount.root(), "fallocate -l 10000 f"));
    assert_eq!(mode_of(&file), 0o777);
    arm(0o6755);
    std::os::unix::fs::chown(&file, Some(NOBODY), None).unwrap();
    assert_eq!(mode_of(&file), 0o755);
    fs::create_dir(mount.path("d")).unwrap();
    fs::set_permissions(mount.path("d"), Permissions::from_mode(0o2755)).unwrap();
    std::os::unix::fs::chown(mount.path("d"), Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(mode_of(&mount.path("d")), 0o2755);
}

/// The open was refused, and the file was empty: the daemon had emptied it before the kernel asked.
#[test]
fn nobody_empties_a_file_whom_landlock_forbids_it() {
    let Some(mount) = Mount::new("nobody_empties_a_file_whom_landlock_forbids_it", "") else {
        return;
    };
    fs::write(mount.path("f"), b"kept").unwrap();
    let script = "import ctypes, os, sys\n\
                  call = ctypes.CDLL(None).syscall\n\
                  rules = call(444, ctypes.byref(ctypes.c_uint64(1 << 14)), 8, 0)\n\
                  if rules < 0 or call(157, 38, 1, 0, 0, 0) or call(446, rules, 0): sys.exit(3)\n\
                  try: os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)\n\
                  except PermissionError: sys.exit(0)\n";
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: Landlock forbids emptying: the script knows the calls of x86-64");
        return;
    }
    let status = Command::new("python3").args(["-c", script]).arg(mount.path("f")).status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => assert_eq!(fs::read(mount.path("f")).unwrap(), b"kept"),
        Some(3) | None => {
            println!("skipped: Landlock forbids emptying: no Landlock, or no python3");
        }
        other => panic!("it was not refused: {other:?}"),
    }
    fs::write(mount.path("f"), b"").unwrap();
    assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), 0);
}

#[test]
fn permissions_and_owners_are_the_kernels_business() {
    let Some(mount) = Mount::new("permissions_and_owners_are_the_kernels_business", "") else {
        return;
    };
    fs::write(mount.path("secret"), b"s").unwrap();
    fs::set_permissions(mount.path("secret"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody(mount.root(), "cat secret 2>/dev/null"));
    assert!(!as_nobody(mount.root(), "touch new 2>/dev/null"));
    fs::create_dir(mount.path("open")).unwrap();
    fs::set_permissions(mount.path("open"), Permissions::from_mode(0o1777)).unwrap();
    assert!(as_nobody(&mount.path("open"), "umask 027; touch file; mkdir dir"));
    let file = fs::metadata(mount.path("open/file")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (NOBODY, NOBODY, 0o640));
    assert_eq!(mode_of(&mount.path("open/dir")), 0o750);
    fs::write(mount.path("open/root"), b"").unwrap();
    assert!(!as_nobody(&mount.path("open"), "rm -f root 2>/dev/null"), "the sticky bit holds");
    std::os::unix::fs::chown(mount.path("open"), None, Some(12)).unwrap();
    fs::set_permissions(mount.path("open"), Permissions::from_mode(0o3777)).unwrap();
    assert!(as_nobody(&mount.path("open"), "touch of-group; mkdir sub"));
    assert_eq!(fs::metadata(mount.path("open/of-group")).unwrap().gid(), 12);
    let sub = fs::metadata(mount.path("open/sub")).unwrap();
    assert_eq!((sub.gid(), sub.mode() & 0o2000), (12, 0o2000));
}

#[test]
fn the_first_read_after_a_change_moves_the_access_time_and_the_second_does_not() {
    let test = "the_first_read_after_a_change_moves_the_access_time";
    let Some(mount) = Mount::new(test, "") else {
        return;
    };
    let file = mount.path("f");
    let atime = || {
        let meta = fs::metadata(&file).unwrap();
        (meta.atime(), meta.atime_nsec())
    };
    fs::write(&file, b"one").unwrap();
    let fresh = atime();
    tick();
    fs::read(&file).unwrap();
    let first = atime();
    assert!(first > fresh);
    fs::read(&file).unwrap();
    assert_eq!(atime(), first);
    tick();
    fs::write(&file, b"two").unwrap();
    fs::read(&file).unwrap();
    assert!(atime() > first);
}

#[test]
fn noatime_moves_no_access_time_and_strictatime_moves_it_at_every_read() {
    let test = "noatime_moves_no_access_time";
    let atime = |file: &std::path::Path| {
        let meta = fs::metadata(file).unwrap();
        (meta.atime(), meta.atime_nsec())
    };
    let Some(never) = Mount::new(test, "noatime") else { return };
    fs::write(never.path("f"), b"one").unwrap();
    let fresh = atime(&never.path("f"));
    fs::read(never.path("f")).unwrap();
    assert_eq!(atime(&never.path("f")), fresh);

    let Some(always) = Mount::new(test, "strictatime") else { return };
    let program = always.path("echo");
    assert!(Command::new("cp").arg("/bin/echo").arg(&program).status().unwrap().success());
    fs::read(&program).unwrap();
    let first = atime(&program);
    tick();
    fs::read(&program).unwrap();
    assert!(atime(&program) > first);
    let output = Command::new(&program).arg("mapped").output().unwrap();
    assert_eq!(output.stdout, b"mapped\n", "a program runs past the page cache");
}

/// The kernel tells with which flags a file was read, and not of a copy's source.
#[test]
fn a_copy_from_a_file_opened_with_o_noatime_is_no_access() {
    let Some(mount) = Mount::new("a_copy_is_no_access", "strictatime") else { return };
    let path = mount.path("from");
    let moves_it = |flags: i32| {
        fs::write(&path, b"copied").unwrap();
        // What the kernel remembers of the source does not tell.
        let asks = rustix::fs::AtFlags::STATX_FORCE_SYNC;
        let mask = rustix::fs::StatxFlags::ATIME;
        let atime = || rustix::fs::statx(rustix::fs::CWD, &path, asks, mask).unwrap().stx_atime;
        let atime = || Some(atime()).map(|time| (time.tv_sec, time.tv_nsec));
        let before = atime();
        tick();
        let from = File::options().read(true).custom_flags(flags).open(&path).unwrap();
        let to = File::create(mount.path("to")).unwrap();
        let copied = rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 6);
        assert_eq!(copied.unwrap(), 6);
        atime() != before
    };
    assert!(moves_it(0));
    assert!(!moves_it(libc::O_NOATIME));
}

/// The daemon went on as it was started: the kernel tells no FUSE daemon of a remount.
#[test]
fn a_remount_changes_when_reads_move_the_access_time() {
    let test = "a_remount_changes_when_reads_move_the_access_time";
    let Some(mount) = Mount::new(test, "noatime") else { return };
    let file = mount.path("f");
    let first_read_moves_it = || {
        fs::write(&file, b"changed").unwrap();
        let before = fs::metadata(&file).unwrap();
        fs::read(&file).unwrap();
        let after = fs::metadata(&file).unwrap();
        (after.atime(), after.atime_nsec()) != (before.atime(), before.atime_nsec())
    };
    assert!(!first_read_moves_it());
    let remount = |words| {
        let options = novale_fuse::MountOptions::parse(words).unwrap();
        let there = novale_fuse::find(mount.root()).unwrap();
        novale_fuse::remount(&options, &there).unwrap();
    };
    remount("relatime");
    assert!(eventually(first_read_moves_it));
    remount("noatime");
    assert!(eventually(|| !first_read_moves_it()));
    remount("strictatime");
    let second_read_moves_it = || {
        fs::read(&file).unwrap();
        let first = fs::metadata(&file).unwrap();
        fs::read(&file).unwrap();
        let second = fs::metadata(&file).unwrap();
        (second.atime(), second.atime_nsec()) > (first.atime(), first.atime_nsec())
    };
    assert!(eventually(second_read_moves_it));
}

#[test]
fn times_are_kept_to_the_nanosecond_also_before_1970() {
    let Some(mount) = Mount::new("times_are_kept_to_the_nanosecond", "") else {
        return;
    };
    let file = File::create_new(mount.path("f")).unwrap();
    let set = |seconds, nanoseconds| {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time })
            .unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (seconds, nanoseconds));
        assert_eq!((meta.atime(), meta.atime_nsec()), (seconds, nanoseconds));
    };
    set(1_700_000_000, 123_456_789);
    set(0, 0);
    set(-1, 500_000_000);
    set(-2_000_000_000, 1);
    let before = coarse();
    fs::write(mount.path("new"), b"").unwrap();
    let made = fs::metadata(mount.path("new")).unwrap();
    let made = (made.mtime(), made.mtime_nsec());
    assert!(made >= before && made <= coarse());
}

/// The library of the protocol panicked at a time below all others, and the mount ended: whoever owned a file
/// there could end it.
#[test]
fn no_time_that_is_asked_for_ends_the_mount() {
    let Some(mount) = Mount::new("no_time_that_is_asked_for_ends_the_mount", "") else {
        return;
    };
    let path = mount.path("f");
    File::create(&path).unwrap();
    for tv_sec in [i64::MIN, i64::MIN + 1, -9_223_372_037, 9_223_372_037, i64::MAX] {
        for tv_nsec in [0, 1, 999_999_999] {
            let time = Timespec { tv_sec, tv_nsec };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
            let seen = fs::metadata(&path).unwrap();
            assert_eq!(seen.mtime() < 0, tv_sec < 0, "{tv_sec}.{tv_nsec}");
        }
    }
}

#[test]
fn programs_run_from_the_mount() {
    let Some(mount) = Mount::new("programs_run_from_the_mount", "") else {
        return;
    };
    // Copied by another process: a child that other tests start at this moment would inherit our
    // descriptor, and the kernel runs no file that is open for writing.
    let copied = Command::new("cp").arg("/bin/echo").arg(mount.path("echo")).status().unwrap();
    assert!(copied.success());
    let output = Command::new(mount.path("echo")).arg("hello").output().unwrap();
    assert_eq!(output.stdout, b"hello\n");
}

#[test]
fn locks_exclude_each_other_within_the_mount() {
    let Some(mount) = Mount::new("locks_exclude_each_other_within_the_mount", "") else {
        return;
    };
    let one = File::create_new(mount.path("f")).unwrap();
    let other = File::options().write(true).open(mount.path("f")).unwrap();
    rustix::fs::flock(&one, FlockOperation::LockExclusive).unwrap();
    let refused = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    drop(one);
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    rustix::fs::fcntl_lock(&other, FlockOperation::LockExclusive).unwrap();
    let script = "import fcntl,sys\n\
                  f=open(sys.argv[1],'r+')\n\
                  try: fcntl.lockf(f, fcntl.LOCK_EX|fcntl.LOCK_NB); print('got it')\n\
                  except OSError: print('refused')";
    if let Some(answer) = python("locks_exclude", script, &[&mount.path("f")]) {
        assert_eq!(answer, "refused\n");
    }
}

#[test]
fn mapped_files_agree_with_reads_and_writes() {
    let test = "mapped_files_agree_with_reads_and_writes";
    let Some(mount) = Mount::new(test, "") else {
        return;
    };
    fs::write(mount.path("f"), vec![b'.'; 10_000]).unwrap();
    let script = "import mmap,os,sys\n\
                  fd=os.open(sys.argv[1], os.O_RDWR)\n\
                  m=mmap.mmap(fd, 10000)\n\
                  m[4090:4100]=b'0123456789'\n\
                  assert os.pread(fd, 10, 4090)==b'0123456789'\n\
                  os.pwrite(fd, b'W', 5000); assert m[5000:5001]==b'W'\n\
                  p=mmap.mmap(fd, 10000, flags=mmap.MAP_PRIVATE)\n\
                  p[0:1]=b'P'; assert os.pread(fd, 1, 0)==b'.'\n\
                  m.flush(); print('same')";
    let Some(answer) = python(test, script, &[&mount.path("f")]) else {
        return;
    };
    assert_eq!(answer, "same\n");
    let mut stored = [0; 10];
    let ino = novale_core::Ino::new(fs::metadata(mount.path("f")).unwrap().ino());
    let ctx = novale_core::Ctx { now_ns: 1, hint: 0 };
    mount.fs.read(&ctx, ino, 4090, &mut stored).unwrap();
    assert_eq!(&stored, b"0123456789", "msync has written the mapped bytes to the pool");
}

#[test]
fn a_file_handle_stays_valid_when_the_kernel_has_forgotten_the_inode() {
    let test = "a_file_handle_stays_valid";
    let Some(mount) = Mount::new(test, "") else {
        return;
    };
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/f"), b"by handle").unwrap();
    // After the unlink the kernel keeps the inode until the file's release, sent after close, is
    // answered: the handle dies soon, not at once.
    let script = "import ctypes,os,sys,struct\n\
        libc=ctypes.CDLL(None,use_errno=True)\n\
        h=ctypes.create_string_buffer(struct.pack('Ii',128,0)+bytes(128))\n\
        i=ctypes.c_int()\n\
        r=libc.name_to_handle_at(-100,sys.argv[1].encode()+b'/d/f',h,ctypes.byref(i),0)\n\
        assert r==0,os.strerror(ctypes.get_errno())\n\
        open('/proc/sys/vm/drop_caches','w').write('2')\n\
        m=os.open(sys.argv[1],os.O_RDONLY)\n\
        fd=libc.open_by_handle_at(m,h,os.O_RDONLY)\n\
        assert fd>=0,os.strerror(ctypes.get_errno())\n\
        print(os.read(fd,100).decode()); os.close(fd)\n\
        os.unlink(sys.argv[1]+'/d/f')\n\
        for attempt in range(10000):\n\
        \x20 open('/proc/sys/vm/drop_caches','w').write('2')\n\
        \x20 fd=libc.open_by_handle_at(m,h,os.O_RDONLY)\n\
        \x20 if fd<0: break\n\
        \x20 os.close(fd)\n\
        print(ctypes.get_errno()==116)";
    let Some(answer) = python(test, script, &[mount.root()]) else {
        return;
    };
    assert_eq!(answer, "by handle\nTrue\n");
}

#[test]
fn many_threads_in_one_directory_leave_what_they_should() {
    let Some(mount) = Mount::new("many_threads_in_one_directory", "") else {
        return;
    };
    let root = mount.root().to_owned();
    let make_and_rename = &|thread: u32, n: u32| {
        let (a, b) = (root.join(format!("a{thread}-{n}")), root.join(format!("b{thread}-{n}")));
        fs::write(&a, b"as written").unwrap();
        fs::rename(&a, &b).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"as written");
        if n.is_multiple_of(2) {
            fs::remove_file(&b).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || (0..200).for_each(|n| make_and_rename(thread, n)));
        }
    });
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 600);
    assert_eq!(mount.end(Duration::from_secs(10)), novale_fuse::ShutDown::Finished);
}
