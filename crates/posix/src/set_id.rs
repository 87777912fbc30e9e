//! When a change takes set-id bits from a file, as Linux does it on its own file systems: a write, a
//! truncation, `fallocate` and a copy where the caller lacks `CAP_FSETID`, a change of owner always.

use novale_core::{Attr, ClearSetId, Ctx, Error, FileKind, Fs, SetAttr};

const SET_ID: u32 = 0o6000;

/// What a change of contents takes, by who makes it: a caller with `CAP_FSETID` may keep the bits
/// alive, and one in the file's group may keep a set-gid bit that is no program's.
#[must_use]
pub fn set_id_to_clear(has_fsetid: bool, is_in_group: bool) -> ClearSetId {
    match (has_fsetid, is_in_group) {
        (true, _) => ClearSetId::Nothing,
        (false, true) => ClearSetId::Executable,
        (false, false) => ClearSetId::All,
    }
}

/// What a change of owner takes: the bits of programs from everybody, others as a change of contents.
#[must_use]
pub fn set_id_to_clear_with_owner(has_fsetid: bool, is_in_group: bool) -> ClearSetId {
    match set_id_to_clear(has_fsetid, is_in_group) {
        ClearSetId::All => ClearSetId::All,
        ClearSetId::Nothing | ClearSetId::Executable => ClearSetId::Executable,
    }
}

/// Takes the bits away ahead of a change of contents, in a commit of its own, where there are any.
///
/// # Errors
/// Those of [`Fs::setattr`].
pub fn drop_set_id(fs: &Fs, ctx: &Ctx, attr: &Attr, clear_set_id: ClearSetId) -> Result<(), Error> {
    let falls = clear_set_id != ClearSetId::Nothing && attr.kind == FileKind::File;
    if falls && attr.mode & SET_ID != 0 {
        fs.setattr(ctx, attr.node(), &SetAttr { clear_set_id, ..SetAttr::default() })?;
    }
    Ok(())
}
