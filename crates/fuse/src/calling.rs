//! Of which system call a request is, where the request does not say.

use std::fs;
use std::thread;

/// How often is looked for a caller that has not gone to sleep yet over its request.
const ATTEMPTS: u32 = 20_000;
/// Calls that change the bytes of a file. Threads of the kernel's own, which serve an export, are shown in the
/// first of them, `read`, which changes none.
const OF_CONTENTS: [libc::c_long; 12] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_io_submit,
    libc::SYS_io_uring_enter,
];

/// The same calls by the numbers of programs of 32 bits, which the kernel does not tell from the others. No call that
/// changes an owner has one of either kind.
#[cfg(target_arch = "x86_64")]
const OF_CONTENTS_BY_I386: &[libc::c_long] = &[
    3,   // read
    4,   // write
    146, // writev
    181, // pwrite64
    187, // sendfile
    239, // sendfile64
    248, // io_submit
    313, // splice
    324, // fallocate
    334, // pwritev
    377, // copy_file_range
    379, // pwritev2
];
#[cfg(not(target_arch = "x86_64"))]
const OF_CONTENTS_BY_I386: &[libc::c_long] = &[];

/// Whether a thread that waits for an answer has asked since it changes a file's bytes. Of one that can't be
/// looked at, which is in another pid namespace or another user's, it is not known, and so not believed.
pub(crate) fn changes_contents(pid: u32) -> bool {
    for _ in 0..ATTEMPTS {
        let Ok(shown) = fs::read_to_string(format!("/proc/{pid}/syscall")) else { return false };
        let first = shown.split_whitespace().next();
        if first != Some("running") {
            let call = first.and_then(|number| number.parse().ok());
            return call.is_some_and(|call| {
                OF_CONTENTS.contains(&call) || OF_CONTENTS_BY_I386.contains(&call)
            });
        }
        thread::yield_now();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_in_a_call_is_told_from_others() {
        let (mut here, there) = io::pipe().unwrap();
        let (tell, told) = mpsc::channel();
        let own = || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            link.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap()
        };
        let reader = thread::spawn(move || {
            tell.send(own()).unwrap();
            here.read_to_end(&mut Vec::new()).unwrap();
        });
        // It is in `read` as soon as it sleeps, or in the call by which it tells.
        let pid = told.recv().unwrap();
        while !changes_contents(pid) {}
        drop(there);
        reader.join().unwrap();
        assert!(!changes_contents(pid), "it has ended");
        assert!(!changes_contents(0));
    }
}
