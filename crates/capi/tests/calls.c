/*
 * Promise: the calls of novale.h do what they say, refuse what they must, and never crash on what can
 * be checked. Run by scripts/suites/capi.sh with a path for a pool, as C and as C++.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <novale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *slots[1];
static int failed;

static void compare(long long found, long long wanted, const char *call, int line)
{
    if (found != wanted) {
        printf("line %d: %s is %lld, not %lld (%s)\n", line, call, found, wanted, novale_message());
        failed++;
    }
}

#define IS(call, wanted) compare((long long)(call), (long long)(wanted), #call, __LINE__)

static novale_t *pool_of(void)
{
    novale_t *pool = NULL;
    IS(novale_open(NOVALE_ABI, slots, 1, 0, &pool), 0);
    if (!pool)
        exit(1);
    return pool;
}

static novale_file_t *file_of(novale_t *pool, const char *path, int flags)
{
    novale_file_t *file = NULL;
    IS(novale_file_open(pool, path, flags, 0640, &file), 0);
    if (!file)
        exit(1);
    return file;
}

static void opening(void)
{
    novale_t *pool = (novale_t *)slots;
    IS(novale_abi(), NOVALE_ABI);
    IS(strlen(novale_version()) >= 5, 1);
    IS(novale_open(NOVALE_ABI, slots, 1, 0, &pool), -ENOENT);
    IS(pool == NULL, 1);
    IS(novale_mkfs(slots, 1, 0, 0), -EINVAL);
    IS(novale_mkfs(slots, 1, 4096, 0), -EINVAL);
    IS(access(slots[0], F_OK), -1);
    IS(novale_mkfs(slots, 1, 32 << 20, 2), -EINVAL);
    IS(novale_mkfs(slots, 1, 32 << 20, 0), 0);
    IS(novale_mkfs(slots, 1, 32 << 20, 0), -EEXIST);
    IS(strstr(novale_message(), slots[0]) != NULL, 1);
    IS(novale_mkfs(slots, 1, 32 << 20, NOVALE_MKFS_OVERWRITE), 0);
    IS(novale_open(NOVALE_ABI + 1, slots, 1, 0, &pool), -ELIBBAD);
    IS(novale_open(NOVALE_ABI, slots, 1, 1, &pool), -EINVAL);
    IS(novale_open(NOVALE_ABI, slots, 0, 0, &pool), -EINVAL);
    IS(novale_open(NOVALE_ABI, NULL, 1, 0, &pool), -EFAULT);
    IS(novale_open(NOVALE_ABI, slots, 1, 0, NULL), -EFAULT);
    pool = pool_of();
    IS(novale_mkfs(slots, 1, 0, NOVALE_MKFS_OVERWRITE), -EBUSY);
    novale_t *again = pool_of();
    IS(novale_mkdir(again, "/seen-by-both", 0755), 0);
    IS(novale_rmdir(pool, "/seen-by-both"), 0);
    IS(novale_close(again), 0);
    IS(novale_close(pool), 0);
}

static void reading_and_writing(novale_t *pool)
{
    char text[32] = "";
    struct iovec out[3] = {{(void *)"abc", 3}, {NULL, 0}, {(void *)"defg", 4}};
    struct iovec in[2] = {{text, 2}, {text + 8, 20}};
    novale_file_t *file = file_of(pool, "/file", O_RDWR | O_CREAT | O_EXCL);
    IS(novale_write(file, "0123456789", 10), 10);
    IS(novale_writev(file, out, 3), 7);
    IS(novale_pwrite(file, "xy", 2, 1), 2);
    IS(novale_pwritev(file, out, 1, 20), 3);
    IS(novale_lseek(file, 0, SEEK_CUR), 17);
    IS(novale_lseek(file, -3, SEEK_END), 20);
    IS(novale_read(file, text, sizeof text), 3);
    IS(novale_read(file, text, sizeof text), 0);
    IS(novale_pread(file, text, 5, 8), 5);
    IS(memcmp(text, "89abc", 5), 0);
    IS(novale_preadv(file, in, 2, 0), 22);
    IS(memcmp(text, "0x", 2) | memcmp(text + 8, "y3456789abcdefg", 15), 0);
    IS(novale_lseek(file, 0, SEEK_SET), 0);
    IS(novale_readv(file, in, 2), 22);
    IS(novale_fsync(file), 0);
    IS(novale_fallocate(file, 0, 4096, 4096), 0);
    IS(novale_ftruncate(file, 16), 0);
    IS(novale_lseek(file, 0, SEEK_HOLE), 16);
    IS(novale_lseek(file, 16, SEEK_DATA), -ENXIO);
    IS(novale_lseek(file, -1, SEEK_SET), -EINVAL);
    IS(novale_lseek(file, 0, 77), -EINVAL);
    IS(novale_pread(file, text, 1, -1), -EINVAL);
    IS(novale_fallocate(file, 0x40, 0, 1), -EOPNOTSUPP);
    IS(novale_file_close(file), 0);
    file = file_of(pool, "/file", O_WRONLY | O_APPEND);
    IS(novale_read(file, text, 1), -EBADF);
    IS(novale_write(file, "end", 3), 3);
    IS(novale_lseek(file, 0, SEEK_CUR), 19);
    IS(novale_file_close(file), 0);
}

static void copying(novale_t *pool)
{
    int64_t from = 2, to = 0;
    novale_file_t *source = file_of(pool, "/file", O_RDONLY);
    novale_file_t *target = file_of(pool, "/copy", O_RDWR | O_CREAT);
    IS(novale_copy_file_range(source, &from, target, &to, 4, 0), 4);
    IS(from, 6);
    IS(to, 4);
    IS(novale_copy_file_range(source, NULL, target, &to, 2, 0), 2);
    IS(novale_lseek(source, 0, SEEK_CUR), 2);
    IS(novale_lseek(target, 0, SEEK_CUR), 0);
    IS(novale_copy_file_range(source, NULL, target, NULL, 1, 1), -EINVAL);
    from = -1;
    IS(novale_copy_file_range(source, &from, target, NULL, 1, 0), -EINVAL);
    IS(novale_copy_file_range(target, NULL, source, NULL, 1, 0), -EBADF);
    IS(novale_file_close(source), 0);
    IS(novale_file_close(target), 0);
}

static void names(novale_t *pool)
{
    char text[8] = "????";
    novale_file_t *file = NULL;
    IS(novale_mkdir(pool, "/dir", 0750), 0);
    IS(novale_mkdir(pool, "/dir", 0750), -EEXIST);
    IS(novale_link(pool, "/file", "/dir/hard"), 0);
    IS(novale_symlink(pool, "hard", "/dir/soft"), 0);
    IS(novale_readlink(pool, "/dir/soft", text, sizeof text), 4);
    IS(memcmp(text, "hard", 4), 0);
    IS(novale_readlink(pool, "/dir/soft", text, 2), 2);
    IS(novale_readlink(pool, "/dir/soft", text, 0), -EINVAL);
    IS(novale_readlink(pool, "/dir", text, sizeof text), -EINVAL);
    IS(novale_rename(pool, "/dir/hard", "/dir/soft", 1), -EEXIST);
    IS(novale_rename(pool, "/dir/hard", "/dir/soft", 2), 0);
    IS(novale_rename(pool, "/dir/soft", "/dir/name", 0), 0);
    IS(novale_rename(pool, "/dir/name", "/x", 4), -EINVAL);
    IS(novale_mknod(pool, "/dir/null", S_IFCHR | 0600, makedev(1, 3)), 0);
    IS(novale_mknod(pool, "/dir/dir", S_IFDIR | 0600, 0), -EPERM);
    IS(novale_file_open(pool, "/dir/null", O_RDONLY, 0, &file), -EOPNOTSUPP);
    IS(novale_file_open(pool, "/dir/hard", O_RDONLY | O_NOFOLLOW, 0, &file), -ELOOP);
    IS(novale_file_open(pool, "/dir", O_RDWR, 0, &file), -EISDIR);
    IS(novale_file_open(pool, "/file", O_RDONLY | O_DIRECTORY, 0, &file), -ENOTDIR);
    IS(novale_file_open(pool, "/none", O_RDONLY, 0, &file), -ENOENT);
    IS(novale_file_open(pool, "/dir", O_TMPFILE | O_RDONLY, 0600, &file), -EINVAL);
    IS(novale_file_open(pool, "/file", O_TMPFILE | O_RDWR, 0600, &file), -ENOTDIR);
    IS(novale_file_open(pool, "/file", 3, 0, &file), -EINVAL);
    IS(file == NULL, 1);
    IS(novale_rmdir(pool, "/dir"), -ENOTEMPTY);
    IS(novale_unlink(pool, "/dir"), -EISDIR);
    IS(novale_unlink(pool, "/none"), -ENOENT);
    IS(strcmp(novale_strerror(-ENOENT), "No such file or directory"), 0);
}

static void files_without_a_name(novale_t *pool)
{
    novale_stat_t stat;
    novale_file_t *file = file_of(pool, "/dir", O_TMPFILE | O_RDWR);
    IS(novale_write(file, "whole", 5), 5);
    IS(novale_flink(pool, file, "/dir/at-once"), 0);
    IS(novale_flink(pool, file, "/dir/at-once"), -EEXIST);
    IS(novale_stat(pool, "/dir/at-once", &stat), 0);
    IS(stat.size, 5);
    IS(stat.nlink, 1);
    IS(novale_file_close(file), 0);
    file = file_of(pool, "/dir", O_TMPFILE | O_RDWR | O_EXCL);
    IS(novale_flink(pool, file, "/dir/never"), -ENOENT);
    IS(novale_file_close(file), 0);
}

static void listing(novale_t *pool)
{
    enum { NAMES = 300 };
    char path[64];
    novale_dir_t *dir = NULL;
    novale_dirent_t entry;
    uint64_t middle = 0;
    int seen = 0, result;
    IS(novale_mkdir(pool, "/many", 0755), 0);
    for (int i = 0; i < NAMES; i++) {
        snprintf(path, sizeof path, "/many/%d", i);
        IS(novale_symlink(pool, "x", path), 0);
    }
    IS(novale_opendir(pool, "/file", &dir), -ENOTDIR);
    IS(novale_opendir(pool, "/many", &dir), 0);
    IS(novale_readdir(dir, NULL), -EFAULT);
    while ((result = novale_readdir(dir, &entry)) == 1) {
        IS(atoi(entry.name), seen);
        IS(entry.kind, 10 /* DT_LNK */);
        if (++seen == NAMES / 2)
            middle = entry.cookie;
    }
    IS(result, 0);
    IS(seen, NAMES);
    IS(novale_seekdir(dir, middle), 0);
    IS(novale_readdir(dir, &entry), 1);
    IS(atoi(entry.name), NAMES / 2);
    IS(novale_closedir(dir), 0);
    /* Who moves each entry that it reads comes to an end. */
    IS(novale_opendir(pool, "/many", &dir), 0);
    for (seen = 0; seen <= NAMES && novale_readdir(dir, &entry) == 1; seen++) {
        snprintf(path, sizeof path, "/many/%.40s", entry.name);
        IS(novale_rename(pool, path, "/away", 0), 0);
        IS(novale_rename(pool, "/away", path, 0), 0);
    }
    IS(seen, NAMES);
    IS(novale_closedir(dir), 0);
}

