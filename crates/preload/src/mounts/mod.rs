//! The mounts whose files are served here, and this process' way into their pools.
//!
//! They are named by the variable `NOVALE_DIRECT`. A pool is joined when a call needs it for the first
//! time, and again in the child of a fork, which the records in the arena must not take for its
//! parent: a page that the kernel wipes in children says so.

pub(crate) mod again;
mod covered;
pub(crate) mod facts;
pub(crate) mod helper;
pub(crate) mod kept;
pub(crate) mod places;
pub(crate) mod room;
pub(crate) mod state;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use novale_core::{Ctx, Fs, HoldId, Ino, SlotOpener};
use novale_posix::join::{
    JoinError, Joined, SLOTS_TOLD, fork_begins, fork_ended, forked, is_served, join_from,
    look_seldom, open_coming,
};
use novale_posix::report::Why;

use crate::base::lock::Lock;
use crate::base::said::Said;
use crate::base::say::say;
use crate::base::settings::Variable;
use crate::base::sys::{Ret, sys};
use crate::base::thread::current;
use crate::base::{begun, classes, left, report, settings};
use crate::mounts::again::Former;
pub(crate) use crate::mounts::again::numbers_of;
use crate::mounts::facts::{Facts, STATX_MNT_ID_UNIQUE, Seen};
use crate::numbers::{self, limits, words};

/// Mounts that a process may use directly.
pub(crate) const MOUNTS_MAX: usize = 16;
const PAGE: usize = 4096;
/// Attempts to join beside threads that close whatever number there is.
const ATTEMPTS: u32 = 64;
/// How a program ends that is not to go through the mount, as `novale run --strict` does.
const UNABLE: i32 = 125;
/// The longest value of an attribute.
const TOLD_BYTES_MAX: usize = 1 << 16;
/// Said of a mount after its slots.
const HIDES_ATTRIBUTES: &[u8] = b"hides_attributes";
const SYNCS: &[u8] = b"sync";
const NO_EXEC: &[u8] = b"noexec";

/// A mount as it is named in the environment.
pub(crate) struct Mount {
    /// Where it is mounted, without a slash at its end.
    pub(crate) target: Vec<u8>,
    slots: Vec<PathBuf>,
    /// Its options hide some extended attributes.
    hides_attributes: bool,
    syncs: bool,
    joined: AtomicPtr<Joined>,
    /// It could not be joined, and was not tried again.
    failed: AtomicBool,
    /// The device number that the kernel shows for its files; 0 before it is asked.
    device: AtomicU64,
    /// The numbers that the kernel shows for the mount itself: a short one, and one of its own for ever; 0 before
    /// they are asked for.
    numbers: [AtomicU64; 2],
    /// The latter of the mount that the pool is used by; 0 where that was not to be seen.
    own: AtomicU64,
    former: Former,
    /// Nothing in it may be executed.
    no_exec: AtomicBool,
    /// The descriptor that placeholders are duplicates of; 0 before there is one.
    pub(crate) original: AtomicI32,
    /// The descriptor of its root, which keeps the mount from going; 0 where there is none.
    pub(crate) root: AtomicI32,
    /// The same of the mount that came before.
    pub(crate) former_root: AtomicI32,
}

static MOUNTS: OnceLock<Vec<Mount>> = OnceLock::new();
/// A page that is zeroes in a child, in which [`Own`] is; 0 before it is needed.
static OWN: AtomicU64 = AtomicU64::new(0);
static JOINING: Lock<()> = Lock::new(());
/// Whether there is memory for the descriptions of files, told by who has them.
#[unsafe(link_section = ".novale_data")]
static HAS_MEMORY: Said<fn() -> bool> = Said::new();
/// How often a pool was joined: a futex.
static JOINS: AtomicU32 = AtomicU32::new(0);

/// Takes the function that tells whether there is memory for what the program opens.
///
/// # Safety
/// As for [`Said::say`].
pub(crate) unsafe fn begin(has_memory: fn() -> bool) {
    // SAFETY: as the caller says.
    unsafe { HAS_MEMORY.say(has_memory) };
}

