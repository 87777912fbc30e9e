//! Promise: a child of `fork` leaves its parent the pools that it has by this library.

#![allow(clippy::unwrap_used, unsafe_code, reason = "a test of forks stops at what fails")]

use novale_posix::{MakePool, OpenOptions, Pool, make_pool};

const PAGE: usize = 4096;

/// Such a child has duplicates of the descriptors that the slots were locked by: nobody could open the pool
/// again for as long as it lived.
#[test]
fn a_child_that_lives_keeps_no_slot_locked() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slots = ["a", "b"].map(|name| folder.path().join(name));
    make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let [first, second] = [(); 2].map(|()| Pool::open(&slots).unwrap());
    let (mut reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the child waits for the end of a pipe, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(writer);
        std::io::Read::read_to_end(&mut reader, &mut Vec::new()).unwrap();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    first.close().unwrap();
    let third = Pool::open(&slots).unwrap();
    second.write_file("/f", b"beside the third").unwrap();
    assert_eq!(third.read_file("/f").unwrap(), b"beside the third");
    third.close().unwrap();
    second.close().unwrap();
    let again = Pool::open(&slots).map(|pool| pool.fs().opened().clean);
    drop(writer);
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert!(again.unwrap(), "it was closed, and opened by one who is alone");
}

/// A child of fork has its parent's values, and is not the client that its parent is.
#[test]
fn a_child_that_drops_what_its_parent_has_leaves_it() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slots = [folder.path().join("pool")];
    make_pool(&slots, &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let [first, second] = [(); 2].map(|()| Pool::open(&slots).unwrap());
    first.write_file("/a", &[1; PAGE]).unwrap();
    let file = std::mem::ManuallyDrop::new(
        first.open_file("/a", &OpenOptions::new().read(true).write(true)).unwrap(),
    );
    // Held by its descriptor alone.
    first.write_file("/nameless", b"kept").unwrap();
    let open = first.open("/nameless", &OpenOptions::new().read(true)).unwrap();
    first.remove_file("/nameless").unwrap();
    for closes in [false, true] {
        let map = file.map(0, PAGE as u64).unwrap();
        // SAFETY: the child drops what no other thread has, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop((map, std::mem::ManuallyDrop::into_inner(file)));
            let errno = if closes {
                first.close().err().map_or(0, |error| error.errno())
            } else {
                drop(first);
                0
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(errno) };
        }
        let mut status = 0;
        // SAFETY: the child's own status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), if closes { libc::ESHUTDOWN } else { 0 });
        assert_eq!(second.fs().mapped_by(file.attr().unwrap().ino).unwrap(), [std::process::id()]);
        map.store(0, &[2; PAGE]).unwrap();
    }
    assert_eq!(second.read_file("/a").unwrap(), [2; PAGE]);
    let mut bytes = [0; 4];
    assert_eq!(first.read_at(open, 0, &mut bytes).unwrap(), 4);
    assert_eq!(&bytes, b"kept");
    drop(std::mem::ManuallyDrop::into_inner(file));
    first.close().unwrap();
    second.close().unwrap();
}
