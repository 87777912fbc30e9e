//! Programs that are started by a descriptor (`fexecve`, `/proc/self/fd/N`) which the kernel has opened by its number.
//!
//! The next program is shown the path that it was opened by (`/proc/self/exe`), from where its loader takes `$ORIGIN`.
//! By its number that leads nowhere, so it is opened by its path for this call, where that leads to it still. The
//! descriptor itself stays as it is, for the next program may have it too.
//!
//! A script stays with its descriptor: its interpreter opens it by that once more. So does what can't load this
//! library, which another program may be there to run.
//!
//! A child in its parent's memory (`vfork`) starts it by the number.

use novale_posix::program::{self, Kind};

use super::exec_call;
use crate::base::guard::PathBuffer;
use crate::base::sys::{Args, Ret, sys};
use crate::fds::kernel;
use crate::paths::{descriptor, named_descriptor};

/// Such a program, open by its path.
pub(crate) struct Numbered {
    fd: i32,
}

impl Numbered {
    /// The program that a call starts, if it is one. All descriptors are the kernel's, and no other thread is inside.
    pub(crate) fn of(number: i64, args: &Args) -> Option<Self> {
        let fd = descriptor_of(number, args)?;
        if !is_native(fd) {
            return None;
        }
        Some(Self { fd: kernel::by_path(fd)? })
    }

    /// Has the kernel start it, and where it does not, make the call as it was given, whose answer counts; `None` where a
    /// signal has ended the attempt.
    pub(crate) fn start(self, number: i64, args: &Args) -> Option<Ret> {
        let path = format!("/proc/self/fd/{}\0", self.fd);
        let mut by_path = *args;
        // Of a filter of calls that the program has from its parent nothing else is asked than of its own call.
        match number {
            libc::SYS_execveat if is_about_descriptor(args) => {
                by_path[0] = u64::from(self.fd.cast_unsigned());
            }
            libc::SYS_execveat => by_path[1] = path.as_ptr() as u64,
            _ => by_path[0] = path.as_ptr() as u64,
        }
        let answer = exec_call::exec(number, &by_path);
        drop(self);
        answer.and_then(|_| exec_call::exec(number, args))
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        kernel::close_by_path(self.fd);
    }
}

/// Whether a call of `execveat` is about what its descriptor itself leads to.
fn is_about_descriptor(args: &Args) -> bool {
    let mut buffer = PathBuffer::new();
    let is_empty = buffer.load(args[1]).is_some_and(<[u8]>::is_empty);
    args[4] & libc::AT_EMPTY_PATH as u64 != 0 && is_empty
}

/// The descriptor that a call starts a program by.
fn descriptor_of(number: i64, args: &Args) -> Option<i32> {
    if number == libc::SYS_execveat && is_about_descriptor(args) {
        return Some(descriptor(args[0]));
    }
    let path = if number == libc::SYS_execveat { args[1] } else { args[0] };
    named_descriptor(PathBuffer::new().load(path)?)
}

/// Whether the kernel itself runs the program, as far as its file says.
fn is_native(fd: i32) -> bool {
    let mut magic = [0; 4];
    let read = |room: &mut [u8], at: u64| {
        let got = sys!(libc::SYS_pread64, fd, room.as_mut_ptr(), room.len(), at);
        usize::try_from(got).unwrap_or(0)
    };
    read(&mut magic, 0) == magic.len()
        && &magic == b"\x7fELF"
        && matches!(program::kind(read), Kind::Linked(_) | Kind::Static)
}
