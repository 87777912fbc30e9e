//! Descriptors themselves: closing, duplicating, flags, locks, mapping, waiting, passing on.

use crate::base::sys::{Args, Ret, Served, fail, sys};
use crate::base::{guard, left};
use crate::calls::open;
use crate::fds::quiet::{BRIEFLY, Quiet};
use crate::fds::table::{self, CREATED, DIRECTORY, IN_KERNEL, InUse, LOCKED};
use crate::fds::{forget, kernel, locks};
use crate::maps::{self, Mode, openings};
use crate::mounts::{self, helper};
use crate::numbers::{self, limits, words};
use crate::paths::descriptor;
use crate::process::confined;

/// Commands of Linux 6.10 and 6.12.
const F_DUPFD_QUERY: i32 = 1027;
const F_CREATED_QUERY: i32 = 1028;

/// `close(fd)`: the kernel's numbers are closed here too, since what it frees must be known.
pub(crate) fn close(args: &Args) -> Ret {
    limits::wait_for_openings();
    locks::closed(table::close(descriptor(args[0])))
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
        if !confined::before_own_descriptors(|| !helper::has_other_threads()) {
            return Some(fail(libc::EAGAIN));
        }
        if confined::is() {
            return None;
        }
    }
    let only_marks = flags & u64::from(libc::CLOSE_RANGE_CLOEXEC) != 0;
    let mut ended = Vec::new();
    let result = numbers::pause(|| {
        // What is this library's own must not change on the way.
        let by_kernel = || limits::change_limits(|| between_own(first, last, flags));
        if only_marks {
            by_kernel()
        } else {
            forget::close_range(first, last, by_kernel, |file| ended.push(file))
        }
    });
    ended.into_iter().for_each(locks::forget);
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

/// Has the kernel close, or mark, what lies between this library's own descriptors.
fn between_own(first: u32, last: u32, flags: u64) -> Ret {
    let mut next = first;
    let mut result = 0;
    for own in words::internal().into_iter().map(i32::cast_unsigned) {
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
}

/// `dup(fd)`.
pub(crate) fn dup(args: &Args) -> Served {
    let make = || sys!(libc::SYS_dup, args[0]);
    Some(table::duplicate(descriptor(args[0]), None, true, make).result)
}

/// `dup2(fd, to)` and `dup3(fd, to, flags)`.
pub(crate) fn dup_to(number: i64, args: &Args) -> Served {
    let (from, to) = (descriptor(args[0]), descriptor(args[1]));
    if number == libc::SYS_dup3 && args[2] as i32 & !libc::O_CLOEXEC != 0 {
        return Some(fail(libc::EINVAL));
    }
    limits::wait_for_openings();
    if words::is_internal(to) || words::is_internal(from) {
        return Some(fail(libc::EBADF));
    }
    if from == to {
        return None;
    }
    let make = || sys!(number, args[0], args[1], args[2]);
    let stays = number == libc::SYS_dup2 || args[2] & libc::O_CLOEXEC as u64 == 0;
    let is_known = |fd| table::get(fd).is_some();
    let replaced = if is_known(from) && !is_known(to) { keep_open(to) } else { None };
    let done = locks::closed(numbers::pause(|| table::duplicate(from, Some(to), stays, make)));
    replaced.into_iter().for_each(table::close_kept);
    Some(done)
}

/// Keeps what the kernel has at a number open by a descriptor of this library's: to close the last one may take its
/// time, as of a socket that lingers, which is not to be while all numbers are locked.
fn keep_open(fd: i32) -> Option<i32> {
    limits::out_of_the_way(|high| {
        let kept = sys!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, high);
        let kept = i32::try_from(kept).ok().filter(|kept| *kept >= 0)?;
        words::set_internal(kept);
        Some(kept)
    })
}

