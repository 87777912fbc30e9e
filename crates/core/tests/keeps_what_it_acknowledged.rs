//! What an operation returned survives a clean close and the loss of the view.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_imports,
    reason = "a test panics"
)]

mod support;

use novale_core::*;
use novale_pm::Pm;
use support::{MB, open, verify};

fn ctx(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}

fn pool(lens: &[u64]) -> Pm {
    support::pool(lens, 4)
}

fn file(mode: u32) -> NewInode<'static> {
    NewInode { kind: FileKind::File, mode, uid: 1, gid: 2, rdev: 0, target: b"" }
}

fn names(fs: &Fs, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(&ctx(0), Node::current(dir), 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .unwrap();
    names
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let len = fs.getattr(ino).unwrap().size as usize;
    let mut bytes = vec![0; len + 10];
    let count = fs.read(&ctx(9), ino, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// Runs `check` on the file system as `make` leaves it, after a clean close and a reopening, and
/// after the view is dropped.
fn thrice(form: Form, make: impl Fn(&Fs), check: impl Fn(&Fs)) {
    let fs = open(pool(&[32 * MB, 16 * MB]), form);
    make(&fs);
    check(&fs);
    let pm = fs.into_pm();
    verify(&pm);
    let fs = open(pm, form);
    assert!(!fs.opened().clean);
    check(&fs);
    fs.close().unwrap();
    assert!(matches!(fs.getattr(Ino::ROOT), Err(Error::Closed)));
    let used = fs.opened().pages_used;
    let pm = fs.into_pm();
    verify(&pm);
    let fs = open(pm, form);
    assert!(fs.opened().clean && fs.opened().from_saved);
    assert_eq!(fs.opened().pages_used, used);
    check(&fs);
}

#[test]
fn files_of_many_sizes_and_holes() {
    for form in [Form::Single, Form::Two, Form::Auto] {
        let image = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>();
        thrice(
            form,
            |fs| {
                for len in [0, 1, 63, 64, 4095, 4096, 4097, 12_288, 100_000] {
                    let name = format!("f{len}");
                    let attr =
                        fs.create(&ctx(5), Node::ROOT, name.as_bytes(), &file(0o640)).unwrap();
                    assert_eq!(fs.write(&ctx(6), attr.ino, 0, &image(len)).unwrap(), len);
                }
                let attr = fs.create(&ctx(5), Node::ROOT, b"holes", &file(0o640)).unwrap();
                fs.write(&ctx(6), attr.ino, 10_000, b"end").unwrap();
                fs.write(&ctx(7), attr.ino, 5, b"start").unwrap();
                fs.write(&ctx(8), attr.ino, 4090, &[9; 20]).unwrap();
            },
            |fs| {
                for len in [0, 1, 63, 64, 4095, 4096, 4097, 12_288, 100_000] {
                    let attr =
                        fs.lookup(&ctx(9), Node::ROOT, format!("f{len}").as_bytes()).unwrap();
                    assert_eq!(
                        (attr.size, attr.mode, attr.uid, attr.gid),
                        (len as u64, 0o640, 1, 2)
                    );
                    assert_eq!(contents(fs, attr.ino), image(len));
                }
                let attr = fs.lookup(&ctx(9), Node::ROOT, b"holes").unwrap();
                let mut expected = vec![0; 10_003];
                expected[10_000..].copy_from_slice(b"end");
                expected[5..10].copy_from_slice(b"start");
                expected[4090..4110].fill(9);
                assert_eq!(contents(fs, attr.ino), expected);
                assert_eq!(attr.mtime_ns, 8);
            },
        );
    }
}

#[test]
fn truncation_hides_what_it_cut_off() {
    thrice(
        Form::Auto,
        |fs| {
            let ino = fs.create(&ctx(5), Node::ROOT, b"f", &file(0o600)).unwrap().ino;
            fs.write(&ctx(6), ino, 0, &[1; 9000]).unwrap();
            let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(&ctx(7), Node::current(ino), &size(100)).unwrap();
            fs.setattr(&ctx(8), Node::current(ino), &size(9000)).unwrap();
            fs.write(&ctx(8), ino, 9500, &[2; 10]).unwrap();
        },
        |fs| {
            let ino = fs.lookup(&ctx(9), Node::ROOT, b"f").unwrap().ino;
            let mut expected = vec![0; 9510];
            expected[..100].fill(1);
            expected[9500..].fill(2);
            assert_eq!(contents(fs, ino), expected);
        },
    );
}

#[test]
fn names_links_and_renames() {
    thrice(
        Form::Auto,
        |fs| {
            let dir = NewInode { kind: FileKind::Directory, ..file(0o755) };
            let a = fs.create(&ctx(5), Node::ROOT, b"a", &dir).unwrap().ino;
            let b = fs.create(&ctx(5), Node::ROOT, b"b", &dir).unwrap().ino;
            let f = fs.create(&ctx(5), Node::current(a), b"f", &file(0o600)).unwrap().ino;
            fs.write(&ctx(6), f, 0, b"hello").unwrap();
            fs.link(&ctx(7), Node::current(f), Node::current(b), &[b'n'; 255]).unwrap();
            fs.create(&ctx(5), Node::current(b), b"g", &file(0o600)).unwrap();
            fs.rename(&ctx(8), Node::current(a), b"f", Node::current(b), b"g", RenameMode::Replace)
                .unwrap();
            let sub = fs.create(&ctx(5), Node::current(a), b"sub", &dir).unwrap().ino;
            fs.rename(
                &ctx(8),
                Node::current(a),
                b"sub",
                Node::current(b),
                b"moved",
                RenameMode::Replace,
            )
            .unwrap();
            assert!(matches!(
                fs.rename(&ctx(8), Node::ROOT, b"b", Node::current(sub), b"x", RenameMode::Replace),
                Err(Error::Invalid(_))
            ));
            let link = NewInode { kind: FileKind::Symlink, target: b"../a", ..file(0o777) };
            fs.create(&ctx(5), Node::current(b), b"link", &link).unwrap();
            fs.rename(&ctx(8), Node::ROOT, b"a", Node::current(b), b"g", RenameMode::Exchange)
                .unwrap();
        },
        |fs| {
            assert_eq!(names(fs, Ino::ROOT), ["b", "a"]);
            let b = fs.lookup(&ctx(9), Node::ROOT, b"b").unwrap();
            let long = "n".repeat(255);
            assert_eq!(names(fs, b.ino), [&long, "moved", "link", "g"]);
            assert_eq!(b.nlink, 4);
            assert_eq!(fs.getattr(Ino::ROOT).unwrap().nlink, 3);
            let f = fs.lookup(&ctx(9), Node::ROOT, b"a").unwrap();
            assert_eq!((f.kind, f.nlink), (FileKind::File, 2));
            assert_eq!(contents(fs, f.ino), b"hello");
            let link = fs.lookup(&ctx(9), b.node(), b"link").unwrap();
            assert_eq!(fs.readlink(link.node()).unwrap(), b"../a");
        },
    );
}

#[test]
fn everything_removed_gives_every_page_back() {
    let fs = open(pool(&[16 * MB]), Form::Auto);
    // The pages of inodes stay, once made: a first round makes all that are needed.
    let mut free = fs.statfs().unwrap();
    let taken = |fs: &Fs| fs.getattr(Ino::ROOT).unwrap().blocks / 8;
    for round in 0..4 {
        for index in 0..500 {
            let name = format!("file {round} {index}");
            let ino = fs.create(&ctx(5), Node::ROOT, name.as_bytes(), &file(0o600)).unwrap().ino;
            fs.write(&ctx(6), ino, 0, &vec![3; index * 11]).unwrap();
        }
        for index in 0..500 {
            fs.unlink(&ctx(7), Node::ROOT, format!("file {round} {index}").as_bytes()).unwrap();
        }
        if round == 0 {
            free.pages_free = fs.statfs().unwrap().pages_free + taken(&fs);
        }
    }
    assert_eq!(fs.statfs().unwrap().inodes, free.inodes);
    assert!(fs.gc_stats().fast_pages + fs.gc_stats().thorough_pages > 0);
    let fs = open(fs.into_pm(), Form::Auto);
    assert_eq!(fs.statfs().unwrap().pages_free + taken(&fs), free.pages_free);
    assert!(names(&fs, Ino::ROOT).is_empty());
}

#[test]
fn a_held_file_outlives_its_name() {
    let fs = open(pool(&[16 * MB]), Form::Auto);
    let ino = fs.create(&ctx(5), Node::ROOT, b"f", &file(0o600)).unwrap().ino;
    fs.write(&ctx(6), ino, 0, b"still here").unwrap();
    fs.hold(ino).unwrap();
    fs.unlink(&ctx(7), Node::ROOT, b"f").unwrap();
    assert_eq!(contents(&fs, ino), b"still here");
    fs.write(&ctx(8), ino, 6, b"there").unwrap();
    assert_eq!(contents(&fs, ino), b"still there");
    fs.release(&ctx(9), ino, 1).unwrap();
    assert!(matches!(fs.getattr(ino), Err(Error::Stale)));
}

#[test]
fn a_full_pool_still_overwrites_and_deletes() {
    let fs = open(pool(&[16 * MB]), Form::Auto);
    let ino = fs.create(&ctx(5), Node::ROOT, b"big", &file(0o600)).unwrap().ino;
    let mut len = 0;
    while fs.append(&ctx(6), ino, &vec![4; 65536]).is_ok() {
        len += 65536;
    }
    while fs.append(&ctx(6), ino, &[4; 4096]).is_ok() {
        len += 4096;
    }
    assert!(matches!(fs.append(&ctx(6), ino, &[4; 4096]), Err(Error::NoSpace)));
    for at in (0..len).step_by(4096) {
        fs.write(&ctx(7), ino, at, &[5; 4096]).unwrap();
    }
    assert_eq!(contents(&fs, ino), vec![5; len as usize]);
    fs.unlink(&ctx(8), Node::ROOT, b"big").unwrap();
    assert!(fs.statfs().unwrap().pages_available > 2000);
}

/// Free space in single pages: a write that begins within a page has its first page in an extent of its own.
#[test]
fn large_writes_go_to_space_in_pieces() {
    let fs = open(pool(&[8 * MB]), Form::Auto);
    let create = |name: &str| fs.create(&ctx(1), Node::ROOT, name.as_bytes(), &file(0o644));
    let (full, large) = (create("full").unwrap().ino, create("large").unwrap().ino);
    let mut expected = vec![3; 60_000];
    fs.write(&ctx(3), large, 0, &expected).unwrap();
    let mut pages = 0;
    while fs.append(&ctx(1), full, &[1; 4096]).is_ok() {
        pages += 1;
    }
    for page in (0..pages).step_by(2) {
        fs.fallocate(&ctx(2), full, Fallocate::PunchHole, page * 4096, 4096).unwrap();
    }
    for offset in (1..60).map(|turn| turn * 337) {
        let data: Vec<u8> = (0..40_000_u32).map(|at| (at / 7 + offset) as u8).collect();
        expected[offset as usize..][..data.len()].copy_from_slice(&data);
        fs.write(&ctx(3), large, u64::from(offset), &data).unwrap();
        assert_eq!(contents(&fs, large), expected);
    }
    let left = contents(&fs, full);
    assert!(
        left.chunks(4096).zip([0, 1].into_iter().cycle()).all(|(page, byte)| page == [byte; 4096])
    );
    verify(&fs.into_pm());
}
