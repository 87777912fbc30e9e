//! `novale quota`: what directory trees of a mount use and may use.
//!
//! Through the mount, by the attributes that it keeps for this (`novale_fuse`, `tree.rs`): so it works
//! beside everything else that uses the pool.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, XattrFlags, fstat, getxattr, lgetxattr, lsetxattr, openat,
    removexattr, setxattr,
};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use serde::Serialize;

use crate::base::args::{QuotaClearArgs, QuotaCommand, QuotaSetArgs, QuotaShowArgs};
use crate::base::out::on_one_line;
use crate::base::progress::Count;
use crate::base::size::show_size;
use crate::holders::patience::patiently;

const PROJECT: &str = "trusted.novale.project";
const ABOVE: &str = "trusted.novale.above";
const QUOTA: &str = "trusted.novale.quota";
const QUOTAS: &str = "trusted.novale.quotas";
/// No attribute's value is longer.
const VALUE_BYTES_MAX: usize = 65_536;
const PAGE: u64 = 4096;
/// Listings of a directory to find what was left out.
const LISTINGS_MAX: u32 = 8;
/// Times that all below a directory is gone through where a tree is taken away and something counts for it still: a
/// removed file that is open does until it is closed.
const ROUNDS_MAX: u32 = 4;
/// Directories on one way down that are open at once.
const OPEN_MAX: usize = 256;

pub(crate) fn run(command: &QuotaCommand) -> Result<()> {
    match command {
        QuotaCommand::Set(args) => patiently(&[&args.dir], || set(args)),
        QuotaCommand::Show(args) => patiently(&[&args.dir], || show(args)),
        QuotaCommand::Clear(args) => patiently(&[&args.dir], || clear(args)),
    }
}

/// Makes DIR a tree of its own, if it is none, with all that is below it; then sets its limits.
fn set(args: &QuotaSetArgs) -> Result<()> {
    if args.space.is_none() && args.inodes.is_none() {
        bail!("give a limit: --space SIZE, --inodes NUMBER, or none for either");
    }
    let top = Top::directory(&args.dir)?;
    let (from, own) = (top.project()?, top.own_number()?);
    let alone = top.alone()?;
    // What an earlier call was interrupted in is gone on with.
    let before = if from == own { top.tree_around()? } else { from };
    if from != own {
        top.put(PROJECT, &own.to_string())?;
    }
    // What is made meanwhile is in the tree.
    let moved = move_below(&top, &alone, before, Goal::Tree(own));
    let old = top.quota()?;
    let pages = args.space.map_or(old.pages_max, |limit| limit.0.div_ceil(PAGE));
    let inodes = args.inodes.map_or(old.inodes_max, |limit| limit.0);
    // What could be counted is limited in any case.
    top.put(QUOTA, &format!("pages_max={pages} inodes_max={inodes}"))?;
    moved
}

/// Takes the limits away, and counts DIR and what is below it for the tree around it.
fn clear(args: &QuotaClearArgs) -> Result<()> {
    let top = Top::directory(&args.dir)?;
    let (from, own, around) = (top.project()?, top.own_number()?, top.tree_around()?);
    // An earlier call may have been interrupted when the directory counted for the tree around it, and not all below.
    if from != own && !(from == around && top.has_any(own)?) {
        bail!("{}: not the top of a tree with a quota", args.dir.display());
    }
    let alone = top.alone()?;
    if from == own {
        top.end_limits()?;
        top.put(PROJECT, &around.to_string())?;
        // It may have been moved before it counted for the tree around it, and can't be moved to another since.
        if top.tree_around()? != around {
            top.put(PROJECT, &own.to_string())?;
            bail!("{}: moved to another tree meanwhile; call this again", args.dir.display());
        }
    }
    // What is made meanwhile is in the tree around. What was renamed meanwhile may have been passed by.
    for _ in 0..ROUNDS_MAX {
        move_below(&top, &alone, own, Goal::Tree(around))?;
        if !top.has_any(own)? {
            return Ok(());
        }
    }
    // What lies elsewhere: it was moved there with a directory that counted for the tree around already.
    let highest = top.highest()?;
    move_below(&highest, &highest.alone()?, own, Goal::OfHolder)?;
    if !top.has_any(own)? {
        return Ok(());
    }
    remark!(
        "novale: {}: something counts for the tree still, a removed file that is open or what was moved meanwhile: the \
         same call goes on",
        args.dir.display()
    );
    Ok(())
}

/// What is to count for another tree is to count for.
#[derive(Debug, Clone, Copy)]
enum Goal {
    Tree(u32),
    /// What the directory that it lies in counts for.
    OfHolder,
}

