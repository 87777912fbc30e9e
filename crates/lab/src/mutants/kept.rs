//! What was caught in earlier runs, kept in a file. A mutant is named by the text of the functions of
//! `core` that it changes, and not by lines, so it is known again where those functions are unchanged;
//! what else the lab is built of must be unchanged too, but for the list of runs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::key::{Does, How, Key, Mutant, Site};
use super::needless::why;
use super::score::{Fate, Report};
use super::sites::calls_at;
use crate::source::files;

/// What is in the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Of what judged.
    judges: String,
    caught: BTreeMap<String, [String; 3]>,
    /// Tries that those of the table of needless calls have survived.
    survived: BTreeMap<String, u32>,
}

impl Kept {
    /// What the file has; nothing if there is none yet, or other sources judged then.
    ///
    /// # Errors
    /// When it is no such file, or can't be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        let judges = judges()?;
        let kept = match std::fs::read(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Self::default(),
            text => serde_json::from_slice(&text?)?,
        };
        let is_same = kept.judges == judges;
        Ok(if is_same { kept } else { Self { judges, ..Self::default() } })
    }

    /// How a mutant fared then.
    pub(super) fn fate(&self, mutant: &Mutant) -> Fate {
        let name = name(mutant).unwrap_or_default();
        let (is_needless, caught) = (why(mutant).is_some(), self.caught.get(&name).cloned());
        let tries = self.survived.get(&name).filter(|_| is_needless).copied().unwrap_or(0);
        Fate { tries, is_needless, is_kept: caught.is_some(), caught, ..Fate::default() }
    }

    /// Adds what was caught, and what survived as it should.
    pub fn add(&mut self, report: &Report) {
        for (mutant, fate) in &report.fates {
            let name = name(mutant);
            self.survived.extend(name.clone().zip(fate.is_needless.then_some(fate.tries)));
            self.caught.extend(name.zip(fate.caught.clone()));
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What the machine says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
    }
}

/// The sources of what records and judges. Which runs there are, in what order, and what of a mutant is
/// known besides, changes nothing of what one found.
fn judges() -> io::Result<String> {
    let mut all = Vec::new();
    for name in ["lab", "layout", "model", "pm"] {
        let mut files = files(name)?;
        let others = ["kept.rs", "workloads.rs", "score.rs", "needless.rs"];
        let others = others.map(|file| Path::new("mutants").join(file));
        files.retain(|(file, _)| !file.starts_with("bin") && !others.contains(file));
        files.sort();
        for (_, text) in files {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            all.extend_from_slice(code.trim_end().as_bytes());
        }
    }
    Ok(format!("{:016x}", xxh3_64(&all)))
}

/// `None` where a site is in no function that is known.
fn name(mutant: &Mutant) -> Option<String> {
    let how = match mutant.how {
        How::Removed => "removed".to_owned(),
        How::Cached => "cached".to_owned(),
        How::Behind(next) => format!("behind {}", of_key(&next)?),
    };
    Some(format!("{how}: {}", of_key(&mutant.key)?))
}

fn of_key(key: &Key) -> Option<String> {
    let beside = key.beside.map_or(Some(String::new()), |site| of_site(site, None))?;
    let (site, during, form) = (of_site(key.site, Some(key.does))?, key.during, key.form);
    Some(format!("{:?} {site} in {during} ({form}) beside {beside}", key.does))
}

fn of_site(site: Site, does: Option<Does>) -> Option<String> {
    let calls = calls_at(site, does);
    let call = calls.first()?;
    Some(format!(
        "{} {} {}:{} {:016x}",
        call.function, call.method, call.nth, site.column, call.text
    ))
}
