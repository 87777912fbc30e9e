// Work on files whose every step is told to somebody outside, and a look at what is left of it.
//   ledger work DIR SEED FIRST COUNT FD   COUNT workers from number FIRST on, until they are killed
//   ledger map DIR SEED NUMBER FD         a worker that stores to a mapped file
//   ledger look DIR SEED NUMBER           of a worker's files: after which steps they look like that
//   ledger mapped DIR SEED NUMBER         the same of a mapped file
// A worker makes one change by one call, then writes "SEED NUMBER STEP" to FD. What it does follows
// from SEED, NUMBER and STEP, so a look carries it out in memory and prints each step after which the
// files are as they were found; a change that is there in part is like none of them.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 12, BYTES_MAX = 96 << 10, STEPS_MAX = 1000000, MAP_BYTES = 64 << 10 };

struct file {
    long size;
    int mode;
    unsigned char bytes[BYTES_MAX];
};

// A worker's directory: a file or none for each name; names share files.
struct state {
    struct file *of[NAMES];
};

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27, x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t next(uint64_t *random)
{
    return mixed(*random += 0x9e3779b97f4a7c15);
}

static const char *name(int index)
{
    static char text[2][8];
    static int turn;
    char *at = text[turn ^= 1];
    snprintf(at, sizeof text[0], "%c/%d", index % 2 ? 'b' : 'a', index);
    return at;
}

static void fill(unsigned char *to, long len, uint64_t seed)
{
    for (long i = 0; i < len; i++)
        to[i] = 1 + (seed >> i % 8 * 8 ^ i >> 3) % 255;
}

static int links(const struct state *state, const struct file *file)
{
    int count = 0;
    for (int i = 0; i < NAMES; i++)
        count += state->of[i] == file;
    return count;
}

static void drop(struct state *state, int index)
{
    struct file *file = state->of[index];
    state->of[index] = NULL;
    if (file && !links(state, file))
        free(file);
}

static void sized(struct file *file, long size)
{
    if (size > file->size)
        memset(file->bytes + file->size, 0, size - file->size);
    file->size = size;
}

static long least(long a, long b)
{
    return a < b ? a : b;
}

// Carries a write of some bytes out; where `real` is set, in the file too.
static int write_at(struct file *file, const char *path, long at, long len, uint64_t seed, int append, int real)
{
    len = least(len, BYTES_MAX - at);
    if (len <= 0)
        return 0;
    if (at + len > file->size)
        sized(file, at + len);
    fill(file->bytes + at, len, seed);
    if (!real)
        return 0;
    int fd = open(path, append ? O_WRONLY | O_APPEND : O_WRONLY);
    if (fd < 0)
        return -1;
    long done = append ? write(fd, file->bytes + at, len) : pwrite(fd, file->bytes + at, len, at);
    return close(fd) || done != len ? -1 : 0;
}

static int copy(struct file *from, const char *from_path, struct file *to, const char *to_path, long at, long len,
                int real)
{
    len = least(least(len, from->size), BYTES_MAX - at);
    if (len <= 0)
        return 0;
    if (at + len > to->size)
        sized(to, at + len);
    memcpy(to->bytes + at, from->bytes, len);
    if (!real)
        return 0;
    loff_t start = 0, end = at;
    int in = open(from_path, O_RDONLY), out = open(to_path, O_WRONLY);
    if (in < 0 || out < 0)
        return -1;
    long done = copy_file_range(in, &start, out, &end, len, 0);
    return close(in) | close(out) || done != len ? -1 : 0;
}

static int punch(struct file *file, const char *path, long at, long len, int real)
{
    if (at >= file->size)
        return 0;
    memset(file->bytes + at, 0, least(len, file->size - at));
    if (!real)
        return 0;
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return -1;
    int done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len);
    return close(fd) || done ? -1 : 0;
}