/// Makes all below `top` that counts for tree `from` count for another one; other trees are left alone.
///
/// It goes from directory to directory and back: a whole path may be longer than one can be, and lead elsewhere by then.
/// What lies in a directory of the tree and does not count for it keeps its name there. So a directory is opened before
/// it is made to count, and what is in it listed after that; and it is gone on with in what is open, wherever it was
/// moved. What is mounted below it is no part of it, and hides nothing.
fn move_below(top: &Top<'_>, alone: &OwnedFd, from: u32, goal: Goal) -> Result<()> {
    let mut done = Count::new("inodes counted");
    let shown = || top.path.display().to_string();
    let here = open_directory(alone, ".", OFlags::empty()).with_context(shown)?;
    let first = Level::moved(here, (from, goal), &mut done).with_context(shown)?;
    let top_ino = first.as_ref().map(|level| level.ino);
    let mut levels: Vec<Level> = first.into_iter().collect();
    while let Some(level) = levels.last_mut() {
        let trees = (from, level.tree);
        let Some(name) = level.directories.pop() else {
            if level.has_left_out(trees).with_context(shown)? {
                continue;
            }
            let left = levels.pop();
            if let (Some(left), Some(above)) = (left, levels.last_mut()) {
                above.open_above(&left).with_context(shown)?;
            }
            continue;
        };
        let below = match open_directory(level.here()?, &name, OFlags::NOFOLLOW) {
            Ok(below) => below,
            // Gone, or something else by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(error) => return Err(error).with_context(|| under(top.path, &name)),
        };
        let is_in = is_taken_in(&below, trees, top_ino).with_context(|| under(top.path, &name))?;
        if is_in || matches!(goal, Goal::OfHolder) {
            let level = Level::moved(below, (from, goal), &mut done);
            levels.extend(level.with_context(|| under(top.path, &name))?);
            if let Some(far) = levels.len().checked_sub(OPEN_MAX) {
                levels.get_mut(far).into_iter().for_each(|level| level.here = None);
            }
        }
    }
    Ok(())
}

/// Makes a directory that is open count for the tree `to`, as long as it lies there, or in the directory `top`, which may
/// not count for it yet; says whether it does.
fn is_taken_in(dir: &OwnedFd, (from, to): (u32, u32), top: Option<u64>) -> Result<bool> {
    let own = place_of(dir).join(".");
    if !move_one(&own, (from, to))? {
        return Ok(false);
    }
    // It may have been moved away before it counted, and can't be since.
    let is_here = |(above, tree)| tree == to || Some(above) == top;
    if from != to && !gone_is_none(above(&own))?.is_some_and(is_here) {
        gone_is_none(put(&own, PROJECT, &from.to_string()))?;
        return Ok(false);
    }
    Ok(true)
}

/// A directory on the way down.
struct Level {
    ino: u64,
    /// What is in it is to count for this tree.
    tree: u32,
    /// None where so many are open below it.
    here: Option<OwnedFd>,
    /// Those in it that are still to be gone into.
    directories: Vec<OsString>,
    /// How often it may be listed once more.
    listings: u32,
}

impl Level {
    /// Moves what is in a directory, but for directories; none where it is gone.
    fn moved(here: OwnedFd, (from, goal): (u32, Goal), done: &mut Count) -> Result<Option<Self>> {
        let tree = match goal {
            Goal::Tree(tree) => Some(tree),
            Goal::OfHolder => gone_is_none(project(&place_of(&here).join(".")))?,
        };
        let Some(tree) = tree else { return Ok(None) };
        let directories = Self::listed(&here, (from, tree), done)?;
        let ino = fstat(&here)?.st_ino;
        Ok(Some(Self { ino, tree, here: Some(here), directories, listings: LISTINGS_MAX }))
    }

    /// Looks for directories that do not count yet though all were gone into, as one that came while it was listed.
    fn has_left_out(&mut self, (from, to): (u32, u32)) -> Result<bool> {
        let Some(left) = self.listings.checked_sub(1).filter(|_| from != to) else {
            return Ok(false);
        };
        self.listings = left;
        let (here, mut found) = (self.here()?, Vec::new());
        for entry in Dir::read_from(here)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let may_be = !matches!(entry.file_type(), FileType::RegularFile | FileType::Symlink);
            if may_be && name != "." && name != ".." {
                let path = place_of(here).join(name);
                let counts_before = gone_is_none(project(&path))? == Some(from);
                if counts_before && path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                    found.push(name.to_owned());
                }
            }
        }
        self.directories = found;
        Ok(!self.directories.is_empty())
    }

    /// The directories in one, the rest of which is moved.
    fn listed(here: &OwnedFd, trees: (u32, u32), done: &mut Count) -> Result<Vec<OsString>> {
        let (place, mut directories) = (place_of(here), Vec::new());
        for entry in Dir::read_from(here)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let path = place.join(name);
            done.one_more();
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(name.to_owned()),
                Ok(_) => drop(move_one(&path, trees)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| on_one_line(&name.display().to_string()));
                }
            }
        }
        Ok(directories)
    }

    fn here(&self) -> Result<&OwnedFd> {
        self.here.as_ref().context("a directory that is closed")
    }

    /// Opens this directory again from the one below it that is left, where it is not open.
    fn open_above(&mut self, below: &Self) -> Result<()> {
        if self.here.is_none() {
            let here = match open_directory(below.here()?, "..", OFlags::empty()) {
                // Nothing leads out of the tree.
                Err(Errno::NOENT) => None,
                here => Some(here?),
            };
            let ino = here.as_ref().map(rustix::fs::fstat).transpose()?.map(|found| found.st_ino);
            if ino != Some(self.ino) {
                bail!("a directory below it was moved meanwhile; call this again");
            }
            self.here = here;
        }
        Ok(())
    }
}