/// Reads what the environment says.
#[cold]
fn named() -> Vec<Mount> {
    let parse = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let (target, rest) = (entry.get(..at)?, entry.get(at + 1..)?);
        let mut parts = rest.splitn(2, |byte| *byte == b'=');
        let (slots, words) = (parts.next()?, parts.next().unwrap_or_default());
        let says = |known: &[u8]| words.split(|byte| *byte == b',').any(|word| word == known);
        let slots =
            slots.split(|byte| *byte == b':').map(|slot| PathBuf::from(OsStr::from_bytes(slot)));
        let good = target.starts_with(b"/") && target.len() > 1;
        good.then(|| Mount {
            target: target.to_vec(),
            slots: slots.collect(),
            joined: AtomicPtr::new(std::ptr::null_mut()),
            hides_attributes: says(HIDES_ATTRIBUTES),
            syncs: says(SYNCS),
            failed: AtomicBool::new(false),
            device: AtomicU64::new(0),
            numbers: Default::default(),
            own: AtomicU64::new(0),
            former: Former::default(),
            no_exec: AtomicBool::new(says(NO_EXEC)),
            original: AtomicI32::new(0),
            root: AtomicI32::new(0),
            former_root: AtomicI32::new(0),
        })
    };
    let variable = settings::value(Variable::Mounts).unwrap_or_default();
    variable.split(|byte| *byte == b';').filter_map(parse).take(MOUNTS_MAX).collect()
}

/// Makes the page that tells children. A child that finds none makes its own.
#[cold]
fn make_own() -> Option<u64> {
    let made = wiped_in_children()?;
    match OWN.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        Err(there) => {
            sys!(libc::SYS_munmap, made, PAGE);
            Some(there)
        }
    }
}

fn wiped_in_children() -> Option<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = sys!(libc::SYS_mmap, 0, PAGE, access, flags, u64::MAX, 0);
    let at = u64::try_from(at).ok()?;
    (sys!(libc::SYS_madvise, at, PAGE, libc::MADV_WIPEONFORK) == 0).then_some(at)
}

/// What a child does not have from its parent.
#[repr(C)]
struct Own {
    /// 1 once this process has joined.
    joined: AtomicU64,
    who: state::KnownUser,
    helpers: helper::Helpers,
}

/// `None` without memory for it.
fn own() -> Option<&'static Own> {
    let at = OWN.load(Ordering::Acquire);
    own_at(if at == 0 { make_own()? } else { at })
}

fn own_at(page: u64) -> Option<&'static Own> {
    // SAFETY: the page is mapped for good, and any bits are valid.
    unsafe { (page as *const Own).as_ref() }
}

fn joined() -> Option<&'static AtomicU64> {
    own().map(|own| &own.joined)
}

/// Whether this process has joined a pool, and not left it.
pub(crate) fn has_joined() -> bool {
    own_at(OWN.load(Ordering::Acquire)).is_some_and(|own| own.joined.load(Ordering::Relaxed) != 0)
}

/// Settles in all pools for clients that died at work, where the process is one: see [`Fs::settle_cut_off`].
pub(crate) fn settle_cut_off() {
    for mount in all().iter().filter(|_| has_joined()) {
        // SAFETY: what stands there was leaked by `join`.
        if let Some(joined) = unsafe { mount.joined.load(Ordering::Acquire).as_ref() } {
            joined.fs.settle_cut_off().unwrap_or_default();
        }
    }
}

/// What is known of who this process is.
fn who() -> Option<&'static state::KnownUser> {
    own().map(|own| &own.who)
}

/// What this process has of threads of this library's own.
fn helpers() -> Option<&'static helper::Helpers> {
    own().map(|own| &own.helpers)
}

/// All mounts, read when a call needs them for the first time.
pub(crate) fn all() -> &'static [Mount] {
    MOUNTS.get_or_init(named)
}

/// Whether a mount's options hide some extended attributes.
pub(crate) fn hides_attributes(mount: usize) -> bool {
    all().get(mount).is_none_or(|mount| mount.hides_attributes)
}

/// Whether a mount's options say that every write is durable when it returns, in any mode.
pub(crate) fn syncs(mount: usize) -> bool {
    all().get(mount).is_none_or(|mount| mount.syncs)
}

