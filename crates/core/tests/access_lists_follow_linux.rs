//! POSIX ACLs: what they say of permission bits, what chmod makes of them, what new inodes inherit.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use novale_core::{Ctx, Error, FileKind, Form, Fs, Ino, NewInode, Node, Serial, SetAttr, SetXattr};
use support::{MB, open};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const CTX: Ctx = Ctx { now_ns: 5, hint: 0 };

fn world(form: Form) -> Fs {
    let pm = support::pool(&[16 * MB], 1);
    open(pm, form)
}

fn make(fs: &Fs, dir: Ino, name: &str, (kind, mode): (FileKind, u32), umask: u32) -> Ino {
    let target: &[u8] = if kind == FileKind::Symlink { b"there" } else { b"" };
    let new = NewInode { kind, mode, uid: 1, gid: 2, rdev: 0, target };
    fs.create_with_umask(&CTX, Node::current(dir), name.as_bytes(), &new, umask).unwrap().ino
}

fn mode(fs: &Fs, ino: Ino) -> u32 {
    fs.getattr(ino).unwrap().mode
}

/// The bytes of "u:7 u1000:6 g:4 m:5 o:1".
fn list(text: &str) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for entry in text.split(' ').filter(|entry| !entry.is_empty()) {
        let (who, perm) = entry.split_once(':').unwrap();
        let (tag, id) = match who.split_at(1) {
            ("u", "") => (1, u32::MAX),
            ("u", id) => (2, id.parse().unwrap()),
            ("g", "") => (4, u32::MAX),
            ("g", id) => (8, id.parse().unwrap()),
            ("m", "") => (16, u32::MAX),
            ("o", "") => (32, u32::MAX),
            other => panic!("{other:?}"),
        };
        bytes.extend([tag, 0, perm.parse().unwrap(), 0]);
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(fs: &Fs, ino: Ino, name: &[u8], text: &str) -> Result<(), Error> {
    let set = SetXattr { name, value: &list(text), ..SetXattr::default() };
    fs.setxattr(&CTX, Node::current(ino), &set)
}

/// Whether the ACL is this one; none for the empty text.
#[track_caller]
fn assert_acl(fs: &Fs, ino: Ino, name: &[u8], text: &str) {
    match fs.getxattr(Node::current(ino), name) {
        Ok(found) => assert_eq!(found, list(text), "{text}"),
        Err(Error::NoAttribute) => assert_eq!(text, "", "it has none"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_access_list_sets_the_bits_and_chmod_changes_the_list() {
    for form in [Form::Single, Form::Two] {
        let fs = world(form);
        let file = make(&fs, Ino::ROOT, "f", (FileKind::File, 0o6600), 0);
        set(&fs, file, ACCESS, "u:7 u1000:6 g:4 m:5 o:1").unwrap();
        assert_eq!(mode(&fs, file), 0o6751);
        let chmod = SetAttr { mode: Some(0o4624), ..SetAttr::default() };
        fs.setattr(&CTX, Node::current(file), &chmod).unwrap();
        assert_acl(&fs, file, ACCESS, "u:6 u1000:6 g:4 m:2 o:4");
        let fs = open(fs.into_pm(), form);
        assert_eq!(mode(&fs, file), 0o4624);
        assert_acl(&fs, file, ACCESS, "u:6 u1000:6 g:4 m:2 o:4");
        // What the bits say is not kept twice.
        set(&fs, file, ACCESS, "u:7 g:5 o:0").unwrap();
        assert_eq!(mode(&fs, file), 0o4750);
        assert_acl(&fs, file, ACCESS, "");
        assert_eq!(fs.listxattr(Node::current(file)).unwrap(), b"");
        // Removing a list leaves the bits.
        set(&fs, file, ACCESS, "u:7 g:4 g7:6 m:6 o:1").unwrap();
        fs.removexattr(&CTX, Node::current(file), ACCESS).unwrap();
        assert_eq!(mode(&fs, file), 0o4761);
        fs.removexattr(&CTX, Node::current(file), ACCESS).unwrap();
    }
}

#[test]
fn a_caller_outside_the_group_loses_set_gid() {
    let fs = world(Form::Auto);
    let file = make(&fs, Ino::ROOT, "f", (FileKind::File, 0o7777), 0);
    let value = list("u:6 g:4 o:0");
    let set = SetXattr { name: ACCESS, value: &value, clear_set_gid: true, ..SetXattr::default() };
    fs.setxattr(&CTX, Node::current(file), &set).unwrap();
    assert_eq!(mode(&fs, file), 0o5640);
}

#[test]
fn new_inodes_inherit_and_the_umask_counts_without_a_default_list() {
    for form in [Form::Single, Form::Two] {
        let fs = world(form);
        let (file, dir) = (FileKind::File, FileKind::Directory);
        let plain = make(&fs, Ino::ROOT, "plain", (file, 0o666), 0o027);
        assert_eq!(mode(&fs, plain), 0o640);
        let parent = make(&fs, Ino::ROOT, "d", (dir, 0o755), 0);
        set(&fs, parent, DEFAULT, "u:7 u9:7 g:5 m:7 o:4").unwrap();
        assert_eq!(mode(&fs, parent), 0o755, "a default list says nothing of the directory");
        let checks = |fs: &Fs| {
            let [below, made] = ["sub", "file"]
                .map(|name| fs.lookup(&CTX, Node::current(parent), name.as_bytes()).unwrap());
            assert_eq!((below.mode, made.mode), (0o754, 0o664));
            assert_acl(fs, below.ino, ACCESS, "u:7 u9:7 g:5 m:5 o:4");
            assert_acl(fs, below.ino, DEFAULT, "u:7 u9:7 g:5 m:7 o:4");
            assert_acl(fs, made.ino, ACCESS, "u:6 u9:7 g:5 m:6 o:4");
            assert_acl(fs, made.ino, DEFAULT, "");
            assert_eq!((below.blocks / 8, made.blocks / 8), (1, 1));
        };
        make(&fs, parent, "sub", (dir, 0o755), 0o077);
        make(&fs, parent, "file", (file, 0o666), 0o077);
        checks(&fs);
        let link = make(&fs, parent, "link", (FileKind::Symlink, 0o777), 0o077);
        assert_eq!(
            (mode(&fs, link), fs.listxattr(Node::current(link)).unwrap()),
            (0o777, Vec::new())
        );
        let fs = open(fs.into_pm(), form);
        checks(&fs);
        // A default list that says no more than bits leaves new files without one.
        set(&fs, parent, DEFAULT, "u:6 g:6 o:0").unwrap();
        let bare = make(&fs, parent, "bare", (file, 0o777), 0o077);
        assert_eq!(
            (mode(&fs, bare), fs.listxattr(Node::current(bare)).unwrap()),
            (0o660, Vec::new())
        );
        set(&fs, parent, DEFAULT, "").unwrap();
        assert_eq!(fs.listxattr(Node::current(parent)).unwrap(), b"");
        fs.close().unwrap();
        let pm = fs.into_pm();
        assert_eq!(novale_core::check(&pm, &Serial, &|_| {}).unwrap().findings, []);
    }
}

#[test]
fn what_is_no_list_or_has_none_is_refused() {
    let fs = world(Form::Auto);
    let file = make(&fs, Ino::ROOT, "f", (FileKind::File, 0o640), 0);
    let link = make(&fs, Ino::ROOT, "l", (FileKind::Symlink, 0o777), 0);
    for bad in ["u:7 g:4", "u:7 u9:4 g:4 o:0", "g:4 u:7 o:0", "u:7 g:4 m:4 m:4 o:0"] {
        assert!(matches!(set(&fs, file, ACCESS, bad), Err(Error::Invalid(_))), "{bad}");
    }
    assert!(matches!(set(&fs, file, DEFAULT, "u:7 g:4 o:0"), Err(Error::Denied(_))));
    assert!(matches!(set(&fs, link, ACCESS, "u:7 g:4 o:0"), Err(Error::Unsupported(_))));
    assert_eq!(mode(&fs, file), 0o640);
}

/// It was refused as a default ACL of a file: the comparison with ext4 found it.
#[test]
fn a_list_of_no_entries_is_none() {
    let fs = world(Form::Auto);
    let file = make(&fs, Ino::ROOT, "f", (FileKind::File, 0o640), 0);
    set(&fs, file, ACCESS, "u:6 u9:4 g:4 m:4 o:0").unwrap();
    set(&fs, file, ACCESS, "").unwrap();
    assert_acl(&fs, file, ACCESS, "");
    set(&fs, file, DEFAULT, "").unwrap();
    assert_eq!(mode(&fs, file), 0o640);
}
