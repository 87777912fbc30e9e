//! Views that nobody uses are dropped when there are more than wanted, and nothing is lost by it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use novale_arena::Arena;
use novale_core::{
    Ctx, Error, FileKind, Form, Fs, Ino, Mode, NewInode, Node, OpenOptions, Serial, SetAttr,
    Written, check,
};
use support::MB;

fn fs(pool_mb: u64, index_bytes: u64) -> Fs {
    let pm = support::pool(&[pool_mb * MB], 2);
    let options =
        OpenOptions { now_ns: 2, index_bytes: Some(index_bytes), ..OpenOptions::default() };
    support::open_as(pm, &options)
}

fn ctx() -> Ctx {
    Ctx { now_ns: 3, hint: 0 }
}

fn make(fs: &Fs, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&ctx(), Node::current(dir), name.as_bytes(), &new).unwrap().ino
}

fn is_sound(fs: &Fs) {
    fs.close().unwrap();
    assert_eq!(check(fs.pm(), &Serial, &|_| ()).unwrap().findings, vec![]);
}

/// 20,000 files take 6 MB of views; 2 MB are wanted.
#[test]
fn of_many_files_only_those_in_use() {
    const FILES: usize = 20_000;
    let fs = fs(256, 2 * MB);
    let mut files = Vec::new();
    for dir in 0..20 {
        let dir = make(&fs, Ino::ROOT, &format!("d{dir}"), FileKind::Directory);
        for file in 0..FILES / 20 {
            let ino = make(&fs, dir, &format!("f{file}"), FileKind::File);
            fs.write(&ctx(), ino, 0, &(files.len() as u64).to_le_bytes()).unwrap();
            files.push((dir, file, ino));
        }
    }
    for round in 0..4 {
        for (index, (dir, file, ino)) in files.iter().enumerate() {
            let found =
                fs.lookup(&ctx(), Node::current(*dir), format!("f{file}").as_bytes()).unwrap();
            assert_eq!(found.ino, *ino, "round {round}");
            let mut bytes = [0; 8];
            assert_eq!(fs.read(&ctx(), *ino, 0, &mut bytes).unwrap(), 8);
            assert_eq!(u64::from_le_bytes(bytes), index as u64);
        }
    }
    let memory = fs.index_memory();
    assert_eq!(memory.wanted_bytes, 2 * MB);
    // Directories keep a block each, number maps 9 bytes a file; nodes and buckets that are free for
    // their own kind count too.
    assert!(memory.used_bytes < 3 * MB, "{memory:?}");
    is_sound(&fs);
}

/// What took memory before a scattered file does, and has given it back.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    /// A file with a pair in each leaf.
    Pairs,
    /// A directory of many names.
    Names,
}

impl Before {
    fn run(self, fs: &Fs, mode: Mode) {
        let dir = make(fs, Ino::ROOT, "dir", FileKind::Directory);
        match self {
            Self::Nothing => {}
            Self::Pairs => {
                let ino = make(fs, dir, "pairs", FileKind::File);
                for at in (0..4000).map(|pair| pair * 64 * 4096) {
                    fs.write(&ctx(), ino, at, &[1; 4096]).unwrap();
                    fs.write(&ctx(), ino, at + 64, &[2; 8]).unwrap();
                }
                let paired = Written::Paired.asked(&fs.pm().counters()).count;
                assert!(paired >= 2000 || mode == Mode::Buffered, "{paired}");
                fs.unlink(&ctx(), Node::current(dir), b"pairs").unwrap();
            }
            Self::Names => {
                let file = make(fs, Ino::ROOT, "file", FileKind::File);
                let name = |link: usize| format!("link{link}");
                let link = |link: &usize| {
                    let place = (Node::current(dir), name(*link));
                    fs.link(&ctx(), Node::current(file), place.0, place.1.as_bytes()).is_ok()
                };
                let links = (0..60_000).take_while(link).count();
                assert!(links >= 20_000, "{links}");
                for link in 0..links {
                    fs.unlink(&ctx(), Node::current(dir), name(link).as_bytes()).unwrap();
                }
            }
        }
        fs.rmdir(&ctx(), Node::ROOT, b"dir").unwrap();
    }
}

