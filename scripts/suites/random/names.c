/* Names and folders, by paths that are spelled in many ways, from folders that are open or moved meanwhile. */
#include "random.h"
#include <linux/openat2.h>
#include <sys/syscall.h>

static char root[300];
static size_t root_len;
static int folders[4], files[4];
static int at, which_folder;
static char path[600], other[600];
static unsigned seen;

/* A path of some parts. None leads out of the folder that the program began in: it is four levels deep. */
static void spell(char *to) {
  *to = 0;
  unsigned parts = pick(3);
  if (pick(6) == 0) to += sprintf(to, "%s/", root);
  while (parts-- > 0) {
    switch (pick(12)) {
    case 0: to += sprintf(to, "../"); break;
    case 1: to += sprintf(to, "./"); break;
    case 2: to += sprintf(to, "s%u/", pick(3)); break;
    default: to += sprintf(to, "d%u/", pick(3));
    }
  }
  switch (pick(14)) {
  case 0: sprintf(to, "d%u/", pick(3)); break;
  case 1: sprintf(to, "."); break;
  case 2: sprintf(to, ".."); break;
  case 3: case 4: sprintf(to, "s%u", pick(3)); break;
  case 5: case 6: case 7: sprintf(to, "d%u", pick(3)); break;
  default: sprintf(to, "f%u", pick(4));
  }
}

/* A path as it is the same in all roots. */
static const char *within(const char *whole) {
  return strncmp(whole, root, root_len) == 0 ? whole + root_len : whole;
}

static long makes_folder(void) { return mkdirat(at, path, 0755); }
static long removes_folder(void) { return unlinkat(at, path, AT_REMOVEDIR); }
static long removes(void) { return unlinkat(at, path, 0); }
static long renames(void) { return renameat(at, path, pick(2) ? at : AT_FDCWD, other); }
static long exchanges(void) { return renameat2(at, path, AT_FDCWD, other, RENAME_EXCHANGE); }
static long renames_to_new(void) { return renameat2(at, path, AT_FDCWD, other, RENAME_NOREPLACE); }
static long links(void) { return linkat(at, path, AT_FDCWD, other, pick(2) ? AT_SYMLINK_FOLLOW : 0); }
static long links_by_name(void) { return symlinkat(within(other) == other ? other : "d0", at, path); }
static long makes_node(void) { return mknodat(at, path, (pick(2) ? S_IFSOCK : S_IFREG) | 0644, 0); }
static long changes_mode(void) { return fchmodat(at, path, pick(2) ? 0755 : 0700, 0); }
static long cuts(void) { return truncate(path, pick(5000)); }
static long sets_attribute(void) { return lsetxattr(path, "user.a", "abc", 3, 0); }
static long gets_attribute(void) { return getxattr(path, "user.a", other, 10); }
static long goes(void) { return chdir(path); }
static long asks_access(void) { return faccessat(at, path, pick(2) ? X_OK : F_OK, 0); }

static long sets_times(void) {
  static const struct timespec times[] = {{1, 1}, {2, 2}};
  return utimensat(at, path, times, pick(2) ? AT_SYMLINK_NOFOLLOW : 0);
}

static long looked_at(const struct stat *file, long result) {
  if (result == 0) {
    seen = file->st_mode * 31 + (unsigned)file->st_nlink * 7;
    if (S_ISREG(file->st_mode)) seen += (unsigned)file->st_size;
  }
  return result;
}

static long looks(void) {
  struct stat file;
  return looked_at(&file, fstatat(at, path, &file, pick(2) ? AT_SYMLINK_NOFOLLOW : 0));
}

static long reads_link(void) {
  long len = readlinkat(at, path, other, sizeof other - 1);
  if (len > 0) seen = digest(other, len);
  return len;
}

/* Keeps a descriptor, or closes it. */
static long keeps(int fd, int *to) {
  struct stat file;
  if (fd < 0) return -1;
  long result = looked_at(&file, fstat(fd, &file));
  if (pick(2)) {
    close(fd);
  } else {
    if (*to >= 0) close(*to);
    *to = fd;
  }
  return result;
}

static long opens(void) {
  static const int how[] = {O_RDWR | O_CREAT, O_RDONLY, O_WRONLY | O_CREAT | O_EXCL, O_RDWR | O_CREAT | O_NOFOLLOW,
                            O_WRONLY | O_TRUNC, O_PATH, O_PATH | O_NOFOLLOW};
  return keeps(openat(at, path, ONE_OF(how), 0644), &files[which_folder]);
}