/// A path to what is open. By this no link is followed but the last part, which is no link in calls that follow none.
fn place_of(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// What a call is about: opened once, as its path may lead elsewhere at the next step.
struct Top<'a> {
    /// As it was called.
    path: &'a Path,
    /// Keeps the mount from being taken away, as what is open in a view of it does not.
    open: OwnedFd,
}

impl<'a> Top<'a> {
    fn directory(path: &'a Path) -> Result<Self> {
        match open_directory(CWD, path, OFlags::empty()) {
            Ok(open) => Ok(Self { path, open }),
            Err(Errno::NOTDIR) => bail!("{}: not a directory", path.display()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// A file too, which is not opened by its own means.
    fn any(path: &'a Path) -> Result<Self> {
        let open = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { path, open: open.with_context(|| path.display().to_string())? })
    }

    /// The directory as it is without what is mounted below it: where its users have mounted something of theirs,
    /// another file system would be met, or another part of this one, and what lies under it would not.
    fn alone(&self) -> Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        open_tree(&self.open, "", flags)
            .context("the kernel does not show it without what is mounted below it (open_tree)")
            .with_context(|| self.path.display().to_string())
    }

    /// The highest directory above it that is seen of the mount.
    fn highest(&self) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let here = openat(&self.open, ".", flags, Mode::empty());
        let mut top =
            Self { path: self.path, open: here.with_context(|| self.path.display().to_string())? };
        while let Some(above) = top.above()? {
            top = above;
        }
        Ok(top)
    }

    /// The directory that this one lies in; none above the top of a mount.
    fn above(&self) -> Result<Option<Self>> {
        let shown = || self.path.display().to_string();
        let here = fstat(&self.open).with_context(shown)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let above = openat(&self.open, "..", flags, Mode::empty()).with_context(shown)?;
        let found = fstat(&above).with_context(shown)?;
        let is_top = here.st_dev != found.st_dev || here.st_ino == found.st_ino;
        Ok((!is_top).then_some(Self { path: self.path, open: above }))
    }

    /// The number of the tree that hangs from a directory: the directory's own.
    fn own_number(&self) -> Result<u32> {
        let shown = || self.path.display().to_string();
        let ino = fstat(&self.open).with_context(shown)?.st_ino;
        u32::try_from(ino).with_context(|| format!("{}: its number", shown()))
    }

    /// The tree that a directory lies in, its own left aside; none above the top of a mount.
    fn tree_around(&self) -> Result<u32> {
        self.above()?.map_or(Ok(0), |above| above.project())
    }

    fn project(&self) -> Result<u32> {
        let text = self.get(PROJECT)?;
        text.parse()
            .with_context(|| format!("{}: not a tree's number: {text}", self.path.display()))
    }

    fn quota(&self) -> Result<Quota> {
        let line = self.get(QUOTA)?;
        Quota::parse(&line).with_context(|| format!("{}: not a quota: {line}", self.path.display()))
    }

    /// All trees of a mount that have anything or are limited.
    fn quotas(&self) -> Result<Vec<Quota>> {
        let (mut all, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            all.extend(self.quotas_from(from)?);
            next = all
                .last()
                .filter(|last| last.tree >= from)
                .and_then(|last| last.tree.checked_add(1));
        }
        Ok(all)
    }

    /// The first of them from a tree's number on.
    fn quotas_from(&self, tree: u32) -> Result<Vec<Quota>> {
        let lines = self.get(&format!("{QUOTAS}.{tree}"))?;
        Ok(lines.lines().filter_map(Quota::parse).collect())
    }

    /// Whether anything in the mount counts for a tree, or is limited by it.
    fn has_any(&self, tree: u32) -> Result<bool> {
        Ok(self.quotas_from(tree)?.first().is_some_and(|first| first.tree == tree))
    }

    fn get(&self, name: &str) -> Result<String> {
        value_of(self.path, |value| getxattr(place_of(&self.open), name, value))
    }

