/* What the programs of this folder share: choices that follow from a seed, and what a step says of itself. A program
   takes a seed and a number of steps, works in the folder that it is started in, and prints a line for each step,
   the same on all file systems. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define ONE_OF(array) ((array)[pick(COUNT(array))])

static uint64_t chosen;

static inline void seed(uint64_t number) { chosen = 88172645463325252u + number * 104729; }

static inline unsigned pick(unsigned below) {
  chosen ^= chosen << 13;
  chosen ^= chosen >> 7;
  chosen ^= chosen << 17;
  return (unsigned)(chosen >> 11) % below;
}

/* The error that a step has met, by name. */
static inline const char *error_of(long result, int error) {
  return result < 0 ? strerrorname_np(error) : "";
}

static inline unsigned digest(const char *bytes, long len) {
  unsigned sum = 0;
  for (long at = 0; at < len; at++) sum = sum * 31 + (unsigned char)bytes[at];
  return sum;
}

/* How a child has ended. */
static inline long ended(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
