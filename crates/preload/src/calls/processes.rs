//! New processes and programs, ends of threads and processes, and who the process is.

use novale_posix::report::Event;

use crate::base::heap::HEAP;
use crate::base::lock::Lock;
use crate::base::sys::{Args, Outcome, Ret, Served, fail, sys};
use crate::base::thread::{self, current};
use crate::base::{guard, report};
use crate::fds::quiet::{self, BRIEFLY, PATIENCE, Quiet};
use crate::fds::table::{self, SHARED};
use crate::fds::{holds, kernel, locks};
use crate::maps::{self, foreign, giving, held, hiding, lost, openings};
use crate::mounts::{self, helper, state};
use crate::numbers::{self, limits};
use crate::paths;
use crate::process::exec::{self, Changed};
use crate::process::handed::Copies;
use crate::process::numbered::Numbered;
use crate::process::{confined, exec_call, masks, signals};

/// Words of what `clone3` is told, with room to spare: there are 11.
const CLONE_WORDS: usize = 32;

/// `clone` and its kin: `flags` say what the child shares.
pub(crate) fn clone(number: i64, args: &Args) -> Outcome {
    let (flags, stack, block) = match number {
        libc::SYS_fork => (libc::SIGCHLD as u64, 0, 0),
        libc::SYS_vfork => ((libc::CLONE_VM | libc::CLONE_VFORK) as u64, 0, 0),
        libc::SYS_clone3 => match guard::load::<[u64; 8]>(args[0]) {
            Some(given) => (given[0], given[5], given[7]),
            None => return Outcome::Kernel,
        },
        _ => (args[0], args[1], args[4]),
    };
    if flags & libc::CLONE_THREAD as u64 != 0 {
        let has_own_block = flags & libc::CLONE_SETTLS as u64 != 0;
        if !has_own_block || !is_libcs_block(block) {
            return by_themselves(has_own_block);
        }
        if flags & libc::CLONE_PIDFD as u64 != 0 {
            numbers::clear();
        }
        let is_alone = || flags & libc::CLONE_FILES as u64 != 0;
        if !confined::before_own_descriptors(is_alone) {
            return Outcome::Done(fail(libc::EAGAIN));
        }
        // A thread with a working directory and a root of its own.
        if flags & libc::CLONE_FS as u64 == 0 {
            kernel::take_all(0);
            kernel::elsewhere();
        }
        return Outcome::Kernel;
    }
    // One that has this one's descriptors closes them, and no table here learns of that.
    if flags & libc::CLONE_FILES as u64 != 0 && !confined::before_unseen_calls() {
        return Outcome::Done(fail(libc::EAGAIN));
    }
    // A process that shares the working directory, the root and the umask changes this one's too.
    if flags & libc::CLONE_FS as u64 != 0 {
        kernel::elsewhere();
    }
    if flags & libc::CLONE_VM as u64 != 0 {
        return beside(flags);
    }
    kernel::take_all(SHARED);
    if stack != 0 {
        return Outcome::Kernel;
    }
    let mut words = [0; CLONE_WORDS];
    match without_waiting(number, args, &mut words) {
        Some(given) => Outcome::Done(fork(number, &given)),
        None => Outcome::Kernel,
    }
}

/// The arguments of a call that makes a process with memory of its own, which its parent does not wait for: all
/// others would have to, who are kept out until the call comes back. `None` where they can't be read.
fn without_waiting(number: i64, args: &Args, words: &mut [u64; CLONE_WORDS]) -> Option<Args> {
    const WAITS: u64 = libc::CLONE_VFORK as u64;
    let mut given = *args;
    match number {
        libc::SYS_clone => given[0] &= !WAITS,
        libc::SYS_clone3 => {
            let bytes =
                usize::try_from(args[1]).ok().filter(|bytes| *bytes <= size_of_val(words))?;
            let found = guard::copied(args[0], bytes)?;
            words
                .iter_mut()
                .zip(found.as_chunks::<8>().0)
                .for_each(|(word, found)| *word = u64::from_le_bytes(*found));
            words[0] &= !WAITS;
            given[0] = words.as_ptr() as u64;
        }
        _ => {}
    }
    Some(given)
}