static void attributes(novale_t *pool)
{
    novale_stat_t stat, again;
    novale_statfs_t space;
    struct timespec times[2] = {{-1, 5}, {0, UTIME_OMIT}};
    novale_file_t *file = file_of(pool, "/file", O_RDONLY);
    IS(novale_stat(pool, "/file", &stat), 0);
    IS(stat.mode, S_IFREG | 0640);
    IS(stat.size, 19);
    IS(stat.nlink, 2);
    IS(novale_chmod(pool, "/file", 0600), 0);
    IS(novale_fchmod(file, 04711), 0);
    IS(novale_chown(pool, "/file", 12, (uint32_t)-1), 0);
    IS(novale_fchown(file, (uint32_t)-1, 34), 0);
    IS(novale_lchown(pool, "/dir/hard", 56, 78), 0);
    IS(novale_utimens(pool, "/file", times, 0), 0);
    IS(novale_fstat(file, &again), 0);
    IS(again.ino, stat.ino);
    IS(again.uid, 12);
    IS(again.gid, 34);
    IS(again.mode & 0777, 0711);
    IS(again.atime.tv_sec, -1);
    IS(again.atime.tv_nsec, 5);
    IS(again.mtime.tv_nsec, stat.mtime.tv_nsec);
    times[0].tv_nsec = 1000000000;
    IS(novale_futimens(file, times), -EINVAL);
    IS(novale_futimens(file, NULL), 0);
    IS(novale_utimens(pool, "/dir/hard", NULL, 1), -EINVAL);
    IS(novale_utimens(pool, "/dir/hard", NULL, AT_SYMLINK_NOFOLLOW), 0);
    IS(novale_lstat(pool, "/dir/hard", &stat), 0);
    IS(stat.mode, S_IFLNK | 0777);
    IS(stat.uid, 56);
    IS(novale_stat(pool, "/dir/null", &stat), 0);
    IS(stat.rdev, makedev(1, 3));
    IS(novale_statfs(pool, &space), 0);
    IS(space.blocks_available < space.blocks_free && space.blocks_free < space.blocks, 1);
    IS(space.block_size * space.blocks <= 32 << 20, 1);
    IS(space.name_max, 255);
    IS(novale_file_close(file), 0);
}

