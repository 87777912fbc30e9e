//! What a program that is started is told of this library.
//!
//! - One that can't load it: its name is taken out of what is to be preloaded. Its loader would say of it
//!   that it is of another kind, or is not there, and some would not start.
//! - One that can: library and mounts are put back, as `novale run` named them, where a program has
//!   replaced `LD_PRELOAD` or emptied the environment. Who sets `NOVALE_DIRECT` empty leaves a program,
//!   and what it starts, to the mount.
//! - One that may not store to as much as the library has from the start: as one that can't.
//! - One that a program starts which has confined itself: as one that can't. A filter that allows what such
//!   programs call, and nothing else, would end them for what this library does when it is loaded. So
//!   nothing is asked of files then either.
//!
//! This runs in children made by `vfork` too, in their parent's memory and on the stack that it has for this library,
//! or on one of the program's making: it takes no lock, and little stack. What is made for the next program lies in a
//! mapping of its own, which the parent's thread gives back with its next one.

use std::sync::atomic::Ordering;

use novale_posix::program::{self, Kind};

use crate::base::settings::{self, PRELOAD, Variable, is_between, is_own, own_path};
use crate::base::sys::{Ret, limit_of, sys};
use crate::base::thread::current;
use crate::base::{guard, left, report};
use crate::fds::quiet;
use crate::process::confined;

/// What `novale run` tells besides; the mounts first.
const SESSION: [Variable; 8] = Variable::ALL;
/// Declines direct access.
const NONE: &[u8] = b"NOVALE_DIRECT=\0";
/// Bytes of the variable's value at most, with its end.
const VALUE_MAX: usize = 4096;
/// Strings of an environment at most.
const ENTRIES_MAX: usize = 1 << 20;
/// Scripts that are run by scripts, as in the kernel.
const SCRIPTS_MAX: usize = 5;
/// Bytes of a line that says something, at most.
const LINE_MAX: usize = 512;
/// What a program may store to (`RLIMIT_DATA`) has to be as much: the library has 2.3 MB from the start, and
/// programs some of their own.
const DATA_MIN: u64 = 4 << 20;
const PAGE: usize = 4096;

/// A call of a child in its parent's memory. The number of one that the kernel is to make as it is; of `execve` what
/// it failed with.
pub(crate) extern "C" fn novale_call_lent(
    path: u64,
    words: u64,
    environment: u64,
    number: i64,
) -> Ret {
    let thread = current();
    if thread.is_lent.swap(0, Ordering::Relaxed) != 0 {
        quiet::end_own_lending();
        let (mask, none) = (thread.lent_mask.as_ptr(), 0);
        sys!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, mask, none, size_of::<u64>());
    }
    if number != libc::SYS_execve {
        return number;
    }
    let changed = Changed::of(libc::AT_FDCWD as u64, path, environment);
    let given = changed.as_ref().map_or(environment, |changed| changed.environment);
    sys!(libc::SYS_execve, path, words, given)
}

/// An environment in place of the program's own, for as long as it lives.
pub(crate) struct Changed {
    pub(crate) environment: u64,
}