/// A process in the same memory. While its parent waits for it (`vfork`) its calls are the kernel's. One that goes
/// on beside it has the block of the thread that made it, or calls that its parent's tables would be wrong
/// after; so of both all calls are the kernel's from then on, those of all threads.
fn beside(flags: u64) -> Outcome {
    let has_own_block = flags & libc::CLONE_SETTLS as u64 != 0;
    if flags & libc::CLONE_VFORK as u64 != 0 && !has_own_block {
        kernel::take_all(SHARED);
        // What another thread puts at a number before the child has its descriptors would be closed to it.
        let quiet = Quiet::of_call();
        quiet.wait_for_numbers(BRIEFLY);
        kernel::hand_over_all();
        quiet.lend();
        return Outcome::Lend;
    }
    by_themselves(has_own_block)
}

/// A thread or a process whose block here would be another's, or nobody's. Of it and of all others all calls are the
/// kernel's from then on.
fn by_themselves(has_own_block: bool) -> Outcome {
    if !confined::before_unseen_calls() {
        return Outcome::Done(fail(libc::EAGAIN));
    }
    if has_own_block { Outcome::Kernel } else { Outcome::Share }
}

/// Whether a thread's own memory is what libc makes, with room in front for the libraries' thread-local values: it
/// begins with its own address, that of its table of such values (another than this thread has), and its own once more.
fn is_libcs_block(block: u64) -> bool {
    let table_of = |block| match guard::load::<[u64; 3]>(block) {
        Some([first, table, own]) if first == block && own == block => table,
        _ => 0,
    };
    let (table, of_this) = (table_of(block), table_of(thread::block()));
    table != 0 && table != of_this
}

/// `arch_prctl`: a thread may take another block.
pub(crate) fn change_block(args: &Args) -> Outcome {
    const SET: u64 = 0x1002;
    let is_left = args[0] == SET && !is_libcs_block(args[1]) && args[1] != thread::block();
    if is_left { by_themselves(true) } else { Outcome::Kernel }
}

