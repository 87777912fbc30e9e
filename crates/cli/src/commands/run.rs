//! `novale run`: a program started so that it serves its own files in shared mounts, without the
//! kernel.
//!
//! The work is a library's that the program loads (`LD_PRELOAD`); here it is found, and told by
//! `NOVALE_DIRECT` which mount points are which pools. What can't be served so, goes through the
//! mount, and this says why.

mod cache;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use novale_core::Ino;
use novale_fuse::{KIND, MountEntry, MountTable, find};
use novale_posix::join::{self, JoinError};
use novale_posix::program::{self, Kind, Unfit};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use crate::base::args::{MapKind, RunArgs};
use crate::base::out::{in_words, shown_path};
use crate::base::words::ForPrograms;
use crate::commands::report;
use crate::holders::ask;

/// What the library reads: `MOUNTPOINT=SLOT[:SLOT...][=WORD[,WORD]]` with the words
/// `hides_attributes`, `sync` and `noexec`, joined by `;`.
const DIRECT_VARIABLE: &str = "NOVALE_DIRECT";
/// What mappings of files are to be, a word for each mount; none for the kernel's.
const MAP_VARIABLE: &str = "NOVALE_MAP";
/// The folder where the library keeps what it has found out about other libraries.
const CACHE_VARIABLE: &str = "NOVALE_CACHE";
/// What the kernel forbids this process, for programs to compare themselves with.
const BEGUN_VARIABLE: &str = "NOVALE_BEGUN";
/// Set where the library is to say what it puts back into the environment of programs.
const VERBOSE_VARIABLE: &str = "NOVALE_VERBOSE";
/// Set where a program is to end rather than go through the mount.
const STRICT_VARIABLE: &str = "NOVALE_STRICT";
/// Names the library where it is in none of the usual places.
const LIBRARY_VARIABLE: &str = "NOVALE_PRELOAD";
const LIBRARY: &str = "libnovale_preload.so";
/// From the folder of this program: beside it, as cargo builds it, and where packages put it.
const PLACES: [&str; 2] = ["", "../lib/novale"];

/// Flags of a mount that forbid what is not asked about in a program's own process.
const FORBIDDING: [&str; 2] = ["ro", "nosymfollow"];

/// Exit codes of env(1), nice(1) and their like.
const UNABLE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Scripts that are run by scripts, as in the kernel.
const SCRIPTS_MAX: usize = 5;

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let Some((program, arguments)) = args.command.split_first() else { bail!("name a program") };
    let mut command = Command::new(program);
    command.args(arguments);
    let mut mounts = Mounts::default();
    let prepared = find_mounts(args, &mut mounts).and_then(|()| prepare(args, &mounts.usable));
    let fit = prepared.and_then(|prepared| check(program).map(|()| prepared));
    match fit {
        Ok(Some(Prepared { library, mounts, maps })) => {
            command.env("LD_PRELOAD", library).env(DIRECT_VARIABLE, mounts);
            command
                .env(MAP_VARIABLE, maps)
                .env(BEGUN_VARIABLE, novale_posix::confinement::confinement().as_str());
            if args.strict {
                command.env(STRICT_VARIABLE, "1");
            } else {
                command.env_remove(STRICT_VARIABLE);
            }
            if args.verbose {
                command.env(VERBOSE_VARIABLE, "1");
            }
            match cache::folder() {
                Some(folder) => command.env(CACHE_VARIABLE, folder),
                None => command.env_remove(CACHE_VARIABLE),
            };
        }
        Ok(None) if args.strict => {
            mounts.refused.iter().for_each(|(_, why)| remark!("novale: {}", in_words(why)));
            return Ok(ExitCode::from(UNABLE));
        }
        Ok(None) => {}
        Err(error) if args.strict => {
            remark!("novale: {}", in_words(&error));
            return Ok(ExitCode::from(UNABLE));
        }
        Err(error) => {
            let program = program.display();
            remark!("novale: {program} runs without direct access: {}", in_words(&error));
        }
    }
    let here = std::env::current_dir().unwrap_or_default();
    let uses = |target: &Path| {
        here.starts_with(target) || args.command.iter().any(|word| names(word, target))
    };
    let mut lacks_one = false;
    for (target, why) in &mounts.refused {
        let uses = uses(target);
        lacks_one |= uses;
        if uses && args.strict {
            remark!("novale: {}", in_words(why));
        } else if uses || args.verbose {
            let program = program.display();
            remark!("novale: {program} runs without direct access: {}", in_words(why));
        }
    }
    if args.strict && lacks_one {
        return Ok(ExitCode::from(UNABLE));
    }
    let error = match &args.report {
        Some(to) => match report::run(command, to)? {
            Ok(code) => return Ok(code),
            Err(error) => error,
        },
        // It comes back only where there is nothing to run.
        None => novale_pm::exec_as_given(&mut command),
    };
    remark!("novale: {}: {error}", program.display());
    let found = error.kind() != std::io::ErrorKind::NotFound;
    Ok(ExitCode::from(if found { NOT_EXECUTABLE } else { NOT_FOUND }))
}

