//! Promise: extended attributes through the mount are what Linux says, to each of its callers.

mod support;

use std::fs::{self, File};

use rustix::fs::{XattrFlags, getxattr, lgetxattr, listxattr, lsetxattr, removexattr, setxattr};
use rustix::io::Errno;
use support::{Mount, python};

fn value(path: &std::path::Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; 1 << 16];
    let len = getxattr(path, name, &mut bytes[..])?;
    bytes.truncate(len);
    Ok(bytes)
}

#[test]
fn sizes_flags_and_errors() {
    let Some(mount) = Mount::new("sizes_flags_and_errors", "") else { return };
    let file = mount.path("file");
    File::create(&file).unwrap();
    let none = XattrFlags::empty();
    assert_eq!(value(&file, "user.a"), Err(Errno::NODATA));
    assert_eq!(setxattr(&file, "user.a", b"1", XattrFlags::REPLACE), Err(Errno::NODATA));
    setxattr(&file, "user.a", b"12345", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&file, "user.a", b"1", XattrFlags::CREATE), Err(Errno::EXIST));
    let mut short = [0; 4];
    assert_eq!(getxattr(&file, "user.a", &mut short[..]), Err(Errno::RANGE));
    let long: Vec<u8> = (0..65_536_u32).map(|at| u8::try_from(at % 253).unwrap()).collect();
    setxattr(&file, "user.long", &long, none).unwrap();
    assert_eq!(value(&file, "user.long").unwrap(), long);
    assert_eq!(setxattr(&file, "user.longer", &vec![0; 65_537], none), Err(Errno::TOOBIG));
    assert_eq!(setxattr(&file, "other.a", b"", none), Err(Errno::OPNOTSUPP));
    let mut list = [0; 100];
    let len = listxattr(&file, &mut list[..]).unwrap();
    assert_eq!(&list[..len], b"user.a\0user.long\0");
    assert_eq!(listxattr(&file, &mut short[..]), Err(Errno::RANGE));
    let before = fs::metadata(&file).unwrap();
    removexattr(&file, "user.a").unwrap();
    assert_eq!(removexattr(&file, "user.a"), Err(Errno::NODATA));
    let after = fs::metadata(&file).unwrap();
    assert!(after.modified().unwrap() == before.modified().unwrap());
    std::os::unix::fs::symlink("file", mount.path("link")).unwrap();
    assert_eq!(lsetxattr(mount.path("link"), "user.a", b"", none), Err(Errno::PERM));
    lsetxattr(mount.path("link"), "trusted.a", b"t", none).unwrap();
    assert_eq!(lgetxattr(mount.path("link"), "trusted.a", &mut short[..]), Ok(1));
}

#[test]
fn an_unprivileged_caller_sees_and_changes_what_linux_lets_it() {
    let name = "an_unprivileged_caller_sees_and_changes_what_linux_lets_it";
    let Some(mount) = Mount::new(name, "") else { return };
    let (file, sticky) = (mount.path("file"), mount.path("sticky"));
    File::create(&file).unwrap();
    fs::create_dir(&sticky).unwrap();
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(&file, 0o666);
    mode(&sticky, 0o1777);
    let none = XattrFlags::empty();
    setxattr(&file, "trusted.a", b"1", none).unwrap();
    setxattr(&file, "user.a", b"2", none).unwrap();
    let script = "import errno,os,sys\n\
                  os.setgroups([]); os.setgid(65534); os.setuid(65534)\n\
                  file, sticky = sys.argv[1:]\n\
                  def refused(call, *args):\n\
                  \x20   try: call(*args)\n\
                  \x20   except OSError as error: return errno.errorcode[error.errno]\n\
                  print(os.listxattr(file))\n\
                  print(refused(os.getxattr, file, 'trusted.a'))\n\
                  print(refused(os.setxattr, file, 'trusted.b', b'1'))\n\
                  os.setxattr(file, 'user.b', b'3'); print(os.getxattr(file, 'user.b'))\n\
                  print(refused(os.setxattr, sticky, 'user.a', b'1'))";
    let Some(answer) = python(name, script, &[&file, &sticky]) else { return };
    assert_eq!(answer, "['user.a']\nENODATA\nEPERM\nb'3'\nEPERM\n");
}
