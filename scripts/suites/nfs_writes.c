/* What a client does to an export, and what it is answered, a line each: `nfs_writes URL`. Two exports
 * that answer alike print the same. Times and inode numbers are not printed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nfsc/libnfs.h>

static struct nfs_context *mount_it(const char *text, const char *name) {
  struct nfs_context *nfs = nfs_init_context();
  char verifier[8];
  snprintf(verifier, sizeof verifier, "%d", (int)getpid());
  if (nfs) {
    nfs4_set_client_name(nfs, name);
    nfs4_set_verifier(nfs, verifier);
  }
  struct nfs_url *url = nfs ? nfs_parse_url_dir(nfs, text) : NULL;
  if (url == NULL || nfs_mount(nfs, url->server, url->path) != 0) {
    printf("mount: %s\n", nfs ? nfs_get_error(nfs) : "no context");
    exit(1);
  }
  return nfs;
}

static void say(const char *what, int result) {
  printf("%s: %s\n", what, result < 0 ? strerror(-result) : "done");
}

static void stat_it(struct nfs_context *nfs, const char *path) {
  struct nfs_stat_64 st;
  int result = nfs_stat64(nfs, path, &st);
  if (result < 0) {
    say(path, result);
  } else {
    int is_dir = S_ISDIR(st.nfs_mode);
    printf("%s: mode %o links %d uid %d size %lld\n", path, (unsigned)st.nfs_mode,
           (int)st.nfs_nlink, (int)st.nfs_uid, is_dir ? 0LL : (long long)st.nfs_size);
  }
}

static void sum_it(struct nfs_context *nfs, const char *path) {
  struct nfsfh *file;
  int result = nfs_open(nfs, path, O_RDONLY, &file);
  if (result < 0) {
    say(path, result);
    return;
  }
  static unsigned char bytes[65536];
  uint64_t at = 0, sum = 14695981039346656037ULL;
  while ((result = nfs_pread(nfs, file, at, sizeof bytes, bytes)) > 0) {
    for (int i = 0; i < result; i++) sum = (sum ^ bytes[i]) * 1099511628211ULL;
    at += (uint64_t)result;
  }
  printf("%s: %llu bytes, sum %llx%s\n", path, (unsigned long long)at, (unsigned long long)sum,
         result < 0 ? ", then an error" : "");
  nfs_close(nfs, file);
}

static void write_it(struct nfs_context *nfs, struct nfsfh *file, uint64_t at, size_t len, int seed) {
  unsigned char *bytes = malloc(len);
  for (size_t i = 0; i < len; i++) bytes[i] = (unsigned char)(i * 7 + (size_t)seed);
  for (size_t done = 0; done < len;) {
    /* The library fails with larger ones over NFS 4, whatever the server. */
    size_t piece = len - done > 1000 ? 1000 : len - done;
    int result = nfs_pwrite(nfs, file, at + done, piece, bytes + done);
    if (result <= 0) {
      say("write", result);
      break;
    }
    done += (size_t)result;
  }
  free(bytes);
}

static void files(struct nfs_context *nfs) {
  struct nfsfh *file;
  say("mkdir d", nfs_mkdir2(nfs, "/d", 0755));
  say("mkdir d again", nfs_mkdir2(nfs, "/d", 0755));
  say("create", nfs_open2(nfs, "/d/a", O_CREAT | O_RDWR, 0640, &file));
  write_it(nfs, file, 0, 10000, 1);
  write_it(nfs, file, 4090, 12, 2);
  write_it(nfs, file, 300000, 100000, 3);
  say("fsync", nfs_fsync(nfs, file));
  say("close", nfs_close(nfs, file));
  sum_it(nfs, "/d/a");
  say("truncate", nfs_truncate(nfs, "/d/a", 5000));
  say("truncate", nfs_truncate(nfs, "/d/a", 9000));
  sum_it(nfs, "/d/a");
  say("chmod", nfs_chmod(nfs, "/d/a", 0604));
  stat_it(nfs, "/d/a");
  say("unlink", nfs_unlink(nfs, "/d/a"));
  stat_it(nfs, "/d/a");
  say("create", nfs_open2(nfs, "/d/b", O_CREAT | O_RDWR, 0600, &file));
  write_it(nfs, file, 0, 500000, 4);
  nfs_close(nfs, file);
  sum_it(nfs, "/d/b");
  say("truncate", nfs_truncate(nfs, "/d/b", 234567));
  sum_it(nfs, "/d/b");
}

