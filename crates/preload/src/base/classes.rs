//! Which system calls come into this library: what the entry looks at before anything else.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::base::heap::Reserved;

/// Numbers of system calls that may be looked at.
pub(crate) const NUMBERS: usize = 512;

/// How a call is told apart, by its number: bits, none of them for what is always the kernel's. Ours if
/// its first argument is a descriptor that the table knows.
pub(crate) const DESCRIPTOR: u8 = 1;
/// Looked at in every case.
pub(crate) const ALWAYS: u8 = 2;
/// Makes the kernel give out a descriptor: looked at while [`watch`] says so.
pub(crate) const CREATES: u8 = 4;
/// Makes the kernel free one: likewise.
pub(crate) const CLOSES: u8 = 8;
/// Changes the address space: likewise.
pub(crate) const MAPS: u8 = 16;
/// Ends the process: likewise.
pub(crate) const ENDS: u8 = 32;

/// Calls of Linux 5.14 and 6.5.
pub(crate) const QUOTACTL_FD: i64 = 443;
pub(crate) const CACHESTAT: i64 = 451;
/// Of Linux 6.15.
pub(crate) const OPEN_TREE_ATTR: i64 = 467;
/// Calls of Linux 6.17.
pub(crate) const FILE_GETATTR: i64 = 468;
pub(crate) const FILE_SETATTR: i64 = 469;
/// Calls of Linux 6.13.
pub(crate) const SETXATTRAT: i64 = 463;
pub(crate) const GETXATTRAT: i64 = 464;
pub(crate) const LISTXATTRAT: i64 = 465;
pub(crate) const REMOVEXATTRAT: i64 = 466;

/// Calls that are looked at when their first argument is a descriptor of a mount's file.
const OF_DESCRIPTORS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_close,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fstatfs,
    libc::SYS_syncfs,
    libc::SYS_fsetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    libc::SYS_getdents,
    libc::SYS_getdents64,
    libc::SYS_mknodat,
    libc::SYS_futimesat,
    libc::SYS_fchmodat2,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl_fd,
    SETXATTRAT,
    GETXATTRAT,
    LISTXATTRAT,
    REMOVEXATTRAT,
    FILE_GETATTR,
    FILE_SETATTR,
];

/// Calls of the kernel's that name descriptors where others have none.
pub(crate) const OF_NAMED: &[i64] = &[
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_finit_module,
    libc::SYS_kexec_file_load,
    libc::SYS_fanotify_mark,
    libc::SYS_open_by_handle_at,
    libc::SYS_fsconfig,
    libc::SYS_landlock_add_rule,
    QUOTACTL_FD,
    CACHESTAT,
];

/// Calls on paths, looked at each time.
pub(crate) const OF_PATHS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_truncate,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_chdir,
];

/// Calls on paths that are the kernel's in any case, looked at each time: a path may name a descriptor.
pub(crate) const OF_KERNELS_PATHS: &[i64] = &[
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_bind,
    libc::SYS_connect,
    SETXATTRAT,
    GETXATTRAT,
    LISTXATTRAT,
    REMOVEXATTRAT,
    FILE_GETATTR,
    FILE_SETATTR,
];

/// Other calls that are looked at each time.
const OF_EVERY_TIME: &[i64] = &[
    libc::SYS_fchdir,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_close_range,
    libc::SYS_ioctl,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_copy_file_range,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_ctl,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_arch_prctl,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_umask,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_landlock_restrict_self,
    libc::SYS_mlockall,
];

/// Calls by which the kernel gives out a descriptor, or sees how many there may be, or uses one without
/// being asked about it here: no placeholder may be in stock then.
const MAKING_DESCRIPTORS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mknodat,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    libc::SYS_signalfd,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_mq_open,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_seccomp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_landlock_create_ruleset,
];

