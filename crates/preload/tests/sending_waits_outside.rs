//! Promise: what a program under `novale run --map=dax` sends to a pipe or a socket waits for the reader as it does in
//! the kernel: a signal ends it, and another thread may have the process give up its pools meanwhile.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use harness::{maps_own_pages, runs_with_the_daemon};

promises! {
    /// The rest of what was sent went to whom the next connection was with, or into the next file: whatever had the
    /// number by then.
    what_is_opened_meanwhile_gets_nothing: maps_own_pages replaced;
    /// Who waited went on waiting, for the next connection, where nobody read that.
    nor_is_it_waited_for: maps_own_pages replaced_by_full;
    a_file_that_is_opened_meanwhile_gets_nothing: runs_with_the_daemon replaced_file;
    nor_is_one_read_that_is_opened_meanwhile: runs_with_the_daemon replaced_source;
    /// The sender read on by what it had known of the pool, which was unmapped by then.
    the_pool_may_be_left_meanwhile: maps_own_pages left;
    /// The position stayed, and what had been sent was sent once more.
    the_position_moves_where_the_pool_is_left: maps_own_pages left_with_a_position;
    /// A removed file that another thread had closed kept its pages behind that, until something else was closed.
    what_is_closed_meanwhile_ends_with_it: maps_own_pages closed;
    /// Signals were put off until somebody read, maybe for ever.
    a_signal_ends_it: maps_own_pages interrupted;
    a_signal_ends_what_has_sent_nothing: maps_own_pages interrupted_at_once;
    it_goes_on_after_a_handler_that_lets_it: maps_own_pages restarted;
    who_does_not_want_to_wait_does_not: maps_own_pages impatient;
    who_waits_so_long_waits_no_longer: maps_own_pages timed_out;
    /// They were of 256 KB.
    messages_are_as_long_as_the_kernels: maps_own_pages in_messages;
}

mod tasks {
    use std::ffi::{CStr, CString};
    use std::fs::{self, File, OpenOptions};
    use std::io::{Error, ErrorKind, Read, Seek, Write, pipe};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::harness::{PLACE, is_in_call, support};

    const LEN: usize = 4 << 20;
    static SENDER: AtomicI32 = AtomicI32::new(0);
    static HAS_COME: AtomicBool = AtomicBool::new(false);

