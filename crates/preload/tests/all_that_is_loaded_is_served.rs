//! Promise: system calls outside of libc's text lead to the same files as libc's own do, in programs
//! and in libraries, loaded at the start or later; and what can't load the library starts without it.
//!
//! How the first went wrong: liburing asks the kernel for a ring by an instruction of its own. The
//! files that were open stayed placeholders, the ring's writes ended with EBADF, and `MariaDB` waited for
//! them for ever. How the second did: musl's loader found symbols missing and `AddressSanitizer` was not
//! the first library; neither program ran.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what is skipped is told")]
#![allow(clippy::cast_sign_loss, reason = "the kernel takes its arguments as registers")]
#![allow(unsafe_code, reason = "system calls without libc, and a library that is loaded")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "plain system calls of a test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[macro_use]
mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{direct, is_whole, mounted, runs_with_the_daemon, runs_without_the_daemon, succeeds};

promises! {
    a_programs_own_instructions_are_served: runs_without_the_daemon own_instructions;
    a_ring_sees_files_that_were_open_and_that_are_opened: runs_with_the_daemon ring;
    /// Only who asked for a ring was looked at: what one that came over exec wrote ended with EBADF.
    a_ring_that_is_given_sees_them: runs_with_the_daemon given_ring;
    /// Of threads that asked for a ring at once the second one was not kept until the first had handed over the files.
    rings_of_several_threads_see_them: runs_with_the_daemon rings;
    /// A number set by `mov $N, %rax` was not seen, nor one by `push $N` and `pop %rax`, as `cc -Oz` sets it.
    a_library_that_is_loaded_later_is_served: runs_without_the_daemon loaded_later;
    /// The first text's table was kept for the whole library: calls in the other one were EBADF, in programs that are
    /// linked with it from then on as well.
    calls_in_each_text_of_a_library_have_the_descriptors_of_libc: runs_with_the_daemon two_texts;
    /// A jump from the other text led into the middle of what had been put there.
    calls_that_another_text_leads_to_have_them: runs_with_the_daemon led_from_apart;
    /// Headers that stand behind the first page of a library were not looked for: its calls were EBADF.
    calls_of_a_library_with_its_headers_at_the_end_have_them: runs_with_the_daemon headers_at_end;
    /// What had been found in a text with a debugger's breakpoint in it was kept, and believed by all programs then.
    calls_that_a_breakpoint_once_hid_have_them: runs_with_the_daemon breakpoint;
    /// One on a jump from the other text had the place that it leads to written over, in all programs then.
    calls_that_a_broken_jump_leads_to_have_them: runs_with_the_daemon broken_jump;
    /// A function of four bytes was overwritten by a jump from the padding before it: who called it crashed.
    calls_without_room_have_the_descriptors_of_libc: runs_with_the_daemon without_room;
    calls_behind_much_padding_have_them: runs_with_the_daemon behind_padding;
    /// A jump by a table led into the middle of what had been put there: the program crashed, or made another call.
    calls_that_a_table_leads_to_have_them: runs_with_the_daemon led_to;
    /// A table that led to the other text first was read no further.
    calls_that_a_table_of_two_texts_leads_to_have_them: runs_with_the_daemon led_to_both;
    /// Of two calls with one instruction between, each was replaced by a jump over that.
    calls_beside_each_other_have_them: runs_with_the_daemon crowded;
    /// The loader wrote its relocations over a jump.
    a_library_that_the_loader_writes_to_has_them: runs_with_the_daemon relocated;
    programs_that_cannot_load_the_library_are_started: runs_with_the_daemon others_children;
    /// What libc had opened was a placeholder to calls of Go's (EBADF). Where Go closed such a descriptor, and
    /// opened another file, libc's calls with its number were of the first file: its bytes were written over.
    a_part_in_go_has_the_descriptors_of_libc: runs_with_the_daemon go_program;
    a_library_in_go_has_them: runs_with_the_daemon go_library;
    /// A fork by a second libc was not seen: parent and child had a position each and wrote over each other. A
    /// thread that it made never came back from its first call.
    a_library_with_a_libc_of_its_own_has_them: runs_with_the_daemon second_libc;
}

