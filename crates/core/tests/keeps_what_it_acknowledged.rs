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

use std::collections::BTreeMap;

use fastrand::Rng;
use novale_core::*;
use novale_pm::Pm;
use support::{MB, open, open_as, verify};

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
    fs.fallocate(&ctx(7), ino, Fallocate::ZeroRange, 4096, 8192).unwrap();
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
        if offset % 3 == 0 {
            fs.fallocate(&ctx(3), large, Fallocate::ZeroRange, u64::from(offset), 30_000).unwrap();
            expected[offset as usize..][..30_000].fill(0);
            assert_eq!(contents(&fs, large), expected);
        }
    }
    let left = contents(&fs, full);
    assert!(
        left.chunks(4096).zip([0, 1].into_iter().cycle()).all(|(page, byte)| page == [byte; 4096])
    );
    verify(&fs.into_pm());
}

/// A change of a file at random, of its bytes in `model` too.
fn change(fs: &Fs, ino: Ino, model: &mut Vec<u8>, random: &mut Rng) {
    let (now, size) = (ctx(random.i64(1..1000)), model.len());
    let any_len = |random: &mut Rng| {
        let most = *[1, 70, 500, 4096, 9000].get(random.usize(..5)).unwrap();
        random.usize(0..most) + 1
    };
    let put = |model: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        model.resize(model.len().max(at + bytes.len()), 0);
        model[at..at + bytes.len()].copy_from_slice(bytes);
    };
    // Borders of pages and lines as often as any other place.
    let border = *[1, 1, 64, 4096].get(random.usize(..4)).unwrap();
    let (at, bytes) = (random.usize(0..size + 3000), vec![random.u8(1..); any_len(random)]);
    let at = at / border * border;
    let range = |random: &mut Rng, how| {
        let len = any_len(random);
        fs.fallocate(&now, ino, how, at as u64, len as u64).unwrap();
        at.min(size)..(at + len).min(size)
    };
    match random.u8(0..14) {
        0 => {
            fs.append(&now, ino, &bytes).unwrap();
            put(model, size, &bytes);
        }
        1 => {
            let places: Vec<usize> = (0..3).map(|_| random.usize(0..size + 9000)).collect();
            let piece = |at: &usize| Piece { offset: *at as u64, bytes: &bytes };
            let pieces: Vec<Piece<'_>> = places.iter().map(piece).collect();
            fs.write_scattered(&now, ino, &pieces).unwrap();
            for at in places {
                put(model, at, &bytes);
            }
        }
        2 => {
            let end = random.usize(..4) * at / 4;
            let to = SetAttr { size: Some(end as u64), ..SetAttr::default() };
            fs.setattr(&now, Node::current(ino), &to).unwrap();
            model.resize(end, 0);
        }
        3 => {
            let zeros = range(random, Fallocate::ZeroRangeKeepSize);
            model[zeros].fill(0);
        }
        4 => {
            let len = any_len(random);
            fs.fallocate(&now, ino, Fallocate::ZeroRange, at as u64, len as u64).unwrap();
            put(model, at, &vec![0; len]);
        }
        5 => {
            let zeros = range(random, Fallocate::PunchHole);
            model[zeros].fill(0);
        }
        6 => {
            range(random, Fallocate::KeepSize);
        }
        7 if size > 8192 => {
            let first = random.usize(0..size / 4096 - 1) * 4096;
            fs.fallocate(&now, ino, Fallocate::CollapseRange, first as u64, 4096).unwrap();
            model.drain(first..first + 4096);
        }
        8 if size > 4096 && size < 40_000 => {
            let first = random.usize(0..size / 4096) * 4096;
            fs.fallocate(&now, ino, Fallocate::InsertRange, first as u64, 4096).unwrap();
            model.splice(first..first, [0; 4096]);
        }
        _ => {
            fs.write(&now, ino, at as u64, &bytes).unwrap();
            put(model, at, &bytes);
        }
    }
}

