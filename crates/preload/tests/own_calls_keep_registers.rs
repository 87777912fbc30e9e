//! Promise: a system call by an instruction that is no function of libc's keeps all registers that the kernel keeps,
//! whoever serves it: vector registers of all widths, masks, flags.
//!
//! How it went wrong: the entry kept what a function has to keep. A program that was compiled for the machine it
//! runs on, and had a sum of vectors around its own `read`, lost the upper halves of them; one whose compiler took it
//! at its word that flags stay (rustix says so) went the other way at a branch.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "system calls without libc")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::cast_sign_loss, reason = "the kernel takes its arguments as registers")]

#[macro_use]
mod harness;

use harness::{runs_with_the_daemon, runs_without_the_daemon};

promises! {
    served_calls_keep_them: runs_without_the_daemon served;
    calls_of_the_kernels_keep_them: runs_with_the_daemon kernels;
    calls_on_a_handlers_stack_keep_them: runs_without_the_daemon on_alternate_stack;
    /// It was shown the library's flags and vectors, and a thread that goes on there later would have had them.
    a_handler_is_shown_them: runs_without_the_daemon interrupted;
}

mod tasks {
    use std::arch::global_asm;
    use std::ffi::c_void;
    use std::fs::{self, File, OpenOptions};
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

    use crate::harness::PLACE;

    /// Carry, parity, adjust, zero, sign, direction, overflow.
    const FLAGS: u64 = 0xcd5;
    /// What a program finds set always.
    const SET: u64 = 0x202;

    /// Registers before a call, and after it.
    #[repr(C, align(64))]
    #[derive(Clone)]
    struct State {
        vectors: [[u64; 8]; 32],
        masks: [u64; 8],
        flags: u64,
    }

    macro_rules! call {
        ($name:literal, $vector:literal, $move:literal, $vectors:literal, $has_masks:literal) => {
            global_asm!(
                // rdi, rsi, rdx: a descriptor, bytes and their count; rcx: a state
                concat!(".globl ", $name, ", ", $name, "_after"),
                concat!($name, ":"),
                "push rbx",
                "mov rbx, rcx",
                concat!(".irp at, ", $vectors),
                concat!($move, " ", $vector, "\\at, [rbx + 64 * \\at]"),
                ".endr",
                concat!(".if ", $has_masks),
                ".irp at, 1, 2, 3, 4, 5, 6, 7",
                "kmovq k\\at, [rbx + 2048 + 8 * \\at]",
                ".endr",
                ".endif",
                "xor r10d, r10d",
                "push qword ptr [rbx + 2112]",
                "popfq",
                "mov eax, 18",
                "syscall",
                concat!($name, "_after:"),
                "pushfq",
                "cld",
                "pop qword ptr [rbx + 2112]",
                concat!(".irp at, ", $vectors),
                concat!($move, " [rbx + 64 * \\at], ", $vector, "\\at"),
                ".endr",
                concat!(".if ", $has_masks),
                ".irp at, 1, 2, 3, 4, 5, 6, 7",
                "kmovq [rbx + 2048 + 8 * \\at], k\\at",
                ".endr",
                ".endif",
                "pop rbx",
                "ret",
            );
        };
    }
    call!("write_xmm", "xmm", "movups", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "0");
    call!("write_ymm", "ymm", "vmovups", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "0");
    call!(
        "write_zmm",
        "zmm",
        "vmovups",
        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "1"
    );

    type Write = unsafe extern "C" fn(i32, *const u8, usize, *mut State) -> i64;

    unsafe extern "C" {
        fn write_xmm(fd: i32, from: *const u8, len: usize, state: *mut State) -> i64;
        fn write_ymm(fd: i32, from: *const u8, len: usize, state: *mut State) -> i64;
        fn write_zmm(fd: i32, from: *const u8, len: usize, state: *mut State) -> i64;
        fn write_xmm_after();
        fn write_ymm_after();
        fn write_zmm_after();
    }

    /// A call that has values in all registers of this machine, and the address after its `syscall`.
    fn widest() -> (Write, u64) {
        if is_x86_feature_detected!("avx512bw") {
            (write_zmm, write_zmm_after as *const () as u64)
        } else if is_x86_feature_detected!("avx") {
            (write_ymm, write_ymm_after as *const () as u64)
        } else {
            (write_xmm, write_xmm_after as *const () as u64)
        }
    }

