//! What an inode can't count any more is refused, and changes nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test panics")]

mod support;

use novale_core::{
    Ctx, Error, Fallocate, FileKind, Fs, Ino, NewInode, Node, OpenOptions, Piece, Place,
    RenameMode, Seek, SetAttr,
};
use novale_layout::{
    COMMIT_OFFSETS, CommitLine, INODE_SIZE, INODES_PER_PAGE, PAGE, PmAddr, Seed, Superblock,
};
use novale_pm::{Pm, Purpose};

const CTX: Ctx = Ctx { now_ns: 3, hint: 0 };
const POOL_UUID: [u8; 16] = [7; 16];

fn new_pool() -> Pm {
    support::pool(&[32 << 20], 2)
}

fn open(pm: Pm) -> Fs {
    support::open_as(pm, &OpenOptions::default())
}

fn make(fs: &Fs, name: &[u8], kind: FileKind) -> Ino {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::ROOT, name, &new).unwrap().ino
}

/// Gives the newest commit line of an inode another link count, as so many links would.
fn set_links(pm: &Pm, ino: Ino, nlink: u32) {
    let mut bytes = [0; 1024];
    pm.load(PmAddr::new(0, 0), &mut bytes).unwrap();
    let root = Superblock::decode(&bytes).unwrap().roots.inode_directory;
    let next = |page: PmAddr, word: u64| PmAddr::from_raw(pm.load_u64(page.add(word * 8)).unwrap());
    // Small numbers lie in the first chunk, the first table of the first page.
    let page = next(next(next(root, 0), 0), ino.get() / INODES_PER_PAGE);
    let seed = Seed::pool(&POOL_UUID).ino(ino);
    let lines = COMMIT_OFFSETS.map(|offset| {
        let at = page.add(ino.get() % INODES_PER_PAGE * INODE_SIZE + offset);
        CommitLine::decode(&pm.load_line(at).unwrap(), seed).ok().map(|line| (line, at))
    });
    let newest = lines.into_iter().flatten().max_by_key(|(line, _)| line.op_seq);
    let (line, at) = newest.unwrap();
    let line = CommitLine { nlink, ..line };
    let stored = pm.store_line(at, &line.encode(seed), Purpose::Commit);
    pm.fence(pm.write_back(stored)).end();
}

#[test]
fn the_last_link_that_can_be_counted_is_made_and_the_next_one_refused() {
    let fs = open(new_pool());
    let file = make(&fs, b"file", FileKind::File);
    fs.close().unwrap();
    let pm = fs.into_pm();
    set_links(&pm, file, u32::MAX - 1);
    let fs = open(pm);
    fs.link(&CTX, Node::current(file), Node::ROOT, b"last").unwrap();
    assert_eq!(fs.getattr(file).unwrap().nlink, u32::MAX);
    let refused = fs.link(&CTX, Node::current(file), Node::ROOT, b"one more");
    assert!(matches!(refused, Err(Error::TooManyLinks)), "{refused:?}");
    assert!(matches!(fs.lookup(&CTX, Node::ROOT, b"one more"), Err(Error::NotFound)));
    // A rename adds no link, and an unlink makes room for one.
    fs.rename(&CTX, Node::ROOT, b"last", Node::ROOT, b"renamed", RenameMode::Replace).unwrap();
    fs.unlink(&CTX, Node::ROOT, b"renamed").unwrap();
    fs.link(&CTX, Node::current(file), Node::ROOT, b"one more").unwrap();
    assert_eq!(fs.getattr(file).unwrap().nlink, u32::MAX);
}

#[test]
fn a_directory_takes_no_more_subdirectories_than_it_can_count() {
    let fs = open(new_pool());
    let dir = make(&fs, b"dir", FileKind::Directory);
    make(&fs, b"other", FileKind::Directory);
    fs.close().unwrap();
    let pm = fs.into_pm();
    set_links(&pm, dir, u32::MAX - 1);
    let fs = open(pm);
    let new =
        NewInode { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::current(dir), b"last", &new).unwrap();
    let refused = fs.create(&CTX, Node::current(dir), b"one more", &new);
    assert!(matches!(refused, Err(Error::TooManyLinks)), "{refused:?}");
    let move_in =
        || fs.rename(&CTX, Node::ROOT, b"other", Node::current(dir), b"moved", RenameMode::Replace);
    let refused = move_in();
    assert!(matches!(refused, Err(Error::TooManyLinks)), "{refused:?}");
    assert!(fs.lookup(&CTX, Node::ROOT, b"other").is_ok());
    fs.create(&CTX, Node::current(dir), b"file", &NewInode { kind: FileKind::File, ..new })
        .unwrap();
    fs.rmdir(&CTX, Node::current(dir), b"last").unwrap();
    move_in().unwrap();
    assert_eq!(fs.getattr(dir).unwrap().nlink, u32::MAX);
}

