//! Promise: under `novale run --map=dax` what `execve` is handed may lie in a mapped file of the pool: the path, the lists
//! and their strings. What the kernel refuses it refuses as elsewhere, and nothing of the attempt stays.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(unsafe_code, reason = "calls that std has no form of")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
#![allow(clippy::indexing_slicing, reason = "what is missing is a failure")]

#[macro_use]
mod harness;

use std::process::Command;

use harness::support::program;
use harness::{PLACE, is_whole, library, maps_own_pages, mounted, succeeds};

promises! {
    /// The mappings were inaccessible by the time that the kernel read what it was handed: `EFAULT`.
    all_that_is_handed_may_be_mapped: maps_own_pages starts;
    /// So it was for each reason that the kernel has to refuse it.
    what_the_kernel_refuses_is_refused: maps_own_pages is_refused;
}

/// A program with more than one thread, which becomes another one itself.
#[test]
fn a_program_becomes_another_one() {
    let Some((scratch, slot)) = mounted("a_program_becomes_another_one") else { return };
    let mut command = Command::new(program());
    command.env("NOVALE_PRELOAD", library()).env(PLACE, scratch.dir());
    command.args(["run", "--strict", "--map=dax", "--mount", &scratch.dir(), "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "tasks::becomes_another", "--ignored", "--nocapture"]);
    let said = succeeds(&command.output().unwrap());
    assert!(said.ends_with("one word, a value\n"), "{said}");
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::path::PathBuf;
    use std::sync::Barrier;

    use super::harness::{PLACE, exits_with};

    const PAGE: usize = 4096;
    const PAGES: usize = 40;
    /// Where things lie in the file.
    const SHELL: usize = 3;
    const WORD: usize = 200;
    const VALUE: usize = 300;
    const WORDS: usize = PAGE;
    const VALUES: usize = 2 * PAGE;
    /// Without an end.
    const LONG: usize = 3 * PAGE;
    const STARTED: i32 = 42;
    const PROGRAM: &std::ffi::CStr = c"test \"$1,$NAME\" = 'one word,a value' && exit 42";

    fn place() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap())
    }

    /// What a call is handed.
    #[derive(Clone)]
    struct Handed {
        path: usize,
        words: Vec<usize>,
        values: Vec<usize>,
        /// Where the lists are, if not here.
        lists: [Option<usize>; 2],
    }

    impl Handed {
        fn plain() -> Self {
            let words =
                [c"sh", c"-c", PROGRAM, c"sh", c"one word"].map(|word| word.as_ptr().addr());
            let values = vec![c"NAME=a value".as_ptr().addr(), 0];
            let words = words.into_iter().chain([0]).collect();
            Self { path: c"/bin/sh".as_ptr().addr(), words, values, lists: [None; 2] }
        }

        fn with_word(word: usize) -> Self {
            let mut handed = Self::plain();
            handed.words[4] = word;
            handed
        }

        fn with_value(value: usize) -> Self {
            Self { values: vec![value, 0], ..Self::plain() }
        }

        fn with_path(path: usize) -> Self {
            Self { path, ..Self::plain() }
        }

        /// Starts the program; what the call failed with.
        fn start(&self) -> i32 {
            let [words, values] = self.lists;
            let words = words.unwrap_or_else(|| self.words.as_ptr().addr());
            let values = values.unwrap_or_else(|| self.values.as_ptr().addr());
            let result = unsafe { libc::syscall(libc::SYS_execve, self.path, words, values) };
            assert_eq!(result, -1);
            unsafe { *libc::__errno_location() }
        }

        /// Starts it in a child.
        fn starts(&self, case: &str) {
            let child = unsafe { libc::fork() };
            if child == 0 {
                let errno = self.start();
                unsafe { libc::_exit(errno) };
            }
            assert_eq!(libc::WEXITSTATUS(exits_with(child)), STARTED, "{case}");
        }
    }

    fn put(file: &File, at: usize, bytes: &[u8]) {
        file.write_all_at(bytes, at as u64).unwrap();
    }

    fn made() -> File {
        let path = place().join("handed");
        let mut file = File::options();
        let file = file.read(true).write(true).create(true).truncate(true).open(path).unwrap();
        put(&file, 0, &[0; LONG]);
        put(&file, SHELL, b"/bin/sh\0");
        put(&file, WORD, b"one word\0");
        put(&file, VALUE, b"NAME=a value\0");
        put(&file, LONG, &vec![b'x'; PAGES * PAGE - LONG]);
        file
    }

    fn mmap(at: usize, len: usize, access: i32, flags: i32, fd: i32) -> usize {
        let at = std::ptr::without_provenance_mut(at);
        let made = unsafe { libc::mmap(at, len, access, flags, fd, 0) };
        assert_ne!(made, libc::MAP_FAILED);
        made.addr()
    }

    fn map_shared(file: &File) -> usize {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        mmap(0, PAGES * PAGE, access, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Puts a list into the file.
    fn put_list(file: &File, at: usize, list: &[usize]) {
        let bytes: Vec<u8> = list.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        put(file, at, &bytes);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn starts() {
        let file = made();
        let shared = map_shared(&file);
        let private = mmap(0, PAGES * PAGE, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd());
        let plain = Handed::plain();
        plain.starts("nothing is mapped");
        for (map, kind) in [(shared, "shared"), (private, "private")] {
            let said = |what| format!("{kind}: {what}");
            Handed::with_path(map + SHELL).starts(&said("path"));
            Handed::with_word(map + WORD).starts(&said("word"));
            Handed::with_value(map + VALUE).starts(&said("value"));
            put_list(&file, WORDS, &Handed::with_word(map + WORD).words);
            put_list(&file, VALUES, &[map + VALUE, 0]);
            let lists = [Some(map + WORDS), Some(map + VALUES)];
            for lists in [[lists[0], None], [None, lists[1]], lists] {
                Handed { lists, ..plain.clone() }.starts(&said("list"));
            }
        }
        // A string that begins before a mapping.
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let own = mmap(0, 2 * PAGE, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        put(&file, 0, b"ord\0");
        mmap(own + PAGE, PAGE, access, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd());
        let begin = own + PAGE - 5;
        let at = std::ptr::with_exposed_provenance_mut::<u8>(begin);
        unsafe { std::ptr::copy_nonoverlapping(b"one w".as_ptr(), at, 5) };
        Handed::with_word(begin).starts("a string over the border");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn is_refused() {
        let file = made();
        let map = map_shared(&file);
        let path = place().join("program");
        fs::write(&path, "no program").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let name = CString::new(path.to_str().unwrap()).unwrap();
        put(&file, 1000, name.as_bytes_with_nul());
        put_list(&file, WORDS, &Handed::with_word(map + WORD).words);
        // A list that goes on where nothing can be read.
        put(&file, (PAGES - 1) * PAGE - 8, &map.to_le_bytes());
        let nothing = map + (PAGES - 1) * PAGE;
        let at = std::ptr::without_provenance_mut(nothing);
        assert_eq!(unsafe { libc::mprotect(at, PAGE, libc::PROT_NONE) }, 0);
        let lists = [Some(map + WORDS), None];
        let no_program = Handed { lists, ..Handed::with_path(map + 1000) };
        let cases = [
            (no_program, libc::ENOEXEC),
            (Handed::with_path(map + LONG), libc::ENAMETOOLONG),
            (Handed::with_word(map + LONG), libc::E2BIG),
            (Handed::with_value(map + LONG), libc::E2BIG),
            (Handed { lists: [Some(nothing - 8), None], ..Handed::plain() }, libc::EFAULT),
            (Handed::with_word(nothing), libc::EFAULT),
            (Handed::with_path(nothing), libc::EFAULT),
        ];
        let word = std::ptr::with_exposed_provenance_mut::<u8>(map + WORD);
        let mapped = || fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let mut before = None;
        for turn in 0..12_u8 {
            for (case, (handed, errno)) in cases.iter().enumerate() {
                assert_eq!(handed.start(), *errno, "case {case}");
                // It shows the file still.
                unsafe { word.write(turn) };
                let mut byte = [0];
                file.read_exact_at(&mut byte, WORD as u64).unwrap();
                assert_eq!(byte, [turn]);
            }
            // The first turn has the library make what it keeps.
            let most = *before.get_or_insert_with(|| mapped() + 8);
            assert!(mapped() < most, "{} mappings, {most} in turn {turn}", mapped());
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn becomes_another() {
        let file = made();
        let map = map_shared(&file);
        let program = c"echo \"$1, ${NAME}\"".as_ptr().addr();
        let mut handed = Handed::with_word(map + WORD);
        handed.words[2] = program;
        put_list(&file, WORDS, &handed.words);
        put_list(&file, VALUES, &[map + VALUE, 0]);
        let (path, lists) = (map + SHELL, [Some(map + WORDS), Some(map + VALUES)]);
        let runs = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                runs.wait();
                loop {
                    std::thread::park();
                }
            });
            runs.wait();
            let errno = Handed { path, lists, ..handed }.start();
            // The other thread never ends.
            unsafe { libc::_exit(errno) };
        });
    }
}
