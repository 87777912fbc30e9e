//! An image as a line of text: which sound pool, how it was left, what was done to it.
//!
//! `tree crashed; commit-line 17; cut-off 4096` is the pool `tree`, not closed, with one commit line
//! changed by the random numbers of seed 17, and its last slot's file cut off at byte 4096. A recipe
//! names no address, so that it means the same damage when structures move.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

use crate::damage::Kind;

/// The sound pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// Directories in each other, files, links, a symlink.
    Tree,
    /// Logs of many pages: one file written over and over, one directory of many names.
    Logs,
    /// Two slots.
    Slots,
    /// No page left.
    Full,
}

impl Shape {
    /// All shapes, by name.
    pub const ALL: [(&str, Self); 4] =
        [("tree", Self::Tree), ("logs", Self::Logs), ("slots", Self::Slots), ("full", Self::Full)];
}

/// A file that ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Bytes that are left of the last slot.
    pub bytes: u64,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// The pool.
    pub shape: Shape,
    /// It was closed; otherwise its process died.
    pub closed: bool,
    /// What is damaged, and the seed of how.
    pub wounds: Vec<(Kind, u64)>,
    /// Whether its last slot ends early.
    pub cut: Option<Cut>,
}

/// More wounds are not gathered.
const WOUNDS_MAX: usize = 6;

impl Recipe {
    /// Any image with one to three wounds.
    #[must_use]
    pub fn any(random: &mut Rng) -> Self {
        let shape = random.choice(Shape::ALL).map_or(Shape::Tree, |(_, shape)| shape);
        let wounds = (0..random.u32(1..4)).map(|_| any_wound(random)).collect();
        let cut = (random.u32(0..50) == 0).then(|| any_cut(random));
        Self { shape, closed: random.bool(), wounds, cut }
    }

    /// An image like this one.
    #[must_use]
    pub fn changed(&self, random: &mut Rng) -> Self {
        let mut new = self.clone();
        let at = random.usize(0..new.wounds.len().max(1));
        match random.u32(0..8) {
            0 => new.closed ^= true,
            1 => new.shape = random.choice(Shape::ALL).map_or(new.shape, |(_, shape)| shape),
            2 if new.wounds.len() > 1 => drop(new.wounds.remove(at)),
            3 => new.wounds.iter_mut().for_each(|(_, seed)| *seed = any_seed(random)),
            4 => {
                if let Some((_, seed)) = new.wounds.get_mut(at) {
                    *seed = any_seed(random);
                }
            }
            5 => new.cut = (random.u32(0..4) == 0).then(|| any_cut(random)),
            _ if new.wounds.len() < WOUNDS_MAX => new.wounds.insert(at, any_wound(random)),
            _ => new.wounds.truncate(1),
        }
        new
    }
}

fn any_wound(random: &mut Rng) -> (Kind, u64) {
    (Kind::any(random), any_seed(random))
}

/// Seeds stay short, to be read.
fn any_seed(random: &mut Rng) -> u64 {
    random.u64(0..1_000_000)
}

fn any_cut(random: &mut Rng) -> Cut {
    let near = [0, 1, 4095, 4096, 8192, 32_768, 36_864, 1 << 20, (1 << 20) + 1];
    let bytes = match random.choice(near) {
        Some(bytes) if random.bool() => bytes,
        _ => random.u64(0..4 << 20),
    };
    Cut { bytes }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = Shape::ALL.iter().find(|(_, shape)| *shape == self.shape);
        let how = if self.closed { "closed" } else { "crashed" };
        write!(f, "{} {how}", shape.map_or("", |(name, _)| name))?;
        for (kind, seed) in &self.wounds {
            let name = Kind::ALL.iter().find(|(_, known)| known == kind);
            write!(f, "; {} {seed}", name.map_or("", |(name, _)| name))?;
        }
        match self.cut {
            Some(Cut { bytes }) => write!(f, "; cut-off {bytes}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(';').map(str::trim);
        let head = parts.next().unwrap_or_default();
        let (shape, how) = head.split_once(' ').ok_or("expected `SHAPE closed` or `crashed`")?;
        let known = Shape::ALL.iter().find(|(name, _)| *name == shape);
        let (_, shape) = *known.ok_or_else(|| format!("no pool `{shape}`"))?;
        let closed = match how.trim() {
            "closed" => true,
            "crashed" => false,
            other => return Err(format!("`{other}`: expected `closed` or `crashed`")),
        };
        let mut recipe = Self { shape, closed, wounds: Vec::new(), cut: None };
        for part in parts {
            let (name, number) = part.split_once(' ').ok_or("expected `KIND NUMBER`")?;
            let number = number.trim().parse().map_err(|why| format!("`{part}`: {why}"))?;
            match Kind::ALL.iter().find(|(known, _)| *known == name) {
                Some((_, Kind::CutOff)) => recipe.cut = Some(Cut { bytes: number }),
                Some((_, kind)) => recipe.wounds.push((*kind, number)),
                None => return Err(format!("no damage `{name}`")),
            }
        }
        Ok(recipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_comes_back_from_its_text() {
        let mut random = Rng::with_seed(1);
        let mut recipe = Recipe::any(&mut random);
        for _ in 0..1000 {
            assert_eq!(recipe.to_string().parse(), Ok(recipe.clone()));
            assert!(recipe.wounds.len() <= WOUNDS_MAX);
            recipe = recipe.changed(&mut random);
        }
    }

    #[test]
    fn what_is_no_recipe_is_told() {
        for text in
            ["", "tree", "hill closed", "tree open", "tree closed; bits", "tree closed; x 1"]
        {
            assert!(text.parse::<Recipe>().is_err(), "{text}");
        }
    }
}
