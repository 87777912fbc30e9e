/*
 * Novale's C interface: pools in persistent memory, and the files in them, without the kernel
 * between. See novale(3).
 *
 * Made by `cargo xtask header` of the declarations and comments in crates/capi/src: change them
 * there.
 *
 * Results. A call that can fail returns an error number of <errno.h> below 0, such as -ENOENT, and
 * never -1 with errno, which it leaves undefined. 0 and above is success: 0, a count of bytes or an
 * offset, as the call says. novale_strerror puts a number into words; novale_message says more of
 * the thread's last failure.
 *
 * Errors of every call. -EINVAL: a handle is NULL. -EBADF: a handle is closed or of another kind, as
 * far as that can be seen. -EFAULT: another pointer is NULL that must not be. -ESHUTDOWN: the pool
 * is closed, or the handle is a parent process's. -EUCLEAN: the pool is damaged. -EIO: a bug of
 * Novale was stopped, which novale_message describes; what is durable is sound, so close the pool
 * and open it again. -ENOMEM, -EROFS and -ESTALE as in the kernel. Calls with paths: -ENOENT,
 * -ENOTDIR, -ELOOP, -ENAMETOOLONG.
 *
 * Pointers. What is not NULL must point to what the call says, for as long as the call takes: a
 * handle that is not closed, a string with its NUL, as many bytes or elements as are said. Strings
 * are bytes; paths start at the pool's root, with or without a slash.
 *
 * Durability. What changes a pool is durable when it returns, and after a crash it is there whole or
 * not at all. There is nothing to flush, but what is stored to a mapping (novale_mmap) or written in
 * mode "buffered" (novale_set_mode): that is durable with novale_fsync, or with O_DSYNC when it is
 * written.
 *
 * Threads. All calls may be made from all threads at once, also on the same handles; only the call
 * that closes a handle must be the last one on it. They are not for signal handlers.
 *
 * Processes. A handle belongs to the process that has made it. A child that fork() made must not use
 * or close it (it gets -ESHUTDOWN); it may open the pool itself, and exec anything. A process that
 * dies, or execs with a pool open, leaves a pool that others go on with. Where a child lives on that
 * it has made by clone() or a system call, not by libc's fork(), and that has not exec'd, nobody can open
 * the pool once all others have left it, until that child ends (-EAGAIN).
 *
 * Permissions. Who may open the slots may do all: permission bits are stored, and not checked.
 *
 * Units. Sizes, lengths and offsets are bytes, but where a field says another unit. Times are of
 * 1677 to 2262; others are moved to the nearest.
 */

#ifndef NOVALE_H
#define NOVALE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

// An open pool.
typedef struct novale_t novale_t;

// An open file or directory.
typedef struct novale_file_t novale_file_t;

// A directory that is being listed.
typedef struct novale_dir_t novale_dir_t;

// A mapping of a file.
typedef struct novale_map_t novale_map_t;

// The number of this interface: `novale_open` takes it, and refuses another one. It changes with
// each change that a program built before would not survive. The soname ends in it.
#define NOVALE_ABI 1

// For novale_mkfs: overwrite what the slots hold.
#define NOVALE_MKFS_OVERWRITE 1

// For novale_mmap: a replica, of which novale_msync publishes all changes at once.
#define NOVALE_MAP_ATOMIC 1

// Space and inodes of a pool.
typedef struct novale_statfs_t {
    // Bytes of a block; the three numbers of blocks count such ones.
    uint64_t block_size;
    // Blocks in all.
    uint64_t blocks;
    // Free blocks.
    uint64_t blocks_free;
    // Free blocks without the reserve for deletes and overwrites on a full pool.
    uint64_t blocks_available;
    // Inodes in use.
    uint64_t inodes;
    // Inodes that could still be made.
    uint64_t inodes_free;
    // The longest name, in bytes without the NUL.
    uint64_t name_max;
} novale_statfs_t;

// An entry of a directory.
typedef struct novale_dirent_t {
    // The inode's number.
    uint64_t ino;
    // For novale_seekdir: where to go on after this entry.
    uint64_t cookie;
    // The inode's kind, DT_REG and so on of <dirent.h>.
    uint8_t kind;
    // The name, with a NUL at its end.
    char name[256];
} novale_dirent_t;

