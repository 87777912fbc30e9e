//! Does a process still live? Its number alone does not say: numbers are reused.

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::base::off::{high32, low32};

/// Bytes of a file of `/proc`, as a rule.
const PROC_BYTES: usize = 2048;

/// The calling process, as it was asked for last: its number, and when it was started. A child of it has
/// another number.
static OWN: (AtomicU32, AtomicU64) = (AtomicU32::new(0), AtomicU64::new(0));

/// Whether this process looks at others seldom ([`look_seldom`]).
static SELDOM: AtomicBool = AtomicBool::new(false);

/// When other processes were looked at last, or first asked about: the number of one, and the time since boot, in ms, in
/// 32 bits each.
static LOOKED: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// As many as there can be clients.
const PLACES: usize = 512;

/// Time between two looks at one process, in ms.
const SELDOM_MS: u32 = 1000;

/// Of so many questions of one who sleeps in between one is worth a look, with [`look_seldom`].
const SLEEPS_A_LOOK: u32 = 100;

/// Bits of the ticks in a start time: at a thousand a second enough for 34 years.
const TICKS_BITS: u32 = 40;

/// From now on a process that has memory is looked at once a second alone, beginning a second after the first question.
/// This is for a library inside a program: each look takes the lowest free number of a descriptor for a moment, which
/// another thread may know to be free, and put a file there that is closed then.
pub fn look_seldom() {
    SELDOM.store(true, Ordering::Relaxed);
}

/// What names a process for good, as far as its program: its number, and when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PidInfo {
    /// The process number, below 2^30.
    pub pid: u32,
    /// Start in clock ticks since boot, field 22 of `/proc/PID/stat`, in the low 40 bits; above them a
    /// number that each `execve` changes, of where the stack begins (field 28). Either is 0 if unknown:
    /// where a stack begins is told to those alone who may look into the process.
    pub start_time: u64,
}

impl PidInfo {
    /// The calling process.
    #[must_use]
    pub fn current() -> Self {
        let pid = std::process::id();
        let start_time = stat(pid).map_or(0, |s| s.start_time);
        OWN.1.store(start_time, Ordering::Release);
        OWN.0.store(pid, Ordering::Release);
        Self { pid, start_time }
    }

    /// True if the process is there and may still run its program. A zombie may not, unless other
    /// threads of it go on; nor may one that is being killed and waits in the kernel with all threads
    /// that are left; nor one whose memory the kernel writes to a core file. Such a one may wait for the
    /// caller here: for a mount's daemon, which waits for a lock of a thread that was killed already.
    ///
    /// What can't be seen is taken for alive: a client that has no descriptor left to look with must not
    /// settle for all the others, nor be the last one who closes the pool. That a process has ended can be seen without
    /// one, whether somebody has waited for it or not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.is_not_looked_at()
            || self.is_there() && (self.pid == std::process::id() || !is_being_killed(self.pid))
    }

    /// Whether it was stopped: by a signal (`SIGSTOP`, Ctrl-Z), or by who traces it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_there() && stat(self.pid).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    /// Whether it has ended, but perhaps for threads of it that go on. This is asked without a descriptor; another
    /// process with its number is taken for it.
    #[must_use]
    pub fn may_have_ended(&self) -> bool {
        if self.pid == std::process::id() {
            return !self.is_there();
        }
        is_gone(self.pid) || !has_memory(self.pid)
    }

    /// Whether it is taken for alive by one who has slept so many times, one after the other, each for some
    /// milliseconds: it has not ended, as far as can be asked without a descriptor, and a look is not due.
    pub(crate) fn needs_no_look(&self, slept: u32) -> bool {
        let is_due = slept.is_multiple_of(SLEEPS_A_LOOK) || !SELDOM.load(Ordering::Relaxed);
        !is_due && !self.may_have_ended()
    }

    /// Whether it is taken for alive without a look, as it was looked at lately.
    fn is_not_looked_at(&self) -> bool {
        let is_own = self.pid == std::process::id();
        if is_own || !SELDOM.load(Ordering::Relaxed) || self.may_have_ended() {
            return false;
        }
        !is_late(&LOOKED, self.pid, milliseconds())
    }

    /// As [`PidInfo::is_alive`], but for one that is being killed, which may still be there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // Who asks lives. Threads that wait for each other open nothing: the program would find a
        // descriptor that is not its own by a number that it has closed.
        if self.pid == std::process::id() && OWN.0.load(Ordering::Acquire) == self.pid {
            return began_as(self.start_time, OWN.1.load(Ordering::Acquire));
        }
        if is_gone(self.pid) {
            return false;
        }
        let Some(stat) = stat(self.pid) else {
            return !has_no_thread_left(self.pid);
        };
        let same = began_as(self.start_time, stat.start_time)
            || is_one_program(self.start_time, stat.start_time) && !has_its_clock();
        let ended = matches!(stat.state, 'Z' | 'X' | 'x') && stat.threads <= 1;
        same && !ended
    }
}

