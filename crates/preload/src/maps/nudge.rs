//! A signal of this library's own, after which a thread makes the call anew that it sleeps in.
//!
//! There is a handler of SIGBUS in every process, whatever the program has asked for, and no thread blocks that signal
//! before somebody has sent one (`process/masks.rs`). What is sent here has a mark, and the handler does nothing
//! more than to return. It is for calls that the kernel then makes again whatever flags the handler has, and whose time
//! limits are points in time: the program does not notice.

use crate::base::sys::sys;
use crate::numbers;

/// The address of this is the mark.
#[unsafe(link_section = ".novale_data")]
static MARK: u8 = 0;

/// The signal, in a mask.
const SIGNAL: u64 = 1 << (libc::SIGBUS - 1);
/// Bytes of `/proc/PID/status`, at most.
const STATUS_MAX: usize = 4096;
/// So many signals more have to find room: to one that finds none the kernel gives no mark.
const ROOM: u64 = 64;

fn mark() -> u64 {
    (&raw const MARK) as u64
}

/// Sends it to a thread of this process, which stays where it is if it has the signal blocked. `folder` is that of the
/// process' threads.
pub(crate) fn send(folder: i64, thread: i32) {
    let Some(thread) = that_takes_it(folder, thread) else { return };
    let (process, user) = (sys!(libc::SYS_getpid), sys!(libc::SYS_getuid));
    let mut info = [0_u64; 16];
    info[0] = libc::SIGBUS as u64;
    info[1] = u64::from(libc::SI_QUEUE.cast_unsigned());
    info[2] = process as u64 | (user as u64) << 32;
    info[3] = mark();
    sys!(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, info.as_ptr());
}

/// Whether a signal that has come is one of those.
pub(crate) fn is_one(signal: i32, info: *const libc::siginfo_t) -> bool {
    if signal != libc::SIGBUS {
        return false;
    }
    // SAFETY: a siginfo_t is 128 bytes, 16 words; the kernel has filled it.
    let info = unsafe { info.cast::<[u64; 16]>().read() };
    info[1] as i32 == libc::SI_QUEUE && info[3] == mark()
}

/// The number of a thread for signals, where one would come to it, and with its mark. `/proc` may be another namespace's,
/// and call it by another number.
fn that_takes_it(folder: i64, thread: i32) -> Option<i32> {
    let path = format!("{thread}/status\0");
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd = sys!(libc::SYS_openat, folder, path.as_ptr(), flags, 0);
    if fd < 0 {
        return None;
    }
    let mut text = [0_u8; STATUS_MAX];
    let got = sys!(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
    numbers::close_low(fd as i32);
    let text = usize::try_from(got).ok().and_then(|got| text.get(..got)).unwrap_or_default();
    // The name of the thread comes first, and may have any bytes in it.
    let lines = || text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let after = |name: &str| lines().find_map(|line| line.strip_prefix(name).map(str::trim));
    let blocked = after("SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let queued = after("SigQ:").and_then(|queued| {
        let (now, limit) = queued.split_once('/')?;
        Some(now.parse::<u64>().ok()?.saturating_add(ROOM) <= limit.parse().ok()?)
    });
    let comes = queued == Some(true) && blocked.is_some_and(|mask| mask & SIGNAL == 0);
    // The last is what it has in its own namespace.
    let own = after("NSpid:").and_then(|numbers| numbers.split('\t').next_back()?.parse().ok());
    comes.then_some(own.unwrap_or(thread))
}
