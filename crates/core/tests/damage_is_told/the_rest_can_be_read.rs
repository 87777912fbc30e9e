//! A damaged pool that was not closed clean can be opened read-only: what is damaged is an error,
//! the rest is shown as recovery would leave it, and nothing on media changes.

use novale_core::*;
use novale_layout::*;
use novale_pm::Pm;

use crate::pools::*;

/// `d` with `count` files of some bytes each, closed clean and opened again.
fn with_files(count: u8) -> (Fs, Vec<Ino>) {
    let fs = try_open(empty_pool()).unwrap();
    fs.create(&ctx(), Node::ROOT, b"d", &new(FileKind::Directory)).unwrap();
    let inos = (0..count).map(|index| {
        let name = format!("file {index}");
        let ino = fs
            .create(&ctx(), Node::current(DIR), name.as_bytes(), &new(FileKind::File))
            .unwrap()
            .ino;
        fs.write(&ctx(), ino, 0, &[index; 5000]).unwrap();
        ino
    });
    let inos = inos.collect();
    fs.close().unwrap();
    (try_open(fs.into_pm()).unwrap(), inos)
}

/// Reads all files, which hold their index; those of `bad` must be damaged, by that text.
fn reads_all_but(fs: &Fs, inos: &[Ino], bad: &[Ino], text: &str) {
    for (ino, index) in inos.iter().zip(0..) {
        let mut bytes = [0xff; 5000];
        let read = fs.read(&ctx(), *ino, 0, &mut bytes);
        if bad.contains(ino) {
            let said = read.unwrap_err().to_string();
            assert!(said.contains(text), "{ino:?}: {said}");
        } else {
            assert_eq!(read.unwrap(), 5000, "{ino:?}");
            assert_eq!(bytes, [index; 5000], "{ino:?}");
        }
    }
}

/// Opens the pool for writing, which must be refused with that text, and then read-only.
fn refused_but_readable(pm: Pm, text: &str) -> Fs {
    let before = bytes(&pm);
    // The opening that fails drops its mapping of the anonymous pool: a copy is tried.
    let copy = empty_pool();
    put(&copy, PmAddr::new(0, 0), &before);
    let refused = try_open(copy).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, Error::Unrecoverable { .. }), "{said}");
    assert!(said.contains(text) && said.contains("mount with -o ro"), "{said}");
    let fs = open_read_only(pm).unwrap();
    assert!(bytes(fs.pm()) == before, "opening read-only changed the pool");
    fs
}

/// One flipped bit in one log entry of one file kept a whole pool that a crash had left from being
/// opened, even read-only: 21 good files could not be copied.
#[test]
fn around_one_damaged_log_entry() {
    let (fs, inos) = with_files(21);
    fs.write(&ctx(), inos[3], 0, &[3; 100]).unwrap();
    let (_, line) = newest(fs.pm(), inos[7]);
    let pm = fs.into_pm();
    flip(&pm, line.log_head.add(64 + 20), 3);
    let name = format!("inode {} log entry at {}", inos[7].get(), line.log_head.add(64));
    let fs = refused_but_readable(pm, &name);
    assert_eq!((fs.opened().clean, fs.opened().damaged), (false, 1));
    reads_all_but(&fs, &inos, &[inos[7]], &name);
    assert!(matches!(fs.write(&ctx(), inos[0], 0, &[1]), Err(Error::ReadOnly)));
    let before = bytes(fs.pm());
    fs.close().unwrap();
    let pm = fs.into_pm();
    assert!(bytes(&pm) == before, "closing a read-only pool changed it");
    assert!(findings(&pm).iter().any(|found| found.contains(&name)));
    // Mended, it is recovered as ever.
    flip(&pm, line.log_head.add(64 + 20), 3);
    reads_all_but(&try_open(pm).unwrap(), &inos, &[], "");
}

/// With its newest line damaged, an inode's older line stood after a crash, as if the newer one were
/// torn: its pages were another file's by then, and both were refused, or the older shown in both.
#[test]
fn around_an_older_state_whose_pages_are_anothers() {
    let (fs, mut inos) = with_files(4);
    // The page of the first of these states is freed, and given to a new file.
    fs.write(&ctx(), inos[0], 0, &[9; 4096]).unwrap();
    fs.close().unwrap();
    let fs = try_open(fs.into_pm()).unwrap();
    fs.write(&ctx(), inos[0], 0, &[0; 4096]).unwrap();
    let (damaged, _) = newest(fs.pm(), inos[0]);
    let new_file = fs.create(&ctx(), Node::current(DIR), b"new", &new(FileKind::File)).unwrap().ino;
    inos.push(new_file);
    fs.write(&ctx(), new_file, 0, &[4; 4096]).unwrap();
    fs.write(&ctx(), new_file, 4096, &[4; 904]).unwrap();
    let pm = fs.into_pm();
    flip(&pm, damaged.add(32), 0);
    let name = format!("inode {} at ", inos[0].get());
    let fs = refused_but_readable(pm, &name);
    reads_all_but(&fs, &inos, &[inos[0]], "a page that has another owner too");
}

