//! Several processes at work on one pool, killed at any time: the survivors go on, nothing that was
//! acknowledged is lost, and in the end all is sound.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use novale_core::Fs;
use novale_pm::PmOptions;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper,
    waitpgid,
};
use serde::Serialize;

use super::child::{PATIENCE, said, wait};
use super::failed::Failed;
use super::field::{Count, Field};
use super::judge::{close_and_check, empty_and_remove, judge, make_directory};
use super::mounted::Daemon;
use super::user::judge_files;
use super::worker::SHARED;
use crate::watchdog::Watchdog;

/// Deaths between two closings of the pool.
const DEATHS_A_ROUND: u64 = 40;
/// Workers that nobody kills end after fewer operations.
const OPERATIONS_MAX: u64 = 1_500;
/// No step of the hunt itself takes longer, settling included, but for a hang.
const HUNT_PATIENCE: Duration = Duration::from_secs(180);
/// Workers that kill themselves do so before this many stores, write-backs and fences.
const EVENTS_MAX: u64 = 6_000;

/// What to do.
#[derive(Debug, Clone)]
pub struct Hunt<'a> {
    /// The program and its first arguments that start a worker; folder, name, seed, operations and event
    /// follow.
    pub worker: (&'a Path, &'a [&'a str]),
    /// An empty folder on a tmpfs.
    pub folder: &'a Path,
    /// The program whose mount is to be a client too.
    pub novale: Option<&'a Path>,
    /// Workers at a time.
    pub processes: usize,
    /// No death later than this.
    pub time: Duration,
    /// Deaths at most.
    pub deaths_max: u64,
    /// The seed of everything.
    pub seed: u64,
    /// Ends it early.
    pub stop: &'a AtomicBool,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HuntReport {
    /// Workers that were killed, or killed themselves between two stores.
    pub deaths: u64,
    /// Of these, programs that know of nothing but files, served in their own process.
    #[serde(rename = "deaths_of_direct_programs")]
    pub direct: u64,
    /// Mounts' daemons that were killed.
    #[serde(rename = "deaths_of_daemons")]
    pub daemons: u64,
    /// Deaths of workers in the middle of an operation.
    #[serde(rename = "deaths_in_operation")]
    pub in_operation: u64,
    /// Of their operations, those that were found done.
    #[serde(rename = "operations_found_done")]
    pub found_done: u64,
    /// Workers that ended by themselves.
    pub ended: u64,
    /// Workers and daemons that were stopped and went on.
    #[serde(rename = "stopped_and_continued")]
    pub stopped: u64,
    /// Operations that the dead had acknowledged.
    #[serde(rename = "operations_acknowledged")]
    pub operations: u64,
    /// Times that the pool was closed, checked and opened again.
    pub rounds: u64,
}

/// How a worker reaches the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As a client that knows of it.
    Library,
    /// As a program that knows of files alone, by the mount.
    Mount,
    /// As the same program, served in its own process.
    Direct,
}

struct Worker {
    child: Child,
    name: String,
    seed: u64,
    way: Way,
    count: Count,
    /// What it had begun and done when that was looked at, and since when it is so.
    counted: (u64, u64),
    since: Instant,
}

impl Worker {
    fn judge(&self, fs: &Fs, counts: (u64, u64)) -> Result<bool, String> {
        let judged = if self.way == Way::Library { judge } else { judge_files };
        judged(fs, &self.name, self.seed, counts)
    }

    /// Whether it goes on, whatever others do.
    fn goes_on(&mut self) -> Result<(), String> {
        let counted = self.count.read().map_err(|why| why.to_string())?;
        if counted != self.counted {
            (self.counted, self.since) = (counted, Instant::now());
        }
        if self.since.elapsed() <= PATIENCE {
            return Ok(());
        }
        let (name, seed, (begun, done)) = (&self.name, self.seed, counted);
        Err(format!("{name}, seed {seed}, hangs: {begun} operations begun, {done} done"))
    }
}

impl Hunt<'_> {
    /// Hunts until the time is up; `progress` is told after each death.
    ///
    /// # Errors
    /// What was found wrong, or is not there.
    pub fn run(&self, progress: &dyn Fn(&HuntReport)) -> Result<HuntReport, Failed> {
        let mut report = HuntReport::default();
        let mut random = Rng::with_seed(self.seed);
        let start = Instant::now();
        let watchdog = Watchdog::new(HUNT_PATIENCE);
        // What a worker has started is this process' to wait for, once the worker is dead.
        set_child_subreaper(Some(getpid())).map_err(|why| Failed::Unable(why.to_string()))?;
        Field::at(self.folder).has_room()?;
        while !self.is_over(start) && report.deaths < self.deaths_max {
            let lanes = random.u32(1..5);
            let daemon = None;
            let (random, report) = (&mut random, &mut report);
            Round { hunt: self, random, report, watchdog: &watchdog, made: 0, daemon }
                .run(lanes, start, progress)?;
            report.rounds += 1;
        }
        Ok(report)
    }

    fn is_over(&self, start: Instant) -> bool {
        start.elapsed() >= self.time || self.stop.load(Ordering::Relaxed)
    }
}