/// The mount that an absolute path leads into, and the rest of the path.
pub(crate) fn of_path(path: &[u8]) -> Option<(usize, &[u8])> {
    all().iter().enumerate().find_map(|(index, mount)| {
        let rest = path.strip_prefix(mount.target.as_slice())?;
        (rest.is_empty() || rest.starts_with(b"/")).then_some((index, rest))
    })
}

/// The file system of a mount; `None` where its pool can't be joined: the kernel serves it then.
#[inline]
pub(crate) fn fs(mount: usize) -> Option<&'static Fs> {
    let known = all().get(mount)?;
    if joined()?.load(Ordering::Relaxed) == 0 {
        start_again()?;
    }
    // SAFETY: what stands there was leaked by `join`.
    match unsafe { known.joined.load(Ordering::Acquire).as_ref() } {
        Some(joined) => Some(&joined.fs),
        None => join(known),
    }
}

/// As [`fs`], where the process is a client already and has not left.
pub(crate) fn here(mount: usize) -> Option<&'static Fs> {
    let known = all().get(mount)?;
    if !has_joined() {
        return None;
    }
    // SAFETY: what stands there was leaked by `join`.
    let joined = unsafe { known.joined.load(Ordering::Acquire).as_ref() };
    joined.map(|joined| &*joined.fs)
}

/// How often a pool was joined, for [`wait_for_join`].
pub(crate) fn joins() -> u32 {
    JOINS.load(Ordering::Acquire)
}

/// Sleeps until a pool has been joined since there were so many `joins`.
pub(crate) fn wait_for_join(joins: u32) {
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    sys!(libc::SYS_futex, JOINS.as_ptr(), wait, joins, 0);
}

/// Wakes a mount's helper, wherever it sleeps.
fn wake_helper(mount: usize) {
    wake_for_join();
    if let Some(fs) = here(mount) {
        fs.wake_for_mappings();
    }
}

/// Wakes who sleeps in [`wait_for_join`].
fn wake_for_join() {
    JOINS.fetch_add(1, Ordering::Release);
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    sys!(libc::SYS_futex, JOINS.as_ptr(), wake, i32::MAX);
}

/// Forgets what a parent had joined: its records are not this process'.
#[cold]
fn start_again() -> Option<()> {
    let _joining = JOINING.lock();
    let joined = joined()?;
    if joined.load(Ordering::Relaxed) == 0 {
        for mount in all() {
            let parents = mount.joined.swap(std::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: leaked by `join` in the parent; this is the child's copy, which nobody has used.
            unsafe { kept::free_copy(parents) };
        }
        numbers::freed_any();
        joined.store(1, Ordering::Release);
    }
    Some(())
}

#[cold]
fn join(mount: &Mount) -> Option<&'static Fs> {
    let _joining = JOINING.lock();
    if mount.failed.load(Ordering::Relaxed) {
        return None;
    }
    let there = mount.joined.load(Ordering::Acquire);
    // SAFETY: what stands there was leaked below.
    if let Some(joined) = unsafe { there.as_ref() } {
        return Some(&joined.fs);
    }
    let target = String::from_utf8_lossy(&mount.target);
    let judged = judged_by_kernel_now(mount);
    // Who has other users than `novale run` had sees other owners.
    if !begun::has_its_users() || judged.is_some() {
        mount.failed.store(true, Ordering::Relaxed);
        match judged.filter(|_| settings::is_strict()) {
            // It may be the program that takes that away.
            Some(BELOW) => served_by_mount(&format!("{target}: {BELOW}")),
            Some(why) => not_served(&format!("{target}: {why}")),
            None => {}
        }
        return None;
    }
    // What is opened here would have no description.
    if HAS_MEMORY.get().is_some_and(|has_memory| !has_memory()) {
        mount.failed.store(true, Ordering::Relaxed);
        served_by_mount(&format!("{target}: no memory is left for direct access"));
        return None;
    }
    let joined = join_told(mount);
    numbers::freed_any();
    match joined {
        Ok(joined) => {
            if let Some(why) = not_the_mounts(mount, &joined.fs) {
                mount.failed.store(true, Ordering::Relaxed);
                joined.descriptors().for_each(words::forget_internal);
                joined.close().unwrap_or_default();
                not_served(&format!("{target}: {why}"));
                return None;
            }
            joined.fs.refuse_mapped();
            classes::watch(classes::ENDS, true);
            let joined: &'static Joined = Box::leak(Box::new(joined));
            mount.joined.store(std::ptr::from_ref(joined).cast_mut(), Ordering::Release);
            wake_for_join();
            Some(&joined.fs)
        }
        Err(error) => {
            mount.failed.store(true, Ordering::Relaxed);
            let why = format!("{target}: direct access is not possible: {error}");
            match error.errno() {
                // Who has become a user that may not is as good a program as before, and so is who has gone
                // where paths mean something else.
                libc::EACCES => {}
                _ if left::has_all() => {}
                // So is one that has no descriptor left, or no memory.
                libc::EMFILE | libc::ENFILE | libc::ENOMEM => served_by_mount(&why),
                _ => not_served(&why),
            }
            None
        }
    }
}

