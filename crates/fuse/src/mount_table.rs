//! What is mounted where: `/proc/self/mountinfo`, parsed.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::Atime;

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor device number: a FUSE connection's number is the minor.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted: `/`, but for a bind mount of another.
    pub root: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// Options of this mount, such as `ro` and `nosuid`.
    pub options: String,
    /// The type, such as `fuse.novale`.
    pub kind: String,
    /// What is mounted.
    pub source: OsString,
    /// Options of the file system, such as `rw`, `user_id=0` and `allow_other`.
    pub super_options: String,
}

impl MountEntry {
    /// The user who made a FUSE mount, as the kernel noted it, in the user namespace in which it was
    /// made.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        let mut words = self.super_options.split(',');
        words.find_map(|word| word.strip_prefix("user_id="))?.parse().ok()
    }

    /// Whether the caller made it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.owner() == Some(rustix::process::geteuid().as_raw())
    }

    /// Whether the caller may act on what is said of the mount: it is its own, or root's. What others'
    /// mounts say, the source in this table included, is their owners' word.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        self.is_own() || self.owner() == Some(0)
    }

    /// Whether the file system is read-only, wherever it is mounted.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.super_options.split(',').any(|word| word == "ro")
    }

    /// Whether each write to the file system is to be durable when it returns, wherever it is mounted.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        self.super_options.split(',').any(|word| word == "sync")
    }

    /// What the mount's flags say of access times: the kernel has no word for every read.
    #[must_use]
    pub fn atime(&self) -> Atime {
        let is = |wanted: &str| self.options.split(',').any(|word| word == wanted);
        if is("noatime") {
            Atime::Never
        } else if is("relatime") {
            Atime::Relative
        } else {
            Atime::Always
        }
    }
}

/// All mounts of this process's mount namespace, oldest first.
#[derive(Debug, Clone)]
pub struct MountTable {
    entries: Vec<MountEntry>,
}

impl MountTable {
    /// Reads the table.
    ///
    /// # Errors
    /// When `/proc` is not there to be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Reads the table of another process' mount namespace, as far as the caller may see it.
    ///
    /// # Errors
    /// When there is no such process, or it is another user's.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read(format!("/proc/{pid}/mountinfo"))?))
    }

    fn parse(table: &[u8]) -> Self {
        Self { entries: table.split(|byte| *byte == b'\n').filter_map(parse_line).collect() }
    }

    /// The mount that a look at `target` reaches: the newest one there.
    #[must_use]
    pub fn top(&self, target: &Path) -> Option<&MountEntry> {
        self.entries.iter().rev().find(|entry| entry.target == target)
    }

    /// A mount somewhere below `target`.
    #[must_use]
    pub fn below(&self, target: &Path) -> Option<&MountEntry> {
        self.entries.iter().find(|entry| entry.target != target && entry.target.starts_with(target))
    }

    /// The oldest mount of a file system, by its device number.
    #[must_use]
    pub fn of_device(&self, device: (u32, u32)) -> Option<&MountEntry> {
        self.entries.iter().find(|entry| entry.device == device)
    }

    /// The oldest mount of all of a file system, and not of a part of it.
    #[must_use]
    pub fn whole(&self, device: (u32, u32)) -> Option<&MountEntry> {
        self.all_whole(device).next()
    }

    /// All mounts of all of a file system, oldest first.
    pub(crate) fn all_whole(&self, device: (u32, u32)) -> impl Iterator<Item = &MountEntry> {
        let whole =
            move |entry: &&MountEntry| entry.device == device && entry.root == Path::new("/");
        self.entries.iter().filter(whole)
    }

    /// All mounts of a type, oldest first.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a MountEntry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }
}

/// A line: `36 35 98:0 /mnt1 /mnt/parent rw,noatime master:1 - ext3 /dev/root rw,errors=continue`,
/// with any number of optional fields before the dash.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let field = |index: usize| fields.get(index).copied();
    let text = |index: usize| field(index).map(|field| String::from_utf8_lossy(field).into_owned());
    let device = text(2)?;
    let (major, minor) = device.split_once(':')?;
    Some(MountEntry {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(OsString::from_vec(unescape(field(3)?))),
        target: PathBuf::from(OsString::from_vec(unescape(field(4)?))),
        options: text(5)?,
        kind: text(dash + 1)?,
        source: OsString::from_vec(unescape(field(dash + 2)?)),
        super_options: text(dash + 3)?,
    })
}

/// Spaces, tabs, newlines, backslashes and number signs stand as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten().and_then(parse_octal);
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    plain
}

fn parse_octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// A mount point as the kernel writes it: absolute, symbolic links resolved. Only the directory above
/// is looked at, since a dead mount answers no question about itself.
pub(crate) fn canonical_target(target: &Path) -> io::Result<PathBuf> {
    match target.canonicalize() {
        Err(error) if is_dead(&error) => {}
        done => return done,
    }
    let absolute = std::path::absolute(target)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(absolute),
    }
}

/// Whether an error is what a FUSE mount gives whose daemon is gone.
pub(crate) fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

#[cfg(test)]
mod tests {
    use super::{MountTable, unescape};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    #[test]
    fn the_newest_mount_at_a_target_is_found_with_its_source_unescaped() {
        let table = MountTable::parse(
            b"36 35 98:0 / /mnt rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n\
              40 36 0:53 / /mnt rw,relatime - fuse.novale /a\\040b:/c rw,user_id=0,allow_other\n",
        );
        let top = table.top(Path::new("/mnt")).unwrap();
        assert_eq!((top.device, top.kind.as_str()), ((0, 53), "fuse.novale"));
        assert_eq!(top.source.as_bytes(), b"/a b:/c");
        assert_eq!(top.super_options, "rw,user_id=0,allow_other");
        assert_eq!((top.owner(), table.whole((98, 0)).unwrap().owner()), (Some(0), None));
        assert!(table.top(Path::new("/mn")).is_none());
        assert_eq!(table.of_kind("ext3").count(), 1);
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(b"a\\134b\\9\\01"), b"a\\b\\9\\01");
    }
}