static void extended_attributes(novale_t *pool)
{
    char value[64];
    novale_file_t *file = file_of(pool, "/file", O_RDONLY);
    IS(novale_setxattr(pool, "/file", "user.a", "one", 3, 0), 0);
    IS(novale_setxattr(pool, "/file", "user.a", "two", 3, 1), -EEXIST);
    IS(novale_fsetxattr(file, "user.b", "three", 5, 0), 0);
    IS(novale_fsetxattr(file, "user.b", "three", 5, 7), -EINVAL);
    IS(novale_lsetxattr(pool, "/dir/hard", "trusted.c", "", 0, 0), geteuid() ? -EPERM : 0);
    IS(novale_getxattr(pool, "/file", "user.b", NULL, 0), 5);
    IS(novale_getxattr(pool, "/file", "user.b", value, 4), -ERANGE);
    IS(novale_fgetxattr(file, "user.a", value, sizeof value), 3);
    IS(memcmp(value, "one", 3), 0);
    IS(novale_lgetxattr(pool, "/file", "user.none", value, sizeof value), -ENODATA);
    IS(novale_listxattr(pool, "/file", NULL, 0), 14);
    IS(novale_flistxattr(file, value, 13), -ERANGE);
    IS(novale_llistxattr(pool, "/file", value, sizeof value), 14);
    IS(strlen(value), 6);
    IS(novale_removexattr(pool, "/file", "user.a"), 0);
    IS(novale_fremovexattr(file, "user.a"), -ENODATA);
    IS(novale_lremovexattr(pool, "/file", "user.b"), 0);
    IS(novale_file_close(file), 0);
}

