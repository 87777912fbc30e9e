//! One sequence in two directories, side by side.

use std::collections::BTreeMap;
use std::fmt;

use novale_model::{Kind, RangeOp};

use super::directory::{RealDirectory, Seen};
use super::look::{Shown, look_at_all};
use crate::workload::{Action, Step, StepKind};

/// The first difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Index of the step.
    pub index: usize,
    /// The step.
    pub step: Step,
    /// What differed.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} ({}): {}", self.index, self.step, self.what)
    }
}

/// Runs the steps in both directories and compares what each shows, all of it at each
/// [`Step::Compare`] and at the end.
///
/// At [`Step::Remount`] and [`Step::Die`] all held files are closed, and `reopen` gives the tested
/// directory anew.
///
/// # Errors
/// The first difference, with the number of steps run before it.
pub fn compare_directories(
    tested: &mut RealDirectory,
    reference: &mut RealDirectory,
    steps: &[Step],
    reopen: &mut dyn FnMut(&Step, &mut RealDirectory) -> Result<(), String>,
) -> Result<(), Box<Difference>> {
    let last = Step::Compare;
    for (index, step) in steps.iter().chain([&last]).enumerate() {
        run_step(tested, reference, step, reopen)
            .map_err(|what| Box::new(Difference { index, step: step.clone(), what }))?;
    }
    Ok(())
}

fn run_step(
    tested: &mut RealDirectory,
    reference: &mut RealDirectory,
    step: &Step,
    reopen: &mut dyn FnMut(&Step, &mut RealDirectory) -> Result<(), String>,
) -> Result<(), String> {
    match step.kind() {
        StepKind::Compares => {}
        StepKind::Remounts | StepKind::Dies => {
            tested.release_all();
            reference.release_all();
            reopen(step, tested)?;
        }
        StepKind::Operates => {
            let found = tested.run(step);
            if found == Seen::LeftOut {
                return Ok(());
            }
            let expected = of_reference(reference, step);
            return if found == expected {
                Ok(())
            } else {
                Err(format!("reference {}, found {}", show(&expected), show(&found)))
            };
        }
    }
    let look = |directory: &RealDirectory| {
        look_at_all(directory.root()).map_err(|errno| format!("while comparing: {errno}"))
    };
    let (found, expected) = (look(tested)?, look(reference)?);
    let lines = difference(&expected, &found);
    if lines.is_empty() { Ok(()) } else { Err(format!("trees differ:\n{lines}")) }
}

/// What the step does on the reference, which may be a file system that can't zero a range: it gets a
/// hole there, and its length in another step.
fn of_reference(reference: &mut RealDirectory, step: &Step) -> Seen {
    let Step::On { target, action: Action::Range { how, offset, len } } = step else {
        return reference.run(step);
    };
    if !matches!(how, RangeOp::Zero | RangeOp::ZeroKeepSize) {
        return reference.run(step);
    }
    let (offset, len, extend) = (*offset, *len, *how == RangeOp::Zero);
    let on = |action| Step::On { target: target.clone(), action };
    let seen = reference.run(&on(Action::Range { how: RangeOp::Punch, offset, len }));
    if seen != Seen::Done {
        return seen;
    }
    reference.run(&on(Action::Allocate { extend, offset, len }))
}

fn show(seen: &Seen) -> String {
    let shown = format!("{seen:?}");
    shown.chars().take(400).collect()
}

fn difference(expected: &BTreeMap<Vec<u8>, Shown>, found: &BTreeMap<Vec<u8>, Shown>) -> String {
    let paths: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let mut lines = String::new();
    for path in paths {
        let line = match (expected.get(path), found.get(path)) {
            (Some(expected), Some(found)) => node_difference(expected, found),
            (Some(_), None) => Some("only in the reference".to_owned()),
            (None, Some(_)) => Some("not in the reference".to_owned()),
            (None, None) => None,
        };
        if let Some(line) = line {
            let path = path.escape_ascii().to_string();
            lines.extend(["/", &path, ": ", &line, "\n"]);
        }
    }
    lines
}

fn node_difference(expected: &Shown, found: &Shown) -> Option<String> {
    if expected.meta != found.meta {
        return Some(format!("reference {:?}, found {:?}", expected.meta, found.meta));
    }
    if expected.first_path != found.first_path {
        return Some("hard link of another file".to_owned());
    }
    if expected.xattrs != found.xattrs {
        return Some(format!(
            "attributes: reference {:?}, found {:?}",
            expected.xattrs, found.xattrs
        ));
    }
    if expected.bytes == found.bytes {
        // Their times differ, as the two were made one after the other.
        return None;
    }
    let at = expected.bytes.iter().zip(&found.bytes).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| expected.bytes.len().min(found.bytes.len()));
    let shown =
        |bytes: &[u8]| format!("{:02x?}", bytes.iter().skip(at).take(16).collect::<Vec<_>>());
    let what = if expected.meta.kind == Kind::File { "bytes" } else { "target" };
    let (expected, found) = (shown(&expected.bytes), shown(&found.bytes));
    Some(format!("{what} at {at}: reference {expected}, found {found}"))
}
