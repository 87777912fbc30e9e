// pages FILE MB ROUNDS: one thread writes 8 bytes of each page by a descriptor while another stores 8
// others by a mapping; both must be there, in the mapping and in the file. Prints what is lost.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L
static const uint64_t written = 0x1111111111111111, stored = 0x2222222222222222;
static int fd;
static char *map;
static long pages;
static pthread_barrier_t both;

static void *writes(void *unused)
{
    pthread_barrier_wait(&both);
    for (long i = 0; i < pages; i++)
        if (pwrite(fd, &written, 8, i * PAGE + 1024) != 8)
            perror("pwrite");
    return unused;
}

static void *stores(void *unused)
{
    pthread_barrier_wait(&both);
    for (long i = 0; i < pages; i++)
        *(volatile uint64_t *)(map + i * PAGE + 3072) = stored;
    return unused;
}

static long lost(const char *bytes)
{
    long count = 0;
    for (long i = 0; i < pages; i++)
        count += memcmp(bytes + i * PAGE + 1024, &written, 8) || memcmp(bytes + i * PAGE + 3072, &stored, 8);
    return count;
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    long size = atol(arguments[2]) << 20, mapped = 0, kept = 0;
    char *copy = malloc(size);
    pages = size / PAGE;
    pthread_barrier_init(&both, NULL, 2);
    for (int round = 0; round < atoi(arguments[3]); round++) {
        pthread_t one, other;
        unlink(arguments[1]);
        fd = open(arguments[1], O_RDWR | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || ftruncate(fd, size))
            return perror(arguments[1]), 2;
        // With pages of its own or without, read before or not.
        if (round % 3 == 1 && pwrite(fd, copy, size, 0) != size)
            return perror("pwrite"), 2;
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return perror("mmap"), 2;
        for (long i = 0; round % 3 == 2 && i < pages; i++)
            (void)*(volatile char *)(map + i * PAGE);
        pthread_create(&one, NULL, writes, NULL);
        pthread_create(&other, NULL, stores, NULL);
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        mapped += lost(map);
        munmap(map, size);
        if (pread(fd, copy, size, 0) != size)
            return perror("pread"), 2;
        kept += lost(copy);
        close(fd);
    }
    unlink(arguments[1]);
    printf("lost of %ld pages a round: %ld in mappings, %ld in files\n", pages, mapped, kept);
    return mapped || kept;
}