/// Whether a process was looked at last, or first asked about, so long ago that it is looked at now: that is noted
/// then. One that is not known takes the place of the one that is known longest, if a look at that one is due; where
/// there is no such place it is looked at: to take others' would keep all of them from being looked at.
fn is_late(looked: &[AtomicU64], pid: u32, now: u32) -> bool {
    let age = |known: u64| if known == 0 { u32::MAX } else { now.wrapping_sub(low32(known)) };
    let own = looked.iter().find(|known| high32(known.load(Ordering::Relaxed)) == pid);
    let oldest = || looked.iter().max_by_key(|known| age(known.load(Ordering::Relaxed)));
    let Some(place) = own.or_else(oldest) else { return true };
    let is_due = age(place.load(Ordering::Relaxed)) >= SELDOM_MS;
    if is_due {
        place.store(u64::from(pid) << 32 | u64::from(now), Ordering::Relaxed);
    }
    own.is_some() == is_due
}

/// Whether the calling process sees times as it did: in a time namespace that it has entered since, all
/// processes seem to have begun at another one.
fn has_its_clock() -> bool {
    let (pid, began) = (std::process::id(), OWN.1.load(Ordering::Acquire));
    let is_known = OWN.0.load(Ordering::Acquire) == pid && began != 0;
    !is_known || stat(pid).is_none_or(|now| began_as(began, now.start_time))
}

/// Whether two start times may be of the same process and program.
fn began_as(one: u64, other: u64) -> bool {
    let [ticks, others] = [one, other].map(|time| time & ((1 << TICKS_BITS) - 1));
    (ticks == others || ticks == 0 || others == 0) && is_one_program(one, other)
}

/// Whether what `execve` changes may be the same in two start times.
fn is_one_program(one: u64, other: u64) -> bool {
    let [program, others] = [one, other].map(|time| time >> TICKS_BITS);
    program == others || program == 0 || others == 0
}

/// Whether no process has the number: asked of the kernel without a descriptor.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Whether a process has ended with all its threads, and perhaps nobody has waited for it; false where that can't be seen.
/// This is asked without a descriptor. One without memory has no first thread any more, which is counted nevertheless
/// by the links of the folder of its threads: it has two besides them.
fn has_no_thread_left(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let threads = || fs::metadata(format!("/proc/{pid}/task"));
    !has_memory(pid) && threads().is_ok_and(|folder| folder.nlink() == 2 + 1)
}

/// Whether a process has memory, as far as the kernel says: not one that has ended, whether somebody has waited for it
/// or not, nor one whose first thread has. Who may look into it is told by a move of no page, which waits for nothing; to
/// read waits for the lock of its memory, which it may keep while it waits for the caller here.
fn has_memory(pid: u32) -> bool {
    let (pid, none) = (i32::try_from(pid).unwrap_or(-1), std::ptr::null::<u8>());
    // SAFETY: there are no pages, of which nothing is read or written.
    let moved = unsafe { libc::syscall(libc::SYS_move_pages, pid, 0_usize, none, none, none, 0) };
    match io::Error::last_os_error().raw_os_error() {
        _ if moved == 0 => true,
        Some(libc::ESRCH | libc::EINVAL) => false,
        _ => may_have_memory(pid),
    }
}

