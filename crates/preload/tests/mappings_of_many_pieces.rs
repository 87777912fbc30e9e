//! Promise: a mapping may be taken apart page by page: each page shows and keeps what belongs there, and what is lost by
//! it is said once.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use harness::maps_own_pages;
use harness::replicas::{runs, said};

const LETTERS: &[u8; 20] = b"abcdefghijklmnopqrst";

promises! {
    own_pages_are_taken_apart: maps_own_pages takes_apart;
    replicas_are_taken_apart: runs takes_apart;
    /// Once a mapping was in pieces by its access, `mremap` took it as several ones for ever.
    own_pages_are_one_again: maps_own_pages is_one_again;
    replicas_are_one_again: runs is_one_again;
}

/// It was said for each piece that was unmapped.
#[test]
fn what_pieces_lose_is_said_once() {
    let Some(said) = said("loses_page_by_page") else { return };
    let lost: Vec<&str> = said.lines().filter(|line| line.contains("discarded")).collect();
    let [first, childs, rest] = lost[..] else { panic!("{said}") };
    assert!(first.starts_with("novale: 1 pages"), "{said}");
    assert!(childs.starts_with("novale: 25 pages"), "{said}");
    assert!(rest.starts_with("novale: 49 more pages"), "{said}");
}

mod tasks {
    use super::LETTERS;
    use super::harness::replicas::{PAGE, by_a_child, byte, mapped, publish};

    const READS: i32 = libc::PROT_READ;
    const WRITES: i32 = libc::PROT_READ | libc::PROT_WRITE;

    fn protect(page: &mut [u8], access: i32) {
        let at = page.as_mut_ptr().cast();
        assert_eq!(unsafe { libc::mprotect(at, page.len(), access) }, 0);
    }

    fn unmap(page: &mut [u8]) {
        assert_eq!(unsafe { libc::munmap(page.as_mut_ptr().cast(), page.len()) }, 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn takes_apart() {
        const PAGES: usize = 4000;
        let (file, map) = mapped(PAGES);
        for page in map.chunks_mut(PAGE).step_by(2) {
            protect(page, READS);
        }
        for (at, page) in map.chunks_mut(PAGE).enumerate().skip(1).step_by(2) {
            page[at] = LETTERS[at % LETTERS.len()];
            publish(page);
        }
        let expected =
            |at: usize| if at.is_multiple_of(2) { 7 } else { LETTERS[at % LETTERS.len()] };
        for (at, page) in map.chunks_mut(PAGE).enumerate() {
            assert_eq!((page[at], page[(at + 1) % PAGE]), (expected(at), 7));
            unmap(page);
        }
        assert!((0..PAGES).all(|at| byte(&file, at * PAGE + at) == expected(at)));
    }

    #[test]
    #[ignore = "a task of another test"]
    fn is_one_again() {
        let (file, map) = mapped(20);
        for access in [READS, WRITES] {
            map.chunks_mut(PAGE).step_by(2).for_each(|page| protect(page, access));
        }
        let (at, len) = (map.as_mut_ptr().cast(), map.len());
        let moved = unsafe { libc::mremap(at, len, len + PAGE, libc::MREMAP_MAYMOVE) };
        assert_ne!(moved, libc::MAP_FAILED);
        let map = unsafe { std::slice::from_raw_parts_mut(moved.cast::<u8>(), len) };
        map[19 * PAGE] = b'm';
        publish(map);
        assert_eq!(byte(&file, 19 * PAGE), b'm');
    }

    #[test]
    #[ignore = "a task of another test"]
    fn loses_page_by_page() {
        let (_file, map) = mapped(100);
        for page in map.chunks_mut(PAGE).step_by(2) {
            page[0] = b'l';
        }
        for page in map[..50 * PAGE].chunks_mut(PAGE) {
            unmap(page);
        }
        // It says what it loses itself, and not what its parent has lost.
        by_a_child(|| true);
        for page in map[50 * PAGE..].chunks_mut(PAGE) {
            unmap(page);
        }
    }
}
