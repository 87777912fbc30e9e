//! Variations of a case: a few steps put in, left out, changed, or taken from another one.

use fastrand::Rng;

use super::workloads::Case;
use crate::crash::small_step;
use crate::workload::{Flavor, Generator, Step};

/// Changes of one variation at most.
const CHANGES_MAX: u32 = 4;

/// Steps that one change puts in at most.
const STEPS_NEW_MAX: usize = 4;

/// A case that differs from `case` in a few of the steps that are cut; `other` lends steps.
pub(super) fn vary(mut case: Case, other: Option<&Case>, seed: u64) -> Case {
    let mut random = Rng::with_seed(seed);
    case.options.seed = seed;
    for _ in 0..random.u32(1..=CHANGES_MAX) {
        change(&mut case, other, &mut random);
    }
    if random.u32(0..4) == 0 {
        case.options.many_threads = !case.options.many_threads;
    }
    if case.steps.len() <= case.options.from_step {
        case.options.from_step = 0;
    }
    case
}

fn change(case: &mut Case, other: Option<&Case>, random: &mut Rng) {
    let from = case.options.from_step.min(case.steps.len());
    let at = random.usize(from..=case.steps.len());
    match (random.u32(0..10), other) {
        (0..4, _) => {
            let (past, _) = case.steps.split_at(at);
            let flavor = Flavor::of_seed(random.u64(..));
            let mut generator = Generator::behind(random.u64(..), flavor, past);
            let count = random.usize(1..=STEPS_NEW_MAX);
            let steps = (0..count).map(|_| small_step(generator.step()));
            let steps: Vec<Step> = steps.collect();
            case.steps.splice(at..at, steps);
        }
        (4 | 5, _) => {
            let end = (at + random.usize(1..=STEPS_NEW_MAX)).min(case.steps.len());
            case.steps.drain(at..end);
        }
        (6, _) => {
            let step = case.steps.get(at).cloned();
            let to = random.usize(from..=case.steps.len());
            case.steps.splice(to..to, step);
        }
        (7, Some(other)) => {
            let first = random.usize(0..=other.steps.len());
            let lent = other.steps.iter().skip(first).take(2 * STEPS_NEW_MAX).cloned();
            let lent: Vec<Step> = lent.collect();
            case.steps.splice(at..at, lent);
        }
        _ => {
            if let Some(step) = case.steps.get_mut(at) {
                nudge(step, random);
            }
        }
    }
}

/// Other numbers in the same step.
fn nudge(step: &mut Step, random: &mut Rng) {
    let mut near = |number: u64| match random.u32(0..4) {
        0 => number.saturating_add(random.u64(0..10)).saturating_sub(5),
        1 => number / 4096 * 4096,
        2 => number.saturating_add(4096),
        _ => random.u64(0..20_000),
    };
    *step = step.with_numbers(|_, key, number| match key {
        "offset" | "from" | "to" | "apart" | "size" => near(number),
        "len" => near(number).min(20_000),
        _ => number,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{How, Workload};

    #[test]
    fn a_variation_differs_and_keeps_what_is_not_cut() {
        let How::Each(make) = Workload::named("pairs").unwrap().how else { panic!() };
        let (case, _) = make(5);
        let from = case.options.from_step;
        let mut different = 0;
        for seed in 0..200 {
            let varied = vary(case.clone(), Some(&make(77).0), seed);
            assert_eq!(varied, vary(case.clone(), Some(&make(77).0), seed));
            if varied.options.from_step == from {
                assert_eq!(varied.steps[..from], case.steps[..from]);
            }
            different += u32::from(varied.steps != case.steps);
        }
        assert!(different > 150, "{different} of 200 differ");
    }
}
