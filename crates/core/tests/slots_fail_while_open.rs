//! A slot whose file is cut short while the pool is open: what was acknowledged on the other slot is
//! there, what was lost is told, and work goes on with what is left.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test panics")]

mod support;

use std::fs::OpenOptions as FileOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use novale_core::{
    BufferRules, Ctx, Error, Fs, Ino, MkfsOptions, Mode, NewInode, Node, OpenOptions, Placement,
    Result, Serial, SetXattr, UpdatePolicy, check, inspect, mkfs, saved_wear,
};
use novale_layout::{FileKind, PmAddr, RoFeature, SUPERBLOCK_BYTES, Superblock};
use novale_pm::{Pm, PmOptions, SlotSpec, survive_failing_slots};
use support::{MB, open_as};

const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };

fn paths(dir: &Path) -> [PathBuf; 2] {
    ["a", "b"].map(|name| dir.join(name))
}

fn made(dir: &Path) -> Pm {
    survive_failing_slots().unwrap();
    for path in paths(dir) {
        FileOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap()
            .set_len(16 * MB)
            .unwrap();
    }
    let specs = paths(dir).map(SlotSpec::new);
    let pm = Pm::open(&specs, &PmOptions::default()).unwrap();
    // More lanes than threads: a record whose inodes' lines were lost keeps its lane.
    mkfs(&pm, &MkfsOptions::numbered(2, 16)).unwrap();
    pm
}

fn cut(dir: &Path, slot: usize) {
    FileOptions::new().write(true).open(&paths(dir)[slot]).unwrap().set_len(0).unwrap();
}

fn create(fs: &Fs, ctx: &Ctx, dir: Ino, name: &str, kind: FileKind) -> Result<Ino> {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    Ok(fs.create(ctx, Node::current(dir), name.as_bytes(), &new)?.ino)
}

/// What a file with that number has.
fn bytes(number: usize) -> Vec<u8> {
    let len = [100, 4096, 30_000][number % 3];
    vec![u8::try_from(number % 250).unwrap() + 1; len]
}

/// A file that was acknowledged whole.
struct Acknowledged {
    ino: Ino,
    number: usize,
    after_failure: bool,
}

/// The pool opened with the root on the slot that stays. The directory that is made here gives the root
/// pages that have room for all that the test puts there.
fn opened(pm: Pm, update: UpdatePolicy) -> Fs {
    let options = OpenOptions { update: Some(update), now_ns: 2, ..OpenOptions::default() };
    let fs = open_as(pm, &OpenOptions { placement: Placement::Single, ..options });
    create(&fs, &CTX, Ino::ROOT, "first", FileKind::Directory).unwrap();
    fs.close().unwrap();
    open_as(fs.into_pm(), &options)
}

fn mkdir(fs: &Fs, ctx: &Ctx, name: &str) -> Result<Ino> {
    create(fs, ctx, Ino::ROOT, name, FileKind::Directory)
}

