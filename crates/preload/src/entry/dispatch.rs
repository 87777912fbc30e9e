//! Which call is served by what.

use std::sync::atomic::Ordering;

use crate::base::classes::{
    self, CLOSES, CREATES, DESCRIPTOR, FILE_GETATTR, FILE_SETATTR, GETXATTRAT, LISTXATTRAT,
    OF_NAMED, OF_PATHS, OPEN_TREE_ATTR, REMOVEXATTRAT, SETXATTRAT,
};
use crate::base::sys::{Args, Outcome, RESTART, Served, fail, sys};
use crate::base::thread::current;
use crate::base::{left, report};
use crate::calls::xattrs::{self, Ask};
use crate::calls::{
    attributes, data, descriptors, directories, ioctls, maps, names, open, pins, processes, space,
    transfer, written,
};
use crate::entry::{STALE, counted};
use crate::fds::kernel;
use crate::fds::quiet::{self, Calls, Serving};
use crate::maps::foreign;
use crate::mounts::{self, room};
use crate::numbers::{self, words};
use crate::paths::{descriptor, take_named};
use crate::process::{confined, masks, signals};
use crate::text::objects;

/// Calls on memory, of whatever is mapped there.
const OF_MEMORY: &[i64] = &[
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_mseal,
    libc::SYS_remap_file_pages,
    libc::SYS_shmat,
];
const CWD: u64 = libc::AT_FDCWD as u64;
/// Attempts before a name that changes hands all the time is given up; and how long it is waited in between after the
/// first few: for other calls on the directories of the path.
const ATTEMPTS: u32 = 256;
const ATTEMPTS_AT_ONCE: u32 = 16;
const PAUSE_NS: i64 = 100_000;
/// The same of one that is stale to the kernel. It is so while any directory of the mount is being renamed to another
/// one, which may be nearly always, and for as long as that one waits for the daemon: so many attempts with each
/// pause, and eight pauses, each twice as long as the one before: three seconds in all.
const STALE_ATTEMPTS: u32 = 128;
const STALE_DOUBLINGS: u32 = 8;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// Calls of the kernel's that may be about what a descriptor itself leads to, and not a path from there.
const OF_EMPTY_PATHS: &[i64] = &[
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_linkat,
    libc::SYS_fchmodat2,
    libc::SYS_futimesat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl_fd,
    SETXATTRAT,
    GETXATTRAT,
    LISTXATTRAT,
    REMOVEXATTRAT,
    FILE_GETATTR,
    FILE_SETATTR,
];

/// Serves a call, or leaves it to the kernel.
pub(crate) fn serve(number: i64, args: &Args) -> Outcome {
    match number {
        libc::SYS_exit => return processes::exit_thread(args),
        libc::SYS_rt_sigprocmask => {
            return masks::change(args).map_or(Outcome::Kernel, Outcome::Done);
        }
        _ => {}
    }
    let changes_numbers =
        classes::is_of(number, CREATES | CLOSES) || number == libc::SYS_close_range;
    let _inside = Serving::new(if changes_numbers { Calls::Numbers } else { Calls::Any });
    match number {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            processes::clone(number, args)
        }
        libc::SYS_arch_prctl => processes::change_block(args),
        libc::SYS_execve | libc::SYS_execveat => processes::exec(number, args),
        libc::SYS_exit_group => processes::exit_process(args),
        _ if report::is_on() => counted::counted(number, args, || serve_file(number, args)),
        _ => serve_file(number, args),
    }
}

#[inline]
fn serve_file(number: i64, args: &Args) -> Outcome {
    let mut served = data_call(number, args);
    if room::is_wanted(served) && !is_made_once(number, args) {
        served = room::again(|| data_call(number, args));
    }
    if served.is_none() {
        if names_internal(number, args) {
            return Outcome::Done(fail(libc::EBADF));
        }
        start_from(number, args);
        take_named(number, args);
        if makes_descriptor(number, args) {
            numbers::clear();
        }
    }
    match served {
        Some(RESTART) => Outcome::Again,
        Some(result) => Outcome::Done(result),
        None if is_looked_at(number, args) => Outcome::Look,
        None => Outcome::Kernel,
    }
}

/// Whether a call's errors are the kernel's answer to what was done here: it is done then, and not made again. Of what
/// was written before the kernel tells just once, and a number is free whatever closing it has said.
fn is_made_once(number: i64, args: &Args) -> bool {
    match number {
        libc::SYS_close
        | libc::SYS_close_range
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_msync => true,
        libc::SYS_sendfile => !transfer::is_to_a_mount(args),
        _ => false,
    }
}

