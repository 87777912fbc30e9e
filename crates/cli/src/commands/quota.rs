//! `novale quota`: what directory trees of a mount use and may use.
//!
//! Through the mount, by the attributes that it keeps for this (`novale_fuse`, `tree.rs`): so it works
//! beside everything else that uses the pool.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, fstat, getxattr, openat, removexattr, setxattr};
use rustix::io::Errno;
use serde::Serialize;

use crate::base::args::{QuotaClearArgs, QuotaCommand, QuotaSetArgs, QuotaShowArgs};
use crate::base::progress::spin;
use crate::base::size::show_size;
use crate::holders::patience::patiently;

const PROJECT: &str = "trusted.novale.project";
const TREE: &str = "trusted.novale.tree";
const QUOTA: &str = "trusted.novale.quota";
const QUOTAS: &str = "trusted.novale.quotas";
/// No attribute's value is longer.
const VALUE_BYTES_MAX: usize = 65_536;
const PAGE: u64 = 4096;
/// How often a tree is asked for that others begin and end.
const TRIES: u32 = 5;
const COUNTING: &str = "counting what is below";

pub(crate) fn run(command: &QuotaCommand) -> Result<()> {
    match command {
        QuotaCommand::Set(args) => patiently(&[&args.dir], || set(args)),
        QuotaCommand::Show(args) => patiently(&[&args.dir], || show(args)),
        QuotaCommand::Clear(args) => patiently(&[&args.dir], || clear(args)),
    }
}

/// Makes DIR a tree of its own, if it is none, with all that is below it, and sets its limits.
fn set(args: &QuotaSetArgs) -> Result<()> {
    if args.space.is_none() && args.inodes.is_none() {
        bail!("give a limit: --space SIZE, --inodes NUMBER, or none for either");
    }
    let top = Top::directory(&args.dir)?;
    // The limit that is not named stays.
    let pages = args.space.map(|limit| format!("pages_max={} ", limit.0.div_ceil(PAGE)));
    let inodes = args.inodes.map(|limit| format!("inodes_max={}", limit.0));
    let limits = [pages, inodes].into_iter().flatten().collect::<String>();
    spin(COUNTING, || top.put(TREE, &limits))?;
    if matches!(top.hanging()?, Hanging::Stored) {
        top.remove(TREE)?;
        return Err(top.older());
    }
    Ok(())
}

/// Takes the limits away, and counts DIR and what is below it for the tree around it.
fn clear(args: &QuotaClearArgs) -> Result<()> {
    let top = Top::directory(&args.dir)?;
    let own = top.own_number()?;
    // What an earlier call was interrupted in is gone on with.
    if top.own_quota()?.is_none() && !top.has_any(own)? {
        bail!("{}: not the top of a tree with a quota", args.dir.display());
    }
    spin(COUNTING, || top.remove(TREE))?;
    if top.own_quota()?.is_none() && top.has_any(own)? {
        remark!(
            "novale: {}: something counts for the tree still: another call has made it one meanwhile, or it is damaged (novale \
             check), or a client that died left it in the counts, until the pool is opened again",
            args.dir.display()
        );
    }
    Ok(())
}

/// A path to what is open. By this no link is followed but the last part, which is no link in calls that follow none.
fn place_of(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// What a mount says of the tree that hangs from a directory.
enum Hanging {
    Tree(Quota),
    Nothing,
    /// The mount is of an older build, which has stored the attribute as any other.
    Stored,
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
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

    /// The number of the tree that hangs from a directory: the directory's own.
    fn own_number(&self) -> Result<u32> {
        let shown = || self.path.display().to_string();
        let ino = fstat(&self.open).with_context(shown)?.st_ino;
        u32::try_from(ino).ok().with_context(|| format!("{}: can't be a tree", shown()))
    }

    fn project(&self) -> Result<u32> {
        let text = self.get(PROJECT)?;
        text.parse()
            .with_context(|| format!("{}: not a tree's number: {text}", self.path.display()))
    }

    /// Of the tree that it counts for.
    fn quota(&self) -> Result<Quota> {
        let line = self.get(QUOTA)?;
        Quota::parse(&line).with_context(|| format!("{}: not a quota: {line}", self.path.display()))
    }

    /// Of the tree that hangs from it, if one does.
    fn own_quota(&self) -> Result<Option<Quota>> {
        let own = self.own_number()?;
        // Other calls may begin and end it in between.
        for _ in 0..TRIES {
            if self.project()? != own {
                return Ok(None);
            }
            if let Hanging::Tree(quota) = self.hanging()? {
                return Ok(Some(quota));
            }
        }
        Err(self.older())
    }

    fn hanging(&self) -> Result<Hanging> {
        let mut value = vec![0; VALUE_BYTES_MAX];
        let len = match getxattr(place_of(&self.open), TREE, &mut value[..]) {
            Err(Errno::NODATA) => return Ok(Hanging::Nothing),
            len => len.map_err(|error| failed(self.path, error))?,
        };
        let line = value.get(..len).and_then(|line| str::from_utf8(line).ok());
        Ok(line.and_then(Quota::parse).map_or(Hanging::Stored, Hanging::Tree))
    }

    fn older(&self) -> anyhow::Error {
        anyhow!("{}: served by an older novale; mount it anew", self.path.display())
    }

    /// All trees of a mount.
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

    /// Whether anything in the mount counts for a tree.
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

    fn remove(&self, name: &str) -> Result<()> {
        match removexattr(place_of(&self.open), name) {
            // Another call has done it.
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(failed(self.path, error)),
        }
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

fn value_of(
    shown: &Path,
    get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> Result<String> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let len = get(&mut value).map_err(|error| failed(shown, error))?;
    value.truncate(len);
    String::from_utf8(value).with_context(|| shown.display().to_string())
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
