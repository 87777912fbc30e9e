//! Which mutants have the right types: the compiler is asked, and what its errors name is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::mutant::{Mutant, Place};
use super::tree::{Sources, write};

/// Each time some are dropped; the second half drops all that is near an error.
const ROUNDS: usize = 16;

/// Writes the copy at `tree` with all mutants but those of `dropped`, to which it adds.
pub(super) fn drop_untyped(
    root: &Path,
    tree: &Path,
    sources: &Sources,
    dropped: &mut BTreeSet<usize>,
) -> anyhow::Result<()> {
    for round in 0..ROUNDS {
        let places = write(root, tree, sources, |id| !dropped.contains(&id))?;
        let errors = errors(tree)?;
        if errors.is_empty() {
            return Ok(());
        }
        let before = dropped.len();
        for error in &errors {
            let of_file = places.get(&error.path).map_or(&[][..], Vec::as_slice);
            let mut found = named(of_file, error, round >= ROUNDS / 2);
            if found.is_empty() {
                found = left_out_near(of_file, error, &sources.mutants);
            }
            dropped.extend(found);
        }
        eprintln!("check: {} errors, {} mutants of a wrong type", errors.len(), dropped.len());
        if dropped.len() == before {
            let (path, message) = errors.first().map(|e| (&e.path, &e.message)).unzip();
            bail!("{path:?} does not build, and no mutant is why: {message:?}");
        }
    }
    bail!("the copy does not build after {ROUNDS} rounds")
}

/// Mutants that an error speaks of: in whose own text it is, or else the innermost around it; or all
/// around it and in it.
fn named(places: &[Place], error: &BuildError, all: bool) -> BTreeSet<usize> {
    let meets = |place: &&Place| place.all.start < error.to && error.from < place.all.end;
    if all {
        return places.iter().filter(meets).map(|place| place.id).collect();
    }
    let own = |place: &&Place| place.own.start < error.to && error.from < place.own.end;
    let own: BTreeSet<usize> = places.iter().filter(own).map(|place| place.id).collect();
    if !own.is_empty() {
        return own;
    }
    let around = |place: &&Place| place.all.start <= error.from && error.to <= place.all.end;
    let inner = places.iter().filter(around).min_by_key(|place| place.all.len());
    let inside = || places.iter().filter(meets).map(|place| place.id).collect();
    inner.map_or_else(inside, |place| BTreeSet::from([place.id]))
}

/// Statements left out in the function where the error is: one of them may have moved or set what another
/// uses.
fn left_out_near(places: &[Place], error: &BuildError, mutants: &[Mutant]) -> BTreeSet<usize> {
    let of = |place: &Place| mutants.get(place.id - 1);
    let near = places.iter().min_by_key(|place| place.own.start.abs_diff(error.from));
    let function = near.and_then(of).map(|mutant| mutant.whole.clone());
    let left_out =
        |mutant: &Mutant| Some(&mutant.whole) == function.as_ref() && mutant.now.is_empty();
    places.iter().filter(|place| of(place).is_some_and(left_out)).map(|place| place.id).collect()
}

struct BuildError {
    path: String,
    from: usize,
    to: usize,
    message: String,
}

/// What the compiler says of core and arena, each error once for each place that it marks.
fn errors(tree: &Path) -> anyhow::Result<Vec<BuildError>> {
    let output = cargo(tree, "check")
        .args(["--lib", "-p", "novale-arena", "-p", "novale-core"])
        .args(["--features", "novale-core/seeded-bugs,novale-arena/watched-stores"])
        .output()
        .context("run cargo check")?;
    let mut errors = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { continue };
        let text = |of: &Value, key: &str| of.get(key)?.as_str().map(str::to_owned);
        let Some(message) = value.get("message") else { continue };
        if text(message, "level").as_deref() != Some("error") {
            continue;
        }
        let spans = message.get("spans").and_then(Value::as_array);
        for span in spans.into_iter().flatten() {
            if span.get("is_primary") != Some(&Value::Bool(true)) {
                continue;
            }
            let number = |key| usize::try_from(span.get(key)?.as_u64()?).ok();
            errors.push(BuildError {
                path: text(span, "file_name").unwrap_or_default(),
                from: number("byte_start").unwrap_or(0),
                to: number("byte_end").unwrap_or(0),
                message: text(message, "message").unwrap_or_default(),
            });
        }
    }
    if errors.is_empty() && !output.status.success() {
        bail!("cargo check: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(errors)
}

/// A command of cargo in the copy, whose messages are JSON.
pub(super) fn cargo(tree: &Path, command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = tree.with_file_name("build");
    cargo.args([command, "--quiet", "--offline", "--message-format", "json"]);
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target);
    cargo
}

/// Counts mutants by operator, for a look.
pub(super) fn by_operator(sources: &Sources, dropped: &BTreeSet<usize>) -> String {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (id, mutant) in (1..).zip(&sources.mutants) {
        let (kept, gone) = counts.entry(mutant.operator).or_default();
        *(if dropped.contains(&id) { gone } else { kept }) += 1;
    }
    let one = |(name, (kept, gone)): (&&str, &(usize, usize))| format!("{name} {kept} (-{gone})");
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}