/// The compiler, unless this machine has none of the kind.
fn compiled(scratch: &Path, name: &str, compiler: &[&str], source: &str) -> Option<PathBuf> {
    let (text, made) = (scratch.join(format!("{name}.c")), scratch.join(name));
    fs::write(&text, source).unwrap();
    let [compiler, words @ ..] = compiler else { return None };
    let mut command = Command::new(compiler);
    command.args(words).arg("-o").args([&made, &text]);
    let done = command.output().is_ok_and(|output| output.status.success());
    if !done {
        eprintln!("skipped: {name}: {compiler} does not make it");
    }
    done.then_some(made)
}

/// Programs that say `here`, with another loader and with a run-time that has to be the first.
fn others(folder: &Path) -> Vec<PathBuf> {
    const SOURCE: &str =
        "#include <stdio.h>\nint main(void) { puts(\"here\"); fputs(\"\", stderr); return 0; }";
    let kinds: [(&str, &[&str]); 3] = [
        ("musl", &["musl-gcc"]),
        ("sanitized", &["cc", "-fsanitize=address"]),
        ("narrow", &["cc", "-m32"]),
    ];
    kinds.iter().filter_map(|(name, words)| compiled(folder, name, words, SOURCE)).collect()
}

/// The dynamic linker of an older glibc, and a program that names it: the library's needs were not found.
fn of_old_libc(folder: &Path) -> Vec<PathBuf> {
    let mut loader = fs::read("/lib64/ld-linux-x86-64.so.2").unwrap();
    let version = b"GLIBC_2.35";
    let at = loader.windows(version.len()).position(|here| here == version).unwrap();
    loader.splice(at..at + version.len(), *b"GLIBC_2.25");
    let path = folder.join("ld-linux-x86-64.so.2");
    fs::write(&path, loader).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let names = format!("-Wl,--dynamic-linker={}", path.display());
    let program = compiled(folder, "old", &["cc", &names], "int main(void) { return 0; }");
    program.into_iter().chain([path]).collect()
}

#[test]
fn strict_refuses_what_cannot_load_the_library() {
    let Some((scratch, slot)) = mounted("refused") else { return };
    let folder = tempfile::tempdir().unwrap();
    for program in others(folder.path()).into_iter().chain(of_old_libc(folder.path())) {
        let output = direct(&scratch, &program).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", program.display());
        let script = folder.path().join("script");
        fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(direct(&scratch, &script).output().unwrap().status.code(), Some(125));
    }
    is_whole(&scratch, &slot);
}

/// The library's own calls and its change of stacks were errors of the program to valgrind, so that tests which run it
/// with `--error-exitcode` failed.
#[test]
fn valgrind_finds_errors_of_the_program_alone() {
    let Some((scratch, slot)) = mounted("valgrind") else { return };
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind_finds_errors_of_the_program_alone: no valgrind");
        return;
    }
    let (from, to) = (scratch.in_dir("from"), scratch.in_dir("to"));
    fs::write(&from, "kept").unwrap();
    let mut command = direct(&scratch, Path::new("valgrind"));
    command
        .args(["--quiet", "--error-exitcode=9", "--trace-children=yes", "cp"])
        .args([&from, &to]);
    succeeds(&command.output().unwrap());
    assert_eq!(fs::read(&to).unwrap(), b"kept");
    is_whole(&scratch, &slot);
}