/// `fcntl(fd, command, argument)`.
pub(crate) fn fcntl(args: &Args) -> Served {
    let fd = descriptor(args[0]);
    if words::is_internal(fd) {
        return Some(fail(libc::EBADF));
    }
    let [_, command, argument, ..] = *args;
    if matches!(command as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        let stays = command as i32 == libc::F_DUPFD;
        let make = || sys!(libc::SYS_fcntl, args[0], command, argument);
        return Some(table::duplicate(fd, None, stays, make).result);
    }
    let locks_it = matches!(command as i32, libc::F_SETLK | libc::F_SETLKW);
    let Some(description) = table::get(fd) else {
        if locks_it {
            locks::before_locking_in_kernel(fd);
        }
        return None;
    };
    match command as i32 {
        libc::F_GETFD => {
            let stays = table::stays(fd, &description)?;
            Some(if stays { 0 } else { Ret::from(libc::FD_CLOEXEC) })
        }
        libc::F_SETFD => {
            let stays = argument & libc::FD_CLOEXEC as u64 == 0;
            table::set_stays(fd, &description, stays).then_some(0)
        }
        libc::F_GETFL => {
            kernel::know_flags(fd, &description);
            Some(Ret::from(description.flags()))
        }
        // What is open to start from alone has no flags to change.
        libc::F_SETFL if description.is_path() => Some(fail(libc::EBADF)),
        libc::F_SETFL => {
            // What only an owner may ask for, and what the kernel has open too, it judges first.
            let is_judged = description.is(IN_KERNEL) || is_owners(&description, argument as i32);
            if is_judged && !kernel::take(&description) {
                return Some(fail(libc::EPERM));
            }
            let by_kernel = |fd| sys!(libc::SYS_fcntl, fd, libc::F_SETFL, argument);
            let judged =
                if is_judged { table::with_number(fd, &description, by_kernel)? } else { 0 };
            if judged >= 0 {
                description.change_flags(argument as i32);
            }
            Some(judged)
        }
        F_DUPFD_QUERY => same(fd, &description, args),
        // Where the kernel knows the question, it has only seen the placeholder, or the file opened again.
        F_CREATED_QUERY => match sys!(libc::SYS_fcntl, args[0], command, 0) {
            0.. => Some(Ret::from(description.is(CREATED))),
            failed => Some(failed),
        },
        libc::F_SETLEASE if argument as i32 != libc::F_UNLCK => lease(fd, &description),
        // Locks are the kernel's, on the file itself.
        _ => {
            if !kernel::take(&description) {
                return Some(fail(libc::ENOLCK));
            }
            if is_lock(command as i32) {
                know_start(fd, &description, argument);
            }
            if matches!(command as i32, libc::F_OFD_SETLK | libc::F_OFD_SETLKW) {
                before_locking_opened(fd, &description);
            }
            if locks_it {
                locks::before_locking(&description);
            }
            None
        }
    }
}

/// Whether flags have one that the kernel allows an owner alone, and that is not there yet.
fn is_owners(description: &InUse, flags: i32) -> bool {
    flags & !description.flags() & libc::O_NOATIME != 0
}

fn is_lock(command: i32) -> bool {
    let of_process = [libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW];
    let of_file = [libc::F_OFD_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW];
    of_process.contains(&command) || of_file.contains(&command)
}

/// Has the kernel know what a lock counts from: the position, or the end of the file.
fn know_start(fd: i32, description: &InUse, lock: u64) {
    match guard::load::<libc::flock>(lock).map(|lock| i32::from(lock.l_whence)) {
        Some(libc::SEEK_CUR) => _ = kernel::take_at_position(fd, description),
        Some(libc::SEEK_END) => kernel::know_length(fd, description),
        _ => {}
    }
}

/// Whether two descriptors are one file that was opened once: placeholders are all of one.
fn same(fd: i32, description: &InUse, args: &Args) -> Served {
    if sys!(libc::SYS_fcntl, args[0], F_DUPFD_QUERY, args[0]) < 0 {
        return None;
    }
    let with = descriptor(args[2]);
    match table::get(with) {
        Some(other) => Some(Ret::from(other.index == description.index)),
        None if fd == with => None,
        None if sys!(libc::SYS_fcntl, with, libc::F_GETFD, 0) < 0 => Some(fail(libc::EBADF)),
        None => Some(0),
    }
}

/// Before the kernel gives a lease on a file: it has to see what this process has open of it, and all who
/// open it from then on. They find the file marked as mapped, until the kernel has it open no more.
fn lease(fd: i32, description: &InUse) -> Served {
    let file = (description.mount(), description.ino());
    table::each(&mut |_, other| {
        if (other.mount(), other.ino()) == file {
            kernel::take(other);
        }
    });
    if kernel::map(fd, description) { None } else { Some(fail(libc::EAGAIN)) }
}

