//! What is printed: facts, remarks, errors in words.

use std::borrow::Cow;
use std::fmt::{self, Arguments, Display, Formatter};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::base::full;

/// What a shell says of a program that SIGPIPE ended.
const UNHEARD: u8 = 141;

/// Says why a command failed; the one who asked for JSON gets an object with `error` too. Nothing is said where the
/// reader of standard output has read enough.
pub(crate) fn fail(error: &anyhow::Error, json: bool) -> ExitCode {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    if error.is::<Unwritten>() && cause == Some(ErrorKind::BrokenPipe) {
        return ExitCode::from(UNHEARD);
    }
    if json {
        let _unheard = say!("{}", serde_json::json!({ "error": in_words(error) }));
    }
    tell(error);
    ExitCode::FAILURE
}

/// Says why something failed, on standard error.
pub(crate) fn tell(error: &anyhow::Error) {
    remark!("novale: {}", in_words(error));
}

/// A text without what commands a terminal, or turns round what it shows: names of files are their makers'
/// choice. Escaped as JSON has it, which stays what it was so.
fn plain(text: &str) -> Cow<'_, str> {
    let is_command = |c: char| {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || c.is_control() && !matches!(c, '\n' | '\t')
    };
    if !text.contains(is_command) {
        return text.into();
    }
    let escaped = |c: char| {
        if is_command(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// A path, or another name, on one line: it may have line ends.
pub(crate) fn on_one_line(name: &str) -> String {
    name.replace('\n', "\\u000a")
}

/// The same of a path that nobody has spelled for this call.
pub(crate) fn shown_path(path: &Path) -> String {
    on_one_line(&path.display().to_string())
}

/// What `say!` does.
pub(crate) fn print(line: Arguments<'_>) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{}", plain(&line.to_string())).context(Unwritten)
}

/// Standard output has not taken what was to be said.
#[derive(Debug)]
struct Unwritten;

impl Display for Unwritten {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("writing to standard output")
    }
}

/// What `remark!` does.
pub(crate) fn mutter(line: Arguments<'_>) {
    let _unheard = writeln!(io::stderr().lock(), "{}", plain(&line.to_string()));
}

/// An error with all that led to it, and what is full where that is it, on one line. Some errors say their cause
/// themselves.
pub(crate) fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words.push_str(": ");
            words.push_str(&cause);
        }
    }
    if let Some(full) = full::folder_after(error) {
        words.push_str("; ");
        words.push_str(&full);
    }
    words
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn names_command_no_terminal_and_json_stays_what_it_is() {
        let name = "a\u{1b}]0;t\u{7}\u{9b}31m\u{202e}b\tü";
        let said = super::plain(name);
        assert_eq!(said, "a\\u001b]0;t\\u0007\\u009b31m\\u202eb\tü");
        let json = serde_json::to_string(name).unwrap();
        let back: String = serde_json::from_str(&super::plain(&json)).unwrap();
        assert_eq!(back, name);
        assert_eq!(super::on_one_line("a\nb"), "a\\u000ab");
    }

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("no such device").context("/dev/x: open: no such device").context("a");
        assert_eq!(super::in_words(&error), "a: /dev/x: open: no such device");
    }
}
