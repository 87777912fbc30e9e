//! Descriptors themselves: closing, duplicating, flags, locks, mapping, waiting, passing on.

use crate::guard;
use crate::paths::{Served, descriptor};
use crate::sys::{Args, Ret, fail, sys};
use crate::table::{self, DIRECTORY, IN_KERNEL};
use crate::{kernel, locks, numbers};

/// `close(fd)`: the kernel's numbers are closed here too, since what it frees must be known.
pub(crate) fn close(args: &Args) -> Ret {
    locks::close(descriptor(args[0]))
}

/// `close_range(first, last, flags)`: this library's own descriptors stay.
pub(crate) fn close_range(args: &Args) -> Served {
    let (first, last, flags) = (args[0] as u32, args[1] as u32, args[2]);
    if first > last
        || flags & !u64::from(libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE) != 0
    {
        return None;
    }
    if flags & u64::from(libc::CLOSE_RANGE_UNSHARE) != 0 {
        numbers::stop();
    }
    let only_marks = flags & u64::from(libc::CLOSE_RANGE_CLOEXEC) != 0;
    let result = numbers::pause(|| {
        if !only_marks {
            table::remove_range(first, last);
        }
        let mut next = first;
        let mut result = 0;
        for own in table::internal().into_iter().map(i32::cast_unsigned) {
            if (next..=last).contains(&own) {
                if own > next {
                    result = result.min(sys!(libc::SYS_close_range, next, own - 1, flags));
                }
                next = own + 1;
            }
        }
        if next <= last {
            result = result.min(sys!(libc::SYS_close_range, next, last, flags));
        }
        result
    });
    if result == 0 && only_marks {
        table::each(&mut |fd, description| {
            if (first..=last).contains(&fd.cast_unsigned()) {
                table::set_stays(fd, description, false);
            }
        });
    }
    numbers::freed_any();
    Some(result)
}

/// `dup(fd)`.
pub(crate) fn dup(args: &Args) -> Served {
    let old = table::get(descriptor(args[0]))?;
    numbers::clear();
    Some(table::share(&old, true, || sys!(libc::SYS_dup, args[0])))
}

/// `dup2(fd, to)` and `dup3(fd, to, flags)`.
pub(crate) fn dup_to(number: i64, args: &Args) -> Served {
    let (from, to) = (descriptor(args[0]), descriptor(args[1]));
    if table::is_internal(to) || table::is_internal(from) {
        return Some(fail(libc::EBADF));
    }
    if from == to {
        return None;
    }
    numbers::pause(|| {
        let old = table::get(from);
        table::remove(to);
        let duplicate = || sys!(number, args[0], args[1], args[2]);
        let stays = number == libc::SYS_dup2 || args[2] & libc::O_CLOEXEC as u64 == 0;
        match old {
            Some(old) => Some(table::share(&old, stays, duplicate)),
            None => Some(duplicate()),
        }
    })
}

/// `fcntl(fd, command, argument)`.
pub(crate) fn fcntl(args: &Args) -> Served {
    let fd = descriptor(args[0]);
    if table::is_internal(fd) {
        return Some(fail(libc::EBADF));
    }
    let description = table::get(fd)?;
    let [_, command, argument, ..] = *args;
    match command as i32 {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            numbers::clear();
            let duplicate = || sys!(libc::SYS_fcntl, args[0], command, argument);
            Some(table::share(&description, command as i32 == libc::F_DUPFD, duplicate))
        }
        libc::F_GETFD => {
            let stays = table::stays(fd, &description)?;
            Some(if stays { 0 } else { Ret::from(libc::FD_CLOEXEC) })
        }
        libc::F_SETFD => {
            let stays = argument & libc::FD_CLOEXEC as u64 == 0;
            table::set_stays(fd, &description, stays).then_some(0)
        }
        libc::F_GETFL => Some(Ret::from(description.flags())),
        // What is open to start from alone has no flags to change.
        libc::F_SETFL if description.is_path() => Some(fail(libc::EBADF)),
        libc::F_SETFL => {
            let changed = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
            let flags = description.flags() & !changed | argument as i32 & changed;
            description.flags.store(flags.cast_unsigned(), std::sync::atomic::Ordering::Relaxed);
            if description.is(IN_KERNEL) { None } else { Some(0) }
        }
        // Locks and leases are the kernel's, on the file itself.
        _ => {
            if !kernel::take(&description) {
                return Some(fail(libc::ENOLCK));
            }
            if matches!(command as i32, libc::F_SETLK | libc::F_SETLKW) {
                locks::before_locking(&description);
            }
            None
        }
    }
}