    /// A file with something else in each page.
    fn file() -> (File, Vec<u8>) {
        let path = PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| u8::try_from(at / 4096 % 251).unwrap()).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    /// Sends what is left of the file from a place on, and moves the place.
    fn send(to: &impl AsRawFd, file: &File, from: &mut i64) -> Result<usize, Option<i32>> {
        let left = LEN - usize::try_from(*from).unwrap();
        let sent = unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), from, left) };
        usize::try_from(sent).map_err(|_| Error::last_os_error().raw_os_error())
    }

    fn send_all(to: &impl AsRawFd, file: &File) {
        let mut from = 0;
        while from < i64::try_from(LEN).unwrap() {
            assert!(send(to, file, &mut from).unwrap() > 0);
        }
    }

    extern "C" fn come(_: i32) {
        HAS_COME.store(true, Ordering::Release);
    }

    fn handle(flags: i32) {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = come as *const () as usize;
        action.sa_flags = flags;
        let none = std::ptr::null_mut();
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, none) }, 0);
        SENDER.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// Signals the sender again and again until `done`: one may come before it waits.
    fn signal_until(done: impl Fn() -> bool) -> bool {
        let (process, sender) = (unsafe { libc::getpid() }, SENDER.load(Ordering::Acquire));
        support::eventually(|| {
            assert_eq!(unsafe { libc::tgkill(process, sender, libc::SIGUSR1) }, 0);
            thread::sleep(Duration::from_millis(1));
            done()
        })
    }

    /// Nobody reads any more: who waits for that hears of it, and the test fails.
    fn fail_unless(good: bool) {
        if !good {
            std::process::exit(1);
        }
    }

    /// Fills a socket, and returns with how many bytes.
    fn fill(socket: &mut UnixStream) -> usize {
        socket.set_nonblocking(true).unwrap();
        let put = || socket.write(&[0; 4096]).ok();
        let filled = std::iter::from_fn(put).sum();
        socket.set_nonblocking(false).unwrap();
        filled
    }

    #[test]
    #[ignore = "a task of another test"]
    fn left() {
        let (file, bytes) = file();
        let (mut out, into) = pipe().unwrap();
        let file = &file;
        thread::scope(|scope| {
            scope.spawn(move || send_all(&into, file));
            // It has sent something, and waits soon.
            let mut got = vec![0];
            out.read_exact(&mut got).unwrap();
            assert_eq!(unsafe { libc::mlockall(libc::MCL_CURRENT) }, 0);
            out.read_to_end(&mut got).unwrap();
            assert!(got == bytes);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn left_with_a_position() {
        let (mut file, bytes) = file();
        file.rewind().unwrap();
        let (mut out, into) = pipe().unwrap();
        let fd = file.as_raw_fd();
        let (sent, got) = thread::scope(|scope| {
            let sender = scope.spawn(move || unsafe {
                libc::sendfile(into.as_raw_fd(), fd, std::ptr::null_mut(), LEN)
            });
            let mut got = vec![0];
            out.read_exact(&mut got).unwrap();
            assert_eq!(unsafe { libc::mlockall(libc::MCL_CURRENT) }, 0);
            out.read_to_end(&mut got).unwrap();
            (usize::try_from(sender.join().unwrap()).unwrap(), got)
        });
        assert!(got.len() == sent && bytes.starts_with(&got));
        assert_eq!(file.stream_position().unwrap(), sent as u64);
    }

    /// Free pages, looked at by a name alone.
    fn free(place: &CStr) -> u64 {
        let mut found = MaybeUninit::<libc::statvfs>::zeroed();
        assert_eq!(unsafe { libc::statvfs(place.as_ptr(), found.as_mut_ptr()) }, 0);
        unsafe { found.assume_init() }.f_bfree
    }

    #[test]
    #[ignore = "a task of another test"]
    fn closed() {
        let place = CString::new(std::env::var(PLACE).unwrap()).unwrap();
        let (file, bytes) = file();
        fs::remove_file(PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file")).unwrap();
        let before = free(&place);
        let (mut out, into) = pipe().unwrap();
        let sent = file.as_raw_fd();
        thread::scope(|scope| {
            let sender = scope.spawn(move || unsafe {
                libc::sendfile(into.as_raw_fd(), sent, std::ptr::null_mut(), LEN)
            });
            // It has sent something, and waits soon.
            let mut got = vec![0];
            out.read_exact(&mut got).unwrap();
            drop(file);
            out.read_to_end(&mut got).unwrap();
            assert!(got == bytes);
            assert_eq!(usize::try_from(sender.join().unwrap()), Ok(LEN));
        });
        assert!(free(&place) >= before + u64::try_from(LEN / 4096).unwrap());
    }

    /// Puts something else at a number, as another thread's `close` and `open` may.
    fn replace(fd: &impl AsRawFd, by: &impl AsRawFd) {
        assert_eq!(unsafe { libc::dup2(by.as_raw_fd(), fd.as_raw_fd()) }, fd.as_raw_fd());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaced() {
        replaced_by(UnixStream::pair().unwrap(), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaced_by_full() {
        let (mut next, other) = UnixStream::pair().unwrap();
        let filled = fill(&mut next);
        replaced_by((next, other), filled);
    }

    /// Has another socket at the number of one that is sent to, which has so many bytes then as before.
    fn replaced_by((next, mut other): (UnixStream, UnixStream), filled: usize) {
        let (file, bytes) = file();
        let (to, mut out) = UnixStream::pair().unwrap();
        let (to, file) = (&to, &file);
        thread::scope(|scope| {
            let mut from = 0;
            let sender = scope.spawn(move || {
                SENDER.store(unsafe { libc::gettid() }, Ordering::Release);
                send(to, file, &mut from)
            });
            // It has sent something, and waits.
            let mut got = vec![0];
            out.read_exact(&mut got).unwrap();
            let thread = SENDER.load(Ordering::Acquire);
            fail_unless(support::eventually(|| is_in_call(thread, libc::SYS_ppoll)));
            replace(to, &next);
            fail_unless(support::eventually(|| sender.is_finished()));
            out.read_to_end(&mut got).unwrap();
            let sent = sender.join().unwrap().unwrap();
            assert!(sent < LEN && sent == got.len() && bytes.starts_with(&got), "{sent}");
        });
        other.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        let ended = other.read_to_end(&mut got).map_err(|why| why.kind());
        assert_eq!((ended, got.len()), (Err(ErrorKind::WouldBlock), filled));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn in_messages() {
        let (file, bytes) = file();
        let mut pair = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) }, 0);
        let [to, mut out] = pair.map(|fd| unsafe { UnixStream::from_raw_fd(fd) });
        thread::scope(|scope| {
            scope.spawn(move || send_all(&to, &file));
            let mut message = vec![0; LEN];
            for part in bytes.chunks(64 << 10) {
                assert_eq!(out.read(&mut message).unwrap(), part.len());
                assert!(message[..part.len()] == *part);
            }
        });
    }

    const LONG: usize = 32 << 20;
    /// What is on its way just as a number is looked at.
    const CHUNK: usize = 256 << 10;
    /// Ends with one in which the number was another file's in time.
    const ROUNDS: usize = 100;

    /// Sends a long file, and does something as soon as some of it is in the target. Returns how much was sent.
    fn send_during((from, to): (&File, &File), target: &File, work: impl FnOnce()) -> usize {
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut at = 0;
                unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &raw mut at, LONG) }
            });
            while target.metadata().unwrap().len() == 0 && !sender.is_finished() {}
            work();
            usize::try_from(sender.join().unwrap()).unwrap()
        })
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaced_file() {
        let (file, _) = file();
        file.set_len(LONG as u64).unwrap();
        let is_short = |_| {
            let [to, next] = [(); 2].map(|()| tempfile::tempfile().unwrap());
            let old = to.try_clone().unwrap();
            let sent = send_during((&file, &to), &old, || replace(&to, &next));
            let gone_on = next.metadata().unwrap().len();
            assert!(gone_on <= CHUNK as u64, "{gone_on}");
            sent < LONG
        };
        assert!((0..ROUNDS).any(is_short));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn replaced_source() {
        let (to, _) = file();
        let [old, next] = [1, 7].map(|byte| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![byte; LONG], 0).unwrap();
            file
        });
        let is_short = |_| {
            let source = old.try_clone().unwrap();
            to.set_len(0).unwrap();
            (&to).rewind().unwrap();
            let sent = send_during((&source, &to), &to, || replace(&source, &next));
            let mut bytes = vec![0; sent];
            to.read_exact_at(&mut bytes, 0).unwrap();
            let of_next = bytes.iter().filter(|byte| **byte != 1).count();
            assert!(of_next <= CHUNK, "{of_next}");
            sent < LONG
        };
        assert!((0..ROUNDS).any(is_short));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn interrupted() {
        let (file, _) = file();
        let (to, mut out) = UnixStream::pair().unwrap();
        handle(libc::SA_RESTART);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                out.read_exact(&mut [0]).unwrap();
                fail_unless(signal_until(|| is_done.load(Ordering::Acquire)));
            });
            let mut from = 0;
            let sent = send(&to, &file, &mut from).unwrap();
            is_done.store(true, Ordering::Release);
            assert!(sent > 0 && sent < LEN, "{sent}");
            assert_eq!(usize::try_from(from).unwrap(), sent);
            assert!(HAS_COME.load(Ordering::Acquire));
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn interrupted_at_once() {
        let (file, _) = file();
        let (mut to, _out) = UnixStream::pair().unwrap();
        fill(&mut to);
        handle(0);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| fail_unless(signal_until(|| is_done.load(Ordering::Acquire))));
            let mut from = 0;
            assert_eq!(send(&to, &file, &mut from), Err(Some(libc::EINTR)));
            is_done.store(true, Ordering::Release);
            assert_eq!(from, 0);
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn restarted() {
        let (file, bytes) = file();
        let (mut to, mut out) = UnixStream::pair().unwrap();
        fill(&mut to);
        handle(libc::SA_RESTART);
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                fail_unless(signal_until(|| HAS_COME.load(Ordering::Acquire)));
                let mut got = Vec::new();
                out.read_to_end(&mut got).unwrap();
                got
            });
            send_all(&to, &file);
            drop(to);
            assert!(reader.join().unwrap().ends_with(&bytes));
        });
    }

    #[test]
    #[ignore = "a task of another test"]
    fn impatient() {
        let (file, bytes) = file();
        let (to, mut out) = UnixStream::pair().unwrap();
        to.set_nonblocking(true).unwrap();
        let (mut from, mut got) = (0, Vec::new());
        while got.len() < LEN {
            match send(&to, &file, &mut from) {
                Ok(sent) => assert!(sent > 0),
                Err(error) => assert_eq!(error, Some(libc::EAGAIN)),
            }
            let taken = usize::try_from(from).unwrap() - got.len();
            let start = got.len();
            got.resize(start + taken, 0);
            out.read_exact(got.get_mut(start..).unwrap()).unwrap();
        }
        assert!(got == bytes);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn timed_out() {
        let (file, _) = file();
        let (mut to, _out) = UnixStream::pair().unwrap();
        to.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut from = 0;
        let sent = send(&to, &file, &mut from).unwrap();
        assert!(sent > 0 && sent < LEN, "{sent}");
        assert_eq!(send(&to, &file, &mut from), Err(Some(libc::EAGAIN)));
        assert_eq!(to.write(&[0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
