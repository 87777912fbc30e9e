//! Which write methods a file's writes take, as attributes that are not stored as such: for `novale set`
//! and `novale info`. No list names them, so that no copy takes them along.
//!
//! `system.novale.method` is the file's own choice, of a directory that of what is made in it from now on;
//! there is none where none was made. The owner and the administrator set and remove it.
//! `system.novale.default` is what holds where there is none: the mount's choice, or the pool's.
//! `system.novale.mode` and `system.novale.default-mode` say in the same way when writes become durable; a mount without
//! a mode has no second one, all is durable at once there, and the first says what holds on others.

use novale_core::{
    Ctx, Error, FileKind, Fs, Ino, Mode, Node, Result, SetAttr, UpdatePolicy, XattrMode,
};

use crate::service::Caller;

/// Which of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Own,
    Default,
    OwnMode,
    DefaultMode,
}

impl Choice {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"system.novale.method" => Some(Self::Own),
            b"system.novale.default" => Some(Self::Default),
            b"system.novale.mode" => Some(Self::OwnMode),
            b"system.novale.default-mode" => Some(Self::DefaultMode),
            _ => None,
        }
    }
}

pub(crate) fn get(fs: &Fs, ino: Ino, choice: Choice) -> Result<Vec<u8>> {
    let name = match choice {
        Choice::Own => fs.update_of(ino)?.ok_or(Error::NoAttribute)?.name(),
        Choice::Default => fs.update_policy().name(),
        Choice::OwnMode => fs.mode_of(ino)?.ok_or(Error::NoAttribute)?.name(),
        Choice::DefaultMode => fs.mode_of_writes().ok_or(Error::NoAttribute)?.name(),
    };
    Ok(name.into())
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
    if matches!(choice, Choice::Default | Choice::DefaultMode) {
        return Err(Error::NotPermitted("the default is the mount's"));
    }
    let attr = fs.getattr(ino)?;
    if caller.uid != 0 && caller.uid != attr.uid {
        return Err(Error::NotPermitted("the method of a file is its owner's to choose"));
    }
    if !matches!(attr.kind, FileKind::File | FileKind::Directory) {
        return Err(Error::Invalid("only files and directories have a method of writes"));
    }
    let is_mode = choice == Choice::OwnMode;
    let has_one = if is_mode { fs.mode_of(ino)?.is_some() } else { fs.update_of(ino)?.is_some() };
    match (has_one, name) {
        (true, Some((_, XattrMode::Create | XattrMode::Neither))) => return Err(Error::Exists),
        (false, None | Some((_, XattrMode::Replace | XattrMode::Neither))) => {
            return Err(Error::NoAttribute);
        }
        (true | false, _) => {}
    }
    let name = name.map(|(name, _)| str::from_utf8(name).unwrap_or_default());
    let set = if is_mode {
        let mode = name.map(|name| Mode::named(name).ok_or(Error::Invalid("no mode of that name")));
        SetAttr { mode_of_writes: Some(mode.transpose()?), ..SetAttr::default() }
    } else {
        let unknown = Error::Invalid("no method of writes has that name");
        let policy = name.map(|name| UpdatePolicy::named(name).ok_or(unknown));
        SetAttr { update: Some(policy.transpose()?), ..SetAttr::default() }
    };
    fs.setattr(ctx, Node::current(ino), &set).map(drop)
}