static void null_arguments(novale_t *pool)
{
    char byte = 0;
    struct iovec nowhere = {NULL, 1};
    novale_stat_t stat;
    novale_file_t *file = file_of(pool, "/file", O_RDWR);
    IS(novale_close(NULL), -EINVAL);
    IS(novale_file_close(NULL), -EINVAL);
    IS(novale_closedir(NULL), -EINVAL);
    IS(novale_mkdir(NULL, "/x", 0), -EINVAL);
    IS(novale_stat(NULL, "/", &stat), -EINVAL);
    IS(novale_write(NULL, &byte, 1), -EINVAL);
    IS(novale_readdir(NULL, NULL), -EINVAL);
    IS(novale_mkdir(pool, NULL, 0), -EFAULT);
    IS(novale_rename(pool, "/file", NULL, 0), -EFAULT);
    IS(novale_stat(pool, "/", NULL), -EFAULT);
    IS(novale_statfs(pool, NULL), -EFAULT);
    IS(novale_file_open(pool, "/new", O_CREAT | O_WRONLY, 0, NULL), -EFAULT);
    IS(novale_stat(pool, "/new", &stat), -ENOENT);
    IS(novale_read(file, NULL, 1), -EFAULT);
    IS(novale_write(file, NULL, 1), -EFAULT);
    IS(novale_write(file, NULL, 0), 0);
    IS(novale_write(file, &byte, SIZE_MAX), -EINVAL);
    IS(novale_readv(file, &nowhere, 1), -EFAULT);
    IS(novale_writev(file, &nowhere, 1025), -EINVAL);
    IS(novale_writev(file, NULL, -1), -EINVAL);
    IS(novale_getxattr(pool, "/file", NULL, NULL, 0), -EFAULT);
    /* What is something else is seen to be. */
    IS(novale_file_close((novale_file_t *)pool), -EBADF);
    IS(novale_statfs((novale_t *)file, NULL), -EBADF);
    IS(novale_file_close((novale_file_t *)((char *)file + 1)), -EINVAL);
    IS(novale_file_close(file), 0);
}