/// Has the kernel copy the process. Of its threads the child has this one alone, so what another one has
/// locked stays so there for ever, and what it was changing stays half changed. So nobody else is inside
/// at that moment: the one who is comes out first, and has no lock then.
///
/// | what a fork could copy held | what keeps it from that |
/// | --- | --- |
/// | a description's position and hold | nobody inside; the child frees them as well ([`table::after_fork`]) |
/// | `Mutex`es of the file system: counters, free holds, settling | nobody inside, ends of threads included ([`exit_thread`]); the child joins anew, and forgets what it would do with its parent's when its thread ends |
/// | locks in the arena | the parent's operation ends there; the child is another client |
/// | joining, handing over, limits, numbers, descriptions, hazards, stacks, lists of locks and of mappings, handlers, the heap | taken here by the thread that forks, for those who are not inside: one that begins or ends, helpers |
/// | hazards of other threads, counts of those without one | the child wipes them |
///
/// A thread that does not come out, as it waits for a client that is stopped, is not waited for without
/// an end: then what the child frees and forgets is what counts.
fn fork(number: i64, args: &Args) -> Ret {
    let quiet = Quiet::of_call();
    let _all_are_out = quiet.wait(PATIENCE);
    // What was opened since the first time: what the kernel has not got the child has to hold itself.
    kernel::take_all(SHARED);
    let gate = held::before_fork();
    // In this order: to take a file may be to join.
    kernel::before_fork();
    mounts::before_fork();
    limits::before_fork();
    table::before_fork();
    numbers::before_fork();
    thread::before_fork();
    locks::before_fork();
    paths::before_fork();
    signals::before_fork();
    foreign::before_fork();
    UMASK.take();
    HEAP.before_fork();
    let is_parents = masks::before_fork();
    let result = sys!(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    HEAP.after_fork();
    UMASK.give();
    foreign::fork_done();
    signals::fork_done();
    paths::fork_done();
    locks::fork_done();
    thread::fork_done();
    numbers::fork_done();
    table::fork_done();
    limits::fork_done();
    mounts::fork_done();
    kernel::fork_done();
    held::fork_done();
    // What its replicas are made of the child copies, as it was at this moment, before another thread of its parent
    // may change it.
    let _quiet = (result > 0 && maps::has_replicas()).then_some(quiet);
    if result == 0 {
        table::after_fork();
        mounts::after_fork();
        limits::after_fork();
        numbers::after_fork();
        locks::after_fork();
        lost::after_fork();
        paths::after_fork();
        current().forget_ends();
        if is_parents {
            masks::forget_noted();
        }
    }
    match gate {
        Some(gate) if result == 0 => gate.pass(),
        Some(gate) => gate.wait(),
        None => {}
    }
    result
}

/// `execve`, `execveat`: the next program finds the descriptors in the kernel.
pub(crate) fn exec(number: i64, args: &Args) -> Outcome {
    kernel::take_all(SHARED);
    // A thread that is inside for ever would stay a client's that looks alive.
    let quiet = Quiet::of_call();
    if !quiet.wait(PATIENCE) {
        return Outcome::Done(fail(libc::EAGAIN));
    }
    // What was opened since the first time, too: nothing else is from here on.
    kernel::hand_over_all();
    let mut given = *args;
    let [a, b, c, d, ..] = &mut given;
    let (dir, path, words, environment) = match number {
        libc::SYS_execveat => (*a, b, c, d),
        _ => (libc::AT_FDCWD as u64, a, b, c),
    };
    let changed = Changed::of(dir, *path, *environment);
    numbers::freed_any();
    if let Some(changed) = &changed {
        *environment = changed.environment;
    }
    let numbered = Numbered::of(number, args);
    let is_in_vain = is_in_vain(number, args);
    // Before the mappings that they lie in are inaccessible.
    let own = if is_in_vain { Ok(None) } else { Copies::of(path, [words, environment]) };
    let own = match own {
        Ok(own) => own,
        Err(error) => return Outcome::Done(error),
    };
    let left = (!is_in_vain).then(|| {
        held::suspend();
        mounts::leave()
    });
    let of_mappings = openings::kept();
    locks::set_kept_stay(true, &of_mappings);
    let result = match numbered {
        Some(program) => program.start(number, &given),
        None => exec_call::exec(number, &given),
    };
    drop(own);
    locks::set_kept_stay(false, &of_mappings);
    let left = left.and_then(|left| {
        let left = left.free();
        held::resume();
        holds::renew();
        left
    });
    drop(quiet);
    if let Some(left) = left {
        quiet::outside(|| left.free_beside_helpers());
        giving::give_unattended();
    }
    result.map_or(Outcome::Again, Outcome::Done)
}

/// Whether there is no program to start, as in most of the directories that one is sought in: nothing is left
/// and joined again for that. A process that becomes one all the same, which was made in this moment, stays a
/// client that nobody has to wait for, as no thread of it is inside.
fn is_in_vain(number: i64, args: &Args) -> bool {
    let (dir, may_run, as_effective) = (libc::AT_FDCWD, libc::X_OK, libc::AT_EACCESS);
    let ask = || sys!(libc::SYS_faccessat2, dir, args[0], may_run, as_effective);
    let is_answered =
        || sys!(libc::SYS_faccessat2, dir, c"/".as_ptr(), libc::F_OK, as_effective) == 0;
    let refused = [libc::ENOENT, libc::ENOTDIR, libc::EACCES].map(fail);
    // One that has confined itself may not be allowed to ask.
    let may_ask = mounts::has_joined() && !confined::is();
    // A filter of calls may answer so whatever is asked.
    number == libc::SYS_execve && may_ask && refused.contains(&ask()) && is_answered()
}

/// `exit_group`: leaves the pools, so that nobody has to find the process dead.
pub(crate) fn exit_process(args: &Args) -> Outcome {
    maps::end();
    // A thread that stores to what is mapped is not inside: others settle for the process then.
    let quiet = Quiet::of_call();
    if quiet.wait(BRIEFLY) && !maps::are_in_use() {
        _ = mounts::leave();
    }
    // From here: on the way back a signal's handler could make a call, which nobody lets in again.
    sys!(libc::SYS_exit_group, args[0]);
    Outcome::Kernel
}

/// `exit` of a thread, which is not inside: another thread may have its hazard at once.
pub(crate) fn exit_thread(args: &Args) -> Outcome {
    // The last of the program's: a helper would keep the process.
    if helper::count() > 0 && helper::is_last_to_end() {
        let _inside = quiet::Serving::new(quiet::Calls::Any);
        return exit_process(args);
    }
    {
        // What ends here has locks of the file system's, which no child must find held.
        let _inside = quiet::Serving::new(quiet::Calls::Any);
        current().end();
    }
    exec::give_back();
    table::give_hazard();
    current().give_stack();
    Outcome::Kernel
}

/// Calls that change who the process is.
pub(crate) fn identity(number: i64, args: &Args) -> Served {
    // The kernel may not open by number for whom it is going to be.
    kernel::take_all(0);
    let before = state::who();
    let call = || sys!(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    let for_files = matches!(number, libc::SYS_setfsuid | libc::SYS_setfsgid);
    let make = || if for_files { Some(call()) } else { quiet::outside(|| helper::without(call)) };
    let result = hiding::by(number, args, make);
    giving::give_unattended();
    state::changed(before);
    Some(result.unwrap_or(fail(libc::EAGAIN)))
}

/// Calls after which paths may mean something else.
pub(crate) fn elsewhere(number: i64, args: &Args) -> Served {
    let has_own = number == libc::SYS_unshare && args[0] & libc::CLONE_FILES as u64 != 0;
    if has_own && !confined::before_own_descriptors(|| !helper::has_other_threads()) {
        return Some(fail(libc::EAGAIN));
    }
    let before = state::who();
    let kernels = || sys!(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    // Others change what all threads share.
    let of_thread = matches!(number, libc::SYS_unshare | libc::SYS_setns);
    let call = || {
        let result = if of_thread { helper::without(kernels) } else { Some(kernels()) };
        result.unwrap_or(fail(libc::EAGAIN))
    };
    let leave = || {
        kernel::elsewhere();
        // Another user namespace may be among what is different.
        state::changed(before);
        report::event(Event::Moved);
    };
    let result = hiding::by(number, args, || paths::leave_by(call, leave));
    giving::give_unattended();
    Some(result)
}

/// `setrlimit`, `prlimit64`.
pub(crate) fn limits(number: i64, args: &Args) -> Served {
    // How many descriptors there may be is asked of the numbers in use.
    numbers::clear();
    let asked = new_limit(number, args);
    if let Some((libc::RLIMIT_NOFILE, limit)) = asked {
        // The kernel puts nothing in the place of a number that is not below it.
        table::each(&mut |fd, description| {
            if fd as u64 >= limit {
                kernel::take(description);
            }
        });
    }
    if let Some((resource @ (libc::RLIMIT_AS | libc::RLIMIT_DATA), limit)) = asked
        && !confined::before_limit_of_memory(resource, limit)
    {
        return Some(fail(libc::EAGAIN));
    }
    let result = limits::change_limits(|| {
        sys!(number, args[0], args[1], args[2], args[3], args[4], args[5])
    });
    state::limits_changed();
    Some(result)
}

/// A resource and its limit from now on, where a call says so of this process.
fn new_limit(number: i64, args: &Args) -> Option<(libc::__rlimit_resource_t, u64)> {
    let [first, second, third, ..] = *args;
    let (whose, resource, given) = match number {
        libc::SYS_prlimit64 => (first as i32, second, third),
        _ => (0, first, second),
    };
    let is_own = || whose == 0 || Ret::from(whose) == sys!(libc::SYS_getpid);
    // Nothing is given where a limit is only asked for.
    if given == 0 || !is_own() {
        return None;
    }
    Some((resource as libc::__rlimit_resource_t, guard::load(given)?))
}

static UMASK: Lock<()> = Lock::new(());

/// `umask(mask)`.
pub(crate) fn umask(args: &Args) -> Served {
    // Of two threads one after the other, so that what is known is what the kernel has.
    let _one = UMASK.lock();
    let before = sys!(libc::SYS_umask, args[0]);
    state::set_umask(args[0] as u32);
    Some(before)
}

/// `chdir(path)`.
pub(crate) fn chdir(args: &Args) -> Served {
    Some(paths::move_by(|| sys!(libc::SYS_chdir, args[0])))
}
