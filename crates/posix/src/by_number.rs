//! Names of inodes by number, `INO.GENERATION`, in a directory in the root of a shared mount: how a
//! program that has a file open without the kernel asks the mount for the same inode.
//!
//! The daemon that serves the mount and the programs beside it may be of different builds: what stands
//! here is what they agree upon, and [`VERSION`] rises with its meaning.

use novale_core::{Error, Ino};

/// Rises when a name means something else, or stands elsewhere; a part of what programs that share a
/// pool have in common.
pub const VERSION: u64 = 1;

/// The directory, in the root of the mount.
pub const DIRECTORY: &str = ".novale";

/// A name may go on after this with anything.
pub const SEPARATOR: u8 = b':';

/// Whether a name in a directory leads to it. The daemon alone has it: on media nobody makes one.
#[must_use]
pub fn is_directory(parent: Ino, name: &[u8]) -> bool {
    parent == Ino::ROOT && name == DIRECTORY.as_bytes()
}

/// Refuses to make that name, also where no mount has it: the next shared one would hide what has it.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn refuse_new(parent: Ino, name: &[u8]) -> Result<(), Error> {
    if is_directory(parent, name) {
        return Err(Error::NotPermitted("that name is the daemon's of a shared mount"));
    }
    Ok(())
}

/// The name of one use of an inode's number.
#[must_use]
pub fn name(ino: Ino, generation: u32) -> String {
    format!("{}.{generation}", ino.get())
}

/// The inode and the generation in a name like `17.3`, or `17.3:4:file`; none in any other, `017.3`
/// included.
#[must_use]
pub fn parse(text: &[u8]) -> Option<(Ino, u32)> {
    let text = str::from_utf8(text.split(|byte| *byte == SEPARATOR).next()?).ok()?;
    let (ino, generation) = text.split_once('.')?;
    let (ino, generation) = (Ino::new(ino.parse().ok()?), generation.parse().ok()?);
    (name(ino, generation) == text && ino.is_valid()).then_some((ino, generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_names_an_inode() {
        for name in [&b"17.3"[..], b"17.3:", b"17.3:4:a name:\xff"] {
            assert_eq!(parse(name), Some((Ino::new(17), 3)));
        }
        let wrong = "017.3 17.03 +17.3 17 17. .3 17.3.1 :17.3 0.1 1099511627776.1 17.-1";
        for name in wrong.split(' ').chain([""]) {
            assert_eq!(parse(name.as_bytes()), None, "{name}");
        }
        assert_eq!(parse(name(Ino::new(9), 1).as_bytes()), Some((Ino::new(9), 1)));
    }
}