static int create(struct state *state, int index, int real)
{
    state->of[index] = calloc(1, sizeof *state->of[index]);
    state->of[index]->mode = 0644;
    if (!real)
        return 0;
    int fd = open(name(index), O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd < 0 ? -1 : close(fd);
}

// One step, in memory; where `real` is set, by a call as well. Nonzero, and errno, where that failed.
static int step(struct state *state, uint64_t seed, long number, long count, int real)
{
    uint64_t random = mixed(seed) ^ mixed(number << 32 | count);
    int i = next(&random) % NAMES, j = next(&random) % NAMES, kind = next(&random) % 16;
    struct file *file = state->of[i], *other = state->of[j];
    if (!file && (!other || kind > 3))
        return create(state, i, real);
    if (!file) {
        state->of[i] = other;
        return real ? link(name(j), name(i)) : 0;
    }
    uint64_t content = next(&random);
    long at = next(&random) % (file->size + 5000), len = 1 + next(&random) % 20000;
    switch (kind) {
    case 0 ... 3:
        return write_at(file, name(i), at, len, content, 0, real);
    case 4 ... 6:
        return write_at(file, name(i), at % (file->size + 1), 1 + len % 200, content, 0, real);
    case 7 ... 9:
        return write_at(file, name(i), file->size, 1 + len % 6000, content, 1, real);
    case 10:
        sized(file, least(at, BYTES_MAX));
        return real ? truncate(name(i), file->size) : 0;
    case 11:
        if (file == other)
            return 0;
        drop(state, j);
        state->of[j] = file, state->of[i] = NULL;
        return real ? rename(name(i), name(j)) : 0;
    case 12:
        drop(state, i);
        return real ? unlink(name(i)) : 0;
    case 13:
        return punch(file, name(i), at, len, real);
    case 14:
        return !other || other == file ? 0 : copy(other, name(j), file, name(i), at, len, real);
    default:
        file->mode = content & 0777;
        return real ? chmod(name(i), file->mode) : 0;
    }
}

static int tell(int fd, uint64_t seed, long number, long count)
{
    char line[64];
    int len = snprintf(line, sizeof line, "%lu %ld %ld\n", seed, number, count);
    return write(fd, line, len) == len ? 0 : -1;
}

static int enter(const char *dir, long number)
{
    char home[32];
    snprintf(home, sizeof home, "%ld", number);
    return chdir(dir) || chdir(home);
}

static int work(const char *dir, uint64_t seed, long number, int fd)
{
    char home[32];
    struct state state = {0};
    snprintf(home, sizeof home, "%ld", number);
    if (chdir(dir) || mkdir(home, 0755) || chdir(home) || mkdir("a", 0755) || mkdir("b", 0755) || tell(fd, seed, number, 0))
        return perror("ledger: to begin"), 1;
    for (long count = 1; count < STEPS_MAX; count++)
        if (step(&state, seed, number, count, 1) || tell(fd, seed, number, count))
            return fprintf(stderr, "ledger: worker %ld, step %ld: %m\n", number, count), 1;
    return 0;
}

static long read_whole(const char *path, unsigned char *bytes)
{
    int fd = open(path, O_RDONLY);
    long len = fd < 0 ? -1 : pread(fd, bytes, BYTES_MAX, 0);
    if (fd >= 0)
        close(fd);
    return len;
}

// What is there, of names that a worker uses; -1 where there are others, or one can't be read.
static int found(struct file **files, struct stat *stats)
{
    int expected = 0, there = 0;
    for (int i = 0; i < NAMES; i++) {
        files[i] = NULL;
        if (lstat(name(i), &stats[i]))
            continue;
        files[i] = calloc(1, sizeof *files[i]);
        files[i]->size = read_whole(name(i), files[i]->bytes);
        if (files[i]->size != stats[i].st_size)
            return fprintf(stderr, "ledger: %s: %ld bytes of %ld: %m\n", name(i), files[i]->size, stats[i].st_size), -1;
        expected++;
    }
    for (int i = 0; i < 2; i++) {
        DIR *dir = opendir(i ? "b" : "a");
        for (struct dirent *entry; dir && (entry = readdir(dir));)
            there += entry->d_name[0] != '.';
        if (!dir || closedir(dir))
            return -1;
    }
    return there == expected ? 0 : -1;
}

static int alike(const struct state *state, struct file **files, const struct stat *stats)
{
    for (int i = 0; i < NAMES; i++) {
        const struct file *file = state->of[i];
        if (!file != !files[i])
            return 0;
        if (file && (file->size != files[i]->size || (int)(stats[i].st_mode & 0777) != file->mode
                     || (int)stats[i].st_nlink != links(state, file)))
            return 0;
    }
    for (int i = 0; i < NAMES; i++)
        for (int j = 0; state->of[i] && j < i; j++)
            if ((state->of[i] == state->of[j]) != (state->of[j] && stats[i].st_ino == stats[j].st_ino))
                return 0;
    for (int i = 0; i < NAMES; i++)
        if (state->of[i] && memcmp(state->of[i]->bytes, files[i]->bytes, files[i]->size))
            return 0;
    return 1;
}

static int look(const char *dir, uint64_t seed, long number, long last)
{
    struct state state = {0};
    struct file *files[NAMES];
    struct stat stats[NAMES];
    if (enter(dir, number) || found(files, stats))
        return perror("ledger: to look"), 1;
    for (long count = 0; count <= last; count++) {
        if (count)
            step(&state, seed, number, count, 0);
        if (alike(&state, files, stats))
            printf("@found %lu %ld %ld\n", seed, number, count);
    }
    for (int i = 0; i < NAMES; i++)
        if (files[i])
            printf("%s: mode %o, %u links, %ld bytes\n", name(i), stats[i].st_mode, (unsigned)stats[i].st_nlink, files[i]->size);
    return 0;
}

// Each step stores its number in one word after another, and has it flushed.
static int map_work(const char *dir, uint64_t seed, long number, int fd)
{
    char home[32];
    snprintf(home, sizeof home, "%ld", number);
    if (chdir(dir) || mkdir(home, 0755) || chdir(home))
        return perror("ledger: to begin"), 1;
    int file = open("map", O_RDWR | O_CREAT | O_EXCL, 0644);
    if (file < 0 || posix_fallocate(file, 0, MAP_BYTES))
        return perror("ledger: to begin"), 1;
    volatile uint64_t *words = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (words == MAP_FAILED || tell(fd, seed, number, 0))
        return perror("ledger: to map"), 1;
    for (uint64_t count = 1; count < STEPS_MAX; count++) {
        uint64_t at = count * 67 % (MAP_BYTES / 8);
        words[at] = count;
        if (msync((void *)((uintptr_t)&words[at] & ~4095ul), 4096, MS_SYNC) || tell(fd, seed, number, count))
            return fprintf(stderr, "ledger: mapped, step %lu: %m\n", count), 1;
    }
    return 0;
}

static int map_look(const char *dir, uint64_t seed, long number)
{
    static uint64_t words[MAP_BYTES / 8], expected[MAP_BYTES / 8];
    int file = enter(dir, number) ? -1 : open("map", O_RDONLY);
    if (file < 0 || pread(file, words, MAP_BYTES, 0) != MAP_BYTES)
        return perror("ledger: to look"), 1;
    for (uint64_t count = 0; count < STEPS_MAX; count++) {
        expected[count * 67 % (MAP_BYTES / 8)] = count;
        if (!memcmp(words, expected, MAP_BYTES))
            return printf("@found %lu %ld %lu\n", seed, number, count), 0;
    }
    return fprintf(stderr, "ledger: the mapped file is like after no step\n"), 1;
}

int main(int count, char **arguments)
{
    const char *what = count > 4 ? arguments[1] : "", *dir = count > 4 ? arguments[2] : "";
    uint64_t seed = count > 4 ? strtoul(arguments[3], NULL, 10) : 0;
    long number = count > 4 ? atol(arguments[4]) : 0;
    umask(0);
    if (!strcmp(what, "look") && count == 6)
        return look(dir, seed, number, atol(arguments[5]));
    if (!strcmp(what, "mapped") && count == 5)
        return map_look(dir, seed, number);
    if (!strcmp(what, "map") && count == 6)
        return map_work(dir, seed, number, atoi(arguments[5]));
    if (strcmp(what, "work") || count != 7)
        return fprintf(stderr, "ledger work|map|look|mapped DIR SEED NUMBER...\n"), 2;
    for (long worker = 0; worker < atol(arguments[5]); worker++)
        if (!fork())
            exit(work(dir, seed, number + worker, atoi(arguments[6])));
    for (int status, failed = 0; wait(&status) > 0 || (exit(failed), 0);)
        failed |= status != 0;
}
