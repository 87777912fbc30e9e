//! Promise: a program that has functions of its own named as libc's, as ISO C lets it, runs as it does elsewhere, and
//! so does one with a preloaded library that has such: nobody else calls them.
//!
//! How it went wrong: the loader had the library's own calls of `read`, `close` and their like lead to the program's.
//! It crashed before it began, or its answers were believed.

#![allow(clippy::unwrap_used, reason = "tests stop at what fails")]
#![allow(clippy::print_stdout, reason = "what is skipped is told")]

#[macro_use]
mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{PLACE, library, runs_without_the_daemon, succeeds};

promises! {
    a_program_may_have_functions_of_these_names: runs_without_the_daemon own;
    /// So did one that was preloaded beside `fakechroot`, whose `dl_iterate_phdr` changes what it looks at.
    a_preloaded_library_may_have_such: runs_without_the_daemon preloaded;
}

/// Names that libc calls by name too, or that are not a program's.
fn is_to_stay(name: &str) -> bool {
    name.starts_with('_') || name.starts_with("mem") || name.starts_with("str") || {
        let heap = ["malloc", "calloc", "realloc", "reallocarray", "free"];
        heap.contains(&name) || name.contains("align") || name.starts_with("malloc_")
    }
}

/// What the library calls libc's functions by.
fn names() -> Vec<String> {
    let mut list = Command::new("nm");
    let said = succeeds(&list.args(["-D", "--undefined-only"]).arg(library()).output().unwrap());
    let words = said.lines().filter_map(|line| line.split_whitespace().last());
    let names = words.filter_map(|word| word.split_once("@GLIBC_")).map(|(name, _)| name);
    let names: Vec<String> = names.filter(|name| !is_to_stay(name)).map(str::to_owned).collect();
    for name in ["read", "close", "dl_iterate_phdr", "bcmp"] {
        assert!(names.iter().any(|there| there == name), "{name}");
    }
    names
}

/// Functions that end the process with 9 unless `main` calls them: no header declares them otherwise.
fn functions(names: &[String]) -> String {
    let head = "static long asked(long number, long one, long two, long three) {\n\
        \tlong result;\n\
        \t__asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"(number), \"D\"(one), \"S\"(two), \
        \"d\"(three) : \"rcx\", \"r11\", \"memory\");\n\
        \treturn result;\n}\n\
        static int is_main, calls;\n\
        static long called(const char *name, long len) {\n\
        \tcalls++;\n\
        \tif (!is_main) { asked(1, 2, (long)name, len); asked(231, 9, 0, 0); }\n\
        \treturn -1;\n}\n";
    let all = names.iter().map(|name| {
        format!("long {name}(void) {{ return called(\"{name}\\n\", {}); }}\n", name.len() + 1)
    });
    std::iter::once(head.to_owned()).chain(all).collect()
}

/// A program that has text written to a file, and calls these at its end.
fn main_of(names: &[String]) -> String {
    let calls: String = names.iter().map(|name| ["\t", name, "();\n"].concat()).collect();
    format!(
        "extern void *fopen(const char *, const char *);\n\
        extern int fputs(const char *, void *), fclose(void *), strcmp(const char *, const char *);\n\
        extern char *fgets(char *, int, void *);\n\
        int main(int count, char **words) {{\n\
        \tchar there[8] = \"\";\n\
        \tvoid *file = fopen(words[1], \"w\");\n\
        \tif (!file || fputs(\"text\", file) < 0 || fclose(file)) return 1;\n\
        \tfile = fopen(words[1], \"r\");\n\
        \tif (!file || !fgets(there, 8, file) || fclose(file) || strcmp(there, \"text\")) return 2;\n\
        \tis_main = 1;\n\
        {calls}\
        \treturn calls == {} ? 0 : 3;\n}}\n",
        names.len()
    )
}

fn compiled(folder: &Path, name: &str, words: &[&str], source: &str) -> Option<PathBuf> {
    let (text, made) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&text, source).unwrap();
    let mut command = Command::new("cc");
    let Ok(output) =
        command.args(["-w", "-fno-builtin"]).args(words).arg("-o").args([&made, &text]).output()
    else {
        println!("skipped: {name}: no compiler");
        return None;
    };
    succeeds(&output);
    Some(made)
}

mod tasks {
    use super::*;

    fn file() -> PathBuf {
        PathBuf::from(std::env::var_os(PLACE).unwrap()).join("file")
    }

    #[test]
    #[ignore = "a task of another test"]
    fn own() {
        let folder = tempfile::tempdir().unwrap();
        let names = names();
        let source = functions(&names) + &main_of(&names);
        let Some(program) = compiled(folder.path(), "own", &[], &source) else { return };
        succeeds(&Command::new(program).arg(file()).output().unwrap());
        assert_eq!(fs::read(file()).unwrap(), b"text");
    }

    #[test]
    #[ignore = "a task of another test"]
    fn preloaded() {
        let folder = tempfile::tempdir().unwrap();
        let source = functions(&names());
        let Some(library) = compiled(folder.path(), "preloaded.so", &["-shared", "-fPIC"], &source)
        else {
            return;
        };
        let source = functions(&[]) + &main_of(&[]);
        let program = compiled(folder.path(), "program", &[], &source).unwrap();
        let mut command = Command::new(program);
        succeeds(&command.env("LD_PRELOAD", library).arg(file()).output().unwrap());
        assert_eq!(fs::read(file()).unwrap(), b"text");
    }
}
