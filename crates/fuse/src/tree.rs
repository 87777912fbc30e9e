//! Directory trees and their quotas, as attributes that are not stored as such: for `novale quota`, and
//! for the one who has setfattr. The kernel hands `trusted.` to the administrator alone, and no list
//! names them, so that no copy takes them along.
//!
//! `trusted.novale.project` is the number of the tree that an inode counts for, 0 for none;
//! `trusted.novale.quota` is that tree's use and limits, and `trusted.novale.quotas` that of all trees,
//! a line each: `project=7 pages=12 inodes=3 pages_max=0 inodes_max=100`, 0 being no limit. Those are as many
//! as a value has room for; `trusted.novale.quotas.N` has those from tree N on. Setting `quota` takes the two
//! limits.
//!
//! Setting `trusted.novale.tree` of a directory makes it the top of a tree of its own with all that is below it, with
//! those of the two limits that are named, the other one staying, and removing it has all of that count for the tree around it. `trusted.novale.project` is of one
//! inode alone.

use std::collections::BTreeMap;

use novale_core::{Ctx, Error, Fs, Ino, Node, Quota, Result, SetAttr, Usage};
use novale_layout::XATTR_VALUE_BYTES_MAX;

/// Which of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Project,
    Quota,
    /// Of the trees from a number on.
    Quotas(u32),
    /// The whole tree that hangs from a directory.
    Tree,
    /// What another build may know.
    Unknown,
}

impl Which {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"trusted.novale.project" => Some(Self::Project),
            b"trusted.novale.quota" => Some(Self::Quota),
            b"trusted.novale.tree" => Some(Self::Tree),
            b"trusted.novale.quotas" => Some(Self::Quotas(0)),
            _ => {
                let name = str::from_utf8(name.strip_prefix(b"trusted.novale.")?).ok();
                let from = name.and_then(|name| name.strip_prefix("quotas.")?.parse().ok());
                Some(from.map_or(Self::Unknown, Self::Quotas))
            }
        }
    }
}

pub(crate) fn get(fs: &Fs, ino: Ino, which: Which) -> Result<Vec<u8>> {
    let text = match which {
        Which::Project => fs.getattr(ino)?.project.to_string(),
        Which::Quota => {
            let (project, quota) = fs.quota_of(ino)?.ok_or(Error::NoAttribute)?;
            line(project, &quota)
        }
        Which::Quotas(from) => lines_from(&fs.quotas()?, from),
        Which::Tree => {
            let (project, quota) = own_tree(fs, ino)?.ok_or(Error::NoAttribute)?;
            line(project, &quota)
        }
        Which::Unknown => return Err(Error::NoAttribute),
    };
    Ok(text.into_bytes())
}

/// The tree that hangs from a directory, if one does.
fn own_tree(fs: &Fs, ino: Ino) -> Result<Option<(u32, Quota)>> {
    Ok(fs.quota_of(ino)?.filter(|(project, _)| u64::from(*project) == ino.get()))
}

/// Trees that have anything, as many as a value has room for. The directory of one with a limit alone was removed.
fn lines_from(all: &BTreeMap<u32, Quota>, from: u32) -> String {
    let mut text = String::new();
    for (project, quota) in all.range(from..).filter(|(_, quota)| quota.used.inodes > 0) {
        let line = line(*project, quota);
        if text.len() + line.len() >= XATTR_VALUE_BYTES_MAX as usize {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn line(project: u32, quota: &Quota) -> String {
    let Quota { used, limit } = quota;
    format!(
        "project={project} pages={} inodes={} pages_max={} inodes_max={}",
        used.pages, used.inodes, limit.pages, limit.inodes
    )
}

pub(crate) fn set(fs: &Fs, ctx: &Ctx, ino: Ino, which: Which, value: &[u8]) -> Result<()> {
    let text = str::from_utf8(value).map_err(|_| Error::Invalid("not a text"))?;
    match which {
        Which::Project => {
            let project = text.parse().map_err(|_| Error::Invalid("not a tree's number"))?;
            let set = SetAttr { project: Some(project), ..SetAttr::default() };
            fs.setattr(ctx, Node::current(ino), &set).map(drop)
        }
        Which::Quota => set_limit(fs, ctx, ino, limit_of(text, Usage::default())?),
        Which::Quotas(_) => Err(Error::NotPermitted("limits are set tree by tree")),
        Which::Tree => {
            let old = own_tree(fs, ino)?.map_or_else(Usage::default, |(_, quota)| quota.limit);
            fs.begin_tree(ctx, Node::current(ino), limit_of(text, old)?)
        }
        Which::Unknown => Err(Error::Unsupported("no attribute of this build")),
    }
}

/// Takes an inode out of its tree, the limits, or a whole tree away.
pub(crate) fn remove(fs: &Fs, ctx: &Ctx, ino: Ino, which: Which) -> Result<()> {
    match which {
        Which::Project => set(fs, ctx, ino, which, b"0"),
        Which::Quota => set_limit(fs, ctx, ino, Usage::default()),
        Which::Quotas(_) => Err(Error::NotPermitted("limits are removed tree by tree")),
        Which::Tree => fs.end_tree(ctx, Node::current(ino)),
        Which::Unknown => Err(Error::NoAttribute),
    }
}

fn set_limit(fs: &Fs, ctx: &Ctx, ino: Ino, limit: Usage) -> Result<()> {
    let (project, _) = fs.quota_of(ino)?.ok_or(Error::Invalid("it counts for no tree"))?;
    fs.set_quota(ctx, project, limit)
}

/// Reads `pages_max=N inodes_max=N`, in any order; what is not named has the limit given.
fn limit_of(text: &str, mut limit: Usage) -> Result<Usage> {
    for word in text.split_whitespace() {
        let wrong = || Error::Invalid("a limit is pages_max=NUMBER or inodes_max=NUMBER");
        let (key, number) = word.split_once('=').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        match key {
            "pages_max" => limit.pages = number,
            "inodes_max" => limit.inodes = number,
            _ => return Err(wrong()),
        }
    }
    Ok(limit)
}
