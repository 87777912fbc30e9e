//! Promise: what the kernel holds is held exactly as often as it says, whatever it asks in between.
//!
//! These tests play the kernel themselves, so they need no mount and no privileges.

mod support;

use std::sync::Arc;

use novale_core::{
    Attr, Ctx, Error, FileKind, Fs, Ino, NewInode, Node, Place, RenameMode, SetAttr,
};
use novale_fuse::{Caller, Changes, Novale, OpenRequest, ReadFrom, Service, Settings};
use support::{NOBODY, file_system};

const ROOT: Ino = Ino::ROOT;
const CTX: Ctx = Ctx { now_ns: 0, hint: 0 };

fn service() -> (Arc<Fs>, Novale) {
    let fs = Arc::new(file_system(novale_fuse::Atime::Relative));
    (fs.clone(), Novale::new(fs, Settings::default()))
}

fn new(kind: FileKind, mode: u32) -> NewInode<'static> {
    NewInode { kind, mode, uid: 0, gid: 0, rdev: 0, target: b"" }
}

fn is_gone(fs: &Fs, attr: &Attr) -> bool {
    match fs.getattr(attr.ino) {
        Ok(now) => now.generation != attr.generation,
        Err(error) => matches!(error, Error::Stale | Error::NotFound),
    }
}

#[test]
fn an_inode_goes_with_its_last_hold_and_not_before() {
    let (fs, service) = service();
    let file = new(FileKind::File, 0o644);
    let made = service.make(ROOT, b"f", &file, 0).unwrap();
    service.lookup(ROOT, b"f").unwrap();
    service.link(made.ino, ROOT, b"g").unwrap();
    let (again, _) = service.create(ROOT, b"f", (&file, 0), OpenRequest::default()).unwrap();
    assert_eq!(again.ino, made.ino, "without O_EXCL an existing file is opened");
    service.unlink(ROOT, b"f", None).unwrap();
    service.unlink(ROOT, b"g", None).unwrap();
    service.forget(made.ino, 3);
    assert!(!is_gone(&fs, &made), "four holds were given out, three came back");
    service.forget(made.ino, 1);
    assert!(is_gone(&fs, &made));
}

/// An open that was to make a file came to a directory that another client had made in that moment. It
/// was answered as if it were a file: the kernel said `EIO`, and never gave it back.
#[test]
fn what_is_no_file_is_not_opened_by_who_was_to_make_one() {
    let (fs, service) = service();
    let file = new(FileKind::File, 0o644);
    let create = |name| service.create(ROOT, name, (&file, 0), OpenRequest::default());
    let directory =
        fs.create(&CTX, Node::current(ROOT), b"d", &new(FileKind::Directory, 0o755)).unwrap();
    let link = NewInode { target: b"d", ..new(FileKind::Symlink, 0o777) };
    let link = fs.create(&CTX, Node::current(ROOT), b"l", &link).unwrap();
    assert_eq!(create(b"d").err(), Some(novale_fuse::Errno(libc::EISDIR)));
    assert_eq!(create(b"l").err(), Some(novale_fuse::Errno(libc::ESTALE)));
    fs.rmdir(&CTX, Node::current(ROOT), b"d").unwrap();
    fs.unlink(&CTX, Node::current(ROOT), b"l").unwrap();
    assert!(is_gone(&fs, &directory) && is_gone(&fs, &link), "nobody holds them");
}

/// A direct program had made the file between the kernel's look for the name and the request to make it. It was
/// opened for anybody, and emptied: the kernel asks no rights of what it thinks was made.
#[test]
fn nobody_opens_what_others_have_made_meanwhile() {
    let (fs, service) = service();
    let root = Node::current(ROOT);
    let make = |name: &[u8], mode| fs.create(&CTX, root, name, &new(FileKind::File, mode)).unwrap();
    let secret = make(b"secret", 0o600);
    let closed = make(b"closed", 0o200);
    let (reads, writes) = (
        OpenRequest { read: true, ..OpenRequest::default() },
        OpenRequest { read: true, stores: true, truncate: true, ..OpenRequest::default() },
    );
    let create = |uid, name, open| {
        let file = NewInode { uid, ..new(FileKind::File, 0o644) };
        service.create(ROOT, name, (&file, 0), open).map(|(attr, _)| attr.ino).ok()
    };
    for open in [reads, writes, OpenRequest::default()] {
        assert_eq!(create(NOBODY, b"secret", open), None);
    }
    // The kernel looks again for the owner too, where the bits are not plainly enough.
    assert_eq!(create(secret.uid, b"closed", reads), None);
    assert_eq!(create(secret.uid, b"secret", writes), Some(secret.ino));
    for name in [b"secret", b"closed"] {
        fs.unlink(&CTX, root, name).unwrap();
    }
    assert!(is_gone(&fs, &closed) && !is_gone(&fs, &secret), "the one that was opened is held");
}

