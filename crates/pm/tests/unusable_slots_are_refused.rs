//! A slot that cannot be used is refused with its path, what was found and what to do.
#![allow(unsafe_code, reason = "changes a thread's user id and mounts")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use novale_layout::PmAddr;
use novale_pm::{Pm, PmError, PmOptions, Purpose, SlotKind, SlotSpec, WriteBackKind};

fn open(path: &Path) -> Result<Pm, PmError> {
    Pm::open(&[SlotSpec::new(path)], &PmOptions::default())
}

/// The message of the error that opening `path` gives.
fn refused(path: &Path) -> String {
    let message = open(path).unwrap_err().to_string();
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    message
}

fn file_of(len: u64, path: &Path) {
    File::create(path).unwrap().set_len(len).unwrap();
}

#[test]
fn what_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("absent");
    assert!(matches!(open(&path), Err(PmError::Missing { .. })));
    assert!(refused(&path).ends_with("correct the path, or create the pool first"));
    assert!(!path.exists(), "opening creates nothing");
}

#[test]
fn what_is_neither_a_file_nor_a_device() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refused(dir.path()).contains("is a directory: give the pool file in it"));
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(refused(&fifo).contains("is a FIFO"), "and opening it does not wait");
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(refused(&socket).contains("is a socket"));
}

/// What was looked at by its path, and locked, is opened by its path again.
#[test]
fn another_file_than_was_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("slot"), dir.path().join("other"));
    for path in [&path, &other] {
        file_of(2 << 20, path);
    }
    let found = fs::metadata(&path).unwrap();
    let options = PmOptions { only: vec![(found.dev(), found.ino())], ..PmOptions::default() };
    let open = || Pm::open(&[SlotSpec::new(&path)], &options);
    drop(open().unwrap());
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    assert!(open().unwrap_err().to_string().contains("Stale file handle"));
}

#[test]
fn a_character_device_that_is_not_dax() {
    let message = refused(Path::new("/dev/null"));
    assert!(message.contains("is character device 1:3, not a DAX device"), "{message}");
    assert!(message.contains("/sys/dev/char/1:3/size"), "{message}");
}

#[test]
fn lengths_that_no_slot_can_have() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slot");
    for len in [0, 1, 4095] {
        file_of(len, &path);
        let message = refused(&path);
        assert!(message.contains(&format!("has {len} bytes, a slot needs at least 4096")));
    }
    for (len, rounded) in [(4096, 4096), (8191, 4096), (12289, 12288)] {
        file_of(len, &path);
        assert_eq!(open(&path).unwrap().slot_len(0), rounded);
        assert_eq!(fs::metadata(&path).unwrap().len(), len, "the file keeps its length");
    }
    let error = Pm::anonymous(&[(1 << 48) + 4096], &PmOptions::default()).unwrap_err();
    assert!(matches!(error, PmError::TooLarge { allowed: 0x1_0000_0000_0000, .. }), "{error}");
}

#[test]
fn a_file_that_the_user_may_not_write_or_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("slot");
    file_of(4096, &path);
    fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    // Root may open any file, so this thread alone goes on as nobody. Another user stays itself
    // and is refused as the owner of a file of mode 0.
    let thread = std::thread::spawn(move || {
        // SAFETY: changes the file system credentials of this thread, which ends soon.
        unsafe { libc::setfsuid(65534) };
        let write = refused(&path);
        let options = PmOptions { read_only: true, ..PmOptions::default() };
        let read = Pm::open(&[SlotSpec::new(&path)], &options).unwrap_err();
        (write, read)
    });
    let (write, read) = thread.join().unwrap();
    assert!(write.contains("permission denied for reading and writing"), "{write}");
    assert!(write.ends_with("or open the pool read-only"), "{write}");
    assert!(matches!(read, PmError::Permission { read_only: true, .. }), "{read}");
    assert!(read.to_string().contains("denied for reading: run as its owner"), "{read}");
}

#[test]
fn one_file_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("slot"), dir.path().join("link"));
    file_of(4096, &path);
    fs::hard_link(&path, &link).unwrap();
    let slots = [SlotSpec::new(&path), SlotSpec::new(&link)];
    let error = Pm::open(&slots, &PmOptions::default()).unwrap_err();
    assert!(error.to_string().contains("is the same file as slot 0"), "{error}");
}

#[test]
fn no_slots_or_too_many() {
    let options = PmOptions::default();
    for count in [0, 65] {
        let error = Pm::anonymous(&vec![4096; count], &options).unwrap_err();
        assert_eq!(error.to_string(), format!("{count} slots given: a pool has 1 to 64"));
    }
    assert_eq!(Pm::anonymous(&[4096; 64], &options).unwrap().slot_count(), 64);
    assert!(matches!(Pm::open(&[], &options), Err(PmError::SlotCount { found: 0, .. })));
}

