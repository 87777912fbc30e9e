//! What is at a slot's path: an ordinary file or a DAX character device, and how long it is.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{blocks, io_error};
use crate::{PmError, PmOptions};

/// Where the kernel describes character devices.
const SYSFS_CHAR: &str = "/sys/dev/char";
/// Where it tells what is mounted.
const MOUNTS: &str = "/proc/thread-self/mountinfo";
/// The file system on which it makes devices' nodes itself: one of the machine, wherever it is mounted.
const DEVTMPFS: &str = "devtmpfs";

/// A slot's file, opened, before it is mapped.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: File,
    /// Bytes.
    pub(super) len: u64,
    /// Alignment that a mapping needs, bytes.
    pub(super) align: u64,
    /// An ordinary file; otherwise a DAX device.
    pub(super) is_regular: bool,
    /// File system and inode, or 0 and device number.
    pub(super) identity: (u64, u64),
}

impl Source {
    /// Opens `path`, on a descriptor of at least a number, and finds out what it is.
    ///
    /// Where a number is given, this runs in a program that knows nothing of it. The kernel opens the file
    /// on the lowest number first, which another thread of the program may use by mistake before the file
    /// has its own: what is written there goes to the file's end, and a number that was closed and leads
    /// elsewhere is noticed.
    pub(super) fn open(path: &Path, read_only: bool, options: &PmOptions) -> Result<Self, PmError> {
        let from = options.descriptors_from;
        // Asked before opening: to open a FIFO waits, and to open some devices acts.
        let metadata = fs::metadata(path).map_err(|e| open_error(path, read_only, e))?;
        check_kind(path, metadata.file_type())?;
        if !metadata.is_file() {
            let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
            dax_device(path, Path::new(SYSFS_CHAR), major, minor)?;
        }
        let file = opened(path, read_only, from)?;
        let looked_at = (metadata.dev(), metadata.ino());
        let metadata = file.metadata().map_err(io_error(path, "stat"))?;
        check_kind(path, metadata.file_type())?;
        let other =
            metadata.is_file() && !options.only.is_empty() && !options.only.contains(&looked_at);
        if other || looked_at != (metadata.dev(), metadata.ino()) {
            return Err(replaced(path));
        }
        if metadata.is_file() {
            let identity = (metadata.dev(), metadata.ino());
            let (len, align) = (metadata.len(), blocks::page_bytes(&file));
            return Ok(Self { file, len, align, is_regular: true, identity });
        }
        if !read_only {
            let mounts =
                fs::read_to_string(MOUNTS).map_err(io_error(path, "look at what is mounted"))?;
            check_node(path, &mounts, metadata.dev())?;
        }
        let rdev = metadata.rdev();
        let (major, minor) = (libc::major(rdev), libc::minor(rdev));
        let (len, align) = dax_device(path, Path::new(SYSFS_CHAR), major, minor)?;
        Ok(Self { file, len, align, is_regular: false, identity: (0, rdev) })
    }

    /// The same file opened once more for writing; what locks are by this opening, no mapping of the other keeps.
    pub(super) fn again(&self, path: &Path, options: &PmOptions) -> Result<File, PmError> {
        let file = opened(path, false, options.descriptors_from)?;
        let place = |file: &File| file.metadata().map(|there| (there.dev(), there.ino()));
        let is_same = place(&file).and_then(|there| Ok(there == place(&self.file)?));
        if is_same.map_err(io_error(path, "stat"))? { Ok(file) } else { Err(replaced(path)) }
    }
}

/// Opens a slot's file on a descriptor of at least a number.
fn opened(path: &Path, read_only: bool, from: u32) -> Result<File, PmError> {
    let file = OpenOptions::new()
        .read(true)
        .write(!read_only)
        .custom_flags(libc::O_NONBLOCK | if from > 0 { libc::O_APPEND } else { 0 })
        .open(path)
        .map_err(|e| open_error(path, read_only, e))?;
    moved(file, from).map_err(io_error(path, "number"))
}

/// The error for another file at a slot's path than was there before.
fn replaced(path: &Path) -> PmError {
    io_error(path, "open")(io::Error::from_raw_os_error(libc::ESTALE))
}

/// The same file on a descriptor of at least a number.
fn moved(file: File, from: u32) -> io::Result<File> {
    let Some(from) = i32::try_from(from).ok().filter(|from| *from > 0) else { return Ok(file) };
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, from)?.into())
}

/// Refuses what is neither a file nor a character device.
fn check_kind(path: &Path, kind: FileType) -> Result<(), PmError> {
    let (found, advice) = if kind.is_dir() {
        ("a directory", "give the pool file in it")
    } else if kind.is_block_device() {
        ("a block device", "use a devdax namespace, or a file on a DAX file system on it")
    } else if kind.is_fifo() {
        ("a FIFO", "give a file or a DAX device")
    } else if kind.is_socket() {
        ("a socket", "give a file or a DAX device")
    } else {
        return Ok(());
    };
    Err(PmError::NotASlot { path: path.into(), found, advice })
}

