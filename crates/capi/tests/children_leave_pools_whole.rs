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

/// How a process ends that has a pool open.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Another,
    Exits,
}

/// Opens a pool, has a child that lives until a pipe ends, and ends itself.
fn ends_before_its_child(slot: &std::path::Path, mut reader: std::io::PipeReader, end: End) -> ! {
    let pool = std::mem::ManuallyDrop::new(Pool::open(&[slot]).unwrap());
    pool.write_file("/f", b"of who ended").unwrap();
    // SAFETY: the child waits for the end of a pipe, and ends.
    if unsafe { libc::fork() } == 0 {
        std::io::Read::read_to_end(&mut reader, &mut Vec::new()).unwrap();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    match end {
        // SAFETY: a signal to this process itself.
        End::Killed => unsafe { libc::raise(libc::SIGKILL) },
        // SAFETY: the arguments end with a null pointer.
        End::Another => unsafe {
            libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), std::ptr::null::<libc::c_char>())
        },
        End::Exits => 0,
    };
    // SAFETY: ends the process, which leaves nothing itself.
    unsafe { libc::_exit(0) }
}

/// The first to come joined by what the killed one had left, and closed the pool; then nobody could open it, nor
/// check or mount it, for as long as the child lived.
#[test]
fn a_child_that_outlives_its_parent_keeps_no_slot_locked() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slot = folder.path().join("pool");
    make_pool(&[&slot], &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    for end in [End::Killed, End::Another, End::Exits] {
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: the child opens a pool of its own, and ends.
        let process = unsafe { libc::fork() };
        if process == 0 {
            drop(writer);
            ends_before_its_child(&slot, reader, end);
        }
        // SAFETY: no status is asked for.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
        let first = Pool::open(&[&slot]).unwrap();
        assert_eq!(first.read_file("/f").unwrap(), b"of who ended", "{end:?}");
        first.close().unwrap();
        let again = Pool::open(&[&slot]).map(|pool| pool.fs().opened().clean);
        drop(writer);
        assert!(again.unwrap(), "{end:?}: it was closed, and opened by one who is alone");
    }
}

/// What had their numbers is closed with a child's copy of the pool, and nothing that came there since.
#[test]
fn a_child_that_drops_what_its_parent_has_closes_nothing_of_its_own() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let slot = folder.path().join("pool");
    make_pool(&[&slot], &MakePool { slot_bytes: Some(16 << 20), ..MakePool::default() }).unwrap();
    let pool = Pool::open(&[&slot]).unwrap();
    // SAFETY: the child opens and closes files, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let own: Vec<_> = (0..16).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        drop(pool);
        let are_open = own.iter().all(|file| file.metadata().is_ok());
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!are_open)) };
    }
    let mut status = 0;
    // SAFETY: the child's own status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    pool.close().unwrap();
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
