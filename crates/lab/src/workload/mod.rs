//! Sequences of operations: what they are, their text, how they are made at random, and how one is
//! run on any file system. Comes in: a seed, or the text of an earlier run. Called by the
//! differential and crash tests. Never in here: which file system is right.

mod bytes;
mod generate;
mod model_subject;
mod step;
mod subject;
mod text;
mod xattr_text;

pub use bytes::fill_bytes;
pub use generate::{Flavor, Generator};
pub use step::{AclEntry, Action, Path, Step, StepKind, Target, Value};
pub use subject::{Entry, Failure, Op, Outcome, Session, Subject, run_step};
pub use text::{number_of, parse_steps, print_steps, sequence};