/// Whether a call of the kernel's is on a descriptor of this library's, which is no number of the program's: it leads to
/// a slot's or the arena's file, which a program that has gone wrong must not cut short.
fn names_internal(number: i64, args: &Args) -> bool {
    let at: &[usize] = match number {
        libc::SYS_mmap if args[3] & libc::MAP_ANONYMOUS as u64 == 0 => &[4],
        libc::SYS_sendfile | libc::SYS_tee => &[0, 1],
        libc::SYS_copy_file_range | libc::SYS_splice => &[0, 2],
        libc::SYS_fchdir | libc::SYS_ioctl => &[0],
        _ if classes::is_of(number, DESCRIPTOR) || OF_EMPTY_PATHS.contains(&number) => &[0],
        _ => &[],
    };
    at.iter().filter_map(|at| args.get(*at)).any(|fd| words::is_internal(descriptor(*fd)))
}

/// Whether what the kernel gives out or shows by a call may be a file of a mount, or what has become of them, or whether
/// it changes one that is shown here.
fn is_looked_at(number: i64, args: &Args) -> bool {
    match number {
        _ if written::is_to_replicas(number, args) => true,
        _ if left::has_all() => false,
        libc::SYS_stat | libc::SYS_lstat => attributes::is_learnt_from(args[0]),
        libc::SYS_newfstatat | libc::SYS_statx => attributes::is_learnt_from(args[1]),
        libc::SYS_recvmsg => descriptors::has_room(args[1]),
        libc::SYS_wait4 | libc::SYS_waitid => mounts::has_joined(),
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_recvmmsg
        | libc::SYS_pidfd_getfd => true,
        _ => OF_PATHS.contains(&number) && mounts::has_joined(),
    }
}

/// Looks at what the kernel has made of a call: what it has opened in a mount, by whatever path, is served
/// from then on.
pub(crate) fn look(number: i64, args: &Args, came: i32) -> Outcome {
    let leaves_numbers = written::writes(number, args);
    let _inside = Serving::new(if leaves_numbers { Calls::Any } else { Calls::Numbers });
    let mut is_found = false;
    if came == STALE {
        return again_or_stale(number, args);
    }
    match number {
        // Who has waited for a process that was killed finds what that one has done.
        libc::SYS_wait4 | libc::SYS_waitid => {
            mounts::settle_cut_off();
            return Outcome::Done(i64::from(came));
        }
        libc::SYS_recvmsg => descriptors::received(args[1], 1),
        libc::SYS_recvmmsg => descriptors::received(args[1], came),
        libc::SYS_pidfd_getfd => open::received(came),
        libc::SYS_open | libc::SYS_creat | libc::SYS_openat | libc::SYS_openat2 => {
            is_found = open::found(number, args, came).is_some();
        }
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_newfstatat | libc::SYS_statx => {
            _ = attributes::shown(number, args);
        }
        // Counted, and nothing else, where it wrote nothing that is shown.
        _ => _ = written::show(number, args, u64::from(came.cast_unsigned())),
    }
    if report::is_on() {
        counted::looked(number, came, is_found);
    }
    Outcome::Done(i64::from(came))
}

/// What follows where a path was stale to the kernel: the call again, so often. It says so of a directory that was
/// moved directly since it saw it, where it comes to it at its new place while another call is on its way in the old
/// one; a program that has the mount alone is told so.
fn again_or_stale(number: i64, &[a, b, c, d, ..]: &Args) -> Outcome {
    let attempts = &current().stale_attempts;
    let made = attempts.load(Ordering::Relaxed);
    if OF_PATHS.contains(&number) && made < STALE_ATTEMPTS * STALE_DOUBLINGS {
        attempts.store(made + 1, Ordering::Relaxed);
        match number {
            libc::SYS_rename => names::look_at_both((CWD, a), (CWD, b)),
            libc::SYS_renameat | libc::SYS_renameat2 => names::look_at_both((a, b), (c, d)),
            _ => {}
        }
        pause(PAUSE_NS << (made / STALE_ATTEMPTS));
        return Outcome::Again;
    }
    Outcome::Done(fail(libc::ESTALE))
}

/// Waits a moment for others.
fn pause(nanoseconds: i64) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    quiet::outside(|| sys!(libc::SYS_nanosleep, &raw const pause, 0));
}

