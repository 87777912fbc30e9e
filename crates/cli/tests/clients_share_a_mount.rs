//! Promise: a mount made with `-o direct` and programs that have the pool open beside it see one file
//! system, whatever of them dies.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use novale_arena::ArenaError;
use novale_core::Serial;
use novale_posix::Files;
use novale_posix::join::{self, JoinError, Joined, Opening};
use rustix::process::Signal;
use support::{Daemon, Scratch, arenas, ends, eventually, facts, novale, patch, signal_daemon};

/// Set for a client that is a process of its own: the slot.
const CHILD: &str = "NOVALE_TEST_CHILD";

fn client(slot: &str) -> Joined {
    join::join(&[PathBuf::from(slot)]).unwrap()
}

fn mount(slot: &str, scratch: &Scratch) {
    novale(&["mount", "-o", "direct", slot, &scratch.dir()]).ok();
}

/// The error of one who is not let in.
fn refused(slot: &str) -> JoinError {
    join::join(&[PathBuf::from(slot)]).map(|_| ()).unwrap_err()
}

/// The second was refused while the first opened the pool, and took it for one that is not shared when the
/// first had mounted it by then.
#[test]
fn two_who_mount_a_pool_at_once_share_it() {
    let Some(scratch) = Scratch::for_mount("two_who_mount_a_pool") else { return };
    let pool = scratch.pool();
    let slot = pool.as_str();
    let folders = [scratch.dir(), scratch.slot("second")];
    fs::create_dir(&folders[1]).unwrap();
    for _ in 0..8 {
        let daemons: Vec<Daemon> = thread::scope(|scope| {
            let start = |folder| move || Daemon::start("direct", &[slot], folder);
            let both = folders.each_ref().map(|folder| scope.spawn(start(folder)));
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let said: String = daemons.into_iter().map(Daemon::umount).collect();
        assert!(said.contains("another mount of this pool is served"), "{said}");
    }
}

#[test]
fn what_one_writes_the_other_reads_at_once() {
    let Some(scratch) = Scratch::for_mount("what_one_writes") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    for round in 0..50_u32 {
        let text = format!("round {round}").repeat(700);
        // The kernel asked for the name before and was told that there is none.
        let name = format!("new{round}");
        assert!(!scratch.in_dir(&name).exists());
        files.write_file(&name, text.as_bytes()).unwrap();
        assert_eq!(fs::read(scratch.in_dir(&name)).unwrap(), text.as_bytes());
        fs::write(scratch.in_dir(&name), b"shorter").unwrap();
        assert_eq!(files.read_file(&name).unwrap(), b"shorter");
        files.rename(&name, "old").unwrap();
        assert!(!scratch.in_dir(&name).exists());
        assert_eq!(fs::metadata(scratch.in_dir("old")).unwrap().len(), 7);
        fs::rename(scratch.in_dir("old"), scratch.in_dir("older")).unwrap();
        assert!(!files.exists("old") && files.exists("older"));
    }
    files.create_dir("dir", 0o755).unwrap();
    files.write_file("dir/a", b"").unwrap();
    fs::write(scratch.in_dir("dir/b"), b"").unwrap();
    files.remove_file("dir/a").unwrap();
    let listed =
        fs::read_dir(scratch.in_dir("dir")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(listed.collect::<Vec<_>>(), ["b"]);
    joined.close().unwrap();
    assert!(!joined.fs.is_pool_closed(), "the daemon has it open");
}

#[test]
fn an_open_file_shows_what_others_did_to_it() {
    let Some(scratch) = Scratch::for_mount("an_open_file_shows") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    let mut open = File::options();
    let open = open.read(true).write(true).create(true).truncate(true);
    let mut through = open.open(scratch.in_dir("file")).unwrap();
    through.write_all(&[1; 10_000]).unwrap();
    let writing = novale_posix::OpenOptions::new().read(true).write(true);
    let fd = files.open("file", &writing).unwrap();
    files.write_at(fd, 5000, &vec![2; 20_000]).unwrap();
    let mut bytes = vec![0; 25_000];
    through.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..5000].iter().all(|byte| *byte == 1));
    assert!(bytes[5000..].iter().all(|byte| *byte == 2));
    assert_eq!(through.metadata().unwrap().len(), 25_000);
    assert_eq!(through.seek(SeekFrom::End(0)).unwrap(), 25_000);
    through.set_len(100).unwrap();
    assert_eq!(files.fstat(fd).unwrap().size, 100);
    // What appends goes to the end, which the kernel does not know.
    let mut appender = File::options().append(true).open(scratch.in_dir("file")).unwrap();
    for _ in 0..20 {
        let size = files.fstat(fd).unwrap().size;
        files.write_at(fd, size, b"direct").unwrap();
        appender.write_all(b"kernel").unwrap();
    }
    let mut tail = String::new();
    through.seek(SeekFrom::Start(100)).unwrap();
    through.read_to_string(&mut tail).unwrap();
    assert_eq!(tail, "directkernel".repeat(20));
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(scratch.in_dir("file"), mode).unwrap();
    assert_eq!(files.fstat(fd).unwrap().mode, 0o600);
    files.close(fd).unwrap();
    joined.close().unwrap();
}

/// Not a test of its own: the client that [`what_a_killed_client_had_open_is_closed`] kills.
#[test]
fn opening_client() {
    let Ok(slot) = std::env::var(CHILD) else { return };
    let joined = client(&slot);
    let attr = Files::new(joined.fs.clone()).stat("large").unwrap();
    let ctx = novale_core::Ctx { now_ns: 1, hint: 0 };
    joined.fs.open_hold(&ctx, attr.ino, attr.generation).unwrap().unwrap();
    println!("attached");
    std::thread::park();
}

#[test]
fn what_a_killed_client_had_open_is_closed() {
    let Some(scratch) = Scratch::for_mount("what_a_killed_client") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    files.write_file("large", &vec![1; 16 << 20]).unwrap();
    let free = || files.stat_fs().unwrap().pages_free;
    let mut child = start_client(&slot, "opening_client");
    files.remove_file("large").unwrap();
    let before = free();
    child.kill().unwrap();
    child.wait().unwrap();
    // The daemon sees to it.
    assert!(eventually(|| free() >= before + 4096));
    joined.close().unwrap();
}

/// Not a test of its own: the client that [`a_client_that_is_killed_disturbs_nobody`] kills.
#[test]
fn killed_client() {
    let Ok(slot) = std::env::var(CHILD) else { return };
    let files = Files::new(client(&slot).fs);
    println!("attached");
    for round in 0..u64::MAX {
        let name = format!("child{}", round % 7);
        files.write_file(&name, &round.to_le_bytes().repeat(1000)).unwrap();
        files.rename(&name, "child").unwrap();
    }
}

/// Starts a client and waits until it is one.
fn start_client(slot: &str, which: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", which, "--nocapture"]).env(CHILD, slot);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap().contains("attached")));
    child
}

#[test]
fn a_client_that_is_killed_disturbs_nobody() {
    let Some(scratch) = Scratch::for_mount("a_client_that_is_killed") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    for _ in 0..10 {
        let mut child = start_client(&slot, "killed_client");
        assert!(eventually(|| scratch.in_dir("child").exists()));
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever it held is given back to the caller.
        let bytes = fs::read(scratch.in_dir("child")).unwrap();
        let first: [u8; 8] = *bytes.first_chunk().unwrap();
        assert_eq!(bytes, first.repeat(1000), "a write is seen whole");
        // The write that it died in may have been committed, and is shown once it is settled.
        let settled = files.read_file("child").unwrap();
        let next = (u64::from_le_bytes(first) + 1).to_le_bytes();
        assert!(settled == bytes || settled == next.repeat(1000));
        assert!(fs::read(scratch.in_dir("child")).unwrap() == settled);
        fs::write(scratch.in_dir("child0"), b"mine").unwrap();
        files.write_file("child1", b"mine too").unwrap();
        files.remove_file("child").unwrap();
    }
    joined.close().unwrap();
    drop((files, joined));
    novale(&["umount", &scratch.dir()]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
    assert!(arenas(&slot).is_empty());
}

#[test]
fn a_daemon_that_is_killed_leaves_the_pool_to_the_others_and_the_next_joins_them() {
    let Some(scratch) = Scratch::for_mount("a_daemon_that_is_killed") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    fs::write(scratch.in_dir("before"), b"acknowledged").unwrap();
    assert!(ends(signal_daemon(&slot, Signal::KILL)));
    assert_eq!(files.read_file("before").unwrap(), b"acknowledged");
    files.write_file("while dead", b"direct").unwrap();
    // One that would recover the pool under the client's feet is refused, and told why.
    novale(&["mount", &slot, &scratch.dir()]).refused(1, &["in use", "-o direct"]);
    novale(&["check", &slot]).refused(8, &["in use"]);
    let again = novale(&["mount", "-o", "direct", &slot, &scratch.dir()]);
    assert!(!again.err.contains("recovered"), "{}", again.err);
    again.ok();
    assert_eq!(fs::read(scratch.in_dir("while dead")).unwrap(), b"direct");
    files.write_file("after", b"both").unwrap();
    assert_eq!(fs::read(scratch.in_dir("after")).unwrap(), b"both");
    joined.close().unwrap();
    drop((files, joined));
    novale(&["umount", &scratch.dir()]).ok();
    assert_eq!(facts(&slot)["clean"], true);
    assert!(novale(&["check", &slot]).ok().contains("no errors"));
    assert!(arenas(&slot).is_empty());
}

#[test]
fn a_mount_is_busy_while_programs_use_the_pool_and_the_last_of_them_closes_it() {
    let Some(scratch) = Scratch::for_mount("a_mount_is_busy_while") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    let me = std::process::id().to_string();
    assert!(novale(&["info", &slot]).ok().contains("clients   2: "));
    novale(&["umount", &scratch.dir()]).refused(1, &["busy", &me, "--lazy"]);
    files.write_file("file", b"still mounted").unwrap();
    novale(&["umount", "--force", &scratch.dir()]).ok();
    assert!(!scratch.is_mounted());
    files.write_file("file", b"and still open").unwrap();
    assert_eq!(arenas(&slot).len(), 1);
    joined.close().unwrap();
    assert!(joined.fs.is_pool_closed() && arenas(&slot).is_empty());
    drop((files, joined));
    assert_eq!(facts(&slot)["clean"], true);
    novale(&["mount", &slot, &scratch.dir()]).ok();
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"and still open");
}

#[test]
fn only_what_is_shared_and_of_this_build_is_joined() {
    let Some(scratch) = Scratch::for_mount("only_what_is_shared") else { return };
    let slot = scratch.pool();
    assert!(matches!(refused(&slot), JoinError::NotOpen));
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let alone = refused(&slot);
    assert!(matches!(alone, JoinError::NotShared { .. }), "{alone}");
    novale(&["umount", &scratch.dir()]).ok();
    novale(&["mount", "-o", "direct,ro", &slot, &scratch.dir()]).refused(1, &["ro or direct"]);

    mount(&slot, &scratch);
    let arena = arenas(&slot).remove(0);
    assert_eq!(fs::metadata(&arena).unwrap().mode() & 0o777, 0o600);
    std::os::unix::fs::chown(&arena, Some(65534), None).unwrap();
    let foreign = refused(&slot);
    assert!(foreign.is_permission() && matches!(foreign, JoinError::Foreign { .. }), "{foreign}");
    std::os::unix::fs::chown(&arena, Some(0), None).unwrap();
    // The layout's hash is the header's second word.
    let mut word = [0; 8];
    File::open(&arena).unwrap().read_exact_at(&mut word, 8).unwrap();
    let path = arena.to_str().unwrap();
    patch(path, SeekFrom::Start(8), &[word[0] ^ 1]);
    let other = refused(&slot);
    assert!(matches!(other, JoinError::Arena(ArenaError::OtherBuild { .. })), "{other}");
    patch(path, SeekFrom::Start(8), &word);
    client(&slot).close().unwrap();
}

#[test]
fn programs_share_a_pool_that_nobody_has_mounted() {
    let Some(scratch) = Scratch::for_mount("programs_share_a_pool") else { return };
    let slot = scratch.pool();
    let slots = [PathBuf::from(&slot)];
    let open = || join::open(&slots, &Opening::default(), &Serial, &|_| ()).unwrap();
    let (first, second) = (open(), open());
    assert!(first.is_first() && !second.is_first());
    Files::new(first.fs.clone()).write_file("file", b"of the first").unwrap();
    assert_eq!(Files::new(second.fs.clone()).read_file("file").unwrap(), b"of the first");
    novale(&["mount", &slot, &scratch.dir()]).refused(1, &["in use", "-o direct"]);
    mount(&slot, &scratch);
    assert_eq!(fs::read(scratch.in_dir("file")).unwrap(), b"of the first");
    // The one that opened the pool is not the one that closes it.
    first.close().unwrap();
    drop(first);
    fs::write(scratch.in_dir("file"), b"of the mount").unwrap();
    assert_eq!(Files::new(second.fs.clone()).read_file("file").unwrap(), b"of the mount");
    second.close().unwrap();
    drop(second);
    novale(&["umount", &scratch.dir()]).ok();
    assert_eq!(facts(&slot)["clean"], true);
}

/// The number and the generation of a file, as a client knows them.
fn by_number(files: &Files, name: &str) -> String {
    let attr = files.lstat(name).unwrap();
    format!(".novale/{}.{}", attr.ino.get(), attr.generation)
}

#[test]
fn an_inode_is_found_by_number_whatever_its_names_are() {
    let Some(scratch) = Scratch::for_mount("an_inode_is_found_by_number") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    files.write_file("file", b"of the client").unwrap();
    files.create_dir("dir", 0o755).unwrap();
    files.symlink("nowhere", "link").unwrap();
    let [file, link, dir] = ["file", "link", "dir"].map(|name| by_number(&files, name));
    let path = scratch.in_dir(&file);
    assert_eq!(fs::read(&path).unwrap(), b"of the client");
    assert_eq!(fs::read_link(scratch.in_dir(&link)).unwrap(), PathBuf::from("nowhere"));
    assert!(!scratch.in_dir(&dir).exists(), "a directory has one place");
    // Locks are the inode's, whichever way it was opened.
    let by_name = File::open(scratch.in_dir("file")).unwrap();
    let numbered = File::options().read(true).write(true).open(&path).unwrap();
    by_name.lock().unwrap();
    assert!(numbered.try_lock().is_err());
    assert_eq!(by_name.metadata().unwrap().ino(), numbered.metadata().unwrap().ino());

    // Its last name goes, and it is there as long as somebody holds it.
    let fd = files.open("file", &novale_posix::OpenOptions::new().read(true)).unwrap();
    files.remove_file("file").unwrap();
    drop((by_name, numbered));
    let mut nameless = File::options().append(true).open(&path).unwrap();
    nameless.write_all(b", and of the kernel").unwrap();
    assert_eq!(files.fstat(fd).unwrap().size, 32);
    drop(nameless);
    files.close(fd).unwrap();
    joined.close().unwrap();
}

#[test]
fn the_directory_of_numbers_is_in_shared_mounts_alone_and_changes_in_no_way() {
    let Some(scratch) = Scratch::for_mount("the_directory_of_numbers") else { return };
    let slot = scratch.pool();
    novale(&["mount", &slot, &scratch.dir()]).ok();
    let directory = scratch.in_dir(".novale");
    assert!(!directory.exists());
    assert_eq!(fs::create_dir(&directory).unwrap_err().raw_os_error(), Some(1));
    novale(&["umount", &scratch.dir()]).ok();
    mount(&slot, &scratch);
    fs::write(scratch.in_dir("file"), b"").unwrap();
    let found = fs::metadata(&directory).unwrap();
    assert!(found.is_dir() && found.mode() & 0o7777 == 0o700 && found.uid() == 0);
    let list = |path: &PathBuf| fs::read_dir(path).unwrap().count();
    assert_eq!((list(&directory), list(&scratch.in_dir(""))), (0, 1));
    for name in ["1.1", "2", "2.", "02.1", "999999.1", "x", "1099511627776.0"] {
        let error = fs::metadata(directory.join(name)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{name}");
    }
    let refused = |done: std::io::Result<()>, what: &str| {
        let error = done.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1), "{what}: {error}");
    };
    let [inside, file, elsewhere] = ["new", "file", "x"].map(|name| match name {
        "new" => directory.join(name),
        _ => scratch.in_dir(name),
    });
    refused(File::create(&inside).map(drop), "create");
    refused(fs::create_dir(&inside), "mkdir");
    refused(std::os::unix::fs::symlink("x", &inside), "symlink");
    refused(fs::hard_link(&file, &inside), "link");
    refused(fs::rename(&file, &inside), "rename to");
    refused(fs::rename(&directory, &elsewhere), "rename");
    refused(fs::remove_dir(&directory), "rmdir");
    refused(fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)), "chmod");
    // Nobody else gets in.
    let script = format!("cat {}", directory.join("1.1").display());
    let mut shell = Command::new("sh");
    std::os::unix::process::CommandExt::uid(&mut shell, 65534);
    let said = shell.args(["-c", &script]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("ermission denied"));
}