/// As [`has_memory`], for who may not look into the process: the kernel refuses that of one with memory, and names one
/// without as gone. Nothing is read, as there is nothing at that address.
fn may_have_memory(pid: i32) -> bool {
    let mut byte = 0_u8;
    let own = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
    // SAFETY: the byte and both vectors live here.
    let read = unsafe { libc::process_vm_readv(pid, &raw const own, 1, &raw const nothing, 1, 0) };
    read >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Time since boot, cut to 32 bits.
fn milliseconds() -> u32 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let milliseconds = now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000);
    low32(milliseconds.cast_unsigned())
}

/// What tells this process' pid namespace from others; 0 where that can't be seen. By the calling thread: of a
/// process whose first thread has ended `/proc/self` shows nothing.
pub(crate) fn pid_namespace() -> u64 {
    namespace("/proc/thread-self/ns/pid")
}

/// What tells this process' time namespace from others; 0 where there are none.
pub(crate) fn time_namespace() -> u64 {
    namespace("/proc/thread-self/ns/time")
}

fn namespace(path: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map_or(0, |namespace| namespace.ino())
}

/// Whether all threads of a process are ended, or blocked in the kernel with SIGKILL on them.
fn is_being_killed(pid: u32) -> bool {
    // One that was blocked may run for a moment before a signal on it shows; one that is seen
    // blocked after that comes back to its program no more. So all are looked at twice.
    (0..2).all(|_| every_thread_is_being_killed(pid).unwrap_or(false))
}

fn every_thread_is_being_killed(pid: u32) -> Option<bool> {
    // Not by std, which would have libc take memory: the caller may stand in a program's way to it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let threads = rustix::fs::open(format!("/proc/{pid}/task"), flags, Mode::empty()).ok()?;
    for thread in Dir::new(threads).ok()? {
        let thread = thread.ok()?;
        let name = thread.file_name().to_str().ok()?;
        if name.starts_with('.') {
            continue;
        }
        let of_thread = |file| read(&format!("/proc/{pid}/task/{name}/{file}"));
        let status = of_thread("status").ok()?;
        let runs_no_more = runs_no_more(&String::from_utf8_lossy(&status))
            || parsed(&String::from_utf8_lossy(&of_thread("stat").ok()?))?.is_exiting();
        if !runs_no_more {
            return Some(false);
        }
    }
    Some(true)
}

/// What `/proc/PID/task/TID/status` says of a thread: that it has ended, or will without another
/// instruction of its program.
///
/// Once the process dumps core, a thread with SIGKILL on it may still run. One without is in the kernel
/// for good: it writes the core file, in any state, or has taken the signal and waits for that one. The
/// kernel says that it dumps before it shows the signals, which were all sent by then.
fn runs_no_more(status: &str) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let state = field("State:").and_then(|state| state.trim_start().chars().next());
    let pending = |name| {
        let set = field(name).and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set & SIGKILL != 0)
    };
    let is_killed = pending("SigPnd:") || pending("ShdPnd:");
    let dumps_core = field("CoreDumping:").is_some_and(|dumps| dumps.trim() == "1");
    match state {
        Some('Z' | 'X' | 'x') => true,
        Some('D' | 'S') => is_killed || dumps_core,
        Some(_) => dumps_core && !is_killed,
        None => false,
    }
}

/// A file of `/proc`, by as few calls as can be: how long it is nobody knows, and std would ask for it,
/// and read a few bytes at a time.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(PROC_BYTES);
    File::open(path)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// What `/proc` says of a process or thread in one line.
struct Stat {
    state: char,
    /// The kernel's own (`PF_*`).
    flags: u64,
    threads: u64,
    /// As in [`PidInfo`].
    start_time: u64,
}

impl Stat {
    /// The kernel is ending the thread. It has taken the signal that does so, which shows no more, and may wait for what
    /// others of the process have locked.
    const fn is_exiting(&self) -> bool {
        const PF_EXITING: u64 = 4;
        self.flags & PF_EXITING != 0
    }
}

