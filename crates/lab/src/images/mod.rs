//! Hostile images: pools damaged on purpose, and put through everything that opens one. `recipe` is
//! an image as text, `pools` the sound ones that it starts from, `image` its bytes, `try_one` what
//! an image is put through, `repaired` what a repair of it must come to, `cut_repair` one that is cut
//! off, `message` what messages are told apart by, `hunt` the search, guided by what it reaches. Comes
//! in: a seed and a time, or recipes. Goes out: what went wrong, each as a recipe. Called by
//! `novale-lab images` and tests. Never in here: how a structure is damaged
//! (`damage`).

mod cut_repair;
mod hunt;
mod image;
mod message;
mod pools;
mod recipe;
mod repaired;
mod try_one;

pub use cut_repair::{CutRepair, RepairTask};
pub use hunt::{Hunt, Tally};
pub use image::Image;
pub use pools::Pools;
pub use recipe::{Cut, Recipe, Shape};
pub use repaired::{Readable, Repaired, copied, readable, repaired, run_repair};
pub use try_one::{Outcome, try_recipe};