    fn put(&self, name: &str, value: &str) -> Result<()> {
        setxattr(place_of(&self.open), name, value.as_bytes(), XattrFlags::empty())
            .map_err(|error| failed(self.path, error))
    }

    fn end_limits(&self) -> Result<()> {
        removexattr(place_of(&self.open), QUOTA)
            .with_context(|| format!("{}: remove the limits", self.path.display()))
    }
}

fn open_directory(
    dir: impl AsFd,
    path: impl AsRef<Path>,
    how: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(dir, path.as_ref(), flags | how, Mode::empty())
}

/// Something below a directory, for an error.
fn under(top: &Path, name: &OsStr) -> String {
    let name = on_one_line(&name.display().to_string());
    format!("{name} in a directory below {}", top.display())
}

/// Has one that counts for the tree `from` count for `to`; says whether it does now. Not what is gone.
fn move_one(path: &Path, (from, to): (u32, u32)) -> Result<bool> {
    let Some(now) = gone_is_none(project(path))? else { return Ok(false) };
    if now == from && from != to {
        return Ok(gone_is_none(put(path, PROJECT, &to.to_string()))?.is_some());
    }
    Ok(now == to)
}

fn gone_is_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.downcast_ref(), Some(&(Errno::NOENT | Errno::STALE))) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A tree's use and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Quota {
    tree: u32,
    bytes_used: u64,
    inodes_used: u64,
    /// The limits; 0 is none.
    bytes_max: u64,
    inodes_max: u64,
    #[serde(skip)]
    pages_max: u64,
}

impl Quota {
    /// Reads a line of the mount.
    fn parse(line: &str) -> Option<Self> {
        let word = |key: &str| -> Option<u64> {
            let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
            words.find(|(name, _)| *name == key)?.1.parse().ok()
        };
        let pages_max = word("pages_max")?;
        Some(Self {
            tree: u32::try_from(word("project")?).ok()?,
            bytes_used: word("pages")?.saturating_mul(PAGE),
            inodes_used: word("inodes")?,
            bytes_max: pages_max.saturating_mul(PAGE),
            inodes_max: word("inodes_max")?,
            pages_max,
        })
    }
}

fn show(args: &QuotaShowArgs) -> Result<()> {
    let top = Top::any(&args.dir)?;
    let all = if args.all {
        top.quotas()?
    } else if top.project()? == 0 {
        bail!("{}: in no tree with a quota (--all shows those of the mount)", args.dir.display());
    } else {
        vec![top.quota()?]
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    say!("{:>10}  {:>12} {:>12}  {:>10} {:>10}", "tree", "used", "limit", "inodes", "limit")?;
    for quota in all {
        let limit = |limit: u64, shown: String| if limit == 0 { "none".to_owned() } else { shown };
        say!(
            "{:>10}  {:>12} {:>12}  {:>10} {:>10}",
            quota.tree,
            show_size(quota.bytes_used),
            limit(quota.bytes_max, show_size(quota.bytes_max)),
            quota.inodes_used,
            limit(quota.inodes_max, quota.inodes_max.to_string())
        )?;
    }
    Ok(())
}

/// The tree that what a path leads to counts for; of a link the link itself.
fn project(path: &Path) -> Result<u32> {
    let text = get(path, PROJECT)?;
    text.parse().with_context(|| format!("{}: not a tree's number: {text}", path.display()))
}

/// The directory that one lies in, and the tree which that counts for. `..` leads nowhere in what was moved out of where
/// the view of it begins.
fn above(path: &Path) -> Result<(u64, u32)> {
    let text = get(path, ABOVE)?;
    let numbers =
        text.split_once(' ').and_then(|(ino, tree)| Some((ino.parse().ok()?, tree.parse().ok()?)));
    numbers.with_context(|| format!("{}: no directory's number: {text}", path.display()))
}

fn get(path: &Path, name: &str) -> Result<String> {
    value_of(path, |value| lgetxattr(path, name, value))
}

fn value_of(
    shown: &Path,
    get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> Result<String> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let len = get(&mut value).map_err(|error| failed(shown, error))?;
    value.truncate(len);
    String::from_utf8(value).with_context(|| shown.display().to_string())
}

fn put(path: &Path, name: &str, value: &str) -> Result<()> {
    lsetxattr(path, name, value.as_bytes(), XattrFlags::empty())
        .map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: Errno) -> anyhow::Error {
    let why = match error {
        Errno::NOTSUP | Errno::NODATA if !rustix::process::geteuid().is_root() => {
            "only root may see and change quotas"
        }
        Errno::PERM => "only root may see and change quotas",
        Errno::NOTSUP | Errno::NODATA => "not in a mount of Novale",
        Errno::ROFS => "the mount is read-only",
        _ => "quota",
    };
    anyhow::Error::new(error).context(format!("{}: {why}", path.display()))
}
