//! Promise: a library user sees POSIX's rules for paths, links and descriptors.

mod support;

use std::ffi::OsString;

use novale_core::{
    Ctx, Error as FsError, FileKind, NewInode, Node, RenameMode, SetAttr, XattrMode,
};
use novale_posix::{At, Error, OpenOptions, Whence};
use support::files;

fn errno_of<T>(result: Result<T, Error>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

#[test]
fn symbolic_links_are_followed_in_the_middle_and_on_request_at_the_end() {
    let files = files();
    files.create_dir_all("a/b", 0o755).unwrap();
    files.write_file("/a/b/file", b"here").unwrap();
    files.symlink("b", "/a/to-b").unwrap();
    files.symlink("/a/to-b/../b/file", "/absolute").unwrap();
    assert_eq!(files.read_file("/a/to-b/file").unwrap(), b"here");
    assert_eq!(files.read_file("absolute").unwrap(), b"here");
    assert_eq!(files.lstat("/absolute").unwrap().kind, FileKind::Symlink);
    assert_eq!(files.stat("/absolute").unwrap().kind, FileKind::File);
    assert_eq!(files.lstat("/a/to-b/").unwrap().kind, FileKind::Directory);
    assert_eq!(files.read_link("/a/to-b").unwrap(), "b");
    assert_eq!(errno_of(files.read_link("/a/b")), Some(libc::EINVAL));
}

#[test]
fn forty_links_are_followed_and_forty_one_are_not() {
    let files = files();
    files.write_file("/l0", b"end").unwrap();
    for n in 1..=41 {
        files.symlink(format!("l{}", n - 1), format!("/l{n}")).unwrap();
    }
    assert_eq!(files.read_file("/l40").unwrap(), b"end");
    assert_eq!(errno_of(files.read_file("/l41")), Some(libc::ELOOP));
    files.symlink("self", "/self").unwrap();
    assert_eq!(errno_of(files.stat("/self/x")), Some(libc::ELOOP));
}

#[test]
fn a_dangling_link_is_created_through_but_not_with_create_new() {
    let files = files();
    files.create_dir("/d", 0o755).unwrap();
    files.symlink("d/new", "/dangling").unwrap();
    let exclusive = OpenOptions::new().write(true).create_new(true);
    assert_eq!(errno_of(files.open("/dangling", &exclusive)), Some(libc::EEXIST));
    files.write_file("/dangling", b"x").unwrap();
    assert_eq!(files.read_file("/d/new").unwrap(), b"x");
}

/// It was made, and hidden by the next shared mount.
#[test]
fn the_daemons_own_name_is_made_by_nobody() {
    let files = files();
    files.create_dir("/d", 0o755).unwrap();
    files.write_file("/d/f", b"1").unwrap();
    let exclusive = OpenOptions::new().write(true).create_new(true);
    let unnamed = OpenOptions::new().write(true).unnamed(true);
    let unnamed = files.open_file("/d", &unnamed).unwrap();
    let all_refuse = |name: &str| {
        let done = [
            files.write_file(name, b"x"),
            files.open(name, &exclusive).map(drop),
            files.create_dir(name, 0o755).map(drop),
            files.create_dir(format!("{name}/"), 0o755).map(drop),
            files.make_node(name, FileKind::Fifo, 0o644, 0).map(drop),
            files.symlink("d", name).map(drop),
            files.hard_link("/d/f", name).map(drop),
            files.link_file(&unnamed, name),
            files.rename("/d", name),
            files.rename_with("/d", name, RenameMode::NoReplace),
        ];
        done.into_iter().all(|done| errno_of(done) == Some(libc::EPERM))
    };
    assert!(all_refuse("/.novale") && all_refuse("d/../.novale"));
    files.write_file("/d/.novale", b"any other is nobody's").unwrap();
    // One that is there is exchanged for nothing, and can be taken away.
    let new =
        NewInode { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    let make = || {
        files.fs().create(&Ctx { now_ns: 1, hint: 0 }, Node::ROOT, b".novale", &new).unwrap();
    };
    make();
    for (one, other) in [("/.novale", "/d"), ("/d", "/.novale")] {
        let exchanged = files.rename_with(one, other, RenameMode::Exchange);
        assert_eq!(errno_of(exchanged), Some(libc::EPERM));
    }
    files.write_file("/.novale/f", b"2").unwrap();
    files.rename("/.novale", "/renamed").unwrap();
    make();
    files.remove_dir("/.novale").unwrap();
}

#[test]
fn dots_slashes_and_what_is_in_the_way() {
    let files = files();
    files.create_dir_all("/a/b/c", 0o755).unwrap();
    files.write_file("/a/f", b"1").unwrap();
    assert_eq!(files.stat("//a/./b/../../a/b/c/").unwrap(), files.stat("/a/b/c").unwrap());
    assert_eq!(files.stat("/../..").unwrap().ino, files.stat("/").unwrap().ino);
    assert_eq!(errno_of(files.stat("/a/f/x")), Some(libc::ENOTDIR));
    assert_eq!(errno_of(files.stat("/a/f/")), Some(libc::ENOTDIR));
    assert_eq!(errno_of(files.stat("/a/none/x")), Some(libc::ENOENT));
    assert_eq!(errno_of(files.stat("")), Some(libc::ENOENT));
    assert_eq!(errno_of(files.stat("a".repeat(4096))), Some(libc::ENAMETOOLONG));
    assert_eq!(errno_of(files.create_dir("/", 0o755)), Some(libc::EEXIST));
    assert_eq!(errno_of(files.remove_dir("/a/.")), Some(libc::EINVAL));
    assert_eq!(errno_of(files.open("/new/", &OpenOptions::new().create(true))), Some(libc::EISDIR));
    assert_eq!(errno_of(files.create_dir_all("/a/f/x", 0o755)), Some(libc::ENOTDIR));
}

#[test]
fn an_open_file_outlives_its_name_and_is_freed_with_its_last_descriptor() {
    let files = files();
    files.write_file("/f", b"still here").unwrap();
    let fd = files.open("/f", &OpenOptions::new().read(true)).unwrap();
    let twin = files.dup(fd).unwrap();
    let ino = files.fstat(fd).unwrap().ino;
    files.remove_file("/f").unwrap();
    files.close(fd).unwrap();
    let mut buf = [0; 16];
    assert_eq!(files.read(twin, &mut buf).unwrap(), 10);
    assert_eq!(files.fstat(twin).unwrap().nlink, 0);
    files.close(twin).unwrap();
    assert!(matches!(files.fs().getattr(ino), Err(FsError::Stale | FsError::NotFound)));
    assert_eq!(errno_of(files.close(twin)), Some(libc::EBADF));
}

#[test]
fn duplicates_share_a_position_and_separate_opens_do_not() {
    let files = files();
    files.write_file("/f", b"0123456789").unwrap();
    let read = OpenOptions::new().read(true);
    let (one, other) = (files.open("/f", &read).unwrap(), files.open("/f", &read).unwrap());
    let twin = files.dup(one).unwrap();
    let mut buf = [0; 4];
    files.read(one, &mut buf).unwrap();
    files.read(twin, &mut buf).unwrap();
    assert_eq!(&buf, b"4567");
    files.read(other, &mut buf).unwrap();
    assert_eq!(&buf, b"0123");
    assert_eq!(files.seek(twin, Whence::Current(-2)).unwrap(), 6);
    assert_eq!(files.seek(one, Whence::End(-1)).unwrap(), 9);
    assert_eq!(errno_of(files.seek(one, Whence::Current(-10))), Some(libc::EINVAL));
    assert_eq!(files.seek(twin, Whence::Current(0)).unwrap(), 9);
}

#[test]
fn a_descriptor_does_only_what_it_was_opened_for() {
    let files = files();
    files.write_file("/f", b"abc").unwrap();
    let read = files.open("/f", &OpenOptions::new().read(true)).unwrap();
    let write = files.open("/f", &OpenOptions::new().append(true)).unwrap();
    assert_eq!(errno_of(files.write(read, b"x")), Some(libc::EBADF));
    assert_eq!(errno_of(files.truncate(read, 0)), Some(libc::EBADF));
    assert_eq!(errno_of(files.read(write, &mut [0; 1])), Some(libc::EBADF));
    files.write(write, b"def").unwrap();
    files.seek(write, Whence::Start(0)).unwrap();
    files.write(write, b"ghi").unwrap();
    assert_eq!(files.read_file("/f").unwrap(), b"abcdefghi");
    assert_eq!(errno_of(files.open("/", &OpenOptions::new().write(true))), Some(libc::EISDIR));
}

/// One that was empty already kept its times.
#[test]
fn opening_to_empty_a_file_changes_its_times() {
    let files = files();
    files.write_file("/f", b"").unwrap();
    let old = SetAttr { mtime_ns: Some(1), ..SetAttr::default() };
    assert_eq!(files.set_attr("/f", &old).unwrap().mtime_ns, 1);
    files.open("/f", &OpenOptions::new().write(true).truncate(true)).unwrap();
    assert!(files.stat("/f").unwrap().mtime_ns > 1);
}

#[test]
fn renames_take_their_modes() {
    let files = files();
    files.write_file("/a", b"a").unwrap();
    files.write_file("/b", b"b").unwrap();
    let refused = files.rename_with("/a", "/b", RenameMode::NoReplace);
    assert_eq!(errno_of(refused), Some(libc::EEXIST));
    files.rename_with("/a", "/b", RenameMode::Exchange).unwrap();
    assert_eq!(files.read_file("/a").unwrap(), b"b");
    files.rename("/a", "/b").unwrap();
    assert_eq!(files.read_file("/b").unwrap(), b"b");
    assert!(!files.exists("/a"));
    assert_eq!(errno_of(files.rename("/b", "/new/")), Some(libc::ENOTDIR));
}

#[test]
fn remove_dir_all_takes_the_branch_and_leaves_what_links_point_to() {
    let files = files();
    files.create_dir_all("/t/x/y", 0o755).unwrap();
    files.create_dir("/keep", 0o755).unwrap();
    files.write_file("/keep/file", b"k").unwrap();
    files.symlink("/keep", "/t/x/link").unwrap();
    files.write_file("/t/x/y/z", b"z").unwrap();
    files.remove_dir_all("/t").unwrap();
    let names: Vec<_> = files.read_dir("/").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["keep"]);
    assert!(files.exists("/keep/file"));
}

#[test]
fn extended_attributes_by_path_link_and_descriptor() {
    let files = files();
    files.write_file("/f", b"").unwrap();
    files.symlink("f", "/l").unwrap();
    let any = XattrMode::Any;
    files.set_xattr("/l", "user.a", b"of the file", any).unwrap();
    let link = At::Link("/l".as_ref());
    assert_eq!(errno_of(files.set_xattr(link, "user.a", b"", any)), Some(libc::EPERM));
    files.set_xattr(link, "trusted.b", b"of the link", any).unwrap();
    let fd = files.open("/f", &OpenOptions::new().read(true)).unwrap();
    assert_eq!(files.get_xattr(fd, "user.a").unwrap(), b"of the file");
    assert_eq!(files.list_xattrs(fd).unwrap(), ["user.a"]);
    assert_eq!(files.list_xattrs(link).unwrap(), ["trusted.b"]);
    assert_eq!(errno_of(files.set_xattr(fd, "user.a", b"", XattrMode::Create)), Some(libc::EEXIST));
    files.remove_xattr("/f", "user.a").unwrap();
    assert_eq!(errno_of(files.get_xattr(fd, "user.a")), Some(libc::ENODATA));
    assert_eq!(errno_of(files.get_xattr(fd, "")), Some(libc::ERANGE));
    assert_eq!(errno_of(files.get_xattr(fd, "other.a")), Some(libc::EOPNOTSUPP));
    let long = vec![0; 65_537];
    assert_eq!(errno_of(files.set_xattr(fd, "user.a", &long, any)), Some(libc::E2BIG));
}

#[test]
fn trusted_attributes_and_those_of_sticky_directories_have_rules_of_their_own() {
    let root = files();
    root.write_file("/f", b"").unwrap();
    root.set_xattr("/f", "trusted.a", b"1", XattrMode::Any).unwrap();
    root.create_dir("/tmp", 0o1777).unwrap();
    root.create_dir("/d", 0o777).unwrap();
    let user = root.owner(5, 5);
    let set = |path, name| user.set_xattr(path, name, b"1", XattrMode::Any);
    assert_eq!(errno_of(user.get_xattr("/f", "trusted.a")), Some(libc::ENODATA));
    assert_eq!(user.list_xattrs("/f").unwrap(), Vec::<OsString>::new());
    assert_eq!(errno_of(set("/f", "trusted.b")), Some(libc::EPERM));
    assert_eq!(errno_of(user.remove_xattr("/f", "trusted.a")), Some(libc::EPERM));
    assert_eq!(errno_of(set("/tmp", "user.a")), Some(libc::EPERM));
    set("/d", "user.a").unwrap();
    user.create_dir("/own", 0o1777).unwrap();
    set("/own", "user.a").unwrap();
}

#[test]
fn a_file_without_a_name_gets_one_by_its_descriptor() {
    let files = files();
    let unnamed = OpenOptions::new().read(true).write(true).unnamed(true);
    files.create_dir("/d", 0o755).unwrap();
    let file = files.open_file("/d", &unnamed).unwrap();
    file.write_at(0, b"text").unwrap();
    assert_eq!(file.attr().unwrap().nlink, 0);
    files.link_file(&file, "/d/name").unwrap();
    drop(file);
    assert_eq!(files.stat("/d/name").unwrap().size, 4);

    let secret = files.open_file("/d", &unnamed.create_new(true)).unwrap();
    assert_eq!(files.link_file(&secret, "/d/other").unwrap_err().errno(), libc::ENOENT);
    let ino = secret.attr().unwrap().ino;
    drop(secret);
    assert!(files.fs().getattr(ino).is_err());
    let refused = files.open_file("/d", &OpenOptions::new().read(true).unnamed(true));
    assert_eq!(refused.unwrap_err().errno(), libc::EINVAL);
    let refused = files.open_file("/d/name", &unnamed);
    assert_eq!(refused.unwrap_err().errno(), libc::ENOTDIR);
}
