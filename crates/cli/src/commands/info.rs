//! `novale info`: what a pool says of itself, and who uses it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use novale_core::{Mode, PoolInfo, SlotLines, UpdatePolicy};
use novale_layout::RoFeature;
use serde::Serialize;
use uuid::Uuid;

use crate::base::args::InfoArgs;
use crate::base::out::on_one_line;
use crate::base::size::show_size;
use crate::base::words::of_stopped;
use crate::commands::set;
use crate::holders::ask;
use crate::holders::facts::Facts;
use crate::holders::held_slots::LeftOpen;
use crate::holders::holder;
use crate::holders::patience::patiently;
use crate::pools::memory;
use crate::pools::remaining::{self, SlotState};
use crate::pools::slots::{self, Found, page_bytes};

/// What stands before the number of what only a newer program knows.
const UNKNOWN: &str = "unknown";

/// The facts, as JSON shows them.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, by name in JSON")]
struct PoolFacts {
    uuid: String,
    format_version: u32,
    created_ns: i64,
    lanes: u32,
    session: u32,
    clean: bool,
    /// Bytes that were only buffered may not be in the pool: its clients were killed, or could not write them back.
    buffered_left: bool,
    bad_copies: Vec<String>,
    features_compat: u64,
    features_ro_compat: u64,
    features_incompat: u64,
    used_by: Option<u32>,
    /// A process of another pid namespace has it open.
    used_elsewhere: bool,
    mounted_at: Vec<String>,
    /// All processes that have it open for others to join.
    clients: Vec<u32>,
    /// Those of them that were stopped (`SIGSTOP`, Ctrl-Z) in the middle of an operation.
    stopped: Vec<u32>,
    /// False for a mount whose daemon does not answer.
    answers: bool,
    /// Whether what is acknowledged survives a power cut.
    survives_power_cuts: bool,
    /// Which form commits take, where somebody has it mounted.
    commits: Option<String>,
    /// Which methods writes take, as `--method` names them.
    method: Option<String>,
    /// How many bytes `lawn` writes as one.
    lawn_slot: Option<u32>,
    /// When writes become durable, in words; none where all are when they return.
    mode: Option<String>,
    /// The memory that is emulated, in words.
    device: Option<String>,
    bytes_free: Option<u64>,
    inodes: Option<u64>,
    /// Which methods writes take where neither a file nor a mount says so.
    default_method: String,
    /// When writes become durable, likewise.
    default_mode: String,
    /// A slot that is lost, and whose place is being given to another.
    given_up: Option<u8>,
    /// Slots that can't be used, and why, in words.
    left_out: Vec<String>,
    slots: Vec<SlotFacts>,
}

#[derive(Debug, Serialize)]
struct SlotFacts {
    index: u8,
    uuid: String,
    /// None of one that is missing.
    path: Option<String>,
    bytes: u64,
    /// What memory it is in.
    memory: Option<&'static str>,
    state: SlotState,
    /// It has failed since the pool was mounted.
    has_failed: bool,
}

/// What is known of a pool of which a slot has failed under a mount, as JSON shows it.
#[derive(Debug, Serialize)]
struct FailingFacts {
    used_by: u32,
    mounted_at: String,
    slots: Vec<FailingSlot>,
}

#[derive(Debug, Serialize)]
struct FailingSlot {
    index: u8,
    path: String,
    has_failed: bool,
}

pub(crate) fn run(args: &InfoArgs) -> Result<()> {
    let paths: Vec<&Path> = args.slots.iter().map(PathBuf::as_path).collect();
    patiently(&paths, || say_all(args))
}

/// What is said where no pool is found: of files, since a pool may lie in a mount, or of a slot that fails.
fn say_other(args: &InfoArgs, failing: Option<FailingFacts>, error: anyhow::Error) -> Result<()> {
    match (set::chosen(&args.slots)?, failing) {
        (Some(files), _) => set::show(&files, args.json),
        (None, Some(facts)) => show_failing(&facts, args.json),
        (None, None) => Err(error),
    }
}

