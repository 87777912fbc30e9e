//! A repair that is cut off: what the power cut leaves is repaired by the next one to a sound pool,
//! with all that could be read before, but what the first one would have given up itself.

use std::str::FromStr;
use std::sync::Arc;

use fastrand::Rng;
use novale_core::FileKind;
use novale_core::repair::{Change, Effort};
use novale_pm::{Observer, PmOptions};

use super::recipe::Recipe;
use super::repaired::{Readable, copied, names_inode, readable, repaired, run_repair};
use crate::crash::{Effort as Images, Event, Hardware, Recorder, What, images};

/// What a repair says of an inode that keeps all it has.
const GOES_ON: &str = "goes on from its newest readable state";
/// What it says of one that had pages of others.
const SHARED: &str = "pages that others have too";
/// Fences of a repair at which it is cut.
const FENCES_MAX: usize = 60;

/// Kind, size, bytes.
type Content = (FileKind, u64, Vec<u8>);

/// A repair to make; as text `safe` or `salvage`, and the recipe of a damaged pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairTask {
    /// The damaged pool.
    pub recipe: Recipe,
    /// What the repair may give up.
    pub effort: Effort,
}

impl FromStr for RepairTask {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (effort, recipe) =
            line.split_once(' ').ok_or_else(|| format!("`{line}`: no recipe"))?;
        let effort = match effort {
            "safe" => Effort::Safe,
            "salvage" => Effort::Salvage,
            other => return Err(format!("`{other}`: expected `safe` or `salvage`")),
        };
        Ok(Self { recipe: recipe.parse()?, effort })
    }
}

/// A repair that came to its end, and what may be asked of one that does not.
#[derive(Debug)]
pub struct CutRepair {
    effort: Effort,
    /// What it did to the pool.
    pub events: Vec<Event>,
    before: Readable,
    after: Readable,
    changes: Vec<Change>,
    /// It left the pool marked clean.
    is_clean: bool,
}

impl CutRepair {
    /// Repairs a copy of these slots; `None` where that comes to no end that is sound, or there is
    /// nothing to do.
    ///
    /// # Errors
    /// What the machine says.
    pub fn record(slots: &[Vec<u8>], effort: Effort) -> Result<Option<Self>, String> {
        let before = readable(&copied(slots)?);
        let pool = copied(slots)?;
        let recorder = Arc::new(Recorder::default());
        let observer = Some(recorder.clone() as Arc<dyn Observer>);
        let Ok(pm) = pool.open(&PmOptions { observer, ..PmOptions::default() }) else {
            return Ok(None);
        };
        let report = run_repair(&pm, effort);
        drop(pm);
        let Ok(report) = report else { return Ok(None) };
        let is_refused = !report.needs_salvage.is_empty() || !report.beyond.is_empty();
        if is_refused || report.changes.is_empty() || !report.left.findings.is_empty() {
            return Ok(None);
        }
        let (events, after, changes) = (recorder.take(), readable(&pool), report.changes);
        let is_clean = report.left.clean;
        Ok(Some(Self { effort, events, before, after, changes, is_clean }))
    }

    /// Cuts it at its fences, of these slots, and after it; returns how often. Of the images at a fence
    /// so many are repaired, drawn from all.
    ///
    /// # Errors
    /// The cut, and what was wrong with what came of it.
    pub fn cut_at_fences(
        &self,
        slots: Vec<Vec<u8>>,
        images_max: usize,
        random: &mut Rng,
    ) -> Result<usize, String> {
        let mut hardware = Hardware::with(slots);
        let (mut fences, mut cuts) = (0, 0);
        for event in &self.events {
            let at_fence = matches!(event.what, What::Fence) && !hardware.pending().is_empty();
            if at_fence && fences < FENCES_MAX {
                fences += 1;
                let mut choice = images(&hardware, Images::default(), random);
                random.shuffle(&mut choice);
                for image in choice.into_iter().take(images_max) {
                    cuts += 1;
                    let left = hardware.after_cut(&image.lines).durable_copy();
                    let place = || format!("cut at fence {fences}, keeping {}", image.choice);
                    self.judge_cut(&left).map_err(|what| format!("{}: {what}", place()))?;
                }
            }
            hardware.apply(event);
        }
        hardware.lose_pending();
        let end = self.judge_end(&hardware.durable_copy());
        end.map_err(|what| format!("cut behind it: {what}"))?;
        Ok(cuts)
    }