/// A file that others had made meanwhile, and that could not be emptied, was held for ever, removed or not.
#[test]
fn what_could_not_be_emptied_is_held_by_nobody() {
    let (fs, service) = service();
    let root = Node::current(ROOT);
    let file = new(FileKind::File, 0o644);
    let found = fs.create(&CTX, root, b"f", &file).unwrap();
    fs.set_mapped(&CTX, found.ino, true).unwrap();
    fs.refuse_mapped();
    let open = OpenRequest { stores: true, truncate: true, ..OpenRequest::default() };
    assert!(service.create(ROOT, b"f", (&file, 0), open).is_err());
    fs.unlink(&CTX, root, b"f").unwrap();
    assert!(is_gone(&fs, &found));
}

/// What was made there in a mount of one's own was hidden by the next shared one.
#[test]
fn the_name_of_a_shared_mounts_own_directory_is_made_in_none() {
    let (fs, service) = service();
    let (name, file) = (&b".novale"[..], new(FileKind::File, 0o644));
    let made = service.make(ROOT, b"f", &file, 0).unwrap();
    let rename = |from, to, mode| service.rename((ROOT, from), (ROOT, to), mode, [None; 2]);
    let make_it = || fs.create(&CTX, Node::current(ROOT), name, &file).unwrap();
    let refused = |done: Result<(), novale_fuse::Errno>| {
        assert_eq!(done.err(), Some(novale_fuse::Errno(libc::EPERM)));
    };
    refused(service.make(ROOT, name, &new(FileKind::Directory, 0o755), 0).map(drop));
    refused(service.create(ROOT, name, (&file, 0), OpenRequest::default()).map(drop));
    refused(service.link(made.ino, ROOT, name).map(drop));
    refused(rename(b"f", name, RenameMode::Replace));
    make_it();
    for (from, to) in [(name, &b"f"[..]), (b"f", name)] {
        refused(rename(from, to, RenameMode::Exchange));
    }
    assert!(service.lookup(ROOT, name).unwrap().is_some());
    rename(name, b"g", RenameMode::NoReplace).unwrap();
    make_it();
    service.unlink(ROOT, name, None).unwrap();
}

/// In a sticky directory the kernel had judged a user's own file, and a direct program renamed another user's over it
/// before the request came: that one was removed, or replaced.
#[test]
fn what_the_kernel_has_not_judged_is_not_taken_away() {
    let (fs, service) = service();
    let root = Node::current(ROOT);
    let make = |name: &[u8]| fs.create(&CTX, root, name, &new(FileKind::File, 0o600)).unwrap();
    let (own, others, mine) = (make(b"own"), make(b"others"), make(b"mine"));
    let folder = fs.create(&CTX, root, b"folder", &new(FileKind::Directory, 0o755)).unwrap();
    let before = make(b"before");
    // Elsewhere it makes no difference whose it is.
    assert_eq!(service.unlink(ROOT, b"before", Some(Some(folder.ino))).err(), None);
    assert!(is_gone(&fs, &before));
    let sticky = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    fs.setattr(&CTX, root, &sticky).unwrap();
    let judged = |attr: &Attr| Some(Some(attr.ino));
    let stale = Some(novale_fuse::Errno(libc::ESTALE));
    let rename = |to: &[u8], target| {
        let judged = [judged(&mine), target];
        service.rename((ROOT, b"mine"), (ROOT, to), RenameMode::Replace, judged).err()
    };
    assert_eq!(service.unlink(ROOT, b"others", judged(&own)).err(), stale);
    assert_eq!(service.rmdir(ROOT, b"folder", judged(&own)).err(), stale);
    assert_eq!(rename(b"others", judged(&own)), stale);
    // There was nothing.
    assert_eq!(rename(b"others", Some(None)), stale);
    service
        .rename((ROOT, b"own"), (ROOT, b"x"), RenameMode::Replace, [judged(&mine), None])
        .unwrap_err();
    assert_eq!(rename(b"others", judged(&others)), None);
    assert_eq!(service.unlink(ROOT, b"own", judged(&own)).err(), None);
    assert_eq!(service.rmdir(ROOT, b"folder", judged(&folder)).err(), None);
}