impl Changed {
    /// What the program at `path` is to be told; `None` where it is what it was told.
    pub(crate) fn of(dir: u64, path: u64, environment: u64) -> Option<Self> {
        let found = Found::of(environment)?;
        let names_own = found.preload.is_some_and(names_own);
        let puts_back = || !found.declines && own_is_there();
        let is_there = || !(names_own && left::has_all() && !own_is_there());
        let can_load = !confined::is() && fits(dir, path) && is_there();
        let change = match (can_load, names_own) {
            (true, true) if found.has_mounts() || !puts_back() => return None,
            (true, true) => Preloaded::Mounts,
            (true, false) if left::has_all() || !puts_back() => return None,
            (true, false) => Preloaded::PutIn,
            (false, true) => Preloaded::TakeOut,
            (false, false) => return None,
        };
        // Of a child that has become another program.
        give_back();
        let entries = found.count + SESSION.len() + 2;
        let bytes = (entries * 8 + VALUE_MAX).next_multiple_of(PAGE);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // What is shared does not count as the program's data, of which it may have no more.
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let made = sys!(libc::SYS_mmap, 0, bytes, access, flags, u64::MAX, 0);
        let made = u64::try_from(made).ok()?;
        let given = &current().given;
        given[1].store(bytes as u64, Ordering::Relaxed);
        given[0].store(made, Ordering::Relaxed);
        // SAFETY: a fresh mapping of so many bytes, zeroes.
        let room = unsafe { std::slice::from_raw_parts_mut(made as *mut u8, bytes) };
        let (value, list) = room.split_at_mut(VALUE_MAX);
        let value_stays = change.write(found.preload, value)?;
        let mut to = list.chunks_exact_mut(8);
        let mut put = |entry: u64| {
            to.next()?.copy_from_slice(&entry.to_le_bytes());
            Some(())
        };
        let mounts = |entry| guard::starts_with(entry, Variable::Mounts.name());
        for index in 0..found.count {
            let entry = guard::load(environment + 8 * index as u64)?;
            if Some(entry) != found.preload && !(confined::is() && mounts(entry)?) {
                put(entry)?;
            }
        }
        if value_stays {
            put(made)?;
        }
        if !matches!(change, Preloaded::TakeOut) {
            let missing = |has: &bool| !*has && !found.has_mounts();
            for (told, _) in SESSION.iter().zip(&found.has).filter(|(_, has)| missing(has)) {
                let told = settings::string(*told) as u64;
                if told != 0 {
                    put(told)?;
                }
            }
            say(path);
        }
        Some(Self { environment: made + VALUE_MAX as u64 })
    }
}

/// What becomes of the variable that names libraries.
#[derive(Debug, Clone, Copy)]
enum Preloaded {
    /// This library is named again.
    PutIn,
    /// It is named; the mounts are not.
    Mounts,
    /// It is named no longer.
    TakeOut,
}

impl Preloaded {
    /// Writes the variable as it is to be, from how it was; false where nothing is left of it.
    fn write(self, preload: Option<u64>, room: &mut [u8]) -> Option<bool> {
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            // The end stays a NUL.
            let room = room.get_mut(..VALUE_MAX - 1)?;
            room.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
            len += bytes.len();
            Some(())
        };
        put(PRELOAD)?;
        let mut some = false;
        let mut name = |library: &[u8]| {
            if some {
                put(b":")?;
            }
            some = true;
            put(library)
        };
        if let Some(preload) = preload {
            let stays = |library: &[u8]| !is_own(library) || matches!(self, Self::Mounts);
            each(preload, |library| if stays(library) { name(library) } else { Some(()) })?;
        }
        // After the others: some have to be the first.
        if matches!(self, Self::PutIn) {
            name(own_path()?)?;
        }
        Some(some)
    }
}

/// What an environment says.
struct Found {
    /// How many strings there are.
    count: usize,
    /// Where the variable is that names libraries.
    preload: Option<u64>,
    /// Which of [`SESSION`] there are.
    has: [bool; SESSION.len()],
    /// Whether direct access is declined.
    declines: bool,
}

impl Found {
    /// `None` where it can't be read.
    fn of(environment: u64) -> Option<Self> {
        let mut found =
            Self { count: 0, preload: None, has: [false; SESSION.len()], declines: false };
        // The kernel takes no list for an empty one.
        if environment == 0 {
            return Some(found);
        }
        loop {
            let entry: u64 = guard::load(environment.checked_add(8 * found.count as u64)?)?;
            if entry == 0 {
                break;
            }
            if found.preload.is_none() && guard::starts_with(entry, PRELOAD)? {
                found.preload = Some(entry);
            }
            for (has, name) in found.has.iter_mut().zip(SESSION) {
                *has |= guard::starts_with(entry, name.name())?;
            }
            found.declines |= guard::starts_with(entry, NONE)?;
            found.count += 1;
            if found.count > ENTRIES_MAX {
                return None;
            }
        }
        Some(found)
    }