/// Maps a file, says what it reads, and stores a byte when it is told to go on; then it ends.
const MAPS: &str = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
page = mmap.mmap(file.fileno(), 0)
print(chr(page[0]), flush=True)
sys.stdin.readline()
page[0] = ord('M')
print('stored', flush=True)
sys.stdin.readline()
";

#[test]
fn a_file_that_somebody_has_mapped_is_the_kernels_until_it_is_not_mapped() {
    let Some(scratch) = Scratch::for_mount("a_file_that_somebody_has_mapped") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    joined.fs.refuse_mapped();
    let files = Files::new(joined.fs.clone());
    files.write_file("file", &[b'a'; 10_000]).unwrap();
    let path = scratch.in_dir("file");
    let mut python = Command::new("python3");
    let python = python.args(["-c", MAPS]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut python) = python.spawn() else {
        println!("skipped: a_file_that_somebody_has_mapped: no python3");
        return;
    };
    let mut said = BufReader::new(python.stdout.take().unwrap()).lines();
    let mut tell = python.stdin.take().unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "a");
    let fd = files.open("file", &novale_posix::OpenOptions::new().read(true).write(true)).unwrap();
    let refused = |done: novale_posix::Result<()>| {
        let error = done.unwrap_err();
        assert!(matches!(error, novale_posix::Error::Fs(novale_core::Error::Mapped)), "{error}");
    };
    refused(files.read_at(fd, 0, &mut [0; 10]).map(drop));
    refused(files.read_at(fd, 3000, &mut [0; 6000]).map(drop));
    refused(files.write_at(fd, 0, b"x").map(drop));
    refused(files.write_at(fd, 0, &[1; 9000]).map(drop));
    refused(files.truncate(fd, 5));
    // Attributes are nobody's pages.
    assert_eq!(files.fstat(fd).unwrap().size, 10_000);
    tell.write_all(b"\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "stored");
    let through = File::options().read(true).write(true).open(&path).unwrap();
    let mut first = [0; 1];
    through.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(&first, b"M");
    drop(tell);
    assert!(python.wait().unwrap().success());
    drop(through);
    assert!(eventually(|| files.read_at(fd, 0, &mut first).is_ok()));
    assert_eq!(&first, b"M");
    files.write_at(fd, 0, b"x").unwrap();
    files.close(fd).unwrap();
    joined.close().unwrap();
}

