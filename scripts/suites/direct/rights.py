"""What a user may do with its own files and with others', drawn from a seed: `rights.py DIR SEED STEPS`
says what each call came to, and at last what is there. `rights.py --prepare DIR` makes the files: others'
also, where an administrator runs it."""

import ctypes
import errno
import fcntl
import os
import random
import stat
import struct
import sys

OTHER = 1001
FOLDERS = ["own", "own/deep", "theirs", "theirs/sticky", "sticky", "shared"]
NAMES = ["a", "b", "c", "link", "dir", "theirs"]
MODES = [0o700, 0o600, 0o400, 0o300, 0o500, 0o755, 0o644, 0o000, 0o077, 0o1777]
# A mount keeps set-id bits that user 0 writes over, also where it has no capability for that.
MODES += [0o4755, 0o2755, 0o4200] if os.getuid() else []
OPEN = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
MORE = [0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_DIRECTORY,
        os.O_PATH, os.O_NOFOLLOW, os.O_APPEND]


def prepare(place):
    os.umask(0)
    for folder, owner, mode in zip(
        FOLDERS, [0, 0, OTHER, OTHER, 0, OTHER], [0o755, 0o755, 0o711, 0o1777, 0o1777, 0o777]
    ):
        os.mkdir(f"{place}/{folder}")
        for name, whose, bits in [("theirs", OTHER, 0o646), ("a", 0, 0o644), ("b", OTHER, 0o600)]:
            path = f"{place}/{folder}/{name}"
            open(path, "w").write(name)
            told(lambda: os.chown(path, whose, whose))
            os.chmod(path, bits)
        os.symlink("a", f"{place}/{folder}/link")
        told(lambda: os.lchown(f"{place}/{folder}/link", owner, owner))
        told(lambda: os.chown(f"{place}/{folder}", owner, owner))
        os.chmod(f"{place}/{folder}", mode)


def opened(draw, path):
    flags = draw.choice(OPEN) | draw.choice(MORE) | draw.choice([0, 0, 0, os.O_TRUNC])
    fd = os.open(path, flags, draw.choice(MODES))
    try:
        found = os.fstat(fd)
        done = [stat.S_IFMT(found.st_mode), found.st_size if stat.S_ISREG(found.st_mode) else 0]
        for call in (lambda: os.write(fd, b"some"), lambda: os.read(fd, 4), lambda: sorted(os.listdir(fd)),
                     lambda: os.fchmod(fd, draw.choice(MODES)), lambda: os.utime(fd),
                     lambda: chmod2(path, draw.choice(MODES), draw.choice([0, 0x100])),
                     lambda: chmod2("", draw.choice(MODES), 0x1000, twice(fd, path)),
                     lambda: os.setxattr(path, "system.posix_acl_access", acl(draw.choice(MODES))),
                     lambda: fcntl.flock(fd, fcntl.LOCK_SH), lambda: sorted(os.listxattr(fd)),
                     lambda: os.ftruncate(fd, 9), lambda: os.fchown(fd, -1, draw.choice([-1, 0, OTHER]))):
            if draw.random() < 0.4:
                done.append(told(call))
        return done
    finally:
        os.close(fd)


def told(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def step(draw, kept):
    path, other = (f"{draw.choice(FOLDERS)}/{draw.choice(NAMES)}" for _ in range(2))
    if draw.random() < 0.2:
        path = draw.choice(FOLDERS + ["own/../sticky/a", "own/deep/../a", "theirs/../own/a", "own/link/x"])
    call = draw.choice([
        "open", "open", "open", "mkdir", "rmdir", "unlink", "rename", "rename", "link", "symlink", "chmod",
        "chmod", "chmod2", "acl", "access", "stat", "readlink", "truncate", "utime", "chown", "list", "keep", "at",
    ])
    calls = {
        "open": lambda: opened(draw, path),
        "mkdir": lambda: os.mkdir(path, draw.choice(MODES)),
        "rmdir": lambda: os.rmdir(path),
        "unlink": lambda: os.unlink(path),
        "rename": lambda: os.rename(path, other),
        "link": lambda: os.link(path, other, follow_symlinks=draw.random() < 0.5),
        "symlink": lambda: os.symlink(draw.choice(["a", "../own/a", "nowhere"]), path),
        "chmod": lambda: os.chmod(path, draw.choice(MODES)),
        "chmod2": lambda: chmod2(path, draw.choice(MODES), draw.choice([0, 0x100])),
        "acl": lambda: os.setxattr(path, "system.posix_acl_access", acl(draw.choice(MODES))),
        "access": lambda: [os.access(path, bits) for bits in range(8)],
        "stat": lambda: shown(path),
        "readlink": lambda: os.readlink(path),
        "truncate": lambda: os.truncate(path, draw.randrange(9000)),
        "utime": lambda: os.utime(path, draw.choice([None, (1, 2)])),
        "chown": lambda: os.chown(path, draw.choice([-1, 0, OTHER]), draw.choice([-1, 0, OTHER])),
        "list": lambda: sorted(os.listdir(path)),
        # What is open stays open to who has opened it, whatever its mode is by then.
        "keep": lambda: keep(draw, kept, path),
        "at": lambda: at(draw, path),
    }
    print(call, path, other if call in ("rename", "link") else "", told(calls[call]))


def twice(fd, path):
    """The file once more; where it can't be opened so, by the same number."""
    try:
        other = os.open(path, os.O_PATH)
        os.dup2(other, 900)
        os.close(other)
        return 900
    except OSError:
        return fd


def chmod2(path, mode, flags, at=-100):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(452, at, path.encode(), mode, flags):
        raise OSError(ctypes.get_errno(), path)


def acl(mode):
    """Of an owner's, a user's, a group's and others' rights, behind a version."""
    entries = [(1, mode >> 6, -1), (2, 5, 1001), (4, mode >> 3, -1), (16, 7, -1), (32, mode, -1)]
    packed = (struct.pack("<HHi", tag, bits & 7, who) for tag, bits, who in entries)
    return struct.pack("<I", 2) + b"".join(packed)


def keep(draw, kept, path):
    kept.append(os.open(path, draw.choice(OPEN)))
    if len(kept) > 4:
        os.close(kept.pop(0))
    done = [told(lambda: os.pwrite(kept[0], b"kept", 2)), told(lambda: os.pread(kept[0], 6, 0))]
    if draw.random() < 0.2:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    return done


def at(draw, path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return told(lambda: os.close(os.open(draw.choice(NAMES), draw.choice(OPEN), dir_fd=fd)))
    finally:
        os.close(fd)


def shown(path):
    found = os.lstat(path)
    is_dir = stat.S_ISDIR(found.st_mode)
    size = 0 if is_dir else (found.st_nlink, found.st_size)
    return oct(found.st_mode), found.st_uid, found.st_gid, size


def main():
    if sys.argv[1] == "--prepare":
        prepare(sys.argv[2])
        return
    os.chdir(sys.argv[1])
    draw, kept = random.Random(int(sys.argv[2])), []
    os.umask(0o022)
    for _ in range(int(sys.argv[3])):
        step(draw, kept)
    for folder in ["."] + FOLDERS:
        for name in sorted(told(lambda: os.listdir(folder))):
            print(folder, name, told(lambda: shown(f"{folder}/{name}")))


main()