fn say_all(args: &InfoArgs) -> Result<()> {
    if args.slots.iter().all(|path| is_file(path))
        && let Some(files) = set::chosen(&args.slots)?
    {
        return set::show(&files, args.json);
    }
    let found = match slots::find(&args.slots) {
        Ok(found) => found,
        Err(error) => {
            refuse_both(&args.slots)?;
            let failing = failing(&args.slots);
            let remaining = failing.is_none().then(|| remaining::find(&args.slots).ok()).flatten();
            let Some(found) = remaining else { return say_other(args, failing, error) };
            found
        }
    };
    let facts = facts(&found)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&facts)?)?;
    } else {
        show(&facts, memory::survives(&found.memory))?;
    }
    Ok(())
}

/// Whether a path is of a file in a mount that is no slot. It is not mapped: its length is its writers', and its
/// own pages may be a direct program's.
fn is_file(path: &Path) -> bool {
    set::is_in_mount(path) && !slots::begins_as_slot(path)
}

/// Refuses slots and files in mounts together: the files would be taken for slots that were cut off.
fn refuse_both(paths: &[PathBuf]) -> Result<()> {
    match paths.iter().find(|path| is_file(path)) {
        Some(file) if !paths.iter().all(|path| is_file(path)) => bail!(
            "{}: in a mount, and no slot: name the slots of a pool, or files in mounts, and not both",
            file.display()
        ),
        _ => Ok(()),
    }
}

/// What the daemon of a mount says whose pool can't be read from outside, for a slot of it has failed.
fn failing(slots: &[PathBuf]) -> Option<FailingFacts> {
    for slot in slots {
        let Some((mount, facts)) = ask::facts_of_pool(slot) else { continue };
        if facts.failed_slots.is_empty() {
            continue;
        }
        let failed = |index| facts.failed_slots.contains(&index);
        let slots = (0..).zip(&facts.slots);
        let slots = slots.map(|(index, path)| FailingSlot {
            index,
            path: path.clone(),
            has_failed: failed(index),
        });
        return Some(FailingFacts {
            used_by: facts.pid,
            mounted_at: mount.target.display().to_string(),
            slots: slots.collect(),
        });
    }
    None
}

fn show_failing(facts: &FailingFacts, json: bool) -> Result<()> {
    if json {
        return say!("{}", serde_json::to_string_pretty(facts)?);
    }
    say!("state     in use by process {}; it goes on without what has failed", facts.used_by)?;
    say!("mounted   {}", on_one_line(&facts.mounted_at))?;
    for FailingSlot { index, path, has_failed } in &facts.slots {
        say!("slot {index:<4} {path}{}", failed_word(*has_failed))?;
    }
    Ok(())
}

/// The methods that a pool says, by name, or by their number where only a newer program knows them.
fn default_method(info: &PoolInfo) -> String {
    match (info.update, Mode::without(info.default_policy)) {
        (Some(known), _) => known.name().to_owned(),
        (None, 0) => UpdatePolicy::default().name().to_owned(),
        (None, number) => format!("{UNKNOWN} method {number}"),
    }
}

/// The same of the mode.
fn default_mode(info: &PoolInfo) -> String {
    match (info.mode, Mode::number_of_bits(info.default_policy)) {
        (Some(known), _) => known.name().to_owned(),
        (None, 0) => Mode::default().name().to_owned(),
        (None, number) => format!("{UNKNOWN} mode {number}"),
    }
}

fn failed_word(has_failed: bool) -> &'static str {
    if has_failed {
        "  has failed: what lies there is lost, and nothing new is put there"
    } else {
        ""
    }
}

/// The processes that use the pool, as far as that can be seen.
fn clients(found: &Found) -> Vec<u32> {
    found.arena().and_then(|arena| Ok(arena.live_clients()?)).unwrap_or_default()
}

