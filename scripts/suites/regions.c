// regions FILE STEPS [SEED]: four processes have a part of the file each, whose ends lie within pages, and change it by
// writes, stores to a mapping, holes and copies, the last one its length too. Each finds its own part as it has made it, whatever the others do to
// the same pages. Prints what is not.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define BYTES 10007
static const size_t size = PROCESSES * BYTES;
static const char *file;
static unsigned char mine[BYTES], bytes[BYTES], *map;
static int fd;
static off_t start;

static int fails(const char *what)
{
    perror(what);
    return 2;
}

static int is_as_made(const unsigned char *found, const char *where, int step)
{
    for (int at = 0; at < BYTES; at++) {
        if (found[at] == mine[at])
            continue;
        printf("step %d: byte %ld of the %s is %02x and not %02x\n", step, (long)start + at, where, found[at], mine[at]);
        return 0;
    }
    return 1;
}

static int copies(int from, int to, size_t len)
{
    loff_t in = start + from, out = start + to;
    memcpy(mine + to, mine + from, len);
    while (len > 0) {
        ssize_t done = copy_file_range(fd, &in, fd, &out, len, 0);
        if (done <= 0)
            return fails("copy_file_range");
        len -= done;
    }
    return 0;
}

static int changes(void)
{
    int at = rand() % BYTES, len = 1 + rand() % (rand() % 4 ? 200 : BYTES), other = rand() % BYTES;
    if (at + len > BYTES)
        len = BYTES - at;
    memset(bytes, 1 + rand() % 255, len);
    switch (rand() % (start + BYTES == (off_t)size ? 9 : 8)) {
    case 0:
    case 1:
    case 2:
        memcpy(mine + at, bytes, len);
        return pwrite(fd, bytes, len, start + at) == len ? 0 : fails("pwrite");
    case 3:
        if (map == NULL)
            map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return fails("mmap");
        memcpy(mine + at, bytes, len);
        memcpy(map + start + at, bytes, len);
        return 0;
    case 4:
    case 5:
        memset(mine + at, 0, len);
        return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start + at, len) ? fails("fallocate") : 0;
    case 6:
        // Not onto itself.
        return other + len <= at || (at + len <= other && other + len <= BYTES) ? copies(other, at, len) : 0;
    case 8:
        memset(mine + at, 0, BYTES - at);
        return ftruncate(fd, start + at) || ftruncate(fd, size) ? fails("ftruncate") : 0;
    default:
        if (map == NULL || rand() % 5)
            return fsync(fd) ? fails("fsync") : 0;
        munmap(map, size);
        map = NULL;
        return 0;
    }
}

static int works(int which, int steps, int seed)
{
    start = (off_t)which * BYTES;
    srand(seed * PROCESSES + which);
    fd = open(file, O_RDWR);
    if (fd < 0)
        return fails(file);
    for (int step = 0; step < steps; step++) {
        int failed = changes();
        if (failed)
            return failed;
        if (step % 3 == 0 && (pread(fd, bytes, BYTES, start) != BYTES || !is_as_made(bytes, "file", step)))
            return 1;
        if (step % 11 == 0 && map && !is_as_made(map + start, "mapping", step))
            return 1;
    }
    return 0;
}

int main(int count, char **arguments)
{
    int failed = 0, status;
    if (count < 3)
        return 2;
    file = arguments[1];
    unlink(file);
    fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || ftruncate(fd, size))
        return fails(file);
    close(fd);
    for (int which = 0; which < PROCESSES; which++)
        if (fork() == 0) {
            status = works(which, atoi(arguments[2]), count > 3 ? atoi(arguments[3]) : 1);
            fflush(stdout);
            _exit(status);
        }
    while (wait(&status) > 0)
        failed |= status != 0;
    unlink(file);
    return failed;
}
