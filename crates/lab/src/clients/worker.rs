//! A process that works until it is killed or told to stop: a sequence of operations in a directory
//! of its own, which somebody else can judge, and between them operations in a directory that all
//! share.

use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use novale_core::{Ctx, Error as E, FileKind, Fs, Ino, NewInode, Node, RenameMode};
use novale_layout::PmAddr;
use novale_model::Error;
use novale_pm::{Observer, PmOptions, Purpose, StoreEvent};

use super::field::{Count, Field, Home};
use super::user::work_on_files;
use crate::crash::small_step;
use crate::diff::now_ns_at;
use crate::workload::{Failure, Flavor, Generator, Outcome, Session, Step, run_step};

/// The directory that all workers share.
pub(super) const SHARED: &[u8] = b"shared";
/// One in so many operations is followed by one in the shared directory.
const SHARED_ONE_IN: u32 = 3;
/// Names in the shared directory.
pub(super) const SHARED_NAMES: u32 = 12;

/// What a worker is told on its command line.
#[derive(Debug, Clone)]
pub struct WorkerArgs {
    /// The folder shared with the others.
    pub folder: PathBuf,
    /// Its directory's name in the pool, and its file's in the folder.
    pub name: String,
    /// Where its random sequence starts.
    pub seed: u64,
    /// Operations to do.
    pub operations: u64,
    /// Know of nothing but files, and of the mount.
    pub mounted: bool,
    /// Kill itself before so many stores, write-backs and fences, or points in time; 0: never.
    pub die_at: u64,
}

/// The steps of a worker: the same for the same seed.
pub(super) fn steps(seed: u64) -> impl Iterator<Item = Step> {
    // Every other worker maps files.
    let make = if seed.is_multiple_of(2) { Generator::mapping } else { Generator::new };
    let mut generator = make(seed, Flavor::of_seed(seed));
    std::iter::from_fn(move || Some(small_step(generator.step())))
        .filter(|step| !matches!(step, Step::Compare | Step::Remount | Step::Die))
}

/// Kills the process before the event that the counter reaches 0 at.
struct Fuse {
    left: AtomicU64,
}

impl Fuse {
    fn burn(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let me = rustix::process::getpid();
            let _killed = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        }
    }
}

impl Observer for Fuse {
    fn store(&self, _: StoreEvent<'_>) {
        self.burn();
    }

    fn write_back(&self, _: PmAddr, _: u64, _: Purpose, _: &'static Location<'static>) {
        self.burn();
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.burn();
    }
}

/// Works until all is done, or the folder says stop.
///
/// # Errors
/// What went wrong that should not.
pub fn work(args: &WorkerArgs) -> Result<(), String> {
    if args.mounted {
        return work_on_files(args);
    }
    let field = Field::at(&args.folder);
    let observer = (args.die_at > 0)
        .then(|| Arc::new(Fuse { left: AtomicU64::new(args.die_at) }) as Arc<dyn Observer>);
    let fs = field.attach(PmOptions { observer, ..PmOptions::default() })?;
    let count = Count::open(&args.folder.join(&args.name)).map_err(|why| why.to_string())?;
    let hint = u32::try_from(args.seed % 64).unwrap_or(0);
    let find = |name: &[u8]| {
        fs.lookup(&Ctx { now_ns: 0, hint }, Node::ROOT, name).map_err(|why| why.to_string())
    };
    let mut home = Home::new(&fs, find(args.name.as_bytes())?.ino);
    let shared = find(SHARED)?.ino;
    let mut session = Session::default();
    let mut random = Rng::with_seed(args.seed);
    let stop = field.stop();
    for (index, step) in (1..=args.operations).zip(steps(args.seed)) {
        if index % 16 == 0 && stop.exists() {
            break;
        }
        count.begin(index).map_err(|why| why.to_string())?;
        let now_ns = now_ns_at(usize::try_from(index).unwrap_or(usize::MAX));
        let outcome = run_step(&mut home, &mut session, &step, now_ns);
        if let Outcome::Failed(Failure::Broken(why)) = outcome {
            return Err(format!("step {index} ({step}): {why}"));
        }
        if let Outcome::Failed(Failure::Error(why @ (Error::NoSpace | Error::NoMemory))) = outcome {
            return Err(format!("step {index} ({step}): {why:?}"));
        }
        count.done(index).map_err(|why| why.to_string())?;
        if random.u32(..).is_multiple_of(SHARED_ONE_IN) {
            work_shared(&fs, shared, &mut random, hint)
                .map_err(|why| format!("behind step {index}, in the shared directory: {why}"))?;
        }
    }
    fs.close().map_err(|why| why.to_string())
}