/// Calls on addresses, where files are mapped here.
const OF_ADDRESSES: &[i64] = &[
    libc::SYS_munmap,
    libc::SYS_msync,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_mseal,
    libc::SYS_remap_file_pages,
    libc::SYS_shmat,
    libc::SYS_vmsplice,
    libc::SYS_sendto,
];

/// Which calls are of which class.
const OF_CLASSES: [(&[i64], u8); 9] = [
    (OF_DESCRIPTORS, DESCRIPTOR),
    (OF_PATHS, ALWAYS),
    (OF_KERNELS_PATHS, ALWAYS),
    (OF_EVERY_TIME, ALWAYS),
    (OF_NAMED, ALWAYS),
    (MAKING_DESCRIPTORS, CREATES),
    (&[libc::SYS_close], CLOSES),
    (OF_ADDRESSES, MAPS),
    (&[libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid], ENDS),
];

/// The classes of each number's calls. They are put together when this is compiled: no program that starts has
/// to.
#[expect(clippy::indexing_slicing, reason = "all of them are below, or it does not compile")]
pub(crate) const BY_NUMBER: [u8; NUMBERS] = {
    let mut all = [0; NUMBERS];
    let mut of_classes = OF_CLASSES.as_slice();
    while let [(of_class, class), rest @ ..] = of_classes {
        let mut numbers = *of_class;
        while let [number, others @ ..] = numbers {
            all[*number as usize] |= *class;
            numbers = others;
        }
        of_classes = rest;
    }
    all
};

/// What is known of each number's calls: [`BY_NUMBER`], until [`keep_only`].
#[expect(clippy::indexing_slicing, reason = "all of them are below, or it does not compile")]
pub(crate) static CLASSES: [AtomicU8; NUMBERS] = {
    let mut all = [const { AtomicU8::new(0) }; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        all[number] = AtomicU8::new(BY_NUMBER[number]);
        number += 1;
    }
    all
};
/// Numbers whose words of the descriptor table are the library's own memory: below the usual limit, and where
/// what it opens itself is put.
pub(crate) const LOW_NUMBERS: usize = 4352;
/// Where the descriptor table is for all other numbers: 32-bit words, 0 for descriptors of the kernel alone.
/// Without memory none of them has another word.
pub(crate) static HIGH_TABLE: Reserved = Reserved::new();

/// Calls of the kernel's that are looked at nevertheless: [`CREATES`], [`CLOSES`], [`MAPS`], [`ENDS`].
pub(crate) static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Leaves all calls to the kernel from now on, without a look, but for these numbers'.
pub(crate) fn keep_only(numbers: &[i64]) {
    for (number, class) in CLASSES.iter().enumerate() {
        if !numbers.contains(&(number as i64)) {
            class.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether calls of a number are of a class.
pub(crate) fn is_of(number: i64, class: u8) -> bool {
    let entry = usize::try_from(number).ok().and_then(|number| CLASSES.get(number));
    entry.is_some_and(|entry| entry.load(Ordering::Relaxed) & class != 0)
}

/// Looks at calls of a class from now on, or no longer. One thread at a time for each class.
pub(crate) fn watch(class: u8, on: bool) {
    if on {
        WATCHED.fetch_or(u32::from(class), Ordering::Relaxed);
    } else {
        WATCHED.fetch_and(!u32::from(class), Ordering::Relaxed);
    }
}

/// Whether calls of a number need to come here.
#[inline]
pub(crate) fn is_wanted(number: u16) -> bool {
    BY_NUMBER.get(usize::from(number)).is_some_and(|class| *class != 0)
}

/// The common entry of all sites that are functions' own.
pub(crate) fn address() -> u64 {
    novale_entry as *const () as u64
}

/// That of all others, which keeps flags and vector registers.
pub(crate) fn address_keeping() -> u64 {
    novale_entry_keeping as *const () as u64
}

unsafe extern "C" {
    fn novale_entry();
    fn novale_entry_keeping();
}
