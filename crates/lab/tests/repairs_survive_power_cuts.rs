//! The promise: a repair may be cut off anywhere. What the power cut leaves is repaired by the next
//! one to a sound pool, with all that could be read before; for `NOVALE_LAB_SECONDS`, from
//! `NOVALE_LAB_SEED` on.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at what fails, and says what it met"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use novale_core::repair::Effort;
use novale_lab::crash::{Effort as Images, Hardware, Recorder, What, images};
use novale_lab::diff::Budget;
use novale_lab::images::{Image, Pools, Recipe, copied, readable, repaired, run_repair};
use novale_pm::{Observer, PmOptions};

const CORPUS: &str = include_str!("../corpus/images.txt");
/// Repairs that are cut at least.
const REPAIRS_MIN: usize = 6;
/// Images of a cut that are repaired.
const IMAGES_AT_A_FENCE: usize = 5;
/// Fences of a repair at which it is cut.
const FENCES_MAX: usize = 60;

/// The numbers of inodes whose contents a repair may give up.
fn given_up(slots: &[Vec<u8>], effort: Effort) -> Option<BTreeSet<u64>> {
    let report = repaired(slots, effort).unwrap().report?;
    let refused = !report.needs_salvage.is_empty() || !report.beyond.is_empty();
    if refused || report.changes.is_empty() || !report.left.findings.is_empty() {
        return None;
    }
    let after = readable_after(slots, effort);
    let before = readable(&copied(slots).unwrap());
    Some(
        before
            .iter()
            .filter(|(ino, was)| after.get(ino) != Some(was))
            .map(|(ino, _)| *ino)
            .collect(),
    )
}

fn readable_after(slots: &[Vec<u8>], effort: Effort) -> novale_lab::images::Readable {
    let pool = copied(slots).unwrap();
    run_repair(&pool.open(&PmOptions::default()).unwrap(), effort).unwrap();
    readable(&pool)
}

/// Cuts a repair of these slots at its fences; how often, or what was wrong.
fn cut(slots: &[Vec<u8>], effort: Effort, random: &mut Rng) -> Result<usize, String> {
    let Some(lost) = given_up(slots, effort) else { return Ok(0) };
    let before = readable(&copied(slots)?);
    let pool = copied(slots)?;
    let recorder = Arc::new(Recorder::default());
    let observer = Some(recorder.clone() as Arc<dyn Observer>);
    let pm = pool.open(&PmOptions { observer, ..PmOptions::default() })?;
    run_repair(&pm, effort).map_err(|error| error.to_string())?;
    let mut hardware = Hardware::with(slots.to_vec());
    let (mut fences, mut cuts) = (0, 0);
    for event in recorder.take() {
        let at_fence = matches!(event.what, What::Fence) && !hardware.pending().is_empty();
        if at_fence && fences < FENCES_MAX {
            fences += 1;
            let mut choice = images(&hardware, Images::default(), random);
            random.shuffle(&mut choice);
            for image in choice.into_iter().take(IMAGES_AT_A_FENCE) {
                cuts += 1;
                let left = hardware.after_cut(&image.lines).durable().to_vec();
                let done = repaired(&left, effort)?;
                let place = || format!("cut at fence {fences}, {}", image.choice);
                if let Some(what) = done.wrong.first() {
                    return Err(format!("{}: {what}", place()));
                }
                let report = done.report.ok_or_else(|| format!("{}: no report", place()))?;
                if !report.left.findings.is_empty() {
                    return Err(format!("{}: left: {:?}", place(), report.left.findings));
                }
                let after = readable_after(&left, effort);
                let gone = before
                    .iter()
                    .find(|(ino, was)| after.get(ino) != Some(was) && !lost.contains(ino));
                if let Some((ino, _)) = gone {
                    return Err(format!("{}: inode {ino} is lost: {:?}", place(), report.changes));
                }
            }
        }
        hardware.apply(&event);
    }
    Ok(cuts)
}

#[test]
fn at_every_fence() {
    let mut recipes: Vec<Recipe> = CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().unwrap())
        .collect();
    let budget = Budget::from_env(10, 0);
    let mut random = Rng::with_seed(budget.seed);
    random.shuffle(&mut recipes);
    let (start, mut pools) = (Instant::now(), Pools::default());
    let (mut repairs, mut cuts, mut wrong) = (0, 0, Vec::new());
    for recipe in recipes {
        if repairs >= REPAIRS_MIN && start.elapsed() > budget.time {
            break;
        }
        let slots = Image::new(&mut pools, &recipe).unwrap().bytes().unwrap();
        for effort in [Effort::Safe, Effort::Salvage] {
            match cut(&slots, effort, &mut random) {
                Ok(0) => {}
                Ok(count) => (repairs, cuts) = (repairs + 1, cuts + count),
                Err(what) => wrong.push(format!("{recipe} ({effort:?}): {what}")),
            }
        }
    }
    println!("repairs_survive_power_cuts: {repairs} repairs, cut {cuts} times");
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), wrong);
    assert!(cuts > repairs, "no repair was cut");
}
