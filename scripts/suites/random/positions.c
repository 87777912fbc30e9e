/* Positions, flags and bytes of files by descriptors that lead to them in many ways. */
#include "random.h"

#define FILES 5
#define BYTES 9000

static int fds[12];
static int from, to; /* of fds */
static char name[8], other[8];
static char bytes[3 * BYTES];
static long offset, len;
static unsigned seen; /* a digest of what was read */
static int wires[2], ends[2];

static long opens(void) {
  static const int how[] = {O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_APPEND, O_WRONLY | O_APPEND,
                            O_RDWR | O_TRUNC, O_RDWR | O_NOATIME, O_RDWR | O_SYNC};
  if (fds[from] >= 0) close(fds[from]);
  fds[from] = open(name, ONE_OF(how) | O_CREAT, 0644);
  return fds[from] < 0 ? -1 : 0;
}

static long read_here(long result) {
  if (result > 0) seen = digest(bytes, result);
  return result;
}

static long reads(void) { return read_here(read(fds[from], bytes, len)); }
static long writes(void) { return write(fds[from], bytes, len); }
static long reads_at(void) { return read_here(pread(fds[from], bytes, len, offset)); }
static long writes_at(void) { return pwrite(fds[from], bytes, len, offset); }
static long seeks(void) { return lseek(fds[from], offset, SEEK_SET); }
static long seeks_on(void) { return lseek(fds[from], offset - 10000, SEEK_CUR); }
static long seeks_back(void) { return lseek(fds[from], offset - 15000, SEEK_END); }
static long cuts(void) { return ftruncate(fds[from], offset); }
static long cuts_by_name(void) { return truncate(name, offset); }
static long renames(void) { return rename(name, other); }
static long links(void) { return link(name, other); }
static long unlinks(void) { return unlink(name); }
static long syncs(void) { return fsync(fds[from]); }

static long closes(void) {
  long result = fds[from] < 0 ? 0 : close(fds[from]);
  fds[from] = -1;
  return result;
}

static long duplicates(void) {
  if (from == to) return 0;
  if (fds[to] >= 0) close(fds[to]);
  fds[to] = dup(fds[from]);
  return fds[to] < 0 ? -1 : 0;
}

static long replaces(void) {
  if (fds[from] < 0 || fds[to] < 0 || from == to) return 0;
  return dup2(fds[from], fds[to]) < 0 ? -1 : 0;
}

static long copies(void) {
  off64_t source = offset, target = pick(20000);
  int told = (int)pick(2);
  return copy_file_range(fds[from], told ? &source : NULL, fds[to], told ? &target : NULL, len, 0);
}

/* From a file to itself tmpfs moves pages, which has bytes of its own. */
static int are_one(void) {
  struct stat one = {0}, two = {0};
  return fstat(fds[from], &one) == 0 && fstat(fds[to], &two) == 0 && one.st_ino == two.st_ino;
}

static long sends(void) {
  off_t source = offset;
  int told = (int)pick(2);
  return are_one() ? 0 : sendfile(fds[to], fds[from], told ? &source : NULL, len);
}

static long drains(void) {
  long got;
  while ((got = read(wires[0], bytes, sizeof bytes)) > 0) seen = seen * 7 + digest(bytes, got);
  return got;
}

static long splices_out(void) {
  off64_t source = offset;
  off64_t *told = pick(2) ? &source : NULL;
  long result = splice(fds[from], told, wires[1], NULL, len % 4000, SPLICE_F_NONBLOCK);
  int error = errno;
  drains();
  errno = error;
  return result;
}

static long splices_in(void) {
  off64_t target = offset;
  off64_t *told = pick(2) ? &target : NULL;
  long put = write(wires[1], bytes, len % 4000 + 1);
  long result = splice(wires[0], NULL, fds[from], told, put, SPLICE_F_NONBLOCK);
  int error = errno;
  drains();
  errno = error;
  return result;
}

static long vectors(void) {
  struct iovec all[] = {{bytes, len / 3}, {bytes + BYTES, len / 3}, {bytes + 2 * BYTES, 10}};
  switch (pick(4)) {
  case 0: return readv(fds[from], all, 3);
  case 1: return writev(fds[from], all, 3);
  case 2: return preadv(fds[from], all, 3, offset);
  default: return pwritev(fds[from], all, 3, offset);
  }
}

