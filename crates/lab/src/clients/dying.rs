//! A client that dies at a chosen point of an operation: a thread, attached in the name of a process
//! that has ended, of which nothing is stored from there on.
//!
//! At its point it unwinds. What it would store to the arena on the way out is refused, and nothing
//! stores to the pool there: so all that it held stays as it was, as after a SIGKILL.

use std::backtrace::Backtrace;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use novale_arena::watch_stores;
use novale_core::Fs;
use novale_layout::PmAddr;
use novale_pm::{Observer, Purpose, StoreEvent};

use crate::crash::Recorder;
use crate::diff::panic_text;

/// Where clients die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Points {
    /// Before each store, write-back and fence of the pool.
    Pool,
    /// Before each store to the arena, and after the last one.
    Arena,
}

/// What a client does when it dies.
pub(super) type Act = Box<dyn FnOnce(&Fs) -> Result<(), String> + Send>;

/// Lines of the product that are told of a death.
const PLACES_MAX: usize = 8;

/// What unwinds a client that dies.
struct Died {
    at: Backtrace,
}

/// When a client dies; watches its stores.
pub(super) struct Fate {
    recorder: Arc<Recorder>,
    points: Points,
    /// The number of the point.
    point: u64,
    /// Points until it dies: none before it acts, where it may take pairs apart, and none after that.
    left: AtomicU64,
    /// It dies after all that it does.
    behind: bool,
    is_dead: AtomicBool,
}

impl Fate {
    /// Death before an event of these, by its number; after all of them where there is no number.
    pub(super) fn new(recorder: Arc<Recorder>, points: Points, point: Option<u64>) -> Self {
        let (point, behind) = (point.unwrap_or(u64::MAX), point.is_none());
        let (left, is_dead) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Self { recorder, points, point, left, behind, is_dead }
    }

    /// Comes to a point; a second death, on the way out of the first, ends the process.
    fn meet(&self, points: Points) {
        let at_it = points == self.points && self.left.fetch_sub(1, Ordering::Relaxed) == 0;
        if at_it || self.is_dead.load(Ordering::Relaxed) {
            self.is_dead.store(true, Ordering::Relaxed);
            resume_unwind(Box::new(Died { at: Backtrace::force_capture() }));
        }
    }

    /// A store to the arena; says whether it happens.
    fn meet_in_arena(&self) -> bool {
        if self.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        self.meet(Points::Arena);
        true
    }

    /// Acts and dies in the middle of it, if there is such a point: where. None if all was done.
    pub(super) fn run(self: Arc<Self>, fs: Fs, act: Act) -> Result<Option<Backtrace>, String> {
        // A thread of its own: what it has not fenced nobody fences for it.
        let done = std::thread::spawn(move || self.run_here(fs, act)).join();
        done.map_err(|payload| panic_text(payload.as_ref()))?
    }

    fn run_here(self: Arc<Self>, fs: Fs, act: Act) -> Result<Option<Backtrace>, String> {
        let this = self.clone();
        self.left.store(self.point, Ordering::Relaxed);
        watch_stores(Some(Box::new(move |_| this.meet_in_arena())));
        let done = catch_unwind(AssertUnwindSafe(|| {
            let done = act(&fs);
            self.left.store(
                if self.behind { 0 } else { self.left.load(Ordering::Relaxed) },
                Ordering::Relaxed,
            );
            self.meet_in_arena();
            done
        }));
        let died = match done {
            Ok(done) => done.map(|()| None),
            Err(payload) => match payload.downcast::<Died>() {
                Ok(died) => Ok(Some(died.at)),
                Err(payload) => Err(panic_text(payload.as_ref())),
            },
        };
        if !matches!(died, Ok(Some(_))) {
            watch_stores(None);
            self.left.store(u64::MAX, Ordering::Relaxed);
        }
        // Of a dead one nothing is stored here either.
        drop(fs);
        watch_stores(None);
        died
    }
}

/// The lines of the product that led to a death, the innermost first.
pub(super) fn place(at: &Backtrace) -> String {
    let text = at.to_string();
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    let ours = lines.filter_map(|line| line.rsplit_once("crates/").map(|(_, line)| line));
    let product =
        ours.filter(|line| ["core/", "arena/", "pm/"].iter().any(|of| line.starts_with(of)));
    let own = |line: &&str| !line.contains("word.rs");
    product.filter(own).take(PLACES_MAX).collect::<Vec<_>>().join(" < ")
}

impl Observer for Fate {
    fn store(&self, event: StoreEvent<'_>) {
        self.meet(Points::Pool);
        self.recorder.store(event);
    }

    fn write_back(&self, addr: PmAddr, len: u64, what: Purpose, site: &'static Location<'static>) {
        self.meet(Points::Pool);
        self.recorder.write_back(addr, len, what, site);
    }

    fn fence(&self, site: &'static Location<'static>) {
        self.meet(Points::Pool);
        self.recorder.fence(site);
    }
}
