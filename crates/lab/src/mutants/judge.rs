//! What judges an image of a mutant: the file system opened on it, or another repair.

use super::recording::{Expected, Pool};
use crate::crash::{Bench, Depth, Event, Hardware, Image, LineKey, What};
use crate::diff::now_ns_at;
use crate::images::CutRepair;

use novale_core::Form;
use novale_layout::{PAGE, SLOT_HEADER_OFFSET};

/// A judge, with a pool to lay images out in.
pub(super) enum Judge {
    /// A crash of a file system in use: it is recovered and compared.
    Opens { bench: Bench, form: Form },
    /// A repair that was cut off, or has ended: it is repaired again.
    Repairs(Box<CutRepair>),
}

impl Judge {
    /// One that opens file systems, with the durable bytes of this memory.
    pub(super) fn opens(hardware: &Hardware, form: Form) -> Result<Self, String> {
        Ok(Self::Opens { bench: Bench::new(hardware, form.into(), now_ns_at(1 << 20))?, form })
    }

    /// Takes over lines that have become durable.
    pub(super) fn update(&self, hardware: &Hardware, lines: &[LineKey]) -> Result<(), String> {
        match self {
            Self::Opens { bench, .. } => bench.update(hardware, lines),
            Self::Repairs(_) => Ok(()),
        }
    }

    /// Begins again with the durable bytes: a wrong image may have left no bench.
    pub(super) fn renew(&mut self, hardware: &Hardware) -> Result<(), String> {
        match self {
            Self::Opens { form, .. } => *self = Self::opens(hardware, *form)?,
            Self::Repairs(_) => {}
        }
        Ok(())
    }

    /// How many images at one cut are worth their time.
    pub(super) fn images_max(&self) -> usize {
        match self {
            Self::Opens { .. } => usize::MAX,
            Self::Repairs(_) => REPAIRS_AT_A_CUT,
        }
    }

    /// Judges an image.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn judge(
        &mut self,
        hardware: &Hardware,
        image: &Image,
        expected: &Expected,
        depth: Depth,
    ) -> Result<(), String> {
        match self {
            Self::Opens { bench, form } => opened(bench, (hardware, *form), image, expected, depth),
            Self::Repairs(repair) => {
                let left = hardware.after_cut(&image.lines).durable_copy();
                let ended = expected.pool == Pool::Closed;
                if ended { repair.judge_end(&left) } else { repair.judge_cut(&left) }
            }
        }
    }
}

const SUPERBLOCK: &str = "superblock";
const SLOT_HEADER: &str = "slot header";

/// A repair takes as long as fifty recoveries.
const REPAIRS_AT_A_CUT: usize = 12;

fn opened(
    bench: &mut Bench,
    (hardware, form): (&Hardware, Form),
    image: &Image,
    expected: &Expected,
    depth: Depth,
) -> Result<(), String> {
    let new_bench = || Bench::new(hardware, form.into(), now_ns_at(1 << 20));
    // What is promised never to be rewritten.
    let promised: &[&str] = match expected.pool {
        Pool::Whole | Pool::Closed => &[SUPERBLOCK, SLOT_HEADER],
        Pool::SuperblockLeft => &[SLOT_HEADER],
        Pool::Cleared | Pool::Made | Pool::Used | Pool::Closing => &[],
    };
    let is_promised = |what: &str| promised.iter().any(|copy| what.contains(copy));
    let mut judged = bench.judge(hardware, image, &expected.states, depth);
    if judged.as_ref().is_err_and(|why| is_copy_shown(why) && !is_promised(why)) {
        // Opened for writing, the copy is rewritten.
        *bench = new_bench()?;
        judged = bench.judge(hardware, image, &expected.states, Depth::Once);
    }
    let refused = match (&judged, expected.pool) {
        (Err(why), Pool::Cleared) => why.contains("open: ") || why.contains("check found"),
        (Err(why), Pool::Made) => is_no_pool(why),
        // The pool may be too full for what is tried with it.
        (Err(why), _) => why.starts_with("in use afterwards: ") && why.contains("NoSpace"),
        _ => false,
    };
    if refused {
        // It leaves no bench.
        *bench = new_bench()?;
        return Ok(());
    }
    let judged = judged?;
    if expected.pool == Pool::Closed && !judged.report.from_saved {
        return Err("closed in order, but the logs were scanned".to_owned());
    }
    match judged.recovery.iter().filter_map(rewritten_copy).find(|what| is_promised(what)) {
        Some(what) => {
            Err(format!("a copy of what the pool keeps twice had to be rewritten: {what}"))
        }
        None => Ok(()),
    }
}

/// Whether an opening was refused since nothing makes a pool of the slots yet: no superblock stands.
fn is_no_pool(why: &str) -> bool {
    let says =
        ["no slot of a Novale pool", "superblock", "slot header is damaged", "format version 0"];
    let why = why.strip_prefix("read-only: ").unwrap_or(why);
    why.starts_with("open: ") && says.iter().any(|text| why.contains(text))
}

/// Whether a pool shown read-only was refused for a damaged copy of what it keeps twice.
fn is_copy_shown(why: &str) -> bool {
    why.starts_with("read-only: check found") && why.contains("damaged, the other one stands")
}

/// What an event of an opening rewrites, if it is a copy of what the pool keeps twice.
fn rewritten_copy(event: &Event) -> Option<&'static str> {
    let What::Store { addr, .. } = &event.what else { return None };
    let of_slot = addr.byte() % PAGE >= SLOT_HEADER_OFFSET;
    let what = if of_slot { SLOT_HEADER } else { SUPERBLOCK };
    event.site.file().ends_with("copies.rs").then_some(what)
}
