"""What python programs do with files, in the working directory; what is printed must not depend on
the file system."""
import fcntl
import hashlib
import mmap
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def tree():
    for n in range(40):
        os.makedirs(f"tree/{n % 4}/{n % 3}", exist_ok=True)
        with open(f"tree/{n % 4}/{n % 3}/{n}", "w") as file:
            file.write(f"{n}\n" * n * 50)
    os.symlink("0/0/0", "tree/link")
    shutil.copytree("tree", "copy", symlinks=True)
    shutil.move("copy", "moved")
    for name, _, files in sorted(os.walk("moved")):
        print(name, sorted(files), [digest(os.path.join(name, file)) for file in sorted(files)])
    with os.scandir("moved/0") as found:
        print(sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in found))
    archive = shutil.make_archive("archive", "gztar", "moved")
    shutil.unpack_archive(archive, "unpacked")
    print(digest("unpacked/1/1/25"), os.readlink("unpacked/link"))
    shutil.rmtree("tree")
    print(sorted(os.listdir(".")))


def temporary():
    tempfile.tempdir = os.getcwd()
    with tempfile.TemporaryFile() as file:
        file.write(b"unnamed" * 1000)
        file.seek(3000)
        print(file.read(9), os.fstat(file.fileno()).st_size)
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"x" * 5000)
        file.flush()
        print(os.stat(file.name).st_size, os.access(file.name, os.R_OK))
    with tempfile.SpooledTemporaryFile(max_size=100) as file:
        file.write(b"spooled" * 100)
        file.seek(693)
        print(file.read())


def descriptors():
    fd = os.open("fd", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
    print(os.write(fd, b"0123456789"), os.pread(fd, 3, 4), os.lseek(fd, -2, os.SEEK_END))
    twin = os.dup(fd)
    print(os.read(twin, 10), os.lseek(fd, 0, os.SEEK_CUR))
    os.ftruncate(fd, 6)
    os.posix_fallocate(fd, 0, 9000)
    print(os.pwritev(fd, [b"ab", b"cd"], 8998), os.fstat(twin).st_size)
    pieces = [bytearray(3), bytearray(5)]
    print(os.preadv(fd, pieces, 8995), pieces, oct(os.fstat(fd).st_mode))
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(twin, fcntl.LOCK_EX)
    os.utime("fd", ns=(1, 2_000_000_003))
    print(os.stat("fd").st_mtime_ns, os.sendfile(twin, os.open("moved/1/1/25", os.O_RDONLY), 0, 100))
    os.fsync(fd)
    os.close(fd)
    print(os.lseek(twin, 0, os.SEEK_CUR))
    os.close(twin)
    try:
        os.open("missing/file", os.O_RDONLY)
    except FileNotFoundError as error:
        print(error.errno)
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.mkdir("at", dir_fd=here)
    os.rename("fd", "at/fd", src_dir_fd=here, dst_dir_fd=here)
    print(os.listdir(os.open("at", os.O_RDONLY, dir_fd=here)))


def mapped():
    with open("map", "w+b") as file:
        file.truncate(20000)
        with mmap.mmap(file.fileno(), 0) as map:
            map[5000:5005] = b"hello"
            map.flush()
            file.seek(5000)
            print(file.read(5), map.find(b"hello"))
            os.pwrite(file.fileno(), b"there", 9000)
            print(map[9000:9005])
            map.resize(30000)
            map[29999] = 7
        print(os.stat("map").st_size, digest("map"))
    with open("map", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as map:
        map[0] = 9
        print(map[0], os.pread(file.fileno(), 1, 0))


def work(n):
    with open(f"worker-{n}", "w") as file:
        file.write(str(n) * 1000)
    with open("shared", "ab", buffering=0) as file:
        for _ in range(50):
            file.write(b"%d\n" % n)
    return digest(f"worker-{n}")


def processes():
    with open("out", "w") as out:
        subprocess.run(["sh", "-c", "echo one; echo two >&2; cat"], stdin=open("fd2", "w+"),
                       stdout=out, stderr=subprocess.STDOUT, check=True)
        out.write("three\n")
    print(open("out").read().split())
    print(subprocess.check_output(["sort", "-r", "out"], cwd="."))
    code = "import os, sys; os.write(int(sys.argv[1]), b'child')"
    with open("passed", "w+b", buffering=0) as file:
        file.write(b"parent ")
        subprocess.run([sys.executable, "-c", code, str(file.fileno())], check=True,
                       pass_fds=[file.fileno()])
        file.write(b" parent")
        file.seek(0)
        print(file.read())
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(work, range(8)))
    print(sorted(open("shared").read().split()) == sorted(str(n) for n in range(8) for _ in range(50)))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8, 16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(len(open("shared").read().split()), sorted(name for name in os.listdir() if "worker" in name))


for task in (tree, temporary, descriptors, mapped, processes):
    print(task.__name__)
    sys.stdout.flush()
    task()
