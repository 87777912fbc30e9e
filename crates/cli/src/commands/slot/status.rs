//! `novale slot status`: what there is of each slot, and whether it works.

use anyhow::Result;
use novale_core::{
    EmptyProgress, EmptyState, SlotInfo, live_clients, live_failed, live_free, live_wear,
    saved_free, saved_wear, slots_asked,
};
use novale_pm::PmOptions;
use serde::Serialize;
use uuid::Uuid;

use crate::base::args::SlotStatusArgs;
use crate::base::size::show_size;
use crate::commands::slot::in_use::{pace_of, pages_left};
use crate::commands::slot::mapped::{self, WaitedFor};
use crate::commands::slot::named;
use crate::holders::holder;
use crate::holders::patience::patiently;
use crate::pools::memory;
use crate::pools::remaining::{self, SlotState};
use crate::pools::slots::{Found, page_bytes};

const LINE_BYTES: f64 = 64.0;

/// A pool's slots, as JSON shows them.
#[derive(Debug, Serialize)]
struct Status {
    pool: String,
    /// Somebody has it open: free pages and failures are those of now.
    in_use: bool,
    /// A slot that is lost, and whose place is being given to another.
    given_up: Option<u8>,
    /// Slots that can't be used, and why, in words.
    left_out: Vec<String>,
    slots: Vec<SlotStatus>,
}

#[derive(Debug, Serialize)]
struct SlotStatus {
    slot: u8,
    path: Option<String>,
    state: SlotState,
    /// What memory it is in.
    memory: Option<&'static str>,
    bytes: u64,
    bytes_free: Option<u64>,
    bytes_used: Option<u64>,
    /// Lines of 64 bytes that reached it since the pool was made.
    lines: Option<u64>,
    /// Writes that a cell endures.
    endurance: Option<u64>,
    /// Of all that it endures, what it has got.
    worn_percent: Option<f64>,
    /// The number of the slot that goes once nobody uses the pool: this one was emptied for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    emptied_for: Option<u8>,
    /// How far its emptying is, while the pool is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    emptying: Option<Emptying>,
}

/// How far the emptying of a slot is.
#[derive(Debug, Serialize)]
struct Emptying {
    /// `waiting`, `moving`, or `emptied`: then what is left goes when nobody uses the pool.
    state: &'static str,
    pages_moved: u64,
    pages_left: Option<u64>,
    /// Pages a second at most; 0: as fast as it goes.
    pace: u32,
    /// Files that stay as long as programs have their own pages mapped.
    files_mapped: u64,
    /// Which these are, some of them, and who has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<WaitedFor>,
}

impl Emptying {
    fn new(found: &Found, known: &Known, slot: u8) -> Option<Self> {
        let so_far = known.emptying?;
        Some(Self {
            state: match so_far.state {
                EmptyState::Moving => "moving",
                EmptyState::Emptied => "emptied",
                EmptyState::Waiting
                | EmptyState::NoRoom
                | EmptyState::Stays
                | EmptyState::Failed
                | EmptyState::Added
                | EmptyState::NotAlone
                | EmptyState::Refused => "waiting",
            },
            pages_moved: so_far.moved,
            pages_left: pages_left(found, known.free.as_deref(), slot),
            pace: so_far.pace.unwrap_or_else(|| pace_of(found)),
            files_mapped: so_far.mapped,
            waits_for: known.waited_for.clone(),
        })
    }

    fn show(&self) -> Result<()> {
        let left = self.pages_left.map_or_else(|| "?".to_owned(), |left| left.to_string());
        let mapped = match self.files_mapped {
            0 => String::new(),
            files => format!(", {files} files mapped"),
        };
        let pace = match (self.state, self.pace) {
            ("moving", 0) => ", as fast as it goes".to_owned(),
            ("moving", pace) => format!(", {pace} a second at most"),
            _ => String::new(),
        };
        let (state, moved) = (self.state, self.pages_moved);
        say!("          {state}: {moved} pages moved, {left} left{pace}{mapped}")?;
        self.waits_for.iter().try_for_each(WaitedFor::show)
    }
}

/// What is known of all slots at once.
#[derive(Debug, Default)]
struct Known {
    in_use: bool,
    failed: u64,
    free: Option<Vec<u64>>,
    lines: Option<Vec<u64>>,
    emptying: Option<EmptyProgress>,
    /// Files that it waits for.
    waited_for: Vec<WaitedFor>,
}

pub(crate) fn run(args: &SlotStatusArgs) -> Result<()> {
    let given = named(&args.slots)?;
    let paths: Vec<_> = given.iter().map(std::path::PathBuf::as_path).collect();
    patiently(&paths, || {
        let found = remaining::find(&given)?;
        let status = Status::new(&found, &known(&found)?);
        if args.json {
            return say!("{}", serde_json::to_string_pretty(&status)?);
        }
        show(&status)
    })
}

