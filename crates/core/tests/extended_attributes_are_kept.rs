//! Extended attributes: what was set is read back, survives, and gives its pages back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use novale_core::{
    Attr, Ctx, Error, Fallocate, FileKind, Form, Fs, Ino, NewInode, Node, OpenOptions, Piece,
    SetAttr, SetXattr, UpdatePolicy, XattrMode,
};
use novale_pm::Pm;
use support::{MB, open, open_as, verify};

const FORMS: [Form; 3] = [Form::Single, Form::Two, Form::Auto];

fn ctx(now_ns: i64) -> Ctx {
    Ctx { now_ns, hint: 0 }
}

fn pool(len: u64) -> Pm {
    support::pool(&[len], 1)
}

fn make(fs: &Fs, name: &str, kind: FileKind) -> Ino {
    let target: &[u8] = if kind == FileKind::Symlink { b"there" } else { b"" };
    let new = NewInode { kind, mode: 0o640, uid: 1, gid: 2, rdev: 0, target };
    fs.create(&ctx(3), Node::ROOT, name.as_bytes(), &new).unwrap().ino
}

fn set(fs: &Fs, ino: Ino, name: &str, value: &[u8]) -> Result<(), Error> {
    let set = SetXattr { name: name.as_bytes(), value, ..SetXattr::default() };
    fs.setxattr(&ctx(7), Node::current(ino), &set)
}

fn get(fs: &Fs, ino: Ino, name: &str) -> Result<Vec<u8>, Error> {
    fs.getxattr(Node::current(ino), name.as_bytes())
}

fn all(fs: &Fs, ino: Ino) -> BTreeMap<String, Vec<u8>> {
    let list = fs.listxattr(Node::current(ino)).unwrap();
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let pairs = names.map(|name| {
        let value = fs.getxattr(Node::current(ino), name).unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), value)
    });
    pairs.collect()
}

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + len) % 251).unwrap()).collect()
}

/// Runs `check` on the file system as `make` leaves it, after the loss of the view, and after a
/// clean close.
fn thrice(form: Form, make: impl Fn(&Fs), check: impl Fn(&Fs)) {
    let fs = open(pool(16 * MB), form);
    make(&fs);
    check(&fs);
    let pm = fs.into_pm();
    verify(&pm);
    let fs = open(pm, form);
    assert!(!fs.opened().clean);
    check(&fs);
    fs.close().unwrap();
    let used = fs.opened().pages_used;
    let pm = fs.into_pm();
    verify(&pm);
    let fs = open(pm, form);
    assert!(fs.opened().from_saved);
    assert_eq!(fs.opened().pages_used, used);
    check(&fs);
}

#[test]
fn values_of_all_lengths_in_all_namespaces() {
    const LENGTHS: [usize; 9] = [0, 1, 1024, 1025, 4096, 4097, 8192, 65_535, 65_536];
    let names: Vec<String> = LENGTHS
        .iter()
        .flat_map(|len| ["user", "trusted", "security"].map(|of| format!("{of}.v{len}")))
        .collect();
    let expected = || -> BTreeMap<String, Vec<u8>> {
        let len = |name: &String| name.split_once(".v").unwrap().1.parse().unwrap();
        names.iter().map(|name| (name.clone(), value(len(name)))).collect()
    };
    for form in FORMS {
        thrice(
            form,
            |fs| {
                for kind in [FileKind::File, FileKind::Directory] {
                    let ino = make(fs, &format!("{kind:?}"), kind);
                    for (name, value) in expected() {
                        set(fs, ino, &name, b"before").unwrap();
                        set(fs, ino, &name, &value).unwrap();
                    }
                    set(fs, ino, "user.gone", &value(9000)).unwrap();
                    fs.removexattr(&ctx(8), Node::current(ino), b"user.gone").unwrap();
                }
            },
            |fs| {
                for name in ["File", "Directory"] {
                    let attr = fs.lookup(&ctx(9), Node::ROOT, name.as_bytes()).unwrap();
                    assert_eq!(all(fs, attr.ino), expected());
                    assert_eq!((attr.ctime_ns, attr.mtime_ns), (8, 3));
                    assert!(matches!(get(fs, attr.ino, "user.gone"), Err(Error::NoAttribute)));
                }
            },
        );
    }
}