fn stat(pid: u32) -> Option<Stat> {
    let text = read(&format!("/proc/{pid}/stat")).ok()?;
    parsed(&String::from_utf8_lossy(&text))
}

fn parsed(text: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // State is field 3, flags 9, threads 20, start time 22, bytes of memory 23, where the stack begins 28 (proc_pid_stat(5)).
    let flags = fields.nth(5)?.parse().ok()?;
    let threads = fields.nth(10)?.parse().ok()?;
    let ticks: u64 = fields.nth(1)?.parse().ok()?;
    let memory: u64 = fields.next()?.parse().ok()?;
    let stack = fields.nth(4)?.parse().ok()?;
    // Without memory the line is QEMU's, which shows a program that it emulates another stack than others see.
    let program = if memory == 0 { 0 } else { program_of(stack) };
    let start_time = program << TICKS_BITS | ticks & ((1 << TICKS_BITS) - 1);
    Some(Stat { state, flags, threads, start_time })
}

/// A number of 24 bits for where a stack begins, which the kernel chooses by chance for each program that
/// it starts; 0 where it does not say.
fn program_of(stack: u64) -> u64 {
    let mixed = stack.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> TICKS_BITS;
    if stack == 0 { 0 } else { mixed.max(1) }
}

/// Who a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its slot.
    pub slot: u32,
    /// Tells successive clients of a slot apart.
    pub epoch: u32,
    /// Its process.
    pub process: PidInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_process_lives_and_another_start_time_does_not() {
        let me = PidInfo::current();
        assert!(me.start_time > 0);
        assert!(me.is_alive());
        assert!(!PidInfo { start_time: me.start_time + 1, ..me }.is_alive());
    }

    /// What a program had locked stayed locked for as long as the next one ran that it became.
    #[test]
    fn a_program_ends_by_exec() {
        use std::io::{BufRead, BufReader};
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo; read x; exec sh -c 'echo; read x'"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut read = || out.read_line(&mut String::new()).unwrap();
        read();
        let first = PidInfo { pid: child.id(), start_time: stat(child.id()).unwrap().start_time };
        assert!(first.is_alive());
        let stdin = child.stdin.as_mut().unwrap();
        std::io::Write::write_all(stdin, b"\n").unwrap();
        read();
        let second = PidInfo { start_time: stat(child.id()).unwrap().start_time, ..first };
        assert!(!first.is_alive() && second.is_alive());
        // Whom the kernel does not tell takes both for alive.
        let ticks = |info: PidInfo| info.start_time & ((1 << TICKS_BITS) - 1);
        assert_eq!(ticks(first), ticks(second));
        assert!(PidInfo { start_time: ticks(first), ..first }.is_alive());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!second.is_alive());
    }

    /// Two whose numbers were the same modulo 64 took each other's place with each question.
    #[test]
    fn processes_keep_no_other_from_being_looked_at() {
        let looked = [const { AtomicU64::new(0) }; 64];
        let (first, second) = (100, 164);
        assert!(!is_late(&looked, first, 5), "asked about for the first time");
        for now in (6..5 + SELDOM_MS).step_by(10) {
            assert!(!is_late(&looked, second, now) && !is_late(&looked, first, now));
        }
        assert!(is_late(&looked, first, 5 + SELDOM_MS) && !is_late(&looked, first, 6 + SELDOM_MS));
        assert!(is_late(&looked, second, 6 + SELDOM_MS));
        // As many more have room, and take nobody's place who was asked about later.
        for pid in 200..262 {
            assert!(!is_late(&looked, pid, 7 + SELDOM_MS));
        }
        assert!(is_late(&looked, first, 5 + 2 * SELDOM_MS));
        assert!(!is_late(&looked, 300, 6 + 2 * SELDOM_MS), "in the place of the second");
        assert!(is_late(&looked, 261, 7 + 2 * SELDOM_MS));
    }

    /// Of one more than there are places for, asked about in turn, each took the place of the next, and none was
    /// looked at.
    #[test]
    fn more_processes_than_there_are_places_are_looked_at() {
        let looked = [const { AtomicU64::new(0) }; 64];
        let mut looks = [0; 65];
        for now in 1..=4 * SELDOM_MS {
            for (pid, looks) in (100..).zip(&mut looks) {
                *looks += u32::from(now % 10 == 0 && is_late(&looked, pid, now));
            }
        }
        let (first, last) = (looks.first().unwrap(), looks.last().unwrap());
        assert!(looks.iter().all(|looks| *looks >= 2), "{looks:?}");
        assert!(*first < 5 && *last > 5, "who has a place is looked at seldom: {looks:?}");
    }

    /// Under QEMU's emulation of a program the own line has the stack of what is emulated, and nearly nothing else;
    /// that of others, which the kernel shows, the stack of QEMU. They took each other for ended.
    #[test]
    fn an_emulated_program_is_not_known_by_its_stack() {
        let line = |memory: u64| {
            let mut fields = [0; 50];
            for (field, value) in [(22, 77), (23, memory), (28, 0x7fff_1234_5670)] {
                *fields.get_mut(field - 4).unwrap() = value;
            }
            let fields = fields.map(|field| field.to_string());
            parsed(&format!("9 (a (b) c) R {}", fields.join(" "))).unwrap().start_time
        };
        assert_eq!(line(0), 77);
        assert_eq!(line(4096), program_of(0x7fff_1234_5670) << TICKS_BITS | 0x4d);
        assert!(began_as(line(0), line(4096)));
    }

    /// A program was killed while one of its threads waited for the mount's daemon, and the daemon for
    /// a lock of another one, which was gone: neither could end.
    #[test]
    fn a_thread_that_is_being_killed_in_the_kernel_runs_no_more() {
        let status = |state, own, shared| {
            format!(
                "Name:\tx\nState:\t{state} (x)\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0\n"
            )
        };
        let (none, kill) = ("0000000000000000", "0000000000006100");
        assert!(runs_no_more(&status('D', kill, none)));
        assert!(runs_no_more(&status('S', none, kill)));
        assert!(runs_no_more(&status('Z', none, none)));
        assert!(!runs_no_more(&status('D', "0000000000006000", none)));
        assert!(!runs_no_more(&status('R', kill, none)));
        assert!(!runs_no_more(""));
        assert!(!is_being_killed(std::process::id()));
    }

    /// One that had taken its signal, and waited in its end for what another thread had locked, was waited for.
    #[test]
    fn a_thread_that_is_ending_runs_no_more() {
        let is_exiting = |flags| {
            let line = format!("42 (a) D 7 8) D 1 42 42 0 -1 {flags}{}", " 9".repeat(43));
            parsed(&line).unwrap().is_exiting()
        };
        assert!(is_exiting("4195404"));
        assert!(!is_exiting("4194304"));
    }

    #[test]
    fn of_a_process_that_dumps_core_only_threads_on_their_way_to_the_end_run() {
        let status = |state, own| {
            format!("State:\t{state} (x)\nCoreDumping:\t1\nSigPnd:\t{own}\nShdPnd:\t0\n")
        };
        for state in ["I", "D", "S", "R", "Z"] {
            assert!(runs_no_more(&status(state, "0")), "{state}");
        }
        assert!(!runs_no_more(&status("R", "100")), "it may be in its program still");
        assert!(!runs_no_more("State:\tI (idle)\nCoreDumping:\t0\nSigPnd:\t0\nShdPnd:\t0\n"));
    }

    /// A program crashed, and the kernel read a page of a mount for its core file. The mount's daemon
    /// waited for a lock of a thread that was gone, and neither could end.
    #[test]
    fn a_process_that_dumps_core_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        // Enough to be seen at it.
        let much = "$much = 'x' x (192 << 20); kill 'ABRT', $$;";
        let mut child = std::process::Command::new("sh")
            .args(["-c", "ulimit -c unlimited; exec perl -e \"$0\"", much])
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        let info = PidInfo { pid: child.id(), start_time: 0 };
        let path = format!("/proc/{}/status", info.pid);
        let is_at_it =
            || fs::read_to_string(&path).is_ok_and(|text| text.contains("CoreDumping:\t1"));
        let mut seen_at_it = 0;
        while child.try_wait().unwrap().is_none() {
            let (before, is_alive, after) = (is_at_it(), info.is_alive(), is_at_it());
            if before && after {
                assert!(!is_alive, "it runs no more");
                seen_at_it += 1;
            }
        }
        let status = child.wait().unwrap();
        // Where cores go by a pipe, or nowhere, there may be nothing to see.
        let has_written = std::os::unix::process::ExitStatusExt::core_dumped(&status)
            && fs::read_dir(folder.path()).unwrap().count() > 0;
        assert!(seen_at_it > 0 || !has_written, "{status}");
    }

    /// One that entered another time namespace took all others for dead, and their locks away.
    #[test]
    #[expect(unsafe_code, reason = "a process without threads, and its namespace")]
    fn who_enters_another_time_namespace_takes_nobody_for_dead() {
        const SKIPPED: i32 = 2;
        let me = PidInfo::current();
        // SAFETY: the child makes calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = PidInfo::current();
            // SAFETY: this process' own namespace for children.
            let unshared = unsafe { libc::unshare(libc::CLONE_NEWTIME) };
            let is_set = fs::write("/proc/self/timens_offsets", "boottime 1000 0");
            let entered = File::open("/proc/self/ns/time_for_children").map(|namespace| {
                // SAFETY: an open namespace.
                unsafe {
                    libc::setns(std::os::fd::AsRawFd::as_raw_fd(&namespace), libc::CLONE_NEWTIME)
                }
            });
            let is_there = unshared == 0 && is_set.is_ok() && matches!(entered, Ok(0));
            let moved = stat(own.pid).is_some_and(|now| now.start_time != own.start_time);
            let result = if is_there {
                i32::from(!(moved && own.is_alive() && me.is_alive()))
            } else {
                SKIPPED
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(result) };
        }
        let mut status = 0;
        // SAFETY: the status lives here.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        if libc::WEXITSTATUS(status) == SKIPPED {
            println!("skipped: only root may have a time namespace");
        } else {
            assert_eq!(status, 0);
        }
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let info = PidInfo { pid, start_time: 0 };
        assert!(!PidInfo::current().may_have_ended());
        while stat(pid).unwrap().state != 'Z' {
            std::thread::yield_now();
        }
        assert!(!info.is_alive() && info.may_have_ended());
        child.wait().unwrap();
        assert!(!info.is_alive() && info.may_have_ended());
    }

    /// One for which nobody had waited was taken for alive by who had no descriptor to look with, for as long as its
    /// parent did not wait.
    #[test]
    #[expect(unsafe_code, reason = "processes with threads and limits of their own")]
    fn a_zombie_is_dead_to_who_has_no_descriptor_left() {
        fn goes_on() {
            loop {
                std::thread::park();
            }
        }
        // A process whose first thread has ended, alone or with another one that goes on.
        let ended = |has_other: bool| {
            // SAFETY: the child starts a thread perhaps, and its first one ends.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                if has_other {
                    std::thread::spawn(goes_on);
                }
                // SAFETY: ends this thread.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            }
            let process = PidInfo { pid: pid.cast_unsigned(), start_time: 0 };
            while stat(process.pid).unwrap().state != 'Z' {
                std::thread::yield_now();
            }
            process
        };
        // SAFETY: the child makes processes, has no descriptors from there on, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let [gone, going_on] = [false, true].map(ended);
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the limit lives here.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, std::ptr::from_ref(&none)) };
            let is_set = set == 0;
            let is_blind = is_set && stat(gone.pid).is_none();
            let is_seen = !gone.is_alive() && !gone.is_there() && going_on.is_alive();
            let parent = std::os::unix::process::parent_id();
            let lives = PidInfo { pid: parent, start_time: 0 }.is_alive();
            // SAFETY: ends that process.
            unsafe { libc::kill(going_on.pid.cast_signed(), libc::SIGKILL) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(is_blind && is_seen && lives))) };
        }
        let mut status = 0;
        // SAFETY: the status lives here.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