fn facts(found: &Found) -> Result<PoolFacts> {
    let info = &found.info;
    let first = found.paths.first().map(PathBuf::as_path);
    let mounted = first.map_or_else(|| Ok(Vec::new()), holder::mounts_of)?;
    let used_by = first.and_then(holder::holder).map(|process| process.pid);
    let said = match (used_by, mounted.first()) {
        (Some(_), Some(mount)) => ask::ask(mount, ask::ANSWER_MAX).map(|said| {
            let failed = said.facts.as_ref().map(|facts| facts.failed_slots.clone());
            let lawn_slot = said.facts.as_ref().map(|facts| facts.lawn_slot);
            let words = |facts: Facts| [facts.commits, facts.method, facts.mode, facts.device];
            (said.space, said.facts.map(words), failed.unwrap_or_default(), lawn_slot)
        }),
        (None, _) => Ok((slots::space(found), None, Vec::new(), None)),
        (Some(_), None) => Ok((None, None, Vec::new(), None)),
    };
    let (answers, (space, words, failed, lawn_slot)) = (said.is_ok(), said.unwrap_or_default());
    let words = words.unwrap_or_default().map(|word| Some(word).filter(|word| !word.is_empty()));
    let [commits, method, mode, device] = words;
    let [features_compat, features_ro_compat, features_incompat] = info.features;
    let slots = found.slots().map(|(slot, there)| SlotFacts {
        memory: there.map(|(_, memory)| memory::word(memory)),
        has_failed: failed.contains(&slot.index),
        state: match there {
            None => found.state_of(slot.index),
            Some(_) if failed.contains(&slot.index) => SlotState::Failed,
            Some(_) if slot.heir.is_some() => SlotState::Replaced,
            Some(_) if slot.is_leaving => SlotState::Leaving,
            Some(_) => SlotState::Ok,
        },
        index: slot.index,
        uuid: Uuid::from_bytes(slot.uuid).to_string(),
        path: there.map(|(path, _)| path.display().to_string()),
        bytes: page_bytes(slot.pages),
    });
    let clients = clients(found);
    Ok(PoolFacts {
        uuid: Uuid::from_bytes(info.uuid).to_string(),
        format_version: info.version,
        created_ns: info.created_ns,
        lanes: info.lanes,
        session: info.session,
        clean: info.clean,
        buffered_left: clients.is_empty() && found.may_have_left_behind(),
        bad_copies: info.bad_copies.clone(),
        features_compat,
        features_ro_compat,
        features_incompat,
        survives_power_cuts: found.memory.iter().all(|slot| slot.survives_power_cuts()),
        used_by,
        used_elsewhere: used_by.is_none()
            && (!info.clean || !mounted.is_empty())
            && first.is_some_and(holder::is_held),
        clients,
        stopped: found.arena().and_then(|arena| Ok(arena.stopped_clients()?)).unwrap_or_default(),
        answers,
        mounted_at: mounted.iter().map(|mount| mount.target.display().to_string()).collect(),
        commits,
        method,
        lawn_slot: lawn_slot.filter(|bytes| *bytes != 0),
        mode,
        device,
        bytes_free: space.map(|space| page_bytes(space.pages_available)),
        inodes: space.map(|space| space.inodes),
        default_method: default_method(info),
        default_mode: default_mode(info),
        given_up: info.given_up,
        left_out: found.left_out.iter().map(ToString::to_string).collect(),
        slots: slots.collect(),
    })
}

fn show(facts: &PoolFacts, survives: &str) -> Result<()> {
    say!("pool      {}", facts.uuid)?;
    say!("format    version {}", facts.format_version)?;
    say!("lanes     {}", facts.lanes)?;
    say!(
        "session   {}: it rises with each mount for writing, and with each unmount",
        facts.session
    )?;
    say!("state     {}", state(facts))?;
    facts.given_up.map_or(Ok(()), remaining::say_given_up)?;
    say!("survives  {survives}")?;
    show_defaults(facts)?;
    if facts.features_ro_compat != 0 {
        say!("features  {}", features(facts.features_ro_compat))?;
    }
    for target in &facts.mounted_at {
        let how = match (facts.used_by, facts.answers) {
            (None, _) if facts.used_elsewhere => " (its daemon is in another pid namespace)",
            (None, _) => " (dead: its daemon is gone)",
            (Some(_), false) => " (its daemon does not answer)",
            (Some(_), true) => "",
        };
        say!("mounted   {}{how}", on_one_line(target))?;
    }
    if facts.clients.len() > 1 {
        let pids: Vec<String> = facts.clients.iter().map(ToString::to_string).collect();
        say!("clients   {}: processes {}", pids.len(), pids.join(" "))?;
    }
    for pid in &facts.stopped {
        say!("stopped   {}", of_stopped(*pid))?;
    }
    if let Some(method) = &facts.method {
        // Slots are of `lawn` alone: of another mount they are told where somebody chose their size.
        let is_told = *method == UpdatePolicy::Lawn.name();
        let usual = SlotLines::default().bytes();
        match facts.lawn_slot.filter(|bytes| is_told || *bytes != usual) {
            Some(bytes) => say!("writes    {method}; lawn in slots of {bytes} bytes")?,
            None => say!("writes    {method}")?,
        }
    }
    if let Some(mode) = &facts.mode {
        say!("mode      {mode}")?;
    }
    if let Some(commits) = &facts.commits {
        say!("commits   {commits}")?;
    }
    if let Some(device) = &facts.device {
        say!("memory    {device}")?;
    }
    for bad in &facts.bad_copies {
        say!("damaged   {bad}")?;
    }
    if let (Some(free), Some(inodes)) = (facts.bytes_free, facts.inodes) {
        // How much those have that are not named is not known, and what is free may lie there.
        let is_whole = facts.slots.iter().all(|slot| slot.path.is_some());
        let bytes = facts.slots.iter().map(|slot| slot.bytes).sum();
        let all = if is_whole { format!(" of {}", show_size(bytes)) } else { String::new() };
        say!("free      {}{all}, {inodes} inodes in use", show_size(free))?;
    }
    for left_out in &facts.left_out {
        say!("left out  {left_out}")?;
    }
    facts.slots.iter().try_for_each(show_slot)
}

