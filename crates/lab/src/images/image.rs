//! The image of a recipe: a sound pool's bytes, damaged.

use std::path::{Path, PathBuf};

use fastrand::Rng;
use novale_pm::PmOptions;

use super::pools::Pools;
use super::recipe::Recipe;
use crate::damage::wound;
use crate::pool_file::PoolFile;

/// A damaged pool.
#[derive(Debug)]
pub struct Image {
    /// Its slots.
    pub pool: PoolFile,
    /// What was done to it, in words.
    pub wounds: Vec<String>,
    slots: u8,
}

impl Image {
    /// Makes the image.
    ///
    /// # Errors
    /// The sound pool can't be made, or the machine has no memory files.
    pub fn new(pools: &mut Pools, recipe: &Recipe) -> Result<Self, String> {
        let slots = pools.slots(recipe.shape, recipe.closed)?;
        let mut this = Self { pool: filled(slots)?, wounds: Vec::new(), slots: 0 };
        this.slots = u8::try_from(slots.len()).map_err(|why| why.to_string())?;
        let pm = this.pool.open(&PmOptions::default())?;
        for (kind, seed) in &recipe.wounds {
            this.wounds.extend(wound(&pm, *kind, &mut Rng::with_seed(*seed)));
        }
        drop(pm);
        if let Some(cut) = recipe.cut {
            this.cut_off(cut.bytes)?;
        }
        Ok(this)
    }

    /// Lets the last slot end early.
    fn cut_off(&mut self, bytes: u64) -> Result<(), String> {
        let mut slots = self.bytes()?;
        if let Some(last) = slots.last_mut() {
            last.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.wounds.push(format!("the last slot ends at byte {}", last.len()));
        }
        self.pool = filled(&slots)?;
        Ok(())
    }

    /// The bytes of each slot.
    ///
    /// # Errors
    /// What the machine says.
    pub fn bytes(&self) -> Result<Vec<Vec<u8>>, String> {
        let slots = (0..self.slots).map(|slot| self.pool.contents(slot));
        slots.collect::<Result<_, _>>().map_err(|why| why.to_string())
    }

    /// Writes each slot to a file of its own in `folder`; returns the files, by slot.
    ///
    /// # Errors
    /// What the machine says.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let mut paths = Vec::new();
        for (slot, bytes) in self.bytes()?.into_iter().enumerate() {
            let path = folder.join(format!("slot-{slot}"));
            std::fs::write(&path, bytes).map_err(|why| format!("{}: {why}", path.display()))?;
            paths.push(path);
        }
        Ok(paths)
    }
}

fn filled(slots: &[Vec<u8>]) -> Result<PoolFile, String> {
    let lens: Vec<u64> = slots.iter().map(|slot| slot.len() as u64).collect();
    let file = PoolFile::zeroed(&lens).map_err(|why| why.to_string())?;
    for (slot, bytes) in (0..).zip(slots) {
        file.put(slot, 0, bytes).map_err(|why| why.to_string())?;
    }
    Ok(file)
}