static long flagged(void) {
  static const int how[] = {0, RWF_DSYNC, RWF_HIPRI, RWF_APPEND};
  struct iovec all[] = {{bytes, len}, {bytes, 7}};
  int flags = ONE_OF(how);
  long at = pick(2) ? -1 : offset;
  return pick(2) ? pwritev2(fds[from], all, 2, at, flags) : preadv2(fds[from], all, 2, at, flags);
}

static long in_a_child(void) {
  pid_t child = fork();
  if (child != 0) return ended(child);
  long result = write(fds[from], bytes, len);
  lseek(fds[to], offset, SEEK_SET);
  result += read(fds[to], bytes, 100);
  _exit(result > 0);
}

static long in_a_lent_child(void) {
  pid_t child = vfork();
  if (child != 0) return ended(child);
  if (fds[from] >= 0 && write(fds[from], "lent", 4) < 0) _exit(1);
  _exit(0);
}

static long sets_flags(void) {
  return fcntl(fds[from], F_SETFL, (pick(2) ? O_APPEND : 0) | (pick(2) ? O_NONBLOCK : 0));
}

static long gets_flags(void) {
  long flags = fcntl(fds[from], F_GETFL);
  return flags < 0 ? flags : flags & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_NOATIME);
}

static long allocates(void) {
  static const int how[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE};
  return fallocate(fds[from], ONE_OF(how), offset, len);
}

static long opens_again(void) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fds[from]);
  int fd = open(path, O_RDWR | O_APPEND);
  if (fd < 0) return -1;
  long result = write(fd, bytes, len);
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

static long maps(void) {
  struct stat file;
  char *at = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_SHARED, fds[from], 0);
  if (at == MAP_FAILED) return -1;
  if (fstat(fds[from], &file) == 0 && file.st_size > 100 && file.st_size <= 32768) {
    at[50] = bytes[0];
    at[file.st_size - 1] = bytes[1];
    seen = digest(at, file.st_size);
  }
  return munmap(at, 32768);
}

static long locks(void) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = 10};
  long result = fcntl(fds[from], F_SETLK, &lock);
  int error = errno;
  lock.l_type = F_UNLCK;
  fcntl(fds[from], F_SETLK, &lock);
  errno = error;
  return result;
}

static long passes(void) {
  char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
  struct iovec one = {&byte, 1};
  struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(header), &fds[from], sizeof(int));
  long result = from == to ? 0 : sendmsg(ends[0], &message, 0);
  if (result != 1) return result;
  message.msg_controllen = sizeof room;
  if (recvmsg(ends[1], &message, 0) != 1) return -1;
  if (fds[to] >= 0) close(fds[to]);
  memcpy(&fds[to], CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  return result;
}

static long (*const steps[])(void) = {
    opens,        opens,       opens,      reads,     writes,     writes,       reads_at,    writes_at,
    seeks,        seeks_on,    seeks_back, cuts,      cuts_by_name, duplicates, replaces,    renames,
    links,        unlinks,     copies,     copies,    sends,      splices_out,  splices_in,  vectors,
    flagged,      in_a_child,  in_a_lent_child, sets_flags, gets_flags, allocates, opens_again, maps,
    locks,        passes,      closes,     syncs,
};

static void tells(int step, unsigned which, long result, int error) {
  struct stat file = {0};
  long position = -1;
  if (fds[from] >= 0 && fstat(fds[from], &file) == 0) position = lseek(fds[from], 0, SEEK_CUR);
  printf("%d: step %u of %d and %d, %s %s: %ld %s, read %x, length %ld, links %ld, position %ld\n", step,
         which, from, to, name, other, result, error_of(result, error), seen, (long)file.st_size,
         (long)file.st_nlink, position);
}

int main(int count, char **words) {
  if (count != 3) return 2;
  seed(strtoul(words[1], NULL, 10));
  memset(fds, -1, sizeof fds);
  if (pipe2(wires, O_NONBLOCK) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
  for (int step = 0; step < atoi(words[2]); step++) {
    from = (int)pick(COUNT(fds));
    to = (int)pick(COUNT(fds));
    snprintf(name, sizeof name, "n%u", pick(FILES));
    snprintf(other, sizeof other, "n%u", pick(FILES));
    offset = pick(20000);
    len = 1 + pick(BYTES - 1);
    seen = 0;
    memset(bytes, 'a' + (int)pick(26), sizeof bytes);
    unsigned which = pick(COUNT(steps));
    /* A child must not write the lines again. */
    fflush(stdout);
    errno = 0;
    long result = steps[which]();
    tells(step, which, result, errno);
  }
  return 0;
}
