//! The daemon: a pool opened, mounted, served until a signal or an unmount, and closed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use novale_core::{Atime as CoreAtime, Ctx, Error, Fs, OpenOptions, OpenReport, Served};
use novale_fuse::{
    Atime, FuserTransport, Novale, Server, ServerConfig, Settings, ShutDown, start_thread,
};
use novale_pm::{Device, PmOptions};
use novale_policy::{Form, Placement};
use novale_posix::join::{self, ArenaFile, JoinError, Opening, arena_bytes};
use novale_posix::wall_clock_ns;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::base::args::{FormArg, MethodArg, ModeArg, PlacementArg};
use crate::base::out::{in_words, tell};
use crate::base::progress::{AllCpus, Bar, spin};
use crate::base::size::show_size;
use crate::base::voice::Voice;
use crate::base::words::{self, ForPrograms, of_stopped};
use crate::holders::facts::{Answer, Changing, Facts, slots_told};
use crate::holders::holder;
use crate::mounts::again::Turn;
use crate::mounts::mount::Request;
use crate::mounts::{again, background, empty, leaving};
use crate::pools::locked::PoolLock;
use crate::pools::slots::{self, Found};
use crate::pools::{memory, remaining};

const THREADS_MIN: usize = 4;
const THREADS_MAX: usize = 64;
/// Of a buffer: the least size that is of use.
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const GRACE_SECONDS: u64 = 10;
/// How often a daemon looks for clients that died.
const SETTLING_INTERVAL: Duration = Duration::from_secs(1);
/// How often wear is saved, at most.
const WEAR_INTERVAL: Duration = Duration::from_secs(30);
/// And for so many lines that reached the slots, at least.
const WEAR_LINES_MIN: u64 = 1 << 14;

/// What ends a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Signal,
    Unmounted,
}

pub(crate) fn run(request: &Request) -> Result<()> {
    // What ps shows; the daemon was started as /proc/self/exe.
    rustix::thread::set_name(c"novale").context("naming the process")?;
    let found = find(request, &without_going(request))?;
    if !request.args.quiet {
        memory::warn(&found.paths, &found.memory);
    }
    tell_bad_copies(request, &found);
    tell_left_elsewhere(&found)?;
    let is_unread = found.arena()?.is_unreadable();
    let Some((pool, turn)) = open(request, &found)? else { return Ok(()) };
    if is_unread {
        tell_unread(&found);
    }
    tell_unbuffered(request, &pool.fs);
    tell_recovery(pool.fs.opened(), request.words.options.read_only, found.is_whole());
    let voice = Arc::new(Voice::new(request.args.daemon && request.args.log.is_none()));
    let changing = Changing::default();
    let facts = facts(request, &found).answered(pool.fs.clone(), changing.clone());
    tell_served_too(&found, &pool.fs);
    // Of a pool of which some are missing nothing is told.
    let told = found.is_whole().then(|| slots_told(found.paths.clone(), pool.fs.clone()));
    let settings = settings(request, voice.clone(), (facts, told));
    let service = Arc::new(Novale::new(pool.fs.clone(), settings));
    let (events, next_event) = channel();
    forward_signals(events.clone())?;
    let config = ServerConfig {
        source: found.source(),
        target: request.target.clone(),
        options: request.words.options.clone(),
    };
    let acl = request.words.options.has_acls();
    let transport = FuserTransport { threads: threads(request), acl };
    let fs = pool.fs.clone();
    let on_end = move || {
        // The kernel gives the device's number to the next mount.
        fs.set_served(Some(Served { device: (0, 0), words: 0 }));
        events.send(Event::Unmounted).unwrap_or_default();
    };
    let server = match Server::start(service.clone(), &transport, &config, on_end) {
        Ok(server) => server,
        Err(error) => {
            service.close()?;
            return Err(error.into());
        }
    };
    serve(request, &pool, server.device());
    drop(turn);
    let event = begin(request, &pool, server.device(), (&voice, &changing))
        .and_then(|()| announce(request, &found, &server))
        .and_then(|()| wait(&next_event, &pool, &voice));
    let ended = end(server, request, event.as_ref().ok(), &voice);
    event.and(ended).inspect_err(|error| voice.send(&in_words(error)))?;
    let added = pool.fs.slots_added();
    drop((service, pool));
    let paths: Vec<PathBuf> = found.paths.into_iter().chain(added).collect();
    if !request.words.options.read_only && leaving::is_unfinished(&paths) {
        return finish(&request.target, &paths);
    }
    Ok(())
}

