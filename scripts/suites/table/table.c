// table DIR: file system calls with good and bad arguments, a line each: the call, what it returns, and
// what has changed by it in a folder of files that is made anew then. The lines of two file systems are
// to be the same. Calls are raw ones, by libc's syscall(), so that libc judges none of their arguments.
//
// A row is one call (K), or a call with each of the paths (P: `path`), of the descriptors (D: `fd`), or
// of the 32 bits of a word of flags (B: `bit`).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CWD AT_FDCWD
#define MOST 0x7fffffffffffffffL
#define LEAST ((long)0x8000000000000000UL)
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static char page[1 << 16], name_256[257], path_4096[4200], snapshot[1 << 14], before[1 << 14];
static char *none; // memory that can't be touched
static const char *home;
static int rd, wr, rw, no, ap, pa, dd, dp, in, out, sock, closed = 700, user;

static void die(const char *what) {
  fflush(stdout);
  perror(what);
  exit(2);
}

static void file(const char *name, const char *text, mode_t mode) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fchmod(fd, mode) || close(fd))
    die(name);
}

static int keep(int fd, int at) {
  if (fd < 0 || dup2(fd, at) != at) die("descriptor");
  close(fd);
  return at;
}

static void clear(const char *dir) {
  DIR *all = opendir(dir);
  if (!all) return;
  for (struct dirent *at; (at = readdir(all));) {
    char name[800];
    snprintf(name, sizeof name, "%s/%s", dir, at->d_name);
    if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0) continue;
    if (unlink(name)) chmod(name, 0700), clear(name), rmdir(name);
  }
  closedir(all);
}

// What another user has beside the folder; for whom is not root it is there already.
static void make_foreign(void) {
  clear("foreign"), rmdir("foreign");
  clear("foreign-folder");
  if (mkdir("foreign-folder", 0755) && errno != EEXIST) die("foreign-folder");
  file("foreign", "secret", 0600);
  file("foreign-folder/f", "public", 0644);
  if (chown("foreign", 65533, 65533) || chown("foreign-folder", 65533, 65533)) die("chown");
}

// The folder of files and the descriptors that the rows name, as if nothing had happened.
static void make(void) {
  if (chdir(home) || (chmod("t", 0700), clear("t"), 0)) die(home);
  if (user == 0) make_foreign();
  if ((mkdir("t", 0755) && errno != EEXIST) || chmod("t", 0755) || chdir("t")) die("t");
  umask(022);
  file("f", "0123456789", 0644);
  file("empty", "", 0600);
  file("x", "#!/bin/false\n", 0755);
  file("closed", "secret", 0);
  file("set-ids", "", 06755);
  file("set-gid", "", 02644);
  if (mkdir("d", 0755) || mkdir("bare", 0755) || mkdir("shut", 0755)) die("mkdir");
  file("d/g", "in a folder", 0640);
  if (chmod("shut", 0)) die("shut");
  if (symlink("f", "l") || symlink("nothing", "dangling") || symlink("loop", "loop") ||
      symlink("d", "ld") || mkfifo("fifo", 0644) || setxattr("f", "user.a", "value", 5, 0))
    die("links");
  if (user == 0) {
    file("others", "of another", 0600);
    if (chown("others", 65533, 65533)) die("chown");
  }
  rd = keep(open("f", O_RDONLY), 100);
  wr = keep(open("f", O_WRONLY), 101);
  rw = keep(open("f", O_RDWR), 102);
  ap = keep(open("f", O_RDWR | O_APPEND), 103);
  pa = keep(open("f", O_PATH), 104);
  dd = keep(open("d", O_RDONLY | O_DIRECTORY), 105);
  dp = keep(open("d", O_PATH | O_DIRECTORY), 106);
  int both[2];
  if (pipe2(both, O_NONBLOCK)) die("pipe");
  in = keep(both[0], 107), out = keep(both[1], 108);
  sock = keep(socket(AF_UNIX, SOCK_DGRAM, 0), 109);
  no = keep(open("f", O_ACCMODE), 110);
}

static int put(int at, const char *name, const char *shown) {
  struct stat s;
  if (lstat(name, &s)) return at;
  at += sprintf(snapshot + at, " %s=%o,%ld,%d:%d", shown, s.st_mode, S_ISDIR(s.st_mode) ? 0 : (long)s.st_nlink,
                s.st_uid, s.st_gid);
  if (S_ISREG(s.st_mode)) at += sprintf(snapshot + at, ",%ld", (long)s.st_size);
  return at;
}

static int compare(const void *a, const void *b) { return strcmp(a, b); }

static int list(int at, const char *dir) {
  static char names[64][300];
  int count = 0;
  DIR *all = opendir(dir);
  if (!all) return at;
  for (struct dirent *entry; count < 64 && (entry = readdir(all));)
    if (strcmp(entry->d_name, "..") != 0) snprintf(names[count++], 300, "%s/%s", dir, entry->d_name);
  closedir(all);
  qsort(names, count, sizeof names[0], compare);
  for (int i = 0; i < count; i++) {
    char shown[16];
    snprintf(shown, sizeof shown, "%s", names[i] + 2);
    at = put(at, names[i], dir[1] ? strrchr(names[i], '/') - 1 : shown);
  }
  return at;
}