const OLD_LIBC: &str = "its libc is no glibc, or one before 2.35";

/// Refuses a program that can't load the library, or would not start with it.
fn check(program: &OsStr) -> Result<()> {
    let Some(mut path) = find_program(program) else { return Ok(()) };
    for _ in 0..SCRIPTS_MAX {
        // What can't be read may be run all the same; what is no file (to open a FIFO waits) is refused by the kernel.
        if !path.is_file() {
            return Ok(());
        }
        let Ok(file) = std::fs::File::open(&path) else { return Ok(()) };
        let read = |room: &mut [u8], at: u64| file.read_at(room, at).unwrap_or(0);
        match program::kind(read) {
            Kind::Other | Kind::Static => return Ok(()),
            Kind::Linked(by) => {
                let loader = std::fs::File::open(OsStr::from_bytes(by.path().to_bytes()));
                let read = |room: &mut [u8], at: u64| {
                    loader.as_ref().map_or(0, |file| file.read_at(room, at).unwrap_or(0))
                };
                ensure!(!program::is_old_libc(read), "{OLD_LIBC}");
                return Ok(());
            }
            Kind::Unfit(Unfit::OtherLoader) => {
                bail!("it is built for another libc than glibc of 64 bits")
            }
            Kind::Unfit(Unfit::OldLibc) => bail!("{OLD_LIBC}"),
            Kind::Unfit(Unfit::Sanitizer) => {
                bail!("its sanitizer has to be the first library that it loads")
            }
            Kind::Script(by) => path = PathBuf::from(OsStr::from_bytes(by.path().to_bytes())),
        }
    }
    Ok(())
}

/// A program's file, as `execvp` finds it.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths.find(|path| path.metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0))
}

/// The values of the variables.
struct Prepared {
    library: OsString,
    mounts: OsString,
    maps: String,
}

/// A shared mount.
struct Shared {
    /// As the library is told of it.
    entry: OsString,
    told: ForPrograms,
}

/// The shared mounts, and those of them that can't be used directly, with the reason.
#[derive(Default)]
struct Mounts {
    usable: Vec<Shared>,
    refused: Vec<(PathBuf, anyhow::Error)>,
}

fn find_mounts(args: &RunArgs, found: &mut Mounts) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("direct access is written for x86-64 alone");
    }
    if args.mounts.is_empty() {
        return all_mounts(found, args.strict);
    }
    found.usable = named_mounts(&args.mounts)?;
    Ok(())
}

/// Whether a program's argument speaks of a mount: one that it never comes to is nothing to tell.
fn names(word: &OsStr, target: &Path) -> bool {
    let (word, target) = (word.as_bytes(), target.as_os_str().as_bytes());
    word.windows(target.len()).any(|part| part == target)
}

