/* Descriptors over chains of processes: forks, programs that go on with what they have got, numbers chosen at random
   and closed in ranges. Each step tells where all numbers lead. The lines go to a file, as standard output is one of
   the numbers: the third word. */
#include "random.h"

#define NUMBERS 1030
#define LINES 900 /* the number of the file that the lines go to */
#define DEPTH 6

extern char **environ;
static char *program;
static int depth;
static int fd, number; /* one that is open, mostly, and any */
static char name[8];
static char bytes[3000];

static void says(const char *format, ...) {
  char line[600];
  va_list rest;
  va_start(rest, format);
  int len = vsnprintf(line, sizeof line, format, rest);
  va_end(rest);
  if (write(LINES, line, (size_t)len) != len) _exit(90);
}

static int is_open(int one) { return one != LINES && fcntl(one, F_GETFD) >= 0; }

static int any_open(void) {
  int open[NUMBERS], count = 0;
  for (int one = 0; one < NUMBERS; one++) {
    if (is_open(one)) open[count++] = one;
  }
  return count == 0 || pick(20) == 0 ? (int)pick(64) : open[pick((unsigned)count)];
}

/* The name that a file is shown by, where it has one of this program's. */
static const char *shown(int one) {
  static char path[300];
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", one);
  ssize_t len = readlink(link, path, sizeof path - 1);
  path[len < 0 ? 0 : len] = 0;
  char *last = strrchr(path, '/');
  return last && last[1] == 'n' ? last + 1 : "";
}

static void tells_all(void) {
  for (int one = 0; one < NUMBERS; one++) {
    struct stat file;
    if (!is_open(one) || fstat(one, &file) != 0) continue;
    int closes = fcntl(one, F_GETFD), flags = fcntl(one, F_GETFL);
    if (S_ISREG(file.st_mode)) {
      says(" %d:%d,%ld,%ld,%x,%s", one, closes, (long)file.st_size, (long)lseek(one, 0, SEEK_CUR),
           flags & (O_ACCMODE | O_APPEND | O_PATH), shown(one));
    } else {
      says(" %d:%d,%o", one, closes, file.st_mode & S_IFMT);
    }
  }
  says("\n");
}

static void takes(int steps);

/* Goes on as another program. */
static void becomes(unsigned steps) {
  char words[3][24];
  snprintf(words[0], sizeof words[0], "%lu", (unsigned long)chosen);
  snprintf(words[1], sizeof words[1], "%u", steps);
  snprintf(words[2], sizeof words[2], "%d", depth);
  execl(program, program, words[0], words[1], words[2], (char *)NULL);
  _exit(91);
}

static long opens(void) {
  static const int how[] = {O_RDWR | O_CREAT, O_RDONLY | O_CREAT, O_WRONLY | O_CREAT | O_APPEND, O_RDWR | O_TRUNC,
                            O_RDWR | O_CREAT | O_CLOEXEC, O_PATH};
  return open(name, ONE_OF(how), 0644);
}

static long opens_folder(void) { return open(".", O_RDONLY | O_DIRECTORY); }
static long writes(void) { return write(fd, bytes, pick(sizeof bytes)); }
static long reads(void) { return read(fd, bytes, pick(sizeof bytes)); }
static long seeks(void) { return lseek(fd, pick(5000), SEEK_SET); }
static long duplicates(void) { return dup(fd); }
static long replaces(void) { return pick(2) ? dup2(fd, number) : dup3(fd, number, pick(2) ? O_CLOEXEC : 0); }
static long closes(void) { return close(fd); }
static long marks(void) { return fcntl(fd, F_SETFD, pick(2)); }
static long unlinks(void) { return unlink(name); }
static long cuts(void) { return ftruncate(fd, pick(6000)); }

static long duplicates_high(void) {
  return fcntl(fd, pick(2) ? F_DUPFD : F_DUPFD_CLOEXEC, pick(LINES - 50));
}

static long closes_range(void) {
  unsigned first = pick(60);
  return close_range(first, first + pick(6), pick(3) ? 0 : CLOSE_RANGE_CLOEXEC);
}

static long forks(void) {
  pid_t child = fork();
  if (child == 0) {
    depth++;
    takes((int)pick(4));
    _exit(3);
  }
  chosen ^= 77;
  return ended(child);
}

static long runs(void) {
  if (depth >= DEPTH) return 0;
  /* A child of vfork has this memory. */
  volatile unsigned steps = pick(5);
  int lends = (int)pick(2);
  depth++;
  pid_t child = lends ? vfork() : fork();
  if (child == 0) becomes(steps);
  depth--;
  chosen ^= 1234567;
  return ended(child);
}

static long spawns(void) {
  if (depth >= DEPTH) return 0;
  char words[3][24];
  snprintf(words[0], sizeof words[0], "%lu", (unsigned long)chosen);
  snprintf(words[1], sizeof words[1], "2");
  snprintf(words[2], sizeof words[2], "%d", depth + 1);
  char *all[] = {program, words[0], words[1], words[2], NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, number, name, O_RDWR | O_CREAT, 0644);
  if (pick(2)) posix_spawn_file_actions_addclose(&actions, fd);
  if (pick(2)) posix_spawn_file_actions_adddup2(&actions, fd, number + 1);
  pid_t child;
  int error = posix_spawn(&child, program, &actions, NULL, all, environ);
  posix_spawn_file_actions_destroy(&actions);
  chosen ^= 99;
  return error ? -error : ended(child);
}

static long opens_again(void) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open(path, O_RDWR | O_NONBLOCK);
}

static long makes_pipe(void) {
  int both[2];
  return pipe2(both, O_NONBLOCK | (pick(2) ? O_CLOEXEC : 0));
}

static long maps(void) {
  void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? -1 : munmap(at, 4096);
}

static long (*const steps[])(void) = {
    opens,   opens,      opens,        opens,  opens_folder, writes, writes, reads,      seeks, duplicates,
    replaces, replaces,  closes,       closes, closes_range, marks,  unlinks, cuts,      forks, runs,
    runs,    spawns,     opens_again,  makes_pipe, maps,     duplicates_high,
};

static void takes(int count) {
  for (int step = 0; step < count; step++) {
    fd = any_open();
    number = 3 + (int)pick(pick(4) ? 40 : LINES - 10);
    snprintf(name, sizeof name, "n%u", pick(6));
    memset(bytes, 'a' + (int)pick(26), sizeof bytes);
    unsigned which = pick(COUNT(steps));
    int of = fd, chose = number;
    char called[8];
    memcpy(called, name, sizeof called);
    errno = 0;
    long result = steps[which]();
    int error = errno;
    says("%d.%d: step %u of %d, %d and %s: %ld %s |", depth, step, which, of, chose, called, result,
         error_of(result, error));
    tells_all();
  }
}

int main(int count, char **words) {
  if (count != 4) return 2;
  program = words[0];
  if (words[3][0] != '/') {
    chosen = strtoul(words[1], NULL, 10);
    depth = atoi(words[3]);
    says("started |");
    tells_all();
    takes(atoi(words[2]));
    return 0;
  }
  seed(strtoul(words[1], NULL, 10));
  int lines = open(words[3], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
  if (dup2(lines, LINES) != LINES) return 2;
  close_range(3, LINES - 1, 0);
  close_range(LINES + 1, NUMBERS, 0);
  for (int standard = 0; standard < 3; standard++) close(standard);
  /* Of some seeds the three are not there. */
  if (pick(3) && (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)) return 2;
  takes(atoi(words[2]));
  return 0;
}