#[test]
fn a_listing_holds_what_was_taken_and_nothing_else() {
    let (fs, service) = service();
    let mut made = Vec::new();
    for n in 0..200 {
        let attr = service.make(ROOT, format!("f{n}").as_bytes(), &new(FileKind::File, 0o644), 0);
        made.push(attr.unwrap());
    }
    let mut room = 102;
    let mut taken = Vec::new();
    service
        .readdirplus((ROOT, 0), 0, &mut |entry, attr| {
            if room == 0 {
                return false;
            }
            room -= 1;
            taken.push((entry.name.clone(), attr.unwrap().ino));
            true
        })
        .unwrap();
    assert_eq!(taken.len(), 102);
    assert_eq!((&taken[0].0[..], &taken[1].0[..]), (&b"."[..], &b".."[..]));
    for n in 0..200 {
        service.unlink(ROOT, format!("f{n}").as_bytes(), None).unwrap();
    }
    for attr in &made {
        service.forget(attr.ino, 1);
        let listed = taken.iter().any(|(_, ino)| *ino == attr.ino);
        assert_eq!(is_gone(&fs, attr), !listed, "inode {}", attr.ino.get());
        if listed {
            service.forget(attr.ino, 1);
            assert!(is_gone(&fs, attr));
        }
    }
    service.getattr(ROOT).unwrap();
}

#[test]
fn listings_go_on_where_they_stopped() {
    let (_fs, service) = service();
    let directory = service.make(ROOT, b"d", &new(FileKind::Directory, 0o755), 0).unwrap();
    for n in 0..150 {
        let name = format!("f{n}");
        service.make(directory.ino, name.as_bytes(), &new(FileKind::File, 0o644), 0).unwrap();
    }
    let (mut names, mut cookie) = (Vec::new(), 0);
    for _ in 0..200 {
        let before = names.len();
        let mut room = 7;
        service
            .readdir((directory.ino, 0), cookie, &mut |entry| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                cookie = entry.cookie;
                names.push((entry.name.clone(), entry.ino));
                true
            })
            .unwrap();
        if names.len() == before {
            break;
        }
    }
    assert_eq!(names.len(), 152);
    assert_eq!((names[0].1, names[1].1), (directory.ino, ROOT));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 152);
}

#[test]
fn file_handles_are_resolved_by_dot_and_dot_dot() {
    let (_fs, service) = service();
    let directory = service.make(ROOT, b"d", &new(FileKind::Directory, 0o755), 0).unwrap();
    let file = service.make(directory.ino, b"f", &new(FileKind::File, 0o644), 0).unwrap();
    let dot = service.lookup(file.ino, b".").unwrap().unwrap();
    assert_eq!((dot.ino, dot.generation), (file.ino, file.generation));
    assert_eq!(service.lookup(directory.ino, b"..").unwrap().unwrap().ino, ROOT);
    assert!(service.lookup(ROOT, b"absent").unwrap().is_none());
    assert!(service.lookup(Ino::new(1 << 30), b".").is_err());
}

