//! Traces in the format of `MobiGen`: a line a call, `THREAD TIME CALL ARGUMENT...`, with times in us from
//! the start of the trace, and the calls of a thread one after the other.

use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// A call as it is replayed: as `Mobibench` does, each file that is opened to be written is a new one, and
/// what names a file of the phone's by its path is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// A descriptor gets a number; whether it is of a new file.
    Open {
        fd: u32,
        makes: bool,
    },
    Close {
        fd: u32,
    },
    /// An open file is removed and its descriptor closed: in shapes alone ([`crate::shapes`]), since a trace
    /// removes by path.
    Remove {
        fd: u32,
    },
    /// At the descriptor's own position, where no other is given.
    Read {
        fd: u32,
        at: Option<u64>,
        len: u64,
    },
    Write {
        fd: u32,
        at: Option<u64>,
        len: u64,
    },
    /// The attributes of an open file.
    Attributes {
        fd: u32,
    },
    /// Only in a mode in which writes are not durable when they return it has something to do.
    Sync {
        fd: u32,
    },
    /// A call that failed, or has nothing to do.
    Nothing,
}

/// Reads a trace; its calls in the order of their times.
pub(crate) fn read(path: &Path) -> Result<Vec<Call>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the trace {} can't be read", path.display()))?;
    parse(&text, &path.display().to_string())
}

fn parse(text: &str, name: &str) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        calls.push(call(line).with_context(|| format!("{name}, line {number}: {line:?}"))?);
    }
    calls.sort_by_key(|(time_us, _)| *time_us);
    Ok(calls.into_iter().map(|(_, call)| call).collect())
}

/// One line: its time, and the call.
fn call(line: &str) -> Result<(u64, Call)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [thread, time_us, name, arguments @ ..] = &fields[..] else {
        bail!("a line has a thread, a time and a call");
    };
    number::<u32>("thread", thread)?;
    let time_us = number("time", time_us)?;
    let call = match (*name, arguments) {
        ("open", [path, flags, fd]) => open(path, flags, fd)?,
        ("close", [fd, result]) => {
            let fd = number("descriptor", fd)?;
            if failed("result", result)? { Call::Nothing } else { Call::Close { fd } }
        }
        ("read" | "write", [fd, len]) => access(name, fd, None, len)?,
        ("pread" | "pwrite", [fd, offset, len]) => {
            access(name, fd, Some(number("offset", offset)?), len)?
        }
        ("fstat64", [fd, result]) => {
            failed("result", result)?;
            Call::Attributes { fd: number("descriptor", fd)? }
        }
        ("fsync" | "fdatasync", [fd, result]) => {
            let fd = number("descriptor", fd)?;
            if failed("result", result)? { Call::Nothing } else { Call::Sync { fd } }
        }
        ("access" | "stat64" | "lstat64" | "unlink", [_path, result]) => {
            failed("result", result)?;
            Call::Nothing
        }
        _ => bail!("no call {name} with {} arguments is known", arguments.len()),
    };
    Ok((time_us, call))
}

fn open(path: &str, flags: &str, fd: &str) -> Result<Call> {
    let is_read = match flags.split('|').next() {
        Some("O_RDONLY") => true,
        Some("O_WRONLY" | "O_RDWR") => false,
        _ => bail!("flags {flags:?} do not begin with O_RDONLY, O_WRONLY or O_RDWR"),
    };
    if failed("descriptor", fd)? {
        return Ok(Call::Nothing);
    }
    let makes = !is_read && !path.starts_with('"');
    Ok(Call::Open { fd: number("descriptor", fd)?, makes })
}

fn access(name: &str, fd: &str, at: Option<u64>, len: &str) -> Result<Call> {
    let fd = number("descriptor", fd)?;
    if failed("length", len)? {
        return Ok(Call::Nothing);
    }
    let len = number("length", len)?;
    let reads = name.ends_with("read");
    Ok(if reads { Call::Read { fd, at, len } } else { Call::Write { fd, at, len } })
}

/// Whether a result is an error's.
fn failed(what: &str, text: &str) -> Result<bool> {
    Ok(number::<i64>(what, text)? < 0)
}

fn number<T: FromStr<Err = std::num::ParseIntError>>(what: &str, text: &str) -> Result<T> {
    text.parse().with_context(|| format!("{text:?} is no {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1 0 open /data/data O_WRONLY|O_CREAT|O_TRUNC 36\n\
                        1 9 write 36 4\n\
                        2 5 pwrite 36 4616 4\n\
                        2 6 open \"/proc/meminfo\" O_RDONLY|O_LARGEFILE 97\n\
                        2 7 read 36 -1\n\
                        2 8 access \"/x\" -1\n";

    #[test]
    fn calls_come_in_the_order_of_their_times() {
        let expected = [
            Call::Open { fd: 36, makes: true },
            Call::Write { fd: 36, at: Some(4616), len: 4 },
            Call::Open { fd: 97, makes: false },
            Call::Nothing,
            Call::Nothing,
            Call::Write { fd: 36, at: None, len: 4 },
        ];
        assert_eq!(parse(TEXT, "t").unwrap(), expected);
    }

    #[test]
    fn a_bad_line_is_named() {
        let bad = [
            "",
            "1 0",
            "1 0 mmap 3 4",
            "1 0 write 36",
            "1 0 write 36 4 5",
            "1 0 write 36 4x",
            "1 0 pwrite 36 -1 4",
            "x 0 close 36 0",
            "1 -1 close 36 0",
            "1 0 open /data/data O_APPEND 3",
        ];
        for line in bad {
            let text = format!("1 0 close 36 0\n{line}\n");
            let error = parse(&text, "some.trace").unwrap_err().to_string();
            assert!(error.starts_with("some.trace, line 2: "), "{error}");
        }
    }
}
