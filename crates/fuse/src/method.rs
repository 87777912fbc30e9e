//! Which write methods a file's writes take, as attributes that are not stored as such: for `novale set`
//! and `novale info`. No list names them, so that no copy takes them along.
//!
//! `system.novale.method` is the file's own choice, of a directory that of what is made in it from now on;
//! there is none where none was made. The owner and the administrator set and remove it.
//! `system.novale.default` is what holds where there is none: the mount's choice, or the pool's.

use novale_core::{Ctx, Error, FileKind, Fs, Ino, Node, Result, SetAttr, UpdatePolicy, XattrMode};

use crate::service::Caller;

/// Which of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Own,
    Default,
}

impl Choice {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"system.novale.method" => Some(Self::Own),
            b"system.novale.default" => Some(Self::Default),
            _ => None,
        }
    }
}

pub(crate) fn get(fs: &Fs, ino: Ino, choice: Choice) -> Result<Vec<u8>> {
    let policy = match choice {
        Choice::Own => fs.update_of(ino)?.ok_or(Error::NoAttribute)?,
        Choice::Default => fs.update_policy(),
    };
    Ok(policy.name().into())
}

/// Sets the choice to that of a name, as `setxattr` does, or takes it away.
pub(crate) fn set(
    fs: &Fs,
    ctx: &Ctx,
    caller: Caller,
    ino: Ino,
    choice: Choice,
    name: Option<(&[u8], XattrMode)>,
) -> Result<()> {
    if choice == Choice::Default {
        return Err(Error::NotPermitted("the default is the mount's"));
    }
    let attr = fs.getattr(ino)?;
    if caller.uid != 0 && caller.uid != attr.uid {
        return Err(Error::NotPermitted("the method of a file is its owner's to choose"));
    }
    if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
        return Err(Error::Invalid("only files and directories have a method of writes"));
    }
    match (fs.update_of(ino)?, name) {
        (Some(_), Some((_, XattrMode::Create))) => return Err(Error::Exists),
        (None, None | Some((_, XattrMode::Replace))) => return Err(Error::NoAttribute),
        (Some(_) | None, _) => {}
    }
    let policy = name.map(|(name, _)| {
        let policy = str::from_utf8(name).ok().and_then(UpdatePolicy::named);
        policy.ok_or(Error::Invalid("no method of writes has that name"))
    });
    let set = SetAttr { update: Some(policy.transpose()?), ..SetAttr::default() };
    fs.setattr(ctx, Node::current(ino), &set).map(drop)
}