#[test]
fn set_id_bits_fall_where_the_kernel_leaves_them_to_us() {
    let (_fs, service) = service();
    let (root, nobody) =
        (Caller { uid: 0, gid: 0, pid: 0 }, Caller { uid: NOBODY, gid: NOBODY, pid: 0 });
    let file = service.make(ROOT, b"f", &new(FileKind::File, 0o6755), 0).unwrap().ino;
    let mode = || service.getattr(file).unwrap().mode;
    let arm = || {
        let changes = Changes { mode: Some(0o6755), ..Changes::default() };
        service.setattr(root, file, &changes).unwrap();
        assert_eq!(mode(), 0o6755);
    };
    service.write(None, file, 0, b"x").unwrap();
    assert_eq!(mode(), 0o6755);
    service.write(Some(nobody), file, 0, b"x").unwrap();
    assert_eq!(mode(), 0o755);
    arm();
    let truncate = OpenRequest { truncate: true, ..OpenRequest::default() };
    service.open(root, file, truncate).unwrap();
    assert_eq!(mode(), 0o6755);
    service.open(nobody, file, OpenRequest { kills_set_id: true, ..truncate }).unwrap();
    assert_eq!(mode(), 0o755);
    arm();
    let size = Changes { size: Some(9), ..Changes::default() };
    service.setattr(nobody, file, &size).unwrap();
    assert_eq!(mode(), 0o6755);
    service.setattr(nobody, file, &Changes { kills_set_id: true, ..size }).unwrap();
    assert_eq!(mode(), 0o755);
}

#[test]
fn after_closing_everything_is_refused_and_nothing_breaks() {
    let (_fs, service) = service();
    let file = service.make(ROOT, b"f", &new(FileKind::File, 0o644), 0).unwrap().ino;
    service.close().unwrap();
    let shut = Some(novale_fuse::Errno(108));
    assert_eq!(service.getattr(file).err(), shut);
    assert_eq!(service.write(None, file, 0, b"x").err(), shut);
    assert_eq!(service.lookup(ROOT, b"f").err(), shut);
    service.forget(file, 1);
    assert!(matches!(service.close(), Err(Error::Closed)));
}

/// The kernel reads a page for a mapping before a write is applied to it, and writes it back, with a
/// store in it, after that: the write was gone.
#[test]
fn a_write_is_kept_beside_a_store_to_a_mapping_of_its_page() {
    let (_fs, service) = service();
    let caller = Caller { uid: 0, gid: 0, pid: 1 };
    let open = OpenRequest { stores: true, direct: true, ..OpenRequest::default() };
    let made = service.create(ROOT, b"f", (&new(FileKind::File, 0o644), 0), open);
    let ino = made.unwrap().0.ino;
    let file = ReadFrom { ino, is_access: true };
    service.write(None, ino, 0, &[0; 8192]).unwrap();
    let mut page = [0; 4096];
    assert_eq!(service.read_cached(file, 4096, &mut page).unwrap(), 4096);
    service.write(None, ino, 4096 + 1024, &[1; 8]).unwrap();
    page[3072..3080].copy_from_slice(&[2; 8]);
    service.write_back(None, ino, 4096, &page).unwrap();
    let mut now = [0; 4096];
    service.read(file, 4096, &mut now).unwrap();
    assert_eq!((now[1024..1032].as_ref(), now[3072..3080].as_ref()), (&[1; 8][..], &[2; 8][..]));
    // What the kernel would copy past such a mapping it is to read and write.
    let place = |offset| Place { ino, offset };
    let copied = service.copy_range(caller, place(0), place(4096), 4096, true);
    assert_eq!(copied.err(), Some(novale_fuse::Errno(libc::EOPNOTSUPP)));
    service.closed(ino, open);
    assert_eq!(service.copy_range(caller, place(0), place(4096), 4096, true).unwrap(), 4096);
    // An append is a write at the end, which the page does not know of.
    service.open(caller, ino, open).unwrap();
    service.setattr(caller, ino, &Changes { size: Some(100), ..Changes::default() }).unwrap();
    let mut page = [0; 4096];
    assert_eq!(service.read_cached(file, 0, &mut page).unwrap(), 100);
    service.append(None, ino, &[3; 50]).unwrap();
    page[5] = 4;
    service.write_back(None, ino, 0, &page[..150]).unwrap();
    let mut now = [0; 150];
    assert_eq!(service.read(file, 0, &mut now).unwrap(), 150);
    assert_eq!((now[5], &now[100..]), (4, &[3; 50][..]));
}