// All that a row may have changed.
static void look(void) {
  if (chdir(home) || chdir("t")) die("look");
  char text[32] = "", value[32] = "";
  int at = list(0, "."), fd = open("f", O_RDONLY);
  at = list(at, "./d");
  at = put(at, "../foreign", "foreign");
  at = put(at, "../foreign-folder/f", "foreign-f");
  at = put(at, "../foreign-folder/new", "foreign-new");
  if (fd >= 0) {
    if (read(fd, text, 24) < 0) strcpy(text, "none");
    close(fd);
    for (char *c = text; c < text + 24; c++)
      if (!*c) *c = '.';
  }
  getxattr("f", "user.a", value, 31);
  at += sprintf(snapshot + at, " text=%.24s user.a=%s at=", text, value);
  for (int i = rd; i <= ap; i++) at += sprintf(snapshot + at, "%ld,", (long)lseek(i, 0, SEEK_CUR));
  for (int i = rd; i <= sock; i++) at += sprintf(snapshot + at, "%x:%x,", fcntl(i, F_GETFL), fcntl(i, F_GETFD));
}

// The words of the second that the first has not.
static void differences(const char *old, const char *new) {
  char copy[sizeof snapshot], *rest = copy, *word;
  strcpy(copy, new);
  while ((word = strsep(&rest, " "))) {
    char *found = *word ? strstr(old, word) : (char *)old;
    if (!found || (found[strlen(word)] != ' ' && found[strlen(word)] && *word)) printf(" %s", word);
  }
}

static void hurry(int signal) { (void)signal; }

static int gives_descriptor(long call) {
  return call == SYS_open || call == SYS_openat || call == SYS_openat2 || call == SYS_creat ||
         call == SYS_dup || call == SYS_dup2 || call == SYS_dup3;
}

static const char *named(int error) {
  const char *name = strerrorname_np(error);
  return name ? name : "unknown";
}

static int rows;
static uid_t acting; // by whom a row is called

static void row(const char *text, const char *with, long call, long a, long b, long c, long d, long e, long f) {
  struct itimerval limit = {.it_value = {.tv_usec = 300000}}, no_limit = {0};
  rows++;
  if (acting && seteuid(acting)) die("seteuid");
  setitimer(ITIMER_REAL, &limit, 0);
  errno = 0;
  long result = syscall(call, a, b, c, d, e, f);
  int error = errno;
  setitimer(ITIMER_REAL, &no_limit, 0);
  if (acting && seteuid(0)) die("seteuid");
  printf("%s%s%s%s -> ", acting ? "by another: " : "", text, *with ? " with " : "", with);
  if (result == -1)
    printf("%s", named(error));
  else if (call == SYS_inotify_add_watch)
    printf("watched");
  else if (call == SYS_mmap || call == SYS_mremap)
    munmap((void *)result, 4096), printf("mapped");
  else
    printf("%ld", result);
  int is_new = result >= 0 && (gives_descriptor(call) || (call == SYS_fcntl && (b == F_DUPFD || b == F_DUPFD_CLOEXEC)));
  if (is_new) {
    printf(" flags %x %x", fcntl((int)result, F_GETFL), fcntl((int)result, F_GETFD));
    if (result < rd || result > sock) close((int)result);
  }
  // What fails changes nothing, and is looked at now and then.
  int changed = 0;
  if (result != -1 || rows % 32 == 0) look(), changed = strcmp(before, snapshot) != 0;
  if (changed) printf(" | "), differences(before, snapshot), printf(" | was"), differences(snapshot, before);
  printf("\n");
  if (changed) make(), look(), strcpy(before, snapshot);
}

static const struct {
  const char *label;
  const char *path;
} paths[] = {{"null", 0}, {"unreadable", (char *)1}, {"empty", ""}, {"name-256", name_256}, {"path-4096", path_4096},
             {"f", "f"}, {"f/", "f/"}, {"f/x", "f/x"}, {"nothing", "nothing"}, {"nothing/", "nothing/"},
             {"nothing/x", "nothing/x"}, {"l", "l"}, {"l/", "l/"}, {"dangling", "dangling"}, {"dangling/", "dangling/"},
             {"loop", "loop"}, {"loop/x", "loop/x"}, {"ld", "ld"}, {"ld/", "ld/"}, {"d", "d"}, {"d/", "d/"},
             {"d/.", "d/."}, {"d/..", "d/.."}, {".", "."}, {"bare", "bare"}, {"bare/", "bare/"}, {"ld/g", "ld/g"},
             {"shut/x", "shut/x"}, {"closed", "closed"}, {"set-ids", "set-ids"}, {"set-gid", "set-gid"}, {"fifo", "fifo"}, {"foreign", "../foreign"},
             {"foreign-folder/f", "../foreign-folder/f"}, {"foreign-folder/new", "../foreign-folder/new"}};