/// The slots that were given, less one that was emptied and goes now. A daemon that takes it out is waited for.
fn without_going(request: &Request) -> Vec<PathBuf> {
    if request.words.options.read_only {
        return request.slots.clone();
    }
    let lock = |pool: &[PathBuf]| match holder::lock(pool) {
        // Those who share the pool keep the slot until they have closed it.
        Err(_) if request.args.direct => Ok(None),
        lock => lock.map(Some),
    };
    leaving::finish(&request.slots, lock).unwrap_or_else(|error| {
        remark!("novale: a slot that was emptied stays: {}", in_words(&error));
        request.slots.clone()
    })
}

/// Takes out the slot that was emptied, in this process as another program: with the one that had the pool open
/// all that it had of it is gone, whichever thread it was.
fn finish(target: &Path, paths: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("novale").args(["slot", "finish", "--of"]);
    command.arg(target).arg("--").args(paths);
    Err(command.exec()).context("taking out the slot that was emptied")
}

/// Opens the pool, in this daemon's turn to mount it; none where another one has mounted it since the command looked,
/// which is shown instead.
fn open(request: &Request, found: &Found) -> Result<Option<(OpenPool, Turn)>> {
    let opened = if request.args.direct { share(request, found) } else { alone(request, found) };
    let pool = match opened {
        Ok(pool) => pool,
        Err(error) => {
            // It may be about to say that it serves it.
            drop(found.arena().and_then(|arena| Turn::take(&arena)));
            return if request.args.daemon && again::run(request)? {
                background::shown().map(|()| None)
            } else {
                Err(error)
            };
        }
    };
    // Before there is a mount, so that nobody takes this one for a program.
    serve(request, &pool, (0, 0));
    let turn = Turn::take(&pool.arena)?;
    if turn.is_served(request)? {
        pool.fs.close()?;
        return background::served().map(|()| None);
    }
    Ok(Some((pool, turn)))
}

/// Starts what the daemon does beside serving.
fn begin(
    request: &Request,
    pool: &OpenPool,
    device: (u32, u32),
    (voice, changing): (&Arc<Voice>, &Changing),
) -> Result<()> {
    write_back(pool.fs.clone(), voice.clone())?;
    let manner = empty::Manner {
        device,
        mapping: mapping(request),
        pace: empty::pace(request.args.pace),
        cold_after: empty::cold_after(request.args.cold_after)
            .filter(|_| !request.words.options.read_only),
    };
    empty::start(pool.fs.clone(), voice.clone(), changing.clone(), manner)
}

/// The pool; of one that is only read some slots may be missing.
fn find(request: &Request, slots: &[PathBuf]) -> Result<Found> {
    if !request.words.options.read_only {
        return remaining::find_whole(slots);
    }
    let found = remaining::find(slots)?;
    for slot in &found.left_out {
        let lost = ": what lies there can't be read (\"Input/output error\")";
        remark!("novale: {slot}{}", if slot.is_lost() { lost } else { "" });
    }
    Ok(found)
}

/// Waits for the end. Meanwhile it settles for clients of a shared pool that died with files open, since
/// nobody waits for those, and does what a keeper does.
fn wait(next_event: &Receiver<Event>, pool: &OpenPool, voice: &Voice) -> Result<Event> {
    let interval = if pool.shared { SETTLING_INTERVAL } else { WEAR_INTERVAL };
    let lines = pool.fs.wear().map_or(0, |lines| lines.iter().sum());
    let mut keeper = Keeper { saved: Instant::now(), lines };
    let mut told = Vec::new();
    loop {
        match next_event.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            event => return event.context("waiting for the end"),
        }
        if pool.shared
            && let Err(error) = pool.fs.settle_dead()
        {
            voice.say(&format!("settling for clients that died: {error}"));
        }
        told = tell_of_stopped(&pool.fs, &told, voice);
        keeper.tick(&pool.fs, voice);
    }
}