/// How writes go where nobody says so.
fn show_defaults(facts: &PoolFacts) -> Result<()> {
    let (method, mode) = (&facts.default_method, &facts.default_mode);
    if facts.method.is_none() {
        say!("writes    {method}, {mode}, where neither a file nor a mount says so")?;
    }
    for unknown in [method, mode].into_iter().filter(|word| word.starts_with(UNKNOWN)) {
        let (auto, strict) = (UpdatePolicy::default().name(), Mode::default().name());
        say!("          {unknown} is of a newer version: this one takes {auto}, {strict}")?;
    }
    Ok(())
}

fn show_slot(slot: &SlotFacts) -> Result<()> {
    let (Some(path), Some(memory)) = (&slot.path, slot.memory) else {
        return say!("slot {:<4} {}", slot.index, slot.state.word());
    };
    let bytes = show_size(slot.bytes);
    let more = match slot.state {
        SlotState::Leaving => {
            "  is leaving: nothing new is put there; `novale slot status` says when it goes"
        }
        SlotState::Replaced => {
            "  is being replaced: the pool is only read until the same call of `novale slot` has ended that"
        }
        SlotState::Ok
        | SlotState::Failed
        | SlotState::Waiting
        | SlotState::Missing
        | SlotState::Damaged
        | SlotState::Stale
        | SlotState::Foreign => failed_word(slot.has_failed),
    };
    say!("slot {:<4} {bytes}  {path}  {}  {memory}{more}", slot.index, slot.uuid)
}

/// What older programs are kept from writing for.
fn features(bits: u64) -> String {
    let known = RoFeature::ALL.into_iter().filter(|feature| bits & feature.bit() != 0);
    let known = known.map(|feature| match feature {
        RoFeature::Xattrs => "extended attributes".to_owned(),
        RoFeature::Trees => "directory trees".to_owned(),
        RoFeature::MovedPages => "moved pages".to_owned(),
        RoFeature::Appends => "appends in place".to_owned(),
        RoFeature::Redo => "fine-grained logging".to_owned(),
        RoFeature::Pairs => "paired pages".to_owned(),
        RoFeature::Sources => "zero-copy logging".to_owned(),
        RoFeature::Slots => "slots of shared pages".to_owned(),
        RoFeature::Unwritten => "unwritten inodes".to_owned(),
    });
    let unknown = Some(bits & !RoFeature::KNOWN).filter(|unknown| *unknown != 0);
    let all: Vec<String> =
        known.chain(unknown.map(|bits| format!("unknown ({bits:#x})"))).collect();
    all.join(", ")
}

fn state(facts: &PoolFacts) -> String {
    match facts.used_by {
        Some(pid) => format!("in use by process {pid}: what is shown may change"),
        None if facts.used_elsewhere => {
            "in use by a process of another pid namespace: what is shown may change".to_owned()
        }
        None if facts.slots.first().is_some_and(|first| first.path.is_none()) => {
            "not known: slot 0 says it".to_owned()
        }
        None if facts.clean => "closed clean".to_owned(),
        None if facts.given_up.is_some() => "not closed clean".to_owned(),
        None => LeftOpen::NotClean { has_buffered: facts.buffered_left }.in_words().to_owned(),
    }
}