enum { THREADS = 4, WRITES = 200 };

static void *write_lines(void *argument)
{
    novale_file_t *file = (novale_file_t *)argument;
    for (int i = 0; i < WRITES; i++)
        IS(novale_write(file, "0123456789abcde\n", 16), 16);
    return NULL;
}

static void threads(novale_t *pool)
{
    pthread_t ids[THREADS];
    novale_stat_t stat;
    novale_file_t *file = file_of(pool, "/lines", O_WRONLY | O_CREAT | O_APPEND);
    for (int i = 0; i < THREADS; i++)
        IS(pthread_create(&ids[i], NULL, write_lines, file), 0);
    for (int i = 0; i < THREADS; i++)
        IS(pthread_join(ids[i], NULL), 0);
    IS(novale_fstat(file, &stat), 0);
    IS(stat.size, THREADS * WRITES * 16);
    IS(novale_file_close(file), 0);
}

static int child_of(void (*run)(novale_t *), novale_t *pool)
{
    int status = -1;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        failed = 0;
        run(pool);
        fflush(stdout);
        _exit(failed != 0);
    }
    waitpid(child, &status, 0);
    return status;
}

static void in_child(novale_t *parents)
{
    novale_t *own;
    IS(novale_mkdir(parents, "/no", 0755), -ESHUTDOWN);
    IS(novale_close(parents), -ESHUTDOWN);
    own = pool_of();
    IS(novale_mkdir(own, "/by-child", 0755), 0);
    IS(novale_close(own), 0);
}

static void dying_child(novale_t *parents)
{
    novale_t *own = pool_of();
    novale_file_t *file = file_of(own, "/last-words", O_WRONLY | O_CREAT);
    (void)parents;
    IS(novale_write(file, "durable", 7), 7);
    if (!failed)
        kill(getpid(), SIGKILL);
}

static void processes(novale_t *pool)
{
    char text[8] = "";
    novale_stat_t stat;
    novale_file_t *file;
    IS(child_of(in_child, pool), 0);
    IS(novale_rmdir(pool, "/by-child"), 0);
    IS(novale_stat(pool, "/no", &stat), -ENOENT);
    IS(WTERMSIG(child_of(dying_child, pool)), SIGKILL);
    file = file_of(pool, "/last-words", O_RDONLY);
    IS(novale_read(file, text, sizeof text), 7);
    IS(memcmp(text, "durable", 7), 0);
    IS(novale_file_close(file), 0);
}