    fn state(flags: u64) -> State {
        let value = |at: usize| 0x0123_4567_89ab_cdef_u64.wrapping_mul(2 * at as u64 + 1);
        let vectors = std::array::from_fn(|at| std::array::from_fn(|part| value(8 * at + part)));
        State { vectors, masks: std::array::from_fn(|at| value(300 + at)), flags: flags | SET }
    }

    /// Bytes that are copied by the widest registers.
    static TEXT: [u8; 20_000] = [b'a'; 20_000];

    /// Writes, and comes back with what it went with. Allocates nothing: a handler calls it.
    fn writes(file: &File, flags: u64) {
        let (before, mut after) = (state(flags), state(flags));
        let (call, _) = widest();
        let wrote = unsafe { call(file.as_raw_fd(), TEXT.as_ptr(), TEXT.len(), &raw mut after) };
        assert_eq!(usize::try_from(wrote), Ok(TEXT.len()));
        for (at, (before, after)) in before.vectors.iter().zip(&after.vectors).enumerate() {
            assert_eq!(before, after, "vector {at}");
        }
        assert_eq!(before.masks, after.masks);
        assert_eq!(after.flags & FLAGS, flags);
    }

    fn made(name: &str) -> File {
        let path = Path::new(&std::env::var_os(PLACE).unwrap()).join("d").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
    }

    /// All flags, and none: what serves a call leaves some.
    fn writes_with_all_flags(file: &File) {
        for flags in [0, FLAGS, 0x400, 1, 0x40] {
            writes(file, flags);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn served() {
        let file = made("served");
        writes_with_all_flags(&file);
        // The first call of a thread is another one.
        std::thread::scope(|scope| scope.spawn(|| writes_with_all_flags(&file)).join().unwrap());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn kernels() {
        let file = tempfile::tempfile().unwrap();
        writes_with_all_flags(&file);
    }

    static FD: AtomicI32 = AtomicI32::new(-1);
    static HANDLED: AtomicU32 = AtomicU32::new(0);

    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);

    fn handle(handler: Handler, stack: i32) {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | stack;
        let none = std::ptr::null_mut();
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, none) }, 0);
    }

    extern "C" fn writes_there(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
        use std::os::fd::FromRawFd;
        let file = unsafe { File::from_raw_fd(FD.load(Ordering::Relaxed)) };
        writes_with_all_flags(&std::mem::ManuallyDrop::new(file));
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn on_alternate_stack() {
        const BYTES: usize = 128 << 10;
        let file = made("alternate");
        FD.store(file.as_raw_fd(), Ordering::Relaxed);
        let mut room = vec![0_u8; BYTES];
        let stack = libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: BYTES };
        assert_eq!(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) }, 0);
        handle(writes_there, libc::SA_ONSTACK);
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
        let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack };
        assert_eq!(unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) }, 0);
    }

    /// Signals that came behind a served call, and those of which the handler was shown something else.
    static SHOWN: AtomicU32 = AtomicU32::new(0);
    static WRONG: AtomicU32 = AtomicU32::new(0);

    extern "C" fn looks(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let register = |at: i32| context.uc_mcontext.gregs.get(at as usize).unwrap();
        let (_, after) = widest();
        if register(libc::REG_RIP).cast_unsigned() != after {
            return;
        }
        let vectors = unsafe { &(*context.uc_mcontext.fpregs)._xmm };
        let is_whole = vectors.iter().zip(&state(0).vectors).all(|(shown, vector)| {
            let [a, b, c, d] = shown.element.map(u64::from);
            matches!(vector, [low, high, ..] if (a | b << 32, c | d << 32) == (*low, *high))
        });
        let flags = register(libc::REG_EFL).cast_unsigned() & FLAGS;
        WRONG.fetch_add(u32::from(!is_whole || flags != FLAGS), Ordering::Relaxed);
        SHOWN.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what waits for it, whatever becomes of the test.
    struct Done<'a>(&'a AtomicBool);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn interrupted() {
        let file = made("interrupted");
        let (done, thread) = (AtomicBool::new(false), unsafe { libc::pthread_self() });
        handle(looks, 0);
        std::thread::scope(|scope| {
            let _done = Done(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
                }
            });
            // Most come while a call is served.
            let is_enough = (0..100_000).any(|_| {
                writes(&file, FLAGS);
                SHOWN.load(Ordering::Relaxed) >= 20
            });
            assert!(is_enough, "{}", SHOWN.load(Ordering::Relaxed));
        });
        assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    }
}
