//! The image of a recipe: a sound pool's bytes, damaged.

use std::path::{Path, PathBuf};

use fastrand::Rng;
use novale_pm::PmOptions;

use super::pools::Pools;
use super::recipe::Recipe;
use super::repaired::copied;
use crate::damage::wound;
use crate::pool_file::PoolFile;

/// A damaged pool.
#[derive(Debug)]
pub struct Image {
    /// Its slots.
    pub pool: PoolFile,
    /// What was done to it, in words.
    pub wounds: Vec<String>,
}

impl Image {
    /// Makes the image.
    ///
    /// # Errors
    /// The sound pool can't be made, or the machine has no memory files.
    pub fn new(pools: &mut Pools, recipe: &Recipe) -> Result<Self, String> {
        let slots = pools.slots(recipe.shape, recipe.closed)?;
        let mut this = Self { pool: copied(slots)?, wounds: Vec::new() };
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
        self.pool = copied(&slots)?;
        Ok(())
    }

    /// The bytes of each slot.
    ///
    /// # Errors
    /// What the machine says.
    pub fn bytes(&self) -> Result<Vec<Vec<u8>>, String> {
        self.pool.slots().map_err(|why| why.to_string())
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