/// Its index took all memory, and what it gave back went to indexes alone, as what others had taken before went to
/// their kinds: nobody could look anything up, or make or remove it, until the pool was opened again.
#[test]
fn one_scattered_file_leaves_others_their_memory() {
    for before in [Before::Nothing, Before::Pairs, Before::Names] {
        for mode in [Mode::Strict, Mode::Buffered] {
            scatter(before, mode);
        }
    }
}

fn scatter(before: Before, mode: Mode) {
    let arena = Arena::anonymous(8 * MB).unwrap();
    let options = OpenOptions {
        now_ns: 2,
        mode: Some(mode),
        buffer_bytes: Some(MB),
        ..OpenOptions::default()
    };
    let fs = Fs::open(support::pool(&[256 * MB], 2), arena, &options, &Serial, &|_| {}).unwrap();
    before.run(&fs, mode);
    let dir = make(&fs, Ino::ROOT, "d", FileKind::Directory);
    let names = |kind: &str| (0..200).map(|file| format!("{kind}{file}")).collect::<Vec<_>>();
    for name in names("before") {
        let ino = make(&fs, dir, &name, FileKind::File);
        fs.write(&ctx(), ino, 0, name.as_bytes()).unwrap();
    }
    let scattered = make(&fs, Ino::ROOT, "scattered", FileKind::File);
    fs.hold(scattered).unwrap();
    let far = |page: u64| fs.write(&ctx(), scattered, page << 30, &[1]);
    // Where memory was refused, what nobody uses goes: it may go on once more.
    let is_refused = |page: &u64| matches!(far(*page), Err(Error::NoMemory));
    let written = (0..100_000).find(|page| is_refused(page) && is_refused(page)).unwrap();
    // What it has can be changed, and all else be used; small files are made.
    far(written / 2).unwrap();
    for name in names("meanwhile") {
        let ino = make(&fs, dir, &name, FileKind::File);
        fs.write(&ctx(), ino, 0, name.as_bytes()).unwrap();
    }
    for name in names("before") {
        let found = fs.lookup(&ctx(), Node::current(dir), name.as_bytes()).unwrap().ino;
        let mut bytes = vec![0; name.len()];
        fs.read(&ctx(), found, 0, &mut bytes).unwrap();
        assert_eq!(bytes, name.as_bytes());
        fs.unlink(&ctx(), Node::current(dir), name.as_bytes()).unwrap();
    }
    for name in names("after") {
        let ino = make(&fs, dir, &name, FileKind::File);
        fs.write(&ctx(), ino, 0, name.as_bytes()).unwrap();
    }
    fs.unlink(&ctx(), Node::ROOT, b"scattered").unwrap();
    fs.release(&ctx(), scattered, 1).unwrap();
    // Its memory is other files', whatever they need it for.
    for name in names("large") {
        let ino = make(&fs, dir, &name, FileKind::File);
        for page in [0, 1 << 10, 1 << 20] {
            fs.write(&ctx(), ino, page << 12, name.as_bytes()).unwrap();
        }
    }
    is_sound(&fs);
}

/// What is wanted was exceeded for as long as the only file was used by each operation.
#[test]
fn one_that_was_just_used_goes_where_there_is_no_other() {
    const WANTED: u64 = MB;
    let fs = fs(64, WANTED);
    let file = make(&fs, Ino::ROOT, "file", FileKind::File);
    for at in (0..2500).map(|piece| piece * 64 * 4096) {
        fs.write(&ctx(), file, at, b"x").unwrap();
    }
    assert!(fs.index_memory().used_bytes > WANTED);
    make(&fs, Ino::ROOT, "other", FileKind::File);
    let memory = fs.index_memory();
    assert!(memory.used_bytes - memory.free_bytes < WANTED, "{memory:?}");
    is_sound(&fs);
}

