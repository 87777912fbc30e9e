//! What must be true of a pool that processes work on: what a worker had acknowledged is there, and
//! once all have gone, the pool is sound.

use novale_core::{Ctx, FileKind, Fs, Ino, NewInode, Node};
use novale_model::{Atime, Model, Tree};
use novale_pm::PmOptions;

use super::field::{Field, Home};
use super::mounted::Daemon;
use super::worker::steps;
use crate::crash::probe_below;
use crate::diff::{check_opened, check_pool, now_ns_at, open_pool, snapshot};
use crate::workload::{Action, Session, Step, run_step};

fn ctx() -> Ctx {
    Ctx { now_ns: now_ns_at(0), hint: 0 }
}

pub(super) fn make_directory(fs: &Fs, name: &[u8]) -> Result<(), String> {
    let kind = FileKind::Directory;
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.create(&ctx(), Node::ROOT, name, &new).map(drop).map_err(|why| why.to_string())
}

fn home<'f>(fs: &'f Fs, name: &str) -> Result<Home<'f>, String> {
    let attr = fs.lookup(&ctx(), Node::ROOT, name.as_bytes()).map_err(|why| why.to_string())?;
    Ok(Home::new(fs, attr.ino))
}

/// Compares a worker's directory with the model; says whether the operation in flight was found done.
pub(super) fn judge(
    fs: &Fs,
    name: &str,
    seed: u64,
    (begun, done): (u64, u64),
) -> Result<bool, String> {
    let mut model = Model::new(0o755, 0, 0, now_ns_at(0), Atime::Noatime);
    let mut session = Session::default();
    let mut before = None;
    let (mut last, mut stores) = (String::new(), false);
    for (index, step) in (1..=begun).zip(steps(seed)) {
        if index == done + 1 {
            // Nothing that a process has stored goes with it.
            let found = Tree::of(&model).map_err(|why| why.to_string())?;
            model.turn_out(&found, true);
            before = Some(model.clone());
            last = step.to_string();
            stores = matches!(step, Step::On { action: Action::Store { .. }, .. });
        }
        let now_ns = now_ns_at(usize::try_from(index).unwrap_or(usize::MAX));
        run_step(&mut model, &mut session, &step, now_ns);
    }
    // What is in flight may be there in part where it changes a file in place. A store to a mapping
    // gives the page its place first, with the file's times, and has the bytes after that.
    let in_part = before.as_ref().map(|before| visible(&before.becoming(&model)));
    let placed = before.as_ref().filter(|_| stores).map(|before| visible(&model.becoming(before)));
    let in_part: Vec<Tree> = in_part.into_iter().chain(placed).collect::<Result<_, _>>()?;
    let after = visible(&model)?;
    let mut home = home(fs, name)?;
    let found = snapshot(&mut home, now_ns_at(0)).map_err(|why| format!("{name}: {why}"))?;
    let is_done = after == found && in_part.first().is_some_and(|before| *before != found);
    if after == found || in_part.iter().any(|state| state.allows(&found)) {
        return Ok(is_done);
    }
    let at = format!("{name}, seed {seed}, {done} operations done, {begun} begun ({last})");
    let texts: Vec<String> = in_part
        .iter()
        .chain([&after])
        .map(|tree| tree.difference(&found, ("expected", "found")))
        .collect();
    Err(format!("{at}:\n{}", texts.join("\nnor:\n")))
}

fn visible(model: &Model) -> Result<Tree, String> {
    let mut model = model.clone();
    model.release_all();
    Tree::of(&model).map_err(|why| why.to_string())
}

pub(super) fn empty_and_remove(fs: &Fs, name: &str) -> Result<(), String> {
    probe_below(&mut home(fs, name)?, true, now_ns_at(0))
        .map_err(|why| format!("{name}, in use: {why}"))?;
    fs.rmdir(&ctx(), Node::ROOT, name.as_bytes()).map_err(|why| format!("{name}: {why}"))
}

/// The last client closes the pool; then it must be sound, and what it holds as it was.
pub(super) fn close_and_check(
    fs: Fs,
    field: &Field,
    daemon: Option<&mut Daemon>,
) -> Result<(), String> {
    let all = |fs: &Fs| snapshot(&mut Home::new(fs, Ino::ROOT), now_ns_at(0));
    let before = all(&fs)?;
    fs.settle_dead().map_err(|why| why.to_string())?;
    let daemon = daemon.and_then(|daemon| daemon.is_alive().then_some(daemon));
    let (clients, expected) = (fs.clients(), 1 + u32::from(daemon.is_some()));
    if clients != expected {
        return Err(format!("{clients} clients are there, not {expected}"));
    }
    fs.close().map_err(|why| format!("close: {why}"))?;
    // Its locks go with it.
    drop(fs);
    if let Some(daemon) = daemon {
        daemon.unmount()?;
    }
    let pm = field.pm(&PmOptions::default())?;
    let report = novale_core::inspect(&pm).map_err(|why| why.to_string())?;
    if !report.clean {
        return Err("closed, but not clean".to_owned());
    }
    check_pool(&pm)?;
    let fs = open_pool(pm, novale_core::Form::Auto, now_ns_at(1))?;
    check_opened(&fs)?;
    let after = all(&fs)?;
    if after != before {
        return Err(format!("opened again:\n{}", before.difference(&after, ("before", "after"))));
    }
    fs.close().map_err(|why| format!("close: {why}"))
}