/// Any operation on any name of the shared directory; it may be refused for what others do there.
fn work_shared(fs: &Fs, shared: Ino, random: &mut Rng, hint: u32) -> Result<(), String> {
    let ctx = Ctx { now_ns: now_ns_at(1), hint };
    let mut name = || format!("n{}", random.u32(0..SHARED_NAMES));
    let (name, other) = (name(), name());
    let (from, to) = (name.as_bytes(), other.as_bytes());
    let kind = if random.bool() { FileKind::File } else { FileKind::Directory };
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
    let rename =
        |mode| fs.rename(&ctx, Node::current(shared), from, Node::current(shared), to, mode);
    let (what, done) = match random.u32(0..8) {
        0 | 1 => ("create", fs.create(&ctx, Node::current(shared), from, &new).map(drop)),
        2 => ("unlink", fs.unlink(&ctx, Node::current(shared), from)),
        3 => ("rmdir", fs.rmdir(&ctx, Node::current(shared), from)),
        4 => ("rename", rename(RenameMode::Replace)),
        5 => ("exchange", rename(RenameMode::Exchange)),
        6 => {
            let link = |node| fs.link(&ctx, node, Node::current(shared), to).map(drop);
            ("link", with_held(fs, &ctx, (shared, from), link))
        }
        _ => {
            let bytes = vec![1; random.usize(1..30_000)];
            let offset = random.u64(0..20_000);
            let write = |node: Node| {
                fs.write(&ctx, node.ino, offset, &bytes)?;
                fs.append(&ctx, node.ino, &[2; 100]).map(drop)
            };
            ("write", with_held(fs, &ctx, (shared, from), write))
        }
    };
    match done {
        Err(why) if !is_explained(what, &why) => Err(format!("{what} {name} ({other}): {why}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether what the names lead to explains a refusal, which others may change at any time. The pool
/// has room, directories stay empty and where they are, and a held inode stays: nothing else does.
fn is_explained(what: &str, why: &E) -> bool {
    match what {
        "create" => matches!(why, E::Exists),
        "unlink" | "write" => matches!(why, E::NotFound | E::IsDirectory),
        "rmdir" => matches!(why, E::NotFound | E::NotDirectory),
        "rename" => matches!(why, E::NotFound | E::NotDirectory | E::IsDirectory),
        // A directory has one name.
        "link" => matches!(why, E::NotFound | E::Exists | E::NotPermitted(_)),
        _ => matches!(why, E::NotFound),
    }
}

/// Uses an inode while it is held, unless it went first: another one may have its number once the
/// name is gone. What is held does not go.
fn with_held(
    fs: &Fs,
    ctx: &Ctx,
    (directory, name): (Ino, &[u8]),
    used: impl FnOnce(Node) -> novale_core::Result<()>,
) -> novale_core::Result<()> {
    let found = fs.lookup(ctx, Node::current(directory), name)?;
    match fs.hold(found.ino) {
        Err(E::Stale) => return Ok(()),
        held => held?,
    }
    let same = fs.getattr(found.ino)?.generation == found.generation;
    let result = if same { used(found.node()) } else { Ok(()) };
    fs.release(ctx, found.ino, 1)?;
    result
}
