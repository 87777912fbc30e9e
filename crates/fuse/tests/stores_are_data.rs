//! Promise: `SEEK_DATA` and `SEEK_HOLE` pass over nothing that a mapping has stored, written back or not; and what
//! could not be written back is no data for anybody.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use novale_fuse::ShutDown;
use rustix::fs::{SeekFrom as From, seek};
use rustix::io::Errno;
use support::{Mount, python};

const PAGE: u64 = 4096;

/// A copy by holes had zeros for what was stored to a hole of a mapped file: the kernel asks without writing back.
#[test]
fn what_a_mapping_stores_to_a_hole_is_found() {
    let name = "what_a_mapping_stores_to_a_hole_is_found";
    let Some(mount) = Mount::with_threads(name, "", 1) else { return };
    let script = "import mmap, os, sys\n\
                  P = 4096\n\
                  f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
                  os.ftruncate(f, 64 * P)\n\
                  m = mmap.mmap(f, 64 * P)\n\
                  g = os.open(sys.argv[1], os.O_RDONLY)\n\
                  data = lambda at: os.lseek(g, at * P, os.SEEK_DATA) // P\n\
                  hole = lambda at: os.lseek(g, at * P, os.SEEK_HOLE) // P\n\
                  m[5 * P + 7] = 1\n\
                  print(data(0), hole(0), hole(5))\n\
                  m[6 * P] = 1; m[7 * P] = 2\n\
                  print(hole(5), data(6))\n\
                  m[63 * P + 4095] = 1\n\
                  print(data(8), hole(63), os.lseek(g, 60 * P + 1, os.SEEK_DATA))\n\
                  os.pwrite(f, b'x', 20 * P)\n\
                  m[10 * P] = 1; m[19 * P] = 1; m[21 * P] = 1\n\
                  print(data(8), hole(10), data(11), hole(19), data(22))\n\
                  os.close(f)\n\
                  m[40 * P] = 1\n\
                  print(data(22), hole(40))\n\
                  m[50 * P] = 1; m.close()\n\
                  print(data(41), hole(50))";
    let Some(printed) = python(name, script, &[&mount.path("f")]) else { return };
    let expected = ["5 0 6", "8 6", "63 64 258048", "10 11 19 22 63", "40 41", "50 51"];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

/// On a full pool: the kernel took its pages for clean, and a copy that it makes by them had bytes that the file
/// has not.
#[test]
fn what_could_not_be_written_back_is_read_by_nobody() {
    let name = "what_could_not_be_written_back";
    let Some(mount) = Mount::new(name, "") else { return };
    let script = "import mmap, os, sys, time\n\
                  P, N = 4096, 2048\n\
                  f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
                  g = os.open(sys.argv[1], os.O_RDONLY)\n\
                  os.ftruncate(f, N * P)\n\
                  m = mmap.mmap(f, N * P)\n\
                  for size in (1 << 20, P):\n\
                  \tfull = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_APPEND)\n\
                  \ttry:\n\
                  \t\twhile os.write(full, b'f' * size) == size: pass\n\
                  \texcept OSError as error: print(error.errno)\n\
                  for page in range(N): m[page * P] = 1\n\
                  try: m.flush()\n\
                  except OSError as error: print(error.errno)\n\
                  until = time.monotonic() + 10\n\
                  count = lambda fd: sum(os.pread(fd, P, page * P)[0] for page in range(N))\n\
                  while count(f) != count(g) and time.monotonic() < until: pass\n\
                  print(count(f) == count(g), count(f) < N)";
    let files = [mount.path("f"), mount.path("full")];
    let Some(printed) = python(name, script, &[&files[0], &files[1]]) else { return };
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["28", "28", "28", "True True"]);
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

/// The time was that of the write-back.
#[test]
fn a_time_that_is_set_stays_behind_what_a_mapping_has_stored() {
    let name = "a_time_that_is_set";
    let Some(mount) = Mount::with_threads(name, "", 1) else { return };
    let script = "import mmap, os, sys\n\
                  P, N = 4096, 64\n\
                  f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
                  os.ftruncate(f, N * P)\n\
                  m = mmap.mmap(f, N * P)\n\
                  for page in range(N): m[page * P] = 1\n\
                  os.utime(sys.argv[1], (1e9, 1e9))\n\
                  print(int(os.fstat(f).st_mtime))\n\
                  m.flush(); m.close(); os.close(f)\n\
                  print(int(os.stat(sys.argv[1]).st_mtime))";
    let Some(printed) = python(name, script, &[&mount.path("f")]) else { return };
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["1000000000"; 2]);
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