static void mappings(novale_t *pool)
{
    char text[16] = "";
    void *at = NULL;
    size_t bytes = 0;
    novale_stat_t stat;
    novale_map_t *map = NULL, *other = NULL;
    novale_file_t *file = file_of(pool, "/mapped", O_RDWR | O_CREAT | O_EXCL);
    IS(novale_mmap(file, 0, 4096, 0, &map), -EINVAL);
    IS(novale_ftruncate(file, 10000), 0);
    IS(novale_mmap(file, 1, 10, 0, &map), -EINVAL);
    IS(novale_mmap(file, 0, 10, 7, &map), -EINVAL);
    IS(novale_mmap(file, 0, (size_t)1 << 46, NOVALE_MAP_ATOMIC, &map), -ENOMEM);
    IS(novale_mmap(file, 0, SIZE_MAX, NOVALE_MAP_ATOMIC, &map), -EINVAL);
    IS(novale_mmap(file, 0, SIZE_MAX, 0, &map), -EINVAL);
    IS(novale_mmap(file, 4096, 8193, 0, &map), -EINVAL);
    IS(map == NULL, 1);
    /* No hole has got a page. */
    IS(novale_fstat(file, &stat), 0);
    IS(stat.blocks, 0);
    IS(novale_mmap(file, 0, 10000, NOVALE_MAP_ATOMIC, &other), 0);
    IS(novale_map_address(other, &at, &bytes), 0);
    IS(bytes, 10000);
    memcpy((char *)at + 5000, "published", 9);
    IS(novale_pread(file, text, 9, 5000), 9);
    IS(text[0], 0);
    IS(novale_msync(other, 0, bytes), 0);
    IS(novale_pread(file, text, 9, 5000), 9);
    IS(memcmp(text, "published", 9), 0);
    IS(novale_mmap(file, 4096, 5904, 0, &map), 0);
    IS(novale_map_address(map, &at, &bytes), 0);
    IS(bytes, 8192);
    IS(memcmp((char *)at + 904, "published", 9), 0);
    memcpy(at, "stored", 6);
    IS(novale_msync(map, 0, 6), 0);
    IS(novale_msync(map, 8192, 1), -EINVAL);
    IS(novale_pread(file, text, 6, 4096), 6);
    IS(memcmp(text, "stored", 6), 0);
    IS(novale_pwrite(file, "written", 7, 8000), 7);
    IS(memcmp((char *)at + 8000 - 4096, "written", 7), 0);
    IS(novale_munmap(other), 0);
    IS(novale_file_close(file), 0);
    memcpy(at, "longer", 6);
    IS(novale_munmap(map), 0);
    IS(novale_munmap(NULL), -EINVAL);
    IS(novale_unlink(pool, "/mapped"), 0);
}

static void shown(ssize_t length, const char *name, const char *wanted, int line)
{
    compare(length, strlen(wanted), wanted, line);
    compare(memcmp(name, wanted, strlen(wanted)), 0, wanted, line);
}

/* By which method a file is written, and in which mode: of a directory what is made in it. */
static void methods(void)
{
    char name[16] = "", text[8] = "";
    void *at = NULL;
    size_t bytes = 0;
    novale_map_t *map = NULL, *replica = NULL;
    IS(novale_mkfs_as(slots, 1, 0, NOVALE_MKFS_OVERWRITE, "none", NULL), -EINVAL);
    IS(novale_mkfs_as(slots, 1, 0, NOVALE_MKFS_OVERWRITE, "finelog", "strict"), 0);
    novale_t *pool = pool_of();
    novale_file_t *file = file_of(pool, "/source", O_RDWR | O_CREAT);
    IS(novale_mkdir(pool, "/by-zcl", 0755), 0);
    IS(novale_symlink(pool, "nowhere", "/link"), 0);
    IS(novale_mknod(pool, "/fifo", S_IFIFO | 0600, 0), 0);
    shown(novale_get_method(pool, "/source", name, sizeof name), name, "finelog", __LINE__);
    shown(novale_get_mode(pool, "/source", name, sizeof name), name, "strict", __LINE__);
    IS(novale_get_method(pool, "/source", NULL, 0), 7);
    IS(novale_get_method(pool, "/source", name, 6), -ERANGE);
    IS(novale_set_method(pool, "/source", "fine"), -EINVAL);
    IS(novale_set_method(pool, "/fifo", "cow"), -EINVAL);
    IS(novale_set_method(pool, "/link", "cow"), -ENOENT);
    IS(novale_set_method(NULL, "/source", "cow"), -EINVAL);
    IS(novale_set_method(pool, "/source", "cow"), 0);
    IS(novale_set_mode(pool, "/source", "strictly"), -EINVAL);
    IS(novale_set_mode(pool, "/source", "buffered"), 0);
    shown(novale_get_method(pool, "/source", name, sizeof name), name, "cow", __LINE__);
    shown(novale_get_mode(pool, "/source", name, sizeof name), name, "buffered", __LINE__);
    IS(novale_write(file, "buffered", 8), 8);
    IS(novale_fsync(file), 0);
    IS(novale_set_method(pool, "/source", NULL), 0);
    IS(novale_set_mode(pool, "/source", NULL), 0);
    shown(novale_get_method(pool, "/source", name, sizeof name), name, "finelog", __LINE__);
    shown(novale_get_mode(pool, "/source", name, sizeof name), name, "strict", __LINE__);
    /* A write from where the bytes lie in the pool. */
    IS(novale_set_method(pool, "/by-zcl", "zcl"), 0);
    novale_file_t *written = file_of(pool, "/by-zcl/file", O_RDWR | O_CREAT);
    shown(novale_get_method(pool, "/by-zcl/file", name, sizeof name), name, "zcl", __LINE__);
    IS(novale_fallocate(written, 0, 0, 8192), 0);
    IS(novale_mmap(file, 0, 8, 0, &map), 0);
    IS(novale_mmap(file, 0, 8, NOVALE_MAP_ATOMIC, &replica), 0);
    IS(novale_map_address(map, &at, &bytes), 0);
    memcpy(at, "zerocopy", 8);
    IS(novale_write_from(written, 100, map, 4, 4), 4);
    IS(novale_pread(written, text, 4, 100), 4);
    IS(memcmp(text, "copy", 4), 0);
    IS(novale_write_from(written, 0, map, bytes - 1, 2), -EINVAL);
    IS(novale_write_from(written, 0, map, SIZE_MAX, 2), -EINVAL);
    IS(novale_write_from(written, -1, map, 0, 2), -EINVAL);
    IS(novale_write_from(written, 0, replica, 0, 2), -EINVAL);
    IS(novale_write_from(written, 0, NULL, 0, 2), -EINVAL);
    IS(novale_munmap(replica), 0);
    IS(novale_munmap(map), 0);
    IS(novale_file_close(written), 0);
    IS(novale_file_close(file), 0);
    IS(novale_close(pool), 0);
    pool = pool_of();
    shown(novale_get_method(pool, "/by-zcl", name, sizeof name), name, "zcl", __LINE__);
    shown(novale_get_method(pool, "/", name, sizeof name), name, "finelog", __LINE__);
    IS(novale_close(pool), 0);
}