/// A word of the inode directory that named no page refused the pool, however it was closed.
#[test]
fn around_a_damaged_word_of_the_inode_directory() {
    for clean in [true, false] {
        let (fs, inos) = with_files(40);
        if clean {
            fs.close().unwrap();
        }
        let pm = fs.into_pm();
        let root = PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE);
        let at = word(&pm, word(&pm, root)).add(8);
        flip(&pm, at, 0);
        let name = format!("inode directory at {at}: ");
        let lost: Vec<Ino> =
            inos.iter().copied().filter(|ino| (16..32).contains(&ino.get())).collect();
        assert_eq!(lost.len(), 16);
        let fs = refused_but_readable(pm, &name);
        reads_all_but(&fs, &inos, &lost, &name);
    }
}

/// A record of several inodes, one of which has no place any more, can't be judged: the others are
/// damaged as far as their own lines did not arrive, and not the whole pool.
#[test]
fn around_a_record_that_cannot_be_judged() {
    let (fs, inos) = with_files(60);
    let before = place(fs.pm(), DIR);
    let mut own = [0; 256];
    fs.pm().load(before, &mut own).unwrap();
    let made = fs.create(&ctx(), Node::current(DIR), b"last", &new(FileKind::File)).unwrap().ino;
    assert_eq!(made.get(), 63);
    let made = fs.create(&ctx(), Node::current(DIR), b"later", &new(FileKind::File)).unwrap().ino;
    assert_eq!(made.get(), 64);
    let pm = fs.into_pm();
    let root = PmAddr::new(0, INODE_DIRECTORY_PAGE * PAGE);
    put(&pm, word(&pm, word(&pm, root)).add(4 * 8), &[0; 8]);
    put(&pm, before, &own);
    let fs = refused_but_readable(pm, "a number without a place");
    reads_all_but(&fs, &inos, &[], "");
    assert!(fs.getattr(DIR).unwrap_err().to_string().contains("inode 64 journal record"));
}

/// Read-only slots could not be shown at all after a crash, and a read-only mount wrote to others.
#[test]
fn also_what_only_the_journal_has() {
    let (fs, inos) = with_files(3);
    let own = |pm: &Pm, ino| {
        let mut own = [0; 256];
        pm.load(place(pm, ino), &mut own).unwrap();
        own
    };
    let before = [own(fs.pm(), DIR), own(fs.pm(), inos[1])];
    fs.rename(&ctx(), Node::current(DIR), b"file 1", Node::ROOT, b"moved", RenameMode::Replace)
        .unwrap();
    fs.unlink(&ctx(), Node::current(DIR), b"file 0").unwrap();
    let pm = fs.into_pm();
    // The last record stands for lines that had not left the caches.
    put(&pm, place(&pm, DIR), &before[0]);
    put(&pm, place(&pm, inos[1]), &before[1]);
    let image = bytes(&pm);
    let fs = open_read_only(pm).unwrap();
    assert!(fs.opened().lines_installed > 0);
    let names = |fs: &Fs, dir| {
        let mut names = Vec::new();
        fs.readdir(&ctx(), dir, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
        names
    };
    let shown = (names(&fs, Node::ROOT), names(&fs, Node::current(DIR)));
    assert_eq!(shown, (vec!["d".into(), "moved".into()], vec!["file 2".into()]));
    assert!(matches!(fs.lookup(&ctx(), Node::current(DIR), b"file 0"), Err(Error::NotFound)));
    assert!(bytes(fs.pm()) == image);
    let fs = try_open(fs.into_pm()).unwrap();
    assert_eq!((names(&fs, Node::ROOT), names(&fs, Node::current(DIR))), shown);
}

/// One flipped bit in the commit line of a cleanly closed pool let the older line stand: what had been
/// read was rolled back, and pages that the saved allocator called free were another file's soon.
#[test]
fn around_any_flipped_bit_of_a_commit_line() {
    let mut pm = pool();
    for offset in COMMIT_OFFSETS {
        for bit in 0..512 {
            let (at, bit) =
                (place(&pm, FILE).add(offset + bit / 8), u32::try_from(bit % 8).unwrap());
            flip(&pm, at, bit);
            let found = findings(&pm);
            assert!(found.iter().any(|found| found.contains("inode 3 commit lines")), "{found:?}");
            // Read-only, so that one pool serves for all.
            let fs = open_read_only(pm).unwrap();
            let said = fs.getattr(FILE).unwrap_err().to_string();
            assert!(said.contains("inode 3 commit lines at "), "{said}");
            assert_eq!(fs.lookup(&ctx(), Node::current(DIR), b"x").unwrap().kind, FileKind::File);
            pm = fs.into_pm();
            flip(&pm, at, bit);
        }
    }
    flip(&pm, place(&pm, FILE).add(COMMIT_OFFSETS[0]), 0);
    let fs = try_open(pm).unwrap();
    assert!(matches!(fs.getattr(FILE), Err(Error::Damaged { .. })));
}
