//! Repairs of damaged pools, recorded to be mutated: those of a list that between them reach every call
//! of `pm` that a repair makes.

use std::sync::Arc;

use novale_core::Form;
use novale_model::{Atime, Model};

use super::key::Keyed;
use super::recording::{Act, BEHIND_REPAIR, Expected, Pool, form_name};
use super::trial::Stretch;
use crate::crash::{Allowed, Hardware};
use crate::diff::now_ns_at;
use crate::images::{CutRepair, Image, Pools, RepairTask};

/// The list: a line each, `safe` or `salvage` and a recipe.
const LIST: &str = include_str!("../../corpus/repairs.txt");

/// The repairs of the list.
///
/// # Errors
/// A line that is none.
pub(super) fn tasks() -> Result<Vec<RepairTask>, String> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::parse).collect()
}

/// Makes a repair: the damaged pool, and what was done to it; `None` where that came to no sound
/// end, as when the seed of a wound meets another structure than it did.
///
/// # Errors
/// What the machine says.
pub(super) fn record(
    task: &RepairTask,
    pools: &mut Pools,
) -> Result<Option<(Stretch, Act)>, String> {
    let slots = Image::new(pools, &task.recipe)?.bytes()?;
    let Some(repair) = CutRepair::record(&slots, task.effort)? else { return Ok(None) };
    let expected = |pool| Expected { states: Allowed { states: Vec::new() }, pool };
    let model = Arc::new(Model::new(0o755, 0, 0, 0, Atime::Noatime));
    let act = Act {
        name: format!("the {:?} repair of {}", task.effort, task.recipe),
        keyed: Keyed::new(repair.events.clone(), BEHIND_REPAIR, form_name(Form::Auto)),
        behind_death: false,
        during: expected(Pool::Used),
        after: expected(Pool::Closed),
        models: [model.clone(), model],
        now_ns: now_ns_at(0),
    };
    Ok(Some((Stretch::of_repair(Hardware::with(slots), repair), act)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::mutants::needless::why_unreached;
    use crate::mutants::sites::calls_in_core;

    #[test]
    fn the_list_reaches_every_call_of_a_repair() {
        let mut pools = Pools::default();
        let mut reached = BTreeSet::new();
        for task in tasks().unwrap() {
            let Some((_, act)) = record(&task, &mut pools).unwrap() else { continue };
            reached.extend(act.keyed.keys.iter().map(|key| (key.site.file, key.site.line)));
        }
        let calls = calls_in_core().unwrap();
        assert!(calls.iter().any(|call| call.file.starts_with("offline/repair")));
        for call in calls {
            let file = format!("crates/core/src/{}", call.file.display());
            let is_met = reached.iter().any(|(met, line)| *met == file && *line == call.line);
            let is_due = call.file.starts_with("offline/repair") && why_unreached(&call).is_none();
            assert!(is_met || !is_due, "not reached: {call:?}");
        }
    }
}
