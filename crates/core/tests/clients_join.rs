//! Promise: a client that joins a pool is told how the others have it open, and works as they do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use novale_arena::{Arena, PidInfo};
use novale_core::{
    Atime, CommitCosts, Ctx, Error, FileKind, Form, Fs, Ino, MkfsOptions, NewInode, Node,
    OpenOptions, RenameMode, Serial, SetAttr, SetXattr, UpdatePolicy, Usage, XattrMode, mkfs,
};
use novale_pm::{Pm, PmOptions, SlotLock, SlotSpec};
use support::MB;
use tempfile::NamedTempFile;

const CTX: Ctx = Ctx { now_ns: 9, hint: 1 };

fn make(fs: &Fs, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&CTX, Node::current(dir), name.as_bytes(), &new).unwrap().ino
}

#[test]
fn as_those_who_are_there_have_it_open() {
    let costs = CommitCosts { fence_ns: 517, page_sum_ns: 43 };
    for update in UpdatePolicy::ALL {
        for form in [Form::Auto, Form::Single, Form::Two] {
            for atime in [Atime::Relatime, Atime::Strict, Atime::Noatime] {
                for (costs, ignore_default_acls) in [(None, true), (Some(costs), false)] {
                    let options = OpenOptions {
                        atime,
                        form,
                        update: Some(update),
                        costs,
                        ignore_default_acls,
                        ..OpenOptions::default()
                    };
                    let arena = Arena::anonymous(16 * MB).unwrap();
                    let pm = support::pool(&[4 * MB], 1);
                    let fs = Fs::open(pm, arena.clone(), &options, &Serial, &|_| ()).unwrap();
                    let told = OpenOptions::of_arena(&arena);
                    assert_eq!(format!("{told:?}"), format!("{options:?}"));
                    fs.close().unwrap();
                }
            }
        }
    }
}

/// Another process has found the first one dead, and has opened the pool anew.
#[test]
fn but_not_by_an_arena_of_an_earlier_session() {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(8 * MB).unwrap();
    let pm = |lock| {
        let options = PmOptions { lock, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    mkfs(&pm(SlotLock::Exclusive), &MkfsOptions::numbered(1, 4)).unwrap();
    let [earlier, later] = [(); 2].map(|()| Arena::anonymous(16 * MB).unwrap());
    let (options, me) = (OpenOptions::default(), PidInfo::current());
    let open = |arena: &Arena| {
        Fs::open(pm(SlotLock::Held), arena.clone(), &options, &Serial, &|_| ()).unwrap()
    };
    let _dead = open(&earlier);
    assert!(Fs::attach(pm(SlotLock::Held), &earlier, &options, me).is_ok());
    let _alive = open(&later);
    let outcome = Fs::attach(pm(SlotLock::Held), &earlier, &options, me);
    let Err(Error::BadArena(why)) = outcome else { panic!("it joins what is over") };
    assert_eq!(why, "it is of session 2, the pool's is 3");
    assert!(Fs::attach(pm(SlotLock::Held), &later, &options, me).is_ok());
}

#[test]
fn and_do_what_the_others_do() {
    let slot = NamedTempFile::new_in("/dev/shm").unwrap();
    slot.as_file().set_len(64 * MB).unwrap();
    let pm = |lock| {
        let options = PmOptions { lock, ..PmOptions::default() };
        Pm::open(&[SlotSpec::new(slot.path())], &options).unwrap()
    };
    mkfs(&pm(SlotLock::Exclusive), &MkfsOptions::numbered(1, 4)).unwrap();
    let (arena, options) = (Arena::anonymous(64 * MB).unwrap(), OpenOptions::default());
    let first = Fs::open(pm(SlotLock::Held), arena.clone(), &options, &Serial, &|_| ()).unwrap();
    let me = PidInfo::current();
    let joined = Fs::attach(pm(SlotLock::Held), &arena, &options, me).unwrap();
    // Numbers, pages, names and limits of one are those of the other.
    for (maker, other, name) in [(&joined, &first, "a"), (&first, &joined, "b")] {
        let dir = make(maker, Ino::ROOT, name, FileKind::Directory);
        let tree =
            SetAttr { project: Some(u32::try_from(dir.get()).unwrap()), ..SetAttr::default() };
        maker.setattr(&CTX, Node::current(dir), &tree).unwrap();
        let mode = XattrMode::Any;
        let label = SetXattr { name: b"user.a", value: b"b", mode, ..SetXattr::default() };
        for file in 0..200 {
            let ino = make(maker, dir, &format!("f{file}"), FileKind::File);
            maker.write(&CTX, ino, 0, name.repeat(5000).as_bytes()).unwrap();
            maker.setxattr(&CTX, Node::current(ino), &label).unwrap();
        }
        let project = other.getattr(dir).unwrap().project;
        other.set_quota(&CTX, project, Usage { pages: 0, inodes: 201 }).unwrap();
        let new = NewInode { kind: FileKind::File, mode: 0, uid: 0, gid: 0, rdev: 0, target: b"" };
        let refused = maker.create(&CTX, Node::current(dir), b"one more", &new);
        assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
        for file in 0..100 {
            other.unlink(&CTX, Node::current(dir), format!("f{file}").as_bytes()).unwrap();
        }
        let to = format!("{name}-moved");
        let (root, replace) = (Node::ROOT, RenameMode::Replace);
        other.rename(&CTX, root, name.as_bytes(), root, to.as_bytes(), replace).unwrap();
        let found = maker.lookup(&CTX, Node::current(dir), b"f150").unwrap().ino;
        let mut bytes = [0; 3];
        assert_eq!(maker.read(&CTX, found, 4096, &mut bytes).unwrap(), 3);
        assert_eq!(bytes.to_vec(), name.repeat(3).as_bytes());
    }
    assert_eq!(joined.statfs().unwrap(), first.statfs().unwrap());
    assert_eq!((first.clients(), joined.clients()), (2, 2));
    joined.close().unwrap();
    first.close().unwrap();
    support::verify(first.pm());
}