/// `flock(fd, operation)`.
pub(crate) fn flock(args: &Args) -> Served {
    let description = table::get(descriptor(args[0]))?;
    if kernel::take(&description) { None } else { Some(fail(libc::ENOLCK)) }
}

/// `fchdir(fd)`.
pub(crate) fn fchdir(args: &Args) -> Served {
    numbers::clear();
    kernel::take_directory(descriptor(args[0]));
    let result = sys!(libc::SYS_fchdir, args[0]);
    crate::paths::moved();
    Some(result)
}

/// `sendfile`, `splice`, `copy_file_range` and others of two descriptors: the first at `one`, the second at
/// `two` among the arguments.
pub(crate) fn of_two(number: i64, args: &Args, one: usize, two: usize) -> Served {
    let fds = [one, two].map(|at| descriptor(args.get(at).copied().unwrap_or(u64::MAX)));
    let mut ours = false;
    for fd in fds {
        if let Some(description) = table::get(fd).filter(|found| !found.is(DIRECTORY)) {
            ours = true;
            if !kernel::take(&description) {
                return Some(fail(libc::EIO));
            }
            let offset = description.offset.lock();
            if !description.is(table::SHARED) {
                sys!(libc::SYS_lseek, fd, *offset, libc::SEEK_SET);
            }
        }
    }
    if !ours {
        return None;
    }
    let call = || sys!(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    let result = table::outside(call);
    for fd in fds {
        if let Some(description) = table::get(fd).filter(|found| !found.is(DIRECTORY)) {
            let mut offset = description.offset.lock();
            let now = sys!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR);
            *offset = u64::try_from(now).unwrap_or(*offset);
        }
    }
    Some(result)
}

/// `poll`, `ppoll`: regular files among the descriptors are the kernel's to judge.
pub(crate) fn poll(args: &Args) -> Served {
    let [at, count, ..] = *args;
    for index in 0..count.min(table::DESCRIPTORS as u64) {
        let fd = guard::load::<i32>(at + index * 8)?;
        take(fd);
    }
    None
}

/// `select`, `pselect6`.
pub(crate) fn select(args: &Args) -> Served {
    let count = args[0].min(libc::FD_SETSIZE as u64);
    for set in args.iter().skip(1).take(3).filter(|set| **set != 0) {
        for word in 0..count.div_ceil(64) {
            let bits = guard::load::<u64>(set + word * 8)?;
            for bit in (0..64).filter(|bit| bits >> bit & 1 != 0) {
                take(i32::try_from(word * 64 + bit).unwrap_or(-1));
            }
        }
    }
    None
}

fn take(fd: i32) {
    if let Some(description) = table::get(fd) {
        kernel::take(&description);
    }
}

/// `epoll_ctl(epoll, operation, fd, event)`: a regular file can't be waited for.
pub(crate) fn epoll_ctl(args: &Args) -> Served {
    table::get(descriptor(args[2])).filter(|file| !file.is_path()).map(|_| fail(libc::EPERM))
}

/// `sendmsg` and `sendmmsg`: descriptors that are passed on are handed to the kernel first.
pub(crate) fn send_message(args: &Args, many: bool) -> Served {
    let count = if many { args[2].min(1024) } else { 1 };
    for index in 0..count {
        let header = args[1] + index * std::mem::size_of::<libc::mmsghdr>() as u64;
        let message = guard::load::<libc::msghdr>(header)?;
        let (at, len) = (message.msg_control as u64, message.msg_controllen);
        if at != 0 && len > 0 {
            pass_on(guard::readable(at, len.min(1 << 16))?);
        }
    }
    None
}

/// Hands over the descriptors in a control message.
fn pass_on(control: &[u8]) {
    let mut rest = control;
    let header = std::mem::size_of::<libc::cmsghdr>();
    while rest.len() >= header {
        let Some(part) = guard::load::<libc::cmsghdr>(rest.as_ptr() as u64) else { return };
        if part.cmsg_len < header || part.cmsg_len > rest.len() {
            return;
        }
        if (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in rest.get(header..part.cmsg_len).unwrap_or_default().chunks_exact(4) {
                let fd = i32::from_le_bytes(fd.try_into().unwrap_or_default());
                if let Some(description) = table::get(fd) {
                    kernel::take_shared(fd, &description);
                }
            }
        }
        rest = rest.get(part.cmsg_len.next_multiple_of(8)..).unwrap_or_default();
    }
}
