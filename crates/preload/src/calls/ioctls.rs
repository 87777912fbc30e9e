//! `ioctl`: what it asks of a file here, and the descriptors that its argument names.
//!
//! Programs that copy files ask first whether the file can be cloned, and tools whether it has flags.
//! What the kernel would answer without a look at the file is answered here: handing the file over takes
//! longer than copying most of them.

use std::sync::atomic::Ordering;

use crate::base::guard;
use crate::base::sys::{Args, Served, fail};
use crate::calls::transfer::may_be_cloned;
use crate::fds::kernel;
use crate::fds::table::{self, DIRECTORY, IN_KERNEL, InUse, SHARED};
use crate::paths::descriptor;

const TCGETS: u32 = 0x5401;
const TCGETS2: u32 = 0x802c_542a;
const TIOCGWINSZ: u32 = 0x5413;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;
const FIDEDUPERANGE: u32 = 0xc018_9436;
const FIONREAD: u32 = 0x541b;
const FIONBIO: u32 = 0x5421;
/// `FS_IOC_RESVSP` and its kin: a range may count from the position.
const RANGES: [u32; 6] =
    [0x4030_5828, 0x4030_5829, 0x4030_582a, 0x4030_582b, 0x4030_5839, 0x4030_5824];

/// Where the descriptor is that a request names, of those that name a file.
enum Names {
    /// It is the argument.
    Argument,
    /// The argument is the address of a structure which has it there, in so many bytes.
    At(u64, u32),
}

/// Requests of loop devices, of file systems, and of who answers system calls for others.
const NAMING: [(u32, Names); 11] = [
    // LOOP_SET_FD, LOOP_CHANGE_FD, LOOP_CONFIGURE
    (0x4c00, Names::Argument),
    (0x4c06, Names::Argument),
    (0x4c0a, Names::At(0, 4)),
    (FICLONE, Names::Argument),
    (FICLONERANGE, Names::At(0, 8)),
    // EXT4_IOC_MOVE_EXT, XFS_IOC_SWAPEXT (two)
    (0xc028_660f, Names::At(4, 4)),
    (0xc0c0_586d, Names::At(8, 8)),
    (0xc0c0_586d, Names::At(16, 8)),
    // BTRFS_IOC_SEND
    (0x4048_9426, Names::At(0, 8)),
    // FUSE_DEV_IOC_BACKING_OPEN
    (0x4010_e501, Names::At(0, 4)),
    // SECCOMP_IOCTL_NOTIF_ADDFD
    (0x4018_2103, Names::At(12, 4)),
];

/// Parts of `struct file_dedupe_range`: a header, then one for each target with its descriptor first.
const DEDUPE_COUNT_AT: u64 = 16;
const DEDUPE_HEAD: u64 = 24;
const DEDUPE_PART: u64 = 32;
const DEDUPE_MOST: u64 = 128;

/// `ioctl(fd, request, argument)`.
pub(crate) fn ioctl(args: &Args) -> Served {
    let (fd, request) = (descriptor(args[0]), args[1] as u32);
    let Some(file) = table::get(fd).filter(|file| !file.is(DIRECTORY)) else {
        hand_over_named(request, args[2]);
        return None;
    };
    match request {
        // What languages ask of every file that they open: whether it is a terminal.
        TCGETS | TCGETS2 | TIOCGWINSZ => Some(fail(libc::ENOTTY)),
        FICLONE => clone(&file, (fd, args[2] as i32)),
        FICLONERANGE => match guard::load::<i64>(args[2]) {
            Some(from) => clone(&file, (fd, i32::try_from(from).unwrap_or(-1))),
            None => Some(fail(libc::EFAULT)),
        },
        FIDEDUPERANGE if guard::readable(args[2], DEDUPE_HEAD as usize).is_some() => {
            Some(fail(if file.reads() { libc::EOPNOTSUPP } else { libc::EINVAL }))
        }
        FIONREAD => rest(fd, &file, args[2]),
        FIONBIO => wait_for_none(&file, args[2]),
        _ => {
            hand_over_named(request, args[2]);
            let taken = if RANGES.contains(&request) {
                kernel::take_at_position(fd, &file)
            } else {
                kernel::take(&file)
            };
            if taken { None } else { Some(fail(libc::EIO)) }
        }
    }
}

/// A clone: files of the mount share no data.
fn clone(file: &InUse, (to, from): (i32, i32)) -> Served {
    match may_be_cloned(from, to) {
        Ok(true) => Some(fail(libc::EOPNOTSUPP)),
        Ok(false) => Some(fail(libc::EXDEV)),
        Err(Some(failed)) => Some(failed),
        Err(None) => {
            hand_over(from);
            if kernel::take(file) { None } else { Some(fail(libc::EIO)) }
        }
    }
}

/// What `O_NONBLOCK` says, by a number: shown here, and by the kernel where it has the file too.
fn wait_for_none(file: &InUse, at: u64) -> Served {
    let Some(on) = guard::load::<i32>(at) else { return Some(fail(libc::EFAULT)) };
    let flag = libc::O_NONBLOCK.cast_unsigned();
    if on != 0 {
        file.flags.fetch_or(flag, Ordering::Relaxed);
    } else {
        file.flags.fetch_and(!flag, Ordering::Relaxed);
    }
    if file.is(IN_KERNEL) { None } else { Some(0) }
}

/// How many bytes lie after the position.
fn rest(fd: i32, file: &InUse, at: u64) -> Served {
    if file.is(SHARED) {
        kernel::know_length(fd, file);
        return None;
    }
    let size = crate::mounts::fs(file.mount())?.getattr(file.ino()).ok()?.size;
    let left = size.cast_signed().wrapping_sub(file.offset.lock().cast_signed()) as i32;
    Some(if guard::store(at, &left) { 0 } else { fail(libc::EFAULT) })
}

/// Hands over what a request names, before the kernel looks for it by its number.
fn hand_over_named(request: u32, argument: u64) {
    for (known, names) in &NAMING {
        if *known != request {
            continue;
        }
        let fd = match *names {
            Names::Argument => Some(argument as i32),
            Names::At(offset, 4) => guard::load::<i32>(argument.wrapping_add(offset)),
            Names::At(offset, _) => {
                let fd = guard::load::<i64>(argument.wrapping_add(offset));
                fd.and_then(|fd| i32::try_from(fd).ok())
            }
        };
        fd.into_iter().for_each(hand_over);
    }
    if request == FIDEDUPERANGE
        && let Some(count) = guard::load::<u16>(argument.wrapping_add(DEDUPE_COUNT_AT))
    {
        for part in 0..u64::from(count).min(DEDUPE_MOST) {
            let at = argument.wrapping_add(DEDUPE_HEAD + part * DEDUPE_PART);
            let fd = guard::load::<i64>(at).and_then(|fd| i32::try_from(fd).ok());
            fd.into_iter().for_each(hand_over);
        }
    }
}

/// Hands a file over that somebody else gets by this call.
fn hand_over(fd: i32) {
    if let Some(file) = table::get(fd) {
        kernel::take_shared(fd, &file);
    }
}