/// `flock(fd, operation)`.
pub(crate) fn flock(args: &Args) -> Served {
    let fd = descriptor(args[0]);
    let description = table::get(fd)?;
    if !kernel::take(&description) {
        return Some(fail(libc::ENOLCK));
    }
    before_locking_opened(fd, &description);
    None
}

/// Before a lock that goes with what a descriptor leads to: what is mapped by that keeps it.
fn before_locking_opened(fd: i32, description: &InUse) {
    description.set(LOCKED);
    openings::keep(fd, description);
}

/// `fchdir(fd)`.
pub(crate) fn fchdir(args: &Args) -> Served {
    numbers::clear();
    kernel::take_directory(descriptor(args[0]));
    Some(crate::paths::move_by(|| sys!(libc::SYS_fchdir, args[0])))
}

/// `splice` and others of two descriptors, each with where its offset is: at 0 the kernel is to know the
/// position. It reads no further than to the end that it knows of.
pub(crate) fn of_two(fds: &[(u64, u64); 2]) -> Served {
    for (fd, offset_at) in fds {
        let fd = descriptor(*fd);
        let Some(file) = table::get(fd) else { continue };
        if file.is(DIRECTORY) {
            // It has its own word for one.
            kernel::take(&file);
            continue;
        }
        let taken =
            if *offset_at == 0 { kernel::take_shared(fd, &file) } else { kernel::take(&file) };
        if !taken {
            return Some(fail(libc::EIO));
        }
        if file.reads() {
            kernel::know_end(fd, &file);
        }
    }
    None
}

/// `mmap(at, len, access, flags, fd, offset)` of a program whose numbers are left to the kernel: who changes a file that
/// the kernel maps has to go through it, be it the program itself by a path or another one, so that it knows how long the
/// file is. Of memory of the file system's own others see to that.
pub(crate) fn before_mapping(args: &Args) {
    let [_, _, _, flags, fd, _] = *args;
    let fd = descriptor(fd);
    if flags & libc::MAP_ANONYMOUS as u64 != 0
        || !left::NUMBERS.is_begun()
        || confined::is()
        || words::is_internal(fd)
    {
        return;
    }
    let found = mounts::of_descriptor(fd).filter(|found| !found.is_directory);
    if let Some(found) = found.filter(|found| maps::mode(found.mount) == Mode::Kernel) {
        kernel::tell_mapping(fd, (found.mount, found.ino));
    }
}

/// `poll`, `ppoll`: regular files among the descriptors are the kernel's to judge.
pub(crate) fn poll(args: &Args) -> Served {
    let [at, count, ..] = *args;
    for index in 0..count.min(words::DESCRIPTORS as u64) {
        let fd = guard::load::<i32>(at + index * 8)?;
        kernel::take_any(fd);
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
                kernel::take_any(i32::try_from(word * 64 + bit).unwrap_or(-1));
            }
        }
    }
    None
}

/// Calls that name descriptors where others have none: the kernel is to find the files there.
pub(crate) fn name(number: i64, args: &Args) {
    /// `struct landlock_path_beneath_attr`: where the descriptor is.
    const BENEATH_AT: u64 = 8;
    match number {
        libc::SYS_kcmp => {
            // Only whether two are one depends on what they lead to.
            kernel::take_any(descriptor(args[3]));
            kernel::take_any(descriptor(args[4]));
        }
        // What a program takes from itself has one position with it.
        libc::SYS_pidfd_getfd => pass(descriptor(args[1])),
        libc::SYS_kexec_file_load => {
            args.iter().take(2).for_each(|fd| kernel::take_any(descriptor(*fd)));
        }
        libc::SYS_fanotify_mark => kernel::take_any(descriptor(args[3])),
        libc::SYS_fsconfig => kernel::take_any(descriptor(args[4])),
        libc::SYS_landlock_add_rule => {
            guard::load::<i32>(args[2].wrapping_add(BENEATH_AT))
                .into_iter()
                .for_each(kernel::take_any);
        }
        _ => kernel::take_any(descriptor(args[0])),
    }
}

/// `epoll_ctl(epoll, operation, fd, event)`: a regular file can't be waited for.
pub(crate) fn epoll_ctl(args: &Args) -> Served {
    table::get(descriptor(args[2])).filter(|file| !file.is_path()).map(|_| fail(libc::EPERM))
}