/// Refuses a device's node on any other file system than the kernel's own. Locks are a node's, not its
/// device's: by another one somebody else may have the device locked.
fn check_node(path: &Path, mounts: &str, dev: u64) -> Result<(), PmError> {
    let number = format!("{}:{}", libc::major(dev), libc::minor(dev));
    // `26 20 0:5 / /dev rw,nosuid shared:2 - devtmpfs devtmpfs rw`.
    let is_kernels = |line: &str| {
        let (place, file_system) = line.split_once(" - ")?;
        let is_there = place.split(' ').nth(2)? == number;
        Some(is_there && file_system.split(' ').next()? == DEVTMPFS)
    };
    if mounts.lines().any(|line| is_kernels(line) == Some(true)) {
        return Ok(());
    }
    Err(PmError::NotASlot {
        path: path.into(),
        found: "a device's node that is not the kernel's own, on devtmpfs, so that a lock of it does not \
                keep others from the device",
        advice: "give the machine's own node, in a container by a bind mount of it",
    })
}

/// The error of opening or finding `path`.
fn open_error(path: &Path, read_only: bool, source: io::Error) -> PmError {
    let path = path.to_path_buf();
    #[allow(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is open-ended")]
    match source.kind() {
        io::ErrorKind::NotFound => PmError::Missing { path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            PmError::Permission { path, read_only }
        }
        _ => PmError::Io { path, action: "open", source },
    }
}

/// Length and mapping alignment, bytes, of the DAX device `major:minor`, from `sysfs`.
fn dax_device(path: &Path, sysfs: &Path, major: u32, minor: u32) -> Result<(u64, u64), PmError> {
    let folder = sysfs.join(format!("{major}:{minor}"));
    let number = |name: &str| -> Result<u64, (String, String)> {
        let file = folder.join(name);
        let shown = || file.display().to_string();
        let text = fs::read_to_string(&file).map_err(|e| (shown(), e.to_string()))?;
        text.trim().parse().map_err(|_| (shown(), format!("{:?} is no number", text.trim())))
    };
    let size = number("size").map_err(|(sysfs, detail)| PmError::NotDax {
        path: path.into(),
        major,
        minor,
        sysfs,
        detail,
    })?;
    // Kernels before 5.10 do not tell the alignment; 2 MB is the default of every tool.
    let align = number("align").ok().filter(|a| a.is_power_of_two()).unwrap_or(super::MAP_ALIGN);
    Ok((size, align))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a DAX device's folder in sysfs holds, as the kernel writes it.
    fn sysfs(size: Option<&str>, align: Option<&str>) -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        let folder = sysfs.path().join("252:7");
        fs::create_dir(&folder).unwrap();
        for (name, text) in [("size", size), ("align", align)] {
            if let Some(text) = text {
                fs::write(folder.join(name), text).unwrap();
            }
        }
        sysfs
    }

    fn ask(sysfs: &tempfile::TempDir) -> Result<(u64, u64), PmError> {
        dax_device(Path::new("/dev/dax0.0"), sysfs.path(), 252, 7)
    }

    #[test]
    fn a_dax_device_tells_its_size_and_alignment() {
        let described = sysfs(Some("17177772032\n"), Some("1073741824\n"));
        assert_eq!(ask(&described).unwrap(), (17_177_772_032, 1 << 30));
        for align in [None, Some("0\n"), Some("3\n"), Some("")] {
            let described = sysfs(Some("2097152\n"), align);
            assert_eq!(ask(&described).unwrap(), (2 << 20, 2 << 20), "align {align:?}");
        }
    }

    /// A container that had made a node of its own opened a pool that the machine had open: each had locked
    /// another inode.
    #[test]
    fn of_a_device_the_kernels_own_node_alone_is_locked() {
        let (path, dev) = (Path::new("/dev/dax0.0"), libc::makedev(0, 5));
        let mounts = "20 1 8:5 / / rw - ext4 /dev/sda rw\n\
                      31 20 0:51 / /dev rw - tmpfs devtmpfs rw\n\
                      26 31 0:5 /dax0.0 /dev/dax0.0 rw shared:2 master:1 - devtmpfs udev rw\n";
        check_node(path, mounts, dev).unwrap();
        for other in [libc::makedev(0, 51), libc::makedev(8, 5), libc::makedev(0, 52)] {
            let message = check_node(path, mounts, other).unwrap_err().to_string();
            assert!(message.contains("in a container by a bind mount of it"), "{message}");
        }
        // Of this machine.
        let mounts = fs::read_to_string(MOUNTS).unwrap();
        if mounts.contains(" /dev ") && mounts.contains(" - devtmpfs ") {
            let null = fs::metadata("/dev/null").unwrap();
            check_node(Path::new("/dev/null"), &mounts, null.dev()).unwrap();
        }
    }

    #[test]
    fn a_device_without_a_size_is_refused_with_the_file_that_lacks_it() {
        for (size, detail) in [
            (None, "No such file or directory"),
            (Some("\n"), "\"\" is no number"),
            (Some("-1\n"), "\"-1\" is no number"),
            (Some("2M\n"), "\"2M\" is no number"),
        ] {
            let message = ask(&sysfs(size, None)).unwrap_err().to_string();
            assert!(message.starts_with("/dev/dax0.0: is character device 252:7"), "{message}");
            assert!(message.contains("252:7/size: "), "{message}");
            assert!(message.contains(detail), "{message}");
        }
    }

    #[test]
    fn errors_of_opening_say_what_to_do() {
        let path = Path::new("/pool");
        let of = |errno| open_error(path, false, io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::ENOENT), PmError::Missing { .. }));
        for errno in [libc::EACCES, libc::EPERM, libc::EROFS] {
            assert!(matches!(of(errno), PmError::Permission { read_only: false, .. }), "{errno}");
        }
        let other = of(libc::EMFILE).to_string();
        assert!(other.starts_with("/pool: open: Too many open files"), "{other}");
    }
}