/// It was EIO, as on a disk that is broken.
#[test]
fn what_a_quota_keeps_from_being_written_back_is_a_lack_of_space() {
    let name = "what_a_quota_keeps";
    let Some(mount) = Mount::new(name, "") else { return };
    let script = "import mmap, os, sys\n\
                  P, N, d = 4096, 64, sys.argv[1]\n\
                  os.mkdir(d)\n\
                  os.setxattr(d, 'trusted.novale.project', str(os.stat(d).st_ino).encode())\n\
                  os.setxattr(d, 'trusted.novale.quota', b'pages_max=16 inodes_max=0')\n\
                  f = os.open(d + '/f', os.O_RDWR | os.O_CREAT)\n\
                  os.ftruncate(f, N * P)\n\
                  m = mmap.mmap(f, N * P)\n\
                  for page in range(N): m[page * P] = 1\n\
                  try: m.flush()\n\
                  except OSError as error: print(error.errno)";
    let Some(printed) = python(name, script, &[&mount.path("d")]) else { return };
    assert_eq!(printed.trim(), "28");
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

/// A program that says by a line how far it is.
struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Program {
    fn new(script: &str, path: &Path) -> Option<Self> {
        let mut python = Command::new("python3");
        python.arg("-uc").arg(script).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = python.spawn().ok()?;
        let lines = BufReader::new(child.stdout.take()?);
        Some(Self { child, lines })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The kernel writes back in the middle of an answer: nothing may wait in a circle, whoever is killed.
#[test]
fn seeks_and_stores_go_on_beside_each_other_until_one_is_killed() {
    let name = "seeks_and_stores_go_on_beside_each_other_until_one_is_killed";
    let Some(mount) = Mount::with_threads(name, "", 1) else { return };
    let path = mount.path("f");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(100 * PAGE).unwrap();
    let stores = "import mmap, os, sys\n\
                  m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)\n\
                  for at in range(0, 10**9, 2):\n\
                  \x20m[at % 100 * 4096 + at // 100 % 4096] = 1\n\
                  \x20if at < 100: print(at)\n\
                  \x20elif at % 50 == 0: print()";
    let seeks = "import os, sys\n\
                 f = os.open(sys.argv[1], os.O_RDWR)\n\
                 while True:\n\
                 \x20at = os.lseek(f, 0, os.SEEK_DATA)\n\
                 \x20while at < 98 * 4096:\n\
                 \x20\x20at = os.lseek(f, os.lseek(f, at, os.SEEK_HOLE), os.SEEK_DATA)\n\
                 \x20print(at)\n\
                 \x20os.posix_fallocate(f, 0, 1); os.ftruncate(f, 100 * 4096)";
    let Some(mut storing) = Program::new(stores, &path) else {
        println!("skipped: {name}: no python3");
        return;
    };
    assert_eq!(storing.line(), "0\n");
    for page in (0..100).step_by(2) {
        assert_eq!(seek(&file, From::Data(page * PAGE)), Ok(page * PAGE));
        assert_eq!(seek(&file, From::Hole(page * PAGE)), Ok((page + 1) * PAGE));
        let has_more = page < 98;
        if has_more {
            assert_eq!(storing.line(), format!("{}\n", page + 2));
        }
        assert_eq!(seek(&file, From::Data((page + 1) * PAGE)).is_ok(), has_more);
    }
    for _ in 0..3 {
        let mut seeking = [(); 3].map(|()| Program::new(seeks, &path).unwrap());
        for _ in 0..2 {
            storing.line();
            assert!(seeking.iter_mut().all(|program| program.line() == "401408\n"));
        }
        seeking.into_iter().for_each(Program::kill);
    }
    let mut seeking = Program::new(seeks, &path).unwrap();
    seeking.line();
    storing.kill();
    seeking.line();
    seeking.kill();
    assert_eq!(seek(&file, From::Data(99 * PAGE)), Err(Errno::NXIO));
    drop(file);
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

/// The kernel drops its pages after all requests of a call, and what the first ones had replaced was forgotten by then;
/// of what was erased only the first 2 MB were kept. Pages that a mapping had stored to came back as they had been.
#[test]
fn long_writes_and_erasing_stand_beside_stores() {
    let name = "long_writes_and_erasing_stand_beside_stores";
    let Some(mount) = Mount::new(name, "") else { return };
    let Some(printed) = python(name, BESIDE_STORES, &[&mount.path("f")]) else { return };
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["2 0", "3 0", "0 0", "4 0", "0 0"]);
    assert_eq!(mount.end(Duration::from_secs(10)), ShutDown::Finished);
}

/// Writes and erases 12 MB beside a thread that stores to the first byte of their pages; of how many pages the other
/// bytes are wrong.
const BESIDE_STORES: &str = "\
import ctypes, mmap, os, random, sys, threading
P, N = 4096, 3072
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(f, bytes([1]) * (N * P), 0)
m = mmap.mmap(f, N * P)
done = False
def store():
    while not done:
        at = random.randrange(N) * P
        m[at] = m[at] ^ 255
mapper = threading.Thread(target=store)
mapper.start()
libc = ctypes.CDLL(None, use_errno=True)
for want in [2, 3, 0, 4, 0]:
    if want == 0:
        assert libc.fallocate(f, 3, ctypes.c_long(0), ctypes.c_long(N * P)) == 0
    else:
        assert os.pwrite(f, bytes([want]) * (N * P), 0) == N * P
    now = b''
    while len(now) < N * P:
        now += os.pread(f, N * P - len(now), len(now))
    clean = bytes([want]) * (P - 1)
    print(want, sum(now[at + 1:at + P] != clean for at in range(0, N * P, P)))
done = True
mapper.join()
";