/// What the program is given; nothing where there is no mount to use.
fn prepare(args: &RunArgs, mounts: &[Shared]) -> Result<Option<Prepared>> {
    if mounts.is_empty() {
        return Ok(None);
    }
    let library = library()?;
    let maps: Vec<String> = mounts.iter().map(|mount| map_of(args.map, mount)).collect();
    let mounts: Vec<&OsStr> = mounts.iter().map(|mount| mount.entry.as_os_str()).collect();
    let (mounts, maps) = (mounts.join(OsStr::new(";")), maps.join(";"));
    Ok(Some(Prepared { library: preloaded(&library)?, mounts, maps }))
}

/// What mappings of a mount's files are to be.
fn map_of(given: Option<MapKind>, mount: &Shared) -> String {
    let name = |kind: MapKind| kind.to_possible_value().map(|value| value.get_name().to_owned());
    given.or(mount.told.map).and_then(name).unwrap_or_default()
}

fn library() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(LIBRARY_VARIABLE) {
        let path = Path::new(&named).canonicalize();
        return path.with_context(|| format!("{LIBRARY_VARIABLE}: {}", named.display()));
    }
    let program = std::env::current_exe().context("where this program is")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let tried: Vec<PathBuf> = PLACES.iter().map(|place| folder.join(place).join(LIBRARY)).collect();
    let found = tried.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let shown: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
        anyhow!(
            "there is no {LIBRARY} at {}: build it (cargo build --release), or name it in \
             {LIBRARY_VARIABLE}",
            shown.join(" nor at ")
        )
    })
}

/// The library ahead of what is preloaded already.
fn preloaded(library: &Path) -> Result<OsString> {
    // What the dynamic linker takes for the end of a path.
    if library.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        bail!("{}: a library's path can have neither a colon nor a space", library.display());
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// All shared mounts: those that the caller may use directly, and the others.
fn all_mounts(found: &mut Mounts, strict: bool) -> Result<()> {
    let table = MountTable::read().context("/proc/self/mountinfo")?;
    for mount in table.of_kind(KIND) {
        match usable(&table, mount) {
            Ok(Some(shared)) => found.usable.push(shared),
            // Nothing is said of it elsewhere: it is as good a mount as any.
            Ok(None) if strict && is_own_place(&table, mount) => {
                found.refused.push((mount.target.clone(), not_shared(&mount.target)));
            }
            Ok(None) => {}
            Err(error) => found.refused.push((mount.target.clone(), error)),
        }
    }
    if found.usable.is_empty() && found.refused.is_empty() {
        bail!("there is no shared mount: make one with novale mount -o direct SLOT... DIR");
    }
    Ok(())
}

fn named_mounts(dirs: &[PathBuf]) -> Result<Vec<Shared>> {
    let table = MountTable::read().context("/proc/self/mountinfo")?;
    let named = |dir: &PathBuf| {
        let mount = find(dir)?;
        usable(&table, &mount)?.ok_or_else(|| {
            let dir = shown_path(dir);
            if !mount.is_believed() {
                return anyhow!(
                    "{dir} is another user's mount: only that user's programs share it"
                );
            }
            match table.whole(mount.device).filter(|whole| whole.target != mount.target) {
                Some(whole) => {
                    let (here, there) = (shown_path(&mount.target), shown_path(&whole.target));
                    anyhow!("{here} shows the mount at {there}, or a part of it: name that one")
                }
                None => not_shared(&mount.target),
            }
        })
    };
    dirs.iter().map(named).collect()
}

fn not_shared(dir: &Path) -> anyhow::Error {
    anyhow!("{} is not shared: unmount it, and mount it with -o direct", shown_path(dir))
}

/// Whether a mount is one that is believed, and not a part of it elsewhere.
fn is_own_place(table: &MountTable, mount: &MountEntry) -> bool {
    let whole = table.whole(mount.device);
    mount.is_believed() && whole.is_some_and(|whole| whole.target == mount.target)
}

/// A shared mount at its own place, and not a part of it elsewhere; nothing for one that is not
/// shared. Refused where this process can't join the pool, or its paths may lead elsewhere.
///
/// Where the pool is, the mount table says, which another user's mount may have written in it. So the
/// pool is asked whether one of its clients serves this very mount: its arena is the caller's own.
fn usable(table: &MountTable, mount: &MountEntry) -> Result<Option<Shared>> {
    let target = mount.target.as_path();
    if !is_own_place(table, mount) {
        return Ok(None);
    }
    let (slots, served) = match join::served(&ask::slots_of(mount), mount.device) {
        Ok(Some(found)) => found,
        Ok(None) | Err(JoinError::NotOpen | JoinError::NotShared { .. }) => return Ok(None),
        Err(error) => return Err(error).with_context(|| shown_path(target)),
    };
    if !leads_to(target, mount) {
        bail!("{}: something else is mounted over it", shown_path(target));
    }
    if let Some(other) = table.below(target) {
        let (target, other) = (shown_path(target), shown_path(&other.target));
        bail!("{target}: something else is mounted below it, at {other}");
    }
    if let Some(flag) = keeps_from(mount) {
        bail!("{}: it is mounted with {flag}, which the kernel sees to", shown_path(target));
    }
    let told = ForPrograms::from_bits(served.words);
    Ok(Some(Shared { entry: entry(mount, &slots, told)?, told }))
}

/// Whether the path of a mount leads to its root: not where something is mounted over it, or over a directory above.
/// The mount's daemon is not asked, which may be stopped; where the call is refused the library says so.
fn leads_to(target: &Path, mount: &MountEntry) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    match statx(CWD, target, flags, StatxFlags::INO) {
        Ok(found) => {
            let device = (found.stx_dev_major, found.stx_dev_minor);
            device == mount.device && found.stx_ino == Ino::ROOT.get()
        }
        Err(error) => matches!(error, Errno::PERM | Errno::NOSYS),
    }
}