/// Says once of each client that was stopped at work that others may wait for it; which those are now.
fn tell_of_stopped(fs: &Fs, told: &[u32], voice: &Voice) -> Vec<u32> {
    let stopped = fs.stopped_clients();
    for pid in stopped.iter().filter(|pid| !told.contains(pid)) {
        voice.say(&format!("stopped: {}", of_stopped(*pid)));
    }
    stopped
}

/// Writes back, from time to time, what files have in slots of shared pages beyond what they may keep there,
/// and saves how far the pool's slots are worn, where that has changed: a line each, which wears them itself.
struct Keeper {
    saved: Instant,
    /// Lines that had reached all slots by then.
    lines: u64,
}

impl Keeper {
    fn tick(&mut self, fs: &Fs, voice: &Voice) {
        if self.saved.elapsed() < WEAR_INTERVAL {
            return;
        }
        self.saved = Instant::now();
        if let Err(error) = fs.write_slots_back(&Ctx { now_ns: wall_clock_ns(), hint: 0 }) {
            voice.say(&format!("writing back what files have in slots of shared pages: {error}"));
        }
        if let Err(error) = self.save_wear(fs) {
            voice.say(&format!("saving how far the slots are worn: {error}"));
        }
    }

    fn save_wear(&mut self, fs: &Fs) -> novale_core::Result<()> {
        let lines = fs.wear()?.iter().sum();
        if lines >= self.lines + WEAR_LINES_MIN {
            fs.save_wear()?;
            self.lines = lines;
        }
        Ok(())
    }
}

/// Starts to write back what is buffered, where anything may be, by a thread that ends with the pool.
fn write_back(fs: Arc<Fs>, voice: Arc<Voice>) -> Result<()> {
    if fs.mode_of_writes().is_none() {
        return Ok(());
    }
    let interval = Duration::from_millis(fs.buffer_rules().interval_ms.into());
    let pass = move || {
        let mut said = String::new();
        while fs.wait_for_low_buffer(interval).is_ok() {
            match write_back_once(&fs) {
                Ok(()) => said.clear(),
                Err(Error::Closed) => return,
                Err(error) => {
                    let now = format!("writing back: {error}");
                    if now != said {
                        voice.say(&now);
                    }
                    said = now;
                }
            }
        }
    };
    start_thread("novale-back", pass)?;
    Ok(())
}

fn write_back_once(fs: &Fs) -> Result<(), Error> {
    let written = fs.write_back_by_rules(&Ctx { now_ns: wall_clock_ns(), hint: 0 })?;
    written.failure.map_or(Ok(()), Err)
}

/// Says in the arena which mount this is, by its device number.
fn serve(request: &Request, pool: &OpenPool, device: (u32, u32)) {
    let options = &request.words.options;
    let words = ForPrograms::of(&request.args, options).bits(options.sync);
    pool.fs.set_served(Some(Served { device, words }));
    // Who has mapped a file by the mount of a daemon that died sees now that it can't give way to this one.
    pool.fs.wake_for_mappings();
}

/// How the pool is mounted.
fn facts(request: &Request, found: &Found) -> Facts {
    Facts {
        slots: found
            .slots()
            .map(|(_, there)| {
                there.map_or_else(String::new, |(path, _)| path.display().to_string())
            })
            .collect(),
        read_only: request.words.options.read_only,
        threads: threads(request),
        grace_seconds: grace_seconds(request),
        pace: empty::pace(request.args.pace),
        daemon_words: words::running(&request.args, &request.words.options),
        ..Facts::default()
    }
}

/// Says that the mount can be used: to the command that waits, or to the person.
fn announce(request: &Request, found: &Found, server: &Server) -> Result<()> {
    if request.args.daemon {
        return background::ready(request.args.log.as_deref());
    }
    let target = server.target().display();
    let _unheard = say!(
        "mounted {} on {target}; end it with Ctrl-C or `novale umount`",
        slots::shown(&found.paths)
    );
    Ok(())
}

fn end(server: Server, request: &Request, event: Option<&Event>, voice: &Voice) -> Result<()> {
    let seconds = grace_seconds(request);
    if event == Some(&Event::Signal) && !request.args.daemon {
        let _unheard = say!("unmounting; open files have {seconds} s");
    }
    let how = server.shut_down(Duration::from_secs(seconds))?;
    if how == ShutDown::CutOff {
        voice.say(&format!("files were still open after {seconds} s and were cut off"));
    }
    Ok(())
}