#[test]
fn other_changes_leave_them_and_all_pages_come_back() {
    for form in FORMS {
        let fs = open(pool(16 * MB), form);
        // The page of inodes and the directory's log are made by another file.
        make(&fs, "other", FileKind::File);
        let free = || fs.statfs().unwrap().pages_free;
        let before = free();
        let ino = make(&fs, "f", FileKind::File);
        set(&fs, ino, "user.long", &value(20_000)).unwrap();
        for round in 0..200 {
            set(&fs, ino, "user.short", &round.to_string().into_bytes()).unwrap();
            let mode = SetAttr { mode: Some(0o600 + round % 8), ..SetAttr::default() };
            fs.setattr(&ctx(9), Node::current(ino), &mode).unwrap();
            fs.write(&ctx(9), ino, u64::from(round), b"x").unwrap();
        }
        assert_eq!(get(&fs, ino, "user.long").unwrap(), value(20_000));
        assert_eq!(get(&fs, ino, "user.short").unwrap(), b"199");
        // A chain of one page, and five of the value.
        let blocks = |attr: &Attr| attr.blocks / 8;
        let with = blocks(&fs.getattr(ino).unwrap());
        fs.removexattr(&ctx(9), Node::current(ino), b"user.long").unwrap();
        assert_eq!(with - blocks(&fs.getattr(ino).unwrap()), 5);
        fs.removexattr(&ctx(9), Node::current(ino), b"user.short").unwrap();
        assert_eq!(with - blocks(&fs.getattr(ino).unwrap()), 6);
        assert_eq!(fs.listxattr(Node::current(ino)).unwrap(), b"");
        set(&fs, ino, "user.again", &value(50_000)).unwrap();
        fs.unlink(&ctx(9), Node::ROOT, b"f").unwrap();
        assert_eq!(free(), before);
        verify(&fs.into_pm());
    }
}