/// A file without a name lives in its view alone; what else is dropped must not take it along.
#[test]
fn a_held_file_without_a_name_stays() {
    let fs = fs(64, 0);
    let ino = make(&fs, Ino::ROOT, "held", FileKind::File);
    fs.write(&ctx(), ino, 0, b"still here").unwrap();
    fs.hold(ino).unwrap();
    fs.unlink(&ctx(), Node::ROOT, b"held").unwrap();
    for other in 0..200 {
        make(&fs, Ino::ROOT, &format!("other{other}"), FileKind::File);
    }
    let mut bytes = [0; 10];
    fs.read(&ctx(), ino, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
    fs.release(&ctx(), ino, 1).unwrap();
    assert!(matches!(fs.getattr(ino), Err(Error::Stale)));
    is_sound(&fs);
}

/// A directory's parent is known by its view alone, where the hint on media is of no use.
#[test]
fn a_directory_knows_its_parent_still() {
    let fs = fs(64, 0);
    let above = make(&fs, Ino::ROOT, "above", FileKind::Directory);
    let below = make(&fs, above, "below", FileKind::Directory);
    for other in 0..200 {
        make(&fs, above, &format!("other{other}"), FileKind::File);
        assert_eq!(fs.parent(Node::current(below)).unwrap().ino, above);
    }
    is_sound(&fs);
}

/// Readers have no lock: what they read of a block that is dropped and used again counts for
/// nothing. Each file says which one it is.
#[test]
fn readers_never_see_another_inode() {
    const FILES: u64 = 300;
    let fs = fs(64, 0);
    let files: Vec<Ino> = (0..FILES)
        .map(|file| {
            let ino = make(&fs, Ino::ROOT, &format!("f{file}"), FileKind::File);
            fs.write(&ctx(), ino, 0, &file.to_le_bytes()).unwrap();
            ino
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (fs, files, stop) = (&fs, &files, &stop);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !stop.load(Ordering::Relaxed) {
                    let file = random.u64(0..FILES);
                    let ino = files[usize::try_from(file).unwrap()];
                    let mut bytes = [0; 8];
                    fs.read(&ctx(), ino, 0, &mut bytes).unwrap();
                    assert_eq!(u64::from_le_bytes(bytes), file);
                    assert_eq!(fs.getattr(ino).unwrap().ino, ino);
                    let name = format!("f{file}");
                    assert_eq!(fs.lookup(&ctx(), Node::ROOT, name.as_bytes()).unwrap().ino, ino);
                }
            });
        }
        // Blocks go to other inodes all the time.
        for turn in 0..2_000 {
            let name = format!("t{turn}");
            let ino = make(&fs, Ino::ROOT, &name, FileKind::File);
            fs.write(&ctx(), ino, 0, &u64::MAX.to_le_bytes()).unwrap();
            fs.unlink(&ctx(), Node::ROOT, name.as_bytes()).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    is_sound(&fs);
}

/// The log does not have the time of an access; words beside it do. An explicit one is in the log.
#[test]
fn access_times_outlive_views_and_mounts() {
    let fs = fs(64, 0);
    let at = |now_ns| Ctx { now_ns, hint: 0 };
    let [read, set] = ["read", "set"].map(|name| make(&fs, Ino::ROOT, name, FileKind::File));
    for ino in [read, set] {
        fs.write(&at(10), ino, 0, b"bytes").unwrap();
        fs.read(&at(5_000), ino, 0, &mut [0; 5]).unwrap();
    }
    let explicit = SetAttr { atime_ns: Some(77), ..SetAttr::default() };
    fs.setattr(&at(6_000), Node::current(set), &explicit).unwrap();
    let times = |fs: &Fs| [read, set].map(|ino| fs.getattr(ino).unwrap().atime_ns);
    assert_eq!(times(&fs), [5_000, 77]);
    for other in 0..200 {
        make(&fs, Ino::ROOT, &format!("other{other}"), FileKind::File);
    }
    assert_eq!(times(&fs), [5_000, 77], "views dropped");
    is_sound(&fs);
    let fs = support::open(fs.into_pm(), Form::Auto);
    assert_eq!(times(&fs), [5_000, 77], "opened again");
}

/// Pages kept for a log that grows go back with the view, however many they are: the check of a closed
/// pool finds none that is in use for nothing.
#[test]
fn pages_kept_for_logs_go_back() {
    let fs = fs(64, 0);
    for writes in [1_u64, 64, 130, 200, 260, 330, 400] {
        let ino = make(&fs, Ino::ROOT, &format!("w{writes}"), FileKind::File);
        for write in 0..writes {
            // Pages apart from each other: an entry each.
            fs.write(&ctx(), ino, write * 8192, b"x").unwrap();
        }
    }
    for other in 0..200 {
        make(&fs, Ino::ROOT, &format!("other{other}"), FileKind::File);
    }
    is_sound(&fs);
}

/// The bytes that views take, after each of `count` files or directories was used and dropped.
fn used_by_turns(fs: &Fs, count: usize, mut turn: impl FnMut(usize)) -> [u64; 2] {
    let mut used = [0; 2];
    for index in 0..count {
        turn(index);
        used[usize::from(index >= 5)] = fs.index_memory().used_bytes;
    }
    used
}

/// What a view has of its inode goes with it, or each that is used takes more.
#[test]
fn an_index_goes_with_its_view() {
    let fs = fs(64, 0);
    let files = used_by_turns(&fs, 30, |turn| {
        let ino = make(&fs, Ino::ROOT, &format!("f{turn}"), FileKind::File);
        for page in 0..100 {
            fs.write(&ctx(), ino, page * 64 * 4096, b"x").unwrap();
        }
        fs.unlink(&ctx(), Node::ROOT, b"none").unwrap_err();
    });
    let directories = used_by_turns(&fs, 30, |turn| {
        let dir = make(&fs, Ino::ROOT, &format!("d{turn}"), FileKind::Directory);
        for name in 0..200 {
            make(&fs, dir, &name.to_string(), FileKind::File);
        }
    });
    // An index of 100 nodes takes 50 KB, and 200 names take 5.
    assert!(files[1] < files[0] + 500_000, "{files:?}");
    assert!(directories[1] < directories[0] + 60_000, "{directories:?}");
    is_sound(&fs);
}

/// Second copies of pages take room as long as a view knows of them, so they go before it does.
#[test]
fn a_files_pairs_go_before_its_view() {
    const PAGES: u64 = 20;
    let fs = fs(64, 0);
    let ino = make(&fs, Ino::ROOT, "f", FileKind::File);
    for page in 0..PAGES {
        fs.write(&ctx(), ino, page * 4096, &[1; 4096]).unwrap();
        fs.write(&ctx(), ino, page * 4096 + 64, &page.to_le_bytes()).unwrap();
    }
    assert!(Written::Paired.asked(&fs.pm().counters()).count > 0);
    for other in 0..200 {
        make(&fs, Ino::ROOT, &format!("other{other}"), FileKind::File);
    }
    assert!(fs.getattr(ino).unwrap().blocks < 2 * PAGES * 8);
    for page in 0..PAGES {
        let mut bytes = [0; 8];
        fs.read(&ctx(), ino, page * 4096 + 64, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), page);
    }
    is_sound(&fs);
}