static long opens_by_rule(void) {
  static const uint64_t rules[] = {0, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
                                   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH | RESOLVE_IN_ROOT};
  static const int how[] = {O_RDWR | O_CREAT, O_RDONLY, O_PATH | O_NOFOLLOW, O_RDWR | O_TRUNC};
  struct open_how given = {.flags = (unsigned)ONE_OF(how), .resolve = ONE_OF(rules)};
  if (given.flags & O_CREAT) given.mode = 0644;
  int opened;
  // EAGAIN: something was renamed or mounted meanwhile, wherever that was; ".." may lead elsewhere then.
  do
    opened = (int)syscall(SYS_openat2, at, path, &given, sizeof given);
  while (opened < 0 && errno == EAGAIN);
  return keeps(opened, &files[which_folder]);
}

/* One that lies in the root: from elsewhere paths would lead out. */
static long opens_folder(void) {
  char link[32], place[600];
  int fd = openat(at, path, O_RDONLY | O_DIRECTORY);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, place, sizeof place - 1);
  place[len < 0 ? 0 : len] = 0;
  if (fd >= 0 && within(place) == place) return close(fd);
  return keeps(fd, &folders[which_folder]);
}

static long goes_by_folder(void) { return folders[which_folder] < 0 ? 0 : fchdir(folders[which_folder]); }

static long lists(void) {
  DIR *folder = opendir(path);
  struct dirent *entry;
  long count = 0;
  if (folder == NULL) return -1;
  while ((entry = readdir(folder)) != NULL) {
    seen += digest(entry->d_name, (long)strlen(entry->d_name)) * (entry->d_type + 1u);
    count++;
  }
  closedir(folder);
  return count;
}

static long writes(void) {
  struct stat file;
  int fd = files[which_folder];
  if (fd < 0) return 0;
  looked_at(&file, fstat(fd, &file));
  return write(fd, "abc", 3);
}

static long links_what_is_open(void) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", files[which_folder]);
  return files[which_folder] < 0 ? 0 : linkat(AT_FDCWD, link, AT_FDCWD, other, AT_SYMLINK_FOLLOW);
}

static long in_a_child(void) {
  pid_t child = fork();
  if (child != 0) return ended(child);
  struct stat file;
  int error = stat(path, &file) == 0 ? 0 : errno;
  int made = mkdir(other, 0755);
  error += made == 0 ? 0 : 3 * errno;
  if (made == 0) rmdir(other);
  _exit(error % 250);
}

static long (*const steps[])(void) = {
    makes_folder, makes_folder, makes_folder, removes_folder, removes,  renames, renames, exchanges, renames_to_new,
    links,        links_by_name, makes_node,  changes_mode,   cuts,     sets_attribute, gets_attribute, goes,
    asks_access,  sets_times,   looks,        looks,          reads_link, opens, opens,  opens_by_rule, opens_by_rule,
    opens_folder, goes_by_folder, lists,      writes,         links_what_is_open, in_a_child,
};

int main(int count, char **words) {
  if (count != 3) return 2;
  seed(strtoul(words[1], NULL, 10));
  memset(folders, -1, sizeof folders);
  memset(files, -1, sizeof files);
  for (const char *level = "abcd"; *level != 0; level++) {
    char folder[2] = {*level, 0};
    if (mkdir(folder, 0755) != 0 || chdir(folder) != 0) return 2;
  }
  if (getcwd(root, sizeof root) == NULL) return 2;
  for (unsigned folder = 0; folder < 9; folder++) {
    snprintf(path, sizeof path, folder < 3 ? "d%u" : "d%u/d%u", folder % 3, folder / 3);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) return 2;
  }
  root_len = strlen(root);
  for (int step = 0; step < atoi(words[2]); step++) {
    char here[600], first[600], second[600];
    spell(path);
    spell(other);
    strcpy(first, path);
    strcpy(second, other);
    which_folder = (int)pick(COUNT(folders));
    at = pick(3) || folders[which_folder] < 0 ? AT_FDCWD : folders[which_folder];
    seen = 0;
    unsigned which = pick(COUNT(steps));
    fflush(stdout);
    errno = 0;
    long result = steps[which]();
    int error = errno;
    printf("%d: step %u from %d, %s and %s: %ld %s, seen %x\n", step, which, at == AT_FDCWD ? -1 : which_folder,
           within(first), within(second), result, error_of(result, error), seen);
    if ((getcwd(here, sizeof here) == NULL || within(here) == here) && chdir(root) != 0) return 3;
  }
  return 0;
}