/// How it went wrong: the folder was that of the `HOME` of each process, and git's tests, which set it,
/// found a file there that nobody knew of.
#[test]
fn nothing_is_kept_below_the_home_of_the_moment() {
    let Some((scratch, slot)) = mounted("home") else { return };
    let (home, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = direct(&scratch, Path::new("env"));
    command.env("XDG_CACHE_HOME", cache.path()).args(["-u", "XDG_CACHE_HOME"]);
    command.arg(format!("HOME={}", home.path().display())).args(["sh", "-c", "ls / | cat"]);
    succeeds(&command.output().unwrap());
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    assert!(fs::read_dir(cache.path().join("novale")).unwrap().count() > 1);
    is_whole(&scratch, &slot);
}

/// How it went wrong: the loader of each program in another root said that it did not find the library.
#[test]
fn programs_in_another_root_say_nothing() {
    let Some((scratch, slot)) = mounted("root") else { return };
    let root = tempfile::tempdir().unwrap();
    for file in ["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/bin/true"] {
        let to = root.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if fs::copy(file, to).is_err() {
            eprintln!("skipped: programs_in_another_root: there is no {file}");
            return;
        }
    }
    let mut command = direct(&scratch, Path::new("chroot"));
    let output = command.arg(root.path()).arg("/bin/true").output().unwrap();
    succeeds(&output);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    is_whole(&scratch, &slot);
}

mod tasks {
    use std::arch::asm;
    use std::ffi::{CStr, CString, c_char};
    use std::fs::{File, OpenOptions};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::harness::PLACE;

    type Put = extern "C" fn(i32, *const u8, i64) -> i64;
    type Get = extern "C" fn(i32, *mut u8, usize) -> i64;

    fn place(name: &str) -> PathBuf {
        Path::new(&std::env::var_os(PLACE).unwrap()).join("d").join(name)
    }

    fn made(name: &str) -> File {
        let path = place(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
    }

    /// A call by an instruction of this program's own, its number beside it.
    macro_rules! own_call {
        ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {{
            let result: i64;
            unsafe {
                asm!("mov eax, {number}", "syscall", number = const $number, out("rax") result,
                    in("rdi") $a as u64, in("rsi") $b as u64, in("rdx") $c as u64,
                    in("r10") $d as u64, out("rcx") _, out("r11") _);
            }
            result
        }};
    }

    /// The same with a number that nobody can know before: the kernel's in any case.
    fn kernels_call(number: i64, args: [u64; 4]) -> i64 {
        let result: i64;
        unsafe {
            asm!("syscall", inlateout("rax") std::hint::black_box(number) => result,
                in("rdi") args[0], in("rsi") args[1], in("rdx") args[2], in("r10") args[3],
                out("rcx") _, out("r11") _);
        }
        result
    }

    #[test]
    #[ignore = "a task of another test"]
    fn own_instructions() {
        let file = made("own");
        let text = b"by an instruction of its own";
        let (fd, at) = (file.as_raw_fd(), text.as_ptr());
        let wrote = own_call!(libc::SYS_pwrite64, fd, at, text.len(), 3);
        assert_eq!(wrote, i64::try_from(text.len()).unwrap());
        let mut back = vec![0; text.len()];
        file.read_exact_at(&mut back, 3).unwrap();
        assert_eq!(back, text);
        let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
        assert_eq!(own_call!(libc::SYS_fstat, fd, found.as_mut_ptr(), 0, 0), 0);
        let size = unsafe { found.assume_init() }.st_size;
        assert_eq!(usize::try_from(size).unwrap(), text.len() + 3);
        // One that this opens libc knows.
        let path = CString::new(place("own").as_os_str().as_bytes()).unwrap();
        let opened = own_call!(libc::SYS_open, path.as_ptr(), libc::O_RDONLY, 0, 0);
        let fd = i32::try_from(opened).unwrap();
        let read = unsafe { libc::pread(fd, back.as_mut_ptr().cast(), back.len(), 3) };
        assert_eq!(usize::try_from(read).unwrap(), text.len());
        assert_eq!(own_call!(libc::SYS_close, fd, 0, 0, 0), 0);
        assert_eq!(unsafe { libc::close(fd) }, -1);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn ring() {
        let before = made("before");
        let mut settings = [0_u8; 120];
        let ring = own_call!(libc::SYS_io_uring_setup, 4, settings.as_mut_ptr(), 0, 0);
        if ring < 0 {
            println!("skipped: a_ring_sees_files: the kernel has none: {ring}");
        }
        kernel_writes([before, made("after")]);
    }

    /// It has the ring from the program before, or from another process.
    #[test]
    #[ignore = "a task of another test"]
    fn given_ring() {
        let before = made("before");
        // It need not be one that the kernel knows.
        assert!(own_call!(libc::SYS_io_uring_enter, u64::MAX, 1, 0, 0) < 0);
        kernel_writes([before, made("after")]);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn rings() {
        const THREADS: usize = 4;
        let files: Vec<_> = (0..8).map(|number| made(&number.to_string())).collect();
        let start = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    let mut context = 0_u64;
                    let set = unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) };
                    assert_eq!(set, 0);
                    for file in &files {
                        let fd = file.as_raw_fd().cast_unsigned().into();
                        let args = [fd, b"ring".as_ptr() as u64, 4, 0];
                        assert_eq!(kernels_call(libc::SYS_pwrite64, args), 4);
                    }
                });
            }
        });
    }

    /// As the kernel does for a ring.
    fn kernel_writes(files: [fs::File; 2]) {
        for file in files {
            let args = [file.as_raw_fd().cast_unsigned().into(), b"ring".as_ptr() as u64, 4, 0];
            assert_eq!(kernels_call(libc::SYS_pwrite64, args), 4);
            let mut back = [0; 4];
            file.read_exact_at(&mut back, 0).unwrap();
            assert_eq!(&back, b"ring");
        }
    }

    /// A function of a library that is made of this text and loaded now.
    fn function(folder: &Path, name: &str, source: &str) -> Option<*mut libc::c_void> {
        function_of(folder, name, source, &[])
    }

    /// As [`function`], linked by these words.
    fn function_of(
        folder: &Path,
        name: &str,
        source: &str,
        linked: &[&str],
    ) -> Option<*mut libc::c_void> {
        let words = [&["cc", "-shared", "-fPIC", "-O1"], linked].concat();
        let library = compiled(folder, &format!("{name}.so"), &words, source)?;
        let [path, name] = [library.as_os_str().as_bytes(), name.as_bytes()]
            .map(|text| CString::new(text).unwrap());
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!found.is_null());
        Some(found)
    }

    /// Its number in all forms.
    #[test]
    #[ignore = "a task of another test"]
    fn loaded_later() {
        const FORMS: [(&str, &str); 4] = [
            ("put", "mov $18, %%eax"),
            ("put_wide", "mov $18, %%rax"),
            ("put_pushed", "push $18\\n pop %%rax"),
            ("put_pushed_before", "push $18\\n movslq %%edi, %%rdi\\n pop %%rax"),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (name, set) in FORMS {
            let source = format!(
                "long {name}(int fd, const void *from, long len) {{
                    long result;
                    register long at __asm__(\"r10\") = 0;
                    __asm__ volatile(\"{set}\\n syscall\" : \"=&a\"(result)
                        : \"D\"(fd), \"S\"(from), \"d\"(len), \"r\"(at)
                        : \"rcx\", \"r11\", \"memory\");
                    return result;
                }}"
            );
            let Some(put) = function(folder.path(), name, &source) else { return };
            let put = unsafe { std::mem::transmute::<*mut libc::c_void, Put>(put) };
            let file = made(name);
            assert_eq!(put(file.as_raw_fd(), b"later".as_ptr(), 5), 5, "{name}");
            assert_eq!(fs::read(place(name)).unwrap(), b"later");
        }
    }

    /// Functions that read, each in a text of its own.
    const TWO_TEXTS: &str = r#"
        __asm__(".section .text, \"ax\"\n.globl get\n.type get, @function\n"
            "get: mov $0, %eax\n syscall\n ret\n"
            ".section .apart, \"ax\"\n.globl get_apart\n.type get_apart, @function\n"
            "get_apart: mov $0, %eax\n syscall\n ret\n.text");
        "#;
    /// Uses both.
    const BOTH_TEXTS: &str = r#"#include <fcntl.h>
        #include <string.h>
        long get(long fd, char *to, long bytes), get_apart(long fd, char *to, long bytes);
        int main(int count, char **words) {
            char found[8] = "";
            int fd = open(words[1], O_RDONLY);
            if (get(fd, found, 2) != 2 || get_apart(fd, found + 2, 2) != 2)
                return 1;
            return strcmp(found, "kept") != 0;
        }
        "#;
    const APART: [&str; 2] = ["-Wl,--section-start=.apart=0x200000", "-Wl,--build-id"];

    /// A function of a library that is loaded.
    fn another(library: &Path, name: &CStr) -> Get {
        let library = CString::new(library.as_os_str().as_bytes()).unwrap();
        let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!found.is_null());
        unsafe { std::mem::transmute::<*mut libc::c_void, Get>(found) }
    }

    /// A program that is linked with a library beside it.
    fn linked(folder: &Path, library: &str, source: &str) -> PathBuf {
        let place_of = folder.to_str().unwrap();
        let [at, rest] = ["-L", "-Wl,-rpath,"].map(|word| format!("{word}{place_of}"));
        let library = format!("-l:{library}");
        let words = ["cc", "-Wl,--no-as-needed", &at, &rest, &library];
        compiled(folder, "linked", &words, source).unwrap()
    }

    #[test]
    #[ignore = "a task of another test"]
    fn two_texts() {
        let folder = tempfile::tempdir().unwrap();
        let Some(get) = function_of(folder.path(), "get", TWO_TEXTS, &APART) else { return };
        reads(unsafe { std::mem::transmute::<*mut libc::c_void, Get>(get) }, "get");
        reads(another(&folder.path().join("get.so"), c"get_apart"), "get_apart");
        // One that is linked with it finds the tables that were kept.
        let program = linked(folder.path(), "get.so", BOTH_TEXTS);
        succeeds(&Command::new(program).arg(place("get")).output().unwrap());
    }

    /// In one text a function that reads; in the other one that goes on behind its call.
    const LED_FROM_APART: &str = r#"
        __asm__(".section .text, \"ax\"\n.globl get\n.type get, @function\n ret\n"
            "get: xor %eax, %eax\n syscall\nback: mov %rax, %rdx\n mov %rdx, %rax\n ret\n"
            ".section .apart, \"ax\"\n.globl get_apart\n.type get_apart, @function\n"
            "get_apart: mov $7, %eax\n jmp back\n.text");
        "#;

    #[test]
    #[ignore = "a task of another test"]
    fn led_from_apart() {
        let folder = tempfile::tempdir().unwrap();
        let Some(get) = function_of(folder.path(), "get", LED_FROM_APART, &APART) else { return };
        reads(unsafe { std::mem::transmute::<*mut libc::c_void, Get>(get) }, "get");
        let apart = another(&folder.path().join("get.so"), c"get_apart");
        assert_eq!(apart(-1, std::ptr::null_mut(), 0), 7);
        // The same where both texts are there from the start.
        let uses = "long get_apart(void);\nint main(void) { return get_apart() != 7; }";
        succeeds(&Command::new(linked(folder.path(), "get.so", uses)).output().unwrap());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn headers_at_end() {
        let folder = tempfile::tempdir().unwrap();
        let words = ["cc", "-shared", "-fPIC", "-Wl,--build-id"];
        let Some(library) = compiled(folder.path(), "ends.so", &words, TWO_TEXTS) else { return };
        let mut bytes = fs::read(&library).unwrap();
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let table = half(32)..half(32) + half(54) * half(56);
        let headers = bytes[table.clone()].to_vec();
        bytes[table].fill(0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let at = u64::try_from(bytes.len()).unwrap();
        assert!(at > 4096);
        bytes[32..40].copy_from_slice(&at.to_le_bytes());
        bytes.extend(headers);
        fs::write(&library, bytes).unwrap();
        reads(another(&library, c"get"), "at the end");
    }

    /// A function that reads, with a breakpoint from before the program begins until it asks for it to go.
    const BROKEN: &str = r#"#include <stdlib.h>
        #include <sys/mman.h>
        const char *which(void) { return "{which}"; }
        __asm__(".text\n.globl get\n.type get, @function\nget: mov $0, %eax\n syscall\n ret");
        extern char get[];
        static void put(char byte) {
            char *page = (char *)((unsigned long)get & ~4095ul);
            mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
            *get = byte;
            mprotect(page, 4096, PROT_READ | PROT_EXEC);
        }
        __attribute__((constructor)) static void begin(void) { if (getenv("BREAK")) put(0xcc); }
        void go_on(void) { if (getenv("BREAK")) put(0xb8); }
        "#;
    const GOES_ON: &str = r#"#include <fcntl.h>
        #include <stdlib.h>
        long get(long fd, char *to, long bytes);
        void go_on(void);
        int main(int count, char **words) {
            char found[4];
            int fd = open(words[1], O_RDONLY);
            go_on();
            return !getenv("BREAK") && get(fd, found, 4) != 4;
        }
        "#;

    #[test]
    #[ignore = "a task of another test"]
    fn breakpoint() {
        let folder = tempfile::tempdir().unwrap();
        made("broken").write_all_at(b"kept", 0).unwrap();
        // Nothing is kept of this one.
        let source = BROKEN.replace("{which}", folder.path().to_str().unwrap());
        let words = ["cc", "-shared", "-fPIC", "-Wl,--build-id"];
        if compiled(folder.path(), "broken.so", &words, &source).is_none() {
            return;
        }
        let program = linked(folder.path(), "broken.so", GOES_ON);
        for is_broken in [true, false] {
            let mut command = Command::new(&program);
            command.arg(place("broken")).envs(is_broken.then_some(("BREAK", "1")));
            succeeds(&command.output().unwrap());
        }
    }

    /// A breakpoint on the jump of [`LED_FROM_APART`], from before the program begins.
    const BROKEN_JUMP: &str = r#"#include <stdlib.h>
        #include <sys/mman.h>
        const char *which(void) { return "{which}"; }
        extern char get_apart[];
        __attribute__((constructor)) static void begin(void) {
            char *page = (char *)((unsigned long)get_apart & ~4095ul);
            if (getenv("BREAK")) {
                mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
                get_apart[5] = 0xcc;
                mprotect(page, 4096, PROT_READ | PROT_EXEC);
            }
        }
        "#;

    #[test]
    #[ignore = "a task of another test"]
    fn broken_jump() {
        let folder = tempfile::tempdir().unwrap();
        // Nothing is kept of this one.
        let source = BROKEN_JUMP.replace("{which}", folder.path().to_str().unwrap());
        let words = [&["cc", "-shared", "-fPIC"][..], &APART].concat();
        let source = source + LED_FROM_APART;
        if compiled(folder.path(), "jumps.so", &words, &source).is_none() {
            return;
        }
        let uses = "#include <stdlib.h>
            long get_apart(void);
            int main(void) { return !getenv(\"BREAK\") && get_apart() != 7; }";
        let program = linked(folder.path(), "jumps.so", uses);
        for is_broken in [true, false] {
            let mut command = Command::new(&program);
            succeeds(&command.envs(is_broken.then_some(("BREAK", "1"))).output().unwrap());
        }
    }

    /// With bytes between the functions that a jump would need, and with as many as it takes. Each has a process of
    /// its own, which leaves the pool.
    fn reads_behind(name: &str, padding: &str) {
        let source = format!(
            "__asm__(\".p2align 4\\n ret\\n {padding}\\n.globl {name}\\n\"
                \".type {name}, @function\\n{name}: xor %eax, %eax\\n syscall\\n ret\");"
        );
        let folder = tempfile::tempdir().unwrap();
        let Some(get) = function(folder.path(), name, &source) else { return };
        reads(unsafe { std::mem::transmute::<*mut libc::c_void, Get>(get) }, name);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn without_room() {
        reads_behind("near", "nopl (%rax)");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn behind_padding() {
        reads_behind("far", "nopl 0(%rax,%rax,1)");
    }

    /// A function that reads has what libc has open, in the mount and elsewhere.
    fn reads(get: Get, name: &str) {
        for file in [tempfile::tempfile().unwrap(), made(name)] {
            file.write_all_at(b"kept", 0).unwrap();
            let mut back = [0; 4];
            assert_eq!(get(file.as_raw_fd(), back.as_mut_ptr(), 4), 4, "{name}");
            assert_eq!(&back, b"kept", "{name}");
        }
    }

    /// `get(fd, to, bytes, way)`: by one way it reads a byte less. {jump} goes there.
    const LED: &str = r#"#include <fcntl.h>
        #include <string.h>
        long get(long fd, char *to, long bytes, long way);
        __asm__(".text\n.globl get\n.type get, @function\nget:\n {jump}\n"
            "less: sub $1, %rdx\nall: xor %eax, %eax\n syscall\n ret\n"
            ".section .data.rel.ro, \"aw\"\n.p2align 3\naddresses: .quad less, all\n"
            ".section .rodata\n.p2align 2\ndistances: .long less - distances, all - distances\n.text");
        int main(int count, char **words) {
            char found[8] = "";
            int fd = open(words[1], O_RDONLY);
            if (fd < 0 || get(fd, found, 2, 1) != 2 || get(fd, found + 2, 3, 0) != 2)
                return 1;
            return strcmp(found, "kept") != 0;
        }
        "#;

    #[test]
    #[ignore = "a task of another test"]
    fn led_to() {
        let folder = tempfile::tempdir().unwrap();
        made("led").write_all_at(b"kept", 0).unwrap();
        for (name, jump) in [
            ("by_addresses", "lea addresses(%rip), %rax\\n jmp *(%rax, %rcx, 8)"),
            (
                "by_distances",
                "lea distances(%rip), %rax\\n movslq (%rax, %rcx, 4), %rcx\\n add %rcx, %rax\\n jmp *%rax",
            ),
            (
                "by_a_label",
                "lea all(%rip), %rax\\n test %rcx, %rcx\\n jz less\\n jmp *%rax\\n .p2align 6",
            ),
        ] {
            let source = LED.replace("{jump}", jump);
            let Some(program) = compiled(folder.path(), name, &["cc"], &source) else { return };
            let output = Command::new(program).arg(place("led")).output().unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
        }
        // One that is loaded later, whose data is not in memory yet.
        let source = LED.replace("{jump}", "mov %rdx, %rcx\\n and $1, %ecx\\n xor $1, %ecx\\n lea distances(%rip), %rax\\n movslq (%rax, %rcx, 4), %rcx\\n add %rcx, %rax\\n jmp *%rax");
        let Some(get) = function(folder.path(), "get", &source) else { return };
        reads(unsafe { std::mem::transmute::<*mut libc::c_void, Get>(get) }, "later");
    }

    /// The first case is the other text's, as one that seldom comes.
    #[test]
    #[ignore = "a task of another test"]
    fn led_to_both() {
        let folder = tempfile::tempdir().unwrap();
        made("both").write_all_at(b"kept", 0).unwrap();
        let jump = "lea distances(%rip), %rax\\n movslq 4(%rax, %rcx, 4), %rcx\\n add %rcx, %rax\\n jmp *%rax";
        let apart = ".section .apart, \\\"ax\\\"\\nseldom: mov $-7, %rax\\n ret\\n.text";
        let table = "distances: .long seldom - distances, ";
        let source = LED.replace("{jump}", &format!("{jump}\\n{apart}"));
        let source = source.replace("distances: .long ", table);
        // Nothing else leads there.
        let source = source.replace("addresses: .quad less, all", "");
        let words = ["cc", APART[0]];
        let Some(program) = compiled(folder.path(), "both", &words, &source) else { return };
        succeeds(&Command::new(program).arg(place("both")).output().unwrap());
    }

    #[test]
    #[ignore = "a task of another test"]
    fn crowded() {
        for (name, between) in [("apart", "mov %eax, %ebx\\n"), ("close", "")] {
            let source = format!(
                "static char buffer[8];
                __asm__(\".text\\n.globl {name}\\n.type {name}, @function\\n{name}: push %rbx\\n\"
                    \"mov %rsi, %r8\\n lea buffer(%rip), %rsi\\n xor %eax, %eax\\n syscall\\n {between}\"
                    \"mov $3, %eax\\n syscall\\n pop %rbx\\n ret\");
                const char *read_{name}(void) {{ return buffer; }}"
            );
            let folder = tempfile::tempdir().unwrap();
            let Some(get) = function(folder.path(), name, &source) else { return };
            let get = unsafe { std::mem::transmute::<*mut libc::c_void, Get>(get) };
            let file = made(name);
            file.write_all_at(b"kept", 0).unwrap();
            // What it says is of its `close`.
            assert_eq!(get(file.into_raw_fd(), std::ptr::null_mut(), 4), 0, "{name}");
        }
    }

    #[test]
    #[ignore = "a task of another test"]
    fn relocated() {
        let source = "static char own[8];
            __asm__(\".text\\n.globl get\\n.type get, @function\\nget: push %rsi\\n\"
                \"movabs $own, %rsi\\n xor %eax, %eax\\n syscall\\n pop %rdi\\n\"
                \"mov (%rsi), %ecx\\n mov %ecx, (%rdi)\\n ret\");
            const char *keep(void) { return own; }";
        let folder = tempfile::tempdir().unwrap();
        let Some(get) = function_of(folder.path(), "get", source, &["-Wl,-z,notext"]) else {
            return;
        };
        reads(unsafe { std::mem::transmute::<*mut libc::c_void, Get>(get) }, "relocated");
    }

    /// What a compiler makes of Go: the note that the linker leaves, and calls whose number comes by a register.
    const GO: &str = r#"#include <fcntl.h>
        #include <string.h>
        #include <unistd.h>
        __asm__(".section .note.go.buildid,\"a\",@note\n.long 4,1,4\n.ascii \"Go\\0\\0x\\0\\0\\0\"\n.text");
        __attribute__((noinline)) static long kernels(long number, long a, long b, long c) {
            __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c)
                : "rcx", "r11", "memory");
            return number;
        }
        static int is(const char *path, const char *text) {
            char found[32] = "";
            int fd = open(path, O_RDONLY);
            return read(fd, found, sizeof found - 1) >= 0 && close(fd) == 0 && !strcmp(found, text);
        }
        long both(int fd, const char *first, const char *other) {
            if (kernels(1, fd, (long)"Go", 2) != 2 || lseek(fd, 0, SEEK_CUR) != 2)
                return 2;
            if (write(fd, " and C", 6) != 6 || kernels(3, fd, 0, 0) != 0)
                return 3;
            if (kernels(2, (long)other, O_WRONLY, 0) != fd || write(fd, "other", 5) != 5)
                return 4;
            return is(first, "Go and C") && is(other, "other") && close(fd) == 0 ? 0 : 5;
        }
        int main(int count, char **words) {
            return both(open(words[1], O_RDWR), words[1], words[2]);
        }
        "#;

    #[test]
    #[ignore = "a task of another test"]
    fn go_program() {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = compiled(folder.path(), "go", &["cc", "-O1"], GO) else { return };
        drop((made("first"), made("other")));
        let output = Command::new(program).args([place("first"), place("other")]).output();
        succeeds(&output.unwrap());
    }

    /// Hands a file that libc has opened to a library that is loaded then.
    fn loads(source: &str, load: impl FnOnce(&CStr) -> *mut libc::c_void) {
        type Both = extern "C" fn(i32, *const c_char, *const c_char) -> i64;
        let folder = tempfile::tempdir().unwrap();
        let words = ["cc", "-shared", "-fPIC", "-O1"];
        let Some(library) = compiled(folder.path(), "other.so", &words, source) else { return };
        let [library, first, other] = [library, place("first"), place("other")]
            .map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
        drop(made("other"));
        let file = made("first");
        let library = load(&library);
        assert!(!library.is_null());
        let both = unsafe { libc::dlsym(library, c"both".as_ptr()) };
        assert!(!both.is_null());
        let both = unsafe { std::mem::transmute::<*mut libc::c_void, Both>(both) };
        assert_eq!(both(file.into_raw_fd(), first.as_ptr(), other.as_ptr()), 0);
    }

    #[test]
    #[ignore = "a task of another test"]
    fn go_library() {
        loads(GO, |library| unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) });
    }

    /// What a library does by the libc that it brings.
    const FORKS: &str = r#"#include <fcntl.h>
        #include <pthread.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *writes(void *fd) {
            return write(*(int *)fd, " thread", 7) == 7 ? fd : 0;
        }
        long both(int fd, const char *first, const char *other) {
            char found[32] = "";
            pthread_t thread;
            void *done = 0;
            int status = 1, made = open(other, O_WRONLY);
            if (write(fd, "inner", 5) != 5 || write(made, "a", 1) != 1)
                return 2;
            pid_t child = fork();
            if (child == 0)
                _exit(write(fd, " child", 6) != 6 || write(made, "b", 1) != 1);
            if (waitpid(child, &status, 0) != child || status != 0)
                return 3;
            if (pthread_create(&thread, 0, writes, &fd) != 0 || pthread_join(thread, &done) != 0)
                return 4;
            if (!done || lseek(fd, 0, SEEK_CUR) != 18 || lseek(made, 0, SEEK_CUR) != 2)
                return 5;
            if (close(made) != 0 || close(fd) != 0 || (fd = open(first, O_RDONLY)) < 0)
                return 6;
            return read(fd, found, sizeof found - 1) == 18 && !strcmp(found, "inner child thread")
                ? 0 : 7;
        }
        "#;

    #[test]
    #[ignore = "a task of another test"]
    fn second_libc() {
        loads(FORKS, |library| unsafe {
            libc::dlmopen(libc::LM_ID_NEWLM, library.as_ptr(), libc::RTLD_NOW)
        });
    }

    /// By `posix_spawn`, in the parent's memory; by `fork`; and by a shell that becomes the program.
    #[test]
    #[ignore = "a task of another test"]
    fn others_children() {
        use std::os::unix::process::CommandExt;
        let folder = tempfile::tempdir().unwrap();
        for program in others(folder.path()) {
            let says = |mut command: Command| {
                let output = command.output().unwrap();
                assert_eq!(succeeds(&output), "here\n", "{}", program.display());
                assert_eq!(String::from_utf8_lossy(&output.stderr), "");
            };
            says(Command::new(&program));
            let mut forked = Command::new(&program);
            unsafe { forked.pre_exec(|| Ok(())) };
            says(forked);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("exec {}", program.display()));
            says(shell);
        }
        made("still").write_all_at(b"served", 0).unwrap();
    }
}