/// A file that the kernel knew kept its space when a direct client had removed it.
#[test]
fn the_space_of_what_the_kernel_knows_comes_back_when_it_looks_again() {
    let Some(scratch) = Scratch::for_mount("the_space_of_what") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let (fs, files) = (&joined.fs, Files::new(joined.fs.clone()));
    let ctx = novale_core::Ctx { now_ns: 1, hint: 0 };
    let is_known = |ino| fs.is_known_to_kernel(&ctx, ino).unwrap();
    let free = || files.stat_fs().unwrap().pages_free;
    for known in [false, true] {
        files.write_file("file", &vec![1; 8 << 20]).unwrap();
        files.write_file("other", b"").unwrap();
        let attr = files.stat("file").unwrap();
        let hold = fs.open_hold(&ctx, attr.ino, attr.generation).unwrap().unwrap();
        if known {
            assert_eq!(fs::metadata(scratch.in_dir("file")).unwrap().len(), 8 << 20);
        }
        assert_eq!(is_known(attr.ino), known);
        files.rename("other", "file").unwrap();
        assert_eq!(is_known(attr.ino), known);
        let before = free();
        fs.open_release(&ctx, hold).unwrap();
        if known {
            assert!(free() < before + 2000, "the kernel has it");
            assert_eq!(fs::metadata(scratch.in_dir("file")).unwrap().len(), 0);
        }
        assert!(eventually(|| free() >= before + 2000));
        assert!(!is_known(attr.ino), "it is gone");
    }
    joined.close().unwrap();
}

/// A program opens a file by its number through the mount, and has the kernel forget that name. One that was killed
/// between the two left it, and the file's space stayed taken when all its names were gone.
#[test]
fn the_space_of_what_was_looked_up_by_number_comes_back() {
    let Some(scratch) = Scratch::for_mount("looked_up_by_number") else { return };
    let slot = scratch.pool();
    mount(&slot, &scratch);
    let joined = client(&slot);
    let files = Files::new(joined.fs.clone());
    files.write_file("file", &vec![1; 8 << 20]).unwrap();
    let attr = files.stat("file").unwrap();
    let by_number = format!(".novale/{}.{}", attr.ino.get(), attr.generation);
    drop(File::open(scratch.in_dir(&by_number)).unwrap());
    let before = files.stat_fs().unwrap().pages_free;
    files.remove_file("file").unwrap();
    assert!(eventually(|| files.stat_fs().unwrap().pages_free >= before + 2000));
    joined.close().unwrap();
}