/// A flag of a mount that keeps programs from what they would do here.
fn keeps_from(mount: &MountEntry) -> Option<&'static str> {
    FORBIDDING.into_iter().find(|flag| has_flag(mount, flag))
}

fn has_flag(mount: &MountEntry, flag: &str) -> bool {
    mount.options.split(',').chain(mount.super_options.split(',')).any(|word| word == flag)
}

/// A mount as the library is told of it.
fn entry(mount: &MountEntry, slots: &[PathBuf], told: ForPrograms) -> Result<OsString> {
    let target = mount.target.as_path();
    let canonical =
        |slot: &PathBuf| slot.canonicalize().with_context(|| slot.display().to_string());
    let slots: Vec<PathBuf> = slots.iter().map(canonical).collect::<Result<_>>()?;
    for path in slots.iter().map(PathBuf::as_path).chain([target]) {
        if path.as_os_str().as_bytes().iter().any(|byte| b"=:;".contains(byte)) {
            bail!("{}: a path with '=', ':' or ';' can't be told to programs", path.display());
        }
    }
    let mut entry = target.as_os_str().to_owned();
    entry.push("=");
    let slots: Vec<&OsStr> = slots.iter().map(|slot| slot.as_os_str()).collect();
    entry.push(slots.join(OsStr::new(":")));
    let words = [
        (told.hides_attributes, "hides_attributes"),
        (mount.is_sync(), "sync"),
        // The kernel may not be able to tell programs, or not be allowed to.
        (has_flag(mount, "noexec"), "noexec"),
    ];
    let words = words.into_iter().filter(|(is_said, _)| *is_said).map(|(_, word)| word);
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        entry.push("=");
        entry.push(words.join(","));
    }
    Ok(entry)
}