/// By each method, in each form, over growths and collections of the log, and with a crash now and then, of
/// which each leaves a sound pool.
#[test]
fn any_changes_of_a_file_leave_the_bytes_that_they_say() {
    for (seed, form) in [(1, Form::Single), (2, Form::Two)] {
        for update in UpdatePolicy::ALL {
            let options =
                OpenOptions { form, update: Some(update), now_ns: 2, ..OpenOptions::default() };
            let (mut random, mut model) = (Rng::with_seed(seed), Vec::new());
            let mut fs = open_as(support::pool(&[2 * MB], 1), &options);
            let ino = fs.create(&ctx(5), Node::ROOT, b"f", &file(0o600)).unwrap().ino;
            let mode = SetAttr { mode: Some(0o641), ..SetAttr::default() };
            fs.setattr(&ctx(5), Node::current(ino), &mode).unwrap();
            for step in 0..400 {
                change(&fs, ino, &mut model, &mut random);
                if step % 100 == 49 && model.len() > 600 {
                    // The last one before a crash, whose bytes recovery looks at.
                    let (at, byte) = (random.usize(..model.len() - 500), random.u8(1..));
                    fs.write(&ctx(7), ino, at as u64, &[byte; 200]).unwrap();
                    model[at..at + 200].fill(byte);
                }
                assert!(contents(&fs, ino) == model, "{update:?}, {form:?}, step {step}");
                if step % 50 == 49 {
                    let pm = fs.into_pm();
                    verify(&pm);
                    fs = open_as(pm, &options);
                    assert!(contents(&fs, ino) == model, "{update:?}, {form:?}, behind {step}");
                    assert_eq!(fs.getattr(ino).unwrap().mode, 0o641);
                }
            }
            fs.close().unwrap();
            verify(&fs.into_pm());
        }
    }
}

/// The same of a directory, whose log holds what its names need and not much more.
#[test]
fn any_changes_of_a_directory_leave_the_names_that_they_say() {
    for (form, count, long, pages_max) in [(Form::Single, 40, 50, 24), (Form::Two, 1200, 9, 99)] {
        let (mut random, mut model) = (Rng::with_seed(1), BTreeMap::new());
        let mut fs = open(support::pool(&[4 * MB], 1), form);
        for step in 0..5000 {
            let name = |random: &mut Rng| {
                let number = random.usize(0..count);
                format!("{number}{}", "n".repeat(number % 5 * long))
            };
            let (from, to) = (name(&mut random), name(&mut random));
            let (from_bytes, to_bytes) = (from.as_bytes(), to.as_bytes());
            let now = ctx(step);
            match (model.contains_key(&from), random.u8(0..3)) {
                (false, _) => {
                    let ino = fs.create(&now, Node::ROOT, from_bytes, &file(0o600)).unwrap().ino;
                    model.insert(from, ino);
                }
                (true, 0) => {
                    let replace = RenameMode::Replace;
                    fs.rename(&now, Node::ROOT, from_bytes, Node::ROOT, to_bytes, replace).unwrap();
                    let ino = model.remove(&from).unwrap();
                    model.insert(to, ino);
                }
                (true, _) => {
                    fs.unlink(&now, Node::ROOT, from_bytes).unwrap();
                    model.remove(&from);
                }
            }
            if step % 500 == 499 {
                let pm = fs.into_pm();
                verify(&pm);
                fs = open(pm, form);
                let mut found = names(&fs, Ino::ROOT);
                found.sort();
                assert_eq!(found, model.keys().cloned().collect::<Vec<_>>(), "behind {step}");
                for (name, ino) in &model {
                    let named = fs.lookup(&now, Node::ROOT, name.as_bytes()).unwrap();
                    assert_eq!((named.ino, named.mode), (*ino, 0o600));
                }
                let log = fs.getattr(Ino::ROOT).unwrap().blocks / 8;
                assert!(log <= pages_max, "behind {step} the log has {log} pages");
            }
        }
    }
}