    fn has_mounts(&self) -> bool {
        let [mounts, ..] = self.has;
        mounts
    }
}

/// Says that direct access was put back, where all of that is to be said.
fn say(path: u64) {
    if settings::value(Variable::Verbose).is_none() {
        return;
    }
    let mut line = [0u8; LINE_MAX];
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        if let Some(room) = line.get_mut(len..len + bytes.len()) {
            room.copy_from_slice(bytes);
            len += bytes.len();
        }
    };
    put(b"novale: direct access is put back into the environment of ");
    for at in path..path + LINE_MAX as u64 {
        match guard::load::<u8>(at) {
            None | Some(0) => break,
            Some(byte) => put(&[byte]),
        }
    }
    put(b"\n");
    sys!(libc::SYS_write, 2, line.as_ptr(), len);
}

/// Gives back what was made for a child of this thread.
pub(crate) fn give_back() {
    let [at, bytes] = &current().given;
    let (at, bytes) = (at.swap(0, Ordering::Relaxed), bytes.load(Ordering::Relaxed));
    if at != 0 {
        sys!(libc::SYS_munmap, at, bytes);
    }
}

/// Visits each of the variable's libraries; `None` where one is too long, or `visit` says so.
fn each(entry: u64, mut visit: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    let mut value = [0u8; VALUE_MAX / 4];
    let mut len = 0;
    for at in entry + PRELOAD.len() as u64.. {
        let byte: u8 = guard::load(at)?;
        if byte != 0 && !is_between(byte) {
            *value.get_mut(len)? = byte;
            len += 1;
            continue;
        }
        let library = value.get(..len)?;
        if !library.is_empty() {
            visit(library)?;
        }
        if byte == 0 {
            break;
        }
        len = 0;
    }
    Some(())
}

/// Whether the variable names this library.
fn names_own(entry: u64) -> bool {
    let mut named = false;
    each(entry, |library| {
        named |= is_own(library);
        Some(())
    });
    named
}

/// Whether the loader will find this library, which is a question where paths lead elsewhere by now, or
/// the user is another one.
fn own_is_there() -> bool {
    let Some(path) = own_path() else { return false };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let fd = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    fd >= 0 && sys!(libc::SYS_close, fd) == 0
}

/// Reads a file from an offset on; how many bytes.
fn read(fd: i64, room: &mut [u8], at: u64) -> usize {
    let got = sys!(libc::SYS_pread64, fd, room.as_mut_ptr(), room.len(), at);
    usize::try_from(got).unwrap_or(0)
}

/// Whether a program loads what it is told to preload, as far as its file says, and its limit of data: the loader
/// ends one that has no room for what is preloaded.
fn fits(dir: u64, named: u64) -> bool {
    if limit_of(libc::RLIMIT_DATA).is_some_and(|[soft, _]| soft < DATA_MIN) {
        report::program(named);
        return false;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut fd = sys!(libc::SYS_openat, dir, named, flags, 0);
    for _ in 0..SCRIPTS_MAX {
        if fd < 0 {
            break;
        }
        let kind = program::kind(|room, at| read(fd, room, at));
        sys!(libc::SYS_close, fd);
        match kind {
            Kind::Other => break,
            Kind::Linked(by) => {
                let path = by.path().as_ptr();
                let loader = sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
                let is_old = loader >= 0 && program::is_old_libc(|room, at| read(loader, room, at));
                sys!(libc::SYS_close, loader);
                if is_old {
                    report::program(named);
                }
                return !is_old;
            }
            Kind::Static => {
                report::program(named);
                break;
            }
            Kind::Unfit(_) => {
                report::program(named);
                return false;
            }
            Kind::Script(by) => {
                let path = by.path().as_ptr();
                fd = sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
            }
        }
    }
    true
}