fn known(found: &Found) -> Result<Known> {
    let arena = holder::arena_in_use(found)?;
    if let Some(arena) = arena.filter(|arena| !live_clients(arena).is_empty()) {
        let emptying = slots_asked(&arena, None);
        let waits = emptying.mapped > 0 && found.info.slots.iter().any(|slot| slot.is_leaving);
        return Ok(Known {
            in_use: true,
            failed: live_failed(&arena),
            // Of tables for slots that are not seen here it is not known where they are.
            free: if found.is_whole() { live_free(&arena, &found.info)? } else { None },
            lines: live_wear(&arena, &found.info)?,
            emptying: Some(emptying),
            waited_for: if waits { mapped::waited_for(found) } else { Vec::new() },
        });
    }
    let pm = found.open(PmOptions { read_only: true, ..PmOptions::default() })?;
    let lines = Some(saved_wear(&pm, &found.info)?);
    // Where that can't be read, `novale check` says why.
    let free = saved_free(&pm).unwrap_or(None);
    Ok(Known { free, lines, ..Known::default() })
}

impl Status {
    fn new(found: &Found, known: &Known) -> Self {
        let of = |list: &Option<Vec<u64>>, slot: u8| {
            list.as_ref().and_then(|list| list.get(usize::from(slot)).copied())
        };
        let slots = found.slots().map(|(slot, there)| {
            let bytes = page_bytes(slot.pages);
            let bytes_free = of(&known.free, slot.index).map(page_bytes);
            let lines = of(&known.lines, slot.index).filter(|_| !slot.is_absent);
            let endurance = Some(slot.endurance).filter(|writes| *writes > 0);
            SlotStatus {
                slot: slot.index,
                path: there.map(|(path, _)| path.display().to_string()),
                state: state(found, slot, there.is_some(), known.failed),
                memory: there.map(|(_, memory)| memory::word(memory)),
                bytes,
                bytes_free,
                bytes_used: bytes_free.map(|free| bytes.saturating_sub(free)),
                lines,
                endurance,
                worn_percent: lines.zip(endurance).map(|(lines, writes)| {
                    real(lines) * LINE_BYTES * 100.0 / (real(bytes) * real(writes))
                }),
                emptied_for: slot.goes.filter(|_| slot.is_emptied),
                emptying: Emptying::new(found, known, slot.index).filter(|_| slot.is_leaving),
            }
        });
        Self {
            pool: Uuid::from_bytes(found.info.uuid).to_string(),
            in_use: known.in_use,
            given_up: found.info.given_up,
            left_out: found.left_out.iter().map(ToString::to_string).collect(),
            slots: slots.collect(),
        }
    }
}

fn state(found: &Found, slot: &SlotInfo, is_there: bool, failed: u64) -> SlotState {
    let has_failed = failed >> slot.index & 1 != 0;
    match (if is_there { SlotState::Ok } else { found.state_of(slot.index) }, has_failed) {
        // What failed in use is found damaged by now.
        (SlotState::Ok | SlotState::Damaged, true) => SlotState::Failed,
        (SlotState::Ok, false) if slot.heir.is_some() => SlotState::Replaced,
        (SlotState::Ok, false) if slot.is_leaving => SlotState::Leaving,
        (state, _) => state,
    }
}

#[allow(clippy::cast_precision_loss, reason = "what people read of a count")]
fn real(count: u64) -> f64 {
    count as f64
}

fn show(status: &Status) -> Result<()> {
    say!("pool      {}", status.pool)?;
    status.given_up.map_or(Ok(()), remaining::say_given_up)?;
    for left_out in &status.left_out {
        say!("left out  {left_out}")?;
    }
    for slot in &status.slots {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), show_size);
        let worn = match (slot.worn_percent, slot.lines) {
            (Some(percent), _) => format!("{percent:.4} % worn"),
            (None, Some(lines)) => format!("{} written", show_size(lines.saturating_mul(64))),
            (None, None) => "wear not known".to_owned(),
        };
        say!(
            "slot {:<4} {:<8} {:>9}, {:>9} free, {worn}  {}  {}",
            slot.slot,
            slot.state.word(),
            show_size(slot.bytes),
            size(slot.bytes_free),
            slot.memory.unwrap_or("?"),
            slot.path.as_deref().unwrap_or("-")
        )?;
        slot.emptying.as_ref().map_or(Ok(()), Emptying::show)?;
        if let Some(going) = slot.emptied_for {
            let when =
                if status.in_use { "once the pool is unmounted" } else { "with the next mount" };
            say!("          emptied: slot {going} goes {when}")?;
        }
    }
    Ok(())
}