/// A pool that this daemon has open, alone or beside others.
struct OpenPool {
    fs: Arc<Fs>,
    arena: ArenaFile,
    shared: bool,
    /// Whether the arena is of use until the pool has been closed: to others, or for what is only buffered.
    stays: bool,
    /// Those of a pool that nobody else may use.
    _lock: Option<PoolLock>,
}

impl Drop for OpenPool {
    fn drop(&mut self) {
        // One that has not come to be served is left as it was found; after a panic the next opening recovers it.
        if !std::thread::panicking()
            && let Err(error) = self.fs.close()
            && !matches!(error, Error::Closed)
        {
            tell(&error.into());
        }
        if !self.stays || self.fs.is_pool_closed() {
            self.arena.remove().unwrap_or_else(|error| tell(&error.into()));
        }
    }
}

/// Opens the pool for the kernel alone, which may keep what it has read.
fn alone(request: &Request, found: &Found) -> Result<OpenPool> {
    let lock = holder::lock(&found.paths)?;
    let arena = found.arena()?;
    let clients = arena.live_clients()?;
    if !clients.is_empty() {
        bail!(
            "{} is in use by processes {clients:?}: mount it beside them with -o direct",
            slots::shown(&found.paths)
        );
    }
    let mut opening = opening(request)?;
    opening.pm.only = lock.files()?;
    let open = || spin("opening the slots", || found.open(opening.pm.clone()));
    if arena.has_left_behind()? {
        let is_written = arena.end_session_of_dead(open()?, opening.fs.read_only)?;
        tell_left_behind(found, is_written);
    }
    let pm = open()?;
    let bytes = opening.arena_bytes.unwrap_or_else(|| arena_bytes(&found.info));
    check_buffer(request.args.buffer, bytes)?;
    let stored = arena.stored_behind()?;
    let segment = arena.create(bytes)?;
    let bar = Bar::new();
    let fs =
        join::open_in(pm, (segment, &stored), &opening, &AllCpus, &|progress| bar.show(progress));
    let removed = |_: &JoinError| arena.remove().unwrap_or_default();
    let fs = fs.inspect_err(removed).with_context(|| slots::shown(&found.paths))?;
    let stays = fs.mode_of_writes().is_some() && !opening.fs.read_only;
    Ok(OpenPool { fs: Arc::new(fs), arena, shared: false, stays, _lock: Some(lock) })
}

/// The memory of this machine.
fn machine_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kb: u64 = total.split_whitespace().next()?.parse().ok()?;
    kb.checked_mul(1024)
}

/// Refuses a buffer that can hold nothing, or more than there is memory for.
fn check_buffer(asked: Option<u64>, arena_bytes: u64) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let memory = machine_bytes().unwrap_or(u64::MAX);
    let shown = show_size(asked);
    if asked < BUFFER_BYTES_MIN {
        bail!("a buffer of {shown} is too small: give {} or more", show_size(BUFFER_BYTES_MIN));
    }
    if asked > memory {
        bail!(
            "a buffer of {shown} does not fit into this machine's memory of {}",
            show_size(memory)
        );
    }
    if asked > arena_bytes {
        bail!(
            "a buffer of {shown} does not fit into what index and buffer may take, {}: give a smaller one, or \
             a greater arena_max",
            show_size(arena_bytes)
        );
    }
    Ok(())
}

/// Opens the pool for others to join, or joins those who have it open.
fn share(request: &Request, found: &Found) -> Result<OpenPool> {
    if request.words.options.read_only {
        bail!("a pool that is opened read-only is shared with nobody: give ro or direct, not both");
    }
    let opening = opening(request)?;
    let bar = Bar::new();
    let open = || join::open(&found.paths, &opening, &AllCpus, &|progress| bar.show(progress));
    let joined = holder::while_closing(&found.paths, open)?;
    if !joined.is_first() {
        let differs = differing(request, &joined.fs);
        if !differs.is_empty() {
            joined.close()?;
            bail!(
                "{} is in use, and who joins has it as the first has opened it: {} can't be had beside that; \
                 leave it out, or unmount the pool first",
                slots::shown(&found.paths),
                differs.join(" and ")
            );
        }
        tell_not_joined(request, found);
    }
    if joined.has_given_up() {
        tell_left_behind(found, false);
    }
    let arena = joined.arena().clone();
    Ok(OpenPool { fs: joined.fs, arena, shared: true, stays: true, _lock: None })
}

