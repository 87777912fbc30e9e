//! What is printed: facts, remarks, errors in words.

use std::fmt::Arguments;
use std::io::Write;

use anyhow::Context;

/// Says why a command failed; the one who asked for JSON gets an object with `error` too.
pub(crate) fn fail(error: &anyhow::Error, json: bool) {
    if json {
        let _unheard = say!("{}", serde_json::json!({ "error": in_words(error) }));
    }
    tell(error);
}

/// Says why something failed, on standard error.
pub(crate) fn tell(error: &anyhow::Error) {
    remark!("novale: {}", in_words(error));
}

/// What `say!` does.
pub(crate) fn print(line: Arguments<'_>) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("writing to standard output")
}

/// What `remark!` does.
pub(crate) fn mutter(line: Arguments<'_>) {
    let _unheard = writeln!(std::io::stderr().lock(), "{line}");
}

/// An error with all that led to it, on one line. Some errors say their cause themselves.
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
    words
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow!("no such device").context("/dev/x: open: no such device").context("a");
        assert_eq!(super::in_words(&error), "a: /dev/x: open: no such device");
    }
}