/// Joins by the slots that the environment names; where the pool has others by now, by those that came since.
fn join_told(mount: &Mount) -> Result<Joined, JoinError> {
    match join_undisturbed(&mount.slots) {
        Err(error @ JoinError::Core(_)) => match slots_now(mount) {
            Some(slots) => join_undisturbed(&slots),
            None => Err(error),
        },
        done => done,
    }
}

/// The slots as the mount's daemon tells them, where some have come since the environment was made. Who is asked is
/// a mount that the pool says is its own: another one that lies there by now may tell anything.
fn slots_now(mount: &Mount) -> Option<Vec<PathBuf>> {
    let (device, first) = (device_of(&mount.target), mount.slots.first()?);
    let served = limits::out_of_the_way(|high| is_served(first, high, numbers_in(device)));
    if device == 0 || !served.unwrap_or(false) {
        return None;
    }
    let path = [mount.target.as_slice(), b"\0"].concat();
    let name = [SLOTS_TOLD.as_bytes(), b"\0"].concat();
    let mut value = vec![0; TOLD_BYTES_MAX];
    let (at, to) = (path.as_ptr(), value.as_mut_ptr());
    let len = sys!(libc::SYS_getxattr, at, name.as_ptr(), to, value.len());
    let told = value.get(..usize::try_from(len).ok()?)?.split(|byte| *byte == 0);
    // Slots come behind the last.
    let came = told.skip(mount.slots.len()).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let all: Vec<PathBuf> = mount.slots.iter().cloned().chain(came).collect();
    (all.len() > mount.slots.len()).then_some(all)
}

/// Joins, and keeps the descriptors from the program. Until then another thread that closes numbers which
/// it has not opened may close these: it is done again then.
fn join_undisturbed(slots: &[PathBuf]) -> Result<Joined, JoinError> {
    look_seldom();
    let attempt = || -> Result<Joined, JoinError> {
        limits::out_of_the_way(|high| {
            let joined = join_from(slots, high, slot_opener())?;
            joined.descriptors().for_each(words::set_internal);
            Ok(joined)
        })
    };
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match attempt() {
            Ok(joined) if left > 0 && joined.descriptors().any(is_closed) => {
                joined.descriptors().for_each(words::forget_internal);
                joined.close().unwrap_or_default();
            }
            Err(error) if left > 0 && matches!(error.errno(), libc::EBADF | libc::ESTALE) => {}
            done => return done,
        }
    }
}

/// Maps slots that other clients add, and keeps their descriptors from the program, as when joining.
fn slot_opener() -> Box<SlotOpener> {
    Box::new(|coming| {
        let attempt = || {
            limits::out_of_the_way(|high| {
                let (mapped, descriptor) = open_coming(coming, high).ok()?;
                words::set_internal(descriptor);
                Some((mapped, descriptor))
            })
        };
        let mut mapped = None;
        for _ in 0..ATTEMPTS {
            // One that is closed by another thread, as it gets its number or after that, is opened once more.
            let Some((found, descriptor)) = attempt() else { continue };
            if !is_closed(descriptor) {
                mapped = Some(found);
                break;
            }
            words::forget_internal(descriptor);
        }
        numbers::freed_any();
        mapped
    })
}

fn is_closed(descriptor: i32) -> bool {
    sys!(libc::SYS_fcntl, descriptor, libc::F_GETFD, 0) < 0
}

