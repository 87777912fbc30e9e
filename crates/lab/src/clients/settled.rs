//! What a survivor does for one client that died, event by event, for the one who wants to take some of
//! it away.

use novale_model::Model;

use super::death::{Death, DeathOptions, shown};
use crate::crash::{Event, Hardware, State};
use crate::diff::{OnFs, now_ns_at, panic_text};
use crate::workload::{Session, Step, run_step};

/// A death that a survivor settled for.
#[derive(Debug)]
pub struct Settled {
    /// The memory after the death.
    pub before: Hardware,
    /// The settling, then what the survivor did next.
    pub acts: Vec<SettledAct>,
}

/// What a survivor did.
#[derive(Debug)]
pub struct SettledAct {
    /// The step; that of the dead client for the settling.
    pub step: Step,
    /// What it did to the pool.
    pub events: Vec<Event>,
    /// What a crash in the middle may show.
    pub during: Vec<State>,
    /// What one after it shows.
    pub after: State,
    /// The model after it.
    pub model: Model,
}

/// Lets a client die before event `point` of `victim`, another settle for it and do `then`; `None` where
/// the victim has no such event.
///
/// # Errors
/// What was not as it should be, without any power cut.
pub fn settle_once(
    setup: &[Step],
    (victim, point): (&Step, u64),
    then: &[Step],
    options: &DeathOptions,
) -> Result<Option<Settled>, String> {
    let mut death = Death::new(setup, options)?;
    let now_ns = now_ns_at(setup.len() + 1);
    if death.start(victim, (options.points, point), now_ns)?.is_none() {
        return Ok(None);
    }
    let earlier = death.model.clone();
    let allowed = death.allowed(victim, now_ns)?;
    death.recorded();
    death.hardware.forget(None);
    let before = death.hardware.clone();
    let fs = death.machine.fs().map_err(|why| format!("{why:?}"))?;
    // By a thread that does nothing else: what it has not fenced nobody fences for it.
    let settled = std::thread::scope(|scope| scope.spawn(|| fs.settle_dead()).join())
        .map_err(|payload| panic_text(payload.as_ref()))?;
    settled.map_err(|why| format!("settling: {why}"))?;
    let events = death.recorder.take();
    if death.look(&allowed)?.name == "before" {
        death.model = earlier;
    }
    let during = allowed.states;
    let after = shown("after", &death.model)?;
    let model = death.model.clone();
    let mut acts = vec![SettledAct { step: victim.clone(), events, during, after, model }];
    let (mut session, mut of_model) = (Session::default(), Session::default());
    for (index, step) in (setup.len() + 2..).zip(then) {
        let first = shown("after", &death.model)?;
        run_step(&mut death.machine, &mut session, step, now_ns_at(index));
        run_step(&mut death.model, &mut of_model, step, now_ns_at(index));
        let (events, after) = (death.recorder.take(), shown("after", &death.model)?);
        let (during, model) = (vec![first.named("before"), after.clone()], death.model.clone());
        acts.push(SettledAct { step: step.clone(), events, during, after, model });
    }
    Ok(Some(Settled { before, acts }))
}