#[test]
fn a_write_back_that_the_cpu_has_not() {
    let missing =
        if cfg!(target_arch = "x86_64") { WriteBackKind::DcCvap } else { WriteBackKind::Clwb };
    let options = PmOptions { write_back: Some(missing), ..PmOptions::default() };
    let error = Pm::anonymous(&[4096], &options).unwrap_err();
    assert!(error.to_string().starts_with(&format!("this CPU has no {missing:?}")), "{error}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_write_back_of_a_paper_can_be_asked_for() {
    let options = PmOptions { write_back: Some(WriteBackKind::Clflush), ..PmOptions::default() };
    let pm = Pm::anonymous(&[4096], &options).unwrap();
    assert_eq!(pm.write_back_kind(), Some(WriteBackKind::Clflush));
    let flushed = pm.write_back(pm.store(PmAddr::new(0, 100), b"bytes", Purpose::Data));
    pm.fence(flushed).end();
    let eadr = PmOptions { eadr: Some(true), ..options };
    assert_eq!(Pm::anonymous(&[4096], &eadr).unwrap().write_back_kind(), None);
}

/// A store to a hole of a tmpfs that is full would kill the process with SIGBUS.
#[test]
fn a_sparse_file_has_all_its_blocks_before_the_first_store() {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    assert_eq!(file.as_file().metadata().unwrap().blocks(), 0);
    let options = PmOptions { read_only: true, ..PmOptions::default() };
    let slots = [SlotSpec::new(file.path())];
    drop(Pm::open(&slots, &options).unwrap());
    assert_eq!(file.as_file().metadata().unwrap().blocks(), 0, "reading allocates nothing");
    drop(Pm::open(&slots, &PmOptions::default()).unwrap());
    let after = file.as_file().metadata().unwrap();
    assert_eq!((after.blocks() * 512, after.len()), (1 << 20, 1 << 20));
}

/// Runs `test` on a thread that alone sees a tmpfs of 1 MB at `dir`; a test that fails there
/// cannot fill the memory of the machine. Only root can; others get `None`.
fn with_small_tmpfs<T: Send>(dir: &Path, test: impl FnOnce() -> T + Send) -> Option<T> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: gives this thread, which only runs what follows, mounts of its own.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", dir, "tmpfs", MountFlags::empty(), Some(c"size=1m")).unwrap();
            Some(test())
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_sparse_file_that_its_file_system_cannot_hold() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slot");
    let seen = with_small_tmpfs(dir.path(), || {
        file_of(2 << 20, &path);
        let error = open(&path).unwrap_err();
        let blocks = fs::metadata(&path).unwrap().blocks();
        file_of(512 << 10, &path);
        (error, blocks, open(&path).map(|pm| pm.slot_len(0)))
    });
    let Some((error, blocks, smaller)) = seen else { return };
    let sizes = "2097152 bytes missing, 1048576 available";
    assert!(error.to_string().contains(sizes), "{error}");
    assert!(matches!(error, PmError::NoSpace { .. }), "{error}");
    assert_eq!(blocks, 0, "nothing was filled on the way");
    assert_eq!(smaller.unwrap(), 512 << 10);
    assert!(!path.exists(), "the file was on the thread's own mount");
}

#[test]
fn several_slots_are_found_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|slot| dir.path().join(format!("slot{slot}"))).collect();
    for (pages, path) in (1..).zip(&paths) {
        file_of(pages * 4096, path);
    }
    let slots: Vec<_> = paths.iter().map(SlotSpec::new).collect();
    let options = PmOptions { populate: true, hugepages: true, ..PmOptions::default() };
    let pm = Pm::open(&slots, &options).unwrap();
    for (slot, path) in (0..).zip(&paths) {
        assert_eq!(pm.slot_len(slot), (u64::from(slot) + 1) * 4096);
        assert_eq!(pm.slot_kind(slot), SlotKind::File);
        let (opened, named) = (pm.slot_file(slot).unwrap(), fs::metadata(path).unwrap());
        assert_eq!(opened.metadata().unwrap().ino(), named.ino());
        let last = PmAddr::new(slot, pm.slot_len(slot) - 64);
        pm.fence(pm.stream_line(last, &[slot + 1; 64], Purpose::Data)).end();
    }
    drop(pm);
    for (slot, path) in (0_u8..).zip(&paths) {
        let bytes = fs::read(path).unwrap();
        let (start, line) = bytes.split_at(bytes.len() - 64);
        assert!(line.iter().all(|&byte| byte == slot + 1), "slot {slot}");
        assert!(start.iter().all(|&byte| byte == 0), "slot {slot}");
    }
}

#[test]
fn a_slot_open_for_writing_is_not_opened_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slot");
    file_of(4096, &path);
    let slots = [SlotSpec::new(&path)];
    let first = Pm::open(&slots, &PmOptions::default()).unwrap();
    let second = Pm::open(&slots, &PmOptions::default());
    assert!(matches!(second, Err(PmError::InUse { .. })), "{second:?}");
    Pm::open(&slots, &PmOptions { read_only: true, ..PmOptions::default() }).unwrap();
    drop(first);
    Pm::open(&slots, &PmOptions::default()).unwrap();
}