#[test]
fn a_thousand_names_and_the_limits() {
    let fs = open(pool(64 * MB), Form::Auto);
    let ino = make(&fs, "f", FileKind::File);
    let name = |index: usize| format!("user.{index:0>245}");
    let mut count = 0;
    let refused = loop {
        match set(&fs, ino, &name(count), &value(300)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    // Names of 250 bytes and a NUL, 64 KB of them.
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    assert_eq!(count, 65_536 / 251);
    let expected: BTreeMap<_, _> = (0..count).map(|index| (name(index), value(300))).collect();
    assert_eq!(all(&fs, ino), expected);
    let long = "user.".to_owned() + &"n".repeat(250);
    assert!(matches!(set(&fs, ino, &(long.clone() + "n"), b""), Err(Error::NameRange)));
    assert!(matches!(set(&fs, ino, "user.x", &value(65_537)), Err(Error::ValueTooLong)));
    let fs = open(fs.into_pm(), Form::Auto);
    assert_eq!(all(&fs, ino), expected);
    for index in 0..count {
        fs.removexattr(&ctx(9), Node::current(ino), name(index).as_bytes()).unwrap();
    }
    set(&fs, ino, &long, b"255").unwrap();
    assert_eq!(get(&fs, ino, &long).unwrap(), b"255");
    verify(&fs.into_pm());
}

#[test]
fn what_is_no_attribute_is_refused_and_nothing_changes() {
    let fs = open(pool(16 * MB), Form::Auto);
    let ino = make(&fs, "f", FileKind::File);
    let create = |name: &str, mode| {
        let set = SetXattr { name: name.as_bytes(), value: b"v", mode, clear_set_gid: false };
        fs.setxattr(&ctx(9), Node::current(ino), &set)
    };
    assert!(matches!(create("user.a", XattrMode::Replace), Err(Error::NoAttribute)));
    assert!(matches!(create("user.a", XattrMode::Neither), Err(Error::NoAttribute)));
    create("user.a", XattrMode::Create).unwrap();
    assert!(matches!(create("user.a", XattrMode::Create), Err(Error::Exists)));
    assert!(matches!(create("user.a", XattrMode::Neither), Err(Error::Exists)));
    create("user.a", XattrMode::Replace).unwrap();
    let state = fs.getattr(ino).unwrap();
    for name in ["user", "system.other", "nothing", "com.apple.x"] {
        assert!(matches!(set(&fs, ino, name, b""), Err(Error::Unsupported(_))), "{name}");
        assert!(matches!(get(&fs, ino, name), Err(Error::Unsupported(_))), "{name}");
    }
    for name in ["user.", "trusted.", "security.", "user.a\0b"] {
        assert!(matches!(set(&fs, ino, name, b""), Err(Error::Invalid(_))), "{name}");
    }
    assert!(matches!(set(&fs, ino, "", b""), Err(Error::NameRange)));
    let removed = fs.removexattr(&ctx(9), Node::current(ino), b"user.b");
    assert!(matches!(removed, Err(Error::NoAttribute)));
    assert_eq!(fs.getattr(ino).unwrap(), state);
    for kind in [FileKind::Symlink, FileKind::Fifo, FileKind::Socket, FileKind::CharDevice] {
        let ino = make(&fs, &format!("{kind:?}"), kind);
        assert!(matches!(set(&fs, ino, "user.a", b""), Err(Error::NotPermitted(_))));
        set(&fs, ino, "trusted.a", b"of any kind").unwrap();
        assert_eq!(get(&fs, ino, "trusted.a").unwrap(), b"of any kind");
    }
}

#[test]
fn a_full_pool_lets_them_be_replaced_and_removed() {
    let fs = open(pool(4 * MB), Form::Auto);
    let ino = make(&fs, "f", FileKind::File);
    set(&fs, ino, "user.a", &value(30_000)).unwrap();
    let other = make(&fs, "other", FileKind::File);
    let mut end = 0;
    for len in [64 * 1024, 4096] {
        while fs.write(&ctx(9), other, end, &vec![1; len]).is_ok() {
            end += len as u64;
        }
    }
    assert!(matches!(set(&fs, ino, "user.b", &value(30_000)), Err(Error::NoSpace)));
    assert_eq!(get(&fs, ino, "user.a").unwrap(), value(30_000));
    set(&fs, ino, "user.a", &value(29_000)).unwrap();
    assert_eq!(get(&fs, ino, "user.a").unwrap(), value(29_000));
    fs.removexattr(&ctx(9), Node::current(ino), b"user.a").unwrap();
    assert_eq!(fs.listxattr(Node::current(ino)).unwrap(), b"");
    verify(&fs.into_pm());
}

#[test]
fn a_change_of_owner_size_or_contents_takes_file_capabilities_away() {
    type Change = fn(&Fs, Ino);
    let changes: [(&str, Change); 8] = [
        ("small write", |fs, ino| assert_eq!(fs.write(&ctx(9), ino, 3, b"new").unwrap(), 3)),
        ("large write", |fs, ino| {
            assert_eq!(fs.write(&ctx(9), ino, 0, &vec![7; 70_000]).unwrap(), 70_000);
        }),
        ("append", |fs, ino| assert_eq!(fs.append(&ctx(9), ino, b"new").unwrap(), 8)),
        ("pieces", |fs, ino| {
            fs.write_scattered(&ctx(9), ino, &[Piece { offset: 1, bytes: b"new" }]).unwrap();
        }),
        ("punch", |fs, ino| fs.fallocate(&ctx(9), ino, Fallocate::PunchHole, 2, 3).unwrap()),
        ("zeros", |fs, ino| fs.fallocate(&ctx(9), ino, Fallocate::ZeroRange, 2, 3).unwrap()),
        ("truncation", |fs, ino| {
            let size = SetAttr { size: Some(1), ..SetAttr::default() };
            fs.setattr(&ctx(9), Node::current(ino), &size).unwrap();
        }),
        ("owner", |fs, ino| {
            let owner = SetAttr { uid: Some(5), ..SetAttr::default() };
            fs.setattr(&ctx(9), Node::current(ino), &owner).unwrap();
        }),
    ];
    let by_default = FORMS.map(|form| (form, UpdatePolicy::Auto));
    let each = UpdatePolicy::ALL.map(|update| (Form::Auto, update));
    for (form, update) in by_default.into_iter().chain(each) {
        let options =
            OpenOptions { form, update: Some(update), now_ns: 2, ..OpenOptions::default() };
        for (what, change) in changes {
            let fs = open_as(pool(4 * MB), &options);
            let ino = make(&fs, "f", FileKind::File);
            fs.write(&ctx(4), ino, 0, b"contents").unwrap();
            set(&fs, ino, "user.a", b"stays").unwrap();
            set(&fs, ino, "security.capability", &[1; 20]).unwrap();
            let mode = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
            fs.setattr(&ctx(9), Node::current(ino), &mode).unwrap();
            assert_eq!(get(&fs, ino, "security.capability").unwrap(), [1; 20]);
            change(&fs, ino);
            let expected = BTreeMap::from([("user.a".to_owned(), b"stays".to_vec())]);
            assert_eq!(all(&fs, ino), expected, "{what}, {update:?}");
            let (attr, pm) = (fs.getattr(ino).unwrap(), fs.into_pm());
            verify(&pm);
            let fs = open_as(pm, &options);
            assert_eq!(all(&fs, ino), expected, "{what}, {update:?}");
            let again = fs.getattr(ino).unwrap();
            assert_eq!((again.size, again.mode, again.uid), (attr.size, attr.mode, attr.uid));
        }
    }
}

/// A change of a directory's owner took its capabilities away, which the kernel leaves.
#[test]
fn a_directory_keeps_its_capabilities() {
    let fs = open(pool(4 * MB), Form::Auto);
    let ino = make(&fs, "d", FileKind::Directory);
    set(&fs, ino, "security.capability", &[1; 20]).unwrap();
    let owner = SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() };
    fs.setattr(&ctx(9), Node::current(ino), &owner).unwrap();
    assert_eq!(get(&fs, ino, "security.capability").unwrap(), [1; 20]);
}

#[test]
fn readers_see_one_value_or_the_next() {
    let fs = open(pool(32 * MB), Form::Auto);
    let ino = make(&fs, "f", FileKind::File);
    let whole = |byte: u8| vec![byte; 100 + usize::from(byte) * 500];
    set(&fs, ino, "user.a", &whole(0)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = 0;
                    while !done.load(Ordering::Acquire) {
                        let value = get(&fs, ino, "user.a").unwrap();
                        assert_eq!(value, whole(value[0]));
                        assert_eq!(fs.listxattr(Node::current(ino)).unwrap(), b"user.a\0");
                        seen += 1;
                    }
                    seen
                })
            })
            .collect();
        for round in 0..3000_u32 {
            set(&fs, ino, "user.a", &whole(u8::try_from(round % 101).unwrap())).unwrap();
        }
        done.store(true, Ordering::Release);
        let seen: Vec<u32> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
    });
}
