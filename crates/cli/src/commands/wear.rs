//! `novale wear`: how far the slots of a pool are worn, evenly or not, and how long they last.
//!
//! Of a pool that is open its clients' counts say so, as for `novale stats`; else its slots do.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use novale_core::{OpenOptions, live_clients, live_wear, saved_wear};
use novale_pm::PmOptions;
use plotters::prelude::*;
use serde::Serialize;
use uuid::Uuid;

use crate::base::args::WearArgs;
use crate::base::size::show_size;
use crate::commands::stats::is_unheard;
use crate::holders::holder;
use crate::holders::patience::patiently_by;
use crate::pools::slots::{self, Found, page_bytes};

const LINE_BYTES: u64 = 64;
const DAY_SECONDS: f64 = 86_400.0;
/// The longest bar in a terminal, in characters.
const BAR: usize = 40;
const BAR_WIDTH: f64 = 40.0;

/// What is known of a pool's wear, as JSON shows it.
#[derive(Debug, Serialize)]
struct Wear {
    pool: String,
    /// How its slots are used, where it is open.
    placement: Option<&'static str>,
    /// Of which time the rates are, in seconds.
    seconds: f64,
    /// By how much the most worn slot is above the mean, in hundredths of it.
    skew_percent: f64,
    /// The standard deviation of lines over the slots.
    lines_deviation: f64,
    /// Until the first slot has got all that it endures, in days.
    days_left: Option<f64>,
    slots: Vec<SlotWear>,
}

#[derive(Debug, Serialize)]
struct SlotWear {
    slot: u8,
    path: String,
    bytes: u64,
    /// Writes that a cell endures.
    endurance: Option<u64>,
    /// Lines of 64 bytes that reached it.
    lines: u64,
    bytes_written: u64,
    /// How often all of it was written.
    times_written: f64,
    bytes_per_day: f64,
    /// From its first day to its last one at this rate (WASA, equations 2 and 3).
    days_of_life: Option<f64>,
    days_left: Option<f64>,
}

pub(crate) fn run(args: &WearArgs) -> Result<()> {
    let found = patiently_by(&args.slots, slots::find)?;
    let since_made = age(&found);
    let Some(seconds) = args.watch else {
        let (lines, placement) = lines_now(&found)?;
        let wear = Wear::new(&found, args, placement, &lines, &lines, since_made);
        if let Some(file) = &args.svg {
            draw(&wear, file).with_context(|| format!("drawing {}", file.display()))?;
        }
        return if args.json {
            say!("{}", serde_json::to_string_pretty(&wear)?)
        } else {
            show(&wear)
        };
    };
    let (mut before, placement) = lines_now(&found)?;
    if placement.is_none() {
        bail!("{}: nobody has the pool open: nothing is written to it", slots::shown(&found.paths));
    }
    // Until nobody has the pool open, or nobody listens.
    while !is_unheard(seconds)? {
        let (lines, placement) = lines_now(&found)?;
        if placement.is_none() {
            return Ok(());
        }
        let sent: Vec<u64> =
            lines.iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).collect();
        let wear = Wear::new(&found, args, placement, &lines, &sent, Duration::from_secs(seconds));
        if args.json {
            say!("{}", serde_json::to_string(&wear)?)?;
        } else {
            show(&wear)?;
            say!("")?;
        }
        before = lines;
    }
    Ok(())
}

/// How long there has been the pool; no time where it says that it was made later than now.
fn age(found: &Found) -> Duration {
    let made = Duration::from_nanos(u64::try_from(found.info.created_ns).unwrap_or(0));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(made)
}

/// Lines that reached each slot, and how the slots are used where the pool is open.
fn lines_now(found: &Found) -> Result<(Vec<u64>, Option<&'static str>)> {
    let arena = holder::arena_in_use(found)?;
    if let Some(arena) = arena.filter(|arena| !live_clients(arena).is_empty())
        && let Some(lines) = live_wear(&arena, &found.info)?
    {
        return Ok((lines, Some(OpenOptions::of_arena(&arena).placement.name())));
    }
    let pm = slots::open(&found.paths, PmOptions { read_only: true, ..PmOptions::default() })?;
    Ok((saved_wear(&pm, &found.info)?, None))
}

#[allow(clippy::cast_precision_loss, reason = "what people read of a count")]
fn real(count: u64) -> f64 {
    count as f64
}

impl Wear {
    /// `sent` are the lines of `time`, by which the rates go.
    fn new(
        found: &Found,
        args: &WearArgs,
        placement: Option<&'static str>,
        lines: &[u64],
        sent: &[u64],
        time: Duration,
    ) -> Self {
        let slots = found.info.slots.iter().zip(&found.paths).zip(lines.iter().zip(sent));
        let slots: Vec<SlotWear> = slots
            .map(|((slot, path), (lines, sent))| {
                let said = Some(slot.endurance).filter(|writes| *writes > 0);
                let days = time.as_secs_f64() / DAY_SECONDS;
                let per_day = if days > 0.0 { real(sent * LINE_BYTES) / days } else { 0.0 };
                SlotWear::new(
                    slot.index,
                    path,
                    page_bytes(slot.pages),
                    said.or(args.endurance),
                    *lines,
                    per_day,
                )
            })
            .collect();
        let worn: Vec<f64> = slots.iter().map(SlotWear::worn).collect();
        let (mean, _) = mean_and_deviation(&worn);
        let most = worn.iter().copied().fold(0.0, f64::max);
        let (_, lines_deviation) =
            mean_and_deviation(&lines.iter().map(|lines| real(*lines)).collect::<Vec<_>>());
        let left = slots.iter().filter_map(|slot| slot.days_left).min_by(f64::total_cmp);
        Self {
            pool: Uuid::from_bytes(found.info.uuid).to_string(),
            placement,
            seconds: time.as_secs_f64(),
            skew_percent: if mean > 0.0 { (most / mean - 1.0) * 100.0 } else { 0.0 },
            lines_deviation,
            days_left: left,
            slots,
        }
    }
}