/// Makes files in a directory of its own, which is lost where it has pages on the slot that fails: then in
/// another one. Who makes the 200th lets the slot fail; each makes a hundred after that.
fn work(
    fs: &Fs,
    mut dir: Ino,
    hint: u32,
    made: &AtomicUsize,
    fail: impl Fn(),
) -> Vec<Acknowledged> {
    let ctx = Ctx { hint, ..CTX };
    let (mut files, mut later) = (Vec::new(), 0);
    for number in 0..2000 {
        let after_failure = fs.failed_slots() != 0;
        let file = create(fs, &ctx, dir, &format!("f{number}"), FileKind::File)
            .and_then(|ino| fs.write(&ctx, ino, 0, &bytes(number)).map(|_| ino));
        match file {
            Ok(ino) => files.push(Acknowledged { ino, number, after_failure }),
            Err(Error::Lost(_)) => {
                if let Ok(new) = mkdir(fs, &ctx, &format!("d{hint} {number}")) {
                    dir = new;
                }
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        if made.fetch_add(1, Ordering::AcqRel) == 199 {
            fail();
        }
        later += usize::from(after_failure);
        if later == 100 {
            return files;
        }
    }
    panic!("{later} files after the failure");
}

/// Reads what was acknowledged: how many files are whole, how many of them were made after the failure, how
/// many are lost.
fn count_read(fs: &Fs, files: &[Acknowledged], update: UpdatePolicy) -> [usize; 3] {
    let [mut whole, mut later, mut lost] = [0; 3];
    for file in files {
        let mut read = vec![0; bytes(file.number).len()];
        match fs.read(&CTX, file.ino, 0, &mut read) {
            Ok(count) => {
                assert_eq!(count, read.len());
                assert!(read == bytes(file.number), "{update:?}: file {}", file.number);
                whole += 1;
                later += usize::from(file.after_failure);
            }
            Err(Error::Lost(_)) => {
                assert!(!file.after_failure, "acknowledged after the slot had failed");
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    [whole, later, lost]
}

#[test]
fn nothing_acknowledged_on_the_other_slot_is_lost() {
    for update in [UpdatePolicy::Auto, UpdatePolicy::Cow] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let pm = made(dir.path());
        let fs = &opened(pm, update);
        let dirs = [0, 1, 2].map(|hint| (hint, mkdir(fs, &CTX, &format!("d{hint}")).unwrap()));
        let (path, made) = (dir.path(), &AtomicUsize::new(0));
        let files: Vec<_> = std::thread::scope(|scope| {
            let threads = dirs
                .map(|(hint, own)| scope.spawn(move || work(fs, own, hint, made, || cut(path, 1))));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(fs.failed_slots(), 0b10);
        let [whole, later, lost] = count_read(fs, &files, update);
        assert!(later == 300 && lost > 0, "{whole} whole, {later} later, {lost} lost");
    }
}

/// It is known still, and refused before the directory beside it changes.
#[test]
fn no_name_goes_of_a_file_that_is_lost() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let fs = opened(made(dir.path()), UpdatePolicy::Cow);
    let names = (0..16).map(|hint| (hint, format!("f{hint}"))).collect::<Vec<_>>();
    for (hint, name) in &names {
        create(&fs, &Ctx { hint: *hint, ..CTX }, Ino::ROOT, name, FileKind::File).unwrap();
    }
    fs.pm().set_failed(0b10);
    let mut lost = 0;
    for name in names.iter().map(|(_, name)| name.as_bytes()) {
        match fs.unlink(&CTX, Node::ROOT, name) {
            Err(Error::Lost(at)) => assert_eq!(at.slot(), 1),
            removed => {
                removed.unwrap();
                continue;
            }
        }
        fs.lookup(&CTX, Node::ROOT, name).unwrap();
        lost += 1;
    }
    assert!((1..names.len()).contains(&lost), "{lost} are lost");
}

/// The wear of the slot that stays, since it was saved last, was forgotten: closing ended before that.
#[test]
fn the_wear_of_the_other_slot_is_kept() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let fs = opened(made(dir.path()), UpdatePolicy::Cow);
    let file = create(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
    fs.write(&CTX, file, 0, &vec![1; 300_000]).unwrap();
    cut(dir.path(), 1);
    fs.pm().set_failed(0b10);
    let counted = fs.wear().unwrap()[0];
    assert!(matches!(fs.close(), Err(Error::Lost(at)) if at.slot() == 1));
    drop(fs);
    let [left, _] = paths(dir.path()).map(|path| Some(SlotSpec::new(path)));
    let pm = Pm::open_some(&[left, None]).unwrap();
    let info = inspect(&pm).unwrap();
    assert!(!info.clean);
    assert!(saved_wear(&pm, &info).unwrap()[0] >= counted);
}

/// What is buffered for the slots that are left is written back by who closes the pool, once one has failed.
#[test]
fn what_is_buffered_for_the_other_slot_is_kept() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let buffered = OpenOptions {
        placement: Placement::Single,
        mode: Some(Mode::Buffered),
        buffer_rules: BufferRules { has_model: false, ..BufferRules::default() },
        now_ns: 2,
        ..OpenOptions::default()
    };
    let fs = open_as(made(dir.path()), &buffered);
    let file = create(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
    fs.write(&CTX, file, 0, &[7; 10_000]).unwrap();
    cut(dir.path(), 1);
    fs.pm().set_failed(0b10);
    assert!(matches!(fs.close(), Err(Error::Lost(at)) if at.slot() == 1));
    drop(fs);
    let [left, _] = paths(dir.path()).map(|path| Some(SlotSpec::new(path)));
    let pm = Pm::open_some(&[left, None]).unwrap();
    let fs = open_as(pm, &OpenOptions { read_only: true, now_ns: 3, ..OpenOptions::default() });
    let mut read = [0; 10_001];
    assert_eq!(fs.read(&CTX, file, 0, &mut read).unwrap(), 10_000);
    assert_eq!(read[..10_000], [7; 10_000]);
}

/// Files of which only second copies of pages lay in the slot that is missing could not be read, and a check did not
/// name them.
#[test]
fn files_with_second_copies_in_the_missing_slot_are_named() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let fs = opened(made(dir.path()), UpdatePolicy::Paired);
    fs.close().unwrap();
    let (placement, update) = (Placement::Lanes, Some(UpdatePolicy::Paired));
    let paired = OpenOptions { placement, update, now_ns: 2, ..OpenOptions::default() };
    let fs = open_as(fs.into_pm(), &paired);
    let files: Vec<Ino> = (0..40)
        .map(|number| {
            let ino = create(&fs, &CTX, Ino::ROOT, &format!("f{number}"), FileKind::File).unwrap();
            // Of lanes that have pages of different slots.
            let [home, second] = [number, number / 2].map(|hint| Ctx { hint: hint % 2 * 8, ..CTX });
            fs.write(&home, ino, 0, &[1; 16_000]).unwrap();
            for page in 0..4 {
                fs.write(&second, ino, page * 4096 + 70, &[2; 100]).unwrap();
            }
            // The last commit covers nothing of another slot, so that it can be judged without that.
            fs.write(&home, ino, 16_000, &[3; 5000]).unwrap();
            ino
        })
        .collect();
    // As after a crash: a close puts pages together.
    drop(fs);
    let [left, _] = paths(dir.path()).map(|path| Some(SlotSpec::new(path)));
    let pm = Pm::open_some(&[left, None]).unwrap();
    let findings = check(&pm, &Serial, &|_| {}).unwrap().findings;
    let is_named = |ino: Ino| {
        let named = format!("(inode {})", ino.get());
        findings.iter().any(|finding| finding.what.contains(&named))
    };
    let fs = open_as(pm, &OpenOptions { read_only: true, now_ns: 3, ..OpenOptions::default() });
    let is_whole = |ino: Ino| fs.read(&CTX, ino, 0, &mut [0; 16_000]).is_ok();
    let [mut named, mut whole] = [0; 2];
    for ino in files {
        assert_eq!(is_named(ino), !is_whole(ino), "inode {}", ino.get());
        named += usize::from(is_named(ino));
        whole += usize::from(is_whole(ino));
    }
    assert!(named > 0 && whole > 0, "{named} named, {whole} whole");
}

/// Where the root directory's attributes lay in the missing slot, quotas' limits among them, no name was shown.
#[test]
fn whose_attributes_are_in_the_missing_slot_is_shown_without_them() {
    let mut lost = [[0; 2]; 2];
    // Of lanes that have pages of different slots.
    for (hint, is_closed) in [(0, true), (8, true), (0, false), (8, false)] {
        let dir = tempfile::tempdir().unwrap();
        let fs = opened(made(dir.path()), UpdatePolicy::Cow);
        fs.close().unwrap();
        let by_lanes =
            OpenOptions { placement: Placement::Lanes, now_ns: 2, ..OpenOptions::default() };
        let fs = open_as(fs.into_pm(), &by_lanes);
        let file = create(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
        fs.write(&CTX, file, 0, &[7; 10_000]).unwrap();
        let ctx = Ctx { hint, ..CTX };
        for ino in [Ino::ROOT, file] {
            let set = SetXattr { name: b"user.a", value: b"v", ..SetXattr::default() };
            fs.setxattr(&ctx, Node::current(ino), &set).unwrap();
        }
        // The last commit covers nothing of another slot, so that it can be judged without that.
        fs.write(&CTX, file, 10_000, &[7; 1000]).unwrap();
        if is_closed {
            fs.close().unwrap();
        }
        drop(fs);
        let [left, _] = paths(dir.path()).map(|path| Some(SlotSpec::new(path)));
        let pm = Pm::open_some(&[left, None]).unwrap();
        let fs = open_as(pm, &OpenOptions { read_only: true, now_ns: 3, ..OpenOptions::default() });
        assert_eq!(fs.lookup(&CTX, Node::ROOT, b"f").unwrap().ino, file);
        let mut read = [0; 11_001];
        assert_eq!(fs.read(&CTX, file, 0, &mut read).unwrap(), 11_000);
        assert_eq!(read[..11_000], [7; 11_000]);
        for (lost, ino) in lost.iter_mut().zip([Ino::ROOT, file]) {
            match fs.getxattr(Node::current(ino), b"user.a") {
                Ok(value) => assert_eq!(value, b"v"),
                Err(Error::Lost(at)) => lost[usize::from(is_closed)] += usize::from(at.slot() == 1),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(lost, [[1; 2]; 2], "of the root and the file, after a crash and a close");
}

/// What a pool has not used before is said in the superblock first, of which a copy may be lost.
#[test]
fn features_are_used_first_after_a_failure() {
    // The last slot has the replica.
    for failing in [1, 2] {
        let pm = Pm::anonymous(&[16 * MB; 3], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(3, 4)).unwrap();
        let features = |pm: &Pm, at| {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            pm.load(at, &mut bytes).unwrap();
            Superblock::decode(&bytes).unwrap().features_ro_compat
        };
        let [pairs, xattrs] = [RoFeature::Pairs, RoFeature::Xattrs].map(RoFeature::bit);
        assert_eq!(features(&pm, PmAddr::new(0, 0)) & (pairs | xattrs), 0);
        let update = Some(UpdatePolicy::Paired);
        let fs = open_as(pm, &OpenOptions { update, now_ns: 2, ..OpenOptions::default() });
        fs.pm().set_failed(1 << failing);
        let file = create(&fs, &CTX, Ino::ROOT, "f", FileKind::File).unwrap();
        fs.write(&CTX, file, 0, &vec![1; 20_000]).unwrap();
        fs.write(&CTX, file, 5000, &[2; 100]).unwrap();
        let set = SetXattr { name: b"user.a", value: b"v", ..SetXattr::default() };
        fs.setxattr(&CTX, Node::current(file), &set).unwrap();
        let mut read = [0; 102];
        fs.read(&CTX, file, 4999, &mut read).unwrap();
        assert!(read[0] == 1 && read[101] == 1 && read[1..101] == [2; 100]);
        let replica = PmAddr::new(2, 16 * MB - 4096);
        for at in [PmAddr::new(0, 0), replica].into_iter().filter(|at| at.slot() != failing) {
            assert_eq!(features(fs.pm(), at) & (pairs | xattrs), pairs | xattrs, "{at}");
        }
    }
}

/// Free pages of the slot that had failed counted as free: `df` showed them, what made files larger took the
/// reserve, and then nothing could be written over or removed.
#[test]
fn who_fills_the_slots_that_are_left_leaves_the_reserve() {
    let pm = Pm::anonymous(&[16 * MB; 2], &PmOptions::default()).unwrap();
    mkfs(&pm, &MkfsOptions::numbered(2, 4)).unwrap();
    let fs = opened(pm, UpdatePolicy::Cow);
    let before = fs.statfs().unwrap().pages_available;
    fs.pm().set_failed(0b10);
    assert_eq!(fs.failed_slots(), 0b10);
    let available = fs.statfs().unwrap().pages_available;
    assert!(available < before / 2 + 100, "{available} pages of {before}");
    let small = |number: usize| format!("small{number}");
    let dir = mkdir(&fs, &CTX, "dir").unwrap();
    let make = |name: &str| create(&fs, &CTX, dir, name, FileKind::File).unwrap();
    let files: Vec<_> = (0..8).map(|number| make(&small(number))).collect();
    for file in &files {
        fs.write(&CTX, *file, 0, &[1; 12_000]).unwrap();
    }
    let large = make("large");
    let mut end = 0;
    for len in [1 << 16, 1 << 12] {
        let refused = loop {
            match fs.write(&CTX, large, end, &vec![2; len]) {
                Ok(_) => end += len as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::NoSpace), "{refused}");
    }
    let left = fs.statfs().unwrap();
    assert!(left.pages_available < 16 && left.pages_free > left.pages_available, "{left:?}");
    for (number, file) in files.iter().enumerate() {
        fs.write(&CTX, *file, 0, &[3; 12_000]).unwrap();
        fs.unlink(&CTX, Node::current(dir), small(number).as_bytes()).unwrap();
    }
    fs.write(&CTX, large, end, &[4; 4096]).unwrap();
    let mut read = [0; 4096];
    fs.read(&CTX, large, end, &mut read).unwrap();
    assert_eq!(read, [4; 4096]);
}

/// It ended the process, or was a pool of which a part is nowhere.
#[test]
fn of_a_slot_that_is_cut_off_meanwhile_no_pool_is_made() {
    for slot in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let pm = made(dir.path());
        cut(dir.path(), slot);
        let refused = mkfs(&pm, &MkfsOptions::numbered(2, 16)).unwrap_err();
        let is_it = matches!(refused, Error::Lost(at) if usize::from(at.slot()) == slot);
        assert!(is_it, "{refused}");
    }
}