    /// How many of its changes say this.
    pub fn says(&self, text: &str) -> usize {
        self.changes.iter().filter(|change| change.what.contains(text)).count()
    }

    /// Repairs what a cut left.
    ///
    /// # Errors
    /// What is wrong with what comes of it.
    pub fn judge_cut(&self, left: &[Vec<u8>]) -> Result<(), String> {
        let done = repaired(left, self.effort)?;
        // A page of the pool's own that a file maps, too, changes in any repair.
        if let Some(what) = done.wrong.iter().find(|what| !self.names_separated(what)) {
            return Err(what.clone());
        }
        let Some(report) = done.report else {
            return Err(format!("the next repair ends: {:?}", done.error));
        };
        if !report.left.findings.is_empty() {
            return Err(format!("the next repair leaves: {:?}", report.left.findings));
        }
        let gone = self.before.iter().find(|(ino, was)| {
            let is = done.after.get(ino);
            is != Some(was) && !self.is_changed(**ino) && !self.is_separated(**ino, was, is)
        });
        if let Some((ino, _)) = gone {
            return Err(format!("inode {ino} is lost: {:?}", report.changes));
        }
        let gives_up = |change: &&Change| change.is_loss && !change.what.contains(GOES_ON);
        let mut more = report.changes.iter().filter(gives_up);
        match more.find(|change| !self.loses_too(change)) {
            Some(change) => Err(format!("the next repair gives up more: {change:?}")),
            None => Ok(()),
        }
    }

    /// What the repair, after which the power went, must have left as it was.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge_end(&self, left: &[Vec<u8>]) -> Result<(), String> {
        let done = repaired(left, self.effort)?;
        let report = done.report.ok_or("the next repair can't begin")?;
        if let Some(change) = report.changes.first() {
            return Err(format!("a repaired pool needs another repair: {change:?}"));
        }
        if report.left.clean != self.is_clean {
            return Err("whether the pool is clean is not what the repair made of it".to_owned());
        }
        if done.after != self.after {
            return Err("what can be read is not what could be behind the repair".to_owned());
        }
        done.wrong.first().map_or(Ok(()), |what| Err(what.clone()))
    }

    /// Whether the repair itself left something else to be read of an inode.
    fn is_changed(&self, number: u64) -> bool {
        self.after.get(&number) != self.before.get(&number)
    }

    /// Whether a file had a page of another inode, which a repair may have gone on writing before it was
    /// cut off: what is in that page was never the file's.
    fn is_separated(&self, number: u64, was: &Content, is: Option<&Content>) -> bool {
        self.names_separated(&format!("inode {number}"))
            && is.is_some_and(|is| (is.0, is.1) == (was.0, was.1))
    }

    /// Whether a text names a file that had pages of others.
    fn names_separated(&self, text: &str) -> bool {
        let numbers = inodes_in(text);
        let mut shared = self.changes.iter().filter(|change| change.what.contains(SHARED));
        shared.any(|change| numbers.iter().any(|number| names_inode(&change.what, *number)))
    }

    /// Whether the repair gave up something of the same inode, or at the same place.
    fn loses_too(&self, change: &Change) -> bool {
        let numbers: Vec<u64> = inodes_in(&change.what);
        self.changes.iter().filter(|own| own.is_loss).any(|own| {
            own.at == change.at || numbers.iter().any(|number| names_inode(&own.what, *number))
        })
    }
}

/// The numbers of inodes that a text names.
fn inodes_in(text: &str) -> Vec<u64> {
    let behind = text.split("inode ").skip(1);
    let digits = behind.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits.filter_map(|digits| digits?.parse().ok()).collect()
}