/// What is asked for of the pool and is otherwise for those who have it open.
fn differing(request: &Request, fs: &Fs) -> Vec<String> {
    let args = &request.args;
    let method = args.method.map(MethodArg::policy).filter(|asked| *asked != fs.update_policy());
    let placement = args.placement.map(PlacementArg::placement);
    let placement = placement.filter(|asked| *asked != fs.placement());
    let slot = args.lawn_slot.filter(|asked| *asked != fs.slot_lines());
    let modes = fs.mode_of_writes().unwrap_or_default();
    let mode = args.mode.map(ModeArg::mode).filter(|asked| *asked != modes);
    let there = fs.pm().device();
    let is_there = |asked: &Device| there.map_or(asked.is_own(), |there| there == asked);
    let device = args.device.filter(|asked| !is_there(asked));
    let named = [
        method.map(|method| format!("method={}", method.name())),
        placement.map(|placement| format!("placement={}", placement.name())),
        slot.map(|slot| format!("lawn_slot={}", slot.bytes())),
        mode.map(|mode| format!("mode={}", mode.name())),
        device.map(|device| format!("device={}", device.spelled())),
    ];
    named.into_iter().flatten().collect()
}

/// Says what only the first who opens a pool can choose.
fn tell_not_joined(request: &Request, found: &Found) {
    let args = &request.args;
    let given = [
        ("form", args.form.is_some()),
        ("arena_max", args.arena_max.is_some()),
        ("index_memory", args.index_memory.is_some()),
        ("populate", args.populate),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    let given: Vec<&str> = given.map(|(word, _)| word).collect();
    if !given.is_empty() {
        remark!(
            "novale: {}: others have it open, and their choice of {} holds",
            slots::shown(&found.paths),
            given.join(" and ")
        );
    }
}

/// Says that the pool has another daemon too, whose kernel knows nothing of this one's. It comes after
/// [`serve`]: of two who come at once one at least sees the other.
fn tell_served_too(found: &Found, fs: &Fs) {
    let servers: Vec<String> = fs.other_servers().iter().map(ToString::to_string).collect();
    if !servers.is_empty() {
        remark!(
            "novale: {}: another mount of this pool is served by process {}: locks do not count between the two, and \
             of a file that is mapped in one and written to in the other bytes may be lost; use what programs lock \
             or map, such as a database, by one of them alone",
            slots::shown(&found.paths),
            servers.join(" and ")
        );
    }
}

/// How slots are mapped.
fn mapping(request: &Request) -> PmOptions {
    PmOptions {
        read_only: request.words.options.read_only,
        populate: request.args.populate,
        hugepages: request.args.populate,
        ..PmOptions::default()
    }
}

fn opening(request: &Request) -> Result<Opening> {
    let read_only = request.words.options.read_only;
    let pm = mapping(request);
    let fs = OpenOptions {
        read_only,
        atime: match request.words.options.atime.unwrap_or_default() {
            Atime::Relative => CoreAtime::Relatime,
            Atime::Never => CoreAtime::Noatime,
            Atime::Always => CoreAtime::Strict,
        },
        form: match request.args.form {
            None | Some(FormArg::Auto) => Form::Auto,
            Some(FormArg::Single) => Form::Single,
            Some(FormArg::Two) => Form::Two,
        },
        update: request.args.method.map(MethodArg::policy),
        slot_lines: request.args.lawn_slot.unwrap_or_default(),
        mode: request.args.mode.map(ModeArg::mode),
        buffer_bytes: request.args.buffer,
        buffer_rules: request.args.buffer_rules.rules()?,
        costs: None,
        now_ns: wall_clock_ns(),
        index_bytes: request.args.index_memory,
        ignore_default_acls: !request.words.options.has_acls(),
        placement: request.args.placement.map_or(Placement::Wasa, PlacementArg::placement),
    };
    let (arena_bytes, device) = (request.args.arena_max, request.args.device);
    Ok(Opening { pm, fs, arena_bytes, device })
}

fn tell_bad_copies(request: &Request, found: &Found) {
    let writes = !request.words.options.read_only;
    for bad in &found.info.bad_copies {
        let then = if writes { "it is rewritten" } else { "mounting it for writing rewrites it" };
        remark!("novale: {}: {bad}; {then}", slots::shown(&found.paths));
    }
}

/// Says that what was said of the write buffer does nothing, where nothing is buffered.
fn tell_unbuffered(request: &Request, fs: &Fs) {
    let is_said = request.args.buffer.is_some() || !request.args.buffer_rules.words().is_empty();
    if is_said && fs.mode_of_writes().is_none() {
        remark!(
            "novale: this mount has no mode, so nothing is buffered and what is said of the buffer does nothing: \
             give -o mode=buffered or mode=strict too"
        );
    }
}

/// Says that an arena was removed which may have had what is nowhere else.
fn tell_unread(found: &Found) {
    remark!(
        "novale: {}: all who used it last were killed, in another container (pid namespace) or with another build: \
         if they had it in mode=buffered, what they had only buffered is gone",
        slots::shown(&found.paths)
    );
}

/// Says that what was only buffered is not there for this file of slot 0, but for another one.
fn tell_left_elsewhere(found: &Found) -> Result<()> {
    let arena = found.arena()?;
    // One that is there is this file's own: of a pool that others have open, or that was left so.
    if found.info.clean || arena.open().is_ok() {
        return Ok(());
    }
    for path in arena.left_with_other_files() {
        remark!(
            "novale: {}: what processes that were killed, or had a slot fail, had only buffered is kept in {}, for the \
             file that was slot 0 then: this one, a copy of it or restored from one, goes without that",
            slots::shown(&found.paths),
            path.display()
        );
    }
    Ok(())
}

fn tell_left_behind(found: &Found, is_written: bool) {
    let shown = slots::shown(&found.paths);
    if is_written {
        remark!("novale: {shown}: what was only buffered when all who used it were killed is kept");
    } else {
        remark!(
            "novale: {shown}: the pool was changed since all who used it were killed; what they had only \
             buffered is given up"
        );
    }
}

/// What a missing slot damages was told before.
fn tell_recovery(report: &OpenReport, read_only: bool, is_whole: bool) {
    let how =
        if read_only { "read-only, showing what recovery would leave" } else { "recovered it" };
    if !report.clean {
        remark!(
            "novale: the pool was not closed clean; {how}: {} inodes, {} pages used, {} log entries \
             read",
            report.inodes,
            report.pages_used,
            report.log_entries
        );
    }
    if report.damaged > 0 && is_whole {
        remark!(
            "novale: {} damaged places, which `novale check` names and `novale check --repair` mends as far as \
             it can; what they hold can't be read \
             (\"Structure needs cleaning\")",
            report.damaged
        );
    }
}

fn settings(
    request: &Request,
    voice: Arc<Voice>,
    (facts, slots): (Answer, Option<Answer>),
) -> Settings {
    let atime = request.words.options.atime.unwrap_or_default();
    Settings {
        atime: if request.words.options.read_only { Atime::Never } else { atime },
        no_acl: !request.words.options.has_acls(),
        no_user_xattr: !request.words.options.has_user_xattrs(),
        shared: request.args.direct,
        report: Some(Box::new(move |error: &Error| voice.say(&error.to_string()))),
        facts: Some(facts),
        slots,
    }
}

fn threads(request: &Request) -> usize {
    let cpus = std::thread::available_parallelism().map_or(THREADS_MIN, std::num::NonZero::get);
    let given = request.args.threads.map(usize::from);
    given.unwrap_or(cpus.clamp(THREADS_MIN, THREADS_MAX))
}

fn grace_seconds(request: &Request) -> u64 {
    request.args.grace.unwrap_or(GRACE_SECONDS)
}

fn forward_signals(events: Sender<Event>) -> Result<()> {
    // Of a daemon that is to outlive its terminal (`nohup`).
    let hangs_up = Some(SIGHUP).filter(|signal| !novale_pm::is_ignored(*signal));
    let ending = [SIGINT, SIGTERM].into_iter().chain(hangs_up);
    let mut signals = Signals::new(ending).context("catching signals")?;
    novale_pm::unblock(&[SIGHUP, SIGINT, SIGTERM]);
    let forward = move || {
        for _ in signals.forever() {
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    };
    start_thread("novale-signals", forward)?;
    Ok(())
}