/// In a pool that nobody writes to pairs stay where they are, and their views go all the same.
#[test]
fn files_with_pairs_go_from_a_pool_that_is_only_read() {
    const FILES: u64 = 30;
    let fs = fs(64, MB);
    let inos: Vec<Ino> = (0..FILES)
        .map(|file| {
            let ino = make(&fs, Ino::ROOT, &format!("f{file}"), FileKind::File);
            for page in 0..50 {
                fs.write(&ctx(), ino, page * 64 * 4096, &[1; 4096]).unwrap();
                fs.write(&ctx(), ino, page * 64 * 4096 + 64, &file.to_le_bytes()).unwrap();
            }
            ino
        })
        .collect();
    let pm = fs.into_pm();
    let options = OpenOptions { read_only: true, index_bytes: Some(0), ..OpenOptions::default() };
    let fs = support::open_as(pm, &options);
    let stored = fs.pm().counters().lines();
    let used = used_by_turns(&fs, inos.len(), |turn| {
        let mut bytes = [0; 8];
        for page in 0..50 {
            fs.read(&ctx(), inos[turn], page * 64 * 4096 + 64, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), turn as u64);
        }
    });
    assert!(used[1] < used[0] + 100_000, "{used:?}");
    assert_eq!(fs.pm().counters().lines(), stored, "nothing is stored");
}