impl SlotWear {
    fn new(
        slot: u8,
        path: &Path,
        bytes: u64,
        endurance: Option<u64>,
        lines: u64,
        bytes_per_day: f64,
    ) -> Self {
        let written = lines.saturating_mul(LINE_BYTES);
        let all = endurance.map(|writes| real(writes) * real(bytes));
        let days = |bytes: f64| (bytes_per_day > 0.0).then(|| bytes.max(0.0) / bytes_per_day);
        Self {
            slot,
            path: path.display().to_string(),
            bytes,
            endurance,
            lines,
            bytes_written: written,
            times_written: real(written) / real(bytes),
            bytes_per_day,
            days_of_life: all.and_then(days),
            days_left: all.and_then(|all| days(all - real(written))),
        }
    }

    /// How far it is worn, in a measure that is the same for all slots.
    fn worn(&self) -> f64 {
        self.times_written / self.endurance.map_or(1.0, real)
    }
}

fn mean_and_deviation(of: &[f64]) -> (f64, f64) {
    let count = real(of.len().max(1) as u64);
    let mean = of.iter().sum::<f64>() / count;
    let squares = of.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
    (mean, (squares / count).sqrt())
}

/// Days in words: `1.2e4 years`, `80 days`, `12 seconds`.
fn in_days(days: Option<f64>) -> String {
    match days {
        None => "-".to_owned(),
        Some(days) if days >= 36_500.0 * 1000.0 => format!("{:.1e} years", days / 365.25),
        Some(days) if days >= 730.0 => format!("{:.0} years", days / 365.25),
        Some(days) if days >= 2.0 => format!("{days:.1} days"),
        Some(days) if days >= 2.0 / 24.0 => format!("{:.1} hours", days * 24.0),
        Some(days) => format!("{:.0} seconds", days * DAY_SECONDS),
    }
}

fn show(wear: &Wear) -> Result<()> {
    say!("pool      {}", wear.pool)?;
    match wear.placement {
        Some(placement) => say!("slots     used by {placement}")?,
        None => say!("slots     not in use: as far as they say themselves")?,
    }
    say!("skew      {:.2} %: the most worn slot above the mean", wear.skew_percent)?;
    let days = in_days(Some(wear.seconds / DAY_SECONDS).filter(|days| *days > 0.0));
    say!("lasts     {}, at the rate of {days}", in_days(wear.days_left))?;
    if wear.slots.iter().any(|slot| slot.endurance.is_none()) {
        say!("          what the memory endures is not known: give --endurance, here or to mkfs")?;
    }
    let most = wear.slots.iter().map(SlotWear::worn).fold(0.0, f64::max);
    for slot in &wear.slots {
        let part = if most > 0.0 { slot.worn() / most } else { 0.0 };
        say!(
            "slot {:<4} {} {:>10} written, {:.3} times all of it, {}",
            slot.slot,
            bar(part),
            show_size(slot.bytes_written),
            slot.times_written,
            in_days(slot.days_left)
        )?;
    }
    Ok(())
}

/// A bar of that part of the longest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a bar")]
fn bar(part: f64) -> String {
    let filled = ((part * BAR_WIDTH).round() as usize).min(BAR);
    format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled))
}

/// The same as a picture: a bar for each slot, of the part of its life that is over; where nobody knows what
/// they all endure, of how often they were written.
fn draw(wear: &Wear, file: &Path) -> Result<()> {
    let is_known = wear.slots.iter().all(|slot| slot.endurance.is_some());
    let (unit, what) = if is_known {
        (100.0, "percent of what it endures")
    } else {
        (1.0, "times that all of it was written")
    };
    let height = |slot: &SlotWear| unit * if is_known { slot.worn() } else { slot.times_written };
    let most = wear.slots.iter().map(height).fold(0.0, f64::max).max(1e-12);
    let root = SVGBackend::new(file, (900, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let count = real(wear.slots.len() as u64);
    let title = format!("Wear of pool {}: skew {:.2} %", wear.pool, wear.skew_percent);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(-0.5..count - 0.5, 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(wear.slots.len())
        .x_label_formatter(&|slot| format!("{slot:.0}"))
        .x_desc("slot")
        .y_desc(what)
        .draw()?;
    chart.draw_series(wear.slots.iter().map(|slot| {
        let at = f64::from(slot.slot);
        let corners = [(at - 0.4, 0.0), (at + 0.4, height(slot))];
        Rectangle::new(corners, RGBColor(38, 70, 83).filled())
    }))?;
    root.present()?;
    Ok(())
}