/// Says that a mount is not served here; where that is not to be, it is the last that the program does.
fn not_served(why: &str) {
    if !settings::is_strict() {
        served_by_mount(why);
        return;
    }
    let line = format!("novale: {why}: the program ends, because of --strict\n");
    sys!(libc::SYS_write, 2, line.as_ptr(), line.len());
    sys!(libc::SYS_exit_group, UNABLE);
}

fn served_by_mount(why: &str) {
    say(&format!("{why} (the mount serves it)"));
}

/// Why a pool is not taken for the mount's: another one is mounted there by now, since what the environment says is of
/// when `novale run` was called, or something is mounted over it; or nobody can say. Where nothing is mounted, or a
/// mount whose daemon is dead, the pool's programs go on.
fn not_the_mounts(mount: &Mount, fs: &Fs) -> Option<&'static str> {
    let (device, is_own) = mount.look(fs);
    if is_own {
        return None;
    }
    let before = mount.own.swap(0, Ordering::AcqRel);
    if device == 0 {
        // By a filter of calls that is older than this one, for example.
        return (device_of(b"/") == 0)
            .then_some("statx is refused here, and shows which files are the pool's");
    }
    let path = [mount.target.as_slice(), b"\0"].concat();
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    let got = sys!(libc::SYS_statfs, path.as_ptr(), found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let is_anothers = got == 0 && found.f_type == libc::FUSE_SUPER_MAGIC;
    if is_anothers {
        return Some("another pool is mounted there by now");
    }
    // A child of a fork goes on with what its parent has open.
    (before == 0 && covered::is_covered(mount, fs))
        .then_some("something else is mounted over it by now")
}

/// The time and the thread, for a call.
#[inline]
pub(crate) fn ctx() -> Ctx {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a pointer to a live value; the coarse clock is the one that the kernel's own file
    // systems stamp files with.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    Ctx { now_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec, hint: current().hint() }
}

/// Gives up a hold; what fails here, damage and a closed pool, fails everywhere.
pub(crate) fn release(mount: usize, hold: HoldId) {
    if let Some(fs) = fs(mount) {
        fs.open_release(&ctx(), hold).unwrap_or_default();
    }
}

/// The device number that the kernel shows for a mount's files.
pub(crate) fn device(mount: usize) -> u64 {
    let Some(known) = all().get(mount) else { return 0 };
    let device = known.device.load(Ordering::Relaxed);
    if device != 0 {
        return device;
    }
    let device = device_of(&known.target);
    known.device.store(device, Ordering::Release);
    device
}

/// The number of the device that a path leads to, which nobody is asked for; 0 where that is nothing.
fn device_of(path: &[u8]) -> u64 {
    let mut path = path.to_vec();
    path.push(0);
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let got = sys!(
        libc::SYS_statx,
        libc::AT_FDCWD,
        path.as_ptr(),
        flags,
        libc::STATX_TYPE,
        found.as_mut_ptr()
    );
    if got != 0 {
        return 0;
    }
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    libc::makedev(found.stx_dev_major, found.stx_dev_minor)
}

/// What the kernel has opened in a mount.
pub(crate) struct OfMount {
    pub(crate) mount: usize,
    pub(crate) ino: Ino,
    pub(crate) is_directory: bool,
    /// By the mount point that is known here, and not by another one of the same pool.
    pub(crate) is_at_target: bool,
}

/// What a descriptor of the kernel's leads to, where that lies in a mount.
pub(crate) fn of_descriptor(fd: i32) -> Option<OfMount> {
    let (mount, seen, is_at_target) = if let Some(seen) = facts::look(fd, b"\0", 0) {
        let mount = of_seen(&seen)?;
        let is_at_target = all().get(mount)?.is_own(seen.mount);
        // What another mount shows has to be there still: see `of_seen`.
        let is_there = || facts::look(fd, b"\0", 0).is_some_and(|now| now.is(&seen));
        (is_at_target || is_there()).then_some((mount, seen, is_at_target))?
    } else {
        let seen = facts::guess(fd, b"\0")?;
        let mount = with_device(seen.device)?;
        let fs = fs(mount)?;
        let is_own = limits::undisturbed(|| fs.serves_mount(numbers_in(seen.device)));
        let [known, _] = numbers_of(mount);
        is_own.then_some((mount, seen, known != 0 && known == seen.mount))?
    };
    let (ino, is_directory) = (Ino::new(seen.ino), seen.is_directory);
    Some(OfMount { mount, ino, is_directory, is_at_target })
}