// What a file, directory, link or other inode is.
typedef struct novale_stat_t {
    // The inode's number.
    uint64_t ino;
    // Rises each time the number is used again.
    uint32_t generation;
    // Kind (S_IFMT of <sys/stat.h>) and permission, set-id and sticky bits.
    uint32_t mode;
    // Number of names; of a directory 2 and one for each subdirectory.
    uint32_t nlink;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Bytes of a block, in which space is given out.
    uint32_t block_size;
    // A device's number, as makedev(3) makes it; 0 of others.
    uint64_t rdev;
    // Length in bytes.
    uint64_t size;
    // Space in units of 512 bytes.
    uint64_t blocks;
    // Last access.
    struct timespec atime;
    // Last change of the contents.
    struct timespec mtime;
    // Last change of the attributes.
    struct timespec ctime;
    // When it was made.
    struct timespec btime;
} novale_stat_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The number of the interface that the library at hand has. It equals NOVALE_ABI where header and
// library belong together.
uint32_t novale_abi(void);

// The library's version, such as "0.1.0". Never NULL, never freed.
const char *novale_version(void);

// What an error number means, such as "No such file or directory"; the sign does not matter. Valid
// until the thread's next novale_strerror or novale_message. Never NULL but in a thread that is
// ending.
const char *novale_strerror(int error);

// Why the thread's last failing call failed, in more words than its number has: which slot, which
// damage, what to do. "" before the first. Valid as the string of novale_strerror.
const char *novale_message(void);

// Makes an empty pool of 1 to 64 slots. A slot that is not there is made, as a file of slot_bytes
// bytes that its owner alone may use (0600); one that is there, file or device, keeps its length.
// The root directory belongs to the calling process's effective user and group, with mode 0755.
//
// slot_bytes: 2 MiB at least for the first slot, 1 MiB for others; 0 where all slots are there.
// flags: 0, or NOVALE_MKFS_OVERWRITE.
//
// Returns 0. Errors: -EEXIST (a slot holds something, and NOVALE_MKFS_OVERWRITE was not given),
// -EBUSY (a slot is in use), -EINVAL (too small, too many, no size, unknown flags), -ENOSPC, and
// those of open(2). Files that it has made are removed then.
int novale_mkfs(const char *const *slots, size_t slot_count, uint64_t slot_bytes, uint32_t flags);

// As novale_mkfs, of a pool whose files are written by a method and in a mode, where they or their
// directories choose no other: see novale_set_method and novale_set_mode. NULL: none is said, as
// novale_mkfs does.
//
// Returns 0. Errors: -EINVAL (no such name), and those of novale_mkfs.
int novale_mkfs_as(const char *const *slots,
                   size_t slot_count,
                   uint64_t slot_bytes,
                   uint32_t flags,
                   const char *method,
                   const char *mode);

// Opens a pool by the paths of all its slots, in any order. Where another process has it open and
// shares it (a mount with -o direct, another user of this library), joins that one, else opens it
// for others to join; after a crash that recovers it first. New inodes belong to the process's
// effective user and group at this moment.
//
// abi: NOVALE_ABI. flags: 0. *pool: the pool, NULL on failure; novale_close ends it.
//
// Returns 0. Errors: -ELIBBAD (abi is not the library's, whose number novale_abi tells, or who has
// the pool open uses another build), -EBUSY (somebody has the pool alone, and still after a tenth of
// a second: a mount without -o direct, a check, a recovery), -EAGAIN (it is being closed, for
// seconds by now), -EACCES (the slots, or the memory that its users share, are another user's),
// -EUCLEAN (no pool, damage, slots that do not belong together), -ENOMEM, -EINVAL, -EFAULT, and
// those of open(2). novale_message says more.
int novale_open(uint32_t abi,
                const char *const *slots,
                size_t slot_count,
                uint32_t flags,
                novale_t **pool);

// Leaves a pool, and closes it where nobody else has it. Calls on it and on its files must have
// returned. Files, directories and mappings that are still open are cut off: calls on them fail with
// -ESHUTDOWN, and they are to be closed all the same. At the address of a mapping of a file's own
// pages nothing is any more: who loads or stores there gets SIGSEGV. After this, whatever it returns
// but -EINVAL, -EBADF or -ESHUTDOWN, the pointer is dead.
//
// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN (see above), and -EIO or -EUCLEAN where the pool
// could not be closed in order: nothing is lost, the next opening recovers it.
int novale_close(novale_t *pool);

// Space and inodes of a pool.
//
// Returns 0. Errors: -EFAULT, and those of every call.
int novale_statfs(const novale_t *pool, struct novale_statfs_t *statfs);

