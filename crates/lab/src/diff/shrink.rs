//! Makes a failing sequence short: whole runs of steps are left out, then single steps simplified.

use std::collections::BTreeSet;

use crate::workload::{Path, Step, Target, number_of};

/// A short sequence that fails too. `fails` is asked at most `tries` times, and not at all where
/// `NOVALE_LAB_AS_FOUND` is set: for a caller that only counts failures.
pub fn shrink(steps: Vec<Step>, tries: usize, fails: &mut dyn FnMut(&[Step]) -> bool) -> Vec<Step> {
    let tries = if std::env::var_os("NOVALE_LAB_AS_FOUND").is_some() { 0 } else { tries };
    let mut shrinker = Shrinker { steps, tries, fails };
    // Each round that goes on has made the sequence shorter or simpler.
    while shrinker.tries > 0
        && (shrinker.leave_out() | shrinker.simplify() | shrinker.simplify_paths())
    {}
    shrinker.steps
}

struct Shrinker<'f> {
    steps: Vec<Step>,
    tries: usize,
    fails: &'f mut dyn FnMut(&[Step]) -> bool,
}

impl Shrinker<'_> {
    /// Takes over the candidate if it fails.
    fn accept(&mut self, candidate: Vec<Step>) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let accepted = (self.fails)(&candidate);
        if accepted {
            self.steps = candidate;
        }
        accepted
    }

    /// Leaves out runs of half the steps, a quarter, ... single ones.
    fn leave_out(&mut self) -> bool {
        let before = self.steps.len();
        let mut run = self.steps.len().div_ceil(2).max(1);
        loop {
            let mut end = self.steps.len();
            while end > 0 {
                let start = end.saturating_sub(run);
                let kept = self.steps.iter().take(start).chain(self.steps.iter().skip(end));
                let candidate = kept.cloned().collect();
                self.accept(candidate);
                end = start;
            }
            if run == 1 {
                return self.steps.len() < before;
            }
            run /= 2;
        }
    }

    fn simplify(&mut self) -> bool {
        let mut simpler = false;
        for index in 0..self.steps.len() {
            // Each form that is taken has fewer simpler forms itself.
            while self.simplify_step(index) {
                simpler = true;
            }
        }
        simpler
    }

    fn simplify_step(&mut self, index: usize) -> bool {
        let forms = self.steps.get(index).map(simpler_forms).unwrap_or_default();
        forms.into_iter().any(|form| self.replace(index, form))
    }

    /// Moves what lies in a directory one level up, and gives long names short ones.
    fn simplify_paths(&mut self) -> bool {
        let mut simpler = false;
        for directory in self.all_paths() {
            simpler |= self.change_paths(|path| move_up(path, &directory));
        }
        let names = |steps: &Self| -> BTreeSet<Vec<u8>> {
            steps.all_paths().into_iter().flat_map(|path| path.0).collect()
        };
        for name in names(self).into_iter().filter(|name| name.len() > 1) {
            let used = names(self);
            let Some(short) = (b'a'..=b'z').find(|letter| !used.contains(&vec![*letter])) else {
                break;
            };
            simpler |= self.change_paths(|path| {
                path.0.iter_mut().filter(|n| **n == name).for_each(|n| *n = vec![short]);
            });
        }
        simpler | self.merge_paths() | self.name_slots()
    }

    /// Lets steps name by its path what a slot holds: the hold may go then.
    fn name_slots(&mut self) -> bool {
        let hold = |step: &Step| {
            let Step::Hold { path, slot } = step else { return None };
            Some((Target::Slot(*slot), Target::Path(path.clone())))
        };
        let holds: Vec<_> = self.steps.iter().filter_map(hold).collect();
        let mut simpler = false;
        for (slot, path) in holds {
            let mut candidate = self.steps.clone();
            let targets = candidate.iter_mut().flat_map(Step::targets_mut);
            targets.filter(|target| **target == slot).for_each(|target| target.clone_from(&path));
            simpler |= candidate != self.steps && self.accept(candidate);
        }
        simpler
    }

    /// Lets steps name another path of the sequence instead of theirs, which then has one path less:
    /// names that only lead to each other fall together.
    fn merge_paths(&mut self) -> bool {
        let mut simpler = false;
        for path in self.all_paths().into_iter().rev() {
            let others = self.all_paths();
            simpler |= others.iter().any(|other| {
                let other_path = |named: &mut Path| {
                    if *named == path {
                        named.clone_from(other);
                    }
                };
                *other != path && self.change_paths(other_path)
            });
        }
        simpler
    }

    fn all_paths(&self) -> BTreeSet<Path> {
        let mut steps = self.steps.clone();
        let paths = steps.iter_mut().flat_map(Step::paths_mut);
        paths.map(|path| path.clone()).collect()
    }

    fn change_paths(&mut self, change: impl Fn(&mut Path)) -> bool {
        let mut candidate = self.steps.clone();
        candidate.iter_mut().flat_map(Step::paths_mut).for_each(change);
        candidate != self.steps && self.accept(candidate)
    }

    fn replace(&mut self, index: usize, form: Step) -> bool {
        let mut candidate = self.steps.clone();
        if let Some(step) = candidate.get_mut(index) {
            *step = form;
        }
        self.accept(candidate)
    }
}

/// What lies in the directory comes to lie beside it.
fn move_up(path: &mut Path, directory: &Path) {
    let depth = directory.0.len();
    if depth > 0 && path.0.len() > depth && path.0.starts_with(&directory.0) {
        path.0.remove(depth - 1);
    }
}

/// Steps that do less than this one; none is its own simpler form's simpler form.
fn simpler_forms(step: &Step) -> Vec<Step> {
    let mut forms = Vec::new();
    if let Step::Create { path, new } = step {
        let mut plain = new.clone();
        (plain.mode, plain.uid, plain.gid) = (0o644, 0, 0);
        plain.target.truncate(1);
        forms.push(Step::Create { path: path.clone(), new: plain });
    }
    forms.extend((*step == Step::Remount).then_some(Step::Die));
    forms.extend((*step == Step::Die).then_some(Step::Compare));
    let text = step.to_string();
    let words: Vec<&str> = text.split(' ').collect();
    for (index, word) in words.iter().enumerate().filter(|(_, word)| word.contains('=')) {
        let simpler = match number_of(word) {
            Some(("fill", number)) => vec![number.min(1)],
            Some((_, number)) => simpler_numbers(number),
            None => Vec::new(),
        };
        let key = word.split('=').next().unwrap_or_default();
        let others = simpler.into_iter().map(|number| format!("{key}={number}"));
        // Some words may be missing.
        for other in others.chain([String::new()]) {
            let mut words = words.clone();
            words.splice(index..=index, [&*other]);
            forms.extend(words.join(" ").parse::<Step>());
        }
    }
    forms.retain(|form| form != step);
    forms
}

/// Smaller and rounder numbers, the simplest first.
fn simpler_numbers(number: u64) -> Vec<u64> {
    let page = number / 4096 * 4096;
    let line = number / 64 * 64;
    let mut numbers = vec![0, 1, number / 2, page, line, number.saturating_sub(1)];
    numbers.retain(|simpler| *simpler < number);
    numbers.dedup();
    numbers
}