struct Round<'r> {
    hunt: &'r Hunt<'r>,
    random: &'r mut Rng,
    report: &'r mut HuntReport,
    watchdog: &'r Watchdog,
    made: u64,
    daemon: Option<Daemon>,
}

impl Round<'_> {
    fn run(
        &mut self,
        lanes: u32,
        start: Instant,
        progress: &dyn Fn(&HuntReport),
    ) -> Result<(), Failed> {
        self.watchdog.begin("the start of a round".to_owned());
        let field = Field::at(self.hunt.folder);
        let fs = match self.hunt.novale {
            Some(novale) => {
                // Once it has worked, a mount that fails is a finding.
                let is_first = self.report.rounds == 0;
                let failed = if is_first { Failed::Unable } else { Failed::Violation };
                let daemon = Daemon::start(novale, &field).map_err(failed)?;
                if is_first && cfg!(target_arch = "x86_64") {
                    daemon.serves_directly().map_err(Failed::Unable)?;
                }
                self.daemon = Some(daemon);
                field.attach(PmOptions::default())?
            }
            None => field.open(lanes).map_err(Failed::Unable)?,
        };
        make_directory(&fs, SHARED)?;
        let mut workers = Vec::new();
        for _ in 0..self.hunt.processes {
            workers.push(self.start(&fs, &field)?);
        }
        let hunted = self.hunt_workers(&fs, &field, &mut workers, start, progress);
        self.watchdog.begin("the end of a round".to_owned());
        let told = std::fs::write(field.stop(), "").map_err(|why| Failed::Unable(why.to_string()));
        for worker in &mut workers {
            if hunted.is_err() {
                kill_with_children(&mut worker.child)?;
            }
            self.end(&fs, worker, hunted.is_err())?;
        }
        hunted.and(told)?;
        Ok(close_and_check(fs, &field, self.daemon.as_mut())?)
    }

    fn hunt_workers(
        &mut self,
        fs: &Fs,
        field: &Field,
        workers: &mut [Worker],
        start: Instant,
        progress: &dyn Fn(&HuntReport),
    ) -> Result<(), Failed> {
        let until = self.report.deaths + DEATHS_A_ROUND;
        let until = until.min(self.hunt.deaths_max);
        while self.report.deaths < until && !self.hunt.is_over(start) {
            // Chance decides when: that is the point of it.
            std::thread::park_timeout(Duration::from_micros(self.random.u64(0..8_000)));
            let chosen = self.random.usize(0..workers.len());
            let Some(worker) = workers.get_mut(chosen) else { continue };
            if self.random.u64(0..DEATHS_A_ROUND * 2) == 0 {
                self.kill_daemon(fs)?;
                continue;
            }
            self.watchdog.begin(format!("{} and the others", worker.name));
            if self.random.u32(0..10) == 0 {
                let daemon = self.daemon.as_mut().filter(|_| self.random.u32(0..4) == 0);
                let daemon = daemon.and_then(|daemon| daemon.is_alive().then(|| daemon.pid()));
                self.stop_and_go(daemon.unwrap_or_else(|| worker.child.id()))?;
                continue;
            }
            let dead = worker.child.try_wait().map_err(|why| why.to_string())?;
            // Some kill themselves at an event; the others are killed now.
            if dead.is_none() {
                worker.goes_on()?;
                if self.random.bool() {
                    continue;
                }
            }
            let mut worker = std::mem::replace(worker, self.start(fs, field)?);
            kill_with_children(&mut worker.child)?;
            self.judge_dead(fs, &mut worker)?;
            progress(self.report);
        }
        Ok(())
    }

    fn start(&mut self, fs: &Fs, field: &Field) -> Result<Worker, Failed> {
        self.made += 1;
        let name = format!("w{}", self.made);
        let seed = self.random.u64(..);
        make_directory(fs, name.as_bytes())?;
        let count = Count::create(&field.folder().join(&name));
        let count = count.map_err(|why| Failed::Unable(why.to_string()))?;
        let die_at = if self.random.bool() { self.random.u64(1..EVENTS_MAX) } else { 0 };
        let operations = self.random.u64(1..OPERATIONS_MAX);
        let (way, mut command) = self.choose();
        let child = command
            .args(self.hunt.worker.1)
            .arg(field.folder())
            .args([name.clone(), seed.to_string(), operations.to_string(), die_at.to_string()])
            .args((way != Way::Library).then_some("--mounted"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // What a terminal sends is for the hunt, which ends them.
            .process_group(0)
            .spawn()
            .map_err(|why| Failed::Unable(format!("a worker: {why}")))?;
        let (counted, since) = ((0, 0), Instant::now());
        Ok(Worker { child, name, seed, way, count, counted, since })
    }

    /// How the next worker reaches the pool, and the program that starts it.
    fn choose(&mut self) -> (Way, Command) {
        let program = self.hunt.worker.0;
        let daemon = self.daemon.as_mut().filter(|_| self.random.u32(0..3) > 0);
        let served = daemon.and_then(|daemon| daemon.is_alive().then_some(daemon));
        match served {
            None => (Way::Library, Command::new(program)),
            Some(daemon) if cfg!(target_arch = "x86_64") && self.random.u32(0..3) > 0 => {
                (Way::Direct, daemon.direct(program))
            }
            Some(_) => (Way::Mount, Command::new(program)),
        }
    }

    /// Kills the mount's daemon, if there is one; the workers that need it end by themselves.
    fn kill_daemon(&mut self, fs: &Fs) -> Result<(), String> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if !daemon.is_alive() {
            return Ok(());
        }
        daemon.kill()?;
        self.report.daemons += 1;
        fs.settle_dead().map(drop).map_err(|why| format!("settling for the daemon: {why}"))
    }

    /// Stops a process for a moment, with whatever it holds.
    fn stop_and_go(&mut self, pid: u32) -> Result<(), String> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(()) };
        let signal = |signal| kill_process(pid, signal).map_err(|why| why.to_string());
        signal(Signal::STOP)?;
        std::thread::park_timeout(Duration::from_millis(self.random.u64(1..30)));
        signal(Signal::CONT)?;
        self.report.stopped += 1;
        Ok(())
    }

    /// What the dead had acknowledged must be there, and what it was doing all or nothing. Then its
    /// directory is used and removed.
    fn judge_dead(&mut self, fs: &Fs, worker: &mut Worker) -> Result<(), String> {
        let status = worker.child.wait().map_err(|why| why.to_string())?;
        wait_for_children(&worker.child)?;
        if status.code().is_some() {
            return self.judge_ended(fs, worker, status);
        }
        if status.signal() != Some(Signal::KILL.as_raw()) {
            return Err(format!("{} crashed: {status}, {}", worker.name, said(&mut worker.child)));
        }
        let (begun, done) = worker.count.read().map_err(|why| why.to_string())?;
        self.report.deaths += 1;
        self.report.direct += u64::from(worker.way == Way::Direct);
        self.report.operations += done;
        // An operation that died may be found done later than at first, but not undone again.
        // A look in the middle of which somebody settles sees a part of each; the next one may not.
        let look = || worker.judge(fs, (begun, done));
        let at_first = look().or_else(|_| look())?;
        fs.settle_dead().map_err(|why| format!("settling for {}: {why}", worker.name))?;
        let found_done = look()?;
        if at_first && !found_done {
            return Err(format!("{}, seed {}: undone by settling", worker.name, worker.seed));
        }
        self.report.in_operation += u64::from(begun > done);
        self.report.found_done += u64::from(found_done);
        empty_and_remove(fs, &worker.name)
    }

    /// Waits for a worker that was told to stop.
    fn end(&mut self, fs: &Fs, worker: &mut Worker, killed: bool) -> Result<(), String> {
        let Some(status) = wait(&mut worker.child)? else {
            return Err(format!("{} does not stop", worker.name));
        };
        if killed {
            return Ok(());
        }
        if status.code().is_none() {
            return self.judge_dead(fs, worker);
        }
        self.judge_ended(fs, worker, status)
    }

    fn judge_ended(
        &mut self,
        fs: &Fs,
        worker: &mut Worker,
        status: ExitStatus,
    ) -> Result<(), String> {
        let served = self.daemon.as_mut().is_some_and(Daemon::is_alive);
        if !status.success() && (served || worker.way == Way::Library) {
            return Err(format!("{} ({:?}): {}", worker.name, worker.way, said(&mut worker.child)));
        }
        self.report.ended += 1;
        let (begun, done) = worker.count.read().map_err(|why| why.to_string())?;
        worker.judge(fs, (begun, done))?;
        empty_and_remove(fs, &worker.name)
    }
}

/// Kills a worker and what it has started; one that has ended is none.
fn kill_with_children(child: &mut Child) -> Result<(), String> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let killed = group.map_or(Ok(()), |group| kill_process_group(group, Signal::KILL));
    if killed.is_err() { child.kill().map_err(|why| why.to_string()) } else { Ok(()) }
}

/// Waits for the end of what a killed worker had started: it may have files open as long as it is there.
fn wait_for_children(child: &Child) -> Result<(), String> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(group) = group else { return Ok(()) };
    let start = Instant::now();
    while start.elapsed() <= PATIENCE {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::park_timeout(Duration::from_micros(100)),
            // None is left.
            Err(_) => return Ok(()),
        }
    }
    Err("what a killed worker had started does not end".to_owned())
}