// Opens a file, as open(2) does; a directory for reading only, to be synced or looked at. With
// O_TMPFILE makes one without a name, which novale_flink gives it, or closing it takes it away.
//
// flags: those of <fcntl.h>. O_DIRECT, O_CLOEXEC, O_NOATIME, O_NOCTTY, O_NONBLOCK and O_LARGEFILE
// change nothing; nor do O_SYNC and O_DSYNC where every write is durable when it returns, which it is
// but in a file of mode "buffered" (novale_set_mode).
// mode: permission and set-id bits of a file that is made; the umask takes none of them away.
// *file: the file, NULL on failure; novale_file_close closes it.
//
// Returns 0. Errors: those of open(2), -EOPNOTSUPP for O_PATH, and what is a FIFO, a socket or a
// device.
int novale_file_open(const novale_t *pool,
                     const char *path,
                     int flags,
                     uint32_t mode,
                     novale_file_t **file);

// Closes a file; the pointer is dead after that. One without a name is gone then.
//
// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN for what is no open file of this process.
int novale_file_close(novale_file_t *file);

// Reads up to bytes bytes at the position and moves it.
//
// Returns how many, 0 at the end of the file. Errors: -EBADF (not open for reading), -EISDIR,
// -EFAULT, -EUCLEAN (damage).
ssize_t novale_read(const novale_file_t *file, void *buffer, size_t bytes);

// As novale_read, at an offset in bytes; the position stays.
ssize_t novale_pread(const novale_file_t *file, void *buffer, size_t bytes, int64_t from);

// As novale_read, into up to 1024 buffers one after the other, as one read.
//
// Errors: -EINVAL (too many buffers), -ENOMEM, and those of novale_read.
ssize_t novale_readv(const novale_file_t *file, const struct iovec *buffers, int count);

// As novale_readv, at an offset in bytes; the position stays.
ssize_t novale_preadv(const novale_file_t *file,
                      const struct iovec *buffers,
                      int count,
                      int64_t from);

// Writes bytes at the position, or at the file's end with O_APPEND, and moves the position. Once it
// returns, all bytes are durable; after a crash before that, all are there or none.
//
// Returns how many: all. Errors, with nothing written: -EBADF (not open for writing), -EFBIG,
// -ENOSPC, -EDQUOT, -ENOMEM, -EFAULT.
ssize_t novale_write(const novale_file_t *file, const void *buffer, size_t bytes);

// As novale_write, at an offset in bytes, with O_APPEND too; the position stays.
ssize_t novale_pwrite(const novale_file_t *file, const void *buffer, size_t bytes, int64_t to);

// As novale_write, of up to 1024 buffers one after the other, as one write: all of them or none.
//
// Errors: -EINVAL (too many buffers), -ENOMEM, and those of novale_write.
ssize_t novale_writev(const novale_file_t *file, const struct iovec *buffers, int count);

// As novale_writev, at an offset in bytes, with O_APPEND too; the position stays.
ssize_t novale_pwritev(const novale_file_t *file,
                       const struct iovec *buffers,
                       int count,
                       int64_t to);

// Moves the position, beyond the end too. from: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE
// of <unistd.h>.
//
// Returns the new position in bytes. Errors: -EINVAL (before the start, unknown from), -ENXIO (no
// data or hole there).
int64_t novale_lseek(const novale_file_t *file,
                     int64_t by,
                     int from);

// Returns once what was written is durable: at once, for it is already, but in a file of mode
// "buffered" (novale_set_mode).
//
// Returns 0. Errors: those of every call.
int novale_fsync(const novale_file_t *file);

// Cuts a file, or extends it by zeros, to a length in bytes. Durable, and all or nothing.
//
// Returns 0. Errors: -EBADF (not open for writing), -EINVAL (below 0, no regular file), -EFBIG,
// -ENOSPC.
int novale_ftruncate(const novale_file_t *file, int64_t length);

// Reserves space for a range of bytes, or punches, zeroes, takes out or inserts it. Durable, and all
// or nothing. mode: 0 or FALLOC_FL_ flags of <linux/falloc.h>, all but FALLOC_FL_UNSHARE_RANGE.
//
// Returns 0. Errors: -EBADF (not open for writing), -EINVAL (an empty range; one not of whole blocks
// where it must be), -EOPNOTSUPP (flags), -EFBIG, -ENOSPC, -EDQUOT.
int novale_fallocate(const novale_file_t *file,
                     int mode,
                     int64_t from,
                     int64_t length);

