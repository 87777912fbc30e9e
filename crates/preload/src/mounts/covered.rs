//! Whether a pool's mount is there, and something else is mounted over it: paths lead to that then. A mount that is
//! gone is another matter: its programs go on.

use novale_core::Fs;

use super::Mount;
use crate::base::sys::{Fd, sys};
use crate::numbers::limits;

/// Bytes of the table that are read at once.
const PIECE: usize = 1 << 14;
/// Words of a line of the table: the device, and the mount point.
const DEVICE_AT: usize = 2;
const POINT_AT: usize = 4;

/// Whether the table of mounts has the pool's at its place, which the path does not lead to. False where it can't be
/// read.
pub(super) fn is_covered(mount: &Mount, fs: &Fs) -> bool {
    let Some(table) = limits::undisturbed(table) else { return false };
    let point = as_in_table(&mount.target);
    table.split(|byte| *byte == b'\n').any(|line| {
        let word = |at| line.split(|byte| *byte == b' ').nth(at);
        word(POINT_AT) == Some(point.as_slice())
            && word(DEVICE_AT).and_then(device).is_some_and(|device| fs.serves_mount(device))
    })
}

fn table() -> Option<Vec<u8>> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let path = c"/proc/thread-self/mountinfo".as_ptr();
    let file = Fd::new(sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0))?;
    let (mut table, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let got = sys!(libc::SYS_read, file.number(), piece.as_mut_ptr(), PIECE);
        match piece.get(..usize::try_from(got).ok()?)? {
            [] => return Some(table),
            bytes => table.extend_from_slice(bytes),
        }
    }
}

fn device(word: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(word).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A path as the kernel writes it there.
fn as_in_table(path: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                written.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            _ => written.push(*byte),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::{as_in_table, device};

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        assert_eq!(as_in_table(b"/a b\\c"), b"/a\\040b\\134c");
        assert_eq!((device(b"0:57"), device(b"0"), device(b"x:1")), (Some((0, 57)), None, None));
    }
}
