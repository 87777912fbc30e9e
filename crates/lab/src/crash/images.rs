//! Which crash images to try at one point: of all that the hardware may keep, those that find most.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use fastrand::Rng;
use novale_pm::Purpose;

use super::hardware::{Hardware, LineBytes, LineKey, Pending};

/// What a crash leaves in the lines that were not durable; lines left out keep durable bytes.
#[derive(Debug, Clone)]
pub struct Image {
    /// The lines that differ from the durable ones.
    pub lines: BTreeMap<LineKey, LineBytes>,
    /// How it was chosen.
    pub choice: Choice,
}

/// How an image was chosen, to be shown with a failure.
#[derive(Debug, Clone)]
pub enum Choice {
    /// No pending store.
    Nothing,
    /// All pending stores.
    Everything,
    /// All stores of one line alone.
    Only(LineKey),
    /// All but the stores of one line.
    AllBut(LineKey),
    /// Of one line the first ordered stores, of the others all.
    PrefixAndAll(LineKey, usize),
    /// Of one line the first ordered stores, of the others none.
    PrefixAlone(LineKey, usize),
    /// What so many calls stored, as a killed process leaves it.
    Calls(usize),
    /// A subset of whole lines, by the bits of a number.
    Lines(u64),
    /// Any, drawn at random.
    Random,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |key: &LineKey| format!("{}:{:#x}", key.slot, key.line * 64);
        match self {
            Self::Nothing => write!(f, "none of the pending stores"),
            Self::Everything => write!(f, "all pending stores"),
            Self::Only(key) => write!(f, "the line at {} alone", at(key)),
            Self::AllBut(key) => write!(f, "all but the line at {}", at(key)),
            Self::PrefixAndAll(key, count) => {
                write!(f, "{count} ordered stores of the line at {}, all of the others", at(key))
            }
            Self::PrefixAlone(key, count) => {
                write!(f, "{count} ordered stores of the line at {}, no others", at(key))
            }
            Self::Calls(count) => write!(f, "what the first {count} calls stored"),
            Self::Lines(bits) => write!(f, "the pending lines of the bits {bits:#b}"),
            Self::Random => write!(f, "a random subset"),
        }
    }
}

/// How many images to try at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// All subsets of whole lines, for up to so many of them.
    pub subset_lines_max: usize,
    /// Lines of data that are tried one by one; others are tried all.
    pub data_lines_max: usize,
    /// Random subsets of 8-byte units.
    pub random: usize,
}

/// The images to try, each once.
#[must_use]
pub fn images(hardware: &Hardware, effort: Effort, random: &mut Rng) -> Vec<Image> {
    let mut choosing = Choosing { hardware, seen: HashSet::new(), images: Vec::new() };
    choosing.add(Choice::Nothing, |_, _, _| false);
    choosing.add(Choice::Everything, |_, _, _| true);
    let keys: Vec<LineKey> = hardware.pending().keys().copied().collect();
    if keys.len() <= effort.subset_lines_max {
        choosing.subsets(&keys);
    }
    choosing.calls();
    for key in chosen_lines(hardware, effort, random) {
        choosing.add(Choice::Only(key), |other, _, _| other == key);
        choosing.add(Choice::AllBut(key), |other, _, _| other != key);
        choosing.prefixes(key);
    }
    for _ in 0..effort.random {
        choosing.random(random);
    }
    choosing.images
}

/// All lines of metadata, and some of data.
fn chosen_lines(hardware: &Hardware, effort: Effort, random: &mut Rng) -> Vec<LineKey> {
    let is_data = |stores: &[Pending]| stores.iter().all(|store| store.purpose == Purpose::Data);
    let (data, mut lines): (Vec<_>, Vec<_>) =
        hardware.pending().iter().partition(|(_, stores)| is_data(stores));
    lines.extend(random.choose_multiple(data, effort.data_lines_max));
    lines.into_iter().map(|(key, _)| *key).collect()
}

struct Choosing<'h> {
    hardware: &'h Hardware,
    seen: HashSet<Vec<(LineKey, LineBytes)>>,
    images: Vec<Image>,
}