/// Whether the kernel may give out a descriptor by this call: locks, which programs take for each of
/// their transactions, leave the stock of numbers as it is.
fn makes_descriptor(number: i64, args: &Args) -> bool {
    let duplicates = matches!(args[1] as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    classes::is_of(number, CREATES) && (number != libc::SYS_fcntl || duplicates)
}

/// Takes the directories that a call of the kernel's starts from.
fn start_from(number: i64, args: &Args) {
    let at: &[usize] = match number {
        libc::SYS_symlinkat => &[1],
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat | libc::SYS_move_mount => {
            &[0, 2]
        }
        libc::SYS_fanotify_mark => &[3],
        _ => &[0],
    };
    for fd in at.iter().filter_map(|at| args.get(*at)) {
        if OF_EMPTY_PATHS.contains(&number) {
            kernel::take_any(descriptor(*fd));
        } else {
            kernel::take_directory(descriptor(*fd));
        }
    }
}

/// The calls that programs make most, first.
#[inline]
fn data_call(number: i64, args: &Args) -> Served {
    match number {
        libc::SYS_read => data::read(args),
        libc::SYS_write => data::write(args),
        libc::SYS_pread64 => data::pread(args),
        libc::SYS_pwrite64 => data::pwrite(args),
        libc::SYS_readv => data::readv(args),
        libc::SYS_writev => data::writev(args),
        libc::SYS_preadv => data::preadv(args, false),
        libc::SYS_pwritev => data::pwritev(args, false),
        libc::SYS_preadv2 => data::preadv(args, true),
        libc::SYS_pwritev2 => data::pwritev(args, true),
        libc::SYS_lseek => data::lseek(args),
        libc::SYS_fsync | libc::SYS_fdatasync => data::sync(args),
        libc::SYS_sync_file_range => data::sync_range(args),
        libc::SYS_ftruncate => data::truncate(args),
        libc::SYS_fallocate => data::fallocate(args),
        libc::SYS_fadvise64 => data::advise(args),
        libc::SYS_readahead => data::readahead(args),
        libc::SYS_ioctl => ioctls::ioctl(args),
        libc::SYS_syncfs => data::sync_all(args),
        libc::SYS_fstatfs => space::of_file(args),
        libc::SYS_fsetxattr => xattrs::of_file(Ask::Set, args),
        libc::SYS_fgetxattr => xattrs::of_file(Ask::Get, args),
        libc::SYS_flistxattr => xattrs::of_file(Ask::List, args),
        libc::SYS_fremovexattr => xattrs::of_file(Ask::Remove, args),
        _ if is_made_once(number, args) => path_call(number, args),
        _ => while_stale(|| path_call(number, args)),
    }
}

/// Makes a call again while it ends because what a name led to was removed between the look at the
/// name and the use of it. Who sees that so often is told that there is no such name.
fn while_stale(mut call: impl FnMut() -> Served) -> Served {
    for attempt in 0..ATTEMPTS {
        let result = call();
        if result != Some(fail(libc::ESTALE)) {
            return result;
        }
        if attempt >= ATTEMPTS_AT_ONCE {
            pause(PAUSE_NS);
        }
    }
    Some(fail(libc::ENOENT))
}

fn path_call(number: i64, args: &Args) -> Served {
    let [a, b, c, d, flags, _] = *args;
    match number {
        libc::SYS_open => open::open(args),
        libc::SYS_creat => open::creat(args),
        libc::SYS_openat => open::openat(args),
        libc::SYS_openat2 => open::openat2(args),
        libc::SYS_fstat => attributes::fstat(args),
        libc::SYS_stat => attributes::stat(args, 0),
        libc::SYS_lstat => attributes::stat(args, NOFOLLOW),
        libc::SYS_newfstatat => attributes::fstatat(args),
        libc::SYS_statx => attributes::statx(args),
        libc::SYS_access => attributes::access(CWD, a, b as i32, 0),
        libc::SYS_faccessat => attributes::access(a, b, c as i32, 0),
        libc::SYS_faccessat2 => attributes::access(a, b, c as i32, d as i32),
        libc::SYS_truncate => attributes::truncate(args),
        libc::SYS_chmod => attributes::chmod(CWD, a, b, 0),
        libc::SYS_fchmodat => attributes::chmod(a, b, c, 0),
        libc::SYS_fchmodat2 => attributes::chmod(a, b, c, d as i32),
        libc::SYS_fchmod => attributes::fchmod(args),
        libc::SYS_chown => attributes::chown(CWD, a, (b, c), 0),
        libc::SYS_lchown => attributes::chown(CWD, a, (b, c), NOFOLLOW),
        libc::SYS_fchownat => attributes::chown(a, b, (c, d), flags as i32),
        libc::SYS_fchown => attributes::fchown(args),
        libc::SYS_utimensat => attributes::utimensat(args),
        libc::SYS_mkdir => names::mkdir(CWD, a, b),
        libc::SYS_mkdirat => names::mkdir(a, b, c),
        libc::SYS_rmdir => names::unlink(CWD, a, libc::AT_REMOVEDIR),
        libc::SYS_unlink => names::unlink(CWD, a, 0),
        libc::SYS_unlinkat => names::unlink(a, b, c as i32),
        libc::SYS_rename => names::rename((CWD, a), (CWD, b), 0),
        libc::SYS_renameat => names::rename((a, b), (c, d), 0),
        libc::SYS_renameat2 => names::rename((a, b), (c, d), flags),
        libc::SYS_link => names::link((CWD, a), (CWD, b), 0),
        libc::SYS_linkat => names::link((a, b), (c, d), flags as i32),
        libc::SYS_symlink => names::symlink(a, CWD, b),
        libc::SYS_symlinkat => names::symlink(a, b, c),
        libc::SYS_readlink => names::readlink(CWD, a, b, c),
        libc::SYS_readlinkat => names::readlink(a, b, c, d),
        libc::SYS_statfs => space::of_path(args),
        libc::SYS_setxattr => xattrs::of_path(Ask::Set, args, 0),
        libc::SYS_lsetxattr => xattrs::of_path(Ask::Set, args, NOFOLLOW),
        libc::SYS_getxattr => xattrs::of_path(Ask::Get, args, 0),
        libc::SYS_lgetxattr => xattrs::of_path(Ask::Get, args, NOFOLLOW),
        libc::SYS_listxattr => xattrs::of_path(Ask::List, args, 0),
        libc::SYS_llistxattr => xattrs::of_path(Ask::List, args, NOFOLLOW),
        libc::SYS_removexattr => xattrs::of_path(Ask::Remove, args, 0),
        libc::SYS_lremovexattr => xattrs::of_path(Ask::Remove, args, NOFOLLOW),
        SETXATTRAT => xattrs::set_at(args),
        _ => other_call(number, args),
    }
}

fn mmap(args: &Args) -> Served {
    descriptors::before_mapping(args);
    let serve = || maps::mmap(args).or_else(|| objects::mmap(args, confined::before_unseen_calls));
    foreign::mmap(args, serve)
}

fn other_call(number: i64, args: &Args) -> Served {
    match number {
        libc::SYS_getdents64 => directories::list(args),
        libc::SYS_getdents => directories::list_old(args),
        libc::SYS_close => Some(descriptors::close(args)),
        libc::SYS_close_range => descriptors::close_range(args),
        libc::SYS_dup => descriptors::dup(args),
        libc::SYS_dup2 | libc::SYS_dup3 => descriptors::dup_to(number, args),
        libc::SYS_fcntl => descriptors::fcntl(args),
        libc::SYS_flock => descriptors::flock(args),
        libc::SYS_mmap => mmap(args),
        libc::SYS_munmap => maps::munmap(args),
        libc::SYS_mremap => foreign::mremap(args, || maps::mremap(args)),
        libc::SYS_msync => maps::msync(args),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => maps::protect(number, args),
        _ if OF_MEMORY.contains(&number) => maps::of_memory(number, args),
        libc::SYS_sendfile => transfer::sendfile(args),
        libc::SYS_copy_file_range => transfer::copy_file_range(args),
        libc::SYS_tee => descriptors::of_two(&[(args[0], 0), (args[1], 0)]),
        libc::SYS_splice => descriptors::of_two(&[(args[0], args[1]), (args[2], args[3])]),
        libc::SYS_poll | libc::SYS_ppoll => descriptors::poll(args),
        libc::SYS_select | libc::SYS_pselect6 => descriptors::select(args),
        libc::SYS_epoll_ctl => descriptors::epoll_ctl(args),
        libc::SYS_vmsplice => pins::vmsplice(args),
        libc::SYS_sendto => pins::send(args),
        libc::SYS_sendmsg => pins::send_message(args).or_else(|| descriptors::send_message(args)),
        libc::SYS_sendmmsg => {
            pins::send_messages(args).or_else(|| descriptors::send_messages(args))
        }
        libc::SYS_io_uring_setup | libc::SYS_io_uring_enter | libc::SYS_io_uring_register => {
            pins::ring(number, args)
        }
        libc::SYS_io_setup => pins::asynchronous(),
        libc::SYS_chdir => processes::chdir(args),
        libc::SYS_fchdir => descriptors::fchdir(args),
        libc::SYS_rt_sigaction => signals::action(args),
        libc::SYS_sigaltstack => Some(signals::alternate_stack(args)),
        libc::SYS_umask => Some(processes::umask(args)?),
        libc::SYS_setrlimit | libc::SYS_prlimit64 => processes::limits(number, args),
        libc::SYS_chroot
        | libc::SYS_pivot_root
        | libc::SYS_unshare
        | libc::SYS_setns
        | libc::SYS_mount
        | libc::SYS_umount2
        | libc::SYS_move_mount => processes::elsewhere(number, args),
        libc::SYS_prctl
        | libc::SYS_seccomp
        | libc::SYS_landlock_restrict_self
        | libc::SYS_mlockall => confined::before_rule(number, args),
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setfsuid
        | libc::SYS_setfsgid
        | libc::SYS_setgroups
        | libc::SYS_capset => processes::identity(number, args),
        _ if OF_NAMED.contains(&number) => {
            descriptors::name(number, args);
            None
        }
        _ => None,
    }
}