static const struct {
  const char *label;
  int *fd;
} descriptors[] = {{"read-only", &rd}, {"write-only", &wr}, {"both", &rw}, {"neither", &no}, {"append", &ap}, {"path", &pa},
                   {"folder", &dd}, {"path-folder", &dp}, {"closed", &closed}, {"pipe-in", &in}, {"pipe-out", &out},
                   {"socket", &sock}};

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define CALL(text, with, nr, a, b, c, d, e, f, ...) \
  row(text, with, nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define ROW(nr, with, ...) CALL(#nr "(" #__VA_ARGS__ ")", with, SYS_##nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define K(nr, ...) CALL(#nr "(" #__VA_ARGS__ ")", "", SYS_##nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define P(nr, ...)                                                                        \
  for (size_t i = 0; i < COUNT(paths); i++) {                                             \
    const char *path = paths[i].path == (char *)1 ? none : paths[i].path;                 \
    CALL(#nr "(" #__VA_ARGS__ ")", paths[i].label, SYS_##nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0); \
  }
#define D(nr, ...)                                                                              \
  for (size_t i = 0; i < COUNT(descriptors); i++) {                                             \
    int fd = *descriptors[i].fd;                                                                \
    CALL(#nr "(" #__VA_ARGS__ ")", descriptors[i].label, SYS_##nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0); \
  }
#define B(nr, ...)                                                              \
  for (int i = 0; i < 32; i++) {                                                \
    long bit = 1L << i;                                                         \
    char hex[24];                                                               \
    sprintf(hex, "%#lx", bit);                                                  \
    CALL(#nr "(" #__VA_ARGS__ ")", hex, SYS_##nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0); \
  }

static struct open_how how(long flags, long mode, long resolve) {
  return (struct open_how){.flags = flags, .mode = mode, .resolve = resolve};
}

static void opening(void) {
  P(open, path, O_RDONLY | O_NONBLOCK);
  P(open, path, O_RDWR | O_NONBLOCK);
  P(open, path, O_WRONLY | O_TRUNC | O_NONBLOCK);
  P(open, path, O_WRONLY | O_CREAT | O_NONBLOCK, 0644);
  P(open, path, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0604);
  P(open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  P(open, path, O_RDONLY | O_DIRECTORY);
  P(open, path, O_PATH);
  P(open, path, O_PATH | O_NOFOLLOW);
  P(open, path, O_RDWR | O_TMPFILE, 0600);
  P(creat, path, 0600);
  B(openat, CWD, "f", O_NONBLOCK | bit);
  B(openat, CWD, "d", O_NONBLOCK | bit, 0644);
  B(openat, CWD, "new", O_WRONLY | O_CREAT | bit, 0644);
  B(openat, CWD, "new", O_WRONLY | O_CREAT, bit);
  D(openat, fd, "g", O_RDONLY);
  D(openat, fd, "", O_RDONLY);
  K(openat, CWD, "f", O_ACCMODE);
  K(openat, CWD, "f", O_RDONLY | O_TRUNC);
  K(openat, CWD, "d", O_DIRECTORY | O_CREAT, 0644);
  K(openat, CWD, "new", O_DIRECTORY | O_CREAT, 0644);
  K(openat, CWD, "d", O_TMPFILE | O_RDONLY, 0644);
  K(openat, CWD, "d", O_TMPFILE | O_RDWR | O_EXCL, 0644);
  K(openat, CWD, "d", O_TMPFILE & ~O_DIRECTORY, 0644);
  K(openat, CWD, "f", O_PATH | O_RDWR | O_TRUNC | O_CREAT | O_EXCL);
  struct open_how asked;
  for (int i = 0; i < 40; i++) {
    char hex[32];
    sprintf(hex, "%#lx", 1L << i);
    asked = how(O_NONBLOCK | 1L << i, 0, 0);
    ROW(openat2, hex, CWD, "f", &asked, sizeof asked, /* flags */ 0);
    asked = how(O_RDONLY, 0, 1L << i);
    ROW(openat2, hex, CWD, "l", &asked, sizeof asked, /* resolve */ 0);
    ROW(openat2, hex, dd, "../f", &asked, sizeof asked, /* resolve */ 0);
    asked = how(O_WRONLY | O_CREAT, 1L << i, 0);
    ROW(openat2, hex, CWD, "new", &asked, sizeof asked, /* mode */ 0);
  }
  asked = how(O_RDONLY, 0600, 0);
  K(openat2, CWD, "f", &asked, sizeof asked, /* mode without O_CREAT */ 0);
  asked = how(O_WRONLY | O_CREAT, 0600, 0);
  K(openat2, CWD, "new", &asked, sizeof asked);
  asked = how(O_PATH | O_RDWR, 0, 0);
  K(openat2, CWD, "f", &asked, sizeof asked, /* O_PATH and others */ 0);
  asked = how(O_TMPFILE | O_RDWR, 0600, 0);
  K(openat2, CWD, "d", &asked, sizeof asked, /* O_TMPFILE */ 0);
  asked = how(O_RDONLY, 0, 0);
  K(openat2, CWD, "f", &asked, 23);
  memcpy(page, &asked, sizeof asked);
  memset(page + sizeof asked, 0, 100);
  K(openat2, CWD, "f", page, 24 + 8, /* zeroes behind it */ 0);
  page[24 + 8] = 1;
  K(openat2, CWD, "f", page, 24 + 16, /* not zeroes behind it */ 0);
  K(openat2, CWD, "f", page, 4097);
  K(openat2, CWD, "f", 0, sizeof asked);
  K(openat2, CWD, "f", none, sizeof asked);
  P(openat2, CWD, path, &asked, sizeof asked);
}

static void attributes(void) {
  struct stat st;
  struct statx sx;
  struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
  P(stat, path, &st);
  P(lstat, path, &st);
  P(access, path, R_OK | W_OK);
  P(access, path, X_OK);
  P(chmod, path, 0701);
  P(fchmodat2, CWD, path, 0701, AT_SYMLINK_NOFOLLOW);
  P(chown, path, -1, -1);
  P(chown, path, 65533, 65533);
  P(lchown, path, 65533, 65533);
  P(truncate, path, 3);
  P(utimensat, CWD, path, now, 0);
  P(utimensat, CWD, path, 0, AT_SYMLINK_NOFOLLOW);
  P(utime, path, 0);
  P(utimes, path, 0);
  P(futimesat, CWD, path, 0);
  P(statfs, path, page);
  P(newfstatat, dd, path, &st, AT_EMPTY_PATH);
  P(statx, CWD, path, 0, STATX_ALL, &sx);
  P(newfstatat, rd, path, &st, AT_EMPTY_PATH);
  D(fstat, fd, &st);
  D(fstat, fd, none);
  D(newfstatat, fd, "", &st, AT_EMPTY_PATH);
  D(newfstatat, fd, 0, &st, AT_EMPTY_PATH);
  D(newfstatat, fd, "g", &st, 0);
  D(newfstatat, fd, "", &st, 0);
  D(statx, fd, "", AT_EMPTY_PATH, STATX_ALL, &sx);
  D(faccessat2, fd, "", R_OK, AT_EMPTY_PATH);
  D(fchmod, fd, 0604);
  D(fchmodat2, fd, "", 0604, AT_EMPTY_PATH);
  D(fchown, fd, -1, -1);
  D(fchown, fd, 65533, -1);
  D(fchownat, fd, "", -1, -1, AT_EMPTY_PATH);
  D(utimensat, fd, 0, now, 0);
  D(utimensat, fd, "", now, AT_EMPTY_PATH);
  D(futimesat, fd, 0, 0);
  D(fstatfs, fd, page);
  D(ftruncate, fd, 5);
  B(newfstatat, CWD, "l", &st, bit);
  B(newfstatat, rd, "", &st, bit);
  B(statx, CWD, "l", bit, STATX_ALL, &sx);
  B(statx, CWD, "f", 0, bit, &sx);
  B(faccessat2, CWD, "l", R_OK, bit);
  B(faccessat2, CWD, "f", bit, 0);
  B(access, "f", bit);
  B(fchmodat2, CWD, "f", 0600, bit);
  B(chmod, "f", bit);
  B(fchownat, CWD, "l", -1, -1, bit);
  B(utimensat, CWD, "l", now, bit);
  K(statx, CWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_ALL, &sx);
  K(statx, CWD, "f", 0, STATX_ALL, none);
  K(stat, "f", none);
  K(stat, "f", 0);
  K(statfs, "f", none);
  K(fstatfs, rd, none);
  K(faccessat, CWD, "f", R_OK, -1);
  K(faccessat2, CWD, "f", -1, 0);
  K(faccessat2, CWD, "nothing", -1, 0);
  K(chmod, "f", 0177777);
  K(fchmod, rd, 06755);
  K(fchmod, rd, -1);
  K(chown, "x", -1, 65533);
  struct timespec bad[3] = {{.tv_nsec = -1}, {.tv_nsec = 1000000000}, {.tv_nsec = UTIME_OMIT}};
  K(utimensat, CWD, "f", bad, 0);
  K(utimensat, CWD, "f", bad + 1, 0);
  K(utimensat, CWD, "f", none, 0);
  K(utimensat, CWD, 0, 0, 0);
  K(utimensat, CWD, 0, now, AT_SYMLINK_NOFOLLOW);
  K(utimensat, rd, 0, now, AT_SYMLINK_NOFOLLOW);
  K(utimensat, rd, 0, none, 0);
  struct timespec omit[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
  K(utimensat, CWD, "f", omit, 0);
  K(utimensat, CWD, "nothing", omit, 0);
  K(utimensat, 700, 0, omit, 0);
  struct timespec far[2] = {{.tv_sec = 1}, {.tv_sec = MOST}};
  K(utimensat, CWD, "f", far, 0);
  K(truncate, "f", -1);
  K(truncate, "f", MOST);
  K(truncate, "d", -1);
  K(truncate, "nothing", -1);
  K(ftruncate, rw, -1);
  K(ftruncate, rw, MOST);
  K(ftruncate, rd, -1);
  K(ftruncate, dd, -1);
  // What a mount says of its files.
  syscall(SYS_statx, CWD, "f", 0, STATX_ALL | STATX_MNT_ID | STATX_DIOALIGN, &sx);
  printf("statx mask %x attributes %x of %x\n", sx.stx_mask & ~0x20000u, (int)sx.stx_attributes & ~0x2000, 0);
  for (long mask = 1; mask <= STATX_DIOALIGN; mask <<= 1) {
    memset(&sx, 0, sizeof sx);
    syscall(SYS_statx, CWD, "f", 0, mask, &sx);
    printf("statx(f, %#lx) has %#lx, mode %o, links %u, blocks %d, birth %d, mount %d\n", mask,
           (long)(sx.stx_mask & mask), sx.stx_mode, sx.stx_nlink, sx.stx_blocks > 0, sx.stx_btime.tv_sec > 0,
           sx.stx_mnt_id > 0 && sx.stx_mask & STATX_MNT_ID);
  }
}

static void names(void) {
  P(mkdir, path, 0755);
  P(rmdir, path);
  P(unlink, path);
  P(unlinkat, CWD, path, AT_REMOVEDIR);
  P(symlink, "f", path);
  P(symlink, path, "new");
  P(link, path, "new");
  P(link, "f", path);
  P(linkat, CWD, path, CWD, "new", AT_SYMLINK_FOLLOW);
  P(rename, path, "new");
  P(rename, "f", path);
  P(rename, "nothing", path);
  P(rename, "d/.", path);
  P(rename, "d", path);
  P(rename, "bare", path);
  P(renameat2, CWD, "f", CWD, path, RENAME_NOREPLACE);
  P(renameat2, CWD, "d", CWD, path, RENAME_EXCHANGE);
  P(mknod, path, S_IFREG | 0644, 0);
  P(mknod, path, S_IFIFO | 0644, 0);
  P(readlink, path, page, 100);
  P(chdir, path);
  D(mkdirat, fd, "new", 0755);
  D(unlinkat, fd, "g", 0);
  D(unlinkat, fd, "", 0);
  D(symlinkat, "to", fd, "new");
  D(linkat, fd, "g", CWD, "new", 0);
  D(linkat, CWD, "f", fd, "new", 0);
  D(linkat, fd, "", CWD, "new", AT_EMPTY_PATH);
  D(renameat, fd, "g", CWD, "new");
  D(renameat, CWD, "f", fd, "new");
  D(mknodat, fd, "new", S_IFREG | 0600, 0);
  D(readlinkat, fd, "", page, 100);
  D(readlinkat, fd, "g", page, 100);
  D(fchdir, fd);
  B(mkdir, "new", bit);
  B(unlinkat, CWD, "f", bit);
  B(unlinkat, CWD, "bare", bit);
  B(unlinkat, CWD, "nothing", bit);
  B(linkat, CWD, "f", CWD, "new", bit);
  B(linkat, CWD, "nothing", CWD, "new", bit);
  B(renameat2, CWD, "f", CWD, "new", bit);
  B(renameat2, CWD, "nothing", CWD, "new", bit);
  B(mknod, "new", bit | 0600, 0);
  K(mkdir, "new", 07777);
  K(unlinkat, CWD, "f", -1);
  K(renameat2, CWD, "f", CWD, "new", RENAME_NOREPLACE | RENAME_EXCHANGE);
  K(rename, "f", "f");
  K(rename, "d", "d/g/x");
  K(rename, "d", "d/x");
  K(rename, ".", "new");
  K(rename, "d/.", "new");
  K(rename, "d/..", "new");
  K(rename, "f", "d/.");
  K(rename, "f", "/proc/self/elsewhere");
  K(link, "f", "/proc/self/elsewhere");
  K(link, "/proc/self/exe", "new");
  K(rename, "f", none);
  K(link, "f", none);
  K(symlink, "f", none);
  K(symlink, "", "new");
  K(symlink, path_4096, "new");
  K(symlink, path_4096, "");
  K(symlink, path_4096, "nothing/new");
  K(symlink, none, "f");
  K(readlink, "l", page, 0);
  K(readlink, "l", page, -1);
  K(readlink, "l", none, 10);
  K(readlink, "f", page, 0);
  K(rmdir, "d");
  K(rmdir, "/");
  K(unlink, "/");
  K(mknod, "new", S_IFDIR | 0755, 0);
  K(mknod, "new", S_IFSOCK | 0755, 0);
  K(mknod, "new", S_IFLNK | 0755, 0);
  K(mknod, "new", 0644, 0);
  K(mknod, "new", S_IFCHR | 0644, 0x103);
}

static void reading(void) {
  struct iovec parts[3] = {{page, 3}, {page + 100, 4}, {0, 0}}, bad[2] = {{page, 3}, {0, 9}}, negative[1] = {{page, -1}};
  bad[1].iov_base = none;
  off_t zero = 0, minus = -1, far = MOST;
  D(read, fd, page, 4);
  D(read, fd, none, 4);
  D(read, fd, page, 0);
  D(read, fd, none, 0);
  D(pread64, fd, page, 4, 2);
  D(readv, fd, parts, 3);
  D(preadv, fd, parts, 3, 1);
  D(preadv2, fd, parts, 3, -1, 0, 0);
  D(write, fd, "abc", 3);
  D(write, fd, none, 3);
  D(write, fd, page, 0);
  D(write, fd, none, 0);
  D(pwrite64, fd, "abc", 3, 4);
  D(writev, fd, parts, 3);
  D(pwritev, fd, parts, 3, 1);
  D(pwritev2, fd, parts, 3, -1, 0, 0);
  D(lseek, fd, 4, SEEK_SET);
  D(lseek, fd, 0, SEEK_END);
  D(lseek, fd, 0, SEEK_DATA);
  D(lseek, fd, 0, 9);
  D(fsync, fd);
  D(fdatasync, fd);
  D(syncfs, fd);
  D(sync_file_range, fd, 0, 0, SYNC_FILE_RANGE_WRITE);
  D(fallocate, fd, 0, 0, 20);
  D(fadvise64, fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  D(readahead, fd, 0, 100);
  D(getdents64, fd, page, 0);
  D(getdents64, fd, page, 10);
  D(getdents64, fd, none, 4000);
  D(getdents, fd, page, 10);
  B(preadv2, rd, parts, 1, 0, 0, bit);
  B(preadv2, wr, parts, 1, 0, 0, bit);
  B(pwritev2, rw, parts, 1, 0, 0, bit);
  B(pwritev2, rd, parts, 1, 0, 0, bit);
  B(fallocate, rw, bit, 0, 5);
  B(fallocate, rd, bit, 0, 5);
  B(sync_file_range, rw, 0, 0, bit);
  const int fds[] = {rd, wr, rw, ap, dd, pa, closed};
  const char *const of[] = {"read-only", "write-only", "both", "append", "folder", "path", "closed"};
  for (size_t i = 0; i < COUNT(fds); i++) {
    int fd = fds[i];
    ROW(pread64, of[i], fd, page, 4, -1);
    ROW(pread64, of[i], fd, page, 4, LEAST);
    ROW(pread64, of[i], fd, page, 4, MOST);
    ROW(pread64, of[i], fd, none, 4, MOST);
    ROW(pread64, of[i], fd, none, 4, 10);
    ROW(pread64, of[i], fd, page, -1, 0);
    ROW(pread64, of[i], fd, page, 0, -1);
    ROW(pwrite64, of[i], fd, page, 4, -1);
    ROW(pwrite64, of[i], fd, page, 4, MOST);
    ROW(pwrite64, of[i], fd, page, 4, MOST - 3);
    ROW(pwrite64, of[i], fd, page, 0, -1);
    ROW(pwrite64, of[i], fd, none, 4, 0);
    ROW(pwrite64, of[i], fd, page, -1, 0);
    ROW(read, of[i], fd, page, -1);
    ROW(read, of[i], fd, page, LEAST);
    ROW(write, of[i], fd, page, -1);
    ROW(readv, of[i], fd, parts, 0);
    ROW(readv, of[i], fd, parts, -1);
    ROW(readv, of[i], fd, parts, 1025);
    ROW(readv, of[i], fd, none, 1);
    ROW(readv, of[i], fd, bad, 2);
    ROW(readv, of[i], fd, negative, 1);
    ROW(writev, of[i], fd, parts, 0);
    ROW(writev, of[i], fd, parts, -1);
    ROW(writev, of[i], fd, none, 1);
    ROW(writev, of[i], fd, bad, 2);
    ROW(writev, of[i], fd, negative, 1);
    ROW(preadv, of[i], fd, parts, 1, -1);
    ROW(preadv2, of[i], fd, parts, 1, -2, 0, 0);
    ROW(pwritev, of[i], fd, parts, 1, -1);
    ROW(lseek, of[i], fd, -1, SEEK_SET);
    ROW(lseek, of[i], fd, MOST, SEEK_SET);
    ROW(lseek, of[i], fd, MOST, SEEK_END);
    ROW(lseek, of[i], fd, LEAST, SEEK_CUR);
    ROW(lseek, of[i], fd, -11, SEEK_END);
    ROW(lseek, of[i], fd, 10, SEEK_DATA);
    ROW(lseek, of[i], fd, -1, SEEK_HOLE);
    ROW(lseek, of[i], fd, 0, -1);
    ROW(fallocate, of[i], fd, 0, -1, 10);
    ROW(fallocate, of[i], fd, 0, 0, 0);
    ROW(fallocate, of[i], fd, 0, MOST, 1);
    ROW(fallocate, of[i], fd, FALLOC_FL_PUNCH_HOLE, 0, 4);
    ROW(fallocate, of[i], fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 4);
    ROW(fallocate, of[i], fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 4);
    ROW(fallocate, of[i], fd, FALLOC_FL_COLLAPSE_RANGE, 1, 4);
    ROW(fallocate, of[i], fd, -1, 0, 0);
    ROW(fadvise64, of[i], fd, 0, 0, -1);
    ROW(fadvise64, of[i], fd, 0, -1, POSIX_FADV_NORMAL);
    ROW(fadvise64, of[i], fd, -1, 0, 6);
    ROW(sync_file_range, of[i], fd, -1, 0, 0);
    ROW(sync_file_range, of[i], fd, 0, -1, 0);
    ROW(sync_file_range, of[i], fd, MOST, MOST, 0);
    ROW(readahead, of[i], fd, -1, 10);
    ROW(sendfile, of[i], sock, fd, &minus, 4);
    ROW(sendfile, of[i], fd, rd, &zero, 4);
    ROW(sendfile, of[i], out, fd, none, 4);
    ROW(splice, of[i], fd, 0, out, 0, 4, 0);
    ROW(splice, of[i], fd, &minus, out, 0, 4, 0);
    ROW(splice, of[i], in, 0, fd, 0, 4, SPLICE_F_NONBLOCK);
    ROW(splice, of[i], fd, 0, rw, 0, 4, 0);
    ROW(splice, of[i], fd, 0, out, 0, 4, -1);
    ROW(tee, of[i], fd, out, 4, 0);
    ROW(copy_file_range, of[i], fd, &zero, rw, &far, 4, 0);
    ROW(copy_file_range, of[i], rd, &zero, fd, 0, 4, 0);
    ROW(copy_file_range, of[i], rd, 0, fd, 0, 4, 1);
    ROW(copy_file_range, of[i], fd, 0, out, 0, 4, 0);
    zero = 0, minus = -1, far = MOST;
  }
}

static void controlling(void) {
  char value[16] = "value";
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, other = {.l_type = 9, .l_whence = 9};
  for (int command = 0; command < 17; command++) {
    if (command >= F_SETLK && command <= F_SETSIG) continue;
    char with[64];
    for (size_t i = 0; i < COUNT(descriptors); i++) {
      int fd = *descriptors[i].fd;
      sprintf(with, "%d of %s", command, descriptors[i].label);
      ROW(fcntl, with, fd, command, 0);
    }
    sprintf(with, "%d", command);
    ROW(fcntl, with, rd, command, -1);
    ROW(fcntl, with, rd, command, none);
  }
  for (int command = 1024; command < 1046; command++) {
    char with[64];
    if (command == F_SETLEASE || command == F_NOTIFY || command == F_SETPIPE_SZ) continue;
    for (size_t i = 0; i < COUNT(descriptors); i += 2) {
      int fd = *descriptors[i].fd;
      sprintf(with, "%d of %s", command, descriptors[i].label);
      ROW(fcntl, with, fd, command, 0);
    }
  }
  B(fcntl, rw, F_SETFL, bit);
  D(fcntl, fd, F_SETLK, &lock);
  D(fcntl, fd, F_GETLK, &lock);
  D(fcntl, fd, F_OFD_SETLK, &lock);
  D(fcntl, fd, F_SETLK, &other);
  D(fcntl, fd, F_SETLK, none);
  D(flock, fd, LOCK_EX | LOCK_NB);
  D(flock, fd, LOCK_UN);
  D(flock, fd, 0x55);
  D(dup, fd);
  D(dup2, fd, 300);
  D(dup2, fd, fd);
  D(dup3, fd, 300, O_CLOEXEC);
  D(dup3, fd, fd, 0);
  D(dup3, fd, 300, O_NONBLOCK);
  K(dup2, rd, -1);
  K(dup2, rd, 1 << 30);
  K(fcntl, rd, F_DUPFD, 1 << 30);
  K(close_range, 300, 200, 0);
  K(close_range, 300, 400, 0x80);
  K(close, 700);
  K(close, -1);
  const long asks[] = {FIONREAD, FIONBIO, FIOASYNC, FIOQSIZE, FIGETBSZ, FIBMAP, FS_IOC_GETVERSION,
                       FICLONE, FIDEDUPERANGE, FS_IOC_FIEMAP, TCGETS, TIOCGWINSZ, BLKGETSIZE64, 0, -1, 0x1234};
  for (size_t a = 0; a < COUNT(asks); a++)
    for (size_t i = 0; i < COUNT(descriptors); i++) {
      char with[64];
      long zero[64] = {0};
      int fd = *descriptors[i].fd;
      sprintf(with, "%#lx of %s", asks[a], descriptors[i].label);
      ROW(ioctl, with, fd, asks[a], zero);
      ROW(ioctl, with, fd, asks[a], none);
    }
  P(setxattr, path, "user.b", value, 5, 0);
  P(getxattr, path, "user.a", page, 100);
  P(lgetxattr, path, "user.a", page, 100);
  P(listxattr, path, page, 0);
  P(lsetxattr, path, "user.b", value, 5, 0);
  P(removexattr, path, "user.a");
  D(fsetxattr, fd, "user.b", value, 5, 0);
  D(fgetxattr, fd, "user.a", page, 100);
  D(flistxattr, fd, page, 0);
  D(fremovexattr, fd, "user.a");
  const char *const keys[] = {"", "user.", "user", "a", "user.a", "user.b", "trusted.a", "security.a", "system.a", "system.posix_acl_access", 0, none};
  for (size_t i = 0; i < COUNT(keys); i++) {
    const char *key = keys[i], *shown = key == none ? "unreadable" : key ? key : "null";
    ROW(getxattr, shown, "f", key, page, 100);
    ROW(setxattr, shown, "f", key, value, 5, 0);
    ROW(removexattr, shown, "f", key);
    ROW(setxattr, shown, "nothing", key, value, 5, 0);
    ROW(setxattr, shown, "f", key, value, 5, -1);
  }
  B(setxattr, "f", "user.b", value, 5, bit);
  K(setxattr, "f", "user.a", value, 5, XATTR_CREATE);
  K(setxattr, "f", "user.b", value, 5, XATTR_REPLACE);
  K(setxattr, "f", "user.a", value, 5, XATTR_CREATE | XATTR_REPLACE);
  K(setxattr, "f", "user.b", value, 5, XATTR_CREATE | XATTR_REPLACE);
  K(setxattr, "f", "user.b", none, 5, 0);
  K(setxattr, "f", "user.b", none, 0, 0);
  K(setxattr, "f", "user.b", page, 65537, 0);
  K(setxattr, "f", name_256, value, 5, 0);
  K(getxattr, "f", "user.a", page, 4);
  K(getxattr, "f", "user.a", none, 5);
  K(getxattr, "f", "user.a", none, 0);
  K(getxattr, "f", name_256, page, 5);
  K(listxattr, "f", none, 100);
  K(listxattr, "f", page, 1);
  D(mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, 0);
  D(mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  D(mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  D(mmap, 0, 0, PROT_READ, MAP_SHARED, fd, 0);
  D(mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, 1);
  D(mmap, 0, 4096, PROT_READ, 0, fd, 0);
  D(mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, MOST & ~4095L);
  D(mmap, 0, LEAST, PROT_READ, MAP_SHARED, fd, 0);
  D(mmap, 0, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  D(mmap, 0, 4096, PROT_READ, MAP_SHARED_VALIDATE | 0x8000000, fd, 0);
  K(msync, page, 100, MS_SYNC | MS_ASYNC);
  K(msync, 1, 100, MS_SYNC);
  K(msync, none, 1 << 20, 0x80);
  K(mremap, none, 4096, 0, MREMAP_MAYMOVE);
  K(munmap, 1, 4096);
  int handle[34] = {128}, mount_id;
  P(name_to_handle_at, CWD, path, handle, &mount_id, 0);
  D(name_to_handle_at, fd, "", handle, &mount_id, 0);
  D(name_to_handle_at, fd, "", handle, &mount_id, AT_EMPTY_PATH);
  B(name_to_handle_at, CWD, "f", handle, &mount_id, bit);
  K(name_to_handle_at, CWD, "f", none, &mount_id, 0);
  handle[0] = 129;
  K(name_to_handle_at, CWD, "f", handle, &mount_id, 0);
  int watch = keep(inotify_init1(IN_NONBLOCK), 120), epoll = keep(epoll_create1(0), 121);
  P(inotify_add_watch, watch, path, IN_ACCESS);
  D(inotify_add_watch, fd, "f", IN_ACCESS);
  K(inotify_add_watch, watch, "f", 0);
  K(inotify_add_watch, watch, "f", IN_ONLYDIR | IN_ACCESS);
  struct epoll_event event = {.events = EPOLLIN};
  D(epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &event);
  D(epoll_ctl, fd, EPOLL_CTL_ADD, in, &event);
  D(epoll_ctl, epoll, EPOLL_CTL_MOD, fd, &event);
  struct pollfd one = {.events = POLLIN | POLLOUT};
  for (size_t i = 0; i < COUNT(descriptors); i++) {
    one.fd = *descriptors[i].fd;
    one.revents = 0;
    ROW(poll, descriptors[i].label, &one, 1, 0);
    printf("  revents %x\n", one.revents);
  }
  struct rlimit limit = {20, RLIM_INFINITY}, no_limit = {RLIM_INFINITY, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  fflush(stdout);
  if (setrlimit(RLIMIT_FSIZE, &limit)) die("setrlimit");
  D(pwrite64, fd, "abc", 3, 19);
  D(pwrite64, fd, "abc", 3, 20);
  D(fallocate, fd, 0, 0, 30);
  K(ftruncate, rw, 21);
  K(ftruncate, rw, 19);
  K(truncate, "f", 21);
  if (setrlimit(RLIMIT_FSIZE, &no_limit)) die("setrlimit");
}

int main(int count, char **words) {
  if (count != 2 || chdir(words[1])) die("table DIR");
  home = realpath(".", 0);
  user = (int)geteuid();
  none = mmap((void *)0x10000000000, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  memset(name_256, 'n', 256);
  for (int i = 0; i < 4150; i++) path_4096[i] = i % 2 ? '/' : '.';
  struct sigaction action = {.sa_handler = hurry};
  sigaction(SIGALRM, &action, 0);
  signal(SIGPIPE, SIG_IGN);
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  make();
  look();
  strcpy(before, snapshot);
  opening();
  attributes();
  if (user == 0) acting = 65532, attributes(), acting = 0;
  names();
  reading();
  controlling();
  if (chdir(home)) die(home);
  clear("t");
  printf("%d rows\n", rows);
  return 0;
}