/// A page of a log goes without a copy where all its entries are dead: one that has a single needed one
/// stays, whatever that says.
#[test]
fn a_page_of_a_log_stays_for_one_needed_entry() {
    let options =
        OpenOptions { update: Some(UpdatePolicy::Cow), now_ns: 2, ..OpenOptions::default() };
    for needed in 0..3 {
        let fs = open_as(pool(&[16 * MB]), &options);
        let ino = fs.create(&ctx(5), Node::ROOT, b"f", &file(0o640)).unwrap().ino;
        let mut model = Vec::new();
        let mut write = |page: usize, pages: usize, byte: u8| {
            fs.write(&ctx(6), ino, page as u64 * 4096, &vec![byte; pages * 4096]).unwrap();
            model.resize(model.len().max((page + pages) * 4096), 0);
            model[page * 4096..][..pages * 4096].fill(byte);
        };
        let pieces = |write: &mut dyn FnMut(usize, usize, u8), from: usize| {
            (from..from + 150).for_each(|piece| write(20 + piece * 2, 1, 2));
        };
        write(0, 10, 1);
        pieces(&mut write, 0);
        (0..100).for_each(|turn| write(12, 1, turn));
        match needed {
            0 => {
                let mode = SetAttr { mode: Some(0o604), ..SetAttr::default() };
                fs.setattr(&ctx(7), Node::current(ino), &mode).unwrap();
            }
            1 => fs.fallocate(&ctx(7), ino, Fallocate::PunchHole, 4 * 4096, 4096).unwrap(),
            _ => write(14, 1, 3),
        }
        (0..100).for_each(|turn| write(12, 1, turn));
        pieces(&mut write, 150);
        pieces(&mut write, 300);
        pieces(&mut write, 450);
        assert!(fs.gc_stats().fast_pages > 0, "{needed}: no page went");
        if needed == 1 {
            model[4 * 4096..5 * 4096].fill(0);
        }
        let fs = open_as(fs.into_pm(), &options);
        assert!(contents(&fs, ino) == model, "{needed}");
        let mode = if needed == 0 { 0o604 } else { 0o640 };
        assert_eq!(fs.getattr(ino).unwrap().mode, mode);
        verify(&fs.into_pm());
    }
}

/// The same of a directory: deletes in a page of their own, of names that lie before it among living ones.
#[test]
fn a_page_of_a_log_stays_for_its_deletes() {
    let fs = open(pool(&[16 * MB]), Form::Auto);
    let make = |name: String| {
        fs.create(&ctx(5), Node::ROOT, name.as_bytes(), &file(0o600)).unwrap();
        name
    };
    let mut expected = Vec::new();
    for number in 0..300 {
        expected.push(make(format!("stays{number}")));
        expected.push(make(format!("stays{number} too")));
        make(format!("goes{number}"));
    }
    for number in 0..300 {
        fs.unlink(&ctx(6), Node::ROOT, format!("goes{number}").as_bytes()).unwrap();
    }
    expected.extend((300..1200).map(|number| make(format!("stays{number}"))));
    let fs = open(fs.into_pm(), Form::Auto);
    assert_eq!(names(&fs, Ino::ROOT), expected);
    verify(&fs.into_pm());
}

/// Windows in the middle of a log: what lies before one still has what the window cancels.
#[test]
fn a_long_log_of_pages_and_holes_says_what_the_file_has() {
    const PAGES: usize = 3000;
    let options =
        OpenOptions { update: Some(UpdatePolicy::Cow), now_ns: 2, ..OpenOptions::default() };
    let (mut random, mut model) = (Rng::with_seed(1), vec![0; PAGES]);
    let mut fs = open_as(pool(&[32 * MB]), &options);
    let ino = fs.create(&ctx(5), Node::ROOT, b"f", &file(0o640)).unwrap().ino;
    let resize = |fs: &Fs, pages: usize| {
        let size = SetAttr { size: Some(pages as u64 * 4096), ..SetAttr::default() };
        fs.setattr(&ctx(6), Node::current(ino), &size).unwrap();
    };
    resize(&fs, PAGES);
    for step in 1..=15_000 {
        let (page, count) = (random.usize(..PAGES), random.usize(1..4));
        match random.u8(..20) {
            0 if random.u8(..8) == 0 => {
                resize(&fs, page);
                resize(&fs, PAGES);
                model[page..].fill(0);
            }
            0..8 => {
                let (at, len) = (page as u64 * 4096, count as u64 * 4096);
                fs.fallocate(&ctx(7), ino, Fallocate::PunchHole, at, len).unwrap();
                model[page..(page + count).min(PAGES)].fill(0);
            }
            byte => {
                fs.write(&ctx(8), ino, page as u64 * 4096, &[byte; 4096]).unwrap();
                model[page] = byte;
            }
        }
        if step % 2500 == 0 {
            let pm = fs.into_pm();
            verify(&pm);
            fs = open_as(pm, &options);
            let found = contents(&fs, ino);
            let pages: Vec<u8> = found.chunks(4096).map(|page| page[0]).collect();
            assert!(pages == model, "behind {step}");
        }
    }
}