// Copies bytes between two files of a pool, or within one where the ranges do not overlap. Each
// offset in bytes is moved by what was copied; where it is NULL, the file's position is used and
// moved. One call copies up to 16 MiB, durably, and all or nothing. flags: 0.
//
// Returns how many bytes, 0 at the end of the source. Errors: -EBADF (a file's access, O_APPEND),
// -EINVAL (overlapping ranges, no regular file, flags), -EXDEV (files of two pools), -EFBIG,
// -ENOSPC, -EDQUOT.
ssize_t novale_copy_file_range(const novale_file_t *source,
                               int64_t *source_offset,
                               const novale_file_t *target,
                               int64_t *target_offset,
                               size_t bytes,
                               uint32_t flags);

// Maps bytes bytes of a file from an offset on, for reading and writing, which the file must be open
// for.
//
// flags: 0 or NOVALE_MAP_ATOMIC. With 0 what is mapped are the file's own pages: from is a multiple of
// 4096, and the last byte must lie in a page of the file. What is stored there all others see at
// once; a crash keeps any part of it, by units of 8 bytes, until novale_msync has made it durable,
// and so it does with what is written to the file meanwhile. With NOVALE_MAP_ATOMIC it is a copy in
// memory, nobody else's.
// *map: the mapping, NULL on failure; novale_munmap ends it. It needs the file no longer.
//
// Returns 0. Errors: -EBADF (not open for both), -EINVAL (the range, the flags), -EBUSY (the kernel
// has the file mapped), -ENOSPC (holes get pages), -ENOMEM.
int novale_mmap(const novale_file_t *file,
                int64_t from,
                size_t bytes,
                int flags,
                novale_map_t **map);

// Tells where a mapping is: *address its first byte, and *bytes how many it has, whole pages of the
// file's own. It is valid until novale_munmap, of the file's own pages until novale_close too, and not
// in a child of fork.
//
// Returns 0. Errors: those of every call.
int novale_map_address(const novale_map_t *map,
                       void **address,
                       size_t *bytes);

// Makes durable what was stored in bytes bytes of a mapping, from its byte from on. Of a replica all
// changes are published, wherever they are: after a crash all of them are there, or none; nothing
// must be stored to it meanwhile.
//
// Returns 0. Errors: -EINVAL (beyond the mapping), of a replica -EBUSY (somebody has the file's own
// pages mapped), -ENOSPC.
int novale_msync(const novale_map_t *map,
                 size_t from,
                 size_t bytes);

// Ends a mapping; the pointer and what was mapped are dead after that. What a replica has not
// published is lost; what was stored to a file's own pages is durable then, as it is after a
// novale_fsync of the file by any process.
//
// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN for what is no mapping of this process.
int novale_munmap(novale_map_t *map);

// Chooses the method by which a file is written, by its name; of a directory, the method of what is
// made in it from now on. "auto", "cow", "inplace", "finelog", "paired", "adl", "zcl", "lawn": see README.md.
// NULL takes the choice away, so that the pool's holds. What was written by one method is read and
// written by all. With "inplace" an overwrite is atomic by 8 bytes alone.
//
// Returns 0. Errors: -EINVAL (no such name; neither file nor directory), -ENOSPC.
int novale_set_method(const novale_t *pool,
                      const char *path,
                      const char *method);

// Tells the name of the method by which a file is written, or what is made in a directory: its own,
// or the pool's. The name gets no NUL. size 0 asks for the length alone.
//
// Returns the name's length in bytes. Errors: -ERANGE (longer than size).
ssize_t novale_get_method(const novale_t *pool, const char *path, char *name, size_t size);

// Chooses when the writes of a file become durable; of a directory, those of what is made in it from
// now on. "strict": when they return. "buffered": with the file's next novale_fsync, or when the
// pool is closed; a mount that shares the pool does so after some seconds, too, and this library does
// not. A crash before that, of the machine or of all processes that have the pool open, leaves what
// some first part of the writes made. NULL takes the choice away, so that the pool's holds. It counts
// in a pool that has a mode (novale_mkfs_as, novale mkfs --mode, or -o mode= of the mount that opened
// it); in others all is strict.
//
// Returns 0. Errors: -EINVAL (no such name; neither file nor directory), -ENOSPC.
int novale_set_mode(const novale_t *pool,
                    const char *path,
                    const char *mode);