/// Bytes of a message that a stream takes as a whole or not at all, whatever its buffer.
const WHOLE: usize = 2048;

/// `sendmsg`: descriptors that are passed on are handed to the kernel first, and sent before another thread puts
/// something else there. One that waits for room, or might be sent in part, is sent by the kernel's own call, without
/// that.
pub(crate) fn send_message(args: &Args) -> Served {
    if !pass_on(args[1])? || bytes_of(args[1])? > WHOLE {
        return None;
    }
    let quiet = Quiet::of_call();
    quiet.wait_for_numbers(BRIEFLY);
    pass_on(args[1])?;
    let at_once = args[2] | libc::MSG_DONTWAIT as u64;
    let sent = sys!(libc::SYS_sendmsg, args[0], args[1], at_once);
    drop(quiet);
    let waits = || {
        let flags = sys!(libc::SYS_fcntl, args[0], libc::F_GETFL);
        args[2] & libc::MSG_DONTWAIT as u64 == 0 && flags & i64::from(libc::O_NONBLOCK) == 0
    };
    (sent != fail(libc::EAGAIN) || !waits()).then_some(sent)
}

/// How many bytes a message has, without its control data.
fn bytes_of(message: u64) -> Option<usize> {
    let message = guard::load::<libc::msghdr>(message)?;
    let parts = message.msg_iovlen.min(libc::UIO_MAXIOV as usize) * size_of::<libc::iovec>();
    let parts = guard::copied(message.msg_iov as u64, parts)?;
    // The address comes first.
    let lens = parts.as_chunks::<8>().0.iter().skip(1).step_by(2);
    Some(lens.fold(0, |sum: usize, len| sum.saturating_add(usize::from_le_bytes(*len))))
}

/// `sendmmsg`: descriptors that are passed on are handed to the kernel first.
pub(crate) fn send_messages(args: &Args) -> Served {
    for index in 0..args[2].min(1024) {
        pass_on(args[1] + index * std::mem::size_of::<libc::mmsghdr>() as u64)?;
    }
    None
}

/// Whether a message has room for descriptors that it brings.
pub(crate) fn has_room(message: u64) -> bool {
    guard::load::<libc::msghdr>(message).is_some_and(|message| message.msg_controllen > 0)
}

/// Messages have come: what they brought may lie in a mount.
pub(crate) fn received(messages: u64, count: i32) {
    for index in 0..u64::from(count.cast_unsigned().min(1024)) {
        let header = messages + index * std::mem::size_of::<libc::mmsghdr>() as u64;
        each_passed(header, open::received).unwrap_or_default();
    }
}

/// Hands over the descriptors in a message's control data, and tells whether there are some.
fn pass_on(message: u64) -> Option<bool> {
    let mut passes = false;
    each_passed(message, |fd| {
        passes = true;
        pass(fd);
    })?;
    Some(passes)
}

/// Hands over a descriptor that somebody else is to have too.
fn pass(fd: i32) {
    if let Some(description) = table::get(fd) {
        kernel::take_shared(fd, &description);
        kernel::know_end(fd, &description);
    }
}

/// Visits the descriptors in a message's control data; `None` where that can't be read.
fn each_passed(message: u64, mut visit: impl FnMut(i32)) -> Option<()> {
    let message = guard::load::<libc::msghdr>(message)?;
    let (at, len) = (message.msg_control as u64, message.msg_controllen);
    if at == 0 || len == 0 {
        return Some(());
    }
    let all = guard::copied(at, len.min(1 << 16))?;
    let mut rest = all.as_slice();
    let header = std::mem::size_of::<libc::cmsghdr>();
    while rest.len() >= header {
        let Some(part) = guard::load::<libc::cmsghdr>(rest.as_ptr() as u64) else {
            return Some(());
        };
        if part.cmsg_len < header || part.cmsg_len > rest.len() {
            return Some(());
        }
        if (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in rest.get(header..part.cmsg_len).unwrap_or_default().chunks_exact(4) {
                visit(i32::from_le_bytes(fd.try_into().unwrap_or_default()));
            }
        }
        rest = rest.get(part.cmsg_len.next_multiple_of(8)..).unwrap_or_default();
    }
    Some(())
}
