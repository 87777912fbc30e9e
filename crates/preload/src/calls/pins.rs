//! Calls by which the kernel keeps pages of the program's memory beyond their end: in a pipe, in a message on its way, as
//! a ring's buffers, or until what they have begun is done.
//!
//! A file's own pages in the pool are free when nobody holds the file any more, and another file's soon: what the kernel
//! keeps of them counts for nothing there. So those that such a call is handed become the kernel's mapping before it,
//! whose pages it keeps as those of any file. Of a ring and of asynchronous calls nobody says here what they are handed:
//! a program that has either has no own pages mapped. What can't give way is refused where that is known.

use crate::base::guard;
use crate::base::left;
use crate::base::sys::{Args, Served, fail, sys};
use crate::calls::maps::gives_way;
use crate::fds::kernel;
use crate::maps::{self, PAGE, Source};

/// Pieces that a call on a pipe or a socket takes at most.
const PIECES_MAX: u64 = libc::UIO_MAXIOV as u64;
/// Messages that one call sends at most.
const MESSAGES_MAX: u64 = 1024;
/// Buffers that one call registers at most.
const BUFFERS_MAX: u64 = 1 << 14;

/// What `io_uring_register` does (`IORING_REGISTER_BUFFERS`, `BUFFERS2`, `BUFFERS_UPDATE`, `PBUF_RING`), and a flag beside
/// that: the ring is named by its place among registered ones.
const BUFFERS: u32 = 0;
const BUFFERS_TAGGED: u32 = 15;
const BUFFERS_UPDATE: u32 = 16;
const PROVIDED_BUFFERS: u32 = 22;
const BY_PLACE: u32 = 1 << 31;
/// `struct io_uring_buf`, of which provided buffers have a list.
const PROVIDED_BYTES: u64 = 16;

/// `vmsplice(pipe, pieces, count, flags)`: into a pipe pages go, out of it bytes are copied.
pub(crate) fn vmsplice(args: &Args) -> Served {
    let [pipe, pieces, count, ..] = *args;
    let flags = sys!(libc::SYS_fcntl, pipe, libc::F_GETFL);
    let is_copied = flags & i64::from(libc::O_ACCMODE) == i64::from(libc::O_RDONLY);
    if flags < 0 || is_copied { None } else { give(vector(pieces, count, PIECES_MAX)) }
}

/// `sendto(socket, at, len, flags, ...)`.
pub(crate) fn send(args: &Args) -> Served {
    let [_, at, len, flags, ..] = *args;
    if is_kept(flags) { give(std::iter::once([at, len])) } else { None }
}

/// `sendmsg(socket, message, flags)`.
pub(crate) fn send_message(args: &Args) -> Served {
    let [_, message, flags, ..] = *args;
    if is_kept(flags) { give(parts(message)) } else { None }
}

/// `sendmmsg(socket, messages, count, flags)`.
pub(crate) fn send_messages(args: &Args) -> Served {
    let [_, messages, count, flags, ..] = *args;
    let each = (0..count.min(MESSAGES_MAX))
        .map(|index| messages.wrapping_add(index * size_of::<libc::mmsghdr>() as u64));
    if is_kept(flags) { give(each.flat_map(parts)) } else { None }
}

/// `io_uring_setup`, `io_uring_enter`, `io_uring_register`, of a ring that may come from the parent, or from another
/// process.
pub(crate) fn ring(number: i64, args: &Args) -> Served {
    let is_first = !left::NUMBERS.is_done();
    kernel::leave_numbers();
    if is_first || number == libc::SYS_io_uring_setup {
        give_all();
    }
    if number == libc::SYS_io_uring_register { register(args) } else { None }
}

/// `io_setup`: what is submitted later comes to no call here.
pub(crate) fn asynchronous() -> Served {
    if !left::FILES.is_done() {
        kernel::give_all_at_once();
    }
    give_all();
    None
}

/// `io_uring_register(ring, what, at, count)`. The kernel itself refuses pages of a file that is mapped through the mount.
fn register(args: &Args) -> Served {
    let [_, what, at, count, ..] = *args;
    match what as u32 & !BY_PLACE {
        BUFFERS => give(vector(at, count, BUFFERS_MAX)),
        BUFFERS_TAGGED => {
            let [count, _, pieces, _] = guard::load::<[u64; 4]>(at)?;
            give(vector(pieces, count & u64::from(u32::MAX), BUFFERS_MAX))
        }
        BUFFERS_UPDATE => {
            let [_, pieces, _, count] = guard::load::<[u64; 4]>(at)?;
            give(vector(pieces, count & u64::from(u32::MAX), BUFFERS_MAX))
        }
        PROVIDED_BUFFERS => {
            let [list, entries] = guard::load::<[u64; 2]>(at)?;
            give(std::iter::once([list, (entries & u64::from(u32::MAX)) * PROVIDED_BYTES]))
        }
        _ => None,
    }
}

/// Whether the kernel keeps what a message has until it has been sent.
fn is_kept(flags: u64) -> bool {
    flags & libc::MSG_ZEROCOPY as u64 != 0
}

/// The pieces of memory that a message has.
fn parts(message: u64) -> impl Iterator<Item = [u64; 2]> {
    let message = guard::load::<libc::msghdr>(message);
    let (at, count) =
        message.map_or((0, 0), |message| (message.msg_iov as u64, message.msg_iovlen as u64));
    vector(at, count, PIECES_MAX)
}

/// Pieces of memory, as far as they can be read: address and length of each.
fn vector(at: u64, count: u64, most: u64) -> impl Iterator<Item = [u64; 2]> {
    (0..count.min(most)).map_while(move |index| guard::load(at.wrapping_add(index * 16)))
}

/// Makes files' own pages in pieces of memory the kernel's. An error where some do not become so.
fn give(mut pieces: impl Iterator<Item = [u64; 2]>) -> Served {
    let are_given = |[at, len]: [u64; 2]| {
        let end = at.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        gives_way(&(at & !(PAGE - 1)..end))
    };
    (maps::are_some() && !pieces.all(are_given)).then(|| fail(libc::EFAULT))
}

/// Makes all of the files' own pages that are mapped here the kernel's, as far as that can be.
fn give_all() {
    let own = maps::some().map(|maps| maps.sources(Source::can_give_way));
    for source in own.into_iter().flatten() {
        kernel::ask(source.mount, source.ino);
    }
}