/// By everything that makes a file longer: to the last byte, and not one further.
#[test]
fn files_end_at_the_same_byte_however_they_grow() {
    const LAST: u64 = 1 << 47;
    let fs = open(new_pool());
    let source = make(&fs, b"source", FileKind::File);
    fs.write(&CTX, source, 0, &[1; 100]).unwrap();
    let grow = |ino, way: usize, end: u64| match way {
        0 => fs.write(&CTX, ino, end - 3, &[2; 3]).map(drop),
        1 => fs.write_scattered(&CTX, ino, &[Piece { offset: end - 3, bytes: &[2; 3] }]),
        2 => fs.fallocate(&CTX, ino, Fallocate::Extend, end - 3, 3),
        3 => fs.fallocate(&CTX, ino, Fallocate::ZeroRange, end - 3, 3),
        4 => {
            let size = SetAttr { size: Some(end), ..SetAttr::default() };
            fs.setattr(&CTX, Node::current(ino), &size).map(drop)
        }
        5 => {
            let [from, to] =
                [(source, 0), (ino, end - 3)].map(|(ino, offset)| Place { ino, offset });
            fs.copy_range(&CTX, from, to, 3).map(drop)
        }
        _ => {
            let size = SetAttr { size: Some(end - 4096), ..SetAttr::default() };
            fs.setattr(&CTX, Node::current(ino), &size).unwrap();
            fs.fallocate(&CTX, ino, Fallocate::InsertRange, 0, 4096)
        }
    };
    for way in 0..7 {
        let ino = make(&fs, format!("f{way}").as_bytes(), FileKind::File);
        let refused = grow(ino, way, LAST + 1);
        assert!(matches!(refused, Err(Error::TooLarge)), "{way}: {refused:?}");
        grow(ino, way, LAST).unwrap_or_else(|why| panic!("{way}: {why}"));
        assert_eq!(fs.getattr(ino).unwrap().size, LAST, "{way}");
    }
    fs.close().unwrap();
    support::verify(fs.pm());
}

/// Pages that are reserved beyond a file's end go no further than files do.
#[test]
fn what_is_reserved_is_moved_up_to_the_last_page_alone() {
    const LAST_PAGE: u64 = (1 << 47) / 4096 - 1;
    let fs = open(new_pool());
    let ino = make(&fs, b"f", FileKind::File);
    fs.write(&CTX, ino, 0, &[1; 100]).unwrap();
    fs.fallocate(&CTX, ino, Fallocate::KeepSize, (LAST_PAGE - 1) * 4096, 4096).unwrap();
    let insert = || fs.fallocate(&CTX, ino, Fallocate::InsertRange, 0, 4096);
    insert().unwrap();
    let refused = insert();
    assert!(matches!(refused, Err(Error::TooLarge)), "{refused:?}");
    fs.close().unwrap();
    support::verify(fs.pm());
}

#[test]
fn a_copy_within_a_file_may_touch_where_it_comes_from_and_not_overlap_it() {
    let fs = open(new_pool());
    let ino = make(&fs, b"file", FileKind::File);
    let bytes: Vec<u8> = (0..30_000_u32).map(|index| index.to_le_bytes()[0]).collect();
    for (from, to, len, is_apart) in [
        (0, 9000, 9000, true),
        (9000, 0, 9000, true),
        (0, 9000, 9001, false),
        (9000, 1, 9000, false),
        (0, 4096, 4096, true),
        (500, 500, 1, false),
        (500, 500, 0, true),
        // Behind the end there is nothing to copy.
        (20_000, 30_000, 20_000, true),
    ] {
        fs.write(&CTX, ino, 0, &bytes).unwrap();
        let place = |offset| Place { ino, offset };
        let done = fs.copy_range(&CTX, place(from), place(to), len);
        if is_apart {
            assert_eq!(done.unwrap(), len.min(30_000 - from), "{from} to {to}, {len}");
        } else {
            assert!(matches!(done, Err(Error::Invalid(_))), "{from} to {to}, {len}: {done:?}");
        }
    }
}

#[test]
fn what_is_taken_out_or_put_in_begins_and_ends_with_a_page() {
    let fs = open(new_pool());
    let ino = make(&fs, b"file", FileKind::File);
    fs.write(&CTX, ino, 0, &vec![1; 40_000]).unwrap();
    for how in [Fallocate::CollapseRange, Fallocate::InsertRange] {
        for (offset, len) in [(4096, 4095), (4095, 4096), (4097, 8192), (8192, 1), (1, 1)] {
            let found = fs.fallocate(&CTX, ino, how, offset, len);
            assert!(matches!(found, Err(Error::Invalid(_))), "{how:?} {offset} {len}: {found:?}");
        }
        fs.fallocate(&CTX, ino, how, 4096, 8192).unwrap();
    }
}

#[test]
fn what_is_reserved_behind_the_end_is_no_data() {
    let fs = open(new_pool());
    let file = make(&fs, b"file", FileKind::File);
    let size = SetAttr { size: Some(2 * PAGE), ..SetAttr::default() };
    fs.setattr(&CTX, Node::current(file), &size).unwrap();
    fs.fallocate(&CTX, file, Fallocate::KeepSize, 2 * PAGE, PAGE).unwrap();
    let found = fs.seek(file, 0, Seek::Data);
    assert!(matches!(found, Err(Error::NoSuchOffset)), "{found:?}");
}
