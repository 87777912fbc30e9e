//! What tests of atomic mappings share: a program that runs with them, and a file that it has mapped.

#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::support::program;
use super::{PLACE, exits_with, is_whole, library, mounted, succeeds};

pub(crate) const PAGE: usize = 4096;

/// Runs a task directly, with atomic mappings; what is said to its user.
pub(crate) fn said(name: &str) -> Option<String> {
    let (scratch, slot) = mounted(name)?;
    let mut command = Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir()).stdin(Stdio::null());
    command.args(["run", "--strict", "--map", "atomic", "--mount", &scratch.dir(), "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tasks::{name}"), "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    succeeds(&output);
    is_whole(&scratch, &slot);
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(crate) fn runs(name: &str) {
    said(name);
}

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(PLACE).unwrap()).join(name)
}

pub(crate) fn map<'a>(file: &File, kind: i32, len: usize) -> &'a mut [u8] {
    let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
}

/// A file of so many pages of sevens, and a shared mapping of it.
pub(crate) fn mapped<'a>(pages: usize) -> (File, &'a mut [u8]) {
    fs::write(path("file"), vec![7; pages * PAGE]).unwrap();
    let file = File::options().read(true).write(true).open(path("file")).unwrap();
    let map = map(&file, libc::MAP_SHARED, pages * PAGE);
    (file, map)
}

pub(crate) fn publish(map: &mut [u8]) {
    assert_eq!(unsafe { libc::msync(map.as_mut_ptr().cast(), map.len(), libc::MS_SYNC) }, 0);
}

pub(crate) fn byte(file: &File, at: usize) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    byte[0]
}

/// Has a child do something.
pub(crate) fn by_a_child(work: impl FnOnce() -> bool) {
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_done = work();
        unsafe { libc::_exit(i32::from(!is_done)) };
    }
    assert_eq!(exits_with(child), 0);
}

pub(crate) fn seek(file: &File, to: usize) {
    let to = to.cast_signed() as i64;
    assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), to, libc::SEEK_SET) }, to);
}