// As novale_get_method, of the mode.
//
// Returns the name's length in bytes. Errors: -ERANGE (longer than size).
ssize_t novale_get_mode(const novale_t *pool, const char *path, char *name, size_t size);

// As novale_pwrite, of bytes bytes of a mapping, from its byte from on. Where the mapping is of a
// file's own pages, in the same pool, and the file written has the method "zcl", the mapped bytes are
// the log of the write: they are stored once. Nobody must change them meanwhile.
//
// Returns how many: all. Errors: -EINVAL (beyond the mapping; a replica's), and those of
// novale_pwrite.
ssize_t novale_write_from(const novale_file_t *file,
                          int64_t to,
                          const novale_map_t *map,
                          size_t from,
                          size_t bytes);

// Makes a directory. mode: permission bits; the umask takes none of them away.
//
// Returns 0. Errors: those of mkdir(2).
int novale_mkdir(const novale_t *pool, const char *path, uint32_t mode);

// Makes a FIFO, a socket, a device of number device, or an empty file. mode: its kind (S_IFIFO,
// S_IFSOCK, S_IFCHR, S_IFBLK; S_IFREG or 0 for a file) and permission bits; the umask takes none
// of them away.
//
// Returns 0. Errors: those of mknod(2).
int novale_mknod(const novale_t *pool, const char *path, uint32_t mode, uint64_t device);

// Removes an empty directory.
//
// Returns 0. Errors: those of rmdir(2).
int novale_rmdir(const novale_t *pool, const char *path);

// Removes a name that is no directory's. What it named goes with its last name, once nobody has it
// open.
//
// Returns 0. Errors: those of unlink(2).
int novale_unlink(const novale_t *pool, const char *path);

// Renames, replacing what stands at to; with RENAME_NOREPLACE (1) fails where something does, with
// RENAME_EXCHANGE (2) swaps the two. Durable, and all or nothing.
//
// Returns 0. Errors: those of renameat2(2).
int novale_rename(const novale_t *pool, const char *from, const char *to, uint32_t flags);

// Gives what existing names one more name; a symbolic link is linked itself.
//
// Returns 0. Errors: those of link(2).
int novale_link(const novale_t *pool, const char *existing, const char *path);

// Gives an open file one more name, or one that was opened with O_TMPFILE its first.
//
// Returns 0. Errors: those of link(2), -ENOENT for a file whose last name was removed and for one of
// O_TMPFILE with O_EXCL, -EXDEV for a file of another pool.
int novale_flink(const novale_t *pool,
                 const novale_file_t *file,
                 const char *path);

// Makes a symbolic link at path that holds target, whatever that is.
//
// Returns 0. Errors: those of symlink(2).
int novale_symlink(const novale_t *pool, const char *target, const char *path);

// Stores what a symbolic link holds, without a NUL; of what is longer than size bytes the start.
//
// Returns how many bytes were stored. Errors: -EINVAL (no symbolic link, size 0), and others of
// readlink(2).
ssize_t novale_readlink(const novale_t *pool, const char *path, char *buffer, size_t size);

// Opens a directory to be listed. *directory: the listing, NULL on failure; novale_closedir ends it.
//
// Returns 0. Errors: those of opendir(3).
int novale_opendir(const novale_t *pool,
                   const char *path,
                   novale_dir_t **directory);

// Stores the next entry. "." and ".." are not among them. Names that go while a directory is listed
// may be seen or not, names that come are not seen before it starts again, all others are seen once.
//
// Returns 1 for an entry, 0 after the last one. Errors: -EFAULT, -EUCLEAN (damage).
int novale_readdir(const novale_dir_t *directory,
                   struct novale_dirent_t *entry);

// Goes on after the entry with this cookie, also of another listing of the same directory; 0 is
// the start.
//
// Returns 0. Errors: those of every call.
int novale_seekdir(const novale_dir_t *directory, uint64_t cookie);

// Ends a listing; the pointer is dead after that.
//
// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN for what is no open listing of this process.
int novale_closedir(novale_dir_t *directory);

// Tells what a path names, the end of a final symbolic link.
//
// Returns 0. Errors: those of stat(2), without permissions.
int novale_stat(const novale_t *pool, const char *path, struct novale_stat_t *stat);

// As novale_stat, of a final symbolic link itself.
int novale_lstat(const novale_t *pool, const char *path, struct novale_stat_t *stat);

