//! A client that dies at a chosen point of an operation: a thread, attached in the name of a process
//! that has ended, of which nothing is stored from there on. It is alone on a schedule.

use std::backtrace::Backtrace;
use std::sync::Arc;
use std::thread::ThreadId;

use novale_core::Fs;

use super::schedule::{Doom, Points, Schedule, point};
use crate::diff::panic_text;

/// What a client does when it dies.
pub(crate) type Act = Box<dyn FnOnce(&Fs) -> Result<(), String> + Send>;

/// Settles for who is dead.
pub(crate) fn settling() -> Act {
    Box::new(|fs| fs.settle_dead().map(drop).map_err(|why| why.to_string()))
}

/// Lines of the product that are told of a death.
const PLACES_MAX: usize = 8;

/// Acts and dies before a point of it, by its number; after all of it where there is no number: which thread, and where.
/// None if there is no such point.
pub(crate) fn die(
    fs: Fs,
    act: Act,
    (points, at): (Points, Option<u64>),
) -> Result<Option<(ThreadId, Backtrace)>, String> {
    let doom = at.map(|left| Doom { thread: 0, points: Some(points), left });
    // A thread of its own: what it has not fenced nobody fences for it.
    let done = std::thread::spawn(move || {
        let schedule = Schedule::new(1, 0, doom, &Arc::default());
        let act = || {
            act(&fs)?;
            point(Points::Arena);
            if at.is_none() {
                schedule.die(0);
            }
            // One that lives leaves.
            drop(fs);
            Ok(())
        };
        schedule.run(0, act, || ())
    });
    let thread = done.thread().id();
    let died = done.join().map_err(|payload| panic_text(payload.as_ref()))??;
    Ok(died.map(|at| (thread, at)))
}

/// The lines of the product that led to a death, the innermost first.
pub(crate) fn place(at: &Backtrace) -> String {
    let text = at.to_string();
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    let ours = lines.filter_map(|line| line.rsplit_once("crates/").map(|(_, line)| line));
    let product =
        ours.filter(|line| ["core/", "arena/", "pm/"].iter().any(|of| line.starts_with(of)));
    let own = |line: &&str| !line.contains("word.rs");
    product.filter(own).take(PLACES_MAX).collect::<Vec<_>>().join(" < ")
}