/// A number of a mount, 0 where the kernel has none.
fn number(mount: &Mount, mask: u32) -> u64 {
    let path = [mount.target.as_slice(), b"\0"].concat();
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let (at, to) = (path.as_ptr(), found.as_mut_ptr());
    let got = sys!(libc::SYS_statx, libc::AT_FDCWD, at, flags, mask, to);
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    if got == 0 && found.stx_mask & mask != 0 { found.stx_mnt_id } else { 0 }
}

/// Whether nothing in a mount may be executed.
pub(crate) fn is_no_exec(mount: usize) -> bool {
    all().get(mount).is_none_or(|mount| mount.no_exec.load(Ordering::Relaxed))
}

/// Why paths in a mount may lead elsewhere.
const BELOW: &str = "something else is mounted below it by now";

/// Why the kernel is to judge all calls by a mount, which may have changed since `novale run` looked: its flags
/// do not leave a program to change files and to follow links, or paths in it lead elsewhere.
fn judged_by_kernel_now(mount: &Mount) -> Option<&'static str> {
    let own = number(mount, STATX_MNT_ID_UNIQUE);
    let facts = Facts::of(own)?;
    mount.no_exec.store(facts.forbid_exec(), Ordering::Relaxed);
    if !facts.allow_all() {
        return Some("it is read-only, follows no links, or shows other users by now");
    }
    let hides = facts.is_of_a_program() && !facts::is_bare(own);
    hides.then_some(BELOW)
}

/// Another mount of a pool, which shows all of its files elsewhere or a part of them: a bind mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherMount {
    /// The mount's numbers, as [`numbers_of`] has them.
    pub(crate) numbers: [u64; 2],
    pub(crate) no_exec: bool,
    /// Its root, where that is known.
    pub(crate) root: Option<Ino>,
}

/// Major and minor of a device number.
fn numbers_in(device: u64) -> (u32, u32) {
    (libc::major(device), libc::minor(device))
}

/// The mount that has, or has had, a device number: the kernel gives it to the next mount, of whoever that is,
/// when the mount is no more.
pub(crate) fn with_device(device: u64) -> Option<usize> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Ordering::Relaxed) {
        // Once: who can't come to a mount has nothing open in it.
        (0..all().len()).for_each(|mount| _ = self::device(mount));
    }
    let is_here = |mount: &Mount| {
        [&mount.device, &mount.former.device].iter().any(|of| of.load(Ordering::Acquire) == device)
    };
    all().iter().position(is_here).filter(|_| device != 0)
}

/// The mount in which something lies that the kernel has shown. By the mount that the pool was joined by, whose
/// number is given to no other, it is the pool's. By another mount it is, if the device number is the pool's
/// at a moment when both mounts are there: the one that the pool was joined by is asked for here, and whoever
/// acts on the answer sees the other one again after that.
pub(crate) fn of_seen(seen: &Seen) -> Option<usize> {
    let mount = with_device(seen.device)?;
    // It is found when the pool is joined.
    fs(mount)?;
    let known = all().get(mount)?;
    let own = known.own.load(Ordering::Acquire);
    let is_there = || Facts::of(own).is_some_and(|facts| facts.device == seen.device);
    (known.is_own(seen.mount) || own != 0 && is_there()).then_some(mount)
}

/// By which mount of a pool something is seen: none for the one that is known here. How others are mounted
/// may change at any moment, so the kernel is asked each time, and judges the calls by some.
pub(crate) fn seen_by(mount: usize, seen: &Seen) -> Result<Option<OtherMount>, JudgedByKernel> {
    if all().get(mount).is_some_and(|mount| mount.is_own(seen.mount)) {
        return Ok(None);
    }
    // One of another namespace, by a link of a process, is none of those that are promised anything.
    let facts = Facts::of(seen.mount).ok_or(JudgedByKernel)?;
    if !facts.allow_all() || !facts::is_bare(seen.mount) {
        judged_by_kernel(mount);
        return Err(JudgedByKernel);
    }
    Ok(Some(OtherMount::of(seen, &facts)))
}