static char *was_mapped;

static void store_there(novale_t *none)
{
    (void)none;
    *was_mapped = 1;
}

static void closing(novale_t *pool)
{
    char byte = 0;
    void *at = NULL;
    size_t bytes = 0;
    novale_dir_t *dir = NULL;
    novale_dirent_t entry;
    novale_map_t *map = NULL, *replica = NULL;
    novale_file_t *file = file_of(pool, "/file", O_RDWR);
    IS(novale_opendir(pool, "/", &dir), 0);
    IS(novale_mmap(file, 0, 8, 0, &map), 0);
    IS(novale_mmap(file, 0, 8, NOVALE_MAP_ATOMIC, &replica), 0);
    IS(novale_map_address(map, &at, &bytes), 0);
    was_mapped = (char *)at;
    *was_mapped = 1;
    IS(novale_close(pool), 0);
    /* Its pages may be other files'. */
    IS(WTERMSIG(child_of(store_there, NULL)), SIGSEGV);
    IS(novale_map_address(map, &at, &bytes), -ESHUTDOWN);
    IS(novale_msync(map, 0, 1), -ESHUTDOWN);
    IS(novale_munmap(map), 0);
    IS(novale_map_address(replica, &at, &bytes), 0);
    *(char *)at = 2;
    IS(novale_msync(replica, 0, 1), -ESHUTDOWN);
    IS(novale_munmap(replica), 0);
    IS(novale_read(file, &byte, 1), -ESHUTDOWN);
    IS(novale_write(file, &byte, 1), -ESHUTDOWN);
    IS(novale_readdir(dir, &entry), -ESHUTDOWN);
    IS(novale_closedir(dir), 0);
    IS(novale_file_close(file), 0);
    /* Nobody has it now. */
    pool = pool_of();
    IS(novale_unlink(pool, "/last-words"), 0);
    IS(novale_close(pool), 0);
}

int main(int count, char **arguments)
{
    novale_t *pool;
    if (count != 2)
        return 2;
    slots[0] = arguments[1];
    opening();
    pool = pool_of();
    reading_and_writing(pool);
    copying(pool);
    names(pool);
    files_without_a_name(pool);
    mappings(pool);
    listing(pool);
    attributes(pool);
    extended_attributes(pool);
    null_arguments(pool);
    threads(pool);
    processes(pool);
    closing(pool);
    methods();
    printf("%d failed\n", failed);
    return failed != 0;
}