impl Choosing<'_> {
    /// Adds the image that keeps what `keep` says of (line, index of the store, store).
    fn add(&mut self, choice: Choice, keep: impl Fn(LineKey, usize, &Pending) -> bool) {
        let mut lines = BTreeMap::new();
        for (key, stores) in self.hardware.pending() {
            let kept: Vec<bool> =
                stores.iter().enumerate().map(|(index, store)| keep(*key, index, store)).collect();
            let line =
                self.hardware.line_with(*key, |index| kept.get(index).copied().unwrap_or(false));
            if line != self.hardware.durable_line(*key) {
                lines.insert(*key, line);
            }
        }
        if self.seen.insert(lines.iter().map(|(key, line)| (*key, *line)).collect()) {
            self.images.push(Image { lines, choice });
        }
    }

    fn subsets(&mut self, keys: &[LineKey]) {
        for bits in 0..1_u64 << keys.len() {
            self.add(Choice::Lines(bits), |key, _, _| {
                let index = keys.binary_search(&key).unwrap_or(0);
                bits >> index & 1 == 1
            });
        }
    }

    fn calls(&mut self) {
        let stores = self.hardware.pending().values().flatten();
        let calls: BTreeSet<u64> = stores.map(|store| store.call).collect();
        for (count, last) in (1..).zip(&calls) {
            self.add(Choice::Calls(count), |_, _, store| store.call <= *last);
        }
    }

    fn prefixes(&mut self, key: LineKey) {
        let stores = self.hardware.pending().get(&key).map(Vec::as_slice).unwrap_or_default();
        let ordered: Vec<usize> = stores
            .iter()
            .enumerate()
            .filter(|(_, store)| store.ordered)
            .map(|(index, _)| index)
            .collect();
        for count in 1..ordered.len() {
            let end = ordered.get(count).copied().unwrap_or(0);
            self.add(Choice::PrefixAndAll(key, count), |other, index, store| {
                other != key || !store.ordered || index < end
            });
            self.add(Choice::PrefixAlone(key, count), |other, index, store| {
                other == key && store.ordered && index < end
            });
        }
    }

    fn random(&mut self, random: &mut Rng) {
        let mut kept: BTreeMap<LineKey, Vec<bool>> = BTreeMap::new();
        for (key, stores) in self.hardware.pending() {
            let ordered = stores.iter().filter(|store| store.ordered).count();
            let mut prefix = random.usize(0..=ordered);
            let whole = random.u8(0..3);
            let keep = |store: &Pending| match whole {
                0 => false,
                1 => true,
                _ if store.ordered => {
                    let kept = prefix > 0;
                    prefix = prefix.saturating_sub(1);
                    kept
                }
                _ => random.bool(),
            };
            kept.insert(*key, stores.iter().map(keep).collect());
        }
        self.add(Choice::Random, |key, index, _| {
            kept.get(&key).and_then(|kept| kept.get(index)).copied().unwrap_or(false)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use novale_layout::PmAddr;
    use novale_pm::{Pm, PmOptions};

    use super::super::record::Recorder;
    use super::*;

    fn pending(run: impl FnOnce(&Pm)) -> Hardware {
        let recorder = Arc::new(Recorder::default());
        let options = PmOptions { observer: Some(recorder.clone()), ..PmOptions::default() };
        run(&Pm::anonymous(&[8192], &options).unwrap());
        let mut hardware = Hardware::zeroed(&[8192]);
        recorder.take().iter().for_each(|event| drop(hardware.apply(event)));
        hardware
    }

    const ONE_BY_ONE: Effort = Effort { subset_lines_max: 0, data_lines_max: 100, random: 0 };

    #[test]
    fn an_ordered_line_breaks_at_each_word_and_nowhere_else() {
        let line: Vec<u8> = (1..=64).collect();
        let line: [u8; 64] = line.try_into().unwrap();
        let hardware = pending(|pm| drop(pm.store_line(PmAddr::new(0, 0), &line, Purpose::Commit)));
        let images = images(&hardware, ONE_BY_ONE, &mut Rng::with_seed(1));
        let mut kept: Vec<usize> = images
            .iter()
            .map(|image| {
                let bytes = image.lines.values().next().copied().unwrap_or([0; 64]);
                let kept = bytes.iter().take_while(|byte| **byte != 0).count();
                assert!(bytes.iter().skip(kept).all(|byte| *byte == 0));
                kept
            })
            .collect();
        kept.sort_unstable();
        assert_eq!(kept, [0, 8, 16, 24, 32, 40, 48, 56, 64]);
    }

    #[test]
    fn lines_persist_alone_and_one_may_be_missing() {
        let hardware = pending(|pm| drop(pm.stream(PmAddr::new(0, 0), &[1; 192], Purpose::Data)));
        let count = |image: &Image| image.lines.len();
        let mut counts: Vec<_> =
            images(&hardware, ONE_BY_ONE, &mut Rng::with_seed(1)).iter().map(count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [0, 1, 1, 1, 2, 2, 2, 3]);
        let all = Effort { subset_lines_max: 3, data_lines_max: 0, random: 0 };
        assert_eq!(images(&hardware, all, &mut Rng::with_seed(1)).len(), 8);
    }

    #[test]
    fn random_images_tear_streaming_stores_within_a_line() {
        let hardware = pending(|pm| drop(pm.stream(PmAddr::new(0, 0), &[1; 64], Purpose::Data)));
        let effort = Effort { subset_lines_max: 0, data_lines_max: 0, random: 20 };
        let images = images(&hardware, effort, &mut Rng::with_seed(1));
        let torn =
            |image: &Image| image.lines.values().any(|line| line.contains(&0) && line.contains(&1));
        assert!(images.iter().filter(|image| torn(image)).count() > 2);
        let units_are_whole =
            |line: &LineBytes| line.chunks(8).all(|unit| unit.iter().all(|byte| byte == &unit[0]));
        assert!(images.iter().all(|image| image.lines.values().all(units_are_whole)));
    }
}
