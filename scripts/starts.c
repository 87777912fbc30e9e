/* Times of starting processes: `starts fork|exec|spawn COUNT`, in us of the clock and of the CPU each. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec / 1e6; }

static double used(int who) {
  struct rusage usage;
  getrusage(who, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
  if (count < 3) return 2;
  char *program[] = {"/bin/true", NULL};
  int rounds = atoi(words[2]);
  double clock = now(), cpu = used(RUSAGE_SELF) + used(RUSAGE_CHILDREN);
  for (int round = 0; round < rounds; round++) {
    pid_t child;
    if (!strcmp(words[1], "spawn")) {
      if (posix_spawn(&child, program[0], NULL, NULL, program, environ)) return 1;
    } else if (!(child = fork())) {
      if (!strcmp(words[1], "exec")) execv(program[0], program);
      _exit(!strcmp(words[1], "exec"));
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) return 1;
  }
  clock = now() - clock;
  cpu = used(RUSAGE_SELF) + used(RUSAGE_CHILDREN) - cpu;
  printf("%.1f %.1f\n", clock * 1e6 / rounds, cpu * 1e6 / rounds);
  return 0;
}