static void names(struct nfs_context *nfs) {
  char target[100] = "";
  say("link", nfs_link(nfs, "/d/b", "/d/second"));
  stat_it(nfs, "/d/b");
  say("link onto a name", nfs_link(nfs, "/d/b", "/d/second"));
  say("symlink", nfs_symlink(nfs, "b", "/d/sym"));
  say("readlink", nfs_readlink(nfs, "/d/sym", target, sizeof target - 1));
  printf("%s\n", target);
  say("mkdir e", nfs_mkdir2(nfs, "/e", 0700));
  say("rename", nfs_rename(nfs, "/d/b", "/e/moved"));
  say("rename of what is gone", nfs_rename(nfs, "/d/b", "/e/moved"));
  say("rename of a directory", nfs_rename(nfs, "/e", "/d/e"));
  say("rename below itself", nfs_rename(nfs, "/d", "/d/e/d"));
  for (int i = 0; i < 300; i++) {
    char path[300];
    struct nfsfh *file;
    snprintf(path, sizeof path, "/d/e/%0*d", 1 + i % 200, i);
    int result = nfs_open2(nfs, path, O_CREAT | O_RDWR, 0644, &file);
    if (result < 0) {
      say(path, result);
      continue;
    }
    write_it(nfs, file, 0, (size_t)i * 10, i);
    nfs_close(nfs, file);
  }
  say("rename onto a file", nfs_rename(nfs, "/d/e/moved", "/d/e/7"));
  stat_it(nfs, "/d/e/7");
  sum_it(nfs, "/d/e/7");
  say("rmdir of a full directory", nfs_rmdir(nfs, "/d/e"));
  say("unlink of a directory", nfs_unlink(nfs, "/d/e"));
  say("rmdir of a file", nfs_rmdir(nfs, "/d/second"));
  for (int i = 100; i < 300; i++) {
    char path[300];
    snprintf(path, sizeof path, "/d/e/%0*d", 1 + i % 200, i);
    int result = nfs_unlink(nfs, path);
    if (result < 0) say(path, result);
  }
  say("mkdir", nfs_mkdir2(nfs, "/d/gone", 0755));
  say("rmdir", nfs_rmdir(nfs, "/d/gone"));
}

static void locks(struct nfs_context *one, struct nfs_context *other, struct nfs_context *third) {
  struct nfsfh *mine, *theirs, *last;
  say("open by one", nfs_open2(one, "/d/locked", O_CREAT | O_RDWR, 0666, &mine));
  say("open by another", nfs_open(other, "/d/locked", O_RDWR, &theirs));
  say("lock", nfs_lockf(one, mine, NFS4_F_TLOCK, 100));
  int refused = nfs_lockf(other, theirs, NFS4_F_TLOCK, 50) < 0;
  printf("lock by another: %s\n", refused ? "refused" : "done");
  say("unlock", nfs_lockf(one, mine, NFS4_F_ULOCK, 100));
  /* One that was refused goes no further in this library. */
  say("open by a third", nfs_open(third, "/d/locked", O_RDWR, &last));
  say("lock by a third", nfs_lockf(third, last, NFS4_F_TLOCK, 50));
  say("unlock", nfs_lockf(third, last, NFS4_F_ULOCK, 50));
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct nfs_context *one = mount_it(argv[1], "one"), *other = mount_it(argv[1], "other"),
                     *third = mount_it(argv[1], "third");
  files(one);
  names(one);
  locks(one, other, third);
  nfs_destroy_context(third);
  nfs_destroy_context(other);
  nfs_destroy_context(one);
  return 0;
}