impl OtherMount {
    fn of(seen: &Seen, facts: &Facts) -> Self {
        Self {
            numbers: [facts.short, seen.mount],
            no_exec: facts.forbid_exec(),
            root: seen.is_root.then_some(Ino::new(seen.ino)),
        }
    }
}

/// The mount that the kernel has opened a descriptor by.
pub(crate) fn other_mount_of(fd: i32) -> Option<OtherMount> {
    let seen = facts::look(fd, b"\0", 0)?;
    Some(OtherMount::of(&seen, &Facts::of(seen.mount)?))
}

/// What calls by a mount are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgedByKernel;

/// Calls by another mount of a pool are the kernel's: where that is not to be, the program ends.
#[cold]
fn judged_by_kernel(mount: usize) {
    report::because(Why::Outside);
    if !settings::is_strict() {
        return;
    }
    let target = all().get(mount).map(|mount| String::from_utf8_lossy(&mount.target));
    let target = target.unwrap_or_default();
    not_served(&format!(
        "{target}: a path leads there by another mount of it, which is read-only, follows no links, shows \
         other users, or has something mounted below"
    ));
}

/// The number of the inode of a descriptor that the kernel has opened, if it is this mount's.
pub(crate) fn inode_of(mount: usize, fd: Ret) -> Option<Ino> {
    let found = of_descriptor(i32::try_from(fd).ok()?)?;
    (found.mount == mount).then_some(found.ino)
}

/// Leaves all pools, since the process ends or becomes another program. No other thread is inside.
pub(crate) fn leave() -> Left {
    let _joining = JOINING.lock();
    let here = has_joined();
    let mut left = Vec::new();
    for mount in all().iter().filter(|_| here) {
        let there = mount.joined.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: leaked by `join`, and not freed: another thread may be about to look at it.
        if let Some(joined) = unsafe { there.as_ref() } {
            joined.close().unwrap_or_default();
            left.push(there);
        }
    }
    Left(left)
}

/// What a process had joined and has left: its memory and descriptors, and its places among the pools' clients.
#[must_use]
pub(crate) struct Left(Vec<*mut Joined>);

impl Left {
    /// Gives all of that back, for a process that goes on. No other thread of the program's is inside; where
    /// there is one of this library's own, which may look at it, it is left for [`Left::free_beside_helpers`].
    pub(crate) fn free(self) -> Option<Self> {
        if helper::count() > 0 {
            return Some(self);
        }
        self.give_back();
        None
    }

    /// Gives back what [`Left::free`] has left, between two threads of this library's own: the next ones begin with
    /// what was joined since. The caller is not inside, and keeps nobody out; where such a thread does not end it stays.
    pub(crate) fn free_beside_helpers(self) {
        _ = helper::without(|| self.give_back());
    }

    /// Nobody looks at it any more.
    fn give_back(self) {
        for there in self.0 {
            // SAFETY: made by a box in `join`, taken from where it stood by `leave`, and nobody looks at it.
            let joined = unsafe { Box::from_raw(there) };
            joined.descriptors().for_each(words::forget_internal);
            kept::free(joined);
        }
        numbers::freed_any();
    }
}

/// As [`leave`], never to come back: nothing of the pools stays in the process' memory and among its
/// descriptors. No thread of this library's own is there any more.
pub(crate) fn leave_for_good() {
    let _joining = JOINING.lock();
    let here = has_joined();
    for mount in all() {
        mount.failed.store(true, Ordering::Relaxed);
        let there = mount.joined.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !here {
            // SAFETY: as in `start_again`.
            unsafe { kept::free_copy(there) };
        } else if !there.is_null() {
            // SAFETY: made by a box in `join`, and nobody else has it any more: threads that are inside
            // may be about to look at it, and there are none.
            let joined = unsafe { Box::from_raw(there) };
            joined.close().unwrap_or_default();
            joined.descriptors().for_each(words::forget_internal);
            kept::free(joined);
        }
    }
}

/// Keeps other threads from joining while the process forks.
pub(crate) fn before_fork() {
    // No other thread may be about to read them.
    all();
    JOINING.take();
    fork_begins();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    fork_ended();
    JOINING.give();
}

/// In the child of a fork, which joins anew when it uses a mount: until then it keeps no slot locked.
pub(crate) fn after_fork() {
    forked();
}