// As novale_stat, of an open file.
int novale_fstat(const novale_file_t *file, struct novale_stat_t *stat);

// Sets the permission, set-id and sticky bits of what a path names, the end of a final symbolic link.
//
// Returns 0. Errors: those of chmod(2), without permissions.
int novale_chmod(const novale_t *pool,
                 const char *path,
                 uint32_t mode);

// As novale_chmod, of an open file.
int novale_fchmod(const novale_file_t *file, uint32_t mode);

// Sets owner and group of what a path names, the end of a final symbolic link; (uint32_t)-1 leaves
// one as it is. Set-id bits fall as in Linux.
//
// Returns 0. Errors: those of chown(2), without permissions.
int novale_chown(const novale_t *pool, const char *path, uint32_t uid, uint32_t gid);

// As novale_chown, of a final symbolic link itself.
int novale_lchown(const novale_t *pool, const char *path, uint32_t uid, uint32_t gid);

// As novale_chown, of an open file.
int novale_fchown(const novale_file_t *file, uint32_t uid, uint32_t gid);

// Sets the times of access (times[0]) and of change (times[1]) of what a path names; NULL is now for
// both. UTIME_NOW and UTIME_OMIT of <sys/stat.h> are taken for tv_nsec. flags: 0, or
// AT_SYMLINK_NOFOLLOW of <fcntl.h> for a final symbolic link itself.
//
// Returns 0. Errors: those of utimensat(2), without permissions.
int novale_utimens(const novale_t *pool,
                   const char *path,
                   const struct timespec *times,
                   int flags);

// As novale_utimens, of an open file.
int novale_futimens(const novale_file_t *file, const struct timespec *times);

// Stores the value of an extended attribute, such as "user.note", of what a path names. With size 0
// only tells how long it is.
//
// Returns its length in bytes. Errors: -ENODATA (no such attribute), -ERANGE (longer than size), and
// others of getxattr(2).
ssize_t novale_getxattr(const novale_t *pool,
                        const char *path,
                        const char *name,
                        void *value,
                        size_t size);

// As novale_getxattr, of a final symbolic link itself.
ssize_t novale_lgetxattr(const novale_t *pool,
                         const char *path,
                         const char *name,
                         void *value,
                         size_t size);

// As novale_getxattr, of an open file.
ssize_t novale_fgetxattr(const novale_file_t *file, const char *name, void *value, size_t size);

// Sets an extended attribute of what a path names to a value of up to 65536 bytes. Durable, and all
// or nothing. flags: 0, or XATTR_CREATE and XATTR_REPLACE of <sys/xattr.h>.
//
// Returns 0. Errors: -EEXIST, -ENODATA (flags), -E2BIG, -ERANGE (the name's length), -ENOSPC, and
// others of setxattr(2).
int novale_setxattr(const novale_t *pool,
                    const char *path,
                    const char *name,
                    const void *value,
                    size_t size,
                    int flags);

// As novale_setxattr, of a final symbolic link itself.
int novale_lsetxattr(const novale_t *pool,
                     const char *path,
                     const char *name,
                     const void *value,
                     size_t size,
                     int flags);

// As novale_setxattr, of an open file.
int novale_fsetxattr(const novale_file_t *file,
                     const char *name,
                     const void *value,
                     size_t size,
                     int flags);

// Stores the names of the extended attributes of what a path names, each with a NUL after it. With
// size 0 only tells how many bytes they are.
//
// Returns the bytes of all names and NULs. Errors: -ERANGE (more than size), and others of
// listxattr(2).
ssize_t novale_listxattr(const novale_t *pool, const char *path, char *list, size_t size);

// As novale_listxattr, of a final symbolic link itself.
ssize_t novale_llistxattr(const novale_t *pool, const char *path, char *list, size_t size);

// As novale_listxattr, of an open file.
ssize_t novale_flistxattr(const novale_file_t *file, char *list, size_t size);

// Removes an extended attribute of what a path names.
//
// Returns 0. Errors: -ENODATA (no such attribute), and others of removexattr(2).
int novale_removexattr(const novale_t *pool, const char *path, const char *name);

// As novale_removexattr, of a final symbolic link itself.
int novale_lremovexattr(const novale_t *pool, const char *path, const char *name);

// As novale_removexattr, of an open file.
int novale_fremovexattr(const novale_file_t *file, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NOVALE_H */
